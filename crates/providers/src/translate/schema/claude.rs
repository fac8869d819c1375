//! What Claude takes as the schema of an answer, or of a tool that it follows to the letter. Bounds that it refuses become
//! words of the description, as its vendor's own clients write them: the model may still follow them.

use std::collections::HashSet;

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

/// What becomes of the schema of a tool that is to be followed to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strict {
    AsItIs,
    /// What is refused is told in words.
    Told(String),
    /// It can only be a hint: strict mode refuses it whatever is said in words.
    Hint,
}

/// Words that no words of the description stand for.
const UNKNOWN: [&str; 8] = [
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
];

pub fn claude_strict(schema: &str) -> Strict {
    let Ok(mut value) = serde_json::from_str::<Value>(schema) else { return Strict::Hint };
    if !is_closed(&value, 0) || !ends(&value, &value, &mut Vec::new(), &mut HashSet::new()) {
        return Strict::Hint;
    }
    if told(&mut value, 0) { Strict::Told(value.to_string()) } else { Strict::AsItIs }
}

/// Whether all objects take what they name and nothing else, and no word is unknown.
fn is_closed(schema: &Value, depth: usize) -> bool {
    let Some(object) = schema.as_object() else { return true };
    let is_object =
        |kind: &Value| kind == "object" || kind.as_array().is_some_and(|kinds| kinds.contains(&"object".into()));
    let is_open = (object.get("type").is_some_and(is_object) || object.contains_key("properties"))
        && object.get("additionalProperties") != Some(&Value::Bool(false));
    let is_plain = |value: &Value| !value.is_object() && !value.is_array();
    let has_plain_values =
        object.get("enum").and_then(Value::as_array).is_none_or(|values| values.iter().all(is_plain));
    let is_known = has_plain_values && !UNKNOWN.iter().any(|word| object.contains_key(*word));
    let defined = ["$defs", "definitions"].into_iter().filter_map(|name| object.get(name)?.as_object());
    let mut inner = inner(object).chain(defined.flat_map(Map::values));
    !is_open && is_known && depth < DEEPEST && inner.all(|inner| is_closed(inner, depth + 1))
}

/// Whether what a schema points to is there and never leads back to itself. `open`: what led here; `done`: what is known
/// to end.
fn ends<'v>(schema: &'v Value, root: &'v Value, open: &mut Vec<&'v str>, done: &mut HashSet<&'v str>) -> bool {
    let Some(object) = schema.as_object() else { return true };
    if let Some(name) = object.get("$ref").and_then(Value::as_str).filter(|name| !done.contains(*name)) {
        let there = name.strip_prefix('#').filter(|path| !path.is_empty()).and_then(|path| root.pointer(path));
        let Some(there) = there.filter(|_| !open.contains(&name) && open.len() < DEEPEST) else { return false };
        open.push(name);
        if !ends(there, root, open, done) {
            return false;
        }
        open.pop();
        done.insert(name);
    }
    inner(object).all(|inner| ends(inner, root, open, done))
}

/// The schemas directly inside a schema, without those that are only defined there.
fn inner(object: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let named = object.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let listed = ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter();
    let listed = listed.filter_map(|name| object.get(name)?.as_array()).flatten();
    named.chain(listed).chain(object.get("items"))
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
    use super::{Strict, claude, claude_strict};
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

    #[test]
    fn only_closed_schemas_that_end_can_be_followed_to_the_letter() {
        let closed =
            |properties: Value| json!({"type": "object", "properties": properties, "additionalProperties": false});
        let strict = |schema: &Value| claude_strict(&schema.to_string());
        assert_eq!(strict(&closed(json!({"a": {"type": "string"}}))), Strict::AsItIs);
        let Strict::Told(told) = strict(&closed(json!({"a": {"type": "integer", "minimum": 1}}))) else {
            panic!("told")
        };
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told, closed(json!({"a": {"type": "integer", "description": "{minimum: 1}"}})));
        for (name, inner) in [
            ("open", json!({"type": "object", "properties": {"b": {}}})),
            ("a map", json!({"type": "object", "additionalProperties": {"type": "string"}})),
            ("deep inside", json!({"type": "array", "items": {"anyOf": [{"type": ["object", "null"]}]}})),
            ("unknown", json!({"not": {"type": "string"}})),
            ("values with parts", json!({"enum": [{"b": 1}]})),
            ("elsewhere", json!({"$ref": "https://example.com/schema"})),
            ("itself", json!({"$ref": "#"})),
            ("nowhere", json!({"$ref": "#/$defs/missing"})),
        ] {
            assert_eq!(strict(&closed(json!({"a": inner}))), Strict::Hint, "{name}");
        }
        let mut tree = closed(json!({"root": {"$ref": "#/$defs/node"}, "other": {"$ref": "#/$defs/leaf"}}));
        tree["$defs"] = json!({"node": closed(json!({"l": {"$ref": "#/$defs/leaf"}, "r": {"$ref": "#/$defs/leaf"}})), "leaf": {"type": "string"}});
        assert_eq!(strict(&tree), Strict::AsItIs, "pointing twice is no circle");
        tree["$defs"]["leaf"] = closed(json!({"up": {"type": "array", "items": {"$ref": "#/$defs/node"}}}));
        assert_eq!(strict(&tree), Strict::Hint, "a circle");
    }
}
