//! A request in the Chat Completions protocol.

use serde::Serialize;
use serde::ser::SerializeMap as _;
use serde_json::value::RawValue;
use serde_json::{Number, Value, json};
use tidegate_wire::messages::{OutputFormat, Request, ThinkingConfig, Tool, ToolChoice};
use tidegate_wire::object::Raw;

use super::PROTOCOL;
use crate::translate::card::{
    Cache, Card, Level, Prefill, ReasoningField, ReasoningSwitch, Replay, Sampling, StopSupport, Structured, SystemRole,
};
use crate::translate::carrier::Carrier;
use crate::translate::conversation::{Conversation, Media, Outcome, Part, Said, Text, Turn};
use crate::translate::tools::{Names, upstream_id, upstream_name};
use crate::translate::{Context, Outgoing, Target, Unsupported, schema};

const NO_PREFILL: &str =
    "This model does not support assistant message prefill. The conversation must end with a user message.";
const NOTHING: &str = "(no output)";

/// The members of a body, in the order in which they are written. They are JSON texts: what the client wrote goes out
/// with its own order of members, which caches of the prefix depend on.
#[derive(Default)]
struct Body(Vec<(&'static str, Box<RawValue>)>);

impl Body {
    fn set(&mut self, name: &'static str, value: impl Serialize) {
        let raw = serde_json::value::to_raw_value(&value).expect("texts, numbers and JSON are always JSON");
        self.0.push((name, raw));
    }
}

/// The request as the upstream takes it.
pub fn request(request: &Request, target: &Target<'_>) -> Result<Outgoing, Unsupported> {
    let card = target.card;
    let mut conversation = Conversation::of(request, card.mid_system)?;
    if conversation.is_prefilled() && card.prefill == Prefill::None {
        return Err(Unsupported::new("messages", NO_PREFILL));
    }
    let mut body = Body::default();
    body.set("model", target.model);
    let max_tokens = limits(&mut body, request, card, &mut conversation);
    sampling(&mut body, request, card, &mut conversation);
    let show_thinking = reasoning(&mut body, request, card, &mut conversation);
    let guarded = stops(&mut body, request, card);
    let mut names = std::collections::HashMap::new();
    let has_tools = tools(&mut body, request, card, &mut conversation, &mut names)?;
    choice(&mut body, request, card, &mut conversation, has_tools);
    structured(&mut body, request, card, &mut conversation);
    if let (Some(field), Some(user)) = (card.user_field, target.user) {
        body.set(field, user);
    }
    if let Some(key) = target.cache_key.filter(|_| card.cache_key) {
        body.set("prompt_cache_key", key);
    }
    tier(&mut body, request, card, &mut conversation);
    if card.store_flag {
        body.set("store", false);
    }
    if target.stream {
        body.set("stream", true);
        if card.stream_options {
            body.set("stream_options", json!({"include_usage": true}));
        }
    }
    unsent(request, &mut conversation);
    if conversation.is_prefilled() && card.prefill == Prefill::ContinueFinal {
        body.set("add_generation_prompt", false);
        body.set("continue_final_message", true);
    }
    let messages = Messages { target, conversation: &conversation };
    let text = messages.write(&body)?;
    let context = Context {
        names: Names::new(names, conversation.ids.clone()),
        serial: request.tool_choice.as_ref().is_some_and(ToolChoice::is_serial),
        show_thinking,
        scope: target.scope.to_owned(),
        model: target.model.to_owned(),
        guarded,
        max_tokens,
        context_length: card.context_length,
        input_estimate: (text.len() as u64).div_ceil(4),
    };
    Ok(Outgoing { body: text.into(), context, warnings: conversation.warnings })
}

fn limits(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) -> u64 {
    let wanted = request.max_tokens.unwrap_or(card.max_output_tokens);
    let sent = wanted.min(card.max_output_tokens).max(card.min_output_tokens);
    if request.max_tokens.is_some_and(|wanted| wanted != sent) {
        conversation.warn("clamped:max_tokens");
    }
    body.set(if card.completion_limit { "max_completion_tokens" } else { "max_tokens" }, sent);
    sent
}

fn sampling(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let mut number = |name: &'static str, value: &Option<Number>, taken: bool| match value {
        Some(value) if taken => body.set(name, value),
        Some(_) => conversation.warn(format!("dropped:{name}")),
        None => {}
    };
    let all = card.sampling != Sampling::None;
    number("temperature", &request.temperature, all);
    let both = card.sampling == Sampling::OneOf && request.temperature.is_some();
    number("top_p", &request.top_p, all && !both);
    match request.top_k {
        Some(top_k) if all && card.top_k => body.set("top_k", top_k),
        Some(_) => conversation.warn("dropped:top_k"),
        None => {}
    }
}

/// How hard the model is to think; whether its thinking may be shown.
fn reasoning(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) -> bool {
    let effort = request.output_config.as_ref().and_then(|config| config.effort.as_ref()).and_then(Level::of_effort);
    let (wanted, show) = match &request.thinking {
        Some(ThinkingConfig::Disabled(_) | ThinkingConfig::BetweenTools(_)) => (Wanted::Off, false),
        Some(ThinkingConfig::Enabled(config)) => {
            let level = effort.unwrap_or_else(|| Level::of_budget(config.budget_tokens));
            (Wanted::Level(level, Some(config.budget_tokens)), config.display.as_deref() != Some("omitted"))
        }
        Some(ThinkingConfig::Adaptive(config)) => {
            let show = config.display.as_deref() != Some("omitted");
            match effort {
                Some(level) => (Wanted::Level(level, None), show),
                // A model that does not think unless told to is told to.
                None if card.default_effort == Some(Level::None) => (Wanted::Level(Level::Medium, None), show),
                None => (Wanted::On, show),
            }
        }
        Some(ThinkingConfig::Other(_)) | None => {
            (effort.map_or(Wanted::Nothing, |level| Wanted::Level(level, None)), false)
        }
    };
    let level = match wanted {
        Wanted::Level(level, _) => card.clamp(level),
        Wanted::Off => card.efforts.iter().copied().find(|level| matches!(level, Level::None | Level::Minimal)),
        Wanted::On | Wanted::Nothing => None,
    };
    let is_on = !matches!(wanted, Wanted::Off);
    let has_tools = request.tools.as_ref().is_some_and(|tools| !tools.is_empty());
    if has_tools && card.tools_without_reasoning {
        body.set("reasoning_effort", Level::None.as_str());
        if !matches!(wanted, Wanted::Nothing | Wanted::Off) {
            conversation.warn("changed:effort");
        }
        return show;
    }
    match card.reasoning {
        ReasoningSwitch::None => {
            if matches!(wanted, Wanted::Level(..)) {
                conversation.warn("dropped:effort");
            }
        }
        _ if matches!(wanted, Wanted::Nothing) => {}
        ReasoningSwitch::Effort => {
            if let Some(level) = level {
                body.set("reasoning_effort", level.as_str());
            }
        }
        ReasoningSwitch::Thinking => {
            body.set("thinking", json!({"type": if is_on { "enabled" } else { "disabled" }}));
            if let Some(level) = level.filter(|_| is_on) {
                body.set("reasoning_effort", level.as_str());
            }
        }
        ReasoningSwitch::EnableThinking => {
            body.set("enable_thinking", is_on);
            if let Wanted::Level(_, Some(budget)) = wanted {
                body.set("thinking_budget", budget);
            }
        }
        ReasoningSwitch::Template => body.set("chat_template_kwargs", json!({"enable_thinking": is_on})),
        ReasoningSwitch::Object => {
            let mut object = match wanted {
                Wanted::Off => json!({"enabled": false}),
                Wanted::Level(_, Some(budget)) => json!({"max_tokens": budget}),
                Wanted::Level(level, None) => json!({"effort": level.as_str()}),
                Wanted::On | Wanted::Nothing => json!({"enabled": true}),
            };
            if is_on && !show {
                object["exclude"] = true.into();
            }
            body.set("reasoning", object);
        }
        ReasoningSwitch::PromptMode => {
            if is_on {
                body.set("prompt_mode", "reasoning");
            }
        }
    }
    show
}

#[derive(Clone, Copy)]
enum Wanted {
    Nothing,
    Off,
    On,
    /// With the budget of tokens, where one was given.
    Level(Level, Option<u64>),
}

/// What the upstream looks for; the sequences left to us are given back.
fn stops(body: &mut Body, request: &Request, card: &Card) -> Vec<String> {
    let all = request.stop_sequences.clone().unwrap_or_default();
    let sent = match card.stop {
        StopSupport::All => all.len(),
        StopSupport::Four => all.len().min(4),
        StopSupport::None => 0,
    };
    if sent > 0 {
        body.set("stop", &all[..sent]);
    }
    all[sent..].to_vec()
}

fn tools(
    body: &mut Body,
    request: &Request,
    card: &Card,
    conversation: &mut Conversation,
    names: &mut std::collections::HashMap<String, String>,
) -> Result<bool, Unsupported> {
    let mut tools = Vec::new();
    for (place, tool) in request.tools.iter().flatten().enumerate() {
        let (name, description, parameters, strict) = match tool {
            Tool::Custom(tool) => {
                let text = schema::of_tool(tool.input_schema.get()).into_owned();
                let strict = tool.strict.unwrap_or(false);
                (tool.name.as_str(), tool.description.as_deref(), text, strict)
            }
            Tool::Bash(tool) => (tool.name.as_str(), Some("Run a shell command"), BASH.to_owned(), false),
            Tool::TextEditor(tool) => (tool.name.as_str(), Some("View and edit files"), EDITOR.to_owned(), false),
            other => {
                let reason = format!("tools of type {} are not supported by this model", other.kind());
                return Err(Unsupported::new(format!("tools[{place}]"), reason));
            }
        };
        let sent = upstream_name(name, card.name_rule);
        if sent != name {
            names.insert(sent.clone().into_owned(), name.to_owned());
        }
        let strict = strict.then(|| {
            let fits = serde_json::from_str(&parameters).is_ok_and(|schema| schema::is_strict(&schema));
            (card.strict && fits).then_some(true)
        });
        if strict == Some(None) {
            conversation.warn("dropped:strict");
        }
        let parameters = RawValue::from_string(parameters)
            .map_err(|_| Unsupported::new(format!("tools[{place}].input_schema"), "must be a JSON Schema"))?;
        let function = Function { name: sent.into_owned(), description, strict: strict.flatten(), parameters };
        tools.push(FunctionTool { kind: "function", function });
    }
    let has_tools = !tools.is_empty();
    if has_tools {
        body.set("tools", tools);
    }
    Ok(has_tools)
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
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    parameters: Box<RawValue>,
}

const BASH: &str = r#"{"type":"object","properties":{"command":{"type":"string"},"restart":{"type":"boolean"}}}"#;
const EDITOR: &str = r#"{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},"path":{"type":"string"},"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2}},"required":["command","path"]}"#;

fn choice(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation, has_tools: bool) {
    let Some(choice) = request.tool_choice.as_ref().filter(|_| has_tools) else { return };
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

fn structured(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let Some(OutputFormat::JsonSchema(format)) = request.answer_format() else { return };
    let schema: Value = format.schema.parse().unwrap_or(Value::Null);
    let instruction = || {
        let text =
            format!("Answer with one JSON object that validates against this JSON Schema: {}", format.schema.get());
        Text { text, marked: false }
    };
    match card.structured {
        Structured::JsonSchema => {
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
            let strict = schema::is_strict(&schema);
            let json_schema = Named { name: "response", strict, schema: format.schema.as_raw_value() };
            body.set("response_format", Format { kind: "json_schema", json_schema });
        }
        Structured::JsonObject => {
            body.set("response_format", json!({"type": "json_object"}));
            conversation.system.push(instruction());
        }
        Structured::None => conversation.system.push(instruction()),
    }
}

fn tier(body: &mut Body, request: &Request, card: &Card, conversation: &mut Conversation) {
    let fast = request.speed.as_deref() == Some("fast");
    match (card.tiers, request.service_tier.as_deref()) {
        (Some((_, priority)), _) if fast => body.set("service_tier", priority),
        (Some((standard, _)), Some("standard_only")) => body.set("service_tier", standard),
        (Some(_), Some("auto")) => body.set("service_tier", "auto"),
        (None, Some("standard_only" | "auto")) | (_, None) => {}
        (_, Some(_)) => conversation.warn("dropped:service_tier"),
    }
    if fast && card.tiers.is_none() {
        conversation.warn("dropped:speed");
    }
}

/// Options that this protocol has no word for.
fn unsent(request: &Request, conversation: &mut Conversation) {
    let options = [
        ("context_management", request.context_management.is_some()),
        ("diagnostics", request.diagnostics.is_some()),
        ("inference_geo", request.inference_geo.is_some()),
    ];
    for (name, _) in options.into_iter().filter(|(_, present)| *present) {
        conversation.warn(format!("dropped:{name}"));
    }
    for name in request.extra.names() {
        conversation.warn(format!("dropped:{name}"));
    }
}

/// The conversation as the list `messages`.
struct Messages<'a> {
    target: &'a Target<'a>,
    conversation: &'a Conversation,
}

/// One message; members that are `None` are not written.
#[derive(Default, Serialize)]
struct Message<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<bool>,
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
    fn write(&self, body: &Body) -> Result<Vec<u8>, Unsupported> {
        let messages = self.messages()?;
        let mut out = Vec::with_capacity(1024);
        let mut serializer = serde_json::Serializer::new(&mut out);
        let written = (|| {
            use serde::Serializer as _;
            let mut map = serializer.serialize_map(None)?;
            for (name, value) in &body.0 {
                map.serialize_entry(name, value)?;
            }
            map.serialize_entry("messages", &messages)?;
            map.end()
        })();
        written.map_err(|error: serde_json::Error| Unsupported::new("", error.to_string()))?;
        Ok(out)
    }

    fn messages(&self) -> Result<Vec<Message<'_>>, Unsupported> {
        let card = self.target.card;
        let mut messages = Vec::with_capacity(self.conversation.turns.len() + 1);
        if let Some(system) = self.system() {
            messages.push(system);
        }
        // Images of results wait for the words that follow all results of the turn.
        let mut hoisted: Vec<Part> = Vec::new();
        let last_words = self.conversation.turns.iter().rposition(|turn| matches!(turn, Turn::User(_))).unwrap_or(0);
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
                        Replay::ToolLoop => place > last_words,
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
        Ok(messages)
    }

    fn system(&self) -> Option<Message<'_>> {
        let texts: Vec<&str> = self.conversation.system.iter().map(|text| text.text.as_str()).collect();
        if texts.is_empty() {
            return None;
        }
        let card = self.target.card;
        let has_marks = self.conversation.system.iter().any(|text| text.marked);
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
        self.marked(json!({"type": "text", "text": text.text}), text.marked)
    }

    fn marked(&self, mut part: Value, marked: bool) -> Value {
        if marked {
            match self.target.card.cache {
                Cache::Breakpoints => part["prompt_cache_breakpoint"] = json!({"mode": "explicit"}),
                Cache::Markers => part["cache_control"] = json!({"type": "ephemeral"}),
                Cache::None | Cache::Implicit | Cache::Points => {}
            }
        }
        part
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
        if let Some(texts) = texts.filter(|texts| !keeps_marks || texts.iter().all(|text| !text.marked)) {
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
                Part::Image { .. } if !card.images => {
                    Err(Unsupported::new("messages", "images are not supported by this model"))
                }
                Part::Image { source: Media::Base64 { media_type, data }, marked } => {
                    let url = format!("data:{media_type};base64,{data}");
                    Ok(self.marked(json!({"type": "image_url", "image_url": {"url": url}}), *marked))
                }
                Part::Image { source: Media::Url(url), marked } if card.image_url => {
                    Ok(self.marked(json!({"type": "image_url", "image_url": {"url": url}}), *marked))
                }
                Part::Image { source: Media::Url(_), .. } => {
                    Err(Unsupported::new("messages", "images by URL are not supported by this model"))
                }
                Part::Document { source: Media::Base64 { media_type, data }, title, marked } if card.pdf => {
                    documents += 1;
                    let name = title.clone().unwrap_or_else(|| format!("document-{documents}"));
                    let name = if name.ends_with(".pdf") { name } else { format!("{name}.pdf") };
                    let data = format!("data:{media_type};base64,{data}");
                    let file = json!({"filename": name, "file_data": data});
                    Ok(self.marked(json!({"type": "file", "file": file}), *marked))
                }
                Part::Document { .. } => Err(Unsupported::new("messages", "documents are not supported by this model")),
            })
            .collect()
    }

    fn assistant(&self, said: &[Said], replays: bool) -> Message<'_> {
        let card = self.target.card;
        let mut message = Message { role: "assistant", ..Message::default() };
        let (mut text, mut thought) = (String::new(), String::new());
        for said in said {
            match said {
                Said::Text(piece) => text.push_str(&piece.text),
                Said::Call { id, name, input, .. } => {
                    let id = upstream_id(id, card.id_rule);
                    let name = upstream_name(name, card.name_rule);
                    let function = json!({"name": name, "arguments": compact(input)});
                    message.tool_calls.push(json!({"id": id, "type": "function", "function": function}));
                }
                Said::Thinking { text, signature } if replays => {
                    let carrier = signature.as_deref().and_then(Carrier::read);
                    let ours = carrier.filter(|carrier| carrier.is_from(PROTOCOL, self.target.scope));
                    if let Some(details) = ours.filter(|carrier| carrier.kind == "reasoning_details") {
                        message.reasoning_details = Some(details.data);
                    }
                    thought.push_str(text);
                }
                Said::Thinking { .. } => {}
            }
        }
        if !thought.is_empty() {
            match card.reasoning_in {
                ReasoningField::ReasoningContent => message.reasoning_content = Some(thought),
                ReasoningField::Reasoning => message.reasoning = Some(thought),
                ReasoningField::None | ReasoningField::ReasoningDetails => {}
            }
        }
        if card.reasoning_in != ReasoningField::ReasoningDetails {
            message.reasoning_details = None;
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
            let mut texts: Vec<String> = Vec::new();
            let mut images = 0;
            let mut parts: Vec<Part> = Vec::new();
            for part in &outcome.parts {
                match part {
                    Part::Text(text) => texts.push(text.text.clone()),
                    media if card.images_in_results => parts.push(media.clone()),
                    media => {
                        images += 1;
                        let kind = if matches!(media, Part::Image { .. }) { "image" } else { "document" };
                        let label = format!("[{kind} {images} of tool_result {}]", outcome.id);
                        texts.push(label.clone());
                        hoisted.push(Part::Text(Text { text: label, marked: false }));
                        hoisted.push(media.clone());
                    }
                }
            }
            let mut text = texts.join("\n");
            if text.is_empty() && parts.is_empty() {
                text = NOTHING.to_owned();
            }
            if outcome.is_error && !text.to_lowercase().starts_with("error") {
                text.insert_str(0, "Error: ");
            }
            let content = if parts.is_empty() {
                Content::Text(text)
            } else {
                let mut listed = vec![json!({"type": "text", "text": text})];
                listed.extend(self.parts(&parts)?);
                Content::Parts(listed)
            };
            messages.push(Message {
                role: "tool",
                tool_call_id: Some(id.into_owned()),
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

/// JSON without the white space between its parts. Numbers keep their digits.
fn compact(raw: &Raw) -> String {
    let mut out = String::with_capacity(raw.get().len());
    let (mut inside, mut escaped) = (false, false);
    for character in raw.get().chars() {
        match character {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ if !inside && character.is_ascii_whitespace() => continue,
            _ => {}
        }
        out.push(character);
    }
    out
}
