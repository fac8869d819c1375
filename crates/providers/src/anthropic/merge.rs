//! Turns of one role that stand side by side made one, for servers that want them to alternate.

use std::borrow::Cow;

use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members};

use super::edit::{is_kind, push_member};

/// The messages with neighbours of one role joined. In what a user says, results come first: they must follow their calls
/// at once.
pub(super) fn turns(messages: Vec<String>) -> Vec<String> {
    let mut made: Vec<String> = Vec::with_capacity(messages.len());
    for message in messages {
        match made.last().and_then(|last| joined(last, &message)) {
            Some(joined) => {
                made.pop();
                made.push(joined);
            }
            None => made.push(message),
        }
    }
    made
}

/// Both as one message; nothing where they are of different roles.
fn joined(first: &str, second: &str) -> Option<String> {
    let read = |text| Members::of(serde_json::from_str::<&RawValue>(text).ok()?);
    let (first, second) = (read(first)?, read(second)?);
    let role = |members: &Members<'_>| members.get("role").and_then(json::string).map(Cow::into_owned);
    let shared = role(&first).filter(|shared| role(&second).as_ref() == Some(shared))?;
    let mut all = blocks(first.get("content")?)?;
    all.extend(blocks(second.get("content")?)?);
    if shared == "user" {
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
}
