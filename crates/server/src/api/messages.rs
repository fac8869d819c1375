//! `POST /messages`, `POST /messages/count_tokens`, `POST /chat/completions` and `POST /responses`: collect the body and
//! hand it to the gateway.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{Response, StatusCode, request};
use tidegate_core::pinned;
use tidegate_gateway::relay::Reply;
use tidegate_gateway::{Failure, KeyEntry};

use crate::body::{self, Limits};
use crate::router::{Answer, Asking, Call, plain};
use crate::state::App;

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

/// A request whose body was read: who asks, in which head, for what.
pub struct Asked {
    pub app: Arc<App>,
    pub key: Arc<KeyEntry>,
    pub head: request::Parts,
    pub body: Bytes,
}

impl Asked {
    pub async fn of(call: Call) -> Result<Self, Failure> {
        let Asking { app, key, head, body, .. } = *call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits(&app, &key)).await?;
        Ok(Self { app, key, head, body })
    }
}

pub fn create(call: Call) -> Answering {
    pinned(move || async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        let query = head.uri.query().unwrap_or_default();
        app.gateway.messages(&key, &head.headers, query, body).await.map(answered)
    })
}

/// The same in the chat format.
pub fn complete(call: Call) -> Answering {
    pinned(move || async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        let query = head.uri.query().unwrap_or_default();
        app.gateway.chat(&key, &head.headers, query, body).await.map(answered)
    })
}

/// The same in the Responses format.
pub fn respond(call: Call) -> Answering {
    pinned(move || async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        let query = head.uri.query().unwrap_or_default();
        app.gateway.responses(&key, &head.headers, query, body).await.map(answered)
    })
}

pub fn answered(reply: Reply) -> Answer {
    let Reply { status, headers, body } = reply;
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

pub fn count_tokens(call: Call) -> Answering {
    pinned(move || async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        let counted = app.gateway.count_tokens(&key, &head.headers, body).await?;
        let mut answer = plain(StatusCode::OK, "application/json", counted.body);
        if counted.estimated {
            let name = app.gateway.snapshot().names.count_header.clone();
            answer.headers_mut().insert(name, HeaderValue::from_static("estimated"));
        }
        Ok(answer)
    })
}

pub fn limits<'a>(app: &'a App, key: &'a KeyEntry) -> Limits<'a> {
    Limits::of(app, Some(key), app.gateway.snapshot().settings.max_body_bytes)
}
