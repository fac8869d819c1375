//! Whole objects against what the vendors document.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Protocol, Script, Sim};

use crate::spoken::{ask, data, send, with_tool};

async fn events(sim: &Sim, protocol: Protocol, request: Value) -> Vec<Value> {
    let reply = send(sim, protocol, "m", request, true).await;
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(reply.complete);
    data(reply.text())
}

#[tokio::test]
async fn a_chat_completion() {
    let sim = Sim::start(Script::says("hello you")).await;
    let request = ask(Protocol::Chat, "m", "hi");
    let reply = send(&sim, Protocol::Chat, "m", request.clone(), false).await;
    assert!(reply.header("x-request-id").unwrap().starts_with("req_sim_"));
    let prompt = request.to_string().len().div_ceil(4);
    assert_eq!(
        reply.json(),
        json!({
            "id": "chatcmpl-sim-1", "object": "chat.completion", "created": 1_700_000_000, "model": "m",
            "service_tier": "default", "system_fingerprint": "fp_sim",
            "choices": [{
                "index": 0, "logprobs": null, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hello you", "refusal": null, "annotations": []},
            }],
            "usage": {
                "prompt_tokens": prompt, "completion_tokens": 2, "total_tokens": prompt + 2,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {
                    "reasoning_tokens": 0, "audio_tokens": 0,
                    "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
                },
            },
        })
    );
}

#[tokio::test]
async fn chat_chunks() {
    let sim = Sim::start(Script::says("hello you")).await;
    let chunks = events(&sim, Protocol::Chat, ask(Protocol::Chat, "m", "hi")).await;
    let chunk = |delta: Value, finish: Value| {
        json!({
            "id": "chatcmpl-sim-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
            "service_tier": "default", "system_fingerprint": "fp_sim", "usage": null,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        })
    };
    let expected = [
        chunk(json!({"role": "assistant", "content": "", "refusal": null}), json!(null)),
        chunk(json!({"content": "hello"}), json!(null)),
        chunk(json!({"content": " you"}), json!(null)),
        chunk(json!({}), json!("stop")),
    ];
    assert_eq!(chunks[..4], expected);
    assert_eq!((&chunks[4]["choices"], chunks.len()), (&json!([]), 5));
    assert_eq!(chunks[4]["usage"]["completion_tokens"], 2);

    let mut bare = ask(Protocol::Chat, "m", "hi");
    bare["stream"] = json!(true);
    let reply = crate::client::call(&sim, "POST", "/chat/completions", &[], bare.to_string().as_bytes()).await;
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    assert!(data(reply.text()).iter().all(|chunk| chunk.get("usage").is_none()));
}

#[tokio::test]
async fn chat_tool_calls() {
    let sim = Sim::start(Behaviour::ParallelTools(2)).await;
    let request = with_tool(Protocol::Chat, ask(Protocol::Chat, "m", "x"));
    let body = send(&sim, Protocol::Chat, "m", request.clone(), false).await.json();
    let message = &body["choices"][0]["message"];
    assert_eq!(message["content"], json!(null));
    assert_eq!(
        message["tool_calls"],
        json!([
            {"id": "call_sim_1", "type": "function", "function": {"name": "tide_at",
                "arguments": "{\"query\":\"x\"}"}},
            {"id": "call_sim_2", "type": "function", "function": {"name": "tide_at",
                "arguments": "{\"query\":\"x (2)\"}"}},
        ])
    );
    let chunks = events(&sim, Protocol::Chat, request).await;
    let deltas: Vec<_> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]).collect();
    let start =
        json!({"index": 0, "id": "call_sim_3", "type": "function", "function": {"name": "tide_at", "arguments": ""}});
    assert_eq!(deltas[1], &start);
    assert_eq!(deltas[2], &json!({"index": 0, "function": {"arguments": "{\"query\""}}));
    assert_eq!(deltas.iter().filter(|delta| delta["id"].is_string()).count(), 2);
}

#[tokio::test]
async fn a_response() {
    let sim = Sim::start(Behaviour::Thinking).await;
    let body = send(&sim, Protocol::Responses, "m", ask(Protocol::Responses, "m", "hi"), false).await.json();
    assert_eq!((&body["object"], &body["status"]), (&json!("response"), &json!("completed")));
    assert_eq!(
        (&body["error"], &body["incomplete_details"], &body["store"]),
        (&json!(null), &json!(null), &json!(false))
    );
    let thought = "Low water was at six, and the tide takes six hours to rise.";
    assert_eq!(
        body["output"],
        json!([
            {
                "id": "rs_sim_1_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": thought}],
                "encrypted_content": "gAAAAAc2ltdWxhdGVkIHJlYXNvbmluZw==",
            },
            {
                "id": "msg_sim_1_1", "type": "message", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "High water is at noon.", "annotations": [],
                    "logprobs": []}],
            },
        ])
    );
    assert_eq!(body["usage"]["output_tokens_details"], json!({"reasoning_tokens": 13}));
    assert_eq!(body["usage"]["input_tokens_details"], json!({"cached_tokens": 0, "cache_write_tokens": 0}));
    let bare = json!({"model": "m", "input": "hi"});
    let body = send(&sim, Protocol::Responses, "m", bare, false).await.json();
    assert_eq!(body["output"][0], json!({"id": "rs_sim_2_0", "type": "reasoning", "summary": []}));
}

#[tokio::test]
async fn response_events() {
    let sim = Sim::start(Script::says("hi you")).await;
    let found = events(
        &sim,
        Protocol::Responses,
        json!({"model": "m", "input": "x", "stream": true, "stream_options": {"include_obfuscation": false}}),
    )
    .await;
    let kinds: Vec<_> = found.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(kinds, expected);
    for (number, event) in found.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    assert_eq!(found[0]["response"]["status"], "in_progress");
    assert_eq!(
        found[4],
        json!({
            "type": "response.output_text.delta", "sequence_number": 4, "item_id": "msg_sim_1_0", "output_index": 0,
            "content_index": 0, "delta": "hi",
        })
    );
    assert_eq!(found[9]["response"]["output"][0], found[8]["item"]);
    assert_eq!(found[9]["response"]["usage"]["output_tokens"], 2);
}

#[tokio::test]
async fn response_calls() {
    let sim = Sim::start(Behaviour::ToolUse).await;
    let request = with_tool(Protocol::Responses, ask(Protocol::Responses, "m", "x"));
    let found = events(&sim, Protocol::Responses, request).await;
    let item = json!({
        "id": "fc_sim_1_0", "type": "function_call", "status": "in_progress", "call_id": "call_sim_1",
        "name": "tide_at", "arguments": "",
    });
    assert_eq!(found[2]["item"], item);
    assert_eq!(found[found.len() - 3]["arguments"], "{\"query\":\"x\"}");
    assert_eq!(found[found.len() - 2]["item"]["status"], "completed");
    // A tool that was not said to be loose is strict, and strict calls have every property.
    let schema = json!({"type": "object", "properties": {"query": {"type": "string"}, "unit": {"type": "string"}}});
    let tool = json!({"type": "function", "name": "tide_at", "parameters": schema});
    let body =
        send(&sim, Protocol::Responses, "m", json!({"model": "m", "input": "x", "tools": [tool]}), false).await.json();
    assert_eq!(body["output"][0]["arguments"], r#"{"query":"x","unit":""}"#);
}

#[tokio::test]
async fn a_generate_content_response() {
    let sim = Sim::start(Behaviour::Cached { read: 7, write_5m: 0, write_1h: 0 }).await;
    let request = ask(Protocol::Gemini, "m", "hi");
    let body = send(&sim, Protocol::Gemini, "m", request.clone(), false).await.json();
    let prompt = request.to_string().len().div_ceil(4) + 7;
    let text = "The tide comes in and goes out again, twice a day, whether or not anyone waits at the gate.";
    assert_eq!(
        body,
        json!({
            "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model",
                "parts": [{"text": text}]}}],
            "usageMetadata": {
                "promptTokenCount": prompt, "cachedContentTokenCount": 7, "candidatesTokenCount": 19,
                "totalTokenCount": prompt + 19, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
            },
            "modelVersion": "m", "responseId": "sim-1",
        })
    );
}

#[tokio::test]
async fn gemini_chunks() {
    let sim = Sim::start(Behaviour::ParallelTools(2)).await;
    let request = with_tool(Protocol::Gemini, ask(Protocol::Gemini, "m", "x"));
    let chunks = events(&sim, Protocol::Gemini, request.clone()).await;
    let parts: Vec<_> = chunks.iter().map(|chunk| &chunk["candidates"][0]["content"]["parts"]).collect();
    let signature = "c2ltdWxhdGVkIHNpZ25hdHVyZQ==";
    assert_eq!(
        parts,
        [
            &json!([{"functionCall": {"id": "gcall_sim_1", "name": "tide_at", "args": {"query": "x"}},
                "thoughtSignature": signature}]),
            &json!([{"functionCall": {"id": "gcall_sim_2", "name": "tide_at", "args": {"query": "x (2)"}}}]),
            &json!([{"text": ""}]),
        ]
    );
    assert_eq!(chunks[0]["candidates"][0].get("finishReason"), None);
    assert_eq!(chunks[2]["candidates"][0]["finishReason"], "STOP");
    // Without `alt=sse` the stream is an array.
    let reply = crate::client::call(
        &sim,
        "POST",
        "/v1beta/models/m:streamGenerateContent",
        &[],
        request.to_string().as_bytes(),
    )
    .await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json().as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn gemini_thoughts_are_shown_to_those_who_ask() {
    let sim = Sim::start(Behaviour::Thinking).await;
    let body = send(&sim, Protocol::Gemini, "m", ask(Protocol::Gemini, "m", "hi"), false).await.json();
    let parts = &body["candidates"][0]["content"]["parts"];
    assert_eq!((&parts[0]["thought"], parts[1]["thoughtSignature"].is_string()), (&json!(true), true));
    assert_eq!(body["usageMetadata"]["thoughtsTokenCount"], 13);
    let silent = json!({"contents": [{"parts": [{"text": "hi"}]}]});
    let body = send(&sim, Protocol::Gemini, "m", silent, false).await.json();
    assert_eq!(body["candidates"][0]["content"]["parts"].as_array().unwrap().len(), 1);
    assert_eq!(body["usageMetadata"]["thoughtsTokenCount"], 13);
}
