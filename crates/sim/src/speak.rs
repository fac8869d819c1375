//! What a protocol has to know to play every behaviour.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use serde_json::Value;

use crate::content::Ask;
use crate::events::Events;
use crate::failure::Failure;
use crate::openai;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// A request of one protocol, and how that protocol writes what answers it.
pub(crate) trait Speak<'a>: Ask + Sized {
    const PROTOCOL: Protocol;
    /// The header that carries the request's id.
    const REQUEST_ID: HeaderName;
    /// Bytes that look like an answer and are not JSON: of a stream, and whole.
    const BROKEN: (&'static str, &'static str);

    /// Reads and checks a request.
    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure>;

    /// Whether a request carries this key, or how it is refused.
    fn admit(key: &str, head: &Parts) -> Result<(), Failure>;

    /// The body of an error response, and headers that go with it.
    fn error(id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap);

    /// An error in a stream after this many events.
    fn error_event(&self, id: usize, after: usize, failure: &Failure) -> Bytes;

    /// The body of an answer that is not streamed.
    fn whole(&self, said: &Said<'_>) -> Bytes;

    fn events(&self, said: &Said<'_>) -> Events;

    /// How many events at the end of a stream tell that it is complete.
    fn closing(&self) -> usize;

    fn stream_type(&self) -> HeaderValue {
        EVENT_STREAM
    }

    /// Bytes in the framing of a stream that are not JSON.
    fn broken_stream(&self) -> Bytes {
        Bytes::from_static(Self::BROKEN.0.as_bytes())
    }

    /// The body of an answer to a token count.
    fn counted(tokens: u64) -> String;

    /// The answers of quirks that are no ordinary answer: a status, and the body or the events.
    fn odd(&self, _quirk: Quirk, _said: &Said<'_>) -> Option<(u16, Odd)> {
        None
    }

    /// How a member that the server does not know is refused.
    fn unknown(path: &Path) -> Failure {
        openai::unknown(path)
    }

    /// How reasoning is refused whose signature cannot be verified.
    fn bad_signature(path: &Path) -> Failure;

    /// How a beta is refused; `None` where there are none.
    fn bad_beta(_name: &str) -> Option<Failure> {
        None
    }

    /// The betas that a request asks for.
    fn betas(_head: &Parts, _body: &Value) -> Vec<String> {
        Vec::new()
    }
}

/// The answer of a quirk.
pub(crate) enum Odd {
    Whole(Vec<u8>),
    Events(Events),
}

/// The key after `Bearer` in `authorization`, or in one of these headers.
pub(crate) fn keys<'h>(head: &'h Parts, headers: &[&str]) -> Vec<&'h str> {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    headers.iter().filter_map(|name| text(name)).chain(bearer).collect()
}

pub(crate) fn request_id(id: usize) -> String {
    format!("req_sim_{id}")
}
