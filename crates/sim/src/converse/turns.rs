//! The conversation: whose turn it is, that calls have their results, and what blocks may stand where. Its shape
//! has been checked already.

use serde_json::Value;

use crate::content::{LastUser, join};
use crate::failure::Failure;

#[derive(Default)]
pub(super) struct Conversation {
    pub last: LastUser,
    /// There are calls or results in it.
    pub tools: bool,
    /// Names of documents so far.
    documents: Vec<String>,
    images: usize,
    cache_points: usize,
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(400, message)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn check(messages: &Value, system: &Value) -> Result<Conversation, Failure> {
    let mut found = Conversation::default();
    for block in items(system) {
        found.cache_points += usize::from(block.get("cachePoint").is_some());
        if block["text"].as_str().is_some_and(|text| text.trim().is_empty()) {
            return Err(wrong(
                "The text field in the SystemContentBlock object is blank. Add text to the text field, and try again.",
            ));
        }
    }
    let messages = items(messages);
    // Calls of the turn before, which wait for their results.
    let mut waiting: Vec<&str> = Vec::new();
    let mut before = "";
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if before.is_empty() && role != "user" {
            return Err(wrong(
                "A conversation must start with a user message. Try again with a conversation that starts with a \
                 user message.",
            ));
        }
        if role == before {
            return Err(wrong(
                "A conversation must alternate between user and assistant roles. Make sure the conversation alternates \
                 between user and assistant roles and try again.",
            ));
        }
        let content = items(&message["content"]);
        if content.is_empty() {
            return Err(wrong(format!(
                "The content field in the Message object at messages.{at} is empty. Add a ContentBlock object to the \
                 content field and try again."
            )));
        }
        if role == "user" {
            found.last = LastUser::default();
        }
        let calls = blocks(content, role, at, &mut waiting, &mut found)?;
        if let (false, "user" | "assistant") = (waiting.is_empty(), role) {
            let ids = waiting.join(", ");
            return Err(wrong(format!(
                "Expected toolResult blocks at messages.{at}.content for the following Ids: {ids}"
            )));
        }
        if role != "system" {
            waiting = calls;
        }
        before = role;
    }
    if messages.is_empty() {
        return Err(wrong("The messages field is required. Add a Message object to it and try again."));
    }
    if !waiting.is_empty() {
        let (at, ids) = (messages.len(), waiting.join(", "));
        return Err(wrong(format!("Expected toolResult blocks at messages.{at}.content for the following Ids: {ids}")));
    }
    if found.cache_points > 4 {
        return Err(wrong("You invoked the model with more than 4 cachePoint blocks. Remove some and try again."));
    }
    Ok(found)
}

/// Checks the blocks of a message and returns the ids of its calls.
fn blocks<'v>(
    content: &'v [Value],
    role: &str,
    at: usize,
    waiting: &mut Vec<&'v str>,
    found: &mut Conversation,
) -> Result<Vec<&'v str>, Failure> {
    let mut calls = Vec::new();
    let mut has_text = false;
    let mut has_document = false;
    for (number, block) in content.iter().enumerate() {
        let place = format!("messages.{at}.content.{number}");
        let Some((kind, inner)) = block.as_object().and_then(|block| block.iter().next()) else { continue };
        let fits = match kind.as_str() {
            "toolUse" | "reasoningContent" | "citationsContent" => role == "assistant",
            "toolResult" | "document" | "image" | "video" | "audio" | "searchResult" | "guardContent" => role == "user",
            "toolAddition" | "toolRemoval" => role == "system",
            _ => true,
        };
        if !fits {
            return Err(wrong(format!("The {kind} block at {place} is not allowed in a message of role {role}.")));
        }
        match kind.as_str() {
            "text" => {
                let text = inner.as_str().unwrap_or_default();
                not_blank(text, "ContentBlock", &place)?;
                has_text = true;
                if role == "user" {
                    found.last.add_text(text);
                }
            }
            "toolUse" => {
                found.tools = true;
                if !inner["input"].is_object() {
                    return Err(wrong(format!(
                        "The format of the value at {place}.toolUse.input is invalid. Provide a json object for the field and try again."
                    )));
                }
                let id = inner["toolUseId"].as_str().unwrap_or_default();
                if calls.contains(&id) {
                    return Err(wrong(format!(
                        "The toolUse blocks at messages.{at}.content contain duplicate Ids: {id}"
                    )));
                }
                calls.push(id);
            }
            "toolResult" => {
                found.tools = true;
                let id = inner["toolUseId"].as_str().unwrap_or_default();
                let Some(known) = waiting.iter().position(|call| *call == id) else {
                    return Err(wrong(format!(
                        "The number of toolResult blocks at messages.{at}.content exceeds the number of toolUse blocks \
                         of previous turn."
                    )));
                };
                waiting.remove(known);
                let text = result(inner, &place, found)?;
                found.last.tool_results.push(text);
            }
            "document" => {
                has_document = true;
                document(inner, &place, found)?;
                found.last.other_blocks += 1;
            }
            "cachePoint" => found.cache_points += 1,
            _ => {
                found.images += usize::from(kind == "image");
                found.last.other_blocks += usize::from(role == "user");
            }
        }
    }
    if has_document && !has_text {
        return Err(wrong(format!(
            "The Message object at messages.{at} has a document and no text. Add a text ContentBlock to it and try again."
        )));
    }
    if found.images > 20 {
        return Err(wrong("Too many images: at most 20 are allowed."));
    }
    Ok(calls)
}

fn not_blank(text: &str, kind: &str, place: &str) -> Result<(), Failure> {
    match text.trim().is_empty() {
        false => Ok(()),
        true => Err(wrong(format!(
            "The text field in the {kind} object at {place} is blank. Add text to the text field, and try again."
        ))),
    }
}

fn result(inner: &Value, place: &str, found: &mut Conversation) -> Result<String, Failure> {
    let content = items(&inner["content"]);
    if content.is_empty() {
        return Err(wrong(format!("The content field in the ToolResultBlock object at {place}.toolResult is empty.")));
    }
    let mut text = String::new();
    for (number, part) in content.iter().enumerate() {
        let place = format!("{place}.toolResult.content.{number}");
        if let Some(said) = part["text"].as_str() {
            not_blank(said, "ToolResultContentBlock", &place)?;
            join(&mut text, said);
        } else if let Some(json) = part.get("json") {
            if !json.is_object() {
                return Err(wrong(format!(
                    "The format of the value at {place}.json is invalid. Provide a json object for the field and try again."
                )));
            }
            join(&mut text, &json.to_string());
        } else if let Some(inner) = part.get("document") {
            document(inner, &place, found)?;
        } else {
            found.images += usize::from(part.get("image").is_some());
        }
    }
    Ok(text)
}

fn document(inner: &Value, place: &str, found: &mut Conversation) -> Result<(), Failure> {
    let name = inner["name"].as_str().unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter.is_whitespace() || "-()[]".contains(letter);
    let doubled = name.chars().zip(name.chars().skip(1)).any(|(a, b)| a.is_whitespace() && b.is_whitespace());
    if !name.chars().all(plain) || doubled {
        return Err(wrong(format!(
            "The document file name at {place} contains invalid characters. File names can only contain alphanumeric \
             characters, whitespace characters, hyphens, parentheses, and square brackets. The name can't contain more \
             than one consecutive whitespace character."
        )));
    }
    if inner.get("format").is_none() && inner["source"].get("bytes").is_some() {
        return Err(wrong(format!("The document at {place} has bytes and no format. Add a format and try again.")));
    }
    if found.documents.iter().any(|known| known == name) {
        return Err(wrong(format!(
            "The document file name at {place} is not unique: {name}. Document file names must be unique."
        )));
    }
    found.documents.push(name.to_owned());
    match found.documents.len() {
        0..=5 => Ok(()),
        _ => Err(wrong("Too many documents: at most 5 are allowed.")),
    }
}
