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

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
/// Seconds beyond which an official client had better not sleep and try again by itself.
const LONGEST_WAIT: u64 = 60;

/// A failure in the form of its surface.
pub fn answer(failure: &Failure, surface: Surface, brand: &str) -> Answer {
    let body = match surface {
        Surface::Messages => failure.messages_json(brand),
        Surface::Inference => failure.inference_json(brand),
        Surface::General => general(failure.status, failure.general_message(), failure.metadata()),
    };
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = plain(status, "application/json", body);
    let headers = answer.headers_mut();
    headers.extend(failure.more.iter().flat_map(|more| more.headers.clone()));
    if let Some(seconds) = failure.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(limited) = failure.limited {
        headers.insert(LIMIT, HeaderValue::from(limited.limit));
        headers.insert(REMAINING, HeaderValue::from(0));
        headers.insert(RESET, HeaderValue::from(limited.reset.0));
    }
    // Waiting does not help against a limit of money unless calls under way hold it, nor in time against one that is far from
    // free.
    let is_far = failure.limited.is_some() && failure.retry_after.is_some_and(|wait| wait > LONGEST_WAIT);
    let should_retry = match failure.is_held {
        true => Some("true"),
        false => (failure.status == 402 || is_far).then_some("false"),
    };
    if let Some(said) = should_retry {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(said));
    }
    if let Some(id) = failure.generation.and_then(|id| HeaderValue::from_str(id.as_str()).ok()) {
        for name in REQUEST_IDS {
            headers.insert(name, id.clone());
        }
        headers.insert(GENERATION_ID, id);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Timestamp;
    use tidegate_wire::error::ErrorType;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn headers_of(failure: &Failure) -> [Option<String>; 5] {
        let answer = answer(failure, Surface::Messages, "tidegate");
        let names =
            ["retry-after", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "x-should-retry"];
        names.map(|name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_limit_of_ours_is_told_in_headers_and_one_that_is_far_from_free_stops_retries() {
        let limited = |ms: i64| headers_of(&Failure::rate_limited(256, Timestamp(NOW.0 + ms), NOW));
        let expected = |wait: &str, reset: &str, retry: Option<&str>| {
            [Some(wait), Some("256"), Some("0"), Some(reset), retry].map(|value| value.map(ToOwned::to_owned))
        };
        assert_eq!(limited(1_000), expected("1", "1790000001000", None));
        assert_eq!(limited(60_000), expected("60", "1790000060000", None));
        assert_eq!(limited(60_001), expected("61", "1790000060001", Some("false")));
    }

    #[test]
    fn what_a_provider_cannot_take_is_no_limit_of_ours() {
        let failure = Failure {
            retry_after: Some(3_600),
            ..Failure::new(429, ErrorType::RateLimitExceeded, "a/b: no provider has capacity, retry after 3600 s")
        };
        assert_eq!(headers_of(&failure), [Some("3600".to_owned()), None, None, None, None]);
    }
}
