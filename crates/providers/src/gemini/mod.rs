//! Gemini's own protocol, `generateContent`, as Google AI Studio and Vertex AI speak it.

mod answer;
mod contents;
mod dummy;
mod grounding;
pub(crate) mod inline;
mod partial;
mod request;
mod stream;

pub use answer::message;
pub use dummy::with_encoded_dummy;
pub use request::request;
pub use stream::Decoder;

/// The name under which this protocol's reasoning is carried.
pub(crate) const PROTOCOL: &str = "gemini";

#[cfg(test)]
mod tests;
