//! Pages for people, rendered here; no script is needed for any of them. Start with `authorize`.

pub mod assets;
pub mod authorize;
pub mod errors;
mod session;

use askama::Template;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY};
use http::{Response, StatusCode};
use tidegate_gateway::Failure;
use tidegate_gateway::relay::Body;

use crate::router::{Answer, plain};

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
