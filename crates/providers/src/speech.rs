//! Speaking texts: what upstreams are asked for and what comes back. OpenAI has a call of its own for it, which most others
//! share; with Google a model that speaks is called like any other and told to answer with sound.

mod google;
mod openai;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};
use tidegate_wire::envelope::speech::Format;

use crate::fault::{Class, Fault};
use crate::platform::Protocol;

/// The option that has sound wrapped in events, the last of which counts its tokens.
pub const COUNTING: &str = "stream_format";

/// What is asked for.
pub struct Wanted<'a> {
    /// The upstream's own name of the model.
    pub model: &'a str,
    pub input: &'a str,
    pub voice: Option<&'a str>,
    pub format: Format,
    /// Whether tokens are to be counted, where that has to be asked for.
    pub is_counted: bool,
    /// How it is to be spoken, in the caller's words.
    pub options: &'a [(Cow<'a, str>, &'a RawValue)],
}

/// A body as the upstream takes it, and what had to be left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub body: Bytes,
    pub warnings: Vec<String>,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Made {
    pub audio: Bytes,
    /// Tokens, where the upstream counted them.
    pub usage: Option<Usage>,
}

/// The request as an upstream of the protocol takes it.
pub fn request(protocol: Protocol, wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Ok(openai::request(wanted)),
        Protocol::Gemini => google::request(wanted),
        Protocol::Messages | Protocol::Converse | Protocol::Cohere => {
            Err(unsupported("this provider has no call that speaks a text"))
        }
    }
}

/// The sound of an answer, which says that it is of this kind. One without any is no answer.
pub fn answer(
    protocol: Protocol,
    (body, kind): (&Bytes, Option<&str>),
    format: Format,
    now: Timestamp,
) -> Result<Made, Fault> {
    let made = match protocol {
        Protocol::Gemini => google::answer(body, format, now)?,
        _ => openai::answer(body, kind, now)?,
    };
    match made.audio.is_empty() {
        true => Err(Fault::in_answer(Class::EmptyCompletion)),
        false => Ok(made),
    }
}

fn unsupported(message: impl Into<String>) -> Fault {
    Fault { message: Some(message.into()), status: 400, ..Fault::without_answer(Class::Unsupported) }
}

fn decoded(data: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    STANDARD.decode_vec(data, out).map_err(|_| Fault::in_answer(Class::BadResponse))
}
