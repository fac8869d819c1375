//! Who is asked first. By default chance decides, and the cheap win it more often; a wish of the caller's takes its place.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::explain::Record;
use super::quality::{self, Quality};
use super::{Request, ServiceTier};
use crate::catalogue::{Endpoint, Tier};
use crate::live::{Group, Vital};
use crate::preferences::{self, Match, Preferences, Sort};
use crate::set::{Variant, Variants};

/// Dollars per million tokens that every endpoint costs at least, so that what is free does not win beyond all measure.
pub const LEAST_PRICE: f64 = 0.001;
/// What an endpoint counts as whose price nobody knows: dearer than any that has one. So it comes last where prices are
/// sorted, and is drawn first practically never beside one with a price; among its like all are equal.
pub const UNPRICED: f64 = 1e9;

/// An endpoint that may serve, and what its place depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'c> {
    pub endpoint: &'c Arc<Endpoint>,
    /// Which of the wanted models it serves.
    pub wanted: usize,
    pub vital: Vital,
    pub quality: Quality,
    price: f64,
    class: Class,
    /// Its place in the caller's own order.
    rank: usize,
}

/// How the figures of an endpoint compare with what the caller would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Meets,
    Unknown,
    Misses,
}

impl<'c> Entry<'c> {
    pub fn new(endpoint: &'c Arc<Endpoint>, wanted: usize) -> Self {
        Self {
            endpoint,
            wanted,
            vital: Vital::default(),
            quality: Quality::Unknown,
            price: UNPRICED,
            class: Class::Meets,
            rank: 0,
        }
    }
}

impl Borrow<Endpoint> for Entry<'_> {
    fn borrow(&self) -> &Endpoint {
        self.endpoint
    }
}

/// By what a list is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The caller's own list.
    Listed,
    Sort(Sort),
    /// Chance, weighted by price.
    Chance,
    /// The same among those who call tools equally well.
    Quality,
}

/// Looks at prices, health and figures, where it matters who comes first.
pub(super) fn assess(entries: &mut [Entry<'_>], request: &Request<'_>) {
    if entries.len() < 2 && request.own.is_none() {
        return;
    }
    let preferences = request.preferences;
    let has_thresholds = !(preferences.min_throughput.is_empty() && preferences.max_latency.is_empty());
    for entry in entries {
        let credential = match request.own {
            Some(own) if !entry.endpoint.shared => {
                own.credentials.iter().find(|credential| credential.serves(own.caller, entry.endpoint))
            }
            _ => None,
        };
        entry.vital = request.live.of(entry.endpoint, credential.map(|credential| &**credential));
        entry.price = price(entry.endpoint, request);
        entry.rank = rank(entry.endpoint, preferences);
        if has_thresholds {
            entry.class = class(&entry.vital, preferences);
        }
    }
}

/// What an endpoint counts as when prices are compared: dollars per million tokens.
pub(super) fn price(endpoint: &Endpoint, request: &Request<'_>) -> f64 {
    asked(endpoint, request).max(LEAST_PRICE)
}

/// What an endpoint asks for, by the same measure: nothing, where it is free.
pub(super) fn asked(endpoint: &Endpoint, request: &Request<'_>) -> f64 {
    match (endpoint.shadow_price, &endpoint.pricing) {
        (Some(shadow), _) => shadow.0 as f64 / 1e9,
        (None, Some(pricing)) => {
            pricing.quote(request.needs.input_tokens, endpoint.tier.name(), request.now).blended(request.policy.blend)
        }
        (None, None) => UNPRICED,
    }
}

fn class(vital: &Vital, preferences: &Preferences<'_>) -> Class {
    let fast = preferences.min_throughput.holds(&vital.throughput, |figure, least| figure >= least);
    let soon = preferences.max_latency.holds(&vital.latency, |figure, most| figure <= most);
    match (fast, soon) {
        (Some(false), _) | (_, Some(false)) => Class::Misses,
        (Some(true), Some(true)) => Class::Meets,
        (None, _) | (_, None) => Class::Unknown,
    }
}

/// The place in the caller's order: that of its own tag, else that of its provider. Who is not listed comes last.
fn rank(endpoint: &Endpoint, preferences: &Preferences<'_>) -> usize {
    let place =
        |wanted: Match| preferences.order.iter().position(|entry| preferences::names(entry, endpoint) == Some(wanted));
    place(Match::Exact).or_else(|| place(Match::Provider)).unwrap_or(usize::MAX)
}

/// Brings the entries into the order in which they are tried. The last so many miss what the caller would like.
pub(super) fn order<R: Record>(
    entries: &mut [Entry<'_>],
    request: &Request<'_>,
    variants: Variants,
    record: &mut R,
) -> usize {
    if let [only] = entries {
        record.first(only.endpoint, 1.0);
        return usize::from(only.class == Class::Misses);
    }
    let by = by(request, variants);
    if matches!(by, By::Quality | By::Sort(Sort::Exacto)) {
        quality::assess(entries);
    }
    let prefers_fast = request.needs.service_tier == ServiceTier::Priority;
    let compare = |one: &Entry<'_>, other: &Entry<'_>| {
        let slow = |entry: &Entry<'_>| prefers_fast && entry.endpoint.tier != Tier::Priority;
        let tiers = slow(one).cmp(&slow(other));
        let misses = |entry: &Entry<'_>| entry.class == Class::Misses;
        let classes = misses(one).cmp(&misses(other));
        let health = group(one).cmp(&group(other)).then(one.class.cmp(&other.class));
        let wished = match by {
            By::Listed => one.rank.cmp(&other.rank).then(health),
            By::Sort(Sort::Price) => classes.then(tiers).then(one.class.cmp(&other.class)),
            By::Sort(sort) => classes.then(tiers).then(health).then_with(|| by_figure(sort, one, other)),
            By::Chance => classes.then(tiers).then(health),
            By::Quality => classes.then(tiers).then(health).then(one.quality.cmp(&other.quality)),
        };
        wished.then_with(|| {
            let price = one.price.total_cmp(&other.price);
            let uptime = || other.vital.uptime.total_cmp(&one.vital.uptime);
            price.then_with(uptime).then_with(|| one.endpoint.tag.cmp(&other.endpoint.tag))
        })
    };
    // Stable: what is equal in all of this stays in the order of the catalogue, so that a plan can be repeated.
    entries.sort_by(compare);
    match by {
        By::Chance | By::Quality => {
            let first = entries[0];
            let is_level = |entry: &&Entry<'_>| {
                let same_tier = !prefers_fast || entry.endpoint.tier == first.endpoint.tier;
                let same_quality = by == By::Chance || entry.quality == first.quality;
                (entry.class, group(entry)) == (first.class, group(&first)) && same_tier && same_quality
            };
            let level = entries.iter().take_while(is_level).count();
            draw(&mut entries[..level], request.draw, record);
            entries[level..].iter().for_each(|entry| record.first(entry.endpoint, 0.0));
        }
        By::Listed | By::Sort(_) => {
            for (place, entry) in entries.iter().enumerate() {
                record.first(entry.endpoint, if place == 0 { 1.0 } else { 0.0 });
            }
        }
    }
    if by == By::Listed { 0 } else { entries.iter().filter(|entry| entry.class == Class::Misses).count() }
}

fn by(request: &Request<'_>, variants: Variants) -> By {
    let (preferences, policy) = (request.preferences, &request.policy);
    if !preferences.order.is_empty() {
        return By::Listed;
    }
    let by_name = || match variants {
        variants if variants.contains(Variant::Nitro) => Some(Sort::Throughput),
        variants if variants.contains(Variant::Floor) => Some(Sort::Price),
        variants if variants.contains(Variant::Exacto) => Some(Sort::Exacto),
        _ => None,
    };
    let by_service = || match request.needs.service_tier {
        ServiceTier::Priority => Some(Sort::Throughput),
        ServiceTier::Flex => Some(Sort::Price),
        ServiceTier::Auto | ServiceTier::Default => None,
    };
    match preferences.sort.or_else(by_name).or_else(by_service).or(policy.default_sort) {
        Some(sort) => By::Sort(sort),
        None if request.needs.has_tools => By::Quality,
        None => By::Chance,
    }
}

/// Those that are down and those that are out are equally bad here; the latter are moved to the end with their credential.
fn group(entry: &Entry<'_>) -> Group {
    entry.vital.group.min(Group::Down)
}

/// Those without enough calls to have a figure come after those with one.
fn by_figure(sort: Sort, one: &Entry<'_>, other: &Entry<'_>) -> Ordering {
    let throughput = |entry: &Entry<'_>| entry.vital.throughput.p50.map_or(f32::INFINITY, |figure| -figure);
    let latency = |entry: &Entry<'_>| entry.vital.latency.p50.unwrap_or(f32::INFINITY);
    match sort {
        Sort::Price => Ordering::Equal,
        Sort::Throughput => throughput(one).total_cmp(&throughput(other)),
        Sort::Latency => latency(one).total_cmp(&latency(other)),
        Sort::Exacto => one.quality.cmp(&other.quality).then(throughput(one).total_cmp(&throughput(other))),
    }
}

/// Moves one of them to the front: twice as dear is drawn a quarter as often.
fn draw<R: Record>(entries: &mut [Entry<'_>], draw: f64, record: &mut R) {
    let weight = |entry: &Entry<'_>| 1.0 / (entry.price * entry.price);
    let sum: f64 = entries.iter().map(weight).sum();
    for entry in &*entries {
        record.first(entry.endpoint, weight(entry) / sum);
    }
    let mut left = draw * sum;
    let drawn = entries.iter().position(|entry| {
        left -= weight(entry);
        left < 0.0
    });
    // Sums of fractions may fall short of the last one.
    let drawn = drawn.unwrap_or(entries.len() - 1);
    entries[..=drawn].rotate_right(1);
}
