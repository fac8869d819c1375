//! What workspaces may spend, and what they have spent of it.

use askama::Template;
use tidegate_core::{Money, WorkspaceId};
use tidegate_gateway::Failure;
use tidegate_store::StoreError;
use tidegate_store::budgets::{Budget, Interval};
use tidegate_store::spend::Spend;

use super::words::dollars;
use super::{Frame, Viewer, page, see_other};
use crate::api::account::{internal, not_found};
use crate::api::form::Query;
use crate::router::Answer;

const HERE: &str = "/dashboard/budgets";
const INTERVALS: [Interval; 4] = [Interval::Daily, Interval::Weekly, Interval::Monthly, Interval::Lifetime];

#[derive(Template)]
#[template(path = "dashboard/budgets.html")]
struct Page {
    frame: Frame,
    workspaces: Vec<Shown>,
    intervals: [&'static str; INTERVALS.len()],
}

struct Shown {
    id: String,
    name: String,
    rows: Vec<Row>,
    include_byok: bool,
}

struct Row {
    interval: &'static str,
    spent: String,
    limit: Option<String>,
    /// What is spent of it, in hundredths.
    share: u64,
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let said = match viewer.query.text("done").as_deref() {
        Some("set") => Some("The budget is set."),
        Some("remove") => Some("The budget is taken away."),
        _ => None,
    };
    shown(&viewer, Ok(said.map(str::to_owned))).await
}

async fn shown(viewer: &Viewer, said: Result<Option<String>, String>) -> Result<Answer, Failure> {
    viewer.settled().await;
    let (store, tenant, now) = (&viewer.app.store, &viewer.tenant, viewer.app.gateway.ledger.now());
    let mut workspaces = Vec::new();
    for workspace in viewer.workspaces().await? {
        let Some(budgets) = store.list_budgets(tenant, &workspace.id).await.map_err(internal)? else { continue };
        let spend = store.workspace_spend(tenant, &workspace.id, now).await.map_err(internal)?;
        let row = |interval: Interval| row(interval, budgets.get(interval), &spend, budgets.include_byok);
        workspaces.push(Shown {
            id: workspace.id.0.to_string(),
            name: workspace.name,
            rows: INTERVALS.into_iter().map(row).collect(),
            include_byok: budgets.include_byok,
        });
    }
    let page_of = Page { frame: viewer.frame(HERE).with(said), workspaces, intervals: INTERVALS.map(Interval::as_str) };
    page(page_of.frame.status(), &page_of, None)
}

fn row(interval: Interval, budget: Option<&Budget>, spend: &Spend, include_byok: bool) -> Row {
    let spent = spend.counted(interval.window(), include_byok);
    let share = |limit: Money| u64::try_from(i128::from(spent.0) * 100 / i128::from(limit.0.max(1))).unwrap_or(0);
    Row {
        interval: interval.as_str(),
        spent: dollars(spent),
        limit: budget.map(|budget| dollars(budget.limit)),
        share: budget.map_or(0, |budget| share(budget.limit).min(100)),
    }
}

pub(super) async fn change(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let action = form.text("action").unwrap_or_default();
    let workspace = form.text("workspace").map(|id| WorkspaceId(id.into())).ok_or_else(not_found)?;
    let interval = form.text("interval").and_then(|text| Interval::parse(&text)).ok_or_else(not_found)?;
    let (store, tenant, by) = (&viewer.app.store, &viewer.tenant, &viewer.by);
    match action.as_str() {
        "set" => {
            let limit = match Money::parse(form.text("limit").unwrap_or_default().trim()) {
                Ok(limit) if limit > Money::ZERO => limit,
                Ok(_) => return shown(&viewer, Err("Budget: must be greater than 0.".to_owned())).await,
                Err(error) => return shown(&viewer, Err(format!("Budget: {error}."))).await,
            };
            match store.put_budget(tenant, by, &workspace, interval, limit, None).await {
                Ok(put) => drop(put.ok_or_else(not_found)?),
                Err(StoreError::Refused(rule)) => return shown(&viewer, Err(format!("Budget: {rule}."))).await,
                Err(error) => return Err(internal(error)),
            }
        }
        "remove" => {
            let gone = store.delete_budget(tenant, by, &workspace, interval).await.map_err(internal)?;
            gone.ok_or_else(not_found)?;
        }
        _ => return Err(not_found()),
    }
    if let Err(error) = viewer.app.gateway.ledger.reload_limits(&viewer.app.store).await {
        tracing::warn!(%error, "changed limits hold a moment later");
    }
    see_other(&format!("{HERE}?done={action}"))
}
