//! OpenAI's Responses: `request` reads and checks the parameters, `input` the conversation, `render` writes
//! answers and `stream` their events.

mod input;
mod render;
mod request;
mod stream;

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use serde_json::{Value, json};

pub(crate) use self::request::Request;
use crate::content::Ask as _;
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::openai;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Odd, Speak};

impl<'a> Speak<'a> for Request {
    const PROTOCOL: Protocol = Protocol::Responses;
    const REQUEST_ID: HeaderName = openai::REQUEST_ID;
    const BROKEN: (&'static str, &'static str) = (
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{]\n\n",
        r#"{"object":"response","output":[{]"#,
    );

    fn read(_head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        Request::read(body)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        openai::admit(key, head)
    }

    fn error(_id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        (openai::body(failure), openai::headers(failure))
    }

    fn error_event(&self, _id: usize, after: usize, failure: &Failure) -> Bytes {
        let mut out = Writer::default();
        out.named("error", &error_event(failure, after));
        out.events().each().concat().into()
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        render::whole(self, said).to_string().into()
    }

    fn events(&self, said: &Said<'_>) -> Events {
        stream::events(self, said)
    }

    fn closing(&self) -> usize {
        1
    }

    fn counted(tokens: u64) -> String {
        json!({"object": "response.input_tokens", "input_tokens": tokens}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        let whole = |status: u16, body: Vec<u8>| Some((status, Odd::Whole(body)));
        let overloaded = Failure::status(503);
        match quirk {
            Quirk::ChecksSignatures => {
                let failure = self.unsigned.as_ref()?;
                whole(failure.status, openai::body(failure))
            }
            Quirk::ErrorIn200 if self.stream() => {
                let mut out = Writer::default();
                out.named("error", &error_event(&overloaded, 0));
                Some((200, Odd::Events(out.events())))
            }
            Quirk::ErrorIn200 => whole(200, openai::body(&overloaded)),
            Quirk::FailedEvent if self.stream() => Some((200, Odd::Events(stream::failing(self, said)))),
            Quirk::FailedEvent => whole(200, render::failed(self, said).to_string().into_bytes()),
            _ => None,
        }
    }

    fn bad_signature(_path: &Path) -> Failure {
        Failure { code: Some("invalid_encrypted_content"), ..Failure::new(400, input::UNVERIFIED) }
    }
}

/// The data of an `error` event: flat, unlike the body of an error.
fn error_event(failure: &Failure, number: usize) -> Value {
    let mut event = openai::detail(failure);
    event["type"] = json!("error");
    event["sequence_number"] = json!(number);
    event
}
