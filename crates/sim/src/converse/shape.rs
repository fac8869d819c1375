//! Checks a value against the service's definition, with the errors of a server generated from one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::failure::Failure;

/// What a value may be.
pub(super) enum Shape {
    /// Free JSON: what goes to the model as it is.
    Any,
    Text {
        min: usize,
        max: usize,
    },
    /// Text of up to `max` of these characters.
    Plain {
        max: usize,
        allowed: fn(char) -> bool,
        pattern: &'static str,
    },
    /// Words separated by spaces.
    OneOf(&'static str),
    Flag,
    Count {
        least: i64,
    },
    /// From 0 to 1.
    Share,
    Bytes,
    List {
        of: &'static Shape,
        min: usize,
        max: usize,
    },
    Object(&'static [Member]),
    /// An object of exactly one of these members.
    Union(&'static [Member]),
    /// Names and texts of these shapes.
    Map {
        key: &'static Shape,
        value: &'static Shape,
        max: usize,
    },
}

pub(super) struct Member {
    name: &'static str,
    needed: bool,
    shape: &'static Shape,
}

pub(super) const fn need(name: &'static str, shape: &'static Shape) -> Member {
    Member { name, needed: true, shape }
}

pub(super) const fn may(name: &'static str, shape: &'static Shape) -> Member {
    Member { name, needed: false, shape }
}

impl Shape {
    pub fn check(&self, path: &str, value: &Value) -> Result<(), Failure> {
        match self {
            Shape::Any => Ok(()),
            Shape::Text { min, max } => {
                let found = text(path, value)?;
                if found.chars().count() < *min {
                    let problem = format!("Member must have length greater than or equal to {min}");
                    return Err(violation(path, found, &problem));
                }
                at_most(path, found, found.chars().count(), *max)
            }
            Shape::Plain { max, allowed, pattern } => {
                let found = text(path, value)?;
                if found.is_empty() || !found.chars().all(allowed) {
                    let problem = format!("Member must satisfy regular expression pattern: {pattern}");
                    return Err(violation(path, found, &problem));
                }
                at_most(path, found, found.chars().count(), *max)
            }
            Shape::OneOf(words) => {
                let found = text(path, value)?;
                match words.split(' ').any(|word| word == found) {
                    true => Ok(()),
                    false => {
                        let listed = words.replace(' ', ", ");
                        Err(violation(path, found, &format!("Member must satisfy enum value set: [{listed}]")))
                    }
                }
            }
            Shape::Flag => value.as_bool().map(|_| ()).ok_or_else(|| mistyped(path, value, "Boolean")),
            Shape::Count { least } => match value.as_i64().ok_or_else(|| mistyped(path, value, "Integer"))? {
                found if found >= *least => Ok(()),
                found => {
                    let problem = format!("Member must have value greater than or equal to {least}");
                    Err(violation(path, &found.to_string(), &problem))
                }
            },
            Shape::Share => match value.as_f64().ok_or_else(|| mistyped(path, value, "Float"))? {
                found if (0.0..=1.0).contains(&found) => Ok(()),
                found => {
                    let problem = match found > 1.0 {
                        true => "Member must have value less than or equal to 1",
                        false => "Member must have value greater than or equal to 0",
                    };
                    Err(violation(path, &found.to_string(), problem))
                }
            },
            Shape::Bytes => {
                let found = text(path, value)?;
                match STANDARD.decode(found) {
                    Ok(bytes) if bytes.is_empty() => {
                        Err(violation(path, "", "Member must have length greater than or equal to 1"))
                    }
                    Ok(_) => Ok(()),
                    Err(_) => Err(mistyped(path, value, "ByteBuffer")),
                }
            }
            Shape::List { of, min, max } => {
                let items = value.as_array().ok_or_else(|| mistyped(path, value, "List"))?;
                if items.len() < *min {
                    let problem = format!("Member must have length greater than or equal to {min}");
                    return Err(violation(path, "[]", &problem));
                }
                at_most(path, "[…]", items.len(), *max)?;
                items.iter().enumerate().try_for_each(|(at, item)| of.check(&inner(path, &at.to_string()), item))
            }
            Shape::Object(members) => {
                let object = object(path, value)?;
                for (name, value) in object {
                    let member = members.iter().find(|member| member.name == name);
                    member.ok_or_else(|| stranger(path, name))?.shape.check(&inner(path, name), value)?;
                }
                match members.iter().find(|member| member.needed && !object.contains_key(member.name)) {
                    None => Ok(()),
                    Some(missing) => Err(null(&inner(path, missing.name))),
                }
            }
            Shape::Union(members) => {
                let object = object(path, value)?;
                Shape::Object(members).check(path, value)?;
                match object.len() {
                    1 => Ok(()),
                    found => Err(Failure::new(
                        400,
                        format!("Exactly one member of the union at {path} must be set, but {found} are."),
                    )),
                }
            }
            Shape::Map { key, value: of, max } => {
                let object = object(path, value)?;
                at_most(path, "{…}", object.len(), *max)?;
                for (name, value) in object {
                    key.check(path, &Value::String(name.clone()))?;
                    of.check(&inner(path, name), value)?;
                }
                Ok(())
            }
        }
    }
}

fn inner(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    }
}

fn text<'v>(path: &str, value: &'v Value) -> Result<&'v str, Failure> {
    value.as_str().ok_or_else(|| mistyped(path, value, "String"))
}

fn object<'v>(path: &str, value: &'v Value) -> Result<&'v serde_json::Map<String, Value>, Failure> {
    value.as_object().ok_or_else(|| mistyped(path, value, "Structure"))
}

fn at_most(path: &str, shown: &str, found: usize, max: usize) -> Result<(), Failure> {
    match found <= max {
        true => Ok(()),
        false => {
            let problem = format!("Member must have length less than or equal to {max}");
            let shown: String = shown.chars().take(64).collect();
            Err(violation(path, &shown, &problem))
        }
    }
}

fn violation(path: &str, value: &str, problem: &str) -> Failure {
    let message =
        format!("1 validation error detected: Value '{value}' at '{path}' failed to satisfy constraint: {problem}");
    Failure::new(400, message)
}

/// A member that has to be there.
fn null(path: &str) -> Failure {
    let problem = "Member must not be null";
    let message =
        format!("1 validation error detected: Value null at '{path}' failed to satisfy constraint: {problem}");
    Failure::new(400, message)
}

/// A member that the definition does not have.
pub(crate) fn stranger(path: &str, name: &str) -> Failure {
    let place = if path.is_empty() { "#".to_owned() } else { format!("#/{}", path.replace('.', "/")) };
    let message = format!(
        "Malformed input request: {place}: extraneous key [{name}] is not permitted, please reformat your input and \
         try again."
    );
    Failure::new(400, message)
}

/// A value that cannot even be read.
fn mistyped(path: &str, value: &Value, expected: &str) -> Failure {
    let found = match value {
        Value::Null => "NULL_VALUE",
        Value::Bool(true) => "TRUE_VALUE",
        Value::Bool(false) => "FALSE_VALUE",
        Value::Number(_) => "NUMBER_VALUE",
        Value::String(_) => "STRING_VALUE",
        Value::Array(_) => "START_ARRAY",
        Value::Object(_) => "START_OBJECT",
    };
    let message = format!("{found} can not be converted to {expected} at {path}");
    Failure { code: Some("SerializationException"), ..Failure::new(400, message) }
}
