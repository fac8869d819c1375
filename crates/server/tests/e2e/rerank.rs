//! Ranking documents: asked for, paid, put on record and refused as messages are, at every kind of upstream that does it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::receiver::{Receiver, attribute};
use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually};

const MODEL: &str = "ranks/m";
/// A tenth of a dollar for a thousand tokens, and a cent for each search unit.
const PRICED: &str = "pricing = { input = 100, output = 0, request = 0.01 }";
const PER_TOKEN: f64 = 1e-4;
const PER_UNIT: f64 = 0.01;

fn at(sim: &Sim, protocol: &str) -> String {
    format!("{}{}", sim.base_url(), if protocol == "cohere" { "" } else { "/v1" })
}

async fn gate_with(sims: &[(&Sim, &str)], config: &str) -> Tidegate {
    let mut start = Tidegate::start().ranks(MODEL).config(config);
    for (sim, protocol) in sims {
        start = start.protocol_at(MODEL, protocol, &at(sim, protocol), PRICED);
    }
    start.run().await
}

async fn post(gate: &Tidegate, path: &str, key: &str, body: &Value) -> Reply {
    gate.ask("POST", path).key(key).json(body.to_string()).send().await
}

fn asked(more: Value) -> Value {
    let mut body =
        json!({"model": MODEL, "query": "small boat", "documents": ["fog", {"text": "a boat"}, "small boat"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn ranked(gate: &Tidegate, more: Value) -> Reply {
    post(gate, "/api/v1/rerank", INFERENCE_KEY, &asked(more)).await
}

fn sent(sim: &Sim) -> Value {
    serde_json::from_slice(&sim.requests().last().unwrap().body).unwrap()
}

fn places(reply: &Reply) -> Vec<u64> {
    let answer = reply.json();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    results.iter().map(|one| one["index"].as_u64().unwrap()).collect()
}

fn message(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

fn near(one: &Value, other: f64) -> bool {
    (one.as_f64().unwrap() - other).abs() < 1e-9
}

#[tokio::test]
async fn documents_are_ranked_paid_for_and_put_on_record() {
    // The query's two words beside each of five: eleven tokens in all. Cohere counts one search unit and no tokens, which are
    // taken from the bytes where they cost something: three of the query beside one, two and three.
    for (protocol, path, counted, cost) in [
        ("openai-chat", "/v1/rerank", json!({"total_tokens": 11}), 11.0 * PER_TOKEN + PER_UNIT),
        ("openai-responses", "/v1/rerank", json!({"total_tokens": 11}), 11.0 * PER_TOKEN + PER_UNIT),
        ("cohere", "/v2/rerank", json!({"search_units": 1, "total_tokens": 15}), 15.0 * PER_TOKEN + PER_UNIT),
    ] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_with(&[(&sim, protocol)], "").await;
        let reply = ranked(&gate, json!({})).await;
        assert_eq!(reply.status, 200, "{protocol}: {}", reply.body_text());
        let answer = reply.json();
        assert_eq!((&answer["model"], &answer["provider"]), (&json!(MODEL), &json!("P0")));
        assert_eq!(answer["id"], reply.header("x-generation-id").unwrap());
        let entry = |index: u64, score: f64, text: &str| json!({"index": index, "relevance_score": score, "document": {"text": text}});
        let expected = [entry(2, 1.0, "small boat"), entry(1, 0.5, "a boat"), entry(0, 0.0, "fog")];
        assert_eq!(answer["results"], json!(expected), "{protocol}");
        for name in ["total_tokens", "search_units"] {
            assert_eq!(answer["usage"].get(name), counted.get(name), "{protocol}: {answer}");
        }
        assert!(near(&answer["usage"]["cost"], cost), "{protocol}: {answer}");
        assert_eq!(sim.requests().last().unwrap().path, path);
        let body = json!({"model": "m", "query": "small boat", "documents": ["fog", "a boat", "small boat"]});
        assert_eq!(sent(&sim), body, "{protocol}");
        let id = reply.header("x-generation-id").unwrap();
        let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
        let record = &record["data"];
        assert_eq!((&record["model"], &record["api_type"]), (&json!(MODEL), &json!("rerank")), "{record}");
        assert!(near(&record["total_cost"], cost), "{record}");
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        assert!(near(&key["data"]["usage"], cost), "{key}");
    }
}

#[tokio::test]
async fn search_units_are_held_and_paid_for_one_by_one() {
    let sim = Sim::start(Behaviour::Echo).await;
    let priced = "pricing = { input = 0, output = 0, request = 0.01 }";
    let gate = Tidegate::start().ranks(MODEL).protocol_at(MODEL, "cohere", &sim.base_url(), priced).run().await;
    let documents: Vec<&str> = vec!["boat"; 201];
    let reply = ranked(&gate, json!({"documents": documents, "top_n": 1})).await;
    let usage = &reply.json()["usage"];
    assert_eq!((&usage["search_units"], places(&reply).len()), (&json!(3), 1), "{}", reply.body_text());
    assert_eq!(usage.get("total_tokens"), None, "they cost nothing here");
    assert!(near(&usage["cost"], 3.0 * PER_UNIT), "{usage}");
    // Two units are affordable, three are not: a hundred documents are one, and of 3 000 bytes each three.
    let made = json!({"name": "small", "limit": 0.025}).to_string();
    let key = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY).json(made).send().await.json();
    let key = key["key"].as_str().unwrap();
    let calls = sim.calls();
    for documents in [vec!["b".to_owned(); 201], vec!["b".repeat(3_000); 100]] {
        let reply = post(&gate, "/api/v1/rerank", key, &asked(json!({"documents": documents}))).await;
        assert_eq!((reply.status, sim.calls()), (402, calls), "{}", reply.body_text());
    }
    let reply = post(&gate, "/api/v1/rerank", key, &asked(json!({"documents": vec!["b"; 200]}))).await;
    assert_eq!((reply.status, sim.calls()), (200, calls + 1), "{}", reply.body_text());
}

#[tokio::test]
async fn who_sends_too_many_or_does_not_know_how_many_is_cut() {
    let sim = Sim::start(Behaviour::RefuseMember("top_n".to_owned())).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    for calls in [2, 3] {
        let reply = ranked(&gate, json!({"top_n": 2})).await;
        assert_eq!((reply.status, places(&reply)), (200, vec![2, 1]), "{}", reply.body_text());
        assert_eq!((sent(&sim).get("top_n"), reply.header("x-tidegate-warnings"), sim.calls()), (None, None, calls));
    }
}

#[tokio::test]
async fn voyage_is_asked_without_a_number_that_it_does_not_know() {
    let refusal = json!({"detail": "Argument 'top_n' is not supported by our API"});
    let refused = Behaviour::Raw { status: 400, headers: Vec::new(), body: refusal.to_string().into() };
    let sim = Sim::start(Script::from(refused).then(Behaviour::Echo)).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    for calls in [2, 3] {
        let reply = ranked(&gate, json!({"top_n": 2})).await;
        assert_eq!((reply.status, places(&reply)), (200, vec![2, 1]), "{}", reply.body_text());
        assert_eq!((sent(&sim).get("top_n"), sim.calls()), (None, calls));
    }
}

#[tokio::test]
async fn another_endpoint_is_asked_when_one_fails_or_names_no_document() {
    let (first, second) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&[(&first, "openai-chat"), (&second, "cohere")], "").await;
    let reply = ranked(&gate, json!({})).await;
    assert_eq!((reply.status, first.calls(), second.calls()), (200, 1, 1), "{}", reply.body_text());
    let wrong = r#"{"results":[{"index":7,"relevance_score":0.5}],"usage":{"total_tokens":9}}"#;
    first.set(Behaviour::Raw { status: 200, headers: Vec::new(), body: wrong.into() });
    let reply = ranked(&gate, json!({})).await;
    assert_eq!(places(&reply), [2, 1, 0], "{}", reply.body_text());
    // What was no answer is not paid for.
    assert!(near(&reply.json()["usage"]["cost"], 15.0 * PER_TOKEN + PER_UNIT));
}

#[tokio::test]
async fn what_nobody_counted_is_estimated() {
    let uncounted = r#"{"results":[{"index":0,"relevance_score":0.5}]}"#;
    let sim = Sim::start(Behaviour::Raw { status: 200, headers: Vec::new(), body: uncounted.into() }).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    // Ten bytes are three tokens, beside each of 3, 6 and 10 bytes: one, two and three.
    let reply = ranked(&gate, json!({})).await;
    let usage = &reply.json()["usage"];
    assert_eq!((&usage["total_tokens"], &usage["search_units"]), (&json!(15), &json!(1)), "{usage}");
    assert!(near(&usage["cost"], 15.0 * PER_TOKEN + PER_UNIT), "{usage}");
}

#[tokio::test]
async fn pictures_go_as_they_came_to_those_who_see_them() {
    let (words, pictures) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&[(&words, "cohere"), (&pictures, "openai-chat")], "").await;
    let documents = json!(["boat", {"image": "data:image/png;base64,AAAA", "text": "small boat"}]);
    let reply = ranked(&gate, json!({"documents": documents})).await;
    assert_eq!((reply.status, words.calls(), pictures.calls()), (200, 0, 1), "{}", reply.body_text());
    assert_eq!(sent(&pictures)["documents"], documents);
    assert_eq!(reply.json()["results"][0]["document"], documents[1]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anybody_is_called() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().ranks(MODEL).ranks("claude/m");
    let start = start.protocol_at(MODEL, "openai-chat", &at(&sim, "openai-chat"), PRICED);
    let start = start.protocol_at("words/m", "openai-chat", &at(&sim, "openai-chat"), PRICED);
    let gate = start.endpoint("claude/m", &sim).run().await;
    for (more, status, text) in [
        (json!({"query": null}), 400, "Invalid request: query is required"),
        (json!({"documents": []}), 400, "Invalid request: documents must have at least 1 entries"),
        (json!({"documents": ["a", {}]}), 400, "Invalid request: documents[1] must have text or image"),
        (json!({"top_n": 0}), 400, "Invalid request: top_n must be at least 1"),
        (json!({"model": "nobody/nix"}), 400, "nobody/nix is not a valid model ID"),
        (json!({"model": "words/m"}), 400, "words/m is not available on this endpoint"),
        (json!({"model": "claude/m"}), 404, "No endpoints found for claude/m that rank documents"),
    ] {
        assert_eq!(
            message(&post(&gate, "/v1/rerank", INFERENCE_KEY, &asked(more.clone())).await),
            (status, text.to_owned()),
            "{more}"
        );
    }
    // And the other way round.
    let talk = json!({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]});
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let reply = post(&gate, path, INFERENCE_KEY, &talk).await;
        assert_eq!(message(&reply), (400, format!("{MODEL} is not available on this endpoint")), "{path}");
    }
    assert_eq!(sim.calls(), 0);
    let listed = async |path: &str| -> Vec<String> {
        let data = gate.ask("GET", path).key(INFERENCE_KEY).send().await.json()["data"].as_array().unwrap().clone();
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("/v1/models").await, ["words/m"], "who looks for one to talk to is not shown them");
    assert_eq!(listed("/v1/models?output_modalities=rerank").await, ["claude/m", MODEL]);
}

#[tokio::test]
async fn filters_read_query_and_documents() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], "").await;
    let filters = json!({"name": "words", "content_filters": [
        {"pattern": "secret", "action": "redact"}, {"pattern": "forbidden", "action": "block"}]});
    let made = post(&gate, "/api/v1/guardrails", MANAGEMENT_KEY, &filters).await.json();
    let id = made["data"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let created = post(&gate, "/api/v1/keys", MANAGEMENT_KEY, &json!({"name": "held"})).await.json();
    let hashes = json!({"key_hashes": [created["data"]["hash"]]});
    let path = format!("/api/v1/guardrails/{id}/assignments/keys");
    assert_eq!(post(&gate, &path, MANAGEMENT_KEY, &hashes).await.status, 200);
    let key = created["key"].as_str().unwrap();
    let documents = json!(["a secret boat", "fog"]);
    let reply = post(&gate, "/v1/rerank", key, &asked(json!({"query": "secret fog", "documents": documents}))).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let body = sent(&sim);
    assert!(!body.to_string().contains("secret"), "{body}");
    assert!(
        body["documents"][0].as_str().unwrap().contains("boat") && body["query"].as_str().unwrap().contains("fog"),
        "{body}"
    );
    assert_eq!(body["documents"][1], "fog");
    let told = reply.json()["results"].as_array().unwrap().iter().find(|one| one["index"] == 0).unwrap().clone();
    assert_eq!(told["document"]["text"], "a secret boat", "the caller's own document");
    let calls = sim.calls();
    for more in [
        json!({"query": "forbidden"}),
        json!({"documents": ["fog", "forbidden"]}),
        json!({"documents": [{"image": "data:,", "text": "forbidden"}]}),
        json!({"documents": [{"image": "data:,", "text": "secret"}]}),
        json!({"user": "secret"}),
    ] {
        assert_eq!(post(&gate, "/v1/rerank", key, &asked(more.clone())).await.status, 403, "{more}");
    }
    assert_eq!(sim.calls(), calls);
}

#[tokio::test]
async fn destinations_hear_of_it() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = gate_with(&[(&sim, "openai-chat")], &collector.config("otel-collector", "")).await;
    let reply = ranked(&gate, json!({"top_n": 1})).await;
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let is_told = async || collector.generations().contains(&id);
    eventually("it is told", Duration::from_secs(20), is_told).await;
    let span = collector.spans().into_iter().find(|span| attribute(span, "gen_ai.operation.name").is_some()).unwrap();
    assert_eq!(attribute(&span, "gen_ai.operation.name"), Some(json!("rerank")));
    let text = |name: &str| attribute(&span, name).unwrap().as_str().unwrap().to_owned();
    assert!(text("gen_ai.input.messages").contains("small boat"), "{span}");
    assert!(text("gen_ai.output.messages").contains("[of 3 documents: 2 (1.0)]"), "{span}");
}
