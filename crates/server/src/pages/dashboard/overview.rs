//! What was spent and asked for: by day, and by model, key, provider or workspace. The sums are those that stay when records
//! leave for their age, so the page is quick and true however many there are.

use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use tidegate_core::{KeyHash, Money, Timestamp, window};
use tidegate_gateway::Failure;
use tidegate_store::activity::{Asked, DayOfModel};
use tidegate_store::analytics::{Metric, Question};

use super::chart::{Chart, Figure, HEIGHT, WIDTH};
use super::words::{count, dollars, percent};
use super::{Frame, HOME, Viewer, page};
use crate::api::account::internal;
use crate::router::Answer;

/// How long is waited for the share of failures, which is no sum and must be counted.
const LONGEST: Duration = Duration::from_secs(2);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const SPANS: [u32; 3] = [7, 30, 90];
const LINES: usize = 50;
const SIDES: [(&str, &str); 4] =
    [("model", "Model"), ("key", "Key"), ("provider", "Provider"), ("workspace", "Workspace")];

#[derive(Template)]
#[template(path = "dashboard/overview.html")]
struct Page {
    frame: Frame,
    days: u32,
    spans: &'static [u32],
    by: &'static str,
    by_label: &'static str,
    sides: &'static [(&'static str, &'static str)],
    /// Name and figure.
    totals: Vec<(&'static str, String)>,
    charts: Vec<Chart>,
    width: u32,
    height: u32,
    rows: Vec<Row>,
    by_day: Vec<Row>,
    /// So many lines are left out.
    left_out: usize,
}

struct Row {
    name: String,
    cost: String,
    byok: String,
    requests: String,
    prompt: String,
    cached: String,
    completion: String,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    credit: Money,
    byok: Money,
    requests: u64,
    prompt: u64,
    cached: u64,
    completion: u64,
}

impl Sum {
    fn add(&mut self, day: &DayOfModel) {
        (self.credit, self.byok) = (self.credit.plus(day.credit), self.byok.plus(day.byok));
        for (sum, more) in [
            (&mut self.requests, day.requests),
            (&mut self.prompt, day.prompt_tokens),
            (&mut self.cached, day.cached_tokens),
            (&mut self.completion, day.completion_tokens),
        ] {
            *sum = sum.saturating_add(more);
        }
    }

    fn row(&self, name: String) -> Row {
        Row {
            name,
            cost: dollars(self.credit),
            byok: dollars(self.byok),
            requests: count(self.requests),
            prompt: count(self.prompt),
            cached: count(self.cached),
            completion: count(self.completion),
        }
    }
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let days = viewer.query.number("days", 1..=366).filter(|days| SPANS.contains(days)).unwrap_or(30);
    let wanted = viewer.query.text("by").unwrap_or_default();
    let (by, by_label) = *SIDES.iter().find(|(name, _)| *name == wanted).unwrap_or(&SIDES[0]);
    viewer.settled().await;
    // Whole days in UTC, today with what there is of it.
    let today = window::day(viewer.by.at);
    let first = today - i64::from(days) + 1;
    let asked =
        Asked { days: (first, today), by_workspace: by == "workspace", by_key: by == "key", ..Asked::default() };
    let found = viewer.app.store.activity(&viewer.tenant, &asked).await.map_err(internal)?;
    let (mut total, mut by_day, mut by_side) = (Sum::default(), BTreeMap::new(), BTreeMap::new());
    for each in &found {
        total.add(each);
        by_day.entry(each.day).or_insert_with(Sum::default).add(each);
        by_side.entry(side(by, each)).or_insert_with(Sum::default).add(each);
    }
    let mut by_side: Vec<(String, Sum)> = by_side.into_iter().collect();
    by_side.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.credit.plus(sum.byok), sum.requests)));
    let left_out = by_side.len().saturating_sub(LINES);
    by_side.truncate(LINES);
    let mut rows = Vec::new();
    for (id, sum) in by_side {
        rows.push(sum.row(name(&viewer, by, id).await?));
    }
    let page_of = Page {
        frame: viewer.frame(HOME),
        days,
        spans: &SPANS,
        by,
        by_label,
        sides: &SIDES,
        totals: totals(&viewer, &total).await?,
        charts: charts(&by_day, first, today),
        width: WIDTH,
        height: HEIGHT,
        rows,
        by_day: by_day.iter().rev().map(|(day, sum)| sum.row(window::day_text(*day))).collect(),
        left_out,
    };
    page(page_of.frame.status(), &page_of, None)
}

fn side(by: &str, day: &DayOfModel) -> String {
    let found = match by {
        "key" => day.key.clone(),
        "provider" => Some(day.provider.clone()),
        "workspace" => day.workspace.clone(),
        _ => Some(day.model.clone()),
    };
    found.filter(|name| !name.is_empty()).unwrap_or_else(|| "nobody".to_owned())
}

/// What people call it.
async fn name(viewer: &Viewer, by: &str, id: String) -> Result<String, Failure> {
    let (store, tenant) = (&viewer.app.store, &viewer.tenant);
    let found = match (by, KeyHash::parse(&id)) {
        ("key", Some(hash)) => {
            let key = store.find_tenant_key(tenant, &hash, None).await.map_err(internal)?;
            Some(key.map_or_else(|| format!("{}…, deleted", &id[..8]), |key| key.name.into()))
        }
        ("workspace", _) => {
            let workspace = tidegate_core::WorkspaceId(id.as_str().into());
            store.find_workspace(tenant, &workspace).await.map_err(internal)?.map(|workspace| workspace.name)
        }
        _ => None,
    };
    Ok(found.unwrap_or(id))
}

/// The figures over everything.
async fn totals(viewer: &Viewer, total: &Sum) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut totals = vec![
        ("Spent", dollars(total.credit)),
        ("Requests", count(total.requests)),
        ("Failed, last 24 hours", failed(viewer).await?),
        ("Prompt tokens", count(total.prompt)),
        ("Completion tokens", count(total.completion)),
    ];
    if total.byok > Money::ZERO {
        totals.push(("Through own provider keys", dollars(total.byok)));
    }
    // Where nothing runs out, what is left says nothing.
    if viewer.app.gateway.snapshot().settings.billing.enabled {
        let (store, tenant) = (&viewer.app.store, &viewer.tenant);
        let granted = store.total_granted(tenant).await.map_err(internal)?;
        let used = store.total_usage(tenant).await.map_err(internal)?;
        totals.push(("Credits left", dollars(granted.minus(used))));
    }
    Ok(totals)
}

/// The share of failures; nothing is said where it takes too long to count.
async fn failed(viewer: &Viewer) -> Result<String, Failure> {
    let now = viewer.by.at;
    let question = Question {
        metrics: vec![Metric::RequestCount, Metric::ErrorRate],
        dimensions: Vec::new(),
        filters: Vec::new(),
        granularity: None,
        range: (Timestamp(now.0 - DAY_MS + 1), Timestamp(now.0 + 1)),
        order: None,
        limit: 1,
        group_limit: 1,
    };
    let lines = viewer.app.store.analytics(&viewer.tenant, &question, LONGEST).await.map_err(internal)?;
    let line = lines.unwrap_or_default().into_iter().next();
    let rate = line.and_then(|line| line.figures.get(1).copied().flatten());
    Ok(rate.map_or_else(|| "–".to_owned(), percent))
}

/// Every day has a bar, also one on which nothing happened.
fn charts(by_day: &BTreeMap<i64, Sum>, first: i64, today: i64) -> Vec<Chart> {
    let figures = |figure: &dyn Fn(&Sum) -> (f64, String)| -> Vec<Figure> {
        let one = |day: i64| {
            let (value, text) = figure(&by_day.get(&day).copied().unwrap_or_default());
            Figure { label: window::day_text(day), value, text }
        };
        (first..=today).map(one).collect()
    };
    let spent = figures(&|sum| (sum.credit.0 as f64, dollars(sum.credit)));
    let asked = figures(&|sum| (sum.requests as f64, count(sum.requests)));
    vec![Chart::of("Spent by day", &spent), Chart::of("Requests by day", &asked)]
}
