//! From the first start to the last breath.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tidegate_core::{GenerationId, Money, Outcome, Tenant};
use tidegate_sim::{Behaviour, Script, Sim};
use tidegate_store::Store;
use tidegate_store::generations::Generation;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{
    Hand, INFERENCE_KEY, MANAGEMENT_KEY, Place, Reply, Tidegate, command, eventually, hash_of, hello, hello_streamed,
    soon, tale,
};

const MODEL: &str = "vendor/m";
const FIVE_SECONDS: Duration = Duration::from_secs(5);

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Keys in a text, in order.
fn keys_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let mut keys: Vec<String> =
        words.filter(|word| word.starts_with("sk-tg") && word.len() > 40).map(ToOwned::to_owned).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[tokio::test]
async fn lif_1_the_first_start_makes_a_private_place_and_shows_its_keys_once() {
    let place = Place::new("[service]\nlisten = \"127.0.0.1:0\"\ndrain_delay = 0\n");
    let gate = place.serve().await;
    assert_eq!(mode(&gate.place.data_dir()), 0o700);
    assert_eq!(mode(&gate.place.data_dir().join("master.key")), 0o600);
    eventually("the keys are printed", FIVE_SECONDS, async || keys_in(&gate.stdout()).len() == 2).await;
    let keys = keys_in(&gate.stdout());
    let inference = keys.iter().find(|key| key.starts_with("sk-tg-v1-")).expect("an inference key");
    let management = keys.iter().find(|key| key.starts_with("sk-tgm-v1-")).expect("a management key");
    assert!(keys_in(&gate.stderr()).is_empty(), "keys are never logged");
    // The built-in simulated model answers with nothing configured.
    let body = json!({"model": "tidegate/sim", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]});
    let reply = gate.ask("POST", "/v1/messages").key(inference).json(body.to_string()).send().await;
    assert_eq!((reply.status, reply.text()), (200, "You said: Hello".to_owned()));
    assert_eq!(gate.ask("GET", "/version").key(management).send().await.status, 200);
    let master = std::fs::read(gate.place.data_dir().join("master.key")).unwrap();

    let (status, place) = gate.stop().await;
    assert!(status.success());
    let gate = place.serve().await;
    assert!(keys_in(&gate.stdout()).is_empty() && !gate.stdout().contains("First start"), "{}", gate.stdout());
    assert_eq!(std::fs::read(gate.place.data_dir().join("master.key")).unwrap(), master);
    let reply = gate.ask("POST", "/v1/messages").key(inference).json(body.to_string()).send().await;
    assert_eq!(reply.status, 200, "the first key lives on");
}

#[tokio::test]
async fn where_a_log_of_json_is_asked_for_nothing_else_is_on_standard_output() {
    let place = Place::new("[service]\nlisten = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\nlevel = \"debug\"\n");
    let gate = place.serve().await;
    eventually("the keys are shown", FIVE_SECONDS, async || keys_in(&gate.stderr()).len() == 2).await;
    assert_eq!(gate.get("/healthz").await.status, 200);
    gate.logs("healthz").await;
    let out = gate.stdout();
    assert!(out.lines().all(|line| line.starts_with('{')) && keys_in(&out).is_empty(), "{out}");
}

#[tokio::test]
async fn lif_1_a_second_process_on_the_same_folder_refuses_to_start() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let output = gate.place.run(&["serve"]).await;
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let line = said.lines().last().unwrap();
    assert!(line.starts_with("tidegate: another tidegate is using the data folder "), "{said}");
    assert!(!String::from_utf8(output.stdout).unwrap().contains("listening"));
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200, "the first one is not disturbed");
}

#[tokio::test]
async fn lif_1_a_lost_master_key_is_not_replaced_by_a_new_one() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let (_, place) = gate.stop().await;
    std::fs::remove_file(place.data_dir().join("master.key")).unwrap();
    let output = place.run(&["serve"]).await;
    assert!(!output.status.success());
    assert!(!place.data_dir().join("master.key").exists());
}

#[tokio::test]
async fn lif_1_the_keys_of_the_first_start_are_asked_for_then_and_not_later() {
    let unset = "[service]\nlisten = \"127.0.0.1:0\"\n[keys]\nmanagement_key = \"env:E2E_FIRST_KEY\"\n";
    let place = Place::new(unset);
    for command in [&["serve"][..], &["check"]] {
        let output = place.run(command).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let problem = "keys.management_key: environment variable E2E_FIRST_KEY is not set";
        assert!(!output.status.success() && said.contains(problem), "{command:?}: {said}");
    }
    place.write_config(&unset.replace("env:E2E_FIRST_KEY", "sk-tgm-v1-0123456789abcdef"));
    let (_, place) = place.serve().await.stop().await;
    place.write_config(unset);
    for command in [&["keys", "list"][..], &["ledger", "verify"]] {
        let output = place.run(command).await;
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let gate = place.serve().await;
    let reply = gate.ask("GET", "/api/v1/keys").key("sk-tgm-v1-0123456789abcdef").send().await;
    assert_eq!(reply.status, 200, "the key that was brought lives on");
}

#[tokio::test]
async fn lif_1_who_only_looks_makes_no_store() {
    let place = Place::new("[service]\nlisten = \"127.0.0.1:0\"\n");
    std::fs::create_dir_all(place.data_dir()).unwrap();
    for command in [&["ledger", "verify"][..], &["keys", "list"], &["credits", "show"], &["audit", "verify"]] {
        let output = place.run(command).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("there is no store in "), "{command:?}: {said}");
        assert_eq!(std::fs::read_dir(place.data_dir()).unwrap().count(), 0, "{command:?}");
    }
}

#[tokio::test]
async fn lif_1_a_taken_address_is_a_clear_line() {
    let taken = Hand::start().await;
    let address = taken.base_url().replace("http://", "");
    let place = Place::new(&format!("[service]\nlisten = \"{address}\"\n"));
    let output = place.run(&["serve"]).await;
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    // The start that failed showed no keys, so it must not have made any.
    place.write_config("[service]\nlisten = \"127.0.0.1:0\"\n");
    let gate = place.serve().await;
    eventually("the keys are printed", FIVE_SECONDS, async || keys_in(&gate.stdout()).len() == 2).await;
}

#[tokio::test]
async fn lif_4_a_reload_swaps_models_and_an_invalid_file_changes_nothing() {
    let (old, new) = (Sim::start(Behaviour::says("old")).await, Sim::start(Behaviour::says("new")).await);
    let gate = Tidegate::start().endpoint(MODEL, &old).run().await;
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "old");

    gate.place.write_config(&Tidegate::start().endpoint(MODEL, &new).endpoint("vendor/more", &new).text());
    gate.signal(Signal::HUP);
    eventually("the new model is there", FIVE_SECONDS, async || {
        gate.messages(hello("vendor/more")).await.status == 200
    })
    .await;
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "new");

    for broken in ["this is not TOML", "[service]\nlisen = \"127.0.0.1:0\"\n", "[limits]\nmax_body_bytes = 0\n"] {
        let said = gate.stderr().matches("kept the old configuration").count();
        gate.place.write_config(broken);
        gate.signal(Signal::HUP);
        eventually("the mistake is reported", FIVE_SECONDS, async || {
            gate.stderr().matches("kept the old configuration").count() > said
        })
        .await;
        assert_eq!(gate.messages(hello("vendor/more")).await.text(), "new");
    }
    std::fs::remove_file(gate.place.config()).unwrap();
    gate.signal(Signal::HUP);
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "new");
}

/// Over HTTP and with the command, which is the same; whoever asks hears what is wrong or needs a restart.
#[tokio::test]
async fn lif_4_a_reload_that_is_asked_for_says_what_came_of_it() {
    let (old, new) = (Sim::start(Behaviour::says("old")).await, Sim::start(Behaviour::says("new")).await);
    let gate = Tidegate::start().endpoint(MODEL, &old).run().await;
    let ask = async || gate.ask("POST", "/api/v1/reload").key(MANAGEMENT_KEY).send().await;
    let reply = ask().await;
    assert_eq!((reply.status, reply.json()), (200, json!({"data": {"needs_restart": []}})));

    let fixed = "[oauth]\nstrict_pkce = true\n[service]\ntrusted_proxies = [\"10.0.0.0/8\"]\n";
    gate.place.write_config(&Tidegate::start().endpoint(MODEL, &new).config(fixed).text());
    let named = ["service.trusted_proxies", "oauth.strict_pkce"];
    assert_eq!(ask().await.json()["data"]["needs_restart"], json!(named));
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "new");
    gate.logs("service.trusted_proxies, oauth.strict_pkce").await;

    let words = ["reload", "--url", &gate.url(), "--management-key", MANAGEMENT_KEY];
    let done = soon("the command", command(&words).output()).await.unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success() && said.contains("until a restart: service.trusted_proxies"), "{said}");

    gate.place.write_config("[limits]\nmax_body_bytes = 0\n[ledger]\nsync = \"never\"\n");
    let reply = ask().await;
    assert_eq!(reply.status, 400);
    assert!(reply.body_text().contains("limits.max_body_bytes: must be at least 1"), "{}", reply.body_text());
    let failed = soon("the command", command(&words).output()).await.unwrap();
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(!failed.status.success() && said.contains("max_body_bytes"), "{said}");
    assert!(said.trim_end().lines().count() == 2 && !said.contains("\\n"), "each mistake has a line: {said}");
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "new");
}

/// The ledger waits for calls as long as was said at the start: they must not be given more, or less.
#[tokio::test]
async fn lif_4_what_needs_a_restart_stays_as_it_was() {
    let slow = Sim::start(Script::says("slow").first_byte(Duration::from_millis(900))).await;
    let builder = || Tidegate::start().endpoint(MODEL, &slow);
    let gate = builder().run().await;
    gate.place.write_config(&builder().config("[upstream]\ntotal_whole_ms = 300\n").text());
    let reply = gate.ask("POST", "/api/v1/reload").key(MANAGEMENT_KEY).send().await;
    assert_eq!(reply.json()["data"]["needs_restart"], json!(["upstream.total_whole_ms"]), "{}", reply.body_text());
    let answered = gate.messages(hello(MODEL)).await;
    assert_eq!((answered.status, &*answered.text()), (200, "slow"));
}

#[tokio::test]
async fn lif_4_a_running_stream_keeps_the_configuration_it_began_with() {
    let hand = Hand::start().await;
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").run().await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("hello")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    stream.until("content_block_delta").await;
    let sim = Sim::start(Behaviour::says("new")).await;
    gate.place.write_config(&Tidegate::start().endpoint("vendor/other", &sim).text());
    gate.signal(Signal::HUP);
    // Asked for by the new name: a call under the old one would wait for the hand.
    eventually("the new model is there", FIVE_SECONDS, async || {
        gate.messages(hello("vendor/other")).await.status == 200
    })
    .await;
    assert_eq!(gate.messages(hello(MODEL)).await.status, 400);
    call.send(&tale("hello")[3..].concat()).await;
    call.end().await;
    assert_eq!(stream.rest().await.last().map(|event| event.name.clone()).as_deref(), Some("message_stop"));
}

/// Twenty reloads under load, each with other providers, prices and limits: whoever asks meanwhile is answered.
#[tokio::test(flavor = "multi_thread")]
async fn lif_4_no_request_is_dropped_while_the_configuration_changes() {
    let sims = [Sim::start(Behaviour::says("hello")).await, Sim::start(Behaviour::says("hello")).await];
    let configured = |round: usize| {
        let price = format!("pricing = {{ input = {}, output = 2 }}", round + 1);
        let gate = Tidegate::start().config(&format!("[limits]\nin_flight_key = {}\n", 200 + round));
        let gate = gate.endpoint_with(MODEL, &sims[round % 2], &price);
        let name = format!("vendor/round-{round}");
        gate.endpoint_with(&name, &sims[(round + 1) % 2], &price)
    };
    let gate = configured(0).run().await;
    let over = tokio::sync::watch::channel(false);
    let mut asked = tokio::task::JoinSet::new();
    for caller in 0..8 {
        let (over, base) = (over.1.clone(), gate.ask("POST", "/v1/messages"));
        asked.spawn(async move {
            let body = if caller % 2 == 0 { hello(MODEL) } else { hello_streamed(MODEL) };
            let mut served = 0;
            while !*over.borrow() {
                let reply = base.clone().key(INFERENCE_KEY).json(body.to_string()).send().await;
                assert_eq!((reply.status, reply.text().as_str()), (200, "hello"), "{}", reply.body_text());
                served += 1;
            }
            served
        });
    }
    for round in 1..=20 {
        gate.place.write_config(&configured(round).text());
        gate.signal(Signal::HUP);
        let name = format!("vendor/round-{round}");
        eventually("the next configuration is there", FIVE_SECONDS, async || {
            gate.messages(hello(&name)).await.status == 200
        })
        .await;
    }
    over.0.send(true).expect("the callers still listen");
    while let Some(served) = asked.join_next().await {
        assert!(served.expect("no caller failed") > 0);
    }
    assert!(sims.iter().all(|sim| sim.calls() > 20));
}

#[tokio::test]
async fn lif_2_a_stop_serves_until_it_accepts_no_more_and_lets_running_streams_finish() {
    let hand = Hand::start().await;
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config("[service]\ndrain_delay = 30\n");
    let mut gate = gate.run().await;
    let answering = async {
        let mut call = hand.call().await.streams().await;
        call.send(&tale("hello")[..3].concat()).await;
        call
    };
    let (mut stream, mut call) = tokio::join!(gate.stream(hello_streamed(MODEL)), answering);
    let id = stream.id();
    stream.until("content_block_delta").await;
    assert_eq!(gate.get("/readyz").await.status, 200);

    gate.signal(Signal::TERM);
    eventually("it is not ready any more", FIVE_SECONDS, async || gate.get("/readyz").await.status == 503).await;
    // Whoever has not looked at the readiness yet is served.
    let whole = r#"{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;
    let (served, ()) = tokio::join!(gate.messages(hello(MODEL)), async { hand.call().await.answers(whole).await });
    // And is told to look: a connection that is kept would be closed under its next request.
    assert_eq!((served.status, served.text(), served.header("connection")), (200, "hello".to_owned(), Some("close")));
    assert_eq!(gate.get("/healthz").await.status, 200);
    // One whose body is still on its way when that is over.
    let body = hello(MODEL).to_string();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {INFERENCE_KEY}\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        body.len()
    );
    let mut late = gate.connect().await;
    late.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    soon("it may go on", late.read_exact(&mut go_on)).await.unwrap();

    // The second signal skips the wait for load balancers, not the running stream.
    gate.signal(Signal::TERM);
    eventually("nothing is accepted any more", FIVE_SECONDS, async || {
        tokio::net::TcpStream::connect(gate.address).await.is_err()
    })
    .await;
    late.write_all(body.as_bytes()).await.unwrap();
    let mut refused = String::new();
    soon("the refusal", late.read_to_string(&mut refused)).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    for part in ["\r\nconnection: close\r\n", "\r\nretry-after: ", "Service temporarily unavailable"] {
        assert!(refused.contains(part), "{part:?} in {refused}");
    }
    call.send(&tale("hello")[3..].concat()).await;
    call.end().await;
    assert_eq!(stream.rest().await.last().map(|event| event.name.clone()).as_deref(), Some("message_stop"));
    assert_eq!(gate.exit().await.code(), Some(0));
    let record = generation(&gate.place, &id).await.expect("it was recorded before the end");
    assert_eq!(record.outcome, Outcome::Complete);
}

#[tokio::test]
async fn lif_2_what_is_left_after_the_time_for_draining_is_told_so_and_settled() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 5 }).await;
    let config = "[service]\ndrain_timeout = 0\n";
    let mut gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    let mut stream = gate.stream(hello_streamed(MODEL)).await;
    let id = stream.id();
    stream.until("content_block_delta").await;
    gate.signal(Signal::TERM);
    let rest = stream.rest().await;
    let last = rest.last().expect("an end is told");
    assert_eq!((last.name.as_str(), &last.json()["request_id"]), ("error", &json!(id)));
    assert_eq!(gate.exit().await.code(), Some(0));
    let record = generation(&gate.place, &id).await.expect("it was settled before the end");
    assert_eq!(record.outcome, Outcome::Broken);
}

#[tokio::test]
async fn lif_2_a_stream_that_still_waits_for_content_is_told_so_too() {
    let hand = Hand::start().await;
    let config = "[service]\ndrain_timeout = 0\n[stream]\nearly_commit_ms = 60\n";
    let mut gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(config).run().await;
    let (mut stream, _call) = tokio::join!(gate.stream(hello_streamed(MODEL)), hand.call());
    let id = stream.id();
    assert_eq!(stream.next().await.expect("a comment").name, "");
    gate.signal(Signal::TERM);
    let rest = stream.rest().await;
    let last = rest.last().expect("an end is told");
    let data = last.json();
    assert_eq!((last.name.as_str(), &data["request_id"]), ("error", &json!(id)));
    assert_eq!(data["error"]["message"], "Service temporarily unavailable");
    assert_eq!(gate.exit().await.code(), Some(0));
    let record = generation(&gate.place, &id).await.expect("it was settled before the end");
    assert_eq!((record.outcome, record.status), (Outcome::Failed, 503));
}

#[tokio::test]
async fn lif_2_a_request_without_a_stream_is_told_so_with_a_status() {
    let hand = Hand::start().await;
    // The second is a stream whose status is held until there is content: it can still be told with one too.
    for (request, config) in [(hello(MODEL), ""), (hello_streamed(MODEL), "[stream]\nearly_commit_ms = 0\n")] {
        let config = format!("[service]\ndrain_timeout = 0\n{config}");
        let mut gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(&config).run().await;
        let stopping = async {
            let call = hand.call().await;
            gate.signal(Signal::TERM);
            call
        };
        let (reply, _call) = tokio::join!(gate.messages(request), stopping);
        let (status, kind, _, message) = reply.error();
        assert_eq!((status, &*kind, &*message), (503, "overloaded_error", "Service temporarily unavailable"));
        let id = reply.header("x-generation-id").expect("a generation has an id").to_owned();
        assert_eq!(gate.exit().await.code(), Some(0));
        let record = generation(&gate.place, &id).await.expect("it was settled before the end");
        assert_eq!((record.outcome, record.status), (Outcome::Failed, 503), "the client was there");
    }
}

#[tokio::test]
async fn lif_2_signals_in_any_order_end_in_a_clean_exit() {
    for signals in [
        vec![Signal::HUP, Signal::TERM],
        vec![Signal::TERM, Signal::HUP],
        vec![Signal::HUP, Signal::HUP, Signal::HUP, Signal::TERM, Signal::TERM, Signal::HUP, Signal::TERM],
        vec![Signal::INT],
    ] {
        let sim = Sim::start(Behaviour::says("hello")).await;
        // At the very moment the address is known, nothing may be lost and nothing may kill.
        let mut gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
        for signal in &signals {
            gate.signal(*signal);
        }
        assert_eq!(gate.exit().await.code(), Some(0), "{signals:?}");
    }
}

#[tokio::test]
async fn a_stop_without_work_is_quick() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    gate.messages(hello(MODEL)).await;
    let before = tokio::time::Instant::now();
    assert!(gate.stop().await.0.success());
    assert!(before.elapsed() < Duration::from_millis(1_500), "{:?}", before.elapsed());
}

#[tokio::test]
async fn lif_1_a_killed_process_can_be_started_again() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let mut gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    gate.messages(hello(MODEL)).await;
    gate.signal(Signal::KILL);
    gate.exit().await;
    let gate = gate.place.serve().await;
    assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello");
}

/// Reads a record from the store of a place, beside the server if one runs.
async fn generation(place: &Place, id: &str) -> Option<Generation> {
    let store = Store::open("sqlite:tidegate.db", &place.data_dir()).await.expect("the store opens");
    let organisation = store.sole_organisation().await.expect("it answers").expect("the first start made one").id;
    let id = GenerationId::parse(id).expect("an id");
    let found = store.find_generation(&Tenant { organisation }, &id).await.expect("it answers");
    store.close().await;
    found
}

async fn recorded(gate: &Tidegate, id: &str) -> Generation {
    eventually("it is recorded", FIVE_SECONDS, async || generation(&gate.place, id).await.is_some()).await;
    generation(&gate.place, id).await.expect("it was there")
}

#[tokio::test]
async fn every_generation_is_recorded_as_it_ended() {
    let (first, second) = (Sim::start(Behaviour::status(529)).await, Sim::start(Behaviour::Echo).await);
    let prices = "pricing = { input = 3, output = 15 }";
    let gate = Tidegate::start().endpoint(MODEL, &first).endpoint_with(MODEL, &second, prices).run().await;
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{"input_tokens":14,"output_tokens":9}}"#;
    second.set(Behaviour::Raw { status: 200, headers: vec![], body: body.into() });
    let mut request = hello(MODEL);
    request["user"] = json!("u-1");
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-session-id", "s-1");
    let reply = ask.json(request.to_string()).send().await;
    let record = recorded(&gate, reply.header("x-generation-id").unwrap()).await;
    assert_eq!((record.outcome, record.status, record.streamed), (Outcome::Complete, 200, false));
    assert_eq!((record.model.as_str(), record.provider.as_str()), (MODEL, "P1"));
    assert_eq!((record.usage.input, record.usage.output), (14, 9));
    // 14 at 3 and 9 at 15 millionths of a dollar, in nano-dollars.
    assert_eq!(record.cost, Some(Money(14 * 3_000 + 9 * 15_000)));
    assert_eq!((record.session.as_deref(), record.user.as_deref()), (Some("s-1"), Some("u-1")));
    assert_eq!((record.stop_reason.as_deref(), record.message_id.as_deref()), (Some("end_turn"), Some("msg_up")));
    let attempts: Vec<_> = record.attempts.iter().map(|attempt| (&*attempt.provider, attempt.status)).collect();
    assert_eq!(attempts, [("P0", 529), ("P1", 200)]);
    assert_eq!(record.request_bytes, request.to_string().len() as u64);

    second.set(Behaviour::status(400));
    let reply = gate.messages(hello(MODEL)).await;
    let record = recorded(&gate, reply.header("x-generation-id").unwrap()).await;
    assert_eq!(
        (record.outcome, record.status, record.error_type.as_deref()),
        (Outcome::Failed, 400, Some("invalid_request"))
    );
    assert_eq!(record.cost, Some(Money(0)), "an error costs nothing");

    second.set(Behaviour::HangMidStream { after: 5 });
    let mut stream = gate.stream(hello_streamed(MODEL)).await;
    stream.until("content_block_delta").await;
    let id = stream.id();
    drop(stream);
    let record = recorded(&gate, &id).await;
    assert_eq!((record.outcome, record.streamed), (Outcome::Cancelled, true));

    // A refused request that never was a generation leaves nothing, and no text of anyone is kept.
    assert!(gate.post("{").await.header("x-generation-id").is_none());
    let (_, place) = gate.stop().await;
    for entry in std::fs::read_dir(place.data_dir()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in [INFERENCE_KEY, MANAGEMENT_KEY, "provider-secret"] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret} was stored");
        }
    }
}

#[tokio::test]
async fn key_7_running_streams_of_a_disabled_key_are_cut() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 5 }).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let output = gate.place.run(&["keys", "create", "--name", "short-lived"]).await;
    let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let hash = tidegate_core::KeyHash::of(key.as_bytes()).to_hex();
    let ask = gate.ask("POST", "/v1/messages").key(&key).json(hello_streamed(MODEL).to_string());
    let mut stream = ask.open().await;
    stream.until("content_block_delta").await;
    let mut other = gate.stream(hello_streamed(MODEL)).await;
    other.until("content_block_delta").await;
    assert!(gate.place.run(&["keys", "disable", &hash]).await.status.success());
    let rest = tokio::time::timeout(FIVE_SECONDS, stream.rest()).await.expect("within five seconds");
    assert_eq!(rest.last().map(|event| event.name.as_str()), Some("error"));
    soon("its upstream call is dropped, the other one stays", sim.wait_open(1)).await;
}

#[tokio::test]
async fn health_readiness_version_and_metrics_say_what_they_promise() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    assert_eq!(gate.get("/healthz").await.json(), json!({"status": "ok"}));
    let ready = gate.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["status"]), (200, &json!("ready")));
    assert_eq!(ready.json()["checks"]["store"], json!({"ok": true}), "details are for operators");
    let checks = gate.managed("/readyz").await.json()["checks"].clone();
    for name in ["store", "migrations", "keyring", "catalogue", "draining"] {
        assert!(checks[name]["ok"] == true && checks[name]["detail"].is_string(), "{name}: {checks}");
    }
    let version = gate.managed("/version").await.json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(
        version["built_at"].as_str().unwrap().ends_with('Z') && version["schema"].as_i64().unwrap() >= 15,
        "{version}"
    );

    let metrics = gate.managed("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let plain = gate.ask("GET", "/metrics").key(MANAGEMENT_KEY).header("accept", "text/plain").send().await;
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.body_text().contains("# TYPE tidegate_http_requests_total counter\n"), "{}", plain.body_text());
    assert!(!plain.body_text().contains("# EOF"));
    gate.messages(hello(MODEL)).await;
    gate.messages(hello_streamed(MODEL)).await;
    gate.post("{").await;
    gate.ask("POST", "/v1/messages").key("garbage").send().await;
    let counted = r#"tidegate_generations_total{model="vendor/m",provider="P0",outcome="complete",stop_reason="end_turn",byok="false"} 2"#;
    eventually("both are counted", FIVE_SECONDS, async || gate.managed("/metrics").await.body_text().contains(counted))
        .await;
    let text = gate.managed("/metrics").await.body_text().to_owned();
    for line in [
        r#"tidegate_http_requests_total{route="/messages",method="POST",status="200"} 2"#,
        r#"tidegate_http_requests_total{route="/messages",method="POST",status="400"} 1"#,
        r#"tidegate_http_requests_total{route="/messages",method="POST",status="401"} 1"#,
        r#"tidegate_upstream_attempts_total{provider="P0",model="vendor/m",status_class="2xx",error_type="none"} 2"#,
        r#"tidegate_auth_failures_total{reason="invalid"} 1"#,
        r#"tidegate_http_request_duration_seconds_count{route="/messages"} 4"#,
        "tidegate_panics_total 0",
        // What is caught there is a defect elsewhere.
        "tidegate_scrubber_hits_total 0",
        "tidegate_records_lost_total 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("e2e-inference-key"));
}

#[tokio::test]
async fn a_newcomer_finds_a_page_and_a_document() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let page = gate.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.body_text();
    assert!(text.contains(&gate.url()) && text.contains(r#""model":"author/model""#), "{text}");
    // Anybody may look at it.
    assert!(!text.contains(MODEL) && !text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    assert!(page.header("content-security-policy").is_some());
    let document = gate.get("/v1/openapi.json").await.json();
    assert_eq!(document["servers"][0]["url"], json!(format!("{}/api/v1", gate.url())));
    assert!(document["paths"]["/messages"]["post"].is_object());
}

#[tokio::test]
async fn every_request_has_one_line_in_the_log() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let generation = gate.messages(hello(MODEL)).await.header("x-generation-id").unwrap().to_owned();
    let listed = gate.ask("GET", "/v1/models").key(INFERENCE_KEY).send().await;
    let refused = gate.ask("POST", "/v1/messages").key("nobody").json("{}").send().await;
    let nowhere = gate.ask("GET", "/v1/nowhere").send().await;
    gate.ask("GET", "/healthz").send().await;
    let lines = || gate.log().into_iter().filter(|line| line["msg"] == "request finished").collect::<Vec<Value>>();
    eventually("all have a line", FIVE_SECONDS, async || lines().len() >= 4).await;
    let of = |reply: &Reply| {
        let id = reply.header("x-request-id").unwrap();
        let own: Vec<Value> = lines().into_iter().filter(|line| line["request_id"] == id).collect();
        assert_eq!(own.len(), 1, "{id}: {:?}", lines());
        own[0].clone()
    };
    let prefix = &hash_of(INFERENCE_KEY)[..8];
    let lists = of(&listed);
    assert_eq!((&lists["route"], &lists["status"], &lists["level"]), (&json!("/models"), &json!(200), &json!("INFO")));
    assert_eq!((&lists["key_hash_prefix"], &lists["method"]), (&json!(prefix), &json!("GET")));
    assert!(lists["ts"].is_string() && lists["duration_ms"].is_u64() && lists["workspace_id"].is_string(), "{lists}");
    assert!(lists.get("model").is_none() && lists.get("error_type").is_none(), "{lists}");
    let refusal = of(&refused);
    assert_eq!((&refusal["route"], &refusal["status"]), (&json!("/messages"), &json!(401)));
    assert_eq!((&refusal["error_type"], refusal.get("key_hash_prefix")), (&json!("authentication"), None));
    assert_eq!((&of(&nowhere)["route"], &of(&nowhere)["status"]), (&json!("other"), &json!(404)));
    let calls: Vec<Value> = lines().into_iter().filter(|line| line["generation_id"] == generation).collect();
    let [call] = &calls[..] else { panic!("one line: {calls:?}") };
    for (name, value) in [
        ("request_id", json!(generation)),
        ("route", json!("/messages")),
        ("status", json!(200)),
        ("key_hash_prefix", json!(prefix)),
        ("model", json!(MODEL)),
        ("provider", json!("P0")),
        ("attempt", json!(1)),
    ] {
        assert_eq!(call[name], value, "{name}");
    }
    assert!(call["tokens"].as_u64().unwrap() > 0 && call["duration_ms"].is_u64(), "{call}");
    assert_eq!(lines().len(), 4, "whoever asks whether we are well has none: {:?}", lines());
}

#[tokio::test]
async fn nothing_secret_is_ever_logged_even_at_the_finest_level() {
    let sim = Sim::start(Behaviour::says("an answer nobody else may read")).await;
    let gate =
        Tidegate::start().endpoint(MODEL, &sim).config("[log]\nlevel = \"trace\"\nformat = \"json\"\n").run().await;
    let mut request = hello_streamed(MODEL);
    request["messages"][0]["content"] = json!("a question nobody else may read");
    assert_eq!(gate.messages(request).await.status, 200);
    gate.ask("POST", "/v1/messages").key("a-mistyped-key-of-someone").send().await;
    gate.logs("generation").await;
    let log = gate.stderr();
    for secret in [
        INFERENCE_KEY,
        MANAGEMENT_KEY,
        "provider-secret-0",
        "a-mistyped-key-of-someone",
        "question nobody else",
        "answer nobody else",
    ] {
        assert!(!log.contains(secret), "{secret} was logged");
    }
}
