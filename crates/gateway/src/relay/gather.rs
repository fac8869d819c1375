//! An answer that comes event by event although its client wants it whole: it is put together as it comes, so that what is
//! kept is the answer and not the stream.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_providers::translate::{Answered, Translator};
use tidegate_providers::{Class, Fault};
use tidegate_wire::json;
use tidegate_wire::sse::{Frame, Splitter};
use tokio::time::{Instant, timeout, timeout_at};

use super::framing;
use super::pump;
use super::settle::Ticket;
use super::stream::{self, SETTLED};
use crate::agent::{Assembly, Turn};
use crate::snapshot::Settings;
use crate::upstream::Flow;

/// What a translated answer came as.
pub(super) enum Gathered {
    Events(Box<Answered>),
    /// In the upstream's own format.
    Whole(Bytes),
}

/// Reads an answer to its end, in whichever way it comes. `begun`: until when there must be something of it; `idle`: how
/// long nothing may come then.
pub(super) async fn answer(
    response: Response<Flow>,
    mut gathering: Gathering,
    ticket: &mut Ticket,
    (begun, idle): (Instant, Duration),
) -> Result<Gathered, Fault> {
    let late = |_| Fault::without_answer(Class::Timeout);
    let is_told = framing::is_stream(response.headers());
    let mut body = response.into_body();
    let mut first = match is_told {
        true => None,
        // What it is does not always stand on it.
        false => framing::beginning(&mut body, Some(begun), idle).await?,
    };
    if !is_told && !first.as_deref().is_some_and(framing::begins_events) {
        let whole = framing::gathered(first, &mut body, gathering.limit, idle).await?;
        return Ok(Gathered::Whole(whole.freeze()));
    }
    let mut is_begun = false;
    while !gathering.is_over {
        let next = match first.take() {
            Some(chunk) => Ok(Ok(Some(chunk))),
            None if !is_begun => timeout_at(begun, framing::next(&mut body)).await,
            None if gathering.translator.is_settled() => timeout(SETTLED.min(idle), framing::next(&mut body)).await,
            None if idle < Duration::MAX => timeout(idle, framing::next(&mut body)).await,
            None => Ok(framing::next(&mut body).await),
        };
        is_begun = true;
        match next {
            Ok(chunk) => match chunk? {
                Some(chunk) => {
                    gathering.feed(chunk)?;
                    ticket.hear(pump::told(&gathering.translator));
                }
                None => {
                    gathering.end()?;
                    break;
                }
            },
            // All was said but what it used: it ends as if the upstream had ended it.
            Err(_) if gathering.translator.is_settled() => {
                gathering.settle()?;
                break;
            }
            Err(elapsed) => return Err(late(elapsed)),
        }
    }
    stream::release(body);
    gathering.finish().map(|answered| Gathered::Events(Box::new(answered)))
}

/// The answer so far.
pub(super) struct Gathering {
    translator: Translator,
    splitter: Splitter,
    assembly: Assembly,
    /// What came for each block, by its place.
    pieces: Vec<Pieces>,
    size: usize,
    limit: usize,
    is_over: bool,
}

/// What a block consists of behind its beginning. Texts stay as they are written: what is unescaped only to be escaped
/// again costs more than all else.
#[derive(Default)]
struct Pieces {
    text: String,
    thinking: String,
    signature: String,
    /// Not as it is written: it is JSON itself. What is read as numbers may come out as others.
    input: Option<String>,
    citations: Vec<String>,
}

/// How a block goes on.
#[derive(Deserialize)]
struct Event<'a> {
    index: usize,
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    signature: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial_json: Option<&'a RawValue>,
    #[serde(borrow, default)]
    citation: Option<&'a RawValue>,
}

fn broken() -> Fault {
    Fault::in_answer(Class::BadResponse)
}

impl Gathering {
    pub fn new(translator: Translator, settings: &Settings) -> Self {
        // What an event amounts to may be longer than the event.
        let splitter = Splitter::new(settings.max_event_bytes.max(settings.max_answer_bytes));
        let (assembly, pieces, limit) = (Assembly::default(), Vec::new(), settings.max_answer_bytes);
        Self { translator, splitter, assembly, pieces, size: 0, limit, is_over: false }
    }

    /// Takes the next bytes of the stream.
    fn feed(&mut self, chunk: Bytes) -> Result<(), Fault> {
        let (frames, fault) = (self.translator.feed(chunk), self.translator.fault());
        fault.map_or_else(|| self.take(frames), Err)
    }

    /// The stream is over.
    fn end(&mut self) -> Result<(), Fault> {
        let (frames, fault) = (self.translator.end(), self.translator.fault());
        fault.map_or_else(|| self.take(frames), Err)
    }

    /// Nothing more is waited for.
    fn settle(&mut self) -> Result<(), Fault> {
        let (frames, fault) = (self.translator.settle(), self.translator.fault());
        fault.map_or_else(|| self.take(frames), Err)
    }

    fn take(&mut self, frames: Bytes) -> Result<(), Fault> {
        self.splitter.feed(frames);
        while let Some(frame) = self.splitter.next().map_err(|_| broken())? {
            if !frame.is_silent() {
                self.frame(&frame)?;
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Fault> {
        let (name, data) = (frame.event(), frame.data());
        self.size += data.len();
        if name == b"content_block_delta" {
            let event: Event<'_> = serde_json::from_slice(&data).map_err(|_| broken())?;
            self.piece(&event);
            // Of a piece only what it says is kept.
            self.size -= data.len().min(PIECE);
        } else {
            let event: Value = serde_json::from_slice(&data).map_err(|_| broken())?;
            let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
            self.is_over |= kind == "message_stop";
            if kind == "content_block_start" {
                self.pieces.push(Pieces::default());
            }
            // Nobody has asked for routing metadata here: it is ours to add.
            self.assembly.take(kind, &event, "");
        }
        if self.size > self.limit { Err(broken()) } else { Ok(()) }
    }

    fn piece(&mut self, Event { index, delta }: &Event<'_>) {
        let Some(pieces) = self.pieces.get_mut(*index) else { return };
        pieces.text.push_str(written(delta.text));
        pieces.thinking.push_str(written(delta.thinking));
        pieces.signature.push_str(written(delta.signature));
        if let Some(piece) = delta.partial_json.and_then(json::string) {
            pieces.input.get_or_insert_default().push_str(&piece);
        }
        pieces.citations.extend(delta.citation.map(|citation| citation.get().to_owned()));
    }

    /// The answer, when it has come to its end.
    fn finish(self) -> Result<Answered, Fault> {
        if !self.is_over {
            return Err(Fault::without_answer(Class::Unreachable));
        }
        let Turn { head, blocks, usage, mut ending, .. } = self.assembly.finish();
        ending.insert("usage".to_owned(), Value::Object(usage));
        let (mut body, rest) = (Value::Object(head).to_string(), Value::Object(ending).to_string());
        body.pop();
        body.push_str(r#","content":["#);
        for (place, (block, pieces)) in blocks.iter().zip(&self.pieces).enumerate() {
            if place > 0 {
                body.push(',');
            }
            pieces.write(block, &mut body);
        }
        body.push_str("],");
        body.push_str(rest.strip_prefix('{').unwrap_or(&rest));
        Ok(Answered {
            body: body.into(),
            warnings: self.translator.warnings().to_vec(),
            is_estimated: self.translator.is_estimated(),
            signed: self.translator.signed().to_vec(),
            native: self.translator.native().cloned().unwrap_or_default(),
        })
    }
}

/// What an event has around its text, about.
const PIECE: usize = 80;

impl Pieces {
    /// Writes the block that began like this.
    fn write(&self, start: &Value, out: &mut String) {
        let texts = [("text", &self.text), ("thinking", &self.thinking), ("signature", &self.signature)];
        let mut separator = '{';
        let mut name = |name: &str, out: &mut String| {
            out.push(std::mem::replace(&mut separator, ','));
            out.push_str(&json::quoted(name));
            out.push(':');
        };
        let mut told = [false; 3];
        let mut cited = false;
        for (key, value) in start.as_object().into_iter().flatten() {
            name(key, out);
            let place = texts.iter().position(|(known, _)| known == key);
            match (key.as_str(), place, value) {
                (_, Some(place), Value::String(before)) => {
                    told[place] = true;
                    let before = json::quoted(before);
                    out.push_str(before.strip_suffix('"').unwrap_or(&before));
                    out.push_str(texts[place].1);
                    out.push('"');
                }
                ("input", _, _) => match self.input() {
                    Some(input) => out.push_str(input),
                    None => out.push_str(&value.to_string()),
                },
                ("citations", _, before) if !self.citations.is_empty() => {
                    cited = true;
                    let before = before.as_array().into_iter().flatten().map(Value::to_string);
                    out.push_str(&list(before.chain(self.citations.iter().cloned())));
                }
                _ => out.push_str(&value.to_string()),
            }
        }
        for ((key, text), _) in texts.iter().zip(told).filter(|((_, text), told)| !told && !text.is_empty()) {
            name(key, out);
            out.push('"');
            out.push_str(text);
            out.push('"');
        }
        if !cited && !self.citations.is_empty() {
            name("citations", out);
            out.push_str(&list(self.citations.iter().cloned()));
        }
        out.push_str(if separator == '{' { "{}" } else { "}" });
    }

    /// The input that came; one that was cut short is none.
    fn input(&self) -> Option<&str> {
        let input = self.input.as_deref()?.trim();
        let whole = serde_json::from_str::<&RawValue>(input).ok().map(RawValue::get);
        Some(whole.filter(|text| text.starts_with('{')).unwrap_or("{}"))
    }
}

/// A text as it stands between its quotes.
fn written(raw: Option<&RawValue>) -> &str {
    raw.and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"')).unwrap_or_default()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e7_an_input_is_put_together_as_it_was_written() {
        let block = || json!({"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}});
        for (input, expected) in [
            (r#"{"id":123456789012345678901234,"n":1e400}"#, r#"{"id":123456789012345678901234,"n":1e400}"#),
            (r#"{"port":"Br"#, "{}"),
            ("[1]", "{}"),
            ("", "{}"),
        ] {
            let mut made = String::new();
            Pieces { input: Some(input.to_owned()), ..Pieces::default() }.write(&block(), &mut made);
            let whole =
                format!(r#"{{"type":"tool_use","id":"t","name":"f","input":{expected},"caller":{{"type":"direct"}}}}"#);
            assert_eq!(made, whole);
        }
        let mut made = String::new();
        Pieces::default().write(&block(), &mut made);
        assert_eq!(made, block().to_string());
    }

    #[test]
    fn texts_stay_as_they_are_written() {
        let pieces = Pieces {
            text: r#" \u00e9 \"q\" é"#.to_owned(),
            signature: "c2ln".to_owned(),
            citations: vec![r#"{"url":"b"}"#.to_owned()],
            ..Pieces::default()
        };
        for (start, expected) in [
            (
                json!({"type": "text", "text": "a\n", "citations": [{"url": "a"}]}),
                json!({"type": "text", "text": "a\n é \"q\" é", "citations": [{"url": "a"}, {"url": "b"}], "signature": "c2ln"}),
            ),
            (
                json!({"type": "text", "citations": null}),
                json!({"type": "text", "text": " é \"q\" é", "citations": [{"url": "b"}], "signature": "c2ln"}),
            ),
        ] {
            let mut made = String::new();
            pieces.write(&start, &mut made);
            let made: Value = serde_json::from_str(&made).unwrap();
            assert_eq!(made, expected);
        }
        let mut nothing = String::new();
        Pieces::default().write(&json!({}), &mut nothing);
        assert_eq!(nothing, "{}");
    }
}
