//! Every operation of the server in one table: method, path, who may call it, how its errors look. The router is made
//! from this table and nothing else, so a route without a declaration cannot exist and what is not listed is refused.

use http::Method;

use crate::api::{health, messages, pages};
use crate::router::Handler;

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    Anyone,
    Inference,
    Management,
}

/// Where an operation is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// At the root of the site.
    Site,
    /// Under `/api/v1`, and under `/v1` for clients whose base address ends before it.
    Api,
}

/// The form of an operation's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    Messages,
    General,
}

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub mount: Mount,
    pub callers: Callers,
    pub surface: Surface,
    pub summary: &'static str,
    pub handler: Handler,
}

const fn api(method: Method, path: &'static str, callers: Callers, summary: &'static str, handler: Handler) -> Route {
    Route { method, path, mount: Mount::Api, callers, surface: Surface::General, summary, handler }
}

const fn site(path: &'static str, callers: Callers, summary: &'static str, handler: Handler) -> Route {
    Route { method: Method::GET, path, mount: Mount::Site, callers, surface: Surface::General, summary, handler }
}

const fn inference(path: &'static str, summary: &'static str, handler: Handler) -> Route {
    let (mount, callers, surface) = (Mount::Api, Callers::Inference, Surface::Messages);
    Route { method: Method::POST, path, mount, callers, surface, summary, handler }
}

pub static ROUTES: &[Route] = &[
    inference("/messages", "Create a message, streamed or not", messages::create),
    inference("/messages/count_tokens", "Count input tokens without generating", messages::count_tokens),
    api(Method::GET, "/openapi.json", Callers::Anyone, "This interface as an OpenAPI document", pages::openapi),
    site("/", Callers::Anyone, "What this is and how to call it", pages::home),
    site("/healthz", Callers::Anyone, "Whether the process is alive", health::alive),
    site("/readyz", Callers::Anyone, "Whether requests can be served", health::ready),
    site("/version", Callers::Management, "The running build", health::version),
    site("/metrics", Callers::Management, "Metrics in Prometheus' text format", health::metrics),
];

/// The full paths of a route.
pub fn paths(route: &Route) -> Vec<String> {
    match route.mount {
        Mount::Site => vec![route.path.to_owned()],
        Mount::Api => vec![format!("/api/v1{}", route.path), format!("/v1{}", route.path)],
    }
}
