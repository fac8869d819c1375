//! Conversations that are too long for a window: shortened from their middle for that attempt, and for nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, bodies, message};
use crate::harness::Tidegate;

/// A word of four letters and a space is about 1.6 tokens by bytes: 400 words are about 625 tokens.
fn long(name: &str) -> String {
    format!("{name} {}", "tide ".repeat(400))
}

/// About 3200 tokens: two short ends, three long turns and a call with a long result between them.
fn conversation(stream: bool, plugins: Value) -> Value {
    let says = |role: &str, text: String| json!({"role": role, "content": text});
    json!({"model": MODEL, "max_tokens": 100, "stream": stream, "plugins": plugins, "system": "Know the tides.",
    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    "messages": [
        says("user", "FIRST words".to_owned()),
        says("assistant", long("ONE")),
        says("user", long("TWO")),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"port": "Brest"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": long("RESULT")}]},
        says("assistant", long("THREE")),
        says("user", long("FOUR")),
        says("assistant", "so".to_owned()),
        says("user", "LAST words".to_owned()),
    ]})
}

fn entry(message: &Value) -> Option<Value> {
    let pipeline = message["tidegate_metadata"]["pipeline"].as_array()?;
    pipeline.iter().find(|entry| entry["name"] == "context-compression").cloned()
}

const ON: &str = r#"[{"id": "context-compression"}]"#;

fn on() -> Value {
    serde_json::from_str(ON).unwrap()
}

#[tokio::test]
async fn a_small_window_gets_the_ends_of_a_conversation_and_whole_pairs_on_every_protocol() {
    for (protocol, path) in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("At six.")).await;
        let address = format!("{}{path}", sim.base_url());
        let lines = "context_length = 2000\nmax_output_tokens = 200";
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &address, lines).run().await;
        for stream in [false, true] {
            let case = format!("{protocol} {stream}");
            // Nobody has to ask for it.
            let reply = asked(&gate, &conversation(stream, json!([]))).await;
            let said = reply.header("x-tidegate-warnings").unwrap_or_default();
            assert!(said.split(',').any(|warning| warning == "compressed:messages"), "{case}: {said}");
            let answer = message(&reply);
            let sent = bodies(&sim).pop().unwrap();
            for word in ["Know the tides.", "FIRST words", "LAST words"] {
                assert!(sent.contains(word), "{case}: {word} in {sent}");
            }
            assert!(
                !sent.contains("RESULT") && !sent.contains("Brest"),
                "{case}: the middle goes, with its call: {sent}"
            );
            let entry = entry(&answer).unwrap();
            let data = &entry["data"];
            assert_eq!(
                (&entry["type"], &data["engine"]),
                (&json!("context_compression"), &json!("middle-out")),
                "{case}"
            );
            assert_eq!((&data["input_type"], &data["original_count"]), (&json!("messages"), &json!(9)), "{case}");
            assert!(data["compressed_count"].as_u64().unwrap() < 9, "{case}: {data}");
            // The window without the answer and a fiftieth.
            let (before, after) =
                (data["original_tokens"].as_u64().unwrap(), data["compressed_tokens"].as_u64().unwrap());
            assert!(before > 1_860 && after <= 2_000 - 100 - 40, "{case}: {data}");
        }
        // Who switches it off is refused, in the words that clients know.
        let off = json!([{"id": "context-compression", "enabled": false}]);
        let calls = sim.calls();
        let (status, _, kind, text) = asked(&gate, &conversation(false, off)).await.error();
        assert_eq!((status, &*kind), (400, "context_length_exceeded"), "{protocol}: {text}");
        assert_eq!(sim.calls(), calls, "{protocol}");
    }
}

#[tokio::test]
async fn a_larger_window_is_given_all_of_it_and_what_fits_goes_as_it_came() {
    for (protocol, path) in PROTOCOLS {
        let (small, large) = (Sim::start(Behaviour::status(503)).await, Sim::start(Behaviour::says("All.")).await);
        let at = |sim: &Sim| format!("{}{path}", sim.base_url());
        let gate = Tidegate::start()
            .protocol_at(MODEL, protocol, &at(&small), "context_length = 2000\nmax_output_tokens = 200")
            .protocol_at(MODEL, protocol, &at(&large), "context_length = 100000\nmax_output_tokens = 200")
            .config("[routing]\nrepeat = false\n")
            .run()
            .await;
        for stream in [false, true] {
            let case = format!("{protocol} {stream}");
            let reply = asked(&gate, &conversation(stream, on())).await;
            let said = reply.header("x-tidegate-warnings").unwrap_or_default();
            assert!(!said.contains("compressed:"), "{case}: {said}");
            let answer = message(&reply);
            assert_eq!(entry(&answer), None, "{case}: the attempt that answered left nothing out");
            let (first, second) = (bodies(&small).pop().unwrap(), bodies(&large).pop().unwrap());
            assert!(!first.contains("RESULT") && first.contains("LAST words"), "{case}: {first}");
            for word in ["FIRST words", "ONE", "TWO", "RESULT", "Brest", "THREE", "FOUR", "LAST words"] {
                assert!(second.contains(word), "{case}: {word}");
            }
        }
    }
    // With room enough a native request is not touched, whatever the plugin says.
    let sim = Sim::start(Behaviour::says("ok")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let body = conversation(false, on());
    assert_eq!(asked(&gate, &body).await.status, 200);
    let sent = sim.requests().pop().unwrap().json();
    assert_eq!((&sent["messages"], &sent["system"]), (&body["messages"], &body["system"]));
}

#[tokio::test]
async fn what_may_not_be_touched_and_is_too_long_is_refused() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let lines = "context_length = 2000\nmax_output_tokens = 200";
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, lines).run().await;
    let mut body = conversation(false, on());
    body["messages"] = json!([
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "so"},
        {"role": "user", "content": "tide ".repeat(3_000)},
    ]);
    let (status, _, kind, text) = asked(&gate, &body).await.error();
    assert_eq!((status, &*kind), (400, "context_length_exceeded"));
    assert!(text.starts_with("prompt is too long: "), "{text}");
    assert_eq!(sim.calls(), 0);
    // A first message that is too long keeps its first words.
    body["messages"][0]["content"] = json!(format!("FIRST {} END", "tide ".repeat(6_000)));
    body["messages"][2]["content"] = json!("last");
    let answer = message(&asked(&gate, &body).await);
    let sent = sim.requests().pop().unwrap().json();
    let text = sent["messages"][0]["content"].as_str().unwrap();
    assert!(text.starts_with("FIRST tide") && text.ends_with("END") && text.contains(" tokens removed …]"), "{text}");
    assert!(entry(&answer).is_some());
}

#[tokio::test]
async fn an_answer_without_a_limit_gets_what_the_prompt_leaves_of_the_window() {
    // By bytes: 3200 of text are 1000 tokens, and 3 and 16 for the message and the request. A twentieth more, rounded up,
    // are 1070.
    let text = "tide ".repeat(640);
    for (protocol, path) in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("ok")).await;
        let address = format!("{}{path}", sim.base_url());
        let lines = "context_length = 2000\nmax_output_tokens = 2000\ncard = { tokenizer = \"bytes\" }";
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &address, lines).run().await;
        let limit = |sent: &Value| {
            let places =
                ["/max_tokens", "/max_completion_tokens", "/max_output_tokens", "/generationConfig/maxOutputTokens"];
            places.iter().find_map(|place| sent.pointer(place)).and_then(Value::as_u64)
        };
        let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": text}]});
        for stream in [false, true] {
            body["stream"] = json!(stream);
            assert_eq!(asked(&gate, &body).await.status, 200, "{protocol}");
            assert_eq!(limit(&sim.requests().pop().unwrap().json()), Some(2_000 - 1_070), "{protocol} {stream}");
        }
        body["max_tokens"] = json!(1_500);
        body["messages"][0]["content"] = json!("hi");
        asked(&gate, &body).await;
        let sent = sim.requests().pop().unwrap().json();
        assert_eq!(limit(&sent), Some(1_500), "{protocol}: the caller's own limit stands");
    }
}
