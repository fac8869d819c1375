//! Streams of servers that speak the Messages format and are not Anthropic's. They break its rules in ways that clients do
//! not survive: blocks that begin at the wrong number, overlap, never end or hold nothing, calls without input, a last
//! line of another format. Events that keep the rules go on as they came, and so does everything that is not known.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind, Members, quoted};

use super::held::Held;
use crate::fault::{Class, Fault};
use crate::translate::arguments::Arguments;
use crate::translate::blocks::is_object;
use crate::translate::carrier::Carrier;
use crate::translate::tools::Names;
use crate::translate::{Decode, Stream};

/// Who signs: nobody can tell such a signature from another's, so it goes out in a carrier that says whose it is.
#[derive(Clone, Debug, Default)]
pub struct Signer {
    /// Which account at which host.
    pub scope: String,
    pub model: String,
}

impl Signer {
    /// The signature that the client gets of a thought. Many servers sign none, and clients read a text in every one.
    fn seal(&self, signature: &str) -> String {
        match signature {
            "" => Carrier::plain("messages", &self.scope, &self.model).to_signature(),
            signature => self.wrap(signature),
        }
    }

    fn wrap(&self, signature: &str) -> String {
        let data = format!(r#"{{"signature":{}}}"#, quoted(signature));
        let carrier = Carrier::new("messages", &self.scope, &self.model, "messages_sig", &data);
        carrier.map(|carrier| carrier.to_signature()).unwrap_or_default()
    }

    /// A block of thinking that only its issuer reads, with what it holds in a carrier.
    fn redacted(&self, block: &Members<'_>) -> Option<Vec<u8>> {
        let data = text(block, "data").filter(|_| text(block, "type").as_deref() == Some("redacted_thinking"))?;
        Some(with(block, "data", &quoted(&self.wrap(&data))))
    }
}

/// Makes a stream keep the rules.
#[derive(Debug, Default)]
pub struct Mender {
    signer: Signer,
    /// The block that is open for the client.
    open: Option<Open>,
    /// A block of text that has said nothing: clients keep an empty one, and are refused for it later.
    waiting: Option<Waiting>,
    /// How many blocks the client knows of.
    blocks: usize,
    has_calls: bool,
    /// The input of some call is no object.
    is_cut: bool,
    /// Events of other blocks that came in the middle of a call's input: they wait for its end.
    held: Held,
    /// Ids of calls, which must differ and have a form.
    names: Names,
    is_begun: bool,
    /// What came as an end and was none: it says nothing of why.
    counts: Option<Vec<u8>>,
    /// How the answer ended. It is told once, with the last counts: clients take a second one for another end.
    ending: Option<Vec<u8>>,
    /// It was said why the answer ended.
    is_told: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Open {
    /// Its number at the upstream; none for one that was opened here.
    given: Option<u64>,
    kind: String,
    /// Of a call: the input that came with its beginning, until a piece of it was told.
    input: Option<String>,
    /// Of a call: the pieces of its input. The first are told only when they say something.
    pieces: Arguments,
    /// Of a thought: what came of its signature.
    signature: String,
}

impl Open {
    /// Whether pieces of a call's input may still come: it is no whole object yet, or one that may not count.
    fn is_half(&self) -> bool {
        let began_whole = self.input.as_deref().is_some_and(|input| !matches!(input, "" | "{}"));
        let is_whole = self.pieces.is_object() && !self.is_untold();
        self.kind == "tool_use" && self.given.is_some() && !began_whole && !is_whole
    }

    /// Whether the pieces so far say nothing, and so were not told: some servers write a call without arguments like this, and some begin every
    /// input with an empty object.
    fn is_untold(&self) -> bool {
        let text = self.pieces.as_str().trim();
        self.input.as_deref() != Some("") && (text == "{}" || "null".starts_with(text))
    }
}

/// A beginning that was held back.
#[derive(Debug)]
struct Waiting {
    given: u64,
    data: Vec<u8>,
}

/// The block that a piece belongs to.
fn kind_of(delta: &str) -> Option<&'static str> {
    match delta {
        "text_delta" | "citations_delta" => Some("text"),
        "thinking_delta" | "signature_delta" => Some("thinking"),
        "input_json_delta" => Some("tool_use"),
        _ => None,
    }
}

fn broken() -> Fault {
    Fault::in_answer(Class::BadResponse)
}

fn text<'a>(members: &Members<'a>, name: &str) -> Option<Cow<'a, str>> {
    members.get(name).and_then(json::string)
}

/// An object with another value for one of its members, or with one more.
fn with(members: &Members<'_>, name: &str, value: &str) -> Vec<u8> {
    let own = members.0.iter().map(|(key, old)| (key.as_ref(), if key == name { value } else { old.get() }));
    let more = members.get(name).is_none().then_some((name, value));
    let mut out = String::from("{");
    for (index, (key, value)) in own.chain(more).enumerate() {
        let comma = if index > 0 { "," } else { "" };
        out.push_str(comma);
        out.push_str(&quoted(key));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out.into_bytes()
}

/// A call with another input and, where one is given, another id.
fn call_with(block: &Members<'_>, input: &str, id: Option<&str>) -> Vec<u8> {
    let made = with(block, "input", input);
    let renamed = id.and_then(|id| Some(with(&read(&made)?, "id", &quoted(id))));
    renamed.unwrap_or(made)
}

fn read(data: &[u8]) -> Option<Members<'_>> {
    serde_json::from_slice::<&RawValue>(data).ok().and_then(Members::of)
}

/// The input of a call: nothing is none, and an object may be written as a text.
fn input_of(given: &RawValue) -> Cow<'_, str> {
    match json::kind(given) {
        Kind::Null => Cow::Borrowed("{}"),
        Kind::String => match json::string(given) {
            Some(text) if matches!(text.trim(), "" | "null") => Cow::Borrowed("{}"),
            Some(text) if is_object(&text) => text,
            _ => Cow::Borrowed(given.get()),
        },
        _ => Cow::Borrowed(given.get()),
    }
}

/// An end with the counts of an event before it that it does not have itself; nothing where it has all of them.
fn with_counts(end: &Members<'_>, counts: &[u8]) -> Option<Vec<u8>> {
    let is_there = |value: &RawValue| json::kind(value) == Kind::Object;
    let counted = read(counts)?.get("usage").filter(|usage| is_there(usage)).and_then(Members::of)?;
    let own = end.get("usage").filter(|usage| is_there(usage)).and_then(Members::of).unwrap_or_default();
    let says = |name: &str| own.get(name).is_some_and(|value| json::kind(value) != Kind::Null);
    let missing: Vec<_> = counted.0.iter().filter(|(name, _)| !says(name)).collect();
    if missing.is_empty() {
        return None;
    }
    let kept = own.0.iter().filter(|(name, _)| counted.get(name).is_none() || says(name));
    let all = kept.chain(missing).map(|(name, value)| format!("{}:{}", quoted(name), value.get()));
    let usage = format!("{{{}}}", all.collect::<Vec<_>>().join(","));
    Some(with(end, "usage", &usage))
}

/// An end with the counts of an event behind it, as far as that has any; nothing where it has none.
fn recounted(end: &[u8], later: &Members<'_>) -> Option<Vec<u8>> {
    let own = later.get("usage").filter(|usage| json::kind(usage) == Kind::Object)?;
    let united = with_counts(later, end);
    let usage = match united.as_deref().and_then(read).and_then(|united| united.get("usage").map(RawValue::get)) {
        Some(usage) => usage.to_owned(),
        None => own.get().to_owned(),
    };
    Some(with(&read(end)?, "usage", &usage))
}

/// Writes an event in one line: a line break in JSON stands between its tokens.
fn put(stream: &mut Stream, kind: &str, data: &[u8]) {
    if data.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        let line: Vec<u8> = data.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect();
        return stream.verbatim(kind, &line);
    }
    stream.verbatim(kind, data);
}

/// Writes a piece of a call's input.
fn put_input(stream: &mut Stream, number: usize, input: &str) {
    let input = quoted(input);
    let delta = format!(
        r#"{{"type":"content_block_delta","index":{number},"delta":{{"type":"input_json_delta","partial_json":{input}}}}}"#
    );
    put(stream, "content_block_delta", delta.as_bytes());
}

/// Whether an event is a piece of text or of a thought.
fn is_speech(members: &Members<'_>) -> bool {
    let delta = members.get("delta").and_then(Members::of).and_then(|delta| kind_of(&text(&delta, "type")?));
    matches!(delta, Some("text" | "thinking"))
}

impl Mender {
    pub fn new(signer: Signer) -> Self {
        Self { signer, ..Self::default() }
    }

    fn begin(&mut self, members: &Members<'_>, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let given: u64 = members.get("index").and_then(|index| index.get().parse().ok()).ok_or_else(broken)?;
        let block = members.get("content_block").and_then(Members::of).ok_or_else(broken)?;
        let kind = text(&block, "type").ok_or_else(broken)?.into_owned();
        self.close(stream);
        let is_silent = kind == "text" && text(&block, "text").is_none_or(|text| text.is_empty());
        if is_silent {
            self.waiting = Some(Waiting { given, data: data.to_vec() });
            return Ok(());
        }
        let given_input = block.get("input");
        let is_call = kind == "tool_use";
        let input = is_call.then(|| given_input.map_or(Cow::Borrowed("{}"), input_of).into_owned());
        self.has_calls |= is_call;
        let id = text(&block, "id").filter(|_| is_call);
        let fitting = id.as_ref().map(|id| self.names.id(Some(id)));
        // A beginning says nothing of the input: pieces do.
        let is_told = is_call && given_input.is_some_and(|input| input.get() != "{}");
        let said = if is_told || fitting.as_deref() != id.as_deref() {
            let bare = call_with(&block, "{}", fitting.as_deref());
            with(members, "content_block", &String::from_utf8_lossy(&bare))
        } else {
            data.to_vec()
        };
        stream.encoder.said += text(&block, "text").map_or(0, |text| text.len() as u64);
        let signature = text(&block, "signature").filter(|_| kind == "thinking");
        // It comes at the end of a thought, whatever its beginning says of it.
        let own = match signature.as_deref() {
            Some("") => None,
            _ if kind == "thinking" => Some(with(&block, "signature", r#""""#)),
            _ => self.signer.redacted(&block),
        };
        let said = own.map_or(said, |block| with(members, "content_block", &String::from_utf8_lossy(&block)));
        self.open(Some(given), kind, input, &said, stream);
        if let (Some(open), Some(signature)) = (&mut self.open, signature) {
            open.signature = signature.into_owned();
        }
        Ok(())
    }

    /// Opens a block under the next number.
    fn open(&mut self, given: Option<u64>, kind: String, input: Option<String>, data: &[u8], stream: &mut Stream) {
        let number = self.blocks;
        self.blocks += 1;
        let members = serde_json::from_slice::<&RawValue>(data).ok().and_then(Members::of);
        match members {
            Some(members) if given != Some(number as u64) => {
                put(stream, "content_block_start", &with(&members, "index", &number.to_string()));
            }
            _ => put(stream, "content_block_start", data),
        }
        self.open = Some(Open { given, kind, input, pieces: Arguments::default(), signature: String::new() });
    }

    fn add(&mut self, members: &Members<'_>, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let given: u64 = members.get("index").and_then(|index| index.get().parse().ok()).ok_or_else(broken)?;
        let delta = members.get("delta").and_then(Members::of).ok_or_else(broken)?;
        let kind = text(&delta, "type").ok_or_else(broken)?;
        let piece = ["text", "thinking", "partial_json"].iter().find_map(|name| text(&delta, name));
        let length = piece.as_ref().map(|piece| piece.len() as u64);
        stream.encoder.said += length.unwrap_or(0);
        if length == Some(0) {
            return Ok(());
        }
        let wanted = kind_of(&kind);
        let waiting = self.waiting.take_if(|waiting| waiting.given == given && wanted == Some("text"));
        if let Some(waiting) = waiting {
            self.open(Some(given), "text".to_owned(), None, &waiting.data, stream);
        }
        let fits = |open: &Open| match wanted {
            // Tools that run elsewhere have their input in pieces, too.
            Some("tool_use") => open.given == Some(given) && !matches!(open.kind.as_str(), "text" | "thinking"),
            Some(wanted) => open.kind == wanted,
            None => open.given == Some(given),
        };
        if !self.open.as_ref().is_some_and(fits) {
            let beginning = match wanted {
                Some("text") => r#"{"type":"text","text":"","citations":null}"#,
                Some("thinking") => r#"{"type":"thinking","thinking":"","signature":""}"#,
                // Of a call that has ended or never begun nobody could make anything.
                Some(_) => return Err(broken()),
                None => return Ok(()),
            };
            self.close(stream);
            let data = format!(r#"{{"type":"content_block_start","index":0,"content_block":{beginning}}}"#);
            self.open(None, wanted.unwrap_or_default().to_owned(), None, data.as_bytes(), stream);
        }
        if let (Some(open), "signature_delta") = (&mut self.open, kind.as_ref()) {
            open.signature.push_str(&text(&delta, "signature").unwrap_or_default());
            return Ok(());
        }
        if let (Some(open), Some("tool_use")) = (&mut self.open, wanted) {
            let piece = piece.unwrap_or_default();
            let is_told = open.input.as_deref().is_none_or(str::is_empty);
            open.pieces.push(&piece);
            if !is_told {
                open.pieces.skip_empty_object();
                if open.is_untold() {
                    if open.pieces.is_object() {
                        open.input = Some("{}".to_owned());
                    }
                    return Ok(());
                }
                // Pieces stand for the whole input, whatever its beginning held.
                open.input = Some(String::new());
                if open.pieces.as_str() != piece {
                    put_input(stream, self.blocks.saturating_sub(1), open.pieces.as_str());
                    return Ok(());
                }
            }
        }
        self.tell("content_block_delta", members, data, given, stream);
        Ok(())
    }

    /// Tells of the open block under the number that the client knows it by.
    fn tell(&self, event: &str, members: &Members<'_>, data: &[u8], given: u64, stream: &mut Stream) {
        let number = self.blocks.saturating_sub(1);
        if given == number as u64 {
            put(stream, event, data);
        } else {
            put(stream, event, &with(members, "index", &number.to_string()));
        }
    }

    /// Ends the block that is open. A call without a piece of input has the one that it began with.
    fn close(&mut self, stream: &mut Stream) {
        self.waiting = None;
        let Some(open) = self.open.take() else { return };
        let number = self.blocks.saturating_sub(1);
        // What runs elsewhere is for others to judge.
        let is_whole = match open.input.as_deref() {
            Some("") => open.pieces.is_object(),
            Some(input) => is_object(input),
            None => true,
        };
        self.is_cut |= open.kind == "tool_use" && !is_whole;
        if let Some(input) = open.input.filter(|input| !input.is_empty()) {
            put_input(stream, number, input.trim());
        }
        if open.kind == "thinking" {
            let signature = quoted(&self.signer.seal(&open.signature));
            let delta = format!(
                r#"{{"type":"content_block_delta","index":{number},"delta":{{"type":"signature_delta","signature":{signature}}}}}"#
            );
            put(stream, "content_block_delta", delta.as_bytes());
        }
        let stop = format!(r#"{{"type":"content_block_stop","index":{number}}}"#);
        put(stream, "content_block_stop", stop.as_bytes());
    }

    /// An event of a block. One that comes in the middle of another's input waits: clients know one block at a time.
    fn block(&mut self, kind: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let members = read(data).ok_or_else(broken)?;
        let given = members.get("index").and_then(|index| index.get().parse::<u64>().ok());
        while let Some(open) = self.open.as_ref().filter(|open| open.is_half() && open.given != given) {
            // A call without arguments may never be ended, and words would wait for that until all is over.
            if !open.is_untold() || !is_speech(&members) {
                return self.hold(given, kind, data, stream);
            }
            self.close(stream);
            self.catch_up(stream)?;
        }
        self.apply(kind, given, &members, data, stream)
    }

    fn apply(
        &mut self,
        kind: &str,
        given: Option<u64>,
        members: &Members<'_>,
        data: &[u8],
        stream: &mut Stream,
    ) -> Result<(), Fault> {
        match kind {
            "content_block_start" => self.begin(members, data, stream)?,
            "content_block_delta" => self.add(members, data, stream)?,
            _ => {
                if self.open.as_ref().is_some_and(|open| open.given.is_none() || open.given == given) {
                    self.close(stream);
                }
                self.waiting = None;
            }
        }
        Ok(())
    }

    /// Lets an event wait for the end of the open block. When too much waits, that block ends as it is.
    fn hold(&mut self, given: Option<u64>, kind: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        // The end of a block that is over already ends nothing.
        if kind != "content_block_stop" || self.held.has(given) {
            self.held.push(given, kind, data);
        }
        while self.held.is_full() {
            self.close(stream);
            self.catch_up(stream)?;
        }
        Ok(())
    }

    /// Tells what has waited, block by block, as far as the one that is open is over.
    fn catch_up(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        while !self.open.as_ref().is_some_and(Open::is_half) {
            let Some(events) = self.held.pop() else { break };
            for (kind, data) in &events {
                let members = read(data).ok_or_else(broken)?;
                let given = members.get("index").and_then(|index| index.get().parse::<u64>().ok());
                self.apply(kind, given, &members, data, stream)?;
            }
        }
        Ok(())
    }

    /// Ends all blocks, also those that have waited.
    fn close_all(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        self.close(stream);
        while !self.held.is_empty() {
            self.catch_up(stream)?;
            self.close(stream);
        }
        Ok(())
    }

    /// How the answer ended.
    fn told(&mut self, members: &Members<'_>, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let delta = members.get("delta").and_then(Members::of).unwrap_or_default();
        if let Some(ending) = &mut self.ending {
            if let Some(counted) = recounted(ending, members) {
                *ending = counted;
            }
            return Ok(());
        }
        // Counts on the way are not the end: the last of them say it all.
        let Some(reason) = text(&delta, "stop_reason") else {
            self.counts = Some(data.to_vec());
            return Ok(());
        };
        self.close_all(stream)?;
        // Only what was cut short may hold half an input.
        if self.is_cut && !matches!(reason.as_ref(), "max_tokens" | "refusal" | "model_context_window_exceeded") {
            return Err(broken());
        }
        self.is_told = true;
        // What was counted before and is left out here is told here.
        let united = self.counts.take().and_then(|counts| with_counts(members, &counts));
        self.ending = Some(match united.as_deref().and_then(|united| Some((read(united)?, united))) {
            Some((members, united)) => self.reason(&members, united),
            None => self.reason(members, data),
        });
        Ok(())
    }

    /// Why the answer ended: a call that was made is why, whatever the server calls it.
    fn reason(&self, members: &Members<'_>, data: &[u8]) -> Vec<u8> {
        let delta = members.get("delta").and_then(Members::of).unwrap_or_default();
        if self.has_calls && text(&delta, "stop_reason").as_deref() == Some("end_turn") {
            let right = with(&delta, "stop_reason", r#""tool_use""#);
            return with(members, "delta", &String::from_utf8_lossy(&right));
        }
        data.to_vec()
    }

    /// Tells how it ended, or what was counted where nobody said that.
    fn conclude(&mut self, stream: &mut Stream) {
        if let Some(end) = self.ending.take().or_else(|| self.counts.take()) {
            put(stream, "message_delta", &end);
        }
    }

    fn finish(&mut self, stream: &mut Stream) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.conclude(stream);
            put(stream, "message_stop", br#"{"type":"message_stop"}"#);
        }
    }
}

/// The same of an answer that came whole; nothing where it keeps the rules.
pub fn mended(body: &[u8], signer: &Signer) -> Option<Bytes> {
    let members = Members::of(serde_json::from_slice(body).ok()?)?;
    let blocks = json::elements(members.get("content")?)?;
    let is = |block: &RawValue, kind: &str| {
        Members::of(block).is_some_and(|members| text(&members, "type").as_deref() == Some(kind))
    };
    let is_silent = |block: &RawValue| {
        let members = Members::of(block).unwrap_or_default();
        is(block, "text") && text(&members, "text").is_some_and(|text| text.is_empty())
    };
    let has_calls = blocks.iter().any(|block| is(block, "tool_use"));
    let is_misnamed = has_calls && text(&members, "stop_reason").as_deref() == Some("end_turn");
    // An answer that says nothing at all is for others to judge.
    let signed = |block: &&RawValue| -> Option<String> {
        let members = Members::of(block)?;
        if let Some(redacted) = signer.redacted(&members) {
            return String::from_utf8(redacted).ok();
        }
        let members = Some(members).filter(|_| is(block, "thinking"))?;
        let signature = text(&members, "signature").unwrap_or_default();
        String::from_utf8(with(&members, "signature", &quoted(&signer.seal(&signature)))).ok()
    };
    let mut names = Names::default();
    let mut called = |block: &&RawValue| -> Option<String> {
        let members = Members::of(block).filter(|_| is(block, "tool_use"))?;
        let given = members.get("input")?;
        let (input, id) = (input_of(given), text(&members, "id"));
        let fitting = id.as_ref().map(|id| names.id(Some(id)));
        if input == given.get() && fitting.as_deref() == id.as_deref() {
            return None;
        }
        String::from_utf8(call_with(&members, &input, fitting.as_deref())).ok()
    };
    let righted: Vec<(&RawValue, Option<String>)> =
        blocks.iter().map(|block| (*block, signed(block).or_else(|| called(block)))).collect();
    let is_righted = righted.iter().any(|(_, righted)| righted.is_some());
    let said: Vec<Cow<'_, str>> = righted
        .into_iter()
        .filter(|(block, _)| !is_silent(block))
        .map(|(block, righted)| righted.map_or_else(|| Cow::Borrowed(block.get()), Cow::Owned))
        .collect();
    let has_silent = said.len() < blocks.len() && !said.is_empty();
    let made = (has_silent || is_righted).then(|| with(&members, "content", &format!("[{}]", said.join(","))));
    if !is_misnamed {
        return made.map(Bytes::from);
    }
    let members = Members::of(serde_json::from_slice(made.as_deref().unwrap_or(body)).ok()?)?;
    Some(with(&members, "stop_reason", r#""tool_use""#).into())
}

impl Decode for Mender {
    fn feed(&mut self, name: &str, data: &[u8], stream: &mut Stream) -> Result<(), Fault> {
        let data = data.trim_ascii();
        // An event without data says nothing, whatever its name.
        if self.is_over || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            if self.is_told {
                self.finish(stream);
            }
            return Ok(());
        }
        let members = read(data).ok_or_else(broken)?;
        let kind = text(&members, "type").unwrap_or_else(|| name.to_owned().into());
        let is_content = matches!(kind.as_ref(), "content_block_start" | "content_block_delta" | "message_delta");
        if is_content && !std::mem::replace(&mut self.is_begun, true) {
            stream.start();
        }
        match kind.as_ref() {
            // A second beginning would be a second answer.
            "message_start" if std::mem::replace(&mut self.is_begun, true) => {}
            "content_block_start" | "content_block_delta" | "content_block_stop" => {
                self.block(&kind, data, stream)?;
                self.catch_up(stream)?;
            }
            "message_delta" => self.told(&members, data, stream)?,
            "message_stop" => {
                self.close_all(stream)?;
                self.conclude(stream);
                self.is_over = true;
                put(stream, "message_stop", data);
            }
            "error" => {
                self.is_over = true;
                // What was counted was, whatever came then.
                self.conclude(stream);
                put(stream, "error", data);
            }
            // An error of another format, without a name.
            "" if members.get("error").is_some() => {
                self.is_over = true;
                self.conclude(stream);
                put(stream, "error", &with(&members, "type", r#""error""#));
            }
            kind if kind.contains(['\n', '\r']) || kind.is_empty() => return Err(broken()),
            kind => put(stream, kind, data),
        }
        Ok(())
    }

    fn end(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        match (self.is_over, self.is_told) {
            (true, _) => Ok(()),
            (false, true) => {
                self.finish(stream);
                Ok(())
            }
            (false, false) => Err(Fault::without_answer(Class::Unreachable)),
        }
    }

    fn is_settled(&self) -> bool {
        self.is_told && !self.is_over
    }
}

#[cfg(test)]
#[path = "mend_tests.rs"]
mod tests;
