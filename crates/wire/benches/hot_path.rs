//! The pure parts of the hot path, one case per run, for counting instructions under callgrind.
//!
//! `--names` lists the cases, `--case NAME` runs one; only what happens within [`measured`] counts. Without either
//! every case runs once, which shows that they still do what they claim. `script/bench` does the counting.

use std::hint::black_box;
use std::process::ExitCode;

use bytes::{Bytes, BytesMut};
use tidegate_wire::answer::{Additions, Charge, Message};
use tidegate_wire::envelope::{self, Brand, Purpose};
use tidegate_wire::sse::{self, Splitter};

/// A case prepares its input, then does its work within [`measured`].
type Case = (&'static str, fn());

const CASES: [Case; 5] = [
    ("envelope_1k", || envelope(1 << 10)),
    ("envelope_15k", || envelope(15 << 10)),
    ("envelope_120k", || envelope(120 << 10)),
    ("sse_split_500", split),
    ("answer_message", answer),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--names"] => CASES.iter().for_each(|(name, _)| println!("{name}")),
        ["--case", wanted] => match CASES.iter().find(|(name, _)| *name == wanted) {
            Some((_, case)) => case(),
            None => {
                eprintln!("there is no case {wanted}");
                return ExitCode::FAILURE;
            }
        },
        // Test runners ask every target for its tests; there are none.
        ["--list", ..] => {}
        _ => CASES.iter().for_each(|(_, case)| case()),
    }
    ExitCode::SUCCESS
}

/// Callgrind counts from entering to leaving this function, which it finds by its name.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// What happens to a request's body on its way through.
fn envelope(size: usize) {
    let body = black_box(request(size));
    let brand = Brand { name: "tidegate", aliases: &[] };
    let upstream = measured(|| {
        let envelope = envelope::read(&body, brand, Purpose::Generate).expect("the sample is a good request");
        envelope.cuts.upstream_body(&body, "claude-sonnet-upstream", Some(8192))
    });
    assert!(upstream.len() + 64 > body.len() && !upstream.starts_with(br#"{"model":"vendor/"#));
}

/// A stream in chunks as sockets give them: no border falls on the end of an event.
fn split() {
    const CHUNK: usize = 4000;
    let stream = black_box(stream(500));
    let chunks: Vec<Bytes> =
        (0..stream.len()).step_by(CHUNK).map(|start| stream.slice(start..stream.len().min(start + CHUNK))).collect();
    let (frames, deltas) = measured(|| {
        let mut splitter = Splitter::new(1 << 20);
        let (mut frames, mut deltas) = (0, 0);
        for chunk in chunks {
            splitter.feed(chunk);
            while let Some(frame) = splitter.next().expect("no event is large") {
                frames += 1;
                deltas += usize::from(frame.event() == b"content_block_delta");
            }
        }
        (frames, deltas)
    });
    assert_eq!((frames, deltas), (506, 500));
}

/// What happens to an answer that is not streamed.
fn answer() {
    let body = black_box(Bytes::from_static(ANSWER.as_bytes()));
    let charge = Charge { cost_json: "0.000177", details_json: r#"{"upstream_inference_cost":null}"#, is_byok: false };
    let additions = Additions {
        model: "vendor/model-name",
        provider: "Anthropic",
        charge: Some(charge),
        used: None,
        routing_json: None,
    };
    let completed = measured(|| {
        let message = Message::read(&body).expect("the sample is a message");
        black_box((message.counts(), message.stop_reason()));
        message.completed(&additions)
    });
    assert!(completed.len() > body.len());
}

const ANSWER: &str = r#"{"id":"msg_01XFDUDYJgAACzvnptvVoYEL","type":"message","role":"assistant","model":"claude-sonnet-upstream","content":[{"type":"text","text":"High water is at noon, low water at six."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":270,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":14,"service_tier":"standard"}}"#;

/// A conversation of about this size, with one of our own members to be cut out.
fn request(size: usize) -> Bytes {
    const SENTENCE: &str = r#"The tide comes in, \"twice a day\", whether or not anyone waits.\n"#;
    let mut body = String::from(
        r#"{"model":"vendor/model-name","max_tokens":1024,"stream":true,"session_id":"a-session","system":"You keep the gate.","messages":["#,
    );
    let mut turn = 0;
    while turn == 0 || body.len() + 400 < size {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let comma = if turn == 0 { "" } else { "," };
        body.push_str(&format!(r#"{comma}{{"role":"{role}","content":[{{"type":"text","text":""#));
        let end = (body.len() + 1500).min(size.saturating_sub(50));
        while body.len() + SENTENCE.len() < end {
            body.push_str(SENTENCE);
        }
        body.push_str("\"}]}");
        turn += 1;
    }
    body.push_str("]}");
    body.into()
}

/// A whole stream with this many deltas of 20 bytes.
fn stream(deltas: usize) -> Bytes {
    let mut out = BytesMut::new();
    let start = format!(r#"{{"type":"message_start","message":{ANSWER}}}"#);
    sse::encode(&mut out, "message_start", start.as_bytes());
    sse::encode(&mut out, "ping", br#"{"type":"ping"}"#);
    let block = br#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    sse::encode(&mut out, "content_block_start", block);
    for _ in 0..deltas {
        let delta =
            br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" twenty bytes of text"}}"#;
        sse::encode(&mut out, "content_block_delta", delta);
    }
    sse::encode(&mut out, "content_block_stop", br#"{"type":"content_block_stop","index":0}"#);
    let end = br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":500}}"#;
    sse::encode(&mut out, "message_delta", end);
    sse::encode(&mut out, "message_stop", br#"{"type":"message_stop"}"#);
    out.freeze()
}
