//! A request in the Chat Completions protocol.

use std::cell::Cell;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_wire::json;
use tidegate_wire::messages::{OutputFormat, Request, ToolChoice};

use super::{PROTOCOL, reasoning as thoughts};
use crate::Protocol;
use crate::translate::body::{Body, compact};
use crate::translate::card::{
    Cache, Card, Level, LimitField, PdfPart, Prefill, ReasoningField, ReasoningSwitch, Replay, Structured, SystemRole,
};
use crate::translate::carrier::Carrier;
use crate::translate::conversation::{
    BEGINNING, Conversation, Mark, Media, Outcome, Part, Said, Text, Turn, image_type,
};
use crate::translate::functions::Functions;
use crate::translate::intent::{self, Thinking, Wanted};
use crate::translate::marks::MOST_MARKS;
use crate::translate::results::{self, Shown};
use crate::translate::search;
use crate::translate::tools::{IdRule, Names, upstream_id, upstream_name};
use crate::translate::{Context, Outgoing, Target, Unsupported, beside};

const BREAKPOINT: &str = "prompt_cache_breakpoint";
const MARKER: &str = "cache_control";

/// The request as the upstream takes it.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let mut conversation = Conversation::of(request, card.mid_system)?;
    conversation.warn_of_documents(|_| true);
    if conversation.is_prefilled() && card.prefill == Prefill::None {
        return Err(Unsupported::whole(intent::NO_PREFILL));
    }
    let ids = conversation.ids.clone();
    // By the client's ids, before they are others.
    thoughts::recall(&mut conversation, target);
    if card.id_rule == IdRule::Counted {
        conversation.number_calls(card.name_rule);
    }
    let mut body = Body::default();
    body.set("model", target.model);
    let max_tokens = intent::limit(request, card, &mut conversation)?;
    match card.max_tokens_field {
        LimitField::MaxTokens => body.set("max_tokens", max_tokens),
        LimitField::MaxCompletionTokens => body.set("max_completion_tokens", max_tokens),
    }
    let thinking = Thinking::of(request, card)?.unless_lost(card, &mut conversation);
    let sampled = intent::sampling(request, card, thinking, &mut conversation);
    body.set_some("temperature", sampled.temperature);
    body.set_some("top_p", sampled.top_p);
    body.set_some("top_k", sampled.top_k);
    // Models that search in this protocol do so by themselves; the tool would only be refused.
    let own = target.tells_searches.then(|| search::divided(request).0).flatten();
    let request = own.as_ref().unwrap_or(request);
    let functions = Functions::of(request, card, &mut conversation)?;
    reasoning(&mut body, (thinking, max_tokens), card, &mut conversation, !functions.is_empty());
    let (sent, guarded) = intent::stops(request, card);
    if !sent.is_empty() {
        body.set("stop", &sent);
    }
    if !functions.is_empty() {
        body.set("tools", functions.list.iter().map(FunctionTool::of).collect::<Vec<_>>());
    }
    let is_search = |choice: &ToolChoice| matches!(choice, ToolChoice::Tool(choice) if choice.name == search::NAME);
    let is_searched = own.is_some() && request.tool_choice.as_ref().is_some_and(is_search);
    if !functions.is_empty() && !is_searched {
        choice(&mut body, request, card, &mut conversation);
    }
    structured(&mut body, request, card, &mut conversation, !functions.is_empty());
    if let (Some(field), Some(user)) = (&card.user_field, target.user) {
        body.set(field, user);
    }
    if let Some(key) = target.cache_key.filter(|_| card.cache_key) {
        body.set("prompt_cache_key", key);
    }
    body.set_some("service_tier", intent::tier(request, card, target.tier, &mut conversation));
    if card.store_flag {
        body.set("store", false);
    }
    if target.stream {
        body.set("stream", true);
        if card.stream_options {
            let mut options = json!({"include_usage": true});
            if card.continuous_usage {
                options["continuous_usage_stats"] = true.into();
            }
            body.set("stream_options", options);
        }
    }
    for (name, value) in intent::unsent(request, card, &mut conversation) {
        body.set(name, serde_json::from_str::<&RawValue>(value).expect("it was read as JSON"));
    }
    for (name, value) in beside::options(request, Protocol::Chat, card, &mut conversation) {
        body.set(name, value);
    }
    if conversation.is_prefilled() && card.prefill == Prefill::ContinueFinal {
        body.set("add_generation_prompt", false);
        body.set("continue_final_message", true);
    }
    let prefix = conversation.prefill().filter(|_| card.prefill == Prefill::PrefixFlag);
    let is_marked = functions.list.iter().any(|function| function.mark.is_set());
    let writer = Messages { target, conversation: &conversation, waiting: Cell::new(is_marked) };
    let (messages, marks) = writer.messages()?;
    // Nothing followed that could carry it.
    let lost_marker = writer.waits();
    if marks && card.cache == Cache::Breakpoints {
        body.set("prompt_cache_options", json!({"mode": "explicit", "ttl": "30m"}));
    }
    body.set("messages", messages);
    if lost_marker {
        conversation.warn("dropped:cache_control");
    }
    let text = body.to_bytes();
    let has_tools = !functions.is_empty();
    let offered = functions.list.into_iter().map(|function| function.name).collect();
    let keeps_thinking = card.needs_thinking_back && has_tools && !thinking.is_off();
    let context = Context {
        names: Names::new(functions.originals, ids),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        show_thinking: thinking.show,
        keeps_thinking,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        guarded,
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
        think_tags: card.think_tags,
        prefix,
        protocol: PROTOCOL,
        offered,
        ..Context::default()
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

/// How hard the model is to think.
fn reasoning(
    body: &mut Body,
    (thinking, max_tokens): (Thinking, u64),
    card: &Card,
    conversation: &mut Conversation,
    has_tools: bool,
) {
    let Thinking { wanted, show } = thinking;
    let (level, is_on) = (thinking.level(card), !thinking.is_off());
    if has_tools && card.tools_without_reasoning {
        body.set("reasoning_effort", Level::None.as_str());
        if !matches!(wanted, Wanted::Nothing | Wanted::Off) {
            conversation.warn("changed:effort");
        }
        return;
    }
    match card.reasoning {
        ReasoningSwitch::None
        | ReasoningSwitch::Budget
        | ReasoningSwitch::Level
        | ReasoningSwitch::Verbatim
        | ReasoningSwitch::Nova => {
            if matches!(wanted, Wanted::Level(..)) {
                conversation.warn("dropped:effort");
            }
        }
        _ if matches!(wanted, Wanted::Nothing) => {}
        ReasoningSwitch::Effort => {
            body.set_some("reasoning_effort", thinking.effort(card, conversation).map(Level::as_str));
        }
        ReasoningSwitch::Parsed => {
            body.set_some("reasoning_effort", thinking.effort(card, conversation).map(Level::as_str));
            body.set("reasoning_format", "parsed");
        }
        ReasoningSwitch::Thinking => {
            body.set("thinking", json!({"type": if is_on { "enabled" } else { "disabled" }}));
            let level = if is_on { thinking.effort(card, conversation) } else { None };
            body.set_some("reasoning_effort", level.map(Level::as_str));
        }
        ReasoningSwitch::EnableThinking => {
            body.set("enable_thinking", is_on);
            body.set_some("thinking_budget", thinking.share(max_tokens));
        }
        // Some models behind these servers, such as gpt-oss, have efforts, too.
        ReasoningSwitch::Template => {
            body.set("chat_template_kwargs", json!({"enable_thinking": is_on}));
            let level = if is_on { thinking.effort(card, conversation) } else { None };
            body.set_some("reasoning_effort", level.map(Level::as_str));
        }
        ReasoningSwitch::Object => {
            let mut object = match wanted {
                Wanted::Off => json!({"enabled": false}),
                Wanted::Level(_, Some(_)) => json!({"max_tokens": thinking.budget_within(card, max_tokens)}),
                Wanted::Level(level, None) => json!({"effort": level.as_str()}),
                Wanted::On | Wanted::Nothing => json!({"enabled": true}),
            };
            if is_on && !show {
                object["exclude"] = true.into();
            }
            body.set("reasoning", object);
        }
        // Newer models take an effort; older ones only know whether.
        ReasoningSwitch::PromptMode => match level {
            Some(level) => body.set("reasoning_effort", level.as_str()),
            None if is_on && card.efforts.is_empty() => body.set("prompt_mode", "reasoning"),
            None => {
                let _ = thinking.effort(card, conversation);
            }
        },
    }
}

/// A tool as the protocol names it.
#[derive(Serialize)]
struct FunctionTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    parameters: Box<RawValue>,
}

impl<'a> FunctionTool<'a> {
    fn of(function: &'a crate::translate::functions::Function<'_>) -> Self {
        let function = Function {
            name: &function.name,
            description: function.description.as_deref(),
            strict: function.strict.then_some(true),
            parameters: function.raw_schema(),
        };
        Self { kind: "function", function }
    }
}

fn choice(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let Some(choice) = request.tool_choice.as_ref() else { return };
    match choice {
        ToolChoice::Auto(_) | ToolChoice::Other(_) => {}
        ToolChoice::None(_) => body.set("tool_choice", "none"),
        ToolChoice::Any(_) | ToolChoice::Tool(_) if !card.forced_choice => conversation.warn("changed:tool_choice"),
        ToolChoice::Any(_) => body.set("tool_choice", if card.choice_any { "any" } else { "required" }),
        ToolChoice::Tool(choice) => {
            let name = upstream_name(&choice.name, card.name_rule);
            body.set("tool_choice", json!({"type": "function", "function": {"name": name}}));
        }
    }
    if choice.is_serial() && card.parallel_flag {
        body.set("parallel_tool_calls", false);
    }
}

fn structured(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, has_tools: bool) {
    let Some(OutputFormat::JsonSchema(format)) = request.answer_format() else { return };
    match card.structured {
        Structured::JsonSchema if card.json_with_tools || !has_tools => {
            #[derive(Serialize)]
            struct Format<'a> {
                #[serde(rename = "type")]
                kind: &'static str,
                json_schema: Named<'a>,
            }
            #[derive(Serialize)]
            struct Named<'a> {
                name: &'static str,
                strict: bool,
                schema: &'a RawValue,
            }
            let strict = intent::strictness(request, format.schema.get(), conversation);
            let json_schema = Named { name: "response", strict, schema: format.schema.as_raw_value() };
            body.set("response_format", Format { kind: "json_schema", json_schema });
        }
        Structured::JsonObject => {
            body.set("response_format", json!({"type": "json_object"}));
            intent::instruct(request, format.schema.get(), conversation);
        }
        Structured::JsonSchema | Structured::None => {
            intent::instruct(request, format.schema.get(), conversation);
        }
    }
}

/// The conversation as the list `messages`.
struct Messages<'a> {
    target: &'a Target<'a>,
    conversation: &'a Conversation,
    /// A cache breakpoint stood on something that cannot carry one; the next part that can gets it.
    waiting: Cell<bool>,
}

/// One message; members that are `None` are not written.
#[derive(Default, Serialize)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<bool>,
}

/// Takes away all markers but the last few, and says how many are left.
fn limit_markers(messages: &mut [Message<'_>]) -> usize {
    let contents = messages.iter_mut().filter_map(|message| match &mut message.content {
        Some(Content::Parts(parts)) => Some(parts),
        _ => None,
    });
    let mut marked: Vec<&mut Value> = contents.flatten().filter(|part| is_marked(part)).collect();
    let excess = marked.len().saturating_sub(MOST_MARKS);
    for part in marked.iter_mut().take(excess) {
        if let Some(members) = part.as_object_mut() {
            members.retain(|name, _| name != BREAKPOINT && name != MARKER);
        }
    }
    marked.len() - excess
}

fn is_marked(part: &Value) -> bool {
    part.get(BREAKPOINT).or_else(|| part.get(MARKER)).is_some()
}

/// The content of a message.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Null,
    Text(String),
    Borrowed(&'a str),
    Parts(Vec<Value>),
}

impl Messages<'_> {
    /// The messages, and whether any of them carries a cache marker.
    fn messages(&self) -> Result<(Vec<Message<'_>>, bool), Unsupported> {
        let card = self.target.card;
        let mut messages = Vec::with_capacity(self.conversation.turns.len() + 1);
        if let Some(system) = self.system() {
            messages.push(system);
        }
        if card.user_first && matches!(self.conversation.turns.first(), Some(Turn::Assistant(_))) {
            messages.push(text_message("user", BEGINNING));
        }
        // Images of results wait for the words that follow all results of the turn.
        let mut hoisted: Vec<Part> = Vec::new();
        let last_words = self.conversation.last_words();
        for (place, turn) in self.conversation.turns.iter().enumerate() {
            if !hoisted.is_empty() && !matches!(turn, Turn::User(_) | Turn::Results(_)) {
                messages.push(self.user(&std::mem::take(&mut hoisted))?);
            }
            match turn {
                Turn::System(text) => messages.push(text_message(system_role(card), text)),
                Turn::User(parts) if hoisted.is_empty() => messages.push(self.user(parts)?),
                Turn::User(parts) => {
                    let parts: Vec<Part> = parts.iter().cloned().chain(hoisted.drain(..)).collect();
                    messages.push(self.user(&parts)?);
                }
                Turn::Assistant(said) => {
                    let replays = match card.replay {
                        Replay::Never => false,
                        Replay::ToolLoop => place > last_words || self.conversation.is_in_loop(place),
                        Replay::Always => true,
                    };
                    messages.push(self.assistant(said, replays));
                }
                Turn::Results(outcomes) => self.results(outcomes, &mut messages, &mut hoisted)?,
            }
        }
        if !hoisted.is_empty() {
            messages.push(self.user(&hoisted)?);
        }
        if self.conversation.is_prefilled()
            && card.prefill == Prefill::PrefixFlag
            && let Some(last) = messages.last_mut()
        {
            last.prefix = Some(true);
        }
        let marks = limit_markers(&mut messages) > 0;
        Ok((messages, marks))
    }

    fn system(&self) -> Option<Message<'_>> {
        let texts: Vec<&str> = self.conversation.system.iter().map(|text| text.text.as_str()).collect();
        if texts.is_empty() {
            return None;
        }
        let card = self.target.card;
        let has_marks = self.conversation.system.iter().any(|text| text.mark.is_set()) || self.waits();
        if has_marks && matches!(card.cache, Cache::Breakpoints | Cache::Markers) {
            let parts = self.conversation.system.iter().map(|text| self.text_part(text)).collect();
            return Some(Message {
                role: system_role(card),
                content: Some(Content::Parts(parts)),
                ..Message::default()
            });
        }
        Some(text_message_owned(system_role(card), texts.join("\n\n")))
    }

    fn text_part(&self, text: &Text) -> Value {
        self.marked(json!({"type": "text", "text": text.text}), text.mark)
    }

    fn marked(&self, mut part: Value, mark: Mark) -> Value {
        if mark.is_set() || self.waits() {
            self.waiting.set(false);
            match self.target.card.cache {
                Cache::Breakpoints => part[BREAKPOINT] = json!({"mode": "explicit"}),
                Cache::Markers => part[MARKER] = json!({"type": "ephemeral"}),
                Cache::None | Cache::Implicit | Cache::Points | Cache::PointsBesideTools => {}
            }
        }
        part
    }

    fn wait(&self, mark: Mark) {
        self.waiting.set(self.waiting.get() || mark.is_set());
    }

    fn waits(&self) -> bool {
        self.waiting.get() && self.target.card.cache == Cache::Breakpoints
    }

    /// Plain text where it is nothing else: many servers refuse a list of parts.
    fn user(&self, parts: &[Part]) -> Result<Message<'_>, Unsupported> {
        let texts: Option<Vec<&Text>> = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => Some(text),
                Part::Image { .. } | Part::Document { .. } => None,
            })
            .collect();
        let keeps_marks = matches!(self.target.card.cache, Cache::Breakpoints | Cache::Markers);
        if let Some(texts) =
            texts.filter(|texts| !keeps_marks || !(self.waits() || texts.iter().any(|text| text.mark.is_set())))
        {
            let texts: Vec<&str> = texts.into_iter().map(|text| text.text.as_str()).collect();
            return Ok(text_message_owned("user", texts.join("\n\n")));
        }
        let parts = self.parts(parts)?;
        Ok(Message { role: "user", content: Some(Content::Parts(parts)), ..Message::default() })
    }

    fn parts(&self, parts: &[Part]) -> Result<Vec<Value>, Unsupported> {
        let card = self.target.card;
        let mut documents = 0;
        parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => Ok(self.text_part(text)),
                Part::Image { path, .. } if !card.images => {
                    Err(Unsupported::new(path, "images are not supported by this model"))
                }
                Part::Image { source: Media::Base64 { media_type, data }, mark, .. } => {
                    let url = format!("data:{};base64,{data}", image_type(media_type, data));
                    Ok(self.marked(json!({"type": "image_url", "image_url": {"url": url}}), *mark))
                }
                Part::Image { source: Media::Url(url), mark, .. } if card.image_url => {
                    Ok(self.marked(json!({"type": "image_url", "image_url": {"url": url}}), *mark))
                }
                Part::Image { path, .. } => {
                    Err(Unsupported::new(path, "images by URL are not supported by this model"))
                }
                Part::Document { source: Media::Url(_), path, .. } if card.pdf && !card.pdf_url => {
                    Err(Unsupported::new(path, "documents by URL are not supported by this model"))
                }
                Part::Document { source: source @ (Media::Base64 { .. } | Media::Url(_)), title, mark, .. }
                    if card.pdf =>
                {
                    documents += 1;
                    let name = title.clone().unwrap_or_else(|| format!("document-{documents}"));
                    let name = if name.ends_with(".pdf") { name } else { format!("{name}.pdf") };
                    let data = match source {
                        Media::Base64 { media_type, data } => format!("data:{media_type};base64,{data}"),
                        Media::Url(text) | Media::Text(text) => text.clone(),
                    };
                    let part = match card.pdf_part {
                        PdfPart::File => json!({"type": "file", "file": {"filename": name, "file_data": data}}),
                        PdfPart::DocumentUrl => {
                            json!({"type": "document_url", "document_url": data, "document_name": name})
                        }
                    };
                    Ok(self.marked(part, *mark))
                }
                Part::Document { path, .. } => Err(Unsupported::new(path, "documents are not supported by this model")),
            })
            .collect()
    }

    fn assistant(&self, said: &[Said], replays: bool) -> Message<'_> {
        let card = self.target.card;
        let mut message = Message { role: "assistant", ..Message::default() };
        let (mut text, mut thought) = (String::new(), String::new());
        let mut chunk_signature = None;
        let mut details: Vec<Box<RawValue>> = Vec::new();
        for said in said {
            match said {
                Said::Text(piece) => {
                    text.push_str(&piece.text);
                    self.wait(piece.mark);
                }
                Said::Call { id, name, input, mark } => {
                    self.wait(*mark);
                    let id = upstream_id(id, card.id_rule);
                    let name = upstream_name(name, card.name_rule);
                    let function = json!({"name": name, "arguments": compact(input)});
                    message.tool_calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Said::Thinking { text, signature } if replays => {
                    let carrier = signature.as_deref().and_then(Carrier::read);
                    let ours = carrier.filter(|carrier| carrier.fits(PROTOCOL, self.target));
                    match ours {
                        Some(carrier) if carrier.kind == "reasoning_details" => {
                            details.extend(json::elements(&carrier.data).into_iter().flatten().map(ToOwned::to_owned));
                        }
                        Some(carrier) if carrier.kind == "think_chunk" => {
                            let data: Value = serde_json::from_str(carrier.data.get()).unwrap_or_default();
                            chunk_signature = data.get("signature").cloned();
                        }
                        _ => {}
                    }
                    thought.push_str(text);
                }
                Said::Thinking { .. } | Said::Redacted(_) => {}
            }
        }
        if !thought.is_empty() {
            match card.reasoning_in {
                ReasoningField::ReasoningContent => message.reasoning_content = Some(thought),
                ReasoningField::Reasoning => message.reasoning = Some(thought),
                ReasoningField::ThinkChunk => {
                    let mut chunk = json!({"type": "thinking", "thinking": [{"type": "text", "text": thought}]});
                    if let Some(signature) = chunk_signature {
                        chunk["signature"] = signature;
                    }
                    let mut parts = vec![chunk];
                    if !text.is_empty() {
                        parts.push(json!({"type": "text", "text": text}));
                    }
                    message.content = Some(Content::Parts(parts));
                    return message;
                }
                ReasoningField::None | ReasoningField::ReasoningDetails => {}
            }
        }
        if card.reasoning_in == ReasoningField::ReasoningDetails {
            message.reasoning_details = details;
        }
        message.content = Some(match (text.is_empty(), card.empty_content) {
            (true, false) if !message.tool_calls.is_empty() => Content::Null,
            _ => Content::Text(text),
        });
        message
    }

    /// One message per result; images that cannot stand in them are put aside.
    fn results<'m>(
        &'m self,
        outcomes: &'m [Outcome],
        messages: &mut Vec<Message<'m>>,
        hoisted: &mut Vec<Part>,
    ) -> Result<(), Unsupported> {
        let card = self.target.card;
        for outcome in outcomes {
            let id = upstream_id(&outcome.id, card.id_rule);
            let content = match results::shown(outcome, card.images_in_results, hoisted) {
                Shown::Text(text) => Content::Text(text),
                Shown::Parts(parts) => Content::Parts(self.parts(&parts)?),
            };
            self.wait(outcome.mark);
            messages.push(Message {
                role: "tool",
                tool_call_id: Some(id.into_owned()),
                name: outcome
                    .name
                    .as_deref()
                    .filter(|_| card.name_in_result)
                    .map(|name| upstream_name(name, card.name_rule).into_owned()),
                content: Some(content),
                ..Message::default()
            });
        }
        Ok(())
    }
}

fn system_role(card: &Card) -> &'static str {
    match card.system_role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
        SystemRole::User => "user",
    }
}

fn text_message<'a>(role: &'static str, text: &'a str) -> Message<'a> {
    Message { role, content: Some(Content::Borrowed(text)), ..Message::default() }
}

fn text_message_owned<'a>(role: &'static str, text: String) -> Message<'a> {
    Message { role, content: Some(Content::Text(text)), ..Message::default() }
}
