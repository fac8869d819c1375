//! Repairs JSON that a model wrote almost right. What parses stays as it is; what is repaired is read by a parser that
//! forgives what models do: fences and words around it, commas too many, other quotes, names without quotes, raw line
//! breaks, words of Python, ends that are missing.

use serde_json::{Map, Number, Value};

/// Deeper than any answer, and shallow enough for a stack.
const DEEPEST: usize = 64;

/// A repaired text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Healed {
    pub text: String,
    /// Whether it is what the schema asks for, as far as types, required members, items and values of lists go.
    pub is_valid: bool,
}

/// The text as JSON, or nothing when it is right already or beyond repair.
pub(super) fn healed(text: &str, schema: &Value) -> Option<Healed> {
    if serde_json::from_str::<Value>(text).is_ok_and(|value| fits(&value, schema, 0)) {
        return None;
    }
    let inside = fenced(text);
    let tries = [Some(text), inside, cut(inside.unwrap_or(text))];
    let strict = tries.into_iter().flatten().filter_map(|text| serde_json::from_str::<Value>(text.trim()).ok());
    let forgiven = [inside, Some(text)].into_iter().flatten().filter_map(forgiving);
    let mut parsed: Option<Value> = None;
    for value in strict.chain(forgiven) {
        if fits(&value, schema, 0) {
            return Some(Healed { text: value.to_string(), is_valid: true });
        }
        parsed.get_or_insert(value);
    }
    let text = parsed?.to_string();
    Some(Healed { text, is_valid: false })
}

/// What stands between the first fence and its end.
fn fenced(text: &str) -> Option<&str> {
    let (_, behind) = text.split_once("```")?;
    let (first, rest) = behind.split_once('\n')?;
    let body = if first.trim().chars().all(char::is_alphanumeric) { rest } else { behind };
    Some(body.split_once("```").map_or(body, |(inside, _)| inside))
}

/// From the first bracket to the last.
fn cut(text: &str) -> Option<&str> {
    let start = text.find(['{', '['])?;
    let end = text.rfind(['}', ']'])?;
    (start < end).then(|| &text[start..=end])
}

/// Whether a value is what a schema asks for, as far as this looks.
fn fits(value: &Value, schema: &Value, depth: usize) -> bool {
    if depth > DEEPEST {
        return true;
    }
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    };
    let right_type = match schema.get("type") {
        Some(Value::String(name)) => is(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    };
    let listed = schema.get("enum").and_then(Value::as_array).is_none_or(|list| list.contains(value));
    let inner = match value {
        Value::Object(members) => {
            let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            let complete = names.filter_map(Value::as_str).all(|name| members.contains_key(name));
            let of = |name: &str| schema.get("properties").and_then(|properties| properties.get(name));
            complete && members.iter().all(|(name, value)| of(name).is_none_or(|schema| fits(value, schema, depth + 1)))
        }
        Value::Array(items) => {
            schema.get("items").is_none_or(|schema| items.iter().all(|item| fits(item, schema, depth + 1)))
        }
        _ => true,
    };
    right_type && listed && inner
}

/// Reads the first object or list in a text, however it is written.
fn forgiving(text: &str) -> Option<Value> {
    let start = text.find(['{', '['])?;
    let characters: Vec<char> = text[start..].chars().collect();
    Forgiving { characters, at: 0 }.value(0)
}

struct Forgiving {
    characters: Vec<char>,
    at: usize,
}

impl Forgiving {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += 1;
        next
    }

    /// Blanks, commas too many, and comments.
    fn skip(&mut self, commas: bool) {
        while let Some(next) = self.peek() {
            let second = self.characters.get(self.at + 1).copied();
            match next {
                ',' if commas => self.at += 1,
                next if next.is_whitespace() => self.at += 1,
                '/' if second == Some('/') => self.skip_until('\n'),
                '#' => self.skip_until('\n'),
                _ => break,
            }
        }
    }

    fn skip_until(&mut self, end: char) {
        while self.next().is_some_and(|next| next != end) {}
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip(false);
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            '{' => Some(self.object(depth)),
            '[' => Some(self.list(depth)),
            quote @ ('"' | '\'' | '`' | '“') => Some(Value::String(self.text(quote))),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        self.at += 1;
        let mut members = Map::new();
        loop {
            self.skip(true);
            match self.peek() {
                None => break,
                Some('}' | ']') => {
                    self.at += 1;
                    break;
                }
                Some(quote @ ('"' | '\'' | '`' | '“')) => {
                    let name = self.text(quote);
                    self.member(name, &mut members, depth);
                }
                Some(_) => {
                    let name = self.bare(|next| matches!(next, ':' | '=' | '}' | ',' | '\n'));
                    if name.is_empty() {
                        self.at += 1;
                        continue;
                    }
                    self.member(name, &mut members, depth);
                }
            }
        }
        Value::Object(members)
    }

    fn member(&mut self, name: String, members: &mut Map<String, Value>, depth: usize) {
        self.skip(false);
        if matches!(self.peek(), Some(':' | '=')) {
            self.at += 1;
        }
        // A name whose value never came is left out.
        if let Some(value) = self.value(depth + 1) {
            members.insert(name, value);
        }
    }

    fn list(&mut self, depth: usize) -> Value {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip(true);
            match self.peek() {
                None => break,
                Some(']' | '}') => {
                    self.at += 1;
                    break;
                }
                Some(_) => {
                    let before = self.at;
                    items.extend(self.value(depth + 1));
                    if self.at == before {
                        self.at += 1;
                    }
                }
            }
        }
        Value::Array(items)
    }

    /// A text up to its quote, or to the end when that is missing.
    fn text(&mut self, quote: char) -> String {
        self.at += 1;
        let end = if quote == '“' { '”' } else { quote };
        let mut text = String::new();
        while let Some(next) = self.next() {
            match next {
                next if next == end => break,
                '\\' => match self.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('b') => text.push('\u{8}'),
                    Some('f') => text.push('\u{c}'),
                    Some('u') => text.extend(self.escaped()),
                    Some(other) => text.push(other),
                    None => break,
                },
                next => text.push(next),
            }
        }
        text
    }

    /// Four digits, and four more where they are half of a character.
    fn escaped(&mut self) -> Option<char> {
        let four = |at: usize| -> Option<u32> {
            let digits: String = self.characters.get(at..at + 4)?.iter().collect();
            u32::from_str_radix(&digits, 16).ok()
        };
        let first = four(self.at)?;
        let second = four(self.at + 6);
        self.at += 4;
        if (0xD800..0xDC00).contains(&first) {
            let second = second.filter(|second| (0xDC00..0xE000).contains(second))?;
            self.at += 6;
            return char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00));
        }
        char::from_u32(first)
    }

    fn bare(&mut self, ends: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(|next| !ends(next)) {
            self.at += 1;
        }
        self.characters[start..self.at].iter().collect::<String>().trim().to_owned()
    }

    /// A number, a word that stands for a value, or a text without quotes.
    fn word(&mut self) -> Option<Value> {
        let word = self.bare(|next| matches!(next, ',' | '}' | ']' | '\n'));
        Some(match word.as_str() {
            "" => return None,
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" | "undefined" | "NaN" => Value::Null,
            word => match word.parse::<Number>() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::String(word.to_owned()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "required": ["port", "height"],
            "properties": {"port": {"type": "string"}, "height": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}}})
    }

    #[test]
    fn each_thing_that_models_do_is_repaired() {
        let whole = r#"{"port":"Brest","height":2.5}"#;
        let table = [
            ("```json\n{\"port\": \"Brest\", \"height\": 2.5}\n```", whole),
            ("Here it is:\n{\"port\": \"Brest\", \"height\": 2.5}\nAnything else?", whole),
            (r#"{"port": "Brest", "height": 2.5,}"#, whole),
            (r#"{port: "Brest", height: 2.5}"#, whole),
            (r#"{'port': 'Brest', 'height': 2.5}"#, whole),
            ("{\"port\": \"Bre\nst\", \"height\": 2.5}", r#"{"port":"Bre\nst","height":2.5}"#),
            (r#"{"port": "Brest", "height": 2.5"#, whole),
            (r#"{"height": 2.5, "port": "Bre"#, r#"{"height":2.5,"port":"Bre"}"#),
            (
                r#"{"port": "Brest", "height": 2.5, "tags": ["a", "b""#,
                r#"{"port":"Brest","height":2.5,"tags":["a","b"]}"#,
            ),
            (
                r#"{"port": "Brest", "height": 2.5, "a": None, "b": True, "c": undefined}"#,
                r#"{"port":"Brest","height":2.5,"a":null,"b":true,"c":null}"#,
            ),
            (r#"{"port": "\u00e9\ud83c\udf0a", "height": 1,}"#, "{\"port\":\"é🌊\",\"height\":1}"),
            ("{\"port\": \"Brest\", // where\n \"height\": 2.5}", whole),
        ];
        for (text, wanted) in table {
            assert_eq!(healed(text, &schema()), Some(Healed { text: wanted.to_owned(), is_valid: true }), "{text}");
        }
    }

    #[test]
    fn what_is_right_or_beyond_repair_stays_and_what_only_parses_is_told() {
        assert_eq!(healed(r#"{"port": "Brest", "height": 2.5}"#, &schema()), None);
        assert_eq!(healed("I cannot do that.", &schema()), None);
        let wrong = healed("{\"port\": 5,}", &schema()).unwrap();
        assert_eq!((wrong.text.as_str(), wrong.is_valid), (r#"{"port":5}"#, false));
        let deep = format!("{}{}", "[".repeat(10_000), "x");
        assert!(healed(&deep, &schema()).is_some_and(|healed| !healed.is_valid));
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_comes_out_is_json(text in "[\\[\\]{}:,\"'a-z0-9 \\\\u\n`#/=]{0,60}") {
            if let Some(healed) = healed(&text, &schema()) {
                prop_assert!(serde_json::from_str::<Value>(&healed.text).is_ok());
            }
        }

        #[test]
        fn any_json_that_lost_its_end_is_closed(cut in 1_usize..40) {
            let text = r#"{"port": "Brest", "height": 2.5, "tags": ["a"]}"#;
            let healed = healed(&text[..cut.min(text.len() - 1)], &schema()).unwrap();
            prop_assert!(serde_json::from_str::<Value>(&healed.text).unwrap().is_object());
        }
    }
}
