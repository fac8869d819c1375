//! Figures about finished requests, over HTTP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, INFERENCE_KEY, Tidegate, assert_refused, hash_of, hello, hello_streamed, on_both};
use crate::money::key;

const ONE: &str = "vendor/one";
const TWO: &str = "vendor/two";

async fn asked(account: &Account, question: Value) -> Value {
    account.data("POST", "/analytics/query", Some(question), 200).await
}

on_both! {
    async fn what_was_asked_for_is_counted_by_name(database: &Database) {
        let sim = Sim::start(Behaviour::says("six words or so, not more")).await;
        let broken = Sim::start(Behaviour::status(400)).await;
        let priced = "pricing = { input = 1, output = 2 }";
        let gate = Tidegate::start().endpoint_with(ONE, &sim, priced).endpoint_with(TWO, &broken, priced);
        let account = Account::start(database, gate).await;
        let other = key(&account, json!({})).await;
        let mut usages = Vec::new();
        for (key, body) in [(INFERENCE_KEY, hello(ONE)), (INFERENCE_KEY, hello(ONE)), (&*other, hello(ONE)), (&*other, hello(TWO))] {
            let reply = account.gate.ask("POST", "/v1/messages").key(key).json(body.to_string()).send().await;
            if reply.status == 200 {
                usages.push(reply.json()["usage"].clone());
            }
        }
        let mut streamed = hello_streamed(ONE);
        streamed["session_id"] = json!("'; DROP TABLE generations; --");
        assert_eq!(account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(streamed.to_string()).send().await.status, 200);
        let sum = |name: &str| usages.iter().map(|usage| usage[name].as_f64().unwrap()).sum::<f64>();

        let metrics = json!(["request_count", "error_count", "prompt_tokens", "total_cost", "error_rate"]);
        let told = asked(&account, json!({"metrics": metrics, "dimensions": ["model"], "order_by": {"field": "model", "direction": "asc"}})).await;
        let rows = told["data"].as_array().unwrap();
        assert_eq!((rows.len(), &told["metadata"]["row_count"], &told["metadata"]["truncated"]), (2, &json!(2), &json!(false)), "{told}");
        assert!(told.get("warnings").is_none() && told["metadata"]["query_time_ms"].is_number());
        assert_eq!((&rows[0]["model"], &rows[0]["request_count"], &rows[0]["error_count"]), (&json!(ONE), &json!(4), &json!(0)));
        assert_eq!((&rows[1]["model"], &rows[1]["request_count"], &rows[1]["error_rate"]), (&json!(TWO), &json!(1), &json!(1)));
        // The same by key, without the stream, whose usage was not looked at.
        let filters = json!([{"field": "session", "operator": "neq", "value": "'; DROP TABLE generations; --", "include_unset": true},
            {"field": "model", "operator": "eq", "value": ONE}]);
        let told = asked(&account, json!({"metrics": metrics, "dimensions": ["api_key_id"], "filters": filters})).await;
        let rows = told["data"].as_array().unwrap();
        let named: Vec<_> = rows.iter().map(|row| (row["api_key_id"].as_str().unwrap(), row["request_count"].as_u64().unwrap())).collect();
        assert_eq!(named, [("First inference key", 2), ("limited", 1)]);
        let total = |name: &str| rows.iter().map(|row| row[name].as_f64().unwrap()).sum::<f64>();
        assert!((total("total_cost") - sum("cost")).abs() < 1e-12 && total("prompt_tokens") == sum("input_tokens"), "{rows:?} {usages:?}");
        let number = i64::from_str_radix(&hash_of(&other)[..13], 16).unwrap();
        assert_eq!(rows[1]["api_key_id__id"], number);

        // By the number of a key or by its hash; a hash that nobody has is said.
        let by_key = async |value: Value| {
            asked(&account, json!({"metrics": ["request_count"], "filters": [{"field": "api_key_id", "operator": "in", "value": [value]}]})).await
        };
        assert_eq!(by_key(json!(number)).await["data"], json!([{"request_count": 2}]));
        assert_eq!(by_key(json!(hash_of(&other))).await["data"], json!([{"request_count": 2}]));
        let unknown = by_key(json!(hash_of("nobody"))).await;
        assert_eq!((&unknown["data"], unknown["warnings"].as_array().unwrap().len()), (&json!([]), 1));
        assert!(asked(&account, json!({"metrics": ["request_count"], "dimensions": ["country"]})).await["warnings"][0].as_str().unwrap().contains("country"));

        // All of today is one day, and it is cut where the limit says.
        let told = asked(&account, json!({"metrics": ["request_count"], "granularity": "month"})).await;
        let date = told["data"][0]["date__month"].as_str().unwrap();
        assert!(date.len() == 10 && date.ends_with("-01"), "{told}");
        let told = asked(&account, json!({"metrics": ["request_count"], "dimensions": ["model"], "limit": 1})).await;
        assert_eq!((told["data"].as_array().unwrap().len(), &told["metadata"]["truncated"]), (1, &json!(true)));
    }
}

#[test]
fn what_cannot_be_asked_is_refused_by_its_place() {
    crate::harness::with_sqlite(async |database| {
        let account = Account::start(database, Tidegate::start()).await;
        let meta = account.data("GET", "/analytics/meta", None, 200).await;
        let names =
            |list: &str| meta[list].as_array().unwrap().iter().map(|each| each["name"].clone()).collect::<Vec<_>>();
        assert_eq!((names("metrics").len(), names("dimensions").len(), names("operators").len()), (16, 12, 8));
        assert_eq!(names("granularities"), ["minute", "hour", "day", "week", "month"]);
        // Everything that is listed can be asked.
        let all = asked(&account, json!({"metrics": names("metrics")})).await;
        assert_eq!(all["data"], json!([]));
        for pair in names("dimensions").chunks(2) {
            for granularity in names("granularities") {
                asked(&account, json!({"metrics": names("metrics"), "dimensions": pair, "granularity": granularity}))
                    .await;
            }
        }
        let range = |start: &str, end: &str| json!({"start": start, "end": end});
        let filter =
            |field: &str, operator: &str, value: Value| json!([{"field": field, "operator": operator, "value": value}]);
        for (more, path) in [
            (json!({"metrics": []}), "metrics"),
            (json!({"metrics": ["request_count; DROP TABLE generations"]}), "metrics[0]"),
            (json!({"metrics": null}), "metrics"),
            (json!({"dimensions": ["model", "provider", "user"]}), "dimensions"),
            (json!({"dimensions": ["model\" --"]}), "dimensions[0]"),
            (json!({"granularity": "year"}), "granularity"),
            (json!({"filters": filter("secret", "eq", json!("x"))}), "filters[0].field"),
            (json!({"filters": filter("model", "like", json!("x"))}), "filters[0].operator"),
            (json!({"filters": filter("model", "gt", json!("x"))}), "filters[0].operator"),
            (json!({"filters": filter("total_cost", "in", json!([1]))}), "filters[0].operator"),
            (json!({"filters": filter("total_cost", "gt", json!("1"))}), "filters[0].value"),
            (json!({"filters": filter("model", "in", json!("x"))}), "filters[0].value"),
            (json!({"filters": filter("model", "eq", json!(["x"]))}), "filters[0].value"),
            (json!({"filters": filter("api_key_id", "eq", json!("x"))}), "filters[0].value"),
            (json!({"filters": vec![json!({"field": "model", "operator": "eq", "value": "x"}); 21]}), "filters"),
            (json!({"time_range": range("2026-01-01T00:00:00Z", "2027-01-03T00:00:00Z")}), "time_range"),
            (json!({"time_range": range("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z")}), "time_range"),
            // An end as it is written for never: too far away, and no other mistake.
            (json!({"time_range": range("2026-01-01T00:00:00Z", "9999-12-31T00:00:00Z")}), "time_range"),
            (json!({"time_range": range("yesterday", "2026-01-01T00:00:00Z")}), "time_range.start"),
            (json!({"time_range": {"start": "2026-01-01T00:00:00Z"}}), "time_range.end"),
            (
                json!({"granularity": "minute", "time_range": range("2026-01-01T00:00:00Z", "2026-01-02T00:00:01Z")}),
                "time_range",
            ),
            (json!({"order_by": {"field": "total_cost", "direction": "asc"}}), "order_by.field"),
            (json!({"order_by": {"field": "request_count", "direction": "up"}}), "order_by.direction"),
            (json!({"limit": 0}), "limit"),
            (json!({"limit": 10_001}), "limit"),
            (json!({"group_limit": 10_001}), "group_limit"),
            (json!({"classifier_filters": {"classifier_id": "x", "filters": []}}), "classifier_filters"),
            (json!({"classifier_dimensions": {"classifier_id": "x"}}), "classifier_dimensions"),
        ] {
            let mut question = json!({"metrics": ["request_count"]});
            question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            assert_refused(&account.send("POST", "/analytics/query", question).await, path);
        }
        assert_refused(&account.send("POST", "/analytics/query", json!({})).await, "metrics");
        for (method, path) in [("GET", "/api/v1/analytics/meta"), ("POST", "/api/v1/analytics/query")] {
            assert_eq!(account.gate.ask(method, path).key(INFERENCE_KEY).send().await.status, 403);
        }
    });
}
