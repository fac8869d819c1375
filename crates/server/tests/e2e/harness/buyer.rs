//! A client that remembers: what it asked for, what it heard of it, and what it was told that it costs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tidegate_core::Money;
use tidegate_core::clock::{Clock as _, SystemClock};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What a client knows of one request.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub number: u64,
    /// None when not even a status came.
    pub status: Option<u16>,
    pub id: Option<String>,
    pub body: Bytes,
    /// The answer came to its proper end.
    pub is_complete: bool,
    /// When it hung up of its own accord.
    pub left: Option<Instant>,
}

impl Heard {
    /// What the answer says that it costs.
    pub fn cost(&self) -> Option<Money> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let (_, rest) = text.rsplit_once("\"cost\":")?;
        let end = rest.find([',', '}'])?;
        Money::parse(&rest[..end]).ok()
    }
}

/// A request to be made. Its session is its number, so that its record can be found by it.
#[derive(Clone, Debug)]
pub struct Buy {
    pub address: SocketAddr,
    pub key: String,
    pub model: &'static str,
    pub number: u64,
    pub streamed: bool,
    pub max_tokens: Option<u64>,
    /// Hangs up after so many bytes of the body, or after this time without an answer.
    pub leave_after: Option<usize>,
    pub patience: Duration,
}

impl Buy {
    pub fn new(address: SocketAddr, key: &str, model: &'static str, number: u64, streamed: bool) -> Self {
        let (key, patience) = (key.to_owned(), Duration::from_secs(60));
        Self { address, key, model, number, streamed, max_tokens: Some(64), leave_after: None, patience }
    }

    /// Makes it. Whatever goes wrong on the way is what was heard.
    pub async fn make(self) -> Heard {
        let mut heard = Heard { number: self.number, ..Heard::default() };
        let patience = self.patience;
        if tokio::time::timeout(patience, self.hear(&mut heard)).await.is_err() {
            heard.left = Some(SystemClock.instant());
        }
        heard
    }

    #[expect(clippy::disallowed_methods, reason = "this is a client of the gateway")]
    async fn hear(self, heard: &mut Heard) -> Option<()> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let mut body = json!({
            "model": self.model, "stream": self.streamed,
            "messages": [{"role": "user", "content": self.number.to_string()}],
        });
        if let Some(most) = self.max_tokens {
            body["max_tokens"] = most.into();
        }
        let request = Request::post("/v1/messages")
            .header("host", "gateway.test")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {}", self.key))
            .header("x-session-id", self.number.to_string())
            .body(Full::new(Bytes::from(body.to_string())))
            .expect("a valid request");
        let response = sender.send_request(request).await.ok()?;
        heard.status = Some(response.status().as_u16());
        heard.id = response.headers().get("x-generation-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        loop {
            if self.leave_after.is_some_and(|most| bytes.len() >= most) {
                heard.left = Some(SystemClock.instant());
                heard.body = bytes.freeze();
                return None;
            }
            match body.frame().await {
                Some(Ok(frame)) => {
                    bytes.extend_from_slice(frame.data_ref()?);
                    heard.body = bytes.clone().freeze();
                }
                Some(Err(_)) => return None,
                None => break,
            }
        }
        let is_whole = !self.streamed || memchr::memmem::find(&bytes, b"event: message_stop").is_some();
        heard.is_complete = heard.status == Some(200) && is_whole;
        Some(())
    }
}
