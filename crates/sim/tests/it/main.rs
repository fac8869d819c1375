//! The simulator as a client sees it: bytes on a socket. Expected values come from the public
//! descriptions of the formats.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod breakage;
mod client;
mod clouds;
mod control;
mod counting;
mod faults;
mod http2;
mod models;
mod quirks;
mod scenarios;
mod shapes;
mod spoken;
mod strict;
