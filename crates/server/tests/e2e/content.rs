//! What is said in requests, kept for workspaces that want it and for nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::KeyHash;
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::asks;
use crate::guardrails::guarded;
use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Place, Reply, Tidegate, assert_not_found, assert_refused, eventually,
    hash_of, hello, hello_streamed, on_both, user,
};
use crate::money::key;
use crate::planted::{Hunt, files, tables};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(20);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn saying(text: &str) -> Value {
    json!({"model": MODEL, "max_tokens": 64, "messages": [user(text)]})
}

async fn said(account: &Account, key: &str, body: Value) -> Reply {
    account.gate.ask("POST", "/v1/messages").key(key).json(body.to_string()).send().await
}

/// The id of a request that was made.
async fn made(account: &Account, key: &str, body: Value) -> String {
    said(account, key, body).await.header("x-generation-id").unwrap().to_owned()
}

async fn content(account: &Account, key: &str, id: &str) -> Reply {
    account.gate.ask("GET", &format!("/api/v1/generation/content?id={id}")).key(key).send().await
}

/// What must be kept, at once: the answer has ended.
async fn kept(account: &Account, id: &str) -> Value {
    let reply = content(account, MANAGEMENT_KEY, id).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.json()["data"].clone()
}

async fn want(account: &Account, settings: Value) {
    let mut settings = settings;
    settings["is_observability_io_logging_enabled"] = json!(true);
    account.data("PATCH", "/workspaces/default", Some(settings), 200).await;
}

fn clocked(mut place: Place, days: i64) -> Place {
    let file = place.beside("clock");
    std::fs::write(&file, (days * DAY_MS).to_string()).unwrap();
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().unwrap()));
    place
}

on_both! {
    async fn words_are_kept_where_they_are_wanted_and_shown_to_their_own(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello there")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let before = made(&account, INFERENCE_KEY, hello(MODEL)).await;
        want(&account, json!({})).await;
        assert_not_found(&content(&account, MANAGEMENT_KEY, &before).await);

        let mut body = saying("look");
        body["system"] = json!("be brief");
        body["tools"] = json!([{"name": "t", "input_schema": {"type": "object"}}]);
        body["trace"] = json!({"note": "not said"});
        // The smallest picture of the format.
        let pixel = "R0lGODlhAQABAAAAACwAAAAAAQABAAA=";
        let source = json!({"type": "base64", "media_type": "image/gif", "data": pixel});
        body["messages"][0]["content"] = json!([{"type": "text", "text": "look"}, {"type": "image", "source": source}]);
        for stream in [false, true] {
            body["stream"] = json!(stream);
            let id = made(&account, INFERENCE_KEY, body.clone()).await;
            let told = kept(&account, &id).await;
            let message = &told["input"]["messages"][0];
            assert_eq!((&message["role"], &message["content"][0]), (&json!("user"), &json!({"type": "text", "text": "look"})));
            let source = &message["content"][1]["source"];
            assert_eq!((&source["type"], &source["media_type"], &source["bytes"]), (&json!("reference"), &json!("image/gif"), &json!(23)));
            assert!(source.get("data").is_none() && source["sha256"].as_str().unwrap().len() == 64, "{source}");
            assert_eq!((&told["input"]["system"], &told["input"]["tools"]), (&body["system"], &body["tools"]));
            assert_eq!(told["input"].as_object().unwrap().len(), 3, "nothing else is kept: {told}");
            assert_eq!(told["output"], json!({"completion": "hello there", "reasoning": null}));
            assert_eq!(told["error"], Value::Null);
        }

        // Whoever sees the record sees what was said.
        let id = made(&account, INFERENCE_KEY, hello(MODEL)).await;
        let reply = content(&account, INFERENCE_KEY, &id).await;
        assert_eq!(reply.json()["data"]["input"], json!({"messages": [user("hi")]}));
        let stranger = key(&account, json!({})).await;
        assert_not_found(&content(&account, &stranger, &id).await);
        let message = said(&account, INFERENCE_KEY, hello(MODEL)).await.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(kept(&account, &message).await["output"]["completion"], "hello there");
        for query in ["", "?id=", "?id=a&id=b"] {
            assert_refused(&account.ask("GET", &format!("/generation/content{query}")).await, "id");
            assert_refused(&account.ask("DELETE", &format!("/generation/content{query}")).await, "id");
        }

        // What is deleted is gone at once.
        let path = format!("/generation/content?id={id}");
        let refused = account.gate.ask("DELETE", &format!("/api/v1{path}")).key(INFERENCE_KEY).send().await;
        assert_eq!(refused.status, 403);
        let deleted = account.ask("DELETE", &path).await;
        assert_eq!((deleted.status, deleted.json()), (200, json!({"deleted": true})));
        assert_not_found(&account.ask("DELETE", &path).await);
        assert_not_found(&content(&account, INFERENCE_KEY, &id).await);
        assert_eq!(account.audited().await.iter().filter(|action| *action == "content.deleted").count(), 1);
        assert_not_found(&account.ask("DELETE", "/generation/content?id=gen-01KBS35CG04TFF59TDWH9EDD1R").await);
        let off = json!({"is_observability_io_logging_enabled": false});
        account.data("PATCH", "/workspaces/default", Some(off), 200).await;
        assert_not_found(&content(&account, MANAGEMENT_KEY, &made(&account, INFERENCE_KEY, hello(MODEL)).await).await);
        let metrics = account.gate.managed("/metrics").await.body_text().to_owned();
        assert!(metrics.contains("tidegate_contents_kept_total 4"), "{metrics}");
        let mut lost = metrics.lines().filter(|line| line.starts_with("tidegate_contents_lost_total{"));
        assert!(lost.all(|line| line.ends_with(" 0")), "{metrics}");
    }

    async fn a_request_without_an_answer_tells_why(database: &Database) {
        let (busy, broken) = (Sim::start(Behaviour::status(529)).await, Sim::start(Behaviour::status(500)).await);
        let gate = Tidegate::start().endpoint(MODEL, &busy).endpoint(MODEL, &broken);
        let account = Account::start(database, gate).await;
        want(&account, json!({})).await;
        for body in [hello(MODEL), hello_streamed(MODEL)] {
            let reply = said(&account, INFERENCE_KEY, body).await;
            let told = kept(&account, reply.header("x-generation-id").unwrap()).await;
            assert_eq!(told["input"], json!({"messages": [user("hi")]}));
            assert_eq!(told["output"], json!({"completion": null, "reasoning": null}));
            let error = &told["error"];
            assert_eq!((error["status"].as_u64().unwrap(), &error["message"]), (reply.status.into(), &json!(reply.error().3)));
            assert_eq!((&error["provider_name"], &error["raw"]), (&json!("P1"), &Value::Null));
            let before = &error["previous_errors"][0];
            assert_eq!((&before["code"], &before["provider_name"]), (&json!(529), &json!("P0")));
        }
    }

    async fn nothing_of_it_lies_in_clear_anywhere(database: &Database) {
        let mut hunt = Hunt::default();
        let sim = Sim::start(Behaviour::Echo).await;
        let trace = "[log]\nlevel = \"trace\"\nformat = \"json\"\n";
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(trace)).await;
        want(&account, json!({})).await;
        for stream in [false, true] {
            let mut body = saying(&hunt.plant(&format!("a question, echoed, {stream}")));
            body["system"] = json!(hunt.plant(&format!("a system prompt, {stream}")));
            body["stream"] = json!(stream);
            let id = made(&account, INFERENCE_KEY, body.clone()).await;
            let told = kept(&account, &id).await;
            assert_eq!(told["input"]["messages"], body["messages"]);
            assert!(told["output"]["completion"].as_str().unwrap().contains("sk-"), "{told}");
        }
        hunt.keep("the metrics", &account.gate.managed("/metrics").await);
        hunt.found.push(("the log".to_owned(), account.gate.stderr().into_bytes()));
        files(&account.gate.place.data_dir(), &mut hunt).await;
        if database.url().starts_with("postgres") {
            tables(&database.url(), &mut hunt).await;
        }
        assert!(hunt.planted.len() == 4 && hunt.found.len() > 4);
        hunt.look();
    }

    async fn words_survive_a_stop_and_leave_when_their_days_are_over(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello there")).await;
        let config = format!("{}[io_logging]\nretention_days = 5\n", database.config());
        let place = clocked(Tidegate::start().endpoint(MODEL, &sim).config(&config).place(), 0);
        let account = Account::start_at(database, place).await;
        want(&account, json!({})).await;
        let id = made(&account, INFERENCE_KEY, hello(MODEL)).await;
        // The record may wait in the journal; what was said must not be lost with it.
        let (status, place) = account.gate.stop().await;
        assert!(status.success());
        let again = Account::start_at(database, clocked(place, 4)).await;
        assert_eq!(kept(&again, &id).await["output"]["completion"], "hello there");
        let (_, place) = again.gate.stop().await;
        let again = Account::start_at(database, clocked(place, 6)).await;
        eventually("it leaves", PATIENCE, async || content(&again, MANAGEMENT_KEY, &id).await.status == 404).await;
        assert_eq!(again.ask("GET", &format!("/generation?id={id}")).await.status, 200, "the record stays");
    }
}

#[tokio::test]
async fn a_retention_of_no_days_is_refused() {
    let place = Tidegate::start().config("[io_logging]\nretention_days = 0\n").place();
    let output = place.run(&["check"]).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("io_logging.retention_days: must be 1 to 3650"), "{text}");
}

#[test]
fn only_wanted_keys_and_sessions_are_kept_and_nothing_that_must_not_be() {
    crate::harness::with_sqlite(async |database| {
        let sim = Sim::start(Behaviour::Echo).await;
        let forgets = "data_policy = { retains = false, trains = false }\n";
        let gate = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), forgets, "");
        let account = Account::start(database, gate).await;
        // The first thirteen digits of the hash are a key's number.
        let number = i64::from_str_radix(&hash_of(INFERENCE_KEY)[..13], 16).unwrap();
        let other = key(&account, json!({})).await;
        want(&account, json!({"io_logging_api_key_ids": [number]})).await;
        let status = async |key: &str, body: Value| {
            let reply = said(&account, key, body).await;
            let kept = content(&account, MANAGEMENT_KEY, reply.header("x-generation-id").unwrap()).await.status;
            (reply.status, kept)
        };
        assert_eq!(status(INFERENCE_KEY, hello(MODEL)).await, (200, 200));
        assert_eq!(status(&other, hello(MODEL)).await, (200, 404));

        // Who asks for it to be forgotten, or must.
        want(&account, json!({"io_logging_api_key_ids": null})).await;
        assert_eq!(status(&other, hello(MODEL)).await, (200, 200));
        let mut forgetful = hello(MODEL);
        forgetful["provider"] = json!({"zdr": true});
        assert_eq!(status(&other, forgetful).await, (200, 404));
        let held = guarded(&account, json!({"enforce_zdr_other": true})).await;
        assert_eq!(status(&held, hello(MODEL)).await, (200, 404));
        let elsewhere = guarded(&account, json!({"enforce_zdr_openai": true})).await;
        assert_eq!(status(&elsewhere, hello(MODEL)).await, (200, 200), "that is about other models");

        // What a guardrail takes out is not kept, and what it blocks is not either.
        let filters = json!([{"slug": "email", "action": "redact"}, {"slug": "credit-card", "action": "block"}]);
        let filtered = guarded(&account, json!({"content_filter_builtins": filters})).await;
        let told = kept(&account, &made(&account, &filtered, saying("Ask ann@example.org.")).await).await;
        assert_eq!(told["input"]["messages"], json!([user("Ask [EMAIL].")]));
        assert_eq!(status(&filtered, saying("pay with 4111 1111 1111 1111")).await, (403, 404));

        // Whole sessions, by the hash that decides for destinations.
        want(&account, json!({"io_logging_sampling_rate": 0.5})).await;
        let mut drawn = 0;
        for session in 0..24 {
            let mut body = hello(MODEL);
            body["session_id"] = json!(format!("session {session}"));
            let hash = KeyHash::of(format!("{}|session {session}", account.workspace.0).as_bytes());
            let share = u64::from_be_bytes(hash.as_bytes()[..8].try_into().unwrap()) as f64 / 2_f64.powi(64);
            let expected = if share < 0.5 { 200 } else { 404 };
            drawn += usize::from(share < 0.5);
            for _ in 0..2 {
                assert_eq!(status(INFERENCE_KEY, body.clone()).await, (200, expected), "session {session}");
            }
        }
        assert!((1..24).contains(&drawn));
    });
}

#[test]
fn a_loop_is_shown_from_its_question_to_its_last_answer() {
    crate::harness::with_sqlite(async |database| {
        let call = asks("let me see", &[("tidegate_datetime", json!({"timezone": "UTC"}))]);
        let sim = Sim::start(Script::from(call).then(Behaviour::says("it is late"))).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        want(&account, json!({})).await;
        let mut body = hello(MODEL);
        body["tools"] = json!([{"type": "tidegate:datetime"}]);
        let id = made(&account, INFERENCE_KEY, body).await;
        let told = kept(&account, &id).await;
        assert_eq!(told["input"]["messages"], json!([user("hi")]));
        assert_eq!(told["output"]["completion"], "it is late");
        assert_eq!(account.ask("DELETE", &format!("/generation/content?id={id}")).await.status, 200);
        assert_not_found(&content(&account, MANAGEMENT_KEY, &id).await);
    });
}

#[test]
fn a_kept_answer_that_is_given_again_is_kept_again() {
    crate::harness::with_sqlite(async |database| {
        let sim = Sim::start(Behaviour::says("hello there")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        want(&account, json!({})).await;
        for body in [hello(MODEL), hello_streamed(MODEL)] {
            for status in ["MISS", "HIT"] {
                let ask =
                    account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
                let reply = ask.json(body.to_string()).send().await;
                assert_eq!(reply.header("x-tidegate-cache-status"), Some(status));
                let told = kept(&account, reply.header("x-generation-id").unwrap()).await;
                assert_eq!(told["output"]["completion"], "hello there", "{status}");
            }
        }
    });
}
