use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Script, Sim};

use crate::client::{asks, call, post, read_until, send, soon, streams};

#[tokio::test]
async fn a_sequence_is_played_in_order() {
    let sim = Sim::start(Script::status(503).then(Behaviour::status(429)).then(Behaviour::says("hello"))).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(post(&sim, &asks("hi")).await.status);
    }
    assert_eq!(seen, [503, 429, 200, 200]);
    sim.set(Script::status(500).then(Behaviour::Echo));
    assert_eq!(post(&sim, &asks("hi")).await.status, 500);
    assert_eq!((sim.calls(), sim.open(), sim.cancelled()), (5, 0, 0));
}

#[tokio::test]
async fn requests_are_recorded_as_they_came() {
    let sim = Sim::start(Script::says("hello")).await;
    let body = asks("hi").to_string();
    call(&sim, "POST", "/v1/messages?beta=true", &[("anthropic-version", "2023-06-01")], body.as_bytes()).await;
    let seen = &sim.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/messages?beta=true"));
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!((&seen.body[..], seen.json()), (body.as_bytes(), asks("hi")));
}

#[tokio::test]
async fn recording_is_bounded_and_can_be_off() {
    let sim = Sim::start(Script::says("hello")).await;
    for n in 0..70 {
        post(&sim, &asks(&n.to_string())).await;
    }
    let seen = sim.requests();
    assert_eq!((seen.len(), seen[63].json()), (64, asks("69")));
    sim.set(Script::says("hello").record(false));
    post(&sim, &asks("unseen")).await;
    assert_eq!((sim.calls(), sim.requests()[63].json()), (71, asks("69")));
}

#[tokio::test]
async fn tokens_are_counted_apart() {
    let sim = Sim::start(Script::default()).await;
    let body = asks("hi").to_string();
    let reply = call(&sim, "POST", "/v1/messages/count_tokens", &[], body.as_bytes()).await;
    assert_eq!(reply.json(), json!({"input_tokens": body.len().div_ceil(4)}));
    assert_eq!((sim.calls(), sim.count_calls()), (0, 1));
    sim.set(Script::status(429));
    assert_eq!(call(&sim, "POST", "/v1/messages/count_tokens", &[], body.as_bytes()).await.status, 429);
}

#[tokio::test]
async fn a_key_can_be_required() {
    let sim = Sim::start(Script::says("hello").require_key("right")).await;
    let body = asks("hi").to_string();
    for (headers, status) in [
        (vec![], 401),
        (vec![("x-api-key", "wrong")], 401),
        (vec![("x-api-key", "right")], 200),
        (vec![("authorization", "Bearer right")], 200),
    ] {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            assert_eq!(call(&sim, "POST", path, &headers, body.as_bytes()).await.status, status, "{headers:?}");
        }
    }
    assert_eq!((sim.calls(), sim.open(), sim.cancelled()), (4, 0, 0));
}

#[tokio::test]
async fn what_is_not_the_protocol_is_an_error_in_its_shape() {
    let sim = Sim::start(Script::default()).await;
    for (method, path, body, status, kind) in [
        ("POST", "/v1/elsewhere", "{}", 404, "not_found_error"),
        ("GET", "/v1/messages", "", 405, "invalid_request_error"),
        ("POST", "/v1/messages", "{", 400, "invalid_request_error"),
        ("POST", "/v1/messages", "{}", 400, "invalid_request_error"),
    ] {
        let reply = call(&sim, method, path, &[], body.as_bytes()).await;
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (status, &json!(kind)), "{method} {path}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_a_paced_stream_is_counted() {
    let sim = Sim::start(Script::tokens(1000, 4).pace(Duration::from_secs(3600))).await;
    let mut socket = send(&sim, "POST", "/v1/messages", &[], streams("hi").to_string().as_bytes()).await;
    let wire = read_until(&mut socket, "event: message_start", 1).await;
    assert_eq!((wire.matches("event: ").count(), sim.open()), (1, 1));
    drop(socket);
    soon(sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);
}

#[tokio::test]
async fn latency_comes_before_the_headers_and_pace_between_events() {
    let (latency, pace) = (Duration::from_millis(20), Duration::from_millis(5));
    let sim = Sim::start(Script::says("a b").first_byte(latency).pace(pace)).await;
    let start = tokio::time::Instant::now();
    let reply = post(&sim, &streams("hi")).await;
    assert_eq!(reply.kinds().len(), 8);
    // Only the lower bound: a busy machine may take longer.
    assert!(start.elapsed() >= latency + 7 * pace, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_stopped_server_refuses_connections() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let addr = sim.addr();
    let mut socket = send(&sim, "POST", "/v1/messages", &[], asks("hi").to_string().as_bytes()).await;
    soon(sim.wait_calls(1)).await;
    soon(sim.stop()).await;
    assert!(tokio::net::TcpStream::connect(addr).await.is_err());
    let mut rest = Vec::new();
    let _ = soon(tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut rest)).await;
    assert!(rest.is_empty());
}
