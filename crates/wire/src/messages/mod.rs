//! The Messages format, typed for translation: requests, blocks, tools, answers and stream events.
//!
//! Requests and answers share [`Block`], since clients send answers back unchanged. Members and kinds not named here
//! survive (see [`crate::object`]); what a request may *not* contain is decided by [`crate::envelope`], not by these
//! types. Kinds that carry the service's brand arrive as `Other`, because the brand is configuration:
//! [`Other::branded`](crate::object::Other::branded) recognises them, [`BrandedResult`] and [`BrandedTool`] read them.

mod block;
mod event;
mod misfit;
mod request;
mod response;
mod result;
mod source;
mod tool;

pub use block::*;
pub use event::*;
pub use misfit::Misfit;
pub use request::*;
pub use response::*;
pub use result::*;
pub use source::*;
pub use tool::*;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::object::{object, words};

/// Text, or blocks; which of the two is kept as it came.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

impl Content {
    /// Neither text nor blocks, which counts as absent where content is optional.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Blocks(blocks) => blocks.is_empty(),
        }
    }

    /// The blocks this content stands for: text is shorthand for one text block.
    pub fn into_blocks(self) -> Vec<Block> {
        match self {
            Self::Text(text) => vec![Block::Text(Text::new(text))],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = Content;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string or an array of blocks")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Content, A::Error> {
                let mut read = Vec::with_capacity(blocks.size_hint().unwrap_or(0));
                loop {
                    let block = blocks.next_element();
                    // Which of them it is, is asked only where one cannot be read.
                    let block = block.map_err(|error| de::Error::custom(format_args!("[{}]: {error}", read.len())))?;
                    let Some(block) = block else { break };
                    read.push(block);
                }
                Ok(Content::Blocks(read))
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Blocks(blocks) => blocks.serialize(serializer),
        }
    }
}

words! {
    /// Who speaks. `System` among the messages is an instruction inserted mid-conversation.
    pub enum Role { "user" => User, "assistant" => Assistant, "system" => System }
}

object! {
    /// A cache breakpoint: everything up to and including its place may be cached.
    pub struct CacheControl as "ephemeral" {
        optional {
            /// `5m` when absent.
            ttl: String,
        }
    }
}
