//! `/byok`: what an account can do with its credentials for providers.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};

use crate::harness::{
    Account, Database, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, assert_not_found, assert_refused, hash_of, on_both,
    shell,
};

const MODEL: &str = "vendor/m";
const KEY: &str = "sk-live-0123456789abcdef";
const UNKNOWN: &str = "01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11";

/// An account whose provider `p0` is one of the operator's.
async fn start(database: &Database) -> (Account, Sim) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    (Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await, sim)
}

async fn created(account: &Account, body: Value) -> Value {
    account.data("POST", "/byok", Some(body), 201).await
}

fn id_of(credential: &Value) -> String {
    credential["id"].as_str().expect("an id").to_owned()
}

/// The credentials as they are listed, and how many rows the audit log has.
async fn state(account: &Account) -> (Value, usize) {
    let listed = account.ask("GET", "/byok?limit=100").await;
    (listed.json(), account.audited().await.len())
}

fn with(base: &Value, name: &str, value: Value) -> Value {
    let mut body = base.clone();
    body[name] = value;
    body
}

fn texts(count: usize) -> Value {
    (0..count).map(|number| format!("entry {number}")).collect()
}

/// What is wrong with the members that POST and PATCH share, with the place that the answer must name.
fn mistakes() -> Vec<(&'static str, Value, &'static str)> {
    let long = "ü".repeat(256);
    let mut cases = vec![
        ("key", json!(null), "key"),
        ("key", json!(7), "key"),
        ("key", json!(""), "key"),
        ("key", json!(" \n\t "), "key"),
        ("key", json!("sk-two words"), "key"),
        ("key", json!("x".repeat(65_537)), "key"),
        ("name", json!(long), "name"),
        ("name", json!(1), "name"),
        ("name", json!("a\u{0}b"), "name"),
        ("allowed_models", json!("vendor/m"), "allowed_models"),
        ("allowed_models", texts(101), "allowed_models"),
        ("allowed_models", json!(["a", ""]), "allowed_models[1]"),
        ("allowed_models", json!([long]), "allowed_models[0]"),
        ("allowed_models", json!(["a", null]), "allowed_models[1]"),
        ("allowed_user_ids", json!({}), "allowed_user_ids"),
        ("allowed_user_ids", texts(101), "allowed_user_ids"),
        ("allowed_user_ids", json!([""]), "allowed_user_ids[0]"),
        ("allowed_user_ids", json!([long]), "allowed_user_ids[0]"),
        ("allowed_api_key_hashes", json!([]), "allowed_api_key_hashes"),
        ("allowed_api_key_hashes", json!("x"), "allowed_api_key_hashes"),
        ("allowed_api_key_hashes", json!(["x"]), "allowed_api_key_hashes[0]"),
        ("allowed_api_key_hashes", json!([hash_of("x").to_uppercase()]), "allowed_api_key_hashes[0]"),
        ("allowed_api_key_hashes", json!([hash_of(INFERENCE_KEY), hash_of("nobody")]), "allowed_api_key_hashes"),
        ("allowed_api_key_hashes", (0..101).map(|n| hash_of(&n.to_string())).collect(), "allowed_api_key_hashes"),
        ("declared_region", json!("mars"), "declared_region"),
        ("declared_region", json!(true), "declared_region"),
        ("declared_zdr", json!("true"), "declared_zdr"),
    ];
    for flag in ["disabled", "is_fallback", "is_required", "is_byok_only"] {
        cases.extend([(flag, json!(null), flag), (flag, json!("true"), flag), (flag, json!(1), flag)]);
    }
    cases
}

on_both! {
    async fn a_credential_is_created_shown_changed_rotated_and_deleted(database: &Database) {
        let (account, _sim) = start(database).await;
        let before = SystemClock.now();
        let body = json!({
            "provider": "p0", "key": format!("  {KEY}\n"), "name": "team-b prod", "is_required": true,
            "allowed_models": ["openai/gpt-5.2", "a/b", "openai/gpt-5.2"], "allowed_user_ids": [],
            "allowed_api_key_hashes": [hash_of(INFERENCE_KEY), hash_of(MANAGEMENT_KEY)],
            "declared_region": "europe", "declared_zdr": true, "sort_order": 7, "unknown": 1,
        });
        let reply = account.send("POST", "/byok", body).await;
        assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (201, None), "{}", reply.body_text());
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        let made = reply.json()["data"].clone();
        let at: jiff::Timestamp = made["created_at"].as_str().unwrap().parse().unwrap();
        assert!(at.as_millisecond() >= before.0 && at.as_millisecond() <= SystemClock.now().0);
        let id = id_of(&made);
        assert!(id.len() == 36 && id.chars().nth(14) == Some('7'), "a UUID of version 7: {id}");
        let mut expected = json!({
            "id": id, "provider": "p0", "name": "team-b prod", "label": "sk-...cdef", "disabled": false,
            "is_fallback": false, "is_required": true, "is_byok_only": false, "declared_region": "europe",
            "declared_zdr": true, "allowed_models": ["openai/gpt-5.2", "a/b"], "allowed_user_ids": [],
            "allowed_api_key_hashes": [hash_of(INFERENCE_KEY), hash_of(MANAGEMENT_KEY)], "sort_order": 0,
            "workspace_id": &*account.workspace.0, "created_at": made["created_at"],
        });
        assert_eq!(reply.json(), json!({"data": expected}));
        let path = format!("/byok/{id}");
        assert_eq!(account.data("GET", &path, None, 200).await, expected);
        assert_eq!(account.data("GET", &format!("/byok/{}", id.to_uppercase()), None, 200).await, expected);

        // Nothing given, nothing changed; the members that cannot change are passed over.
        for nothing in [json!({}), json!({"provider": 1, "workspace_id": "x", "id": "y", "label": 3})] {
            assert_eq!(account.data("PATCH", &path, Some(nothing), 200).await, expected);
        }
        let change = json!({"name": null, "disabled": true, "allowed_models": ["x/y"], "allowed_api_key_hashes": null});
        for (name, value) in change.as_object().unwrap() {
            expected[name] = value.clone();
        }
        assert_eq!(account.data("PATCH", &path, Some(change.clone()), 200).await, expected);
        assert_eq!(account.data("PATCH", &path, Some(change), 200).await, expected, "again is no other change");
        let change = json!({
            "allowed_models": null, "allowed_user_ids": ["user 1"], "is_required": false, "is_byok_only": true,
            "declared_region": null, "declared_zdr": null, "disabled": false,
        });
        for (name, value) in change.as_object().unwrap() {
            expected[name] = value.clone();
        }
        assert_eq!(account.data("PATCH", &path, Some(change), 200).await, expected);

        let rotation = json!({"key": "sk-rotated-fedcba9876543210", "name": "rotated"});
        expected["label"] = json!("sk-...3210");
        expected["name"] = json!("rotated");
        assert_eq!(account.data("PATCH", &path, Some(rotation), 200).await, expected);

        let gone = account.ask("DELETE", &path).await;
        assert_eq!((gone.status, gone.body_text()), (200, r#"{"deleted":true}"#));
        assert_not_found(&account.ask("GET", &path).await);
        assert_not_found(&account.send("PATCH", &path, json!({})).await);
        assert_not_found(&account.send("PATCH", &path, json!({"key": KEY})).await);
        assert_not_found(&account.ask("DELETE", &path).await);

        let audited = account.audited().await;
        let expected = ["byok.created", "byok.updated", "byok.updated", "byok.rotated", "byok.deleted"];
        assert_eq!(audited[audited.len() - 5..], expected);
        let entries = account.store.list_audit(&account.tenant, Timestamp(0), 0, 100).await.unwrap();
        assert!(entries[0].actor_id.as_deref() == Some(&hash_of(MANAGEMENT_KEY)) && entries[0].request.is_some());
        let said = format!("{entries:?}{}{}", account.gate.stderr(), account.gate.stdout());
        assert!(!said.contains("0123456789abcdef") && !said.contains("fedcba9876543210"), "{said}");
        assert!(said.contains("[changed]"), "{said}");
    }

    async fn a_refused_credential_names_each_mistake_and_changes_nothing(database: &Database) {
        let (account, _sim) = start(database).await;
        let good = json!({"provider": "p0", "key": KEY});
        let first = created(&account, good.clone()).await;
        let path = format!("/byok/{}", id_of(&first));
        let before = state(&account).await;
        for (name, value, place) in mistakes() {
            let reply = account.send("POST", "/byok", with(&good, name, value.clone())).await;
            assert_refused(&reply, place);
            // Beside a change that is right: all of it or nothing.
            let body = with(&json!({"disabled": true, "name": "new"}), name, value.clone());
            let reply = account.send("PATCH", &path, body).await;
            assert_refused(&reply, place);
            let text = value.as_str().filter(|text| text.len() > 20).unwrap_or("nothing of it");
            assert!(!reply.body_text().contains(text), "a value may be a secret in the wrong place");
        }
        for (name, value, place) in [
            ("provider", json!(null), "provider"),
            ("provider", json!("no-such-provider"), "provider"),
            ("provider", json!("OpenAI"), "provider"),
            ("provider", json!(""), "provider"),
            ("workspace_id", json!("default"), "workspace_id"),
            ("workspace_id", json!(null), "workspace_id"),
            ("workspace_id", json!(UNKNOWN), "workspace_id"),
        ] {
            assert_refused(&account.send("POST", "/byok", with(&good, name, value)).await, place);
        }
        for value in [json!(null), json!(-1), json!(1.5), json!("1"), json!(9_223_372_036_854_775_808_u64)] {
            assert_refused(&account.send("PATCH", &path, json!({"sort_order": value})).await, "sort_order");
        }
        let both = json!({"is_fallback": true, "is_byok_only": true});
        assert_refused(&account.send("PATCH", &path, both.clone()).await, "is_byok_only");
        let mut create_both = both;
        create_both["provider"] = json!("p0");
        create_both["key"] = json!(KEY);
        assert_refused(&account.send("POST", "/byok", create_both).await, "is_byok_only");
        let empty = account.send("POST", "/byok", json!({})).await;
        assert_refused(&empty, "provider");
        assert_refused(&empty, "key");
        for body in ["", "[]", "null", "{", r#"{"key":"a","key":"b"}"#] {
            for (method, path) in [("POST", "/byok"), ("PATCH", &*path)] {
                let ask = account.gate.ask(method, &format!("/api/v1{path}")).key(MANAGEMENT_KEY);
                let reply = ask.json(Bytes::copy_from_slice(body.as_bytes())).send().await;
                assert_eq!(reply.status, 400, "{method} {body}: {}", reply.body_text());
            }
        }
        assert_eq!(state(&account).await, before, "nothing was changed");

        // What the row has counts as much as what is given.
        account.data("PATCH", &path, Some(json!({"is_byok_only": true})), 200).await;
        assert_refused(&account.send("PATCH", &path, json!({"is_fallback": true})).await, "is_byok_only");
        account.data("PATCH", &path, Some(json!({"is_byok_only": false, "is_fallback": true})), 200).await;
    }

    async fn every_limit_can_be_reached(database: &Database) {
        let (account, _sim) = start(database).await;
        let body = json!({
            "provider": "p0", "key": "x".repeat(65_536), "name": "ü".repeat(255), "allowed_models": texts(100),
            "allowed_user_ids": ["ü".repeat(255)],
        });
        let made = created(&account, body.clone()).await;
        for name in ["name", "allowed_models", "allowed_user_ids"] {
            assert_eq!(made[name], body[name], "{name}");
        }
        let path = format!("/byok/{}", id_of(&made));
        account.data("PATCH", &path, Some(json!({"key": "y".repeat(65_536), "sort_order": 2_147_483_647})), 200).await;
        assert_eq!(created(&account, json!({"provider": "p0", "key": "k", "name": ""})).await["name"], "");
    }

    async fn a_label_shows_little_and_a_shape_is_checked(database: &Database) {
        let (account, _sim) = start(database).await;
        let aws = json!({"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "s", "region": "us-east-1"});
        let vertex = json!({
            "type": "service_account", "project_id": "my-project", "private_key_id": "0123456789abcdef0123",
            "private_key": "-----BEGIN PRIVATE KEY-----\nMII\n", "client_email": "a@b.iam.gserviceaccount.com",
        });
        let azure = json!([
            {"api_key": "0123456789abcdef", "resource_name": "one"},
            {"api_key": "k", "model_slug": "a/b", "endpoint_url": "https://x.example/v1", "model_id": "m"},
        ]);
        for (provider, key, label) in [
            ("openai", "123456789012345".to_owned(), "***"),
            ("openai", "1234567890123456".to_owned(), "123...3456"),
            ("amazon-bedrock", "bedrock-api-key-1234".to_owned(), "bed...1234"),
            ("amazon-bedrock", aws.to_string(), "AKI...MPLE"),
            ("google-vertex", vertex.to_string(), "my-project...0123"),
            ("azure", azure.to_string(), "012...cdef (+1)"),
        ] {
            let made = created(&account, json!({"provider": provider, "key": key})).await;
            assert_eq!(made["label"], label, "{provider}");
        }
        for (provider, key) in [
            ("amazon-bedrock", r#"{"accessKeyId":"a","region":"us-east-1"}"#),
            ("amazon-bedrock", "{"),
            ("google-vertex", "opaque"),
            ("google-vertex", r#"{"type":"user"}"#),
            ("azure", "opaque"),
            ("azure", "[]"),
            ("azure", r#"[{"api_key":"k","model_slug":"a/b","endpoint_url":"http://x","model_id":"m"}]"#),
        ] {
            let reply = account.send("POST", "/byok", json!({"provider": provider, "key": key})).await;
            assert_refused(&reply, "key");
        }
        // The same on rotation, by the provider of the row.
        let vertex = account.ask("GET", "/byok?provider=google-vertex").await.json()["data"][0].clone();
        let path = format!("/byok/{}", id_of(&vertex));
        assert_refused(&account.send("PATCH", &path, json!({"key": KEY, "provider": "openai"})).await, "key");
        assert_eq!(account.data("GET", &path, None, 200).await, vertex);
    }

    async fn a_provider_that_cannot_be_reached_is_warned_of(database: &Database) {
        let (account, _sim) = start(database).await;
        for (provider, warning) in [
            ("p0", None),
            ("anthropic", None),
            ("deepseek", None),
            ("openai", Some("unroutable:provider")),
            ("ai21", Some("unroutable:provider")),
            ("z-ai", None),
            ("xiaomi", Some("unroutable:provider")),
        ] {
            let reply = account.send("POST", "/byok", json!({"provider": provider, "key": KEY})).await;
            assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (201, warning), "{provider}");
        }
        let stored = account.store.credentials_changed_after(0).await.unwrap();
        let destinations: Vec<_> =
            stored.iter().skip(1).map(|row| (&*row.provider, row.destination.as_deref())).collect();
        let expected = [
            ("anthropic", Some("https://api.anthropic.com")),
            ("deepseek", Some("https://api.deepseek.com")),
            ("openai", Some("https://api.openai.com")),
            ("ai21", None),
            ("z-ai", Some("https://api.z.ai")),
            ("xiaomi", None),
        ];
        assert_eq!(destinations, expected);
    }

    async fn lists_are_ordered_filtered_and_paged(database: &Database) {
        let (account, _sim) = start(database).await;
        let other = NewWorkspace {
            name: "B".to_owned(), slug: "b".to_owned(), created_by: None, settings: WorkspaceChange::default(),
        };
        let other = account.store.create_workspace(&account.tenant, &shell(), other).await.unwrap().id;
        for (name, provider, is_fallback, workspace) in [
            ("g", "groq", false, &account.workspace),
            ("a2", "anthropic", true, &account.workspace),
            ("a0", "anthropic", false, &account.workspace),
            ("a1", "anthropic", false, &account.workspace),
            ("b0", "azure", false, &other),
        ] {
            let key = if provider == "azure" { r#"[{"api_key":"k","resource_name":"r"}]"# } else { KEY };
            let body = json!({
                "provider": provider, "key": key, "name": name, "is_fallback": is_fallback,
                "workspace_id": &*workspace.0,
            });
            let made = created(&account, body).await;
            assert_eq!((&made["workspace_id"], &made["is_fallback"]), (&json!(&*workspace.0), &json!(is_fallback)));
        }
        let names = async |query: &str| {
            let reply = account.ask("GET", &format!("/byok{query}")).await;
            assert_eq!(reply.status, 200, "{query}: {}", reply.body_text());
            let json = reply.json();
            let list: Vec<String> = json["data"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
            (list.join(" "), json["total_count"].as_u64().unwrap())
        };
        assert_eq!(names("").await, ("a0 a1 a2 b0 g".to_owned(), 5));
        assert_eq!(names("?limit=2&offset=1").await, ("a1 a2".to_owned(), 5));
        assert_eq!(names("?offset=9").await, (String::new(), 5));
        assert_eq!(names("?provider=anthropic").await, ("a0 a1 a2".to_owned(), 3));
        assert_eq!(names(&format!("?workspace_id={other}")).await, ("b0".to_owned(), 1));
        assert_eq!(names(&format!("?workspace_id={other}&provider=groq")).await, (String::new(), 0));
        assert_eq!(names(&format!("?workspace_id={UNKNOWN}")).await, (String::new(), 0));
        assert_eq!(names("?provider=p0").await, (String::new(), 0), "a provider of the operator's");
        for (query, place) in [
            ("provider=nobody", "provider"),
            ("workspace_id=default", "workspace_id"),
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("offset=-1", "offset"),
        ] {
            assert_refused(&account.ask("GET", &format!("/byok?{query}")).await, place);
        }
    }

    async fn a_place_in_the_order_can_be_chosen(database: &Database) {
        let (account, _sim) = start(database).await;
        let mut ids = std::collections::HashMap::new();
        for (name, is_fallback) in [("a", false), ("b", false), ("c", false), ("x", true)] {
            let body = json!({"provider": "p0", "key": KEY, "name": name, "is_fallback": is_fallback});
            ids.insert(name, id_of(&created(&account, body).await));
        }
        let order = async || {
            let list = account.ask("GET", "/byok").await.json()["data"].clone();
            let place = |one: &Value| format!("{}{}", one["name"].as_str().unwrap(), one["sort_order"]);
            list.as_array().unwrap().iter().map(place).collect::<Vec<_>>().join(" ")
        };
        let patch = async |name: &str, change: Value| {
            account.data("PATCH", &format!("/byok/{}", ids[name]), Some(change), 200).await["sort_order"].clone()
        };
        assert_eq!(order().await, "a0 b1 c2 x0");
        assert_eq!(patch("c", json!({"sort_order": 0})).await, 0);
        assert_eq!(order().await, "c0 a1 b2 x0");
        assert_eq!(patch("c", json!({"sort_order": 2})).await, 2);
        assert_eq!(order().await, "a0 b1 c2 x0");
        assert_eq!(patch("a", json!({"is_fallback": true})).await, 1, "to the end of the other section");
        assert_eq!(order().await, "b1 c2 x0 a1");
        assert_eq!(patch("b", json!({"is_fallback": true, "sort_order": 0})).await, 0);
        assert_eq!(order().await, "c2 b0 x1 a2");
    }

    async fn ten_4_what_is_foreign_unknown_or_malformed_is_not_found(database: &Database) {
        let (account, _sim) = start(database).await;
        let (theirs, foreign) = account.other_tenant().await;
        let ours = created(&account, json!({"provider": "p0", "key": KEY})).await;
        let folder = tempfile::TempDir::new().unwrap();
        let source = tidegate_store::vault::MasterKeySource::File(folder.path().join("key"));
        let ring = tidegate_store::vault::MasterRing::load_or_create(&source).await.unwrap();
        let vault = tidegate_store::vault::Vault::new(source, ring);
        let secret = tidegate_core::Secret::new(KEY);
        let new = tidegate_store::credentials::NewCredential {
            workspace: &foreign,
            provider: "p0",
            secret: tidegate_store::credentials::NewSecret {
                secret: &secret, vault: &vault, label: "***".to_owned(), destination: None,
            },
            settings: tidegate_store::credentials::Settings::default(),
        };
        let row = account.store.create_credential(&theirs, &shell(), &new).await.unwrap();
        for id in [&*row.id, UNKNOWN] {
            let path = format!("/byok/{id}");
            assert_not_found(&account.ask("GET", &path).await);
            assert_not_found(&account.send("PATCH", &path, json!({"disabled": true})).await);
            assert_not_found(&account.send("PATCH", &path, json!({"key": KEY})).await);
            assert_not_found(&account.ask("DELETE", &path).await);
        }
        for id in ["x", "01997d8e6a3c7b1f9a520f4f2f0f8d11", "%20"] {
            let path = format!("/byok/{id}");
            assert_not_found(&account.ask("GET", &path).await);
            assert_not_found(&account.ask("DELETE", &path).await);
            assert_refused(&account.send("PATCH", &path, json!({})).await, "id");
        }
        let in_theirs = json!({"provider": "p0", "key": KEY, "workspace_id": &*foreign.0});
        assert_refused(&account.send("POST", "/byok", in_theirs).await, "workspace_id");
        let listed = account.ask("GET", "/byok").await.json();
        assert_eq!(listed, json!({"data": [ours], "total_count": 1}));
        let filtered = account.ask("GET", &format!("/byok?workspace_id={foreign}")).await.json();
        assert_eq!(filtered, json!({"data": [], "total_count": 0}));
        assert_eq!(account.store.find_credential(&theirs, &row.id).await.unwrap().as_ref(), Some(&row));
    }

    async fn only_management_keys_may(database: &Database) {
        let (account, _sim) = start(database).await;
        let made = created(&account, json!({"provider": "p0", "key": KEY})).await;
        let one = format!("/api/v1/byok/{}", id_of(&made));
        for (method, path) in
            [("GET", "/api/v1/byok"), ("POST", "/api/v1/byok"), ("GET", &one), ("PATCH", &one), ("DELETE", &one)]
        {
            let refused = account.gate.ask(method, path).key(INFERENCE_KEY).json("{}").send().await;
            let message = &refused.json()["error"]["message"];
            assert_eq!((refused.status, message), (403, &json!("Only management keys can perform this operation")));
            let nobody = account.gate.ask(method, path).json("{}").send().await;
            assert_eq!(nobody.json()["error"]["message"], "Missing Authentication header");
            assert_eq!((nobody.status, account.gate.ask(method, path).key("x").send().await.status), (401, 401));
        }
        let wrong = account.gate.ask("PUT", &one).key(MANAGEMENT_KEY).send().await;
        assert_eq!((wrong.status, wrong.header("allow").is_some()), (405, true));
        assert_eq!(account.ask("GET", "/byok").await.json()["data"], json!([made]));
    }
}
