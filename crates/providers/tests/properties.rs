//! What holds for any input: nothing that was said is lost or said twice on its way up, no stream of bytes breaks the
//! grammar of what comes down, and no token is counted in two places.

#![expect(clippy::unwrap_used, reason = "what cannot be read is a failed test")]

#[path = "golden/run.rs"]
#[expect(dead_code, reason = "the golden tests use more of it")]
mod run;

#[path = "properties/asked.rs"]
mod asked;
#[path = "properties/quirks.rs"]
mod quirks;
#[path = "properties/sent.rs"]
mod sent;
#[path = "properties/streams.rs"]
mod streams;
#[path = "properties/tokens.rs"]
mod tokens;

use tidegate_providers::Protocol;

const PROTOCOLS: [Protocol; 5] =
    [Protocol::Chat, Protocol::Responses, Protocol::Gemini, Protocol::Converse, Protocol::Cohere];
