use serde_json::{Value, json};
use tidegate_wire::messages::Request;

use super::*;
use crate::translate::card::Tokenizer;

/// A hundred tokens, by bytes.
fn hundred(name: &str) -> String {
    format!("{name}{}", "x".repeat(320 - name.len()))
}

fn call(id: &str, tool: &str) -> Value {
    // A hundred tokens as JSON: `{"q":"…"}` is eight bytes around the text.
    json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": hundred("THOUGHT"), "signature": "s"},
        {"type": "tool_use", "id": id, "name": tool, "input": {"q": "y".repeat(312)}},
    ]})
}

fn result(id: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": hundred("RESULT")}]})
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

/// A question, three calls with their results, an answer; another question with one call.
fn conversation() -> Vec<Value> {
    vec![
        says("user", "when is high water?"),
        call("a", "look"),
        result("a"),
        call("b", "ask"),
        result("b"),
        call("c", "look"),
        result("c"),
        json!({"role": "assistant", "content": [
            {"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "At six."},
        ]}),
        says("user", "and low water?"),
        call("d", "look"),
        result("d"),
    ]
}

fn edited(edits: Value) -> Cleared {
    let body = json!({"model": "m", "messages": conversation(), "context_management": {"edits": edits}});
    let request = Request::parse(body.to_string().as_bytes()).unwrap();
    let made = cleared(&request, &Card { tokenizer: Tokenizer::Bytes, ..Card::default() }).unwrap();
    assert_eq!(made.request.context_management, None, "they are done");
    made
}

fn told(made: &Cleared) -> Value {
    serde_json::to_value(&made.applied).unwrap()["applied_edits"].clone()
}

/// The ids of results that are cleared, and of calls without their input.
fn gone(made: &Cleared) -> (Vec<String>, Vec<String>) {
    let (mut results, mut inputs) = (Vec::new(), Vec::new());
    for block in made.request.messages.iter().flat_map(parts) {
        match block {
            Block::ToolResult(result) if result.content == Some(Content::Text("[cleared]".into())) => {
                results.push(result.tool_use_id.clone());
            }
            Block::ToolUse(call) if call.input_text() == "{}" => inputs.push(call.id.clone()),
            _ => {}
        }
    }
    (results, inputs)
}

#[test]
fn old_results_go_and_the_last_ones_stay() {
    // A cleared result is `[cleared]`, three tokens instead of a hundred; an input is `{}`, one instead of a hundred.
    let due = json!({"type": "tool_uses", "value": 3});
    let table = [
        (json!({}), json!({}), &[][..], &[][..], 0),
        (json!({"trigger": {"type": "tool_uses", "value": 4}}), json!({}), &[], &[], 0),
        (json!({"trigger": due}), json!({}), &["a"], &[], 97),
        (json!({"trigger": due}), json!({"keep": {"type": "tool_uses", "value": 1}}), &["a", "b", "c"], &[], 3 * 97),
        (json!({"trigger": due}), json!({"keep": {"type": "tool_uses", "value": 9}}), &[], &[], 0),
        (
            json!({"trigger": {"type": "input_tokens", "value": 500}}),
            json!({"keep": {"type": "tool_uses", "value": 1}, "exclude_tools": ["ask"]}),
            &["a", "c"],
            &[],
            2 * 97,
        ),
        (
            json!({"trigger": due}),
            json!({"keep": {"type": "tool_uses", "value": 2}, "clear_tool_inputs": true}),
            &["a", "b"],
            &["a", "b"],
            2 * 97 + 2 * 99,
        ),
        (
            json!({"trigger": due}),
            json!({"keep": {"type": "tool_uses", "value": 2}, "clear_tool_inputs": ["ask"]}),
            &["a", "b"],
            &["b"],
            2 * 97 + 99,
        ),
        (json!({"trigger": due}), json!({"clear_at_least": {"type": "input_tokens", "value": 97}}), &["a"], &[], 97),
        (json!({"trigger": due}), json!({"clear_at_least": {"type": "input_tokens", "value": 98}}), &[], &[], 0),
    ];
    for (mut edit, more, results, inputs, tokens) in table {
        edit["type"] = json!("clear_tool_uses_20250919");
        edit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = edited(json!([edit]));
        let ids = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(gone(&made), (ids(results), ids(inputs)), "{edit}");
        let entry = json!({
            "type": "clear_tool_uses_20250919", "cleared_tool_uses": results.len(), "cleared_input_tokens": tokens,
        });
        assert_eq!(told(&made), if results.is_empty() { json!([]) } else { json!([entry]) }, "{edit}");
        assert_eq!(made.tokens(), tokens, "{edit}");
    }
}

#[test]
fn thinking_of_earlier_turns_goes_and_that_of_the_last_stays() {
    let thoughts =
        |made: &Cleared| made.request.messages.iter().flat_map(parts).filter(|block| is_thinking(block)).count();
    // Four blocks in the first turn: three of a hundred and four tokens, one that nobody can read of four.
    let earlier = 3 * 104 + 4;
    for (keep, left, cleared) in [
        (json!({}), 1, true),
        (json!({"keep": {"type": "thinking_turns", "value": 1}}), 1, true),
        (json!({"keep": {"type": "thinking_turns", "value": 2}}), 5, false),
        (json!({"keep": {"type": "all"}}), 5, false),
        (json!({"keep": "all"}), 5, false),
    ] {
        let mut edit = keep;
        edit["type"] = json!("clear_thinking_20251015");
        let made = edited(json!([edit]));
        assert_eq!(thoughts(&made), left, "{edit}");
        let entry = json!({
            "type": "clear_thinking_20251015", "cleared_thinking_turns": 1, "cleared_input_tokens": earlier,
        });
        assert_eq!(told(&made), if cleared { json!([entry]) } else { json!([]) }, "{edit}");
    }
}

#[test]
fn edits_are_done_in_order_and_what_is_not_done_is_named() {
    let made = edited(json!([
        {"type": "clear_thinking_20251015"},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 1}},
        {"type": "compact_20260112"},
        {"type": "forget_20301231"},
    ]));
    let kinds = [&told(&made)[0]["type"], &told(&made)[1]["type"]].map(|kind| kind.as_str().unwrap().to_owned());
    assert_eq!(kinds, ["clear_thinking_20251015", "clear_tool_uses_20250919"]);
    assert_eq!(made.skipped, ["compact_20260112", "forget_20301231"]);
    // The first edit brings the conversation below what starts the second.
    let whole = edited(json!([])).request;
    let card = Card { tokenizer: Tokenizer::Bytes, ..Card::default() };
    let meter = Meter::of(&whole, &card);
    let tokens = meter.around(&whole) + total(&whole.messages, &meter);
    let trigger = json!({"type": "input_tokens", "value": tokens - 1});
    let uses = json!({"type": "clear_tool_uses_20250919", "trigger": trigger});
    assert_eq!(edited(json!([uses])).applied.applied_edits.len(), 1);
    let both = edited(json!([{"type": "clear_thinking_20251015"}, uses]));
    assert_eq!(gone(&both).0, Vec::<String>::new());
}

#[test]
fn a_request_without_a_word_of_it_is_left_alone() {
    let body = json!({"model": "m", "messages": conversation()});
    let request = Request::parse(body.to_string().as_bytes()).unwrap();
    assert_eq!(cleared(&request, &Card::default()), None);
}
