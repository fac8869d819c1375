//! What goes wrong upstream, and what a client is told: an answer from elsewhere, or the truth in its documented form.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::GenerationId;
use tidegate_sim::{Behaviour, End, Script, Sim};
use tokio::time::Instant;

use crate::harness::{Event, Hand, Reply, Tidegate, frame, hello, hello_streamed, soon, tale};

const MODEL: &str = "vendor/m";

/// Small limits and quick timers, so that every fault shows at once.
const QUICK: &str = "
[upstream]
first_content_ms = 200
first_content_alone_ms = 400
total_whole_ms = 400
idle_ms = 300
max_event_bytes = 20000
max_answer_bytes = 20000
[stream]
keep_alive_ms = 100
";

async fn one() -> (Sim, Tidegate) {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(QUICK).run().await;
    (sim, gate)
}

async fn two() -> (Sim, Sim, Tidegate) {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = Tidegate::start().endpoint(MODEL, &first).endpoint(MODEL, &second).config(QUICK).run().await;
    (first, second, gate)
}

fn check_error(reply: &Reply, expected: (u16, &str, &str), message: Option<&str>, case: &str) {
    let (status, kind, error_type, text) = reply.error();
    assert_eq!((status, kind.as_str(), error_type.as_str()), expected, "{case}: {}", reply.body_text());
    if let Some(message) = message {
        assert_eq!(text, message, "{case}");
    }
    assert_eq!(reply.header("content-type"), Some("application/json"), "{case}");
    let id = reply.json()["request_id"].as_str().map(ToOwned::to_owned);
    assert!(id.as_deref().is_some_and(|id| GenerationId::parse(id).is_some()), "{case}: {id:?}");
    for name in ["x-generation-id", "request-id", "x-request-id"] {
        assert_eq!(reply.header(name), id.as_deref(), "{case}: {name}");
    }
}

/// A 400 is the caller's mistake, and nobody else is asked; unless the operator knows better.
#[tokio::test]
async fn what_an_operator_knows_of_errors_decides_before_anything_else() {
    let (first, second) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("second")).await);
    let rule = r#"error_rules = [{ status = 400, pattern = "(?i)quota", error_type = "rate_limit_exceeded" }]"#;
    let builder = Tidegate::start().endpoint_of(MODEL, &first.base_url(), rule, "");
    let gate = builder.endpoint(MODEL, &second).run().await;
    let said = |text: &str| Behaviour::Status {
        code: 400,
        retry_after: None,
        error_type: None,
        message: Some(text.to_owned()),
    };
    first.set(said("max_tokens is wrong"));
    assert_eq!(gate.messages(hello(MODEL)).await.status, 400);
    first.set(said("The quota of this deployment is used up"));
    let reply = gate.messages(hello(MODEL)).await;
    assert_eq!((reply.status, reply.text()), (200, "second".to_owned()));
}

/// Callers read that nobody can be reached; only the operator can mend it.
#[tokio::test]
async fn the_operator_hears_that_a_key_is_refused_once_and_not_which() {
    for status in [401, 402, 403] {
        let (sim, gate) = one().await;
        sim.set(Behaviour::status(status));
        for _ in 0..3 {
            assert_eq!(gate.messages(hello(MODEL)).await.status, 502);
        }
        gate.logs("refuses the key of this gateway").await;
        let log = gate.log();
        let told: Vec<_> =
            log.iter().filter(|line| line["msg"] == "a provider refuses the key of this gateway").collect();
        assert_eq!(told.len(), 1, "{status}: {told:?}");
        let (level, provider) = (told[0]["level"].as_str(), told[0]["provider"].as_str());
        assert_eq!((level.map(str::to_lowercase).as_deref(), provider), (Some("error"), Some("p0")), "{}", told[0]);
        assert_eq!(told[0]["status"], status);
        assert!(!gate.stderr().contains("provider-secret"));
        let metrics = gate.managed("/metrics").await;
        let line = metrics.body_text().lines().find(|line| line.starts_with("tidegate_credential_refusals_total"));
        assert!(line.is_some_and(|line| line.ends_with(" 3")), "{line:?}");
    }
}

#[tokio::test]
async fn every_upstream_status_becomes_its_documented_error() {
    let (sim, gate) = one().await;
    let unavailable = (502, "api_error", "provider_unavailable");
    let timeout = (504, "timeout_error", "timeout");
    let (broken, late) = (Some("Provider returned error"), Some("Timed out waiting for the provider"));
    let cases = [
        (
            400,
            (400, "invalid_request_error", "invalid_request"),
            Some("Provider returned error: The request is invalid"),
        ),
        (401, unavailable, broken),
        (402, unavailable, broken),
        (403, unavailable, broken),
        (404, (404, "not_found_error", "not_found"), Some("vendor/m was not found at any provider")),
        (408, timeout, late),
        (413, (413, "invalid_request_error", "payload_too_large"), None),
        (422, (422, "invalid_request_error", "unprocessable"), None),
        (429, (429, "rate_limit_error", "rate_limit_exceeded"), Some("vendor/m: no provider has capacity")),
        (500, unavailable, broken),
        (502, unavailable, broken),
        (503, (503, "overloaded_error", "provider_overloaded"), None),
        (504, timeout, late),
        (529, (529, "overloaded_error", "provider_overloaded"), Some("Provider is temporarily overloaded")),
        (418, (500, "api_error", "unmapped"), Some("Internal server error")),
        (302, (500, "api_error", "unmapped"), Some("Internal server error")),
    ];
    for (status, expected, message) in cases {
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            sim.set(Behaviour::status(status));
            let before = sim.calls();
            let reply = gate.messages(request).await;
            check_error(&reply, expected, message, &status.to_string());
            assert_eq!(sim.calls() - before, 1, "{status}: no endpoint is asked twice");
        }
    }
}

#[tokio::test]
async fn ret_2_a_failing_endpoint_falls_back_before_the_first_byte() {
    let (broken, healthy, gate) = two().await;
    healthy.set(Behaviour::says("hello"));
    let mut faults: Vec<Behaviour> =
        [401, 402, 403, 404, 408, 409, 425, 429, 500, 502, 503, 504, 529].into_iter().map(Behaviour::status).collect();
    faults.extend([
        Behaviour::Garbage,
        Behaviour::GarbageStream,
        Behaviour::TruncatedBody,
        Behaviour::EmptyStream,
        Behaviour::HangBeforeHeaders,
        Behaviour::Oversize { bytes: 50_000 },
        Behaviour::ErrorInStream { after: 0, error_type: "overloaded_error".into(), message: "Overloaded".into() },
        Behaviour::ErrorInStream { after: 2, error_type: "api_error".into(), message: "x".into() },
        Behaviour::HangMidStream { after: 1 },
        Behaviour::HangMidStream { after: 3 },
        Behaviour::CloseMidStream { after: 0 },
        Behaviour::CloseMidStream { after: 2 },
        Behaviour::CloseMidFrame { after: 2 },
        Behaviour::RawStream { chunks: vec![Bytes::from(tale("x")[0].clone())], end: End::Reset },
        Behaviour::Raw {
            status: 200,
            headers: vec![("content-type".into(), "application/json".into())],
            body: Bytes::from(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        },
    ]);
    for fault in faults {
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            let is_streamed = request["stream"] == true;
            // Half of a stream holds content, and is then no matter of falling back. Silence of a whole answer lasts as
            // long as all attempts may take together.
            let is_silent = matches!(fault, Behaviour::HangBeforeHeaders | Behaviour::HangMidStream { .. });
            if (fault == Behaviour::TruncatedBody && is_streamed) || (is_silent && !is_streamed) {
                continue;
            }
            broken.set(fault.clone());
            let before = (broken.calls(), healthy.calls());
            let reply = gate.messages(request).await;
            assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "{fault:?}: {}", reply.body_text());
            assert_eq!((broken.calls() - before.0, healthy.calls() - before.1), (1, 1), "{fault:?}");
            assert!(reply.body_text().contains(r#""provider":"P1""#), "{fault:?}");
            assert_eq!(reply.body_text().matches(r#""role":"assistant""#).count(), 1, "one message: {fault:?}");
        }
    }
}

#[tokio::test]
async fn ret_3_all_attempts_at_a_whole_answer_share_one_deadline() {
    let (first, second) = (Sim::start(Behaviour::HangBeforeHeaders).await, Sim::start(Behaviour::says("hello")).await);
    let timers = "[upstream]\ntotal_whole_ms = 3000\n";
    let gate = Tidegate::start().endpoint(MODEL, &first).endpoint(MODEL, &second).config(timers).run().await;
    let reply = gate.messages(hello(MODEL)).await;
    let expected = (504, "timeout_error", "timeout");
    check_error(&reply, expected, Some("Timed out waiting for the provider"), "no time is left");
    assert_eq!((first.calls(), second.calls()), (1, 0), "nobody is called only to be cut off");

    first.set(Script::status(503).first_byte(Duration::from_millis(2_000)));
    second.set(Behaviour::HangBeforeHeaders);
    let started = Instant::now();
    let reply = gate.messages(hello(MODEL)).await;
    let took = started.elapsed();
    check_error(&reply, (503, "overloaded_error", "provider_overloaded"), None, "the second gets what is left");
    assert_eq!((first.calls(), second.calls()), (2, 1));
    // With a time of its own for each attempt it would take five seconds.
    assert!((Duration::from_millis(2_950)..Duration::from_millis(4_900)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn ret_3_attempts_at_a_stream_share_one_deadline_until_its_content() {
    let hanging = || Sim::start(Behaviour::HangBeforeHeaders);
    let sims = [hanging().await, hanging().await, Sim::start(Behaviour::says("hello")).await];
    let timers = "[upstream]\nfirst_content_ms = 600\ntotal_streamed_ms = 900\n";
    let gate = sims.iter().fold(Tidegate::start(), |gate, sim| gate.endpoint(MODEL, sim)).config(timers).run().await;
    let reply = gate.messages(hello_streamed(MODEL)).await;
    let (message, expected) =
        ("vendor/m: no provider is reachable at the moment", (503, "overloaded_error", "provider_overloaded"));
    check_error(&reply, expected, Some(message), "600 ms for the first, 300 for the second, none for the third");
    assert_eq!(sims.each_ref().map(Sim::calls), [1, 1, 0]);
}

#[tokio::test]
async fn ret_2_what_the_caller_must_fix_is_not_tried_elsewhere() {
    let (first, second, gate) = two().await;
    second.set(Behaviour::says("hello"));
    for (status, expected) in [(400, 400), (413, 413), (422, 422)] {
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            first.set(Behaviour::status(status));
            let before = (first.calls(), second.calls());
            assert_eq!(gate.messages(request).await.status, expected);
            assert_eq!((first.calls() - before.0, second.calls() - before.1), (1, 0), "{status}");
        }
    }
}

#[tokio::test]
async fn an_unreachable_endpoint_falls_back_and_alone_is_a_502() {
    let healthy = Sim::start(Behaviour::says("hello")).await;
    let gone = Sim::start(Behaviour::Echo).await;
    let address = gone.base_url();
    gone.stop().await;
    let gate = Tidegate::start()
        .endpoint_at(MODEL, &address, "")
        .endpoint(MODEL, &healthy)
        .endpoint_at("vendor/alone", &address, "")
        .run()
        .await;
    for request in [hello(MODEL), hello_streamed(MODEL)] {
        assert_eq!(gate.messages(request).await.text(), "hello");
    }
    for request in [hello("vendor/alone"), hello_streamed("vendor/alone")] {
        let reply = gate.messages(request).await;
        check_error(&reply, (502, "api_error", "provider_unavailable"), Some("Provider returned error"), "alone");
    }
}

#[tokio::test]
async fn nobody_is_told_to_wait_for_what_waiting_does_not_change() {
    let (sim, gate) = one().await;
    for (code, waits) in [(404, false), (429, true)] {
        sim.set(Behaviour::Status { code, retry_after: Some("7".to_owned()), error_type: None, message: None });
        let reply = gate.messages(hello(MODEL)).await;
        let availability = &reply.json()["error"]["availability"];
        assert_eq!((&availability["retryable"], availability.get("retry_after").is_some()), (&json!(waits), waits));
    }
}

#[tokio::test]
async fn when_all_endpoints_fail_the_most_useful_story_is_told() {
    let (first, second, gate) = two().await;
    let exhausted = (429, "rate_limit_error", "rate_limit_exceeded");
    let passing = (503, "overloaded_error", "provider_overloaded");
    let unreachable = "vendor/m: no provider is reachable at the moment";
    let cases = [
        ((429, 429), exhausted, "vendor/m: no provider has capacity", "capacity_exhausted"),
        (
            (404, 404),
            (404, "not_found_error", "not_found"),
            "vendor/m was not found at any provider",
            "model_unavailable_upstream",
        ),
        ((429, 500), passing, unreachable, "temporarily_unavailable"),
        ((500, 500), passing, unreachable, "temporarily_unavailable"),
        ((503, 529), passing, unreachable, "temporarily_unavailable"),
        ((504, 429), passing, unreachable, "temporarily_unavailable"),
        (
            (503, 400),
            (400, "invalid_request_error", "invalid_request"),
            "Provider returned error: The request is invalid",
            "",
        ),
        // Waiting does not help against a wrong key at every provider.
        ((401, 401), (502, "api_error", "provider_unavailable"), "Provider returned error", ""),
        ((403, 402), (502, "api_error", "provider_unavailable"), "Provider returned error", ""),
    ];
    for ((one, other), expected, message, code) in cases {
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            first.set(Behaviour::status(one));
            second.set(Behaviour::status(other));
            let case = format!("{one}, {other}");
            let reply = gate.messages(request).await;
            check_error(&reply, expected, Some(message), &case);
            let json = reply.json();
            let availability = &json["error"]["availability"];
            assert_eq!(availability["code"].as_str().unwrap_or_default(), code, "{case}");
            if !code.is_empty() {
                assert_eq!(availability["requested_models"], json!([MODEL]), "{case}");
                assert_eq!(availability["affected_providers"], json!(["p0", "p1"]), "{case}");
                assert_eq!(availability["docs_url"], format!("{}/docs/errors#{code}", gate.url()), "{case}");
                assert_eq!(availability["retryable"], code != "model_unavailable_upstream", "{case}");
            }
            assert_eq!(reply.header("x-ratelimit-limit"), None, "{case}: it is no limit of ours");
            let previous = &json["metadata"]["previous_errors"];
            let statuses: Vec<&Value> = previous.as_array().unwrap().iter().map(|error| &error["status"]).collect();
            assert_eq!(statuses, [&json!(one), &json!(other)], "{case}");
        }
    }
}

#[tokio::test]
async fn a_credential_that_was_refused_is_passed_over_while_others_can_serve() {
    for status in [401, 402, 403] {
        let (broken, healthy) =
            (Sim::start(Behaviour::status(status)).await, Sim::start(Behaviour::says("hello")).await);
        let with_health = "[routing]\nhealth = true\n";
        let gate = Tidegate::start().endpoint(MODEL, &broken).endpoint(MODEL, &healthy).config(with_health).run().await;
        for _ in 0..3 {
            assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
        }
        assert_eq!((broken.calls(), healthy.calls()), (1, 3), "{status}");
        // Where nobody else can, it is asked as before.
        healthy.set(Behaviour::status(503));
        assert_eq!(gate.messages(hello(MODEL)).await.status, 503, "{status}");
        assert_eq!(broken.calls(), 2, "{status}");
    }
}

#[tokio::test]
async fn members_that_one_caller_makes_up_do_not_keep_others_from_being_helped() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), "betas = false", "").config(QUICK).run().await;
    let refused = |name: &str| Behaviour::Status {
        code: 400,
        retry_after: None,
        error_type: None,
        message: Some(format!("{name}: Extra inputs are not permitted")),
    };
    // More than are remembered; the first is forgotten again by then.
    for number in (0..40).chain([0]) {
        let name = format!("made_up_{number}");
        sim.set(Script::from(refused(&name)).then(Behaviour::says("hello")));
        let before = sim.calls();
        let mut body = hello(MODEL);
        body[&name] = json!(1);
        let reply = gate.messages(body).await;
        assert_eq!((reply.status, sim.calls() - before), (200, 2), "{name}: {}", reply.body_text());
        assert_eq!(sim.requests().pop().expect("it was asked").json()[&name], Value::Null);
    }
    let mut body = hello(MODEL);
    body["made_up_39"] = json!(1);
    sim.set(Behaviour::says("hello"));
    assert_eq!(gate.messages(body).await.status, 200);
    let sent = sim.requests().pop().expect("it was asked").json();
    assert_eq!(sent["made_up_39"], Value::Null, "what was learnt last is known");
}

#[tokio::test]
async fn the_smallest_retry_hint_is_passed_on() {
    let (first, second, gate) = two().await;
    let limited = |after: &str| Behaviour::Status {
        code: 429,
        retry_after: Some(after.to_owned()),
        error_type: None,
        message: None,
    };
    first.set(limited("12"));
    second.set(limited("7"));
    let reply = gate.messages(hello(MODEL)).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("7")));
    assert_eq!(reply.json()["error"]["availability"]["retry_after"], 7);
    assert_eq!(reply.error().3, "vendor/m: no provider has capacity, retry after 7 s");
    // Never on success.
    second.set(Behaviour::says("hello"));
    assert_eq!(gate.messages(hello(MODEL)).await.header("retry-after"), None);
}

#[tokio::test]
async fn models_of_the_request_are_tried_in_their_order() {
    let (small, large) = (Sim::start(Behaviour::status(529)).await, Sim::start(Behaviour::says("hello")).await);
    let gate = Tidegate::start().endpoint("vendor/small", &small).endpoint("vendor/large", &large).run().await;
    for extra in [json!({"models": ["vendor/large"]}), json!({"fallbacks": [{"model": "vendor/large"}]})] {
        // A refused request moves on to another model too.
        for status in [529, 400] {
            small.set(Behaviour::status(status));
            let mut request = hello("vendor/small");
            request.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            let reply = gate.messages(request).await;
            let json = reply.json();
            assert_eq!((reply.status, &json["model"], &json["provider"]), (200, &json!("vendor/large"), &json!("P1")));
        }
    }
}

#[tokio::test]
async fn a_prompt_too_long_goes_only_where_there_is_more_room() {
    let sims =
        [Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await];
    let gate = Tidegate::start()
        .endpoint_with(MODEL, &sims[0], "context_length = 1000")
        .endpoint_with(MODEL, &sims[1], "context_length = 500")
        .endpoint_with(MODEL, &sims[2], "context_length = 2000")
        .run()
        .await;
    let too_long = |text: &str| Behaviour::Status {
        code: 400,
        retry_after: None,
        error_type: None,
        message: Some(text.to_owned()),
    };
    sims[0].set(too_long("prompt is too long: 1200 tokens > 1000 maximum"));
    sims[1].set(Behaviour::says("wrong"));
    sims[2].set(Behaviour::says("hello"));
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
    assert_eq!([sims[0].calls(), sims[1].calls(), sims[2].calls()], [1, 0, 1]);

    sims[2].set(too_long("prompt is too long: 2200 tokens > 2000 maximum"));
    let reply = gate.messages(hello_streamed(MODEL)).await;
    let expected = (400, "invalid_request_error", "context_length_exceeded");
    check_error(&reply, expected, Some("prompt is too long: 2200 tokens > 2000 maximum"), "Anthropic's words");
    // Other words get the beginning that clients look for.
    sims[2].set(too_long("This model's maximum context length is 2000 tokens"));
    let reply = gate.messages(hello(MODEL)).await;
    check_error(
        &reply,
        expected,
        Some("prompt is too long: This model's maximum context length is 2000 tokens"),
        "other words",
    );
}

#[tokio::test]
async fn the_providers_words_are_kept_without_secrets_and_not_without_end() {
    let (sim, gate) = one().await;
    let key = format!("sk-ant-api03-{}", "abcdEFGH".repeat(4));
    let words = format!(
        "messages.0: bad key {key}, api_key={key}\n\"{key}\" Authorization: Bearer t0ken! at https://10.0.0.7:8000/v1?x=1 (http://internal.host/a) end"
    );
    sim.set(Behaviour::Status { code: 400, retry_after: None, error_type: None, message: Some(words) });
    let message = gate.messages(hello(MODEL)).await.error().3;
    assert!(message.starts_with("Provider returned error: messages.0: bad key "), "{message}");
    assert!(message.ends_with(" end"), "{message}");
    for secret in ["abcdEFGH", "t0ken", "10.0.0.7", "internal.host"] {
        assert!(!message.contains(secret), "{secret} in {message}");
    }

    sim.set(Behaviour::Status { code: 400, retry_after: None, error_type: None, message: Some("é ".repeat(5_000)) });
    let message = gate.messages(hello(MODEL)).await.error().3;
    assert_eq!(message.chars().count(), "Provider returned error: ".len() + 2_000);
}

#[tokio::test]
async fn the_providers_words_stay_inside_when_the_fault_is_not_the_callers() {
    let (sim, gate) = one().await;
    for code in [401, 402, 403, 404, 418, 429, 500, 503, 529] {
        let message = Some("internal words of the provider".to_owned());
        sim.set(Behaviour::Status { code, retry_after: None, error_type: None, message });
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            let reply = gate.messages(request).await;
            assert!(!reply.body_text().contains("internal words"), "{code}: {}", reply.body_text());
        }
    }
}

#[tokio::test]
async fn details_of_the_providers_error_are_kept() {
    let (sim, gate) = one().await;
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no","details":{"error_visibility":"user_facing","n":1.0}},"request_id":"req_up"}"#;
    sim.set(Behaviour::Raw { status: 400, headers: vec![], body: Bytes::from(body) });
    let json = gate.messages(hello(MODEL)).await.json();
    assert_eq!(json["error"]["details"], json!({"error_visibility": "user_facing", "n": 1.0}));
    assert_eq!(json["error"]["message"], "Provider returned error: no");
    assert_eq!((&json["metadata"]["provider_name"], json["request_id"] == "req_up"), (&json!("P0"), false));
}

#[tokio::test]
async fn a_content_filter_of_the_provider_is_named_as_such() {
    let (sim, gate) = one().await;
    let body = r#"{"error":{"code":"content_filter","message":"filtered"}}"#;
    sim.set(Behaviour::Raw { status: 400, headers: vec![], body: Bytes::from(body) });
    let reply = gate.messages(hello(MODEL)).await;
    let expected = (400, "invalid_request_error", "content_policy_violation");
    check_error(&reply, expected, Some("Provider returned error: filtered"), "filter");
}

#[tokio::test]
async fn errors_carry_routing_metadata_when_asked_for_but_not_with_a_500() {
    let (sim, gate) = one().await;
    for (status, expected) in [(529, true), (400, true), (418, false)] {
        sim.set(Behaviour::status(status));
        let ask = gate.ask("POST", "/v1/messages").key(crate::harness::INFERENCE_KEY);
        let reply = ask.header("x-tidegate-metadata", "enabled").json(hello(MODEL).to_string()).send().await;
        assert_eq!(reply.json().get("tidegate_metadata").is_some(), expected, "{status}");
    }
}

#[tokio::test]
async fn str_3_no_broken_answer_is_ever_a_success() {
    let (sim, gate) = one().await;
    let before_content = [
        Behaviour::Garbage,
        Behaviour::GarbageStream,
        Behaviour::TruncatedBody,
        Behaviour::EmptyStream,
        Behaviour::Oversize { bytes: 50_000 },
        Behaviour::CloseMidStream { after: 0 },
        Behaviour::CloseMidStream { after: 1 },
        Behaviour::CloseMidStream { after: 3 },
        Behaviour::CloseMidFrame { after: 2 },
        Behaviour::RawStream { chunks: vec![], end: End::Reset },
        Behaviour::RawStream { chunks: vec![Bytes::from_static(b"data: 7\n\n")], end: End::Close },
        Behaviour::RawStream { chunks: vec![Bytes::from_static(&[0xff; 64])], end: End::Close },
    ];
    for fault in before_content {
        sim.set(fault.clone());
        let reply = gate.messages(hello_streamed(MODEL)).await;
        let expected = (502, "api_error", "provider_unavailable");
        // Half of a stream holds content: what was in it is then followed by the in-band error.
        if reply.status == 200 {
            assert_eq!(fault, Behaviour::TruncatedBody);
            assert_broken_off(&reply.events());
        } else {
            check_error(&reply, expected, Some("Provider returned error"), &format!("{fault:?}"));
        }
        let streams_only = matches!(fault, Behaviour::RawStream { .. });
        if !streams_only {
            let reply = gate.messages(hello(MODEL)).await;
            check_error(&reply, expected, Some("Provider returned error"), &format!("{fault:?}, whole"));
        }
    }
    for fault in
        [Behaviour::HangBeforeHeaders, Behaviour::HangMidStream { after: 0 }, Behaviour::HangMidStream { after: 1 }]
    {
        sim.set(fault.clone());
        for request in [hello(MODEL), hello_streamed(MODEL)] {
            let reply = gate.messages(request).await;
            let expected = (504, "timeout_error", "timeout");
            check_error(&reply, expected, Some("Timed out waiting for the provider"), &format!("{fault:?}"));
        }
        soon("the hanging call is dropped", sim.wait_open(0)).await;
    }
}

#[tokio::test]
async fn an_answer_of_nothing_for_no_reason_is_a_502() {
    let (sim, gate) = one().await;
    let events = tale("x");
    let silent =
        frame("message_delta", r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":0}}"#);
    for stream in [format!("{}{}", events[0], events[5]), format!("{}{silent}{}", events[0], events[5])] {
        sim.set(Behaviour::RawStream { chunks: vec![Bytes::from(stream)], end: End::Close });
        let reply = gate.messages(hello_streamed(MODEL)).await;
        check_error(&reply, (502, "api_error", "provider_unavailable"), Some("Provider returned error"), "streamed");
    }
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":0}}"#;
    sim.set(Behaviour::Raw { status: 200, headers: vec![], body: Bytes::from(body) });
    let reply = gate.messages(hello(MODEL)).await;
    check_error(&reply, (502, "api_error", "provider_unavailable"), Some("Provider returned error"), "whole");
}

#[tokio::test]
async fn an_empty_answer_with_a_reason_is_an_answer() {
    let (sim, gate) = one().await;
    let events = tale("x");
    let stream = [&events[0], &events[4], &events[5]].map(String::as_str).concat();
    sim.set(Behaviour::RawStream { chunks: vec![Bytes::from(stream)], end: End::Close });
    let reply = gate.messages(hello_streamed(MODEL)).await;
    let names: Vec<String> = reply.events().into_iter().map(|event| event.name).collect();
    assert_eq!(
        (reply.status, names),
        (200, ["message_start", "ping", "message_delta", "message_stop"].map(str::to_owned).to_vec())
    );
}

#[tokio::test]
async fn an_answer_that_ends_without_a_reason_has_come_to_its_end() {
    let (sim, gate) = one().await;
    let events = tale("hello");
    for delta in [r#"{"stop_reason":null,"stop_sequence":null}"#, "{}"] {
        let data = format!(r#"{{"type":"message_delta","delta":{delta},"usage":{{"output_tokens":9}}}}"#);
        let stream = [&events[..4].concat(), &frame("message_delta", &data), &events[5]].map(String::as_str).concat();
        // In one piece, and event by event.
        let pieces = stream.split_inclusive("\n\n").map(|piece| Bytes::from(piece.to_owned())).collect();
        for chunks in [vec![Bytes::from(stream.clone())], pieces] {
            sim.set(Behaviour::RawStream { chunks, end: End::Close });
            let events = gate.messages(hello_streamed(MODEL)).await.events();
            let [.., delta, stop] = &events[..] else { panic!("{events:?}") };
            assert_eq!((delta.name.as_str(), stop.name.as_str()), ("message_delta", "message_stop"));
            assert_eq!(delta.json()["delta"]["stop_reason"], "end_turn");
            assert_eq!(events[0].json()["message"]["stop_reason"], Value::Null);
        }
    }
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;
    sim.set(Behaviour::Raw { status: 200, headers: vec![], body: Bytes::from(body) });
    let reply = gate.messages(hello(MODEL)).await;
    assert_eq!((reply.text(), &reply.json()["stop_reason"]), ("hello".to_owned(), &json!("end_turn")));
}

#[tokio::test]
async fn a_frame_torn_at_the_end_of_a_stream_does_not_swallow_the_error() {
    let (sim, gate) = one().await;
    let events = tale("hello");
    let torn = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"del";
    let stream = [&events[..3].concat(), torn].concat();
    sim.set(Behaviour::RawStream { chunks: vec![Bytes::from(stream)], end: End::Close });
    let seen = gate.messages(hello_streamed(MODEL)).await.events();
    assert_broken_off(&seen);
    assert!(seen.iter().all(|event| event.json().is_object()), "{seen:?}");
    // A last event that lacks only its blank line is an event, and leaves with one.
    let whole = events.concat();
    sim.set(Behaviour::RawStream { chunks: vec![Bytes::from(whole.trim_end().to_owned())], end: End::Close });
    let reply = gate.messages(hello_streamed(MODEL)).await;
    assert!(reply.body.ends_with(b"\n\n"));
    assert_eq!(reply.events().last().map(|event| event.name.clone()).as_deref(), Some("message_stop"));
}

#[tokio::test]
async fn an_error_whose_details_take_several_lines_is_still_one_event() {
    let error = "event: error\ndata: {\"type\":\"error\",\ndata: \"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\",\ndata: \"details\":{\ndata: \"error_code\":\"x\"}}}\n\n";
    let events = after_content(async |mut call| {
        call.send(error).await;
        call.end().await;
    })
    .await;
    assert_eq!(assert_broken_off(&events)["error"]["type"], "overloaded_error");
}

/// The in-band error stands last, exactly once, and nothing pretends to be an end.
fn assert_broken_off(events: &[Event]) -> Value {
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.last(), Some(&"error"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "error").count(), 1, "{names:?}");
    for end in ["message_stop", "message_delta"] {
        assert!(!names.contains(&end), "{names:?}");
    }
    let data = events.last().expect("it is there").json();
    assert_eq!(data["type"], "error");
    assert!(data["request_id"].as_str().is_some_and(|id| GenerationId::parse(id).is_some()), "{data}");
    data
}

/// Plays a stream by hand up to its first content, lets the client read it, then does something to the upstream.
async fn after_content<F: Future<Output = ()>>(act: impl FnOnce(crate::harness::Call) -> F) -> Vec<Event> {
    let (hand, spare) = (Hand::start().await, Sim::start(Behaviour::says("never")).await);
    let gate = Tidegate::start()
        .endpoint_at(MODEL, &hand.base_url(), "")
        .endpoint(MODEL, &spare)
        .config(QUICK)
        // The first bytes come when the machine has time for them.
        .config("[upstream]\nfirst_content_ms = 20000\n")
        .run()
        .await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("half").drain(..3).collect::<String>()).await;
        call
    };
    let (mut stream, call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    let id = stream.id();
    let mut events = stream.until("content_block_delta").await;
    let ((), rest) = tokio::join!(act(call), stream.rest());
    events.extend(rest);
    assert_eq!(spare.calls(), 0, "content has been sent: nobody else may be asked");
    let data = assert_broken_off(&events);
    assert_eq!(data["request_id"], json!(id));
    assert!(!events.iter().any(|event| event.name == "content_block_stop"), "open blocks are not closed");
    events
}

fn last_error(events: &[Event]) -> (String, String, String) {
    let error = events.last().expect("a stream has an end").json()["error"].clone();
    let member = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (member("type"), member("error_type"), member("message"))
}

fn expected(kind: &str, error_type: &str, message: &str) -> (String, String, String) {
    (kind.to_owned(), error_type.to_owned(), message.to_owned())
}

#[tokio::test]
async fn str_3_an_error_event_after_content_ends_the_stream_in_band() {
    let cases = [
        ("overloaded_error", expected("overloaded_error", "provider_overloaded", "Provider is temporarily overloaded")),
        ("api_error", expected("api_error", "provider_unavailable", "Provider returned error")),
        ("timeout_error", expected("timeout_error", "timeout", "Timed out waiting for the provider")),
    ];
    for (kind, expected) in cases {
        let event = json!({"type": "error", "error": {"type": kind, "message": "internal words"}});
        let events = after_content(async move |mut call| {
            call.send(&frame("error", &event.to_string())).await;
            call.gone().await;
        })
        .await;
        assert_eq!(last_error(&events), expected);
        assert!(!events.iter().any(|event| event.data.contains("internal words")));
    }
}

#[tokio::test]
async fn str_3_a_connection_cut_after_content_ends_the_stream_in_band() {
    let events = after_content(async |call| drop(call)).await;
    assert_eq!(last_error(&events), expected("api_error", "provider_unavailable", "Provider returned error"));
}

#[tokio::test]
async fn str_3_a_cut_in_the_middle_of_an_event_shows_nothing_of_that_event() {
    let events = after_content(async |mut call| {
        call.send("event: content_block_delta\ndata: {\"type\":\"content_blo").await;
    })
    .await;
    assert_eq!(events[events.len() - 2].json()["delta"]["text"], "half");
}

#[tokio::test]
async fn str_3_a_proper_end_without_the_marker_is_an_error() {
    let events = after_content(async |call| call.end().await).await;
    assert_eq!(last_error(&events), expected("api_error", "provider_unavailable", "Provider returned error"));
}

#[tokio::test]
async fn str_3_p22_silence_after_content_is_a_timeout() {
    let events = after_content(async |mut call| call.gone().await).await;
    assert_eq!(last_error(&events), expected("timeout_error", "timeout", "Timed out waiting for the provider"));
    assert!(events.iter().filter(|event| event.name == "ping").count() >= 2, "the silence was filled with pings");
}

#[tokio::test]
async fn str_3_an_event_beyond_its_limit_ends_the_stream_in_band() {
    let events = after_content(async |mut call| {
        // Never a blank line: the event would grow without end.
        let _ = soon("the gateway gives up", async {
            for _ in 0..3 {
                call.send(&format!("data: {}\n", "x".repeat(10_000))).await;
            }
            call.gone().await;
        })
        .await;
    })
    .await;
    assert_eq!(last_error(&events), expected("api_error", "provider_unavailable", "Provider returned error"));
}

#[tokio::test]
async fn str_3_broken_json_in_an_event_the_gateway_reads_ends_the_stream_in_band() {
    let events = after_content(async |mut call| {
        call.send("event: message_delta\ndata: {\"type\":\"message_delta\",\n\n").await;
        call.gone().await;
    })
    .await;
    assert_eq!(last_error(&events), expected("api_error", "provider_unavailable", "Provider returned error"));
}

#[tokio::test]
async fn a_stream_longer_than_its_time_ends_in_band() {
    let hand = Hand::start().await;
    let timers = "[upstream]\ntotal_streamed_ms = 300\n[stream]\nkeep_alive_ms = 50\n";
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(timers).run().await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        let events = tale("x");
        call.send(&events[..3].concat()).await;
        // Alive all the time, and yet too long.
        let ticking = async {
            loop {
                call.write(format!("{:x}\r\n{}\r\n", events[2].len(), events[2]).as_bytes()).await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_millis(250), ticking).await;
        call.gone().await;
    };
    let ((), reply) = tokio::join!(answering, async { gate.stream(hello_streamed(MODEL)).await.rest().await });
    assert_broken_off(&reply);
    assert_eq!(last_error(&reply).0, "timeout_error");
}
