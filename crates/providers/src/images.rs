//! Pictures: what upstreams are asked for and what comes back. OpenAI has a call of its own for it; with Google a model that
//! makes pictures is called like any other and told to answer with one.

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

use crate::fault::{Class, Fault};
use crate::platform::Protocol;

/// What is asked for.
pub struct Wanted<'a> {
    /// The upstream's own name of the model.
    pub model: &'a str,
    pub prompt: &'a str,
    pub n: u64,
    /// Addresses of pictures to begin with.
    pub references: &'a [Cow<'a, str>],
    /// How it is to be made, in the caller's words.
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
pub struct Made<'a> {
    pub pictures: Vec<Picture<'a>>,
    /// In seconds, where the upstream says it.
    pub created: Option<u64>,
    pub usage: Usage,
    /// Whether the upstream counted tokens.
    pub is_counted: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    /// In Base64 of the usual alphabet, and nothing else.
    pub data: Cow<'a, str>,
    /// By its first bytes.
    pub kind: Option<&'static str>,
    /// What the upstream made of the prompt.
    pub revised_prompt: Option<Cow<'a, str>>,
}

/// The request as an upstream of the protocol takes it.
pub fn request(protocol: Protocol, wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    match protocol {
        Protocol::Chat | Protocol::Responses => openai::request(wanted),
        Protocol::Gemini => google::request(wanted),
        Protocol::Messages | Protocol::Converse | Protocol::Cohere => {
            Err(unsupported("this provider has no call that makes images"))
        }
    }
}

/// The pictures of an answer. One without any is no answer.
pub fn answer(protocol: Protocol, body: &[u8], now: Timestamp) -> Result<Made<'_>, Fault> {
    let made = match protocol {
        Protocol::Gemini => google::answer(body, now)?,
        _ => openai::answer(body, now)?,
    };
    match made.pictures.is_empty() {
        true => Err(Fault::in_answer(Class::EmptyCompletion)),
        false => Ok(made),
    }
}

fn unsupported(message: impl Into<String>) -> Fault {
    Fault { message: Some(message.into()), status: 400, ..Fault::without_answer(Class::Unsupported) }
}

/// A picture as it came; an error where that is no Base64.
fn picture<'a>(data: Cow<'a, str>, revised_prompt: Option<Cow<'a, str>>) -> Result<Picture<'a>, Fault> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    if data.is_empty() || !data.bytes().all(is_plain) {
        return Err(Fault::in_answer(Class::Unmapped));
    }
    let kind = kind(&data);
    Ok(Picture { data, kind, revised_prompt })
}

/// What the first bytes of a picture in Base64 say that it is.
pub fn kind(data: &str) -> Option<&'static str> {
    // Whole groups of four, as many as the longest mark takes.
    let head = data.get(..data.len().min(24) / 4 * 4)?;
    let bytes = STANDARD.decode(head).ok()?;
    match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
        [b'<', b's', b'v', b'g', ..] | [b'<', b'?', b'x', b'm', b'l', ..] => Some("image/svg+xml"),
        _ => None,
    }
}
