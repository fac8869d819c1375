//! The workspaces in which a person may act.

use tidegate_core::Tenant;

use super::DEFAULT_SLUG;
use super::row::{RawWorkspace, Workspace, select_workspaces};
use crate::members::Role;
use crate::{Result, Store};

impl Store {
    /// The default workspace first, then the others by name. `None` is somebody without a person behind them, who may do
    /// everything; an administrator may as well; a member acts in the default workspace and in those they were added to.
    pub async fn workspaces_open_to(&self, tenant: &Tenant, user: Option<&str>, most: u32) -> Result<Vec<Workspace>> {
        let page: Vec<RawWorkspace> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_workspaces!(),
                " WHERE organisation_id = $1 AND deleted_at IS NULL",
                " AND ($2 IS NULL OR EXISTS (SELECT 1 FROM users WHERE users.organisation_id = $1 AND users.id = $2",
                " AND users.removed_at IS NULL AND (users.role = $3 OR workspaces.slug = $4 OR EXISTS",
                " (SELECT 1 FROM workspace_members WHERE workspace_members.workspace_id = workspaces.id",
                " AND workspace_members.user_id = users.id))))",
                " ORDER BY CASE WHEN slug = $4 THEN 0 ELSE 1 END, name, id LIMIT $5"
            ))
            .bind(&*tenant.organisation.0)
            .bind(user)
            .bind(Role::Admin.as_str())
            .bind(DEFAULT_SLUG)
            .bind(i64::from(most))
            .fetch_all(pool)
            .await?)
        })?;
        page.into_iter().map(Workspace::try_from).collect()
    }
}
