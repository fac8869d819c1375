//! The one task of a node that talks to the main store about money: it takes leases and gives them back, forwards what was
//! settled, and says that the node is alive. One after the other: what the store holds of this node's leases and what
//! the books hold then change in the same order.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_core::map::{Map, Set};
use tidegate_core::{Exchange, GenerationId, Money, OrganisationId, Posting, Slot, Timestamp};
use tidegate_store::journal::{JournalError, JournalReader, Node, Place, Settled};
use tidegate_store::ledger::{Granted, Wanted};
use tidegate_store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::applications::Applications;
use super::book::Rule;
use super::outgoing::BATCH;
use super::rules::Limits;
use super::{Ledger, fail, locked};

/// How long the first call of a batch waits for others.
const GATHER: Duration = Duration::from_millis(100);
/// Between two tries after the store failed.
const RETRY: Duration = Duration::from_millis(500);
/// How often it is looked whether others want what is held here.
const TICK: Duration = Duration::from_millis(400);
const BEAT: Duration = Duration::from_secs(15);
/// A lease that nobody has used for this long goes back.
const IDLE: Duration = Duration::from_secs(30);
const SWEEP: Duration = Duration::from_secs(5);
/// How long the journal may take to forget.
const FORGET: Duration = Duration::from_secs(10);
/// After the store had nothing to give it is not asked again for this long.
const REFUSED: Duration = Duration::from_secs(1);
const REFUSED_SHARED: Duration = Duration::from_millis(150);

/// Somebody needs more than is held here.
pub struct Want {
    pub organisation: OrganisationId,
    pub rule: Rule,
    /// What must be available in the end; nothing when it is just time for more.
    pub amount: Money,
    /// Whoever asks waits no longer, and takes what there is.
    pub is_last: bool,
    pub reply: Option<oneshot::Sender<Answer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is more now, or there was enough.
    Granted,
    /// There is no more; what other nodes hold may come back.
    Refused { elsewhere: Money },
    /// The store does not answer.
    Unreachable,
}

/// Why settled calls stay where they are.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("calls that the store has stay in the journal: it cannot be written")]
    Kept,
}

pub struct Treasury {
    ledger: Arc<Ledger>,
    store: Arc<Store>,
    journal: JournalReader,
    node: Node,
    wants: mpsc::Receiver<Want>,
    hold: Duration,
    longest_call: Duration,
    /// The store failed while it changed a lease, and nobody knows whether it did. Until it is asked, the books count on
    /// the lesser of the two.
    is_unsure: bool,
    /// The last batch reached the store.
    is_forwarded: bool,
    /// Calls read from the journal that the books have counted as forwarded.
    counted: Set<GenerationId>,
    /// When it is next looked for leases that nobody uses.
    swept: Timestamp,
    applications: Applications,
}

impl Treasury {
    /// `hold`: how long leases are good without a heartbeat. After `longest_call` more no call can still run.
    pub fn new(
        (ledger, wants): (Arc<Ledger>, mpsc::Receiver<Want>),
        store: Arc<Store>,
        (journal, node): (JournalReader, Node),
        (hold, longest_call): (Duration, Duration),
    ) -> Self {
        let (is_unsure, is_forwarded) = (false, true);
        let (counted, swept) = (Set::default(), Timestamp(0));
        let applications = Applications::default();
        Self {
            ledger,
            store,
            journal,
            node,
            wants,
            hold,
            longest_call,
            is_unsure,
            is_forwarded,
            counted,
            swept,
            applications,
        }
    }

    /// To be called once before the first request: what an earlier start left is forwarded, and its leases go back.
    pub async fn begin(&mut self) -> Result<(), Trouble> {
        while !self.ledger.outgoing.is_empty() {
            self.forward().await?;
        }
        self.store.take_over(&self.node.id, self.node.epoch).await?;
        self.beat().await?;
        self.ledger.set_limits(Limits::load(&self.store).await?);
        Ok(())
    }

    /// Until `stop` says so, or nobody can say so any more. Then all is forwarded, and given back when no call is open.
    pub async fn run(mut self, mut stop: oneshot::Receiver<bool>) {
        let mut tick = Instant::now() + TICK;
        let mut beat = Instant::now() + BEAT;
        let mut forward: Option<Instant> = None;
        let mut healthy = true;
        let is_idle = loop {
            let next = forward.map_or(tick, |forward| forward.min(tick));
            let outgoing = self.ledger.outgoing.clone();
            tokio::select! {
                biased;
                stopped = &mut stop => break stopped.unwrap_or(false),
                want = self.wants.recv() => match want {
                    Some(want) => self.answer(want).await,
                    None => break false,
                },
                () = outgoing.hurried() => forward = Some(Instant::now()),
                () = outgoing.crowded() => {}
                () = outgoing.arrived.notified(), if forward.is_none() => forward = Some(Instant::now() + GATHER),
                () = sleep_until(next) => {}
            }
            let now = Instant::now();
            if forward.is_some_and(|at| at <= now) || outgoing.len() >= BATCH {
                let result = self.forward().await;
                self.is_forwarded = result.is_ok();
                if std::mem::replace(&mut healthy, result.is_ok()) != result.is_ok() {
                    match &result {
                        Ok(()) => tracing::info!("finished requests are recorded again"),
                        Err(error) => tracing::error!(%error, "finished requests wait in the journal; trying on"),
                    }
                }
                forward = match (result, outgoing.is_empty()) {
                    (Err(_), _) => Some(Instant::now() + RETRY),
                    (Ok(()), true) => None,
                    // Others come all the time: what is sent together costs far less.
                    (Ok(()), false) if outgoing.len() < BATCH && !outgoing.has_spilled() => {
                        Some(Instant::now() + GATHER)
                    }
                    (Ok(()), false) => Some(Instant::now()),
                };
            }
            if tick <= now {
                tick = now + TICK;
                if !self.store.is_shared() {
                    // Nobody else can be given what this node holds, however long the store is silent.
                    self.ledger.beat.store(self.ledger.steady(), Ordering::Relaxed);
                }
                self.look().await;
            }
            if beat <= now {
                beat = now + BEAT;
                if let Err(error) = self.beat().await {
                    tracing::warn!(%error, "the store does not hear that this node is alive");
                }
            }
        };
        if let Err(error) = self.end(is_idle).await {
            tracing::warn!(%error, "finished requests stay in the journal until the next start");
        }
    }

    async fn end(&mut self, is_idle: bool) -> Result<(), Trouble> {
        while !self.ledger.outgoing.is_empty() {
            self.forward().await?;
        }
        if is_idle {
            self.store.leave(&self.node.id).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, want: Want) {
        let Want { organisation, rule, amount, is_last, reply } = want;
        let answer = match self.lease(&organisation, &rule, amount, is_last).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, "no lease could be taken");
                self.is_unsure = true;
                Answer::Unreachable
            }
        };
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
    }

    async fn lease(
        &mut self,
        organisation: &OrganisationId,
        rule: &Rule,
        amount: Money,
        is_last: bool,
    ) -> Result<Answer, StoreError> {
        let book = self.ledger.book(organisation);
        let now = self.ledger.tick();
        let mut state = locked(&book).state(rule, now);
        if state.is_none_or(|state| state.is_stale) && self.ledger.has_changed() {
            // What was spent without this limit counts against it from now on.
            self.forward_all().await;
            state = locked(&book).state(rule, now);
        }
        if let Some(state) = state {
            if state.is_stale {
                // Whoever asks: what the store says now is of another limit than what is held.
                self.give_back(organisation, &rule.slot).await?;
            } else if state.available >= amount && amount > Money::ZERO {
                // Somebody else's want has been answered meanwhile.
                return Ok(Answer::Granted);
            } else if state.is_refused && !is_last {
                return Ok(Answer::Refused { elsewhere: state.elsewhere });
            }
        }
        let available = locked(&book).state(rule, now).map_or(Money::ZERO, |state| state.available);
        let least = if is_last { Money::ZERO } else { amount.minus(available).max(Money::ZERO) };
        let share = if is_last { 1 } else { self.ledger.share() };
        let wanted = Wanted {
            slot: &rule.slot,
            limit: rule.limit,
            counts_byok: rule.counts_byok,
            least,
            share,
            only_recalls: false,
        };
        let granted = self.store.lease(&self.node.id, &wanted).await?;
        let until =
            |elsewhere: Money| self.ledger.tick().plus(if elsewhere > Money::ZERO { REFUSED_SHARED } else { REFUSED });
        match granted {
            Granted::Leased(amount) => {
                locked(&book).granted(rule, amount, now);
                Ok(Answer::Granted)
            }
            Granted::Nothing { elsewhere } => {
                let mut book = locked(&book);
                book.granted(rule, Money::ZERO, now);
                if available <= Money::ZERO {
                    book.refused(rule, (Money::ZERO, elsewhere), now, until(elsewhere));
                }
                Ok(Answer::Granted)
            }
            Granted::Refused { mut remaining, mut elsewhere } => {
                if remaining > Money::ZERO && elsewhere == Money::ZERO {
                    // All that is left, so that whoever asks can be told how far it reaches. Not while others may give
                    // theirs back: what is left and what they give are enough for somebody only together.
                    let wanted = Wanted { least: remaining, ..wanted };
                    match self.store.lease(&self.node.id, &wanted).await? {
                        Granted::Leased(amount) => locked(&book).granted(rule, amount, now),
                        // Another node was quicker.
                        Granted::Refused { remaining: left, elsewhere: there } => {
                            (remaining, elsewhere) = (left, there)
                        }
                        Granted::Nothing { elsewhere: there } => (remaining, elsewhere) = (Money::ZERO, there),
                    }
                }
                locked(&book).refused(rule, (remaining, elsewhere), now, until(elsewhere));
                Ok(Answer::Refused { elsewhere })
            }
        }
    }

    /// Gives back what is free in a slot.
    async fn give_back(&mut self, organisation: &OrganisationId, slot: &Slot) -> Result<(), StoreError> {
        let free = locked(&self.ledger.book(organisation)).surplus(slot);
        if free == Money::ZERO {
            return Ok(());
        }
        self.give(&[(slot.clone(), free)]).await
    }

    async fn give(&mut self, free: &[(Slot, Money)]) -> Result<(), StoreError> {
        let given = self.store.give_back(&self.node.id, free).await;
        self.is_unsure |= given.is_err();
        given
    }

    /// Asks the store what this node holds, after an answer of it was lost. Everything settled must have been forwarded.
    async fn agree(&mut self) -> Result<(), StoreError> {
        let mut leases: Map<Slot, Money> = self.store.leases_of(&self.node.id).await?.into_iter().collect();
        for book in self.ledger.books.pin().values() {
            locked(book).agree(&mut leases);
        }
        let unused: Vec<(Slot, Money)> = leases.into_iter().collect();
        if !unused.is_empty() {
            self.store.give_back(&self.node.id, &unused).await?;
        }
        self.is_unsure = false;
        Ok(())
    }

    /// Sends settled calls to the store. They leave the books and the journal when it has them.
    async fn forward(&mut self) -> Result<(), Trouble> {
        let outgoing = self.ledger.outgoing.clone();
        let (batch, places) = outgoing.take(BATCH);
        if !batch.is_empty() {
            self.applications.see(&self.store, &batch, self.ledger.now()).await;
            if let Err(error) = self.store.forward(&self.node.id, &batch).await {
                outgoing.put_back(batch, places);
                return Err(error.into());
            }
            fail::point("store.forwarded");
            self.settle_up(&batch);
            self.recall(&batch).await;
            if outgoing.has_spilled() {
                // The journal is read next: it must not hold these any more, and if it does, they were counted.
                self.counted.extend(batch.iter().map(|exchange| exchange.id));
                self.forget(places, Vec::new()).await?;
            } else {
                self.ledger.queue.forget(places, Vec::new(), None);
                self.counted.clear();
            }
            outgoing.done(batch.len());
            return Ok(());
        }
        if outgoing.has_spilled() {
            self.forward_spilled().await?;
        }
        Ok(())
    }

    /// Sends what waits now. What cannot be sent stays.
    async fn forward_all(&mut self) {
        for _ in 0..=self.ledger.outgoing.len() / BATCH {
            self.is_forwarded = self.forward().await.is_ok();
            if !self.is_forwarded {
                return;
            }
        }
    }

    /// Has other nodes give back what they hold of limits that calls of this batch, which the store has now, have passed
    /// without their knowing.
    async fn recall(&self, batch: &[impl Borrow<Exchange>]) {
        let mut rules: Map<Slot, Rule> = Map::default();
        {
            let mut unheld = self.ledger.unheld.lock().unwrap_or_else(PoisonError::into_inner);
            if unheld.is_empty() {
                return;
            }
            let found = batch.iter().filter_map(|exchange| unheld.remove(&exchange.borrow().id)).flatten();
            rules.extend(found.map(|rule| (rule.slot.clone(), rule)));
        }
        for Rule { slot, limit, counts_byok } in rules.into_values() {
            let (slot, least) = (&slot, Money::ZERO);
            let wanted = Wanted { slot, limit, counts_byok, least, share: 1, only_recalls: true };
            if let Err(error) = self.store.lease(&self.node.id, &wanted).await {
                tracing::debug!(%error, "other nodes were not asked for what they hold");
            }
        }
    }

    async fn forward_spilled(&mut self) -> Result<(), Trouble> {
        // What could not be taken away before must not be found and counted again.
        self.forget(Vec::new(), Vec::new()).await?;
        let read = self.journal.settled(BATCH).await?;
        let was_all = read.is_all;
        self.forward_read(read).await?;
        if was_all {
            // What came while the last were read is only in the journal.
            let here = self.ledger.outgoing.collect();
            let sent = self.forward_rest(&here).await;
            if !matches!(sent, Ok(true)) {
                self.ledger.outgoing.spill();
            }
            sent?;
        }
        self.ledger.outgoing.done(0);
        Ok(())
    }

    /// Sends what is in the journal and not among these; whether that was all.
    async fn forward_rest(&mut self, here: &[GenerationId]) -> Result<bool, Trouble> {
        let mut read = self.journal.settled(BATCH + here.len()).await?;
        let was_all = read.is_all;
        let here: Set<&GenerationId> = here.iter().collect();
        read.calls.retain(|(exchange, _)| !here.contains(&exchange.id));
        self.forward_read(read).await?;
        Ok(was_all)
    }

    async fn forward_read(&mut self, read: Settled) -> Result<(), Trouble> {
        let (calls, places): (Vec<Exchange>, Vec<Place>) = read.calls.into_iter().unzip();
        for (batch, places) in calls.chunks(BATCH).zip(places.chunks(BATCH)) {
            self.applications.see(&self.store, batch, self.ledger.now()).await;
            self.store.forward(&self.node.id, batch).await?;
            fail::point("store.forwarded");
            self.settle_up(batch);
            self.recall(batch).await;
            // Some of them may be on their way here besides, or stay in the journal: they must not be counted again.
            self.counted.extend(batch.iter().map(|exchange| exchange.id));
            self.forget(places.to_vec(), Vec::new()).await?;
        }
        if read.spoiled.is_empty() { Ok(()) } else { self.forget(Vec::new(), read.spoiled).await }
    }

    /// Takes away from the journal what the store has, so that the next read does not find it.
    async fn forget(&self, places: Vec<Place>, spoiled: Vec<Place>) -> Result<(), Trouble> {
        let (sender, forgotten) = oneshot::channel();
        self.ledger.queue.forget(places, spoiled, Some(sender));
        match timeout(FORGET, forgotten).await {
            Ok(Ok(true)) => Ok(()),
            _ => Err(Trouble::Kept),
        }
    }

    fn settle_up(&self, batch: &[impl Borrow<Exchange>]) {
        let is_new = |exchange: &&Exchange| !exchange.postings.is_empty() && !self.counted.contains(&exchange.id);
        let mut rest: Vec<&Exchange> = batch.iter().map(Borrow::borrow).filter(is_new).collect();
        while let Some(organisation) = rest.first().map(|exchange| exchange.organisation.clone()) {
            let (these, others): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|exchange| exchange.organisation == organisation);
            let postings: Vec<Posting> = these.iter().flat_map(|exchange| exchange.postings.iter().cloned()).collect();
            locked(&self.ledger.book(&organisation)).forwarded(&postings);
            rest = others;
        }
    }

    /// What others want, what nobody uses, and which limits have changed.
    async fn look(&mut self) {
        if let Err(error) = self.try_look().await {
            tracing::debug!(%error, "the store does not answer about leases");
        }
    }

    async fn try_look(&mut self) -> Result<(), StoreError> {
        if self.is_unsure && self.is_forwarded {
            self.agree().await?;
        }
        let seq = self.store.limits_seq().await?;
        if seq != self.ledger.limits().seq {
            self.ledger.set_limits(Limits::load(&self.store).await?);
        }
        let books: Vec<OrganisationId> = self.ledger.books.pin().keys().cloned().collect();
        if self.store.is_shared() {
            let called_for = self.store.called_for(&self.node.id).await?;
            if !called_for.is_empty() && self.ledger.share() == 1 {
                // There is somebody else: who believes to be alone takes all there is, over and over.
                self.beat().await?;
            }
            for slot in called_for {
                for organisation in &books {
                    self.give_back(organisation, &slot).await?;
                }
            }
        }
        let now = self.ledger.tick();
        if now < self.swept {
            return Ok(());
        }
        self.swept = now.plus(SWEEP);
        let before = Timestamp(now.0 - i64::try_from(IDLE.as_millis()).unwrap_or(0));
        for organisation in books {
            let free = locked(&self.ledger.book(&organisation)).idle(before);
            if !free.is_empty() {
                self.give(&free).await?;
            }
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        let sent = self.ledger.steady();
        let was_lost = self.ledger.has_lost_contact(self.hold);
        let (live, is_known) = self.store.beat(&self.node.id, self.node.epoch).await?;
        if was_lost || !is_known {
            // Others may have been given what this node held. It starts anew, with what it has posted still counted.
            self.store.take_over(&self.node.id, self.node.epoch).await?;
            for book in self.ledger.books.pin().values() {
                locked(book).forget_leases();
            }
        }
        self.ledger.share.store(live, Ordering::Relaxed);
        self.ledger.beat.store(sent, Ordering::Relaxed);
        let gone = self.hold + self.longest_call + Duration::from_secs(60);
        let taken = self.store.reclaim(i64::try_from(gone.as_millis()).unwrap_or(i64::MAX)).await?;
        if taken > 0 {
            tracing::warn!(leases = taken, "leases of nodes that are gone were taken back");
        }
        Ok(())
    }
}
