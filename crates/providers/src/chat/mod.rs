//! The Chat Completions protocol and its many dialects. What differs between them is on the card, not in the code.

mod answer;
mod merge;
mod reasoning;
mod request;
mod salvage;
mod sources;
mod stream;

pub use answer::message;
pub use merge::words_in_results;
pub use request::request;
pub use salvage::salvage;
pub use stream::Decoder;

/// The name under which this protocol's reasoning is carried.
pub(crate) const PROTOCOL: &str = "chat";

#[cfg(test)]
mod tests;
