//! Events of blocks that must wait for another one's end. Each waits with those of its own block, so that none of them
//! overtakes the beginning of its block, and each is looked at once more, however many wait.

use std::collections::{HashMap, VecDeque};

/// Bytes that wait at most: an upstream may leave a block open for good.
const MOST: usize = 4 << 20;

/// What an event takes beside its data.
const EACH: usize = 64;

/// An event's name and its data.
pub(super) type Event = (String, Vec<u8>);

#[derive(Debug, Default)]
pub(super) struct Held {
    /// Numbers of the blocks, in the order in which they were first heard of.
    order: VecDeque<Option<u64>>,
    events: HashMap<Option<u64>, Vec<Event>>,
    bytes: usize,
}

impl Held {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes > MOST
    }

    /// Whether anything of this block waits.
    pub fn has(&self, block: Option<u64>) -> bool {
        self.events.contains_key(&block)
    }

    pub fn push(&mut self, block: Option<u64>, kind: &str, data: &[u8]) {
        self.bytes += data.len() + EACH;
        let events = self.events.entry(block).or_insert_with(|| {
            self.order.push_back(block);
            Vec::new()
        });
        events.push((kind.to_owned(), data.to_vec()));
    }

    /// Everything of the block that has waited longest; nothing when none does.
    pub fn pop(&mut self) -> Option<Vec<Event>> {
        let events = self.events.remove(&self.order.pop_front()?).unwrap_or_default();
        self.bytes -= events.iter().map(|(_, data)| data.len() + EACH).sum::<usize>();
        Some(events)
    }
}
