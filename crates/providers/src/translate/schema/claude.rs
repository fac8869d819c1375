//! What Claude takes as the schema of an answer. Bounds that it refuses become words of the description, as its vendor's own
//! clients write them: the model may still follow them.

use serde_json::{Map, Value};

/// Words that it refuses wherever they stand.
const REFUSED: [&str; 12] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];
/// Formats of texts that it knows.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"];
/// Deeper schemas go as they are.
const DEEPEST: usize = 64;

/// The schema with what is refused told in words; nothing where there is none of it.
pub fn claude(schema: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(schema).ok()?;
    told(&mut value, 0).then(|| value.to_string())
}

/// Whether anything was changed.
fn told(schema: &mut Value, depth: usize) -> bool {
    let Some(object) = schema.as_object_mut().filter(|_| depth < DEEPEST) else { return false };
    let mut is_changed = false;
    for name in ["properties", "$defs", "definitions"] {
        for inner in object.get_mut(name).and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
            is_changed |= told(inner, depth + 1);
        }
    }
    for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        for inner in object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            is_changed |= told(inner, depth + 1);
        }
    }
    if let Some(items) = object.get_mut("items") {
        is_changed |= told(items, depth + 1);
    }
    // Of these at least one holds, which is all that can be asked for.
    if !object.contains_key("anyOf")
        && let Some(one_of) = object.remove("oneOf")
    {
        object.insert("anyOf".to_owned(), one_of);
        is_changed = true;
    }
    let is_refused = |name: &str, value: &Value| match name {
        "format" => value.as_str().is_some_and(|format| !FORMATS.contains(&format)),
        "minItems" => value.as_u64().is_none_or(|least| least > 1),
        name => REFUSED.contains(&name),
    };
    let refused: Vec<String> =
        object.iter().filter(|(name, value)| is_refused(name, value)).map(|(name, _)| name.clone()).collect();
    if refused.is_empty() {
        return is_changed;
    }
    let words: Vec<String> = refused
        .into_iter()
        .filter_map(|name| {
            let value = object.remove(&name)?;
            Some(format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)))
        })
        .collect();
    let words = format!("{{{}}}", words.join(", "));
    let said = object.get("description").and_then(Value::as_str).filter(|said| !said.is_empty());
    let said = said.map_or_else(|| words.clone(), |said| format!("{said}\n\n{words}"));
    object.insert("description".to_owned(), Value::String(said));
    true
}

#[cfg(test)]
mod tests {
    use super::claude;
    use serde_json::{Value, json};

    #[test]
    fn bounds_are_words_of_the_description() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": ["n"], "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 10, "description": "A number"},
            "s": {"type": "string", "pattern": "^a", "format": "uri"},
            "f": {"type": "string", "format": "binary"},
            "l": {"type": "array", "minItems": 3, "items": {"type": "number", "exclusiveMinimum": 0}},
            "m": {"type": "array", "minItems": 1, "items": {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]}},
            "minimum": {"type": "string"},
        }});
        let made: Value = serde_json::from_str(&claude(&schema.to_string()).unwrap()).unwrap();
        assert_eq!(
            made["properties"],
            json!({
                "n": {"type": "integer", "description": "A number\n\n{minimum: 1, maximum: 10}"},
                "s": {"type": "string", "format": "uri", "description": "{pattern: ^a}"},
                "f": {"type": "string", "description": "{format: binary}"},
                "l": {"type": "array", "items": {"type": "number", "description": "{exclusiveMinimum: 0}"}, "description": "{minItems: 3}"},
                "m": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string", "description": "{maxLength: 2}"}, {"type": "null"}]}},
                "minimum": {"type": "string"},
            })
        );
        assert_eq!((&made["required"], &made["additionalProperties"]), (&json!(["n"]), &json!(false)));
        assert_eq!(claude(r#"{"type":"object","properties":{"a":{"enum":["x"],"default":"x"}}}"#), None);
    }
}
