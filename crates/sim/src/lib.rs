//! Simulated upstreams: an HTTP server that plays the providers a gateway talks to.
//!
//! It serves three readers: end-to-end tests (as a library or as a child process), the demo provider
//! of `tidegate serve`, and benchmarks. It must not know the gateway: what it sends follows the
//! vendors' public formats, so that a mistake on the other side shows instead of being mirrored here.
//!
//! Start reading at [`Sim`] (a running server), [`Script`] (what it does) and [`Behaviour`] (one answer).
//! `body` turns a script's faults into what happens on the wire; each protocol has a module of its own.
//!
//! | Route | |
//! |---|---|
//! | `POST /v1/messages` | Anthropic's Messages protocol, streamed or not |
//! | `POST /v1/messages/count_tokens` | `{"input_tokens": N}` |
//! | `/_sim/…` | control for other processes, see [`control`] |
//!
//! Model names choose a behaviour too (see [`DEMO_MODELS`]), so a client in any language reaches every
//! behaviour worth showing without a control call.

mod body;
pub mod control;
mod messages;
mod model;
mod run;
mod script;
mod server;
mod state;

pub use model::{DEMO_MODELS, DemoModel};
pub use run::{RunOptions, run};
pub use script::{Behaviour, End, Script, TokenShape};
pub use server::Sim;
pub use state::Seen;
