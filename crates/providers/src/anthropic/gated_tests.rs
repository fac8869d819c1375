use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::envelope::{self, Brand, Purpose};

use super::super::beta::{self, Withheld};
use super::super::edit::{Rules, edited};
use crate::platform::Betas;
use crate::translate::Card;

/// What goes out of a body to a platform that takes these betas, and the warnings.
fn sent(body: &Value, card: &Card, policy: Betas) -> (Value, Vec<String>) {
    let bytes = Bytes::from(body.to_string());
    let envelope = envelope::read(&bytes, Brand { name: "tidegate", aliases: &[] }, Purpose::Generate)
        .map_err(|violation| violation.message)
        .unwrap();
    let withheld: Withheld = beta::kept(None, policy, envelope.traits, &|_| false).withheld;
    let rules = Rules { withheld, ..Rules::plain(card, envelope.max_tokens) };
    let edited = edited(&bytes, envelope.traits, &rules);
    let body = edited.body.map_or_else(|| body.clone(), |body| serde_json::from_slice(&body).unwrap());
    (body, edited.warnings)
}

/// A model of Anthropic's that takes instructions between turns.
fn claude() -> Card {
    Card { mid_system: true, ..Card::default() }
}

/// A model that speaks the format on a server of its own.
fn other() -> Card {
    Card { foreign: true, ..Card::default() }
}

fn tool(name: &str, more: &Value) -> Value {
    let mut tool =
        json!({"name": name, "input_schema": {"type": "object", "properties": {"scope": {"type": "string"}}}});
    for (name, value) in more.as_object().unwrap() {
        tool[name] = value.clone();
    }
    tool
}

fn change(kind: &str, name: &str) -> Value {
    json!({"type": kind, "tool": {"type": "tool_reference", "name": name}})
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

#[test]
fn the_scope_of_a_marker_stays_with_anthropic() {
    let body = |marker: &Value| {
        json!({"model": "m", "max_tokens": 9, "cache_control": marker,
            "system": [{"type": "text", "text": "s", "cache_control": marker}],
            "tools": [tool("f", &json!({"cache_control": marker}))],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": marker}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"cache_control": {"scope": "all"}}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "y", "cache_control": marker}]}]}]})
    };
    let given = body(&json!({"type": "ephemeral", "ttl": "1h", "scope": "global"}));
    let wanted = body(&json!({"type": "ephemeral", "ttl": "1h"}));
    for policy in [Betas::Bedrock, Betas::Vertex] {
        let (made, warnings) = sent(&given, &claude(), policy);
        assert_eq!((made, warnings), (wanted.clone(), vec!["dropped:cache_control.scope".to_owned()]), "{policy:?}");
        // Another word of that name is nobody's marker.
        assert_eq!(sent(&wanted, &claude(), policy), (wanted.clone(), vec![]), "{policy:?}");
    }
    assert_eq!(sent(&given, &claude(), Betas::All), (given, vec![]));
}

#[test]
fn tools_are_not_streamed_eagerly_where_nobody_does() {
    let body =
        |more: &Value| json!({"model": "m", "max_tokens": 9, "tools": [tool("f", more)], "messages": [user("x")]});
    let given = body(&json!({"eager_input_streaming": true}));
    let warnings = vec!["dropped:eager_input_streaming".to_owned()];
    assert_eq!(sent(&given, &claude(), Betas::Vertex), (body(&json!({})), warnings));
    for policy in [Betas::All, Betas::Bedrock] {
        assert_eq!(sent(&given, &claude(), policy), (given.clone(), vec![]), "{policy:?}");
    }
}

/// A conversation that withdraws two tools and adds one of them and a deferred one.
fn changing(choice: &Value) -> Value {
    let late = json!({"defer_loading": true});
    json!({"model": "m", "max_tokens": 9, "tool_choice": choice,
        "tools": [tool("one", &json!({})), tool("two", &json!({})), tool("late", &late), tool("later", &late)],
        "messages": [user("a"),
            {"role": "system", "content": [change("tool_removal", "one"), change("tool_removal", "two")]},
            {"role": "assistant", "content": "b"},
            {"role": "system", "content": [{"type": "text", "text": "mind"}, change("tool_addition", "two"), change("tool_addition", "late")]},
            user("c")]})
}

#[test]
fn tools_that_a_conversation_changes_are_changed_in_the_list() {
    let tools =
        json!([tool("two", &json!({})), tool("late", &json!({})), tool("later", &json!({"defer_loading": true}))]);
    let auto = json!({"type": "auto"});
    let (made, warnings) = sent(&changing(&auto), &claude(), Betas::Vertex);
    assert_eq!((&made["tools"], &made["tool_choice"], warnings.as_slice()), (&tools, &auto, &[][..]));
    let note = json!({"role": "system", "content": [{"type": "text", "text": "mind"}]});
    assert_eq!(made["messages"], json!([user("a"), {"role": "assistant", "content": "b"}, note, user("c")]));

    let (made, warnings) = sent(&changing(&auto), &other(), Betas::None);
    assert_eq!(made["tools"], tools);
    assert_eq!(warnings, ["changed:system_message"]);
    let text = |text: &str| json!({"type": "text", "text": text});
    let last = json!({"role": "user", "content": [text("[system note] mind"), text("c")]});
    assert_eq!(made["messages"], json!([user("a"), {"role": "assistant", "content": "b"}, last]));

    // An older model of Anthropic's is told by a note as well, which can withdraw nothing.
    let old = Card { mid_system: false, ..Card::default() };
    assert_eq!(sent(&changing(&auto), &old, Betas::All).0["tools"], tools);
    for policy in [Betas::All, Betas::Bedrock] {
        assert_eq!(sent(&changing(&auto), &claude(), policy), (changing(&auto), vec![]), "{policy:?}");
    }
}

#[test]
fn a_withdrawn_tool_cannot_be_forced() {
    let forced = json!({"type": "tool", "name": "one", "disable_parallel_tool_use": true});
    let (made, warnings) = sent(&changing(&forced), &claude(), Betas::Vertex);
    assert_eq!(made["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(warnings, ["changed:tool_choice"]);
    for choice in [json!({"type": "tool", "name": "two"}), json!({"type": "any"}), json!({"type": "none"})] {
        assert_eq!(sent(&changing(&choice), &claude(), Betas::Vertex).0["tool_choice"], choice);
    }
    let none_left = json!({"model": "m", "max_tokens": 9, "tools": [tool("one", &json!({}))], "tool_choice": {"type": "any"},
        "messages": [user("a"), {"role": "system", "content": [change("tool_removal", "one")]}]});
    let (made, warnings) = sent(&none_left, &claude(), Betas::Vertex);
    assert_eq!(made, json!({"model": "m", "max_tokens": 9, "messages": [user("a")]}));
    assert_eq!(warnings, ["changed:tool_choice"]);
}

#[test]
fn an_instruction_between_turns_sets_no_options_where_nobody_reads_them() {
    let body = |turn: Value| json!({"model": "m", "max_tokens": 9, "output_config": {"effort": "low"}, "messages": [user("a"), turn, user("b")]});
    let given = body(json!({"role": "system", "content": "mind", "output_config": {"effort": "high"}}));
    let (made, warnings) = sent(&given, &claude(), Betas::Vertex);
    assert_eq!(made, body(json!({"role": "system", "content": "mind"})));
    assert_eq!(warnings, ["dropped:system_message.output_config"]);
    assert_eq!(sent(&given, &claude(), Betas::Bedrock), (given, vec![]));
}
