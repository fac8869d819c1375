//! What a node refuses when it runs out of something, in which order, and what it never refuses.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{
    Hand, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hash_of, hello, hello_streamed, tale,
};

const PAID: &str = "vendor/m";
const FREE: &str = "vendor/free";
const HELD: &str = "vendor/held";
const LISTS: [&str; 14] = [
    "/keys",
    "/credits/grants",
    "/workspaces",
    "/workspaces/default/members",
    "/workspaces/default/budgets",
    "/organization/members",
    "/models",
    "/models/count",
    "/models/user",
    "/models/vendor/m/endpoints",
    "/providers",
    "/byok",
    "/keys?offset=0",
    "/models?category=science",
];
/// Two looks are a quarter of a second apart.
const LOOK: Duration = Duration::from_secs(10);

/// A gateway that measures what the test says.
struct Loaded {
    gate: Tidegate,
    file: PathBuf,
}

impl Loaded {
    async fn start(sim: &Sim, hand: &Hand) -> Self {
        let mut place = Tidegate::start()
            .endpoint_with(PAID, sim, "pricing = { input = 1, output = 1 }")
            .endpoint_with(FREE, sim, "pricing = { input = 0, output = 0 }")
            .endpoint_at(HELD, &hand.base_url(), "pricing = { input = 1, output = 1 }")
            .config("[limits]\nmanagement_rpm = 60000\n")
            .place();
        let file = place.beside("load");
        place.environment("TIDEGATE_LOAD_FILE", Some(file.to_str().expect("a plain path")));
        Self { gate: place.serve().await, file }
    }

    /// Says how much is used, in thousandths, and at which millisecond; returns when a look has seen it. Every share must
    /// differ from the one before.
    async fn uses(&self, resource: &str, share: u32, at: u64) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{resource} {share}\nat {at}\n")).expect("the folder is ours");
        // In one step: half a script would be another one.
        std::fs::rename(&next, &self.file).expect("the folder is ours");
        let line = format!("overload_used_ratio{{resource=\"{resource}\"}} {:?}\n", f64::from(share) / 1000.0);
        eventually(&line, LOOK, async || self.metrics().await.contains(&line)).await;
    }

    async fn metrics(&self) -> String {
        self.gate.managed("/metrics").await.body_text().to_owned()
    }

    async fn level(&self) -> u32 {
        let metrics = self.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("tidegate_shed_level "));
        line.expect("it is told").parse().expect("a number")
    }

    async fn shed(&self, reason: &str) -> u32 {
        let metrics = self.metrics().await;
        let name = format!("tidegate_shed_requests_total{{reason=\"{reason}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a number"))
    }

    async fn call(&self, key: &str, model: &str) -> Reply {
        self.gate.ask("POST", "/v1/messages").key(key).json(hello(model).to_string()).send().await
    }

    async fn list(&self, path: &str) -> Reply {
        self.gate.managed(&format!("/api/v1{path}")).await
    }

    async fn new_key(&self) -> String {
        let ask = self.gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY);
        let reply = ask.json(json!({"name": "another"}).to_string()).send().await;
        reply.json()["key"].as_str().expect("a key").to_owned()
    }

    /// What is never refused, whatever the level.
    async fn assert_the_rest_goes_on(&self) {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(self.gate.get(path).await.status, 200, "{path}");
        }
        let code = json!({"callback_url": "https://app.example/cb"}).to_string();
        let made = self.gate.ask("POST", "/api/v1/auth/keys/code").key(MANAGEMENT_KEY).json(code).send().await;
        let exchange = json!({"code": made.json()["data"]["id"]}).to_string();
        let exchanged = self.gate.ask("POST", "/api/v1/auth/keys").json(exchange).send().await;
        assert_eq!(exchanged.status, 200, "{}", exchanged.body_text());
        let key = exchanged.json()["key"].as_str().expect("a key").to_owned();
        assert_eq!(self.gate.ask("GET", "/api/v1/key").key(&key).send().await.status, 200);
        let path = format!("/api/v1/keys/{}", hash_of(&key));
        let disable = self.gate.ask("PATCH", &path).key(MANAGEMENT_KEY).json(r#"{"disabled":true}"#).send().await;
        assert_eq!((disable.status, &disable.json()["data"]["disabled"]), (200, &Value::Bool(true)));
        assert_eq!(self.gate.ask("GET", "/api/v1/key").key(&key).send().await.status, 401, "it is disabled at once");
        assert_eq!(self.gate.ask("DELETE", &path).key(MANAGEMENT_KEY).send().await.status, 200);
    }
}

fn wait_of(reply: &Reply) -> u64 {
    reply.header("retry-after").expect("it is told").parse().expect("seconds")
}

fn assert_shed(reply: &Reply, what: &str) {
    assert_eq!(reply.status, 503, "{what}: {}", reply.body_text());
    assert_eq!(reply.json()["error"]["message"], "Service temporarily unavailable", "{what}");
    assert!((1..=5).contains(&wait_of(reply)), "{what}: {:?}", reply.header("retry-after"));
}

fn assert_served(reply: &Reply, what: &str) {
    assert_eq!(reply.status, 200, "{what}: {}", reply.body_text());
}

#[tokio::test]
async fn ovl_2_each_level_refuses_more_and_what_must_go_on_goes_on() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let hand = Hand::start().await;
    let node = Loaded::start(&sim, &hand).await;
    let (modest, idle) = (node.new_key().await, node.new_key().await);
    // Three streams of one key and one of another: a fair share is two.
    let mut streams = Vec::new();
    let events = tale("hello");
    for key in [INFERENCE_KEY, INFERENCE_KEY, INFERENCE_KEY, &modest] {
        let ask = node.gate.ask("POST", "/v1/messages").key(key).json(hello_streamed(HELD).to_string());
        let (mut upstream, mut stream) = tokio::join!(
            async {
                let mut call = hand.call().await.streams().await;
                call.send(&events[..3].concat()).await;
                call
            },
            ask.open()
        );
        stream.until("content_block_delta").await;
        upstream.send(": alive\n\n").await;
        streams.push((upstream, stream));
    }
    for (level, share) in [(0, 799), (1, 800), (2, 900), (3, 930), (4, 950)] {
        node.uses("memory", share, 0).await;
        assert_eq!(node.level().await, level);
        let check = |reply: &Reply, from: u32, what: &str| {
            let what = format!("{what} at level {level}");
            if level >= from { assert_shed(reply, &what) } else { assert_served(reply, &what) }
        };
        for path in LISTS {
            check(&node.list(path).await, 1, path);
        }
        check(&node.call(&modest, FREE).await, 2, "a free model");
        check(&node.call(INFERENCE_KEY, PAID).await, 3, "a key above its share");
        check(&node.call(&modest, PAID).await, 4, "a key below its share");
        check(&node.call(&idle, PAID).await, 4, "a key with nothing under way");
        let count = node.gate.ask("POST", "/v1/messages/count_tokens").key(&idle);
        check(&count.json(hello(PAID).to_string()).send().await, 4, "a count");
        node.assert_the_rest_goes_on().await;
        assert_served(&node.list(&format!("/keys/{}", hash_of(&idle))).await, "one key is no list");
    }
    // Streams under way come to their end, and are settled, at the worst of levels.
    for (mut upstream, stream) in streams {
        upstream.send(&events[3..].concat()).await;
        upstream.end().await;
        let id = stream.id();
        assert_eq!(stream.rest().await.last().map(|event| event.name.as_str()), Some("message_stop"));
        eventually("it is on record", LOOK, async || node.list(&format!("/generation?id={id}")).await.status == 200)
            .await;
    }
    let lists = u32::try_from(4 * LISTS.len()).expect("few");
    assert_eq!([node.shed("reads").await, node.shed("free").await], [lists, 2], "a free call at 2 and 3");
    // At level 4 nobody asks whose call it is: four calls and a count.
    assert_eq!([node.shed("fair_share").await, node.shed("inference").await], [1, 5]);
}

#[tokio::test]
async fn ovl_3_a_refused_call_is_answered_before_its_body_and_without_a_look_at_its_key() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let node = Loaded::start(&sim, &Hand::start().await).await;
    node.uses("descriptors", 951, 0).await;
    // The body never comes.
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {INFERENCE_KEY}\r\n\
         content-type: application/json\r\ncontent-length: 1000000\r\nconnection: close\r\n\r\n"
    );
    let answer = node.gate.raw(head).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains(r#""error_type":"provider_overloaded""#), "{answer}");
    // Not even a key that nobody knows is looked for.
    assert_shed(&node.call("nobody's", PAID).await, "an unknown key");
    let mut waits = Vec::new();
    for _ in 0..40 {
        waits.push(wait_of(&node.call(INFERENCE_KEY, PAID).await));
    }
    assert!(waits.iter().any(|wait| *wait != waits[0]), "they do not all come back at once: {waits:?}");
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn ovl_2_what_was_refused_is_taken_again_in_reverse_after_ten_seconds_each() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let node = Loaded::start(&sim, &Hand::start().await).await;
    node.uses("ledger", 951, 1_000).await;
    assert_shed(&node.call(INFERENCE_KEY, PAID).await, "all calls");
    node.uses("ledger", 100, 2_000).await;
    let served = async || {
        let calls = [node.call(INFERENCE_KEY, PAID).await.status, node.call(INFERENCE_KEY, FREE).await.status];
        (calls, node.list("/keys").await.status)
    };
    // Until, and which calls are served then: paid ones, free ones; lists. The share says which look has been taken.
    let steps = [
        (11_999, 4, ([503, 503], 503)),
        (12_000, 3, ([200, 503], 503)),
        (21_999, 3, ([200, 503], 503)),
        (22_000, 2, ([200, 503], 503)),
        (32_000, 1, ([200, 200], 503)),
        (41_999, 1, ([200, 200], 503)),
        (42_000, 0, ([200, 200], 200)),
    ];
    for (number, (at, level, expected)) in (0..).zip(steps) {
        node.uses("ledger", 101 + number, at).await;
        assert_eq!((node.level().await, served().await), (level, expected), "at {at}");
    }
    let log = node.gate.stderr();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((lines("overloaded: more is refused"), lines("the load goes down: less is refused")), (1, 4), "{log}");
    assert!(log.contains("ledger"), "the log says what ran out: {log}");
}

#[tokio::test]
async fn a_slow_store_costs_lists_and_never_a_call() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let node = Loaded::start(&sim, &Hand::start().await).await;
    node.uses("store", 5_000, 0).await;
    assert_eq!(node.level().await, 1);
    assert_shed(&node.list("/keys").await, "a list");
    for model in [PAID, FREE] {
        assert_served(&node.call(INFERENCE_KEY, model).await, model);
    }
}

#[tokio::test]
async fn ovl_1_memory_and_descriptors_are_measured_against_what_there_is() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let limit: u64 = 1 << 32;
    let config = format!("[limits]\nmemory_bytes = {limit}\n");
    let gate = Tidegate::start().endpoint(PAID, &sim).config(&config).run().await;
    let used = async |resource: &str| -> f64 {
        let metrics = gate.managed("/metrics").await;
        let name = format!("tidegate_overload_used_ratio{{resource=\"{resource}\"}} ");
        let line = metrics.body_text().lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned);
        line.map_or(0.0, |value| value.parse().expect("a number"))
    };
    eventually("it is measured", LOOK, async || used("memory").await > 0.0).await;
    // As the kernel says it from outside, give or take what changed in between; a share is in thousandths.
    let (inside, outside) = (used("memory").await, gate.memory() as f64 / limit as f64);
    assert!((inside - outside).abs() < 0.01, "{inside} and {outside}");
    let text = std::fs::read_to_string(format!("/proc/{}/limits", gate.pid())).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).expect("Linux names it");
    let most: f64 = line.split_ascii_whitespace().next().expect("the soft limit").parse().expect("a number");
    // Enough open connections for the share to be seen.
    let mut open = Vec::new();
    while (open.len() as f64) < most * 0.02 && open.len() < 1_000 {
        open.push(gate.connect().await);
    }
    let least = (open.len() as f64 / most - 0.001).max(0.0);
    eventually("they are counted", LOOK, async || used("descriptors").await >= least).await;
    assert_eq!(gate.messages(hello(PAID)).await.status, 200);
}
