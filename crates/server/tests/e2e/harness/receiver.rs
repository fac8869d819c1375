//! Somebody who is told of requests, and keeps what it was told.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Where people may have somebody told: not the address of the database, which nobody may point at.
pub const ELSEWHERE: &str = "127.0.0.2:0";
pub const ALLOWED: &str = "[egress]\nallow = [\"127.0.0.2/32\"]\n";
/// Nobody answers.
pub const HANGS: u16 = 0;

#[derive(Clone, Debug)]
pub struct Told {
    /// Method and target.
    pub line: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// Somebody who is told.
pub struct Receiver {
    pub address: SocketAddr,
    status: Arc<AtomicU16>,
    /// The longest body that it takes.
    most: Arc<AtomicUsize>,
    told: Arc<Mutex<Vec<Told>>>,
    refused: Arc<Mutex<Vec<Told>>>,
    _serving: JoinSet<()>,
}

impl Receiver {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(place: &str) -> Self {
        let listener = TcpListener::bind(place).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (status, told) = (Arc::new(AtomicU16::new(200)), Arc::<Mutex<Vec<Told>>>::default());
        let mut serving = JoinSet::new();
        let (most, refused) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::<Mutex<Vec<Told>>>::default());
        let (says, takes, log) = (status.clone(), most.clone(), (told.clone(), refused.clone()));
        serving.spawn(async move {
            let mut calls = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                calls.spawn(serve(stream, says.clone(), takes.clone(), log.clone()));
            }
        });
        Self { address, status, most, told, refused, _serving: serving }
    }

    /// With 429 it also asks to be left alone for a second.
    pub fn says(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// What is longer is answered with 413.
    pub fn takes(&self, bytes: usize) {
        self.most.store(bytes, Ordering::SeqCst);
    }

    /// What it was told and did not take.
    pub fn refused(&self) -> Vec<Told> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Every span that it was told of, with its resource.
    pub fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for told in self.told() {
            let body: Value = serde_json::from_str(&told.body).unwrap();
            for resource in body["resourceSpans"].as_array().unwrap() {
                for span in resource["scopeSpans"][0]["spans"].as_array().unwrap() {
                    let mut span = span.clone();
                    span["resource"] = resource["resource"].clone();
                    spans.push(span);
                }
            }
        }
        spans
    }

    /// The ids of the requests that it was told of.
    pub fn generations(&self) -> HashSet<String> {
        let spans = self.spans();
        spans.iter().filter_map(|span| attribute(span, "gen_ai.response.id")?.as_str().map(str::to_owned)).collect()
    }

    pub fn config(&self, kind: &str, lines: &str) -> String {
        let (member, name) = if kind == "webhook" { ("url", "hook") } else { ("endpoint", "collector") };
        let address = self.address;
        format!(
            "[[destinations]]\nname = \"{name}\"\ntype = \"{kind}\"\n{lines}\n\
             config = {{ {member} = \"http://{address}/v1/traces\" }}\n"
        )
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    /// Lets people of a workspace name it, on its own port.
    pub fn allowed(&self) -> String {
        format!("{ALLOWED}ports = [80, 443, {}]\n", self.address.port())
    }
}

/// What was taken, and what was not.
type Log = (Arc<Mutex<Vec<Told>>>, Arc<Mutex<Vec<Told>>>);

async fn serve(mut stream: TcpStream, status: Arc<AtomicU16>, most: Arc<AtomicUsize>, (taken, refused): Log) {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let (head, bytes) = loop {
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        seen.extend_from_slice(&buffer[..read]);
        let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&seen[..end]).into_owned();
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if seen.len() >= end + 4 + length {
            break (head, seen[end + 4..].to_vec());
        }
    };
    let status = if bytes.len() > most.load(Ordering::SeqCst) { 413 } else { status.load(Ordering::SeqCst) };
    if status == HANGS {
        return std::future::pending().await;
    }
    let header = |line: &str| line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    let headers = head.lines().skip(1).filter_map(header).collect();
    let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    let body = String::from_utf8_lossy(&bytes).into_owned();
    let log = if status == 200 { taken } else { refused };
    log.lock().unwrap_or_else(PoisonError::into_inner).push(Told { line, headers, body });
    let wait = if status == 429 { "retry-after: 1\r\n" } else { "" };
    let answer = format!("HTTP/1.1 {status} X\r\n{wait}content-length: 2\r\nconnection: close\r\n\r\n{{}}");
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// What a span says under a name.
pub fn attribute(span: &Value, name: &str) -> Option<Value> {
    attribute_in(&span["attributes"], name)
}

pub fn attribute_in(attributes: &Value, name: &str) -> Option<Value> {
    let found = attributes.as_array()?.iter().find(|each| each["key"] == name)?;
    let value = found["value"].as_object()?.values().next()?.clone();
    Some(value)
}
