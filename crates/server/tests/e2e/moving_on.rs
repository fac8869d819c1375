//! Who answers when the first does not: how often others are asked, and what is left when they cannot help either.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, hello, together};

/// A model, and another one at another provider that may answer instead.
const FIRST: &str = "vendor/first";
const SECOND: &str = "vendor/second";

/// A model that may refuse or fail, and one for that case. Who is tried, and how often, is as it is by default.
async fn pair(config: &str) -> (Sim, Sim, Tidegate) {
    let (first, second) = (Sim::start(Behaviour::Refusal).await, Sim::start(Behaviour::says("second")).await);
    let gate = Tidegate::start().by_chance().endpoint(FIRST, &first).endpoint(SECOND, &second).config(config);
    (first, second, gate.run().await)
}

fn either(streamed: bool) -> Value {
    let mut body = hello(FIRST);
    body["models"] = json!([SECOND]);
    body["stream"] = json!(streamed);
    body
}

async fn at_once(gate: &Tidegate, calls: usize, body: &Value) -> Vec<Reply> {
    let ask = |_| gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
    together((0..calls).map(ask)).await
}

#[tokio::test]
async fn ret_5_whoever_is_refused_by_one_model_gets_another_however_many_there_are() {
    let (first, second, gate) = pair("").await;
    // Many more than the hundred retries that a node may make in a burst.
    for behaviour in [Behaviour::Refusal, Behaviour::status(400), Behaviour::status(404), Behaviour::status(429)] {
        first.set(behaviour.clone());
        for _ in 0..3 {
            for reply in at_once(&gate, 60, &either(false)).await {
                assert_eq!((reply.status, reply.text().as_str()), (200, "second"), "{behaviour:?}");
            }
        }
    }
    // And nothing of that is taken from those whose provider is sick.
    first.set(Behaviour::status(500));
    assert_eq!(gate.messages(either(false)).await.text(), "second");
    assert_eq!(second.calls(), 4 * 180 + 1);
}
