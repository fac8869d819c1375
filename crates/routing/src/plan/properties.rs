//! What holds for any catalogue and any wishes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::Strategy;

use super::explain::{Outcome, explain};
use super::tests::{list, priced, tags};
use super::*;
use crate::draw::Draws;
use crate::preferences;
use crate::set::Quantization;

const PROVIDERS: [&str; 5] = ["p", "q", "r", "s", "t"];

fn endpoints() -> impl Strategy<Value = Vec<Endpoint>> {
    let one = (0..PROVIDERS.len(), prop::option::of(0_u32..50), 0..3_usize, any::<bool>(), 1_u64..5);
    let one = one.prop_map(|(provider, price, quantization, retains, length)| Endpoint {
        pricing: price.and_then(|price| priced(f64::from(price) / 4.0)),
        quantization: [Quantization::Fp8, Quantization::Bf16, Quantization::Unknown][quantization],
        policy: crate::DataPolicy { retains, trains: retains },
        context_length: length * 1_000,
        ..Endpoint::new("a/m", PROVIDERS[provider])
    });
    // A provider offers a model once here, so that a tag names an endpoint.
    prop::collection::vec(one, 0..7).prop_map(|mut all: Vec<Endpoint>| {
        let mut seen = BTreeSet::new();
        all.retain(|endpoint| seen.insert(endpoint.tag.clone()));
        all
    })
}

fn providers() -> impl Strategy<Value = Vec<Cow<'static, str>>> {
    prop::collection::vec(0..PROVIDERS.len() + 1, 0..3)
        .prop_map(|places| places.iter().map(|place| Cow::Borrowed(*PROVIDERS.get(*place).unwrap_or(&"x"))).collect())
}

fn wishes() -> impl Strategy<Value = Preferences<'static>> {
    let lists = (providers(), providers(), providers(), any::<bool>());
    let rest = (any::<bool>(), any::<bool>(), 0..5_usize, any::<bool>());
    (lists, rest).prop_map(|((order, only, ignore, allow_fallbacks), (zdr, coarse, sort, together))| Preferences {
        order,
        only,
        ignore,
        allow_fallbacks,
        zdr,
        quantizations: if coarse { [Quantization::Fp8].into_iter().collect() } else { Default::default() },
        sort: [None, Some(Sort::Price), Some(Sort::Throughput), Some(Sort::Latency), Some(Sort::Exacto)][sort],
        partition: if together { Partition::None } else { Partition::Model },
        ..Preferences::default()
    })
}

fn catalogue(models: &[(&str, &[Endpoint])]) -> Catalogue {
    let one = |(id, endpoints): &(&str, &[Endpoint])| {
        let own = |endpoint: &Endpoint| Arc::new(Endpoint { model: (*id).into(), ..endpoint.clone() });
        Model::new(*id, endpoints.iter().map(own).collect())
    };
    Catalogue::new(models.iter().map(one).collect(), [])
}

fn is_listed(list: &[Cow<'_, str>], endpoint: &Endpoint) -> bool {
    list.iter().any(|entry| preferences::names(entry, endpoint).is_some())
}

/// Who may serve, said once more and as plainly as can be.
fn may_serve(endpoint: &Endpoint, wishes: &Preferences<'_>, input_tokens: u64) -> bool {
    (wishes.only.is_empty() || is_listed(&wishes.only, endpoint))
        && !is_listed(&wishes.ignore, endpoint)
        && (wishes.allow_fallbacks || wishes.order.is_empty() || is_listed(&wishes.order, endpoint))
        && !(wishes.zdr && endpoint.policy.retains)
        && (wishes.quantizations.is_empty() || wishes.quantizations.contains(endpoint.quantization))
        && input_tokens < endpoint.context_length
}

proptest! {
    #[test]
    fn whoever_may_serve_is_in_the_plan_and_nobody_else(
        endpoints in endpoints(), wishes in wishes(), draw in 0.0..1.0_f64, input in 0_u64..6_000,
    ) {
        let catalogue = catalogue(&[("a/m", &endpoints)]);
        let needs = Needs { input_tokens: input, ..Needs::default() };
        let request = Request { needs, draw, ..Request::new(&["a/m"], &wishes) };
        let expected: BTreeSet<String> = endpoints
            .iter()
            .filter(|endpoint| may_serve(endpoint, &wishes, input))
            .map(|endpoint| endpoint.tag.to_string())
            .collect();
        match tags(&catalogue, &request) {
            Err(_) => prop_assert!(expected.is_empty(), "{expected:?} could serve"),
            Ok(tags) if !wishes.allow_fallbacks && wishes.order.is_empty() => {
                prop_assert!(tags.len() == 1 && expected.contains(&tags[0]));
            }
            Ok(tags) => {
                prop_assert_eq!(tags.len(), expected.len(), "each once");
                prop_assert_eq!(tags.into_iter().collect::<BTreeSet<_>>(), expected);
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_plan_and_the_same_explanation(
        endpoints in endpoints(), wishes in wishes(), draw in 0.0..1.0_f64,
    ) {
        let catalogue = catalogue(&[("a/m", &endpoints), ("a/n", &endpoints)]);
        let request = Request { draw, ..Request::new(&["a/m", "a/n"], &wishes) };
        let once = tags(&catalogue, &request);
        prop_assert_eq!(&once, &tags(&catalogue, &request));
        let explained = explain(&catalogue, &request);
        let placed = explained.verdicts.iter().filter(|verdict| matches!(verdict.outcome, Outcome::Place(_)));
        let placed: Vec<String> = placed.map(|verdict| verdict.tag.to_string()).collect();
        prop_assert_eq!(placed, once.unwrap_or_default());
        prop_assert_eq!(explained.verdicts.len(), 2 * endpoints.len(), "everybody is spoken of");
    }

    #[test]
    fn the_callers_order_is_kept(
        endpoints in endpoints(), order in providers(), allow_fallbacks: bool, draw in 0.0..1.0_f64,
    ) {
        prop_assume!(!order.is_empty());
        let wishes = Preferences { order, allow_fallbacks, ..Preferences::default() };
        let catalogue = catalogue(&[("a/m", &endpoints)]);
        let Ok(plan) = plan(&catalogue, &Request { draw, ..Request::new(&["a/m"], &wishes) }) else { return Ok(()) };
        let place = |attempt: &Attempt| wishes.order.iter().position(|entry| **entry == *attempt.endpoint.tag);
        let places: Vec<usize> = plan.attempts.iter().map(|attempt| place(attempt).unwrap_or(usize::MAX)).collect();
        prop_assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn one_list_is_sorted_as_one_and_several_lists_keep_models_apart(
        one in endpoints(), two in endpoints(), draw in 0.0..1.0_f64,
    ) {
        let catalogue = catalogue(&[("a/m", &one), ("a/n", &two)]);
        for partition in [Partition::Model, Partition::None] {
            let wishes = Preferences { partition, sort: Some(Sort::Price), ..Preferences::default() };
            let request = Request { draw, ..Request::new(&["a/m", "a/n"], &wishes) };
            let Ok(plan) = plan(&catalogue, &request) else { continue };
            let prices: Vec<f64> = plan.attempts.iter().map(|a| order::price(&a.endpoint, &request)).collect();
            prop_assert_eq!(plan.attempts.len(), one.len() + two.len());
            match partition {
                Partition::None => prop_assert!(prices.is_sorted()),
                Partition::Model => {
                    prop_assert!(plan.attempts.is_sorted_by_key(|attempt| attempt.model));
                    prop_assert!(prices[..one.len()].is_sorted() && prices[one.len()..].is_sorted());
                }
            }
        }
    }
}

/// How often each is drawn in 10 000 draws.
fn drawn(catalogue: &Catalogue, wishes: &Preferences<'_>) -> Vec<(String, f64)> {
    const DRAWS: u32 = 10_000;
    let draws = Draws::new(1);
    let mut counts: Vec<(String, f64)> = Vec::new();
    for _ in 0..DRAWS {
        let request = Request { draw: draws.next(), ..Request::new(&["a/m"], wishes) };
        let first = tags(catalogue, &request).unwrap().swap_remove(0);
        match counts.iter_mut().find(|(tag, _)| *tag == first) {
            Some((_, count)) => *count += 1.0 / f64::from(DRAWS),
            None => counts.push((first, 1.0 / f64::from(DRAWS))),
        }
    }
    counts.sort_by(|one, other| one.0.cmp(&other.0));
    counts
}

#[test]
fn the_cheap_are_drawn_more_often_by_the_square_of_their_price() {
    let with = |tag: &str, price| Endpoint { pricing: price, ..Endpoint::new("a/m", tag) };
    let plain = Preferences::default();
    // 1, 1/4 and 1/9 of 49/36.
    let three = [with("p", priced(1.0)), with("q", priced(2.0)), with("r", priced(3.0))];
    // Four deviations of a share s of 10 000 draws are 4 × √(s(1 − s)/10 000), at most 0.02.
    let near = |found: &[(String, f64)], expected: &[(&str, f64)]| {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((tag, share), (name, wanted)) in found.iter().zip(expected) {
            assert!(tag == name && (share - wanted).abs() < 0.02, "{found:?} {expected:?}");
        }
    };
    near(&drawn(&catalogue(&[("a/m", &three)]), &plain), &[("p", 36.0 / 49.0), ("q", 9.0 / 49.0), ("r", 4.0 / 49.0)]);
    let equal = [with("p", priced(5.0)), with("q", priced(5.0))];
    near(&drawn(&catalogue(&[("a/m", &equal)]), &plain), &[("p", 0.5), ("q", 0.5)]);
    let unknown = [with("p", None), with("q", None), with("r", None), with("s", None)];
    let quarter = [("p", 0.25), ("q", 0.25), ("r", 0.25), ("s", 0.25)];
    near(&drawn(&catalogue(&[("a/m", &unknown)]), &plain), &quarter);
    // What has no known price is behind everything that has one, and what is free before nearly everything.
    near(&drawn(&catalogue(&[("a/m", &[with("p", None), with("q", priced(90.0))])]), &plain), &[("q", 1.0)]);
    near(&drawn(&catalogue(&[("a/m", &[with("p", priced(1.0)), with("q", priced(0.0))])]), &plain), &[("q", 1.0)]);
    let sorted = Preferences { sort: Some(Sort::Price), ..Preferences::default() };
    near(&drawn(&catalogue(&[("a/m", &three)]), &sorted), &[("p", 1.0)]);
    let listed = Preferences { order: list(&["r"]), ..Preferences::default() };
    near(&drawn(&catalogue(&[("a/m", &three)]), &listed), &[("r", 1.0)]);
}
