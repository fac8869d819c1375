//! Answers, whole and in chunks.

use serde_json::{Value, json};

use super::calls::{self, Call};
use crate::content::{Block, Ending};
use crate::events::{Events, Writer};
use crate::openai::CREATED;
use crate::quirk::Quirk;
use crate::said::{Said, Usage};

pub(super) fn whole(said: &Said<'_>) -> Value {
    let blocks = said.blocks();
    let mut text = String::new();
    let mut thought = String::new();
    let mut calls = Vec::new();
    for block in blocks.iter() {
        match block {
            Block::Text(pieces) | Block::Cited { pieces, .. } => text.push_str(&pieces.concat()),
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => thought.push_str(&pieces.concat()),
            Block::RedactedThinking { .. } => {}
            Block::ToolUse { id, name, input } => calls.push(Call { id, name, input }),
        }
    }
    if said.is(Quirk::ThinkTags) {
        text = format!("<think>{thought}</think>\n\n{text}");
    }
    let content = match text.is_empty() && !calls.is_empty() && !said.is(Quirk::EmptyTextFirst) {
        true => Value::Null,
        false => json!(text),
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null, "annotations": []});
    if said.ending.refused {
        message["content"] = Value::Null;
        message["refusal"] = json!(text);
    }
    if said.is(Quirk::MistralThinking) {
        message["content"] = json!([thinking_chunk(&thought), {"type": "text", "text": text}]);
    } else if !thought.is_empty() {
        reason(said, &mut message, &thought, true);
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls::whole(said, &calls).into();
    }
    let mut choice = json!({"index": 0, "message": message, "logprobs": null});
    finish(said, &mut choice);
    let mut answer = frame(said, "chat.completion");
    answer["choices"] = json!([choice]);
    if !said.is(Quirk::NoUsage) {
        answer["usage"] = usage(&said.usage());
    }
    answer
}

/// The chunks of a streamed answer.
pub(super) fn events(said: &Said<'_>, include_usage: bool) -> Events {
    let mut out = Chunks { said, out: Writer::default(), null_usage: include_usage, sent: 0, listed: false };
    let blocks = said.blocks();
    out.open(&blocks);
    let mut calls = 0;
    for run in blocks.chunk_by(|a, b| is_call(a) && is_call(b)) {
        match &run[0] {
            Block::Text(pieces) | Block::Cited { pieces, .. } => pieces.iter().for_each(|piece| out.text(piece)),
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => out.thinking(pieces),
            Block::RedactedThinking { .. } => {}
            Block::ToolUse { .. } => {
                let run: Vec<_> = run.iter().filter_map(call).collect();
                for delta in calls::deltas(said, &run, calls) {
                    out.delta(delta);
                }
                calls += run.len();
            }
        }
    }
    out.close(include_usage);
    out.out.events()
}

struct Chunks<'s> {
    said: &'s Said<'s>,
    out: Writer,
    /// Chunks before the last one say that usage is still to come.
    null_usage: bool,
    /// Deltas so far, which are the tokens of usage on every chunk.
    sent: u64,
    /// The content before this was a list.
    listed: bool,
}

impl Chunks<'_> {
    fn open(&mut self, blocks: &[Block]) {
        if self.said.is(Quirk::EmptyChoicesFirst) {
            self.out.data(&json!({
                "id": "", "object": "", "created": 0, "model": "", "choices": [],
                "prompt_filter_results": [{"prompt_index": 0,
                    "content_filter_results": {"hate": {"filtered": false, "severity": "safe"}}}],
            }));
        }
        let calls_first = blocks.first().is_some_and(is_call);
        match self.said.quirk {
            Some(Quirk::ToolCallFirst) if calls_first => {}
            Some(Quirk::EmptyTextFirst) => {
                for _ in 0..3 {
                    self.delta(json!({"role": "assistant", "content": ""}));
                }
            }
            _ => {
                let content = if calls_first { Value::Null } else { json!("") };
                self.delta(json!({"role": "assistant", "content": content, "refusal": null}));
            }
        }
        self.sent = 0;
    }

    fn text(&mut self, piece: &str) {
        let member = if self.said.ending.refused { "refusal" } else { "content" };
        match std::mem::take(&mut self.listed) {
            // The list goes on once after the thinking; then text is plain again.
            true => self.delta(json!({member: [{"type": "text", "text": piece}]})),
            false => self.delta(json!({member: piece})),
        }
    }

    fn thinking(&mut self, pieces: &[String]) {
        if self.said.is(Quirk::ThinkTags) {
            // Tags are text to the server: they are cut like any other.
            let tagged =
                ["<thi", "nk>"].into_iter().chain(pieces.iter().map(String::as_str)).chain(["</th", "ink>\n\n"]);
            return tagged.for_each(|piece| self.text(piece));
        }
        if self.said.is(Quirk::MistralThinking) {
            self.listed = true;
            return pieces.iter().for_each(|piece| self.delta(json!({"content": [thinking_chunk(piece)]})));
        }
        for (at, piece) in pieces.iter().enumerate() {
            let mut delta = json!({});
            reason(self.said, &mut delta, piece, at + 1 == pieces.len());
            self.delta(delta);
        }
    }

    fn delta(&mut self, delta: Value) {
        self.sent += 1;
        self.chunk(delta, None);
    }

    fn chunk(&mut self, delta: Value, finish: Option<Value>) {
        let choice = finish.unwrap_or_else(|| json!({"index": 0, "logprobs": null, "finish_reason": null}));
        let mut chunk = frame(self.said, "chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        chunk["choices"][0]["delta"] = delta;
        if self.said.is(Quirk::UsageEveryChunk) {
            let all = self.said.usage();
            chunk["usage"] = usage(&Usage { output: self.sent.min(all.output), ..all });
        } else if self.null_usage {
            chunk["usage"] = Value::Null;
        }
        self.out.data(&chunk);
    }

    fn close(&mut self, include_usage: bool) {
        use Quirk::{
            NoDone, NoFinish, NoUsage, TwoFinishes, UsageEveryChunk, UsageLate, UsageTwice, UsageWithFinish, UsageXGroq,
        };
        let counts = usage(&self.said.usage());
        let quirk = self.said.quirk;
        if quirk != Some(NoFinish) && self.said.ending.reason.is_some() {
            let mut choice = json!({"index": 0, "logprobs": null, "delta": {}});
            finish(self.said, &mut choice);
            let mut chunk = frame(self.said, "chat.completion.chunk");
            chunk["choices"] = json!([choice]);
            match quirk {
                Some(UsageWithFinish | UsageTwice | UsageEveryChunk) => chunk["usage"] = counts.clone(),
                Some(UsageXGroq) => chunk["x_groq"] = json!({"id": "req_sim", "usage": counts}),
                _ if self.null_usage => chunk["usage"] = Value::Null,
                _ => {}
            }
            self.out.data(&chunk);
        }
        match quirk {
            Some(TwoFinishes) => {
                self.chunk(json!({}), Some(json!({"index": 0, "logprobs": null, "finish_reason": "stop"})));
            }
            Some(UsageLate) => {
                self.delta(json!({"content": ""}));
                self.delta(json!({}));
            }
            _ => {}
        }
        let apart = match quirk {
            Some(UsageLate | UsageTwice) => true,
            Some(NoUsage | UsageWithFinish | UsageXGroq) => false,
            _ => include_usage,
        };
        if apart {
            let mut chunk = frame(self.said, "chat.completion.chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = counts;
            self.out.data(&chunk);
        }
        if quirk != Some(NoDone) {
            self.out.write(|out| out.extend_from_slice(b"data: [DONE]\n\n"));
        }
    }
}

/// Mistral's thinking: a list within the list of the content.
fn thinking_chunk(text: &str) -> Value {
    json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
}

/// What every answer and every chunk has.
fn frame(said: &Said<'_>, object: &str) -> Value {
    json!({
        "id": format!("chatcmpl-sim-{}", said.id), "object": object, "created": CREATED, "model": said.model,
        "service_tier": "default", "system_fingerprint": "fp_sim",
    })
}

/// Adds reasoning under the name the server has for it.
fn reason(said: &Said<'_>, to: &mut Value, text: &str, last: bool) {
    if !matches!(said.quirk, Some(Quirk::ReasoningField | Quirk::ReasoningDetails | Quirk::ThinkTags)) {
        to["reasoning_content"] = json!(text);
    }
    if matches!(said.quirk, Some(Quirk::ReasoningField | Quirk::ReasoningDetails | Quirk::ReasoningBoth)) {
        to["reasoning"] = json!(text);
    }
    if said.is(Quirk::ReasoningDetails) {
        let mut detail = json!({"type": "reasoning.text", "text": text, "format": "anthropic-claude-v1", "index": 0});
        if last {
            detail["signature"] = json!(crate::content::SIGNATURE);
        }
        to["reasoning_details"] = json!([detail]);
    }
}

/// Adds the reason to finish, in the vendor's words.
fn finish(said: &Said<'_>, choice: &mut Value) {
    let Ending { reason, sequence, .. } = &said.ending;
    let reason = match reason.as_deref() {
        Some("tool_use") if said.is(Quirk::ToolsFinishStop) => Some("stop"),
        _ if said.is(Quirk::ModelLength) => Some("model_length"),
        Some("end_turn" | "stop_sequence" | "refusal") => Some("stop"),
        Some("tool_use") => Some("tool_calls"),
        Some("max_tokens") => Some("length"),
        other => other,
    };
    choice["finish_reason"] = json!(reason.filter(|_| !said.is(Quirk::NoFinish)));
    if said.is(Quirk::MatchedStop) {
        choice["stop_reason"] = json!(sequence);
        choice["matched_stop"] = json!(sequence);
    }
}

fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, cache_write, output, thinking } = *usage;
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output),
        "prompt_tokens_details": {"cached_tokens": cache_read, "cache_write_tokens": cache_write, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thinking, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

fn is_call(block: &Block) -> bool {
    matches!(block, Block::ToolUse { .. })
}

fn call(block: &Block) -> Option<Call<'_>> {
    match block {
        Block::ToolUse { id, name, input } => Some(Call { id, name, input }),
        _ => None,
    }
}
