//! What the server can do for a model: the time, and what the web says.
//!
//! Pure as far as it goes: what is fetched is fetched by the gateway, which calls this crate and is not known to it.

pub mod datetime;
