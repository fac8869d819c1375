//! The schema of an answer, as structured output of the Messages format takes it: every object with properties is closed.
//! OpenAI's formats leave that open unless they are strict, and a provider refuses what is open.

use serde_json::value::RawValue;

use super::request::Object;
use crate::json::{self, Kind, Members};

/// Members that hold schemas under names.
const NAMED: [&str; 3] = ["properties", "$defs", "definitions"];
/// Members that hold lists of schemas.
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Of these the parts may be of one object.
const COMPOSED: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Members that are schemas.
const SINGLE: [&str; 2] = ["items", "additionalProperties"];
const MORE: &str = "additionalProperties";

/// A schema whose objects take what they name and nothing else. Those that name nothing are maps, and stay open, and so do
/// those that say that they are. Parts of one object are left alone: closed each for itself, they would leave room for
/// nothing.
pub(crate) fn closed(schema: &RawValue) -> String {
    let Some(members) = members(schema) else { return schema.get().to_owned() };
    let has_properties = members.get("properties").is_some_and(|value| json::kind(value) == Kind::Object);
    let is_silent = members.get(MORE).is_none_or(|more| more.get() == "null");
    let is_composed = COMPOSED.iter().any(|name| members.get(name).is_some());
    let is_closing = has_properties && is_silent && !is_composed;
    let mut out = Object::default();
    for (name, value) in members.0.iter().filter(|(name, _)| !is_closing || name != MORE) {
        match name.as_ref() {
            name if NAMED.contains(&name) => out.set(name, &each_named(value)),
            name if COMPOSED.contains(&name) && (has_properties || name == "allOf") => out.set(name, value.get()),
            name if LISTED.contains(&name) => out.set(name, &each_listed(value)),
            name if SINGLE.contains(&name) && json::kind(value) == Kind::Array => out.set(name, &each_listed(value)),
            name if SINGLE.contains(&name) => out.set(name, &closed(value)),
            name => out.set(name, value.get()),
        }
    }
    if is_closing {
        out.set(MORE, "false");
    }
    out.finish()
}

fn members(value: &RawValue) -> Option<Members<'_>> {
    Members::of(value).filter(|_| json::kind(value) == Kind::Object)
}

fn each_named(value: &RawValue) -> String {
    let Some(members) = members(value) else { return value.get().to_owned() };
    let mut out = Object::default();
    for (name, schema) in &members.0 {
        out.set(name, &closed(schema));
    }
    out.finish()
}

fn each_listed(value: &RawValue) -> String {
    match json::elements(value).filter(|_| json::kind(value) == Kind::Array) {
        Some(schemas) => format!("[{}]", schemas.into_iter().map(closed).collect::<Vec<_>>().join(",")),
        None => value.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_with_properties_are_closed_and_nothing_else_is_touched() {
        for (open, expected) in [
            (
                r#"{"type":"object","properties":{"a":{}}}"#,
                r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#,
            ),
            (
                r#"{"additionalProperties":null,"properties":{"a":{"type":"array","items":{"properties":{}}}}}"#,
                r#"{"properties":{"a":{"type":"array","items":{"properties":{},"additionalProperties":false}}},"additionalProperties":false}"#,
            ),
            (
                r##"{"anyOf":[{"$ref":"#/$defs/x"},{"properties":{}}],"$defs":{"x":{"properties":{}}}}"##,
                r##"{"anyOf":[{"$ref":"#/$defs/x"},{"properties":{},"additionalProperties":false}],"$defs":{"x":{"properties":{},"additionalProperties":false}}}"##,
            ),
            // A map, one that says what else it takes, one that is closed, data, and a property that is named like a keyword.
            (r#"{"type":"object"}"#, r#"{"type":"object"}"#),
            (r#"{"properties":{},"additionalProperties":true}"#, r#"{"properties":{},"additionalProperties":true}"#),
            // Parts of one object.
            (
                r#"{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}"#,
                r#"{"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}]}"#,
            ),
            (
                r#"{"properties":{"a":{}},"anyOf":[{"properties":{"b":{}}}]}"#,
                r#"{"properties":{"a":{}},"anyOf":[{"properties":{"b":{}}}]}"#,
            ),
            (
                r#"{"properties":{},"additionalProperties":{"maximum":1e400}}"#,
                r#"{"properties":{},"additionalProperties":{"maximum":1e400}}"#,
            ),
            (r#"{"properties":{},"additionalProperties":false}"#, r#"{"properties":{},"additionalProperties":false}"#),
            (r#"{"enum":[{"properties":{}}]}"#, r#"{"enum":[{"properties":{}}]}"#),
            (
                r#"{"properties":{"items":{"type":"string"},"properties":{"const":{"properties":{}}}}}"#,
                r#"{"properties":{"items":{"type":"string"},"properties":{"const":{"properties":{}}}},"additionalProperties":false}"#,
            ),
            ("true", "true"),
        ] {
            assert_eq!(closed(serde_json::from_str(open).unwrap()), expected, "{open}");
        }
    }
}
