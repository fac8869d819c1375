//! Errors and faults on the protocols beside Messages.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Protocol, Script, Sim};

use crate::client::{call, send as open, soon};
use crate::spoken::{OTHERS, ask, data, path, send};

#[tokio::test]
async fn errors_are_in_the_vendors_shape() {
    let sim = Sim::start(Script::default()).await;
    for (status, kind, code, word) in [
        (400, "invalid_request_error", None, "INVALID_ARGUMENT"),
        (401, "invalid_request_error", Some("invalid_api_key"), "UNAUTHENTICATED"),
        (404, "invalid_request_error", Some("model_not_found"), "NOT_FOUND"),
        (429, "requests", Some("rate_limit_exceeded"), "RESOURCE_EXHAUSTED"),
        (500, "server_error", None, "INTERNAL"),
        (503, "service_unavailable_error", Some("server_is_overloaded"), "UNAVAILABLE"),
        (504, "server_error", Some("timeout"), "DEADLINE_EXCEEDED"),
    ] {
        let model = format!("sim-status-{status}");
        for protocol in OTHERS {
            for stream in [false, true] {
                let reply = send(&sim, protocol, &model, ask(protocol, &model, "hi"), stream).await;
                assert_eq!((reply.status, reply.header("content-type")), (status, Some("application/json")));
                let error = &reply.json()["error"];
                assert!(!error["message"].as_str().unwrap().is_empty());
                match protocol {
                    Protocol::Gemini => assert_eq!((&error["code"], &error["status"]), (&json!(status), &json!(word))),
                    _ => assert_eq!(
                        (&error["type"], &error["code"], &error["param"]),
                        (&json!(kind), &json!(code), &json!(null))
                    ),
                }
            }
        }
    }
}

#[tokio::test]
async fn retry_hints_are_the_vendors() {
    let sim = Sim::start(Script::default()).await;
    let limited =
        |retry: &str| Behaviour::Status { code: 429, retry_after: Some(retry.into()), error_type: None, message: None };
    for protocol in [Protocol::Chat, Protocol::Responses] {
        sim.set(limited("2.5"));
        let reply = send(&sim, protocol, "m", ask(protocol, "m", "hi"), false).await;
        let header = |name: &str| reply.header(name).map(str::to_owned);
        assert_eq!(header("retry-after").as_deref(), Some("2.5"));
        assert_eq!(header("retry-after-ms").as_deref(), Some("2500"));
        assert_eq!(header("x-ratelimit-remaining-requests").as_deref(), Some("0"));
        assert_eq!(header("x-ratelimit-reset-requests").as_deref(), Some("2.5s"));
    }
    let reply = send(&sim, Protocol::Gemini, "m", ask(Protocol::Gemini, "m", "hi"), false).await;
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"});
    assert_eq!((reply.header("retry-after"), &reply.json()["error"]["details"][0]), (None, &retry));
    sim.set(limited("Wed, 21 Oct 2026 07:28:00 GMT"));
    for protocol in OTHERS {
        let reply = send(&sim, protocol, "m", ask(protocol, "m", "hi"), false).await;
        assert_eq!(reply.header("retry-after"), Some("Wed, 21 Oct 2026 07:28:00 GMT"), "{protocol:?}");
    }
}

#[tokio::test]
async fn an_error_can_be_worded_in_the_vendors_words() {
    let word = |word: &str| Behaviour::Status {
        code: 429,
        retry_after: None,
        error_type: Some(word.into()),
        message: Some("no".into()),
    };
    let sim = Sim::start(word("insufficient_quota")).await;
    let error = send(&sim, Protocol::Chat, "m", ask(Protocol::Chat, "m", "hi"), false).await.json();
    assert_eq!(
        error["error"],
        json!({"message": "no", "type": "insufficient_quota", "param": null, "code": "insufficient_quota"})
    );
    sim.set(word("FAILED_PRECONDITION"));
    let error = send(&sim, Protocol::Gemini, "m", ask(Protocol::Gemini, "m", "hi"), false).await.json();
    assert_eq!(error["error"], json!({"code": 429, "message": "no", "status": "FAILED_PRECONDITION"}));
}

#[tokio::test]
async fn keys_are_refused_as_the_vendor_refuses_them() {
    let sim = Sim::start(Script::says("hello").require_key("right")).await;
    for (protocol, headers, status, word) in [
        (Protocol::Chat, vec![], 401, ""),
        (Protocol::Chat, vec![("authorization", "Bearer wrong")], 401, "invalid_api_key"),
        (Protocol::Chat, vec![("authorization", "Bearer right")], 200, ""),
        (Protocol::Chat, vec![("api-key", "right")], 200, ""),
        (Protocol::Responses, vec![("x-api-key", "right")], 401, ""),
        (Protocol::Responses, vec![("authorization", "Bearer right")], 200, ""),
        (Protocol::Gemini, vec![], 403, "PERMISSION_DENIED"),
        (Protocol::Gemini, vec![("x-goog-api-key", "wrong")], 400, "API_KEY_INVALID"),
        (Protocol::Gemini, vec![("authorization", "Bearer wrong")], 401, "UNAUTHENTICATED"),
        (Protocol::Gemini, vec![("x-goog-api-key", "right")], 200, ""),
    ] {
        let body = ask(protocol, "m", "hi").to_string();
        let reply = call(&sim, "POST", &path(protocol, "m", false), &headers, body.as_bytes()).await;
        assert_eq!(reply.status, status, "{headers:?}");
        assert!(reply.text().contains(word), "{}", reply.text());
    }
}

#[tokio::test]
async fn an_error_inside_a_stream() {
    let sim = Sim::start(Script::default()).await;
    for protocol in OTHERS {
        let request = ask(protocol, "sim-error-mid", "hi");
        let reply = send(&sim, protocol, "sim-error-mid", request.clone(), true).await;
        assert!(reply.complete && reply.status == 200);
        let events = data(reply.text());
        assert_eq!(events.len(), 6);
        let expected = match protocol {
            Protocol::Gemini => json!({"error": {"code": 529, "message": "Overloaded", "status": "UNAVAILABLE"}}),
            Protocol::Chat => json!({"error": {
                "message": "Overloaded", "type": "service_unavailable_error", "param": null,
                    "code": "server_is_overloaded",
            }}),
            _ => json!({
                "type": "error", "code": "server_is_overloaded", "message": "Overloaded", "param": null,
                    "sequence_number": 5,
            }),
        };
        assert_eq!(events[5], expected);
        assert_eq!(send(&sim, protocol, "sim-error-mid", request, false).await.status, 529);
    }
}

#[tokio::test]
async fn broken_answers() {
    let sim = Sim::start(Script::default()).await;
    for protocol in OTHERS {
        for stream in [false, true] {
            let reply = async |model: &str| send(&sim, protocol, model, ask(protocol, model, "hi"), stream).await;
            for model in ["sim-close-mid", "sim-close-frame", "sim-truncated"] {
                let reply = reply(model).await;
                assert!(
                    !reply.complete && !reply.body.is_empty() && reply.end.is_ok(),
                    "{model} {protocol:?} {stream}"
                );
            }
            assert!(reply("sim-garbage").await.text().starts_with("<!doctype html>"));
            let garbage = reply("sim-garbage-stream").await;
            let json = garbage.text().rsplit("data: ").next().unwrap().trim();
            assert!(serde_json::from_str::<Value>(json).is_err());
            assert_eq!((reply("sim-empty").await.body.len(), reply("sim-empty").await.status), (0, 200));
        }
        assert_eq!(
            data(send(&sim, protocol, "sim-close-mid", ask(protocol, "sim-close-mid", "hi"), true).await.text()).len(),
            5
        );
    }
}

#[tokio::test]
async fn a_stream_can_end_well_and_unfinished() {
    let sim = Sim::start(Script::default()).await;
    for protocol in OTHERS {
        for stream in [false, true] {
            let reply = send(&sim, protocol, "sim-no-stop", ask(protocol, "sim-no-stop", "hi"), stream).await;
            assert!(reply.complete);
            for word in ["[DONE]", "\"STOP\"", "\"stop\"", "response.completed"] {
                assert!(!reply.text().contains(word), "{protocol:?} {stream} {word}");
            }
        }
    }
}

#[tokio::test]
async fn an_oversize_text_is_made_on_the_way() {
    let bytes = 200_000;
    let sim = Sim::start(Behaviour::Oversize { bytes }).await;
    for protocol in OTHERS {
        let whole = send(&sim, protocol, "m", ask(protocol, "m", "hi"), false).await;
        assert_eq!(crate::spoken::whole(protocol, &whole.json()).text.len(), bytes);
        let stream = send(&sim, protocol, "m", ask(protocol, "m", "hi"), true).await;
        assert_eq!(crate::spoken::streamed(protocol, &data(stream.text())).text.len(), bytes);
    }
}

#[tokio::test]
async fn silence_lasts_until_the_client_leaves() {
    let sim = Sim::start(Script::default()).await;
    for protocol in OTHERS {
        for model in ["sim-hang", "sim-hang-mid"] {
            let calls = sim.calls();
            let body = ask(protocol, model, "hi").to_string();
            let socket = open(&sim, "POST", &path(protocol, model, true), &[], body.as_bytes()).await;
            soon(sim.wait_calls(calls + 1)).await;
            assert_eq!(sim.open(), 1);
            drop(socket);
            soon(sim.wait_open(0)).await;
        }
    }
    assert_eq!(sim.cancelled(), 6);
}

#[tokio::test]
async fn other_methods_are_refused_in_the_protocols_shape() {
    let sim = Sim::start(Script::default()).await;
    for protocol in OTHERS {
        let reply = call(&sim, "GET", &path(protocol, "m", false), &[], b"").await;
        assert_eq!(reply.status, 405);
        assert!(reply.json()["error"]["message"].is_string() && reply.json().get("type").is_none());
        let reply = call(&sim, "POST", &path(protocol, "m", false), &[], b"{").await;
        assert_eq!(reply.status, 400);
    }
}
