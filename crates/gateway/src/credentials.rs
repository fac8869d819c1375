//! The credentials of customers: all of them in memory, sealed, so that a request finds its own without a database; and
//! opened for a few minutes at a time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache;
use tidegate_core::{Secret, Timestamp, WorkspaceId};
use tidegate_providers::{Auth, credential};
use tidegate_routing::Credential;
use tidegate_store::credentials::CredentialRow;
use tidegate_store::vault::{Vault, VaultError};
use tidegate_store::{Store, StoreError};

/// Opened values that are kept, and how long.
const OPENED: usize = 1_024;
const OPENED_FOR: Duration = Duration::from_secs(300);
const GONE_REMEMBERED: usize = 65_536;
/// How long a credential that its provider refused is passed over.
const REST: Duration = Duration::from_secs(60);

/// All credentials by workspace, fresh within a second of any change.
pub struct Credentials {
    store: Arc<Store>,
    vault: Arc<Vault>,
    known: Known,
    seen: AtomicI64,
    opened: Cache<Arc<str>, Arc<Opened>>,
}

/// What is known of credentials, whoever says it and in whatever order.
struct Known {
    workspaces: papaya::HashMap<WorkspaceId, Arc<Owned>>,
    /// With which change a credential was deleted: a row that was read before must not bring it back. Held while a
    /// change is taken over, because the look at a workspace's list and its replacement are two steps.
    gone: Mutex<quick_cache::unsync::Cache<Arc<str>, i64>>,
}

impl Default for Known {
    fn default() -> Self {
        let gone = Mutex::new(quick_cache::unsync::Cache::new(GONE_REMEMBERED));
        Self { workspaces: papaya::HashMap::new(), gone }
    }
}

/// The credentials of one workspace.
#[derive(Default)]
pub struct Owned {
    /// In the order in which they are tried.
    pub list: Vec<Arc<Credential>>,
    entries: HashMap<Arc<str>, Arc<Entry>>,
}

struct Entry {
    row: CredentialRow,
    credential: Arc<Credential>,
    /// Until when it rests; it goes on resting when something else about it changes.
    rests: Arc<AtomicI64>,
}

/// Why a planned credential cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Disabled, deleted or meant for another address since the plan was made.
    Gone,
    /// It does not open: our fault, not its owner's.
    Sealed,
}

/// A credential whose secret is open.
struct Opened {
    revision: i64,
    auth: Auth,
    value: credential::Credential,
    until: Timestamp,
}

impl Credentials {
    pub fn new(store: Arc<Store>, vault: Arc<Vault>) -> Self {
        Self { store, vault, known: Known::default(), seen: AtomicI64::new(0), opened: Cache::new(OPENED) }
    }

    /// Loads every live credential; to be called once before the first request.
    pub async fn load(&self) -> Result<(), StoreError> {
        let seen = self.store.live_credentials(|row| self.known.apply(row, |_| {})).await?;
        self.seen.fetch_max(seen, Ordering::SeqCst);
        Ok(())
    }

    /// Takes over what changed in the store since the last call.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let rows = self.store.credentials_changed_after(self.seen.load(Ordering::SeqCst)).await?;
            let Some(last) = rows.last() else { return Ok(()) };
            let last = last.change_seq;
            for row in rows {
                self.known.apply(row, |id| {
                    self.opened.remove(id);
                });
            }
            self.seen.fetch_max(last, Ordering::SeqCst);
        }
    }

    /// Lets go of what has been open for long enough; dropping it wipes it.
    pub fn sweep(&self, now: Timestamp) {
        self.opened.retain(|_, opened| opened.until > now);
    }

    /// The credentials of a workspace; `None` when it has none.
    pub fn of(&self, workspace: &WorkspaceId) -> Option<Arc<Owned>> {
        self.known.of(workspace)
    }

    /// An opened credential: of one row, so never a mixture of two.
    pub async fn value(
        &self,
        workspace: &WorkspaceId,
        credential: &Credential,
        auth: Auth,
        now: Timestamp,
    ) -> Result<credential::Credential, Unusable> {
        let owned = self.of(workspace).ok_or(Unusable::Gone)?;
        let entry = owned.entries.get(&credential.id).filter(|entry| !entry.row.disabled).ok_or(Unusable::Gone)?;
        // The plan was made for the address of another row.
        if entry.row.destination.as_deref() != credential.destination.as_deref() {
            return Err(Unusable::Gone);
        }
        if let Some(opened) = self.opened.get(&credential.id)
            && opened.revision == entry.row.revision
            && opened.auth == auth
            && opened.until > now
        {
            return Ok(opened.value.clone());
        }
        let secret = match self.open(&entry.row).await {
            Ok(secret) => secret,
            Err(error) => {
                tracing::error!(credential = %credential.id, %error, "a stored credential does not open");
                return Err(Unusable::Sealed);
            }
        };
        let value = credential::Credential::read(auth, &secret).ok_or(Unusable::Sealed)?;
        let (revision, until) = (entry.row.revision, now.plus(OPENED_FOR));
        self.opened.insert(credential.id.clone(), Arc::new(Opened { revision, auth, value: value.clone(), until }));
        // It may have been taken away while it was opened: then nobody else would wipe it.
        let current = self.of(workspace);
        let current = current.as_ref().and_then(|owned| owned.entries.get(&credential.id));
        if current.is_none_or(|entry| entry.row.disabled || entry.row.revision != revision) {
            self.opened.remove(&credential.id);
        }
        Ok(value)
    }

    /// Credentials that are stored for another address than their provider is reached at now: they are not used.
    /// `reached` says whether a provider is known, and whether it is reached at an address.
    pub fn misdirected(&self, reached: impl Fn(&str, Option<&str>) -> Option<bool>) -> Vec<Arc<Credential>> {
        let workspaces = self.known.workspaces.pin();
        let all = workspaces.values().flat_map(|owned| owned.list.iter());
        let is_elsewhere = |credential: &&Arc<Credential>| {
            !credential.disabled && reached(&credential.provider, credential.destination.as_deref()) == Some(false)
        };
        all.filter(is_elsewhere).cloned().collect()
    }

    async fn open(&self, row: &CredentialRow) -> Result<Secret, VaultError> {
        let sealed = row.sealed.as_ref().ok_or(VaultError::DoesNotOpen)?;
        let unknown = match self.vault.open(&row.binding(), sealed) {
            Err(unknown @ VaultError::UnknownMasterKey(_)) => unknown,
            opened => return opened,
        };
        // Another process has changed the ring: either we do not know its new key yet, or it has given up the old one
        // and sealed the row anew.
        if self.vault.refresh().await? {
            match self.vault.open(&row.binding(), sealed) {
                Err(VaultError::UnknownMasterKey(_)) => {}
                opened => return opened,
            }
        }
        if self.refresh().await.is_err() {
            return Err(unknown);
        }
        let owned = self.of(&row.workspace);
        let newer = owned.as_ref().and_then(|owned| owned.entries.get(&row.id)).filter(|entry| !entry.row.disabled);
        // What is sealed now may be meant for another address than the one that this call goes to.
        let newer = newer.filter(|entry| entry.row.destination == row.destination);
        match newer.and_then(|entry| Some((&entry.row, entry.row.sealed.as_ref()?))) {
            Some((row, sealed)) => self.vault.open(&row.binding(), sealed),
            None => Err(unknown),
        }
    }

    /// Its provider refused it: others go first for a while.
    pub fn rest(&self, workspace: &WorkspaceId, credential: &Credential, now: Timestamp) {
        if let Some(owned) = self.of(workspace)
            && let Some(entry) = owned.entries.get(&credential.id)
        {
            entry.rests.store(now.plus(REST).0, Ordering::Relaxed);
        }
    }
}

impl Known {
    fn of(&self, workspace: &WorkspaceId) -> Option<Arc<Owned>> {
        self.workspaces.pin().get(workspace).cloned()
    }

    /// Takes a row over unless a later one is known; `forget` hears of secrets that must not be kept open.
    fn apply(&self, row: CredentialRow, forget: impl FnOnce(&Arc<str>)) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let workspaces = self.workspaces.pin();
        let known = workspaces.get(&row.workspace);
        let old = known.and_then(|owned| owned.entries.get(&row.id));
        let is_late = gone.get(&row.id).is_some_and(|deleted| *deleted >= row.change_seq);
        if is_late || old.is_some_and(|old| old.row.change_seq > row.change_seq) {
            return;
        }
        if row.deleted {
            gone.insert(row.id.clone(), row.change_seq);
        }
        // A secret that was replaced must not outlive its row.
        if old.is_some_and(|old| old.row.sealed != row.sealed) || row.deleted || row.disabled {
            forget(&row.id);
        }
        // Another secret is another credential; it has not been refused by anyone.
        let same_secret = old.filter(|old| old.row.sealed == row.sealed && !row.disabled);
        let rests = same_secret.map_or_else(Arc::default, |old| old.rests.clone());
        let workspace = row.workspace.clone();
        let mut entries = known.map(|owned| owned.entries.clone()).unwrap_or_default();
        if row.deleted {
            entries.remove(&row.id);
        } else {
            let credential = Arc::new(described(&row));
            entries.insert(row.id.clone(), Arc::new(Entry { row, credential, rests }));
        }
        if entries.is_empty() {
            workspaces.remove(&workspace);
            return;
        }
        let mut list: Vec<_> = entries.values().map(|entry| entry.credential.clone()).collect();
        list.sort_by(|one, other| (one.sort_order, &one.id).cmp(&(other.sort_order, &other.id)));
        workspaces.insert(workspace, Arc::new(Owned { list, entries }));
    }
}

impl Owned {
    /// Those that were refused a short while ago.
    pub fn resting(&self, now: Timestamp) -> Vec<Arc<str>> {
        let rests = |entry: &&Arc<Entry>| entry.rests.load(Ordering::Relaxed) > now.0;
        self.entries.values().filter(rests).map(|entry| entry.row.id.clone()).collect()
    }
}

fn described(row: &CredentialRow) -> Credential {
    let texts =
        |list: &Option<Vec<String>>| list.as_ref().map(|list| list.iter().map(|text| text.as_str().into()).collect());
    Credential {
        id: row.id.clone(),
        provider: row.provider.clone(),
        destination: row.destination.as_deref().map(Into::into),
        disabled: row.disabled,
        is_fallback: row.is_fallback,
        is_required: row.is_required,
        is_byok_only: row.is_byok_only,
        declared_zdr: row.declared_zdr,
        sort_order: row.sort_order,
        models: texts(&row.allowed_models),
        users: texts(&row.allowed_users),
        keys: row.allowed_keys.as_ref().map(|keys| keys.iter().copied().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::OrganisationId;

    fn row(change_seq: i64) -> CredentialRow {
        CredentialRow {
            id: "c".into(),
            organisation: OrganisationId("o".into()),
            workspace: WorkspaceId("w".into()),
            provider: "p".into(),
            name: None,
            label: "***".to_owned(),
            disabled: false,
            is_fallback: false,
            is_required: false,
            is_byok_only: false,
            declared_region: None,
            declared_zdr: None,
            allowed_models: None,
            allowed_users: None,
            allowed_keys: None,
            sort_order: 0,
            destination: Some("https://p".to_owned()),
            sealed: None,
            revision: change_seq,
            change_seq,
            created: Timestamp(0),
            updated: None,
            deleted: false,
        }
    }

    #[test]
    fn a_row_from_before_a_deletion_does_not_bring_the_credential_back() {
        let known = Known::default();
        known.apply(row(1), |_| {});
        assert_eq!(known.of(&WorkspaceId("w".into())).unwrap().list.len(), 1);
        known.apply(CredentialRow { deleted: true, ..row(3) }, |_| {});
        known.apply(row(2), |_| {});
        assert!(known.of(&WorkspaceId("w".into())).is_none(), "what was read before comes too late");
        known.apply(row(4), |_| {});
        assert!(known.of(&WorkspaceId("w".into())).is_some(), "a later change counts");
    }
}
