//! The conversation as a list of items: who may say what, that calls and outputs belong together, and that
//! reasoning comes back in the shape and at the place it was given out.

use serde_json::Value;

use super::render::ENCRYPTED;
use crate::content::{LastUser, join};
use crate::failure::Failure;
use crate::openai::{Place, check_name};

/// What the conversation says at its end.
#[derive(Default)]
pub(super) struct Conversation {
    pub last: LastUser,
    pub unsigned: Option<Failure>,
}

#[derive(Default)]
struct Seen<'v> {
    /// Calls that still wait for their output.
    waiting: Vec<&'v str>,
    reasoning: Vec<&'v str>,
    /// A reasoning item whose follower is still to come.
    open: Option<&'v str>,
    /// There was reasoning since the user spoke.
    reasoned: bool,
}

pub(super) const UNVERIFIED: &str =
    "The encrypted content could not be verified. Reason: Encrypted content could not be decrypted or parsed.";

const ITEMS: &[&str] = &["message", "function_call", "function_call_output", "reasoning", "web_search_call"];

pub(super) fn check(input: &Place<'_>) -> Result<Conversation, Failure> {
    let mut found = Conversation::default();
    if let Some(text) = input.value.as_str() {
        found.last.add_text(text);
        return Ok(found);
    }
    if !input.value.is_array() {
        return Err(input.not("one of a string or array of input items"));
    }
    let mut seen = Seen::default();
    for item in input.some_items()? {
        let kind = item.get("type").map_or(Ok("message"), |kind| kind.one_of(ITEMS))?;
        let follows = kind == "function_call" || kind == "reasoning" || item.value["role"] == "assistant";
        if let (Some(id), false) = (seen.open, follows) {
            return Err(alone(id));
        }
        if kind != "reasoning" {
            seen.open = None;
        }
        match kind {
            "message" => message(&item, &mut seen, &mut found)?,
            "function_call" => call(&item, &mut seen, &mut found)?,
            "function_call_output" => output(&item, &mut seen, &mut found)?,
            "reasoning" => reasoning(&item, &mut seen, &mut found)?,
            _ => {}
        }
    }
    if let Some(id) = seen.open {
        return Err(alone(id));
    }
    match seen.waiting.first() {
        None => Ok(found),
        Some(id) => {
            let message = format!("No tool output found for function call {id}.");
            Err(Failure { code: None, ..input.wrong("", &message) })
        }
    }
}

fn alone(id: &str) -> Failure {
    let message = format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
    Failure { param: Some("input".into()), ..Failure::new(400, message) }
}

fn message(item: &Place<'_>, seen: &mut Seen<'_>, found: &mut Conversation) -> Result<(), Failure> {
    item.only(&["type", "role", "content", "id", "status", "phase"])?;
    let role = item.need("role")?.one_of(&["assistant", "system", "developer", "user"])?;
    let content = item.need("content")?;
    if let Some(phase) = item.get("phase") {
        phase.one_of(&["commentary", "final_answer"])?;
    }
    let mut text = String::new();
    let others = match role {
        "assistant" => parts(&content, &["output_text", "refusal"], &mut text)?,
        _ => parts(&content, &["input_text", "input_image", "input_file"], &mut text)?,
    };
    match role {
        "assistant" => found.last = LastUser::default(),
        "user" => {
            found.last.text = text;
            found.last.other_blocks = others;
            if found.last.tool_results.is_empty() {
                // Only reasoning since the user last spoke is needed again.
                seen.reasoned = false;
                found.unsigned = None;
            }
        }
        _ => {}
    }
    Ok(())
}

fn call<'v>(item: &Place<'v>, seen: &mut Seen<'v>, found: &mut Conversation) -> Result<(), Failure> {
    item.only(&["type", "id", "call_id", "name", "arguments", "status", "namespace", "caller"])?;
    check_name(&item.need("name")?)?;
    let arguments = item.need("arguments")?;
    if !matches!(serde_json::from_str(arguments.text()?), Ok(Value::Object(_))) {
        let text = format!("Invalid '{}': expected a string that is a JSON object.", arguments.path);
        return Err(arguments.wrong("invalid_value", &text));
    }
    let id = item.need("call_id")?;
    if seen.waiting.contains(&id.text()?) {
        return Err(id.wrong("invalid_value", &format!("Duplicate value for '{}'.", id.path)));
    }
    seen.waiting.push(id.text()?);
    found.last = LastUser::default();
    if !seen.reasoned {
        let message = format!(
            "Item '{}' of type 'function_call' was provided without its required 'reasoning' item.",
            id.text()?
        );
        found.unsigned.get_or_insert_with(|| Failure { param: Some("input".into()), ..Failure::new(400, message) });
    }
    Ok(())
}

fn output(item: &Place<'_>, seen: &mut Seen<'_>, found: &mut Conversation) -> Result<(), Failure> {
    item.only(&["type", "id", "call_id", "output", "status", "name", "namespace", "caller"])?;
    let id = item.need("call_id")?;
    let Some(at) = seen.waiting.iter().position(|call| id.value == *call) else {
        let message = format!("No tool call found for function call output with call_id {}.", id.text()?);
        return Err(Failure { param: Some("input".into()), ..Failure::new(400, message) });
    };
    seen.waiting.remove(at);
    let mut text = String::new();
    parts(&item.need("output")?, &["input_text", "input_image", "input_file"], &mut text)?;
    found.last.tool_results.push(text);
    Ok(())
}

fn reasoning<'v>(item: &Place<'v>, seen: &mut Seen<'v>, found: &mut Conversation) -> Result<(), Failure> {
    item.only(&["type", "id", "summary", "content", "encrypted_content", "status"])?;
    let id = item.need("id")?.text()?;
    for part in item.need("summary")?.items()? {
        part.need("type")?.one_of(&["summary_text"])?;
        part.need("text")?.text()?;
    }
    if let Some(content) = item.get("content") {
        content.at_most(0, content.items()?.len())?;
    }
    if seen.reasoning.contains(&id) {
        let message =
            format!("Duplicate item found with id {id}. Remove duplicate items from your input and try again.");
        return Err(Failure { param: Some("input".into()), ..Failure::new(400, message) });
    }
    let Some(encrypted) = item.get("encrypted_content") else {
        let message = format!("Item with id '{id}' not found. Items are not persisted when `store` is set to false.");
        return Err(Failure { param: Some("input".into()), ..Failure::new(404, message) });
    };
    if encrypted.text()? != ENCRYPTED {
        found
            .unsigned
            .get_or_insert_with(|| Failure { param: None, ..encrypted.wrong("invalid_encrypted_content", UNVERIFIED) });
    }
    seen.reasoning.push(id);
    seen.open = Some(id);
    seen.reasoned = true;
    Ok(())
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
        match part.need("type")?.one_of(kinds)? {
            "input_text" => {
                part.only(&["type", "text", "prompt_cache_breakpoint"])?;
                join(text, part.need("text")?.text()?);
            }
            "output_text" => {
                part.only(&["type", "text", "annotations", "logprobs"])?;
                part.need("text")?.text()?;
            }
            "refusal" => {
                part.only(&["type", "refusal"])?;
                part.need("refusal")?.text()?;
            }
            "input_image" => {
                others += 1;
                part.only(&["type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"])?;
                if part.get("file_id").is_none() {
                    part.need("image_url")?.text()?;
                }
            }
            _ => {
                others += 1;
                file(&part)?;
            }
        }
    }
    Ok(others)
}

fn file(part: &Place<'_>) -> Result<(), Failure> {
    part.only(&["type", "filename", "file_data", "file_url", "file_id", "detail", "prompt_cache_breakpoint"])?;
    let given: Vec<_> = ["file_data", "file_url", "file_id"].iter().filter_map(|name| part.get(name)).collect();
    match given.as_slice() {
        [one] => one.text().map(|_| ()),
        _ => Err(part.wrong(
            "invalid_parameter_combination",
            "Exactly one of 'file_data', 'file_url' and 'file_id' must be provided.",
        )),
    }
}
