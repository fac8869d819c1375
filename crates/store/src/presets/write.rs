//! Presets come and change.

use serde_json::json;
use tidegate_core::{Tenant, WorkspaceId};

use super::row::{PresetRow, PresetStatus, PresetVersion, RawPreset, select_presets};
use super::{MOST_PRESETS, NEXT_CHANGE};
use crate::audit::{By, Change, append_audit};
use crate::workspaces::new_id;
use crate::{Refused, Result, Store, StoreError, dialect};

/// What a preset is to hold from now on.
#[derive(Clone, Copy, Debug)]
pub struct NewPresetVersion<'a> {
    pub workspace: &'a WorkspaceId,
    pub slug: &'a str,
    /// The number of the last version that the writer knows of: 0 where there is no preset yet.
    pub after: i64,
    /// A JSON object.
    pub config: &'a str,
    /// The system prompt as it was written: a JSON text or array.
    pub system: Option<&'a str>,
    /// The member who writes it.
    pub member: Option<&'a str>,
    /// The same; the hash of the key where that belongs to nobody.
    pub creator: &'a str,
}

impl Store {
    /// Makes a preset, or a further version of it, and has it used. `None` for a preset that is archived.
    ///
    /// [`StoreError::Conflict`] when somebody else wrote a version meanwhile, [`StoreError::Missing`] when the workspace
    /// is not a live one of the tenant.
    pub async fn write_preset(
        &self,
        tenant: &Tenant,
        by: &By,
        new: NewPresetVersion<'_>,
    ) -> Result<Option<(PresetRow, PresetVersion)>> {
        let version = PresetVersion {
            id: new_id(by.at).0.to_string(),
            preset: String::new(),
            number: new.after + 1,
            config: new.config.to_owned(),
            system: new.system.map(ToOwned::to_owned),
            creator: new.creator.to_owned(),
            created: by.at,
        };
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            // From here on nobody else writes a preset: what is read now is still so at the commit.
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let known = one_preset!(transaction, tenant, new.slug);
            if known.as_ref().is_some_and(|known| known.workspace != *new.workspace) {
                return Err(Refused::OfAnotherWorkspace.into());
            }
            if known.as_ref().is_some_and(|known| known.status == PresetStatus::Archived) {
                return Ok(None);
            }
            if known.as_ref().map_or(0, |known| known.last_version) != new.after {
                return Err(StoreError::Conflict);
            }
            let (action, mut preset) = match known {
                Some(known) => ("preset.updated", known),
                None => ("preset.created", made(tenant, by, &new)),
            };
            preset.designated = version.id.as_str().into();
            preset.last_version = version.number;
            preset.change_seq = change_seq;
            preset.updated = by.at;
            if version.number == 1 {
                let count: i64 = sqlx::query_scalar(
                    "SELECT COUNT(*) FROM presets WHERE organisation_id = $1 AND workspace_id = $2",
                )
                .bind(&*tenant.organisation.0)
                .bind(&*new.workspace.0)
                .fetch_one(&mut *transaction)
                .await?;
                if count >= MOST_PRESETS {
                    return Err(Refused::TooManyPresets.into());
                }
                let inserted = sqlx::query(
                    "INSERT INTO presets (id, organisation_id, workspace_id, slug, name, description, status, \
                     status_updated_at, creator_user_id, designated_version_id, last_version, change_seq, created_at, \
                     updated_at) SELECT $1, organisation_id, id, $4, $5, NULL, $6, NULL, $7, $8, $9, $10, $11, $11 \
                     FROM workspaces WHERE organisation_id = $2 AND id = $3 AND deleted_at IS NULL",
                )
                .bind(&*preset.id)
                .bind(&*preset.organisation.0)
                .bind(&*preset.workspace.0)
                .bind(&*preset.slug)
                .bind(&preset.name)
                .bind(preset.status.as_str())
                .bind(&preset.creator)
                .bind(&*preset.designated)
                .bind(preset.last_version)
                .bind(preset.change_seq)
                .bind(by.at.0)
                .execute(&mut *transaction)
                .await?;
                if inserted.rows_affected() == 0 {
                    return Err(StoreError::Missing);
                }
            } else {
                sqlx::query(
                    "UPDATE presets SET designated_version_id = $3, last_version = $4, change_seq = $5, updated_at = $6 \
                     WHERE organisation_id = $1 AND id = $2",
                )
                .bind(&*tenant.organisation.0)
                .bind(&*preset.id)
                .bind(&*preset.designated)
                .bind(preset.last_version)
                .bind(preset.change_seq)
                .bind(by.at.0)
                .execute(&mut *transaction)
                .await?;
            }
            let version = PresetVersion { preset: preset.id.to_string(), ..version };
            sqlx::query(
                "INSERT INTO preset_versions (id, organisation_id, preset_id, version, config, system, creator_id, \
                 created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .bind(&version.id)
            .bind(&*tenant.organisation.0)
            .bind(&version.preset)
            .bind(version.number)
            .bind(&version.config)
            .bind(&version.system)
            .bind(&version.creator)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            // What it holds is in the version, which stays; a system prompt has no place in the log.
            let values = json!({
                "slug": preset.slug,
                "workspace_id": &*preset.workspace.0,
                "version": version.number,
                "version_id": version.id,
            });
            append_audit!(transaction, tenant.organisation, by, Change::new(action, &preset.id).with(values));
            transaction.commit().await?;
            Ok(Some((preset, version)))
        })
    }

    /// Switches a preset off, on again, or off for good; `None` when the tenant has no such one. What is archived stays
    /// so.
    pub async fn set_preset_status(
        &self,
        tenant: &Tenant,
        by: &By,
        slug: &str,
        status: PresetStatus,
    ) -> Result<Option<PresetRow>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let change_seq: i64 = sqlx::query_scalar(NEXT_CHANGE).fetch_one(&mut *transaction).await?;
            let Some(old) = one_preset!(transaction, tenant, slug) else { return Ok(None) };
            if old.status == status || old.status == PresetStatus::Archived {
                return Ok(Some(old));
            }
            sqlx::query(
                "UPDATE presets SET status = $3, status_updated_at = $4, updated_at = $4, change_seq = $5 \
                 WHERE organisation_id = $1 AND id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*old.id)
            .bind(status.as_str())
            .bind(by.at.0)
            .bind(change_seq)
            .execute(&mut *transaction)
            .await?;
            let (before, after) = (json!({"status": old.status.as_str()}), json!({"status": status.as_str()}));
            let id = old.id.clone();
            let change = Change::new("preset.updated", &id).between(&before, &after);
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(PresetRow { status, status_updated: Some(by.at), updated: by.at, change_seq, ..old }))
        })
    }
}

fn made(tenant: &Tenant, by: &By, new: &NewPresetVersion<'_>) -> PresetRow {
    PresetRow {
        id: new_id(by.at).0,
        organisation: tenant.organisation.clone(),
        workspace: new.workspace.clone(),
        slug: new.slug.into(),
        // Nothing in the body of a message names it.
        name: new.slug.to_owned(),
        description: None,
        status: PresetStatus::Active,
        status_updated: None,
        creator: new.member.map(ToOwned::to_owned),
        designated: "".into(),
        last_version: 0,
        change_seq: 0,
        created: by.at,
        updated: by.at,
    }
}

/// The tenant's preset with a slug, inside a transaction.
macro_rules! one_preset {
    ($transaction:ident, $tenant:expr, $slug:expr) => {{
        let raw: Option<RawPreset> =
            sqlx::query_as(concat!(select_presets!(), " WHERE organisation_id = $1 AND slug = $2"))
                .bind(&*$tenant.organisation.0)
                .bind($slug)
                .fetch_optional(&mut *$transaction)
                .await?;
        raw.map(PresetRow::try_from).transpose()?
    }};
}
use one_preset;
