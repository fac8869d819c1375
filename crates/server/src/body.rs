//! Reading a request's body: within its limits of size and time, and unpacked.

use std::future::poll_fn;
use std::io::Read as _;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_gateway::intake::Coming;
use tidegate_gateway::{Failure, Gateway, KeyEntry, tasks};
use tidegate_wire::error::ErrorType;
use tokio::time::{Instant, timeout, timeout_at};

use crate::state::App;

/// A body may grow by this factor when unpacked.
const LARGEST_RATIO: usize = 20;
/// What is thrown away of a body that is too large, so that its sender gets to read the answer.
const DISCARD: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
pub struct Limits<'a> {
    pub bytes: usize,
    pub idle: Duration,
    pub total: Duration,
    /// Where a body that is long in coming counts, and for whom.
    pub gateway: &'a Gateway,
    pub key: Option<&'a KeyEntry>,
}

impl<'a> Limits<'a> {
    pub fn of(app: &'a App, key: Option<&'a KeyEntry>, bytes: usize) -> Self {
        Self { bytes, idle: app.body_idle, total: app.body_total, gateway: &app.gateway, key }
    }
}

/// A body that came in one piece is a piece of the connection's buffer, which stays as long as the body is held: for a stream
/// that is long. One that is shorter is copied instead.
const COPIED: usize = 16 << 10;

/// The JSON body of a request, as bytes.
pub async fn read_json(headers: &HeaderMap, body: Incoming, limits: Limits<'_>) -> Result<Bytes, Failure> {
    check_type(headers)?;
    let packed = is_packed(headers)?;
    let bytes = read(headers, body, limits).await?;
    if !packed {
        return Ok(bytes);
    }
    // Unpacking is work for a thread of its own: a small body can hold a large one.
    let most = limits.bytes;
    let unpacked = tokio::task::spawn_blocking(move || unpack(&bytes, most)).await;
    unpacked.map_err(|_| Failure::internal())?
}

/// A body of any type that is not packed.
pub async fn read_plain(headers: &HeaderMap, body: Incoming, limits: Limits<'_>) -> Result<Bytes, Failure> {
    read(headers, body, limits).await
}

fn check_type(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    if kind.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    Err(Failure::invalid("Invalid request: Content-Type must be application/json"))
}

fn is_packed(headers: &HeaderMap) -> Result<bool, Failure> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(false) };
    let encoding = encoding.as_bytes().trim_ascii();
    if encoding.is_empty() || encoding.eq_ignore_ascii_case(b"identity") {
        return Ok(false);
    }
    if encoding.eq_ignore_ascii_case(b"gzip") {
        return Ok(true);
    }
    let shown: String =
        encoding.iter().take(64).map(|byte| if byte.is_ascii_graphic() { *byte as char } else { '?' }).collect();
    let message = format!("Invalid request: Content-Encoding {shown} is not supported");
    Err(Failure::new(415, ErrorType::InvalidRequest, message))
}

async fn read(headers: &HeaderMap, mut body: Incoming, limits: Limits<'_>) -> Result<Bytes, Failure> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits.bytes as u64) {
        // A client that waits for our word sends nothing.
        if !headers.contains_key(EXPECT) {
            discard(body);
        }
        return Err(Failure::too_large());
    }
    let mut deadline = None;
    let mut first: Option<Bytes> = None;
    let mut rest: Option<BytesMut> = None;
    let mut size = 0;
    let mut coming = None;
    loop {
        // Mostly all of it is here, and no clock need be asked.
        let next = match poll_fn(|context| Poll::Ready(Pin::new(&mut body).poll_frame(context))).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let now = Instant::now();
                let until = *deadline.get_or_insert(now + limits.total);
                timeout_at(until.min(now + limits.idle), body.frame()).await.map_err(|_| Failure::too_slow())?
            }
        };
        let Some(frame) = next else { break };
        // The client went away or broke the framing: nobody will read this answer.
        let frame = frame.map_err(|_| Failure::invalid("Invalid request: body ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > limits.bytes {
            drop(rest);
            discard(body);
            return Err(Failure::too_large());
        }
        if declared != Some(size as u64) || coming.is_some() {
            // There is more to come, or there was.
            let grown = match &mut coming {
                Some(coming) => Coming::grow(coming, data.len()),
                None => limits.gateway.receive(limits.key).and_then(|begun| coming.insert(begun).grow(data.len())),
            };
            if let Err(failure) = grown {
                drop((first, rest));
                discard(body);
                return Err(failure);
            }
        }
        match (&mut first, &mut rest) {
            (None, _) => first = Some(data),
            (Some(head), None) => {
                let expected = declared.and_then(|length| usize::try_from(length).ok()).unwrap_or(size * 2);
                let mut joined = BytesMut::with_capacity(expected.max(size));
                joined.extend_from_slice(head);
                joined.extend_from_slice(&data);
                rest = Some(joined);
            }
            (Some(_), Some(joined)) => joined.extend_from_slice(&data),
        }
    }
    Ok(match (rest, first) {
        (Some(joined), _) => joined.freeze(),
        (None, Some(whole)) if whole.len() < COPIED => Bytes::copy_from_slice(&whole),
        (None, whole) => whole.unwrap_or_default(),
    })
}

/// Hears a client out that is already sending: a connection that is closed on it takes our answer with it. The answer itself
/// does not wait for that, as the client may be waiting for it.
fn discard(mut body: Incoming) {
    tasks::spawn("hear a client out", async move {
        let _ = timeout(DISCARD, async { while let Some(Ok(_)) = body.frame().await {} }).await;
    });
}

fn unpack(packed: &[u8], limit: usize) -> Result<Bytes, Failure> {
    let limit = limit.min(packed.len().saturating_mul(LARGEST_RATIO).max(64 << 10));
    let mut out = Vec::with_capacity(packed.len().saturating_mul(4).min(limit));
    let read = MultiGzDecoder::new(packed).take(limit as u64 + 1).read_to_end(&mut out);
    if read.is_err() {
        return Err(Failure::invalid("Invalid request: body is not valid gzip"));
    }
    if out.len() > limit { Err(Failure::too_large()) } else { Ok(out.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_packed_body_is_unpacked_within_its_limits() {
        assert_eq!(unpack(&packed(b"{}"), 1000).unwrap(), "{}");
        assert_eq!(unpack(b"not gzip", 1000).unwrap_err().status, 400);
        assert_eq!(unpack(&packed(&vec![b'x'; 2000]), 1000).unwrap_err().status, 413);
        // A bomb: a thousand times its size, far below the limit of bytes.
        assert_eq!(unpack(&packed(&vec![0; 4 << 20]), 32 << 20).unwrap_err().status, 413);
    }
}
