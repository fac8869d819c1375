//! What happens to the frames of a stream: nearly all pass as they are, a few are completed. No I/O.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;
use tidegate_core::Timestamp;
use tidegate_providers::translate::Translator;
use tidegate_providers::{Class, Fault, fault};
use tidegate_routing::Endpoint;
use tidegate_wire::answer::{Additions, Counts, END_TURN, Event};
use tidegate_wire::sse::{self, Frame, Splitter};

use super::resume::{self, Graft};
use super::settle::Ticket;

pub(crate) const PING: Bytes = Bytes::from_static(b"event: ping\ndata: {\"type\":\"ping\"}\n\n");

/// Every frame that needs a look holds one of these, in its event's name or in the type of its data.
static WORDS: LazyLock<[Finder<'static>; 2]> = LazyLock::new(|| [Finder::new("message_"), Finder::new("error")]);

/// Bytes on their way to the client.
#[derive(Default)]
pub(super) struct Outbox(VecDeque<Bytes>);

impl Outbox {
    pub fn pop(&mut self) -> Option<Bytes> {
        self.0.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    pub fn push(&mut self, bytes: Bytes) {
        self.0.push_back(bytes);
    }
}

/// What a chunk brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing that a client must see at once.
    Held,
    Content,
    /// The stream's end marker; what follows it is of no interest. The marker itself is not in the outbox yet.
    Finished,
}

/// The state of one upstream stream.
pub(super) struct Pump {
    endpoint: Arc<Endpoint>,
    counts: Counts,
    started: bool,
    pinged: bool,
    /// There was content, or a reason why there is none: without either an end is no answer.
    answered: bool,
    /// Every frame so far had an `event:` line.
    named: bool,
    /// The upstream has said what it answered, not only what it was asked.
    is_reported: bool,
    stop: Option<Frame>,
    /// How the answer ended and what it cost: that holds once the end marker is here, and is told then.
    told: Vec<Bytes>,
    /// Why the answer ended, as far as it was said: a later event with usage alone does not take it back.
    reason: Option<String>,
    /// For an upstream of another protocol: makes frames of what it sends.
    translator: Option<Box<Translator>>,
    /// For an answer that goes on where another one broke.
    graft: Option<Box<Graft>>,
    /// Bytes of what was said in content frames, and how many those were.
    bytes: u64,
    frames: u64,
    /// What stood before the text in the last of them: it is the same in most.
    opening: Vec<u8>,
}

/// What a frame of content has around its text, where the text is not found in it.
const FRAME_BYTES: usize = 115;
/// What the kinds of events and of pieces end with.
static DELTA: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("_delta\""));
static BLANK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\n\n"));
/// How an answer ended that does not say it.
const ENDED: &[u8] = br#"{"type":"message_delta","delta":{"stop_reason":null,"stop_sequence":null}}"#;
/// What is held of how an answer ended.
const MOST_TOLD: usize = 256 << 10;
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of the answer so far: what its upstream has counted, and our own count of what was said since.
pub(super) fn told(translator: &Translator) -> u64 {
    let (tokens, said) = translator.told();
    tokens.saturating_add(said.div_ceil(BYTES_PER_TOKEN))
}

impl Pump {
    pub fn new(endpoint: Arc<Endpoint>, translator: Option<Translator>, graft: Option<Graft>) -> Self {
        let (counts, translator) = (Counts::default(), translator.map(Box::new));
        let graft = graft.map(Box::new);
        Self {
            endpoint,
            counts,
            started: false,
            pinged: false,
            answered: false,
            named: true,
            is_reported: false,
            stop: None,
            told: Vec::new(),
            reason: None,
            translator,
            graft,
            bytes: 0,
            frames: 0,
            opening: Vec::new(),
        }
    }

    /// Takes the next bytes of the stream. A fault ends it; what came before it is in the outbox.
    pub fn take(
        &mut self,
        chunk: Bytes,
        splitter: &mut Splitter,
        out: &mut Outbox,
        ticket: &mut Ticket,
    ) -> Result<Step, Fault> {
        let Some(translator) = &mut self.translator else {
            let step = self.frames(chunk, splitter, out, ticket);
            ticket.hear(self.heard());
            return step;
        };
        let (frames, fault) = (translator.feed(chunk), translator.fault());
        ticket.hear(told(translator));
        let step = self.frames(frames, splitter, out, ticket)?;
        fault.map_or(Ok(step), Err)
    }

    /// Tokens of the answer so far, as far as its bytes tell.
    fn heard(&self) -> u64 {
        self.bytes.div_ceil(BYTES_PER_TOKEN).max(self.frames.min(1))
    }

    /// Counts frames of content that leave as they came.
    fn count(&mut self, frames: &[u8]) {
        let mut rest = frames;
        while !rest.is_empty() {
            let end = BLANK.find(rest).map_or(rest.len(), |end| end + 2);
            let (frame, others) = rest.split_at(end);
            self.bytes += said(frame, &mut self.opening) as u64;
            self.frames += 1;
            rest = others;
        }
    }

    /// Whether the upstream has said how the answer ended, and only its usage or its end marker is awaited.
    pub fn is_settled(&self) -> bool {
        self.translator.as_ref().is_some_and(|translator| translator.is_settled())
    }

    /// Whether the upstream still has something to say that nobody wants to hear: it is to stop.
    pub fn has_left_early(&self) -> bool {
        self.translator.as_ref().is_some_and(|translator| translator.has_left_early())
    }

    /// Takes an answer that came whole although a stream was asked for.
    pub fn take_whole(
        &mut self,
        body: &[u8],
        splitter: &mut Splitter,
        out: &mut Outbox,
        ticket: &mut Ticket,
    ) -> Result<Step, Fault> {
        let Some(translator) = &mut self.translator else { return Err(Fault::in_answer(Class::BadResponse)) };
        let (frames, fault) = (translator.whole(body), translator.fault());
        match fault {
            Some(fault) => Err(fault),
            None => self.frames(frames, splitter, out, ticket),
        }
    }

    fn frames(
        &mut self,
        chunk: Bytes,
        splitter: &mut Splitter,
        out: &mut Outbox,
        ticket: &mut Ticket,
    ) -> Result<Step, Fault> {
        let mut reached = Step::Held;
        ticket.see(&chunk);
        splitter.feed(chunk);
        loop {
            // Nearly all of a stream: chunks in which no frame needs a look, and runs of content frames. They leave as one
            // piece of the chunk they came in. An upstream that names no events needs a look at every frame.
            let calm = if self.answered && self.named && self.graft.is_none() { splitter.calm(&*WORDS) } else { None };
            let run = |splitter: &mut Splitter| if self.graft.is_none() { splitter.run(is_content) } else { None };
            if let Some(run) = calm.or_else(|| run(splitter)) {
                self.count(&run);
                out.push(run);
                self.answered = true;
                reached = Step::Content;
            }
            let Some(frame) = splitter.next().map_err(|_| Fault::in_answer(Class::BadResponse))? else { break };
            match self.frame(frame, out, ticket)? {
                Step::Held => {}
                Step::Content => reached = Step::Content,
                Step::Finished => {
                    reached = Step::Finished;
                    break;
                }
            }
        }
        Ok(reached)
    }

    /// The stream has ended; a last frame may lack its blank line.
    pub fn end(&mut self, splitter: &mut Splitter, out: &mut Outbox, ticket: &mut Ticket) -> Result<Step, Fault> {
        if let Some(translator) = &mut self.translator {
            let (frames, fault) = (translator.end(), translator.fault());
            let step = self.frames(frames, splitter, out, ticket)?;
            return fault.map_or(Ok(step), Err);
        }
        let Some(frame) = splitter.finish() else { return Ok(Step::Held) };
        let data = frame.data();
        if Event::read(&data).is_err() {
            // Torn in the middle: handing it on would swallow the error that follows.
            return Ok(Step::Held);
        }
        // Written anew, because without its blank line a client would not take it for an event.
        let whole = match std::str::from_utf8(frame.event()) {
            Ok(name) if !name.is_empty() => Frame(encoded(name, &data)),
            _ => frame.clone(),
        };
        self.frame(whole, out, ticket)
    }

    fn frame(&mut self, frame: Frame, out: &mut Outbox, ticket: &mut Ticket) -> Result<Step, Fault> {
        match frame.event() {
            b"content_block_start" | b"content_block_delta" | b"content_block_stop" if self.graft.is_some() => {
                self.grafted(&frame, out)
            }
            b"content_block_delta" | b"content_block_stop" => {
                self.answered = true;
                self.count(&frame.0);
                out.push(frame.0);
                Ok(Step::Content)
            }
            b"message_start" => self.start(&frame, out, ticket),
            b"message_delta" => self.delta(&frame, out, ticket),
            b"message_stop" if !self.answered => Err(Fault::in_answer(Class::EmptyCompletion)),
            b"message_stop" => {
                if self.told.is_empty() {
                    // It ends without a word on how, or on what it used; the client is told what it costs all the same.
                    self.delta(&Frame(encoded("message_delta", ENDED)), out, ticket)?;
                }
                self.told.drain(..).for_each(|delta| out.push(delta));
                self.stop = Some(frame);
                Ok(Step::Finished)
            }
            b"error" => Err(error(&frame)),
            b"" if frame.is_silent() => Ok(Step::Held), // their keep-alive; ours are our own
            b"" => {
                self.named = false;
                self.unnamed(&frame, out, ticket)
            }
            // The client has had its own long ago.
            b"ping" if self.graft.is_some() => Ok(Step::Held),
            name => {
                self.ping_first(name == b"ping", out);
                out.push(frame.0);
                Ok(Step::Held)
            }
        }
    }

    /// Content that goes on with what another upstream said.
    fn grafted(&mut self, frame: &Frame, out: &mut Outbox) -> Result<Step, Fault> {
        let Some(graft) = &mut self.graft else { return Ok(Step::Held) };
        let frames = graft.content(frame).ok_or_else(|| Fault::in_answer(Class::BadResponse))?;
        if frame.event() != b"content_block_start" {
            self.answered = true;
            self.count(&frame.0);
        }
        let reached = if frames.is_empty() { Step::Held } else { Step::Content };
        frames.into_iter().for_each(|frame| out.push(frame));
        Ok(reached)
    }

    /// Clients expect a `ping` right behind the start; most upstreams send one themselves.
    fn ping_first(&mut self, is_ping: bool, out: &mut Outbox) {
        if self.started && !std::mem::replace(&mut self.pinged, true) && !is_ping {
            out.push(PING);
        }
    }

    fn start(&mut self, frame: &Frame, out: &mut Outbox, ticket: &mut Ticket) -> Result<Step, Fault> {
        let data = frame.data();
        let event = Event::read(&data).map_err(malformed)?;
        let message = event.message().map_err(malformed)?;
        self.counts.update(message.counts().unwrap_or_default());
        ticket.begun(&self.counts);
        match self.translator.as_ref().and_then(|translator| translator.native()) {
            Some(native) => ticket.native(native),
            None if self.graft.is_some() => ticket.grafted(message.id()),
            None => {}
        }
        if self.graft.is_some() {
            // There is one already, and it stays as it was sent.
            (self.started, self.pinged) = (true, true);
            return Ok(Step::Held);
        }
        ticket.answer(message.id(), None);
        let additions = Additions {
            model: &self.endpoint.model,
            provider: &self.endpoint.provider_name,
            charge: None,
            used: None,
            routing_json: None,
        };
        self.started = true;
        out.push(encoded("message_start", &message.started(&additions)));
        Ok(Step::Held)
    }

    fn delta(&mut self, frame: &Frame, out: &mut Outbox, ticket: &mut Ticket) -> Result<Step, Fault> {
        let data = frame.data();
        let delta = Event::read(&data).map_err(malformed)?.delta();
        let later = delta.counts().unwrap_or_default();
        self.is_reported |= later.output.is_some();
        self.counts.update(later);
        if !self.is_reported {
            // What the start said of the output was said before there was any.
            self.counts.output = None;
        }
        let stop_reason = delta.stop_reason().or_else(|| self.reason.clone());
        self.reason.clone_from(&stop_reason);
        if self.translator.as_ref().is_some_and(|translator| translator.is_estimated()) {
            ticket.estimated();
        }
        if let Some(translator) = &self.translator {
            ticket.signed(translator.signed());
            if let Some(native) = translator.native() {
                ticket.native(native);
            }
        }
        ticket.hear(match &self.translator {
            Some(translator) => told(translator),
            None => self.heard(),
        });
        let charged = ticket.usage(&self.counts, &self.endpoint, stop_reason.is_some());
        self.answered |= stop_reason.is_some();
        ticket.answer(None, stop_reason.or_else(|| self.answered.then(|| END_TURN.to_owned())));
        self.ping_first(false, out);
        if let Some(graft) = &mut self.graft {
            let mut last = VecDeque::new();
            graft.close(&mut last);
            last.into_iter().for_each(|frame| out.push(frame));
        }
        let reason = self.reason.as_deref().or_else(|| self.answered.then_some(END_TURN));
        let mut shown = self.counts;
        if shown.output.is_none() {
            // What it is charged by.
            let (input, output) = ticket.tokens();
            (shown.input, shown.output) = (shown.input.or(Some(input)), Some(output));
        }
        let completed = delta.completed(&shown, Some(&charged.charge()), reason);
        let delta = match ticket.carried_usage() {
            Some(carried) => {
                resume::with_carried(&completed, &carried).ok_or(Class::BadResponse).map_err(Fault::in_answer)?
            }
            None => encoded("message_delta", &completed),
        };
        // One or two small ones are what there is; nobody reads what is held, so nobody slows down who sends more.
        if self.told.iter().map(Bytes::len).sum::<usize>() + delta.len() > MOST_TOLD {
            return Err(Fault::in_answer(Class::BadResponse));
        }
        self.told.push(delta);
        Ok(Step::Held)
    }

    /// Some servers write no `event:` line; Anthropic's clients drop such events, so it is added.
    fn unnamed(&mut self, frame: &Frame, out: &mut Outbox, ticket: &mut Ticket) -> Result<Step, Fault> {
        let data = frame.data();
        let kind = Event::read(&data).map_err(malformed)?.kind().ok_or_else(|| Fault::in_answer(Class::BadResponse))?;
        let plain = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain {
            return Err(Fault::in_answer(Class::BadResponse));
        }
        self.frame(Frame(encoded(&kind, &data)), out, ticket)
    }

    /// Why the answer ended, as far as it was said.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The end marker, with the routing metadata if that is wanted.
    pub fn stop_frame(&self, routing_json: Option<(&str, &str)>) -> Bytes {
        let Some(frame) = &self.stop else { return Bytes::new() };
        match routing_json {
            None => frame.0.clone(),
            Some(routing) => match Event::read(&frame.data()) {
                Ok(event) => encoded("message_stop", &event.stop_completed(routing)),
                Err(_) => frame.0.clone(),
            },
        }
    }
}

fn is_content(frame: &[u8]) -> bool {
    frame.starts_with(b"event: content_block_delta\n") || frame.starts_with(b"event: content_block_stop\n")
}

fn malformed(_: tidegate_wire::answer::Malformed) -> Fault {
    Fault::in_answer(Class::BadResponse)
}

fn error(frame: &Frame) -> Fault {
    let data = frame.data();
    // Nothing is waited for here, so the time of a retry date does not matter.
    match Event::read(&data) {
        Ok(event) => fault::classify_event(event.error(), Timestamp(0)),
        Err(_) => Fault::in_answer(Class::BadResponse),
    }
}

/// A frame with `data` on one line: line breaks between JSON tokens become spaces.
pub(super) fn encoded(event: &str, data: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    if data.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let flat: Vec<u8> = data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        sse::encode(&mut out, event, &flat);
    } else {
        sse::encode(&mut out, event, data);
    }
    out.freeze()
}
/// Bytes of the text in a frame of content. Vendors fill their frames up with blanks, and servers write them as they like: it
/// is looked for behind the kind of the piece, between the second pair of quotes.
fn said(frame: &[u8], opening: &mut Vec<u8>) -> usize {
    if opening.is_empty() || !frame.starts_with(opening) {
        opening.clear();
        opening.extend_from_slice(&frame[..text_start(frame).unwrap_or_default()]);
    }
    let length = memchr::memrchr(b'"', frame).and_then(|end| end.checked_sub(opening.len()));
    length.filter(|_| !opening.is_empty()).unwrap_or_else(|| frame.len().saturating_sub(FRAME_BYTES))
}

/// Where the text begins.
fn text_start(frame: &[u8]) -> Option<usize> {
    let kind = DELTA.find(frame)? + DELTA.needle().len();
    let piece = kind + DELTA.find(&frame[kind..])? + DELTA.needle().len();
    let start = piece + memchr::memchr_iter(b'"', &frame[piece..]).nth(2)? + 1;
    // Behind it there is another quote at least.
    memchr::memchr(b'"', &frame[start..]).map(|_| start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_told_from_what_stands_around_it() {
        let frame = |data: &str| format!("event: content_block_delta\ndata: {data}\n\n");
        let mut opening = Vec::new();
        for (data, length) in [
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}"#, 5),
            (r#"{"type":"content_block_delta","index":12,"delta":{"type":"text_delta","text":"Hello"}           }"#, 5),
            (r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}"#, 5),
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#, 0),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1"}}"#,
                8,
            ),
            (r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so_delta"}}"#, 8),
            // Written in another order, which has 115 bytes without the text, too.
            (
                r#"{"delta":{"text":"Hello, said the boat to the fog","type":"text_delta"},"index":0,"type":"content_block_delta"}"#,
                31,
            ),
        ] {
            // The first of its kind, one behind another, and one like the last.
            assert_eq!(said(frame(data).as_bytes(), &mut Vec::new()), length, "{data}");
            for _ in 0..2 {
                assert_eq!(said(frame(data).as_bytes(), &mut opening), length, "{data}");
            }
        }
        let stop = b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
        assert_eq!(said(stop, &mut opening), 0);
    }
}
