//! A streamed answer in the chat format: the frames of the Messages format in, chunks out.

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::{Annotation, Detail, FORMAT, Places, tier, with_metadata};
use super::usage::{Usage, united};
use super::{Form, Head, cited, custom, declines, finish_reason, lenient};
use crate::error::{ErrorType, InferenceError};
use crate::json::{self, Members};
use crate::messages::{self, Block, Citation, Delta, Event};
use crate::object::Raw;
use crate::responses::ran::{self, Ran};
use crate::sse::{Frame, Splitter, TooLarge};

/// Bytes of a block that are kept until it ends: a stream may be as long as it likes.
const MOST_KEPT: usize = 16 << 10;
const DONE: &[u8] = b"data: [DONE]\n\n";

/// What makes chunks of events.
pub struct Stream {
    head: Head,
    form: Form,
    splitter: Splitter,
    /// What every chunk begins with, known from the first event on.
    opening: String,
    usage: messages::Usage,
    /// Why it ended, as the other format says it.
    stop: Option<String>,
    /// Calls in their order.
    calls: Vec<Called>,
    /// Calls of tools that run here, by the numbers of their blocks, and their places: until their results are there, or it is
    /// clear that there are none to be shown.
    ran: Vec<(usize, usize, Ran)>,
    /// For the places of citations: characters that were said before the open block, and in it.
    before: usize,
    length: usize,
    /// As much of the open block as is kept, and how many characters that is.
    block: String,
    kept: usize,
    /// Whether the open block is the model's words when it declines, and whether there was one.
    declines: bool,
    is_declined: bool,
    /// What the open block rests on: told when it is known where that ends.
    citations: Vec<Citation>,
    /// Those that were told.
    annotated: usize,
    /// The place of the open thought among what is told.
    thought: usize,
    places: Places,
    is_begun: bool,
}

/// A call, by the number of its block.
struct Called {
    block: usize,
    /// The input that it began with, as long as no piece of it was told.
    input: Option<String>,
    /// The pieces of what a tool is called with that takes a text: that is in the middle of an object, and told when it is
    /// whole.
    pieces: Option<String>,
}

/// What is new in a chunk.
#[derive(Default, Serialize)]
struct Piece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<[Detail<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Call<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<[Annotation<'a>; 1]>,
}

#[derive(Serialize)]
struct Call<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom: Option<Custom<'a>>,
}

#[derive(Serialize)]
struct Custom<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    input: &'a str,
}

#[derive(Serialize)]
struct Function<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl Stream {
    /// `limit`: the largest event there is.
    pub fn new(head: Head, form: Form, limit: usize) -> Self {
        Self {
            opening: opening(&head, &form.model, None),
            head,
            form,
            splitter: Splitter::new(limit),
            usage: messages::Usage::default(),
            stop: None,
            calls: Vec::new(),
            ran: Vec::new(),
            before: 0,
            length: 0,
            kept: 0,
            block: String::new(),
            declines: false,
            is_declined: false,
            citations: Vec::new(),
            annotated: 0,
            thought: 0,
            places: Places::default(),
            is_begun: false,
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

    fn take(&mut self, frame: &Frame, out: &mut BytesMut) {
        if frame.is_silent() {
            out.extend_from_slice(&frame.0);
            return;
        }
        if frame.event() == b"error" {
            self.fail(&frame.data(), out);
            return;
        }
        // What is not known has no chunk either.
        let Some(event) = lenient::event(&frame.data()) else { return };
        match event {
            Event::MessageStart(start) => {
                let message = start.message;
                self.opening = opening(&self.head, &message.model, message.provider.as_deref());
                self.usage = message.usage;
                self.tell(out, Piece { content: Some(""), ..Piece::default() });
            }
            Event::BlockStart(start) => {
                self.declines = declines(frame);
                self.is_declined |= self.declines;
                self.begin(start.index, &start.content_block, out);
            }
            Event::BlockStop(stop) => self.stop(stop.index, out),
            Event::BlockDelta(delta) => self.add(delta.index, delta.delta, out),
            Event::MessageDelta(delta) => {
                let stop = delta.delta.stop_reason.as_ref().and_then(Option::as_ref);
                self.stop = stop.map(|reason| reason.as_str().to_owned());
                if let Some(last) = &delta.usage {
                    self.usage = united(std::mem::take(&mut self.usage), last);
                }
            }
            Event::MessageStop(stop) => self.end(stop.extra.get(&self.head.metadata), out),
            // Nobody needs to know, but that somebody is there.
            Event::Ping(_) => out.extend_from_slice(b": ping\n\n"),
            Event::Error(_) | Event::Other(_) => {}
        }
    }

    fn begin(&mut self, index: usize, block: &Block, out: &mut BytesMut) {
        self.before += std::mem::take(&mut self.length);
        self.kept = 0;
        self.block.clear();
        if let Some((id, result)) = ran::result(block) {
            if let Some(place) = self.ran.iter().position(|(_, _, ran)| ran.call.id == id) {
                let (_, index, ran) = self.ran.remove(place);
                self.tell_ran(&Ran { result: Some(result), ..ran }, index, out);
            }
            return;
        }
        match block {
            Block::ServerToolUse(call) => self.ran.push((index, self.places.other(), Ran::new(call.clone()))),
            // What is shown of calls comes before anything else is said.
            Block::Text(_) | Block::Thinking(_) | Block::RedactedThinking(_) => self.leave_ran(out),
            _ => {}
        }
        match block {
            Block::Text(_) => self.places.text(),
            Block::ToolUse(_) | Block::Thinking(_) | Block::RedactedThinking(_) => self.thought = self.places.other(),
            _ => {}
        }
        match block {
            Block::ToolUse(call) => {
                let number = self.calls.len();
                let (name, input) = (Some(call.name.as_str()), Some(call.input_text().to_owned()));
                let is_custom = self.form.custom.contains(&call.name);
                self.calls.push(Called { block: index, input, pieces: is_custom.then(String::new) });
                let kind = Some(if is_custom { "custom" } else { "function" });
                let function = (!is_custom).then_some(Function { name, arguments: "" });
                let custom = is_custom.then_some(Custom { name, input: "" });
                let call = Call { index: number, id: Some(&call.id), kind, function, custom };
                self.tell(out, Piece { tool_calls: Some([call]), ..Piece::default() });
            }
            Block::Text(text) if !text.text.is_empty() => self.say(&text.text, out),
            Block::Thinking(thought) if !thought.thinking.is_empty() => self.think(&thought.thinking, out),
            Block::RedactedThinking(thought) => {
                let detail = Detail::Sealed { data: &thought.data, format: FORMAT, index: self.thought };
                self.detail(None, detail, out);
            }
            _ => {}
        }
    }

    fn add(&mut self, index: usize, delta: Delta, out: &mut BytesMut) {
        match delta {
            Delta::Text(delta) => self.say(&delta.text, out),
            Delta::Thinking(delta) => self.think(&delta.thinking, out),
            Delta::Signature(delta) if !delta.signature.is_empty() => {
                let signature = Some(delta.signature.as_str());
                self.detail(None, Detail::Text { text: None, signature, format: FORMAT, index: self.thought }, out);
            }
            Delta::InputJson(delta) if !delta.partial_json.is_empty() => {
                if let Some((_, _, ran)) = self.ran.iter_mut().find(|(block, ..)| *block == index) {
                    ran.pieces.push_str(&delta.partial_json);
                    return;
                }
                let Some(number) = self.calls.iter().position(|call| call.block == index) else { return };
                self.calls[number].input = None;
                if let Some(pieces) = &mut self.calls[number].pieces {
                    pieces.push_str(&delta.partial_json);
                    return;
                }
                self.arguments(number, &delta.partial_json, out);
            }
            Delta::Citation(delta) => self.citations.push(delta.citation),
            _ => {}
        }
    }

    fn arguments(&mut self, number: usize, text: &str, out: &mut BytesMut) {
        let function = Some(Function { name: None, arguments: text });
        let call = Call { index: number, id: None, kind: None, function, custom: None };
        self.tell(out, Piece { tool_calls: Some([call]), ..Piece::default() });
    }

    /// A block has ended: a call without pieces has the input that it began with, and citations have their place.
    fn stop(&mut self, index: usize, out: &mut BytesMut) {
        let ended = self.calls.iter_mut().enumerate().find(|(_, call)| call.block == index);
        let ended = ended.map(|(number, call)| (number, call.input.take(), call.pieces.take()));
        match ended {
            Some((number, input, Some(pieces))) => {
                let text = custom::text_of(&input.unwrap_or(pieces));
                let custom = Some(Custom { name: None, input: &text });
                let call = Call { index: number, id: None, kind: None, function: None, custom };
                self.tell(out, Piece { tool_calls: Some([call]), ..Piece::default() });
            }
            Some((number, Some(input), None)) => self.arguments(number, &input, out),
            Some((_, None, None)) | None => {}
        }
        let citations = std::mem::take(&mut self.citations);
        for (found, place) in cited::placed_in(&self.block, self.length, &citations) {
            let mut annotation = Annotation::of(found, place, self.before);
            annotation.index = Some(self.annotated);
            self.annotated += 1;
            self.tell(out, Piece { annotations: Some([annotation]), ..Piece::default() });
        }
    }

    fn say(&mut self, text: &str, out: &mut BytesMut) {
        // What is cited further on is cited as all of the block.
        let is_whole = self.block.len() + text.len() <= MOST_KEPT && self.kept == self.length;
        self.length += text.chars().count();
        if is_whole {
            self.block.push_str(text);
            self.kept = self.length;
        }
        self.tell(
            out,
            match self.declines {
                true => Piece { refusal: Some(text), ..Piece::default() },
                false => Piece { content: Some(text), ..Piece::default() },
            },
        );
    }

    fn think(&mut self, text: &str, out: &mut BytesMut) {
        let detail = Detail::Text { text: Some(text), signature: None, format: FORMAT, index: self.thought };
        self.detail(Some(text), detail, out);
    }

    fn detail(&mut self, reasoning: Option<&str>, detail: Detail<'_>, out: &mut BytesMut) {
        if !self.form.hides_reasoning {
            self.tell(out, Piece { reasoning, reasoning_details: Some([detail]), ..Piece::default() });
        }
    }

    fn tell_ran(&mut self, ran: &Ran, index: usize, out: &mut BytesMut) {
        self.tell(out, Piece { reasoning_details: Some([Detail::ran(ran, index)]), ..Piece::default() });
    }

    /// Tells of calls whose results are not shown.
    fn leave_ran(&mut self, out: &mut BytesMut) {
        for (_, index, ran) in std::mem::take(&mut self.ran) {
            self.tell_ran(&ran, index, out);
        }
    }

    /// A chunk that goes on. The first one says whose words they are.
    fn tell(&mut self, out: &mut BytesMut, mut piece: Piece<'_>) {
        if !std::mem::replace(&mut self.is_begun, true) {
            piece.role = Some("assistant");
        }
        let delta = serde_json::to_string(&piece).expect("texts and numbers are always JSON");
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(self.opening.as_bytes());
        out.extend_from_slice(br#","choices":[{"index":0,"delta":"#);
        out.extend_from_slice(delta.as_bytes());
        out.extend_from_slice(b",\"finish_reason\":null,\"logprobs\":null}]}\n\n");
    }

    /// The last chunks: why it ended, what it used.
    fn end(&mut self, metadata: Option<&Raw>, out: &mut BytesMut) {
        self.leave_ran(out);
        let stop = self.stop.as_deref().unwrap_or_default();
        let usage = serde_json::to_string(&Usage::of(&self.usage)).expect("numbers are always JSON");
        let tier = self.usage.service_tier.as_deref().map(tier);
        let tier = tier.map_or_else(|| "null".to_owned(), json::quoted);
        let choice = format!(
            r#"[{{"index":0,"delta":{{}},"finish_reason":"{}","native_finish_reason":{},"logprobs":null}}]"#,
            finish_reason(stop, self.is_declined),
            json::quoted(stop)
        );
        let chunk = |choices: &str, more: String| format!(r#"{},"choices":{choices}{more}}}"#, self.opening);
        let used = format!(r#","service_tier":{tier},"usage":{usage}"#);
        let (last, apart) = match self.form.usage_apart {
            true => (chunk(&choice, String::new()), Some(chunk("[]", used))),
            false => (chunk(&choice, used), None),
        };
        let mut chunks: Vec<String> = [Some(last), apart].into_iter().flatten().collect();
        if let Some(text) = chunks.pop() {
            chunks.push(with_metadata(text, &self.head.metadata, metadata));
        }
        for chunk in chunks {
            put(out, &chunk);
        }
        out.extend_from_slice(DONE);
    }

    /// The status cannot be changed any more, so the error is a chunk.
    fn fail(&mut self, data: &[u8], out: &mut BytesMut) {
        let body = serde_json::from_slice::<&RawValue>(data).ok().and_then(Members::of).unwrap_or_default();
        let error = body.get("error").and_then(Members::of).unwrap_or_default();
        let text = |name: &str| error.get(name).and_then(json::string);
        let kind = text("error_type").and_then(|kind| ErrorType::parse(&kind)).unwrap_or(ErrorType::Unmapped);
        let told = InferenceError {
            code: kind.status(),
            error_type: kind,
            message: &text("message").unwrap_or_default(),
            metadata: body.get("metadata").map(RawValue::get),
            availability: error.get("availability").map(RawValue::get),
            routing: body.get(&self.head.metadata).map(|routing| (self.head.metadata.as_str(), routing.get())),
        };
        // Nobody has begun to answer: who failed last is all there is to name.
        if let (false, Some(metadata)) = (self.is_begun, body.get("metadata").and_then(Members::of)) {
            let provider = metadata.get("provider_name").and_then(json::string);
            self.opening = opening(&self.head, &self.form.model, provider.as_deref());
        }
        let told = told.to_json();
        let told = told.strip_prefix('{').and_then(|told| told.strip_suffix('}')).unwrap_or_default();
        let chunk = format!(
            r#"{},{told},"choices":[{{"index":0,"delta":{{"content":""}},"finish_reason":"error","logprobs":null}}]}}"#,
            self.opening
        );
        put(out, &chunk);
        out.extend_from_slice(DONE);
    }
}

/// Writes a chunk in one line: raw parts of it may be pretty-printed, and within strings line breaks are escaped.
fn put(out: &mut BytesMut, chunk: &str) {
    out.extend_from_slice(b"data: ");
    out.extend(chunk.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
    out.extend_from_slice(b"\n\n");
}

/// What every chunk begins with.
fn opening(head: &Head, model: &str, provider: Option<&str>) -> String {
    let provider = provider.map(|name| format!(r#","provider":{}"#, json::quoted(name))).unwrap_or_default();
    format!(
        r#"{{"id":{},"object":"chat.completion.chunk","created":{},"model":{}{provider}"#,
        json::quoted(&head.id),
        head.created,
        json::quoted(model)
    )
}
