//! From the names in a request to an ordered list of attempts. A pure function: chance, time and the health of upstreams
//! are given to it.
//!
//! `filter` takes out the endpoints that may not serve, `order` brings the others into their order, and here credentials
//! are put beside them. `explain` tells the same story candidate by candidate.

mod error;
pub mod explain;
mod filter;
mod order;
#[cfg(test)]
mod properties;
mod quality;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_core::Timestamp;

use crate::byok::{self, Credential, Own};
use crate::catalogue::{By, Catalogue, Endpoint, Missing, Model};
use crate::guard::Guard;
use crate::live::{Group, Live, Unknown, Vital};
use crate::preferences::{Partition, Preferences, Sort};
use crate::set::{Modalities, Parameters, Searchers, Variants};

pub use error::{Code, Constraint, PlanError};
use explain::Record;
pub use filter::Filter;
use filter::Sieve;
use order::Entry;
pub use order::{LEAST_PRICE, UNPRICED};

/// Attempts per model and per call (RET-3). A credential that was refused does not count against its model: that is no
/// word about the model at all.
pub const PER_MODEL: usize = 3;
pub const PER_CALL: usize = 6;

/// How the model was found, as routing metadata tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Direct,
    Alias,
    /// The newest of a family.
    Latest,
    /// Chosen by one of the routers.
    Auto,
    Free,
    Pareto,
    Fusion,
    Bodybuilder,
    /// Another model of the request's list.
    Fallback,
}

impl Strategy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Alias => "alias",
            Self::Latest => "latest",
            Self::Auto => "auto",
            Self::Free => "free",
            Self::Pareto => "pareto",
            Self::Fusion => "fusion",
            Self::Bodybuilder => "bodybuilder",
            Self::Fallback => "fallback",
        }
    }
}

/// Everything that decides about a plan, besides the catalogue.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Models in their order of preference, as the caller wrote them.
    pub names: &'a [&'a str],
    /// The model that `default` stands for.
    pub default: Option<&'a str>,
    pub preferences: &'a Preferences<'a>,
    pub needs: Needs,
    /// What the caller is held to.
    pub guard: Option<&'a Guard>,
    /// The caller's own credentials.
    pub own: Option<Own<'a>>,
    pub live: &'a dyn Live,
    /// Who served this conversation last.
    pub sticky: Option<Sticky<'a>>,
    /// Who began what this goes on with: nobody else while they can serve, whatever the caller prefers otherwise.
    pub home: Option<Home<'a>>,
    /// A random number from 0 to 1, never 1.
    pub draw: f64,
    pub policy: Policy,
    pub now: Timestamp,
}

impl<'a> Request<'a> {
    /// A request for these models that wants and needs nothing in particular.
    pub fn new(names: &'a [&'a str], preferences: &'a Preferences<'a>) -> Self {
        Self {
            names,
            default: None,
            preferences,
            needs: Needs::default(),
            guard: None,
            own: None,
            live: &Unknown,
            sticky: None,
            home: None,
            draw: 0.0,
            policy: Policy::default(),
            now: Timestamp(0),
        }
    }
}

/// What a request needs of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Needs {
    /// An estimate of the prompt.
    pub input_tokens: u64,
    pub max_tokens: Option<u64>,
    pub modalities: Modalities,
    pub parameters: Parameters,
    pub has_tools: bool,
    /// Of a request that searches the web: who may serve it, by how they search.
    pub searchers: Option<Searchers>,
    /// The search is the only tool.
    pub only_searches: bool,
    /// The answer must follow a schema.
    pub structured: bool,
    pub service_tier: ServiceTier,
    /// For whom a prompt that is too long is made shorter.
    pub compression: Compression,
}

/// For which endpoints a prompt that is too long is made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    Never,
    /// Those with a small window.
    Small,
    Always,
}

impl Compression {
    /// The largest window that counts as small.
    pub const SMALL: u64 = 8_192;

    pub fn is_for(self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Never => false,
            Self::Small => (1..=Self::SMALL).contains(&endpoint.context_length),
            Self::Always => endpoint.context_length > 0,
        }
    }
}

/// The service that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ServiceTier {
    #[default]
    Auto,
    /// The usual one, whatever the name of the model says.
    Default,
    Priority,
    Flex,
}

/// What the operator decides for all requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Parts of input and of output in the price by which endpoints are compared.
    pub blend: (f64, f64),
    /// For requests that do not say how to sort.
    pub default_sort: Option<Sort>,
}

impl Policy {
    /// The same, sorted as a workspace wants it where it says so.
    #[must_use]
    pub fn sorted(self, sort: Option<Sort>) -> Self {
        Self { default_sort: sort.or(self.default_sort), ..self }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { blend: (3.0, 1.0), default_sort: None }
    }
}

/// The endpoint and the credential that served a conversation last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sticky<'a> {
    pub tag: &'a str,
    pub credential: Option<&'a str>,
}

/// The model, the endpoint and the credential that served the turn before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home<'a> {
    pub model: &'a str,
    pub at: Sticky<'a>,
}

/// One upstream call to be tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub endpoint: Arc<Endpoint>,
    /// The customer's credential; `None`: the operator's own.
    pub credential: Option<Arc<Credential>>,
    /// Place of its model in the request's list.
    pub model: usize,
    pub strategy: Strategy,
    pub variants: Variants,
}

/// The fallback policy of one request, written out.
#[derive(Clone, Debug)]
pub struct Plan {
    pub attempts: Vec<Attempt>,
    /// Endpoints of all models of the list that the caller could reach, before any filter.
    pub total: usize,
    /// Endpoints that were left out because the prompt may be too long for them.
    pub too_short: usize,
    /// How the first model was found.
    pub strategy: Strategy,
}

/// A model of the request's list.
#[derive(Clone, Copy, Debug)]
struct Wanted<'c> {
    /// As the caller wrote it.
    name: &'c str,
    place: usize,
    model: &'c Arc<Model>,
    strategy: Strategy,
    variants: Variants,
}

/// The attempts of a request, in the order in which they are made.
pub fn plan(catalogue: &Catalogue, request: &Request<'_>) -> Result<Plan, Box<PlanError>> {
    run(catalogue, request, &mut ())
}

fn run<R: Record>(catalogue: &Catalogue, request: &Request<'_>, record: &mut R) -> Result<Plan, Box<PlanError>> {
    let wanted = resolved(catalogue, request)?;
    let mut sieve = Sieve::default();
    let mut entries: SmallVec<[Entry<'_>; 4]> = SmallVec::new();
    for (index, model) in wanted.iter().enumerate() {
        let kept = filter::filter(request, index, model, &mut sieve);
        entries.extend(kept.into_iter().map(|endpoint| Entry::new(endpoint, index)));
    }
    for removed in &sieve.removed {
        record.removed(removed.endpoint, removed.filter);
    }
    if entries.is_empty() {
        return Err(error::emptied(request, &wanted, &sieve));
    }
    order::assess(&mut entries, request);
    let total = sieve.total;
    let mut attempts = Vec::with_capacity(entries.len());
    let mut later: SmallVec<[Entry<'_>; 4]> = SmallVec::new();
    match request.preferences.partition {
        Partition::Model => {
            let is_one_model = wanted.len() == 1;
            let mut rest = &mut entries[..];
            while let Some(first) = rest.first().map(|entry| entry.wanted) {
                let count = rest.iter().take_while(|entry| entry.wanted == first).count();
                let (own, others) = rest.split_at_mut(count);
                rest = others;
                let misses = order::order(own, request, wanted[first].variants, record);
                // What misses a threshold comes after the other models, which may hold it.
                let kept = if is_one_model { own.len() } else { own.len() - misses };
                extend(&mut attempts, &own[..kept], &wanted, request);
                later.extend(own[kept..].iter().copied());
            }
        }
        Partition::None => {
            order::order(&mut entries, request, wanted[0].variants, record);
            extend(&mut attempts, &entries, &wanted, request);
        }
    }
    let mut rest = &later[..];
    while let Some(first) = rest.first().map(|entry| entry.wanted) {
        let count = rest.iter().take_while(|entry| entry.wanted == first).count();
        extend(&mut attempts, &rest[..count], &wanted, request);
        rest = &rest[count..];
    }
    if let Some(sticky) = request.sticky.filter(|_| request.preferences.order.is_empty()) {
        stick(&mut attempts, sticky, request.live);
    }
    if let Some(home) = request.home {
        come_home(&mut attempts, home, request.live);
    }
    if !request.preferences.allow_fallbacks && request.preferences.order.is_empty() {
        keep_first(&mut attempts);
    }
    let too_short = sieve.removed.iter().filter(|removed| removed.filter == Filter::ContextLength).count();
    Ok(Plan { attempts, total, too_short, strategy: wanted[0].strategy })
}

/// The models of the list, each once. An unknown name anywhere is the caller's mistake.
fn resolved<'c>(catalogue: &'c Catalogue, request: &Request<'c>) -> Result<SmallVec<[Wanted<'c>; 2]>, Box<PlanError>> {
    let mut wanted: SmallVec<[Wanted<'c>; 2]> = SmallVec::new();
    for (place, name) in request.names.iter().copied().enumerate() {
        let (written, is_default) = match request.default {
            Some(default) if name.trim() == "default" => (default, true),
            _ => (name, false),
        };
        let named = catalogue.find(written).map_err(|missing| match missing {
            Missing::Unknown => PlanError::unknown_model(name),
            Missing::EmptyFamily => {
                let strategy = wanted.first().map_or(Strategy::Latest, |first| first.strategy);
                Box::new(PlanError { strategy, ..*PlanError::no_endpoints(name) })
            }
        })?;
        if wanted.iter().any(|known| Arc::ptr_eq(known.model, named.model) && known.variants == named.variants) {
            continue;
        }
        let strategy = match named.by {
            _ if place > 0 => Strategy::Fallback,
            By::Family => Strategy::Latest,
            By::Alias => Strategy::Alias,
            By::Id if is_default => Strategy::Alias,
            By::Id => Strategy::Direct,
        };
        wanted.push(Wanted { name, place, model: named.model, strategy, variants: named.variants });
    }
    // An empty list names nothing; whoever calls with one has a model that is not there.
    if wanted.is_empty() { Err(PlanError::unknown_model("")) } else { Ok(wanted) }
}

/// Adds the ways to call these endpoints: the caller's own credentials and the operator's. Those that were told to wait
/// and those that are out of order come last; of the latter first the one that failed longest ago.
fn extend(attempts: &mut Vec<Attempt>, entries: &[Entry<'_>], wanted: &[Wanted<'_>], request: &Request<'_>) {
    let start = attempts.len();
    let mut add = |entry: &Entry<'_>, credential: Option<&Arc<Credential>>| {
        let Wanted { place, strategy, variants, .. } = wanted[entry.wanted];
        let (endpoint, credential) = (entry.endpoint.clone(), credential.cloned());
        attempts.push(Attempt { endpoint, credential, model: place, strategy, variants });
    };
    if request.own.is_none() {
        entries.iter().for_each(|entry| add(entry, None));
    } else {
        let fits = |entry: &Entry<'_>, credential: Option<&Credential>| {
            !filter::must_forget(request, wanted[entry.wanted].model) || !byok::retains(entry.endpoint, credential)
        };
        byok::candidates(entries, request.own, fits).for_each(|(entry, credential)| add(entry, credential));
    }
    let added = &mut attempts[start..];
    if added.len() < 2 {
        return;
    }
    let rank = |attempt: &Attempt| {
        let entry = || entries.iter().find(|entry| Arc::ptr_eq(entry.endpoint, &attempt.endpoint));
        let vital = match &attempt.credential {
            None => entry().map_or_else(Vital::default, |entry| entry.vital),
            Some(own) => request.live.of(&attempt.endpoint, Some(own)),
        };
        match vital {
            Vital { group: Group::Outage, failed_at, .. } => (2, failed_at),
            Vital { cools: true, .. } => (1, 0),
            _ => (0, 0),
        }
    };
    let ranks: SmallVec<[(u8, i64); 8]> = added.iter().map(rank).collect();
    if ranks.iter().any(|rank| rank.0 > 0) {
        let mut ranked: Vec<_> = ranks.into_iter().zip(added.iter().cloned()).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        added.iter_mut().zip(ranked).for_each(|(place, (_, attempt))| *place = attempt);
    }
}

/// Moves who served the conversation last to the front; with the operator's key only to the front of its kind, because
/// the caller's own credentials come first. One that cannot serve now stays where it is.
fn stick(attempts: &mut [Attempt], sticky: Sticky<'_>, live: &dyn Live) {
    let Some(first) = attempts.iter().map(|attempt| attempt.model).min() else { return };
    let is_last = |attempt: &Attempt| attempt.model == first && *attempt.endpoint.tag == *sticky.tag;
    let is_same = |attempt: &Attempt| attempt.credential.as_ref().map(|own| &*own.id) == sticky.credential;
    let exact = attempts.iter().position(|attempt| is_last(attempt) && is_same(attempt));
    let Some(found) = exact.or_else(|| attempts.iter().position(is_last)) else { return };
    let vital = live.of(&attempts[found].endpoint, attempts[found].credential.as_deref());
    if vital.group == Group::Outage || vital.cools {
        return;
    }
    let is_own = attempts[found].credential.is_some();
    let front = attempts.iter().position(|attempt| is_own || attempt.credential.is_none()).unwrap_or(found);
    if front < found {
        attempts[front..=found].rotate_right(1);
    }
}

/// Moves who served the turn before to the front of all, unless it cannot serve now.
fn come_home(attempts: &mut [Attempt], Home { model, at }: Home<'_>, live: &dyn Live) {
    let is_it = |attempt: &Attempt| *attempt.endpoint.model == *model && *attempt.endpoint.tag == *at.tag;
    let is_same = |attempt: &Attempt| attempt.credential.as_ref().map(|own| &*own.id) == at.credential;
    let Some(found) = attempts.iter().position(|attempt| is_it(attempt) && is_same(attempt)) else { return };
    let vital = live.of(&attempts[found].endpoint, attempts[found].credential.as_deref());
    if vital.group != Group::Outage && !vital.cools {
        attempts[..=found].rotate_right(1);
    }
}

/// Leaves of each model the first endpoint, with all the credentials that it can be called with.
fn keep_first(attempts: &mut Vec<Attempt>) {
    let mut firsts: SmallVec<[(usize, Arc<Endpoint>); 2]> = SmallVec::new();
    attempts.retain(|attempt| match firsts.iter().find(|(model, _)| *model == attempt.model) {
        Some((_, first)) => Arc::ptr_eq(first, &attempt.endpoint),
        None => {
            firsts.push((attempt.model, attempt.endpoint.clone()));
            true
        }
    });
}
