//! `image_generation`: pictures for models that cannot draw. They are made on the way of `POST /images`, as the calling key,
//! and kept as files of its workspace; the model gets an address that serves them for a day without a key.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};
use tidegate_core::{GenerationId, Money};
use tidegate_store::audit::{Actor, By};
use tidegate_wire::envelope::images::{self, Form};

use super::inner::{self, Desk};
use super::reader::Reader;
use super::run::Outcome;
use crate::Snapshot;
use crate::failure::Failure;
use crate::files::{Given, Problem};
use crate::snapshot::Settings;

/// Its name behind the brand.
pub(super) const NAME: &str = "image_generation";
/// How long a picture may take, and a little more: it ends by itself first, as one that came to nothing.
pub(super) const LIMIT: Duration = Duration::from_secs(185);
/// How long its address serves it.
const SERVED: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_PROMPT: usize = 8_000;
/// Members of a request for pictures that are not the caller's to set here: one picture is made of what the model says.
const OURS: [&str; 5] = ["model", "prompt", "n", "stream", "response_format"];

/// The tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Image {
    model: String,
    /// How pictures are to be made, in the words of `POST /images`.
    options: Map<String, Value>,
    /// Where it stands in the request.
    path: String,
}

impl Image {
    pub fn of(reader: &Reader<'_>, settings: &Settings) -> Result<Self, Failure> {
        let model = inner::model(reader)?.unwrap_or_else(|| settings.tools.image_model.clone());
        let given = reader.members.iter().filter(|(name, value)| !OURS.contains(&name.as_str()) && !value.is_null());
        let options = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let image = Self { model, options, path: reader.path.clone() };
        // What cannot be is said before anybody is called, by its path in the whole request.
        images::read(&image.body("?", &Map::new()), Form::Openai).map_err(|violation| {
            let (member, problem) = violation.parts();
            reader.wrong(member, problem)
        })?;
        Ok(image)
    }

    /// Whether there is such a model at all.
    pub fn check(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        let makes = snapshot.catalogue.find(&self.model).is_ok_and(|named| named.model.makes_images());
        let problem = "is not a model that makes images; GET /images/models lists those that do";
        let message = format!("Invalid request: {}.model '{}' {problem}", self.path, self.model);
        if makes { Ok(()) } else { Err(Failure::invalid(message)) }
    }

    pub fn description() -> (String, Value) {
        let text = "Makes an image of a description and gives its address, which shows it for a day. Call it when the user \
                    asks for a picture, drawing, photo or logo; not for diagrams that can be written as text. Put everything \
                    that is to be seen into the prompt: subject, style, composition, colours, any text in the image. Show the \
                    result to the user as a Markdown image with that address.";
        let prompt = format!("What the image shows, in at most {LONGEST_PROMPT} characters");
        (text.to_owned(), json!({"prompt": {"type": "string", "maxLength": LONGEST_PROMPT, "description": prompt}}))
    }

    pub async fn run(&self, desk: &Desk, input: &Value) -> Outcome {
        let prompt = input.get("prompt").and_then(Value::as_str).map(str::trim).unwrap_or_default();
        if prompt.is_empty() || prompt.chars().count() > LONGEST_PROMPT {
            return failed(&format!("prompt must be 1 to {LONGEST_PROMPT} characters"), Money::ZERO);
        }
        let body = self.body(prompt, &desk.policy());
        let (gate, key) = (&desk.gate, &desk.key);
        let drawn = gate.draw(&desk.snapshot, key, &desk.headers, body, Form::Openai, Some(&desk.inner));
        // In a box: it holds all that a call of its own does.
        let drawn = match Box::pin(drawn).await {
            Ok(drawn) => drawn,
            Err(failure) => return failed(&failure.message, Money::ZERO),
        };
        let Some((content, mime_type, fee)) = read(&drawn.body) else {
            return failed("the image could not be read", Money::ZERO);
        };
        let filename = named(drawn.id, mime_type);
        let now = gate.clock.now();
        let by = By { actor: Actor::Key(key.hash), request: None, address: None, at: now };
        let given = Given { filename: &filename, mime_type, purpose: None, content };
        match gate.keep_file(key, &by, given).await {
            Ok(file) => {
                let address = gate.signed_address(&desk.snapshot, &file.id, now.plus(SERVED));
                Outcome { fee, ..Outcome::of(&json!({"status": "ok", "imageUrl": address})) }
            }
            Err(Problem::Store(error)) => {
                tracing::warn!(%error, "the store failed a model that makes images");
                failed("the image cannot be kept at the moment", fee)
            }
            Err(problem) => failed(&format!("the image {problem}"), fee),
        }
    }

    /// A body for `POST /images`. `policy`: what the caller wants of everybody who reads its data.
    fn body(&self, prompt: &str, policy: &Map<String, Value>) -> Bytes {
        let mut body = self.options.clone();
        body.insert("model".to_owned(), json!(self.model));
        body.insert("prompt".to_owned(), json!(prompt));
        if !policy.is_empty() {
            match body.entry("provider").or_insert_with(|| json!({})) {
                Value::Object(known) => known.extend(policy.clone()),
                other => *other = Value::Object(policy.clone()),
            }
        }
        Value::Object(body).to_string().into()
    }
}

/// A result that tells why there is none.
pub(super) fn failed(message: &str, fee: Money) -> Outcome {
    let text = json!({"status": "error", "error": message}).to_string();
    Outcome { text, is_error: true, fee, ..Outcome::default() }
}

/// The first picture of an answer, its type, and what the answer cost.
fn read(body: &[u8]) -> Option<(Vec<u8>, &'static str, Money)> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        data: Vec<Picture<'a>>,
        usage: Used,
    }
    #[derive(Deserialize)]
    struct Picture<'a> {
        b64_json: &'a str,
    }
    #[derive(Deserialize)]
    struct Used {
        cost: Option<Number>,
    }
    let answer: Answer<'_> = serde_json::from_slice(body).ok()?;
    let picture = answer.data.first()?.b64_json;
    let kind = tidegate_providers::images::kind(picture).unwrap_or("application/octet-stream");
    let cost = answer.usage.cost.and_then(|cost| Money::parse(&cost.to_string()).ok());
    Some((STANDARD.decode(picture).ok()?, kind, cost.unwrap_or(Money::ZERO)))
}

fn named(id: GenerationId, mime_type: &str) -> String {
    let ending = match mime_type {
        "image/svg+xml" => "svg",
        "application/octet-stream" => "bin",
        other => other.strip_prefix("image/").unwrap_or("bin"),
    };
    format!("{}.{ending}", id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(parameters: Value) -> Result<Image, String> {
        let settings = Settings::default();
        let members = parameters.as_object().unwrap().clone();
        let reader = Reader::of(&members, 2);
        Image::of(&reader, &settings).map_err(|failure| failure.message.into_owned())
    }

    #[test]
    fn options_go_as_they_came_and_the_prompt_is_the_models() {
        let image =
            image(json!({"model": "a/m", "size": "1024x1024", "n": 4, "prompt": "?", "stream": true, "x_new": [1]}));
        let body: Value = serde_json::from_slice(&image.unwrap().body("a boat", &Map::new())).unwrap();
        assert_eq!(body, json!({"model": "a/m", "prompt": "a boat", "size": "1024x1024", "x_new": [1]}));
        let policy = json!({"zdr": true}).as_object().unwrap().clone();
        let image = self::image(json!({"provider": {"only": ["p"], "zdr": false}})).unwrap();
        let body: Value = serde_json::from_slice(&image.body("a boat", &policy)).unwrap();
        assert_eq!(body["provider"], json!({"only": ["p"], "zdr": true}));
        assert_eq!(body["model"], "openai/gpt-5-image");
    }

    #[test]
    fn what_cannot_be_is_named_by_its_path() {
        for (parameters, message) in [
            (json!({"model": 1}), "Invalid request: tools[2].parameters.model must be a string"),
            (json!({"model": ""}), "Invalid request: tools[2].parameters.model must be at least 1 characters"),
            (
                json!({"output_compression": 101}),
                "Invalid request: tools[2].parameters.output_compression must be at most 100",
            ),
            (
                json!({"background": "blue"}),
                "Invalid request: tools[2].parameters.background must be one of auto, transparent, opaque",
            ),
        ] {
            assert_eq!(image(parameters.clone()).unwrap_err(), message, "{parameters}");
        }
    }

    #[test]
    fn the_description_is_short_enough() {
        assert!(Image::description().0.len() <= 600, "{}", Image::description().0.len());
    }
}
