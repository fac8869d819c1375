//! Connections without TLS: to models that run beside us. A connection has no task of its own. Whoever waits for an answer
//! moves it on, so that a request goes out and its answer comes in without a word between tasks, and an answer that nobody
//! wants any more is stopped where it is let go.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tidegate_core::map::Map;
use tokio::net::TcpStream;
use tokio::task::coop::{cooperative, unconstrained};
use tokio::time::interval;
use tower_service::Service as _;

use super::{IDLE_CONNECTION, Pieces, Unanswered};
use crate::tasks;

/// How often idle connections are looked after.
const ROUND: Duration = Duration::from_secs(15);

/// After this many rounds a connection that nobody used is closed.
const ROUNDS: u64 = IDLE_CONNECTION.as_secs() / ROUND.as_secs();

/// The connections to every server that is called without TLS.
pub(super) struct Plain {
    connector: HttpConnector,
    idle: Arc<Idle>,
}

impl Plain {
    /// Within a runtime.
    pub fn new(connector: HttpConnector) -> Self {
        let idle = Arc::new(Idle::default());
        tasks::spawn("look after idle connections", looked_after(Arc::downgrade(&idle)));
        Self { connector, idle }
    }

    /// Sends a request and waits for the head of its answer.
    pub async fn request(&self, uri: &Uri, mut request: Request<Pieces>) -> Result<Response<Flow>, Unanswered> {
        let authority = uri.authority().ok_or_else(|| Unanswered::of(true))?.as_str();
        *request.uri_mut() = uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
        loop {
            let kept = self.idle.take(authority);
            let is_kept = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => Box::pin(self.connect(uri, authority)).await.ok_or_else(|| Unanswered::of(true))?,
            };
            request.headers_mut().entry(HOST).or_insert_with(|| link.host.clone());
            match link.exchange(request).await {
                Ok(answer) => return Ok(answer.map(|body| Flow::over(body, link))),
                // The server closed it while it was idle, and has seen nothing of this.
                Err(Some(unsent)) if is_kept => request = unsent,
                Err(_) => return Err(Unanswered::of(false)),
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the client for providers")]
    async fn connect(&self, uri: &Uri, authority: &str) -> Option<Box<Link>> {
        // What stands before an @ is for nobody's log.
        let host = match uri.port_u16() {
            Some(port) if port != 80 => HeaderValue::try_from(format!("{}:{port}", uri.host()?)),
            _ => HeaderValue::from_str(uri.host()?),
        };
        let stream = self.connector.clone().call(uri.clone()).await.ok()?;
        let (sender, connection) = http1::handshake(stream).await.ok()?;
        let (home, idle) = (authority.into(), Arc::downgrade(&self.idle));
        Some(Box::new(Link {
            sender,
            connection: Some(connection),
            host: host.ok()?,
            home,
            idle,
            is_awaited: false,
            is_watched: false,
        }))
    }
}

/// Connections that nobody uses, by the server they lead to; the one that was used last is taken first.
#[derive(Default)]
struct Idle(Mutex<Map<Box<str>, Vec<Kept>>>);

struct Kept {
    link: Box<Link>,
    rounds: u64,
}

impl Idle {
    fn open(&self) -> MutexGuard<'_, Map<Box<str>, Vec<Kept>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, home: &str) -> Option<Box<Link>> {
        self.open().get_mut(home)?.pop().map(|kept| kept.link)
    }

    fn keep(&self, link: Box<Link>) {
        let (mut open, kept) = (self.open(), Kept { link, rounds: 0 });
        match open.get_mut(&*kept.link.home) {
            Some(others) => others.push(kept),
            None => {
                open.insert(kept.link.home.clone(), vec![kept]);
            }
        }
    }

    /// Closes what its server closed, and what nobody has used for long.
    fn look_after(&self) {
        self.open().retain(|_, kept| {
            kept.retain_mut(|kept| {
                kept.rounds += 1;
                kept.link.advance_quietly();
                kept.rounds < ROUNDS && kept.link.sender.is_ready()
            });
            !kept.is_empty()
        });
    }
}

async fn looked_after(idle: Weak<Idle>) {
    let mut rounds = interval(ROUND);
    loop {
        rounds.tick().await;
        let Some(idle) = idle.upgrade() else { return };
        idle.look_after();
    }
}

/// One connection: what takes requests for it, and what reads and writes.
///
/// Both ends are polled by the same task, so neither has to wake the other: the connection is moved on with a waker that
/// does nothing, and only with the task's own when there is nothing left to do but wait.
struct Link {
    sender: http1::SendRequest<Pieces>,
    /// Nothing once it is closed.
    connection: Option<http1::Connection<TokioIo<TcpStream>, Pieces>>,
    host: HeaderValue,
    home: Box<str>,
    idle: Weak<Idle>,
    /// Whether nothing was there when it was last asked.
    is_awaited: bool,
    /// Whether somebody is woken for what comes.
    is_watched: bool,
}

impl Link {
    /// Reads and writes what can be, and has nobody woken for more.
    fn advance_quietly(&mut self) {
        self.advance(&mut Context::from_waker(Waker::noop()));
        self.is_watched = false;
    }

    /// Reads and writes what can be. Whoever waits for a connection that ends is told by its end.
    fn advance(&mut self, context: &mut Context<'_>) {
        self.is_watched = true;
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// The head of the answer to a request, or the request where nothing of it was sent.
    fn exchange(
        &mut self,
        request: Request<Pieces>,
    ) -> impl Future<Output = Result<Response<Incoming>, Option<Request<Pieces>>>> {
        let answer = self.sender.try_send_request(request);
        // A poll that stops for others' sake would not be woken by a waker that does nothing.
        unconstrained(async move {
            let mut answer = pin!(answer);
            let mut is_sent = false;
            let polled = poll_fn(|context| {
                let mut quiet = Context::from_waker(Waker::noop());
                if is_sent {
                    self.advance_quietly();
                    if let Poll::Ready(answered) = answer.as_mut().poll(&mut quiet) {
                        return Poll::Ready(answered);
                    }
                }
                is_sent = true;
                self.advance(context);
                answer.as_mut().poll(&mut quiet)
            });
            polled.await.map_err(|mut error| error.take_message())
        })
    }

    fn poll_frame(
        &mut self,
        body: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut quiet = Context::from_waker(Waker::noop());
        let mut polled = Pin::new(&mut *body).poll_frame(&mut quiet);
        if polled.is_pending() && self.is_awaited {
            self.advance_quietly();
            polled = Pin::new(&mut *body).poll_frame(&mut quiet);
        }
        if polled.is_pending() {
            self.advance(context);
            polled = Pin::new(body).poll_frame(&mut quiet);
        }
        self.is_awaited = polled.is_pending();
        polled
    }

    /// The answer is over: keeps the connection for the next request, if there can be one.
    fn rest(mut self: Box<Self>) {
        // Who has its answer is not woken for what the connection does later.
        if self.is_watched || !self.sender.is_ready() {
            self.advance_quietly();
        }
        if self.connection.is_some()
            && self.sender.is_ready()
            && let Some(idle) = self.idle.upgrade()
        {
            self.is_awaited = false;
            idle.keep(self);
        }
    }
}

/// The body of an answer, as it comes. One that is let go before its end ends its connection with it, so that its upstream
/// hears of it.
pub struct Flow {
    body: Option<Incoming>,
    /// Nothing where the connection moves by itself, and once the body is over.
    link: Option<Box<Link>>,
}

impl From<Incoming> for Flow {
    fn from(body: Incoming) -> Self {
        Self { body: Some(body), link: None }
    }
}

impl Flow {
    fn over(body: Incoming, link: Box<Link>) -> Self {
        Self { body: Some(body), link: Some(link) }
    }
}

impl Body for Flow {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { body: Some(body), link } = self.get_mut() else { return Poll::Ready(None) };
        let Some(kept) = link else { return Pin::new(body).poll_frame(context) };
        let frame = unconstrained(poll_fn(|context| kept.poll_frame(body, context)));
        // An upstream that never pauses leaves others their turn.
        let polled = pin!(cooperative(frame)).poll(context);
        if let Poll::Ready(None) = polled
            && let Some(link) = link.take()
        {
            link.rest();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        // First, so that its connection knows.
        self.body = None;
        if let Some(link) = self.link.take() {
            link.rest();
        }
    }
}

#[cfg(test)]
mod tests;
