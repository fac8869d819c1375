//! What a destination is to be.

use serde_json::Value;
use tidegate_core::{Secret, Timestamp, WorkspaceId};

use super::{DestinationRow, DestinationSettings};
use crate::Result;
use crate::vault::{Vault, VaultError};
use crate::workspaces::new_id;

/// Where and with which secrets a destination is reached. It is sealed when it is written, and not before: until then the
/// ring may become another one.
#[derive(Clone, Copy)]
pub struct NewConfig<'a> {
    pub vault: &'a Vault,
    pub label: &'a str,
    pub plain: &'a Secret,
}

impl NewConfig<'_> {
    /// To be called where nobody can give a master key up.
    pub(super) async fn sealed(&self, id: &str) -> Result<Vec<u8>> {
        self.vault.refresh_if_changed().await.map_err(VaultError::from)?;
        Ok(self.plain.expose(|plain| self.vault.seal_blob(self.label, id.as_bytes(), plain))?)
    }
}

/// What a destination is to be from now on.
#[derive(Clone)]
pub struct NewDestination<'a> {
    pub id: String,
    pub workspace: WorkspaceId,
    pub kind: String,
    pub name: String,
    pub enabled: bool,
    pub settings: DestinationSettings,
    pub config: NewConfig<'a>,
    /// What the log may say of its configuration.
    pub logged: Value,
}

/// The id of a destination that is about to be made: what is sealed for it is bound to it.
pub fn new_destination_id(now: Timestamp) -> String {
    new_id(now).0.to_string()
}

/// A change of a destination; what is not named stays as it is.
#[derive(Clone, Default)]
pub struct DestinationChange<'a> {
    pub name: Option<String>,
    pub enabled: Option<bool>,
    pub settings: SettingsChange,
    pub config: Option<ConfigChange<'a>>,
}

#[derive(Clone, Debug, Default)]
pub struct SettingsChange {
    pub api_key_hashes: Option<Option<Vec<String>>>,
    pub filter_rules: Option<Option<Value>>,
    pub sampling_rate: Option<f64>,
    pub privacy_mode: Option<bool>,
    pub broadcast_generation_cost: Option<bool>,
    pub broadcast_generation_identity: Option<bool>,
    pub broadcast_generation_request_context: Option<bool>,
}

/// What it holds from now on.
#[derive(Clone)]
pub struct ConfigChange<'a> {
    /// As it was sealed when the change was made of it.
    pub before: Vec<u8>,
    pub after: NewConfig<'a>,
    /// What the log may say of it, before and after: of its members those that differ.
    pub logged: (Value, Value),
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    Done(Box<DestinationRow>),
    /// There is none.
    Missing,
    /// Somebody else was quicker, and nothing was written: what it holds is not what the change was made of.
    Outrun,
}

impl SettingsChange {
    pub fn applied_to(&self, known: &DestinationSettings) -> DestinationSettings {
        DestinationSettings {
            api_key_hashes: self.api_key_hashes.clone().unwrap_or_else(|| known.api_key_hashes.clone()),
            filter_rules: self.filter_rules.clone().unwrap_or_else(|| known.filter_rules.clone()),
            sampling_rate: self.sampling_rate.unwrap_or(known.sampling_rate),
            privacy_mode: self.privacy_mode.unwrap_or(known.privacy_mode),
            broadcast_generation_cost: self.broadcast_generation_cost.unwrap_or(known.broadcast_generation_cost),
            broadcast_generation_identity: self
                .broadcast_generation_identity
                .unwrap_or(known.broadcast_generation_identity),
            broadcast_generation_request_context: self
                .broadcast_generation_request_context
                .unwrap_or(known.broadcast_generation_request_context),
        }
    }
}

impl DestinationChange<'_> {
    pub(super) async fn applied_to(&self, known: &DestinationRow, now: Timestamp) -> Result<DestinationRow> {
        let sealed = match &self.config {
            Some(config) => config.after.sealed(&known.id).await?,
            None => known.sealed.clone(),
        };
        Ok(DestinationRow {
            name: self.name.clone().unwrap_or_else(|| known.name.clone()),
            enabled: self.enabled.unwrap_or(known.enabled),
            settings: self.settings.applied_to(&known.settings),
            sealed,
            // Whoever came first may have waited longer.
            updated: known.updated.max(now),
            ..known.clone()
        })
    }
}
