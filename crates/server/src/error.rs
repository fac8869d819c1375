//! The one place where a failure becomes an HTTP answer.

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use tidegate_gateway::Failure;
use tidegate_wire::error::general;

use crate::router::{Answer, plain};
use crate::routes::Surface;

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
const REQUEST_IDS: [HeaderName; 2] = [HeaderName::from_static("request-id"), HeaderName::from_static("x-request-id")];

/// A failure in the form of its surface.
pub fn answer(failure: &Failure, surface: Surface, brand: &str) -> Answer {
    let body = match surface {
        Surface::Messages => failure.messages_json(brand),
        Surface::General => {
            // The same text as on the Messages surface but for the capitals of one.
            let message = if failure.status == 500 { "Internal Server Error" } else { &failure.message };
            general(failure.status, message, failure.metadata())
        }
    };
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = plain(status, "application/json", body);
    let headers = answer.headers_mut();
    if let Some(seconds) = failure.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // Waiting does not help against a limit of money.
    if failure.status == 402 {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    if let Some(id) = failure.generation.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        for name in REQUEST_IDS {
            headers.insert(name, id.clone());
        }
        headers.insert(GENERATION_ID, id);
    }
    answer
}
