//! A client that keeps what a real one hides: how a response was framed and how it ended.

use std::future::Future;
use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::Sim;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A response as it came over the wire.
pub struct Reply {
    pub status: u16,
    pub head: String,
    /// Without the framing.
    pub body: Vec<u8>,
    /// The framing was ended as HTTP wants it.
    pub complete: bool,
    /// How the connection ended.
    pub end: io::Result<()>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data of all events, each checked against its name.
    pub fn events(&self) -> Vec<Value> {
        events(self.text())
    }

    /// The types of all events.
    pub fn kinds(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    /// A member of all deltas, joined.
    pub fn joined(&self, member: &str) -> String {
        self.events().iter().filter_map(|event| event["delta"][member].as_str().map(str::to_owned)).collect()
    }
}

pub fn events(text: &str) -> Vec<Value> {
    let frames = text.split_terminator("\n\n");
    let event = |frame: &str| {
        let (name, data) = frame.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    frames.map(event).collect()
}

/// A request with one user message, not streamed.
pub fn asks(text: &str) -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": text}]})
}

/// The same, streamed.
pub fn streams(text: &str) -> Value {
    with(asks(text), json!({"stream": true}))
}

/// The request with members added or replaced.
pub fn with(mut request: Value, members: Value) -> Value {
    let members = members.as_object().unwrap().clone();
    request.as_object_mut().unwrap().extend(members);
    request
}

pub async fn post(sim: &Sim, request: &Value) -> Reply {
    let body = request.to_string();
    call(sim, "POST", "/v1/messages", &[("x-api-key", "k")], body.as_bytes()).await
}

/// Sends one request and reads to the end of the connection.
pub async fn call(sim: &Sim, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut socket = send(sim, method, path, headers, body).await;
    let mut wire = Vec::new();
    let end = soon(socket.read_to_end(&mut wire)).await.map(|_| ());
    parse(&wire, end)
}

/// Sends one request and leaves the answer to the caller.
pub async fn send(sim: &Sim, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(sim.addr()).await.unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    socket
}

/// Reads until the wire holds a text this many times.
pub async fn read_until(socket: &mut TcpStream, text: &str, times: usize) -> String {
    let mut wire = Vec::new();
    loop {
        let found = String::from_utf8(wire.clone()).unwrap();
        if found.matches(text).count() >= times {
            return found;
        }
        assert_ne!(soon(socket.read_buf(&mut wire)).await.unwrap(), 0, "ended after {found}");
    }
}

/// All bytes of the connection, framing included.
pub async fn read_until_end(socket: &mut TcpStream) -> Vec<u8> {
    let mut wire = Vec::new();
    soon(socket.read_to_end(&mut wire)).await.unwrap();
    wire
}

/// Fails instead of waiting for ever.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("this does not take 20 seconds")
}

fn parse(wire: &[u8], end: io::Result<()>) -> Reply {
    let at = wire.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(wire[..at].to_vec()).unwrap();
    let rest = &wire[at + 4..];
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut reply = Reply { status, head, body: Vec::new(), complete: false, end };
    (reply.body, reply.complete) = match reply.header("content-length") {
        Some(length) => (rest.to_vec(), rest.len() == length.parse::<usize>().unwrap()),
        None if reply.header("transfer-encoding") == Some("chunked") => dechunk(rest),
        None => (rest.to_vec(), true),
    };
    reply
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(at) = rest.windows(2).position(|window| window == b"\r\n") else {
            return (body, false);
        };
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, true);
        }
        let end = (at + 2 + size).min(rest.len());
        body.extend_from_slice(&rest[at + 2..end]);
        rest = rest.get(end + 2..).unwrap_or_default();
    }
}
