//! A request in the Responses protocol.

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_wire::messages::{OutputFormat, Request, ToolChoice, WebSearchTool};

use super::PROTOCOL;
use super::input::Input;
use crate::Protocol;
use crate::translate::body::Body;
use crate::translate::card::{Cache, Card, Level, ReasoningSwitch, Structured};
use crate::translate::conversation::{Conversation, Media};
use crate::translate::functions::{Function, Functions};
use crate::translate::intent::{self, Thinking, Wanted};
use crate::translate::search;
use crate::translate::tools::{IdRule, Names, upstream_name};
use crate::translate::{Context, Outgoing, Target, Unsupported, beside};

/// The request as the upstream takes it.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let mut conversation = Conversation::of(request, card.mid_system)?;
    conversation.warn_of_documents(|source| matches!(source, Media::Base64 { .. }));
    // A last item of the assistant's makes this API answer with nothing at all.
    if conversation.is_prefilled() {
        return Err(Unsupported::whole(intent::NO_PREFILL));
    }
    let ids = conversation.ids.clone();
    if card.id_rule == IdRule::Counted {
        conversation.number_calls(card.name_rule);
    }
    let mut body = Body::default();
    body.set("model", target.model);
    let max_tokens = intent::limit(request, card, &mut conversation)?;
    body.set("max_output_tokens", max_tokens);
    let thinking = Thinking::of(request, card)?;
    let mut sampled = intent::sampling(request, card, thinking, &mut conversation);
    body.set_some("temperature", sampled.temperature);
    body.set_some("top_p", sampled.top_p);
    if sampled.top_k.take().is_some() {
        conversation.warn("dropped:top_k");
    }
    let (own, searches) = search::divided(request);
    let tells_searches = target.tells_searches && !searches.is_empty();
    reasoning(&mut body, thinking, card, &mut conversation, tells_searches);
    let functions = Functions::of(own.as_ref().unwrap_or(request), card, &mut conversation)?;
    let mut tools: Vec<Box<RawValue>> =
        functions.list.iter().map(|function| raw(&FunctionTool::of(function))).collect();
    let searches_itself = !searches.is_empty();
    tools.extend(searches.into_iter().map(|tool| raw(&web_search(tool, card, &mut conversation))));
    if !tools.is_empty() {
        body.set("tools", tools);
        choice(&mut body, request, card, &mut conversation, searches_itself);
    }
    let format = structured(request, card, &mut conversation, !functions.is_empty());
    let is_json = told(&mut body, format, request, card, &mut conversation);
    if let (Some(field), Some(user)) = (&card.user_field, target.user) {
        body.set(field, user);
    }
    if let Some(key) = target.cache_key.filter(|_| card.cache_key) {
        body.set("prompt_cache_key", key);
    }
    body.set_some("service_tier", intent::tier(request, card, target.tier, &mut conversation));
    body.set("store", false);
    if target.stream {
        body.set("stream", true);
        if card.stream_options {
            body.set("stream_options", json!({"include_obfuscation": false}));
        }
    }
    for (name, value) in intent::unsent(request, card, &mut conversation) {
        body.set(name, serde_json::from_str::<&RawValue>(value).expect("it was read as JSON"));
    }
    let is_marked = functions.list.iter().any(|function| function.mark.is_set());
    let mut input = Input::new(target, is_marked);
    body.set_some("instructions", input.system(&conversation, is_json));
    input.turns(&conversation)?;
    if card.cache == Cache::Breakpoints {
        if input.limit_markers() > 0 {
            body.set("prompt_cache_options", json!({"mode": "explicit", "ttl": "30m"}));
        }
        // Nothing followed that could carry it.
        if input.waiting {
            conversation.warn("dropped:cache_control");
        }
    }
    body.set("input", input.items);
    let text = body.to_bytes();
    let offered = functions.list.into_iter().map(|function| function.name).collect();
    let context = Context {
        names: Names::new(functions.originals, ids),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        show_thinking: thinking.show,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        // The API knows no stop sequences.
        guarded: request.stop_sequences.clone().unwrap_or_default(),
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
        protocol: PROTOCOL,
        tells_searches,
        offered,
        ..Context::default()
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("texts, numbers and JSON are always JSON")
}

/// `tells_searches`: what the vendor searches is asked for, too.
fn reasoning(body: &mut Body, thinking: Thinking, card: &Card, conversation: &mut Conversation, tells_searches: bool) {
    if card.reasoning == ReasoningSwitch::Effort {
        let mut object = Body::default();
        if thinking.wanted != Wanted::Nothing {
            object.set_some("effort", thinking.effort(card, conversation).map(Level::as_str));
        }
        if thinking.show {
            object.set("summary", "auto");
        }
        if !object.is_empty() {
            body.set("reasoning", object);
        }
    } else if matches!(thinking.wanted, Wanted::Level(..)) {
        conversation.warn("dropped:effort");
    }
    // Without it nothing of the reasoning could come back in the next turn: we let nothing be stored.
    let wanted = [
        ("reasoning.encrypted_content", card.signed_reasoning),
        // A search is told without what it found unless that is asked for.
        ("web_search_call.action.sources", tells_searches),
    ];
    let include: Vec<&str> = wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name).collect();
    if !include.is_empty() {
        body.set("include", include);
    }
}

/// The vendor's own search, which has fewer options than the client's.
fn web_search(tool: &WebSearchTool, card: &Card, conversation: &mut Conversation) -> Body {
    let mut body = Body::default();
    body.set("type", "web_search");
    let some = |domains: &'_ Option<Vec<String>>| domains.clone().filter(|domains| !domains.is_empty());
    let blocked = some(&tool.blocked_domains);
    if let Some(domains) = some(&tool.allowed_domains) {
        body.set("filters", json!({"allowed_domains": domains}));
    } else if let Some(domains) = blocked.as_ref().filter(|_| card.excluded_domains) {
        body.set("filters", json!({"excluded_domains": domains}));
    }
    if let Some(place) = &tool.user_location {
        let mut location = Body::default();
        location.set("type", place.kind.as_deref().unwrap_or("approximate"));
        location.set_some("city", place.city.as_ref());
        location.set_some("region", place.region.as_ref());
        location.set_some("country", place.country.as_ref());
        location.set_some("timezone", place.timezone.as_ref());
        body.set("user_location", location);
    }
    let unsaid = blocked.is_some() && (!card.excluded_domains || tool.allowed_domains.is_some());
    for (name, _) in [("blocked_domains", unsaid), ("max_uses", tool.max_uses.is_some())].iter().filter(|has| has.1) {
        conversation.warn(format!("dropped:{name}"));
    }
    body
}

/// A tool as the protocol names it. `strict` is always said: this API takes silence for yes.
#[derive(Serialize)]
struct FunctionTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    strict: bool,
    parameters: Box<RawValue>,
}

impl<'a> FunctionTool<'a> {
    fn of(function: &'a Function<'_>) -> Self {
        Self {
            kind: "function",
            name: &function.name,
            description: function.description.as_deref(),
            strict: function.strict,
            parameters: function.raw_schema(),
        }
    }
}

fn choice(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, searches: bool) {
    let Some(choice) = request.tool_choice.as_ref() else { return };
    match choice {
        ToolChoice::Auto(_) | ToolChoice::Other(_) => {}
        ToolChoice::None(_) => body.set("tool_choice", "none"),
        ToolChoice::Any(_) | ToolChoice::Tool(_) if !card.forced_choice => conversation.warn("changed:tool_choice"),
        ToolChoice::Any(_) => body.set("tool_choice", "required"),
        ToolChoice::Tool(choice) if searches && choice.name == search::NAME => {
            // It has no name to be chosen by.
            let search = json!([{"type": "web_search"}]);
            body.set("tool_choice", json!({"type": "allowed_tools", "mode": "required", "tools": search}));
        }
        ToolChoice::Tool(choice) => {
            let name = upstream_name(&choice.name, card.name_rule);
            body.set("tool_choice", json!({"type": "function", "name": name}));
        }
    }
    if choice.is_serial() && card.parallel_flag {
        body.set("parallel_tool_calls", false);
    }
}

/// How the answer is to be told: in which form, and at what length.
/// Says whether the answer is to be some JSON object.
fn told(
    body: &mut Body,
    format: Option<Body>,
    request: &Request,
    card: &Card,
    conversation: &mut Conversation,
) -> bool {
    let mut is_json = format.is_some() && card.structured == Structured::JsonObject;
    let mut text = Body::default();
    text.set_some("format", format);
    for (name, value) in beside::options(request, Protocol::Responses, card, conversation) {
        is_json |= name == "format";
        text.set(name, value);
    }
    if !text.is_empty() {
        body.set("text", text);
    }
    is_json
}

fn structured(request: &Request, card: &Card, conversation: &mut Conversation, has_tools: bool) -> Option<Body> {
    let OutputFormat::JsonSchema(wanted) = request.answer_format()? else { return None };
    let mut format = Body::default();
    match card.structured {
        Structured::JsonSchema if card.json_with_tools || !has_tools => {
            format.set("type", "json_schema");
            format.set("name", "response");
            format.set("strict", intent::strictness(request, wanted.schema.get(), conversation));
            format.set("schema", wanted.schema.as_raw_value());
        }
        Structured::JsonObject => {
            format.set("type", "json_object");
            intent::instruct(request, wanted.schema.get(), conversation);
        }
        Structured::JsonSchema | Structured::None => {
            intent::instruct(request, wanted.schema.get(), conversation);
            return None;
        }
    }
    Some(format)
}
