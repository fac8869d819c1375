//! What goes through credentials of the customer's own: it costs a fee at most, and counts at list price where a limit says
//! so.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Sim};
use tidegate_store::journal::JournalReader;

use crate::harness::books::verified;
use crate::harness::{Account, Hand, INFERENCE_KEY, Tidegate, eventually, frame, hello, hello_streamed, on_both, tale};

const MODEL: &str = "vendor/m";
/// A dollar for a million tokens of input, two for as many of output.
const PRICED: &str = "card = { prefill = \"native\" }\npricing = { input = 1, output = 2 }";
/// Of an answer that breaks off: 14 tokens of input and two of output. A tenth of it is charged.
const FIRST: f64 = 0.000018;
const FEE: f64 = 0.0000018;
/// Of the one that goes on: 14 and 9.
const SECOND: f64 = 0.000032;

fn streams(frames: &[String], end: End) -> Behaviour {
    Behaviour::RawStream { chunks: frames.iter().map(|frame| Bytes::from(frame.clone())).collect(), end }
}

fn assert_dollars(amount: &Value, dollars: f64) {
    assert!(amount.as_f64().is_some_and(|amount| (amount - dollars).abs() < 1e-12), "{amount} is not {dollars}");
}

on_both! {
    async fn led_5_4_what_an_own_credential_said_of_an_answer_counts_though_another_goes_on(database: &Database) {
        let first = Sim::start(streams(&tale("One two")[..3], End::Reset)).await;
        let second = Sim::start(streams(&tale(" three."), End::Close)).await;
        let gate = Tidegate::start().endpoint_with(MODEL, &first, PRICED).endpoint_with(MODEL, &second, PRICED);
        let account = Account::start(database, gate.config("[billing]\nbyok_fee_percent = \"10\"\n")).await;
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own-key", "is_byok_only": true})), 201).await;
        let body = json!({"name": "k", "limit": 0.001, "include_byok_in_limit": true});
        let key = account.send("POST", "/keys", body).await.json()["key"].as_str().unwrap().to_owned();
        for calls in 1..=3_u8 {
            let ask = account.gate.ask("POST", "/v1/messages").key(&key).json(hello_streamed(MODEL).to_string());
            let reply = ask.header("x-tidegate-metadata", "enabled").send().await;
            assert_eq!((reply.status, &*reply.text()), (200, "One two three."), "{}", reply.body_text());
            let events = reply.events();
            let routed = events.iter().find(|event| event.name == "message_stop").unwrap().json();
            assert_eq!(routed["tidegate_metadata"]["is_byok"], true, "{routed}");
            let told = events.iter().find(|event| event.name == "message_delta").unwrap().json()["usage"].clone();
            assert_dollars(&told["cost"], SECOND + FEE);
            assert_eq!(told["is_byok"], true, "{told}");
            assert_dollars(&told["cost_details"]["upstream_inference_cost"], FIRST);

            let (credit, byok) = (f64::from(calls) * (SECOND + FEE), f64::from(calls) * FIRST);
            let shown = account.gate.ask("GET", "/api/v1/key").key(&key).send().await.json()["data"].clone();
            assert_dollars(&shown["usage"], credit);
            assert_dollars(&shown["byok_usage"], byok);
            assert_dollars(&shown["limit_remaining"], 0.001 - credit - byok);
            let question = json!({"metrics": ["total_cost", "byok_cost"]});
            let rows = account.data("POST", "/analytics/query", Some(question), 200).await;
            assert_dollars(&rows["data"][0]["total_cost"], credit);
            assert_dollars(&rows["data"][0]["byok_cost"], byok);
            let id = reply.header("x-generation-id").unwrap();
            let record = account.data("GET", &format!("/generation?id={id}"), None, 200).await;
            assert_eq!(record["is_byok"], true, "{record}");
            assert_dollars(&record["total_cost"], SECOND + FEE);
            assert_dollars(&record["upstream_inference_cost"], FIRST + SECOND);
        }
        let metrics = account.gate.managed("/metrics").await.body_text().to_owned();
        let byok: f64 = metrics
            .lines()
            .filter(|line| line.starts_with("tidegate_cost_usd_total") && line.contains("kind=\"byok\""))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        assert_dollars(&json!(byok), 3.0 * FIRST);
        verified(&account.gate.place).await;
    }

    async fn led_8_a_call_through_an_own_credential_gets_the_output_whose_fee_can_be_paid(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let output_only = "pricing = { input = 0, output = 1 }";
        let gate = Tidegate::start().endpoint_with(MODEL, &sim, output_only);
        let account = Account::start(database, gate.config("[billing]\nbyok_fee_percent = \"10\"\n")).await;
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own-key"})), 201).await;
        // A token costs a thousand nano-dollars and a hundred of fee: of a million 909 can be paid, and of a hundred thousand
        // the fee of a thousand.
        for (limit, counts, most) in [(0.001, true, 909), (0.0001, false, 1_000)] {
            let body = json!({"name": "k", "limit": limit, "include_byok_in_limit": counts});
            let key = account.send("POST", "/keys", body).await.json()["key"].as_str().unwrap().to_owned();
            let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).to_string();
            let reply = account.gate.ask("POST", "/v1/messages").key(&key).json(body).send().await;
            assert_eq!(reply.status, 200, "{}", reply.body_text());
            let sent = sim.requests().pop().unwrap();
            let body: Value = serde_json::from_slice(&sent.body).unwrap();
            assert_eq!(body["max_tokens"], most, "{counts}");
            assert_eq!(sent.headers["x-api-key"], "own-key", "at the customer's cost, not at ours");
        }
    }

    async fn led_9_an_own_credential_without_a_fee_may_be_used_where_no_price_is_known(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        for (fee, counts, status) in [("0", false, 200), ("0", true, 402), ("1", false, 402)] {
            let fee = format!("[billing]\nbyok_fee_percent = \"{fee}\"\n");
            database.empty().await;
            let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, "").config(&fee)).await;
            account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own", "is_byok_only": true})), 201).await;
            let body = json!({"name": "k", "limit": 5, "include_byok_in_limit": counts});
            let key = account.send("POST", "/keys", body).await.json()["key"].as_str().unwrap().to_owned();
            let ask = account.gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string());
            assert_eq!(ask.send().await.status, status, "{fee} {counts}");
        }
    }

    async fn led_18_the_fee_of_a_stream_is_due_though_its_process_died(database: &Database) {
        let hand = Hand::start().await;
        let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), PRICED);
        let account = Account::start(database, gate.config("[billing]\nbyok_fee_percent = \"10\"\n")).await;
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own-key"})), 201).await;
        let mut body = hello_streamed(MODEL);
        // More than is journaled at once.
        body["max_tokens"] = json!(10_000);
        let ask = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
        let (streaming, mut call) = tokio::join!(ask.open(), async {
            let mut call = hand.call().await.streams().await;
            for frame in &tale(&"word ".repeat(2_000))[..3] {
                call.send(frame).await;
            }
            call
        });
        let id = streaming.id();
        let journal = JournalReader::open(&account.gate.place.data_dir()).unwrap();
        eventually("the journal knows how far it has come", Duration::from_secs(10), async || {
            // It is looked at with whatever comes.
            call.send(&frame("ping", r#"{"type":"ping"}"#)).await;
            let left = journal.left_open(i64::MAX).await.unwrap();
            left.first().is_some_and(|open| open.progress.is_some())
        })
        .await;
        journal.close().await;
        let Account { mut gate, store, .. } = account;
        gate.signal(Signal::KILL);
        gate.exit().await;
        let gate = gate.place.serve().await;
        let reply = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
        let record = reply.json()["data"].clone();
        // 14 tokens and 10 000 bytes.
        assert_eq!((&record["native_tokens_prompt"], &record["native_tokens_completion"]), (&json!(14), &json!(2_500)));
        assert_dollars(&record["upstream_inference_cost"], 0.005014);
        assert_dollars(&record["total_cost"], 0.0005014);
        let shown = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json()["data"].clone();
        assert_dollars(&shown["usage"], 0.0005014);
        assert_dollars(&shown["byok_usage"], 0.005014);
        verified(&gate.place).await;
        store.close().await;
    }
}
