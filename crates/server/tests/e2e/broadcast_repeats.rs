//! What is sent again: the same letters under the same id, and a letter that is too large with less in it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tokio::task::JoinSet;

use crate::harness::receiver::{Receiver, Told};
use crate::harness::{INFERENCE_KEY, Tidegate, eventually, hello, user};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(60);
const DELIVERY: &str = "x-tidegate-delivery";

async fn made(gate: &Tidegate) -> String {
    gate.messages(hello(MODEL)).await.header("x-generation-id").unwrap().to_owned()
}

/// The ids under which a request was told.
fn deliveries(told: &[Told], id: &str) -> HashSet<String> {
    told.iter().filter(|told| told.body.contains(id)).map(|told| told.headers[DELIVERY].clone()).collect()
}

#[tokio::test]
async fn a_call_that_is_made_again_holds_the_same_letters() {
    let (sim, hook) = (Sim::start(Behaviour::says("hello")).await, Receiver::start().await);
    hook.says(503);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", "")).run().await;
    let first = made(&gate).await;
    eventually("the first is refused", PATIENCE, async || !deliveries(&hook.refused(), &first).is_empty()).await;
    // Others come while it waits, and are due with it.
    let mut ids = vec![first.clone()];
    for _ in 0..3 {
        ids.push(made(&gate).await);
    }
    let tries = || hook.refused().iter().filter(|told| told.body.contains(&first)).count();
    eventually("it is tried again", PATIENCE, async || tries() >= 2).await;
    hook.says(200);
    eventually("all are told", PATIENCE, async || {
        let told = hook.told();
        ids.iter().all(|id| told.iter().any(|told| told.body.contains(id.as_str())))
    })
    .await;
    let all = [hook.refused(), hook.told()].concat();
    for id in &ids {
        assert_eq!(deliveries(&all, id).len(), 1, "{id} went under one id: {all:?}");
    }
}

/// A destination that takes a lot, then nothing for a while: what goes out in several calls at once comes back in the same
/// ones, although what it says is made again.
#[tokio::test]
async fn many_calls_that_are_made_again_hold_the_same_letters_each() {
    calls_are_made_again(503).await;
}

/// All of them are put off to the same moment then, and stay apart all the same.
#[tokio::test]
async fn many_calls_that_are_asked_to_wait_hold_the_same_letters_each() {
    calls_are_made_again(429).await;
}

async fn calls_are_made_again(refusal: u16) {
    let (sim, hook) = (Sim::start(Behaviour::says("hello")).await, Receiver::start().await);
    let lines = hook.config("webhook", "privacy_mode = true") + "[limits]\nin_flight_key = 1000\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&lines).run().await;
    let many = async || {
        let mut running = JoinSet::new();
        for _ in 0..300 {
            let ask = gate.ask("POST", "/api/v1/messages").key(INFERENCE_KEY).json(hello(MODEL).to_string());
            running.spawn(async move { ask.send().await.header("x-generation-id").unwrap().to_owned() });
        }
        running.join_all().await
    };
    let taken = many().await;
    let is_told = |ids: &[String]| {
        let told: String = hook.told().into_iter().map(|told| told.body).collect();
        ids.iter().all(|id| told.contains(id.as_str()))
    };
    eventually("the first are told", PATIENCE, async || is_told(&taken)).await;
    hook.says(refusal);
    let later = many().await;
    eventually("some are refused", PATIENCE, async || hook.refused().len() >= 2).await;
    hook.says(200);
    eventually("all others are told", PATIENCE, async || is_told(&later)).await;
    let (refused, told) = (hook.refused(), hook.told());
    for call in &refused {
        let id = &call.headers[DELIVERY];
        let again: Vec<&Told> = told.iter().filter(|told| &told.headers[DELIVERY] == id).collect();
        assert_eq!(again.len(), 1, "a call that was refused is taken once, under the same id");
        assert_eq!(again[0].body, call.body);
    }
}

#[tokio::test]
async fn a_letter_that_is_too_large_is_told_with_less_in_it() {
    let (sim, collector) = (Sim::start(Behaviour::says("hello")).await, Receiver::start().await);
    collector.takes(100_000);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", "")).run().await;
    let long = "words ".repeat(40_000);
    let reply = gate.messages(json!({"model": MODEL, "max_tokens": 64, "messages": [user(&long)]})).await;
    assert_eq!(reply.status, 200);
    let id = reply.header("x-generation-id").unwrap();
    eventually("it is told", PATIENCE, async || collector.generations().contains(id)).await;
    let told = collector.told();
    let told = told.iter().find(|told| told.body.contains(id)).unwrap();
    assert!(told.body.contains("[cut: ") && told.body.contains("words words"), "{}", told.body.len());
    assert!(collector.refused().iter().any(|refused| refused.body.len() > 100_000), "the whole was offered first");
    // What is too large even so is given up.
    collector.takes(100);
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    eventually("it is given up", PATIENCE, async || {
        let metrics = gate.managed("/metrics").await.body_text().to_owned();
        metrics.contains(r#"tidegate_broadcast_dropped_total{destination_type="otel-collector",reason="given_up"} 1"#)
    })
    .await;
}
