//! The key check, the ledger's own part of the hot path and a line of the log, one case per run, for counting instructions under callgrind.
//!
//! `--names` lists the cases, `--case NAME` runs one; only what happens within [`measured`] counts. Without either
//! every case runs once, which shows that they still do what they claim. `script/bench` does the counting.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_core::clock::SystemClock;
use tidegate_core::{
    Account, Exchange, GenerationId, KeyHash, KeyKind, Money, OrganisationId, Posting, Price, Slot, Timestamp, Usage,
    Window, WorkspaceId,
};
use tidegate_gateway::keys::KeyIndex;
use tidegate_gateway::ledger::Ledger;
use tidegate_gateway::ledger::book::{Book, Demand, Rule};
use tidegate_observe::logging;
use tidegate_observe::metrics::Metrics;
use tidegate_routing::Pricing;
use tidegate_routing::price::{Prices, Terms, Unit};
use tidegate_store::Store;
use tidegate_store::keys::KeyRow;

type Case = (&'static str, fn());

const CASES: [Case; 6] = [
    ("ledger_hold_and_post", hold),
    ("ledger_records", records),
    ("ledger_cost", cost),
    ("log_line", line),
    ("key_of_10", || key(10)),
    ("key_of_1000000", || key(1_000_000)),
];
const NOW: Timestamp = Timestamp(1_790_000_000_000);

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

/// Finds one key among so many.
fn key(count: u64) {
    let folder = std::env::temp_dir().join(format!("tidegate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = runtime.block_on(Store::open("sqlite:bench.db", &folder)).expect("a database");
    let (ledger, _wants) = Ledger::new(Arc::new(SystemClock), Arc::new(Metrics::new("0", "bench")));
    let keys = KeyIndex::new(Arc::new(store), Arc::new(ledger));
    for number in 0..count {
        keys.learn(KeyRow {
            hash: KeyHash::of(&number.to_le_bytes()),
            organisation: OrganisationId("org_1".into()),
            workspace: WorkspaceId("w".into()),
            kind: KeyKind::Inference,
            name: "".into(),
            label: "".into(),
            disabled: false,
            limit: None,
            limit_reset: None,
            include_byok_in_limit: false,
            expires: None,
            creator: None,
            external_user: None,
            created: NOW,
            updated: None,
            deleted: false,
            change_seq: 1,
        });
    }
    let wanted = KeyHash::of(&(count / 2).to_le_bytes());
    // The first look also helps a table that is growing to grow on.
    assert!(keys.known(&wanted).is_some());
    let found = measured(|| keys.known(black_box(&wanted)));
    std::fs::remove_dir_all(&folder).ok();
    assert!(found.is_some());
}

/// A key with a monthly limit in an organisation with a balance.
fn demands() -> [Demand; 2] {
    let key = Slot::of(Account::Key(KeyHash::of(b"k")), Some(Window::Monthly), NOW);
    let organisation = Slot::of(Account::Organisation(OrganisationId("org_1".into())), None, NOW);
    [key, organisation].map(|slot| Demand {
        rule: Rule { slot, limit: Money(1_000_000_000), counts_byok: false },
        amount: Money(1_000_000),
    })
}

/// Everything that admission and settling do in memory.
fn hold() {
    let (mut book, demands) = (Book::default(), black_box(demands()));
    for demand in &demands {
        book.granted(&demand.rule, Money(1_000_000_000), NOW);
    }
    let warm = GenerationId::new(NOW);
    book.reserve(warm, &demands, NOW).expect("there is enough");
    let id = GenerationId::new(NOW);
    let postings: Vec<Posting> =
        demands.iter().map(|demand| Posting { slot: demand.rule.slot.clone(), amount: Money(177_000) }).collect();
    let closed = measured(|| {
        book.reserve(id, &demands, NOW).expect("there is enough");
        book.settle(id, &postings, NOW)
    });
    assert!(closed.is_some());
}

/// What is written to the journal: that a call was let in, and how it ended.
fn records() {
    let exchange = black_box(call());
    let written = measured(|| {
        let text = Exchange::to_text;
        text(&exchange).len() + text(&exchange).len()
    });
    assert!(written > 500);
}

/// What is logged of a finished call, for machines.
fn line() {
    logging::start(logging::Format::Json, "info").expect("nothing else logs here");
    let exchange = black_box(call());
    // What is made once is there by then.
    logging::finished(&exchange);
    measured(|| logging::finished(&exchange));
}

fn call() -> Exchange {
    let (organisation, workspace) = (OrganisationId("org_1".into()), WorkspaceId("w".into()));
    let id = GenerationId::new(NOW);
    let mut exchange = Exchange::new(id, organisation, workspace, KeyHash::of(b"k"), "vendor/model".into(), NOW);
    exchange.user_agent = Some("client/1.0".into());
    exchange.cost = Some(Money::ZERO);
    exchange.postings =
        demands().into_iter().map(|demand| Posting { slot: demand.rule.slot, amount: demand.amount }).collect();
    exchange
}

fn cost() {
    let price = |text: &str| Price::parse(text).expect("a price");
    let prices: Prices = [
        (Unit::Input, price("3")),
        (Unit::Output, price("15")),
        (Unit::CacheRead, price("0.3")),
        (Unit::CacheWrite, price("3.75")),
        (Unit::WebSearch, price("10000")),
    ]
    .into_iter()
    .collect();
    let pricing = black_box(Pricing::of(prices));
    let usage =
        black_box(Usage { input: 1_200, output: 345, cache_read: 20_000, cache_write: 512, ..Usage::default() });
    let cost = measured(|| pricing.cost(&usage, &Terms { tier: Some("standard"), geo: None, now: NOW }));
    // 3.6 + 5.175 + 6 + 1.92 thousandths of a dollar.
    assert_eq!(cost.total, Money(16_695_000));
}
