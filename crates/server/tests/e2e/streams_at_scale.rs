//! Many streams at once, in a module of its own so that the test runner can keep the machine free for it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use crate::harness::{Hand, Tidegate, hello_streamed, tale};

const MODEL: &str = "vendor/m";
const STREAMS: usize = 1_000;
/// Two buffers of 256 KiB, one for each direction, is what a stream may hold at most; idle ones hold next to nothing.
const MEMORY: u64 = 256 << 20;

#[tokio::test]
async fn a_thousand_streams_are_open_at_once_and_all_come_to_their_end() {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let hand = Hand::start().await;
    let limits = "[limits]\nin_flight_key = 2000\nin_flight_workspace = 2000\n[upstream]\nfirst_content_alone_ms = 60000\n[stream]\nearly_commit_ms = 60000\nkeep_alive_ms = 60000\n";
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(limits).run().await;
    let before = gate.memory();
    // Older kernels do not say so.
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.pid())).expect("it runs");
    assert!(!status.contains("THP_enabled:\t1"), "memory is taken in small pages: {status}");

    let mut opening = JoinSet::new();
    for _ in 0..STREAMS {
        let ask = gate.ask("POST", "/v1/messages").key(crate::harness::INFERENCE_KEY);
        let ask = ask.json(hello_streamed(MODEL).to_string());
        opening.spawn(async move {
            let mut stream = ask.open().await;
            stream.until("content_block_delta").await;
            stream
        });
    }
    let events = tale("hello");
    let (beginning, end) = (events[..3].concat(), events[3..].concat());
    let mut calls = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let mut call = hand.call().await.streams().await;
        call.send(&beginning).await;
        calls.push(call);
    }
    // Every client has read content, and no stream has ended: they are all open now.
    let streams = opening.join_all().await;
    let memory = gate.memory();
    assert!(memory < MEMORY, "{memory} bytes for {STREAMS} streams, {before} without");

    for mut call in calls {
        call.send(&end).await;
        call.end().await;
    }
    for stream in streams {
        let events = stream.rest().await;
        assert_eq!(events.last().map(|event| event.name.as_str()), Some("message_stop"));
    }
}
