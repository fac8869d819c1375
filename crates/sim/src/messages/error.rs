//! Errors in the shape of Anthropic's API.

use serde::Serialize;

#[derive(Serialize)]
struct Envelope<'a> {
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

/// The body of an error response, and the data of an `error` event.
pub(super) fn body(kind: &str, message: &str, request_id: &str) -> Vec<u8> {
    let error = Detail { kind, message };
    let envelope = Envelope { kind: "error", error, request_id };
    serde_json::to_vec(&envelope).expect("strings always serialize")
}

/// The type the vendor documents for a status.
pub(super) fn kind_of(status: u16) -> &'static str {
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

/// The status the vendor documents for a type: what an error event would have been before the stream.
pub(super) fn status_of(kind: &str) -> u16 {
    match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    }
}

pub(super) fn default_message(status: u16) -> &'static str {
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
