//! The key index: every live key in memory, so that no request waits for a database to be let in.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use papaya::HashMap;
use quick_cache::sync::Cache;
use tidegate_core::{KeyHash, KeyKind, OrganisationId, Timestamp, WorkspaceId};
use tidegate_store::keys::KeyRow;
use tidegate_store::{Store, StoreError};

use crate::limit::{Count, Failures};

const UNKNOWN_REMEMBERED: usize = 65_536;
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_secs(1);
const PAGE: u32 = 1_000;

/// A live key as admission needs it.
#[derive(Debug)]
pub struct KeyEntry {
    pub hash: KeyHash,
    pub kind: KeyKind,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub disabled: bool,
    pub expires: Option<Timestamp>,
    pub live: Arc<Live>,
    pub workspace_in_flight: Arc<Count>,
}

/// What outlives a change of the key: its requests under way count on, and learn that it was taken away.
#[derive(Debug, Default)]
pub struct Live {
    pub in_flight: Arc<Count>,
    revoked: AtomicBool,
}

impl KeyEntry {
    /// Whether a request that was let in earlier may go on.
    pub fn may_go_on(&self, now: Timestamp) -> bool {
        !self.live.revoked.load(Ordering::Relaxed) && self.expires.is_none_or(|expires| expires > now)
    }

    pub fn is_usable(&self, now: Timestamp) -> bool {
        !self.disabled && self.expires.is_none_or(|expires| expires > now)
    }
}

/// A SHA-256 digest is as evenly spread as any hash of it would be.
#[derive(Default)]
pub struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks_exact(8) {
            self.0 ^= u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        }
    }
    fn write_usize(&mut self, _: usize) {} // the length prefix of an array says nothing
}

type Index = HashMap<KeyHash, Arc<KeyEntry>, BuildHasherDefault<DigestHasher>>;

/// All keys by the digest of the whole token, fresh within a second of any change.
pub struct KeyIndex {
    store: Arc<Store>,
    keys: Index,
    workspaces: HashMap<WorkspaceId, Arc<Count>>,
    /// Tokens the store did not know, until when. The index always wins over it.
    unknown: Cache<KeyHash, Timestamp>,
    seen: AtomicI64,
    healthy: AtomicBool,
    pub failures: Failures,
}

impl KeyIndex {
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            keys: Index::default(),
            workspaces: HashMap::new(),
            unknown: Cache::new(UNKNOWN_REMEMBERED),
            seen: AtomicI64::new(0),
            healthy: AtomicBool::new(true),
            failures: Failures::default(),
        }
    }

    /// Loads every key; to be called once before the first request.
    pub async fn load(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        let seen = self
            .store
            .all_live_keys(|row| {
                self.apply(row);
                count += 1;
            })
            .await?;
        self.seen.store(seen, Ordering::SeqCst);
        Ok(count)
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let rows = self.store.keys_changed_after(self.seen.load(Ordering::SeqCst), PAGE).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            self.seen.store(last.change_seq, Ordering::SeqCst);
            for row in rows {
                self.apply(row);
            }
        }
    }

    /// Keeps the index fresh until the process ends. A store that is down leaves the index as it was.
    pub async fn follow(&self) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let result = self.refresh().await;
            let healthy = result.is_ok();
            if self.healthy.swap(healthy, Ordering::SeqCst) != healthy {
                match result {
                    Ok(()) => tracing::info!("the store answers again"),
                    Err(error) => {
                        tracing::error!(%error, "the store does not answer: keys stay as they were last known")
                    }
                }
            }
        }
    }

    /// A key that is in memory. The compare at the end takes the same time for every candidate.
    pub fn known(&self, hash: &KeyHash) -> Option<Arc<KeyEntry>> {
        self.keys.pin().get(hash).filter(|entry| entry.hash.is(hash)).cloned()
    }

    /// Asks the store once about a key that is not in memory.
    pub async fn look_up(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<Arc<KeyEntry>>, StoreError> {
        if self.unknown.get(hash).is_some_and(|until| until > now) {
            return Ok(None);
        }
        match self.store.find_key(hash).await? {
            Some(row) => Ok(self.apply(row)),
            None => {
                self.unknown.insert(*hash, now.plus(UNKNOWN_FOR));
                Ok(None)
            }
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn apply(&self, row: KeyRow) -> Option<Arc<KeyEntry>> {
        let keys = self.keys.pin();
        // Requests under way keep their counter, and hear of it, when their key changes.
        let live = keys.get(&row.hash).map_or_else(Arc::default, |entry| entry.live.clone());
        live.revoked.store(row.disabled || row.deleted, Ordering::Relaxed);
        if row.deleted {
            keys.remove(&row.hash);
            return None;
        }
        let workspaces = self.workspaces.pin();
        let workspace_in_flight = workspaces.get_or_insert_with(row.workspace.clone(), Arc::default).clone();
        let entry = Arc::new(KeyEntry {
            hash: row.hash,
            kind: row.kind,
            organisation: row.organisation,
            workspace: row.workspace,
            disabled: row.disabled,
            expires: row.expires,
            live,
            workspace_in_flight,
        });
        keys.insert(row.hash, entry.clone());
        Some(entry)
    }
}
