//! Results that clients do not get to see, for the case that they send the calls back. They are kept in memory and, sealed
//! and off the path of any request, in the store, where other gateways and the next process find them. Losing them is
//! harmless: a call whose result nobody remembers is left out of the conversation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::tool_results::ToolResult;
use tidegate_store::vault::Vault;
use tokio::sync::mpsc;

use super::replay::Memory;
use crate::keys::KeyEntry;

const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes that are kept in memory in all, and results that this is roughly.
const MOST: u64 = 32 << 20;
const RESULTS: usize = 16_384;
/// Results that wait to be written at most, and their bytes.
const WAITING: usize = 1_024;
const WAITING_BYTES: usize = 32 << 20;
/// Results that are written at once.
const AT_ONCE: usize = 32;
/// Results that one request is looked up in the store for.
const MOST_SOUGHT: usize = 256;
/// What results are sealed as.
const LABEL: &str = "tool result";

type Key = (WorkspaceId, Box<str>);
type Kept = (Arc<str>, Timestamp);

#[derive(Clone)]
struct Size;

impl Weighter<Key, Kept> for Size {
    fn weight(&self, key: &Key, (text, _): &Kept) -> u64 {
        (text.len() + key.1.len() + 64) as u64
    }
}

/// A result on its way to the store.
struct Waiting {
    organisation: OrganisationId,
    workspace: WorkspaceId,
    id: Box<str>,
    text: Arc<str>,
    expires: Timestamp,
}

/// Everybody's results.
pub(crate) struct Results {
    known: Cache<Key, Kept, Size>,
    /// None once no more is written.
    sender: Mutex<Option<mpsc::Sender<Waiting>>>,
    /// Until the writer takes it.
    receiver: Mutex<Option<mpsc::Receiver<Waiting>>>,
    waiting_bytes: AtomicUsize,
}

impl Default for Results {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        Self {
            known: Cache::with_weighter(RESULTS, MOST, Size),
            sender: Mutex::new(Some(sender)),
            receiver: Mutex::new(Some(receiver)),
            waiting_bytes: AtomicUsize::new(0),
        }
    }
}

impl Results {
    pub fn keep(&self, key: &KeyEntry, id: &str, text: &str, now: Timestamp) {
        self.keep_for(key.organisation.clone(), &key.workspace, id, text, now);
    }

    fn keep_for(&self, organisation: OrganisationId, workspace: &WorkspaceId, id: &str, text: &str, now: Timestamp) {
        let (text, expires): (Arc<str>, _) = (text.into(), now.plus(KEPT));
        self.known.insert((workspace.clone(), id.into()), (text.clone(), expires));
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = sender.as_ref() else { return };
        let size = text.len();
        let before = self.waiting_bytes.fetch_add(size, Ordering::SeqCst);
        let waiting = Waiting { organisation, workspace: workspace.clone(), id: id.into(), text, expires };
        if before.saturating_add(size) > WAITING_BYTES || sender.try_send(waiting).is_err() {
            self.waiting_bytes.fetch_sub(size, Ordering::SeqCst);
            tracing::warn!("a result of a tool is kept in memory only: the store is too slow");
        }
    }

    /// Writes what waits, until [`Results::close`] and what waited then.
    pub async fn write(&self, store: &Store, vault: &Vault) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = receiver else { return };
        let mut taken = Vec::with_capacity(AT_ONCE);
        while receiver.recv_many(&mut taken, AT_ONCE).await > 0 {
            let size: usize = taken.iter().map(|waiting| waiting.text.len()).sum();
            let mut rows: Vec<ToolResult> = taken.drain(..).filter_map(|waiting| sealed(vault, waiting)).collect();
            // A statement may not write the same row twice; the last one counts.
            rows.reverse();
            let mut seen = std::collections::HashSet::new();
            rows.retain(|row| seen.insert((row.organisation.clone(), row.workspace.clone(), row.id.clone())));
            if let Err(error) = store.keep_tool_results(&rows).await {
                tracing::warn!(%error, count = rows.len(), "results of tools are kept in memory only");
            }
            self.waiting_bytes.fetch_sub(size, Ordering::SeqCst);
        }
    }

    /// Takes nothing more for the store.
    pub fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Those of a workspace.
    pub fn of(&self, workspace: &WorkspaceId, now: Timestamp) -> OfWorkspace<'_> {
        OfWorkspace { results: self, workspace: workspace.clone(), now }
    }

    /// Asks the store for results that are not in memory. A store that does not answer has none.
    pub async fn recall(&self, store: &Store, vault: &Vault, key: &KeyEntry, ids: &[String], now: Timestamp) {
        let ids: Vec<&str> = ids.iter().take(MOST_SOUGHT).map(String::as_str).collect();
        let tenant = Tenant { organisation: key.organisation.clone() };
        let found = match store.tool_results(&tenant, &key.workspace, &ids, now).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "results of earlier calls could not be looked up");
                return;
            }
        };
        for (id, sealed, expires) in found {
            let plain = vault.open_blob(LABEL, &about(&key.workspace, &id), &sealed);
            let Some(text) = plain.and_then(|plain| String::from_utf8(plain).ok()) else { continue };
            self.known.insert((key.workspace.clone(), id.into()), (text.into(), expires));
        }
    }
}

/// What a result is bound to.
fn about(workspace: &WorkspaceId, id: &str) -> Vec<u8> {
    [workspace.0.as_bytes(), b"\0", id.as_bytes()].concat()
}

fn sealed(vault: &Vault, waiting: Waiting) -> Option<ToolResult> {
    let Waiting { organisation, workspace, id, text, expires } = waiting;
    let sealed = vault.seal_blob(LABEL, &about(&workspace, &id), text.as_bytes()).ok()?;
    Some(ToolResult { organisation, workspace, id: id.into(), sealed, expires })
}

pub(crate) struct OfWorkspace<'a> {
    results: &'a Results,
    workspace: WorkspaceId,
    now: Timestamp,
}

impl Memory for OfWorkspace<'_> {
    fn result(&self, id: &str) -> Option<String> {
        let (text, until) = self.results.known.get(&(self.workspace.clone(), id.into()))?;
        (until > self.now).then(|| text.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_known_for_a_day_and_in_its_workspace_alone() {
        let results = Results::default();
        let (one, other) = (WorkspaceId("a".into()), WorkspaceId("b".into()));
        let day = 24 * 60 * 60 * 1_000;
        results.keep_for(OrganisationId("o".into()), &one, "srvtoolu_1", "text", Timestamp(0));
        assert_eq!(results.of(&one, Timestamp(day - 1)).result("srvtoolu_1").as_deref(), Some("text"));
        assert_eq!(results.of(&one, Timestamp(day)).result("srvtoolu_1"), None);
        assert_eq!(results.of(&other, Timestamp(1)).result("srvtoolu_1"), None);
    }

    #[test]
    fn what_waits_for_the_store_is_bounded() {
        let results = Results::default();
        let text = "x".repeat(1 << 20);
        for number in 0..40 {
            results.keep_for(
                OrganisationId("o".into()),
                &WorkspaceId("a".into()),
                &number.to_string(),
                &text,
                Timestamp(0),
            );
        }
        // Nobody writes, so what is beyond the bound was not taken.
        assert_eq!(results.waiting_bytes.load(Ordering::SeqCst), WAITING_BYTES);
        let receiver = results.receiver.lock().unwrap().take().unwrap();
        assert_eq!(receiver.len(), 32);
    }
}
