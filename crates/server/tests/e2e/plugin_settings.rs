//! What workspaces set for plugins: over HTTP, and as it is seen in their requests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, assert_not_found, assert_refused, hello, on_both,
};
use crate::money::key;

const SAYS: &str = "Sure: {port: 'Brest'}";
const HEALED: &str = r#"{"port":"Brest"}"#;

/// A request that is answered with something that is almost JSON.
fn asking() -> Value {
    let schema = json!({"type": "object", "required": ["port"], "properties": {"port": {"type": "string"}}});
    let mut body = hello("a/one");
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    body
}

fn switched_off() -> Value {
    let mut body = asking();
    body["plugins"] = json!([{"id": "response-healing", "enabled": false}]);
    body
}

async fn asked(account: &Account, key: &str, body: &Value) -> Reply {
    let ask = account.gate.ask("POST", "/v1/messages").key(key).header("x-tidegate-metadata", "enabled");
    ask.json(body.to_string()).send().await
}

fn of(account: &Account, plugin: &str) -> String {
    format!("/workspaces/{}/plugins/{plugin}", account.workspace.0)
}

on_both! {
    async fn a_workspace_sets_a_plugin_and_a_request_changes_it_unless_it_is_frozen(database: &Database) {
        let sim = Sim::start(Behaviour::says(SAYS)).await;
        let account = Account::start(database, Tidegate::start().endpoint("a/one", &sim)).await;
        let path = of(&account, "response-healing");
        let said = async |body: &Value| asked(&account, INFERENCE_KEY, body).await.text();
        assert_eq!(said(&asking()).await, SAYS, "nobody set anything");

        account.data("PUT", &path, Some(json!({"enabled": true})), 200).await;
        assert_eq!(said(&asking()).await, HEALED);
        assert_eq!(said(&switched_off()).await, SAYS);
        let mut empty = asking();
        empty["plugins"] = json!([]);
        assert_eq!(said(&empty).await, HEALED, "an empty list says nothing");

        account.data("PUT", &path, Some(json!({"enabled": true, "prevent_overrides": true})), 200).await;
        let reply = asked(&account, INFERENCE_KEY, &switched_off()).await;
        assert_eq!(reply.text(), HEALED);
        let told = reply.json()["tidegate_metadata"]["pipeline"].clone();
        assert_eq!((&told[0]["name"], &told[0]["data"]["overrides_ignored"]), (&json!("response-healing"), &json!(true)));
        let reply = asked(&account, INFERENCE_KEY, &asking()).await;
        assert_eq!(reply.json()["tidegate_metadata"]["pipeline"][0]["data"].get("overrides_ignored"), None);

        // A preset is no better than a request.
        let preset = json!({"plugins": [{"id": "response-healing", "enabled": false}]});
        let made = account.gate.ask("POST", "/api/v1/presets/plain/messages").key(INFERENCE_KEY);
        assert_eq!(made.json(preset.to_string()).send().await.status, 200);
        let mut with_preset = asking();
        with_preset["model"] = json!("a/one@preset/plain");
        assert_eq!(said(&with_preset).await, HEALED);
        account.data("PUT", &path, Some(json!({"enabled": true})), 200).await;
        assert_eq!(said(&with_preset).await, SAYS, "over the workspace");

        // Another workspace has none of it.
        let team = account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
        let theirs = key(&account, json!({"workspace_id": team["id"]})).await;
        assert_eq!(asked(&account, &theirs, &asking()).await.text(), SAYS);

        assert_eq!(account.ask("DELETE", &path).await.json(), json!({"deleted": true}));
        assert_eq!(said(&asking()).await, SAYS);
    }

    async fn a_plugin_without_what_it_works_with_is_not_switched_on(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().protocol_at("a/one", "openai-chat", &format!("{}/v1", sim.base_url()), "")).await;
        for (plugin, body) in [
            ("web", json!({"enabled": true})),
            ("web", json!({"enabled": true, "config": {"engine": "auto"}})),
            ("moderation", json!({"enabled": true})),
        ] {
            let reply = account.send("PUT", &of(&account, plugin), body).await;
            assert_refused(&reply, "enabled");
            assert!(reply.body_text().contains("the operator sets"), "{}", reply.body_text());
        }
        for (plugin, body) in [
            ("web", json!({"enabled": false})),
            ("web", json!({"config": {"max_results": 3}})),
            ("web", json!({"enabled": true, "config": {"engine": "native"}})),
            ("moderation", json!({"enabled": null})),
        ] {
            account.data("PUT", &of(&account, plugin), Some(body), 200).await;
        }
    }

    async fn a_workspace_stands_between_the_operator_and_the_request(database: &Database) {
        let mut gate = Tidegate::start().config(
            "[plugins.defaults.auto-router]\nallowed_models = [\"a/*\"]\n\
             [plugins.defaults.response-healing]\nenabled = false\nprevent_overrides = true\n",
        );
        let mut sims = Vec::new();
        for (name, price) in [("a/one", 1), ("a/two", 2), ("b/three", 3)] {
            let sim = Sim::start(Behaviour::says(name)).await;
            gate = gate.endpoint_with(name, &sim, &format!("pricing = {{ input = {price}, output = {price} }}"));
            sims.push(sim);
        }
        let account = Account::start(database, gate).await;
        let auto = |session: &str, plugins: Value| {
            let mut body = hello("tidegate/auto");
            body["session_id"] = json!(session);
            body["plugins"] = plugins;
            body
        };
        let said = async |session: &str, plugins: Value| asked(&account, INFERENCE_KEY, &auto(session, plugins)).await;
        assert_eq!(said("1", json!([])).await.text(), "a/one", "the cheapest of the operator's");
        let config = json!({"config": {"excluded_models": ["a/one"]}});
        account.data("PUT", &of(&account, "auto-router"), Some(config), 200).await;
        assert_eq!(said("2", json!([])).await.text(), "a/two", "both lists hold");
        let given = json!([{"id": "auto-router", "allowed_models": ["b/*"]}]);
        assert_eq!(said("3", given.clone()).await.text(), "b/three", "the request replaces the operator's list");
        let frozen = json!({"config": {"excluded_models": ["a/one"]}, "prevent_overrides": true});
        account.data("PUT", &of(&account, "auto-router"), Some(frozen), 200).await;
        let reply = said("4", given).await;
        assert_eq!(reply.text(), "a/two");
        let entry = &reply.json()["tidegate_metadata"]["pipeline"][0];
        assert_eq!((&entry["name"], &entry["data"]["overrides_ignored"]), (&json!("auto-router"), &json!(true)));

        // What the operator froze, a workspace cannot change.
        account.data("PUT", &of(&account, "response-healing"), Some(json!({"enabled": true})), 200).await;
        sims[0].set(Behaviour::says(SAYS));
        assert_eq!(asked(&account, INFERENCE_KEY, &asking()).await.text(), SAYS);
    }

    async fn what_is_set_is_listed_kept_in_the_log_and_refused_by_name(database: &Database) {
        let engine = "[tools.web_search.engines.house]\nkind = \"static\"\n";
        let account = Account::start(database, Tidegate::start().config(engine)).await;
        let all = format!("/workspaces/{}/plugins", account.workspace.0);
        assert_eq!(account.ask("GET", &all).await.json(), json!({"data": []}));
        let wanted = json!({"enabled": true, "config": {"max_results": 3}, "prevent_overrides": true});
        let set = account.data("PUT", &of(&account, "web"), Some(wanted), 200).await;
        for (name, value) in [
            ("plugin_id", json!("web")),
            ("workspace_id", json!(&*account.workspace.0)),
            ("enabled", json!(true)),
            ("config", json!({"max_results": 3})),
            ("prevent_overrides", json!(true)),
        ] {
            assert_eq!(set[name], value, "{set}");
        }
        // What is put replaces all of it, and a workspace may be named by its slug.
        let bare = account.data("PUT", "/workspaces/default/plugins/web", Some(json!({"enabled": null})), 200).await;
        assert_eq!((&bare["enabled"], &bare["config"]), (&Value::Null, &json!({})));
        assert_eq!((&bare["prevent_overrides"], &bare["created_at"]), (&json!(false), &set["created_at"]));
        let moderation = account.data("PUT", &of(&account, "moderation"), Some(json!({})), 200).await;
        assert_eq!(account.ask("GET", &all).await.json(), json!({"data": [moderation, bare]}), "by their ids");
        for _ in 0..2 {
            assert_eq!(account.ask("DELETE", &of(&account, "web")).await.json(), json!({"deleted": true}));
        }
        assert_eq!(account.ask("GET", &all).await.json(), json!({"data": [moderation]}));
        let audited = account.audited().await;
        assert_eq!(audited[audited.len() - 4..], ["plugin.set", "plugin.set", "plugin.set", "plugin.deleted"]);

        for (plugin, body, path) in [
            ("wep", json!({}), "plugin_id"),
            ("web", json!({"enabled": 1}), "enabled"),
            ("web", json!({"prevent_overrides": "yes"}), "prevent_overrides"),
            ("web", json!({"config": []}), "config"),
            ("web", json!({"config": {"enabled": true}}), "config.enabled"),
            ("web", json!({"config": {"id": "web"}}), "config.id"),
            ("web", json!({"config": {"max_results": 26}}), "config.max_results"),
            ("web", json!({"config": {"engine": "nobody"}}), "config.engine"),
            ("web-fetch", json!({"config": {"max_uses": 0}}), "config.max_uses"),
            ("auto-router", json!({"config": {"cost_tier": "cheap"}}), "config.cost_tier"),
            ("file-parser", json!({"config": {"pdf": {"engine": "x"}}}), "config.pdf.engine"),
        ] {
            assert_refused(&account.send("PUT", &of(&account, plugin), body).await, path);
        }
        assert_refused(&account.send("PUT", &of(&account, "moderation"), json!({"enabled": true})).await, "enabled");
        for (config, path) in [
            (r#"{"max_results":3,"max_results":4}"#, "config"),
            (r#"{"user_location":{"city":"a","city":"b"}}"#, "config.user_location"),
        ] {
            let ask = account.gate.ask("PUT", &format!("/api/v1{}", of(&account, "web"))).key(MANAGEMENT_KEY);
            assert_refused(&ask.json(format!("{{\"config\":{config}}}")).send().await, path);
        }
        assert_refused(&account.ask("DELETE", &of(&account, "wep")).await, "plugin_id");
        for missing in ["00000000-0000-7000-8000-00000000dead", "nowhere"] {
            let path = format!("/workspaces/{missing}/plugins");
            assert_not_found(&account.ask("GET", &path).await);
            assert_not_found(&account.send("PUT", &format!("{path}/web"), json!({})).await);
            assert_not_found(&account.ask("DELETE", &format!("{path}/web")).await);
        }
        assert_eq!(account.gate.ask("GET", &format!("/api/v1{all}")).key(INFERENCE_KEY).send().await.status, 403);
        let rows = account.store.list_plugins(&account.tenant, &account.workspace).await.unwrap();
        assert_eq!(rows.len(), 1, "nothing of what was refused is there");
    }
}
