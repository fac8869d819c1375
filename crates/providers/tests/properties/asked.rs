//! Requests made up of everything that clients send, in any order. Every piece of content has a number of its own, so
//! that it can be found again.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tidegate_providers::Protocol;
use tidegate_providers::dialect::card_for;
use tidegate_providers::translate::carrier::Carrier;
use tidegate_providers::translate::intent::NO_PREFILL;
use tidegate_providers::translate::{Card, Target};
use tidegate_providers::{adapter, translate::Outgoing, translate::Unsupported};
use tidegate_wire::messages::Request;

use crate::PROTOCOLS;
use crate::sent::{Sent, sent};

const LONG: &str = "mcp__harbour_operations_and_planning__list_candidate_berths_for_vessel_v2";
const NAMES: [&str; 4] = ["tide_at", LONG, "gone.away", "bash"];
/// Few, so that they repeat; some that look like what a repeated one is renamed to; some that nobody takes.
const IDS: [&str; 6] = ["toolu_1", "a", "a_2", "call é 1", "abcDEF123", "b"];
const AROUND: [&str; 6] = ["", "潮 ", "😀", "a\n\"b\" \\ ", "<document> ", "{\"x\": 1} "];

#[derive(Clone, Debug)]
enum Said {
    Text(&'static str),
    Blank,
    Call(usize, usize, Input),
    /// Whose signature it has.
    Thinking(Signed),
    Redacted,
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Object,
    Empty,
    Text,
    List,
}

#[derive(Clone, Copy, Debug)]
enum Signed {
    None,
    Empty,
    Garbage,
    Anthropics,
    Own,
    OfAnother,
}

#[derive(Clone, Debug)]
enum Shown {
    Text(&'static str),
    Blank,
    Image,
    ImageByUrl,
    Pdf,
    /// Whether it is to be cited.
    DocumentText(bool),
    DocumentContent,
    Search,
}

#[derive(Clone, Debug)]
enum Heard {
    Shown(Shown),
    Result { id: usize, parts: Vec<Shown>, is_error: bool },
}

#[derive(Clone, Debug)]
enum Message {
    User(Vec<Heard>),
    Assistant(Vec<Said>),
    /// Whether it goes with the next words of the user.
    System(bool),
}

#[derive(Clone, Debug)]
pub struct Asked {
    messages: Vec<Message>,
    system: Vec<bool>,
    tools: Vec<usize>,
    marks: u64,
    options: Vec<(&'static str, Value)>,
}

fn around() -> impl Strategy<Value = &'static str> {
    select(&AROUND[..])
}

fn shown() -> impl Strategy<Value = Shown> {
    prop_oneof![
        8 => around().prop_map(Shown::Text),
        2 => Just(Shown::Blank),
        4 => Just(Shown::Image),
        1 => Just(Shown::ImageByUrl),
        1 => Just(Shown::Pdf),
        2 => any::<bool>().prop_map(Shown::DocumentText),
        1 => Just(Shown::DocumentContent),
        1 => Just(Shown::Search),
    ]
}

fn heard() -> impl Strategy<Value = Heard> {
    let result = (0..IDS.len(), prop::collection::vec(shown(), 0..3), any::<bool>());
    prop_oneof![
        1 => shown().prop_map(Heard::Shown),
        1 => result.prop_map(|(id, parts, is_error)| Heard::Result { id, parts, is_error }),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    use Signed::{Anthropics, Empty, Garbage, None, OfAnother, Own};
    let input = select(&[Input::Object, Input::Object, Input::Empty, Input::Text, Input::List][..]);
    prop_oneof![
        3 => around().prop_map(Said::Text),
        1 => Just(Said::Blank),
        4 => (0..IDS.len(), 0..NAMES.len(), input).prop_map(|(id, name, input)| Said::Call(id, name, input)),
        2 => select(&[None, Empty, Garbage, Anthropics, Own, OfAnother][..]).prop_map(Said::Thinking),
        1 => Just(Said::Redacted),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        5 => prop::collection::vec(heard(), 0..5).prop_map(Message::User),
        5 => prop::collection::vec(said(), 0..5).prop_map(Message::Assistant),
        1 => any::<bool>().prop_map(Message::System),
    ]
}

fn options() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let choices = [
        json!({"type": "auto"}),
        json!({"type": "auto", "disable_parallel_tool_use": true}),
        json!({"type": "any"}),
        json!({"type": "any", "disable_parallel_tool_use": true}),
        json!({"type": "tool", "name": LONG}),
        json!({"type": "none"}),
    ];
    let thinking = [
        json!({"type": "adaptive"}),
        json!({"type": "adaptive", "display": "omitted"}),
        json!({"type": "enabled", "budget_tokens": 5000}),
        json!({"type": "disabled"}),
        json!({"type": "between_tools"}),
    ];
    let open = json!({"type": "object", "properties": {"n": {"type": ["integer", "null"]}}});
    let strict = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let outputs = [
        json!({"effort": "low"}),
        json!({"effort": "xhigh"}),
        json!({"effort": "max", "format": {"type": "json_schema", "schema": open}}),
        json!({"format": {"type": "json_schema", "schema": strict}}),
    ];
    let some = |name: &'static str, values: Vec<Value>| {
        prop::option::of(select(values)).prop_map(move |value| value.map(|value| (name, value)))
    };
    (
        some("tool_choice", choices.to_vec()),
        some("thinking", thinking.to_vec()),
        some("output_config", outputs.to_vec()),
        some("stop_sequences", vec![json!(["<<END>>"]), json!(["1", "2", "3", "4", "5", "6"])]),
        some("temperature", vec![json!(0.5)]),
        some("cache_control", vec![json!({"type": "ephemeral", "ttl": "1h"})]),
    )
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
}

pub fn asked() -> impl Strategy<Value = Asked> {
    (
        prop::collection::vec(message(), 0..8),
        prop::collection::vec(heard(), 1..3),
        prop::collection::vec(any::<bool>(), 0..3),
        prop::sample::subsequence(vec![0, 1, 3], 0..=3),
        any::<u64>(),
        options(),
    )
        .prop_map(|(mut messages, last, system, tools, marks, options)| {
            // Most conversations end with the user; few models take others.
            messages.push(Message::User(last));
            Asked { messages, system, tools, marks, options }
        })
}

/// What was asked for, written down, and what has to be found again.
#[derive(Debug, Default)]
struct Written {
    body: Value,
    /// Numbers of texts that a model has to see once.
    texts: Vec<String>,
    /// And of those that it must not see as text.
    hidden: Vec<String>,
    images: Vec<String>,
    /// Name and input, in order.
    calls: Vec<(String, Value)>,
    /// Texts of results by the number of the call, where it is beyond doubt which one they belong to.
    results: HashMap<usize, Vec<String>>,
    last: usize,
    marks: u64,
}

impl Written {
    fn number(&mut self) -> String {
        self.last += 1;
        format!("«{:04}»", self.last)
    }

    fn text(&mut self, around: &str) -> String {
        let number = self.number();
        self.texts.push(number.clone());
        format!("{around}{number}{around}")
    }

    /// A block, with a cache marker or without.
    fn marked(&mut self, mut block: Value) -> Value {
        self.marks = self.marks.rotate_left(3);
        match self.marks % 8 {
            0 => block["cache_control"] = json!({"type": "ephemeral"}),
            1 => block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"}),
            _ => {}
        }
        block
    }

    fn picture(&mut self) -> String {
        self.last += 1;
        // The first bytes of a PNG.
        let data = format!("iVBORw0KGgoA{:04}", self.last);
        self.images.push(data.clone());
        data
    }

    fn shown(&mut self, shown: &Shown) -> Value {
        let block = match shown {
            Shown::Text(around) => json!({"type": "text", "text": self.text(around)}),
            Shown::Blank => json!({"type": "text", "text": " \n"}),
            // Clients often say something else of it.
            Shown::Image => {
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": self.picture()}})
            }
            Shown::ImageByUrl => json!({"type": "image", "source": {"type": "url", "url": "https://x.example/i.png"}}),
            Shown::Pdf => {
                json!({"type": "document", "title": "T.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}})
            }
            Shown::DocumentText(cited) => {
                let source = json!({"type": "text", "media_type": "text/plain", "data": self.text("")});
                json!({"type": "document", "title": "T", "source": source, "citations": {"enabled": cited}})
            }
            Shown::DocumentContent => {
                let content = json!([{"type": "text", "text": self.text("")}]);
                json!({"type": "document", "source": {"type": "content", "content": content}})
            }
            Shown::Search => {
                let content = json!([{"type": "text", "text": self.text("")}]);
                json!({"type": "search_result", "source": "s", "title": "t", "content": content})
            }
        };
        self.marked(block)
    }

    fn said(&mut self, said: &Said) -> Value {
        let block = match said {
            Said::Text(around) => json!({"type": "text", "text": self.text(around)}),
            Said::Blank => json!({"type": "text", "text": ""}),
            Said::Call(id, name, input) => {
                let number = self.number();
                let input = match input {
                    Input::Object => json!({"v": number, "n": 1.5, "deep": {"a": [null, true, "é"]}}),
                    Input::Empty => json!({}),
                    Input::Text => json!(format!("{{\"v\": \"{number}")),
                    Input::List => json!([number]),
                };
                let sent = if input.is_object() { input.clone() } else { json!({"_raw": input}) };
                self.calls.push((NAMES[*name].to_owned(), sent));
                json!({"type": "tool_use", "id": IDS[*id], "name": NAMES[*name], "input": input})
            }
            Said::Thinking(signed) => {
                let number = self.number();
                self.hidden.push(number.clone());
                let carrier = |scope| Carrier::plain("chat", scope, "upstream-model").to_signature();
                let mut block = json!({"type": "thinking", "thinking": number});
                match signed {
                    Signed::None => {}
                    Signed::Empty => block["signature"] = "".into(),
                    Signed::Garbage => block["signature"] = "tgs1.@@@".into(),
                    Signed::Anthropics => block["signature"] = "EqQBCgIYAhIM".into(),
                    Signed::Own => block["signature"] = carrier("ep-7f2c").into(),
                    Signed::OfAnother => block["signature"] = carrier("ep-other").into(),
                }
                return block;
            }
            Said::Redacted => return json!({"type": "redacted_thinking", "data": "EmwKAhgB"}),
        };
        self.marked(block)
    }
}

fn written(asked: &Asked) -> Written {
    let mut made = Written { marks: asked.marks, ..Written::default() };
    let mut messages = Vec::new();
    // Calls of the turn before by the id they were given, as long as that is used once in all.
    let mut open: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut uses = [0; IDS.len()];
    let all = asked.messages.iter().flat_map(|message| match message {
        Message::Assistant(said) => said.as_slice(),
        _ => &[],
    });
    for said in all {
        if let Said::Call(id, ..) = said {
            uses[*id] += 1;
        }
    }
    for (place, message) in asked.messages.iter().enumerate() {
        match message {
            Message::System(is_cleared) => {
                let later = asked.messages[place + 1..].iter().any(|message| matches!(message, Message::User(_)));
                let text = if *is_cleared && later { "cleared".to_owned() } else { made.text("") };
                let mut note = json!({"role": "system", "content": text});
                if *is_cleared {
                    note["clear_at"] = "next_user_message".into();
                }
                messages.push(note);
            }
            Message::Assistant(said) => {
                if said.iter().any(|said| !matches!(said, Said::Blank)) {
                    open.clear();
                }
                let mut blocks = Vec::new();
                for said in said {
                    if let Said::Call(id, ..) = said {
                        open.entry(*id).or_default().push(made.calls.len());
                    }
                    blocks.push(made.said(said));
                }
                messages.push(json!({"role": "assistant", "content": blocks}));
            }
            Message::User(heard) => {
                let mut blocks = Vec::new();
                for heard in heard {
                    match heard {
                        Heard::Shown(shown) => blocks.push(made.shown(shown)),
                        Heard::Result { id, parts, is_error } => {
                            let (mut content, mut texts) = (Vec::new(), Vec::new());
                            for part in parts {
                                let before = made.texts.len();
                                content.push(made.shown(part));
                                // A document may be put beside its result, as an image may.
                                if !matches!(part, Shown::DocumentText(_)) {
                                    texts.extend_from_slice(&made.texts[before..]);
                                }
                            }
                            if let Some([call]) = open.remove(id).as_deref()
                                && uses[*id] == 1
                            {
                                made.results.insert(*call, texts);
                            }
                            let block = json!({"type": "tool_result", "tool_use_id": IDS[*id], "content": content, "is_error": is_error});
                            blocks.push(made.marked(block));
                        }
                    }
                }
                messages.push(json!({"role": "user", "content": blocks}));
            }
        }
    }
    let mut body = json!({"model": "demo/tide-large", "max_tokens": 2048, "messages": messages});
    let system: Vec<Value> = (asked.system.iter())
        .map(|blank| {
            let text = if *blank { " ".to_owned() } else { made.text("") };
            made.marked(json!({"type": "text", "text": text}))
        })
        .collect();
    if !system.is_empty() {
        body["system"] = system.into();
    }
    let tools: Vec<Value> = (asked.tools.iter())
        .map(|name| match NAMES[*name] {
            "bash" => json!({"type": "bash_20250124", "name": "bash"}),
            name => made.marked(json!({"name": name, "description": "d", "input_schema": {"type": "object"}})),
        })
        .collect();
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    for (name, value) in &asked.options {
        body[name] = value.clone();
    }
    made.body = body;
    made
}

/// A few cards of each protocol, different in what they do to a conversation.
fn cards(protocol: Protocol) -> Vec<Card> {
    let with = |slug: &str, said: Value| {
        let card = card_for(slug, protocol).with(said.as_object().unwrap()).unwrap();
        Card { context_length: 200_000, max_output_tokens: 64_000, ..card }
    };
    match protocol {
        Protocol::Chat => vec![
            with("in-house", json!({"prefill": "native"})),
            with(
                "openai",
                json!({"cache": "openai_bp", "efforts": ["none", "low", "high"], "images_in_tool_result": true}),
            ),
            with("mistral", json!({"pdf": true, "replay_reasoning": "always"})),
            with("deepseek", json!({"mid_system": true, "prefill": "prefix_flag"})),
            with("moonshotai", json!({"tool_id_rule": "kimi", "structured": "none"})),
            with("alibaba", json!({"parallel_tools_param": true, "forced_tool_choice": false})),
            with("openrouter", json!({"pdf": true})),
        ],
        Protocol::Responses => vec![
            with("in-house", json!({"images_in_tool_result": false})),
            with("openai", json!({"cache": "openai_bp", "phase": true, "pdf": true})),
        ],
        Protocol::Gemini => vec![
            with("google-ai-studio", json!({})),
            with(
                "google-vertex",
                json!({"call_ids": false, "images_in_tool_result": false, "schema_profile": "gemini_subset", "json_with_tools": false}),
            ),
        ],
        Protocol::Converse => vec![
            with("amazon-bedrock", json!({"cache": "cachepoint_no_tools"})),
            with(
                "amazon-bedrock",
                json!({"cache": "cachepoint", "claude": true, "mid_system": true, "reasoning": "verbatim"}),
            ),
            with(
                "amazon-bedrock",
                json!({"tool_status": false, "images_in_tool_result": false, "replay_reasoning": "always"}),
            ),
        ],
        Protocol::Cohere => vec![with("cohere", json!({})), with("cohere", json!({"replay_reasoning": "always"}))],
        Protocol::Messages => Vec::new(),
    }
}

pub fn translated(protocol: Protocol, request: &Request, card: &Card) -> Result<Outgoing, Unsupported> {
    let target = Target {
        card,
        model: "upstream-model",
        scope: "ep-7f2c",
        cache_key: Some("k"),
        user: Some("u"),
        stream: true,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    };
    adapter::request(protocol, request, &target)
}

fn count(texts: &[String], number: &str) -> usize {
    texts.iter().map(|text| text.matches(number).count()).sum()
}

/// What came out against what went in.
fn compare(asked: &Written, sent: &Sent, outgoing: &Outgoing) -> Result<(), TestCaseError> {
    let results: Vec<String> = sent.results.iter().map(|(_, text)| text.clone()).collect();
    let all: Vec<String> = sent.texts.iter().chain(&results).cloned().collect();
    for number in &asked.texts {
        prop_assert_eq!(count(&all, number), 1, "text {}", number);
    }
    for number in &asked.hidden {
        prop_assert_eq!(count(&all, number), 0, "thinking {} is not to be read as text", number);
    }
    let mut images = asked.images.clone();
    let mut found: Vec<String> = sent.images.iter().map(|(_, data)| data.clone()).collect();
    images.sort();
    found.sort();
    prop_assert_eq!(found, images, "images");
    for (kind, data) in &sent.images {
        prop_assert!(kind.ends_with("png"), "{data} is a PNG and not {kind}");
    }
    for (place, name) in
        asked.body["tools"].as_array().into_iter().flatten().map(|tool| tool["name"].as_str().unwrap()).enumerate()
    {
        if let Some(offered) = &sent.tools {
            prop_assert_eq!(outgoing.context.names.original(&offered[place]), name, "tool {}", place);
        }
    }
    if sent.is_told {
        let told = asked.calls.iter().filter_map(|(_, input)| input["v"].as_str());
        for number in told {
            prop_assert_eq!(count(&all, number), 1, "input {}", number);
        }
        return Ok(());
    }
    let calls: Vec<(String, Value)> = (sent.calls.iter())
        .map(|(_, name, input)| (outgoing.context.names.original(name).to_owned(), input.clone()))
        .collect();
    prop_assert_eq!(&calls, &asked.calls, "calls");
    // Every call has its result, and no id stands for two.
    let ids: Vec<&String> = sent.calls.iter().map(|(id, _, _)| id).collect();
    let mut answered: Vec<&String> = sent.results.iter().map(|(id, _)| id).collect();
    let mut once = ids.clone();
    once.sort();
    answered.sort();
    prop_assert_eq!(&answered, &once, "every call has a result");
    once.dedup();
    prop_assert_eq!(once.len(), ids.len(), "an id stands for one call: {:?}", ids);
    for (call, numbers) in &asked.results {
        let (_, text) = sent.results.iter().find(|(id, _)| id == ids[*call]).unwrap();
        for number in numbers {
            prop_assert!(text.contains(number), "result {number} of call {call}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_said_twice_on_its_way_up(asked in asked()) {
        let written = written(&asked);
        let request = Request::parse(written.body.to_string().as_bytes()).unwrap();
        for protocol in PROTOCOLS {
            for card in cards(protocol) {
                match translated(protocol, &request, &card) {
                    Ok(outgoing) => {
                        let body: Value = serde_json::from_slice(&outgoing.body).unwrap();
                        let found = sent(protocol, &body);
                        if let Err(error) = compare(&written, &found, &outgoing) {
                            return Err(TestCaseError::fail(format!("{protocol:?}: {error}\n{}\n{body}", written.body)));
                        }
                    }
                    Err(refused) => {
                        // A prefill is refused in words that programs know, without a place.
                        let known = ["messages", "thinking", "tools"];
                        let is_placed = known.iter().any(|start| refused.path.starts_with(start));
                        prop_assert!(is_placed || refused.reason == NO_PREFILL, "{refused}");
                        prop_assert!(!refused.reason.is_empty());
                    }
                }
            }
        }
    }

    #[test]
    fn no_request_however_odd_panics(place in any::<prop::sample::Index>(), with in 0..8_usize, asked in asked()) {
        let mut body = written(&asked).body;
        let others = [json!(null), json!(-1.5), json!(""), json!([]), json!({}), json!([null, 1, "é"]), json!(1e300), json!({"type": "x"})];
        let count = places(&body);
        replace(&mut body, &mut place.index(count), &others[with]);
        let Ok(request) = Request::parse(body.to_string().as_bytes()) else { return Ok(()) };
        for protocol in PROTOCOLS {
            for card in cards(protocol) {
                if let Ok(outgoing) = translated(protocol, &request, &card) {
                    serde_json::from_slice::<Value>(&outgoing.body).unwrap();
                }
            }
        }
    }
}

/// How many values there are inside of a value, itself included.
fn places(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(places).sum(),
        Value::Object(members) => members.values().map(places).sum(),
        _ => 0,
    }
}

/// Replaces the value with this number, counted as above.
fn replace(value: &mut Value, place: &mut usize, with: &Value) {
    if *place == 0 {
        *value = with.clone();
        *place = usize::MAX;
        return;
    }
    let inside: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    };
    for inner in inside {
        *place = place.saturating_sub(1);
        replace(inner, place, with);
        if *place == usize::MAX {
            return;
        }
    }
}
