//! What went wrong in other gateways and shows only in the whole of this one; each test is named after its number.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Quirk, Sim};

use crate::harness::{Event, Hand, INFERENCE_KEY, Reply, Tidegate, hello, hello_streamed, user};

const MODEL: &str = "vendor/m";

/// A provider of our own naming, and an endpoint of the model there.
fn endpoint(slug: &str, provider: &str, lines: &str) -> (String, String) {
    (
        format!("[[providers]]\nslug = \"{slug}\"\n{provider}\n"),
        format!("[[models.endpoints]]\nprovider = \"{slug}\"\nmodel = \"m\"\n{lines}\n"),
    )
}

/// One model at these endpoints, in their order.
async fn gate(endpoints: &[(String, String)], settings: &str) -> Tidegate {
    let providers: String = endpoints.iter().map(|(provider, _)| provider.as_str()).collect();
    let lines: String = endpoints.iter().map(|(_, endpoint)| endpoint.as_str()).collect();
    let model = format!("[[models]]\nid = \"{MODEL}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n{lines}");
    Tidegate::start().config(&format!("{providers}{model}")).config(settings).run().await
}

fn chat(slug: &str, base_url: &str) -> (String, String) {
    endpoint(slug, &format!("protocol = \"openai-chat\"\nbase_url = \"{base_url}/v1\"\napi_key = \"k\""), "")
}

fn chunk(delta: &Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn p22_silence_is_filled_with_pings_and_a_dead_upstream_is_not_hidden_by_them() {
    let hand = Hand::start().await;
    let timers = "[upstream]\nfirst_content_ms = 20000\nidle_ms = 400\n[stream]\nkeep_alive_ms = 60\n";
    let gate = gate(&[chat("chatty", &hand.base_url())], timers).await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&chunk(&json!({"role": "assistant", "content": "half"}))).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    let ((), rest) = tokio::join!(call.gone(), stream.rest());
    let names = names(&rest);
    let (last, pings) = names.split_last().expect("it ends");
    assert_eq!(*last, "error", "{names:?}");
    assert!(pings.len() >= 2 && pings.iter().all(|name| *name == "ping"), "{names:?}");
    let error = &rest.last().expect("it ends").json()["error"];
    assert_eq!((&error["type"], &error["error_type"]), (&json!("timeout_error"), &json!("timeout")));
}

#[tokio::test]
async fn p20_an_error_inside_of_a_200_is_a_failure_and_another_endpoint_answers() {
    let broken = Sim::start(Behaviour::Quirk(Quirk::ErrorIn200)).await;
    let healthy = Sim::start(Behaviour::says("hello")).await;
    let gate = gate(&[chat("first", &broken.base_url()), chat("second", &healthy.base_url())], "").await;
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
    assert_eq!(gate.stream(hello_streamed(MODEL)).await.text().await, "hello");
    assert_eq!(healthy.calls(), 2);
}

/// A message with these betas and a member that only one of them allows.
async fn with_betas(gate: &Tidegate, betas: &str) -> Reply {
    let mut body = hello(MODEL);
    body["speed"] = "fast".into();
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("anthropic-beta", betas);
    ask.json(body.to_string()).send().await
}

#[tokio::test]
async fn a_speed_does_not_reach_resellers_also_where_no_beta_came_with_it() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let address = sim.base_url();
    let vertex = format!(
        "platform = \"vertex-anthropic\"\napi_key = \"token\"\n\
         base_url = \"{address}/v1/projects/p/locations/global/publishers/anthropic\""
    );
    let bedrock = format!("platform = \"bedrock-invoke\"\napi_key = \"key\"\nbase_url = \"{address}\"");
    for lines in [vertex, bedrock] {
        let reply = with_betas(&gate(&[endpoint("own", &lines, "")], "").await, "").await;
        assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "{reply:?}");
        assert_eq!(sim.requests().pop().expect("it was called").json().get("speed"), None, "{lines}");
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:speed"), "{lines}");
    }
}

#[tokio::test]
async fn p68_only_models_that_know_cache_points_get_some() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let marker = json!({"type": "ephemeral"});
    let mut body = json!({ "max_tokens": 64,
        "system": [{"type": "text", "text": "s", "cache_control": marker}],
        "tools": [{"name": "a", "input_schema": {"type": "object"}, "cache_control": marker}],
        "messages": [{"role": "user", "content": "x"}]});
    let profile = "arn:aws:bedrock:us-east-1:1:application-inference-profile/a1";
    for (id, model, card, points) in [
        (MODEL, "us.anthropic.claude-sonnet-4-6", "", 2),
        (MODEL, profile, "card = { claude = true }", 2),
        (MODEL, profile, "", 0),
        ("anthropic/claude-ours", profile, "", 2),
        ("anthropic/claude-ours", profile, "card = { cache = \"none\" }", 0),
        ("amazon/nova-ours", profile, "", 1),
        (MODEL, "us.amazon.nova-pro-v1:0", "", 1),
        (MODEL, "us.amazon.nova-pro-v1:0", "card = { cache = \"none\" }", 0),
        (MODEL, "us.meta.llama3-3-70b-instruct-v1:0", "", 0),
        (MODEL, "us.meta.llama3-3-70b-instruct-v1:0", "card = { cache = \"cachepoint\" }", 2),
    ] {
        let config = format!(
            "[[providers]]\nslug = \"own\"\nprotocol = \"bedrock-converse\"\nbase_url = \"{}\"\napi_key = \"k\"\n\
             [[models]]\nid = \"{id}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
             [[models.endpoints]]\nprovider = \"own\"\nmodel = \"{model}\"\n{card}\n",
            sim.base_url()
        );
        let gate = Tidegate::start().config(&config).run().await;
        body["model"] = json!(id);
        let reply = gate.messages(body.clone()).await;
        assert_eq!(reply.status, 200, "{id} {model}: {}", reply.body_text());
        let sent = sim.requests().pop().expect("it was called").json().to_string();
        assert_eq!(sent.matches("cachePoint").count(), points, "{id} {model} {card}: {sent}");
    }
}

#[tokio::test]
async fn p76_the_header_and_the_body_tell_of_the_same_betas() {
    let given = "context-1m-2025-08-07,files-api-2025-04-14,fast-mode-2026-02-01";
    let sim = Sim::start(Behaviour::says("hello")).await;
    let address = sim.base_url();
    let vertex = format!(
        "platform = \"vertex-anthropic\"\napi_key = \"token\"\n\
         base_url = \"{address}/v1/projects/p/locations/global/publishers/anthropic\""
    );
    let reply = with_betas(&gate(&[endpoint("our-vertex", &vertex, "")], "").await, given).await;
    assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "{reply:?}");
    let seen = sim.requests().pop().expect("it was called");
    let beta = seen.headers.get_all("anthropic-beta").iter().collect::<Vec<_>>();
    assert_eq!(beta, ["context-1m-2025-08-07"]);
    assert_eq!((seen.json().get("anthropic_beta"), seen.json().get("speed")), (None, None));

    let bedrock = format!("platform = \"bedrock-invoke\"\napi_key = \"key\"\nbase_url = \"{address}\"");
    let reply = with_betas(&gate(&[endpoint("our-bedrock", &bedrock, "")], "").await, given).await;
    assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "{reply:?}");
    let seen = sim.requests().pop().expect("it was called");
    assert_eq!(seen.json()["anthropic_beta"], json!(["context-1m-2025-08-07"]));
    assert_eq!((seen.header("anthropic-beta"), seen.json().get("speed")), (None, None));
}

#[tokio::test]
async fn p79_a_prompt_that_is_too_long_is_the_callers_to_shorten_and_is_not_tried_again() {
    let refusal = Behaviour::Status {
        code: 400,
        retry_after: None,
        error_type: Some("context_length_exceeded".to_owned()),
        message: Some("This model's maximum context length is 128000 tokens.".to_owned()),
    };
    let (first, second) = (Sim::start(refusal).await, Sim::start(Behaviour::says("wrong")).await);
    let gate = gate(&[chat("first", &first.base_url()), chat("second", &second.base_url())], "").await;
    for body in [hello(MODEL), hello_streamed(MODEL)] {
        let (status, kind, error_type, message) = gate.messages(body).await.error();
        assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
        assert_eq!(error_type, "context_length_exceeded");
        assert!(message.starts_with("prompt is too long: "), "{message}");
    }
    assert_eq!((first.calls(), second.calls()), (2, 0), "there is no more room elsewhere");
}

#[tokio::test]
async fn p80_a_prompt_that_ollama_would_cut_is_refused_before_it_is_sent() {
    for (protocol, path) in [("openai-chat", "/v1"), ("anthropic", "")] {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let provider = format!("protocol = \"{protocol}\"\nbase_url = \"{}{path}\"", sim.base_url());
        let gate = gate(&[endpoint("ollama", &provider, "context_length = 4096")], "").await;
        // Five letters and a space make 1.9 tokens at 3.2 bytes each: 18 750 in all, far beyond 4096.
        let long = json!({"model": MODEL, "max_tokens": 64, "messages": [user(&"tides ".repeat(10_000))]});
        let reply = gate.messages(long).await;
        let (status, _, error_type, message) = reply.error();
        assert_eq!((status, error_type.as_str()), (400, "context_length_exceeded"), "{protocol}");
        assert!(message.starts_with("prompt is too long: "), "{message}");
        assert_eq!(sim.calls(), 0, "{protocol}");
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello", "{protocol}");
    }
}

#[tokio::test]
async fn events_under_another_type_are_events() {
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let body = format!(": hello\n\n{}data: {stop}\n\ndata: [DONE]\n\n", chunk(&json!({"content": "hello"})));
    for kind in ["text/plain", "Text/Event-Stream", "application/json"] {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let sim = Sim::start(Behaviour::Raw { status: 200, headers, body: body.clone().into() }).await;
        let gate = gate(&[chat("plain", &sim.base_url())], "").await;
        assert_eq!(gate.stream(hello_streamed(MODEL)).await.text().await, "hello", "{kind}");
        assert_eq!(sim.calls(), 1, "{kind}");
    }
}

#[tokio::test]
async fn events_are_known_however_their_beginning_is_cut() {
    let stop = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let body = format!("{}data: {stop}\n\ndata: [DONE]\n\n", chunk(&json!({"content": "hello"})));
    for first in ["d", "\n", "\u{feff}"] {
        let hand = Hand::start().await;
        let gate = gate(&[chat("plain", &hand.base_url())], "").await;
        let answering = async {
            let mut call = hand.call().await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
            call.write(head.as_bytes()).await;
            call.send(first).await;
            call.send(body.strip_prefix(first).unwrap_or(&body)).await;
            call.end().await;
        };
        let (stream, ()) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
        assert_eq!(stream.text().await, "hello", "{first:?}");
    }
}

#[tokio::test]
async fn an_error_in_place_of_a_stream_is_told_though_the_rest_never_comes() {
    let hand = Hand::start().await;
    let provider = format!("protocol = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"k\"", hand.base_url());
    let gate = gate(&[endpoint("native", &provider, "")], "").await;
    let answering = async {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "too many tides"}});
        let mut call = hand.call().await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n";
        call.write(format!("{head}{error}").as_bytes()).await;
    };
    let (reply, ()) = tokio::join!(gate.messages(hello_streamed(MODEL)), answering);
    let (status, kind, _, message) = reply.error();
    assert_eq!((status, kind.as_str()), (400, "invalid_request_error"), "{message}");
}

#[tokio::test]
async fn a_known_block_that_does_not_fit_is_refused_and_not_left_out() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = gate(&[chat("chatty", &sim.base_url())], "").await;
    let asked = async |blocks: Value| {
        let call = json!({"type": "tool_use", "id": "a", "name": "look", "input": {}});
        let mut body = hello(MODEL);
        body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
        body["messages"] =
            json!([user("hi"), {"role": "assistant", "content": [call]}, {"role": "user", "content": blocks}]);
        gate.messages(body).await
    };
    let result = |name: &str, value: Value| json!([{"type": "tool_result", "tool_use_id": "a", name: value}]);
    let texts = |value: Value| json!([{"type": "text", "text": "T", "citations": value}]);
    for (blocks, problem) in [
        (result("is_error", json!("yes")), "[0].is_error must be a boolean"),
        (result("content", json!(5)), "[0].content must be a string or an array"),
        (result("content", json!(["R"])), "[0].content[0] must be an object"),
        (result("content", texts(json!(5))), "[0].content[0].citations must be an array"),
        (texts(json!(5)), "[0].citations must be an array"),
    ] {
        let reply = asked(blocks).await;
        let expected = format!("Invalid request: messages[2].content{problem}");
        assert_eq!((reply.status, reply.error().3), (400, expected));
    }
    assert_eq!(sim.calls(), 0);
    let reply = asked(json!([{"type": "from_the_future", "is_error": "yes"}, {"type": "text", "text": "T"}])).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let heard = sim.requests().pop().expect("a request arrived");
    assert!(String::from_utf8_lossy(&heard.body).contains("[from_the_future omitted]"));
}
