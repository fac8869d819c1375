//! Ranking in two protocols. A document's score is the share of the query's words that it has; a word is a token.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use serde_json::{Value, json};

use crate::body::{Answer, ResetFlag};
use crate::failure::Failure;
use crate::images::drawn;
use crate::state::State;
use crate::{chat, cohere};

/// Documents of one search unit.
const OF_A_UNIT: usize = 100;

struct Wanted {
    body: Value,
    query: Vec<String>,
    documents: Vec<Vec<String>>,
}

impl Wanted {
    fn read(body: &[u8]) -> Result<Self, Failure> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|_| Failure::new(400, "We could not parse the JSON body of your request."))?;
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let text = |document: &Value| document.as_str().or_else(|| document["text"].as_str()).map(words);
        let documents = body["documents"].as_array().map(Vec::as_slice).unwrap_or_default();
        let documents: Vec<_> = documents.iter().map(|document| text(document).unwrap_or_default()).collect();
        let query = body["query"].as_str().map(words).filter(|_| !documents.is_empty());
        let query = query.ok_or_else(|| Failure::new(400, "query and documents are required"))?;
        Ok(Self { body, query, documents })
    }

    /// The best first, as many as are wanted.
    fn results(&self) -> Vec<Value> {
        let score = |document: &Vec<String>| {
            let shared = self.query.iter().filter(|word| document.contains(word)).count();
            shared as f64 / self.query.len().max(1) as f64
        };
        let mut ranked: Vec<(usize, f64)> = self.documents.iter().map(score).enumerate().collect();
        ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let wanted = self.body["top_n"].as_u64().map_or(ranked.len(), |number| number as usize);
        ranked.iter().take(wanted).map(|(index, score)| json!({"index": index, "relevance_score": score})).collect()
    }

    fn tokens(&self) -> usize {
        self.documents.iter().map(|document| document.len() + self.query.len()).sum()
    }
}

/// `POST /rerank`, as Jina has it and most others.
pub(crate) async fn common(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let read = |_: &Parts, body: &Bytes| Wanted::read(body);
    drawn::<chat::Request, _>(state, head, body, reset, read, |wanted, _| {
        json!({"model": wanted.body["model"], "results": wanted.results(), "usage": {"total_tokens": wanted.tokens()}})
    })
    .await
}

/// `POST /v2/rerank`.
pub(crate) async fn cohere(state: &Arc<State>, head: &Parts, body: &Bytes, reset: ResetFlag) -> Response<Answer> {
    let read = |_: &Parts, body: &Bytes| Wanted::read(body);
    drawn::<cohere::Request, _>(state, head, body, reset, read, |wanted, _| {
        let units = json!({"search_units": wanted.documents.len().div_ceil(OF_A_UNIT) as f64});
        json!({"id": "sim", "results": wanted.results(), "meta": {"billed_units": units}})
    })
    .await
}
