//! A page on which a model can be asked. It calls the gateway as any client does, with a key that its reader types in: a
//! session alone calls nothing.

use askama::Template;
use tidegate_gateway::Failure;

use super::{Frame, Viewer, page};
use crate::router::Answer;

#[derive(Template)]
#[template(path = "dashboard/playground.html")]
struct Page {
    frame: Frame,
    models: Vec<String>,
}

pub(super) async fn show(viewer: Viewer) -> Result<Answer, Failure> {
    let snapshot = viewer.app.gateway.snapshot();
    // Those that anybody can call come first.
    let mut models = snapshot.catalogue.models();
    models.retain(|model| !model.endpoints.is_empty());
    models.sort_by_key(|model| !model.endpoints.iter().any(|endpoint| endpoint.shared));
    let models = models.into_iter().map(|model| model.id.to_string()).collect();
    let page_of = Page { frame: viewer.frame("/dashboard/playground"), models };
    page(page_of.frame.status(), &page_of, None)
}
