//! An upstream that charges: what each of its answers uses follows from the number in the request, so that anyone can
//! compute it, and it remembers what it was asked for, what it said to the end, and when it was left alone.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep};

use super::frame;

/// What the answer with this number uses: tokens of its prompt and of its output.
pub fn uses(number: u64) -> (u64, u64) {
    (100 + number * 7 % 997, 5 + number * 13 % 211)
}

/// Deltas of a streamed answer.
const DELTAS: usize = 6;

/// One request as it went here.
#[derive(Clone, Debug, Default)]
pub struct Sale {
    /// How often it was asked for.
    pub calls: usize,
    /// All of the answer was handed out.
    pub is_complete: bool,
    /// When the other side went away before that.
    pub left: Option<Instant>,
}

#[derive(Clone, Debug)]
pub struct Pace {
    /// Before the first byte, and between two events.
    pub first: Duration,
    pub gap: Duration,
    /// What an answer uses; [`uses`] when nothing is said.
    pub usage: Option<(u64, u64)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_millis(20), gap: Duration::from_millis(20), usage: None }
    }
}

pub struct Till {
    address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

struct State {
    sales: Mutex<HashMap<u64, Sale>>,
    pace: Pace,
    /// How many calls came, and how many of them, in the order they came, may be answered.
    came: AtomicU64,
    released: watch::Sender<u64>,
    running: watch::Sender<usize>,
}

impl State {
    fn sales(&self) -> MutexGuard<'_, HashMap<u64, Sale>> {
        self.sales.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Till {
    pub async fn start(pace: Pace) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let state = State {
            sales: Mutex::default(),
            pace,
            came: AtomicU64::new(0),
            released: watch::Sender::new(u64::MAX),
            running: watch::Sender::new(0),
        };
        let state = Arc::new(state);
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, state.clone()));
        Self { address, state, _serving: serving }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it knows, by number.
    pub fn sales(&self) -> HashMap<u64, Sale> {
        self.state.sales().clone()
    }

    pub fn sale(&self, number: u64) -> Option<Sale> {
        self.state.sales().get(&number).cloned()
    }

    /// From now on everybody gets an answer, or nobody who comes.
    pub fn open(&self, is_open: bool) {
        self.state.released.send_replace(if is_open { u64::MAX } else { self.state.came.load(Ordering::SeqCst) });
    }

    /// Waits until this many calls or more are under way here.
    pub async fn busy(&self, calls: usize) {
        let mut running = self.state.running.subscribe();
        running.wait_for(|running| *running >= calls).await.expect("the till is there");
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, state.clone()));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Answer>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let number = body["messages"][0]["content"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    state.sales().entry(number).or_default().calls += 1;
    let place = state.came.fetch_add(1, Ordering::SeqCst);
    state.running.send_modify(|running| *running += 1);
    let guard = Guard { state: state.clone(), number, is_complete: false };
    let (input, output) = state.pace.usage.unwrap_or_else(|| uses(number));
    let _ = state.released.subscribe().wait_for(|released| place < *released).await;
    sleep(state.pace.first).await;
    let is_stream = body["stream"] == true;
    let pieces = if is_stream { streamed(number, input, output) } else { vec![whole(number, input, output)] };
    let gap = state.pace.gap;
    let kind = if is_stream { "text/event-stream" } else { "application/json" };
    let answer = Answer { pieces: pieces.into_iter(), gap, wait: None, guard };
    Ok(Response::builder().header("content-type", kind).body(answer).expect("the answer is well-formed"))
}

fn whole(number: u64, input: u64, output: u64) -> String {
    json!({
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": input, "output_tokens": output},
    })
    .to_string()
}

fn streamed(number: u64, input: u64, output: u64) -> Vec<String> {
    let start = json!({"type": "message_start", "message": {
        "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": input, "output_tokens": 1},
    }});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello "}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
        "usage": {"output_tokens": output}});
    let mut events = vec![frame("message_start", &start.to_string()), frame("content_block_start", &block.to_string())];
    events.extend(std::iter::repeat_n(frame("content_block_delta", &delta.to_string()), DELTAS));
    events.push(frame("content_block_stop", r#"{"type":"content_block_stop","index":0}"#));
    events.push(frame("message_delta", &end.to_string()));
    events.push(frame("message_stop", r#"{"type":"message_stop"}"#));
    events
}

/// Notes how an answer ended, whichever way it did.
struct Guard {
    state: Arc<State>,
    number: u64,
    is_complete: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut sales = self.state.sales();
        let sale = sales.entry(self.number).or_default();
        if self.is_complete {
            sale.is_complete = true;
        } else {
            sale.left = Some(SystemClock.instant());
        }
        drop(sales);
        self.state.running.send_modify(|running| *running -= 1);
    }
}

struct Answer {
    pieces: std::vec::IntoIter<String>,
    gap: Duration,
    wait: Option<Pin<Box<Sleep>>>,
    guard: Guard,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if let Some(wait) = &mut this.wait {
            std::task::ready!(wait.as_mut().poll(context));
        }
        this.wait = Some(Box::pin(sleep(this.gap)));
        let piece = this.pieces.next();
        this.guard.is_complete = this.pieces.len() == 0;
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from(piece)))))
    }
}
