//! A stream in Cohere's chat protocol, event by event.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::answer::{Citation, Sources, ToolCall, arguments, counted, ended, pieces, read, sign};
use crate::fault::{Class, Fault};
use crate::translate::{Context, Decode, Stop, Stream, is_something};

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    /// In the first one.
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    index: Option<f64>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// Only in a whole answer to a streamed request.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    message: Option<Said<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The part of a message that an event is about; the others are empty lists or not there.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_plan: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    citations: Option<&'a RawValue>,
}

pub struct Decoder {
    context: Context,
    now: Timestamp,
    sources: Sources,
    /// Thinking came that has no signature yet.
    thought: bool,
}

impl Decoder {
    pub fn new(context: Context, now: Timestamp) -> Self {
        Self { context, now, sources: Sources::default(), thought: false }
    }

    fn content(&mut self, content: &RawValue, stream: &mut Stream) {
        for piece in pieces(content) {
            if let Some(thought) = piece.thinking.filter(|thought| !thought.is_empty()) {
                self.thought = true;
                stream.encoder.thinking(&thought);
            }
            if let Some(text) = piece.text.filter(|text| !text.is_empty()) {
                self.sign(stream);
                stream.encoder.text(&text);
            }
        }
    }

    fn sign(&mut self, stream: &mut Stream) {
        if std::mem::take(&mut self.thought) {
            sign(&mut stream.encoder, &self.context);
        }
    }

    fn call(&mut self, key: u32, begins: bool, raw: &RawValue, stream: &mut Stream) {
        // One object by the book; a list of one from some hosts.
        let first = match json::kind(raw) {
            Kind::Array => json::elements(raw).and_then(|list| list.first().copied()),
            _ => Some(raw),
        };
        let Some(call) = first.and_then(|raw| serde_json::from_str::<ToolCall<'_>>(raw.get()).ok()) else { return };
        let Some(function) = call.function else { return };
        self.sign(stream);
        if begins {
            stream.encoder.tool_start(key, call.id.as_deref(), function.name.as_deref().unwrap_or_default());
        }
        stream.encoder.tool_arguments(key, &arguments(function.arguments));
    }

    fn cite(&mut self, raw: &RawValue, stream: &mut Stream) {
        let list = match json::kind(raw) {
            Kind::Array => json::elements(raw).unwrap_or_default(),
            _ => vec![raw],
        };
        for citation in list {
            if let Ok(citation) = serde_json::from_str::<Citation<'_>>(citation.get()) {
                self.sources.cite(&citation, &mut stream.encoder);
            }
        }
    }

    fn finish(&mut self, stop: Stop, stream: &mut Stream) -> Result<(), Fault> {
        self.sign(stream);
        if matches!(stop, Stop::Done | Stop::Unknown(_)) {
            is_something(&stream.encoder, &stream.counted)?;
        }
        stream.encoder.stop(stop);
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" || stream.is_finished() {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_slice(data).map_err(|_| Fault::in_answer(Class::BadResponse))?;
        let kind = event.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(name);
        let key = event.index.unwrap_or(0.0) as u32;
        if kind.is_empty() && event.message.is_some() {
            stream.counted = event.usage.and_then(counted).unwrap_or_default();
            stream.start();
            let (counted, stop) = read(data, &mut stream.encoder, &self.context, self.now)?;
            stream.counted = counted;
            return self.finish(stop, stream);
        }
        let (said, finish_reason, usage, error) = match event.delta {
            Some(delta) => (delta.message, delta.finish_reason, delta.usage, delta.error),
            None => (None, None, None, None),
        };
        if kind == "message-end" {
            stream.counted = usage.and_then(counted).unwrap_or_default();
            let word = finish_reason
                .as_deref()
                .or_else(|| error.filter(|error| json::kind(error) != Kind::Null).map(|_| "ERROR"));
            stream.encoder.native.end(finish_reason.as_deref());
            let stop = ended(word, error, &stream.counted, &self.context)?;
            return self.finish(stop, stream);
        }
        stream.encoder.native.name(event.id);
        stream.start();
        match (kind, said) {
            ("content-start" | "content-delta", Some(Said { content: Some(content), .. })) => {
                self.content(content, stream);
            }
            ("content-end", _) => self.sign(stream),
            ("tool-plan-delta", Some(Said { tool_plan: Some(plan), .. })) if !plan.is_empty() => {
                self.sign(stream);
                stream.encoder.text(&plan);
            }
            ("tool-call-start" | "tool-call-delta", Some(Said { tool_calls: Some(call), .. })) => {
                self.call(key, kind == "tool-call-start", call, stream);
            }
            ("tool-call-end", _) => stream.encoder.tool_end(key),
            ("citation-start", Some(Said { citations: Some(citations), .. })) => self.cite(citations, stream),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        // The last event is the only sign of a whole answer.
        if stream.is_finished() { Ok(()) } else { Err(Fault::without_answer(Class::Unreachable)) }
    }
}
