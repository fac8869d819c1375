//! The real `tidegate` process on loopback against simulated upstreams. A test starts what it needs, says what the
//! upstream does, and looks at HTTP, exit codes and files only.

mod accounts_keys;
mod accounts_workspaces;
mod admission;
mod auth_codes;
mod auth_matrix;
mod authorize_page;
mod bad_input;
mod byok;
mod byok_refusals;
mod byok_routing;
mod byok_shell;
mod chat;
mod commands;
mod count_tokens;
mod faults;
mod harness;
mod kills;
mod lifecycle;
mod media;
mod models;
mod passthrough;
mod pitfalls;
mod planted;
mod providers;
mod secrets;
mod shell;
mod store;
mod streaming;
mod streams_at_scale;
