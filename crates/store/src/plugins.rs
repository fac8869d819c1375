//! What workspaces set for plugins of their requests. There are few such settings, so every node keeps all in memory and
//! loads them again when their number has changed.

use serde_json::json;
use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::{Result, Store, dialect};

/// Taken first in every transaction that changes a setting.
pub(crate) const PLUGINS_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'plugins'";

/// What is set for one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRow {
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub plugin: String,
    /// Nothing where it is left to the requests.
    pub enabled: Option<bool>,
    /// A JSON object.
    pub config: String,
    pub prevents_overrides: bool,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// What is to be set.
#[derive(Clone, Copy, Debug)]
pub struct NewPlugin<'a> {
    pub workspace: &'a WorkspaceId,
    pub plugin: &'a str,
    pub enabled: Option<bool>,
    pub config: &'a str,
    pub prevents_overrides: bool,
}

macro_rules! select_plugins {
    () => {
        "SELECT organisation_id, workspace_id, plugin_id, enabled, config, prevent_overrides, created_at, updated_at \
         FROM workspace_plugins"
    };
}

impl Store {
    /// A number that changes with every change of a setting.
    pub async fn plugins_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'plugins'").fetch_one(pool).await?)
        })
    }

    /// All settings of all tenants, and which change that is.
    pub async fn all_plugins(&self) -> Result<(i64, Vec<PluginRow>)> {
        // The number first: what changes between the two is loaded again.
        let seq = self.plugins_seq().await?;
        let raw: Vec<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_plugins!(), " ORDER BY workspace_id, plugin_id")).fetch_all(pool).await?)
        })?;
        Ok((seq, raw.into_iter().map(PluginRow::from).collect()))
    }

    /// What a workspace sets, by the plugin's id.
    pub async fn list_plugins(&self, tenant: &Tenant, workspace: &WorkspaceId) -> Result<Vec<PluginRow>> {
        let raw: Vec<Raw> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_plugins!(),
                " WHERE organisation_id = $1 AND workspace_id = $2 ORDER BY plugin_id"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .fetch_all(pool)
            .await?)
        })?;
        Ok(raw.into_iter().map(PluginRow::from).collect())
    }

    /// Sets a plugin, in place of what was set for it; `None` when the tenant has no such workspace.
    pub async fn put_plugin(&self, tenant: &Tenant, by: &By, new: NewPlugin<'_>) -> Result<Option<PluginRow>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(PLUGINS_CHANGED).execute(&mut *transaction).await?;
            let old = one_plugin!(transaction, tenant, new.workspace, new.plugin);
            let row = PluginRow {
                organisation: tenant.organisation.clone(),
                workspace: new.workspace.clone(),
                plugin: new.plugin.to_owned(),
                enabled: new.enabled,
                config: new.config.to_owned(),
                prevents_overrides: new.prevents_overrides,
                created: old.as_ref().map_or(by.at, |old| old.created),
                updated: by.at,
            };
            let written = sqlx::query(
                "INSERT INTO workspace_plugins (organisation_id, workspace_id, plugin_id, enabled, config, \
                 prevent_overrides, created_at, updated_at) SELECT organisation_id, id, $3, $4, $5, $6, $7, $7 \
                 FROM workspaces WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL \
                 ON CONFLICT (organisation_id, workspace_id, plugin_id) DO UPDATE SET enabled = excluded.enabled, \
                 config = excluded.config, prevent_overrides = excluded.prevent_overrides, \
                 updated_at = excluded.updated_at",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*new.workspace.0)
            .bind(new.plugin)
            .bind(new.enabled)
            .bind(new.config)
            .bind(new.prevents_overrides)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if written.rows_affected() == 0 {
                return Ok(None);
            }
            let change = Change {
                old: old.as_ref().map(told),
                new: Some(told(&row)),
                ..Change::new("plugin.set", &new.workspace.0)
            };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(row))
        })
    }

    /// Takes back what a workspace set for a plugin; false when that is nothing.
    pub async fn delete_plugin(&self, tenant: &Tenant, by: &By, workspace: &WorkspaceId, plugin: &str) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(PLUGINS_CHANGED).execute(&mut *transaction).await?;
            let Some(old) = one_plugin!(transaction, tenant, workspace, plugin) else { return Ok(false) };
            sqlx::query(
                "DELETE FROM workspace_plugins WHERE organisation_id = $1 AND workspace_id = $2 AND plugin_id = $3",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(plugin)
            .execute(&mut *transaction)
            .await?;
            let change = Change { old: Some(told(&old)), ..Change::new("plugin.deleted", &workspace.0) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })
    }
}

/// As the log has it.
fn told(row: &PluginRow) -> serde_json::Value {
    let config: serde_json::Value = serde_json::from_str(&row.config).unwrap_or_default();
    json!({
        "plugin_id": row.plugin,
        "enabled": row.enabled,
        "config": config,
        "prevent_overrides": row.prevents_overrides,
    })
}

/// What a workspace sets for a plugin, inside a transaction.
macro_rules! one_plugin {
    ($transaction:ident, $tenant:expr, $workspace:expr, $plugin:expr) => {{
        let raw: Option<Raw> = sqlx::query_as(concat!(
            select_plugins!(),
            " WHERE organisation_id = $1 AND workspace_id = $2 AND plugin_id = $3"
        ))
        .bind(&*$tenant.organisation.0)
        .bind(&*$workspace.0)
        .bind($plugin)
        .fetch_optional(&mut *$transaction)
        .await?;
        raw.map(PluginRow::from)
    }};
}
use one_plugin;

#[derive(sqlx::FromRow)]
struct Raw {
    organisation_id: String,
    workspace_id: String,
    plugin_id: String,
    enabled: Option<bool>,
    config: String,
    prevent_overrides: bool,
    created_at: i64,
    updated_at: i64,
}

impl From<Raw> for PluginRow {
    fn from(raw: Raw) -> Self {
        Self {
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            plugin: raw.plugin_id,
            enabled: raw.enabled,
            config: raw.config,
            prevents_overrides: raw.prevent_overrides,
            created: Timestamp(raw.created_at),
            updated: Timestamp(raw.updated_at),
        }
    }
}
