//! Datadog's own form of spans: "LLM Observability HTTP API", `POST /api/intake/llm-obs/v1/trace/spans`.

use serde_json::{Map, Value, json};

use super::record::{Trace, spoken};
use super::span::{Part, Span};

/// The spans of a request, as elements of a list.
pub(super) fn told(trace: &Trace<'_>) -> Vec<u8> {
    let spans: Vec<String> = trace.spans.iter().map(|each| span(trace, each).to_string()).collect();
    spans.join(",").into_bytes()
}

/// One call with all these.
pub(super) fn body(app: &str, letters: &[&str]) -> String {
    let app = json!(app);
    format!(r#"{{"data":{{"type":"span","attributes":{{"ml_app":{app},"spans":[{}]}}}}}}"#, letters.join(","))
}

fn span(trace: &Trace<'_>, span: &Span) -> Value {
    let (exchange, service) = (trace.exchange, trace.maker.service);
    let kind = match span.part {
        Part::Around => "workflow",
        Part::Generation => "llm",
        Part::Tool => "tool",
    };
    let mut metadata = trace.metadata();
    let mut metrics = Map::new();
    if span.part == Part::Generation {
        metadata.extend(span.parameters());
        metadata.insert("model_name".to_owned(), json!(&*exchange.model));
        metadata.insert("model_provider".to_owned(), json!(span.text("gen_ai.provider.name")));
        for (name, source) in [
            ("input_tokens", "gen_ai.usage.input_tokens"),
            ("output_tokens", "gen_ai.usage.output_tokens"),
            ("total_tokens", "gen_ai.usage.total_tokens"),
            ("cache_read_input_tokens", "gen_ai.usage.cache_read.input_tokens"),
            ("cache_write_input_tokens", "gen_ai.usage.cache_creation.input_tokens"),
            ("reasoning_output_tokens", "gen_ai.usage.reasoning.output_tokens"),
            ("time_to_first_token", "gen_ai.response.time_to_first_chunk"),
            ("total_cost", "gen_ai.usage.cost"),
        ] {
            if let Some(value) = span.get(source) {
                metrics.insert(name.to_owned(), value.clone());
            }
        }
    }
    let ours = format!("{}.", service.brand);
    metadata.extend(span.plain().into_iter().filter(|(name, _)| name.starts_with(&ours)));
    let mut meta = Map::from_iter([("kind".to_owned(), json!(kind)), ("metadata".to_owned(), Value::Object(metadata))]);
    let said = |value: Value, messages: Option<Vec<Value>>| match messages {
        Some(messages) => json!({"messages": messages}),
        None => json!({"value": value.to_string()}),
    };
    if let Some(input) = span.input() {
        meta.insert("input".to_owned(), said(input, spoken(span, "gen_ai.input.messages")));
    }
    if let Some(output) = span.output() {
        meta.insert("output".to_owned(), said(output, spoken(span, "gen_ai.output.messages")));
    }
    if let Some(error) = &span.error {
        meta.insert("error".to_owned(), json!({"type": error, "message": error}));
    }
    let mut tags = vec![format!("service:{}", service.name)];
    tags.extend(service.environment.iter().map(|environment| format!("env:{environment}")));
    tags.extend(exchange.user.iter().map(|user| format!("user_id:{user}")));
    json!({
        "trace_id": span.trace,
        "span_id": span.id,
        // The word that the interface has for none.
        "parent_id": span.parent.as_deref().unwrap_or("undefined"),
        "name": span.name,
        "start_ns": span.start_nanos,
        "duration": span.end_nanos - span.start_nanos,
        "status": span.status(),
        "session_id": exchange.session.as_deref(),
        "tags": tags,
        "meta": meta,
        "metrics": metrics,
    })
}
