//! The way to the journal: a bounded queue, which the writer empties in groups.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_core::{Exchange, GenerationId, Timestamp};
use tidegate_observe::metrics::Metrics;
use tidegate_store::journal::{Fate, Letter, LetterId, MOST, Place, Progress};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::timeout;

/// Records that may wait, those of calls that are still open included: a call that was let in can always be settled.
const QUEUE: usize = 16_384;
/// How often others may go first before a group is written.
const TURNS: usize = 8;

/// When commits reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    /// Within 50 ms.
    #[default]
    Interval,
    /// Before anyone is told.
    Always,
}

/// The journal takes nothing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// Says when a record is committed.
#[derive(Debug)]
pub struct Receipt(Waiting);

#[derive(Debug)]
enum Waiting {
    For(oneshot::Receiver<()>),
    Done,
    /// Whoever was to write it is gone: it will never be.
    Lost,
}

impl Receipt {
    /// For what nobody needs to wait for.
    pub const DONE: Self = Self(Waiting::Done);

    /// Ready once the record is committed.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Waiting::For(receiver) = &mut self.0 {
            match std::pin::Pin::new(receiver).poll(context) {
                Poll::Ready(Ok(())) => self.0 = Waiting::Done,
                Poll::Ready(Err(_)) => self.0 = Waiting::Lost,
                Poll::Pending => {}
            }
        }
        if matches!(self.0, Waiting::Done) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits for the commit; false when it takes longer than `limit`.
    pub async fn committed(&mut self, limit: Duration) -> bool {
        self.is_done() || timeout(limit, poll_fn(|context| self.poll(context))).await.is_ok()
    }

    /// Whether it is committed already: nobody needs a timer then.
    fn is_done(&mut self) -> bool {
        if let Waiting::For(receiver) = &mut self.0 {
            match receiver.try_recv() {
                Ok(()) => self.0 = Waiting::Done,
                Err(TryRecvError::Closed) => self.0 = Waiting::Lost,
                Err(TryRecvError::Empty) => {}
            }
        }
        matches!(self.0, Waiting::Done)
    }
}

/// A receipt that several wait for, one at a time: it is locked for the moment of a look and never across one.
#[derive(Clone, Debug)]
pub struct Shared(Option<Arc<Mutex<Receipt>>>);

impl Shared {
    /// For what nobody needs to wait for.
    pub const DONE: Self = Self(None);

    pub fn new(receipt: Receipt) -> Self {
        Self(Some(Arc::new(Mutex::new(receipt))))
    }

    pub async fn committed(&self, limit: Duration) -> bool {
        let Some(shared) = &self.0 else { return true };
        let receipt = || shared.lock().unwrap_or_else(PoisonError::into_inner);
        receipt().is_done() || timeout(limit, poll_fn(|context| receipt().poll(context))).await.is_ok()
    }
}

/// The entrance.
pub struct Queue {
    inner: Mutex<Inner>,
    pub(super) wake: Notify,
    pub(super) state: AtomicU8,
    pub(super) closing: AtomicBool,
    metrics: Arc<Metrics>,
    /// Grows with every letter that was written for destinations.
    pub(super) posted: watch::Sender<u64>,
}

/// What the writer takes at a time.
#[derive(Default)]
pub(super) struct Load {
    pub group: Vec<Queued>,
    /// What the main store has and the journal need not keep.
    pub forwarded: Vec<Place>,
    /// What nobody can read.
    pub spoiled: Vec<Place>,
    /// Who waits for those to be gone.
    pub forgotten: Vec<oneshot::Sender<bool>>,
    /// What is to be done with the outbox.
    pub chores: Vec<(Chore, oneshot::Sender<u64>)>,
}

impl Load {
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && !self.is_forgetting() && self.forgotten.is_empty() && self.chores.is_empty()
    }

    pub fn is_forgetting(&self) -> bool {
        !self.forwarded.is_empty() || !self.spoiled.is_empty()
    }
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Queued>,
    /// What the writer has taken and not committed yet.
    writing: usize,
    /// Calls whose intent was taken and whose settling has not come.
    open: usize,
    /// What else there is to do.
    other: Load,
}

/// Something to be done with the outbox; who asks for it waits.
pub enum Chore {
    Resolve(Vec<(LetterId, Fate)>),
    /// So many of the oldest that wait for a destination go, and the dead of before the instant.
    Bound(String, u64, Timestamp),
    /// What waits since before the instant for nobody of these goes.
    Others(Vec<String>, Timestamp),
}

pub(super) struct Queued {
    pub record: Record,
    pub done: Option<oneshot::Sender<()>>,
}

pub(super) enum Record {
    Intent(GenerationId, String),
    /// Rare, and larger than the others.
    Progress(GenerationId, Box<Progress>),
    Settle(Box<Exchange>, Option<Letters>),
}

/// Makes what destinations are to be told of a call. It is made where the call is written down, for many at once: nobody
/// waits for it there, and the code that makes it is fetched once for all of them.
pub type Letters = Box<dyn FnOnce(&Exchange) -> Vec<Letter> + Send>;

impl Record {
    /// The call that this closes.
    pub fn settles(&self) -> Option<GenerationId> {
        match self {
            Self::Settle(exchange, _) => Some(exchange.id),
            Self::Intent(..) | Self::Progress(..) => None,
        }
    }
}

pub(super) const WELL: u8 = 0;
pub(super) const LOCKED: u8 = 1;
pub(super) const FULL: u8 = 2;
pub(super) const BROKEN: u8 = 3;

impl Queue {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        let (state, closing) = (AtomicU8::new(WELL), AtomicBool::new(false));
        let posted = watch::Sender::new(0);
        Self { inner: Mutex::default(), wake: Notify::new(), state, closing, metrics, posted }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_well(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WELL
    }

    /// Writes down that a call is let in. Whoever gets a receipt may settle, whatever happens to the journal.
    pub fn intent(&self, id: GenerationId, data: String) -> Result<Receipt, Unavailable> {
        if !self.is_well() {
            return Err(Unavailable);
        }
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.lock();
            if inner.waiting.len() + inner.open >= QUEUE {
                return Err(Unavailable);
            }
            inner.open += 1;
            inner.waiting.push_back(Queued { record: Record::Intent(id, data), done: Some(sender) });
        }
        self.wake.notify_one();
        Ok(Receipt(Waiting::For(receiver)))
    }

    /// Writes down that more is held for a call than before. Nobody waits for it.
    pub fn amend(&self, id: GenerationId, data: String) {
        self.lock().waiting.push_back(Queued { record: Record::Intent(id, data), done: None });
        self.wake.notify_one();
    }

    /// Writes down how far a stream has come. While nothing can be written it is not kept either: the next one says more.
    pub fn progress(&self, id: GenerationId, progress: Progress) {
        if !self.is_well() {
            return;
        }
        self.lock().waiting.push_back(Queued { record: Record::Progress(id, Box::new(progress)), done: None });
        self.wake.notify_one();
    }

    /// Writes down how a call ended. `had_intent` says whether a place is taken for it.
    /// `letters`: what destinations are to be told of it.
    pub fn settle(&self, exchange: Box<Exchange>, had_intent: bool, letters: Option<Letters>) -> Receipt {
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.lock();
            if had_intent {
                inner.open = inner.open.saturating_sub(1);
            } else if inner.waiting.len() + inner.open >= QUEUE {
                // It was never let in: there is nothing to be metered, and its record is one of many.
                self.metrics.records_lost.inc();
                return Receipt::DONE;
            }
            inner.waiting.push_back(Queued { record: Record::Settle(exchange, letters), done: Some(sender) });
        }
        self.wake.notify_one();
        Receipt(Waiting::For(receiver))
    }

    /// Says when there is something new for destinations.
    pub fn posted(&self) -> watch::Receiver<u64> {
        self.posted.subscribe()
    }

    /// Has something done with the outbox and waits for it; nothing comes of it when the journal cannot be written.
    pub async fn chore(&self, chore: Chore) -> Option<u64> {
        let (sender, receiver) = oneshot::channel();
        self.lock().other.chores.push((chore, sender));
        self.wake.notify_one();
        receiver.await.ok()
    }

    /// The main store has these, and these can be read by nobody.
    pub fn forget(&self, places: Vec<Place>, spoiled: Vec<Place>, done: Option<oneshot::Sender<bool>>) {
        let mut inner = self.lock();
        inner.other.forwarded.extend(places);
        inner.other.spoiled.extend(spoiled);
        inner.other.forgotten.extend(done);
        drop(inner);
        self.wake.notify_one();
    }

    /// Lets others go first for as long as that brings more to write: what is written together costs little more than one
    /// record alone. Nobody waits for a timer, and where nobody else has work this is over at once.
    pub(super) async fn gather(&self) {
        let mut waiting = self.depth();
        for _ in 0..TURNS {
            if waiting == 0 || waiting >= MOST {
                return;
            }
            yield_now().await;
            let now = self.depth();
            if now == waiting {
                return;
            }
            waiting = now;
        }
    }

    /// What there is to write and to do.
    pub(super) fn take(&self) -> Load {
        let mut inner = self.lock();
        let size = inner.waiting.len().min(MOST);
        inner.writing = size;
        let group = inner.waiting.drain(..size).collect();
        Load { group, ..std::mem::take(&mut inner.other) }
    }

    /// What was taken last is written.
    pub(super) fn written(&self) {
        self.lock().writing = 0;
    }

    /// Lets the writer end when there is nothing left to write.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Whether every call that was let in is settled and written.
    pub fn is_idle(&self) -> bool {
        let inner = self.lock();
        inner.open == 0 && inner.waiting.is_empty() && inner.writing == 0
    }

    pub fn depth(&self) -> usize {
        self.lock().waiting.len()
    }

    /// How many places are taken, by what waits and by calls that will settle, and how many there are.
    pub fn places(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.waiting.len() + inner.open, QUEUE)
    }

    pub(super) fn enter(&self, state: u8) -> u8 {
        self.state.swap(state, Ordering::Relaxed)
    }
}
