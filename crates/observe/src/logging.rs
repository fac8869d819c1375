//! Logs: one line per finished request, for people on a terminal or as JSON for machines.

use std::io::IsTerminal as _;

use tidegate_core::Exchange;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::scrub::Scrubbed;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Readable on a terminal, JSON otherwise.
    Auto,
    Text,
    Json,
}

/// Starts logging to standard error. `level` is a filter such as `info` or `tidegate_gateway=debug`.
pub fn start(format: Format, level: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(level).map_err(|error| format!("log level {level:?} is not a filter: {error}"))?;
    let terminal = std::io::stderr().is_terminal();
    let registry = tracing_subscriber::registry().with(filter);
    let text = format == Format::Text || (format == Format::Auto && terminal);
    let started = if text {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(|| Scrubbed(std::io::stderr()))
            .with_ansi(terminal)
            .with_target(false);
        registry.with(layer).try_init()
    } else {
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(|| Scrubbed(std::io::stderr()))
            .with_target(false);
        registry.with(layer).try_init()
    };
    started.map_err(|error| error.to_string())
}

/// The line of a finished request: ids, counts and durations; never a key, a prompt or an answer.
pub fn finished(exchange: &Exchange) {
    tracing::info!(
        generation_id = %exchange.id,
        key = ?exchange.key,
        workspace_id = %exchange.workspace,
        model = %exchange.model,
        provider = %exchange.provider,
        outcome = exchange.outcome.as_str(),
        status = exchange.status,
        streamed = exchange.streamed,
        attempts = exchange.attempts.len(),
        input_tokens = exchange.usage.prompt(),
        output_tokens = exchange.usage.output,
        cost = exchange.cost.map(|cost| cost.to_string()),
        error_type = exchange.error_type.as_deref(),
        duration_ms = exchange.duration_ms,
        "request finished",
    );
}
