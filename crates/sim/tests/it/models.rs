use serde_json::json;
use tidegate_sim::{Script, Sim};

use crate::client::{asks, post, send, soon, streams, with};

#[tokio::test]
async fn a_model_name_chooses_the_behaviour() {
    let sim = Sim::start(Script::says("scripted")).await;
    let status = async |model: &str| post(&sim, &with(asks("hi"), json!({"model": model}))).await;
    assert_eq!(status("other").await.json()["content"][0]["text"], "scripted");
    assert_eq!(status("sim-unheard-of").await.json()["content"][0]["text"], "scripted");
    let echo = status("sim").await.json();
    assert!(echo["content"][0]["text"].as_str().unwrap().contains("hi"));
    assert_eq!(echo["model"], "sim");
    assert_eq!(status("sim-thinking").await.json()["content"][0]["type"], "thinking");
    assert_eq!(status("sim-refusal").await.json()["stop_reason"], "refusal");
    assert_eq!(status("sim-stop-pause_turn").await.json()["stop_reason"], "pause_turn");
    assert_eq!(status("sim-tokens-5x3").await.json()["usage"]["output_tokens"], 5);
    assert!(status("sim-cached").await.json()["usage"]["cache_read_input_tokens"].as_u64().unwrap() > 0);
    let limited = status("sim-status-429").await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("1")));
    assert_eq!(status("sim-status-404").await.header("retry-after"), None);
    assert_eq!(status("sim-tokens-999999999x9").await.status, 400);
}

#[tokio::test]
async fn a_model_name_chooses_a_fault() {
    let sim = Sim::start(Script::default()).await;
    let streamed = async |model: &str| post(&sim, &with(streams("hi"), json!({"model": model}))).await;
    assert!(!streamed("sim-close-mid").await.complete);
    assert_eq!(streamed("sim-error-mid").await.kinds().last().unwrap(), "error");
    assert_eq!(streamed("sim-garbage").await.header("content-type"), Some("text/html"));
    for model in ["sim-hang", "sim-hang-mid"] {
        let request = with(streams("hi"), json!({"model": model})).to_string();
        let calls = sim.calls();
        let socket = send(&sim, "POST", "/v1/messages", &[], request.as_bytes()).await;
        soon(sim.wait_calls(calls + 1)).await;
        assert_eq!(sim.open(), 1, "{model}");
        drop(socket);
        soon(sim.wait_open(0)).await;
    }
    assert_eq!(sim.cancelled(), 2);
}

#[tokio::test]
async fn model_names_can_be_left_to_the_script() {
    let sim = Sim::start(Script::says("scripted").by_model(false)).await;
    let reply = post(&sim, &with(asks("hi"), json!({"model": "sim-status-503"}))).await;
    assert_eq!(reply.json()["content"][0]["text"], "scripted");
}
