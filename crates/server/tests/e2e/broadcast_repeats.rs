//! What is sent again: the same letters under the same id, and a letter that is too large with less in it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{Receiver, Told};
use crate::harness::{Tidegate, eventually, hello, user};

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
