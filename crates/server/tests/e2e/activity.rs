//! What was asked for and spent, by day and model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, Database, INFERENCE_KEY, Tidegate, assert_refused, eventually, hash_of, hello, on_both};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const TEN_SECONDS: std::time::Duration = std::time::Duration::from_secs(10);

async fn said(account: &Account, key: &str, model: &str, stream: bool) -> Value {
    let mut body = hello(model);
    body["stream"] = json!(stream);
    let reply = account.gate.ask("POST", "/v1/messages").key(key).json(body.to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    match stream {
        false => reply.json()["usage"].clone(),
        true => {
            let text = reply.body_text();
            let last = text.lines().rfind(|line| line.contains("message_delta") && line.starts_with("data:")).unwrap();
            serde_json::from_str::<Value>(&last["data:".len()..]).unwrap()["usage"].clone()
        }
    }
}

/// A gateway with two models, and a clock that the test moves by days.
async fn start(database: &Database, sim: &Sim) -> (Account, impl Fn(i64)) {
    let prices = "[models.endpoints.pricing]\ninput = 1\noutput = 2\n";
    let builder = Tidegate::start().endpoint("v/one", sim).endpoint_at("v/two", &sim.base_url(), prices);
    let mut place = builder.config("[limits]\nmanagement_rpm = 60000\n").config(&database.config()).place();
    let file = place.beside("clock");
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().unwrap()));
    let shift = move |days: i64| std::fs::write(&file, (days * DAY_MS).to_string()).unwrap();
    shift(0);
    (Account::start_at(database, place).await, shift)
}

on_both! {
    async fn days_are_told_once_they_are_over_by_model_key_and_workspace(database: &Database) {
        let sim = Sim::start(Behaviour::says("six words or so, not more")).await;
        let (account, shift) = start(database, &sim).await;
        let made = account.send("POST", "/keys", json!({"name": "second"})).await.json();
        let second = made["key"].as_str().unwrap().to_owned();
        let team = account.data("POST", "/workspaces", Some(json!({"name": "Team", "slug": "team"})), 201).await;
        let made = account.send("POST", "/keys", json!({"name": "third", "workspace_id": team["id"]})).await.json();
        let third = made["key"].as_str().unwrap().to_owned();
        let mut usages = Vec::new();
        for (key, stream) in [(INFERENCE_KEY, false), (INFERENCE_KEY, true), (&second, false), (&third, true)] {
            eventually("the key works", TEN_SECONDS, async || {
                account.gate.ask("GET", "/api/v1/key").key(key).send().await.status == 200
            })
            .await;
            usages.push(said(&account, key, "v/two", stream).await);
        }
        sim.set(Behaviour::Cached { read: 2048, write_5m: 512, write_1h: 256 });
        let cached = said(&account, INFERENCE_KEY, "v/one", false).await;
        sim.set(Behaviour::says("six words or so, not more"));
        assert_eq!(account.data("GET", "/activity", None, 200).await, json!([]), "today is not over");
        shift(1);
        said(&account, INFERENCE_KEY, "v/two", false).await;
        shift(2);

        let all = account.data("GET", "/activity", None, 200).await;
        let all = all.as_array().unwrap();
        let names: Vec<_> = all.iter().map(|day| (day["model"].as_str().unwrap(), day["requests"].as_u64().unwrap())).collect();
        assert_eq!(names, [("v/two", 1), ("v/one", 1), ("v/two", 4)], "newest first: {all:?}");
        assert!(all[0]["date"].as_str() > all[1]["date"].as_str() && all[1]["date"] == all[2]["date"], "{all:?}");
        let sum = |name: &str| usages.iter().map(|usage| usage[name].as_f64().unwrap()).sum::<f64>();
        let day = &all[2];
        assert_eq!(day["prompt_tokens"].as_f64().unwrap(), sum("input_tokens"));
        assert_eq!(day["completion_tokens"].as_f64().unwrap(), sum("output_tokens"));
        assert!((day["usage"].as_f64().unwrap() - sum("cost")).abs() < 1e-12, "{day} {usages:?}");
        assert_eq!((&day["byok_usage_inference"], &day["reasoning_tokens"]), (&json!(0), &json!(0)));
        assert_eq!((day.get("workspace_id"), &day["cached_tokens"]), (None, &json!(0)));
        // What is read from a cache is a part of the prompt, and so is what is written to it.
        let uncached = cached["input_tokens"].as_u64().unwrap();
        assert_eq!((&all[1]["cached_tokens"], &all[1]["prompt_tokens"]), (&json!(2048), &json!(uncached + 2048 + 512 + 256)));

        // One day, one key, one workspace.
        let date = day["date"].as_str().unwrap();
        let asked = async |query: &str| account.data("GET", &format!("/activity?date={date}{query}"), None, 200).await;
        assert_eq!(asked("").await.as_array().unwrap().len(), 2);
        let of_key = asked(&format!("&api_key_hash={}", hash_of(&second))).await;
        assert_eq!((of_key.as_array().unwrap().len(), &of_key[0]["requests"]), (1, &json!(1)));
        let of_team = asked(&format!("&workspace_id={}", team["id"].as_str().unwrap())).await;
        assert_eq!((of_team.as_array().unwrap().len(), &of_team[0]["requests"]), (1, &json!(1)));
        assert_eq!(of_team[0].get("workspace_id"), None);
        let apart = asked("&group_by=workspace").await;
        let of_two: Vec<_> = apart.as_array().unwrap().iter().filter(|day| day["model"] == "v/two").collect();
        assert_eq!(of_two.iter().map(|day| day["requests"].as_u64().unwrap()).sum::<u64>(), 4);
        assert!(of_two.len() == 2 && of_two.iter().any(|day| day["workspace_id"] == team["id"]), "{apart}");
        assert_eq!(asked("&user_id=user_nobody").await, json!([]));
        // What a workspace spent stays when it is closed, and can be asked for.
        account.send("DELETE", &format!("/keys/{}", hash_of(&third)), json!({})).await;
        let path = format!("/workspaces/{}", team["id"].as_str().unwrap());
        let closed = account.send("DELETE", &path, json!({})).await;
        assert_eq!(closed.status, 200, "{}", closed.body_text());
        assert_eq!(asked(&format!("&workspace_id={}", team["id"].as_str().unwrap())).await, of_team);

        // Records leave for their age; the days stay for a month.
        shift(31);
        assert_eq!(account.data("GET", "/activity", None, 200).await.as_array().unwrap().len(), 1);
        for (query, field) in [
            ("date=yesterday", "date"),
            ("date=2020-01-01", "date"),
            ("date=2026-1-1", "date"),
            ("date=2999-01-01", "date"),
            ("group_by=key", "group_by"),
            ("api_key_hash=x", "api_key_hash"),
            ("workspace_id=nowhere", "workspace_id"),
        ] {
            assert_refused(&account.ask("GET", &format!("/activity?{query}")).await, field);
        }
        let refused = account.gate.ask("GET", "/api/v1/activity").key(INFERENCE_KEY).send().await;
        assert_eq!(refused.status, 403);
    }
}
