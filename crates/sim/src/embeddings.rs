//! Embeddings in three protocols. A vector says how long its text is, where it stood, and nothing else; a word is a token.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use crate::body::{Answer, ResetFlag};
use crate::failure::Failure;
use crate::images::drawn;
use crate::state::State;
use crate::{chat, cohere, gemini};

/// Numbers of a vector where nobody says how many.
const USUAL: usize = 4;

/// What is to be embedded, and into how many numbers.
struct Wanted {
    body: Value,
    /// Length and tokens of each.
    inputs: Vec<(usize, usize)>,
    dimensions: usize,
}

impl Wanted {
    fn vectors(&self) -> Vec<Vec<f32>> {
        let one = |(place, (length, _)): (usize, &(usize, usize))| {
            let mut vector = vec![*length as f32, place as f32];
            vector.resize(self.dimensions, 0.5);
            vector
        };
        self.inputs.iter().enumerate().map(one).collect()
    }

    fn tokens(&self) -> usize {
        self.inputs.iter().map(|(_, tokens)| tokens).sum()
    }
}

fn size(text: &str) -> (usize, usize) {
    (text.len(), text.split_whitespace().count())
}

/// A body with its inputs, of which there must be some.
fn wanted(
    body: &[u8],
    inputs: impl FnOnce(&Value) -> Vec<(usize, usize)>,
    dimensions: &str,
) -> Result<Wanted, Failure> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|_| Failure::new(400, "We could not parse the JSON body of your request."))?;
    let inputs = inputs(&body);
    if inputs.is_empty() {
        return Err(Failure::at("input", "missing_required_parameter", "Missing required parameter: 'input'."));
    }
    let dimensions = body.pointer(dimensions).and_then(Value::as_u64).map_or(USUAL, |number| number as usize);
    Ok(Wanted { body, inputs, dimensions })
}

/// `POST /embeddings`.
pub(crate) async fn openai(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let tokens = |list: &Value| list.as_array().map(|list| (list.len(), list.len()));
    let inputs = |body: &Value| match &body["input"] {
        Value::String(text) => vec![size(text)],
        Value::Array(list) if list.iter().all(Value::is_number) => tokens(&body["input"]).into_iter().collect(),
        Value::Array(list) => {
            let one = |input: &Value| input.as_str().map(size).or_else(|| tokens(input));
            list.iter().map(|input| one(input).unwrap_or((0, 1))).collect()
        }
        _ => Vec::new(),
    };
    let read = |_: &Parts, body: &Bytes| wanted(body, inputs, "/dimensions");
    drawn::<chat::Request, _>(state, head, body, reset, read, |wanted, _| {
        let is_coded = wanted.body["encoding_format"] == "base64";
        let written = |vector: Vec<f32>| match is_coded {
            true => json!(STANDARD.encode(vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())),
            false => json!(vector),
        };
        let entry = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": written(vector)});
        let data: Vec<Value> = wanted.vectors().into_iter().enumerate().map(entry).collect();
        let tokens = wanted.tokens();
        let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
        json!({"object": "list", "model": wanted.body["model"], "data": data, "usage": usage})
    })
    .await
}

/// `POST /v2/embed`.
pub(crate) async fn cohere(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let inputs = |body: &Value| {
        let texts = body["texts"].as_array().map(Vec::as_slice).unwrap_or_default();
        texts.iter().filter_map(Value::as_str).map(size).collect()
    };
    let read = |_: &Parts, body: &Bytes| {
        let wanted = wanted(body, inputs, "/output_dimension")?;
        match wanted.body["input_type"].as_str() {
            Some(_) => Ok(wanted),
            None => Err(Failure::new(400, "invalid request: input_type is required")),
        }
    };
    drawn::<cohere::Request, _>(state, head, body, reset, read, |wanted, _| {
        let units = json!({"input_tokens": wanted.tokens() as f64});
        json!({"id": "sim", "embeddings": {"float": wanted.vectors()}, "meta": {"billed_units": units}})
    })
    .await
}

/// `…/models/{model}:batchEmbedContents`, which counts nothing.
pub(crate) async fn google(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let inputs = |body: &Value| {
        let requests = body["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
        requests.iter().filter_map(|one| one["content"]["parts"][0]["text"].as_str()).map(size).collect()
    };
    let read = |_: &Parts, body: &Bytes| wanted(body, inputs, "/requests/0/outputDimensionality");
    drawn::<gemini::Request, _>(state, head, body, reset, read, |wanted, _| {
        let vectors: Vec<Value> = wanted.vectors().into_iter().map(|vector| json!({"values": vector})).collect();
        json!({"embeddings": vectors})
    })
    .await
}
