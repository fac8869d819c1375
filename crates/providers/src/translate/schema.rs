//! JSON Schemas of tools and answers, as each protocol takes them. Work is done on a copy; values that are data
//! (`enum`, `const`, `default`, `examples`) and properties that happen to be named like a keyword are never touched.

mod claude;
mod gemini;

use std::borrow::Cow;

use serde_json::{Map, Value};

pub use claude::{Strict, claude, claude_strict};
pub use gemini::{gemini_json, gemini_subset};

/// A tool's schema with what every protocol expects: it is an object, has properties, and no keyword of it is null, which
/// only the Messages format takes for an absent one. One that is so already goes as it came, byte for byte: caches of the
/// prefix depend on that.
pub fn of_tool(schema: &str) -> Cow<'_, str> {
    let mut value: Value = serde_json::from_str(schema).unwrap_or(Value::Null);
    let Some(object) = value.as_object_mut() else { return Cow::Borrowed(r#"{"type":"object","properties":{}}"#) };
    let members = object.len();
    // These two are data, for which null is a value like any other.
    object.retain(|name, value| !value.is_null() || matches!(name.as_str(), "const" | "default"));
    let has_nulls = object.len() < members;
    let is_typed = object.contains_key("type");
    let is_object = !is_typed || object.get("type").is_some_and(|kind| kind == "object");
    let is_proper = is_typed && (!is_object || object.contains_key("properties"));
    if !is_proper {
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    // Nothing else has to be looked at closely for its sake.
    let has_arrays = schema.contains("\"array\"");
    if (has_arrays && with_items(&mut value)) || has_nulls || !is_proper {
        Cow::Owned(value.to_string())
    } else {
        Cow::Borrowed(schema)
    }
}

/// Says of every array what it holds: anything, where nothing was said. Some refuse one that does not say so. Whether any did
/// not.
fn with_items(schema: &mut Value) -> bool {
    let Some(object) = schema.as_object_mut() else { return false };
    let is_array =
        |kind: &Value| kind == "array" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "array"));
    let mut is_changed = false;
    if object.get("type").is_some_and(is_array) && !object.contains_key("items") {
        object.insert("items".to_owned(), Value::Object(Map::new()));
        is_changed = true;
    }
    for inner in children_mut(object) {
        is_changed |= with_items(inner);
    }
    is_changed
}

/// Words that strict mode refuses, or has refused.
const REFUSED: [&str; 19] = [
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
    "minLength",
    "maxLength",
];
/// Formats of texts that it knows.
const FORMATS: [&str; 9] = ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Whether a schema is one that OpenAI's strict mode accepts as it is.
pub fn is_strict(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "object") && strict_everywhere(schema)
}

fn strict_everywhere(schema: &Value) -> bool {
    let Some(object) = schema.as_object() else { return true };
    let is_known = |format: &Value| format.as_str().is_none_or(|format| FORMATS.contains(&format));
    if REFUSED.iter().any(|word| object.contains_key(*word)) || !object.get("format").is_none_or(is_known) {
        return false;
    }
    let is_object = object.get("type").is_some_and(|kind| kind == "object") || object.contains_key("properties");
    if is_object {
        let closed = object.get("additionalProperties") == Some(&Value::Bool(false));
        let properties = object.get("properties").and_then(Value::as_object);
        let required: Vec<&str> =
            object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let all = properties.is_none_or(|properties| properties.keys().all(|name| required.contains(&name.as_str())));
        if !closed || !all {
            return false;
        }
    }
    children(object).all(strict_everywhere)
}

/// The schemas directly inside a schema.
fn children(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let named = ["properties", "$defs", "definitions"];
    let listed = ["anyOf", "oneOf", "prefixItems"];
    let single = ["items", "additionalProperties"];
    let named = named.into_iter().filter_map(|word| object.get(word)?.as_object()).flat_map(Map::values);
    let listed = listed.into_iter().filter_map(|word| object.get(word)?.as_array()).flatten();
    let single = single.into_iter().filter_map(|word| object.get(word)).filter(|value| value.is_object());
    named.chain(listed).chain(single)
}

fn children_mut(object: &mut Map<String, Value>) -> impl Iterator<Item = &mut Value> {
    object.iter_mut().flat_map(|(name, value)| -> Box<dyn Iterator<Item = &mut Value>> {
        match (name.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(named)) => Box::new(named.values_mut()),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(listed)) => Box::new(listed.iter_mut()),
            ("items" | "additionalProperties", inner) => Box::new(std::iter::once(inner)),
            _ => Box::new(std::iter::empty()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_array_says_what_it_holds() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "array"}, "b": {"type": ["array", "null"]}, "items": {"type": "string"},
            "c": {"type": "array", "items": {"type": "array"}}, "d": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        }});
        let made: Value = serde_json::from_str(&of_tool(&schema.to_string())).unwrap();
        assert_eq!(
            made["properties"],
            json!({"a": {"type": "array", "items": {}}, "b": {"type": ["array", "null"], "items": {}}, "items": {"type": "string"},
                "c": {"type": "array", "items": {"type": "array", "items": {}}}, "d": {"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]}})
        );
        let right = r#"{"type":"object",  "properties":{"a":{"type":"array","items":{}}}}"#;
        assert_eq!(of_tool(right), right, "byte for byte");
    }

    #[test]
    fn p46_only_a_schema_that_passes_is_strict() {
        let closed = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
        assert!(is_strict(&closed));
        let mut open = closed.clone();
        open["additionalProperties"] = json!(true);
        let mut optional = closed.clone();
        optional["required"] = json!([]);
        let mut inner = closed.clone();
        inner["properties"]["ok"] = json!({"type": "object", "properties": {"x": {}}});
        let mut patterned = closed.clone();
        patterned["patternProperties"] = json!({});
        let mut unique = closed.clone();
        unique["properties"]["ok"] = json!({"type": "array", "items": {}, "uniqueItems": true});
        let mut formed = closed;
        formed["properties"]["ok"] = json!({"type": "string", "format": "uri"});
        for schema in [open, optional, inner, patterned, unique, formed, json!({"type": "string"}), json!(true)] {
            assert!(!is_strict(&schema), "{schema}");
        }
        // A property that is named like a keyword is a property.
        let named = json!({"type": "object", "properties": {"not": {"type": "string"}}, "required": ["not"], "additionalProperties": false});
        assert!(is_strict(&named));
    }

    #[test]
    fn a_tool_without_a_proper_schema_takes_an_object() {
        let empty = json!({"type": "object", "properties": {}});
        for schema in ["{}", "null", "true", r#"{"type":"object"}"#, r#"{"properties":{}}"#] {
            assert_eq!(serde_json::from_str::<Value>(&of_tool(schema)).unwrap(), empty, "{schema}");
        }
        let given = r#"{"type":"object",  "properties":{"a":{}},"required":["a"], "minProperties":1.0}"#;
        assert_eq!(of_tool(given), given, "byte for byte");
    }

    #[test]
    fn a_keyword_of_a_tool_that_is_null_is_left_out() {
        let made = |schema: Value| serde_json::from_str::<Value>(&of_tool(&schema.to_string())).unwrap();
        let properties = json!({"required": {"const": null}, "b": {"enum": [null]}});
        assert_eq!(
            made(json!({"type": "object", "properties": properties, "required": null, "$defs": null})),
            json!({"type": "object", "properties": properties})
        );
        assert_eq!(
            made(json!({"type": null, "properties": null, "required": null})),
            json!({"type": "object", "properties": {}})
        );
        let data = json!({"type": "object", "properties": {}, "default": null});
        assert_eq!(made(data.clone()), data);
    }
}
