//! What the bytes look like: our API and each vendor's format.
//!
//! The crate reads and writes bytes and nothing else: no I/O, no clock, no knowledge of routing, storage or our other
//! crates. A request that can be forwarded as it came is only *looked at* ([`envelope`]), cut and spliced ([`splice`]);
//! typed objects ([`messages`]) exist for translation and keep every member and kind they do not know.
//! Start with [`envelope::read`] for requests, [`answer`] for answers and [`sse`] for streams.

pub mod answer;
pub mod chat;
pub mod envelope;
pub mod error;
pub mod json;
pub mod messages;
pub mod object;
pub mod preset;
pub mod responses;
pub mod splice;
pub mod sse;
