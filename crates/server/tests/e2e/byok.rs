//! `/byok`: what an account can do with its credentials for providers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};

use crate::harness::{
    Account, Database, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, assert_not_found, assert_refused, hash_of, on_both,
    shell, together,
};
use crate::providers::private_key;

const MODEL: &str = "vendor/m";
pub const KEY: &str = "sk-live-0123456789abcdef";
pub const UNKNOWN: &str = "01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11";

/// An account whose provider `p0` is one of the operator's.
pub async fn start(database: &Database) -> (Account, Sim) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    (Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await, sim)
}

pub async fn created(account: &Account, body: Value) -> Value {
    account.data("POST", "/byok", Some(body), 201).await
}

pub fn id_of(credential: &Value) -> String {
    credential["id"].as_str().expect("an id").to_owned()
}

on_both! {
    async fn a_credential_is_created_shown_changed_rotated_and_deleted(database: &Database) {
        let (account, _sim) = start(database).await;
        let before = SystemClock.now();
        let body = json!({
            "provider": "p0", "key": format!("  {KEY}\n"), "name": "team-b prod", "is_required": true,
            "allowed_models": ["openai/gpt-5.2", "a/b", "openai/gpt-5.2"], "allowed_user_ids": [],
            "allowed_api_key_hashes": [hash_of(INFERENCE_KEY)],
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
            "allowed_api_key_hashes": [hash_of(INFERENCE_KEY)], "sort_order": 0,
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

    async fn a_label_shows_little_and_a_shape_is_checked(database: &Database) {
        let (account, _sim) = start(database).await;
        let aws = json!({"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "s", "region": "us-east-1"});
        let vertex = json!({
            "type": "service_account", "project_id": "my-project", "private_key_id": "0123456789abcdef0123",
            "private_key": private_key(), "client_email": "a@b.iam.gserviceaccount.com",
        });
        let with_key = |text: &str| {
            let mut account = vertex.clone();
            account["private_key"] = json!(text);
            account.to_string()
        };
        let azure = json!([
            {"api_key": "0123456789abcdef", "resource_name": "one"},
            {"api_key": "k", "model_slug": "a/b", "endpoint_url": "https://x.openai.azure.com/v1", "model_id": "m"},
        ]);
        for (provider, key, label) in [
            ("openai", "123456789012345".to_owned(), "***"),
            ("openai", "1234567890123456".to_owned(), "123...3456"),
            ("amazon-bedrock", "bedrock-api-key-1234".to_owned(), "bed...1234"),
            ("amazon-bedrock", aws.to_string(), "AKI...MPLE"),
            ("google-vertex", with_key(&private_key().replace('\n', "\\n")), "my-project...0123"),
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
            ("google-vertex", &*with_key("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n")),
            ("google-vertex", &*with_key("k")),
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
            ("google-ai-studio", None),
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
            ("google-ai-studio", Some("https://generativelanguage.googleapis.com")),
            ("ai21", None),
            ("z-ai", Some("https://api.z.ai")),
            ("xiaomi", None),
        ];
        assert_eq!(destinations, expected);
    }

    async fn an_azure_list_is_stored_with_its_places_and_what_is_spoken_there(database: &Database) {
        let (account, _sim) = start(database).await;
        let deployment = |model: &str, address: &str| {
            json!({"api_key": "k", "model_slug": model, "endpoint_url": address, "model_id": "d"})
        };
        for (entry, expected) in [
            (
                deployment("openai/a", "https://my.openai.azure.com/openai/deployments/a/chat/completions?api-version=1"),
                "https://my.openai.azure.com openai/a=openai-chat",
            ),
            (
                deployment("openai/a", "https://my.openai.azure.com/openai/v1/responses"),
                "https://my.openai.azure.com openai/a=openai-responses",
            ),
            (deployment("openai/a", "https://my.openai.azure.com/openai/v1"), "https://my.openai.azure.com"),
            (deployment("openai/a", "HTTPS://My.OpenAI.Azure.com:443/openai/v1"), "https://my.openai.azure.com"),
            (deployment("openai/a", "https://my.openai.azure.us/openai/v1"), "https://my.openai.azure.us"),
            (deployment("openai/a", "https://my.openai.azure.cn/openai/v1"), "https://my.openai.azure.cn"),
            (deployment("openai/a", "https://my.azure-api.net/openai/v1"), "https://my.azure-api.net"),
            (json!({"api_key": "k", "resource_name": "my"}), "https://my.openai.azure.com"),
            (
                json!({"api_key": "k", "resource_name": "my", "resource_type": "ai_foundry"}),
                "https://my.services.ai.azure.com",
            ),
        ] {
            let body = json!({"provider": "azure", "key": json!([entry]).to_string()});
            let reply = account.send("POST", "/byok", body).await;
            assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (201, None), "{entry}");
            let made = reply.json()["data"].clone();
            let shown = account.ask("GET", &format!("/byok/{}", id_of(&made))).await;
            assert_eq!((shown.status, shown.header("x-tidegate-warnings")), (200, None), "{entry}");
            let rows = account.store.credentials_changed_after(0).await.unwrap();
            let row = rows.iter().find(|row| *row.id == id_of(&made)).unwrap();
            assert_eq!(row.destination.as_deref(), Some(expected), "{entry}");
        }
    }

    async fn a_credential_for_another_address_is_warned_of_when_it_is_made(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        // The operator has said where Azure is: a customer's resource is elsewhere.
        let own = format!("[[providers]]\nslug = \"azure\"\nbase_url = \"{}\"\n", sim.base_url());
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&own)).await;
        let key = r#"[{"api_key":"k","resource_name":"my"}]"#;
        let made = account.send("POST", "/byok", json!({"provider": "azure", "key": key})).await;
        let warning = Some("unroutable:address");
        assert_eq!((made.status, made.header("x-tidegate-warnings")), (201, warning), "{made:?}");
        let path = format!("/byok/{}", id_of(&made.json()["data"]));
        assert_eq!(account.ask("GET", &path).await.header("x-tidegate-warnings"), warning);
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
        assert_eq!(names("?provider=p0").await, (String::new(), 0), "a provider of the operator's");
        let unknown = format!("workspace_id={UNKNOWN}");
        for (query, place) in [
            ("provider=nobody", "provider"),
            ("workspace_id=default", "workspace_id"),
            (&unknown, "workspace_id"),
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

    async fn sec_4_concurrent_changes_all_succeed(database: &Database) {
        let (account, _sim) = start(database).await;
        let made = created(&account, json!({"provider": "p0", "key": KEY})).await;
        let path = format!("/api/v1/byok/{}", id_of(&made));
        let asks = (0..24).map(|number| {
            let change = match number % 3 {
                0 => json!({"key": format!("sk-live-0123456789ab{number:04}")}),
                1 => json!({"name": format!("name {number}")}),
                _ => json!({"disabled": number % 2 == 0}),
            };
            account.gate.ask("PATCH", &path).key(MANAGEMENT_KEY).json(change.to_string())
        });
        for reply in together(asks).await {
            assert_eq!(reply.status, 200, "never 409: {}", reply.body_text());
        }
        let last = account.data("GET", &format!("/byok/{}", id_of(&made)), None, 200).await;
        assert!(last["name"].as_str().is_some_and(|name| name.starts_with("name ")), "{last}");
        assert!(last["label"].as_str().is_some_and(|label| label.starts_with("sk-...00")), "{last}");
        let rotated = account.audited().await.iter().filter(|action| *action == "byok.rotated").count();
        assert_eq!(rotated, 8);
    }
}
