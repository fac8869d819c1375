//! A process that is killed at any moment leaves the old state or the new one, never something between.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tidegate_core::id;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, MANAGEMENT_KEY, Tidegate, eventually, hello, on_both};

const MODEL: &str = "vendor/m";
const ROUNDS: usize = 25;

/// The secret of a number, and the label it is shown under.
fn secret(number: usize) -> String {
    format!("sk-rotated-{number:08}")
}

fn label(number: usize) -> String {
    let secret = secret(number);
    format!("{}...{}", &secret[..3], &secret[secret.len() - 4..])
}

/// The last number that was acknowledged and the last one that was sent.
#[derive(Default)]
struct Progress {
    sent: AtomicUsize,
    acknowledged: AtomicUsize,
}

/// One change after the other until the process is gone: each rotates the secret and names it, in one call.
async fn change(address: std::net::SocketAddr, path: String, progress: Arc<Progress>) {
    loop {
        let number = progress.sent.fetch_add(1, Ordering::SeqCst) + 1;
        let body = json!({"key": secret(number), "name": format!("number {number}")}).to_string();
        let Some(status) = patch(address, &path, &body).await else { return };
        assert_eq!(status, 200, "a change that is answered is made");
        progress.acknowledged.store(number, Ordering::SeqCst);
    }
}

/// The status of an answer, or nothing when the process went away.
async fn patch(address: std::net::SocketAddr, path: &str, body: &str) -> Option<u16> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!(
        "PATCH {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {MANAGEMENT_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let text = String::from_utf8_lossy(&answer);
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

on_both! {
    async fn aud_2_a_kill_leaves_the_old_state_or_the_new_one(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let created = account.data("POST", "/byok", Some(json!({"provider": "p0", "key": secret(0), "name": "number 0"})), 201).await;
        let path = format!("/api/v1/byok/{}", created["id"].as_str().expect("an id"));
        let Account { gate, store, .. } = account;
        store.close().await;
        let mut gate = gate;
        let progress = Arc::new(Progress::default());
        for round in 0..ROUNDS {
            let before = progress.acknowledged.load(Ordering::SeqCst);
            let mut running = tokio::task::JoinSet::new();
            running.spawn(change(gate.address, path.clone(), progress.clone()));
            // At least one change is made, however busy the machine is.
            eventually("a change is made", Duration::from_secs(10), async || {
                progress.acknowledged.load(Ordering::SeqCst) > before
            })
            .await;
            // Somewhere in the middle of a change: the moment is chance, and differs from round to round.
            let wait = u64::from(u16::from_le_bytes(id::random::<2>())) * 40_000 / 65_536;
            let ended = tokio::time::timeout(Duration::from_micros(wait), running.join_next()).await;
            assert!(ended.is_err(), "changes go on until the process is gone: {ended:?}");
            gate.signal(Signal::KILL);
            gate.exit().await;
            gate = gate.place.serve().await;

            let (sent, acknowledged) = (progress.sent.load(Ordering::SeqCst), progress.acknowledged.load(Ordering::SeqCst));
            let shown = gate.managed(&path).await.json()["data"].clone();
            let number: usize = shown["name"].as_str().and_then(|name| name.strip_prefix("number ")).and_then(|text| text.parse().ok()).expect("a name we gave");
            assert!((acknowledged..=sent).contains(&number), "round {round}: {number} is not between {acknowledged} and {sent}");
            assert_eq!(shown["label"], label(number), "name and secret change together");
            // The secret itself opens, and is the one that the label shows.
            assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
            let call = sim.requests().pop().expect("the upstream was called");
            assert_eq!(call.header("x-api-key").expect("a key"), secret(number));
            progress.acknowledged.store(number.max(before), Ordering::SeqCst);
            progress.sent.store(number.max(before), Ordering::SeqCst);
            for words in [["audit", "verify"], ["secrets", "verify"]] {
                let output = gate.place.run(&words).await;
                assert!(output.status.success(), "round {round}: {words:?}: {output:?}");
            }
        }
        assert!(progress.acknowledged.load(Ordering::SeqCst) > ROUNDS - 1, "changes were made at all");
        assert_eq!(gate.managed("/api/v1/byok").await.json()["total_count"], 1);
    }
}
