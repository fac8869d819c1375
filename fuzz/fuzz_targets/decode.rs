//! Any stream of an upstream, in any division: reading it never panics, what comes out is a stream in the Messages
//! format or the beginning of one, and how the bytes were divided does not show. The first byte chooses the protocol;
//! `seeds/decode` holds a stream of each.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tidegate_core::Timestamp;
use tidegate_providers::translate::Context;
use tidegate_providers::{Protocol, adapter};
use tidegate_wire::sse::Splitter;

const PROTOCOLS: [Protocol; 5] =
    [Protocol::Chat, Protocol::Responses, Protocol::Gemini, Protocol::Converse, Protocol::Cohere];
const LARGEST: usize = 1 << 20;

fn context() -> Context {
    Context { show_thinking: true, think_tags: true, guarded: vec!["END".to_owned()], ..Context::default() }
}

/// The events, and whether the stream broke.
fn read(protocol: Protocol, chunks: &[&[u8]]) -> (Vec<Value>, bool) {
    let mut translator = adapter::translator(protocol, &context(), Timestamp(0), LARGEST).expect("it is translated");
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&translator.feed(Bytes::copy_from_slice(chunk)));
        if translator.fault().is_some() {
            return (events(&out), true);
        }
    }
    out.extend_from_slice(&translator.end());
    let is_broken = translator.fault().is_some();
    (events(&out), is_broken)
}

fn events(bytes: &[u8]) -> Vec<Value> {
    let mut splitter = Splitter::new(usize::MAX);
    splitter.feed(Bytes::copy_from_slice(bytes));
    let mut events = Vec::new();
    while let Some(frame) = splitter.next().expect("it has no limit") {
        events.push(serde_json::from_slice(&frame.data()).expect("an event is JSON"));
    }
    assert!(splitter.finish().is_none(), "events are written whole");
    events
}

/// A start, blocks one after the other, an end; or less, where it broke.
fn check(events: &[Value], is_broken: bool) {
    let (mut open, mut next, mut last) = (None, 0, "");
    for (place, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().expect("an event has a type");
        assert_eq!(kind == "message_start", place == 0);
        assert!(last != "message_stop" && (last != "message_delta" || kind == "message_stop"));
        match kind {
            "content_block_start" => {
                assert_eq!((open, event["index"].as_u64()), (None, Some(next)));
                open = Some(next);
            }
            "content_block_delta" => assert_eq!(event["index"].as_u64(), open),
            "content_block_stop" => {
                assert_eq!(event["index"].as_u64(), open.take());
                next += 1;
            }
            "message_delta" => assert_eq!(open, None),
            "message_stop" => assert_eq!(last, "message_delta"),
            other => assert_eq!(other, "message_start"),
        }
        last = kind;
    }
    assert!(is_broken || last == "message_stop");
}

/// All that was said, block by block. Ids that are made up differ every time.
fn said(events: &[Value]) -> Vec<(u64, String)> {
    let mut blocks: Vec<(u64, String)> = Vec::new();
    for event in events.iter().filter(|event| event["type"] == "content_block_delta") {
        let index = event["index"].as_u64().expect("a delta has an index");
        let delta = &event["delta"];
        let text =
            ["text", "thinking", "partial_json"].iter().find_map(|name| delta[name].as_str()).unwrap_or_default();
        match blocks.last_mut().filter(|(last, _)| *last == index) {
            Some((_, all)) => all.push_str(text),
            None => blocks.push((index, text.to_owned())),
        }
    }
    blocks
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let protocol = PROTOCOLS[usize::from(*choice) % PROTOCOLS.len()];
    let (whole, is_broken) = read(protocol, &[bytes]);
    check(&whole, is_broken);
    for length in [1, 7] {
        let chunks: Vec<&[u8]> = bytes.chunks(length).collect();
        let (divided, was_broken) = read(protocol, &chunks);
        assert_eq!((said(&divided), was_broken), (said(&whole), is_broken));
    }
    // The same bytes as a whole answer.
    let _ = adapter::message(protocol, bytes, &context(), Timestamp(0));
});
