//! Pages for people, rendered here; only the playground needs a script. Start with `authorize`, or with `dashboard`.

pub mod assets;
pub mod authorize;
pub mod dashboard;
pub mod errors;
pub mod oidc;
mod session;

use std::net::IpAddr;

use askama::Template;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
};
use http::{Response, StatusCode};
use tidegate_core::{RequestId, Timestamp};
use tidegate_gateway::Failure;
use tidegate_gateway::relay::Body;
use tidegate_store::audit::{Actor, By};

use crate::api::form::Query;
use crate::body::{self, Limits};
use crate::router::{Answer, Call, plain};
use crate::state::App;

const FORM_BYTES: usize = 64 << 10;
const FORM: &str = "application/x-www-form-urlencoded";

const FRAME_OPTIONS: HeaderName = HeaderName::from_static("x-frame-options");
const CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// A page that no cache keeps, no other site frames, and that tells nobody where its reader came from. Its forms lead
/// to this site and to `form_target`, which is where an authorization redirects to.
fn page(status: StatusCode, template: &impl Template, form_target: Option<&str>) -> Result<Answer, Failure> {
    let html = template.render().map_err(|error| {
        tracing::error!(%error, "a page could not be rendered");
        Failure::internal()
    })?;
    let mut answer = plain(status, "text/html; charset=utf-8", html);
    let target = form_target.map(|target| format!(" {target}")).unwrap_or_default();
    let policy = format!("default-src 'self'; frame-ancestors 'none'; form-action 'self'{target}");
    let policy = HeaderValue::from_str(&policy).map_err(|_| Failure::internal())?;
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    guard(&mut answer);
    Ok(answer)
}

/// To another address, by GET.
fn see_other(location: &str) -> Result<Answer, Failure> {
    let mut answer = Response::new(Body::full(Bytes::new()));
    *answer.status_mut() = StatusCode::SEE_OTHER;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_str(location).map_err(|_| Failure::internal())?);
    guard(&mut answer);
    Ok(answer)
}

fn guard(answer: &mut Answer) {
    let headers = answer.headers_mut();
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

#[derive(Template)]
#[template(path = "notice.html")]
struct Notice<'a> {
    brand: &'a str,
    heading: &'a str,
    paragraphs: &'a [&'a str],
    problems: &'a [(String, String)],
}

fn notice(app: &App, status: StatusCode, heading: &str, paragraphs: &[&str]) -> Result<Answer, Failure> {
    page(status, &Notice { brand: &app.brand(), heading, paragraphs, problems: &[] }, None)
}

fn needs_https(app: &App) -> Result<Answer, Failure> {
    let text = "This page was reached over plain http, where a key could be read on its way. Serve it over https and \
                set service.public_url, or open it on the machine the gateway runs on.";
    notice(app, StatusCode::BAD_REQUEST, "Sign-in needs https", &[text])
}

/// The fields of a form.
async fn form(call: Call) -> Result<Query, Failure> {
    let app = &call.app;
    let limits = Limits::of(app, None, FORM_BYTES);
    let kind = call.head.headers.get(CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    if !kind.starts_with(FORM.as_bytes()) {
        return Err(Failure::invalid(format!("Invalid request: Content-Type must be {FORM}")));
    }
    let bytes = body::read_plain(&call.head.headers, call.body, limits).await?;
    let text = std::str::from_utf8(&bytes).map_err(|_| Failure::invalid("Invalid request: body must be UTF-8"))?;
    Ok(Query::read(Some(text)))
}

/// Who does something on a page.
fn by(actor: Actor, request: RequestId, source: IpAddr, at: Timestamp) -> By {
    let (request, address) = (Some(request.as_str().into()), Some(source.to_string().into()));
    By { actor, request, address, at }
}
