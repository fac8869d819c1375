//! What upstreams send is not to be trusted: every value of every example is replaced by something else, one at a time,
//! and nothing may panic or leave the grammar of a stream.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_providers::adapter;

use crate::run::{Case, LARGEST_EVENT, NOW, all, grammar, parsed};

/// How many values there are inside of a value, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    }
}

/// Replaces the value with this number, counted as above.
fn replace(value: &mut Value, place: &mut usize, with: &Value) {
    if *place == 0 {
        *value = with.clone();
    }
    let inside: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    };
    for inner in inside {
        *place = place.wrapping_sub(1);
        replace(inner, place, with);
    }
}

fn changed(value: &Value) -> Vec<Value> {
    let others = [Value::Null, json!(-1.5), json!("x"), json!([]), json!({}), json!([null, 1, "é"]), json!(1e300)];
    (0..count(value))
        .map(|place| {
            let mut made = value.clone();
            let other = &others[place % others.len()];
            replace(&mut made, &mut place.clone(), other);
            made
        })
        .collect()
}

#[test]
fn no_answer_panics() {
    for (protocol, path) in all() {
        let case = Case::read(protocol, &path);
        let Some(Ok(answer)) = case.text("answer.json").map(|text| serde_json::from_str::<Value>(&text)) else {
            continue;
        };
        for answer in changed(&answer) {
            let text = answer.to_string();
            let _ = adapter::message(protocol, text.as_bytes(), &case.context(), NOW);
            let mut translator = adapter::translator(protocol, &case.context(), NOW, LARGEST_EVENT).unwrap();
            grammar(&parsed(&translator.whole(text.as_bytes())), &text);
        }
    }
}

#[test]
fn no_stream_panics_or_breaks_the_grammar() {
    for (protocol, path) in all() {
        let case = Case::read(protocol, &path);
        let Some(text) = case.text("stream.txt") else { continue };
        let lines: Vec<&str> = text.split('\n').collect();
        for (place, line) in lines.iter().enumerate() {
            let Some(Ok(data)) = line.strip_prefix("data: ").map(serde_json::from_str::<Value>) else { continue };
            for data in changed(&data) {
                let line = format!("data: {data}");
                let lines = lines.iter().enumerate().map(|(at, old)| if at == place { line.as_str() } else { old });
                let stream = lines.collect::<Vec<_>>().join("\n");
                let mut translator = adapter::translator(protocol, &case.context(), NOW, LARGEST_EVENT).unwrap();
                let mut out = translator.feed(Bytes::from(stream.clone())).to_vec();
                if translator.fault().is_none() {
                    out.extend_from_slice(&translator.end());
                }
                grammar(&parsed(&out), &stream);
            }
        }
    }
}
