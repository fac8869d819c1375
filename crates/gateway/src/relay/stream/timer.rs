//! The deadlines of a stream.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

/// How often a stream looks whether its key still stands and the process still runs: within the 5 s that are promised.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// A timer that fired before its time is not armed for less.
const SHORTEST: Duration = Duration::from_millis(1);

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
            let next = tokio::time::Instant::from_std(deadline.map_or(next, |deadline| deadline.min(next)));
            if let Some(due) = due {
                self.sleep.as_mut().reset(next);
                return Poll::Ready(due);
            }
            // The time of this step may be a little behind the timer's, which must not fire again at once for that.
            self.sleep.as_mut().reset(next.max(tokio::time::Instant::now() + SHORTEST));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::task::coop::has_budget_remaining;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_that_is_behind_the_timer_does_not_turn_round_and_round() {
        let begun = tokio::time::Instant::now().into_std();
        let mut timer = Timer::new(begun, Duration::from_secs(60), Duration::from_secs(1));
        advance(LOOK * 2).await;
        let polled = poll_fn(|context| {
            let polled = timer.poll(context, begun, None);
            assert!(has_budget_remaining(), "it fired again and again");
            Poll::Ready(polled)
        });
        assert!(polled.await.is_pending());
        let due = poll_fn(|context| timer.poll(context, begun + LOOK * 2, None)).await;
        assert!(matches!(due, Due::Look));
    }
}
