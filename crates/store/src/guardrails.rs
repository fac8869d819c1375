//! Guardrails: what keys, members and workspaces are held to. There are few of them, so every node keeps all in memory
//! and loads them again when their number has changed.

mod assign;
mod change;
mod row;
mod write;

pub use assign::{Assigned, Assignment};
pub use change::{GuardrailChange, RulesChange};
pub use row::{Action, Builtin, BuiltinFilter, Guardrail, GuardrailRules, PatternFilter, ScanScope};
pub use write::NewGuardrail;

use tidegate_core::{Tenant, WorkspaceId};

use crate::{Result, Store};
use row::{RawGuardrail, select_guardrails};

/// Guardrails of a workspace at most.
const MOST_GUARDRAILS: i64 = 200;

/// Taken first in every transaction that changes a guardrail or what it is assigned to; nodes look at the number to learn
/// whether their copy is old.
pub(crate) const GUARDRAILS_CHANGED: &str = "UPDATE sequences SET value = value + 1 WHERE name = 'guardrails'";

/// All guardrails and what they are assigned to.
#[derive(Clone, Debug, Default)]
pub struct Everything {
    /// Which change of the store this is.
    pub seq: i64,
    pub guardrails: Vec<Guardrail>,
    /// Guardrail, kind and subject.
    pub assigned: Vec<(String, Assigned, String)>,
}

impl Store {
    /// A number that changes with every change of a guardrail.
    pub async fn guardrails_seq(&self) -> Result<i64> {
        on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM sequences WHERE name = 'guardrails'").fetch_one(pool).await?)
        })
    }

    /// Everything there is, for all tenants. The number is read first: a change in between is then seen once more.
    pub async fn all_guardrails(&self) -> Result<Everything> {
        let seq = self.guardrails_seq().await?;
        let (raw, assigned): (Vec<RawGuardrail>, Vec<(String, String, String)>) = on_reader!(self, pool => {
            let raw = sqlx::query_as(concat!(select_guardrails!(), " ORDER BY created_at, id")).fetch_all(pool).await?;
            let assigned = sqlx::query_as("SELECT guardrail_id, kind, subject FROM guardrail_assignments")
                .fetch_all(pool)
                .await?;
            Ok((raw, assigned))
        })?;
        let guardrails = raw.into_iter().map(Guardrail::try_from).collect::<Result<_>>()?;
        let assigned =
            assigned.into_iter().filter_map(|(id, kind, subject)| Some((id, Assigned::parse(&kind)?, subject)));
        Ok(Everything { seq, guardrails, assigned: assigned.collect() })
    }

    pub async fn find_guardrail(&self, tenant: &Tenant, id: &str) -> Result<Option<Guardrail>> {
        let raw: Option<RawGuardrail> = on_reader!(self, pool => {
            Ok(sqlx::query_as(concat!(select_guardrails!(), " WHERE organisation_id = $1 AND id = $2"))
                .bind(&*tenant.organisation.0)
                .bind(id)
                .fetch_optional(pool)
                .await?)
        })?;
        raw.map(Guardrail::try_from).transpose()
    }

    /// A page of the tenant's guardrails, oldest first, and how many there are; those of one workspace where one is named.
    pub async fn list_guardrails(
        &self,
        tenant: &Tenant,
        workspace: Option<&WorkspaceId>,
        offset: u32,
        limit: u32,
    ) -> Result<(Vec<Guardrail>, u64)> {
        let workspace = workspace.map(|workspace| &*workspace.0);
        let (raw, total): (Vec<RawGuardrail>, i64) = on_reader!(self, pool => {
            let raw = sqlx::query_as(concat!(
                select_guardrails!(),
                " WHERE organisation_id = $1 AND workspace_id = COALESCE($2, workspace_id)",
                " ORDER BY created_at, id LIMIT $3 OFFSET $4"
            ))
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .bind(i64::from(limit))
            .bind(i64::from(offset))
            .fetch_all(pool)
            .await?;
            let total = sqlx::query_scalar(
                "SELECT COUNT(*) FROM guardrails WHERE organisation_id = $1 AND workspace_id = COALESCE($2, workspace_id)",
            )
            .bind(&*tenant.organisation.0)
            .bind(workspace)
            .fetch_one(pool)
            .await?;
            Ok((raw, total))
        })?;
        let page = raw.into_iter().map(Guardrail::try_from).collect::<Result<_>>()?;
        Ok((page, u64::try_from(total).unwrap_or(0)))
    }
}
