//! One turn of a loop: what the model answered, whether it came whole or in pieces.

use serde_json::{Map, Value};

/// A call that the model made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// An answer of the model, in the Messages format.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Turn {
    /// Everything else of the answer: `id`, `model`, `role` and so on.
    pub head: Map<String, Value>,
    pub blocks: Vec<Value>,
    pub usage: Map<String, Value>,
    /// `stop_reason`, `stop_sequence` and what else tells how it ended.
    pub ending: Map<String, Value>,
    pub metadata: Option<Value>,
}

/// Members that tell how an answer ended.
const ENDINGS: [&str; 5] = ["stop_reason", "stop_sequence", "stop_details", "container", "context_management"];

impl Turn {
    /// `metadata`: the name of the member that tells how it was routed.
    pub fn whole(body: &[u8], metadata: &str) -> Option<Self> {
        let mut head: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let Value::Array(blocks) = head.remove("content")? else { return None };
        let usage = object(head.remove("usage"));
        let ending = ENDINGS.iter().filter_map(|name| Some(((*name).to_owned(), head.remove(*name)?))).collect();
        let metadata = head.remove(metadata);
        Some(Self { head, blocks, usage, ending, metadata })
    }

    pub fn reason(&self) -> &str {
        self.ending.get("stop_reason").and_then(Value::as_str).unwrap_or("end_turn")
    }

    pub fn model(&self) -> Option<&str> {
        self.head.get("model").and_then(Value::as_str)
    }

    /// The calls of the turn, in order.
    pub fn calls(&self) -> Vec<Call> {
        let text = |block: &Value, name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let calls = self.blocks.iter().filter(|block| is(block, "tool_use"));
        calls
            .map(|block| Call {
                id: text(block, "id"),
                name: text(block, "name"),
                input: block.get("input").cloned().unwrap_or_else(|| Value::Object(Map::new())),
            })
            .collect()
    }
}

pub(super) fn is(block: &Value, kind: &str) -> bool {
    block.get("type").and_then(Value::as_str) == Some(kind)
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// An answer that is being put together from the events of a stream.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    turn: Turn,
    /// The input of each block that has one, as it comes.
    inputs: Vec<String>,
    /// The block that is being written.
    open: Option<usize>,
}

impl Assembly {
    /// Takes an event over; false when it is no part of the answer.
    pub fn take(&mut self, kind: &str, event: &Value, metadata: &str) -> bool {
        let index = || event.get("index").and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        match kind {
            "message_start" => {
                let mut head = object(event.get("message").cloned());
                head.remove("content");
                self.turn.usage = object(head.remove("usage"));
                for name in ENDINGS {
                    // What is known at the beginning already is not always told again at the end.
                    if let Some(told) = head.remove(name).filter(|told| !told.is_null()) {
                        self.turn.ending.insert(name.to_owned(), told);
                    }
                }
                self.turn.head = head;
            }
            "content_block_start" => {
                let Some(block) = event.get("content_block") else { return false };
                self.open = Some(self.turn.blocks.len());
                self.turn.blocks.push(block.clone());
                self.inputs.push(String::new());
            }
            "content_block_delta" => {
                let (Some(index), Some(delta)) = (index(), event.get("delta")) else { return false };
                self.add(index, delta);
            }
            "content_block_stop" => {
                self.open = None;
                if let Some(index) = index() {
                    self.close(index);
                }
            }
            "message_delta" => {
                if let Some(usage) = event.get("usage").and_then(Value::as_object) {
                    let told = usage.iter().filter(|(_, value)| !value.is_null());
                    self.turn.usage.extend(told.map(|(name, value)| (name.clone(), value.clone())));
                }
                let known = self.turn.ending.get("container").cloned();
                self.turn.ending.extend(object(event.get("delta").cloned()));
                if let (Some(known), Some(Value::Null)) = (known, self.turn.ending.get("container")) {
                    self.turn.ending.insert("container".to_owned(), known);
                }
                let edits =
                    event.get("context_management").map(|edits| ("context_management".to_owned(), edits.clone()));
                self.turn.ending.extend(edits);
            }
            "message_stop" => self.turn.metadata = event.get(metadata).cloned(),
            _ => return false,
        }
        true
    }

    fn add(&mut self, index: usize, delta: &Value) {
        let (Some(block), Some(input)) = (self.turn.blocks.get_mut(index), self.inputs.get_mut(index)) else { return };
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut append = |name: &str| {
            if let Some(Value::String(known)) = block.get_mut(name) {
                known.push_str(text(name));
            } else {
                block[name] = Value::String(text(name).to_owned());
            }
        };
        match delta.get("type").and_then(Value::as_str) {
            Some("text_delta") => append("text"),
            Some("thinking_delta") => append("thinking"),
            Some("signature_delta") => append("signature"),
            Some("input_json_delta") => input.push_str(text("partial_json")),
            Some("citations_delta") => {
                let Some(citation) = delta.get("citation") else { return };
                match block.get_mut("citations") {
                    Some(Value::Array(known)) => known.push(citation.clone()),
                    _ => block["citations"] = Value::Array(vec![citation.clone()]),
                }
            }
            _ => {}
        }
    }

    fn close(&mut self, index: usize) {
        let (Some(block), Some(input)) = (self.turn.blocks.get_mut(index), self.inputs.get_mut(index)) else { return };
        let input = std::mem::take(input);
        if input.trim().is_empty() {
            return;
        }
        // What was cut short is kept inside of an object: upstreams take nothing else.
        let read = serde_json::from_str(&input).ok().filter(Value::is_object);
        block["input"] = read.unwrap_or_else(|| serde_json::json!({"_raw": input}));
    }

    /// The block with this place, as far as it has come.
    pub fn block(&self, index: usize) -> Option<&Value> {
        self.turn.blocks.get(index)
    }

    pub fn open(&self) -> Option<usize> {
        self.open
    }

    /// Whether it has said who answers.
    pub fn has_begun(&self) -> bool {
        !self.turn.head.is_empty()
    }

    pub fn finish(self) -> Turn {
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The published order of a stream with thinking, text and a call.
    #[test]
    fn a_stream_puts_together_what_a_whole_answer_would_have_said() {
        let events = [
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "a/m",
                "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "See "}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "it."}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"url": "u"}}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t1", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\"z\":1,"}}),
            json!({"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "\"a\":2}"}}),
            json!({"type": "content_block_stop", "index": 2}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 7, "x": null}}),
            json!({"type": "message_stop", "m": {"attempt": 1}}),
        ];
        let mut assembly = Assembly::default();
        for event in &events {
            assert!(assembly.take(event["type"].as_str().unwrap(), event, "m"), "{event}");
        }
        let whole = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "a/m",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "See it.", "citations": [{"url": "u"}]},
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": 2}}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 9, "output_tokens": 7},
            "m": {"attempt": 1}});
        let turn = assembly.finish();
        assert_eq!(turn, Turn::whole(whole.to_string().as_bytes(), "m").unwrap());
        assert_eq!(turn.reason(), "tool_use");
        let input = json!({"z": 1, "a": 2});
        assert_eq!(turn.calls(), [Call { id: "t1".into(), name: "f".into(), input }]);
        assert_eq!(turn.calls()[0].input.to_string(), r#"{"z":1,"a":2}"#, "members stay in order");
    }

    #[test]
    fn a_container_of_the_beginning_is_one_of_the_end() {
        let mut assembly = Assembly::default();
        let start = json!({"message": {"container": {"id": "c"}, "stop_reason": null, "stop_details": null}});
        assembly.take("message_start", &start, "m");
        let delta = json!({"delta": {"stop_reason": "tool_use", "container": null}});
        assembly.take("message_delta", &delta, "m");
        let ending = assembly.finish().ending;
        assert_eq!(Value::Object(ending), json!({"container": {"id": "c"}, "stop_reason": "tool_use"}));
    }

    #[test]
    fn an_input_that_was_cut_short_is_kept() {
        let mut assembly = Assembly::default();
        let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}});
        assembly.take("content_block_start", &block, "m");
        let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}});
        assembly.take("content_block_delta", &delta, "m");
        assembly.take("content_block_stop", &json!({"type": "content_block_stop", "index": 0}), "m");
        assert_eq!(assembly.block(0).unwrap()["input"], json!({"_raw": "{\"a\":"}));
    }
}
