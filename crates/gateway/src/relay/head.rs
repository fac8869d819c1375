//! The head of a request, and that of its answer.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{HeaderMap, StatusCode};
use tidegate_core::{Api, GenerationId};
use tidegate_providers::anthropic::{self, Forwarded};
use tidegate_wire::envelope::Envelope;
use tidegate_wire::preset::Words;

use super::settle::{Asker, Sender};
use super::stream::Body;
use crate::failure::Failure;
use crate::snapshot::Names;

pub(crate) const GENERATION_ID: HeaderName = HeaderName::from_static("x-generation-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const HTTP_REFERER: HeaderName = HeaderName::from_static("http-referer");
const X_TITLE: HeaderName = HeaderName::from_static("x-title");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const X_SESSION_ID: HeaderName = HeaderName::from_static("x-session-id");
const LONGEST_SESSION: usize = 256;

/// How a request came: what its head says, and in which format its body was.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub headers: &'a HeaderMap,
    /// The raw query string.
    pub query: &'a str,
    pub api: Api,
    /// What it was said in, for a preset that it names.
    pub words: Words,
    /// What requests share that begin alike, in the caller's words: a conversation where no session is named.
    pub cache_key: Option<&'a str>,
}

/// An answer on its way to the client.
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Body,
}

/// What the head says about who sent a request, cut to a sensible length.
pub(super) fn sender(headers: &HeaderMap, names: &Names, session: Option<&str>) -> Sender {
    const LONGEST: usize = 512;
    let text = |name: &HeaderName| -> Option<Box<str>> {
        let text = headers.get(name)?.to_str().ok()?;
        let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(place, _)| place);
        (end > 0).then(|| text[..end].into())
    };
    Sender {
        session: session.map(Into::into),
        user_agent: text(&USER_AGENT),
        referer: text(&HTTP_REFERER).or_else(|| text(&REFERER)),
        title: names.title_headers.iter().find_map(text).or_else(|| text(&X_TITLE)),
        trace: text(&TRACEPARENT),
    }
}

/// Who sent a request, for records of what is done before it has one.
pub(crate) fn asker(headers: &HeaderMap, names: &Names, envelope: &Envelope<'_>) -> Asker {
    let session = envelope.session_id.as_deref().or_else(|| header_session(headers, names).ok().flatten());
    let user = envelope.user.as_deref().or(envelope.metadata_user.as_deref());
    Asker::of(sender(headers, names, session), user)
}

pub(crate) fn forwarded(headers: &HeaderMap) -> Forwarded {
    Forwarded {
        version: headers.get(anthropic::VERSION).map(apart),
        beta: anthropic::merged_betas(headers),
        idempotency_key: headers.get(anthropic::IDEMPOTENCY_KEY).map(apart),
    }
}

/// The value in memory of its own. As it came it is a piece of what was read from the connection, and all of that stays as
/// long as any piece of it is held: for a stream that is long.
fn apart(value: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
}

/// `x-session-id`, under the same limit as the member of the body; else what the operator has read in its place, which
/// clients may send for others: what is too long for a session is none.
pub(crate) fn header_session<'h>(headers: &'h HeaderMap, names: &Names) -> Result<Option<&'h str>, Failure> {
    let said = |name: &HeaderName| headers.get(name)?.to_str().ok().filter(|session| !session.is_empty());
    let fits = |session: &&str| session.chars().count() <= LONGEST_SESSION;
    match said(&X_SESSION_ID) {
        Some(session) if !fits(&session) => {
            Err(Failure::invalid(format!("Invalid request: session_id must be at most {LONGEST_SESSION} characters")))
        }
        None => Ok(names.session_headers.iter().filter_map(said).find(fits)),
        session => Ok(session),
    }
}

/// The opt-in header; the legacy spelling counts only when the current one is absent.
pub(super) fn wants_metadata(headers: &HeaderMap, names: &Names) -> bool {
    let header = names.metadata_headers.iter().find_map(|name| headers.get(name));
    header.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"enabled"))
}

pub(crate) fn reply(id: GenerationId, names: &Names, body: Body, stream: bool, warnings: &[String]) -> Reply {
    let mut headers = HeaderMap::with_capacity(8);
    let id = HeaderValue::from_str(id.as_str()).expect("an id is plain ASCII");
    headers.insert(GENERATION_ID, id.clone());
    headers.insert(REQUEST_ID, id.clone());
    headers.insert(X_REQUEST_ID, id);
    if stream {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(value) = said(warnings) {
        headers.insert(names.warnings_header.clone(), value);
    }
    Reply { status: StatusCode::OK, headers, body }
}

/// Warnings as a header says them; nothing where there are none. One that cannot be said does not silence the others.
pub(crate) fn said(warnings: &[String]) -> Option<HeaderValue> {
    let can_be_said = |text: &&str| HeaderValue::from_str(text).is_ok();
    let said: Vec<&str> = warnings.iter().map(String::as_str).filter(can_be_said).collect();
    if said.is_empty() { None } else { HeaderValue::from_str(&said.join(",")).ok() }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::snapshot::Settings;

    #[test]
    fn an_application_is_called_as_the_header_of_the_brand_says() {
        let settings = Settings { brand_aliases: vec!["old".to_owned()], ..Settings::default() };
        let names = Names::of(&settings);
        let mut headers = HeaderMap::new();
        for (name, value) in [("x-title", "any"), ("x-old-title", "alias"), ("x-tidegate-title", "own")] {
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(sender(&headers, &names, None).title.as_deref(), Some(value));
        }
        headers.insert("x-tidegate-title", HeaderValue::from_static(""));
        assert_eq!(sender(&headers, &names, None).title.as_deref(), Some("alias"), "an empty one says nothing");
    }

    #[test]
    fn a_session_is_named_by_our_header_before_those_of_others() {
        let routing = crate::snapshot::Routing {
            session_headers: ["x-chat", "x-thread"].map(HeaderName::from_static).to_vec(),
            ..Settings::default().routing
        };
        let names = Names::of(&Settings { routing, ..Settings::default() });
        let long = "s".repeat(257);
        for (said, expected) in [
            (&[][..], Ok(None)),
            (&[("x-thread", "t"), ("x-chat", "c"), ("x-session-id", "s")], Ok(Some("s"))),
            (&[("x-thread", "t"), ("x-chat", "c"), ("x-session-id", "")], Ok(Some("c"))),
            (&[("x-thread", "t"), ("x-chat", &long)], Ok(Some("t"))),
            (&[("x-thread", "t"), ("x-session-id", &long)], Err(400)),
        ] {
            let pairs = said.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_str(value).expect("it is plain"))
            });
            let headers: HeaderMap = pairs.collect();
            assert_eq!(header_session(&headers, &names).map_err(|failure| failure.status), expected, "{said:?}");
        }
    }
}
