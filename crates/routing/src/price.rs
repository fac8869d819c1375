//! What an answer costs: exact sums, rounded once.

mod bound;
mod quote;
mod set;
#[cfg(test)]
mod tests;
mod wide;

use std::ops::Deref;

use tidegate_core::Timestamp;
use tidegate_core::money::{Factor, Money, Price};
use tidegate_core::usage::Usage;

pub use bound::Ask;
pub use quote::Quote;
pub use set::{Override, Prices, Tier, Unit, Window};
use wide::Wide;

/// Prices of an endpoint. The default is free.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pricing {
    pub base: Prices,
    /// Prices of a whole request whose prompt has more than so many tokens; the largest that is passed holds.
    pub above: Vec<(u64, Prices)>,
    /// By the name of the service tier.
    pub tiers: Vec<(Box<str>, Tier)>,
    /// How many times the price of every token, by where the model ran.
    pub geo: Vec<(Box<str>, Factor)>,
    /// Later ones win, unit by unit.
    pub overrides: Vec<Override>,
    /// The share of everything that is not charged; at most one.
    pub discount: Option<Factor>,
}

/// How a call was served, as the upstream reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Terms<'a> {
    /// The service tier; `fast` for an answer at that speed. One without a price of its own costs what is usual.
    pub tier: Option<&'a str>,
    /// Where the model ran.
    pub geo: Option<&'a str>,
    /// When the request came.
    pub now: Timestamp,
}

/// A cost and its two parts, each rounded on its own: they are for display, the total is what is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    pub total: Money,
    pub prompt: Money,
    pub completion: Money,
    /// What was cached would have cost so much more as plain input; less than nothing where writing was dearer.
    pub cache_discount: Money,
}

impl Pricing {
    /// Without any conditions.
    pub fn of(base: Prices) -> Self {
        Self { base, ..Self::default() }
    }

    pub fn cost(&self, usage: &Usage, terms: &Terms<'_>) -> Cost {
        let (prices, times) = self.in_force(usage.prompt(), terms.tier.and_then(|name| self.tier(name)), terms.now);
        let geo = terms.geo.and_then(|place| self.geo.iter().find(|(name, _)| **name == *place));
        let scale = Scale { tier: times, geo: geo.map_or(Factor::ONE, |(_, factor)| *factor), rest: self.rest() };
        let (cached, plain) = cached(&prices, usage);
        let prompt = prompt(&prices, usage, &cached);
        let completion = completion(&prices, usage);
        let mut total = prompt;
        total.add(&completion);
        total.pieces(prices.of(Unit::Request), usage.search_units.max(1));
        total.pieces(prices.of(Unit::WebSearch), usage.web_searches);
        total.pieces(prices.of(Unit::Container), usage.containers);
        total.pieces(prices.of(Unit::Character), usage.characters);
        total.seconds(prices.of(Unit::CodeExecHour), usage.code_exec_seconds);
        total.milliseconds(prices.of(Unit::AudioHour), usage.audio_ms);
        let cache_discount = match (plain.tokens.less(cached.tokens), cached.tokens.less(plain.tokens)) {
            (Some(saved), _) => Sum { tokens: saved, ..Sum::default() }.rounded(&scale),
            (None, Some(paid)) => Money(-Sum { tokens: paid, ..Sum::default() }.rounded(&scale).0),
            (None, None) => Money::ZERO,
        };
        Cost {
            total: total.rounded(&scale),
            prompt: prompt.rounded(&scale),
            completion: completion.rounded(&scale),
            cache_discount,
        }
    }

    /// Whether nothing costs anything, whatever the conditions.
    pub fn is_free(&self) -> bool {
        let sets = |above: &[(u64, Prices)]| above.iter().all(|(_, prices)| prices.is_free());
        let tier = |tier: &Tier| match tier {
            Tier::Times(_) => true,
            Tier::Set { prices, above } => prices.is_free() && sets(above),
        };
        self.rest() == Factor::NONE
            || self.base.is_free()
                && sets(&self.above)
                && self.tiers.iter().all(|(_, price)| tier(price))
                && self.overrides.iter().all(|entry| entry.prices.is_free())
    }

    fn tier(&self, name: &str) -> Option<&Tier> {
        self.tiers.iter().find(|(known, _)| **known == *name).map(|(_, tier)| tier)
    }

    /// The prices of a prompt of that length, and how many times those of tokens count. What is made of several sets lies
    /// in a box: mostly there is one, and that is not moved about.
    fn in_force(&self, prompt: u64, tier: Option<&Tier>, now: Timestamp) -> (InForce<'_>, Factor) {
        let own = |prices: Prices| InForce::Made(Box::new(prices));
        let (mut prices, times, above) = match tier {
            Some(Tier::Set { prices, above }) => (own(self.base.with(prices)), Factor::ONE, above),
            Some(Tier::Times(times)) => (InForce::Set(&self.base), *times, &self.above),
            None => (InForce::Set(&self.base), Factor::ONE, &self.above),
        };
        let passed = above.iter().filter(|(longest, _)| prompt > *longest).max_by_key(|(longest, _)| *longest);
        if let Some((_, long)) = passed {
            prices = own(prices.with(long));
        }
        if !matches!(tier, Some(Tier::Set { .. })) {
            for entry in self.overrides.iter().filter(|entry| entry.holds(prompt, now)) {
                prices = own(prices.with(&entry.prices));
            }
        }
        (prices, times)
    }

    /// The share that is charged.
    fn rest(&self) -> Factor {
        self.discount.map_or(Factor::ONE, |discount| discount.rest().unwrap_or(Factor::NONE))
    }
}

/// Prices that hold for one request.
enum InForce<'a> {
    Set(&'a Prices),
    Made(Box<Prices>),
}

impl Deref for InForce<'_> {
    type Target = Prices;

    fn deref(&self) -> &Prices {
        match self {
            Self::Set(prices) => prices,
            Self::Made(prices) => prices,
        }
    }
}

/// What was read from and written to a cache, and the same tokens as plain input.
fn cached(prices: &Prices, usage: &Usage) -> (Sum, Sum) {
    let (mut cached, mut plain) = (Sum::default(), Sum::default());
    if usage.billed_input.is_none() {
        let parts = [
            (Unit::CacheRead, usage.cache_read),
            (Unit::CacheWrite, usage.cache_write),
            (Unit::CacheWrite1h, usage.cache_write_1h),
        ];
        for (unit, count) in parts {
            cached.tokens(prices.of(unit), count);
            plain.tokens(prices.of(Unit::Input), count);
        }
    }
    (cached, plain)
}

fn prompt(prices: &Prices, usage: &Usage, cached: &Sum) -> Sum {
    let mut sum = *cached;
    match usage.billed_input {
        Some(billed) => sum.tokens(prices.of(Unit::Input), billed.min(usage.prompt())),
        None => sum.parts(
            prices,
            (Unit::Input, usage.input),
            &[(Unit::InputImage, usage.input_image), (Unit::InputAudio, usage.input_audio)],
        ),
    }
    sum.pieces(prices.of(Unit::Image), usage.images);
    sum
}

fn completion(prices: &Prices, usage: &Usage) -> Sum {
    let mut sum = Sum::default();
    match usage.billed_output {
        Some(billed) => sum.tokens(prices.of(Unit::Output), billed.min(usage.output)),
        None => sum.parts(
            prices,
            (Unit::Output, usage.output),
            &[
                (Unit::Reasoning, usage.thinking),
                (Unit::OutputImage, usage.output_image),
                (Unit::OutputAudio, usage.output_audio),
            ],
        ),
    }
    sum.pieces(prices.of(Unit::ImageOut), usage.images_out);
    sum
}

/// By what a sum is multiplied.
#[derive(Clone, Copy, Debug)]
struct Scale {
    tier: Factor,
    geo: Factor,
    rest: Factor,
}

impl Scale {
    fn is_plain(&self) -> bool {
        [self.tier, self.geo, self.rest] == [Factor::ONE; 3]
    }
}

/// An exact sum, in millionths of a nano-dollar; `hours` in milliseconds' parts of that.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    tokens: Wide,
    pieces: Wide,
    hours: Wide,
}

impl Sum {
    const MILLION: u64 = 1_000_000;
    /// In milliseconds.
    const HOUR: u64 = 3_600_000;

    fn tokens(&mut self, price: Price, count: u64) {
        self.tokens.add(product(price, count));
    }

    fn pieces(&mut self, price: Price, count: u64) {
        self.pieces.add(product(price, count));
    }

    fn seconds(&mut self, price: Price, count: u64) {
        let mut sum = Wide::default();
        sum.add(product(price, count));
        self.hours.add_wide(sum.times(1_000));
    }

    fn milliseconds(&mut self, price: Price, count: u64) {
        self.hours.add(product(price, count));
    }

    /// Tokens of which some have another price: never more of them than there are.
    fn parts(&mut self, prices: &Prices, whole: (Unit, u64), parts: &[(Unit, u64)]) {
        let mut rest = whole.1;
        for (unit, count) in parts {
            let count = rest.min(*count);
            rest -= count;
            self.tokens(prices.of(*unit), count);
        }
        self.tokens(prices.of(whole.0), rest);
    }

    fn add(&mut self, other: &Self) {
        self.tokens.add_wide(other.tokens);
        self.pieces.add_wide(other.pieces);
        self.hours.add_wide(other.hours);
    }

    /// Half up, to nano-dollars.
    fn rounded(&self, scale: &Scale) -> Money {
        self.divided(scale, |divisor| divisor / 2)
    }

    fn rounded_up(&self, scale: &Scale) -> Money {
        self.divided(scale, |divisor| divisor - 1)
    }

    fn divided(&self, scale: &Scale, more: fn(u128) -> u128) -> Money {
        let mut sum = self.tokens;
        sum.add_wide(self.pieces);
        // Nearly all sums are short ones.
        if let Some(short) = sum.to_u128().filter(|_| scale.is_plain() && self.hours == Wide::default())
            && let Some(short) = short.checked_add(more(u128::from(Self::MILLION)))
        {
            return Money(i64::try_from(short / u128::from(Self::MILLION)).unwrap_or(i64::MAX));
        }
        let plain = Factor::ONE.millionths();
        let mut sum = self.tokens.times(scale.tier.millionths()).times(scale.geo.millionths()).times(Self::HOUR);
        sum.add_wide(self.pieces.times(plain).times(plain).times(Self::HOUR));
        sum.add_wide(self.hours.times(plain).times(plain));
        let mut sum = sum.times(scale.rest.millionths());
        // Four times a million: of the price, and of each factor.
        let trillion = Self::MILLION * Self::MILLION;
        sum.add(more(u128::from(trillion) * u128::from(trillion) * u128::from(Self::HOUR)));
        Money(sum.over(trillion).over(trillion).over(Self::HOUR).to_i64())
    }
}

fn product(price: Price, count: u64) -> u128 {
    u128::from(price.0.max(0).unsigned_abs()) * u128::from(count)
}
