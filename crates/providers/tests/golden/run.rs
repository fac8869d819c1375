//! What is done with a case.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Map, Value};
use tidegate_core::Timestamp;
use tidegate_providers::translate::carrier::Carrier;
use tidegate_providers::translate::tools::Names;
use tidegate_providers::translate::{Card, Context, Target};
use tidegate_providers::{Protocol, adapter, dialect, eventstream};
use tidegate_wire::messages::Request;
use tidegate_wire::sse::Splitter;

pub const NOW: Timestamp = Timestamp(1_790_000_000_000);
pub const LARGEST_EVENT: usize = 1 << 20;

/// The protocol of a folder's name.
pub fn protocol(folder: &str) -> Protocol {
    match folder {
        "chat" => Protocol::Chat,
        "responses" => Protocol::Responses,
        "gemini" => Protocol::Gemini,
        "converse" => Protocol::Converse,
        "cohere" => Protocol::Cohere,
        other => panic!("{other} is no protocol"),
    }
}

/// All cases: the folders of each protocol's folder, in order.
pub fn all() -> Vec<(Protocol, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cases");
    let folders = |path: &Path| {
        let mut found: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
        found.sort();
        found
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let protocols = folders(&root).into_iter();
    protocols
        .flat_map(|path| folders(&path).into_iter().map(|case| (protocol(&name(&path)), case)).collect::<Vec<_>>())
        .collect()
}

pub struct Case {
    path: PathBuf,
    protocol: Protocol,
    said: Map<String, Value>,
}

impl Case {
    pub fn read(protocol: Protocol, path: &Path) -> Self {
        let said = fs::read_to_string(path.join("case.json")).map_or_else(
            |_| Map::new(),
            |text| serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        );
        Self { path: path.to_owned(), protocol, said }
    }

    pub fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    fn json(&self, file: &str) -> Option<Value> {
        let text = self.text(file)?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}/{file}: {error}", self.path.display())))
    }

    fn word(&self, name: &str) -> Option<&str> {
        self.said.get(name).and_then(Value::as_str)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.said.get(name).and_then(Value::as_bool)
    }

    pub fn card(&self) -> Card {
        let base = match (self.protocol, self.word("provider")) {
            (Protocol::Gemini | Protocol::Converse, slug) => dialect::card_for(slug.unwrap_or_default(), self.protocol),
            (_, slug) => slug.map_or_else(Card::default, |slug| dialect::card_for(slug, self.protocol)),
        };
        let large = Card { context_length: 200_000, max_output_tokens: 64_000, ..base };
        let empty = Map::new();
        let said = self.said.get("card").and_then(Value::as_object).unwrap_or(&empty);
        large.with(said).unwrap_or_else(|error| panic!("{}: card: {error}", self.path.display()))
    }

    fn model(&self) -> &str {
        self.word("model").unwrap_or("upstream-model")
    }

    pub fn context(&self) -> Context {
        let list = |name: &str| {
            let values = self.said.get(name).and_then(Value::as_array).into_iter().flatten();
            values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let names = self.said.get("names").and_then(Value::as_object).into_iter().flatten();
        let names = names.map(|(ours, theirs)| (ours.clone(), theirs.as_str().unwrap().to_owned())).collect();
        Context {
            names: Names::new(names, list("taken").into_iter().collect()),
            serial: self.flag("serial").unwrap_or(false),
            show_thinking: self.flag("show_thinking").unwrap_or(true),
            scope: "ep-7f2c".to_owned(),
            model: self.model().to_owned(),
            guarded: list("guarded"),
            max_tokens: 2_048,
            context_length: 200_000,
            input_estimate: self.said.get("input_estimate").and_then(Value::as_u64).unwrap_or(10),
            think_tags: self.flag("think_tags").unwrap_or(false),
            prefix: self.word("prefix").map(str::to_owned),
            only_stop: self.word("only_stop").map(str::to_owned),
            own_signatures: self.flag("own_signatures").unwrap_or(false),
            tells_searches: self.flag("tells_searches").unwrap_or(false),
            offered: list("offered"),
            ..Context::default()
        }
    }

    fn warnings(&self) -> Vec<String> {
        let values = self.said.get("warnings").and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether there was anything to try.
    pub fn check(&self) -> usize {
        [self.check_request(), self.check_answer(), self.check_stream()].into_iter().filter(|tried| *tried).count()
    }

    fn check_request(&self) -> bool {
        let Some(text) = self.text("request.json") else { return false };
        let place = self.path.display();
        let request = Request::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{place}: {error}"));
        let card = self.card();
        let betas: Vec<&str> =
            self.said.get("betas").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let target = Target {
            card: &card,
            model: self.model(),
            scope: "ep-7f2c",
            cache_key: Some("43f74794ff7f9c9a157ceba89e41f02a"),
            user: Some("b3ce8c8170450400f9b548abb4bc626557357a61286e93aaa5fa04e33613f06b"),
            stream: self.flag("stream").unwrap_or(false),
            is_capped: self.flag("is_capped").unwrap_or(false),
            tells_searches: self.flag("tells_searches").unwrap_or(false),
            tier: None,
            betas: &betas,
            kept: &[],
            unsigned: false,
        };
        match (adapter::request(self.protocol, &request, &target), self.word("refused")) {
            (Ok(made), None) => {
                let sent: Value = serde_json::from_slice(&made.body).unwrap();
                let wanted = self.json("upstream.json").unwrap_or_else(|| panic!("{place}: no upstream.json"));
                same(&sent, &wanted, &format!("{place}/upstream.json"));
                assert_eq!(made.warnings, self.warnings(), "{place}: warnings");
            }
            (Err(error), Some(refused)) => assert_eq!(error.to_string(), refused, "{place}"),
            (Ok(_), Some(refused)) => panic!("{place}: it should be refused: {refused}"),
            (Err(error), None) => panic!("{place}: refused: {error}"),
        }
        true
    }

    fn check_answer(&self) -> bool {
        let Some(text) = self.text("answer.json") else { return false };
        let place = self.path.display();
        match (adapter::message(self.protocol, text.as_bytes(), &self.context(), NOW), self.word("fault")) {
            (Ok(answered), None) => {
                let mut message: Value = serde_json::from_slice(&answered.body).unwrap();
                readable(&mut message);
                let wanted = self.json("message.json").unwrap_or_else(|| panic!("{place}: no message.json"));
                same(&message, &wanted, &format!("{place}/message.json"));
                if self.text("request.json").is_none() {
                    assert_eq!(answered.warnings, self.warnings(), "{place}: warnings");
                }
            }
            (Err(fault), Some(class)) => assert_eq!(format!("{:?}", fault.class), class, "{place}"),
            (Ok(_), Some(class)) => panic!("{place}: it should be a fault of class {class}"),
            (Err(fault), None) => panic!("{place}: {fault:?}"),
        }
        true
    }

    fn check_stream(&self) -> bool {
        let Some(text) = self.text("stream.txt") else { return false };
        let place = self.path.display();
        let bytes = match self.protocol {
            Protocol::Converse => frames(&text),
            _ => Bytes::from(text),
        };
        let whole = self.translated(std::slice::from_ref(&bytes));
        match self.word("fault") {
            Some(class) => assert_eq!(whole.1.as_deref(), Some(class), "{place}"),
            None => assert_eq!(whole.1, None, "{place}"),
        }
        if let Some(wanted) = self.text("events.txt") {
            let wanted: Vec<Value> = parsed(wanted.as_bytes());
            same(&Value::from(whole.0.clone()), &Value::from(wanted), &format!("{place}/events.txt"));
        } else {
            assert!(self.word("fault").is_some(), "{place}: no events.txt");
        }
        // Wherever it is cut, the same comes out; and byte by byte.
        let step = (bytes.len() / 400).max(1);
        for cut in (1..bytes.len()).step_by(step) {
            let pieces = [bytes.slice(..cut), bytes.slice(cut..)];
            assert_eq!(joined(&self.translated(&pieces)), joined(&whole), "{place}: cut at {cut}");
        }
        let single: Vec<Bytes> = (0..bytes.len()).map(|place| bytes.slice(place..=place)).collect();
        assert_eq!(joined(&self.translated(&single)), joined(&whole), "{place}: byte by byte");
        true
    }

    /// The events of a stream that comes in these pieces, and the class of the fault it ends with.
    pub fn translated(&self, pieces: &[Bytes]) -> (Vec<Value>, Option<String>) {
        let context = self.context();
        let mut translator = adapter::translator(self.protocol, &context, NOW, LARGEST_EVENT).unwrap();
        let mut out = Vec::new();
        let mut fault = None;
        for piece in pieces {
            out.extend_from_slice(&translator.feed(piece.clone()));
            fault = translator.fault();
            if fault.is_some() {
                break;
            }
        }
        if fault.is_none() {
            out.extend_from_slice(&translator.end());
            fault = translator.fault();
        }
        (parsed(&out), fault.map(|fault| format!("{:?}", fault.class)))
    }
}

/// Events as they are compared: name and data, signatures and made-up ids readable.
pub fn parsed(bytes: &[u8]) -> Vec<Value> {
    let mut splitter = Splitter::new(LARGEST_EVENT);
    splitter.feed(Bytes::copy_from_slice(bytes));
    let mut events = Vec::new();
    loop {
        let frame = match splitter.next().unwrap() {
            Some(frame) => frame,
            None => match splitter.finish() {
                Some(frame) if !frame.is_silent() => frame,
                _ => break,
            },
        };
        if frame.is_silent() {
            continue;
        }
        let mut data: Value = serde_json::from_slice(&frame.data()).unwrap();
        assert_eq!(Some(frame.event()), data["type"].as_str().map(str::as_bytes), "the name of an event is its type");
        readable(&mut data);
        events.push(data);
    }
    events
}

/// Deltas of one block and kind put together: how they were cut depends on how the stream was.
pub fn joined(events: &(Vec<Value>, Option<String>)) -> (Vec<Value>, Option<String>) {
    let mut out: Vec<Value> = Vec::new();
    for event in &events.0 {
        let piece = ["text", "thinking", "partial_json"].into_iter().find(|name| event["delta"][name].is_string());
        if let (Some(name), Some(last)) = (piece, out.last_mut())
            && last["delta"][name].is_string()
            && last["index"] == event["index"]
        {
            let text = format!("{}{}", last["delta"][name].as_str().unwrap(), event["delta"][name].as_str().unwrap());
            last["delta"][name] = text.into();
            continue;
        }
        out.push(event.clone());
    }
    (out, events.1.clone())
}

/// What is made up differs every time; what is encoded cannot be read.
fn readable(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(carrier) = Carrier::read(text) {
                assert_eq!(carrier.scope, "ep-7f2c", "a carrier of this endpoint");
                let data = match carrier.data.get().split_once("\"toolu_") {
                    Some((head, rest)) if rest.find('"') == Some(22) => format!("{head}\"minted{}", &rest[22..]),
                    _ => carrier.data.get().to_owned(),
                };
                *text = format!("tgs1 {} {data}", carrier.kind);
            } else if text.starts_with("toolu_") && text.len() == 28 {
                *text = "minted".to_owned();
            } else if text.starts_with("srvtoolu_") && text.len() == 31 {
                *text = "server-minted".to_owned();
            } else if text.starts_with("msg_") {
                *text = "msg".to_owned();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(readable),
        Value::Object(members) => members.values_mut().for_each(readable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn same(found: &Value, wanted: &Value, place: &str) {
    if found != wanted {
        let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap();
        panic!("{place}\n--- wanted\n{}\n--- found\n{}", pretty(wanted), pretty(found));
    }
}

/// Lines `EVENT {json}` as the binary frames they stand for; `!EVENT {json}` is an exception.
pub fn frames(text: &str) -> Bytes {
    let mut bytes = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (name, payload) = line.split_once(' ').unwrap_or((line, "{}"));
        bytes.extend(match name.strip_prefix('!') {
            Some(name) => eventstream::encode_exception(name, payload.as_bytes()),
            None => eventstream::encode(name, payload.as_bytes()),
        });
    }
    bytes.into()
}

/// A start, blocks one after the other, an end; or less, where a fault came between.
pub fn grammar(events: &[Value], about: &str) {
    let (mut open, mut next, mut is_told, mut is_over) = (None, 0, false, false);
    for (place, event) in events.iter().enumerate() {
        assert!(!is_over, "something after the end\n{about}");
        let kind = event["type"].as_str().unwrap();
        assert_eq!(kind == "message_start", place == 0, "one start, at the start\n{about}");
        assert!(!is_told || kind == "message_stop", "nothing between the last two\n{about}");
        match kind {
            "content_block_start" => {
                assert_eq!((open, event["index"].as_u64()), (None, Some(next)), "{about}");
                open = Some(next);
            }
            "content_block_delta" => assert_eq!(event["index"].as_u64(), open, "{about}"),
            "content_block_stop" => {
                assert_eq!(event["index"].as_u64(), open, "{about}");
                (open, next) = (None, next + 1);
            }
            "message_delta" => {
                assert_eq!(open, None, "{about}");
                is_told = true;
            }
            "message_stop" => {
                assert!(is_told, "it says why it ends\n{about}");
                is_over = true;
            }
            other => assert_eq!(other, "message_start", "{about}"),
        }
    }
}
