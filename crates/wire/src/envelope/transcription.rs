//! A request to write down what is said, read and checked: as JSON with the sound in Base64, or as a form with a file.
//! What is not named here is the provider's to judge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::check::{self, Place};
use super::provider::{self, Provider};
use super::{Violation, whole};
use crate::json::{self, Kind, Members};

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The text alone.
    #[default]
    Json,
    /// With the language, the length, and when what was said.
    Verbose,
    /// The text and nothing around it.
    Text,
}

impl Form {
    const WORDS: [&'static str; 3] = ["json", "verbose_json", "text"];

    /// What an upstream is asked for.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json | Self::Text => Self::WORDS[0],
            Self::Verbose => Self::WORDS[1],
        }
    }

    /// Of a field of a form.
    pub fn parse(text: &str) -> Result<Self, Violation> {
        match text {
            "json" => Ok(Self::Json),
            "verbose_json" => Ok(Self::Verbose),
            "text" => Ok(Self::Text),
            _ => Err(Place::top("response_format").is(format_args!("must be one of {}", Self::WORDS.join(", ")))),
        }
    }
}

/// Options as a form has them: names and values.
pub type Fields = Vec<(String, String)>;

/// A request in JSON.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    /// In Base64.
    pub data: Cow<'a, str>,
    /// The sound's format by name: `wav`, `mp3`.
    pub format: Cow<'a, str>,
    pub form: Form,
    pub provider: Option<Provider<'a>>,
    pub user: Option<Cow<'a, str>>,
    pub session_id: Option<Cow<'a, str>>,
    /// All other members as a form has them.
    pub fields: Fields,
}

/// Reads a body; null is absent.
pub fn read(body: &[u8]) -> Result<Request<'_>, Violation> {
    let members = check::members(&Place::top("body"), whole(body)?)?;
    let (mut model, mut audio, mut provider) = (None, None, None);
    let (mut form, mut fields, mut user, mut session_id) = (Form::default(), Vec::new(), None, None);
    for (name, value) in members.0 {
        let place = Place::top(&name);
        if json::kind(value) == Kind::Null {
            continue;
        }
        check_field(&name)?;
        match name.as_ref() {
            "model" => model = Some(check::text_between(&place, value, 1, 256)?),
            "input_audio" => audio = Some(read_audio(&place, value)?),
            "response_format" => form = Form::parse(&check::one_of(&place, value, &Form::WORDS)?)?,
            "provider" => provider = Some(provider::with_options(&place, value)?),
            "stream" if check::boolean(&place, value)? => return Err(place.is(NO_STREAM)),
            "stream" | "trace" => {}
            "user" => user = Some(check::text(&place, value)?),
            "session_id" => session_id = Some(check::text_between(&place, value, 0, 256)?),
            "file" => return Err(place.is("must be sent in a form; in JSON the sound is input_audio")),
            name => {
                match name {
                    "language" => drop(check::text(&place, value)?),
                    "temperature" => drop(check::number_between(&place, value, 0.0, 2.0)?),
                    "timestamp_granularities" => {
                        for (index, one) in check::entries(&place, value, 0, 2)?.into_iter().enumerate() {
                            check::one_of(&place.entry(index), one, &["word", "segment"])?;
                        }
                    }
                    _ => {}
                }
                fields_of(name, value, &mut fields);
            }
        }
    }
    let (data, format) = audio.ok_or_else(|| Place::top("input_audio").required())?;
    let model = model.ok_or_else(|| Place::top("model").required())?;
    Ok(Request { model, data, format, form, provider, user, session_id, fields })
}

/// What a field of a form says about providers, which is JSON there, too.
pub fn provider(text: &str) -> Result<Provider<'_>, Violation> {
    let place = Place::top("provider");
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| place.is("must be JSON"))?;
    provider::with_options(&place, raw)
}

/// What is said for one provider alone, by its name.
pub fn own_fields(provider: &Provider<'_>) -> Vec<(String, Fields)> {
    let read = |(slug, options): &(Cow<'_, str>, &str)| {
        let raw: &RawValue = serde_json::from_str(options).ok()?;
        let mut fields = Fields::new();
        for (name, value) in Members::of(raw)?.0 {
            if check_field(&name).is_ok() {
                fields_of(&name, value, &mut fields);
            }
        }
        Some((slug.clone().into_owned(), fields))
    };
    provider.options.iter().filter_map(read).collect()
}

/// What is said to who asks for a stream.
pub const NO_STREAM: &str = "must be false: the text is answered when it is complete";

fn read_audio<'a>(place: &Place<'_>, value: &'a RawValue) -> Result<(Cow<'a, str>, Cow<'a, str>), Violation> {
    let members: Members<'a> = check::members(place, value)?;
    let text = |name: &'static str, most| {
        let value = check::required(place, &members, name)?;
        check::text_between(&place.member(name), value, 1, most)
    };
    Ok((text("data", usize::MAX)?, text("format", 32)?))
}

/// What we see to ourselves: options for one provider cannot replace it.
pub const OURS: [&str; 5] = ["model", "file", "response_format", "stream", "provider"];

/// Refuses names that a reader of forms may take for others.
pub fn check_field(name: &str) -> Result<(), Violation> {
    let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
    let is_ours = name.strip_suffix("[]").is_some_and(|name| OURS.contains(&name.trim_end_matches("[]")));
    match is_plain && !is_ours {
        true => Ok(()),
        false => Err(Place::top("body").is("must not have a name with control characters, or a list of what is one")),
    }
}

/// An option as fields of a form: a list is a field for each of its entries, and a text is written without quotes.
fn fields_of(name: &str, value: &RawValue, fields: &mut Fields) {
    let plain = |value: &RawValue| json::string(value).map_or_else(|| value.get().to_owned(), Cow::into_owned);
    match json::elements(value) {
        Some(entries) => fields.extend(entries.into_iter().map(|entry| (format!("{name}[]"), plain(entry)))),
        None => fields.push((name.to_owned(), plain(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(members: &str) -> String {
        match read(format!(r#"{{"model":"a/m",{members}}}"#).as_bytes()) {
            Ok(read) => format!("{} {} {} {:?}", read.data, read.format, read.form.as_str(), read.fields),
            Err(violation) => violation.message,
        }
    }

    #[test]
    fn options_become_fields_of_a_form() {
        let read = said(
            r#""input_audio":{"data":"AAAA","format":"wav"},"language":"d\u0065","temperature":0.50,"stream":false,
            "response_format":"verbose_json","timestamp_granularities":["word","segment"],"x_new":{"a":[1]}"#,
        );
        assert_eq!(
            read,
            r#"AAAA wav verbose_json [("language", "de"), ("temperature", "0.50"), ("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment"), ("x_new", "{\"a\":[1]}")]"#
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        const NAMES: &str = "must not have a name with control characters, or a list of what is one";
        let audio = r#""input_audio":{"data":"AAAA","format":"wav"}"#;
        for (members, message) in [
            (r#""language":"de""#.to_owned(), "input_audio is required"),
            (r#""input_audio":"AAAA""#.to_owned(), "input_audio must be an object"),
            (r#""input_audio":{"data":"AAAA"}"#.to_owned(), "input_audio.format is required"),
            (
                r#""input_audio":{"data":"","format":"wav"}"#.to_owned(),
                "input_audio.data must be at least 1 characters",
            ),
            (format!(r#"{audio},"response_format":"srt""#), "response_format must be one of json, verbose_json, text"),
            (format!(r#"{audio},"model\u0000":"x""#), NAMES),
            (format!(r#"{audio},"model[]":["x"]"#), NAMES),
            (format!(r#"{audio},"temperature":"0""#), "temperature must be a number"),
            (format!(r#"{audio},"timestamp_granularities":["line"]"#), "[0] must be one of word, segment"),
            (format!(r#"{audio},"stream":true"#), NO_STREAM),
            (format!(r#"{audio},"file":"x""#), "file must be sent in a form; in JSON the sound is input_audio"),
        ] {
            assert!(said(&members).ends_with(message), "{members}: {}", said(&members));
        }
    }
}
