//! Embeddings: what upstreams are asked for and what comes back. Most know OpenAI's call; Cohere and Google have their own.

mod cohere;
mod google;
mod openai;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_wire::envelope::embeddings::Encoding;
use tidegate_wire::json::{self, Kind};

use crate::fault::{Class, Fault};
use crate::platform::Protocol;

/// What is asked for.
pub struct Wanted<'a> {
    /// The upstream's own name of the model.
    pub model: &'a str,
    pub input: Input<'a>,
    pub dimensions: Option<u64>,
    pub input_type: Option<&'a str>,
    /// All that the caller says besides, in his words.
    pub options: &'a [(Cow<'a, str>, &'a RawValue)],
}

#[derive(Clone, Copy)]
pub enum Input<'a> {
    Texts(&'a [Cow<'a, str>]),
    /// Tokens or parts, as they came.
    Raw(&'a RawValue),
}

/// A body as the upstream takes it, and what had to be left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub body: Bytes,
    pub warnings: Vec<String>,
}

/// What came back.
#[derive(Debug)]
pub struct Made<'a> {
    /// In the order of the inputs: an array of numbers, or a string of Base64.
    pub vectors: Vec<&'a RawValue>,
    /// Tokens of the input, where the upstream counted them.
    pub tokens: Option<u64>,
}

/// The request as an upstream of the protocol takes it.
pub fn request(protocol: Protocol, wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    match protocol {
        Protocol::Chat | Protocol::Responses => Ok(openai::request(wanted)),
        Protocol::Cohere => cohere::request(wanted),
        Protocol::Gemini => google::request(wanted),
        Protocol::Messages | Protocol::Converse => Err(unsupported("this provider has no call for embeddings")),
    }
}

/// The vectors of an answer, of which there must be so many.
pub fn answer(protocol: Protocol, body: &[u8], count: usize) -> Result<Made<'_>, Fault> {
    let made = match protocol {
        Protocol::Cohere => cohere::answer(body),
        Protocol::Gemini => google::answer(body),
        _ => openai::answer(body),
    };
    let is_vector = |raw: &&RawValue| matches!(json::kind(raw), Kind::Array | Kind::String);
    match made {
        Some(made) if made.vectors.is_empty() => Err(Fault::in_answer(Class::EmptyCompletion)),
        Some(made) if made.vectors.len() == count && made.vectors.iter().all(is_vector) => Ok(made),
        _ => Err(Fault::in_answer(Class::BadResponse)),
    }
}

/// Appends a vector as the caller wants it written; an error where it is none.
pub fn write(vector: &RawValue, encoding: Encoding, out: &mut Vec<u8>) -> Result<(), Fault> {
    let bad = || Fault::in_answer(Class::BadResponse);
    let is_finite = |numbers: &[f32]| !numbers.is_empty() && numbers.iter().all(|number| number.is_finite());
    match (json::kind(vector), encoding) {
        (Kind::Array, Encoding::Base64) => {
            let numbers: Vec<f32> = serde_json::from_str(vector.get()).map_err(|_| bad())?;
            if !is_finite(&numbers) {
                return Err(bad());
            }
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            out.push(b'"');
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
        (Kind::String, Encoding::Float) => {
            let text = json::string(vector).ok_or_else(bad)?;
            let bytes = STANDARD.decode(text.as_bytes()).map_err(|_| bad())?;
            let (numbers, rest) = bytes.as_chunks::<4>();
            if !rest.is_empty() {
                return Err(bad());
            }
            let numbers: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            if !is_finite(&numbers) {
                return Err(bad());
            }
            json::write(&numbers, out).map_err(|_| bad())?;
        }
        _ if is_vector(vector.get().as_bytes()) => out.extend_from_slice(vector.get().as_bytes()),
        _ => return Err(bad()),
    }
    Ok(())
}

/// Whether a value that is an array or a string holds numbers, or Base64 of numbers with four bytes each.
fn is_vector(text: &[u8]) -> bool {
    let [first, inside @ .., _] = text else { return false };
    let is_in = |others: &[u8]| inside.iter().all(|byte| byte.is_ascii_digit() || others.contains(byte));
    match first {
        b'[' => inside.iter().any(u8::is_ascii_digit) && is_in(b"+-.eE, \t\r\n"),
        _ => {
            let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
            let padding = inside.iter().rev().take_while(|byte| **byte == b'=').count();
            let bytes = inside.len() / 4 * 3 - padding.min(2);
            !inside.is_empty() && inside.len() % 4 == 0 && bytes % 4 == 0 && inside.iter().all(is_letter)
        }
    }
}

/// The answer is another one than was asked for, by an option that the gateway does not know.
pub fn unexpected() -> Fault {
    unsupported("the provider's answer holds no vectors; leave out the options that change its form")
}

/// The texts of an input, for those who take nothing else.
fn texts<'a>(input: Input<'a>) -> Result<&'a [Cow<'a, str>], Fault> {
    match input {
        Input::Texts(texts) => Ok(texts),
        Input::Raw(_) => Err(unsupported("this provider takes texts only: neither tokens nor images")),
    }
}

/// What of the options is left out, but for those that have a place of their own.
fn left_out(wanted: &Wanted<'_>, placed: &[&str]) -> Vec<String> {
    let names = wanted.options.iter().map(|(name, _)| name.as_ref());
    names.filter(|name| *name != "user" && !placed.contains(name)).map(|name| format!("dropped:{name}")).collect()
}

fn unsupported(message: impl Into<String>) -> Fault {
    Fault { message: Some(message.into()), status: 400, ..Fault::without_answer(Class::Unsupported) }
}
