//! A whole answer in the Chat Completions protocol.

use std::borrow::Cow;
use std::cell::Cell;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::reasoning::Voice;
use super::sources::Sources;
use crate::fault::{self, Class, Fault};
use crate::translate::cite::UrlCitation;
use crate::translate::usage::{self, Told};
use crate::translate::{Answered, Context, Counted, Stop, Whole, is_something};

/// What is read of an answer; of a chunk of a stream as well, where `delta` stands for `message`.
#[derive(Deserialize)]
pub(super) struct Completion<'a> {
    #[serde(borrow, default)]
    pub id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub error: Option<&'a RawValue>,
    /// MiniMax puts how it went here.
    #[serde(borrow, default)]
    pub base_resp: Option<&'a RawValue>,
    /// Groq puts usage and errors of a stream here.
    #[serde(borrow, default)]
    pub x_groq: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "text")]
    pub service_tier: Option<Cow<'a, str>>,
    /// What a model that searches by itself has found (Perplexity): addresses, and the same with titles.
    #[serde(borrow, default)]
    pub citations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub search_results: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default, deserialize_with = "number")]
    pub index: Option<f64>,
    #[serde(borrow, default)]
    pub message: Option<Said<'a>>,
    #[serde(borrow, default)]
    pub delta: Option<Said<'a>>,
    #[serde(borrow, default, deserialize_with = "text")]
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
    #[serde(borrow, default, deserialize_with = "text")]
    pub refusal: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub tool_calls: Option<Vec<ToolCall<'a>>>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
}

impl<'a> Said<'a> {
    /// Whether any of the answer is in it: words, a refusal or calls.
    pub fn answers(&self) -> bool {
        let has_calls = self.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
        let refuses = self.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        is_said(self.content) || has_calls || refuses || is_said(self.function_call)
    }

    pub fn thinks(&self) -> bool {
        is_said(self.reasoning_content) || is_said(self.reasoning) || is_said(self.reasoning_details)
    }

    /// The one call of an older form.
    pub fn function_call(&self) -> Option<Function<'a>> {
        serde_json::from_str(self.function_call?.get()).ok()
    }

    /// The places that it names; what is none is not worth an answer.
    pub fn citations(&self) -> impl Iterator<Item = UrlCitation<'a>> {
        let annotations = self.annotations.and_then(json::elements).unwrap_or_default();
        let read = |raw: &'a RawValue| serde_json::from_str::<Annotation<'_>>(raw.get()).ok()?.url_citation;
        annotations.into_iter().filter_map(read)
    }
}

/// Servers send empty members with every piece.
fn is_said(member: Option<&RawValue>) -> bool {
    member.is_some_and(|member| !matches!(member.get(), "null" | "\"\"" | "[]"))
}

#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(default, deserialize_with = "number")]
    pub index: Option<f64>,
    #[serde(borrow, default, deserialize_with = "word")]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub function: Option<Function<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    pub name: Option<Cow<'a, str>>,
    /// A text of JSON; some servers send the object itself.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotation<'a> {
    #[serde(borrow, default)]
    url_citation: Option<UrlCitation<'a>>,
}

/// A text, or nothing: what is something else spoils no answer.
fn text<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    let raw: Option<&'de RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(raw.filter(|raw| json::kind(raw) == Kind::String).and_then(json::string))
}

/// A number, also one in quotes: not every server can tell them apart.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let raw: Option<&RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| raw.get().trim_matches('"').trim().parse().ok()))
}

/// A word, also one that is a number.
fn word<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    let raw: Option<&'de RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| match json::kind(raw) {
        Kind::String => json::string(raw),
        Kind::Number => Some(Cow::Borrowed(raw.get())),
        _ => None,
    }))
}

/// The answer in the Messages format, and what was left out of it.
pub fn message(body: &[u8], context: &Context, now: Timestamp) -> Result<Answered, Fault> {
    let completion: Completion<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    if let Some(error) = completion.error.filter(|error| json::kind(error) != Kind::Null) {
        return Err(fault::classify_error(error, now));
    }
    if let Some(fault) = completion.base_resp.and_then(|base| fault::classify_base(base, now)) {
        return Err(fault);
    }
    let sources = Sources::of(completion.citations, completion.search_results);
    let choice = completion.choices.into_iter().flatten().next();
    let choice = choice.ok_or_else(|| Fault::in_answer(Class::BadResponse))?;
    let mut whole = Whole::new(context);
    whole.encoder.native.name(completion.id);
    whole.encoder.native.end(choice.finish_reason.as_deref());
    let mut voice = Voice::new(context);
    let matched = choice.matched();
    if let Some(said) = choice.message {
        voice.say(&said, &mut whole.encoder, context);
        voice.pause(&mut whole.encoder, context);
        if let Some(refusal) = &said.refusal {
            whole.encoder.refusal(refusal);
        }
        for citation in said.citations() {
            whole.encoder.citation(citation.to_json(&voice.text));
        }
        sources.cite(&voice.text, &mut whole.encoder);
        let single = said.function_call();
        for (place, call) in said.tool_calls.into_iter().flatten().enumerate() {
            let key = u32::try_from(place).unwrap_or(u32::MAX);
            if let Some(function) = call.function {
                whole.encoder.tool_start(
                    key,
                    identity(call.id.as_deref()),
                    function.name.as_deref().unwrap_or_default(),
                );
                voice.called(key, &mut whole.encoder);
                whole.encoder.tool_arguments(key, &arguments(function.arguments));
                whole.encoder.tool_end(key);
            }
        }
        if let Some(function) = single {
            whole.encoder.tool_start(u32::MAX, None, function.name.as_deref().unwrap_or_default());
            whole.encoder.tool_arguments(u32::MAX, &arguments(function.arguments));
            whole.encoder.tool_end(u32::MAX);
        }
    }
    whole.counted = completion.usage.and_then(counted).unwrap_or_default();
    whole.counted.tier = completion.service_tier.as_deref().and_then(usage::tier).or(whole.counted.tier);
    whole.encoder.stop(stop(choice.finish_reason.as_deref(), matched, &whole.counted, context)?);
    is_something(&whole.encoder, &whole.counted)?;
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}

/// The id of a call, where it is one: Mistral writes the word for none.
pub(super) fn identity(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.is_empty() && *id != "null")
}

/// The JSON text of a call's arguments, whatever form they came in.
pub(super) fn arguments(raw: Option<&RawValue>) -> Cow<'_, str> {
    match raw {
        Some(raw) if json::kind(raw) == Kind::String => json::string(raw).unwrap_or_default(),
        Some(raw) if json::kind(raw) == Kind::Object => Cow::Borrowed(raw.get()),
        _ => Cow::Borrowed(""),
    }
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
        Some("length" | "max_tokens" | "model_length") => context.length(counted),
        // The last one is Z.ai's.
        Some("content_filter" | "refusal" | "guardrail_intervened" | "sensitive") => Stop::Refusal(None),
        Some("insufficient_system_resource") => return Err(Fault::in_answer(Class::Overloaded)),
        // Also at Z.ai, vLLM and SGLang the server has given up.
        Some("error" | "network_error" | "abort") => return Err(Fault::in_answer(Class::Server)),
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
    let odd = Cell::new(false);
    let usage = Told::of(raw, &odd)?;
    let (prompt_details, output_details) =
        (usage.within("prompt_tokens_details"), usage.within("completion_tokens_details"));
    let (prompt, total) = (usage.count("prompt_tokens")?, usage.count("total_tokens"));
    // What Perplexity's research has read is input, and counted beside the prompt.
    let cited = usage.count("citation_tokens").unwrap_or(0);
    let output = usage.count("completion_tokens").or_else(|| total?.checked_sub(prompt))?;
    // DeepSeek, Moonshot and Mistral have names of their own.
    let read = prompt_details.count("cached_tokens");
    let read = read.or_else(|| usage.first(&["prompt_cache_hit_tokens", "cached_tokens", "num_cached_tokens"]));
    // The second name is Alibaba's.
    let write = prompt_details.first(&["cache_write_tokens", "cache_creation_input_tokens"]).unwrap_or(0);
    let (within, beside) = (output_details.count("reasoning_tokens"), usage.count("reasoning_tokens"));
    let thinking = within.or(beside);
    // So is its reasoning beside the output: more of it than there is output cannot be a part of it.
    let is_beside = within.is_none() && thinking.is_some_and(|thinking| cited > 0 || thinking > output);
    let (prompt, output, total) = match thinking.filter(|_| is_beside) {
        Some(thinking) => (prompt.saturating_add(cited), output.saturating_add(thinking), None),
        None => (prompt.saturating_add(cited), output, total),
    };
    let searches = usage.within("server_tool_use").count("web_search_requests");
    let mut counted = Counted::inclusive(prompt, read.unwrap_or(0), write, output, thinking, total)
        .with_media(prompt_details.media(), output_details.media())
        .with_long_writes(prompt_details.within("cache_creation").count("ephemeral_1h_input_tokens"));
    // Perplexity's name.
    counted.web_searches = searches.or_else(|| usage.count("num_search_queries")).filter(|count| *count > 0);
    counted.tier = usage.text("service_tier").as_deref().and_then(usage::tier);
    counted.cost = usage.cost();
    counted.is_odd |= odd.get();
    Some(counted)
}
