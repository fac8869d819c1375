//! What the server can do for a model: the time, what the web says, and which of many tools fits.
//!
//! Pure as far as it goes: what is fetched is fetched by the gateway, which calls this crate and is not known to it.
//! `page` is for the child process alone, whatever it reads.

pub mod charset;
pub mod datetime;
pub mod find;
pub mod moderation;
pub mod ocr;
pub mod page;
pub mod search;
