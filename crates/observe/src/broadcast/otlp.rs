//! OTLP over HTTP: what collectors and most vendors take, as protobuf or as JSON. Spans are put into OpenTelemetry's own
//! messages once; both forms are written from those.

use prost::Message as _;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;
use tidegate_core::key::hex;

use super::Service;
use super::message::{
    AnyValue, ArrayValue, Event, ExportTraceServiceRequest, InstrumentationScope, KeyValue, OneValue, Resource,
    ResourceSpans, ScopeSpans, Span as Wire, Status,
};
use super::span::{Attribute, Span};

pub(super) const SCOPE: &str = "gateway";
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// The spans of one trace, with more of the sender than all are told.
pub fn resource_spans(spans: Vec<Span>, service: &Service, more: &[(String, String)]) -> ResourceSpans {
    let brand = &service.brand;
    let mut resource = vec![
        text("service.name", &service.name),
        text("service.version", &service.version),
        text("service.instance.id", &service.instance),
    ];
    if let Some(environment) = &service.environment {
        resource.push(text("deployment.environment.name", environment));
    }
    if let Some(first) = spans.first() {
        resource.push(text(&format!("{brand}.trace.id"), &first.trace));
    }
    resource.extend(more.iter().map(|(name, value)| text(name, value)));
    ResourceSpans {
        resource: Some(Resource { attributes: resource }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope { name: format!("{brand}.{SCOPE}"), version: service.version.clone() }),
            spans: spans.into_iter().map(span).collect(),
        }],
    }
}

/// A whole request of export with these alone. Several of them one after the other are a request, too: that is how protobuf
/// reads lists.
pub fn protobuf(spans: ResourceSpans) -> Vec<u8> {
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

/// One element of a request of export.
pub fn json(spans: &ResourceSpans) -> Vec<u8> {
    // Nearly always enough where nobody hears what was said, so that it need not grow.
    let mut told = Vec::with_capacity(4_096);
    serde_json::to_writer(&mut told, &Json(spans)).expect("texts and numbers are always JSON");
    told
}

/// A request of export from such elements.
pub fn export<'a>(elements: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Vec<u8> {
    let elements = elements.into_iter();
    let length: usize = elements.clone().map(|element| element.len() + 1).sum();
    let mut request = Vec::with_capacity(length + 32);
    request.extend_from_slice(br#"{"resourceSpans":["#);
    for (place, element) in elements.enumerate() {
        if place > 0 {
            request.push(b',');
        }
        request.extend_from_slice(element);
    }
    request.extend_from_slice(b"]}");
    request
}

fn span(span: Span) -> Wire {
    let all = |told: Vec<Attribute>| told.into_iter().map(attribute).collect();
    let event = |(name, at, told): (&'static str, i64, Vec<Attribute>)| Event {
        time_unix_nano: u64::try_from(at).unwrap_or(0),
        name: name.to_owned(),
        attributes: all(told),
    };
    let status = span.error.map(|message| Status { message, code: ERROR });
    Wire {
        trace_id: bytes(&span.trace),
        span_id: bytes(&span.id),
        parent_span_id: span.parent.as_deref().map(bytes).unwrap_or_default(),
        name: span.name,
        kind: span.kind as i32,
        start_time_unix_nano: u64::try_from(span.start_nanos).unwrap_or(0),
        end_time_unix_nano: u64::try_from(span.end_nanos).unwrap_or(0),
        attributes: all(span.attributes),
        events: span.events.into_iter().map(event).collect(),
        status: Some(status.unwrap_or_default()),
    }
}

/// Ids are hex everywhere but here.
fn bytes(hex: &str) -> Vec<u8> {
    let pair = |place: usize| hex.get(place..place + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).filter_map(pair).collect()
}

fn text(name: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(OneValue::String(value.to_owned())) };
    KeyValue { key: name.to_owned(), value: Some(value) }
}

fn attribute(attribute: Attribute) -> KeyValue {
    KeyValue { key: attribute.name.into_owned(), value: Some(any_value(attribute.value)) }
}

pub(super) fn any_value(value: Value) -> AnyValue {
    let value = match value {
        Value::Bool(flag) => Some(OneValue::Bool(flag)),
        Value::Number(number) => Some(match number.as_i64() {
            Some(whole) => OneValue::Int(whole),
            None => OneValue::Double(number.as_f64().unwrap_or(0.0)),
        }),
        Value::String(text) => Some(OneValue::String(text)),
        Value::Array(values) => {
            Some(OneValue::Array(ArrayValue { values: values.into_iter().map(any_value).collect() }))
        }
        Value::Object(_) => Some(OneValue::String(value.to_string())),
        Value::Null => None,
    };
    AnyValue { value }
}

/// The same messages as protobuf writes them in JSON: ids are hex, whole numbers are texts. Written as it is read: a tree
/// of it would be as large again.
pub(super) struct Json<'a, T: ?Sized>(pub &'a T);

impl<'a, T> Serialize for Json<'a, [T]>
where
    Json<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Json))
    }
}

impl Serialize for Json<'_, ResourceSpans> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(resource) = &self.0.resource {
            map.serialize_entry("resource", &Json(resource))?;
        }
        map.serialize_entry("scopeSpans", &Json(&self.0.scope_spans[..]))?;
        map.end()
    }
}

impl Serialize for Json<'_, Resource> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("attributes", &Json(&self.0.attributes[..]))?;
        map.end()
    }
}

impl Serialize for Json<'_, ScopeSpans> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(scope) = &self.0.scope {
            map.serialize_entry("scope", &Json(scope))?;
        }
        map.serialize_entry("spans", &Json(&self.0.spans[..]))?;
        map.end()
    }
}

impl Serialize for Json<'_, InstrumentationScope> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.0.name)?;
        map.serialize_entry("version", &self.0.version)?;
        map.end()
    }
}

impl Serialize for Json<'_, Wire> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let span = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("traceId", &hex(&span.trace_id))?;
        map.serialize_entry("spanId", &hex(&span.span_id))?;
        if !span.parent_span_id.is_empty() {
            map.serialize_entry("parentSpanId", &hex(&span.parent_span_id))?;
        }
        map.serialize_entry("name", &span.name)?;
        map.serialize_entry("kind", &span.kind)?;
        map.serialize_entry("startTimeUnixNano", &format_args!("{}", span.start_time_unix_nano))?;
        map.serialize_entry("endTimeUnixNano", &format_args!("{}", span.end_time_unix_nano))?;
        map.serialize_entry("attributes", &Json(&span.attributes[..]))?;
        if !span.events.is_empty() {
            map.serialize_entry("events", &Json(&span.events[..]))?;
        }
        map.serialize_entry("status", &span.status.as_ref().map(Json))?;
        map.end()
    }
}

impl Serialize for Json<'_, Event> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &self.0.name)?;
        map.serialize_entry("timeUnixNano", &format_args!("{}", self.0.time_unix_nano))?;
        map.serialize_entry("attributes", &Json(&self.0.attributes[..]))?;
        map.end()
    }
}

impl Serialize for Json<'_, Status> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.0.code != 0 {
            map.serialize_entry("code", &self.0.code)?;
            map.serialize_entry("message", &self.0.message)?;
        }
        map.end()
    }
}

impl Serialize for Json<'_, KeyValue> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &self.0.key)?;
        if let Some(value) = &self.0.value {
            map.serialize_entry("value", &Json(value))?;
        }
        map.end()
    }
}

impl Serialize for Json<'_, AnyValue> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.0.value {
            Some(OneValue::Bool(flag)) => map.serialize_entry("boolValue", flag)?,
            Some(OneValue::Double(number)) => map.serialize_entry("doubleValue", number)?,
            Some(OneValue::Int(number)) => map.serialize_entry("intValue", &format_args!("{number}"))?,
            Some(OneValue::String(text)) => map.serialize_entry("stringValue", text)?,
            Some(OneValue::Array(array)) => map.serialize_entry("arrayValue", &Json(array))?,
            None => {}
        }
        map.end()
    }
}

impl Serialize for Json<'_, ArrayValue> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("values", &Json(&self.0.values[..]))?;
        map.end()
    }
}
