use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Script, Sim};

use crate::client::{asks, post, streams, with};

#[tokio::test]
async fn a_text_is_one_message() {
    let sim = Sim::start(Script::says("hello \"you\"")).await;
    let request = asks("hi");
    let reply = post(&sim, &request).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert!(reply.header("request-id").unwrap().starts_with("req_sim_"));
    let message = reply.json();
    assert!(message["id"].as_str().unwrap().starts_with("msg_sim_"));
    let input_tokens = request.to_string().len().div_ceil(4);
    assert_eq!(
        with(message, json!({"id": "msg"})),
        json!({
            "id": "msg", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "hello \"you\"", "citations": null}],
            "stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null,
            "usage": {
                "input_tokens": input_tokens, "output_tokens": 2,
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "output_tokens_details": {"thinking_tokens": 0}, "server_tool_use": null,
                "inference_geo": null, "service_tier": "standard",
            },
        })
    );
}

#[tokio::test]
async fn a_streamed_text_follows_the_grammar() {
    for script in [
        Script::says("hello to you"),
        Script::says("hello to you").flush(true),
        Script::says("hello to you").pace(Duration::from_millis(1)),
    ] {
        let sim = Sim::start(script).await;
        let reply = post(&sim, &streams("hi")).await;
        assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
        assert!(reply.complete);
        let expected = [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(reply.kinds(), expected);
        let events = reply.events();
        let message = &events[0]["message"];
        assert_eq!(
            (&message["model"], &message["role"], &message["content"]),
            (&json!("m"), &json!("assistant"), &json!([]))
        );
        assert_eq!(message["stop_reason"], json!(null));
        assert!(message["usage"]["input_tokens"].as_u64().unwrap() > 0);
        assert_eq!(events[2]["index"], 0);
        assert_eq!(events[2]["content_block"], json!({"type": "text", "text": "", "citations": null}));
        assert_eq!(
            events[3],
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}})
        );
        assert_eq!(reply.joined("text"), "hello to you");
        assert_eq!(events[7]["delta"]["stop_reason"], "end_turn");
        assert_eq!(events[7]["usage"]["output_tokens"], 3);
        assert_eq!(events[7]["usage"]["input_tokens"], message["usage"]["input_tokens"]);
        assert_eq!(events[8], json!({"type": "message_stop"}));
    }
}

#[tokio::test]
async fn a_token_stream_has_the_shape_asked_for() {
    let sim = Sim::start(Script::tokens(500, 100)).await;
    for _ in 0..2 {
        let reply = post(&sim, &with(streams("hi"), json!({"max_tokens": 8}))).await;
        let deltas: Vec<_> =
            reply.events().into_iter().filter(|event| event["type"] == "content_block_delta").collect();
        assert_eq!(deltas.len(), 500);
        assert!(deltas.iter().all(|delta| delta["delta"]["text"].as_str().unwrap().len() == 100));
        assert_eq!(reply.events()[504]["usage"]["output_tokens"], 500);
        assert!(reply.complete);
    }
    let whole = post(&sim, &asks("hi")).await.json();
    assert_eq!(whole["content"][0]["text"].as_str().unwrap().len(), 50_000);
    assert_eq!(whole["usage"]["output_tokens"], 500);
}

#[tokio::test]
async fn limits_of_the_request_cut_the_text() {
    let sim = Sim::start(Script::says("one two three four")).await;
    let cut = post(&sim, &with(asks("hi"), json!({"max_tokens": 2}))).await.json();
    assert_eq!((&cut["content"][0]["text"], &cut["stop_reason"]), (&json!("one two"), &json!("max_tokens")));
    let stopped = post(&sim, &with(streams("hi"), json!({"stop_sequences": ["nine", "three"]}))).await;
    assert_eq!(stopped.joined("text"), "one two ");
    let end = &stopped.events()[stopped.events().len() - 2]["delta"];
    assert_eq!((&end["stop_reason"], &end["stop_sequence"]), (&json!("stop_sequence"), &json!("three")));
}

#[tokio::test]
async fn the_echo_repeats_the_user() {
    let sim = Sim::start(Script::default()).await;
    let text = post(&sim, &asks("high water?")).await.json()["content"][0]["text"].clone();
    assert!(text.as_str().unwrap().contains("high water?"));
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_quoted() {
    let sim = Sim::start(Behaviour::ToolUse).await;
    let tools = json!({"tools": [{"name": "tide_at", "input_schema": {"type": "object"}}]});
    let streamed = post(&sim, &with(streams("Brest \"noon\""), tools.clone())).await;
    let start = &streamed.events()[2]["content_block"];
    assert_eq!((&start["type"], &start["name"], &start["input"]), (&json!("tool_use"), &json!("tide_at"), &json!({})));
    assert!(start["id"].as_str().unwrap().starts_with("toolu_sim_"));
    let deltas = streamed.events().iter().filter(|event| event["delta"]["type"] == "input_json_delta").count();
    assert!(deltas > 2, "{deltas}");
    let input: serde_json::Value = serde_json::from_str(&streamed.joined("partial_json")).unwrap();
    assert_eq!(input, json!({"query": "Brest \"noon\""}));
    assert_eq!(streamed.joined("stop_reason"), "tool_use");

    let whole = post(&sim, &with(asks("Brest"), tools)).await.json();
    assert_eq!(whole["content"][0]["input"], json!({"query": "Brest"}));
    assert_eq!(whole["stop_reason"], "tool_use");

    let result = json!([{"type": "tool_result", "tool_use_id": "toolu_sim_1", "content": "4.2 m"}]);
    let answer = post(&sim, &with(asks(""), json!({"messages": [{"role": "user", "content": result}]}))).await.json();
    assert!(answer["content"][0]["text"].as_str().unwrap().contains("4.2 m"));
    assert_eq!(answer["stop_reason"], "end_turn");
}

#[tokio::test]
async fn parallel_tools_have_blocks_and_ids_of_their_own() {
    let sim = Sim::start(Behaviour::ParallelTools(3)).await;
    let tools = json!({"tools": [{"name": "a"}, {"name": "b"}]});
    let reply = post(&sim, &with(streams("hi"), tools)).await;
    let starts: Vec<_> = reply.events().into_iter().filter(|event| event["type"] == "content_block_start").collect();
    let names: Vec<_> = starts.iter().map(|start| start["content_block"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "a"]);
    assert_eq!(starts.iter().map(|start| start["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_ne!(starts[0]["content_block"]["id"], starts[1]["content_block"]["id"]);
}

#[tokio::test]
async fn thinking_is_signed_just_before_its_end() {
    let sim = Sim::start(Behaviour::Thinking).await;
    let reply = post(&sim, &streams("hi")).await;
    let events = reply.events();
    assert_eq!(events[2]["content_block"], json!({"type": "thinking", "thinking": "", "signature": ""}));
    let stop = events.iter().position(|event| event["type"] == "content_block_stop").unwrap();
    assert_eq!(events[stop - 1]["delta"]["type"], "signature_delta");
    assert_eq!(events.iter().filter(|event| event["delta"]["type"] == "signature_delta").count(), 1);
    assert_eq!((&events[stop + 1]["index"], &events[stop + 1]["content_block"]["type"]), (&json!(1), &json!("text")));

    let whole = post(&sim, &asks("hi")).await.json();
    assert_eq!(whole["content"][0]["thinking"], json!(reply.joined("thinking")));
    assert_eq!(whole["content"][0]["signature"], json!(reply.joined("signature")));
    assert!(whole["usage"]["output_tokens_details"]["thinking_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn redacted_thinking_comes_whole() {
    let sim = Sim::start(Behaviour::RedactedThinking).await;
    let events = post(&sim, &streams("hi")).await.events();
    let whole = post(&sim, &asks("hi")).await.json();
    assert_eq!(events[2]["content_block"], whole["content"][0]);
    assert_eq!(events[2]["content_block"]["type"], "redacted_thinking");
    assert_eq!(events[3], json!({"type": "content_block_stop", "index": 0}));
}

#[tokio::test]
async fn a_refusal_says_why() {
    let sim = Sim::start(Behaviour::Refusal).await;
    let whole = post(&sim, &asks("hi")).await.json();
    assert_eq!((&whole["stop_reason"], &whole["stop_details"]["type"]), (&json!("refusal"), &json!("refusal")));
    let events = post(&sim, &streams("hi")).await.events();
    let delta = &events[events.len() - 2]["delta"];
    assert_eq!(delta["stop_details"], whole["stop_details"]);
}

#[tokio::test]
async fn any_stop_reason_can_be_asked_for() {
    for reason in ["max_tokens", "pause_turn", "model_context_window_exceeded", "unheard_of"] {
        let sim = Sim::start(Behaviour::StopReason(reason.into())).await;
        let whole = post(&sim, &asks("hi")).await.json();
        assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!(reason), &json!(null)));
    }
    let sim = Sim::start(Behaviour::StopReason("stop_sequence".into())).await;
    let whole = post(&sim, &with(asks("hi"), json!({"stop_sequences": ["###"]}))).await.json();
    assert_eq!((&whole["stop_reason"], &whole["stop_sequence"]), (&json!("stop_sequence"), &json!("###")));
}

#[tokio::test]
async fn cached_tokens_are_reported_in_both_forms() {
    let sim = Sim::start(Behaviour::Cached { read: 7, write_5m: 5, write_1h: 3 }).await;
    let usage = post(&sim, &asks("hi")).await.json()["usage"].clone();
    assert_eq!(usage["cache_read_input_tokens"], 7);
    assert_eq!(usage["cache_creation_input_tokens"], 8);
    assert_eq!(usage["cache_creation"], json!({"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 3}));
    let events = post(&sim, &streams("hi")).await.events();
    let start = &events[0]["message"]["usage"];
    assert_eq!((&start["cache_read_input_tokens"], &start["cache_creation"]), (&json!(7), &usage["cache_creation"]));
    assert_eq!(events[events.len() - 2]["usage"]["cache_creation_input_tokens"], 8);
}
