//! The messages of a chat request as turns of the Messages format. There, instructions stand apart, results of tools
//! belong to the user, and what the model said is a list of blocks.

use std::mem;

use serde_json::value::RawValue;

use super::content::{content, instruction, spoken, texts};
use super::request::Object;
use crate::envelope::Violation;
use crate::envelope::check::{self, Place};
use crate::error::ErrorType;
use crate::json::Members;

/// Both parts as JSON.
pub(super) struct Conversation {
    pub system: Option<String>,
    pub messages: String,
}

/// What was written so far.
#[derive(Default)]
struct Turns {
    system: Vec<String>,
    messages: Vec<String>,
    /// Results that wait for the last of theirs.
    results: Vec<String>,
}

pub(super) fn conversation(place: &Place<'_>, entries: &[&RawValue]) -> Result<Conversation, Violation> {
    let mut turns = Turns::default();
    for (index, entry) in entries.iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, entry)?;
        let role = check::required(&place, &members, "role")?;
        let roles = ["system", "developer", "user", "assistant", "tool"];
        let role = check::one_of(&place.member("role"), role, &roles);
        let role = role.map_err(|violation| Violation { error_type: ErrorType::InvalidPrompt, ..violation })?;
        match role.as_ref() {
            "tool" => turns.results.push(result(&place, &members)?),
            "system" | "developer" => {
                let said = check::required(&place, &members, "content")?;
                let said = texts(&place.member("content"), said)?;
                turns.instruct(said);
            }
            "user" => {
                let said = content(&place.member("content"), check::required(&place, &members, "content")?)?;
                turns.say("user", &said);
            }
            _ => turns.say("assistant", &spoken(&place, &members)?),
        }
    }
    turns.tell_results();
    let Turns { system, messages, .. } = turns;
    Ok(Conversation {
        system: (!system.is_empty()).then(|| instruction(&system)),
        messages: format!("[{}]", messages.join(",")),
    })
}

impl Turns {
    fn say(&mut self, role: &str, content: &str) {
        self.tell_results();
        let mut message = Object::default();
        message.set_text("role", role);
        message.set("content", content);
        self.messages.push(message.finish());
    }

    /// What comes before all else is the system's; what comes later stays where it is.
    fn instruct(&mut self, blocks: Vec<String>) {
        if self.messages.is_empty() && self.results.is_empty() {
            self.system.extend(blocks);
        } else {
            self.say("system", &instruction(&blocks));
        }
    }

    fn tell_results(&mut self) {
        let results = mem::take(&mut self.results);
        if !results.is_empty() {
            let content = format!("[{}]", results.join(","));
            self.say("user", &content);
        }
    }
}

/// What a tool answered.
fn result(place: &Place<'_>, members: &Members<'_>) -> Result<String, Violation> {
    let id = check::required(place, members, "tool_call_id")?;
    check::text_between(&place.member("tool_call_id"), id, 1, usize::MAX)?;
    let mut block = Object::default();
    block.set_text("type", "tool_result");
    block.set("tool_use_id", id.get());
    if let Some(said) = check::present(members, "content") {
        block.set("content", &content(&place.member("content"), said)?);
    }
    Ok(block.finish())
}
