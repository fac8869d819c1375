//! `context_management` where the upstream has no word for it: old results of tools and old thinking are taken out of a
//! conversation before it is translated, in the order of the edits. Compaction is not done here.

use std::collections::{HashMap, HashSet};

use tidegate_wire::messages::{
    AppliedEdit, AppliedEdits, Block, ClearThinking, ClearToolInputs, ClearToolUses, Content, Edit, KeepThinking,
    Message, Request, Role, Threshold,
};
use tidegate_wire::object::Raw;

use crate::estimate::Meter;
use crate::translate::Card;
use crate::translate::conversation::since_summary;

/// What stands where a result was.
const CLEARED: &str = "[cleared]";
/// What starts an edit where the request does not say it, in tokens.
const TRIGGER: u64 = 100_000;
/// Calls that keep their results, and turns that keep their thinking.
const KEPT_USES: u64 = 3;
const KEPT_TURNS: u64 = 1;

/// A conversation after the edits that it asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Cleared {
    /// Asks for no edits any more.
    pub request: Request,
    pub applied: AppliedEdits,
    /// Edits that are not done here.
    pub skipped: Vec<String>,
}

impl Cleared {
    /// Tokens that are not there any more.
    pub fn tokens(&self) -> u64 {
        self.applied.applied_edits.iter().filter_map(|edit| edit.cleared_input_tokens).sum()
    }
}

/// Does the edits that a request asks for; nothing where it has no word of them.
pub fn cleared(request: &Request, card: &Card) -> Option<Cleared> {
    let edits = request.context_management.as_ref()?.edits.clone().unwrap_or_default();
    let mut made = since_summary(request).into_owned();
    made.context_management = None;
    let meter = Meter::of(&made, card);
    let around = meter.around(&made);
    let (mut applied, mut skipped) = (Vec::new(), Vec::new());
    for edit in &edits {
        match edit {
            Edit::ClearToolUses(edit) => applied.extend(clear_uses(&mut made.messages, edit, &meter, around)),
            Edit::ClearThinking(edit) => applied.extend(clear_thinking(&mut made.messages, edit, &meter)),
            other => skipped.push(other.kind().to_owned()),
        }
    }
    Some(Cleared { request: made, applied: AppliedEdits::new(applied), skipped })
}

fn total(messages: &[Message], meter: &Meter<'_>) -> u64 {
    messages.iter().map(|message| meter.message(message)).sum()
}

fn value(threshold: Option<&Threshold>, otherwise: u64) -> u64 {
    threshold.and_then(|threshold| threshold.value).unwrap_or(otherwise)
}

fn clear_uses(
    messages: &mut Vec<Message>,
    edit: &ClearToolUses,
    meter: &Meter<'_>,
    around: u64,
) -> Option<AppliedEdit> {
    let uses = answered(messages);
    let before = total(messages, meter);
    let limit = value(edit.trigger.as_ref(), TRIGGER);
    let is_due = match edit.trigger.as_ref().map(|trigger| trigger.kind.as_str()) {
        Some("tool_uses") => uses.len() as u64 > limit,
        _ => around + before > limit,
    };
    if !is_due {
        return None;
    }
    let kept = usize::try_from(value(edit.keep.as_ref(), KEPT_USES)).unwrap_or(usize::MAX);
    let spared = edit.exclude_tools.as_deref().unwrap_or_default();
    let old = &uses[..uses.len().saturating_sub(kept)];
    let gone: HashMap<&str, &str> =
        old.iter().filter(|(_, name)| !spared.contains(name)).map(|(id, name)| (id.as_str(), name.as_str())).collect();
    if gone.is_empty() {
        return None;
    }
    let mut made = messages.clone();
    for block in made.iter_mut().flat_map(parts_mut) {
        match block {
            Block::ToolResult(result) if gone.contains_key(result.tool_use_id.as_str()) => {
                result.content = Some(Content::Text(CLEARED.to_owned()));
            }
            Block::ToolUse(call) if gone.contains_key(call.id.as_str()) && loses_input(edit, &call.name) => {
                call.input = Some(Raw::empty_object());
            }
            _ => {}
        }
    }
    let tokens = before.saturating_sub(total(&made, meter));
    // A cache that is lost for too little is not worth it.
    if tokens < value(edit.clear_at_least.as_ref(), 0) {
        return None;
    }
    let count = gone.len() as u64;
    *messages = made;
    let mut told = AppliedEdit::new("clear_tool_uses_20250919".to_owned());
    (told.cleared_tool_uses, told.cleared_input_tokens) = (Some(count), Some(tokens));
    Some(told)
}

fn loses_input(edit: &ClearToolUses, name: &str) -> bool {
    match &edit.clear_tool_inputs {
        None => false,
        Some(ClearToolInputs::All(all)) => *all,
        Some(ClearToolInputs::Tools(tools)) => tools.iter().any(|tool| tool == name),
    }
}

/// Calls that have a result, oldest first: their ids and the names of their tools.
fn answered(messages: &[Message]) -> Vec<(String, String)> {
    let all = || messages.iter().flat_map(parts);
    let results: HashSet<&str> = all()
        .filter_map(|block| match block {
            Block::ToolResult(result) => Some(result.tool_use_id.as_str()),
            _ => None,
        })
        .collect();
    all()
        .filter_map(|block| match block {
            Block::ToolUse(call) if results.contains(call.id.as_str()) => Some((call.id.clone(), call.name.clone())),
            _ => None,
        })
        .collect()
}

fn clear_thinking(messages: &mut [Message], edit: &ClearThinking, meter: &Meter<'_>) -> Option<AppliedEdit> {
    let kept = match &edit.keep {
        Some(keep) if keep.is_all() => return None,
        Some(KeepThinking::Threshold(threshold)) => value(Some(threshold), KEPT_TURNS),
        Some(KeepThinking::Word(_)) | None => KEPT_TURNS,
    };
    let turns = turns(messages);
    let mut thoughtful: Vec<usize> = Vec::new();
    for (message, turn) in messages.iter().zip(&turns) {
        if parts(message).iter().any(is_thinking) && thoughtful.last() != Some(turn) {
            thoughtful.push(*turn);
        }
    }
    // Whoever is in the middle of a turn needs what it thought: some upstreams refuse its calls without.
    let kept = usize::try_from(kept.max(1)).unwrap_or(usize::MAX);
    let old: HashSet<usize> = thoughtful[..thoughtful.len().saturating_sub(kept)].iter().copied().collect();
    if old.is_empty() {
        return None;
    }
    let before = total(messages, meter);
    for (message, turn) in messages.iter_mut().zip(&turns) {
        if let Content::Blocks(blocks) = &mut message.content
            && old.contains(turn)
        {
            blocks.retain(|block| !is_thinking(block));
        }
    }
    let mut told = AppliedEdit::new("clear_thinking_20251015".to_owned());
    told.cleared_thinking_turns = Some(old.len() as u64);
    told.cleared_input_tokens = Some(before.saturating_sub(total(messages, meter)));
    Some(told)
}

/// The turn that each message belongs to: a new one begins when a person speaks, not when a tool answers.
fn turns(messages: &[Message]) -> Vec<usize> {
    let is_answer = |message: &Message| parts(message).iter().any(|block| matches!(block, Block::ToolResult(_)));
    let mut turn = 0;
    let numbered = messages.iter().map(|message| {
        if message.role == Role::User && !is_answer(message) {
            turn += 1;
        }
        turn
    });
    numbered.collect()
}

fn is_thinking(block: &Block) -> bool {
    matches!(block, Block::Thinking(_) | Block::RedactedThinking(_))
}

fn parts(message: &Message) -> &[Block] {
    match &message.content {
        Content::Blocks(blocks) => blocks,
        Content::Text(_) => &[],
    }
}

fn parts_mut(message: &mut Message) -> &mut [Block] {
    match &mut message.content {
        Content::Blocks(blocks) => blocks,
        Content::Text(_) => &mut [],
    }
}

#[cfg(test)]
#[path = "clear_tests.rs"]
mod tests;
