//! Is it alive, is it ready, what is it, how is it doing.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tidegate_core::{KeyKind, Timestamp};
use tidegate_gateway::Failure;
use tidegate_observe::metrics::text::accepted;
use tokio::time::timeout;

use crate::router::{Answer, Call, plain};

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

const JSON: &str = "application/json";
const STORE_LIMIT: Duration = Duration::from_secs(1);

pub fn alive(_: Call) -> Answering {
    // That this code runs is the answer: the loop that carries it is the one that serves requests.
    Box::pin(async { Ok(plain(StatusCode::OK, JSON, r#"{"status":"ok"}"#)) })
}

pub fn ready(call: Call) -> Answering {
    Box::pin(async move {
        let app = call.app;
        let store = matches!(timeout(STORE_LIMIT, app.store.ping()).await, Ok(Ok(())));
        let checks = [
            ("store", store, "the store answers"),
            ("catalogue", !app.gateway.snapshot().catalogue.is_empty(), "there is a model to call"),
            ("draining", !app.gateway.is_leaving(), "new requests are welcome"),
        ];
        let is_ready = checks.iter().all(|(_, ok, _)| *ok);
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        // Details are for operators.
        let presented = call.head.headers.contains_key(http::header::AUTHORIZATION);
        let key = if presented {
            app.gateway.authenticate(&call.head.headers, call.peer.ip(), false).await.ok()
        } else {
            None
        };
        let body = if key.is_some_and(|key| key.kind == KeyKind::Management) {
            let checks: serde_json::Map<_, _> = checks
                .iter()
                .map(|(name, ok, detail)| ((*name).to_owned(), json!({"ok": ok, "detail": detail})))
                .collect();
            json!({"status": if is_ready { "ready" } else { "not ready" }, "checks": checks})
        } else {
            let checks: serde_json::Map<_, _> =
                checks.iter().map(|(name, ok, _)| ((*name).to_owned(), json!({"ok": ok}))).collect();
            json!({"status": if is_ready { "ready" } else { "not ready" }, "checks": checks})
        };
        Ok(plain(status, JSON, body.to_string()))
    })
}

pub fn version(_: Call) -> Answering {
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": crate::COMMIT,
        "built_at": built_at().map(|at| at.to_string()),
        "schema": tidegate_store::SCHEMA,
    });
    Box::pin(async move { Ok(plain(StatusCode::OK, JSON, body.to_string())) })
}

/// When the program was built: as whoever built it said, else when its file was written.
fn built_at() -> Option<Timestamp> {
    let said = option_env!("TIDEGATE_BUILT_AT").and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let written = || {
        let written = std::env::current_exe().and_then(std::fs::metadata).and_then(|file| file.modified()).ok()?;
        jiff::Timestamp::try_from(written).ok()
    };
    said.or_else(written).map(|at| Timestamp(at.as_millisecond()))
}

pub fn metrics(call: Call) -> Answering {
    let accept = call.head.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let (kind, text) = accepted(accept, call.app.gateway.metrics_text());
    Box::pin(async move { Ok(plain(StatusCode::OK, kind, text)) })
}
