//! Requests a minute that several gateways count together, and what happens when they cannot.

use std::time::Duration;

use rustix::process::Signal;
use tidegate_sim::{Behaviour, Sim};
use tokio::net::TcpListener;

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, Valkey, eventually, free_port, hello, together, with_postgres};
use crate::money::replicas;

const MODEL: &str = "vendor/m";
const TOGETHER: &str = "state.redis_url: requests a minute are counted by all gateways together";
const ALONE: &str = "state.redis_url: requests a minute are counted by each gateway for itself";
const TEN_SECONDS: Duration = Duration::from_secs(10);

async fn gate(sim: &Sim, state: &str, limits: &str) -> Tidegate {
    Tidegate::start().endpoint(MODEL, sim).config(state).config(&format!("[limits]\n{limits}\n")).run().await
}

async fn call(gate: &Tidegate) -> Reply {
    gate.messages(hello(MODEL)).await
}

/// The statuses of so many calls, one after the other.
async fn calls(gate: &Tidegate, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        statuses.push(call(gate).await.status);
    }
    statuses
}

/// How often requests were counted in this way.
async fn counted(gate: &Tidegate, result: &str) -> u32 {
    let metrics = gate.managed("/metrics").await;
    let name = format!("tidegate_shared_rates_total{{result=\"{result}\"}} ");
    let line = metrics.body_text().lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned);
    line.map_or(0, |count| count.parse().expect("a number"))
}

async fn is_up(gate: &Tidegate) -> bool {
    gate.managed("/metrics").await.body_text().contains("tidegate_shared_rates_up 1\n")
}

fn lines(gate: &Tidegate, text: &str) -> usize {
    gate.stderr().lines().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn led_25_two_gateways_share_one_limit_exactly() {
    let Some(valkey) = Valkey::start(None).await else { return };
    let sim = Sim::start(Behaviour::says("hello")).await;
    let limits = "key_rpm = 5\nworkspace_rpm = 10\naddress_rpm = 10";
    let gates = [gate(&sim, &valkey.config(), limits).await, gate(&sim, &valkey.config(), limits).await];
    for gate in &gates {
        gate.logs(TOGETHER).await;
    }
    // The same key in two stores is the same key.
    let asks = (0..30)
        .map(|number| gates[number % 2].ask("POST", "/v1/messages").key(INFERENCE_KEY).json(hello(MODEL).to_string()));
    let replies = together(asks).await;
    let with = |status: u16| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!((with(200), with(429)), (5, 25), "five in all, wherever they come");
    for reply in replies.iter().filter(|reply| reply.status == 429) {
        assert_eq!((reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining")), (Some("5"), Some("0")));
        let wait: u64 = reply.header("retry-after").expect("it is told").parse().expect("seconds");
        assert!((1..=12).contains(&wait), "one is free every twelve seconds: {wait}");
    }
    assert_eq!(counted(&gates[0], "shared").await + counted(&gates[1], "shared").await, 30);
    // Nothing but counters is there, and they go by themselves.
    let kept = valkey.said("KEYS *").await;
    let names: Vec<&str> =
        kept.lines().filter(|line| line.contains(':') && !line.starts_with(['*', '$', '+'])).collect();
    assert!((3..=4).contains(&names.len()), "a key, an address, the workspaces that let somebody in: {names:?}");
    for name in names {
        assert!(name.starts_with("tidegate:rate:") && !name.contains(INFERENCE_KEY), "{name}");
        let left = valkey.said(&format!("PTTL {name}")).await;
        let left: i64 = left.lines().next().and_then(|line| line.strip_prefix(':')).expect("a number").parse().unwrap();
        assert!((0..=60_000).contains(&left), "{name}: {left}");
    }
}

#[tokio::test]
async fn what_one_shared_rate_refuses_another_does_not_count() {
    let Some(valkey) = Valkey::start(None).await else { return };
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = gate(&sim, &valkey.config(), "key_rpm = 2\naddress_rpm = 4").await;
    gate.logs(TOGETHER).await;
    assert_eq!(calls(&gate, 6).await, [200, 200, 429, 429, 429, 429]);
    let made = gate.place.run(&["keys", "create", "--name", "another"]).await;
    let other = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
    eventually("the key is known", TEN_SECONDS, async || {
        gate.ask("GET", "/api/v1/key").key(&other).send().await.status == 200
    })
    .await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let ask = gate.ask("POST", "/v1/messages").key(&other).json(hello(MODEL).to_string());
        statuses.push(ask.send().await.status);
    }
    assert_eq!(statuses, [200, 200, 429], "four from the address, not eight");
}

#[tokio::test]
async fn led_25_without_the_server_each_counts_for_itself_and_comes_back_to_it() {
    let Some(mut valkey) = Valkey::start(None).await else { return };
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gates = [gate(&sim, &valkey.config(), "key_rpm = 3").await, gate(&sim, &valkey.config(), "key_rpm = 3").await];
    for gate in &gates {
        gate.logs(TOGETHER).await;
    }
    assert_eq!(call(&gates[0]).await.status, 200);
    valkey.kill().await;
    // What a gateway let in before counts on.
    assert_eq!(calls(&gates[0], 3).await, [200, 200, 429]);
    assert_eq!(calls(&gates[1], 4).await, [200, 200, 200, 429]);
    for gate in &gates {
        gate.logs(ALONE).await;
        assert!(counted(gate, "local").await > 0 && !is_up(gate).await);
    }
    valkey.up().await;
    for gate in &gates {
        eventually("they count together again", TEN_SECONDS, async || is_up(gate).await).await;
    }
    // The server came back empty: three in all.
    let mut statuses = Vec::new();
    for number in 0..5 {
        statuses.push(call(&gates[number % 2]).await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    for gate in &gates {
        assert_eq!((lines(gate, TOGETHER), lines(gate, ALONE)), (2, 1), "one line for each change: {}", gate.stderr());
    }
}

#[tokio::test]
async fn led_25_a_server_that_falls_silent_is_waited_for_once() {
    let Some(valkey) = Valkey::start(None).await else { return };
    let sim = Sim::start(Behaviour::says("hello")).await;
    let state = format!("[state]\nredis_url = \"{}\"\nredis_timeout_ms = 1000\n", valkey.url());
    let gate = gate(&sim, &state, "key_rpm = 6000").await;
    gate.logs(TOGETHER).await;
    assert_eq!(calls(&gate, 5).await, [200; 5]);
    assert_eq!((counted(&gate, "shared").await, counted(&gate, "slow").await), (5, 0));
    valkey.freeze();
    assert_eq!(calls(&gate, 20).await, [200; 20]);
    let ways = [counted(&gate, "shared").await, counted(&gate, "slow").await, counted(&gate, "local").await];
    assert_eq!(ways, [5, 1, 19], "one has waited, the others have not");
    gate.logs("the server does not answer in time").await;
    valkey.thaw();
    eventually("it is found again", TEN_SECONDS, async || is_up(&gate).await).await;
    assert_eq!(call(&gate).await.status, 200);
    assert_eq!(counted(&gate, "shared").await, 6);
}

#[tokio::test]
async fn led_25_nobody_waits_for_a_server_that_never_answered() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    // It accepts, by the kernel's hand, and nobody reads.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let port = silent.local_addr().expect("it listens").port();
    let state = format!("[state]\nredis_url = \"redis://127.0.0.1:{port}\"\n");
    let gate = gate(&sim, &state, "key_rpm = 3").await;
    assert_eq!(calls(&gate, 4).await, [200, 200, 200, 429]);
    gate.logs(ALONE).await;
    gate.logs("the server does not answer in time").await;
    assert_eq!([counted(&gate, "local").await, counted(&gate, "slow").await], [4, 0]);
    gate.signal(Signal::TERM);
}

#[tokio::test]
async fn a_wrong_password_is_told_by_the_settings_name_and_never_repeated() {
    let Some(valkey) = Valkey::start(Some("right-password")).await else { return };
    let sim = Sim::start(Behaviour::says("hello")).await;
    for password in [Some("wrong-password"), None] {
        let state = format!("[state]\nredis_url = \"{}\"\n", valkey.url_with(password));
        let gate = gate(&sim, &state, "key_rpm = 2").await;
        gate.logs(ALONE).await;
        gate.logs("the server does not take the user and password").await;
        assert_eq!(calls(&gate, 3).await, [200, 200, 429], "{password:?}");
        assert!(!gate.stderr().contains("wrong-password"), "{}", gate.stderr());
    }
    let mut place = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nkey_rpm = 2\n").place();
    let config = std::fs::read_to_string(place.config()).expect("it was written");
    place.write_config(&format!("{config}\n[state]\nredis_url = \"env:SHARED_RATES\"\nredis_timeout_ms = 5000\n"));
    place.environment("SHARED_RATES", Some(&valkey.url()));
    let gate = place.serve().await;
    gate.logs(TOGETHER).await;
    assert_eq!(calls(&gate, 3).await, [200, 200, 429]);
    assert_eq!(counted(&gate, "shared").await, 3);
}

#[test]
fn led_25_a_gateway_alone_counts_its_part_of_the_limit() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let state = format!("[state]\nredis_url = \"redis://127.0.0.1:{}\"\n", free_port().await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nkey_rpm = 7\n");
        let text = builder.config(&state).config(&database.config()).text();
        let gates = replicas(database, &text, 2).await;
        gates[1].logs("the server cannot be reached").await;
        // Two nodes were alive when the second one started: it may let in three of seven.
        assert_eq!(calls(&gates[1], 4).await, [200, 200, 200, 429]);
    });
}
