//! Answers that are given once more to those who ask for it (`X-Tidegate-Cache`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::asks;
use crate::harness::{
    Account, Ask, Database, Hand, INFERENCE_KEY, Reply, Tidegate, eventually, hello, hello_streamed, on_both, soon,
    tale,
};
use crate::money::key;

const MODEL: &str = "vendor/m";
/// 14 tokens in and 9 out, at $3 and $15 a million: 42 + 135 micro-dollars.
const PRICED: &str = "pricing = { input = 3, output = 15, cache_read = 0.3 }";

/// A whole answer to whole requests.
fn whole(text: &str) -> Behaviour {
    let body = json!({
        "id": "msg_up", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {"input_tokens": 14, "output_tokens": 9, "cache_creation": {"ephemeral_5m_input_tokens": 0}},
    });
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Behaviour::Raw { status: 200, headers, body: Bytes::from(body.to_string()) }
}

fn streamed(text: &str) -> Behaviour {
    Behaviour::RawStream { chunks: tale(text).into_iter().map(Bytes::from).collect(), end: Default::default() }
}

/// A request that wants its answer kept.
fn cached(gate: &Tidegate, body: &Value) -> Ask {
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
    ask.json(body.to_string())
}

fn status(reply: &Reply) -> Option<&str> {
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    reply.header("x-tidegate-cache-status")
}

/// The message of an answer, put together if it was streamed.
fn message(reply: &Reply, is_stream: bool) -> Value {
    if !is_stream {
        return reply.json();
    }
    let events = reply.events();
    let of = |name: &str| events.iter().find(|event| event.name == name).unwrap_or_else(|| panic!("{name}")).json();
    let mut message = of("message_start")["message"].clone();
    let start = message["usage"].clone();
    message["usage"] = of("message_delta")["usage"].clone();
    message["started"] = start;
    message
}

async fn metric(gate: &Tidegate, name: &str) -> u64 {
    let text = gate.managed("/metrics").await.body_text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |number| number.parse().unwrap())
}

/// An answer to a request, and to the same one again.
async fn given_once_more(database: &Database, is_stream: bool) {
    let sim = Sim::start(if is_stream { streamed("hello") } else { whole("hello") }).await;
    let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
    let body = if is_stream { hello_streamed(MODEL) } else { hello(MODEL) };
    let first = cached(&account.gate, &body).send().await;
    assert_eq!((status(&first), first.header("x-tidegate-cache-ttl")), (Some("MISS"), Some("300")));
    assert_eq!((first.header("x-tidegate-cache-age"), first.header("x-tidegate-cache-source-id")), (None, None));
    let again = cached(&account.gate, &body).send().await;
    assert_eq!((status(&again), sim.calls()), (Some("HIT"), 1));
    let number = |name: &str| again.header(name).unwrap().parse::<u64>().unwrap();
    let (age, rest) = (number("x-tidegate-cache-age"), number("x-tidegate-cache-ttl"));
    assert_eq!((age + rest, age < 30), (300, true));

    let (source, id) = (first.header("x-generation-id").unwrap(), again.header("x-generation-id").unwrap());
    assert_ne!(source, id);
    assert_eq!(again.header("x-tidegate-cache-source-id"), Some(source));
    assert_eq!(again.header("request-id"), Some(id));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!((first.text(), again.text()), ("hello".to_owned(), "hello".to_owned()));
    let names = |reply: &Reply| reply.events().into_iter().map(|event| event.name).collect::<Vec<_>>();
    assert_eq!(names(&first), names(&again), "all events, in their order");

    let (made, given) = (message(&first, is_stream), message(&again, is_stream));
    assert_eq!((&made["id"], &made["usage"]["cost"]), (&json!("msg_up"), &json!(0.000177)));
    let message_id = given["id"].as_str().unwrap();
    assert!(message_id.starts_with("msg_") && message_id != "msg_up", "{given}");
    for name in ["model", "provider", "role", "type"] {
        assert_eq!(made[name], given[name], "{name}");
    }
    for usage in [&given["usage"], if is_stream { &given["started"] } else { &given["usage"] }] {
        assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(0), &json!(0)), "{usage}");
    }
    let nothing = json!({"upstream_inference_cost": null, "upstream_inference_prompt_cost": 0,
        "upstream_inference_completions_cost": 0});
    assert_eq!((&given["usage"]["cost"], &given["usage"]["cost_details"]), (&json!(0), &nothing));

    for (asked, expected) in [(id, json!(source)), (source, Value::Null), (message_id, json!(source))] {
        let record = account.gate.ask("GET", &format!("/api/v1/generation?id={asked}")).key(INFERENCE_KEY);
        let record = record.send().await.json()["data"].clone();
        assert_eq!(record["response_cache_source_id"], expected, "{record}");
        if asked == source {
            continue;
        }
        for (name, value) in [
            ("id", json!(id)),
            ("total_cost", json!(0)),
            ("model", json!(MODEL)),
            ("provider_name", json!("P0")),
            ("tokens_prompt", json!(0)),
            ("tokens_completion", json!(0)),
            ("streamed", json!(is_stream)),
            ("cancelled", json!(false)),
            ("finish_reason", json!("end_turn")),
            // Nobody was asked.
            ("native_finish_reason", Value::Null),
            ("upstream_id", Value::Null),
            ("provider_responses", json!([])),
        ] {
            assert_eq!(record[name], value, "{name}");
        }
    }
    let spent = account.gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    assert_eq!(spent["data"]["usage"], json!(0.000177), "one call was paid");
    assert_eq!(metric(&account.gate, "tidegate_response_cache_total{result=\"hit\"}").await, 1);
    assert_eq!(metric(&account.gate, "tidegate_response_cache_total{result=\"miss\"}").await, 1);
    assert!(metric(&account.gate, "tidegate_response_cache_bytes").await > 0);
    crate::harness::books::verified(&account.gate.place).await;
}

on_both! {
    async fn a_whole_answer_is_given_once_more_for_nothing(database: &Database) {
        given_once_more(database, false).await;
    }

    async fn a_stream_is_given_once_more_for_nothing(database: &Database) {
        given_once_more(database, true).await;
    }

    async fn a_key_whose_limit_is_used_up_gets_nothing_kept_either(database: &Database) {
        let sim = Sim::start(whole("hello")).await;
        let pricing = "pricing = { input = 0, output = 1 }";
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, pricing)).await;
        // One call of nine tokens at a micro-dollar each.
        let key = key(&account, json!({"limit": serde_json::Number::from_f64(0.000009)})).await;
        let body = json!({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
        let ask = || {
            let ask = account.gate.ask("POST", "/v1/messages").key(&key).header("x-tidegate-cache", "true");
            ask.json(body.to_string()).send()
        };
        assert_eq!(status(&ask().await), Some("MISS"));
        let refused = ask().await;
        assert_eq!((refused.status, refused.error().3.as_str()), (402, "API key spend limit reached"));
        assert_eq!(sim.calls(), 1);
    }

    async fn an_answer_that_money_shortened_is_not_kept(database: &Database) {
        let sim = Sim::start(whole("one")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        for is_stream in [false, true] {
            sim.set(if is_stream { streamed("one") } else { whole("one") });
            // 8192 tokens, which the model could answer, cost $0.123.
            let poor = key(&account, json!({"limit": 0.05})).await;
            let mut body = if is_stream { hello_streamed(MODEL) } else { hello(MODEL) };
            body.as_object_mut().unwrap().remove("max_tokens");
            let cached = |key: &str| {
                let ask = account.gate.ask("POST", "/v1/messages").key(key).header("x-tidegate-cache", "true");
                ask.json(body.to_string()).send()
            };
            let calls = sim.calls();
            for _ in 0..2 {
                let reply = cached(&poor).await;
                assert_eq!(status(&reply), Some("MISS"), "{is_stream}");
                assert_eq!(reply.header("x-tidegate-warnings"), Some("clamped:max_tokens"), "{is_stream}");
            }
            assert_eq!(sim.calls(), calls + 2, "{is_stream}");
            let rich = key(&account, json!({"limit": 1})).await;
            for expected in ["MISS", "HIT"] {
                let reply = cached(&rich).await;
                assert_eq!(status(&reply), Some(expected), "{is_stream}");
            }
        }
    }

    async fn guardrails_hold_for_what_is_kept(database: &Database) {
        let sim = Sim::start(whole("hello")).await;
        let forgets = "data_policy = { retains = false, trains = false }\n";
        let account = Account::start(database, Tidegate::start().endpoint_of(MODEL, &sim.base_url(), forgets, PRICED).endpoint_of("vendor/n", &sim.base_url(), forgets, PRICED)).await;
        let workspace = account.ask("GET", "/workspaces/default").await.json()["data"].clone();
        let path = format!("/guardrails/{}", workspace["default_guardrail_id"].as_str().unwrap());
        let rule = async |rules: Value| drop(account.data("PATCH", &path, Some(rules), 200).await);
        let ask = || cached(&account.gate, &hello(MODEL)).send();
        assert_eq!(status(&ask().await), Some("MISS"));
        assert_eq!(status(&ask().await), Some("HIT"));
        rule(json!({"ignored_models": [MODEL]})).await;
        let refused = ask().await;
        assert_eq!((refused.status, refused.error().3.as_str()), (403, "vendor/m is not allowed by a guardrail"));
        rule(json!({"ignored_models": null, "enforce_zdr_openai": true})).await;
        assert_eq!(status(&ask().await), Some("HIT"), "that is about others");
        rule(json!({"enforce_zdr_openai": false, "enforce_zdr_other": true})).await;
        for calls in [2, 3] {
            assert_eq!((status(&ask().await), sim.calls()), (None, calls), "nothing is kept where nothing may be");
        }
        // Another model of the request is left: what the first one said is not given for it.
        rule(json!({"enforce_zdr_other": false})).await;
        let mut either = hello(MODEL);
        either["fallbacks"] = json!([{"model": "vendor/n"}]);
        let ask = || cached(&account.gate, &either).send();
        assert_eq!((status(&ask().await), status(&ask().await)), (Some("MISS"), Some("HIT")));
        rule(json!({"ignored_models": [MODEL]})).await;
        let other = ask().await;
        assert_eq!((status(&other), &other.json()["model"]), (Some("MISS"), &json!("vendor/n")));
        assert_eq!(status(&ask().await), Some("HIT"), "that is kept instead");
    }
}

#[tokio::test]
async fn nothing_is_kept_that_was_not_asked_for() {
    let sim = Sim::start(whole("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let plain = || gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(hello(MODEL).to_string());
    for value in [None, Some("false"), Some("yes")] {
        let ask = value.map_or_else(plain, |value| plain().header("x-tidegate-cache", value));
        // Clearing needs caching.
        assert_eq!(status(&ask.header("x-tidegate-cache-clear", "true").send().await), None);
    }
    assert_eq!(sim.calls(), 3);
    assert_eq!(status(&cached(&gate, &hello(MODEL)).send().await), Some("MISS"), "the others left nothing");
    assert_eq!(status(&plain().send().await), None);
    assert_eq!(sim.calls(), 5, "what is kept is not given to those who do not ask");
}

#[tokio::test]
async fn what_is_the_same_request_and_what_is_not() {
    let sim = Sim::start(whole("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let other = gate.place.run(&["keys", "create", "--name", "other"]).await;
    let other = String::from_utf8(other.stdout).unwrap().trim().to_owned();
    let ask = |key: &str, body: &str| {
        let ask = gate.ask("POST", "/v1/messages").key(key).header("x-tidegate-cache", "true");
        ask.json(body.to_owned()).send()
    };
    let body = r#"{"model":"vendor/m","max_tokens":8,"messages":[{"role":"user","content":"a  b"}]}"#;
    assert_eq!(status(&ask(INFERENCE_KEY, body).await), Some("MISS"));
    let loose = body.replace(':', " :\n ").replace(',', "\t,  ");
    assert_eq!(status(&ask(INFERENCE_KEY, &loose).await), Some("HIT"));
    let with_headers = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
    let with_headers = with_headers.header("anthropic-beta", "some-2026-01-01").header("x-session-id", "s");
    assert_eq!(status(&with_headers.json(body).send().await), Some("HIT"));
    assert_eq!(sim.calls(), 1);
    for different in [
        body.replace("a  b", "a b"),
        r#"{"max_tokens":8,"model":"vendor/m","messages":[{"role":"user","content":"a  b"}]}"#.to_owned(),
        body.replace("\"max_tokens\":8", "\"max_tokens\":8,\"stream\":false"),
        body.replace("\"max_tokens\":8", "\"max_tokens\":9"),
    ] {
        assert_eq!(status(&ask(INFERENCE_KEY, &different).await), Some("MISS"), "{different}");
    }
    eventually("the other key is known", std::time::Duration::from_secs(10), async || {
        gate.ask("GET", "/api/v1/key").key(&other).send().await.status == 200
    })
    .await;
    assert_eq!(status(&ask(&other, body).await), Some("MISS"), "keys share nothing");
    assert_eq!(status(&ask(&other, body).await), Some("HIT"));
    sim.set(streamed("hello"));
    let streamed = body.replace("\"max_tokens\":8", "\"max_tokens\":8,\"stream\":true");
    assert_eq!(status(&ask(INFERENCE_KEY, &streamed).await), Some("MISS"));
    assert_eq!(status(&ask(INFERENCE_KEY, &streamed).await), Some("HIT"));
}

#[tokio::test]
async fn an_answer_expires_when_it_was_asked_to() {
    let sim = Sim::start(whole("hello")).await;
    let mut place = Tidegate::start().endpoint(MODEL, &sim).place();
    let file = place.beside("clock");
    let shift = |millis: i64| std::fs::write(&file, millis.to_string()).unwrap();
    shift(0);
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().unwrap()));
    let gate = place.serve().await;
    let ask = |ttl: &str| cached(&gate, &hello(MODEL)).header("x-tidegate-cache-ttl", ttl).send();
    let first = ask("3600s").await;
    assert_eq!((status(&first), first.header("x-tidegate-cache-ttl")), (Some("MISS"), Some("3600")));
    shift(1_800_000);
    let kept = ask("9").await;
    assert_eq!(status(&kept), Some("HIT"));
    let seconds = |name: &str| kept.header(name).unwrap().parse::<u64>().unwrap();
    let (age, rest) = (seconds("x-tidegate-cache-age"), seconds("x-tidegate-cache-ttl"));
    assert!((1_800..1_860).contains(&age), "{age}");
    assert_eq!(age + rest, 3_600, "who asks later does not change how long it is kept");
    shift(3_600_000);
    let late = ask("86401").await;
    assert_eq!((status(&late), late.header("x-tidegate-cache-ttl")), (Some("MISS"), Some("86400")));
    assert_eq!(sim.calls(), 2);
}

#[tokio::test]
async fn a_kept_answer_can_be_dropped() {
    let sim = Sim::start(Script::from(whole("old")).then(whole("new"))).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    assert_eq!(cached(&gate, &hello(MODEL)).send().await.text(), "old");
    let cleared = cached(&gate, &hello(MODEL)).header("x-tidegate-cache-clear", "true").send().await;
    assert_eq!((status(&cleared), cleared.text().as_str()), (Some("MISS"), "new"));
    let after = cached(&gate, &hello(MODEL)).send().await;
    assert_eq!((status(&after), after.text().as_str(), sim.calls()), (Some("HIT"), "new", 2));
}

#[tokio::test]
async fn the_room_for_kept_answers_is_kept_to() {
    let room = 32_000;
    let sim = Sim::start(whole(&"x".repeat(3_000))).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&format!("[cache]\nmax_bytes = {room}\n")).run().await;
    let numbered = |number: usize| json!({"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": number.to_string()}]});
    for number in 0..30 {
        assert_eq!(status(&cached(&gate, &numbered(number)).send().await), Some("MISS"));
        let held = metric(&gate, "tidegate_response_cache_bytes").await;
        assert!(held > 3_000 && held <= room, "{held} after {number}");
    }
    assert_eq!(status(&cached(&gate, &numbered(29)).send().await), Some("HIT"), "the last one is there");
    assert_eq!(status(&cached(&gate, &numbered(0)).send().await), Some("MISS"), "the first one is not");

    let off = Tidegate::start().endpoint(MODEL, &sim).config("[cache]\nmax_bytes = 0\n").run().await;
    for _ in 0..2 {
        assert_eq!(status(&cached(&off, &hello(MODEL)).send().await), None);
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_kept() {
    let sim = Sim::start(Behaviour::Oversize { bytes: 8 << 20 }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    for body in [hello(MODEL), hello_streamed(MODEL)] {
        for _ in 0..2 {
            assert_eq!(status(&cached(&gate, &body).send().await), Some("MISS"));
        }
    }
    assert_eq!(metric(&gate, "tidegate_response_cache_bytes").await, 0);
}

#[tokio::test]
async fn errors_and_broken_streams_are_not_kept() {
    let after = 3;
    for broken in [
        Behaviour::status(400),
        Behaviour::CloseMidStream { after },
        Behaviour::EndsWithoutStop,
        Behaviour::ErrorInStream { after, error_type: "overloaded_error".to_owned(), message: "busy".to_owned() },
    ] {
        let sim = Sim::start(Script::from(broken.clone()).then(streamed("hello"))).await;
        let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
        let first = cached(&gate, &hello_streamed(MODEL)).send().await;
        assert!(first.status == 400 || !first.body_text().contains("event: message_stop"), "{broken:?}");
        assert_eq!(first.header("x-tidegate-cache-status"), Some("MISS"), "{broken:?}");
        let second = cached(&gate, &hello_streamed(MODEL)).send().await;
        assert_eq!((status(&second), second.text().as_str()), (Some("MISS"), "hello"), "{broken:?}");
        assert_eq!(status(&cached(&gate, &hello_streamed(MODEL)).send().await), Some("HIT"), "{broken:?}");
    }
}

/// Neither where the upstream is left with its client, nor where it is read to its end because it charges anyway.
#[tokio::test]
async fn what_a_client_left_before_its_end_is_not_kept() {
    for supports_cancel in [true, false] {
        let hand = Hand::start().await;
        let cancel = format!("supports_cancel = {supports_cancel}");
        let gate = Tidegate::start().endpoint_of(MODEL, &hand.base_url(), &cancel, "").run().await;
        let events = tale("hello");
        // An end that is here before the gateway sees that its client has left is an answer that was given: once more then.
        let mut was_left = false;
        for round in 0..20 {
            let mut body = hello_streamed(MODEL);
            body["messages"][0]["content"] = json!(format!("round {round}"));
            let (mut call, mut client) = tokio::join!(
                async {
                    let mut call = hand.call().await.streams().await;
                    call.send(&events[..3].concat()).await;
                    call
                },
                cached(&gate, &body).open()
            );
            client.until("content_block_delta").await;
            let id = client.id();
            drop(client);
            if supports_cancel {
                call.gone().await;
            } else {
                // Who answers somebody else has most likely seen meanwhile what came before that.
                for _ in 0..=round {
                    metric(&gate, r#"tidegate_requests_in_flight{route="/messages"}"#).await;
                }
                call.send(&events[3..].concat()).await;
                call.end().await;
            }
            eventually("the call is over", std::time::Duration::from_secs(10), async || {
                metric(&gate, r#"tidegate_requests_in_flight{route="/messages"}"#).await == 0
            })
            .await;
            let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
            was_left = record.json()["data"]["cancelled"] == true;
            if !was_left {
                continue;
            }
            let answering = async {
                let mut call = hand.call().await.streams().await;
                call.send(&tale("anew").concat()).await;
                call.end().await;
            };
            let (_, reply) = tokio::join!(answering, cached(&gate, &body).send());
            assert_eq!((status(&reply), reply.text().as_str()), (Some("MISS"), "anew"), "{supports_cancel}");
            assert_eq!(status(&soon("a hit", cached(&gate, &body).send()).await), Some("HIT"));
            break;
        }
        assert!(was_left, "{supports_cancel}: the gateway never saw its client leave");
    }
}

#[tokio::test]
async fn routing_metadata_is_not_given_once_more() {
    for is_stream in [false, true] {
        let sim = Sim::start(if is_stream { streamed("hello") } else { whole("hello") }).await;
        let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
        let body = if is_stream { hello_streamed(MODEL) } else { hello(MODEL) };
        let ask = || cached(&gate, &body).header("x-tidegate-metadata", "enabled").send();
        let (first, again) = (ask().await, ask().await);
        assert_eq!((status(&first), status(&again)), (Some("MISS"), Some("HIT")));
        assert!(first.body_text().contains("tidegate_metadata"));
        assert!(!again.body_text().contains("tidegate_metadata"), "{}", again.body_text());
        assert_eq!(again.text(), "hello");
    }
}

#[tokio::test]
async fn tools_are_called_once_more() {
    let sim = Sim::start(Behaviour::ToolUse).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let tool = json!({"name": "look", "input_schema": {"type": "object"}});
    for is_stream in [false, true] {
        let mut body = hello(MODEL);
        body["tools"] = json!([tool]);
        body["stream"] = json!(is_stream);
        let (first, again) = (cached(&gate, &body).send().await, cached(&gate, &body).send().await);
        assert_eq!((status(&first), status(&again)), (Some("MISS"), Some("HIT")));
        let content = |reply: &Reply| match is_stream {
            false => reply.json()["content"].to_string(),
            true => reply
                .events()
                .iter()
                .filter(|event| event.name.starts_with("content"))
                .map(|event| &*event.data)
                .collect(),
        };
        assert!(content(&first).contains("tool_use"));
        assert_eq!(content(&first), content(&again));
    }
}

#[tokio::test]
async fn an_answer_with_tools_of_ours_is_given_once_more_for_nothing() {
    let sim = Sim::start(Behaviour::Echo).await;
    let engine = "[tools.web_search.engines.house]\nkind = \"static\"\nprice_per_call = 0.5\n\
        results = [{ url = \"https://a.example\", title = \"A\", content = \"At six.\" }]\n";
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, PRICED).config(engine).run().await;
    let spent = async || {
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        key["data"]["usage"].as_f64().unwrap()
    };
    for (model, tools) in [(MODEL, json!([{"type": "tidegate:web_search"}])), ("vendor/m:online", json!([]))] {
        for is_stream in [false, true] {
            let mut body = hello(model);
            (body["tools"], body["stream"]) = (tools.clone(), json!(is_stream));
            let says = Behaviour::says("See [a.example](https://a.example).");
            let script = match model {
                MODEL => Script::from(asks("", &[("web_search", json!({"query": "tides"}))])).then(says),
                _ => Script::from(says),
            };
            sim.set(script);
            let first = cached(&gate, &body).header("x-tidegate-metadata", "enabled").send().await;
            assert_eq!(status(&first), Some("MISS"), "{model} {is_stream}");
            let (calls, before) = (sim.calls(), spent().await);
            let again = cached(&gate, &body).header("x-tidegate-metadata", "enabled").send().await;
            assert_eq!(status(&again), Some("HIT"), "{model} {is_stream}");
            assert_eq!((sim.calls(), again.text()), (calls, first.text()), "{model} {is_stream}");
            assert!((spent().await - before).abs() < 1e-9, "{model} {is_stream}");
            let (first, again) = (first.body_text(), again.body_text());
            assert_eq!(
                first.matches("web_search_tool_result").count(),
                again.matches("web_search_tool_result").count()
            );
            assert!(first.contains("tidegate_metadata") && !again.contains("tidegate_metadata"), "{again}");
            // Of several turns there is a list; where none is given there is no member either, and never null.
            let (first, again) = [&first, &again].map(|text| text.replace(' ', "")).into();
            assert_eq!(first.contains("\"iterations\":[{"), model == MODEL, "{first}");
            assert_eq!(again.contains("\"iterations\":[]"), model == MODEL, "{again}");
            assert!(!again.contains("\"iterations\":null"), "{again}");
        }
    }
}

#[tokio::test]
async fn headers_are_those_of_the_brand() {
    let sim = Sim::start(whole("hello")).await;
    let config = "[service]\nname = \"gate\"\nname_aliases = [\"other\"]\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    let ask = |name: &str| {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header(name, "true");
        ask.json(hello(MODEL).to_string()).send()
    };
    let unknown = ask("x-tidegate-cache").await;
    assert_eq!(unknown.header("x-gate-cache-status"), None);
    assert_eq!(ask("x-gate-cache").await.header("x-gate-cache-status"), Some("MISS"));
    assert_eq!(ask("x-other-cache").await.header("x-gate-cache-status"), Some("HIT"));
}

#[tokio::test]
async fn a_reload_changes_the_room() {
    let sim = Sim::start(whole("hello")).await;
    let builder = Tidegate::start().endpoint(MODEL, &sim);
    let less = Tidegate::start().endpoint(MODEL, &sim).config("[cache]\nmax_bytes = 0\n").text();
    let gate = builder.run().await;
    assert_eq!(status(&cached(&gate, &hello(MODEL)).send().await), Some("MISS"));
    gate.place.write_config(&less);
    gate.signal(rustix::process::Signal::HUP);
    eventually("nothing is kept any more", std::time::Duration::from_secs(10), async || {
        status(&cached(&gate, &hello(MODEL)).send().await).is_none()
    })
    .await;
    assert_eq!(metric(&gate, "tidegate_response_cache_bytes").await, 0);
}
