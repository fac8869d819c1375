//! Answers, whole and as frames.

use serde_json::{Value, json};

use crate::aws::frame;
use crate::content::{Block, json_pieces};
use crate::events::{Events, Writer};
use crate::quirk::Quirk;
use crate::said::Said;

pub(super) fn whole(said: &Said<'_>, tells_stop: bool) -> Value {
    let block = |block: &Block| match block {
        Block::Text(pieces) | Block::Cited { pieces, .. } => json!({"text": pieces.concat()}),
        Block::Search { .. } | Block::Found { .. } => json!({"text": ""}),
        Block::Thinking { pieces, signature } => {
            let mut text = json!({"text": pieces.concat()});
            if !said.is(Quirk::NoSignature) {
                text["signature"] = json!(signature);
            }
            json!({"reasoningContent": {"reasoningText": text}})
        }
        Block::RedactedThinking { data } => json!({"reasoningContent": {"redactedContent": data}}),
        Block::ToolUse { id, name, input } => {
            json!({"toolUse": {"toolUseId": id, "name": name, "input": object(input)}})
        }
    };
    let content: Vec<_> = said.blocks().iter().map(block).collect();
    let mut answer = stop(said, tells_stop);
    answer["output"] = json!({"message": {"role": "assistant", "content": content}});
    answer["metrics"] = json!({"latencyMs": 12});
    if !said.is(Quirk::NoUsage) {
        answer["usage"] = usage(said);
    }
    answer
}

pub(super) fn events(said: &Said<'_>, tells_stop: bool) -> Events {
    let mut out = Frames { out: Writer::default(), index: 0 };
    out.event("messageStart", &json!({"role": "assistant"}));
    for (at, block) in said.blocks().iter().enumerate() {
        out.index = if said.is(Quirk::IndexGaps) { at * 2 + 3 } else { at };
        match block {
            // Only calls have a start.
            Block::Text(pieces) | Block::Cited { pieces, .. } => {
                pieces.iter().for_each(|piece| out.delta(&json!({"text": piece})));
            }
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, signature } => {
                pieces.iter().for_each(|piece| out.delta(&json!({"reasoningContent": {"text": piece}})));
                if !said.is(Quirk::NoSignature) {
                    out.delta(&json!({"reasoningContent": {"signature": signature}}));
                }
            }
            Block::RedactedThinking { data } => out.delta(&json!({"reasoningContent": {"redactedContent": data}})),
            Block::ToolUse { id, name, input } => {
                let start = json!({"toolUse": {"toolUseId": id, "name": name}});
                out.event("contentBlockStart", &json!({"contentBlockIndex": out.index, "start": start, "p": PADDING}));
                if !said.is(Quirk::NoArguments) {
                    json_pieces(input).iter().for_each(|piece| out.delta(&json!({"toolUse": {"input": piece}})));
                }
            }
        }
        out.event("contentBlockStop", &json!({"contentBlockIndex": out.index, "p": PADDING}));
    }
    out.event("messageStop", &stop(said, tells_stop));
    if !said.is(Quirk::NoUsage) {
        out.event("metadata", &json!({"usage": usage(said), "metrics": {"latencyMs": 12}, "p": PADDING}));
    }
    out.out.events()
}

/// The service pads its events so that their sizes tell nothing; no document mentions it.
const PADDING: &str = "abcdefghijk";

struct Frames {
    out: Writer,
    index: usize,
}

impl Frames {
    fn event(&mut self, kind: &str, payload: &Value) {
        self.out.write(|out| out.extend_from_slice(&frame::event(kind, payload)));
    }

    fn delta(&mut self, delta: &Value) {
        self.event("contentBlockDelta", &json!({"contentBlockIndex": self.index, "delta": delta, "p": PADDING}));
    }
}

/// The reason to stop, in the vendor's words.
fn stop(said: &Said<'_>, tells_stop: bool) -> Value {
    let reason = match said.ending.reason.as_deref() {
        Some("refusal") => Some("content_filtered"),
        Some("tool_use") if said.is(Quirk::ToolsFinishStop) => Some("end_turn"),
        other => other,
    };
    let mut stop = json!({"stopReason": reason});
    if tells_stop {
        stop["additionalModelResponseFields"] = json!({"stop_sequence": said.ending.sequence});
    }
    stop
}

/// The input does not count what the cache holds; the total does.
fn usage(said: &Said<'_>) -> Value {
    let all = said.usage();
    let mut usage = json!({
        "inputTokens": said.input_tokens, "outputTokens": all.output,
        "totalTokens": all.input.saturating_add(all.output),
        "cacheReadInputTokens": all.cache_read, "cacheWriteInputTokens": all.cache_write,
    });
    let written = [("5m", said.cache.write_5m), ("1h", said.cache.write_1h)];
    let details: Vec<_> = written
        .iter()
        .filter(|(_, tokens)| *tokens > 0)
        .map(|(ttl, tokens)| json!({"ttl": ttl, "inputTokens": tokens}))
        .collect();
    if !details.is_empty() {
        usage["cacheDetails"] = details.into();
    }
    usage
}

fn object(input: &str) -> Value {
    serde_json::from_str(input).unwrap_or_else(|_| json!({}))
}
