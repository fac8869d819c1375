//! Anthropic's Messages over Amazon Bedrock's InvokeModel: the same bodies without `model` and `stream`, and the same
//! events, each wrapped in a frame.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use serde_json::{Value, json};

use crate::aws::{self, Verb, frame};
use crate::content::{Ask, LastUser};
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::messages;
use crate::quirk::{Protocol, Quirk};
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Odd, Speak};

pub(crate) struct Request<'a>(messages::Request<'a>);

const VERSIONS: &[&str] = &["bedrock-2023-05-31", "2026-10-21"];

/// The betas that the platform knows; it refuses all others.
const BETAS: &[&str] = &[
    "interleaved-thinking-2025-05-14",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "compact-2026-01-12",
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "effort-2025-11-24",
    "fine-grained-tool-streaming-2025-05-14",
    "token-efficient-tools-2025-02-19",
    "output-128k-2025-02-19",
    "dev-full-thinking-2025-05-14",
    "tool-search-tool-2025-10-19",
    "tool-examples-2025-10-29",
    "thinking-binding-controls-2026-08-01",
    "mid-conversation-tool-changes-2026-07-01",
    "mid-conversation-output-config-2026-07-01",
];

/// What the platform adds to the checks of a body.
pub(crate) fn check(body: &[u8]) -> Result<(), Failure> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        Failure::new(400, format!("Malformed input request, please reformat your input and try again. ({error})"))
    })?;
    for name in ["model", "stream"] {
        if value.get(name).is_some() {
            return Err(Failure::new(400, format!("{name}: Extra inputs are not permitted")));
        }
    }
    match value["anthropic_version"].as_str() {
        None => return Err(Failure::new(400, "anthropic_version: Field required")),
        Some(version) if !VERSIONS.contains(&version) => {
            return Err(Failure::new(400, "anthropic_version: Input should be 'bedrock-2023-05-31' or '2026-10-21'"));
        }
        Some(_) => {}
    }
    if !value["messages"].is_array() {
        return Err(Failure::new(400, "messages: Field required"));
    }
    if value.get("max_tokens").is_none() {
        return Err(Failure::new(400, "max_tokens: Field required"));
    }
    match value.get("anthropic_beta") {
        None => Ok(()),
        Some(list) => {
            let known = |item: &Value| item.as_str().is_some_and(|name| BETAS.contains(&name));
            match list.as_array().is_some_and(|items| items.iter().all(known)) {
                true => Ok(()),
                false => Err(Failure::new(400, "invalid beta flag")),
            }
        }
    }
}

impl<'a> Speak<'a> for Request<'a> {
    const PROTOCOL: Protocol = Protocol::Invoke;
    const REQUEST_ID: HeaderName = aws::REQUEST_ID;
    const BROKEN: (&'static str, &'static str) = (r#"{"bytes":[}"#, <messages::Request<'_> as Speak<'_>>::BROKEN.1);

    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        aws::authenticate(head, body)?;
        let (model, verb) = Verb::of(head.uri.path()).ok_or_else(|| Failure::status(404))?;
        check(body)?;
        messages::Request::hosted(body, Some(model), verb == Verb::InvokeStream).map(Self)
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
        self.0.whole(said)
    }

    fn events(&self, said: &Said<'_>) -> Events {
        let all = said.usage();
        let metrics = json!({
            "inputTokenCount": said.input_tokens, "outputTokenCount": all.output,
            "invocationLatency": 12, "firstByteLatency": 3,
            "cacheReadInputTokenCount": all.cache_read, "cacheWriteInputTokenCount": all.cache_write,
        });
        let events = self.0.events(said).each();
        let mut out = Writer::default();
        for event in &events {
            let Some(data) = data(event) else { continue };
            let Some(open) = data.strip_suffix(b"}") else { continue };
            let metrics = match data.starts_with(br#"{"type":"message_stop""#) {
                true => format!(r#","amazon-bedrock-invocationMetrics":{metrics}}}"#),
                false => "}".into(),
            };
            let encoded = STANDARD.encode([open, metrics.as_bytes()].concat());
            let chunk = frame::event("chunk", &json!({"bytes": encoded, "p": "abcdefghijk"}));
            out.write(|bytes| bytes.extend_from_slice(&chunk));
        }
        out.events()
    }

    fn closing(&self) -> usize {
        1
    }

    fn stream_type(&self) -> HeaderValue {
        aws::STREAM
    }

    fn broken_stream(&self) -> Bytes {
        aws::broken("chunk", Self::BROKEN.0)
    }

    fn counted(tokens: u64) -> String {
        json!({"inputTokens": tokens}).to_string()
    }

    fn odd(&self, quirk: Quirk, said: &Said<'_>) -> Option<(u16, Odd)> {
        aws::odd(quirk, self.stream(), || self.events(said))
    }

    fn unknown(path: &Path) -> Failure {
        messages::Request::unknown(path)
    }

    fn bad_signature(path: &Path) -> Failure {
        messages::Request::bad_signature(path)
    }

    fn bad_beta(_name: &str) -> Option<Failure> {
        Some(Failure::new(400, "invalid beta flag"))
    }

    fn betas(_head: &Parts, body: &Value) -> Vec<String> {
        aws::betas(body)
    }
}

/// The data of an event; the platform sends no pings.
fn data(event: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::find(event, b"\ndata: ")?;
    let data = event[at + 7..].trim_ascii_end();
    (!event.starts_with(b"event: ping")).then_some(data)
}

impl Ask for Request<'_> {
    fn model(&self) -> &str {
        self.0.model()
    }

    fn stream(&self) -> bool {
        self.0.stream()
    }

    fn max_tokens(&self) -> Option<u64> {
        self.0.max_tokens()
    }

    fn stop_sequences(&self) -> &[String] {
        self.0.stop_sequences()
    }

    fn last_user(&self) -> LastUser {
        self.0.last_user()
    }

    fn tools(&self) -> Vec<String> {
        self.0.tools()
    }

    fn most_calls(&self) -> usize {
        self.0.most_calls()
    }

    fn call_id(number: usize) -> String {
        format!("toolu_bdrk_sim_{number}")
    }
}
