//! A whole answer in the Responses protocol, and the items that a stream has in common with it.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind, quoted};

use super::PROTOCOL;
use crate::fault::{self, Class, Fault};
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::cite::UrlCitation;
use crate::translate::search::{Searched, Source, joined};
use crate::translate::usage::{self, Told};
use crate::translate::{Answered, Context, Counted, Encoder, Native, Stop, Whole, is_something};

/// What is read of an answer, and of the object in the events that begin and end a stream.
#[derive(Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub status: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub incomplete_details: Option<Incomplete<'a>>,
    #[serde(borrow, default)]
    pub output: Option<Vec<Item<'a>>>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    service_tier: Option<Cow<'a, str>>,
}

impl Response<'_> {
    /// Tells what it is called and how it ended: why it is not complete, where it says so.
    pub fn told(&self, native: &mut Native) {
        native.name(self.id);
        let reason = self.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
        native.end(reason.or(self.status.as_deref()));
    }

    pub fn counted(&self) -> Counted {
        let mut counted = self.usage.and_then(counted).unwrap_or_default();
        counted.tier = self.service_tier.as_deref().and_then(usage::tier);
        counted
    }
}

#[derive(Deserialize)]
pub(super) struct Incomplete<'a> {
    #[serde(borrow, default)]
    pub reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, default, rename = "type")]
    pub kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// A text of JSON; some servers send the object itself.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub encrypted_content: Option<Cow<'a, str>>,
    /// What a search did.
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: Option<Vec<Piece<'a>>>,
    /// A list in the items we read; other kinds have other things here.
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    annotations: Option<Vec<&'a RawValue>>,
}

/// What is read of a search. A page that was opened, or looked through, is no search.
#[derive(Deserialize)]
struct Action<'a> {
    #[serde(borrow, default)]
    query: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    queries: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, default)]
    sources: Option<Vec<Found<'a>>>,
}

#[derive(Deserialize)]
struct Found<'a> {
    #[serde(borrow, default)]
    url: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    title: Option<Cow<'a, str>>,
}

impl Item<'_> {
    /// What was searched and found, where both are told.
    pub fn searched(&self) -> Option<Searched> {
        let action: Action<'_> = serde_json::from_str(self.action?.get()).ok()?;
        let one = action.query.as_deref().filter(|query| !query.is_empty()).map(str::to_owned);
        let query = one.unwrap_or_else(|| joined(action.queries.iter().flatten().map(|query| &**query)));
        let found = action.sources?;
        let found =
            found.iter().filter_map(|source| Some(Source::new(source.url.as_deref()?, source.title.as_deref())));
        Some(Searched { query, found: found.collect() }).filter(|searched| !searched.query.is_empty())
    }

    fn content(&self) -> Vec<Piece<'_>> {
        self.content.and_then(|content| serde_json::from_str(content.get()).ok()).unwrap_or_default()
    }

    /// What was thought: the summary, or the thing itself with open models.
    pub fn thought(&self) -> String {
        let joined = |pieces: &[Piece<'_>]| {
            let texts: Vec<&str> = pieces.iter().filter_map(|piece| piece.text.as_deref()).collect();
            texts.join("\n\n")
        };
        let summary = self.summary.as_deref().map(joined).unwrap_or_default();
        if summary.is_empty() { joined(&self.content()) } else { summary }
    }

    /// What takes reasoning to the next turn, if there is anything to take.
    pub fn sign<B: Blocks>(&self, has_text: bool, encoder: &mut Encoder<B>, context: &Context) {
        let sealed = self.encrypted_content.as_deref().filter(|sealed| !sealed.is_empty());
        let carrier = match (sealed, self.id.as_deref()) {
            (Some(sealed), Some(id)) => {
                let data = format!(r#"{{"id":{},"encrypted_content":{}}}"#, quoted(id), quoted(sealed));
                Carrier::new(PROTOCOL, &context.scope, &context.model, "openai_item", &data).ok()
            }
            _ if has_text && context.show_thinking => Some(Carrier::plain(PROTOCOL, &context.scope, &context.model)),
            _ => None,
        };
        if let Some(carrier) = carrier {
            encoder.signature(carrier.to_signature());
        }
        encoder.thinking_end();
    }

    /// The words of a message. Each part of it is a text of its own.
    pub fn say<B: Blocks>(&self, encoder: &mut Encoder<B>) {
        for piece in self.content() {
            let text = piece.text.as_deref().unwrap_or_default();
            encoder.text(text);
            for annotation in piece.annotations.into_iter().flatten() {
                cite(annotation, text, encoder);
            }
            if let Some(refusal) = &piece.refusal {
                encoder.refusal(refusal);
            }
            encoder.end_block();
        }
    }

    /// Everything of an item. `key` tells calls apart.
    fn write<B: Blocks>(&self, key: u32, encoder: &mut Encoder<B>, context: &Context) {
        match self.kind.as_deref().unwrap_or_default() {
            "reasoning" => {
                let thought = self.thought();
                encoder.thinking(&thought);
                self.sign(!thought.is_empty(), encoder, context);
            }
            "message" => self.say(encoder),
            "function_call" => {
                encoder.tool_start(key, self.call_id.as_deref(), self.name.as_deref().unwrap_or_default());
                encoder.tool_arguments(key, &arguments(self.arguments));
                encoder.tool_end(key);
            }
            "web_search_call" => {
                if let Some(searched) = self.searched().filter(|_| context.tells_searches) {
                    encoder.searched(searched);
                }
            }
            other => unknown(other, encoder),
        }
    }
}

/// The answer in the Messages format, and what was left out of it.
pub fn message(body: &[u8], context: &Context, now: Timestamp) -> Result<Answered, Fault> {
    let response: Response<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    let mut whole = Whole::new(context);
    response.told(&mut whole.encoder.native);
    let (counted, stop) = read(response, &mut whole.encoder, context, now)?;
    whole.counted = counted;
    whole.encoder.stop(stop);
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}

/// Writes all items of a finished response and says what it used and how it ended.
pub(super) fn read<B: Blocks>(
    response: Response<'_>,
    encoder: &mut Encoder<B>,
    context: &Context,
    now: Timestamp,
) -> Result<(Counted, Stop), Fault> {
    let mut counted = response.counted();
    let stop = ended(&response, &counted, context, now)?;
    let items = response.output.unwrap_or_default();
    for (item, key) in items.iter().zip(0..) {
        item.write(key, encoder, context);
    }
    let searches = items.iter().filter(|item| item.kind.as_deref() == Some("web_search_call")).count();
    counted.web_searches = (searches > 0).then_some(searches as u64);
    if stop == Stop::Done {
        is_something(encoder, &counted)?;
    }
    Ok((counted, stop))
}

/// How a response ended, if it is one that did.
pub(super) fn ended(
    response: &Response<'_>,
    counted: &Counted,
    context: &Context,
    now: Timestamp,
) -> Result<Stop, Fault> {
    if let Some(error) = response.error.filter(|error| json::kind(error) != Kind::Null) {
        return Err(fault::classify_error(error, now));
    }
    let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_deref());
    match (response.status.as_deref(), reason) {
        (Some("completed"), _) => Ok(Stop::Done),
        (Some("incomplete"), Some("content_filter")) => Ok(Stop::Refusal(None)),
        (Some("incomplete"), Some("max_output_tokens") | None) => Ok(context.length(counted)),
        (Some("incomplete"), Some(other)) => Ok(Stop::Unknown(other.chars().take(32).collect())),
        (Some("failed" | "cancelled" | "queued" | "in_progress"), _) => Err(Fault::in_answer(Class::Server)),
        // Servers that only resemble the protocol leave the word out.
        (None, _) if response.output.is_some() => Ok(Stop::Done),
        _ => Err(Fault::in_answer(Class::BadResponse)),
    }
}

pub(super) fn unknown<B: Blocks>(kind: &str, encoder: &mut Encoder<B>) {
    let kind: String = kind.chars().filter(|character| character.is_ascii_graphic()).take(32).collect();
    encoder.warn(&format!("unknown_item:{kind}"));
}

/// A citation of the text so far, where it is one of the web.
pub(super) fn cite<B: Blocks>(annotation: &RawValue, text: &str, encoder: &mut Encoder<B>) {
    if let Ok(citation) = serde_json::from_str::<UrlCitation<'_>>(annotation.get()) {
        encoder.citation(citation.to_json(text));
    }
}

/// The JSON text of a call's arguments, whatever form they came in.
pub(super) fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw {
        Some(raw) if json::kind(raw) == Kind::String => json::string(raw).unwrap_or_default(),
        Some(raw) if json::kind(raw) == Kind::Object => Cow::Borrowed(raw.get()),
        _ => Cow::Borrowed(""),
    }
}

pub(super) fn counted(raw: &RawValue) -> Option<Counted> {
    let odd = Cell::new(false);
    let usage = Told::of(raw, &odd)?;
    let (input_details, output_details) = (usage.within("input_tokens_details"), usage.within("output_tokens_details"));
    let (input, total) = (usage.count("input_tokens")?, usage.count("total_tokens"));
    let output = usage.count("output_tokens").or_else(|| total?.checked_sub(input))?;
    let [read, write] = ["cached_tokens", "cache_write_tokens"].map(|name| input_details.count(name).unwrap_or(0));
    let mut counted = Counted::inclusive(input, read, write, output, output_details.count("reasoning_tokens"), total)
        .with_media(input_details.media(), output_details.media());
    counted.cost = usage.cost();
    counted.is_odd |= odd.get();
    Some(counted)
}
