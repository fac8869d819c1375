//! Finished requests on their way to metrics, logs and the store. Nothing here is waited for by a request.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Exchange;
use tidegate_observe::logging;
use tidegate_observe::metrics::{Handles, Metrics};
use tidegate_store::{Store, StoreError};
use tokio::sync::mpsc;
use tokio::time::sleep;

const QUEUE: usize = 16_384;
const BATCH: usize = 1_024;
/// Between two tries to write to a store that does not answer.
const RETRY: Duration = Duration::from_millis(500);
/// How long a record may wait for others: a transaction costs as much as dozens of rows.
const GATHER: Duration = Duration::from_millis(100);

/// The entrance of the queue.
pub struct Recorder {
    queue: mpsc::Sender<Box<Exchange>>,
    metrics: Arc<Metrics>,
}

/// The other end; give it to a task of its own.
pub struct Records(mpsc::Receiver<Box<Exchange>>);

pub fn queue(metrics: Arc<Metrics>) -> (Recorder, Records) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Recorder { queue: sender, metrics }, Records(receiver))
}

impl Recorder {
    /// Hands over a finished request; a full queue loses the record and counts the loss.
    pub fn push(&self, exchange: Box<Exchange>) {
        if self.queue.try_send(exchange).is_err() {
            self.metrics.records_lost.inc();
        }
    }
}

impl Records {
    /// Works off the queue until the gateway is gone, then what is left in it.
    pub async fn run(mut self, store: Arc<Store>, metrics: Arc<Metrics>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut handles = Handles::default();
        while self.0.recv_many(&mut batch, BATCH).await > 0 {
            // Asleep, not waiting on the queue: a request that ends meanwhile wakes nobody.
            sleep(GATHER).await;
            while batch.len() < BATCH
                && let Ok(exchange) = self.0.try_recv()
            {
                batch.push(exchange);
            }
            let exchanges: Vec<Exchange> = batch.drain(..).map(|exchange| *exchange).collect();
            for exchange in &exchanges {
                metrics.record(exchange, &mut handles);
                logging::finished(exchange);
            }
            write(&store, &metrics, &exchanges).await;
        }
    }
}

/// Writes a batch, and goes on trying while the store does not answer: meanwhile the queue, which is bounded, fills.
async fn write(store: &Store, metrics: &Metrics, exchanges: &[Exchange]) {
    let mut failures = 0_u32;
    loop {
        match store.insert_generations(exchanges).await {
            Ok(()) if failures > 0 => return tracing::info!("finished requests are recorded again"),
            Ok(()) => return,
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy(_))) => {
                if failures == 0 {
                    tracing::error!(%error, count = exchanges.len(), "finished requests cannot be recorded; trying on");
                }
                failures += 1;
                sleep(RETRY).await;
            }
            // Trying again would end the same way.
            Err(error) => {
                metrics.records_lost.inc_by(exchanges.len() as u64);
                return tracing::error!(%error, count = exchanges.len(), "finished requests were not recorded");
            }
        }
    }
}
