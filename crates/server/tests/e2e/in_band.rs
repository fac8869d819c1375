//! How a stream tells that it failed, when its status is out.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Script, Sim};

use crate::harness::{INFERENCE_KEY, Tidegate, hello_streamed};

const MODEL: &str = "vendor/m";

#[tokio::test]
async fn a_chat_stream_that_fails_before_anybody_answers_names_the_model_and_who_failed() {
    let sim = Sim::start(Script::status(429).first_byte(Duration::from_millis(300))).await;
    let config = "[stream]\nearly_commit_ms = 60\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    let ask = gate.ask("POST", "/v1/chat/completions").key(INFERENCE_KEY);
    let reply = ask.json(hello_streamed(MODEL).to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let chunks: Vec<Value> =
        reply.body_text().lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!(chunks.len(), 1, "{}", reply.body_text());
    assert_eq!((&chunks[0]["model"], &chunks[0]["provider"]), (&json!(MODEL), &json!("P0")));
    assert_eq!(chunks[0]["error"]["code"], 429, "{}", chunks[0]);
}
