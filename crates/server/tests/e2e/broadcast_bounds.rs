//! What nobody takes stays within its bounds, what a dead process left open is told, and what is locked stays locked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::journal::{Journal, JournalReader};
use tokio::task::JoinSet;

use crate::harness::receiver::{ELSEWHERE, Receiver, attribute};
use crate::harness::{
    Account, Buy, INFERENCE_KEY, MANAGEMENT_KEY, Pace, Place, Tidegate, Till, assert_not_found, eventually, hello,
    on_both,
};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);
const DESTINATIONS: &str = "/observability/destinations";
/// Letters that are there, and those that may be.
const LETTERS: u64 = 100_000;
const KEPT: u64 = 10_000;

/// What a metric with these labels says.
async fn metric(gate: &Tidegate, name: &str) -> u64 {
    let metrics = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
    let value = metrics.body_text().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or(0)
}

/// The most memory that the process ever had, in bytes.
fn peak(gate: &Tidegate) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

async fn journal(place: &Place) -> SqliteConnection {
    SqliteConnectOptions::new().filename(place.data_dir().join("ledger.db")).connect().await.unwrap()
}

/// The same of a gateway that died: with rows for all that waits, as the next start gives them.
async fn journal_left(place: &Place) -> SqliteConnection {
    Journal::open(&place.data_dir()).await.unwrap().close().await.unwrap();
    journal(place).await
}

#[tokio::test]
async fn a_destination_whose_type_changes_is_measured_as_what_it_is() {
    let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", "")).run().await;
    let types = async || {
        let metrics = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
        ["webhook", "otel-collector"].map(|kind| {
            ["queue", "oldest_seconds"].map(|name| {
                let line = format!("tidegate_broadcast_{name}{{destination_type=\"{kind}\",destination=\"hook\"}}");
                metrics.body_text().contains(&line)
            })
        })
    };
    eventually("it is a webhook", PATIENCE, async || types().await == [[true; 2], [false; 2]]).await;
    let collector = hook.config("otel-collector", "").replace("\"collector\"", "\"hook\"");
    gate.place.write_config(&Tidegate::start().endpoint(MODEL, &sim).config(&collector).text());
    gate.signal(Signal::HUP);
    eventually("it is a collector", PATIENCE, async || types().await == [[false; 2], [true; 2]]).await;
}

#[tokio::test]
async fn bro_1_a_hundred_thousand_letters_that_nobody_takes_stay_within_bounds() {
    let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    hook.says(503);
    let bound = format!("[observability]\noutbox_letters = {KEPT}\n");
    let start = Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", "")).config(&bound);
    let mut gate = start.run().await;
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    let before = peak(&gate);
    gate.signal(Signal::KILL);
    gate.exit().await;

    // So many requests would take minutes; what waits is what they would have left.
    let mut connection = journal(&gate.place).await;
    let copies = format!(
        "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {LETTERS}) \
         INSERT INTO bundles (destination, generation, created_at, due_at, letters, bytes, payload) \
         SELECT destination, generation, created_at, due_at, letters, bytes, payload FROM bundles, n WHERE id = 1"
    );
    sqlx::query(sqlx::AssertSqlSafe(copies)).execute(&mut connection).await.unwrap();
    let all: i64 =
        sqlx::query_scalar("SELECT SUM(LENGTH(payload)) FROM bundles").fetch_one(&mut connection).await.unwrap();
    sqlx::Connection::close(connection).await.unwrap();

    let mut gate = gate.place.serve().await;
    let dropped = r#"tidegate_broadcast_dropped_total{destination_type="webhook",reason="full"} "#;
    let queue = r#"tidegate_broadcast_queue{destination_type="webhook",destination="hook"} "#;
    let mut made = 0;
    eventually("the oldest are gone", PATIENCE * 2, async || {
        // Requests go on as ever.
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
        made += 1;
        metric(&gate, dropped).await >= LETTERS - KEPT
    })
    .await;
    let mut connection = journal(&gate.place).await;
    eventually("what was made, what went and what waits add up", PATIENCE, async || {
        metric(&gate, dropped).await + waiting(&mut connection).await == LETTERS + made
    })
    .await;
    eventually("it is told how many wait", PATIENCE, async || (1..=KEPT).contains(&metric(&gate, queue).await)).await;
    let more = peak(&gate).saturating_sub(before);
    // A tenth of what waited, and what the debugger's build takes anyway.
    let most = u64::try_from(all).unwrap() / 10 + (48 << 20);
    assert!(more < most, "{} MiB more for {} MiB of letters", more >> 20, all >> 20);

    // All others arrive, each once, when it is there again; a new process does not know that it was not.
    gate.signal(Signal::KILL);
    gate.exit().await;
    let left = waiting(&mut connection).await;
    hook.says(200);
    let gate = gate.place.serve().await;
    eventually("nothing waits", PATIENCE * 2, async || waiting(&mut connection).await == 0).await;
    let heard = hook.told().into_iter().map(|told| told.body.matches("\"gen_ai.response.id\"").count() as u64);
    // The start may have found some too many again.
    assert_eq!(heard.sum::<u64>() + metric(&gate, dropped).await, left, "what waited has come or was counted");
}

#[tokio::test]
async fn what_was_taken_is_not_said_to_wait() {
    let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    hook.says(503);
    let start = Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", ""));
    let mut gate = start.run().await;
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    eventually("it is refused", PATIENCE, async || !hook.refused().is_empty()).await;
    gate.signal(Signal::KILL);
    gate.exit().await;
    // A start counts what waits before it brings anything.
    hook.says(200);
    let gate = gate.place.serve().await;
    eventually("it is taken", PATIENCE, async || !hook.told().is_empty()).await;
    let queue = r#"tidegate_broadcast_queue{destination_type="webhook",destination="hook"} "#;
    eventually("nothing is said to wait", Duration::from_secs(5), async || metric(&gate, queue).await == 0).await;
}

async fn waiting(connection: &mut SqliteConnection) -> u64 {
    let count: i64 = sqlx::query_scalar("SELECT COALESCE(SUM(letters), 0) FROM bundles WHERE died_at IS NULL")
        .fetch_one(connection)
        .await
        .unwrap();
    u64::try_from(count).unwrap()
}

#[tokio::test]
async fn a_call_that_a_dead_process_left_open_is_told() {
    let till = Till::start(Pace { first: Duration::from_secs(600), gap: Duration::ZERO, usage: None }).await;
    let hook = Receiver::start().await;
    let mut gate = Tidegate::start()
        .endpoint_at(MODEL, &till.base_url(), "pricing = { input = 3, output = 15 }")
        .config(&hook.config("webhook", "broadcast_generation_identity = true"))
        .run()
        .await;
    let mut running = JoinSet::new();
    running.spawn(Buy::new(gate.address, INFERENCE_KEY, MODEL, 1, true).make());
    let journal = JournalReader::open(&gate.place.data_dir()).unwrap();
    eventually("the call is under way", PATIENCE, async || !journal.left_open(i64::MAX).await.unwrap().is_empty())
        .await;
    let id = journal.left_open(i64::MAX).await.unwrap()[0].exchange.id;
    journal.close().await;
    gate.signal(Signal::KILL);
    gate.exit().await;
    running.abort_all();
    let _gate = gate.place.serve().await;
    eventually("it is told", PATIENCE, async || hook.generations().contains(id.as_str())).await;
    let spans = hook.spans();
    let [span] = spans.as_slice() else { panic!("{spans:?}") };
    assert_eq!(
        (&span["status"]["code"], attribute(span, "http.response.status_code")),
        (&json!(2), Some(json!("500")))
    );
    assert_eq!(attribute(span, "tidegate.identity.key_name"), Some(json!("First inference key")));
    assert_eq!(attribute(span, "gen_ai.input.messages"), None, "what was said is known to nobody");
}

/// What is told in privacy waits as it is where nothing of what was said is known; all else is sealed. Both outlive the
/// process.
#[tokio::test]
async fn what_waits_is_sealed_where_it_holds_what_was_said() {
    for (is_alone, readable) in [(true, 1), (false, 0)] {
        let (sim, open, silent) = (Sim::start(Behaviour::Echo).await, Receiver::start().await, Receiver::start().await);
        let mut start = Tidegate::start().endpoint(MODEL, &sim);
        let receivers = if is_alone { vec![&silent] } else { vec![&silent, &open] };
        for (place, receiver) in receivers.iter().enumerate() {
            receiver.says(503);
            let private = format!("privacy_mode = {}", place == 0);
            let lines = receiver.config("otel-collector", &private).replacen("collector", &format!("place{place}"), 1);
            start = start.config(&lines);
        }
        let mut gate = start.run().await;
        let mut body = hello(MODEL);
        body["stop_sequences"] = json!(["planted-stop"]);
        assert_eq!(gate.messages(body.clone()).await.status, 200);
        body["trace"] = json!({"case": "planted-case"});
        assert_eq!(gate.messages(body).await.status, 200);
        gate.signal(Signal::KILL);
        gate.exit().await;
        let mut connection = journal_left(&gate.place).await;
        let mut rows: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT payload FROM bundles").fetch_all(&mut connection).await.unwrap();
        let sheets: Vec<Vec<u8>> =
            sqlx::query_scalar("SELECT data FROM ring").fetch_all(&mut connection).await.unwrap();
        sqlx::Connection::close(connection).await.unwrap();
        let holding = |rows: &[Vec<u8>], text: &str| {
            rows.iter().filter(|row| memchr::memmem::find(row, text.as_bytes()).is_some()).count()
        };
        // The record of a call, of which its letter is made again.
        assert_eq!((rows.len(), holding(&rows, "\"usage_reported\":true")), (2 * receivers.len(), readable));
        assert!(!sheets.is_empty());
        rows.extend(sheets);
        for said in ["planted-stop", "planted-case", "gen_ai"] {
            assert_eq!(holding(&rows, said), 0, "{said}");
        }

        receivers.iter().for_each(|receiver| receiver.says(200));
        let gate = gate.place.serve().await;
        for receiver in receivers {
            eventually("it hears of both", PATIENCE, async || receiver.generations().len() == 2).await;
        }
        drop(gate);
    }
}

#[tokio::test]
async fn a_letter_that_is_made_again_says_the_same() {
    let more = [
        ("otel-collector", "privacy_mode = true\nbroadcast_generation_identity = true", 0),
        ("otel-collector", "privacy_mode = true\nbroadcast_generation_request_context = true", 1),
        ("webhook", "privacy_mode = true\nbroadcast_generation_cost = true", 1),
    ];
    for (kind, lines, records) in more {
        let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
        receiver.says(503);
        let mut gate = Tidegate::start().endpoint(MODEL, &sim).config(&receiver.config(kind, lines)).run().await;
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
        eventually("it is tried", PATIENCE, async || !receiver.refused().is_empty()).await;
        gate.signal(Signal::KILL);
        gate.exit().await;
        let mut connection = journal_left(&gate.place).await;
        let remade: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM bundles WHERE CAST(payload AS TEXT) LIKE 'r_{\"id\":%'")
                .fetch_one(&mut connection)
                .await
                .unwrap();
        sqlx::Connection::close(connection).await.unwrap();
        assert_eq!(remade, records, "{kind} {lines}");
        receiver.says(200);
        let gate = gate.place.serve().await;
        eventually("it hears of it", PATIENCE, async || !receiver.told().is_empty()).await;
        let (first, again) = (receiver.refused().remove(0).body, receiver.told().remove(0).body);
        assert!(!first.is_empty());
        assert_eq!(again, first, "{kind}");
        drop(gate);
    }
}

on_both! {
    async fn what_is_locked_stays_as_it_is(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed());
        let account = Account::start(database, builder.config("[observability]\nlock_privacy = true\n")).await;
        let base = json!({"type": "webhook", "name": "hook", "config": {"url": hook.url()}});
        let with = |changes: &Value| {
            let mut body = base.clone();
            body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            body
        };
        let changes = [
            json!({"privacy_mode": true}),
            json!({"api_key_hashes": [crate::harness::hash_of(INFERENCE_KEY)]}),
            json!({"broadcast_generation_cost": true}),
            json!({"broadcast_generation_identity": true}),
            json!({"broadcast_generation_request_context": true}),
        ];
        for change in &changes {
            let refused = account.send("POST", DESTINATIONS, with(change)).await;
            assert_eq!((refused.status, &refused.json()["error"]["message"]), (403, &json!("Privacy settings are locked")), "{change}");
        }
        let made = account.data("POST", DESTINATIONS, Some(base.clone()), 201).await;
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        for change in changes {
            assert_eq!(account.send("PATCH", &path, change).await.status, 403);
        }
        // All else can be changed, and what is sent back as it is changes nothing.
        let same = json!({"name": "other", "privacy_mode": false, "api_key_hashes": null, "sampling_rate": 0.5});
        let changed = account.data("PATCH", &path, Some(same), 200).await;
        assert_eq!((&changed["name"], &changed["sampling_rate"]), (&json!("other"), &json!(0.5)));
    }

    async fn people_see_how_a_destination_does(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed())).await;
        let body = json!({"type": "webhook", "name": "hook", "config": {"url": hook.url()}});
        let made = account.data("POST", DESTINATIONS, Some(body), 201).await;
        let path = format!("{DESTINATIONS}/{}/status", made["id"].as_str().unwrap());
        let idle = json!({
            "queued": 0, "oldest_at": null, "delivered_24h": 0, "failed_24h": 0, "dropped_24h": 0,
            "last_error": null, "last_success_at": null,
        });
        let status = async || account.ask("GET", &path).await.json();
        assert_eq!(status().await, idle);

        account.gate.messages(hello(MODEL)).await;
        eventually("it is delivered", PATIENCE, async || status().await["delivered_24h"] == 1).await;
        let good = status().await;
        assert_eq!((&good["queued"], &good["last_error"]), (&json!(0), &Value::Null));
        assert!(good["last_success_at"].is_string(), "{good}");

        hook.says(503);
        account.gate.messages(hello(MODEL)).await;
        eventually("it waits", PATIENCE, async || status().await["last_error"] == "status 503").await;
        let down = status().await;
        assert_eq!((&down["queued"], &down["failed_24h"]), (&json!(1), &json!(0)));
        assert!(down["oldest_at"].is_string(), "{down}");

        hook.says(400);
        eventually("it is given up", PATIENCE, async || status().await["failed_24h"] == 1).await;
        let refused = status().await;
        assert_eq!((&refused["queued"], &refused["last_error"], &refused["delivered_24h"]), (&json!(0), &json!("status 400"), &json!(1)));
        let other = format!("{DESTINATIONS}/00000000-0000-7000-8000-000000000000/status");
        assert_not_found(&account.ask("GET", &other).await);
    }
}
