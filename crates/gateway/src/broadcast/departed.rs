//! Destinations that are told no more. What waits for one that was switched off stays, for as long as letters do; what waits
//! for one that was taken away goes with it.

use std::collections::HashMap;

use tidegate_core::Timestamp;
use tidegate_observe::broadcast::Kind;
use tidegate_observe::metrics::{Receiver, Untold};

use super::deliver::{BURIED_MS, PORTION, Running};
use super::share::OLDEST_MS;
use crate::Gateway;
use crate::ledger::queue::Chore;

/// Those of whom it is not known yet what becomes of their letters.
pub(super) struct Departed(HashMap<String, Kind>);

impl Departed {
    pub async fn new(gateway: &Gateway) -> Self {
        Self(gone(gateway).await.unwrap_or_default())
    }

    /// Takes one whose task is to end.
    pub async fn add(&mut self, gateway: &Gateway, id: String, mut worker: Running) {
        let kind = worker.kind;
        // To its end: it would say again how much waits.
        worker.task.abort();
        let _ = (&mut worker.task).await;
        let labels = Receiver { destination_type: kind.as_str(), destination: id.clone() };
        gateway.metrics.broadcast_queue.remove(&labels);
        gateway.metrics.flow.broadcast_oldest.remove(&labels);
        self.0.insert(id, kind);
    }

    /// Drops what waits for those that were taken away; what cannot be done now is tried again.
    pub async fn drop_letters(&mut self, gateway: &Gateway) {
        if self.0.is_empty() {
            return;
        }
        let Some(gone) = gone(gateway).await else { return };
        self.0.retain(|id, _| gone.contains_key(id));
        let buried = Timestamp(gateway.clock.now().0 - BURIED_MS);
        let ids: Vec<(String, Kind)> = self.0.iter().map(|(id, kind)| (id.clone(), *kind)).collect();
        for (id, kind) in ids {
            loop {
                let Some(count) = gateway.ledger.queue.chore(Chore::Bound(id.clone(), PORTION, buried)).await else {
                    break;
                };
                if count == 0 {
                    self.0.remove(&id);
                    break;
                }
                let labels = Untold { destination_type: kind.as_str(), reason: "deleted" };
                gateway.metrics.broadcast_dropped.get_or_create(&labels).inc_by(count);
            }
        }
    }
}

/// Those that were taken away and for whom something can still wait.
async fn gone(gateway: &Gateway) -> Option<HashMap<String, Kind>> {
    let since = Timestamp(gateway.clock.now().0 - OLDEST_MS);
    match gateway.told.gone_since(since).await {
        Ok(gone) => Some(gone),
        Err(error) => {
            tracing::warn!(%error, "which destinations are gone cannot be read");
            None
        }
    }
}
