//! A whole answer in the Chat Completions protocol.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind, quoted};

use super::PROTOCOL;
use crate::fault::{self, Class, Fault};
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::{Context, Counted, Encoder, Stop, Whole};

/// What is read of an answer; of a chunk of a stream as well, where `delta` stands for `message`.
#[derive(Deserialize)]
pub(super) struct Completion<'a> {
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// Groq puts usage and errors of a stream here.
    #[serde(borrow, default)]
    pub x_groq: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub index: Option<u64>,
    #[serde(borrow, default)]
    pub message: Option<Said<'a>>,
    #[serde(borrow, default)]
    pub delta: Option<Said<'a>>,
    #[serde(borrow, default)]
    pub finish_reason: Option<Cow<'a, str>>,
    /// The sequence that was met: vLLM, SGLang.
    #[serde(borrow, default)]
    pub stop_reason: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub matched_stop: Option<&'a RawValue>,
}

impl<'a> Choice<'a> {
    pub fn matched(&self) -> Option<&'a RawValue> {
        self.stop_reason.filter(|raw| json::kind(raw) == Kind::String).or(self.matched_stop)
    }
}

#[derive(Deserialize)]
pub(super) struct Said<'a> {
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub reasoning_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub refusal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default)]
    pub function_call: Option<Function<'a>>,
    #[serde(borrow, default)]
    pub annotations: Option<Vec<Annotation<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(default)]
    pub index: Option<u32>,
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// A text of JSON; some servers send the object itself.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Annotation<'a> {
    #[serde(borrow, default)]
    pub url_citation: Option<UrlCitation<'a>>,
}

#[derive(Deserialize)]
pub(super) struct UrlCitation<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub title: Option<Cow<'a, str>>,
    #[serde(default)]
    pub start_index: Option<usize>,
    #[serde(default)]
    pub end_index: Option<usize>,
}

/// The answer in the Messages format, and what was left out of it.
pub fn message(body: &[u8], context: &Context, now: Timestamp) -> Result<(Bytes, Vec<String>), Fault> {
    let completion: Completion<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    if let Some(error) = completion.error.filter(|error| json::kind(error) != Kind::Null) {
        return Err(fault::classify_error(error, now));
    }
    let choice = completion.choices.into_iter().flatten().next();
    let choice = choice.ok_or_else(|| Fault::in_answer(Class::BadResponse))?;
    let mut whole = Whole::new(context);
    let mut text = String::new();
    let matched = choice.matched();
    if let Some(said) = choice.message {
        think(&said, &mut whole.encoder, context);
        for piece in said.content.into_iter().flat_map(texts) {
            text.push_str(&piece);
            whole.encoder.text(&piece);
        }
        if let Some(refusal) = &said.refusal {
            whole.encoder.refusal(refusal);
        }
        for annotation in said.annotations.into_iter().flatten() {
            if let Some(citation) = annotation.url_citation {
                whole.encoder.citation(cited(&citation, &text));
            }
        }
        for (place, call) in said.tool_calls.into_iter().flatten().enumerate() {
            let key = u32::try_from(place).unwrap_or(u32::MAX);
            if let Some(function) = call.function {
                whole.encoder.tool_start(key, call.id.as_deref(), function.name.as_deref().unwrap_or_default());
                whole.encoder.tool_arguments(key, &arguments(function.arguments));
                whole.encoder.tool_end(key);
            }
        }
        if let Some(function) = said.function_call {
            whole.encoder.tool_start(u32::MAX, None, function.name.as_deref().unwrap_or_default());
            whole.encoder.tool_arguments(u32::MAX, &arguments(function.arguments));
            whole.encoder.tool_end(u32::MAX);
        }
    }
    whole.counted = completion.usage.and_then(counted).unwrap_or_default();
    whole.encoder.stop(stop(choice.finish_reason.as_deref(), matched, &whole.counted, context)?);
    if !whole.encoder.has_content() && choice.finish_reason.is_none() {
        return Err(Fault::in_answer(Class::EmptyCompletion));
    }
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}

/// The model's reasoning, with what carries it to the next turn.
pub(super) fn think<B: Blocks>(said: &Said<'_>, encoder: &mut Encoder<B>, context: &Context) {
    let thought = said.reasoning_content.and_then(json::string).filter(|text| !text.is_empty());
    let thought = thought.or_else(|| said.reasoning.and_then(json::string).filter(|text| !text.is_empty()));
    if let Some(thought) = &thought {
        encoder.thinking(thought);
    }
    if let Some(details) = said.reasoning_details.filter(|details| json::kind(details) == Kind::Array) {
        let carrier = Carrier::new(PROTOCOL, &context.scope, &context.model, "reasoning_details", details.get());
        if let Ok(carrier) = carrier {
            encoder.signature(carrier.to_signature());
        }
    } else if thought.is_some() && context.show_thinking {
        encoder.signature(Carrier::plain(PROTOCOL, &context.scope, &context.model).to_signature());
    }
}

/// The texts of a content: one string, or the text parts of a list (Mistral).
pub(super) fn texts(raw: &RawValue) -> Vec<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, default)]
        text: Option<Cow<'a, str>>,
    }
    match json::kind(raw) {
        Kind::String => json::string(raw).into_iter().collect(),
        Kind::Array => {
            let parts: Vec<Part<'_>> = serde_json::from_str(raw.get()).unwrap_or_default();
            parts.into_iter().filter_map(|part| part.text).collect()
        }
        _ => Vec::new(),
    }
}

/// The JSON text of a call's arguments, whatever form they came in.
pub(super) fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw {
        Some(raw) if json::kind(raw) == Kind::String => json::string(raw).unwrap_or_default(),
        Some(raw) if json::kind(raw) == Kind::Object => Cow::Borrowed(raw.get()),
        _ => Cow::Borrowed(""),
    }
}

/// A place on the web that a passage rests on. Indexes count characters.
pub(super) fn cited(citation: &UrlCitation<'_>, text: &str) -> String {
    const LONGEST: usize = 150;
    let (start, end) = (citation.start_index.unwrap_or(0), citation.end_index.unwrap_or(0));
    let passage: String = text.chars().skip(start).take(end.saturating_sub(start).min(LONGEST)).collect();
    format!(
        r#"{{"type":"web_search_result_location","url":{},"title":{},"cited_text":{},"encrypted_index":"tg1"}}"#,
        quoted(&citation.url),
        citation.title.as_deref().map_or_else(|| "null".to_owned(), quoted),
        quoted(&passage)
    )
}

/// What the upstream's word for the end means.
pub(super) fn stop(
    word: Option<&str>,
    matched: Option<&RawValue>,
    counted: &Counted,
    context: &Context,
) -> Result<Stop, Fault> {
    let matched = matched.and_then(json::string).map(Cow::into_owned);
    Ok(match word {
        Some("length" | "max_tokens" | "model_length") => {
            let input = counted.input.saturating_add(counted.cache_read).saturating_add(counted.cache_write);
            let all = input.saturating_add(counted.output);
            let is_full = counted.is_known() && all >= context.context_length && counted.output < context.max_tokens;
            if is_full { Stop::ContextWindow } else { Stop::Length }
        }
        Some("content_filter" | "refusal" | "guardrail_intervened") => Stop::Refusal(None),
        Some("insufficient_system_resource") => return Err(Fault::in_answer(Class::Overloaded)),
        Some("error") => return Err(Fault::in_answer(Class::Server)),
        Some("stop" | "eos" | "eos_token") | None => match matched {
            Some(sequence) => Stop::Sequence(Some(sequence)),
            None => Stop::Done,
        },
        Some("tool_calls" | "function_call") => Stop::Done,
        Some(other) => Stop::Unknown(other.chars().take(32).collect()),
    })
}

/// Usage in whichever of its spellings.
pub(super) fn counted(raw: &RawValue) -> Option<Counted> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Usage {
        prompt_tokens: Option<f64>,
        completion_tokens: Option<f64>,
        total_tokens: Option<f64>,
        prompt_tokens_details: Option<PromptDetails>,
        completion_tokens_details: Option<CompletionDetails>,
        prompt_cache_hit_tokens: Option<f64>,
        cached_tokens: Option<f64>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct PromptDetails {
        cached_tokens: Option<f64>,
        cache_write_tokens: Option<f64>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct CompletionDetails {
        reasoning_tokens: Option<f64>,
    }
    let usage: Usage = serde_json::from_str(raw.get()).ok()?;
    // Some servers count in floating point; none of them means a fraction or less than nothing.
    let whole = |number: Option<f64>| number.map(|number| number.round().max(0.0) as u64);
    let prompt = whole(usage.prompt_tokens)?;
    let details = usage.prompt_tokens_details.unwrap_or_default();
    let read = whole(details.cached_tokens.or(usage.prompt_cache_hit_tokens).or(usage.cached_tokens)).unwrap_or(0);
    let write = whole(details.cache_write_tokens).unwrap_or(0);
    let output = whole(usage.completion_tokens).unwrap_or(0);
    let thinking = whole(usage.completion_tokens_details.unwrap_or_default().reasoning_tokens);
    Some(Counted::inclusive(prompt, read, write, output, thinking, whole(usage.total_tokens)))
}
