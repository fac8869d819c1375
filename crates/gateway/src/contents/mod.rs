//! Workspaces may want what is said in their requests kept. Who wants that is whole in memory, so that the others pay for
//! one look; what was said is taken from the request when it is settled and written by a task of its own, which requests
//! never wait for. What does not fit into its queue is counted and lost.

mod queue;
mod told;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::{Exchange, WorkspaceId};
use tidegate_observe::broadcast::Scope;
use tidegate_observe::metrics::{Metrics, Reason};
use tidegate_routing::Zdr;
use tidegate_store::contents::{Content, KeptOf};
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::Snapshot;
use crate::broadcast::{Overheard, packed};
use crate::guardrails::Guardrails;
use crate::keys::KeyEntry;

use queue::Queue;
pub(crate) use told::Failed;
pub use told::{Told, unpacked};

/// What is written in one transaction.
const BATCH: usize = 16;
/// How often writing is tried, and how long between two tries.
const TRIES: usize = 5;
const AGAIN: Duration = Duration::from_millis(500);

/// What one workspace wants kept.
#[derive(Debug)]
struct Wanted {
    keys: Option<HashSet<i64>>,
    scope: Scope,
}

/// That a request's content is wanted, decided when it came in.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    wanted: Arc<Wanted>,
    /// Whose models must not have anything kept.
    zdr: Zdr,
}

pub struct Contents {
    store: Arc<Store>,
    vault: Arc<Vault>,
    metrics: Arc<Metrics>,
    seen: AtomicI64,
    wanted: ArcSwap<HashMap<WorkspaceId, Arc<Wanted>>>,
    queue: Mutex<Queue<Waiting>>,
    wake: Notify,
    /// How many of those that ever came in are written or lost.
    done: watch::Sender<u64>,
}

/// A settled request on its way to the store.
struct Waiting {
    exchange: Exchange,
    overheard: Box<Overheard>,
    snapshot: Arc<Snapshot>,
}

impl Contents {
    pub fn new(store: Arc<Store>, vault: Arc<Vault>, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            vault,
            metrics,
            seen: AtomicI64::new(-1),
            wanted: ArcSwap::default(),
            queue: Mutex::default(),
            wake: Notify::new(),
            done: watch::Sender::new(0),
        }
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if self.store.contents_seq().await? == self.seen.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (seq, kept) = self.store.all_kept().await?;
        let wanted = |KeptOf { workspace, share, keys }| {
            let scope = Scope { share, ..Scope::default() };
            (workspace, Arc::new(Wanted { keys: keys.map(|keys| keys.into_iter().collect()), scope }))
        };
        self.wanted.store(Arc::new(kept.into_iter().map(wanted).collect()));
        self.seen.store(seq, Ordering::SeqCst);
        Ok(())
    }

    /// Whether what a key says is wanted. Nobody's is in most deployments: then this is one look.
    pub(crate) fn wish(&self, key: &KeyEntry, guardrails: &Guardrails, is_zdr: bool) -> Option<Wish> {
        let all = self.wanted.load();
        if all.is_empty() || is_zdr {
            return None;
        }
        let wanted = all.get(&key.workspace)?;
        if wanted.keys.as_ref().is_some_and(|keys| !keys.contains(&key.hash.number())) {
            return None;
        }
        let zdr = guardrails.of(key).map(|held| held.guard.zdr).unwrap_or_default();
        Some(Wish { wanted: wanted.clone(), zdr })
    }

    /// Takes what was said in a settled request, if it is wanted and there is room.
    pub(crate) fn offer(&self, exchange: &Exchange, overheard: Box<Overheard>, snapshot: &Arc<Snapshot>) {
        let Some(wish) = overheard.wish() else { return };
        let models = exchange.attempts.iter().map(|attempt| &attempt.model).chain([&exchange.model]);
        let is_zdr = { models }.any(|model| wish.zdr.covers(model));
        let scope = &wish.wanted.scope;
        if is_zdr || !scope.may_admit(&exchange.workspace.0, exchange, &overheard.named()) {
            return;
        }
        let bytes = overheard.bytes();
        let waiting = Waiting { exchange: exchange.clone(), overheard, snapshot: snapshot.clone() };
        if !self.queue().push(waiting, bytes) {
            return self.lost("full", 1);
        }
        self.wake.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Waiting>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.metrics.flow.contents_lost.get_or_create(&Reason { reason }).inc_by(count);
        }
    }

    /// Waits until everything that came in before this call is written; false when that takes longer.
    pub async fn written(&self, limit: Duration) -> bool {
        let taken = self.queue().taken();
        let mut done = self.done.subscribe();
        timeout(limit, done.wait_for(|done| *done >= taken)).await.is_ok_and(|waited| waited.is_ok())
    }

    /// Writes what comes in, until the process ends.
    pub async fn keep(self: Arc<Self>) {
        loop {
            let batch = self.queue().pop(BATCH);
            if batch.is_empty() {
                self.wake.notified().await;
                continue;
            }
            let count = batch.len() as u64;
            // Long conversations take a while to read: that is no work for those who serve requests.
            let made = tokio::task::spawn_blocking(move || batch.iter().filter_map(content).collect::<Vec<_>>()).await;
            let made = made.unwrap_or_default();
            self.lost("unreadable", count - made.len() as u64);
            self.write(&made).await;
            self.done.send_modify(|done| *done += count);
        }
    }

    async fn write(&self, contents: &[Content]) {
        let count = contents.len() as u64;
        for attempt in 1..=TRIES {
            match self.store.keep_contents(&self.vault, contents).await {
                Ok(()) => {
                    self.metrics.flow.contents_kept.inc_by(count);
                    return;
                }
                Err(error) if attempt == TRIES => {
                    tracing::error!(%error, count, "what was said in requests could not be kept");
                }
                Err(_) => sleep(AGAIN).await,
            }
        }
        self.lost("store", count);
    }
}

/// What is stored of a request.
fn content(waiting: &Waiting) -> Option<Content> {
    let Waiting { exchange, overheard, snapshot, .. } = waiting;
    let said = overheard.said(overheard.named(), &snapshot.names.metadata_member);
    let told = Told::of(exchange, &said, overheard.failure(), overheard.missed());
    Some(Content {
        generation: exchange.id,
        organisation: exchange.organisation.clone(),
        workspace: exchange.workspace.clone(),
        at: exchange.started,
        plain: packed(&serde_json::to_vec(&told).ok()?)?,
    })
}
