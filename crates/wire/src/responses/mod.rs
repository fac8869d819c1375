//! The Responses format at our own door: a request in it becomes one in the Messages format, and what is answered comes
//! back in it, whole or streamed. Nothing is stored: a conversation comes whole with every request.

mod answer;
mod input;
mod item;
pub(crate) mod ran;
mod request;
mod stream;
mod tools;
mod usage;

pub use answer::{cut_short, whole};
pub use ran::Results;
pub use request::{Asked, read};
pub use stream::Stream;

pub use crate::chat::Head;

/// How the caller wants to be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// What the answer repeats of the request: members of an object, as JSON.
    pub echo: String,
    /// Tools that take a text and no object.
    pub custom: Vec<String>,
    /// Tools that stand in groups.
    pub grouped: Vec<Grouped>,
    /// The client itself looks for tools.
    pub finds: bool,
    /// The model as the caller wrote it: all that is known until one answers.
    pub model: String,
    /// The name before those of the gateway's own tools.
    pub brand: String,
}

/// A tool of a group, and what it is called where there are no groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouped {
    pub called: String,
    pub group: String,
    pub name: String,
}

/// What is before the signature of a thought in what clients keep of it without reading.
const SIGNED: &str = "tgr1.s.";
/// The same before a thought that only its author can read.
const SEALED: &str = "tgr1.d.";

#[cfg(test)]
mod tests;
