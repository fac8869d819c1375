//! OTLP over HTTP: what collectors and most vendors take, as protobuf or as JSON. Spans are put into OpenTelemetry's own
//! messages once; both forms are written from those.

use prost::Message as _;
use serde_json::{Map, Value, json};

use super::Service;
use super::message::{
    AnyValue, ArrayValue, Event, ExportTraceServiceRequest, InstrumentationScope, KeyValue, OneValue, Resource,
    ResourceSpans, ScopeSpans, Span as Wire, Status,
};
use super::span::{Attribute, Span};

const SCOPE: &str = "gateway";
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// The spans of one trace, with more of the sender than all are told.
pub fn resource_spans(spans: &[Span], service: &Service, more: &[(String, String)]) -> ResourceSpans {
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
    resource.extend(more.iter().map(|(name, value)| attribute(name, &json!(value))));
    ResourceSpans {
        resource: Some(Resource { attributes: resource }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope { name: format!("{brand}.{SCOPE}"), version: service.version.clone() }),
            spans: spans.iter().map(span).collect(),
        }],
    }
}

/// A whole request of export with these alone. Several of them one after the other are a request, too: that is how protobuf
/// reads lists.
pub fn protobuf(spans: ResourceSpans) -> Vec<u8> {
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

/// One element of a request of export.
pub fn json(spans: &ResourceSpans) -> Value {
    let resource = spans.resource.iter().flat_map(|resource| &resource.attributes);
    let scopes = spans.scope_spans.iter().map(|scope| {
        let name = scope.scope.as_ref().map(|scope| json!({"name": scope.name, "version": scope.version}));
        json!({"scope": name, "spans": scope.spans.iter().map(json_span).collect::<Vec<_>>()})
    });
    json!({
        "resource": {"attributes": resource.map(json_attribute).collect::<Vec<_>>()},
        "scopeSpans": scopes.collect::<Vec<_>>(),
    })
}

/// A request of export from such elements.
pub fn export<'a>(elements: impl IntoIterator<Item = &'a str>) -> String {
    let elements: Vec<&str> = elements.into_iter().collect();
    format!(r#"{{"resourceSpans":[{}]}}"#, elements.join(","))
}

fn span(span: &Span) -> Wire {
    let event = |(name, at, told): &(&'static str, i64, Vec<Attribute>)| Event {
        time_unix_nano: u64::try_from(*at).unwrap_or(0),
        name: (*name).to_owned(),
        attributes: told.iter().map(|each| attribute(&each.name, &each.value)).collect(),
    };
    let status = span.error.as_ref().map(|error| Status { message: error.clone(), code: ERROR });
    Wire {
        trace_id: bytes(&span.trace),
        span_id: bytes(&span.id),
        parent_span_id: span.parent.as_deref().map(bytes).unwrap_or_default(),
        name: span.name.clone(),
        kind: span.kind as i32,
        start_time_unix_nano: u64::try_from(span.start_nanos).unwrap_or(0),
        end_time_unix_nano: u64::try_from(span.end_nanos).unwrap_or(0),
        attributes: span.attributes.iter().map(|each| attribute(&each.name, &each.value)).collect(),
        events: span.events.iter().map(event).collect(),
        status: Some(status.unwrap_or_default()),
    }
}

/// Ids are hex everywhere but here.
fn bytes(hex: &str) -> Vec<u8> {
    let pair = |place: usize| hex.get(place..place + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).filter_map(pair).collect()
}

fn attribute(name: &str, value: &Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(any_value(value)) }
}

fn any_value(value: &Value) -> AnyValue {
    let value = match value {
        Value::Bool(flag) => Some(OneValue::Bool(*flag)),
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => OneValue::Int(whole),
            None => OneValue::Double(number.as_f64().unwrap_or(0.0)),
        }),
        Value::String(text) => Some(OneValue::String(text.clone())),
        Value::Array(values) => Some(OneValue::Array(ArrayValue { values: values.iter().map(any_value).collect() })),
        Value::Object(_) => Some(OneValue::String(value.to_string())),
        Value::Null => None,
    };
    AnyValue { value }
}

fn json_span(span: &Wire) -> Value {
    let mut members = Map::new();
    let mut add = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    add("traceId", json!(hex(&span.trace_id)));
    add("spanId", json!(hex(&span.span_id)));
    if !span.parent_span_id.is_empty() {
        add("parentSpanId", json!(hex(&span.parent_span_id)));
    }
    add("name", json!(span.name));
    add("kind", json!(span.kind));
    add("startTimeUnixNano", json!(span.start_time_unix_nano.to_string()));
    add("endTimeUnixNano", json!(span.end_time_unix_nano.to_string()));
    add("attributes", span.attributes.iter().map(json_attribute).collect());
    let event = |event: &Event| {
        let attributes: Vec<Value> = event.attributes.iter().map(json_attribute).collect();
        json!({"name": event.name, "timeUnixNano": event.time_unix_nano.to_string(), "attributes": attributes})
    };
    if !span.events.is_empty() {
        add("events", span.events.iter().map(event).collect());
    }
    let failed = span.status.as_ref().filter(|status| status.code != 0);
    add("status", failed.map_or_else(|| json!({}), |status| json!({"code": status.code, "message": status.message})));
    Value::Object(members)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json_attribute(attribute: &KeyValue) -> Value {
    json!({"key": attribute.key, "value": attribute.value.as_ref().map_or_else(|| json!({}), json_value)})
}

/// Whole numbers are texts in this format, as in all of protobuf's JSON.
fn json_value(value: &AnyValue) -> Value {
    match &value.value {
        Some(OneValue::Bool(flag)) => json!({"boolValue": flag}),
        Some(OneValue::Double(number)) => json!({"doubleValue": number}),
        Some(OneValue::Int(number)) => json!({"intValue": number.to_string()}),
        Some(OneValue::String(text)) => json!({"stringValue": text}),
        Some(OneValue::Array(array)) => {
            json!({"arrayValue": {"values": array.values.iter().map(json_value).collect::<Vec<_>>()}})
        }
        None => json!({}),
    }
}
