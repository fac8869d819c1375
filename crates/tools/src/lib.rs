//! What the server can do for a model: the time, what the web says, and which of many tools fits.
//!
//! Pure as far as it goes: what is fetched is fetched by the gateway, which calls this crate and is not known to it.
//! `page` is for the child process alone, whatever it reads.

pub mod charset;
pub mod datetime;
pub mod find;
pub mod moderation;
pub mod ocr;
pub mod page;
pub mod sandbox;
pub mod search;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use tidegate_core::Secret;

/// The head of a call that takes and gives JSON, with the key of the service; nothing when that cannot be sent.
fn headers(key: Option<&Secret>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key {
        let mut value = key.expose(|key| HeaderValue::from_bytes(&[b"Bearer ", key].concat())).ok()?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Some(headers)
}
