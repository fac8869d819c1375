//! The `tidegate` binary: commands, configuration, the HTTP surface. It never talks to an upstream itself: that is the
//! gateway's work. Start with `cli` for the commands and `serve` for the start of the server.

mod api;
mod body;
mod caller;
mod cli;
mod commands;
mod config;
mod cors;
mod error;
mod head;
mod import;
mod listen;
mod metering;
mod oauth;
mod oidc;
mod openapi;
mod pages;
mod people;
mod reload;
mod rings;
mod router;
mod routes;
mod serve;
mod socket;
mod state;
mod tls;

/// What the binary was built from, where whoever built it said so.
const COMMIT: &str = match option_env!("TIDEGATE_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

use std::process::ExitCode;

use clap::Parser as _;

// What was given back last is handed out first: a request finds the memory of the one before it still in the cache. An
// allocator that goes round in its pages has nearly every block fetched from far away.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // One line that says what to change.
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
