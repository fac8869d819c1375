//! Pages of other origins that call from a browser: where an operator lets them, with a key of their own. No credential that
//! the browser holds by itself is ever used for such a call.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HeaderMap, HeaderValue,
    ORIGIN, VARY,
};
use http::{Response, StatusCode};
use tidegate_gateway::relay::Body;

use crate::router::Answer;
use crate::routes::{Callers, Mount, Route};
use crate::state::App;

const ANY: HeaderValue = HeaderValue::from_static("*");

/// Who may read an answer, if it is a page of another origin that asks: any of them where the route is open to all, those
/// that the operator names where callers have a key. What is managed is managed elsewhere.
pub fn reader(app: &App, route: &Route, headers: &HeaderMap) -> Option<HeaderValue> {
    if route.cors {
        return Some(ANY);
    }
    let origin = headers.get(ORIGIN)?;
    if route.mount != Mount::Api || !matches!(route.callers, Callers::Inference | Callers::Both) {
        return None;
    }
    let snapshot = app.gateway.snapshot();
    let allowed = &snapshot.settings.cors_origins;
    if allowed.contains(&ANY) {
        return Some(ANY);
    }
    allowed.contains(origin).then(|| origin.clone())
}

/// The answer to a browser that asks before it sends.
pub fn preflight(asked: &HeaderMap, methods: &str) -> Answer {
    let mut answer = Response::new(Body::full(bytes::Bytes::new()));
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    if let Ok(methods) = HeaderValue::from_str(methods) {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    // A star does not stand for the header that carries the key.
    let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned().unwrap_or(ANY);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    answer
}

/// The answer, readable by that origin.
pub fn opened(mut answer: Answer, reader: Option<HeaderValue>) -> Answer {
    let Some(reader) = reader else { return answer };
    let headers = answer.headers_mut();
    if reader != ANY {
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, reader);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ANY);
    answer
}
