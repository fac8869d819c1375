//! The simulator as a client sees it: bytes on a socket. Expected values come from the public
//! description of the Messages format.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod client;
mod control;
mod counting;
mod faults;
mod http2;
mod models;
