//! Amazon Bedrock's Converse, through which all of its models can be asked.

mod answer;
mod blocks;
mod citation;
mod documents;
mod request;
mod stream;
mod tools;

pub use answer::message;
pub use request::request;
pub use stream::Decoder;

/// The name under which this protocol's reasoning is carried.
pub(crate) const PROTOCOL: &str = "converse";

#[cfg(test)]
mod tests;
