//! How to talk to each upstream, as pure functions: what a call looks like, what an answer says, what a failure means.
//!
//! Nothing here does I/O, asks the time or waits: `gateway::upstream` sends what this crate describes and hands back
//! what came. The Messages protocol is spoken natively ([`anthropic`]); the others are translated, each in a module of its
//! own over what they share in [`translate`]. Start with [`adapter`] and [`fault::Fault`].

pub mod adapter;
pub mod anthropic;
pub mod azure;
pub mod blot;
pub mod cards;
pub mod chat;
pub mod clear;
pub mod cohere;
pub mod compress;
pub mod converse;
pub mod count;
pub mod credential;
pub mod dialect;
pub mod embeddings;
pub mod estimate;
pub mod eventstream;
pub mod fault;
pub mod gemini;
pub mod google;
pub mod images;
pub mod place;
pub mod platform;
pub mod repair;
pub mod rerank;
pub mod responses;
pub mod retry;
pub mod sigv4;
pub mod slugs;
pub mod speech;
pub mod transcription;
pub mod translate;

pub use fault::{Class, Fault, Next};
pub use platform::{Auth, Betas, Carriage, Platform, Protocol};
