//! OpenAI's call, which most others know as well. Options go out as they came: whoever does not know one says so.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json;

use super::{Input, Made, Sent, Wanted};
use crate::translate::body::Body;

pub(super) fn request(wanted: &Wanted<'_>) -> Sent {
    let mut body = Body::default();
    body.set("model", wanted.model);
    match wanted.input {
        Input::Texts([text]) => body.set("input", text),
        Input::Texts(texts) => body.set("input", texts),
        Input::Raw(raw) => body.set("input", raw),
    }
    for (name, value) in wanted.options {
        body.set(name, value);
    }
    Sent { body: body.to_bytes().into(), warnings: Vec::new() }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Vec<Entry<'a>>,
    #[serde(borrow, default)]
    usage: Option<Cow<'a, RawValue>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    embedding: &'a RawValue,
    #[serde(default)]
    index: Option<u64>,
}

pub(super) fn answer(body: &[u8]) -> Option<Made<'_>> {
    let Answer { mut data, usage } = json::read(std::str::from_utf8(body).ok()?).ok()?;
    // They need not come in the order in which they were asked for; some servers do not number them, or all alike.
    if !data.iter().all(|entry| matches!(entry.index, None | Some(0))) {
        data.sort_by_key(|entry| entry.index);
        let is_each = data.iter().enumerate().all(|(place, entry)| entry.index == Some(place as u64));
        if !is_each {
            return None;
        }
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(default)]
        prompt_tokens: Option<u64>,
        #[serde(default)]
        total_tokens: Option<u64>,
    }
    let usage = usage.and_then(|usage| json::read::<Usage>(usage.get()).ok());
    let tokens = usage.and_then(|usage| usage.prompt_tokens.or(usage.total_tokens)).filter(|tokens| *tokens > 0);
    Some(Made { vectors: data.iter().map(|entry| entry.embedding).collect(), tokens })
}
