//! The answer of a Messages upstream as the gateway reads and completes it: the counts and reasons it needs, the few
//! members it sets, and every other byte as it came.

mod counts;
mod replay;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{self, Kind, Members, Text};
use crate::splice::Splice;

pub use counts::{Counts, MOST, More, Word, by_lifetime, count, whole};
pub use replay::without;

/// What an answer says that ended without a word about why: `stop_reason` is null only while an answer is under way.
pub const END_TURN: &str = "end_turn";

/// The members of an object; `None` for anything else, without the cost of a parser's error.
fn object(value: &RawValue) -> Option<Members<'_>> {
    if json::kind(value) == Kind::Object { Members::of(value) } else { None }
}

/// What the gateway sets on an answer. Texts that end in `_json` are JSON values.
#[derive(Clone, Copy, Debug)]
pub struct Additions<'a> {
    /// The catalogue id of the model that answered.
    pub model: &'a str,
    pub provider: &'a str,
    pub charge: Option<Charge<'a>>,
    /// Name and value of the routing metadata, when asked for.
    pub routing_json: Option<(&'a str, &'a str)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    pub cost_json: &'a str,
    pub details_json: &'a str,
    pub is_byok: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer is not a message")]
pub struct Malformed;

/// A message object: a whole answer, or the one inside `message_start`. It is read once; all questions are answered from
/// where its members lie.
pub struct Message<'a> {
    object: Object<'a>,
    usage: Option<Object<'a>>,
}

impl<'a> Message<'a> {
    /// Reads a non-streamed answer.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let whole = std::str::from_utf8(body).map_err(|_| Malformed)?;
        Self::of(whole, whole).ok_or(Malformed)
    }

    /// The message that a piece of a text is; `None` for anything else.
    fn of(whole: &'a str, text: &'a str) -> Option<Self> {
        let end = json::span(whole, text).start + text.rfind('}')?;
        let mut message = Self { object: Object::new(whole, end), usage: Some(Object::new(whole, end)) };
        if message.read_plain(text).is_ok() {
            return Some(message);
        }
        // Some answers have no usage, or a strange one: they are read again, with care.
        let mut object = Object::new(whole, end);
        object.read(text).ok()?;
        let usage = object.members.get("usage").and_then(|usage| Object::within(whole, usage));
        Some(Self { object, usage })
    }

    /// Reads a message and its usage in one pass; the error says that one of them is not as they usually are.
    fn read_plain(&mut self, text: &'a str) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.deserialize_map(Plain(self))?;
        deserializer.end()
    }

    /// False for an answer that carries an error, or anything else, in a 200.
    pub fn is_message(&self) -> bool {
        self.object.members.get("error").is_none_or(|error| json::kind(error) == Kind::Null)
            && self.object.members.get("content").is_some_and(|content| json::kind(content) == Kind::Array)
    }

    pub fn counts(&self) -> Option<Counts> {
        self.usage.as_ref().map(|usage| Counts::of(&usage.members))
    }

    pub fn id(&self) -> Option<String> {
        self.object.members.get("id").and_then(json::string).map(Into::into)
    }

    pub fn stop_reason(&self) -> Option<String> {
        self.object.members.get("stop_reason").and_then(text)
    }

    pub fn is_empty(&self) -> bool {
        let content = self.object.members.get("content").map(RawValue::get);
        // What is but one character long is no content, and not empty either.
        let inside = content.and_then(|content| content.get(1..content.len() - 1));
        inside.is_some_and(|inside| inside.trim().is_empty())
    }

    /// The answer with our members set and the promised ones filled in.
    pub fn completed(self, additions: &Additions<'_>) -> Bytes {
        let (whole, is_finished) = (self.object.whole, !self.is_empty());
        let mut splice = Splice::default();
        self.complete(&mut splice, additions, is_finished);
        splice.apply(whole.as_bytes())
    }

    fn complete(mut self, splice: &mut Splice, additions: &Additions<'_>, is_finished: bool) {
        // What is added to one object is written in one go, if nothing else comes in between.
        if let Some(usage) = &mut self.usage {
            complete_usage(usage, splice, additions.charge.as_ref());
        }
        let object = &mut self.object;
        object.set_by(splice, "model", |out| json::quote(additions.model, out));
        stop_details(object, splice);
        object.set_by(splice, "provider", |out| json::quote(additions.provider, out));
        stop_reason(object, splice, is_finished.then_some(END_TURN));
        object.fill(splice, &STOP);
        if self.usage.is_none() {
            object.set(splice, "usage", &empty_usage(additions.charge.as_ref()));
        }
        if let Some((name, value)) = additions.routing_json {
            object.set(splice, name, value);
        }
    }
}

/// A [`Message`] whose usage is an object with members.
struct Plain<'m, 'a>(&'m mut Message<'a>);

impl<'a> Visitor<'a> for Plain<'_, 'a> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a message")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Message { object, usage } = self.0;
        let usage = usage.as_mut().filter(|usage| usage.members.0.is_empty());
        let Some(usage) = usage else { return Err(de::Error::missing_field("usage")) };
        while let Some(Text(name)) = map.next_key()? {
            // The first one counts.
            if name == "usage" && usage.members.0.is_empty() {
                map.next_value_seed(&mut usage.members)?;
                let Some((_, last)) = usage.members.0.last() else { return Err(de::Error::missing_field("usage")) };
                let behind = json::span(usage.whole, last.get()).end;
                // Only white space can be in between.
                usage.end = behind + usage.whole[behind..].find('}').unwrap_or(0);
                usage.is_bare = false;
            } else {
                object.members.0.push((name, map.next_value()?));
            }
            object.is_bare = false;
        }
        if usage.members.0.is_empty() { Err(de::Error::missing_field("usage")) } else { Ok(()) }
    }
}

/// A string's text, without the cost of a parser's error for anything else.
fn text(value: &RawValue) -> Option<String> {
    if json::kind(value) == Kind::String { json::string(value).map(Into::into) } else { None }
}

/// The object inside `message_start`, `message_delta` or `message_stop`.
pub struct Event<'a>(Object<'a>);

impl<'a> Event<'a> {
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let whole = std::str::from_utf8(data).map_err(|_| Malformed)?;
        Object::whole(whole).map(Self).ok_or(Malformed)
    }

    fn inner(&self, name: &str) -> Option<Object<'a>> {
        self.0.members.get(name).and_then(|value| Object::within(self.0.whole, value))
    }

    /// The `type` member: the event's name where the frame gives none.
    pub fn kind(&self) -> Option<String> {
        self.0.members.get("type").and_then(text)
    }

    pub fn message(&self) -> Result<Message<'a>, Malformed> {
        let message = self.0.members.get("message").filter(|message| json::kind(message) == Kind::Object);
        message.and_then(|message| Message::of(self.0.whole, message.get())).ok_or(Malformed)
    }

    pub fn counts(&self) -> Option<Counts> {
        self.inner("usage").map(|usage| Counts::of(&usage.members))
    }

    /// The reason in a `message_delta`.
    pub fn stop_reason(&self) -> Option<String> {
        self.inner("delta")?.members.get("stop_reason").and_then(text)
    }

    /// The error object of an `error` event: its type and message.
    pub fn error(&self) -> Option<&'a RawValue> {
        self.0.members.get("error")
    }

    pub fn start_completed(&self, additions: &Additions<'_>) -> Result<Bytes, Malformed> {
        let mut splice = Splice::default();
        let additions = Additions { charge: None, routing_json: None, ..*additions };
        self.message()?.complete(&mut splice, &additions, false);
        Ok(splice.apply(self.0.whole.as_bytes()))
    }

    /// `message_delta` with the cost, and with input counts that only the start of the stream reported. `reason` is why the
    /// answer ended if this event does not say it: what an earlier one said, or that there was content, so that an end
    /// without a reason is an end all the same.
    pub fn delta_completed(&self, known: &Counts, charge: Option<&Charge<'_>>, reason: Option<&str>) -> Bytes {
        let mut splice = Splice::default();
        if let Some(mut delta) = self.inner("delta") {
            stop_details(&delta, &mut splice);
            stop_reason(&mut delta, &mut splice, reason);
            delta.fill(&mut splice, &STOP);
        }
        match self.inner("usage") {
            Some(mut usage) => complete_delta_usage(&mut usage, &mut splice, known, charge),
            // Left out: what is known goes there all the same, and so does the cost.
            None => {
                let usage = made(|usage, splice| complete_delta_usage(usage, splice, known, charge));
                match self.0.members.get("usage") {
                    Some(null) => splice.replace(json::span(self.0.whole, null.get()), usage.as_bytes()),
                    None => {
                        let comma = if self.0.members.0.is_empty() { "" } else { "," };
                        splice.insert(self.0.end, format!("{comma}\"usage\":{usage}").as_bytes());
                    }
                }
            }
        }
        splice.apply(self.0.whole.as_bytes())
    }

    /// `message_stop` with the routing metadata.
    pub fn stop_completed(self, routing_json: (&str, &str)) -> Bytes {
        let mut splice = Splice::default();
        let Self(mut object) = self;
        let whole = object.whole;
        object.set(&mut splice, routing_json.0, routing_json.1);
        splice.apply(whole.as_bytes())
    }
}

/// A member's name, and how it is written behind others.
macro_rules! member {
    ($name:literal: $value:literal) => {
        ($name, concat!(",\"", $name, "\":", $value))
    };
}

/// What is promised of every end.
const STOP: [(&str, &str); 3] =
    [member!("stop_sequence": "null"), member!("stop_details": "null"), member!("container": "null")];

/// What is promised of every usage.
const USAGE: [(&str, &str); 8] = [
    member!("input_tokens": "0"),
    member!("output_tokens": "0"),
    member!("cache_creation_input_tokens": "null"),
    member!("cache_read_input_tokens": "null"),
    member!("cache_creation": "null"),
    member!("output_tokens_details": "null"),
    member!("server_tool_use": "null"),
    member!("inference_geo": "null"),
];

fn stop_reason(object: &mut Object<'_>, splice: &mut Splice, otherwise: Option<&str>) {
    let is_named = object.members.get("stop_reason").is_some_and(|reason| json::kind(reason) == Kind::String);
    match otherwise.filter(|_| !is_named) {
        Some(reason) => object.set_by(splice, "stop_reason", |out| json::quote(reason, out)),
        None => object.fill(splice, &[member!("stop_reason": "null")]),
    }
}

fn complete_usage(usage: &mut Object<'_>, splice: &mut Splice, charge: Option<&Charge<'_>>) {
    usage.fill(splice, &USAGE);
    if usage.members.get("service_tier").is_none_or(|tier| json::kind(tier) != Kind::String) {
        usage.set(splice, "service_tier", "\"standard\"");
    }
    charged(usage, splice, charge);
}

fn complete_delta_usage(usage: &mut Object<'_>, splice: &mut Splice, known: &Counts, charge: Option<&Charge<'_>>) {
    let counts = [
        ("input_tokens", known.input),
        ("output_tokens", Some(known.output.unwrap_or(0))),
        ("cache_creation_input_tokens", known.cache_write),
        ("cache_read_input_tokens", known.cache_read),
    ];
    for (name, count) in counts {
        if usage.members.get(name).is_none() {
            let count = count.map_or(Cow::Borrowed("null"), |count| Cow::Owned(count.to_string()));
            usage.add_by(splice, name, |out| out.extend_from_slice(count.as_bytes()));
        }
    }
    usage.fill(splice, &[member!("output_tokens_details": "null"), member!("server_tool_use": "null")]);
    charged(usage, splice, charge);
}

fn empty_usage(charge: Option<&Charge<'_>>) -> String {
    made(|usage, splice| complete_usage(usage, splice, charge))
}

/// An object made from nothing by what would complete one.
fn made(complete: impl FnOnce(&mut Object<'static>, &mut Splice)) -> String {
    let mut splice = Splice::default();
    complete(&mut Object::new("{}", 1), &mut splice);
    String::from_utf8(splice.apply(b"{}").to_vec()).expect("made of text")
}

fn charged(usage: &mut Object<'_>, splice: &mut Splice, charge: Option<&Charge<'_>>) {
    if let Some(charge) = charge {
        usage.set(splice, "cost", charge.cost_json);
        usage.set(splice, "cost_details", charge.details_json);
        usage.set(splice, "is_byok", if charge.is_byok { "true" } else { "false" });
    }
}

/// `category` and `explanation` of a refusal are strings towards the client, also where the upstream has none.
fn stop_details(parent: &Object<'_>, splice: &mut Splice) {
    let details = parent.members.get("stop_details").and_then(|details| Object::within(parent.whole, details));
    let Some(mut details) = details else { return };
    let defaults =
        [("category", "\"general_harms\""), ("explanation", "\"The model declined to answer this request.\"")];
    for (name, text) in defaults {
        if details.members.get(name).is_none_or(|value| json::kind(value) != Kind::String) {
            details.set(splice, name, text);
        }
    }
}

/// One object of the text, and where members are added to it.
struct Object<'a> {
    whole: &'a str,
    members: Members<'a>,
    /// The place of its closing brace.
    end: usize,
    /// Nothing stands in it so far: what is added first needs no comma.
    is_bare: bool,
}

impl<'a> Object<'a> {
    /// One of which no member is known yet.
    fn new(whole: &'a str, end: usize) -> Self {
        Self { whole, members: Members::default(), end, is_bare: true }
    }

    /// The object that a text is.
    fn whole(whole: &'a str) -> Option<Self> {
        let mut object = Self::new(whole, whole.rfind('}')?);
        object.read(whole).is_ok().then_some(object)
    }

    /// An object inside a text.
    fn within(whole: &'a str, value: &'a RawValue) -> Option<Self> {
        // Told without the cost of a parser's error.
        if json::kind(value) != Kind::Object {
            return None;
        }
        let mut object = Self::new(whole, json::span(whole, value.get()).end - 1);
        object.read(value.get()).is_ok().then_some(object)
    }

    fn read(&mut self, text: &'a str) -> serde_json::Result<()> {
        self.members.read(text)?;
        self.is_bare = self.members.0.is_empty();
        Ok(())
    }

    /// Replaces a member or adds it.
    fn set(&mut self, splice: &mut Splice, name: &str, value: &str) {
        self.set_by(splice, name, |out| out.extend_from_slice(value.as_bytes()));
    }

    fn set_by(&mut self, splice: &mut Splice, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        match self.members.get(name) {
            Some(old) => splice.replace_by(json::span(self.whole, old.get()), write),
            None => self.add_by(splice, name, write),
        }
    }

    /// Adds the members that the upstream left out, given as they are written.
    fn fill(&mut self, splice: &mut Splice, wanted: &[(&str, &str)]) {
        for (name, text) in wanted {
            if self.members.get(name).is_none() {
                let text = &text[usize::from(std::mem::take(&mut self.is_bare))..];
                splice.append_by(self.end, |out| out.extend_from_slice(text.as_bytes()));
            }
        }
    }

    fn add_by(&mut self, splice: &mut Splice, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        let is_bare = std::mem::take(&mut self.is_bare);
        splice.append_by(self.end, |out| {
            out.extend_from_slice(if is_bare { b"\"" } else { b",\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            write(out);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CHARGE: Charge<'static> = Charge { cost_json: "0.000177", details_json: r#"{"x":1}"#, is_byok: false };

    fn additions() -> Additions<'static> {
        Additions { model: "anthropic/claude", provider: "Anthropic", charge: Some(CHARGE), routing_json: None }
    }

    #[test]
    fn a_message_gets_our_members_and_keeps_all_its_own() {
        let body = br#"{"id":"msg_1","future":{"n":1.0},"model":"claude-x","content":[{"type":"new_kind","x":1e2}],"stop_reason":"end_turn","usage":{"input_tokens":14,"output_tokens":9,"extra":[1]}}"#;
        let message = Message::read(body).unwrap();
        assert!(message.is_message() && !message.is_empty());
        assert_eq!(message.stop_reason().as_deref(), Some("end_turn"));
        let text = String::from_utf8(message.completed(&additions()).to_vec()).unwrap();
        // Untouched up to the model, and in between, to the byte.
        assert!(text.starts_with(
            r#"{"id":"msg_1","future":{"n":1.0},"model":"anthropic/claude","content":[{"type":"new_kind","x":1e2}],"#
        ));
        let value: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "id": "msg_1", "future": {"n": 1.0}, "model": "anthropic/claude", "provider": "Anthropic",
            "content": [{"type": "new_kind", "x": 100.0}], "stop_reason": "end_turn", "stop_sequence": null,
            "stop_details": null, "container": null,
            "usage": {"input_tokens": 14, "output_tokens": 9, "extra": [1], "cache_creation_input_tokens": null,
                "cache_read_input_tokens": null, "cache_creation": null, "output_tokens_details": null,
                "server_tool_use": null, "inference_geo": null, "service_tier": "standard", "cost": 0.000177,
                "cost_details": {"x": 1}, "is_byok": false}
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn a_message_without_usage_gets_an_empty_one() {
        let message = br#"{"content":[ ]}"#;
        let value: Value = serde_json::from_slice(&Message::read(message).unwrap().completed(&additions())).unwrap();
        assert_eq!(value["usage"]["input_tokens"], 0);
        assert_eq!(value["usage"]["service_tier"], "standard");
        assert!(Message::read(message).unwrap().is_empty());
    }

    #[test]
    fn a_refusal_has_words_even_when_the_upstream_gave_none() {
        let body = br#"{"content":[],"stop_details":{"type":"refusal","category":null}}"#;
        let value: Value = serde_json::from_slice(&Message::read(body).unwrap().completed(&additions())).unwrap();
        let expected = json!({"type": "refusal", "category": "general_harms", "explanation": "The model declined to answer this request."});
        assert_eq!(value["stop_details"], expected);
    }

    #[test]
    fn a_finished_answer_has_a_reason_and_a_start_has_none() {
        let reason_of = |body: &str| {
            let value: Value =
                serde_json::from_slice(&Message::read(body.as_bytes()).unwrap().completed(&additions())).unwrap();
            value["stop_reason"].clone()
        };
        let content = r#""content":[{"type":"text","text":"x"}]"#;
        assert_eq!(reason_of(&format!("{{{content}}}")), "end_turn");
        assert_eq!(reason_of(&format!(r#"{{"stop_reason":null,{content}}}"#)), "end_turn");
        assert_eq!(reason_of(&format!(r#"{{"stop_reason":"max_tokens",{content}}}"#)), "max_tokens");
        assert_eq!(reason_of(r#"{"stop_reason":"refusal","content":[]}"#), "refusal");
        assert_eq!(reason_of(r#"{"stop_reason":null,"content":[]}"#), Value::Null, "nothing was said");

        let delta = |data: &str, is_answered: bool| {
            let event = Event::read(data.as_bytes()).unwrap();
            let value: Value = serde_json::from_slice(&event.delta_completed(
                &Counts::default(),
                None,
                is_answered.then_some(END_TURN),
            ))
            .unwrap();
            value["delta"]["stop_reason"].clone()
        };
        for data in [r#"{"delta":{}}"#, r#"{"delta":{"stop_reason":null,"stop_sequence":null}}"#] {
            assert_eq!((delta(data, true), delta(data, false)), (json!("end_turn"), Value::Null), "{data}");
        }
        assert_eq!(delta(r#"{"delta":{"stop_reason":"tool_use"}}"#, true), "tool_use");

        let start = br#"{"type":"message_start","message":{"content":[],"stop_reason":null}}"#;
        let start = Event::read(start).unwrap().start_completed(&additions()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&start).unwrap()["message"]["stop_reason"], Value::Null);
    }

    #[test]
    fn what_is_no_content_is_completed_all_the_same() {
        let message = Message::read(br#"{"content":7}"#).unwrap();
        assert!(!message.is_message() && !message.is_empty());
        let value: Value = serde_json::from_slice(&message.completed(&additions())).unwrap();
        assert_eq!((&value["content"], &value["model"]), (&json!(7), &json!("anthropic/claude")));
    }

    #[test]
    fn an_error_in_a_200_is_no_message() {
        assert!(!Message::read(br#"{"error":{"message":"no"}}"#).unwrap().is_message());
        assert!(Message::read(b"<html>").is_err());
        assert!(Message::read(b"[1]").is_err());
    }

    #[test]
    fn the_start_and_the_end_of_a_stream_are_completed() {
        let start =
            br#"{"type":"message_start","message":{"id":"m","model":"x","content":[],"usage":{"input_tokens":4}}}"#;
        let value: Value =
            serde_json::from_slice(&Event::read(start).unwrap().start_completed(&additions()).unwrap()).unwrap();
        assert_eq!(
            (&value["message"]["model"], &value["message"]["provider"]),
            (&json!("anthropic/claude"), &json!("Anthropic"))
        );
        assert!(value["message"]["usage"].get("cost").is_none());

        let delta = br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
        let known = Counts { input: Some(4), output: Some(9), ..Counts::default() };
        let value: Value =
            serde_json::from_slice(&Event::read(delta).unwrap().delta_completed(&known, Some(&CHARGE), Some(END_TURN)))
                .unwrap();
        let expected = json!({"type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null},
            "usage": {"input_tokens": 4, "output_tokens": 9, "cache_creation_input_tokens": null, "cache_read_input_tokens": null,
                "output_tokens_details": null, "server_tool_use": null, "cost": 0.000177, "cost_details": {"x": 1}, "is_byok": false}});
        assert_eq!(value, expected);

        for delta in [
            &br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#[..],
            br#"{"type":"message_delta","usage":null}"#,
        ] {
            let completed = Event::read(delta).unwrap().delta_completed(&known, Some(&CHARGE), Some(END_TURN));
            let value: Value = serde_json::from_slice(&completed).unwrap();
            assert_eq!(value["usage"], expected["usage"], "a delta without usage still says what is known");
        }

        let stop = Event::read(br#"{"type":"message_stop"}"#)
            .unwrap()
            .stop_completed(("tidegate_metadata", r#"{"attempt":1}"#));
        assert_eq!(stop, r#"{"type":"message_stop","tidegate_metadata":{"attempt":1}}"#);
    }
}
