//! OpenAI's Chat Completions: `request` reads and checks the parameters, `turns` the conversation, `render`
//! writes answers, `calls` the tool calls in them, and `odd` the answers of quirks that are no answer.

mod calls;
mod odd;
mod render;
mod request;
mod turns;

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use serde_json::json;

pub(crate) use self::request::Request;
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::openai;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Odd, Speak};

impl<'a> Speak<'a> for Request {
    const PROTOCOL: Protocol = Protocol::Chat;
    const REQUEST_ID: HeaderName = openai::REQUEST_ID;
    const BROKEN: (&'static str, &'static str) =
        ("data: {\"id\":\"chatcmpl-sim\",\"choices\":[{]\n\n", r#"{"object":"chat.completion","choices":[{]"#);

    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        Request::read(head.uri.path(), body)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        openai::admit(key, head)
    }

    fn error(_id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        (openai::body(failure), openai::headers(failure))
    }

    fn error_event(&self, _id: usize, _after: usize, failure: &Failure) -> Bytes {
        let mut out = Writer::default();
        out.data(&json!({"error": openai::detail(failure)}));
        out.events().each().concat().into()
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        render::whole(said).to_string().into()
    }

    fn events(&self, said: &Said<'_>) -> Events {
        render::events(said, self.include_usage)
    }

    /// The finish, the usage where it was asked for, and `[DONE]`.
    fn closing(&self) -> usize {
        if self.include_usage { 3 } else { 2 }
    }

    /// This protocol has no count of its own; vLLM's has a route that needs another body.
    fn counted(tokens: u64) -> String {
        json!({"count": tokens}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        odd::answer(self, quirk, said)
    }

    fn bad_signature(path: &Path) -> Failure {
        let message = "Invalid `signature` in `thinking` block";
        Failure::at(path.bracketed(), "invalid_signature", message)
    }
}
