//! Who is told of requests, how that goes, and a button to try it.

use askama::Template;
use tidegate_gateway::{Failure, broadcast};
use tidegate_observe::broadcast::Kind;
use tidegate_store::destinations::DestinationRow;

use super::words::{count, instant};
use super::{Frame, Viewer, page};
use crate::api::account::{internal, not_found};
use crate::api::destinations;
use crate::api::form::{Query, parse_uuid};
use crate::router::Answer;

const HERE: &str = "/dashboard/destinations";
const SHOWN: u32 = 200;

#[derive(Template)]
#[template(path = "dashboard/destinations.html")]
struct Page {
    frame: Frame,
    rows: Vec<Row>,
}

struct Row {
    id: String,
    name: String,
    kind: String,
    enabled: bool,
    queued: String,
    delivered: String,
    failed: String,
    last_error: String,
    last_success: String,
}

pub(super) async fn show(viewer: Viewer) -> Result<Answer, Failure> {
    shown(&viewer, Ok(None)).await
}

async fn shown(viewer: &Viewer, said: Result<Option<String>, String>) -> Result<Answer, Failure> {
    let (store, tenant) = (&viewer.app.store, &viewer.tenant);
    let (found, _) = store.list_destinations(tenant, None, 0, SHOWN).await.map_err(internal)?;
    let gateway = &viewer.app.gateway;
    let mut rows = Vec::new();
    for destination in found {
        // What waits is told as far as it can be read; the rest of the page does not depend on it.
        let waiting = viewer.app.journal.outbox_standing(&destination.id).await.ok();
        let standing = gateway.tallies.standing(&destination.id, gateway.clock.now());
        let (queued, known) = waiting.map(|(queued, _, known)| (queued, known)).unwrap_or_default();
        rows.push(Row {
            id: destination.id,
            name: destination.name,
            kind: destination.kind,
            enabled: destination.enabled,
            queued: count(queued),
            delivered: count(standing.delivered),
            failed: count(standing.failed + standing.dropped),
            last_error: standing.last_error.or(known).unwrap_or_default(),
            last_success: standing.last_success.map(instant).unwrap_or_default(),
        });
    }
    let page_of = Page { frame: viewer.frame(HERE).with(said), rows };
    page(page_of.frame.status(), &page_of, None)
}

pub(super) async fn test(viewer: Viewer, mut form: Query) -> Result<Answer, Failure> {
    let id = form.text("id").and_then(|text| parse_uuid(&text)).ok_or_else(not_found)?;
    let found = viewer.app.store.find_destination(&viewer.tenant, &id).await.map_err(internal)?;
    let row = found.ok_or_else(not_found)?;
    let said = tried(&viewer, &row).await;
    shown(&viewer, said.map(Some).map_err(|problem| format!("{}: {problem}", row.name))).await
}

async fn tried(viewer: &Viewer, row: &DestinationRow) -> Result<String, String> {
    let gateway = &viewer.app.gateway;
    if let Err(error) = viewer.app.vault.refresh_if_changed().await {
        tracing::warn!(%error, "the ring of master keys cannot be read");
    }
    let kind = Kind::parse(&row.kind).ok_or("is of a type that this release does not know.")?;
    let config = broadcast::opened(&viewer.app.vault, &row.id, &row.sealed).ok_or("its settings cannot be opened.")?;
    let target = config.target(kind).map_err(|wrong| format!("{} {}.", wrong.member, wrong.message))?;
    broadcast::may_be_called(&target.url, &gateway.snapshot().settings.egress)
        .map_err(|problem| format!("its address {problem}."))?;
    match destinations::tried(gateway, (kind, &row.id), target).await {
        Ok(()) => Ok(format!("{} answers and lets us in.", row.name)),
        Err((Some(status), problem)) => Err(format!("{problem} (status {status}).")),
        Err((None, problem)) => Err(format!("{problem}.")),
    }
}
