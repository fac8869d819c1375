//! The messages of a chat request as turns of the Messages format. There, instructions stand apart, results of tools
//! belong to the user, and what the model said is a list of blocks.

use std::mem;

use serde_json::value::RawValue;

use super::content::{content, instruction, spoken, texts};
use super::request::{Object, warn};
use crate::envelope::Violation;
use crate::envelope::check::{self, Place};
use crate::error::ErrorType;
use crate::json::{self, Members};

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
    /// Calls without a result, and what was said meanwhile: results come right behind their calls.
    unanswered: usize,
    later: Vec<(&'static str, String)>,
}

pub(super) fn conversation(
    place: &Place<'_>,
    entries: &[&RawValue],
    warnings: &mut Vec<String>,
) -> Result<Conversation, Violation> {
    let mut turns = Turns::default();
    for (index, entry) in entries.iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, entry)?;
        let role = check::required(&place, &members, "role")?;
        let roles = ["system", "developer", "user", "assistant", "tool"];
        let role = check::one_of(&place.member("role"), role, &roles);
        let role = role.map_err(|violation| Violation { error_type: ErrorType::InvalidPrompt, ..violation })?;
        // There, nobody has a name; that of a tool is known from its call.
        if role != "tool" && check::present(&members, "name").is_some() {
            warn(warnings, "dropped:messages.name");
        }
        match role.as_ref() {
            "tool" => {
                turns.results.push(result(&place, &members, warnings)?);
                turns.unanswered = turns.unanswered.saturating_sub(1);
                turns.tell_later();
            }
            "system" | "developer" => {
                let said = check::required(&place, &members, "content")?;
                let said = texts(&place.member("content"), said)?;
                turns.instruct(said);
            }
            "user" => {
                let said = check::required(&place, &members, "content")?;
                let said = content(&place.member("content"), said, warnings)?;
                turns.say_after_results("user", said);
            }
            _ => {
                let said = spoken(&place, &members, warnings)?;
                turns.waits_for(&members);
                // One that said nothing is refused, and says nothing; the last may be a beginning of what is to come.
                if said != r#""""# || index + 1 == entries.len() {
                    turns.say("assistant", &said);
                }
            }
        }
    }
    turns.unanswered = 0;
    turns.tell_later();
    turns.tell_results();
    if turns.messages.is_empty() && !turns.system.is_empty() {
        // Instructions alone are what is asked: there, somebody must have said something.
        let said = instruction(&mem::take(&mut turns.system));
        turns.say("user", &said);
    }
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
            self.say_after_results("system", instruction(&blocks));
        }
    }

    /// The calls of what the model says now must be answered before anything else is said.
    fn waits_for(&mut self, members: &Members<'_>) {
        self.unanswered = 0;
        self.tell_later();
        let calls = check::present(members, "tool_calls").and_then(json::elements);
        self.unanswered = calls.map_or(0, |calls| calls.len());
    }

    fn say_after_results(&mut self, role: &'static str, content: String) {
        match self.unanswered {
            0 => self.say(role, &content),
            _ => self.later.push((role, content)),
        }
    }

    fn tell_later(&mut self) {
        if self.unanswered == 0 {
            for (role, content) in mem::take(&mut self.later) {
                self.say(role, &content);
            }
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
fn result(place: &Place<'_>, members: &Members<'_>, warnings: &mut Vec<String>) -> Result<String, Violation> {
    let id = check::required(place, members, "tool_call_id")?;
    check::text_between(&place.member("tool_call_id"), id, 1, usize::MAX)?;
    let mut block = Object::default();
    block.set_text("type", "tool_result");
    block.set("tool_use_id", id.get());
    if let Some(said) = check::present(members, "content") {
        block.set("content", &content(&place.member("content"), said, warnings)?);
    }
    Ok(block.finish())
}
