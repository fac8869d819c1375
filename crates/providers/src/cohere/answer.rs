//! A whole answer in Cohere's chat protocol, and what a stream has in common with it.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::PROTOCOL;
use crate::fault::{self, Class, Fault};
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::usage::Told;
use crate::translate::{Answered, Context, Counted, Encoder, Stop, Whole, cite, is_something};

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    /// The message; in an error, the words of it.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_plan: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default)]
    citations: Option<Vec<Citation<'a>>>,
}

/// A piece of content, whole or in part.
#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub thinking: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Citation<'a> {
    #[serde(default)]
    start: Option<f64>,
    #[serde(default)]
    end: Option<f64>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    sources: Option<Vec<Source<'a>>>,
    /// Plans and thinking are cited, too; those citations have no place in the answer.
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Source<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    document: Option<&'a RawValue>,
}

/// Numbers of sources, by the order in which they are first cited.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<String>);

impl Sources {
    fn index(&mut self, id: &str) -> usize {
        let known = self.0.iter().position(|known| known == id);
        known.unwrap_or_else(|| {
            self.0.push(id.to_owned());
            self.0.len() - 1
        })
    }

    pub fn cite<B: Blocks>(&mut self, citation: &Citation<'_>, encoder: &mut Encoder<B>) {
        if citation.kind.as_deref().is_some_and(|kind| kind != "TEXT_CONTENT") {
            return;
        }
        let number = |number: Option<f64>| number.unwrap_or(0.0).max(0.0) as u64;
        for source in citation.sources.iter().flatten() {
            let index = self.index(source.id.as_deref().unwrap_or_default());
            let title = source.document.and_then(json::Members::of).and_then(|document| document.get("title"));
            let title = title.and_then(json::string);
            let passage = citation.text.as_deref().unwrap_or_default();
            let (start, end) = (number(citation.start), number(citation.end));
            encoder.citation(cite::document(index, title.as_deref(), start, end, passage));
        }
    }
}

/// The answer in the Messages format, and what was left out of it.
pub fn message(body: &[u8], context: &Context, now: Timestamp) -> Result<Answered, Fault> {
    let mut whole = Whole::new(context);
    let (counted, stop) = read(body, &mut whole.encoder, context, now)?;
    whole.counted = counted;
    whole.encoder.stop(stop);
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}

/// Writes everything of a whole answer and says what it used and how it ended.
pub(super) fn read<B: Blocks>(
    body: &[u8],
    encoder: &mut Encoder<B>,
    context: &Context,
    now: Timestamp,
) -> Result<(Counted, Stop), Fault> {
    let broken = || Fault::in_answer(Class::BadResponse);
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| broken())?;
    if let Some(error) = answer.error.filter(|error| json::kind(error) == Kind::Object) {
        return Err(fault::classify_error(error, now));
    }
    let raw = answer.message.ok_or_else(broken)?;
    if json::kind(raw) == Kind::String {
        let whole: &RawValue = serde_json::from_slice(body).map_err(|_| broken())?;
        return Err(fault::classify_error(whole, now));
    }
    encoder.native.name(answer.id);
    encoder.native.end(answer.finish_reason.as_deref());
    let counted = answer.usage.and_then(counted).unwrap_or_default();
    let stop = ended(answer.finish_reason.as_deref(), answer.error, &counted, context)?;
    let message: Message<'_> = serde_json::from_str(raw.get()).map_err(|_| broken())?;
    for piece in message.content.map(pieces).unwrap_or_default() {
        if let Some(thought) = piece.thinking.filter(|thought| !thought.is_empty()) {
            encoder.thinking(&thought);
            sign(encoder, context);
        }
        encoder.text(piece.text.as_deref().unwrap_or_default());
    }
    let mut sources = Sources::default();
    for citation in message.citations.iter().flatten() {
        sources.cite(citation, encoder);
    }
    encoder.text(message.tool_plan.as_deref().unwrap_or_default());
    for (call, key) in message.tool_calls.into_iter().flatten().zip(0..) {
        if let Some(function) = call.function {
            encoder.tool_start(key, call.id.as_deref(), function.name.as_deref().unwrap_or_default());
            encoder.tool_arguments(key, &arguments(function.arguments));
            encoder.tool_end(key);
        }
    }
    if matches!(stop, Stop::Done | Stop::Unknown(_)) {
        is_something(encoder, &counted)?;
    }
    Ok((counted, stop))
}

/// A content: a list, one piece of it, or mere text.
pub(super) fn pieces(raw: &RawValue) -> Vec<Piece<'_>> {
    let list = match json::kind(raw) {
        Kind::String => return vec![Piece { text: json::string(raw), thinking: None }],
        Kind::Array => json::elements(raw).unwrap_or_default(),
        _ => vec![raw],
    };
    list.into_iter().filter_map(|piece| serde_json::from_str(piece.get()).ok()).collect()
}

/// Ends a stretch of thinking, all of which is in its text.
pub(super) fn sign<B: Blocks>(encoder: &mut Encoder<B>, context: &Context) {
    if context.show_thinking {
        encoder.signature(Carrier::plain(PROTOCOL, &context.scope, &context.model).to_signature());
    }
    encoder.thinking_end();
}

/// The JSON text of a call's arguments, whatever form they came in.
pub(super) fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw {
        Some(raw) if json::kind(raw) == Kind::String => json::string(raw).unwrap_or_default(),
        Some(raw) if json::kind(raw) == Kind::Object => Cow::Borrowed(raw.get()),
        _ => Cow::Borrowed(""),
    }
}

/// What the upstream's word for the end means; `error` are its words when that is a failure.
pub(super) fn ended(
    word: Option<&str>,
    error: Option<&RawValue>,
    counted: &Counted,
    context: &Context,
) -> Result<Stop, Fault> {
    let message = || error.and_then(json::string).map(|words| fault::cleaned(&words));
    Ok(match word {
        Some("COMPLETE" | "TOOL_CALL") | None => Stop::Done,
        Some("STOP_SEQUENCE") => Stop::Sequence(context.only_stop.clone()),
        Some("MAX_TOKENS") => context.length(counted),
        Some("ERROR") => return Err(Fault { message: message(), ..Fault::in_answer(Class::Server) }),
        Some("TIMEOUT") => return Err(Fault { message: message(), ..Fault::in_answer(Class::Timeout) }),
        Some("ERROR_TOXIC") => Stop::Refusal(None),
        Some(other) => Stop::Unknown(other.chars().take(32).collect()),
    })
}

/// Usage, which is counted in floating point here. What is billed is less than what was used, and what counts for the
/// price.
pub(super) fn counted(raw: &RawValue) -> Option<Counted> {
    let odd = Cell::new(false);
    let usage = Told::of(raw, &odd)?;
    let (used, units) = (usage.within("tokens"), usage.within("billed_units"));
    let names = ["input_tokens", "output_tokens"];
    let billed = names.map(|name| units.count(name));
    let input = used.count(names[0]).or(billed[0])?;
    let output = used.count(names[1]).or(billed[1])?;
    let mut counted = Counted::inclusive(input, usage.count("cached_tokens").unwrap_or(0), 0, output, None, None);
    counted.billed = billed;
    counted.web_searches = units.count("search_units").filter(|count| *count > 0);
    counted.is_odd |= odd.get();
    Some(counted)
}
