//! Destinations that people of a workspace made, as they are used: all in memory, fresh within a second of any change.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use tidegate_core::{KeyHash, Secret, Timestamp};
use tidegate_observe::broadcast::target::Config;
use tidegate_observe::broadcast::{Destination, Filter, Kind, Scope, Tells};
use tidegate_store::destinations::DestinationRow;
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};

use crate::{Gateway, Snapshot};

/// Keeps what is sealed here apart from other uses of the same key.
pub const LABEL: &str = "destination";

pub struct Stored {
    store: Arc<Store>,
    seen: AtomicI64,
    /// The keys that were known when some of them could not be opened.
    without: Mutex<Option<Vec<Box<str>>>>,
    list: ArcSwap<Vec<Arc<Destination>>>,
}

impl Stored {
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, seen: AtomicI64::new(-1), without: Mutex::default(), list: ArcSwap::default() }
    }

    pub(crate) fn list(&self) -> Arc<Vec<Arc<Destination>>> {
        self.list.load_full()
    }

    /// Which change of the store the list has.
    pub(crate) fn seq(&self) -> i64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// Those that were taken away since an instant, by their ids.
    pub(crate) async fn gone_since(&self, since: Timestamp) -> Result<HashMap<String, Kind>, StoreError> {
        let gone = self.store.destinations_gone_since(since).await?;
        Ok(gone.into_iter().filter_map(|(id, kind)| Some((id, Kind::parse(&kind)?))).collect())
    }

    /// Takes over what changed in the store since the last call.
    pub(crate) async fn refresh(&self, vault: &Vault) -> Result<(), StoreError> {
        // The key that one of them is sealed under may come later.
        let without = self.without.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if without.is_some()
            && let Err(error) = vault.refresh_if_changed().await
        {
            tracing::debug!(%error, "the ring of master keys cannot be read");
        }
        let is_mended = without.is_some_and(|ids| ids != vault.ids());
        if self.store.destinations_seq().await? == self.seen.load(Ordering::SeqCst) && !is_mended {
            return Ok(());
        }
        let (seq, list, is_whole) = all(&self.store, vault).await?;
        self.list.store(Arc::new(list));
        *self.without.lock().unwrap_or_else(PoisonError::into_inner) = (!is_whole).then(|| vault.ids());
        self.seen.store(seq, Ordering::SeqCst);
        Ok(())
    }
}

/// All that can be used, which change that is, and whether those are all there are.
pub(super) async fn all(store: &Store, vault: &Vault) -> Result<(i64, Vec<Arc<Destination>>, bool), StoreError> {
    let (seq, rows) = store.all_destinations().await?;
    // They may be sealed under a key that came with the change.
    if let Err(error) = vault.refresh_if_changed().await {
        tracing::warn!(%error, "the ring of master keys cannot be read");
    }
    let mut list = Vec::with_capacity(rows.len());
    let count = rows.len();
    for row in rows {
        match destination(&row, vault) {
            Some(destination) => list.push(Arc::new(destination)),
            None => tracing::error!(destination = %row.id, "a stored destination cannot be used"),
        }
    }
    let is_whole = list.len() == count;
    Ok((seq, list, is_whole))
}

impl Gateway {
    /// Whether anybody is told of anything.
    pub(crate) fn is_told(&self, snapshot: &Snapshot) -> bool {
        !snapshot.settings.audience.destinations.is_empty() || !self.told.list().is_empty()
    }

    /// Takes over changed destinations at once.
    pub async fn refresh_destinations(&self) -> Result<(), StoreError> {
        self.told.refresh(&self.vault).await
    }
}

/// As it is sealed.
#[derive(Default, Serialize, Deserialize)]
struct Plain {
    values: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

/// A configuration as it is sealed.
pub fn plain(config: &Config) -> Option<Secret> {
    let text = |value: &Secret| value.expose(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let plain = |map: &BTreeMap<String, Secret>| map.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let plain = Plain { values: plain(&config.values), headers: plain(&config.headers) };
    Some(Secret::new(serde_json::to_vec(&plain).ok()?))
}

/// The configuration that is sealed for the destination with this id.
pub fn opened(vault: &Vault, id: &str, sealed: &[u8]) -> Option<Config> {
    let plain = Secret::new(vault.open_blob(LABEL, id.as_bytes(), sealed)?);
    let plain: Plain = plain.expose(|bytes| serde_json::from_slice(bytes)).ok()?;
    let secret =
        |map: BTreeMap<String, String>| map.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    Some(Config { values: secret(plain.values), headers: secret(plain.headers) })
}

fn destination(row: &DestinationRow, vault: &Vault) -> Option<Destination> {
    let kind = Kind::parse(&row.kind)?;
    let target = opened(vault, &row.id, &row.sealed)?.target(kind).ok()?;
    let settings = &row.settings;
    let keys = settings.api_key_hashes.as_ref().map(|keys| keys.iter().filter_map(|key| KeyHash::parse(key)).collect());
    let filter = settings.filter_rules.as_ref().map(Filter::read).transpose().ok()?.flatten();
    Some(Destination {
        id: row.id.clone(),
        kind,
        target,
        scope: Scope { workspace: Some(row.workspace.clone()), keys, filter, share: settings.sampling_rate },
        is_private: settings.privacy_mode,
        tells: Tells {
            cost: settings.broadcast_generation_cost,
            identity: settings.broadcast_generation_identity,
            context: settings.broadcast_generation_request_context,
        },
        is_operators: false,
    })
}
