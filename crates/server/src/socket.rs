//! A client's socket with its patience: how long it may idle, take for a request's head, or leave our bytes unread.
//!
//! The HTTP library has one timer for heads that also runs while a connection idles, and makes it anew for every
//! request. Here one timer per connection serves all three limits and is moved only when it fires.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tidegate_gateway::relay::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// HTTP/2 keeps a connection alive with frames of this size. What is larger belongs to an answer.
const PING_BYTES: usize = 17;

/// A timer that fired is not armed for less: the loop must not spin.
const SHORTEST: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub idle: Duration,
    pub head: Duration,
    pub write: Duration,
    /// The longest that an answer can take: an HTTP/2 connection with open requests and no answer's byte in that time has
    /// a client that does not let us write, which the socket alone cannot see.
    pub answer: Duration,
}

/// What the connection's requests tell its socket.
#[derive(Default)]
pub struct Activity {
    /// Requests whose answer is not out yet.
    open: AtomicUsize,
    /// Requests begun so far: a change means that the head being read is complete.
    begun: AtomicUsize,
}

impl Activity {
    /// A request begins; it ends when the guard is dropped with the answer's body.
    pub fn begin(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }
}

pub struct Open(Arc<Activity>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body that keeps its request open until it is gone.
pub struct Tracked {
    pub body: Body,
    pub _open: Open,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What the reading side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// The first byte of a request.
    Idle,
    /// The rest of its head.
    Head,
}

/// The connection below it is plain or speaks TLS: what passes here is what was said.
pub struct Socket<S> {
    stream: S,
    patience: Patience,
    activity: Arc<Activity>,
    timer: Pin<Box<Sleep>>,
    waiting: Waiting,
    since: Instant,
    /// When the last request began or the last bytes of an answer went out.
    progress: Instant,
    begun: usize,
    /// How much of HTTP/2's beginning has come; `None` when it is another protocol. HTTP/2 has frames of its own between
    /// requests: once its beginning is whole, what comes is no sign that a head does.
    preface: Option<usize>,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Socket<S> {
    pub fn new(stream: S, patience: Patience, activity: Arc<Activity>) -> Self {
        let since = Instant::now();
        let timer = Box::pin(sleep_until(since + patience.head));
        // A connection that says nothing at all gets as long as a head.
        let waiting = Waiting::Head;
        let (progress, begun, preface) = (since, 0, Some(0));
        Self { stream, patience, activity, timer, waiting, since, progress, begun, preface, stalled: None }
    }

    /// Notes which bytes came.
    fn heard(&mut self, bytes: &[u8]) {
        let was_http2 = self.is_http2();
        if let Some(seen) = self.preface.filter(|seen| *seen < PREFACE.len()) {
            let fresh = bytes.len().min(PREFACE.len() - seen);
            self.preface = (bytes[..fresh] == PREFACE[seen..seen + fresh]).then_some(seen + fresh);
        }
        self.follow();
        if self.is_http2() {
            if !was_http2 {
                self.waiting = Waiting::Idle;
                self.since = Instant::now();
            }
            return;
        }
        if self.waiting == Waiting::Idle && self.activity.open.load(Ordering::Relaxed) == 0 {
            self.waiting = Waiting::Head;
            self.since = Instant::now();
        }
    }

    fn is_http2(&self) -> bool {
        self.preface == Some(PREFACE.len())
    }

    /// A request that began since the last look has ended the wait for its head.
    fn follow(&mut self) {
        let begun = self.activity.begun.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.begun, begun) != begun {
            self.waiting = Waiting::Idle;
            self.since = Instant::now();
            self.progress = self.since;
        }
    }

    /// Whether the wait has lasted too long; arms the timer for the time when it will have.
    ///
    /// The timer is armed also while a request is open: nobody needs to read again when its answer is out, and then only
    /// the timer can have the connection judged anew.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.follow();
        // An answer that its reader takes slowly is out only when all of it is written.
        let is_busy = self.activity.open.load(Ordering::Relaxed) > 0 || self.stalled.is_some();
        // An answer over HTTP/1 is written to its end, which says since when: until then the clock is only asked when the
        // timer fires.
        if is_busy && self.is_http2() {
            self.since = Instant::now();
        }
        let limit = match self.waiting {
            Waiting::Head if !is_busy => self.patience.head,
            _ => self.patience.idle,
        };
        let mut due = self.since + limit;
        // Pings keep a stalled HTTP/2 connection alive; only an answer's bytes are progress.
        let is_stuck = is_busy && self.is_http2();
        if is_stuck {
            due = due.min(self.progress + self.patience.answer);
        }
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            if is_busy && !self.is_http2() {
                self.since = now;
                due = now + limit;
            }
            if (!is_busy && now >= due) || (is_stuck && now >= self.progress + self.patience.answer) {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(due.max(now + SHORTEST));
        }
    }

    /// Notes how many bytes went out: the client may idle from the last of an answer's.
    fn wrote(&mut self, count: usize) {
        self.follow();
        if count > PING_BYTES || !self.is_http2() {
            self.progress = Instant::now();
            if self.waiting == Waiting::Idle {
                self.since = self.progress;
            }
        }
    }

    fn written<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(result) => {
                // What was held back below us went out only now.
                if self.stalled.take().is_some() && self.waiting == Waiting::Idle {
                    self.since = Instant::now();
                }
                Poll::Ready(result)
            }
            Poll::Pending => {
                let limit = self.patience.write;
                let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                ready!(stalled.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut socket.stream).poll_read(context, buffer) {
            Poll::Ready(result) => {
                socket.heard(&buffer.filled()[before..]);
                Poll::Ready(result)
            }
            Poll::Pending => {
                ready!(socket.poll_patience(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = result {
            self.wrote(count);
        }
        self.written(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        if let Poll::Ready(Ok(count)) = result {
            self.wrote(count);
        }
        self.written(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt as _;
    use tokio::time::{advance, timeout};

    use super::*;

    /// Takes all that is written, and holds it back as TLS does.
    struct Held(bool);

    impl AsyncRead for Held {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Held {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.0 { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_idle_from_when_its_answer_went_out() {
        let seconds = Duration::from_secs;
        let patience = Patience { idle: seconds(60), head: seconds(10), write: seconds(50), answer: seconds(600) };
        let activity = Arc::new(Activity::default());
        let mut socket = Socket::new(Held(true), patience, activity.clone());
        let open = activity.begin();
        poll_fn(|context| Pin::new(&mut socket).poll_write(context, b"an answer")).await.unwrap();
        let flushed = poll_fn(|context| Poll::Ready(Pin::new(&mut socket).poll_flush(context))).await;
        assert!(flushed.is_pending());
        advance(seconds(40)).await;
        socket.stream.0 = false;
        poll_fn(|context| Pin::new(&mut socket).poll_flush(context)).await.unwrap();
        drop(open);
        let mut byte = [0];
        assert!(timeout(seconds(59), socket.read(&mut byte)).await.is_err(), "it still may");
        let ended = timeout(seconds(2), socket.read(&mut byte)).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
