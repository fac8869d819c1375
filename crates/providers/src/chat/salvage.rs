//! Calls that a server generated and then refused to deliver because it could not read them itself (Groq).

use bytes::Bytes;
use serde_json::{Value, json};

use crate::translate::Context;

/// The calls of an error's `failed_generation` as the answer that the server should have given. None where the error is
/// another one, where any of it cannot be read, or where it names a tool that was not offered.
pub fn salvage(error_body: &[u8], context: &Context) -> Option<Bytes> {
    let body: Value = serde_json::from_slice(error_body).ok()?;
    let error = body.get("error")?;
    if error.get("code").and_then(Value::as_str) != Some("tool_use_failed") {
        return None;
    }
    let calls = calls(error.get("failed_generation")?.as_str()?)?;
    if calls.is_empty() || calls.iter().any(|(name, _)| !context.offered.contains(name)) {
        return None;
    }
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, input)| json!({"type": "function", "function": {"name": name, "arguments": input.to_string()}}))
        .collect();
    let choice =
        json!({"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}});
    Some(json!({"object": "chat.completion", "choices": [choice]}).to_string().into())
}

/// Names and inputs, from whichever of the ways that models have to write a call.
fn calls(text: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = text.trim();
    if !rest.starts_with('<') {
        return match serde_json::from_str(rest).ok()? {
            Value::Array(list) => list.into_iter().map(call).collect(),
            single => Some(vec![call(single)?]),
        };
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (one, after) = if let Some(inner) = rest.strip_prefix("<function=") {
            let (inner, after) = inner.split_once("</function>").unwrap_or((inner, ""));
            // The bracket after the name is often forgotten.
            let (name, input) = inner.split_at(inner.find('{').unwrap_or(inner.len()));
            let input = if input.trim().is_empty() { "{}" } else { input };
            let name = name.trim().trim_end_matches('>').trim().to_owned();
            ((name, object(serde_json::from_str(input.trim()).ok()?)?), after)
        } else {
            let (inner, after) = rest.strip_prefix("<tool_call>")?.split_once("</tool_call>")?;
            (call(serde_json::from_str(inner.trim()).ok()?)?, after)
        };
        found.push(one);
        rest = after.trim_start();
    }
    Some(found)
}

/// A call that is written as an object.
fn call(value: Value) -> Option<(String, Value)> {
    let whole = value.get("function").filter(|function| function.is_object()).unwrap_or(&value);
    let name = whole.get("name")?.as_str()?.to_owned();
    let input = whole.get("arguments").or_else(|| whole.get("parameters")).cloned();
    Some((name, object(input.unwrap_or_else(|| Value::Object(serde_json::Map::new())))?))
}

/// An input, also where it is a text of JSON.
fn object(value: Value) -> Option<Value> {
    let value = match value {
        Value::String(text) => serde_json::from_str(&text).ok()?,
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other,
    };
    value.is_object().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salvaged(generation: &str) -> Option<Value> {
        let offered = vec!["tide_at".to_owned(), "berths".to_owned()];
        let context = Context { offered, input_estimate: 7, ..Context::default() };
        let body = json!({"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
            "code": "tool_use_failed", "failed_generation": generation}});
        let answer = salvage(body.to_string().as_bytes(), &context)?;
        let message = crate::chat::message(&answer, &context, tidegate_core::Timestamp(0)).unwrap().body;
        Some(serde_json::from_slice(&message).unwrap())
    }

    #[test]
    fn p81_a_call_that_the_server_could_not_read_is_delivered() {
        for generation in [
            r#"<function=tide_at>{"port":"Brest"}</function>"#,
            r#"<function=tide_at{"port":"Brest"}</function>"#,
            r#" {"name":"tide_at","arguments":{"port":"Brest"}} "#,
            r#"{"name":"tide_at","arguments":"{\"port\":\"Brest\"}"}"#,
            r#"{"type":"function","name":"tide_at","parameters":{"port":"Brest"}}"#,
            "<tool_call>\n{\"name\":\"tide_at\",\"arguments\":{\"port\":\"Brest\"}}\n</tool_call>",
            r#"[{"name":"tide_at","parameters":{"port":"Brest"}}]"#,
        ] {
            let answer = salvaged(generation).unwrap_or_else(|| panic!("{generation}"));
            assert_eq!(answer["stop_reason"], "tool_use", "{generation}");
            let block = &answer["content"][0];
            assert_eq!(
                (&block["name"], &block["input"]),
                (&json!("tide_at"), &json!({"port": "Brest"})),
                "{generation}"
            );
            assert!(block["id"].as_str().unwrap().starts_with("toolu_"));
            // 16 bytes of input in four each.
            assert_eq!((&answer["usage"]["input_tokens"], &answer["usage"]["output_tokens"]), (&json!(7), &json!(4)));
        }
        let two = salvaged(r#"<function=berths></function><function=tide_at>{"port":"Cork"}</function>"#).unwrap();
        assert_eq!((&two["content"][0]["input"], &two["content"][1]["name"]), (&json!({}), &json!("tide_at")));
    }

    #[test]
    fn p81_what_is_no_call_stays_an_error() {
        for generation in [
            "",
            "I cannot do that.",
            r#"<function=tide_at>{"port":"#,
            r#"<function=delete_all>{}</function>"#,
            r#"{"name":"tide_at","arguments":[1]}"#,
            r#"{"name":"tide_at"} and more"#,
            r#"[{"name":"tide_at"},{"name":"other"}]"#,
            "[]",
            "<b>bold</b>",
        ] {
            assert!(salvaged(generation).is_none(), "{generation}");
        }
        let other = br#"{"error":{"code":"invalid_request","failed_generation":"{\"name\":\"tide_at\"}"}}"#;
        assert!(salvage(other, &Context { offered: vec!["tide_at".to_owned()], ..Context::default() }).is_none());
        for broken in ["", "[]", "null", r#"{"error":"x"}"#] {
            assert!(salvage(broken.as_bytes(), &Context::default()).is_none(), "{broken}");
        }
    }
}
