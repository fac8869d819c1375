//! `/generation/content`: what was said in a request, for workspaces that want it kept.

use std::time::Duration;

use http::StatusCode;
use tidegate_core::{GenerationId, KeyKind};
use tidegate_gateway::Failure;
use tidegate_gateway::contents::{Told, unpacked};

use super::account::{Answering, Request, data, deleted, internal, not_found};
use super::generation::{arrived, named};
use crate::router::Call;

/// How long what was said is waited for: it is written after its answer.
const ARRIVAL: Duration = Duration::from_millis(900);

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let id = named(&mut request)?;
        let ids = ids(&request, &id).await?;
        request.app.gateway.contents.written(ARRIVAL).await;
        let mut shown: Option<Told> = None;
        for id in &ids {
            let Some(told) = content(&request, id).await? else { continue };
            // A loop began with its first turn and ended as its last one did.
            shown = Some(match shown {
                Some(first) => Told { input: first.input, ..told },
                None => told,
            });
        }
        Ok(data(StatusCode::OK, &shown.ok_or_else(not_found)?))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let id = named(&mut request)?;
        let ids = ids(&request, &id).await?;
        // What is not written yet would appear after it was deleted.
        request.app.gateway.contents.written(ARRIVAL).await;
        let gone = request.app.store.delete_contents(&request.tenant, &request.by, &ids).await.map_err(internal)?;
        if gone > 0 { Ok(deleted()) } else { Err(not_found()) }
    })
}

/// The request and its turns, in their order, if the caller may see it. What was said may be kept for longer than the
/// record; then only those see it who see everything.
async fn ids(request: &Request, id: &str) -> Result<Vec<GenerationId>, Failure> {
    let Some(found) = arrived(request, id).await? else {
        let known = GenerationId::parse(id).filter(|_| request.key.kind == KeyKind::Management);
        return known.map(|id| vec![id]).ok_or_else(not_found);
    };
    let mut ids = vec![found.id];
    if found.parent.is_none() {
        let turns = request.app.store.find_turns(&request.tenant, &found.id).await.map_err(internal)?;
        ids.extend(turns.iter().map(|turn| turn.id));
    }
    Ok(ids)
}

async fn content(request: &Request, id: &GenerationId) -> Result<Option<Told>, Failure> {
    let app = &request.app;
    let found = app.store.find_content(&request.tenant, &app.vault, id).await.map_err(internal)?;
    let Some(found) = found else { return Ok(None) };
    unpacked(&found).map(Some).ok_or_else(|| {
        tracing::error!(generation_id = %id, "what was kept of a request cannot be read");
        Failure::internal()
    })
}
