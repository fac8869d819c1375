//! Pictures: asked for, paid, put on record and refused as messages are, at both kinds of upstream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, PNG, Script, Sim};

use crate::harness::receiver::{Receiver, attribute};
use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually};

const MODEL: &str = "art/m";
/// Dollars for a picture.
const PIECE: f64 = 0.04;
const BY_PIECE: &str = "pricing = { input = 0, output = 0, image_out = 0.04 }";
const BY_TOKEN: &str = "pricing = { input = 5, output = 40 }";

fn at(sim: &Sim, protocol: &str) -> String {
    let path = if protocol == "gemini" { "/v1beta" } else { "/v1" };
    format!("{}{path}", sim.base_url())
}

async fn gate_with(sims: &[(&Sim, &str)], lines: &str, config: &str) -> Tidegate {
    let mut start = Tidegate::start().makes_images(MODEL).config(config);
    for (sim, protocol) in sims {
        start = start.protocol_at(MODEL, protocol, &at(sim, protocol), lines);
    }
    start.run().await
}

async fn post(gate: &Tidegate, path: &str, body: &Value) -> Reply {
    gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await
}

async fn made(gate: &Tidegate, more: Value) -> Reply {
    let mut body = json!({"model": MODEL, "prompt": "a boat"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(gate, "/api/v1/images", &body).await
}

#[tokio::test]
async fn default_is_the_model_for_pictures_that_the_workspace_has_chosen() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "").await;
    let choose = async |choices: Value| {
        let ask = gate.ask("PATCH", "/api/v1/workspaces/default").key(MANAGEMENT_KEY);
        assert_eq!(ask.json(choices.to_string()).send().await.status, 200);
    };
    // The model for texts is none for pictures.
    choose(json!({"default_text_model": "vendor/other"})).await;
    let unset = made(&gate, json!({"model": "default"})).await;
    let problem = "Invalid request: model 'default' needs a default_image_model in the workspace";
    assert_eq!(message(&unset), (400, problem.to_owned()));
    choose(json!({"default_image_model": MODEL})).await;
    let reply = made(&gate, json!({"model": "default"})).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert_eq!(record(&gate, &reply).await["model"], MODEL);
}

fn sent(sim: &Sim) -> Value {
    serde_json::from_slice(&sim.requests().last().unwrap().body).unwrap()
}

async fn record(gate: &Tidegate, reply: &Reply) -> Value {
    let id = reply.header("x-generation-id").unwrap();
    gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json()["data"].clone()
}

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

fn near(one: &Value, other: f64) -> bool {
    (one.as_f64().unwrap() - other).abs() < 1e-9
}

fn message(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn pictures_are_made_paid_by_the_piece_and_put_on_record() {
    for protocol in ["openai-chat", "openai-responses"] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_with(&[(&sim, protocol)], BY_PIECE, "").await;
        let reply = made(&gate, json!({"n": 2, "size": "1024x1024", "quality": "low", "x_new": {"a": [1]}})).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let answer = reply.json();
        let data = answer["data"].as_array().unwrap();
        assert_eq!(data.len(), 2, "{protocol}");
        assert_eq!(STANDARD.decode(data[0]["b64_json"].as_str().unwrap()).unwrap(), PNG);
        assert_eq!(data[1]["media_type"], "image/png");
        // Two pictures at four cents; nobody counted tokens.
        assert!(near(&answer["usage"]["cost"], 2.0 * PIECE), "{answer}");
        assert_eq!((&answer["usage"]["total_tokens"], &answer["usage"]["is_byok"]), (&json!(0), &json!(false)));
        let path = sim.requests().last().unwrap().path.clone();
        assert_eq!(path, "/v1/images/generations");
        let wanted = json!({"model": "m", "prompt": "a boat", "n": 2, "response_format": "b64_json",
            "size": "1024x1024", "quality": "low", "x_new": {"a": [1]}});
        assert_eq!(sent(&sim), wanted, "options go as they came");
        let record = record(&gate, &reply).await;
        assert_eq!((&record["model"], &record["provider_name"]), (&json!(MODEL), &json!("P0")));
        assert!(near(&record["total_cost"], 2.0 * PIECE), "{record}");
        assert_eq!((&record["num_media_completion"], &record["api_type"]), (&json!(2), &json!("image")), "{record}");
        assert!((spent(&gate).await - 2.0 * PIECE).abs() < 1e-9);
        let metrics = gate.managed("/metrics").await.body_text().to_owned();
        assert!(metrics.lines().any(|line| line.contains("route=\"/images\"") && line.contains("status=\"200\"")));
        assert!(
            metrics.lines().any(|line| line.starts_with("tidegate_generations_total") && line.contains(MODEL)),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn destinations_hear_of_pictures_and_never_see_them() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = gate_with(&[(&sim, "gemini")], BY_PIECE, &collector.config("otel-collector", "")).await;
    let encoded = STANDARD.encode(PNG);
    let reference = json!([{"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{encoded}")}}]);
    let reply = made(&gate, json!({"input_references": reference})).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    sim.set(Behaviour::status(400));
    let refused = made(&gate, json!({})).await;
    let ids = [&reply, &refused].map(|reply| reply.header("x-generation-id").unwrap().to_owned());
    let is_told = async || ids.iter().all(|id| collector.generations().contains(id));
    eventually("the collector hears of both", Duration::from_secs(30), is_told).await;
    let spans = collector.spans();
    let [span, failed] = ids.map(|id| {
        let is_it = |span: &&Value| attribute(span, "gen_ai.response.id") == Some(json!(id));
        spans.iter().find(is_it).unwrap()
    });
    let say = |name: &str| attribute(span, name).unwrap_or_default();
    assert_eq!((say("gen_ai.request.model"), say("gen_ai.output.type")), (json!(MODEL), json!("image")));
    assert!(near(&say("gen_ai.usage.cost"), PIECE), "{span}");
    let shown = format!("[image image/png, {} bytes]", PNG.len());
    let said = |name: &str| serde_json::from_str::<Value>(say(name).as_str().unwrap()).unwrap()[0]["parts"].clone();
    let text = |text: &str| json!({"type": "text", "content": text});
    assert_eq!(said("gen_ai.input.messages"), json!([text("a boat"), text(&shown)]));
    assert_eq!(said("gen_ai.output.messages"), json!([text(&shown)]));
    assert!(collector.told().iter().all(|told| !told.body.contains(&encoded)));
    assert_eq!((&failed["status"]["code"], attribute(failed, "gen_ai.usage.cost")), (&json!(2), Some(json!(0.0))));
}

#[tokio::test]
async fn tokens_are_paid_where_they_are_counted() {
    for (protocol, price) in
        [("openai-chat", BY_TOKEN), ("gemini", "pricing = { input = 5, output = 2, output_image = 40 }")]
    {
        let sim = Sim::start(Behaviour::Image { input_tokens: 20, output_tokens: 1000 }).await;
        let gate = gate_with(&[(&sim, protocol)], price, "").await;
        let reply = made(&gate, json!({})).await;
        assert_eq!(reply.status, 200, "{protocol}: {}", reply.body_text());
        let usage = reply.json()["usage"].clone();
        let counts = (&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]);
        assert_eq!(counts, (&json!(20), &json!(1000), &json!(1020)), "{protocol}");
        assert_eq!(usage["completion_tokens_details"]["image_tokens"], 1000);
        // 20 × $5 + 1000 × $40, per million.
        assert!(near(&usage["cost"], 0.0401), "{usage}");
        assert!(near(&record(&gate, &reply).await["total_cost"], 0.0401));
    }
}

#[tokio::test]
async fn google_is_asked_in_its_own_words() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "gemini")], BY_PIECE, "").await;
    let picture = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    let reference = json!([{"type": "image_url", "image_url": {"url": picture}}]);
    let reply = made(&gate, json!({"aspect_ratio": "16:9", "quality": "high", "input_references": reference})).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:quality"));
    assert!(near(&reply.json()["usage"]["cost"], PIECE));
    let body = sent(&sim);
    assert_eq!(body["generationConfig"]["imageConfig"], json!({"aspectRatio": "16:9"}));
    assert_eq!(body["contents"][0]["parts"][1]["inlineData"]["mimeType"], "image/png");
    assert_eq!(
        message(&made(&gate, json!({"n": 2})).await),
        (400, "Invalid request: n must be 1: this provider makes one image at a time".to_owned())
    );
}

#[tokio::test]
async fn a_failure_leads_to_the_next_endpoint_and_the_last_one_is_told() {
    let (bad, good) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&[(&bad, "openai-chat"), (&good, "gemini")], BY_PIECE, "").await;
    let reply = made(&gate, json!({})).await;
    assert_eq!((reply.status, bad.calls(), good.calls()), (200, 1, 1), "{}", reply.body_text());
    let record = record(&gate, &reply).await;
    let tried: Vec<&Value> =
        record["provider_responses"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(tried, [&json!(500), &json!(200)]);
    assert!(near(&record["total_cost"], PIECE));

    // Only who is asked for, and nobody else.
    let only = made(&gate, json!({"provider": {"order": ["p0"], "allow_fallbacks": false}})).await;
    let failed = self::record(&gate, &only).await;
    assert_eq!(failed["api_type"], "image", "it made none, and was asked for one: {failed}");
    assert_eq!(message(&only), (502, "Provider returned error".to_owned()));
    let before = spent(&gate).await;
    let blocked = json!({"error": {"message": "Your request was rejected by the safety system.",
        "type": "user_error", "code": "moderation_blocked"}});
    for (behaviour, status) in [
        (Behaviour::status(429), 429),
        (Behaviour::status(529), 529),
        (Behaviour::Raw { status: 400, headers: Vec::new(), body: blocked.to_string().into() }, 400),
        (Behaviour::Raw { status: 200, headers: Vec::new(), body: "<html>".into() }, 502),
        (Behaviour::Raw { status: 200, headers: Vec::new(), body: r#"{"data":[]}"#.into() }, 502),
    ] {
        bad.set(behaviour.clone());
        let reply = made(&gate, json!({"provider": {"only": ["p0"]}})).await;
        assert_eq!(reply.status, status, "{behaviour:?}: {}", reply.body_text());
        assert!(reply.header("x-generation-id").is_some(), "{behaviour:?}");
        let kind = match status {
            429 => "rate_limit_exceeded",
            529 => "provider_overloaded",
            400 => "content_policy_violation",
            _ => "provider_unavailable",
        };
        assert_eq!(reply.json()["error"]["metadata"]["error_type"], kind, "{}", reply.body_text());
    }
    let unknown = made(&gate, json!({"model": "art/n"})).await;
    let error = unknown.json()["error"].clone();
    assert_eq!((unknown.status, &error["code"], &error["http_status"]), (400, &json!(400), &json!(400)), "{error}");
    assert_eq!(
        (&error["error_type"], &error["metadata"]["error_type"]),
        (&json!("invalid_request"), &json!("invalid_request"))
    );
    assert_eq!(error["availability"]["code"], "model_not_found");
    assert_eq!(error["availability"]["requested_models"], json!(["art/n"]));
    assert!((spent(&gate).await - before).abs() < 1e-12, "what fails costs nothing");
}

#[tokio::test]
async fn what_an_upstream_does_not_know_is_left_out_and_remembered() {
    let sim = Sim::start(Behaviour::RefuseMember("response_format".to_owned())).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "").await;
    let reply = made(&gate, json!({})).await;
    assert_eq!((reply.status, sim.calls()), (200, 2), "{}", reply.body_text());
    assert_eq!(reply.header("x-tidegate-warnings"), None, "nobody asked for it");
    assert_eq!((made(&gate, json!({})).await.status, sim.calls()), (200, 3), "it is not tried again");
    sim.set(Behaviour::RefuseMember("style".to_owned()));
    let reply = made(&gate, json!({"style": "vivid"})).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:style")));
    assert!(near(&record(&gate, &reply).await["total_cost"], PIECE));
    // What is said of names that somebody made up is no fact for others, nor is what else came with them.
    sim.set(Behaviour::RefuseMember("made_up".to_owned()));
    for _ in 0..2 {
        let before = sim.calls();
        let reply = made(&gate, json!({"made_up": 1})).await;
        assert_eq!((reply.status, sim.calls() - before), (200, 2), "it is asked with it each time");
    }
    // Nor is it one when the call is refused without it, too.
    let words = json!({"message": "Unknown parameter: 'quality'.", "param": "quality", "code": "unknown_parameter"});
    let refusal = || Behaviour::Raw {
        status: 400,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: json!({ "error": words }).to_string().into(),
    };
    sim.set(Script::from(refusal()).then(refusal()).then(Behaviour::Echo));
    assert_eq!(made(&gate, json!({"quality": "high"})).await.status, 400);
    assert_eq!(made(&gate, json!({"quality": "high"})).await.status, 200);
    assert_eq!(sim.requests().last().unwrap().json()["quality"], "high");
    // Of several things all are.
    let unknown = |name: &str| Behaviour::Raw {
        status: 400,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: json!({"error": {"message": format!("Unknown parameter: '{name}'.")}}).to_string().into(),
    };
    sim.set(Script::from(unknown("user")).then(unknown("moderation")).then(Behaviour::Echo));
    for calls in [3, 1] {
        let before = sim.calls();
        let reply = made(&gate, json!({"user": "u", "moderation": "low"})).await;
        assert_eq!((reply.status, sim.calls() - before), (200, calls), "{}", reply.body_text());
    }
    let reply = gate.managed("/metrics").await;
    let metrics = reply.body_text();
    assert!(metrics.contains("images.style") && !metrics.contains("made_up") && !metrics.contains("images.quality"));
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anybody_is_called() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().makes_images(MODEL).makes_images("claude/m");
    let start = start.protocol_at(MODEL, "openai-chat", &at(&sim, "openai-chat"), BY_PIECE);
    let start = start.protocol_at("words/m", "openai-chat", &at(&sim, "openai-chat"), BY_PIECE);
    let gate = start.endpoint("claude/m", &sim).run().await;
    for (body, status, text) in [
        (json!({"model": MODEL}), 400, "Invalid request: prompt is required"),
        (json!({"model": MODEL, "prompt": ""}), 400, "Invalid request: prompt must be at least 1 characters"),
        (json!({"model": MODEL, "prompt": "x", "n": 11}), 400, "Invalid request: n must be at most 10"),
        (
            json!({"model": MODEL, "prompt": "x", "resolution": "9K"}),
            400,
            "Invalid request: resolution must be one of 512, 1K, 2K, 4K",
        ),
        (json!({"model": "nobody/nix", "prompt": "x"}), 400, "nobody/nix is not a valid model ID"),
        (json!({"model": "words/m", "prompt": "x"}), 400, "words/m is not available on this endpoint"),
        (json!({"model": "claude/m", "prompt": "x"}), 404, "No endpoints found for claude/m that make images"),
        (
            json!({"model": MODEL, "prompt": "x", "input_references": [{"type": "image_url", "image_url": {"url": "data:,"}}]}),
            400,
            "Invalid request: input_references must be empty: this provider makes images of words alone",
        ),
    ] {
        let reply = post(&gate, "/v1/images", &body).await;
        assert_eq!(message(&reply), (status, text.to_owned()), "{body}");
    }
    let wrong = post(&gate, "/v1/images", &json!({"model": "words/m", "prompt": "x"})).await.json()["error"].clone();
    let availability = &wrong["availability"];
    assert_eq!((&wrong["error_type"], &wrong["http_status"]), (&json!("invalid_request"), &json!(400)));
    assert_eq!((&availability["code"], &availability["retryable"]), (&json!("wrong_endpoint"), &json!(false)));
    assert_eq!(availability["requested_models"], json!(["words/m"]));
    assert_eq!(availability["constraint"]["field"], "model");
    assert_eq!(sim.calls(), 0);
    let unnamed = gate.ask("POST", "/v1/images").json("{}").send().await;
    assert_eq!(unnamed.status, 401);
    let managing = gate.ask("POST", "/v1/images").key(MANAGEMENT_KEY).json("{}").send().await;
    assert_eq!(managing.status, 403);
}

#[tokio::test]
async fn a_model_of_openais_that_only_makes_images_is_not_talked_to() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().makes_images(MODEL).makes_images("relay/m");
    let start = start.protocol_at(MODEL, "openai-responses", &at(&sim, "openai-responses"), BY_PIECE);
    let gate = start.protocol_at("relay/m", "openai-chat", &at(&sim, "openai-chat"), BY_PIECE).run().await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/messages", json!({"model": MODEL, "max_tokens": 9, "messages": messages})),
        ("/v1/chat/completions", json!({"model": MODEL, "messages": messages})),
        ("/v1/responses", json!({"model": MODEL, "input": "hi"})),
    ] {
        let reply = post(&gate, path, &body).await;
        assert_eq!(message(&reply), (400, format!("{MODEL} is not available on this endpoint")), "{path}");
    }
    assert_eq!(sim.calls(), 0);
    let relayed = json!({"model": "relay/m", "messages": messages});
    let reply = post(&gate, "/v1/chat/completions", &relayed).await;
    assert_eq!((reply.status, sim.calls()), (200, 1), "a relay is asked in its own way: {}", reply.body_text());
}

#[tokio::test]
async fn limits_of_money_and_guardrails_hold_for_pictures() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "").await;
    let create = |body: Value| gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY).json(body.to_string()).send();
    // Two pictures and a half.
    let key = create(json!({"name": "poor", "limit": 0.1})).await.json()["key"].as_str().unwrap().to_owned();
    let body = json!({"model": MODEL, "prompt": "a boat"});
    let draw = |body: Value| gate.ask("POST", "/v1/images").key(&key).json(body.to_string()).send();
    let three = draw(json!({"model": MODEL, "prompt": "a boat", "n": 3})).await;
    let text = "API key spend limit reached: this call may cost $0.12, and $0.10 is left";
    assert_eq!(message(&three), (402, text.to_owned()));
    assert_eq!((draw(body.clone()).await.status, draw(body.clone()).await.status), (200, 200));
    assert_eq!((draw(body.clone()).await.status, sim.calls()), (402, 2));

    let made = create(json!({"name": "held"})).await.json();
    let (key, hash) = (made["key"].as_str().unwrap().to_owned(), made["data"]["hash"].as_str().unwrap().to_owned());
    let guard = json!({"name": "g", "allowed_models": ["other/only"]});
    let guard = gate.ask("POST", "/api/v1/guardrails").key(MANAGEMENT_KEY).json(guard.to_string()).send().await;
    let id = guard.json()["data"]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/guardrails/{id}/assignments/keys");
    let assigned = json!({"key_hashes": [hash]}).to_string();
    let assigned = gate.ask("POST", &path).key(MANAGEMENT_KEY).json(assigned).send().await;
    assert_eq!(assigned.status, 200, "{}", assigned.body_text());
    let refused = gate.ask("POST", "/v1/images").key(&key).json(body.to_string()).send().await;
    assert!(matches!(refused.status, 403 | 404), "{}", refused.body_text());
    assert_eq!(sim.calls(), 2);

    let filters = json!({"allowed_models": null, "content_filters": [
        {"pattern": "(?i)apollo", "action": "redact", "label": "PROJECT"}, {"pattern": "zebra", "action": "block"}]});
    let path = format!("/api/v1/guardrails/{id}");
    let changed = gate.ask("PATCH", &path).key(MANAGEMENT_KEY).json(filters.to_string()).send().await;
    assert_eq!(changed.status, 200, "{}", changed.body_text());
    let draw = |prompt: &str| {
        let body = json!({"model": MODEL, "prompt": prompt}).to_string();
        gate.ask("POST", "/v1/images").key(&key).json(body).send()
    };
    let drawn = draw("the badge of Apollo").await;
    assert_eq!((drawn.status, &sent(&sim)["prompt"]), (200, &json!("the badge of [PROJECT]")), "{}", drawn.body_text());
    assert_eq!((draw("a zebra").await.status, sim.calls()), (403, 3));
    for hidden in [json!({"negative_prompt": "Apollo"}), json!({"provider": {"options": {"p0": {"x": ["Apollo"]}}}})] {
        let mut body = json!({"model": MODEL, "prompt": "a boat"});
        body.as_object_mut().unwrap().extend(hidden.as_object().unwrap().clone());
        let refused = gate.ask("POST", "/v1/images").key(&key).json(body.to_string()).send().await;
        let text = "Request blocked by content filter: an option holds what is to be taken out";
        assert_eq!((message(&refused), sim.calls()), ((403, text.to_owned()), 3), "{hidden}");
    }
    // However it is spelled, and also as a name.
    for hidden in [r#""size":"auto","negative_prompt":"\u0041pollo""#, r#""x":{"\u0041pollo":1}"#, r#""Apoll\u006f":1"#]
    {
        let body = format!(r#"{{"model":"{MODEL}","prompt":"a boat",{hidden}}}"#);
        let refused = gate.ask("POST", "/v1/images").key(&key).json(body).send().await;
        assert_eq!((refused.status, sim.calls()), (403, 3), "{hidden}");
    }
}

#[tokio::test]
async fn openais_clients_and_those_who_want_a_stream_get_what_they_know() {
    let sim = Sim::start(Behaviour::Image { input_tokens: 3, output_tokens: 7 }).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_TOKEN, "").await;
    let body = json!({"model": MODEL, "prompt": "a boat", "quality": "hd", "response_format": "b64_json"});
    let reply = post(&gate, "/v1/images/generations", &body).await;
    let usage = reply.json()["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(3), &json!(7)), "{usage}");
    assert_eq!(sent(&sim)["quality"], "hd");
    let reply = made(&gate, json!({"stream": true})).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    let events: Vec<String> = reply.events().into_iter().map(|event| event.data).collect();
    assert_eq!(events.len(), 2);
    let event: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!((&event["type"], &event["media_type"]), (&json!("image_generation.completed"), &json!("image/png")));
    assert!(near(&event["usage"]["cost"], (3.0 * 5.0 + 7.0 * 40.0) / 1e6), "{event}");
    assert_eq!(events[1], "[DONE]");
    assert_eq!(sent(&sim).get("stream"), None, "a picture is asked for whole");
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_not_waited_for_and_a_client_that_leaves_ends_the_call() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "[upstream]\ntotal_whole_ms = 300\n").await;
    let late = made(&gate, json!({})).await;
    assert_eq!(message(&late), (504, "Timed out waiting for the provider".to_owned()));
    drop(gate);
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let start = Tidegate::start().makes_images(MODEL);
    let gate =
        start.protocol_at(MODEL, "openai-chat\"\nsupports_cancel = true\n#", &at(&sim, "x"), BY_PIECE).run().await;
    let body = json!({"model": MODEL, "prompt": "a boat"}).to_string();
    let leaving = gate.ask("POST", "/v1/images").key(INFERENCE_KEY).json(body);
    tokio::select! {
        _ = leaving.send() => panic!("nobody answers"),
        () = sim.wait_calls(1) => {}
    }
    sim.wait_open(0).await;
    assert_eq!(sim.cancelled(), 1);
    let settled = async || gate.managed("/metrics").await.body_text().contains("outcome=\"cancelled\"");
    eventually("it is on record as cancelled", std::time::Duration::from_secs(10), settled).await;
    assert!(spent(&gate).await.abs() < 1e-12, "no picture was made");
}

#[tokio::test]
async fn models_that_make_pictures_are_listed_with_what_they_cost() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().makes_images(MODEL);
    let start = start.protocol_at(MODEL, "openai-chat", &at(&sim, "openai-chat"), BY_PIECE);
    let start = start.protocol_at(
        MODEL,
        "gemini",
        &at(&sim, "gemini"),
        "pricing = { input = 0.3, output = 2, output_image = 30 }",
    );
    let gate = start.protocol_at("words/m", "openai-chat", &at(&sim, "openai-chat"), BY_TOKEN).run().await;
    let get = |path: &str| gate.ask("GET", path).key(INFERENCE_KEY).send();
    let list = get("/api/v1/images/models").await.json()["data"].clone();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["id"]), (1, &json!(MODEL)), "{list}");
    assert_eq!(list[0]["architecture"]["output_modalities"], json!(["image"]));
    assert_eq!(list[0]["supported_parameters"]["quality"]["type"], "enum");
    let path = list[0]["endpoints"].as_str().unwrap();
    let offers = get(path).await.json();
    assert_eq!(offers["id"], MODEL);
    let pricing: Vec<&Value> = offers["endpoints"].as_array().unwrap().iter().map(|offer| &offer["pricing"]).collect();
    assert_eq!(pricing[0], &json!([{"billable": "output_image", "unit": "image", "cost_usd": 0.04}]));
    let by_token = json!([{"billable": "output_image", "unit": "token", "cost_usd": 0.00003},
        {"billable": "input_image", "unit": "token", "cost_usd": 0.0000003},
        {"billable": "input_text", "unit": "token", "cost_usd": 0.0000003}]);
    assert_eq!(pricing[1], &by_token);
    assert_eq!(offers["endpoints"][1]["supported_parameters"]["aspect_ratio"]["type"], "enum");
    assert_eq!(get("/v1/images/models/words/m/endpoints").await.status, 404);
    assert_eq!(get("/v1/models?output_modalities=image").await.json()["data"][0]["id"], MODEL);
}

#[tokio::test]
async fn options_for_one_provider_reach_it_alone_and_change_nothing_that_was_checked() {
    let (bad, good) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&[(&bad, "openai-chat"), (&good, "openai-chat")], BY_PIECE, "").await;
    let own = json!({"steps": 4, "quality": "high", "model": "dear", "n": 9, "prompt": "another"});
    let body = json!({"quality": "low", "provider": {"options": {"p1": own, "p2": {"x": 1}}}});
    let reply = made(&gate, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let plain = json!({"model": "m", "prompt": "a boat", "response_format": "b64_json", "quality": "low"});
    assert_eq!(sent(&bad), plain);
    let wanted =
        json!({"model": "m", "prompt": "a boat", "response_format": "b64_json", "quality": "high", "steps": 4});
    assert_eq!(sent(&good), wanted);
    assert!(near(&reply.json()["usage"]["cost"], PIECE));
}

#[tokio::test]
async fn a_customers_own_credential_draws_at_the_customers_cost() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "").await;
    let body = json!({"provider": "p0", "key": "own-key-0123456789"}).to_string();
    let stored = gate.ask("POST", "/v1/byok").key(MANAGEMENT_KEY).json(body).send().await;
    assert_eq!(stored.status, 201, "{}", stored.body_text());
    let reply = made(&gate, json!({})).await;
    let usage = reply.json()["usage"].clone();
    assert_eq!((&usage["is_byok"], &usage["cost"]), (&json!(true), &json!(0)), "{usage}");
    assert!(near(&usage["cost_details"]["upstream_inference_cost"], PIECE), "{usage}");
    let seen = sim.requests().last().unwrap().headers.clone();
    assert_eq!(seen.get("authorization").unwrap(), "Bearer own-key-0123456789");
    assert!(spent(&gate).await.abs() < 1e-12);
}

#[tokio::test]
async fn a_second_try_of_the_same_endpoint_is_paid_once() {
    let sim = Sim::start(Script::status(503).then(Behaviour::Echo)).await;
    let gate = gate_with(&[(&sim, "openai-chat")], BY_PIECE, "[routing]\nrepeat = true\n").await;
    let reply = made(&gate, json!({})).await;
    assert_eq!((reply.status, sim.calls()), (200, 2), "{}", reply.body_text());
    assert!((spent(&gate).await - PIECE).abs() < 1e-9);
}
