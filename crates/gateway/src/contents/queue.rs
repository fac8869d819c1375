//! What waits to be written, within two bounds.

use std::collections::VecDeque;

/// What may wait: so many requests, and so many bytes of them.
const MOST: usize = 4_096;
const MOST_BYTES: usize = 64 << 20;

pub(super) struct Queue<T> {
    waiting: VecDeque<(T, usize)>,
    bytes: usize,
    /// How many ever came in.
    taken: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, taken: 0 }
    }
}

impl<T> Queue<T> {
    /// Whether there is room for it. What is larger than all room fits where nothing else waits.
    pub fn push(&mut self, item: T, bytes: usize) -> bool {
        let is_full = self.waiting.len() >= MOST || (!self.waiting.is_empty() && self.bytes + bytes > MOST_BYTES);
        if !is_full {
            self.waiting.push_back((item, bytes));
            self.bytes += bytes;
            self.taken += 1;
        }
        !is_full
    }

    /// At most so many of the oldest.
    pub fn pop(&mut self, most: usize) -> Vec<T> {
        let count = self.waiting.len().min(most);
        let popped: Vec<(T, usize)> = self.waiting.drain(..count).collect();
        self.bytes -= popped.iter().map(|(_, bytes)| bytes).sum::<usize>();
        popped.into_iter().map(|(item, _)| item).collect()
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_bounded_in_number() {
        let mut queue = Queue::default();
        assert!((0..MOST).all(|number| queue.push(number, 1)));
        assert!(!queue.push(MOST, 1));
        assert_eq!(queue.pop(2), [0, 1]);
        assert!(queue.push(1, 1) && queue.push(2, 1) && !queue.push(3, 1));
        assert_eq!(queue.taken(), MOST as u64 + 2, "what was refused never came in");
    }

    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let mut queue = Queue::default();
        assert!(queue.push("a", MOST_BYTES - 10) && !queue.push("b", 11) && queue.push("c", 10));
        assert_eq!(queue.pop(1), ["a"]);
        assert!(queue.push("d", MOST_BYTES - 10) && !queue.push("e", 1));
        assert_eq!(queue.pop(9), ["c", "d"]);
        assert!(queue.push("f", 2 * MOST_BYTES), "alone it fits");
    }
}
