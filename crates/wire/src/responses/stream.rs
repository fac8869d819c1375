//! A streamed answer in the Responses format: the frames of the Messages format in, its own events out.

use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::answer::{CUT, Object, ended};
use super::item::{self, Call, Kind, Thought, Words};
use super::ran::{self, Ran, Results};
use super::{Form, Head};
use crate::chat::answer::with_metadata;
use crate::chat::usage::united;
use crate::chat::{cited, declines, lenient};
use crate::error::ErrorType;
use crate::json::{self, Members, quoted};
use crate::messages::{self, Block, Citation, Delta, Event};
use crate::object::Raw;
use crate::sse::{self, Frame, Splitter, TooLarge};

/// What makes events of events.
pub struct Stream {
    head: Head,
    form: Form,
    results: Results,
    splitter: Splitter,
    model: String,
    provider: Option<String>,
    usage: messages::Usage,
    stop: Option<String>,
    /// Items that are whole in their places, and those that are not.
    items: Vec<Option<String>>,
    open: Vec<Item>,
    /// Where the open block of text began, in bytes and in characters, and what it rests on: told when it is known where
    /// that ends.
    start: (usize, usize),
    citations: Vec<Citation>,
    /// Whether the model declined in words of its own.
    is_declined: bool,
    /// Events so far.
    count: u64,
    /// Bytes that are kept of the answer, for its last event, and how many may be.
    kept: usize,
    most: usize,
    is_begun: bool,
    is_over: bool,
}

/// What an item takes beside what it says.
const ITEM: usize = 256;

/// An item that is open: the number of its block, its place in the output, and its id.
struct Item {
    block: usize,
    place: usize,
    id: String,
    what: Open,
}

enum Open {
    Words(Words),
    Thought(Thought),
    /// With the input that it began with, as long as no piece of it was told.
    Call(Call, Option<String>),
    /// Until its result is there, or it is clear that there is none to be shown.
    Ran(Box<Ran>),
}

impl Item {
    /// What an event about it says of where it is.
    fn at(&self) -> String {
        format!(r#","item_id":"{}","output_index":{}"#, self.id, self.place)
    }
}

impl Stream {
    /// `limit`: the largest event there is. `most`: bytes of an answer.
    pub fn new(head: Head, form: Form, limit: usize, most: usize, results: Results) -> Self {
        Self {
            results,
            model: form.model.clone(),
            head,
            form,
            splitter: Splitter::new(limit),
            provider: None,
            usage: messages::Usage::default(),
            stop: None,
            items: Vec::new(),
            open: Vec::new(),
            start: (0, 0),
            citations: Vec::new(),
            is_declined: false,
            count: 0,
            kept: 0,
            most,
            is_begun: false,
            is_over: false,
        }
    }

    /// The events of an answer that was cut short before its first word.
    pub(super) fn cut_short(model: &str, head: &Head, form: &Form, metadata: Option<&Raw>) -> Bytes {
        let (mut made, mut out) = (Self::new(head.clone(), form.clone(), 0, 0, Box::new(|_| None)), BytesMut::new());
        (made.model, made.stop) = (model.to_owned(), Some(CUT.to_owned()));
        made.end(metadata, &mut out);
        out.freeze()
    }

    /// Whether the last event was told, although more may come.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What the next bytes amount to; nothing for those that are no whole event.
    pub fn feed(&mut self, bytes: Bytes) -> Result<Bytes, TooLarge> {
        let mut out = BytesMut::new();
        self.splitter.feed(bytes);
        while !self.is_over
            && let Some(frame) = self.splitter.next()?
        {
            self.take(&frame, &mut out);
            if self.kept > self.most {
                self.burst(&mut out);
            }
        }
        Ok(out.freeze())
    }

    fn take(&mut self, frame: &Frame, out: &mut BytesMut) {
        if frame.is_silent() {
            out.extend_from_slice(&frame.0);
            return;
        }
        if frame.event() == b"error" {
            return self.fail(&frame.data(), out);
        }
        // What is not known has no event here either.
        let Some(event) = lenient::event(&frame.data()) else { return };
        match event {
            Event::MessageStart(start) => {
                let message = start.message;
                (self.model, self.provider, self.usage) = (message.model, message.provider, message.usage);
                self.begin(out);
            }
            Event::BlockStart(start) => self.block(start.index, &start.content_block, declines(frame), out),
            Event::BlockDelta(delta) => self.add(delta.index, delta.delta, out),
            Event::MessageDelta(delta) => {
                let stop = delta.delta.stop_reason.as_ref().and_then(Option::as_ref);
                self.stop = stop.map(|reason| reason.as_str().to_owned());
                if let Some(last) = &delta.usage {
                    self.usage = united(std::mem::take(&mut self.usage), last);
                }
            }
            Event::MessageStop(stop) => self.end(stop.extra.get(&self.head.metadata), out),
            Event::Ping(_) => out.extend_from_slice(b": ping\n\n"),
            Event::BlockStop(stop) => self.stopped(stop.index, out),
            Event::Error(_) | Event::Other(_) => {}
        }
    }

    /// Writes an event; `members` is JSON that begins with a comma.
    fn put(&mut self, out: &mut BytesMut, kind: &str, members: &str) {
        let number = self.count;
        self.count += 1;
        sse::encode(out, kind, format!(r#"{{"type":"{kind}","sequence_number":{number}{members}}}"#).as_bytes());
    }

    fn object(&self, status: &str, error: &str, incomplete: Option<&str>, is_used: bool) -> String {
        let items: Vec<String> = self.items.iter().flatten().cloned().collect();
        let object = Object {
            head: &self.head,
            form: &self.form,
            model: &self.model,
            provider: self.provider.as_deref(),
            status,
            items: &items,
            error,
            incomplete,
            usage: is_used.then_some(&self.usage),
        };
        object.to_json()
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let response = self.object("in_progress", "null", None, false);
        self.put(out, "response.created", &format!(r#","response":{response}"#));
        self.put(out, "response.in_progress", &format!(r#","response":{response}"#));
    }

    fn added(&mut self, block: usize, what: Open, out: &mut BytesMut) {
        self.begin(out);
        self.kept += ITEM;
        let place = self.items.len();
        self.items.push(None);
        let prefix = match &what {
            Open::Words(_) => "msg",
            Open::Thought(_) => "rs",
            Open::Call(call, _) => call.prefix(),
            Open::Ran(_) => "",
        };
        let id = match &what {
            Open::Ran(ran) => ran.call.id.clone(),
            _ => item::id(prefix, &self.head.id, place),
        };
        let shown = match &what {
            Open::Words(_) => item::message(&id, "in_progress", ""),
            Open::Thought(_) => Thought::default().item(&id),
            Open::Call(call, _) => call.item(&id, "in_progress", ""),
            Open::Ran(ran) => ran.item("in_progress", &self.form.brand, &self.results),
        };
        self.put(out, "response.output_item.added", &format!(r#","output_index":{place},"item":{shown}"#));
        let item = Item { block, place, id, what };
        let at = item.at();
        match &item.what {
            Open::Words(words) => {
                let part = words.part();
                self.put(out, "response.content_part.added", &format!(r#"{at},"content_index":0,"part":{part}"#));
            }
            Open::Thought(thought) if thought.sealed.is_none() => {
                let members = format!(r#"{at},"summary_index":0,"part":{{"type":"summary_text","text":""}}"#);
                self.put(out, "response.reasoning_summary_part.added", &members);
            }
            _ => {}
        }
        self.open.push(item);
    }

    fn block(&mut self, index: usize, block: &Block, declines: bool, out: &mut BytesMut) {
        self.is_declined |= declines;
        let words = self.open.iter().position(|item| matches!(item.what, Open::Words(_)));
        if let (Block::Text(text), Some(open)) = (block, words)
            && let Item { block, what: Open::Words(words), .. } = &mut self.open[open]
            && words.declines == declines
        {
            // Words go on in the next block of them.
            *block = index;
            self.start = (words.text.len(), words.length);
            return self.say(index, &text.text, out);
        }
        if let Some((id, result)) = ran::result(block) {
            return self.came(&id, result, out);
        }
        // What is shown of calls comes before anything else is said.
        if matches!(block, Block::Text(_) | Block::Thinking(_) | Block::RedactedThinking(_)) {
            let (ran, open) =
                std::mem::take(&mut self.open).into_iter().partition(|item| matches!(item.what, Open::Ran(_)));
            self.open = open;
            let ran: Vec<Item> = ran;
            ran.into_iter().for_each(|item| self.close(item, out));
        }
        // What was said before something else is a whole.
        if let Some(open) = words {
            let item = self.open.remove(open);
            self.close(item, out);
        }
        match block {
            Block::Text(text) => {
                self.start = (0, 0);
                self.added(index, Open::Words(Words::new(declines)), out);
                self.say(index, &text.text, out);
            }
            Block::Thinking(thought) => {
                self.added(index, Open::Thought(Thought::default()), out);
                self.think(index, &thought.thinking, out);
            }
            Block::RedactedThinking(thought) => {
                self.kept += thought.data.len();
                let thought = Thought { sealed: Some(thought.data.clone()), ..Thought::default() };
                self.added(index, Open::Thought(thought), out);
            }
            Block::ServerToolUse(call) => {
                let ran = Ran::new(call.clone());
                self.kept += ran.size();
                self.added(index, Open::Ran(Box::new(ran)), out);
            }
            Block::ToolUse(call) => {
                let input = Some(call.input_text().to_owned());
                self.kept += call.input_text().len();
                let call = Call::new(&call.id, &call.name, "", &self.form);
                self.added(index, Open::Call(call, input), out);
            }
            _ => {}
        }
    }

    /// What came of a call that ran here.
    fn came(&mut self, id: &str, result: String, out: &mut BytesMut) {
        let of = |item: &Item| matches!(&item.what, Open::Ran(ran) if ran.call.id == id);
        let Some(place) = self.open.iter().position(of) else { return };
        let mut item = self.open.remove(place);
        self.kept += result.len();
        if let Open::Ran(ran) = &mut item.what {
            ran.result = Some(result);
        }
        self.close(item, out);
    }

    /// The open item of a block.
    fn item(&mut self, block: usize) -> Option<&mut Item> {
        self.open.iter_mut().find(|item| item.block == block)
    }

    fn add(&mut self, index: usize, delta: Delta, out: &mut BytesMut) {
        match delta {
            Delta::Text(delta) => self.say(index, &delta.text, out),
            Delta::Thinking(delta) => self.think(index, &delta.thinking, out),
            Delta::Signature(delta) => {
                if let Some(Item { what: Open::Thought(thought), .. }) = self.item(index) {
                    thought.signature.push_str(&delta.signature);
                    self.kept += delta.signature.len();
                }
            }
            Delta::InputJson(delta) if !delta.partial_json.is_empty() => {
                let Some(item) = self.item(index) else { return };
                let at = item.at();
                if let Open::Ran(ran) = &mut item.what {
                    ran.pieces.push_str(&delta.partial_json);
                    self.kept += delta.partial_json.len();
                    return;
                }
                let Open::Call(call, input) = &mut item.what else { return };
                *input = None;
                call.arguments.push_str(&delta.partial_json);
                let is_told = call.is_told_in_pieces();
                self.kept += delta.partial_json.len();
                if is_told {
                    let piece = quoted(&delta.partial_json);
                    self.put(out, "response.function_call_arguments.delta", &format!(r#"{at},"delta":{piece}"#));
                }
            }
            // This format has no word for the others.
            Delta::Citation(delta) => {
                if let Citation::WebSearch(found) = &delta.citation {
                    self.kept += ITEM + found.url.len() + found.title.as_ref().map_or(0, String::len);
                    self.citations.push(delta.citation);
                }
            }
            _ => {}
        }
    }

    fn say(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some(item) = self.item(index).filter(|_| !text.is_empty()) else { return };
        let at = item.at();
        let Open::Words(words) = &mut item.what else { return };
        words.add(text);
        let declines = words.declines;
        self.kept += text.len();
        let members = format!(r#"{at},"content_index":0,"delta":{}"#, quoted(text));
        match declines {
            true => self.put(out, "response.refusal.delta", &members),
            false => self.put(out, "response.output_text.delta", &format!(r#"{members},"logprobs":[]"#)),
        }
    }

    fn think(&mut self, index: usize, text: &str, out: &mut BytesMut) {
        let Some(item) = self.item(index).filter(|_| !text.is_empty()) else { return };
        let at = item.at();
        let Open::Thought(thought) = &mut item.what else { return };
        thought.text.push_str(text);
        self.kept += text.len();
        let members = format!(r#"{at},"summary_index":0,"delta":{}"#, quoted(text));
        self.put(out, "response.reasoning_summary_text.delta", &members);
    }

    /// A block has ended: what it rests on has its place now, and its item is whole, unless words may go on.
    fn stopped(&mut self, index: usize, out: &mut BytesMut) {
        let (citations, start) = (std::mem::take(&mut self.citations), self.start);
        let Some(place) = self.open.iter().position(|item| item.block == index) else { return };
        let at = self.open[place].at();
        if let Open::Words(words) = &mut self.open[place].what {
            let mut told = Vec::new();
            let block = words.text[start.0..].to_owned();
            for (found, place) in cited::placed(&block, &citations) {
                let number = words.annotations();
                if let Some(annotation) = words.cite(found, place, start.1) {
                    told.push(format!(
                        r#"{at},"content_index":0,"annotation_index":{number},"annotation":{annotation}"#
                    ));
                }
            }
            for members in told {
                self.put(out, "response.output_text.annotation.added", &members);
            }
            return;
        }
        if matches!(self.open[place].what, Open::Ran(_)) {
            return;
        }
        let item = self.open.remove(place);
        self.close(item, out);
    }

    /// An item is whole.
    fn close(&mut self, item: Item, out: &mut BytesMut) {
        let at = item.at();
        let Item { place, id, what, .. } = item;
        let made = match what {
            Open::Words(words) => {
                let (text, part) = (quoted(&words.text), words.part());
                match words.declines {
                    true => {
                        let members = format!(r#"{at},"content_index":0,"refusal":{text}"#);
                        self.put(out, "response.refusal.done", &members);
                    }
                    false => {
                        let members = format!(r#"{at},"content_index":0,"text":{text},"logprobs":[]"#);
                        self.put(out, "response.output_text.done", &members);
                    }
                }
                self.put(out, "response.content_part.done", &format!(r#"{at},"content_index":0,"part":{part}"#));
                let (status, _) = ended(self.stop.as_deref(), self.is_declined);
                words.item(&id, status)
            }
            Open::Thought(thought) => {
                if thought.sealed.is_none() {
                    let text = quoted(&thought.text);
                    let members = format!(r#"{at},"summary_index":0,"text":{text}"#);
                    self.put(out, "response.reasoning_summary_text.done", &members);
                    let members = format!(r#"{at},"summary_index":0,"part":{{"type":"summary_text","text":{text}}}"#);
                    self.put(out, "response.reasoning_summary_part.done", &members);
                }
                thought.item(&id)
            }
            Open::Call(mut call, input) => {
                if let Some(input) = input {
                    call.arguments = input;
                }
                let input = call.input();
                let (text, name) = (quoted(&input), quoted(&call.name));
                match call.kind {
                    Kind::Custom => {
                        self.put(out, "response.custom_tool_call_input.delta", &format!(r#"{at},"delta":{text}"#));
                        self.put(out, "response.custom_tool_call_input.done", &format!(r#"{at},"input":{text}"#));
                    }
                    Kind::Function => {
                        let members = format!(r#"{at},"name":{name},"arguments":{text}"#);
                        self.put(out, "response.function_call_arguments.done", &members);
                    }
                    // It is known when it is whole.
                    Kind::Search => {}
                }
                call.item(&id, call.status(), &input)
            }
            Open::Ran(ran) => ran.item("completed", &self.form.brand, &self.results),
        };
        self.put(out, "response.output_item.done", &format!(r#","output_index":{place},"item":{made}"#));
        self.items[place] = Some(made);
    }

    fn end(&mut self, metadata: Option<&Raw>, out: &mut BytesMut) {
        self.begin(out);
        for item in std::mem::take(&mut self.open) {
            self.close(item, out);
        }
        let (status, incomplete) = ended(self.stop.as_deref(), self.is_declined);
        let response = with_metadata(self.object(status, "null", incomplete, true), &self.head.metadata, metadata);
        let response = response.replace(['\n', '\r'], " ");
        self.put(out, &format!("response.{status}"), &format!(r#","response":{response}"#));
    }

    /// The status of the answer cannot be changed any more, so that of the response says it.
    fn fail(&mut self, data: &[u8], out: &mut BytesMut) {
        let body = serde_json::from_slice::<&RawValue>(data).ok().and_then(Members::of).unwrap_or_default();
        let error = body.get("error").and_then(Members::of).unwrap_or_default();
        let text = |name: &str| error.get(name).and_then(json::string);
        let kind = text("error_type").and_then(|kind| ErrorType::parse(&kind)).unwrap_or(ErrorType::Unmapped);
        // Nobody has begun to answer: who failed last is all there is to name.
        if let (false, Some(metadata)) = (self.is_begun, body.get("metadata").and_then(Members::of)) {
            self.provider = metadata.get("provider_name").and_then(json::string).map(|name| name.into_owned());
        }
        // What had no room is no failure here.
        if kind.is_length() {
            self.stop = Some(CUT.to_owned());
            let metadata = body.get(&self.head.metadata).map(Raw::from);
            return self.end(metadata.as_ref(), out);
        }
        let message = text("message").unwrap_or_default();
        let raw = |value: Option<&RawValue>| value.map(|value| value.get().replace(['\n', '\r'], " "));
        let told = Told {
            message: &message,
            availability: raw(error.get("availability")),
            metadata: raw(body.get("metadata")),
            routing: raw(body.get(&self.head.metadata)),
        };
        self.failed(kind, &told, out);
    }

    /// The answer is longer than any may be: all of it would have to be told once more at its end.
    fn burst(&mut self, out: &mut BytesMut) {
        (self.items, self.open, self.citations) = (Vec::new(), Vec::new(), Vec::new());
        self.failed(
            ErrorType::ProviderUnavailable,
            &Told { message: "Provider returned error", ..Told::default() },
            out,
        );
        self.is_over = true;
    }

    fn failed(&mut self, kind: ErrorType, told: &Told<'_>, out: &mut BytesMut) {
        let (code, name, message) = (kind.responses_code(), kind.as_str(), quoted(told.message));
        let mut more = String::new();
        for (name, value) in [("availability", &told.availability), ("metadata", &told.metadata)] {
            if let Some(value) = value {
                more += &format!(r#","{name}":{value}"#);
            }
        }
        let routing = told.routing.as_ref().map(|routing| format!(r#",{}:{routing}"#, quoted(&self.head.metadata)));
        let routing = routing.unwrap_or_default();
        if self.is_begun {
            self.leave();
            let error = format!(r#"{{"code":"{code}","message":{message}{more}}}"#);
            let mut response = self.object("failed", &error, None, false);
            response.pop();
            let members = format!(r#","response":{response},"error_type":"{name}"{routing}}}"#);
            self.put(out, "response.failed", &members);
        } else {
            let members =
                format!(r#","code":"{code}","message":{message},"param":null,"error_type":"{name}"{more}{routing}"#);
            self.put(out, "error", &members);
        }
    }

    /// What is open stays as far as it was told.
    fn leave(&mut self) {
        for Item { place, id, what, .. } in std::mem::take(&mut self.open) {
            self.items[place] = Some(match what {
                Open::Words(words) => words.item(&id, "incomplete"),
                Open::Thought(thought) => thought.item(&id),
                Open::Call(call, _) => call.item(&id, "incomplete", &call.arguments),
                Open::Ran(ran) => ran.item("incomplete", &self.form.brand, &self.results),
            });
        }
    }
}

/// What is told of a failure: a text, and JSON of one line.
#[derive(Default)]
struct Told<'a> {
    message: &'a str,
    availability: Option<String>,
    metadata: Option<String>,
    routing: Option<String>,
}
