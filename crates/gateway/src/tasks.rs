//! Background work has a name, and a panic in any work ends that work alone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::task::JoinHandle;

/// Starts `work` under `name`; its panic is logged and ends nothing else.
#[expect(clippy::disallowed_methods, reason = "the one place that starts background tasks")]
pub fn spawn(name: &'static str, work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(async move {
        if guarded(work).await.is_err() {
            tracing::error!(task = name, "a background task panicked");
        }
    })
}

/// The work ended in a panic.
#[derive(Clone, Copy, Debug)]
pub struct Panicked;

/// Runs a future to its end, or to its panic.
pub async fn guarded<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let mut work = pin!(work);
    std::future::poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
