//! Cohere's chat protocol, version 2.

mod answer;
mod request;
mod stream;

pub use answer::message;
pub use request::request;
pub use stream::Decoder;

/// The name under which this protocol's reasoning is carried.
pub const PROTOCOL: &str = "cohere";
