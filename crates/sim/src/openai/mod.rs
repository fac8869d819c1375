//! What OpenAI's two protocols share: errors, keys, and how a request is checked.

mod place;
mod tools;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use serde_json::{Value, json};

pub(crate) use self::place::Place;
pub(crate) use self::tools::{check_name, check_schema};
use crate::failure::{Class, Failure};
use crate::refuse::Path;
use crate::speak::keys;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Answers carry the time they were made; a fixed one keeps them comparable.
pub(crate) const CREATED: u64 = 1_700_000_000;

/// OpenAI takes a bearer token; Azure, which speaks the same protocols, a header of its own.
pub(crate) fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
    let given = keys(head, &["api-key"]);
    if given.contains(&key) {
        return Ok(());
    }
    let mut failure = Failure::new(
        401,
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer \
            auth (i.e. Authorization: Bearer YOUR_KEY).",
    );
    if !given.is_empty() {
        failure = Failure { code: Some("invalid_api_key"), ..Failure::new(401, "Incorrect API key provided.") };
    }
    Err(failure)
}

/// A parameter that nobody knows.
pub(crate) fn unknown(path: &Path) -> Failure {
    let path = path.bracketed();
    let message = format!("Unknown parameter: '{path}'.");
    Failure::at(path, "unknown_parameter", message)
}

pub(crate) fn body(failure: &Failure) -> Vec<u8> {
    json!({"error": detail(failure)}).to_string().into_bytes()
}

/// `{"message", "type", "param", "code"}`.
pub(crate) fn detail(failure: &Failure) -> Value {
    let (kind, code, message) = match failure.class() {
        Class::Status(status) => words(status),
        Class::Word(word) => (words(failure.status).0, Some(word), words(failure.status).2),
    };
    let kind = if code == Some("insufficient_quota") { "insufficient_quota" } else { kind };
    let code = failure.code.or(code);
    let message = failure.message.as_deref().unwrap_or(message);
    json!({"message": message, "type": kind, "param": failure.param, "code": code})
}

/// The hints of a limit, in both of the vendor's ways.
pub(crate) fn headers(failure: &Failure) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    if let Some(text) = &failure.retry_after {
        set(RETRY_AFTER, text);
    }
    if let Some(seconds) = failure.retry_seconds() {
        set(HeaderName::from_static("retry-after-ms"), &format!("{:.0}", seconds * 1000.0));
        if failure.status == 429 {
            set(HeaderName::from_static("x-ratelimit-limit-requests"), "60");
            set(HeaderName::from_static("x-ratelimit-remaining-requests"), "0");
            set(HeaderName::from_static("x-ratelimit-reset-requests"), &format!("{seconds}s"));
        }
    }
    headers
}

/// The type, the code and the message that go with a status.
fn words(status: u16) -> (&'static str, Option<&'static str>, &'static str) {
    const INVALID: &str = "invalid_request_error";
    match status {
        401 => (INVALID, Some("invalid_api_key"), "Incorrect API key provided."),
        402 => (INVALID, Some("billing_not_active"), "Your account is not active, please check your billing details."),
        403 => (INVALID, Some("unsupported_country_region_territory"), "Country, region, or territory not supported"),
        404 => (INVALID, Some("model_not_found"), "The model does not exist or you do not have access to it."),
        405 => (INVALID, Some("method_not_supported"), "Not allowed to use this method on this route."),
        413 => (INVALID, Some("request_too_large"), "Request exceeds the maximum size."),
        429 => ("requests", Some("rate_limit_exceeded"), "Rate limit reached for requests. Please try again in 1s."),
        503 | 529 => (
            "service_unavailable_error",
            Some("server_is_overloaded"),
            "Our servers are currently overloaded. Please try again later.",
        ),
        504 => ("server_error", Some("timeout"), "Request timed out."),
        500.. => ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
        _ => (INVALID, None, "The request is invalid."),
    }
}
