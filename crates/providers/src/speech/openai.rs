//! OpenAI's call, which answers with the sound itself, or with events that carry it and count its tokens at the end.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};
use tidegate_wire::sse::Splitter;

use super::{COUNTING, Made, Sent, Wanted, decoded};
use crate::fault::{self, Class, Fault};
use crate::translate::body::Body;

/// Whoever has voices has this one, or something in its place.
const USUAL_VOICE: &str = "alloy";

pub(super) fn request(wanted: &Wanted<'_>) -> Sent {
    let mut body = Body::default();
    body.set("model", wanted.model);
    body.set("input", wanted.input);
    body.set("voice", wanted.voice.unwrap_or(USUAL_VOICE));
    body.set("response_format", wanted.format.as_str());
    for (name, value) in wanted.options {
        body.set(name, value);
    }
    if wanted.is_counted {
        body.set(COUNTING, "sse");
    }
    Sent { body: body.to_bytes().into(), warnings: Vec::new() }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    audio: Option<Cow<'a, str>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Counts {
    #[serde(default)]
    input_tokens: Option<u64>,
    #[serde(default)]
    output_tokens: Option<u64>,
}

pub(super) fn answer(body: &Bytes, kind: Option<&str>, now: Timestamp) -> Result<Made, Fault> {
    let kind = kind.map(str::to_ascii_lowercase).unwrap_or_default();
    let is_json = || serde_json::from_slice::<Event<'_>>(body).is_ok();
    match kind.as_str() {
        kind if kind.starts_with("text/event-stream") => wrapped(body, now),
        // A word about why there is no sound.
        kind if kind.contains("json") => Err(refused(body, now)),
        kind if kind.starts_with("audio/") => Ok(Made { audio: body.clone(), usage: None }),
        // Samples may begin with any byte.
        _ if body.starts_with(b"data:") || body.starts_with(b"event:") => wrapped(body, now),
        _ if is_json() => Err(refused(body, now)),
        _ => Ok(Made { audio: body.clone(), usage: None }),
    }
}

fn refused(body: &[u8], now: Timestamp) -> Fault {
    let event: Option<Event<'_>> = serde_json::from_slice(body).ok();
    let error = event.and_then(|event| event.error).filter(|error| error.get() != "null");
    error.map_or_else(|| Fault::in_answer(Class::BadResponse), |error| fault::classify_error(error, now))
}

fn wrapped(body: &Bytes, now: Timestamp) -> Result<Made, Fault> {
    let mut splitter = Splitter::new(body.len());
    splitter.feed(body.clone());
    let (mut audio, mut usage, mut is_done) = (Vec::with_capacity(body.len() / 4 * 3), None, false);
    let bad = |_| Fault::in_answer(Class::BadResponse);
    loop {
        let Some(frame) = splitter.next().map_err(bad)?.or_else(|| splitter.finish()) else { break };
        let data = frame.data();
        if data.is_empty() || &*data == b"[DONE]" {
            continue;
        }
        let event: Event<'_> = serde_json::from_slice(&data).map_err(|_| Fault::in_answer(Class::BadResponse))?;
        if let Some(error) = event.error.filter(|error| error.get() != "null") {
            return Err(fault::classify_error(error, now));
        }
        match event.kind.as_deref() {
            Some("speech.audio.delta") => decoded(event.audio.as_deref().unwrap_or_default(), &mut audio)?,
            Some("speech.audio.done") => {
                is_done = true;
                usage = event.usage.or(usage);
            }
            _ => {}
        }
    }
    if !is_done {
        return Err(Fault::in_answer(Class::BadResponse));
    }
    let usage = usage.and_then(|counts| {
        let output = counts.output_tokens?;
        Some(Usage { input: counts.input_tokens?, output, output_audio: output, ..Usage::default() })
    });
    Ok(Made { audio: audio.into(), usage })
}
