//! Work that is measured in instructions, not in time: `script/bench` runs each case alone under callgrind.

use std::hint::black_box;
use std::process::ExitCode;

use bytes::Bytes;
use tidegate_core::Timestamp;
use tidegate_providers::translate::{Context, Target};
use tidegate_providers::{Protocol, adapter, dialect};
use tidegate_wire::messages::Request;

const NOW: Timestamp = Timestamp(1_790_000_000_000);

type Case = (&'static str, fn());

const CASES: &[Case] = &[
    ("translate_chat_request", || request(Protocol::Chat)),
    ("translate_gemini_request", || request(Protocol::Gemini)),
    ("translate_responses_request", || request(Protocol::Responses)),
    ("translate_chat_stream_500", || stream(Protocol::Chat, &chat())),
    ("translate_gemini_stream_500", || stream(Protocol::Gemini, &gemini())),
    ("translate_responses_stream_500", || stream(Protocol::Responses, &responses())),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["--names"] => CASES.iter().for_each(|(name, _)| println!("{name}")),
        ["--case", wanted] => match CASES.iter().find(|(name, _)| *name == wanted) {
            Some((_, run)) => run(),
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

/// A conversation of fifteen kilobytes with tools, read and made into a request of the protocol.
fn request(protocol: Protocol) {
    let mut body = String::from(
        r#"{"model":"vendor/model-name","max_tokens":1024,"stream":true,"system":"You keep the gate.","tools":[{"name":"tide_at","description":"Tide height","input_schema":{"type":"object","properties":{"port":{"type":"string"},"hour":{"type":"integer"}},"required":["port"]}}],"messages":["#,
    );
    let mut turn = 0;
    while body.len() < 15 << 10 {
        let (role, comma) = (if turn % 2 == 0 { "user" } else { "assistant" }, if turn == 0 { "" } else { "," });
        body.push_str(&format!(r#"{comma}{{"role":"{role}","content":[{{"type":"text","text":""#));
        (0..12).for_each(|_| body.push_str(r#"The tide comes in, \"twice a day\", whether or not anyone waits.\n"#));
        body.push_str("\"}]}");
        turn += 1;
    }
    if turn % 2 == 0 {
        body.push_str(r#",{"role":"user","content":"and now?"}"#);
    }
    body.push_str("]}");
    let card = dialect::card_for("in-house", protocol);
    let target = Target {
        card: &card,
        model: "m",
        scope: "ep-1",
        cache_key: None,
        user: None,
        stream: true,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    };
    let body = black_box(body);
    let made = measured(|| {
        let request = Request::parse(body.as_bytes()).expect("the sample is a good request");
        adapter::request(protocol, &request, &target).expect("it can be translated")
    });
    assert!(made.body.len() > 12 << 10);
}

/// Five hundred pieces of text, each in a chunk of its own.
fn stream(protocol: Protocol, chunks: &[Bytes]) {
    let context = Context { max_tokens: 1024, context_length: 100_000, ..Context::default() };
    let mut translator = adapter::translator(protocol, &context, NOW, 1 << 20).expect("it is translated");
    let bytes = measured(|| {
        let mut bytes = 0;
        for chunk in chunks {
            bytes += black_box(translator.feed(chunk.clone())).len();
        }
        bytes + translator.end().len()
    });
    assert!(translator.fault().is_none() && bytes > 500 * 100);
}

fn chat() -> Vec<Bytes> {
    let chunk = |rest: &str| {
        Bytes::from(format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",{rest}}}\n\n"
        ))
    };
    let mut out: Vec<Bytes> = (0..500)
        .map(|_| chunk(r#""choices":[{"index":0,"delta":{"content":" twenty bytes of text"},"finish_reason":null}]"#))
        .collect();
    out.push(chunk(r#""choices":[{"index":0,"delta":{},"finish_reason":"stop"}]"#));
    out.push(chunk(r#""choices":[],"usage":{"prompt_tokens":90,"completion_tokens":500,"total_tokens":590}"#));
    out.push(Bytes::from_static(b"data: [DONE]\n\n"));
    out
}

fn gemini() -> Vec<Bytes> {
    let piece = r#"data: {"candidates":[{"content":{"role":"model","parts":[{"text":" twenty bytes of text"}]}}],"usageMetadata":{"promptTokenCount":90,"candidatesTokenCount":5,"totalTokenCount":95}}"#;
    let mut out: Vec<Bytes> = (0..500).map(|_| Bytes::from(format!("{piece}\n\n"))).collect();
    let end = r#"data: {"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":90,"candidatesTokenCount":500,"totalTokenCount":590}}"#;
    out.push(Bytes::from(format!("{end}\n\n")));
    out
}

fn responses() -> Vec<Bytes> {
    let event =
        |name: &str, rest: &str| Bytes::from(format!("event: {name}\ndata: {{\"type\":\"{name}\",{rest}}}\n\n"));
    let mut out = vec![event("response.created", r#""response":{"id":"r","status":"in_progress","output":[]}"#)];
    let delta = r#""item_id":"m","output_index":0,"content_index":0,"delta":" twenty bytes of text""#;
    out.extend((0..500).map(|_| event("response.output_text.delta", delta)));
    let end = r#""response":{"id":"r","status":"completed","usage":{"input_tokens":90,"output_tokens":500,"total_tokens":590}}"#;
    out.push(event("response.completed", end));
    out
}
