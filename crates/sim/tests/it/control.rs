use serde_json::{Value, json};
use tidegate_sim::{Script, Sim};

use crate::client::{Reply, asks, call, post};

async fn control(sim: &Sim, method: &str, path: &str, body: &Value) -> Reply {
    call(sim, method, path, &[], body.to_string().as_bytes()).await
}

#[tokio::test]
async fn a_script_can_be_put() {
    let sim = Sim::start(Script::says("before")).await;
    let script = json!({"behaviour": {"status": {"code": 529}}, "then": [{"says": "after"}]});
    assert_eq!(control(&sim, "PUT", "/_sim/script", &script).await.status, 204);
    assert_eq!(post(&sim, &asks("hi")).await.status, 529);
    assert_eq!(post(&sim, &asks("hi")).await.json()["content"][0]["text"], "after");
}

#[tokio::test]
async fn a_script_that_cannot_be_read_changes_nothing() {
    let sim = Sim::start(Script::says("before")).await;
    let reply = control(&sim, "PUT", "/_sim/script", &json!({"behaviour": "unheard_of"})).await;
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("unheard_of"));
    assert_eq!(post(&sim, &asks("hi")).await.json()["content"][0]["text"], "before");
}

#[tokio::test]
async fn counts_and_requests_can_be_read() {
    let sim = Sim::start(Script::says("hello")).await;
    call(&sim, "POST", "/v1/messages?x=1", &[("x-api-key", "k")], asks("hi").to_string().as_bytes()).await;
    let stats = control(&sim, "GET", "/_sim/stats", &json!(null)).await.json();
    assert_eq!(stats, json!({"calls": 1, "count_calls": 0, "open": 0, "cancelled": 0}));

    let seen = control(&sim, "GET", "/_sim/requests", &json!(null)).await.json();
    assert_eq!(seen.as_array().unwrap().len(), 1);
    assert_eq!((&seen[0]["method"], &seen[0]["path"]), (&json!("POST"), &json!("/v1/messages?x=1")));
    assert!(seen[0]["headers"].as_array().unwrap().contains(&json!(["x-api-key", "k"])));
    // {"m in base64: the body is there whole.
    assert!(seen[0]["body_base64"].as_str().unwrap().starts_with("eyJt"));

    assert_eq!(control(&sim, "DELETE", "/_sim/requests", &json!(null)).await.status, 204);
    assert_eq!(control(&sim, "GET", "/_sim/requests", &json!(null)).await.json(), json!([]));
    assert_eq!(control(&sim, "GET", "/_sim/elsewhere", &json!(null)).await.status, 404);
}
