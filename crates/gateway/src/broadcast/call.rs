//! A call to a destination: what it carries beside the letters, how it is signed, and what its answer means.

use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Uri};
use tidegate_core::Timestamp;
use tidegate_observe::broadcast::object::Bucket;
use tidegate_observe::broadcast::{Destination, Kind, Parcel, Shape, Verb};
use tidegate_providers::sigv4;
use tidegate_store::journal::Waiting;
use tokio::time::timeout;

use super::packed;
use crate::Gateway;
use crate::upstream::Pieces;

pub(super) const CALL: Duration = Duration::from_secs(10);

/// What came of a call.
pub(super) enum Answer {
    Taken,
    /// Another try may go well, after so long at least.
    Later(String, Option<Duration>),
    /// It will never be taken.
    Never(String),
    /// It is too much at once.
    TooLarge,
}

impl Answer {
    pub fn of(called: Result<(u16, Option<u64>), &'static str>) -> Self {
        match called {
            Err(problem) => Self::Later(problem.to_owned(), None),
            Ok((status, wait)) => match status {
                200..300 => Self::Taken,
                413 => Self::TooLarge,
                408 | 425 | 429 | 500.. => Self::Later(format!("status {status}"), wait.map(Duration::from_secs)),
                _ => Self::Never(format!("status {status}")),
            },
        }
    }

    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Taken => "delivered",
            Self::Later(..) => "postponed",
            Self::Never(_) => "refused",
            Self::TooLarge => "too_large",
        }
    }
}

/// What webhooks get beside the rest.
pub(super) fn headers(
    gateway: &Gateway,
    destination: &Destination,
    letters: &[&Waiting],
    body: &[u8],
) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    if destination.kind == Kind::Webhook {
        let snapshot = gateway.snapshot();
        let brand = &snapshot.settings.brand;
        let mut add = |name: &str, value: String| {
            let name = HeaderName::from_bytes(format!("x-{brand}-{name}").as_bytes()).ok()?;
            headers.insert(name, HeaderValue::from_str(&value).ok()?)
        };
        add("delivery", delivery_id(letters));
        add("attempt", (letters.first()?.attempts + 1).to_string());
        if let Some(secret) = &snapshot.settings.audience.webhook_secret {
            let at = gateway.clock.now().0 / 1_000;
            add("signature", format!("t={at},v1={}", secret.expose(|key| signature(key, at, body))));
        }
    }
    Some(headers)
}

/// Calls a destination: the status of its answer, and after how many seconds it wants to be asked again.
pub(super) async fn call(
    gateway: &Gateway,
    destination: &Destination,
    mut headers: HeaderMap,
    parcel: Parcel,
) -> Result<(u16, Option<u64>), &'static str> {
    let target = &destination.target;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(parcel.content_type));
    for (name, value) in &target.headers {
        let mut value = value.expose(HeaderValue::from_bytes).map_err(|_| "a header cannot be sent")?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| "a header cannot be sent")?, value);
    }
    let method = match parcel.verb {
        Verb::Get => Method::GET,
        Verb::Post => Method::POST,
        Verb::Put => Method::PUT,
    };
    let uri: Uri = parcel.url.parse().map_err(|_| "no address")?;
    if let Shape::Object(bucket) = &target.shape {
        sign(bucket, &method, &uri, &mut headers, &parcel.body, gateway.clock.now()).ok_or("it cannot be signed")?;
    }
    let mut body = Bytes::from(parcel.body);
    if target.is_packed {
        body = packed(&body).ok_or("it cannot be packed")?.into();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if !destination.is_operators {
        let rules = &gateway.snapshot().settings.egress;
        let sent = gateway.egress.send(&parcel.url, method, headers, body, rules).await;
        return sent.map_err(|refused| match refused.is_port() {
            true => "its port is not among egress.ports",
            false => "it cannot be reached",
        });
    }
    let sent = gateway.upstream.request(method, &uri, headers, Pieces::from(body)).await;
    let response = sent.map_err(|_| "it cannot be reached")?;
    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok((response.status().as_u16(), wait))
}

fn sign(
    bucket: &Bucket,
    method: &Method,
    uri: &Uri,
    headers: &mut HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<()> {
    let service = sigv4::Service { region: &bucket.region, name: "s3" };
    let mut signed = |token: Option<&[u8]>| {
        bucket.access_key_id.expose(|id| {
            let access_key_id = std::str::from_utf8(id).ok()?;
            bucket.secret_access_key.expose(|secret_access_key| {
                let keys = sigv4::Credentials { access_key_id, secret_access_key, session_token: token };
                sigv4::sign(method, uri, headers, body, &keys, &service, now).ok()
            })
        })
    };
    match &bucket.session_token {
        None => signed(None),
        Some(token) => token.expose(|token| signed(Some(token))),
    }
}

/// Asks a destination to take nothing at all, to see whether it is there and lets us in.
pub async fn test(gateway: &Gateway, destination: &Destination) -> Result<u16, &'static str> {
    let mut outcome = Err("no address");
    for trial in destination.target.trials() {
        let mut headers = HeaderMap::new();
        headers.insert("x-test-connection", HeaderValue::from_static("true"));
        let called = timeout(CALL, call(gateway, destination, headers, trial)).await;
        outcome = called.unwrap_or(Err("no answer in time")).map(|(status, _)| status);
        // Who cannot be reached at all will not be at the second try.
        if matches!(outcome, Ok(200..300) | Err(_)) {
            break;
        }
    }
    outcome
}

/// The same for the same letters, however often they are sent.
fn delivery_id(letters: &[&Waiting]) -> String {
    let names: Vec<&str> = letters.iter().map(|letter| letter.generation.as_str()).collect();
    let hash = digest::digest(&digest::SHA256, names.join(",").as_bytes());
    let hex: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    // Of the version whose bits are anybody's own.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

fn signature(key: &[u8], at: i64, body: &[u8]) -> String {
    let signed = [format!("{at}.").as_bytes(), body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
