//! Calls made because another one failed: so many that they help, and not so many that they make a sick provider sicker.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_routing::Endpoint;

use super::{Health, Service, Ward, tally};

/// Retries of a provider's own calls that may run at once, whatever else runs.
const RETRIES: usize = 3;
/// Retries of this node in ten seconds, besides a fifth of its calls.
const NODE_RETRIES: u64 = 100;

/// The right to one more call. It counts from when it is given, over the pause before the call, to the call's end: who only
/// looked before the pause would find room that others had found, too.
#[derive(Default)]
pub(crate) struct Retry {
    /// It stands among the calls of this node already.
    pub(super) is_counted: bool,
    /// The provider that is asked once more.
    service: Option<Arc<Service>>,
}

impl Retry {
    /// Of a call that no budget bounds.
    pub fn free() -> Self {
        Self::default()
    }
}

impl Drop for Retry {
    fn drop(&mut self) {
        if let Some(service) = &self.service {
            service.retries.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Health {
    /// One more retry, if it is within what this node, and the provider if it is the same again, can take.
    pub(crate) fn retry(&self, ward: &Ward, failed: &Endpoint, next: &Endpoint) -> Option<Retry> {
        let now = self.now();
        let mut node = tally(&self.node);
        let count = node.of_all(now);
        if count.failed >= count.calls / 5 + NODE_RETRIES {
            return None;
        }
        let service = ward.services.get(next.provider_index).filter(|_| failed.provider == next.provider);
        if let Some(service) = service {
            let most = RETRIES.max(service.active.load(Ordering::Relaxed) / 5);
            let taken = |retries: usize| (retries < most).then_some(retries + 1);
            service.retries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).ok()?;
        }
        node.add(now, true);
        Some(Retry { is_counted: true, service: service.cloned() })
    }
}
