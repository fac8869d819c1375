//! `/byok`: what is refused, with the place of each mistake, and that nothing changes then.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Secret;
use tidegate_store::credentials::{NewCredential, NewSecret, Settings};
use tidegate_store::vault::{MasterKeySource, MasterRing, Vault};

use crate::byok::{KEY, UNKNOWN, created, id_of, start};
use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, assert_not_found, assert_refused, hash_of, on_both, shell,
};

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
        // No model can be called with it.
        ("allowed_api_key_hashes", json!([hash_of(MANAGEMENT_KEY)]), "allowed_api_key_hashes"),
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

    async fn ten_4_what_is_foreign_unknown_or_malformed_is_not_found(database: &Database) {
        let (account, _sim) = start(database).await;
        let (theirs, foreign) = account.other_tenant().await;
        let ours = created(&account, json!({"provider": "p0", "key": KEY})).await;
        let folder = tempfile::TempDir::new().unwrap();
        let source = MasterKeySource::File(folder.path().join("key"));
        let ring = MasterRing::load_or_create(&source).await.unwrap();
        let vault = Vault::new(source, ring);
        let secret = Secret::new(KEY);
        let new = NewCredential {
            workspace: &foreign,
            provider: "p0",
            secret: NewSecret {
                secret: &secret, vault: &vault, label: "***".to_owned(), destination: None,
            },
            settings: Settings::default(),
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
        assert_refused(&account.ask("GET", &format!("/byok?workspace_id={foreign}")).await, "workspace_id");
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
