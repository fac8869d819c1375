//! An answer in Gemini's protocol, whole or a piece of one: both have the same shape.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::answer::Word;
use tidegate_wire::json::{self, Kind, quoted};

use super::PROTOCOL;
use super::grounding::{self, Grounding};
use super::partial::{Partial, PartialArg};
use crate::fault::{self, Class, Fault};
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::search::Searched;
use crate::translate::usage::{self, Told};
use crate::translate::{Answered, Context, Counted, Encoder, Stop, Whole, is_something};

/// What is read of an answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    #[serde(borrow, default)]
    pub response_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default)]
    pub prompt_feedback: Option<Feedback<'a>>,
    #[serde(borrow, default)]
    pub usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow, default)]
    block_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    block_reason_message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(default)]
    pub index: Option<f64>,
    #[serde(borrow, default)]
    pub content: Option<Content<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub finish_message: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub grounding_metadata: Option<Grounding<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Content<'a> {
    #[serde(borrow, default)]
    pub parts: Option<Vec<Part<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(default)]
    thought: Option<bool>,
    #[serde(borrow, default)]
    thought_signature: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function_call: Option<Call<'a>>,
    #[serde(borrow, default)]
    inline_data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    executable_code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    code_execution_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_response: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    partial_args: Option<Vec<PartialArg<'a>>>,
    #[serde(default)]
    will_continue: Option<bool>,
}

/// Usage, where it says how much: the first pieces of an answer may only tell how it is served.
pub(super) fn counted(raw: &RawValue) -> Option<Counted> {
    let odd = Cell::new(false);
    let usage = Told::of(raw, &odd)?;
    let thoughts = usage.count("thoughtsTokenCount");
    // What is nothing is often left out.
    let output = usage.count("candidatesTokenCount").unwrap_or(0).saturating_add(thoughts.unwrap_or(0));
    let rest = || usage.count("totalTokenCount")?.checked_sub(output);
    let asked = usage.count("promptTokenCount").map(|prompt| {
        // What its own tools said was read, too.
        prompt.saturating_add(usage.count("toolUsePromptTokenCount").unwrap_or(0))
    });
    let read = usage.count("cachedContentTokenCount").unwrap_or(0);
    let of = |kind: &str, list: &str| {
        let parts = usage.list(list).into_iter().filter(|part| part.text("modality").as_deref() == Some(kind));
        parts.filter_map(|part| part.count("tokenCount")).fold(0, u64::saturating_add)
    };
    let kinds = ["IMAGE", "AUDIO"];
    let seen = kinds.map(|kind| {
        let asked = of(kind, "promptTokensDetails").saturating_add(of(kind, "toolUsePromptTokensDetails"));
        Some(asked.saturating_sub(of(kind, "cacheTokensDetails")))
    });
    let shown = kinds.map(|kind| Some(of(kind, "candidatesTokensDetails")));
    let mut counted = Counted::inclusive(asked.or_else(rest)?, read, 0, output, thoughts, None).with_media(seen, shown);
    counted.tier = tier(&usage);
    counted.is_odd |= odd.get();
    Some(counted)
}

/// How it was served: said outright, or by the kind of traffic on Vertex, where `ON_DEMAND_PRIORITY` is one.
fn tier(usage: &Told<'_>) -> Option<Word> {
    let word = usage.text("serviceTier").or_else(|| usage.text("trafficType"))?.to_ascii_lowercase();
    usage::tier(word.strip_prefix("on_demand_").unwrap_or(&word)).filter(|_| !word.ends_with("unspecified"))
}

/// Reads the parts of an answer, in as many pieces as they come.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Calls are numbered through the whole answer: each may come in a piece of its own.
    next_key: u32,
    /// Thinking is open and has no signature yet.
    is_unsigned: bool,
    text: String,
    partial: Partial,
    searches: Option<u64>,
    /// Told when everything is said: what an answer rests on comes with its last words.
    searched: Option<Searched>,
    pub finished: bool,
}

impl Reader {
    pub fn read<B: Blocks>(
        &mut self,
        answer: Answer<'_>,
        encoder: &mut Encoder<B>,
        counted: &mut Counted,
        context: &Context,
        now: Timestamp,
    ) -> Result<(), Fault> {
        if let Some(error) = answer.error.filter(|error| json::kind(error) != Kind::Null) {
            return Err(fault::classify_error(error, now));
        }
        if let Some(told) = answer.usage_metadata.and_then(self::counted) {
            counted.update(told);
        }
        encoder.native.name(answer.response_id);
        let candidates = answer.candidates.unwrap_or_default();
        if candidates.is_empty()
            && let Some(feedback) = answer.prompt_feedback
            && let Some(fault) = blocked(&feedback)
        {
            return Err(fault);
        }
        for candidate in candidates.into_iter().filter(|candidate| candidate.index.unwrap_or(0.0) == 0.0) {
            self.candidate(candidate, encoder, context)?;
        }
        counted.web_searches = self.searches;
        Ok(())
    }

    fn candidate<B: Blocks>(
        &mut self,
        candidate: Candidate<'_>,
        encoder: &mut Encoder<B>,
        context: &Context,
    ) -> Result<(), Fault> {
        let reason = candidate.finish_reason.as_deref().filter(|reason| !reason.is_empty());
        encoder.native.end(reason);
        // A call beside a reason that says it went wrong is not handed on.
        let stop = reason.map(|reason| stop(reason, candidate.finish_message.as_deref(), encoder)).transpose()?;
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            self.part(part, encoder, context);
        }
        if let Some(grounding) = candidate.grounding_metadata {
            if let Some(count) = grounding.searches() {
                self.searches = Some(count);
            }
            if context.tells_searches {
                self.searched = grounding.searched().or_else(|| self.searched.take());
            }
            for citation in grounding::citations(&grounding, &self.text) {
                encoder.citation(citation);
            }
        }
        if let Some(stop) = stop {
            self.finished = true;
            encoder.stop(stop);
        }
        Ok(())
    }

    fn part<B: Blocks>(&mut self, part: Part<'_>, encoder: &mut Encoder<B>, context: &Context) {
        let signature = part.thought_signature.as_deref().filter(|signature| !signature.is_empty());
        if let Some(call) = part.function_call {
            self.call(call, signature, encoder, context);
        } else if part.thought == Some(true) {
            self.think(part.text.as_deref().unwrap_or_default(), signature, encoder, context);
        } else if let Some(text) = part.text.filter(|text| !text.is_empty()) {
            self.settle(encoder, context);
            self.text.push_str(&text);
            encoder.text(&text);
        } else if part.inline_data.is_some() {
            self.settle(encoder, context);
            encoder.text("[image output omitted]");
            encoder.warn("dropped:image");
        } else {
            let unsaid = [
                ("dropped:executable_code", part.executable_code),
                ("dropped:code_execution_result", part.code_execution_result),
                ("dropped:tool_call", part.tool_call),
                ("dropped:tool_response", part.tool_response),
            ];
            for (warning, _) in unsaid.into_iter().filter(|(_, raw)| raw.is_some()) {
                encoder.warn(warning);
            }
        }
    }

    fn think<B: Blocks>(&mut self, text: &str, signature: Option<&str>, encoder: &mut Encoder<B>, context: &Context) {
        if !text.is_empty() && context.show_thinking {
            encoder.thinking(text);
            self.is_unsigned = true;
        }
        if let Some(signature) = signature {
            encoder.signature(carried(signature, "thought", context));
            // What is signed stays alone.
            encoder.end_block();
            self.is_unsigned = false;
        }
    }

    /// Thinking without a signature of its own is over: its text is all there is.
    fn settle<B: Blocks>(&mut self, encoder: &mut Encoder<B>, context: &Context) {
        if std::mem::take(&mut self.is_unsigned) {
            encoder.signature(Carrier::plain(PROTOCOL, &context.scope, &context.model).to_signature());
        }
    }

    fn call<B: Blocks>(
        &mut self,
        call: Call<'_>,
        signature: Option<&str>,
        encoder: &mut Encoder<B>,
        context: &Context,
    ) {
        let is_going_on = self.partial.is_open();
        if !is_going_on {
            let key = self.next_key;
            self.next_key = self.next_key.saturating_add(1);
            if signature.is_none() {
                self.settle(encoder, context);
            }
            encoder.tool_start(key, call.id.as_deref(), call.name.as_deref().unwrap_or_default());
            // The signature stands before the call, in the thinking that led to it.
            if let (Some(signature), Some(id)) = (signature, encoder.call_id(key).map(ToOwned::to_owned)) {
                let carrier = carried(signature, &id, context);
                encoder.signature(carrier.clone());
                encoder.signed.push((id, carrier));
                self.is_unsigned = false;
            }
        }
        let key = self.next_key.saturating_sub(1);
        let has_pieces = call.partial_args.is_some() || call.will_continue == Some(true) || is_going_on;
        if has_pieces {
            self.partial.open();
            for piece in call.partial_args.iter().flatten() {
                self.partial.apply(piece);
            }
            if call.will_continue == Some(true) {
                return;
            }
            encoder.tool_arguments(key, &self.partial.take());
        } else if let Some(args) = call.args.filter(|args| json::kind(args) == Kind::Object) {
            encoder.tool_arguments(key, args.get());
        }
        encoder.tool_end(key);
    }

    /// Nothing more comes: what was held is written.
    pub fn end<B: Blocks>(
        &mut self,
        encoder: &mut Encoder<B>,
        counted: &Counted,
        context: &Context,
    ) -> Result<(), Fault> {
        if self.partial.is_open() {
            let key = self.next_key.saturating_sub(1);
            encoder.tool_arguments(key, &self.partial.take());
            encoder.tool_end(key);
        }
        self.settle(encoder, context);
        if let Some(searched) = self.searched.take().filter(|_| encoder.has_content()) {
            encoder.searched(searched);
        }
        is_something(encoder, counted)
    }
}

fn carried(signature: &str, place: &str, context: &Context) -> String {
    let data = format!(r#"{{"sig":{},"for":{}}}"#, quoted(signature), quoted(place));
    let carrier = Carrier::new(PROTOCOL, &context.scope, &context.model, "gemini_sig", &data);
    carrier.map(|carrier| carrier.to_signature()).unwrap_or_default()
}

/// The prompt was refused before anything was said.
fn blocked(feedback: &Feedback<'_>) -> Option<Fault> {
    let reason = feedback.block_reason.as_deref().filter(|reason| !reason.is_empty())?;
    let message = match feedback.block_reason_message.as_deref().filter(|words| !words.is_empty()) {
        Some(words) => format!("{reason}: {words}"),
        None => reason.to_owned(),
    };
    let code = Some(reason.to_owned()).filter(|code| fault::is_code(code));
    Some(Fault { message: Some(fault::cleaned(&message)), code, ..Fault::in_answer(Class::ContentFilter) })
}

/// What the upstream's word for the end means.
fn stop<B: Blocks>(reason: &str, words: Option<&str>, encoder: &mut Encoder<B>) -> Result<Stop, Fault> {
    Ok(match reason {
        "STOP" => Stop::Done,
        "OTHER" | "NO_IMAGE" | "IMAGE_OTHER" | "FINISH_REASON_UNSPECIFIED" => Stop::Unexplained,
        "MAX_TOKENS" => Stop::Length,
        "CONTINUATION" => {
            encoder.warn("changed:continuation");
            Stop::Length
        }
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => {
            Stop::Refusal(Some(words.filter(|words| !words.is_empty()).unwrap_or(reason).to_owned()))
        }
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE" => {
            let code = Some(reason.to_owned());
            return Err(Fault { message: words.map(fault::cleaned), code, ..Fault::in_answer(Class::Server) });
        }
        other => Stop::Unknown(other.chars().take(32).collect()),
    })
}

/// One answer, or a list of them: errors come that way, and streams from servers that do not know of events.
pub(super) fn answers(data: &[u8]) -> Result<Vec<Answer<'_>>, Fault> {
    let read = if data.starts_with(b"[") {
        serde_json::from_slice(data)
    } else {
        serde_json::from_slice(data).map(|answer| vec![answer])
    };
    read.map_err(|_| Fault::in_answer(Class::BadResponse))
}

/// The answer in the Messages format.
pub fn message(body: &[u8], context: &Context, now: Timestamp) -> Result<Answered, Fault> {
    let mut whole = Whole::new(context);
    let mut reader = Reader::default();
    for answer in answers(body.trim_ascii())? {
        reader.read(answer, &mut whole.encoder, &mut whole.counted, context, now)?;
    }
    reader.end(&mut whole.encoder, &whole.counted, context)?;
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}
