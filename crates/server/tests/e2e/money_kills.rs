//! A process that is killed at any moment loses nothing that a client heard of, and charges nothing twice.

use std::collections::HashMap;
use std::time::Duration;

use rustix::process::Signal;
use tidegate_core::{Money, id};
use tidegate_store::Store;
use tidegate_store::journal::JournalReader;
use tokio::task::JoinSet;

use crate::harness::books::{self, PRICES, audit, rows, store_of, verified};
use crate::harness::{Buy, Heard, INFERENCE_KEY, Pace, Place, Tidegate, Till, eventually, on_both};

const MODEL: &str = "vendor/m";
const KILLS: usize = 100;
const ANSWERED: usize = 60;
const CROWD: usize = 200;
const MANY: &str = "[limits]\nin_flight_key = 4000\nin_flight_workspace = 4000\n[log]\nlevel = \"error\"\n";

/// Every step between admission and the last byte, in order.
const POINTS: [&str; 11] = [
    "reserved",
    "intent.queued",
    "journal.write",
    "journal.written",
    "dispatching",
    "dispatched",
    "answered",
    "settling",
    "settle.queued",
    "settled",
    "store.forwarded",
];

/// Some number of milliseconds below `most`.
fn chance(most: u64) -> Duration {
    Duration::from_micros(u64::from(u16::from_le_bytes(id::random::<2>())) * most * 1000 / 65_536)
}

async fn settled(store: &Store) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for row in rows(store).await {
        *counts.entry(row.settlement).or_default() += 1;
    }
    counts
}

on_both! {
    async fn led_18_kills_lose_nothing_and_double_nothing(database: &Database) {
        let till = Till::start(Pace { first: Duration::from_millis(20), gap: Duration::from_millis(10), usage: None }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES).config(MANY);
        let mut gate = builder.config(&database.config()).run().await;
        let made = gate.place.run(&["keys", "create", "--name", "limited", "--limit", "1000000"]).await;
        let limited = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        let store = store_of(database, &gate.place).await;
        let (mut number, mut heard) = (0, Vec::<Heard>::new());
        for round in 0..KILLS {
            let mut running = JoinSet::new();
            let mut send = |running: &mut JoinSet<Heard>, count: usize| {
                for _ in 0..count {
                    number += 1;
                    let key = if number % 2 == 0 { &limited } else { INFERENCE_KEY };
                    running.spawn(Buy::new(gate.address, key, MODEL, number, number % 3 != 0).make());
                }
            };
            // Some are with the upstream. While they are being answered, a crowd comes that is not: calls are at every
            // step when the process dies.
            till.open(false);
            send(&mut running, ANSWERED);
            crate::harness::soon("they are with the upstream", till.busy(ANSWERED)).await;
            till.open(false);
            send(&mut running, CROWD);
            tokio::time::sleep(chance(300)).await;
            gate.signal(Signal::KILL);
            gate.exit().await;
            let these = running.join_all().await;
            let in_flight = these.iter().filter(|heard| !heard.is_complete).count();
            assert!(in_flight >= 200, "round {round}: {in_flight} were in flight");
            heard.extend(these);
            gate = gate.place.serve().await;
            verified(&gate.place).await;
            if round % 10 == 9 {
                audit(&store, &till, &heard).await;
            }
        }
        audit(&store, &till, &heard).await;
        let complete = heard.iter().filter(|heard| heard.is_complete).count();
        let counts = settled(&store).await;
        assert!(complete > KILLS && counts.get("recovered").is_some_and(|recovered| *recovered > KILLS), "kills came in the middle: {complete} {counts:?}");
        // What the limited key has left is its limit less what its records say.
        let spent: i64 = rows(&store).await.iter().filter(|row| row.number() % 2 == 0).map(|row| row.cost_nanos.unwrap_or(0)).sum();
        let shown = gate.ask("GET", "/api/v1/key").key(&limited).send().await;
        let text = format!("\"limit_remaining\":{},", Money(1_000_000_000_000_000 - spent));
        assert!(shown.body_text().contains(&text), "{text} is not in {}", shown.body_text());
    }

    async fn led_18_a_death_at_any_named_point_is_settled_once(database: &Database) {
        let till = Till::start(Pace { first: Duration::from_millis(5), gap: Duration::from_millis(1), usage: None }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES).config(MANY);
        let mut place: Place = builder.config(&database.config()).place();
        let mut heard = Vec::new();
        let mut number = 0;
        let mut store = None;
        for point in POINTS {
            for (passing, streamed) in [(1, false), (1, true), (3, false), (3, true), (7, true)] {
                // Streams are never whole answers.
                if point == "answered" && streamed {
                    continue;
                }
                place.environment("TIDEGATE_CRASH_AT", Some(&format!("{point}:{passing}")));
                let mut gate = place.serve().await;
                if store.is_none() {
                    store = Some(store_of(database, &gate.place).await);
                }
                let address = gate.address;
                let calls = async {
                    let mut heard = Vec::new();
                    // One after the other, and some beside each other, until nobody answers.
                    while heard.last().is_none_or(|heard: &Heard| heard.status.is_some()) {
                        let mut running = JoinSet::new();
                        for _ in 0..3 {
                            number += 1;
                            running.spawn(Buy::new(address, INFERENCE_KEY, MODEL, number, streamed).make());
                        }
                        let mut some = running.join_all().await;
                        some.sort_by_key(|heard| std::cmp::Reverse(heard.status));
                        heard.extend(some);
                    }
                    heard
                };
                heard.extend(crate::harness::soon(point, calls).await);
                gate.exit().await;
                place = gate.place;
                place.environment("TIDEGATE_CRASH_AT", None);
                let gate = place.serve().await;
                verified(&gate.place).await;
                audit(store.as_ref().expect("it is open"), &till, &heard).await;
                let (status, stopped) = gate.stop().await;
                assert!(status.success(), "{point}");
                place = stopped;
                verified(&place).await;
            }
        }
        assert!(books::total(store.as_ref().expect("it is open")).await > Money::ZERO);
    }

    async fn led_16_a_long_stream_is_charged_as_far_as_the_journal_knew_it(database: &Database) {
        // Events for six seconds: the journal hears of it after two and four.
        let till = Till::start(Pace { first: Duration::ZERO, gap: Duration::from_millis(600), usage: None }).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES).config(MANY);
        let mut gate = builder.config(&database.config()).run().await;
        let store = store_of(database, &gate.place).await;
        let buy = Buy::new(gate.address, INFERENCE_KEY, MODEL, 1, true);
        let mut running = JoinSet::new();
        running.spawn(buy.make());
        let journal = JournalReader::open(&gate.place.data_dir()).expect("it is there");
        let left = async || journal.left_open(i64::MAX).await.expect("the journal can be read");
        eventually("the journal knows how far it is", Duration::from_secs(20), async || {
            left().await.first().is_some_and(|open| open.progress.is_some())
        })
        .await;
        let known = left().await[0].progress.expect("it was there").cost;
        journal.close().await;
        gate.signal(Signal::KILL);
        gate.exit().await;
        let heard = running.join_all().await;
        assert!(!heard[0].is_complete && !heard[0].body.is_empty());
        let gate = gate.place.serve().await;
        let rows = rows(&store).await;
        assert_eq!((rows.len(), rows[0].settlement.as_str()), (1, "recovered"));
        // The prompt alone is 107 tokens at 3 dollars per million.
        assert!(known >= Money(107 * 3_000) && rows[0].cost_nanos >= Some(known.0), "{known:?}: {rows:?}");
        assert!(rows[0].cost_nanos <= Some(rows[0].reserved_nanos));
        audit(&store, &till, &heard).await;
        verified(&gate.place).await;
    }
}
