//! Google's models that answer with pictures: an ordinary call that is told so.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};
use tidegate_wire::json::quoted;

use super::{Made, Sent, Wanted, picture, unsupported};
use crate::fault::{self, Class, Fault};
use crate::translate::usage::Told;

/// Options that are known and have no word here.
const WORDLESS: [&str; 8] =
    ["background", "moderation", "output_compression", "output_format", "partial_images", "quality", "size", "user"];

/// Members that are the call itself: what was checked and paid for stays what it is. Google reads both spellings.
const OURS: [&str; 11] = [
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

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    if wanted.n > 1 {
        return Err(unsupported("n must be 1: this provider makes one image at a time"));
    }
    let mut parts = format!(r#"{{"text":{}}}"#, quoted(wanted.prompt));
    for (index, address) in wanted.references.iter().enumerate() {
        let (kind, data) = inline(address).ok_or_else(|| {
            unsupported(format!(
                "input_references[{index}].image_url.url must be a data: address with Base64 for this provider"
            ))
        })?;
        parts.push_str(&format!(r#",{{"inlineData":{{"mimeType":{},"data":{}}}}}"#, quoted(kind), quoted(data)));
    }
    let (mut config, mut image, mut top) = (String::new(), Vec::new(), String::new());
    let mut warnings = Vec::new();
    for (name, value) in wanted.options {
        match name.as_ref() {
            "aspect_ratio" if value.get() == "\"auto\"" => {}
            "aspect_ratio" => image.push(format!(r#""aspectRatio":{}"#, value.get())),
            "resolution" => image.push(format!(r#""imageSize":{}"#, value.get())),
            "seed" => config.push_str(&format!(r#","seed":{}"#, value.get())),
            name if WORDLESS.contains(&name) || OURS.contains(&name) => warnings.push(format!("dropped:{name}")),
            name => top.push_str(&format!(",{}:{}", quoted(name), value.get())),
        }
    }
    if !image.is_empty() {
        config.push_str(&format!(r#","imageConfig":{{{}}}"#, image.join(",")));
    }
    let body = format!(
        r#"{{"contents":[{{"role":"user","parts":[{parts}]}}],"generationConfig":{{"responseModalities":["TEXT","IMAGE"]{config}}}{top}}}"#
    );
    Ok(Sent { body: body.into(), warnings })
}

/// The type and the Base64 of a `data:` address.
fn inline(address: &str) -> Option<(&str, &str)> {
    let (kind, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    kind.starts_with("image/").then_some((kind, data))
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
struct Data<'a> {
    #[serde(borrow)]
    data: Cow<'a, str>,
}

pub(super) fn answer(body: &[u8], now: Timestamp) -> Result<Made<'_>, Fault> {
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
    let (mut pictures, mut reason) = (Vec::new(), None);
    for candidate in answer.candidates.into_iter().flatten() {
        reason = candidate.finish_reason.or(reason);
        let parts = candidate.content.and_then(|content| content.parts).unwrap_or_default();
        // What it drew while it thought is not the answer.
        let drawn = parts.into_iter().filter(|part| part.thought != Some(true)).filter_map(|part| part.inline_data);
        for data in drawn {
            pictures.push(picture(data.data, None)?);
        }
    }
    if let Some(reason) = reason.filter(|reason| pictures.is_empty() && is_refusal(reason)) {
        return Err(refused(&reason));
    }
    let odd = Cell::new(false);
    let counted = answer.usage_metadata.and_then(|raw| Told::of(raw, &odd)).and_then(|told| usage(&told));
    let is_counted = counted.is_some();
    let usage = Usage { images_out: pictures.len() as u64, ..counted.unwrap_or_default() };
    Ok(Made { pictures, created: None, usage, is_counted })
}

fn is_refusal(reason: &str) -> bool {
    ["SAFETY", "PROHIBITED_CONTENT", "RECITATION", "BLOCKLIST", "SPII"].iter().any(|part| reason.ends_with(part))
}

fn usage(told: &Told<'_>) -> Option<Usage> {
    let thoughts = told.count("thoughtsTokenCount").unwrap_or(0);
    let output = told.count("candidatesTokenCount")?.saturating_add(thoughts);
    let of = |list: &str| {
        let images = told.list(list).into_iter().filter(|part| part.text("modality").as_deref() == Some("IMAGE"));
        images.filter_map(|part| part.count("tokenCount")).fold(0, u64::saturating_add)
    };
    let prompt = told.count("promptTokenCount").unwrap_or(0);
    let cached = told.count("cachedContentTokenCount").unwrap_or(0).min(prompt);
    let input = prompt - cached;
    Some(Usage {
        input,
        cache_read: cached,
        input_image: of("promptTokensDetails").min(input),
        output,
        thinking: thoughts.min(output),
        // What comes out of this call is pictures, unless it is told otherwise.
        output_image: match told.list("candidatesTokensDetails").is_empty() {
            true => output - thoughts.min(output),
            false => of("candidatesTokensDetails").min(output - thoughts.min(output)),
        },
        ..Usage::default()
    })
}
