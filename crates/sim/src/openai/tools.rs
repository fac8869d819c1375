//! Checks of function tools that both protocols make.

use serde_json::Value;

use super::place::Place;
use crate::failure::Failure;

const NAME: usize = 64;

/// A tool's or a schema's name.
pub(crate) fn check_name(name: &Place<'_>) -> Result<(), Failure> {
    let text = name.text()?;
    let path = &name.path;
    if text.len() > NAME {
        let message = format!(
            "Invalid '{path}': string too long. Expected a string with maximum length {NAME}, but got a string with \
                length {} instead.",
            text.len()
        );
        return Err(name.wrong("string_above_max_length", &message));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match !text.is_empty() && text.bytes().all(plain) {
        true => Ok(()),
        false => Err(name.wrong(
            "invalid_value",
            &format!(
                "Invalid '{path}': string does not match pattern. \
            Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ),
        )),
    }
}

/// The schema of a function's parameters or of a structured answer; a strict one must leave nothing open.
pub(crate) fn check_schema(schema: &Place<'_>, owner: &str, strict: bool) -> Result<(), Failure> {
    schema.object()?;
    let problem = match schema.value["type"].as_str() {
        Some("object") => strict.then(|| loose(schema.value, "()")).flatten(),
        other => Some(format!(
            "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{}\"'.",
            other.unwrap_or("None")
        )),
    };
    match problem {
        None => Ok(()),
        Some(problem) => {
            let message = format!("Invalid schema for {owner}: {problem}");
            Err(schema.wrong("invalid_function_parameters", &message))
        }
    }
}

/// What makes a schema unfit for strict mode.
fn loose(schema: &Value, context: &str) -> Option<String> {
    if let Some(word) = ["allOf", "not", "if", "patternProperties"].into_iter().find(|word| schema.get(word).is_some())
    {
        return Some(format!("In context={context}, '{word}' is not permitted."));
    }
    if schema["type"] == "object" {
        if schema["additionalProperties"] != Value::Bool(false) {
            return Some(format!(
                "In context={context}, 'additionalProperties' is required to be supplied and to be false."
            ));
        }
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            if !required.contains(&name.as_str()) {
                return Some(format!(
                    "In context={context}, 'required' is required to be supplied and to be an array including every \
                        key in properties. Missing '{name}'."
                ));
            }
            if let Some(problem) = loose(inner, &format!("('properties', '{name}')")) {
                return Some(problem);
            }
        }
    }
    schema.get("items").and_then(|items| loose(items, "('items')"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strict_schemas_leave_nothing_open() {
        let check = |schema: Value, strict| check_schema(&Place::root(&schema), "function 'f'", strict).is_ok();
        let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        assert!(check(open.clone(), false) && !check(open, true));
        let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "additionalProperties": false});
        assert!(check(closed, true));
        let outer = json!({"type": "object", "properties": {"o": {"type": "object"}}, "required": ["o"],
            "additionalProperties": false});
        assert!(!check(outer, true));
        assert!(!check(json!({"type": "string"}), false));
    }
}
