//! An upstream that answers everybody and forgets nothing: which key each call came with, and what it said.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const ANSWER: &str = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9}}"#;

type Calls = Arc<Mutex<Vec<(String, String)>>>;

pub struct Recorder {
    address: SocketAddr,
    calls: Calls,
    _serving: JoinSet<()>,
}

impl Recorder {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let calls = Calls::default();
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, calls.clone()));
        Self { address, calls, _serving: serving }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Key and first message of every call, in the order they came.
    pub fn seen(&self) -> Vec<(String, String)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, calls: Calls) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let calls = calls.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, &calls));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, calls: &Calls) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer ").map(str::to_owned));
    let key = text("x-api-key").or(bearer).unwrap_or_default();
    let body = request.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let said = body["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
    calls.lock().unwrap_or_else(PoisonError::into_inner).push((key, said));
    let answer = Response::builder().header("content-type", "application/json").body(Full::new(Bytes::from(ANSWER)));
    Ok(answer.expect("the answer is well-formed"))
}
