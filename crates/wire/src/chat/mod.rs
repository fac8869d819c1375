//! The Chat Completions format at our own door: a request in it becomes one in the Messages format, and what is answered
//! comes back in it, whole or streamed. Everything between the two is the same for both.
//!
//! What the Messages format has no word for travels beside it, in [`OPTIONS`]: endpoints that speak the chat format get
//! it, others do not, and the caller is told.

pub(crate) mod answer;
pub(crate) mod cited;
pub(crate) mod content;
mod conversation;
pub(crate) mod custom;
pub(crate) mod lenient;
pub(crate) mod options;
pub(crate) mod request;
mod schema;
mod stream;
pub(crate) mod usage;

pub use answer::whole;
pub use lenient::is_readable;
pub use request::{Asked, read};
pub use stream::Stream;

use serde_json::value::RawValue;

use crate::answer::DECLINES;
use crate::json::Members;
use crate::messages::{Block, Response, StopDetails};
use crate::sse::Frame;

/// The member of a request in the Messages format that holds what only chat endpoints understand.
pub const OPTIONS: &str = "chat_options";

/// What such a member may hold.
pub const OPTION_NAMES: [&str; 9] = [
    "frequency_penalty",
    "logit_bias",
    "min_p",
    "presence_penalty",
    "repetition_penalty",
    "response_format",
    "seed",
    "top_a",
    "verbosity",
];

/// What a `response_format` beside a request says of the schema that stands in the request: whether it is to be followed to
/// the letter. Nothing where it is a format of its own.
pub fn wish(name: &str, value: &RawValue) -> Option<bool> {
    let format = Members::of(value).filter(|_| name == "response_format")?;
    let named = Members::of(format.get("json_schema")?)?;
    match (named.get("schema"), named.get("strict")?.get()) {
        (None, "true") => Some(true),
        (None, "false") => Some(false),
        _ => None,
    }
}

/// How the caller wants to be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The usage of a stream comes in a chunk of its own, without choices.
    pub usage_apart: bool,
    /// Reasoning is not told.
    pub hides_reasoning: bool,
    /// Tools that take a text and no object, by name.
    pub custom: Vec<String>,
    /// The model as the caller wrote it: all that is known until one answers.
    pub model: String,
}

/// What an answer says of itself in every piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The name of the member for routing metadata.
    pub metadata: String,
}

/// Whether a model declined in words of its own, which are all that it says: upstreams that have a place for such words
/// tell them as text and as the explanation. Whoever was cut off by a filter did not say that.
pub(crate) fn is_declined(response: &Response) -> bool {
    let is_refusal =
        response.stop_reason.as_ref().and_then(Option::as_ref).is_some_and(|stop| stop.as_str() == "refusal");
    let details = response.stop_details.as_ref().and_then(Option::as_ref).filter(|_| is_refusal);
    let Some(StopDetails::Refusal(details)) = details else { return false };
    let Some(words) = details.explanation.as_ref().and_then(Option::as_deref) else { return false };
    let mut left = words;
    for block in &response.content {
        match block {
            Block::Text(text) => match left.strip_prefix(&text.text) {
                Some(rest) => left = rest,
                None => return false,
            },
            Block::Thinking(_) | Block::RedactedThinking(_) => {}
            _ => return false,
        }
    }
    left.is_empty() && !words.is_empty()
}

/// Whether a frame begins a block with such words.
pub(crate) fn declines(frame: &Frame) -> bool {
    frame.0.strip_suffix(b"\n").is_some_and(|lines| lines.ends_with(DECLINES.as_bytes()))
}

/// Why an answer ended, in the words of this format.
fn finish_reason(stop: &str, is_declined: bool) -> &'static str {
    match stop {
        "refusal" if is_declined => "stop",
        "tool_use" => "tool_calls",
        "max_tokens" | "model_context_window_exceeded" => "length",
        "refusal" => "content_filter",
        _ => "stop",
    }
}

#[cfg(test)]
mod tests;
