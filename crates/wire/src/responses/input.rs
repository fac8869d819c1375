//! What a request of the Responses format tells: items in a row, which become turns.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::mem;

use serde_json::value::RawValue;

use super::tools::{FINDS, flat, names};
use super::{SEALED, SIGNED, ran};
use crate::chat::content::{instruction, is_detailed, object_of, texts};
use crate::chat::custom;
use crate::chat::request::{Object, said, warn};
use crate::envelope::check::{self, Place};
use crate::envelope::{MAX_MESSAGES, Violation};
use crate::error::ErrorType;
use crate::json::{self, Kind, Members};

/// Both parts as JSON.
pub(super) struct Said {
    pub system: Option<String>,
    pub messages: String,
    pub warnings: Vec<String>,
}

/// Turns that are being put together: what the model thought, said and called in a row is one of them, and so are results.
#[derive(Default)]
pub(super) struct Turns<'a> {
    system: Vec<String>,
    messages: Vec<String>,
    role: &'static str,
    blocks: Vec<String>,
    /// Results that are still to come, by their calls.
    to_come: HashMap<String, usize>,
    /// Calls whose results are, and what was said meanwhile: results come right behind their calls. One that is never
    /// answered is not waited for.
    waiting: HashSet<String>,
    later: Vec<(&'static str, Vec<String>)>,
    warnings: Vec<String>,
    /// Tools that come with items, and the places of those.
    pub tools: Vec<(usize, &'a RawValue)>,
}

impl<'a> Turns<'a> {
    /// What stands before all else.
    pub fn instruct(&mut self, place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
        // Before what the input itself says of the kind, wherever it was written.
        let blocks = texts(place, value)?;
        self.system.splice(0..0, blocks);
        Ok(())
    }

    fn add(&mut self, role: &'static str, blocks: impl IntoIterator<Item = String>) {
        if !self.waiting.is_empty() && role != "assistant" {
            self.later.push((role, blocks.into_iter().collect()));
            return;
        }
        self.put(role, blocks);
    }

    /// Notes the results that the items hold.
    fn expect(&mut self, entries: &[&RawValue]) {
        for entry in entries.iter().filter(|entry| entry.get().contains("_output")) {
            let members = Members::of(entry).unwrap_or_default();
            let text = |name: &str| check::present(&members, name).and_then(json::string);
            if let (Some("function_call_output" | "custom_tool_call_output" | "tool_search_output"), Some(id)) =
                (text("type").as_deref(), text("call_id"))
            {
                *self.to_come.entry(id.into_owned()).or_default() += 1;
            }
        }
    }

    /// A call of the model's.
    fn call(&mut self, id: Cow<'_, str>, block: String) {
        self.put("assistant", [block]);
        if self.to_come.get(id.as_ref()).is_some_and(|count| *count > 0) {
            self.waiting.insert(id.into_owned());
        }
    }

    fn answer(&mut self, id: &str, block: String) {
        self.put("user", [block]);
        if let Some(count) = self.to_come.get_mut(id) {
            *count = count.saturating_sub(1);
        }
        self.waiting.remove(id);
        if self.waiting.is_empty() {
            self.tell_later();
        }
    }

    fn tell_later(&mut self) {
        for (role, blocks) in mem::take(&mut self.later) {
            self.put(role, blocks);
        }
    }

    fn put(&mut self, role: &'static str, blocks: impl IntoIterator<Item = String>) {
        if self.role != role {
            self.end();
            self.role = role;
        }
        self.blocks.extend(blocks);
    }

    fn end(&mut self) {
        let blocks = mem::take(&mut self.blocks);
        if !blocks.is_empty() {
            let mut message = Object::default();
            message.set_text("role", self.role);
            message.set("content", &instruction(&blocks));
            self.messages.push(message.finish());
        }
    }

    pub fn finish(mut self) -> Said {
        self.tell_later();
        self.end();
        if self.messages.is_empty() && !self.system.is_empty() {
            // Instructions alone are what is asked: there, somebody must have said something.
            let said = mem::take(&mut self.system);
            self.put("user", said);
            self.end();
        }
        Said {
            system: (!self.system.is_empty()).then(|| instruction(&self.system)),
            messages: format!("[{}]", self.messages.join(",")),
            warnings: self.warnings,
        }
    }
}

/// Reads the input, a text or items.
pub(super) fn input<'a>(place: &Place<'_>, value: &'a RawValue, turns: &mut Turns<'a>) -> Result<(), Violation> {
    match json::kind(value) {
        Kind::String => {
            check::text(place, value)?;
            turns.add("user", [text_block(value.get())]);
            Ok(())
        }
        Kind::Array => {
            let entries = check::entries(place, value, 1, MAX_MESSAGES)?;
            turns.expect(&entries);
            for (index, entry) in entries.into_iter().enumerate() {
                item(&place.entry(index), (index, entry), turns)?;
            }
            Ok(())
        }
        _ => Err(place.is("must be a string or an array")),
    }
}

fn text_block(quoted: &str) -> String {
    format!(r#"{{"type":"text","text":{quoted}}}"#)
}

fn item<'a>(place: &Place<'_>, (index, entry): (usize, &'a RawValue), turns: &mut Turns<'a>) -> Result<(), Violation> {
    let members = check::members(place, entry)?;
    let kind = check::present(&members, "type").map(|kind| check::text(&place.member("type"), kind)).transpose()?;
    match kind.as_deref().unwrap_or("message") {
        "message" => message(place, &members, turns),
        "reasoning" => {
            turns.add("assistant", thought(place, &members)?);
            Ok(())
        }
        "function_call" | "custom_tool_call" => {
            let (id, block) = call(place, &members)?;
            turns.call(id, block);
            Ok(())
        }
        "function_call_output" | "custom_tool_call_output" => {
            let (id, block) = result(place, &members, &mut turns.warnings)?;
            turns.answer(&id, block);
            Ok(())
        }
        // Of a search that the client made it answers itself; of another one it is enough which tools were found.
        "tool_search_call" if check::present(&members, "call_id").is_some() => {
            let (id, block) = search_call(place, &members)?;
            turns.call(id, block);
            Ok(())
        }
        "tool_search_output" | "additional_tools" => {
            let found = check::present(&members, "tools");
            turns.tools.extend(found.map(|tools| (index, tools)));
            if check::present(&members, "call_id").is_some() {
                let (id, block) = found_tools(place, &members, found)?;
                turns.answer(&id, block);
            }
            Ok(())
        }
        kind if kind.contains(':') => {
            match ran::blocks(place, &members)? {
                Some(blocks) => turns.add("assistant", blocks),
                None => warn(&mut turns.warnings, &format!("dropped:{kind}")),
            }
            Ok(())
        }
        // What ran elsewhere is told by what was said of it; no other model has a word for it.
        kind if kind.ends_with("_call") || kind.ends_with("_call_output") => {
            warn(&mut turns.warnings, &format!("dropped:{kind}"));
            Ok(())
        }
        "item_reference" => Err(place.member("type").is("must not be item_reference: nothing is stored")),
        _ => {
            let kinds = [
                "message",
                "reasoning",
                "function_call",
                "function_call_output",
                "custom_tool_call",
                "custom_tool_call_output",
            ];
            Err(place.member("type").is(format_args!("must be one of {}", kinds.join(", "))))
        }
    }
}

fn message(place: &Place<'_>, members: &Members<'_>, turns: &mut Turns<'_>) -> Result<(), Violation> {
    let role = check::required(place, members, "role")?;
    let role = check::one_of(&place.member("role"), role, &["user", "assistant", "system", "developer"]);
    let role = role.map_err(|violation| Violation { error_type: ErrorType::InvalidPrompt, ..violation })?;
    let inner = place.member("content");
    let content = check::required(place, members, "content")?;
    let blocks = parts(&inner, content, &mut turns.warnings)?;
    match role.as_ref() {
        "user" => turns.add("user", blocks),
        "assistant" => turns.add("assistant", blocks),
        _ if turns.messages.is_empty() && turns.blocks.is_empty() => turns.system.extend(blocks),
        _ => turns.add("system", blocks),
    }
    Ok(())
}

fn parts(place: &Place<'_>, value: &RawValue, warnings: &mut Vec<String>) -> Result<Vec<String>, Violation> {
    if json::kind(value) == Kind::String {
        // An empty text says nothing, and stands in no block.
        return Ok(said(place, Some(value))?.map(|_| text_block(value.get())).into_iter().collect());
    }
    if json::kind(value) != Kind::Array {
        return Err(place.is("must be a string or an array"));
    }
    let entries = check::entries(place, value, 0, usize::MAX)?.into_iter().enumerate();
    entries.map(|(index, entry)| part(&place.entry(index), entry, warnings)).collect()
}

fn part(place: &Place<'_>, entry: &RawValue, warnings: &mut Vec<String>) -> Result<String, Violation> {
    let members = check::members(place, entry)?;
    let kind = check::required(place, &members, "type")?;
    let kinds = ["input_text", "output_text", "text", "refusal", "input_image", "input_file"];
    let mut block = Object::default();
    match check::one_of(&place.member("type"), kind, &kinds)?.as_ref() {
        kind @ ("input_text" | "output_text" | "text" | "refusal") => {
            let name = if kind == "refusal" { kind } else { "text" };
            let said = check::required(place, &members, name)?;
            check::text(&place.member(name), said)?;
            block.set_text("type", "text");
            block.set("text", said.get());
        }
        "input_image" => {
            if is_detailed(&members) {
                warn(warnings, "dropped:input_image.detail");
            }
            block.set_text("type", "image");
            block.set("source", &source(place, &members, &["image_url"], "image/png")?);
        }
        _ => {
            let data = check::present(&members, "file_data").and_then(json::string);
            let is_picture = data.is_some_and(|data| data.starts_with("data:image/"));
            block.set_text("type", if is_picture { "image" } else { "document" });
            block.set("source", &source(place, &members, &["file_url", "file_data"], "application/pdf")?);
            block.set_some("title", check::present(&members, "filename").filter(|_| !is_picture));
        }
    }
    block.set_some("cache_control", check::present(&members, "cache_control"));
    Ok(block.finish())
}

/// Where a picture or a file comes from.
fn source(place: &Place<'_>, members: &Members<'_>, names: &[&str], bare: &str) -> Result<String, Violation> {
    if let Some(id) = check::present(members, "file_id") {
        check::text_between(&place.member("file_id"), id, 1, usize::MAX)?;
        return Ok(format!(r#"{{"type":"file","file_id":{}}}"#, id.get()));
    }
    let found = names.iter().find_map(|name| Some((name, check::present(members, name)?)));
    let (name, value) = found.ok_or_else(|| place.member(names[0]).required())?;
    let held = check::text_between(&place.member(name), value, 1, usize::MAX)?;
    Ok(match held.contains(':') {
        true => format!(r#"{{"type":"url","url":{}}}"#, value.get()),
        false => format!(r#"{{"type":"base64","media_type":"{bare}","data":{}}}"#, value.get()),
    })
}

/// A thought of an earlier answer, with what proves it.
fn thought(place: &Place<'_>, members: &Members<'_>) -> Result<Vec<String>, Violation> {
    let texts = |name: &'static str| -> Result<String, Violation> {
        let inner = place.member(name);
        let Some(list) = check::present(members, name) else { return Ok(String::new()) };
        let mut whole = String::new();
        for (index, entry) in check::entries(&inner, list, 0, usize::MAX)?.into_iter().enumerate() {
            let place = inner.entry(index);
            let members = check::members(&place, entry)?;
            whole.push_str(&said(&place.member("text"), check::present(&members, "text"))?.unwrap_or_default());
        }
        Ok(whole)
    };
    let text = |name: &'static str| said(&place.member(name), check::present(members, name));
    let (content, summary) = (texts("content")?, texts("summary")?);
    let kept = text("encrypted_content")?;
    let signed = kept.as_deref().and_then(|kept| kept.strip_prefix(SIGNED));
    let signature = text("signature")?.map_or_else(|| signed.map(ToOwned::to_owned), |text| Some(text.into_owned()));
    if let Some(data) = kept.as_deref().and_then(|kept| kept.strip_prefix(SEALED)) {
        return Ok(vec![format!(r#"{{"type":"redacted_thinking","data":{}}}"#, json::quoted(data))]);
    }
    let thinking = if content.is_empty() { summary } else { content };
    if thinking.is_empty() && signature.is_none() {
        return Ok(Vec::new());
    }
    let mut block = Object::default();
    block.set_text("type", "thinking");
    block.set_text("thinking", &thinking);
    block.set_text("signature", signature.as_deref().unwrap_or_default());
    Ok(vec![block.finish()])
}

/// A call, with its id.
fn call<'a>(place: &Place<'_>, members: &Members<'a>) -> Result<(Cow<'a, str>, String), Violation> {
    let id = check::required(place, members, "call_id")?;
    let named = check::text_between(&place.member("call_id"), id, 1, usize::MAX)?;
    let name = check::required(place, members, "name")?;
    let called = check::text_between(&place.member("name"), name, 1, usize::MAX)?;
    let inner = place.member("arguments");
    let input = match check::present(members, "input") {
        // A text is the one member of what a function takes.
        Some(input) => {
            check::text(&place.member("input"), input)?;
            custom::object_of(input)
        }
        None => {
            let arguments = said(&inner, check::present(members, "arguments"))?.unwrap_or_default();
            object_of(&arguments).into_owned()
        }
    };
    let mut block = Object::default();
    block.set_text("type", "tool_use");
    block.set("id", id.get());
    match said(&place.member("namespace"), check::present(members, "namespace"))? {
        Some(group) => block.set_text("name", &flat(&group, &called)),
        None => block.set("name", name.get()),
    }
    block.set("input", &input);
    Ok((named, block.finish()))
}

/// A client's own search for tools.
fn search_call<'a>(place: &Place<'_>, members: &Members<'a>) -> Result<(Cow<'a, str>, String), Violation> {
    let id = check::required(place, members, "call_id")?;
    let named = check::text_between(&place.member("call_id"), id, 1, usize::MAX)?;
    let arguments = check::present(members, "arguments");
    let arguments = arguments.map(|given| match json::kind(given) {
        Kind::Object => given.get().to_owned(),
        _ => object_of(&json::string(given).unwrap_or_default()).into_owned(),
    });
    let mut block = Object::default();
    block.set_text("type", "tool_use");
    block.set("id", id.get());
    block.set_text("name", FINDS);
    block.set("input", arguments.as_deref().unwrap_or("{}"));
    Ok((named, block.finish()))
}

/// What it found: the tools themselves stand among the others from now on.
fn found_tools<'a>(
    place: &Place<'_>,
    members: &Members<'a>,
    tools: Option<&RawValue>,
) -> Result<(Cow<'a, str>, String), Violation> {
    let id = check::required(place, members, "call_id")?;
    let named = check::text_between(&place.member("call_id"), id, 1, usize::MAX)?;
    let found = tools.map(names).unwrap_or_default();
    let mut block = Object::default();
    block.set_text("type", "tool_result");
    block.set("tool_use_id", id.get());
    block.set_text("content", &if found.is_empty() { "No tools were found.".to_owned() } else { found.join("\n") });
    Ok((named, block.finish()))
}

/// What a tool answered, with the id of the call.
fn result<'a>(
    place: &Place<'_>,
    members: &Members<'a>,
    warnings: &mut Vec<String>,
) -> Result<(Cow<'a, str>, String), Violation> {
    let id = check::required(place, members, "call_id")?;
    let named = check::text_between(&place.member("call_id"), id, 1, usize::MAX)?;
    let inner = place.member("output");
    let output = check::required(place, members, "output")?;
    let mut block = Object::default();
    block.set_text("type", "tool_result");
    block.set("tool_use_id", id.get());
    match json::kind(output) {
        Kind::String => {
            check::text(&inner, output)?;
            block.set("content", output.get());
        }
        _ => block.set("content", &instruction(&parts(&inner, output, warnings)?)),
    }
    Ok((named, block.finish()))
}
