//! Google's call, which takes several inputs at once.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_wire::json;

use super::{Made, Sent, Wanted, left_out, texts};
use crate::fault::Fault;
use crate::translate::body::Body;

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    let model = format!("models/{}", wanted.model);
    let task = wanted.input_type.map(task);
    let one = |text: &str| {
        let mut one = json!({"model": model, "content": {"parts": [{"text": text}]}});
        if let Some(task) = &task {
            one["taskType"] = json!(task);
        }
        if let Some(dimensions) = wanted.dimensions {
            one["outputDimensionality"] = json!(dimensions);
        }
        one
    };
    let mut body = Body::default();
    body.set("requests", texts(wanted.input)?.iter().map(|text| one(text)).collect::<Vec<_>>());
    let warnings = left_out(wanted, &["encoding_format", "dimensions", "input_type"]);
    Ok(Sent { body: body.to_bytes().into(), warnings })
}

/// Google's word for what vectors are for; its own words are taken as they are.
fn task(input_type: &str) -> String {
    match input_type {
        "search_query" => "RETRIEVAL_QUERY".to_owned(),
        "search_document" => "RETRIEVAL_DOCUMENT".to_owned(),
        other => other.to_ascii_uppercase(),
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    embeddings: Vec<Vector<'a>>,
    #[serde(default, rename = "usageMetadata")]
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Vector<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default, rename = "promptTokenCount")]
    prompt: Option<u64>,
}

pub(super) fn answer(body: &[u8]) -> Option<Made<'_>> {
    let Answer { embeddings, usage } = json::read(std::str::from_utf8(body).ok()?).ok()?;
    let tokens = usage.and_then(|usage| usage.prompt).filter(|tokens| *tokens > 0);
    Some(Made { vectors: embeddings.iter().map(|vector| vector.values).collect(), tokens })
}
