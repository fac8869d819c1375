//! Embeddings: asked for, paid, put on record and refused as messages are, at every kind of upstream that makes them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{Receiver, attribute};
use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually};

const MODEL: &str = "vectors/m";
/// Dollars for a million tokens: a nano-dollar buys ten.
const PRICED: &str = "pricing = { input = 100, output = 0 }";
const PER_TOKEN: f64 = 1e-4;

fn at(sim: &Sim, protocol: &str) -> String {
    let path = match protocol {
        "gemini" => "/v1beta",
        "cohere" => "",
        _ => "/v1",
    };
    format!("{}{path}", sim.base_url())
}

async fn gate_with(sims: &[(&Sim, &str)], config: &str) -> Tidegate {
    let mut start = Tidegate::start().embeds(MODEL).config(config);
    for (sim, protocol) in sims {
        start = start.protocol_at(MODEL, protocol, &at(sim, protocol), PRICED);
    }
    start.run().await
}

async fn post(gate: &Tidegate, path: &str, body: &Value) -> Reply {
    gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await
}

async fn made(gate: &Tidegate, more: Value) -> Reply {
    let mut body = json!({"model": MODEL, "input": ["a small boat", "fog"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(gate, "/api/v1/embeddings", &body).await
}

fn sent(sim: &Sim) -> Value {
    serde_json::from_slice(&sim.requests().last().unwrap().body).unwrap()
}

async fn record(gate: &Tidegate, reply: &Reply) -> Value {
    let id = reply.header("x-generation-id").unwrap();
    gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json()["data"].clone()
}

fn message(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

fn near(one: &Value, other: f64) -> bool {
    (one.as_f64().unwrap() - other).abs() < 1e-9
}

#[tokio::test]
async fn vectors_are_made_paid_by_the_token_and_put_on_record() {
    // Four words; Google counts nothing, and 15 bytes are taken for four tokens, too: three, and one.
    for (protocol, path) in [
        ("openai-chat", "/v1/embeddings"),
        ("openai-responses", "/v1/embeddings"),
        ("cohere", "/v2/embed"),
        ("gemini", "/v1beta/models/m:batchEmbedContents"),
    ] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_with(&[(&sim, protocol)], "").await;
        let reply = made(&gate, json!({})).await;
        assert_eq!(reply.status, 200, "{protocol}: {}", reply.body_text());
        let answer = reply.json();
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!(MODEL)));
        assert_eq!(answer["id"], reply.header("x-generation-id").unwrap());
        let entry = |index: u64, vector: [f64; 4]| json!({"object": "embedding", "index": index, "embedding": vector});
        assert_eq!(
            answer["data"],
            json!([entry(0, [12.0, 0.0, 0.5, 0.5]), entry(1, [3.0, 1.0, 0.5, 0.5])]),
            "{protocol}"
        );
        let usage = &answer["usage"];
        assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(4), &json!(4)), "{protocol}");
        assert!(near(&usage["cost"], 4.0 * PER_TOKEN), "{answer}");
        assert_eq!(sim.requests().last().unwrap().path, path);
        let record = record(&gate, &reply).await;
        assert_eq!((&record["model"], &record["api_type"]), (&json!(MODEL), &json!("embeddings")), "{record}");
        assert!(near(&record["total_cost"], 4.0 * PER_TOKEN), "{record}");
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        assert!(near(&key["data"]["usage"], 4.0 * PER_TOKEN), "{key}");
    }
}

#[tokio::test]
async fn they_are_written_as_the_caller_wants_them_wherever_they_come_from() {
    // 3, 0, 0.5 and 0.5 as numbers of four bytes: 00004040 00000000 0000003f 0000003f.
    let coded = "AABAQAAAAAAAAAA/AAAAPw==";
    for protocol in ["openai-chat", "cohere", "gemini"] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_with(&[(&sim, protocol)], "").await;
        let reply = made(&gate, json!({"input": "fog", "encoding_format": "base64"})).await;
        assert_eq!(reply.json()["data"][0]["embedding"], coded, "{protocol}: {}", reply.body_text());
        let small = made(&gate, json!({"input": "fog", "dimensions": 2})).await.json();
        assert_eq!(small["data"][0]["embedding"], json!([3.0, 0.0]), "{protocol}");
    }
    // One that does not know the option is asked without it, and what it says is written anew.
    let sim = Sim::start(Behaviour::RefuseMember("encoding_format".to_owned())).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let reply = made(&gate, json!({"input": "fog", "encoding_format": "base64"})).await;
    assert_eq!((reply.status, &reply.json()["data"][0]["embedding"]), (200, &json!(coded)), "{}", reply.body_text());
    assert_eq!((sent(&sim).get("encoding_format"), reply.header("x-tidegate-warnings")), (None, None));
}

#[tokio::test]
async fn tokens_and_options_go_as_they_came() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let reply = made(&gate, json!({"input": [[1, 2], [3]], "user": "u", "x_new": {"a": [1]}})).await;
    assert_eq!(reply.json()["usage"]["prompt_tokens"], 3, "{}", reply.body_text());
    assert_eq!(sent(&sim), json!({"model": "m", "input": [[1, 2], [3]], "user": "u", "x_new": {"a": [1]}}));
    let parts = json!([{"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]);
    made(&gate, json!({"input": parts})).await;
    assert_eq!(sent(&sim)["input"], parts);
}

#[tokio::test]
async fn another_endpoint_is_asked_when_one_fails_or_gives_too_few() {
    let (first, second) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&[(&first, "openai-chat"), (&second, "cohere")], "").await;
    let reply = made(&gate, json!({})).await;
    assert_eq!((reply.status, first.calls(), second.calls()), (200, 1, 1), "{}", reply.body_text());
    let short = r#"{"object":"list","data":[{"embedding":[1.0],"index":0}],"usage":{"prompt_tokens":9}}"#;
    first.set(Behaviour::Raw { status: 200, headers: Vec::new(), body: short.into() });
    let reply = made(&gate, json!({})).await;
    assert_eq!(reply.json()["data"].as_array().unwrap().len(), 2, "{}", reply.body_text());
    // What was no answer is not paid for.
    assert!(near(&reply.json()["usage"]["cost"], 4.0 * PER_TOKEN));
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anybody_is_called() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().embeds(MODEL).embeds("claude/m");
    let start = start.protocol_at(MODEL, "openai-chat", &at(&sim, "openai-chat"), PRICED);
    let start = start.protocol_at("words/m", "openai-chat", &at(&sim, "openai-chat"), PRICED);
    let gate = start.endpoint("claude/m", &sim).run().await;
    for (body, status, text) in [
        (json!({"model": MODEL}), 400, "Invalid request: input is required"),
        (json!({"model": MODEL, "input": []}), 400, "Invalid request: input must have at least 1 entries"),
        (json!({"model": MODEL, "input": ["a", ""]}), 400, "Invalid request: input[1] must be at least 1 characters"),
        (json!({"model": "nobody/nix", "input": "x"}), 400, "nobody/nix is not a valid model ID"),
        (json!({"model": "words/m", "input": "x"}), 400, "words/m is not available on this endpoint"),
        (json!({"model": "claude/m", "input": "x"}), 404, "No endpoints found for claude/m that make embeddings"),
    ] {
        let reply = post(&gate, "/v1/embeddings", &body).await;
        assert_eq!(message(&reply), (status, text.to_owned()), "{body}");
    }
    // And the other way round.
    let talk = json!({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]});
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let reply = post(&gate, path, &talk).await;
        assert_eq!(message(&reply), (400, format!("{MODEL} is not available on this endpoint")), "{path}");
    }
    assert_eq!(sim.calls(), 0);
    let listed = |reply: Reply| -> Vec<String> {
        let data = reply.json()["data"].as_array().unwrap().clone();
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(gate.ask("GET", "/v1/embeddings/models").key(INFERENCE_KEY).send().await), ["claude/m", MODEL]);
    let usual = listed(gate.ask("GET", "/v1/models").key(INFERENCE_KEY).send().await);
    assert_eq!(usual, ["words/m"], "who looks for one to talk to is not shown them");
    let asked = gate.ask("GET", "/v1/models?output_modalities=embeddings").key(INFERENCE_KEY).send().await;
    assert_eq!(listed(asked), ["claude/m", MODEL]);
    assert_eq!(gate.ask("POST", "/v1/embeddings").json("{}").send().await.status, 401);
    assert_eq!(gate.ask("POST", "/v1/embeddings").key(MANAGEMENT_KEY).json("{}").send().await.status, 403);
}

#[tokio::test]
async fn filters_read_the_texts_and_refuse_what_they_cannot_read() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let filters = json!({"name": "words", "content_filters": [
        {"pattern": "secret", "action": "redact"}, {"pattern": "forbidden", "action": "block"}]});
    let made_one = gate.ask("POST", "/api/v1/guardrails").key(MANAGEMENT_KEY).json(filters.to_string()).send().await;
    let id = made_one.json()["data"]["id"].as_str().unwrap_or_else(|| panic!("{}", made_one.body_text())).to_owned();
    let create = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY);
    let created = create.json(json!({"name": "held"}).to_string()).send().await.json();
    let (key, hash) = (created["key"].as_str().unwrap().to_owned(), created["data"]["hash"].clone());
    let hashes = json!({"key_hashes": [hash]}).to_string();
    let path = format!("/api/v1/guardrails/{id}/assignments/keys");
    assert_eq!(gate.ask("POST", &path).key(MANAGEMENT_KEY).json(hashes).send().await.status, 200);
    let ask = async |more: Value| {
        let mut body = json!({"model": MODEL, "input": "fog"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        gate.ask("POST", "/v1/embeddings").key(&key).json(body.to_string()).send().await
    };
    let reply = ask(json!({"input": ["a secret boat", "fog"]})).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let input = sent(&sim)["input"].clone();
    assert!(!input[0].as_str().unwrap().contains("secret") && input[0].as_str().unwrap().contains("boat"), "{input}");
    assert_eq!(input[1], "fog");
    let calls = sim.calls();
    for (more, status) in [
        (json!({"input": ["fog", "forbidden"]}), 403),
        (json!({"input": [[1, 2]]}), 403),
        (json!({"user": "secret"}), 403),
    ] {
        assert_eq!(ask(more.clone()).await.status, status, "{more}");
    }
    // What an upstream may read in another way than a filter is not sent.
    let picture = r#"{"type":"image_url","image_url":{"url":"data:,"},"x":1e999}"#;
    for more in [
        format!(r#""input":[{{"content":[{{"type":"text","text":"forbidden"}},{picture}]}}]"#),
        r#""input":"fog","x":{"a":"forbidden","b":1e999}"#.to_owned(),
        r#""input":"fog","x":{"a":"forbidden","a":"fine"}"#.to_owned(),
        r#""input":"fog","x":"\ud800 forbidden""#.to_owned(),
        r#""input":"fog","provider":{"options":{"p0":{"x":"forbidden","x":"fine"}}}"#.to_owned(),
    ] {
        let body = format!(r#"{{"model":"{MODEL}",{more}}}"#);
        let reply = gate.ask("POST", "/v1/embeddings").key(&key).json(body).send().await;
        assert!(matches!(reply.status, 400 | 403), "{more}: {}", reply.body_text());
    }
    assert_eq!(sim.calls(), calls);
}

#[tokio::test]
async fn nobody_is_talked_to_who_only_makes_embeddings() {
    let (words, vectors) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::Echo).await);
    let start = Tidegate::start().embeds(MODEL).protocol_at(MODEL, "openai-chat", &at(&vectors, "openai-chat"), PRICED);
    let start = start.protocol_at("words/m", "openai-chat", &at(&words, "openai-chat"), PRICED);
    let gate = start.config("[routing]\nrepeat = false\n").run().await;
    let talk = json!({"models": ["words/m", MODEL], "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]});
    let reply = post(&gate, "/v1/messages", &talk).await;
    assert_eq!((reply.status >= 500, words.calls(), vectors.calls()), (true, 1, 0), "{}", reply.body_text());
}

#[tokio::test]
async fn an_answer_of_another_form_is_the_options_fault() {
    let sim = Sim::start(Behaviour::Raw {
        status: 200,
        headers: Vec::new(),
        body: r#"{"data":[{"index":0,"embedding":{"float":[1.0]}}],"usage":{"prompt_tokens":1}}"#.into(),
    })
    .await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let reply = made(&gate, json!({"input": "fog", "embedding_type": ["float"]})).await;
    let text = "the provider's answer holds no vectors; leave out the options that change its form";
    assert_eq!((reply.status, sim.calls()), (400, 1), "{}", reply.body_text());
    assert!(message(&reply).1.contains(text), "{}", reply.body_text());
    // The size is part of what was asked for.
    sim.set(Behaviour::RefuseMember("dimensions".to_owned()));
    let reply = made(&gate, json!({"input": "fog", "dimensions": 2})).await;
    assert_eq!(reply.status, 400, "{}", reply.body_text());
}

#[tokio::test]
async fn a_limit_holds_for_them() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let made_key = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY);
    let made_key = made_key.json(json!({"name": "small", "limit": 0.001}).to_string()).send().await.json();
    let key = made_key["key"].as_str().unwrap();
    let ask = async |input: &str| {
        let body = json!({"model": MODEL, "input": input}).to_string();
        gate.ask("POST", "/v1/embeddings").key(key).json(body).send().await
    };
    // Ten tokens are affordable: 3 bytes are held as nine, 300 as 108.
    assert_eq!(ask("fog").await.status, 200);
    let reply = ask(&"fog ".repeat(75)).await;
    assert_eq!((reply.status, sim.calls()), (402, 1), "{}", reply.body_text());
}

#[tokio::test]
async fn destinations_hear_of_them() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = gate_with(&[(&sim, "openai-chat")], &collector.config("otel-collector", "")).await;
    let reply = made(&gate, json!({})).await;
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let is_told = async || collector.generations().contains(&id);
    eventually("they are told", Duration::from_secs(20), is_told).await;
    let span = collector.spans().into_iter().find(|span| attribute(span, "gen_ai.operation.name").is_some()).unwrap();
    assert_eq!(attribute(&span, "gen_ai.operation.name"), Some(json!("embeddings")));
    assert_eq!(attribute(&span, "gen_ai.output.type"), None);
}
