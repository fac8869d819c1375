use std::borrow::Cow;
use std::sync::Arc;

use tidegate_core::KeyHash;
use tidegate_core::money::{Factor, Price};

use super::explain::{Outcome, explain};
use super::*;
use crate::byok::Caller;
use crate::catalogue::{DataPolicy, Tier};
use crate::guard::Zdr;
use crate::live::Percentiles;
use crate::preferences::{MaxPrice, Threshold};
use crate::price::{Pricing, Unit};
use crate::set::{Modality, Parameter, Quantization, Quantizations, Searcher, Variant};

pub(super) fn dollars(amount: f64) -> Price {
    Price((amount * 1e9).round() as i64)
}

/// The same price for input and output, so that it is also the price by which endpoints are compared.
pub(super) fn priced(amount: f64) -> Option<Pricing> {
    let units = [(Unit::Input, dollars(amount)), (Unit::Output, dollars(amount))];
    Some(Pricing::of(units.into_iter().collect()))
}

fn endpoint(tag: &str, price: f64) -> Endpoint {
    let provider = tag.split('/').next().unwrap_or(tag);
    Endpoint { tag: tag.into(), pricing: priced(price), ..Endpoint::new("a/m", provider) }
}

fn model(id: &str, endpoints: Vec<Endpoint>) -> Model {
    let own = |endpoint: Endpoint| Arc::new(Endpoint { model: id.into(), ..endpoint });
    Model::new(id, endpoints.into_iter().map(own).collect())
}

/// Three providers at one, two and three dollars.
fn three() -> Catalogue {
    Catalogue::new(vec![model("a/m", vec![endpoint("p", 1.0), endpoint("q", 2.0), endpoint("r", 3.0)])], [])
}

pub(super) fn list(entries: &[&'static str]) -> Vec<Cow<'static, str>> {
    entries.iter().map(|entry| Cow::Borrowed(*entry)).collect()
}

fn any() -> Preferences<'static> {
    Preferences::default()
}

/// Tags in the order of the attempts, or the error.
pub(super) fn tags(catalogue: &Catalogue, request: &Request<'_>) -> Result<Vec<String>, String> {
    let plan = plan(catalogue, request).map_err(|error| error.to_string())?;
    Ok(plan.attempts.iter().map(|attempt| attempt.endpoint.tag.to_string()).collect())
}

/// The tags for `a/m` as one text.
fn told(catalogue: &Catalogue, preferences: &Preferences<'_>, needs: Needs) -> String {
    let request = Request { needs, ..Request::new(&["a/m"], preferences) };
    tags(catalogue, &request).map_or_else(|error| error, |tags| tags.join(" "))
}

/// What live traffic says of some tags.
struct Known(Vec<(&'static str, Vital)>);

impl Live for Known {
    fn of(&self, endpoint: &Endpoint, credential: Option<&Credential>) -> Vital {
        let name = credential.map_or(&*endpoint.tag, |credential| &*credential.id);
        self.0.iter().find(|(known, _)| *known == name).map(|(_, vital)| *vital).unwrap_or_default()
    }
}

fn fast(throughput: f32, latency: f32) -> Vital {
    let of = |figure| Percentiles { p50: Some(figure), p75: Some(figure), p90: Some(figure), p99: Some(figure) };
    Vital { throughput: of(throughput), latency: of(latency), ..Vital::default() }
}

fn ill(group: Group) -> Vital {
    Vital { group, ..Vital::default() }
}

#[test]
fn models_come_in_the_order_of_the_request_and_each_once() {
    let models = vec![
        model("a/one", vec![endpoint("p", 2.0), endpoint("q", 1.0)]),
        model("a/two", vec![endpoint("p", 5.0)]),
        model("a/none", vec![]),
    ];
    let catalogue = Catalogue::new(models, []);
    let preferences = any();
    let story = |names: &[&str]| {
        let plan = plan(&catalogue, &Request::new(names, &preferences)).map_err(|error| error.to_string())?;
        let told =
            |a: &Attempt| format!("{} {} {} {}", a.endpoint.model, a.endpoint.provider, a.strategy.as_str(), a.model);
        Ok::<_, String>((plan.attempts.iter().map(told).collect::<Vec<_>>(), plan.total))
    };
    let expected = ["a/two p direct 0", "a/one q fallback 1", "a/one p fallback 1"];
    assert_eq!(story(&["a/two", "a/one", "a/two"]).unwrap(), (expected.map(str::to_owned).to_vec(), 3));
    assert_eq!(story(&["one"]).unwrap().0, ["a/one q alias 0", "a/one p alias 0"]);
    assert_eq!(story(&["a/none", "a/two"]).unwrap().0, ["a/two p fallback 1"]);
    for (names, error) in [
        (&["a/nix"][..], "a/nix is not a valid model ID"),
        (&["a/two", "a/nix"], "a/nix is not a valid model ID"),
        (&["a/one:quick"], "a/one:quick is not a valid model ID"),
        (&["default"], "default is not a valid model ID"),
        (&["a/none"], "No endpoints found for a/none"),
        (&["~a/one-latest"], "No endpoints found for ~a/one-latest"),
        (&[], " is not a valid model ID"),
    ] {
        assert_eq!(story(names).unwrap_err(), error, "{names:?}");
    }
    let request = Request { default: Some("a/two"), ..Request::new(&["default"], &preferences) };
    assert_eq!(plan(&catalogue, &request).unwrap().attempts[0].strategy, Strategy::Alias);
}

#[test]
fn lists_of_providers_decide_who_serves_and_in_which_order() {
    let nobody = "No allowed providers for a/m. Served by: p, q, r. Allowed: ";
    let with = |order: &[&'static str], only: &[&'static str], ignore: &[&'static str], allow_fallbacks: bool| {
        let (order, only, ignore) = (list(order), list(only), list(ignore));
        told(&three(), &Preferences { order, only, ignore, allow_fallbacks, ..any() }, Needs::default())
    };
    for (order, only, ignore, allow_fallbacks, expected) in [
        (&[][..], &[][..], &[][..], true, "p q r"),
        (&["r"], &[], &[], true, "r p q"),
        (&["r", "q"], &[], &[], true, "r q p"),
        (&["nobody", "Q"], &[], &[], true, "q p r"),
        (&["r", "q"], &[], &[], false, "r q"),
        (&["r", "nobody"], &[], &[], false, "r"),
        (&["nobody"], &[], &[], true, "p q r"),
        (&[], &["r", "q"], &[], true, "q r"),
        (&["r"], &["r", "q"], &[], true, "r q"),
        (&[], &[], &["p"], true, "q r"),
        (&[], &["p", "q"], &["p"], true, "q"),
        (&[], &[], &[], false, "p"),
        (&[], &["q", "r"], &[], false, "q"),
        (&["nobody"], &[], &[], false, &format!("{nobody}nobody")),
        (&[], &["x", "y"], &[], true, &format!("{nobody}x, y")),
        (&[], &["p"], &["p"], true, &format!("{nobody}none")),
        (&[], &[], &["p", "q", "r"], true, &format!("{nobody}none")),
    ] {
        assert_eq!(with(order, only, ignore, allow_fallbacks), expected, "{order:?} {only:?} {ignore:?}");
    }
}

#[test]
fn regions_and_variants_of_a_provider_belong_to_it() {
    let endpoints = vec![endpoint("v/east", 2.0), endpoint("v/west", 1.0), endpoint("o", 3.0)];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    for (order, expected) in [
        (&["v"][..], "v/west v/east o"),
        (&["v/east"], "v/east v/west o"),
        (&["o", "v/east"], "o v/east v/west"),
        (&["v", "v/east"], "v/west v/east o"),
    ] {
        assert_eq!(told(&catalogue, &Preferences { order: list(order), ..any() }, Needs::default()), expected);
    }
    let only = |entry| Preferences { only: list(&[entry]), ..any() };
    assert_eq!(told(&catalogue, &only("v"), Needs::default()), "v/west v/east");
    assert_eq!(told(&catalogue, &only("V/East"), Needs::default()), "v/east");
}

#[test]
fn what_a_provider_does_with_data_can_be_ruled_out() {
    let with =
        |tag, price, retains, trains| Endpoint { policy: DataPolicy { retains, trains }, ..endpoint(tag, price) };
    let endpoints = vec![
        with("none", 1.0, false, false),
        with("keeps", 2.0, true, false),
        with("learns", 3.0, false, true),
        endpoint("silent", 4.0),
    ];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    for (zdr, deny_collection, expected) in [
        (false, false, "none keeps learns silent"),
        (true, false, "none learns"),
        (false, true, "none"),
        (true, true, "none"),
    ] {
        let preferences = Preferences { zdr, deny_collection, ..any() };
        assert_eq!(told(&catalogue, &preferences, Needs::default()), expected, "{zdr} {deny_collection}");
    }
    let silent = Catalogue::new(vec![model("a/m", vec![endpoint("silent", 1.0)])], []);
    for (preferences, error, excluded) in [
        (
            Preferences { zdr: true, ..any() },
            "No endpoints for a/m match your data policy (zero data retention)",
            "data_policy:zdr",
        ),
        (
            Preferences { deny_collection: true, ..any() },
            "No endpoints for a/m match your data policy (no training)",
            "data_policy:training",
        ),
    ] {
        let failure = plan(&silent, &Request::new(&["a/m"], &preferences)).unwrap_err();
        assert_eq!((failure.to_string().as_str(), &failure.excluded_by[..]), (error, &[excluded][..]));
        assert_eq!((failure.code, failure.code.status()), (Code::PrivacyRestricted, 404));
    }
}

#[test]
fn quantization_distillation_and_modalities_are_hard_wishes() {
    let with = |tag, quantization| Endpoint { quantization, ..endpoint(tag, 1.0) };
    let endpoints = vec![with("f", Quantization::Fp8), with("b", Quantization::Bf16), endpoint("u", 1.0)];
    let distilled = Model { distillable: true, ..model("a/d", vec![endpoint("p", 1.0)]) };
    let catalogue = Catalogue::new(vec![model("a/m", endpoints), distilled], []);
    let wants = |levels: &[Quantization]| Preferences { quantizations: levels.iter().copied().collect(), ..any() };
    assert_eq!(told(&catalogue, &wants(&[Quantization::Fp8]), Needs::default()), "f");
    assert_eq!(told(&catalogue, &wants(&[Quantization::Unknown, Quantization::Bf16]), Needs::default()), "b u");
    let failure = plan(&catalogue, &Request::new(&["a/m"], &wants(&[Quantization::Int4]))).unwrap_err();
    assert_eq!(failure.to_string(), "No endpoints for a/m satisfy quantizations");
    let constraint = Constraint { field: "quantizations", detail: "available: fp8, bf16, unknown".to_owned() };
    assert_eq!((failure.constraint, failure.excluded_by), (Some(constraint), vec!["quantization"]));

    let distillable = Preferences { distillable: true, ..any() };
    let error = "No endpoints for a/m satisfy enforce_distillable_text";
    assert_eq!(told(&catalogue, &distillable, Needs::default()), error);
    assert_eq!(tags(&catalogue, &Request::new(&["a/d"], &distillable)).unwrap(), ["p"]);

    let text = Modalities::NONE.with(Modality::Text);
    let seeing = Endpoint { modalities: text.with(Modality::Image), ..endpoint("sees", 2.0) };
    let blind = Endpoint { modalities: text, ..endpoint("blind", 1.0) };
    let catalogue = Catalogue::new(vec![model("a/m", vec![blind, seeing])], []);
    let shows = |modality| Needs { modalities: text.with(modality), ..Needs::default() };
    assert_eq!(told(&catalogue, &any(), shows(Modality::Text)), "blind sees");
    assert_eq!(told(&catalogue, &any(), shows(Modality::Image)), "sees");
    assert_eq!(told(&catalogue, &any(), shows(Modality::File)), "No endpoints for a/m satisfy input_modalities");
}

#[test]
fn a_prompt_must_fit_and_a_limit_is_lowered_to_the_largest() {
    let with = |tag, price, context_length, max_output_tokens| Endpoint {
        context_length,
        max_output_tokens,
        ..endpoint(tag, price)
    };
    let endpoints = vec![with("s", 1.0, 1_000, 100), with("l", 2.0, 2_000, 400), with("w", 3.0, 2_000, 300)];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let needs = |input_tokens, max_tokens| Needs { input_tokens, max_tokens, ..Needs::default() };
    for (input, output, expected) in [
        (999, None, "s l w"),
        (1_000, None, "l w"),
        (900, Some(100), "s l w"),
        (901, Some(100), "l w"),
        (1_000, Some(300), "l w"),
        (1_000, Some(301), "l"),
        // Nobody writes so much: those who write most.
        (10, Some(5_000), "l"),
        (1_600, Some(5_000), "l"),
        (1_999, Some(1), "l w"),
        (2_000, None, "prompt is too long: 2001 tokens > 2000 maximum"),
        (1_900, Some(200), "prompt is too long: 2100 tokens > 2000 maximum"),
    ] {
        assert_eq!(told(&catalogue, &any(), needs(input, output)), expected, "{input} {output:?}");
    }
    let preferences = any();
    let request = Request { needs: needs(5_000, None), ..Request::new(&["a/m"], &preferences) };
    let failure = plan(&catalogue, &request).unwrap_err();
    assert_eq!((failure.code, failure.code.status(), failure.tokens), (Code::ContextLength, 400, Some((5_001, 2_000))));
    let short = Request { needs: needs(1_500, None), ..request };
    assert_eq!(plan(&catalogue, &short).unwrap().too_short, 1);
    // Another model of the list that is empty for another reason: no prompt was too long for everybody.
    let other = Endpoint { context_length: 0, policy: DataPolicy::default(), ..endpoint("o", 1.0) };
    let fitting = Endpoint { policy: DataPolicy { retains: false, trains: false }, ..with("s", 1.0, 10, 10) };
    let models = vec![model("a/m", vec![fitting]), model("a/o", vec![other])];
    let preferences = Preferences { zdr: true, ..any() };
    let mixed = Request { needs: needs(50, None), ..Request::new(&["a/m", "a/o"], &preferences) };
    let failure = plan(&Catalogue::new(models, []), &mixed).unwrap_err();
    assert_eq!(failure.code, Code::ConstraintFiltered);
    assert_eq!(failure.excluded_by, ["context_length", "data_policy:zdr"]);
    assert_eq!(failure.to_string(), "No endpoints for a/m satisfy context_length");
    assert_eq!(failure.available.len(), 2);
}

#[test]
fn parameters_are_required_only_where_the_caller_says_so_and_some_always() {
    let without = |tag, price, lacks: &[Parameter]| Endpoint {
        parameters: lacks.iter().fold(Parameters::ALL, |all, lack| all.without(*lack)),
        ..endpoint(tag, price)
    };
    let native = [Parameter::McpServers, Parameter::Container];
    let endpoints = vec![
        without(
            "plain",
            1.0,
            &[Parameter::TopK, Parameter::StructuredOutputs, Parameter::Verbosity, native[0], native[1]],
        ),
        without("most", 2.0, &[Parameter::Verbosity, Parameter::Tools]),
        endpoint("all", 3.0),
    ];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let needs = |words: &[Parameter]| Needs { parameters: words.iter().copied().collect(), ..Needs::default() };
    let strict = Preferences { require_parameters: true, ..any() };
    assert_eq!(told(&catalogue, &any(), needs(&[Parameter::TopK])), "plain most all");
    assert_eq!(told(&catalogue, &strict, needs(&[Parameter::TopK])), "most all");
    assert_eq!(told(&catalogue, &any(), needs(&[Parameter::McpServers])), "most all");
    assert_eq!(
        told(&catalogue, &any(), needs(&[Parameter::Verbosity])),
        "all",
        "some take it, so the others do not serve"
    );
    assert_eq!(told(&catalogue, &any(), Needs { structured: true, ..Needs::default() }), "most all");
    assert_eq!(told(&catalogue, &any(), Needs { has_tools: true, ..Needs::default() }), "plain all");

    let plain =
        || without("plain", 1.0, &[Parameter::TopK, Parameter::Verbosity, Parameter::Tools, native[0], native[1]]);
    let catalogue = Catalogue::new(vec![model("a/m", vec![plain()])], []);
    assert_eq!(told(&catalogue, &any(), needs(&[Parameter::Verbosity])), "plain", "nobody takes it: all stay");
    let tools = Needs { has_tools: true, ..Needs::default() };
    let unsupported = "Invalid request: container is not supported by any endpoint of a/m";
    for (preferences, needs, status, error, excluded) in [
        (
            &strict,
            needs(&[Parameter::TopK]),
            404,
            "No endpoints for a/m satisfy require_parameters",
            "require_parameters",
        ),
        (&any(), needs(&[Parameter::Container]), 400, unsupported, "require_parameters"),
        (&any(), tools, 404, "No endpoints for a/m satisfy tools", "require_parameters"),
    ] {
        let failure = plan(&catalogue, &Request { needs, ..Request::new(&["a/m"], preferences) }).unwrap_err();
        assert_eq!((failure.code.status(), failure.to_string().as_str()), (status, error));
        assert_eq!(failure.excluded_by, [excluded]);
    }
}

#[test]
fn who_cannot_search_as_it_is_asked_does_not_serve() {
    let searching = |name: &str, price: f64, searcher: Searcher| Endpoint { searcher, ..endpoint(name, price) };
    let endpoints = vec![
        searching("plain", 1.0, Searcher::None),
        searching("google", 2.0, Searcher::Google),
        Endpoint { parameters: Parameters::NONE, ..searching("sonar", 3.0, Searcher::Itself) },
    ];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let needs = |searchers: Option<&[Searcher]>, only_searches: bool| Needs {
        searchers: searchers.map(|list| list.iter().copied().collect()),
        only_searches,
        has_tools: true,
        ..Needs::default()
    };
    assert_eq!(told(&catalogue, &any(), needs(None, false)), "plain google");
    assert_eq!(told(&catalogue, &any(), needs(None, true)), "plain google sonar", "it is told of no tool");
    let natives = [Searcher::Google, Searcher::Itself];
    assert_eq!(told(&catalogue, &any(), needs(Some(&natives), true)), "google sonar");
    assert_eq!(told(&catalogue, &any(), needs(Some(&natives), false)), "google");
    let nobody = needs(Some(&[Searcher::Anthropic]), false);
    let failure = plan(&catalogue, &Request { needs: nobody, ..Request::new(&["a/m"], &any()) }).unwrap_err();
    let message = "Invalid request: no endpoint of a/m can search the web as tools want it";
    assert_eq!((failure.code.status(), failure.to_string().as_str()), (400, message));
    assert_eq!(failure.excluded_by, ["require_parameters"]);
}

#[test]
fn a_price_may_be_limited_by_unit() {
    let units =
        |units: &[(Unit, f64)]| Some(Pricing::of(units.iter().map(|(unit, price)| (*unit, dollars(*price))).collect()));
    let with = |tag, pricing| Endpoint { pricing, ..endpoint(tag, 0.0) };
    let endpoints = vec![
        with("cheap", units(&[(Unit::Input, 1.0), (Unit::Output, 4.0)])),
        with("dear", units(&[(Unit::Input, 3.0), (Unit::Output, 15.0), (Unit::Image, 2_000.0)])),
        with("per-call", units(&[(Unit::Input, 1.0), (Unit::Output, 1.0), (Unit::Request, 10_000.0)])),
        with("unknown", None),
    ];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let of = |limit: MaxPrice| told(&catalogue, &Preferences { max_price: limit, ..any() }, Needs::default());
    let none = MaxPrice::default();
    for (limit, expected) in [
        // Blended: 1.75, 6, 1 + 0.01 × 1000 and what nobody knows.
        (none, "cheap dear per-call unknown"),
        (MaxPrice { prompt: Some(dollars(1.0)), ..none }, "cheap per-call"),
        (MaxPrice { prompt: Some(dollars(3.0)), ..none }, "cheap dear per-call"),
        (MaxPrice { completion: Some(dollars(4.0)), ..none }, "cheap per-call"),
        (MaxPrice { request: Some(dollars(9_999.0)), ..none }, "cheap dear"),
        (MaxPrice { image: Some(dollars(1_999.0)), ..none }, "cheap per-call"),
        (MaxPrice { audio: Some(dollars(0.0)), ..none }, "cheap dear per-call"),
        (MaxPrice { prompt: Some(dollars(3.0)), completion: Some(dollars(2.0)), ..none }, "per-call"),
        (MaxPrice { prompt: Some(dollars(0.5)), ..none }, "No endpoints for a/m satisfy max_price"),
    ] {
        assert_eq!(of(limit), expected, "{limit:?}");
    }
    let preferences = Preferences { max_price: MaxPrice { prompt: Some(dollars(0.5)), ..none }, ..any() };
    let failure = plan(&catalogue, &Request::new(&["a/m"], &preferences)).unwrap_err();
    assert_eq!((failure.excluded_by, failure.total, failure.available.len()), (vec!["max_price"], 4, 4));
    assert_eq!(failure.constraint.unwrap().detail, "cheapest: prompt 1, completion 1");
    let affected: Vec<&str> = failure.affected_providers.iter().map(|slug| &**slug).collect();
    assert_eq!(affected, ["cheap", "dear", "per-call", "unknown"]);
}

#[test]
fn sorting_follows_the_figure_and_puts_those_without_one_behind() {
    let live = Known(vec![("p", fast(10.0, 3.0)), ("q", fast(30.0, 1.0)), ("ill", ill(Group::Degraded))]);
    let endpoints =
        [endpoint("p", 3.0), endpoint("q", 2.0), endpoint("new", 1.0), endpoint("ill", 0.5), endpoint("self", 9.0)];
    let own = Endpoint { shadow_price: Some(dollars(0.1)), ..endpoints[4].clone() };
    let catalogue = Catalogue::new(vec![model("a/m", [&endpoints[..4], &[own]].concat())], []);
    for (sort, expected) in [
        (Sort::Price, "self ill new q p"),
        (Sort::Throughput, "q p self new ill"),
        (Sort::Latency, "q p self new ill"),
        (Sort::Exacto, "q p self new ill"),
    ] {
        let preferences = Preferences { sort: Some(sort), ..any() };
        for draw in [0.0, 0.5, 0.999] {
            let request = Request { live: &live, draw, ..Request::new(&["a/m"], &preferences) };
            assert_eq!(tags(&catalogue, &request).unwrap().join(" "), expected, "{sort:?}");
        }
        let preferences = any();
        let policy = Policy { default_sort: Some(sort), ..Policy::default() };
        let request = Request { live: &live, policy, ..Request::new(&["a/m"], &preferences) };
        assert_eq!(tags(&catalogue, &request).unwrap().join(" "), expected, "{sort:?} for all");
    }
}

#[test]
fn health_comes_before_price_and_what_is_out_comes_last() {
    let preferences = any();
    let order = |vitals: Vec<(&'static str, Vital)>, preferences: &Preferences<'_>| {
        let live = Known(vitals);
        tags(&three(), &Request { live: &live, ..Request::new(&["a/m"], preferences) }).unwrap().join(" ")
    };
    let cools = Vital { cools: true, ..Vital::default() };
    let out = |failed_at| Vital { failed_at, ..ill(Group::Outage) };
    let (by_price, listed) =
        (Preferences { sort: Some(Sort::Price), ..any() }, Preferences { order: list(&["p"]), ..any() });
    for (vitals, preferences, expected) in [
        (vec![("p", ill(Group::Degraded))], &preferences, "q r p"),
        (vec![("p", ill(Group::Down)), ("q", ill(Group::Degraded))], &preferences, "r q p"),
        (vec![("p", ill(Group::Outage)), ("r", ill(Group::Down))], &preferences, "q r p"),
        (vec![("p", cools)], &preferences, "q r p"),
        (vec![("p", cools), ("q", out(1))], &preferences, "r p q"),
        (vec![("p", out(3)), ("q", out(1)), ("r", out(2))], &preferences, "q r p"),
        (vec![("p", ill(Group::Degraded))], &by_price, "p q r"),
        (vec![("p", ill(Group::Down))], &by_price, "p q r"),
        (vec![("p", ill(Group::Outage))], &by_price, "q r p"),
        (vec![("p", ill(Group::Degraded))], &listed, "p q r"),
        (vec![("p", ill(Group::Outage))], &listed, "q r p"),
    ] {
        assert_eq!(order(vitals.clone(), preferences), expected, "{vitals:?}");
    }
    // At the same price the more reliable comes first, then the alphabet decides.
    let same = Catalogue::new(vec![model("a/m", vec![endpoint("c", 1.0), endpoint("b", 1.0), endpoint("d", 1.0)])], []);
    let live = Known(vec![("c", Vital { uptime: 0.99, ..Vital::default() })]);
    let request = Request { live: &live, ..Request::new(&["a/m"], &preferences) };
    assert_eq!(tags(&same, &request).unwrap(), ["b", "d", "c"]);
}

#[test]
fn thresholds_put_back_and_never_remove() {
    let figures = |p50, p90| Percentiles { p50: Some(p50), p90: Some(p90), ..Percentiles::default() };
    let slow = Vital { throughput: figures(20.0, 5.0), latency: figures(4.0, 9.0), ..Vital::default() };
    let quick = Vital { throughput: figures(60.0, 40.0), latency: figures(1.0, 2.0), ..Vital::default() };
    let live = Known(vec![("p", slow), ("r", quick), ("one", slow), ("two", quick)]);
    let threshold = |p50, p90| Threshold { p50, p90, ..Threshold::default() };
    let none = Threshold::default();
    let order = |names: &[&str], min_throughput, max_latency| {
        let models = vec![
            model("a/m", vec![endpoint("p", 1.0), endpoint("q", 2.0), endpoint("r", 3.0)]),
            model("a/one", vec![endpoint("one", 1.0)]),
            model("a/two", vec![endpoint("two", 1.0)]),
        ];
        let preferences = Preferences { min_throughput, max_latency, ..any() };
        let request = Request { live: &live, ..Request::new(names, &preferences) };
        tags(&Catalogue::new(models, []), &request).unwrap().join(" ")
    };
    assert_eq!(order(&["a/m"], none, none), "p q r");
    assert_eq!(order(&["a/m"], threshold(Some(50.0), None), none), "r q p");
    assert_eq!(order(&["a/m"], threshold(Some(20.0), None), none), "p r q");
    assert_eq!(order(&["a/m"], threshold(Some(20.0), Some(6.0)), none), "r q p");
    assert_eq!(order(&["a/m"], none, threshold(Some(3.0), None)), "r q p");
    assert_eq!(order(&["a/m"], none, threshold(None, Some(9.0))), "p r q");
    assert_eq!(order(&["a/m"], threshold(Some(10.0), None), threshold(Some(2.0), None)), "r q p");
    assert_eq!(order(&["a/m"], threshold(Some(100.0), None), none), "q p r");
    // A model that holds the threshold overtakes one that does not.
    assert_eq!(order(&["a/one", "a/two"], none, threshold(Some(3.0), None)), "two one");
    assert_eq!(order(&["a/m", "a/two"], none, threshold(Some(3.0), None)), "r q two p");
}

#[test]
fn a_partition_of_none_is_one_list_over_all_models() {
    let models = vec![
        model("a/m", vec![endpoint("p", 3.0), endpoint("q", 5.0)]),
        model("a/n", vec![endpoint("p", 4.0), endpoint("r", 1.0)]),
    ];
    let catalogue = Catalogue::new(models, []);
    let story = |partition, sort| {
        let preferences = Preferences { partition, sort, ..any() };
        let plan = plan(&catalogue, &Request::new(&["a/m", "a/n"], &preferences)).unwrap();
        let told = plan.attempts.iter().map(|a| format!("{}{}", a.endpoint.tag, a.model));
        told.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(story(Partition::Model, Some(Sort::Price)), "p0 q0 r1 p1");
    assert_eq!(story(Partition::None, Some(Sort::Price)), "r1 p0 p1 q0");
    assert_eq!(story(Partition::None, None), "r1 p0 p1 q0");
}

#[test]
fn variants_sort_filter_and_admit_tiers() {
    let tier = |tag, price, tier| Endpoint { tier, ..endpoint(tag, price) };
    let long = Endpoint { context_length: 9, ..endpoint("long", 4.0) };
    let endpoints = vec![
        Endpoint { context_length: 5, ..endpoint("o", 2.0) },
        Endpoint { context_length: 5, ..tier("o/priority", 4.0, Tier::Priority) },
        Endpoint { context_length: 5, ..tier("o/flex", 1.0, Tier::Flex) },
        long,
        Endpoint { context_length: 5, ..endpoint("free", 0.0) },
    ];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let live = Known(vec![("o", fast(50.0, 1.0)), ("o/priority", fast(90.0, 1.0)), ("long", fast(60.0, 1.0))]);
    let order = |name: &str, preferences: Preferences<'_>, service_tier| {
        let needs = Needs { service_tier, ..Needs::default() };
        let names = [name];
        let request = Request { live: &live, needs, ..Request::new(&names, &preferences) };
        tags(&catalogue, &request).map_or_else(|error| error, |tags| tags.join(" "))
    };
    let auto = ServiceTier::Auto;
    let named = |entry| Preferences { only: list(&[entry]), ..any() };
    let ordered = |entries: &[&'static str]| Preferences { order: list(entries), ..any() };
    let sorted = |sort| Preferences { sort: Some(sort), ..any() };
    for (name, preferences, service, expected) in [
        ("a/m", any(), auto, "free o long"),
        ("a/m:nitro", any(), auto, "o/priority long o free"),
        ("a/m:nitro", any(), ServiceTier::Default, "long o free"),
        ("a/m:nitro", ordered(&["o"]), auto, "o free long"),
        ("a/m:nitro", sorted(Sort::Price), auto, "free o long o/priority"),
        ("a/m:floor", any(), auto, "free o/flex o long"),
        ("a/m:floor", any(), ServiceTier::Default, "free o long"),
        ("a/m:exacto", any(), auto, "long o free"),
        ("a/m:exacto", sorted(Sort::Price), auto, "free o long"),
        ("a/m:free", any(), auto, "free"),
        ("a/m:extended", any(), auto, "long"),
        ("a/m:thinking:online", any(), auto, "free o long"),
        ("a/m:free", named("long"), auto, "No allowed providers for a/m:free. Served by: free. Allowed: long"),
        ("a/m", any(), ServiceTier::Priority, "o/priority long o free"),
        ("a/m", any(), ServiceTier::Flex, "o/flex"),
        ("a/m", named("long"), ServiceTier::Flex, "long"),
        ("a/m", named("o/priority"), auto, "o/priority"),
        ("a/m", named("o"), auto, "o"),
        ("a/m", named("o"), ServiceTier::Priority, "o/priority o"),
        ("a/m", ordered(&["o/flex"]), auto, "o/flex free o long"),
        ("a/m", ordered(&["o", "o/priority"]), auto, "o o/priority free long"),
        ("a/m", sorted(Sort::Price), auto, "free o long"),
        ("a/m", Preferences { ignore: list(&["o"]), ..any() }, ServiceTier::Priority, "long free"),
    ] {
        assert_eq!(order(name, preferences.clone(), service), expected, "{name} {service:?} {preferences:?}");
    }
    let paid = Catalogue::new(vec![model("a/m", vec![endpoint("p", 1.0)])], []);
    let preferences = any();
    let failure = plan(&paid, &Request::new(&["a/m:free"], &preferences)).unwrap_err();
    assert_eq!((failure.code, failure.to_string().as_str()), (Code::FreeVariantEnded, "a/m:free is no longer free"));
    assert_eq!(failure.fallback_models, ["a/m"]);
}

#[test]
fn requests_with_tools_put_those_back_who_call_them_badly() {
    let said = |share| Vital { tool_success: Some(share), ..Vital::default() };
    let live =
        Known(vec![("p", said(0.5)), ("q", said(0.97)), ("r", said(0.99)), ("s", said(0.98)), ("t", said(0.96))]);
    let tags_of = ["p", "q", "r", "s", "t", "new"];
    let endpoints = tags_of.iter().zip(1..).map(|(tag, price)| endpoint(tag, f64::from(price))).collect();
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let order = |name: &str, has_tools, preferences: Preferences<'_>| {
        let needs = Needs { has_tools, ..Needs::default() };
        let names = [name];
        let request = Request { live: &live, needs, ..Request::new(&names, &preferences) };
        tags(&catalogue, &request).unwrap().join(" ")
    };
    // Good ones, then those of whom too little is known, then the one far below the others.
    assert_eq!(order("a/m", true, any()), "q r s t new p");
    assert_eq!(order("a/m", false, any()), "p q r s t new");
    assert_eq!(order("a/m:exacto", false, any()), "q r s t new p");
    assert_eq!(order("a/m:floor", true, any()), "p q r s t new");
    assert_eq!(order("a/m", true, Preferences { sort: Some(Sort::Price), ..any() }), "p q r s t new");
    assert_eq!(order("a/m", true, Preferences { order: list(&["t"]), ..any() }), "t p q r s new");
    // Three with figures are too few to compare.
    let few = Known(vec![("p", said(0.5)), ("q", said(0.97)), ("r", said(0.99))]);
    let preferences = any();
    let needs = Needs { has_tools: true, ..Needs::default() };
    let request = Request { live: &few, needs, ..Request::new(&["a/m"], &preferences) };
    assert_eq!(tags(&catalogue, &request).unwrap().join(" "), "p q r s t new");
}

fn credential(id: &str, provider: &str) -> Arc<Credential> {
    let destination = Some("https://nowhere.invalid".into());
    Arc::new(Credential { destination, ..Credential::new(id, provider) })
}

#[test]
fn what_an_owner_declares_of_a_credential_counts_for_it_alone() {
    let declared = |id: &str, provider: &str, zdr| {
        Arc::new(Credential { declared_zdr: Some(zdr), ..(*credential(id, provider)).clone() })
    };
    let forgets = DataPolicy { retains: false, trains: false };
    let endpoints = vec![endpoint("p", 1.0), Endpoint { policy: forgets, ..endpoint("q", 2.0) }];
    let catalogue = Catalogue::new(vec![model("a/m", endpoints)], []);
    let own = [declared("p1", "p", true), credential("p2", "p"), declared("q1", "q", false), credential("q2", "q")];
    let strict = Preferences { zdr: true, ..any() };
    let expected = ["p0 p1", "q0 q2", "q0 -"];
    assert_eq!(with_own(&catalogue, &own, Request::new(&["a/m"], &strict)).unwrap(), expected);
    // The same where a guardrail asks for it.
    let (plain, guard) = (any(), Guard { zdr: Zdr { other: true, ..Zdr::default() }, ..Guard::default() });
    let request = Request { guard: Some(&guard), ..Request::new(&["a/m"], &plain) };
    assert_eq!(with_own(&catalogue, &own, request).unwrap(), expected);
    // The same for who may not collect anything.
    let keeps = DataPolicy { retains: true, trains: false };
    let endpoints =
        vec![Endpoint { policy: keeps, ..endpoint("p", 1.0) }, Endpoint { policy: forgets, ..endpoint("q", 2.0) }];
    let collected = Catalogue::new(vec![model("a/m", endpoints)], []);
    let deny = Preferences { deny_collection: true, ..any() };
    assert_eq!(with_own(&collected, &own, Request::new(&["a/m"], &deny)).unwrap(), expected);
    // Nobody asks for it: all serve.
    let all = with_own(&catalogue, &own, Request::new(&["a/m"], &plain)).unwrap();
    assert_eq!(all, ["p0 p1", "p0 p2", "q0 q1", "q0 q2", "p0 -", "q0 -"]);
    // Only one that keeps something is left.
    let kept = [declared("q1", "q", false)];
    assert_eq!(with_own(&catalogue, &kept, Request::new(&["a/m"], &strict)).unwrap(), ["q0 -"]);
}

fn with_own(
    catalogue: &Catalogue,
    credentials: &[Arc<Credential>],
    request: Request<'_>,
) -> Result<Vec<String>, String> {
    let key = KeyHash::of(b"key");
    let own = Own { caller: Caller { key: &key, user: None }, credentials, resting: &[] };
    let plan = plan(catalogue, &Request { own: Some(own), ..request }).map_err(|error| error.to_string())?;
    let told = |attempt: &Attempt| {
        format!("{}{} {}", attempt.endpoint.tag, attempt.model, attempt.credential.as_ref().map_or("-", |own| &own.id))
    };
    Ok(plan.attempts.iter().map(told).collect())
}

#[test]
fn own_credentials_come_first_in_the_order_of_the_endpoints() {
    let (own, preferences) = ([credential("q1", "q"), credential("q2", "q")], any());
    let request = Request::new(&["a/m"], &preferences);
    assert_eq!(with_own(&three(), &own, request).unwrap(), ["q0 q1", "q0 q2", "p0 -", "q0 -", "r0 -"]);
    let listed = Preferences { order: list(&["r", "q"]), ..any() };
    let request = Request::new(&["a/m"], &listed);
    assert_eq!(with_own(&three(), &own, request).unwrap(), ["q0 q1", "q0 q2", "r0 -", "q0 -", "p0 -"]);
    let alone = Preferences { allow_fallbacks: false, ..any() };
    assert_eq!(with_own(&three(), &own, Request::new(&["a/m"], &alone)).unwrap(), ["q0 q1", "q0 q2", "q0 -"]);
    // One that is out is tried after everything else; one that must wait, too.
    let live = Known(vec![("q1", ill(Group::Outage)), ("q2", Vital { cools: true, ..Vital::default() })]);
    let request = Request { live: &live, ..Request::new(&["a/m"], &preferences) };
    assert_eq!(with_own(&three(), &own, request).unwrap(), ["p0 -", "q0 -", "r0 -", "q0 q2", "q0 q1"]);
    // Data policies count before credentials are looked at.
    let strict = Preferences { zdr: true, ..any() };
    assert!(with_own(&three(), &own, Request::new(&["a/m"], &strict)).is_err());

    let models = vec![model("a/m", vec![endpoint("p", 1.0)]), model("a/n", vec![endpoint("q", 2.0)])];
    let catalogue = Catalogue::new(models, []);
    let request = Request::new(&["a/m", "a/n"], &preferences);
    assert_eq!(with_own(&catalogue, &own[..1], request).unwrap(), ["p0 -", "q1 q1", "q1 -"]);
    let together = Preferences { partition: Partition::None, ..any() };
    let request = Request::new(&["a/m", "a/n"], &together);
    assert_eq!(with_own(&catalogue, &own[..1], request).unwrap(), ["q1 q1", "p0 -", "q1 -"]);
    // Without the operator's key there is only the caller's.
    let vendor = vec![model("a/m", vec![Endpoint { shared: false, ..endpoint("q", 1.0) }])];
    let vendor = Catalogue::new(vendor, []);
    let request = Request::new(&["a/m"], &preferences);
    assert_eq!(with_own(&vendor, &own[..1], request).unwrap(), ["q0 q1"]);
    assert_eq!(with_own(&vendor, &[], request).unwrap_err(), "No endpoints found for a/m");
    assert_eq!(plan(&vendor, &request).unwrap_err().total, 0);
}

#[test]
fn what_was_begun_is_gone_on_with_where_it_was_begun_whatever_is_preferred() {
    let own = [credential("q1", "q"), credential("q2", "q")];
    let home = |tag, credential| Some(Home { model: "a/m", at: Sticky { tag, credential } });
    let listed = Preferences { order: list(&["q", "p"]), ..any() };
    let of = |home| Request { home, ..Request::new(&["a/m"], &listed) };
    assert_eq!(tags(&three(), &of(home("r", None))).unwrap(), ["r", "q", "p"]);
    assert_eq!(tags(&three(), &of(home("gone", None))).unwrap(), ["q", "p", "r"]);
    assert_eq!(with_own(&three(), &own, of(home("q", Some("q2")))).unwrap()[0], "q0 q2");
    assert_eq!(with_own(&three(), &own, of(home("q", None))).unwrap()[0], "q0 -", "also before the caller's own");
    let other = Some(Home { model: "a/other", at: Sticky { tag: "r", credential: None } });
    assert_eq!(tags(&three(), &of(other)).unwrap(), ["q", "p", "r"]);
    let live = Known(vec![("r", ill(Group::Outage))]);
    assert_eq!(tags(&three(), &Request { live: &live, ..of(home("r", None)) }).unwrap(), ["q", "p", "r"]);
}

#[test]
fn a_conversation_stays_where_it_was_unless_the_caller_gives_the_order() {
    let (own, preferences) = ([credential("q1", "q"), credential("q2", "q")], any());
    let sticky = |tag, credential| Some(Sticky { tag, credential });
    let stuck = |sticky| Request { sticky, ..Request::new(&["a/m"], &preferences) };
    assert_eq!(tags(&three(), &stuck(sticky("r", None))).unwrap(), ["r", "p", "q"]);
    assert_eq!(tags(&three(), &stuck(sticky("gone", None))).unwrap(), ["p", "q", "r"]);
    let of = |sticky| with_own(&three(), &own, stuck(sticky)).unwrap();
    assert_eq!(of(sticky("q", Some("q2"))), ["q0 q2", "q0 q1", "p0 -", "q0 -", "r0 -"]);
    assert_eq!(of(sticky("r", None)), ["q0 q1", "q0 q2", "r0 -", "p0 -", "q0 -"]);
    let listed = Preferences { order: list(&["q"]), ..any() };
    let request = Request { sticky: sticky("r", None), ..Request::new(&["a/m"], &listed) };
    assert_eq!(tags(&three(), &request).unwrap(), ["q", "p", "r"]);
    for vital in [ill(Group::Outage), Vital { cools: true, ..Vital::default() }] {
        let live = Known(vec![("r", vital)]);
        let request = Request { live: &live, ..stuck(sticky("r", None)) };
        assert_eq!(tags(&three(), &request).unwrap(), ["p", "q", "r"]);
    }
    let ignored = Preferences { ignore: list(&["r"]), ..any() };
    let request = Request { sticky: sticky("r", None), ..Request::new(&["a/m"], &ignored) };
    assert_eq!(tags(&three(), &request).unwrap(), ["p", "q"], "who was taken out does not come back");
}

#[test]
fn a_price_is_blended_discounted_and_never_nothing() {
    let preferences = any();
    let request = Request::new(&["a/m"], &preferences);
    let half = Pricing { discount: Factor::new(500_000), ..priced(4.0).unwrap() };
    let split = Pricing::of([(Unit::Input, dollars(1.0)), (Unit::Output, dollars(9.0))].into_iter().collect());
    for (endpoint, expected) in [
        (endpoint("p", 4.0), 4.0),
        (Endpoint { pricing: Some(half), ..endpoint("p", 0.0) }, 2.0),
        (Endpoint { pricing: Some(split), ..endpoint("p", 0.0) }, 3.0),
        (endpoint("p", 0.0), LEAST_PRICE),
        (Endpoint { shadow_price: Some(dollars(7.0)), ..endpoint("p", 4.0) }, 7.0),
        (Endpoint { pricing: None, ..endpoint("p", 0.0) }, UNPRICED),
    ] {
        assert_eq!(order::price(&endpoint, &request), expected);
    }
    // Only in comparisons.
    let catalogue = Catalogue::new(vec![model("a/m", vec![endpoint("p", 0.0)])], []);
    assert_eq!(explain(&catalogue, &request).verdicts[0].price, 0.0);
}

#[test]
fn an_explanation_tells_the_plan_that_is_made() {
    let catalogue = Catalogue::new(
        vec![model("a/m", vec![endpoint("p", 1.0), endpoint("q", 2.0), endpoint("r", 3.0), endpoint("s", 4.0)])],
        [],
    );
    let preferences = Preferences { ignore: list(&["q"]), allow_fallbacks: false, ..any() };
    let live = Known(vec![("s", ill(Group::Degraded))]);
    let request = Request { live: &live, draw: 0.95, ..Request::new(&["a/m"], &preferences) };
    let explained = explain(&catalogue, &request);
    let told: Vec<_> = explained.verdicts.iter().map(|v| (&*v.tag, v.outcome, v.price, v.group)).collect();
    // One dollar is drawn nine times as often as three; a degraded one is not drawn at all.
    let expected = [
        ("r", Outcome::Place(0), 3.0, Group::Stable),
        ("q", Outcome::Removed(Filter::Providers), 2.0, Group::Stable),
        ("p", Outcome::NotListed, 1.0, Group::Stable),
        ("s", Outcome::NotListed, 4.0, Group::Degraded),
    ];
    assert_eq!(told, expected);
    let shares: Vec<f64> = explained.verdicts.iter().map(|verdict| verdict.probability).collect();
    assert!((shares[0] - 0.1).abs() < 1e-12 && (shares[2] - 0.9).abs() < 1e-12, "{shares:?}");
    assert_eq!((shares[1], shares[3]), (0.0, 0.0));
    let plan = explained.plan.unwrap();
    assert_eq!(plan.attempts.len(), 1);
    assert_eq!(plan.attempts[0].endpoint.tag, super::plan(&catalogue, &request).unwrap().attempts[0].endpoint.tag);
    assert!(Variant::ALL.len() == 7 && Quantizations::NONE.is_empty());
}
