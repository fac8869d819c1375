//! What answers cost, as it is written in the file.

use tidegate_core::{Factor, Money, Price, Timestamp, Usage};
use tidegate_gateway::snapshot::{Billing, UnknownPrice};
use tidegate_routing::Pricing;
use tidegate_routing::price::{Override, Prices, Terms, Tier, Unit, Window};

use super::*;

/// The prices of one endpoint of the file, of a provider without customs.
fn priced(pricing: &str) -> Pricing {
    let text = format!("{PROVIDER}{MODEL}[[models.endpoints]]\nprovider = \"mine\"\nmodel = \"m\"\n{pricing}\n");
    let (_folder, source) = source(&text, &[]);
    let snapshot = source.read().and_then(|checked| checked.snapshot(None, ADDRESS)).expect(pricing);
    let (model, _) = snapshot.catalogue.resolve("a/b").unwrap();
    model.endpoints[0].pricing.clone().unwrap()
}

#[test]
fn prices_are_read_as_they_are_written() {
    let base = priced("pricing = { input = 0.1, output = \"0.30\", request = 0.005 }").base;
    let prices = [Unit::Input, Unit::Output, Unit::CacheRead, Unit::Request].map(|unit| base.of(unit).0);
    assert_eq!(prices, [100_000_000, 300_000_000, 100_000_000, 5_000_000_000_000]);
    // More digits than a binary fraction holds: as one, the second would be rounded up.
    let base = priced("pricing = { input = 999999999.123456789, output = 0.12345678949999999999 }").base;
    assert_eq!([base.of(Unit::Input).0, base.of(Unit::Output).0], [999_999_999_123_456_789, 123_456_789]);
    let base = priced("[models.endpoints.pricing]\ninput = +1_000\noutput = 1e-3").base;
    assert_eq!([base.of(Unit::Input).0, base.of(Unit::Output).0], [1_000_000_000_000, 1_000_000]);
}

#[test]
fn every_unit_and_condition_can_be_priced() {
    let units: Vec<String> =
        Unit::ALL.iter().zip(1..).map(|(unit, dollars)| format!("{} = {dollars}", unit.as_str())).collect();
    let pricing = priced(&format!(
        "[models.endpoints.pricing]\n{}\ndiscount = 0.25\ngeo = {{ us = 1.1 }}\n\
         above = {{ 200k = {{ input = 4 }}, 400000 = {{ input = 8, web_search = 1 }} }}\n\
         tier = {{ batch = 0.5, fast = {{ input = 6, above = {{ 200k = {{ output = 9 }} }} }} }}\n\
         overrides = [{{ min_prompt_tokens = 1000, input = 5 }}, {{ utc_start = \"16:30\", utc_end = \"00:30\", output = 1 }}]",
        units.join("\n")
    ));
    for (unit, dollars) in Unit::ALL.into_iter().zip(1_i64..) {
        let per_million = if unit.is_by_million() { 1 } else { 1_000_000 };
        assert_eq!(pricing.base.get(unit), Some(Price(dollars * 1_000_000_000 * per_million)), "{unit:?}");
    }
    let set = |named: &[(Unit, i64)]| {
        let price = |(unit, dollars): &(Unit, i64)| (*unit, Price(dollars * 1_000_000_000));
        named.iter().map(price).collect::<Prices>()
    };
    let searches = (Unit::WebSearch, 1_000_000);
    assert_eq!(pricing.above, [(200_000, set(&[(Unit::Input, 4)])), (400_000, set(&[(Unit::Input, 8), searches]))]);
    let fast = Tier::Set { prices: set(&[(Unit::Input, 6)]), above: vec![(200_000, set(&[(Unit::Output, 9)]))] };
    assert_eq!(pricing.tiers, [("batch".into(), Tier::Times(Factor::parse("0.5").unwrap())), ("fast".into(), fast)]);
    assert_eq!(pricing.geo, [("us".into(), Factor::parse("1.1").unwrap())]);
    let night = Window { start: 59_400_000, end: 1_800_000 };
    let overrides = [
        Override { min_prompt_tokens: Some(1000), window: None, prices: set(&[(Unit::Input, 5)]) },
        Override { min_prompt_tokens: None, window: Some(night), prices: set(&[(Unit::Output, 1)]) },
    ];
    assert_eq!((&pricing.overrides[..], pricing.discount), (&overrides[..], Some(Factor::parse("0.25").unwrap())));
}

#[test]
fn a_mistake_in_a_price_is_named_with_file_line_and_key() {
    let cases = [
        ("input = -1\noutput = 1", 13, "pricing.input must not be negative"),
        ("input = 1\noutput = \"a lot\"", 14, "pricing.output is not a decimal number"),
        ("input = nan\noutput = 1", 13, "pricing.input is not a decimal number"),
        ("input = 1\noutput = inf", 14, "pricing.output is not a decimal number"),
        ("input = 1e10\noutput = 1", 13, "pricing.input must be at most 1000000000 dollars"),
        ("input = 1\noutput = 1\nrequest = 10000", 15, "pricing.request must be at most 9000 dollars each"),
        ("input = 1\noutput = true", 14, "pricing.output: invalid type: boolean `true`, expected a decimal number"),
        ("output = 1", 12, "pricing.input is needed; 0 is free"),
        ("input = 1\noutput = 1\ncache_raed = 1", 15, "pricing.cache_raed is not a setting; did you mean cache_read?"),
        ("input = 1\noutput = 1\n\nabove = { 1m = { input = 1 } }", 16, "pricing.above.1m is not a number of tokens"),
        (
            "input = 1\noutput = 1\nabove = { 200k = { input = -2 } }",
            15,
            "pricing.above.200k.input must not be negative",
        ),
        (
            "input = 1\noutput = 1\ntier = { prioritiy = 2 }",
            15,
            "pricing.tier.prioritiy is not a tier; did you mean priority?",
        ),
        ("input = 1\noutput = 1\ntier = { fast = -2 }", 15, "pricing.tier.fast must not be negative"),
        ("input = 1\noutput = 1\ntier = { fast = 1001 }", 15, "pricing.tier.fast must be at most 1000"),
        (
            "input = 1\noutput = 1\ntier = { fast = { inptu = 1 } }",
            15,
            "pricing.tier.fast.inptu is not a setting; did you mean input?",
        ),
        ("input = 1\noutput = 1\ngeo = { us = 1.0000001 }", 15, "pricing.geo.us must have at most six decimal places"),
        ("input = 1\noutput = 1\ndiscount = 1.5", 15, "pricing.discount must be at most 1"),
        (
            "input = 1\noutput = 1\noverrides = [\n  { utc_start = \"25:00\", utc_end = \"01:00\" }]",
            16,
            "pricing.overrides[0].utc_start is not a time of day",
        ),
        (
            "input = 1\noutput = 1\noverrides = [{ utc_start = \"01:00\" }]",
            15,
            "pricing.overrides[0].utc_end is needed with utc_start",
        ),
        ("input = 1\noutput = 1\noverrides = [{ min_prompt_tokens = -1 }]", 15, "min_prompt_tokens"),
    ];
    for (pricing, line, expected) in cases {
        let text = format!(
            "{PROVIDER}{MODEL}[[models.endpoints]]\nprovider = \"mine\"\nmodel = \"m\"\n[models.endpoints.pricing]\n{pricing}\n"
        );
        let problem = problem(&text);
        let place = format!("tidegate.toml, line {line}: ");
        assert!(
            problem.contains(&place) && problem.contains(expected),
            "{pricing:?}\n  says {problem:?}\n  not {place}{expected}"
        );
    }
    for (text, line, expected) in [
        ("[pricing]\nunknown = \"maybe\"", 2, "pricing.unknown: \"maybe\" is none of refuse_limited, refuse, allow"),
        ("[billing]\nheadroom = -1", 2, "billing.headroom must not be negative"),
        ("[billing]\nenabled = true\nbyok_fee_percent = 101", 3, "billing.byok_fee_percent must be at most 100"),
        ("[billing]\nbyok_fee_percent = 0.00001", 2, "billing.byok_fee_percent must have at most four decimal places"),
        ("[billing]\nenabled = 1", 2, "billing.enabled"),
    ] {
        let problem = problem(text);
        let place = format!("tidegate.toml, line {line}: ");
        assert!(
            problem.contains(&place) && problem.contains(expected),
            "{text:?}\n  says {problem:?}\n  not {place}{expected}"
        );
    }
}

#[test]
fn what_a_variable_says_is_named_by_it() {
    let (_folder, source) = source("[billing]\nheadroom = 1\n", &[("TIDEGATE__BILLING__HEADROOM", "-1")]);
    let error = format!("{:#}", source.read().err().unwrap());
    assert_eq!(error, "environment variable TIDEGATE__BILLING__HEADROOM: billing.headroom must not be negative");
    let (_folder, exact) = self::source("", &[("TIDEGATE__BILLING__HEADROOM", "0.12345678949999999999")]);
    assert_eq!(exact.read().unwrap().settings.billing.headroom, Money(123_456_789));
}

#[test]
fn who_pays_and_who_may_hang_up_is_read() {
    let read = |text: &str| {
        let (_folder, source) = source(text, &[]);
        source.read().unwrap().snapshot(None, ADDRESS).unwrap()
    };
    let usual = read("").settings;
    assert_eq!((usual.unknown_price, usual.billing), (UnknownPrice::RefuseLimited, Billing::default()));
    let said =
        read("[pricing]\nunknown = \"allow\"\n[billing]\nenabled = true\nheadroom = 12.5\nbyok_fee_percent = 5.5\n");
    let billing = Billing { enabled: true, headroom: Money(12_500_000_000), byok_fee: 55_000 };
    assert_eq!((said.settings.unknown_price, said.settings.billing), (UnknownPrice::Allow, billing));
    let snapshot = read(
        "[[providers]]\nslug = \"bedrock\"\napi_key = \"k\"\n[[providers]]\nslug = \"groq\"\nsupports_cancel = true\n\
         [[providers]]\nslug = \"xai\"\nsupports_cancel = false\n",
    );
    let expected = [
        ("amazon-bedrock", false),
        ("groq", true),
        ("xai", false),
        ("google-ai-studio", false),
        ("google-vertex", false),
        ("mistral", false),
        ("perplexity", false),
        ("sambanova", false),
        ("nebius", false),
        ("anthropic", true),
        ("openai", true),
    ];
    for (slug, supports_cancel) in expected {
        let mut ways = snapshot.upstreams.iter().filter(|upstream| *upstream.slug == *slug).peekable();
        assert!(ways.peek().is_some() && ways.all(|way| way.supports_cancel == supports_cancel), "{slug}");
    }
}

#[test]
fn a_cache_without_a_price_costs_what_its_vendor_usually_takes() {
    let of = |provider: &str, names: &str, pricing: &str| {
        let (model, upstream) = names.split_once(" as ").unwrap_or((names, "m"));
        let text = format!(
            "[[models]]\nid = \"{model}\"\ncontext_length = 10\nmax_output_tokens = 5\n\
             [[models.endpoints]]\nprovider = \"{provider}\"\nmodel = \"{upstream}\"\npricing = {{ input = 1, output = 1{pricing} }}\n"
        );
        let (_folder, source) = source(&text, &[]);
        let snapshot = source.read().unwrap().snapshot(None, ADDRESS).unwrap();
        let (model, _) = snapshot.catalogue.resolve(model).unwrap();
        let base = model.endpoints[0].pricing.clone().unwrap().base;
        [Unit::CacheRead, Unit::CacheWrite, Unit::CacheWrite1h].map(|unit| base.of(unit).0 / 1_000_000)
    };
    for (provider, model, pricing, expected) in [
        ("anthropic", "anthropic/x", "", [100, 1_250, 2_000]),
        ("anthropic", "anthropic/x", ", cache_read = 0.05, cache_write = 1.5", [50, 1_500, 2_000]),
        ("amazon-bedrock", "anthropic/x", "", [100, 1_250, 2_000]),
        ("amazon-bedrock", "amazon/x", "", [1_000, 1_000, 1_000]),
        ("amazon-bedrock", "our/x as us.anthropic.claude-sonnet-4-5-20250929-v1:0", "", [100, 1_250, 2_000]),
        ("google-vertex", "our/x as claude-sonnet-4-5@20250929", "", [100, 1_250, 2_000]),
        ("openrouter", "our/x as anthropic/claude-sonnet-4.5", "", [100, 1_250, 2_000]),
        ("amazon-bedrock", "our/x as us.amazon.nova-pro-v1:0", "", [1_000, 1_000, 1_000]),
        ("openai", "openai/x", ", cache_read = 0.5", [500, 1_250, 1_250]),
        ("openai", "openai/x", ", cache_write = 3", [100, 3_000, 3_000]),
        ("google-ai-studio", "google/x", "", [100, 1_000, 1_000]),
        ("groq", "openai/x", "", [500, 1_000, 1_000]),
        ("z-ai", "z-ai/x", "", [200, 1_000, 1_000]),
        ("xai", "x-ai/x", ", cache_read = 0", [0, 1_000, 1_000]),
    ] {
        assert_eq!(of(provider, model, pricing), expected, "{provider} {model} {pricing}");
    }
}

/// Published: OpenAI's priority about twice, its flex half of the usual; Anthropic's fast mode twice.
#[test]
fn a_faster_tier_without_a_price_costs_what_its_vendor_usually_takes() {
    let of = |provider: &str, more: &str| {
        let text = format!(
            "[[models]]\nid = \"a/x\"\ncontext_length = 10\nmax_output_tokens = 5\n\
             [[models.endpoints]]\nprovider = \"{provider}\"\nmodel = \"m\"\n{more}\n"
        );
        let (_folder, source) = source(&text, &[]);
        let snapshot = source.read().unwrap().snapshot(None, ADDRESS).unwrap();
        let (model, _) = snapshot.catalogue.resolve("a/x").unwrap();
        let pricing = model.endpoints[0].pricing.clone().unwrap();
        let usage = Usage { input: 1_000, output: 100, ..Usage::default() };
        ["standard", "flex", "priority", "fast"].map(|tier| {
            let terms = Terms { tier: Some(tier), geo: None, now: Timestamp(0) };
            pricing.cost(&usage, &terms).total.0
        })
    };
    // A thousand tokens at a dollar and a hundred at ten dollars per million are two thousandths of a dollar.
    let plain = "pricing = { input = 1, output = 10 }";
    assert_eq!(of("openai", plain), [2_000_000, 1_000_000, 4_000_000, 2_000_000]);
    assert_eq!(of("anthropic", plain), [2_000_000, 2_000_000, 2_000_000, 4_000_000]);
    assert_eq!(of("groq", plain), [2_000_000; 4]);
    let own = "pricing = { input = 1, output = 10, tier = { priority = 1.75 } }";
    assert_eq!(of("openai", own), [2_000_000, 1_000_000, 3_500_000, 2_000_000]);
    // These are the prices of the tier already.
    assert_eq!(of("openai", &format!("tier = \"priority\"\n{plain}")), [2_000_000; 4]);
}

/// As the vendors publish them: Google's, xAI's and OpenAI's long prompts, and thinking that is priced by itself.
#[test]
fn the_built_in_catalogue_knows_long_prompts_and_reasoning() {
    let (_folder, source) = source("", &[("GEMINI_API_KEY", "k"), ("XAI_API_KEY", "k"), ("OPENAI_API_KEY", "k")]);
    let snapshot = source.read().unwrap().snapshot(None, ADDRESS).unwrap();
    let pricing = |id: &str| {
        let (model, _) = snapshot.catalogue.resolve(id).unwrap_or_else(|| panic!("{id}"));
        model.endpoints[0].pricing.clone().unwrap()
    };
    let dollars = |text: &str| Some(Price::parse(text).unwrap());
    let pro = pricing("google/gemini-2.5-pro");
    let (longest, long) = &pro.above[0];
    assert_eq!((*longest, long.get(Unit::Input), long.get(Unit::Output)), (200_000, dollars("2.5"), dollars("15")));
    assert_eq!(pricing("google/gemini-2.5-flash").base.get(Unit::Reasoning), dollars("2.5"));
    // Twice for what goes in, one and a half times for what comes out.
    let (longest, long) = &pricing("openai/gpt-5.4").above[0];
    assert_eq!((*longest, long.get(Unit::Input), long.get(Unit::Output)), (272_000, dollars("5"), dollars("22.5")));
    assert!(snapshot.catalogue.models().iter().all(|model| {
        model
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.pricing.as_ref())
            .all(|pricing| pricing.above.iter().all(|(_, long)| long.of(Unit::Input) > pricing.base.of(Unit::Input)))
    }));
}
