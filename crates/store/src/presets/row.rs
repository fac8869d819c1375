//! Presets and their versions as they are read from their rows.

use std::sync::Arc;

use tidegate_core::{OrganisationId, Timestamp, WorkspaceId};

use crate::error::Unreadable;
use crate::{Result, StoreError};

/// Whether a preset can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresetStatus {
    Active,
    Disabled,
    /// For good: it takes no new version either.
    Archived,
}

impl PresetStatus {
    const ALL: [Self; 3] = [Self::Active, Self::Disabled, Self::Archived];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Archived => "archived",
        }
    }
}

/// A preset without what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetRow {
    pub id: Arc<str>,
    pub organisation: OrganisationId,
    pub workspace: WorkspaceId,
    pub slug: Box<str>,
    pub name: String,
    pub description: Option<String>,
    pub status: PresetStatus,
    pub status_updated: Option<Timestamp>,
    /// The member who made it.
    pub creator: Option<String>,
    /// The id of the version that is used.
    pub designated: Arc<str>,
    /// The number of the last version.
    pub last_version: i64,
    pub change_seq: i64,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// What a preset held at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetVersion {
    pub id: String,
    pub preset: String,
    /// From 1.
    pub number: i64,
    /// A JSON object.
    pub config: String,
    /// The system prompt as it was written: a JSON text or array.
    pub system: Option<String>,
    /// The member who wrote it; the hash of the key where that belongs to nobody.
    pub creator: String,
    pub created: Timestamp,
}

/// The columns of [`RawPreset`], in its order.
macro_rules! select_presets {
    () => {
        "SELECT id, organisation_id, workspace_id, slug, name, description, status, status_updated_at, \
         creator_user_id, designated_version_id, last_version, change_seq, created_at, updated_at FROM presets"
    };
}
pub(super) use select_presets;

#[derive(sqlx::FromRow)]
pub(super) struct RawPreset {
    id: String,
    organisation_id: String,
    workspace_id: String,
    slug: String,
    name: String,
    description: Option<String>,
    status: String,
    status_updated_at: Option<i64>,
    creator_user_id: Option<String>,
    designated_version_id: String,
    last_version: i64,
    change_seq: i64,
    created_at: i64,
    updated_at: i64,
}

impl TryFrom<RawPreset> for PresetRow {
    type Error = StoreError;

    fn try_from(raw: RawPreset) -> Result<Self> {
        let status = PresetStatus::ALL.into_iter().find(|status| status.as_str() == raw.status);
        Ok(Self {
            id: raw.id.into(),
            organisation: OrganisationId(raw.organisation_id.into()),
            workspace: WorkspaceId(raw.workspace_id.into()),
            slug: raw.slug.into(),
            name: raw.name,
            description: raw.description,
            status: status.ok_or(Unreadable { table: "presets", column: "status" })?,
            status_updated: raw.status_updated_at.map(Timestamp),
            creator: raw.creator_user_id,
            designated: raw.designated_version_id.into(),
            last_version: raw.last_version,
            change_seq: raw.change_seq,
            created: Timestamp(raw.created_at),
            updated: Timestamp(raw.updated_at),
        })
    }
}

/// The columns of [`RawVersion`], in its order.
macro_rules! select_versions {
    () => {
        "SELECT id, preset_id, version, config, system, creator_id, created_at FROM preset_versions"
    };
}
pub(super) use select_versions;

#[derive(sqlx::FromRow)]
pub(super) struct RawVersion {
    id: String,
    preset_id: String,
    version: i64,
    config: String,
    system: Option<String>,
    creator_id: String,
    created_at: i64,
}

impl From<RawVersion> for PresetVersion {
    fn from(raw: RawVersion) -> Self {
        Self {
            id: raw.id,
            preset: raw.preset_id,
            number: raw.version,
            config: raw.config,
            system: raw.system,
            creator: raw.creator_id,
            created: Timestamp(raw.created_at),
        }
    }
}
