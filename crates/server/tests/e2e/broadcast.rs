//! Destinations hear of every request, whatever happens to them or to us in between, and learn no more than they may.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use aws_lc_rs::hmac;
use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_core::id;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{ELSEWHERE, HANGS, Receiver, attribute, attribute_in};
use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, assert_not_found, assert_refused, eventually, hash_of, hello,
    hello_streamed, on_both, user,
};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);

/// The generation of a call that was answered.
async fn asked(gate: &Tidegate, body: Value) -> String {
    let reply = gate.messages(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.header("x-generation-id").unwrap().to_owned()
}

/// The span of a generation, once it has arrived.
async fn heard(receiver: &Receiver, generation: &str) -> Value {
    eventually("the destination hears of it", PATIENCE, async || receiver.generations().contains(generation)).await;
    let mine = |span: &Value| attribute(span, "gen_ai.response.id") == Some(json!(generation));
    receiver.spans().into_iter().find(mine).unwrap()
}

const PRICED: &str = "[models.endpoints.pricing]\ninput = 1\noutput = 2\n";

/// With a collector that must not hear what was said.
async fn discreet(sim: &Sim, collector: &Receiver) -> Tidegate {
    let config = collector.config("otel-collector", "privacy_mode = true");
    Tidegate::start().endpoint(MODEL, sim).config(&config).run().await
}

#[tokio::test]
async fn a_collector_hears_what_was_asked_and_answered() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let lines = "broadcast_generation_identity = true\nbroadcast_generation_cost = true\n\
                 broadcast_generation_request_context = true\nheaders = { x-team = \"tides\" }";
    let port = sim.base_url().rsplit(':').next().unwrap().to_owned();
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&collector.config("otel-collector", lines))
        .config("[observability]\nservice_name = \"gate\"\nenvironment = \"test\"\n")
        .run()
        .await;
    for stream in [false, true] {
        let picture =
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
        let body = json!({
            "model": MODEL, "max_tokens": 64, "stream": stream, "temperature": 0.5, "system": "Be kind.",
            "session_id": "s-1", "user": "u-1",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "How are you?"}, picture]}],
        });
        let id = asked(&gate, body).await;
        let span = heard(&collector, &id).await;
        let say = |name: &str| attribute(&span, name).unwrap_or_default();
        assert_eq!((&span["name"], &span["kind"]), (&json!("chat vendor/m"), &json!(3)));
        for (name, value) in [
            ("gen_ai.operation.name", json!("chat")),
            ("gen_ai.request.model", json!(MODEL)),
            ("gen_ai.response.model", json!(MODEL)),
            ("gen_ai.provider.name", json!("p0")),
            ("gen_ai.system", json!("p0")),
            ("server.address", json!("127.0.0.1")),
            ("server.port", json!(port)),
            ("tidegate.strategy", json!("direct")),
            ("tidegate.request.region", json!("local")),
            ("tidegate.request.attempts", json!("1")),
            ("gen_ai.conversation.id", json!("s-1")),
            ("user.id", json!("u-1")),
            ("gen_ai.request.max_tokens", json!("64")),
            ("gen_ai.request.temperature", json!(0.5)),
            ("gen_ai.request.stream", json!(stream)),
            ("http.response.status_code", json!("200")),
            ("tidegate.is_byok", json!(false)),
            ("tidegate.identity.key_hash", json!(hash_of(INFERENCE_KEY))),
        ] {
            assert_eq!(say(name), value, "{name}");
        }
        let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
        let record = &record["data"];
        assert_eq!(say("gen_ai.usage.input_tokens"), json!(record["native_tokens_prompt"].to_string()));
        assert_eq!(say("gen_ai.usage.output_tokens"), json!(record["native_tokens_completion"].to_string()));
        assert_eq!(say("gen_ai.usage.cost").as_f64(), record["total_cost"].as_f64());
        assert_eq!(say("tidegate.cost.total").as_f64(), record["total_cost"].as_f64());
        let part = |name: &str| say(name).as_f64().unwrap();
        let parts = part("tidegate.cost.prompt") + part("tidegate.cost.completion");
        assert!(parts > 0.0 && (parts - record["total_cost"].as_f64().unwrap()).abs() < 1e-9, "{parts}");
        let input: Value = serde_json::from_str(say("gen_ai.input.messages").as_str().unwrap()).unwrap();
        let parts = json!([
            {"type": "text", "content": "How are you?"},
            {"type": "text", "content": "[image image/png, 8 bytes]"},
        ]);
        assert_eq!(input, json!([{"role": "user", "parts": parts}]), "a picture is not passed on");
        let system: Value = serde_json::from_str(say("gen_ai.system_instructions").as_str().unwrap()).unwrap();
        assert_eq!(system, json!([{"type": "text", "content": "Be kind."}]));
        let output: Value = serde_json::from_str(say("gen_ai.output.messages").as_str().unwrap()).unwrap();
        let text = output[0]["parts"][0]["content"].as_str().unwrap();
        assert!(text.contains("How are you?"), "an echo answers what was asked: {output}");
        assert_eq!(attribute_in(&span["resource"]["attributes"], "service.name"), Some(json!("gate")));
        assert_eq!(attribute_in(&span["resource"]["attributes"], "deployment.environment.name"), Some(json!("test")));
        let (start, end): (i64, i64) = (
            span["startTimeUnixNano"].as_str().unwrap().parse().unwrap(),
            span["endTimeUnixNano"].as_str().unwrap().parse().unwrap(),
        );
        assert!(end >= start && start > 1_700_000_000_000_000_000, "{start} {end}");
    }
    let first = &collector.told()[0];
    assert_eq!(
        (first.headers["content-type"].as_str(), first.headers["x-team"].as_str()),
        ("application/json", "tides")
    );
    // What fails is told as well.
    sim.set(Behaviour::status(400));
    let reply = gate.messages(hello(MODEL)).await;
    let id = reply.header("x-generation-id").unwrap();
    let span = heard(&collector, id).await;
    assert_eq!(
        (&span["status"]["code"], attribute(&span, "http.response.status_code")),
        (&json!(2), Some(json!("400")))
    );
}

#[tokio::test]
async fn who_may_not_hear_what_was_said_hears_how_it_was_asked_for() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = discreet(&sim, &collector).await;
    let body = json!({
        "model": "vendor/m:floor", "max_tokens": 64, "temperature": 0.5, "top_p": 1, "top_k": 40,
        "system": "Be kind.", "messages": [user("How are you?")],
    });
    let id = asked(&gate, body).await;
    let span = heard(&collector, &id).await;
    for (name, value) in [
        ("gen_ai.request.model", Some(json!("vendor/m:floor"))),
        ("gen_ai.response.model", Some(json!(MODEL))),
        ("gen_ai.request.max_tokens", Some(json!("64"))),
        ("gen_ai.request.temperature", Some(json!(0.5))),
        ("gen_ai.request.top_p", Some(json!("1"))),
        ("gen_ai.request.top_k", Some(json!("40"))),
        ("gen_ai.output.type", Some(json!("text"))),
        ("gen_ai.system_instructions", None),
        ("gen_ai.input.messages", None),
        ("gen_ai.output.messages", None),
        ("gen_ai.tool.definitions", None),
    ] {
        assert_eq!(attribute(&span, name), value, "{name}");
    }
}

#[tokio::test]
async fn traces_are_joined_as_the_caller_says() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = discreet(&sim, &collector).await;
    let hex = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{hex}-b7ad6b7169203331-01");
    // `printf ticket | sha256sum | cut -c1-32`
    let hashed = "14069429150abcbf244c4c2fb2c4c46a";
    for (trace, header, id, above) in [
        (json!({"trace_id": hex, "parent_span_id": "00F067AA0BA902B7"}), None, hex, Some("00f067aa0ba902b7")),
        (json!({"trace_id": "0af76519-16cd-43dd-8448-eb211c80319c"}), None, hex, None),
        (json!({"trace_id": "ticket"}), None, hashed, None),
        (json!({}), Some(parent.as_str()), hex, Some("b7ad6b7169203331")),
        (json!({"trace_id": "ticket"}), Some(parent.as_str()), hashed, None),
    ] {
        let mut body = hello(MODEL);
        body["trace"] = trace.clone();
        let mut ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
        if let Some(header) = header {
            ask = ask.header("traceparent", header);
        }
        let reply = ask.send().await;
        let span = heard(&collector, reply.header("x-generation-id").unwrap()).await;
        assert_eq!((span["traceId"].as_str(), span["parentSpanId"].as_str()), (Some(id), above), "{trace} {header:?}");
    }
    let mut body = hello(MODEL);
    body["trace"] = json!({
        "trace_id": "a", "trace_name": "Checkout", "span_name": "Ask", "generation_name": "Answer",
        "feature": "tides", "tier": 3, "beta": true, "list": [1, "x"], "nothing": null,
    });
    let id = asked(&gate, body).await;
    let span = heard(&collector, &id).await;
    let all: HashMap<String, Value> = collector
        .spans()
        .into_iter()
        .filter(|other| other["traceId"] == span["traceId"])
        .map(|span| (span["name"].as_str().unwrap().to_owned(), span))
        .collect();
    assert_eq!(all["Ask"]["parentSpanId"], all["Checkout"]["spanId"]);
    assert_eq!(all["Answer"]["parentSpanId"], all["Ask"]["spanId"]);
    for (name, value) in
        [("feature", json!("tides")), ("tier", json!("3")), ("beta", json!(true)), ("list", json!("[1,\"x\"]"))]
    {
        assert_eq!(attribute(&span, &format!("trace.metadata.{name}")), Some(value), "{name}");
    }
    let sent = String::from_utf8(sim.requests().last().unwrap().body.to_vec()).unwrap();
    assert!(!sent.contains("trace"), "a model's vendor hears nothing of it: {sent}");
}

#[tokio::test]
async fn nobody_hears_in_privacy_what_was_said() {
    let (sim, collector, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await, Receiver::start().await);
    let gate = Tidegate::start()
        .endpoint(MODEL, &sim)
        .config(&collector.config("otel-collector", "privacy_mode = true"))
        .config(&hook.config("webhook", "privacy_mode = true\nheaders = { authorization = \"Bearer planted-token\" }"))
        .config("[observability]\nwebhook_secret = \"planted-webhook-secret\"\n")
        .run()
        .await;
    let tool =
        json!({"name": "planted_tool", "input_schema": {"type": "object"}, "description": "planted-description"});
    let turns = json!([
        user("planted-question sk-planted-0123456789abcdef"),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "planted_tool", "input": {"a": "planted-argument"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "planted-result"}]},
    ]);
    for stream in [false, true] {
        let body = json!({"model": MODEL, "max_tokens": 64, "stream": stream, "system": "planted-system", "tools": [tool], "messages": turns});
        let id = asked(&gate, body).await;
        heard(&collector, &id).await;
        heard(&hook, &id).await;
    }
    for receiver in [&collector, &hook] {
        for told in receiver.told() {
            assert!(!told.body.contains("planted"), "{}", told.body);
        }
    }
    let told = hook.told();
    let signature = &told[0].headers["x-tidegate-signature"];
    let (at, tag) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"planted-webhook-secret");
    let tag: Vec<u8> =
        (0..tag.len()).step_by(2).map(|place| u8::from_str_radix(&tag[place..place + 2], 16).unwrap()).collect();
    hmac::verify(&key, format!("{at}.{}", told[0].body).as_bytes(), &tag).unwrap();
    assert_eq!(told[0].headers["x-tidegate-attempt"], "1");
    assert_eq!(told[0].headers["authorization"], "Bearer planted-token");
    let metrics = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await.body_text().to_owned();
    assert!(!metrics.contains("planted") && !gate.stderr().contains("planted"), "{}", gate.stderr());
    assert!(
        metrics.contains(r#"tidegate_broadcast_deliveries_total{destination_type="webhook",outcome="delivered"}"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn what_waits_for_a_destination_survives_it_and_us() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let mut gate = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", "")).run().await;
    let mut ids = HashSet::new();
    for status in [503, HANGS, 429] {
        collector.says(status);
        for _ in 0..3 {
            ids.insert(asked(&gate, hello(MODEL)).await);
            ids.insert(asked(&gate, hello_streamed(MODEL)).await);
        }
    }
    assert!(collector.generations().is_empty(), "it took nothing");
    gate.signal(Signal::KILL);
    gate.exit().await;
    gate = gate.place.serve().await;
    collector.says(200);
    eventually("it is told of all", PATIENCE * 2, async || collector.generations() == ids).await;
    // What nobody will ever take is given up, and counted.
    collector.says(400);
    asked(&gate, hello(MODEL)).await;
    eventually("it is given up", PATIENCE, async || {
        let metrics = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await;
        metrics
            .body_text()
            .contains(r#"tidegate_broadcast_dropped_total{destination_type="otel-collector",reason="given_up"} 1"#)
    })
    .await;
}

#[tokio::test]
async fn who_stops_tells_first_what_is_due() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", "")).run().await;
    let id = asked(&gate, hello(MODEL)).await;
    // Letters wait half a second for others; this one is told all the same.
    let (status, place) = gate.stop().await;
    assert!(status.success() && collector.generations().contains(&id), "{status}");
    // Who cannot be reached now is told after the next start.
    collector.says(503);
    let gate = place.serve().await;
    let later = asked(&gate, hello(MODEL)).await;
    let place = gate.stop().await.1;
    assert!(!collector.refused().is_empty() && !collector.generations().contains(&later));
    collector.says(200);
    let _gate = place.serve().await;
    heard(&collector, &later).await;
}

#[tokio::test]
async fn fifty_kills_lose_nothing_that_a_client_heard_of() {
    let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let quiet = "[log]\nlevel = \"error\"\n";
    let mut gate =
        Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", "")).config(quiet).run().await;
    let mut ids = HashSet::new();
    for round in 0..50 {
        let calls = (0..4).map(|number| if number % 2 == 0 { hello(MODEL) } else { hello_streamed(MODEL) });
        for call in calls {
            ids.insert(asked(&gate, call).await);
        }
        // Before, during or after the delivery, which begins half a second after the first.
        let micros = u64::from(u16::from_le_bytes(id::random::<2>())) * 12;
        tokio::time::timeout(Duration::from_micros(micros), std::future::pending::<()>()).await.unwrap_err();
        gate.signal(Signal::KILL);
        gate.exit().await;
        gate = gate.place.serve().await;
        assert!(hook.generations().is_subset(&ids), "round {round}");
    }
    eventually("all of it has arrived", PATIENCE * 2, async || hook.generations() == ids).await;
    let mut spans: HashMap<String, HashSet<String>> = HashMap::new();
    for span in hook.spans() {
        let id = attribute(&span, "gen_ai.response.id").unwrap().as_str().unwrap().to_owned();
        spans.entry(id).or_default().insert(span["spanId"].as_str().unwrap().to_owned());
    }
    assert!(spans.values().all(|ids| ids.len() == 1), "what is told twice has the same id");
}

#[tokio::test]
async fn rules_and_keys_decide_what_is_told() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let rules = r#"filter_rules = { groups = [{ rules = [{ field = "input", operator = "contains", value = "Important" }] }] }"#;
    let hash = hash_of(INFERENCE_KEY);
    let lines = format!("privacy_mode = true\n{rules}\napi_key_hashes = [\"{hash}\"]");
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", &lines)).run().await;
    asked(&gate, hello(MODEL)).await;
    let wanted = asked(&gate, json!({"model": MODEL, "max_tokens": 9, "messages": [user("an important one")]})).await;
    heard(&collector, &wanted).await;
    assert_eq!(collector.generations(), HashSet::from([wanted]));
    assert!(!collector.told()[0].body.contains("important"), "rules look, they do not tell");
}

fn webhook(url: &str) -> Value {
    json!({"type": "webhook", "name": "hook", "config": {"url": url, "headers": {"x-secret": "planted-header-secret"}}})
}

const DESTINATIONS: &str = "/observability/destinations";

on_both! {
    async fn people_have_somebody_told_of_their_workspace(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed());
        let account = Account::start(database, builder).await;
        let made = account.data("POST", DESTINATIONS, Some(webhook(&hook.url())), 201).await;
        let test = hook.told().remove(0);
        assert_eq!((test.headers["x-test-connection"].as_str(), test.body.as_str()), ("true", "{\"resourceSpans\":[]}"));
        assert_eq!(test.headers["x-secret"], "planted-header-secret");
        assert_eq!(made["config"], json!({"url": hook.url(), "headers": {"x-secret": "pla...cret"}}), "secrets are masked");
        for (member, value) in [
            ("type", json!("webhook")), ("name", json!("hook")), ("enabled", json!(true)), ("sampling_rate", json!(1.0)),
            ("privacy_mode", json!(false)), ("api_key_hashes", Value::Null), ("filter_rules", Value::Null),
            ("workspace_id", json!(&*account.workspace.0)), ("regions", json!(["global"])),
        ] {
            assert_eq!(made[member], value, "{member}");
        }
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        assert_eq!(account.ask("GET", &path).await.json()["data"], made);
        assert_eq!(account.ask("GET", DESTINATIONS).await.json(), json!({"data": [made], "total_count": 1}));
        let id = asked(&account.gate, hello(MODEL)).await;
        let span = heard(&hook, &id).await;
        assert!(attribute(&span, "gen_ai.input.messages").is_some());

        // What comes back as it was shown stays, and what is not named too.
        let change = json!({"privacy_mode": true, "config": made["config"], "filter_rules": {"groups": []}});
        let changed = account.data("PATCH", &path, Some(change), 200).await;
        assert_eq!((&changed["config"], &changed["privacy_mode"]), (&made["config"], &json!(true)));
        let id = asked(&account.gate, hello(MODEL)).await;
        let span = heard(&hook, &id).await;
        assert_eq!(attribute(&span, "gen_ai.input.messages"), None);
        assert_eq!(hook.told().last().unwrap().headers["x-secret"], "planted-header-secret");

        // A workspace's own switch, and the end of a destination.
        let switch = async |is_on: bool| {
            let change = json!({"is_observability_broadcast_enabled": is_on});
            account.data("PATCH", "/workspaces/default", Some(change), 200).await;
        };
        switch(false).await;
        let unheard = asked(&account.gate, hello(MODEL)).await;
        switch(true).await;
        let id = asked(&account.gate, hello(MODEL)).await;
        heard(&hook, &id).await;
        assert!(!hook.generations().contains(&unheard), "it was switched off");
        assert_eq!(account.ask("DELETE", &path).await.json(), json!({"deleted": true}));
        assert_not_found(&account.ask("GET", &path).await);
        assert_not_found(&account.ask("DELETE", &path).await);
        let unheard = asked(&account.gate, hello(MODEL)).await;
        // Another one hears of what comes later; by then the first would have heard of what came before.
        account.data("POST", DESTINATIONS, Some(webhook(&hook.url())), 201).await;
        let id = asked(&account.gate, hello(MODEL)).await;
        heard(&hook, &id).await;
        assert!(!hook.generations().contains(&unheard), "it was deleted");
        for action in ["created", "updated", "deleted"] {
            assert!(account.audited().await.contains(&format!("destination.{action}")), "{action}");
        }
        assert!(!account.gate.stderr().contains("planted"), "{}", account.gate.stderr());
    }

    async fn sec_5_a_destination_outlives_the_master_key_it_was_sealed_under(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed());
        let account = Account::start(database, builder).await;
        let made = account.data("POST", DESTINATIONS, Some(webhook(&hook.url())), 201).await;
        let path = format!("{DESTINATIONS}/{}", made["id"].as_str().unwrap());
        let rotated = account.gate.place.run(&["secrets", "rotate", "--remove-old"]).await;
        assert!(rotated.status.success(), "{}", String::from_utf8_lossy(&rotated.stderr));
        let verified = account.gate.place.run(&["secrets", "verify"]).await;
        assert_eq!(String::from_utf8_lossy(&verified.stdout), "0 secrets open, 0 do not\n1 destinations open, 0 do not\n");
        // The server, which has the old ring, shows it, takes a change of it and goes on telling.
        assert_eq!(account.data("GET", &path, None, 200).await["config"], made["config"]);
        let changed = account.data("PATCH", &path, Some(json!({"config": made["config"]})), 200).await;
        assert_eq!(changed["config"], made["config"]);
        let id = asked(&account.gate, hello(MODEL)).await;
        heard(&hook, &id).await;
        let Account { gate, store, .. } = account;
        store.close().await;
        let gate = gate.stop().await.1.serve().await;
        let id = asked(&gate, hello(MODEL)).await;
        heard(&hook, &id).await;
        assert_eq!(hook.told().last().unwrap().headers["x-secret"], "planted-header-secret");
    }

    async fn sec_5_letters_that_wait_keep_the_master_key_they_were_sealed_under(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed());
        let account = Account::start(database, builder).await;
        account.data("POST", DESTINATIONS, Some(webhook(&hook.url())), 201).await;
        hook.says(500);
        let id = asked(&account.gate, hello(MODEL)).await;
        let rotated = async || {
            let output = account.gate.place.run(&["secrets", "rotate", "--remove-old"]).await;
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
        };
        let (out, error) = rotated().await;
        assert!(!out.contains("removed master key") && error.contains("1 letters wait for destinations"), "{out}{error}");
        hook.says(200);
        heard(&hook, &id).await;
        let removed = async || rotated().await.0.contains("removed master key");
        eventually("nothing waits any more", Duration::from_secs(20), removed).await;
    }

    async fn sec_5_what_is_told_after_a_rotation_can_be_opened_after_a_start(database: &Database) {
        let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", ""));
        let Account { gate, store, .. } = Account::start(database, builder).await;
        store.close().await;
        // Nothing else is sealed that would have the server look for another ring.
        let rotated = gate.place.run(&["secrets", "rotate", "--remove-old"]).await;
        let out = String::from_utf8_lossy(&rotated.stdout).into_owned();
        assert!(rotated.status.success() && out.contains("removed master key"), "{out}");
        collector.says(503);
        let id = asked(&gate, hello(MODEL)).await;
        let gate = gate.stop().await.1.serve().await;
        collector.says(200);
        heard(&collector, &id).await;
        drop(gate);
    }

    async fn what_cannot_be_a_destination_is_refused_by_name(database: &Database) {
        let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&hook.allowed());
        let account = Account::start(database, builder).await;
        let with = |changes: Value| {
            let mut body = webhook(&hook.url());
            body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            body
        };
        for (changes, path) in [
            (json!({"type": "pigeon"}), "type"),
            (json!({"type": "bigquery"}), "type"),
            (json!({"name": ""}), "name"),
            (json!({"name": "x".repeat(256)}), "name"),
            (json!({"config": 1}), "config"),
            (json!({"config": {}}), "config.url"),
            (json!({"config": {"url": "ftp://a"}}), "config.url"),
            (json!({"config": {"url": "http://10.0.0.1/x"}}), "config.url"),
            (json!({"config": {"url": "http://169.254.169.254/latest"}}), "config.url"),
            (json!({"config": {"url": "http://example.com/x"}}), "config.url"),
            (json!({"config": {"url": "https://localhost/x"}}), "config.url"),
            (json!({"config": {"url": hook.url(), "method": "GET"}}), "config.method"),
            (json!({"config": {"url": hook.url(), "stranger": "1"}}), "config.stranger"),
            (json!({"config": {"url": hook.url(), "headers": {"Host": "x"}}}), "config.headers.Host"),
            (json!({"config": {"url": hook.url(), "headers": {"x-a": "b\r\nx-c: d"}}}), "config.headers.x-a"),
            (json!({"sampling_rate": 0}), "sampling_rate"),
            (json!({"sampling_rate": 1.5}), "sampling_rate"),
            (json!({"api_key_hashes": []}), "api_key_hashes"),
            (json!({"api_key_hashes": ["x"]}), "api_key_hashes[0]"),
            (json!({"filter_rules": {"groups": [{"rules": [{"field": "model", "operator": "gt", "value": 1}]}]}}), "filter_rules.groups[0].rules[0].operator"),
            (json!({"filter_rules": {}}), "filter_rules.groups"),
            (json!({"filter_rules": {"enabled": false, "groups": null}}), "filter_rules.groups"),
            (json!({"workspace_id": "00000000-0000-7000-8000-000000000000"}), "workspace_id"),
        ] {
            assert_refused(&account.send("POST", DESTINATIONS, with(changes)).await, path);
        }
        let elsewhere = with(json!({"config": {"url": "https://example.com:4318/x"}}));
        let refused = account.send("POST", DESTINATIONS, elsewhere).await;
        assert_refused(&refused, "config.url");
        assert!(refused.body_text().contains("must have a port that is among egress.ports"), "{}", refused.body_text());
        hook.says(500);
        let failed = account.send("POST", DESTINATIONS, with(json!({}))).await;
        assert_eq!(failed.status, 400);
        assert_eq!(failed.json()["error"]["metadata"]["test"]["status"], 500, "{}", failed.body_text());
        assert_eq!(account.send("POST", &format!("{DESTINATIONS}?skip_test=true"), with(json!({}))).await.status, 201);
        hook.says(200);
        assert_eq!(account.send("POST", DESTINATIONS, with(json!({}))).await.status, 409, "the name is taken");
        for number in 1..5 {
            let name = format!("hook-{number}");
            assert_eq!(account.send("POST", DESTINATIONS, with(json!({"name": name}))).await.status, 201);
        }
        assert_eq!(account.send("POST", DESTINATIONS, with(json!({"name": "sixth"}))).await.status, 409);
        assert_not_found(&account.ask("GET", &format!("{DESTINATIONS}/x")).await);
    }
}
