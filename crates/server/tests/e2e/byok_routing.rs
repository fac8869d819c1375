//! Which credential reaches which provider: seen from the header that the upstream received.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_core::{KeyHash, KeyKind};
use tidegate_sim::{Behaviour, Script, Seen, Sim};
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};

use crate::harness::{
    Account, INFERENCE_KEY, Load, Recorder, Reply, Tidegate, eventually, hash_of, hello, hello_streamed, on_both, say,
    shell,
};

const MODEL: &str = "vendor/m";
const TWO_SECONDS: Duration = Duration::from_secs(2);
/// 14 tokens in and 9 out, at $3 and $15 a million: 42 + 135 micro-dollars.
const PRICED: &str = "pricing = { input = 3, output = 15 }";
const LIST_PRICE: f64 = 0.000177;

/// The key that a call came with.
fn carried(seen: &Seen) -> String {
    let bearer = || seen.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    seen.header("x-api-key").or_else(bearer).expect("a call carries a key").to_owned()
}

fn keys(sim: &Sim) -> Vec<String> {
    sim.requests().iter().map(carried).collect()
}

/// Asks for a message; the keys that it was tried with, in their order.
async fn tried(account: &Account, sim: &Sim) -> (u16, Vec<String>) {
    let before = sim.requests().len();
    let reply = account.gate.messages(hello(MODEL)).await;
    (reply.status, keys(sim).split_off(before))
}

async fn stored(account: &Account, body: Value) -> String {
    let made = account.data("POST", "/byok", Some(body), 201).await;
    made["id"].as_str().expect("an id").to_owned()
}

async fn patched(account: &Account, id: &str, change: Value) {
    account.data("PATCH", &format!("/byok/{id}"), Some(change), 200).await;
}

async fn ask_with(account: &Account, key: &str, model: &str) -> Reply {
    account.gate.ask("POST", "/v1/messages").key(key).json(hello(model).to_string()).send().await
}

fn new_key(name: &str, creator: Option<String>) -> NewKey {
    NewKey {
        hash: KeyHash::of(name.as_bytes()),
        kind: KeyKind::Inference,
        name: name.to_owned(),
        label: "***".to_owned(),
        limit: None,
        limit_reset: None,
        include_byok_in_limit: false,
        expires: None,
        creator,
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    }
}

on_both! {
    async fn prioritised_credentials_come_first_then_shared_ones_then_fallbacks(database: &Database) {
        // One upstream plays both providers, so that the order of all calls is seen.
        let sim = Sim::start(Script::says("hello").require_key("nobody")).await;
        let both = Tidegate::start().endpoint(MODEL, &sim).endpoint(MODEL, &sim);
        let account = Account::start(database, both).await;
        for (provider, key, is_fallback) in
            [("p0", "own-p0-last", true), ("p1", "own-p1-a", false), ("p1", "own-p1-b", false), ("p0", "own-p0", false)]
        {
            stored(&account, json!({"provider": provider, "key": key, "is_fallback": is_fallback})).await;
        }
        let all = ["own-p0", "own-p1-a", "own-p1-b", "provider-secret-0", "provider-secret-1", "own-p0-last"];
        let reply = account.gate.messages(hello(MODEL)).await;
        assert_eq!(keys(&sim), all);
        let (status, kind, _, message) = reply.error();
        assert_eq!((status, &*kind), (403, "permission_error"));
        assert_eq!(message, "The P0 credential was rejected by the provider (HTTP 401)");
    }

    async fn a_credential_is_shown_to_its_provider_alone(database: &Database) {
        let (one, two) = (Sim::start(Behaviour::says("one")).await, Sim::start(Behaviour::says("two")).await);
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &one).endpoint(MODEL, &two)).await;
        stored(&account, json!({"provider": "p1", "key": "own-p1"})).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.text(), "two", "an own key goes before the order");
        two.set(Script::status(401));
        assert_eq!(account.gate.messages(hello(MODEL)).await.text(), "one");
        one.set(Script::status(503));
        assert!(account.gate.messages(hello(MODEL)).await.status >= 400);
        assert!(keys(&one).iter().all(|key| key == "provider-secret-0") && !keys(&one).is_empty());
        assert!(keys(&two).iter().all(|key| key == "own-p1" || key == "provider-secret-1"), "{:?}", keys(&two));
        assert_eq!(keys(&two)[..2], ["own-p1", "own-p1"]);
    }

    async fn the_first_credential_that_works_answers(database: &Database) {
        let sim = Sim::start(Script::says("hello").require_key("own-b")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let a = stored(&account, json!({"provider": "p0", "key": "own-a"})).await;
        let b = stored(&account, json!({"provider": "p0", "key": "own-b"})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["own-a".to_owned(), "own-b".to_owned()]));
        // The order is the account's: `b` first, and `a` is not needed.
        patched(&account, &b, json!({"sort_order": 0})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["own-b".to_owned()]));
        // A new key has been refused by nobody.
        patched(&account, &a, json!({"sort_order": 0, "key": "own-c"})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["own-c".to_owned(), "own-b".to_owned()]));
    }

    async fn a_refused_credential_that_is_alone_is_told_to_the_client(database: &Database) {
        let sim = Sim::start(Script::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let only = json!({"provider": "p0", "key": "own-key", "is_byok_only": true});
        let id = stored(&account, only).await;
        for (status, told, kind, message) in [
            (401, 403, "permission_error", "The P0 credential was rejected by the provider (HTTP 401)"),
            (403, 403, "permission_error", "The P0 credential was rejected by the provider (HTTP 403)"),
            (402, 402, "billing_error", "The P0 account has insufficient credits"),
        ] {
            sim.set(Behaviour::status(status));
            let before = sim.requests().len();
            let (code, found, _, text) = account.gate.messages(hello(MODEL)).await.error();
            assert_eq!((code, &*found, &*text), (told, kind, message));
            assert_eq!(keys(&sim).split_off(before), ["own-key"], "the operator's key is not used");
            // The same key anew, so that it does not rest.
            patched(&account, &id, json!({"key": "own-key"})).await;
        }
        // With the operator's key behind it, nobody notices.
        patched(&account, &id, json!({"is_byok_only": false})).await;
        for status in [401, 402] {
            patched(&account, &id, json!({"key": "own-key"})).await;
            sim.set(Script::status(status).then(Behaviour::says("hello")));
            assert_eq!(tried(&account, &sim).await, (200, vec!["own-key".to_owned(), "provider-secret-0".to_owned()]));
        }
    }

    async fn a_refused_credential_is_told_whoever_was_tried_last(database: &Database) {
        let sim = Sim::start(Script::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        for (refusal, told, message) in [
            (403, 403, "The P0 credential was rejected by the provider (HTTP 403)"),
            (402, 402, "The P0 account has insufficient credits"),
        ] {
            sim.set(Behaviour::status(refusal));
            // Whose turn it is changes, as both rest after the first call.
            for _ in 0..3 {
                let (status, _, _, text) = account.gate.messages(hello(MODEL)).await.error();
                assert_eq!((status, text.as_str()), (told, message));
            }
        }
    }

    async fn a_credential_serves_only_whom_it_may(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let other = "[[models]]\nid = \"vendor/n\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
                     [[models.endpoints]]\nprovider = \"p0\"\nmodel = \"n\"\n";
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(other)).await;
        let member = NewMember { email: "a@b.example".to_owned(), first_name: None, last_name: None, role: Role::Member };
        let user = account.store.add_member(&account.tenant, &shell(), member).await.unwrap().id;
        for (name, creator) in [("of-nobody", None), ("of-somebody", Some(user.clone()))] {
            let key = new_key(name, creator);
            account.store.create_key(&account.tenant, &shell(), &account.workspace, key).await.unwrap();
        }
        let id = stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        let everybody = json!({"allowed_models": null, "allowed_user_ids": null, "allowed_api_key_hashes": null});
        let callers = [(INFERENCE_KEY, MODEL), ("of-nobody", MODEL), ("of-somebody", MODEL), ("of-somebody", "vendor/n")];
        for (restriction, served) in [
            (json!({}), [true, true, true, true]),
            (json!({"allowed_models": [MODEL]}), [true, true, true, false]),
            (json!({"allowed_models": ["vendor/n:free", "x/y"]}), [false, false, false, true]),
            (json!({"allowed_models": ["vendor/*"]}), [false, false, false, false]),
            (json!({"allowed_models": []}), [false, false, false, false]),
            (json!({"allowed_user_ids": [user, "user_nobody"]}), [false, false, true, true]),
            (json!({"allowed_user_ids": []}), [false, false, false, false]),
            (json!({"allowed_api_key_hashes": [hash_of("of-nobody")]}), [false, true, false, false]),
            (json!({"allowed_models": [MODEL], "allowed_user_ids": [user]}), [false, false, true, false]),
        ] {
            patched(&account, &id, everybody.clone()).await;
            patched(&account, &id, restriction.clone()).await;
            for ((key, model), served) in callers.into_iter().zip(served) {
                let reply = ask_with(&account, key, model).await;
                assert_eq!(reply.status, 200, "{}", reply.body_text());
                let expected = if served { "own-key" } else { "provider-secret-0" };
                assert_eq!(keys(&sim).last().unwrap(), expected, "{restriction} {key} {model}");
            }
        }
    }

    async fn one_that_is_disabled_or_deleted_is_used_no_more_at_once(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let id = stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        let (own, shared) = ((200, vec!["own-key".to_owned()]), (200, vec!["provider-secret-0".to_owned()]));
        assert_eq!(tried(&account, &sim).await, own);
        patched(&account, &id, json!({"disabled": true})).await;
        assert_eq!(tried(&account, &sim).await, shared);
        patched(&account, &id, json!({"disabled": false})).await;
        assert_eq!(tried(&account, &sim).await, own);
        assert_eq!(account.ask("DELETE", &format!("/byok/{id}")).await.status, 200);
        assert_eq!(tried(&account, &sim).await, shared);
    }

    async fn an_exclusive_credential_keeps_the_operators_key_away(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let id = stored(&account, json!({"provider": "p0", "key": "own-key", "allowed_models": []})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["provider-secret-0".to_owned()]));
        patched(&account, &id, json!({"is_required": true})).await;
        assert_eq!(tried(&account, &sim).await.0, 200, "it applies to no model, so it requires nothing");
        patched(&account, &id, json!({"is_byok_only": true})).await;
        assert_eq!(tried(&account, &sim).await, (404, vec![]), "served with the account's own keys or not at all");
        patched(&account, &id, json!({"allowed_models": [MODEL]})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["own-key".to_owned()]));
        patched(&account, &id, json!({"disabled": true})).await;
        assert_eq!(tried(&account, &sim).await, (404, vec![]), "a key that leaked does not go on as another one");
        patched(&account, &id, json!({"is_byok_only": false, "is_required": true})).await;
        assert_eq!(tried(&account, &sim).await, (404, vec![]));
        patched(&account, &id, json!({"is_required": false})).await;
        assert_eq!(tried(&account, &sim).await, (200, vec!["provider-secret-0".to_owned()]));
    }

    async fn a_request_on_an_own_key_costs_nothing_here(database: &Database) {
        let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9}}"#;
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let sim = Sim::start(Behaviour::Raw { status: 200, headers, body: body.into() }).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let shared = account.gate.messages(hello(MODEL)).await.json()["usage"].clone();
        assert_eq!((&shared["is_byok"], shared["cost"].as_f64()), (&json!(false), Some(LIST_PRICE)));
        stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        let own = account.gate.messages(hello(MODEL)).await.json()["usage"].clone();
        assert_eq!((&own["is_byok"], own["cost"].as_f64()), (&json!(true), Some(0.0)));
        assert_eq!(own["cost_details"]["upstream_inference_cost"].as_f64(), Some(LIST_PRICE));
        sim.set(Behaviour::says("hello"));
        let streamed = account.gate.stream(hello_streamed(MODEL)).await.rest().await;
        let last = streamed.iter().rev().find(|event| event.name == "message_delta").expect("usage comes last").json();
        assert_eq!((&last["usage"]["is_byok"], last["usage"]["cost"].as_f64()), (&json!(true), Some(0.0)), "{last}");
    }

    async fn sec_8_a_credential_goes_only_where_it_was_stored_for(database: &Database) {
        let (old, new) = (Sim::start(Behaviour::says("old")).await, Sim::start(Behaviour::says("new")).await);
        let builder = |sim: &Sim| {
            let limits = "[limits]\nmanagement_rpm = 60000\n";
            Tidegate::start().endpoint(MODEL, sim).config(limits).config(&database.config())
        };
        let account = Account::start(database, builder(&old)).await;
        let id = stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.text(), "old");
        assert_eq!(keys(&old), ["own-key"]);
        let warnings = async |method: &str| {
            let reply = account.send(method, &format!("/byok/{id}"), json!({})).await;
            (reply.status, reply.header("x-tidegate-warnings").map(ToOwned::to_owned))
        };
        assert_eq!((warnings("GET").await, warnings("PATCH").await), ((200, None), (200, None)));

        account.gate.place.write_config(&builder(&new).text());
        account.gate.signal(Signal::HUP);
        account.gate.logs("reloaded").await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.text(), "new");
        assert_eq!(keys(&new), ["provider-secret-0"], "the new address gets the operator's key alone");
        let elsewhere = (200, Some("unroutable:address".to_owned()));
        assert_eq!((warnings("GET").await, warnings("PATCH").await), (elsewhere.clone(), elsewhere));
        patched(&account, &id, json!({"is_byok_only": true})).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 404);
        assert_eq!((new.calls(), old.calls()), (1, 1));
        // A new key is meant for the address of today.
        patched(&account, &id, json!({"key": "own-new-key"})).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.text(), "new");
        assert_eq!(keys(&new), ["provider-secret-0", "own-new-key"]);
        assert_eq!(warnings("GET").await, (200, None));
    }

    async fn sec_4_a_rotation_under_load_is_clean(database: &Database) {
        const ROTATIONS: usize = 50;
        const WORKERS: usize = 8;
        let upstream = Recorder::start().await;
        let builder = Tidegate::start().endpoint_at(MODEL, &upstream.base_url(), "");
        let account = Account::start(database, builder).await;
        let key = |version: usize| format!("own-key-{version:04}-{}", "x".repeat(version));
        let id = stored(&account, json!({"provider": "p0", "key": key(0), "is_byok_only": true})).await;
        // The version that was in force when a request was made goes along in it.
        let version = Arc::new(AtomicUsize::new(0));
        let now = version.clone();
        let load = Load::start(account.gate.address, WORKERS, MODEL, move || now.load(Ordering::SeqCst).to_string());
        for next in 1..=ROTATIONS {
            patched(&account, &id, json!({"key": key(next)})).await;
            version.store(next, Ordering::SeqCst);
        }
        let sent = load.stop().await;
        let seen = upstream.seen();
        assert_eq!(seen.len(), sent, "each request was answered by the first call");
        let known: Vec<String> = (0..=ROTATIONS).map(key).collect();
        for (carried, said) in &seen {
            let used = known.iter().position(|key| key == carried);
            let used = used.unwrap_or_else(|| panic!("{carried:?} was never set"));
            let at_least: usize = said.parse().expect("a number");
            assert!(used >= at_least, "key {used} after key {at_least} was set");
        }
        let used: BTreeSet<_> = seen.iter().map(|(carried, _)| carried).collect();
        assert!(used.len() > 1, "the load went on during the rotations");
        for _ in 0..WORKERS {
            assert_eq!(say(account.gate.address, MODEL, "after").await.status, 200);
        }
        let last: Vec<_> = upstream.seen().split_off(seen.len());
        assert!(last.len() == WORKERS && last.iter().all(|(carried, _)| *carried == key(ROTATIONS)), "{last:?}");
    }
}

#[test]
fn sec_4_another_node_follows_within_two_seconds() {
    crate::harness::with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        // Both nodes have the ring from one file.
        let folder = tempfile::TempDir::new().unwrap();
        let ring = format!("[secrets]\nmaster_key = \"file:{}\"\n", folder.path().join("master.key").display());
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(&ring)).await;
        let other = Tidegate::start().endpoint(MODEL, &sim).config(&ring).config(&database.config()).run().await;
        let uses = async |expected: &str| {
            eventually(expected, TWO_SECONDS, async || {
                assert_eq!(other.messages(hello(MODEL)).await.status, 200);
                keys(&sim).last().unwrap() == expected
            })
            .await;
        };
        let id = stored(&account, json!({"provider": "p0", "key": "own-key"})).await;
        uses("own-key").await;
        patched(&account, &id, json!({"key": "own-other-key"})).await;
        uses("own-other-key").await;
        patched(&account, &id, json!({"disabled": true})).await;
        uses("provider-secret-0").await;
        patched(&account, &id, json!({"disabled": false})).await;
        uses("own-other-key").await;
        assert_eq!(account.ask("DELETE", &format!("/byok/{id}")).await.status, 200);
        uses("provider-secret-0").await;
    });
}
