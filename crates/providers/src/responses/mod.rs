//! The Responses protocol. It is used without its memory: the whole conversation goes out each time, and nothing is stored.

mod answer;
mod input;
mod request;
mod stream;

pub use answer::message;
pub use request::request;
pub use stream::Decoder;

/// The name under which this protocol's reasoning is carried.
pub const PROTOCOL: &str = "responses";
