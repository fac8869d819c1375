//! How streams end, and what is charged for them: with a pause, with a stop sequence that the gateway looks for itself,
//! without a word on what was used.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};

use tidegate_sim::{Behaviour, End, Script, Sim};
use tidegate_store::journal::JournalReader;

use crate::agent::asks;
use crate::harness::books::{rows, store_of, verified};
use crate::harness::{Account, Hand, Reply, Tidegate, eventually, hello, on_both, ran, soon};

const MODEL: &str = "vendor/m";
const TEN_SECONDS: Duration = Duration::from_secs(10);
/// Dollars a million.
const PRICES: &str = "pricing = { input = 3, output = 15 }";

fn native(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn start(input: u64) -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": input, "output_tokens": 1}}})
}

fn opened() -> Value {
    json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
}

fn said(text: &str) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
}

fn stream_of(chunks: Vec<String>, end: End) -> Script {
    Behaviour::RawStream { chunks: chunks.into_iter().map(Bytes::from).collect(), end }.into()
}

/// Chunks of the chat protocol: text, the end, the usage.
fn chat(text: &[&str], usage: Option<(u64, u64)>) -> Vec<String> {
    let event = |data: Value| format!("data: {data}\n\n");
    let piece = |text: &&str| event(json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]}));
    let mut all: Vec<String> = text.iter().map(piece).collect();
    all.push(event(json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})));
    if let Some((prompt, completion)) = usage {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
        all.push(event(json!({"id": "c", "choices": [], "usage": usage})));
    }
    all.push("data: [DONE]\n\n".to_owned());
    all
}

async fn chat_gate(sim: &Sim, of_provider: &str) -> Tidegate {
    let address = format!("{}/v1", sim.base_url());
    Tidegate::start().protocol_of(MODEL, "openai-chat", &address, of_provider, PRICES).run().await
}

fn streamed(more: Value) -> Value {
    let mut body = hello(MODEL);
    body["stream"] = json!(true);
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The text of a stream, why it ended, and its last usage.
fn told(reply: &Reply) -> (String, Value, Value) {
    let events = reply.events();
    let last = events.iter().rev().find(|event| event.name == "message_delta").map(|event| event.json());
    let last = last.unwrap_or_else(|| panic!("{}", reply.body_text()));
    let text = events.iter().filter(|event| event.name == "content_block_delta");
    let text = text.map(|event| event.json()["delta"]["text"].as_str().unwrap_or_default().to_owned()).collect();
    (text, last["delta"]["stop_reason"].clone(), last["usage"].clone())
}

on_both! {
    async fn led_16_what_came_before_a_pause_is_charged_when_the_process_dies_in_it(database: &Database) {
        let mut events = vec![start(5_000), opened()];
        events.extend((0..20).map(|_| said(&"word ".repeat(50))));
        let sim = Sim::start(stream_of(vec![native(&events)], End::Hang)).await;
        let mut gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICES).config(&database.config()).run().await;
        let store = store_of(database, &gate.place).await;
        let mut stream = gate.stream(streamed(json!({"max_tokens": 4_000}))).await;
        assert_eq!(stream.next().await.map(|event| event.name).as_deref(), Some("message_start"));
        let journal = JournalReader::open(&gate.place.data_dir()).unwrap();
        let left = async || journal.left_open(i64::MAX).await.unwrap();
        eventually("the journal knows how far it is", TEN_SECONDS, async || {
            left().await.first().is_some_and(|open| open.progress.is_some())
        })
        .await;
        journal.close().await;
        gate.signal(Signal::KILL);
        gate.exit().await;
        let gate = gate.place.serve().await;
        eventually("it is recorded", TEN_SECONDS, async || !rows(&store).await.is_empty()).await;
        let rows = rows(&store).await;
        // 5 000 tokens at 3 dollars, and 5 000 bytes, which are 1 250 tokens, at 15.
        let cost = 5_000 * 3_000 + 1_250 * 15_000;
        assert_eq!((rows[0].settlement.as_str(), rows[0].cost_nanos), ("recovered", Some(cost)), "{rows:?}");
        // Who asks what became of it is not told that nobody was called.
        let (story, _) = ran(&gate.place, &["explain", &rows[0].id]).await;
        for said in ["ended        with the gateway, which stopped in the middle of it", "called       ", "cost         $0.03375"] {
            assert!(story.contains(said), "{said}: {story}");
        }
        assert!(!story.contains("nobody") && !story.contains("No provider"), "{story}");
        verified(&gate.place).await;
    }

    async fn a_session_stays_with_the_credential_that_serves_it(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        for key in ["own-a", "own-b"] {
            account.data("POST", "/byok", Some(json!({"provider": "p0", "key": key})), 201).await;
        }
        // The keys that a request was made with.
        let keys = async |script: Script, session: &str| {
            sim.set(script);
            let before = sim.requests().len();
            let mut body = hello(MODEL);
            body["session_id"] = json!(session);
            assert_eq!(account.gate.messages(body).await.status, 200);
            let keys = sim.requests().split_off(before);
            keys.iter().map(|seen| seen.header("x-api-key").unwrap().to_owned()).collect::<Vec<_>>()
        };
        let fails_once = Script::status(500).then(Behaviour::says("hello"));
        assert_eq!(keys(fails_once, "talk").await, ["own-a", "own-b"]);
        assert_eq!(keys(Script::says("hello"), "talk").await, ["own-b"], "it answered");
        assert_eq!(keys(Script::says("hello"), "another").await, ["own-a"]);
    }
}

#[tokio::test]
async fn what_is_told_behind_a_sequence_of_ours_is_charged_as_it_is_told() {
    let more = json!({"stop_sequences": ["a1", "b1", "c1", "d1", "END"]});
    // In the same bytes, from a provider that could be stopped, and later, from one that charges for all of it.
    for (of_provider, is_one) in [("supports_cancel = true", true), ("supports_cancel = false", false)] {
        let mut chunks = chat(&["hello END", " tail"], Some((10, 50)));
        if is_one {
            chunks = vec![chunks.concat()];
        }
        let sim = Sim::start(stream_of(chunks, End::Close)).await;
        let gate = chat_gate(&sim, of_provider).await;
        let reply = gate.messages(streamed(more.clone())).await;
        let (text, reason, usage) = told(&reply);
        assert_eq!((text.as_str(), reason), ("hello ", json!("stop_sequence")), "{of_provider}");
        // 10 at 3 dollars and 50 at 15.
        let wanted = (json!(10), json!(50), json!(0.00078));
        assert_eq!((usage["input_tokens"].clone(), usage["output_tokens"].clone(), usage["cost"].clone()), wanted);
    }
}

#[tokio::test]
async fn a_provider_that_can_be_stopped_is_stopped_at_a_sequence_of_ours() {
    let hand = Hand::start().await;
    let address = format!("{}/v1", hand.base_url());
    let gate =
        Tidegate::start().protocol_of(MODEL, "openai-chat", &address, "supports_cancel = true", PRICES).run().await;
    let asking = gate.messages(streamed(json!({"stop_sequences": ["a1", "b1", "c1", "d1", "END"]})));
    let said = async {
        let [first, more, ..] = &chat(&["hello END", " tail"], None)[..] else { unreachable!("there are four") };
        let mut call = hand.call().await.streams().await;
        call.send(first).await;
        // Who goes on is heard by nobody: were it read on, this would not end.
        while call.try_send(more).await {
            tokio::task::yield_now().await;
        }
    };
    let (reply, ()) = tokio::join!(asking, soon("the provider is left", said));
    let (text, reason, _) = told(&reply);
    assert_eq!((text.as_str(), reason), ("hello ", json!("stop_sequence")));
}

#[tokio::test]
async fn a_whole_answer_in_place_of_a_stream_need_not_say_why_it_ended() {
    let body = json!({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let sim = Sim::start(Behaviour::Raw { status: 200, headers, body: body.to_string().into() }).await;
    let gate = chat_gate(&sim, "").await;
    let (text, reason, usage) = told(&gate.messages(streamed(json!({}))).await);
    assert_eq!((text.as_str(), reason, &usage["output_tokens"]), ("Hi", json!("end_turn"), &json!(5)));
}

#[tokio::test]
async fn our_count_of_an_answer_is_never_more_than_was_asked_for() {
    let text = "\u{6f6e}".repeat(22);
    let sim = Sim::start(stream_of(chat(&[&text], None), End::Close)).await;
    let gate = chat_gate(&sim, "").await;
    let (_, _, usage) = told(&gate.messages(streamed(json!({"max_tokens": 5}))).await);
    assert_eq!(usage["output_tokens"], 5, "66 bytes would be 17");
    let events = [
        start(20),
        opened(),
        said(&text),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": null}}),
        json!({"type": "message_stop"}),
    ];
    let sim = Sim::start(stream_of(vec![native(&events)], End::Close)).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICES).run().await;
    let (_, _, usage) = told(&gate.messages(streamed(json!({"max_tokens": 5}))).await);
    assert_eq!(usage["output_tokens"], 5);
}

#[tokio::test]
async fn the_turns_of_a_loop_stay_where_the_first_was_served() {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = Tidegate::start().endpoint_with(MODEL, &first, PRICES).endpoint_with(MODEL, &second, PRICES).run().await;
    for more in [json!({}), json!({"provider": {"order": ["p0", "p1"]}})] {
        first.set(Script::status(500).then(Behaviour::says("Not here.")));
        second.set(Script::from(asks("", &[("tidegate_datetime", json!({}))])).then(Behaviour::says("Done.")));
        let calls = (first.calls(), second.calls());
        let mut body = hello(MODEL);
        body["tools"] = json!([{"type": "tidegate:datetime"}]);
        body["max_tokens"] = json!(1000);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = gate.messages(body.clone()).await;
        assert!(reply.body_text().contains("Done."), "{more}: {}", reply.body_text());
        assert_eq!((first.calls() - calls.0, second.calls() - calls.1), (1, 2), "{more}");
        // Other requests that begin alike are not changed by it.
        body.as_object_mut().unwrap().remove("tools");
        let reply = gate.messages(body).await;
        assert_eq!(reply.text(), "Not here.", "{more}");
    }
}
