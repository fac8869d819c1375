//! The way to the journal: a bounded queue, and the one task that empties it in groups. While a group is being committed
//! the next one gathers; nobody waits for a timer.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tidegate_core::{Clock, Exchange, GenerationId, Timestamp};
use tidegate_observe::logging;
use tidegate_observe::metrics::{Handles, Metrics};
use tidegate_store::journal::{Ballast, Entry, Fate, Journal, JournalError, Letter, MOST, Progress};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::fail;

/// Records that may wait, those of calls that are still open included: a call that was let in can always be settled.
const QUEUE: usize = 16_384;
/// At least one commit in this time is on the disk.
const SYNC: Duration = Duration::from_millis(50);
/// Between two tries to write to a journal that cannot be written.
const RETRY: Duration = Duration::from_millis(100);
/// How often others may go first before a group is written.
const TURNS: usize = 8;
/// How often it is tried to take room on the disk again.
const BALLAST: Duration = Duration::from_secs(2);

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
        timeout(limit, poll_fn(|context| self.poll(context))).await.is_ok()
    }
}

/// A receipt that several wait for, one at a time: it is locked for the moment of a look and never across one.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Receipt>>);

impl Shared {
    pub fn new(receipt: Receipt) -> Self {
        Self(Arc::new(Mutex::new(receipt)))
    }

    pub async fn committed(&self, limit: Duration) -> bool {
        let look = |context: &mut Context<'_>| self.0.lock().unwrap_or_else(PoisonError::into_inner).poll(context);
        timeout(limit, poll_fn(look)).await.is_ok()
    }
}

/// The entrance.
pub struct Queue {
    inner: Mutex<Inner>,
    wake: Notify,
    state: AtomicU8,
    closing: AtomicBool,
    metrics: Arc<Metrics>,
    /// Grows with every group that destinations are to be told of.
    posted: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Queued>,
    /// What the writer has taken and not committed yet.
    writing: usize,
    /// Calls whose intent was taken and whose settling has not come.
    open: usize,
    /// What the main store has and the journal need not keep.
    forwarded: Vec<GenerationId>,
    /// Who waits for that.
    forgotten: Vec<oneshot::Sender<bool>>,
    /// What is to be done with the outbox.
    chores: Vec<(Chore, oneshot::Sender<u64>)>,
}

/// Something to be done with the outbox; who asks for it waits.
pub enum Chore {
    Resolve(Vec<(i64, Fate)>),
    /// So many of the oldest that wait for a destination go, and the dead of before the instant.
    Bound(String, u64, Timestamp),
    /// What waits since before the instant for nobody of these goes.
    Others(Vec<String>, Timestamp),
}

struct Queued {
    record: Record,
    done: Option<oneshot::Sender<()>>,
}

enum Record {
    Intent(GenerationId, String),
    Progress(GenerationId, Progress),
    Settle(Box<Exchange>, Vec<Letter>),
}

impl Record {
    /// The call that this closes.
    fn settles(&self) -> Option<GenerationId> {
        match self {
            Self::Settle(exchange, _) => Some(exchange.id),
            Self::Intent(..) | Self::Progress(..) => None,
        }
    }
}

const WELL: u8 = 0;
const LOCKED: u8 = 1;
const FULL: u8 = 2;
const BROKEN: u8 = 3;

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
        self.lock().waiting.push_back(Queued { record: Record::Progress(id, progress), done: None });
        self.wake.notify_one();
    }

    /// Writes down how a call ended. `had_intent` says whether a place is taken for it.
    /// `letters`: what destinations are to be told of it.
    pub fn settle(&self, exchange: Box<Exchange>, had_intent: bool, letters: Vec<Letter>) -> Receipt {
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
        self.lock().chores.push((chore, sender));
        self.wake.notify_one();
        receiver.await.ok()
    }

    /// The main store has these.
    pub fn forget(&self, ids: impl IntoIterator<Item = GenerationId>, done: Option<oneshot::Sender<bool>>) {
        let mut inner = self.lock();
        inner.forwarded.extend(ids);
        inner.forgotten.extend(done);
        drop(inner);
        self.wake.notify_one();
    }

    /// Lets others go first for as long as that brings more to write: what is written together costs little more than one
    /// record alone. Nobody waits for a timer, and where nobody else has work this is over at once.
    async fn gather(&self) {
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

    fn enter(&self, state: u8) -> u8 {
        self.state.swap(state, Ordering::Relaxed)
    }
}

/// The writing end; it runs as a task of its own.
pub struct Writer {
    pub journal: Journal,
    pub queue: Arc<Queue>,
    pub ballast: Ballast,
    pub sync: Sync,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Takes what is settled and committed.
    pub settled: Box<dyn FnMut(Box<Exchange>) + Send>,
}

struct Pace {
    synced: Instant,
    is_dirty: bool,
}

impl Writer {
    pub async fn run(mut self) {
        let mut handles = Handles::default();
        let mut pace = Pace { synced: self.clock.instant(), is_dirty: false };
        self.keep_room();
        let mut looked = self.clock.instant();
        loop {
            self.queue.gather().await;
            let (group, forwarded, forgotten, chores) = {
                let mut inner = self.queue.lock();
                let size = inner.waiting.len().min(MOST);
                let group: Vec<Queued> = inner.waiting.drain(..size).collect();
                inner.writing = size;
                let (forwarded, forgotten) =
                    (std::mem::take(&mut inner.forwarded), std::mem::take(&mut inner.forgotten));
                (group, forwarded, forgotten, std::mem::take(&mut inner.chores))
            };
            if self.queue.state.load(Ordering::Relaxed) == FULL && self.clock.instant() >= looked + BALLAST {
                looked = self.clock.instant();
                self.keep_room();
            }
            if group.is_empty() && forwarded.is_empty() && chores.is_empty() {
                if self.queue.closing.load(Ordering::SeqCst) && self.queue.depth() == 0 {
                    break;
                }
                let wait = if pace.is_dirty { SYNC } else { BALLAST };
                let woken = timeout(wait, self.queue.wake.notified()).await.is_ok();
                if !woken && pace.is_dirty {
                    match self.journal.flush().await {
                        Ok(()) => pace = Pace { synced: self.clock.instant(), is_dirty: false },
                        // Not simply again: after a failed sync a second one may succeed for pages that are lost.
                        Err(error) => self.failed(error).await,
                    }
                }
                continue;
            }
            self.metrics.ledger_queue.set(i64::try_from(group.len()).unwrap_or(i64::MAX));
            self.commit(group, &mut pace, &mut handles).await;
            self.queue.lock().writing = 0;
            let mut is_forgotten = true;
            if !forwarded.is_empty()
                && let Err(error) = self.journal.forget(&forwarded).await
            {
                // They are sent to the store once more some day, and it knows them.
                tracing::warn!(%error, "calls that were forwarded stay in the journal");
                is_forgotten = false;
            }
            for done in forgotten {
                let _ = done.send(is_forgotten);
            }
            self.tidy(chores).await;
        }
        if let Err(error) = self.journal.close().await {
            tracing::warn!(%error, "the journal could not be closed properly");
        }
    }

    /// Does what is to be done with the outbox. What fails is asked for again: who waits hears of nothing.
    async fn tidy(&mut self, chores: Vec<(Chore, oneshot::Sender<u64>)>) {
        for (chore, done) in chores {
            let count = match &chore {
                Chore::Resolve(fates) => self.journal.resolve(fates).await.map(|()| 0),
                Chore::Others(known, before) => self.journal.forget_others(known, *before).await,
                Chore::Bound(destination, gone, buried) => self.journal.bound_outbox(destination, *gone, *buried).await,
            };
            match count {
                Ok(count) => drop(done.send(count)),
                Err(error) => tracing::warn!(%error, "the outbox could not be changed"),
            }
        }
    }

    /// Writes a group, however often that must be tried.
    async fn commit(&mut self, group: Vec<Queued>, pace: &mut Pace, handles: &mut Handles) {
        let mut entries = Vec::with_capacity(group.len());
        let mut waiting = Vec::with_capacity(group.len());
        let (mut settled, mut letters) = (Vec::new(), Vec::new());
        // Of a call that is over already it need not be said that it was let in.
        let over: HashSet<GenerationId> = group.iter().filter_map(|queued| queued.record.settles()).collect();
        for Queued { record, done } in group {
            waiting.extend(done);
            if matches!(&record, Record::Intent(id, _) | Record::Progress(id, _) if over.contains(id)) {
                continue;
            }
            entries.push(match record {
                Record::Intent(generation, data) => {
                    Entry { generation, is_settled: false, data: Some(data), progress: None }
                }
                Record::Progress(generation, progress) => {
                    Entry { generation, is_settled: false, data: None, progress: Some(progress) }
                }
                Record::Settle(exchange, told) => {
                    letters.extend(told);
                    let data = serde_json::to_string(&exchange).expect("texts and numbers are always JSON");
                    let entry = Entry { generation: exchange.id, is_settled: true, data: Some(data), progress: None };
                    settled.push(exchange);
                    entry
                }
            });
        }
        if !entries.is_empty() {
            self.write(&entries, &letters, pace).await;
        }
        // First to the next station: whoever hears of the commit may ask the store about it at once.
        for exchange in settled {
            self.metrics.record(&exchange, handles);
            logging::finished(&exchange);
            (self.settled)(exchange);
        }
        for done in waiting {
            let _ = done.send(());
        }
    }

    async fn write(&mut self, entries: &[Entry], letters: &[Letter], pace: &mut Pace) {
        loop {
            fail::point("journal.write");
            let now = self.clock.instant();
            let full = self.sync == Sync::Always || now >= pace.synced + SYNC;
            let mut written = self.try_write(entries, letters, full).await;
            // What a call cost matters more than that others hear of it.
            if written.is_err() && !letters.is_empty() {
                written = self.try_write(entries, &[], full).await;
                if written.is_ok() {
                    self.metrics.broadcast_lost.inc_by(letters.len() as u64);
                }
            } else if !letters.is_empty() {
                self.queue.posted.send_modify(|groups| *groups += 1);
            }
            match written {
                Ok(()) => {
                    *pace = Pace { synced: if full { now } else { pace.synced }, is_dirty: !full };
                    self.metrics.ledger_commit.observe((self.clock.instant() - now).as_secs_f64());
                    self.recovered();
                    fail::point("journal.written");
                    return;
                }
                Err(error) => self.failed(error).await,
            }
        }
    }

    async fn try_write(&mut self, entries: &[Entry], letters: &[Letter], full: bool) -> Result<(), JournalError> {
        fail::journal(&mut self.journal).await?;
        self.journal.write_with(entries, letters, full).await
    }

    /// A write went through. After a full disk new calls wait until there is room for the worst moment again.
    fn recovered(&self) {
        if !self.queue.is_well() && self.ballast.is_taken() {
            self.queue.enter(WELL);
            tracing::info!("the journal is written again");
        }
    }

    fn keep_room(&self) {
        match self.ballast.take() {
            Ok(()) => {
                if self.queue.enter(WELL) != WELL {
                    tracing::info!("there is room on the disk again: new calls are let in");
                }
            }
            Err(error) => {
                if self.queue.enter(FULL) != FULL {
                    tracing::error!(%error, "no room on the disk could be set aside for the journal: no call is let in");
                }
            }
        }
    }

    async fn failed(&mut self, error: JournalError) {
        let (state, must_reopen) = match &error {
            JournalError::Full => (FULL, false),
            JournalError::Locked => (LOCKED, false),
            JournalError::Broken(_) | JournalError::Damaged(_) | JournalError::Unreadable(_) => (BROKEN, true),
        };
        if self.queue.enter(state) != state {
            tracing::error!(%error, "the journal cannot be written: new calls are refused until it can");
        }
        if state == FULL && self.ballast.give() {
            tracing::warn!("the room that was set aside is given up, so that running calls can be settled");
            return;
        }
        sleep(RETRY).await;
        if must_reopen && let Err(error) = self.journal.reopen().await {
            tracing::error!(%error, "the journal could not be opened again");
        }
    }
}
