//! Turns of one role that stand side by side made one, for servers that want them to alternate.

use std::borrow::Cow;

use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members};

use super::edit::{is_kind, push_member};

/// The messages with neighbours of one role joined. In what a user says, results come first: they must follow their calls
/// at once. Each message is read a fixed number of times, however many stand side by side.
pub(super) fn turns(messages: Vec<String>) -> Vec<String> {
    let mut made: Vec<String> = Vec::with_capacity(messages.len());
    let (mut neighbours, mut shared): (Vec<String>, Option<String>) = (Vec::new(), None);
    for message in messages {
        let role = role(&message);
        if role.is_none() || role != shared {
            end(&mut neighbours, shared.as_deref(), &mut made);
            shared = role;
        }
        neighbours.push(message);
    }
    end(&mut neighbours, shared.as_deref(), &mut made);
    made
}

/// Whose message it is; nothing where it cannot be joined to another.
fn role(message: &str) -> Option<String> {
    let members = members(message)?;
    blocks(members.get("content")?)?;
    members.get("role").and_then(json::string).map(Cow::into_owned)
}

fn members(message: &str) -> Option<Members<'_>> {
    Members::of(serde_json::from_str::<&RawValue>(message).ok()?)
}

/// A turn is over: what stands alone stays to the byte.
fn end(neighbours: &mut Vec<String>, role: Option<&str>, made: &mut Vec<String>) {
    let turn = role.filter(|_| neighbours.len() > 1).and_then(|role| joined(neighbours, role));
    match turn {
        Some(turn) => {
            neighbours.clear();
            made.push(turn);
        }
        None => made.append(neighbours),
    }
}

/// Messages of one role as one, with what the first says beside its content.
fn joined(messages: &[String], role: &str) -> Option<String> {
    let first = members(messages.first()?)?;
    let mut all: Vec<Cow<'_, str>> = Vec::with_capacity(messages.len());
    for message in messages {
        all.extend(blocks(members(message)?.get("content")?)?);
    }
    if role == "user" {
        let is_result = |block: &str| serde_json::from_str(block).is_ok_and(|block| is_kind(block, "tool_result"));
        let (results, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|block| is_result(block));
        all = results.into_iter().chain(rest).collect();
    }
    let mut out = String::from("{");
    for (name, value) in &first.0 {
        match name.as_ref() {
            "content" => push_member(&mut out, name, &format!("[{}]", all.join(","))),
            _ => push_member(&mut out, name, value.get()),
        }
    }
    out.push('}');
    Some(out)
}

/// A content as blocks.
fn blocks(content: &RawValue) -> Option<Vec<Cow<'_, str>>> {
    match json::kind(content) {
        Kind::String => Some(vec![format!(r#"{{"type":"text","text":{}}}"#, content.get()).into()]),
        _ => Some(json::elements(content)?.into_iter().map(|block| block.get().into()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn merged(messages: &Value) -> Value {
        let messages = messages.as_array().unwrap().iter().map(Value::to_string).collect();
        turns(messages).iter().map(|message| serde_json::from_str::<Value>(message).unwrap()).collect()
    }

    #[test]
    fn neighbours_of_one_role_are_one_turn_and_results_come_first() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "4.1 m"});
        let call =
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]});
        let note = json!({"role": "user", "content": [text("[system note] be brief")]});
        let messages = json!([{"role": "user", "content": "Look."}, call, note, {"role": "user", "content": [result, text("Now.")]}]);
        let wanted = json!([
            {"role": "user", "content": "Look."},
            call,
            {"role": "user", "content": [result, text("[system note] be brief"), text("Now.")]},
        ]);
        assert_eq!(merged(&messages), wanted);
        let said = |content: Value| json!({"role": "assistant", "content": content});
        assert_eq!(
            merged(&json!([said(json!("a")), said(json!([text("b")]))])),
            json!([said(json!([text("a"), text("b")]))])
        );
        assert_eq!(merged(&wanted), wanted);
    }

    /// The same, two neighbours at a time.
    fn by_pairs(messages: &[Value]) -> Value {
        let blocks = |message: &Value| match &message["content"] {
            Value::String(text) => vec![json!({"type": "text", "text": text})],
            content => content.as_array().unwrap().clone(),
        };
        let mut made: Vec<Value> = Vec::new();
        for message in messages {
            let Some(last) = made.last_mut().filter(|last| last["role"] == message["role"]) else {
                made.push(message.clone());
                continue;
            };
            let mut all = [blocks(last), blocks(message)].concat();
            if message["role"] == "user" {
                all.sort_by_key(|block| block["type"] != "tool_result");
            }
            last["content"] = all.into();
        }
        made.into()
    }

    proptest! {
        #[test]
        fn long_rows_are_joined_as_pairs_are(plan in prop::collection::vec((0..3, prop::collection::vec(any::<bool>(), 0..4)), 0..24)) {
            let message = |(place, (who, results)): (usize, (i32, Vec<bool>))| {
                let role = if who == 2 { "assistant" } else { "user" };
                let block = |(at, is_result)| match is_result {
                    true => json!({"type": "tool_result", "tool_use_id": format!("{place}.{at}")}),
                    false => json!({"type": "text", "text": format!("{place}.{at}")}),
                };
                let content: Value = match results.is_empty() {
                    true => json!(format!("{place}")),
                    false => results.into_iter().enumerate().map(block).collect(),
                };
                json!({"role": role, "content": content})
            };
            let messages: Vec<Value> = plan.into_iter().enumerate().map(message).collect();
            prop_assert_eq!(merged(&json!(messages)), by_pairs(&messages));
        }
    }

    /// As many as a request may hold. Two at a time this would be fifty million blocks to read.
    #[test]
    fn a_long_row_is_read_once() {
        let said: Vec<String> = (0..10_000).map(|n| format!(r#"{{"role":"user","content":"{n}"}}"#)).collect();
        let made = turns(said);
        let turn: Value = serde_json::from_str(&made[0]).unwrap();
        let texts = turn["content"].as_array().unwrap();
        assert_eq!((made.len(), texts.len()), (1, 10_000));
        let number = |block: &Value| block["text"].as_str().and_then(|text| text.parse::<usize>().ok());
        assert!(texts.iter().enumerate().all(|(n, block)| number(block) == Some(n)));
    }
}
