//! The gateway's own spans, sent to a collector that the environment names.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{Receiver, attribute};
use crate::harness::{Tidegate, eventually, user};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_request_is_told_with_its_attempts_and_without_its_words() {
    let (busy, good) = (Sim::start(Behaviour::status(529)).await, Sim::start(Behaviour::Echo).await);
    let collector = Receiver::start().await;
    let mut place = Tidegate::start().endpoint(MODEL, &busy).endpoint(MODEL, &good).place();
    place.environment("OTEL_EXPORTER_OTLP_ENDPOINT", Some(&format!("http://{}", collector.address)));
    place.environment("OTEL_EXPORTER_OTLP_PROTOCOL", Some("http/json"));
    place.environment("OTEL_EXPORTER_OTLP_HEADERS", Some("x-own=of%20the%20collector"));
    place.environment("OTEL_SERVICE_NAME", Some("our-gate"));
    let gate = place.serve().await;
    let words = "the words that nobody else hears";
    let reply = gate.messages(json!({"model": MODEL, "max_tokens": 64, "messages": [user(words)]})).await;
    assert_eq!(reply.status, 200);
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let of_request = || -> Vec<Value> {
        let spans = collector.spans();
        let root = spans.iter().find(|span| attribute(span, "gateway.generation_id") == Some(json!(id))).cloned();
        let Some(root) = root else { return Vec::new() };
        let below = spans.into_iter().filter(|span| span["parentSpanId"] == root["spanId"]);
        let below: Vec<Value> = below.collect();
        std::iter::once(root).chain(below).collect()
    };
    eventually("the collector hears of it", PATIENCE, async || of_request().len() == 4).await;
    let spans = of_request();
    let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["POST /messages", "routing", "P0 vendor/m", "P1 vendor/m"]);
    assert_eq!(attribute(&spans[2], "http.response.status_code"), Some(json!("529")));
    // `STATUS_CODE_ERROR`, for the attempt that failed and for nothing else.
    let failed: Vec<bool> = spans.iter().map(|span| span["status"]["code"] == 2).collect();
    assert_eq!(failed, [false, false, true, false]);
    let told = collector.told();
    assert!(
        told.iter().all(|told| told.line == "POST /v1/traces" && told.headers["x-own"] == "of the collector"),
        "{told:?}"
    );
    assert!(told.iter().all(|told| told.body.contains("our-gate") && !told.body.contains(words)));
}

#[tokio::test]
async fn a_collector_that_hangs_costs_requests_nothing_and_is_counted() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let collector = Receiver::start().await;
    collector.says(404);
    let mut place = Tidegate::start().endpoint(MODEL, &sim).place();
    place.environment("OTEL_EXPORTER_OTLP_ENDPOINT", Some(&format!("http://{}", collector.address)));
    let gate = place.serve().await;
    assert_eq!(gate.messages(crate::harness::hello(MODEL)).await.status, 200);
    eventually("the loss is counted", PATIENCE, async || {
        gate.managed("/metrics").await.body_text().contains(r#"tidegate_own_spans_lost_total{reason="refused"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn a_collector_that_is_none_stops_the_start() {
    let place = Tidegate::start().place();
    let output = place.prepared(&["check"]).env("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere").output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("OTEL_EXPORTER_OTLP_ENDPOINT: must be an address"), "{text}");
}
