//! An answer that is decided and not yet written: what a protocol turns into bytes.

use std::borrow::Cow;

use crate::content::{Block, Ending};
use crate::quirk::Quirk;
use crate::state::State;

pub(crate) struct Said<'a> {
    /// The request's number; ids are made of it.
    pub id: usize,
    pub model: &'a str,
    pub body: Body,
    pub ending: Ending,
    /// Without what the cache holds.
    pub input_tokens: u64,
    pub cache: Cache,
    pub quirk: Option<Quirk>,
    pub state: &'a State,
}

pub(crate) enum Body {
    Blocks(Vec<Block>),
    /// Kept as a shape: a protocol may have it rendered already.
    Tokens {
        count: usize,
        bytes: usize,
    },
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Cache {
    pub read: u64,
    pub write_5m: u64,
    pub write_1h: u64,
}

/// Counts as most vendors give them: the input includes what the cache holds.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub input: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// With thinking.
    pub output: u64,
    pub thinking: u64,
}

impl Said<'_> {
    pub fn blocks(&self) -> Cow<'_, [Block]> {
        match &self.body {
            Body::Blocks(blocks) => Cow::Borrowed(blocks),
            Body::Tokens { count, bytes } => Cow::Owned(tokens(*count, *bytes)),
        }
    }

    pub fn is(&self, quirk: Quirk) -> bool {
        self.quirk == Some(quirk)
    }

    pub fn usage(&self) -> Usage {
        let (mut output, mut thinking) = (0, 0);
        for block in self.blocks().iter() {
            let (all, thought) = block.tokens();
            output += all;
            thinking += thought;
        }
        let Cache { read, write_5m, write_1h } = self.cache;
        let cache_write = write_5m.saturating_add(write_1h);
        let input = self.input_tokens.saturating_add(read).saturating_add(cache_write);
        Usage { input, cache_read: read, cache_write, output, thinking }
    }
}

/// `count` deltas of `bytes` bytes each: words with the space before them.
pub(crate) fn tokens(count: usize, bytes: usize) -> Vec<Block> {
    let delta: String = " tidegate".chars().cycle().take(bytes).collect();
    vec![Block::Text(vec![delta; count])]
}
