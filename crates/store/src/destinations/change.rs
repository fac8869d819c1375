//! What a destination is to be.

use serde_json::Value;
use tidegate_core::{Timestamp, WorkspaceId};

use super::{DestinationRow, DestinationSettings};
use crate::workspaces::new_id;

/// What a destination is to be from now on.
#[derive(Clone, Debug)]
pub struct NewDestination {
    pub id: String,
    pub workspace: WorkspaceId,
    pub kind: String,
    pub name: String,
    pub enabled: bool,
    pub settings: DestinationSettings,
    pub sealed: Vec<u8>,
}

/// The id of a destination that is about to be made: what is sealed for it is bound to it.
pub fn new_destination_id(now: Timestamp) -> String {
    new_id(now).0.to_string()
}

/// A change of a destination; what is not named stays as it is.
#[derive(Clone, Debug, Default)]
pub struct DestinationChange {
    pub name: Option<String>,
    pub enabled: Option<bool>,
    pub settings: SettingsChange,
    pub config: Option<ConfigChange>,
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

/// Where and with which secrets it is reached from now on.
#[derive(Clone, Debug)]
pub struct ConfigChange {
    /// As it was sealed when the change was made of it.
    pub before: Vec<u8>,
    pub sealed: Vec<u8>,
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

impl DestinationChange {
    pub(super) fn applied_to(&self, known: &DestinationRow, now: Timestamp) -> DestinationRow {
        DestinationRow {
            name: self.name.clone().unwrap_or_else(|| known.name.clone()),
            enabled: self.enabled.unwrap_or(known.enabled),
            settings: self.settings.applied_to(&known.settings),
            sealed: self.config.as_ref().map_or(&known.sealed, |config| &config.sealed).clone(),
            // Whoever came first may have waited longer.
            updated: known.updated.max(now),
            ..known.clone()
        }
    }
}
