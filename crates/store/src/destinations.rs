//! Who is told of requests of a workspace, by wish of its people. There are few of them, so every node keeps all in memory
//! and loads them again when their number has changed. Those of the configuration file are not here.

mod change;
mod seals;
mod write;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::error::Unreadable;
use crate::{Result, Store, StoreError};

pub use change::{
    Changed, ConfigChange, DestinationChange, NewConfig, NewDestination, SettingsChange, new_destination_id,
};

/// Taken first in every transaction that changes a destination; where something is sealed, behind the credentials' lock.
pub(crate) const DESTINATIONS_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'destinations'";

#[derive(Clone, Debug, PartialEq)]
pub struct DestinationRow {
    /// A UUID.
    pub id: String,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub kind: String,
    pub name: String,
    pub enabled: bool,
    pub settings: DestinationSettings,
    /// Where and with which secrets it is reached; only the vault reads it.
    pub sealed: Vec<u8>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// What may be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DestinationSettings {
    pub api_key_hashes: Option<Vec<String>>,
    pub filter_rules: Option<serde_json::Value>,
    pub sampling_rate: f64,
    pub privacy_mode: bool,
    pub broadcast_generation_cost: bool,
    pub broadcast_generation_identity: bool,
    pub broadcast_generation_request_context: bool,
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self {
            api_key_hashes: None,
            filter_rules: None,
            sampling_rate: 1.0,
            privacy_mode: false,
            broadcast_generation_cost: false,
            broadcast_generation_identity: false,
            broadcast_generation_request_context: false,
        }
    }
}

impl DestinationRow {
    /// What the log says of it.
    fn logged(&self, config: Value) -> Value {
        let mut values = json!(self.settings);
        values["name"] = json!(self.name);
        values["enabled"] = json!(self.enabled);
        values["config"] = config;
        values
    }
}

impl DestinationSettings {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("settings are always JSON")
    }
}

macro_rules! select_destinations {
    () => {
        "SELECT id, organisation_id, workspace_id, kind, name, enabled, settings, sealed, created_at, updated_at \
         FROM destinations WHERE deleted_at IS NULL"
    };
}
use select_destinations;

impl Store {
    /// A number that changes with every change of a destination.
    pub async fn destinations_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'destinations'").fetch_one(pool).await?)
        })
    }

    /// All that are told of something, for all tenants, and which change that is.
    pub async fn all_destinations(&self) -> Result<(i64, Vec<DestinationRow>)> {
        let seq = self.destinations_seq().await?;
        let raw: Vec<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_destinations!(),
                " AND enabled AND EXISTS (SELECT 1 FROM workspaces WHERE workspaces.id = destinations.workspace_id \
                 AND workspaces.deleted_at IS NULL AND workspaces.is_broadcast_enabled) ORDER BY created_at, id"
            ))
            .fetch_all(pool)
            .await?)
        })?;
        Ok((seq, raw.into_iter().map(DestinationRow::try_from).collect::<Result<_>>()?))
    }

    /// Those that were taken away since an instant, of all tenants: their ids and kinds.
    pub async fn destinations_gone_since(&self, since: Timestamp) -> Result<Vec<(String, String)>> {
        on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT id, kind FROM destinations WHERE deleted_at >= $1 ORDER BY id")
                .bind(since.0)
                .fetch_all(pool)
                .await?)
        })
    }

    pub async fn find_destination(&self, tenant: &Tenant, id: &str) -> Result<Option<DestinationRow>> {
        let raw: Option<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_destinations!(), " AND organisation_id = $1 AND id = $2"))
                .bind(&*tenant.organisation.0)
                .bind(id)
                .fetch_optional(pool)
                .await?)
        })?;
        raw.map(DestinationRow::try_from).transpose()
    }

    /// A page of the tenant's destinations, oldest first, and how many there are; those of one workspace where one is named.
    pub async fn list_destinations(
        &self,
        tenant: &Tenant,
        workspace: Option<&WorkspaceId>,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<DestinationRow>, u64)> {
        let workspace = workspace.map(|workspace| &*workspace.0);
        let (raw, total): (Vec<Raw>, i64) = on_reader!(self, pool => {
            let raw = sqlx::query_as(concat!(
                select_destinations!(),
                " AND organisation_id = $1 AND workspace_id = COALESCE($2, workspace_id)",
                " ORDER BY created_at, id LIMIT $3 OFFSET $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM destinations WHERE deleted_at IS NULL AND organisation_id = $1 \
                 AND workspace_id = COALESCE($2, workspace_id)",
            )
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .fetch_one(pool)
            .await?;
            Ok((raw, total))
        })?;
        let page = raw.into_iter().map(DestinationRow::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }
}

#[derive(sqlx::FromRow)]
struct Raw {
    id: String,
    organisation_id: String,
    workspace_id: String,
    kind: String,
    name: String,
    enabled: bool,
    settings: String,
    sealed: Option<Vec<u8>>,
    created_at: i64,
    updated_at: i64,
}

impl TryFrom<Raw> for DestinationRow {
    type Error = StoreError;

    fn try_from(raw: Raw) -> Result<Self> {
        let settings = serde_json::from_str(&raw.settings);
        Ok(Self {
            id: raw.id,
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            kind: raw.kind,
            name: raw.name,
            enabled: raw.enabled,
            settings: settings.map_err(|_| Unreadable { table: "destinations", column: "settings" })?,
            sealed: raw.sealed.unwrap_or_default(),
            created: Timestamp(raw.created_at),
            updated: Timestamp(raw.updated_at),
        })
    }
}
