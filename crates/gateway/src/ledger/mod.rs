//! What calls cost, while they run: held in memory before, written to the node's journal, posted after, and forwarded to
//! the main store. Nothing here is SQL on a request's own task; what a request waits for are the two commits of its
//! records, and a lease where its node has none.

pub mod applications;
pub mod book;
mod changes;
pub mod fail;
mod outgoing;
pub mod queue;
pub mod recover;
pub mod rules;
pub mod treasury;
pub mod writer;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use papaya::HashMap;
use tidegate_core::map::Map;
use tidegate_core::{Account, Clock, Exchange, GenerationId, Money, OrganisationId, Posting, Timestamp};
use tidegate_observe::metrics::Metrics;
use tidegate_store::journal::Progress;
use tidegate_store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use book::{Book, Demand, Rule, Short};
pub use outgoing::Outgoing;
pub use queue::{Letters, Queue, Receipt, Shared, Sync, Unavailable};
use rules::{Limits, Rules};
use treasury::{Answer, Want};
pub use writer::Writer;

use crate::keys::KeyEntry;

/// How long a call waits for what other nodes hold and do not need.
pub const PATIENCE: Duration = Duration::from_millis(1_500);
/// Between two looks whether they gave it back.
const LOOK: Duration = Duration::from_millis(200);
/// How long a call waits for the store to answer about a lease.
const STORE: Duration = Duration::from_secs(3);
/// A step of the clock that is told.
const JUMP_MS: i64 = 60 * 60 * 1000;

/// What happens when a call under way costs more than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExhausted {
    /// It goes on; what is missing is posted and counted.
    #[default]
    Finish,
    /// It ends with an error.
    Cut,
}

/// What the operator says about metering.
#[derive(Clone, Debug)]
pub struct Terms {
    pub sync: Sync,
    pub on_exhausted: OnExhausted,
    /// Calls are served although they cannot be written down.
    pub serve_unmetered: bool,
    /// Output that is held for a call at most; more is held when it comes to that.
    pub reserve_output_tokens: Option<u64>,
    /// How long leases are good without word from the store.
    pub lease_hold: Duration,
    pub retention_days: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            sync: Sync::Interval,
            on_exhausted: OnExhausted::Finish,
            serve_unmetered: false,
            reserve_output_tokens: None,
            lease_hold: Duration::from_secs(600),
            retention_days: 0,
        }
    }
}

/// What came of the wish to hold more for a call that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretched {
    Held,
    /// The store was asked for more; that is known at the next look.
    Asked,
    /// There is no more.
    Exhausted,
}

/// Why a call is not let in.
#[derive(Debug)]
pub enum Refusal {
    /// Ours to mend: never the caller's fault.
    Unavailable,
    /// These limits do not reach.
    Short(Vec<Short>),
}

pub struct Ledger {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    books: HashMap<OrganisationId, Arc<Mutex<Book>>, foldhash::fast::RandomState>,
    pub queue: Arc<Queue>,
    pub outgoing: Arc<Outgoing>,
    limits: ArcSwap<Limits>,
    wants: mpsc::Sender<Want>,
    /// The latest instant that was asked for: windows only move forward.
    latest: AtomicI64,
    /// By how much the wall clock ran ahead of the steady one when it was last looked at.
    drift: AtomicI64,
    /// How many nodes share the limits.
    share: AtomicU32,
    /// When the last heartbeat that was confirmed was sent, in milliseconds since `origin`.
    beat: AtomicI64,
    origin: Instant,
    reaped: Mutex<Vec<GenerationId>>,
    has_reaped: AtomicBool,
    /// How often limits have changed, and when they last did.
    changes: AtomicU64,
    changed: AtomicI64,
    /// Limits that calls were charged to which had not held anything there: other nodes may hold too much of them.
    unheld: Mutex<Map<GenerationId, Vec<Rule>>>,
}

impl Ledger {
    /// The ledger, and the wants that its treasury is to answer.
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> (Self, mpsc::Receiver<Want>) {
        let (wants, receiver) = mpsc::channel(4_096);
        let (now, origin) = (clock.now(), clock.instant());
        let ledger = Self {
            books: HashMap::default(),
            queue: Arc::new(Queue::new(metrics.clone())),
            outgoing: Arc::default(),
            limits: ArcSwap::default(),
            wants,
            latest: AtomicI64::new(now.0),
            drift: AtomicI64::new(now.0),
            share: AtomicU32::new(1),
            beat: AtomicI64::new(0),
            origin,
            reaped: Mutex::default(),
            has_reaped: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            changed: AtomicI64::new(i64::MIN),
            unheld: Mutex::default(),
            clock,
            metrics,
        };
        (ledger, receiver)
    }

    /// The time that windows are computed from: it never goes back.
    pub fn now(&self) -> Timestamp {
        let now = self.clock.now().0;
        Timestamp(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }

    /// The time that the books measure idleness and refusals by: it stands in no relation to the time of day.
    fn tick(&self) -> Timestamp {
        Timestamp(self.steady())
    }

    /// Milliseconds since this ledger was made, by the steady clock.
    fn steady(&self) -> i64 {
        i64::try_from((self.clock.instant() - self.origin).as_millis()).unwrap_or(i64::MAX)
    }

    /// By how much the wall clock has jumped ahead of the steady one since the last look, if by more than an hour.
    pub fn jump(&self) -> Option<i64> {
        let drift = self.clock.now().0 - self.steady();
        let before = self.drift.swap(drift, Ordering::Relaxed);
        (drift - before > JUMP_MS).then_some(drift - before)
    }

    fn book(&self, organisation: &OrganisationId) -> Arc<Mutex<Book>> {
        let books = self.books.pin();
        if let Some(book) = books.get(organisation) {
            return book.clone();
        }
        books.get_or_insert_with(organisation.clone(), Arc::default).clone()
    }

    pub fn limits(&self) -> Arc<Limits> {
        self.limits.load_full()
    }

    /// Reads budgets and grants anew; what was changed here holds at once.
    pub async fn reload_limits(&self, store: &Store) -> Result<(), StoreError> {
        self.set_limits(Limits::load(store).await?);
        Ok(())
    }

    pub fn set_limits(&self, limits: Limits) {
        let before = self.limits.load_full();
        let changed: Vec<Account> = before.changed_budgets(&limits).cloned().map(Account::Workspace).collect();
        changed.iter().for_each(|account| self.doubt(None, account));
        self.limits.store(Arc::new(limits));
        if !changed.is_empty() {
            self.note_change();
        }
    }

    /// The limits of a key's calls at this moment.
    pub fn rules(&self, key: &KeyEntry, is_billed: bool, now: Timestamp) -> Rules {
        self.limits.load().of(key, is_billed, now)
    }

    /// Holds what a call may cost, in all of its accounts or in none; for one that is let in already, as much more as is
    /// missing to these amounts. For what other nodes have it waits until `patience`.
    pub async fn hold(
        &self,
        organisation: &OrganisationId,
        id: GenerationId,
        demands: &[Demand],
        terms: (Duration, Instant),
    ) -> Result<(), Refusal> {
        if demands.is_empty() {
            return Ok(());
        }
        let book = self.book(organisation);
        self.gathered(organisation, &book, |book, now| book.top_up(id, demands, now), terms).await?;
        self.renew(organisation, &book, demands);
        Ok(())
    }

    /// Whether so much could be held; nothing is.
    pub async fn reaches(
        &self,
        organisation: &OrganisationId,
        id: GenerationId,
        demands: &[Demand],
        terms: (Duration, Instant),
    ) -> Result<(), Refusal> {
        let book = self.book(organisation);
        self.gathered(organisation, &book, |book, now| book.reaches(id, demands, now), terms).await
    }

    /// Takes what there is, and has the store asked for what is not there. Once it is known of one account how much there is at
    /// all, no other is asked for its part of an amount that cannot be held: others would have to give theirs back for nothing.
    async fn gathered(
        &self,
        organisation: &OrganisationId,
        book: &Mutex<Book>,
        take: impl Fn(&mut Book, Timestamp) -> Result<(), Vec<Short>>,
        (hold, patience): (Duration, Instant),
    ) -> Result<(), Refusal> {
        if self.has_lost_contact(hold) {
            return Err(Refusal::Unavailable);
        }
        loop {
            // Apart from the match, which would keep the book locked to its end.
            let taken = take(&mut locked(book), self.tick());
            let short = match taken {
                Ok(()) => return Ok(()),
                Err(short) => short,
            };
            if short.iter().any(|short| short.is_final) {
                return Err(Refusal::Short(short));
            }
            let mut is_elsewhere = false;
            for short in &short {
                match self.ask(organisation, short, false).await {
                    Answer::Granted => {}
                    Answer::Refused { elsewhere } if elsewhere > Money::ZERO => is_elsewhere = true,
                    Answer::Refused { .. } => {
                        // Once more, for what is known now of what is left.
                        return take(&mut locked(book), self.tick()).map_err(Refusal::Short);
                    }
                    Answer::Unreachable => return Err(Refusal::Unavailable),
                }
            }
            if is_elsewhere {
                if self.clock.instant() >= patience {
                    for short in &short {
                        self.ask(organisation, short, true).await;
                    }
                    return take(&mut locked(book), self.tick()).map_err(Refusal::Short);
                }
                sleep(LOOK).await;
            }
        }
    }

    async fn ask(&self, organisation: &OrganisationId, short: &Short, is_last: bool) -> Answer {
        let (reply, answer) = oneshot::channel();
        let want = Want {
            organisation: organisation.clone(),
            rule: short.demand.rule.clone(),
            amount: short.demand.amount,
            is_last,
            reply: Some(reply),
        };
        if self.wants.try_send(want).is_err() {
            return Answer::Unreachable;
        }
        match tokio::time::timeout(STORE, answer).await {
            Ok(Ok(answer)) => answer,
            _ => Answer::Unreachable,
        }
    }

    /// Asks for more in time, where half of a lease is gone.
    fn renew(&self, organisation: &OrganisationId, book: &Mutex<Book>, demands: &[Demand]) {
        if self.share() == 1 {
            return;
        }
        for demand in demands {
            let rule = &demand.rule;
            if locked(book).is_low(&rule.slot, self.tick()) {
                let organisation = organisation.clone();
                let (rule, amount) = (rule.clone(), Money::ZERO);
                // A full queue is answered by those who come and wait.
                let _ = self.wants.try_send(Want { organisation, rule, amount, is_last: false, reply: None });
            }
        }
    }

    /// Holds more for a stream that runs on, without waiting.
    pub fn stretch(&self, organisation: &OrganisationId, id: GenerationId, demands: &[Demand]) -> Stretched {
        if demands.is_empty() {
            return Stretched::Held;
        }
        let stretched = locked(&self.book(organisation)).top_up(id, demands, self.tick());
        let Err(short) = stretched else { return Stretched::Held };
        let is_over = short.iter().any(|short| short.is_final);
        for short in short {
            let organisation = organisation.clone();
            let (rule, amount) = (short.demand.rule, short.demand.amount);
            let _ = self.wants.try_send(Want { organisation, rule, amount, is_last: false, reply: None });
        }
        if is_over { Stretched::Exhausted } else { Stretched::Asked }
    }

    /// What is held for a call in each of its accounts.
    pub fn held(&self, organisation: &OrganisationId, id: GenerationId) -> Vec<Posting> {
        locked(&self.book(organisation)).held(id).map(<[Posting]>::to_vec).unwrap_or_default()
    }

    /// Writes down that a call is let in.
    pub fn intent(&self, exchange: &Exchange, terms: &Terms) -> Result<Option<Receipt>, Unavailable> {
        match self.queue.intent(exchange.id, exchange.to_text()) {
            Ok(receipt) => Ok(Some(receipt)),
            Err(Unavailable) if terms.serve_unmetered => Ok(None),
            Err(Unavailable) => Err(Unavailable),
        }
    }

    pub fn amend(&self, exchange: &Exchange) {
        self.queue.amend(exchange.id, exchange.to_text());
    }

    pub fn progress(&self, id: GenerationId, progress: Progress) {
        self.queue.progress(id, progress);
    }

    /// Closes a call: frees what was held, posts what it cost, and writes that down.
    /// `letters`: what destinations are to be told of it.
    pub fn settle(&self, exchange: Box<Exchange>, had_intent: bool, letters: Option<Letters>) -> Receipt {
        if self.was_reaped(exchange.id) {
            // It may have held more since.
            self.release(&exchange.organisation, exchange.id);
            self.unheld.lock().unwrap_or_else(PoisonError::into_inner).remove(&exchange.id);
            return Receipt::DONE;
        }
        if !exchange.postings.is_empty() {
            let book = self.book(&exchange.organisation);
            let (mut open, now) = (locked(&book), self.tick());
            open.post_unheld(exchange.id, &exchange.postings, now);
            let closed = open.settle(exchange.id, &exchange.postings, now);
            drop(open);
            let overshoot = closed.map_or(Money::ZERO, |closed| closed.overshoot);
            if let Some(nanos) = u64::try_from(overshoot.0).ok().filter(|nanos| *nanos > 0) {
                self.metrics.ledger_overshoot.inc_by(nanos);
            }
        }
        self.queue.settle(exchange, had_intent, letters)
    }

    /// Notes that a call was closed by somebody else than itself.
    fn reaped(&self, id: GenerationId) {
        self.reaped.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.has_reaped.store(true, Ordering::Relaxed);
    }

    fn was_reaped(&self, id: GenerationId) -> bool {
        self.has_reaped.load(Ordering::Relaxed)
            && self.reaped.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn settle_lost(&self, exchange: Box<Exchange>) {
        locked(&self.book(&exchange.organisation)).settle(exchange.id, &exchange.postings, self.tick());
        self.queue.settle(exchange, true, None);
    }

    /// Frees what was held for a call of which nothing is to be written.
    pub fn release(&self, organisation: &OrganisationId, id: GenerationId) {
        locked(&self.book(organisation)).release(id, self.tick());
    }

    /// Until the main store has everything that was committed before this call; false when it does not take it in time.
    pub async fn forwarded(&self, limit: Duration) -> bool {
        self.outgoing.drained(limit).await
    }

    pub fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Whether leases may have been given to others by now.
    fn has_lost_contact(&self, hold: Duration) -> bool {
        let silent = self.steady() - self.beat.load(Ordering::Relaxed);
        silent > i64::try_from(hold.as_millis()).unwrap_or(i64::MAX)
    }
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
