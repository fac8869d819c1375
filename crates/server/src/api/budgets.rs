//! `/workspaces/{id}/budgets`: how much a workspace may spend in a day, a week, a month and ever.

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{Money, Window};
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::budgets::{Budget, Interval};

use super::account::{Answering, Dollars, Instant, Request, answer, data, deleted, internal, not_found};
use super::form::{Form, refused};
use super::workspaces::addressed;
use crate::router::Call;

#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    workspace_id: &'a str,
    limit_usd: Dollars,
    reset_interval: Option<&'static str>,
    created_at: Instant,
    updated_at: Instant,
}

impl<'a> From<&'a Budget> for Shown<'a> {
    fn from(budget: &'a Budget) -> Self {
        Self {
            id: &budget.id,
            workspace_id: &budget.workspace.0,
            limit_usd: Dollars(budget.limit),
            reset_interval: budget.interval.window().map(Window::as_str),
            created_at: Instant(budget.created),
            updated_at: Instant(budget.updated),
        }
    }
}

/// With what holds for all budgets of the workspace.
#[derive(Serialize)]
struct WithByok<T> {
    data: T,
    include_byok_in_budgets: bool,
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let workspace = addressed(&request).await?;
        let found = request.app.store.list_budgets(&request.tenant, &workspace.id).await.map_err(internal)?;
        let budgets = found.ok_or_else(not_found)?;
        let data: Vec<Shown<'_>> = budgets.budgets.iter().map(Shown::from).collect();
        Ok(answer(StatusCode::OK, &WithByok { data, include_byok_in_budgets: budgets.include_byok }))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let interval = interval(&request)?;
        let workspace = addressed(&request).await?;
        let found = request.app.store.list_budgets(&request.tenant, &workspace.id).await.map_err(internal)?;
        let budgets = found.ok_or_else(not_found)?;
        let budget = budgets.get(interval).ok_or_else(not_found)?;
        Ok(data(StatusCode::OK, &Shown::from(budget)))
    })
}

pub fn put(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let interval = interval(&request)?;
        let body = request.body().await?;
        let mut form = Form::read(&body)?;
        let limit = form.money("limit_usd");
        let limit = form.require("limit_usd", limit);
        if limit == Some(Money::ZERO) {
            form.issues.add("limit_usd", "must be greater than 0");
        }
        let include_byok = form.flag("include_byok_in_budgets");
        form.finish()?;
        let limit = limit.ok_or_else(Failure::internal)?;
        let workspace = addressed(&request).await?;
        let store = &request.app.store;
        let put = store.put_budget(&request.tenant, &request.by, &workspace.id, interval, limit, include_byok).await;
        let put = put.map_err(|error| match error {
            StoreError::Refused(rule) => refused("limit_usd", rule.to_string()),
            error => internal(error),
        })?;
        let (budget, include_byok_in_budgets) = put.ok_or_else(not_found)?;
        request.limits_changed().await;
        Ok(answer(StatusCode::OK, &WithByok { data: Shown::from(&budget), include_byok_in_budgets }))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let interval = interval(&request)?;
        let workspace = addressed(&request).await?;
        let gone = request.app.store.delete_budget(&request.tenant, &request.by, &workspace.id, interval).await;
        // One that was not there is as gone as one that was.
        gone.map_err(internal)?.ok_or_else(not_found)?;
        request.limits_changed().await;
        Ok(deleted())
    })
}

/// The interval in the path.
fn interval(request: &Request) -> Result<Interval, Failure> {
    let interval = Interval::parse(request.param(1));
    interval.ok_or_else(|| refused("interval", "must be one of daily, weekly, monthly, lifetime"))
}
