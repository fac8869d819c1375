//! What every test starts with: a running gateway, requests to it, answers from it.

mod account;
pub mod books;
mod buyer;
mod cluster;
mod databases;
mod gate;
mod hand;
mod http;
mod load;
pub mod pdf;
pub mod receiver;
mod recorder;
mod service;
mod shell;
mod till;
mod valkey;

pub use account::{Account, assert_not_found, assert_refused, hash_of, shell};
pub use buyer::{Buy, Heard};
pub use cluster::{Cluster, free_port};
pub(crate) use databases::on_both;
pub use databases::{Database, with_postgres, with_sqlite};
pub use gate::{Builder, INFERENCE_KEY, MANAGEMENT_KEY, Place, Tidegate, command};
pub use hand::{Call, Hand};
pub use http::{Ask, Event, Reply, said, together};
pub use load::{Load, say};
pub use recorder::Recorder;
pub use service::Service;
pub use shell::{fed, ran, text};
pub use till::{Pace, Till};
pub use valkey::Valkey;

use std::time::Duration;

use serde_json::{Value, json};

/// Longer than anything here takes on a busy machine; reached only when something hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The outcome of something that must not take forever.
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Looks until the condition holds. For what has no signal to wait for: files, other processes, counters over HTTP.
pub async fn eventually(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(limit, looking).await.is_ok(), "{what}: not within {limit:?}");
}

pub fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The smallest request for a model.
pub fn hello(model: &str) -> Value {
    json!({"model": model, "max_tokens": 64, "messages": [user("hi")]})
}

/// The same, streamed.
pub fn hello_streamed(model: &str) -> Value {
    json!({"model": model, "max_tokens": 64, "stream": true, "messages": [user("hi")]})
}

/// An event as an upstream writes it.
pub fn frame(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A well-formed stream that says `text` in one delta, one event per entry.
pub fn tale(text: &str) -> Vec<String> {
    let start = r#"{"type":"message_start","message":{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":1}}}"#;
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    vec![
        frame("message_start", start),
        frame(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        frame("content_block_delta", &delta.to_string()),
        frame("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        frame(
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}"#,
        ),
        frame("message_stop", r#"{"type":"message_stop"}"#),
    ]
}
