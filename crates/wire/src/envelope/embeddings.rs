//! The body of a request for embeddings, read and checked. What is not named here is the provider's to judge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::check::{self, Place};
use super::provider::{self, Provider};
use super::{Violation, whole};
use crate::json::{self, Kind};

/// Inputs of one request.
const MOST_INPUTS: usize = 10_000;
const ENCODING: &str = "encoding_format";

/// How vectors are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Float,
    /// Numbers of four bytes each, the lowest first.
    Base64,
}

/// What is to be turned into vectors.
#[derive(Debug)]
pub struct Input<'a> {
    /// As it came.
    pub raw: &'a RawValue,
    /// How many vectors are wanted.
    pub count: usize,
    pub said: Said<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Said<'a> {
    Texts(Vec<Cow<'a, str>>),
    /// Somebody has made tokens of it already: so many.
    Tokens(u64),
    /// Parts that are more than text: bytes of text, and how many are something else.
    Parts {
        text: usize,
        others: u64,
        has_images: bool,
    },
}

/// A request for embeddings.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    pub input: Input<'a>,
    pub encoding: Encoding,
    pub dimensions: Option<u64>,
    /// What the vectors are for, such as `search_query`.
    pub input_type: Option<Cow<'a, str>>,
    pub user: Option<Cow<'a, str>>,
    pub provider: Option<Provider<'a>>,
    /// All members but the model, the input and what is said about providers, in their order and as they came.
    pub options: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Reads a body; null is absent.
pub fn read(body: &[u8]) -> Result<Request<'_>, Violation> {
    let members = check::members(&Place::top("body"), whole(body)?)?;
    let (mut model, mut input, mut provider) = (None, None, None);
    let (mut encoding, mut dimensions, mut input_type, mut user) = (Encoding::default(), None, None, None);
    let mut options = Vec::new();
    for (name, value) in members.0 {
        let place = Place::top(&name);
        if json::kind(value) == Kind::Null {
            continue;
        }
        match name.as_ref() {
            "model" => model = Some(check::text_between(&place, value, 1, 256)?),
            "input" => input = Some(read_input(&place, value)?),
            "provider" => provider = Some(provider::with_options(&place, value)?),
            other => {
                match other {
                    ENCODING if check::one_of(&place, value, &["float", "base64"])? == "base64" => {
                        encoding = Encoding::Base64;
                    }
                    "dimensions" => dimensions = Some(check::integer(&place, value, 1)?),
                    "input_type" => input_type = Some(check::text(&place, value)?),
                    "user" => user = Some(check::text(&place, value)?),
                    _ => {}
                }
                options.push((name, value));
            }
        }
    }
    Ok(Request {
        model: model.ok_or_else(|| Place::top("model").required())?,
        input: input.ok_or_else(|| Place::top("input").required())?,
        encoding,
        dimensions,
        input_type,
        user,
        provider,
        options,
    })
}

/// A text, several, tokens, several lists of them, or parts. The first of several says what they are.
fn read_input<'a>(place: &Place<'_>, raw: &'a RawValue) -> Result<Input<'a>, Violation> {
    let one = |said| Ok(Input { raw, count: 1, said });
    if json::kind(raw) == Kind::String {
        return one(Said::Texts(vec![check::text_between(place, raw, 1, usize::MAX)?]));
    }
    if json::kind(raw) != Kind::Array {
        return Err(place.is("must be a string or an array"));
    }
    let entries = json::elements(raw).unwrap_or_default();
    let Some(first) = entries.first() else { return Err(place.is("must have at least 1 entries")) };
    if json::kind(first) == Kind::Number {
        return one(Said::Tokens(tokens(place, &entries)?));
    }
    if entries.len() > MOST_INPUTS {
        return Err(place.is(format_args!("must have at most {MOST_INPUTS} entries")));
    }
    let places = || entries.iter().enumerate().map(|(index, entry)| (place.entry(index), *entry));
    let said = match json::kind(first) {
        Kind::String => {
            let text = |(place, entry): (Place<'_>, &'a RawValue)| check::text_between(&place, entry, 1, usize::MAX);
            Said::Texts(places().map(text).collect::<Result<_, _>>()?)
        }
        Kind::Array => {
            let count = |(place, entry): (Place<'_>, &'a RawValue)| {
                check::array(&place, entry)?;
                tokens(&place, &json::elements(entry).unwrap_or_default())
            };
            Said::Tokens(places().map(count).sum::<Result<_, _>>()?)
        }
        Kind::Object => {
            let mut all = Parts::default();
            let texts: Vec<_> = places().map(|(place, entry)| all.read(&place, entry)).collect::<Result<_, _>>()?;
            let Parts { text, others, has_images } = all;
            if others == 0 { Said::Texts(texts) } else { Said::Parts { text, others, has_images } }
        }
        _ => return Err(place.entry(0).is("must be a string")),
    };
    Ok(Input { raw, count: entries.len(), said })
}

fn tokens(place: &Place<'_>, entries: &[&RawValue]) -> Result<u64, Violation> {
    if entries.is_empty() {
        return Err(place.is("must have at least 1 entries"));
    }
    for (index, entry) in entries.iter().enumerate() {
        check::integer(&place.entry(index), entry, 0)?;
    }
    Ok(entries.len() as u64)
}

/// What parts come to, of all inputs together.
#[derive(Default)]
struct Parts {
    text: usize,
    others: u64,
    has_images: bool,
}

impl Parts {
    /// The text of one input.
    fn read<'a>(&mut self, place: &Place<'_>, entry: &'a RawValue) -> Result<Cow<'a, str>, Violation> {
        let members = check::members(place, entry)?;
        let inside = place.member("content");
        let parts = check::entries(&inside, check::required(place, &members, "content")?, 1, MOST_INPUTS)?;
        let mut text = Cow::Borrowed("");
        for (index, part) in parts.into_iter().enumerate() {
            let place = inside.entry(index);
            let members = check::members(&place, part)?;
            let kind = check::text(&place.member("type"), check::required(&place, &members, "type")?)?;
            if kind != "text" {
                self.has_images |= kind == "image_url";
                self.others += 1;
                continue;
            }
            let said = check::required(&place, &members, "text")?;
            let said = check::text_between(&place.member("text"), said, 1, usize::MAX)?;
            self.text += said.len();
            text = if text.is_empty() { said } else { Cow::Owned(format!("{text}\n{said}")) };
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(members: &str) -> String {
        match read(format!(r#"{{"model":"a/m",{members}}}"#).as_bytes()) {
            Ok(request) => format!("{} {:?}", request.input.count, request.input.said),
            Err(violation) => violation.message,
        }
    }

    #[test]
    fn inputs_of_every_kind_are_read() {
        for (input, expected) in [
            (r#""a \"boat\"""#, r#"1 Texts(["a \"boat\""])"#),
            (r#"["a","b"]"#, r#"2 Texts(["a", "b"])"#),
            ("[1,2,3]", "1 Tokens(3)"),
            ("[[1,2],[3]]", "2 Tokens(3)"),
            (
                r#"[{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},{"content":[{"type":"text","text":"c"}]}]"#,
                r#"2 Texts(["a\nb", "c"])"#,
            ),
            (
                r#"[{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]}]"#,
                "1 Parts { text: 1, others: 1, has_images: true }",
            ),
        ] {
            assert_eq!(said(&format!(r#""input":{input}"#)), expected, "{input}");
        }
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_stays_as_it_came() {
        let body = r#"{"model":"a/m","input":"x","encoding_format":"base64","dimensions":256,"input_type":"search_query",
            "user":"u","x_new":{"a":1.50},"provider":{"only":["p"]}}"#;
        let read = read(body.as_bytes()).map_err(|violation| violation.message).unwrap();
        assert_eq!(
            (read.encoding, read.dimensions, read.input_type.as_deref()),
            (Encoding::Base64, Some(256), Some("search_query"))
        );
        let options: Vec<(&str, &str)> = read.options.iter().map(|(name, value)| (&**name, value.get())).collect();
        let expected = [
            ("encoding_format", "\"base64\""),
            ("dimensions", "256"),
            ("input_type", "\"search_query\""),
            ("user", "\"u\""),
            ("x_new", "{\"a\":1.50}"),
        ];
        assert_eq!(options, expected);
        assert_eq!(read.provider.unwrap().only, ["p"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (members, message) in [
            (r#""input":null"#, "input is required"),
            (r#""input":"""#, "input must be at least 1 characters"),
            (r#""input":5"#, "input must be a string or an array"),
            (r#""input":[]"#, "input must have at least 1 entries"),
            (r#""input":["a",""]"#, "input[1] must be at least 1 characters"),
            (r#""input":["a",5]"#, "input[1] must be a string"),
            (r#""input":[1,"a"]"#, "input[1] must be an integer"),
            (r#""input":[1.5]"#, "input[0] must be an integer"),
            (r#""input":[[1],[]]"#, "input[1] must have at least 1 entries"),
            (r#""input":[true]"#, "input[0] must be a string"),
            (r#""input":[{"content":[]}]"#, "input[0].content must have at least 1 entries"),
            (r#""input":[{"content":[{"type":"text"}]}]"#, "input[0].content[0].text is required"),
            (r#""input":"a","encoding_format":"int8""#, "encoding_format must be one of float, base64"),
            (r#""input":"a","dimensions":0"#, "dimensions must be at least 1"),
            (r#""input":"a","model":"b""#, "model appears more than once"),
        ] {
            assert!(said(members).ends_with(message), "{members}: {}", said(members));
        }
    }
}
