//! Cohere's call. It wants to know what the vectors are for.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json;

use super::{Made, Sent, Wanted, left_out, texts};
use crate::fault::Fault;
use crate::translate::body::Body;

/// What vectors are for of which nothing is said: most are kept to be found.
const USUAL: &str = "search_document";

pub(super) fn request(wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    let mut body = Body::default();
    body.set("model", wanted.model);
    body.set("texts", texts(wanted.input)?);
    body.set("input_type", wanted.input_type.unwrap_or(USUAL));
    body.set("embedding_types", ["float"]);
    body.set_some("output_dimension", wanted.dimensions);
    let mut warnings = Vec::new();
    for (name, value) in wanted.options {
        match name.as_ref() {
            "truncate" | "max_tokens" | "priority" => body.set(name, value),
            _ => {}
        }
    }
    let placed = ["encoding_format", "dimensions", "input_type", "truncate", "max_tokens", "priority"];
    warnings.extend(left_out(wanted, &placed));
    Ok(Sent { body: body.to_bytes().into(), warnings })
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    embeddings: ByType<'a>,
    #[serde(default)]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct ByType<'a> {
    #[serde(borrow)]
    float: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    billed_units: Option<Units>,
}

#[derive(Deserialize)]
struct Units {
    #[serde(default)]
    input_tokens: Option<f64>,
}

pub(super) fn answer(body: &[u8]) -> Option<Made<'_>> {
    let Answer { embeddings, meta } = json::read(std::str::from_utf8(body).ok()?).ok()?;
    let tokens = meta.and_then(|meta| meta.billed_units).and_then(|units| units.input_tokens);
    // Cohere writes counts with a fraction.
    let tokens = tokens.filter(|tokens| (1.0..1e15).contains(tokens)).map(|tokens| tokens.ceil() as u64);
    Some(Made { vectors: embeddings.float, tokens })
}
