//! A request in Gemini's protocol: everything but the conversation itself.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_wire::messages::{OutputFormat, Request, ToolChoice};

use super::PROTOCOL;
use super::contents::Contents;
use crate::Protocol;
use crate::translate::body::Body;
use crate::translate::card::{Card, Level, Prefill, ReasoningSwitch, Sampling, SchemaProfile, Structured};
use crate::translate::conversation::Conversation;
use crate::translate::functions::{Function, Functions};
use crate::translate::intent::{self, Thinking, Wanted};
use crate::translate::search;
use crate::translate::tools::{Names, upstream_name};
use crate::translate::{Context, Outgoing, Target, Unsupported, beside, schema};

/// The request as the upstream takes it.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let mut conversation = Conversation::of(request, card.mid_system)?;
    conversation.warn_of_documents(|_| false);
    if conversation.is_prefilled() && card.prefill == Prefill::None {
        return Err(Unsupported::whole(intent::NO_PREFILL));
    }
    let max_tokens = intent::limit(request, card, &mut conversation)?;
    let thinking = Thinking::of(request, card)?;
    // Its search has no options, and stands beside no functions.
    let (own, searches) = if target.tells_searches { search::divided(request) } else { (None, Vec::new()) };
    let functions = Functions::of(own.as_ref().unwrap_or(request), card, &mut conversation)?;
    if let (Some(search), false) = (searches.first(), functions.is_empty()) {
        let reason = "the search of this model cannot be used together with other tools";
        return Err(Unsupported::new(format!("tools ({})", search.name), reason));
    }
    // It cannot be made to search, nor kept from it while the tool is there.
    let is_none = matches!(request.tool_choice, Some(ToolChoice::None(_)));
    let searches = !searches.is_empty() && !is_none;
    let (sent, guarded) = intent::stops(request, card);

    let mut generation = Body::default();
    generation.set("maxOutputTokens", max_tokens);
    sampling(&mut generation, request, card, &mut conversation);
    if !sent.is_empty() {
        generation.set("stopSequences", &sent);
    }
    structured(&mut generation, request, card, &mut conversation, !functions.is_empty());
    reasoning(&mut generation, (thinking, max_tokens), card, &mut conversation);

    let mut body = Body::default();
    if !conversation.system.is_empty() {
        let parts: Vec<_> = conversation.system.iter().map(|text| json!({"text": text.text})).collect();
        body.set("systemInstruction", json!({"parts": parts}));
    }
    body.set("contents", Contents { target, conversation: &conversation }.list()?);
    if !functions.is_empty() {
        let declarations: Vec<_> = functions.list.iter().map(|function| declaration(function, card)).collect();
        body.set("tools", [json_object("functionDeclarations", &declarations)]);
    }
    if searches {
        body.set("tools", [json!({"googleSearch": {}})]);
    }
    // Without functions there is nothing to choose from, and the upstream refuses the word.
    let is_free = matches!(request.tool_choice, Some(ToolChoice::Auto(_) | ToolChoice::None(_)));
    if own.is_none() && !(functions.is_empty() && is_free) {
        choice(&mut body, request, card, &mut conversation);
    }
    for (name, value) in beside::options(request, Protocol::Gemini, card, &mut conversation) {
        match name {
            "responseMimeType" => generation.set(name, "application/json"),
            _ => generation.set(name, value),
        }
    }
    body.set("generationConfig", generation);
    // The usual one needs no word.
    if let Some(tier) = intent::tier(request, card, target.tier, &mut conversation).filter(|tier| *tier != "auto") {
        body.set("serviceTier", tier);
    }
    for (name, value) in intent::unsent(request, card, &mut conversation) {
        if let Ok(value) = serde_json::from_str::<&RawValue>(value) {
            body.set(name, value);
        }
    }
    let text = body.to_bytes();
    let context = Context {
        names: Names::new(functions.originals, conversation.ids),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        show_thinking: thinking.show,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        guarded,
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
        protocol: PROTOCOL,
        tells_searches: target.tells_searches && searches,
        ..Context::default()
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

fn json_object(name: &str, value: impl Serialize) -> Body {
    let mut object = Body::default();
    object.set(name, value);
    object
}

fn sampling(generation: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let all = card.sampling != Sampling::None;
    match &request.temperature {
        Some(wanted) if all => generation.set("temperature", intent::cooled(wanted, card, conversation)),
        Some(_) => conversation.warn("dropped:temperature"),
        None => {}
    }
    let both = card.sampling == Sampling::OneOf && request.temperature.is_some();
    match &request.top_p {
        Some(top_p) if all && !both => generation.set("topP", top_p),
        Some(_) => conversation.warn("dropped:top_p"),
        None => {}
    }
    match intent::top_k(request) {
        Some(top_k) if all && card.top_k => generation.set("topK", top_k),
        Some(_) => conversation.warn("dropped:top_k"),
        None => {}
    }
}

/// How hard the model is to think: a number of tokens or a word, never both.
fn reasoning(
    generation: &mut Body,
    (thinking, max_tokens): (Thinking, u64),
    card: &Card,
    conversation: &mut Conversation,
) {
    let mut config = Body::default();
    match (card.reasoning, thinking.wanted) {
        (_, Wanted::Nothing) => return,
        (ReasoningSwitch::Budget, Wanted::Level(..)) => {
            config.set_some("thinkingBudget", thinking.budget_within(card, max_tokens));
        }
        (ReasoningSwitch::Budget, Wanted::On) => config.set("thinkingBudget", -1),
        (ReasoningSwitch::Budget, Wanted::Off) => {
            let least = card.thinking_budget.map_or(0, |(least, _)| least);
            if least == 0 || card.efforts.contains(&Level::None) {
                config.set("thinkingBudget", 0);
            } else {
                conversation.warn("dropped:thinking");
            }
        }
        (ReasoningSwitch::Level, Wanted::Level(level, _)) => {
            let sent =
                if card.efforts.is_empty() { level } else { thinking.effort(card, conversation).unwrap_or(level) };
            config.set("thinkingLevel", level_word(sent));
        }
        (ReasoningSwitch::Level, Wanted::Off) => {
            let level = thinking.effort(card, conversation);
            config.set_some("thinkingLevel", level.map(|_| level_word(Level::Minimal)));
        }
        (ReasoningSwitch::Level, Wanted::On) => {}
        (_, Wanted::Level(..)) => return conversation.warn("dropped:effort"),
        (_, Wanted::On | Wanted::Off) => return,
    }
    if thinking.show || !config.is_empty() {
        config.set("includeThoughts", thinking.show);
    }
    if !config.is_empty() {
        generation.set("thinkingConfig", config);
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::None | Level::Minimal => "MINIMAL",
        Level::Low => "LOW",
        Level::Medium => "MEDIUM",
        Level::High | Level::XHigh | Level::Max => "HIGH",
    }
}

fn structured(generation: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, has_tools: bool) {
    let Some(OutputFormat::JsonSchema(format)) = request.answer_format() else { return };
    let can = card.json_with_tools || !has_tools;
    if can && card.structured != Structured::None {
        generation.set("responseMimeType", "application/json");
    }
    if can && card.structured == Structured::JsonSchema {
        let (name, text) = match card.schema_profile {
            SchemaProfile::GeminiSubset => ("responseSchema", schema::gemini_subset(format.schema.get())),
            SchemaProfile::GeminiJson => ("responseJsonSchema", schema::gemini_json(format.schema.get()).into_owned()),
            SchemaProfile::Full => ("responseJsonSchema", format.schema.get().to_owned()),
        };
        generation.set_some(name, RawValue::from_string(text).ok());
    } else {
        intent::instruct(request, format.schema.get(), conversation);
    }
}

/// A tool. One without arguments has no schema: an object without properties is refused.
fn declaration(function: &Function<'_>, card: &Card) -> Body {
    let mut declaration = Body::default();
    declaration.set("name", &function.name);
    declaration.set_some("description", function.description.as_deref());
    let parsed: serde_json::Value = serde_json::from_str(&function.schema).unwrap_or_default();
    let composed = ["$ref", "allOf", "anyOf", "oneOf"].iter().any(|word| parsed.get(word).is_some());
    let empty =
        parsed.get("properties").and_then(|properties| properties.as_object()).is_some_and(serde_json::Map::is_empty);
    if empty && !composed {
        return declaration;
    }
    let (name, text) = match card.schema_profile {
        SchemaProfile::GeminiSubset => ("parameters", schema::gemini_subset(&function.schema)),
        SchemaProfile::GeminiJson => ("parametersJsonSchema", schema::gemini_json(&function.schema).into_owned()),
        SchemaProfile::Full => ("parametersJsonSchema", function.schema.clone()),
    };
    declaration.set_some(name, RawValue::from_string(text).ok());
    declaration
}

fn choice(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let config = match request.tool_choice.as_ref() {
        None | Some(ToolChoice::Other(_)) => return,
        Some(ToolChoice::Auto(_)) => json!({"mode": "AUTO"}),
        Some(ToolChoice::None(_)) => json!({"mode": "NONE"}),
        Some(ToolChoice::Any(_) | ToolChoice::Tool(_)) if !card.forced_choice => {
            conversation.warn("changed:tool_choice");
            json!({"mode": "AUTO"})
        }
        Some(ToolChoice::Any(_)) => json!({"mode": "ANY"}),
        Some(ToolChoice::Tool(choice)) => {
            json!({"mode": "ANY", "allowedFunctionNames": [upstream_name(&choice.name, card.name_rule)]})
        }
    };
    body.set("toolConfig", json!({"functionCallingConfig": config}));
}
