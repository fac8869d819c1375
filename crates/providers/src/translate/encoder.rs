//! From what an upstream says, in whatever order and pieces, to blocks that keep the rules of the Messages format. All
//! those rules are here, so a decoder only has to say what it saw.

use std::collections::VecDeque;

use super::arguments::Arguments;
use super::blocks::Blocks;
use super::search::Searched;
use super::tools::Names;
use super::{Context, Native};

/// Which of several calls a piece belongs to: whatever the protocol numbers them by.
pub type Key = u32;

/// How an upstream says that it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing special: the end of the turn, or calls to be made.
    Done,
    Length,
    /// The prompt and the answer together are longer than the model can hold.
    ContextWindow,
    /// With the sequence, where the upstream names it.
    Sequence(Option<String>),
    /// With the upstream's own words.
    Refusal(Option<String>),
    /// An end that the upstream itself has no word for.
    Unexplained,
    /// A word we do not know; the turn counts as ended.
    Unknown(String),
}

/// What counts at the end: in the order in which one signal outweighs another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub stop_reason: &'static str,
    pub stop_sequence: Option<String>,
    pub explanation: Option<String>,
}

/// Why blocks cannot be finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The input of a call is no JSON object or it has no name, and nothing says that the answer was cut short.
    Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Thinking,
    Tool,
}

/// A call of which not everything has been written.
#[derive(Debug)]
struct Call {
    key: Key,
    /// The upstream's id of it, and the client's.
    given_id: Option<String>,
    id: String,
    /// The upstream's name for it, which may come in pieces, and the client's.
    given: String,
    name: String,
    /// Everything that came, also what is written already.
    arguments: Arguments,
    /// Bytes of it that are written.
    written: usize,
    /// The upstream said that nothing more comes.
    ended: bool,
}

impl Call {
    /// Whether nothing is missing of it.
    fn is_whole(&self) -> bool {
        self.ended || self.arguments.is_object()
    }
}

/// What comes while a call is being written and stands after it.
#[derive(Debug)]
enum Later {
    Text(String),
    Citation(String),
    Thinking(String),
    Signature(String),
    Redacted(String),
    Search(Searched),
    EndBlock,
}

/// Turns what a decoder sees into blocks.
#[derive(Debug)]
pub struct Encoder<B> {
    pub blocks: B,
    open: Open,
    /// Calls in the order in which they began; the first one is being written.
    calls: VecDeque<Call>,
    /// Keys of calls that are written whole, and the upstream's ids of them, so that late pieces of them do no harm.
    finished: Vec<(Key, Option<String>)>,
    /// What came in the middle of the open call's input, in order.
    later: Vec<Later>,
    names: Names,
    serial: bool,
    show_thinking: bool,
    /// What the signature of the open or next thinking block will be.
    signature: Option<String>,
    citations: Vec<String>,
    whole_calls: usize,
    refusal: Option<String>,
    stop: Option<Stop>,
    cut: bool,
    pub warnings: Vec<String>,
    /// Calls that the upstream has signed, and what carries the signature.
    pub signed: Vec<(String, String)>,
    pub native: Native,
    /// Bytes of text, thinking and input so far.
    pub said: u64,
    most_said: u64,
    wrote: bool,
    /// Sequences that the upstream does not look for, and text that may be the beginning of one.
    guarded: Vec<String>,
    held: String,
    /// One of them was met: nothing more is said.
    met: bool,
}

impl<B: Blocks> Encoder<B> {
    /// For the answer to a request that left this behind.
    pub fn new(blocks: B, context: &Context) -> Self {
        let Context { names, serial, show_thinking, guarded, .. } = context;
        let (names, serial, show_thinking) = (names.clone(), *serial, *show_thinking);
        let guarded = guarded.iter().filter(|sequence| !sequence.is_empty()).cloned().collect();
        Self {
            blocks,
            open: Open::Nothing,
            calls: VecDeque::new(),
            finished: Vec::new(),
            later: Vec::new(),
            names,
            serial,
            show_thinking,
            signature: None,
            citations: Vec::new(),
            whole_calls: 0,
            refusal: None,
            stop: None,
            cut: false,
            warnings: Vec::new(),
            signed: Vec::new(),
            native: Native::default(),
            said: 0,
            most_said: context.most_said(),
            wrote: false,
            guarded,
            held: String::new(),
            met: false,
        }
    }

    /// Whether any block has begun.
    pub fn has_content(&self) -> bool {
        self.wrote
    }

    /// Whether its end is one: something was said, also what is not written yet, or it is known why nothing was.
    pub fn has_answered(&self) -> bool {
        let is_waiting = !self.calls.is_empty() || !self.held.is_empty();
        self.wrote || is_waiting || self.met || self.ends_early()
    }

    /// Whether it ended before the model was done, so that having said nothing is no failure.
    fn ends_early(&self) -> bool {
        self.refusal.is_some()
            || matches!(self.stop, Some(Stop::Length | Stop::ContextWindow | Stop::Refusal(_) | Stop::Sequence(_)))
    }

    /// Whether the upstream counts it as done, for no other reason.
    pub fn is_done(&self) -> bool {
        matches!(self.stop, None | Some(Stop::Done))
    }

    /// Bytes of what was said, and never more of them than were asked for: what an answer is counted by that its upstream does
    /// not count.
    pub fn said(&self) -> u64 {
        self.said.min(self.most_said)
    }

    /// Whether a sequence that we look for ourselves was met: nothing that comes now is part of the answer, but what it used.
    pub fn is_over(&self) -> bool {
        self.met
    }

    pub fn text(&mut self, text: &str) {
        if self.met {
            return;
        }
        if self.guarded.is_empty() {
            return self.write_text(text);
        }
        self.held.push_str(text);
        let held = std::mem::take(&mut self.held);
        let found = self.guarded.iter().filter_map(|sequence| Some((held.find(sequence.as_str())?, sequence)));
        if let Some((place, sequence)) =
            found.min_by_key(|(place, sequence)| (*place, std::cmp::Reverse(sequence.len())))
        {
            let sequence = sequence.clone();
            self.write_text(&held[..place]);
            self.stop = Some(Stop::Sequence(Some(sequence)));
            self.met = true;
            return;
        }
        // As much as could be the beginning of one stays back.
        let longest = self.guarded.iter().map(String::len).max().unwrap_or(1);
        let mut keep = held.len().saturating_sub(longest - 1);
        while !held.is_char_boundary(keep) {
            keep -= 1;
        }
        self.write_text(&held[..keep]);
        self.held = held[keep..].to_owned();
    }

    /// Text that was held back turned out to be no beginning of anything.
    fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.write_text(&held);
    }

    fn write_text(&mut self, text: &str) {
        // Nothing is opened, closed or switched for an empty piece: clients store the empty block and are refused later.
        if text.is_empty() {
            return;
        }
        self.said += text.len() as u64;
        self.settle_calls();
        if !self.is_mid_call() {
            return self.put_text(text);
        }
        match self.later.last_mut() {
            Some(Later::Text(before)) => before.push_str(text),
            _ => self.later.push(Later::Text(text.to_owned())),
        }
    }

    fn put_text(&mut self, text: &str) {
        if self.open != Open::Text {
            self.close();
            match self.refusal {
                Some(_) => self.blocks.open_refusal(),
                None => self.blocks.open_text(),
            }
            self.opened(Open::Text);
        }
        self.blocks.text(text);
    }

    /// The model's words when it declines; they are shown as text.
    pub fn refusal(&mut self, text: &str) {
        if self.met || text.is_empty() {
            return;
        }
        self.refusal.get_or_insert_default().push_str(text);
        self.text(text);
    }

    pub fn thinking(&mut self, text: &str) {
        if self.met {
            return;
        }
        self.said += text.len() as u64;
        if text.is_empty() || !self.show_thinking {
            return;
        }
        self.release();
        self.settle_calls();
        if !self.is_mid_call() {
            return self.put_thinking(text);
        }
        match self.later.last_mut() {
            Some(Later::Thinking(before)) => before.push_str(text),
            _ => self.later.push(Later::Thinking(text.to_owned())),
        }
    }

    fn put_thinking(&mut self, text: &str) {
        self.open_thinking();
        self.blocks.thinking(text);
    }

    fn open_thinking(&mut self) {
        if self.open != Open::Thinking {
            self.close();
            self.blocks.open_thinking();
            self.opened(Open::Thinking);
        }
    }

    /// The signature of the thinking that is open or that comes now. A block without text is made for it when there is
    /// none: the next turn cannot do without it.
    pub fn signature(&mut self, signature: String) {
        if self.met {
            return;
        }
        self.release();
        self.settle_calls();
        if self.is_mid_call() {
            self.later.push(Later::Signature(signature));
        } else {
            self.put_signature(signature);
        }
    }

    fn put_signature(&mut self, signature: String) {
        self.open_thinking();
        self.signature = Some(signature);
    }

    /// What was thought so far is a block of its own: what comes next has another signature.
    pub fn thinking_end(&mut self) {
        if self.met {
            return;
        }
        if self.open == Open::Thinking {
            self.close();
        } else if matches!(self.later.last(), Some(Later::Thinking(_) | Later::Signature(_))) {
            self.later.push(Later::EndBlock);
        }
    }

    /// Thinking that only its issuer can read: a block of its own.
    pub fn redacted(&mut self, data: &str) {
        if self.met || data.is_empty() {
            return;
        }
        self.release();
        self.settle_calls();
        if self.is_mid_call() {
            self.later.push(Later::Redacted(data.to_owned()));
        } else {
            self.put_redacted(data);
        }
    }

    fn put_redacted(&mut self, data: &str) {
        self.close();
        self.blocks.redacted(data);
        self.wrote = true;
    }

    /// A search that the upstream ran: two blocks of their own.
    pub fn searched(&mut self, search: Searched) {
        if self.met {
            return;
        }
        self.release();
        self.settle_calls();
        if self.is_mid_call() {
            self.later.push(Later::Search(search));
        } else {
            self.put_search(&search);
        }
    }

    fn put_search(&mut self, search: &Searched) {
        self.close();
        let id = self.names.server_id();
        self.blocks.search(&id, search);
        self.wrote = true;
    }

    /// The upstream ends a block of text or thinking: what comes next stands in one of its own, with its own signature.
    pub fn end_block(&mut self) {
        if self.met {
            return;
        }
        // Text that may be the beginning of a stop sequence goes on until it is known to be none.
        if !self.held.is_empty() {
            return;
        }
        if matches!(self.open, Open::Text | Open::Thinking) {
            self.close();
        } else if !self.later.is_empty() {
            self.later.push(Later::EndBlock);
        }
    }

    /// A citation of the text so far, as JSON; written before its block ends.
    pub fn citation(&mut self, citation: String) {
        if self.met {
            return;
        }
        if self.open == Open::Text {
            self.citations.push(citation);
        } else if matches!(self.later.last(), Some(Later::Text(_) | Later::Citation(_))) {
            self.later.push(Later::Citation(citation));
        }
    }

    /// A call begins. Starting one that has begun adds to its name: some upstreams send names in pieces. Starting one
    /// that is over repeats it, unless another id says that it is another one.
    pub fn tool_start(&mut self, key: Key, id: Option<&str>, name: &str) {
        if self.met {
            return;
        }
        self.release();
        let is_it = |known: &Option<String>| id.is_none() || known.is_none() || known.as_deref() == id;
        if self.finished.iter().any(|(known, known_id)| *known == key && is_it(known_id)) {
            return;
        }
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            if call.arguments.is_empty() && call.written == 0 && call.given != name && self.open != Open::Tool {
                call.given.push_str(name);
                call.name = self.names.original(&call.given).to_owned();
            }
            return;
        }
        if self.serial && (self.whole_calls > 0 || !self.calls.is_empty()) {
            self.warn("dropped:parallel_calls");
            self.finished.push((key, id.map(ToOwned::to_owned)));
            return;
        }
        let given_id = id.map(ToOwned::to_owned);
        let (id, given) = (self.names.id(id), name.to_owned());
        let name = self.names.original(name).to_owned();
        let arguments = Arguments::default();
        self.calls.push_back(Call { key, given_id, id, given, name, arguments, written: 0, ended: false });
    }

    /// A piece of a call's input.
    pub fn tool_arguments(&mut self, key: Key, piece: &str) {
        if piece.is_empty() {
            return;
        }
        self.said += piece.len() as u64;
        let Some(place) = self.calls.iter().position(|call| call.key == key) else { return };
        let call = &mut self.calls[place];
        // Nothing, in words: some servers write that for a call without input.
        let piece = if call.arguments.is_empty() && piece.trim() == "null" { "{}" } else { piece };
        // Some upstreams send the whole input once more after its pieces; of the same input twice one is enough.
        let is_again = piece.trim_start().starts_with('{') && call.arguments.is_object();
        if is_again && call.arguments.as_str().trim() != "{}" {
            return;
        }
        call.arguments.push(piece);
        if place == 0 {
            self.write_front();
            // What has waited for the end of this input need not wait longer.
            if !self.later.is_empty() {
                self.settle_calls();
            }
        } else {
            // Others wait while the first one is unfinished; data for them shows when it is not.
            self.settle_finished_front();
        }
    }

    /// Nothing more comes for a call.
    pub fn tool_end(&mut self, key: Key) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            call.ended = true;
        }
        while self.calls.front().is_some_and(|call| call.ended) {
            self.finish_front();
        }
    }

    /// Whether a call with this key is known, and the id it was given.
    pub fn call_id(&self, key: Key) -> Option<&str> {
        self.calls.iter().find(|call| call.key == key).map(|call| call.id.as_str())
    }

    /// Whether the arguments of a call are a whole object already.
    pub fn is_complete(&self, key: Key) -> bool {
        self.finished.iter().any(|(known, _)| *known == key)
            || self.calls.iter().find(|call| call.key == key).is_some_and(|call| call.arguments.is_object())
    }

    /// How it ended; the first word counts, but a refusal or a cut outweighs a mere end.
    pub fn stop(&mut self, stop: Stop) {
        if self.met {
            return;
        }
        let is_mere = |stop: &Stop| matches!(stop, Stop::Done | Stop::Unexplained | Stop::Unknown(_));
        let outweighs = self.stop.as_ref().is_none_or(is_mere) && !is_mere(&stop);
        if self.stop.is_none() || outweighs {
            self.stop = Some(stop);
        }
    }

    /// Closes everything and says how the answer ended.
    pub fn finish(&mut self) -> Result<Ending, Broken> {
        if !self.met {
            self.release();
        }
        // A filter cuts as a limit does.
        let is_cut_short =
            self.refusal.is_some() || matches!(self.stop, Some(Stop::Length | Stop::ContextWindow | Stop::Refusal(_)));
        while !self.calls.is_empty() {
            self.finish_front();
        }
        self.close();
        if self.cut && !is_cut_short {
            return Err(Broken::Input);
        }
        Ok(self.ending())
    }

    fn ending(&mut self) -> Ending {
        let plain = |stop_reason| Ending { stop_reason, stop_sequence: None, explanation: None };
        if let Some(words) = self.refusal.take() {
            return Ending { explanation: Some(words), ..plain("refusal") };
        }
        match self.stop.clone() {
            Some(Stop::Refusal(explanation)) => Ending { explanation, ..plain("refusal") },
            Some(Stop::Length) => plain("max_tokens"),
            Some(Stop::ContextWindow) => plain("model_context_window_exceeded"),
            // A call is a call, whatever word the upstream ends with.
            _ if self.whole_calls > 0 => plain("tool_use"),
            Some(Stop::Sequence(sequence)) => Ending { stop_sequence: sequence, ..plain("stop_sequence") },
            Some(Stop::Unknown(word)) => {
                self.warn(&format!("unknown_finish:{word}"));
                plain("end_turn")
            }
            Some(Stop::Done | Stop::Unexplained) | None => plain("end_turn"),
        }
    }

    fn opened(&mut self, open: Open) {
        self.open = open;
        self.wrote = true;
    }

    /// Ends the open block, with what belongs at its end.
    fn close(&mut self) {
        match self.open {
            Open::Nothing => return,
            Open::Text => {
                for citation in std::mem::take(&mut self.citations) {
                    self.blocks.citation(&citation);
                }
            }
            Open::Thinking => {
                let signature = self.signature.take().unwrap_or_default();
                self.blocks.signature(&signature);
            }
            Open::Tool => {}
        }
        self.blocks.close();
        self.open = Open::Nothing;
    }

    /// Something else begins: calls that are whole are over. One that is not goes on, and what comes meanwhile waits.
    fn settle_calls(&mut self) {
        while self.calls.front().is_some_and(Call::is_whole) {
            self.finish_front();
        }
    }

    /// Whether a part of a call's input is written and the rest has yet to come: no other block can begin now.
    fn is_mid_call(&self) -> bool {
        self.open == Open::Tool
    }

    /// Writes what came in the middle of the call that was just closed.
    fn catch_up(&mut self) {
        for piece in std::mem::take(&mut self.later) {
            match piece {
                Later::Text(text) => self.put_text(&text),
                Later::Citation(citation) => self.citations.push(citation),
                Later::Thinking(text) => self.put_thinking(&text),
                Later::Signature(signature) => self.put_signature(signature),
                Later::Redacted(data) => self.put_redacted(&data),
                Later::Search(search) => self.put_search(&search),
                Later::EndBlock => self.close(),
            }
        }
    }

    fn settle_finished_front(&mut self) {
        while self.calls.len() > 1
            && self.calls.front().is_some_and(Call::is_whole)
            && self.calls.get(1).is_some_and(|next| !next.arguments.is_empty())
        {
            self.finish_front();
            self.write_front();
        }
    }

    /// Writes what has come of the first call. A first piece `{}` is held: with some upstreams the real input follows it.
    fn write_front(&mut self) {
        let Some(call) = self.calls.front_mut().filter(|call| !call.name.is_empty()) else { return };
        if call.written == 0 {
            if call.arguments.as_str().trim() == "{}" {
                return;
            }
            call.arguments.skip_empty_object();
            call.arguments.halve();
        }
        if self.open != Open::Tool {
            let (id, name) = (call.id.clone(), call.name.clone());
            self.close();
            self.blocks.open_tool(&id, &name);
            self.opened(Open::Tool);
        }
        if let Some(call) = self.calls.front_mut() {
            let piece = &call.arguments.as_str()[call.written..];
            if !piece.is_empty() {
                self.blocks.input(piece);
                call.written = call.arguments.as_str().len();
            }
        }
    }

    /// Writes what is left of the first call and closes it.
    fn finish_front(&mut self) {
        let Some(mut call) = self.calls.pop_front() else { return };
        // Nobody can run what has no name, and upstreams refuse it in a conversation: the answer is as good as cut here.
        if call.name.is_empty() {
            self.cut = true;
            self.finished.push((call.key, call.given_id));
            return;
        }
        if self.open != Open::Tool {
            self.close();
            self.blocks.open_tool(&call.id, &call.name);
            self.opened(Open::Tool);
        }
        if call.written == 0 {
            call.arguments.repair();
            self.blocks.input(call.arguments.as_str());
        } else {
            let rest = &call.arguments.as_str()[call.written..];
            if !rest.is_empty() {
                self.blocks.input(rest);
            }
        }
        if call.arguments.is_object() {
            self.whole_calls += 1;
        } else {
            self.cut = true;
        }
        self.finished.push((call.key, call.given_id));
        self.close();
        self.catch_up();
    }

    /// Says what was left out of the answer; each thing once.
    pub fn warn(&mut self, warning: &str) {
        if !self.warnings.iter().any(|known| known == warning) {
            self.warnings.push(warning.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::super::blocks::{Block, Collected};
    use super::*;

    #[test]
    fn p44_a_repeated_short_name_is_the_same_name() {
        let names = Names::new(HashMap::from([("short".to_owned(), "the.long.one".to_owned())]), HashSet::new());
        let mut encoder = Encoder::new(Collected::default(), &Context { names, ..Context::default() });
        for name in ["short", "short"] {
            encoder.tool_start(0, Some("a"), name);
        }
        // In pieces, it is known only when all of it is there.
        encoder.tool_start(1, Some("b"), "sho");
        encoder.tool_start(1, None, "rt");
        encoder.finish().unwrap();
        let found: Vec<&str> = encoder
            .blocks
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Tool { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(found, ["the.long.one", "the.long.one"]);
    }

    #[test]
    fn p07_the_same_input_twice_is_written_once() {
        for pieces in [&["{\"x\":1}{\"x\":1}"][..], &["{\"x\":1}", "{\"x\":1}"], &["{}", "{\"x\":1}", "{\"x\":1}"]] {
            let mut encoder = Encoder::new(Collected::default(), &Context::default());
            encoder.tool_start(0, Some("a"), "t");
            for piece in pieces {
                encoder.tool_arguments(0, piece);
            }
            assert_eq!(encoder.finish().unwrap().stop_reason, "tool_use", "{pieces:?}");
            let call = Block::Tool { id: "a".to_owned(), name: "t".to_owned(), input: "{\"x\":1}".to_owned() };
            assert_eq!(encoder.blocks.blocks, [call], "{pieces:?}");
        }
    }

    #[test]
    fn a_call_that_is_over_begins_again_only_under_another_id() {
        let mut encoder = Encoder::new(Collected::default(), &Context::default());
        for id in [Some("a"), Some("a"), None, Some("b"), Some("a")] {
            encoder.tool_start(0, id, "t");
            encoder.tool_arguments(0, "{\"x\":1}");
            encoder.tool_end(0);
        }
        encoder.finish().unwrap();
        let call = |id: &str| Block::Tool { id: id.to_owned(), name: "t".to_owned(), input: "{\"x\":1}".to_owned() };
        assert_eq!(encoder.blocks.blocks, [call("a"), call("b")]);
    }

    #[test]
    fn a_call_without_a_name_is_none() {
        let called = |stop: Stop| {
            let mut encoder = Encoder::new(Collected::default(), &Context::default());
            encoder.text("a");
            encoder.tool_start(0, Some("a"), "");
            encoder.tool_arguments(0, "{\"x\":1}");
            encoder.tool_end(0);
            encoder.stop(stop);
            (encoder.finish(), encoder.blocks.blocks.len())
        };
        assert_eq!(called(Stop::Done), (Err(Broken::Input), 1));
        let (ending, blocks) = called(Stop::Length);
        assert_eq!((ending.unwrap().stop_reason, blocks), ("max_tokens", 1));
    }

    #[test]
    fn blocks_of_thinking_keep_their_own_signatures() {
        let mut encoder = Encoder::new(Collected::default(), &Context { show_thinking: true, ..Context::default() });
        for signature in ["one", "two"] {
            encoder.thinking(signature);
            encoder.signature(signature.to_owned());
            encoder.thinking_end();
        }
        encoder.finish().unwrap();
        let block = |text: &str| Block::Thinking { text: text.to_owned(), signature: text.to_owned() };
        assert_eq!(encoder.blocks.blocks, [block("one"), block("two")]);
    }
}
