//! Tools that a model looks for before it can call them, on every protocol, whole and streamed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message};
use crate::harness::{INFERENCE_KEY, hello};

const TIDE: &str = "Tells the tide at a port";
const BERTH: &str = "Books a berth";

fn deferred(name: &str, description: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"port": {"type": "string"}}});
    json!({"name": name, "description": description, "input_schema": schema, "defer_loading": true})
}

fn body(stream: bool, search: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([deferred("get_tide", TIDE), search, deferred("book_berth", BERTH)]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

fn blocks(message: &Value) -> Vec<&Value> {
    message["content"].as_array().unwrap().iter().filter(|block| block["type"] != "thinking").collect()
}

#[tokio::test]
async fn a_tool_is_shown_once_it_was_found_and_stays_shown_when_the_answer_comes_back() {
    let searches = [
        (json!({"type": "tidegate:tool_search"}), "tool_search_tool_regex", json!({"pattern": "TIDE at"})),
        (
            json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}),
            "tool_search_tool_bm25",
            json!({"query": "tide port", "limit": 1}),
        ),
    ];
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        for (search, function, input) in &searches {
            for stream in [false, true] {
                let case = format!("{protocol:?} {stream} {function}");
                let port = json!({"port": "Brest"});
                sim.set(Script::from(asks("", &[(*function, input.clone())])).then(asks("", &[("get_tide", port)])));
                let first = body(stream, search.clone());
                let answer = message(&asked(&gate, &first).await);
                let result = "tool_search_tool_result";
                assert_eq!(kinds(&answer), ["server_tool_use", result, "tool_use"], "{case}: {answer}");
                let shown = blocks(&answer);
                assert_eq!((&shown[0]["name"], &shown[0]["input"]), (&json!(function), input), "{case}");
                assert_eq!(shown[1]["tool_use_id"], shown[0]["id"], "{case}");
                let found = json!({"type": "tool_search_tool_search_result",
                    "tool_references": [{"type": "tool_reference", "tool_name": "get_tide"}]});
                assert_eq!(shown[1]["content"], found, "{case}");
                assert_eq!(
                    (&shown[2]["name"], &answer["stop_reason"]),
                    (&json!("get_tide"), &json!("tool_use")),
                    "{case}"
                );
                let sent = bodies(&sim);
                let [before, after] = &sent[sent.len() - 2..] else { panic!("{case}: two turns") };
                assert!(!before.contains(TIDE) && !before.contains(BERTH), "{case}: {before}");
                assert!(after.contains(TIDE) && !after.contains(BERTH), "{case}: {after}");
                assert!(!after.contains("defer_loading"), "{case}: {after}");
                let defined = |text: &str| after.find(text).unwrap();
                assert!(defined("Searches for further tools") < defined(TIDE), "{case}: it stands at the end");

                sim.set(Behaviour::says("At six."));
                let mut next = first.clone();
                let heard = json!({"type": "tool_result", "tool_use_id": shown[2]["id"], "content": "six"});
                next["messages"] = json!([first["messages"][0],
                    {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": [heard]}]);
                let answer = message(&asked(&gate, &next).await);
                assert_eq!(kinds(&answer), ["text"], "{case}");
                let sent = bodies(&sim).pop().unwrap();
                assert!(sent.contains(TIDE) && !sent.contains(BERTH), "{case}: {sent}");
                assert!(sent.contains("These tools can be called now."), "{case}: {sent}");
            }
        }
    }
}

#[tokio::test]
async fn what_cannot_be_looked_for_is_a_result_and_no_error_of_the_request() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    let most = json!({"type": "tidegate:tool_search", "parameters": {"max_results": 1}});
    for (input, code, found) in [
        (json!({"pattern": "("}), Some("invalid_tool_input"), 0),
        (json!({"pattern": "a".repeat(201)}), Some("invalid_tool_input"), 0),
        (json!({}), Some("invalid_tool_input"), 0),
        (json!({"pattern": "nothing"}), None, 0),
        (json!({"pattern": "."}), None, 1),
    ] {
        for stream in [false, true] {
            let asks = asks("", &[("tool_search_tool_regex", input.clone())]);
            sim.set(Script::from(asks).then(Behaviour::says("So be it.")));
            let answer = message(&asked(&gate, &body(stream, most.clone())).await);
            let content = &blocks(&answer)[1]["content"];
            assert_eq!(content["error_code"].as_str(), code, "{input}: {content}");
            assert_eq!(content["tool_references"].as_array().map_or(0, Vec::len), found, "{input}: {content}");
            assert_eq!(answer["stop_reason"], "end_turn", "{input}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_deferred_tools_is_said_before_anybody_is_called() {
    let (sim, native) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("hi")).await);
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    let search = json!({"type": "tool_search_tool_regex", "name": "tool_search_tool_regex"});
    let mut itself = search.clone();
    itself["defer_loading"] = json!(true);
    let mut forced = body(false, search.clone());
    forced["tool_choice"] = json!({"type": "any"});
    let mut alone = body(false, search.clone());
    alone["tools"] = json!([deferred("get_tide", TIDE)]);
    let mut twice = body(false, search.clone());
    twice["tools"] = json!([search, {"type": "tidegate:tool_search"}]);
    for (body, message) in [
        (body(false, itself), "Invalid request: tools[1] cannot be deferred"),
        (forced, "Invalid request: tool_choice conflicts with tool_search_tool_regex"),
        (alone.clone(), "Invalid request: defer_loading needs tidegate:tool_search on vendor/m"),
        (twice, "Invalid request: tools[1].type 'tidegate:tool_search' is used more than once"),
        (
            body(false, json!({"type": "tidegate:tool_search", "parameters": {"max_results": 51}})),
            "Invalid request: tools[1].parameters.max_results must be at most 50",
        ),
    ] {
        let reply = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send().await;
        let (status, kind, _, told) = reply.error();
        assert_eq!((status, &*kind, &*told), (400, "invalid_request_error", message));
    }
    assert_eq!(sim.calls(), 0);
    // A vendor who defers tools himself gets them as they came.
    let gate = gate_for(&native, PROTOCOLS[0], "").await;
    assert_eq!(asked(&gate, &alone).await.status, 200);
    let sent: Value = serde_json::from_str(&bodies(&native).pop().unwrap()).unwrap();
    assert_eq!(sent["tools"], alone["tools"]);
}
