//! What only a beta allows, where that beta is not taken and a member of the body is not all of it: those who resell the
//! models refuse the whole call for it, and servers of others drop it without a word. Changes of the tools on the way of a
//! conversation are made here instead, in the list of tools.

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_wire::envelope::Traits;
use tidegate_wire::json::{self, Members};
use tidegate_wire::messages::Message;

use super::edit::{Raw, Rules, freed, is_kind, is_role, push_member};
use super::marker::{move_marker, unmarked};
use super::merge;
use crate::translate::offer::Changes;

/// The body without it, and what was changed for that; nothing where none of it is there.
pub(super) fn fitted(body: &Bytes, traits: Traits, rules: &Rules<'_>) -> Option<(Bytes, Vec<String>)> {
    let withheld = rules.withheld;
    let may_scope = withheld.cache_scope && traits.cache_lifetime;
    // A turn that becomes a note of the user's takes its changes along, whoever could have read them.
    let may_change = traits.system_message && (withheld.tool_changes || !rules.card.mid_system);
    let may_config = traits.system_message && withheld.turn_config;
    if !(may_scope || may_change || may_config || withheld.eager_streaming) {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let mut gate = Gate {
        rules,
        has_scope: may_scope && text.contains(r#""scope""#),
        is_eager: withheld.eager_streaming && text.contains(EAGER),
        has_changes: may_change && (text.contains(r#""tool_removal""#) || text.contains(r#""tool_addition""#)),
        has_config: may_config && text.contains(r#""output_config""#),
        warnings: Vec::new(),
    };
    if !(gate.has_scope || gate.is_eager || gate.has_changes || gate.has_config) {
        return None;
    }
    let members = serde_json::from_str::<&RawValue>(text).ok().and_then(Members::of)?;
    let made = gate.body(&members);
    Some((made.into(), gate.warnings))
}

const EAGER: &str = "eager_input_streaming";

struct Gate<'r> {
    rules: &'r Rules<'r>,
    has_scope: bool,
    is_eager: bool,
    has_changes: bool,
    has_config: bool,
    warnings: Vec<String>,
}

/// The tools as they are offered.
struct Offered {
    tools: Vec<String>,
    /// One that was there is there no more.
    is_less: bool,
}

impl Gate<'_> {
    fn warn(&mut self, warning: &str) {
        if !self.warnings.iter().any(|known| known == warning) {
            self.warnings.push(warning.to_owned());
        }
    }

    fn body(&mut self, members: &Members<'_>) -> String {
        let messages = members.get("messages").and_then(json::elements).unwrap_or_default();
        let is_system = |message: &&&RawValue| self.has_changes && is_role(message, "system");
        let turns: Vec<Message> =
            messages.iter().filter(is_system).filter_map(|turn| serde_json::from_str(turn.get()).ok()).collect();
        let changes = Changes::of(&turns);
        let offered = members.get("tools").and_then(json::elements).map(|tools| self.tools(&tools, &changes));
        let is_none_left = offered.as_ref().is_some_and(|offered| offered.is_less && offered.tools.is_empty());
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            match (name.as_ref(), &offered) {
                ("messages", _) => push_member(&mut out, name, &self.messages(value)),
                ("tools", Some(_)) if is_none_left => {}
                ("tools", Some(offered)) => push_member(&mut out, name, &format!("[{}]", offered.tools.join(","))),
                ("tool_choice", Some(offered)) if offered.is_less => {
                    let choice = self.choice(value, &changes, is_none_left);
                    // Nothing can be chosen from nothing.
                    if !is_none_left {
                        push_member(&mut out, name, &choice);
                    }
                }
                ("system", _) => push_member(&mut out, name, &self.unscoped(value, 1)),
                ("cache_control", _) => push_member(&mut out, name, &self.unscoped(value, 0)),
                _ => push_member(&mut out, name, value.get()),
            }
        }
        out.push('}');
        out
    }

    fn tools(&mut self, tools: &[&RawValue], changes: &Changes<'_>) -> Offered {
        let mut made = Vec::with_capacity(tools.len());
        for tool in tools {
            let Some(members) = Members::of(tool) else {
                made.push(tool.get().to_owned());
                continue;
            };
            let name = members.get("name").and_then(json::string).unwrap_or_default();
            if changes.withdrawn.contains(name.as_ref()) {
                continue;
            }
            let is_added = changes.added.contains(name.as_ref());
            let mut out = String::from("{");
            for (name, value) in &members.0 {
                match name.as_ref() {
                    "defer_loading" if is_added => {}
                    EAGER if self.is_eager => self.warn("dropped:eager_input_streaming"),
                    "cache_control" => push_member(&mut out, name, &self.unscoped(value, 0)),
                    _ => push_member(&mut out, name, value.get()),
                }
            }
            out.push('}');
            made.push(out);
        }
        Offered { is_less: made.len() < tools.len(), tools: made }
    }

    /// Nobody can be made to call what is not there.
    fn choice(&mut self, value: &RawValue, changes: &Changes<'_>, is_none_left: bool) -> String {
        let word = |name: &str| Members::of(value)?.get(name).and_then(json::string);
        let is_forced = match word("type").as_deref() {
            Some("tool") => word("name").is_some_and(|name| changes.withdrawn.contains(name.as_ref())),
            Some("any") => is_none_left,
            _ => false,
        };
        match freed(value).filter(|_| is_forced) {
            Some(made) => {
                self.warn("changed:tool_choice");
                made
            }
            None => value.get().to_owned(),
        }
    }

    fn messages(&mut self, value: &RawValue) -> String {
        let Some(messages) = json::elements(value) else { return value.get().to_owned() };
        let count = messages.len();
        let mut made: Vec<String> = Vec::with_capacity(count);
        for message in messages {
            let text = self.unscoped(message, 1);
            // One that no instruction is left of was only about the tools.
            made.extend(if is_role(message, "system") { self.turn(&text) } else { Some(text) });
        }
        // Anthropic's own servers join what stands side by side now.
        if made.len() < count && self.rules.card.foreign {
            made = merge::turns(made);
        }
        format!("[{}]", made.join(","))
    }

    /// An instruction between turns, of which nothing may be left.
    fn turn(&mut self, text: &str) -> Option<String> {
        let Some(members) = serde_json::from_str(text).ok().and_then(Members::of) else { return Some(text.to_owned()) };
        let mut out = String::from("{");
        for (name, value) in &members.0 {
            match (name.as_ref(), json::elements(value)) {
                ("content", Some(blocks)) if self.has_changes => {
                    let mut kept: Vec<Raw<'_>> = Vec::with_capacity(blocks.len());
                    let had_some = !blocks.is_empty();
                    for block in blocks {
                        if is_kind(block, "tool_removal") || is_kind(block, "tool_addition") {
                            move_marker(block, &mut kept);
                        } else {
                            kept.push(block.get().into());
                        }
                    }
                    if had_some && kept.is_empty() {
                        return None;
                    }
                    push_member(&mut out, name, &format!("[{}]", kept.join(",")));
                }
                ("output_config", _) if self.has_config => self.warn("dropped:system_message.output_config"),
                _ => push_member(&mut out, name, value.get()),
            }
        }
        out.push('}');
        Some(out)
    }

    /// A value whose cache markers say nothing of whom they are for. At a `depth` of 0 it is a marker itself.
    fn unscoped(&mut self, value: &RawValue, depth: usize) -> String {
        let count = |text: &str| text.matches(r#""scope""#).count();
        if !(self.has_scope && count(value.get()) > 0) {
            return value.get().to_owned();
        }
        let made = unmarked(value, depth, &["scope"]);
        if count(&made) < count(value.get()) {
            self.warn("dropped:cache_control.scope");
        }
        made
    }
}

#[cfg(test)]
#[path = "gated_tests.rs"]
mod tests;
