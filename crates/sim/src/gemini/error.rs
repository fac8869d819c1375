//! Errors in Google's shape: a canonical word for the status, and typed details.

use http::HeaderMap;
use http::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};

use crate::failure::{Class, Failure};

pub(super) fn body(failure: &Failure) -> Value {
    let (status, message) = match failure.class() {
        Class::Status(status) => words(status),
        Class::Word(word) => (word, words(failure.status).1),
    };
    let message = failure.message.as_deref().unwrap_or(message);
    let mut details = Vec::new();
    if let Some(field) = &failure.param {
        let violation = json!({"field": field, "description": message});
        details.push(json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}));
    } else if let Some(reason) = failure.code {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"},
        }));
    }
    if let Some(seconds) = failure.retry_seconds() {
        details.push(json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}));
    }
    let mut error = json!({"code": failure.status, "message": message, "status": status});
    if !details.is_empty() {
        error["details"] = details.into();
    }
    json!({"error": error})
}

/// Google gives the delay in the body; only what cannot stand there, a date, is a header.
pub(super) fn headers(failure: &Failure) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let (None, Some(text)) = (failure.retry_seconds(), &failure.retry_after)
        && let Ok(value) = HeaderValue::from_str(text)
    {
        headers.insert(RETRY_AFTER, value);
    }
    headers
}

fn words(status: u16) -> (&'static str, &'static str) {
    match status {
        401 => ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
        402 | 403 => ("PERMISSION_DENIED", "The caller does not have permission"),
        404 => ("NOT_FOUND", "The model is not found for API version v1beta, or is not supported for generateContent."),
        409 => ("ABORTED", "The operation was aborted."),
        429 => ("RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details."),
        499 => ("CANCELLED", "The operation was cancelled."),
        501 => ("UNIMPLEMENTED", "The operation is not implemented."),
        503 | 529 => ("UNAVAILABLE", "The model is overloaded. Please try again later."),
        504 => ("DEADLINE_EXCEEDED", "The request timed out. Please try again."),
        500.. => ("INTERNAL", "An internal error has occurred. Please retry."),
        _ => ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    }
}
