//! The same once more in the words of vendors who read others than OpenTelemetry's. What privacy takes from a span's
//! attributes is in none of these: they are made of those that are there.

use serde_json::{Map, Value, json};

use super::span::own_members;
use super::{Attribute, Kind, Part, Said, Span};

/// Adds what a vendor calls otherwise.
pub(super) fn add(kind: Kind, spans: &mut [Span], said: &Said) {
    match kind {
        Kind::Langsmith => {
            let tags = tags(said);
            if !tags.is_empty() {
                for span in spans.iter_mut().filter(|span| span.part != Part::Tool) {
                    put(span, "langsmith.span.tags", json!(tags.join(",")));
                }
            }
        }
        Kind::Arize => spans.iter_mut().for_each(|span| open_inference(span, said)),
        _ => {}
    }
}

/// More of the sender than all are told, from what the caller says of a request.
pub(super) fn resource(kind: Kind, said: &Said) -> Vec<(String, String)> {
    let named = |name: &str| Some((format!("langfuse.{name}"), said.named(name)?.to_owned()));
    match kind {
        Kind::Langfuse => ["environment", "release"].into_iter().filter_map(named).collect(),
        _ => Vec::new(),
    }
}

/// The elements of lists of texts among the caller's own words.
fn tags(said: &Said) -> Vec<&str> {
    let lists = own_members(said).filter_map(|(_, value)| value.as_array());
    let lists = lists.filter(|list| list.iter().all(Value::is_string));
    lists.flatten().filter_map(Value::as_str).collect()
}

fn put(span: &mut Span, name: &'static str, value: Value) {
    span.attributes.push(Attribute { name: name.into(), value });
}

/// OpenInference's names.
fn open_inference(span: &mut Span, said: &Said) {
    let kind = match span.part {
        Part::Around => "CHAIN",
        Part::Generation => "LLM",
        Part::Tool => "TOOL",
    };
    put(span, "openinference.span.kind", json!(kind));
    const NAMES: [(&str, &str); 10] = [
        ("gen_ai.response.model", "llm.model_name"),
        ("gen_ai.provider.name", "llm.provider"),
        ("gen_ai.usage.input_tokens", "llm.token_count.prompt"),
        ("gen_ai.usage.output_tokens", "llm.token_count.completion"),
        ("gen_ai.usage.total_tokens", "llm.token_count.total"),
        ("gen_ai.input.messages", "input.value"),
        ("gen_ai.output.messages", "output.value"),
        ("gen_ai.tool.name", "tool.name"),
        ("gen_ai.tool.call.arguments", "input.value"),
        ("gen_ai.tool.call.result", "output.value"),
    ];
    for (known, theirs) in NAMES {
        if let Some(value) = span.get(known).cloned() {
            put(span, theirs, value);
        }
    }
    for (name, value) in [("input.mime_type", "gen_ai.input.messages"), ("output.mime_type", "gen_ai.output.messages")]
    {
        if span.get(value).is_some() {
            put(span, name, json!("application/json"));
        }
    }
    let parameters = span.parameters();
    if span.part == Part::Generation && !parameters.is_empty() {
        put(span, "llm.invocation_parameters", json!(Value::Object(parameters).to_string()));
    }
    for (name, value) in own_members(said).filter(|(_, value)| !value.is_null()) {
        let value = match value {
            Value::Object(_) | Value::Array(_) => json!(value.to_string()),
            plain => plain.clone(),
        };
        span.attributes.push(Attribute { name: format!("metadata.{name}").into(), value });
    }
    let metadata: Map<String, Value> = own_members(said).map(|(name, value)| (name.clone(), value.clone())).collect();
    if !metadata.is_empty() {
        put(span, "metadata", json!(Value::Object(metadata).to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::SpanKind;

    fn span(part: Part, attributes: &[(&'static str, Value)]) -> Span {
        let attribute =
            |(name, value): &(&'static str, Value)| Attribute { name: (*name).into(), value: value.clone() };
        Span {
            trace: "t".to_owned(),
            id: "s".to_owned(),
            parent: None,
            name: "n".to_owned(),
            part,
            kind: SpanKind::Client,
            start_nanos: 0,
            end_nanos: 0,
            attributes: attributes.iter().map(attribute).collect(),
            error: None,
            events: Vec::new(),
        }
    }

    fn said() -> Said {
        let trace = json!({
            "trace_name": "job", "environment": "staging", "release": "1.2", "team": "blue", "tags": ["a", "b"],
            "numbers": [1, 2], "deep": {"x": 1},
        });
        Said { trace: trace.as_object().unwrap().clone(), ..Said::default() }
    }

    #[test]
    fn langsmith_gets_lists_of_texts_as_tags() {
        let mut spans = [span(Part::Generation, &[]), span(Part::Tool, &[])];
        add(Kind::Langsmith, &mut spans, &said());
        assert_eq!(spans[0].get("langsmith.span.tags"), Some(&json!("a,b")));
        assert_eq!(spans[1].get("langsmith.span.tags"), None);
    }

    #[test]
    fn langfuse_gets_environment_and_release_with_the_sender() {
        let told = resource(Kind::Langfuse, &said());
        let expected = [("langfuse.environment", "staging"), ("langfuse.release", "1.2")];
        assert_eq!(told, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(resource(Kind::Langsmith, &said()).is_empty());
    }

    #[test]
    fn arize_gets_the_names_of_openinference_of_what_is_there() {
        let known = [
            ("gen_ai.response.model", json!("v/m")),
            ("gen_ai.provider.name", json!("P")),
            ("gen_ai.usage.input_tokens", json!(12)),
            ("gen_ai.usage.output_tokens", json!(3)),
            ("gen_ai.usage.total_tokens", json!(15)),
            ("gen_ai.request.temperature", json!(0.5)),
            ("gen_ai.input.messages", json!("[]")),
        ];
        let mut spans = [span(Part::Generation, &known), span(Part::Around, &[])];
        add(Kind::Arize, &mut spans, &said());
        for (name, value) in [
            ("openinference.span.kind", json!("LLM")),
            ("llm.model_name", json!("v/m")),
            ("llm.provider", json!("P")),
            ("llm.token_count.prompt", json!(12)),
            ("llm.token_count.completion", json!(3)),
            ("llm.token_count.total", json!(15)),
            ("input.value", json!("[]")),
            ("input.mime_type", json!("application/json")),
            ("llm.invocation_parameters", json!(r#"{"temperature":0.5}"#)),
            ("metadata.team", json!("blue")),
            ("metadata.deep", json!(r#"{"x":1}"#)),
        ] {
            assert_eq!(spans[0].get(name), Some(&value), "{name}");
        }
        // In privacy there is no answer to be told of.
        assert_eq!((spans[0].get("output.value"), spans[0].get("metadata.trace_name")), (None, None));
        assert_eq!(spans[1].get("openinference.span.kind"), Some(&json!("CHAIN")));
    }
}
