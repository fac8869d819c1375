//! The events of a streamed answer: every item is opened, filled and closed, and all of it is said again at
//! the end.

use serde_json::{Value, json};

use super::render::{annotation, arguments, blocks, failed, finish, id, item, part, response, status, summary};
use super::request::Request;
use crate::content::{Block, json_pieces};
use crate::events::{Events, Writer};
use crate::quirk::Quirk;
use crate::said::Said;

pub(super) fn events(request: &Request, said: &Said<'_>) -> Events {
    let mut out = Out { request, said, out: Writer::default(), number: 0 };
    out.begin();
    let blocks = blocks(said);
    let mut at = 0;
    for run in blocks.chunk_by(|a, b| is_call(a) && is_call(b)) {
        match &run[0] {
            Block::Text(pieces) | Block::Cited { pieces, .. } => out.message(at, &run[0], pieces),
            Block::Search { .. } => out.search(at, &run[0]),
            Block::Found { .. } => {}
            Block::Thinking { pieces, .. } => out.reasoning(at, &run[0], pieces),
            Block::RedactedThinking { .. } => out.reasoning(at, &run[0], &[]),
            Block::ToolUse { .. } => out.calls(at, run),
        }
        at += run.len();
    }
    let mut response = response(request, said, status(said));
    if !said.is(Quirk::CompletedWithoutOutput) {
        let output = blocks.iter().enumerate().map(|(at, block)| item(request, said, at, block));
        response["output"] = output.collect::<Vec<_>>().into();
    }
    finish(said, &mut response);
    let name = if status(said) == "completed" { "response.completed" } else { "response.incomplete" };
    out.event(name, json!({"response": response}));
    out.out.events()
}

/// An answer that fails after its first words.
pub(super) fn failing(request: &Request, said: &Said<'_>) -> Events {
    let mut out = Out { request, said, out: Writer::default(), number: 0 };
    for event in events(request, said).each().iter().take(6) {
        out.out.write(|bytes| bytes.extend_from_slice(event));
        out.number += 1;
    }
    out.event("response.failed", json!({"response": failed(request, said)}));
    out.out.events()
}

struct Out<'s> {
    request: &'s Request,
    said: &'s Said<'s>,
    out: Writer,
    number: usize,
}

impl Out<'_> {
    /// The name stands in the data too, and events are numbered.
    fn event(&mut self, name: &str, mut data: Value) {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.number);
        self.number += 1;
        self.out.named(name, &data);
    }

    fn begin(&mut self) {
        let response = response(self.request, self.said, "in_progress");
        self.event("response.created", json!({"response": response}));
        self.event("response.in_progress", json!({"response": response}));
    }

    fn added(&mut self, at: usize, item: Value) {
        self.event("response.output_item.added", json!({"output_index": at, "item": item}));
    }

    fn done(&mut self, at: usize, block: &Block) {
        let item = item(self.request, self.said, at, block);
        self.event("response.output_item.done", json!({"output_index": at, "item": item}));
    }

    /// A delta, with the noise that hides its length from those who watch the wire.
    fn delta(&mut self, name: &str, mut place: Value, delta: &str) {
        place["delta"] = json!(delta);
        if self.request.obfuscation {
            place["obfuscation"] = json!("sim");
        }
        self.event(name, place);
    }

    fn message(&mut self, at: usize, block: &Block, pieces: &[String]) {
        let id = id(self.said, at, block);
        self.added(
            at,
            json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}),
        );
        if !self.said.is(Quirk::TextOnlyDone) {
            let text = pieces.concat();
            let place = json!({"item_id": id, "output_index": at, "content_index": 0});
            let with = |name: &str, value: Value| {
                let mut data = place.clone();
                data[name] = value;
                data
            };
            self.event("response.content_part.added", with("part", part(self.said, "")));
            let (kind, member) = match self.said.ending.refused {
                true => ("refusal", "refusal"),
                false => ("output_text", "text"),
            };
            for piece in pieces {
                self.delta(&format!("response.{kind}.delta"), place.clone(), piece);
            }
            if let Block::Cited { url, title, .. } = block {
                let mut data = with("annotation", annotation(&text, url, title));
                data["annotation_index"] = json!(0);
                self.event("response.output_text.annotation.added", data);
            }
            self.event(&format!("response.{kind}.done"), with(member, json!(text)));
            self.event("response.content_part.done", with("part", part(self.said, &text)));
        }
        self.done(at, block);
    }

    /// A search is told when it begins and when it is over.
    fn search(&mut self, at: usize, block: &Block) {
        let id = id(self.said, at, block);
        self.added(at, json!({"id": id, "type": "web_search_call", "status": "in_progress"}));
        for step in ["in_progress", "searching", "completed"] {
            self.event(&format!("response.web_search_call.{step}"), json!({"item_id": id, "output_index": at}));
        }
        self.done(at, block);
    }

    fn reasoning(&mut self, at: usize, block: &Block, pieces: &[String]) {
        let id = id(self.said, at, block);
        self.added(at, json!({"id": id, "type": "reasoning", "summary": []}));
        if self.request.summary && !pieces.is_empty() {
            let text = pieces.concat();
            let place = json!({"item_id": id, "output_index": at, "summary_index": 0});
            let with = |name: &str, value: Value| {
                let mut data = place.clone();
                data[name] = value;
                data
            };
            self.event("response.reasoning_summary_part.added", with("part", summary("")));
            for piece in pieces {
                self.delta("response.reasoning_summary_text.delta", place.clone(), piece);
            }
            self.event("response.reasoning_summary_text.done", with("text", json!(text)));
            self.event("response.reasoning_summary_part.done", with("part", summary(&text)));
        }
        self.done(at, block);
    }

    /// A run of calls, one after the other unless the quirk mixes them.
    fn calls(&mut self, first: usize, run: &[Block]) {
        let mut calls: Vec<_> = run.iter().enumerate().map(|(at, block)| self.call(first + at, block)).collect();
        if !self.said.is(Quirk::InterleavedCalls) {
            for call in &calls {
                self.open(call);
                call.pieces.iter().for_each(|piece| self.fragment(call, piece));
                self.close(call);
            }
            return;
        }
        calls.iter().for_each(|call| self.open(call));
        let longest = calls.iter().map(|call| call.pieces.len()).max().unwrap_or(0);
        for round in 0..longest {
            // The last call comes first: order of arrival is not order of output.
            for call in calls.iter().rev() {
                if let Some(piece) = call.pieces.get(round) {
                    self.fragment(call, piece);
                }
            }
        }
        calls.drain(..).for_each(|call| self.close(&call));
    }

    fn call<'b>(&self, at: usize, block: &'b Block) -> Call<'b> {
        let (call_id, name, input) = match block {
            Block::ToolUse { id, name, input } => (id.as_str(), name.as_str(), input.as_str()),
            _ => unreachable!("a run of calls holds nothing else"),
        };
        let arguments = arguments(self.request, self.said, name, input);
        let pieces: Vec<_> = json_pieces(&arguments).into_iter().skip(1).map(str::to_owned).collect();
        let (start, pieces) = match self.said.quirk {
            Some(Quirk::ArgumentsOnlyDone) => (String::new(), Vec::new()),
            Some(Quirk::ArgumentsInStart) => {
                (pieces.first().cloned().unwrap_or_default(), pieces.get(1..).unwrap_or_default().to_vec())
            }
            _ => (String::new(), pieces),
        };
        Call { at, id: id(self.said, at, block), block, call_id, name, arguments, start, pieces }
    }

    fn open(&mut self, call: &Call<'_>) {
        let item = json!({
            "id": call.id, "type": "function_call", "status": "in_progress", "call_id": call.call_id,
            "name": call.name, "arguments": call.start,
        });
        self.added(call.at, item);
    }

    fn fragment(&mut self, call: &Call<'_>, piece: &str) {
        let place = json!({"item_id": call.id, "output_index": call.at});
        self.delta("response.function_call_arguments.delta", place, piece);
    }

    fn close(&mut self, call: &Call<'_>) {
        self.event(
            "response.function_call_arguments.done",
            json!({"item_id": call.id, "output_index": call.at, "name": call.name, "arguments": call.arguments}),
        );
        self.done(call.at, call.block);
    }
}

struct Call<'b> {
    at: usize,
    id: String,
    block: &'b Block,
    call_id: &'b str,
    name: &'b str,
    arguments: String,
    /// What the event that opens the call has of the arguments.
    start: String,
    pieces: Vec<String>,
}

fn is_call(block: &Block) -> bool {
    matches!(block, Block::ToolUse { .. })
}
