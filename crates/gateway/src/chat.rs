//! `POST /chat/completions`: a request in the chat format is asked as one in the Messages format, and what is answered is
//! told in the chat format. Routing, money, plugins and tools are those of every message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, HeaderName};
use http_body::Body as HttpBody;
use tidegate_core::Api;
use tidegate_wire::chat::{self, Form, Head, Stream};

use crate::relay::{self, Body, Reply};
use crate::{Failure, Gateway, KeyEntry, Snapshot};

/// Events are made here, so their size was limited before.
const LARGEST_EVENT: usize = 256 << 20;

impl Gateway {
    /// Serves `POST /chat/completions` for a caller that has been let in. `query` is the raw query string.
    pub async fn chat(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        query: &str,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let asked = chat::read(&body)?;
        drop(body);
        let head = relay::Head { headers, query, api: Api::Chat };
        let reply = self.answer(key, head, asked.body).await?;
        self.told(reply, asked.form, &asked.warnings)
    }

    fn told(&self, mut reply: Reply, form: Form, warnings: &[String]) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let id = reply.headers.get(relay::GENERATION_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let head = Head {
            id: id.to_owned(),
            created: self.clock.now().0 / 1_000,
            metadata: snapshot.names.metadata_member.clone(),
        };
        reply.body = match reply.body {
            Body::Full(bytes) => {
                let bytes = bytes.unwrap_or_default();
                Body::full(chat::whole(&bytes, &head, &form).ok_or_else(Failure::internal)?)
            }
            streamed => {
                Body::Chat(Box::new(ChatBody { inner: streamed, stream: Stream::new(head, form, LARGEST_EVENT) }))
            }
        };
        warn(&mut reply.headers, &snapshot, warnings);
        Ok(reply)
    }
}

/// Adds to the header of warnings.
fn warn(headers: &mut HeaderMap, snapshot: &Snapshot, warnings: &[String]) {
    let name: &HeaderName = &snapshot.names.warnings_header;
    let before = headers.get(name).and_then(|value| value.to_str().ok());
    let said = before.into_iter().chain(warnings.iter().map(String::as_str));
    let said: Vec<&str> = said.filter(|text| HeaderValue::from_str(text).is_ok()).collect();
    if let (false, Ok(value)) = (said.is_empty(), HeaderValue::from_str(&said.join(","))) {
        headers.insert(name.clone(), value);
    }
}

/// A streamed answer in the chat format.
pub struct ChatBody {
    inner: Body,
    stream: Stream,
}

impl ChatBody {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let Some(Ok(frame)) = ready!(Pin::new(&mut self.inner).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            let Ok(bytes) = frame.into_data() else { continue };
            match self.stream.feed(bytes) {
                // Not a whole event yet, or one that nobody is told of.
                Ok(chunks) if chunks.is_empty() => {}
                Ok(chunks) => return Poll::Ready(Some(chunks)),
                Err(too_large) => {
                    tracing::error!(%too_large, "an event of our own cannot be told in the chat format");
                    return Poll::Ready(None);
                }
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        HttpBody::is_end_stream(&self.inner)
    }
}
