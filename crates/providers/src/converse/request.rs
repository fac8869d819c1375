//! A request in the Converse protocol: everything but the conversation and the tools.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Number, json};
use tidegate_wire::messages::{OutputFormat, Request, ThinkingConfig, ToolChoice};

use super::PROTOCOL;
use super::blocks::{Messages, system};
use super::tools::{Forbidden, tools};
use crate::Protocol;
use crate::translate::body::Body;
use crate::translate::card::{Cache, Card, Level, Prefill, ReasoningSwitch, Sampling, Structured};
use crate::translate::conversation::{Conversation, Mark};
use crate::translate::functions::Functions;
use crate::translate::intent::{self, Thinking, Wanted};
use crate::translate::tools::Names;
use crate::translate::{Context, Outgoing, Target, Unsupported, beside};
use crate::translate::{marks, schema};

/// The request as the upstream takes it. Model and stream are in its address.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let mut conversation = Conversation::with_documents(request, card.mid_system)?;
    if conversation.is_prefilled() && card.prefill == Prefill::None {
        return Err(Unsupported::whole(intent::NO_PREFILL));
    }
    let max_tokens = intent::limit(request, card, &mut conversation)?;
    let mut thinking = Thinking::of(request, card)?;
    let is_stopped = is_stopped(request, card);
    if is_stopped {
        thinking.wanted = Wanted::Off;
        conversation.warn(intent::NOT_THINKING);
    }
    let mut functions = Functions::of(request, card, &mut conversation)?;
    let tools_marks = functions.list.iter_mut().map(|function| &mut function.mark);
    if marks::bound(&mut tools_marks.chain(conversation.marks()).collect::<Vec<_>>()) {
        conversation.warn("changed:cache_control");
    }
    let (mut sent, guarded) = intent::stops(request, card);
    if card.claude && sent.iter().any(|stop| is_blank(stop)) {
        sent.retain(|stop| !is_blank(stop));
        conversation.warn("dropped:stop_sequences");
    }

    // What the protocol has no member for, but the model behind it has.
    let mut additional = Body::default();
    let mut output = Body::default();
    let tool_config = tools(request, card, &functions, &mut conversation, &mut additional);
    reasoning(request, (thinking, max_tokens), target, &mut conversation, &mut additional, &mut output);
    if card.claude && !target.betas.is_empty() {
        additional.set("anthropic_beta", target.betas);
    }
    structured(&mut output, request, card, &mut conversation, !functions.is_empty());

    let mut inference = Body::default();
    inference.set("maxTokens", max_tokens);
    if !sent.is_empty() {
        inference.set("stopSequences", &sent);
    }
    sampling(&mut inference, &mut additional, (request, is_stopped), card, &mut conversation);
    for (name, value) in intent::unsent(request, card, &mut conversation) {
        if let Ok(value) = serde_json::from_str::<&RawValue>(value) {
            additional.set(name, value);
        }
    }

    // The protocol has no word for any of them.
    let _ = beside::options(request, Protocol::Converse, card, &mut conversation);

    let mut body = Body::default();
    if !conversation.system.is_empty() {
        body.set("system", system(&conversation.system, card));
    }
    let messages = Messages {
        target,
        conversation: &conversation,
        // Without tools in the request, calls of the past can only be told.
        is_told: tool_config.as_ref().is_err_and(|forbidden| *forbidden == Forbidden::Told),
    };
    body.set("messages", messages.list()?);
    body.set_some("toolConfig", tool_config.ok().flatten());
    body.set("inferenceConfig", inference);
    for (name, member) in [("outputConfig", output), ("additionalModelRequestFields", additional)] {
        if !member.is_empty() {
            body.set(name, member);
        }
    }
    if card.claude {
        body.set("additionalModelResponseFieldPaths", ["/stop_sequence"]);
    }
    if let (Some(field), Some(user)) = (&card.user_field, target.user) {
        body.set("requestMetadata", json!({field.as_ref(): user}));
    }
    // The usual one needs no word.
    if let Some(tier) = intent::tier(request, card, target.tier, &mut conversation).filter(|tier| *tier != "auto") {
        body.set("serviceTier", json!({"type": tier}));
    }
    let text = body.to_bytes();
    let context = Context {
        names: Names::new(functions.originals, conversation.ids),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        // What Claude has signed must come back whole, so all of it is shown.
        show_thinking: thinking.show || card.claude,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        guarded,
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
        own_signatures: card.claude,
        protocol: PROTOCOL,
        ..Context::default()
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

/// Claude refuses to think where it must call a tool.
fn is_stopped(request: &Request, card: &Card) -> bool {
    let is_forced = matches!(request.tool_choice, Some(ToolChoice::Any(_) | ToolChoice::Tool(_))) && card.forced_choice;
    card.claude && is_forced && thinks(request) && card.can_stop_thinking()
}

fn thinks(request: &Request) -> bool {
    matches!(request.thinking, Some(ThinkingConfig::Enabled(_) | ThinkingConfig::Adaptive(_)))
}

/// Claude refuses to stop at such a sequence.
fn is_blank(stop: &str) -> bool {
    stop.trim().is_empty()
}

fn sampling(
    inference: &mut Body,
    additional: &mut Body,
    (request, is_stopped): (&Request, bool),
    card: &Card,
    conversation: &mut Conversation,
) {
    let all = card.sampling != Sampling::None;
    // Claude refuses to be sampled otherwise while it thinks.
    let is_free = is_stopped || !(card.claude && thinks(request));
    let all_of =
        |number: &Number, least: f64| all && (is_free || number.as_f64().is_some_and(|number| number >= least));
    match &request.temperature {
        Some(wanted) if all_of(wanted, 1.0) => inference.set("temperature", intent::cooled(wanted, card, conversation)),
        Some(_) => conversation.warn("dropped:temperature"),
        None => {}
    }
    let both = card.sampling == Sampling::OneOf && request.temperature.is_some();
    match &request.top_p {
        Some(top_p) if all_of(top_p, 0.95) && !both => inference.set("topP", top_p),
        Some(_) => conversation.warn("dropped:top_p"),
        None => {}
    }
    match intent::top_k(request) {
        Some(top_k) if all && card.claude && is_free => additional.set("top_k", top_k),
        Some(top_k) if all && card.top_k && is_free => additional.set("inferenceConfig", json!({"topK": top_k})),
        Some(_) => conversation.warn("dropped:top_k"),
        None => {}
    }
}

/// How hard the model is to think; each family has its own word for it.
fn reasoning(
    request: &Request,
    (thinking, max_tokens): (Thinking, u64),
    target: &Target<'_>,
    conversation: &mut Conversation,
    additional: &mut Body,
    output: &mut Body,
) {
    let card = target.card;
    let wanted = thinking.wanted;
    let level = match wanted {
        Wanted::Level(level, _) => Some(card.clamp(level).unwrap_or(level)),
        _ => thinking.level(card),
    };
    let has_levels = matches!(card.reasoning, ReasoningSwitch::Effort | ReasoningSwitch::Object) && !card.claude;
    if has_levels && (thinking.is_off() || !card.efforts.is_empty()) {
        let _ = thinking.effort(card, conversation);
    }
    match card.reasoning {
        _ if card.claude && is_stopped(request, card) => {
            additional.set("thinking", json!({"type": "disabled"}));
            effort(request, card, conversation, output);
        }
        _ if card.claude => {
            additional.set_some("thinking", affordable(request, max_tokens, target.is_capped, conversation));
            effort(request, card, conversation, output);
        }
        ReasoningSwitch::Verbatim => {
            additional.set_some("thinking", request.thinking.as_ref());
            effort(request, card, conversation, output);
        }
        ReasoningSwitch::Nova => match wanted {
            Wanted::Nothing => {}
            Wanted::Off => additional.set("reasoningConfig", json!({"type": "disabled"})),
            Wanted::On | Wanted::Level(..) => {
                let effort = match level {
                    Some(Level::None | Level::Minimal | Level::Low) => "low",
                    Some(Level::Medium) | None => "medium",
                    Some(Level::High | Level::XHigh | Level::Max) => "high",
                };
                additional.set("reasoningConfig", json!({"type": "enabled", "maxReasoningEffort": effort}));
            }
        },
        ReasoningSwitch::Effort => additional.set_some("reasoning_effort", level.map(Level::as_str)),
        ReasoningSwitch::Object => {
            additional.set_some("reasoning", level.map(|level| json!({"effort": level.as_str()})));
        }
        _ => {
            // A budget has no word of its own here.
            if matches!(wanted, Wanted::Level(_, Some(_))) {
                conversation.warn("dropped:effort");
            }
            effort(request, card, conversation, output);
        }
    }
}

/// How Claude is to think, as it was asked; but a limit of output that was set or lowered here may leave no room to
/// answer behind the budget.
fn affordable<'r>(
    request: &'r Request,
    max_tokens: u64,
    is_capped: bool,
    conversation: &mut Conversation,
) -> Option<Cow<'r, ThinkingConfig>> {
    const LEAST: u64 = 1_024;
    let thinking = request.thinking.as_ref()?;
    let ThinkingConfig::Enabled(config) = thinking else { return Some(Cow::Borrowed(thinking)) };
    let room = max_tokens.saturating_sub(intent::ROOM);
    let fits = match request.max_tokens.filter(|_| !is_capped) {
        Some(wanted) => wanted == max_tokens || config.budget_tokens <= room,
        None => config.budget_tokens < max_tokens,
    };
    if fits {
        return Some(Cow::Borrowed(thinking));
    }
    if room < LEAST {
        conversation.warn("dropped:thinking");
        return None;
    }
    conversation.warn("clamped:budget_tokens");
    let mut config = config.clone();
    config.budget_tokens = room;
    Some(Cow::Owned(ThinkingConfig::Enabled(config)))
}

/// The effort in the protocol's own member, where the model takes one.
fn effort(request: &Request, card: &Card, conversation: &mut Conversation, output: &mut Body) {
    let wanted = request.output_config.as_ref().and_then(|config| config.effort.as_ref()).and_then(Level::of_effort);
    let Some(wanted) = wanted else { return };
    match card.clamp(wanted) {
        Some(level) => {
            if level != wanted {
                conversation.warn(intent::CLAMPED_EFFORT);
            }
            output.set("effort", level.as_str());
        }
        None => conversation.warn("dropped:effort"),
    }
}

fn structured(output: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, has_tools: bool) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Structure<'a> {
        json_schema: Named<'a>,
    }
    #[derive(Serialize)]
    struct Named<'a> {
        name: &'static str,
        /// A text, not an object.
        schema: &'a str,
    }
    let Some(OutputFormat::JsonSchema(format)) = request.answer_format() else { return };
    if card.structured == Structured::JsonSchema && (card.json_with_tools || !has_tools) {
        let told = if card.claude { schema::claude(format.schema.get()) } else { None };
        if told.is_some() {
            conversation.warn("changed:output_config.format");
        }
        let mut text = Body::default();
        text.set("type", "json_schema");
        let schema = told.as_deref().unwrap_or_else(|| format.schema.get());
        text.set("structure", Structure { json_schema: Named { name: "response", schema } });
        output.set("textFormat", text);
    } else {
        intent::instruct(request, format.schema.get(), conversation);
    }
}

/// A place up to which the upstream keeps what it has read.
pub(super) fn cache_point(mark: Mark, card: &Card) -> Option<serde_json::Value> {
    if !matches!(card.cache, Cache::Points | Cache::PointsBesideTools) {
        return None;
    }
    match mark {
        Mark::None => None,
        Mark::Long if card.cache_ttl => Some(json!({"cachePoint": {"type": "default", "ttl": "1h"}})),
        Mark::Short | Mark::Long => Some(json!({"cachePoint": {"type": "default"}})),
    }
}
