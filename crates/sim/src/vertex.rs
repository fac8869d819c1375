//! Anthropic's Messages over Vertex AI, and the token that Vertex asks of every call.

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderName;
use http::request::Parts;
use serde_json::Value;

use crate::content::{Ask, LastUser};
use crate::events::Events;
use crate::failure::Failure;
use crate::quirk::Protocol;
use crate::refuse::Path;
use crate::said::Said;
use crate::speak::{Speak, keys};
use crate::{gemini, messages};

pub(crate) struct Request<'a>(messages::Request<'a>);

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Predict,
    Stream,
    Count,
}

impl Verb {
    /// The model and the verb of `…/publishers/anthropic/models/{model}:{verb}`; counting has a model's place.
    pub fn of(path: &str) -> Option<(&str, Self)> {
        let (place, model) = path.split_once("/publishers/anthropic/models/")?;
        let mut steps = place.rsplit('/');
        let (_, locations, _, projects) = (steps.next()?, steps.next()?, steps.next()?, steps.next()?);
        if (locations, projects) != ("locations", "projects") {
            return None;
        }
        match model.rsplit_once(':')? {
            ("count-tokens", "rawPredict") => Some(("", Verb::Count)),
            ("", _) => None,
            (model, "rawPredict") => Some((model, Verb::Predict)),
            (model, "streamRawPredict") => Some((model, Verb::Stream)),
            _ => None,
        }
    }
}

const VERSIONS: &[&str] = &["vertex-2023-10-16", "2026-10-21"];

fn invalid(message: impl Into<String>) -> Failure {
    Failure::new(400, message)
}

/// The platform's part of a body.
fn check(body: &[u8], verb: Verb) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))?;
    match value["anthropic_version"].as_str() {
        None => return Err(invalid("anthropic_version: Field required")),
        Some(version) if !VERSIONS.contains(&version) => {
            return Err(invalid("anthropic_version: Input should be 'vertex-2023-10-16' or '2026-10-21'"));
        }
        Some(_) => {}
    }
    match (verb, value["model"].as_str()) {
        (Verb::Count, None) => return Err(invalid("model: Field required")),
        (Verb::Predict | Verb::Stream, _) if value.get("model").is_some() => {
            return Err(invalid("model: Extra inputs are not permitted"));
        }
        _ => {}
    }
    if !value["messages"].is_array() {
        return Err(invalid("messages: Field required"));
    }
    if verb != Verb::Count && value.get("max_tokens").is_none() {
        return Err(invalid("max_tokens: Field required"));
    }
    Ok(value)
}

/// A bearer token must be there; which one is no matter unless the script names it.
pub(crate) fn authenticate(head: &Parts) -> Result<(), Failure> {
    match keys(head, &[]).iter().any(|token| !token.trim().is_empty()) {
        true => Ok(()),
        false => Err(Failure::new(
            401,
            "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or \
             other valid authentication credential.",
        )),
    }
}

impl<'a> Speak<'a> for Request<'a> {
    const PROTOCOL: Protocol = Protocol::Messages;
    const REQUEST_ID: HeaderName = <messages::Request<'_> as Speak<'_>>::REQUEST_ID;
    const BROKEN: (&'static str, &'static str) = <messages::Request<'_> as Speak<'_>>::BROKEN;

    fn read(head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        authenticate(head)?;
        let (model, verb) = Verb::of(head.uri.path()).ok_or_else(|| Failure::status(404))?;
        let value = check(body, verb)?;
        let stream = value["stream"] == true;
        if verb == Verb::Stream && !stream {
            return Err(invalid("stream: streamRawPredict needs `stream` to be true"));
        }
        let model = (verb != Verb::Count).then(|| model.replace("%3B", ";").replace("%40", "@"));
        messages::Request::hosted(body, model, stream).map(Self)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        match keys(head, &[]).contains(&key) {
            true => Ok(()),
            false => Err(Failure::status(401)),
        }
    }

    /// What the platform refuses is in Google's shape, what the model's server refuses in Anthropic's.
    fn error(id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        match failure.status {
            401..=405 | 429 => gemini::Request::error(id, failure),
            _ => messages::Request::error(id, failure),
        }
    }

    fn error_event(&self, id: usize, after: usize, failure: &Failure) -> Bytes {
        self.0.error_event(id, after, failure)
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        self.0.whole(said)
    }

    fn events(&self, said: &Said<'_>) -> Events {
        self.0.events(said)
    }

    fn closing(&self) -> usize {
        self.0.closing()
    }

    fn counted(tokens: u64) -> String {
        messages::Request::counted(tokens)
    }

    fn unknown(path: &Path) -> Failure {
        messages::Request::unknown(path)
    }

    fn bad_signature(path: &Path) -> Failure {
        messages::Request::bad_signature(path)
    }

    fn bad_beta(name: &str) -> Option<Failure> {
        messages::Request::bad_beta(name)
    }

    fn betas(head: &Parts, body: &Value) -> Vec<String> {
        messages::Request::betas(head, body)
    }
}

impl Ask for Request<'_> {
    fn model(&self) -> &str {
        self.0.model()
    }

    fn stream(&self) -> bool {
        self.0.stream()
    }

    fn max_tokens(&self) -> Option<u64> {
        self.0.max_tokens()
    }

    fn stop_sequences(&self) -> &[String] {
        self.0.stop_sequences()
    }

    fn last_user(&self) -> LastUser {
        self.0.last_user()
    }

    fn tools(&self) -> Vec<String> {
        self.0.tools()
    }

    fn most_calls(&self) -> usize {
        self.0.most_calls()
    }

    fn call_id(number: usize) -> String {
        format!("toolu_vrtx_sim_{number}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_the_place_and_the_model() {
        let of = |end: &str| {
            let path = format!("/v1/projects/p/locations/eu/publishers/anthropic/models/{end}");
            Verb::of(&path).map(|(model, verb)| (model.to_owned(), verb))
        };
        assert_eq!(of("m@1:rawPredict"), Some(("m@1".into(), Verb::Predict)));
        assert_eq!(of("m:streamRawPredict"), Some(("m".into(), Verb::Stream)));
        assert_eq!(of("count-tokens:rawPredict"), Some((String::new(), Verb::Count)));
        assert_eq!(of("m:predict"), None);
        assert_eq!(of(":rawPredict"), None);
        assert_eq!(Verb::of("/publishers/anthropic/models/m:rawPredict"), None);
    }
}
