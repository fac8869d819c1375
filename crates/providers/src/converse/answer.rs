//! A whole answer in the Converse protocol.

use std::borrow::Cow;
use std::cell::Cell;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_core::Timestamp;
use tidegate_wire::json::{self, Kind};

use super::PROTOCOL;
use super::citation::{Citation, Passage};
use crate::fault::{Class, Fault};
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::usage::{self, Told};
use crate::translate::{Answered, Context, Counted, Encoder, Stop, Whole, is_something};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer<'a> {
    #[serde(borrow, default)]
    output: Option<Output<'a>>,
    #[serde(borrow, default)]
    stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    service_tier: Option<&'a RawValue>,
    #[serde(borrow, default)]
    additional_model_response_fields: Option<Fields<'a>>,
}

#[derive(Deserialize)]
struct Output<'a> {
    #[serde(borrow, default)]
    message: Option<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<Block<'a>>>,
}

/// What was asked for beside the answer.
#[derive(Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(borrow, default)]
    pub stop_sequence: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Reasoning<'a>>,
    #[serde(borrow, default)]
    tool_use: Option<ToolUse<'a>>,
    #[serde(borrow, default)]
    citations_content: Option<Cited<'a>>,
    #[serde(borrow, default)]
    image: Option<&'a RawValue>,
    #[serde(borrow, default)]
    audio: Option<&'a RawValue>,
    #[serde(borrow, default)]
    video: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reasoning<'a> {
    #[serde(borrow, default)]
    reasoning_text: Option<ReasoningText<'a>>,
    #[serde(borrow, default)]
    redacted_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ReasoningText<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    signature: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse<'a> {
    #[serde(borrow, default)]
    pub tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub input: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    pub kind: Option<Cow<'a, str>>,
}

impl ToolUse<'_> {
    /// Whether the upstream runs it itself.
    pub fn is_servers(&self) -> bool {
        self.kind.as_deref() == Some("server_tool_use")
    }
}

#[derive(Deserialize)]
struct Cited<'a> {
    #[serde(borrow, default)]
    content: Option<Vec<Passage<'a>>>,
    #[serde(borrow, default)]
    citations: Option<Vec<Citation<'a>>>,
}

/// What was used, and how it was served: they stand beside each other.
pub(super) fn counted(usage: Option<&RawValue>, service_tier: Option<&RawValue>) -> Counted {
    let told = service_tier.and_then(json::Members::of);
    let tier = told.and_then(|tier| json::string(tier.get("type")?)).and_then(|word| usage::tier(&word));
    let mut counted = usage.and_then(used).unwrap_or_default();
    counted.tier = tier;
    counted
}

/// Input leaves out what was cached.
fn used(raw: &RawValue) -> Option<Counted> {
    let odd = Cell::new(false);
    let usage = Told::of(raw, &odd)?;
    let (input, output) = (usage.count("inputTokens")?, usage.count("outputTokens")?);
    let read = usage.count("cacheReadInputTokens").unwrap_or(0);
    let details = usage.list("cacheDetails");
    let sum = |wanted: fn(&str) -> bool| {
        let fitting = details.iter().filter(|detail| wanted(&detail.text("ttl").unwrap_or_default()));
        fitting.filter_map(|detail| detail.count("inputTokens")).fold(0, u64::saturating_add)
    };
    let write = usage.count("cacheWriteInputTokens").unwrap_or_else(|| sum(|_| true));
    let long = (!details.is_empty()).then(|| sum(|ttl| ttl == "1h"));
    let mut counted = Counted::exclusive(input, read, write, output).with_long_writes(long);
    counted.is_odd |= odd.get();
    Some(counted)
}

impl Answer<'_> {
    /// Says it all to the encoder, and what was used.
    pub fn read<B: Blocks>(
        self,
        encoder: &mut Encoder<B>,
        counted: &mut Counted,
        context: &Context,
    ) -> Result<(), Fault> {
        counted.update(self::counted(self.usage, self.service_tier));
        let met = self.additional_model_response_fields.and_then(|fields| fields.stop_sequence);
        encoder.native.end(self.stop_reason.as_deref());
        let end = stop(self.stop_reason.as_deref(), met.as_deref())?;
        let content = self.output.and_then(|output| output.message).and_then(|message| message.content);
        let Some(content) = content else { return Err(Fault::in_answer(Class::BadResponse)) };
        for (place, block) in content.into_iter().enumerate() {
            block.read(u32::try_from(place).unwrap_or(u32::MAX), encoder, context);
        }
        encoder.stop(end);
        is_something(encoder, counted)
    }
}

impl Block<'_> {
    fn read<B: Blocks>(self, key: u32, encoder: &mut Encoder<B>, context: &Context) {
        if let Some(text) = &self.text {
            encoder.text(text);
        }
        if let Some(reasoning) = self.reasoning_content {
            if let Some(thought) = reasoning.reasoning_text {
                encoder.thinking(thought.text.as_deref().unwrap_or_default());
                let has_text = thought.text.is_some_and(|text| !text.is_empty());
                sign(has_text, thought.signature.as_deref(), encoder, context);
            }
            if let Some(data) = &reasoning.redacted_content {
                encoder.redacted(data);
            }
        }
        if let Some(call) = self.tool_use {
            if call.is_servers() {
                encoder.warn("dropped:server_tool_use");
            } else {
                encoder.tool_start(key, call.tool_use_id.as_deref(), call.name.as_deref().unwrap_or_default());
                if let Some(input) = call.input.filter(|input| json::kind(input) == Kind::Object) {
                    encoder.tool_arguments(key, input.get());
                }
                encoder.tool_end(key);
            }
        }
        if let Some(cited) = self.citations_content {
            for passage in cited.content.into_iter().flatten() {
                encoder.text(passage.text.as_deref().unwrap_or_default());
            }
            for citation in cited.citations.into_iter().flatten().filter_map(|citation| citation.to_json()) {
                encoder.citation(citation);
            }
        }
        let unsaid = [("dropped:image", self.image), ("dropped:audio", self.audio), ("dropped:video", self.video)];
        for (warning, _) in unsaid.into_iter().filter(|(_, raw)| raw.is_some()) {
            encoder.warn(warning);
        }
        encoder.end_block();
    }
}

/// The signature of thinking: the vendor's own where it is one, or that the text is all there is.
pub(super) fn sign<B: Blocks>(has_text: bool, signature: Option<&str>, encoder: &mut Encoder<B>, context: &Context) {
    if context.own_signatures {
        if let Some(signature) = signature.filter(|signature| !signature.is_empty()) {
            encoder.signature(signature.to_owned());
        }
    } else if has_text && context.show_thinking {
        encoder.signature(Carrier::plain(PROTOCOL, &context.scope, &context.model).to_signature());
    }
}

/// What the upstream's word for the end means.
pub(super) fn stop(reason: Option<&str>, met: Option<&str>) -> Result<Stop, Fault> {
    Ok(match reason {
        Some("end_turn" | "tool_use") | None => Stop::Done,
        Some("max_tokens") => Stop::Length,
        Some("stop_sequence") => Stop::Sequence(met.map(ToOwned::to_owned)),
        Some("model_context_window_exceeded") => Stop::ContextWindow,
        Some("guardrail_intervened" | "content_filtered") => Stop::Refusal(None),
        Some(reason @ ("malformed_model_output" | "malformed_tool_use")) => {
            return Err(Fault { code: Some(reason.to_owned()), ..Fault::in_answer(Class::Server) });
        }
        Some(other) => Stop::Unknown(other.chars().take(32).collect()),
    })
}

/// The answer in the Messages format.
pub fn message(body: &[u8], context: &Context, _now: Timestamp) -> Result<Answered, Fault> {
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    let mut whole = Whole::new(context);
    answer.read(&mut whole.encoder, &mut whole.counted, context)?;
    whole.finish().map_err(|_| Fault::in_answer(Class::BadResponse))
}
