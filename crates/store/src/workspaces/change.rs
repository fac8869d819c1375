//! Workspaces come, change and go. Each change holds the lock that makers of keys take, so that none slips in between.

use serde_json::json;
use tidegate_core::{KeyKind, Tenant, WorkspaceId};

use super::choices::{CHOICES_CHANGED, Choices};
use super::row::{RawWorkspace, select_workspaces};
use super::{Workspace, new_id};
use crate::audit::{By, Change, append_audit};
use crate::auth_codes::MOST_FAILURES;
use crate::contents::CONTENTS_CHANGED;
use crate::credentials::{HOLD_CREDENTIALS, TAKE_CHANGES};
use crate::destinations::DESTINATIONS_CHANGED;
use crate::guardrails::GUARDRAILS_CHANGED;
use crate::keys::HOLD_KEYS;
use crate::ledger::LIMITS_CHANGED;
use crate::plugins::PLUGINS_CHANGED;
use crate::presets::HOLD_PRESETS;
use crate::{Refused, Result, Store, dialect};

/// Live workspaces of an account at most.
const MOST_WORKSPACES: i64 = 500;

/// What is to be different; `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceChange {
    pub name: Option<String>,
    pub slug: Option<String>,
    pub description: Option<Option<String>>,
    pub default_text_model: Option<Option<String>>,
    pub default_image_model: Option<Option<String>>,
    pub default_provider_sort: Option<Option<String>>,
    pub is_broadcast_enabled: Option<bool>,
    pub is_io_logging_enabled: Option<bool>,
    pub io_logging_sampling_rate: Option<f64>,
    pub io_logging_api_key_ids: Option<Option<Vec<i64>>>,
    pub is_data_discount_logging_enabled: Option<bool>,
}

/// A workspace to be made.
#[derive(Clone, Debug)]
pub struct NewWorkspace {
    pub name: String,
    pub slug: String,
    /// The member who makes it.
    pub created_by: Option<String>,
    /// Its settings, where they are not the usual ones.
    pub settings: WorkspaceChange,
}

impl Store {
    pub async fn create_workspace(&self, tenant: &Tenant, by: &By, new: NewWorkspace) -> Result<Workspace> {
        let workspace = new.settings.applied_to(Workspace {
            id: new_id(by.at),
            organisation: tenant.organisation.clone(),
            name: new.name,
            slug: new.slug,
            description: None,
            default_text_model: None,
            default_image_model: None,
            default_provider_sort: None,
            include_byok_in_budgets: false,
            is_broadcast_enabled: true,
            is_io_logging_enabled: false,
            io_logging_sampling_rate: 1.0,
            io_logging_api_key_ids: None,
            is_data_discount_logging_enabled: false,
            created_by: new.created_by,
            created: by.at,
            updated: None,
        });
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let live: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM workspaces WHERE organisation_id = $1 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .fetch_one(&mut *transaction)
            .await?;
            if live >= MOST_WORKSPACES {
                return Err(Refused::TooManyWorkspaces.into());
            }
            refuse_taken_slug!(transaction, workspace);
            sqlx::query(
                "INSERT INTO workspaces (id, organisation_id, name, slug, description, default_text_model, \
                 default_image_model, default_provider_sort, is_broadcast_enabled, is_io_logging_enabled, \
                 io_logging_sampling_rate, io_logging_api_key_ids, is_data_discount_logging_enabled, created_by, \
                 created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
            )
            .bind(&*workspace.id.0)
            .bind(&*workspace.organisation.0)
            .bind(&workspace.name)
            .bind(&workspace.slug)
            .bind(&workspace.description)
            .bind(&workspace.default_text_model)
            .bind(&workspace.default_image_model)
            .bind(&workspace.default_provider_sort)
            .bind(workspace.is_broadcast_enabled)
            .bind(workspace.is_io_logging_enabled)
            .bind(workspace.io_logging_sampling_rate)
            .bind(workspace.key_ids_json())
            .bind(workspace.is_data_discount_logging_enabled)
            .bind(&workspace.created_by)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            if workspace.is_io_logging_enabled {
                sqlx::query(CONTENTS_CHANGED).execute(&mut *transaction).await?;
            }
            if workspace.choices() != Choices::default() {
                sqlx::query(CHOICES_CHANGED).execute(&mut *transaction).await?;
            }
            let change = Change::new("workspace.created", &workspace.id.0).with(workspace.settings());
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(())
        })?;
        Ok(workspace)
    }

    /// Changes a live workspace; `None` when the tenant has no such one. A change that changes nothing leaves no trace.
    pub async fn update_workspace(
        &self,
        tenant: &Tenant,
        by: &By,
        id: &WorkspaceId,
        change: &WorkspaceChange,
    ) -> Result<Option<Workspace>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let Some(old) = live_workspace!(transaction, tenant, id) else { return Ok(None) };
            let new = Workspace { updated: Some(by.at), ..change.clone().applied_to(old.clone()) };
            let (before, after) = (old.settings(), new.settings());
            if before == after {
                return Ok(Some(old));
            }
            if old.is_default() && !new.is_default() {
                return Err(Refused::IsDefault.into());
            }
            refuse_taken_slug!(transaction, new);
            if old.is_broadcast_enabled != new.is_broadcast_enabled {
                sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            }
            if old.kept() != new.kept() {
                sqlx::query(CONTENTS_CHANGED).execute(&mut *transaction).await?;
            }
            if old.choices() != new.choices() {
                sqlx::query(CHOICES_CHANGED).execute(&mut *transaction).await?;
            }
            sqlx::query(
                "UPDATE workspaces SET name = $3, slug = $4, description = $5, default_text_model = $6, \
                 default_image_model = $7, default_provider_sort = $8, is_broadcast_enabled = $9, \
                 is_io_logging_enabled = $10, io_logging_sampling_rate = $11, io_logging_api_key_ids = $12, \
                 is_data_discount_logging_enabled = $13, updated_at = $14 WHERE organisation_id = $1 AND id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .bind(&new.name)
            .bind(&new.slug)
            .bind(&new.description)
            .bind(&new.default_text_model)
            .bind(&new.default_image_model)
            .bind(&new.default_provider_sort)
            .bind(new.is_broadcast_enabled)
            .bind(new.is_io_logging_enabled)
            .bind(new.io_logging_sampling_rate)
            .bind(new.key_ids_json())
            .bind(new.is_data_discount_logging_enabled)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            let change = Change::new("workspace.updated", &id.0).between(&before, &after);
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(new))
        })
    }

    /// Deletes a workspace with its budgets, memberships, credentials, presets, files and the codes that wait there; false when
    /// the tenant has no such one. The default workspace stays, and so does one with live keys.
    pub async fn delete_workspace(&self, tenant: &Tenant, by: &By, id: &WorkspaceId) -> Result<bool> {
        let deleted = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let Some(workspace) = live_workspace!(transaction, tenant, id) else { return Ok(false) };
            if workspace.is_default() {
                return Err(Refused::IsDefault.into());
            }
            let kinds: Vec<String> = sqlx::query_scalar(
                "SELECT DISTINCT kind FROM api_keys \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .fetch_all(&mut *transaction)
            .await?;
            if !kinds.is_empty() {
                // Lists of keys show inference keys alone: where there is none of them, nobody would find the others.
                let is_managed = kinds.iter().all(|kind| *kind == *KeyKind::Management.as_str());
                return Err(if is_managed { Refused::HasManagementKeys } else { Refused::HasKeys }.into());
            }
            // Whoever stores a credential takes a number first: none can appear behind the look at what is there.
            sqlx::query(HOLD_CREDENTIALS).execute(&mut *transaction).await?;
            let credentials: Vec<String> = sqlx::query_scalar(
                "SELECT id FROM credentials \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND deleted_at IS NULL ORDER BY id",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .fetch_all(&mut *transaction)
            .await?;
            let last: i64 = sqlx::query_scalar(TAKE_CHANGES)
                .bind(i64::try_from(credentials.len()).unwrap_or(0))
                .fetch_one(&mut *transaction)
                .await?;
            sqlx::query(
                "UPDATE credentials SET ciphertext = NULL, wrapped_key = NULL, master_key_id = NULL, \
                 revision = revision + 1, deleted_at = $3, change_seq = $4 - numbered.place \
                 FROM (SELECT id AS numbered_id, ROW_NUMBER() OVER (ORDER BY id) - 1 AS place FROM credentials \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND deleted_at IS NULL) AS numbered \
                 WHERE organisation_id = $1 AND id = numbered.numbered_id",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .bind(by.at.0)
            .bind(last)
            .execute(&mut *transaction)
            .await?;
            sqlx::query("UPDATE workspaces SET deleted_at = $3 WHERE organisation_id = $1 AND id = $2")
                .bind(&*tenant.organisation.0)
                .bind(&*id.0)
                .bind(by.at.0)
                .execute(&mut *transaction)
                .await?;
            // Nobody can name its presets any more; their slugs are free again.
            sqlx::query(HOLD_PRESETS).execute(&mut *transaction).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query(DESTINATIONS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query(PLUGINS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query(CONTENTS_CHANGED).execute(&mut *transaction).await?;
            sqlx::query(CHOICES_CHANGED).execute(&mut *transaction).await?;
            for emptied in [
                "DELETE FROM preset_versions WHERE organisation_id = $1 AND preset_id IN \
                 (SELECT id FROM presets WHERE organisation_id = $1 AND workspace_id = $2)",
                "DELETE FROM presets WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM file_contents WHERE file_id IN \
                 (SELECT id FROM files WHERE organisation_id = $1 AND workspace_id = $2)",
                "DELETE FROM files WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM tool_results WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM guardrail_assignments WHERE organisation_id = $1 AND guardrail_id IN \
                 (SELECT id FROM guardrails WHERE organisation_id = $1 AND workspace_id = $2)",
                "DELETE FROM guardrails WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM generation_contents WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM workspace_plugins WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM workspace_budgets WHERE organisation_id = $1 AND workspace_id = $2",
                "DELETE FROM workspace_members WHERE organisation_id = $1 AND workspace_id = $2",
            ] {
                sqlx::query(emptied)
                    .bind(&*tenant.organisation.0)
                    .bind(&*id.0)
                    .execute(&mut *transaction)
                    .await?;
            }
            // Still shown with the account's, so they must say that nothing is sent to them any more.
            sqlx::query(
                "UPDATE destinations SET enabled = FALSE, updated_at = $3 \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND enabled AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            sqlx::query(
                "UPDATE auth_codes SET failures = $3 \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND used_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .bind(MOST_FAILURES)
            .execute(&mut *transaction)
            .await?;
            sqlx::query(LIMITS_CHANGED).execute(&mut *transaction).await?;
            if !credentials.is_empty() {
                let old = json!({"credential_ids": credentials});
                let change = Change { old: Some(old), ..Change::new("byok.deleted", &id.0) };
                append_audit!(transaction, tenant.organisation, by, change);
            }
            let old = json!({"name": workspace.name, "slug": workspace.slug});
            let change = Change { old: Some(old), ..Change::new("workspace.deleted", &id.0) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })?;
        if deleted {
            self.forget_overwritten().await;
        }
        Ok(deleted)
    }
}

/// The tenant's live workspace with this id, inside a transaction.
macro_rules! live_workspace {
    ($transaction:ident, $tenant:expr, $id:expr) => {{
        let found: Option<RawWorkspace> = sqlx::query_as(concat!(
            select_workspaces!(),
            " WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL"
        ))
        .bind(&*$tenant.organisation.0)
        .bind(&*$id.0)
        .fetch_optional(&mut *$transaction)
        .await?;
        found.map(Workspace::try_from).transpose()?
    }};
}
use live_workspace;

/// Leaves the function when another live workspace has the slug.
macro_rules! refuse_taken_slug {
    ($transaction:ident, $workspace:expr) => {
        let taken: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM workspaces \
             WHERE organisation_id = $1 AND slug = $2 AND id <> $3 AND deleted_at IS NULL",
        )
        .bind(&*$workspace.organisation.0)
        .bind(&$workspace.slug)
        .bind(&*$workspace.id.0)
        .fetch_one(&mut *$transaction)
        .await?;
        if taken > 0 {
            return Err(Refused::SlugTaken.into());
        }
    };
}
use refuse_taken_slug;

impl WorkspaceChange {
    fn applied_to(self, old: Workspace) -> Workspace {
        Workspace {
            name: self.name.unwrap_or(old.name),
            slug: self.slug.unwrap_or(old.slug),
            description: self.description.unwrap_or(old.description),
            default_text_model: self.default_text_model.unwrap_or(old.default_text_model),
            default_image_model: self.default_image_model.unwrap_or(old.default_image_model),
            default_provider_sort: self.default_provider_sort.unwrap_or(old.default_provider_sort),
            is_broadcast_enabled: self.is_broadcast_enabled.unwrap_or(old.is_broadcast_enabled),
            is_io_logging_enabled: self.is_io_logging_enabled.unwrap_or(old.is_io_logging_enabled),
            io_logging_sampling_rate: self.io_logging_sampling_rate.unwrap_or(old.io_logging_sampling_rate),
            io_logging_api_key_ids: self.io_logging_api_key_ids.unwrap_or(old.io_logging_api_key_ids),
            is_data_discount_logging_enabled: self
                .is_data_discount_logging_enabled
                .unwrap_or(old.is_data_discount_logging_enabled),
            ..old
        }
    }
}
