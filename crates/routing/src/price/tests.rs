use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MILLION: i64 = 1_000_000;

fn price(dollars: &str) -> Price {
    Price::parse(dollars).unwrap()
}

fn prices(named: &[(Unit, &str)]) -> Prices {
    let one = |(unit, dollars): &(Unit, &str)| {
        let price = price(dollars);
        (*unit, if unit.is_by_million() { price } else { Price(price.0 * MILLION) })
    };
    named.iter().map(one).collect()
}

fn sonnet() -> Pricing {
    Pricing::of(prices(&[
        (Unit::Input, "3"),
        (Unit::Output, "15"),
        (Unit::CacheRead, "0.3"),
        (Unit::CacheWrite, "3.75"),
        (Unit::CacheWrite1h, "6"),
        (Unit::WebSearch, "0.01"),
    ]))
}

fn total(pricing: &Pricing, usage: Usage, terms: Terms<'_>) -> String {
    pricing.cost(&usage, &terms).total.to_string()
}

/// The longest answer whose call costs no more than what there is.
fn affordable_of(pricing: &Pricing, ask: &Ask<'_>, available: Money) -> Option<u64> {
    pricing.longest(ask, |most| most <= available)
}

#[test]
fn led_1_every_bucket_is_priced_once() {
    let cost = sonnet().cost(&Usage { input: 14, output: 9, ..Usage::default() }, &Terms::default());
    assert_eq!(
        (cost.total.to_string(), cost.prompt.to_string(), cost.completion.to_string()),
        ("0.000177".into(), "0.000042".into(), "0.000135".into())
    );
    // 1000 reads, 100 short and 10 long writes, 2 searches: 300 + 375 + 60 micro-dollars and 2 cents.
    let usage = Usage { cache_read: 1000, cache_write: 100, cache_write_1h: 10, web_searches: 2, ..Usage::default() };
    assert_eq!(total(&sonnet(), usage, Terms::default()), "0.020735");
}

#[test]
fn every_unit_has_its_price() {
    let all = Pricing::of(prices(&[
        (Unit::Input, "1"),
        (Unit::Output, "2"),
        (Unit::CacheRead, "0.1"),
        (Unit::CacheWrite, "1.25"),
        (Unit::CacheWrite1h, "2.5"),
        (Unit::Reasoning, "3"),
        (Unit::InputImage, "4"),
        (Unit::OutputImage, "5"),
        (Unit::InputAudio, "6"),
        (Unit::OutputAudio, "7"),
        (Unit::Image, "0.001"),
        (Unit::ImageOut, "0.04"),
        (Unit::Request, "0"),
        (Unit::WebSearch, "0.014"),
        (Unit::CodeExecHour, "0.05"),
        (Unit::Container, "0.03"),
    ]));
    let none = Usage::default();
    let cases = [
        (Usage { input: 10, ..none }, "0.00001"),
        (Usage { output: 10, ..none }, "0.00002"),
        (Usage { cache_read: 10, ..none }, "0.000001"),
        (Usage { cache_write: 10, ..none }, "0.0000125"),
        (Usage { cache_write_1h: 10, ..none }, "0.000025"),
        (Usage { output: 10, thinking: 4, ..none }, "0.000024"),
        (Usage { input: 10, input_image: 4, ..none }, "0.000022"),
        (Usage { input: 10, input_image: 4, input_audio: 6, ..none }, "0.000052"),
        (Usage { output: 10, output_image: 10, ..none }, "0.00005"),
        (Usage { output: 10, output_audio: 1, thinking: 9, ..none }, "0.000034"),
        (Usage { images: 3, ..none }, "0.003"),
        (Usage { images_out: 2, ..none }, "0.08"),
        (Usage { web_searches: 2, ..none }, "0.028"),
        (Usage { code_exec_seconds: 3600, ..none }, "0.05"),
        (Usage { code_exec_seconds: 1, ..none }, "0.000013889"),
        (Usage { containers: 1, ..none }, "0.03"),
        // What the vendor bills stands in place of what it counted, and is never more.
        (
            Usage { input: 29, cache_read: 32, output: 14, billed_input: Some(20), billed_output: Some(9), ..none },
            "0.000038",
        ),
        (Usage { input: 3, output: 1, billed_input: Some(99), billed_output: Some(99), ..none }, "0.000005"),
        // Parts that are more than their whole cannot make the rest negative.
        (Usage { input: 1, input_image: 9, input_audio: 9, ..none }, "0.000004"),
        (Usage { output: 1, thinking: 40, output_audio: 3, ..none }, "0.000003"),
    ];
    for (usage, expected) in cases {
        assert_eq!(total(&all, usage, Terms::default()), expected, "{usage:?}");
    }
    let fee = Pricing::of(prices(&[(Unit::Request, "0.005")]));
    assert_eq!(total(&fee, none, Terms::default()), "0.005", "once per call");
    let ranked = Usage { search_units: 3, ..none };
    assert_eq!(total(&fee, ranked, Terms::default()), "0.015", "by the unit where those are counted");
    let sound = Pricing::of(prices(&[(Unit::Character, "15"), (Unit::AudioHour, "0.36")]));
    assert_eq!(total(&sound, Usage { characters: 4_096, ..none }, Terms::default()), "0.06144");
    assert_eq!(total(&sound, Usage { audio_ms: 90_500, ..none }, Terms::default()), "0.00905");
}

#[test]
fn what_has_no_price_of_its_own_costs_what_it_is_a_kind_of() {
    let plain = Pricing::of(prices(&[(Unit::Input, "1"), (Unit::Output, "2")]));
    let usage = Usage { cache_read: 1, cache_write: 1, cache_write_1h: 1, ..Usage::default() };
    assert_eq!(total(&plain, usage, Terms::default()), "0.000003");
    let usage = Usage { output: 3, thinking: 1, output_image: 1, output_audio: 1, ..Usage::default() };
    assert_eq!(total(&plain, usage, Terms::default()), "0.000006");
    let usage = Usage { web_searches: 5, images: 7, containers: 1, code_exec_seconds: 9, ..Usage::default() };
    assert_eq!(total(&plain, usage, Terms::default()), "0", "pieces without a price are not charged");
}

#[test]
fn tiers_multiply_tokens_or_have_prices_of_their_own() {
    let mut pricing = sonnet();
    let long = prices(&[(Unit::Input, "20")]);
    pricing.above = vec![(1_000, prices(&[(Unit::Input, "6")]))];
    pricing.tiers = vec![
        ("batch".into(), Tier::Times(Factor::parse("0.5").unwrap())),
        ("fast".into(), Tier::Times(Factor::parse("2").unwrap())),
        ("priority".into(), Tier::Set { prices: prices(&[(Unit::Input, "10")]), above: vec![(2_000, long)] }),
    ];
    let usage = Usage { input: 100, output: 10, web_searches: 1, ..Usage::default() };
    let at = |tier, usage| total(&pricing, usage, Terms { tier, ..Terms::default() });
    assert_eq!(at(None, usage), "0.01045");
    assert_eq!(at(Some("standard"), usage), "0.01045");
    assert_eq!(at(Some("unheard of"), usage), "0.01045");
    assert_eq!(at(Some("batch"), usage), "0.010225", "searches are not halved");
    assert_eq!(at(Some("fast"), usage), "0.0109");
    assert_eq!(at(Some("priority"), usage), "0.01115", "what the set leaves out is as usual");
    let usage = Usage { input: 2_000, ..Usage::default() };
    assert_eq!((at(None, usage), at(Some("fast"), usage)), ("0.012".into(), "0.024".into()));
    assert_eq!(at(Some("priority"), usage), "0.02", "long prompts of a tier are its own affair");
    assert_eq!(at(Some("priority"), Usage { input: 2_001, ..Usage::default() }), "0.04002");
}

#[test]
fn a_long_prompt_changes_the_price_of_the_whole_request() {
    let mut pricing = Pricing::of(prices(&[(Unit::Input, "2"), (Unit::Output, "12"), (Unit::CacheRead, "0.2")]));
    pricing.above = vec![
        (400_000, prices(&[(Unit::Input, "8")])),
        (200_000, prices(&[(Unit::Input, "4"), (Unit::Output, "18"), (Unit::CacheRead, "0.4")])),
    ];
    let at = |input, cache_read, output| {
        total(&pricing, Usage { input, cache_read, output, ..Usage::default() }, Terms::default())
    };
    assert_eq!(at(100_000, 100_000, 10), "0.22012", "exactly as long is not longer");
    assert_eq!(at(100_000, 100_001, 10), "0.4401804", "reads are part of the prompt");
    assert_eq!(at(400_001, 0, 10), "3.200128", "the largest that is passed, alone");
}

#[test]
fn a_place_makes_tokens_dearer_and_nothing_else() {
    let pricing = Pricing { geo: vec![("us".into(), Factor::parse("1.1").unwrap())], ..sonnet() };
    let usage = Usage { input: 100, cache_read: 10, output: 10, web_searches: 1, ..Usage::default() };
    let at = |geo| total(&pricing, usage, Terms { geo, ..Terms::default() });
    assert_eq!(
        (at(Some("us")), at(Some("global")), at(None)),
        ("0.0104983".into(), "0.010453".into(), "0.010453".into())
    );
}

#[test]
fn a_discount_is_on_everything() {
    let pricing = Pricing { discount: Some(Factor::parse("0.25").unwrap()), ..sonnet() };
    let usage = Usage { input: 100, web_searches: 1, ..Usage::default() };
    assert_eq!(total(&pricing, usage, Terms::default()), "0.007725");
    let all = Pricing { discount: Some(Factor::ONE), ..sonnet() };
    assert_eq!(total(&all, usage, Terms::default()), "0");
    assert!(all.is_free() && !pricing.is_free() && Pricing::default().is_free());
}

#[test]
fn later_overrides_win_unit_by_unit_while_their_conditions_hold() {
    let hour = 60 * 60 * 1_000;
    let night = Window { start: 16 * hour + hour / 2, end: hour / 2 };
    let entry = |min_prompt_tokens, window, named: &[(Unit, &str)]| Override {
        min_prompt_tokens,
        window,
        prices: prices(named),
    };
    let pricing = Pricing {
        overrides: vec![
            entry(Some(1_000), None, &[(Unit::Input, "6"), (Unit::Output, "30")]),
            entry(None, Some(night), &[(Unit::Input, "1")]),
        ],
        ..sonnet()
    };
    let at = |input, time: u32| {
        let usage = Usage { input, output: 10, ..Usage::default() };
        total(&pricing, usage, Terms { now: Timestamp(1_790_035_200_000 + i64::from(time)), ..Terms::default() })
    };
    assert_eq!(1_790_035_200_000 % i64::from(Window::DAY), 0, "a midnight");
    assert_eq!((at(999, 12 * hour), at(1_000, 12 * hour)), ("0.003147".into(), "0.0063".into()));
    assert_eq!((at(100, 17 * hour), at(1_000, 0)), ("0.00025".into(), "0.0013".into()));
    let edges = [night.start - 1, night.start, night.end - 1, night.end].map(|time| at(100, time));
    assert_eq!(edges, ["0.00045", "0.00025", "0.00025", "0.00045"]);
}

#[test]
fn the_cache_discount_is_what_the_cache_saved() {
    let at = |usage| sonnet().cost(&usage, &Terms::default()).cache_discount.to_string();
    assert_eq!(at(Usage { cache_read: 1_000, ..Usage::default() }), "0.0027");
    assert_eq!(at(Usage { cache_write: 1_000, ..Usage::default() }), "-0.00075");
    assert_eq!(at(Usage { cache_write_1h: 1_000, cache_read: 2_000, ..Usage::default() }), "0.0024");
    assert_eq!(at(Usage { input: 1_000, ..Usage::default() }), "0");
}

#[test]
fn the_total_is_rounded_once_and_not_the_sum_of_rounded_parts() {
    // Half a nano-dollar each for prompt and completion: one in total, one each for display.
    let half = [(Unit::Input, Price(500_000)), (Unit::Output, Price(500_000))].into_iter().collect();
    let cost = Pricing::of(half).cost(&Usage { input: 1, output: 1, ..Usage::default() }, &Terms::default());
    assert_eq!((cost.total, cost.prompt, cost.completion), (Money(1), Money(1), Money(1)));
}

#[test]
fn no_count_is_too_large() {
    let most = u64::MAX;
    let usage = Usage {
        input: most,
        output: most,
        cache_read: most,
        cache_write: most,
        cache_write_1h: most,
        thinking: most,
        images: most,
        images_out: most,
        web_searches: most,
        code_exec_seconds: most,
        containers: most,
        ..Usage::default()
    };
    let dear: Prices = Unit::ALL.into_iter().map(|unit| (unit, Price(i64::MAX))).collect();
    let pricing = Pricing {
        tiers: vec![("fast".into(), Tier::Times(Factor::LARGEST))],
        geo: vec![("us".into(), Factor::LARGEST)],
        ..Pricing::of(dear)
    };
    let terms = Terms { tier: Some("fast"), geo: Some("us"), ..Terms::default() };
    assert_eq!(pricing.cost(&usage, &terms).total, Money(i64::MAX));
    assert_eq!(pricing.cost(&usage, &Terms::default()).total, Money(i64::MAX));
    let ask = Ask { prompt: most, output: most, images: most, tier: Some("fast"), ..Ask::default() };
    assert_eq!(pricing.most(&ask), Money(i64::MAX));
}

#[test]
fn the_longest_answer_that_can_be_paid() {
    let ask = Ask { prompt: 1_000, output: 4_096, ..Ask::default() };
    assert_eq!(sonnet().most(&ask).to_string(), "0.06444");
    assert_eq!(sonnet().most(&Ask { cache_marked: true, ..ask }).to_string(), "0.06519");
    assert_eq!(sonnet().most(&Ask { cache_marked: true, cache_1h: true, ..ask }).to_string(), "0.06744");
    let affordable = |dollars: &str| affordable_of(&sonnet(), &ask, Money::parse(dollars).unwrap());
    assert_eq!(affordable("1"), Some(4_096));
    assert_eq!(affordable("0.018"), Some(1_000));
    assert_eq!(affordable("0.017999999"), Some(999));
    assert_eq!((affordable("0.003"), affordable("0.002999999")), (Some(0), None));
    let free = Pricing::of(prices(&[(Unit::Input, "3")]));
    assert_eq!(affordable_of(&free, &ask, Money::parse("0.003").unwrap()), Some(4_096));
    assert_eq!(affordable_of(&Pricing::default(), &ask, Money::ZERO), Some(4_096));
    assert_eq!(affordable_of(&Pricing::default(), &ask, Money(-1)), None, "free is not less than nothing");
}

/// A number from 0 upwards of any size, for the tests alone: digits to the base 2^32, the lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Big(Vec<u32>);

impl Big {
    fn of(mut number: u128) -> Self {
        let mut digits = Vec::new();
        while number > 0 {
            digits.push(number as u32);
            number >>= 32;
        }
        Self(digits)
    }

    fn plus(&self, other: &Self) -> Self {
        let (mut digits, mut carry) = (Vec::new(), 0_u64);
        for place in 0..self.0.len().max(other.0.len()) {
            carry += u64::from(*self.0.get(place).unwrap_or(&0)) + u64::from(*other.0.get(place).unwrap_or(&0));
            digits.push(carry as u32);
            carry >>= 32;
        }
        digits.push(carry as u32);
        Self(digits).trimmed()
    }

    fn times(&self, other: &Self) -> Self {
        let mut digits = vec![0_u32; self.0.len() + other.0.len() + 1];
        for (first, one) in self.0.iter().enumerate() {
            let mut carry = 0_u64;
            for (second, two) in other.0.iter().enumerate() {
                carry += u64::from(digits[first + second]) + u64::from(*one) * u64::from(*two);
                digits[first + second] = carry as u32;
                carry >>= 32;
            }
            digits[first + other.0.len()] = carry as u32;
        }
        Self(digits).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn at_most(&self, other: &Self) -> bool {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())).is_le()
    }
}

/// The exact cost as a fraction, by the words of the rules and not by the code above: each unit's own price is looked
/// up by name and multiplied with its own factors.
fn exact(pricing: &Pricing, usage: &Usage, terms: &Terms<'_>) -> (Big, Big) {
    let prompt = [usage.input, usage.cache_read, usage.cache_write, usage.cache_write_1h];
    let prompt = prompt.into_iter().map(u128::from).sum::<u128>().min(u128::from(u64::MAX)) as u64;
    let mut sheet: BTreeMap<&str, i64> = BTreeMap::new();
    let lay = |sheet: &mut BTreeMap<&str, i64>, set: &Prices| {
        for unit in Unit::ALL {
            if let Some(price) = set.get(unit) {
                sheet.insert(unit.as_str(), price.0);
            }
        }
    };
    let lay_above = |sheet: &mut BTreeMap<&str, i64>, above: &[(u64, Prices)]| {
        let mut sorted: Vec<_> = above.iter().collect();
        sorted.sort_by_key(|(longest, _)| *longest);
        if let Some((_, set)) = sorted.iter().rfind(|(longest, _)| prompt > *longest) {
            lay(sheet, set);
        }
    };
    lay(&mut sheet, &pricing.base);
    let mut times = 1_000_000;
    let tier = pricing.tiers.iter().find(|(name, _)| Some(&**name) == terms.tier).map(|(_, tier)| tier);
    if let Some(Tier::Set { prices, above }) = tier {
        lay(&mut sheet, prices);
        lay_above(&mut sheet, above);
    } else {
        lay_above(&mut sheet, &pricing.above);
        for entry in &pricing.overrides {
            let time = terms.now.0.rem_euclid(86_400_000);
            let in_window = entry.window.is_none_or(|window| {
                let length = (i64::from(window.end) - i64::from(window.start)).rem_euclid(86_400_000);
                let length = if length == 0 { 86_400_000 } else { length };
                (time - i64::from(window.start)).rem_euclid(86_400_000) < length
            });
            if in_window && entry.min_prompt_tokens.is_none_or(|least| prompt >= least) {
                lay(&mut sheet, &entry.prices);
            }
        }
        if let Some(Tier::Times(factor)) = tier {
            times = factor.millionths();
        }
    }
    let geo =
        pricing.geo.iter().find(|(name, _)| Some(&**name) == terms.geo).map_or(1_000_000, |(_, geo)| geo.millionths());
    let rest = 1_000_000 - pricing.discount.map_or(0, Factor::millionths);

    let first = |names: &[&str]| names.iter().find_map(|name| sheet.get(name)).copied().unwrap_or(0) as u128;
    let thinking = usage.thinking.min(usage.output);
    let drawn = usage.output_image.min(usage.output - thinking);
    let spoken = usage.output_audio.min(usage.output - thinking - drawn);
    let seen = usage.input_image.min(usage.input);
    let heard = usage.input_audio.min(usage.input - seen);
    let mut tokens: Vec<(u128, u64)> = Vec::new();
    match usage.billed_input {
        Some(billed) => tokens.push((first(&["input"]), billed.min(prompt))),
        None => tokens.extend([
            (first(&["input"]), usage.input - seen - heard),
            (first(&["input_image", "input"]), seen),
            (first(&["input_audio", "input"]), heard),
            (first(&["cache_read", "input"]), usage.cache_read),
            (first(&["cache_write", "input"]), usage.cache_write),
            (first(&["cache_write_1h", "cache_write", "input"]), usage.cache_write_1h),
        ]),
    }
    match usage.billed_output {
        Some(billed) => tokens.push((first(&["output"]), billed.min(usage.output))),
        None => tokens.extend([
            (first(&["output"]), usage.output - thinking - drawn - spoken),
            (first(&["reasoning", "output"]), thinking),
            (first(&["output_image", "output"]), drawn),
            (first(&["output_audio", "output"]), spoken),
        ]),
    }
    let pieces = [
        (first(&["image"]), usage.images),
        (first(&["image_out"]), usage.images_out),
        (first(&["request"]), usage.search_units.max(1)),
        (first(&["web_search"]), usage.web_searches),
        (first(&["container"]), usage.containers),
        (first(&["character"]), usage.characters),
    ];
    // Everything over 10^24 × 3 600 000.
    let product = |numbers: &[u128]| numbers.iter().fold(Big::of(1), |all, number| all.times(&Big::of(*number)));
    let (times, geo, rest) = (u128::from(times), u128::from(geo), u128::from(rest));
    let mut sum = Big::of(0);
    for (price, count) in tokens {
        sum = sum.plus(&product(&[price, u128::from(count), times, geo, rest, 3_600_000]));
    }
    for (price, count) in pieces {
        sum = sum.plus(&product(&[price, u128::from(count), 1_000_000_000_000, rest, 3_600_000]));
    }
    let ran = u128::from(usage.code_exec_seconds) * 1_000;
    sum = sum.plus(&product(&[first(&["code_exec_hour"]), ran, 1_000_000_000_000, rest]));
    let heard = u128::from(usage.audio_ms);
    sum = sum.plus(&product(&[first(&["audio_hour"]), heard, 1_000_000_000_000, rest]));
    (sum, product(&[1_000_000_000_000, 1_000_000_000_000, 3_600_000]))
}

/// Whether the amount is the fraction, rounded half up: at most half a nano-dollar from it. Or it is the largest there is,
/// and the fraction is more.
fn is_rounded(amount: Money, (sum, whole): &(Big, Big)) -> bool {
    let amount = Big::of(u128::try_from(amount.0).unwrap());
    let (twice, said) = (sum.times(&Big::of(2)), amount.times(whole).times(&Big::of(2)));
    let is_cut = amount == Big::of(i64::MAX as u128) && said.at_most(&twice);
    let (half_more, next) = (twice.plus(whole), said.plus(&whole.times(&Big::of(2))));
    is_cut || (said.at_most(&half_more) && !next.at_most(&half_more))
}

#[test]
fn the_reference_knows_half_a_nano_dollar() {
    for (sum, amounts) in [(4, [true, false]), (5, [false, true]), (14, [false, true]), (15, [false, false])] {
        let fraction = (Big::of(sum), Big::of(10));
        assert_eq!([0, 1].map(|nanos| is_rounded(Money(nanos), &fraction)), amounts, "{sum} tenths");
    }
}

fn any_price() -> impl Strategy<Value = Price> {
    prop_oneof![
        // Few of the largest: a sum that is cut proves little.
        40 => Just(Price(0)),
        120 => (0..100_000_i64).prop_map(|milli| Price(milli * MILLION)),
        80 => (0..100_000_000_000_i64).prop_map(Price),
        1 => (0..=i64::MAX).prop_map(Price),
    ]
}

fn any_prices(named: f64) -> impl Strategy<Value = Prices> {
    prop::collection::vec(prop::option::weighted(named, any_price()), Unit::ALL.len())
        .prop_map(|list| Unit::ALL.into_iter().zip(list).filter_map(|(unit, price)| Some((unit, price?))).collect())
}

fn any_factor() -> impl Strategy<Value = Factor> {
    prop_oneof![Just(500_000), Just(1_100_000), Just(2_000_000), 0..10_000_000_u64, 0..=Factor::LARGEST.millionths()]
        .prop_map(|millionths| Factor::new(millionths).unwrap())
}

fn any_above() -> impl Strategy<Value = Vec<(u64, Prices)>> {
    prop::collection::vec((0..2_000_u64, any_prices(0.3)), 0..3)
}

fn any_pricing() -> impl Strategy<Value = Pricing> {
    let tier = prop_oneof![
        any_factor().prop_map(Tier::Times),
        (any_prices(0.3), any_above()).prop_map(|(prices, above)| Tier::Set { prices, above }),
    ];
    let window = (0..Window::DAY, 0..Window::DAY).prop_map(|(start, end)| Window { start, end });
    let entry = (prop::option::of(0..2_000_u64), prop::option::of(window), any_prices(0.3))
        .prop_map(|(min_prompt_tokens, window, prices)| Override { min_prompt_tokens, window, prices });
    let discount = prop::option::of((0..=1_000_000_u64).prop_map(|millionths| Factor::new(millionths).unwrap()));
    (
        any_prices(0.7),
        any_above(),
        prop::collection::vec(tier, 0..3),
        prop::collection::vec(any_factor(), 0..3),
        prop::collection::vec(entry, 0..3),
        discount,
    )
        .prop_map(|(base, above, tiers, geo, overrides, discount)| Pricing {
            base,
            above,
            tiers: ["flex", "batch"].into_iter().map(Into::into).zip(tiers).collect(),
            geo: ["us", "eu"].into_iter().map(Into::into).zip(geo).collect(),
            overrides,
            discount,
        })
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![90 => Just(0), 180 => 0..1_500_u64, 90 => 0..2_000_000_u64, 1 => any::<u64>()]
}

fn any_usage() -> impl Strategy<Value = Usage> {
    let billed = || prop::option::weighted(0.1, any_count());
    (prop::collection::vec(any_count(), 18), billed(), billed()).prop_map(|(counts, billed_input, billed_output)| {
        Usage {
            input: counts[0],
            output: counts[1],
            cache_read: counts[2],
            cache_write: counts[3],
            cache_write_1h: counts[4],
            thinking: counts[5],
            input_image: counts[6],
            input_audio: counts[7],
            output_image: counts[8],
            output_audio: counts[9],
            images: counts[10],
            images_out: counts[11],
            web_searches: counts[12],
            web_fetches: 0,
            code_exec_seconds: counts[13],
            containers: counts[14],
            search_units: counts[15],
            characters: counts[16],
            audio_ms: counts[17],
            billed_input,
            billed_output,
        }
    })
}

fn any_terms() -> impl Strategy<Value = (Option<&'static str>, Option<&'static str>, Timestamp)> {
    let tier = prop_oneof![Just(None), Just(Some("flex")), Just(Some("batch")), Just(Some("other"))];
    let geo = prop_oneof![Just(None), Just(Some("us")), Just(Some("eu")), Just(Some("other"))];
    (tier, geo, (0..200_000_000_i64).prop_map(Timestamp))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn led_1_a_cost_is_the_exact_sum_rounded_once(pricing in any_pricing(), usage in any_usage(), (tier, geo, now) in any_terms()) {
        let terms = Terms { tier, geo, now };
        let cost = pricing.cost(&usage, &terms);
        prop_assert!(is_rounded(cost.total, &exact(&pricing, &usage, &terms)), "{:?}", cost);
        prop_assert!(cost.prompt >= Money::ZERO && cost.completion >= Money::ZERO);
        prop_assert!(cost.prompt <= cost.total && cost.completion <= cost.total);
    }

    #[test]
    fn led_7_nothing_within_the_bounds_costs_more_than_the_most(
        pricing in any_pricing(), usage in any_usage(), (tier, geo, now) in any_terms(), room in (0..3_000_u64, 0..3_000_u64),
        served in any::<bool>(),
    ) {
        let usage = Usage { web_searches: 0, code_exec_seconds: 0, containers: 0, ..usage };
        let ask = Ask {
            prompt: usage.prompt().saturating_add(room.0),
            output: usage.output.saturating_add(room.1),
            cache_marked: usage.cache_write > 0 || usage.cache_write_1h > 0,
            cache_1h: usage.cache_write_1h > 0,
            tier,
            images: usage.images,
            images_out: usage.images_out,
            search_units: usage.search_units,
            characters: usage.characters,
            audio_ms: usage.audio_ms,
            now,
        };
        // The tier that was asked for, or the usual one.
        let terms = Terms { tier: tier.filter(|_| served), geo, now };
        let (cost, most) = (pricing.cost(&usage, &terms).total, pricing.most(&ask));
        prop_assert!(cost <= most, "{} is more than {}", cost, most);
    }

    #[test]
    fn led_8_what_is_affordable_is_exact(
        pricing in any_pricing(), prompt in 0..3_000_u64, output in any_count(), cache in any::<(bool, bool)>(),
        (tier, _, now) in any_terms(), share in 0..1_200_i128,
    ) {
        let ask = Ask { prompt, output, cache_marked: cache.0, cache_1h: cache.1, tier, images: 1, images_out: 1, search_units: 2, characters: 3, audio_ms: 4, now };
        let available = Money((i128::from(pricing.most(&ask).0) * share / 1_000).min(i128::from(i64::MAX)) as i64);
        let most = |output| pricing.most(&Ask { output, ..ask });
        match affordable_of(&pricing, &ask, available) {
            None => prop_assert!(most(0) > available),
            Some(longest) => {
                prop_assert!(longest <= output && most(longest) <= available);
                prop_assert!(longest == output || most(longest + 1) > available);
            }
        }
    }
}
