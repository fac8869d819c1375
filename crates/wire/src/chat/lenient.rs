//! Answers of servers that are careless with the Messages format: counts with a point in them, members that are missing or
//! of another kind, half characters. Those that are right are read as they are; of the others is taken what the formats of
//! our doors have a word for, piece by piece, so that one bad member costs no other.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::json::{self, Kind, Members, Seen, quoted};
use crate::messages::{
    Block, BlockDelta, BlockStart, BlockStop, Delta, Event, InputJsonDelta, MessageDelta, MessageEnd, MessageStart,
    RedactedThinking, Response, Role, SignatureDelta, Text, TextDelta, Thinking, ThinkingDelta, ToolUse, Usage,
};
use crate::object::Raw;

/// Whether an answer can be told in the formats of our doors.
pub fn is_readable(body: &[u8]) -> bool {
    response(body).is_some()
}

/// An answer; nothing where it is none, however it is read.
pub(crate) fn response(body: &[u8]) -> Option<Response> {
    let mut response = Response::parse(body).ok().or_else(|| {
        let raw: &RawValue = serde_json::from_slice(body).ok()?;
        let members = Members::of(raw)?;
        let entries = json::elements(members.get("content")?)?;
        let response = careless(&members);
        // Blocks that nobody can read are left out, but an answer of nothing else is none.
        (entries.is_empty() || !response.content.is_empty()).then_some(response)
    })?;
    response.content.iter_mut().for_each(put_right);
    Some(response)
}

/// An event; nothing where nobody knows it.
pub(crate) fn event(data: &[u8]) -> Option<Event> {
    let mut event = match Event::parse(data).ok()? {
        Event::Other(other) => careless_event(&other.kind, &Members::of(other.raw.as_raw_value())?)?,
        event => event,
    };
    match &mut event {
        Event::BlockStart(start) => put_right(&mut start.content_block),
        Event::BlockDelta(BlockDelta { delta, .. }) => {
            if let Delta::Other(other) = delta {
                let made = Members::of(other.raw.as_raw_value()).and_then(|members| added(&other.kind, &members));
                *delta = made?;
            }
        }
        _ => {}
    }
    Some(event)
}

/// What is known of a message. Members that no other format has a word for are left out.
fn careless(members: &Members<'_>) -> Response {
    let text = |name: &str| members.get(name).and_then(text);
    let blocks = members.get("content").and_then(json::elements).unwrap_or_default();
    let blocks = blocks.into_iter().filter_map(|block| serde_json::from_str(block.get()).ok()).collect();
    let (id, model) = (text("id").unwrap_or_default(), text("model").unwrap_or_default());
    let usage = members.get("usage").map(used).unwrap_or_default();
    let mut response = Response::new(id, Role::Assistant, model, blocks, usage);
    response.provider = text("provider");
    response.stop_reason = members.get("stop_reason").and_then(fitting);
    for (name, value) in &members.0 {
        // Routing metadata is among these.
        if !MEMBERS.contains(&name.as_ref()) {
            response.extra.push(name.as_ref(), Raw::from(*value));
        }
    }
    response
}

/// Members of a message that are read, or that only our own format has.
const MEMBERS: [&str; 12] = [
    "id",
    "type",
    "role",
    "model",
    "content",
    "usage",
    "provider",
    "stop_reason",
    "stop_sequence",
    "stop_details",
    "container",
    "context_management",
];

fn careless_event(kind: &str, members: &Members<'_>) -> Option<Event> {
    let index = || members.get("index").and_then(whole).and_then(|index| usize::try_from(index).ok());
    match kind {
        "message_start" => {
            let message = members.get("message").and_then(Members::of)?;
            Some(Event::MessageStart(Box::new(MessageStart::new(careless(&message)))))
        }
        "content_block_start" => {
            let block = members.get("content_block").and_then(fitting)?;
            Some(Event::BlockStart(Box::new(BlockStart::new(index()?, block))))
        }
        "content_block_delta" => {
            let delta = members.get("delta").and_then(fitting)?;
            Some(Event::BlockDelta(BlockDelta::new(index()?, delta)))
        }
        "content_block_stop" => Some(Event::BlockStop(BlockStop::new(index()?))),
        "message_delta" => {
            let end = members.get("delta").and_then(Members::of).unwrap_or_default();
            let stop_reason = end.get("stop_reason").and_then(fitting);
            let usage = members.get("usage").filter(|usage| json::kind(usage) == Kind::Object).map(used);
            let end = MessageEnd { stop_reason, ..MessageEnd::default() };
            Some(Event::MessageDelta(Box::new(MessageDelta { usage, ..MessageDelta::new(end) })))
        }
        _ => None,
    }
}

/// A block of a kind that our doors tell, whose members do not all fit: what it says is told all the same.
fn put_right(block: &mut Block) {
    let Block::Other(other) = &*block else { return };
    if let Some(made) = righted(&other.kind, other.raw.as_raw_value()) {
        *block = made;
    }
}

fn righted(kind: &str, block: &RawValue) -> Option<Block> {
    let members = Members::of(block)?;
    let text = |name: &str| members.get(name).and_then(text);
    Some(match kind {
        "text" => Block::Text(Text::new(text("text")?)),
        "thinking" => Block::Thinking(Thinking { signature: text("signature"), ..Thinking::new(text("thinking")?) }),
        "redacted_thinking" => Block::RedactedThinking(RedactedThinking::new(text("data")?)),
        "tool_use" => {
            let input = members.get("input").map(Raw::from);
            Block::ToolUse(ToolUse { input, ..ToolUse::new(text("id")?, text("name")?) })
        }
        _ => return None,
    })
}

/// The same for what is added to one.
fn added(kind: &str, members: &Members<'_>) -> Option<Delta> {
    let text = |name: &str| members.get(name).and_then(text);
    match kind {
        "text_delta" => text("text").map(|text| Delta::Text(TextDelta::new(text))),
        "thinking_delta" => text("thinking").map(|text| Delta::Thinking(ThinkingDelta::new(text))),
        "signature_delta" => text("signature").map(|text| Delta::Signature(SignatureDelta::new(text))),
        "input_json_delta" => text("partial_json").map(|text| Delta::InputJson(InputJsonDelta::new(text))),
        _ => None,
    }
}

/// The members of a usage that fit, as they are or with numbers that have no fraction made whole ones.
fn used(usage: &RawValue) -> Usage {
    if let Some(usage) = fitting(usage) {
        return usage;
    }
    let (mut fit, mut seen) = (Vec::new(), Seen::default());
    for (name, value) in Members::of(usage).unwrap_or_default().0 {
        if !seen.add(&name) {
            continue;
        }
        let name = quoted(&name);
        let alone = |value: &str| format!("{name}:{value}");
        let fits = |member: &String| serde_json::from_str::<Usage>(&format!("{{{member}}}")).is_ok();
        let rounded = || {
            let mut value: Value = fitting(value)?;
            whole_numbers(&mut value);
            Some(alone(&value.to_string()))
        };
        fit.extend(Some(alone(value.get())).filter(fits).or_else(|| rounded().filter(fits)));
    }
    serde_json::from_str(&format!("{{{}}}", fit.join(","))).unwrap_or_default()
}

/// A value as it is read; nothing where it is another.
fn fitting<T: DeserializeOwned>(value: &RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

/// A text; in the place of half a character stands the sign for one that is missing.
fn text(value: &RawValue) -> Option<String> {
    if json::kind(value) != Kind::String {
        return None;
    }
    json::string(value).map(Into::into).or_else(|| {
        let mut out = String::new();
        let Bytes(bytes) = serde_json::from_str(value.get()).ok()?;
        // What was escaped as half a pair is three bytes here, of which only the first can begin a character.
        for chunk in bytes.utf8_chunks() {
            out.push_str(chunk.valid());
            out.extend(chunk.invalid().starts_with(&[0xED]).then_some(char::REPLACEMENT_CHARACTER));
        }
        Some(out)
    })
}

/// The bytes of a string, half characters among them.
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_owned()))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

/// A number without a fraction.
fn whole(value: &RawValue) -> Option<u64> {
    let mut value: Value = fitting(value)?;
    whole_numbers(&mut value);
    value.as_u64()
}

/// Numbers without a fraction are whole ones.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_u64() => {
            if let Some(whole) = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..1e15).contains(number))
            {
                *value = json!(whole as u64);
            }
        }
        Value::Array(values) => values.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(content: &str, more: &str) -> String {
        format!(
            r#"{{"id":"m","type":"message","role":"assistant","model":"a/m","content":{content},"stop_reason":"tool_use"{more}}}"#
        )
    }

    fn read(content: &str, more: &str) -> Option<Value> {
        let read = response(answer(content, more).as_bytes());
        read.map(|response| serde_json::to_value(response).unwrap())
    }

    const TEXT: &str = r#"[{"type":"text","text":"hi"}]"#;

    #[test]
    fn a_member_that_does_not_fit_costs_no_other() {
        let used = r#","usage":{"input_tokens":5,"output_tokens":7}"#;
        for odd in [
            r#","stop_details":{}"#,
            r#","container":{}"#,
            r#","container":7,"context_management":[]"#,
            r#","provider":{"name":"x"}"#,
            r#","stop_reason":"end_turn""#,
        ] {
            let made = read(TEXT, &format!("{odd}{used}")).unwrap();
            assert_eq!(
                (&made["content"][0]["text"], &made["stop_reason"]),
                (&json!("hi"), &json!("tool_use")),
                "{odd}"
            );
            assert_eq!((&made["model"], &made["usage"]["output_tokens"]), (&json!("a/m"), &json!(7)), "{odd}");
        }
        let usage = r#","usage":{"input_tokens":5.0,"output_tokens":7,"output_tokens":8,"output_tokens_details":{"thinking_tokens":"5"},"server_tool_use":{"web_search_requests":2.0},"cost":0.0000100,"service_tier":4},"x_metadata":{"n":1.0}"#;
        let response = response(answer(TEXT, usage).as_bytes()).unwrap();
        let used = &response.usage;
        assert_eq!((used.input_tokens, used.output_tokens, &used.service_tier), (Some(Some(5)), Some(7), &None));
        assert_eq!(used.server_tool_use.clone().flatten().unwrap().web_search_requests, Some(2));
        assert_eq!(used.cost.clone().flatten().unwrap().get(), "0.0000100");
        assert_eq!(response.extra.get("x_metadata").unwrap().get(), r#"{"n":1.0}"#);
        // Without an id, a model or a usage.
        assert!(response_of(r#"{"content":[{"type":"text","text":"hi"}],"error":null}"#).is_some());
        assert!(response_of(r#"{"content":7}"#).is_none() && response_of("{}").is_none());
    }

    fn response_of(body: &str) -> Option<Response> {
        response(body.as_bytes())
    }

    #[test]
    fn blocks_that_nobody_can_read_are_left_out() {
        let content = r#"[{"text":"a"},7,{"type":"text","text":"hi","citations":{}},{"type":"new","x":1}]"#;
        let made = read(content, "").unwrap();
        assert_eq!(made["content"], json!([{"type": "text", "text": "hi"}, {"type": "new", "x": 1}]));
        assert!(read(r#"[{"text":"a"}]"#, "").is_none(), "of an answer nothing is left");
        assert!(read("[]", "").is_some());
    }

    #[test]
    fn half_a_character_is_told_as_one_that_is_missing() {
        let made = read(r#"[{"type":"text","text":"a\ud800b\udc00\ud83d\ude00"}]"#, "").unwrap();
        assert_eq!(made["content"][0]["text"], "a\u{fffd}b\u{fffd}\u{1f600}");
        let made = read(r#"[{"type":"thinking","thinking":"\ud83d","signature":"s"}]"#, "").unwrap();
        assert_eq!(made["content"][0], json!({"type": "thinking", "thinking": "\u{fffd}", "signature": "s"}));
        let piece = br#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\udc00!"}}"#;
        let Some(Event::BlockDelta(piece)) = event(piece) else { panic!() };
        assert_eq!(piece.delta, Delta::Text(TextDelta::new("\u{fffd}!".to_owned())));
    }

    #[test]
    fn digits_of_an_input_stay_where_a_count_has_a_point() {
        let input = r#"{"n":123456789012345678901234567890,"f":1.10}"#;
        let content = format!(r#"[{{"type":"tool_use","id":"t","name":"f","input":{input}}}]"#);
        let body = answer(&content, r#","usage":{"input_tokens":5.0,"output_tokens":7}"#);
        let response = response_of(&body).unwrap();
        let Block::ToolUse(call) = &response.content[0] else { panic!() };
        assert_eq!((call.input_text(), response.usage.input_tokens), (input, Some(Some(5))));
    }

    #[test]
    fn events_are_read_piece_by_piece_as_well() {
        let end = br#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_details":{},"container":{}},"usage":{"output_tokens":7.0,"output_tokens_details":{"thinking_tokens":"5"}}}"#;
        let Some(Event::MessageDelta(end)) = event(end) else { panic!() };
        assert_eq!(end.delta.stop_reason.flatten().unwrap().as_str(), "tool_use");
        assert_eq!(end.usage.unwrap().output_tokens, Some(7));
        let start =
            br#"{"type":"message_start","message":{"model":"a/m","container":{},"usage":{"input_tokens":5.0}}}"#;
        let Some(Event::MessageStart(start)) = event(start) else { panic!() };
        assert_eq!((start.message.model.as_str(), start.message.usage.input_tokens), ("a/m", Some(Some(5))));
        let block = br#"{"type":"content_block_start","index":1.0,"content_block":{"type":"tool_use","id":"t","name":"f","input":{},"caller":7}}"#;
        let Some(Event::BlockStart(block)) = event(block) else { panic!() };
        assert!(block.index == 1 && matches!(&block.content_block, Block::ToolUse(call) if call.name == "f"));
        assert!(event(br#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#).is_none());
        assert!(event(br#"{"type":"heartbeat"}"#).is_none());
    }
}
