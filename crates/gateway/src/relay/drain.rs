//! Answers that are read to their end although their client has left: some providers charge for the whole of them, and
//! then what they say at the end is what is charged. Their number and time are bounded.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use super::attempt::Done;
use super::settle::Presence;
use super::stream::Relay;
use crate::{Gateway, tasks};

const MOST: usize = 64;
/// How long one is read at most.
pub const LONGEST: Duration = Duration::from_secs(120);

/// The attempts of a request under way. When it is dropped before they are over, its client has left.
pub(super) struct Attempts {
    running: Option<Pin<Box<dyn Future<Output = Done> + Send>>>,
    presence: Arc<Presence>,
    gate: Arc<Gateway>,
}

impl Attempts {
    pub fn new(
        gate: &Arc<Gateway>,
        presence: Arc<Presence>,
        attempts: Pin<Box<dyn Future<Output = Done> + Send>>,
    ) -> Self {
        Self { running: Some(attempts), presence, gate: gate.clone() }
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Done> {
        let Some(running) = &mut self.running else { return Poll::Pending };
        let polled = running.as_mut().poll(context);
        if polled.is_ready() {
            self.running = None;
        }
        polled
    }

    /// The client gets an error of ours instead.
    pub fn end(&self) {
        self.presence.end();
    }

    /// The end of the attempts; may be given up and waited for again.
    pub async fn done(&mut self) -> Done {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        // Not of those that were ended by us.
        let Some(running) = self.running.take().filter(|_| self.presence.bills_anyway()) else { return };
        let Some(place) = self.gate.drains.enter(MOST) else { return };
        self.presence.leave();
        let gate = self.gate.clone();
        tasks::spawn("read an answer whose client left", async move {
            let _place = place;
            let reading = async {
                if let Done::Stream(relay, _) = running.await {
                    relay.drained().await;
                }
            };
            // What is not here by then is dropped, and settled with what is known.
            let _ = gate.unless_aborted(timeout(LONGEST, reading)).await;
        });
    }
}

/// Reads a stream to its end where its upstream charges for all of it; otherwise dropping it ends it.
pub(super) fn relay(gate: &Arc<Gateway>, relay: Box<Relay>) {
    let Some(presence) = relay.presence().filter(|presence| presence.bills_anyway()) else { return };
    let Some(place) = gate.drains.enter(MOST) else { return };
    presence.leave();
    let gate = gate.clone();
    tasks::spawn("read a stream whose client left", async move {
        let _place = place;
        let _ = gate.unless_aborted(timeout(LONGEST, relay.drained())).await;
    });
}
