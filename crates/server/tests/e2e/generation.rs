//! `GET /generation`: the record of a request, for those who may see it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, OrganisationId, WorkspaceId};
use tidegate_sim::{Behaviour, Script, Sim};
use tidegate_store::members::{NewMember, Role};

use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, assert_not_found, assert_refused, eventually, hash_of,
    hello, hello_streamed, on_both, shell,
};

const MODEL: &str = "vendor/m";
const FIVE_SECONDS: Duration = Duration::from_secs(5);

/// 14 tokens in, 100 read from the cache and 9 out, at $3, $0.3 and $15 a million: 42 + 30 + 135 micro-dollars.
const PRICED: &str = "pricing = { input = 3, output = 15, cache_read = 0.3 }";

fn answered(message: &str) -> Behaviour {
    let body = json!({
        "id": message, "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 14, "cache_read_input_tokens": 100, "output_tokens": 9},
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Behaviour::Raw { status: 200, headers, body: Bytes::from(body.to_string()) }
}

async fn record(account: &Account, key: &str, id: &str) -> Reply {
    account.gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(key).send().await
}

/// The record that must be there, at once: its answer has ended.
async fn recorded(account: &Account, id: &str) -> Value {
    let reply = record(account, INFERENCE_KEY, id).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.json()["data"].clone()
}

/// The members that the interface requires of a record.
const REQUIRED: [&str; 42] = [
    "id",
    "upstream_id",
    "total_cost",
    "cache_discount",
    "upstream_inference_cost",
    "created_at",
    "model",
    "app_id",
    "streamed",
    "cancelled",
    "provider_name",
    "latency",
    "moderation_latency",
    "generation_time",
    "finish_reason",
    "service_tier",
    "tokens_prompt",
    "tokens_completion",
    "native_tokens_prompt",
    "native_tokens_completion",
    "native_tokens_completion_images",
    "native_tokens_reasoning",
    "native_tokens_cached",
    "num_media_prompt",
    "num_input_audio_prompt",
    "num_media_completion",
    "num_search_results",
    "num_fetches",
    "web_search_engine",
    "origin",
    "usage",
    "is_byok",
    "native_finish_reason",
    "external_user",
    "api_type",
    "preset_id",
    "router",
    "provider_responses",
    "user_agent",
    "http_referer",
    "data_region",
    "workspace_id",
];

on_both! {
    async fn a_record_tells_what_its_request_was_and_cost(database: &Database) {
        let sim = Sim::start(answered("msg_whole")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let before = SystemClock.now();
        let reply = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY)
            .header("user-agent", "agent/1").header("http-referer", "https://app.example/page")
            .json(hello(MODEL).to_string()).send().await;
        assert_eq!(reply.status, 200);
        let id = reply.header("x-generation-id").unwrap();
        let record = recorded(&account, id).await;
        for name in REQUIRED {
            assert!(record.get(name).is_some(), "{name} is missing: {record}");
        }
        for (name, value) in [
            ("id", json!(id)), ("request_id", json!(id)), ("upstream_id", json!("msg_whole")), ("model", json!(MODEL)),
            ("provider_name", json!("P0")), ("api_type", json!("completions")), ("streamed", json!(false)),
            ("cancelled", json!(false)), ("finish_reason", json!("end_turn")),
            ("native_finish_reason", json!("end_turn")), ("tokens_prompt", json!(114)), ("tokens_completion", json!(9)),
            ("native_tokens_prompt", json!(114)), ("native_tokens_completion", json!(9)),
            ("native_tokens_cached", json!(100)), ("total_cost", json!(0.000207)), ("usage", json!(0.000207)),
            // 100 tokens at $3 instead of $0.3 a million.
            ("cache_discount", json!(0.00027)), ("is_byok", json!(false)), ("data_region", json!("global")),
            ("user_agent", json!("agent/1")), ("http_referer", json!("https://app.example/page")),
            ("workspace_id", json!(&*account.workspace.0)), ("app_id", json!(1)), ("router", Value::Null),
        ] {
            assert_eq!(record[name], value, "{name}");
        }
        let created: jiff::Timestamp = record["created_at"].as_str().unwrap().parse().unwrap();
        assert!((before.0..=SystemClock.now().0).contains(&created.as_millisecond()), "{created}");
        let attempts = record["provider_responses"].as_array().unwrap();
        assert_eq!(attempts.len(), 1);
        assert_eq!((&attempts[0]["status"], &attempts[0]["id"]), (&json!(200), &json!("msg_whole")));
        assert_eq!((&attempts[0]["provider_name"], &attempts[0]["is_byok"]), (&json!("P0"), &json!(false)));
        assert_eq!(recorded(&account, "msg_whole").await, record, "the message's id leads to the same record");

        // The referer made the application known: it has the same number when somebody is sent back to it, and the next
        // one has another.
        let body = json!({"callback_url": "https://app.example/back"});
        let app = account.data("POST", "/auth/keys/code", Some(body), 200).await["app_id"].clone();
        assert_eq!(app, 1);
        assert_eq!(recorded(&account, id).await["app_id"], app);
        for (referer, expected) in
            [("https://app.example/other?page", json!(1)), ("http://localhost:3000", json!(2)), ("nowhere", Value::Null)]
        {
            let reply = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("http-referer", referer)
                .json(hello(MODEL).to_string()).send().await;
            let id = reply.header("x-generation-id").unwrap();
            assert_eq!(recorded(&account, id).await["app_id"], expected, "{referer}");
        }
    }

    async fn a_record_has_the_upstreams_own_id_and_word(database: &Database) {
        let raw = |kind: &str, body: String| Behaviour::Raw {
            status: 200, headers: vec![("content-type".to_owned(), kind.to_owned())], body: Bytes::from(body),
        };
        let usage = json!({"prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23});
        let whole = json!({
            "id": "chatcmpl-whole", "object": "chat.completion", "model": "m", "usage": usage,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "eos"}],
        });
        let chunk = |choices: Value, usage: Value| {
            json!({"id": "chatcmpl-pieces", "object": "chat.completion.chunk", "choices": choices, "usage": usage})
        };
        let chunks = [
            chunk(json!([{"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": null}]), Value::Null),
            chunk(json!([{"index": 0, "delta": {}, "finish_reason": "length"}]), Value::Null),
            chunk(json!([]), usage.clone()),
        ];
        let stream = chunks.map(|chunk| format!("data: {chunk}\n\n")).concat() + "data: [DONE]\n\n";
        let sim = Sim::start(raw("application/json", whole.to_string())).await;
        let builder = Tidegate::start().protocol_at(MODEL, "openai-chat", &format!("{}/v1", sim.base_url()), PRICED);
        let account = Account::start(database, builder).await;

        let given = async |path: &str, body: Value| {
            let reply = account.gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await;
            assert_eq!(reply.status, 200, "{}", reply.body_text());
            let record = recorded(&account, reply.header("x-generation-id").unwrap()).await;
            (reply, record)
        };
        let told = |record: &Value| ["upstream_id", "native_finish_reason", "finish_reason"].map(|name| record[name].clone());
        let (reply, record) = given("/v1/messages", hello(MODEL)).await;
        assert_eq!(told(&record), ["chatcmpl-whole", "eos", "end_turn"]);
        assert_eq!(record["provider_responses"][0]["id"], "chatcmpl-whole");
        let message = reply.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(recorded(&account, &message).await, record, "the message's id leads to its record");
        let (_, record) = given("/api/v1/chat/completions", hello(MODEL)).await;
        assert_eq!(told(&record), ["chatcmpl-whole", "eos", "end_turn"]);

        sim.set(raw("text/event-stream", stream));
        let (_, record) = given("/v1/messages", hello_streamed(MODEL)).await;
        assert_eq!(told(&record), ["chatcmpl-pieces", "length", "max_tokens"]);

        // What it does not tell is not made up.
        let mut nameless = whole;
        nameless.as_object_mut().unwrap().remove("id");
        nameless["choices"][0]["finish_reason"] = Value::Null;
        sim.set(raw("application/json", nameless.to_string()));
        let (_, record) = given("/v1/messages", hello(MODEL)).await;
        assert_eq!(told(&record), [Value::Null, Value::Null, json!("end_turn")]);
        assert_eq!(record["provider_responses"][0].get("id"), None);
    }

    async fn every_attempt_is_in_the_record(database: &Database) {
        let busy = Sim::start(Behaviour::status(529)).await;
        let good = Sim::start(answered("msg_second")).await;
        let gate = Tidegate::start().endpoint(MODEL, &busy).endpoint_with(MODEL, &good, PRICED);
        let account = Account::start(database, gate).await;
        let reply = account.gate.messages(hello(MODEL)).await;
        assert_eq!(reply.status, 200);
        let record = recorded(&account, reply.header("x-generation-id").unwrap()).await;
        let attempts = record["provider_responses"].as_array().unwrap();
        let told: Vec<_> = attempts.iter().map(|attempt| (&attempt["provider_name"], &attempt["status"])).collect();
        assert_eq!(told, [(&json!("P0"), &json!(529)), (&json!("P1"), &json!(200))]);
        assert_eq!((attempts[0].get("id"), &attempts[1]["id"]), (None, &json!("msg_second")));
        assert_eq!(record["provider_name"], "P1");
    }

    async fn a_failed_request_has_a_record_without_counts(database: &Database) {
        let busy = Sim::start(Behaviour::status(500)).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &busy, PRICED)).await;
        let reply = account.gate.messages(hello(MODEL)).await;
        assert!(reply.status >= 500, "{reply:?}");
        let record = recorded(&account, reply.header("x-generation-id").unwrap()).await;
        for name in ["upstream_id", "finish_reason", "tokens_prompt", "native_tokens_completion", "latency"] {
            assert_eq!(record[name], Value::Null, "{name}");
        }
        assert_eq!((&record["total_cost"], &record["cancelled"]), (&json!(0), &json!(false)));
        assert_eq!(record["provider_responses"][0]["status"], 500);
    }

    async fn a_request_whose_client_left_is_cancelled(database: &Database) {
        let sim = Sim::start(Script::says("one two three four five").pace(Duration::from_millis(200))).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let stream = account.gate.stream(hello_streamed(MODEL)).await;
        let id = stream.headers.get("x-generation-id").unwrap().to_str().unwrap().to_owned();
        assert_not_found(&record(&account, INFERENCE_KEY, &id).await);
        drop(stream);
        eventually("it is recorded", FIVE_SECONDS, async || record(&account, INFERENCE_KEY, &id).await.status == 200).await;
        let record = recorded(&account, &id).await;
        assert_eq!((&record["cancelled"], &record["streamed"]), (&json!(true), &json!(true)));
    }

    async fn ten_2_a_record_is_shown_to_its_own_alone(database: &Database) {
        let sim = Sim::start(answered("msg_mine")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let person = |email: &str| {
            NewMember { email: email.to_owned(), first_name: None, last_name: None, role: Role::Member }
        };
        let ada = account.store.add_member(&account.tenant, &shell(), person("ada@example.com")).await.unwrap().id;
        let bob = account.store.add_member(&account.tenant, &shell(), person("bob@example.com")).await.unwrap().id;
        let team = account.data("POST", "/workspaces", Some(json!({"name": "T", "slug": "t"})), 201).await["id"].clone();
        account.send("POST", "/workspaces/t/members/add", json!({"user_ids": [ada]})).await;
        let key = async |body: Value| {
            let made = account.send("POST", "/keys", body).await.json();
            made["key"].as_str().unwrap().to_owned()
        };
        let hers = key(json!({"name": "1", "creator_user_id": ada})).await;
        let also_hers = key(json!({"name": "2", "creator_user_id": ada})).await;
        let elsewhere = key(json!({"name": "3", "creator_user_id": ada, "workspace_id": team})).await;
        let his = key(json!({"name": "4", "creator_user_id": bob})).await;
        let nobodys = key(json!({"name": "5"})).await;

        let reply = account.gate.ask("POST", "/v1/messages").key(&hers).json(hello(MODEL).to_string()).send().await;
        let id = reply.header("x-generation-id").unwrap().to_owned();
        for id in [&*id, "msg_mine"] {
            for (key, sees) in [
                (&*hers, true), (&*also_hers, true), (MANAGEMENT_KEY, true), (&*elsewhere, false), (&*his, false),
                (&*nobodys, false), (INFERENCE_KEY, false),
            ] {
                let reply = record(&account, key, id).await;
                if sees {
                    assert_eq!((reply.status, &reply.json()["data"]["upstream_id"]), (200, &json!("msg_mine")), "{key}");
                } else {
                    assert_not_found(&reply);
                }
            }
        }
        // Keys that belong to nobody have nothing in common.
        let reply = account.gate.messages(hello(MODEL)).await;
        assert_not_found(&record(&account, &nobodys, reply.header("x-generation-id").unwrap()).await);

        // Another organisation's, also for a management key.
        let now = SystemClock.now();
        let theirs = Exchange {
            message_id: Some("msg_theirs".into()),
            cost: Some(Money(1)),
            ..Exchange::new(
                GenerationId::new(now), OrganisationId("org_OTHER".into()), WorkspaceId("w".into()),
                KeyHash::parse(&hash_of("x")).unwrap(), "v/m".into(), now,
            )
        };
        account.store.insert_generations(std::slice::from_ref(&theirs)).await.unwrap();
        for id in [theirs.id.as_str(), "msg_theirs", "gen-01KBS35CG04TFF59TDWH9EDD1R", "nothing", "gen-1"] {
            for key in [MANAGEMENT_KEY, INFERENCE_KEY] {
                assert_not_found(&record(&account, key, id).await);
            }
        }
        for query in ["", "?id=", "?id=a&id=b", "?id=%00"] {
            let reply = account.gate.ask("GET", &format!("/api/v1/generation{query}")).key(INFERENCE_KEY).send().await;
            assert_refused(&reply, "id");
        }
    }
}
