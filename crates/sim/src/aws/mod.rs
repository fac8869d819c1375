//! What the protocols on Amazon Bedrock share: paths, who may call, errors, and the framing of streams.

pub(crate) mod frame;
mod sign;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use serde_json::{Value, json};

use crate::events::{Events, Writer};
use crate::failure::{Class, Failure};
use crate::quirk::Quirk;
use crate::speak::{Odd, keys};

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
pub(crate) const STREAM: HeaderValue = HeaderValue::from_static("application/vnd.amazon.eventstream");

/// What a path asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Converse,
    ConverseStream,
    Invoke,
    InvokeStream,
    Count,
}

impl Verb {
    /// The model and the verb of `…/model/{model}/{verb}`. A model's id is one segment: what has a meaning in a
    /// path is percent-encoded in it.
    pub fn of(path: &str) -> Option<(String, Self)> {
        let (model, verb) = path.split_once("/model/")?.1.split_once('/')?;
        let verb = match verb {
            "converse" => Verb::Converse,
            "converse-stream" => Verb::ConverseStream,
            "invoke" => Verb::Invoke,
            "invoke-with-response-stream" => Verb::InvokeStream,
            "count-tokens" => Verb::Count,
            _ => return None,
        };
        let model = decoded(model)?;
        match model.as_str() {
            "" | "." | ".." => None,
            _ => Some((model, verb)),
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let value = digit()? * 16 + digit()?;
        out.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(out).ok()
}

/// Every call is signed or carries a key; which one is no matter unless the script names it.
pub(crate) fn authenticate(head: &Parts, body: &[u8]) -> Result<(), Failure> {
    match authorization(head) {
        None => Err(Failure {
            code: Some("MissingAuthenticationTokenException"),
            ..Failure::new(403, "Missing Authentication Token")
        }),
        Some(value) => match value.strip_prefix("Bearer ") {
            Some(key) if !key.trim().is_empty() => Ok(()),
            _ => sign::check(value, head, body),
        },
    }
}

/// A key is a bearer token or the id of the key that signs.
pub(crate) fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
    let signer = authorization(head).and_then(sign::key);
    if keys(head, &[]).contains(&key) || signer == Some(key) {
        return Ok(());
    }
    let message = "The security token included in the request is invalid.";
    Err(Failure { code: Some("UnrecognizedClientException"), ..Failure::new(403, message) })
}

fn authorization(head: &Parts) -> Option<&str> {
    head.headers.get("authorization")?.to_str().ok()
}

pub(crate) fn error(failure: &Failure) -> (Vec<u8>, HeaderMap) {
    let (kind, message) = words(failure);
    let mut headers = HeaderMap::new();
    if let Ok(kind) = HeaderValue::try_from(format!("{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/")) {
        headers.insert(HeaderName::from_static("x-amzn-errortype"), kind);
    }
    if let Some(value) = failure.retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.insert(RETRY_AFTER, value);
    }
    (json!({"message": message}).to_string().into_bytes(), headers)
}

/// An error within a stream: its type, as a member's name.
pub(crate) fn exception(failure: &Failure) -> Bytes {
    let (kind, message) = words(failure);
    let mut kind = kind.to_owned();
    if let Some(first) = kind.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    frame::exception(&kind, &json!({"message": message})).into()
}

/// A model that failed while it spoke.
pub(crate) fn model_stream_error() -> Vec<u8> {
    let payload: Value = json!({"message": "The model failed while it was streaming.", "originalStatusCode": 503,
        "originalMessage": "Overloaded"});
    frame::exception("modelStreamErrorException", &payload)
}

/// A frame that is in order around something that is not JSON.
pub(crate) fn broken(kind: &str, payload: &str) -> Bytes {
    let headers = [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame::frame(&headers, payload.as_bytes()).into()
}

/// The betas that a body names.
pub(crate) fn betas(body: &Value) -> Vec<String> {
    let list = body["anthropic_beta"].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Quirks of the framing and of errors, the same for both protocols.
pub(crate) fn odd(quirk: Quirk, stream: bool, events: impl FnOnce() -> Events) -> Option<(u16, Odd)> {
    let whole = |status: u16, body: &Value| Some((status, Odd::Whole(body.to_string().into_bytes())));
    let message = "Bedrock is unable to process your request.";
    if quirk == Quirk::ErrorTypeInBody {
        return whole(
            429,
            &json!({"__type": "com.amazon.bedrock#ThrottlingException", "Message": "Too many requests"}),
        );
    }
    if !stream {
        return match quirk {
            Quirk::ErrorIn200 => whole(200, &json!({"message": message})),
            Quirk::ErrorFrame => whole(500, &json!({"message": message})),
            Quirk::ModelStreamError => whole(424, &json!({"message": "The model failed.", "originalStatusCode": 503})),
            _ => None,
        };
    }
    let mut frames = match quirk {
        Quirk::ErrorIn200 => Vec::new(),
        Quirk::BadChecksum | Quirk::ErrorFrame | Quirk::ModelStreamError | Quirk::UnknownEvents => events().each(),
        _ => return None,
    };
    match quirk {
        Quirk::ErrorIn200 => frames.push(exception(&Failure::status(503))),
        Quirk::BadChecksum => {
            if let Some(third) = frames.get_mut(2) {
                let mut bytes = third.to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                *third = bytes.into();
            }
        }
        Quirk::UnknownEvents => {
            let stranger = Bytes::from(frame::event("futureEvent", &json!({"x": 1})));
            frames = frames.into_iter().flat_map(|event| [stranger.clone(), event]).collect();
        }
        _ => {
            frames.truncate(3);
            frames.push(match quirk {
                Quirk::ErrorFrame => frame::error("InternalError", "An internal server error occurred").into(),
                _ => model_stream_error().into(),
            });
        }
    }
    let mut out = Writer::default();
    for frame in frames {
        out.write(|bytes| bytes.extend_from_slice(&frame));
    }
    Some((200, Odd::Events(out.events())))
}

/// The type of an error and its message.
fn words(failure: &Failure) -> (&str, &str) {
    let (kind, message) = match failure.class() {
        Class::Status(status) => default(status),
        Class::Word(word) => (word, default(failure.status).1),
    };
    // Codes of other vendors' words for what is wrong are no types.
    let kind = failure.code.filter(|code| code.ends_with("Exception")).unwrap_or(kind);
    (kind, failure.message.as_deref().unwrap_or(message))
}

fn default(status: u16) -> (&'static str, &'static str) {
    match status {
        401..=403 => ("AccessDeniedException", "You don't have access to the model with the specified model ID."),
        404 => ("ResourceNotFoundException", "The model could not be found."),
        408 | 504 => ("ModelTimeoutException", "The model timed out. Try your request again."),
        413 => ("RequestEntityTooLargeException", "The request is too large."),
        424 => ("ModelErrorException", "The model failed to process the request."),
        429 => ("ThrottlingException", "Too many requests, please wait before trying again."),
        503 | 529 => ("ServiceUnavailableException", "Bedrock is unable to process your request."),
        500.. => ("InternalServerException", "The system encountered an unexpected error. Try your request again."),
        _ => ("ValidationException", "The request is not valid."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_one_segment_of_the_path() {
        let of = |path: &str| Verb::of(path).map(|(model, _)| model);
        assert_eq!(Verb::of("/model/m/converse"), Some(("m".into(), Verb::Converse)));
        assert_eq!(of("/x/model/a.b-v1%3A0/converse-stream").as_deref(), Some("a.b-v1:0"));
        assert_eq!(of("/model/a.b-v1:0/invoke").as_deref(), Some("a.b-v1:0"));
        assert_eq!(of("/model/arn%3Aaws%2fm/count-tokens").as_deref(), Some("arn:aws/m"));
        for path in [
            "/model/a/b/converse",
            "/model//converse",
            "/model/%2E%2e/converse",
            "/model/a%/converse",
            "/model/a%2/converse",
            "/model/%ff/converse",
            "/model/a",
            "/model/a/other",
            "/models/a/converse",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
