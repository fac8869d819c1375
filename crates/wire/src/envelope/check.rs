//! Checks of single values, each with the exact text of its violation.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::{Brand, MAX_TOOLS, Violation};
use crate::error::ErrorType;
use crate::json::{self, Kind, Members};

/// Largest integer we take anywhere; beyond it a number is a mistake, not a wish.
const LARGEST: u64 = 1_000_000_000_000;

/// Where a value stands. Written out only when something is wrong there.
pub(crate) enum Place<'p> {
    /// The whole of it; its members are named by themselves.
    Body,
    Top(&'p str),
    Member(&'p Place<'p>, &'p str),
    Entry(&'p Place<'p>, usize),
    Lazy(&'p dyn Fn() -> String),
}

impl<'p> Place<'p> {
    pub fn top(name: &'p str) -> Self {
        Self::Top(name)
    }

    pub fn member(&'p self, name: &'p str) -> Self {
        Self::Member(self, name)
    }

    pub fn entry(&'p self, index: usize) -> Self {
        Self::Entry(self, index)
    }

    pub fn is(&self, problem: impl fmt::Display) -> Violation {
        Violation::new(format!("{self} {problem}"))
    }

    pub fn required(&self) -> Violation {
        self.is("is required")
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => out.write_str("body"),
            Self::Top(name) | Self::Member(Self::Body, name) => out.write_str(name),
            Self::Member(parent, name) => write!(out, "{parent}.{name}"),
            Self::Entry(parent, index) => write!(out, "{parent}[{index}]"),
            Self::Lazy(text) => out.write_str(&text()),
        }
    }
}

type Checked<T = ()> = Result<T, Violation>;

pub(crate) fn text<'a>(place: &Place<'_>, value: &'a RawValue) -> Checked<Cow<'a, str>> {
    if json::kind(value) != Kind::String {
        return Err(place.is("must be a string"));
    }
    json::string(value).ok_or_else(|| place.is("has an invalid format"))
}

pub(crate) fn text_between<'a>(
    place: &Place<'_>,
    value: &'a RawValue,
    least: usize,
    most: usize,
) -> Checked<Cow<'a, str>> {
    let text = text(place, value)?;
    // Bytes bound characters, so the count is needed only for long texts.
    if text.len() > most && text.chars().count() > most {
        return Err(place.is(format_args!("must be at most {most} characters")));
    }
    if text.len() < least {
        return Err(place.is(format_args!("must be at least {least} characters")));
    }
    // Without an escape there is none.
    if matches!(&text, Cow::Owned(text) if text.contains('\0')) {
        return Err(place.is("has an invalid format"));
    }
    Ok(text)
}

pub(crate) fn one_of<'a>(place: &Place<'_>, value: &'a RawValue, allowed: &[&str]) -> Checked<Cow<'a, str>> {
    let text = text(place, value)?;
    if allowed.contains(&text.as_ref()) {
        return Ok(text);
    }
    Err(place.is(format_args!("must be one of {}", allowed.join(", "))))
}

pub(crate) fn boolean(place: &Place<'_>, value: &RawValue) -> Checked<bool> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(place.is("must be a boolean")),
    }
}

pub(crate) fn integer(place: &Place<'_>, value: &RawValue, least: u64) -> Checked<u64> {
    let text = value.get();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(place.is("must be an integer"));
    }
    let too_small = || place.is(format_args!("must be at least {least}"));
    if text.starts_with('-') && digits.bytes().any(|digit| digit != b'0') {
        return Err(too_small());
    }
    let number = digits.parse::<u64>().ok().filter(|number| *number <= LARGEST);
    let number = number.ok_or_else(|| place.is(format_args!("must be at most {LARGEST}")))?;
    if number < least { Err(too_small()) } else { Ok(number) }
}

/// Zero warms a cache on endpoints that know it; the text for a negative number still says 1.
pub(crate) fn max_tokens(place: &Place<'_>, value: &RawValue) -> Checked<u64> {
    if value.get() == "0" { Ok(0) } else { integer(place, value, 1) }
}

pub(crate) fn number_between(place: &Place<'_>, value: &RawValue, least: f64, most: f64) -> Checked<f64> {
    if json::kind(value) != Kind::Number {
        return Err(place.is("must be a number"));
    }
    // Text such as 1e999 is valid JSON and parses to infinity, which no range admits.
    let number = value.get().parse::<f64>().unwrap_or(f64::INFINITY);
    if number < least {
        return Err(place.is(format_args!("must be at least {least}")));
    }
    if number > most {
        return Err(place.is(format_args!("must be at most {most}")));
    }
    Ok(number)
}

pub(crate) fn object(place: &Place<'_>, value: &RawValue) -> Checked {
    if json::kind(value) == Kind::Object { Ok(()) } else { Err(place.is("must be an object")) }
}

pub(crate) fn array(place: &Place<'_>, value: &RawValue) -> Checked {
    if json::kind(value) == Kind::Array { Ok(()) } else { Err(place.is("must be an array")) }
}

pub(crate) fn text_or_object(place: &Place<'_>, value: &RawValue) -> Checked {
    match json::kind(value) {
        Kind::String | Kind::Object => Ok(()),
        _ => Err(place.is("must be a string or an object")),
    }
}

/// The members of an object, none of them twice.
pub(crate) fn members<'a>(place: &Place<'_>, value: &'a RawValue) -> Checked<Members<'a>> {
    object(place, value)?;
    let members = Members::of(value).ok_or_else(|| place.is("has an invalid format"))?;
    if let Some(name) = members.repeated() {
        return Err(place.member(name).is("appears more than once"));
    }
    Ok(members)
}

/// The entries of an array with its limits of length.
pub(crate) fn entries<'a>(
    place: &Place<'_>,
    value: &'a RawValue,
    least: usize,
    most: usize,
) -> Checked<Vec<&'a RawValue>> {
    array(place, value)?;
    let entries = json::elements(value).ok_or_else(|| place.is("has an invalid format"))?;
    if entries.len() > most {
        return Err(place.is(format_args!("must have at most {most} entries")));
    }
    if entries.len() < least {
        return Err(place.is(format_args!("must have at least {least} entries")));
    }
    Ok(entries)
}

/// A member that is there and not null.
pub(crate) fn present<'a>(members: &Members<'a>, name: &str) -> Option<&'a RawValue> {
    members.get(name).filter(|value| json::kind(value) != Kind::Null)
}

pub(crate) fn required<'a>(place: &Place<'_>, members: &Members<'a>, name: &str) -> Checked<&'a RawValue> {
    present(members, name).ok_or_else(|| place.member(name).required())
}

/// Whether a conversation that the upstream holds is gone on with. What else it may be is the upstream's to say.
pub(crate) fn thread(place: &Place<'_>, value: &RawValue) -> Checked<bool> {
    let kind = required(place, &members(place, value)?, "type")?;
    Ok(text(&place.member("type"), kind)? == "continue")
}

pub(crate) fn stop_sequences(place: &Place<'_>, value: &RawValue) -> Checked {
    for (index, entry) in entries(place, value, 0, usize::MAX)?.into_iter().enumerate() {
        text_between(&place.entry(index), entry, 1, usize::MAX)?;
    }
    Ok(())
}

pub(crate) fn cache_control(place: &Place<'_>, value: &RawValue) -> Checked {
    let members = members(place, value)?;
    one_of(&place.member("type"), required(place, &members, "type")?, &["ephemeral"])?;
    if let Some(ttl) = present(&members, "ttl") {
        one_of(&place.member("ttl"), ttl, &["5m", "1h"])?;
    }
    Ok(())
}

/// The budget of fixed thinking, if that is what is asked for.
pub(crate) fn thinking(place: &Place<'_>, value: &RawValue) -> Checked<Option<u64>> {
    let members = members(place, value)?;
    let kinds = ["enabled", "adaptive", "disabled", "between_tools"];
    let kind = one_of(&place.member("type"), required(place, &members, "type")?, &kinds)?;
    if let Some(display) = present(&members, "display") {
        one_of(&place.member("display"), display, &["summarized", "omitted"])?;
    }
    if kind != "enabled" {
        return Ok(None);
    }
    let budget = required(place, &members, "budget_tokens")?;
    integer(&place.member("budget_tokens"), budget, 1024).map(Some)
}

/// The effort, where one is asked for.
pub(crate) fn output_config(place: &Place<'_>, value: &RawValue) -> Checked<Option<&'static str>> {
    const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];
    let members = members(place, value)?;
    let mut level = None;
    if let Some(effort) = present(&members, "effort") {
        let effort = one_of(&place.member("effort"), effort, &EFFORTS)?;
        level = EFFORTS.into_iter().find(|known| *known == effort);
    }
    if let Some(format) = present(&members, "format") {
        let place = place.member("format");
        let members = self::members(&place, format)?;
        one_of(&place.member("type"), required(&place, &members, "type")?, &["json_schema"])?;
        object(&place.member("schema"), required(&place, &members, "schema")?)?;
    }
    if let Some(budget) = present(&members, "task_budget") {
        let place = place.member("task_budget");
        let members = self::members(&place, budget)?;
        one_of(&place.member("type"), required(&place, &members, "type")?, &["tokens"])?;
        integer(&place.member("total"), required(&place, &members, "total")?, 20_000)?;
        if let Some(remaining) = present(&members, "remaining") {
            integer(&place.member("remaining"), remaining, 0)?;
        }
    }
    Ok(level)
}

/// Whether a compaction is among the edits.
pub(crate) fn context_management(place: &Place<'_>, value: &RawValue) -> Checked<bool> {
    let members = members(place, value)?;
    let Some(edits) = present(&members, "edits") else { return Ok(false) };
    let mut compacts = false;
    let place = place.member("edits");
    for (index, edit) in entries(&place, edits, 0, usize::MAX)?.into_iter().enumerate() {
        let entry = place.entry(index);
        let members = self::members(&entry, edit)?;
        let kind = one_of(&entry.member("type"), required(&entry, &members, "type")?, &EDITS)?;
        if kind == EDITS[1] && index > 0 {
            return Err(Violation::new(format!("{place}: {} must come first", EDITS[1])));
        }
        compacts |= kind == EDITS[2];
        for (name, value) in members.0.iter().filter(|(_, value)| json::kind(value) != Kind::Null) {
            edit_member(&kind, name, &entry.member(name), value)?;
        }
    }
    Ok(compacts)
}

/// The edits of a conversation that there are.
const EDITS: [&str; 3] = ["clear_tool_uses_20250919", "clear_thinking_20251015", "compact_20260112"];

fn edit_member(kind: &str, name: &str, place: &Place<'_>, value: &RawValue) -> Checked {
    match (kind, name) {
        ("clear_tool_uses_20250919", "trigger") => amount(place, value, &["input_tokens", "tool_uses"]),
        ("clear_tool_uses_20250919", "keep") => amount(place, value, &["tool_uses"]),
        ("clear_tool_uses_20250919", "clear_at_least") | ("compact_20260112", "trigger") => {
            amount(place, value, &["input_tokens"])
        }
        ("clear_tool_uses_20250919", "clear_tool_inputs") if json::kind(value) == Kind::Boolean => Ok(()),
        ("clear_tool_uses_20250919", "clear_tool_inputs" | "exclude_tools") => {
            let names = entries(place, value, 0, usize::MAX)?;
            names.into_iter().enumerate().try_for_each(|(index, name)| text(&place.entry(index), name).map(drop))
        }
        ("clear_thinking_20251015", "keep") if json::kind(value) == Kind::String => {
            one_of(place, value, &["all"]).map(drop)
        }
        ("clear_thinking_20251015", "keep") => amount(place, value, &["thinking_turns", "all"]),
        ("compact_20260112", "instructions") => text(place, value).map(drop),
        ("compact_20260112", "pause_after_compaction") => boolean(place, value).map(drop),
        _ => Ok(()),
    }
}

/// A number of something, or all of it.
fn amount(place: &Place<'_>, value: &RawValue, kinds: &[&str]) -> Checked {
    let members = members(place, value)?;
    let kind = one_of(&place.member("type"), required(place, &members, "type")?, kinds)?;
    if kind != "all" {
        integer(&place.member("value"), required(place, &members, "value")?, 0)?;
    }
    Ok(())
}

/// The end user named in `metadata`.
pub(crate) fn metadata<'a>(place: &Place<'_>, value: &'a RawValue) -> Checked<Option<Cow<'a, str>>> {
    let members = members(place, value)?;
    present(&members, "user_id").map(|user| text_between(&place.member("user_id"), user, 0, 256)).transpose()
}

/// What a `tool_choice` demands of the list of tools.
pub(crate) enum ToolChoice<'a> {
    Free,
    Any,
    Named(Cow<'a, str>),
}

pub(crate) fn tool_choice<'a>(place: &Place<'_>, value: &'a RawValue) -> Checked<ToolChoice<'a>> {
    let members = members(place, value)?;
    let kind = one_of(&place.member("type"), required(place, &members, "type")?, &["auto", "any", "tool", "none"])?;
    if let Some(parallel) = present(&members, "disable_parallel_tool_use") {
        boolean(&place.member("disable_parallel_tool_use"), parallel)?;
    }
    Ok(match kind.as_ref() {
        "any" => ToolChoice::Any,
        "tool" => ToolChoice::Named(text(&place.member("name"), required(place, &members, "name")?)?),
        _ => ToolChoice::Free,
    })
}

pub(crate) fn tool_choice_fits(choice: Option<&ToolChoice<'_>>, tools: Option<&Tools<'_>>) -> Checked {
    let has_tools = tools.is_some_and(|tools| tools.count > 0);
    match choice {
        None | Some(ToolChoice::Free) => Ok(()),
        Some(_) if !has_tools => Err(Violation::new("tool_choice requires tools")),
        Some(ToolChoice::Named(name)) if !tools.is_some_and(|tools| tools.has(name)) => {
            Err(Violation::new(format!("tool_choice.name '{name}' is not among the tools")))
        }
        Some(_) => Ok(()),
    }
}

/// The members of a tool that we look at.
#[derive(Default)]
pub(crate) struct Tool<'a> {
    pub is_object: bool,
    pub repeated: Option<String>,
    pub kind: Option<&'a RawValue>,
    pub name: Option<&'a RawValue>,
    pub schema: Option<Kind>,
    pub cache_control: Option<&'a RawValue>,
    pub is_deferred: bool,
    /// A member of a function that has the wrong type, and what it must be.
    pub mistyped: Option<(&'static str, &'static str)>,
}

/// Members of a function that have a type.
const TYPED: [(&str, Kind, &str); 4] = [
    ("description", Kind::String, "must be a string"),
    ("defer_loading", Kind::Boolean, "must be a boolean"),
    ("strict", Kind::Boolean, "must be a boolean"),
    ("eager_input_streaming", Kind::Boolean, "must be a boolean"),
];

impl Tool<'_> {
    /// Looks whether a member has its type.
    pub fn look(&mut self, name: &str, kind: Kind) {
        let wrong = TYPED.iter().find(|(known, wanted, _)| *known == name && kind != *wanted && kind != Kind::Null);
        self.mistyped = self.mistyped.or_else(|| wrong.map(|(known, _, problem)| (*known, *problem)));
    }
}

/// Types of a vendor's whose name is fixed: models were trained on it.
const NAMES: [(&str, &str); 9] = [
    ("bash_20250124", "bash"),
    ("text_editor_20250124", "str_replace_editor"),
    ("web_search_20250305", "web_search"),
    ("web_search_20260209", "web_search"),
    ("advisor_20260301", "advisor"),
    ("tool_search_tool_bm25", "tool_search_tool_bm25"),
    ("tool_search_tool_bm25_20251119", "tool_search_tool_bm25"),
    ("tool_search_tool_regex", "tool_search_tool_regex"),
    ("tool_search_tool_regex_20251119", "tool_search_tool_regex"),
];
/// Types of another interface's, which no Messages upstream knows.
pub(crate) const ELSEWHERE: [&str; 2] = ["shell", "local_shell"];

/// What types of a vendor's begin with that the gateway runs wherever they are asked for.
const ALWAYS_OURS: [&str; 2] = ["tool_search_tool_", "advisor_20"];

/// How the types of the tool begin that runs code in a container of Anthropic's.
pub const CODE: &str = "code_execution_20";

#[derive(Default)]
pub(crate) struct Tools<'a> {
    count: usize,
    /// Each with whether it is a tool that the vendor or the gateway runs.
    names: Vec<(Cow<'a, str>, bool)>,
    pub branded: SmallVec<[Cow<'a, str>; 2]>,
    pub has_vendor_web: bool,
    pub has_vendor_fetch: bool,
    pub has_vendor_code: bool,
    pub has_deferred: bool,
}

impl<'a> Tools<'a> {
    pub fn add(&mut self, index: usize, tool: Tool<'a>, brand: Brand<'_>) -> Checked {
        self.count += 1;
        if self.count > MAX_TOOLS {
            return Ok(()); // `count_fits` reports it
        }
        let tools = Place::top("tools");
        let place = tools.entry(index);
        if !tool.is_object {
            return Err(place.is("must be an object"));
        }
        if let Some(name) = tool.repeated {
            return Err(place.member(&name).is("appears more than once"));
        }
        if let Some(marker) = tool.cache_control.filter(|marker| json::kind(marker) != Kind::Null) {
            cache_control(&place.member("cache_control"), marker)?;
        }
        self.has_deferred |= tool.is_deferred;
        let kind = tool.kind.filter(|kind| json::kind(kind) != Kind::Null);
        let kind = kind.map(|kind| text(&place.member("type"), kind)).transpose()?;
        match kind.as_deref() {
            None | Some("custom") => self.add_custom(&place, index, &tool),
            Some(kind) if brand.tool(kind).is_some() => {
                self.branded.push(Cow::Owned(kind.to_owned()));
                Ok(())
            }
            Some(kind) if ELSEWHERE.contains(&kind) => {
                let message = format!("{kind} is only available on the Responses API");
                Err(Violation { message, error_type: ErrorType::InvalidRequest })
            }
            // Every other type is a vendor's: its name is needed for `tool_choice`, the rest is not ours to judge.
            Some(kind) => {
                if let Some((_, fixed)) = NAMES.iter().find(|(known, _)| *known == kind) {
                    let name = tool.name.filter(|name| json::kind(name) != Kind::Null);
                    one_of(&place.member("name"), name.ok_or_else(|| place.member("name").required())?, &[fixed])?;
                }
                self.has_vendor_fetch |= kind.starts_with("web_fetch_20");
                self.has_vendor_code |= kind.starts_with(CODE);
                self.has_vendor_web |= self.has_vendor_fetch || kind.starts_with("web_search_20");
                let is_ours = ALWAYS_OURS.iter().any(|ours| kind.starts_with(ours));
                if is_ours {
                    self.branded.push(Cow::Owned(kind.to_owned()));
                }
                let is_run = is_ours || ["web_search_20", "web_fetch_20"].iter().any(|web| kind.starts_with(web));
                match tool.name.filter(|name| json::kind(name) == Kind::String).and_then(json::string) {
                    Some(name) => self.add_name(index, name, is_run),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether a choice can name one so: what the gateway runs has no name of its own, but a type and a function.
    fn has(&self, name: &str) -> bool {
        let is_branded = |kind: &str| {
            kind == name
                || kind.split_once(':').is_some_and(|(brand, tool)| {
                    tool == name || name.split_once('_').is_some_and(|given| given == (brand, tool))
                })
        };
        self.names.iter().any(|(known, _)| known == name) || self.branded.iter().any(|kind| is_branded(kind))
    }

    pub fn count_fits(&self) -> Checked {
        if self.count <= MAX_TOOLS {
            return Ok(());
        }
        Err(Violation::new(format!("tools must have at most {MAX_TOOLS} entries")))
    }

    fn add_custom(&mut self, place: &Place<'_>, index: usize, tool: &Tool<'a>) -> Checked {
        let name = tool.name.filter(|name| json::kind(name) != Kind::Null);
        let name = text(&place.member("name"), name.ok_or_else(|| place.member("name").required())?)?;
        let fits = (1..=128).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        if !fits {
            return Err(place.member("name").is("has an invalid format"));
        }
        match tool.schema {
            None | Some(Kind::Null) => return Err(place.member("input_schema").required()),
            Some(Kind::Object) => {}
            Some(_) => return Err(place.member("input_schema").is("must be an object")),
        }
        if let Some((member, problem)) = tool.mistyped {
            return Err(place.member(member).is(problem));
        }
        self.add_name(index, name, false)
    }

    fn add_name(&mut self, index: usize, name: Cow<'a, str>, is_run: bool) -> Checked {
        match self.names.iter().find(|(known, _)| *known == name) {
            None => {
                self.names.push((name, is_run));
                Ok(())
            }
            // A call of that name would be the caller's as well as somebody else's.
            Some((_, other)) if *other != is_run => {
                Err(Violation { message: format!("tool name conflict: {name}"), error_type: ErrorType::InvalidRequest })
            }
            Some(_) => Err(Violation::new(format!("tools[{index}].name '{name}' is used more than once"))),
        }
    }
}
