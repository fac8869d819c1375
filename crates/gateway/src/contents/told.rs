//! What is kept of a request and its answer, in the form in which it is shown again. Both sides have an end: what is longer
//! is cut, and says so. Pictures and files are not kept, only what they were.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tidegate_core::{Exchange, KeyHash, Outcome};
use tidegate_observe::broadcast::Said;

/// What is kept of each side, in bytes.
const MOST: usize = 256 << 10;

/// As it is stored and shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub input: Value,
    pub output: Value,
    pub error: Value,
}

/// Why a request has no whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub status: u16,
    pub message: String,
}

impl Told {
    /// `missed`: bytes of the answer that nobody kept while it went out.
    pub(super) fn of(exchange: &Exchange, said: &Said, failed: Option<&Failed>, missed: usize) -> Self {
        Self { input: input(said), output: output(said, missed), error: error(exchange, failed) }
    }
}

/// Reads what was stored.
pub fn unpacked(bytes: &[u8]) -> Option<Told> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// The conversation with its newest message first in line for what room there is.
fn input(said: &Said) -> Value {
    let request = said.request.as_ref();
    let member = |name: &str| request.and_then(|request| request.get(name)).cloned();
    let mut room = MOST;
    let mut messages = match member("messages") {
        Some(Value::Array(messages)) => messages,
        _ => Vec::new(),
    };
    let total = messages.len();
    let mut kept = Vec::new();
    while let Some(message) = messages.pop().filter(|_| room > 0) {
        kept.push(cut(referred(message), &mut room));
    }
    kept.reverse();
    let mut input = Map::from_iter([("messages".to_owned(), Value::Array(kept))]);
    let left_out = total - input["messages"].as_array().map_or(0, Vec::len);
    if left_out > 0 {
        input.insert("cut".into(), json!(format!("[cut: {left_out} earlier messages]")));
    }
    for name in ["system", "tools"] {
        if let Some(value) = member(name) {
            input.insert(name.into(), cut(referred(value), &mut room));
        }
    }
    Value::Object(input)
}

fn output(said: &Said, missed: usize) -> Value {
    let mut room = MOST;
    let mut texts = |kind: &str, member: &str| {
        let blocks = said.answer.iter().filter(|block| block["type"] == kind);
        let texts: Vec<&str> = blocks.filter_map(|block| block[member].as_str()).collect();
        (!texts.is_empty()).then(|| cut_text(texts.join("\n"), &mut room))
    };
    let (mut completion, reasoning) = (texts("text", "text"), texts("thinking", "thinking"));
    if missed > 0 {
        let text = completion.get_or_insert_default();
        text.push_str(&format!(" [cut: {missed} bytes of the answer]"));
    }
    let mut output = json!({"completion": completion, "reasoning": reasoning});
    let others = said.answer.iter().filter(|block| !matches!(block["type"].as_str(), Some("text" | "thinking")));
    let others: Vec<Value> = others.map(|block| cut(referred(block.clone()), &mut room)).collect();
    if !others.is_empty() {
        output["blocks"] = Value::Array(others);
    }
    output
}

fn error(exchange: &Exchange, failed: Option<&Failed>) -> Value {
    let is_failed = match exchange.outcome {
        Outcome::Failed | Outcome::Broken => true,
        Outcome::Complete | Outcome::Cancelled => false,
    };
    let Some(failed) = failed.filter(|_| is_failed) else { return Value::Null };
    let named = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
    // The last attempt is the one that the message is about.
    let earlier = exchange.attempts.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
    let earlier = earlier.iter().filter(|attempt| attempt.status != 200).map(|attempt| {
        let message = match attempt.status {
            0 => "The provider did not answer".to_owned(),
            status => format!("The provider answered with status {status}"),
        };
        let code = attempt.status;
        json!({"code": code, "message": message, "provider_name": named(&attempt.provider), "raw": null})
    });
    json!({
        "message": failed.message,
        "status": failed.status,
        "provider_name": named(&exchange.provider),
        "raw": null,
        "previous_errors": earlier.collect::<Vec<_>>(),
    })
}

/// With bytes replaced by what they are: their type, their number, and a hash to know them by.
fn referred(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let is_encoded = members.get("type").is_some_and(|kind| kind == "base64");
            match members.get("data").and_then(Value::as_str).filter(|_| is_encoded) {
                Some(data) => {
                    let bytes = STANDARD.decode(data).ok();
                    let hash = bytes.as_ref().map(|bytes| KeyHash::of(bytes).to_hex());
                    let media = members.get("media_type").cloned().unwrap_or_default();
                    let bytes = bytes.map_or(0, |bytes| bytes.len());
                    json!({"type": "reference", "media_type": media, "bytes": bytes, "sha256": hash})
                }
                None => members.into_iter().map(|(name, value)| (name, referred(value))).collect(),
            }
        }
        Value::Array(values) => values.into_iter().map(referred).collect(),
        other => other,
    }
}

/// What fits into the room; what does not says so. Every value takes some, so that the rest is bounded, too.
fn cut(value: Value, room: &mut usize) -> Value {
    // Two brackets and a comma.
    *room = room.saturating_sub(3);
    match value {
        Value::String(text) => Value::String(cut_text(text, room)),
        Value::Array(values) => {
            let total = values.len();
            let mut kept = Vec::new();
            for value in values {
                if *room == 0 {
                    let left_out = total - kept.len();
                    kept.push(json!(format!("[cut: {left_out} more]")));
                    break;
                }
                kept.push(cut(value, room));
            }
            Value::Array(kept)
        }
        Value::Object(members) => {
            let mut kept = Map::new();
            for (name, value) in members {
                // The kind of a block is told also where nothing else fits.
                if *room == 0 && !matches!(name.as_str(), "type" | "role") {
                    kept.insert("cut".into(), json!(true));
                    continue;
                }
                *room = room.saturating_sub(name.len() + 3);
                kept.insert(name, cut(value, room));
            }
            Value::Object(kept)
        }
        other => other,
    }
}

fn cut_text(text: String, room: &mut usize) -> String {
    if text.len() <= *room {
        *room -= text.len();
        return text;
    }
    let end = (0..=*room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    *room = 0;
    format!("{} [cut: {} bytes more]", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::exchange::AttemptRecord;
    use tidegate_core::{GenerationId, OrganisationId, Timestamp, WorkspaceId};

    fn exchange() -> Exchange {
        let now = Timestamp(1_790_000_000_000);
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        Exchange::new(GenerationId::new(now), organisation, workspace, KeyHash::of(b"k"), "v/m".into(), now)
    }

    fn told(request: Value, answer: Vec<Value>) -> Told {
        let said = Said { request: Some(request), answer, ..Said::default() };
        Told::of(&exchange(), &said, None, 0)
    }

    #[test]
    fn a_conversation_is_kept_without_its_pictures_and_our_own_options() {
        let told = told(
            json!({
                "model": "v/m", "system": "be brief", "tools": [{"name": "t"}], "provider": {"order": ["p"]},
                "messages": [{"role": "user", "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}},
                ]}],
            }),
            vec![
                json!({"type": "thinking", "thinking": "hm", "signature": "s"}),
                json!({"type": "text", "text": "a"}),
                json!({"type": "text", "text": "b"}),
                json!({"type": "tool_use", "id": "i", "name": "t", "input": {"x": 1}}),
            ],
        );
        let image = &told.input["messages"][0]["content"][1]["source"];
        // That of "hello", as every other tool computes it.
        assert_eq!(image["sha256"], "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(
            (&image["type"], &image["media_type"], &image["bytes"]),
            (&json!("reference"), &json!("image/png"), &json!(5))
        );
        assert_eq!(image.get("data"), None);
        assert_eq!((&told.input["system"], &told.input["tools"]), (&json!("be brief"), &json!([{"name": "t"}])));
        assert_eq!((told.input.get("provider"), told.input.get("cut")), (None, None));
        let expected = json!({
            "completion": "a\nb", "reasoning": "hm",
            "blocks": [{"type": "tool_use", "id": "i", "name": "t", "input": {"x": 1}}],
        });
        assert_eq!((told.output, told.error), (expected, Value::Null));
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let long = "é".repeat(MOST);
        let message = |text: &str| json!({"role": "user", "content": text});
        let told = told(
            json!({"messages": [message("first"), message(&long), message("last")], "system": "s"}),
            vec![json!({"type": "text", "text": long})],
        );
        let size = |value: &Value| value.to_string().len();
        assert!(size(&told.input) < MOST + 1_000 && size(&told.output) < MOST + 1_000);
        let messages = told.input["messages"].as_array().unwrap();
        assert_eq!((messages.len(), &messages[1]["content"]), (2, &json!("last")), "the newest are whole");
        let middle = messages[0]["content"].as_str().unwrap();
        assert!(middle.ends_with(" bytes more]") && middle.starts_with("éé"), "{}", &middle[..10]);
        assert_eq!(told.input["cut"], "[cut: 1 earlier messages]");
        // Two bytes each, so half of them fit.
        let completion = told.output["completion"].as_str().unwrap();
        assert_eq!(completion, format!("{} [cut: {MOST} bytes more]", "é".repeat(MOST / 2)));
    }

    #[test]
    fn many_small_things_are_bounded_too() {
        let many: Vec<Value> = (0..1_000_000).map(|_| json!({})).collect();
        let told = told(json!({"messages": [{"role": "user", "content": many}]}), Vec::new());
        assert!(told.input.to_string().len() < MOST + 1_000);
    }

    #[test]
    fn a_failure_names_what_was_tried_before() {
        let attempt = |provider: &str, status| AttemptRecord {
            provider: provider.into(),
            model: "v/m".into(),
            status,
            duration_ms: 1,
            ..AttemptRecord::default()
        };
        let exchange = Exchange {
            outcome: Outcome::Failed,
            provider: "P2".into(),
            attempts: vec![attempt("P0", 529), attempt("P1", 0), attempt("P2", 500)],
            ..exchange()
        };
        let failed = Failed { status: 502, message: "It broke".to_owned() };
        let told = Told::of(&exchange, &Said::default(), Some(&failed), 0);
        assert_eq!(
            told.error,
            json!({
                "message": "It broke", "status": 502, "provider_name": "P2", "raw": null,
                "previous_errors": [
                    {"code": 529, "message": "The provider answered with status 529", "provider_name": "P0", "raw": null},
                    {"code": 0, "message": "The provider did not answer", "provider_name": "P1", "raw": null},
                ],
            })
        );
        assert_eq!(told.input, json!({"messages": []}));
        assert_eq!(told.output, json!({"completion": null, "reasoning": null}));
    }
}
