//! The body of an answer: what is written, at which pace, and how it ends.
//!
//! HTTP servers refuse to send a broken response on purpose. A body that fails makes hyper drop the
//! connection where it is, which is the fault we want; the one thing to add is to let it flush first.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::script::End;
use crate::state::Open;

/// Set when a connection is to be reset rather than closed; read when its socket is dropped.
#[derive(Clone, Default)]
pub(crate) struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    pub fn set(&self) {
        self.0.store(true, SeqCst);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }
}

/// A piece of a body. Filler is made while it is sent, so that a huge answer needs no memory.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Bytes(Bytes),
    Fill(usize),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Fill(len) => *len,
        }
    }
}

static FILL: [u8; 64 << 10] = [b'a'; 64 << 10];

pub(crate) struct Answer {
    parts: VecDeque<Part>,
    /// The declared length, for bodies that are not chunked.
    length: Option<u64>,
    pace: Duration,
    /// Gives every part a write of its own.
    flush: bool,
    end: End,
    sleep: Option<Pin<Box<Sleep>>>,
    wait: Wait,
    open: Option<Open>,
    reset: ResetFlag,
}

enum Wait {
    No,
    /// hyper flushes what it holds when the body is not ready.
    Flush,
    Pace,
}

impl Answer {
    /// A body of known length, sent at once.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::sized(vec![Part::Bytes(bytes.into())])
    }

    /// A body of known length in several parts.
    pub fn sized(parts: Vec<Part>) -> Self {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        Self { length: Some(length), ..Self::stream(parts) }
    }

    /// A body whose end only the framing tells.
    pub fn stream(parts: Vec<Part>) -> Self {
        Self {
            parts: parts.into_iter().filter(|part| part.len() > 0).collect(),
            length: None,
            pace: Duration::ZERO,
            flush: false,
            end: End::Close,
            sleep: None,
            wait: Wait::No,
            open: None,
            reset: ResetFlag::default(),
        }
    }

    pub fn paced(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    pub fn flushed(mut self, flush: bool) -> Self {
        self.flush = flush;
        self
    }

    pub fn ending(mut self, end: End) -> Self {
        self.end = end;
        if self.parts.is_empty() && end != End::Close {
            // The headers alone go out before the fault.
            self.wait = Wait::Flush;
        }
        self
    }

    /// Declares a length, true or not.
    pub fn declaring(mut self, length: usize) -> Self {
        self.length = Some(length as u64);
        self
    }

    /// Ties the answer to the call it answers and to the connection it goes out on.
    pub fn of(mut self, mut open: Open, reset: ResetFlag) -> Self {
        self.reset = reset;
        if self.is_end_stream() {
            // hyper never polls an empty body.
            open.finish();
        }
        self.open = Some(open);
        self
    }

    fn next(&mut self) -> Option<Bytes> {
        match self.parts.pop_front()? {
            Part::Bytes(bytes) => Some(bytes),
            Part::Fill(len) => {
                let now = len.min(FILL.len());
                if len > now {
                    self.parts.push_front(Part::Fill(len - now));
                }
                Some(Bytes::from_static(&FILL[..now]))
            }
        }
    }

    /// What to wait for before the body is asked again.
    fn plan_wait(&mut self) {
        let last = self.parts.is_empty();
        if !last && !self.pace.is_zero() {
            self.wait = Wait::Pace;
            // Counted from the last deadline: a stream takes the time its script says, whatever the load.
            match &mut self.sleep {
                Some(sleep) => {
                    let next = sleep.deadline() + self.pace;
                    sleep.as_mut().reset(next);
                }
                None => {
                    let first = Instant::now() + self.pace;
                    self.sleep = Some(Box::pin(tokio::time::sleep_until(first)));
                }
            }
        } else if (self.flush && !last) || (last && self.end != End::Close) {
            self.wait = Wait::Flush;
        }
    }

    fn finish(&mut self) {
        if let Some(open) = &mut self.open {
            open.finish();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        match this.wait {
            Wait::No => {}
            Wait::Flush => {
                this.wait = Wait::No;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Wait::Pace => {
                if let Some(sleep) = &mut this.sleep {
                    ready!(sleep.as_mut().poll(context));
                }
                this.wait = Wait::No;
            }
        }
        if let Some(bytes) = this.next() {
            this.plan_wait();
            if this.is_end_stream() {
                this.finish();
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match this.end {
            End::Close => Poll::Ready(None),
            // Nobody wakes this: hyper drops the body when the client leaves.
            End::Hang => Poll::Pending,
            End::Cut => {
                this.finish();
                Poll::Ready(Some(Err(io::Error::other("cut by the script"))))
            }
            End::Reset => {
                this.finish();
                this.reset.set();
                Poll::Ready(Some(Err(io::Error::other("reset by the script"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.end == End::Close
    }

    fn size_hint(&self) -> SizeHint {
        match self.length {
            Some(length) => SizeHint::with_exact(length),
            None => SizeHint::default(),
        }
    }
}
