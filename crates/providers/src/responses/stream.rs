//! A stream in the Responses protocol, event by event.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::answer::{Item, Response, arguments, cite, counted, ended, read, unknown};
use crate::fault::{self, Class, Fault};
use crate::translate::{Context, Decode, Stop, Stream, is_something};

/// What is read of an event. Which members it has depends on its kind.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(default)]
    output_index: Option<f64>,
    #[serde(default)]
    content_index: Option<f64>,
    #[serde(default)]
    summary_index: Option<f64>,
    #[serde(borrow, default)]
    item_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Only in a whole answer to a streamed request.
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

/// An item that has been seen.
#[derive(Debug, Default)]
struct Seen {
    index: u32,
    id: Option<String>,
    /// Something of it came in pieces, so its whole at the end says nothing new.
    spoke: bool,
    done: bool,
    summary: u32,
    part: u32,
    /// The text of the part that is being said, which citations count in.
    text: String,
}

/// Reads events. What belongs together is told by the place of an item in the output.
pub struct Decoder {
    context: Context,
    now: Timestamp,
    seen: Vec<Seen>,
    searches: u64,
}

impl Decoder {
    pub fn new(context: Context, now: Timestamp) -> Self {
        Self { context, now, seen: Vec::new(), searches: 0 }
    }

    fn added(&mut self, event: &Event<'_>, item: &Item<'_>, stream: &mut Stream) {
        let seen = find(&mut self.seen, event, item.id.as_deref());
        if item.kind.as_deref() == Some("function_call") {
            stream.encoder.tool_start(seen.index, item.call_id.as_deref(), item.name.as_deref().unwrap_or_default());
            let arguments = arguments(item.arguments);
            seen.spoke |= !arguments.is_empty();
            stream.encoder.tool_arguments(seen.index, &arguments);
        }
    }

    fn done(&mut self, event: &Event<'_>, item: &Item<'_>, stream: &mut Stream) {
        let seen = find(&mut self.seen, event, item.id.as_deref());
        if std::mem::replace(&mut seen.done, true) && item.kind.as_deref() != Some("function_call") {
            return;
        }
        match item.kind.as_deref().unwrap_or_default() {
            "reasoning" => {
                let thought = if seen.spoke { String::new() } else { item.thought() };
                stream.encoder.thinking(&thought);
                item.sign(seen.spoke || !thought.is_empty(), &mut stream.encoder, &self.context);
            }
            "message" if !seen.spoke => item.say(&mut stream.encoder),
            // What comes next is another text.
            "message" => stream.encoder.end_block(),
            "function_call" => {
                let (index, spoke) = (seen.index, std::mem::replace(&mut seen.spoke, true));
                if !stream.encoder.is_complete(index) {
                    let name = item.name.as_deref().unwrap_or_default();
                    stream.encoder.tool_start(index, item.call_id.as_deref(), name);
                }
                if !spoke {
                    stream.encoder.tool_arguments(index, &arguments(item.arguments));
                }
                stream.encoder.tool_end(index);
            }
            "web_search_call" => {
                self.searches += 1;
                if let Some(searched) = item.searched().filter(|_| self.context.tells_searches) {
                    stream.encoder.searched(searched);
                }
            }
            other => unknown(other, &mut stream.encoder),
        }
    }

    /// Reasoning; its parts are paragraphs.
    fn think(&mut self, event: &Event<'_>, text: &str, stream: &mut Stream) {
        let part = event.summary_index.unwrap_or(0.0) as u32;
        let seen = find(&mut self.seen, event, None);
        if part > seen.summary {
            seen.summary = part;
            if seen.spoke {
                stream.encoder.thinking("\n\n");
            }
        }
        seen.spoke |= !text.is_empty();
        stream.encoder.thinking(text);
    }

    fn finished(&mut self, response: Option<&RawValue>, stop: Stop, stream: &mut Stream) -> Result<(), Fault> {
        let response: Option<Response<'_>> = response.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let mut stop = stop;
        if let Some(response) = response {
            response.told(&mut stream.encoder.native);
            let told = response.counted();
            if told.is_known() || !stream.counted.is_known() {
                stream.counted = told;
            }
            if response.status.is_some() {
                stop = ended(&response, &stream.counted, &self.context, self.now)?;
            }
            // Nothing came in pieces: everything is in the last event.
            if self.seen.is_empty() && response.output.as_ref().is_some_and(|output| !output.is_empty()) {
                (stream.counted, stop) = read(response, &mut stream.encoder, &self.context, self.now)?;
            }
        }
        if stop == Stop::Done {
            is_something(&stream.encoder, &stream.counted)?;
        }
        stream.encoder.stop(stop);
        self.finish(stream)
    }

    fn finish(&self, stream: &mut Stream) -> Result<(), Fault> {
        if self.searches > 0 {
            stream.counted.web_searches = Some(self.searches);
        }
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

/// The item an event is about: by its place, by its id, or the one before.
fn find<'a>(list: &'a mut Vec<Seen>, event: &Event<'_>, id: Option<&str>) -> &'a mut Seen {
    let index = event.output_index.map(|index| index as u32);
    let id = id.or(event.item_id.as_deref());
    let place = match (index, id) {
        (Some(index), _) => list.iter().position(|seen| seen.index == index),
        (None, Some(id)) => list.iter().position(|seen| seen.id.as_deref() == Some(id)),
        (None, None) => list.len().checked_sub(1),
    };
    let place = place.unwrap_or_else(|| {
        let next = list.iter().map(|seen| seen.index.saturating_add(1)).max().unwrap_or(0);
        list.push(Seen { index: index.unwrap_or(next), id: id.map(ToOwned::to_owned), ..Seen::default() });
        list.len() - 1
    });
    &mut list[place]
}

impl Decode for Decoder {
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        // The protocol has no marker for the end; servers that send one mean nothing by it.
        if data.is_empty() || data == b"[DONE]" || stream.is_finished() {
            return Ok(());
        }
        let broken = |_| Fault::in_answer(Class::BadResponse);
        let event: Event<'_> = serde_json::from_slice(data).map_err(broken)?;
        let kind = event.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(name);
        let item = || -> Result<Option<Item<'_>>, Fault> {
            event.item.map(|item| serde_json::from_str(item.get())).transpose().map_err(broken)
        };
        let delta = event.delta.and_then(json::string).unwrap_or_default();
        let error = event.error.filter(|error| json::kind(error) != Kind::Null);
        match kind {
            "error" => {
                let whole: &RawValue = serde_json::from_slice(data).map_err(broken)?;
                return Err(fault::classify_error(error.unwrap_or(whole), self.now));
            }
            "response.failed" => {
                let response: Option<Response<'_>> =
                    event.response.map(|raw| serde_json::from_str(raw.get())).transpose().map_err(broken)?;
                let error = response.and_then(|response| response.error).filter(|raw| json::kind(raw) != Kind::Null);
                return Err(error
                    .map_or_else(|| Fault::in_answer(Class::Server), |error| fault::classify_error(error, self.now)));
            }
            _ if kind.is_empty() && error.is_some() => {
                return Err(error
                    .map_or_else(|| Fault::in_answer(Class::Server), |error| fault::classify_error(error, self.now)));
            }
            _ => {
                if let Some(told) = event.usage.and_then(counted) {
                    stream.counted.update(told);
                }
                stream.start();
            }
        }
        match kind {
            "response.created" => {
                let response = event.response.and_then(json::Members::of);
                stream.encoder.native.name(response.and_then(|response| response.get("id")));
            }
            "response.output_item.added" => {
                if let Some(item) = item()? {
                    self.added(&event, &item, stream);
                }
            }
            "response.output_item.done" => {
                if let Some(item) = item()? {
                    self.done(&event, &item, stream);
                }
            }
            "response.reasoning_summary_part.added" => self.think(&event, "", stream),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.think(&event, &delta, stream);
            }
            "response.output_text.delta" => {
                let part = event.content_index.unwrap_or(0.0) as u32;
                let seen = find(&mut self.seen, &event, None);
                if seen.part != part {
                    seen.part = part;
                    seen.text.clear();
                    stream.encoder.end_block();
                }
                seen.spoke |= !delta.is_empty();
                seen.text.push_str(&delta);
                stream.encoder.text(&delta);
            }
            "response.output_text.annotation.added" => {
                let seen = find(&mut self.seen, &event, None);
                if let Some(annotation) = event.annotation {
                    cite(annotation, &seen.text, &mut stream.encoder);
                }
            }
            "response.refusal.delta" => {
                find(&mut self.seen, &event, None).spoke |= !delta.is_empty();
                stream.encoder.refusal(&delta);
            }
            "response.function_call_arguments.delta" => {
                let piece = arguments(event.delta);
                let seen = find(&mut self.seen, &event, None);
                // Pieces of a call that has not begun are not taken; the whole of it comes at its end.
                seen.spoke |= !piece.is_empty() && stream.encoder.call_id(seen.index).is_some();
                stream.encoder.tool_arguments(seen.index, &piece);
            }
            "response.function_call_arguments.done" => {
                let seen = find(&mut self.seen, &event, None);
                if stream.encoder.call_id(seen.index).is_some() {
                    if !std::mem::replace(&mut seen.spoke, true) {
                        stream.encoder.tool_arguments(seen.index, &arguments(event.arguments));
                    }
                    stream.encoder.tool_end(seen.index);
                }
            }
            "response.completed" => return self.finished(event.response, Stop::Done, stream),
            "response.incomplete" => return self.finished(event.response, Stop::Length, stream),
            "" if event.output.is_some() => {
                let whole: &RawValue = serde_json::from_slice(data).map_err(broken)?;
                return self.finished(Some(whole), Stop::Done, stream);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        // The last event is the only sign of a whole answer.
        if stream.is_finished() { Ok(()) } else { Err(Fault::without_answer(Class::Unreachable)) }
    }
}
