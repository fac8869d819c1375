//! Answers of servers that are careless with the Messages format: counts with a point in them, members that are missing.
//! They are read once more, put right; those that are right cost nothing of it.

use serde_json::{Map, Value, json};

use crate::messages::{Event, Response};

/// An answer; nothing where it is none, however it is read.
pub(crate) fn response(body: &[u8]) -> Option<Response> {
    Response::parse(body).ok().or_else(|| {
        let mut value: Value = serde_json::from_slice(body).ok()?;
        let members = value.as_object_mut().filter(|members| members.contains_key("content"))?;
        complete(members);
        whole_numbers(members.entry("usage").or_insert_with(|| json!({})));
        Response::parse(value.to_string().as_bytes()).ok()
    })
}

/// An event; nothing where nobody knows it.
pub(crate) fn event(data: &[u8]) -> Option<Event> {
    let event = Event::parse(data).ok()?;
    let Event::Other(other) = &event else { return Some(event) };
    let mut value: Value = other.raw.parse().ok()?;
    if let Some(message) = value.get_mut("message").and_then(Value::as_object_mut) {
        complete(message);
    }
    whole_numbers(&mut value);
    Event::parse(value.to_string().as_bytes()).ok()
}

fn complete(message: &mut Map<String, Value>) {
    let usual = [
        ("id", json!("")),
        ("type", json!("message")),
        ("role", json!("assistant")),
        ("model", json!("")),
        ("content", json!([])),
        ("usage", json!({})),
    ];
    for (name, value) in usual {
        message.entry(name).or_insert(value);
    }
}

/// Numbers without a fraction are whole ones.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_u64() => {
            if let Some(whole) = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number))
            {
                *value = json!(whole as u64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}
