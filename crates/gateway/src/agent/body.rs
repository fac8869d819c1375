//! A stream that is made here. The work is done by whoever reads: a client that leaves drops it, with the turn and the
//! tools that run.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Frames, and the work that makes them.
pub struct LoopBody {
    frames: mpsc::Receiver<Bytes>,
    work: Option<Work>,
    is_over: bool,
}

impl LoopBody {
    /// `work` holds the other end of `frames`, and drops it when it is done.
    pub(super) fn new(frames: mpsc::Receiver<Bytes>, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { frames, work: Some(Box::pin(work)), is_over: false }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Poll::Ready(frame) = self.frames.poll_recv(context) {
                self.is_over = frame.is_none();
                return Poll::Ready(frame);
            }
            let Some(work) = &mut self.work else { return Poll::Pending };
            match work.as_mut().poll(context) {
                // Everything that it sent is in the channel, and then its end.
                Poll::Ready(()) => self.work = None,
                // It may have sent something just now, which would wake nobody: this is who listens.
                Poll::Pending => {
                    return self.frames.poll_recv(context).map(|frame| {
                        self.is_over = frame.is_none();
                        frame
                    });
                }
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}
