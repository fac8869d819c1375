//! How the body of an answer comes: event by event, or whole.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_providers::{Class, Fault};

/// Whether its type says that it comes event by event. Types are written in any case.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let streams: [&[u8]; 2] = [b"text/event-stream", b"application/vnd.amazon.eventstream"];
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    streams.iter().any(|stream| kind.get(..stream.len()).is_some_and(|start| start.eq_ignore_ascii_case(stream)))
}

/// Whether it begins as events do: some servers and proxies send them under another type. No JSON begins like this.
pub(super) fn begins_events(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    [&b"data:"[..], b"event:", b":"].iter().any(|start| body.starts_with(start))
}

/// The next piece of a body.
pub(super) async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Fault> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::without_answer(Class::Unreachable))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// What is left of a body behind its first piece; it stays where it is, as its connection is wanted again.
pub(super) async fn gathered(first: Option<Bytes>, body: &mut Incoming, limit: usize) -> Result<BytesMut, Fault> {
    let mut whole = BytesMut::new();
    let mut piece = first;
    while let Some(data) = piece {
        if whole.len() + data.len() > limit {
            return Err(Fault::in_answer(Class::BadResponse));
        }
        whole.extend_from_slice(&data);
        piece = next(body).await?;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_the_same_in_any_case() {
        let is =
            |kind: &'static str| is_stream(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]));
        for kind in ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/vnd.amazon.eventstream"] {
            assert!(is(kind), "{kind}");
        }
        assert!(!is("text/event") && !is("application/json") && !is_stream(&HeaderMap::new()));
    }

    #[test]
    fn events_are_known_by_how_they_begin() {
        for body in ["data: {}", "event: ping\n", ": keep-alive\n", "\u{feff}data:{}", "\r\n\ndata: {}"] {
            assert!(begins_events(body.as_bytes()), "{body:?}");
        }
        for body in ["", "{\"data\":1}", "[1]", "<html>", "database", "\"data:\""] {
            assert!(!begins_events(body.as_bytes()), "{body:?}");
        }
    }
}
