//! Bodies that are long in coming: what they hold is counted while it comes.

use std::time::Duration;

use tidegate_sim::{Behaviour, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{INFERENCE_KEY, Tidegate, eventually, hello};

const MODEL: &str = "anthropic/claude-sonnet-5";
const LOOK: Duration = Duration::from_secs(20);

/// Sends so many bytes of a body that is one longer, and holds the last one back.
async fn begun(gate: &Tidegate, path: &str, key: Option<&str>, bytes: usize) -> TcpStream {
    let mut stream = gate.connect().await;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\n{key}content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        bytes + 1
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&vec![b' '; bytes]).await;
    stream
}

/// The status of an answer that comes although the body is not whole; nothing when none does.
async fn refusal(stream: &mut TcpStream) -> Option<String> {
    let mut head = [0; 12];
    let read = tokio::time::timeout(Duration::from_millis(300), stream.read_exact(&mut head)).await;
    read.ok()?.ok()?;
    Some(String::from_utf8_lossy(&head[9..]).into_owned())
}

async fn another_key(gate: &Tidegate) -> String {
    let made = gate.place.run(&["keys", "create", "--name", "another"]).await;
    let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", LOOK, is_known).await;
    key
}

#[tokio::test]
async fn a_body_that_is_not_whole_counts_as_a_request_of_its_key() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nin_flight_key = 2\n").run().await;
    let other = another_key(&gate).await;
    let first = begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 100_000).await;
    let second = begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 100_000).await;
    let status = async || gate.messages(hello(MODEL)).await.status;
    eventually("both are counted", LOOK, async || status().await == 429).await;
    assert_eq!(
        refusal(&mut begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 100_000).await).await.as_deref(),
        Some("429")
    );
    let reply = gate.ask("POST", "/v1/messages").key(&other).json(hello(MODEL).to_string()).send().await;
    assert_eq!(reply.status, 200, "another key has its own places");
    drop((first, second));
    eventually("they are given back", LOOK, async || status().await == 200).await;
}

#[tokio::test]
async fn bodies_that_are_not_whole_have_a_part_of_the_memory() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    // A quarter for all of them, which is 150 MiB: 75 for a key, and 18 for those who have none.
    let config = format!("[limits]\nmemory_bytes = {}\n", 600 << 20);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&config).run().await;
    let other = another_key(&gate).await;
    let measured = async || gate.managed("/metrics").await.body_text().contains("resource=\"memory\"} 0.");
    eventually("the memory is known", LOOK, measured).await;
    let mut held = Vec::new();
    let mut refused = None;
    while held.len() < 6 && refused.is_none() {
        let mut stream = begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 16 << 20).await;
        refused = refusal(&mut stream).await;
        held.push(stream);
    }
    // The fifth passes 75 MiB.
    assert_eq!((held.len(), refused.as_deref()), (5, Some("429")));
    let mut others = begun(&gate, "/v1/messages", Some(&other), 16 << 20).await;
    assert_eq!(refusal(&mut others).await, None, "another key has its own part");
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200, "what comes in one piece is not held up");

    let mut strangers = Vec::new();
    let mut refused = None;
    while strangers.len() < 100 && refused.is_none() {
        let mut stream = begun(&gate, "/api/v1/auth/keys", None, 250_000).await;
        refused = if strangers.len() > 70 { refusal(&mut stream).await } else { None };
        strangers.push(stream);
    }
    // 18 MiB and three quarters are 78 of these.
    assert_eq!((strangers.len(), refused.as_deref()), (79, Some("503")));
    drop((held, others, strangers));
    let is_free =
        async || refusal(&mut begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 30 << 20).await).await.is_none();
    eventually("it is given back", LOOK, is_free).await;
}
