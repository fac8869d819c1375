//! Workspaces: where the keys and settings of an organisation live.

use std::sync::Arc;

use tidegate_core::id;
use tidegate_core::{OrganisationId, Tenant, Timestamp, WorkspaceId};

use crate::{Result, Store};

/// The slug of the workspace that every organisation has from its first moment.
pub const DEFAULT_SLUG: &str = "default";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub organisation: OrganisationId,
    pub name: String,
    pub slug: String,
    pub description: Option<String>,
    /// What the model alias `default` stands for here.
    pub default_text_model: Option<String>,
    pub created: Timestamp,
    pub updated: Option<Timestamp>,
}

impl Store {
    /// The tenant's workspace for everything that names none; `None` only for a tenant that does not exist.
    pub async fn default_workspace(&self, tenant: &Tenant) -> Result<Option<Workspace>> {
        let raw: Option<RawWorkspace> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND slug = $2 AND deleted_at IS NULL"
            ))
            .bind(&*tenant.organisation.0)
            .bind(DEFAULT_SLUG)
            .fetch_optional(pool)
            .await?)
        })?;
        Ok(raw.map(Workspace::from))
    }

    /// The tenant's live workspaces, oldest first.
    pub async fn list_workspaces(&self, tenant: &Tenant, offset: u32, limit: u32) -> Result<Vec<Workspace>> {
        let page: Vec<RawWorkspace> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND deleted_at IS NULL ORDER BY created_at, id LIMIT $2 OFFSET $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?)
        })?;
        Ok(page.into_iter().map(Workspace::from).collect())
    }
}

/// A new workspace id: a UUID of version 7.
pub(crate) fn new_id(now: Timestamp) -> WorkspaceId {
    let millis = u64::try_from(now.0).unwrap_or(0);
    let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &id::random()).into_uuid();
    WorkspaceId(uuid.to_string().into())
}

macro_rules! select_workspaces {
    () => {
        "SELECT id, organisation_id, name, slug, description, default_text_model, created_at, updated_at FROM workspaces"
    };
}
use select_workspaces;

#[derive(sqlx::FromRow)]
struct RawWorkspace {
    id: String,
    organisation_id: String,
    name: String,
    slug: String,
    description: Option<String>,
    default_text_model: Option<String>,
    created_at: i64,
    updated_at: Option<i64>,
}

impl From<RawWorkspace> for Workspace {
    fn from(raw: RawWorkspace) -> Self {
        Self {
            id: WorkspaceId(Arc::from(raw.id)),
            organisation: OrganisationId(Arc::from(raw.organisation_id)),
            name: raw.name,
            slug: raw.slug,
            description: raw.description,
            default_text_model: raw.default_text_model,
            created: Timestamp(raw.created_at),
            updated: raw.updated_at.map(Timestamp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_id_is_a_uuid_of_version_7_with_its_time() {
        let id = new_id(Timestamp(1_700_000_000_000));
        let uuid = uuid::Uuid::parse_str(&id.0).unwrap();
        assert_eq!(uuid.get_version_num(), 7);
        assert!(id.0.starts_with("018bcfe5-6800-7"), "{id}");
        assert_ne!(id, new_id(Timestamp(1_700_000_000_000)));
    }
}
