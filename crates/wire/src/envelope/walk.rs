//! The one pass: nodes that know their place in the document.

mod tools;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::check::{self, Place};
use super::{
    Brand, Envelope, IMAGE_KINDS, MAX_MESSAGES, Media, NOT_COUNTED, Partition, Purpose, Traits, Violation, is_own,
    member_range, not_json, options, provider,
};
use crate::json::{self, Kind, Node, Seen, Text, Walk};
use crate::preset;

use tools::Tools;

const BILLING_LINE: &str = "x-anthropic-billing-header:";

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

/// As much of an opening as is looked at when it cannot be borrowed.
const OPENING: usize = 4 << 10;

impl State<'_, '_> {
    /// Notes a text of the opening: the first of its kind counts.
    fn hear(&mut self, said: &str) {
        let opening = &mut self.envelope.opening;
        let place = match self.region {
            Region::System => &mut opening.system,
            Region::FirstMessage => &mut opening.message,
            Region::Elsewhere => return,
        };
        if place.is_some() {
            return;
        }
        let start = (said.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        // A text with escapes was put together elsewhere.
        let borrowed = start.and_then(|start| self.text.get(start..start + said.len()));
        let end = said.floor_char_boundary(OPENING);
        *place = Some(borrowed.map_or_else(|| Cow::Owned(said[..end].to_owned()), Cow::Borrowed));
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
        let valid = serde_json::from_str::<IgnoredAny>(text).is_ok();
        return Err(if valid { Violation::new("body must be an object") } else { not_json() });
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
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let walked = deserializer.deserialize_map(Top(&mut state)).and_then(|()| deserializer.end());
    walked.map_err(|_| not_json())?;
    finish(state)?;
    Ok(envelope)
}

/// Required fields first, then document order, then rules across fields.
fn finish(state: State<'_, '_>) -> Result<(), Violation> {
    let is_kept = state.purpose == Purpose::Keep;
    if !state.names_model && !is_kept {
        return Err(Violation::new("model is required"));
    }
    if !state.has_messages && !is_kept {
        return Err(Violation::new("messages is required"));
    }
    if let Some(violation) = state.found {
        return Err(violation);
    }
    if !state.has_content && !is_kept {
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
                "tools" => map.next_value_seed(Walk(Tools(state)))?,
                "system" => map.next_value_seed(Walk(System(state)))?,
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
        // A limit is added where there is none; beside a null it would stand twice.
        || (name == "max_tokens" && is_null);
    if is_cut {
        state.envelope.cuts.members.push(range);
    }
    // Null means absent for every optional member.
    if is_null {
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
            check::number_between(&place, value, 0.0, 2.0)?;
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
            state.tool_choice = Some(check::tool_choice(&place, value)?);
        }
        "thinking" => {
            traits.thinking = true;
            state.thinking_budget = check::thinking(&place, value)?;
        }
        "output_config" => {
            traits.effort |= value.get().contains("\"effort\"");
            asked.structured |= value.get().contains("\"format\"");
            check::output_config(&place, value)?;
        }
        "context_management" => {
            asked.context_management = true;
            check::context_management(&place, value)?;
        }
        "cache_control" => {
            traits.cache_lifetime |= has_lifetime(value);
            traits.cache_for_all = true;
            check::cache_control(&place, value)?;
        }
        "service_tier" => envelope.service_tier = Some(check::text(&place, value)?),
        "inference_geo" => {
            asked.inference_geo = true;
            check::text(&place, value)?;
        }
        "speed" => envelope.is_fast = check::one_of(&place, value, &["fast", "standard"])? == "fast",
        "metadata" => envelope.metadata_user = check::metadata(&place, value)?,
        "container" => {
            asked.container = true;
            check::text_or_object(&place, value)?;
        }
        "mcp_servers" => {
            asked.mcp_servers = value.get() != "[]";
            check::array(&place, value)?;
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

    fn string(self, text: &str) {
        self.state.hear(text);
        self.state.has_content |= !text.trim().is_empty();
    }

    fn other(self, kind: Kind) {
        let problem = if kind == Kind::Null { "is required" } else { "must be a string or an array" };
        self.state.note(Violation::prompt(format!("messages[{}].content {problem}", self.index)));
    }
}

/// A content block, of a message or of the system prompt. Its kind must be named; what it holds is the provider's to
/// judge, so that a kind we do not know gets through.
struct Block<'s, 'a, 'b, P> {
    state: &'s mut State<'a, 'b>,
    place: P,
}

impl<'a, P: Fn() -> String> Node<'a> for Block<'_, 'a, '_, &P> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, place } = self;
        let mut seen = Seen::default();
        let (mut named, mut is_image, mut is_document) = (false, false, false);
        let (mut is_text, mut is_blank, mut is_thinking, mut is_foreign) = (false, false, false, true);
        let mut is_signed = false;
        let mut source = Source::default();
        let (mut is_call, mut called) = (false, None);
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                state.note(Violation::new(format!("{}.{} appears more than once", place(), shown(&name))));
            }
            match name.as_ref() {
                "type" => {
                    let value: &RawValue = map.next_value()?;
                    named = json::kind(value) == Kind::String;
                    let kind = json::string(value);
                    let kind = kind.as_deref().unwrap_or_default();
                    is_image = kind == "image";
                    is_document = kind == "document";
                    is_text = kind == "text";
                    is_thinking = kind == "thinking";
                    is_call = kind == "server_tool_use";
                    state.envelope.traits.sealed_results |= is_of_commands(value.get());
                    state.envelope.traits.own_calls |= is_shown_by(value.get(), state.brand);
                }
                "name" => called = Some(map.next_value::<&RawValue>()?),
                "text" => {
                    let value: &RawValue = map.next_value()?;
                    is_blank = is_blank_text(value);
                    state.hear(value.get());
                    state.envelope.traits.billing_line |=
                        value.get().get(1..).is_some_and(|text| text.starts_with(BILLING_LINE));
                }
                "signature" => {
                    let value: &RawValue = map.next_value()?;
                    is_signed = !matches!(value.get(), "\"\"" | "null");
                    is_foreign = !is_signed || value.get().starts_with("\"tgs1.");
                }
                "citations" => {
                    let value: &RawValue = map.next_value()?;
                    state.envelope.traits.own_citations |= value.get().contains("\"tg1\"");
                }
                "source" => map.next_value_seed(Walk(SourceNode(&mut source)))?,
                // Of a tool's result: looked at for what some upstreams do not take, not judged.
                "content" => {
                    let Envelope { traits, media, .. } = &mut *state.envelope;
                    map.next_value_seed(Walk(Inner { traits, media }))?;
                }
                "cache_control" => {
                    let value: &RawValue = map.next_value()?;
                    if json::kind(value) != Kind::Null {
                        state.envelope.traits.cache_lifetime |= has_lifetime(value);
                        let result =
                            check::cache_control(&Place::Lazy(&|| format!("{}.cache_control", place())), value);
                        state.check(result);
                    }
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if !named {
            state.note(Violation::prompt(format!("{}.type is required", place())));
        }
        let is_own = is_call && called.is_some_and(|name| is_run_here(name.get(), state.brand));
        state.silent += usize::from((is_text && is_blank) || (is_thinking && !is_signed));
        let traits = &mut state.envelope.traits;
        traits.own_calls |= is_own;
        traits.blank_text |= is_text && is_blank;
        traits.foreign_thinking |= is_thinking && is_foreign;
        traits.unclean_data |= source.unclean;
        traits.data_url |= source.is_data_url;
        traits.own_file |= source.is_own_file;
        source.count(is_image, is_document, &mut state.envelope.media);
        state.check(source.check(is_image, &|| format!("{}.source", place())));
        Ok(())
    }

    fn other(self, _: Kind) {
        self.state.note(Violation::prompt(format!("{} must be an object", (self.place)())));
    }
}

/// The source of a block. Its `data` is skipped: whether it is base64, and an image of the stated kind, is told by the
/// provider that has to decode it; to look here would mean a second pass over the longest string of the body.
#[derive(Default)]
struct Source<'a> {
    kind: Option<&'a RawValue>,
    media_type: Option<&'a RawValue>,
    repeated: Option<String>,
    unclean: bool,
    is_data_url: bool,
    is_own_file: bool,
    /// Bytes of what it holds itself.
    data: usize,
}

impl Source<'_> {
    fn count(&self, is_image: bool, is_document: bool, media: &mut Media) {
        let is_written = self.kind.is_some_and(|kind| equals(kind, "text") || equals(kind, "content"));
        match (is_image, is_document && !is_written) {
            (true, _) => media.images += 1,
            (false, true) => media.files += 1,
            (false, false) => return,
        }
        media.bytes += self.data;
    }

    /// Called when the block is over, since members come in any order.
    fn check(&self, is_image: bool, place: &dyn Fn() -> String) -> Result<(), Violation> {
        let place = Place::Lazy(place);
        if let Some(name) = &self.repeated {
            return Err(place.member(name).is("appears more than once"));
        }
        if !is_image || !self.kind.is_some_and(|kind| equals(kind, "base64")) {
            return Ok(());
        }
        let place = place.member("media_type");
        match self.media_type.filter(|media_type| json::kind(media_type) != Kind::Null) {
            None => Err(place.required()),
            Some(given) if IMAGE_KINDS.iter().any(|kind| equals(given, kind)) => Ok(()),
            Some(_) => Err(Violation::image_format(format!("{place} must be one of {}", IMAGE_KINDS.join(", ")))),
        }
    }
}

/// Whether a value is this text, which has nothing in it that JSON would have to escape.
fn equals(value: &RawValue, text: &str) -> bool {
    let inner = value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => inner == text,
        // Escapes are allowed everywhere, and nobody writes them here.
        Some(_) => json::string(value).is_some_and(|value| value == text),
        None => false,
    }
}

/// Whether a text has nothing in it but white space. Nearly every text shows with its first character that it has.
fn is_blank_text(value: &RawValue) -> bool {
    let Some(inner) = value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let may_be = |first: char| first.is_whitespace() || first == '\\';
    inner.is_empty() || (inner.starts_with(may_be) && json::string(value).is_some_and(|text| text.trim().is_empty()))
}

/// Whether it is the kind of a block that shows what came of commands: `<brand>_bash_tool_result` or the like.
fn is_of_commands(kind: &str) -> bool {
    let of = kind.strip_suffix("_tool_result\"");
    of.is_some_and(|of| of.ends_with("_bash") || of.ends_with("_shell"))
}

/// Whether it is the kind of a block that shows what any tool of ours gave: `<brand>_tool_result`.
fn is_shown_by(kind: &str, brand: Brand<'_>) -> bool {
    let of = kind.strip_prefix('"').and_then(|kind| kind.strip_suffix("_tool_result\""));
    of.is_some_and(|of| of == brand.name || brand.aliases.iter().any(|alias| alias == of))
}

/// Whether a call of this name, in its quotes, is one that nobody but this gateway runs.
fn is_run_here(name: &str, brand: Brand<'_>) -> bool {
    let name = name.trim_matches('"');
    name.starts_with("mcp__") || brand.tool(name).is_some()
}

/// Whether it looks like the id of a file that is kept here. Vendors' own are shorter.
fn is_own_file(value: &str) -> bool {
    const LENGTH: usize = "\"file_00000000000000000000000000\"".len();
    value.len() == LENGTH && value.starts_with("\"file_")
}

/// Whether a cache marker says more than that it is one.
fn has_lifetime(value: &RawValue) -> bool {
    value.get().contains("\"ttl\"") || value.get().contains("\"scope\"")
}

/// What stands in the result of a tool.
struct Inner<'s> {
    traits: &'s mut Traits,
    media: &'s mut Media,
}

impl<'a> Node<'a> for Inner<'_> {
    fn array<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { traits, media } = self;
        while seq.next_element_seed(Walk(InnerBlock(Inner { traits, media })))?.is_some() {}
        Ok(())
    }

    fn string(self, _: &str) {}

    fn other(self, _: Kind) {}
}

struct InnerBlock<'s>(Inner<'s>);

impl<'a> Node<'a> for InnerBlock<'_> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Inner { traits, media } = self.0;
        let (mut is_text, mut is_blank, mut is_image, mut is_document) = (false, false, false, false);
        let mut source = Source::default();
        while let Some(Text(name)) = map.next_key()? {
            match name.as_ref() {
                "type" => {
                    let value: &RawValue = map.next_value()?;
                    is_text = equals(value, "text");
                    is_image = equals(value, "image");
                    is_document = equals(value, "document");
                }
                "text" => {
                    let value: &RawValue = map.next_value()?;
                    is_blank = is_blank_text(value);
                }
                "source" => map.next_value_seed(Walk(SourceNode(&mut source)))?,
                "encrypted_content" => {
                    let value: &RawValue = map.next_value()?;
                    traits.sealed_results |= value.get().starts_with("\"tg1.");
                }
                "cache_control" => {
                    let value: &RawValue = map.next_value()?;
                    traits.cache_lifetime |= has_lifetime(value);
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        traits.blank_text |= is_text && is_blank;
        traits.unclean_data |= source.unclean;
        traits.own_file |= source.is_own_file;
        source.count(is_image, is_document, media);
        Ok(())
    }

    fn string(self, _: &str) {}

    fn other(self, _: Kind) {}
}

struct SourceNode<'s, 'a>(&'s mut Source<'a>);

impl<'a> Node<'a> for SourceNode<'_, 'a> {
    fn object<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let source = self.0;
        let mut seen = Seen::default();
        while let Some(Text(name)) = map.next_key()? {
            if !seen.add(&name) {
                source.repeated.get_or_insert_with(|| shown(&name).into_owned());
            }
            match name.as_ref() {
                "type" => source.kind = Some(map.next_value()?),
                "media_type" => source.media_type = Some(map.next_value()?),
                "url" => {
                    let value: &RawValue = map.next_value()?;
                    let head = value.get().get(1..6).unwrap_or_default();
                    source.is_data_url = head.eq_ignore_ascii_case("data:");
                    source.data = value.get().len();
                }
                "file_id" => {
                    let value: &RawValue = map.next_value()?;
                    source.is_own_file = is_own_file(value.get());
                }
                "data" => {
                    // A look at its head and for escapes: base64 has neither.
                    let value: &RawValue = map.next_value()?;
                    source.unclean = value.get().starts_with("\"data:") || value.get().contains('\\');
                    source.data = value.get().len();
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    // Some kinds of blocks name their source in a plain string.
    fn string(self, _: &str) {}

    fn other(self, _: Kind) {}
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

    fn string(self, text: &str) {
        self.0.region = Region::System;
        self.0.hear(text);
    }

    fn other(self, kind: Kind) {
        if kind != Kind::Null {
            self.0.note(Violation::new("system must be a string or an array"));
        }
    }
}
