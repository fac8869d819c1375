//! What tools and plugins are paid is told and counted where the request is that they were run for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, asks};
use crate::harness::books::rows;
use crate::harness::receiver::{Receiver, attribute};
use crate::harness::{Account, Hand, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, eventually, hello, on_both};
use crate::search::{Searx, look};

const PATIENCE: Duration = Duration::from_secs(30);
const PRICED: &str = "pricing = { input = 1, output = 2 }";

fn decimal(span: &Value, name: &str) -> f64 {
    attribute(span, name).and_then(|value| value.as_f64()).unwrap_or(0.0)
}

/// Rows of analytics by what they are about: cost, requests and tools.
async fn told(gate: &Tidegate, dimension: &str) -> BTreeMap<String, (f64, u64, u64)> {
    let question = json!({"metrics": ["total_cost", "request_count", "tool_calls"], "dimensions": [dimension]});
    let ask = gate.ask("POST", "/api/v1/analytics/query").key(MANAGEMENT_KEY).json(question.to_string());
    let reply = ask.send().await.json();
    let rows = reply["data"]["data"].as_array().unwrap_or_else(|| panic!("{reply}")).clone();
    let row = |row: &Value| {
        let count = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{row}"));
        let counted = (row["total_cost"].as_f64().unwrap(), count("request_count"), count("tool_calls"));
        (row[dimension].as_str().unwrap_or("nobody").to_owned(), counted)
    };
    rows.iter().map(row).collect()
}

#[tokio::test]
async fn what_a_search_costs_is_told_to_destinations_and_counted_with_who_asked() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let (open, private) = (Receiver::start().await, Receiver::start().await);
    let told_cost = "broadcast_generation_cost = true";
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sim, PRICED)
        .config(&format!("{}price_per_call = 0.005\n", searx.config()))
        .config(&open.config("otel-collector", told_cost))
        .config(&private.config("webhook", &format!("privacy_mode = true\n{told_cost}")))
        .run()
        .await;
    let mut costs = BTreeMap::new();
    for (session, more) in [
        ("looped", json!({"tools": [{"type": "tidegate:web_search"}]})),
        ("before", json!({"plugins": [{"id": "web", "engine": "house"}]})),
    ] {
        sim.set(match session {
            "looped" => Script::from(asks("", &[look("tides")])).then(Behaviour::says("Done.")),
            _ => Script::from(Behaviour::says("Done.")),
        });
        let mut body = hello(MODEL);
        body["session_id"] = json!(session);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-title", "App");
        let reply = ask.header("http-referer", "https://app.example").json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let cost = reply.json()["usage"]["cost"].as_f64().unwrap();
        assert!((0.005..0.006).contains(&cost), "{session}: {cost}");
        costs.insert(session, cost);

        let id = reply.header("x-generation-id").unwrap().to_owned();
        for receiver in [&open, &private] {
            let spans = || {
                let spans = receiver.spans().into_iter();
                spans.filter(|span| attribute(span, "tidegate.request_id") == Some(json!(id))).collect::<Vec<_>>()
            };
            let told = || spans().iter().map(|span| decimal(span, "gen_ai.usage.cost")).sum::<f64>();
            eventually("all of it is told", PATIENCE, async || (told() - cost).abs() < 1e-10).await;
            for span in spans() {
                let parts =
                    ["prompt", "completion", "tool"].map(|part| decimal(&span, &format!("tidegate.cost.{part}")));
                let total = decimal(&span, "tidegate.cost.total");
                assert!((parts.iter().sum::<f64>() - total).abs() < 1e-10, "{session}: {parts:?} {total}");
            }
        }
    }
    let sessions = told(&gate, "session").await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    for (session, cost) in &costs {
        let (total, requests, tools) = sessions[*session];
        assert!((total - cost).abs() < 1e-10, "{session}: {total} {cost}");
        assert_eq!((requests, tools), (1, 1), "{session}");
    }
    for (dimension, name) in [("app", "App"), ("origin", "https://app.example")] {
        let rows = told(&gate, dimension).await;
        assert_eq!(rows.keys().collect::<Vec<_>>(), [name], "{rows:?}");
        let (total, requests, tools) = rows[name];
        assert!((total - costs.values().sum::<f64>()).abs() < 1e-10, "{dimension}: {total}");
        assert_eq!((requests, tools), (2, 2), "{dimension}");
    }
}

/// A turn that asks for the time, or is the last one.
fn turn(is_last: bool) -> String {
    let text = json!({"type": "text", "text": "Done."});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "tidegate_datetime", "input": {}});
    let (block, reason) = if is_last { (text, "end_turn") } else { (call, "tool_use") };
    json!({
        "id": "msg_up", "type": "message", "role": "assistant", "model": "m", "content": [block],
        "stop_reason": reason, "stop_sequence": null, "usage": {"input_tokens": 100, "output_tokens": 50},
    })
    .to_string()
}

on_both! {
    async fn a_loop_is_told_of_when_all_of_it_is_there(database: &Database) {
        let hand = Hand::start().await;
        let account = Account::start(database, Tidegate::start().endpoint_at(MODEL, &hand.base_url(), PRICED)).await;
        let mut body = hello(MODEL);
        body["tools"] = json!([{"type": "tidegate:datetime"}]);
        let ask = account.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
        let (reply, ()) = tokio::join!(ask.send(), async {
            hand.call().await.answers(&turn(false)).await;
            let last = hand.call().await;
            eventually("the first turn is on record", PATIENCE, async || rows(&account.store).await.len() == 1).await;
            let id = rows(&account.store).await[0].id.clone();
            assert_eq!(account.ask("GET", &format!("/generation?id={id}")).await.status, 404);
            last.answers(&turn(true)).await;
        });
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let id = reply.header("x-generation-id").unwrap();
        let record = account.data("GET", &format!("/generation?id={id}"), None, 200).await;
        assert_eq!((&record["finish_reason"], &record["total_cost"]), (&json!("end_turn"), &json!(0.0004)), "{record}");
        assert_eq!(record["total_cost"], reply.json()["usage"]["cost"]);
    }
}
