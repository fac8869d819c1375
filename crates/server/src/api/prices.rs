//! Prices as the public interface shows them: dollars per token, or per piece, as decimal texts.

use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_core::{Factor, Price};
use tidegate_routing::Pricing;
use tidegate_routing::price::{Prices, Tier, Unit};

/// The usual prices, and under `overrides` those that hold under conditions.
#[derive(Serialize)]
#[serde(transparent)]
pub struct Shown(Map<String, Value>);

/// An unknown price is said to be `-1`, as the public interface does for prices that vary; never 0.
pub fn shown(pricing: Option<&Pricing>) -> Shown {
    let mut all = Map::new();
    let Some(pricing) = pricing else {
        for unit in [Unit::Input, Unit::Output] {
            all.insert(name(unit).to_owned(), "-1".into());
        }
        return Shown(all);
    };
    let base = &pricing.base;
    for unit in Unit::ALL {
        let price = match unit {
            Unit::Input | Unit::Output => Some(base.of(unit)),
            // What a cache costs without a price of its own is worth knowing.
            Unit::CacheRead | Unit::CacheWrite | Unit::CacheWrite1h => Some(base.of(unit)).filter(|price| price.0 > 0),
            Unit::Reasoning => base.get(unit),
            _ => base.get(unit).filter(|price| price.0 > 0),
        };
        if let Some(price) = price {
            all.insert(name(unit).to_owned(), per_unit(price).into());
        }
    }
    let overrides = overrides(pricing);
    if !overrides.is_empty() {
        all.insert("overrides".to_owned(), overrides.into());
    }
    if let Some(discount) = pricing.discount {
        all.insert("discount".to_owned(), (discount.millionths() as f64 / 1e6).into());
    }
    Shown(all)
}

/// Long prompts, times of day, service tiers and places. The last two have members of our own for their condition.
fn overrides(pricing: &Pricing) -> Vec<Value> {
    let long = |above: &[(u64, Prices)]| {
        let mut sets = above.to_vec();
        sets.sort_by_key(|(longest, _)| *longest);
        sets.into_iter().map(|(longest, prices)| ("min_prompt_tokens", Value::from(longest.saturating_add(1)), prices))
    };
    let mut all: Vec<Map<String, Value>> = Vec::new();
    for (condition, value, prices) in long(&pricing.above) {
        all.push(entry([(condition, Some(value))], &prices));
    }
    for own in &pricing.overrides {
        let hours = |millis: u32| Value::from(f64::from(millis) / 3_600_000.0);
        let conditions = [
            ("min_prompt_tokens", own.min_prompt_tokens.map(Value::from)),
            ("utc_start", own.window.map(|window| hours(window.start))),
            ("utc_end", own.window.map(|window| hours(window.end))),
        ];
        all.push(entry(conditions, &own.prices));
    }
    for (tier, price) in &pricing.tiers {
        let tier = || ("service_tier", Some(Value::from(&**tier)));
        match price {
            Tier::Times(factor) => all.push(entry([tier()], &times(&pricing.base, *factor))),
            Tier::Set { prices, above } => {
                all.push(entry([tier()], prices));
                all.extend(long(above).map(|(name, value, prices)| entry([tier(), (name, Some(value))], &prices)));
            }
        }
    }
    for (place, factor) in &pricing.geo {
        all.push(entry([("inference_geo", Some(Value::from(&**place)))], &times(&pricing.base, *factor)));
    }
    all.into_iter().map(Value::Object).collect()
}

fn entry<const N: usize>(conditions: [(&str, Option<Value>); N], prices: &Prices) -> Map<String, Value> {
    let conditions = conditions.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let prices = prices.named().map(|(unit, price)| (name(unit).to_owned(), per_unit(price).into()));
    conditions.chain(prices).collect()
}

/// The prices of tokens so many times.
fn times(prices: &Prices, factor: Factor) -> Prices {
    let scaled = |price: Price| {
        let scaled = i128::from(price.0) * i128::from(factor.millionths()) / i128::from(Factor::ONE.millionths());
        Price(i64::try_from(scaled).unwrap_or(i64::MAX))
    };
    let tokens = prices.named().filter(|(unit, _)| unit.is_token());
    tokens.map(|(unit, price)| (unit, scaled(price))).collect()
}

/// The public name; our own where there is none.
fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Input => "prompt",
        Unit::Output => "completion",
        Unit::CacheRead => "input_cache_read",
        Unit::CacheWrite => "input_cache_write",
        Unit::CacheWrite1h => "input_cache_write_1h",
        Unit::Reasoning => "internal_reasoning",
        Unit::InputImage => "image_token",
        Unit::OutputImage => "image_output",
        Unit::InputAudio => "audio",
        Unit::OutputAudio => "audio_output",
        Unit::Image | Unit::ImageOut | Unit::Request | Unit::WebSearch => unit.as_str(),
        Unit::CodeExecHour | Unit::Container | Unit::Character | Unit::AudioHour => unit.as_str(),
    }
}

/// Dollars for one of a million, without a rounding.
pub fn per_unit(price: Price) -> String {
    let digits = format!("{:016}", price.0.max(0));
    let (whole, fraction) = digits.split_at(digits.len() - 15);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidegate_routing::price::{Override, Window};

    fn set(named: &[(Unit, &str)]) -> Prices {
        named.iter().map(|(unit, dollars)| (*unit, Price::parse(dollars).unwrap())).collect()
    }

    #[test]
    fn prices_are_told_per_token_to_the_last_digit() {
        let told = |text: &str| per_unit(Price::parse(text).unwrap());
        assert_eq!(
            [told("3"), told("0.075"), told("0"), told("0.000000001")],
            ["0.000003", "0.000000075", "0", "0.000000000000001"]
        );
        assert_eq!(told("10000000"), "10", "a price per piece");
        assert_eq!(Value::Object(shown(None).0), json!({"prompt": "-1", "completion": "-1"}));
    }

    #[test]
    fn conditions_are_told_with_their_prices() {
        let pricing = Pricing {
            above: vec![(200_000, set(&[(Unit::Input, "4")]))],
            tiers: vec![
                ("batch".into(), Tier::Times(Factor::parse("0.5").unwrap())),
                (
                    "priority".into(),
                    Tier::Set { prices: set(&[(Unit::Output, "20")]), above: vec![(9, Prices::default())] },
                ),
            ],
            geo: vec![("us".into(), Factor::parse("1.1").unwrap())],
            overrides: vec![Override {
                min_prompt_tokens: Some(7),
                window: Some(Window { start: 59_400_000, end: 1_800_000 }),
                prices: set(&[(Unit::InputAudio, "1")]),
            }],
            discount: Some(Factor::parse("0.25").unwrap()),
            base: set(&[(Unit::Input, "2"), (Unit::Output, "12"), (Unit::Request, "5000"), (Unit::OutputAudio, "6")]),
        };
        let expected = json!({
            "prompt": "0.000002", "completion": "0.000012", "audio_output": "0.000006", "request": "0.005",
            // Without prices of their own these cost what input does.
            "input_cache_read": "0.000002", "input_cache_write": "0.000002", "input_cache_write_1h": "0.000002",
            "discount": 0.25,
            "overrides": [
                {"min_prompt_tokens": 200_001, "prompt": "0.000004"},
                {"min_prompt_tokens": 7, "utc_start": 16.5, "utc_end": 0.5, "audio": "0.000001"},
                {"service_tier": "batch", "prompt": "0.000001", "completion": "0.000006", "audio_output": "0.000003"},
                {"service_tier": "priority", "completion": "0.00002"},
                {"service_tier": "priority", "min_prompt_tokens": 10},
                {"inference_geo": "us", "prompt": "0.0000022", "completion": "0.0000132", "audio_output": "0.0000066"},
            ],
        });
        assert_eq!(Value::Object(shown(Some(&pricing)).0), expected);
    }
}
