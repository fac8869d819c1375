//! Cohere's chat, version 2: `request` reads and checks the parameters, `turns` the conversation, and `render` writes
//! answers.

mod render;
mod request;
mod turns;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use serde_json::json;

pub(crate) use self::request::Request;
use crate::content::Ask as _;
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Odd, Speak, keys, request_id};

impl<'a> Speak<'a> for Request {
    const PROTOCOL: Protocol = Protocol::Cohere;
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-debug-trace-id");
    const BROKEN: (&'static str, &'static str) =
        ("event: message-start\ndata: {\"type\":\"message-start\",\"delta\":{]\n\n", r#"{"message":{"content":[{]"#);

    fn read(_head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        Request::read(body)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        match keys(head, &[]) {
            given if given.contains(&key) => Ok(()),
            given if given.is_empty() => Err(Failure::new(401, "no api key supplied")),
            _ => Err(Failure::new(401, "invalid api token")),
        }
    }

    fn error(id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        let mut headers = HeaderMap::new();
        if let Some(value) = failure.retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(RETRY_AFTER, value);
        }
        let body = json!({"id": request_id(id), "message": message(failure)});
        (body.to_string().into_bytes(), headers)
    }

    /// Errors have no event of their own: the stream ends with one.
    fn error_event(&self, _id: usize, _after: usize, failure: &Failure) -> Bytes {
        let reason = if failure.status == 504 { "TIMEOUT" } else { "ERROR" };
        let mut out = Writer::default();
        let delta = json!({"finish_reason": reason, "error": message(failure)});
        out.named("message-end", &json!({"type": "message-end", "delta": delta}));
        out.events().each().concat().into()
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        render::whole(self, said).to_string().into()
    }

    fn events(&self, said: &Said<'_>) -> Events {
        render::events(self, said)
    }

    fn closing(&self) -> usize {
        1
    }

    /// This protocol has no count of its own.
    fn counted(tokens: u64) -> String {
        json!({"tokens": tokens}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        let failure = Failure::status(500);
        match quirk {
            Quirk::ErrorIn200 if self.stream() => {
                let mut out = Writer::default();
                let error = self.error_event(said.id, 0, &failure);
                out.write(|bytes| bytes.extend_from_slice(&error));
                Some((200, Odd::Events(out.events())))
            }
            Quirk::ErrorIn200 => Some((200, Odd::Whole(Self::error(said.id, &failure).0))),
            Quirk::ErrorFinish if self.stream() => {
                let mut out = Writer::default();
                let error = self.error_event(said.id, 0, &failure);
                for event in self.events(said).each().iter().take(4).chain([&error]) {
                    out.write(|bytes| bytes.extend_from_slice(event));
                }
                Some((200, Odd::Events(out.events())))
            }
            Quirk::ErrorFinish => {
                let mut body = render::whole(self, said);
                body["finish_reason"] = json!("ERROR");
                Some((200, Odd::Whole(body.to_string().into_bytes())))
            }
            _ => None,
        }
    }

    fn unknown(path: &Path) -> Failure {
        request::stranger(path.split_last().0)
    }

    /// The protocol has no signatures; a server behind it that has them says it in its own words.
    fn bad_signature(_path: &Path) -> Failure {
        Failure::new(400, "invalid request: Invalid `signature` in `thinking` block")
    }
}

fn message(failure: &Failure) -> &str {
    failure.message.as_deref().unwrap_or(match failure.status {
        401 => "invalid api token",
        402 => "please add or update your payment method",
        403 => "the api key may not use this resource",
        404 => "model not found, make sure the correct model ID was used",
        413 => "the request is too large",
        429 => "You are past the per minute request limit, please wait and try again later.",
        498 => "invalid token",
        499 => "request cancelled",
        501 => "not implemented",
        503 | 529 => "the service is overloaded, please try again later",
        504 => "the request timed out",
        500.. => "internal server error, this has been reported to our developers",
        _ => "invalid request",
    })
}
