//! Workspaces: where the keys and settings of an organisation live.

mod change;
mod choices;
mod reach;
mod row;

use aws_lc_rs::digest;
use tidegate_core::id;
use tidegate_core::{Tenant, Timestamp, WorkspaceId};
use uuid::Uuid;

pub use change::{NewWorkspace, WorkspaceChange};
pub use choices::Choices;
pub use row::Workspace;

use crate::{Result, Store};
use row::{RawWorkspace, select_workspaces};

/// The slug of the workspace that every organisation has from its first moment. It is what the workspace is known by,
/// so it cannot change.
pub const DEFAULT_SLUG: &str = "default";

impl Store {
    /// The tenant's workspace for everything that names none; `None` only for a tenant that does not exist.
    pub async fn default_workspace(&self, tenant: &Tenant) -> Result<Option<Workspace>> {
        self.find_workspace_named(tenant, DEFAULT_SLUG).await
    }

    /// The tenant's live workspace with this id.
    pub async fn find_workspace(&self, tenant: &Tenant, id: &WorkspaceId) -> Result<Option<Workspace>> {
        let raw: Option<RawWorkspace> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&*id.0)
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(Workspace::try_from).transpose()
    }

    /// Whether the tenant has such a workspace, or had it.
    pub async fn had_workspace(&self, tenant: &Tenant, id: &WorkspaceId) -> Result<bool> {
        on_reader!(self, pool => {
            let found: i64 =
                sqlx::query_scalar("SELECT COUNT(*) FROM workspaces WHERE organisation_id = $1 AND id = $2")
                    .bind(&*tenant.organisation.0)
                    .bind(&*id.0)
                    .fetch_one(pool)
                    .await?;
            Ok(found > 0)
        })
    }

    /// The tenant's live workspace with this id or slug; no slug looks like an id.
    pub async fn find_workspace_named(&self, tenant: &Tenant, name: &str) -> Result<Option<Workspace>> {
        let raw: Option<RawWorkspace> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND (id = $2 OR slug = $2) AND deleted_at IS NULL"
            ))
            .bind(&*tenant.organisation.0)
            .bind(name)
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(Workspace::try_from).transpose()
    }

    /// A page of the tenant's live workspaces, oldest first, and how many there are.
    pub async fn list_workspaces(&self, tenant: &Tenant, offset: u32, limit: u32) -> Result<(Vec<Workspace>, u64)> {
        let (page, total): (Vec<RawWorkspace>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND deleted_at IS NULL ORDER BY created_at, id LIMIT $2 OFFSET $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM workspaces WHERE organisation_id = $1 AND deleted_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .fetch_one(pool)
            .await?;
            Ok((page, total))
        })?;
        let page = page.into_iter().map(Workspace::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }
}

/// A new id, of a workspace or anything else: a UUID of version 7.
pub(crate) fn new_id(now: Timestamp) -> WorkspaceId {
    let millis = u64::try_from(now.0).unwrap_or(0);
    let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &id::random()).into_uuid();
    WorkspaceId(uuid.to_string().into())
}

/// The id of something that a workspace has from its first moment and that has no row of its own: the UUID of version 5
/// with the workspace as its namespace.
pub(crate) fn derived_id(workspace: &WorkspaceId, name: &str) -> String {
    let namespace = Uuid::parse_str(&workspace.0).unwrap_or_default();
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(namespace.as_bytes());
    context.update(name.as_bytes());
    let mut hash = [0; 16];
    hash.copy_from_slice(&context.finish().as_ref()[..16]);
    uuid::Builder::from_sha1_bytes(hash).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_id_is_a_uuid_of_version_7_with_its_time() {
        let id = new_id(Timestamp(1_700_000_000_000));
        let uuid = Uuid::parse_str(&id.0).unwrap();
        assert_eq!(uuid.get_version_num(), 7);
        assert!(id.0.starts_with("018bcfe5-6800-7"), "{id}");
        assert_ne!(id, new_id(Timestamp(1_700_000_000_000)));
    }

    #[test]
    fn a_derived_id_is_a_uuid_of_version_5() {
        // The namespace of DNS names and a name in it, as Python's `uuid` documents them.
        let dns = WorkspaceId("6ba7b810-9dad-11d1-80b4-00c04fd430c8".into());
        assert_eq!(derived_id(&dns, "python.org"), "886313e1-3b8a-5372-9b90-0c9aee199e5d");
    }
}
