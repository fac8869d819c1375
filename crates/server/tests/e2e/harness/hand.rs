//! An upstream played by hand, for tests in which the order of what happens on both sides matters: nothing is sent
//! until the test says so, so nothing can arrive together that was meant to arrive apart.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::soon;

pub struct Hand {
    listener: TcpListener,
}

/// A call that has arrived whole and waits for its answer.
pub struct Call {
    stream: TcpStream,
    /// Its head and body, in lower case.
    pub text: String,
}

impl Hand {
    pub async fn start() -> Self {
        Self { listener: TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port") }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.listener.local_addr().expect("it listens"))
    }

    /// The next call.
    pub async fn call(&self) -> Call {
        soon("the gateway calls", async {
            let (mut stream, _) = self.listener.accept().await.expect("a connection");
            let text = read_request(&mut stream).await;
            Call { stream, text }
        })
        .await
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.expect("a request");
        assert!(read > 0, "the gateway left before its request was whole");
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        // What has no body has no length.
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap_or("0");
        if body.len() >= length.trim().parse().expect("a number") {
            return text;
        }
    }
}

impl Call {
    /// Status and headers of an event stream.
    pub async fn streams(mut self) -> Self {
        // Every call comes over a connection of its own: one that is about to be closed must not be used again.
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        self.write(head.as_bytes()).await;
        self
    }

    /// Sends a piece of the body, at once.
    pub async fn send(&mut self, piece: &str) {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.write(chunk.as_bytes()).await;
    }

    /// The same; false when the gateway has left.
    pub async fn try_send(&mut self, piece: &str) -> bool {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        self.stream.write_all(chunk.as_bytes()).await.is_ok()
    }

    /// The proper end of the body.
    pub async fn end(mut self) {
        self.write(b"0\r\n\r\n").await;
    }

    /// Returns when the gateway has closed the connection.
    pub async fn gone(&mut self) {
        let mut byte = [0];
        let _ = soon("the gateway leaves", self.stream.read(&mut byte)).await;
    }

    /// A whole answer of JSON.
    pub async fn answers(mut self, body: &str) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        self.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the gateway reads");
        self.stream.flush().await.expect("the gateway reads");
    }
}
