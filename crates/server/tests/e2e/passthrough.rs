//! What goes through unchanged, in both directions, and the little that does not.

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::GenerationId;
use tidegate_sim::{Behaviour, End, Script, Sim};

use crate::harness::{Event, INFERENCE_KEY, Reply, Tidegate, hello, hello_streamed, tale};

const MODEL: &str = "vendor/m";

async fn echo() -> (Sim, Tidegate) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    (sim, gate)
}

fn upstream_body(sim: &Sim) -> String {
    let request = sim.requests().pop().expect("a request arrived");
    String::from_utf8(request.body.to_vec()).expect("UTF-8 went in")
}

/// Everything a client may write that the gateway has no business to understand.
const ODD_BODY: &str = r#"{
  "zeta_future": {"b": 1.0, "a": [1e2, -0.0, 12345678901234567890, 1.10]},
  "model" : "vendor/m", "temperature":1.0,"max_tokens" :  64,
	"system": [{"type":"text","text":"\u00e9\ud83d\ude00 \/ caf\u00E9","cache_control":{"type":"ephemeral","future":true}}],
  "messages": [
    {"role":"user","content":[{"type":"future_block","payload":{"z":1,"a":2}},{"text":"hi \"there\"","type":"text"}], "extra": null},
    {"role":"assistant","content":[{"type":"thinking","thinking":"…","signature":"c2ln"}, {"type":"tool_use","id":"toolu_1","name":"f","input":{"n":1.50}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"4"}]}
  ],
  "tools":[{"name":"f","input_schema":{"type":"object","$comment":"é"}}],
  "thinking":{"type":"enabled","budget_tokens":1024,"display":"omitted"},"future_null":null, "inference_geo":"eu"
 }"#;

#[tokio::test]
async fn a_body_arrives_at_the_upstream_as_it_was_written_but_for_the_model() {
    let (sim, gate) = echo().await;
    for body in [ODD_BODY.replace("64", "4096"), ODD_BODY.replace("64", "4096, \"stream\" : true")] {
        let reply = gate.post(body.clone()).await;
        assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()));
        assert_eq!(upstream_body(&sim), body.replace("\"vendor/m\"", "\"m\""));
    }
}

#[tokio::test]
async fn images_and_documents_arrive_byte_for_byte() {
    let (sim, gate) = echo().await;
    // A megabyte that no text compression or re-encoding would leave alone.
    let mut state = 7_u32;
    let bytes: Vec<u8> = (0..1 << 20)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    let png = base64::engine::general_purpose::STANDARD.encode([&b"\x89PNG\r\n\x1a\n"[..], &bytes].concat());
    let pdf = base64::engine::general_purpose::STANDARD.encode([&b"%PDF-1.7\n"[..], &bytes].concat());
    let body = format!(
        r#"{{"model":"vendor/m","max_tokens":8,"messages":[{{"role":"user","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{png}"}}}},{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{pdf}"}},"title":"t","citations":{{"enabled":true}}}},{{"type":"image","source":{{"type":"url","url":"https://example.com/a.png"}}}},{{"type":"text","text":"?"}}]}}]}}"#
    );
    let reply = gate.post(body.clone()).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert!(upstream_body(&sim) == body.replace("\"vendor/m\"", "\"m\""), "the body was changed on its way");
}

#[tokio::test]
async fn own_fields_never_reach_the_upstream() {
    let (sim, gate) = echo().await;
    let request = json!({
        "session_id": "s", "model": MODEL, "max_tokens": 8, "user": "u", "trace": {"a": "b"},
        "provider": {"sort": "price"}, "plugins": [], "models": [MODEL], "route": "fallback",
        "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "kept"},
        "stop_server_tools_when": [{"type": "step_count_is", "step_count": 3}], "max_tool_calls": 5,
    });
    let reply = gate.messages(request).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let arrived: Value = serde_json::from_str(&upstream_body(&sim)).unwrap();
    let expected = json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "kept"}});
    assert_eq!(arrived, expected);

    // First, last and alone between others: the commas still fit.
    let fallbacks = r#"{"fallbacks":[{"model":"vendor/m"}],"model":"vendor/m","max_tokens":8,"messages":[{"role":"user","content":"hi"}],"user":"u"}"#;
    assert_eq!(gate.post(fallbacks).await.status, 200);
    assert_eq!(upstream_body(&sim), r#"{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}]}"#);
}

#[tokio::test]
async fn max_tokens_is_the_endpoints_limit_when_the_client_gives_none() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, "max_output_tokens = 777").run().await;
    let reply = gate.messages(json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]})).await;
    assert_eq!(reply.status, 200);
    let arrived: Value = serde_json::from_str(&upstream_body(&sim)).unwrap();
    assert_eq!(arrived["max_tokens"], 777);
}

#[tokio::test]
async fn a_model_can_be_named_by_models_alone_and_by_an_alias() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[aliases]\nhouse = \"vendor/m\"\n").run().await;
    for request in [
        json!({"models": [MODEL], "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}),
        hello("house"),
        hello(MODEL),
    ] {
        let reply = gate.messages(request).await;
        assert_eq!((reply.status, &reply.json()["model"]), (200, &json!(MODEL)), "{}", reply.body_text());
        let arrived: Value = serde_json::from_str(&upstream_body(&sim)).unwrap();
        assert_eq!((&arrived["model"], arrived.get("models")), (&json!("m"), None));
    }
}

#[tokio::test]
async fn the_headers_of_the_vendor_are_forwarded_and_no_others() {
    let (sim, gate) = echo().await;
    let sent = [
        ("anthropic-version", "2026-10-21"),
        ("anthropic-beta", "a-1, b-2"),
        ("anthropic-beta", "b-2,c-3"),
        ("x-anthropic-beta", "d-4,a-1"),
        ("idempotency-key", "once"),
        ("x-api-key", "another-client-key"),
        ("cookie", "session=1"),
        ("x-stainless-lang", "js"),
        ("x-stainless-retry-count", "1"),
        ("x-app", "cli"),
        ("user-agent", "client/1"),
        ("referer", "https://app.example"),
        ("x-title", "App"),
        ("x-forwarded-for", "203.0.113.7"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
        ("x-session-id", "s-1"),
        ("x-tidegate-metadata", "disabled"),
        ("proxy-authorization", "Basic abc"),
        ("te", "trailers"),
        ("accept-language", "fi"),
        ("anthropic-dangerous-direct-browser-access", "true"),
        ("x_custom", "1"),
    ];
    let mut ask = gate.ask("POST", "/v1/messages?beta=true&other=1").key(INFERENCE_KEY);
    for (name, value) in sent {
        ask = ask.header(name, value);
    }
    assert_eq!(ask.json(hello(MODEL).to_string()).send().await.status, 200);

    let seen = sim.requests().pop().unwrap();
    assert_eq!(seen.path, "/v1/messages?beta=true");
    assert_eq!(seen.header("anthropic-version"), Some("2026-10-21"));
    assert_eq!(seen.header("anthropic-beta"), Some("a-1,b-2,c-3,d-4"));
    assert_eq!(seen.headers.get_all("anthropic-beta").iter().count(), 1);
    assert_eq!(seen.header("idempotency-key"), Some("once"));
    assert_eq!(seen.header("x-api-key"), Some("provider-secret-0"));
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert!(seen.header("user-agent").is_some_and(|agent| agent.starts_with("tidegate/")));
    assert_eq!(seen.header("accept-encoding"), Some("identity"), "no coding is undone here");
    let mut names: Vec<&str> = seen.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "accept-encoding",
        "anthropic-beta",
        "anthropic-version",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "user-agent",
        "x-api-key",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn without_headers_of_the_vendor_the_oldest_version_is_asked_for() {
    let (sim, gate) = echo().await;
    gate.messages(hello(MODEL)).await;
    let seen = sim.requests().pop().unwrap();
    assert_eq!((seen.path.as_str(), seen.header("anthropic-version")), ("/v1/messages", Some("2023-06-01")));
    assert_eq!((seen.header("anthropic-beta"), seen.header("authorization")), (None, None));
}

#[tokio::test]
async fn a_provider_can_take_its_key_as_a_bearer_and_be_spared_betas() {
    let sim = Sim::start(Script::says("hello").require_key("other-secret")).await;
    let provider = format!(
        "[[providers]]\nslug = \"own\"\nprotocol = \"anthropic\"\nbase_url = \"{}/\"\napi_key = \"env:E2E_OTHER\"\nauth = \"bearer\"\nbetas = false\n\
         [[models]]\nid = \"own/m\"\ncontext_length = 1000\nmax_output_tokens = 100\n[[models.endpoints]]\nprovider = \"own\"\nmodel = \"m\"\n",
        sim.base_url()
    );
    let place = Tidegate::start().config(&provider).place();
    // The secret comes from a file here: the environment of the process holds only what every test has.
    std::fs::create_dir_all(place.data_dir()).unwrap();
    std::fs::write(place.data_dir().join("secret"), "other-secret\n").unwrap();
    let text = std::fs::read_to_string(place.config()).unwrap().replace("env:E2E_OTHER", "file:secret");
    place.write_config(&text);
    let gate = place.serve().await;
    let ask = gate.ask("POST", "/api/v1/messages").key(INFERENCE_KEY).header("anthropic-beta", "a-1");
    let reply = ask.json(hello("own/m").to_string()).send().await;
    assert_eq!((reply.status, &reply.json()["provider"]), (200, &json!("own")));
    let seen = sim.requests().pop().unwrap();
    assert_eq!(seen.header("authorization"), Some("Bearer other-secret"));
    assert_eq!((seen.header("x-api-key"), seen.header("anthropic-beta")), (None, None));
}

/// The numbers of the example answer in the interface's description: 14 tokens in, 9 out, at $3 and $15 a million.
const PRICED: &str = "pricing = { input = 3, output = 15 }";

#[tokio::test]
async fn an_answer_keeps_every_member_and_gets_ours() {
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","future_top":{"n":1.0,"m":1e2},"model":"m-20990101","content":[{"type":"future_block","x":[1.50,{}]},{"type":"text","text":"caf\u00e9 \/","citations":null}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9,"future_count":3}}"#;
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("anthropic-ratelimit-requests-remaining".to_owned(), "7".to_owned()),
        ("set-cookie".to_owned(), "a=b".to_owned()),
    ];
    let sim = Sim::start(Behaviour::Raw { status: 200, headers, body: Bytes::from(body) }).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICED).run().await;
    let reply = gate.messages(hello(MODEL)).await;

    assert_eq!(reply.status, 200);
    // To the byte, up to the first place where something of ours is added.
    let untouched = r#"{"id":"msg_up","type":"message","role":"assistant","future_top":{"n":1.0,"m":1e2},"model":"vendor/m","content":[{"type":"future_block","x":[1.50,{}]},{"type":"text","text":"caf\u00e9 \/","citations":null}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9,"future_count":3"#;
    assert!(reply.body_text().starts_with(untouched), "{}", reply.body_text());
    let expected = json!({
        "id": "msg_up", "type": "message", "role": "assistant", "future_top": {"n": 1.0, "m": 100.0},
        "model": MODEL, "provider": "P0",
        "content": [{"type": "future_block", "x": [1.5, {}]}, {"type": "text", "text": "café /", "citations": null}],
        "stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null,
        "usage": {
            "input_tokens": 14, "output_tokens": 9, "future_count": 3,
            "cache_creation_input_tokens": null, "cache_read_input_tokens": null, "cache_creation": null,
            "output_tokens_details": null, "server_tool_use": null, "inference_geo": null, "service_tier": "standard",
            "cost": 0.000177,
            "cost_details": {
                "upstream_inference_cost": null,
                "upstream_inference_prompt_cost": 0.000042,
                "upstream_inference_completions_cost": 0.000135,
            },
            "is_byok": false,
        },
    });
    assert_eq!(reply.json(), expected);
    let names: Vec<&str> = reply.headers.keys().map(|name| name.as_str()).collect();
    assert!(!names.iter().any(|name| name.starts_with("anthropic-ratelimit") || *name == "set-cookie"), "{names:?}");
}

fn check_ids(headers: &http::HeaderMap) {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = value("x-generation-id");
    assert!(GenerationId::parse(id).is_some(), "{id:?} has not the form of a generation id");
    assert_eq!((value("request-id"), value("x-request-id")), (id, id));
}

#[tokio::test]
async fn answers_name_their_generation_and_their_kind() {
    let (_sim, gate) = echo().await;
    let whole = gate.messages(hello(MODEL)).await;
    check_ids(&whole.headers);
    assert_eq!(whole.header("content-type"), Some("application/json"));
    let streamed = gate.messages(hello_streamed(MODEL)).await;
    check_ids(&streamed.headers);
    assert_ne!(whole.header("x-generation-id"), streamed.header("x-generation-id"));
    assert_eq!(streamed.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(streamed.header("cache-control"), Some("no-cache, no-transform"));
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
}

#[tokio::test]
async fn costs_are_the_sum_of_what_was_counted_at_the_configured_prices() {
    let sim = Sim::start(Behaviour::Cached { read: 1000, write_5m: 200, write_1h: 40 }).await;
    let prices = "pricing = { input = \"3\", output = 15, cache_read = 0.30, cache_write = 3.75, cache_write_1h = 6 }";
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, prices).run().await;
    for request in [hello(MODEL), hello_streamed(MODEL)] {
        let reply = gate.messages(request).await;
        let usage = match reply.header("content-type") {
            Some("application/json") => reply.json()["usage"].clone(),
            _ => reply.events().iter().find(|event| event.name == "message_delta").unwrap().json()["usage"].clone(),
        };
        // Nano-dollars are whole here: prices in dollars per million are micro-dollars, thousandths of them, a token.
        let count = |name: &str| usage[name].as_u64().unwrap();
        let prompt = count("input_tokens") * 3_000 + 1000 * 300 + 200 * 3_750 + 40 * 6_000;
        let completion = count("output_tokens") * 15_000;
        let dollars = |nanos: u64| json!(nanos as f64 / 1e9);
        assert_eq!(usage["cost"], dollars(prompt + completion), "{usage}");
        assert_eq!(usage["cost_details"]["upstream_inference_prompt_cost"], dollars(prompt));
        assert_eq!(usage["cost_details"]["upstream_inference_completions_cost"], dollars(completion));
        assert_eq!((count("cache_read_input_tokens"), count("cache_creation_input_tokens")), (1000, 240));
    }
}

#[tokio::test]
async fn an_endpoint_without_a_price_has_no_cost_rather_than_a_cost_of_zero() {
    let (_sim, gate) = echo().await;
    let usage = gate.messages(hello(MODEL)).await.json()["usage"].clone();
    assert_eq!((&usage["cost"], &usage["is_byok"]), (&Value::Null, &json!(false)));
}

#[tokio::test]
async fn a_refusal_has_a_category_and_an_explanation_also_where_the_upstream_gives_none() {
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":null,"explanation":null},"usage":{"input_tokens":1,"output_tokens":0}}"#;
    let sim = Sim::start(Behaviour::Raw { status: 200, headers: vec![], body: Bytes::from(body) }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let details = gate.messages(hello(MODEL)).await.json()["stop_details"].clone();
    let expected = json!({"type": "refusal", "category": "general_harms", "explanation": "The model declined to answer this request."});
    assert_eq!(details, expected);
}

#[tokio::test]
async fn thinking_and_tool_calls_come_through_whole_and_streamed() {
    let sim = Sim::start(Behaviour::Thinking).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let whole = gate.messages(hello(MODEL)).await.json();
    assert_eq!(whole["content"][0]["type"], "thinking");
    assert_eq!(whole["content"][0]["signature"], "c2ltdWxhdGVkIHNpZ25hdHVyZQ==");
    let streamed = gate.messages(hello_streamed(MODEL)).await;
    let thought: String = streamed
        .events()
        .iter()
        .filter_map(|event| event.json()["delta"]["thinking"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(json!(thought), whole["content"][0]["thinking"]);
    assert!(streamed.body_text().contains(r#"{"type":"signature_delta","signature":"c2ltdWxhdGVkIHNpZ25hdHVyZQ=="}"#));

    sim.set(Behaviour::ParallelTools(2));
    let tools = json!([{"name": "tide", "input_schema": {"type": "object"}}, {"name": "wind", "input_schema": {"type": "object"}}]);
    let mut request = hello_streamed(MODEL);
    request["tools"] = tools;
    let events = gate.messages(request).await.events();
    let input = |index: u64| -> Value {
        let parts = events.iter().map(Event::json).filter(|data| data["index"] == index);
        let text: String = parts.filter_map(|data| data["delta"]["partial_json"].as_str().map(str::to_owned)).collect();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!((input(0), input(1)), (json!({"query": "hi"}), json!({"query": "hi (2)"})));
    let delta = events.iter().find(|event| event.name == "message_delta").unwrap().json();
    assert_eq!(delta["delta"]["stop_reason"], "tool_use");
}

/// A stream with things no client of today knows, and spellings that a re-encoding would change.
fn odd_stream() -> Vec<String> {
    vec![
        "event: message_start\ndata: {\"type\":\"message_start\",\"future\":1.0,\"message\":{\"id\":\"msg_up\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m-20990101\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"extra\":{\"n\":1e2},\"usage\":{\"input_tokens\":14,\"output_tokens\":1}}}\n\n".to_owned(),
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"future_block\",\"x\":1.0}}\n\n".to_owned(),
        "event: future_event\ndata: {\"type\":\"future_event\",\"caf\\u00e9\":[1.50]}\n\n".to_owned(),
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"future_delta\",\"v\":\"\\u00e9 é 😀\"}}\n\n".to_owned(),
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hé😀llo\"},\"extra\":1e2}\n\n".to_owned(),
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0,\"note\":null}\n\n".to_owned(),
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"odd\":true},\"usage\":{\"output_tokens\":9,\"extra\":1.0},\"future\":{}}\n\n".to_owned(),
        "event: message_stop\ndata: {\"type\":\"message_stop\",\"bye\":1}\n\n".to_owned(),
    ]
}

/// Sends the bytes upstream's way in pieces of `size` and gives back what the client got.
async fn relayed(gate: &Tidegate, sim: &Sim, bytes: &[u8], size: usize) -> Reply {
    let chunks = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    sim.set(Behaviour::RawStream { chunks, end: End::Close });
    gate.messages(hello_streamed(MODEL)).await
}

#[tokio::test]
async fn unknown_events_deltas_and_members_of_a_stream_come_through_to_the_byte() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICED).run().await;
    let sent = odd_stream();
    let reply = relayed(&gate, &sim, sent.concat().as_bytes(), usize::MAX).await;
    let events = reply.events();

    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "future_event",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    for (got, sent) in events[2..7].iter().zip(&sent[1..6]) {
        assert_eq!(got.raw, sent.as_bytes());
    }
    assert_eq!(events[8].raw, sent[7].as_bytes());
    assert_eq!(
        events[0].json(),
        json!({"type": "message_start", "future": 1.0, "message": {
            "id": "msg_up", "type": "message", "role": "assistant", "model": MODEL, "provider": "P0", "content": [],
            "stop_reason": null, "stop_sequence": null, "stop_details": null, "container": null, "extra": {"n": 100.0},
            "usage": {
                "input_tokens": 14, "output_tokens": 1, "cache_creation_input_tokens": null,
                "cache_read_input_tokens": null, "cache_creation": null, "output_tokens_details": null,
                "server_tool_use": null, "inference_geo": null, "service_tier": "standard",
            },
        }})
    );
    assert_eq!(
        events[7].json(),
        json!({"type": "message_delta", "future": {},
            "delta": {"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null, "odd": true},
            "usage": {
                "input_tokens": 14, "output_tokens": 9, "extra": 1.0, "cache_creation_input_tokens": null,
                "cache_read_input_tokens": null, "output_tokens_details": null, "server_tool_use": null,
                "cost": 0.000177, "is_byok": false,
                "cost_details": {
                    "upstream_inference_cost": null,
                    "upstream_inference_prompt_cost": 0.000042,
                    "upstream_inference_completions_cost": 0.000135,
                },
            },
        })
    );
}

#[tokio::test]
async fn str_2_any_split_and_any_line_ending_gives_the_same_events() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let whole = odd_stream().concat();
    let data = |reply: &Reply| -> Vec<(String, String)> {
        reply.events().into_iter().map(|event| (event.name, event.data)).collect()
    };
    let expected = data(&relayed(&gate, &sim, whole.as_bytes(), usize::MAX).await);
    assert_eq!(expected.len(), 9);
    for size in [1, 2, 3, 7, 100] {
        assert_eq!(data(&relayed(&gate, &sim, whole.as_bytes(), size).await), expected, "pieces of {size}");
    }
    for ending in ["\r\n", "\r"] {
        let bytes = whole.replace('\n', ending);
        for size in [1, 5, usize::MAX] {
            assert_eq!(data(&relayed(&gate, &sim, bytes.as_bytes(), size).await), expected, "{ending:?}, {size}");
        }
    }
    // A byte order mark, comments between and inside of events, and no space behind colons.
    let marked = format!("\u{feff}: hello\n\n{}", whole.replace("\nevent:", "\n: note\n\nevent:"));
    for size in [1, 2, usize::MAX] {
        assert_eq!(data(&relayed(&gate, &sim, marked.as_bytes(), size).await), expected, "marked, {size}");
    }
    let bare = whole.replace("event: ", "event:").replace("data: ", "data:");
    assert_eq!(data(&relayed(&gate, &sim, bare.as_bytes(), 11).await), expected);
}

#[tokio::test]
async fn str_2_data_on_several_lines_and_events_without_a_name_are_read() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let events = tale("hello");
    let unnamed: String = events.iter().map(|event| event.split_once('\n').unwrap().1).collect();
    let reply = relayed(&gate, &sim, unnamed.as_bytes(), 10).await;
    let names: Vec<String> = reply.events().into_iter().map(|event| event.name).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    assert_eq!(reply.text(), "hello");

    let split: String = events
        .concat()
        .replace(",\"message\":", "\ndata: ,\"message\":")
        .replace(",\"usage\":{\"output", "\ndata: ,\"usage\":{\"output");
    let reply = relayed(&gate, &sim, split.as_bytes(), 10).await;
    assert_eq!(reply.text(), "hello");
    let start = reply.events()[0].json();
    assert_eq!(start["message"]["usage"]["input_tokens"], 14);
}

#[tokio::test]
async fn routing_metadata_is_there_when_asked_for_and_only_then() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let cases: [(&[(&str, &str)], bool); 9] = [
        (&[], false),
        (&[("x-tidegate-metadata", "enabled")], true),
        (&[("X-Tidegate-Metadata", "ENABLED")], true),
        (&[("x-tidegate-metadata", "disabled")], false),
        (&[("x-tidegate-metadata", "true")], false),
        (&[("x-tidegate-metadata", "")], false),
        (&[("x-tidegate-experimental-metadata", "enabled")], true),
        (&[("x-tidegate-metadata", "disabled"), ("x-tidegate-experimental-metadata", "enabled")], false),
        (&[("x-tidegate-metadata", "enabled"), ("x-tidegate-experimental-metadata", "disabled")], true),
    ];
    for (headers, expected) in cases {
        let ask = |body: Value| {
            let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
            headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send()
        };
        let whole = ask(hello(MODEL)).await.json();
        assert_eq!(whole.get("tidegate_metadata").is_some(), expected, "{headers:?}");
        let streamed = ask(hello_streamed(MODEL)).await.events();
        let carriers: Vec<&str> = streamed
            .iter()
            .filter(|event| event.data.contains("tidegate_metadata"))
            .map(|event| event.name.as_str())
            .collect();
        assert_eq!(carriers, if expected { vec!["message_stop"] } else { vec![] }, "{headers:?}");
        if expected {
            let metadata = &whole["tidegate_metadata"];
            assert_eq!((&metadata["requested"], &metadata["attempt"]), (&json!(MODEL), &json!(1)));
            assert_eq!(
                metadata["endpoints"]["available"],
                json!([{"provider": "P0", "model": MODEL, "selected": true}])
            );
        }
    }
}

#[tokio::test]
async fn the_brand_of_a_deployment_is_in_its_headers_and_members() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let config = "[service]\nname = \"harbour\"\nname_aliases = [\"oldname\"]\n";
    let chat = format!("{}/v1", sim.base_url());
    let start = Tidegate::start().endpoint(MODEL, &sim).protocol_at("vendor/chat", "openai-chat", &chat, "");
    let gate = start.config(config).run().await;
    for header in ["x-harbour-metadata", "x-oldname-metadata"] {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header(header, "enabled");
        let answer = ask.json(hello(MODEL).to_string()).send().await.json();
        assert!(answer.get("harbour_metadata").is_some(), "{header}");
    }
    let mut request = hello("vendor/chat");
    request["inference_geo"] = json!("eu");
    let reply = gate.messages(request).await;
    assert_eq!(reply.header("x-harbour-warnings"), Some("dropped:inference_geo"));
}
