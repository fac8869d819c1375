//! `/embeddings`: texts as vectors.

use http::Response;
use tidegate_gateway::Failure;
use tidegate_gateway::relay::Reply;

use super::account::Answering;
use super::messages::limits;
use crate::body;
use crate::router::{Asking, Call};

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let limits = limits(&call);
        let Asking { app, key, head, body, .. } = *call;
        let key = key.ok_or_else(Failure::missing_credential)?;
        let body = body::read_json(&head.headers, body, limits).await?;
        let Reply { status, headers, body } = app.gateway.embeddings(&key, &head.headers, body).await?;
        let mut answer = Response::new(body);
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    })
}
