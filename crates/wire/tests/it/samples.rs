//! Every file under `samples/messages/` is a case: `request.json`, `response.json`, `error.json` or `stream.sse`.
//!
//! Conventions of the samples: kinds, words and members that we must not know begin with `future_`; what carries the
//! brand begins with `tidegate`. Anything else that lands in an `Other` is a mistake in a type, but for the three kinds
//! that have no variant on purpose.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members};
use tidegate_wire::messages::*;
use tidegate_wire::sse::{Frame, Splitter};

const STRANGERS: [&str; 5] = ["future_", "tidegate", "mcp_tool_use", "mcp_tool_result", "fallback"];

#[test]
fn requests_come_back_as_they_were() {
    each("request.json", round_trip::<Request>);
}

#[test]
fn answers_come_back_as_they_were() {
    each("response.json", round_trip::<Response>);
}

#[test]
fn errors_come_back_as_they_were() {
    each("error.json", round_trip::<ErrorBody>);
}

#[test]
fn streams_come_back_as_they_were() {
    each("stream.sse", |text| {
        let (mut out, mut sent) = (BytesMut::new(), Vec::new());
        for frame in frames(Bytes::copy_from_slice(text.as_bytes())) {
            let data = String::from_utf8(frame.data().into_owned()).unwrap();
            round_trip::<Event>(&data);
            Event::parse(data.as_bytes()).unwrap().encode(&mut out);
            sent.push((frame.event().to_vec(), value(&data)));
        }
        let received: Vec<_> = frames(out.freeze())
            .iter()
            .map(|frame| (frame.event().to_vec(), serde_json::from_slice(&frame.data()).unwrap()))
            .collect();
        assert_eq!(received, sent);
    });
}

#[test]
fn every_kind_has_a_sample() {
    let mut found = BTreeSet::new();
    for name in ["request.json", "response.json", "error.json"] {
        each(name, |text| types(&value(text), &mut found));
    }
    each("stream.sse", |text| {
        for frame in frames(Bytes::copy_from_slice(text.as_bytes())) {
            types(&serde_json::from_slice(&frame.data()).unwrap(), &mut found);
        }
    });
    let known = [
        Block::KINDS,
        Caller::KINDS,
        Citation::KINDS,
        Delta::KINDS,
        Edit::KINDS,
        Event::KINDS,
        OutputFormat::KINDS,
        Source::KINDS,
        StopDetails::KINDS,
        ThinkingConfig::KINDS,
        Tool::KINDS,
        ToolChoice::KINDS,
        ToolTarget::KINDS,
        AdvisorContent::KINDS,
        BashExecutionContent::KINDS,
        CodeExecutionContent::KINDS,
        EditorExecutionContent::KINDS,
        ToolSearchContent::KINDS,
        WebFetchContent::KINDS,
    ];
    let missing: Vec<_> = known.iter().copied().flatten().filter(|kind| !found.contains(**kind)).collect();
    // Known from the format's documentation, where no answer shows it.
    assert_eq!(missing, [&"code_execution_20260521"]);
}

/// Runs `check` on each case that has a file of this name, and says which one failed.
fn each(name: &str, mut check: impl FnMut(&str)) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/samples/messages");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().join(name)).collect();
    cases.retain(|path| path.exists());
    cases.sort();
    assert!(!cases.is_empty(), "there is a sample of {name}");
    for path in cases {
        eprintln!("sample {}", path.display());
        check(&fs::read_to_string(path).unwrap());
    }
}

fn round_trip<T: DeserializeOwned + Serialize + Debug + PartialEq>(text: &str) {
    let typed: T = serde_json::from_str(text).unwrap();
    let written = serde_json::to_string(&typed).unwrap();
    assert_eq!(value(&written), value(text));
    assert_eq!(serde_json::from_slice::<T>(written.as_bytes()).unwrap(), typed);

    let mut exact = Vec::new();
    raw_parts(serde_json::from_str(text).unwrap(), &mut exact);
    for part in exact {
        assert!(written.contains(part), "{part} is kept to the byte in {written}");
    }
    let debug = format!("{typed:?}");
    for (mark, end) in [("Other(Other { kind: \"", '"'), ("Other(\"", '"'), ("Other(Raw(", ')')] {
        for piece in debug.split(mark).skip(1) {
            let kind = piece[..piece.find(end).unwrap()].trim_start_matches(r#"{"type":""#);
            let stranger = STRANGERS.iter().any(|prefix| kind.starts_with(prefix));
            assert!(stranger, "{kind} is known");
        }
    }
    // A misspelt optional member would be a stranger too.
    for piece in debug.split("(\"").skip(1) {
        if let Some((name, rest)) = piece.split_once("\", Raw(") {
            let stranger = ["future_", "tidegate_", "amazon-bedrock-"].iter().any(|prefix| name.starts_with(prefix));
            assert!(stranger || rest.starts_with("null)") || name.contains('"'), "{name} is known");
        }
    }
}

/// The values that are to be carried unread.
fn raw_parts<'a>(raw: &'a RawValue, out: &mut Vec<&'a str>) {
    match json::kind(raw) {
        Kind::Array => json::elements(raw).unwrap().into_iter().for_each(|element| raw_parts(element, out)),
        Kind::Object => {
            let members = Members::of(raw).unwrap();
            let kind = members.get("type").and_then(json::string).unwrap_or_default();
            if kind.starts_with("future_") {
                out.push(raw.get());
                return;
            }
            for (name, member) in members.0 {
                let opaque = ["input", "input_schema", "schema", "parameters", "provider", "cost", "tidegate_metadata"];
                if (opaque.contains(&&*name) || name.starts_with("future_")) && json::kind(member) != Kind::String {
                    out.push(member.get());
                } else {
                    raw_parts(member, out);
                }
            }
        }
        _ => {}
    }
}

fn types(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| types(element, found)),
        Value::Object(members) => {
            found.extend(members.get("type").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| types(member, found));
        }
        _ => {}
    }
}

fn frames(stream: Bytes) -> Vec<Frame> {
    let mut splitter = Splitter::new(1 << 20);
    splitter.feed(stream);
    let frames = std::iter::from_fn(|| splitter.next().unwrap());
    frames.filter(|frame| !frame.is_silent()).collect()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
