//! The real `tidegate` process on loopback against simulated upstreams. A test starts what it needs, says what the
//! upstream does, and looks at HTTP, exit codes and files only.

mod admission;
mod bad_input;
mod commands;
mod count_tokens;
mod faults;
mod harness;
mod lifecycle;
mod passthrough;
mod store;
mod streaming;
mod streams_at_scale;
