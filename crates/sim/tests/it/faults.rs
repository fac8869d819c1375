use std::io::ErrorKind;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Script, Sim};

use crate::client::{asks, events, post, read_until, send, soon, streams};

#[tokio::test]
async fn errors_have_the_documented_type() {
    for (code, kind) in [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "api_error"),
        (529, "overloaded_error"),
    ] {
        let sim = Sim::start(Script::status(code)).await;
        for request in [asks("hi"), streams("hi")] {
            let reply = post(&sim, &request).await;
            assert_eq!(reply.status, code);
            let body = reply.json();
            assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)));
            assert_eq!(body["request_id"], json!(reply.header("request-id").unwrap()));
        }
    }
}

#[tokio::test]
async fn an_error_can_be_worded() {
    let sim = Sim::start(Behaviour::Status {
        code: 429,
        retry_after: Some("7".into()),
        error_type: Some("overloaded_error".into()),
        message: Some("later".into()),
    })
    .await;
    let reply = post(&sim, &asks("hi")).await;
    assert_eq!(reply.header("retry-after"), Some("7"));
    assert_eq!(reply.json()["error"], json!({"type": "overloaded_error", "message": "later"}));
}

#[tokio::test]
async fn a_raw_answer_is_sent_as_given() {
    let headers = vec![("x-a".to_owned(), "1".to_owned()), ("x-a".to_owned(), "2".to_owned())];
    let sim = Sim::start(Behaviour::Raw { status: 418, headers, body: Bytes::from_static(b"\x00\xffteapot") }).await;
    let reply = post(&sim, &asks("hi")).await;
    assert_eq!((reply.status, &reply.body[..]), (418, &b"\x00\xffteapot"[..]));
    assert!(reply.head.contains("x-a: 1\r\nx-a: 2"), "{}", reply.head);
    assert_eq!(reply.header("content-type"), None);
}

fn raw_stream(end: End) -> Behaviour {
    let chunks = ["event: odd\r\nda", "ta: {}\r\n\r\n", ": bye"].map(|text| Bytes::from_static(text.as_bytes()));
    Behaviour::RawStream { chunks: chunks.to_vec(), end }
}

#[tokio::test]
async fn a_raw_stream_is_sent_as_given() {
    let sim = Sim::start(raw_stream(End::Close)).await;
    let reply = post(&sim, &streams("hi")).await;
    assert_eq!(reply.text(), "event: odd\r\ndata: {}\r\n\r\n: bye");
    assert!(reply.complete && reply.end.is_ok());
}

#[tokio::test]
async fn a_raw_stream_can_be_cut() {
    let sim = Sim::start(raw_stream(End::Cut)).await;
    let reply = post(&sim, &streams("hi")).await;
    assert!(reply.text().ends_with(": bye"));
    assert!(!reply.complete && reply.end.is_ok());
}

#[tokio::test]
async fn a_raw_stream_can_be_reset() {
    let sim = Sim::start(raw_stream(End::Reset)).await;
    let reply = post(&sim, &streams("hi")).await;
    assert!(reply.text().ends_with(": bye"));
    assert!(!reply.complete);
    assert_eq!(reply.end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn headers_go_out_before_a_fault_without_bytes() {
    let sim = Sim::start(Behaviour::RawStream { chunks: vec![], end: End::Cut }).await;
    let reply = post(&sim, &streams("hi")).await;
    assert_eq!((reply.status, reply.complete), (200, false));
}

#[tokio::test]
async fn a_stream_that_closes_early_has_no_end() {
    let sim = Sim::start(Behaviour::CloseMidStream { after: 5 }).await;
    let reply = post(&sim, &streams("hi")).await;
    let expected = ["message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta"];
    assert_eq!(reply.kinds(), expected);
    assert!(reply.text().ends_with("\n\n"));
    assert!(!reply.complete && reply.end.is_ok());
    assert_eq!((sim.open(), sim.cancelled()), (0, 0));
}

#[tokio::test]
async fn a_stream_can_close_within_an_event() {
    let sim = Sim::start(Behaviour::CloseMidFrame { after: 3 }).await;
    let reply = post(&sim, &streams("hi")).await;
    let (whole, half) = reply.text().rsplit_once("\n\n").unwrap();
    assert_eq!(events(whole).len(), 3);
    assert!(half.starts_with("event: content_block_delta\n"), "{half}");
    assert!(!reply.complete && reply.end.is_ok());
}

#[tokio::test]
async fn a_truncated_body_is_shorter_than_declared() {
    let sim = Sim::start(Behaviour::TruncatedBody).await;
    for request in [asks("hi"), streams("hi")] {
        let reply = post(&sim, &request).await;
        let declared: usize = reply.header("content-length").unwrap().parse().unwrap();
        assert!(!reply.body.is_empty() && reply.body.len() < declared);
        assert!(reply.end.is_ok());
    }
}

#[tokio::test]
async fn without_streaming_a_broken_stream_is_a_broken_body() {
    for behaviour in [Behaviour::CloseMidStream { after: 5 }, Behaviour::CloseMidFrame { after: 5 }] {
        let sim = Sim::start(behaviour).await;
        let reply = post(&sim, &asks("hi")).await;
        assert!(!reply.body.is_empty() && !reply.complete && reply.end.is_ok());
    }
}

#[tokio::test]
async fn garbage_is_a_page_with_status_200() {
    let sim = Sim::start(Behaviour::Garbage).await;
    let reply = post(&sim, &streams("hi")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html")));
    assert!(reply.text().starts_with("<!doctype html>"));
}

#[tokio::test]
async fn a_garbage_stream_is_framed_well_and_not_json() {
    let sim = Sim::start(Behaviour::GarbageStream).await;
    let reply = post(&sim, &streams("hi")).await;
    let data = reply.text().strip_prefix("event: message_start\ndata: ").unwrap().strip_suffix("\n\n").unwrap();
    assert!(serde_json::from_str::<Value>(data).is_err());
    assert!(reply.complete);
    let whole = post(&sim, &asks("hi")).await;
    assert!(serde_json::from_slice::<Value>(&whole.body).is_err());
}

#[tokio::test]
async fn an_oversize_text_is_as_long_as_asked_for() {
    let bytes = 300_000;
    let sim = Sim::start(Behaviour::Oversize { bytes }).await;
    let whole = post(&sim, &asks("hi")).await;
    assert_eq!(whole.json()["content"][0]["text"].as_str().unwrap().len(), bytes);
    assert!(whole.complete);
    let streamed = post(&sim, &streams("hi")).await;
    assert_eq!(streamed.joined("text").len(), bytes);
    assert_eq!(streamed.kinds().iter().filter(|kind| *kind == "content_block_delta").count(), 1);
}

#[tokio::test]
async fn an_error_ends_a_stream() {
    let sim = Sim::start(Behaviour::ErrorInStream {
        after: 4,
        error_type: "overloaded_error".into(),
        message: "Overloaded".into(),
    })
    .await;
    let reply = post(&sim, &streams("hi")).await;
    let expected = ["message_start", "ping", "content_block_start", "content_block_delta", "error"];
    assert_eq!(reply.kinds(), expected);
    assert_eq!(reply.events()[4]["error"], json!({"type": "overloaded_error", "message": "Overloaded"}));
    assert!(reply.complete);
    assert_eq!(post(&sim, &asks("hi")).await.status, 529);
}

#[tokio::test]
async fn a_stream_can_be_empty() {
    let sim = Sim::start(Behaviour::EmptyStream).await;
    for request in [asks("hi"), streams("hi")] {
        let reply = post(&sim, &request).await;
        assert_eq!((reply.status, reply.body.len(), reply.complete), (200, 0, true));
    }
    assert_eq!((sim.open(), sim.cancelled()), (0, 0));
}

#[tokio::test]
async fn a_stream_can_end_well_without_message_stop() {
    let sim = Sim::start(Behaviour::EndsWithoutStop).await;
    let reply = post(&sim, &streams("hi")).await;
    assert_eq!(reply.kinds().last().unwrap(), "message_delta");
    assert!(reply.complete);
    assert_eq!(post(&sim, &asks("hi")).await.json()["stop_reason"], json!(null));
}

#[tokio::test]
async fn a_hanging_call_stays_open_until_the_client_leaves() {
    let sim = Sim::start(Behaviour::HangBeforeHeaders).await;
    let socket = send(&sim, "POST", "/v1/messages", &[], streams("hi").to_string().as_bytes()).await;
    soon(sim.wait_calls(1)).await;
    assert_eq!((sim.open(), sim.cancelled()), (1, 0));
    drop(socket);
    soon(sim.wait_open(0)).await;
    assert_eq!((sim.open(), sim.cancelled()), (0, 1));
}

#[tokio::test]
async fn a_stream_can_fall_silent() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 4 }).await;
    let request = streams("hi").to_string();
    let mut socket = send(&sim, "POST", "/v1/messages", &[], request.as_bytes()).await;
    let wire = read_until(&mut socket, "event: ", 4).await;
    assert!(!wire.contains("\r\n0\r\n\r\n"));
    assert_eq!(sim.open(), 1);
    drop(socket);
    soon(sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);
}

#[tokio::test]
async fn without_streaming_silence_is_in_the_middle_of_the_body() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 4 }).await;
    let mut socket = send(&sim, "POST", "/v1/messages", &[], asks("hi").to_string().as_bytes()).await;
    read_until(&mut socket, r#""type":"message""#, 1).await;
    assert_eq!(sim.open(), 1);
    drop(socket);
    soon(sim.wait_open(0)).await;
    assert_eq!(sim.cancelled(), 1);
}
