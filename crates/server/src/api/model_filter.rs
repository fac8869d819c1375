//! Which models a list of them is asked for, and in which order.
//!
//! Whatever the public interface declares is read and judged, so that a misspelt wish is refused and never ignored. Nobody
//! told us how models do in benchmarks, what they are used for or how often their calls of tools succeed: a model of which
//! nothing is known fits no bound on it.

use std::cmp::Ordering;

use tidegate_core::{Price, Timestamp};
use tidegate_gateway::health::Health;
use tidegate_gateway::{Failure, Snapshot};
use tidegate_routing::price::Unit;
use tidegate_routing::{Endpoint, Model};

use super::endpoints::parameters;
use super::form::Query;

/// The tokenizer that every model is shown with: the catalogue does not tell them apart.
pub const TOKENIZER: &str = "Other";

const DAY_MS: i64 = 86_400_000;

pub const CATEGORIES: [&str; 12] = [
    "programming",
    "roleplay",
    "marketing",
    "marketing/seo",
    "technology",
    "science",
    "translation",
    "legal",
    "finance",
    "health",
    "trivia",
    "academia",
];

/// Bounds on figures that nobody gave us, each with the largest that it can be.
const UNKNOWN_FIGURES: [(&str, f64); 8] = [
    ("min_intelligence_index", f64::MAX),
    ("max_intelligence_index", f64::MAX),
    ("min_coding_index", f64::MAX),
    ("max_coding_index", f64::MAX),
    ("min_agentic_index", f64::MAX),
    ("max_agentic_index", f64::MAX),
    ("min_tool_success_rate", 1.0),
    ("max_tool_success_rate", 1.0),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// By id, as the catalogue has them; also where nothing is known that could tell them apart.
    Usual,
    Newest,
    Cheapest,
    Dearest,
    Longest,
    Fastest,
    Soonest,
    Coding,
}

pub const SORTS: [(&str, Sort); 12] = [
    ("most-popular", Sort::Usual),
    ("newest", Sort::Newest),
    ("top-weekly", Sort::Usual),
    ("pricing-low-to-high", Sort::Cheapest),
    ("pricing-high-to-low", Sort::Dearest),
    ("context-high-to-low", Sort::Longest),
    ("throughput-high-to-low", Sort::Fastest),
    ("latency-low-to-high", Sort::Soonest),
    ("intelligence-high-to-low", Sort::Usual),
    ("coding-high-to-low", Sort::Coding),
    ("agentic-high-to-low", Sort::Usual),
    ("design-arena-elo-high-to-low", Sort::Usual),
];

/// From and to, each where it was given.
type Bounds<T> = (Option<T>, Option<T>);

pub struct Filter {
    words: Option<String>,
    input_modalities: Vec<String>,
    output_modalities: Vec<String>,
    authors: Vec<String>,
    providers: Vec<String>,
    parameters: Vec<String>,
    context: u64,
    /// Dollars per million tokens.
    price: Bounds<f64>,
    output_price: Bounds<f64>,
    age_days: Bounds<u64>,
    distillable: Option<bool>,
    zdr: bool,
    region: Option<&'static str>,
    /// Something was asked for that is known of no model.
    is_unknown: bool,
    sort: Sort,
    now: Timestamp,
}

impl Filter {
    /// Reads the whole query, so that one refusal names all that is wrong with it.
    pub fn read(query: &mut Query, now: Timestamp) -> Result<Self, Failure> {
        let mut bounds = |names: [&str; 2]| names.map(|name| query.amount(name, f64::MAX)).into();
        let (price, output_price) =
            (bounds(["min_price", "max_price"]), bounds(["min_output_price", "max_output_price"]));
        let age_days = ["min_age_days", "max_age_days"].map(|name| query.whole(name, 0)).into();
        let figures = UNKNOWN_FIGURES.map(|(name, most)| query.amount(name, most).is_some());
        let is_unknown = figures.contains(&true)
            | query.word("category", &CATEGORIES.map(|category| (category, ()))).is_some()
            | query.text("arch").is_some_and(|family| !family.eq_ignore_ascii_case(TOKENIZER));
        for name in ["use_rss", "use_rss_chat_links"] {
            if query.text(name).is_some_and(|text| text != "false") {
                query.issues.add(name, "there is no feed here");
            }
        }
        let filter = Self {
            words: query.text("q").map(|words| words.to_lowercase()),
            input_modalities: query.list("input_modalities"),
            output_modalities: query.list("output_modalities"),
            authors: query.list("model_authors"),
            providers: query.list("providers"),
            parameters: query.list("supported_parameters"),
            context: query.whole("context", 1).unwrap_or(0),
            price,
            output_price,
            age_days,
            distillable: query.word("distillable", &[("true", true), ("false", false)]),
            zdr: query.word("zdr", &[("true", true)]).unwrap_or(false),
            region: query.word("region", &[("eu", "eu"), ("us", "us")]),
            is_unknown,
            sort: query.word("sort", &SORTS).unwrap_or(Sort::Usual),
            now,
        };
        query.check()?;
        Ok(filter)
    }

    /// Whether models are asked for by something that this one makes, or all of them.
    pub fn names(&self, model: &Model) -> bool {
        self.output_modalities.iter().any(|wanted| wanted == "all" || model.output_modalities.contains(wanted))
    }

    pub fn fits(&self, model: &Model, snapshot: &Snapshot) -> bool {
        let author = model.id.split('/').next().unwrap_or_default().trim_start_matches('~');
        let says =
            |words: &String| model.id.to_lowercase().contains(words) || model.name.to_lowercase().contains(words);
        let age = model.released.and_then(|day| u64::try_from((self.now.0 - day.0).div_euclid(DAY_MS)).ok());
        !self.is_unknown
            && self.words.as_ref().is_none_or(says)
            && self.input_modalities.iter().all(|wanted| model.input_modalities.contains(wanted))
            && self.output_modalities.iter().all(|wanted| wanted == "all" || model.output_modalities.contains(wanted))
            && (self.authors.is_empty() || self.authors.iter().any(|wanted| wanted == author))
            && self.distillable.is_none_or(|wanted| model.distillable == wanted)
            && within(self.age_days, age)
            && model.endpoints.iter().any(|endpoint| endpoint.context_length >= self.context)
            && self.fits_shown(model)
            && model.endpoints.iter().any(|endpoint| self.fits_endpoint(endpoint, snapshot))
    }

    /// Prices and parameters are judged as the list shows them.
    fn fits_shown(&self, model: &Model) -> bool {
        let Some(shown) = shown_endpoint(model) else { return false };
        let dollars = |unit| price(shown, unit).map(|price| price.0 as f64 / 1e9);
        let taken = parameters(shown);
        within(self.price, dollars(Unit::Input))
            && within(self.output_price, dollars(Unit::Output))
            && self.parameters.iter().all(|name| taken.contains(&&**name))
    }

    /// Who serves, where, and what becomes of what is said: one endpoint must be all that was asked for.
    fn fits_endpoint(&self, endpoint: &Endpoint, snapshot: &Snapshot) -> bool {
        (self.providers.is_empty() || self.providers.iter().any(|slug| **slug == *endpoint.provider))
            && (!self.zdr || !endpoint.policy.retains)
            && self.region.is_none_or(|wanted| is_in(endpoint, snapshot, wanted))
    }

    /// Brings models into the order that was asked for; what is not known of one puts it last, and equals stay by id.
    pub fn sort<M: AsRef<Model>>(&self, models: &mut [M], snapshot: &Snapshot, health: &Health) {
        let prices = |model: &Model| {
            let shown = shown_endpoint(model)?;
            Some((price(shown, Unit::Input)?, price(shown, Unit::Output)?))
        };
        // Of the endpoints that anybody here may call, the one that does best.
        let live = |model: &Model, of: fn(&Health, &Snapshot, &Endpoint) -> Option<f32>| {
            model.endpoints.iter().filter_map(|endpoint| of(health, snapshot, endpoint)).collect::<Vec<f32>>()
        };
        let fastest = |model: &Model| {
            let speeds = live(model, |health, snapshot, endpoint| health.percentiles(&snapshot.ward, endpoint).1.p50);
            speeds.into_iter().max_by(f32::total_cmp).map(Ordered)
        };
        let soonest = |model: &Model| {
            let waits = live(model, |health, snapshot, endpoint| health.percentiles(&snapshot.ward, endpoint).0.p50);
            waits.into_iter().min_by(f32::total_cmp).map(Ordered)
        };
        match self.sort {
            Sort::Usual => {}
            Sort::Newest => descending(models, |model| model.released),
            Sort::Cheapest => ascending(models, prices),
            Sort::Dearest => descending(models, prices),
            Sort::Longest => descending(models, |model| Some(longest(model))),
            Sort::Fastest => descending(models, fastest),
            Sort::Soonest => ascending(models, soonest),
            Sort::Coding => descending(models, |model| model.coding_percentile.map(|share| Ordered(share as f32))),
        }
    }
}

/// The endpoint that a list shows a model with: the first, one of the operator's where there is one.
pub fn shown_endpoint(model: &Model) -> Option<&Endpoint> {
    let endpoints = &model.endpoints;
    endpoints.iter().find(|endpoint| endpoint.shared).or_else(|| endpoints.first()).map(|endpoint| &**endpoint)
}

pub fn longest(model: &Model) -> u64 {
    model.endpoints.iter().map(|endpoint| endpoint.context_length).max().unwrap_or(0)
}

fn price(endpoint: &Endpoint, unit: Unit) -> Option<Price> {
    endpoint.pricing.as_ref().map(|pricing| pricing.base.of(unit))
}

/// What is not known lies within no bounds but none.
fn within<T: PartialOrd>((least, most): Bounds<T>, value: Option<T>) -> bool {
    match value {
        Some(value) => least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most),
        None => least.is_none() && most.is_none(),
    }
}

/// Whether an endpoint says of itself, by its tag or where its calls are signed for, that it is in this part of the world.
fn is_in(endpoint: &Endpoint, snapshot: &Snapshot, wanted: &str) -> bool {
    let upstream = snapshot.upstreams.get(endpoint.provider_index);
    let tagged = endpoint.tag.split('/').skip(1);
    let mut places = tagged.chain(upstream.and_then(|upstream| upstream.region.as_deref()));
    places.any(|place| match place.split('-').next() {
        Some("eu" | "europe") => wanted == "eu",
        Some("us") => wanted == "us",
        _ => false,
    })
}

#[derive(Clone, Copy, PartialEq)]
struct Ordered(f32);

impl Eq for Ordered {}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn ascending<M: AsRef<Model>, K: Ord>(models: &mut [M], key: impl Fn(&Model) -> Option<K>) {
    models.sort_by_cached_key(|model| {
        let key = key(model.as_ref());
        (key.is_none(), key)
    });
}

fn descending<M: AsRef<Model>, K: Ord>(models: &mut [M], key: impl Fn(&Model) -> Option<K>) {
    // Nothing known is less than anything, so it stays behind.
    models.sort_by_cached_key(|model| std::cmp::Reverse(key(model.as_ref())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_fits_only_where_nothing_was_asked() {
        assert!(within::<f64>((None, None), None));
        assert!(!within((Some(0.0), None), None) && !within((None, Some(9.0)), None));
        assert!(within((Some(1.0), Some(2.0)), Some(1.0)) && within((Some(1.0), Some(2.0)), Some(2.0)));
        assert!(!within((Some(1.0), Some(2.0)), Some(2.1)) && !within((Some(1.0), None), Some(0.9)));
    }
}
