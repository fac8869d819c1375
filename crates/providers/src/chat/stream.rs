//! A stream in the Chat Completions protocol, chunk by chunk.

use tidegate_core::Timestamp;
use tidegate_wire::answer::Word;
use tidegate_wire::json::{self, Kind};

use super::answer::{Completion, Said, ToolCall, arguments, counted, identity, stop};
use super::reasoning::Voice;
use super::salvage::salvage;
use super::sources::Sources;
use crate::fault::{self, Class, Fault};
use crate::translate::{Context, Decode, Stop, Stream, is_something, usage};

/// Reads chunks. Calls are told apart by their number where servers keep to it, and by id and shape where they do not.
pub struct Decoder {
    context: Context,
    now: Timestamp,
    /// Every call so far; its place here is its key. Of those with the same number, the last one is meant where no id
    /// says otherwise.
    calls: Vec<Numbered>,
    /// Calls from here on have come with the chunk that is being read.
    in_chunk: usize,
    voice: Voice,
    /// Whether pieces have told of the answer itself, and of what led to it.
    has_spoken: bool,
    has_thought: bool,
    tier: Option<Word>,
    sources: Sources,
    done: bool,
    finished: Option<Stop>,
}

/// A call as the upstream tells it apart.
#[derive(Default)]
struct Numbered {
    number: u32,
    id: Option<String>,
    /// All pieces of its name.
    name: String,
    /// What came of its input before its name.
    early: String,
}

fn key_of(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

impl Decoder {
    pub fn new(context: Context, now: Timestamp) -> Self {
        let voice = Voice::new(&context);
        Self {
            context,
            now,
            calls: Vec::new(),
            in_chunk: 0,
            voice,
            has_spoken: false,
            has_thought: false,
            tier: None,
            sources: Sources::default(),
            done: false,
            finished: None,
        }
    }

    /// What a whole message says that its pieces have not: MiniMax ends a stream with all of the answer once more.
    fn untold<'a>(&self, mut said: Said<'a>) -> Option<Said<'a>> {
        if self.has_thought {
            (said.reasoning_content, said.reasoning, said.reasoning_details) = (None, None, None);
        }
        Some(said).filter(|_| !self.has_spoken)
    }

    fn said(&mut self, said: Said<'_>, stream: &mut Stream) {
        self.has_spoken |= said.answers();
        self.has_thought |= said.thinks();
        self.voice.say(&said, &mut stream.encoder, &self.context);
        let single = said.function_call();
        let has_calls = said.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) || single.is_some();
        let has_refusal = said.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        if has_calls || has_refusal {
            self.voice.pause(&mut stream.encoder, &self.context);
        }
        if let Some(refusal) = &said.refusal {
            stream.encoder.refusal(refusal);
        }
        for citation in said.citations() {
            stream.encoder.citation(citation.to_json(&self.voice.text));
        }
        self.in_chunk = self.calls.len();
        for call in said.tool_calls.into_iter().flatten() {
            self.call(call, stream);
        }
        if let Some(function) = single {
            let call = ToolCall { index: Some(0.0), id: None, function: Some(function) };
            self.call(call, stream);
        }
    }

    fn call(&mut self, call: ToolCall<'_>, stream: &mut Stream) {
        let id = identity(call.id.as_deref());
        let name = call.function.as_ref().and_then(|function| function.name.as_deref()).filter(|name| !name.is_empty());
        let place = self.place(call.index.map(|index| index as u32), id, name, stream);
        let (key, known) = (key_of(place), &mut self.calls[place]);
        if let Some(name) = name {
            known.name.push_str(name);
            stream.encoder.tool_start(key, id.or(known.id.as_deref()), name);
            self.voice.called(key, &mut stream.encoder);
            stream.encoder.tool_arguments(key, &std::mem::take(&mut known.early));
        }
        let pieces = arguments(call.function.as_ref().and_then(|function| function.arguments));
        if known.name.is_empty() {
            known.early.push_str(&pieces);
        } else {
            stream.encoder.tool_arguments(key, &pieces);
        }
    }

    /// Which call a piece belongs to: a number not seen before begins one, and so does another id under a known number,
    /// or a name after a whole object. A number and id that were seen mean the same call, also when it is long over.
    fn place(&mut self, number: Option<u32>, id: Option<&str>, name: Option<&str>, stream: &Stream) -> usize {
        let is_it = |call: &Numbered| id.is_some() && call.id.as_deref() == id;
        let number = number.unwrap_or_else(|| {
            match (self.calls.iter().find(|call| is_it(call)), id) {
                (Some(call), _) => call.number,
                // Another id without a number is another call.
                (None, Some(_)) => key_of(self.calls.len()),
                (None, None) => self.calls.last().map_or(0, |call| call.number),
            }
        });
        let same = self.calls.iter().rposition(|call| call.number == number && is_it(call));
        if let Some(place) = same {
            return place;
        }
        if let Some(place) = self.calls.iter().rposition(|call| call.number == number) {
            let known = &self.calls[place];
            let other_id = id.is_some() && known.id.is_some();
            // No server cuts a name in one chunk, or into the names of two tools.
            let is_tool = |name: &str| self.context.offered.iter().any(|tool| tool == name);
            let is_of_chunk = place >= self.in_chunk && known.id.is_none();
            let is_another = |name: &str| is_of_chunk || (known.name != name && is_tool(&known.name) && is_tool(name));
            let is_over = stream.encoder.is_complete(key_of(place));
            let next_call = !known.name.is_empty() && name.is_some_and(|name| is_over || is_another(name));
            if !other_id && !next_call {
                return place;
            }
        }
        let place = self.calls.len();
        self.calls.push(Numbered { number, id: id.map(ToOwned::to_owned), ..Numbered::default() });
        place
    }

    fn finish(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        stream.counted.tier = self.tier.or(stream.counted.tier);
        self.voice.pause(&mut stream.encoder, &self.context);
        self.sources.cite(&self.voice.text, &mut stream.encoder);
        // One without a name is no answer, but some servers also send empty ones that mean nothing.
        let is_nameless = |call: &Numbered| call.name.is_empty() && !call.early.trim().is_empty();
        for (place, call) in self.calls.iter().enumerate().filter(|(_, call)| is_nameless(call)) {
            stream.encoder.tool_start(key_of(place), call.id.as_deref(), "");
        }
        if let Some(stop) = self.finished.take() {
            // What was used is often told after the end; only then it shows whether the model was full.
            let is_length = stop == Stop::Length;
            stream.encoder.stop(if is_length { self.context.length(&stream.counted) } else { stop });
        }
        is_something(&stream.encoder, &stream.counted)?;
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, _name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        if data.is_empty() || data == b"null" || stream.is_finished() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done = true;
            return self.finish(stream);
        }
        let chunk: Completion<'_> = serde_json::from_slice(data).map_err(|_| Fault::in_answer(Class::BadResponse))?;
        if let Some(error) = chunk.error.filter(|error| json::kind(error) != Kind::Null) {
            // What Groq could not read may be a call all the same, unless a part of it was told already.
            return match salvage(data, &self.context).filter(|_| self.calls.is_empty()) {
                Some(made) => self.feed("", &made, stream),
                None => Err(fault::classify_error(error, self.now)),
            };
        }
        if let Some(fault) = chunk.base_resp.and_then(|base| fault::classify_base(base, self.now)) {
            return Err(fault);
        }
        let groq = chunk.x_groq.and_then(json::Members::of);
        let error = groq.as_ref().and_then(|members| members.get("error"));
        if let Some(error) = error.filter(|error| json::kind(error) != Kind::Null) {
            return Err(fault::classify_error(error, self.now));
        }
        self.tier = chunk.service_tier.as_deref().and_then(usage::tier).or(self.tier);
        self.sources.update(Sources::of(chunk.citations, chunk.search_results));
        let usage = chunk.usage.or_else(|| groq.as_ref().and_then(|members| members.get("usage")));
        // Usage that comes alone is the last word; beside something else, a better one may follow.
        let is_alone = chunk.choices.as_ref().is_none_or(Vec::is_empty);
        let told = usage.and_then(counted);
        if let Some(told) = told {
            stream.counted.update(told);
        }
        stream.encoder.native.name(chunk.id);
        stream.start();
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0.0) < 1.0) {
            let matched = choice.matched();
            // A whole answer to a streamed request has a message where a chunk has a delta: it is over, whether it says why
            // or not.
            let is_whole = choice.delta.is_none() && choice.message.is_some();
            let said = if is_whole { choice.message.and_then(|whole| self.untold(whole)) } else { choice.delta };
            if let Some(said) = said {
                self.said(said, stream);
            }
            let word = choice.finish_reason.as_deref().filter(|word| !word.is_empty());
            if is_whole && word.is_none() && self.finished.is_none() {
                self.finished = Some(stop(None, matched, &stream.counted, &self.context)?);
            }
            if let Some(word) = word {
                let stop = stop(Some(word), matched, &stream.counted, &self.context)?;
                if self.finished.is_none() {
                    stream.encoder.native.end(Some(word));
                    self.finished = Some(stop);
                }
            }
        }
        if self.finished.is_some() && is_alone && told.is_some() {
            return self.finish(stream);
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        self.finished.is_some()
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        if stream.is_finished() {
            return Ok(());
        }
        // Without its marker, a stream that named its end has ended; one that did not was cut.
        if self.done || self.finished.is_some() {
            return self.finish(stream);
        }
        Err(Fault::without_answer(Class::Unreachable))
    }
}
