//! The running server: sockets, routes, and what a test can ask of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::body::{Answer, ResetFlag};
use crate::play;
use crate::script::Script;
use crate::speak::Speak;
use crate::state::{Seen, State};
use crate::{
    audio, aws, chat, cohere, control, converse, embeddings, gemini, images, invoke, listing, messages, rerank,
    responses, token, vertex,
};

/// A running server. Dropping it closes the listener and every connection.
pub struct Sim {
    addr: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
    /// Its sender lives in the task.
    running: watch::Receiver<()>,
}

impl Sim {
    /// Starts on a free port of the loopback address.
    pub async fn start(script: impl Into<Script>) -> Self {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::bind(addr, script).await.expect("the loopback address has a free port")
    }

    pub async fn bind(addr: SocketAddr, script: impl Into<Script>) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let state = Arc::new(State::new(script.into()));
        let (alive, running) = watch::channel(());
        let task = spawn_server(listener, state.clone(), alive);
        Ok(Self { addr, state, task, running })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Without a slash at the end.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Message calls received so far.
    pub fn calls(&self) -> usize {
        self.state.calls()
    }

    /// Token counts asked for so far.
    pub fn count_calls(&self) -> usize {
        self.state.count_calls()
    }

    /// Message calls being answered right now.
    pub fn open(&self) -> usize {
        self.state.open()
    }

    /// Message calls whose client left before the end of the answer.
    pub fn cancelled(&self) -> usize {
        self.state.cancelled()
    }

    /// The last requests, oldest first; those to the control routes are not among them.
    pub fn requests(&self) -> Vec<Seen> {
        self.state.seen().iter().cloned().collect()
    }

    /// Replaces the script; its sequence starts anew. Answers under way keep the old one.
    pub fn set(&self, script: impl Into<Script>) {
        self.state.set(script.into());
    }

    /// Returns once this many message calls have been received.
    pub async fn wait_calls(&self, n: usize) {
        self.state.until(|state| state.calls() >= n).await;
    }

    /// Returns once exactly this many message calls are open.
    pub async fn wait_open(&self, n: usize) {
        self.state.until(|state| state.open() == n).await;
    }

    /// Returns when the server has stopped.
    pub async fn closed(&self) {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
    }

    /// Stops and returns once the port refuses connections, which a mere drop does not wait for.
    pub async fn stop(self) {
        self.task.abort();
        self.closed().await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server's one task of its own; connections are in its set and end with it"
)]
fn spawn_server(listener: TcpListener, state: Arc<State>, alive: watch::Sender<()>) -> JoinHandle<()> {
    tokio::spawn(async move {
        accept(listener, state).await;
        drop(alive);
    })
}

/// Serves until aborted; the connections are in a set that goes down with it.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, state.clone()));
                }
                // The client is gone already, or there is no descriptor left until a connection ends.
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<State>) {
    // Events are small; waiting to fill a segment would change the pace that was asked for.
    let _ = stream.set_nodelay(true);
    let reset = ResetFlag::default();
    let socket = Socket { stream, reset: reset.clone() };
    let service = service_fn(move |request| {
        let (state, reset) = (state.clone(), reset.clone());
        async move { route(request, &state, reset).await }
    });
    // An error here is a client that left or a fault we played: both are counted elsewhere.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
}

async fn route(
    request: Request<Incoming>,
    state: &Arc<State>,
    reset: ResetFlag,
) -> Result<Response<Answer>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body: Bytes = body.collect().await?.to_bytes();
    let path = parts.uri.path();
    if let Some(rest) = path.strip_prefix("/_sim/") {
        return Ok(control::route(state, &parts.method, rest, &body));
    }
    if state.active().script.record {
        state.record(Seen {
            method: parts.method.clone(),
            path: parts.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
            headers: parts.headers.clone(),
            body: body.clone(),
        });
    }
    Ok(speak(&parts, &body, state, reset).await)
}

/// Finds the protocol by the path. Vendors serve theirs under prefixes of many kinds, so an end is enough.
async fn speak(head: &Parts, body: &Bytes, state: &Arc<State>, reset: ResetFlag) -> Response<Answer> {
    let path = head.uri.path();
    if head.method == Method::POST && path.ends_with(":batchEmbedContents") {
        return embeddings::google(state, head, body, reset).await;
    }
    if let Some((_, verb)) = gemini::Verb::of(path) {
        return match verb {
            gemini::Verb::Generate if images::asks_for("IMAGE", body) => images::google(state, head, body, reset).await,
            gemini::Verb::Generate if images::asks_for("AUDIO", body) => audio::google(state, head, body, reset).await,
            gemini::Verb::Count => count::<gemini::Request>(head, body, state).await,
            _ => create::<gemini::Request>(head, body, state, reset).await,
        };
    }
    if let Some((_, verb)) = vertex::Verb::of(path) {
        return match verb {
            vertex::Verb::Count => count::<vertex::Request<'_>>(head, body, state).await,
            _ => create::<vertex::Request<'_>>(head, body, state, reset).await,
        };
    }
    if let Some((_, verb)) = aws::Verb::of(path) {
        use aws::Verb::{Converse, ConverseStream, Count, Invoke, InvokeStream};
        return match verb {
            Converse | ConverseStream => create::<converse::Request>(head, body, state, reset).await,
            Invoke | InvokeStream => create::<invoke::Request<'_>>(head, body, state, reset).await,
            Count => count::<converse::Request>(head, body, state).await,
        };
    }
    match path {
        "/v1/models" if head.method == Method::GET => listing::answer(),
        "/token" if head.method == Method::POST => token::answer(state, body),
        "/v2/rerank" if head.method == Method::POST => rerank::cohere(state, head, body, reset).await,
        _ if path.ends_with("/rerank") && head.method == Method::POST => rerank::common(state, head, body, reset).await,
        "/v2/embed" if head.method == Method::POST => embeddings::cohere(state, head, body, reset).await,
        _ if path.ends_with("/embeddings") && head.method == Method::POST => {
            embeddings::openai(state, head, body, reset).await
        }
        _ if path.ends_with("/audio/speech") && head.method == Method::POST => {
            audio::speech(state, head, body, reset).await
        }
        _ if path.ends_with("/audio/transcriptions") && head.method == Method::POST => {
            audio::transcriptions(state, head, body, reset).await
        }
        "/v2/chat" => create::<cohere::Request>(head, body, state, reset).await,
        "/v1/messages" => create::<messages::Request<'_>>(head, body, state, reset).await,
        "/v1/messages/count_tokens" => count::<messages::Request<'_>>(head, body, state).await,
        _ if path.ends_with("/images/generations") && head.method == Method::POST => {
            images::openai(state, head, body, reset).await
        }
        _ if path.ends_with("/chat/completions") => create::<chat::Request>(head, body, state, reset).await,
        _ if path.ends_with("/responses") => create::<responses::Request>(head, body, state, reset).await,
        _ if path.ends_with("/responses/input_tokens") => count::<responses::Request>(head, body, state).await,
        _ if path.contains("/model/") => play::failure::<converse::Request>(state, 404, "Unknown operation"),
        _ if path.contains("/models/") => play::failure::<gemini::Request>(state, 404, "Not found"),
        _ => play::failure::<messages::Request<'_>>(state, 404, "Not found"),
    }
}

async fn create<'a, S: Speak<'a>>(
    head: &Parts,
    body: &'a Bytes,
    state: &Arc<State>,
    reset: ResetFlag,
) -> Response<Answer> {
    match head.method {
        Method::POST => play::create::<S>(state, head, body, reset).await,
        _ => play::failure::<S>(state, 405, "Method Not Allowed"),
    }
}

async fn count<'a, S: Speak<'a>>(head: &Parts, body: &'a Bytes, state: &Arc<State>) -> Response<Answer> {
    match head.method {
        Method::POST => play::count::<S>(state, head, body).await,
        _ => play::failure::<S>(state, 405, "Method Not Allowed"),
    }
}

/// A connection that ends with a reset when a script asks for one.
struct Socket {
    stream: TcpStream,
    reset: ResetFlag,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.is_set() {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.is_set() {
            // A FIN now would reach the client before the reset.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
