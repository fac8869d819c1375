//! What an answer costs: exact sums, rounded once.

use tidegate_core::money::{self, Money, Price};
use tidegate_core::usage::Usage;

/// Prices of an endpoint, per million tokens; `request` and `web_search` per million calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pricing {
    pub input: Price,
    pub output: Price,
    pub cache_read: Price,
    pub cache_write: Price,
    pub cache_write_1h: Price,
    /// Thinking tokens, where they are priced apart.
    pub reasoning: Option<Price>,
    pub request: Price,
    pub web_search: Price,
}

/// A cost and its two parts, each rounded on its own: they are for display, the total is what is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    pub total: Money,
    pub prompt: Money,
    pub completion: Money,
}

impl Pricing {
    pub fn cost(&self, usage: &Usage) -> Cost {
        let prompt = self.input.times(usage.input)
            + self.cache_read.times(usage.cache_read)
            + self.cache_write.times(usage.cache_write)
            + self.cache_write_1h.times(usage.cache_write_1h);
        let thinking = usage.thinking.min(usage.output);
        let completion = match self.reasoning {
            Some(reasoning) => self.output.times(usage.output - thinking) + reasoning.times(thinking),
            None => self.output.times(usage.output),
        };
        let pieces = self.request.times(1) + self.web_search.times(usage.web_searches);
        Cost {
            total: money::round(prompt + completion + pieces),
            prompt: money::round(prompt),
            completion: money::round(completion),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(dollars: &str) -> Price {
        Price::parse(dollars).unwrap()
    }

    #[test]
    fn led_1_every_bucket_is_priced_once() {
        let pricing = Pricing {
            input: price("3"),
            output: price("15"),
            cache_read: price("0.3"),
            cache_write: price("3.75"),
            cache_write_1h: price("6"),
            reasoning: None,
            request: price("0"),
            web_search: price("10000"),
        };
        let usage = Usage { input: 14, output: 9, ..Usage::default() };
        let cost = pricing.cost(&usage);
        assert_eq!(
            (cost.total.to_string(), cost.prompt.to_string(), cost.completion.to_string()),
            ("0.000177".into(), "0.000042".into(), "0.000135".into())
        );
        // 1000 reads, 100 short and 10 long writes, 2 searches: 300 + 375 + 60 micro-dollars and 2 cents.
        let usage =
            Usage { cache_read: 1000, cache_write: 100, cache_write_1h: 10, web_searches: 2, ..Usage::default() };
        assert_eq!(pricing.cost(&usage).total.to_string(), "0.020735");
    }

    #[test]
    fn thinking_can_have_a_price_of_its_own() {
        let pricing = Pricing { output: price("10"), reasoning: Some(price("2")), ..Pricing::default() };
        let usage = Usage { output: 100, thinking: 40, ..Usage::default() };
        assert_eq!(pricing.cost(&usage).total.to_string(), "0.00068"); // 60 × 10 + 40 × 2 micro-dollars
        // An upstream that reports more thinking than output cannot make the rest negative.
        let usage = Usage { output: 10, thinking: 40, ..Usage::default() };
        assert_eq!(pricing.cost(&usage).total.to_string(), "0.00002");
    }

    #[test]
    fn the_total_is_rounded_once_and_not_the_sum_of_rounded_parts() {
        // Half a nano-dollar each for prompt and completion: one in total, one each for display.
        let pricing = Pricing { input: Price(500_000), output: Price(500_000), ..Pricing::default() };
        let cost = pricing.cost(&Usage { input: 1, output: 1, ..Usage::default() });
        assert_eq!((cost.total, cost.prompt, cost.completion), (Money(1), Money(1), Money(1)));
    }
}
