//! Arguments that come value by value, each with the path of its place. They are gathered until the call is whole.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_wire::json;

/// No path of a sane call is deeper, no list of it longer.
const DEEPEST: usize = 64;
const LONGEST: usize = 10_000;

/// One assignment: a path such as `$.stops[0].name`, and a value of one of four kinds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartialArg<'a> {
    #[serde(borrow, default)]
    json_path: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    string_value: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    number_value: Option<&'a RawValue>,
    #[serde(default)]
    bool_value: Option<bool>,
    #[serde(borrow, default)]
    null_value: Option<&'a RawValue>,
}

/// The arguments so far.
#[derive(Debug, Default)]
pub(super) struct Partial {
    value: Option<Value>,
}

enum Step {
    Name(String),
    Place(usize),
}

impl Partial {
    pub fn is_open(&self) -> bool {
        self.value.is_some()
    }

    pub fn open(&mut self) {
        self.value.get_or_insert_with(|| Value::Object(Map::new()));
    }

    /// The whole arguments, as JSON.
    pub fn take(&mut self) -> String {
        self.value.take().map_or_else(|| "{}".to_owned(), |value| value.to_string())
    }

    /// Puts a value in its place. A text that is there already goes on.
    pub fn apply(&mut self, piece: &PartialArg<'_>) {
        let value = if let Some(text) = &piece.string_value {
            Value::String(text.clone().into_owned())
        } else if let Some(number) = piece.number_value {
            serde_json::from_str(number.get()).unwrap_or(Value::Null)
        } else if let Some(flag) = piece.bool_value {
            Value::Bool(flag)
        } else if piece.null_value.is_some_and(|raw| json::kind(raw) == json::Kind::String) {
            Value::Null
        } else {
            return;
        };
        let Some(steps) = piece.json_path.as_deref().and_then(steps) else { return };
        let Some(mut place) = self.value.as_mut() else { return };
        for step in steps {
            let Some(next) = descend(place, step) else { return };
            place = next;
        }
        match (place, value) {
            (Value::String(known), Value::String(more)) => known.push_str(&more),
            (place, value) => *place = value,
        }
    }
}

/// The value one step further, made if it is not there.
fn descend(value: &mut Value, step: Step) -> Option<&mut Value> {
    match step {
        Step::Name(name) => {
            if value.is_null() {
                *value = Value::Object(Map::new());
            }
            Some(value.as_object_mut()?.entry(name).or_insert(Value::Null))
        }
        Step::Place(place) => {
            if value.is_null() {
                *value = Value::Array(Vec::new());
            }
            let list = value.as_array_mut()?;
            if place >= list.len() {
                list.resize(place + 1, Value::Null);
            }
            list.get_mut(place)
        }
    }
}

/// The steps of `$.a[0].b` or `$['a'][0]`; none for a path that is no such thing.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEEPEST {
            return None;
        }
        if let Some(named) = rest.strip_prefix('.') {
            let end = named.find(['.', '[']).unwrap_or(named.len());
            steps.push(Step::Name(named[..end].to_owned()));
            rest = &named[end..];
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            let quoted = inside.strip_prefix(['\'', '"']).and_then(|inside| inside.strip_suffix(['\'', '"']));
            steps.push(match quoted {
                Some(name) => Step::Name(name.to_owned()),
                None => Step::Place(inside.parse().ok().filter(|place| *place < LONGEST)?),
            });
            rest = after;
        }
    }
    if steps.is_empty() { None } else { Some(steps) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(pieces: &[&str]) -> String {
        let mut partial = Partial::default();
        partial.open();
        for piece in pieces {
            partial.apply(&serde_json::from_str(piece).unwrap());
        }
        partial.take()
    }

    #[test]
    fn assignments_are_applied_in_order() {
        let pieces = [
            r#"{"jsonPath":"$.port","stringValue":"Br"}"#,
            r#"{"jsonPath":"$.port","stringValue":"est"}"#,
            r#"{"jsonPath":"$.stops[1].hour","numberValue":6}"#,
            r#"{"jsonPath":"$['x.y']","boolValue":true}"#,
            r#"{"jsonPath":"$.z","nullValue":"NULL_VALUE"}"#,
        ];
        let wanted = r#"{"port":"Brest","stops":[null,{"hour":6}],"x.y":true,"z":null}"#;
        assert_eq!(
            serde_json::from_str::<Value>(&made(&pieces)).unwrap(),
            serde_json::from_str::<Value>(wanted).unwrap()
        );
        assert_eq!(made(&[]), "{}");
    }

    #[test]
    fn odd_paths_do_no_harm() {
        for path in ["", "$", "port", "$[", "$[99999999]", "$[-1]", "$.a[x]", "$[0]"] {
            assert_eq!(made(&[&format!(r#"{{"jsonPath":"{path}","boolValue":true}}"#)]), "{}", "{path}");
        }
        assert_eq!(
            made(&[r#"{"jsonPath":"$.a","boolValue":true}"#, r#"{"jsonPath":"$.a.b","boolValue":true}"#]),
            r#"{"a":true}"#
        );
    }
}
