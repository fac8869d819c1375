//! Who is told of requests of a workspace, by wish of its people. There are few of them, so every node keeps all in memory
//! and loads them again when their number has changed. Those of the configuration file are not here.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::credentials::{Failed, HOLD_CREDENTIALS, Rewrapped, Verified};
use crate::error::Unreadable;
use crate::vault::{Vault, VaultError};
use crate::workspaces::new_id;
use crate::{Refused, Result, Store, StoreError, dialect};

/// Of one type in a workspace.
const MOST_OF_A_KIND: i64 = 5;

/// Taken first in every transaction that changes a destination.
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

macro_rules! select_destinations {
    () => {
        "SELECT id, organisation_id, workspace_id, kind, name, enabled, settings, sealed, created_at, updated_at \
         FROM destinations WHERE deleted_at IS NULL"
    };
}

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

    /// Makes a destination. [`StoreError::Conflict`] when the workspace has one with this name.
    pub async fn create_destination(&self, tenant: &Tenant, by: &By, new: NewDestination) -> Result<DestinationRow> {
        let settings = serde_json::to_string(&new.settings).expect("settings are always JSON");
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let count: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM destinations \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND kind = $3 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*new.workspace.0)
            .bind(&new.kind)
            .fetch_one(&mut *transaction)
            .await?;
            if count >= MOST_OF_A_KIND {
                return Err(Refused::TooManyDestinations.into());
            }
            let inserted = sqlx::query(
                "INSERT INTO destinations (id, organisation_id, workspace_id, kind, name, enabled, settings, sealed, \
                 created_at, updated_at) SELECT $1, organisation_id, id, $4, $5, $6, $7, $8, $9, $9 \
                 FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
            )
            .bind(&new.id)
            .bind(&*tenant.organisation.0)
            .bind(&*new.workspace.0)
            .bind(&new.kind)
            .bind(&new.name)
            .bind(new.enabled)
            .bind(&settings)
            .bind(&new.sealed)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if inserted.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            let values = json!({"type": new.kind, "name": new.name, "workspace_id": &*new.workspace.0, "enabled": new.enabled});
            append_audit!(transaction, tenant.organisation, by, Change::new("destination.created", &new.id).with(values));
            transaction.commit().await?;
            Ok(DestinationRow {
                id: new.id,
                organisation: tenant.organisation.clone(),
                workspace: new.workspace,
                kind: new.kind,
                name: new.name,
                enabled: new.enabled,
                settings: new.settings,
                sealed: new.sealed,
                created: by.at,
                updated: by.at,
            })
        })
    }

    /// Seals all destinations of everyone under the active master key. How many were not, and those that no key opens.
    pub async fn reseal_destinations(&self, vault: &Vault, label: &str) -> Result<Rewrapped> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            vault.refresh_if_changed().await.map_err(VaultError::from)?;
            let rows: Vec<(String, Vec<u8>)> =
                sqlx::query_as("SELECT id, sealed FROM destinations WHERE sealed IS NOT NULL ORDER BY id")
                    .fetch_all(&mut *transaction)
                    .await?;
            let mut done = Rewrapped::default();
            for (id, sealed) in rows {
                match vault.reseal_blob(label, id.as_bytes(), &sealed) {
                    Ok(None) => {}
                    Ok(Some(sealed)) => {
                        sqlx::query("UPDATE destinations SET sealed = $2 WHERE id = $1 AND sealed IS NOT NULL")
                            .bind(&id)
                            .bind(sealed)
                            .execute(&mut *transaction)
                            .await?;
                        done.count += 1;
                    }
                    Err(error) => done.failed.push(Failed { id, error }),
                }
            }
            if done.count > 0 {
                // Servers load them again, and the ring with them.
                sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(done)
        })
    }

    /// Opens what every destination of everyone holds.
    pub async fn verify_destinations(&self, vault: &Vault, label: &str) -> Result<Verified> {
        let rows: Vec<(String, Vec<u8>)> = on_reader!(self, pool => {
            Ok(sqlx::query_as("SELECT id, sealed FROM destinations WHERE sealed IS NOT NULL ORDER BY id")
                .fetch_all(pool)
                .await?)
        })?;
        let mut verified = Verified { count: rows.len() as u64, ..Verified::default() };
        let broken = rows.into_iter().filter(|(id, sealed)| vault.open_blob(label, id.as_bytes(), sealed).is_none());
        verified.failed = broken.map(|(id, _)| Failed { id, error: VaultError::Broken }).collect();
        Ok(verified)
    }

    /// Writes a destination as it is from now on; false when it is gone. What it holds is written where it `is_sealed_anew`
    /// alone: somebody may have sealed it under another key since the row was read.
    pub async fn write_destination(
        &self,
        tenant: &Tenant,
        by: &By,
        row: &DestinationRow,
        is_sealed_anew: bool,
    ) -> Result<bool> {
        let settings = serde_json::to_string(&row.settings).expect("settings are always JSON");
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let written = sqlx::query(
                "UPDATE destinations SET name = $3, enabled = $4, settings = $5, sealed = COALESCE($6, sealed), updated_at = $7 \
                 WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&row.id)
            .bind(&row.name)
            .bind(row.enabled)
            .bind(&settings)
            .bind(is_sealed_anew.then_some(&row.sealed))
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if written.rows_affected() == 0 {
                return Ok(false);
            }
            let values = json!({"name": row.name, "enabled": row.enabled});
            append_audit!(transaction, tenant.organisation, by, Change::new("destination.updated", &row.id).with(values));
            transaction.commit().await?;
            Ok(true)
        })
    }

    /// Takes a destination away; its secrets are gone with that. False when there is none.
    pub async fn delete_destination(&self, tenant: &Tenant, by: &By, id: &str) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            let gone = sqlx::query(
                "UPDATE destinations SET deleted_at = $3, sealed = NULL \
                 WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if gone.rows_affected() == 0 {
                return Ok(false);
            }
            append_audit!(transaction, tenant.organisation, by, Change::new("destination.deleted", id));
            transaction.commit().await?;
            Ok(true)
        })
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
