//! Tools that run here, asked for in the formats of OpenAI: what they found is told, and comes back with the next request.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asks, bodies, gate_for};
use crate::harness::{INFERENCE_KEY, Tidegate};

const ENGINE: &str = "[tools.web_search.engines.fixed]\nkind = \"static\"\nprice_per_call = 0.005\n\
    results = [{ url = \"https://a.example/\", title = \"A\", content = \"High water is at six.\" }]\n";

/// The answer as one object, however it came.
async fn answered(gate: &Tidegate, body: &Value) -> Value {
    let reply = gate.ask("POST", "/v1/responses").key(INFERENCE_KEY).json(body.to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    if body["stream"] != true {
        return reply.json();
    }
    let events = reply.events();
    let items = events.iter().filter(|event| event.name == "response.output_item.done").count();
    let last = events.last().unwrap().json();
    assert_eq!(
        (&last["type"], items),
        (&json!("response.completed"), last["response"]["output"].as_array().unwrap().len())
    );
    last["response"].clone()
}

#[tokio::test]
async fn what_was_found_is_read_again_after_a_call_of_the_clients_own() {
    let calls = [("web_search", json!({"query": "tides"})), ("berth", json!({"ship": "Rose"}))];
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, ENGINE).await;
        let apart = || Script::from(asks("", &calls[..1])).then(asks("", &calls[1..]));
        let together = || Script::from(asks("", &calls));
        for (stream, script) in [(false, apart()), (true, apart()), (false, together()), (true, together())] {
            let case = format!("{protocol:?} {stream} {script:?}");
            sim.set(script);
            let mut body = json!({"model": MODEL, "input": [{"role": "user", "content": "When?"}], "stream": stream,
                "tools": [{"type": "function", "name": "berth", "parameters": {"type": "object"}}, {"type": "tidegate:web_search"}]});
            let answer = answered(&gate, &body).await;
            let output: Vec<&Value> =
                answer["output"].as_array().unwrap().iter().filter(|item| item["type"] != "reasoning").collect();
            let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
            assert_eq!(kinds, ["tidegate:web_search", "function_call"], "{case}: {answer}");
            let action =
                json!({"type": "search", "query": "tides", "sources": [{"type": "url", "url": "https://a.example/"}]});
            assert_eq!((&output[0]["action"], &output[0]["status"]), (&action, &json!("completed")), "{case}");
            let input = body["input"].as_array_mut().unwrap();
            input.extend(answer["output"].as_array().unwrap().iter().cloned());
            input.push(json!({"type": "function_call_output", "call_id": output[1]["call_id"], "output": "berth 7"}));
            sim.set(Behaviour::says("At six."));
            let answer = answered(&gate, &body).await;
            assert_eq!(answer["output"][0]["content"][0]["text"], "At six.", "{case}: {answer}");
            let sent = bodies(&sim).pop().unwrap();
            for part in ["High water is at six.", "berth 7", "When?"] {
                assert!(sent.contains(part), "{case}: {part} is missing in {sent}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_shown_to_others_is_in_the_item_and_known_by_its_id() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    for stream in [false, true] {
        let clock = ("tidegate_datetime", json!({"timezone": "Europe/Paris"}));
        sim.set(Script::from(asks("", &[clock])).then(Behaviour::says("It is late.")));
        let mut body = json!({"model": MODEL, "input": [{"role": "user", "content": "How late?"}], "stream": stream,
            "tools": [{"type": "tidegate:datetime"}]});
        let answer = answered(&gate, &body).await;
        let item = &answer["output"][0];
        assert_eq!(
            (&item["type"], &item["timezone"]),
            (&json!("tidegate:datetime"), &json!("Europe/Paris")),
            "{answer}"
        );
        let time = item["datetime"].as_str().unwrap();
        assert!(time.starts_with("20"), "{answer}");
        assert_eq!(answer["output"][1]["content"][0]["text"], "It is late.");
        let input = body["input"].as_array_mut().unwrap();
        input.extend(answer["output"].as_array().unwrap().iter().cloned());
        input.push(json!({"role": "user", "content": "Sure?"}));
        answered(&gate, &body).await;
        assert!(bodies(&sim).pop().unwrap().contains(time), "the model reads what it has read");
    }
}

/// The message of a chat completion as its readers put it together, however it came.
async fn chatted(gate: &Tidegate, body: &Value) -> Value {
    let reply = gate.ask("POST", "/v1/chat/completions").key(INFERENCE_KEY).json(body.to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    if body["stream"] != true {
        return reply.json()["choices"][0]["message"].clone();
    }
    let (mut details, mut calls, mut text) = (Vec::new(), Vec::<Value>::new(), String::new());
    for data in reply.body_text().lines().filter_map(|line| line.strip_prefix("data: {")) {
        let chunk: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        let delta = &chunk["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        details.extend(delta["reasoning_details"].as_array().cloned().unwrap_or_default());
        for piece in delta["tool_calls"].as_array().into_iter().flatten() {
            match piece["id"].is_string() {
                true => calls.push(piece.clone()),
                false => {
                    let known = &mut calls.last_mut().unwrap()["function"]["arguments"];
                    let whole = known.as_str().unwrap().to_owned() + piece["function"]["arguments"].as_str().unwrap();
                    *known = json!(whole);
                }
            }
        }
    }
    json!({"role": "assistant", "content": text, "tool_calls": calls, "reasoning_details": details})
}

#[tokio::test]
async fn what_was_found_goes_back_among_the_details_of_a_chat_completion() {
    let calls = [("web_search", json!({"query": "tides"})), ("berth", json!({"ship": "Rose"}))];
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, ENGINE).await;
        let apart = || Script::from(asks("", &calls[..1])).then(asks("", &calls[1..]));
        let together = || Script::from(asks("", &calls));
        for (stream, script) in [(false, apart()), (true, apart()), (false, together()), (true, together())] {
            let case = format!("{protocol:?} {stream} {script:?}");
            sim.set(script);
            let function = json!({"name": "berth", "parameters": {"type": "object"}});
            let mut body = json!({"model": MODEL, "messages": [{"role": "user", "content": "When?"}], "stream": stream,
                "tools": [{"type": "function", "function": function}, {"type": "tidegate:web_search"}]});
            let message = chatted(&gate, &body).await;
            let details = message["reasoning_details"].as_array().unwrap();
            let ran = details.iter().find(|detail| detail["type"] == "reasoning.server_tool_call").unwrap();
            assert_eq!(
                (&ran["tool_name"], &ran["arguments"]),
                (&json!("web_search"), &json!(r#"{"query":"tides"}"#)),
                "{case}"
            );
            let call = &message["tool_calls"][0]["id"];
            let result = json!({"role": "tool", "tool_call_id": call, "content": "berth 7"});
            body["messages"].as_array_mut().unwrap().extend([message.clone(), result]);
            sim.set(Behaviour::says("At six."));
            assert_eq!(chatted(&gate, &body).await["content"], "At six.", "{case}");
            let sent = bodies(&sim).pop().unwrap();
            for part in ["High water is at six.", "berth 7", "When?"] {
                assert!(sent.contains(part), "{case}: {part} is missing in {sent}");
            }
        }
    }
}
