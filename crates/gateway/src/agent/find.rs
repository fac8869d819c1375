//! `tool_search`: tools that the model gets to see only once it has looked for them.

use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_tools::find::{self, Entry, LONGEST_PATTERN, LONGEST_QUERY, Unusable};

use super::reader::Reader;
use super::run::Outcome;
use super::turn::is;
use crate::failure::Failure;

/// Its name behind the brand.
pub(super) const NAME: &str = "tool_search";
const BLOCK: &str = "tool_search_tool_result";
/// Tools that one search finds, when the request says nothing else, and at most.
const USUAL: u64 = 5;
const MOST: u64 = 50;

/// What is looked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Pattern,
    Words,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Find {
    by: By,
    most: u64,
    /// What there is to find; known once all tools of a request have been read.
    pub entries: Arc<Vec<Entry>>,
}

/// Whether it is a type of Anthropic's own.
pub(super) fn is_vendors(wire: &str) -> bool {
    wire.starts_with("tool_search_tool_")
}

impl Find {
    /// `is_vendors`: its members stand in the entry itself.
    pub fn of(reader: &Reader<'_>, wire: &str, is_vendors: bool) -> Result<Self, Failure> {
        let by = match wire {
            "tool_search_tool_bm25" | "tool_search_tool_bm25_20251119" => By::Words,
            "tool_search_tool_regex" | "tool_search_tool_regex_20251119" => By::Pattern,
            _ if is_vendors => {
                let known = "tool_search_tool_regex_20251119, tool_search_tool_bm25_20251119";
                return Err(reader.wrong("type", &format!("'{wire}' is not known: use one of {known}")));
            }
            _ => By::Pattern,
        };
        let most = if is_vendors { None } else { reader.number("max_results", MOST)? };
        Ok(Self { by, most: most.unwrap_or(USUAL), entries: Arc::default() })
    }

    /// As the model calls it, and as its calls are called in answers.
    pub fn function(&self) -> &'static str {
        match self.by {
            By::Pattern => "tool_search_tool_regex",
            By::Words => "tool_search_tool_bm25",
        }
    }

    pub fn required(&self) -> &'static [&'static str] {
        match self.by {
            By::Pattern => &["pattern"],
            By::Words => &["query"],
        }
    }

    pub fn description(&self) -> (String, Value) {
        let (how, name, text, longest) = match self.by {
            By::Pattern => {
                ("a regular expression", "pattern", "A regular expression; letters match in any case", LONGEST_PATTERN)
            }
            By::Words => ("words", "query", "Words that describe what the tool must do", LONGEST_QUERY),
        };
        let description = format!(
            "Searches for further tools by {how} over their names, descriptions and arguments. There are tools that are not \
             listed; call this when none of those listed does what is needed, before saying that something cannot be done. \
             What it finds can be called afterwards, by its name. At most {} at a time.",
            self.most
        );
        let properties = json!({
            name: {"type": "string", "description": text, "minLength": 1, "maxLength": longest},
            "limit": {"type": "integer", "description": "How many to find at most", "minimum": 1},
        });
        (description, properties)
    }

    pub fn run(&self, input: &Value) -> Outcome {
        let text = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default();
        let limit = input.get("limit").and_then(Value::as_u64).unwrap_or(self.most).clamp(1, self.most);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let found = match self.by {
            By::Pattern => find::by_pattern(&self.entries, text("pattern"), limit),
            By::Words => find::by_words(&self.entries, text("query"), limit),
        };
        match found {
            Ok(names) => {
                let references: Vec<Value> =
                    names.iter().map(|name| json!({"type": "tool_reference", "tool_name": name})).collect();
                let content = json!({"type": "tool_search_tool_search_result", "tool_references": references});
                let found = names.into_iter().map(str::to_owned).collect();
                Outcome { text: told(&content).0, found, shown: Some((BLOCK.into(), content)), ..Outcome::default() }
            }
            Err(problem) => failed_for("invalid_tool_input", self.problem(problem)),
        }
    }

    fn problem(&self, problem: Unusable) -> &'static str {
        match (problem, self.by) {
            (Unusable::TooLong, By::Pattern) => "The pattern is too long; use at most 200 characters.",
            (Unusable::TooLong, By::Words) => "The query is too long; use at most 500 characters.",
            (Unusable::Pattern, _) => "The pattern is not a regular expression that can be used here.",
            (Unusable::Empty, By::Pattern) => "pattern must be a text of 1 to 200 characters.",
            (Unusable::Empty, By::Words) => "query must be a text of 1 to 500 characters.",
        }
    }
}

/// A search that the loop did not run.
pub(super) fn failed(code: &str, message: &str) -> Outcome {
    // The public words have none for a call beyond those that may be made.
    failed_for(if code == "max_uses_exceeded" { "too_many_requests" } else { code }, message)
}

fn failed_for(code: &str, message: &str) -> Outcome {
    let content = json!({"type": "tool_search_tool_result_error", "error_code": code, "error_message": message});
    Outcome { text: told(&content).0, is_error: true, shown: Some((BLOCK.into(), content)), ..Outcome::default() }
}

/// What the model reads of a result, and whether it is an error: the same now and when the block comes back.
pub(super) fn told(content: &Value) -> (String, bool) {
    let member = |name: &str| content.get(name).cloned().unwrap_or_default();
    if content.get("type").and_then(Value::as_str) != Some("tool_search_tool_search_result") {
        return (json!({"error": member("error_code"), "message": member("error_message")}).to_string(), true);
    }
    let names: Vec<Value> = references(content).into_iter().map(Value::String).collect();
    let hint = if names.is_empty() { "Nothing fits; try other words." } else { "These tools can be called now." };
    (format!("{}\n{hint}", json!({"tools": names})), false)
}

/// The names of the deferred tools that can be called by now: those that were found, and those that were added.
pub(super) fn callable(messages: &[Value]) -> Vec<String> {
    [referenced(messages), added(messages)].concat()
}

/// The names in all references to tools that messages hold, in their order.
fn referenced(messages: &[Value]) -> Vec<String> {
    messages.iter().filter_map(|message| message.get("content")).flat_map(references).collect()
}

/// The names of the tools that instructions between turns add.
fn added(messages: &[Value]) -> Vec<String> {
    let system = messages.iter().filter(|message| message.get("role").and_then(Value::as_str) == Some("system"));
    let blocks = system.filter_map(|message| message.get("content")?.as_array()).flatten();
    let additions = blocks.filter(|block| is(block, "tool_addition"));
    additions.filter_map(|block| block.pointer("/tool/name")?.as_str().map(str::to_owned)).collect()
}

/// Whether each tool of a request that is deferred is added between its turns, so that nobody need find it.
pub(super) fn are_added(request: &Value) -> bool {
    let list = |name: &str| request.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let added = added(list("messages"));
    let deferred = list("tools").iter().filter(|tool| tool.get("defer_loading") == Some(&Value::Bool(true)));
    let name = |tool: &Value| tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    deferred.map(name).all(|name| added.contains(&name))
}

fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Array(entries) => entries.iter().flat_map(references).collect(),
        Value::Object(_) if is(value, "tool_reference") => {
            value.get("tool_name").and_then(Value::as_str).map(str::to_owned).into_iter().collect()
        }
        Value::Object(members) => {
            let inside = ["content", "tool_references"];
            inside.iter().filter_map(|name| members.get(*name)).flat_map(references).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_found_wherever_a_message_holds_them() {
        let reference = |name: &str| json!({"type": "tool_reference", "tool_name": name});
        let found =
            json!({"type": "tool_search_tool_search_result", "tool_references": [reference("a"), reference("b")]});
        let messages = [
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": [{"type": BLOCK, "tool_use_id": "x", "content": found}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "y", "content": [reference("c")]}]}),
        ];
        assert_eq!(referenced(&messages), ["a", "b", "c"]);
    }

    #[test]
    fn tools_are_added_between_turns() {
        let add = |name: &str| json!({"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}});
        let request = |names: &[&str]| {
            json!({"tools": [{"name": "f", "defer_loading": true}, {"name": "g"}],
                "messages": [{"role": "user", "content": "hi"},
                    {"role": "system", "content": names.iter().map(|name| add(name)).collect::<Vec<_>>()}]})
        };
        assert_eq!(added(request(&["f", "h"])["messages"].as_array().unwrap()), ["f", "h"]);
        assert!(are_added(&request(&["f"])) && !are_added(&request(&["g"])) && !are_added(&request(&[])));
    }

    #[test]
    fn what_is_found_is_told_in_the_same_words_when_it_comes_back() {
        let entries =
            [json!({"name": "get_tide", "input_schema": {}}), json!({"name": "get_berth", "input_schema": {}})];
        let entries = entries.iter().filter_map(Entry::of).collect();
        let find = Find { by: By::Pattern, most: 5, entries: Arc::new(entries) };
        let outcome = find.run(&json!({"pattern": "^get", "limit": 1}));
        assert_eq!(outcome.found, ["get_tide"]);
        let (block, content) = outcome.shown.unwrap();
        assert_eq!(block, "tool_search_tool_result");
        assert_eq!(told(&content), (outcome.text, false));
        let outcome = find.run(&json!({"pattern": "("}));
        let (_, content) = outcome.shown.unwrap();
        assert_eq!((&content["error_code"], outcome.is_error), (&json!("invalid_tool_input"), true));
        assert_eq!(told(&content), (outcome.text, true));
    }
}
