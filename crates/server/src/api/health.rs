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
use crate::state::App;

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
        let store = match timeout(STORE_LIMIT, app.store.ping()).await {
            Ok(Ok(())) => Check::ok("store", "the store answers"),
            Ok(Err(_)) => Check::failed("store", "the store answers with an error; the log says more"),
            Err(_) => Check::failed("store", "the store does not answer within a second"),
        };
        let [migrations, keyring] = lasting(&app, store.is_ok).await;
        let catalogue = match app.gateway.snapshot().catalogue.is_empty() {
            false => Check::ok("catalogue", "there is a model to call"),
            true => Check::failed("catalogue", "there is no model to call: name a provider or a model"),
        };
        let draining = match app.gateway.is_leaving() {
            false => Check::ok("draining", "new requests are welcome"),
            true => Check::failed("draining", "the gateway is stopping"),
        };
        let checks = [store, migrations, keyring, catalogue, draining];
        let is_ready = checks.iter().all(|check| check.is_ok);
        let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        // Details are for operators.
        let presented = call.head.headers.contains_key(http::header::AUTHORIZATION);
        let key = if presented {
            app.gateway.authenticate(&call.head.headers, call.peer.ip(), false).await.ok()
        } else {
            None
        };
        let is_operator = key.is_some_and(|key| key.kind == KeyKind::Management);
        let told = |check: &Check| match is_operator {
            true => json!({"ok": check.is_ok, "detail": check.detail}),
            false => json!({"ok": check.is_ok}),
        };
        let checks: serde_json::Map<_, _> = checks.iter().map(|check| (check.name.to_owned(), told(check))).collect();
        let body = json!({"status": if is_ready { "ready" } else { "not ready" }, "checks": checks});
        Ok(plain(status, JSON, body.to_string()))
    })
}

/// One thing that must be right.
struct Check {
    name: &'static str,
    is_ok: bool,
    detail: &'static str,
}

impl Check {
    fn ok(name: &'static str, detail: &'static str) -> Self {
        Self { name, is_ok: true, detail }
    }

    fn failed(name: &'static str, detail: &'static str) -> Self {
        Self { name, is_ok: false, detail }
    }
}

/// What seldom changes, and is looked at now and then: whether the tables are those of this build, and whether stored
/// secrets open.
async fn lasting(app: &App, store_answers: bool) -> [Check; 2] {
    let right = || {
        [
            Check::ok("migrations", "the tables are those of this build"),
            Check::ok("keyring", "the master keys are those of the stored secrets"),
        ]
    };
    if app.proved.is_fresh(app.gateway.clock.instant()) {
        return right();
    }
    let unknown = "nobody knows while the store does not answer";
    if !store_answers {
        return [Check::failed("migrations", unknown), Check::failed("keyring", unknown)];
    }
    let migrations = match timeout(STORE_LIMIT, app.store.is_migrated()).await {
        Ok(Ok(true)) => Check::ok("migrations", right()[0].detail),
        Ok(Ok(false)) => Check::failed("migrations", "the tables are older than this build: start it anew"),
        Ok(Err(_)) | Err(_) => Check::failed("migrations", unknown),
    };
    let keyring = match timeout(STORE_LIMIT, app.store.is_ring_right(&app.vault)).await {
        Ok(Ok(true)) => Check::ok("keyring", right()[1].detail),
        Ok(Ok(false)) => {
            Check::failed("keyring", "the master keys do not open what is stored: put the right ones back")
        }
        Ok(Err(_)) | Err(_) => Check::failed("keyring", "the store or the master keys cannot be read"),
    };
    let checks = [migrations, keyring];
    if checks.iter().all(|check| check.is_ok) {
        app.proved.note(app.gateway.clock.instant());
    }
    checks
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
