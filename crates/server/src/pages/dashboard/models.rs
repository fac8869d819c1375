//! What can be called, who offers it, what it costs there and how it does.

use askama::Template;
use tidegate_core::Price;
use tidegate_gateway::{Failure, Snapshot};
use tidegate_routing::price::Unit;
use tidegate_routing::{Endpoint, Group, Model};

use super::words::{count, millis, percent};
use super::{Frame, Viewer, page};
use crate::router::Answer;

const HERE: &str = "/dashboard/models";

#[derive(Template)]
#[template(path = "dashboard/models.html")]
struct Page {
    frame: Frame,
    wanted: String,
    models: Vec<Shown>,
    all: usize,
}

struct Shown {
    id: String,
    name: String,
    endpoints: Vec<Row>,
}

struct Row {
    provider: String,
    tag: String,
    context: String,
    input: String,
    output: String,
    state: &'static str,
    look: &'static str,
    uptime: String,
    first: String,
}

pub(super) async fn show(mut viewer: Viewer) -> Result<Answer, Failure> {
    let wanted = viewer.query.text("q").unwrap_or_default();
    let snapshot = viewer.app.gateway.snapshot();
    let sought = wanted.trim().to_lowercase();
    let is_sought = |model: &&Model| {
        let is_provider = |endpoint: &Endpoint| endpoint.provider_name.to_lowercase().contains(&sought);
        model.id.to_lowercase().contains(&sought)
            || model.name.to_lowercase().contains(&sought)
            || model.endpoints.iter().any(|endpoint| is_provider(endpoint))
    };
    let models = snapshot.catalogue.models();
    let found = models.iter().map(|model| &***model).filter(is_sought);
    let page_of = Page {
        frame: viewer.frame(HERE),
        all: models.len(),
        models: found.map(|model| shown(&viewer, &snapshot, model)).collect(),
        wanted,
    };
    page(page_of.frame.status(), &page_of, None)
}

fn shown(viewer: &Viewer, snapshot: &Snapshot, model: &Model) -> Shown {
    let health = &viewer.app.gateway.health;
    let row = |endpoint: &Endpoint| {
        let group = health.group(&snapshot.ward, endpoint);
        let uptime = health.uptime(&snapshot.ward, endpoint).and_then(|uptime| uptime.half_hour);
        let (first, _) = health.percentiles(&snapshot.ward, endpoint);
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let price = |unit: Unit| match &endpoint.pricing {
            Some(pricing) => per_million(pricing.base.of(unit)),
            None => "unknown".to_owned(),
        };
        Row {
            provider: endpoint.provider_name.to_string(),
            tag: endpoint.tag.to_string(),
            context: count(endpoint.context_length),
            input: price(Unit::Input),
            output: price(Unit::Output),
            state: if endpoint.shared { state(group) } else { "own key only" },
            look: match (endpoint.shared, group) {
                (false, _) => "faint",
                (true, Group::Stable) => "well",
                (true, _) => "ill",
            },
            uptime: or_dash(uptime.map(|share| percent(share.into()))),
            first: or_dash(first.p50.map(|seconds| millis((f64::from(seconds) * 1_000.0) as u64))),
        }
    };
    Shown {
        id: model.id.to_string(),
        name: model.name.to_string(),
        endpoints: model.endpoints.iter().map(|endpoint| row(endpoint)).collect(),
    }
}

fn state(group: Group) -> &'static str {
    match group {
        Group::Stable => "well",
        Group::Degraded => "degraded",
        Group::Down => "down",
        Group::Outage => "out",
    }
}

/// Dollars for a million tokens, as price lists have it.
fn per_million(price: Price) -> String {
    format!("${}", tidegate_core::money::round(price.times(1_000_000)))
}
