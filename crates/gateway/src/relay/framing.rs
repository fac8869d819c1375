//! How the body of an answer comes: event by event, or whole.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http_body::Body;
use http_body_util::BodyExt as _;
use tidegate_providers::{Class, Fault};
use tokio::time::{Instant, timeout, timeout_at};

use crate::upstream::ERROR_BODY;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// How events begin; no JSON does.
const EVENTS: [&[u8]; 3] = [b"data:", b"event:", b":"];

/// Whether its type says that it comes event by event. Types are written in any case.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    let streams: [&[u8]; 2] = [b"text/event-stream", b"application/vnd.amazon.eventstream"];
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    streams.iter().any(|stream| kind.get(..stream.len()).is_some_and(|start| start.eq_ignore_ascii_case(stream)))
}

/// Whether it begins as events do: some servers and proxies send them under another type.
pub(super) fn begins_events(body: &[u8]) -> bool {
    let body = body.strip_prefix(BOM).unwrap_or(body).trim_ascii_start();
    EVENTS.iter().any(|start| body.starts_with(start))
}

/// The first piece of a body that shows whether it is events, without the blanks before that: pieces are cut anywhere,
/// and some servers send empty lines while they think.
/// `begun`: until when the first of it must be there, where that is bounded; `idle`: how long nothing may come then.
pub(super) async fn beginning(
    body: &mut (impl Body<Data = Bytes> + Unpin),
    begun: Option<Instant>,
    idle: Duration,
) -> Result<Option<Bytes>, Fault> {
    let mut first = Bytes::new();
    let mut piece = match begun {
        Some(begun) => timeout_at(begun, next(body)).await.map_err(|_| Fault::without_answer(Class::Timeout))?,
        None => next(body).await,
    }?;
    while let Some(data) = piece.take() {
        first = if first.is_empty() { data } else { [first, data].concat().into() };
        if first.starts_with(BOM) {
            first.advance(BOM.len());
        }
        first.advance(first.len() - first.trim_ascii_start().len());
        let is_open = [BOM].iter().chain(&EVENTS).any(|start| start.len() > first.len() && start.starts_with(&first));
        if !is_open {
            break;
        }
        piece = within(idle, body).await?;
    }
    Ok(Some(first).filter(|first| !first.is_empty()))
}

/// The next piece of a body.
pub(super) async fn next(body: &mut (impl Body<Data = Bytes> + Unpin)) -> Result<Option<Bytes>, Fault> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Fault::without_answer(Class::Unreachable))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// The same, if it comes in time.
pub(super) async fn within(
    idle: Duration,
    body: &mut (impl Body<Data = Bytes> + Unpin),
) -> Result<Option<Bytes>, Fault> {
    match idle {
        Duration::MAX => next(body).await,
        idle => timeout(idle, next(body)).await.map_err(|_| Fault::without_answer(Class::Timeout))?,
    }
}

/// What is left of a body behind its first piece; it stays where it is, as its connection is wanted again.
pub(super) async fn gathered(
    first: Option<Bytes>,
    body: &mut (impl Body<Data = Bytes> + Unpin),
    limit: usize,
    idle: Duration,
) -> Result<BytesMut, Fault> {
    let mut whole = BytesMut::new();
    let mut piece = first;
    while let Some(data) = piece {
        if whole.len() + data.len() > limit {
            return Err(Fault::in_answer(Class::BadResponse));
        }
        whole.extend_from_slice(&data);
        piece = within(idle, body).await?;
    }
    Ok(whole)
}

/// The same of what can only be an error: as much as is needed to tell which, also where the rest never comes.
pub(super) async fn excerpt(first: Option<Bytes>, body: &mut (impl Body<Data = Bytes> + Unpin)) -> BytesMut {
    let mut out = BytesMut::new();
    let mut piece = first;
    while let Some(data) = piece {
        out.extend_from_slice(&data[..data.len().min(ERROR_BODY - out.len())]);
        if out.len() >= ERROR_BODY {
            break;
        }
        piece = next(body).await.unwrap_or_default();
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::Frame;

    use super::*;

    /// A body of these pieces; none stands for a connection that breaks.
    struct Pieces(VecDeque<Option<&'static [u8]>>);

    impl Pieces {
        fn of(pieces: &[&'static [u8]]) -> Self {
            Self(pieces.iter().map(|piece| Some(*piece)).collect())
        }
    }

    impl Body for Pieces {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            let piece = self.0.pop_front();
            Poll::Ready(piece.map(|piece| match piece {
                Some(data) => Ok(Frame::data(Bytes::from_static(data))),
                None => Err(io::ErrorKind::ConnectionReset.into()),
            }))
        }
    }

    #[tokio::test]
    async fn a_beginning_is_read_until_it_shows_what_it_is() {
        let cases: &[(&[&[u8]], &str, bool)] = &[
            (&[b"d", b"ata: {}\n\n"], "data: {}\n\n", true),
            (&[b"\n", b"\r\n", b"data: {}\n\n"], "data: {}\n\n", true),
            (&[b"\xef\xbb\xbf", b"event", b": ping\n", b"data: {}\n\n"], "event: ping\n", true),
            (&[b"\xef", b"\xbb\xbf \n", b":"], ":", true),
            (&[b"", b"dat", b"a", b":x"], "data:x", true),
            (&[b"\n", b"\n", b"{", b"}"], "{", false),
            (&[b"da", b"tum"], "datum", false),
            (&[b"da"], "da", false),
        ];
        for (pieces, wanted, is_events) in cases {
            let first = beginning(&mut Pieces::of(pieces), None, Duration::MAX).await.unwrap().unwrap();
            assert_eq!((&*first, begins_events(&first)), (wanted.as_bytes(), *is_events), "{pieces:?}");
        }
        assert_eq!(beginning(&mut Pieces::of(&[b"\n", b" "]), None, Duration::MAX).await.unwrap(), None);
        assert!(beginning(&mut Pieces(VecDeque::from([Some(&b"d"[..]), None])), None, Duration::MAX).await.is_err());
    }

    #[tokio::test]
    async fn an_error_is_read_as_far_as_it_comes() {
        let mut broken = Pieces(VecDeque::from([Some(&b"\"error\"}"[..]), None, Some(b"x")]));
        assert_eq!(&*excerpt(Some(Bytes::from_static(b"{")), &mut broken).await, br#"{"error"}"#);
        let mut long = Pieces(vec![Some(&[b'x'; 40 << 10][..]); 3].into());
        assert_eq!(excerpt(Some(Bytes::from_static(b"{")), &mut long).await.len(), ERROR_BODY);
        assert_eq!(long.0.len(), 1);
    }

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
