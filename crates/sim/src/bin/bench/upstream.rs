//! The simulated upstream as a process of the benchmark, and how the benchmark tells it what to answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use http::Method;
use serde_json::json;
use tidegate_sim::{Script, Sim, TokenShape};

use crate::client;

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Deltas of an answer and bytes of each, such as 100x20
    #[arg(long, default_value = "1x20")]
    tokens: TokenShape,
    /// Time between two events
    #[arg(long, default_value_t = 0)]
    pace_ms: u64,
    /// Time before the head of an answer
    #[arg(long, default_value_t = 0)]
    first_byte_ms: u64,
    /// Write every event on its own even without a pace
    #[arg(long)]
    flush: bool,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let script = Script::tokens(options.tokens.count, options.tokens.bytes)
        .pace(Duration::from_millis(options.pace_ms))
        .first_byte(Duration::from_millis(options.first_byte_ms))
        .flush(options.flush)
        .record(false);
    let sim = Sim::bind(options.listen, script).await?;
    crate::process::announce(sim.addr())?;
    sim.closed().await;
    Ok(())
}

/// What every answer looks like from now on.
#[derive(Clone, Copy, Default)]
pub struct Answers {
    /// Deltas, and bytes of each.
    pub tokens: (usize, usize),
    pub pace_ms: u64,
    pub first_byte_ms: u64,
    pub flush: bool,
}

/// One upstream serves the whole run: the gateway's configuration names its port.
pub async fn set(upstream: SocketAddr, answers: Answers) -> anyhow::Result<()> {
    let Answers { tokens: (count, bytes), pace_ms, first_byte_ms, flush } = answers;
    let script = json!({
        "behaviour": {"tokens": {"count": count, "bytes": bytes}},
        "pace_ms": pace_ms, "first_byte_ms": first_byte_ms, "flush": flush, "record": false,
    });
    let status = client::call(upstream, Method::PUT, "/_sim/script", script.to_string().into()).await?;
    ensure!(status.is_success(), "the simulated upstream answered {status} to its script");
    Ok(())
}
