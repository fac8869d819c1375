//! Anthropic's Messages protocol: `request` reads, `render` writes, `error` has the vendor's errors.

mod error;
mod render;
mod request;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::request::Parts;
use serde_json::Value;

use self::render::Content;
pub(crate) use self::request::Request;
use crate::events::{Events, Writer};
use crate::failure::Failure;
use crate::quirk::Protocol;
use crate::refuse::Path;
use crate::said::{self, Body, Said};
use crate::speak::{Speak, keys, request_id};

impl<'a> Speak<'a> for Request<'a> {
    const PROTOCOL: Protocol = Protocol::Messages;
    const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
    const BROKEN: (&'static str, &'static str) = (
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{]\n\n",
        r#"{"type":"message","content":[{]"#,
    );

    fn read(_head: &Parts, body: &'a Bytes) -> Result<Self, Failure> {
        Request::read(body)
    }

    fn admit(key: &str, head: &Parts) -> Result<(), Failure> {
        match keys(head, &["x-api-key"]).contains(&key) {
            true => Ok(()),
            false => Err(Failure::status(401)),
        }
    }

    fn error(id: usize, failure: &Failure) -> (Vec<u8>, HeaderMap) {
        let mut headers = HeaderMap::new();
        if let Some(value) = failure.retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(RETRY_AFTER, value);
        }
        (error::body(failure, &request_id(id)), headers)
    }

    fn error_event(&self, id: usize, _after: usize, failure: &Failure) -> Bytes {
        let mut out = Writer::default();
        out.named("error", &error::envelope(failure, &request_id(id)));
        out.events().each().concat().into()
    }

    fn whole(&self, said: &Said<'_>) -> Bytes {
        content(said).whole(said)
    }

    fn events(&self, said: &Said<'_>) -> Events {
        content(said).events(said)
    }

    fn closing(&self) -> usize {
        1
    }

    fn counted(tokens: u64) -> String {
        format!(r#"{{"input_tokens":{tokens}}}"#)
    }

    fn unknown(path: &Path) -> Failure {
        Failure::new(400, format!("{}: Extra inputs are not permitted", path.dotted()))
    }

    fn bad_signature(path: &Path) -> Failure {
        Failure::new(400, format!("{}: Invalid `signature` in `thinking` block", path.block().dotted()))
    }

    fn bad_beta(name: &str) -> Option<Failure> {
        let message = format!(
            "Unexpected value(s) `{name}` for the `anthropic-beta` header. Please consult our \
            documentation at docs.claude.com or try again without the header."
        );
        Some(Failure::new(400, message))
    }

    fn betas(head: &Parts, _body: &Value) -> Vec<String> {
        let values = head.headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(|name| name.trim().to_owned()).collect()
    }
}

fn content(said: &Said<'_>) -> Arc<Content> {
    match &said.body {
        Body::Blocks(blocks) => Arc::new(Content::new(blocks)),
        Body::Tokens { count, bytes } => said.state.tokens.content(*count, *bytes),
    }
}

/// Rendered content of the token streams asked for so far: a benchmark's stream is rendered once.
#[derive(Default)]
pub(crate) struct TokenCache(RwLock<HashMap<(usize, usize), Arc<Content>>>);

impl TokenCache {
    /// Model names can ask for any shape; past this many the cache starts over.
    const SHAPES: usize = 16;

    fn content(&self, count: usize, bytes: usize) -> Arc<Content> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&(count, bytes)).cloned();
        known.unwrap_or_else(|| {
            let content = Arc::new(Content::new(&said::tokens(count, bytes)));
            let mut cache = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if cache.len() >= Self::SHAPES {
                cache.clear();
            }
            cache.insert((count, bytes), content.clone());
            content
        })
    }
}
