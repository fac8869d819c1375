//! Prices as they are written, made into those that a cost is computed from.

use std::collections::BTreeMap;
use std::fmt;

use tidegate_core::{Factor, Price};
use tidegate_routing::price::{Override, Prices, Pricing, Tier, Unit, Window};

use super::nearest;
use super::raw::{self, Decimal};

/// What is wrong with a price, and where: `above.200000.input`.
#[derive(Debug)]
pub struct Mistake {
    pub key: String,
    /// Which of a model's endpoints has it.
    pub endpoint: usize,
    problem: String,
}

impl Mistake {
    pub fn at(self, endpoint: usize) -> Self {
        Self { endpoint, ..self }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "pricing.{} {}", self.key, self.problem)
    }
}

impl std::error::Error for Mistake {}

type Checked<T> = Result<T, Mistake>;

/// Tiers that vendors are known to answer in.
const TIERS: [&str; 5] = ["batch", "fast", "flex", "priority", "standard"];

fn mistake<T>(key: impl Into<String>, problem: impl fmt::Display) -> Checked<T> {
    Err(Mistake { key: key.into(), endpoint: 0, problem: problem.to_string() })
}

/// Whose prices they are: the custom of a vendor holds where nothing is said.
pub struct Sold<'a> {
    pub provider: &'a str,
    /// As callers name it, and as the provider does.
    pub model: &'a str,
    pub upstream: &'a str,
    /// It stands for a service tier itself, and these are the prices of that.
    pub is_tiered: bool,
}

impl Sold<'_> {
    /// Operators have names of their own for it, and whoever sells it has `us.anthropic.claude-…` or `claude-…@20250929`.
    fn is_claude(&self) -> bool {
        self.provider == "anthropic"
            || self.model.starts_with("anthropic/")
            || self.upstream.split(['.', '/', ':']).any(|part| part.starts_with("claude-"))
    }
}

/// The prices of an endpoint.
pub fn pricing(raw: &raw::Pricing, sold: &Sold<'_>) -> Checked<Pricing> {
    let base = set(&raw.units(), "")?;
    for unit in [Unit::Input, Unit::Output] {
        if base.get(unit).is_none() {
            return mistake(unit.as_str(), "is needed; 0 is free");
        }
    }
    let tier = |(name, tier): (&String, &raw::TierPrice)| {
        let key = format!("tier.{name}");
        // Vendors may have others; one of these that is misspelt would never be charged.
        if let Some(meant) = nearest(name, &TIERS).filter(|meant| meant != name) {
            return mistake(key, format_args!("is not a tier; did you mean {meant}?"));
        }
        let tier = match tier {
            raw::TierPrice::Times(times) => Tier::Times(factor(times, &key)?),
            raw::TierPrice::Set(own) => Tier::Set {
                prices: set(&own.units(), &format!("{key}."))?,
                above: above(&own.above, &format!("{key}.above"))?,
            },
        };
        Ok((name.as_str().into(), tier))
    };
    let geo = |(name, times): (&String, &Decimal)| Ok((name.as_str().into(), factor(times, &format!("geo.{name}"))?));
    let overrides = raw.overrides.iter().enumerate().map(|(index, entry)| over(entry, &format!("overrides[{index}]")));
    let discount = raw.discount.as_ref().map(|discount| factor(discount, "discount")).transpose()?;
    if discount.is_some_and(|discount| discount > Factor::ONE) {
        return mistake("discount", "must be at most 1, which is everything");
    }
    let mut tiers = raw.tier.iter().map(tier).collect::<Checked<Vec<_>>>()?;
    for (name, times) in usual_tiers(sold.provider).iter().filter(|_| !sold.is_tiered) {
        if let (false, Ok(times)) = (raw.tier.contains_key(*name), Factor::parse(times)) {
            tiers.push(((*name).into(), Tier::Times(times)));
        }
    }
    Ok(Pricing {
        base: with_conventions(base, sold),
        above: above(&raw.above, "above")?,
        tiers,
        geo: raw.geo.iter().map(geo).collect::<Checked<_>>()?,
        overrides: overrides.collect::<Checked<_>>()?,
        discount,
    })
}

/// `within` stands before the name of a unit.
fn set(units: &[(Unit, Option<&Decimal>)], within: &str) -> Checked<Prices> {
    let named = units.iter().filter_map(|(unit, price)| Some((*unit, (*price)?)));
    named.map(|(unit, price)| Ok((unit, one(unit, price, &format!("{within}{}", unit.as_str()))?))).collect()
}

fn one(unit: Unit, price: &Decimal, key: &str) -> Checked<Price> {
    let read = match Price::parse(price.text()) {
        Ok(read) => read,
        Err(problem) => return mistake(key, problem),
    };
    if unit.is_by_million() {
        return Ok(read);
    }
    // Prices per piece are kept per million pieces, like all others.
    match read.0.checked_mul(1_000_000) {
        Some(price) => Ok(Price(price)),
        None => mistake(key, "must be at most 9000 dollars each"),
    }
}

fn factor(times: &Decimal, key: &str) -> Checked<Factor> {
    Factor::parse(times.text()).or_else(|problem| mistake(key, problem))
}

/// Sets for long prompts, by the length that is passed: `200000` or `200k`.
fn above(sets: &BTreeMap<String, raw::PriceSet>, within: &str) -> Checked<Vec<(u64, Prices)>> {
    let one = |(length, prices): (&String, &raw::PriceSet)| {
        let key = format!("{within}.{length}");
        let (digits, times) = length.strip_suffix('k').map_or((length.as_str(), 1), |digits| (digits, 1_000));
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u64>().ok().filter(|_| is_plain).and_then(|tokens| tokens.checked_mul(times)) {
            Some(tokens) => Ok((tokens, set(&prices.units(), &format!("{key}."))?)),
            None => mistake(key, "is not a number of tokens such as 200000 or 200k"),
        }
    };
    sets.iter().map(one).collect()
}

fn over(raw: &raw::PriceOverride, key: &str) -> Checked<Override> {
    let time = |name: &str, text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let parts = text.split_once(':').and_then(|(hour, minute)| {
            let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() == 2);
            Some((number(hour)?, number(minute)?)).filter(|(hour, minute)| *hour < 24 && *minute < 60)
        });
        match parts {
            Some((hour, minute)) => Ok(Some((hour * 60 + minute) * 60_000)),
            None => mistake(format!("{key}.{name}"), "is not a time of day such as 16:30"),
        }
    };
    let window = match (time("utc_start", &raw.utc_start)?, time("utc_end", &raw.utc_end)?) {
        (Some(start), Some(end)) if start == end => {
            return mistake(format!("{key}.utc_end"), "must differ from utc_start");
        }
        (Some(start), Some(end)) => Some(Window { start, end }),
        (None, None) => None,
        (Some(_), None) => return mistake(format!("{key}.utc_end"), "is needed with utc_start"),
        (None, Some(_)) => return mistake(format!("{key}.utc_start"), "is needed with utc_end"),
    };
    let prices = set(&raw.units(), &format!("{key}."))?;
    Ok(Override { min_prompt_tokens: raw.min_prompt_tokens, window, prices })
}

/// How many times the usual prices count for a service tier of which nothing is said, by the vendor's custom: who asks for
/// a faster answer must not get it for the price of a slow one.
fn usual_tiers(provider: &str) -> &'static [(&'static str, &'static str)] {
    match provider {
        "openai" | "azure" => &[("flex", "0.5"), ("priority", "2")],
        "anthropic" => &[("fast", "2")],
        _ => &[],
    }
}

/// What a cache costs where nothing is said of it: so many thousandths of the price of plain input, by the vendor's custom.
fn with_conventions(mut prices: Prices, sold: &Sold<'_>) -> Prices {
    let (read, write, write_1h) = match sold.provider {
        // Whoever sells it.
        _ if sold.is_claude() => (100, 1_250, 2_000),
        "openai" | "azure" | "alibaba" => (100, 1_250, 1_250),
        "google-ai-studio" | "google-vertex" | "deepseek" => (100, 1_000, 1_000),
        "xai" | "moonshotai" => (250, 1_000, 1_000),
        "groq" => (500, 1_000, 1_000),
        "z-ai" => (200, 1_000, 1_000),
        _ => (1_000, 1_000, 1_000),
    };
    let input = prices.of(Unit::Input);
    // A write that is priced holds for long ones, too, unless the vendor has another custom.
    let has_write = prices.get(Unit::CacheWrite).is_some();
    for (unit, thousandths) in [(Unit::CacheRead, read), (Unit::CacheWrite, write), (Unit::CacheWrite1h, write_1h)] {
        let is_priced = prices.get(unit).is_some() || (unit == Unit::CacheWrite1h && has_write && write_1h == write);
        if !is_priced && thousandths != 1_000 {
            prices.set(unit, Price((i128::from(input.0) * thousandths / 1_000) as i64));
        }
    }
    prices
}
