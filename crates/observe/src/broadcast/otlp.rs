//! OTLP over HTTP, as JSON: what collectors and most vendors take.

use serde_json::{Map, Value, json};

use super::Service;
use super::span::{Attribute, Span};

const SCOPE: &str = "gateway";

/// The spans of one trace, as one element of `resourceSpans`.
pub fn resource_spans(spans: &[Span], service: &Service) -> Value {
    let brand = &service.brand;
    let mut resource = vec![
        attribute("service.name", &json!(service.name)),
        attribute("service.version", &json!(service.version)),
        attribute("service.instance.id", &json!(service.instance)),
    ];
    if let Some(environment) = &service.environment {
        resource.push(attribute("deployment.environment.name", &json!(environment)));
    }
    if let Some(first) = spans.first() {
        resource.push(attribute(&format!("{brand}.trace.id"), &json!(first.trace)));
    }
    json!({
        "resource": {"attributes": resource},
        "scopeSpans": [{
            "scope": {"name": format!("{brand}.{SCOPE}"), "version": service.version},
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    })
}

/// A request of export from elements that were made before.
pub fn export<'a>(elements: impl IntoIterator<Item = &'a str>) -> String {
    let elements: Vec<&str> = elements.into_iter().collect();
    format!(r#"{{"resourceSpans":[{}]}}"#, elements.join(","))
}

fn span(span: &Span) -> Value {
    let mut members = Map::new();
    members.insert("traceId".into(), json!(span.trace));
    members.insert("spanId".into(), json!(span.id));
    if let Some(parent) = &span.parent {
        members.insert("parentSpanId".into(), json!(parent));
    }
    members.insert("name".into(), json!(span.name));
    members.insert("kind".into(), json!(span.kind as i32));
    members.insert("startTimeUnixNano".into(), json!(span.start_nanos.to_string()));
    members.insert("endTimeUnixNano".into(), json!(span.end_nanos.to_string()));
    members.insert("attributes".into(), attributes(&span.attributes));
    let event = |(name, at, told): &(&'static str, i64, Vec<Attribute>)| json!({"name": name, "timeUnixNano": at.to_string(), "attributes": attributes(told)});
    if !span.events.is_empty() {
        members.insert("events".into(), span.events.iter().map(event).collect());
    }
    let status = span.error.as_ref().map_or_else(|| json!({}), |error| json!({"code": 2, "message": error}));
    members.insert("status".into(), status);
    Value::Object(members)
}

fn attributes(attributes: &[Attribute]) -> Value {
    attributes.iter().map(|each| attribute(&each.name, &each.value)).collect()
}

fn attribute(name: &str, value: &Value) -> Value {
    json!({"key": name, "value": any_value(value)})
}

/// Whole numbers are texts in this format, as in all of protobuf's JSON.
fn any_value(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!({"boolValue": flag}),
        Value::Number(number) if number.is_f64() => json!({"doubleValue": number}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::String(text) => json!({"stringValue": text}),
        Value::Array(values) => json!({"arrayValue": {"values": values.iter().map(any_value).collect::<Vec<_>>()}}),
        Value::Object(_) => json!({"stringValue": value.to_string()}),
        Value::Null => json!({}),
    }
}
