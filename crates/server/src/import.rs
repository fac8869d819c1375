//! Configurations of other gateways, turned into ours. Nothing is called and no secret is copied: keys that stand in the
//! other file are read from the environment here, and what could not be taken over is said at the top of what is written.

mod draft;
mod litellm;

pub use litellm::convert;

/// A configuration of ours.
#[derive(Debug)]
pub struct Imported {
    /// TOML, with comments.
    pub text: String,
    pub providers: usize,
    pub models: usize,
    /// What the reader must do or know.
    pub notes: Vec<String>,
}
