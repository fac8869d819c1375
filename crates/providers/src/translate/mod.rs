//! From the Messages format to another protocol and back. Each protocol has a module that builds its request and one
//! that says what its answer holds; what they share is here: the normalised [`conversation`], the [`card`] that says what
//! a model can do, the [`encoder`] that keeps the rules of the Messages format, and the [`carrier`] that takes reasoning
//! across turns.
//!
//! What comes out of a translated answer is an answer in the Messages format, whole or as frames, as a native upstream
//! would have sent it; everything after that is the same for both.

pub(crate) mod arguments;
pub mod beside;
pub mod blocks;
pub mod body;
pub mod card;
pub mod carrier;
pub mod cite;
pub mod conversation;
pub mod encoder;
pub mod functions;
pub mod intent;
pub mod marks;
pub mod offer;
pub mod results;
pub mod schema;
pub mod search;
pub mod tags;
pub mod tools;
pub mod usage;

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::value::RawValue;
use tidegate_wire::answer::{REFUSAL_CATEGORY, REFUSAL_EXPLANATION};
use tidegate_wire::json::{self, Kind, quote, quoted};
use tidegate_wire::sse::{self, Frame};

pub use card::Card;
pub use encoder::{Encoder, Ending, Stop};
use usage::BYTES_PER_TOKEN;
pub use usage::Counted;

use crate::eventstream::{self, Event};
use crate::fault::{self, Class, Fault};
use blocks::{Blocks, Collected, Frames};

/// What a model at this endpoint cannot take: the place in the request and what is wrong with it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub path: String,
    pub reason: String,
}

/// Stands for the model as the caller knows it, whose name is not known here.
pub const MODEL: &str = "{model}";

/// What is wrong with messages of which nothing is left to tell.
pub const NOTHING_SAID: &str = "must not be empty";

impl Unsupported {
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }

    /// Of no place in particular; the reason is all that is said.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self::new("", reason)
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return out.write_str(&self.reason);
        }
        // What is said of the member itself follows it, as it does where a request is checked.
        let is_of_it = ["must ", "is ", "requires "].iter().any(|verb| self.reason.starts_with(verb));
        write!(out, "{}{} {}", self.path, if is_of_it { "" } else { ":" }, self.reason)
    }
}

/// Where a translated request goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub card: &'a Card,
    /// The provider's own name of the model.
    pub model: &'a str,
    /// Which account at which host: reasoning is replayed only to where it came from.
    pub scope: &'a str,
    /// What keeps a conversation's cache together; none where the upstream takes no such thing.
    pub cache_key: Option<&'a str>,
    /// Who the end user is, hashed; none where the upstream must not know.
    pub user: Option<&'a str>,
    pub stream: bool,
    /// The limit of output in the request is ours: the caller has set none.
    pub is_capped: bool,
    /// The vendor's own search stands for one of ours: what it finds is told in blocks.
    pub tells_searches: bool,
    /// The service tier that the endpoint stands for, where it is not the usual one: `priority` or `flex`.
    pub tier: Option<&'a str>,
    /// Betas that a Claude model behind another protocol is to know of.
    pub betas: &'a [&'a str],
    /// Calls of earlier turns and what carries their signatures, for a client that has not sent it back.
    pub kept: &'a [(String, String)],
    /// Signatures were refused, or missed: there are none, and what stands for none is wherever one could be.
    pub unsigned: bool,
}

/// A request as the upstream takes it, and what its answer must be read with.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub body: Bytes,
    pub context: Context,
    pub warnings: Vec<String>,
}

/// What an answer cannot be read without.
#[derive(Clone, Debug, Default)]
pub struct Context {
    pub names: tools::Names,
    /// At most one call was promised.
    pub serial: bool,
    pub show_thinking: bool,
    /// The upstream wants back what it thought before it called a tool, also where nobody was shown it.
    pub keeps_thinking: bool,
    pub scope: String,
    pub model: String,
    /// Sequences that the upstream does not look for itself.
    pub guarded: Vec<String>,
    pub max_tokens: u64,
    pub context_length: u64,
    /// What the input is thought to be, until the upstream says.
    pub input_estimate: u64,
    /// Reasoning comes between tags in the text.
    pub think_tags: bool,
    /// The answer repeats these words, which the caller has put before it.
    pub prefix: Option<String>,
    /// The one stop sequence the upstream looks for, where it does not name the one it met.
    pub only_stop: Option<String>,
    /// Signatures are the vendor's own and go to the client as they are.
    pub own_signatures: bool,
    /// The protocol's own name, for the issuer of a carrier.
    pub protocol: &'static str,
    /// What the vendor itself searches is told in blocks.
    pub tells_searches: bool,
    /// Names of the tools as the upstream knows them.
    pub offered: Vec<String>,
    /// What was taken out of the conversation on its way, where the request asks for that; as JSON.
    pub edits: Option<String>,
}

impl Context {
    /// The member of an answer that tells of edits.
    fn told_edits(&self) -> String {
        self.edits.as_ref().map(|edits| format!(r#","context_management":{edits}"#)).unwrap_or_default()
    }

    /// Bytes that an answer is counted by at most, where its upstream counts nothing: our guess never says more than was asked
    /// for.
    fn most_said(&self) -> u64 {
        if self.max_tokens == 0 { u64::MAX } else { self.max_tokens.saturating_mul(BYTES_PER_TOKEN) }
    }

    /// An answer that was cut short: at the caller's limit, or because the model can hold no more.
    pub fn length(&self, counted: &Counted) -> Stop {
        let parts = [counted.input, counted.cache_read, counted.cache_write, counted.output];
        let all = parts.into_iter().fold(0_u64, u64::saturating_add);
        let is_full = counted.is_known() && all >= self.context_length && counted.output < self.max_tokens;
        if is_full { Stop::ContextWindow } else { Stop::Length }
    }
}

/// An answer that just ended must have said something, or count for something: a model may be done with nothing to say,
/// and asking another one would only cost once more.
pub fn is_something<B: Blocks>(encoder: &Encoder<B>, counted: &Counted) -> Result<(), Fault> {
    let is_content = encoder.is_done() && counted.is_known() && counted.output > 0;
    if encoder.has_answered() || is_content { Ok(()) } else { Err(Fault::in_answer(Class::EmptyCompletion)) }
}

/// What the upstream itself calls an answer, and its own word for why that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Native {
    pub id: Option<Box<str>>,
    pub reason: Option<Box<str>>,
}

/// Characters that are kept of such a name or word.
const MOST_NATIVE: usize = 128;

impl Native {
    /// Takes the id, which is told again with every piece of some streams. What is none spoils no answer.
    pub fn name(&mut self, id: Option<&RawValue>) {
        if self.id.is_some() {
            return;
        }
        let id = id.and_then(|id| match json::kind(id) {
            Kind::String => json::string(id),
            Kind::Number => Some(id.get().into()),
            _ => None,
        });
        self.id = id.filter(|id| !id.is_empty()).map(|id| kept(&id));
    }

    /// Takes the word for the end.
    pub fn end(&mut self, word: Option<&str>) {
        if let Some(word) = word.filter(|word| !word.is_empty()) {
            self.reason = Some(kept(word));
        }
    }
}

fn kept(text: &str) -> Box<str> {
    text.chars().take(MOST_NATIVE).collect::<String>().into()
}

/// Reads an upstream's stream, one frame after the other.
pub trait Decode: Send + Sync {
    /// Takes the data of one event and its name, which is empty where the protocol has none.
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault>;

    /// The connection is over. A stream that did not say so itself is broken.
    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault>;

    /// Whether the upstream has said how the answer ended, so that only usage or the end of the stream is still to come.
    /// Then [`Decode::end`] finishes it.
    fn is_settled(&self) -> bool {
        false
    }
}

/// The answer that a decoder fills.
pub struct Stream {
    pub encoder: Encoder<Frames>,
    pub counted: Counted,
    id: String,
    estimate: u64,
    /// The member that tells of edits.
    edits: String,
    started: bool,
    stopped: bool,
}

impl Stream {
    pub fn new(context: &Context) -> Self {
        let encoder = Encoder::new(Frames::default(), context);
        Self {
            encoder,
            counted: Counted::default(),
            id: new_id(),
            estimate: context.input_estimate,
            edits: context.told_edits(),
            started: false,
            stopped: false,
        }
    }

    /// The frames since the last call.
    pub fn take(&mut self) -> Bytes {
        self.encoder.blocks.out.split().freeze()
    }

    /// The first event of all, before anything else; once.
    pub fn start(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        let out = &mut self.encoder.blocks.out;
        out.put_slice(b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
        put_head(out, &self.id);
        out.put_slice(b"[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
        let counted = if self.counted.is_told(1) { self.counted } else { Counted::estimated(self.estimate) };
        out.put_slice(counted.at_start().to_json().as_bytes());
        out.put_slice(b"}}\n\n");
    }

    /// An event in the Messages format that goes on as it came. Its data is one line.
    pub fn verbatim(&mut self, event: &str, data: &[u8]) {
        sse::encode(&mut self.encoder.blocks.out, event, data);
    }

    /// The last two events; once. They carry the whole usage.
    pub fn finish(&mut self) -> Result<(), encoder::Broken> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        self.start();
        let ending = self.encoder.finish()?;
        let counted = self.counted.or_estimated(self.estimate, self.encoder.said());
        let out = &mut self.encoder.blocks.out;
        out.put_slice(b"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
        out.put_slice(ending.to_json().as_bytes());
        out.put_slice(b"},\"usage\":");
        out.put_slice(counted.to_json().as_bytes());
        out.put_slice(self.edits.as_bytes());
        out.put_slice(b"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        Ok(())
    }

    pub fn is_finished(&self) -> bool {
        self.stopped
    }

    /// Whether the usage that was written is what we think it is, because the upstream has told nothing.
    pub fn is_estimated(&self) -> bool {
        self.started && !self.counted.is_told(self.encoder.said())
    }
}

/// How the events of a stream are told apart.
enum Framing {
    Sse(sse::Splitter),
    EventStream(eventstream::Splitter),
}

/// Turns the bytes of an upstream's stream into the bytes of one in the Messages format.
pub struct Translator {
    framing: Framing,
    decoder: Box<dyn Decode>,
    stream: Stream,
    halves: json::Joiner,
    broken: Option<Fault>,
    leaves_early: bool,
    /// Tokens of the answer as the upstream counted last, and the bytes that were said by then.
    told: (u64, u64),
}

impl Translator {
    pub fn new(decoder: Box<dyn Decode>, context: &Context, max_event_bytes: usize) -> Self {
        Self::of(Framing::Sse(sse::Splitter::new(max_event_bytes)), decoder, context)
    }

    /// For a stream of binary frames.
    pub fn binary(decoder: Box<dyn Decode>, context: &Context, max_event_bytes: usize) -> Self {
        Self::of(Framing::EventStream(eventstream::Splitter::new(max_event_bytes)), decoder, context)
    }

    fn of(framing: Framing, decoder: Box<dyn Decode>, context: &Context) -> Self {
        let (stream, halves) = (Stream::new(context), json::Joiner::default());
        Self { framing, decoder, stream, halves, broken: None, leaves_early: false, told: (0, 0) }
    }

    /// Ends the answer with the bytes in which a sequence is met that we look for ourselves: this upstream charges for
    /// nothing that it does not get to send. From another one the rest is read for what it says that was used.
    pub fn leave_early(&mut self) {
        self.leaves_early = true;
    }

    /// What the next bytes amount to. After a fault, which [`Translator::fault`] tells, nothing more comes.
    pub fn feed(&mut self, chunk: Bytes) -> Bytes {
        match &mut self.framing {
            Framing::Sse(splitter) => splitter.feed(chunk),
            Framing::EventStream(splitter) => splitter.feed(chunk),
        }
        while self.broken.is_none() && self.next() {}
        // Not sooner: what was used may be in the same bytes.
        if self.leaves_early && self.broken.is_none() && self.stream.encoder.is_over() {
            self.finish();
        }
        self.stream.take()
    }

    /// Whether it ended an answer so.
    pub fn has_left_early(&self) -> bool {
        self.leaves_early && self.stream.encoder.is_over()
    }

    /// Tells the decoder that nothing more comes.
    fn finish(&mut self) {
        let ended = match self.decoder.end(&mut self.stream) {
            // All of the answer is here.
            Err(_) if self.stream.encoder.is_over() => {
                self.stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
            }
            ended => ended,
        };
        if let Err(fault) = ended {
            self.broken = Some(fault);
        }
    }

    /// Takes what came of an event. What goes wrong behind the end of an answer takes nothing from it.
    fn fed(&mut self, fed: Result<(), Fault>) {
        if self.stream.counted.output != self.told.0 {
            self.told = (self.stream.counted.output, self.stream.encoder.said());
        }
        match fed {
            Ok(()) => {}
            Err(_) if self.stream.encoder.is_over() => self.finish(),
            Err(fault) => self.broken = Some(fault),
        }
    }

    /// Reads one event; false when no whole one is there.
    fn next(&mut self) -> bool {
        match &mut self.framing {
            Framing::Sse(splitter) => match splitter.next() {
                Ok(Some(frame)) => self.frame(&frame),
                Ok(None) => return false,
                Err(_) => self.broken = Some(Fault::in_answer(Class::BadResponse)),
            },
            Framing::EventStream(splitter) => match splitter.next() {
                Ok(Some(event)) => self.event(&event),
                Ok(None) => return false,
                Err(_) => self.broken = Some(Fault::in_answer(Class::BadResponse)),
            },
        }
        true
    }

    /// The connection is over.
    pub fn end(&mut self) -> Bytes {
        let rest = match &mut self.framing {
            Framing::Sse(splitter) => splitter.finish(),
            Framing::EventStream(_) => None,
        };
        if let Some(frame) = rest {
            self.frame(&frame);
        }
        if self.broken.is_none() {
            self.finish();
        }
        self.stream.take()
    }

    /// Whether nothing is missing but usage or the end of the stream, for which nobody need wait long.
    pub fn is_settled(&self) -> bool {
        let is_all = self.decoder.is_settled() || self.stream.encoder.is_over();
        self.broken.is_none() && !self.stream.is_finished() && is_all
    }

    /// Finishes a settled stream as if it had ended; nothing for any other.
    pub fn settle(&mut self) -> Bytes {
        if self.is_settled() {
            self.finish();
        }
        self.stream.take()
    }

    /// Whether the usage in what has come out so far is an estimate.
    pub fn is_estimated(&self) -> bool {
        self.stream.is_estimated()
    }

    /// What could not be told as it was.
    pub fn warnings(&self) -> &[String] {
        &self.stream.encoder.warnings
    }

    /// Calls so far that are signed, and what carries the signature.
    pub fn signed(&self) -> &[(String, String)] {
        &self.stream.encoder.signed
    }

    /// What the upstream calls the answer, as far as that has come; nothing where its message goes on as its own.
    pub fn native(&self) -> Option<&Native> {
        self.stream.started.then_some(&self.stream.encoder.native)
    }

    /// Bytes of text, thinking and input so far: what the output of a stream that is given up is estimated from.
    pub fn said(&self) -> u64 {
        self.stream.encoder.said()
    }

    /// The same as far as it is counted: tokens that the upstream has told of, and the bytes that were said since.
    pub fn told(&self) -> (u64, u64) {
        // Nothing came out of it yet, so nothing is owed.
        let (tokens, said) = if self.said() == 0 { (0, 0) } else { self.told };
        (tokens, self.said().saturating_sub(said))
    }

    /// An answer that came whole: one event, and the end.
    pub fn whole(&mut self, body: &[u8]) -> Bytes {
        let body = self.halves.joined(body);
        let fed = self.decoder.feed("", &body, &mut self.stream).and_then(|()| self.decoder.end(&mut self.stream));
        if let Err(fault) = fed {
            self.broken = Some(fault);
        }
        self.stream.take()
    }

    /// Why the stream cannot go on, once.
    pub fn fault(&mut self) -> Option<Fault> {
        self.broken.take()
    }

    fn event(&mut self, event: &Event) {
        let fed = match event {
            Event::Message { name, payload } => self.decoder.feed(name, &self.halves.joined(payload), &mut self.stream),
            Event::Exception { kind, payload } => Err(fault::classify_exception(kind, payload)),
        };
        self.fed(fed);
    }

    fn frame(&mut self, frame: &Frame) {
        if frame.is_silent() {
            return;
        }
        let name = std::str::from_utf8(frame.event()).unwrap_or_default();
        let fed = self.decoder.feed(name, &self.halves.joined(&frame.data()), &mut self.stream);
        self.fed(fed);
    }
}

/// A whole answer in the Messages format.
#[derive(Clone, Debug)]
pub struct Answered {
    pub body: Bytes,
    /// What was left out of it.
    pub warnings: Vec<String>,
    /// Its usage is what we think it is, because the upstream has told nothing.
    pub is_estimated: bool,
    /// Its calls that are signed, and what carries the signature.
    pub signed: Vec<(String, String)>,
    pub native: Native,
}

/// A whole answer that a reader fills.
pub struct Whole {
    pub encoder: Encoder<Collected>,
    pub counted: Counted,
    estimate: u64,
    /// The member that tells of edits.
    edits: String,
}

impl Whole {
    pub fn new(context: &Context) -> Self {
        let encoder = Encoder::new(Collected::default(), context);
        let (estimate, edits) = (context.input_estimate, context.told_edits());
        Self { encoder, counted: Counted::default(), estimate, edits }
    }

    /// The answer in the Messages format.
    pub fn finish(mut self) -> Result<Answered, encoder::Broken> {
        let ending = self.encoder.finish()?;
        let mut out = BytesMut::with_capacity(1024);
        put_head(&mut out, &new_id());
        out.put_slice(self.encoder.blocks.to_json().as_bytes());
        out.put_u8(b',');
        out.put_slice(ending.to_json().as_bytes());
        out.put_slice(b",\"usage\":");
        let counted = self.counted.or_estimated(self.estimate, self.encoder.said());
        out.put_slice(counted.to_json().as_bytes());
        out.put_slice(self.edits.as_bytes());
        out.put_u8(b'}');
        let is_estimated = !self.counted.is_told(self.encoder.said());
        let Encoder { warnings, signed, native, .. } = self.encoder;
        Ok(Answered { body: out.freeze(), warnings, is_estimated, signed, native })
    }
}

impl Ending {
    /// The members of an answer that say how it ended.
    fn to_json(&self) -> String {
        let sequence = self.stop_sequence.as_deref().map_or_else(|| "null".to_owned(), quoted);
        let details = match self.stop_reason {
            "refusal" => {
                let words = self.explanation.as_deref().unwrap_or(REFUSAL_EXPLANATION);
                format!(r#"{{"type":"refusal","category":"{REFUSAL_CATEGORY}","explanation":{}}}"#, quoted(words))
            }
            _ => "null".to_owned(),
        };
        format!(r#""stop_reason":"{}","stop_sequence":{sequence},"stop_details":{details}"#, self.stop_reason)
    }
}

/// Everything of an answer before the elements of its content. The gateway puts the model's public name in later.
fn put_head(out: &mut BytesMut, id: &str) {
    out.put_slice(b"{\"id\":");
    quote(id, out);
    out.put_slice(b",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"\",\"content\":");
}

fn new_id() -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut id = String::with_capacity("msg_".len() + 24);
    id.push_str("msg_");
    for byte in tidegate_core::id::pooled::<12>() {
        id.extend([byte >> 4, byte & 15].map(|half| char::from(DIGITS[usize::from(half)])));
    }
    id
}
