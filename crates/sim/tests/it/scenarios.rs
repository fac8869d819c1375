use serde_json::json;
use tidegate_sim::{Behaviour, Protocol, Script, Sim};

use crate::client::call;
use crate::spoken::{ALL, Heard, OTHERS, ask, hear, path, send, streamed, with_tool};

/// One scenario says the same on every protocol, streamed or not; only reasons to stop have other words.
#[tokio::test]
async fn a_scenario_is_the_same_on_every_protocol() {
    let sim = Sim::start(Script::default()).await;
    for (model, tool) in [
        ("sim", false),
        ("sim-thinking", false),
        ("sim-tools", true),
        ("sim-tools", false),
        ("sim-parallel-tools", true),
        ("sim-refusal", false),
        ("sim-cached", false),
        ("sim-redacted", false),
        ("sim-tokens-30x7", false),
    ] {
        let expected = Heard { finish: None, ..hear(&sim, Protocol::Messages, model, tool, false).await };
        assert!(!expected.text.is_empty() || !expected.calls.is_empty());
        for protocol in ALL {
            for stream in [false, true] {
                let mut heard = hear(&sim, protocol, model, tool, stream).await;
                if let (Protocol::Converse | Protocol::Cohere, Some(usage)) = (protocol, &mut heard.usage) {
                    // They do not count thinking apart.
                    usage.1 = expected.usage.unwrap().1;
                }
                assert!(heard.finish.is_some(), "{model} {protocol:?} {stream}");
                assert_eq!(Heard { finish: None, ..heard }, expected, "{model} {protocol:?} {stream}");
            }
        }
    }
    assert_eq!((sim.open(), sim.cancelled()), (0, 0));
}

#[tokio::test]
async fn reasons_to_stop_are_in_the_vendors_words() {
    let sim = Sim::start(Script::default()).await;
    for (model, tool, chat, responses, gemini) in [
        ("sim", false, "stop", "completed", "STOP"),
        ("sim-tools", true, "tool_calls", "completed", "STOP"),
        ("sim-refusal", false, "stop", "completed", "SAFETY"),
        ("sim-stop-max_tokens", false, "length", "max_output_tokens", "MAX_TOKENS"),
        ("sim-stop-content_filter", false, "content_filter", "content_filter", "content_filter"),
        (
            "sim-stop-MALFORMED_FUNCTION_CALL",
            false,
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_FUNCTION_CALL",
        ),
    ] {
        for (protocol, expected) in OTHERS.into_iter().zip([chat, responses, gemini]) {
            for stream in [false, true] {
                let heard = hear(&sim, protocol, model, tool, stream).await;
                assert_eq!(heard.finish.as_deref(), Some(expected), "{model} {protocol:?} {stream}");
            }
        }
    }
}

#[tokio::test]
async fn a_script_and_its_limits_hold_on_every_protocol() {
    let long = vec!["word"; 40].join(" ");
    let sim = Sim::start(Script::says(long.clone()).then(Behaviour::says("second"))).await;
    for protocol in OTHERS {
        sim.set(Script::says(long.clone()).then(Behaviour::says("second")));
        let mut request = ask(protocol, "m", "hi");
        match protocol {
            Protocol::Chat => request["max_completion_tokens"] = json!(20),
            Protocol::Responses => request["max_output_tokens"] = json!(20),
            _ => request["generationConfig"]["maxOutputTokens"] = json!(20),
        }
        let reply = send(&sim, protocol, "m", request.clone(), true).await;
        let heard = streamed(protocol, &crate::spoken::data(reply.text()));
        assert_eq!(heard.text, vec!["word"; 20].join(" "), "{protocol:?}");
        assert_eq!(heard.usage.unwrap().0, 20);
        assert_eq!(hear(&sim, protocol, "m", false, false).await.text, "second");
        let seen = sim.requests().into_iter().rev().nth(1).unwrap();
        assert_eq!(seen.path, path(protocol, "m", true));
        assert_eq!(seen.json()["messages"], request["messages"]);
    }
}

#[tokio::test]
async fn stop_sequences_cut_where_the_protocol_has_them() {
    let sim = Sim::start(Script::says("one two three four")).await;
    let chat = with(ask(Protocol::Chat, "m", "hi"), "stop", json!(["nine", "three"]));
    let body = send(&sim, Protocol::Chat, "m", chat, false).await.json();
    assert_eq!(body["choices"][0]["message"]["content"], "one two ");
    let gemini = with(ask(Protocol::Gemini, "m", "hi"), "generationConfig", json!({"stopSequences": ["three"]}));
    let body = send(&sim, Protocol::Gemini, "m", gemini, false).await.json();
    assert_eq!(body["candidates"][0]["content"]["parts"], json!([{"text": "one two "}]));
}

/// A result goes back in the protocol's own form and is quoted.
#[tokio::test]
async fn tool_results_are_quoted() {
    let sim = Sim::start(Behaviour::ToolUse).await;
    for protocol in OTHERS {
        let first = with_tool(protocol, ask(protocol, "m", "Brest"));
        let body = send(&sim, protocol, "m", first.clone(), false).await.json();
        let mut second = first;
        match protocol {
            Protocol::Chat => {
                let message = body["choices"][0]["message"].clone();
                let result =
                    json!({"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "4.2 m"});
                second["messages"].as_array_mut().unwrap().extend([message, result]);
            }
            Protocol::Responses => {
                let call = body["output"][0].clone();
                let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "4.2 m"});
                second["input"] = json!([{"role": "user", "content": "Brest"}, call, result]);
            }
            _ => {
                let content = body["candidates"][0]["content"].clone();
                let id = &content["parts"][0]["functionCall"]["id"];
                let result =
                    json!({"functionResponse": {"id": id, "name": "tide_at", "response": {"output": "4.2 m"}}});
                let contents = second["contents"].as_array_mut().unwrap();
                contents.extend([content, json!({"role": "user", "parts": [result]})]);
            }
        }
        let reply = send(&sim, protocol, "m", second, false).await;
        let heard = crate::spoken::whole(protocol, &reply.json());
        assert_eq!(heard.text, "The tool answered: 4.2 m", "{protocol:?} {}", reply.text());
    }
}

#[tokio::test]
async fn one_call_at_a_time_can_be_asked_for() {
    let sim = Sim::start(Behaviour::ParallelTools(3)).await;
    for protocol in [Protocol::Chat, Protocol::Responses] {
        let request = with(with_tool(protocol, ask(protocol, "m", "hi")), "parallel_tool_calls", json!(false));
        let heard = crate::spoken::whole(protocol, &send(&sim, protocol, "m", request, false).await.json());
        assert_eq!(heard.calls.len(), 1);
        let request = with(with_tool(protocol, ask(protocol, "m", "hi")), "tool_choice", json!("none"));
        let heard = crate::spoken::whole(protocol, &send(&sim, protocol, "m", request, false).await.json());
        assert_eq!(heard.calls.len(), 0);
    }
}

#[tokio::test]
async fn tokens_are_counted_by_those_who_count() {
    let sim = Sim::start(Script::default()).await;
    let gemini = ask(Protocol::Gemini, "m", "hi").to_string();
    let wrapped = format!(r#"{{"generateContentRequest":{{"model":"models/m",{}}}"#, &gemini[1..]);
    for (at, body) in [gemini, wrapped].iter().enumerate() {
        let reply = call(&sim, "POST", "/v1beta/models/m:countTokens", &[], body.as_bytes()).await;
        assert_eq!(reply.json()["totalTokens"], body.len().div_ceil(4), "{}", reply.text());
        assert_eq!(sim.count_calls(), at + 1);
    }
    let body = ask(Protocol::Responses, "m", "hi").to_string();
    let reply = call(&sim, "POST", "/v1/responses/input_tokens", &[], body.as_bytes()).await;
    assert_eq!(reply.json(), json!({"object": "response.input_tokens", "input_tokens": body.len().div_ceil(4)}));
    assert_eq!((sim.calls(), sim.count_calls()), (0, 3));
}

#[tokio::test]
async fn prefixes_of_vendors_are_served() {
    let sim = Sim::start(Script::says("hello")).await;
    let chat = ask(Protocol::Chat, "m", "hi");
    for path in
        ["/chat/completions", "/openai/v1/chat/completions", "/openai/deployments/d/chat/completions?api-version=1"]
    {
        assert_eq!(call(&sim, "POST", path, &[], chat.to_string().as_bytes()).await.status, 200, "{path}");
    }
    let responses = ask(Protocol::Responses, "m", "hi").to_string();
    assert_eq!(call(&sim, "POST", "/responses", &[], responses.as_bytes()).await.status, 200);
    let gemini = ask(Protocol::Gemini, "m", "hi").to_string();
    let vertex = "/v1/projects/p/locations/global/publishers/google/models/m";
    for (path, status) in [
        (format!("{vertex}:generateContent"), 200),
        (format!("{vertex}:streamGenerateContent?alt=sse"), 200),
        (format!("{vertex}:predict"), 404),
    ] {
        let token = [("authorization", "Bearer ya29.sim")];
        assert_eq!(call(&sim, "POST", &path, &token, gemini.as_bytes()).await.status, status, "{path}");
    }
}

fn with(mut request: serde_json::Value, name: &str, value: serde_json::Value) -> serde_json::Value {
    request[name] = value;
    request
}
