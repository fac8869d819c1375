//! Answers, whole and as events.

use serde_json::{Value, json};

use super::request::Request;
use crate::content::{Block, json_pieces, words};
use crate::events::{Events, Writer};
use crate::quirk::Quirk;
use crate::said::Said;

/// What the model says it is about to do: calls never come without it.
const PLAN: &str = "I will use the tools to answer.";

pub(super) fn whole(request: &Request, said: &Said<'_>) -> Value {
    let mut message = json!({"role": "assistant"});
    let (mut content, mut calls) = (Vec::new(), Vec::new());
    for block in said.blocks().iter() {
        match block {
            Block::Text(pieces) | Block::Cited { pieces, .. } => {
                content.push(json!({"type": "text", "text": pieces.concat()}));
            }
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => content.push(json!({"type": "thinking", "thinking": pieces.concat()})),
            Block::RedactedThinking { .. } => {}
            Block::ToolUse { id, name, input } => {
                let arguments = if said.is(Quirk::NoArguments) { "" } else { input };
                calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}));
            }
        }
    }
    if calls.is_empty() {
        let cited: Vec<_> = citations(request, said).collect();
        if !cited.is_empty() {
            message["citations"] = cited.into();
        }
    } else {
        message["tool_plan"] = json!(PLAN);
        message["tool_calls"] = calls.into();
    }
    if !content.is_empty() {
        message["content"] = content.into();
    }
    let mut answer = json!({"id": id(said), "message": message, "finish_reason": finish(said)});
    if !said.is(Quirk::NoUsage) {
        answer["usage"] = usage(said);
    }
    answer
}

pub(super) fn events(request: &Request, said: &Said<'_>) -> Events {
    let mut out = Stream { out: Writer::default() };
    let start = json!({"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []});
    out.out.named("message-start", &json!({"type": "message-start", "id": id(said), "delta": {"message": start}}));
    let blocks = said.blocks();
    let (mut index, mut calls) = (0, 0);
    for block in blocks.iter() {
        match block {
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Text(pieces) | Block::Cited { pieces, .. } => {
                out.content(index, "text", pieces);
                index += 1;
            }
            Block::Thinking { pieces, .. } => {
                out.content(index, "thinking", pieces);
                index += 1;
            }
            Block::RedactedThinking { .. } => {}
            Block::ToolUse { id, name, input } => {
                if calls == 0 {
                    for word in words(PLAN) {
                        out.event("tool-plan-delta", None, Some(json!({"tool_plan": word})));
                    }
                }
                let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": ""}});
                out.event("tool-call-start", Some(calls), Some(json!({"tool_calls": call})));
                if !said.is(Quirk::NoArguments) {
                    for piece in json_pieces(input) {
                        let delta = json!({"tool_calls": {"function": {"arguments": piece}}});
                        out.event("tool-call-delta", Some(calls), Some(delta));
                    }
                }
                out.event("tool-call-end", Some(calls), None);
                calls += 1;
            }
        }
    }
    if calls == 0 {
        for (at, citation) in citations(request, said).enumerate() {
            out.event("citation-start", Some(at), Some(json!({"citations": citation})));
            out.event("citation-end", Some(at), None);
        }
    }
    let mut delta = json!({"finish_reason": finish(said)});
    if !said.is(Quirk::NoUsage) {
        delta["usage"] = usage(said);
    }
    out.out.named("message-end", &json!({"type": "message-end", "id": id(said), "delta": delta}));
    out.out.events()
}

struct Stream {
    out: Writer,
}

impl Stream {
    fn event(&mut self, kind: &str, index: Option<usize>, message: Option<Value>) {
        let mut event = json!({"type": kind});
        if let Some(index) = index {
            event["index"] = json!(index);
        }
        if let Some(message) = message {
            event["delta"] = json!({"message": message});
        }
        self.out.named(kind, &event);
    }

    fn content(&mut self, index: usize, kind: &str, pieces: &[String]) {
        self.event("content-start", Some(index), Some(json!({"content": {"type": kind, kind: ""}})));
        for piece in pieces {
            self.event("content-delta", Some(index), Some(json!({"content": {kind: piece}})));
        }
        self.event("content-end", Some(index), None);
    }
}

/// Every document supports the first word of the answer: enough to have positions, a text and a source each.
fn citations(request: &Request, said: &Said<'_>) -> impl Iterator<Item = Value> {
    let blocks = said.blocks();
    let shown = blocks.iter().filter(|block| matches!(block, Block::Text(_) | Block::Thinking { .. }));
    let first = shown.enumerate().find_map(|(at, block)| match block {
        Block::Text(pieces) => pieces.first().map(|word| (at, word.clone())),
        _ => None,
    });
    let (index, word) = first.unwrap_or_default();
    let documents = if word.is_empty() { &[][..] } else { &request.documents };
    documents.iter().map(move |(id, data)| {
        let mut document = data.clone();
        document["id"] = json!(id);
        json!({"start": 0, "end": word.chars().count(), "text": word, "type": "TEXT_CONTENT", "content_index": index,
            "sources": [{"type": "document", "id": id, "document": document}]})
    })
}

fn id(said: &Said<'_>) -> String {
    format!("00000000-0000-4000-8000-{:012}", said.id)
}

/// The reason to finish, in the vendor's words.
fn finish<'s>(said: &'s Said<'_>) -> Option<&'s str> {
    match said.ending.reason.as_deref() {
        Some("tool_use") if said.is(Quirk::ToolsFinishStop) => Some("COMPLETE"),
        Some("end_turn" | "refusal") => Some("COMPLETE"),
        Some("stop_sequence") => Some("STOP_SEQUENCE"),
        Some("max_tokens") => Some("MAX_TOKENS"),
        Some("tool_use") => Some("TOOL_CALL"),
        other => other,
    }
}

/// All numbers are decimals; what is billed leaves out what the service adds to a prompt.
fn usage(said: &Said<'_>) -> Value {
    let all = said.usage();
    #[expect(clippy::cast_precision_loss, reason = "the vendor's counts are decimals")]
    let decimal = |tokens: u64| tokens as f64;
    json!({
        "billed_units": {"input_tokens": decimal(all.input.div_ceil(2)), "output_tokens": decimal(all.output)},
        "tokens": {"input_tokens": decimal(all.input), "output_tokens": decimal(all.output)},
        "cached_tokens": decimal(all.cache_read),
    })
}
