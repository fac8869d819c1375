//! Somebody else's HTTP service, which the gateway may call: it answers by path and remembers what it was sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// All of it, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

#[derive(Default)]
struct Inside {
    answers: Mutex<HashMap<String, Vec<u8>>>,
    asked: Mutex<Vec<Asked>>,
}

pub struct Service {
    address: SocketAddr,
    inside: Arc<Inside>,
    _serving: JoinSet<()>,
}

impl Service {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let (address, inside) = (listener.local_addr().expect("it listens"), Arc::<Inside>::default());
        let (mut serving, shared) = (JoinSet::new(), inside.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, inside, _serving: serving }
    }

    /// From now on this path is answered so.
    pub fn answers(&self, path: &str, status: &str, kind: &str, body: &[u8]) {
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let answer = [head.as_bytes(), body].concat();
        self.inside.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), answer);
    }

    pub fn says(&self, path: &str, body: &Value) {
        self.answers(path, "200 OK", "application/json", body.to_string().as_bytes());
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Lets callers point at it.
    pub fn allowed(&self) -> String {
        format!("[egress]\nallow = [\"127.0.0.1/32\"]\nports = [80, 443, {}]\n", self.address.port())
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.inside.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(mut stream: TcpStream, inside: Arc<Inside>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 << 10]);
    let (head, length) = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.and_then(|length| length.trim().parse::<usize>().ok()).unwrap_or(0);
            break (head, end + 4 + length);
        }
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => bytes.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    };
    while bytes.len() < length {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => bytes.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = bytes.split_off(bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| end + 4));
    let answer = inside.answers.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    inside.asked.lock().unwrap_or_else(PoisonError::into_inner).push(Asked { head, body });
    let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(answer.as_deref().unwrap_or(missing)).await;
    let _ = stream.shutdown().await;
}
