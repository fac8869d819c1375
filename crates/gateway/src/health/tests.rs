use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::clock::ManualClock;
use tidegate_routing::live::Group;
use tidegate_routing::{Model, Strategy, Variants};

use super::*;

struct Bench {
    health: Arc<Health>,
    clock: Arc<ManualClock>,
    ward: Ward,
    attempts: Vec<Attempt>,
}

/// One model at two providers.
fn bench() -> Bench {
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let health = Health::new(clock.clone(), Arc::new(Metrics::new("test", "none")));
    let endpoint = |place: usize, provider: &str| {
        Arc::new(Endpoint { place, provider_index: place, ..Endpoint::new("a/m", provider) })
    };
    let endpoints = vec![endpoint(0, "p"), endpoint(1, "q")];
    let catalogue = Catalogue::new(vec![Model::new("a/m", endpoints.clone())], []);
    let ward = health.ward(&catalogue);
    let attempt = |endpoint: Arc<Endpoint>| Attempt {
        endpoint,
        credential: None,
        model: 0,
        strategy: Strategy::Direct,
        variants: Variants::default(),
    };
    Bench { health, clock, ward, attempts: endpoints.into_iter().map(attempt).collect() }
}

impl Bench {
    fn call(&self, place: usize, class: Option<Class>) {
        let trial = self.health.begin(&self.ward, &self.attempts[place], Retry::free());
        match class {
            Some(class) => trial.failed(&Fault::without_answer(class)),
            None => trial.answered(10),
        }
    }

    fn group(&self, place: usize) -> Group {
        self.health.view(&self.ward).of(&self.attempts[place].endpoint, None).group
    }

    fn first(&self) -> usize {
        self.health.first_open(&self.ward, &self.attempts, 0)
    }
}

#[test]
fn an_endpoint_that_fails_five_times_is_passed_over_and_tried_again_later() {
    let bench = bench();
    for _ in 0..100 {
        bench.call(0, None);
    }
    for _ in 0..5 {
        assert_eq!(bench.first(), 0);
        bench.call(0, Some(Class::Server));
    }
    assert_eq!((bench.group(0), bench.group(1)), (Group::Outage, Group::Stable));
    assert_eq!(bench.first(), 1);
    bench.clock.advance(Duration::from_secs(37));
    assert_eq!(bench.first(), 0, "its time has come");
    let probe = bench.health.begin(&bench.ward, &bench.attempts[0], Retry::free());
    assert_eq!(bench.first(), 1, "one at a time");
    drop(probe);
    assert_eq!(bench.first(), 0, "one that was given up says nothing");
}

#[test]
fn a_credential_that_is_refused_rests_for_a_minute() {
    let bench = bench();
    let cools = |place: usize| bench.health.view(&bench.ward).of(&bench.attempts[place].endpoint, None).cools;
    let other = Endpoint { place: 7, ..Endpoint::new("a/other", "p") };
    let refused = |status| Fault { status, ..Fault::without_answer(Class::Credential) };
    bench.health.rest(&bench.ward, &bench.attempts[0].endpoint, &refused(401));
    assert!(cools(0) && !cools(1));
    assert!(bench.health.view(&bench.ward).of(&other, None).cools, "whatever its provider is asked for");
    bench.clock.advance(Duration::from_millis(59_999));
    assert!(cools(0));
    bench.clock.advance(Duration::from_millis(1));
    assert!(!cools(0));
    let rest = |status| bench.health.rest(&bench.ward, &bench.attempts[0].endpoint, &refused(status));
    assert!(rest(403), "who must mend it hears of it again");
    assert!(!rest(401), "but not with every call");
    bench.clock.advance(Duration::from_secs(60));
    assert!(rest(402) && !rest(403));
    bench.clock.advance(Duration::from_secs(60));
    assert!(rest(403));
    assert!(cools(0) && !bench.health.view(&bench.ward).of(&other, None).cools, "a right may be missing for one model");
}

#[test]
fn ret_7_when_all_are_out_the_first_of_the_plan_is_called() {
    let bench = bench();
    for place in [0, 1] {
        for _ in 0..5 {
            bench.call(place, Some(Class::Unreachable));
        }
    }
    assert_eq!(bench.first(), 0);
}

#[test]
fn ret_8_a_provider_that_refuses_most_calls_gets_fewer_of_them() {
    let bench = bench();
    // 40 requests, 10 accepted: (40 - 20) / 41 are made elsewhere.
    for call in 0..40 {
        bench.call(0, if call % 4 == 0 { None } else { Some(Class::RateLimit) });
    }
    let elsewhere = (0..10_000).filter(|_| bench.first() == 1).count();
    // The deviation of so many draws is 50.
    assert!((4_878 - 250..4_878 + 250).contains(&elsewhere), "{elsewhere}");
    bench.clock.advance(Duration::from_secs(121));
    assert!((0..1_000).all(|_| bench.first() == 0), "two minutes later that is forgotten");
}

#[test]
fn ret_5_retries_of_one_provider_are_bounded_and_those_of_another_are_not() {
    let bench = bench();
    let (p, q) = (&bench.attempts[0].endpoint, &bench.attempts[1].endpoint);
    let again = || bench.health.retry(&bench.ward, p, p);
    // They count while they wait, and go on counting when they run.
    let mut waiting: Vec<_> = (0..3).map_while(|_| again()).collect();
    assert_eq!(waiting.len(), 3);
    assert!(again().is_none());
    assert!(bench.health.retry(&bench.ward, p, q).is_some());
    let running = waiting.pop().map(|retry| bench.health.begin(&bench.ward, &bench.attempts[0], retry));
    assert!(again().is_none());
    drop(running);
    assert!(again().is_some());
}

#[test]
fn ret_5_a_fifth_of_what_runs_may_be_retries() {
    let bench = bench();
    let p = &bench.attempts[0].endpoint;
    let begin = |_| bench.health.begin(&bench.ward, &bench.attempts[0], Retry::free());
    let running: Vec<_> = (0..100).map(begin).collect();
    let retries: Vec<_> = std::iter::from_fn(|| bench.health.retry(&bench.ward, p, p)).collect();
    assert_eq!((running.len(), retries.len()), (100, 20));
}

#[test]
fn ret_5_retries_of_a_node_are_a_fifth_of_its_calls_and_ten_each_second() {
    let bench = bench();
    let (p, q) = (&bench.attempts[0].endpoint, &bench.attempts[1].endpoint);
    (0..500).for_each(|_| drop(bench.health.begin(&bench.ward, &bench.attempts[0], Retry::free())));
    // All of them wait at once: none of the calls has begun.
    let retries: Vec<_> = std::iter::from_fn(|| bench.health.retry(&bench.ward, p, q)).collect();
    // Of 749 calls a fifth is 149; with the hundred of ten seconds that is what was used.
    assert_eq!(retries.len(), 249);
}

#[test]
fn what_is_known_survives_a_reload_and_what_is_gone_is_forgotten() {
    let bench = bench();
    for _ in 0..5 {
        bench.call(0, Some(Class::Timeout));
    }
    let same = Catalogue::new(vec![Model::new("a/m", vec![bench.attempts[0].endpoint.clone()])], []);
    let ward = bench.health.ward(&same);
    assert_eq!(bench.health.view(&ward).of(&bench.attempts[0].endpoint, None).group, Group::Outage);
    bench.health.ward(&Catalogue::new(vec![], []));
    let ward = bench.health.ward(&same);
    assert_eq!(bench.health.view(&ward).of(&bench.attempts[0].endpoint, None).group, Group::Stable);
}

#[test]
fn faults_of_the_caller_say_nothing_and_limits_cool_down() {
    let bench = bench();
    for class in [Class::InvalidRequest, Class::ContextLength, Class::ContentFilter, Class::Own, Class::Media] {
        (0..50).for_each(|_| bench.call(0, Some(class)));
    }
    let vital = |place: usize| bench.health.view(&bench.ward).of(&bench.attempts[place].endpoint, None);
    assert_eq!((vital(0).group, vital(0).uptime, vital(0).cools), (Group::Stable, 1.0, false));
    let trial = bench.health.begin(&bench.ward, &bench.attempts[0], Retry::free());
    trial.failed(&Fault { retry_after: Some(Duration::from_secs(3)), ..Fault::without_answer(Class::RateLimit) });
    bench.call(1, Some(Class::RateLimit));
    assert!(vital(0).cools && vital(1).cools);
    bench.clock.advance(Duration::from_secs(3));
    assert!(!vital(0).cools && vital(1).cools, "ten seconds where nothing was said");
    bench.clock.advance(Duration::from_secs(7));
    assert!(!vital(1).cools);
}
