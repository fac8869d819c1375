//! The part of a `/messages` body that the gateway itself must know, read in one pass over the bytes.
//!
//! The body stays where it is: what we need borrows from it, everything else is skipped. The same pass checks what the
//! gateway promises to check and notes the first violation in document order; the provider checks the rest.

pub(crate) mod check;
pub mod embeddings;
pub mod images;
mod options;
mod provider;
pub mod rerank;
pub mod speech;
pub mod transcription;
mod walk;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize as _;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use crate::chat;
use crate::error::ErrorType;
use crate::json::{self, Broken, Excess, Members, Reader};
use crate::splice::Splice;
pub use check::CODE;
pub use options::PLUGINS;
pub use provider::{CutOffs, MaxPrice, Partition, Provider};

pub const MAX_DEPTH: usize = 64;
pub const MAX_NODES: usize = 200_000;
/// Values and names of a body that are read at most. There are never more names than values, and of more values than that a
/// body is found to be too wide, give or take one for each level.
const MOST_READ: usize = 2 * (MAX_NODES + MAX_DEPTH);
pub const MAX_MESSAGES: usize = 10_000;
pub const MAX_TOOLS: usize = 1_024;

const IMAGE_KINDS: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// From this size on a body is spliced without a copy.
const WORTH_PIECES: usize = 16 << 10;

/// Whether a member is ours and never goes upstream.
fn is_own(name: &str) -> bool {
    matches!(
        name,
        "models"
            | "fallbacks"
            | "plugins"
            | "provider"
            | "route"
            | "session_id"
            | "user"
            | "trace"
            | "stop_server_tools_when"
            | "max_tool_calls"
            | "preset"
            | chat::OPTIONS
    )
}

/// Whether a member of the format may be left out, so that null says the same. Not `model`, which is written anew.
fn is_optional(name: &str) -> bool {
    matches!(
        name,
        "max_tokens"
            | "stream"
            | "temperature"
            | "top_p"
            | "top_k"
            | "stop_sequences"
            | "tool_choice"
            | "thinking"
            | "output_config"
            | "output_format"
            | "context_management"
            | "cache_control"
            | "service_tier"
            | "speed"
            | "metadata"
            | "container"
            | "mcp_servers"
            | "thread"
            | "inference_geo"
            | "diagnostics"
    )
}

/// Members that shape an answer but not the prompt. Anthropic refuses them where only a count is asked for.
const NOT_COUNTED: [&str; 12] = [
    "max_tokens",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "service_tier",
    "speed",
    "container",
    "inference_geo",
    "diagnostics",
];

/// Members of our own that say nothing of a count.
const NOT_NEEDED: [&str; 5] = ["session_id", "user", "trace", "stop_server_tools_when", "max_tool_calls"];

/// A request as far as the gateway reads it. Raw slices are checked for their shape but not decoded.
#[derive(Default)]
pub struct Envelope<'a> {
    pub model: Option<Cow<'a, str>>,
    pub stream: bool,
    pub max_tokens: Option<u64>,
    /// How the next word is drawn, as it came.
    pub temperature: Option<&'a RawValue>,
    pub top_p: Option<&'a RawValue>,
    pub top_k: Option<&'a RawValue>,
    pub session_id: Option<Cow<'a, str>>,
    pub user: Option<Cow<'a, str>>,
    pub metadata_user: Option<Cow<'a, str>>,
    pub models: Option<Vec<Cow<'a, str>>>,
    pub fallbacks: Option<Vec<Cow<'a, str>>>,
    pub plugins: Option<&'a RawValue>,
    pub provider: Option<Box<Provider<'a>>>,
    /// The older word for `provider.sort.partition`, which wins over it.
    pub route: Option<Partition>,
    pub service_tier: Option<Cow<'a, str>>,
    /// `speed` is `fast`.
    pub is_fast: bool,
    pub trace: Option<&'a RawValue>,
    pub stop_when: Option<&'a RawValue>,
    pub max_tool_calls: Option<u64>,
    pub preset: Option<Cow<'a, str>>,
    /// What only endpoints of the chat format understand.
    pub chat_options: Option<&'a RawValue>,
    /// A preset is named, here or in `model`. What it holds must be merged in, and the result read, before anything else
    /// is done: rules across members have not been checked.
    pub names_preset: bool,
    /// Types of the tools that the gateway itself would have to run: `<brand>:…`, and the few of a vendor's that it always
    /// runs.
    pub server_tools: SmallVec<[Cow<'a, str>; 2]>,
    pub opening: Opening<'a>,
    pub cuts: Cuts,
    pub traits: Traits,
    pub asked: Asked,
    pub media: Media,
}

impl Envelope<'_> {
    /// The models of the request in their order of preference, as they are written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let further = self.models.iter().chain(&self.fallbacks).flatten();
        self.model.iter().chain(further).map(|name| &**name)
    }
}

/// Parameters that a body holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub temperature: bool,
    pub top_p: bool,
    pub top_k: bool,
    pub stop: bool,
    pub tools: bool,
    /// A web search or fetch of Anthropic's own types.
    pub vendor_web: bool,
    /// Of those, a fetch.
    pub vendor_fetch: bool,
    /// A tool that runs code in a container of Anthropic's.
    pub vendor_code: bool,
    /// Tools that the model gets to see only when they are looked for.
    pub deferred_tools: bool,
    pub tool_choice: bool,
    /// An answer that follows a schema.
    pub structured: bool,
    pub context_management: bool,
    pub container: bool,
    pub mcp_servers: bool,
    /// A conversation that the upstream holds, and whether this request goes on with one: what was said before is not in
    /// the body then.
    pub thread: bool,
    pub continues_thread: bool,
    pub inference_geo: bool,
    pub diagnostics: bool,
}

/// What a body shows that is not text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Media {
    pub images: u32,
    /// Documents that are not text.
    pub files: u32,
    /// Bytes of the body that are images and files.
    pub bytes: usize,
}

/// How a conversation begins: the first text of its system prompt and of its first message. It stays the same from turn to
/// turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening<'a> {
    /// As they stand in the body, with their quotes.
    pub system: Option<&'a str>,
    pub message: Option<&'a str>,
}

/// What a body holds that some upstreams do not take as it is. Most bodies hold none of it, and go as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// Thinking that was signed here or not at all.
    pub foreign_thinking: bool,
    pub blank_text: bool,
    /// Base64 with the head of a data URL or with escapes in it.
    pub unclean_data: bool,
    /// A source that points at itself: the address is a data URL.
    pub data_url: bool,
    /// Citations that were made here.
    pub own_citations: bool,
    /// Results that only we can read: of a search that were sealed here, or of commands, whose blocks no vendor knows.
    pub sealed_results: bool,
    /// Calls of tools that only this gateway runs, or results of them, whose names no vendor knows.
    pub own_calls: bool,
    /// A source that names a file kept here.
    pub own_file: bool,
    /// A source that names a file kept by somebody else.
    pub foreign_file: bool,
    /// A message with the role `system`.
    pub system_message: bool,
    /// A cache marker with a lifetime or a scope.
    pub cache_lifetime: bool,
    /// A cache marker for the request as a whole.
    pub cache_for_all: bool,
    /// A line of bookkeeping that one client puts first.
    pub billing_line: bool,
    pub sampling: bool,
    /// A service tier by a name that Anthropic does not have for it.
    pub odd_tier: bool,
    /// A tool must be called.
    pub forced_choice: bool,
    /// A temperature above 1, which not every model takes.
    pub hot: bool,
    /// Options that only chat endpoints take.
    pub chat_options: bool,
    pub thinking: bool,
    pub effort: bool,
    /// Which one, where it is one of those that there are.
    pub effort_level: Option<&'static str>,
    /// `context_management`, and whether a compaction is among its edits.
    pub context_edits: bool,
    pub compaction: bool,
    pub speed: bool,
}

/// Where a body must be edited before it goes upstream. It borrows nothing, so it can outlive the envelope.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    model_value: Option<Range<usize>>,
    /// Whole members that do not go upstream, in document order.
    members: SmallVec<[Range<usize>; 4]>,
    has_max_tokens: bool,
    /// The whole members `model` and `stream`.
    model_member: Option<Range<usize>>,
    stream_member: Option<Range<usize>>,
    /// Just behind the opening brace.
    inside: usize,
}

/// How those who resell models want a body.
#[derive(Clone, Debug, Default)]
pub struct Wrapped<'a> {
    pub without_stream: bool,
    /// Members to add, as JSON text without braces; never empty.
    pub added: &'a str,
}

/// The first thing that is wrong with a body: a text that names the field, never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub message: String,
    pub error_type: ErrorType,
}

impl Violation {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: format!("Invalid request: {}", message.into()), error_type: ErrorType::InvalidRequest }
    }

    /// The member that is wrong and what is wrong with it; no member where it is the whole body.
    pub fn parts(&self) -> (&str, &str) {
        let Some(text) = self.message.strip_prefix("Invalid request: ") else { return ("", &self.message) };
        match text.split_once(' ') {
            Some((member, problem)) if member != "body" => (member.trim_end_matches(':'), problem),
            _ => ("", text),
        }
    }

    fn prompt(message: impl Into<String>) -> Self {
        Self { error_type: ErrorType::InvalidPrompt, ..Self::new(message) }
    }

    fn image_format(message: impl Into<String>) -> Self {
        Self { error_type: ErrorType::UnsupportedImageFormat, ..Self::new(message) }
    }
}

/// What a deployment calls itself; branded names in a request derive from it.
#[derive(Clone, Copy, Debug)]
pub struct Brand<'a> {
    pub name: &'a str,
    pub aliases: &'a [String],
}

impl Brand<'_> {
    /// The tool's name when `kind` is `<brand>:<tool>` for one of our brands.
    pub fn tool<'k>(&self, kind: &'k str) -> Option<&'k str> {
        let (brand, tool) = kind.split_once(':')?;
        (brand == self.name || self.aliases.iter().any(|alias| alias == brand)).then_some(tool)
    }
}

/// What a body is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Generate,
    /// An answer is not made, so less of the body matters.
    Count,
    /// Its settings become a preset. They need not make a whole request.
    Keep,
}

/// Reads and checks the envelope.
pub fn read<'a>(body: &'a [u8], brand: Brand<'_>, purpose: Purpose) -> Result<Envelope<'a>, Violation> {
    walk::top(std::str::from_utf8(body).map_err(|_| not_json())?, brand, purpose)
}

/// The names of what a body holds for chat endpoints alone.
pub fn chat_options(body: &[u8]) -> Vec<String> {
    let members = |raw: &'_ RawValue| {
        let members = Members::of(raw)?.0.into_iter();
        // The form of the answer is one that others take, too.
        let options = members.filter(|(name, value)| chat::wish(name, value).is_none());
        Some(options.map(|(name, _)| name.into_owned()).collect())
    };
    let whole = serde_json::from_slice::<&RawValue>(body).ok().and_then(Members::of);
    whole.and_then(|whole| members(whole.get(chat::OPTIONS)?)).unwrap_or_default()
}

/// A body as it stands, neither too deep nor too wide.
pub(crate) fn whole(body: &[u8]) -> Result<&RawValue, Violation> {
    let text = std::str::from_utf8(body).map_err(|_| not_json())?;
    limited(text, |reader| <&RawValue>::deserialize(reader))
}

/// Has a text read to its end. What is too much is said before anything else; nearly always it shows on the way that it is
/// not.
fn limited<'a, T>(text: &'a str, read: impl FnOnce(&mut Reader<'a>) -> Result<T, Broken>) -> Result<T, Violation> {
    let mut reader = Reader::new(text).within(MAX_DEPTH, MOST_READ);
    let value = read(&mut reader).and_then(|value| reader.end().map(|()| value));
    if value.is_err() || reader.values() > MAX_NODES {
        measure(text)?;
    }
    value.map_err(|_| half_character(text.as_bytes()).unwrap_or_else(not_json))
}

/// What is wrong with a body that is JSON but holds half a character.
pub fn half_character(body: &[u8]) -> Option<Violation> {
    let path = json::lone_half(std::str::from_utf8(body).ok()?)?;
    let place = if path.is_empty() { "body" } else { &path };
    Some(Violation::new(format!("{place} has an invalid format")))
}

fn measure(text: &str) -> Result<(), Violation> {
    json::measure(text.as_bytes(), MAX_DEPTH, MAX_NODES).map_err(|excess| match excess {
        Excess::Depth => Violation::new(format!("body must not nest deeper than {MAX_DEPTH} levels")),
        Excess::Nodes => Violation::new(format!("body must not hold more than {MAX_NODES} values")),
    })
}

pub(crate) fn not_json() -> Violation {
    Violation::new("body is not valid JSON")
}

impl Cuts {
    /// The body as a Messages upstream gets it: its own model name, members that are not for it gone, `max_tokens` added
    /// when the client gave none. Every other byte is as it came.
    pub fn upstream_body(&self, body: &Bytes, model: &str, max_tokens: Option<u64>) -> Bytes {
        self.splice(body, model, max_tokens).apply(body)
    }

    /// The same in pieces. A long body is not copied; for a short one a copy is cheaper than the pieces' own cost.
    pub fn upstream_pieces(&self, body: &Bytes, model: &str, max_tokens: Option<u64>) -> SmallVec<[Bytes; 1]> {
        let splice = self.splice(body, model, max_tokens);
        if body.len() < WORTH_PIECES { smallvec![splice.apply(body)] } else { splice.pieces(body) }
    }

    /// The body for an upstream that has the model in its address.
    pub fn wrapped_body(&self, body: &Bytes, wrapped: &Wrapped<'_>, max_tokens: Option<u64>) -> Bytes {
        let mut splice = Splice::default();
        let limit = max_tokens.filter(|_| !self.has_max_tokens).map(|limit| format!("\"max_tokens\":{limit},"));
        splice.insert(self.inside, format!("{},{}", wrapped.added, limit.unwrap_or_default()).as_bytes());
        let stream = self.stream_member.clone().filter(|_| wrapped.without_stream);
        let mut members: Vec<_> = self.members.iter().cloned().chain(self.model_member.clone()).chain(stream).collect();
        members.sort_unstable_by_key(|member| member.start);
        // Whoever only counts leaves the stream out already.
        members.dedup();
        self.cut(body, &members, &mut splice);
        let made = splice.apply(body);
        // What was inserted is followed by what is left, which may be nothing.
        trailing_comma(made)
    }

    fn cut(&self, body: &Bytes, members: &[Range<usize>], splice: &mut Splice) {
        let mut cut_to = 0;
        for member in members {
            let cut = with_comma(body, member.clone(), cut_to);
            cut_to = cut.end;
            splice.cut(cut);
        }
    }

    fn splice(&self, body: &Bytes, model: &str, max_tokens: Option<u64>) -> Splice {
        let mut splice = Splice::default();
        match &self.model_value {
            Some(value) => splice.replace_by(value.clone(), |new| json::quote(model, new)),
            None => splice.insert(self.inside, format!("\"model\":{},", json::quoted(model)).as_bytes()),
        }
        if let (false, Some(limit)) = (self.has_max_tokens, max_tokens) {
            splice.insert(self.inside, format!("\"max_tokens\":{limit},").as_bytes());
        }
        self.cut(body, &self.members, &mut splice);
        splice
    }
}

/// Without the comma before the closing brace of an object that nothing is left in.
fn trailing_comma(body: Bytes) -> Bytes {
    let end = body.iter().rposition(|byte| *byte == b'}').unwrap_or(0);
    let before = body[..end].iter().rposition(|byte| !byte.is_ascii_whitespace());
    match before.filter(|place| body[*place] == b',') {
        Some(place) => Bytes::from([&body[..place], &body[place + 1..]].concat()),
        None => body,
    }
}

/// Widens a member's range by the comma that goes with it: the one before, or for a first member the one behind.
/// `cut_to` is where an earlier cut ended: what lies before it is gone.
fn with_comma(body: &[u8], member: Range<usize>, cut_to: usize) -> Range<usize> {
    let before = body[cut_to.min(member.start)..member.start].iter().rposition(|byte| !byte.is_ascii_whitespace());
    if let Some(place) = before.map(|place| place + cut_to).filter(|place| body[*place] == b',') {
        return place..member.end;
    }
    let behind = body[member.end..].iter().position(|byte| !byte.is_ascii_whitespace()).map(|place| place + member.end);
    match behind {
        Some(place) if body[place] == b',' => member.start..place + 1,
        _ => member,
    }
}

/// The range of a whole member. A name that is borrowed stands there behind its opening quote.
#[expect(clippy::ptr_arg, reason = "whether it is borrowed is what matters")]
fn member_range(text: &str, name: &Cow<'_, str>, value: Range<usize>) -> Range<usize> {
    match name {
        Cow::Borrowed(name) => json::span(text, name).start - 1..value.end,
        Cow::Owned(_) => escaped_member_range(text, value),
    }
}

/// The range of a whole member, found backwards from its value: colon, name, opening quote. Inside a name every quote
/// stands behind an odd number of backslashes; the opening one cannot.
fn escaped_member_range(text: &str, value: Range<usize>) -> Range<usize> {
    let bytes = text.as_bytes();
    let closing = bytes[..value.start].iter().rposition(|byte| *byte == b'"').unwrap_or(0);
    let mut at = closing;
    while let Some(quote) = bytes[..at].iter().rposition(|byte| *byte == b'"') {
        let backslashes = bytes[..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 0 {
            return quote..value.end;
        }
        at = quote;
    }
    value
}

#[cfg(test)]
mod tests;
