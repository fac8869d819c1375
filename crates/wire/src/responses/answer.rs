//! A finished answer in the Responses format.

use std::collections::HashMap;

use bytes::Bytes;

use super::item::{self, Call, Thought, Words};
use super::ran::{self, Ran, Results};
use super::usage::Usage;
use super::{Form, Head, Stream};
use crate::chat::answer::{tier, with_metadata};
use crate::chat::{cited, is_declined, lenient};
use crate::json::quoted;
use crate::messages::{Block, Usage as Used};
use crate::object::Raw;

/// The object of an answer, as far as it is known.
pub(super) struct Object<'a> {
    pub head: &'a Head,
    pub form: &'a Form,
    pub model: &'a str,
    pub provider: Option<&'a str>,
    pub status: &'a str,
    pub items: &'a [String],
    /// Why it is not whole, or what went wrong: members of an object.
    pub error: &'a str,
    pub incomplete: Option<&'a str>,
    pub usage: Option<&'a Used>,
}

impl Object<'_> {
    pub fn to_json(&self) -> String {
        let Head { id, created, .. } = self.head;
        let completed = if self.status == "completed" { created.to_string() } else { "null".to_owned() };
        let incomplete = self.incomplete.map_or_else(|| "null".to_owned(), |why| format!(r#"{{"reason":"{why}"}}"#));
        let provider = self.provider.map(|name| format!(r#","provider":{}"#, quoted(name))).unwrap_or_default();
        let tier = self.usage.and_then(|used| used.service_tier.as_deref()).map(tier);
        let tier = tier.map_or_else(|| "null".to_owned(), quoted);
        format!(
            r#"{{"id":{},"object":"response","created_at":{created},"completed_at":{completed},"status":"{}","model":{}{provider},"output":[{}],"error":{},"incomplete_details":{incomplete},"usage":{},"service_tier":{tier},"previous_response_id":null,"background":false,"store":false{}}}"#,
            quoted(id),
            self.status,
            quoted(self.model),
            self.items.join(","),
            self.error,
            self.usage.map_or_else(|| "null".to_owned(), |used| Usage::of(used).to_json()),
            self.form.echo
        )
    }
}

/// Why an answer ended that had no more room.
pub(super) const CUT: &str = "max_tokens";

/// Whether an answer is whole, by why it ended: its status, and why it is not. A model that declines in its own words has
/// said all that it says.
pub(super) fn ended(stop: Option<&str>, is_declined: bool) -> (&'static str, Option<&'static str>) {
    match stop {
        Some("refusal") if is_declined => ("completed", None),
        Some(CUT | "model_context_window_exceeded") => ("incomplete", Some("max_output_tokens")),
        Some("refusal") => ("incomplete", Some("content_filter")),
        _ => ("completed", None),
    }
}

/// What a request is answered that is too long for an answer: one that was cut short before its first word, as a body or as
/// the events of a stream. `metadata` is JSON.
pub fn cut_short(model: &str, head: &Head, form: &Form, metadata: Option<&str>, is_streamed: bool) -> Bytes {
    let metadata = metadata.and_then(|metadata| Raw::from_text(metadata).ok());
    if is_streamed {
        return Stream::cut_short(model, head, form, metadata.as_ref());
    }
    let (status, incomplete) = ended(Some(CUT), false);
    let (provider, usage) = (None, Some(&Used::default()));
    let object = Object { head, form, model, provider, status, items: &[], error: "null", incomplete, usage };
    with_metadata(object.to_json(), &head.metadata, metadata.as_ref()).into()
}

/// An answer in the Messages format as one in the Responses format; nothing where it is none.
pub fn whole(body: &[u8], head: &Head, form: &Form, results: &Results) -> Option<Bytes> {
    let response = lenient::response(body)?;
    let stop = response.stop_reason.as_ref().and_then(Option::as_ref).map(|reason| reason.as_str());
    let declines = is_declined(&response);
    let (status, incomplete) = ended(stop, declines);
    let (mut items, mut words): (Vec<String>, Option<Words>) = (Vec::new(), None);
    // What something else stands behind had come to its end.
    let close = |words: &mut Option<Words>, items: &mut Vec<String>, status| {
        if let Some(words) = words.take() {
            items.push(words.item(&item::id("msg", &head.id, items.len()), status));
        }
    };
    let said = |words: &mut Option<Words>, items: &mut Vec<String>| close(words, items, "completed");
    // Of several results of one call the first counts.
    let mut shown: HashMap<String, String> = response.content.iter().rev().filter_map(ran::result).collect();
    for block in &response.content {
        match block {
            Block::ServerToolUse(call) => {
                said(&mut words, &mut items);
                let ran = Ran { result: shown.remove(&call.id), ..Ran::new(call.clone()) };
                items.push(ran.item("completed", &form.brand, results));
            }
            Block::Text(text) => {
                let words = words.get_or_insert_with(|| Words::new(declines));
                let before = words.length;
                words.add(&text.text);
                for (found, place) in cited::placed(&text.text, text.citations.iter().flatten().flatten()) {
                    words.cite(found, place, before);
                }
            }
            Block::Thinking(thought) => {
                said(&mut words, &mut items);
                let signature = thought.signature.clone().unwrap_or_default();
                let thought = Thought { text: thought.thinking.clone(), signature, sealed: None };
                items.push(thought.item(&item::id("rs", &head.id, items.len())));
            }
            Block::RedactedThinking(thought) => {
                said(&mut words, &mut items);
                let thought = Thought { sealed: Some(thought.data.clone()), ..Thought::default() };
                items.push(thought.item(&item::id("rs", &head.id, items.len())));
            }
            Block::ToolUse(call) => {
                said(&mut words, &mut items);
                let call = Call::new(&call.id, &call.name, call.input_text(), form);
                items.push(call.item(&item::id(call.prefix(), &head.id, items.len()), call.status(), &call.input()));
            }
            _ => {}
        }
    }
    close(&mut words, &mut items, status);
    let object = Object {
        head,
        form,
        model: &response.model,
        provider: response.provider.as_deref(),
        status,
        items: &items,
        error: "null",
        incomplete,
        usage: Some(&response.usage),
    };
    Some(with_metadata(object.to_json(), &head.metadata, response.extra.get(&head.metadata)).into())
}
