//! For servers that take nobody's words after the results of calls (older models of Mistral).

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::json::Members;

use crate::translate::body::Body;

/// A body whose words that follow results stand in the last of them, after a blank line; none where there are no such
/// words.
pub fn words_in_results(body: &[u8]) -> Option<Bytes> {
    let members: Members<'_> = serde_json::from_slice(body).ok()?;
    let messages: Vec<Value> = serde_json::from_str(members.get("messages")?.get()).ok()?;
    let before = messages.len();
    let mut merged: Vec<Value> = Vec::with_capacity(before);
    for message in messages {
        match merged.last_mut() {
            Some(last) if last["role"] == "tool" && message["role"] == "user" => {
                let words = parts(&message["content"]);
                let content = match (&last["content"], &message["content"]) {
                    (Value::String(result), Value::String(words)) => json!(format!("{result}\n\n{words}")),
                    (result, _) => Value::Array(parts(result).into_iter().chain(words).collect()),
                };
                last["content"] = content;
            }
            _ => merged.push(message),
        }
    }
    if merged.len() == before {
        return None;
    }
    let mut out = Body::default();
    for (name, value) in &members.0 {
        match &**name {
            "messages" => out.set(name, &merged),
            _ => out.set(name, value),
        }
    }
    Some(out.to_bytes().into())
}

/// A content as a list.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts.clone(),
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(messages: Value) -> Option<Value> {
        let body = json!({"model": "m", "messages": messages, "temperature": 0.5}).to_string();
        let body: Value = serde_json::from_slice(&words_in_results(body.as_bytes())?).unwrap();
        assert_eq!((&body["model"], &body["temperature"]), (&json!("m"), &json!(0.5)));
        Some(body["messages"].clone())
    }

    #[test]
    fn words_after_results_go_into_the_last_of_them() {
        let call = json!({"role": "assistant", "content": "", "tool_calls": []});
        let result = |text: &str| json!({"role": "tool", "tool_call_id": "a", "content": text});
        let says = |text: &str| json!({"role": "user", "content": text});
        assert_eq!(
            merged(json!([says("hi"), call, result("1"), result("2"), says("In one line.")])),
            Some(json!([says("hi"), call, result("1"), result("2\n\nIn one line.")]))
        );
        let picture = json!({"type": "image_url", "image_url": {"url": "data:"}});
        assert_eq!(
            merged(json!([call, result("1"), {"role": "user", "content": [picture]}])),
            Some(
                json!([call, {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}, picture]}])
            )
        );
        assert_eq!(merged(json!([says("hi"), call, result("1")])), None);
    }
}
