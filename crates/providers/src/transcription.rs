//! Writing down what is said: what upstreams are asked for and what comes back. All know OpenAI's call, which is a form.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::envelope::transcription::Form;
use tidegate_wire::json;

use crate::fault::{self, Class, Fault};

/// Sound as it is sent.
pub struct Recording {
    pub filename: String,
    pub media_type: String,
    pub bytes: Bytes,
}

/// What is asked for.
pub struct Wanted<'a> {
    /// The upstream's own name of the model.
    pub model: &'a str,
    pub recording: &'a Recording,
    pub form: Form,
    /// How it is to be done, in the caller's words.
    pub fields: &'a [(String, String)],
}

/// The form as it is sent, with a line between its parts that nothing of it holds.
pub fn request(wanted: &Wanted<'_>, boundary: &str) -> Bytes {
    let Recording { filename, media_type, bytes } = wanted.recording;
    let mut out = Vec::with_capacity(bytes.len() + 1024);
    let fields = wanted.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in [("model", wanted.model), ("response_format", wanted.form.as_str())].into_iter().chain(fields)
    {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{}\"\r\n\r\n", quotable(name));
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{}\"\r\nContent-Type: {media_type}\r\n\r\n",
        quotable(filename)
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    out.into()
}

/// A name between quotes, as browsers write one in a form.
fn quotable(name: &str) -> Cow<'_, str> {
    if !name.contains(['"', '\r', '\n', '\0']) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A").replace('\0', "%00"))
}

/// What came back.
#[derive(Debug)]
pub struct Made<'a> {
    pub text: Cow<'a, str>,
    /// All other members of a long answer, as they came.
    pub more: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// Milliseconds of sound that were listened to, where the upstream says it.
    pub audio_ms: Option<u64>,
    pub tokens: Option<Tokens>,
}

/// What the upstream counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub input: u64,
    /// Of sound; part of the input.
    pub audio: u64,
    pub output: u64,
}

/// Members of a long answer that the interface has.
const KNOWN: [&str; 6] = ["task", "language", "duration", "segments", "words", "logprobs"];

/// Counts of OpenAI and of Mistral.
#[derive(Default, Deserialize)]
struct Counts {
    #[serde(default)]
    seconds: Option<f64>,
    #[serde(default)]
    prompt_audio_seconds: Option<f64>,
    #[serde(default, alias = "prompt_tokens")]
    input_tokens: Option<u64>,
    #[serde(default, alias = "completion_tokens")]
    output_tokens: Option<u64>,
    #[serde(default)]
    input_token_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    audio_tokens: Option<u64>,
}

pub fn answer(body: &[u8], now: Timestamp) -> Result<Made<'_>, Fault> {
    let bad = || Fault::in_answer(Class::BadResponse);
    let raw: &RawValue = serde_json::from_slice(body).map_err(|_| bad())?;
    let members = json::Members::of(raw).ok_or_else(bad)?;
    if let Some(error) = members.get("error").filter(|error| error.get() != "null") {
        return Err(fault::classify_error(error, now));
    }
    let text = members.get("text").and_then(json::string).ok_or_else(bad)?;
    let counts: Counts =
        members.get("usage").and_then(|usage| serde_json::from_str(usage.get()).ok()).unwrap_or_default();
    // Some write the length between quotes.
    let length = members.get("duration").and_then(|length| length.get().trim_matches('"').parse::<f64>().ok());
    let seconds = [counts.seconds, counts.prompt_audio_seconds, length];
    let seconds = seconds.into_iter().flatten().find(|seconds| *seconds > 0.0 && *seconds < 1e9);
    let tokens = counts.input_tokens.zip(counts.output_tokens).map(|(input, output)| {
        let audio = counts.input_token_details.and_then(|details| details.audio_tokens).unwrap_or(0);
        Tokens { input, audio: audio.min(input), output }
    });
    let more = members.0.into_iter().filter(|(name, _)| KNOWN.contains(&name.as_ref())).collect();
    Ok(Made { text, more, audio_ms: seconds.map(|seconds| (seconds * 1e3).ceil() as u64), tokens })
}
