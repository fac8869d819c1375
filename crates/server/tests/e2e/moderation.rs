//! Requests that are judged before anybody answers them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, gate_for, message};
use crate::harness::{INFERENCE_KEY, Service, Tidegate, eventually, hello};

const PRICED: &str = "[moderation]\nbackend = \"keywords\"\nkeywords = [\"Wreck\"]\nprice_per_call = 0.5\n";

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
        let gate = gate_for(&sim, protocol, PRICED).await;
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

#[tokio::test]
async fn documents_are_judged_in_whatever_form_they_come() {
    let sim = Sim::start(Behaviour::says("At six.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], PRICED).await;
    // "the wreck", in base64.
    let data = "dGhlIHdyZWNr";
    for source in [
        json!({"type": "text", "media_type": "text/plain", "data": "the wreck"}),
        json!({"type": "content", "content": "the wreck"}),
        json!({"type": "content", "content": [{"type": "text", "text": "the wreck"}]}),
        json!({"type": "base64", "media_type": "text/plain", "data": data}),
    ] {
        let mut body = saying("", false);
        let document = json!({"type": "document", "source": source});
        body["messages"][0]["content"] = json!([document, {"type": "text", "text": "All is well"}]);
        let reply = asked(&gate, &body).await;
        assert_eq!((reply.status, &reply.json()["metadata"]["reasons"]), (403, &json!(["wreck"])), "{document}");
    }
    assert_eq!(sim.calls(), 0, "nobody is called");
}

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

async fn record(gate: &Tidegate, id: &str) -> Value {
    gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json()["data"].take()
}

#[tokio::test]
async fn a_fee_is_on_record_whatever_becomes_of_the_request() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let gate = gate_for(&sim, protocol, PRICED).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let before = spent(&gate).await;
            let reply = asked(&gate, &saying("All is well", stream)).await;
            let cost = message(&reply)["usage"]["cost"].as_f64().unwrap();
            assert!(cost > 0.5 && cost < 0.51, "{case}: {cost}");
            assert!((spent(&gate).await - before - cost).abs() < 1e-9, "{case}");
            let told = record(&gate, reply.header("x-generation-id").unwrap()).await;
            assert!((told["total_cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{case}: {told}");

            // It was judged, and then nobody answered.
            sim.set(Behaviour::status(500));
            let before = spent(&gate).await;
            let reply = asked(&gate, &saying("All is well", stream)).await;
            assert!((spent(&gate).await - before - 0.5).abs() < 1e-9, "{case}");
            let told = record(&gate, reply.header("x-generation-id").unwrap()).await;
            assert_eq!(told["total_cost"].as_f64(), Some(0.5), "{case}: {told}");
            sim.set(Behaviour::says("At six."));

            // It was judged, and then nobody could be asked at all.
            let before = spent(&gate).await;
            let mut nowhere = saying("All is well", stream);
            nowhere["provider"] = json!({"only": ["nobody"]});
            assert!(asked(&gate, &nowhere).await.status >= 400, "{case}");
            assert!((spent(&gate).await - before - 0.5).abs() < 1e-9, "{case}");

            // What is flagged costs nothing, and is on record.
            let before = spent(&gate).await;
            let reply = asked(&gate, &saying("the wreck", stream)).await;
            let told = record(&gate, reply.header("x-generation-id").unwrap()).await;
            assert_eq!(
                (told["total_cost"].as_f64(), told["model"].as_str()),
                (Some(0.0), Some(MODEL)),
                "{case}: {told}"
            );
            assert!((spent(&gate).await - before).abs() < 1e-9, "{case}");
        }
        let verified = gate.place.run(&["ledger", "verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
}

#[tokio::test]
async fn an_answer_that_is_kept_is_not_judged_again() {
    let sim = Sim::start(Behaviour::says("At six.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], PRICED).await;
    let cached = async |body: &Value| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
        ask.json(body.to_string()).send().await
    };
    for stream in [false, true] {
        let body = saying("All is well", stream);
        let first = cached(&body).await;
        assert_eq!((first.status, first.header("x-tidegate-cache-status")), (200, Some("MISS")));
        let (before, calls) = (spent(&gate).await, sim.calls());
        let again = cached(&body).await;
        assert_eq!((again.status, again.header("x-tidegate-cache-status")), (200, Some("HIT")));
        assert_eq!((again.text(), sim.calls()), (first.text(), calls));
        assert!((spent(&gate).await - before).abs() < 1e-9, "neither the call nor the judgement is paid again");
        let id = again.header("x-generation-id").unwrap();
        assert_eq!(record(&gate, id).await["total_cost"].as_f64(), Some(0.0));
    }
}

#[tokio::test]
async fn an_answer_to_what_nobody_could_judge_is_not_kept() {
    let (sim, guard) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    let config = format!("[moderation]\nbackend = \"http\"\nurl = \"{}\"\non_error = \"allow\"\n", guard.url("/judge"));
    let gate = gate_for(&sim, PROTOCOLS[0], &config).await;
    for tools in [json!([]), json!([{"type": "tidegate:datetime"}])] {
        for stream in [false, true] {
            let case = format!("{tools} {stream}");
            let mut body = saying("the wreck", stream);
            body["tools"] = tools.clone();
            let cached = async || {
                let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
                ask.json(body.to_string()).send().await
            };
            guard.answers("/judge", "500 Internal Server Error", "text/plain", b"no");
            assert_eq!(cached().await.status, 200, "{case}");
            guard.says("/judge", &json!({"flagged": true, "reasons": ["ours"]}));
            assert_eq!(cached().await.status, 403, "{case}");
        }
    }
}

#[tokio::test]
async fn a_fee_that_nobody_can_pay_is_not_run_up() {
    let (sim, guard) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    let config = format!("[moderation]\nbackend = \"http\"\nurl = \"{}\"\nprice_per_call = 0.5\n", guard.url("/judge"));
    let gate = gate_for(&sim, PROTOCOLS[0], &config).await;
    let made = gate.place.run(&["keys", "create", "--name", "poor", "--limit", "0.1"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", std::time::Duration::from_secs(10), is_known).await;
    let reply = gate.ask("POST", "/v1/messages").key(&key).json(saying("hi", false).to_string()).send().await;
    let (status, _, _, text) = reply.error();
    assert_eq!(status, 402, "{text}");
    assert!(text.contains("moderation may cost $0.5"), "{text}");
    assert_eq!((guard.asked().len(), sim.calls()), (0, 0));
}

#[tokio::test]
async fn what_was_held_for_a_fee_that_is_not_due_can_be_spent() {
    let (sim, guard) = (Sim::start(Behaviour::says("ok")).await, Service::start().await);
    let backend = format!("backend = \"http\"\nurl = \"{}\"\non_error = \"deny\"\n", guard.url("/judge"));
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("[moderation]\n{backend}price_per_call = 0.5\n")).await;
    // One fee and the call, not two.
    let made = gate.place.run(&["keys", "create", "--name", "thrifty", "--limit", "0.9"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", std::time::Duration::from_secs(10), is_known).await;
    let say = async || gate.ask("POST", "/v1/messages").key(&key).json(saying("hi", false).to_string()).send().await;
    guard.says("/judge", &json!({"flagged": true, "reasons": ["ours"]}));
    for _ in 0..3 {
        assert_eq!(say().await.status, 403);
    }
    guard.answers("/judge", "500 Internal Server Error", "text/plain", b"no");
    for _ in 0..3 {
        assert_eq!(say().await.status, 503);
    }
    guard.says("/judge", &json!({"flagged": false}));
    assert_eq!(say().await.status, 200, "nothing of it is held any more");
    assert_eq!(say().await.status, 402, "and what was due is spent");
}
