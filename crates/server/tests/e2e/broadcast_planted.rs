//! Secrets of destinations, of callers and of what they say in privacy, planted and then looked for wherever something of a
//! request comes out: in what destinations are told, in answers, logs, metrics, files and tables.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::{ELSEWHERE, Receiver};
use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, eventually, on_both};
use crate::planted::{Hunt, files, tables};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);
const DESTINATIONS: &str = "/observability/destinations";

/// A type, the member that is its address, its secrets, and what else it needs.
type Written = (&'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

/// Those that can be told somewhere else than at their vendor's.
const KINDS: [Written; 15] = [
    ("otel-collector", "endpoint", &[], &[]),
    ("webhook", "url", &[], &[]),
    ("langfuse", "baseUrl", &["publicKey", "secretKey"], &[]),
    ("langsmith", "endpoint", &["apiKey"], &[]),
    ("grafana", "baseUrl", &["apiKey"], &[("instanceId", "1")]),
    ("arize", "baseUrl", &["apiKey", "spaceKey"], &[("modelId", "m")]),
    ("braintrust", "baseUrl", &["apiKey"], &[("projectId", "p")]),
    ("ramp", "baseUrl", &["apiKey"], &[]),
    ("weave", "baseUrl", &["apiKey"], &[("entity", "e"), ("project", "p")]),
    ("opik", "baseUrl", &["apiKey"], &[("workspace", "w"), ("projectName", "p")]),
    ("datadog", "url", &["apiKey"], &[("mlApp", "a")]),
    ("posthog", "endpoint", &["apiKey"], &[]),
    ("s3", "endpoint", &["accessKeyId", "secretAccessKey", "sessionToken"], &[("bucketName", "traces")]),
    ("clickhouse", "host", &["password"], &[("database", "d"), ("username", "u")]),
    ("sentry", "otlpEndpoint", &["dsn"], &[]),
];

on_both! {
    async fn log_3_no_secret_comes_out_with_what_destinations_are_told(database: &Database) {
        let mut hunt = Hunt::default();
        let (sim, receiver) = (Sim::start(Behaviour::Echo).await, Receiver::at(ELSEWHERE).await);
        let webhook_secret = hunt.plant("the secret that signs");
        let builder = Tidegate::start()
            .endpoint(MODEL, &sim)
            .config(&receiver.allowed())
            .config("[log]\nlevel = \"trace\"\nformat = \"json\"\n")
            .config(&format!("[observability]\nwebhook_secret = \"{webhook_secret}\"\n"));
        let account = Account::start(database, builder).await;
        let gate = &account.gate;
        for (what, secret) in [
            ("the management key", MANAGEMENT_KEY),
            ("the inference key", INFERENCE_KEY),
            ("the operator's provider key", "provider-secret-0"),
        ] {
            hunt.planted.insert(what.to_owned(), secret.to_owned());
        }
        let credential = hunt.plant("a customer's credential");
        let made = account.send("POST", "/byok", json!({"provider": "p0", "key": credential})).await;
        assert_eq!(made.status, 201, "{made:?}");

        let mut posthog = String::new();
        for (kind, address, secrets, more) in KINDS {
            let mut config = json!({address: format!("http://{}", receiver.address)});
            config["headers"] = json!({"x-planted": hunt.plant(&format!("a header of {kind}"))});
            for (name, value) in more {
                config[*name] = json!(value);
            }
            for name in secrets {
                let secret = hunt.plant(&format!("{name} of {kind}"));
                config[*name] = json!(if *name == "dsn" { format!("https://{secret}@sentry.example/1") } else { secret.clone() });
                if kind == "posthog" {
                    posthog = secret;
                }
            }
            let body = json!({"type": kind, "name": kind, "privacy_mode": true, "broadcast_generation_identity": true,
                "broadcast_generation_request_context": true, "broadcast_generation_cost": true, "config": config});
            let made = account.send("POST", DESTINATIONS, body.clone()).await;
            assert_eq!(made.status, 201, "{kind}: {}", made.body_text());
            hunt.keep(&format!("the answer to a new {kind}"), &made);
            let path = format!("{DESTINATIONS}/{}", made.json()["data"]["id"].as_str().unwrap());
            hunt.keep(&format!("a destination of type {kind}"), &account.ask("GET", &path).await);
            hunt.keep("the answer to a change", &account.send("PATCH", &path, json!({"config": made.json()["data"]["config"]})).await);
            // The same once more is refused, for its name or for a member that it does not have.
            hunt.keep("a refusal", &account.send("POST", DESTINATIONS, body.clone()).await);
            let mut wrong = body;
            wrong["config"]["stranger"] = json!(hunt.plant(&format!("a stranger in {kind}")));
            hunt.keep("another refusal", &account.send("POST", DESTINATIONS, wrong).await);
        }
        hunt.keep("the list of destinations", &account.ask("GET", DESTINATIONS).await);
        let tested = receiver.told().len();

        // What is said waits for a while, then arrives, whole and streamed, answered and refused.
        receiver.says(503);
        let mut ids = Vec::new();
        for stream in [false, true] {
            let body = json!({
                "model": MODEL, "max_tokens": 64, "stream": stream,
                "system": hunt.plant("a key in the system prompt"),
                "tools": [{"name": "t", "description": hunt.plant("a key in a tool"), "input_schema": {"type": "object"}}],
                "messages": [
                    {"role": "user", "content": hunt.plant("a key in a question")},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "t", "input": {"a": hunt.plant("a key in arguments")}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": hunt.plant("a key in a result")}]},
                ],
            });
            let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-own", hunt.plant("a key in a header of a caller"));
            let reply = ask.json(body.to_string()).send().await;
            assert_eq!(reply.status, 200, "{}", reply.body_text());
            ids.push(reply.header("x-generation-id").unwrap().to_owned());
            let said = hunt.plant("a key in a request that is refused");
            let reply = gate.messages(json!({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": 5}], "metadata": {"x": said}})).await;
            hunt.keep("a refused request", &reply);
        }
        files(&gate.place.data_dir(), &mut hunt).await;
        receiver.says(200);
        let kinds = KINDS.len();
        eventually("all of them hear of both", PATIENCE * 3, async || {
            let told = receiver.told();
            ids.iter().all(|id| told.iter().filter(|told| told.body.contains(id.as_str())).count() >= kinds)
        })
        .await;
        for told in receiver.told().into_iter().skip(tested) {
            // Its key is part of the form that PostHog takes.
            hunt.found.push((format!("what was told to {}", told.line), told.body.replace(&posthog, "").into_bytes()));
        }
        hunt.keep("the metrics", &gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).send().await);
        hunt.found.push(("the log".to_owned(), gate.stderr().into_bytes()));
        hunt.found.push(("the standard output".to_owned(), gate.stdout().into_bytes()));
        files(&gate.place.data_dir(), &mut hunt).await;
        if database.url().starts_with("postgres") {
            tables(&database.url(), &mut hunt).await;
        }
        assert!(gate.stderr().contains("\"TRACE\"") || gate.stderr().contains("\"DEBUG\""), "the log is at its most talkative");
        assert!(hunt.planted.len() >= 30 && hunt.found.len() > 60, "{} {}", hunt.planted.len(), hunt.found.len());
        hunt.look();
    }
}

/// So that what is looked for is there to be found: without privacy a question is told.
#[tokio::test]
async fn without_privacy_the_same_hunt_finds_a_question() {
    let mut hunt = Hunt::default();
    let (sim, hook) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&hook.config("webhook", "")).run().await;
    let said: Value = json!([{"role": "user", "content": hunt.plant("a question")}]);
    gate.messages(json!({"model": MODEL, "max_tokens": 64, "messages": said})).await;
    let secret = hunt.planted["a question"].clone();
    eventually("it hears it", PATIENCE, async || hook.told().iter().any(|told| told.body.contains(&secret))).await;
}
