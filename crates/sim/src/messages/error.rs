//! Errors in the shape of Anthropic's API.

use serde::Serialize;

use crate::failure::Failure;

#[derive(Serialize)]
pub(super) struct Envelope<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    error: Detail<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct Detail<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// The body of an error response.
pub(super) fn body(failure: &Failure, request_id: &str) -> Vec<u8> {
    serde_json::to_vec(&envelope(failure, request_id)).expect("strings always serialize")
}

/// The same as the data of an `error` event.
pub(super) fn envelope<'a>(failure: &'a Failure, request_id: &'a str) -> Envelope<'a> {
    let kind = failure.kind.as_deref().unwrap_or_else(|| kind_of(failure.status));
    let message = failure.message.as_deref().unwrap_or_else(|| default_message(failure.status));
    Envelope { kind: "error", error: Detail { kind, message }, request_id }
}

/// The type the vendor documents for a status.
fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

fn default_message(status: u16) -> &'static str {
    match status {
        401 => "invalid x-api-key",
        402 => "Your credit balance is too low",
        403 => "Your API key may not use this resource",
        404 => "Not found",
        413 => "Request exceeds the maximum size",
        429 => "This request would exceed your rate limit",
        503 => "Service unavailable",
        504 => "Request timed out",
        529 => "Overloaded",
        500.. => "Internal server error",
        _ => "The request is invalid",
    }
}
