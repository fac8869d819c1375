//! Stub.

use http::{HeaderMap, Uri};
use tidegate_core::Timestamp;

use crate::credential::AwsKeys;

pub fn service(host: &str) -> &'static str {
    if host.starts_with("bedrock-mantle") { "bedrock-mantle" } else { "bedrock" }
}

pub fn sign(_: &Uri, _: &mut HeaderMap, _: &[u8], _: &AwsKeys, _: &str, _: &str, _: Timestamp) -> Result<(), ()> {
    Err(())
}
