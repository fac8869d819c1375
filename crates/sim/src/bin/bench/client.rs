//! One kept connection to whatever is being measured, and what an answer over it took.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpStream;

/// What is asked, again and again, and what must come back.
#[derive(Clone)]
pub struct Work {
    pub addr: SocketAddr,
    pub key: String,
    pub body: Bytes,
    pub stream: bool,
    pub status: StatusCode,
}

/// What one answer took.
pub struct Taken {
    pub whole: Duration,
    /// To the first bytes of the body.
    pub first: Duration,
    pub bytes: u64,
    pub events: u64,
}

pub struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    #[expect(clippy::disallowed_methods, reason = "this is a client of the gateway")]
    pub async fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr).await.with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        crate::spawn(async move {
            // Whoever waits for an answer learns of the error.
            let _ = connection.await;
        });
        Ok(Self(sender))
    }

    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends the request and reads the whole answer. An error leaves the connection unusable.
    pub async fn ask(&mut self, work: &Work) -> anyhow::Result<Taken> {
        let start = crate::now();
        let mut body = self.start(work).await?;
        let mut seen = Seen::default();
        let mut first = None;
        while let Some(frame) = body.frame().await {
            first.get_or_insert_with(|| start.elapsed());
            if let Ok(data) = frame?.into_data() {
                seen.take(&data, work.stream);
            }
        }
        let whole = start.elapsed();
        ensure!(!work.stream || seen.ended(), "a stream ended without message_stop");
        Ok(Taken { whole, first: first.unwrap_or(whole), bytes: seen.bytes, events: seen.events })
    }

    /// Sends the request and returns once the answer's status is known.
    pub async fn start(&mut self, work: &Work) -> anyhow::Result<Incoming> {
        self.0.ready().await?;
        let request = Request::post("/v1/messages")
            .header(HOST, work.addr.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", work.key))
            .header(CONTENT_TYPE, "application/json")
            .header("anthropic-version", "2023-06-01")
            .body(Full::new(work.body.clone()))?;
        let answer = self.0.send_request(request).await?;
        let status = answer.status();
        if status != work.status {
            let text = answer.into_body().collect().await?.to_bytes();
            let text = String::from_utf8_lossy(&text);
            anyhow::bail!("status {status}, expected {}: {}", work.status, text.trim());
        }
        Ok(answer.into_body())
    }
}

/// A single call on a connection of its own; the answer's body is read and dropped.
pub async fn call(addr: SocketAddr, method: Method, path: &str, body: Bytes) -> anyhow::Result<StatusCode> {
    let mut connection = Connection::open(addr).await?;
    let request = Request::builder().method(method).uri(path).header(HOST, addr.to_string()).body(Full::new(body))?;
    let answer = connection.0.send_request(request).await?;
    let status = answer.status();
    answer.into_body().collect().await?;
    Ok(status)
}

/// What went by, without keeping it.
#[derive(Default)]
struct Seen {
    bytes: u64,
    events: u64,
    after_newline: bool,
    tail: Vec<u8>,
}

impl Seen {
    /// Enough for the last event with all that a gateway may add to it.
    const TAIL: usize = 4096;

    fn take(&mut self, data: &[u8], stream: bool) {
        self.bytes += data.len() as u64;
        if !stream || data.is_empty() {
            return;
        }
        self.events += memmem::find_iter(data, b"\n\n").count() as u64;
        self.events += u64::from(self.after_newline && data.starts_with(b"\n"));
        self.after_newline = data.ends_with(b"\n") && !data.ends_with(b"\n\n");
        let keep = &data[data.len().saturating_sub(Self::TAIL)..];
        let excess = (self.tail.len() + keep.len()).saturating_sub(Self::TAIL);
        self.tail.drain(..excess.min(self.tail.len()));
        self.tail.extend_from_slice(keep);
    }

    fn ended(&self) -> bool {
        memmem::rfind(&self.tail, b"event: message_stop").is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_counts() {
        let whole = b"event: ping\ndata: {}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        for cut in 0..=whole.len() {
            let mut seen = Seen::default();
            seen.take(&whole[..cut], true);
            seen.take(&whole[cut..], true);
            assert_eq!((seen.events, seen.bytes, seen.ended()), (2, whole.len() as u64, true), "cut at {cut}");
        }
        let mut cut = Seen::default();
        cut.take(&whole[..20], true);
        assert!(!cut.ended());
    }
}
