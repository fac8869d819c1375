//! What the turns of a loop have in common, and what of it they share with the loops inside it.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use http::HeaderMap;
use http::header::HeaderValue;
use tidegate_core::map::Set;
use tidegate_core::{Api, GenerationId, KeyHash, Money};
use tidegate_observe::broadcast::Used;
use tidegate_providers::anthropic::Forwarded;

use super::admit::Places;
use super::meter::Meter;
use super::settle::Asker;
use crate::agent::Shares;
use crate::plugins::Prepared;
use crate::presets::Applied;
use crate::sticky::{Conversation, Hearth};

/// Loops that are under way here, by their first turns.
#[derive(Debug, Default)]
pub struct Loops(Mutex<Set<GenerationId>>);

impl Loops {
    /// Whether more may come: what is on record of it is a part.
    pub fn has(&self, root: &GenerationId) -> bool {
        self.set().contains(root)
    }

    fn set(&self) -> MutexGuard<'_, Set<GenerationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loop is under way until this is dropped.
struct Running {
    loops: Arc<Loops>,
    root: GenerationId,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.loops.set().remove(&self.root);
    }
}

/// What the turns of a loop have in common.
pub(crate) struct Inner {
    pub(super) api: Api,
    pub(super) places: Arc<Places>,
    pub(super) conversation: Conversation,
    /// Where its turns are served.
    pub(super) hearth: Arc<Hearth>,
    /// What the caller keeps requests together by, where it names no session.
    pub(super) cache_key: Option<Box<str>>,
    /// The preset that the request was made with.
    pub(super) applied: Option<Applied>,
    /// What plugins made of it.
    pub(super) prepared: Option<Box<Prepared>>,
    /// The first turn.
    pub(super) root: OnceLock<GenerationId>,
    /// The latest one, of loops inside this one as well.
    latest: Arc<Mutex<Option<GenerationId>>>,
    /// Not of a loop inside another one, which has the other's first turn.
    running: Mutex<Option<Running>>,
    /// Tools that were run since the last turn, where somebody wants to hear of them.
    used: Mutex<Vec<Used>>,
    /// Searches and fetches that were run since the last turn.
    ran: Mutex<(u64, u64)>,
    /// Who sent it, once the first turn has begun.
    pub(super) asker: OnceLock<Asker>,
    /// What all of it has cost.
    pub(super) meter: Arc<Meter>,
    /// What all of it may use.
    shares: Arc<Shares>,
    /// Whether it was counted as a request to a free model.
    is_counted: AtomicBool,
}

impl Inner {
    pub fn new(
        api: Api,
        places: Arc<Places>,
        conversation: Conversation,
        (applied, prepared): (Option<Applied>, Option<Box<Prepared>>),
        shares: Arc<Shares>,
    ) -> Self {
        let (cache_key, root, used, is_counted) = (None, OnceLock::new(), Mutex::default(), AtomicBool::new(false));
        let (ran, asker, running) = (Mutex::default(), OnceLock::new(), Mutex::default());
        // What plugins cost is shown with the first turn.
        let meter = Meter::of(prepared.as_ref().map_or(Money::ZERO, |prepared| prepared.told.fee));
        Self {
            api,
            places,
            conversation,
            hearth: Arc::default(),
            cache_key,
            applied,
            prepared,
            root,
            latest: Arc::default(),
            running,
            used,
            ran,
            asker,
            meter,
            shares,
            is_counted,
        }
    }

    #[must_use]
    pub fn keyed(self, cache_key: Option<&str>) -> Self {
        Self { cache_key: cache_key.map(Into::into), ..self }
    }

    /// For a call that a tool makes: part of the same request, and a conversation of its own.
    pub fn beside(&self, conversation: Conversation) -> Self {
        let places = self.places.clone();
        let (root, used, meter) = (self.root.clone(), Mutex::default(), Meter::inside(&self.meter));
        let shares = self.shares.clone();
        Self {
            api: self.api,
            places,
            conversation,
            hearth: Arc::default(),
            cache_key: None,
            applied: None,
            prepared: None,
            root,
            latest: self.latest.clone(),
            running: Mutex::default(),
            used,
            ran: Mutex::default(),
            asker: OnceLock::new(),
            meter,
            shares,
            is_counted: AtomicBool::new(false),
        }
    }

    /// The id of the next turn: turns are read back in the order of their ids, and two may begin in one millisecond.
    pub(super) fn next(&self, id: GenerationId) -> GenerationId {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let next = latest.map_or(id, |latest| id.after(latest));
        *latest = Some(next);
        next
    }

    /// A turn begins, with this id: what the first of all had.
    pub(super) fn begin(&self, loops: &Arc<Loops>, turn: GenerationId) -> GenerationId {
        *self.root.get_or_init(|| {
            loops.set().insert(turn);
            *self.running() = Some(Running { loops: loops.clone(), root: turn });
            turn
        })
    }

    /// The last turn is over: whoever hears the end of the answer may ask for all of it.
    pub fn over(&self) {
        drop(self.running().take());
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tool was run; the next turn tells of it.
    pub fn note_used(&self, used: Used) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).push(used);
    }

    pub(super) fn used(&self) -> Vec<Used> {
        mem::take(&mut *self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// So many searches and fetches were run; the next turn counts them.
    pub fn note_ran(&self, searches: u64, fetches: u64) {
        let mut ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        *ran = (ran.0 + searches, ran.1 + fetches);
    }

    pub(super) fn ran(&self) -> (u64, u64) {
        mem::take(&mut *self.ran.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What its calls and those of its tools have cost so far, as it was settled.
    pub fn cost(&self) -> Money {
        self.meter.cost()
    }

    /// A loop is one request to its model, however many turns it has.
    pub(super) fn is_uncounted(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    /// What is said of the request with a later call of it. Whoever keeps answers by the name of a request would give the
    /// first turn's again, so each call has a name of its own, and the same one when all of it is repeated in the same order.
    pub(super) fn forwarded(&self, headers: &HeaderMap, body: &[u8]) -> Forwarded {
        let mut forwarded = super::forwarded(headers);
        let number = self.shares.number();
        forwarded.idempotency_key = forwarded.idempotency_key.and_then(|key| {
            let hash = KeyHash::of(body).to_hex();
            let name = [key.as_bytes(), format!("-{number}-{}", &hash[..16]).as_bytes()].concat();
            HeaderValue::from_bytes(&name).ok()
        });
        forwarded
    }

    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    /// The first turn, once it has begun.
    pub fn root(&self) -> Option<&GenerationId> {
        self.root.get()
    }
}
