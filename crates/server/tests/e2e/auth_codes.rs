//! Authorization codes from the outside: made with a management key, exchanged by whoever holds one, once.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{KeyHash, KeyKind};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};

use crate::harness::{
    Account, Database, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, hello, on_both, shell, together,
};

const MODEL: &str = "vendor/m";
const CALLBACK: &str = "http://localhost:51423/cb";
// The pair of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Rates that the tests are not about are out of the way.
const FAST: &str = "[limits]\nmanagement_rpm = 600000\nexchanges_per_minute = 600000\n\
                    exchange_failures_per_minute = 600000\n";

async fn gate(storage: &str) -> Tidegate {
    Tidegate::start().config(storage).config(FAST).run().await
}

async fn make(gate: &Tidegate, body: Value) -> Reply {
    gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).json(body.to_string()).send().await
}

/// A new code for the usual callback with more members.
async fn code(gate: &Tidegate, more: Value) -> String {
    let reply = make(gate, with(more)).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"]["id"].as_str().expect("a code is text").to_owned()
}

fn with(more: Value) -> Value {
    let mut body = json!({"callback_url": CALLBACK});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

async fn exchange(gate: &Tidegate, body: Value) -> Reply {
    gate.ask("POST", "/api/v1/auth/keys").json(body.to_string()).send().await
}

/// Status and text of an error in the general form.
fn refusal(reply: &Reply) -> (u16, String) {
    let body = reply.json();
    assert_eq!(body["error"]["code"], reply.status, "{body}");
    (reply.status, body["error"]["message"].as_str().expect("a message").to_owned())
}

/// The fields that a refusal names.
fn fields(reply: &Reply) -> Vec<String> {
    let body = reply.json();
    let issues = body["error"]["metadata"]["issues"].as_array().cloned().unwrap_or_default();
    issues.iter().map(|issue| issue["path"].as_str().expect("a path").to_owned()).collect()
}

async fn keys(gate: &Tidegate) -> Vec<Value> {
    let reply = gate.managed("/api/v1/keys?include_disabled=true").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["data"].as_array().expect("a list").clone()
}

fn repeated(length: usize) -> String {
    "ä".repeat(length)
}

on_both! {
    async fn a_code_becomes_a_key_with_everything_that_was_asked_for(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let gate = Tidegate::start().endpoint_with(MODEL, &sim, "pricing = { input = 0, output = 0 }").config(&database.config()).config(FAST).run().await;
        let asked = json!({
            "code_challenge": CHALLENGE, "code_challenge_method": "S256", "limit": 25, "usage_limit_type": "weekly",
            "key_label": "  laptop  ", "expires_at": "2099-08-24T12:30:00+02:00", "unknown_member": {"x": 1},
            "spawn_agent": repeated(300), "spawn_cloud": "cloud",
        });
        let made = make(&gate, with(asked)).await;
        assert_eq!(made.status, 200, "{made:?}");
        let data = made.json()["data"].clone();
        let id = data["id"].as_str().expect("a code");
        let random = id.strip_prefix("auth_code_").expect("the documented form");
        assert!(random.len() == 43 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        assert_eq!(data["app_id"], 1);
        let created = data["created_at"].as_str().expect("a time");
        assert!(created.len() == 24 && created.ends_with('Z'), "{created}");
        assert_eq!(data.as_object().expect("an object").len(), 3);

        let reply = exchange(&gate, json!({"code": id, "code_verifier": VERIFIER})).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        let body = reply.json();
        assert_eq!((body["user_id"].clone(), body.as_object().expect("an object").len()), (Value::Null, 2));
        let key = body["key"].as_str().expect("a key");
        assert!(key.starts_with("sk-tg-v1-"), "the documented prefix");

        let message = gate.ask("POST", "/v1/messages").key(key).json(hello(MODEL).to_string()).send().await;
        assert_eq!((message.status, message.text()), (200, "hello".to_owned()), "it works at once");
        let listed = keys(&gate).await;
        let made = listed.iter().find(|row| row["name"] == "laptop").expect("the label, trimmed, is its name");
        assert_eq!(made["limit"], 25);
        assert_eq!(made["limit_reset"], "weekly");
        assert_eq!(made["expires_at"], "2099-08-24T10:30:00.000Z");
        assert_eq!((&made["disabled"], &made["include_byok_in_limit"]), (&json!(false), &json!(false)));
        assert_eq!(made["creator_user_id"], Value::Null);
    }

    async fn the_defaults_are_the_applications_title_no_limit_and_no_end(database: &Database) {
        let gate = gate(&database.config()).await;
        let cases = [
            ("https://www.app.example/cb", "app.example"),
            ("https://app.example:8443/cb", "app.example"),
            ("http://localhost:3000/x", "localhost:3000"),
            ("http://127.0.0.1:4000/x", "127.0.0.1:4000"),
        ];
        for (callback, title) in cases {
            let made = make(&gate, json!({"callback_url": callback, "key_label": "   ", "expires_at": null})).await;
            let id = made.json()["data"]["id"].clone();
            let reply = exchange(&gate, json!({"code": id})).await;
            assert_eq!(reply.status, 200, "{callback}: {reply:?}");
            let newest = keys(&gate).await;
            let row = newest.iter().find(|row| row["name"] == title).expect("named after its application");
            assert_eq!((&row["limit"], &row["limit_reset"], &row["expires_at"]), (&json!(null), &json!(null), &json!(null)));
        }
    }

    async fn an_origin_keeps_its_application_whatever_the_path(database: &Database) {
        let gate = gate(&database.config()).await;
        let app = async |callback: &str| {
            let made = make(&gate, json!({"callback_url": callback})).await;
            made.json()["data"]["app_id"].as_i64().expect("an integer")
        };
        assert_eq!(app("https://one.example/a").await, 1);
        assert_eq!(app("https://two.example/a").await, 2);
        assert_eq!(app("https://ONE.example:443/b?c=d").await, 1);
        assert_eq!(app("https://one.example:444/").await, 3);
        assert_eq!(app("http://localhost:1/").await, 4);
        assert_eq!(app("http://localhost:2/").await, 5);
        assert_eq!(app("http://localhost:1/other").await, 4);

        // A title given in a header names keys from then on; an address of one's own machine keeps its name.
        for (header, callback, name) in [
            ("x-title", "https://one.example/", "One"),
            ("x-tidegate-title", "https://one.example/", "Two"),
            ("x-title", "http://localhost:1/", "Three"),
        ] {
            let body = json!({"callback_url": callback}).to_string();
            let ask = gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).header(header, name);
            let made = ask.json(body).send().await;
            let id = made.json()["data"]["id"].clone();
            assert_eq!(exchange(&gate, json!({"code": id})).await.status, 200);
        }
        let names: Vec<Value> = keys(&gate).await.iter().map(|row| row["name"].clone()).collect();
        for expected in ["One", "Two", "localhost:1"] {
            assert!(names.contains(&json!(expected)), "{names:?}");
        }
        assert!(!names.contains(&json!("Three")));
    }

    async fn what_cannot_be_asked_for_is_refused_with_the_field_named(database: &Database) {
        let gate = gate(&database.config()).await;
        let long_plain = "a".repeat(129);
        let cases: Vec<(Value, &str)> = vec![
            (json!({}), "callback_url"),
            (json!({"callback_url": null}), "callback_url"),
            (json!({"callback_url": 7}), "callback_url"),
            (json!({"callback_url": "http://app.example/cb"}), "callback_url"),
            (json!({"callback_url": "https://user@app.example/"}), "callback_url"),
            (json!({"callback_url": "https://app.example/#x"}), "callback_url"),
            (json!({"callback_url": "https://app.example\\@evil.example"}), "callback_url"),
            (json!({"callback_url": "http://localhost.evil.example/"}), "callback_url"),
            (json!({"callback_url": "http://127.1/"}), "callback_url"),
            (json!({"callback_url": "javascript:alert(1)"}), "callback_url"),
            (json!({"callback_url": "https://app.example/?code=1"}), "callback_url"),
            (json!({"callback_url": format!("https://app.example/{}", "a".repeat(2029))}), "callback_url"),
            (with(json!({"code_challenge": ""})), "code_challenge"),
            (with(json!({"code_challenge": null})), "code_challenge"),
            (with(json!({"code_challenge": long_plain})), "code_challenge"),
            (with(json!({"code_challenge": &CHALLENGE[1..], "code_challenge_method": "S256"})), "code_challenge"),
            (with(json!({"code_challenge": CHALLENGE, "code_challenge_method": "s256"})), "code_challenge_method"),
            (with(json!({"code_challenge": CHALLENGE, "code_challenge_method": null})), "code_challenge_method"),
            (with(json!({"code_challenge_method": "S256"})), "code_challenge_method"),
            (with(json!({"expires_at": "2020-01-01T00:00:00Z"})), "expires_at"),
            (with(json!({"expires_at": "tomorrow"})), "expires_at"),
            (with(json!({"expires_at": 1_999_999_999})), "expires_at"),
            (with(json!({"key_label": repeated(101)})), "key_label"),
            (with(json!({"key_label": null})), "key_label"),
            (with(json!({"key_label": "a\u{0}b"})), "key_label"),
            (with(json!({"key_label": "a\u{1b}[31mb"})), "key_label"),
            (with(json!({"limit": -1})), "limit"),
            (with(json!({"limit": "5"})), "limit"),
            (with(json!({"limit": null})), "limit"),
            (with(json!({"limit": 1_000_000_000.01_f64})), "limit"),
            (with(json!({"usage_limit_type": "yearly"})), "usage_limit_type"),
            (with(json!({"usage_limit_type": null})), "usage_limit_type"),
            (with(json!({"spawn_agent": 1})), "spawn_agent"),
            (with(json!({"workspace_id": "default"})), "workspace_id"),
            (with(json!({"workspace_id": "0198c8b0-0000-7000-8000-000000000000"})), "workspace_id"),
        ];
        for (body, field) in cases {
            let reply = make(&gate, body.clone()).await;
            assert_eq!(refusal(&reply), (400, "Invalid request parameters".to_owned()), "{body}");
            assert_eq!(fields(&reply), [field], "{body}");
        }
        let both = make(&gate, json!({"callback_url": "x", "limit": -1, "key_label": repeated(101)})).await;
        let mut named = fields(&both);
        named.sort();
        assert_eq!(named, ["callback_url", "key_label", "limit"], "one answer names them all");

        for (kind, body) in [
            ("application/json", "[]"),
            ("application/json", "null"),
            ("application/json", "\"x\""),
            ("application/json", ""),
            ("application/json", "{"),
            ("application/json", "{\"callback_url\":\"https://a.example\",\"callback_url\":\"https://b.example\"}"),
            ("application/json", "\u{feff}{\"callback_url\":\"https://a.example\"}"),
            ("text/plain", "{\"callback_url\":\"https://a.example\"}"),
            ("application/x-www-form-urlencoded", "callback_url=https://a.example"),
        ] {
            let ask = gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).header("content-type", kind);
            let reply = ask.body(body).send().await;
            assert_eq!(refusal(&reply), (400, "Invalid request parameters".to_owned()), "{kind} {body}");
        }
        let huge = with(json!({"spawn_agent": "x".repeat(300 << 10)}));
        assert_eq!(refusal(&make(&gate, huge).await), (413, "Request payload too large".to_owned()));

        // Nothing was made by any of these: the first application is the one that comes now.
        assert_eq!(make(&gate, with(json!({}))).await.json()["data"]["app_id"], 1);
    }

    async fn a_code_is_made_only_where_its_owner_may_hold_keys(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let (store, tenant) = (&account.store, &account.tenant);
        let member = NewMember { email: "m@example.com".to_owned(), first_name: None, last_name: None, role: Role::Member };
        let member = store.add_member(tenant, &shell(), member).await.expect("it answers").id;
        let raw = "a-management-key-of-somebody".to_owned();
        let key = NewKey {
            hash: KeyHash::of(raw.as_bytes()),
            kind: KeyKind::Management,
            name: "theirs".to_owned(),
            label: "***".to_owned(),
            limit: None,
            limit_reset: None,
            include_byok_in_limit: false,
            expires: None,
            creator: Some(member.clone()),
            external_user: None,
            app_id: None,
            spawn_agent: None,
            spawn_cloud: None,
        };
        store.create_key(tenant, &shell(), &account.workspace, key).await.expect("it answers");
        let team = account.data("POST", "/workspaces", Some(json!({"name": "T", "slug": "t"})), 201).await;
        let team = team["id"].as_str().expect("an id").to_owned();
        let ask = async |more: Value| {
            let ask = account.gate.ask("POST", "/api/v1/auth/keys/code").key(&raw);
            ask.json(with(more).to_string()).send().await
        };
        assert_eq!(ask(json!({})).await.status, 200, "everybody belongs to the default workspace");
        let refused = ask(json!({"workspace_id": team})).await;
        assert_eq!((refused.status, fields(&refused)), (400, vec!["workspace_id".to_owned()]));
        let added = json!({"user_ids": [member]});
        assert_eq!(account.send("POST", &format!("/workspaces/{team}/members/add"), added).await.status, 200);
        assert_eq!(ask(json!({"workspace_id": team})).await.status, 200);
    }

    async fn values_at_their_limits_are_accepted(database: &Database) {
        let gate = gate(&database.config()).await;
        let cases = [
            json!({"callback_url": format!("https://app.example/{}", "a".repeat(2028))}),
            with(json!({"key_label": repeated(100)})),
            with(json!({"limit": 0})),
            with(json!({"limit": 1_000_000_000})),
            with(json!({"limit": 0.000_000_001})),
            with(json!({"code_challenge": "a"})),
            with(json!({"code_challenge": "a".repeat(128), "code_challenge_method": "plain"})),
            with(json!({"code_challenge": format!("{CHALLENGE}="), "code_challenge_method": "S256"})),
            with(json!({"usage_limit_type": "daily"})),
            with(json!({"expires_at": "2099-01-01t00:00:00z"})),
            with(json!({"expires_at": "9999-12-31T23:59:59.999Z"})),
        ];
        for body in cases {
            let reply = make(&gate, body.clone()).await;
            assert_eq!(reply.status, 200, "{body}: {reply:?}");
        }
    }

    async fn cod_4_every_way_to_exchange_a_code(database: &Database) {
        let gate = gate(&database.config()).await;
        let none = json!({});
        let plain = json!({"code_challenge": "secret"});
        let s256 = json!({"code_challenge": CHALLENGE, "code_challenge_method": "S256"});
        let invalid = (403, "Invalid code or code_verifier");
        let method = (400, "Invalid code_challenge_method");
        let parameters = (400, "Invalid request parameters");
        let ok = (200, "");
        let cases = [
            (&none, json!({}), ok),
            (&none, json!({"code_challenge_method": null}), ok),
            (&none, json!({"code_verifier": "x"}), parameters),
            (&none, json!({"code_challenge_method": "S256"}), method),
            (&plain, json!({"code_verifier": "secret"}), ok),
            (&plain, json!({"code_verifier": "secret", "code_challenge_method": "plain"}), ok),
            (&plain, json!({"code_verifier": "secret", "code_challenge_method": "S256"}), method),
            (&plain, json!({"code_verifier": "wrong"}), invalid),
            (&plain, json!({}), invalid),
            (&s256, json!({"code_verifier": VERIFIER}), ok),
            (&s256, json!({"code_verifier": VERIFIER, "code_challenge_method": null}), ok),
            (&s256, json!({"code_verifier": VERIFIER, "code_challenge_method": "S256"}), ok),
            (&s256, json!({"code_verifier": VERIFIER, "code_challenge_method": "plain"}), method),
            (&s256, json!({"code_verifier": CHALLENGE}), invalid),
            (&s256, json!({}), invalid),
            (&s256, json!({"code_verifier": ""}), parameters),
            (&s256, json!({"code_verifier": null}), parameters),
            (&s256, json!({"code_verifier": "x".repeat(513)}), parameters),
            (&s256, json!({"code_challenge_method": "S512"}), parameters),
        ];
        for (asked, mut sent, (status, text)) in cases {
            let before = keys(&gate).await.len();
            sent["code"] = json!(code(&gate, asked.clone()).await);
            let reply = exchange(&gate, sent.clone()).await;
            assert_eq!(reply.status, status, "{asked} {sent}: {reply:?}");
            if status != 200 {
                assert_eq!(refusal(&reply).1, text, "{asked} {sent}");
            }
            assert_eq!(keys(&gate).await.len() - before, usize::from(status == 200), "{asked} {sent}");
        }
        for body in [json!({"code": "auth_code_unknown"}), json!({"code": "x", "code_verifier": VERIFIER})] {
            assert_eq!(refusal(&exchange(&gate, body).await), (403, invalid.1.to_owned()));
        }
        for body in [json!({}), json!({"code": ""}), json!({"code": "x".repeat(257)}), json!({"code": 1}), json!([])] {
            assert_eq!(refusal(&exchange(&gate, body).await), (400, parameters.1.to_owned()));
        }
        assert_eq!(exchange(&gate, json!({"code": "x".repeat(256)})).await.status, 403);
    }

    async fn cod_6_five_wrong_verifiers_burn_a_code(database: &Database) {
        let gate = gate(&database.config()).await;
        let asked = json!({"code_challenge": CHALLENGE, "code_challenge_method": "S256"});
        for (wrong, status) in [(4, 200), (5, 403)] {
            let code = code(&gate, asked.clone()).await;
            for _ in 0..wrong {
                let reply = exchange(&gate, json!({"code": code, "code_verifier": "wrong"})).await;
                assert_eq!(refusal(&reply), (403, "Invalid code or code_verifier".to_owned()));
            }
            let reply = exchange(&gate, json!({"code": code, "code_verifier": VERIFIER})).await;
            assert_eq!(reply.status, status, "after {wrong}");
        }
    }

    async fn cod_6_a_second_use_is_refused_and_a_double_submit_leaves_the_key_alone(database: &Database) {
        let gate = gate(&database.config()).await;
        let code = code(&gate, json!({})).await;
        let first = exchange(&gate, json!({"code": code})).await;
        assert_eq!(first.status, 200);
        for _ in 0..3 {
            let again = exchange(&gate, json!({"code": code})).await;
            assert_eq!(refusal(&again), (403, "Invalid code or code_verifier".to_owned()));
        }
        let listed = keys(&gate).await;
        assert_eq!(listed.iter().filter(|row| row["name"] == "localhost:51423").count(), 1);
        assert!(listed.iter().all(|row| row["disabled"] == false));
    }

    async fn cod_5_of_fifty_exchanges_at_once_one_wins(database: &Database) {
        let gate = gate(&database.config()).await;
        let rounds = 100;
        for round in 0..rounds {
            let code = code(&gate, json!({"key_label": format!("round {round}")})).await;
            let body = json!({"code": code}).to_string();
            let replies = together((0..50).map(|_| gate.ask("POST", "/api/v1/auth/keys").json(body.clone()))).await;
            let mut answers: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
            answers.sort_unstable();
            assert_eq!((answers[0], answers[1], answers[49]), (200, 403, 403), "round {round}: {answers:?}");
        }
        let mut made = 0;
        for offset in (0..).step_by(100) {
            let page = gate.managed(&format!("/api/v1/keys?offset={offset}")).await.json();
            let page = page["data"].as_array().expect("a list").clone();
            made += page.iter().filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("round"))).count();
            if page.len() < 100 {
                break;
            }
        }
        assert_eq!(made, rounds, "one key each");
    }

    async fn idm_1_the_same_call_twice_makes_one_code(database: &Database) {
        let gate = gate(&database.config()).await;
        let ask = |name: &str, body: &Value| {
            let ask = gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).header("idempotency-key", name);
            ask.json(body.to_string())
        };
        let call = async |name: &str, body: &Value| ask(name, body).send().await;
        let body = with(json!({"key_label": "once"}));
        let first = call("a-1", &body).await;
        assert_eq!((first.status, first.header("idempotent-replayed")), (200, None));
        let again = call("a-1", &body).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        let (first, again) = (first.json()["data"].clone(), again.json()["data"].clone());
        assert_eq!((&again["app_id"], &again["created_at"]), (&first["app_id"], &first["created_at"]));
        assert_eq!(again["id"], Value::Null, "the code is told once");
        let other = call("a-1", &with(json!({"key_label": "other"}))).await;
        assert_eq!(refusal(&other), (400, "Invalid request parameters".to_owned()));
        assert_eq!(fields(&other), ["Idempotency-Key"]);
        assert_eq!(call("a-2", &body).await.header("idempotent-replayed"), None);
        assert_eq!(call(&"k".repeat(255), &body).await.status, 200);
        assert_eq!(call(&"k".repeat(256), &body).await.status, 400);
        assert_eq!(call("", &body).await.status, 400);
        // What cannot be asked for any more was given before: the workspace is gone, and its codes with it.
        let made = gate.ask("POST", "/api/v1/workspaces").key(MANAGEMENT_KEY);
        let made = made.json(json!({"name": "short", "slug": "short"}).to_string()).send().await.json();
        let id = made["data"]["id"].as_str().expect("an id").to_owned();
        let inside = with(json!({"workspace_id": id}));
        assert_eq!(call("a-4", &inside).await.status, 200);
        gate.ask("DELETE", &format!("/api/v1/workspaces/{id}")).key(MANAGEMENT_KEY).send().await;
        let again = call("a-4", &inside).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")), "{}", again.body_text());
        assert_eq!(call("a-5", &inside).await.status, 400);
        // At once: one is the first, the others hear what it was told.
        let replies = together((0..10).map(|_| ask("a-3", &body))).await;
        let fresh = replies.iter().filter(|reply| reply.json()["data"]["id"].is_string()).count();
        assert_eq!((fresh, replies.iter().filter(|reply| reply.status == 200).count()), (1, 10));
    }

    async fn cod_7_codes_that_wait_are_counted(database: &Database) {
        let limits = "[oauth]\nmax_pending_codes = 3\n";
        let gate = Tidegate::start().config(&database.config()).config(FAST).config(limits).run().await;
        let first = code(&gate, json!({})).await;
        for _ in 0..2 {
            code(&gate, json!({})).await;
        }
        let refused = make(&gate, with(json!({}))).await;
        assert_eq!(refusal(&refused), (409, "Resource conflict. Please try again later.".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(exchange(&gate, json!({"code": first})).await.status, 200);
        code(&gate, json!({})).await;
    }
}

on_both! {
    async fn only_management_keys_make_codes_and_anyone_may_exchange(database: &Database) {
        let gate = gate(&database.config()).await;
        let body = with(json!({})).to_string();
        let ask = |key: Option<&str>| {
            let ask = gate.ask("POST", "/v1/auth/keys/code").json(body.clone());
            match key {
                Some(key) => ask.key(key),
                None => ask,
            }
        };
        assert_eq!(refusal(&ask(None).send().await), (401, "Missing Authentication header".to_owned()));
        assert_eq!(refusal(&ask(Some("nobody")).send().await), (401, "Invalid API key".to_owned()));
        let inference = ask(Some(INFERENCE_KEY)).send().await;
        assert_eq!(refusal(&inference), (403, "Only management keys can perform this operation".to_owned()));
        assert_eq!(ask(Some(MANAGEMENT_KEY)).send().await.status, 200);

        let get = gate.get("/v1/auth/keys").await;
        assert_eq!((refusal(&get), get.header("allow")), ((405, "Method Not Allowed".to_owned()), Some("POST")));
        let preflight = gate.ask("OPTIONS", "/v1/auth/keys").header("origin", "https://app.example").send().await;
        assert_eq!(preflight.status, 204);
        assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
        assert_eq!(preflight.header("access-control-allow-methods"), Some("POST"));
        let elsewhere = gate.ask("OPTIONS", "/v1/auth/keys/code").send().await;
        assert_eq!((elsewhere.status, elsewhere.header("access-control-allow-origin")), (405, None));
    }

    async fn exchanges_are_limited_per_address(database: &Database) {
        let gate = Tidegate::start().config(&database.config()).run().await;
        // Five failures a minute are heard out; then there is a rest.
        for _ in 0..5 {
            assert_eq!(exchange(&gate, json!({"code": "unknown"})).await.status, 403);
        }
        let held_off = exchange(&gate, json!({"code": "unknown"})).await;
        assert_eq!(refusal(&held_off), (429, "Rate limit exceeded".to_owned()));
        let wait: u64 = held_off.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
        assert!((1..=12).contains(&wait), "one of five a minute: {wait}");
        assert_eq!(held_off.header("access-control-allow-origin"), Some("*"), "a page can read it");
        // A body that is no request is told so, and costs nothing.
        assert_eq!(exchange(&gate, json!({})).await.status, 400);
    }

    async fn cod_6_a_proven_replay_disables_the_key(database: &Database) {
        replay(database, "", true).await;
    }

    async fn cod_6_a_proven_replay_leaves_the_key_alone_where_that_is_configured(database: &Database) {
        replay(database, "[oauth]\ncode_replay = \"deny\"\n", false).await;
    }

    async fn cod_1_a_code_ends_with_its_time(database: &Database) {
        let gate = Tidegate::start().config(&database.config()).config(FAST).config("[oauth]\ncode_ttl = 60\n").run().await;
        let early = code(&gate, json!({})).await;
        move_back(database, &gate, Duration::from_secs(59)).await;
        assert_eq!(exchange(&gate, json!({"code": early})).await.status, 200);
        let late = code(&gate, json!({})).await;
        move_back(database, &gate, Duration::from_secs(60)).await;
        let reply = exchange(&gate, json!({"code": late})).await;
        assert_eq!(refusal(&reply), (403, "Authorization code expired".to_owned()));
    }

    async fn cod_1_a_slow_body_does_not_keep_a_code_alive(database: &Database) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let gate = Tidegate::start().config(&database.config()).config(FAST).config("[oauth]\ncode_ttl = 60\n").run().await;
        let body = json!({"code": code(&gate, json!({})).await}).to_string();
        let mut stream = gate.connect().await;
        let head = format!(
            "POST /v1/auth/keys HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{}",
            body.len(),
            &body[..5]
        );
        stream.write_all(head.as_bytes()).await.expect("it listens");
        // The request has begun; its code's time passes before the rest comes.
        assert_eq!(gate.get("/healthz").await.status, 200);
        move_back(database, &gate, Duration::from_secs(60)).await;
        stream.write_all(&body.as_bytes()[5..]).await.expect("it waits");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("Authorization code expired"), "{answer}");
    }
}

/// A code that is used, and used again eleven seconds later: the store's times are moved, not the clock.
async fn replay(database: &Database, config: &str, disabled: bool) {
    let gate = Tidegate::start().config(&database.config()).config(FAST).config(config).run().await;
    let asked = json!({"code_challenge": CHALLENGE, "code_challenge_method": "S256"});
    let code = code(&gate, asked).await;
    let good = json!({"code": code, "code_verifier": VERIFIER});
    let key = exchange(&gate, good.clone()).await.json()["key"].as_str().expect("a key").to_owned();
    move_back(database, &gate, Duration::from_secs(11)).await;
    let works = async || gate.ask("GET", "/v1/key").key(&key).send().await.status == 200;
    for wrong in [json!({"code": code}), json!({"code": code, "code_verifier": "wrong"})] {
        assert_eq!(exchange(&gate, wrong).await.status, 403);
        assert!(works().await, "who cannot prove it does no harm");
    }
    assert_eq!(exchange(&gate, good).await.status, 403);
    assert_eq!(works().await, !disabled, "{config}");
}

/// As if everything about codes had happened so much earlier.
async fn move_back(database: &Database, gate: &Tidegate, by: Duration) {
    let sql =
        "UPDATE auth_codes SET created_at = created_at - $1, expires_at = expires_at - $1, used_at = used_at - $1";
    let millis = i64::try_from(by.as_millis()).expect("a short time");
    match Store::open(&database.url(), &gate.place.data_dir()).await.expect("the store opens") {
        Store::Sqlite { writer, .. } => {
            sqlx::query(sql).bind(millis).execute(&writer).await.expect("the table is there");
        }
        Store::Postgres(pool) => {
            sqlx::query(sql).bind(millis).execute(&pool).await.expect("the table is there");
        }
    }
}
