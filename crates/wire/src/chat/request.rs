//! A request in the chat format, read and written anew in the Messages format.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::conversation::conversation;
use super::options::{self, Allowed, Reasoning};
use super::schema::closed;
use super::{Form, OPTION_NAMES, OPTIONS};
use crate::envelope::check::{self, Place};
use crate::envelope::{self, MAX_MESSAGES, Violation};
use crate::json::{self, Kind};

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

/// An object that is being written.
#[derive(Default)]
pub(crate) struct Object(String);

impl Object {
    /// Adds a member whose value is JSON already.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&json::quoted(name));
        self.0.push(':');
        self.0.push_str(value);
    }

    pub fn set_text(&mut self, name: &str, text: &str) {
        self.set(name, &json::quoted(text));
    }

    pub fn set_some(&mut self, name: &str, value: Option<&RawValue>) {
        if let Some(value) = value {
            self.set(name, value.get());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn finish(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

/// Members that mean the same in all formats.
pub(crate) const SAME: [&str; 19] = [
    "cache_control",
    "fallbacks",
    "max_tool_calls",
    "model",
    "models",
    "plugins",
    "preset",
    "provider",
    "route",
    "session_id",
    "speed",
    "stop_server_tools_when",
    "stream",
    "temperature",
    "top_k",
    "top_p",
    "trace",
    "user",
    "context_management",
];

/// What is gathered before it can be written.
#[derive(Default)]
struct Found<'a> {
    messages: Option<&'a RawValue>,
    max_tokens: Option<u64>,
    tool_choice: Option<&'a RawValue>,
    parallel: Option<bool>,
    reasoning: Reasoning,
    format: Option<String>,
    has_tools: bool,
    has_user: bool,
    safety_identifier: Option<&'a RawValue>,
}

/// Notes what was left out, once.
pub(crate) fn warn(warnings: &mut Vec<String>, warning: &str) {
    if !warnings.iter().any(|known| known == warning) {
        warnings.push(warning.to_owned());
    }
}

/// Reads a body; null is absent. `search` tells the type of the tool that searches the web for a model, where any does:
/// clients offer a search without having been asked, and can do without it.
pub fn read(body: &[u8], search: &dyn Fn(&str) -> Option<String>) -> Result<Asked, Violation> {
    let members = check::members(&Place::Body, envelope::whole(body)?)?;
    let (mut out, mut beside, mut found) = (Object::default(), Object::default(), Found::default());
    let (mut form, mut warnings, mut cache_key) = (Form::default(), Vec::new(), None);
    let allowed = Allowed::of(check::present(&members, "tool_choice"))?;
    for (name, value) in &members.0 {
        if json::kind(value) == Kind::Null {
            continue;
        }
        let place = Place::top(name);
        match name.as_ref() {
            "messages" => found.messages = Some(value),
            "max_completion_tokens" => found.max_tokens = Some(check::integer(&place, value, 1)?),
            // The newer word for it wins.
            "max_tokens" => {
                let limit = check::integer(&place, value, 1)?;
                found.max_tokens.get_or_insert(limit);
            }
            "stop" => {
                if let Some(stops) = options::stops(&place, value)? {
                    out.set("stop_sequences", &stops);
                }
            }
            "tools" => {
                let model = check::present(&members, "model").and_then(json::string).unwrap_or_default();
                let searching = search(&model);
                let offered = (searching.as_deref(), allowed.as_ref());
                let (tools, dropped) = options::tools(&place, value, offered, &mut form.custom)?;
                warnings.extend(dropped.then(|| "dropped:web_search".to_owned()));
                found.has_tools = tools != "[]";
                out.set("tools", &tools);
            }
            "tool_choice" => found.tool_choice = Some(value),
            "parallel_tool_calls" => found.parallel = Some(check::boolean(&place, value)?),
            "response_format" => match options::format(&place, value)? {
                options::Format::Text => {}
                options::Format::Object => beside.set(name, value.get()),
                options::Format::Schema(schema) => found.format = Some(schema.told(&mut beside)),
            },
            "reasoning" => found.reasoning.object(&place, value)?,
            "reasoning_effort" => found.reasoning.effort(&place, value)?,
            "include_reasoning" => found.reasoning.is_hidden |= !check::boolean(&place, value)?,
            "service_tier" => {
                let tier = check::text(&place, value)?;
                out.set_text(name, if tier == "default" { "standard_only" } else { &tier });
            }
            "stream_options" => {
                let members = check::members(&place, value)?;
                if let Some(apart) = check::present(&members, "include_usage") {
                    form.usage_apart = check::boolean(&place.member("include_usage"), apart)?;
                }
            }
            "n" => {
                if check::integer(&place, value, 1)? > 1 {
                    return Err(place.is("must be 1: ask once for each answer that is wanted"));
                }
            }
            "modalities" => {
                for (index, entry) in check::entries(&place, value, 0, 8)?.into_iter().enumerate() {
                    check::one_of(&place.entry(index), entry, &["text"])?;
                }
            }
            "functions" | "function_call" => {
                return Err(place.is("is not supported: use tools and tool_choice"));
            }
            "safety_identifier" => found.safety_identifier = Some(value),
            // Whether it is asked for at all.
            "logprobs" if !check::boolean(&place, value)? => {}
            "prompt_cache_key" => cache_key = options::cache_key(&place, value)?,
            // Nothing is stored but what the operator says, and caches are kept as long as their providers do.
            "store" | "prompt_cache_retention" => {}
            same if SAME.contains(&same) => {
                found.has_user |= same == "user";
                out.set(name, value.get());
            }
            option if OPTION_NAMES.contains(&option) => {
                options::check_option(&place, option, value)?;
                beside.set(name, value.get());
            }
            _ => warnings.push(format!("dropped:{name}")),
        }
    }
    let place = Place::top("messages");
    let messages = found.messages.ok_or_else(|| place.required())?;
    let entries = check::entries(&place, messages, 1, MAX_MESSAGES)?;
    let said = conversation(&place, &entries, &mut warnings)?;
    if let Some(system) = said.system {
        out.set("system", &system);
    }
    out.set("messages", &said.messages);
    if let Some(limit) = found.max_tokens {
        out.set("max_tokens", &limit.to_string());
    }
    if let Some(user) = found.safety_identifier.filter(|_| !found.has_user) {
        out.set("user", user.get());
    }
    if let Some(choice) = options::choice(found.tool_choice, found.parallel, found.has_tools)? {
        out.set("tool_choice", &choice);
    }
    form.hides_reasoning = found.reasoning.is_hidden;
    form.model = check::present(&members, "model").and_then(json::string).unwrap_or_default().into_owned();
    let is_newer = check::present(&members, "max_completion_tokens").is_some();
    let limit = if is_newer { "max_completion_tokens" } else { "max_tokens" };
    if let Some(thinking) = found.reasoning.thinking((limit, found.max_tokens))? {
        out.set("thinking", &thinking);
    }
    if let Some(config) = config(found.reasoning.level.as_deref(), found.format.as_deref()) {
        out.set("output_config", &config);
    }
    if !beside.is_empty() {
        out.set(OPTIONS, &beside.finish());
    }
    let only_parallel = found.tool_choice.is_none() && found.parallel.is_some();
    Ok(Asked { body: out.finish().into(), form, warnings, only_parallel, cache_key })
}

/// How hard the model tries, and the form of what it says.
pub(crate) fn config(effort: Option<&str>, schema: Option<&str>) -> Option<String> {
    let mut config = Object::default();
    if let Some(effort) = effort {
        config.set_text("effort", effort);
    }
    if let Some(schema) = schema {
        config.set("format", &format!(r#"{{"type":"json_schema","schema":{schema}}}"#));
    }
    (!config.is_empty()).then(|| config.finish())
}

/// The schema of an answer. What is said of it stands within it: there is no other place for that.
pub(crate) fn described(schema: &RawValue, about: Option<&str>) -> String {
    let closed = closed(schema);
    let says = json::Members::of(schema).is_some_and(|members| members.get("description").is_some());
    match (about.filter(|_| !says), closed.strip_prefix('{')) {
        (Some(about), Some("}")) => format!(r#"{{"description":{}}}"#, json::quoted(about)),
        (Some(about), Some(rest)) => format!(r#"{{"description":{},{rest}"#, json::quoted(about)),
        _ => closed,
    }
}

/// A text that is there and says something.
pub(crate) fn said<'a>(place: &Place<'_>, value: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, Violation> {
    let text = value.map(|value| check::text(place, value)).transpose()?;
    Ok(text.filter(|text| !text.is_empty()))
}
