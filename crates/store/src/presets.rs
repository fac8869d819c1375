//! Presets: settings of requests under a slug. What they hold is in versions, which never change; a preset names the one
//! that is used.
//!
//! As with keys, each write takes the next number of one sequence, so that every node can keep a small row of each preset
//! in memory and fetch only what changed.

mod row;
mod write;

pub use row::{PresetRow, PresetStatus, PresetVersion};
pub use write::NewPresetVersion;

use tidegate_core::{Tenant, WorkspaceId};

use crate::{Result, Store};
use row::{RawPreset, RawVersion, select_presets, select_versions};

/// Presets fetched at a time when all are loaded.
const LOAD_PAGE: i64 = 1_000;

/// Presets of a workspace at most.
const MOST_PRESETS: i64 = 200;

/// Taken first in every transaction that writes a preset.
pub(crate) const NEXT_CHANGE: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'presets' RETURNING value";

/// The same lock without a number, for those who take presets away. It comes behind those of keys and credentials.
pub(crate) const HOLD_PRESETS: &str = "UPDATE sequences SET value = value WHERE name = 'presets'";

impl Store {
    /// Presets changed since `seq`, oldest change first; from 0, all of them. Ask again from the last one's `change_seq`
    /// until nothing comes.
    pub async fn presets_changed_after(&self, seq: i64) -> Result<Vec<PresetRow>> {
        let page: Vec<RawPreset> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_presets!(), " WHERE change_seq > $1 ORDER BY change_seq LIMIT $2"))
                .bind(seq)
                .bind(LOAD_PAGE)
                .fetch_all(pool)
                .await?)
        })?;
        page.into_iter().map(PresetRow::try_from).collect()
    }

    /// The tenant's preset with this slug, whichever workspace it belongs to.
    pub async fn find_preset(&self, tenant: &Tenant, slug: &str) -> Result<Option<PresetRow>> {
        let raw: Option<RawPreset> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_presets!(), " WHERE organisation_id = $1 AND slug = $2"))
                .bind(&*tenant.organisation.0)
                .bind(slug)
                .fetch_optional(pool)
                .await?)
        })?;
        raw.map(PresetRow::try_from).transpose()
    }

    /// A page of a workspace's presets, last updated first, and how many there are.
    pub async fn list_presets(
        &self,
        tenant: &Tenant,
        workspace: &WorkspaceId,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<PresetRow>, u64)> {
        let (page, total): (Vec<RawPreset>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_presets!(),
                // Changes of the same millisecond are told apart by their numbers.
                " WHERE organisation_id = $1 AND workspace_id = $2",
                " ORDER BY updated_at DESC, change_seq DESC LIMIT $3 OFFSET $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM presets WHERE organisation_id = $1 AND workspace_id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .fetch_one(pool)
            .await?;
            Ok((page, total))
        })?;
        let page = page.into_iter().map(PresetRow::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }

    /// A version by its id.
    pub async fn find_preset_version(&self, tenant: &Tenant, id: &str) -> Result<Option<PresetVersion>> {
        let raw: Option<RawVersion> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_versions!(), " WHERE organisation_id = $1 AND id = $2"))
                .bind(&*tenant.organisation.0)
                .bind(id)
                .fetch_optional(pool)
                .await?)
        })?;
        Ok(raw.map(PresetVersion::from))
    }

    /// The version of a preset with this number.
    pub async fn find_numbered_preset_version(
        &self,
        tenant: &Tenant,
        preset: &str,
        number: i64,
    ) -> Result<Option<PresetVersion>> {
        let raw: Option<RawVersion> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_versions!(),
                " WHERE organisation_id = $1 AND preset_id = $2 AND version = $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(preset)
            .bind(number)
            .fetch_optional(pool)
            .await?)
        })?;
        Ok(raw.map(PresetVersion::from))
    }

    /// A page of a preset's versions, oldest first, and how many there are.
    pub async fn list_preset_versions(
        &self,
        tenant: &Tenant,
        preset: &str,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<PresetVersion>, u64)> {
        let (page, total): (Vec<RawVersion>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_versions!(),
                " WHERE organisation_id = $1 AND preset_id = $2 ORDER BY version LIMIT $3 OFFSET $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(preset)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM preset_versions WHERE organisation_id = $1 AND preset_id = $2",
            )
            .bind(&*tenant.organisation.0)
            .bind(preset)
            .fetch_one(pool)
            .await?;
            Ok((page, total))
        })?;
        Ok((page.into_iter().map(PresetVersion::from).collect(), u64::try_from(total).unwrap_or(0)))
    }
}
