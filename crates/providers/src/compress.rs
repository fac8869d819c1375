//! Makes a conversation fit a window by taking from its middle: whole turns first, then the middle of long texts. A call
//! and its results go together or stay together.
//!
//! Never touched: the system prompt, tools, the first words of the first user message, the last user message and all
//! behind it, and thinking.

use std::collections::HashMap;
use std::ops::Range;

use tidegate_wire::messages::{Block, Content, Message, Request, Role, Source};

use crate::estimate::Meter;
use crate::translate::Card;
use crate::translate::conversation::since_summary;

/// Tokens of the first user message that stay.
const FIRST_WORDS: u64 = 256;
/// Tokens of the line that stands for what was cut.
const MARKER: u64 = 24;

/// A conversation that was made shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Compressed {
    pub request: Request,
    /// Messages and tokens, before and after.
    pub original: (usize, u64),
    pub compressed: (usize, u64),
}

/// The request with no more messages than `most` and, as far as it may be touched, no more tokens than `budget`; nothing
/// where it is so already.
pub fn middle_out(request: &Request, card: &Card, budget: u64, most: Option<usize>) -> Option<Compressed> {
    let request = &*since_summary(request);
    let meter = Meter::of(request, card);
    let around = meter.around(request);
    let weights: Vec<u64> = request.messages.iter().map(|message| meter.message(message)).collect();
    let before = around + weights.iter().sum::<u64>();
    let is_many = |count: usize| most.is_some_and(|most| count > most);
    if before <= budget && !is_many(weights.len()) {
        return None;
    }
    let bounds = Bounds::of(&request.messages);
    let (mut count, mut tokens) = (weights.len(), before);
    let mut gone = vec![false; count];
    let units = bounds.droppable(&request.messages);
    // Of too many messages both halves stay, whatever they say; what is too long loses an answer with its question.
    let by_count = units.iter().map(|unit| (unit, true));
    let exchanges = bounds.droppable_together(&units, &request.messages);
    for (unit, is_counted) in by_count.chain(exchanges.iter().map(|unit| (unit, false))) {
        if (is_counted && !is_many(count)) || (!is_counted && tokens <= budget) {
            continue;
        }
        for place in unit.clone().filter(|place| !std::mem::replace(&mut gone[*place], true)) {
            count -= 1;
            tokens -= weights[place];
        }
    }
    let mut made = request.clone();
    if tokens > budget {
        cut_texts(&mut made.messages, &gone, &bounds, &meter, tokens - budget);
    }
    let mut gone = gone.into_iter();
    made.messages.retain(|_| !gone.next().unwrap_or(false));
    let after = around + made.messages.iter().map(|message| meter.message(message)).sum::<u64>();
    let changed = made.messages.len() < weights.len() || after < before;
    let (original, compressed) = ((weights.len(), before), (made.messages.len(), after));
    changed.then_some(Compressed { request: made, original, compressed })
}

/// Whether there is anything before the last user message that could give way.
pub fn is_possible(request: &Request) -> bool {
    Bounds::of(&request.messages).last_user > 0
}

/// The tokens of a request, as they are counted here.
pub fn tokens(request: &Request, card: &Card) -> u64 {
    let request = &*since_summary(request);
    let meter = Meter::of(request, card);
    meter.around(request) + request.messages.iter().map(|message| meter.message(message)).sum::<u64>()
}

/// Where the untouched ends lie.
struct Bounds {
    first_user: usize,
    /// The last user message; it and all behind it stays.
    last_user: usize,
}

impl Bounds {
    fn of(messages: &[Message]) -> Self {
        let is_user = |message: &Message| message.role == Role::User;
        let first_user = messages.iter().position(is_user).unwrap_or(messages.len());
        let last_user = messages.iter().rposition(is_user).unwrap_or(0);
        Self { first_user, last_user }
    }

    fn keeps(&self, place: usize, message: &Message) -> bool {
        message.role == Role::System || place <= self.first_user || place >= self.last_user
    }

    /// What may be dropped, the middle first.
    fn droppable(&self, messages: &[Message]) -> Vec<Range<usize>> {
        let is_kept = |unit: &Range<usize>| unit.clone().any(|place| self.keeps(place, &messages[place]));
        let mut units: Vec<Range<usize>> = units(messages).into_iter().filter(|unit| !is_kept(unit)).collect();
        Self::from_the_middle(&mut units, messages);
        units
    }

    /// The same, where a question and its answer go together: left alone, the answer would be taken for one to another
    /// question.
    fn droppable_together(&self, units: &[Range<usize>], messages: &[Message]) -> Vec<Range<usize>> {
        let is_one = |unit: &Range<usize>, role: Role| unit.len() == 1 && messages[unit.start].role == role;
        let mut units = units.to_vec();
        units.sort_by_key(|unit| unit.start);
        let mut together: Vec<Range<usize>> = Vec::with_capacity(units.len());
        for unit in units {
            match together.last_mut() {
                Some(last) if last.end == unit.start && is_one(last, Role::User) && is_one(&unit, Role::Assistant) => {
                    last.end = unit.end;
                }
                _ => together.push(unit),
            }
        }
        Self::from_the_middle(&mut together, messages);
        together
    }

    fn from_the_middle(units: &mut [Range<usize>], messages: &[Message]) {
        // Twice the middle of the list, and of each unit: whole numbers do.
        let middle = messages.len();
        units.sort_by_key(|unit| (unit.start + unit.end).abs_diff(middle));
    }
}

/// Messages that only make sense together: a call, its results and what stands between them.
fn units(messages: &[Message]) -> Vec<Range<usize>> {
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut units: Vec<Range<usize>> = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        let mut start = place;
        if let Content::Blocks(blocks) = &message.content {
            for block in blocks {
                match block {
                    Block::ToolUse(call) => drop(calls.insert(&call.id, place)),
                    Block::ToolResult(result) => {
                        start = calls.get(result.tool_use_id.as_str()).copied().unwrap_or(place).min(start);
                    }
                    _ => {}
                }
            }
        }
        // Earlier units that begin behind the call are between it and its result.
        while let Some(last) = units.last().filter(|last| last.end > start) {
            start = start.min(last.start);
            units.pop();
        }
        units.push(start..place + 1);
    }
    units
}

/// A text that may be cut, as it was.
struct Slot {
    message: usize,
    /// Its place among the texts of the message.
    text: usize,
    original: String,
    tokens: u64,
    /// Tokens at its head that stay.
    head: u64,
    removed: u64,
    now: u64,
}

impl Slot {
    fn most(&self) -> u64 {
        self.tokens.saturating_sub(self.head + MARKER)
    }
}

fn cut_texts(messages: &mut [Message], gone: &[bool], bounds: &Bounds, meter: &Meter<'_>, mut excess: u64) {
    let mut slots = Vec::new();
    for (place, message) in messages.iter_mut().enumerate() {
        if gone[place] || message.role == Role::System || place >= bounds.last_user {
            continue;
        }
        let mut head = if place == bounds.first_user { FIRST_WORDS } else { 0 };
        for (text, original) in texts(message).into_iter().enumerate() {
            let tokens = meter.text(original);
            let original = original.clone();
            slots.push(Slot {
                message: place,
                text,
                original,
                tokens,
                head: head.min(tokens),
                removed: 0,
                now: tokens,
            });
            head = head.saturating_sub(tokens);
        }
    }
    while excess > 0 {
        let open = slots.iter_mut().filter(|slot| slot.removed < slot.most());
        let Some(slot) = open.max_by_key(|slot| slot.now) else { return };
        slot.removed = (slot.removed + excess + MARKER).min(slot.most());
        let cut = cut(slot, meter);
        let tokens = meter.text(&cut);
        excess = (excess + tokens).saturating_sub(slot.now);
        slot.now = tokens;
        if let Some(text) = texts(&mut messages[slot.message]).into_iter().nth(slot.text) {
            *text = cut;
        }
    }
}

/// Texts that are nobody's thoughts.
fn texts(message: &mut Message) -> Vec<&mut String> {
    let mut found = Vec::new();
    texts_in(&mut message.content, &mut found);
    found
}

fn texts_in<'m>(content: &'m mut Content, found: &mut Vec<&'m mut String>) {
    match content {
        Content::Text(text) => found.push(text),
        Content::Blocks(blocks) => {
            for block in blocks {
                match block {
                    Block::Text(block) => found.push(&mut block.text),
                    Block::ToolResult(result) => {
                        if let Some(content) = &mut result.content {
                            texts_in(content, found);
                        }
                    }
                    Block::Document(document) => {
                        if let Source::Text(source) = &mut document.source {
                            found.push(&mut source.data);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The text without so many tokens of its middle.
fn cut(slot: &Slot, meter: &Meter<'_>) -> String {
    let text = &slot.original;
    let left = slot.tokens.saturating_sub(slot.removed + MARKER);
    let half = left / 2;
    let (head, tail) = if slot.head > half { (slot.head, left.saturating_sub(slot.head)) } else { (left - half, half) };
    let mut start = upto(text, head, slot.tokens, |place| meter.text(&text[..place]));
    // The first words are all there, and a few more rather than one less.
    while slot.head > 0 && start < text.len() && meter.text(&text[..start]) < slot.head {
        start = text.ceil_char_boundary((start + start / 16 + 8).min(text.len()));
    }
    let behind = &text[start..];
    let end = upto(behind, tail, slot.tokens.min(meter.text(behind)), |place| {
        meter.text(&behind[behind.ceil_char_boundary(behind.len() - place)..])
    });
    let end = behind.ceil_char_boundary(behind.len() - end);
    let removed = meter.text(&behind[..end]);
    format!("{}[… {removed} tokens removed …]{}", &text[..start], &behind[end..])
}

/// How many bytes so many tokens take, at most; `count` says how many tokens so many bytes have.
fn upto(text: &str, tokens: u64, of: u64, count: impl Fn(usize) -> u64) -> usize {
    if tokens == 0 || of == 0 {
        return 0;
    }
    let guess = (text.len() as u128 * u128::from(tokens.min(of)) / u128::from(of)) as usize;
    let mut place = text.floor_char_boundary(guess);
    while place > 0 && count(place) > tokens {
        place = text.floor_char_boundary(place - place.div_ceil(8).min(place));
    }
    place
}

#[cfg(test)]
#[path = "compress_tests.rs"]
mod tests;
