//! `POST /messages`, `POST /messages/count_tokens`, `POST /chat/completions` and `POST /responses`: collect the body and hand it to the gateway.

use std::future::Future;
use std::pin::Pin;

use http::header::HeaderValue;
use http::{Response, StatusCode};
use tidegate_gateway::Failure;
use tidegate_gateway::relay::Reply;

use crate::body::{self, Limits};
use crate::router::{Answer, Call, plain};

type Answering = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let limits = limits(&call);
        let Call { app, key, head, body, .. } = call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits).await?;
        let reply = app.gateway.messages(&key, &head.headers, head.uri.query().unwrap_or_default(), body).await?;
        Ok(answered(reply))
    })
}

fn answered(reply: Reply) -> Answer {
    let Reply { status, headers, body } = reply;
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

/// The same in the chat format.
pub fn complete(call: Call) -> Answering {
    Box::pin(async move {
        let limits = limits(&call);
        let Call { app, key, head, body, .. } = call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits).await?;
        let reply = app.gateway.chat(&key, &head.headers, head.uri.query().unwrap_or_default(), body).await?;
        Ok(answered(reply))
    })
}

/// The same in the Responses format.
pub fn respond(call: Call) -> Answering {
    Box::pin(async move {
        let limits = limits(&call);
        let Call { app, key, head, body, .. } = call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits).await?;
        let reply = app.gateway.responses(&key, &head.headers, head.uri.query().unwrap_or_default(), body).await?;
        Ok(answered(reply))
    })
}

pub fn count_tokens(call: Call) -> Answering {
    Box::pin(async move {
        let limits = limits(&call);
        let Call { app, key, head, body, .. } = call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits).await?;
        let counted = app.gateway.count_tokens(&key, &head.headers, body).await?;
        let mut answer = plain(StatusCode::OK, "application/json", counted.body);
        if counted.estimated {
            let name = app.gateway.snapshot().names.count_header.clone();
            answer.headers_mut().insert(name, HeaderValue::from_static("estimated"));
        }
        Ok(answer)
    })
}

pub fn limits(call: &Call) -> Limits {
    let bytes = call.app.gateway.snapshot().settings.max_body_bytes;
    Limits { bytes, idle: call.app.body_idle, total: call.app.body_total }
}
