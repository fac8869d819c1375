//! Destinations that are told no more. What waits for one that was switched off stays, for as long as letters do; what waits
//! for one that was taken away goes with it.

use std::collections::HashSet;

use tidegate_core::Timestamp;
use tidegate_observe::broadcast::Kind;
use tidegate_observe::metrics::{Receiver, Untold};

use super::deliver::{BURIED_MS, PORTION, Running};
use super::share::OLDEST_MS;
use crate::Gateway;
use crate::ledger::queue::Chore;

/// Ends the task of one that is told no more, and nothing is measured of it any more.
pub(super) async fn end(gateway: &Gateway, id: String, mut worker: Running) {
    // To its end: it would say again how much waits.
    worker.task.abort();
    let _ = (&mut worker.task).await;
    let labels = Receiver { destination_type: worker.kind.as_str(), destination: id };
    gateway.metrics.broadcast_queue.remove(&labels);
    gateway.metrics.flow.broadcast_oldest.remove(&labels);
}

/// What became of the letters of those that were taken away. They may have been off for long when that happened, or nobody
/// was here to notice.
#[derive(Default)]
pub(super) struct Departed {
    /// Nothing waits for these any more.
    emptied: HashSet<String>,
    /// The change of destinations up to which nothing is left to do.
    done: Option<i64>,
    is_unreadable: bool,
}

impl Departed {
    /// Drops what waits for those that were taken away up to the change `seq`; what cannot be done now is tried again.
    pub async fn drop_letters(&mut self, gateway: &Gateway, seq: i64, is_known: impl Fn(&str) -> bool) {
        if self.done == Some(seq) {
            return;
        }
        let now = gateway.clock.now();
        let gone = gateway.told.gone_since(Timestamp(now.0 - OLDEST_MS)).await;
        let was_unreadable = std::mem::replace(&mut self.is_unreadable, gone.is_err());
        let gone = match gone {
            Ok(gone) => gone,
            Err(error) => {
                if !was_unreadable {
                    tracing::warn!(%error, "which destinations are gone cannot be read");
                }
                return;
            }
        };
        self.emptied.retain(|id| gone.contains_key(id));
        let buried = Timestamp(now.0 - BURIED_MS);
        let mut is_done = true;
        // One that is gone and still known here is told until the next change is.
        for (id, kind) in gone.into_iter().filter(|(id, _)| !is_known(id)) {
            if !self.emptied.contains(&id) {
                match drop_all(gateway, &id, kind, buried).await {
                    Some(()) => drop(self.emptied.insert(id)),
                    None => is_done = false,
                }
            }
        }
        if is_done {
            self.done = Some(seq);
        }
    }
}

/// Drops all that waits for one of them; `None` when the journal does not take it.
async fn drop_all(gateway: &Gateway, id: &str, kind: Kind, buried: Timestamp) -> Option<()> {
    loop {
        let count = gateway.ledger.queue.chore(Chore::Bound(id.to_owned(), PORTION, buried)).await?;
        if count == 0 {
            return Some(());
        }
        let labels = Untold { destination_type: kind.as_str(), reason: "deleted" };
        gateway.metrics.broadcast_dropped.get_or_create(&labels).inc_by(count);
    }
}
