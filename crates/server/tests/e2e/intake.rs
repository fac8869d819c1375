//! Bodies that are long in coming: what they hold is counted while it comes.

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, eventually, hello};

const MODEL: &str = "anthropic/claude-sonnet-5";
const LOOK: Duration = Duration::from_secs(20);

/// Sends so many bytes of a body that is one longer, and holds the last one back.
async fn begun(gate: &Tidegate, path: &str, key: Option<&str>, bytes: usize) -> TcpStream {
    let mut stream = gate.connect().await;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let kind = if path.ends_with("/files") { "multipart/form-data; boundary=b" } else { "application/json" };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\n{key}content-type: {kind}\r\ncontent-length: {}\r\n\r\n",
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

async fn another_key(gate: &Tidegate, workspace: &str) -> String {
    let made = gate.place.run(&["keys", "create", "--name", "another", "--workspace", workspace]).await;
    let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", LOOK, is_known).await;
    key
}

/// A key of a workspace of its own.
async fn another_workspace(gate: &Tidegate, slug: &str) -> String {
    let body = json!({"name": slug, "slug": slug}).to_string();
    let made = gate.ask("POST", "/api/v1/workspaces").key(MANAGEMENT_KEY).json(body).send().await;
    assert_eq!(made.status, 201, "{}", made.body_text());
    another_key(gate, slug).await
}

#[tokio::test]
async fn a_body_that_is_not_whole_counts_as_a_request_of_its_key() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).config("[limits]\nin_flight_key = 2\n").run().await;
    let other = another_key(&gate, "default").await;
    let status = async || gate.messages(hello(MODEL)).await.status;
    let mut held = Vec::new();
    for _ in 0..50 {
        while held.len() < 2 {
            held.push(begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 100_000).await);
        }
        if status().await == 429 {
            break;
        }
        // What asked just now may have taken the place of one of them, which was refused then.
        let mut left = Vec::new();
        for mut stream in held {
            if refusal(&mut stream).await.is_none() {
                left.push(stream);
            }
        }
        held = left;
    }
    assert_eq!(
        refusal(&mut begun(&gate, "/v1/messages", Some(INFERENCE_KEY), 100_000).await).await.as_deref(),
        Some("429")
    );
    let reply = gate.ask("POST", "/v1/messages").key(&other).json(hello(MODEL).to_string()).send().await;
    assert_eq!(reply.status, 200, "another key has its own places");
    drop(held);
    eventually("they are given back", LOOK, async || status().await == 200).await;
}

#[tokio::test]
async fn bodies_that_are_not_whole_have_a_part_of_the_memory() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    // A quarter for all of them, which is 150 MiB: 75 for a workspace, 18 for those who have no key, and half of it again for
    // workspaces that hold little.
    let config = format!("[limits]\nmemory_bytes = {}\n", 600 << 20);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&config).run().await;
    let (same, other, third) = (
        another_key(&gate, "default").await,
        another_workspace(&gate, "second").await,
        another_workspace(&gate, "third").await,
    );
    let measured = async || gate.managed("/metrics").await.body_text().contains("resource=\"memory\"} 0.");
    eventually("the memory is known", LOOK, measured).await;
    let send = async |key: &str, megabytes: usize| {
        let mut stream = begun(&gate, "/v1/messages", Some(key), megabytes << 20).await;
        (refusal(&mut stream).await, stream)
    };
    let (mut held, mut refused) = (Vec::new(), None);
    while held.len() < 6 && refused.is_none() {
        let (answer, stream) = send(if held.len() % 2 == 0 { INFERENCE_KEY } else { &same }, 16).await;
        refused = answer;
        held.push(stream);
    }
    // The fifth passes 75 MiB, whichever key of the workspace it comes with.
    assert_eq!((held.len(), refused.as_deref()), (5, Some("429")));
    held.truncate(4);
    for megabytes in [30, 30, 14] {
        let (refused, stream) = send(&other, megabytes).await;
        assert_eq!(refused, None, "another workspace has its own part");
        held.push(stream);
    }
    // 138 of 150 are held, by two who could hold the rest as well.
    let (refused, stream) = send(INFERENCE_KEY, 10).await;
    assert_eq!(refused, None);
    held.push(stream);
    assert_eq!(send(&third, 16).await.0.as_deref(), Some("503"), "there is no room");
    assert_eq!(send(&third, 3).await.0, None, "there is for little");
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200, "what comes in one piece is not held up");
    drop(held);

    let has_room = async || send(&third, 20).await.0.is_none();
    eventually("it is given back", LOOK, has_room).await;
    let mut strangers = Vec::new();
    let mut refused = None;
    while strangers.len() < 100 && refused.is_none() {
        let mut stream = begun(&gate, "/api/v1/auth/keys", None, 250_000).await;
        refused = if strangers.len() > 70 { refusal(&mut stream).await } else { None };
        strangers.push(stream);
    }
    // 18 MiB and three quarters are 78 of these.
    assert_eq!((strangers.len(), refused.as_deref()), (79, Some("503")));
}

#[tokio::test]
async fn the_largest_file_that_is_allowed_can_be_sent_however_little_memory_there_is() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let config = format!("[limits]\nmemory_bytes = {}\n[files]\nmax_file_bytes = {}\n", 256 << 20, 100 << 20);
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(&config).run().await;
    let measured = async || gate.managed("/metrics").await.body_text().contains("resource=\"memory\"} 0.");
    eventually("the memory is known", LOOK, measured).await;
    let mut stream = begun(&gate, "/v1/files", Some(INFERENCE_KEY), 90 << 20).await;
    assert_eq!(refusal(&mut stream).await, None);
}
