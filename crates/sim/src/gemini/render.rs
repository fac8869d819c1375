//! Answers, whole and in chunks. A chunk is a whole response whose parts are increments.

use serde_json::{Value, json};

use super::request::Request;
use crate::content::{Block, SIGNATURE};
use crate::events::{Events, Writer};
use crate::quirk::Quirk;
use crate::said::{Said, Usage};

pub(super) fn whole(request: &Request, said: &Said<'_>) -> Value {
    let mut parts = Parts::new(request, said);
    for block in said.blocks().iter() {
        match block {
            Block::Text(pieces) | Block::Cited { pieces, .. } => parts.text(&pieces.concat()),
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => parts.thought(&pieces.concat()),
            Block::RedactedThinking { .. } => parts.signs = true,
            Block::ToolUse { id, name, input } => parts.call(id, name, input),
        }
    }
    let parts = parts.signed();
    let mut candidate = json!({"index": 0});
    // A turn that was used up by thinking has no content at all.
    if !parts.is_empty() {
        candidate["content"] = json!({"role": "model", "parts": parts});
    }
    finish(said, &mut candidate);
    let mut answer = frame(said);
    answer["candidates"] = json!([candidate]);
    if !said.is(Quirk::NoUsage) {
        answer["usageMetadata"] = usage(&said.usage());
    }
    answer
}

/// No answer at all: the prompt was refused.
pub(super) fn blocked(said: &Said<'_>) -> Value {
    let mut answer = frame(said);
    answer["promptFeedback"] = json!({
        "blockReason": "PROHIBITED_CONTENT",
        "safetyRatings": [{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH"}],
    });
    answer["usageMetadata"] = json!({"promptTokenCount": said.usage().input, "totalTokenCount": said.usage().input});
    answer
}

pub(super) fn events(request: &Request, said: &Said<'_>) -> Events {
    let all = said.usage();
    let mut out =
        Chunks { said, sse: request.sse, out: Writer::default(), so_far: Usage { output: 0, thinking: 0, ..all } };
    let mut parts = Parts::new(request, said);
    for block in said.blocks().iter() {
        let from = parts.list.len();
        match block {
            Block::Text(pieces) | Block::Cited { pieces, .. } => pieces.iter().for_each(|piece| parts.text(piece)),
            Block::Search { .. } | Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => {
                pieces.iter().for_each(|piece| parts.thought(piece));
                out.count(block);
            }
            Block::RedactedThinking { .. } => {
                parts.signs = true;
                out.count(block);
            }
            Block::ToolUse { id, name, input } => parts.call(id, name, input),
        }
        parts.weights.resize(parts.list.len(), 0);
        if !matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. }) {
            let (tokens, _) = block.tokens();
            let share = tokens / (parts.list.len() - from).max(1) as u64;
            parts.weights[from..].fill(share);
        }
    }
    let weights = std::mem::take(&mut parts.weights);
    let mut list = parts.signed();
    let last = match list.last() {
        Some(part) if list.len() > weights.len() => Some(part.clone()),
        _ => None,
    };
    list.truncate(weights.len());
    if said.is(Quirk::CallsInOneChunk) {
        out.so_far.output = all.output;
        out.chunk(&list, false);
    } else {
        for (part, weight) in list.iter().zip(weights) {
            out.so_far.output += weight;
            out.chunk(std::slice::from_ref(part), false);
        }
    }
    out.so_far = all;
    out.chunk(&[last.unwrap_or_else(|| json!({"text": ""}))], true);
    out.out.events()
}

struct Chunks<'s> {
    said: &'s Said<'s>,
    sse: bool,
    out: Writer,
    so_far: Usage,
}

impl Chunks<'_> {
    fn count(&mut self, block: &Block) {
        let (tokens, thinking) = block.tokens();
        self.so_far.output += tokens;
        self.so_far.thinking += thinking;
    }

    fn chunk(&mut self, parts: &[Value], last: bool) {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        if last {
            finish(self.said, &mut candidate);
            if self.said.is(Quirk::NoParts) {
                candidate = json!({"index": 0, "finishReason": candidate["finishReason"]});
            }
        }
        let mut chunk = frame(self.said);
        chunk["candidates"] = json!([candidate]);
        if !self.said.is(Quirk::NoUsage) {
            chunk["usageMetadata"] = usage(&self.so_far);
        }
        if self.sse {
            return self.out.data(&chunk);
        }
        let first = self.out.is_empty();
        self.out.write(|out| {
            out.extend_from_slice(if first { b"[" } else { b",\r\n" });
            out.extend_from_slice(chunk.to_string().as_bytes());
            out.extend_from_slice(if last { b"]" } else { b"" });
        });
    }
}

/// Parts under way, and where their signature goes.
struct Parts<'s> {
    said: &'s Said<'s>,
    include_thoughts: bool,
    list: Vec<Value>,
    /// Tokens of each part.
    weights: Vec<u64>,
    calls: usize,
    signs: bool,
}

impl<'s> Parts<'s> {
    fn new(request: &Request, said: &'s Said<'s>) -> Self {
        Self {
            said,
            include_thoughts: request.include_thoughts,
            list: Vec::new(),
            weights: Vec::new(),
            calls: 0,
            signs: said.is(Quirk::EmptyTextSignature),
        }
    }

    fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.list.push(json!({"text": text}));
        }
    }

    /// Thoughts are only shown to those who ask; the signature is there either way.
    fn thought(&mut self, text: &str) {
        self.signs = true;
        if self.include_thoughts {
            self.list.push(json!({"text": text, "thought": true}));
        }
    }

    fn call(&mut self, id: &str, name: &str, input: &str) {
        let mut call = json!({"name": name});
        if !self.said.is(Quirk::NoCallIds) {
            call["id"] = json!(id);
        }
        if !self.said.is(Quirk::NoArguments) {
            call["args"] = serde_json::from_str(input).expect("an input is JSON");
        }
        self.list.push(json!({"functionCall": call}));
        self.calls += 1;
    }

    /// The parts with the signature: on the first call of a turn that has calls, else on the last text.
    fn signed(mut self) -> Vec<Value> {
        if self.said.is(Quirk::EmptyTextSignature) {
            self.list.push(json!({"text": "", "thoughtSignature": SIGNATURE}));
            return self.list;
        }
        let place = match self.calls {
            0 if self.signs => self.list.iter_mut().rfind(|part| part.get("thought").is_none()),
            0 => None,
            _ => self.list.iter_mut().find(|part| part.get("functionCall").is_some()),
        };
        if let Some(part) = place {
            part["thoughtSignature"] = json!(SIGNATURE);
        }
        self.list
    }
}

fn frame(said: &Said<'_>) -> Value {
    json!({"modelVersion": said.model, "responseId": format!("sim-{}", said.id)})
}

/// Adds the reason to finish, in the vendor's words.
fn finish(said: &Said<'_>, candidate: &mut Value) {
    let reason = match said.ending.reason.as_deref() {
        _ if said.is(Quirk::NoFinish) => return,
        None => return,
        Some("end_turn" | "stop_sequence" | "tool_use") => "STOP",
        Some("max_tokens") => "MAX_TOKENS",
        Some("refusal") => "SAFETY",
        Some(other) => other,
    };
    candidate["finishReason"] = json!(reason);
    ground(said, candidate);
    if said.ending.refused {
        candidate["finishMessage"] = json!("Simulated refusal.");
        candidate["safetyRatings"] =
            json!([{"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH", "blocked": true}]);
    }
}

/// Adds what an answer rests on, which comes with its end. Places count bytes of the text.
fn ground(said: &Said<'_>, candidate: &mut Value) {
    let (mut queries, mut chunks, mut supports): (Vec<Value>, Vec<Value>, Vec<Value>) = Default::default();
    for block in said.blocks().iter() {
        match block {
            Block::Search { query, .. } => queries.push(json!(query)),
            Block::Found { found, .. } => {
                chunks.extend(found.iter().map(|(uri, title)| json!({"web": {"uri": uri, "title": title}})));
            }
            Block::Cited { pieces, .. } => {
                let text = pieces.concat();
                supports.push(json!({
                    "segment": {"endIndex": text.len(), "text": text}, "groundingChunkIndices": [0],
                }));
            }
            _ => {}
        }
    }
    if !queries.is_empty() {
        candidate["groundingMetadata"] = json!({
            "webSearchQueries": queries, "groundingChunks": chunks, "groundingSupports": supports,
            "searchEntryPoint": {"renderedContent": "<div></div>"},
        });
    }
}

/// Zero counts are left out, as protobuf does.
fn usage(usage: &Usage) -> Value {
    let Usage { input, cache_read, output, thinking, .. } = *usage;
    let candidates = output.saturating_sub(thinking);
    let mut counts = json!({
        "promptTokenCount": input, "totalTokenCount": input.saturating_add(output),
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": input}],
    });
    for (name, count) in [
        ("cachedContentTokenCount", cache_read),
        ("candidatesTokenCount", candidates),
        ("thoughtsTokenCount", thinking),
    ] {
        if count > 0 {
            counts[name] = json!(count);
        }
    }
    counts
}
