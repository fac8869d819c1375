//! Requests, one connection each, so that leaving is as easy as dropping; and answers, whole or event by event.

use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tidegate_wire::sse::{Frame, Splitter};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::soon;

/// A request being put together.
#[derive(Clone)]
pub struct Ask {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    host: String,
    body: Bytes,
}

impl Ask {
    pub fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        Self {
            address,
            method: method.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            host: "gateway.test".to_owned(),
            body: Bytes::new(),
        }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// The name under which the gateway is called.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.to_owned();
        self
    }

    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", format!("Bearer {key}"))
    }

    #[must_use]
    pub fn json(self, body: impl Into<Bytes>) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The whole answer.
    pub async fn send(self) -> Reply {
        soon("an answer", async {
            let (response, _connection) = self.start().await;
            let (head, body) = response.into_parts();
            let body = body.collect().await.expect("an answer that ends well").to_bytes();
            Reply { status: head.status.as_u16(), headers: head.headers, body }
        })
        .await
    }

    /// The head of an answer, its body to be read as it comes.
    pub async fn open(self) -> Streaming {
        let (response, connection) = soon("the head of an answer", self.start()).await;
        let (head, body) = response.into_parts();
        Streaming {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            splitter: Splitter::new(64 << 20),
            ready: VecDeque::new(),
            ended: false,
            _connection: connection,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is a client of the gateway")]
    async fn start(self) -> (Response<Incoming>, JoinSet<()>) {
        let stream = TcpStream::connect(self.address).await.expect("the gateway accepts");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let mut request = Request::builder().method(&*self.method).uri(&self.path).header("host", &self.host);
        for (name, value) in &self.headers {
            request = request.header(name, value.as_slice());
        }
        let request = request.body(Full::new(self.body)).expect("a test writes valid requests");
        (sender.send_request(request).await.expect("an answer"), tasks)
    }
}

/// All requests at once, and their answers as they came.
pub async fn together(asks: impl IntoIterator<Item = Ask>) -> Vec<Reply> {
    let mut running: JoinSet<Reply> = asks.into_iter().map(Ask::send).collect();
    let mut replies = Vec::new();
    while let Some(reply) = running.join_next().await {
        replies.push(reply.expect("a request does not panic"));
    }
    replies
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("plain text"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body_text()))
    }

    pub fn body_text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are UTF-8")
    }

    pub fn events(&self) -> Vec<Event> {
        events_of(self.body.clone())
    }

    /// What the model said, whole or streamed.
    pub fn text(&self) -> String {
        let streamed = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if streamed {
            return said(&self.events());
        }
        let json = self.json();
        let blocks = json["content"].as_array().cloned().unwrap_or_default();
        blocks.iter().filter_map(|block| block["text"].as_str()).collect()
    }

    /// Status, type and message of an error in the Messages form.
    pub fn error(&self) -> (u16, String, String, String) {
        let json = self.json();
        assert_eq!(json["type"], "error", "{json}");
        let member = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
        (self.status, member("type"), member("error_type"), member("message"))
    }
}

/// What the text deltas of a stream join up to.
pub fn said(events: &[Event]) -> String {
    events.iter().filter_map(|event| event.json()["delta"]["text"].as_str().map(ToOwned::to_owned)).collect()
}

/// One event, or a comment (which has no name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub data: String,
    /// To the byte, blank line included.
    pub raw: Bytes,
}

impl Event {
    fn of(frame: &Frame) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("events are UTF-8");
        Self { name: text(frame.event()), data: text(&frame.data()), raw: frame.0.clone() }
    }

    /// Null for a comment.
    pub fn json(&self) -> Value {
        if self.data.is_empty() { Value::Null } else { serde_json::from_str(&self.data).expect("events hold JSON") }
    }
}

/// All events of a finished stream.
fn events_of(bytes: Bytes) -> Vec<Event> {
    let mut splitter = Splitter::new(256 << 20);
    splitter.feed(bytes);
    let mut events = Vec::new();
    while let Some(frame) = splitter.next().expect("no limit is reached") {
        events.push(Event::of(&frame));
    }
    events.extend(splitter.finish().as_ref().map(Event::of));
    events
}

/// An answer whose body is still coming. Dropping it closes the connection.
pub struct Streaming {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    splitter: Splitter,
    ready: VecDeque<Event>,
    ended: bool,
    _connection: JoinSet<()>,
}

impl Streaming {
    /// The id of the generation.
    pub fn id(&self) -> String {
        let id = self.headers.get("x-generation-id").expect("a stream has a generation");
        id.to_str().expect("plain text").to_owned()
    }

    /// The next event; none once the stream is over.
    pub async fn next(&mut self) -> Option<Event> {
        soon("an event", async {
            loop {
                if let Some(event) = self.ready.pop_front() {
                    return Some(event);
                }
                if self.ended {
                    return None;
                }
                match self.body.frame().await {
                    Some(Ok(chunk)) => {
                        let Ok(chunk) = chunk.into_data() else { continue };
                        self.splitter.feed(chunk);
                        while let Some(frame) = self.splitter.next().expect("no limit is reached") {
                            self.ready.push_back(Event::of(&frame));
                        }
                    }
                    Some(Err(_)) | None => {
                        self.ended = true;
                        self.ready.extend(self.splitter.finish().as_ref().map(Event::of));
                    }
                }
            }
        })
        .await
    }

    /// Everything up to and including the first event of this name.
    pub async fn until(&mut self, name: &str) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            let found = event.name == name;
            events.push(event);
            if found {
                return events;
            }
        }
        panic!("the stream ended without {name}: {events:?}");
    }

    /// What is left, to the end.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// The same as text, once it is over.
    pub async fn text(self) -> String {
        said(&self.rest().await)
    }
}
