//! What a call would cost at one endpoint, to compare it with others. Nobody is charged what is said here.

use tidegate_core::money::Price;
use tidegate_core::{Factor, Timestamp};

use super::Pricing;
use super::set::{Prices, Unit};

/// The prices in force for a prompt of some length, and by what they are multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Quote {
    prices: Prices,
    tier: Factor,
    rest: Factor,
}

impl Pricing {
    pub fn quote(&self, prompt: u64, tier: Option<&str>, now: Timestamp) -> Quote {
        let (prices, tier) = self.in_force(prompt, tier.and_then(|name| self.tier(name)), now);
        Quote { prices: *prices, tier, rest: self.rest() }
    }
}

impl Quote {
    /// Dollars for a million tokens, of which so many parts are input and so many output, and for a thousand requests.
    pub fn blended(&self, (input, output): (f64, f64)) -> f64 {
        let dollars = |unit: Unit| self.prices.of(unit).0 as f64 / 1e9;
        let share = |factor: Factor| factor.millionths() as f64 / 1e6;
        let tokens = (input * dollars(Unit::Input) + output * dollars(Unit::Output)) / (input + output);
        // Prices of pieces are kept per million.
        (tokens * share(self.tier) + dollars(Unit::Request) / 1e6 * 1e3) * share(self.rest)
    }

    /// Whether a unit costs more than this. What has no price of its own costs nothing more.
    pub fn exceeds(&self, unit: Unit, most: Price) -> bool {
        let Some(price) = self.prices.get(unit) else { return false };
        let one = i128::from(Factor::ONE.millionths());
        let tier = if unit.is_token() { i128::from(self.tier.millionths()) } else { one };
        let charged =
            i128::from(price.0.max(0)).saturating_mul(tier).saturating_mul(i128::from(self.rest.millionths()));
        charged > i128::from(most.0).saturating_mul(one).saturating_mul(one)
    }

    /// What is named, as it is charged: dollars per million tokens.
    pub fn dollars(&self, unit: Unit) -> f64 {
        let share = |factor: Factor| factor.millionths() as f64 / 1e6;
        self.prices.of(unit).0 as f64 / 1e9 * share(self.tier) * share(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::Tier;

    fn price(dollars: f64) -> Price {
        Price((dollars * 1e9).round() as i64)
    }

    fn pricing() -> Pricing {
        let prices = [(Unit::Input, price(3.0)), (Unit::Output, price(15.0)), (Unit::Request, price(0.002 * 1e6))];
        let long = [(Unit::Input, price(6.0))];
        Pricing {
            above: vec![(200_000, long.into_iter().collect())],
            tiers: vec![("flex".into(), Tier::Times(Factor::new(500_000).unwrap()))],
            discount: Factor::new(250_000),
            ..Pricing::of(prices.into_iter().collect())
        }
    }

    #[test]
    fn a_blend_is_three_parts_input_and_one_part_output_after_all_that_changes_prices() {
        let pricing = pricing();
        let blended = |prompt, tier| pricing.quote(prompt, tier, Timestamp(0)).blended((3.0, 1.0));
        let same = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
        // (3 × 3 + 15) / 4 = 6; a thousand requests cost 2; a quarter is off.
        same(blended(1_000, None), (6.0 + 2.0) * 0.75);
        // Half of what tokens cost, and all of what requests cost.
        same(blended(1_000, Some("flex")), (3.0 + 2.0) * 0.75);
        // (3 × 6 + 15) / 4 = 8.25
        same(blended(200_001, None), (8.25 + 2.0) * 0.75);
        same(blended(1_000, Some("unheard of")), 6.0);
    }

    #[test]
    fn a_limit_is_passed_only_by_what_is_charged() {
        let quote = pricing().quote(0, None, Timestamp(0));
        // 3 less a quarter is 2.25.
        assert!(!quote.exceeds(Unit::Input, price(2.25)) && quote.exceeds(Unit::Input, price(2.249_999_999)));
        assert!(!quote.exceeds(Unit::Request, price(1_500.0)) && quote.exceeds(Unit::Request, price(1_499.0)));
        assert!(!quote.exceeds(Unit::Image, price(0.0)), "what has no price costs nothing more");
        let flex = pricing().quote(0, Some("flex"), Timestamp(0));
        assert!(!flex.exceeds(Unit::Input, price(1.125)) && flex.exceeds(Unit::Input, price(1.124)));
        assert!(flex.exceeds(Unit::Request, price(1_499.0)), "no tier makes a request cheaper");
    }
}
