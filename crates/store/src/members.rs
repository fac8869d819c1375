//! The people of an organisation, and who of them belongs to which workspace. Everybody belongs to the default
//! workspace, without a row that says so.

mod identity;
mod workspace;

use serde_json::json;
use tidegate_core::{GenerationId, OrganisationId, Tenant, Timestamp};

pub use identity::Identity;
pub use workspace::{Added, Membership};

use crate::audit::{By, Change, append_audit};
use crate::auth_codes::MOST_FAILURES;
use crate::error::Unreadable;
use crate::keys::HOLD_KEYS;
use crate::{Refused, Result, Store, dialect};

/// Whether a person may hold keys in a workspace: organisation, workspace, person, slug of the default workspace.
/// Administrators act in all of them.
pub(crate) const IS_MEMBER: &str = "SELECT COUNT(*) FROM users \
     JOIN workspaces ON workspaces.organisation_id = users.organisation_id AND workspaces.deleted_at IS NULL \
     WHERE users.organisation_id = $1 AND workspaces.id = $2 AND users.id = $3 AND users.removed_at IS NULL \
     AND (workspaces.slug = $4 OR users.role = 'admin' OR EXISTS (SELECT 1 FROM workspace_members \
     WHERE workspace_members.workspace_id = workspaces.id AND workspace_members.user_id = users.id))";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Acts in all workspaces.
    Admin,
    Member,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Member => "member",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "admin" => Some(Self::Admin),
            "member" => Some(Self::Member),
            _ => None,
        }
    }
}

/// A person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// `user_` and a ULID.
    pub id: String,
    pub organisation: OrganisationId,
    /// In lower case.
    pub email: String,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
    pub role: Role,
    pub created: Timestamp,
}

/// A person to be added.
#[derive(Clone, Debug)]
pub struct NewMember {
    pub email: String,
    pub first_name: Option<String>,
    pub last_name: Option<String>,
    pub role: Role,
}

impl Member {
    fn new(tenant: &Tenant, at: Timestamp, new: NewMember) -> Self {
        Self {
            // A generation's id without its prefix is a ULID.
            id: format!("user_{}", &GenerationId::new(at).as_str()[4..]),
            organisation: tenant.organisation.clone(),
            email: new.email.to_lowercase(),
            first_name: new.first_name,
            last_name: new.last_name,
            role: new.role,
            created: at,
        }
    }
}

impl Store {
    /// Adds a person. An address that another one has is refused.
    pub async fn add_member(&self, tenant: &Tenant, by: &By, new: NewMember) -> Result<Member> {
        let member = Member::new(tenant, by.at, new);
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let taken: i64 = sqlx::query_scalar(
                "SELECT COUNT(*) FROM users WHERE organisation_id = $1 AND email = $2 AND removed_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(&member.email)
            .fetch_one(&mut *transaction)
            .await?;
            if taken > 0 {
                return Err(Refused::EmailTaken.into());
            }
            insert_member!(transaction, member, by);
            transaction.commit().await?;
            Ok(())
        })?;
        Ok(member)
    }

    /// A page of the tenant's people in the order they came, and how many there are.
    pub async fn list_members(&self, tenant: &Tenant, offset: u32, limit: u32) -> Result<(Vec<Member>, u64)> {
        let (page, total): (Vec<RawMember>, i64) = on_reader!(self, pool => {
            let page = sqlx::query_as(concat!(
                select_members!(),
                " WHERE organisation_id = $1 AND removed_at IS NULL ORDER BY created_at, id LIMIT $2 OFFSET $3"
            ))
            .bind(&*tenant.organisation.0)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total =
                sqlx::query_scalar("SELECT COUNT(*) FROM users WHERE organisation_id = $1 AND removed_at IS NULL")
                    .bind(&*tenant.organisation.0)
                    .fetch_one(pool)
                    .await?;
            Ok((page, total))
        })?;
        let page = page.into_iter().map(Member::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }

    /// The person with this id or address.
    pub async fn find_member(&self, tenant: &Tenant, id_or_email: &str) -> Result<Option<Member>> {
        let raw: Option<RawMember> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(
                select_members!(),
                " WHERE organisation_id = $1 AND (id = $2 OR email = $3) AND removed_at IS NULL"
            ))
            .bind(&*tenant.organisation.0)
            .bind(id_or_email)
            .bind(id_or_email.to_lowercase())
            .fetch_optional(pool)
            .await?)
        })?;
        raw.map(Member::try_from).transpose()
    }

    /// Makes somebody an administrator, or a member like others. False when the tenant has no such person.
    pub async fn set_member_role(&self, tenant: &Tenant, by: &By, id: &str, role: Role) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let before: Option<String> = sqlx::query_scalar(
                "SELECT role FROM users WHERE organisation_id = $1 AND id = $2 AND removed_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(before) = before else { return Ok(false) };
            sqlx::query("UPDATE users SET role = $3 WHERE organisation_id = $1 AND id = $2")
                .bind(&*tenant.organisation.0)
                .bind(id)
                .bind(role.as_str())
                .execute(&mut *transaction)
                .await?;
            let (old, new) = (json!({"role": before}), json!({"role": role.as_str()}));
            let change = Change::new("member.updated", id).between(&old, &new);
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })
    }

    /// Removes a person: their keys are disabled, their codes burned, their places in workspaces taken away. False when
    /// the tenant has no such person. The row stays, so that what they made still names its maker.
    pub async fn remove_member(&self, tenant: &Tenant, by: &By, id: &str) -> Result<bool> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let email: Option<String> = sqlx::query_scalar(
                "UPDATE users SET removed_at = $3 WHERE organisation_id = $1 AND id = $2 AND removed_at IS NULL \
                 RETURNING email",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(by.at.0)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(email) = email else { return Ok(false) };
            let keys: Vec<String> = sqlx::query_scalar(
                "SELECT hash FROM api_keys \
                 WHERE organisation_id = $1 AND creator_user_id = $2 AND deleted_at IS NULL AND NOT disabled \
                 ORDER BY hash",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .fetch_all(&mut *transaction)
            .await?;
            // A number of its own for each key, taken all at once.
            let last: i64 =
                sqlx::query_scalar("UPDATE sequences SET value = value + $1 WHERE name = 'api_keys' RETURNING value")
                    .bind(i64::try_from(keys.len()).unwrap_or(0))
                    .fetch_one(&mut *transaction)
                    .await?;
            sqlx::query(
                "UPDATE api_keys SET disabled = TRUE, updated_at = $3, change_seq = $4 - numbered.place \
                 FROM (SELECT hash AS numbered_hash, ROW_NUMBER() OVER (ORDER BY hash) - 1 AS place FROM api_keys \
                 WHERE organisation_id = $1 AND creator_user_id = $2 AND deleted_at IS NULL AND NOT disabled) \
                 AS numbered \
                 WHERE organisation_id = $1 AND hash = numbered.numbered_hash",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(by.at.0)
            .bind(last)
            .execute(&mut *transaction)
            .await?;
            sqlx::query("DELETE FROM workspace_members WHERE organisation_id = $1 AND user_id = $2")
                .bind(&*tenant.organisation.0)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
            sqlx::query(
                "UPDATE auth_codes SET failures = $3 \
                 WHERE organisation_id = $1 AND creator_user_id = $2 AND used_at IS NULL",
            )
            .bind(&*tenant.organisation.0)
            .bind(id)
            .bind(MOST_FAILURES)
            .execute(&mut *transaction)
            .await?;
            let change = Change {
                old: Some(json!({"email": email})),
                new: Some(json!({"disabled_keys": keys})),
                ..Change::new("member.removed", id)
            };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(true)
        })
    }
}

/// Writes a person down, in a transaction that holds the keys.
macro_rules! insert_member {
    ($transaction:ident, $member:expr, $by:expr) => {{
        let (member, by): (&$crate::members::Member, &$crate::audit::By) = (&$member, $by);
        sqlx::query(
            "INSERT INTO users (id, organisation_id, email, first_name, last_name, role, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(&member.id)
        .bind(&*member.organisation.0)
        .bind(&member.email)
        .bind(&member.first_name)
        .bind(&member.last_name)
        .bind(member.role.as_str())
        .bind(member.created.0)
        .execute(&mut *$transaction)
        .await?;
        let values = serde_json::json!({"email": member.email, "role": member.role.as_str()});
        let change = $crate::audit::Change::new("member.added", &member.id).with(values);
        append_audit!($transaction, member.organisation, by, change);
    }};
}
use insert_member;

macro_rules! select_members {
    () => {
        "SELECT id, organisation_id, email, first_name, last_name, role, created_at FROM users"
    };
}
use select_members;

#[derive(sqlx::FromRow)]
struct RawMember {
    id: String,
    organisation_id: String,
    email: String,
    first_name: Option<String>,
    last_name: Option<String>,
    role: String,
    created_at: i64,
}

impl TryFrom<RawMember> for Member {
    type Error = crate::StoreError;

    fn try_from(raw: RawMember) -> Result<Self> {
        Ok(Self {
            id: raw.id,
            organisation: OrganisationId(raw.organisation_id.into()),
            email: raw.email,
            first_name: raw.first_name,
            last_name: raw.last_name,
            role: Role::parse(&raw.role).ok_or(Unreadable { table: "users", column: "role" })?,
            created: Timestamp(raw.created_at),
        })
    }
}
