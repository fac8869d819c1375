//! The conversation: who may say what, and that every call has its result right after it.

use serde_json::Value;

use crate::content::{LastUser, join};
use crate::failure::Failure;
use crate::openai::{Place, check_name};

/// Checks all messages and returns what the last ones say.
pub(super) fn check(messages: &Place<'_>) -> Result<LastUser, Failure> {
    let mut waiting: Vec<&str> = Vec::new();
    let mut last = LastUser::default();
    let mut before = "";
    for message in messages.some_items()? {
        let role = message.need("role")?.one_of(&["user", "assistant", "system", "tool"])?;
        if role != "tool"
            && let Some(id) = waiting.first()
        {
            return Err(Failure::new(400, format!("invalid request: the tool call '{id}' has no result")));
        }
        match role {
            "tool" => last.tool_results.push(result(&message, &mut waiting)?),
            "assistant" => {
                last = LastUser::default();
                waiting = assistant(&message)?;
            }
            "user" => {
                message.only(&["role", "content"])?;
                last.text.clear();
                last.other_blocks = content(&message.need("content")?, &["text", "image_url"], &mut last.text)?;
            }
            _ => {
                message.only(&["role", "content"])?;
                content(&message.need("content")?, &["text"], &mut String::new())?;
            }
        }
        before = role;
    }
    if let Some(id) = waiting.first() {
        return Err(Failure::new(400, format!("invalid request: the tool call '{id}' has no result")));
    }
    match before {
        "user" | "tool" => Ok(last),
        _ => Err(Failure::new(400, "invalid request: the last message must be from the user or a tool")),
    }
}

fn result<'v>(message: &Place<'v>, waiting: &mut Vec<&'v str>) -> Result<String, Failure> {
    message.only(&["role", "content", "tool_call_id"])?;
    let id = message.need("tool_call_id")?;
    let Some(found) = waiting.iter().position(|call| id.value == *call) else {
        let text = format!("invalid request: tool call id '{}' not found in previous tool calls", id.text()?);
        return Err(Failure::new(400, text));
    };
    waiting.remove(found);
    let mut text = String::new();
    content(&message.need("content")?, &["text", "document"], &mut text)?;
    Ok(text)
}

/// An assistant's message; returns the ids of its calls.
fn assistant<'v>(message: &Place<'v>) -> Result<Vec<&'v str>, Failure> {
    message.only(&["role", "content", "tool_plan", "tool_calls", "citations"])?;
    if let Some(plan) = message.get("tool_plan") {
        plan.text()?;
    }
    if let Some(said) = message.get("content") {
        content(&said, &["text", "thinking"], &mut String::new())?;
    }
    let Some(calls) = message.get("tool_calls") else {
        if message.get("content").is_none() {
            return Err(Failure::new(400, "invalid request: an assistant message needs content or tool_calls"));
        }
        return Ok(Vec::new());
    };
    let mut ids: Vec<&str> = Vec::new();
    for call in calls.some_items()? {
        call.only(&["id", "type", "function"])?;
        call.need("type")?.one_of(&["function"])?;
        let function = call.need("function")?;
        function.only(&["name", "arguments"])?;
        check_name(&function.need("name")?)?;
        let arguments = function.need("arguments")?;
        if !matches!(serde_json::from_str(arguments.text()?), Ok(Value::Object(_))) {
            return Err(arguments.wrong("invalid_value", "the arguments of a tool call must be a JSON object."));
        }
        let id = call.need("id")?.text()?;
        if id.is_empty() || ids.contains(&id) {
            return Err(call.wrong("invalid_value", &format!("the tool call id '{id}' is empty or not unique.")));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Content as a text or a list of parts; appends its text and returns how many parts are none.
fn content(content: &Place<'_>, kinds: &[&str], text: &mut String) -> Result<usize, Failure> {
    if let Some(whole) = content.value.as_str() {
        join(text, whole);
        return Ok(0);
    }
    let mut others = 0;
    for part in content.some_items()? {
        let kind = part.need("type")?.one_of(kinds)?;
        part.only(&["type", kind])?;
        let inner = part.need(kind)?;
        match kind {
            "text" => join(text, inner.text()?),
            "thinking" => {
                inner.text()?;
            }
            "image_url" => {
                others += 1;
                inner.only(&["url", "detail"])?;
                let url = inner.need("url")?.text()?;
                if !url.starts_with("data:image/") && !url.starts_with("https://") {
                    return Err(inner.wrong("invalid_value", "an image is a data URI or an https address."));
                }
            }
            _ => {
                inner.only(&["id", "data"])?;
                let data = inner.need("data")?;
                let plain = data.object()?.get("text").and_then(Value::as_str);
                join(text, &plain.map_or_else(|| data.value.to_string(), str::to_owned));
            }
        }
    }
    Ok(others)
}
