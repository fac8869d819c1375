//! Who answers when the first does not: how often others are asked, and what is left when they cannot help either.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Script, Sim};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{
    INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hello, hello_streamed, tale, together,
};

const PATIENCE: Duration = Duration::from_secs(30);

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

/// A stream that declines before it has said anything: fourteen tokens in and nine out.
fn declines() -> Behaviour {
    let text = tale("");
    let chunks = [text[0].clone(), text[4].replace("end_turn", "refusal"), text[5].clone()];
    Behaviour::RawStream { chunks: chunks.map(Bytes::from).to_vec(), end: End::Close }
}

/// The same in one piece.
fn declined() -> Behaviour {
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"refusal","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9}}"#;
    Behaviour::Raw {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: Bytes::from(body),
    }
}

#[tokio::test]
async fn a_refusal_is_the_answer_when_whoever_comes_after_it_cannot_answer() {
    let (first, second) = (Sim::start(declined()).await, Sim::start(Behaviour::says("second")).await);
    let priced = |price: u32| format!("pricing = {{ input = {price}, output = {price} }}");
    let gate = Tidegate::start().endpoint_with(FIRST, &first, &priced(1));
    let gate = gate.endpoint_with(SECOND, &second, &priced(1_000_000)).run().await;
    // Enough for the first model and not for the second.
    let ask = gate.ask("POST", "/v1/keys").key(MANAGEMENT_KEY);
    let made = ask.json(json!({"name": "poor", "limit": 1}).to_string()).send().await.json();
    let poor = made["key"].as_str().unwrap();
    let fails = [Behaviour::status(500), Behaviour::status(400), Behaviour::status(429)];
    for streamed in [false, true] {
        first.set(if streamed { declines() } else { declined() });
        for (key, behaviour) in fails.iter().map(|fails| (INFERENCE_KEY, fails)).chain([(poor, &Behaviour::Echo)]) {
            second.set(behaviour.clone());
            let ask = gate.ask("POST", "/v1/messages").key(key).header("x-tidegate-metadata", "enabled");
            let reply = ask.json(either(streamed).to_string()).send().await;
            let case = format!("{behaviour:?}, streamed: {streamed}: {}", reply.body_text());
            assert_eq!(reply.status, 200, "{case}");
            let (reason, cost, metadata) = if streamed {
                let (delta, stop) = match &reply.events()[..] {
                    [_, .., delta, stop] => (delta.json(), stop.json()),
                    _ => panic!("{case}"),
                };
                assert_eq!(stop["type"], "message_stop", "{case}");
                (
                    delta["delta"]["stop_reason"].clone(),
                    delta["usage"]["cost"].clone(),
                    stop["tidegate_metadata"].clone(),
                )
            } else {
                let json = reply.json();
                assert_eq!(json["model"], FIRST, "{case}");
                (json["stop_reason"].clone(), json["usage"]["cost"].clone(), json["tidegate_metadata"].clone())
            };
            assert_eq!((&reason, &cost), (&json!("refusal"), &json!(0.000023)), "{case}");
            let called: &[&str] = if key == poor { &["P0"] } else { &["P0", "P1"] };
            let tried: Vec<&str> = metadata["attempts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|tried| tried["provider"].as_str().unwrap())
                .collect();
            assert_eq!(
                (&tried[..], &metadata["endpoints"]["available"][0]["selected"]),
                (called, &json!(true)),
                "{case}"
            );
            assert_eq!(metadata["attempt"], 1, "{case}");
            let id = reply.header("x-generation-id").unwrap();
            let ask = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(key);
            let record = ask.send().await.json()["data"].clone();
            let told = (&record["model"], &record["total_cost"], &record["finish_reason"]);
            assert_eq!(told, (&json!(FIRST), &json!(0.000023), &json!("refusal")), "{case}");
        }
    }
}

#[tokio::test]
async fn a_refusal_for_want_of_a_better_answer_is_not_given_again() {
    let (first, second, gate) = pair("").await;
    for streamed in [false, true] {
        first.set(if streamed { declines() } else { declined() });
        let ask = || gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
        second.set(Behaviour::status(500));
        let reply = ask().json(either(streamed).to_string()).send().await;
        assert!(reply.status == 200 && reply.body_text().contains("refusal"), "{}", reply.body_text());
        second.set(Behaviour::says("second"));
        let reply = ask().json(either(streamed).to_string()).send().await;
        assert_eq!(reply.text(), "second", "{streamed}: {}", reply.body_text());
    }
}

#[tokio::test]
async fn whoever_leaves_between_two_attempts_pays_for_none_of_them() {
    let sim = Sim::start(Behaviour::Echo).await;
    // It says what it used, and breaks off before anything was said.
    let text = tale("hello");
    let chunks = [text[0].clone(), text[4].clone()].map(Bytes::from).to_vec();
    // The pause before the next attempt may be none at all: then it has not been answered when they leave.
    let tells = Script::from(Behaviour::RawStream { chunks, end: End::Close }).first_byte(Duration::from_millis(750));
    sim.set(tells);
    let gate = Tidegate::start().by_chance().endpoint_with(FIRST, &sim, "pricing = { input = 1000, output = 1000 }");
    let gate = gate.config("[log]\nlevel = \"debug\"\n").run().await;
    let mut body = hello(FIRST);
    body["stream"] = json!(true);
    let body = body.to_string();
    for _ in 0..8 {
        let failed = || (gate.stdout() + &gate.stderr()).matches("an attempt failed").count();
        let before = failed();
        let mut stream = gate.connect().await;
        let head = format!("POST /v1/messages HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {INFERENCE_KEY}\r\n");
        let head = format!("{head}content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        // A pause follows before it is called again.
        eventually("it fails", PATIENCE, async || failed() > before).await;
        drop(stream);
    }
    // Everything is settled when it has stopped.
    let (status, place) = gate.stop().await;
    assert!(status.success());
    let gate = place.serve().await;
    let key = gate.ask("GET", "/v1/key").key(INFERENCE_KEY).send().await;
    assert_eq!(key.json()["data"]["usage"], 0, "nothing was answered");
}

#[tokio::test]
async fn who_has_nobody_else_to_ask_waits_for_the_rest_of_an_answer() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 2 }).await;
    let config = "[upstream]\ntotal_whole_ms = 1500\nidle_ms = 100\n";
    let gate = Tidegate::start().endpoint(FIRST, &sim).config(config).run().await;
    let since = tokio::time::Instant::now();
    assert_eq!(gate.messages(hello(FIRST)).await.status, 504);
    assert!(since.elapsed() >= Duration::from_millis(1_400), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_whole_answer_that_does_not_come_or_stops_coming_is_got_elsewhere() {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("second")).await);
    let config = "[upstream]\nfirst_content_alone_ms = 200\ntotal_whole_ms = 2000\nidle_ms = 200\n";
    for protocol in ["anthropic", "openai-chat"] {
        let base_url = |sim: &Sim| format!("{}{}", sim.base_url(), if protocol == "anthropic" { "" } else { "/v1" });
        let gate = Tidegate::start().protocol_at(FIRST, protocol, &base_url(&first), "");
        let gate = gate.protocol_at(FIRST, protocol, &base_url(&second), "").config(config).run().await;
        for behaviour in [Behaviour::HangBeforeHeaders, Behaviour::HangMidStream { after: 2 }] {
            first.set(behaviour.clone());
            let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
            let reply = ask.json(hello(FIRST).to_string()).send().await;
            let case = format!("{protocol}, {behaviour:?}: {}", reply.body_text());
            assert_eq!((reply.status, reply.text().as_str()), (200, "second"), "{case}");
            let tried = &reply.json()["tidegate_metadata"]["attempts"];
            assert_eq!((&tried[0]["status"], &tried[1]["status"]), (&json!(408), &json!(200)), "{case}");
        }
    }
}

#[tokio::test]
async fn a_provider_is_waited_for_as_long_as_it_is_said_to_take() {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("second")).await);
    // Longer or shorter than all others, by what is said of the first alone.
    let slow = "timeouts = { first_content_ms = 20000, first_content_alone_ms = 20000, idle_ms = 20000 }";
    let quick = "timeouts = { first_content_ms = 150, first_content_alone_ms = 150, idle_ms = 150 }";
    let all = "[upstream]\nfirst_content_ms = 150\nfirst_content_alone_ms = 150\nidle_ms = 150\ntotal_whole_ms = 250\n";
    for (timeouts, config, behaviour, streamed, whole) in [
        (quick, "", Script::from(Behaviour::HangBeforeHeaders), "second", Some("second")),
        (slow, all, Script::says("first").first_byte(Duration::from_millis(600)), "first", None),
        (quick, "", Script::from(Behaviour::HangMidStream { after: 2 }), "second", Some("second")),
    ] {
        first.set(behaviour);
        let gate = Tidegate::start().endpoint_of(FIRST, &first.base_url(), timeouts, "");
        let gate = gate.endpoint(FIRST, &second).config(config).run().await;
        assert_eq!(gate.messages(hello_streamed(FIRST)).await.text(), streamed, "{timeouts}");
        if let Some(whole) = whole {
            assert_eq!(gate.messages(hello(FIRST)).await.text(), whole, "{timeouts}");
        }
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_only_long_is_waited_for() {
    let (first, second) = (Sim::start(Behaviour::says("first")).await, Sim::start(Behaviour::says("second")).await);
    first.set(Script::says("first").first_byte(Duration::from_millis(500)));
    let config = "[upstream]\nfirst_content_ms = 100\nfirst_content_alone_ms = 200\nidle_ms = 200\n";
    let gate = Tidegate::start().endpoint(FIRST, &first).endpoint(FIRST, &second).config(config).run().await;
    assert_eq!(gate.messages(hello(FIRST)).await.text(), "first");
    let mut streamed = hello(FIRST);
    streamed["stream"] = json!(true);
    assert_eq!(gate.messages(streamed).await.text(), "second", "a stream begins when the model does");
}

#[tokio::test]
async fn what_the_caller_must_mend_is_told_though_somebody_else_was_out_of_order() {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = Tidegate::start().by_chance().endpoint(FIRST, &first).endpoint(FIRST, &second);
    let gate = gate.config("[routing]\nhealth = false\n").run().await;
    let mut body = hello(FIRST);
    body["provider"] = json!({"order": ["p0", "p1"]});
    let says = |code: u16, message: &str| Behaviour::Status {
        code,
        retry_after: None,
        error_type: Some("invalid_request_error".to_owned()),
        message: Some(message.to_owned()),
    };
    let long = "prompt is too long: 300000 tokens > 200000 maximum";
    for passing in [500, 429] {
        for (code, words, told) in [
            (400, "your schema is wrong", "Provider returned error: your schema is wrong"),
            (422, "no such tool", "Provider returned error: no such tool"),
            (413, "too large", "Request payload too large"),
            (400, long, long),
        ] {
            first.set(Behaviour::status(passing));
            second.set(says(code, words));
            let before = first.calls();
            let reply = gate.messages(body.clone()).await;
            let (status, _, _, message) = reply.error();
            assert_eq!((status, message.as_str(), first.calls() - before), (code, told, 1), "{}", reply.body_text());
            let failed = reply.json()["metadata"]["previous_errors"].as_array().map(Vec::len);
            assert_eq!(failed, Some(2), "{}", reply.body_text());
        }
    }
}

#[tokio::test]
async fn every_failed_call_is_named_also_those_of_one_endpoint() {
    let (first, second) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::status(503)).await);
    let gate = Tidegate::start().by_chance().endpoint(FIRST, &first).endpoint(FIRST, &second);
    let gate = gate.config("[routing]\nhealth = false\n").run().await;
    for (order, only, expected) in [
        (json!(["p0", "p1"]), json!(["p0", "p1"]), json!([["p0", 500], ["p1", 503], ["p0", 500]])),
        (json!(["p0"]), json!(["p0"]), json!([["p0", 500], ["p0", 500], ["p0", 500]])),
    ] {
        let mut body = hello(FIRST);
        body["provider"] = json!({"order": order, "only": only});
        let reply = gate.messages(body).await.json();
        let named: Vec<Value> = reply["metadata"]["previous_errors"].as_array().unwrap().clone();
        let named: Vec<Value> = named.iter().map(|one| json!([one["provider"], one["status"]])).collect();
        assert_eq!(json!(named), expected, "{reply}");
    }
}
