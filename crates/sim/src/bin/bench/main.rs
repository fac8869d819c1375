//! `tidegate-bench`: what the gateway costs, measured against yardsticks of the same run.
//!
//! `run` is the whole benchmark and starts the other parts as processes of their own, so that the CPU time of the one
//! under test is its alone; `floor`, `upstream` and `drive` are those parts, for use by hand. `count` compares
//! instruction counts with the stored ones. What is measured and why: `docs/benchmarks.md`.
//!
//! Start reading at [`run`].

mod client;
mod count;
mod drive;
mod floor;
mod process;
mod run;
mod sample;
mod table;
mod upstream;

use std::future::Future;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures what the gateway costs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The whole benchmark: CPU per request, latency, memory, start-up
    Run(run::Options),
    /// A proxy that only forwards bytes: the yardstick
    Floor(floor::Options),
    /// A simulated upstream
    Upstream(upstream::Options),
    /// A load driver; prints one JSON object
    Drive(drive::Options),
    /// Instruction counts under callgrind against the stored ones
    Count(count::Options),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Floor(options) => block_on(floor::run(options)),
        Command::Upstream(options) => block_on(upstream::run(options)),
        Command::Drive(options) => block_on(drive::run(options)),
        Command::Count(options) => count::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Every part runs on one thread: work that moves between cores would blur what one core is asked for.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a connection is driven apart from the requests that use it")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}
