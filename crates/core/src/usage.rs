//! What an answer consumed, in disjoint buckets.

/// Token counts of one answer. `input` excludes what was read from or written to a cache; `output` includes thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    /// Written with the five-minute lifetime, or with one the upstream did not name.
    pub cache_write: u64,
    pub cache_write_1h: u64,
    /// Part of `output`.
    pub thinking: u64,
    pub web_searches: u64,
    pub web_fetches: u64,
}

impl Usage {
    /// Everything the model had to read.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write).saturating_add(self.cache_write_1h)
    }
}
