//! What all account operations share: who calls, how a body is read, how an answer is made.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use hyper::body::Incoming;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tidegate_core::{Money, Tenant, Timestamp, WorkspaceId};
use tidegate_gateway::{Failure, KeyEntry};
use tidegate_store::StoreError;
use tidegate_store::audit::{Actor, By};
use tidegate_store::idempotency::Once;
use tidegate_wire::error::ErrorType;

use super::form::{Query, refused};
use crate::body::{self, Limits};
use crate::router::{Answer, Call, plain};
use crate::state::App;

pub type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

const BODY_BYTES: usize = 256 << 10;
const LONGEST_IDEMPOTENCY_KEY: usize = 255;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer is that of an earlier call.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A caller with a key, and everything an operation needs of the request.
pub struct Request {
    pub app: Arc<App>,
    pub key: Arc<KeyEntry>,
    pub tenant: Tenant,
    pub by: By,
    pub query: Query,
    params: Vec<String>,
    headers: http::HeaderMap,
    body: Option<Incoming>,
}

/// How long an answer about spending waits for calls that were just settled.
const SETTLED: Duration = Duration::from_secs(1);

impl Request {
    pub fn of(call: Call) -> Result<Self, Failure> {
        let now = call.app.gateway.clock.now();
        let key = call.key.ok_or_else(Failure::missing_credential)?;
        Ok(Self {
            tenant: Tenant { organisation: key.organisation.clone() },
            by: By {
                actor: Actor::Key(key.hash),
                request: Some(call.request.as_str().into()),
                address: Some(call.peer.ip().to_string().into()),
                at: now,
            },
            app: call.app,
            key,
            query: Query::read(call.head.uri.query()),
            params: call.params,
            headers: call.head.headers,
            body: Some(call.body),
        })
    }

    pub fn now(&self) -> Timestamp {
        self.by.at
    }

    /// The moment that windows of spending are computed from. Before it is told, everything that was settled before this
    /// call is in the store: whoever has paid sees it.
    pub async fn settled(&self) -> Timestamp {
        let ledger = &self.app.gateway.ledger;
        if !ledger.forwarded(SETTLED).await {
            tracing::warn!("spending is shown without the calls that still wait in the journal");
        }
        ledger.now()
    }

    /// Budgets or grants were changed: on this node that holds at once, on others within a second.
    pub async fn limits_changed(&self) {
        if let Err(error) = self.app.gateway.ledger.reload_limits(&self.app.store).await {
            tracing::warn!(%error, "changed limits hold a moment later");
        }
    }

    /// The variable part of the path at this place.
    pub fn param(&self, place: usize) -> &str {
        self.params.get(place).map_or("", String::as_str)
    }

    pub fn headers(&self) -> &http::HeaderMap {
        &self.headers
    }

    /// The body, which must be JSON; it can be taken once.
    pub async fn body(&mut self) -> Result<Bytes, Failure> {
        let Some(body) = self.body.take() else { return Ok(Bytes::new()) };
        let body = read_body(&self.app, Some(&self.key), &self.headers, body).await?;
        // A body can take its time; what is decided about it is decided now.
        self.by.at = self.app.gateway.clock.now();
        Ok(body)
    }

    /// The same for a body that holds that of a message, which may be as large as one.
    pub async fn message_body(&mut self) -> Result<Bytes, Failure> {
        let Some(body) = self.body.take() else { return Ok(Bytes::new()) };
        let most = self.app.gateway.snapshot().settings.max_body_bytes;
        let body = read_within(Limits::of(&self.app, Some(&self.key), most), &self.headers, body).await?;
        self.by.at = self.app.gateway.clock.now();
        Ok(body)
    }

    /// The body of a form that may hold a file.
    pub async fn form_body(&mut self, most: usize) -> Result<Bytes, Failure> {
        let Some(body) = self.body.take() else { return Ok(Bytes::new()) };
        let limits = Limits::of(&self.app, Some(&self.key), most);
        let body = body::read_plain(&self.headers, body, limits).await?;
        self.by.at = self.app.gateway.clock.now();
        Ok(body)
    }

    /// The workspace that a request names, or the default one. `path` is where the name stands.
    pub async fn workspace(&self, path: &str, id: Option<String>) -> Result<WorkspaceId, Failure> {
        match id {
            Some(id) => {
                let id = WorkspaceId(id.into());
                let found = self.app.store.find_workspace(&self.tenant, &id).await.map_err(internal)?;
                found.map(|workspace| workspace.id).ok_or_else(|| refused(path, "is not a workspace of this account"))
            }
            None => {
                let found = self.app.store.default_workspace(&self.tenant).await.map_err(internal)?;
                found.map(|workspace| workspace.id).ok_or_else(|| refused(path, "is required: there is no default"))
            }
        }
    }
}

/// The JSON body of an account operation.
pub async fn read_body(
    app: &App,
    key: Option<&KeyEntry>,
    headers: &http::HeaderMap,
    body: Incoming,
) -> Result<Bytes, Failure> {
    read_within(Limits::of(app, key, BODY_BYTES), headers, body).await
}

async fn read_within(limits: Limits<'_>, headers: &http::HeaderMap, body: Incoming) -> Result<Bytes, Failure> {
    body::read_json(headers, body, limits).await.map_err(|failure| match failure.status {
        // What is wrong with a body is told in one form, whatever is wrong with it.
        400 => refused("", failure.message.trim_start_matches("Invalid request: ").to_owned()),
        _ => failure,
    })
}

/// The name that a call gives itself, so that it acts once however often it is sent.
pub fn once(headers: &http::HeaderMap, route: &str, body: &[u8]) -> Result<Option<Once>, Failure> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let fits = (1..=LONGEST_IDEMPOTENCY_KEY).contains(&value.len());
    match value.to_str() {
        Ok(name) if fits => Ok(Some(Once::new(name, route, body))),
        _ => Err(refused("Idempotency-Key", "must be 1 to 255 visible ASCII characters")),
    }
}

/// The store's own fault: its cause is logged, the caller learns only that it was not theirs.
pub fn internal(error: StoreError) -> Failure {
    let mut chain = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        chain.push_str(": ");
        chain.push_str(&error.to_string());
        cause = error.source();
    }
    tracing::error!(error = chain, "the store failed an account operation");
    Failure::internal()
}

/// Absent, deleted or somebody else's: all look alike.
pub fn not_found() -> Failure {
    Failure::new(404, ErrorType::NotFound, "Resource not found")
}

pub fn conflict() -> Failure {
    let message = "Resource conflict. Please try again later.";
    Failure { retry_after: Some(1), ..Failure::new(409, ErrorType::InvalidRequest, message) }
}

/// A JSON answer that no cache keeps.
pub fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let text = serde_json::to_string(body).expect("answers are made of plain values");
    let mut answer = plain(status, "application/json", text);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// `{"data": …}`.
pub fn data(status: StatusCode, data: &impl Serialize) -> Answer {
    #[derive(Serialize)]
    struct Data<'a, T> {
        data: &'a T,
    }
    answer(status, &Data { data })
}

/// `{"data": […], "total_count": …}`.
pub fn page(items: &[impl Serialize], total_count: u64) -> Answer {
    #[derive(Serialize)]
    struct Page<'a, T> {
        data: &'a [T],
        total_count: u64,
    }
    answer(StatusCode::OK, &Page { data: items, total_count })
}

/// `{"deleted": true}`.
pub fn deleted() -> Answer {
    answer(StatusCode::OK, &serde_json::json!({"deleted": true}))
}

/// Dollars as a JSON number, to the last digit.
#[derive(Clone, Copy, Debug)]
pub struct Dollars(pub Money);

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.to_string()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// An instant in RFC 3339 with milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Instant(pub Timestamp);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0 as &dyn fmt::Display)
    }
}
