//! OpenAI's formats at our own door: what careless upstreams answer, what is too long, and what keeps requests together.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Sim};

use crate::harness::{Event, INFERENCE_KEY, Reply, Tidegate, eventually, frame, tale, user};

const MODEL: &str = "vendor/m";
const PRICED: &str = "pricing = { input = 1, output = 1 }";

async fn ask(gate: &Tidegate, path: &str, body: &Value) -> Reply {
    gate.ask("POST", &format!("/v1/{path}")).key(INFERENCE_KEY).json(body.to_string()).send().await
}

/// The same request in both formats.
fn asking(text: &str) -> [(&'static str, Value); 2] {
    [
        ("chat/completions", json!({"model": MODEL, "max_tokens": 64, "messages": [user(text)]})),
        ("responses", json!({"model": MODEL, "max_output_tokens": 64, "input": text})),
    ]
}

fn said(path: &str, answer: &Value) -> Value {
    let place = if path == "responses" { "/output/0/content/0/text" } else { "/choices/0/message/content" };
    answer.pointer(place).cloned().unwrap_or_default()
}

/// An answer with such a content, and more members.
fn answers(content: &str, more: &str) -> Behaviour {
    let body = format!(
        r#"{{"id":"m","type":"message","role":"assistant","model":"m","content":{content},"stop_reason":"end_turn","usage":{{"input_tokens":3,"output_tokens":7}}{more}}}"#
    );
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Behaviour::Raw { status: 200, headers, body: Bytes::from(body) }
}

#[tokio::test]
async fn a_careless_answer_is_told_and_one_that_cannot_be_is_not_charged() {
    let (careless, other) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("other")).await);
    let alone = Tidegate::start().endpoint_with(MODEL, &careless, PRICED).run().await;
    let two = Tidegate::start().endpoint_with(MODEL, &careless, PRICED).endpoint(MODEL, &other).run().await;
    let text = r#"[{"text":"?"},{"type":"text","text":"hi"}]"#;
    for more in [r#","stop_details":{}"#, r#","container":{}"#, r#","context_management":[]"#] {
        careless.set(answers(text, more));
        for (path, body) in asking("x") {
            let reply = ask(&alone, path, &body).await;
            assert_eq!(reply.status, 200, "{path} {more}: {}", reply.body_text());
            let answer = reply.json();
            // Ten tokens at a dollar for a million.
            assert_eq!((said(path, &answer), &answer["usage"]["cost"]), (json!("hi"), &json!(0.00001)), "{answer}");
        }
    }
    careless.set(answers(r#"[{"text":"?"}]"#, ""));
    for (path, body) in asking("x") {
        let reply = ask(&alone, path, &body).await;
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["metadata"]["error_type"]), (502, &json!("provider_unavailable")), "{error}");
        let id = reply.header("x-generation-id").unwrap();
        let record = alone.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
        assert_eq!(record.json()["data"]["total_cost"].as_f64(), Some(0.0), "{}", record.body_text());
        assert_eq!(said(path, &ask(&two, path, &body).await.json()), "other");
    }
}

#[tokio::test]
async fn p42_a_messages_upstream_gets_ids_of_calls_that_it_takes() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let (id, arguments) = ("functions.look:0", "{}");
    let call = json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}});
    let chat = json!({"model": MODEL, "max_tokens": 64, "messages": [user("x"),
        {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": id, "content": "4 m"}]});
    let responses = json!({"model": MODEL, "max_output_tokens": 64, "input": [user("x"),
        {"type": "function_call", "call_id": id, "name": "look", "arguments": arguments},
        {"type": "function_call_output", "call_id": id, "output": "4 m"}]});
    for (path, body) in [("chat/completions", chat), ("responses", responses)] {
        let reply = ask(&gate, path, &body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        let messages = sim.requests().pop().unwrap().json()["messages"].clone();
        let made = messages[1]["content"][0]["id"].as_str().unwrap().to_owned();
        assert!(made.starts_with("t_") && made.len() == 26, "{path}: {made}");
        assert_eq!(messages[2]["content"][0]["tool_use_id"], made.as_str(), "{path}");
    }
}

#[tokio::test]
async fn a_careless_stream_loses_nothing() {
    let frames = [
        (
            "message_start",
            r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"container":{},"usage":{"input_tokens":3.0,"output_tokens":0}}}"#,
        ),
        (
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":{}}}"#,
        ),
        (
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}"#,
        ),
        ("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
        (
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_details":{}},"usage":{"output_tokens":7,"output_tokens_details":{"thinking_tokens":"5"}}}"#,
        ),
        ("message_stop", r#"{"type":"message_stop"}"#),
    ];
    let chunks = frames.iter().map(|(name, data)| Bytes::from(frame(name, data))).collect();
    let sim = Sim::start(Behaviour::RawStream { chunks, end: tidegate_sim::End::default() }).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICED).run().await;
    for (path, mut body) in asking("x") {
        body["stream"] = json!(true);
        let reply = ask(&gate, path, &body).await;
        let text = reply.body_text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let last = events.last().unwrap();
        let (told, why, used) = match path {
            "responses" => {
                let response = &last["response"];
                (said(path, response), response["status"].clone(), response["usage"]["total_tokens"].clone())
            }
            _ => {
                let pieces = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
                let told: String = pieces.collect();
                (json!(told), last["choices"][0]["finish_reason"].clone(), last["usage"]["total_tokens"].clone())
            }
        };
        let wanted = if path == "responses" { "incomplete" } else { "length" };
        assert_eq!((told, why, used), (json!("a\u{fffd}"), json!(wanted), json!(10)), "{text}");
    }
}

#[tokio::test]
async fn what_is_too_long_is_cut_short_in_the_responses_format_and_an_error_elsewhere() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate =
        Tidegate::start().endpoint_with(MODEL, &sim, "context_length = 2000\nmax_output_tokens = 200").run().await;
    let [(chat, in_chat), (path, mut body)] = asking(&"word ".repeat(20_000));
    let refused = ask(&gate, chat, &in_chat).await;
    assert_eq!(
        (refused.status, &refused.json()["error"]["metadata"]["error_type"]),
        (400, &json!("context_length_exceeded"))
    );
    let cut = |response: &Value| {
        let told = ["status", "incomplete_details", "output", "error", "model"].map(|name| response[name].clone());
        assert_eq!(json!(told), json!(["incomplete", {"reason": "max_output_tokens"}, [], null, MODEL]), "{response}");
    };
    let reply = ask(&gate, path, &body).await;
    let id = reply.header("x-generation-id").unwrap();
    assert_eq!((reply.status, reply.json()["id"].as_str()), (200, Some(id)), "{}", reply.body_text());
    cut(&reply.json());
    let path_of_record = format!("/api/v1/generation?id={id}");
    eventually("the record", Duration::from_secs(5), async || {
        let record = gate.ask("GET", &path_of_record).key(INFERENCE_KEY).send().await;
        record.status == 200 && record.json()["data"]["total_cost"].as_f64() == Some(0.0)
    })
    .await;
    body["stream"] = json!(true);
    let reply = ask(&gate, path, &body).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream; charset=utf-8")));
    let events = reply.events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["response.created", "response.in_progress", "response.incomplete"]);
    cut(&events[2].json()["response"]);
    // The provider's word counts as ours does.
    sim.set(Behaviour::Status {
        code: 400,
        retry_after: None,
        error_type: Some("invalid_request_error".to_owned()),
        message: Some("prompt is too long: 2200 tokens > 2000 maximum".to_owned()),
    });
    let [_, (path, body)] = asking("short");
    let reply = ask(&gate, path, &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    cut(&reply.json());
    sim.set(Behaviour::Status { code: 400, retry_after: None, error_type: None, message: Some("no".to_owned()) });
    assert_eq!(ask(&gate, path, &body).await.status, 400);
}

/// Conversations that begin differently are one for caches where the caller says so; a session says it better.
#[tokio::test]
async fn a_cache_key_keeps_requests_together() {
    let sim = Sim::start(Behaviour::Echo).await;
    let lines = "card = { prompt_cache_key = true }";
    let gate =
        Tidegate::start().protocol_at(MODEL, "openai-chat", &format!("{}/v1", sim.base_url()), lines).run().await;
    let key = async |path: &str, mut body: Value, more: Value| -> String {
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = ask(&gate, path, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        sim.requests().pop().unwrap().json()["prompt_cache_key"].as_str().unwrap().to_owned()
    };
    for place in 0..2 {
        let [one, other] = ["one", "other"].map(|text| asking(text)[place].clone());
        let of = |(path, body): &(&'static str, Value), more: Value| key(path, body.clone(), more);
        let keyed = json!({"prompt_cache_key": "c"});
        let shared = of(&one, keyed.clone()).await;
        assert_eq!(shared, of(&other, keyed).await);
        // Also where the turns are a loop's.
        let looped = json!({"prompt_cache_key": "c", "tools": [{"type": "tidegate:datetime"}]});
        assert_eq!(shared, of(&other, looped).await);
        assert_ne!(of(&one, json!({})).await, of(&other, json!({})).await);
        let session = json!({"session_id": "s", "prompt_cache_key": "c"});
        assert_eq!(of(&one, session).await, of(&other, json!({"session_id": "s"})).await);
        assert_ne!(shared, of(&one, json!({"prompt_cache_key": "x".repeat(257)})).await);
    }
}

#[tokio::test]
async fn half_a_character_beside_a_server_tool_is_named() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let body = format!(
        r#"{{"model":"{MODEL}","max_tokens":64,"tools":[{{"type":"tidegate:datetime"}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"a\ud800"}}]}}]}}"#
    );
    let reply = gate.post(body).await;
    let (status, _, kind, message) = reply.error();
    assert_eq!((status, kind.as_str()), (400, "invalid_request"));
    assert_eq!(message, "Invalid request: messages[0].content[0].text has an invalid format");
    assert_eq!(sim.calls(), 0);
}

/// The usage that tells the cost, wherever it stands, with its two counts.
fn told(reply: &Reply) -> (Value, Value, Value) {
    fn find(value: &Value) -> Option<&Value> {
        let usage = value.get("usage").filter(|usage| usage.get("cost").is_some());
        usage.or_else(|| value.get("response").and_then(find))
    }
    let is_streamed = reply.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let values: Vec<Value> = match is_streamed {
        true => reply.events().iter().filter(|event| event.data != "[DONE]").map(Event::json).collect(),
        false => vec![reply.json()],
    };
    let usage = values.iter().rev().find_map(find).unwrap_or_else(|| panic!("no cost in {}", reply.body_text()));
    let count = |names: [&str; 2]| names.into_iter().find_map(|name| usage.get(name)).cloned().unwrap_or_default();
    let (input, output) = (count(["input_tokens", "prompt_tokens"]), count(["output_tokens", "completion_tokens"]));
    (input, output, usage["cost"].clone())
}

#[tokio::test]
async fn an_answer_that_does_not_say_what_it_used_is_told_what_it_is_charged_by() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICED).run().await;
    let tale = tale("One two three.");
    let silent = tale[0].replace(r#"{"input_tokens":14,"output_tokens":1}"#, "{}");
    let end = |usage: &str| tale[4].replace(r#"{"output_tokens":9}"#, usage);
    let streams = |first: &str, end: Option<String>| {
        let end = end.into_iter().chain([tale[5].clone()]);
        let frames = [first.to_owned()].into_iter().chain(tale[1..4].iter().cloned()).chain(end);
        Behaviour::RawStream { chunks: frames.map(Bytes::from).collect(), end: End::Close }
    };
    let whole = |usage: &str| {
        let body = format!(
            r#"{{"id":"m","type":"message","role":"assistant","model":"m","content":[{{"type":"text","text":"One two three."}}],"stop_reason":"end_turn","usage":{usage}}}"#
        );
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Behaviour::Raw { status: 200, headers, body: Bytes::from(body) }
    };
    // What it said, and whether that is all of the prompt that is known.
    for (case, (behaviour, is_streamed, prompt)) in [
        (streams(&silent, Some(end("{}"))), true, None),
        (streams(&silent, Some(end(r#"{"input_tokens":null,"output_tokens":null}"#))), true, None),
        (streams(&tale[0], Some(end(r#"{"output_tokens":null}"#))), true, Some(14)),
        (streams(&tale[0], Some(end("null"))), true, Some(14)),
        (streams(&tale[0], None), true, Some(14)),
        (streams(&silent, None), true, None),
        (whole(r#"{"input_tokens":null,"output_tokens":null}"#), false, None),
        (whole("null"), false, None),
    ]
    .into_iter()
    .enumerate()
    {
        sim.set(behaviour);
        let messages = ("messages", json!({"model": MODEL, "max_tokens": 64, "messages": [user("x")]}));
        for (path, mut body) in asking("x").into_iter().chain([messages]) {
            body["stream"] = json!(is_streamed);
            let reply = ask(&gate, path, &body).await;
            let case = format!("{case} {path}: {}", reply.body_text());
            assert_eq!(reply.status, 200, "{case}");
            let (input, output, cost) = told(&reply);
            let id = reply.header("x-generation-id").expect("an id");
            let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
            let record = &record["data"];
            assert_eq!((&input, &output), (&record["tokens_prompt"], &record["tokens_completion"]), "{case}");
            assert_eq!(cost, record["total_cost"], "{case}");
            // Fourteen bytes are four tokens.
            assert_eq!(output, json!(4), "{case}");
            assert!(input.as_u64().is_some_and(|input| prompt.map_or(input > 0, |prompt| input == prompt)), "{case}");
        }
    }
}
