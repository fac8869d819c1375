//! Google's generateContent, as AI Studio and Vertex AI serve it: `request` reads and checks the parameters,
//! `contents` the conversation, `schema` the tools' parameters, `render` writes answers.

mod contents;
mod error;
mod field;
mod render;
mod request;
mod schema;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use serde_json::json;

pub(crate) use self::request::{Request, Verb};
use crate::content::Ask as _;
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{EVENT_STREAM, JSON, Odd, Speak, keys};
use crate::vertex;

impl<'a> Speak<'a> for Request {
    const PROTOCOL: Protocol = Protocol::Gemini;
    /// Google has none; this one does not stand in anybody's way.
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-sim-request-id");
    const BROKEN: (&'static str, &'static str) = ("data: {\"candidates\": [{]\n\n", r#"{"candidates":[{]"#);

    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        // Vertex takes tokens and, in its express mode, keys; AI Studio's keys are a matter of the script.
        let path = head.uri.path();
        let keyed = head.headers.contains_key("x-goog-api-key")
            || head.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("key=")));
        if path.contains("/publishers/") && !keyed {
            vertex::authenticate(head)?;
        }
        Request::read(&head.uri, body)
    }

    /// AI Studio calls a wrong key an invalid argument; Vertex, which takes tokens, does not.
    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        let given = keys(head, &["x-goog-api-key"]);
        let query = head.uri.query().unwrap_or_default();
        if given.contains(&key) || query.split('&').any(|pair| pair.strip_prefix("key=") == Some(key)) {
            return Ok(());
        }
        if head.headers.contains_key("authorization") {
            return Err(Failure::status(401));
        }
        if given.is_empty() {
            let message = "Method doesn't allow unregistered callers (callers without established identity). \
                Please use API Key or other form of API consumer identity to call this API.";
            return Err(Failure::new(403, message));
        }
        let message = "API key not valid. Please pass a valid API key.";
        Err(Failure { code: Some("API_KEY_INVALID"), ..Failure::new(400, message) })
    }

    fn error(_id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        (error::body(failure).to_string().into_bytes(), error::headers(failure))
    }

    fn error_event(&self, _id: usize, _after: usize, failure: &Failure) -> Bytes {
        let body = error::body(failure);
        match self.sse {
            true => {
                let mut out = Writer::default();
                out.data(&body);
                out.events().each().concat().into()
            }
            false => format!(",\r\n{body}]").into(),
        }
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

    fn stream_type(&self) -> HeaderValue {
        if self.sse { EVENT_STREAM } else { JSON }
    }

    fn counted(tokens: u64) -> String {
        let details = json!([{"modality": "TEXT", "tokenCount": tokens}]);
        json!({"totalTokens": tokens, "promptTokensDetails": details}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        let (status, body) = match quirk {
            Quirk::ChecksSignatures => match &self.unsigned {
                Some(problem) => (400, error::body(&Failure::new(400, problem))),
                None => return None,
            },
            Quirk::ErrorIn200 => (200, error::body(&Failure::status(503))),
            Quirk::ErrorArray => {
                (429, json!([error::body(&Failure { retry_after: Some("1".into()), ..Failure::status(429) })]))
            }
            Quirk::BlockedPrompt => (200, render::blocked(said)),
            _ => return None,
        };
        if status == 200 && self.stream() && self.sse {
            let mut out = Writer::default();
            out.data(&body);
            return Some((status, Odd::Events(out.events())));
        }
        Some((status, Odd::Whole(body.to_string().into_bytes())))
    }

    fn unknown(path: &Path) -> Failure {
        let (name, outer) = path.split_last();
        field::stranger(&field::snake(&outer.bracketed()), name)
    }

    fn bad_signature(_path: &Path) -> Failure {
        Failure::new(400, contents::CORRUPTED)
    }
}
