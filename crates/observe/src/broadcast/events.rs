//! Events of PostHog: `$ai_generation` for a call of a model, sent in batches.

use serde_json::{Map, Value, json};
use tidegate_core::Secret;

use super::record::{Trace, spoken, uuid};
use super::span::{Part, Span};

/// What lies deeper is not told.
const DEEPEST: usize = 3;

/// The events of a request, as elements of a list.
pub(super) fn told(trace: &Trace<'_>) -> Vec<u8> {
    let spans = trace.spans.iter().filter(|span| span.part != Part::Around);
    let events: Vec<String> = spans.map(|span| event(trace, span).to_string()).collect();
    events.join(",").into_bytes()
}

/// One call with all these. The key of the project stands in the body.
pub(super) fn body(key: &Secret, letters: &[&str]) -> Vec<u8> {
    let key = key.expose(|key| json!(String::from_utf8_lossy(key)).to_string());
    format!(r#"{{"api_key":{key},"batch":[{}]}}"#, letters.join(",")).into_bytes()
}

/// What asks for nothing but is refused without a key that is right.
pub(super) fn trial(key: &Secret) -> Vec<u8> {
    let key = key.expose(|key| String::from_utf8_lossy(key).into_owned());
    json!({"api_key": key, "distinct_id": "connection-test"}).to_string().into_bytes()
}

fn event(trace: &Trace<'_>, span: &Span) -> Value {
    let exchange = trace.exchange;
    let mut properties = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            properties.insert(name.to_owned(), value);
        }
    };
    add("$ai_trace_id", Some(json!(span.trace)));
    add("$ai_session_id", exchange.session.as_ref().map(|session| json!(session)));
    add("$ai_span_id", Some(json!(span.id)));
    add("$ai_span_name", Some(json!(span.name)));
    add("$ai_parent_id", span.parent.as_ref().map(|parent| json!(parent)));
    add("$ai_latency", Some(json!(span.millis() / 1_000.0)));
    add("$ai_is_error", Some(json!(span.error.is_some())));
    add("$ai_error", span.error.as_ref().map(|error| json!(error)));
    let is_generation = span.part == Part::Generation;
    if is_generation {
        add("$ai_model", Some(json!(&*exchange.model)));
        add("$ai_input", spoken(span, "gen_ai.input.messages").map(Value::Array));
        add("$ai_output_choices", spoken(span, "gen_ai.output.messages").map(Value::Array));
        add("$ai_tools", span.input().and_then(|input| input.get("tools").cloned()));
        add("$ai_model_parameters", Some(Value::Object(span.parameters())));
        for (name, source) in [
            ("$ai_provider", "gen_ai.provider.name"),
            ("$ai_input_tokens", "gen_ai.usage.input_tokens"),
            ("$ai_output_tokens", "gen_ai.usage.output_tokens"),
            ("$ai_cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens"),
            ("$ai_cache_creation_input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
            ("$ai_reasoning_tokens", "gen_ai.usage.reasoning.output_tokens"),
            ("$ai_total_cost_usd", "gen_ai.usage.cost"),
            ("$ai_time_to_first_token", "gen_ai.response.time_to_first_chunk"),
            ("$ai_http_status", "http.response.status_code"),
            ("$ai_stop_reason", "gen_ai.response.finish_reason"),
            ("$ai_stream", "gen_ai.request.stream"),
            ("$ai_temperature", "gen_ai.request.temperature"),
            ("$ai_max_tokens", "gen_ai.request.max_tokens"),
        ] {
            add(name, span.get(source).cloned());
        }
    } else {
        add("$ai_input_state", span.input());
        add("$ai_output_state", span.output());
    }
    add("trace_name", trace.said.named("trace_name").map(|name| json!(name)));
    add("metadata_span_name", trace.said.named("span_name").map(|name| json!(name)));
    for (name, value) in trace.metadata() {
        add(&format!("metadata_{name}"), Some(shallow(value, 1)));
    }
    let ours = format!("{}.", trace.maker.service.brand);
    for (name, value) in span.plain().into_iter().filter(|(name, _)| name.starts_with(&ours)) {
        add(&name, Some(value));
    }
    // Who names no user is no person of its own for each request.
    let person = exchange.user.as_deref();
    add("$process_person_profile", person.is_none().then(|| json!(false)));
    json!({
        "event": if is_generation { "$ai_generation" } else { "$ai_span" },
        "uuid": uuid(&span.id),
        "distinct_id": person.or(exchange.session.as_deref()).unwrap_or(exchange.id.as_str()),
        "timestamp": span.started().to_string(),
        "properties": properties,
    })
}

fn shallow(value: Value, depth: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if depth > DEEPEST => json!("[truncated]"),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, shallow(value, depth + 1))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(|value| shallow(value, depth + 1)).collect()),
        other => other,
    }
}
