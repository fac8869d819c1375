//! A finished request as spans, in the words of OpenTelemetry's conventions for generative models. Ids are derived, so a
//! repeated delivery has the same ones.

use std::borrow::Cow;

use aws_lc_rs::digest;
use serde_json::{Map, Value, json};
use tidegate_core::key::{hex, hex_digits};
use tidegate_core::{Exchange, GenerationId, Outcome};

use super::attribute::attributes;
use super::{Maker, Said, Sight, Used};

/// What is told of one side's words at most, in bytes.
const MOST_SAID: usize = 256 << 10;
/// Keys of `trace` that mean something to us; all others are the caller's own.
const KNOWN: [&str; 5] = ["trace_id", "trace_name", "span_name", "generation_name", "parent_span_id"];
/// What a tool says that failed; why it did is part of its result.
const TOOL_ERROR: &str = "tool_error";
pub(super) const NANOS_PER_MILLI: i64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// What of a request a span stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the caller names around it.
    Around,
    /// A call of a model.
    Generation,
    /// A tool that was run for it.
    Tool,
}

impl Part {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Around => "SPAN",
            Self::Generation => "GENERATION",
            Self::Tool => "TOOL",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Most are the same in every span.
    pub name: Cow<'static, str>,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub trace: String,
    pub id: String,
    pub parent: Option<String>,
    pub name: String,
    pub part: Part,
    pub kind: SpanKind,
    pub start_nanos: i64,
    pub end_nanos: i64,
    pub attributes: Vec<Attribute>,
    /// What went wrong.
    pub error: Option<String>,
    /// Name, time and attributes.
    pub events: Vec<(&'static str, i64, Vec<Attribute>)>,
}

/// The first so many bytes of a text's hash, as hex.
pub(crate) fn hash(text: &str, bytes: usize) -> String {
    hex(&digest::digest(&digest::SHA256, text.as_bytes()).as_ref()[..bytes])
}

/// What names the trace of a request, from the id that we gave it: its own bits, of which the last half, all of them random,
/// names a span.
pub(super) fn digits(id: &GenerationId) -> [[u8; 2]; 16] {
    hex_digits(&id.bits().to_be_bytes())
}

pub(crate) fn trace_of(id: &GenerationId) -> String {
    hex(&id.bits().to_be_bytes())
}

fn span_of(id: &GenerationId) -> String {
    hex(&id.bits().to_be_bytes()[8..])
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of a trace: as the caller wrote it where that is one, else made from it.
fn trace_id(exchange: &Exchange, said: &Said) -> (String, Option<String>) {
    if let Some(own) = said.named("trace_id") {
        let plain = own.replace('-', "");
        let is_uuid = own.len() == 36 && is_hex(&plain, 32);
        return match () {
            () if is_hex(own, 32) => (own.to_lowercase(), None),
            () if is_uuid => (plain.to_lowercase(), None),
            () => (hash(own, 16), Some(own.to_owned())),
        };
    }
    match &said.parent {
        Some((trace, _)) => (trace.clone(), None),
        None => (trace_of(exchange.parent.as_ref().unwrap_or(&exchange.id)), None),
    }
}

fn parent_id(said: &Said) -> Option<String> {
    match said.named("parent_span_id") {
        Some(own) if is_hex(own, 16) => Some(own.to_lowercase()),
        Some(own) => Some(hash(own, 8)),
        None => said.parent.as_ref().filter(|_| said.named("trace_id").is_none()).map(|(_, span)| span.clone()),
    }
}

/// The spans of a request: what the caller names around it, and the generation itself.
pub fn spans(exchange: &Exchange, said: &Said, sight: Sight, maker: Maker<'_>) -> Vec<Span> {
    let (trace, original) = trace_id(exchange, said);
    let start_nanos = exchange.started.0.saturating_mul(NANOS_PER_MILLI);
    let end_nanos = start_nanos.saturating_add(i64::from(exchange.duration_ms) * NANOS_PER_MILLI);
    let mut parent = parent_id(said);
    let mut spans = Vec::with_capacity(3);
    let (root, middle) = (said.named("trace_name"), said.named("span_name"));
    let around = |id: String, parent: Option<String>, name: &str| Span {
        trace: trace.clone(),
        id,
        parent,
        name: name.to_owned(),
        part: Part::Around,
        kind: SpanKind::Internal,
        start_nanos,
        end_nanos,
        attributes: own_words(said),
        error: None,
        events: Vec::new(),
    };
    if root.is_some() || middle.is_some() {
        let id = hash(&format!("{trace}root"), 8);
        spans.push(around(id.clone(), parent, root.unwrap_or(&exchange.model)));
        parent = Some(id);
    }
    if let Some(name) = middle {
        let id = hash(&format!("{trace}span{name}"), 8);
        spans.push(around(id.clone(), parent, name));
        parent = Some(id);
    }
    // A later turn hangs under the first one.
    if let Some(first) = exchange.parent.filter(|first| *first != exchange.id) {
        parent = Some(span_of(&first));
    }
    let mut attributes = attributes(exchange, said, sight, maker);
    let brand = &maker.service.brand;
    let mut own =
        |name: &str, value: Value| attributes.push(Attribute { name: format!("{brand}.{name}").into(), value });
    if let Some(original) = original {
        own("trace.original_id", json!(original));
    }
    let failed = exchange.attempts.iter().filter(|attempt| !(200..300).contains(&attempt.status));
    let event = |attempt: &tidegate_core::exchange::AttemptRecord| {
        let reason = match (&attempt.error_type, attempt.status) {
            (Some(reason), _) => reason.to_string(),
            (None, 0) => "connection_error".to_owned(),
            (None, 408) => "timeout".to_owned(),
            (None, status) => status.to_string(),
        };
        let failed = |after: u32| {
            let millis = i64::from(after) + i64::from(attempt.duration_ms);
            start_nanos.saturating_add(millis.saturating_mul(NANOS_PER_MILLI)).min(end_nanos)
        };
        // One that nobody answered has no status.
        let status = Some(attempt.status).filter(|status| *status != 0);
        let status = status.map(|status| Attribute { name: "http.response.status_code".into(), value: json!(status) });
        let mut attributes = vec![
            Attribute { name: "gen_ai.provider.name".into(), value: json!(attempt.slug()) },
            Attribute { name: "error.type".into(), value: json!(reason) },
        ];
        attributes.extend(status);
        ("gen_ai.attempt", attempt.after_ms.map_or(end_nanos, failed), attributes)
    };
    let error = error(exchange).map(str::to_owned);
    spans.push(Span {
        id: span_of(&exchange.id),
        parent,
        name: said.named("generation_name").map_or_else(|| format!("chat {}", exchange.model), str::to_owned),
        part: Part::Generation,
        kind: SpanKind::Client,
        start_nanos,
        end_nanos,
        attributes,
        error,
        events: failed.map(event).collect(),
        trace: trace.clone(),
    });
    let used = said.tools.iter().enumerate();
    spans.extend(used.map(|(place, used)| tool(exchange, &trace, (place, used), sight, brand)));
    spans
}

/// Why a request is told of as one that went wrong; a client that left did not get what it asked for either.
pub(crate) fn error(exchange: &Exchange) -> Option<&str> {
    let known = exchange.error_type.as_deref();
    match exchange.outcome {
        Outcome::Complete => None,
        Outcome::Cancelled => Some(known.unwrap_or("cancelled")),
        Outcome::Failed | Outcome::Broken => Some(known.unwrap_or("error")),
    }
}

/// A tool that was run, under the first call of the model.
fn tool(exchange: &Exchange, trace: &str, (place, used): (usize, &Used), sight: Sight, brand: &str) -> Span {
    let request = exchange.parent.as_ref().unwrap_or(&exchange.id);
    let mut attributes = Vec::with_capacity(8);
    let mut add = |name: Cow<'static, str>, value: Value| attributes.push(Attribute { name, value });
    add("gen_ai.operation.name".into(), json!("execute_tool"));
    add("gen_ai.tool.name".into(), json!(used.name));
    add("gen_ai.tool.call.id".into(), json!(used.id));
    add("gen_ai.tool.type".into(), json!("extension"));
    if !sight.is_private {
        add("gen_ai.tool.call.arguments".into(), json!(cut(used.arguments.to_string())));
        add("gen_ai.tool.call.result".into(), json!(cut(used.result.clone())));
    }
    if used.is_error {
        add("error.type".into(), json!(TOOL_ERROR));
    }
    add(format!("{brand}.request_id").into(), json!(request.as_str()));
    Span {
        trace: trace.to_owned(),
        id: hash(&format!("{}tool{place}", exchange.id.as_str()), 8),
        parent: Some(span_of(request)),
        name: format!("execute_tool {}", used.name),
        part: Part::Tool,
        kind: SpanKind::Internal,
        start_nanos: used.started.0.saturating_mul(NANOS_PER_MILLI),
        end_nanos: used.ended.0.saturating_mul(NANOS_PER_MILLI),
        attributes,
        error: used.is_error.then(|| TOOL_ERROR.to_owned()),
        events: Vec::new(),
    }
}

/// Members of `trace` that mean nothing to us.
pub(super) fn own_members(said: &Said) -> impl Iterator<Item = (&String, &Value)> {
    said.trace.iter().filter(|(name, _)| !KNOWN.contains(&name.as_str()))
}

/// What the caller said of the trace in words of its own.
pub(super) fn own_words(said: &Said) -> Vec<Attribute> {
    let others = own_members(said);
    let plain = |value: &Value| match value {
        Value::Object(_) | Value::Array(_) => Value::String(value.to_string()),
        other => other.clone(),
    };
    let attribute = |(name, value): (&String, &Value)| Attribute {
        name: format!("trace.metadata.{name}").into(),
        value: plain(value),
    };
    others.filter(|(_, value)| !value.is_null()).map(attribute).collect()
}

pub(super) fn cut(text: String) -> String {
    if text.len() <= MOST_SAID {
        return text;
    }
    let end = (0..=MOST_SAID).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{} [cut: {} bytes more]", &text[..end], text.len() - end)
}

/// A message in the form of roles and parts.
pub(super) fn message(message: &Value) -> Value {
    let mut members = Map::new();
    members.insert("role".into(), message["role"].clone());
    members.insert("parts".into(), json!(parts(&message["content"])));
    Value::Object(members)
}

pub(super) fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) => vec![json!({"type": "text", "content": text})],
        Value::Array(blocks) => blocks.iter().map(part).collect(),
        _ => Vec::new(),
    }
}

/// A block. Of pictures and files nothing is told but that they were there.
pub(super) fn part(block: &Value) -> Value {
    let kind = block["type"].as_str().unwrap_or_default();
    match kind {
        "text" => json!({"type": "text", "content": block["text"]}),
        "thinking" => json!({"type": "reasoning", "content": block["thinking"]}),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            json!({"type": "tool_call", "id": block["id"], "name": block["name"], "arguments": block["input"]})
        }
        _ if kind.ends_with("tool_result") => {
            let response = match &block["content"] {
                Value::Array(_) | Value::String(_) => json!(parts(&block["content"])),
                other => stripped(other),
            };
            json!({"type": "tool_call_response", "id": block["tool_use_id"], "response": response})
        }
        "image" | "document" | "audio" => {
            let source = &block["source"];
            let text = source["data"].as_str().filter(|_| source["type"] == "text");
            if let Some(text) = text {
                return json!({"type": "text", "content": text});
            }
            // Base64: four letters for three bytes, and a mark for each that is missing at the end.
            let size = |data: &str| (data.trim_end_matches('=').len() * 3) / 4;
            let bytes = source["data"].as_str().map_or(0, size);
            let media = source["media_type"].as_str().unwrap_or("by reference");
            json!({"type": "text", "content": format!("[{kind} {media}, {bytes} bytes]")})
        }
        _ => stripped(block),
    }
}

/// Anything else, without what is sealed or encoded.
fn stripped(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let told =
                members.iter().filter(|(name, _)| !matches!(name.as_str(), "data" | "encrypted_content" | "signature"));
            Value::Object(told.map(|(name, value)| (name.clone(), stripped(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(stripped).collect()),
        other => other.clone(),
    }
}
