//! Budgets of workspaces: at most one for each interval, and a narrower one is always less than a wider one.

use std::sync::Arc;

use serde_json::json;
use tidegate_core::{Money, OrganisationId, Tenant, Timestamp, Window, WorkspaceId};

use crate::audit::{By, Change, append_audit};
use crate::error::Unreadable;
use crate::keys::HOLD_KEYS;
use crate::ledger::LIMITS_CHANGED;
use crate::workspaces::new_id;
use crate::{Refused, Result, Store, dialect};

/// How often a budget starts anew, widest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interval {
    /// Never.
    Lifetime,
    Monthly,
    Weekly,
    Daily,
}

impl Interval {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lifetime => "lifetime",
            Self::Monthly => "monthly",
            Self::Weekly => "weekly",
            Self::Daily => "daily",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "lifetime" => Some(Self::Lifetime),
            "monthly" => Some(Self::Monthly),
            "weekly" => Some(Self::Weekly),
            "daily" => Some(Self::Daily),
            _ => None,
        }
    }

    /// The window of spending it looks at; `None`: all of it.
    pub fn window(self) -> Option<Window> {
        match self {
            Self::Lifetime => None,
            Self::Monthly => Some(Window::Monthly),
            Self::Weekly => Some(Window::Weekly),
            Self::Daily => Some(Window::Daily),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// A UUID.
    pub id: String,
    pub workspace: WorkspaceId,
    pub interval: Interval,
    pub limit: Money,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// The budgets of one workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Widest first.
    pub budgets: Vec<Budget>,
    /// Whether spending through the customer's own credentials counts, for all of them.
    pub include_byok: bool,
}

impl Budgets {
    pub fn get(&self, interval: Interval) -> Option<&Budget> {
        self.budgets.iter().find(|budget| budget.interval == interval)
    }
}

impl Store {
    /// The budgets of a live workspace; `None` when the tenant has no such workspace.
    pub async fn list_budgets(&self, tenant: &Tenant, workspace: &WorkspaceId) -> Result<Option<Budgets>> {
        let found: Option<(bool, Vec<RawBudget>)> = on_reader!(self, pool => {
            let include_byok: Option<bool> = sqlx::query_scalar(INCLUDE_BYOK)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(pool)
                .await?;
            let Some(include_byok) = include_byok else { return Ok(None) };
            let budgets = sqlx::query_as(SELECT_BUDGETS)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_all(pool)
                .await?;
            Ok(Some((include_byok, budgets)))
        })?;
        let Some((include_byok, budgets)) = found else { return Ok(None) };
        Ok(Some(Budgets { budgets: read(budgets, workspace)?, include_byok }))
    }

    /// Sets a budget; `None` when the tenant has no such workspace.
    pub async fn put_budget(
        &self,
        tenant: &Tenant,
        by: &By,
        workspace: &WorkspaceId,
        interval: Interval,
        limit: Money,
        include_byok: Option<bool>,
    ) -> Result<Option<(Budget, bool)>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let included: Option<bool> = sqlx::query_scalar(INCLUDE_BYOK)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(&mut *transaction)
                .await?;
            let Some(included) = included else { return Ok(None) };
            let known: Vec<RawBudget> = sqlx::query_as(SELECT_BUDGETS)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_all(&mut *transaction)
                .await?;
            let known = read(known, workspace)?;
            check_order(&known, interval, limit)?;
            let old = known.into_iter().find(|budget| budget.interval == interval);
            let budget = Budget {
                id: old.as_ref().map_or_else(|| new_id(by.at).0.to_string(), |old| old.id.clone()),
                workspace: workspace.clone(),
                interval,
                limit,
                created: old.as_ref().map_or(by.at, |old| old.created),
                updated: by.at,
            };
            sqlx::query(
                "INSERT INTO workspace_budgets (id, organisation_id, workspace_id, reset_interval, limit_nanos, \
                 created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7) \
                 ON CONFLICT (workspace_id, reset_interval) DO UPDATE \
                 SET limit_nanos = excluded.limit_nanos, updated_at = excluded.updated_at",
            )
            .bind(&budget.id)
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(interval.as_str())
            .bind(limit.0)
            .bind(budget.created.0)
            .bind(by.at.0)
            .execute(&mut *transaction)
            .await?;
            let includes = include_byok.unwrap_or(included);
            if includes != included {
                sqlx::query("UPDATE workspaces SET include_byok_in_budgets = $3 WHERE organisation_id = $1 AND id = $2")
                    .bind(&*tenant.organisation.0)
                    .bind(&*workspace.0)
                    .bind(includes)
                    .execute(&mut *transaction)
                    .await?;
            }
            sqlx::query(LIMITS_CHANGED).execute(&mut *transaction).await?;
            let values = |limit: Option<Money>, includes: bool| {
                let limit = limit.map(|limit| limit.to_string());
                json!({"interval": interval.as_str(), "limit_usd": limit, "include_byok_in_budgets": includes})
            };
            let change = Change {
                old: Some(values(old.map(|old| old.limit), included)),
                new: Some(values(Some(limit), includes)),
                ..Change::new("budget.set", &workspace.0)
            };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some((budget, includes)))
        })
    }

    /// Deletes a budget, if there is one; `None` when the tenant has no such workspace.
    pub async fn delete_budget(
        &self,
        tenant: &Tenant,
        by: &By,
        workspace: &WorkspaceId,
        interval: Interval,
    ) -> Result<Option<bool>> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query(HOLD_KEYS).execute(&mut *transaction).await?;
            let included: Option<bool> = sqlx::query_scalar(INCLUDE_BYOK)
                .bind(&*tenant.organisation.0)
                .bind(&*workspace.0)
                .fetch_optional(&mut *transaction)
                .await?;
            if included.is_none() {
                return Ok(None);
            }
            let limit: Option<i64> = sqlx::query_scalar(
                "DELETE FROM workspace_budgets \
                 WHERE organisation_id = $1 AND workspace_id = $2 AND reset_interval = $3 RETURNING limit_nanos",
            )
            .bind(&*tenant.organisation.0)
            .bind(&*workspace.0)
            .bind(interval.as_str())
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(limit) = limit else { return Ok(Some(false)) };
            sqlx::query(LIMITS_CHANGED).execute(&mut *transaction).await?;
            let old = json!({"interval": interval.as_str(), "limit_usd": Money(limit).to_string()});
            let change = Change { old: Some(old), ..Change::new("budget.deleted", &workspace.0) };
            append_audit!(transaction, tenant.organisation, by, change);
            transaction.commit().await?;
            Ok(Some(true))
        })
    }

    /// The budgets of all live workspaces of all organisations, for the books of this node.
    pub async fn all_budgets(&self) -> Result<Vec<WorkspaceLimits>> {
        let rows: Vec<(String, String, bool, String, i64)> = on_reader!(self, pool => {
            Ok(sqlx::query_as(
                "SELECT w.organisation_id, w.id, w.include_byok_in_budgets, b.reset_interval, b.limit_nanos \
                 FROM workspace_budgets b JOIN workspaces w ON w.organisation_id = b.organisation_id \
                 AND w.id = b.workspace_id WHERE w.deleted_at IS NULL ORDER BY w.organisation_id, w.id",
            )
            .fetch_all(pool)
            .await?)
        })?;
        let mut all: Vec<WorkspaceLimits> = Vec::new();
        for (organisation, workspace, include_byok, interval, limit) in rows {
            let interval = Interval::parse(&interval).ok_or(UNREADABLE_INTERVAL)?;
            if all.last().is_none_or(|last| *last.1.0 != *workspace) {
                let organisation = OrganisationId(Arc::from(organisation));
                all.push((organisation, WorkspaceId(Arc::from(workspace)), include_byok, Vec::new()));
            }
            if let Some((_, _, _, limits)) = all.last_mut() {
                limits.push((interval, Money(limit)));
                limits.sort_unstable();
            }
        }
        Ok(all)
    }
}

/// A workspace, whether spending through the customer's own credentials counts, and its budgets, widest first.
pub type WorkspaceLimits = (OrganisationId, WorkspaceId, bool, Vec<(Interval, Money)>);

const UNREADABLE_INTERVAL: Unreadable = Unreadable { table: "workspace_budgets", column: "reset_interval" };

const INCLUDE_BYOK: &str =
    "SELECT include_byok_in_budgets FROM workspaces WHERE organisation_id = $1 AND id = $2 AND deleted_at IS NULL";

const SELECT_BUDGETS: &str = "SELECT id, reset_interval, limit_nanos, created_at, updated_at \
     FROM workspace_budgets WHERE organisation_id = $1 AND workspace_id = $2";

/// Limits must strictly fall as the interval narrows.
fn check_order(known: &[Budget], interval: Interval, limit: Money) -> std::result::Result<(), Refused> {
    for other in known {
        let (wide, narrow) = match other.interval.cmp(&interval) {
            std::cmp::Ordering::Equal => continue,
            std::cmp::Ordering::Less => ((other.interval, other.limit), (interval, limit)),
            std::cmp::Ordering::Greater => ((interval, limit), (other.interval, other.limit)),
        };
        if wide.1 <= narrow.1 {
            return Err(Refused::BudgetOrder { wide: wide.0.as_str(), narrow: narrow.0.as_str() });
        }
    }
    Ok(())
}

#[derive(sqlx::FromRow)]
struct RawBudget {
    id: String,
    reset_interval: String,
    limit_nanos: i64,
    created_at: i64,
    updated_at: i64,
}

fn read(raw: Vec<RawBudget>, workspace: &WorkspaceId) -> Result<Vec<Budget>> {
    let mut budgets = Vec::with_capacity(raw.len());
    for raw in raw {
        budgets.push(Budget {
            id: raw.id,
            workspace: workspace.clone(),
            interval: Interval::parse(&raw.reset_interval).ok_or(UNREADABLE_INTERVAL)?,
            limit: Money(raw.limit_nanos),
            created: Timestamp(raw.created_at),
            updated: Timestamp(raw.updated_at),
        });
    }
    budgets.sort_by_key(|budget| budget.interval);
    Ok(budgets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(interval: Interval, limit: i64) -> Budget {
        let (created, updated) = (Timestamp(0), Timestamp(0));
        Budget {
            id: String::new(),
            workspace: WorkspaceId("w".into()),
            interval,
            limit: Money(limit),
            created,
            updated,
        }
    }

    #[test]
    fn limits_strictly_fall_as_the_interval_narrows() {
        use Interval::*;
        let known = [budget(Lifetime, 100), budget(Weekly, 50)];
        let refused = |wide: Interval, narrow: Interval| {
            Err(Refused::BudgetOrder { wide: wide.as_str(), narrow: narrow.as_str() })
        };
        let cases = [
            (Monthly, 51, Ok(())),
            (Monthly, 99, Ok(())),
            (Monthly, 100, refused(Lifetime, Monthly)),
            (Monthly, 50, refused(Monthly, Weekly)),
            (Daily, 49, Ok(())),
            (Daily, 50, refused(Weekly, Daily)),
            (Weekly, 99, Ok(())),
            (Weekly, 100, refused(Lifetime, Weekly)),
            (Lifetime, 51, Ok(())),
            (Lifetime, 50, refused(Lifetime, Weekly)),
        ];
        for (interval, limit, expected) in cases {
            assert_eq!(check_order(&known, interval, Money(limit)), expected, "{interval:?} {limit}");
        }
    }
}
