//! A streamed answer in the Responses format: the frames of the Messages format in, its own events out.

use bytes::{Bytes, BytesMut};
use serde_json::value::RawValue;

use super::answer::{Object, ended};
use super::item::{self, Call, Thought, Words};
use super::{Form, Head};
use crate::chat::answer::with_metadata;
use crate::chat::usage::united;
use crate::error::ErrorType;
use crate::json::{self, Members, quoted};
use crate::messages::{self, Block, Delta, Event};
use crate::object::Raw;
use crate::sse::{self, Frame, Splitter, TooLarge};

/// What makes events of events.
pub struct Stream {
    head: Head,
    form: Form,
    splitter: Splitter,
    model: String,
    provider: Option<String>,
    usage: messages::Usage,
    stop: Option<String>,
    /// Items that are whole, and the one that is not.
    items: Vec<String>,
    open: Option<Open>,
    /// Where the open block of text began.
    start: usize,
    /// Events so far.
    count: u64,
    is_begun: bool,
    is_over: bool,
}

enum Open {
    Words(Words),
    Thought(Thought),
    Call(Call),
}

impl Stream {
    /// `limit`: the largest event there is.
    pub fn new(head: Head, form: Form, limit: usize) -> Self {
        Self {
            head,
            form,
            splitter: Splitter::new(limit),
            model: String::new(),
            provider: None,
            usage: messages::Usage::default(),
            stop: None,
            items: Vec::new(),
            open: None,
            start: 0,
            count: 0,
            is_begun: false,
            is_over: false,
        }
    }

    /// What the next bytes amount to; nothing for those that are no whole event.
    pub fn feed(&mut self, bytes: Bytes) -> Result<Bytes, TooLarge> {
        let mut out = BytesMut::new();
        self.splitter.feed(bytes);
        while let Some(frame) = self.splitter.next()? {
            self.take(&frame, &mut out);
        }
        Ok(out.freeze())
    }

    /// Whether the last event was made.
    pub fn is_over(&self) -> bool {
        self.is_over
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
        let Ok(event) = Event::parse(&frame.data()) else { return };
        match event {
            Event::MessageStart(start) => {
                let message = start.message;
                (self.model, self.provider, self.usage) = (message.model, message.provider, message.usage);
                self.begin(out);
            }
            Event::BlockStart(start) => self.block(&start.content_block, out),
            Event::BlockDelta(delta) => self.add(&delta.delta, out),
            Event::MessageDelta(delta) => {
                let stop = delta.delta.stop_reason.as_ref().and_then(Option::as_ref);
                self.stop = stop.map(|reason| reason.as_str().to_owned());
                if let Some(last) = &delta.usage {
                    self.usage = united(std::mem::take(&mut self.usage), last);
                }
            }
            Event::MessageStop(stop) => self.end(stop.extra.get(&self.head.metadata), out),
            Event::Ping(_) => out.extend_from_slice(b": ping\n\n"),
            Event::BlockStop(_) => {
                // Words go on in the next block of them.
                if !matches!(self.open, Some(Open::Words(_))) {
                    self.close(out);
                }
            }
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
        let object = Object {
            head: &self.head,
            form: &self.form,
            model: &self.model,
            provider: self.provider.as_deref(),
            status,
            items: &self.items,
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

    /// The place and the id of the item that is open.
    fn place(&self) -> (usize, String) {
        let prefix = match &self.open {
            Some(Open::Words(_)) => "msg",
            Some(Open::Thought(_)) => "rs",
            Some(Open::Call(call)) if call.is_custom => "ctc",
            Some(Open::Call(_)) | None => "fc",
        };
        (self.items.len(), item::id(prefix, &self.head.id, self.items.len()))
    }

    fn added(&mut self, open: Open, out: &mut BytesMut) {
        self.close(out);
        self.open = Some(open);
        let (place, id) = self.place();
        let item = match &self.open {
            Some(Open::Words(_)) => item::message(&id, "in_progress", ""),
            Some(Open::Thought(_)) => Thought::default().item(&id),
            Some(Open::Call(call)) => call.item(&id, "in_progress", ""),
            None => return,
        };
        self.put(out, "response.output_item.added", &format!(r#","output_index":{place},"item":{item}"#));
        let at = format!(r#","item_id":"{id}","output_index":{place}"#);
        match &self.open {
            Some(Open::Words(words)) => {
                let part = words.part();
                self.put(out, "response.content_part.added", &format!(r#"{at},"content_index":0,"part":{part}"#));
            }
            Some(Open::Thought(thought)) if thought.sealed.is_none() => {
                let part = r#"{"type":"summary_text","text":""}"#;
                let members = format!(r#"{at},"summary_index":0,"part":{part}"#);
                self.put(out, "response.reasoning_summary_part.added", &members);
            }
            _ => {}
        }
    }

    fn block(&mut self, block: &Block, out: &mut BytesMut) {
        match block {
            Block::Text(text) => {
                if !matches!(self.open, Some(Open::Words(_))) {
                    self.added(Open::Words(Words::default()), out);
                }
                if let Some(Open::Words(words)) = &self.open {
                    self.start = words.length;
                }
                self.say(&text.text, out);
            }
            Block::Thinking(thought) => {
                self.added(Open::Thought(Thought::default()), out);
                self.think(&thought.thinking, out);
            }
            Block::RedactedThinking(thought) => {
                let thought = Thought { sealed: Some(thought.data.clone()), ..Thought::default() };
                self.added(Open::Thought(thought), out);
            }
            Block::ToolUse(call) => {
                let call = Call::new(&call.id, &call.name, "", &self.form);
                self.added(Open::Call(call), out);
            }
            _ => self.close(out),
        }
    }

    fn add(&mut self, delta: &Delta, out: &mut BytesMut) {
        match delta {
            Delta::Text(delta) => self.say(&delta.text, out),
            Delta::Thinking(delta) => self.think(&delta.thinking, out),
            Delta::Signature(delta) => {
                if let Some(Open::Thought(thought)) = &mut self.open {
                    thought.signature.push_str(&delta.signature);
                }
            }
            Delta::InputJson(delta) if !delta.partial_json.is_empty() => {
                let (place, id) = self.place();
                let Some(Open::Call(call)) = &mut self.open else { return };
                call.arguments.push_str(&delta.partial_json);
                // A text is in the middle of an object, and told when that is whole.
                if !call.is_custom {
                    let piece = quoted(&delta.partial_json);
                    let members = format!(r#","item_id":"{id}","output_index":{place},"delta":{piece}"#);
                    self.put(out, "response.function_call_arguments.delta", &members);
                }
            }
            Delta::Citation(delta) => {
                let (place, id) = self.place();
                let Some(Open::Words(words)) = &mut self.open else { return };
                let number = words.annotations();
                let Some(annotation) = words.cite(&delta.citation, self.start) else { return };
                let members = format!(
                    r#","item_id":"{id}","output_index":{place},"content_index":0,"annotation_index":{number},"annotation":{annotation}"#
                );
                self.put(out, "response.output_text.annotation.added", &members);
            }
            _ => {}
        }
    }

    fn say(&mut self, text: &str, out: &mut BytesMut) {
        let (place, id) = self.place();
        let Some(Open::Words(words)) = &mut self.open else { return };
        if text.is_empty() {
            return;
        }
        words.add(text);
        let members = format!(
            r#","item_id":"{id}","output_index":{place},"content_index":0,"delta":{},"logprobs":[]"#,
            quoted(text)
        );
        self.put(out, "response.output_text.delta", &members);
    }

    fn think(&mut self, text: &str, out: &mut BytesMut) {
        let (place, id) = self.place();
        let Some(Open::Thought(thought)) = &mut self.open else { return };
        if text.is_empty() {
            return;
        }
        thought.text.push_str(text);
        let members = format!(r#","item_id":"{id}","output_index":{place},"summary_index":0,"delta":{}"#, quoted(text));
        self.put(out, "response.reasoning_summary_text.delta", &members);
    }

    /// The open item is whole.
    fn close(&mut self, out: &mut BytesMut) {
        let (place, id) = self.place();
        let Some(open) = self.open.take() else { return };
        let at = format!(r#","item_id":"{id}","output_index":{place}"#);
        let item = match open {
            Open::Words(words) => {
                let (text, part) = (quoted(&words.text), words.part());
                let members = format!(r#"{at},"content_index":0,"text":{text},"logprobs":[]"#);
                self.put(out, "response.output_text.done", &members);
                self.put(out, "response.content_part.done", &format!(r#"{at},"content_index":0,"part":{part}"#));
                let (status, _) = ended(self.stop.as_deref());
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
            Open::Call(call) => {
                let input = call.input();
                let (text, name) = (quoted(&input), quoted(&call.name));
                if call.is_custom {
                    self.put(out, "response.custom_tool_call_input.delta", &format!(r#"{at},"delta":{text}"#));
                    self.put(out, "response.custom_tool_call_input.done", &format!(r#"{at},"input":{text}"#));
                } else {
                    let members = format!(r#"{at},"name":{name},"arguments":{text}"#);
                    self.put(out, "response.function_call_arguments.done", &members);
                }
                call.item(&id, "completed", &input)
            }
        };
        self.put(out, "response.output_item.done", &format!(r#","output_index":{place},"item":{item}"#));
        self.items.push(item);
    }

    fn end(&mut self, metadata: Option<&Raw>, out: &mut BytesMut) {
        self.begin(out);
        self.close(out);
        let (status, incomplete) = ended(self.stop.as_deref());
        let response = with_metadata(self.object(status, "null", incomplete, true), &self.head.metadata, metadata);
        let response = response.replace(['\n', '\r'], " ");
        self.put(out, &format!("response.{status}"), &format!(r#","response":{response}"#));
        self.is_over = true;
    }

    /// The status of the answer cannot be changed any more, so that of the response says it.
    fn fail(&mut self, data: &[u8], out: &mut BytesMut) {
        let body = serde_json::from_slice::<&RawValue>(data).ok().and_then(Members::of).unwrap_or_default();
        let error = body.get("error").and_then(Members::of).unwrap_or_default();
        let text = |name: &str| error.get(name).and_then(json::string);
        let kind = text("error_type").and_then(|kind| ErrorType::parse(&kind)).unwrap_or(ErrorType::Unmapped);
        let message = quoted(&text("message").unwrap_or_default());
        let code = kind.responses_code();
        if self.is_begun {
            let error = format!(r#"{{"code":"{code}","message":{message}}}"#);
            let mut response = self.object("failed", &error, None, false);
            response.pop();
            let members = format!(r#","response":{response},"error_type":"{}"}}"#, kind.as_str());
            self.put(out, "response.failed", &members);
        } else {
            let members = format!(r#","code":"{code}","message":{message},"param":null"#);
            self.put(out, "error", &members);
        }
        self.is_over = true;
    }
}
