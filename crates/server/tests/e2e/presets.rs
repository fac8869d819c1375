//! Presets: made of requests, listed and read over HTTP, and named in further requests. What they add to a request is seen
//! from the upstream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::presets::PresetStatus;

use crate::harness::{
    Account, Ask, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, assert_not_found, assert_refused, eventually,
    hash_of, on_both, together, user, with_postgres,
};
use crate::money::{key, replicas};
use crate::native_search;

const MODEL: &str = "vendor/m";
const MOST_KEPT: usize = 256 << 10;

fn ask(gate: &Tidegate, method: &str, path: &str) -> Ask {
    gate.ask(method, &format!("/api/v1{path}")).key(INFERENCE_KEY)
}

async fn get(gate: &Tidegate, path: &str) -> Reply {
    ask(gate, "GET", path).send().await
}

async fn put(gate: &Tidegate, slug: &str, body: &Value) -> Reply {
    ask(gate, "POST", &format!("/presets/{slug}/messages")).json(body.to_string()).send().await
}

/// The preset as it is after it was written.
async fn made(gate: &Tidegate, slug: &str, body: &Value) -> Value {
    let reply = put(gate, slug, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.json()["data"].clone()
}

/// A short request for a model or a preset.
fn asking(model: &str) -> Value {
    json!({"model": model, "messages": [user("hi")]})
}

fn assert_unknown(reply: &Reply, slug: &str) {
    let expected = (404, "not_found_error".to_owned(), "not_found".to_owned(), format!("Preset not found: {slug}"));
    assert_eq!(reply.error(), expected);
    assert_eq!(reply.json()["request_id"], Value::Null, "it was never let in");
}

/// A key of another workspace.
async fn of_another_workspace(account: &Account) -> String {
    let team = account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
    key(account, json!({"workspace_id": team["id"]})).await
}

on_both! {
    async fn a_preset_is_made_of_a_request_and_every_version_stays(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        let body = json!({
            "model": MODEL, "temperature": 0.5, "system": "Be brief.", "stream": true, "messages": [user("hi")],
            "user": "u", "session_id": "s", "metadata": {"user_id": "u"}, "trace": {"trace_id": "t"}, "stranger": 1,
            "cache_enabled": true, "cache_ttl_seconds": 60,
        });
        let first = made(gate, "brief", &body).await;
        let config = json!({"model": MODEL, "temperature": 0.5, "cache_enabled": true, "cache_ttl_seconds": 60});
        let version = &first["designated_version"];
        let owner = hash_of(INFERENCE_KEY);
        for (got, expected) in [
            (&first["slug"], json!("brief")),
            (&first["name"], json!("brief")),
            (&first["description"], Value::Null),
            (&first["status"], json!("active")),
            (&first["status_updated_at"], Value::Null),
            (&first["creator_user_id"], Value::Null),
            (&first["workspace_id"], json!(&*account.workspace.0)),
            (&first["designated_version_id"], version["id"].clone()),
            (&version["preset_id"], first["id"].clone()),
            (&version["version"], json!(1)),
            (&version["config"], config),
            (&version["system_prompt"], json!("Be brief.")),
            // The key belongs to nobody.
            (&version["creator_id"], json!(owner)),
        ] {
            assert_eq!(got, &expected, "{first}");
        }
        for time in [&first["created_at"], &first["updated_at"], &version["created_at"], &version["updated_at"]] {
            assert!(time.as_str().unwrap().ends_with('Z'), "{first}");
        }

        let blocks = json!({"system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "long."}]});
        let second = made(gate, "brief", &blocks).await;
        let latest = &second["designated_version"];
        assert_eq!((&second["id"], &second["created_at"]), (&first["id"], &first["created_at"]));
        assert_eq!((&latest["version"], &latest["config"]), (&json!(2), &json!({})));
        assert_eq!(latest["system_prompt"], "Be\n\nlong.");

        assert_eq!(get(gate, "/presets/brief").await.json()["data"], second);
        let listed = get(gate, "/presets/brief/versions").await.json();
        assert_eq!(listed, json!({"data": [version, latest], "total_count": 2}));
        let page = get(gate, "/presets/brief/versions?offset=1&limit=1").await.json();
        assert_eq!(page, json!({"data": [latest], "total_count": 2}));
        for (number, expected) in [(1, version), (2, latest)] {
            let one = get(gate, &format!("/presets/brief/versions/{number}")).await;
            assert_eq!((one.status, &one.json()["data"]), (200, expected));
        }
        let audited = account.audited().await;
        assert_eq!(audited[audited.len() - 2..], ["preset.created", "preset.updated"]);
    }

    async fn presets_are_listed_by_their_last_change_and_by_workspace(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        assert_eq!(get(gate, "/presets").await.json(), json!({"data": [], "total_count": 0}));
        for slug in ["a", "b", "c", "a"] {
            made(gate, slug, &json!({})).await;
        }
        let slugs = |reply: &Reply| -> Vec<String> {
            let json = reply.json();
            assert_eq!((reply.status, &json["total_count"]), (200, &json!(3)), "{json}");
            json["data"].as_array().unwrap().iter().map(|one| one["slug"].as_str().unwrap().to_owned()).collect()
        };
        let whole = get(gate, "/presets").await;
        assert_eq!(slugs(&whole), ["a", "c", "b"]);
        assert_eq!(whole.json()["data"][0].get("designated_version"), None);
        assert_eq!(slugs(&get(gate, "/presets?offset=1&limit=1").await), ["c"]);
        assert_eq!(slugs(&get(gate, "/presets?offset=3").await), Vec::<String>::new());
        for query in ["offset=-1", "offset=x", "limit=0", "limit=101", "limit=x"] {
            let path = query.split('=').next().unwrap();
            assert_refused(&get(gate, &format!("/presets?{query}")).await, path);
            assert_refused(&get(gate, &format!("/presets/a/versions?{query}")).await, path);
        }

        let theirs = of_another_workspace(&account).await;
        let list = gate.ask("GET", "/api/v1/presets").key(&theirs).send().await.json();
        assert_eq!(list, json!({"data": [], "total_count": 0}));
        for path in ["/presets/a", "/presets/a/versions", "/presets/a/versions/1"] {
            assert_not_found(&gate.ask("GET", &format!("/api/v1{path}")).key(&theirs).send().await);
        }
        let taken = gate.ask("POST", "/api/v1/presets/a/messages").key(&theirs).json("{}").send().await;
        let expected = json!({"error": {"code": 403, "message": "Preset a belongs to another workspace"}});
        assert_eq!((taken.status, taken.json()), (403, expected));
        assert_unknown(&gate.ask("POST", "/v1/messages").key(&theirs).json(asking("@preset/a").to_string()).send().await, "a");
    }

    async fn what_cannot_be_a_preset_is_refused_by_name(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        made(gate, "there", &json!({})).await;
        let long = "x".repeat(101);
        for slug in ["Up", "a_b", "a--b", "-a", "a-", "a.b", &long] {
            assert_refused(&put(gate, slug, &json!({})).await, "slug");
            assert_refused(&get(gate, &format!("/presets/{slug}")).await, "slug");
            assert_refused(&get(gate, &format!("/presets/{slug}/versions")).await, "slug");
        }
        made(gate, &long[1..], &json!({})).await;
        for (body, path) in [
            (json!([]), ""),
            (json!({"model": 1}), "model"),
            (json!({"temperature": 3}), "temperature"),
            (json!({"provider": {"sort": "fastest"}}), "provider.sort"),
            (json!({"fallbacks": [{"model": "a/b", "top_k": 1}]}), "fallbacks[0].top_k"),
            (json!({"tools": [{"name": "a"}]}), "tools[0].input_schema"),
            (json!({"messages": [{"role": "robot", "content": "hi"}]}), "messages[0].role"),
            (json!({"cache_enabled": "yes"}), "cache_enabled"),
            (json!({"cache_ttl_seconds": 0}), "cache_ttl_seconds"),
            (json!({"model": "@preset/there"}), "model"),
            (json!({"preset": "there"}), "preset"),
            (json!({"plugins": [{"id": "nope"}]}), ""),
            (json!({"tools": [{"type": "tidegate:nope"}]}), ""),
            // Two quotes belong to the prompt, two braces to the settings that are none.
            (json!({"system": "x".repeat(MOST_KEPT - 3)}), ""),
        ] {
            assert_refused(&put(gate, "wrong", &body).await, path);
        }
        made(gate, "largest", &json!({"system": "x".repeat(MOST_KEPT - 4), "messages": [user(&"y".repeat(MOST_KEPT))]})).await;
        let broken = ask(gate, "POST", "/presets/wrong/messages").json("{").send().await;
        assert_refused(&broken, "");

        for path in ["/presets/wrong", "/presets/wrong/versions", "/presets/there/versions/2", "/presets/there/versions/0",
            "/presets/there/versions/99999999999999999999", "/presets/wrong/versions/1"] {
            assert_not_found(&get(gate, path).await);
        }
        for number in ["x", "-1", "1.0"] {
            assert_refused(&get(gate, &format!("/presets/there/versions/{number}")).await, "version");
        }
        let managed = account.ask("GET", "/presets").await;
        let expected = json!({"error": {"code": 403, "message": "Management keys cannot be used for inference"}});
        assert_eq!((managed.status, managed.json()), (403, expected));
    }

    async fn of_many_writers_each_writes_its_own_version_or_none(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        let write = |top_k: u32| {
            ask(gate, "POST", "/presets/shared/messages").json(json!({"top_k": top_k}).to_string())
        };
        let replies = together((1..=12).map(write)).await;
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
        let mut written: Vec<u64> = replies.iter().filter(|reply| reply.status == 200)
            .map(|reply| reply.json()["data"]["designated_version"]["version"].as_u64().unwrap()).collect();
        written.sort_unstable();
        let expected: Vec<u64> = (1..=written.len() as u64).collect();
        assert!(!written.is_empty());
        assert_eq!(written, expected, "no number twice, none left out");
        let total = get(gate, "/presets/shared/versions").await.json()["total_count"].as_u64().unwrap();
        assert_eq!(total, written.len() as u64);
    }

    /// Somebody holds what every writer of a preset needs, and does not let go.
    async fn a_writer_who_cannot_have_its_turn_is_told_to_come_again(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        const HOLD: &str = "UPDATE sequences SET value = value WHERE name = 'presets'";
        macro_rules! refused_while {
            ($pool:expr, $begin:literal) => {{
                let mut held = $pool.begin_with($begin).await.unwrap();
                sqlx::query(HOLD).execute(&mut *held).await.unwrap();
                let reply = put(gate, "late", &json!({})).await;
                held.rollback().await.unwrap();
                reply
            }};
        }
        let reply = match &account.store {
            Store::Sqlite { writer, .. } => refused_while!(writer, "BEGIN IMMEDIATE"),
            Store::Postgres(pool) => refused_while!(pool, "BEGIN"),
        };
        let expected = json!({"error": {"code": 409, "message": "Resource conflict. Please try again later."}});
        assert_eq!((reply.status, reply.header("retry-after"), reply.json()), (409, Some("1"), expected));
        made(gate, "late", &json!({})).await;
    }

    async fn a_preset_that_is_switched_off_is_not_found_any_more(database: &Database) {
        let sim = Sim::start(Behaviour::Echo).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let gate = &account.gate;
        let request = asking("@preset/p");
        assert_unknown(&gate.messages(request.clone()).await, "p");
        made(gate, "p", &json!({"model": MODEL, "max_tokens": 9})).await;
        assert_eq!(gate.messages(request.clone()).await.status, 200);
        let command = async |words: &[&str]| {
            let done = gate.place.run(words).await;
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            (done.status.success(), said)
        };
        for (word, status) in [
            ("disable", PresetStatus::Disabled),
            ("enable", PresetStatus::Active),
            ("archive", PresetStatus::Archived),
        ] {
            let (is_done, said) = command(&["presets", word, "p"]).await;
            assert!(is_done, "{said}");
            let (_, listed) = command(&["presets", "list"]).await;
            let line = listed.lines().find(|line| line.starts_with("p ")).unwrap();
            assert!(line.contains(status.as_str()), "{listed}");
            let expected = if status == PresetStatus::Active { 200 } else { 404 };
            eventually("the gateway hears of it", Duration::from_secs(5), async || {
                gate.messages(request.clone()).await.status == expected
            })
            .await;
            assert_eq!(get(gate, "/presets/p").await.json()["data"]["status"], status.as_str());
        }
        assert_unknown(&gate.messages(request.clone()).await, "p");
        let counted = ask(gate, "POST", "/messages/count_tokens").json(request.to_string()).send().await;
        assert_unknown(&counted, "p");
        assert_not_found(&put(gate, "p", &json!({})).await);
        let (is_done, said) = command(&["presets", "enable", "p"]).await;
        assert!(!is_done && said.contains("stays so"), "{said}");
        let (is_done, said) = command(&["presets", "disable", "nowhere"]).await;
        assert!(!is_done && said.contains("there is no preset"), "{said}");
    }
}

/// A preset that OpenAI's clients make is the one that Anthropic's would have made, and serves both.
#[tokio::test]
async fn a_preset_is_made_in_the_formats_of_openai() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let chat = json!({"model": MODEL, "max_completion_tokens": 50, "temperature": 0.5, "seed": 7, "stream": true,
        "stop": ["END"], "user": "somebody", "prediction": {}, "messages": [{"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"}]});
    let responses = json!({"model": MODEL, "max_output_tokens": 50, "temperature": 0.5, "instructions": "Be brief.",
        "input": "hi", "prediction": {}});
    let config = json!({"model": MODEL, "max_tokens": 50, "temperature": 0.5});
    let mut of_chat = config.clone();
    of_chat["stop_sequences"] = json!(["END"]);
    of_chat["chat_options"] = json!({"seed": 7});
    for (format, body, config) in [("chat/completions", chat, of_chat), ("responses", responses, config)] {
        let path = format!("/presets/brief/{format}");
        let reply = ask(&gate, "POST", &path).json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:prediction"), "{format}");
        let version = &reply.json()["data"]["designated_version"];
        assert_eq!(version["config"], config, "{format}");
        assert_eq!(version["system_prompt"], "Be brief.", "{format}");
        let reply = gate.messages(asking("@preset/brief")).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let upstream = sim.requests().pop().unwrap().json();
        assert_eq!(upstream["max_tokens"], 50, "{format}");
        assert_eq!(upstream["temperature"], 0.5, "{format}");
        let reply = gate.ask("POST", "/v1/chat/completions").key(INFERENCE_KEY);
        let reply = reply.json(asking("@preset/brief").to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        assert_eq!(reply.json()["model"], MODEL, "{format}");
        assert_eq!(sim.requests().pop().unwrap().json()["system"][0]["text"], "Be brief.", "{format}");
        let refused = ask(&gate, "POST", &path).json(json!({"model": MODEL}).to_string()).send().await;
        assert_eq!(refused.status, 400, "{}", refused.body_text());
    }
}

/// An effort and a form of the answer are two members there: one of them leaves the other alone.
#[tokio::test]
async fn what_openai_says_apart_is_merged_apart() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let tool = json!({"name": "f", "input_schema": {"type": "object", "properties": {}}});
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let settings = json!({"model": MODEL, "max_tokens": 4096, "tools": [tool], "output_config": {"format": format},
        "tool_choice": {"type": "tool", "name": "f"}});
    made(&gate, "apart", &settings).await;
    let chat = json!({"messages": [user("hi")], "reasoning_effort": "high"});
    let responses = json!({"input": "hi", "reasoning": {"effort": "high"}});
    for (path, mut body) in [("chat/completions", chat), ("responses", responses)] {
        body["model"] = json!("@preset/apart");
        body["parallel_tool_calls"] = json!(false);
        let reply = gate.ask("POST", &format!("/v1/{path}")).key(INFERENCE_KEY).json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        let sent = sim.requests().pop().unwrap().json();
        assert_eq!(sent["output_config"]["format"], format, "{path}");
        let choice = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
        assert_eq!(sent["tool_choice"], choice, "{path}");
    }
}

/// Each file says what a preset is made of, what a request says, and what the upstream must get.
#[tokio::test]
async fn requests_and_presets_are_merged() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, native_search::LINES).run().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/presets");
    let mut cases: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    assert!(cases.len() >= 13, "{cases:?}");
    for path in cases {
        let case: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        made(&gate, "case", &case["preset"]).await;
        let reply = gate.messages(case["request"].clone()).await;
        assert_eq!(reply.status, 200, "{}: {}", path.display(), reply.body_text());
        assert_eq!(reply.json()["model"], MODEL, "{}", path.display());
        assert_eq!(sim.requests().pop().unwrap().json(), case["upstream"], "{}", path.display());
    }
}

#[tokio::test]
async fn rules_are_for_what_request_and_preset_say_together() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let refused = async |preset: Value, request: Value, message: &str| {
        made(&gate, "p", &preset).await;
        let reply = gate.messages(request).await;
        let expected = (400, "invalid_request_error".to_owned(), "invalid_request".to_owned(), message.to_owned());
        assert_eq!(reply.error(), expected);
    };
    let named = |members: Value| {
        let mut request = asking("@preset/p");
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    };
    refused(json!({"top_k": 1}), named(json!({})), "Invalid request: model is required").await;
    let thinking = json!({"model": MODEL, "thinking": {"type": "enabled", "budget_tokens": 2048}});
    let message = "Invalid request: max_tokens must be greater than thinking.budget_tokens";
    refused(thinking, named(json!({"max_tokens": 100})), message).await;
    let message = "Invalid request: tool_choice requires tools";
    refused(json!({"model": MODEL, "tool_choice": {"type": "any"}}), named(json!({})), message).await;
    let message = "Invalid request: preset must be the one that model names";
    refused(json!({"model": MODEL}), named(json!({"preset": "q"})), message).await;
    refused(json!({"model": MODEL}), json!({"preset": "p"}), "Invalid request: messages is required").await;
    refused(json!({"model": "no/such"}), named(json!({})), "no/such is not a valid model ID").await;
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn a_count_is_of_the_whole_request() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    made(&gate, "p", &json!({"model": MODEL, "system": "Be brief.", "max_tokens": 9, "temperature": 1})).await;
    let reply = ask(&gate, "POST", "/messages/count_tokens").json(asking("@preset/p").to_string()).send().await;
    let sent = json!({"model": "m", "system": "Be brief.", "messages": [user("hi")]});
    let seen = sim.requests().pop().unwrap();
    assert_eq!(seen.json(), sent);
    // The simulator counts a token for every four bytes it gets.
    assert_eq!((reply.status, reply.json()), (200, json!({"input_tokens": seen.body.len().div_ceil(4)})));
}

#[tokio::test]
async fn a_preset_says_who_serves_and_the_record_names_it() {
    let (first, second) = (Sim::start(Behaviour::says("first")).await, Sim::start(Behaviour::says("second")).await);
    let aliases = "[aliases]\nhouse = \"vendor/m\"\n";
    let gate = Tidegate::start().endpoint(MODEL, &first).endpoint(MODEL, &second).config(aliases).run().await;
    let preset = made(&gate, "p", &json!({"model": "house", "provider": {"only": ["p1"]}, "max_tokens": 9})).await;
    for stream in [false, true] {
        let mut request = asking("@preset/p");
        request["stream"] = json!(stream);
        let sent = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
        let reply = sent.json(request.to_string()).send().await;
        assert_eq!((reply.status, &*reply.text()), (200, "second"), "{}", reply.body_text());
        let metadata = if stream {
            let stop = reply.events().into_iter().find(|event| event.name == "message_stop").unwrap().json();
            stop["tidegate_metadata"].clone()
        } else {
            reply.json()["tidegate_metadata"].clone()
        };
        assert_eq!(
            (&metadata["requested"], &metadata["strategy"]),
            (&json!("@preset/p"), &json!("alias")),
            "{metadata}"
        );
        let id = reply.header("x-generation-id").unwrap();
        let record = get(&gate, &format!("/generation?id={id}")).await.json()["data"].clone();
        assert_eq!((&record["preset_id"], &record["model"]), (&preset["id"], &json!(MODEL)), "{record}");
    }
    let plain = gate.messages(json!({"model": MODEL, "max_tokens": 9, "messages": [user("hi")]})).await;
    let id = plain.header("x-generation-id").unwrap();
    assert_eq!(get(&gate, &format!("/generation?id={id}")).await.json()["data"]["preset_id"], Value::Null);

    let failed = gate.messages(json!({"model": "no/such@preset/p", "messages": [user("hi")]})).await;
    assert_eq!(failed.json()["error"]["availability"]["requested_models"], json!(["no/such@preset/p"]));

    let explained =
        async |body: Value| gate.ask("POST", "/v1/explain").key(MANAGEMENT_KEY).json(body.to_string()).send().await;
    let told = explained(json!({"model": "@preset/p", "key": hash_of(INFERENCE_KEY)})).await.json()["data"].clone();
    assert_eq!((&told["requested"], &told["strategy"]), (&json!(["@preset/p"]), &json!("alias")), "{told}");
    let served: Vec<&Value> = told["candidates"].as_array().unwrap().iter().filter(|one| one["place"] == 1).collect();
    assert_eq!(served[0]["endpoint"], "p1", "{told}");
    // Without a key there is no workspace whose presets could be meant.
    assert_eq!(explained(json!({"model": "@preset/p"})).await.status, 404);
}

#[tokio::test]
async fn a_preset_has_a_say_in_what_is_kept() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let asked = async |headers: &[(&str, &str)]| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(asking("@preset/p").to_string());
        let reply = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let header = |name: &str| reply.header(name).map(ToOwned::to_owned);
        (header("x-tidegate-cache-status"), header("x-tidegate-cache-ttl"))
    };
    let found = |status: &str, ttl: &str| (Some(status.to_owned()), Some(ttl.to_owned()));
    let (on, off) = (("x-tidegate-cache", "true"), ("x-tidegate-cache", "false"));
    let of = |enabled: Option<bool>, ttl: u64, top_k: u64| {
        let mut preset = json!({"model": MODEL, "max_tokens": 9, "cache_ttl_seconds": ttl, "top_k": top_k});
        if let Some(enabled) = enabled {
            preset["cache_enabled"] = json!(enabled);
        }
        preset
    };
    made(&gate, "p", &of(None, 600, 1)).await;
    assert_eq!(asked(&[]).await, (None, None));
    assert_eq!(asked(&[on]).await, found("MISS", "600"));
    made(&gate, "p", &of(Some(true), 600, 2)).await;
    assert_eq!(asked(&[off]).await, (None, None));
    assert_eq!(
        asked(&[("x-tidegate-cache-ttl", "7")]).await,
        found("MISS", "7"),
        "another version makes another request"
    );
    assert_eq!(asked(&[]).await.0.as_deref(), Some("HIT"));
    made(&gate, "p", &of(Some(false), 600, 2)).await;
    assert_eq!(asked(&[on]).await, (None, None));
    made(&gate, "p", &of(Some(true), 100_000, 3)).await;
    assert_eq!(asked(&[]).await, found("MISS", "86400"));
}

/// What was written is there after a restart.
#[tokio::test]
async fn presets_outlive_the_process() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    made(&gate, "p", &json!({"model": MODEL, "max_tokens": 9})).await;
    let (status, place) = gate.stop().await;
    assert!(status.success());
    let gate = place.serve().await;
    assert_eq!(gate.messages(asking("@preset/p")).await.status, 200);
}

/// Gateways that share a store share its presets: a new one at once, another version within a second or so.
#[test]
fn another_gateway_has_the_same_presets() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::Echo).await;
        let text = Tidegate::start().endpoint(MODEL, &sim).config(&database.config()).text();
        let gates = replicas(database, &text, 2).await;
        let (one, other) = (&gates[0], &gates[1]);
        made(one, "p", &json!({"model": MODEL, "max_tokens": 9})).await;
        let reply = other.messages(asking("@preset/p")).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        made(one, "p", &json!({"model": MODEL, "max_tokens": 8})).await;
        eventually("the other gateway hears of it", Duration::from_secs(5), async || {
            assert_eq!(other.messages(asking("@preset/p")).await.status, 200);
            sim.requests().pop().unwrap().json()["max_tokens"] == 8
        })
        .await;
    });
}
