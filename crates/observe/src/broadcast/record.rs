//! Spans in plain words, for those who keep objects, rows or events. All of it is read from the spans' attributes, so what
//! privacy takes from those is in none of these.

use serde_json::{Map, Value, json};
use tidegate_core::{Exchange, Timestamp};

use super::span::{Span, hash, own_members};
use super::{Maker, Said};

/// What was said, which has a place of its own everywhere.
const CONTENT: [&str; 6] = [
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
];

/// A request and its spans.
#[derive(Clone, Copy)]
pub(super) struct Trace<'a> {
    pub spans: &'a [Span],
    pub exchange: &'a Exchange,
    pub said: &'a Said,
    pub maker: Maker<'a>,
}

impl Trace<'_> {
    pub fn id(&self) -> &str {
        self.spans.first().map_or("", |span| &span.trace)
    }

    /// What the caller calls it, or the model's name.
    pub fn name(&self) -> &str {
        self.said.named("trace_name").unwrap_or(&self.exchange.model)
    }

    /// What the caller said of it in words of its own, untouched.
    pub fn metadata(&self) -> Map<String, Value> {
        own_members(self.said).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Whether other requests may have the same trace.
    pub fn is_shared(&self) -> bool {
        self.said.named("trace_id").is_some() || self.said.parent.is_some() || self.exchange.parent.is_some()
    }
}

impl Span {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.attributes.iter().find(|each| each.name == name).map(|each| &each.value)
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A member of ours.
    pub(super) fn ours(&self, brand: &str, name: &str) -> &str {
        self.text(&format!("{brand}.{name}"))
    }

    pub(super) fn started(&self) -> Timestamp {
        Timestamp(self.start_nanos / 1_000_000)
    }

    pub(super) fn ended(&self) -> Timestamp {
        Timestamp(self.end_nanos / 1_000_000)
    }

    pub(super) fn millis(&self) -> f64 {
        (self.end_nanos - self.start_nanos) as f64 / 1e6
    }

    /// How the model was to answer.
    pub(super) fn parameters(&self) -> Map<String, Value> {
        let asked = self.attributes.iter().filter_map(|each| Some((each.name.strip_prefix("gen_ai.request.")?, each)));
        let asked = asked.filter(|(name, _)| *name != "model");
        asked.map(|(name, each)| (name.to_owned(), each.value.clone())).collect()
    }

    /// Everything but what was said.
    pub(super) fn plain(&self) -> Map<String, Value> {
        let told = self.attributes.iter().filter(|each| !CONTENT.contains(&&*each.name));
        told.map(|each| (each.name.clone().into_owned(), each.value.clone())).collect()
    }

    /// What was asked, of a model or of a tool.
    pub(super) fn input(&self) -> Option<Value> {
        if let Some(arguments) = self.get("gen_ai.tool.call.arguments") {
            return Some(unpacked(arguments));
        }
        let messages = unpacked(self.get("gen_ai.input.messages")?);
        let mut input = Map::from_iter([("messages".to_owned(), messages)]);
        for (member, name) in [("system", "gen_ai.system_instructions"), ("tools", "gen_ai.tool.definitions")] {
            if let Some(value) = self.get(name) {
                input.insert(member.to_owned(), unpacked(value));
            }
        }
        Some(Value::Object(input))
    }

    /// What was answered.
    pub(super) fn output(&self) -> Option<Value> {
        self.get("gen_ai.output.messages").or_else(|| self.get("gen_ai.tool.call.result")).map(unpacked)
    }

    pub(super) fn status(&self) -> &'static str {
        if self.error.is_some() { "error" } else { "ok" }
    }

    pub(super) fn level(&self) -> &'static str {
        if self.error.is_some() { "ERROR" } else { "DEFAULT" }
    }
}

/// JSON that travels as text; what was cut is no longer any and stays text.
fn unpacked(value: &Value) -> Value {
    value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| json!(value))
}

/// The messages of a span as role and text, for those who know no parts; what is no text is told as JSON.
pub(super) fn spoken(span: &Span, name: &str) -> Option<Vec<Value>> {
    let Value::Array(messages) = unpacked(span.get(name)?) else { return None };
    let text = |part: &Value| match part["content"].as_str() {
        Some(text) if part["type"] == "text" => text.to_owned(),
        _ => part.to_string(),
    };
    let content = |message: &Value| {
        let parts = message["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().map(text).collect::<Vec<_>>().join("\n")
    };
    let told = messages.iter().map(|message| json!({"role": message["role"], "content": content(message)}));
    let system = span.get("gen_ai.system_instructions").filter(|_| name == "gen_ai.input.messages").map(unpacked);
    let system = system.map(|parts| json!({"role": "system", "content": content(&json!({"parts": parts}))}));
    Some(system.into_iter().chain(told).collect())
}

/// The same for the same text, in the form of a UUID of the version whose bits are anybody's own.
pub(super) fn uuid(text: &str) -> String {
    let hex = hash(text, 16);
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}
