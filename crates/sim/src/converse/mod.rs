//! Amazon Bedrock's Converse: `definition` is the service's input and `shape` checks against it, `turns` checks the
//! conversation, `request` the rest, and `render` writes answers.

mod definition;
mod render;
mod request;
mod shape;
mod turns;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use serde_json::{Value, json};

pub(crate) use self::request::Request;
use crate::aws;
use crate::content::Ask as _;
use crate::events::Events;
use crate::failure::Failure;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Odd, Speak};

impl<'a> Speak<'a> for Request {
    const PROTOCOL: Protocol = Protocol::Converse;
    const REQUEST_ID: HeaderName = aws::REQUEST_ID;
    const BROKEN: (&'static str, &'static str) = (r#"{"role":[}"#, r#"{"output":{"message":[}"#);

    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        aws::authenticate(head, body)?;
        Request::read(head.uri.path(), body)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        aws::admit(key, head)
    }

    fn error(_id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        aws::error(failure)
    }

    fn error_event(&self, _id: usize, _after: usize, failure: &Failure) -> Bytes {
        aws::exception(failure)
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        render::whole(said, self.tells_stop).to_string().into()
    }

    fn events(&self, said: &Said<'_>) -> Events {
        render::events(said, self.tells_stop)
    }

    /// The stop and the metadata.
    fn closing(&self) -> usize {
        2
    }

    fn stream_type(&self) -> HeaderValue {
        aws::STREAM
    }

    fn broken_stream(&self) -> Bytes {
        aws::broken("messageStart", Self::BROKEN.0)
    }

    fn counted(tokens: u64) -> String {
        json!({"inputTokens": tokens}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        aws::odd(quirk, self.stream(), || self.events(said))
    }

    fn unknown(path: &Path) -> Failure {
        let (name, outer) = path.split_last();
        shape::stranger(&outer.dotted(), name)
    }

    fn bad_signature(path: &Path) -> Failure {
        let place = path.block().dotted();
        let message =
            format!("The model returned the following errors: {place}: Invalid `signature` in `thinking` block");
        Failure::new(400, message)
    }

    fn bad_beta(_name: &str) -> Option<Failure> {
        Some(Failure::new(400, "The model returned the following errors: invalid beta flag"))
    }

    fn betas(_head: &Parts, body: &Value) -> Vec<String> {
        aws::betas(&body["additionalModelRequestFields"])
    }
}
