//! How upstreams are doing, learnt from the calls that are made anyway. One record per endpoint and credential; it
//! survives a reload, since it belongs to the endpoint's name and not to its configuration.

mod retry;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use papaya::HashMap;
use quick_cache::sync::Cache;
use tidegate_core::Clock;
use tidegate_observe::metrics::{Metrics, Served};
use tidegate_providers::{Class, Fault};
use tidegate_routing::health::breaker::Permit;
use tidegate_routing::health::window::Tally;
use tidegate_routing::health::{COOL_DOWN_MS, Health as Record, Outcome, Uptime};
use tidegate_routing::live::{Group, Live, Percentiles, Vital};
use tidegate_routing::{Attempt, Catalogue, Credential, Draws, Endpoint};

pub(crate) use retry::Retry;

/// Ways to call with credentials of customers that are remembered.
const OWN: usize = 10_000;
/// How long the operator's own credential is passed over once its provider has refused it.
const REST_MS: i64 = 60_000;
/// The longest that an endpoint is left alone on its own word.
const LONGEST_COOL_DOWN_MS: i64 = 600_000;

type Name = (Arc<str>, Arc<str>);
/// The same with a credential.
type OwnName = (Arc<str>, Arc<str>, Arc<str>);

/// The record of one way to call.
#[derive(Default)]
pub(crate) struct Cell(Mutex<Record>);

impl Cell {
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of a provider, whichever model is asked for.
pub(crate) struct Service {
    /// Two minutes in steps of ten seconds; what was not accepted counts as failed.
    accepted: Mutex<Tally<12>>,
    active: AtomicUsize,
    retries: AtomicUsize,
    /// Until when the operator's own credential rests.
    rests: AtomicI64,
    /// Until when nobody needs to hear again that it was refused.
    told_until: AtomicI64,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            accepted: Mutex::new(Tally::new(10_000)),
            active: AtomicUsize::new(0),
            retries: AtomicUsize::new(0),
            rests: AtomicI64::new(i64::MIN),
            told_until: AtomicI64::new(i64::MIN),
        }
    }
}

impl Service {
    fn accepted(&self) -> MutexGuard<'_, Tally<12>> {
        tally(&self.accepted)
    }

    /// The share of calls that is better made elsewhere: none while half of them are accepted.
    fn excess(&self, now: i64) -> f64 {
        let count = self.accepted().of_all(now);
        let accepts = count.calls - count.failed;
        (count.calls as f64 - 2.0 * accepts as f64).max(0.0) / (count.calls as f64 + 1.0)
    }
}

pub struct Health {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    origin: Instant,
    draws: Draws,
    shared: HashMap<Name, Arc<Cell>>,
    own: Cache<OwnName, Arc<Cell>>,
    services: HashMap<Arc<str>, Arc<Service>>,
    /// Calls of the last ten seconds; those that were retries count as failed.
    node: Mutex<Tally<10>>,
}

/// Where the records of a catalogue's endpoints are: by `Endpoint::place`, and of their providers by `provider_index`.
#[derive(Clone, Default)]
pub struct Ward {
    cells: Vec<Arc<Cell>>,
    services: Vec<Arc<Service>>,
}

impl Health {
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            origin: clock.instant(),
            clock,
            metrics,
            draws: Draws::new(RandomState::new().hash_one("health")),
            shared: HashMap::new(),
            own: Cache::new(OWN),
            services: HashMap::new(),
            node: Mutex::new(Tally::new(1_000)),
        })
    }

    /// Milliseconds since the start, by the steady clock.
    fn now(&self) -> i64 {
        i64::try_from((self.clock.instant() - self.origin).as_millis()).unwrap_or(i64::MAX)
    }

    /// Finds the records of a catalogue's endpoints, or opens them. Those of endpoints that are gone are dropped.
    pub fn ward(&self, catalogue: &Catalogue) -> Ward {
        let mut ward = Ward::default();
        let (shared, services) = (self.shared.pin(), self.services.pin());
        let mut known = std::collections::HashSet::new();
        for model in catalogue.models() {
            for endpoint in &model.endpoints {
                let name = name(endpoint);
                let cell = shared.get_or_insert_with(name.clone(), Arc::default).clone();
                let service = services.get_or_insert_with(endpoint.provider.clone(), Arc::default).clone();
                // A catalogue that is made anew may have come with another credential.
                service.rests.store(i64::MIN, Ordering::Relaxed);
                service.told_until.store(i64::MIN, Ordering::Relaxed);
                set(&mut ward.cells, endpoint.place, cell);
                set(&mut ward.services, endpoint.provider_index, service);
                known.insert(name);
            }
        }
        shared.retain(|name, _| known.contains(name));
        ward
    }

    fn cell(&self, ward: &Ward, endpoint: &Endpoint, credential: Option<&Credential>) -> Option<Arc<Cell>> {
        let Some(credential) = credential else { return ward.cells.get(endpoint.place).cloned() };
        let (model, tag) = name(endpoint);
        self.own.get_or_insert_with(&(model, tag, credential.id.clone()), || Ok::<_, ()>(Arc::default())).ok()
    }

    /// What a plan asks.
    pub fn view<'a>(&'a self, ward: &'a Ward) -> View<'a> {
        View { health: self, ward, now: self.now() }
    }

    /// The first of these attempts, from a place on, that should be made now: not one whose breaker has opened since the
    /// plan was made, nor more than its share of one whose provider refuses most. When all of them should not, the first:
    /// nobody is refused because of a breaker.
    pub(crate) fn first_open(&self, ward: &Ward, attempts: &[Attempt], from: usize) -> usize {
        let now = self.now();
        let is_open = |attempt: &Attempt| {
            let Some(cell) = self.cell(ward, &attempt.endpoint, attempt.credential.as_deref()) else { return true };
            let permit = cell.lock().permit(now);
            match permit {
                Permit::Blocked => false,
                // Somebody has to find out.
                Permit::Probe => true,
                Permit::Free => {
                    let service = ward.services.get(attempt.endpoint.provider_index);
                    let excess = service.map_or(0.0, |service| service.excess(now));
                    excess == 0.0 || self.draws.next() >= excess
                }
            }
        };
        if from + 1 >= attempts.len() {
            return from;
        }
        let model = attempts[from].model;
        // Another model is no way around: it is asked when this one has failed.
        let same = attempts[from..].iter().take_while(|attempt| attempt.model == model);
        same.enumerate().find(|(_, attempt)| is_open(attempt)).map_or(from, |(place, _)| from + place)
    }

    /// A pause by chance, so that not all who failed together come together.
    pub(crate) fn up_to(&self, most: Duration) -> Duration {
        most.mul_f64(self.draws.next())
    }

    /// A call begins. Dropped without a word it counts as given up.
    pub(crate) fn begin(self: &Arc<Self>, ward: &Ward, attempt: &Attempt, retry: Retry) -> Trial {
        let now = self.now();
        let cell = self.cell(ward, &attempt.endpoint, attempt.credential.as_deref());
        let is_probe = cell.as_ref().is_some_and(|cell| cell.lock().begin(now) == Permit::Probe);
        let service = ward.services.get(attempt.endpoint.provider_index).cloned();
        if !retry.is_counted {
            tally(&self.node).add(now, false);
        }
        if let Some(service) = &service {
            service.active.fetch_add(1, Ordering::Relaxed);
        }
        Trial {
            health: self.clone(),
            cell,
            service,
            endpoint: attempt.endpoint.clone(),
            is_probe,
            _retry: retry,
            sent: now,
            is_over: false,
        }
    }

    /// The operator's own credential was refused: it is passed over for a while where others can serve. A 403 may be about
    /// this model alone; anything else is said of the account. Says whether the operator should hear of it: once for as
    /// long as such a rest is, and anew after a reload.
    pub(crate) fn rest(&self, ward: &Ward, endpoint: &Endpoint, fault: &Fault) -> bool {
        let now = self.now();
        let until = now + REST_MS;
        let service = ward.services.get(endpoint.provider_index);
        match (service, ward.cells.get(endpoint.place)) {
            (_, Some(cell)) if fault.status == 403 => cell.lock().rest(until),
            (Some(service), _) => drop(service.rests.fetch_max(until, Ordering::Relaxed)),
            _ => {}
        }
        let is_due = |told: i64| (told <= now).then_some(until);
        service.is_some_and(|service| {
            service.told_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok()
        })
    }

    /// Whether the operator's own credential rests.
    fn rests(ward: &Ward, endpoint: &Endpoint, now: i64) -> bool {
        ward.services.get(endpoint.provider_index).is_some_and(|service| now < service.rests.load(Ordering::Relaxed))
    }

    /// How long answers of an endpoint take, and how fast it speaks: over five minutes, with the operator's own key.
    pub fn percentiles(&self, ward: &Ward, endpoint: &Endpoint) -> (Percentiles, Percentiles) {
        let now = self.now();
        self.cell(ward, endpoint, None).map(|cell| cell.lock().percentiles(now)).unwrap_or_default()
    }

    pub fn uptime(&self, ward: &Ward, endpoint: &Endpoint) -> Option<Uptime> {
        let now = self.now();
        self.cell(ward, endpoint, None).map(|cell| cell.lock().uptime(now))
    }

    /// How an endpoint is doing with the operator's own key, as a plan would see it.
    pub fn group(&self, ward: &Ward, endpoint: &Endpoint) -> Group {
        let now = self.now();
        self.cell(ward, endpoint, None).map(|cell| cell.lock().state(now)).unwrap_or_default()
    }

    /// Whether an endpoint said that the operator's own key has had enough or is worth nothing, and is not asked for a
    /// while.
    pub fn cools(&self, ward: &Ward, endpoint: &Endpoint) -> bool {
        let now = self.now();
        Self::rests(ward, endpoint, now)
            || self.cell(ward, endpoint, None).is_some_and(|cell| cell.lock().vital(now).cools)
    }

    /// The share of calls that go past an endpoint now because its provider refuses most of what it gets.
    pub(crate) fn passed_over(&self, ward: &Ward, endpoint: &Endpoint) -> f64 {
        let now = self.now();
        ward.services.get(endpoint.provider_index).map_or(0.0, |service| service.excess(now))
    }
}

fn tally<const N: usize>(tally: &Mutex<Tally<N>>) -> MutexGuard<'_, Tally<N>> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(endpoint: &Endpoint) -> Name {
    (endpoint.model.clone(), endpoint.tag.clone())
}

fn set<T: Default>(list: &mut Vec<T>, place: usize, value: T) {
    if list.len() <= place {
        list.resize_with(place + 1, T::default);
    }
    list[place] = value;
}

/// The records as the plan of one request sees them.
pub struct View<'a> {
    health: &'a Health,
    ward: &'a Ward,
    now: i64,
}

impl Live for View<'_> {
    fn of(&self, endpoint: &Endpoint, credential: Option<&Credential>) -> Vital {
        let cell = self.health.cell(self.ward, endpoint, credential);
        let mut vital = cell.map(|cell| cell.lock().vital(self.now)).unwrap_or_default();
        vital.cools |= credential.is_none() && Health::rests(self.ward, endpoint, self.now);
        vital
    }
}

/// One call, until it is known how it ended.
pub(crate) struct Trial {
    health: Arc<Health>,
    cell: Option<Arc<Cell>>,
    service: Option<Arc<Service>>,
    endpoint: Arc<Endpoint>,
    is_probe: bool,
    /// What it counts for where it is one more call after another one.
    _retry: Retry,
    sent: i64,
    is_over: bool,
}

impl Trial {
    /// The first content of a stream is here.
    pub fn began_to_speak(&self) {
        let now = self.health.now();
        if let Some(cell) = &self.cell {
            cell.lock().began_to_speak(now, seconds(now - self.sent));
        }
    }

    /// The whole answer is here.
    pub fn answered(mut self, output_tokens: u64) {
        let now = self.health.now();
        if let Some(cell) = self.cell.as_ref().filter(|_| output_tokens > 0) {
            // An answer that took no time we can measure took no less than a millisecond.
            cell.lock().spoke(now, output_tokens as f64 / seconds((now - self.sent).max(1)));
        }
        self.end(Outcome::Answered);
    }

    pub fn failed(mut self, fault: &Fault) {
        let outcome = outcome(fault, self.health.now());
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let now = self.health.now();
        let chance = (self.health.draws.next() * (1_u64 << 53) as f64) as u64;
        if let Some(cell) = &self.cell
            && cell.lock().end(now, outcome, self.is_probe, chance)
        {
            let Endpoint { provider, model, .. } = &*self.endpoint;
            tracing::warn!(%provider, %model, "an endpoint fails: it is left alone for a while");
            let labels = Served { provider: provider.to_string(), model: model.to_string() };
            self.health.metrics.breaker_opened.get_or_create(&labels).inc();
        }
        let Some(service) = &self.service else { return };
        match outcome {
            Outcome::Answered | Outcome::Unserved => service.accepted().add(now, false),
            Outcome::Failed | Outcome::Limited { .. } => service.accepted().add(now, true),
            Outcome::Neither => {}
        }
        service.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.end(Outcome::Neither);
    }
}

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

/// What a fault says about the endpoint that it came from.
fn outcome(fault: &Fault, now: i64) -> Outcome {
    match fault.class {
        Class::Server
        | Class::Overloaded
        | Class::Timeout
        | Class::Unreachable
        | Class::BadResponse
        | Class::EmptyCompletion => Outcome::Failed,
        Class::RateLimit => {
            let told = fault.retry_after.and_then(|wait| i64::try_from(wait.as_millis()).ok());
            Outcome::Limited { until: now + told.unwrap_or(COOL_DOWN_MS).min(LONGEST_COOL_DOWN_MS) }
        }
        // Where the caller sits is no fault of the endpoint's; and without a status nobody was asked.
        Class::Credential if matches!(fault.status, 0 | 403) => Outcome::Neither,
        Class::Credential | Class::Billing | Class::NotFound => Outcome::Unserved,
        Class::Unmapped if fault.status >= 500 => Outcome::Failed,
        Class::Unmapped
        | Class::ContextLength
        | Class::InvalidRequest
        | Class::Unsupported
        | Class::Media
        | Class::ContentFilter
        | Class::TooLarge
        | Class::ToolGeneration
        | Class::Own
        | Class::Sealed => Outcome::Neither,
    }
}

#[cfg(test)]
mod tests;
