//! `GET /key`, the key that calls.

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{KeyKind, Money, Timestamp, Window};
use tidegate_gateway::{Failure, guardrails};
use tidegate_store::budgets::{Budget, Budgets};
use tidegate_store::keys::KeyRow;
use tidegate_store::spend::Spend;

use super::account::{Answering, Dollars, Instant, Request, data, internal};
use super::keys::{left, remaining, spend};
use crate::router::Call;

/// A number that says "no limit" in a member that must hold an integer.
const UNLIMITED: i32 = i32::MAX;

#[derive(Serialize)]
struct ThisKey<'a> {
    label: &'a str,
    limit: Option<Dollars>,
    limit_remaining: Option<Dollars>,
    limit_reset: Option<&'static str>,
    include_byok_in_limit: bool,
    usage: Dollars,
    usage_daily: Dollars,
    usage_weekly: Dollars,
    usage_monthly: Dollars,
    byok_usage: Dollars,
    byok_usage_daily: Dollars,
    byok_usage_weekly: Dollars,
    byok_usage_monthly: Dollars,
    creator_user_id: Option<&'a str>,
    expires_at: Option<Instant>,
    is_free_tier: bool,
    is_management_key: bool,
    is_provisioning_key: bool,
    rate_limit: RateLimit,
    organization_id: &'a str,
    workspace_id: &'a str,
    effective_budget: Option<Binding>,
    budgets: Vec<Binding>,
    free_model_daily_requests: FreeRequests,
    allowed_data_regions: [&'static str; 1],
}

/// Deprecated; clients of old still look for it.
#[derive(Serialize)]
struct RateLimit {
    requests: i32,
    interval: &'static str,
    note: &'static str,
}

#[derive(Serialize)]
struct FreeRequests {
    limit: i32,
    used: i32,
    remaining: i32,
}

impl FreeRequests {
    fn of(request: &Request, now: Timestamp) -> Self {
        let narrow = |count: u32| i32::try_from(count).unwrap_or(UNLIMITED);
        let used = narrow(request.key.live.free_today.used(now));
        match request.app.gateway.snapshot().settings.free_per_day {
            0 => Self { limit: UNLIMITED, used, remaining: UNLIMITED - used },
            limit => Self { limit: narrow(limit), used, remaining: (narrow(limit) - used).max(0) },
        }
    }
}

/// One limit that binds the key.
#[derive(Clone, Serialize)]
struct Binding {
    budget_id: String,
    guardrail_id: Option<String>,
    scope: &'static str,
    limit_usd: Dollars,
    spend_usd: Dollars,
    remaining_usd: Dollars,
    reset_interval: Option<&'static str>,
    resets_at: Option<Instant>,
    include_byok: bool,
}

impl Binding {
    fn new(
        (scope, budget_id): (&'static str, String),
        limit: Money,
        window: Option<Window>,
        (spend, include_byok): (&Spend, bool),
        now: Timestamp,
    ) -> Self {
        let spent = spend.counted(window, include_byok);
        Self {
            budget_id,
            guardrail_id: None,
            scope,
            limit_usd: Dollars(limit),
            spend_usd: Dollars(spent),
            remaining_usd: Dollars(left(limit, spent)),
            reset_interval: window.map(Window::as_str),
            resets_at: window.map(|window| Instant(window.next(now))),
            include_byok,
        }
    }

    fn of_key(row: &KeyRow, spend: &Spend, now: Timestamp) -> Option<Self> {
        let spent = (spend, row.include_byok_in_limit);
        row.limit.map(|limit| Self::new(("key_limit", row.hash.to_hex()), limit, row.limit_reset, spent, now))
    }

    fn of_guardrail(budget: &guardrails::Budget, spend: &Spend, now: Timestamp) -> Self {
        let spent = (spend, budget.include_byok);
        let binding = Self::new((budget.scope, budget.guardrail.clone()), budget.limit, budget.window, spent, now);
        Self { guardrail_id: Some(budget.guardrail.clone()), ..binding }
    }

    fn of_workspace(budget: &Budget, spent: (&Spend, bool), now: Timestamp) -> Self {
        Self::new(("workspace", budget.id.clone()), budget.limit, budget.interval.window(), spent, now)
    }
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let (store, tenant) = (&request.app.store, &request.tenant);
        let now = request.settled().await;
        let found = store.find_tenant_key(tenant, &request.key.hash, None).await.map_err(internal)?;
        // Deleted since it was let in.
        let row = found.ok_or_else(Failure::invalid_key)?;
        let spend = spend(&request, &row.hash).await?;
        let budgets = store.list_budgets(tenant, &row.workspace).await.map_err(internal)?;
        let budgets = budgets.unwrap_or(Budgets { budgets: Vec::new(), include_byok: false });
        let whole = if budgets.budgets.is_empty() {
            Spend::default()
        } else {
            store.workspace_spend(tenant, &row.workspace, now).await.map_err(internal)?
        };
        let of_workspace =
            budgets.budgets.iter().map(|budget| Binding::of_workspace(budget, (&whole, budgets.include_byok), now));
        let mut bindings: Vec<Binding> = Binding::of_key(&row, &spend, now).into_iter().chain(of_workspace).collect();
        for budget in request.app.gateway.guardrails.budgets(&request.key) {
            let of_member = match row.creator.as_deref().filter(|_| budget.scope == "member") {
                Some(member) => Some(store.member_spend(tenant, member, now).await.map_err(internal)?),
                None => None,
            };
            bindings.push(Binding::of_guardrail(&budget, of_member.as_ref().unwrap_or(&spend), now));
        }
        let is_billed = request.app.gateway.snapshot().settings.billing.enabled;
        let is_free_tier = is_billed && store.list_grants(tenant, 0, 1).await.map_err(internal)?.1 == 0;
        let is_management = row.kind == KeyKind::Management;
        let (credit, byok) = (&spend.credit, &spend.byok);
        Ok(data(
            StatusCode::OK,
            &ThisKey {
                label: &row.label,
                limit: row.limit.map(Dollars),
                limit_remaining: remaining(&row, &spend).map(Dollars),
                limit_reset: row.limit_reset.map(Window::as_str),
                include_byok_in_limit: row.include_byok_in_limit,
                usage: Dollars(credit.all),
                usage_daily: Dollars(credit.day),
                usage_weekly: Dollars(credit.week),
                usage_monthly: Dollars(credit.month),
                byok_usage: Dollars(byok.all),
                byok_usage_daily: Dollars(byok.day),
                byok_usage_weekly: Dollars(byok.week),
                byok_usage_monthly: Dollars(byok.month),
                creator_user_id: row.creator.as_deref(),
                expires_at: row.expires.map(Instant),
                is_free_tier,
                is_management_key: is_management,
                is_provisioning_key: is_management,
                rate_limit: RateLimit {
                    requests: -1,
                    interval: "1h",
                    note: "This member is deprecated and says nothing; it is safe to ignore.",
                },
                organization_id: &row.organisation.0,
                workspace_id: &row.workspace.0,
                effective_budget: bindings.iter().min_by_key(|binding| binding.remaining_usd.0).cloned(),
                budgets: bindings,
                free_model_daily_requests: FreeRequests::of(&request, now),
                allowed_data_regions: ["global"],
            },
        ))
    })
}
