//! Sends the gateway's own spans to a collector, where the environment names one. What is settled is handed over behind the
//! journal, where no request waits, through a queue with an end: what does not fit is counted and lost.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};
use tidegate_core::{Exchange, Secret};
use tidegate_observe::broadcast::Service;
use tidegate_observe::metrics::{Metrics, Reason};
use tidegate_observe::traces;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::upstream::{Client, Pieces};

/// Requests that may wait.
const MOST_WAITING: usize = 2_048;
/// Requests of one call, and how long the first waits for others.
const BATCH: usize = 256;
const GATHER: Duration = Duration::from_secs(1);
const CALL: Duration = Duration::from_secs(10);
/// How often a call is tried, and how long between two tries.
const TRIES: usize = 3;
const AGAIN: Duration = Duration::from_secs(1);

/// Where spans go.
pub struct Collector {
    pub uri: Uri,
    pub headers: Vec<(HeaderName, Secret)>,
    /// As JSON instead of protobuf.
    pub is_json: bool,
    pub service: Service,
}

pub struct Traces {
    collector: Collector,
    client: Client,
    metrics: Arc<Metrics>,
    waiting: Mutex<VecDeque<Exchange>>,
    wake: Notify,
}

impl Traces {
    pub fn new(collector: Collector, metrics: Arc<Metrics>) -> Self {
        Self { collector, client: Client::default(), metrics, waiting: Mutex::default(), wake: Notify::new() }
    }

    /// Takes a settled request.
    pub fn offer(&self, exchange: &Exchange) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST_WAITING {
            drop(waiting);
            return self.lost("full", 1);
        }
        waiting.push_back(exchange.clone());
        drop(waiting);
        self.wake.notify_one();
    }

    fn lost(&self, reason: &'static str, count: u64) {
        self.metrics.flow.spans_lost.get_or_create(&Reason { reason }).inc_by(count);
    }

    /// Sends what comes in, until the process ends.
    pub async fn send(self: Arc<Self>) {
        loop {
            self.wake.notified().await;
            sleep(GATHER).await;
            loop {
                let batch: Vec<Exchange> = {
                    let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = waiting.len().min(BATCH);
                    waiting.drain(..count).collect()
                };
                if batch.is_empty() {
                    break;
                }
                self.deliver(&batch).await;
            }
        }
    }

    async fn deliver(&self, batch: &[Exchange]) {
        let body = Bytes::from(traces::exported(batch, &self.collector.service, self.collector.is_json));
        for attempt in 1..=TRIES {
            match timeout(CALL, self.call(body.clone())).await {
                Ok(Some(200..300)) => return,
                // It will not take it the next time either.
                Ok(Some(status @ 400..500)) if !matches!(status, 408 | 425 | 429) => {
                    tracing::warn!(status, "the collector refuses our own spans");
                    break;
                }
                _ if attempt < TRIES => sleep(AGAIN).await,
                _ => tracing::warn!("the collector does not take our own spans"),
            }
        }
        self.lost("refused", batch.len() as u64);
    }

    /// The status of the answer, if there is one.
    async fn call(&self, body: Bytes) -> Option<u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.collector.headers {
            let mut value = value.expose(HeaderValue::from_bytes).ok()?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let kind = if self.collector.is_json { "application/json" } else { "application/x-protobuf" };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        let sent = self.client.request(Method::POST, &self.collector.uri, headers, Pieces::from(body)).await;
        sent.ok().map(|response| response.status().as_u16())
    }
}
