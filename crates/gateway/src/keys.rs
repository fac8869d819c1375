//! The key index: every live key in memory, so that no request waits for a database to be let in.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use papaya::HashMap;
use quick_cache::sync::Cache;
use tidegate_core::{Account, KeyHash, KeyKind, Money, OrganisationId, Timestamp, Window, WorkspaceId};
use tidegate_store::keys::KeyRow;
use tidegate_store::{Store, StoreError};

use crate::ledger::Ledger;
use crate::limit::{Count, Daily, PerSource, Rate};

const UNKNOWN_REMEMBERED: usize = 65_536;
const GONE_REMEMBERED: usize = 65_536;
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
const PAGE: u32 = 1_000;

/// A live key as admission needs it.
#[derive(Debug)]
pub struct KeyEntry {
    pub hash: KeyHash,
    pub kind: KeyKind,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub name: Box<str>,
    pub disabled: bool,
    pub expires: Option<Timestamp>,
    /// The person it belongs to.
    pub creator: Option<Box<str>>,
    pub limit: Option<KeyLimit>,
    /// Which change of the store this is, and which one made its limit what it is.
    change_seq: i64,
    limit_seq: i64,
    pub live: Arc<Live>,
    /// What it shares with the other keys of its workspace.
    pub workspace_live: Arc<Shared>,
}

/// What a key may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimit {
    pub amount: Money,
    /// `None`: in its whole life.
    pub window: Option<Window>,
    pub counts_byok: bool,
}

/// What outlives a change of the key: its requests under way count on, and learn that it was taken away.
#[derive(Debug, Default)]
pub struct Live {
    pub in_flight: Arc<Count>,
    /// Management operations.
    pub managed: Rate,
    /// Inference requests.
    pub asked: Rate,
    /// Those of free variants, by the minute and by the day.
    pub asked_free: Rate,
    pub free_today: Daily,
    revoked: AtomicBool,
    /// The change that made the key's limit what it is now.
    limit_seq: AtomicI64,
}

/// What the keys of a workspace have in common.
#[derive(Debug, Default)]
pub struct Shared {
    pub in_flight: Arc<Count>,
    /// Bytes that came of their bodies that are not whole.
    pub sending: AtomicU64,
    pub asked: Rate,
}

impl KeyEntry {
    /// Whether a request that was let in earlier may go on.
    pub fn may_go_on(&self, now: Timestamp) -> bool {
        !self.live.revoked.load(Ordering::Relaxed) && self.expires.is_none_or(|expires| expires > now)
    }

    /// Whether the key has another limit by now.
    pub fn is_limited_anew(&self) -> bool {
        self.live.limit_seq.load(Ordering::Acquire) != self.limit_seq
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

/// What is known of keys, whoever says it and in whatever order.
struct Entries {
    keys: HashMap<KeyHash, Arc<KeyEntry>, BuildHasherDefault<DigestHasher>>,
    workspaces: HashMap<WorkspaceId, Arc<Shared>>,
    /// With which change a key was deleted: an answer of the store from before must not bring it back. Held while a row
    /// is applied, because the look at what is known and the change of it are two steps.
    gone: Mutex<quick_cache::unsync::Cache<KeyHash, i64>>,
}

/// All keys by the digest of the whole token, fresh within a second of any change.
pub struct KeyIndex {
    store: Arc<Store>,
    ledger: Arc<Ledger>,
    entries: Entries,
    /// Tokens the store did not know, until when. The index always wins over it.
    unknown: Cache<KeyHash, Timestamp>,
    seen: AtomicI64,
    pub failures: PerSource,
    /// Inference requests by where they come from.
    pub asked: PerSource,
}

impl KeyIndex {
    pub fn new(store: Arc<Store>, ledger: Arc<Ledger>) -> Self {
        Self {
            store,
            ledger,
            entries: Entries::default(),
            unknown: Cache::new(UNKNOWN_REMEMBERED),
            seen: AtomicI64::new(0),
            failures: PerSource::default(),
            asked: PerSource::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Loads every key; to be called once before the first request.
    pub async fn load(&self) -> Result<usize, StoreError> {
        let mut count = 0;
        let seen = self
            .store
            .all_live_keys(|row| {
                self.entries.apply(row, &self.ledger);
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
            let Some(last) = rows.last().map(|row| row.change_seq) else { return Ok(()) };
            for row in rows {
                self.entries.apply(row, &self.ledger);
            }
            // Only now: whoever asks meanwhile fetches these again rather than believing that they are known.
            self.seen.fetch_max(last, Ordering::SeqCst);
        }
    }

    /// A key that is in memory. The compare at the end takes the same time for every candidate.
    pub fn known(&self, hash: &KeyHash) -> Option<Arc<KeyEntry>> {
        self.entries.keys.pin().get(hash).filter(|entry| entry.hash.is(hash)).cloned()
    }

    /// Takes a row of the store over.
    pub fn learn(&self, row: KeyRow) {
        self.entries.apply(row, &self.ledger);
    }

    /// Asks the store once about a key that is not in memory.
    pub async fn look_up(&self, hash: &KeyHash, now: Timestamp) -> Result<Option<Arc<KeyEntry>>, StoreError> {
        if self.unknown.get(hash).is_some_and(|until| until > now) {
            return Ok(None);
        }
        match self.store.find_key(hash).await? {
            Some(row) => Ok(self.entries.apply(row, &self.ledger)),
            None => {
                self.unknown.insert(*hash, now.plus(UNKNOWN_FOR));
                Ok(None)
            }
        }
    }

    pub fn len(&self) -> usize {
        self.entries.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.keys.is_empty()
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self {
            keys: HashMap::default(),
            workspaces: HashMap::new(),
            gone: Mutex::new(quick_cache::unsync::Cache::new(GONE_REMEMBERED)),
        }
    }
}

impl Entries {
    /// Takes a row over unless a later one is known; gives back the key as it is then known. A slow look-up may bring a
    /// row from before a change that has been followed already.
    fn apply(&self, row: KeyRow, ledger: &Ledger) -> Option<Arc<KeyEntry>> {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = self.keys.pin();
        let known = keys.get(&row.hash);
        if let Some(known) = known.filter(|known| known.change_seq > row.change_seq) {
            return Some(known.clone());
        }
        if gone.get(&row.hash).is_some_and(|deleted| *deleted >= row.change_seq) {
            return None;
        }
        // Requests under way keep their counter, and hear of it, when their key changes.
        let live = known.map_or_else(Arc::default, |entry| entry.live.clone());
        live.revoked.store(row.disabled || row.deleted, Ordering::Relaxed);
        if row.deleted {
            gone.insert(row.hash, row.change_seq);
            keys.remove(&row.hash);
            return None;
        }
        let workspaces = self.workspaces.pin();
        let workspace_live = workspaces.get_or_insert_with(row.workspace.clone(), Arc::default).clone();
        let limit = row.limit.map(|amount| KeyLimit {
            amount,
            window: row.limit_reset,
            counts_byok: row.include_byok_in_limit,
        });
        let kept = known.filter(|known| known.limit == limit).map(|known| known.limit_seq);
        let limit_seq = kept.unwrap_or(row.change_seq);
        let is_changed = known.is_some() && kept.is_none();
        if is_changed {
            ledger.doubt(Some(&row.organisation), &Account::Key(row.hash));
        }
        let entry = Arc::new(KeyEntry {
            hash: row.hash,
            kind: row.kind,
            organisation: row.organisation,
            workspace: row.workspace,
            name: row.name,
            disabled: row.disabled,
            expires: row.expires,
            creator: row.creator,
            limit,
            change_seq: row.change_seq,
            limit_seq,
            live,
            workspace_live,
        });
        keys.insert(row.hash, entry.clone());
        entry.live.limit_seq.store(limit_seq, Ordering::Release);
        if is_changed {
            ledger.note_change();
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::clock::SystemClock;
    use tidegate_observe::metrics::Metrics;

    fn row(change_seq: i64) -> KeyRow {
        KeyRow {
            hash: KeyHash::of(b"a key"),
            organisation: OrganisationId("o".into()),
            workspace: WorkspaceId("w".into()),
            kind: KeyKind::Inference,
            name: "".into(),
            label: "".into(),
            disabled: false,
            limit: None,
            limit_reset: None,
            include_byok_in_limit: false,
            expires: None,
            creator: None,
            external_user: None,
            created: Timestamp(0),
            updated: None,
            deleted: false,
            change_seq,
        }
    }

    #[test]
    fn a_row_from_before_a_disabling_does_not_enable_the_key_again() {
        let entries = Entries::default();
        let (ledger, _wants) = Ledger::new(Arc::new(SystemClock), Arc::new(Metrics::new("0", "x")));
        let let_in = entries.apply(row(1), &ledger).unwrap();
        assert!(entries.apply(KeyRow { disabled: true, ..row(2) }, &ledger).unwrap().disabled);
        let late = entries.apply(row(1), &ledger).expect("the key is known");
        assert!(late.disabled && !let_in.may_go_on(Timestamp(0)), "what is newer stays");
        assert!(!entries.apply(row(3), &ledger).unwrap().disabled && let_in.may_go_on(Timestamp(0)));
    }

    #[test]
    fn a_row_from_before_a_deletion_does_not_bring_the_key_back() {
        let entries = Entries::default();
        let (ledger, _wants) = Ledger::new(Arc::new(SystemClock), Arc::new(Metrics::new("0", "x")));
        // Nobody had asked for the key when it was deleted: there is no entry that could tell.
        assert!(entries.apply(KeyRow { deleted: true, ..row(2) }, &ledger).is_none());
        assert!(entries.apply(row(1), &ledger).is_none() && entries.keys.is_empty());
        assert!(entries.apply(KeyRow { deleted: true, ..row(2) }, &ledger).is_none());
        assert!(entries.apply(row(3), &ledger).is_some(), "a later change counts");
        assert!(entries.apply(KeyRow { deleted: true, ..row(2) }, &ledger).is_some(), "an earlier deletion does not");
        assert_eq!(entries.keys.len(), 1);
    }
}
