//! An answer that was given before and is given once more: under another id, and with nothing used for it.

use bytes::Bytes;

use super::object::{Name, Part, Usage, Used};
use super::{Delta, Message, text};
use crate::json::{self, Kind};
use crate::splice::Splice;

/// What an answer costs for which nobody was called.
const DETAILS: &str =
    r#"{"upstream_inference_cost":null,"upstream_inference_prompt_cost":0,"upstream_inference_completions_cost":0}"#;

/// A whole answer, or the message of a `message_start`, without the member that carries routing metadata.
pub fn without(body: &Bytes, member: &str) -> Bytes {
    let Some(whole) = std::str::from_utf8(body).ok() else { return body.clone() };
    let Some(value) = Part::whole(whole).and_then(|object| object.find(member)) else {
        return body.clone();
    };
    let at = json::span(whole, value.get());
    let mut splice = Splice::default();
    // We wrote it behind all others; where an upstream wrote one itself only its value was ours.
    match whole[..at.start].strip_suffix(&format!(",\"{member}\":")) {
        Some(before) => splice.cut(before.len()..at.end),
        None => splice.replace(at, b"null"),
    }
    splice.apply(body)
}

impl Message<'_> {
    pub fn model(&self) -> Option<String> {
        self.object.get(Name::Model).and_then(text)
    }

    pub fn provider(&self) -> Option<String> {
        self.object.get(Name::Provider).and_then(text)
    }

    /// The same answer under another id and with nothing used.
    pub fn replayed(self, id: &str) -> Bytes {
        self.replay(id, true)
    }

    /// The same of the event that it stands in, which begins a stream. What that costs is said at its end.
    pub fn started_again(self, id: &str) -> Bytes {
        self.replay(id, false)
    }

    fn replay(self, id: &str, is_charged: bool) -> Bytes {
        let Self { mut object, usage, .. } = self;
        let mut splice = Splice::default();
        object.set_by(&mut splice, Name::Id, |out| json::quote(id, out));
        if let Some(mut usage) = usage {
            unused(&mut usage, &mut splice, is_charged);
        }
        splice.apply(object.whole.as_bytes())
    }
}

impl Delta<'_> {
    /// The event with nothing used.
    pub fn replayed(self) -> Bytes {
        let mut splice = Splice::default();
        if let Some(mut usage) = self.usage {
            unused(&mut usage, &mut splice, true);
        }
        splice.apply(self.event.whole.as_bytes())
    }
}

/// Sets every count to nothing, also those that we do not know: clients add them up. How it was served stays.
fn unused(usage: &mut Usage<'_>, splice: &mut Splice, is_charged: bool) {
    const OURS: [(Used, &str); 3] = [(Used::Cost, "0"), (Used::CostDetails, DETAILS), (Used::IsByok, "false")];
    const COUNTS: [(Used, &str); 2] = [(Used::Input, "0"), (Used::Output, "0")];
    let is_set = |name: &Used| OURS.iter().chain(&COUNTS).any(|(known, _)| known == name);
    let known = usage.known().filter(|(name, _)| !is_set(name)).map(|(_, value)| value);
    for value in known.chain(usage.strange()) {
        let nothing: &[u8] = match json::kind(value) {
            Kind::Number => b"0",
            // Parts of a count.
            Kind::Object => b"null",
            // Counts of turns, of which there were none: clients read a list wherever there is one.
            Kind::Array => b"[]",
            Kind::Null | Kind::Boolean | Kind::String => continue,
        };
        splice.replace(json::span(usage.whole, value.get()), nothing);
    }
    let ours = OURS.iter().filter(|_| is_charged);
    for (name, nothing) in COUNTS.iter().chain(ours) {
        usage.set(splice, *name, nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;
    use serde_json::{Value, json};

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn an_answer_keeps_all_but_its_id_and_what_it_used() {
        let body = br#"{"id":"msg_1","future":{"n":1.0},"model":"v/m","provider":"P","content":[{"type":"tool_use","input":{"n":5}}],"stop_reason":"tool_use","usage":{"input_tokens":14,"output_tokens":9,"cache_read_input_tokens":100,"cache_creation":{"ephemeral_1h_input_tokens":3},"iterations":[{"input_tokens":7}],"server_tool_use":null,"service_tier":"priority","cost":0.1,"cost_details":{"upstream_inference_cost":7},"is_byok":true}}"#;
        let message = Message::read(body).unwrap();
        assert_eq!((message.model().as_deref(), message.provider().as_deref()), (Some("v/m"), Some("P")));
        let expected = json!({
            "id": "msg_2", "future": {"n": 1.0}, "model": "v/m", "provider": "P",
            "content": [{"type": "tool_use", "input": {"n": 5}}], "stop_reason": "tool_use",
            "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation": null,
                "iterations": [], "server_tool_use": null, "service_tier": "priority", "cost": 0,
                "cost_details": {"upstream_inference_cost": null, "upstream_inference_prompt_cost": 0,
                    "upstream_inference_completions_cost": 0}, "is_byok": false},
        });
        assert_eq!(value(&message.replayed("msg_2")), expected);
    }

    #[test]
    fn the_events_of_a_stream_say_that_nothing_was_used() {
        let start = br#"{"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":14,"output_tokens":1}}}"#;
        let expected = json!({"type": "message_start", "message": {"id": "msg_2", "content": [],
            "usage": {"input_tokens": 0, "output_tokens": 0}}});
        assert_eq!(value(&Event::read(start).unwrap().message().unwrap().started_again("msg_2")), expected);
        let delta = br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,"output_tokens":9,"cost":null,"cost_details":null}}"#;
        let expected = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 0, "output_tokens": 0, "cost": 0, "cost_details": {
                "upstream_inference_cost": null, "upstream_inference_prompt_cost": 0,
                "upstream_inference_completions_cost": 0}, "is_byok": false}});
        assert_eq!(value(&Event::read(delta).unwrap().delta().replayed()), expected);
    }

    #[test]
    fn routing_metadata_is_taken_out() {
        for (body, expected) in [
            (r#"{"id":"m","usage":{},"t_metadata":{"a":[1]}}"#, r#"{"id":"m","usage":{}}"#),
            (r#"{"t_metadata": {"a":1},"id":"m"}"#, r#"{"t_metadata": null,"id":"m"}"#),
            (r#"{"id":"m"}"#, r#"{"id":"m"}"#),
        ] {
            assert_eq!(without(&Bytes::from_static(body.as_bytes()), "t_metadata"), expected);
        }
    }
}
