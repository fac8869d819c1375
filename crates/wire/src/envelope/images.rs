//! The body of a request for pictures, read and checked. What is not named here is the provider's to judge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::check::{self, Place};
use super::provider::{self, Provider};
use super::{Violation, whole};
use crate::json::{self, Kind};

/// Pictures of one request.
pub const MOST_IMAGES: u64 = 10;
const MOST_REFERENCES: usize = 16;
const ASPECT_RATIOS: [&str; 22] = [
    "1:1", "1:2", "1:4", "1:8", "2:1", "2:3", "3:2", "3:4", "4:1", "4:3", "4:5", "5:4", "8:1", "9:16", "16:9",
    "9:19.5", "19.5:9", "9:20", "20:9", "9:21", "21:9", "auto",
];

/// Whose clients a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Ours,
    /// OpenAI's, whose words for quality are other ones.
    Openai,
}

/// A request for pictures.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    pub prompt: Cow<'a, str>,
    /// How many.
    pub n: u64,
    pub stream: bool,
    pub user: Option<Cow<'a, str>>,
    pub provider: Option<Provider<'a>>,
    /// Addresses of pictures to begin with.
    pub references: Vec<Cow<'a, str>>,
    /// How they are to be made: all other members, in their order and as they came.
    pub options: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Reads a body; null is absent.
pub fn read(body: &[u8], form: Form) -> Result<Request<'_>, Violation> {
    let members = check::members(&Place::Body, whole(body)?)?;
    let (mut model, mut prompt) = (None, None);
    let mut request = Request {
        model: Cow::Borrowed(""),
        prompt: Cow::Borrowed(""),
        n: 1,
        stream: false,
        user: None,
        provider: None,
        references: Vec::new(),
        options: Vec::new(),
    };
    for (name, value) in members.0 {
        let place = Place::top(&name);
        if json::kind(value) == Kind::Null {
            continue;
        }
        match name.as_ref() {
            "model" => model = Some(check::text_between(&place, value, 1, 256)?),
            "prompt" => prompt = Some(check::text_between(&place, value, 1, usize::MAX)?),
            "stream" => request.stream = check::boolean(&place, value)?,
            "provider" => request.provider = Some(provider::with_options(&place, value)?),
            "input_references" => request.references = references(&place, value)?,
            "n" => {
                request.n = check::integer(&place, value, 1)?;
                if request.n > MOST_IMAGES {
                    return Err(place.is(format_args!("must be at most {MOST_IMAGES}")));
                }
            }
            _ => {
                option(&place, &name, value, form)?;
                if name == "user" {
                    request.user = Some(check::text(&place, value)?);
                }
                // We ask for what we read.
                if name != "response_format" {
                    request.options.push((name, value));
                }
            }
        }
    }
    request.model = model.ok_or_else(|| Place::top("model").required())?;
    request.prompt = prompt.ok_or_else(|| Place::top("prompt").required())?;
    Ok(request)
}

/// What is known of the options; those that nobody named are not looked at.
fn option(place: &Place<'_>, name: &str, value: &RawValue, form: Form) -> Result<(), Violation> {
    let one_of = |allowed: &[&str]| check::one_of(place, value, allowed).map(drop);
    match name {
        "aspect_ratio" => one_of(&ASPECT_RATIOS),
        "background" => one_of(&["auto", "transparent", "opaque"]),
        "output_format" => one_of(&["png", "jpeg", "webp", "svg"]),
        "resolution" => one_of(&["512", "1K", "2K", "4K"]),
        "quality" => match form {
            Form::Ours => one_of(&["auto", "low", "medium", "high"]),
            Form::Openai => one_of(&["auto", "low", "medium", "high", "standard", "hd"]),
        },
        "size" => check::text(place, value).map(drop),
        "seed" => {
            let text = value.get();
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_integer { Ok(()) } else { Err(place.is("must be an integer")) }
        }
        "output_compression" => match check::integer(place, value, 0)? {
            0..=100 => Ok(()),
            _ => Err(place.is("must be at most 100")),
        },
        "response_format" => match check::one_of(place, value, &["b64_json", "url"])?.as_ref() {
            "url" => Err(place.is("must be b64_json: pictures are in the answer and have no address")),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

fn references<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<Vec<Cow<'a, str>>, Violation> {
    let entries = check::entries(place, value, 0, MOST_REFERENCES)?;
    let address = |(index, entry): (usize, &'a RawValue)| {
        let place = place.entry(index);
        let members = check::members(&place, entry)?;
        check::one_of(&place.member("type"), check::required(&place, &members, "type")?, &["image_url"])?;
        let inner = place.member("image_url");
        let image = check::members(&inner, check::required(&place, &members, "image_url")?)?;
        check::text_between(&inner.member("url"), check::required(&inner, &image, "url")?, 1, usize::MAX)
    };
    entries.into_iter().enumerate().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(body: &str, form: Form) -> String {
        match read(body.as_bytes(), form) {
            Ok(_) => "ok".to_owned(),
            Err(violation) => violation.message,
        }
    }

    fn with(members: &str) -> String {
        said(&format!(r#"{{"model":"a/m","prompt":"a boat",{members}}}"#), Form::Ours)
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_stays_as_it_came() {
        let body = r#"{"model":"a/m","prompt":"a \"boat\"","n":2,"stream":true,"size":"1024x1024","user":"u","seed":-3,
            "x_new":{"a":1.50},"quality":null,"response_format":"b64_json","provider":{"only":["p"],"options":{"p":{"z":1}}},
            "input_references":[{"type":"image_url","image_url":{"url":"https://a.example/x.png"}}]}"#;
        let read = read(body.as_bytes(), Form::Ours).map_err(|violation| violation.message).unwrap();
        assert_eq!((&*read.model, &*read.prompt, read.n, read.stream), ("a/m", "a \"boat\"", 2, true));
        assert_eq!((read.user.as_deref(), &read.references[..]), (Some("u"), &["https://a.example/x.png".into()][..]));
        let options: Vec<(&str, &str)> = read.options.iter().map(|(name, value)| (&**name, value.get())).collect();
        let expected = [("size", "\"1024x1024\""), ("user", "\"u\""), ("seed", "-3"), ("x_new", "{\"a\":1.50}")];
        assert_eq!(options, expected);
        let provider = read.provider.unwrap();
        assert_eq!((&provider.only[..], &provider.options[..]), (&["p".into()][..], &[("p".into(), "{\"z\":1}")][..]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, message) in [
            ("[]", "Invalid request: body must be an object"),
            ("{", "Invalid request: body is not valid JSON"),
            (r#"{"prompt":"x"}"#, "Invalid request: model is required"),
            (r#"{"model":"a/m","prompt":null}"#, "Invalid request: prompt is required"),
            (r#"{"model":"a/m","prompt":""}"#, "Invalid request: prompt must be at least 1 characters"),
            (r#"{"model":1,"prompt":"x"}"#, "Invalid request: model must be a string"),
        ] {
            assert_eq!(said(body, Form::Ours), message, "{body}");
        }
        for (members, message) in [
            (r#""n":0"#, "Invalid request: n must be at least 1"),
            (r#""n":11"#, "Invalid request: n must be at most 10"),
            (r#""n":"2""#, "Invalid request: n must be an integer"),
            (r#""quality":"hd""#, "Invalid request: quality must be one of auto, low, medium, high"),
            (r#""resolution":"8K""#, "Invalid request: resolution must be one of 512, 1K, 2K, 4K"),
            (r#""output_compression":101"#, "Invalid request: output_compression must be at most 100"),
            (r#""seed":1.5"#, "Invalid request: seed must be an integer"),
            (
                r#""response_format":"url""#,
                "Invalid request: response_format must be b64_json: pictures are in the answer and have no address",
            ),
            (
                r#""input_references":[{"type":"text"}]"#,
                "Invalid request: input_references[0].type must be one of image_url",
            ),
            (
                r#""input_references":[{"type":"image_url","image_url":{}}]"#,
                "Invalid request: input_references[0].image_url.url is required",
            ),
            (r#""provider":{"options":{"p":1}}"#, "Invalid request: provider.options.p must be an object"),
            (r#""provider":{"nix":1}"#, "Invalid request: provider.nix is not allowed"),
        ] {
            assert_eq!(with(members), message, "{members}");
        }
        assert_eq!(said(r#"{"model":"a/m","prompt":"x","quality":"hd"}"#, Form::Openai), "ok");
    }
}
