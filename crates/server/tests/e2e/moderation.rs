//! Requests that are judged before anybody answers them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, gate_for, message};
use crate::harness::{Service, hello};

fn saying(text: &str, stream: bool) -> Value {
    let mut body = hello(MODEL);
    (body["messages"][0]["content"], body["stream"]) = (json!(text), json!(stream));
    body["plugins"] = json!([{"id": "moderation"}]);
    body
}

fn entry(metadata: &Value) -> Value {
    let pipeline = metadata["pipeline"].as_array().unwrap();
    pipeline.iter().find(|entry| entry["name"] == "moderation").unwrap().clone()
}

#[tokio::test]
async fn what_is_flagged_is_refused_and_costs_nothing_on_every_protocol() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let config = "[moderation]\nbackend = \"keywords\"\nkeywords = [\"Wreck\"]\nprice_per_call = 0.5\n";
        let gate = gate_for(&sim, protocol, config).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let answer = message(&asked(&gate, &saying("All is well", stream)).await);
            let told = entry(&answer["tidegate_metadata"]);
            assert_eq!((&told["type"], &told["data"]["flagged"]), (&json!("guardrail"), &json!(false)), "{case}");
            assert_eq!((&told["data"]["decision"], &told["cost_usd"]), (&json!("allowed"), &json!(0.5)), "{case}");
            assert!(answer["usage"]["cost"].as_f64().unwrap() > 0.5, "{case}: {}", answer["usage"]);
            let calls = sim.calls();
            let long = format!("{} the wreck {}", "a".repeat(80), "b".repeat(80));
            let reply = asked(&gate, &saying(&long, stream)).await;
            let (status, kind, _, text) = reply.error();
            assert_eq!((status, &*kind), (403, "permission_error"), "{case}");
            assert_eq!(text, format!("{MODEL} requires moderation and the input was flagged"), "{case}");
            let wanted = json!({"reasons": ["wreck"], "flagged_input": format!("{}...{}", "a".repeat(48), "b".repeat(49)),
                "provider_name": "keywords", "model_slug": MODEL});
            assert_eq!(reply.json()["metadata"], wanted, "{case}");
            let told = entry(&reply.json()["tidegate_metadata"]);
            assert_eq!(
                (&told["data"]["flagged"], &told["data"]["decision"]),
                (&json!(true), &json!("blocked")),
                "{case}"
            );
            assert_eq!(sim.calls(), calls, "{case}: nobody is called");
        }
        // Nothing of it is told to those who did not ask.
        let plain = gate.messages(saying("the wreck", false)).await;
        assert_eq!((plain.status, plain.json().get("tidegate_metadata")), (403, None));
        // Without the plugin nobody judges.
        let mut free = saying("the wreck", false);
        free["plugins"] = json!([{"id": "moderation", "enabled": false}]);
        assert_eq!(asked(&gate, &free).await.status, 200);
    }
}

#[tokio::test]
async fn services_judge_and_what_is_done_without_an_answer_is_the_operators_choice() {
    let (sim, guard) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    let config = |backend: &str, on_error: &str| {
        format!(
            "[moderation]\nbackend = \"{backend}\"\nurl = \"{}\"\napi_key = \"guard-secret\"\non_error = \"{on_error}\"\n",
            guard.url("/judge")
        )
    };
    let openai = gate_for(&sim, PROTOCOLS[0], &config("openai", "allow")).await;
    guard.says("/judge", &json!({"results": [{"flagged": true, "categories": {"hate": false, "violence": true}}]}));
    let reply = asked(&openai, &saying("the wreck", false)).await;
    assert_eq!((reply.status, &reply.json()["metadata"]["reasons"]), (403, &json!(["violence"])));
    let question = guard.asked().pop().unwrap();
    assert!(question.head.contains("authorization: bearer guard-secret"));
    assert_eq!(question.json(), json!({"model": "omni-moderation-latest", "input": ["the wreck"]}));
    guard.says("/judge", &json!({"results": [{"flagged": false, "categories": {}}]}));
    assert_eq!(asked(&openai, &saying("the wreck", false)).await.status, 200);

    let own = gate_for(&sim, PROTOCOLS[0], &config("http", "deny")).await;
    guard.says("/judge", &json!({"flagged": true, "reasons": ["ours"]}));
    let reply = asked(&own, &saying("the wreck", false)).await;
    assert_eq!((reply.status, &reply.json()["metadata"]["reasons"]), (403, &json!(["ours"])));
    guard.says("/judge", &json!({"flagged": false}));
    assert_eq!(asked(&own, &saying("the wreck", false)).await.status, 200);

    let calls = sim.calls();
    guard.answers("/judge", "500 Internal Server Error", "text/plain", b"no");
    assert_eq!(asked(&own, &saying("the wreck", false)).await.status, 503);
    assert_eq!(sim.calls(), calls);
    let let_through = asked(&openai, &saying("the wreck", false)).await;
    assert_eq!(entry(&let_through.json()["tidegate_metadata"])["data"]["decision"], "unknown");
    assert!(!own.stderr().contains("guard-secret") && !own.stderr().contains("the wreck"));

    let bare = gate_for(&sim, PROTOCOLS[0], "").await;
    let (status, _, _, text) = asked(&bare, &saying("hi", false)).await.error();
    assert_eq!((status, &*text), (400, "moderation is not configured on this deployment"));
}
