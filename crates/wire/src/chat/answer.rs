//! A finished answer in the chat format.

use std::collections::HashMap;

use bytes::Bytes;
use serde::Serialize;

use super::cited::Place;
use super::usage::Usage;
use super::{Form, Head, cited, custom, finish_reason, is_declined, lenient};
use crate::json;
use crate::messages::{Block, WebSearchLocation};
use crate::object::Raw;
use crate::responses::ran::{self, Ran};

/// The shape of thinking and its signatures that goes back as it came.
pub(crate) const FORMAT: &str = "anthropic-claude-v1";

#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a str>,
    system_fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_tier: Option<&'a str>,
    choices: [Choice<'a>; 1],
    usage: Usage,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u8,
    message: Message<'a>,
    logprobs: Option<&'a str>,
    finish_reason: &'static str,
    native_finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<String>,
    refusal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Detail<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<Annotation<'a>>,
}

/// A thought, or a piece of one.
#[derive(Serialize)]
#[serde(tag = "type")]
pub(crate) enum Detail<'a> {
    #[serde(rename = "reasoning.text")]
    Text {
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
        format: &'static str,
        index: usize,
    },
    #[serde(rename = "reasoning.encrypted")]
    Sealed { data: &'a str, format: &'static str, index: usize },
    /// A call of a tool that ran here or at a vendor, and what came of it as far as clients are shown that, as JSON. It comes
    /// back with the next request, so that the model reads it again and nobody pays twice.
    #[serde(rename = "reasoning.server_tool_call")]
    Ran { tool_name: String, arguments: String, result: String, tool_call_id: String, index: usize },
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<Custom<'a>>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// A call of a tool that takes a text.
#[derive(Serialize)]
struct Custom<'a> {
    name: &'a str,
    input: String,
}

impl Detail<'_> {
    pub fn ran(ran: &Ran, index: usize) -> Self {
        Self::Ran {
            tool_name: ran.call.name.clone(),
            arguments: ran.arguments().to_owned(),
            result: ran.result.clone().unwrap_or_default(),
            tool_call_id: ran.call.id.clone(),
            index,
        }
    }
}

/// Numbers what is told, so that thoughts can be put back where they stood: text in a row is one thing.
#[derive(Debug, Default)]
pub(crate) struct Places {
    next: usize,
    is_text: bool,
}

impl Places {
    pub fn text(&mut self) {
        self.next += usize::from(!std::mem::replace(&mut self.is_text, true));
    }

    pub fn other(&mut self) -> usize {
        self.is_text = false;
        self.next += 1;
        self.next - 1
    }
}

/// The usual tier has another name here.
pub(crate) fn tier(name: &str) -> &str {
    if name == "standard" { "default" } else { name }
}

/// A page that a passage rests on.
#[derive(Serialize)]
pub(crate) struct Annotation<'a> {
    /// Its number among those of a stream: lists that come in pieces have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    #[serde(rename = "type")]
    kind: &'static str,
    url_citation: UrlCitation<'a>,
}

#[derive(Serialize)]
struct UrlCitation<'a> {
    url: &'a str,
    title: &'a str,
    content: &'a str,
    start_index: usize,
    end_index: usize,
}

impl<'a> Annotation<'a> {
    /// Of a place in a block, by its first character and the one behind its last, and of what was said before the block.
    pub fn of(found: &'a WebSearchLocation, (start, end): Place, before: usize) -> Self {
        Self {
            index: None,
            kind: "url_citation",
            url_citation: UrlCitation {
                url: &found.url,
                title: found.title.as_deref().unwrap_or_default(),
                content: &found.cited_text,
                start_index: before + start,
                end_index: before + end,
            },
        }
    }
}

/// An answer in the Messages format as one in the chat format; nothing where it is none.
pub fn whole(body: &[u8], head: &Head, form: &Form) -> Option<Bytes> {
    let response = lenient::response(body)?;
    let stop = response.stop_reason.as_ref().and_then(Option::as_ref).map(|reason| reason.as_str());
    let is_declined = is_declined(&response);
    let mut message = Message {
        role: "assistant",
        content: None,
        refusal: None,
        reasoning: None,
        reasoning_details: Vec::new(),
        tool_calls: Vec::new(),
        annotations: Vec::new(),
    };
    let (mut length, mut places) = (0, Places::default());
    // Of several results of one call the first counts.
    let mut shown: HashMap<String, String> = response.content.iter().rev().filter_map(ran::result).collect();
    for block in &response.content {
        match block {
            // No thought: what was found is told also where thoughts are not.
            Block::ServerToolUse(call) => {
                let ran = Ran { result: shown.remove(&call.id), ..Ran::new(call.clone()) };
                message.reasoning_details.push(Detail::ran(&ran, places.other()));
            }
            Block::Text(text) => {
                places.text();
                let citations = text.citations.iter().flatten().flatten();
                let placed = cited::placed(&text.text, citations);
                message
                    .annotations
                    .extend(placed.into_iter().map(|(found, place)| Annotation::of(found, place, length)));
                let told = if is_declined { &mut message.refusal } else { &mut message.content };
                told.get_or_insert_default().push_str(&text.text);
                length += text.text.chars().count();
            }
            Block::ToolUse(call) => {
                places.other();
                let (id, name, arguments) = (&call.id, &call.name, call.input_text());
                message.tool_calls.push(match form.custom.contains(name) {
                    true => {
                        let custom = Some(Custom { name, input: custom::text_of(arguments) });
                        Call { id, kind: "custom", function: None, custom }
                    }
                    false => {
                        let function = Some(Function { name, arguments });
                        Call { id, kind: "function", function, custom: None }
                    }
                });
            }
            Block::Thinking(thought) if !form.hides_reasoning => {
                message.reasoning.get_or_insert_default().push_str(&thought.thinking);
                let signature = thought.signature.as_deref().filter(|signature| !signature.is_empty());
                let (text, index) = (Some(thought.thinking.as_str()), places.other());
                message.reasoning_details.push(Detail::Text { text, signature, format: FORMAT, index });
            }
            Block::RedactedThinking(thought) if !form.hides_reasoning => {
                let index = places.other();
                message.reasoning_details.push(Detail::Sealed { data: &thought.data, format: FORMAT, index });
            }
            _ => {}
        }
    }
    // A model that only calls says nothing; one that says nothing else says an empty text.
    if message.content.is_none() && message.refusal.is_none() && message.tool_calls.is_empty() {
        message.content = Some(String::new());
    }
    let metadata = response.extra.get(&head.metadata);
    let made = Completion {
        id: &head.id,
        object: "chat.completion",
        created: head.created,
        model: &response.model,
        provider: response.provider.as_deref(),
        system_fingerprint: None,
        service_tier: response.usage.service_tier.as_deref().map(tier),
        choices: [Choice {
            index: 0,
            message,
            logprobs: None,
            finish_reason: finish_reason(stop.unwrap_or_default(), is_declined),
            native_finish_reason: stop,
        }],
        usage: Usage::of(&response.usage),
    };
    let text = serde_json::to_string(&made).ok()?;
    Some(with_metadata(text, &head.metadata, metadata).into())
}

/// An object with one member more, whose name is not known before.
pub(crate) fn with_metadata(mut text: String, name: &str, value: Option<&Raw>) -> String {
    if let Some(value) = value {
        text.pop();
        text.push(',');
        text.push_str(&json::quoted(name));
        text.push(':');
        text.push_str(value.get());
        text.push('}');
    }
    text
}
