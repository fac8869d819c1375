//! What a node loses - room on its disk, its journal, its store, its sense of time - never becomes the caller's fault, and
//! never costs a record.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tidegate_core::Money;
use tidegate_store::Store;
use tidegate_store::journal::JournalReader;

use crate::harness::books::{PRICES, audit, price, rows, store_of, verified};
use crate::harness::{
    Account, Buy, Cluster, Database, Heard, INFERENCE_KEY, MANAGEMENT_KEY, Pace, Tidegate, Till, eventually, on_both,
    soon,
};
use crate::money::key;

const MODEL: &str = "vendor/m";
const TEN_SECONDS: Duration = Duration::from_secs(10);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn buy(gate: &Tidegate, number: u64, streamed: bool) -> Buy {
    Buy::new(gate.address, INFERENCE_KEY, MODEL, number, streamed)
}

/// The value of a counter without labels.
async fn counter(gate: &Tidegate, name: &str) -> f64 {
    let reply = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
    let text = reply.body_text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().expect("a number")
}

fn assert_unavailable(heard: &Heard) {
    let error: Value = serde_json::from_slice(&heard.body).expect("an error is JSON");
    assert_eq!((heard.status, &error["error"]["message"]), (Some(503), &json!("Service temporarily unavailable")));
}

/// A journal that fails while calls run: they end well, new ones wait outside, and afterwards all is written.
async fn journal_outage(database: &Database, gate: Tidegate, till: &Till, mut change: impl AsyncFnMut(bool)) {
    let store = store_of(database, &gate.place).await;
    let mut heard = vec![buy(&gate, 1, false).make().await];
    assert!(heard[0].is_complete);
    till.open(false);
    let mut running = tokio::task::JoinSet::new();
    for number in 10..20 {
        running.spawn(buy(&gate, number, number.is_multiple_of(2)).make());
    }
    soon("they are with the upstream", till.busy(10)).await;
    let journal = JournalReader::open(&gate.place.data_dir()).expect("it is there");
    eventually("they are in the journal", TEN_SECONDS, async || {
        journal.counts().await.expect("the journal can be read").0 == 10
    })
    .await;
    journal.close().await;
    change(true).await;
    // The first to come find out, and wait for the upstream like the others; who comes later is told at once.
    let mut number = 100;
    let mut waiting = tokio::task::JoinSet::new();
    eventually("new calls are refused", TEN_SECONDS, async || {
        number += 1;
        waiting.spawn(buy(&gate, number, number % 2 == 0).make());
        let Ok(Some(ended)) = tokio::time::timeout(Duration::from_millis(40), waiting.join_next()).await else {
            return false;
        };
        heard.push(ended.expect("a client does not panic"));
        heard.last().is_some_and(|heard| heard.status == Some(503))
    })
    .await;
    assert_unavailable(heard.last().expect("one was refused"));
    let reply = gate
        .post(json!({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "7"}]}).to_string())
        .await;
    assert_eq!((reply.status, reply.header("retry-after").is_some()), (503, true), "{}", reply.body_text());
    till.open(true);
    let ended = running.join_all().await;
    assert!(ended.iter().all(|heard| heard.is_complete), "what was running ends well: {ended:?}");
    heard.extend(ended);
    heard.extend(waiting.join_all().await);
    assert!(counter(&gate, "tidegate_ledger_late_total").await >= 1.0, "the last bytes did not wait for ever");
    change(false).await;
    let mut number = 200;
    eventually("calls are let in again", TEN_SECONDS, async || {
        number += 1;
        let served = buy(&gate, number, false).make().await;
        let is_served = served.is_complete;
        heard.push(served);
        is_served
    })
    .await;
    // Those that were refused after a while are on record as failed: they had been let in.
    heard.retain(|heard| heard.status != Some(503) || heard.id.is_some());
    eventually("all is forwarded", TEN_SECONDS, async || {
        let known: Vec<u64> =
            rows(&store).await.iter().filter(|row| row.session_id.is_some()).map(|row| row.number()).collect();
        heard.iter().all(|heard| known.contains(&heard.number))
    })
    .await;
    audit(&store, till, &heard).await;
    verified(&gate.place).await;
    let (status, place) = gate.stop().await;
    assert!(status.success());
    verified(&place).await;
}

on_both! {
    async fn led_20_a_full_disk_stops_new_calls_and_loses_nothing(database: &Database) {
        let till = Till::start(Pace::default()).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES);
        let mut place = builder.config(&database.config()).place();
        let full = place.beside("full");
        place.environment("TIDEGATE_JOURNAL_FULL", Some(full.to_str().expect("a plain path")));
        let gate = place.serve().await;
        let ballast = gate.place.data_dir().join("ledger.ballast");
        eventually("room is kept for the worst moment", TEN_SECONDS, async || {
            ballast.metadata().is_ok_and(|file| file.len() == 16 << 20)
        })
        .await;
        journal_outage(database, gate, &till, async |begins| {
            if begins {
                std::fs::write(&full, "").expect("the folder is ours");
            } else {
                assert!(!ballast.exists(), "the room that was kept is given up");
                std::fs::remove_file(&full).expect("it is there");
            }
        })
        .await;
    }

    async fn led_20_a_locked_journal_stops_new_calls_and_loses_nothing(database: &Database) {
        let till = Till::start(Pace::default()).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES);
        let gate = builder.config(&database.config()).run().await;
        let options = SqliteConnectOptions::new().filename(gate.place.data_dir().join("ledger.db"));
        let mut connection: SqliteConnection = options.connect().await.expect("the journal is there");
        journal_outage(database, gate, &till, async |begins| {
            let sql = if begins { "BEGIN IMMEDIATE" } else { "ROLLBACK" };
            sqlx::query(sql).execute(&mut connection).await.expect("the journal can be locked");
        })
        .await;
    }

    async fn led_20_commits_that_do_not_reach_the_disk_are_mended_though_nobody_calls(database: &Database) {
        let till = Till::start(Pace::default()).await;
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES);
        let mut place = builder.config(&database.config()).place();
        let unsynced = place.beside("unsynced");
        place.environment("TIDEGATE_JOURNAL_UNSYNCED", Some(unsynced.to_str().expect("a plain path")));
        let gate = place.serve().await;
        let store = store_of(database, &gate.place).await;
        std::fs::write(&unsynced, "").expect("the folder is ours");
        let mut heard = vec![buy(&gate, 1, false).make().await];
        eventually("nobody is let in", TEN_SECONDS, async || gate.stderr().contains("the journal cannot be written")).await;
        // Only a call that was let in could write something, and none is.
        eventually("it is mended", TEN_SECONDS, async || gate.stderr().contains("the journal is written again")).await;
        std::fs::remove_file(&unsynced).expect("it is there");
        heard.push(buy(&gate, 2, true).make().await);
        assert!(heard.iter().all(|heard| heard.is_complete), "{heard:?}");
        let (status, place) = gate.stop().await;
        assert!(status.success());
        audit(&store, &till, &heard).await;
        verified(&place).await;
    }

    async fn led_6_windows_only_move_forward(database: &Database) {
        let till = Till::start(Pace { usage: Some((14, 64)), ..Pace::default() }).await;
        let pricing = "[models.endpoints.pricing]\ninput = 0\noutput = 1\n";
        let builder = Tidegate::start().endpoint_at(MODEL, &till.base_url(), pricing).config(&database.config());
        let mut place = builder.place();
        let file = place.beside("clock");
        let shift = |millis: i64| std::fs::write(&file, millis.to_string()).expect("the folder is ours");
        shift(0);
        place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().expect("a plain path")));
        let account = Account::start_at(database, place).await;
        // Two calls a day.
        let key = key(&account, json!({"limit": serde_json::Number::from_f64(0.000128), "limit_reset": "daily"})).await;
        let call = |number: u64| Buy::new(account.gate.address, &key, MODEL, number, number.is_multiple_of(2)).make();
        let status = async |number: u64| call(number).await.status.expect("an answer");
        assert_eq!(status(1).await, 200);
        // It is let in today and ends tomorrow: it is today's.
        till.open(false);
        let mut late = tokio::task::JoinSet::new();
        late.spawn(call(2));
        soon("it is with the upstream", till.busy(1)).await;
        assert_eq!(status(3).await, 402, "what may be spent is held");
        shift(DAY_MS);
        till.open(true);
        assert!(late.join_all().await[0].is_complete);
        let spent = async || {
            let shown = account.gate.ask("GET", "/api/v1/key").key(&key).send().await.json()["data"].clone();
            (shown["usage"].clone(), shown["usage_daily"].clone(), shown["limit_remaining"].clone())
        };
        assert_eq!(spent().await, (json!(0.000128), json!(0), json!(0.000128)), "a new day, and nothing of it is spent");
        assert_eq!((status(5).await, status(6).await, status(7).await), (200, 200, 402));
        eventually("the jump is audited", TEN_SECONDS, async || {
            account.audited().await.iter().any(|action| action == "clock.jumped")
        })
        .await;
        // Back to yesterday, which is over.
        shift(0);
        assert_eq!((status(8).await, spent().await.2), (402, json!(0)), "a day that is over does not come back");
        shift(2 * DAY_MS);
        assert_eq!(status(9).await, 200);
        assert_eq!(spent().await.0, json!(0.00032), "five calls in all");
        verified(&account.gate.place).await;
    }
}

#[tokio::test]
async fn led_24_a_postgresql_that_is_killed_and_comes_back_costs_no_record() {
    let Some(cluster) = Cluster::start().await else { return };
    let till = Till::start(Pace { first: Duration::from_millis(2), gap: Duration::from_millis(2), usage: None }).await;
    let gate = Tidegate::start().endpoint_at(MODEL, &till.base_url(), PRICES).config(&cluster.config()).run().await;
    let limited = async |name: &str| {
        let made = gate.place.run(&["keys", "create", "--name", name, "--limit", "1000"]).await;
        let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        eventually("the key is known", TEN_SECONDS, async || {
            gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200
        })
        .await;
        key
    };
    let (used, unused) = (limited("used").await, limited("unused").await);
    let call = |key: &str, number: u64| Buy::new(gate.address, key, MODEL, number, number.is_multiple_of(2)).make();
    let mut heard = vec![call(&used, 1).await, call(INFERENCE_KEY, 2).await];
    assert!(heard.iter().all(|heard| heard.is_complete));
    for round in 0..3 {
        let first = 100 * (round + 1);
        // Some are under way when it dies, and some of what they leave is being forwarded.
        let mut running = tokio::task::JoinSet::new();
        for number in first..first + 30 {
            running.spawn(call(if number % 3 == 0 { &used } else { INFERENCE_KEY }, number));
        }
        soon("calls are under way", till.busy(5)).await;
        cluster.kill().await;
        heard.extend(running.join_all().await);
        for number in first + 30..first + 50 {
            heard.push(call(if number % 3 == 0 { &used } else { INFERENCE_KEY }, number).await);
        }
        let without = call(&unused, first + 99).await;
        assert_unavailable(&without);
        assert_eq!(without.id, None);
        cluster.up().await;
        gate.logs("finished requests are recorded again").await;
    }
    assert!(heard.iter().all(|heard| heard.is_complete), "known keys and leases need no store: {heard:?}");
    eventually("the store gives leases again", TEN_SECONDS, async || call(&unused, 999).await.is_complete).await;
    heard.push(Heard { number: 999, ..Heard::default() });
    let store = Store::open(&cluster.url(), &gate.place.data_dir()).await.expect("the store opens");
    eventually("all is forwarded", TEN_SECONDS, async || rows(&store).await.len() == heard.len()).await;
    audit(&store, &till, &heard).await;
    verified(&gate.place).await;
    let spent: i64 = heard
        .iter()
        .filter(|heard| heard.number == 1 || (heard.number >= 100 && heard.number < 900 && heard.number % 3 == 0))
        .map(|heard| price(heard.number).0)
        .sum();
    let shown = gate.ask("GET", "/api/v1/key").key(&used).send().await;
    let text = format!("\"limit_remaining\":{},", Money(1_000_000_000_000 - spent));
    assert!(shown.body_text().contains(&text), "{text} is not in {}", shown.body_text());
    store.close().await;
}
