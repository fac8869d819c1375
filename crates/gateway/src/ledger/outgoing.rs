//! Calls that are settled and committed here, on their way to the main store. What does not fit stays in the journal and
//! is read from there when its turn comes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Exchange, GenerationId};
use tidegate_store::journal::Place;
use tokio::sync::Notify;
use tokio::time::timeout;

const MOST: usize = 16_384;
/// What is sent to the store at once: a round number of the rows that one statement inserts.
pub const BATCH: usize = 512;

#[derive(Default)]
pub struct Outgoing {
    inner: Mutex<Inner>,
    pub arrived: Notify,
    emptied: Notify,
    hurry: Notify,
    crowd: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<(Box<Exchange>, Place)>,
    /// Some are in the journal only.
    has_spilled: bool,
    /// How many came and how many are done with.
    came: u64,
    went: u64,
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, exchange: Box<Exchange>, place: Place) {
        let waiting = {
            let mut inner = self.lock();
            inner.came += 1;
            if inner.has_spilled || inner.waiting.len() >= MOST {
                inner.has_spilled = true;
            } else {
                inner.waiting.push_back((exchange, place));
            }
            inner.waiting.len()
        };
        match waiting {
            0 | 1 => self.arrived.notify_one(),
            BATCH => self.crowd.notify_one(),
            _ => {}
        }
    }

    /// Says that the journal holds calls that are not here.
    pub fn spill(&self) {
        self.lock().has_spilled = true;
        self.arrived.notify_one();
    }

    pub fn has_spilled(&self) -> bool {
        self.lock().has_spilled
    }

    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.waiting.is_empty() && !inner.has_spilled
    }

    pub fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// The oldest of those that are here, and where they stand in the journal.
    pub fn take(&self, at_most: usize) -> (Vec<Box<Exchange>>, Vec<Place>) {
        let mut inner = self.lock();
        let size = inner.waiting.len().min(at_most);
        inner.waiting.drain(..size).unzip()
    }

    /// Puts back what the store did not take, in front.
    pub fn put_back(&self, exchanges: Vec<Box<Exchange>>, places: Vec<Place>) {
        let mut inner = self.lock();
        for (exchange, place) in exchanges.into_iter().zip(places).rev() {
            inner.waiting.push_front((exchange, place));
        }
    }

    /// What came from here is in the store.
    pub fn done(&self, count: usize) {
        let mut inner = self.lock();
        inner.went += count as u64;
        if inner.waiting.is_empty() && !inner.has_spilled {
            inner.went = inner.came;
        }
        drop(inner);
        self.emptied.notify_waiters();
    }

    /// From now on new calls are kept here again. Those that are here are named: whoever reads the journal once more
    /// must leave them out.
    pub fn collect(&self) -> Vec<GenerationId> {
        let mut inner = self.lock();
        inner.has_spilled = false;
        inner.waiting.iter().map(|(exchange, _)| exchange.id).collect()
    }

    /// Waits until what has come so far is in the store.
    pub async fn drained(&self, limit: Duration) -> bool {
        let goal = self.lock().came;
        let wait = async {
            loop {
                let emptied = self.emptied.notified();
                let mut emptied = std::pin::pin!(emptied);
                emptied.as_mut().enable();
                if self.lock().went >= goal {
                    return;
                }
                self.hurry.notify_one();
                emptied.await;
            }
        };
        timeout(limit, wait).await.is_ok()
    }

    /// There are enough for a batch: whatever is longer in the journal than it must be costs a row of its own there.
    pub async fn crowded(&self) {
        self.crowd.notified().await;
    }

    /// Somebody waits for the store to have everything.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{KeyHash, OrganisationId, Timestamp, WorkspaceId};

    use super::*;

    fn call(number: usize) -> Box<Exchange> {
        let at = Timestamp(number as i64);
        let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("w".into()));
        Box::new(Exchange::new(GenerationId::new(at), organisation, workspace, KeyHash::of(b"k"), "v/m".into(), at))
    }

    /// Whether somebody who waits need not.
    async fn is_told(wait: impl Future<Output = ()>) -> bool {
        timeout(Duration::ZERO, wait).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_is_told_of_once_and_at_once() {
        let outgoing = Outgoing::default();
        for number in 1..BATCH {
            outgoing.push(call(number), Place::default());
        }
        assert!(is_told(outgoing.arrived.notified()).await, "the first one is told of");
        assert!(!is_told(outgoing.crowded()).await);
        outgoing.push(call(BATCH), Place::default());
        assert!(is_told(outgoing.crowded()).await);
        outgoing.push(call(BATCH + 1), Place::default());
        assert!(!is_told(outgoing.crowded()).await);
        assert_eq!((outgoing.take(BATCH).0.len(), outgoing.len()), (BATCH, 1));
    }
}
