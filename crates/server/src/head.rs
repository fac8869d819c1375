//! What a request's head must not be, beyond what the HTTP library refuses: large, or such that a proxy in front of us
//! could read it in another way than we do.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{Version, request};
use tidegate_gateway::Failure;
use tidegate_wire::error::ErrorType;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Bytes of all headers together.
pub const LARGEST: usize = 32 << 10;
/// Headers.
pub const MOST: usize = 100;

/// Refuses a head that is too large or has two meanings. The connection had better end with the answer: where the next
/// request begins is part of what is not agreed upon.
pub fn check(head: &request::Parts) -> Result<(), Failure> {
    if is_large(&head.headers) {
        return Err(Failure::new(431, ErrorType::InvalidRequest, "Request headers too large"));
    }
    match ambiguity(head.version, &head.headers) {
        None => Ok(()),
        Some(text) => Err(Failure::invalid(format!("Invalid request: {text}"))),
    }
}

fn is_large(headers: &HeaderMap) -> bool {
    // Each on a line of its own, behind its name and a colon.
    let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + ": \r\n".len();
    headers.len() > MOST || headers.iter().map(size).sum::<usize>() > LARGEST
}

// The library folds a length that is repeated with the same value into one, and drops one beside chunks (and closes behind
// the answer), so neither is seen here on HTTP/1.1.
fn ambiguity(version: Version, headers: &HeaderMap) -> Option<&'static str> {
    if is_repeated(headers, CONTENT_LENGTH) {
        return Some("Content-Length must not be repeated");
    }
    if let Some(coding) = headers.get(TRANSFER_ENCODING) {
        if headers.contains_key(CONTENT_LENGTH) {
            return Some("Content-Length must not stand beside Transfer-Encoding");
        }
        if is_repeated(headers, TRANSFER_ENCODING) || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Some("Transfer-Encoding must be chunked");
        }
    }
    // HTTP/2 has a name of its own for it, and HTTP/1.0 need not say it.
    if is_repeated(headers, HOST) || (version == Version::HTTP_11 && !headers.contains_key(HOST)) {
        return Some("exactly one Host is needed");
    }
    if is_repeated(headers, AUTHORIZATION) {
        return Some("Authorization must not be repeated");
    }
    is_repeated(headers, X_API_KEY).then_some("x-api-key must not be repeated")
}

fn is_repeated(headers: &HeaderMap, name: HeaderName) -> bool {
    // Nearly always every name stands there once, which needs no search.
    headers.len() > headers.keys_len() && headers.get_all(name).iter().nth(1).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(version: Version, lines: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        ambiguity(version, &headers).is_some()
    }

    #[test]
    fn inp_1_what_can_be_read_in_two_ways_is_refused() {
        let host = ("host", "x");
        for lines in [
            &[("transfer-encoding", "gzip, chunked")][..],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "chunked"), ("content-length", "2")],
            &[("content-length", "2"), ("content-length", "2")],
            &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
            &[("x-api-key", "a"), ("x-api-key", "b")],
            &[("host", "y")],
        ] {
            let lines = [&[host], lines].concat();
            assert!(refused(Version::HTTP_11, &lines), "{lines:?}");
        }
        assert!(refused(Version::HTTP_11, &[]));
    }

    #[test]
    fn heads_have_a_size() {
        let of = |lines: &[(usize, usize)]| {
            let mut headers = HeaderMap::new();
            for (count, length) in lines {
                for _ in 0..*count {
                    headers.append("x-a", HeaderValue::try_from("x".repeat(*length)).unwrap());
                }
            }
            is_large(&headers)
        };
        // Three bytes of name, four around it.
        assert!(!of(&[(1, LARGEST - 7)]) && of(&[(1, LARGEST - 6)]));
        assert!(!of(&[(100, 1)]) && of(&[(101, 1)]));
        assert!(!of(&[(1, LARGEST - 15), (1, 1)]) && of(&[(1, LARGEST - 14), (1, 1)]));
    }

    #[test]
    fn what_has_one_meaning_passes() {
        let host = ("host", "x");
        assert!(!refused(Version::HTTP_11, &[host]));
        assert!(!refused(Version::HTTP_11, &[host, ("transfer-encoding", "Chunked"), ("authorization", "Bearer a")]));
        assert!(!refused(Version::HTTP_11, &[host, ("content-length", "2"), ("x-api-key", "a")]));
        assert!(!refused(Version::HTTP_10, &[]));
        assert!(!refused(Version::HTTP_2, &[]));
    }
}
