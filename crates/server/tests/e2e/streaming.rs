//! Streams in time: their order, the silence before and inside of them, readers that are slow and readers that leave.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::time::timeout;

use crate::harness::{
    Call, Event, Hand, INFERENCE_KEY, Tidegate, eventually, frame, hello, hello_streamed, soon, tale,
};

const MODEL: &str = "vendor/m";
const COMMENT: &[u8] = b": TIDEGATE PROCESSING\n\n";

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

async fn by_hand(config: &str) -> (Hand, Tidegate) {
    let hand = Hand::start().await;
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(config).run().await;
    (hand, gate)
}

#[tokio::test]
async fn events_come_in_their_order_and_repeat_their_name() {
    let sim = Sim::start(Behaviour::Thinking).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let events = gate.messages(hello_streamed(MODEL)).await.events();
    assert_eq!(names(&events)[..2], ["message_start", "ping"]);
    assert_eq!(names(&events)[events.len() - 2..], ["message_delta", "message_stop"]);
    assert_eq!(names(&events).iter().filter(|name| **name == "message_start").count(), 1);
    let mut open = None;
    let mut next = 0;
    for event in &events {
        let data = event.json();
        assert_eq!(data["type"], json!(event.name));
        let index = data["index"].as_u64();
        match event.name.as_str() {
            "content_block_start" => {
                assert_eq!((open, index), (None, Some(next)), "blocks never overlap and count upwards");
                (open, next) = (index, next + 1);
            }
            "content_block_delta" => assert_eq!(index, open),
            "content_block_stop" => assert_eq!(index, open.take()),
            _ => assert_eq!(index, None),
        }
    }
    assert_eq!((open, next), (None, 2));
}

#[tokio::test]
async fn a_ping_follows_the_start_whether_or_not_the_upstream_sends_one() {
    let (hand, gate) = by_hand("").await;
    for ping in [String::new(), frame("ping", r#"{"type": "ping"}"#)] {
        let mut events = tale("hello");
        events.insert(1, ping);
        let answering = async {
            let mut call = hand.call().await.streams().await;
            call.send(&events.concat()).await;
            call.end().await;
        };
        let (reply, ()) = tokio::join!(gate.messages(hello_streamed(MODEL)), answering);
        let events = reply.events();
        let expected = [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ];
        assert_eq!(names(&events), expected);
    }
}

#[tokio::test]
async fn content_is_passed_on_as_soon_as_it_comes() {
    let (hand, gate) = by_hand("").await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("first")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    // Each is read before the next one is written: nothing waits for company.
    for word in ["second", "third"] {
        call.send(&tale(word)[2]).await;
        assert_eq!(stream.next().await.unwrap().json()["delta"]["text"], word);
    }
    call.send(&tale("")[3..].concat()).await;
    assert_eq!(names(&stream.rest().await), ["content_block_stop", "message_delta", "message_stop"]);
}

#[tokio::test]
async fn the_answer_ends_with_the_marker_also_when_the_upstream_does_not_close() {
    let (hand, gate) = by_hand("").await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("hello").concat()).await;
        call
    };
    let (reply, _call) = tokio::join!(gate.messages(hello_streamed(MODEL)), answering);
    assert_eq!(names(&reply.events()).last(), Some(&"message_stop"));
}

#[tokio::test]
async fn p22_silence_after_the_start_is_filled_with_pings() {
    let (hand, gate) = by_hand("[stream]\nkeep_alive_ms = 60\n").await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("hello")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    for _ in 0..3 {
        assert_eq!(stream.next().await.unwrap().raw, b"event: ping\ndata: {\"type\":\"ping\"}\n\n"[..]);
    }
    // The upstream's own comments are signs of life to us, not events for the client.
    call.send(": upstream\n\n").await;
    call.send(&tale("hello")[3..].concat()).await;
    let rest = stream.rest().await;
    let rest: Vec<&str> = names(&rest).into_iter().filter(|name| *name != "ping").collect();
    assert_eq!(rest, ["content_block_stop", "message_delta", "message_stop"]);
}

const EARLY: &str = "[stream]\nearly_commit_ms = 60\nkeep_alive_ms = 60\n";

#[tokio::test]
async fn a_stream_committed_by_time_hears_comments_and_then_the_answer() {
    let (hand, gate) = by_hand(EARLY).await;
    let (mut stream, call) = tokio::join!(gate.stream(hello_streamed(MODEL)), hand.call());
    assert_eq!(stream.status, 200);
    assert!(stream.headers.contains_key("x-generation-id"));
    for _ in 0..3 {
        assert_eq!(stream.next().await.unwrap().raw, COMMENT);
    }
    let mut call = call.streams().await;
    // A start alone is not content: comments go on.
    call.send(&tale("hello")[0]).await;
    assert_eq!(stream.next().await.unwrap().raw, COMMENT);
    call.send(&tale("hello")[1..].concat()).await;
    let rest: Vec<Event> = stream.rest().await.into_iter().filter(|event| event.raw != COMMENT).collect();
    assert_eq!(names(&rest)[..2], ["message_start", "ping"]);
    assert_eq!(names(&rest).last(), Some(&"message_stop"));
}

#[tokio::test]
async fn ret_1_after_comments_another_endpoint_can_still_answer() {
    let (hand, healthy) = (Hand::start().await, Sim::start(Behaviour::says("hello")).await);
    let gate =
        Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").endpoint(MODEL, &healthy).config(EARLY).run().await;
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), hand.call());
    assert_eq!(stream.next().await.unwrap().raw, COMMENT);
    call.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!((stream.text().await, healthy.calls()), ("hello".to_owned(), 1));
}

#[tokio::test]
async fn ret_1_after_comments_a_final_failure_is_told_in_band() {
    let (hand, gate) = by_hand(EARLY).await;
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), hand.call());
    let id = stream.id();
    assert_eq!(stream.next().await.unwrap().raw, COMMENT);
    call.write(b"HTTP/1.1 529 Overloaded\r\ncontent-length: 0\r\n\r\n").await;
    let events: Vec<Event> = stream.rest().await.into_iter().filter(|event| event.raw != COMMENT).collect();
    assert_eq!(names(&events), ["error"]);
    let data = events[0].json();
    assert_eq!((&data["type"], &data["request_id"]), (&json!("error"), &json!(id)));
    let expected = json!({"type": "overloaded_error", "message": "Provider is temporarily overloaded", "error_type": "provider_overloaded"});
    assert_eq!(data["error"], expected);
}

#[tokio::test]
async fn str_4_a_client_that_leaves_ends_the_upstream_call() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 5 }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let mut stream = gate.stream(hello_streamed(MODEL)).await;
    stream.until("content_block_delta").await;
    assert_eq!((sim.open(), sim.cancelled()), (1, 0));
    drop(stream);
    soon("the stream is cancelled", sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);

    // Before any content, streamed and not, whether the status has been sent or not.
    for (place, request) in [hello(MODEL), hello_streamed(MODEL)].into_iter().enumerate() {
        sim.set(Behaviour::HangBeforeHeaders);
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(request.to_string());
        tokio::select! {
            _ = ask.open() => panic!("nobody answers"),
            () = sim.wait_open(1) => {}
        }
        soon("the waiting call is cancelled", sim.wait_open(0)).await;
        assert_eq!(sim.cancelled(), 2 + place);
    }
    assert_eq!(gate.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn str_4_leaving_during_comments_ends_the_upstream_call() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(EARLY).run().await;
    let mut stream = gate.stream(hello_streamed(MODEL)).await;
    assert_eq!(stream.next().await.unwrap().raw, COMMENT);
    drop(stream);
    soon("the call is cancelled", sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);
}

/// Writes deltas until the gateway takes no more for a while; gives back the bytes it took.
async fn flood(call: &mut Call, most: usize) -> usize {
    let delta = &tale(&"x".repeat(64 << 10))[2];
    let mut taken = 0;
    while taken < most {
        match timeout(Duration::from_millis(700), call.try_send(delta)).await {
            Ok(true) => taken += delta.len(),
            Ok(false) => panic!("the gateway left"),
            Err(_) => break,
        }
    }
    taken
}

#[tokio::test]
async fn str_1_readers_that_do_not_read_hold_up_their_upstreams_and_nobody_else() {
    const READERS: usize = 16;
    const WANTED: usize = 200 << 20;
    // Of more than three gigabytes that are offered.
    const MOST: u64 = 64 << 20;
    let hand = Hand::start().await;
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").endpoint("vendor/other", &sim).run().await;
    assert_eq!(gate.messages(hello_streamed("vendor/other")).await.text(), "hello");
    let before = gate.memory();
    let mut flooding = tokio::task::JoinSet::new();
    for _ in 0..READERS {
        let answering = async {
            let mut call = hand.call().await.streams().await;
            call.send(&tale("x")[..3].concat()).await;
            call
        };
        let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
        stream.until("content_block_delta").await;
        flooding.spawn(async move {
            let taken = flood(&mut call, WANTED).await;
            (taken, stream, call)
        });
    }
    let stalled = soon("all upstreams are held up", flooding.join_all()).await;
    for (taken, ..) in &stalled {
        // The sockets' own buffers on both sides hold a few megabytes.
        assert!(*taken < WANTED / 4, "{taken} bytes were taken although nobody reads");
    }
    let grown = gate.memory().saturating_sub(before);
    assert!(grown < MOST, "the gateway grew by {grown} bytes for {READERS} readers");
    assert_eq!(gate.messages(hello_streamed("vendor/other")).await.text(), "hello");
    for (_, stream, mut call) in stalled {
        drop(stream);
        soon("the upstream is released", call.gone()).await;
    }
}

#[tokio::test]
async fn str_1_a_slow_reader_gets_everything() {
    let text = "x".repeat(1 << 20);
    let sim = Sim::start(Behaviour::Tokens { count: 64, bytes: 64 << 10 }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let mut stream = gate.stream(hello_streamed(MODEL)).await;
    let mut length = 0;
    while let Some(event) = stream.next().await {
        length += event.json()["delta"]["text"].as_str().map_or(0, str::len);
        tokio::task::yield_now().await;
    }
    assert_eq!(length, 4 * text.len());
}

#[tokio::test]
async fn str_4_a_client_that_takes_nothing_for_too_long_is_treated_as_gone() {
    let (hand, gate) = by_hand("[limits]\nwrite_stall_ms = 300\n").await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("x")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    let delta = &tale(&"x".repeat(64 << 10))[2];
    soon("the gateway drops both sides", async { while call.try_send(delta).await {} }).await;
    drop(stream);
    // Its place is free again.
    eventually("nothing is in flight", Duration::from_secs(5), async || {
        gate.managed("/metrics").await.body_text().contains(r#"tidegate_requests_in_flight{route="/messages"} 0"#)
    })
    .await;
}

#[tokio::test]
async fn requests_in_flight_are_shown_while_they_last() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let shows = async |text: &str| gate.managed("/metrics").await.body_text().contains(text);
    assert!(shows(r#"tidegate_requests_in_flight{route="/messages"} 0"#).await);
    let waiting = gate.messages(hello(MODEL));
    tokio::select! {
        _ = waiting => panic!("nobody answers"),
        () = async {
            sim.wait_open(1).await;
            assert!(shows(r#"tidegate_requests_in_flight{route="/messages"} 1"#).await);
        } => {}
    }
}

#[tokio::test]
async fn a_connection_carries_one_request_after_the_other_streamed_or_not() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let mut connection = gate.connect().await;
    for request in [hello_streamed(MODEL), hello(MODEL), hello_streamed(MODEL)] {
        let body = request.to_string();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {INFERENCE_KEY}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        connection.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let end: &[u8] = if request["stream"] == true { b"\r\n0\r\n\r\n" } else { b"}" };
        let mut answer = Vec::new();
        soon("an answer", async {
            let mut buffer = [0; 4096];
            while !(answer.ends_with(end) && answer.windows(5).any(|window| window == b"hello")) {
                let read = connection.read(&mut buffer).await.unwrap();
                assert!(read > 0, "the connection was closed");
                answer.extend_from_slice(&buffer[..read]);
            }
        })
        .await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}

#[tokio::test]
async fn one_http_2_connection_carries_many_streams() {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let io = TokioIo::new(gate.connect().await);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut sender = sender.clone();
        let request = http::Request::post(format!("{}/v1/messages", gate.url()))
            .header("authorization", format!("Bearer {INFERENCE_KEY}"))
            .body(Full::new(bytes::Bytes::from(hello_streamed(MODEL).to_string())))
            .unwrap();
        tasks.spawn(async move {
            let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
            String::from_utf8(body.to_bytes().to_vec()).unwrap()
        });
    }
    drop(sender);
    // The connection ends by itself when nobody can send on it any more.
    let (bodies, ended) = soon("all streams end", async { tokio::join!(tasks.join_all(), connection) }).await;
    ended.unwrap();
    assert_eq!(bodies.len(), 50);
    assert!(bodies.iter().all(|body| body.contains("hello") && body.contains("message_stop")));
}

const SHORT_IDLE: &str = "[limits]\nkeep_alive_idle_ms = 300\n";

/// Sends a request and reads until the server closes; what came, and how long it took.
async fn until_closed(gate: &Tidegate, request: &str) -> (String, Duration) {
    let before = tokio::time::Instant::now();
    let answer = gate.raw(request).await;
    (answer, before.elapsed())
}

#[tokio::test]
async fn a_connection_that_idles_after_any_answer_is_closed() {
    let sim = Sim::start(Script::from(Behaviour::says("hello")).first_byte(Duration::from_millis(50))).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(SHORT_IDLE).run().await;
    let post = |key: &str, body: &str| {
        format!(
            "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (whole, streamed) = (hello(MODEL).to_string(), hello_streamed(MODEL).to_string());
    let cases = [
        (post(INFERENCE_KEY, &whole), "200"),
        (post(INFERENCE_KEY, &streamed), "200"),
        (post("wrong", &whole), "401"),
        ("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), "200"),
    ];
    for (request, status) in cases {
        let (answer, took) = until_closed(&gate, &request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(4), "{took:?}: {request}");
    }
}

#[tokio::test]
async fn an_http_2_connection_that_idles_is_closed() {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(SHORT_IDLE).run().await;
    for asks in [false, true] {
        let io = TokioIo::new(gate.connect().await);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        let mut connections = tokio::task::JoinSet::new();
        connections.spawn(connection);
        if asks {
            let request = http::Request::get(format!("{}/healthz", gate.url()));
            let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
            let response = soon("an answer", sender.send_request(request)).await.unwrap();
            assert_eq!(response.status(), 200);
            response.into_body().collect().await.unwrap();
        }
        // The sender is kept, so only the server can end it.
        let ended = timeout(Duration::from_secs(4), connections.join_next()).await;
        assert!(ended.is_ok(), "asks: {asks}");
    }
}

/// Flow control of HTTP/2 lets a client stop an answer without stopping the socket.
#[tokio::test]
async fn an_http_2_client_that_takes_nothing_is_given_up() {
    use http_body_util::Full;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let sim = Sim::start(Behaviour::Tokens { count: 200, bytes: 1000 }).await;
    let timers = "[upstream]\ntotal_streamed_ms = 1500\ntotal_whole_ms = 1500\n[limits]\nwrite_stall_ms = 300\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(timers).run().await;
    let io = TokioIo::new(gate.connect().await);
    let mut client = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = client.initial_stream_window_size(1024).handshake(io).await.unwrap();
    let mut connections = tokio::task::JoinSet::new();
    connections.spawn(connection);
    let request = http::Request::post(format!("{}/v1/messages", gate.url()))
        .header("authorization", format!("Bearer {INFERENCE_KEY}"))
        .body(Full::new(bytes::Bytes::from(hello_streamed(MODEL).to_string())))
        .unwrap();
    // The body is kept and never read.
    let response = soon("an answer", sender.send_request(request)).await.unwrap();
    assert_eq!(response.status(), 200);
    soon("the upstream is let go", sim.wait_open(0)).await;
    assert!(timeout(Duration::from_secs(4), connections.join_next()).await.is_ok());
    drop(response);
}

#[tokio::test]
async fn a_stream_longer_than_a_connection_may_idle_is_not_cut() {
    let (hand, gate) = by_hand(SHORT_IDLE).await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("hello")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    call.send(&tale("hello")[3..].concat()).await;
    call.end().await;
    assert_eq!(names(&stream.rest().await).last(), Some(&"message_stop"));
}
