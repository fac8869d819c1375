//! Which keys and members a guardrail is for.

use serde_json::json;
use tidegate_core::{Tenant, Timestamp};

use super::GUARDRAILS_CHANGED;
use crate::audit::{By, Change, append_audit};
use crate::workspaces::new_id;
use crate::{Refused, Result, Store, dialect};

/// What a guardrail can be assigned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Assigned {
    Key,
    Member,
}

impl Assigned {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Member => "member",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Key, Self::Member].into_iter().find(|kind| kind.as_str() == text)
    }

    /// The live key or member with this name: organisation, subject. What guards requests is not for keys that make none.
    fn live(self) -> &'static str {
        match self {
            Self::Key => {
                "SELECT COUNT(*) FROM api_keys \
                 WHERE organisation_id = $1 AND hash = $2 AND kind = 'inference' AND deleted_at IS NULL"
            }
            Self::Member => "SELECT COUNT(*) FROM users WHERE organisation_id = $1 AND id = $2 AND removed_at IS NULL",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// A UUID.
    pub id: String,
    pub guardrail: String,
    /// The hash of a key, or the id of a member.
    pub subject: String,
    /// Of a key.
    pub name: String,
    pub label: String,
    pub assigned_by: Option<String>,
    pub created: Timestamp,
}

/// Assignments whose key or member is there: organisation, kind, guardrail or none. What is gone keeps its row, which
/// nothing else looks at.
macro_rules! live_assignments {
    () => {
        " FROM guardrail_assignments a \
         LEFT JOIN api_keys k ON a.kind = 'key' AND k.hash = a.subject AND k.deleted_at IS NULL \
         LEFT JOIN users u ON a.kind = 'member' AND u.id = a.subject AND u.removed_at IS NULL \
         WHERE a.organisation_id = $1 AND a.kind = $2 AND a.guardrail_id = COALESCE($3, a.guardrail_id) \
         AND (k.hash IS NOT NULL OR u.id IS NOT NULL)"
    };
}

#[derive(sqlx::FromRow)]
struct RawAssignment {
    id: String,
    guardrail_id: String,
    subject: String,
    name: Option<String>,
    label: Option<String>,
    assigned_by: Option<String>,
    created_at: i64,
}

impl From<RawAssignment> for Assignment {
    fn from(raw: RawAssignment) -> Self {
        Self {
            id: raw.id,
            guardrail: raw.guardrail_id,
            subject: raw.subject,
            name: raw.name.unwrap_or_default(),
            label: raw.label.unwrap_or_default(),
            assigned_by: raw.assigned_by,
            created: Timestamp(raw.created_at),
        }
    }
}

impl Store {
    /// Assigns a guardrail; what these had before is replaced. Says how many have it now that did not have it before;
    /// `None` when the tenant has no such guardrail. A subject that is not there refuses them all.
    pub async fn assign_guardrail(
        &self,
        tenant: &Tenant,
        by: &By,
        guardrail: &str,
        kind: Assigned,
        subjects: &[String],
        assigned_by: Option<&str>,
    ) -> Result<Option<u64>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            if !is_there!(transaction, tenant, guardrail) {
                return Ok(None);
            }
            let mut count = 0;
            for subject in subjects {
                let live: i64 = sqlx::query_scalar(kind.live())
                    .bind(&*tenant.organisation.0)
                    .bind(subject)
                    .fetch_one(&mut *transaction)
                    .await?;
                if live == 0 {
                    return Err(match kind {
                        Assigned::Key => Refused::UnknownKey.into(),
                        Assigned::Member => Refused::UnknownUser.into(),
                    });
                }
                let assigned = sqlx::query(
                    "INSERT INTO guardrail_assignments (id, organisation_id, guardrail_id, kind, subject, assigned_by, \
                     created_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (organisation_id, kind, subject) \
                     DO UPDATE SET id = excluded.id, guardrail_id = excluded.guardrail_id, \
                     assigned_by = excluded.assigned_by, created_at = excluded.created_at \
                     WHERE guardrail_assignments.guardrail_id <> excluded.guardrail_id",
                )
                .bind(&*new_id(by.at).0)
                .bind(&*tenant.organisation.0)
                .bind(guardrail)
                .bind(kind.as_str())
                .bind(subject)
                .bind(assigned_by)
                .bind(by.at.0)
                .execute(&mut *transaction)
                .await?;
                count += assigned.rows_affected();
            }
            let change = Change::new("guardrail.assigned", guardrail).with(json!({kind.as_str(): subjects}));
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(count))
        })
    }

    /// The opposite; what these have of another guardrail stays.
    pub async fn unassign_guardrail(
        &self,
        tenant: &Tenant,
        by: &By,
        guardrail: &str,
        kind: Assigned,
        subjects: &[String],
    ) -> Result<Option<u64>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(GUARDRAILS_CHANGED).execute(&mut *transaction).await?;
            if !is_there!(transaction, tenant, guardrail) {
                return Ok(None);
            }
            let mut count = 0;
            for subject in subjects {
                let gone = sqlx::query(
                    "DELETE FROM guardrail_assignments \
                     WHERE organisation_id = $1 AND guardrail_id = $2 AND kind = $3 AND subject = $4",
                )
                .bind(&*tenant.organisation.0)
                .bind(guardrail)
                .bind(kind.as_str())
                .bind(subject)
                .execute(&mut *transaction)
                .await?;
                count += gone.rows_affected();
            }
            let old = Some(json!({kind.as_str(): subjects}));
            let change = Change { old, ..Change::new("guardrail.unassigned", guardrail) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(count))
        })
    }

    /// A page of assignments to keys and members that are still there, oldest first, and how many there are; those of one
    /// guardrail where one is named.
    pub async fn list_assignments(
        &self,
        tenant: &Tenant,
        guardrail: Option<&str>,
        kind: Assigned,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<Assignment>, u64)> {
        let (raw, total): (Vec<RawAssignment>, i64) = on_reader!(self, pool => {
            let raw = sqlx::query_as(concat!(
                "SELECT a.id, a.guardrail_id, a.subject, k.name, k.label, a.assigned_by, a.created_at",
                live_assignments!(),
                " ORDER BY a.created_at, a.id LIMIT $4 OFFSET $5"
            ))
            .bind(&*tenant.organisation.0)
            .bind(kind.as_str())
            .bind(guardrail)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(concat!("SELECT COUNT(*)", live_assignments!()))
            .bind(&*tenant.organisation.0)
            .bind(kind.as_str())
            .bind(guardrail)
            .fetch_one(pool)
            .await?;
            Ok((raw, total))
        })?;
        Ok((raw.into_iter().map(Assignment::from).collect(), u64::try_from(total).unwrap_or(0)))
    }
}

macro_rules! is_there {
    ($transaction:ident, $tenant:ident, $guardrail:ident) => {{
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM guardrails WHERE organisation_id = $1 AND id = $2")
            .bind(&*$tenant.organisation.0)
            .bind($guardrail)
            .fetch_one(&mut *$transaction)
            .await?;
        count > 0
    }};
}
use is_there;
