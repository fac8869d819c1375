//! Servers that speak the Messages format and are not Anthropic's: what they do otherwise, no client notices.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Hand, Tidegate, frame, hello_streamed};

#[tokio::test]
async fn a_server_that_breaks_the_rules_of_streams_is_told_by_them() {
    let hand = Hand::start().await;
    let provider = format!(
        "[[providers]]\nslug = \"z-ai\"\nprotocol = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"k\"\n",
        hand.base_url()
    );
    let model = "[[models]]\nid = \"vendor/glm\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
                 [[models.endpoints]]\nprovider = \"z-ai\"\nmodel = \"glm\"\npricing = { input = 1, output = 1 }\n";
    let gate = Tidegate::start().config(&provider).config(model).run().await;
    // It begins with the number 2, ends nothing, calls it the end of a turn and closes in another format.
    let frames = [
        json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "glm",
            "content": [], "stop_reason": null, "usage": {"input_tokens": 3, "output_tokens": 0}}}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Hello"}}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}),
    ];
    let answering = async {
        let mut call = hand.call().await.streams().await;
        for data in &frames {
            call.send(&frame(data["type"].as_str().unwrap(), &data.to_string())).await;
        }
        call.send("data: [DONE]\n\n").await;
        call.end().await;
    };
    let (stream, ()) = tokio::join!(gate.stream(hello_streamed("vendor/glm")), answering);
    let events = stream.rest().await;
    let told: Vec<(&str, Value)> = events
        .iter()
        .filter(|event| event.name != "ping")
        .map(|event| (event.name.as_str(), event.json()["index"].clone()))
        .collect();
    let at = |index: u64| json!(index);
    assert_eq!(
        told,
        [
            ("message_start", Value::Null),
            ("content_block_start", at(0)),
            ("content_block_delta", at(0)),
            ("content_block_stop", at(0)),
            ("content_block_start", at(1)),
            ("content_block_delta", at(1)),
            ("content_block_stop", at(1)),
            ("message_delta", Value::Null),
            ("message_stop", Value::Null),
        ]
    );
    let end = events[events.len() - 2].json();
    assert_eq!((&end["delta"]["stop_reason"], &end["usage"]["output_tokens"]), (&json!("tool_use"), &json!(7)));
    // Ten tokens at a dollar for a million.
    assert_eq!(end["usage"]["cost"], json!(0.00001));
}

#[tokio::test]
async fn thoughts_of_a_server_that_imitates_the_format_go_back_to_it_alone() {
    let sim = Sim::start(Behaviour::Echo).await;
    let mut config = String::new();
    for (slug, model) in [("z-ai", "vendor/glm"), ("anthropic", "vendor/claude")] {
        config.push_str(&format!(
            "[[providers]]\nslug = \"{slug}\"\nprotocol = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"k\"\n\
             [[models]]\nid = \"{model}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
             [[models.endpoints]]\nprovider = \"{slug}\"\nmodel = \"sim-thinking\"\npricing = {{ input = 1, output = 1 }}\n",
            sim.base_url()
        ));
    }
    let gate = Tidegate::start().config(&config).run().await;
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    let ask = |model: &str, messages: Value| json!({"model": model, "max_tokens": 4096, "thinking": thinking, "messages": messages});
    let user = json!({"role": "user", "content": "hi"});
    let answer = gate.messages(ask("vendor/glm", json!([user]))).await.json();
    let signature = answer["content"][0]["signature"].as_str().unwrap().to_owned();
    assert!(signature.starts_with("tgs1."), "{answer}");
    let history = json!([user, {"role": "assistant", "content": answer["content"]}, user]);
    let told = async |model: &str| {
        let reply = gate.messages(ask(model, history.clone())).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        sim.requests().pop().unwrap().json()["messages"][1]["content"].clone()
    };
    let own = told("vendor/glm").await;
    let given = own[0]["signature"].as_str().unwrap();
    assert!(own[0]["type"] == "thinking" && !given.is_empty() && !given.starts_with("tgs1."), "{own}");
    let other = told("vendor/claude").await;
    assert_eq!((&other[0]["type"], other.as_array().map(Vec::len)), (&json!("text"), Some(1)), "{other}");
}

#[tokio::test]
async fn edits_of_the_context_are_done_for_a_server_that_imitates_the_format() {
    let sim = Sim::start(Behaviour::says("At noon.")).await;
    let config = format!(
        "[[providers]]\nslug = \"z-ai\"\nprotocol = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"k\"\n\
         [[models]]\nid = \"vendor/glm\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
         [[models.endpoints]]\nprovider = \"z-ai\"\nmodel = \"glm\"\n",
        sim.base_url()
    );
    let gate = Tidegate::start().config(&config).run().await;
    let mut messages = vec![json!({"role": "user", "content": "When is high water?"})];
    for number in 1..=3 {
        let id = format!("toolu_{number}");
        let call = json!({"type": "tool_use", "id": id, "name": "look", "input": {"of": format!("CALL{number}")}});
        messages.push(json!({"role": "assistant", "content": [call]}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": format!("RESULT{number}")});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    let clear = |keep: u64| {
        let uses = |value: u64| json!({"type": "tool_uses", "value": value});
        json!({"type": "clear_tool_uses_20250919", "trigger": uses(1), "keep": uses(keep)})
    };
    let compact = json!({"type": "compact_20260112"});
    for (edits, kept, said) in [
        (json!([clear(1)]), &[3][..], Some("changed:context_management")),
        (json!([clear(3), compact]), &[1, 2, 3], Some("dropped:context_management.compact_20260112")),
        (json!([clear(3)]), &[1, 2, 3], None),
    ] {
        for stream in [false, true] {
            let reply = gate
                .messages(json!({
                    "model": "vendor/glm", "max_tokens": 100, "stream": stream, "messages": messages,
                    "context_management": {"edits": edits}, "made_up": {"kept": [1, null]},
                    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
                }))
                .await;
            assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, said), "{}", reply.body_text());
            let sent = sim.requests().pop().expect("it was called");
            let body = String::from_utf8_lossy(&sent.body).into_owned();
            let found: Vec<u8> = (1..=3).filter(|number| body.contains(&format!("RESULT{number}"))).collect();
            assert_eq!(found, kept, "{edits} {stream}: {body}");
            assert!((1..=3).all(|number| body.contains(&format!("CALL{number}"))), "calls stay: {body}");
            assert!(!body.contains("context_management") && body.contains(r#""made_up":{"kept":[1,null]}"#), "{body}");
        }
    }
}
