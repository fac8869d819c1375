//! Looks through a request: the words of all sides, what is said of tools, their arguments and results. What was found is taken out, told, or
//! refuses the request.

use std::collections::HashMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Number, Value, json};
use tidegate_providers::translate::carrier::Carrier;
use tidegate_store::guardrails::{Action, Builtin};
use tidegate_wire::error::ErrorType;

use super::{Filter, Held, Sought, find, injection};
use crate::failure::Failure;

/// Phrases that are told at most.
const MOST_PHRASES: usize = 20;
/// Members whose text is not said to a model: names, references, and what is sealed or encoded.
const UNSAID: [&str; 9] = [
    "type",
    "id",
    "tool_use_id",
    "signature",
    "encrypted_content",
    "encrypted_index",
    "cache_control",
    "media_type",
    "caller",
];

/// Places of a text that look like JSON and are not; those behind them are looked at as they are written.
const MOST_BROKEN: usize = 16;
/// Levels of JSON in texts of JSON that are read; deeper ones are looked at as they are written.
const MOST_LEVELS: usize = 4;

/// Types of texts whose names do not say so.
const TEXTS: [&str; 2] = ["application/csv", "application/xhtml+xml"];

/// A request that may go on.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    /// In place of the one that came, where something was taken out.
    pub body: Option<Bytes>,
    pub judged: Judged,
}

/// What is told of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Judged {
    /// Entries of `pipeline`, as JSON.
    pub entries: Vec<String>,
    /// What kind of filter did what.
    pub events: Vec<(&'static str, &'static str)>,
}

impl Judged {
    /// What was not told before.
    pub fn without(self, told: &[String]) -> Self {
        let (entries, events) =
            self.entries.into_iter().zip(self.events).filter(|(entry, _)| !told.contains(entry)).unzip();
        Self { entries, events }
    }

    /// Adds what is not told yet.
    pub fn add(&mut self, more: Self) {
        let more = more.without(&self.entries);
        self.entries.extend(more.entries);
        self.events.extend(more.events);
    }
}

/// A request that may not.
#[derive(Debug)]
pub(crate) struct Blocked {
    pub failure: Failure,
    pub judged: Judged,
}

/// What was found by each filter, in their order.
struct Findings<'h> {
    held: &'h Held,
    counts: Vec<usize>,
    phrases: Vec<String>,
}

impl Held {
    /// Looks through the body of a request.
    pub fn scan(&self, body: &Bytes) -> Result<Passed, Box<Blocked>> {
        self.scan_turn(body, usize::MAX)
    }

    /// The same for a turn of a loop, of which so many messages were there before it began. What the model itself said since
    /// then is known to whom it goes, and its calls were looked at before they were run.
    pub fn scan_turn(&self, body: &Bytes, begun: usize) -> Result<Passed, Box<Blocked>> {
        let Ok(mut request) = serde_json::from_slice::<Value>(body) else { return Err(unreadable()) };
        let mut findings = Findings { held: self, counts: vec![0; self.filters.len()], phrases: Vec::new() };
        let mut is_changed = false;
        let mut look = |value: &mut Value, is_user: bool| is_changed |= findings.inside(value, is_user, 0);
        if let Some(system) = request.get_mut("system") {
            content(system, false, &mut look);
        }
        // A turn has tools of ours among them, which nobody else wrote; the client's were looked at before it began.
        let tools = request.get_mut("tools").filter(|_| begun == usize::MAX).and_then(Value::as_array_mut);
        for tool in tools.into_iter().flatten() {
            each(tool, "input_examples", &mut |examples| look(examples, false));
            described(tool, &mut |text| each_said(text, &mut look));
        }
        let messages = request.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten();
        for (place, message) in messages.enumerate() {
            let role = message.get("role").and_then(Value::as_str);
            let (is_user, is_own) = (role == Some("user"), role == Some("assistant") && place >= begun);
            if let Some(said) = message.get_mut("content").filter(|_| !is_own) {
                content(said, is_user, &mut look);
            }
        }
        findings.judge(is_changed.then(|| request.to_string().into()))
    }
}

impl Held {
    /// Looks at the result of a tool before anybody reads it: what the model gets, and what the client is shown. False when
    /// it must be withheld.
    pub fn scan_result(&self, text: &mut String, shown: Option<&mut Value>) -> (bool, Judged) {
        self.scan_texts([text], shown)
    }

    /// Looks at the arguments of a call before it is run. False when it must not be.
    pub fn scan_call(&self, input: &mut Value) -> (bool, Judged) {
        let mut findings = Findings { held: self, counts: vec![0; self.filters.len()], phrases: Vec::new() };
        findings.inside(input, false, 0);
        match findings.judge(None) {
            Ok(passed) => (true, passed.judged),
            Err(blocked) => (false, blocked.judged),
        }
    }

    /// The same for what was found before anything is made of it.
    pub fn scan_texts<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t mut String>,
        shown: Option<&mut Value>,
    ) -> (bool, Judged) {
        let mut findings = Findings { held: self, counts: vec![0; self.filters.len()], phrases: Vec::new() };
        for text in texts {
            if let Some(redacted) = findings.deep(text, false, 0) {
                *text = redacted;
            }
        }
        if let Some(shown) = shown {
            said_in(shown, &mut |text| {
                if let Some(redacted) = findings.deep(text, false, 0) {
                    *text = redacted;
                }
            });
        }
        match findings.judge(None) {
            Ok(passed) => (true, passed.judged),
            Err(blocked) => (false, blocked.judged),
        }
    }
}

/// What cannot be looked through does not go on: numbers and characters that no program can hold hide what is beside them.
fn unreadable() -> Box<Blocked> {
    let text = "Invalid request: the body holds a number or a character that a content filter cannot read";
    let failure = Failure::new(400, ErrorType::InvalidRequest, text);
    Box::new(Blocked { failure, judged: Judged::default() })
}

/// What is said of a tool and of the members of its schema. Names and values stay: a call must fit them.
fn described(value: &mut Value, look: &mut dyn FnMut(&mut String)) {
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| match value {
            Value::String(text) if name == "description" => look(text),
            value => described(value, look),
        }),
        Value::Array(values) => values.iter_mut().for_each(|value| described(value, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Hands out what a message says, with whether a person said it.
fn content(said: &mut Value, is_user: bool, look: &mut dyn FnMut(&mut Value, bool)) {
    match said {
        Value::Array(blocks) => blocks.iter_mut().for_each(|block| one_block(block, is_user, look)),
        said => look(said, is_user),
    }
}

fn one_block(block: &mut Value, is_user: bool, look: &mut dyn FnMut(&mut Value, bool)) {
    match block.get("type").and_then(Value::as_str) {
        Some("text") => each(block, "text", &mut |text| look(text, is_user)),
        Some("tool_use" | "server_tool_use" | "mcp_tool_use") => each(block, "input", &mut |input| look(input, false)),
        Some("thinking") => thinking(block, look),
        Some("redacted_thinking" | "image" | "audio" | "container_upload") => {}
        Some("tool_result" | "mcp_tool_result") => {
            each(block, "content", &mut |inner| content(inner, false, look));
        }
        Some("document") => {
            each(block, "title", &mut |title| look(title, is_user));
            each(block, "context", &mut |context| look(context, is_user));
            each(block, "source", &mut |source| match source.get("type").and_then(Value::as_str) {
                Some("text") => each(source, "data", &mut |data| look(data, is_user)),
                Some("content") => each(source, "content", &mut |inner| content(inner, is_user, look)),
                _ => encoded(source, is_user, look),
            });
        }
        _ => said_in(block, &mut |text| each_said(text, look)),
    }
}

/// All that people say in a request, and the texts of documents wherever they give them. What tools answered is not theirs.
pub(crate) fn of_people(body: &Bytes) -> Result<Vec<String>, Failure> {
    let Ok(mut request) = serde_json::from_slice::<Value>(body) else { return Err(unreadable().failure) };
    let mut found = Vec::new();
    let mut look = |value: &mut Value, _: bool| each_text(value, &mut |text| found.push(text.clone()));
    for message in request.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        if message.get("role").and_then(Value::as_str) != Some("user") {
            continue;
        }
        match message.get_mut("content") {
            Some(Value::Array(blocks)) => blocks.iter_mut().for_each(|block| match answered(block) {
                Some(Value::Array(blocks)) => blocks
                    .iter_mut()
                    .filter(|block| is_document(block))
                    .for_each(|block| one_block(block, true, &mut look)),
                Some(_) => {}
                None => one_block(block, true, &mut look),
            }),
            Some(said) => look(said, true),
            None => {}
        }
    }
    Ok(found)
}

/// What a tool answered, where a block is that.
fn answered(block: &mut Value) -> Option<&mut Value> {
    let kind = block.get("type").and_then(Value::as_str);
    if matches!(kind, Some("tool_result" | "mcp_tool_result")) { block.get_mut("content") } else { None }
}

fn is_document(block: &Value) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("document" | "search_result"))
}

fn each_said(text: &mut String, look: &mut dyn FnMut(&mut Value, bool)) {
    let mut said = Value::String(std::mem::take(text));
    look(&mut said, false);
    if let Value::String(said) = said {
        *text = said;
    }
}

/// Looks at a thought, whatever its signature: nobody here can tell a provider's from one that somebody made up, and one of
/// our own making may hold words itself. What was taken something out of is without one after that.
fn thinking(block: &mut Value, look: &mut dyn FnMut(&mut Value, bool)) {
    let signature = block.get("signature").and_then(Value::as_str).unwrap_or_default();
    let carrier = Carrier::read(signature);
    let carried = carrier.and_then(|carrier| serde_json::from_str::<Value>(carrier.data.get()).ok());
    let mut carried = carried.unwrap_or_default();
    let before = (block["thinking"].clone(), carried.clone());
    each(block, "thinking", &mut |thought| look(thought, false));
    said_in(&mut carried, &mut |text| each_said(text, look));
    if before != (block["thinking"].clone(), carried) {
        block["signature"] = json!("");
    }
}

/// Looks at a document that is a text in another form; where something is taken out of it, it is a plain one after that.
fn encoded(source: &mut Value, is_user: bool, look: &mut dyn FnMut(&mut Value, bool)) {
    let member = |name: &str| source.get(name).and_then(Value::as_str);
    let (kind, data) = match (member("url"), member("media_type"), member("data")) {
        (Some(url), ..) => {
            let is_data = url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
            let Some((head, data)) = url.get(5..).filter(|_| is_data).and_then(|rest| rest.split_once(',')) else {
                return;
            };
            (head, data)
        }
        (None, Some(kind), Some(data)) => (kind, data),
        _ => return,
    };
    if !is_text(kind) {
        return;
    }
    // Read as those read it who come after: without the head of a data URL, and with a sign where a letter is broken.
    let data = if data.starts_with("data:") { data.split_once(',').map_or(data, |(_, data)| data) } else { data };
    let data: String = data.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    let Ok(bytes) = STANDARD.decode(data) else { return };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut said = Value::String(text.clone());
    look(&mut said, is_user);
    if said != text {
        *source = json!({"type": "text", "media_type": "text/plain", "data": said});
    }
}

/// Whether a document of this type is a text, as those have it who read documents.
fn is_text(kind: &str) -> bool {
    let essence = kind.split([';', ',']).next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/") || TEXTS.contains(&essence.as_str())
}

/// Every text inside a block of any kind that a model may get to read.
fn said_in(block: &mut Value, look: &mut dyn FnMut(&mut String)) {
    match block {
        Value::String(text) => look(text),
        Value::Array(values) => values.iter_mut().for_each(|value| said_in(value, look)),
        Value::Object(members) => {
            // Of a source only a text is said; the rest is encoded, and so is a thought that only its author can read.
            let is_encoded = members.get("media_type").is_some_and(|kind| kind != "text/plain")
                || members.get("type").is_some_and(|kind| kind == "reasoning.encrypted");
            for (name, value) in members.iter_mut() {
                let is_unsaid = UNSAID.contains(&name.as_str()) || (name == "data" && is_encoded);
                if !is_unsaid {
                    said_in(value, look);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Does something with a member, where it is there.
fn each(block: &mut Value, name: &str, with: &mut dyn FnMut(&mut Value)) {
    if let Some(member) = block.get_mut(name) {
        with(member);
    }
}

/// Every text inside a value.
fn each_text(value: &mut Value, look: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, look)),
        Value::Object(members) => members.values_mut().for_each(|value| each_text(value, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Where the next line begins, from some place on, that may be JSON.
fn opening(text: &str, mut from: usize) -> Option<usize> {
    loop {
        let rest = text[from..].trim_start();
        let start = text.len() - rest.len();
        if rest.starts_with(['{', '[']) {
            return Some(start);
        }
        from = start + rest.find('\n')?;
    }
}

/// The members with other names for some of them; no two of them are called the same.
fn called_otherwise(members: Map<String, Value>, renamed: &HashMap<String, String>) -> Map<String, Value> {
    let mut made = Map::new();
    let there = renamed.values().filter(|redacted| members.contains_key(*redacted));
    let mut times: HashMap<&str, usize> = there.map(|redacted| (redacted.as_str(), 1)).collect();
    for (name, value) in members {
        let Some(redacted) = renamed.get(&name) else {
            made.insert(name, value);
            continue;
        };
        let time = times.entry(redacted).and_modify(|time| *time += 1).or_insert(1);
        let name = if *time == 1 { redacted.clone() } else { format!("{redacted} {time}") };
        made.insert(name, value);
    }
    made
}

impl Filter {
    /// What it is called where it found something.
    fn label(&self) -> &str {
        match &self.sought {
            Sought::Builtin(builtin) => builtin.label(),
            Sought::Pattern(_, label) => label.as_deref().unwrap_or("REDACTED"),
        }
    }

    /// What it is called where it blocks.
    fn name(&self) -> &str {
        match &self.sought {
            Sought::Builtin(builtin) => builtin.name(),
            Sought::Pattern(_, label) => label.as_deref().unwrap_or("[BLOCKED]"),
        }
    }

    fn kind(&self) -> &'static str {
        if self.is_injection() { "regex_pi_detection" } else { "content-filter" }
    }

    fn is_injection(&self) -> bool {
        matches!(self.sought, Sought::Builtin(Builtin::RegexPromptInjection))
    }
}

impl Findings<'_> {
    /// Looks at all that a value says, so many levels of JSON deep: texts, numbers, and the names of members. Whether
    /// something was taken out.
    fn inside(&mut self, value: &mut Value, is_user: bool, level: usize) -> bool {
        let redacted = match value {
            Value::Null | Value::Bool(_) => None,
            Value::String(text) => self.deep(text, is_user, level),
            Value::Number(number) => self.number(number, is_user),
            Value::Array(values) => {
                let changed =
                    values.iter_mut().map(|value| self.inside(value, is_user, level)).filter(|is_changed| *is_changed);
                return changed.count() > 0;
            }
            Value::Object(members) => {
                let mut is_changed = false;
                let mut renamed: HashMap<String, String> = HashMap::new();
                for (name, value) in members.iter_mut() {
                    is_changed |= self.inside(value, is_user, level);
                    renamed.extend(self.deep(name, is_user, level).map(|redacted| (name.clone(), redacted)));
                }
                if !renamed.is_empty() {
                    *members = called_otherwise(std::mem::take(members), &renamed);
                }
                return is_changed || !renamed.is_empty();
            }
        };
        let is_changed = redacted.is_some();
        if let Some(redacted) = redacted {
            *value = Value::String(redacted);
        }
        is_changed
    }

    /// The same for a text that may itself be JSON or hold some on lines of its own, as results of tools do. That is
    /// looked at as it is read, and the whole as it is written, too: what only looks like JSON hides nothing.
    fn deep(&mut self, text: &str, is_user: bool, level: usize) -> Option<String> {
        if level >= MOST_LEVELS {
            return self.text(text, is_user);
        }
        let (mut made, mut done) = (String::new(), 0);
        let (mut from, mut broken, mut is_json) = (0, 0, false);
        let (first, last) = (text.len() - text.trim_start().len(), text.trim_end().len());
        while let Some(start) = opening(text, from).filter(|_| broken < MOST_BROKEN) {
            let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
            let Some(Ok(mut value)) = values.next() else {
                broken += 1;
                from = text[start..].find('\n').map_or(text.len(), |line| start + line);
                continue;
            };
            let end = start + values.byte_offset();
            is_json |= start == first && end == last;
            if self.inside(&mut value, is_user, level + 1) {
                made.push_str(&text[done..start]);
                made.push_str(&value.to_string());
                done = end;
            }
            from = end;
        }
        let made = (done > 0).then(|| made + &text[done..]);
        let Some(redacted) = self.text(made.as_deref().unwrap_or(text), is_user) else { return made };
        // Whoever reads it as JSON can go on doing so.
        let is_broken = is_json && serde_json::from_str::<serde::de::IgnoredAny>(&redacted).is_err();
        Some(if is_broken { Value::String(redacted).to_string() } else { redacted })
    }

    /// The same for a number. Of what is built in only a card is written as one: measurements, places and times look like
    /// much else.
    fn number(&mut self, number: &Number, is_user: bool) -> Option<String> {
        let may_be_card = find::may_be_card(number);
        let can_match = |filter: &Filter| match filter.sought {
            Sought::Builtin(builtin) => may_be_card && builtin == Builtin::CreditCard,
            Sought::Pattern(..) => true,
        };
        if !self.held.filters.iter().any(can_match) {
            return None;
        }
        self.sought(&number.to_string(), is_user, can_match)
    }

    /// Notes what a text holds; the text without it where something is to be taken out.
    fn text(&mut self, text: &str, is_user: bool) -> Option<String> {
        self.sought(text, is_user, |_| true)
    }

    /// The same by some of the filters.
    fn sought(&mut self, text: &str, is_user: bool, by: impl Fn(&Filter) -> bool) -> Option<String> {
        let mut cuts: Vec<(Range<usize>, &str)> = Vec::new();
        for (place, filter) in self.held.filters.iter().enumerate() {
            if (filter.user_only && !is_user) || !by(filter) {
                continue;
            }
            let found: Vec<Range<usize>> = match &filter.sought {
                Sought::Builtin(Builtin::RegexPromptInjection) => {
                    let found = injection::find(text);
                    for (_, phrase) in &found {
                        if self.phrases.len() < MOST_PHRASES && !self.phrases.contains(phrase) {
                            self.phrases.push(phrase.clone());
                        }
                    }
                    found.into_iter().map(|(range, _)| range).collect()
                }
                Sought::Builtin(builtin) => find::find(*builtin, text),
                Sought::Pattern(pattern, _) => {
                    // What matches nothing at all cannot be taken out.
                    pattern.find_iter(text).map(|found| found.range()).filter(|found| !found.is_empty()).collect()
                }
            };
            self.counts[place] += found.len();
            if filter.action == Action::Redact {
                cuts.extend(found.into_iter().map(|range| (range, filter.label())));
            }
        }
        if cuts.is_empty() { None } else { Some(without(text, cuts)) }
    }

    fn judge(self, body: Option<Bytes>) -> Result<Passed, Box<Blocked>> {
        let found =
            || self.held.filters.iter().zip(&self.counts).filter(|(_, count)| **count > 0).map(|(filter, _)| filter);
        let mut judged = Judged::default();
        // What blocks is told last.
        let mut order: Vec<&Filter> = found().collect();
        order.sort_by_key(|filter| filter.action == Action::Block);
        let mut told: Vec<(&str, Action, bool)> = Vec::new();
        for filter in order {
            let name = (filter.guardrail.as_str(), filter.action, filter.is_injection());
            if told.contains(&name) {
                continue;
            }
            told.push(name);
            let alike = found().filter(|other| (other.guardrail.as_str(), other.action, other.is_injection()) == name);
            judged.events.push((filter.kind(), acted(filter.action)));
            judged.entries.push(self.entry(filter, &alike.map(Filter::label).collect::<Vec<_>>()).to_string());
        }
        let Some(first) = found().find(|filter| filter.action == Action::Block) else {
            return Ok(Passed { body, judged });
        };
        let text = match first.is_injection() {
            true => "Request blocked: prompt injection patterns detected".to_owned(),
            false => format!("Request blocked by content filter: {}", first.name()),
        };
        let mut failure = Failure::new(403, ErrorType::PermissionDenied, text);
        if first.is_injection() {
            failure.more_mut().metadata = Some(json!({"patterns": self.phrases}).to_string());
        }
        Err(Box::new(Blocked { failure, judged }))
    }

    fn entry(&self, filter: &Filter, labels: &[&str]) -> Value {
        let action = acted(filter.action);
        let data = match filter.is_injection() {
            true => json!({"action": action, "detected": true, "engines": ["regex"], "patterns": self.phrases}),
            false => json!({
                "flagged": true,
                "action": action,
                "engines": ["regex"],
                "matched_entity_types": labels,
            }),
        };
        json!({
            "type": "guardrail",
            "name": filter.kind(),
            "summary": format!("{action}: {}", labels.join(", ")),
            "guardrail_id": filter.guardrail,
            "guardrail_scope": filter.scope.as_str(),
            "data": data,
        })
    }
}

fn acted(action: Action) -> &'static str {
    match action {
        Action::Flag => "flagged",
        Action::Redact => "redacted",
        Action::Block => "blocked",
    }
}

/// The text with labels in the place of what is cut; of cuts that overlap the first and longest names the whole.
fn without(text: &str, mut cuts: Vec<(Range<usize>, &str)>) -> String {
    cuts.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let mut merged: Vec<(Range<usize>, &str)> = Vec::new();
    for (range, label) in cuts {
        match merged.last_mut() {
            Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
            _ => merged.push((range, label)),
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (range, label) in merged {
        out.push_str(&text[rest..range.start]);
        out.push('[');
        out.push_str(label);
        out.push(']');
        rest = range.end;
    }
    out.push_str(&text[rest..]);
    out
}

#[cfg(test)]
mod tests;
