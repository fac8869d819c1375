//! The answer of a Messages upstream as the gateway reads and completes it: the counts and reasons it needs, the few
//! members it sets, and every other byte as it came.

mod counts;
mod mend;
mod object;
#[cfg(test)]
mod properties;
mod replay;

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;
use serde::de::Deserializer as _;
use serde_json::value::RawValue;

use self::object::{Name, Part, Plain, Usage, Used};
use crate::json::{self, Kind};
use crate::splice::Splice;

pub use counts::{Counts, MOST, More, Word, by_lifetime, count, whole};
pub use replay::without;

/// What an answer says that ended without a word about why: `stop_reason` is null only while an answer is under way.
pub const END_TURN: &str = "end_turn";

/// What a refusal says of itself where the upstream says nothing: both are strings towards the client.
pub const REFUSAL_CATEGORY: &str = "general_harms";
pub const REFUSAL_EXPLANATION: &str = "The model declined to answer this request.";

/// A comment in the frame that begins a block of a stream: the model declines in its words. Clients of the Messages format
/// learn that at the end, as they always do; other formats have a place of their own for such words.
pub const DECLINES: &str = ": declines\n";

/// What the gateway sets on an answer. Texts that end in `_json` are JSON values.
#[derive(Clone, Copy, Debug)]
pub struct Additions<'a> {
    /// The catalogue id of the model that answered.
    pub model: &'a str,
    pub provider: &'a str,
    pub charge: Option<Charge<'a>>,
    /// Tokens of the prompt and of the answer by our own count, for an answer that does not say what it used.
    pub used: Option<(u64, u64)>,
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
    object: Part<'a>,
    usage: Option<Usage<'a>>,
    doubt: Doubt,
}

/// Whether some count of a usage cannot be true, once somebody has looked: they are read for the price and for the answer.
#[derive(Default)]
struct Doubt(Cell<Option<bool>>);

impl Doubt {
    fn counts(&self, usage: &Usage<'_>) -> Counts {
        let counts = Counts::of(usage);
        self.0.set(Some(counts.is_bad));
        counts
    }

    fn mend(&self, usage: &Usage<'_>, splice: &mut Splice) {
        if self.0.get().unwrap_or_else(|| Counts::of(usage).is_bad) {
            mend::mend(usage, splice);
        }
    }
}

impl<'a> Message<'a> {
    /// Reads a non-streamed answer.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let whole = std::str::from_utf8(body).map_err(|_| Malformed)?;
        Self::of(whole, whole)
    }

    /// The message that a piece of a text is.
    fn of(whole: &'a str, text: &'a str) -> Result<Self, Malformed> {
        let end = json::span(whole, text).start + text.rfind('}').ok_or(Malformed)?;
        // It is many bytes, and made where it is given back from.
        let mut message =
            Ok(Self { object: Part::new(whole, end), usage: Some(Usage::new(whole, end)), doubt: Doubt::default() });
        if !message.as_mut().is_ok_and(|message| message.read_plain(text)) {
            message = Self::read_carefully(whole, text, end);
        }
        message
    }

    /// Reads a message and its usage in one pass; false when they are not as they usually are.
    fn read_plain(&mut self, text: &'a str) -> bool {
        let Self { object, usage: Some(usage), .. } = self else { return false };
        let mut reader = json::Reader::new(text);
        reader.deserialize_map(Plain { message: object, usage }).and_then(|()| reader.end()).is_ok()
    }

    /// Reads a message that may have no usage, or a strange one.
    #[cold]
    fn read_carefully(whole: &'a str, text: &'a str, end: usize) -> Result<Self, Malformed> {
        let mut object = Part::new(whole, end);
        object.read(text).map_err(|_| Malformed)?;
        let usage = object.get(Name::Usage).and_then(|usage| Usage::within(whole, usage));
        Ok(Self { object, usage, doubt: Doubt::default() })
    }

    /// False for an answer that carries an error, or anything else, in a 200.
    pub fn is_message(&self) -> bool {
        self.object.get(Name::Error).is_none_or(|error| json::kind(error) == Kind::Null)
            && self.object.get(Name::Content).is_some_and(|content| json::kind(content) == Kind::Array)
    }

    pub fn counts(&self) -> Option<Counts> {
        self.usage.as_ref().map(|usage| self.doubt.counts(usage))
    }

    pub fn id(&self) -> Option<String> {
        self.object.get(Name::Id).and_then(json::string).map(Into::into)
    }

    pub fn stop_reason(&self) -> Option<String> {
        self.object.get(Name::StopReason).and_then(text)
    }

    pub fn is_empty(&self) -> bool {
        let content = self.object.get(Name::Content).map(RawValue::get);
        // What is but one character long is no content, and not empty either.
        let inside = content.and_then(|content| content.get(1..content.len() - 1));
        inside.is_some_and(|inside| inside.trim().is_empty())
    }

    /// Bytes of text, thinking and input of calls: what an answer that does not say what it used is estimated from.
    #[cold]
    pub fn said(&self) -> u64 {
        let content = self.object.get(Name::Content).and_then(json::elements).unwrap_or_default();
        let said = content.into_iter().filter_map(json::Members::of).map(|block| {
            let words = ["text", "thinking"].iter().filter_map(|name| block.get(name).and_then(text));
            let input = block.get("input").map_or(0, |input| input.get().len());
            words.map(|words| words.len()).sum::<usize>() + input
        });
        said.sum::<usize>() as u64
    }

    /// The answer with our members set and the promised ones filled in.
    #[inline]
    pub fn completed(mut self, additions: &Additions<'_>) -> Bytes {
        let (whole, is_finished) = (self.object.whole, !self.is_empty());
        let mut splice = Splice::default();
        self.complete(&mut splice, additions, is_finished);
        splice.apply(whole.as_bytes())
    }

    /// The event that it stands in, which begins a stream, with our members set and the promised ones filled in. What it
    /// costs is told at the end.
    pub fn started(mut self, additions: &Additions<'_>) -> Bytes {
        let mut splice = Splice::default();
        let additions = Additions { charge: None, routing_json: None, ..*additions };
        self.complete(&mut splice, &additions, false);
        splice.apply(self.object.whole.as_bytes())
    }

    fn complete(&mut self, splice: &mut Splice, additions: &Additions<'_>, is_finished: bool) {
        // What is added to one object is written in one go, if nothing else comes in between.
        if let Some(usage) = &mut self.usage {
            self.doubt.mend(usage, splice);
            complete_usage(usage, splice, additions);
        }
        let object = &mut self.object;
        object.set_by(splice, Name::Model, |out| json::quote(additions.model, out));
        stop_details(object, splice);
        object.set_by(splice, Name::Provider, |out| json::quote(additions.provider, out));
        stop_reason(object, splice, is_finished.then_some(END_TURN));
        object.fill(splice, &STOP, "null");
        if self.usage.is_none() {
            object.set(splice, Name::Usage, &empty_usage(additions));
        }
        if let Some((name, value)) = additions.routing_json {
            object.set_any(splice, name, value);
        }
    }
}

/// A string's text, without the cost of a parser's error for anything else.
fn text(value: &RawValue) -> Option<String> {
    if json::kind(value) == Kind::String { json::string(value).map(Into::into) } else { None }
}

/// The object inside `message_start`, `message_delta` or `message_stop`.
pub struct Event<'a>(Part<'a>);

impl<'a> Event<'a> {
    pub fn read(data: &'a [u8]) -> Result<Self, Malformed> {
        let whole = std::str::from_utf8(data).map_err(|_| Malformed)?;
        Part::whole(whole).map(Self).ok_or(Malformed)
    }

    /// The `type` member: the event's name where the frame gives none.
    pub fn kind(&self) -> Option<String> {
        self.0.get(Name::Type).and_then(text)
    }

    pub fn message(&self) -> Result<Message<'a>, Malformed> {
        let message = self.0.get(Name::Message).filter(|message| json::kind(message) == Kind::Object);
        Message::of(self.0.whole, message.ok_or(Malformed)?.get())
    }

    /// What is in a `message_delta`.
    pub fn delta(self) -> Delta<'a> {
        let Self(event) = self;
        let delta = event.get(Name::Delta).and_then(|value| Part::within(event.whole, value));
        let usage = event.get(Name::Usage).and_then(|value| Usage::within(event.whole, value));
        Delta { event, delta, usage, doubt: Doubt::default() }
    }

    /// The error object of an `error` event: its type and message.
    pub fn error(&self) -> Option<&'a RawValue> {
        self.0.get(Name::Error)
    }

    /// `message_stop` with the routing metadata.
    pub fn stop_completed(self, routing_json: (&str, &str)) -> Bytes {
        let mut splice = Splice::default();
        let Self(mut object) = self;
        let whole = object.whole;
        object.set_any(&mut splice, routing_json.0, routing_json.1);
        splice.apply(whole.as_bytes())
    }
}

/// A `message_delta`: how an answer ended, and what it used. It is read once, as a message is.
pub struct Delta<'a> {
    event: Part<'a>,
    delta: Option<Part<'a>>,
    usage: Option<Usage<'a>>,
    doubt: Doubt,
}

impl Delta<'_> {
    pub fn counts(&self) -> Option<Counts> {
        self.usage.as_ref().map(|usage| self.doubt.counts(usage))
    }

    /// Why the answer ended, if this event says it.
    pub fn stop_reason(&self) -> Option<String> {
        self.delta.as_ref()?.get(Name::StopReason).and_then(text)
    }

    /// The event with the cost, and with input counts that only the start of the stream reported. `reason` is why the
    /// answer ended if this event does not say it: what an earlier one said, or that there was content, so that an end
    /// without a reason is an end all the same.
    pub fn completed(self, known: &Counts, charge: Option<&Charge<'_>>, reason: Option<&str>) -> Bytes {
        let Self { event, delta, usage, doubt } = self;
        let mut splice = Splice::default();
        if let Some(mut delta) = delta {
            stop_details(&delta, &mut splice);
            stop_reason(&mut delta, &mut splice, reason);
            delta.fill(&mut splice, &STOP, "null");
        }
        match usage {
            Some(mut usage) => {
                doubt.mend(&usage, &mut splice);
                complete_delta_usage(&mut usage, &mut splice, known, charge);
            }
            // Left out: what is known goes there all the same, and so does the cost.
            None => {
                let usage = made(|usage, splice| complete_delta_usage(usage, splice, known, charge));
                match event.get(Name::Usage) {
                    Some(null) => splice.replace(json::span(event.whole, null.get()), usage.as_bytes()),
                    None => {
                        let comma = if event.is_bare { "" } else { "," };
                        splice.insert(event.end, format!("{comma}\"usage\":{usage}").as_bytes());
                    }
                }
            }
        }
        splice.apply(event.whole.as_bytes())
    }
}

/// What is promised of every end.
const STOP: [Name; 3] = [Name::StopSequence, Name::StopDetails, Name::Container];

fn stop_reason(object: &mut Part<'_>, splice: &mut Splice, otherwise: Option<&str>) {
    let is_named = object.get(Name::StopReason).is_some_and(|reason| json::kind(reason) == Kind::String);
    match otherwise.filter(|_| !is_named) {
        Some(reason) => object.set_by(splice, Name::StopReason, |out| json::quote(reason, out)),
        None => object.fill(splice, &[Name::StopReason], "null"),
    }
}

/// Null is no count: whoever writes it has said nothing.
fn is_unsaid(usage: &Usage<'_>, name: Used) -> bool {
    usage.get(name).is_none_or(|count| json::kind(count) == Kind::Null)
}

fn complete_usage(usage: &mut Usage<'_>, splice: &mut Splice, additions: &Additions<'_>) {
    let (input, output) = additions.used.unwrap_or_default();
    for (name, count) in [(Used::Input, input), (Used::Output, output)] {
        if is_unsaid(usage, name) {
            usage.set(splice, name, &count.to_string());
        }
    }
    let nullable =
        [Used::CacheWrite, Used::CacheRead, Used::CacheCreation, Used::OutputDetails, Used::ServerTools, Used::Geo];
    usage.fill(splice, &nullable, "null");
    if usage.get(Used::Tier).is_none_or(|tier| json::kind(tier) != Kind::String) {
        usage.set(splice, Used::Tier, "\"standard\"");
    }
    unflagged(usage, splice);
    charged(usage, splice, additions.charge.as_ref());
}

fn complete_delta_usage(usage: &mut Usage<'_>, splice: &mut Splice, known: &Counts, charge: Option<&Charge<'_>>) {
    let counts = [
        (Used::Input, known.input),
        (Used::Output, Some(known.output.unwrap_or(0))),
        (Used::CacheWrite, known.cache_write),
        (Used::CacheRead, known.cache_read),
    ];
    for (name, count) in counts {
        match count {
            Some(count) if is_unsaid(usage, name) => usage.set(splice, name, &count.to_string()),
            Some(_) => {}
            None => usage.fill(splice, &[name], "null"),
        }
    }
    usage.fill(splice, &[Used::OutputDetails, Used::ServerTools], "null");
    if usage.get(Used::CacheCreation).is_none() && known.cache_write_5m.or(known.cache_write_1h).is_some() {
        let [short, long] = [known.cache_write_5m, known.cache_write_1h].map(|count| count.unwrap_or(0));
        let written = format!(r#"{{"ephemeral_5m_input_tokens":{short},"ephemeral_1h_input_tokens":{long}}}"#);
        usage.set(splice, Used::CacheCreation, &written);
    }
    for (name, word) in [(Used::Tier, &known.service_tier), (Used::Speed, &known.speed)] {
        if let (None, Some(word)) = (usage.get(name), word) {
            usage.set_by(splice, name, |out| json::quote(word.as_str(), out));
        }
    }
    unflagged(usage, splice);
    charged(usage, splice, charge);
}

/// Where our own translation says to us alone what is billed.
fn billed_to_us(usage: &Usage<'_>, billed: &RawValue) -> Option<Range<usize>> {
    const BILLED: &str = r#","billed_units":"#;
    let span = json::span(usage.whole, billed.get());
    usage.whole[..span.start].ends_with(BILLED).then(|| span.start - BILLED.len()..span.end)
}

/// Takes out what our own translation says to us alone: it stands in these very bytes, the flag at the end.
fn unflagged(usage: &Usage<'_>, splice: &mut Splice) {
    if let Some(span) = usage.get(Used::Billed).and_then(|billed| billed_to_us(usage, billed)) {
        splice.cut(span);
    }
    const FLAG: &str = r#","clamped":true"#;
    if usage.get(Used::Clamped).is_some() && usage.whole[..usage.end].ends_with(FLAG) {
        splice.cut(usage.end - FLAG.len()..usage.end);
    }
}

fn empty_usage(additions: &Additions<'_>) -> String {
    made(|usage, splice| complete_usage(usage, splice, additions))
}

/// An object made from nothing by what would complete one.
fn made(complete: impl FnOnce(&mut Usage<'static>, &mut Splice)) -> String {
    let mut splice = Splice::default();
    complete(&mut Usage::new("{}", 1), &mut splice);
    String::from_utf8(splice.apply(b"{}").to_vec()).expect("made of text")
}

fn charged(usage: &mut Usage<'_>, splice: &mut Splice, charge: Option<&Charge<'_>>) {
    if let Some(charge) = charge {
        usage.set(splice, Used::Cost, charge.cost_json);
        usage.set(splice, Used::CostDetails, charge.details_json);
        usage.set(splice, Used::IsByok, if charge.is_byok { "true" } else { "false" });
    }
}

/// `category` and `explanation` of a refusal are strings towards the client, also where the upstream has none.
fn stop_details(parent: &Part<'_>, splice: &mut Splice) {
    let details = parent.get(Name::StopDetails).and_then(|details| Part::within(parent.whole, details));
    let Some(mut details) = details else { return };
    for (name, text) in [(Name::Category, REFUSAL_CATEGORY), (Name::Explanation, REFUSAL_EXPLANATION)] {
        if details.get(name).is_none_or(|value| json::kind(value) != Kind::String) {
            details.set(splice, name, &json::quoted(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CHARGE: Charge<'static> = Charge { cost_json: "0.000177", details_json: r#"{"x":1}"#, is_byok: false };

    fn additions() -> Additions<'static> {
        let (model, provider) = ("anthropic/claude", "Anthropic");
        Additions { model, provider, charge: Some(CHARGE), used: None, routing_json: None }
    }

    #[test]
    fn p16_an_answer_without_usage_is_told_what_we_count() {
        let thought = r#"{"type":"thinking","thinking":"twelve bytes","signature":"long and opaque"}"#;
        let call = r#"{"type":"tool_use","id":"toolu_1","name":"tide_at","input":{"hour":6}}"#;
        let text = r#"{"type":"text","text":"h\u00e9 \"so\"","citations":null}"#;
        for usage in ["", r#","usage":null"#, r#","usage":{}"#] {
            let body =
                format!(r#"{{"type":"message","content":[{thought},{call},{text}],"stop_reason":"end_turn"{usage}}}"#);
            let message = Message::read(body.as_bytes()).unwrap();
            // The thought, `{"hour":6}`, and the text as it reads.
            assert_eq!(message.said(), 12 + 10 + 8);
            let told = message.completed(&Additions { used: Some((21, 8)), ..additions() });
            let told: Value = serde_json::from_slice(&told).unwrap();
            assert_eq!(
                (&told["usage"]["input_tokens"], &told["usage"]["output_tokens"]),
                (&json!(21), &json!(8)),
                "{usage}"
            );
        }
        let known = r#"{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":2}}"#;
        let told =
            Message::read(known.as_bytes()).unwrap().completed(&Additions { used: Some((21, 8)), ..additions() });
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!((&told["usage"]["input_tokens"], &told["usage"]["output_tokens"]), (&json!(1), &json!(2)));
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
    fn a_client_is_told_no_count_that_cannot_be_true() {
        let usage = r#"{"input_tokens":-14,"output_tokens":99999999999999}"#;
        let body = format!(r#"{{"content":[{{"type":"text","text":"x"}}],"usage":{usage}}}"#);
        let whole: Value =
            serde_json::from_slice(&Message::read(body.as_bytes()).unwrap().completed(&additions())).unwrap();
        let data = format!(r#"{{"type":"message_delta","delta":{{}},"usage":{usage}}}"#);
        let delta = Event::read(data.as_bytes()).unwrap().delta();
        let counts = delta.counts().unwrap();
        let delta: Value = serde_json::from_slice(&delta.completed(&counts, Some(&CHARGE), None)).unwrap();
        for told in [whole, delta] {
            let usage = &told["usage"];
            assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(0), &json!(MOST)));
            assert_eq!(usage["cost"], json!(0.000177));
        }
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
            let value: Value = serde_json::from_slice(&event.delta().completed(
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
        let start = Event::read(start).unwrap().message().unwrap().started(&additions());
        assert_eq!(serde_json::from_slice::<Value>(&start).unwrap()["message"]["stop_reason"], Value::Null);
    }

    #[test]
    fn what_our_own_translation_tells_us_does_not_reach_the_client() {
        let usage = r#"{"input_tokens":4,"output_tokens":9,"billed_units":{"input_tokens":1},"service_tier":"flex","clamped":true}"#;
        let body = format!(r#"{{"type":"message","content":[],"usage":{usage}}}"#);
        let message = Message::read(body.as_bytes()).unwrap();
        assert!(message.counts().unwrap().is_odd());
        let whole: Value = serde_json::from_slice(&message.completed(&additions())).unwrap();
        let data = format!(r#"{{"type":"message_delta","delta":{{}},"usage":{usage}}}"#);
        let delta = Event::read(data.as_bytes()).unwrap().delta();
        let delta: Value = serde_json::from_slice(&delta.completed(&Counts::default(), Some(&CHARGE), None)).unwrap();
        for told in [whole, delta] {
            assert_eq!((&told["usage"]["output_tokens"], &told["usage"]["cost"]), (&json!(9), &json!(0.000177)));
            assert!(told["usage"].get("clamped").is_none() && told["usage"].get("billed_units").is_none(), "{told}");
            assert_eq!(told["usage"]["service_tier"], "flex");
        }
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
            serde_json::from_slice(&Event::read(start).unwrap().message().unwrap().started(&additions())).unwrap();
        assert_eq!(
            (&value["message"]["model"], &value["message"]["provider"]),
            (&json!("anthropic/claude"), &json!("Anthropic"))
        );
        assert!(value["message"]["usage"].get("cost").is_none());

        let delta = br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
        let known = Counts { input: Some(4), output: Some(9), ..Counts::default() };
        let value: Value = serde_json::from_slice(&Event::read(delta).unwrap().delta().completed(
            &known,
            Some(&CHARGE),
            Some(END_TURN),
        ))
        .unwrap();
        let expected = json!({"type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null, "stop_details": null, "container": null},
            "usage": {"input_tokens": 4, "output_tokens": 9, "cache_creation_input_tokens": null, "cache_read_input_tokens": null,
                "output_tokens_details": null, "server_tool_use": null, "cost": 0.000177, "cost_details": {"x": 1}, "is_byok": false}});
        assert_eq!(value, expected);

        // How it was served is often told at the start alone.
        let served =
            Counts { cache_write_1h: Some(7), service_tier: Word::new("priority"), speed: Word::new("fast"), ..known };
        let completed = Event::read(delta).unwrap().delta().completed(&served, Some(&CHARGE), Some(END_TURN));
        let usage = &serde_json::from_slice::<Value>(&completed).unwrap()["usage"];
        assert_eq!((&usage["service_tier"], &usage["speed"]), (&json!("priority"), &json!("fast")));
        let written = json!({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 7});
        assert_eq!(usage["cache_creation"], written);

        for delta in [
            &br#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#[..],
            br#"{"type":"message_delta","usage":null}"#,
        ] {
            let completed = Event::read(delta).unwrap().delta().completed(&known, Some(&CHARGE), Some(END_TURN));
            let value: Value = serde_json::from_slice(&completed).unwrap();
            assert_eq!(value["usage"], expected["usage"], "a delta without usage still says what is known");
        }

        let stop = Event::read(br#"{"type":"message_stop"}"#)
            .unwrap()
            .stop_completed(("tidegate_metadata", r#"{"attempt":1}"#));
        assert_eq!(stop, r#"{"type":"message_stop","tidegate_metadata":{"attempt":1}}"#);
    }
}
