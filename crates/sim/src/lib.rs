//! Simulated upstreams: an HTTP server that plays the providers a gateway talks to.
//!
//! It serves three readers: end-to-end tests (as a library or as a child process), the demo provider
//! of `tidegate serve`, and benchmarks. It must not know the gateway: what it sends follows the
//! vendors' public formats, so that a mistake on the other side shows instead of being mirrored here.
//!
//! Start reading at [`Sim`] (a running server), [`Script`] (what it does) and [`Behaviour`] (one answer).
//! `content` decides what an answer says, for all protocols alike; each protocol has a module of its own that
//! reads requests and writes answers; `play` ties them together and `body` turns a script's faults into what
//! happens on the wire.
//!
//! | Route | |
//! |---|---|
//! | `POST /v1/messages` | Anthropic's Messages protocol, streamed or not |
//! | `POST /v1/messages/count_tokens` | `{"input_tokens": N}` |
//! | `POST …/chat/completions` | OpenAI's Chat Completions, under any prefix: `/v1`, Azure's deployments |
//! | `POST …/responses` | OpenAI's Responses, under any prefix |
//! | `POST …/responses/input_tokens` | `{"object": "response.input_tokens", "input_tokens": N}` |
//! | `POST …/images/generations` | OpenAI's call that makes pictures, under any prefix |
//! | `POST …/embeddings` | OpenAI's call for embeddings, under any prefix; `/v2/embed` is Cohere's |
//! | `POST …/rerank` | ranks documents, under any prefix; `/v2/rerank` is Cohere's |
//! | `POST …/audio/speech` | speaks a text, under any prefix: a sample for each character |
//! | `POST …/audio/transcriptions` | says how large a recording is, under any prefix |
//! | `POST …/models/{m}:batchEmbedContents` | Gemini's call for embeddings |
//! | `POST …/models/{m}:generateContent` | Gemini, under any prefix: AI Studio's and Vertex AI's |
//! | `POST …/models/{m}:streamGenerateContent` | the same streamed: events with `alt=sse`, else a JSON array |
//! | `POST …/models/{m}:countTokens` | `{"totalTokens": N}` |
//! | `POST …/publishers/anthropic/models/{m}:rawPredict` | Messages over Vertex AI; `:streamRawPredict` streams |
//! | `POST …/publishers/anthropic/models/count-tokens:rawPredict` | `{"input_tokens": N}` |
//! | `POST /token` | an access token for a service account's assertion, as Google's endpoint gives it |
//! | `POST …/model/{m}/converse` | Amazon Bedrock's Converse; `converse-stream` streams |
//! | `POST …/model/{m}/invoke` | Messages over Bedrock; `invoke-with-response-stream` streams |
//! | `POST …/model/{m}/count-tokens` | `{"inputTokens": N}` |
//! | `POST /v2/chat` | Cohere's chat, streamed or not |
//! | `GET /v1/models` | the demo models, in the shapes of all vendors with such a route |
//! | `/_sim/…` | control for other processes, see [`control`] |
//!
//! Model names choose a behaviour too (see [`DEMO_MODELS`]), so a client in any language reaches every
//! behaviour worth showing without a control call. What real servers do and their documents do not say is a
//! [`Quirk`]; the table is in [`quirk`].
//!
//! Bedrock's calls are signed or carry a key, and Vertex AI's a token. The signature of the access key `SIMAWSKEY`,
//! whose secret is `simawssecret`, is verified; of other keys only the shape is.
//!
//! Requests of all protocols but Messages are checked as strictly as the vendor checks them and refused in the
//! vendor's words, with the parameter named: a bad translation shows here first.

mod audio;
mod aws;
mod body;
mod chat;
mod cohere;
mod content;
pub mod control;
mod converse;
mod embeddings;
mod events;
mod failure;
mod framing;
mod gemini;
mod images;
mod invoke;
mod listing;
mod messages;
mod model;
mod openai;
mod play;
pub mod quirk;
mod refuse;
mod rerank;
mod responses;
mod run;
mod said;
mod script;
mod server;
mod speak;
mod state;
mod token;
mod vertex;

pub use images::PNG;
pub use model::{DEMO_MODELS, DemoModel};
pub use quirk::{Protocol, Quirk};
pub use run::{RunOptions, run};
pub use script::{Behaviour, End, Script, TokenShape};
pub use server::Sim;
pub use state::Seen;
