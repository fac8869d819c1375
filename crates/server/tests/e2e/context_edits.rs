//! Edits of the context: done by the gateway where the endpoint does not speak the format, left to the endpoint where it
//! does.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, message};
use crate::harness::{INFERENCE_KEY, Reply, Tidegate};

fn long(name: &str) -> String {
    format!("{name} {}", "tide ".repeat(100))
}

/// Four calls with long results, in two turns; the first of them was thought about.
fn conversation(edits: Value) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "When is high water?"})];
    for number in 1..=4 {
        let id = format!("toolu_{number}");
        if number == 3 {
            messages.push(json!({"role": "assistant", "content": "At six."}));
            messages.push(json!({"role": "user", "content": "And low water?"}));
        }
        let mut blocks =
            vec![json!({"type": "tool_use", "id": id, "name": "look", "input": {"port": format!("PORT{number}")}})];
        if number != 2 {
            blocks.insert(
                0,
                json!({"type": "thinking", "thinking": long(&format!("THOUGHT{number}")), "signature": "s"}),
            );
        }
        messages.push(json!({"role": "assistant", "content": blocks}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": long(&format!("RESULT{number}"))});
        messages.push(json!({"role": "user", "content": [result]}));
    }
    json!({
        "model": MODEL, "max_tokens": 100, "messages": messages, "context_management": {"edits": edits},
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    })
}

/// Clears what is old: the thinking of the first turn, and two results.
fn clearing() -> Value {
    json!([
        {"type": "clear_thinking_20251015"},
        {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 3},
            "keep": {"type": "tool_uses", "value": 2},
        },
    ])
}

async fn count(gate: &Tidegate, body: &Value) -> Reply {
    gate.ask("POST", "/v1/messages/count_tokens").key(INFERENCE_KEY).json(body.to_string()).send().await
}

#[tokio::test]
async fn old_results_and_thinking_are_cleared_on_every_translated_protocol_whole_and_streamed() {
    for protocol in PROTOCOLS.into_iter().filter(|(name, _)| *name != "anthropic") {
        let sim = Sim::start(Behaviour::says("At noon.")).await;
        let gate = gate_for(&sim, protocol, "").await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let mut body = conversation(clearing());
            body["stream"] = json!(stream);
            let reply = asked(&gate, &body).await;
            let answer = message(&reply);
            let sent = bodies(&sim).pop().unwrap();
            for word in ["RESULT1", "RESULT2", "THOUGHT1"] {
                assert!(!sent.contains(word), "{case}: {word} in {sent}");
            }
            for word in ["RESULT3", "RESULT4", "PORT1", "PORT2", "When is high water?"] {
                assert!(sent.contains(word), "{case}: {word} not in {sent}");
            }
            assert_eq!(sent.matches("[cleared]").count(), 2, "{case}");
            assert!(!sent.contains("context_management"), "{case}");
            let applied = answer["context_management"]["applied_edits"].as_array().unwrap();
            let kinds: Vec<&str> = applied.iter().map(|edit| edit["type"].as_str().unwrap()).collect();
            assert_eq!(kinds, ["clear_thinking_20251015", "clear_tool_uses_20250919"], "{case}");
            assert_eq!(
                (&applied[0]["cleared_thinking_turns"], &applied[1]["cleared_tool_uses"]),
                (&json!(1), &json!(2))
            );
            // Each text has 500 letters and more: a hundred tokens at least, whoever counts.
            let tokens = |place: usize| applied[place]["cleared_input_tokens"].as_u64().unwrap();
            assert!(tokens(0) >= 100 && tokens(1) >= 200, "{case}: {applied:?}");
            let warnings = reply.header("x-tidegate-warnings").unwrap_or_default();
            assert!(!warnings.contains("context_management"), "{case}: {warnings}");

            // What starts nothing is told as nothing, and what is not done here is named.
            let mut idle = conversation(json!([{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]));
            idle["stream"] = json!(stream);
            let reply = asked(&gate, &idle).await;
            assert_eq!(message(&reply)["context_management"], json!({"applied_edits": []}), "{case}");
            assert!(bodies(&sim).pop().unwrap().contains("RESULT1"), "{case}");
            let warnings = reply.header("x-tidegate-warnings").unwrap_or_default();
            assert!(warnings.contains("dropped:context_management.compact_20260112"), "{case}: {warnings}");

            // Who asks for nothing is told nothing.
            let mut plain = conversation(json!([]));
            plain.as_object_mut().unwrap().remove("context_management");
            plain["stream"] = json!(stream);
            assert_eq!(message(&asked(&gate, &plain).await).get("context_management"), None, "{case}");
        }
    }
}

#[tokio::test]
async fn who_speaks_the_format_gets_the_edits_as_they_came() {
    let sim = Sim::start(Behaviour::says("At noon.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let body = conversation(clearing());
    let answer = message(&asked(&gate, &body).await);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    assert_eq!((&sent["context_management"], &sent["messages"]), (&body["context_management"], &body["messages"]));
    assert_eq!(answer.get("context_management"), None, "it is the endpoint's to tell");
    // They are in beta there, which no client has to know.
    let beta = |sim: &Sim| sim.requests().pop().and_then(|seen| seen.header("anthropic-beta").map(str::to_owned));
    assert_eq!(beta(&sim).as_deref(), Some("context-management-2025-06-27"));
    asked(&gate, &conversation(json!([{"type": "compact_20260112"}]))).await;
    assert_eq!(beta(&sim).as_deref(), Some("context-management-2025-06-27,compact-2026-01-12"));
    let mut plain = body;
    plain.as_object_mut().unwrap().remove("context_management");
    asked(&gate, &plain).await;
    assert_eq!(beta(&sim), None);
}

#[tokio::test]
async fn a_conversation_that_fits_after_its_edits_is_not_refused() {
    let sim = Sim::start(Behaviour::says("At noon.")).await;
    let address = format!("{}/v1", sim.base_url());
    // The texts are about 160 tokens each: four results and three thoughts, of which two and one are cleared.
    let lines = "context_length = 1100\nmax_output_tokens = 200";
    let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, lines).run().await;
    let mut body = conversation(clearing());
    body["plugins"] = json!([{"id": "context-compression", "enabled": false}]);
    let answer = message(&asked(&gate, &body).await);
    assert_eq!(answer["context_management"]["applied_edits"][1]["cleared_tool_uses"], 2, "{answer}");
    body["context_management"] = json!({"edits": []});
    let (status, _, _, text) = asked(&gate, &body).await.error();
    assert_eq!((status, sim.calls()), (400, 1), "{text}");
}

#[tokio::test]
async fn turns_of_a_loop_are_edited_and_the_last_one_tells_of_it() {
    for protocol in [PROTOCOLS[1], PROTOCOLS[3]] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        for stream in [false, true] {
            let clock = ("tidegate_datetime", json!({"timezone": "UTC"}));
            sim.set(Script::from(asks("Let me see.", &[clock])).then(Behaviour::says("It is late.")));
            let mut body = conversation(clearing());
            body["stream"] = json!(stream);
            body["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
            let answer = message(&asked(&gate, &body).await);
            // The last turn has a fifth call, so that one more is old.
            let applied = &answer["context_management"]["applied_edits"];
            assert_eq!(applied[1]["cleared_tool_uses"], 3, "{protocol:?} {stream}: {answer}");
            let sent = bodies(&sim).pop().unwrap();
            assert!(!sent.contains("RESULT3") && sent.contains("RESULT4"), "{protocol:?} {stream}: {sent}");
        }
    }
}

#[tokio::test]
async fn a_count_says_what_there_was_before_the_edits() {
    for protocol in PROTOCOLS.into_iter().filter(|(name, _)| *name != "anthropic") {
        let sim = Sim::start(Behaviour::says("At noon.")).await;
        let gate = gate_for(&sim, protocol, "").await;
        let edited = count(&gate, &conversation(clearing())).await.json();
        let mut plain = conversation(json!([]));
        let idle = count(&gate, &plain).await.json();
        assert_eq!(idle["context_management"]["original_input_tokens"], idle["input_tokens"], "{protocol:?}");
        plain.as_object_mut().unwrap().remove("context_management");
        let whole = count(&gate, &plain).await.json();
        assert_eq!(whole.get("context_management"), None, "{protocol:?}");
        let number = |value: &Value| value.as_u64().unwrap();
        let (input, original) =
            (number(&edited["input_tokens"]), number(&edited["context_management"]["original_input_tokens"]));
        assert!(input + 300 <= original, "{protocol:?}: {edited}");
        assert!(input < number(&whole["input_tokens"]), "{protocol:?}: {edited} {whole}");
    }
    // An endpoint that does the edits says it itself.
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let counted = count(&gate, &conversation(clearing())).await.json();
    assert_eq!(
        counted["context_management"]["original_input_tokens"], counted["input_tokens"],
        "the simulator edits nothing"
    );
}
