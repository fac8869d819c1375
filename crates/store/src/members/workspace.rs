//! Who belongs to a workspace.

use serde_json::json;
use tidegate_core::{Tenant, Timestamp, WorkspaceId};

use super::Role;
use crate::audit::{By, Change, append_audit};
use crate::auth_codes::MOST_FAILURES;
use crate::error::Unreadable;
use crate::keys::HOLD_KEYS;
use crate::workspaces::{DEFAULT_SLUG, derived_id, new_id};
use crate::{Refused, Result, Store, dialect};

/// A person's place in a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// A UUID.
    pub id: String,
    pub workspace: WorkspaceId,
    pub user: String,
    pub role: Role,
    pub created: Timestamp,
}

/// Places that people now have, and how many of them are new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    pub count: usize,
    pub members: Vec<Membership>,
}

impl Store {
    /// A page of a workspace's members in the order they came, and how many there are; `None` when the tenant has no
    /// such workspace.
    pub async fn list_workspace_members(
        &self,
        tenant: &Tenant,
        workspace: &WorkspaceId,
        offset: u32,
        limit: u32,
    ) -> Result<Option<(Vec<Membership>, u64)>> {
        let found: Option<(Vec<RawMembership>, i64)> = on_reader!(self, pool => {
            let slug: Option<String> = sqlx::query_scalar(SLUG)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(pool)
                .await?;
            let Some(slug) = slug else { return Ok(None) };
            let page = sqlx::query_as(concat!(
                select_places!(),
                " ORDER BY created_at, users.id LIMIT $5 OFFSET $6"
            ))
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(None::<&str>)
            .bind(slug == DEFAULT_SLUG)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(concat!("SELECT COUNT(*)", from_places!()))
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .bind(None::<&str>)
                .bind(slug == DEFAULT_SLUG)
                .fetch_one(pool)
                .await?;
            Ok(Some((page, total)))
        })?;
        let Some((page, total)) = found else { return Ok(None) };
        let page = page.into_iter().map(|raw| raw.into_membership(workspace)).collect::<Result<_>>()?;
        Ok(Some((page, u64::try_from(total).unwrap_or(0))))
    }

    /// Gives people places in a workspace, all or none; who has one keeps it. `None` when the tenant has no such
    /// workspace. The default workspace has everybody already.
    pub async fn add_workspace_members(
        &self,
        tenant: &Tenant,
        by: &By,
        workspace: &WorkspaceId,
        users: &[String],
    ) -> Result<Option<Added>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let slug: Option<String> = sqlx::query_scalar(SLUG)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(slug) = slug else { return Ok(None) };
            let is_default = slug == DEFAULT_SLUG;
            let (mut added, mut members) = (Vec::new(), Vec::with_capacity(users.len()));
            for user in users {
                if !is_default {
                    // The role is the one the person has in the organisation at this moment.
                    let inserted = sqlx::query(
                        "INSERT INTO workspace_members (id, organisation_id, workspace_id, user_id, role, created_at) \
                         SELECT $4, organisation_id, $2, id, role, $5 FROM users \
                         WHERE organisation_id = $1 AND id = $3 AND removed_at IS NULL \
                         ON CONFLICT (workspace_id, user_id) DO NOTHING",
                    )
                    .bind(&*tenant.organisation.0)
                    .bind(&*workspace.0)
                    .bind(user)
                    .bind(&*new_id(by.at).0)
                    .bind(by.at.0)
                    .execute(&mut *transaction)
                    .await?;
                    if inserted.rows_affected() == 1 {
                        added.push(user.as_str());
                    }
                }
                let place: Option<RawMembership> = sqlx::query_as(select_places!())
                    .bind(&*tenant.organisation.0)
                    .bind(&*workspace.0)
                    .bind(Some(user))
                    .bind(is_default)
                    .fetch_optional(&mut *transaction)
                    .await?;
                members.push(place.ok_or(Refused::UnknownUser)?.into_membership(workspace)?);
            }
            if !added.is_empty() {
                let change = Change::new("member.added", &workspace.0).with(json!({"user_ids": added}));
                append_audit!(transaction, tenant.organisation, by, change);
            }
            transaction.commit().await?;
            Ok(Some(Added { count: added.len(), members }))
        })
    }

    /// Takes people's places in a workspace away, all or none, with the codes of theirs that wait there, and says how
    /// many had one. `None` when the tenant has no such workspace. Nobody leaves the default workspace, nor one where they hold live keys.
    pub async fn remove_workspace_members(
        &self,
        tenant: &Tenant,
        by: &By,
        workspace: &WorkspaceId,
        users: &[String],
    ) -> Result<Option<usize>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let slug: Option<String> = sqlx::query_scalar(SLUG)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(slug) = slug else { return Ok(None) };
            if slug == DEFAULT_SLUG {
                return Err(Refused::IsDefault.into());
            }
            let mut removed = Vec::new();
            for user in users {
                let keys: i64 = sqlx::query_scalar(
                    "SELECT COUNT(*) FROM api_keys WHERE organisation_id = $1 AND workspace_id = $2 \
                     AND creator_user_id = $3 AND deleted_at IS NULL",
                )
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .bind(user)
                .fetch_one(&mut *transaction)
                .await?;
                if keys > 0 {
                    return Err(Refused::HoldsKeys.into());
                }
                let gone = sqlx::query(
                    "DELETE FROM workspace_members WHERE organisation_id = $1 AND workspace_id = $2 AND user_id = $3",
                )
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .bind(user)
                .execute(&mut *transaction)
                .await?;
                if gone.rows_affected() == 1 {
                    removed.push(user.as_str());
                    sqlx::query(
                        "UPDATE auth_codes SET failures = $4 WHERE organisation_id = $1 AND workspace_id = $2 \
                         AND creator_user_id = $3 AND used_at IS NULL",
                    )
                    .bind(&*tenant.organisation.0)
                    .bind(&*workspace.0)
                    .bind(user)
                    .bind(MOST_FAILURES)
                    .execute(&mut *transaction)
                    .await?;
                }
            }
            if !removed.is_empty() {
                let change = Change {
                    old: Some(json!({"user_ids": removed})),
                    ..Change::new("member.removed", &workspace.0)
                };
                append_audit!(transaction, tenant.organisation, by, change);
            }
            transaction.commit().await?;
            Ok(Some(removed.len()))
        })
    }
}

const SLUG: &str = "SELECT slug FROM workspaces WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL";

/// Those who belong to a workspace: organisation, workspace, one person or NULL, whether it is the default one.
macro_rules! from_places {
    () => {
        " FROM users LEFT JOIN workspace_members \
         ON workspace_members.workspace_id = $2 AND workspace_members.user_id = users.id \
         WHERE users.organisation_id = $1 AND users.removed_at IS NULL AND ($3 IS NULL OR users.id = $3) \
         AND ($4 OR workspace_members.id IS NOT NULL)"
    };
}
use from_places;

macro_rules! select_places {
    () => {
        concat!(
            "SELECT workspace_members.id AS place_id, users.id AS user_id, \
             COALESCE(workspace_members.role, users.role) AS role, \
             COALESCE(workspace_members.created_at, users.created_at) AS created_at",
            from_places!()
        )
    };
}
use select_places;

#[derive(sqlx::FromRow)]
struct RawMembership {
    place_id: Option<String>,
    user_id: String,
    role: String,
    created_at: i64,
}

impl RawMembership {
    fn into_membership(self, workspace: &WorkspaceId) -> Result<Membership> {
        Ok(Membership {
            // A place without a row has an id all the same, the same one every time.
            id: self.place_id.unwrap_or_else(|| derived_id(workspace, &self.user_id)),
            workspace: workspace.clone(),
            role: Role::parse(&self.role).ok_or(Unreadable { table: "workspace_members", column: "role" })?,
            user: self.user_id,
            created: Timestamp(self.created_at),
        })
    }
}
