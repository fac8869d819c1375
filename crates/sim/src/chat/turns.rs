//! The conversation: who may say what, and that every call has its result right after it.

use serde_json::Value;

use crate::content::{LastUser, join};
use crate::failure::Failure;
use crate::openai::{Place, check_name};

const ROLES: &[&str] = &["system", "assistant", "user", "function", "tool", "developer"];

/// Members of an assistant's message; the last ones belong to servers that return reasoning.
const ASSISTANT: &str =
    "role content name refusal audio annotations tool_calls reasoning_content reasoning reasoning_details prefix";

/// What the conversation says at its end, and what some servers look at.
#[derive(Default)]
pub(super) struct Conversation {
    pub last: LastUser,
    /// The start of the answer, given by the caller.
    pub prefix: Option<String>,
    /// The first id of a call that is not nine letters or digits.
    pub other_id: Option<String>,
}

/// Checks all messages.
pub(super) fn check(messages: &Place<'_>) -> Result<Conversation, Failure> {
    // Calls that still wait for their result, and the message that made them.
    let mut waiting: Vec<&str> = Vec::new();
    let mut caller = 0;
    let mut last = LastUser::default();
    let (mut prefix, mut other_id) = (None, None);
    for (at, message) in messages.some_items()?.iter().enumerate() {
        let role = message.need("role")?.one_of(ROLES)?;
        prefix = None;
        if role == "tool" {
            last.tool_results.push(result(message, at, &mut waiting)?);
            continue;
        }
        if let Some(first) = waiting.first() {
            return Err(unanswered(caller, first));
        }
        match role {
            "assistant" => {
                last = LastUser::default();
                let mut text = String::new();
                waiting = assistant(message, at, &mut text)?;
                prefix = message.get("prefix").map(|flag| flag.flag()).transpose()?.unwrap_or(false).then_some(text);
                let nine = |id: &str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
                other_id = other_id.or_else(|| waiting.iter().find(|id| !nine(id)).map(|id| (*id).to_owned()));
                caller = at;
            }
            "user" => {
                message.only(&["role", "content", "name"])?;
                let content = message.need("content")?;
                last.text.clear();
                last.other_blocks =
                    parts(&content, &["text", "image_url", "input_audio", "file", "document_url"], &mut last.text)?;
            }
            "system" | "developer" => {
                message.only(&["role", "content", "name"])?;
                parts(&message.need("content")?, &["text"], &mut String::new())?;
            }
            _ => return Err(message.wrong("unsupported_value", "Role 'function' is no longer supported.")),
        }
    }
    match waiting.first() {
        None => Ok(Conversation { last, prefix, other_id }),
        Some(first) => Err(unanswered(caller, first)),
    }
}

fn unanswered(at: usize, id: &str) -> Failure {
    let message = format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
            'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
    );
    Failure { param: Some(format!("messages.[{at}].role")), ..Failure::new(400, message) }
}

/// A tool's message; takes its call off those that wait.
fn result<'v>(message: &Place<'v>, at: usize, waiting: &mut Vec<&'v str>) -> Result<String, Failure> {
    message.only(&["role", "content", "tool_call_id", "name"])?;
    let id = message.need("tool_call_id")?;
    let Some(found) = waiting.iter().position(|call| id.value == *call) else {
        let text = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with \
            'tool_calls'.";
        return Err(Failure { param: Some(format!("messages.[{at}].role")), ..Failure::new(400, text) });
    };
    waiting.remove(found);
    let mut text = String::new();
    parts(&message.need("content")?, &["text"], &mut text)?;
    Ok(text)
}

/// An assistant's message; returns the ids of its calls.
fn assistant<'v>(message: &Place<'v>, at: usize, text: &mut String) -> Result<Vec<&'v str>, Failure> {
    message.only(&ASSISTANT.split(' ').collect::<Vec<_>>())?;
    if let Some(content) = message.get("content") {
        parts(&content, &["text", "refusal", "thinking"], text)?;
    }
    let Some(calls) = message.get("tool_calls") else {
        if message.get("content").is_none() && message.get("refusal").is_none() {
            let text = "Invalid value for 'content': expected a string, got null.";
            return Err(Failure { param: Some(format!("messages.[{at}].content")), ..Failure::new(400, text) });
        }
        return Ok(Vec::new());
    };
    let mut ids: Vec<&str> = Vec::new();
    for call in calls.some_items()? {
        call.only(&["id", "type", "function", "index"])?;
        call.need("type")?.one_of(&["function"])?;
        let id = call.need("id")?;
        let function = call.need("function")?;
        function.only(&["name", "arguments"])?;
        check_name(&function.need("name")?)?;
        let arguments = function.need("arguments")?;
        // Servers that render the call into a prompt parse it first and fail on anything but an object.
        if !matches!(serde_json::from_str(arguments.text()?), Ok(Value::Object(_))) {
            let text = format!("Invalid '{}': expected a string that is a JSON object.", arguments.path);
            return Err(arguments.wrong("invalid_value", &text));
        }
        if ids.contains(&id.text()?) {
            return Err(id.wrong("invalid_value", &format!("Duplicate value for '{}'.", id.path)));
        }
        ids.push(id.text()?);
    }
    Ok(ids)
}

/// Content as a string or a list of parts; appends its text and returns how many parts are none.
fn parts(content: &Place<'_>, kinds: &[&str], text: &mut String) -> Result<usize, Failure> {
    if let Some(whole) = content.value.as_str() {
        join(text, whole);
        return Ok(0);
    }
    if !content.value.is_array() {
        return Err(content.not("one of a string or array of objects"));
    }
    let mut others = 0;
    for part in content.some_items()? {
        let kind = part.need("type")?.one_of(kinds)?;
        part.only(&["type", kind, "prompt_cache_breakpoint", "document_name", "signature", "closed"])?;
        let inner = part.need(kind)?;
        match kind {
            "text" => join(text, inner.text()?),
            "refusal" => {
                inner.text()?;
            }
            // Mistral's: thinking comes back in the list it was given out in.
            "thinking" => {
                parts(&inner, &["text"], &mut String::new())?;
            }
            "document_url" => {
                others += 1;
                url(&inner)?;
            }
            "image_url" => {
                others += 1;
                inner.only(&["url", "detail"])?;
                url(&inner.need("url")?)?;
            }
            "file" => {
                others += 1;
                inner.only(&["filename", "file_data", "file_id"])?;
                if inner.get("file_id").is_none() {
                    inner.need("filename")?.text()?;
                    url(&inner.need("file_data")?)?;
                }
            }
            _ => {
                others += 1;
                inner.only(&["data", "format"])?;
                inner.need("data")?.text()?;
            }
        }
    }
    Ok(others)
}

fn url(place: &Place<'_>) -> Result<(), Failure> {
    let found = place.text()?;
    let fine = match found.strip_prefix("data:") {
        Some(data) => data.split_once(";base64,").is_some_and(|(kind, data)| kind.contains('/') && !data.is_empty()),
        None => found.starts_with("https://") || found.starts_with("http://"),
    };
    match fine {
        true => Ok(()),
        false => Err(place.wrong(
            "invalid_value",
            &format!("Invalid '{}': expected a URL or a base64-encoded data URL with a MIME type.", place.path),
        )),
    }
}
