//! Options of a chat request: tools and their choice, the form of the answer, how hard the model thinks.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use super::custom;
use super::request::{Object, described};
use crate::envelope::check::{self, Place};
use crate::envelope::{MAX_TOOLS, Violation};
use crate::json::{self, Kind, Members};

const EFFORTS: [&str; 7] = ["max", "xhigh", "high", "medium", "low", "minimal", "none"];
/// The least that thinking can be given.
const LEAST_BUDGET: u64 = 1_024;
/// Characters of the name of a session.
const LONGEST_SESSION: usize = 256;

/// The sequences that end an answer; nothing where there are none.
pub(crate) fn stops(place: &Place<'_>, value: &RawValue) -> Result<Option<String>, Violation> {
    if json::kind(value) == Kind::String {
        let stop = check::text(place, value)?;
        return Ok((!stop.is_empty()).then(|| format!("[{}]", value.get())));
    }
    if json::kind(value) != Kind::Array {
        return Err(place.is("must be a string or an array"));
    }
    check::stop_sequences(place, value)?;
    Ok((json::elements(value).is_some_and(|stops| !stops.is_empty())).then(|| value.get().to_owned()))
}

/// Functions in the other format's words, and whether a search was left out; tools that run here are named alike in both.
/// `search`: the type of the one that searches. `names`: those that take a text are noted there. `allowed`: those that the model may call, where not all are.
pub(crate) fn tools(
    place: &Place<'_>,
    value: &RawValue,
    (search, allowed): (Option<&str>, Option<&Allowed<'_>>),
    names: &mut Vec<String>,
) -> Result<(String, bool), Violation> {
    let (mut made, mut is_dropped) = (Vec::new(), false);
    for (index, entry) in check::entries(place, value, 0, MAX_TOOLS)?.into_iter().enumerate() {
        let place = place.entry(index);
        let members = check::members(&place, entry)?;
        let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
        if allowed.is_some_and(|allowed| !allowed.has(&kind, &members)) {
            continue;
        }
        if kind.starts_with("web_search") {
            made.extend(search.map(|kind| searching(kind, &members)));
            is_dropped |= search.is_none();
            continue;
        }
        // The other format has tools of that name, too, without an object of their own.
        if let Some(taking_text) = check::present(&members, "custom").filter(|_| kind == "custom") {
            let inner = place.member("custom");
            made.push(custom::tool(&inner, &check::members(&inner, taking_text)?, names)?.finish());
            continue;
        }
        if kind != "function" {
            made.push(entry.get().to_owned());
            continue;
        }
        let inner = place.member("function");
        let function = check::members(&inner, check::required(&place, &members, "function")?)?;
        let mut tool = self::function(&inner, &function)?;
        tool.set_some("cache_control", check::present(&members, "cache_control"));
        made.push(tool.finish());
    }
    Ok((format!("[{}]", made.join(",")), is_dropped))
}

/// The search that runs here, by the name that others have for theirs.
pub(crate) fn searching(kind: &str, members: &Members<'_>) -> String {
    let filters = check::present(members, "filters").and_then(Members::of).unwrap_or_default();
    let known =
        ["search_context_size", "user_location", "max_results", "engine", "allowed_domains", "excluded_domains"];
    let mut parameters = Object::default();
    for (name, value) in members.0.iter().chain(&filters.0) {
        if known.contains(&name.as_ref()) && json::kind(value) != Kind::Null {
            parameters.set(name, value.get());
        }
    }
    let mut tool = Object::default();
    tool.set_text("type", kind);
    if !parameters.is_empty() {
        tool.set("parameters", &parameters.finish());
    }
    tool.finish()
}

/// A function as a tool of the other format.
pub(crate) fn function(place: &Place<'_>, function: &Members<'_>) -> Result<Object, Violation> {
    let name = check::required(place, function, "name")?;
    check::text_between(&place.member("name"), name, 1, 128)?;
    let mut tool = Object::default();
    tool.set("name", name.get());
    if let Some(description) = check::present(function, "description") {
        check::text(&place.member("description"), description)?;
        tool.set("description", description.get());
    }
    let schema = check::present(function, "parameters");
    if let Some(schema) = schema {
        check::object(&place.member("parameters"), schema)?;
    }
    // A function without parameters is one of an empty object.
    let schema = schema.map_or(r#"{"type":"object","properties":{}}"#, RawValue::get);
    tool.set("input_schema", &with_type(schema));
    if let Some(strict) = check::present(function, "strict") {
        check::boolean(&place.member("strict"), strict)?;
        tool.set("strict", strict.get());
    }
    Ok(tool)
}

/// A schema of an object that does not say so is one all the same: parameters are nothing else.
fn with_type(schema: &str) -> String {
    let names = serde_json::from_str::<&RawValue>(schema).ok().and_then(Members::of);
    let says =
        names.is_none_or(|members| ["type", "$ref", "anyOf", "oneOf"].iter().any(|name| members.get(name).is_some()));
    match schema.trim_start().strip_prefix('{') {
        Some(rest) if !says && rest.trim_start().starts_with('}') => r#"{"type":"object","properties":{}}"#.to_owned(),
        Some(rest) if !says => format!(r#"{{"type":"object",{rest}"#),
        _ => schema.to_owned(),
    }
}

/// A choice of some of the tools.
pub(crate) struct Allowed<'a> {
    /// Functions by their names, others by their types.
    names: HashSet<Cow<'a, str>>,
    kinds: HashSet<Cow<'a, str>>,
    /// Groups of functions by theirs.
    groups: HashSet<Cow<'a, str>>,
    /// One of them must be called.
    is_required: bool,
}

impl<'a> Allowed<'a> {
    /// Nothing for a choice of another kind.
    pub fn of(choice: Option<&'a RawValue>) -> Result<Option<Self>, Violation> {
        let Some(value) = choice.filter(|value| json::kind(value) == Kind::Object) else { return Ok(None) };
        let place = Place::top("tool_choice");
        let members = check::members(&place, value)?;
        let kind = check::present(&members, "type").and_then(json::string);
        if kind.as_deref() != Some("allowed_tools") {
            return Ok(None);
        }
        // One format has it in an object of its own.
        let inner = place.member("allowed_tools");
        let (place, members) = match check::present(&members, "allowed_tools") {
            Some(nested) => (&inner, check::members(&inner, nested)?),
            None => (&place, members),
        };
        let mode = check::present(&members, "mode");
        let mode = mode.map(|mode| check::one_of(&place.member("mode"), mode, &["auto", "required"])).transpose()?;
        let is_required = mode.as_deref() == Some("required");
        let mut allowed = Self { names: HashSet::new(), kinds: HashSet::new(), groups: HashSet::new(), is_required };
        let Some(tools) = check::present(&members, "tools") else { return Ok(Some(allowed)) };
        let place = place.member("tools");
        for (index, entry) in check::entries(&place, tools, 0, MAX_TOOLS)?.into_iter().enumerate() {
            let place = place.entry(index);
            let members = check::members(&place, entry)?;
            let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
            let group = check::present(&members, "name").and_then(json::string).filter(|_| kind == "namespace");
            match named(&kind, &members) {
                _ if group.is_some() => allowed.groups.extend(group),
                Some(name) => _ = allowed.names.insert(name),
                None => _ = allowed.kinds.insert(family(kind)),
            };
        }
        Ok(Some(allowed))
    }

    /// Whether a tool is among them; a choice that lists nothing leaves out nothing.
    pub fn has(&self, kind: &str, tool: &Members<'_>) -> bool {
        let is_any = self.names.is_empty() && self.kinds.is_empty() && self.groups.is_empty();
        is_any
            || match named(kind, tool) {
                Some(name) => self.names.contains(name.as_ref()),
                None => self.kinds.contains(family(kind.into()).as_ref()),
            }
    }

    /// Whether a group of tools is among them, or one of its tools by the name that it has where there are no groups.
    pub fn has_of_group(&self, group: &str, called: &str) -> bool {
        self.names.contains(called) || self.groups.contains(group)
    }
}

/// The name of a function, which one format has in an object of its own.
fn named<'a>(kind: &str, tool: &Members<'a>) -> Option<Cow<'a, str>> {
    if !matches!(kind, "function" | "custom") {
        return None;
    }
    let nested = check::present(tool, kind).and_then(Members::of);
    check::present(nested.as_ref().unwrap_or(tool), "name").and_then(json::string)
}

/// The search has many names.
fn family(kind: Cow<'_, str>) -> Cow<'_, str> {
    if kind.starts_with("web_search") { Cow::Borrowed("web_search") } else { kind }
}

/// Which tools the model may, must or must not call.
pub(crate) fn choice(
    choice: Option<&RawValue>,
    parallel: Option<bool>,
    has_tools: bool,
) -> Result<Option<String>, Violation> {
    let place = Place::top("tool_choice");
    let (kind, name) = match choice {
        Some(value) if json::kind(value) == Kind::String => {
            match check::one_of(&place, value, &["none", "auto", "required"])?.as_ref() {
                "required" => ("any", None),
                "none" => ("none", None),
                _ => ("auto", None),
            }
        }
        Some(value) => {
            let members = check::members(&place, value)?;
            let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
            match kind.as_ref() {
                "function" | "custom" => {}
                // Which of them may be called no other format can say: the others are left out.
                "allowed_tools" => {
                    let is_required = Allowed::of(choice)?.is_some_and(|allowed| allowed.is_required);
                    return Ok(has_tools.then(|| made(if is_required { "any" } else { "auto" }, None, parallel)));
                }
                // The search is there or not; nobody can be made to search.
                kind if kind.starts_with("web_search") => return Ok(None),
                // A tool that we run is named by its type.
                kind if kind.contains(':') => {
                    let named = check::present(&members, "type").filter(|_| has_tools);
                    return Ok(named.map(|name| made("tool", Some(name), parallel)));
                }
                _ => return Ok(Some(value.get().to_owned())),
            }
            // One format has the name in an object of its own.
            let inner = place.member(&kind);
            let name = match check::present(&members, &kind) {
                Some(function) => check::required(&inner, &check::members(&inner, function)?, "name")?,
                None if check::present(&members, "name").is_some() => check::required(&place, &members, "name")?,
                None => return Err(inner.required()),
            };
            check::text_between(&inner.member("name"), name, 1, 128)?;
            ("tool", Some(name))
        }
        None if parallel == Some(false) => ("auto", None),
        None => return Ok(None),
    };
    // Clients say it also where there is nothing to choose from, and mean nothing by it.
    if !has_tools && kind == "auto" && parallel != Some(false) {
        return Ok(None);
    }
    Ok(Some(made(kind, name, parallel)))
}

fn made(kind: &str, name: Option<&RawValue>, parallel: Option<bool>) -> String {
    let mut made = Object::default();
    made.set_text("type", kind);
    made.set_some("name", name);
    if let Some(parallel) = parallel.filter(|_| kind != "none") {
        made.set("disable_parallel_tool_use", if parallel { "false" } else { "true" });
    }
    made.finish()
}

/// What the caller tells caches apart by; nothing where it says nothing, or more than a session may be called.
pub(crate) fn cache_key(place: &Place<'_>, value: &RawValue) -> Result<Option<String>, Violation> {
    let key = check::text(place, value)?;
    Ok((!key.is_empty() && key.chars().count() <= LONGEST_SESSION).then(|| key.into_owned()))
}

/// The form of an answer.
pub(crate) enum Format<'a> {
    Text,
    /// Some JSON object.
    Object,
    Schema(Schema<'a>),
}

/// The schema of an answer, and what is said of it.
pub(crate) struct Schema<'a> {
    pub schema: &'a RawValue,
    pub about: Option<Cow<'a, str>>,
    /// Whether it is to be followed to the letter, where anything is said of that.
    pub strict: Option<bool>,
}

impl<'a> Schema<'a> {
    pub fn of(place: &Place<'_>, named: &Members<'a>) -> Result<Self, Violation> {
        let schema = check::required(place, named, "schema")?;
        check::object(&place.member("schema"), schema)?;
        let strict = check::present(named, "strict");
        let strict = strict.map(|strict| check::boolean(&place.member("strict"), strict)).transpose()?;
        Ok(Self { schema, about: about(place, named)?, strict })
    }

    /// The same in the other format, which has no word for a wish: that goes beside the request.
    pub fn told(&self, beside: &mut Object) -> String {
        if let Some(strict) = self.strict {
            let wish = format!(r#"{{"type":"json_schema","json_schema":{{"strict":{strict}}}}}"#);
            beside.set("response_format", &wish);
        }
        described(self.schema, self.about.as_deref())
    }
}

pub(crate) fn format<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Format<'a>, Violation> {
    let members = check::members(place, value)?;
    let kind = check::required(place, &members, "type")?;
    match check::one_of(&place.member("type"), kind, &["text", "json_object", "json_schema"])?.as_ref() {
        "json_object" => Ok(Format::Object),
        "json_schema" => {
            let inner = place.member("json_schema");
            let named = check::members(&inner, check::required(place, &members, "json_schema")?)?;
            Ok(Format::Schema(Schema::of(&inner, &named)?))
        }
        _ => Ok(Format::Text),
    }
}

/// What the answer is to be, in words.
fn about<'a>(place: &Place<'_>, format: &Members<'a>) -> Result<Option<Cow<'a, str>>, Violation> {
    let said = check::present(format, "description");
    let said = said.map(|said| check::text(&place.member("description"), said)).transpose()?;
    Ok(said.filter(|said| !said.trim().is_empty()))
}

/// What travels beside the request; the provider judges how much of it there may be.
pub(crate) fn check_option(place: &Place<'_>, name: &str, value: &RawValue) -> Result<(), Violation> {
    match name {
        "logit_bias" => check::object(place, value),
        "verbosity" => check::one_of(place, value, &["low", "medium", "high", "xhigh", "max"]).map(drop),
        "seed" => {
            let text = value.get();
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_integer { Ok(()) } else { Err(place.is("must be an integer")) }
        }
        _ => check::number_between(place, value, -2.0, 2.0).map(|_| ()),
    }
}

/// How hard the model is to think, in all the words there are for it.
#[derive(Debug, Default)]
pub(crate) struct Reasoning {
    /// As the other format calls it.
    pub level: Option<String>,
    pub is_hidden: bool,
    is_on: Option<bool>,
    /// As it was asked for.
    budget: Option<u64>,
}

impl Reasoning {
    pub fn effort(&mut self, place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
        let effort = check::one_of(place, value, &EFFORTS)?;
        match effort.as_ref() {
            "none" => self.is_on = Some(false),
            // What is least there.
            "minimal" => (self.is_on, self.level) = (Some(true), Some("low".to_owned())),
            effort => (self.is_on, self.level) = (Some(true), Some(effort.to_owned())),
        }
        Ok(())
    }

    pub fn object(&mut self, place: &Place<'_>, value: &RawValue) -> Result<(), Violation> {
        let members = check::members(place, value)?;
        if let Some(enabled) = check::present(&members, "enabled") {
            self.is_on = Some(check::boolean(&place.member("enabled"), enabled)?);
        }
        if let Some(effort) = check::present(&members, "effort") {
            self.effort(&place.member("effort"), effort)?;
        }
        if let Some(budget) = check::present(&members, "max_tokens") {
            let budget = check::integer(&place.member("max_tokens"), budget, 0)?;
            self.is_on = Some(budget > 0);
            self.budget = (budget > 0).then_some(budget);
        }
        // Who wants to be told of thoughts wants some.
        let is_told = ["summary", "generate_summary"].iter().any(|name| check::present(&members, name).is_some());
        if is_told && self.is_on.is_none() {
            self.is_on = Some(true);
        }
        if let Some(exclude) = check::present(&members, "exclude") {
            self.is_hidden |= check::boolean(&place.member("exclude"), exclude)?;
        }
        Ok(())
    }

    /// The same in the other format; nothing where nobody has said anything. `limit`: the most that may be answered, and what
    /// it is called.
    pub fn thinking(&self, limit: (&str, Option<u64>)) -> Result<Option<String>, Violation> {
        let Some(is_on) = self.is_on else { return Ok(None) };
        let mut made = Object::default();
        match self.budget.filter(|_| is_on) {
            _ if !is_on => made.set_text("type", "disabled"),
            Some(asked) => {
                let (budget, (name, most)) = (asked.max(LEAST_BUDGET), limit);
                if most.is_some_and(|most| most <= budget) {
                    let place = Place::top(name);
                    return Err(match asked < LEAST_BUDGET {
                        true => {
                            place.is(format_args!("must be greater than {LEAST_BUDGET}, the least that thinking takes"))
                        }
                        false => place.is("must be greater than reasoning.max_tokens"),
                    });
                }
                made.set_text("type", "enabled");
                made.set("budget_tokens", &budget.to_string());
            }
            None => made.set_text("type", "adaptive"),
        }
        if is_on && self.is_hidden {
            made.set_text("display", "omitted");
        }
        Ok(Some(made.finish()))
    }
}
