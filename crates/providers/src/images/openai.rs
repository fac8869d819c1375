//! OpenAI's `POST /images/generations`, which many others have taken over.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::{Timestamp, Usage};
use tidegate_wire::json::quoted;

use super::{Made, Sent, Wanted, picture, unsupported};
use crate::fault::{self, Class, Fault};
use crate::translate::usage::Told;

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    if !wanted.references.is_empty() {
        return Err(unsupported("input_references must be empty: this provider makes images of words alone"));
    }
    let mut body = format!(r#"{{"model":{},"prompt":{}"#, quoted(wanted.model), quoted(wanted.prompt));
    if wanted.n > 1 {
        body.push_str(&format!(r#","n":{}"#, wanted.n));
    }
    // Some answer with addresses unless they are told; those that know no such option say so once, and are remembered.
    body.push_str(r#","response_format":"b64_json""#);
    let mut warnings = Vec::new();
    for (name, value) in wanted.options {
        if name == "partial_images" {
            warnings.push(format!("dropped:{name}"));
            continue;
        }
        body.push_str(&format!(",{}:{}", quoted(name), value.get()));
    }
    body.push('}');
    Ok(Sent { body: body.into(), warnings })
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    created: Option<f64>,
    #[serde(borrow, default)]
    data: Option<Vec<Item<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    b64_json: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    revised_prompt: Option<Cow<'a, str>>,
}

pub(super) fn answer(body: &[u8], now: Timestamp) -> Result<Made<'_>, Fault> {
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    if let Some(error) = answer.error.filter(|error| error.get() != "null") {
        return Err(fault::classify_error(error, now));
    }
    let mut pictures = Vec::new();
    for item in answer.data.into_iter().flatten() {
        // One that is only an address is nothing that we asked for. It was made, and would be made again.
        let data = item.b64_json.ok_or_else(|| Fault::in_answer(Class::Unmapped))?;
        pictures.push(picture(data, item.revised_prompt)?);
    }
    let odd = Cell::new(false);
    let told = answer.usage.and_then(|raw| Told::of(raw, &odd));
    let counted = told.and_then(|told| usage(&told));
    let created = answer.created.filter(|created| *created >= 0.0).map(|created| created as u64);
    let is_counted = counted.is_some();
    let usage = Usage { images_out: pictures.len() as u64, ..counted.unwrap_or_default() };
    Ok(Made { pictures, created, usage, is_counted })
}

fn usage(told: &Told<'_>) -> Option<Usage> {
    let input = told.first(&["input_tokens", "prompt_tokens"]);
    let output = told.first(&["output_tokens", "completion_tokens"])?;
    let input = input.unwrap_or(0);
    let details = told.within("input_tokens_details");
    // What comes out of this call is pictures, unless it is told otherwise.
    let text = told.within("output_tokens_details").count("text_tokens").unwrap_or(0);
    Some(Usage {
        input,
        input_image: details.count("image_tokens").unwrap_or(0).min(input),
        output,
        output_image: output.saturating_sub(text),
        ..Usage::default()
    })
}
