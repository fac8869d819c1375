//! Who is let in: keys in every state, and limits of requests in flight.

use std::time::Duration;

use serde_json::json;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::key;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Place, Reply, Tidegate, eventually, hello, hello_streamed};

const MODEL: &str = "vendor/m";

async fn start() -> (Sim, Tidegate) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    (sim, gate)
}

async fn with_headers(gate: &Tidegate, headers: &[(&str, &str)]) -> Reply {
    let ask = gate.ask("POST", "/v1/messages").json(hello(MODEL).to_string());
    headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value)).send().await
}

fn refusal(message: &str) -> String {
    json_error("authentication_error", message, "authentication")
}

/// The Messages envelope of a request that has no record.
fn json_error(kind: &str, message: &str, error_type: &str) -> String {
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}","error_type":"{error_type}"}},"request_id":null}}"#
    )
}

fn generated(prefix: &str) -> String {
    key::generate(prefix).expose(|bytes| String::from_utf8(bytes.to_vec()).expect("a key is text"))
}

#[tokio::test]
async fn key_6_nothing_supplied_and_a_wrong_key_are_told_apart_and_nothing_else_is() {
    let (sim, gate) = start().await;
    let missing: [&[(&str, &str)]; 6] = [
        &[],
        &[("authorization", "")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer")],
        &[("x-api-key", "")],
        &[("authorization", " "), ("x-api-key", "  ")],
    ];
    for headers in missing {
        let reply = with_headers(&gate, headers).await;
        assert_eq!((reply.status, reply.body_text()), (401, &*refusal("Missing Authentication header")), "{headers:?}");
    }
    let unknown = generated("sk-tg-v1-");
    let mut mistyped = unknown.clone();
    mistyped.replace_range(12..13, if &mistyped[12..13] == "x" { "y" } else { "x" });
    let unknown_bearer = format!("Bearer {unknown}");
    let mistyped_bearer = format!("Bearer {mistyped}");
    let long = format!("Bearer {}", "k".repeat(9_000));
    let wrong: [&[(&str, &str)]; 11] = [
        &[("authorization", &unknown_bearer)],
        &[("authorization", &mistyped_bearer)],
        &[("authorization", "Bearer sk-tg-v1-")],
        &[("authorization", "Bearer garbage")],
        &[("authorization", &long)],
        &[("authorization", "Basic ZTJlOmtleQ==")],
        &[("authorization", "Bearer e2e-inference-key extra")],
        &[("authorization", "e2e-inference-key")],
        &[("x-api-key", "garbage")],
        &[("x-api-key", "E2E-INFERENCE-KEY")],
        &[("authorization", "Bearer garbage"), ("x-api-key", INFERENCE_KEY)],
    ];
    for headers in wrong {
        let reply = with_headers(&gate, headers).await;
        assert_eq!((reply.status, reply.body_text()), (401, &*refusal("Invalid API key")), "{headers:?}");
        assert!(reply.header("x-generation-id").is_none());
        assert!(reply.header("request-id").is_some_and(|id| id.starts_with("req_") && id.len() == 28), "{headers:?}");
        assert_eq!(reply.header("request-id"), reply.header("x-request-id"));
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn key_6_a_key_is_found_in_every_header_that_clients_use() {
    let (_sim, gate) = start().await;
    let bearer = format!("Bearer {INFERENCE_KEY}");
    let lower = format!("bearer {INFERENCE_KEY}");
    let upper = format!("BEARER   {INFERENCE_KEY}");
    let right: [&[(&str, &str)]; 8] = [
        &[("authorization", &bearer)],
        &[("authorization", &lower)],
        &[("authorization", &upper)],
        &[("x-api-key", INFERENCE_KEY)],
        &[("authorization", &bearer), ("x-api-key", "garbage")],
        &[("authorization", &bearer), ("x-api-key", INFERENCE_KEY)],
        &[("authorization", ""), ("x-api-key", INFERENCE_KEY)],
        &[("authorization", "Basic abc"), ("x-api-key", INFERENCE_KEY)],
    ];
    for headers in right {
        assert_eq!(with_headers(&gate, headers).await.status, 200, "{headers:?}");
    }
}

#[tokio::test]
async fn a_management_key_does_not_generate_and_an_inference_key_does_not_manage() {
    let (sim, gate) = start().await;
    for path in ["/v1/messages", "/api/v1/messages/count_tokens"] {
        let reply = gate.ask("POST", path).key(MANAGEMENT_KEY).json(hello(MODEL).to_string()).send().await;
        let text = "Management keys cannot be used for inference";
        assert_eq!(
            (reply.status, reply.body_text()),
            (403, &*json_error("permission_error", text, "permission_denied"))
        );
    }
    assert_eq!(sim.calls() + sim.count_calls(), 0);
    let reply = gate.ask("GET", "/metrics").key(INFERENCE_KEY).send().await;
    let expected = json!({"error": {"code": 403, "message": "Only management keys can perform this operation"}});
    assert_eq!((reply.status, reply.json()), (403, expected));
}

/// Runs `tidegate keys create` and gives back the key and its hash.
async fn create_key(place: &Place, words: &[&str]) -> (String, String) {
    let output = place.run(&[&["keys", "create", "--name", "made by a test"], words].concat()).await;
    assert!(output.status.success(), "{output:?}");
    let key = String::from_utf8(output.stdout).expect("a key is text").trim().to_owned();
    let said = String::from_utf8(output.stderr).expect("words");
    let (_, rest) = said.split_once("with hash ").expect("the hash is named");
    let (hash, _) = rest.split_once('.').expect("a sentence");
    (key, hash.to_owned())
}

async fn status_of(gate: &Tidegate, key: &str) -> u16 {
    gate.ask("POST", "/v1/messages").key(key).json(hello(MODEL).to_string()).send().await.status
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

#[tokio::test]
async fn key_7_a_key_made_or_disabled_elsewhere_acts_within_two_seconds() {
    let (_sim, gate) = start().await;
    let (key, hash) = create_key(&gate.place, &[]).await;
    assert!(key.starts_with("sk-tg-v1-") && !key::is_malformed(key.as_bytes(), &["sk-tg-v1-"]));
    eventually("the key works", TWO_SECONDS, async || status_of(&gate, &key).await == 200).await;
    let disabled = gate.place.run(&["keys", "disable", &hash[..12]]).await;
    assert!(disabled.status.success());
    eventually("the key is refused", TWO_SECONDS, async || status_of(&gate, &key).await == 401).await;
    let reply = gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
    assert_eq!(reply.body_text(), refusal("Invalid API key"), "a disabled key looks like an unknown one");
    assert!(gate.place.run(&["keys", "disable", "--undo", &hash]).await.status.success());
    eventually("the key works again", TWO_SECONDS, async || status_of(&gate, &key).await == 200).await;
    // Whoever finds a key that leaked has nothing but the key; nobody repeats it.
    let disabled = gate.place.run(&["keys", "disable", &key]).await;
    assert!(disabled.status.success());
    eventually("the key is refused", TWO_SECONDS, async || status_of(&gate, &key).await == 401).await;
    for (word, expected) in
        [(format!("{key}x"), "this is no key of this store"), (hash[..7].to_owned(), "at least 8 digits")]
    {
        let refused = gate.place.run(&["keys", "delete", &word]).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(expected) && !said.contains(&key), "{said}");
    }
    assert!(gate.place.run(&["keys", "disable", "--undo", &key]).await.status.success());
    eventually("the key works again", TWO_SECONDS, async || status_of(&gate, &key).await == 200).await;

    let (key, _) = create_key(&gate.place, &["--management"]).await;
    assert!(key.starts_with("sk-tgm-v1-"));
    eventually("the management key works", TWO_SECONDS, async || {
        gate.ask("GET", "/version").key(&key).send().await.status == 200
    })
    .await;
}

#[tokio::test]
async fn key_6_an_expired_key_looks_like_an_unknown_one() {
    let (_sim, gate) = start().await;
    // Whole milliseconds, as the store keeps them; long enough for the command and one request.
    let expires = jiff::Timestamp::now().as_millisecond() + 2_500;
    let expires = jiff::Timestamp::from_millisecond(expires).unwrap();
    let (key, _) = create_key(&gate.place, &["--expires", &expires.to_string()]).await;
    eventually("the key works", TWO_SECONDS, async || status_of(&gate, &key).await == 200).await;
    eventually("the key expires", Duration::from_secs(5), async || status_of(&gate, &key).await == 401).await;
    assert!(jiff::Timestamp::now() >= expires, "not before its time");
    let reply = gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
    assert_eq!(reply.body_text(), refusal("Invalid API key"));
}

#[tokio::test]
async fn a_management_key_is_not_limited_because_it_cannot_spend() {
    let gate = Tidegate::start().run().await;
    let made = gate.place.run(&["keys", "create", "--name", "ops", "--management", "--limit", "5"]).await;
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(!made.status.success() && said.contains("a management key cannot spend"), "{said}");
}

/// The status of `GET /key`, which every key may ask.
async fn known_as(gate: &Tidegate, key: &str) -> u16 {
    gate.ask("GET", "/api/v1/key").key(key).send().await.status
}

#[tokio::test]
async fn key_1_keys_of_two_prefixes_that_begin_alike_both_work() {
    let prefixes = "[keys]\nprefix = \"sk-acme-\"\nmanagement_prefix = \"sk-acme-m-\"\n";
    let gate = Tidegate::start().config(prefixes).run().await;
    for words in [&[][..], &["--management"]] {
        let (key, _) = create_key(&gate.place, words).await;
        eventually(&key, TWO_SECONDS, async || known_as(&gate, &key).await == 200).await;
    }
    assert_eq!(known_as(&gate, "sk-acme-m-garbage").await, 401);
}

#[tokio::test]
async fn key_1_keys_keep_working_when_a_prefix_is_changed() {
    let gate = Tidegate::start().run().await;
    let (inference, _) = create_key(&gate.place, &[]).await;
    let (management, _) = create_key(&gate.place, &["--management"]).await;
    let (_, place) = gate.stop().await;
    place.write_config(&Tidegate::start().config("[keys]\nprefix = \"sk-\"\n").text());
    let gate = place.serve().await;
    assert_eq!([known_as(&gate, &inference).await, known_as(&gate, &management).await], [200, 200]);
    let (made, _) = create_key(&gate.place, &[]).await;
    assert!(made.starts_with("sk-") && !made.starts_with("sk-tg-"));
    eventually("a key of the new prefix works", TWO_SECONDS, async || known_as(&gate, &made).await == 200).await;
}

#[tokio::test]
async fn key_1_an_imported_key_may_begin_like_one_of_ours() {
    let key = "sk-tgm-v1-abcdefghijklmnopqrstuvwxyz";
    let gate = Tidegate::start().config(&format!("[keys]\nmanagement_key = \"{key}\"\n")).run().await;
    assert_eq!(gate.ask("GET", "/api/v1/keys").key(key).send().await.status, 200);
    assert_eq!(known_as(&gate, "sk-tgm-v1-abcdefghijklmnopqrstuvwxyy").await, 401);
}

#[tokio::test]
async fn key_2_listed_keys_do_not_show_themselves() {
    let (_sim, gate) = start().await;
    let output = gate.place.run(&["keys", "list", "--all"]).await;
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.contains("management") && listed.contains("inference"), "{listed}");
    assert!(!listed.contains(INFERENCE_KEY) && !listed.contains(MANAGEMENT_KEY), "keys are never shown again");
}

/// The headers of a limit of ours; it is free again at most `within` milliseconds from now.
fn assert_limit(reply: &Reply, limit: &str, within: i64) {
    assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (Some(limit), Some("0")));
    let reset = reply.header("x-ratelimit-reset").expect("it is told").parse::<i64>().expect("a number");
    let now = jiff::Timestamp::now().as_millisecond();
    assert!(reset <= now + within && reset > now - 30_000, "{reset} at {now}");
    assert_eq!(reply.header("x-should-retry"), None, "waiting helps");
}

#[tokio::test]
async fn key_8_too_many_failed_attempts_are_held_off_and_a_right_key_is_not() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nauth_failures_per_minute = 10\n").run().await;
    for _ in 0..12 {
        assert_eq!(with_headers(&gate, &[]).await.status, 401, "a missing key is no attempt");
    }
    for attempt in 0..10 {
        assert_eq!(status_of(&gate, "garbage").await, 401, "attempt {attempt}");
    }
    let reply = with_headers(&gate, &[("x-api-key", "garbage")]).await;
    let expected = json_error("rate_limit_error", "Rate limit exceeded", "rate_limit_exceeded");
    assert_eq!((reply.status, reply.body_text()), (429, &*expected));
    // One every six seconds: the first of the ten was made a moment ago.
    let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=6).contains(&wait));
    assert_limit(&reply, "10", 6_000);
    assert_eq!(status_of(&gate, INFERENCE_KEY).await, 200);
}

#[tokio::test]
async fn requests_in_flight_are_limited_per_key_and_places_are_given_back() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 5 }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nin_flight_key = 2\n").run().await;
    let (other, _) = create_key(&gate.place, &[]).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = gate.stream(hello_streamed(MODEL)).await;
        stream.until("content_block_delta").await;
        streams.push(stream);
    }
    for request in [hello(MODEL), hello_streamed(MODEL)] {
        let reply = gate.messages(request).await;
        let expected = json_error("rate_limit_error", "Rate limit exceeded", "rate_limit_exceeded");
        assert_eq!((reply.status, reply.body_text()), (429, &*expected));
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_limit(&reply, "2", 1_000);
    }
    let metrics = gate.managed("/metrics").await;
    assert!(metrics.body_text().contains(r#"tidegate_limit_rejections_total{kind="in_flight_key"}"#));
    assert_eq!(sim.calls(), 2);
    sim.set(Behaviour::says("hello"));
    eventually("another key has places of its own", TWO_SECONDS, async || status_of(&gate, &other).await == 200).await;
    drop(streams.pop());
    eventually("a place is free", TWO_SECONDS, async || status_of(&gate, INFERENCE_KEY).await == 200).await;
    // Answers, errors and refusals give their places back too.
    for behaviour in [Behaviour::says("x"), Behaviour::status(500), Behaviour::status(400), Behaviour::Garbage] {
        sim.set(behaviour);
        for _ in 0..3 {
            assert_ne!(status_of(&gate, INFERENCE_KEY).await, 429);
        }
    }
    for _ in 0..3 {
        assert_eq!(gate.messages(hello("no/such-model")).await.status, 400);
    }
}

#[tokio::test]
async fn a_full_workspace_is_a_429_and_a_full_node_a_503() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 5 }).await;
    for (setting, status, kind, message) in [
        ("in_flight_workspace", 429, "rate_limit_error", "Rate limit exceeded"),
        ("in_flight_node", 503, "overloaded_error", "Service temporarily unavailable"),
    ] {
        let gate = Tidegate::start().endpoint(MODEL, &sim).config(&format!("[limits]\n{setting} = 1\n")).run().await;
        let mut stream = gate.stream(hello_streamed(MODEL)).await;
        stream.until("content_block_delta").await;
        let reply = gate.messages(hello(MODEL)).await;
        let (got, error, _, text) = reply.error();
        assert_eq!((got, error.as_str(), text.as_str()), (status, kind, message));
        assert!(reply.header("retry-after").is_some());
        if status == 429 {
            assert_limit(&reply, "1", 1_000);
        }
        assert_eq!(gate.get("/healthz").await.status, 200);
        let metrics = gate.managed("/metrics").await;
        assert!(metrics.body_text().contains(&format!("tidegate_limit_rejections_total{{kind=\"{setting}\"}}")));
    }
}

#[tokio::test]
async fn key_8_behind_a_trusted_proxy_its_callers_are_counted_one_by_one() {
    let limits = "[limits]\nauth_failures_per_minute = 2\n";
    let trusting = "[service]\ntrusted_proxies = [\"127.0.0.0/8\"]\n";
    let fail = async |gate: &Tidegate, from: &str| {
        let ask = gate.ask("POST", "/v1/messages").key("nobody").header("x-forwarded-for", from);
        ask.json("{}").send().await.status
    };
    let gate = Tidegate::start().config(limits).config(trusting).run().await;
    assert_eq!(
        [fail(&gate, "192.0.2.1").await, fail(&gate, "192.0.2.1").await, fail(&gate, "192.0.2.1").await],
        [401, 401, 429]
    );
    assert_eq!(fail(&gate, "192.0.2.2").await, 401, "another caller");
    assert_eq!(
        fail(&gate, "192.0.2.3, 192.0.2.1, 127.0.0.1").await,
        429,
        "what a caller wrote in front does not count"
    );
    for from in ["192.0.2.4, 192.0.2.1:5678", "192.0.2.5, 192.0.2.1:5679, 127.0.0.1"] {
        assert_eq!(fail(&gate, from).await, 429, "{from}: nor where the proxy names the port");
    }
    // Without that, the header is only a header.
    let gate = Tidegate::start().config(limits).run().await;
    let statuses = [fail(&gate, "192.0.2.1").await, fail(&gate, "192.0.2.2").await, fail(&gate, "192.0.2.3").await];
    assert_eq!(statuses, [401, 401, 429]);
}

/// A second inference key of the same workspace.
async fn another_key(gate: &Tidegate) -> String {
    let made = gate.place.run(&["keys", "create", "--name", "another"]).await;
    let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
    eventually("the key is known", Duration::from_secs(10), async || {
        gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200
    })
    .await;
    key
}

/// A gateway with a limit of two a minute and a clock that the test moves, by milliseconds.
async fn two_a_minute(sim: &Sim, setting: &str) -> (Tidegate, impl Fn(i64)) {
    let config = format!("[limits]\n{setting} = 2\n[service]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    let mut place = Tidegate::start().endpoint(MODEL, sim).config(&config).place();
    let file = place.beside("clock");
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().expect("a plain path")));
    let shift = move |millis: i64| std::fs::write(&file, millis.to_string()).expect("the folder is ours");
    shift(0);
    (place.serve().await, shift)
}

async fn from(gate: &Tidegate, key: &str, address: &str, body: &str) -> Reply {
    let ask = gate.ask("POST", "/v1/messages").key(key).header("x-forwarded-for", address);
    ask.json(body.to_owned()).send().await
}

#[tokio::test]
async fn requests_a_minute_are_limited_by_key_by_workspace_and_by_address() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    // Whom the limit binds together with the first caller: another key, another address.
    for (setting, binds_key, binds_address) in
        [("key_rpm", false, true), ("workspace_rpm", true, true), ("address_rpm", true, false)]
    {
        let (gate, shift) = two_a_minute(&sim, setting).await;
        let (other, hello) = (another_key(&gate).await, hello(MODEL).to_string());
        let (here, there) = ("192.0.2.1", "192.0.2.2");
        for _ in 0..2 {
            assert_eq!(from(&gate, INFERENCE_KEY, here, &hello).await.status, 200, "{setting}");
        }
        let calls = sim.calls();
        // Refused before anybody looks at the body.
        for body in [hello.as_str(), "no JSON"] {
            let reply = from(&gate, INFERENCE_KEY, here, body).await;
            let expected = json_error("rate_limit_error", "Rate limit exceeded", "rate_limit_exceeded");
            assert_eq!((reply.status, reply.body_text()), (429, expected.as_str()), "{setting}");
            assert_eq!(
                (reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")),
                (Some("2"), Some("0"))
            );
            let seconds: u64 = reply.header("retry-after").expect("it is told").parse().expect("seconds");
            assert!((1..=30).contains(&seconds), "one is free every half minute: {seconds}");
            let reset: i64 = reply.header("x-ratelimit-reset").expect("it is told").parse().expect("milliseconds");
            let now = SystemClock.now().0;
            assert!((now..=now + 30_000).contains(&reset), "{reset}");
        }
        assert_eq!(sim.calls(), calls);
        let status = async |key: &str, address: &str| from(&gate, key, address, &hello).await.status;
        assert_eq!(status(&other, here).await, if binds_key { 429 } else { 200 }, "{setting}");
        assert_eq!(status(INFERENCE_KEY, there).await, if binds_address { 429 } else { 200 }, "{setting}");
        assert_eq!(gate.managed("/api/v1/keys").await.status, 200, "management has a limit of its own");
        shift(30_000);
        assert_eq!(status(INFERENCE_KEY, here).await, 200, "{setting}: one is free again");
        assert_eq!(status(INFERENCE_KEY, here).await, 429, "{setting}: and no more than one");
        let metrics = gate.managed("/metrics").await;
        let name = setting.replace("_rpm", "_rate");
        assert!(metrics.body_text().contains(&format!("tidegate_limit_rejections_total{{kind=\"{name}\"}}")));
    }
}

#[tokio::test]
async fn what_one_rate_refuses_another_does_not_count() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let config = "[limits]\nkey_rpm = 2\nworkspace_rpm = 4\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    let (other, hello) = (another_key(&gate).await, hello(MODEL).to_string());
    let mut served = Vec::new();
    for key in [INFERENCE_KEY, &other] {
        for _ in 0..6 {
            served.push(gate.ask("POST", "/v1/messages").key(key).json(hello.clone()).send().await.status);
        }
    }
    assert_eq!(served, [200, 200, 429, 429, 429, 429, 200, 200, 429, 429, 429, 429]);
}

#[tokio::test]
async fn pages_of_other_origins_call_where_the_operator_lets_them() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let (page, other) = ("https://app.example.com", "https://else.example.com");
    let config = format!("[service]\ncors_origins = [\"{page}\"]\n");
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&config).run().await;
    let asks = async |path: &str, origin: &str, method: &str| {
        let ask = gate.ask("OPTIONS", path).header("origin", origin).header("access-control-request-method", method);
        ask.header("access-control-request-headers", "authorization, x-stainless-lang").send().await
    };
    let reply = asks("/v1/messages", page, "POST").await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (204, Some(page)));
    assert_eq!(reply.header("access-control-allow-methods"), Some("POST"));
    assert_eq!(reply.header("access-control-allow-headers"), Some("authorization, x-stainless-lang"));
    assert_eq!(reply.header("vary"), Some("origin"));
    assert_eq!(asks("/v1/models/vendor%2Fm", page, "GET").await.status, 204, "as clients write it");
    assert_eq!(asks("/v1/models", page, "GET").await.header("access-control-allow-methods"), Some("GET"));
    // Neither others, nor what is managed, nor where nobody is named.
    for (path, origin) in [("/v1/messages", other), ("/v1/guardrails", page), ("/dashboard", page), ("/metrics", page)]
    {
        let reply = asks(path, origin, "POST").await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (405, None), "{path} {origin}");
    }
    let call = async |gate: &Tidegate, origin: &str, key: &str| {
        let ask = gate.ask("POST", "/v1/messages").key(key).header("origin", origin);
        ask.json(hello(MODEL).to_string()).send().await
    };
    for (origin, key, status, readable) in [
        (page, INFERENCE_KEY, 200, Some(page)),
        (page, "sk-tg-v1-wrong", 401, Some(page)),
        (other, INFERENCE_KEY, 200, None),
    ] {
        let reply = call(&gate, origin, key).await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (status, readable), "{origin} {key}");
        assert_eq!(reply.header("access-control-expose-headers"), readable.map(|_| "*"));
    }
    let reply = gate.ask("GET", "/v1/guardrails").key(MANAGEMENT_KEY).header("origin", page).send().await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[service]\ncors_origins = [\"*\"]\n").run().await;
    assert_eq!(call(&gate, other, INFERENCE_KEY).await.header("access-control-allow-origin"), Some("*"));
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    assert_eq!(call(&gate, page, INFERENCE_KEY).await.header("access-control-allow-origin"), None);
}
