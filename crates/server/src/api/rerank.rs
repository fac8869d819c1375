//! `/rerank`: which documents have most to do with a query.

use super::account::Answering;
use super::messages::{Asked, answered};
use crate::router::Call;

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        app.gateway.rerank(&key, &head.headers, body).await.map(answered)
    })
}
