//! A node that runs out of something refuses early what can be spared, so that the rest goes on. What is measured becomes
//! a level a few times a second ([`level`]); requests look at that one number and at nothing else.
//!
//! Never refused: streams under way, settling, health, the disabling of keys, the exchange of codes. They do not ask.

pub mod level;
mod measure;
mod script;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tidegate_core::id::random;
use tidegate_observe::metrics::{Metrics, Reason, Used};
use tidegate_routing::{Catalogue, Variant};
use tidegate_store::{Store, StoreError};
use tokio::time::{Instant, sleep_until};

use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};
pub use level::Level;
use level::{Ladder, Lateness, Readings, Resource, Share};
use measure::Machine;

/// How often everything is measured.
const EVERY: Duration = Duration::from_millis(250);
/// Seconds that a refused caller is told to wait at most. They are drawn, so that not all come back at once.
const LONGEST_WAIT: u8 = 5;

/// Shows what is measured before the first look at it: who asks at once is to find all there is to find.
pub(crate) fn at_start(metrics: &Metrics) {
    tell(metrics, &Readings::default());
}

fn tell(metrics: &Metrics, readings: &Readings) {
    for resource in Resource::ALL {
        let used = Used { resource: resource.as_str() };
        metrics.overload_used.get_or_create(&used).set(readings.of(resource).ratio());
    }
}

/// What requests see of it.
#[derive(Default)]
pub struct Overload(AtomicU8);

impl Overload {
    pub fn level(&self) -> Level {
        Level::of(self.0.load(Ordering::Relaxed))
    }
}

impl Gateway {
    /// Refuses what is refused from a level on.
    pub fn shed_from(&self, level: Level) -> Result<(), Failure> {
        if self.overload.level() < level { Ok(()) } else { Err(self.shed(level)) }
    }

    /// Refuses a key that has more under way than the keys under way have on average.
    pub(crate) fn shed_greedy(&self, key: &KeyEntry) -> Result<(), Failure> {
        if self.overload.level() < Level::Greedy {
            return Ok(());
        }
        let (own, keys) = (key.live.in_flight.current(), self.busy_keys.current());
        if own.saturating_mul(keys) > self.node.current() { Err(self.shed(Level::Greedy)) } else { Ok(()) }
    }

    /// Refuses a call that names only models that cost nothing.
    pub(crate) fn shed_free<'a>(
        &self,
        snapshot: &Snapshot,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        if self.overload.level() < Level::Free {
            return Ok(());
        }
        if names.all(|name| is_free(&snapshot.catalogue, name)) { Err(self.shed(Level::Free)) } else { Ok(()) }
    }

    fn shed(&self, level: Level) -> Failure {
        self.metrics.shed.get_or_create(&Reason { reason: level.as_str() }).inc();
        let [drawn] = random();
        Failure { retry_after: Some(u64::from(1 + drawn % LONGEST_WAIT)), ..Failure::unavailable() }
    }

    /// Measures until the process ends.
    pub async fn watch_load(&self) {
        let (mut machine, mut lateness, mut ladder) = (Machine::default(), Lateness::default(), Ladder::default());
        let mut store = Asked::new(self.keys.store().clone());
        let started = Instant::now();
        let mut due = started + EVERY;
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                () = store.answered() => continue,
            }
            let now = Instant::now();
            let mut readings = Readings::default();
            let (configured, largest) = {
                let settings = &self.snapshot.load().settings;
                (settings.memory_bytes, settings.max_body_bytes.max(settings.files.form_bytes()))
            };
            readings.set(Resource::Memory, machine.memory(configured));
            self.intake.fits(configured.unwrap_or_else(|| machine.most_memory()), largest);
            readings.late(lateness.note(now.saturating_duration_since(due)));
            let (taken, most) = self.ledger.queue.places();
            readings.set(Resource::Ledger, Share::of(taken as u64, most as u64));
            readings.set(Resource::Descriptors, machine.descriptors());
            readings.store_took(store.took(now));
            store.ask(now);
            let (readings, at) = script::instead_of(readings, now - started);
            self.loaded(&readings, ladder.look(readings.worst().0, at));
            due = Instant::now() + EVERY;
        }
    }

    /// Takes a level over and tells about it.
    fn loaded(&self, readings: &Readings, level: Level) {
        let before = Level::of(self.overload.0.swap(level as u8, Ordering::Relaxed));
        self.metrics.shed_level.set(level as i64);
        tell(&self.metrics, readings);
        let (_, worst) = readings.worst();
        let (refused, percent) = (level.as_str(), readings.of(worst).0 / 10);
        if level > before {
            tracing::warn!(
                level = level as u8,
                before = before as u8,
                refused,
                resource = worst.as_str(),
                percent,
                "overloaded: more is refused"
            );
        } else if level < before {
            tracing::info!(
                level = level as u8,
                before = before as u8,
                refused,
                resource = worst.as_str(),
                percent,
                "the load goes down: less is refused"
            );
        }
    }
}

/// Whether a model costs nothing, whoever serves it. A price that nobody knows is not zero.
fn is_free(catalogue: &Catalogue, name: &str) -> bool {
    let Ok(named) = catalogue.find(name) else { return false };
    let endpoints = &named.model.endpoints;
    let costs_nothing =
        || endpoints.iter().all(|endpoint| endpoint.pricing.as_ref().is_some_and(|price| price.is_free()));
    named.variants.contains(Variant::Free) || !endpoints.is_empty() && costs_nothing()
}

type Question = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// The smallest question to the store, one at a time.
struct Asked {
    store: Arc<Store>,
    open: Option<(Question, Instant)>,
    took: Duration,
}

impl Asked {
    fn new(store: Arc<Store>) -> Self {
        Self { store, open: None, took: Duration::ZERO }
    }

    fn ask(&mut self, now: Instant) {
        if self.open.is_none() {
            let store = self.store.clone();
            self.open = Some((Box::pin(async move { store.ping().await }), now));
        }
    }

    /// Done when the open question is answered; never when there is none.
    async fn answered(&mut self) {
        let Some((question, since)) = &mut self.open else { return std::future::pending().await };
        let answer = question.await;
        // A store that says that it cannot is not slow: nothing of ours would make it faster.
        self.took = if answer.is_ok() { since.elapsed() } else { Duration::ZERO };
        self.open = None;
    }

    /// How long the last answer took, or the next one has taken already.
    fn took(&self, now: Instant) -> Duration {
        let waiting = self.open.as_ref().map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(*since));
        self.took.max(waiting)
    }
}
