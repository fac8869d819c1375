//! A letter that its destination finds too large, made shorter: long texts are cut until all that was said fits into 64 KiB.

use prost::Message as _;
use serde_json::Value;

use super::message::{AnyValue, ExportTraceServiceRequest, KeyValue, OneValue};

/// What is left of all long texts together, in bytes.
const MOST: usize = 64 << 10;
/// What is not longer is a name, an id or a number and stays.
const SHORT: usize = 512;

/// The letter with its long texts cut; nothing where there is nothing to cut or it cannot be read.
pub(super) fn shortened(letter: &[u8]) -> Option<Vec<u8>> {
    let mut room = Room { left: MOST, has_cut: false };
    let shorter = match letter.first()? {
        b'{' => {
            // Rows are objects of one line each; elements of a list stand beside each other on one.
            let lines: Option<Vec<String>> = std::str::from_utf8(letter)
                .ok()?
                .lines()
                .map(|line| {
                    let mut values: Vec<Value> = serde_json::from_str(&format!("[{line}]")).ok()?;
                    values.iter_mut().for_each(|value| room.value(value));
                    let values: Vec<String> = values.iter().map(Value::to_string).collect();
                    Some(values.join(","))
                })
                .collect();
            lines?.join("\n").into_bytes()
        }
        // An object of a bucket stands behind its name.
        _ if letter.contains(&b'\n') && std::str::from_utf8(letter).is_ok() => {
            let end = letter.iter().position(|byte| *byte == b'\n')?;
            let mut value: Value = serde_json::from_slice(&letter[end + 1..]).ok()?;
            room.value(&mut value);
            [&letter[..=end], value.to_string().as_bytes()].concat()
        }
        _ => {
            let mut request = ExportTraceServiceRequest::decode(letter).ok()?;
            let scopes = request.resource_spans.iter_mut().flat_map(|spans| &mut spans.scope_spans);
            for span in scopes.flat_map(|scope| &mut scope.spans) {
                span.attributes.iter_mut().for_each(|attribute| room.attribute(attribute));
            }
            request.encode_to_vec()
        }
    };
    room.has_cut.then_some(shorter)
}

struct Room {
    left: usize,
    has_cut: bool,
}

impl Room {
    fn text(&mut self, text: &mut String) {
        if text.len() <= SHORT {
            return;
        }
        if text.len() <= self.left {
            self.left -= text.len();
            return;
        }
        let end = (0..=self.left).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let gone = text.len() - end;
        text.truncate(end);
        text.push_str(&format!(" [cut: {gone} bytes more]"));
        (self.left, self.has_cut) = (0, true);
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(members) => members.values_mut().for_each(|value| self.value(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn attribute(&mut self, attribute: &mut KeyValue) {
        if let Some(AnyValue { value: Some(OneValue::String(text)) }) = &mut attribute.value {
            self.text(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::message::{ResourceSpans, ScopeSpans, Span};
    use serde_json::json;

    #[test]
    fn long_texts_are_cut_to_what_is_left_and_short_ones_stay() {
        let letter = json!({"name": "n", "a": "é".repeat(20_000), "b": "y".repeat(60_000), "c": ["z".repeat(600)]});
        let shorter = shortened(letter.to_string().as_bytes()).unwrap();
        let read: Value = serde_json::from_slice(&shorter).unwrap();
        assert_eq!((&read["name"], &read["a"]), (&json!("n"), &letter["a"]), "what fits stays whole");
        // 64 KiB less the 40 000 bytes before it.
        let left = MOST - 40_000;
        assert_eq!(read["b"], json!(format!("{} [cut: {} bytes more]", "y".repeat(left), 60_000 - left)));
        assert_eq!(read["c"][0], json!(" [cut: 600 bytes more]"));
        assert!(shorter.len() < MOST + 1_000);
        assert!(shortened(br#"{"name": "n"}"#).is_none(), "there is nothing to cut");
    }

    #[test]
    fn rows_elements_objects_and_protobuf_are_read_in_their_own_forms() {
        let long = "x".repeat(70_000);
        let rows = format!("{}\n{}", json!({"INPUT": long}), json!({"OUTPUT": "short"}));
        let shorter = String::from_utf8(shortened(rows.as_bytes()).unwrap()).unwrap();
        assert!(shorter.lines().count() == 2 && shorter.len() < MOST + 1_000);
        let elements = format!("{},{}", json!({"name": "a", "input": long}), json!({"name": "b"}));
        let shorter = String::from_utf8(shortened(elements.as_bytes()).unwrap()).unwrap();
        assert!(shorter.len() < MOST + 1_000);
        let read: Vec<Value> = serde_json::from_str(&format!("[{shorter}]")).unwrap();
        assert_eq!((read.len(), &read[0]["name"], &read[1]), (2, &json!("a"), &json!({"name": "b"})));
        let object = format!("prefix/2026/x.json\n{}", json!({"input": long}));
        let shorter = String::from_utf8(shortened(object.as_bytes()).unwrap()).unwrap();
        assert!(shorter.starts_with("prefix/2026/x.json\n{") && shorter.len() < MOST + 1_000);
        let value = Some(AnyValue { value: Some(OneValue::String(long)) });
        let span = Span { attributes: vec![KeyValue { key: "k".to_owned(), value }], ..Span::default() };
        let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
        let spans = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        let request = ExportTraceServiceRequest { resource_spans: vec![spans] };
        let shorter = shortened(&request.encode_to_vec()).unwrap();
        assert!(shorter.len() < MOST + 1_000);
        let read = ExportTraceServiceRequest::decode(&shorter[..]).unwrap();
        assert_eq!(read.resource_spans[0].scope_spans[0].spans[0].attributes[0].key, "k");
        assert_eq!(shortened(b"\xff\xff"), None);
    }
}
