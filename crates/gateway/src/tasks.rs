//! Background work has a name, and a panic in any work ends that work alone.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tidegate_core::clock;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{JoinHandle, block_in_place};

/// Starts `work` under `name`; its panic is logged and ends nothing else.
#[expect(clippy::disallowed_methods, reason = "the one place that starts background tasks")]
pub fn spawn<F: Future<Output = ()> + Send + 'static>(name: &'static str, work: F) -> JoinHandle<()> {
    tokio::spawn(Named { name, work: guarded(work) })
}

/// Does what takes a while without a pause: what waits for this thread goes on elsewhere.
pub fn at_length<T>(work: impl FnOnce() -> T) -> T {
    let done = match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // One thread alone has nobody to hand over to.
        _ => work(),
    };
    clock::time_passes();
    done
}

/// The work ended in a panic.
#[derive(Clone, Copy, Debug)]
pub struct Panicked;

/// Runs a future to its end, or to its panic.
pub fn guarded<F: Future>(work: F) -> Guarded<F> {
    Guarded { work }
}

// By hand: an async function holds what it is given twice, once as it came and once as it waits for it, and these hold the
// largest futures there are.
pin_project! {
    /// See [`guarded`].
    #[must_use = "it does nothing until it is waited for"]
    pub struct Guarded<F> {
        #[pin]
        work: F,
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.project().work;
        match catch_unwind(AssertUnwindSafe(|| work.poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}

pin_project! {
    struct Named<F> {
        name: &'static str,
        #[pin]
        work: Guarded<F>,
    }
}

impl<F: Future<Output = ()>> Future for Named<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        this.work.poll(context).map(|ended| {
            if ended.is_err() {
                tracing::error!(task = this.name, "a background task panicked");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Clock as _;
    use tidegate_core::clock::{SystemClock, step};

    use super::*;

    #[test]
    fn what_takes_long_is_seen_to_have_taken_long() {
        step(|| {
            let begun = SystemClock.instant();
            at_length(|| while step(|| SystemClock.instant()) == begun {});
            assert!(SystemClock.instant() > begun);
        });
    }
}
