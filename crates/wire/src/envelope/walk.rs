//! The one pass: nodes that know their place in the document.

mod blocks;
mod tools;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize as _;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::check::{self, Place};
use super::{
    Brand, Envelope, MAX_MESSAGES, NOT_COUNTED, NOT_NEEDED, Partition, Purpose, Violation, is_optional, is_own,
    limited, member_range, options, provider,
};
use crate::chat;
use crate::json::{self, Kind, Node, Seen, Text, Walk};
use crate::preset;

use blocks::{Block, has_lifetime, is_blank_text};
use tools::Tools;

/// What the walk has gathered; the first violation wins, the walk goes on so that the body is known to be JSON.
struct State<'a, 'b> {
    text: &'a str,
    brand: Brand<'b>,
    purpose: Purpose,
    /// Where it is given back from: it is large, and not moved with the rest.
    envelope: &'b mut Envelope<'a>,
    found: Option<Violation>,
    /// A model is named somewhere, be it in a form we refuse.
    names_model: bool,
    has_messages: bool,
    has_content: bool,
    /// Blocks that say nothing: blank texts, and thinking that nobody signed.
    silent: usize,
    tools: Option<check::Tools<'a>>,
    tool_choice: Option<check::ToolChoice<'a>>,
    thinking_budget: Option<u64>,
    region: Region,
}

/// Where the walk is, as far as the opening of the conversation goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Region {
    System,
    FirstMessage,
    Elsewhere,
}

impl<'a> State<'a, '_> {
    /// Notes a text of the opening: the first of its kind counts.
    fn hear(&mut self, said: &'a str) {
        let opening = &mut self.envelope.opening;
        let place = match self.region {
            Region::System => &mut opening.system,
            Region::FirstMessage => &mut opening.message,
            Region::Elsewhere => return,
        };
        place.get_or_insert(said);
    }

    fn note(&mut self, violation: Violation) {
        self.found.get_or_insert(violation);
    }

    fn check(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.note(violation);
        }
    }
}

pub(super) fn top<'a>(text: &'a str, brand: Brand<'_>, purpose: Purpose) -> Result<Envelope<'a>, Violation> {
    let first = text.trim_start_matches([' ', '\n', '\r', '\t']);
    if !first.starts_with('{') {
        limited(text, |reader| IgnoredAny::deserialize(reader))?;
        return Err(Violation::new("body must be an object"));
    }
    let mut envelope = Envelope::default();
    envelope.cuts.inside = text.len() - first.len() + 1;
    let mut state = State {
        text,
        brand,
        purpose,
        envelope: &mut envelope,
        found: None,
        names_model: false,
        has_messages: false,
        has_content: false,
        silent: 0,
        tools: None,
        tool_choice: None,
        thinking_budget: None,
        region: Region::Elsewhere,
    };
    limited(text, |reader| reader.deserialize_map(Top(&mut state)))?;
    finish(state)?;
    Ok(envelope)
}

/// Required fields first, then document order, then rules across fields.
fn finish(state: State<'_, '_>) -> Result<(), Violation> {
    let is_kept = state.purpose == Purpose::Keep;
    if !state.names_model && !is_kept {
        return Err(Violation::new("model is required"));
    }
    // Whoever holds the conversation goes on with a turn that it paused, and nothing has to be said for that.
    let may_be_silent = is_kept || state.envelope.asked.continues_thread;
    if !state.has_messages && !may_be_silent {
        return Err(Violation::new("messages is required"));
    }
    if let Some(violation) = state.found {
        return Err(violation);
    }
    if !state.has_content && !may_be_silent {
        return Err(Violation::prompt("messages must not be empty"));
    }
    let envelope = state.envelope;
    if is_kept {
        preset::names_none(envelope)?;
    }
    envelope.names_preset = envelope.preset.is_some() || envelope.model.as_deref().is_some_and(preset::is_named_in);
    // What is missing here may be in the preset.
    if envelope.names_preset {
        return Ok(());
    }
    if envelope.fallbacks.is_some() && envelope.models.is_some() {
        return Err(Violation::new("fallbacks cannot be combined with models"));
    }
    if let (Some(budget), Some(limit)) = (state.thinking_budget, envelope.max_tokens)
        && limit <= budget
        && state.purpose != Purpose::Count
    {
        return Err(Violation::new("max_tokens must be greater than thinking.budget_tokens"));
    }
    // The tools that are chosen from may come with the request.
    if !is_kept {
        check::tool_choice_fits(state.tool_choice.as_ref(), state.tools.as_ref())?;
    }
    Ok(())
}

struct Top<'s, 'a, 'b>(&'s mut State<'a, 'b>);

impl<'a> Visitor<'a> for Top<'_, 'a, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let state = self.0;
        let mut seen = Seen::default();
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                state.note(Violation::new(format!("{} appears more than once", shown(&name))));
            }
            match name.as_ref() {
                "messages" => map.next_value_seed(Walk(Messages(state)))?,
                "tools" => {
                    map.next_value_seed(Walk(Tools(state)))?;
                    cut_null(state, &name);
                }
                "system" => {
                    map.next_value_seed(Walk(System(state)))?;
                    cut_null(state, &name);
                }
                _ => {
                    let value: &'a RawValue = map.next_value()?;
                    member(state, &name, value);
                }
            }
        }
        Ok(())
    }
}

/// A member name as it may appear in an error text: ours are short words; a stranger's could be anything.
fn shown(name: &str) -> Cow<'_, str> {
    if name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        Cow::Borrowed(name)
    } else {
        Cow::Borrowed("a member")
    }
}

/// Cuts a member that was walked through rather than sliced, if it is null. An escaped name hides where it stands, and
/// nobody writes these so: such a null goes on.
#[expect(clippy::ptr_arg, reason = "whether it is borrowed says where it stands")]
fn cut_null(state: &mut State<'_, '_>, name: &Cow<'_, str>) {
    let Cow::Borrowed(name) = name else { return };
    let span = json::span(state.text, name);
    let behind = state.text[span.end + 1..].trim_ascii_start();
    let value = behind.strip_prefix(':').map(str::trim_ascii_start);
    if let Some(value) = value.filter(|value| value.starts_with("null")) {
        let end = state.text.len() - value.len() + "null".len();
        state.envelope.cuts.members.push(span.start - 1..end);
    }
}

#[expect(clippy::ptr_arg, reason = "whether it is borrowed says where it stands")]
fn member<'a>(state: &mut State<'a, '_>, name: &Cow<'a, str>, value: &'a RawValue) {
    let is_null = json::kind(value) == Kind::Null;
    let span = json::span(state.text, value.get());
    let range = member_range(state.text, name, span.clone());
    let name = name.as_ref();
    match name {
        "model" => {
            state.envelope.cuts.model_member = Some(range.clone());
            state.envelope.cuts.model_value = Some(span);
        }
        "stream" => state.envelope.cuts.stream_member = Some(range.clone()),
        _ => {}
    }
    let is_cut = is_own(name)
        || (state.purpose == Purpose::Count && NOT_COUNTED.contains(&name))
        // Vendors refuse a null where they know no such value, and a limit that is added must not stand there twice.
        || (is_null && is_optional(name));
    if is_cut {
        state.envelope.cuts.members.push(range);
    }
    // Null means absent for every optional member.
    if is_null {
        return;
    }
    // Whatever they hold, they are ignored; but who counts only calls that could be made may be told a limit that is one.
    if state.purpose == Purpose::Count && (NOT_COUNTED.contains(&name) || NOT_NEEDED.contains(&name)) {
        if name == "max_tokens" {
            state.envelope.max_tokens = check::max_tokens(&Place::top(name), value).ok();
        }
        return;
    }
    state.envelope.cuts.has_max_tokens |= name == "max_tokens" && !is_cut;
    let result = read_member(state, name, value);
    state.check(result);
}

fn read_member<'a>(state: &mut State<'a, '_>, name: &str, value: &'a RawValue) -> Result<(), Violation> {
    let envelope = &mut *state.envelope;
    let (traits, asked) = (&mut envelope.traits, &mut envelope.asked);
    let place = Place::top(name);
    match name {
        "model" => {
            state.names_model = true;
            envelope.model = Some(check::text_between(&place, value, 1, 256)?);
        }
        "stream" => envelope.stream = check::boolean(&place, value)?,
        "max_tokens" => envelope.max_tokens = Some(check::max_tokens(&place, value)?),
        "temperature" => {
            (traits.sampling, asked.temperature) = (true, true);
            envelope.temperature = Some(value);
            traits.hot = check::number_between(&place, value, 0.0, 2.0)? > 1.0;
        }
        "top_p" => {
            (traits.sampling, asked.top_p) = (true, true);
            envelope.top_p = Some(value);
            check::number_between(&place, value, 0.0, 1.0)?;
        }
        "top_k" => {
            (traits.sampling, asked.top_k) = (true, true);
            envelope.top_k = Some(value);
            check::integer(&place, value, 0)?;
        }
        "stop_sequences" => {
            asked.stop = true;
            check::stop_sequences(&place, value)?;
        }
        "tool_choice" => {
            asked.tool_choice = true;
            let choice = check::tool_choice(&place, value)?;
            traits.forced_choice = !matches!(choice, check::ToolChoice::Free);
            state.tool_choice = Some(choice);
        }
        "thinking" => {
            traits.thinking = true;
            state.thinking_budget = check::thinking(&place, value)?;
        }
        "output_config" => {
            traits.effort |= value.get().contains("\"effort\"");
            asked.structured |= value.get().contains("\"format\"");
            traits.effort_level = check::output_config(&place, value)?;
        }
        "context_management" => {
            (traits.context_edits, asked.context_management) = (true, true);
            traits.compaction = check::context_management(&place, value)?;
        }
        "cache_control" => {
            traits.cache_lifetime |= has_lifetime(value);
            traits.cache_for_all = true;
            check::cache_control(&place, value)?;
        }
        "service_tier" => {
            let tier = check::text(&place, value)?;
            traits.odd_tier = !matches!(tier.as_ref(), "auto" | "standard_only");
            envelope.service_tier = Some(tier);
        }
        "inference_geo" => {
            asked.inference_geo = true;
            check::text(&place, value)?;
        }
        "speed" => {
            traits.speed = true;
            envelope.is_fast = check::one_of(&place, value, &["fast", "standard"])? == "fast";
        }
        "metadata" => envelope.metadata_user = check::metadata(&place, value)?,
        "container" => {
            asked.container = true;
            check::text_or_object(&place, value)?;
        }
        "mcp_servers" => {
            asked.mcp_servers = value.get() != "[]";
            check::array(&place, value)?;
        }
        "thread" => {
            asked.thread = true;
            asked.continues_thread = check::thread(&place, value)?;
        }
        "diagnostics" => {
            asked.diagnostics = true;
            check::object(&place, value)?;
        }
        "output_format" => {
            asked.structured = true;
            check::object(&place, value)?;
        }
        "session_id" => envelope.session_id = Some(check::text_between(&place, value, 0, 256)?),
        "user" => envelope.user = Some(check::text_between(&place, value, 0, 256)?),
        "models" => {
            state.names_model |= json::elements(value).is_none_or(|models| !models.is_empty());
            envelope.models = Some(options::models(&place, value)?);
        }
        "fallbacks" => {
            envelope.fallbacks = Some(options::fallbacks(&place, value)?);
        }
        "plugins" => {
            options::plugins(&place, value)?;
            envelope.plugins = Some(value);
        }
        "provider" => {
            envelope.provider = Some(Box::new(provider::provider(&place, value)?));
        }
        "route" => {
            let route = check::one_of(&place, value, &["fallback", "sort"])?;
            envelope.route = Some(if route == "sort" { Partition::None } else { Partition::Model });
        }
        "trace" => {
            options::trace(&place, value)?;
            envelope.trace = Some(value);
        }
        "stop_server_tools_when" => {
            options::stop_when(&place, value)?;
            envelope.stop_when = Some(value);
        }
        "max_tool_calls" => envelope.max_tool_calls = Some(check::integer(&place, value, 1)?),
        chat::OPTIONS => {
            options::chat(&place, value)?;
            traits.chat_options = true;
            envelope.chat_options = Some(value);
        }
        "preset" => {
            state.names_model = true;
            envelope.preset = Some(check::text_between(&place, value, 1, 256)?);
        }
        // Of a preset only: in a request these are strangers.
        "cache_enabled" if state.purpose == Purpose::Keep => drop(check::boolean(&place, value)?),
        "cache_ttl_seconds" if state.purpose == Purpose::Keep => drop(check::integer(&place, value, 1)?),
        _ => {} // a stranger: forwarded as it came
    }
    Ok(())
}

struct Messages<'s, 'a, 'b>(&'s mut State<'a, 'b>);

impl<'a> Node<'a> for Messages<'_, 'a, '_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut index = 0;
        while seq.next_element_seed(Walk(Message { state: self.0, index }))?.is_some() {
            index += 1;
        }
        self.0.has_messages = index > 0;
        if index > MAX_MESSAGES {
            self.0.note(Violation::new(format!("messages must have at most {MAX_MESSAGES} entries")));
        }
        Ok(())
    }

    fn other(self, kind: Kind) {
        if kind != Kind::Null {
            self.0.has_messages = true;
            self.0.note(Violation::new("messages must be an array"));
        }
    }
}

struct Message<'s, 'a, 'b> {
    state: &'s mut State<'a, 'b>,
    index: usize,
}

impl<'a> Node<'a> for Message<'_, 'a, '_> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, index } = self;
        let mut seen = Seen::default();
        state.region = if index == 0 { Region::FirstMessage } else { Region::Elsewhere };
        let (mut role, mut content) = (false, false);
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                state.note(Violation::new(format!("messages[{index}].{} appears more than once", shown(&name))));
            }
            match name.as_ref() {
                "role" => {
                    role = true;
                    let value: &RawValue = map.next_value()?;
                    let role = json::string(value);
                    state.envelope.traits.system_message |= role.as_deref() == Some("system");
                    if !matches!(role.as_deref(), Some("user" | "assistant" | "system")) {
                        let text = format!("messages[{index}].role must be one of user, assistant, system");
                        state.note(Violation::prompt(text));
                    }
                }
                "content" => {
                    content = true;
                    map.next_value_seed(Walk(Content { state, index }))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        for (present, field) in [(role, "role"), (content, "content")] {
            if !present {
                state.note(Violation::prompt(format!("messages[{index}].{field} is required")));
            }
        }
        Ok(())
    }

    fn other(self, _: Kind) {
        self.state.note(Violation::new(format!("messages[{}] must be an object", self.index)));
    }
}

struct Content<'s, 'a, 'b> {
    state: &'s mut State<'a, 'b>,
    index: usize,
}

impl<'a> Node<'a> for Content<'_, 'a, '_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut block = 0;
        let silent = self.state.silent;
        loop {
            let place = || format!("messages[{}].content[{block}]", self.index);
            if seq.next_element_seed(Walk(Block { state: self.state, place: &place }))?.is_none() {
                break;
            }
            block += 1;
        }
        self.state.has_content |= block > self.state.silent - silent;
        Ok(())
    }

    fn string(self, text: &'a str) {
        self.state.hear(text);
        let is_blank = is_blank_text(text);
        self.state.has_content |= !is_blank;
        self.state.envelope.traits.blank_text |= is_blank;
    }

    fn other(self, kind: Kind) {
        let problem = if kind == Kind::Null { "is required" } else { "must be a string or an array" };
        self.state.note(Violation::prompt(format!("messages[{}].content {problem}", self.index)));
    }
}

struct System<'s, 'a, 'b>(&'s mut State<'a, 'b>);

impl<'a> Node<'a> for System<'_, 'a, '_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        self.0.region = Region::System;
        let mut index = 0;
        loop {
            let place = || format!("system[{index}]");
            if seq.next_element_seed(Walk(Block { state: self.0, place: &place }))?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn string(self, text: &'a str) {
        self.0.region = Region::System;
        self.0.hear(text);
    }

    fn other(self, kind: Kind) {
        if kind != Kind::Null {
            self.0.note(Violation::new("system must be a string or an array"));
        }
    }
}
