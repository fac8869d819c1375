//! A request in the Responses format, read and written anew in the Messages format.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::Form;
use super::input::{Turns, input};
use super::tools::{Tools, chosen};
use crate::chat::options::{self, Allowed, Reasoning};
use crate::chat::request::{Object, SAME, config};
use crate::chat::{OPTION_NAMES, OPTIONS};
use crate::envelope::check::{self, Place};
use crate::envelope::{self, Violation};
use crate::json::{self, Kind, Members};

/// A request that was read.
#[derive(Debug)]
pub struct Asked {
    /// The same in the Messages format.
    pub body: Bytes,
    pub form: Form,
    /// What nobody here has a use for, as the header of warnings says it.
    pub warnings: Vec<String>,
    /// Of the choice of tools it is only said whether calls may come side by side.
    pub only_parallel: bool,
    /// What the caller wants caches to be told apart by: it keeps requests together where no session does.
    pub cache_key: Option<String>,
}

/// What an answer repeats, with what it says where the request says nothing.
const ECHOED: [(&str, &str); 14] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("reasoning", "null"),
    ("temperature", "null"),
    ("text", r#"{"format":{"type":"text"}}"#),
    ("tool_choice", r#""auto""#),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", r#""disabled""#),
    ("presence_penalty", "null"),
    ("frequency_penalty", "null"),
];

/// Reads a body; null is absent. `search` tells the type of the tool that searches the web for a model, where any does:
/// clients offer a search without having been asked, and can do without it.
pub fn read(body: &[u8], search: &dyn Fn(&str) -> Option<String>) -> Result<Asked, Violation> {
    let members = check::members(&Place::Body, envelope::whole(body)?)?;
    let (mut out, mut beside, mut reasoning) = (Object::default(), Object::default(), Reasoning::default());
    let model = check::present(&members, "model").and_then(json::string).unwrap_or_default();
    let mut form = Form { echo: echo(&members), model: model.clone().into_owned(), ..Form::default() };
    let mut warnings = Vec::new();
    let mut cache_key = None;
    let allowed = Allowed::of(check::present(&members, "tool_choice"))?;
    let (mut turns, mut limit, mut schema, mut parallel) = (Turns::default(), None, None, None);
    for (name, value) in members.0.iter().filter(|(_, value)| json::kind(value) != Kind::Null) {
        let place = Place::top(name);
        match name.as_ref() {
            "input" | "tool_choice" | "tools" => {}
            "instructions" => turns.instruct(&place, value)?,
            "max_output_tokens" => limit = Some(check::integer(&place, value, 1)?),
            "parallel_tool_calls" => parallel = Some(check::boolean(&place, value)?),
            "text" => schema = told(&place, value, &mut beside)?,
            "reasoning" => reasoning.object(&place, value)?,
            "service_tier" => {
                let tier = check::text(&place, value)?;
                out.set_text(name, if tier == "default" { "standard_only" } else { &tier });
            }
            "previous_response_id" | "conversation" => {
                return Err(place.is("is not supported: nothing is stored, send the conversation in input"));
            }
            "prompt" => return Err(place.is("is not supported: use a preset")),
            "background" if !check::boolean(&place, value)? => {}
            "background" => return Err(place.is("must be false")),
            "store" if !check::boolean(&place, value)? => {}
            // Said by default, and meant by few; nothing depends on it where the conversation comes whole.
            "store" => warnings.push("dropped:store".to_owned()),
            "safety_identifier" if check::present(&members, "user").is_none() => out.set("user", value.get()),
            "prompt_cache_key" => cache_key = options::cache_key(&place, value)?,
            // What there is to include is there, and caches are kept as long as their providers do.
            "include" | "metadata" | "prompt_cache_retention" | "safety_identifier" | "stream_options" => {}
            "truncation" if check::text(&place, value)? == "disabled" => {}
            same if SAME.contains(&same) => out.set(name, value.get()),
            // Both are said in `text` here.
            option if OPTION_NAMES.contains(&option) && option != "response_format" && option != "verbosity" => {
                options::check_option(&place, option, value)?;
                beside.set(name, value.get());
            }
            _ => warnings.push(format!("dropped:{name}")),
        }
    }
    let place = Place::top("input");
    input(&place, check::present(&members, "input").ok_or_else(|| place.required())?, &mut turns)?;
    let searching = search(&model);
    let (search, allowed) = (searching.as_deref(), allowed.as_ref());
    let mut tools = Tools {
        search,
        allowed,
        are_found: false,
        form: &mut form,
        made: Vec::new(),
        is_added: false,
        is_dropped: false,
    };
    let given = check::present(&members, "tools");
    if let Some(given) = given {
        tools.read(&Place::top("tools"), given)?;
    }
    tools.is_added = true;
    for (index, more) in &turns.tools {
        tools.read(&place.entry(*index).member("tools"), more)?;
    }
    warnings.extend(tools.is_dropped.then(|| "dropped:web_search".to_owned()));
    let has_tools = !tools.made.is_empty();
    if given.is_some() || has_tools {
        let made: Vec<&str> = tools.made.iter().map(|made| &*made.json).collect();
        out.set("tools", &format!("[{}]", made.join(",")));
    }
    let made = tools.made;
    let choice = check::present(&members, "tool_choice");
    let of_group = choice.and_then(|choice| chosen(choice, &form, &made));
    let choice = of_group.as_deref().or(choice);
    let said = turns.finish();
    warnings.extend(said.warnings);
    if let Some(system) = said.system {
        out.set("system", &system);
    }
    out.set("messages", &said.messages);
    if let Some(limit) = limit {
        out.set("max_tokens", &limit.to_string());
    }
    if let Some(choice) = options::choice(choice, parallel, has_tools)? {
        out.set("tool_choice", &choice);
    }
    if let Some(thinking) = reasoning.thinking(("max_output_tokens", limit))? {
        out.set("thinking", &thinking);
    }
    if let Some(config) = config(reasoning.level.as_deref(), schema.as_deref()) {
        out.set("output_config", &config);
    }
    if !beside.is_empty() {
        out.set(OPTIONS, &beside.finish());
    }
    let only_parallel = check::present(&members, "tool_choice").is_none() && parallel.is_some();
    Ok(Asked { body: out.finish().into(), form, warnings, only_parallel, cache_key })
}

fn echo(members: &Members<'_>) -> String {
    let mut echo = String::new();
    for (name, usual) in ECHOED {
        let value = check::present(members, name).map_or(usual, RawValue::get);
        echo.push_str(&format!(",{}:{value}", json::quoted(name)));
    }
    // An event is one line.
    echo.replace(['\n', '\r'], " ")
}

/// The form and the length of what is said. A schema is given back.
fn told(place: &Place<'_>, value: &RawValue, beside: &mut Object) -> Result<Option<String>, Violation> {
    let members = check::members(place, value)?;
    if let Some(verbosity) = check::present(&members, "verbosity") {
        options::check_option(&place.member("verbosity"), "verbosity", verbosity)?;
        beside.set("verbosity", verbosity.get());
    }
    let Some(format) = check::present(&members, "format") else { return Ok(None) };
    let place = place.member("format");
    let format = check::members(&place, format)?;
    let kind = check::required(&place, &format, "type")?;
    match check::one_of(&place.member("type"), kind, &["text", "json_object", "json_schema"])?.as_ref() {
        "json_object" => beside.set("response_format", r#"{"type":"json_object"}"#),
        "json_schema" => {
            return Ok(Some(options::Schema::of(&place, &format)?.told(beside)));
        }
        _ => {}
    }
    Ok(None)
}
