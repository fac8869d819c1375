//! Counting without generating.

use std::time::Duration;

use bytes::Bytes;
use rustix::process::Signal;
use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Ask, Hand, INFERENCE_KEY, Tidegate, eventually, hello, soon};

const MODEL: &str = "vendor/m";
const PATH: &str = "/v1/messages/count_tokens";

fn ask(gate: &Tidegate, body: impl Into<Bytes>) -> Ask {
    gate.ask("POST", PATH).key(INFERENCE_KEY).json(body)
}

#[tokio::test]
async fn the_upstreams_own_count_is_passed_on() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    // What shapes an answer is no input of a count, and Anthropic refuses it there.
    let body = r#"{"max_tokens":64,"model":"vendor/m","session_id":"s","system":"be \u00e9","messages":[{"role":"user","content":"hi"}],"stream":true,"metadata":{"user_id":"u"},"future":1.0,"temperature":1}"#;
    for (path, number) in [(PATH, "1.0"), ("/api/v1/messages/count_tokens", "2.0")] {
        let body = body.replace("1.0", number);
        let ask = gate.ask("POST", path).key(INFERENCE_KEY).header("anthropic-beta", "token-counting-2024-11-01");
        let reply = ask.json(body).send().await;
        let sent = r#"{"model":"m","system":"be \u00e9","messages":[{"role":"user","content":"hi"}],"future":1.0}"#;
        let sent = sent.replace("1.0", number);
        let seen = sim.requests().pop().unwrap();
        assert_eq!((seen.path.as_str(), &seen.body[..]), ("/v1/messages/count_tokens", sent.as_bytes()));
        assert_eq!(seen.header("x-api-key"), Some("provider-secret-0"));
        // The simulator counts a token for every four bytes it gets.
        let expected = json!({"input_tokens": sent.len().div_ceil(4)});
        assert_eq!((reply.status, reply.json()), (200, expected));
        assert_eq!((reply.header("x-tidegate-count"), reply.header("x-generation-id")), (None, None));
        assert_eq!(reply.header("content-type"), Some("application/json"));
    }
    assert_eq!((sim.calls(), sim.count_calls()), (0, 2));
    // The same question is not asked again.
    let again = gate.ask("POST", PATH).key(INFERENCE_KEY).json(body).send().await;
    assert_eq!((again.status, again.header("x-tidegate-count"), sim.count_calls()), (200, None, 2));
}

#[tokio::test]
async fn vertex_is_told_the_version_and_the_model_in_the_body() {
    let sim = Sim::start(Behaviour::Echo).await;
    let provider = format!(
        "[[providers]]\nslug = \"own\"\nplatform = \"vertex-anthropic\"\napi_key = \"token\"\n\
         base_url = \"{}/v1/projects/p/locations/global/publishers/anthropic\"\n",
        sim.base_url()
    );
    let model = format!(
        "[[models]]\nid = \"{MODEL}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
         [[models.endpoints]]\nprovider = \"own\"\nmodel = \"m\"\n"
    );
    let gate = Tidegate::start().config(&format!("{provider}{model}")).run().await;
    let reply = ask(&gate, hello(MODEL).to_string()).send().await;
    assert_eq!((reply.status, reply.header("x-tidegate-count")), (200, None), "{}", reply.body_text());
    let mut expected = hello("m");
    expected.as_object_mut().unwrap().remove("max_tokens");
    expected["anthropic_version"] = "vertex-2023-10-16".into();
    assert_eq!(sim.requests().pop().unwrap().json(), expected);
}

#[tokio::test]
async fn vllm_counts_beside_its_api() {
    let hand = Hand::start().await;
    let config = format!(
        "[[providers]]\nslug = \"vllm\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\n\
         [[models]]\nid = \"{MODEL}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
         [[models.endpoints]]\nprovider = \"vllm\"\nmodel = \"m\"\n",
        hand.base_url()
    );
    let gate = Tidegate::start().config(&config).run().await;
    // It tells every token beside their number, however many there are.
    for count in [7, 150_000] {
        let answered = async {
            let mut call = hand.call().await;
            let body = json!({"count": count, "max_model_len": 200_000, "tokens": vec![100_000; count]}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            call.write(format!("{head}{body}").as_bytes()).await;
            call
        };
        let mut asked = hello(MODEL);
        asked["messages"][0]["content"] = json!(format!("message {count}"));
        let (counted, call) = tokio::join!(ask(&gate, asked.to_string()).send(), answered);
        assert_eq!(
            (counted.status, counted.json(), counted.header("x-tidegate-count")),
            (200, json!({"input_tokens": count}), None)
        );
        assert!(call.text.starts_with("post /tokenize "), "{}", call.text);
    }
}

#[tokio::test]
async fn counting_never_fails_because_a_provider_did() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    for status in [400, 401, 404, 429, 500, 529] {
        sim.set(Behaviour::status(status));
        let reply = ask(&gate, hello(MODEL).to_string()).send().await;
        assert_eq!((reply.status, reply.header("x-tidegate-count")), (200, Some("estimated")), "{status}");
        assert!(reply.json()["input_tokens"].as_u64().is_some_and(|count| count > 0), "{status}");
    }
    let address = sim.base_url();
    sim.stop().await;
    let gate = Tidegate::start().endpoint_at(MODEL, &address, "").run().await;
    let short = ask(&gate, hello(MODEL).to_string()).send().await;
    assert_eq!(short.header("x-tidegate-count"), Some("estimated"));
    let mut long = hello(MODEL);
    long["messages"][0]["content"] = json!("tide ".repeat(1_000));
    let long = ask(&gate, long.to_string()).send().await.json()["input_tokens"].as_u64().unwrap();
    // Five characters a word: between one and four tokens each, whoever estimates.
    assert!((1_000..=4_000).contains(&long), "{long}");
    assert!(short.json()["input_tokens"].as_u64().unwrap() < long);
}

#[tokio::test]
async fn an_estimate_answers_in_the_shape_of_a_count_with_context_management() {
    let sim = Sim::start(Behaviour::status(404)).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let mut request = hello(MODEL);
    request["context_management"] = json!({"edits": []});
    let reply = ask(&gate, request.to_string()).send().await.json();
    assert_eq!(reply["context_management"]["original_input_tokens"], reply["input_tokens"], "{reply}");
}

#[tokio::test]
async fn what_says_nothing_of_the_length_is_ignored_whatever_it_holds() {
    let odd = json!({"max_tokens": -1, "stream": "x", "temperature": 9, "top_p": "x", "stop_sequences": [""], "speed": 1,
        "metadata": [], "session_id": 7, "user": {}, "max_tool_calls": 0});
    let none = json!({"max_tokens": 0});
    for (protocol, path) in [("anthropic", ""), ("openai-responses", "/v1"), ("gemini", "/v1beta")] {
        let hand = Hand::start().await;
        let address = format!("{}{path}", hand.base_url());
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &address, "").run().await;
        for (number, more) in [&odd, &none].into_iter().enumerate() {
            let mut body = hello(MODEL);
            body["messages"][0]["content"] = json!(format!("message {number}"));
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let answered = async {
                let mut call = hand.call().await;
                let answer =
                    json!({"input_tokens": 7, "totalTokens": 7, "object": "response.input_tokens"}).to_string();
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", answer.len());
                call.write(format!("{head}{answer}").as_bytes()).await;
            };
            let asking = ask(&gate, body.to_string()).send();
            let both = async { tokio::join!(asking, answered).0 };
            let reply = soon("the provider is asked", Box::pin(both)).await;
            let told = (reply.status, reply.json(), reply.header("x-tidegate-count"));
            assert_eq!(told, (200, json!({"input_tokens": 7}), None), "{protocol} {more}");
        }
    }
}

#[tokio::test]
async fn counting_has_the_rules_of_generating() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let cases = [
        ("{".to_owned(), 400, "Invalid request: body is not valid JSON"),
        (r#"{"messages":[{"role":"user","content":"hi"}]}"#.to_owned(), 400, "Invalid request: model is required"),
        (r#"{"model":"vendor/m"}"#.to_owned(), 400, "Invalid request: messages is required"),
        (hello("no/such").to_string(), 400, "no/such is not a valid model ID"),
    ];
    for (body, status, message) in cases {
        let (got, kind, _, text) = ask(&gate, body.clone()).send().await.error();
        assert_eq!((got, kind.as_str(), text.as_str()), (status, "invalid_request_error", message), "{body}");
    }
    assert_eq!(gate.ask("POST", PATH).json(hello(MODEL).to_string()).send().await.status, 401);
    assert_eq!(sim.count_calls(), 0);
}

#[tokio::test]
async fn a_count_takes_a_place_as_a_message_does_and_none_while_draining() {
    let hand = Hand::start().await;
    let config = "[limits]\nin_flight_key = 1\n[service]\ndrain_delay = 30\n";
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(config).run().await;
    let refused = async {
        // The call is there, so the place is taken until it is answered.
        let mut call = hand.call().await;
        let status = ask(&gate, hello(MODEL).to_string()).send().await.status;
        call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 18\r\n\r\n{\"input_tokens\":7}").await;
        status
    };
    let (counted, refused) = tokio::join!(ask(&gate, hello(MODEL).to_string()).send(), refused);
    assert_eq!((counted.status, counted.json(), refused), (200, json!({"input_tokens": 7}), 429));
    // Its body is still on its way when nothing is taken any more.
    let body = hello(MODEL).to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {INFERENCE_KEY}\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut late = gate.connect().await;
    late.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    soon("it may go on", late.read_exact(&mut go_on)).await.unwrap();
    gate.signal(Signal::TERM);
    eventually("it leaves", Duration::from_secs(5), async || gate.get("/readyz").await.status == 503).await;
    gate.signal(Signal::TERM);
    eventually("it drains", Duration::from_secs(5), async || {
        tokio::net::TcpStream::connect(gate.address).await.is_err()
    })
    .await;
    late.write_all(body.as_bytes()).await.unwrap();
    let mut refused = String::new();
    soon("the refusal", late.read_to_string(&mut refused)).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("overloaded_error"), "{refused}");
}
