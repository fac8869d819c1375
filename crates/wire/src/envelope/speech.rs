//! The body of a request to speak a text, read and checked. What is not named here is the provider's to judge.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::check::{self, Place};
use super::provider::{self, Provider};
use super::{Violation, whole};
use crate::json::{self, Kind};

/// How sound is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    Mp3,
    Opus,
    Aac,
    Flac,
    Wav,
    /// Samples of two bytes, the lower one first, 24 000 of them a second, of one channel.
    #[default]
    Pcm,
}

impl Format {
    const ALL: [Self; 6] = [Self::Mp3, Self::Opus, Self::Aac, Self::Flac, Self::Wav, Self::Pcm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Opus => "opus",
            Self::Aac => "aac",
            Self::Flac => "flac",
            Self::Wav => "wav",
            Self::Pcm => "pcm",
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/opus",
            Self::Aac => "audio/aac",
            Self::Flac => "audio/flac",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }
}

/// A request to speak a text.
#[derive(Debug)]
pub struct Request<'a> {
    pub model: Cow<'a, str>,
    pub input: Cow<'a, str>,
    pub voice: Option<Cow<'a, str>>,
    pub format: Format,
    pub user: Option<Cow<'a, str>>,
    pub session_id: Option<Cow<'a, str>>,
    pub provider: Option<Provider<'a>>,
    /// All members but those above, in their order and as they came.
    pub options: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// Reads a body; null is absent.
pub fn read(body: &[u8]) -> Result<Request<'_>, Violation> {
    let members = check::members(&Place::top("body"), whole(body)?)?;
    let (mut model, mut input, mut voice, mut provider) = (None, None, None, None);
    let (mut format, mut user, mut session_id) = (Format::default(), None, None);
    let mut options = Vec::new();
    for (name, value) in members.0 {
        let place = Place::top(&name);
        if json::kind(value) == Kind::Null {
            continue;
        }
        match name.as_ref() {
            "model" => model = Some(check::text_between(&place, value, 1, 256)?),
            "input" => input = Some(check::text_between(&place, value, 1, usize::MAX)?),
            "voice" => voice = Some(check::text_between(&place, value, 1, 256)?),
            "response_format" => {
                let named = check::one_of(&place, value, &Format::ALL.map(Format::as_str))?;
                format = Format::ALL.into_iter().find(|format| format.as_str() == named).unwrap_or_default();
            }
            // Sound comes as it is; events around it are nothing that this interface has.
            "stream_format" => {
                check::one_of(&place, value, &["audio"])?;
            }
            "provider" => provider = Some(provider::with_options(&place, value)?),
            "user" => user = Some(check::text(&place, value)?),
            "session_id" => session_id = Some(check::text_between(&place, value, 0, 256)?),
            other => {
                if other == "speed" {
                    check::number_between(&place, value, 0.1, 10.0)?;
                }
                options.push((name, value));
            }
        }
    }
    Ok(Request {
        model: model.ok_or_else(|| Place::top("model").required())?,
        input: input.ok_or_else(|| Place::top("input").required())?,
        voice,
        format,
        user,
        session_id,
        provider,
        options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(members: &str) -> String {
        match read(format!(r#"{{"model":"a/m",{members}}}"#).as_bytes()) {
            Ok(read) => format!("{} {:?} {}", read.input, read.voice, read.format.media_type()),
            Err(violation) => violation.message,
        }
    }

    #[test]
    fn what_is_known_is_read_and_the_rest_stays_as_it_came() {
        let body = r#"{"model":"a/m","input":"Hi","voice":"nova","response_format":"mp3","speed":1.50,"user":null,
            "instructions":"calmly","stream_format":"audio","session_id":"s","provider":{"only":["p"]}}"#;
        let read = read(body.as_bytes()).map_err(|violation| violation.message).unwrap();
        assert_eq!((&*read.input, read.voice.as_deref(), read.format), ("Hi", Some("nova"), Format::Mp3));
        let options: Vec<(&str, &str)> = read.options.iter().map(|(name, value)| (&**name, value.get())).collect();
        assert_eq!(options, [("speed", "1.50"), ("instructions", "\"calmly\"")]);
        assert_eq!(read.provider.unwrap().only, ["p"]);
        assert_eq!(said(r#""input":"Hi""#), "Hi None audio/pcm", "what the interface gives where nobody says how");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (members, message) in [
            (r#""voice":"nova""#, "input is required"),
            (r#""input":"""#, "input must be at least 1 characters"),
            (r#""input":["a"]"#, "input must be a string"),
            (r#""input":"a","voice":"""#, "voice must be at least 1 characters"),
            (r#""input":"a","response_format":"ogg""#, "response_format must be one of mp3, opus, aac, flac, wav, pcm"),
            (r#""input":"a","stream_format":"sse""#, "stream_format must be one of audio"),
            (r#""input":"a","speed":"fast""#, "speed must be a number"),
        ] {
            assert!(said(members).ends_with(message), "{members}: {}", said(members));
        }
    }
}
