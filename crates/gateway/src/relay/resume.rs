//! Going on where a stream broke: what the client has heard, the request that lets another upstream finish it, and how
//! that one's answer is joined to what was sent. No I/O.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tidegate_core::Usage;
use tidegate_wire::messages::{Block, Content, Delta, Event, Message, Request, Role, Text};
use tidegate_wire::sse::{Frame, Splitter};

/// What was sent of an answer. It is read now and then, so that only its text stays; most streams end before that.
pub(super) struct Sent {
    /// What was not read yet.
    bytes: Vec<u8>,
    splitter: Splitter,
    said: Said,
    /// It cannot be gone on with.
    is_lost: bool,
}

/// Bytes that may wait to be read.
const UNREAD: usize = 32 << 10;
/// The longest text that is gone on with.
const LONGEST: usize = 256 << 10;
/// Characters from which on a beginning that comes again is a repetition, and no chance.
const REPETITION: usize = 16;

impl Default for Sent {
    fn default() -> Self {
        let splitter = Splitter::new(LONGEST);
        Self { bytes: Vec::new(), splitter, said: Said::default(), is_lost: false }
    }
}

impl Sent {
    pub fn add(&mut self, bytes: &[u8]) {
        if self.is_lost {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > UNREAD {
            self.read();
        }
    }

    fn read(&mut self) {
        self.splitter.feed(Bytes::from(std::mem::take(&mut self.bytes)));
        while let Ok(Some(frame)) = self.splitter.next() {
            let is_heard = frame.is_silent()
                || Event::parse(&frame.data()).ok().and_then(|event| self.said.hear(&event)).is_some();
            self.is_lost |= !is_heard;
        }
        self.is_lost |= self.said.text.len() > LONGEST;
    }

    /// What a client has made of it; nothing when an answer like this cannot be gone on with: half a thought cannot be
    /// signed, one that nothing was said after would be thought again, and a call of a tool must not be made twice.
    pub fn said(&mut self) -> Option<&Said> {
        self.read();
        let is_thought_alone = self.said.is_thinking || (self.said.has_thought && self.said.prefix().is_empty());
        (!self.is_lost && !is_thought_alone).then_some(&self.said)
    }
}

/// The text of an answer so far, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub text: String,
    /// The block that is not over.
    open: Option<usize>,
    /// The number of the next block.
    next: usize,
    /// It was thought before it was said.
    has_thought: bool,
    /// The block that is not over is a thought.
    is_thinking: bool,
}

impl Said {
    fn hear(&mut self, event: &Event) -> Option<()> {
        match event {
            Event::BlockStart(start) => {
                self.is_thinking = false;
                match &start.content_block {
                    Block::Text(text) => self.text.push_str(&text.text),
                    Block::Thinking(_) | Block::RedactedThinking(_) => {
                        (self.has_thought, self.is_thinking) = (true, true);
                    }
                    _ => return None,
                }
                (self.open, self.next) = (Some(start.index), start.index + 1);
            }
            Event::BlockDelta(delta) => match &delta.delta {
                Delta::Text(text) => self.text.push_str(&text.text),
                // They point into what was searched or attached; text alone is gone on with.
                Delta::Citation(_) => {}
                Delta::Thinking(_) | Delta::Signature(_) => {}
                _ => return None,
            },
            Event::BlockStop(_) => (self.open, self.is_thinking) = (None, false),
            // How it ended was said already: it is over.
            Event::MessageDelta(_) | Event::MessageStop(_) | Event::Error(_) => return None,
            _ => {}
        }
        Some(())
    }

    /// The text as the beginning of an answer: upstreams take none that ends in white space.
    fn prefix(&self) -> &str {
        self.text.trim_end()
    }

    /// Its tokens as `count` has them of its text; None where it was thought before that, which is not kept.
    pub fn tokens(&self, count: impl FnOnce(&str) -> u64) -> Option<u64> {
        (!self.has_thought).then(|| count(&self.text))
    }

    /// Lets the conversation end with what was said. `produced`: tokens of it, which are not to be produced again. None when
    /// no more may be produced.
    pub fn continued(&self, mut request: Request, produced: u64) -> Option<Request> {
        let left = request.max_tokens.map(|limit| limit.saturating_sub(produced));
        if left == Some(0) {
            return None;
        }
        request.max_tokens = left;
        if self.prefix().is_empty() {
            return Some(request);
        }
        // What was begun was thought about; nor does anyone who is to think take a beginning.
        request.thinking = None;
        let more = self.prefix();
        match request.messages.last_mut().filter(|last| last.role == Role::Assistant) {
            // The caller had begun the answer already.
            Some(last) => match &mut last.content {
                Content::Text(text) => text.push_str(more),
                Content::Blocks(blocks) => match blocks.last_mut() {
                    Some(Block::Text(text)) => text.text.push_str(more),
                    _ => blocks.push(Block::Text(Text::new(more.to_owned()))),
                },
            },
            None => request.messages.push(Message::new(Role::Assistant, Content::Text(more.to_owned()))),
        }
        Some(request)
    }
}

/// What the caller had begun the answer with.
pub(super) fn begun(request: &Request) -> String {
    let last = request.messages.last().filter(|last| last.role == Role::Assistant);
    match last.map(|last| &last.content) {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Blocks(blocks)) => match blocks.last() {
            Some(Block::Text(text)) => text.text.clone(),
            _ => String::new(),
        },
        None => String::new(),
    }
}

/// Joins the stream of another upstream to what was sent.
#[derive(Clone, Debug)]
pub(super) struct Graft {
    /// The client's block that text is added to.
    open: Option<usize>,
    /// What is added to the upstream's numbers of blocks; known with its first block.
    offset: Option<usize>,
    next: usize,
    /// What the upstream may say again before it goes on, and what the caller had begun the answer with, which it may say
    /// before that.
    text: String,
    begun: String,
    /// What the upstream has said that may be such a repetition; nothing once that is decided.
    held: Option<String>,
}

impl Graft {
    pub fn new(said: &Said, begun: String) -> Self {
        let (text, held) = (said.text.clone(), Some(String::new()));
        Self { open: said.open, offset: None, next: said.next, text, begun, held }
    }

    /// A frame of content as the client is to see it: none, one, or several.
    pub fn content(&mut self, frame: &Frame) -> Option<VecDeque<Bytes>> {
        let mut out = VecDeque::new();
        match Event::parse(&frame.data()).ok()? {
            Event::BlockStart(mut start) => {
                if self.offset.is_none()
                    && let (Some(open), Block::Text(text)) = (self.open, &start.content_block)
                {
                    // It goes on in the block that is open.
                    self.offset = Some(open - start.index.min(open));
                    self.say(open, &text.text.clone(), &mut out);
                    return Some(out);
                }
                self.close(&mut out);
                let offset = *self.offset.get_or_insert(self.next);
                start.index += offset;
                self.open = Some(start.index);
                self.next = start.index + 1;
                if !matches!(start.content_block, Block::Text(_)) {
                    self.decide(&mut out);
                }
                push(&Event::BlockStart(start), &mut out);
            }
            Event::BlockDelta(mut delta) => {
                delta.index += self.offset.unwrap_or(self.next);
                match &delta.delta {
                    Delta::Text(text) => self.say(delta.index, &text.text.clone(), &mut out),
                    _ => push(&Event::BlockDelta(delta), &mut out),
                }
            }
            Event::BlockStop(_) => self.close(&mut out),
            _ => return None,
        }
        Some(out)
    }

    /// The end of the answer: what is open is closed.
    pub fn close(&mut self, out: &mut VecDeque<Bytes>) {
        self.decide(out);
        if let Some(open) = self.open.take() {
            push(&Event::block_stop(open), out);
        }
    }

    /// Text for the client, without what it has heard.
    fn say(&mut self, index: usize, text: &str, out: &mut VecDeque<Bytes>) {
        let Some(held) = &mut self.held else {
            speak(index, text, out);
            return;
        };
        held.push_str(text);
        let prefix = self.text.trim_end();
        let blank = &self.text[prefix.len()..];
        let all = (!self.begun.is_empty()).then(|| format!("{}{prefix}", self.begun));
        // What is short may well be said again because it goes on like that.
        let is_long = |text: &&str| text.chars().nth(REPETITION - 1).is_some();
        let repeated: SmallVec<[&str; 2]> = all.as_deref().into_iter().chain([prefix]).filter(is_long).collect();
        if repeated.iter().any(|text| text.starts_with(held.as_str()) && held.len() < text.len()) {
            return;
        }
        let rest = repeated.iter().find_map(|text| held.strip_prefix(text)).unwrap_or(held);
        // White space at the end was sent, and upstreams were not told of it.
        if rest.len() < blank.len() && blank.starts_with(rest) {
            return;
        }
        let rest = rest.strip_prefix(blank).unwrap_or(rest).to_owned();
        self.held = None;
        speak(index, &rest, out);
    }

    /// What was held is no repetition after all.
    fn decide(&mut self, out: &mut VecDeque<Bytes>) {
        if let (Some(held), Some(open)) = (self.held.take(), self.open) {
            speak(open, &held, out);
        }
    }
}

/// How an answer ended, with what all attempts at it used.
pub(super) fn with_carried(delta: &[u8], carried: &Usage) -> Option<Bytes> {
    let Event::MessageDelta(mut delta) = Event::parse(delta).ok()? else { return None };
    let usage = delta.usage.as_mut()?;
    let sum = |own: &mut Option<Option<u64>>, carried: u64| {
        if carried > 0 {
            *own = Some(Some(own.flatten().unwrap_or(0).saturating_add(carried)));
        }
    };
    sum(&mut usage.input_tokens, carried.input);
    sum(&mut usage.cache_read_input_tokens, carried.cache_read);
    sum(&mut usage.cache_creation_input_tokens, carried.cache_write.saturating_add(carried.cache_write_1h));
    usage.output_tokens = Some(usage.output_tokens.unwrap_or(0).saturating_add(carried.output));
    Some(encoded(&Event::MessageDelta(delta)))
}

fn speak(index: usize, text: &str, out: &mut VecDeque<Bytes>) {
    if !text.is_empty() {
        let delta = Delta::Text(tidegate_wire::messages::TextDelta::new(text.to_owned()));
        push(&Event::block_delta(index, delta), out);
    }
}

fn push(event: &Event, out: &mut VecDeque<Bytes>) {
    out.push_back(encoded(event));
}

pub(super) fn encoded(event: &Event) -> Bytes {
    let mut bytes = BytesMut::new();
    event.encode(&mut bytes);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn frame(event: Value) -> Frame {
        let kind = event["type"].as_str().unwrap().to_owned();
        Frame(super::super::pump::encoded(&kind, event.to_string().as_bytes()))
    }

    fn start(index: usize) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}})
    }

    fn delta(index: usize, text: &str) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})
    }

    fn stop(index: usize) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    fn sent(events: &[Value]) -> Sent {
        let mut sent = Sent::default();
        for event in events {
            sent.add(&frame(event.clone()).0);
        }
        sent
    }

    /// The text that a client ends up with in each block, when a stream broke and another one went on.
    fn joined(first: &[Value], second: &[Value]) -> Vec<String> {
        joined_behind("", first, second)
    }

    /// The same of an answer that the caller had begun.
    fn joined_behind(begun: &str, first: &[Value], second: &[Value]) -> Vec<String> {
        let mut graft = Graft::new(sent(first).said().unwrap(), begun.to_owned());
        let mut sent: VecDeque<Bytes> = first.iter().map(|event| frame(event.clone()).0).collect();
        for event in second {
            sent.extend(graft.content(&frame(event.clone())).unwrap());
        }
        graft.close(&mut sent);
        let mut splitter = Splitter::new(LONGEST);
        splitter.feed(Bytes::from(Vec::from(sent).concat()));
        let (mut blocks, mut open) = (Vec::<String>::new(), None);
        while let Some(frame) = splitter.next().unwrap() {
            match Event::parse(&frame.data()).unwrap() {
                Event::BlockStart(start) => {
                    assert_eq!((open, start.index), (None, blocks.len()), "blocks come one after the other");
                    open = Some(start.index);
                    blocks.push(String::new());
                }
                Event::BlockDelta(delta) => {
                    assert_eq!(open, Some(delta.index));
                    let Delta::Text(text) = delta.delta else { panic!("only text was sent") };
                    blocks[delta.index].push_str(&text.text);
                }
                Event::BlockStop(stop) => assert_eq!(open.take(), Some(stop.index)),
                _ => {}
            }
        }
        assert_eq!(open, None, "every block is closed");
        blocks
    }

    #[test]
    fn text_goes_on_in_the_block_that_is_open() {
        let first = [start(0), delta(0, "The cat"), delta(0, " sat")];
        let second = [start(0), delta(0, " on the"), delta(0, " mat."), stop(0)];
        assert_eq!(joined(&first, &second), ["The cat sat on the mat."]);
    }

    #[test]
    fn text_goes_on_in_a_new_block_when_the_last_one_was_closed() {
        let first = [start(0), delta(0, "One."), stop(0)];
        let second = [start(0), delta(0, "Two."), stop(0), start(1), delta(1, "Three."), stop(1)];
        assert_eq!(joined(&first, &second), ["One.", "Two.", "Three."]);
        let open = [start(0), delta(0, "One"), stop(0), start(1), delta(1, "Tw")];
        let second = [start(0), delta(0, "o"), stop(0), start(1), delta(1, "Three"), stop(1)];
        assert_eq!(joined(&open, &second), ["One", "Two", "Three"]);
    }

    #[test]
    fn what_is_said_again_is_cut_off_wherever_it_is_split() {
        let (said, whole) = ("The old cat sat ", "The old cat sat on the mat, the cat sat.");
        assert_eq!(
            joined(&[start(0), delta(0, said)], &[start(0), delta(0, whole), stop(0)]),
            [[said, whole].concat()]
        );
        let (said, whole) = ("The old grey cat sat ", "The old grey cat sat on the mat, the cat sat.");
        let first = [start(0), delta(0, said)];
        for cut in 1..whole.len() {
            let second = [start(0), delta(0, &whole[..cut]), delta(0, &whole[cut..]), stop(0)];
            assert_eq!(joined(&first, &second), [whole], "{cut}");
        }
        // A beginning that only looks like it.
        let second = [start(0), delta(0, "The o"), delta(0, "wl"), stop(0)];
        assert_eq!(joined(&first, &second), ["The old grey cat sat The owl"]);
        let second = [start(0), delta(0, "The o"), stop(0)];
        assert_eq!(joined(&first, &second), ["The old grey cat sat The o"]);
        // Short ones are said again because that is how it goes on.
        for (said, more, expected) in
            [("ha", "ha ha!", "haha ha!"), ("1", "12", "112"), ("One two ", "One two", "One two One two")]
        {
            let second = [start(0), delta(0, more), stop(0)];
            assert_eq!(joined(&[start(0), delta(0, said)], &second), [expected]);
        }
    }

    #[test]
    fn white_space_that_no_upstream_is_told_of_is_not_sent_twice() {
        let first = [start(0), delta(0, "One,\n\n")];
        for (next, expected) in [("two", "One,\n\ntwo"), ("\n\ntwo", "One,\n\ntwo"), ("\n", "One,\n\n\n")] {
            let second = [start(0), delta(0, next), stop(0)];
            assert_eq!(joined(&first, &second), [expected], "{next:?}");
        }
    }

    #[test]
    fn an_answer_that_says_nothing_more_is_closed_all_the_same() {
        assert_eq!(joined(&[start(0), delta(0, "All.")], &[]), ["All."]);
        assert_eq!(joined(&[], &[start(0), delta(0, "Anew."), stop(0)]), ["Anew."]);
        assert_eq!(joined(&[start(0)], &[start(0), delta(0, "Anew."), stop(0)]), ["Anew."]);
    }

    fn thinking() -> [Value; 3] {
        let piece = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
        [
            json!({"type": "content_block_start", "index": 0, "content_block":
                {"type": "thinking", "thinking": "", "signature": ""}}),
            piece(json!({"type": "thinking_delta", "thinking": "hm"})),
            piece(json!({"type": "signature_delta", "signature": "s"})),
        ]
    }

    #[test]
    fn who_repeats_what_the_caller_had_begun_as_well_is_not_heard_twice() {
        let tale = "the cat sat on the mat and looked at the moon over the sea";
        let first = [start(0), delta(0, tale)];
        for echo in [format!("Well, {tale}"), tale.to_owned(), String::new()] {
            let whole = format!("{echo} and slept.");
            for cut in 0..=whole.len() {
                let second = [start(0), delta(0, &whole[..cut]), delta(0, &whole[cut..]), stop(0)];
                let text = joined_behind("Well, ", &first, &second);
                assert_eq!(text, [format!("{tale} and slept.")], "{echo:?}, cut at {cut}");
            }
        }
        let other = [start(0), delta(0, "Well, no. The end."), stop(0)];
        assert_eq!(joined_behind("Well, ", &first, &other), [format!("{tale}Well, no. The end.")]);
    }

    #[test]
    fn text_after_a_thought_that_is_over_is_gone_on_with() {
        let first = [&thinking()[..], &[stop(0), start(1), delta(1, "The cat")]].concat();
        let mut heard = sent(&first);
        let said = heard.said().unwrap().clone();
        assert_eq!((&*said.text, said.open, said.next), ("The cat", Some(1), 2));
        let request = json!({"model": "m", "max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 50},
            "messages": [{"role": "user", "content": "hi"}]});
        let continued = said.continued(serde_json::from_str(&request.to_string()).unwrap(), 0).unwrap();
        assert!(continued.thinking.is_none() && continued.messages.len() == 2);
        let mut graft = Graft::new(&said, String::new());
        let second = [start(0), delta(0, " sat"), stop(0)];
        let out: Vec<Bytes> = second.iter().flat_map(|event| graft.content(&frame(event.clone())).unwrap()).collect();
        let wanted = [delta(1, " sat"), stop(1)].map(|event| frame(event).0);
        assert_eq!(out, wanted);
    }

    #[test]
    fn thoughts_alone_tools_and_ends_are_not_gone_on_with() {
        let [thinking, thought, signed] = thinking();
        let tool = json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "tool_use", "id": "t", "name": "n", "input": {}}});
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}});
        let again = json!({"type": "content_block_start", "index": 1, "content_block":
            {"type": "redacted_thinking", "data": "x"}});
        for events in [
            vec![thinking.clone(), thought.clone()],
            vec![thinking, thought, signed, stop(0)],
            vec![start(0), delta(0, "a"), stop(0), again],
            vec![start(0), delta(0, "a"), stop(0), tool],
            vec![start(0), stop(0), end],
        ] {
            assert_eq!(sent(&events).said(), None, "{events:?}");
        }
        let mut long = sent(&[start(0)]);
        (0..300).for_each(|_| long.add(&frame(delta(0, &"x".repeat(1_000))).0));
        assert_eq!(long.said(), None);
    }

    #[test]
    fn a_long_answer_is_kept_as_its_text() {
        let mut long = sent(&[start(0)]);
        for _ in 0..10_000 {
            long.add(&frame(delta(0, "word ")).0);
            assert!(long.bytes.len() <= UNREAD + 200 && !long.is_lost);
        }
        assert_eq!(long.said().unwrap().text, "word ".repeat(10_000));
    }

    #[test]
    fn the_request_ends_with_what_was_said() {
        let request = |messages: Value| -> Request {
            serde_json::from_value(json!({"model": "m", "max_tokens": 100, "messages": messages})).unwrap()
        };
        let said = Said { text: "So far \n".to_owned(), open: Some(0), next: 1, ..Said::default() };
        let messages = |request: Request| serde_json::to_value(&request).unwrap()["messages"].clone();
        let user = json!({"role": "user", "content": "hi"});
        let continued = said.continued(request(json!([user])), 30).unwrap();
        assert_eq!(continued.max_tokens, Some(70));
        assert_eq!(messages(continued), json!([user, {"role": "assistant", "content": "So far"}]));
        let begun = json!([user, {"role": "assistant", "content": "Well. "}]);
        let expected = json!([user, {"role": "assistant", "content": "Well. So far"}]);
        assert_eq!(messages(said.continued(request(begun), 0).unwrap()), expected);
        assert_eq!(messages(Said::default().continued(request(json!([user])), 99).unwrap()), json!([user]));
        assert!(said.continued(request(json!([user])), 100).is_none(), "nothing is left to be produced");
        assert_eq!(said.tokens(|text| text.len() as u64), Some(8));
        assert_eq!(Said { has_thought: true, ..said }.tokens(|_| 1), None, "thoughts are not kept");
    }
}
