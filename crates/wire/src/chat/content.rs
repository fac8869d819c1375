//! What a message says: parts of the chat format as blocks of the Messages format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::custom;
use super::request::{Object, said, warn};
use crate::envelope::Violation;
use crate::envelope::check::{self, Place};
use crate::json::{self, Kind, Members};
use crate::responses::ran;

/// A text as it is, parts as blocks.
pub(crate) fn content(place: &Place<'_>, value: &RawValue, warnings: &mut Vec<String>) -> Result<String, Violation> {
    match json::kind(value) {
        Kind::String => {
            check::text(place, value)?;
            Ok(value.get().to_owned())
        }
        Kind::Array => {
            let entries = check::entries(place, value, 0, usize::MAX)?.into_iter().enumerate();
            let blocks = entries.map(|(index, entry)| part(&place.entry(index), entry, warnings));
            Ok(format!("[{}]", blocks.collect::<Result<Vec<_>, _>>()?.join(",")))
        }
        _ => Err(place.is("must be a string or an array")),
    }
}

/// The blocks of an instruction, which is text alone.
pub(crate) fn texts(place: &Place<'_>, value: &RawValue) -> Result<Vec<String>, Violation> {
    match json::kind(value) {
        Kind::String => {
            check::text(place, value)?;
            Ok(vec![format!(r#"{{"type":"text","text":{}}}"#, value.get())])
        }
        Kind::Array => {
            let text = |(index, entry): (usize, &RawValue)| {
                let place = place.entry(index);
                let members = check::members(&place, entry)?;
                check::one_of(&place.member("type"), check::required(&place, &members, "type")?, &["text"])?;
                text(&place, &members)
            };
            check::entries(place, value, 0, usize::MAX)?.into_iter().enumerate().map(text).collect()
        }
        _ => Err(place.is("must be a string or an array")),
    }
}

/// Several blocks as a list.
pub(crate) fn instruction(blocks: &[String]) -> String {
    format!("[{}]", blocks.join(","))
}

fn part(place: &Place<'_>, entry: &RawValue, warnings: &mut Vec<String>) -> Result<String, Violation> {
    let members = check::members(place, entry)?;
    let kind = check::required(place, &members, "type")?;
    match check::one_of(&place.member("type"), kind, &["text", "image_url", "file", "refusal"])?.as_ref() {
        "text" => text(place, &members),
        "refusal" => {
            let said = check::required(place, &members, "refusal")?;
            check::text(&place.member("refusal"), said)?;
            Ok(format!(r#"{{"type":"text","text":{}}}"#, said.get()))
        }
        "image_url" => {
            let inner = place.member("image_url");
            let image = check::members(&inner, check::required(place, &members, "image_url")?)?;
            let url = check::required(&inner, &image, "url")?;
            check::text_between(&inner.member("url"), url, 1, usize::MAX)?;
            let source = format!(r#"{{"type":"url","url":{}}}"#, url.get());
            if is_detailed(&image) {
                warn(warnings, "dropped:image_url.detail");
            }
            Ok(shown("image", &source, None, &members))
        }
        _ => file(place, &members),
    }
}

/// Whether a picture is to be looked at otherwise than the model would by itself, for which there is no word.
pub(crate) fn is_detailed(image: &Members<'_>) -> bool {
    check::present(image, "detail").is_some_and(|detail| json::string(detail).as_deref() != Some("auto"))
}

fn text(place: &Place<'_>, members: &Members<'_>) -> Result<String, Violation> {
    let said = check::required(place, members, "text")?;
    check::text(&place.member("text"), said)?;
    let mut block = Object::default();
    block.set_text("type", "text");
    block.set("text", said.get());
    mark(&mut block, members);
    Ok(block.finish())
}

/// A place where a cache may end.
fn mark(block: &mut Object, members: &Members<'_>) {
    match check::present(members, "cache_control") {
        Some(marker) => block.set("cache_control", marker.get()),
        None if check::present(members, "prompt_cache_breakpoint").is_some() => {
            block.set("cache_control", r#"{"type":"ephemeral"}"#);
        }
        None => {}
    }
}

fn shown(kind: &str, source: &str, title: Option<&RawValue>, members: &Members<'_>) -> String {
    let mut block = Object::default();
    block.set_text("type", kind);
    block.set("source", source);
    block.set_some("title", title);
    mark(&mut block, members);
    block.finish()
}

fn file(place: &Place<'_>, members: &Members<'_>) -> Result<String, Violation> {
    let inner = place.member("file");
    let file = check::members(&inner, check::required(place, members, "file")?)?;
    let name = check::present(&file, "filename");
    if let Some(name) = name {
        check::text(&inner.member("filename"), name)?;
    }
    if let Some(id) = check::present(&file, "file_id") {
        check::text_between(&inner.member("file_id"), id, 1, usize::MAX)?;
        let source = format!(r#"{{"type":"file","file_id":{}}}"#, id.get());
        return Ok(shown("document", &source, name, members));
    }
    let data = check::required(&inner, &file, "file_data")?;
    let held = check::text_between(&inner.member("file_data"), data, 1, usize::MAX)?;
    // An address, which may hold the file itself, or the file without one.
    let source = match held.split_once(':') {
        Some(_) => format!(r#"{{"type":"url","url":{}}}"#, data.get()),
        None => format!(r#"{{"type":"base64","media_type":"application/pdf","data":{}}}"#, data.get()),
    };
    let is_picture = held.starts_with("data:image/");
    Ok(shown(if is_picture { "image" } else { "document" }, &source, name.filter(|_| !is_picture), members))
}

/// What the model said before, as blocks: its thoughts, its words, its calls.
pub(crate) fn spoken(
    place: &Place<'_>,
    members: &Members<'_>,
    warnings: &mut Vec<String>,
) -> Result<String, Violation> {
    let mut thoughts = thoughts(place, members)?;
    // What was said stands in the first gap that the numbers of thoughts leave; without numbers, behind them all.
    let first = (0..).zip(&thoughts).take_while(|(number, (index, _))| index == number).count();
    let later =
        if thoughts.iter().any(|(index, _)| *index == u64::MAX) { Vec::new() } else { thoughts.split_off(first) };
    let mut blocks: Vec<String> = thoughts.into_iter().map(|(_, block)| block).collect();
    let inner = place.member("content");
    match check::present(members, "content") {
        Some(value) if json::kind(value) == Kind::String => {
            if said(&inner, Some(value))?.is_some() {
                blocks.push(format!(r#"{{"type":"text","text":{}}}"#, value.get()));
            }
        }
        Some(value) => {
            check::array(&inner, value)?;
            for (index, entry) in json::elements(value).unwrap_or_default().into_iter().enumerate() {
                blocks.push(part(&inner.entry(index), entry, warnings)?);
            }
        }
        None => {
            let refusal = check::present(members, "refusal");
            if let (Some(_), Some(value)) = (said(&place.member("refusal"), refusal)?, refusal) {
                blocks.push(format!(r#"{{"type":"text","text":{}}}"#, value.get()));
            }
        }
    }
    blocks.extend(later.into_iter().map(|(_, block)| block));
    if let Some(calls) = check::present(members, "tool_calls") {
        let inner = place.member("tool_calls");
        for (index, entry) in check::entries(&inner, calls, 0, usize::MAX)?.into_iter().enumerate() {
            blocks.push(call(&inner.entry(index), entry)?);
        }
    }
    Ok(if blocks.is_empty() { r#""""#.to_owned() } else { instruction(&blocks) })
}

fn call(place: &Place<'_>, entry: &RawValue) -> Result<String, Violation> {
    let members = check::members(place, entry)?;
    if let Some(kind) = check::present(&members, "type") {
        check::one_of(&place.member("type"), kind, &["function", "custom"])?;
    }
    let id = check::required(place, &members, "id")?;
    check::text_between(&place.member("id"), id, 1, usize::MAX)?;
    let kind = if check::present(&members, "custom").is_some() { "custom" } else { "function" };
    let inner = place.member(kind);
    let function = check::members(&inner, check::required(place, &members, kind)?)?;
    let name = check::required(&inner, &function, "name")?;
    check::text_between(&inner.member("name"), name, 1, usize::MAX)?;
    let arguments = match check::present(&function, "input").filter(|_| kind == "custom") {
        Some(input) => {
            check::text(&inner.member("input"), input)?;
            custom::object_of(input)
        }
        None => {
            let inner = inner.member("arguments");
            let arguments = said(&inner, check::present(&function, "arguments"))?.unwrap_or_default();
            object_of(&arguments).into_owned()
        }
    };
    let mut block = Object::default();
    block.set_text("type", "tool_use");
    block.set("id", id.get());
    block.set("name", name.get());
    block.set("input", &arguments);
    Ok(block.finish())
}

/// Arguments as an object. Called without any is called with none; what was cut short in an earlier answer is no reason to
/// refuse all that comes after it.
pub(crate) fn object_of(arguments: &str) -> Cow<'_, str> {
    let text = arguments.trim();
    match text {
        "" => Cow::Borrowed("{}"),
        _ if text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok() => Cow::Borrowed(text),
        _ => Cow::Owned(format!(r#"{{"arguments":{}}}"#, json::quoted(arguments))),
    }
}

/// A thought as it is put together of the pieces of a stream.
#[derive(Default)]
struct Thought {
    text: String,
    signature: Option<String>,
    /// What only its author can read.
    sealed: Option<String>,
    /// A call of a tool that ran here, and what came of it: blocks in a row, which have one number.
    ran: Option<String>,
}

/// What the model thought, with the number of each. Clients give the pieces of a stream back as they came: those of one thought have one index.
fn thoughts(place: &Place<'_>, members: &Members<'_>) -> Result<Vec<(u64, String)>, Violation> {
    // Clients that send back all members of a message as they hold it may have an empty list of these.
    let details = check::present(members, "reasoning_details").filter(|details| {
        json::kind(details) != Kind::Array || json::elements(details).is_none_or(|details| !details.is_empty())
    });
    let Some(details) = details else {
        let plain = ["reasoning", "reasoning_content"].into_iter().find_map(|name| {
            let value = check::present(members, name)?;
            Some(said(&place.member(name), Some(value)))
        });
        let plain = plain.transpose()?.flatten();
        return Ok(plain.map(|text| (0, thought(&text, None))).into_iter().collect());
    };
    let inner = place.member("reasoning_details");
    let mut found: BTreeMap<(u64, usize), Thought> = BTreeMap::new();
    for (at, entry) in check::entries(&inner, details, 0, usize::MAX)?.into_iter().enumerate() {
        let place = inner.entry(at);
        let members = check::members(&place, entry)?;
        let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
        let index = check::present(&members, "index").map(|index| check::integer(&place.member("index"), index, 0));
        let index = index.transpose()?;
        // Without an index each stands for itself, behind those before it.
        let key = index.map_or((u64::MAX, at), |index| (index, 0));
        let member = |name: &'static str| said(&place.member(name), check::present(&members, name));
        match kind.as_ref() {
            "reasoning.text" => {
                let thought = found.entry(key).or_default();
                thought.text.push_str(&member("text")?.unwrap_or_default());
                thought.signature = member("signature")?.map(Into::into).or_else(|| thought.signature.take());
            }
            "reasoning.summary" => {
                found.entry(key).or_default().text.push_str(&member("summary")?.unwrap_or_default());
            }
            "reasoning.encrypted" => found.entry(key).or_default().sealed = member("data")?.map(Into::into),
            "reasoning.server_tool_call" => {
                // Without an id nobody knows what became of it.
                let (Some(id), Some(name)) = (member("tool_call_id")?, member("tool_name")?) else { continue };
                let (arguments, result) = (member("arguments")?, member("result")?);
                let input = object_of(arguments.as_deref().unwrap_or_default()).into_owned();
                let call = ran::call(&json::quoted(&id), &json::quoted(&name), &input);
                let result = result.filter(|result| ran::is_shown(result)).map(Cow::into_owned);
                found.entry(key).or_default().ran = Some(match result {
                    Some(result) => format!("{call},{result}"),
                    None => call,
                });
            }
            // Kinds that come later are nothing that this format could say.
            _ => {}
        }
    }
    let blocks = found.into_iter().flat_map(|((index, _), Thought { text, signature, sealed, ran })| {
        let open = (!text.is_empty() || signature.is_some()).then(|| thought(&text, signature.as_deref()));
        let sealed = sealed.map(|data| format!(r#"{{"type":"redacted_thinking","data":{}}}"#, json::quoted(&data)));
        open.into_iter().chain(sealed).chain(ran).map(move |block| (index, block))
    });
    Ok(blocks.collect())
}

fn thought(text: &str, signature: Option<&str>) -> String {
    let mut block = Object::default();
    block.set_text("type", "thinking");
    block.set_text("thinking", text);
    block.set_text("signature", signature.unwrap_or_default());
    block.finish()
}
