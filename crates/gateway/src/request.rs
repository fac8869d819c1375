//! The whole of a request as values, for those who change it. The envelope reads over much of it: what it holds beside that
//! may be nothing that a program can hold.

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_wire::json::{self, Kind, Members};

use crate::failure::Failure;

/// Names that are longer are not repeated.
const LONGEST_NAME: usize = 64;

/// The members of a request's body. The failure names the first value that cannot be read: a text with half a character in
/// it, or a number beyond all bounds.
pub(crate) fn read(body: &[u8]) -> Result<Map<String, Value>, Failure> {
    serde_json::from_slice(body).map_err(|_| {
        let place = serde_json::from_slice::<&RawValue>(body).ok().and_then(unreadable);
        let place = place.filter(|place| !place.is_empty()).unwrap_or_else(|| "body".to_owned());
        Failure::invalid(format!("Invalid request: {} has an invalid format", place.trim_start_matches('.')))
    })
}

/// The tools of a request, to add to them; `null` is the same as none. Nothing where they are no list.
pub(crate) fn tools(request: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    let tools = request.entry("tools").or_insert(Value::Null);
    if tools.is_null() {
        *tools = Value::Array(Vec::new());
    }
    tools.as_array_mut()
}

/// Where the first value is that cannot be read; nothing where all can be.
fn unreadable(value: &RawValue) -> Option<String> {
    if serde_json::from_str::<Value>(value.get()).is_ok() {
        return None;
    }
    let inside = match json::kind(value) {
        Kind::Object => Members::of(value)?.0.iter().find_map(|(name, value)| {
            let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
            let inside = unreadable(value)?;
            Some(if is_plain && name.len() <= LONGEST_NAME { format!(".{name}{inside}") } else { String::new() })
        }),
        Kind::Array => {
            let entries = json::elements(value)?;
            entries.iter().enumerate().find_map(|(place, entry)| Some(format!("[{place}]{}", unreadable(entry)?)))
        }
        _ => None,
    };
    // Nothing inside it is wrong: it is the value itself.
    Some(inside.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_are_null_are_none() {
        for given in ["{}", r#"{"tools":null}"#, r#"{"tools":[]}"#] {
            let mut request = read(given.as_bytes()).unwrap();
            tools(&mut request).unwrap().push(Value::Bool(true));
            assert_eq!(Value::Object(request).to_string(), r#"{"tools":[true]}"#, "{given}");
        }
        let mut request = read(br#"{"tools":1}"#).unwrap();
        assert!(tools(&mut request).is_none());
    }

    #[test]
    fn what_cannot_be_read_is_named_and_not_repeated() {
        for (body, place) in [
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a\ud800"}]}]}"#,
                "messages[0].content[0].text",
            ),
            (r#"{"messages":[],"tools":[{},{"input_schema":{"maximum":1e999}}]}"#, "tools[1].input_schema.maximum"),
            (r#"{"a b":{"c":"\udc00"}}"#, "body"),
            ("[1]", "body"),
        ] {
            let failure = read(body.as_bytes()).unwrap_err();
            let text = format!("Invalid request: {place} has an invalid format");
            assert_eq!((failure.status, failure.message.as_ref()), (400, text.as_str()), "{body}");
        }
        assert_eq!(read(br#"{"a":"\ud83d\ude00"}"#).unwrap()["a"], "\u{1f600}");
    }
}
