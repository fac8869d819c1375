//! What outlives a failure: a stream that goes on elsewhere, an answer from a model that does not refuse, a conversation
//! that stays where it is, and endpoints that are left alone while they fail.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Script, Sim};

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, frame, hello, hello_streamed, tale, user};

const MODEL: &str = "vendor/m";
const OTHER: &str = "vendor/n";
/// A dollar for a million tokens of input, two for as many of output.
const PRICED: &str = "card = { prefill = \"native\" }\npricing = { input = 1, output = 2 }";

async fn asked(gate: &Tidegate, body: Value) -> Reply {
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
    ask.json(body.to_string()).send().await
}

/// A stream that says this and breaks.
fn breaks(frames: &[String]) -> Behaviour {
    Behaviour::RawStream { chunks: frames.iter().map(|frame| Bytes::from(frame.clone())).collect(), end: End::Reset }
}

async fn two(first: &str, second: &str) -> (Sim, Sim, Tidegate) {
    let (one, other) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = Tidegate::start().endpoint_with(MODEL, &one, first).endpoint_with(MODEL, &other, second).run().await;
    (one, other, gate)
}

async fn recorded(gate: &Tidegate, id: &str) -> Value {
    let reply = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.json()["data"].clone()
}

fn metadata(reply: &Reply) -> Value {
    reply.events().last().unwrap().json()["tidegate_metadata"].clone()
}

#[tokio::test]
async fn a_stream_that_breaks_in_its_text_goes_on_elsewhere_as_one() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    for (cut, said, next, expected) in [
        (3, "One two", " three.", "One two three."),
        // With white space at its end, which no upstream takes.
        (3, "One two ", "three.", "One two three."),
        (3, "One two three four ", "One two three four five.", "One two three four five."),
        // A short one is said again because that is how it goes on.
        (3, "One two ", "One two three.", "One two One two three."),
        // Behind a block that was closed.
        (4, "One two.", "Three.", "One two.Three."),
    ] {
        one.set(breaks(&tale(said)[..cut]));
        let second: Vec<Bytes> = tale(next).into_iter().map(Bytes::from).collect();
        other.set(Behaviour::RawStream { chunks: second, end: End::Close });
        let before = other.calls();
        let reply = asked(&gate, hello_streamed(MODEL)).await;
        let case = format!("{said:?} {next:?}: {}", reply.body_text());
        assert_eq!((reply.status, reply.text().as_str()), (200, expected), "{case}");
        assert_eq!(other.calls() - before, 1, "{case}");
        let events = reply.events();
        let count = |name: &str| events.iter().filter(|event| event.name == name).count();
        let marks = (count("message_start"), count("message_delta"), count("message_stop"), count("error"));
        assert_eq!(marks, (1, 1, 1, 0), "{case}");
        assert_eq!(count("content_block_start"), count("content_block_stop"), "{case}");
        assert!(events.first().unwrap().data.contains(r#""provider":"P0""#), "it stays as it was sent: {case}");

        let sent = other.requests().last().unwrap().json();
        let expected = json!([user("hi"), {"role": "assistant", "content": said.trim_end()}]);
        assert_eq!(sent["messages"], expected, "{case}");

        let told = metadata(&reply);
        let attempts = told["attempts"].as_array().unwrap();
        let statuses: Vec<&Value> = attempts.iter().map(|attempt| &attempt["status"]).collect();
        assert_eq!((statuses, &told["attempt"]), (vec![&json!(0), &json!(200)], &json!(2)), "{case}");
        assert_eq!(told["summary"], "available=2, selected=P1", "{case}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_again_goes_on_with_all_that_was_said_and_nothing_twice() {
    let sims =
        [Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await];
    let gate = sims.iter().fold(Tidegate::start(), |gate, sim| gate.endpoint_with(MODEL, sim, PRICED)).run().await;
    let begun = json!([user("hi"), {"role": "assistant", "content": "Well: "}]);
    for (messages, before) in [(json!([user("hi")]), ""), (begun, "Well: ")] {
        sims[0].set(breaks(&tale("One two")[..3]));
        sims[1].set(breaks(&tale(" three four")[..3]));
        let last: Vec<Bytes> = tale(" five.").into_iter().map(Bytes::from).collect();
        sims[2].set(Behaviour::RawStream { chunks: last, end: End::Close });
        let mut body = hello_streamed(MODEL);
        body["messages"] = messages;
        let reply = gate.messages(body).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "One two three four five."), "{}", reply.body_text());
        let sent = |place: usize| sims[place].requests().last().unwrap().json();
        for (place, said) in [(1, "One two"), (2, "One two three four")] {
            let expected = json!([user("hi"), {"role": "assistant", "content": format!("{before}{said}")}]);
            assert_eq!(sent(place)["messages"], expected);
        }
        // Two tokens of the first, three of the second.
        let limits = [0, 1, 2].map(|place| sent(place)["max_tokens"].as_u64().unwrap());
        assert_eq!(limits, [64, 62, 59]);
    }
}

#[tokio::test]
async fn str_3_an_answer_that_breaks_at_what_may_be_its_limit_has_not_ended() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    let text = tale("One two");
    // Within a block and behind it.
    for cut in [3, 4] {
        one.set(breaks(&text[..cut]));
        let mut body = hello_streamed(MODEL);
        body["max_tokens"] = json!(1);
        let reply = asked(&gate, body).await;
        assert_eq!((reply.status, reply.text().as_str(), other.calls()), (200, "One two", 0), "{}", reply.body_text());
        let events = reply.events();
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names.last(), Some(&"error"), "{names:?}");
        assert!(!names.contains(&"message_delta") && !names.contains(&"message_stop"), "nobody said why: {names:?}");
    }
}

#[tokio::test]
async fn an_answer_of_long_words_goes_on_though_its_bytes_would_be_its_limit() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    // Seven tokens for four bytes each; no tokenizer has half as many.
    let said = "international understanding ".repeat(8);
    one.set(breaks(&tale(&said)[..3]));
    other.set(Behaviour::RawStream { chunks: tale("grows.").into_iter().map(Bytes::from).collect(), end: End::Close });
    let mut body = hello_streamed(MODEL);
    body["max_tokens"] = json!(said.len() / 4);
    let reply = asked(&gate, body).await;
    assert_eq!((reply.text(), other.calls()), (format!("{said}grows."), 1), "{}", reply.body_text());
    let left = other.requests()[0].json()["max_tokens"].as_u64().unwrap();
    assert!((1..said.len() as u64 / 4).contains(&left), "{left}");
}

#[tokio::test]
async fn a_stream_that_was_thought_about_goes_on_without_another_thought() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    let event = |data: Value| frame(data["type"].as_str().unwrap(), &data.to_string());
    let delta = |delta: Value| event(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
    let text = tale("One two");
    let first = [
        text[0].clone(),
        event(json!({"type": "content_block_start", "index": 0, "content_block": block})),
        delta(json!({"type": "thinking_delta", "thinking": "hm"})),
        delta(json!({"type": "signature_delta", "signature": "c2ln"})),
        event(json!({"type": "content_block_stop", "index": 0})),
        text[1].replace("\"index\":0", "\"index\":1"),
        text[2].replace("\"index\":0", "\"index\":1"),
    ];
    one.set(breaks(&first));
    let second: Vec<Bytes> = tale(" three.").into_iter().map(Bytes::from).collect();
    other.set(Behaviour::RawStream { chunks: second, end: End::Close });
    let mut body = hello_streamed(MODEL);
    body["max_tokens"] = json!(4_000);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 2_000});
    let reply = gate.messages(body).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "One two three."), "{}", reply.body_text());
    let indexes: Vec<Value> = reply.events().iter().map(|event| event.json()["index"].clone()).collect();
    assert!(!indexes.contains(&json!(2)), "in the block that was open: {}", reply.body_text());
    let sent = other.requests().last().unwrap().json();
    assert_eq!((&sent["thinking"], &sent["messages"][1]["content"]), (&Value::Null, &json!("One two")));
}

#[tokio::test]
async fn both_parts_of_an_answer_are_counted_and_charged_once() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    // 40 bytes of text are ten tokens by our own count; the upstream had no time to count them.
    let said = "x".repeat(40);
    one.set(breaks(&tale(&said)[..3]));
    let second = tale("yes").into_iter().map(|frame| Bytes::from(frame.replace("msg_up", "msg_other")));
    let second: Vec<Bytes> = second.collect();
    other.set(Behaviour::RawStream { chunks: second, end: End::Close });
    let reply = gate.messages(hello_streamed(MODEL)).await;
    let events = reply.events();
    let usage = events.iter().find(|event| event.name == "message_delta").unwrap().json()["usage"].clone();
    // Both prompts are 14 tokens, and the second upstream says that it said nine.
    assert_eq!(usage["input_tokens"], 28, "{usage}");
    let output = usage["output_tokens"].as_u64().unwrap();
    assert!((9 + 8..=9 + 14).contains(&output), "{usage}");
    let dollars = (28.0 + 2.0 * output as f64) / 1e6;
    assert!((usage["cost"].as_f64().unwrap() - dollars).abs() < 1e-12, "{usage}");
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let record = recorded(&gate, &id).await;
    assert_eq!(recorded(&gate, "msg_up").await, record, "it is found by the id that the client was given");
    assert_eq!(record["upstream_id"], "msg_other", "and has the id that its end has with who served it");
    assert_eq!(record["tokens_prompt"], 28, "{record}");
    assert_eq!(record["tokens_completion"], json!(output), "{record}");
    assert!((record["total_cost"].as_f64().unwrap() - dollars).abs() < 1e-12, "{record}");
    let sent = other.requests().last().unwrap().json();
    let left = sent["max_tokens"].as_u64().unwrap();
    assert_eq!(left + (output - 9), 64, "what was produced is not produced again");
}

#[tokio::test]
async fn what_cannot_be_gone_on_with_ends_in_band() {
    let tool = frame(
        "content_block_start",
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#,
    );
    let thinking = frame(
        "content_block_start",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
    );
    let thought = frame(
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
    );
    let text = tale("One two");
    let in_tool = [&text[..4], &[tool]].concat();
    let in_thinking = [&text[..1], &[thinking, thought]].concat();
    let plain = text[..3].to_vec();
    let pinned = json!({"order": ["p0"], "allow_fallbacks": false});
    for (second, frames, more, case) in [
        (PRICED, in_tool, json!({}), "a call of a tool"),
        (PRICED, in_thinking, json!({}), "thinking"),
        ("", plain.clone(), json!({}), "nobody takes an answer that was begun"),
        (PRICED, plain, json!({"provider": pinned}), "the caller wants nobody else"),
    ] {
        let (one, other, gate) = two(PRICED, second).await;
        one.set(breaks(&frames));
        let mut body = hello_streamed(MODEL);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = gate.messages(body).await;
        let last = reply.events().pop().unwrap();
        assert_eq!((reply.status, last.name.as_str()), (200, "error"), "{case}: {}", reply.body_text());
        assert_eq!(other.calls(), 0, "{case}");
    }
}

#[tokio::test]
async fn only_who_takes_an_answer_that_was_begun_goes_on_with_it() {
    // Two calls out of three would go past the second one if another could serve: some of these rounds meet that.
    for _ in 0..6 {
        let (one, other, last) = (
            Sim::start(Behaviour::Echo).await,
            Sim::start(Behaviour::status(500)).await,
            Sim::start(Behaviour::Echo).await,
        );
        let gate = Tidegate::start().config("[routing]\nhealth = true\n").endpoint_with(MODEL, &one, PRICED);
        let gate = gate.endpoint_with(MODEL, &other, PRICED).endpoint(MODEL, &last).run().await;
        let mut only = hello(MODEL);
        only["provider"] = json!({"only": ["p1"]});
        for _ in 0..2 {
            assert_eq!(gate.messages(only.clone()).await.status, 502);
        }
        one.set(breaks(&tale("One two")[..3]));
        let second: Vec<Bytes> = tale(" three.").into_iter().map(Bytes::from).collect();
        other.set(Behaviour::RawStream { chunks: second, end: End::Close });
        let reply = gate.messages(hello_streamed(MODEL)).await;
        assert_eq!((reply.text().as_str(), last.calls()), ("One two three.", 0), "{}", reply.body_text());
    }
}

#[tokio::test]
async fn when_nobody_can_go_on_the_stream_ends_with_what_broke_it_and_is_not_charged() {
    let (one, other, gate) = two(PRICED, PRICED).await;
    one.set(breaks(&tale("One two")[..3]));
    other.set(Behaviour::status(500));
    let reply = gate.messages(hello_streamed(MODEL)).await;
    assert_eq!((reply.text().as_str(), other.calls()), ("One two", 1));
    let last = reply.events().pop().unwrap();
    assert_eq!((last.name.as_str(), &last.json()["error"]["error_type"]), ("error", &json!("provider_unavailable")));
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let record = recorded(&gate, &id).await;
    assert_eq!(record["total_cost"], json!(0), "{record}");
    // What the first one read and said, and no more: the second one failed before it did anything.
    assert_eq!(record["tokens_prompt"], json!(14), "{record}");
    assert_eq!(record["tokens_completion"], json!(2), "{record}");
}

#[tokio::test]
async fn a_refusal_leads_to_the_next_model_of_the_request_and_otherwise_is_the_answer() {
    let (one, other) = (Sim::start(Behaviour::Refusal).await, Sim::start(Behaviour::says("hello")).await);
    let gate = Tidegate::start().endpoint(MODEL, &one).endpoint(OTHER, &other).run().await;
    // In a stream it must come before any text: what was said cannot be taken back.
    let text = tale("");
    let end = text[4].replace("end_turn", "refusal");
    let chunks = [text[0].clone(), end, text[5].clone()].map(Bytes::from).to_vec();
    let silent = Behaviour::RawStream { chunks, end: End::Close };
    for (body, refuses) in [(hello(MODEL), Behaviour::Refusal), (hello_streamed(MODEL), silent)] {
        one.set(refuses);
        let reply = gate.messages(body.clone()).await;
        assert_eq!(reply.status, 200);
        assert!(reply.body_text().contains(r#""stop_reason":"refusal""#), "{}", reply.body_text());
        for members in [json!({"models": [OTHER]}), json!({"fallbacks": [{"model": OTHER}]})] {
            let mut body = body.clone();
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let reply = asked(&gate, body.clone()).await;
            assert_eq!((reply.status, reply.text().as_str()), (200, "hello"), "{members}: {}", reply.body_text());
            assert!(reply.body_text().contains(&format!(r#""model":"{OTHER}""#)), "{members}");
            assert!(!reply.body_text().contains("refusal"), "{members}");
        }
    }
    // The last one's refusal is an answer, too.
    one.set(Behaviour::Refusal);
    other.set(Behaviour::Refusal);
    let mut body = hello(MODEL);
    body["models"] = json!([OTHER]);
    let reply = gate.messages(body).await;
    assert_eq!((reply.status, &reply.json()["stop_reason"]), (200, &json!("refusal")));
}

#[tokio::test]
async fn a_conversation_stays_where_it_is_and_moves_once() {
    let sims = [Sim::start(Behaviour::says("hello")).await, Sim::start(Behaviour::says("hello")).await];
    let same = "shadow_price = 1";
    let gate = Tidegate::start().by_chance();
    let gate = gate.endpoint_with(MODEL, &sims[0], same).endpoint_with(MODEL, &sims[1], same).run().await;
    let turn = async |number: usize, session: &str| {
        let mut body = hello(MODEL);
        body["messages"][0]["content"] = json!(format!("turn {number}"));
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-session-id", session);
        let reply = ask.json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
    };
    let calls = || [sims[0].calls(), sims[1].calls()];
    for number in 0..100 {
        turn(number, "s").await;
    }
    let mut before = calls();
    before.sort_unstable();
    assert_eq!(before, [0, 100], "one of them served every turn");
    let dead = usize::from(calls()[1] == 100);
    sims[dead].set(Script::status(500));
    let before = calls();
    for number in 0..100 {
        turn(number, "s").await;
    }
    assert_eq!(calls()[1 - dead] - before[1 - dead], 100, "the other one served every turn");
    // It is asked once: after that the conversation is at home elsewhere.
    assert_eq!(calls()[dead] - before[dead], 1);
    // Other sessions are drawn for themselves: a hundred of them at one place would be a wonder.
    sims[dead].set(Script::says("hello"));
    let before = calls();
    for session in 0..100 {
        turn(0, &session.to_string()).await;
    }
    assert!((0..2).all(|place| calls()[place] > before[place]), "{:?} {before:?}", calls());
}

#[tokio::test]
async fn an_endpoint_that_fails_is_left_alone_and_nobody_notices() {
    let (one, other) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::says("hello")).await);
    let gate = Tidegate::start().config("[routing]\nhealth = true\n");
    let gate = gate.endpoint(MODEL, &one).endpoint(MODEL, &other).run().await;
    for _ in 0..40 {
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
    }
    assert_eq!(other.calls(), 40);
    assert!((1..=5).contains(&one.calls()), "{} calls of one that fails", one.calls());
    // It is well: when the one that worked dies, the first is asked again, whatever is known of it.
    one.set(Script::says("again"));
    other.set(Script::status(503));
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "again");
}

#[tokio::test]
async fn an_endpoint_that_is_well_again_is_called_again_when_its_time_is_up() {
    let (one, other) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::says("hello")).await);
    let gate = Tidegate::start().config("[routing]\nhealth = true\n");
    let mut place = gate.endpoint(MODEL, &one).endpoint(MODEL, &other).place();
    let file = place.beside("clock");
    std::fs::write(&file, "0 0").unwrap();
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().unwrap()));
    let gate = place.serve().await;
    for _ in 0..20 {
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
    }
    let failed = one.calls();
    one.set(Script::says("again"));
    // A breaker is open for thirty seconds the first time, give or take a fifth.
    std::fs::write(&file, "0 20000").unwrap();
    for _ in 0..20 {
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
    }
    assert_eq!(one.calls(), failed, "it is left alone for as long as it was said");
    std::fs::write(&file, "0 40000").unwrap();
    // Most calls still pass by an endpoint that refused all it was asked; one out of six does not.
    for _ in 0..100 {
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    }
    assert!(one.calls() > failed, "it is called when the time of its breaker is up");
    std::fs::write(&file, "0 200000").unwrap();
    let known = one.calls();
    for call in 1..=20 {
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "again", "call {call}");
    }
    assert_eq!(one.calls(), known + 20, "all calls are its own again");
}

#[tokio::test]
async fn ret_4_an_endpoint_alone_is_asked_again_for_what_may_pass() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().config("[routing]\nrepeat = true\n").endpoint_with(MODEL, &sim, PRICED).run().await;
    let hello_after = |faults: &[Behaviour]| {
        let script = |first: &Behaviour| Script::from(first.clone());
        let rest = faults[1..].iter().cloned().fold(script(&faults[0]), Script::then);
        rest.then(Behaviour::says("hello"))
    };
    let failing = [Behaviour::status(500), Behaviour::status(529), Behaviour::status(503)];
    for body in [hello(MODEL), hello_streamed(MODEL)] {
        sim.set(hello_after(&failing[..2]));
        let before = sim.calls();
        let reply = asked(&gate, body.clone()).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "hello"), "{}", reply.body_text());
        assert_eq!(sim.calls() - before, 3);
        let metadata = reply.body_text();
        assert!(metadata.contains(r#""attempt":3"#), "{metadata}");

        sim.set(hello_after(&failing));
        let before = sim.calls();
        assert_eq!(asked(&gate, body.clone()).await.status, 503, "three calls are enough");
        assert_eq!(sim.calls() - before, 3);

        // What is wrong with the request or the credential stays wrong.
        for status in [400, 401, 404] {
            sim.set(hello_after(&[Behaviour::status(status)]));
            let before = sim.calls();
            assert_ne!(asked(&gate, body.clone()).await.status, 200);
            assert_eq!(sim.calls() - before, 1, "{status}");
        }
    }
}
