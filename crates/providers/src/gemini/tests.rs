use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_wire::messages::Request;

use super::{message, request};
use crate::fault::Class;
use crate::translate::{Answered, Card, Context, Target};
use crate::{Protocol, adapter, cards};

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn target(card: &Card) -> Target<'_> {
    Target {
        card,
        model: "gemini-3.8-flash",
        scope: "ep-7f2c",
        cache_key: None,
        user: None,
        stream: false,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    }
}

fn sent(body: &Value) -> (Value, Context) {
    let card = cards::gemini("google-ai-studio");
    let parsed = Request::parse(body.to_string().as_bytes()).unwrap();
    let made = request(&parsed, &target(&card)).unwrap();
    (serde_json::from_slice(&made.body).unwrap(), made.context)
}

#[test]
fn p61_a_signature_finds_its_call_in_the_next_turn() {
    let tool =
        json!({"name": "tide_at", "input_schema": {"type": "object", "properties": {"port": {"type": "string"}}}});
    let mut body = json!({"max_tokens": 64, "tools": [tool], "messages": [{"role": "user", "content": "Tides?"}]});
    let (_, context) = sent(&body);
    let answer = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"tide_at","args":{"port":"Brest"}},"thoughtSignature":"CiQx"},{"functionCall":{"name":"tide_at","args":{"port":"Cork"}}}]},"finishReason":"STOP"}]}"#;
    let answered = message(answer.as_bytes(), &context, NOW).unwrap().body;
    let answered: Value = serde_json::from_slice(&answered).unwrap();
    let content = answered["content"].as_array().unwrap();
    assert_eq!(content.len(), 3, "thinking was not asked for, but its signature is needed");
    let results: Vec<Value> = content[1..]
        .iter()
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "4 m"}))
        .collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": results}));
    let parts = sent(&body).0["contents"][1]["parts"].clone();
    assert_eq!((parts[0]["thoughtSignature"].as_str(), parts[1].get("thoughtSignature")), (Some("CiQx"), None));
    assert_eq!(parts[0]["functionCall"]["args"], json!({"port": "Brest"}));
}

#[test]
fn the_order_of_a_clients_members_is_kept() {
    let text = r#"{"max_tokens":64,"tools":[{"name":"a","input_schema":{"type":"object","properties":{"z":{"type":"string"},"a":{"minimum":1.0}}}}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"a","input":{"z":1.50,"a":[]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"y"}]}]}"#;
    let card = cards::gemini("google-ai-studio");
    let made = request(&Request::parse(text.as_bytes()).unwrap(), &target(&card)).unwrap();
    let body = std::str::from_utf8(&made.body).unwrap();
    assert!(body.contains(r#""args":{"z":1.50,"a":[]}"#), "{body}");
    assert!(body.contains(r#""properties":{"z":{"type":"string"},"a":{"minimum":1.0}}"#), "{body}");
}

#[test]
fn p74_a_refused_prompt_says_why() {
    let blocked = r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT","blockReasonMessage":"not here"}}"#;
    let fault = message(blocked.as_bytes(), &Context::default(), NOW).unwrap_err();
    assert_eq!((fault.class, fault.message.as_deref()), (Class::ContentFilter, Some("PROHIBITED_CONTENT: not here")));
}

/// Every value of an answer, replaced by something else, one at a time.
fn disturbed(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    found.push(path.clone());
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(place, value)| (place.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (step, child) in children {
        path.push(step);
        disturbed(child, path, found);
        path.pop();
    }
}

#[test]
fn no_answer_however_odd_does_harm() {
    let answer = json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [
        {"text": "a", "thought": true, "thoughtSignature": "CiQx"}, {"text": "潮"},
        {"functionCall": {"id": "c", "name": "n", "args": {"a": 1}, "partialArgs": [{"jsonPath": "$.a[3].b", "stringValue": "x"}], "willContinue": true}},
        {"inlineData": {}}]}, "finishReason": "STOP", "finishMessage": "m", "groundingMetadata": {"webSearchQueries": ["q"],
        "groundingChunks": [{"web": {"uri": "u", "title": "t"}}],
        "groundingSupports": [{"segment": {"startIndex": 1, "endIndex": 2}, "groundingChunkIndices": [0]}]}}],
        "usageMetadata": {"promptTokenCount": 1, "thoughtsTokenCount": 2}, "promptFeedback": {"blockReason": "x"}});
    let mut places = Vec::new();
    disturbed(&answer, &mut Vec::new(), &mut places);
    let odd = [
        json!(null),
        json!(-1e300),
        json!(1e300),
        json!(""),
        json!("$[0]"),
        json!([]),
        json!({}),
        json!([[null]]),
        json!(true),
    ];
    let context = Context { show_thinking: true, ..Context::default() };
    for place in &places {
        for value in &odd {
            let mut changed = answer.clone();
            let pointer: String = place.iter().map(|step| format!("/{step}")).collect();
            *changed.pointer_mut(&pointer).unwrap() = value.clone();
            let text = changed.to_string();
            let whole = message(text.as_bytes(), &context, NOW);
            if let Ok(Answered { body, .. }) = &whole {
                serde_json::from_slice::<Value>(body).unwrap();
            }
            let mut translator = adapter::translator(Protocol::Gemini, &context, NOW, 1 << 20).unwrap();
            translator.feed(Bytes::from(format!("data: {text}\n\n")));
            translator.end();
            // A stream must name its end, which a whole answer may leave out.
            assert!(translator.fault().is_some() || whole.is_ok(), "{text}");
        }
    }
}

#[test]
fn e09_a_stream_that_named_its_end_is_settled() {
    let mut translator = adapter::translator(Protocol::Gemini, &Context::default(), NOW, 1 << 20).unwrap();
    let piece = |text: &str| Bytes::from(format!("data: {text}\n\n"));
    translator.feed(piece(r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#));
    assert!(!translator.is_settled() && translator.settle().is_empty());
    translator.feed(piece(r#"{"candidates":[{"finishReason":"STOP"}]}"#));
    assert!(translator.is_settled());
    assert!(translator.settle().ends_with(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    assert!(translator.fault().is_none() && !translator.is_settled() && translator.is_estimated());
}
