//! A stream in the Chat Completions protocol, chunk by chunk.

use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::answer::{Completion, Said, ToolCall, arguments, counted, identity, stop};
use super::reasoning::Voice;
use crate::fault::{self, Class, Fault};
use crate::translate::{Context, Decode, Stop, Stream, usage};

/// Reads chunks. Calls are told apart by their number where servers keep to it, and by id and shape where they do not.
pub struct Decoder {
    context: Context,
    now: Timestamp,
    /// The key of the call that each of the upstream's numbers means now, and the id it was given with.
    numbers: Vec<(u32, u32, Option<String>)>,
    next_key: u32,
    voice: Voice,
    tier: Option<&'static str>,
    done: bool,
    finished: Option<Stop>,
}

impl Decoder {
    pub fn new(context: Context, now: Timestamp) -> Self {
        let voice = Voice::new(&context);
        Self { context, now, numbers: Vec::new(), next_key: 0, voice, tier: None, done: false, finished: None }
    }

    fn said(&mut self, said: Said<'_>, stream: &mut Stream) {
        self.voice.say(&said, &mut stream.encoder, &self.context);
        let has_calls = said.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) || said.function_call.is_some();
        let has_refusal = said.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        if has_calls || has_refusal {
            self.voice.pause(&mut stream.encoder, &self.context);
        }
        if let Some(refusal) = &said.refusal {
            stream.encoder.refusal(refusal);
        }
        for annotation in said.annotations.into_iter().flatten() {
            if let Some(citation) = annotation.url_citation {
                stream.encoder.citation(citation.to_json(&self.voice.text));
            }
        }
        for call in said.tool_calls.into_iter().flatten() {
            self.call(call, stream);
        }
        if let Some(function) = said.function_call {
            let call = ToolCall { index: Some(0.0), id: None, function: Some(function) };
            self.call(call, stream);
        }
    }

    fn call(&mut self, call: ToolCall<'_>, stream: &mut Stream) {
        let id = identity(call.id.as_deref());
        let name = call.function.as_ref().and_then(|function| function.name.as_deref()).filter(|name| !name.is_empty());
        let key = self.key(call.index.map(|index| index as u32), id, name, stream);
        if let Some(name) = name {
            stream.encoder.tool_start(key, id, name);
        }
        if let Some(function) = &call.function {
            stream.encoder.tool_arguments(key, &arguments(function.arguments));
        }
    }

    /// Which call a piece belongs to: a number not seen before begins one, and so does another id under a known number,
    /// or a name after a whole object.
    fn key(&mut self, number: Option<u32>, id: Option<&str>, name: Option<&str>, stream: &Stream) -> u32 {
        let number = number.unwrap_or_else(|| {
            let by_id = self.numbers.iter().find(|(_, _, known)| id.is_some() && known.as_deref() == id);
            let last = self.numbers.last();
            match (by_id, id) {
                (Some((number, _, _)), _) => *number,
                // Another id without a number is another call.
                (None, Some(_)) => u32::try_from(self.numbers.len()).unwrap_or(u32::MAX),
                (None, None) => last.map_or(0, |(number, _, _)| *number),
            }
        });
        let known = self.numbers.iter().find(|(known, _, _)| *known == number);
        if let Some((_, key, known_id)) = known {
            let other_id = id.is_some() && known_id.is_some() && known_id.as_deref() != id;
            let next_call = id.is_none() && name.is_some() && stream.encoder.is_complete(*key);
            if !other_id && !next_call {
                return *key;
            }
        }
        let key = self.next_key;
        self.next_key += 1;
        self.numbers.retain(|(known, _, _)| *known != number);
        self.numbers.push((number, key, id.map(ToOwned::to_owned)));
        key
    }

    fn finish(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        stream.counted.tier = stream.counted.tier.or(self.tier);
        self.voice.pause(&mut stream.encoder, &self.context);
        if let Some(stop) = self.finished.take() {
            // What was used is often told after the end; only then it shows whether the model was full.
            let is_length = stop == Stop::Length;
            stream.encoder.stop(if is_length { self.context.length(&stream.counted) } else { stop });
        }
        if !stream.encoder.has_content() && !stream.encoder.has_stopped() {
            return Err(Fault::in_answer(Class::EmptyCompletion));
        }
        stream.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
    }
}

impl Decode for Decoder {
    fn feed(&mut self, _name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        if data.is_empty() || stream.is_finished() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done = true;
            return self.finish(stream);
        }
        let chunk: Completion<'_> = serde_json::from_slice(data).map_err(|_| Fault::in_answer(Class::BadResponse))?;
        if let Some(error) = chunk.error.filter(|error| json::kind(error) != Kind::Null) {
            return Err(fault::classify_error(error, self.now));
        }
        let groq = chunk.x_groq.and_then(json::Members::of);
        if let Some(error) = groq.as_ref().and_then(|members| members.get("error")) {
            return Err(fault::classify_error(error, self.now));
        }
        self.tier = chunk.service_tier.as_deref().and_then(usage::tier).or(self.tier);
        let usage = chunk.usage.or_else(|| groq.as_ref().and_then(|members| members.get("usage")));
        if let Some(told) = usage.and_then(counted) {
            stream.counted = told;
        }
        stream.start();
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0.0) < 1.0) {
            let matched = choice.matched();
            // A whole answer to a streamed request has a message where a chunk has a delta.
            if let Some(said) = choice.delta.or(choice.message) {
                self.said(said, stream);
            }
            if let Some(word) = choice.finish_reason.as_deref().filter(|word| !word.is_empty()) {
                let stop = stop(Some(word), matched, &stream.counted, &self.context)?;
                self.finished.get_or_insert(stop);
            }
        }
        if stream.encoder.is_over() {
            return self.finish(stream);
        }
        Ok(())
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
