//! What was spent and asked for: by day, and by model, key, provider or workspace.

use std::time::Duration;

use askama::Template;
use tidegate_core::{Money, Timestamp};
use tidegate_gateway::Failure;
use tidegate_store::analytics::{Column, Dimension, Granularity, Line, Metric, Question};
use tokio::time::timeout;

use super::chart::{Chart, Figure, HEIGHT, WIDTH};
use super::words::{count, dollars, millis, percent};
use super::{Frame, HOME, Viewer, page};
use crate::api::account::internal;
use crate::router::Answer;

/// How long the figures of a page may take.
const LONGEST: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
const SPANS: [u32; 3] = [7, 30, 90];
const LINES: u32 = 25;
const SIDES: [(&str, &str, Dimension); 4] = [
    ("model", "Model", Dimension::Model),
    ("key", "Key", Dimension::Key),
    ("provider", "Provider", Dimension::Provider),
    ("workspace", "Workspace", Dimension::Workspace),
];
const METRICS: [Metric; 7] = [
    Metric::TotalCost,
    Metric::RequestCount,
    Metric::ErrorCount,
    Metric::PromptTokens,
    Metric::CompletionTokens,
    Metric::LatencyP50,
    Metric::ByokCost,
];

#[derive(Template)]
#[template(path = "dashboard/overview.html")]
struct Page {
    frame: Frame,
    days: u32,
    spans: &'static [u32],
    by: &'static str,
    by_label: &'static str,
    sides: Vec<(&'static str, &'static str)>,
    /// Name and figure.
    totals: Vec<(&'static str, String)>,
    charts: Vec<Chart>,
    width: u32,
    height: u32,
    rows: Vec<Row>,
    by_day: Vec<Row>,
    is_empty: bool,
}

struct Row {
    name: String,
    cost: String,
    requests: String,
    errors: String,
    prompt: String,
    completion: String,
    latency: String,
}

impl Row {
    fn of(name: String, line: &Line) -> Self {
        let figure = |place: usize| line.figures.get(place).copied().flatten();
        let number = |place: usize| count(figure(place).unwrap_or_default() as u64);
        Self {
            name,
            cost: dollars(Money(figure(0).unwrap_or_default() as i64)),
            requests: number(1),
            errors: number(2),
            prompt: number(3),
            completion: number(4),
            latency: figure(5).map_or_else(|| "–".to_owned(), |latency| millis(latency as u64)),
        }
    }
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let days = viewer.query.number("days", 1..=366).filter(|days| SPANS.contains(days)).unwrap_or(30);
    let wanted = viewer.query.text("by").unwrap_or_default();
    let (by, by_label, dimension) = *SIDES.iter().find(|(name, ..)| *name == wanted).unwrap_or(&SIDES[0]);
    viewer.settled().await;
    let now = viewer.by.at;
    // Whole days in UTC, today with what there is of it.
    let today = now.0.div_euclid(DAY_MS);
    let first = today - i64::from(days) + 1;
    let question = Question {
        metrics: METRICS.to_vec(),
        dimensions: Vec::new(),
        filters: Vec::new(),
        granularity: None,
        range: (Timestamp(first * DAY_MS), Timestamp(now.0 + 1)),
        order: None,
        limit: LINES,
        group_limit: LINES,
    };
    let (by_days, by_side) = (
        Question { granularity: Some(Granularity::Day), limit: 400, ..question.clone() },
        Question { dimensions: vec![dimension], order: Some((Column::Metric(0), true)), ..question.clone() },
    );
    let asked = timeout(LONGEST, async {
        let _turn = viewer.app.analytics.acquire().await;
        let (store, tenant) = (&viewer.app.store, &viewer.tenant);
        let totals = store.analytics(tenant, &question, LONGEST).await.map_err(internal)?;
        let by_days = store.analytics(tenant, &by_days, LONGEST).await.map_err(internal)?;
        let by_side = store.analytics(tenant, &by_side, LONGEST).await.map_err(internal)?;
        Ok::<_, Failure>((totals, by_days, by_side))
    });
    let Ok(asked) = asked.await else { return Err(Failure::too_slow()) };
    let (Some(totals), Some(by_days), Some(mut by_side)) = asked? else { return Err(Failure::too_slow()) };
    by_side.truncate(LINES as usize);
    let name = |line: &Line| {
        let side = line.values.first().and_then(Option::as_ref);
        side.map_or_else(|| "none".to_owned(), |side| side.label.clone().unwrap_or_else(|| side.id.clone()))
    };
    let page_of = Page {
        frame: viewer.frame(HOME),
        days,
        spans: &SPANS,
        by,
        by_label,
        sides: SIDES.iter().map(|(name, label, _)| (*name, *label)).collect(),
        totals: summed(&viewer, totals.first()).await?,
        charts: charts(&by_days, first, today),
        width: WIDTH,
        height: HEIGHT,
        rows: by_side.iter().map(|line| Row::of(name(line), line)).collect(),
        by_day: by_days.iter().map(|line| Row::of(day(line.at), line)).collect(),
        is_empty: by_side.is_empty(),
    };
    page(page_of.frame.status(), &page_of, None)
}

fn day(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..10).unwrap_or(&text).to_owned()
}

/// The figures over everything.
async fn summed(viewer: &Viewer, line: Option<&Line>) -> Result<Vec<(&'static str, String)>, Failure> {
    let figure = |place: usize| line.and_then(|line| line.figures.get(place).copied().flatten()).unwrap_or_default();
    let (requests, errors) = (figure(1), figure(2));
    let mut totals = vec![
        ("Spent", dollars(Money(figure(0) as i64))),
        ("Requests", count(requests as u64)),
        ("Failed", if requests > 0.0 { percent(errors / requests) } else { "–".to_owned() }),
        ("Prompt tokens", count(figure(3) as u64)),
        ("Completion tokens", count(figure(4) as u64)),
    ];
    if figure(6) > 0.0 {
        totals.push(("Through own provider keys", dollars(Money(figure(6) as i64))));
    }
    let (store, tenant) = (&viewer.app.store, &viewer.tenant);
    let granted = store.total_granted(tenant).await.map_err(internal)?;
    if granted > Money::ZERO {
        let used = store.total_usage(tenant).await.map_err(internal)?;
        totals.push(("Credits left", dollars(granted.minus(used))));
    }
    Ok(totals)
}

/// Every day has a bar, also one on which nothing happened.
fn charts(lines: &[Line], first: i64, today: i64) -> Vec<Chart> {
    let on = |day: i64| lines.iter().find(|line| line.at.0.div_euclid(DAY_MS) == day);
    let figures = |value: usize, failed: Option<usize>, text: &dyn Fn(f64) -> String| -> Vec<Figure> {
        let one = |number: i64| {
            let figure = |place: usize| on(number).and_then(|line| line.figures.get(place).copied().flatten());
            let value = figure(value).unwrap_or_default();
            let failed = failed.and_then(figure).unwrap_or_default();
            let wrong = if failed > 0.0 { format!(", {} failed", count(failed as u64)) } else { String::new() };
            Figure { label: day(Timestamp(number * DAY_MS)), value, failed, text: format!("{}{wrong}", text(value)) }
        };
        (first..=today).map(one).collect()
    };
    let spent = figures(0, None, &|value| dollars(Money(value as i64)));
    let asked = figures(1, Some(2), &|value| count(value as u64));
    vec![Chart::of("Spent by day", &spent), Chart::of("Requests by day", &asked)]
}
