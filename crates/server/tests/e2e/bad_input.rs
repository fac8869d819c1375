//! What clients should not send: refused with the documented words, and the server goes on.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, hello, soon};

const MODEL: &str = "vendor/m";

async fn start(config: &str) -> (Sim, Tidegate) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    (sim, gate)
}

async fn assert_fine(gate: &Tidegate, after: &str) {
    let reply = gate.messages(hello(MODEL)).await;
    assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "after {after}");
}

fn check(reply: &Reply, status: u16, error_type: &str, message: &str, case: &str) {
    let kind = match status {
        404 => "not_found_error",
        408 => "timeout_error",
        _ => "invalid_request_error",
    };
    let got = reply.error();
    let expected = (status, kind.to_owned(), error_type.to_owned(), message.to_owned());
    assert_eq!(got, expected, "{case}");
}

/// The smallest request with members set or, where null, taken away.
fn with(members: Value) -> String {
    let mut request = hello(MODEL);
    let object = request.as_object_mut().expect("an object");
    for (name, value) in members.as_object().expect("an object") {
        if value.is_null() {
            object.remove(name);
        } else {
            object.insert(name.clone(), value.clone());
        }
    }
    request.to_string()
}

fn content(blocks: Value) -> String {
    with(json!({"messages": [{"role": "user", "content": blocks}]}))
}

#[tokio::test]
async fn invalid_bodies_are_refused_with_their_exact_words() {
    let (sim, gate) = start("").await;
    let long = "x".repeat(257);
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let other = json!({"model": "vendor/m"});
    let cases: Vec<(String, &str)> = vec![
        (String::new(), "body is not valid JSON"),
        ("{".into(), "body is not valid JSON"),
        ("nope".into(), "body is not valid JSON"),
        (format!("{} x", hello(MODEL)), "body is not valid JSON"),
        ("[]".into(), "body must be an object"),
        ("\"text\"".into(), "body must be an object"),
        (with(json!({"model": null})), "model is required"),
        (with(json!({"messages": null})), "messages is required"),
        (with(json!({"messages": []})), "messages is required"),
        ("{}".into(), "model is required"),
        (with(json!({"model": 5})), "model must be a string"),
        (with(json!({"model": long})), "model must be at most 256 characters"),
        (with(json!({"messages": "hi"})), "messages must be an array"),
        (with(json!({"messages": ["hi"]})), "messages[0] must be an object"),
        (with(json!({"max_tokens": -1})), "max_tokens must be at least 1"),
        (with(json!({"max_tokens": "10"})), "max_tokens must be an integer"),
        (with(json!({"max_tokens": 1.5})), "max_tokens must be an integer"),
        (with(json!({"temperature": 2.5})), "temperature must be at most 2"),
        (with(json!({"temperature": -0.1})), "temperature must be at least 0"),
        (with(json!({"temperature": "hot"})), "temperature must be a number"),
        (
            with(json!({"temperature": 0})).replace("\"temperature\":0", "\"temperature\":1e999"),
            "temperature must be at most 2",
        ),
        (with(json!({"top_p": 1.1})), "top_p must be at most 1"),
        (with(json!({"top_k": -1})), "top_k must be at least 0"),
        (with(json!({"stream": "yes"})), "stream must be a boolean"),
        (with(json!({"system": 5})), ""),
        (with(json!({"metadata": "x"})), "metadata must be an object"),
        (with(json!({"metadata": {"user_id": long}})), "metadata.user_id must be at most 256 characters"),
        (with(json!({"session_id": long})), "session_id must be at most 256 characters"),
        (with(json!({"user": long})), "user must be at most 256 characters"),
        (with(json!({"user": "a\0b"})), "user has an invalid format"),
        (with(json!({"fallbacks": [other], "models": [MODEL]})), "fallbacks cannot be combined with models"),
        (with(json!({"fallbacks": [other, other, other, other]})), "fallbacks must have at most 3 entries"),
        (with(json!({"fallbacks": [{"model": MODEL, "max_tokens": 5}]})), "fallbacks[0].max_tokens is not allowed"),
        (with(json!({"fallbacks": "default"})), "fallbacks must be an array"),
        (with(json!({"fallbacks": [{}]})), "fallbacks[0].model is required"),
        (with(json!({"models": vec![MODEL; 17]})), "models must have at most 16 entries"),
        (with(json!({"provider": {"bogus": true}})), "provider.bogus is not allowed"),
        (with(json!({"route": "fastest"})), "route must be one of fallback, sort"),
        (with(json!({"trace": {"a": "x".repeat(40_000)}})), "trace must be at most 32768 bytes"),
        (with(json!({"stop_server_tools_when": []})), "stop_server_tools_when must have at least 1 entries"),
        (with(json!({"max_tool_calls": 0})), "max_tool_calls must be at least 1"),
        (with(json!({"tools": [tool("f"), tool("f")]})), "tools[1].name 'f' is used more than once"),
        (with(json!({"tool_choice": {"type": "any"}})), "tool_choice requires tools"),
        (
            with(json!({"tools": [tool("f")], "tool_choice": {"type": "tool", "name": "g"}})),
            "tool_choice.name 'g' is not among the tools",
        ),
        (with(json!({"stop_sequences": [""]})), "stop_sequences[0] must be at least 1 characters"),
        (
            with(json!({"thinking": {"type": "enabled", "budget_tokens": 100}})),
            "thinking.budget_tokens must be at least 1024",
        ),
        (
            with(json!({"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 2000}})),
            "max_tokens must be greater than thinking.budget_tokens",
        ),
        (
            r#"{"model":"vendor/m","model":"vendor/m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]}"#
                .into(),
            "model appears more than once",
        ),
        (
            r#"{"model":"vendor/m","max_tokens":8,"messages":[{"role":"user","role":"user","content":"hi"}]}"#.into(),
            "messages[0].role appears more than once",
        ),
        (
            r#"{"model":"vendor/m","max_tokens":8,"mess\u0061ges":[],"messages":[{"role":"user","content":"hi"}]}"#
                .into(),
            "messages appears more than once",
        ),
    ];
    for (body, message) in cases {
        let reply = gate.post(body.clone()).await;
        let shown: String = body.chars().take(200).collect();
        if message.is_empty() {
            assert_eq!((reply.status, reply.error().2.as_str()), (400, "invalid_request"), "{shown}");
        } else {
            check(&reply, 400, "invalid_request", &format!("Invalid request: {message}"), &shown);
        }
        assert_eq!(reply.json()["request_id"], Value::Null, "{shown}");
    }
    assert_eq!(sim.calls(), 0);
    assert_fine(&gate, "invalid bodies").await;
}

#[tokio::test]
async fn what_a_model_of_another_protocol_cannot_take_is_refused_with_the_documented_words() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let address = format!("{}/v1", sim.base_url());
    let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, "").run().await;
    let computer = json!([{"type": "computer_20250124", "name": "computer"}]);
    let cases = [
        (with(json!({"max_tokens": 0})), "max_tokens must be at least 1"),
        (
            with(json!({"tools": computer})),
            "tools[0].type 'computer_20250124' is not supported by any endpoint of vendor/m",
        ),
        (
            with(json!({"tools": [{"name": "a", "input_schema": {}, "description": 5}]})),
            "tools[0].description must be a string",
        ),
        (
            with(json!({"tools": [{"name": "a", "input_schema": {}, "defer_loading": "yes"}]})),
            "tools[0].defer_loading must be a boolean",
        ),
    ];
    for (body, message) in cases {
        let reply = gate.post(body.clone()).await;
        check(&reply, 400, "invalid_request", &format!("Invalid request: {message}"), &body);
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn messages_that_are_no_prompt_are_told_apart() {
    let (sim, gate) = start("").await;
    let cases = [
        (
            with(json!({"messages": [{"role": "robot", "content": "hi"}]})),
            "messages[0].role must be one of user, assistant, system",
        ),
        (content(json!([{"text": "hi"}])), "messages[0].content[0].type is required"),
        (content(json!([{"type": 7}])), "messages[0].content[0].type is required"),
        (content(json!([])), "messages must not be empty"),
        (content(json!("")), "messages must not be empty"),
        (content(json!([{"type": "text", "text": ""}, {"type": "text", "text": " "}])), "messages must not be empty"),
        (
            with(json!({"messages": [{"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""}]}]})),
            "messages must not be empty",
        ),
        // Signed here, for somebody else.
        (
            with(json!({"messages": [{"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "tgs1.abc"}]}]})),
            "messages must not be empty",
        ),
    ];
    for (body, message) in cases {
        let reply = gate.post(body.clone()).await;
        check(&reply, 400, "invalid_prompt", &format!("Invalid request: {message}"), &body);
    }
    for (body, message) in [
        (json!({"content": "hi"}), "messages[0].role is required"),
        (json!({"role": "user"}), "messages[0].content is required"),
    ] {
        let (status, _, _, text) = gate.post(with(json!({"messages": [body]}))).await.error();
        assert_eq!((status, text), (400, format!("Invalid request: {message}")));
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn what_needs_the_model_or_the_deployment_carries_the_generation() {
    let (sim, gate) = start("").await;
    let unknown = gate.messages(hello("no/such")).await;
    check(&unknown, 400, "invalid_request", "no/such is not a valid model ID", "model");
    let availability = unknown.json()["error"]["availability"].clone();
    assert_eq!((&availability["code"], &availability["retryable"]), (&json!("model_not_found"), &json!(false)));
    assert_eq!(availability["requested_models"], json!(["no/such"]));
    assert_eq!(unknown.json()["request_id"].as_str(), unknown.header("x-generation-id"));

    let tool = |kind: &str| with(json!({"tools": [{"type": kind}]}));
    let reply = gate.post(tool("tidegate:nope")).await;
    check(&reply, 400, "invalid_request", "Unknown server tool: tidegate:nope", "unknown tool");
    let reply = gate.post(tool("tidegate:web_search")).await;
    let message = "tidegate:web_search is not configured on this deployment";
    check(&reply, 400, "invalid_request", message, "tool that cannot run");
    let reply = gate.post(with(json!({"plugins": [{"id": "nope"}]}))).await;
    check(&reply, 400, "invalid_request", "Unknown plugin: nope", "plugin");
    // A model of the built-in catalogue whose provider is not configured.
    let known = gate.messages(hello("anthropic/claude-sonnet-4.5")).await;
    check(&known, 404, "not_found", "No endpoints found for anthropic/claude-sonnet-4.5", "no endpoint");
    assert_eq!(known.json()["error"]["availability"]["code"], "no_endpoints");
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn inp_2_shapes_that_cost_more_than_they_say_are_refused() {
    let (sim, gate) = start("").await;
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let body = |value: &str| with(json!({"x": 1})).replace("\"x\":1", &format!("\"x\":{value}"));
    // The object itself is one level.
    assert_eq!(gate.post(body(&nested(63))).await.status, 200);
    for body in [
        body(&nested(64)),
        body(&nested(100_000)),
        body(&format!("[{}1]", "1,".repeat(200_000))),
        with(json!({"messages": vec![json!({"role": "user", "content": "x"}); 10_001]})),
        with(
            json!({"tools": (0..1_025).map(|n| json!({"name": format!("t{n}"), "input_schema": {}})).collect::<Vec<_>>()}),
        ),
    ] {
        let reply = gate.post(body).await;
        let (status, kind, error_type, message) = reply.error();
        assert_eq!((status, &*kind, &*error_type), (400, "invalid_request_error", "invalid_request"), "{message}");
    }
    assert_eq!(sim.calls(), 1);
    assert_fine(&gate, "heavy shapes").await;
}

#[tokio::test]
async fn inp_2_text_must_be_utf_8_without_a_mark() {
    let (sim, gate) = start("").await;
    let valid = hello(MODEL).to_string();
    let mut broken = valid.clone().into_bytes();
    let place = valid.find("hi").unwrap();
    broken[place] = 0xff;
    let marked = [b"\xEF\xBB\xBF", valid.as_bytes()].concat();
    let utf_16: Vec<u8> = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for body in [broken, marked, utf_16] {
        check(&gate.post(body).await, 400, "invalid_request", "Invalid request: body is not valid JSON", "encoding");
    }
    let surrogate = valid.replace("\"vendor/m\"", "\"\\ud800\"");
    assert_eq!(gate.post(surrogate).await.status, 400);
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn inp_2_half_a_character_is_refused_by_its_place_where_it_would_be_read() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let address = format!("{}/v1", sim.base_url());
    let gate =
        Tidegate::start().protocol_at("vendor/chat", "openai-chat", &address, "").endpoint(MODEL, &sim).run().await;
    let said = |model: &str, content: &str| {
        format!(r#"{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":{content}}}]}}"#)
    };
    let (text, block) = (r#""cut \ud83d""#, r#"[{"type":"text","text":"cut \ud83d"}]"#);
    for (model, content, place) in [
        ("vendor/chat", text, "messages[0].content"),
        (MODEL, text, "messages[0].content"),
        ("vendor/chat", block, "messages[0].content[0].text"),
    ] {
        let message = format!("Invalid request: {place} has an invalid format");
        check(&gate.post(said(model, content)).await, 400, "invalid_request", &message, model);
    }
    assert_eq!(sim.calls(), 0);
    // What is not read goes as it came: the provider judges.
    gate.post(said(MODEL, block)).await;
    assert_eq!(sim.calls(), 1);
}

#[tokio::test]
async fn only_json_is_taken_however_it_is_labelled() {
    let (_sim, gate) = start("").await;
    let ask = |kind: Option<&str>| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).body(hello(MODEL).to_string());
        kind.into_iter().fold(ask, |ask, kind| ask.header("content-type", kind)).send()
    };
    for kind in [None, Some("application/json"), Some("application/json; charset=utf-8"), Some("Application/JSON;x=1")]
    {
        assert_eq!(ask(kind).await.status, 200, "{kind:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data", ""] {
        let message = "Invalid request: Content-Type must be application/json";
        check(&ask(Some(kind)).await, 400, "invalid_request", message, kind);
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

#[tokio::test]
async fn packed_bodies_are_unpacked_within_their_limits() {
    let (sim, gate) = start("").await;
    let ask = |encoding: &str, body: Vec<u8>| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("content-encoding", encoding);
        ask.json(body).send()
    };
    let plain = hello(MODEL).to_string();
    assert_eq!(ask("gzip", packed(plain.as_bytes())).await.text(), "hello");
    assert_eq!(sim.requests().pop().unwrap().body, plain.replace("vendor/m", "m"));
    assert_eq!(ask("GZIP", packed(plain.as_bytes())).await.status, 200);
    assert_eq!(ask("identity", plain.clone().into_bytes()).await.status, 200);

    assert_eq!(ask("gzip", plain.clone().into_bytes()).await.status, 400);
    let mut cut = packed(plain.as_bytes());
    cut.truncate(cut.len() / 2);
    assert_eq!(ask("gzip", cut).await.status, 400);
    for encoding in ["br", "deflate", "zstd", "gzip, gzip"] {
        let message = format!("Invalid request: Content-Encoding {encoding} is not supported");
        let reply = ask(encoding, packed(plain.as_bytes())).await;
        // Only what can be shown in one word is shown.
        if encoding.contains(' ') {
            assert_eq!(reply.status, 415);
        } else {
            check(&reply, 415, "invalid_request", &message, encoding);
        }
    }
    // A thousand times its size, and more than the limit altogether.
    let before = gate.memory();
    let bomb = packed(&vec![b' '; 64 << 20]);
    check(&ask("gzip", bomb).await, 413, "payload_too_large", "Request payload too large", "bomb");
    assert!(gate.memory() < before + (48 << 20), "a bomb is not unpacked first");
    assert_fine(&gate, "a bomb").await;
}

fn head(extra: &str) -> String {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {INFERENCE_KEY}\r\ncontent-type: application/json\r\n{extra}\r\n"
    )
}

const TOO_LARGE: &str = r#"{"type":"error","error":{"type":"invalid_request_error","message":"Request payload too large","error_type":"payload_too_large"},"request_id":null}"#;

#[tokio::test]
async fn a_body_over_its_limit_is_refused_and_the_client_can_read_why() {
    let (sim, gate) = start("[limits]\nmax_body_bytes = 10000\n").await;
    let fits = with(json!({"pad": "x".repeat(9_800)}));
    assert_eq!(gate.post(fits[..fits.len()].to_owned()).await.status, 200);
    // Far more than the sockets hold: the client must be able to finish its writing.
    let reply = gate.post(vec![b'x'; 8 << 20]).await;
    assert_eq!((reply.status, reply.body_text()), (413, TOO_LARGE));
    let piece = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let chunked =
        format!("{}{}0\r\n\r\n", head("transfer-encoding: chunked\r\nconnection: close\r\n"), piece.repeat(128));
    let answer = gate.raw(chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with(TOO_LARGE), "{answer}");
    // One that asks first is told at once and sends nothing.
    let asking = head("content-length: 9000000\r\nexpect: 100-continue\r\nconnection: close\r\n");
    let answer = gate.raw(asking).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.ends_with(TOO_LARGE), "{answer}");
    // One that says how much will come, and sends nothing of it, is told at once, too: sooner than anybody is heard out.
    let mut silent = gate.connect().await;
    silent.write_all(head("content-length: 9000000\r\n").as_bytes()).await.expect("the head is read");
    let mut answer = [0; 12];
    let told = tokio::time::timeout(Duration::from_secs(4), silent.read_exact(&mut answer)).await;
    assert!(told.is_ok() && answer == *b"HTTP/1.1 413", "{told:?}");
    // Unpacked it is too large, packed it is not.
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("content-encoding", "gzip");
    assert_eq!(ask.json(packed(&[b' '; 20_000])).send().await.status, 413);
    assert_eq!(sim.calls(), 1);
    assert_fine(&gate, "large bodies").await;
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_a_408() {
    let (sim, gate) = start("[limits]\nbody_idle_ms = 150\nbody_total_ms = 600\n").await;
    let slow = head("content-length: 100\r\n");
    let expected = r#"{"type":"error","error":{"type":"timeout_error","message":"Operation timed out. Please try again later.","error_type":"timeout"},"request_id":null}"#;
    let answer = gate.raw(format!("{slow}{{")).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains(expected), "{answer}");

    // Never silent for long, and yet never done.
    let mut stream = gate.connect().await;
    let (mut reading, mut writing) = stream.split();
    writing.write_all(slow.as_bytes()).await.unwrap();
    let dripping = async {
        while writing.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        () = dripping => {}
        _ = soon("the answer", reading.read_to_end(&mut answer)) => {}
    }
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(sim.calls(), 0);
    assert_fine(&gate, "slow bodies").await;
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_is_closed() {
    let (_sim, gate) = start("[limits]\nheader_read_ms = 200\n").await;
    for begun in ["", "P", "PRI * HT", "POST /v1/mess", "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthoriz"] {
        let answer = gate.raw(begun).await;
        assert!(!answer.contains("200 OK"), "{begun:?}: {answer}");
    }
    assert_fine(&gate, "slow heads").await;
}

#[tokio::test]
async fn inp_1_heads_that_break_the_rules_are_refused_and_closed() {
    let (sim, gate) = start("").await;
    let get = |line: &str| format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{line}\r\n\r\n");
    let cases = [
        get("x-a: a\0b"),
        get("x-a: a\rb"),
        get("x-a: \x01"),
        get("x-a: \x7f"),
        get("x a: b"),
        get("x-a : b"),
        get("x-\u{e9}: b"),
        get(": b"),
        get("x-a: b\r\n folded: c"),
        get("content-length: 5x"),
        get("content-length: +5"),
        get("content-length: -1"),
        get("content-length: 5\r\ncontent-length: 6"),
        get("content-length: 18446744073709551616"),
        get("transfer-encoding: gzip"),
        get("transfer-encoding: chunked, gzip"),
        "GET /healthz HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "GET /healthz\r\n\r\n".to_owned(),
        "GET  /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "GET /health\0z HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        "GET /healthz HTTP/9.9\r\nhost: x\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01\x00\x01".to_owned(),
    ];
    for case in cases {
        // A second request on the same connection must never be heard.
        let answer = gate.raw(format!("{case}GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{case:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{case:?}: {answer}");
    }
    assert_eq!(sim.calls(), 0);
    assert_fine(&gate, "broken heads").await;
}

#[tokio::test]
async fn inp_1_heads_that_a_proxy_could_read_otherwise_are_refused_and_closed() {
    let (sim, gate) = start("").await;
    let second = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let body = hello(MODEL).to_string();
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let key = format!("authorization: Bearer {INFERENCE_KEY}\r\n");
    let chunked = "transfer-encoding: chunked\r\n";
    let cases = [
        head("transfer-encoding: gzip, chunked\r\n"),
        head("transfer-encoding: chunked, chunked\r\n"),
        head("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n"),
        head(&format!("host: y\r\n{chunked}")),
        head(chunked).replace("host: x\r\n", ""),
        head(&format!("{key}{chunked}")),
        head(&format!("x-api-key: {INFERENCE_KEY}\r\nx-api-key: {INFERENCE_KEY}\r\n{chunked}")),
    ];
    for case in cases {
        let answer = gate.raw(format!("{case}{chunks}{second}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{case:?}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{case:?}: {answer}");
        assert!(answer.contains("\r\nx-request-id: req_"), "{case:?}: {answer}");
        assert!(answer.contains(r#""error_type":"invalid_request""#), "{case:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{case:?}: {answer}");
    }
    assert_eq!(sim.calls(), 0);
    assert_fine(&gate, "heads with two meanings").await;
}

#[tokio::test]
async fn inp_1_a_length_beside_chunks_is_never_two_requests() {
    let (sim, gate) = start("").await;
    let second = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let body = hello(MODEL).to_string();
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for lines in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 4\r\nTransfer-Encoding: Chunked\r\ncontent-length: 4\r\n",
    ] {
        let answer = gate.raw(format!("{}{chunks}{second}", head(lines))).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lines:?}: {answer}");
        assert!(!answer.contains(r#"{"status":"ok"}"#), "{lines:?}: {answer}");
        // The HTTP library takes the chunks, drops the length and closes behind the answer (RFC 9112, section 6.3), so
        // we cannot see that there were two; refusing outright would be stricter, not safer.
        assert!(answer.contains("\r\nconnection: close\r\n"), "{lines:?}: {answer}");
    }
    assert_eq!(sim.calls(), 3);
    assert_fine(&gate, "ambiguous lengths").await;
}

#[tokio::test]
async fn inp_1_broken_chunks_are_refused() {
    let (sim, gate) = start("").await;
    for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "5\r\n{}", "ffffffffffffffffff\r\n", "-1\r\n\r\n", "2\r\n{}XX0\r\n\r\n"] {
        let mut stream = gate.connect().await;
        stream.write_all(format!("{}{chunks}", head("transfer-encoding: chunked\r\n")).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        let _ = soon("the end", stream.read_to_string(&mut answer)).await;
        assert!(!answer.contains("200 OK"), "{chunks:?}: {answer}");
    }
    assert_eq!(sim.calls(), 0);
    assert_fine(&gate, "broken chunks").await;
}

#[tokio::test]
async fn ten_2_paths_that_can_be_read_in_two_ways_are_refused() {
    let (sim, gate) = start("").await;
    for path in [
        "/v1%2fmessages",
        "/v1%2Fmessages",
        "//v1/messages",
        "/v1//messages",
        "/v1/./messages",
        "/v1/x/../messages",
        "/../v1/messages",
        "/v1/messages/..",
        "/v1/%2e%2e/v1/messages",
        "/v1/%2E/messages",
        "/v1%5cmessages",
        "/v1/messages%00",
        "/metrics/..%2f",
    ] {
        let reply = gate.ask("POST", path).key(INFERENCE_KEY).json(hello(MODEL).to_string()).send().await;
        assert_eq!(reply.status, 400, "{path}");
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_apart_and_say_what_is_allowed() {
    let (_sim, gate) = start("").await;
    for path in
        ["/v2/messages", "/messages", "/v1/messages/", "/v1/Messages", "/v1", "/api/v1/messages/x", "/favicon.ico"]
    {
        let reply = gate.ask("POST", path).key(INFERENCE_KEY).send().await;
        let expected = json!({"error": {"code": 404, "message": "Not found"}});
        assert_eq!((reply.status, reply.json()), (404, expected), "{path}");
        assert!(reply.header("x-request-id").is_some_and(|id| id.starts_with("req_")));
    }
    // What vendors have beside it is told as what it is.
    for (path, text) in [
        ("/v1/messages/batches", "Not found: batches are not offered here; send their requests one by one"),
        ("/api/v1/batches/b1", "Not found: batches are not offered here; send their requests one by one"),
        (
            "/v1/responses/resp_1",
            "Not found: answers are not kept here; send the whole conversation with every request",
        ),
        (
            "/v1/completions",
            "Not found: bare prompts are not completed here; send them as messages to /chat/completions",
        ),
    ] {
        let reply = gate.ask("GET", path).key(INFERENCE_KEY).send().await;
        assert_eq!((reply.status, &reply.json()["error"]["message"]), (404, &json!(text)), "{path}");
    }
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for path in ["/v1/messages", "/api/v1/messages/count_tokens"] {
            let reply = gate.ask(method, path).send().await;
            let (status, _, _, message) = reply.error();
            assert_eq!((status, message.as_str()), (405, "Method Not Allowed"), "{method} {path}");
            assert_eq!(reply.header("allow"), Some("POST"), "{method} {path}");
        }
    }
    let reply = gate.ask("POST", "/healthz").send().await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(reply.json()["error"]["code"], 405);
}

#[tokio::test]
async fn what_can_be_got_can_be_asked_about_without_its_body() {
    let (_sim, gate) = start("").await;
    for path in ["/healthz", "/readyz", "/assets/page.css", "/api/v1/openapi.json", "/api/v1/key", "/nowhere"] {
        let ask = |method: &str| gate.ask(method, path).key(INFERENCE_KEY).send();
        let (got, asked) = (ask("GET").await, ask("HEAD").await);
        assert_eq!((asked.status, asked.body_text()), (got.status, ""), "{path}");
        let told = |reply: &Reply, name: &str| reply.header(name).map(ToOwned::to_owned);
        for name in ["content-type", "content-length", "cache-control"] {
            assert_eq!(told(&asked, name), told(&got, name), "{path} {name}");
        }
        assert!(told(&asked, "x-request-id").is_some(), "{path}");
    }
    assert_eq!(gate.ask("HEAD", "/api/v1/key").send().await.status, 401);
}

#[tokio::test]
async fn targets_and_heads_have_a_size() {
    let (_sim, gate) = start("").await;
    let reply = gate.ask("GET", &format!("/healthz?{}", "x".repeat(9_000))).send().await;
    assert_eq!((reply.status, reply.json()["error"]["message"].as_str()), (414, Some("Request target too long")));
    assert_eq!(gate.get(&format!("/healthz?{}", "x".repeat(8_000))).await.status, 200);
    let get = |lines: String| format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n");
    for lines in [format!("x-a: {}\r\n", "x".repeat(40_000)), (0..120).map(|n| format!("x-{n}: 1\r\n")).collect()] {
        let answer = gate.raw(get(lines)).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(answer.contains("\r\nx-request-id: req_"), "{answer}");
        assert!(answer.ends_with(r#"{"error":{"code":431,"message":"Request headers too large"}}"#), "{answer}");
    }
    assert!(gate.raw(get((0..90).map(|n| format!("x-{n}: 1\r\n")).collect())).await.starts_with("HTTP/1.1 200 "));
    assert_fine(&gate, "large heads").await;
}

#[tokio::test]
async fn a_session_in_the_header_has_the_limit_of_the_one_in_the_body() {
    let (_sim, gate) = start("").await;
    let ask = |session: String| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-session-id", session);
        ask.json(hello(MODEL).to_string()).send()
    };
    assert_eq!(ask("s".repeat(256)).await.status, 200);
    let message = "Invalid request: session_id must be at most 256 characters";
    check(&ask("s".repeat(257)).await, 400, "invalid_request", message, "header");
}

#[tokio::test]
async fn p37_an_answer_that_a_model_cannot_be_given_the_beginning_of_is_refused_in_known_words() {
    let text = "This model does not support assistant message prefill. The conversation must end with a user message.";
    for (protocol, path) in crate::agent::PROTOCOLS.into_iter().skip(1) {
        let sim = Sim::start(Behaviour::Echo).await;
        let address = format!("{}{path}", sim.base_url());
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &address, "").run().await;
        let body = json!({"model": "vendor/m", "max_tokens": 9, "messages":
            [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"}]});
        let (status, kind, error_type, message) = gate.messages(body).await.error();
        let expected = (400, "invalid_request_error", "invalid_prompt", text);
        assert_eq!((status, &*kind, &*error_type, &*message), expected, "{protocol}");
        assert_eq!(sim.calls(), 0, "{protocol}");
    }
}
