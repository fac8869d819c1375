//! A request in Cohere's chat protocol.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_wire::messages::{Block, Content, OutputFormat, Request, Source, ToolChoice};

use super::PROTOCOL;
use crate::Protocol;
use crate::translate::body::{Body, compact};
use crate::translate::card::{Card, Prefill, ReasoningSwitch, Replay, Structured};
use crate::translate::conversation::{Conversation, Media, Outcome, Part, Said, Turn};
use crate::translate::functions::{Function, Functions};
use crate::translate::intent::{self, Thinking, Wanted};
use crate::translate::tools::{IdRule, Names, upstream_id, upstream_name};
use crate::translate::{Context, Outgoing, Target, Unsupported, beside, results};

/// The most candidates that the next token is drawn from.
const MOST_K: u64 = 500;

/// The request as the upstream takes it.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let (without, documents) = documents(request);
    let mut conversation = Conversation::of(without.as_ref().unwrap_or(request), card.mid_system)?;
    if conversation.is_prefilled() && card.prefill == Prefill::None {
        return Err(Unsupported::whole(intent::NO_PREFILL));
    }
    let ids = conversation.ids.clone();
    if card.id_rule == IdRule::Counted {
        conversation.number_calls(card.name_rule);
    }
    let mut body = Body::default();
    body.set("model", target.model);
    let max_tokens = intent::limit(request, card, &mut conversation)?;
    body.set("max_tokens", max_tokens);
    let thinking = Thinking::of(request, card)?;
    let sampled = intent::sampling(request, card, thinking, &mut conversation);
    body.set_some("temperature", sampled.temperature);
    if let Some(top_p) = sampled.top_p {
        match top_p.as_f64().filter(|top_p| !(0.01..=0.99).contains(top_p)) {
            Some(beyond) => {
                conversation.warn("clamped:top_p");
                body.set("p", beyond.clamp(0.01, 0.99));
            }
            None => body.set("p", top_p),
        }
    }
    if sampled.top_k.is_some_and(|top_k| top_k > MOST_K) {
        conversation.warn("clamped:top_k");
    }
    body.set_some("k", sampled.top_k.map(|top_k| top_k.min(MOST_K)));
    reasoning(&mut body, (thinking, max_tokens), card, &mut conversation);
    let (stops, guarded) = intent::stops(request, card);
    if !stops.is_empty() {
        body.set("stop_sequences", &stops);
    }
    let functions = Functions::of(request, card, &mut conversation)?;
    let offered = tools(&mut body, request, card, &functions, &mut conversation);
    // A format is refused beside documents, always, and beside tools where the card says so.
    let may_format = documents.is_empty() && (card.json_with_tools || offered.is_empty());
    structured(&mut body, request, card, &mut conversation, may_format);
    if !documents.is_empty() {
        body.set("documents", documents);
        body.set("citation_options", json!({"mode": "accurate"}));
    }
    // There are no tiers here; asking for one is noted.
    let _ = intent::tier(request, &Card { tiers: None, ..Card::default() }, None, &mut conversation);
    if target.stream {
        body.set("stream", true);
    }
    for (name, value) in intent::unsent(request, card, &mut conversation) {
        body.set(name, serde_json::from_str::<&RawValue>(value).expect("it was read as JSON"));
    }
    for (name, value) in beside::options(request, Protocol::Cohere, card, &mut conversation) {
        // Others take penalties from -2 to 2.
        let clamped = value
            .get()
            .parse::<f64>()
            .ok()
            .filter(|number| name.ends_with("_penalty") && !(0.0..=1.0).contains(number));
        match clamped {
            Some(number) => {
                conversation.warn(format!("clamped:{name}"));
                body.set(name, number.clamp(0.0, 1.0));
            }
            None => body.set(name, value),
        }
    }
    body.set("messages", Messages { card, conversation: &conversation }.messages()?);
    let text = body.to_bytes();
    let only_stop = <[String; 1]>::try_from(stops).ok().map(|[stop]| stop);
    let context = Context {
        names: Names::new(functions.originals, ids),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        show_thinking: thinking.show,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        guarded,
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
        only_stop,
        protocol: PROTOCOL,
        offered,
        ..Context::default()
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

/// Texts that are to be cited stand beside the conversation here. The request without them, where there are any.
fn documents(request: &Request) -> (Option<Request>, Vec<Value>) {
    let is_cited = |block: &Block| {
        let Block::Document(document) = block else { return false };
        let citations = document.citations.as_ref().and_then(|citations| citations.as_ref());
        matches!(document.source, Source::Text(_)) && citations.is_some_and(|citations| citations.enabled == Some(true))
    };
    let mut found = Vec::new();
    let mut without = request.clone();
    for message in &mut without.messages {
        let Content::Blocks(blocks) = &mut message.content else { continue };
        for block in blocks.iter().filter(|block| is_cited(block)) {
            let Block::Document(document) = block else { continue };
            let Source::Text(source) = &document.source else { continue };
            let mut data = Body::default();
            data.set_some("title", document.title.as_ref().and_then(Option::as_ref));
            data.set("text", &source.data);
            found.push(json!({"id": found.len().to_string(), "data": data}));
        }
        blocks.retain(|block| !is_cited(block));
    }
    ((!found.is_empty()).then_some(without), found)
}

fn reasoning(body: &mut Body, (thinking, max_tokens): (Thinking, u64), card: &Card, conversation: &mut Conversation) {
    if card.reasoning != ReasoningSwitch::Budget {
        if matches!(thinking.wanted, Wanted::Level(..)) {
            conversation.warn("dropped:effort");
        }
        return;
    }
    let mut object = Body::default();
    match thinking.wanted {
        Wanted::Nothing => return,
        Wanted::Off => object.set("type", "disabled"),
        Wanted::On | Wanted::Level(..) => {
            object.set("type", "enabled");
            object.set_some("token_budget", thinking.budget_within(card, max_tokens));
        }
    }
    body.set("thinking", object);
}

/// A tool as the protocol names it.
#[derive(Serialize)]
struct FunctionTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Described<'a>,
}

#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parameters: Box<RawValue>,
}

impl<'a> FunctionTool<'a> {
    fn of(function: &'a Function<'_>) -> Self {
        let description = function.description.as_deref();
        let function = Described { name: &function.name, description, parameters: function.raw_schema() };
        Self { kind: "function", function }
    }
}

/// The tools and the choice among them. A single one that must be called is the only one that is offered: the protocol
/// has no other word for that. Gives back the names of what is offered.
fn tools(
    body: &mut Body,
    request: &Request,
    card: &Card,
    functions: &Functions<'_>,
    conversation: &mut Conversation,
) -> Vec<String> {
    let mut offered: Vec<&Function<'_>> = functions.list.iter().collect();
    let mut word = None;
    match request.tool_choice.as_ref() {
        Some(ToolChoice::Any(_) | ToolChoice::Tool(_)) if !card.forced_choice => {
            conversation.warn("changed:tool_choice");
        }
        Some(ToolChoice::Any(_)) => word = Some("REQUIRED"),
        Some(ToolChoice::Tool(choice)) => {
            let name = upstream_name(&choice.name, card.name_rule);
            offered.retain(|function| function.name == *name);
            word = Some("REQUIRED");
        }
        Some(ToolChoice::None(_)) => word = Some("NONE"),
        Some(ToolChoice::Auto(_) | ToolChoice::Other(_)) | None => {}
    }
    if offered.is_empty() {
        return Vec::new();
    }
    body.set("tools", offered.iter().map(|function| FunctionTool::of(function)).collect::<Vec<_>>());
    body.set_some("tool_choice", word);
    // Strictness is for all tools or for none.
    if offered.iter().all(|function| function.strict) {
        body.set("strict_tools", true);
    } else if offered.iter().any(|function| function.strict) {
        conversation.warn("dropped:strict");
    }
    offered.into_iter().map(|function| function.name.clone()).collect()
}

fn structured(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, may_format: bool) {
    let Some(OutputFormat::JsonSchema(wanted)) = request.answer_format() else { return };
    let mut format = Body::default();
    format.set("type", "json_object");
    match card.structured {
        Structured::JsonSchema if may_format => {
            format.set("json_schema", wanted.schema.as_raw_value());
        }
        Structured::JsonObject if may_format => {
            intent::instruct(request, wanted.schema.get(), conversation);
        }
        Structured::JsonSchema | Structured::JsonObject | Structured::None => {
            intent::instruct(request, wanted.schema.get(), conversation);
            return;
        }
    }
    body.set("response_format", format);
}

/// The conversation as the list `messages`.
struct Messages<'a> {
    card: &'a Card,
    conversation: &'a Conversation,
}

impl Messages<'_> {
    fn messages(&self) -> Result<Vec<Value>, Unsupported> {
        let mut messages = Vec::with_capacity(self.conversation.turns.len() + 1);
        let system: Vec<&str> = self.conversation.system.iter().map(|text| text.text.as_str()).collect();
        if !system.is_empty() {
            messages.push(json!({"role": "system", "content": system.join("\n\n")}));
        }
        // Images of results wait for the words that follow all results of the turn.
        let mut hoisted: Vec<Part> = Vec::new();
        let last_words = self.conversation.last_words();
        for (place, turn) in self.conversation.turns.iter().enumerate() {
            if !hoisted.is_empty() && !matches!(turn, Turn::User(_) | Turn::Results(_)) {
                messages.push(self.user(&std::mem::take(&mut hoisted))?);
            }
            match turn {
                Turn::System(text) => messages.push(json!({"role": "system", "content": text})),
                Turn::User(parts) => {
                    let parts: Vec<Part> = parts.iter().cloned().chain(hoisted.drain(..)).collect();
                    messages.push(self.user(&parts)?);
                }
                Turn::Assistant(said) => {
                    let replays = match self.card.replay {
                        Replay::Never => false,
                        Replay::ToolLoop => place > last_words,
                        Replay::Always => true,
                    };
                    messages.push(self.assistant(said, replays));
                }
                Turn::Results(outcomes) => {
                    messages.extend(outcomes.iter().map(|outcome| self.result(outcome, &mut hoisted)));
                }
            }
        }
        if !hoisted.is_empty() {
            messages.push(self.user(&hoisted)?);
        }
        Ok(messages)
    }

    fn user(&self, parts: &[Part]) -> Result<Value, Unsupported> {
        let texts: Option<Vec<&str>> = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => Some(text.text.as_str()),
                Part::Image { .. } | Part::Document { .. } => None,
            })
            .collect();
        if let Some(texts) = texts {
            return Ok(json!({"role": "user", "content": texts.join("\n\n")}));
        }
        let parts: Result<Vec<Value>, Unsupported> = parts.iter().map(|part| self.part(part)).collect();
        Ok(json!({"role": "user", "content": parts?}))
    }

    fn part(&self, part: &Part) -> Result<Value, Unsupported> {
        let url = match part {
            Part::Text(text) => return Ok(json!({"type": "text", "text": text.text})),
            Part::Document { path, .. } => {
                return Err(Unsupported::new(path, "documents are not supported by this model"));
            }
            Part::Image { path, .. } if !self.card.images => {
                return Err(Unsupported::new(path, "images are not supported by this model"));
            }
            Part::Image { source: Media::Base64 { media_type, data }, .. } => {
                format!("data:{media_type};base64,{data}")
            }
            Part::Image { source: Media::Url(url), .. } if self.card.image_url => url.clone(),
            Part::Image { path, .. } => {
                return Err(Unsupported::new(path, "images by URL are not supported by this model"));
            }
        };
        Ok(json!({"type": "image_url", "image_url": {"url": url}}))
    }

    /// What is said before calls is the plan for them; without calls it is the content.
    fn assistant(&self, said: &[Said], replays: bool) -> Value {
        let (mut text, mut thought) = (String::new(), String::new());
        let mut calls = Vec::new();
        for said in said {
            match said {
                Said::Text(piece) => text.push_str(&piece.text),
                Said::Thinking { text, .. } if replays => thought.push_str(text),
                Said::Call { id, name, input, .. } => {
                    let id = upstream_id(id, self.card.id_rule);
                    let name = upstream_name(name, self.card.name_rule);
                    let function = json!({"name": name, "arguments": compact(input)});
                    calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Said::Thinking { .. } | Said::Redacted(_) => {}
            }
        }
        let mut message = json!({"role": "assistant"});
        let mut content = Vec::new();
        if !thought.is_empty() {
            content.push(json!({"type": "thinking", "thinking": thought}));
        }
        if calls.is_empty() {
            message["content"] = if content.is_empty() {
                text.into()
            } else {
                if !text.is_empty() {
                    content.push(json!({"type": "text", "text": text}));
                }
                content.into()
            };
            return message;
        }
        if !content.is_empty() {
            message["content"] = content.into();
        }
        if !text.is_empty() {
            message["tool_plan"] = text.into();
        }
        message["tool_calls"] = calls.into();
        message
    }

    fn result(&self, outcome: &Outcome, hoisted: &mut Vec<Part>) -> Value {
        let shown = results::shown(outcome, false, hoisted);
        let id = upstream_id(&outcome.id, self.card.id_rule);
        json!({"role": "tool", "tool_call_id": id, "content": shown.into_text()})
    }
}
