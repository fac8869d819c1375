//! Answers that are not streamed, and the items both kinds of answer are made of.

use serde_json::{Value, json};

use super::request::Request;
use crate::content::Block;
use crate::openai::CREATED;
use crate::quirk::Quirk;
use crate::said::{Said, Usage};

/// Reasoning that only the service can read.
pub(super) const ENCRYPTED: &str = "gAAAAAc2ltdWxhdGVkIHJlYXNvbmluZw==";

pub(super) fn whole(request: &Request, said: &Said<'_>) -> Value {
    let output: Vec<_> = blocks(said).iter().enumerate().map(|(at, block)| item(request, said, at, block)).collect();
    let mut response = response(request, said, status(said));
    response["output"] = output.into();
    finish(said, &mut response);
    response
}

/// What becomes an item each; a search is one with what it found.
pub(super) fn blocks(said: &Said<'_>) -> Vec<Block> {
    said.blocks().iter().filter(|block| !matches!(block, Block::Found { .. })).cloned().collect()
}

/// What a response says of its failure.
pub(super) fn failed(request: &Request, said: &Said<'_>) -> Value {
    let mut response = response(request, said, "failed");
    let message = "The server had an error while processing your request. Sorry about that!";
    response["error"] = json!({"code": "server_error", "message": message});
    response
}

/// A response without output, as it stands when it begins.
pub(super) fn response(request: &Request, said: &Said<'_>, status: &str) -> Value {
    let mut response = json!({
        "id": format!("resp_sim_{}", said.id), "object": "response", "created_at": CREATED, "status": status,
        "model": said.model, "output": [], "error": null, "incomplete_details": null, "usage": null,
        "service_tier": "default",
    });
    for (name, value) in request.repeated.as_object().into_iter().flatten() {
        response[name] = value.clone();
    }
    response
}

/// Adds the end of a response to it.
pub(super) fn finish(said: &Said<'_>, response: &mut Value) {
    if let ("incomplete", Some(reason)) = (status(said), said.ending.reason.as_deref()) {
        let reason = if reason == "max_tokens" { "max_output_tokens" } else { reason };
        response["incomplete_details"] = json!({"reason": reason});
    }
    if !said.is(Quirk::NoUsage) && said.ending.reason.is_some() {
        response["usage"] = usage(&said.usage());
    }
}

pub(super) fn status(said: &Said<'_>) -> &'static str {
    match said.ending.reason.as_deref() {
        None => "in_progress",
        Some("end_turn" | "stop_sequence" | "tool_use" | "refusal") => "completed",
        Some(_) => "incomplete",
    }
}

/// A finished item of the output.
pub(super) fn item(request: &Request, said: &Said<'_>, at: usize, block: &Block) -> Value {
    let id = id(said, at, block);
    match block {
        Block::Text(pieces) => {
            let status = status(said);
            let content = [part(said, &pieces.concat())];
            json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
        }
        Block::Cited { pieces, url, title } => {
            let text = pieces.concat();
            let mut content = part(said, &text);
            content["annotations"] = json!([annotation(&text, url, title)]);
            json!({"id": id, "type": "message", "status": status(said), "role": "assistant", "content": [content]})
        }
        Block::Search { query, found, .. } => {
            let mut action = json!({"type": "search", "query": query, "queries": [query]});
            if request.sources {
                action["sources"] = found.iter().map(|(url, _)| json!({"type": "url", "url": url})).collect();
            }
            json!({"id": id, "type": "web_search_call", "status": "completed", "action": action})
        }
        Block::Found { .. } => Value::Null,
        Block::Thinking { pieces, .. } => {
            let summary: Vec<_> = request.summary.then(|| summary(&pieces.concat())).into_iter().collect();
            sealed(request, json!({"id": id, "type": "reasoning", "summary": summary}))
        }
        Block::RedactedThinking { .. } => sealed(request, json!({"id": id, "type": "reasoning", "summary": []})),
        Block::ToolUse { id: call_id, name, input } => json!({
            "id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
            "arguments": arguments(request, said, name, input),
        }),
    }
}

/// Without being asked for, sealed reasoning is not there: the service keeps it itself.
fn sealed(request: &Request, mut item: Value) -> Value {
    if request.encrypted {
        item["encrypted_content"] = json!(ENCRYPTED);
    }
    item
}

pub(super) fn id(said: &Said<'_>, at: usize, block: &Block) -> String {
    let kind = match block {
        Block::Text(_) | Block::Cited { .. } => "msg",
        Block::Search { .. } | Block::Found { .. } => "ws",
        Block::Thinking { .. } | Block::RedactedThinking { .. } => "rs",
        Block::ToolUse { .. } => "fc",
    };
    format!("{kind}_sim_{}_{at}", said.id)
}

pub(super) fn part(said: &Said<'_>, text: &str) -> Value {
    match said.ending.refused {
        true => json!({"type": "refusal", "refusal": text}),
        false => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    }
}

/// The page that all of a text rests on. Places count characters.
pub(super) fn annotation(text: &str, url: &str, title: &str) -> Value {
    json!({"type": "url_citation", "start_index": 0, "end_index": text.chars().count(), "url": url, "title": title})
}

pub(super) fn summary(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// A call's arguments; a tool that was not said to be loose gets all of its properties.
pub(super) fn arguments(request: &Request, said: &Said<'_>, name: &str, input: &str) -> String {
    if said.is(Quirk::NoArguments) {
        return String::new();
    }
    let filled = request.filled(name);
    if filled.is_empty() {
        return input.to_owned();
    }
    let mut object: Value = serde_json::from_str(input).expect("an input is JSON");
    for property in filled {
        if object.get(property).is_none() {
            object[property] = json!("");
        }
    }
    object.to_string()
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, thinking } = *usage;
    json!({
        "input_tokens": input, "output_tokens": output, "total_tokens": input.saturating_add(output),
        "input_tokens_details": {"cached_tokens": cache_read, "cache_write_tokens": cache_write},
        "output_tokens_details": {"reasoning_tokens": thinking},
    })
}
