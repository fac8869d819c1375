//! Ranking documents: what upstreams are asked for and what comes back. Most know the same call; Cohere has its own, and
//! counts in units of its own.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json;

use crate::fault::{Class, Fault};
use crate::platform::Protocol;
use crate::translate::body::Body;

/// What is asked for.
pub struct Wanted<'a> {
    /// The upstream's own name of the model.
    pub model: &'a str,
    pub query: &'a str,
    pub documents: Documents<'a>,
    /// All that the caller says besides, in his words.
    pub options: &'a [(Cow<'a, str>, &'a RawValue)],
}

#[derive(Clone, Copy)]
pub enum Documents<'a> {
    Texts(&'a [Cow<'a, str>]),
    /// With pictures, as they came.
    Raw(&'a [&'a RawValue]),
}

/// A body as the upstream takes it, and what had to be left out.
#[derive(Debug, PartialEq, Eq)]
pub struct Sent {
    pub body: Bytes,
    pub warnings: Vec<String>,
}

/// One document's place among those that were sent, and how much it has to do with the query, as the upstream wrote it.
#[derive(Debug)]
pub struct Ranked<'a> {
    pub index: usize,
    pub score: &'a RawValue,
}

/// What came back, the best first.
#[derive(Debug)]
pub struct Made<'a> {
    pub ranked: Vec<Ranked<'a>>,
    /// What the upstream counted of either.
    pub search_units: Option<u64>,
    pub tokens: Option<u64>,
}

/// Options that Cohere knows. Which of them were meant for another call it would refuse.
const OF_COHERE: [&str; 3] = ["top_n", "max_tokens_per_doc", "priority"];
/// Options that we see to: every answer has its documents.
const OURS: [&str; 1] = ["return_documents"];

/// The request as an upstream of the protocol takes it.
pub fn request(protocol: Protocol, wanted: &Wanted<'_>) -> Result<Sent, Fault> {
    let is_cohere = match protocol {
        Protocol::Chat | Protocol::Responses => false,
        Protocol::Cohere => true,
        Protocol::Messages | Protocol::Converse | Protocol::Gemini => {
            return Err(unsupported("this provider has no call that ranks documents"));
        }
    };
    let mut body = Body::default();
    body.set("model", wanted.model);
    body.set("query", wanted.query);
    match wanted.documents {
        Documents::Texts(texts) => body.set("documents", texts),
        Documents::Raw(_) if is_cohere => return Err(unsupported("this provider ranks texts only: no images")),
        Documents::Raw(documents) => body.set("documents", documents),
    }
    let mut warnings = Vec::new();
    for (name, value) in wanted.options.iter().filter(|(name, _)| !OURS.contains(&name.as_ref())) {
        match name.as_ref() {
            "user" if is_cohere => {}
            other if is_cohere && !OF_COHERE.contains(&other) => warnings.push(format!("dropped:{other}")),
            other => body.set(other, value),
        }
    }
    Ok(Sent { body: body.to_bytes().into(), warnings })
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    results: Option<Vec<Entry<'a>>>,
    #[serde(borrow, default)]
    data: Option<Vec<Entry<'a>>>,
    #[serde(borrow, default)]
    usage: Option<Cow<'a, RawValue>>,
    #[serde(borrow, default)]
    meta: Option<Cow<'a, RawValue>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    index: usize,
    #[serde(borrow, default)]
    relevance_score: Option<&'a RawValue>,
    #[serde(borrow, default)]
    score: Option<&'a RawValue>,
}

/// Cohere writes counts with a fraction, and others leave out what they do not count.
#[derive(Clone, Copy, Deserialize)]
struct Counts {
    #[serde(default)]
    search_units: Option<f64>,
    #[serde(default)]
    total_tokens: Option<f64>,
    #[serde(default)]
    prompt_tokens: Option<f64>,
    #[serde(default)]
    input_tokens: Option<f64>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    billed_units: Option<Counts>,
    #[serde(default)]
    tokens: Option<Counts>,
}

/// The places of an answer, of at most so many documents.
pub fn answer(body: &[u8], count: usize) -> Result<Made<'_>, Fault> {
    let bad = || Fault::in_answer(Class::BadResponse);
    let text = std::str::from_utf8(body).map_err(|_| bad())?;
    let Answer { results, data, usage, meta } = json::read(text).map_err(|_| bad())?;
    let results = results.or(data).ok_or_else(bad)?;
    if results.is_empty() {
        return Err(Fault::in_answer(Class::EmptyCompletion));
    }
    let mut seen = vec![false; count];
    let mut scored = Vec::with_capacity(results.len());
    for Entry { index, relevance_score, score } in results {
        let raw = relevance_score.or(score).ok_or_else(bad)?;
        let score: f64 = serde_json::from_str(raw.get()).map_err(|_| bad())?;
        let is_new = seen.get_mut(index).is_some_and(|seen| !std::mem::replace(seen, true));
        if !is_new || !score.is_finite() {
            return Err(bad());
        }
        scored.push((score, Ranked { index, score: raw }));
    }
    // Not everybody sorts them.
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    // What is billed comes before what is counted.
    let usage = usage.and_then(|usage| json::read::<Counts>(usage.get()).ok());
    let meta = meta.and_then(|meta| json::read::<Meta>(meta.get()).ok());
    let (billed, tokens) = meta.map_or((None, None), |meta| (meta.billed_units, meta.tokens));
    let first = |counted: fn(&Counts) -> Option<f64>| {
        let counts = [billed, usage, tokens].into_iter().flatten();
        let first = counts.filter_map(|counts| counted(&counts)).find(|count| *count > 0.0 && *count < 1e15);
        first.map(|count| count.ceil() as u64)
    };
    Ok(Made {
        ranked: scored.into_iter().map(|(_, ranked)| ranked).collect(),
        search_units: first(|counts| counts.search_units),
        tokens: first(|counts| counts.total_tokens.or(counts.prompt_tokens).or(counts.input_tokens)),
    })
}

/// The answer is another one than was asked for, by an option that the gateway does not know.
pub fn unexpected() -> Fault {
    unsupported("the provider's answer holds no places; leave out the options that change its form")
}

fn unsupported(message: impl Into<String>) -> Fault {
    Fault { message: Some(message.into()), status: 400, ..Fault::without_answer(Class::Unsupported) }
}
