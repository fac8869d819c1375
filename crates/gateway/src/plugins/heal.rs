//! Repairs JSON that a model wrote almost right: fences and words around it, commas too many, other quotes, names without
//! quotes, raw line breaks, words of Python, ends that are missing. What is wrong in any other way is left as it is: a guess
//! would put words into the answer that nobody said.

use serde_json::{Number, Value};
use tidegate_wire::json::quoted;

/// Deeper than any answer, and shallow enough for a stack.
const DEEPEST: usize = 64;

/// How many brackets of a text are looked at: each may take a look at all that follows.
const MOST_STARTS: usize = 64;

/// A repaired text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Healed {
    pub text: String,
    /// Whether it is what the schema asks for, as far as types, required members, items and values of lists go.
    pub is_valid: bool,
}

/// The text as JSON, or nothing when it is right already or beyond repair.
pub(super) fn healed(text: &str, schema: &Value) -> Option<Healed> {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    if read(text).is_some_and(|value| fits(&value, schema, 0)) {
        return None;
    }
    let inside = fenced(text);
    let tries = [Some(text), inside, cut(inside.unwrap_or(text))];
    let strict = tries.into_iter().flatten().map(str::trim).filter(|text| read(text).is_some());
    // Numbers keep their digits, so what was read is not written again.
    let strict = strict.filter_map(|text| repaired(text).or_else(|| read(text).map(|value| value.to_string())));
    let forgiven = [inside, Some(text)].into_iter().flatten().flat_map(each);
    let mut parsed: Option<String> = None;
    for text in strict.chain(forgiven) {
        if read(&text).is_some_and(|value| fits(&value, schema, 0)) {
            return Some(Healed { text, is_valid: true });
        }
        parsed.get_or_insert(text);
    }
    Some(Healed { text: parsed?, is_valid: false })
}

/// What stands between the first fence and its end, which is one that begins a line where there is such a one.
fn fenced(text: &str) -> Option<&str> {
    let (_, behind) = text.split_once("```")?;
    let (first, rest) = behind.split_once('\n')?;
    let body = if first.trim().chars().all(char::is_alphanumeric) { rest } else { behind };
    let end = body.split_once("\n```").or_else(|| body.split_once("```"));
    Some(end.map_or(body, |(inside, _)| inside))
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

/// The values of a text, one behind the other: before the one that was asked for may stand others, such as the marks of
/// citations. None is looked for within an object, whether it can be read or not: that would be a part of an answer.
fn each(text: &str) -> impl Iterator<Item = String> + '_ {
    let (mut rest, mut left) = (text, MOST_STARTS);
    std::iter::from_fn(move || {
        loop {
            left = left.checked_sub(1)?;
            rest = &rest[rest.find(['{', '['])?..];
            match first(rest) {
                Some((value, behind)) => {
                    rest = behind;
                    return Some(value);
                }
                None if rest.starts_with('[') => rest = &rest[1..],
                None => return None,
            }
        }
    })
}

/// The value that a text begins with as compact JSON, however it is written; nothing when it cannot be told what it is.
fn repaired(text: &str) -> Option<String> {
    first(text).map(|(value, _)| value)
}

/// The same, and what stands behind it.
fn first(text: &str) -> Option<(String, &str)> {
    let mut reading = Reading { rest: text, out: String::with_capacity(text.len()) };
    match reading.value(0)? {
        Came::Whole => {
            let is_right = serde_json::from_str::<&serde_json::value::RawValue>(&reading.out).is_ok();
            is_right.then_some((reading.out, reading.rest))
        }
        Came::Never => None,
    }
}

/// A text that is read, and the JSON that is made of it.
struct Reading<'t> {
    rest: &'t str,
    out: String,
}

/// Whether a value was there before the text ended.
enum Came {
    Whole,
    Never,
}

/// Nothing is given back where the text is wrong in a way that is not repaired.
impl Reading<'_> {
    /// The next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn value(&mut self, depth: usize) -> Option<Came> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek() {
            None => return Some(Came::Never),
            Some('{') => self.entries('}', depth)?,
            Some('[') => self.entries(']', depth)?,
            Some(quote @ ('"' | '\'')) => {
                let text = self.text(quote)?;
                self.out.push_str(&quoted(&text));
            }
            Some(_) => return self.word(),
        }
        Some(Came::Whole)
    }

    /// An object or a list, up to its end or to that of the text.
    fn entries(&mut self, end: char, depth: usize) -> Option<()> {
        let start = self.next();
        self.out.extend(start);
        let mut is_first = true;
        loop {
            match self.peek() {
                None => break,
                Some(next) if next == end => {
                    self.next();
                    break;
                }
                Some(_) => {}
            }
            let before = self.out.len();
            if !is_first {
                self.out.push(',');
            }
            let came = if end == '}' { self.member(depth) } else { self.value(depth + 1) };
            if matches!(came?, Came::Never) {
                // The text ended within it.
                self.out.truncate(before);
                break;
            }
            is_first = false;
            match self.peek() {
                Some(',') => drop(self.next()),
                Some(next) if next != end => return None,
                _ => {}
            }
        }
        self.out.push(end);
        Some(())
    }

    fn member(&mut self, depth: usize) -> Option<Came> {
        let (name, is_quoted) = match self.peek()? {
            quote @ ('"' | '\'') => (self.text(quote)?, true),
            _ => (self.bare().to_owned(), false),
        };
        match self.peek() {
            None if is_quoted => return Some(Came::Never),
            Some(':') if is_quoted || !name.is_empty() => drop(self.next()),
            _ => return None,
        }
        self.out.push_str(&quoted(&name));
        self.out.push(':');
        self.value(depth + 1)
    }

    /// A text up to its quote, or to the end when that is missing. Line breaks and the like may stand in it as they are.
    fn text(&mut self, quote: char) -> Option<String> {
        self.next();
        let mut text = String::new();
        while let Some(next) = self.next() {
            if next == quote {
                break;
            }
            if next != '\\' {
                text.push(next);
                continue;
            }
            text.push(match self.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some(same @ ('"' | '\\' | '/')) => same,
                Some('\'') if quote == '\'' => '\'',
                Some('u') => match self.escaped() {
                    Some(escaped) => escaped,
                    // One that the end of the text has cut.
                    None if self.rest.len() < 4 && self.rest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                        self.rest = "";
                        break;
                    }
                    None => return None,
                },
                Some(_) => return None,
                None => break,
            });
        }
        Some(text)
    }

    /// Four digits, and four more where they are half of a character.
    fn escaped(&mut self) -> Option<char> {
        let four = |text: &str| -> Option<u32> {
            let digits = text.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
            u32::from_str_radix(digits, 16).ok()
        };
        let first = four(self.rest)?;
        if !(0xD800..0xDC00).contains(&first) {
            self.rest = &self.rest[4..];
            return char::from_u32(first);
        }
        let second = four(self.rest[4..].strip_prefix("\\u")?).filter(|second| (0xDC00..0xE000).contains(second))?;
        self.rest = &self.rest[10..];
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    /// A name, a number or a word without quotes.
    fn bare(&mut self) -> &str {
        let is_part = |next: char| next.is_alphanumeric() || matches!(next, '_' | '$' | '-' | '+' | '.');
        let end = self.rest.find(|next| !is_part(next)).unwrap_or(self.rest.len());
        let (bare, rest) = self.rest.split_at(end);
        self.rest = rest;
        bare
    }

    /// A number, or a word that stands for a value.
    fn word(&mut self) -> Option<Came> {
        let word = self.bare().to_owned();
        self.out.push_str(match word.as_str() {
            "true" | "True" => "true",
            "false" | "False" => "false",
            "null" | "None" | "undefined" | "NaN" => "null",
            word if word.parse::<Number>().is_ok() => word,
            word if self.rest.is_empty() && is_cut(word) => return Some(Came::Never),
            _ => return None,
        });
        Some(Came::Whole)
    }
}

/// Whether it may be the beginning of a number or of a word that stands for a value.
fn is_cut(word: &str) -> bool {
    let is_number = word.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let words = ["true", "True", "false", "False", "null", "None", "undefined", "NaN"];
    is_number || words.iter().any(|whole| whole.starts_with(word))
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
            (
                "```json\n{\"port\": \"```sh\\nls```\", \"height\": 12345678901234567890123,}\n```",
                r#"{"port":"```sh\nls```","height":12345678901234567890123}"#,
            ),
            (r#"As said [1] and [see there], {"port": "Brest", "height": 2.5} ok"#, whole),
            (r#"{"note": "no"} rather {"port": "Brest", "height": 2.5}"#, whole),
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
        assert_eq!(healed(&deep, &schema()), None);
    }

    #[test]
    fn what_nobody_can_tell_the_meaning_of_is_left_as_it_is() {
        for text in [
            r#"{"a": 1, "b": "he said "hi" to me"}"#,
            r#"{"a": 1 "b": "x"}"#,
            r#"Result {x} is: {"a": 5}"#,
            r#"{"a": one, "b": 2}"#,
            r#"{"a": 1,, "b": 2}"#,
            r#"{"a": [1, 2}"#,
            r#"{"a" = 1}"#,
            r#"{"a": "\x41"}"#,
            r#"{"a": "\ud83c"}"#,
            r#"{'a': 'it's'}"#,
            "{\"a\": 1, // one\n \"b\": 2}",
            "\"a\": 1",
            "Use {braces",
        ] {
            assert_eq!(healed(text, &json!({"type": "object"})), None, "{text}");
        }
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
