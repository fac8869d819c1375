//! Presets in requests: which there are is whole in memory, what they hold is kept as far as there is room. A request that
//! names none pays nothing for this.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{Api, Tenant, WorkspaceId};
use tidegate_store::presets::{PresetRow, PresetStatus};
use tidegate_store::{Store, StoreError};
use tidegate_wire::envelope::{Brand, Envelope, Purpose, Violation};
use tidegate_wire::error::ErrorType;
use tidegate_wire::preset::{Kept, Preset, Reference, Words};

use crate::agent;
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::snapshot::Settings;
use crate::{Gateway, cache, doors};

/// Bytes of versions that are kept, and how many that is where they are small.
const ROOM: u64 = 64 << 20;
const USUAL: usize = 4_096;

/// All presets by workspace and slug, fresh within a second of any change. Those of a workspace that was deleted stay until
/// the next start: no key can name them any more.
pub struct Presets {
    store: Arc<Store>,
    rows: papaya::HashMap<(WorkspaceId, Box<str>), Arc<PresetRow>>,
    /// Held while a row is taken over, because the look at what is known and the change of it are two steps.
    applying: Mutex<()>,
    seen: AtomicI64,
    /// Versions never change, so what is known of one stays right.
    versions: Cache<Arc<str>, Arc<Preset>, Size>,
}

#[derive(Clone)]
struct Size;

impl Weighter<Arc<str>, Arc<Preset>> for Size {
    fn weight(&self, _: &Arc<str>, preset: &Arc<Preset>) -> u64 {
        preset.size_bytes() as u64
    }
}

/// A request with what its preset adds.
pub(crate) struct Applied {
    /// In place of the one that came. It names no preset any more.
    pub body: Bytes,
    /// The preset's id.
    pub id: Arc<str>,
    /// The models as the caller wrote them.
    pub requested: Vec<String>,
    pub cache: cache::Preset,
}

impl Presets {
    pub fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            rows: papaya::HashMap::new(),
            applying: Mutex::new(()),
            seen: AtomicI64::new(0),
            versions: Cache::with_weighter(USUAL, ROOM, Size),
        }
    }

    /// Takes over what changed in the store since the last call; the first time that is everything.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let rows = self.store.presets_changed_after(self.seen.load(Ordering::SeqCst)).await?;
            let Some(last) = rows.last().map(|row| row.change_seq) else { return Ok(()) };
            for row in rows {
                self.take_over(row);
            }
            // Only now: whoever asks meanwhile fetches these again rather than believing that they are known.
            self.seen.fetch_max(last, Ordering::SeqCst);
        }
    }

    fn take_over(&self, row: PresetRow) {
        let _applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, name) = (self.rows.pin(), (row.workspace.clone(), row.slug.clone()));
        if rows.get(&name).is_none_or(|known| known.change_seq <= row.change_seq) {
            rows.insert(name, Arc::new(row));
        }
    }

    fn known(&self, workspace: &WorkspaceId, slug: &str) -> Option<Arc<PresetRow>> {
        self.rows.pin().get(&(workspace.clone(), slug.into())).cloned()
    }

    /// A preset that may be used, by the name that the caller's workspace has for it.
    async fn find(&self, key: &KeyEntry, slug: &str) -> Result<Option<(Arc<str>, Arc<Preset>)>, StoreError> {
        let mut row = self.known(&key.workspace, slug);
        if row.is_none() {
            // Another node may have made it a moment ago.
            self.refresh().await?;
            row = self.known(&key.workspace, slug);
        }
        let Some(row) = row.filter(|row| row.status == PresetStatus::Active) else { return Ok(None) };
        if let Some(preset) = self.versions.get(&row.designated) {
            return Ok(Some((row.id.clone(), preset)));
        }
        let tenant = Tenant { organisation: key.organisation.clone() };
        let Some(version) = self.store.find_preset_version(&tenant, &row.designated).await? else { return Ok(None) };
        let Some(preset) = Preset::read(&version.config, version.system.as_deref()) else {
            tracing::error!(preset = %row.id, version = version.number, "a stored preset cannot be read");
            return Ok(None);
        };
        let preset = Arc::new(preset);
        self.versions.insert(row.designated.clone(), preset.clone());
        Ok(Some((row.id.clone(), preset)))
    }

    /// The request with what the preset adds that it names; `envelope` was read from `body`.
    pub(crate) async fn applied(
        &self,
        key: &KeyEntry,
        settings: &Settings,
        (body, envelope): (&Bytes, &Envelope<'_>),
        words: Words,
    ) -> Result<Applied, Failure> {
        let reference = Reference::of(envelope)?.ok_or_else(Failure::internal)?;
        let found = self.find(key, reference.slug).await.map_err(|error| {
            tracing::error!(%error, "a preset could not be looked up");
            Failure::unavailable()
        })?;
        let (id, preset) = found.ok_or_else(|| unknown(reference.slug))?;
        let body = preset.merged(body, reference.model, brand(settings), words).ok_or_else(Failure::internal)?;
        let mut requested: Vec<String> = envelope.names().map(str::to_owned).collect();
        if requested.is_empty() {
            requested.push(format!("@preset/{}", reference.slug));
        }
        let cache = cache::Preset { enabled: preset.cache_enabled, ttl_seconds: preset.cache_ttl_seconds };
        Ok(Applied { body, id, requested, cache })
    }
}

/// Absent, switched off or another workspace's: all look alike.
fn unknown(slug: &str) -> Failure {
    Failure::new(404, ErrorType::NotFound, format!("Preset not found: {slug}"))
}

/// What a request gets that names a preset where there are none.
pub(crate) fn refused(envelope: &Envelope<'_>) -> Option<Failure> {
    match Reference::of(envelope) {
        Ok(reference) => reference.map(|reference| unknown(reference.slug)),
        Err(violation) => Some(violation.into()),
    }
}

fn brand(settings: &Settings) -> Brand<'_> {
    Brand { name: &settings.brand, aliases: &settings.brand_aliases }
}

impl Gateway {
    /// What would be kept of a request's body as a preset, and what of it nobody has a use for. It is checked as a request
    /// is.
    pub fn kept(&self, api: Api, body: &Bytes) -> Result<(Kept, Vec<String>), Violation> {
        let snapshot = self.snapshot();
        let (body, warnings) = doors::in_messages(&snapshot, api, body)?;
        let body = &body;
        let envelope = tidegate_wire::envelope::read(body, brand(&snapshot.settings), Purpose::Keep)?;
        if let Err(Failure { message, error_type, .. }) = agent::as_turn(body, &envelope, &snapshot) {
            return Err(Violation { message: message.into_owned(), error_type });
        }
        let unreadable = || Violation {
            message: "Invalid request: body must be an object".to_owned(),
            error_type: ErrorType::InvalidRequest,
        };
        Ok((Kept::of(body).ok_or_else(unreadable)?, warnings))
    }
}
