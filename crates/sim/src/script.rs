//! What a simulated upstream does: plain data, built in Rust or read from JSON.

use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};

use crate::quirk::Quirk;

/// What the server does from now on.
///
/// In JSON every member is optional: `{"behaviour": {"says": "hello"}, "pace_ms": 5}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The answer to the first call.
    pub behaviour: Behaviour,
    /// The answers to the calls after it; the last one repeats. Empty: always `behaviour`.
    pub then: Vec<Behaviour>,
    /// Latency before the response headers.
    #[serde(rename = "first_byte_ms", deserialize_with = "milliseconds")]
    pub first_byte: Duration,
    /// Time between two events of a stream; at zero, events share writes.
    #[serde(rename = "pace_ms", deserialize_with = "milliseconds")]
    pub pace: Duration,
    /// Writes every event on its own even when `pace` is zero.
    pub flush: bool,
    /// Keeps the last requests for [`crate::Sim::requests`]; benchmarks turn it off.
    pub record: bool,
    /// Refuses, with 401, calls that do not carry this key.
    pub require_key: Option<String>,
    /// Lets the model names of [`crate::DEMO_MODELS`] win over `behaviour` and `then`.
    pub by_model: bool,
}

/// One answer, the same on every protocol. Faults that cut a stream count its events from 1, which is
/// `message_start` in Messages and the first chunk or event elsewhere.
///
/// In JSON: the name in snake case, alone (`"echo"`) or as the key of its argument
/// (`{"status": {"code": 503}}`). Bodies are strings; binary ones are written `base64:…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Behaviour {
    /// Repeats the last user text.
    #[default]
    Echo,
    /// This text, streamed word by word.
    Says(String),
    /// `count` deltas of `bytes` bytes each, rendered once. `max_tokens` does not cut it: a
    /// benchmark must get the stream it asked for.
    Tokens { count: usize, bytes: usize },
    /// Calls the first tool on offer; answers in text once a result is there or when no tool is.
    ToolUse,
    /// Calls this tool with this input when it is offered; answers in text once a result is there or when it is not.
    Calls { name: String, input: serde_json::Value },
    /// Says this and calls these tools, as far as they are offered, whatever results are there already.
    Asks {
        #[serde(default)]
        text: String,
        calls: Vec<(String, serde_json::Value)>,
    },
    /// Searches the web, where the request has the vendor's own search, and says this, which rests on the first page that
    /// was found; then calls these tools, as far as they are offered.
    Searches {
        query: String,
        /// Addresses and titles.
        found: Vec<(String, String)>,
        text: String,
        #[serde(default)]
        calls: Vec<(String, serde_json::Value)>,
    },
    /// The same as `tool_use` with this many calls at once, over the offered tools in turn.
    ParallelTools(usize),
    /// A signed thinking block, then text.
    Thinking,
    /// A redacted thinking block, then text.
    RedactedThinking,
    /// Declines, with `stop_details`.
    Refusal,
    /// Text that ends for this reason: one of the Messages protocol, translated, or any other as it is.
    StopReason(String),
    /// Text whose usage reports prompt caching.
    Cached { read: u64, write_5m: u64, write_1h: u64 },
    /// A picture whose usage reports tokens; for calls that ask for one. Others answer those without usage.
    Image { input_tokens: u64, output_tokens: u64 },
    /// An error in the vendor's shape; the type follows from the code unless given. A type of the Messages
    /// protocol is translated; any other word is the vendor's own and stands where it is most specific: `code`
    /// at OpenAI, `status` at Google. Retry hints are headers, or the vendor's detail in the body.
    Status {
        code: u16,
        #[serde(default)]
        retry_after: Option<String>,
        #[serde(default)]
        error_type: Option<String>,
        #[serde(default)]
        message: Option<String>,
    },
    /// Exactly this response; only `date` and the framing headers are added.
    Raw {
        status: u16,
        #[serde(default)]
        headers: Vec<(String, String)>,
        #[serde(default, deserialize_with = "text_or_base64")]
        body: Bytes,
    },
    /// A 200 event stream of exactly these bytes, every chunk in a write of its own.
    RawStream {
        #[serde(deserialize_with = "list_of_text_or_base64")]
        chunks: Vec<Bytes>,
        #[serde(default)]
        end: End,
    },
    /// Never answers.
    HangBeforeHeaders,
    /// Falls silent after this many events; without streaming, in the middle of the body.
    HangMidStream { after: usize },
    /// Closes the connection after this many events, without the end of the response.
    CloseMidStream { after: usize },
    /// The same, with half of the next event sent.
    CloseMidFrame { after: usize },
    /// Declares the whole length, sends half of it and closes the connection.
    TruncatedBody,
    /// A web page with status 200.
    Garbage,
    /// An event stream whose data is not JSON; without streaming, a broken JSON body.
    GarbageStream,
    /// A text of this many bytes, in one event when streamed; made while it is sent.
    Oversize { bytes: usize },
    /// An `error` event after this many events; without streaming, the status of that error.
    ErrorInStream { after: usize, error_type: String, message: String },
    /// Status 200 and not one event; without streaming, an empty body.
    EmptyStream,
    /// A stream that ends well but lacks what tells that it is complete (`message_stop`, the finish and
    /// `[DONE]`, `response.completed`, the finish); without streaming, a null `stop_reason` or its like.
    EndsWithoutStop,
    /// Refuses this member as unknown for as long as the request has it, and then echoes. A name with dots is
    /// a way from the root of the body; one without is looked for everywhere.
    RefuseMember(String),
    /// The same with a beta of the Messages protocol.
    RefuseBeta(String),
    /// The same with reasoning that is signed or sealed: the server says that it cannot verify it.
    RefuseSignature,
    /// One of the oddities of real servers.
    Quirk(Quirk),
}

/// How a response ends once its bytes are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// As HTTP wants it; the connection stays usable.
    #[default]
    Close,
    /// Not at all, until the client leaves.
    Hang,
    /// The connection is closed (FIN) without the end of the response.
    Cut,
    /// The connection is reset (RST) without the end of the response.
    Reset,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            behaviour: Behaviour::default(),
            then: Vec::new(),
            first_byte: Duration::ZERO,
            pace: Duration::ZERO,
            flush: false,
            record: true,
            require_key: None,
            by_model: true,
        }
    }
}

impl From<Behaviour> for Script {
    fn from(behaviour: Behaviour) -> Self {
        Self { behaviour, ..Self::default() }
    }
}

impl Script {
    pub fn says(text: impl Into<String>) -> Self {
        Behaviour::says(text).into()
    }

    pub fn status(code: u16) -> Self {
        Behaviour::status(code).into()
    }

    pub fn tokens(count: usize, bytes: usize) -> Self {
        Behaviour::Tokens { count, bytes }.into()
    }

    /// Adds the answer to the next call in line.
    #[must_use]
    pub fn then(mut self, behaviour: Behaviour) -> Self {
        self.then.push(behaviour);
        self
    }

    #[must_use]
    pub fn first_byte(mut self, latency: Duration) -> Self {
        self.first_byte = latency;
        self
    }

    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    #[must_use]
    pub fn flush(mut self, flush: bool) -> Self {
        self.flush = flush;
        self
    }

    #[must_use]
    pub fn record(mut self, record: bool) -> Self {
        self.record = record;
        self
    }

    #[must_use]
    pub fn require_key(mut self, key: impl Into<String>) -> Self {
        self.require_key = Some(key.into());
        self
    }

    #[must_use]
    pub fn by_model(mut self, by_model: bool) -> Self {
        self.by_model = by_model;
        self
    }

    /// The behaviour of the call with this number, counted from 0.
    pub(crate) fn at(&self, call: usize) -> &Behaviour {
        match call.min(self.then.len()) {
            0 => &self.behaviour,
            later => &self.then[later - 1],
        }
    }
}

impl Behaviour {
    pub fn says(text: impl Into<String>) -> Self {
        Self::Says(text.into())
    }

    pub fn status(code: u16) -> Self {
        Self::Status { code, retry_after: None, error_type: None, message: None }
    }
}

/// The size of a [`Behaviour::Tokens`] stream, written `COUNTxBYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenShape {
    pub count: usize,
    pub bytes: usize,
}

impl TokenShape {
    /// Streams are rendered in memory, and a model name that anyone can write may ask for one.
    pub const MAX_TOTAL_BYTES: usize = 16 << 20;
}

impl FromStr for TokenShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, bytes) =
            text.split_once('x').ok_or_else(|| format!("expected COUNTxBYTES, such as 100x20, found {text}"))?;
        let number = |part: &str| part.parse::<usize>().map_err(|error| format!("{part}: {error}"));
        let (count, bytes) = (number(count)?, number(bytes)?);
        // An empty delta is still an event of its own, so it counts as one byte.
        match count.checked_mul(bytes.max(1)) {
            Some(total) if total <= Self::MAX_TOTAL_BYTES => Ok(Self { count, bytes }),
            _ => Err(format!("{text} is more than {} bytes", Self::MAX_TOTAL_BYTES)),
        }
    }
}

fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

fn text_or_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    bytes_of(String::deserialize(from)?)
}

fn list_of_text_or_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Bytes>, D::Error> {
    Vec::<String>::deserialize(from)?.into_iter().map(bytes_of).collect()
}

fn bytes_of<E: serde::de::Error>(text: String) -> Result<Bytes, E> {
    match text.strip_prefix("base64:") {
        Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).map(Bytes::from).map_err(E::custom),
        None => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_behaviour_repeats() {
        let script = Script::status(503).then(Behaviour::status(429)).then(Behaviour::Echo);
        let order: Vec<_> = (0..4).map(|call| script.at(call).clone()).collect();
        let expected = [Behaviour::status(503), Behaviour::status(429), Behaviour::Echo, Behaviour::Echo];
        assert_eq!(order, expected);
        assert_eq!(*Script::status(503).at(7), Behaviour::status(503));
    }

    #[test]
    fn json_names_a_behaviour_in_few_words() {
        let read = |text: &str| serde_json::from_str::<Script>(text).unwrap();
        let script = read(r#"{"behaviour":{"says":"hello"},"pace_ms":5,"first_byte_ms":20}"#);
        assert_eq!(script.behaviour, Behaviour::says("hello"));
        assert_eq!(script.pace, Duration::from_millis(5));
        assert_eq!(script.first_byte, Duration::from_millis(20));
        assert!(script.record && script.by_model);
        assert_eq!(read(r#"{"behaviour":{"status":{"code":529}}}"#).behaviour, Behaviour::status(529));
        assert_eq!(
            read(r#"{"behaviour":{"raw_stream":{"chunks":["a","base64:AP8="],"end":"reset"}}}"#).behaviour,
            Behaviour::RawStream { chunks: vec![Bytes::from("a"), Bytes::from_static(&[0, 255])], end: End::Reset }
        );
        assert!(serde_json::from_str::<Script>(r#"{"behavior":"echo"}"#).is_err());
    }

    #[test]
    fn token_shapes_have_a_limit() {
        assert_eq!("100x20".parse(), Ok(TokenShape { count: 100, bytes: 20 }));
        assert!("100".parse::<TokenShape>().is_err());
        assert!("99999999x0".parse::<TokenShape>().is_err());
        assert!("18446744073709551615x9".parse::<TokenShape>().is_err());
    }
}
