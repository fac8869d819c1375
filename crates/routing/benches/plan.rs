//! Who serves a request, and what a call teaches: one case per run, for counting instructions under callgrind.
//!
//! `--names` lists the cases, `--case NAME` runs one; only what happens within [`measured`] counts. Without either
//! every case runs once, which shows that they still do what they claim. `script/bench` does the counting.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_core::Price;
use tidegate_routing::health::{Health, Outcome};
use tidegate_routing::live::{Live, Vital};
use tidegate_routing::plan::{Request, plan};
use tidegate_routing::price::Unit;
use tidegate_routing::{Catalogue, Credential, Endpoint, Model, Preferences, Pricing};

type Case = (&'static str, fn());

const CASES: [Case; 5] = [
    ("plan_2", || named(1, 2)),
    ("plan_20", || named(1, 20)),
    ("plan_2_of_10", || named(5, 2)),
    ("plan_2_of_10000", || named(5_000, 2)),
    ("health_update", health),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--names"] => CASES.iter().for_each(|(name, _)| println!("{name}")),
        ["--case", wanted] => match CASES.iter().find(|(name, _)| *name == wanted) {
            Some((_, case)) => case(),
            None => {
                eprintln!("there is no case {wanted}");
                return ExitCode::FAILURE;
            }
        },
        // Test runners ask every target for its tests; there are none.
        ["--list", ..] => {}
        _ => CASES.iter().for_each(|(_, case)| case()),
    }
    ExitCode::SUCCESS
}

/// Callgrind counts from entering to leaving this function, which it finds by its name.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Everybody is well, which costs a call to find out.
struct Well;

impl Live for Well {
    fn of(&self, _: &Endpoint, _: Option<&Credential>) -> Vital {
        black_box(Vital::default())
    }
}

fn endpoint(model: &str, number: usize) -> Arc<Endpoint> {
    let price = |dollars: usize| Price(i64::try_from(dollars * 1_000_000_000).expect("a small price"));
    let units = [(Unit::Input, price(number + 1)), (Unit::Output, price(number + 2))];
    let pricing = Some(Pricing::of(units.into_iter().collect()));
    Arc::new(Endpoint { pricing, ..Endpoint::new(model, format!("provider-{number}")) })
}

/// A plan for one model of so many, each with so many endpoints.
fn named(models: usize, endpoints: usize) {
    let model = |number: usize| {
        let id = format!("author/model-{number}");
        let endpoints = (0..endpoints).map(|place| endpoint(&id, place)).collect();
        Model::new(id, endpoints)
    };
    let catalogue = black_box(Catalogue::new((0..models).map(model).collect(), []));
    let name = format!("author/model-{}", models / 2);
    let (names, preferences) = ([name.as_str()], Preferences::default());
    let request = Request { live: &Well, draw: 0.5, ..Request::new(&names, &preferences) };
    let made = measured(|| plan(&catalogue, black_box(&request)));
    assert_eq!(made.expect("somebody serves").attempts.len(), endpoints);
}

/// What a streamed call that was answered leaves behind.
fn health() {
    let mut record = Health::default();
    for call in 0..1_000 {
        record.begin(call);
        record.end(call, Outcome::Answered, false, 0);
    }
    let opened = measured(|| {
        record.begin(1_000);
        record.began_to_speak(1_050, 0.05);
        record.spoke(1_100, 80.0);
        record.end(1_100, Outcome::Answered, false, 0)
    });
    assert!(!opened);
}
