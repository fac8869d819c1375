//! What one request may use in all, by its own tools and by those of the models that its tools ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

/// Counts for a request and all loops inside it.
#[derive(Debug)]
pub(crate) struct Shares {
    fetches: AtomicU64,
    advice: AtomicU64,
    tasks: AtomicU64,
    panels: AtomicU64,
    /// Calls of models after the first one.
    calls: AtomicU64,
    /// Places for calls that are run at once. Those that let others work have none: they would wait for themselves.
    pub(super) running: Semaphore,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Share {
    Fetch,
    Advice,
    Task,
    Panel,
}

impl Shares {
    pub fn of(parallelism: usize) -> Arc<Self> {
        let [fetches, advice, tasks, panels, calls] = [0; 5].map(AtomicU64::new);
        let running = Semaphore::new(parallelism.clamp(1, Semaphore::MAX_PERMITS));
        Arc::new(Self { fetches, advice, tasks, panels, calls, running })
    }

    /// The number of a further call of a model.
    pub fn number(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Takes one; false when there were `most` of them before.
    pub(super) fn take(&self, share: Share, most: u64) -> bool {
        let count = match share {
            Share::Fetch => &self.fetches,
            Share::Advice => &self.advice,
            Share::Task => &self.tasks,
            Share::Panel => &self.panels,
        };
        count.fetch_add(1, Ordering::SeqCst) < most
    }
}
