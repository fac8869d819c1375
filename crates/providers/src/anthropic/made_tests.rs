use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::envelope::{self, Brand, Purpose};

use super::super::edit::{Rules, edited};
use crate::translate::Card;

/// What goes out of a body, and the warnings.
fn sent(body: &Value, card: &Card, is_made: bool) -> (Value, Vec<String>) {
    let bytes = Bytes::from(body.to_string());
    let envelope = envelope::read(&bytes, Brand { name: "tidegate", aliases: &[] }, Purpose::Generate).unwrap();
    let rules = Rules { is_made, ..Rules::plain(card, envelope.max_tokens) };
    let edited = edited(&bytes, envelope.traits, &rules);
    let body = edited.body.map_or_else(|| body.clone(), |body| serde_json::from_slice(&body).unwrap());
    (body, edited.warnings)
}

fn with(more: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 9_000, "messages": [{"role": "user", "content": "x"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn nothing_is_sampled_otherwise_while_it_thinks() {
    let thinking = json!({"type": "adaptive"});
    for (more, kept, warnings) in [
        (json!({"temperature": 0}), json!({}), vec!["dropped:temperature"]),
        (json!({"temperature": 1}), json!({"temperature": 1}), vec![]),
        (json!({"top_p": 0.5}), json!({}), vec!["dropped:top_p"]),
        (json!({"top_p": 0.99}), json!({"top_p": 0.99}), vec![]),
        (json!({"top_k": 3}), json!({}), vec!["dropped:top_k"]),
    ] {
        let mut body = with(more.clone());
        assert_eq!(sent(&body, &Card::default(), true), (body.clone(), vec![]), "it does not think");
        body["thinking"] = thinking.clone();
        let mut wanted = with(kept);
        wanted["thinking"] = thinking.clone();
        assert_eq!(sent(&body, &Card::default(), true), (wanted, warnings.iter().map(ToString::to_string).collect()));
        // What a client wrote in Claude's own format is for Claude to judge, and others have other rules.
        assert_eq!(sent(&body, &Card::default(), false), (body.clone(), vec![]));
        assert_eq!(sent(&body, &Card { foreign: true, ..Card::default() }, true), (body.clone(), vec![]));
    }
}

#[test]
fn who_must_call_a_tool_does_not_think() {
    let tools = json!([{"name": "f", "input_schema": {"type": "object", "properties": {}}}]);
    let body = with(
        json!({"thinking": {"type": "adaptive"}, "temperature": 0, "tools": tools, "tool_choice": {"type": "any"}}),
    );
    let (made, warnings) = sent(&body, &Card::default(), true);
    assert_eq!((&made["thinking"], &made["temperature"]), (&json!({"type": "disabled"}), &json!(0)));
    assert_eq!(warnings, ["disabled:thinking"]);
    let mut free = body;
    free["tool_choice"] = json!({"type": "auto"});
    assert_eq!(sent(&free, &Card::default(), true).0["thinking"], json!({"type": "adaptive"}));
}

#[test]
fn blank_stop_sequences_are_left_out() {
    let (made, warnings) = sent(&with(json!({"stop_sequences": ["\n\n", "END"]})), &Card::default(), true);
    assert_eq!((&made["stop_sequences"], &*warnings), (&json!(["END"]), &["dropped:stop_sequences".to_owned()][..]));
    let (made, _) = sent(&with(json!({"stop_sequences": [" "]})), &Card::default(), true);
    assert_eq!(made.get("stop_sequences"), None);
}

#[test]
fn the_first_words_are_a_persons() {
    let turns = json!([{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "hi"}]);
    let (made, _) = sent(&with(json!({"messages": turns})), &Card::default(), true);
    assert_eq!(made["messages"][0], json!({"role": "user", "content": "."}));
    assert_eq!((&made["messages"][1], &made["messages"][2]), (&turns[0], &turns[1]));
}

#[test]
fn bounds_of_a_schema_are_told_in_words() {
    let format = |number: Value| {
        let schema = json!({"type": "object", "properties": {"n": number}, "additionalProperties": false});
        json!({"effort": "low", "format": {"type": "json_schema", "schema": schema}})
    };
    let bounded = with(json!({"output_config": format(json!({"type": "integer", "minimum": 0}))}));
    let (made, warnings) = sent(&bounded, &Card { effort: true, ..Card::default() }, true);
    assert_eq!(made["output_config"], format(json!({"type": "integer", "description": "{minimum: 0}"})));
    assert_eq!(warnings, ["changed:output_config.format"]);
}

#[test]
fn bounds_of_a_strict_tool_are_told_in_words() {
    let tool = |name: &str, strict: bool, number: Value| {
        let schema =
            json!({"type": "object", "properties": {"n": number}, "required": ["n"], "additionalProperties": false});
        json!({"name": name, "input_schema": schema, "strict": strict})
    };
    let (bounded, told) =
        (json!({"type": "integer", "minimum": 0}), json!({"type": "integer", "description": "{minimum: 0}"}));
    let body = with(
        json!({"tools": [tool("f", true, bounded.clone()), tool("g", false, bounded.clone()), tool("h", true, json!({"type": "integer"}))]}),
    );
    let (made, warnings) = sent(&body, &Card::default(), true);
    assert_eq!(
        made["tools"],
        json!([tool("f", true, told), tool("g", false, bounded), tool("h", true, json!({"type": "integer"}))])
    );
    assert_eq!(warnings, ["changed:tools.input_schema"]);
    assert_eq!(sent(&body, &Card::default(), false), (body.clone(), vec![]), "for Claude to judge");
    // A map stays one, and its tool is called as well as it can be.
    let map = tool("f", true, json!({"type": "object", "additionalProperties": {"type": "integer"}}));
    let (made, warnings) = sent(&with(json!({"tools": [map]})), &Card::default(), true);
    assert_eq!(made["tools"][0].get("strict"), None);
    assert_eq!(
        (&made["tools"][0]["input_schema"], &*warnings),
        (&map["input_schema"], &["dropped:strict".to_owned()][..])
    );
}
