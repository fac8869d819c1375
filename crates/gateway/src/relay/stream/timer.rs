//! The deadlines of a stream.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

/// How often a stream looks whether its key still stands and the process still runs: within the 5 s that are promised.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// One timer for all deadlines of a stream. It is not moved at every frame; when it fires, it looks what is due.
pub(super) struct Timer {
    sleep: Pin<Box<Sleep>>,
    keep_alive: Duration,
    pub sent: Instant,
    pub look: Instant,
}

pub(super) enum Due {
    KeepAlive,
    Deadline,
    /// Time to see whether the stream may go on.
    Look,
}

impl Timer {
    pub fn new(now: Instant, keep_alive: Duration, first: Duration) -> Self {
        let sleep = Box::pin(sleep(first.min(keep_alive).min(LOOK)));
        Self { sleep, keep_alive, sent: now, look: now + LOOK }
    }

    /// What has become due; when nothing has, the task is woken at the next time that something can.
    pub fn poll(&mut self, context: &mut Context<'_>, now: Instant, deadline: Option<Instant>) -> Poll<Due> {
        while self.sleep.as_mut().poll(context).is_ready() {
            let keep_alive = self.sent + self.keep_alive;
            let due = if deadline.is_some_and(|deadline| now >= deadline) {
                Some(Due::Deadline)
            } else if now >= keep_alive {
                // What the caller sends now moves `sent`, when it is taken.
                self.sent = now;
                Some(Due::KeepAlive)
            } else if now >= self.look {
                self.look = now + LOOK;
                Some(Due::Look)
            } else {
                None
            };
            let next = (self.sent + self.keep_alive).min(self.look);
            let next = deadline.map_or(next, |deadline| deadline.min(next));
            self.sleep.as_mut().reset(tokio::time::Instant::from_std(next));
            if let Some(due) = due {
                return Poll::Ready(due);
            }
        }
        Poll::Pending
    }
}
