//! Pictures and sound in an answer of Google's: an ordinary call whose parts are data in place of text.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};

use crate::fault::{self, Class, Fault};
use crate::translate::usage::Told;

/// Members that are the call itself: what was checked and paid for stays what it is. Google reads both spellings.
pub(crate) const OURS: [&str; 11] = [
    "model",
    "contents",
    "generationConfig",
    "generation_config",
    "systemInstruction",
    "system_instruction",
    "tools",
    "toolConfig",
    "tool_config",
    "cachedContent",
    "cached_content",
];

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Image,
    Audio,
}

impl Medium {
    /// Google's word for it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Image => "IMAGE",
            Self::Audio => "AUDIO",
        }
    }
}

/// The data of an answer.
pub(crate) struct Inline<'a> {
    pub parts: Vec<Data<'a>>,
    /// Where the upstream counted.
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default)]
    prompt_feedback: Option<Feedback<'a>>,
    #[serde(borrow, default)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback<'a> {
    #[serde(borrow, default)]
    block_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(default)]
    thought: Option<bool>,
    #[serde(borrow, default)]
    inline_data: Option<Data<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Data<'a> {
    #[serde(borrow, default)]
    pub mime_type: Option<Cow<'a, str>>,
    /// In Base64.
    #[serde(borrow)]
    pub data: Cow<'a, str>,
}

/// The data of an answer; what was refused is a fault.
pub(crate) fn read(body: &[u8], medium: Medium, now: Timestamp) -> Result<Inline<'_>, Fault> {
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    if let Some(error) = answer.error.filter(|error| error.get() != "null") {
        return Err(fault::classify_error(error, now));
    }
    let refused = |reason: &str| {
        let (code, message) = (Some(reason.to_owned()), Some(fault::cleaned(reason)));
        Fault { code: code.filter(|code| fault::is_code(code)), message, ..Fault::in_answer(Class::ContentFilter) }
    };
    let blocked = answer.prompt_feedback.and_then(|feedback| feedback.block_reason);
    if let Some(reason) = blocked.filter(|reason| !reason.is_empty()) {
        return Err(refused(&reason));
    }
    let (mut all, mut reason) = (Vec::new(), None);
    for candidate in answer.candidates.into_iter().flatten() {
        reason = candidate.finish_reason.or(reason);
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        // What it made while it thought is not the answer.
        all.extend(parts.into_iter().filter(|part| part.thought != Some(true)).filter_map(|part| part.inline_data));
    }
    if let Some(reason) = reason.filter(|reason| all.is_empty() && is_refusal(reason)) {
        return Err(refused(&reason));
    }
    let odd = Cell::new(false);
    let told = answer.usage_metadata.and_then(|raw| Told::of(raw, &odd));
    Ok(Inline { parts: all, usage: told.and_then(|told| usage(&told, medium)) })
}

fn is_refusal(reason: &str) -> bool {
    ["SAFETY", "PROHIBITED_CONTENT", "RECITATION", "BLOCKLIST", "SPII"].iter().any(|part| reason.ends_with(part))
}

fn usage(told: &Told<'_>, medium: Medium) -> Option<Usage> {
    let thoughts = told.count("thoughtsTokenCount").unwrap_or(0);
    let output = told.count("candidatesTokenCount")?.saturating_add(thoughts);
    let of = |list: &str, medium: Medium| {
        let of_it =
            told.list(list).into_iter().filter(|part| part.text("modality").as_deref() == Some(medium.as_str()));
        of_it.filter_map(|part| part.count("tokenCount")).fold(0, u64::saturating_add)
    };
    let prompt = told.count("promptTokenCount").unwrap_or(0);
    let cached = told.count("cachedContentTokenCount").unwrap_or(0).min(prompt);
    let input = prompt - cached;
    let answered = output - thoughts.min(output);
    // What comes out of this call is what was asked for, unless it is told otherwise.
    let made = match told.list("candidatesTokensDetails").is_empty() {
        true => answered,
        false => of("candidatesTokensDetails", medium).min(answered),
    };
    Some(Usage {
        input,
        cache_read: cached,
        input_image: of("promptTokensDetails", Medium::Image).min(input),
        output,
        thinking: thoughts.min(output),
        output_image: if medium == Medium::Image { made } else { 0 },
        output_audio: if medium == Medium::Audio { made } else { 0 },
        ..Usage::default()
    })
}
