//! The model's reasoning in all the places where servers put it, and what takes it to the next turn.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, quoted};

use super::PROTOCOL;
use super::answer::Said;
use crate::translate::blocks::Blocks;
use crate::translate::carrier::Carrier;
use crate::translate::conversation::{Conversation, Said as Turned};
use crate::translate::encoder::Key;
use crate::translate::tags::{Beginning, Piece};
use crate::translate::{Context, Encoder, Target};

/// Reasoning and text of an answer, piece by piece. A carrier is made once for each stretch of reasoning, at its end.
pub(super) struct Voice {
    beginning: Beginning,
    /// Something was thought since the last carrier.
    thought: bool,
    /// Mistral's signature of it.
    signature: Option<String>,
    details: Vec<Detail>,
    /// What was thought since the last carrier, for an upstream that wants it back.
    heard: Option<String>,
    /// What carries it, for the next call.
    carried: Option<String>,
    /// All text so far, which citations count in.
    pub text: String,
}

impl Voice {
    pub fn new(context: &Context) -> Self {
        let beginning = Beginning::new(context.prefix.as_deref(), context.think_tags);
        Self {
            beginning,
            thought: false,
            signature: None,
            details: Vec::new(),
            heard: context.keeps_thinking.then(String::new),
            carried: None,
            text: String::new(),
        }
    }

    /// The reasoning and the text of a message or of a piece of one.
    pub fn say<B: Blocks>(&mut self, said: &Said<'_>, encoder: &mut Encoder<B>, context: &Context) {
        let plain = spoken(said.reasoning_content).or_else(|| spoken(said.reasoning));
        if let Some(thought) = &plain {
            self.think(thought, encoder);
        }
        for item in said.reasoning_details.and_then(json::elements).into_iter().flatten() {
            // Without a text of its own beside them, the items hold it.
            let read = Detail::read(item);
            if let (None, Some(text)) = (&plain, read.as_ref().and_then(Detail::text)) {
                self.think(&text, encoder);
            }
            let new = read.and_then(|detail| detail.join(&mut self.details));
            self.details.extend(new);
        }
        match said.content.map(|content| (json::kind(content), content)) {
            Some((Kind::String, content)) => {
                self.text(&json::string(content).unwrap_or_default(), encoder, context);
            }
            Some((Kind::Array, content)) => self.chunks(content, encoder, context),
            _ => {}
        }
    }

    fn think<B: Blocks>(&mut self, text: &str, encoder: &mut Encoder<B>) {
        if !text.is_empty() {
            self.thought = true;
            if let Some(heard) = self.heard.as_mut().filter(|heard| heard.len() <= MOST_HEARD) {
                heard.push_str(text);
            }
            encoder.thinking(text);
        }
    }

    fn text<B: Blocks>(&mut self, text: &str, encoder: &mut Encoder<B>, context: &Context) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        if self.beginning.is_over() {
            self.sign(encoder, context);
            return encoder.text(text);
        }
        let mut pieces: Vec<(bool, String)> = Vec::new();
        let mut out = |piece: Piece<'_>| match piece {
            Piece::Text(text) => pieces.push((false, text.to_owned())),
            Piece::Thinking(text) => pieces.push((true, text.to_owned())),
        };
        self.beginning.feed(text, &mut out);
        self.write(pieces, encoder, context);
    }

    fn write<B: Blocks>(&mut self, pieces: Vec<(bool, String)>, encoder: &mut Encoder<B>, context: &Context) {
        for (is_thought, piece) in pieces.iter().filter(|(_, piece)| !piece.is_empty()) {
            if *is_thought {
                self.think(piece, encoder);
            } else {
                self.sign(encoder, context);
                encoder.text(piece);
            }
        }
    }

    /// A content that is a list (Mistral): thinking and text; references to sources are none of ours.
    fn chunks<B: Blocks>(&mut self, content: &RawValue, encoder: &mut Encoder<B>, context: &Context) {
        #[derive(Deserialize)]
        struct Chunk<'a> {
            #[serde(borrow, default)]
            text: Option<Cow<'a, str>>,
            #[serde(borrow, default)]
            thinking: Option<&'a RawValue>,
            #[serde(borrow, default)]
            signature: Option<Cow<'a, str>>,
        }
        for chunk in json::elements(content).into_iter().flatten() {
            let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(chunk.get()) else { continue };
            match chunk.thinking.map(|thinking| (json::kind(thinking), thinking)) {
                Some((Kind::String, text)) => self.think(&json::string(text).unwrap_or_default(), encoder),
                Some((Kind::Array, parts)) => {
                    for part in json::elements(parts).into_iter().flatten() {
                        let text = json::Members::of(part).and_then(|part| part.get("text")).and_then(json::string);
                        self.think(&text.unwrap_or_default(), encoder);
                    }
                }
                _ => {}
            }
            if let Some(signature) = chunk.signature.filter(|signature| !signature.is_empty()) {
                self.signature = Some(signature.into_owned());
            }
            if let Some(text) = &chunk.text {
                self.text(text, encoder, context);
            }
        }
    }

    /// A call begins: what led to it is kept with the first one, in case that the client does not keep it.
    pub fn called<B: Blocks>(&mut self, key: Key, encoder: &mut Encoder<B>) {
        if let Some(id) = encoder.call_id(key).map(ToOwned::to_owned) {
            encoder.signed.extend(self.carried.take().map(|carried| (id, carried)));
        }
    }

    /// Something else comes, or nothing: what was held back is said, and reasoning is over.
    pub fn pause<B: Blocks>(&mut self, encoder: &mut Encoder<B>, context: &Context) {
        let mut pieces: Vec<(bool, String)> = Vec::new();
        let mut out = |piece: Piece<'_>| match piece {
            Piece::Text(text) => pieces.push((false, text.to_owned())),
            Piece::Thinking(text) => pieces.push((true, text.to_owned())),
        };
        self.beginning.finish(&mut out);
        self.write(pieces, encoder, context);
        self.sign(encoder, context);
    }

    fn sign<B: Blocks>(&mut self, encoder: &mut Encoder<B>, context: &Context) {
        let carrier = |kind: &str, data: &str| Carrier::new(PROTOCOL, &context.scope, &context.model, kind, data).ok();
        let (details, signature) = (std::mem::take(&mut self.details), self.signature.take());
        let thought = std::mem::take(&mut self.thought);
        let heard = self.heard.as_mut().map(std::mem::take).filter(|_| thought);
        let heard = heard.filter(|heard| heard.len() <= MOST_HEARD);
        let kept = heard.and_then(|heard| carrier("plain", &format!(r#"{{"text":{}}}"#, quoted(&heard))));
        if let Some(kept) = &kept {
            self.carried = Some(kept.to_signature());
        }
        let made = if !details.is_empty() {
            let items: Vec<String> = details.iter().map(Detail::to_json).collect();
            carrier("reasoning_details", &format!("[{}]", items.join(",")))
        } else if let Some(signature) = signature {
            carrier("think_chunk", &format!(r#"{{"signature":{}}}"#, quoted(&signature)))
        } else if thought && context.show_thinking {
            carrier("plain", "{}")
        } else {
            kept
        };
        if let Some(carrier) = made {
            encoder.signature(carrier.to_signature());
        }
    }
}

/// What is carried of a thought at most: more would make clients send it back with every turn.
const MOST_HEARD: usize = 256 << 10;

/// Gives back to turns what was thought in them, where its text was not shown or the client has not kept it.
pub(super) fn recall(conversation: &mut Conversation, target: &Target<'_>) {
    let opened = |signature: &str| {
        let carrier = Carrier::read(signature).filter(|carrier| carrier.kind == "plain");
        let carrier = carrier.filter(|carrier| carrier.fits(PROTOCOL, target))?;
        let text = serde_json::from_str::<Heard>(carrier.data.get()).ok()?.text?;
        // One with more is none that was written here.
        (!text.is_empty() && text.len() <= MOST_HEARD).then_some(text)
    };
    for said in conversation.assistant_turns() {
        let (mut is_thought, mut kept) = (false, None);
        for said in said.iter_mut() {
            match said {
                Turned::Thinking { text, signature } => {
                    if let Some(heard) = signature.as_deref().filter(|_| text.is_empty()).and_then(opened) {
                        *text = heard;
                    }
                    is_thought |= !text.is_empty();
                }
                Turned::Call { id, .. } => {
                    let known = target.kept.iter().find(|(known, _)| known == id);
                    kept = kept.or_else(|| known.and_then(|(_, carrier)| opened(carrier)));
                }
                Turned::Text(_) | Turned::Redacted(_) => {}
            }
        }
        if let Some(text) = kept.filter(|_| !is_thought) {
            said.insert(0, Turned::Thinking { text, signature: None });
        }
    }
}

/// What a carrier of this protocol holds of a thought that was not shown.
#[derive(Deserialize)]
struct Heard {
    text: Option<String>,
}

/// A text that is there and says something.
fn spoken(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    raw.and_then(json::string).filter(|text| !text.is_empty())
}

/// An item of `reasoning_details`, member by member: it goes back as it came. In a stream it comes in pieces, which its
/// number and kind hold together.
struct Detail {
    index: Option<String>,
    kind: Option<String>,
    members: Vec<(String, Member)>,
}

/// A member as it came, or a text put together from its pieces, which is quoted when all of it is there.
enum Member {
    Raw(Box<RawValue>),
    Text(String),
}

impl Member {
    fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Raw(raw) => json::string(raw),
            Self::Text(text) => Some(Cow::Borrowed(text)),
        }
    }

    fn grow(&mut self, piece: &Self) {
        let Some(piece) = piece.text() else { return };
        match self {
            Self::Text(text) => text.push_str(&piece),
            Self::Raw(raw) => {
                let mut text = json::string(raw).map(Cow::into_owned).unwrap_or_default();
                text.push_str(&piece);
                *self = Self::Text(text);
            }
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Raw(raw) if json::kind(raw) == Kind::Null)
    }

    fn to_json(&self) -> Cow<'_, str> {
        match self {
            Self::Raw(raw) => Cow::Borrowed(raw.get()),
            Self::Text(text) => Cow::Owned(quoted(text)),
        }
    }
}

/// Members that come in pieces.
const GROWING: [&str; 2] = ["text", "summary"];

impl Detail {
    fn read(raw: &RawValue) -> Option<Self> {
        let members = json::Members::of(raw)?;
        let index =
            members.get("index").filter(|index| json::kind(index) == Kind::Number).map(|raw| raw.get().to_owned());
        let kind = members.get("type").and_then(json::string).map(Cow::into_owned);
        let members = members.0.iter();
        let members =
            members.map(|(name, value)| (name.clone().into_owned(), Member::Raw((*value).to_owned()))).collect();
        Some(Self { index, kind, members })
    }

    /// What a person may read of it.
    fn text(&self) -> Option<Cow<'_, str>> {
        self.members.iter().find(|(name, _)| GROWING.contains(&name.as_str())).and_then(|(_, value)| value.text())
    }

    /// Adds a piece to the item it belongs to, or gives back what begins a new one.
    fn join(self, items: &mut [Self]) -> Option<Self> {
        let place =
            items.iter().position(|item| self.index.is_some() && item.index == self.index && item.kind == self.kind);
        let Some(item) = place.and_then(|place| items.get_mut(place)) else { return Some(self) };
        for (name, value) in self.members {
            match item.members.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) if GROWING.contains(&name.as_str()) => known.grow(&value),
                Some((_, known)) if !value.is_null() => *known = value,
                Some(_) => {}
                None => item.members.push((name, value)),
            }
        }
        None
    }

    fn to_json(&self) -> String {
        let members: Vec<String> =
            self.members.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.to_json())).collect();
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_core::Timestamp;
    use tidegate_wire::messages::Request;

    use super::{MOST_HEARD, PROTOCOL};
    use crate::chat::{message, request};
    use crate::dialect;
    use crate::translate::carrier::Carrier;
    use crate::translate::{Answered, Card, Target, Translator};

    const NOW: Timestamp = Timestamp(1_790_000_000_000);
    const THOUGHT: &str = "They want \"the tide\".";

    fn sent(body: &Value, kept: &[(String, String)]) -> (Value, crate::translate::Outgoing) {
        let card = Card { context_length: 200_000, max_output_tokens: 64_000, ..dialect::card("deepseek") };
        let target = Target {
            card: &card,
            model: "deepseek-v4-pro",
            scope: "ep-7f2c",
            cache_key: None,
            user: None,
            stream: false,
            is_capped: false,
            tells_searches: false,
            tier: None,
            betas: &[],
            kept,
            unsigned: false,
        };
        let made = request(&Request::parse(body.to_string().as_bytes()).unwrap(), &target).unwrap();
        (serde_json::from_slice(&made.body).unwrap(), made)
    }

    fn asked(thinking: &Value, history: &[Value]) -> Value {
        let mut messages = vec![json!({"role": "user", "content": "x"})];
        messages.extend_from_slice(history);
        let mut body = json!({"max_tokens": 64, "messages": messages, "tools": [{"name": "f", "input_schema": {"type": "object"}}]});
        if !thinking.is_null() {
            body["thinking"] = thinking.clone();
        }
        body
    }

    fn called() -> Value {
        let calls = json!([{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "reasoning_content": THOUGHT, "tool_calls": calls}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
    }

    fn history(content: &Value) -> [Value; 2] {
        let result = json!([{"type": "tool_result", "tool_use_id": "call_1", "content": "4 m"}]);
        [json!({"role": "assistant", "content": content}), json!({"role": "user", "content": result})]
    }

    #[test]
    fn p63_what_nobody_was_shown_goes_back_in_a_loop() {
        for thinking in [json!({"type": "adaptive", "display": "omitted"}), json!(null)] {
            let (first, made) = sent(&asked(&thinking, &[]), &[]);
            let Answered { body, .. } = message(called().to_string().as_bytes(), &made.context, NOW).unwrap();
            let answer: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(answer["content"][0]["thinking"], "", "{answer}");
            assert!(!String::from_utf8_lossy(&body).contains("the tide"));
            let (second, made) = sent(&asked(&thinking, &history(&answer["content"])), &[]);
            assert_eq!(second["messages"][1]["reasoning_content"], THOUGHT);
            assert_eq!((second.get("thinking"), made.warnings), (first.get("thinking"), Vec::<String>::new()));
        }
    }

    #[test]
    fn p63_what_a_client_has_not_kept_is_known_here() {
        for thinking in [json!({"type": "adaptive"}), json!({"type": "adaptive", "display": "omitted"}), json!(null)] {
            let (_, made) = sent(&asked(&thinking, &[]), &[]);
            let answered = message(called().to_string().as_bytes(), &made.context, NOW).unwrap();
            let bare = json!([{"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]);
            let (second, made) = sent(&asked(&thinking, &history(&bare)), &answered.signed);
            assert_eq!(second["messages"][1]["reasoning_content"], THOUGHT);
            assert_eq!(made.warnings, Vec::<String>::new());
            // Nothing is known: the model is told not to think, and so is the caller.
            let (second, made) = sent(&asked(&thinking, &history(&bare)), &[]);
            assert_eq!(second["thinking"], json!({"type": "disabled"}));
            assert_eq!(made.warnings, ["disabled:thinking"]);
        }
    }

    #[test]
    fn p63_a_carrier_with_more_than_is_written_is_not_opened() {
        for (length, is_opened) in [(MOST_HEARD, true), (MOST_HEARD + 1, false)] {
            let text = "t".repeat(length);
            let data = json!({"text": text}).to_string();
            let carrier = Carrier::new(PROTOCOL, "ep-7f2c", "deepseek-v4-pro", "plain", &data).unwrap().to_signature();
            let said = json!([{"type": "thinking", "thinking": "", "signature": carrier},
                {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]);
            let (body, made) = sent(&asked(&json!({"type": "adaptive"}), &history(&said)), &[]);
            assert_eq!(body["messages"][1]["reasoning_content"] == text.as_str(), is_opened, "{length}");
            assert_eq!(made.warnings.is_empty(), is_opened, "{:?}", made.warnings);
        }
    }

    #[test]
    fn p63_a_stream_carries_what_it_does_not_show() {
        let (_, made) = sent(&asked(&json!({"type": "adaptive", "display": "omitted"}), &[]), &[]);
        let mut translator =
            Translator::new(Box::new(crate::chat::Decoder::new(made.context.clone(), NOW)), &made.context, 1 << 20);
        let mut out = String::new();
        for delta in [
            json!({"reasoning_content": &THOUGHT[..9]}),
            json!({"reasoning_content": &THOUGHT[9..]}),
            json!({"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}]}),
        ] {
            let chunk = format!("data: {}\n\n", json!({"choices": [{"delta": delta}]}));
            out.push_str(&String::from_utf8_lossy(&translator.feed(chunk.into())));
        }
        out.push_str(&String::from_utf8_lossy(
            &translator.feed(
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".into(),
            ),
        ));
        assert!(!out.contains("thinking_delta") && out.contains("signature_delta"), "{out}");
        let (id, carrier) = &translator.signed()[0];
        assert_eq!(id, "call_1");
        assert!(out.contains(carrier.as_str()), "{out}");
    }
}
