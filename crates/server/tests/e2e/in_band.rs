//! How a stream tells that it failed, when its status is out.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Script, Sim};

use crate::harness::{INFERENCE_KEY, Tidegate, frame, hello_streamed, tale};

const MODEL: &str = "vendor/m";

fn streams(frames: &[String]) -> Behaviour {
    Behaviour::RawStream { chunks: frames.iter().map(|frame| Bytes::from(frame.clone())).collect(), end: End::Close }
}

#[tokio::test]
async fn str_3_how_an_answer_ended_is_told_only_when_it_has_ended() {
    let (sim, spare) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("more")).await);
    let lines = "card = { prefill = \"native\" }\npricing = { input = 1, output = 2 }";
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, lines).endpoint_with(MODEL, &spare, lines).run().await;
    // All but the end marker: in one piece, and the last of it apart.
    let text = tale("hello");
    for frames in [vec![text[..5].concat()], vec![text[..4].concat(), text[4].clone()]] {
        sim.set(streams(&frames));
        let reply = gate.messages(hello_streamed(MODEL)).await;
        let names: Vec<String> = reply.events().into_iter().map(|event| event.name).collect();
        assert!(!names.contains(&"message_delta".to_owned()), "{names:?}");
        assert_eq!((names.last().map(String::as_str), reply.text().as_str()), (Some("error"), "hello"));
    }
    // What has said how it ends is not gone on with, nor is anybody else asked.
    assert_eq!(spare.calls(), 0);
    // Nothing was said yet: another one answers.
    sim.set(streams(&[text[0].clone(), text[4].clone()]));
    assert_eq!(gate.messages(hello_streamed(MODEL)).await.text(), "more");
}

#[tokio::test]
async fn how_an_answer_ended_is_held_within_bounds() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let text = tale("hello");
    let padded = text[4].replace(
        "\"type\":\"message_delta\"",
        &format!("\"type\":\"message_delta\",\"x\":\"{}\"", "x".repeat(100 << 10)),
    );
    assert!(padded.len() > 100 << 10, "{padded}");
    // Two are as good as one; a flood is none.
    for (deltas, last) in [(2, "message_stop"), (4, "error")] {
        let deltas = vec![padded.clone(); deltas];
        sim.set(streams(&[vec![text[..4].concat()], deltas, vec![text[5].clone()]].concat()));
        let reply = gate.messages(hello_streamed(MODEL)).await;
        assert_eq!(reply.events().last().map(|event| event.name.clone()).as_deref(), Some(last));
    }
}

#[tokio::test]
async fn what_a_provider_says_of_the_request_is_told_in_its_words() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    for (kind, told, message, error_type) in [
        ("invalid_request_error", "bad thing", "Provider returned error: bad thing", "invalid_request"),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "", "context_length_exceeded"),
        ("api_error", "secret", "Provider returned error", "provider_unavailable"),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": told}});
        let mut frames = tale("hello")[..3].to_vec();
        frames.push(frame("error", &error.to_string()));
        sim.set(streams(&frames));
        let last = gate.messages(hello_streamed(MODEL)).await.events().pop().map(|event| event.json());
        let last = last.unwrap_or_default();
        let message = if message.is_empty() { told } else { message };
        assert_eq!((&last["error"]["message"], &last["error"]["error_type"]), (&json!(message), &json!(error_type)));
        assert_eq!(last["metadata"], json!({"provider_name": "P0", "provider_code": kind}), "{last}");
    }
}

#[tokio::test]
async fn a_chat_stream_that_fails_before_anybody_answers_names_the_model_and_who_failed() {
    let sim = Sim::start(Script::status(429).first_byte(Duration::from_millis(300))).await;
    let config = "[stream]\nearly_commit_ms = 60\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    let ask = gate.ask("POST", "/v1/chat/completions").key(INFERENCE_KEY);
    let reply = ask.json(hello_streamed(MODEL).to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let chunks: Vec<Value> =
        reply.body_text().lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    assert_eq!(chunks.len(), 1, "{}", reply.body_text());
    assert_eq!((&chunks[0]["model"], &chunks[0]["provider"]), (&json!(MODEL), &json!("P0")));
    assert_eq!(chunks[0]["error"]["code"], 429, "{}", chunks[0]);
}
