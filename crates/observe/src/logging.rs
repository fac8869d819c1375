//! Logs: one line per finished request, for people on a terminal or as JSON for machines.

mod json;

use std::ffi::OsString;
use std::fmt;
use std::io::IsTerminal as _;
use std::time::Duration;

use tidegate_core::{Exchange, KeyHash, WorkspaceId};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
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

/// What a level or a filter must be made of where it names no target.
pub const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
/// Libraries that tell of each connection, some of them with what lets one in: their lines are for those who name them.
const TALKATIVE: [&str; 4] = ["hyper", "hyper_util", "h2", "rustls"];

/// What is wrong with a level or filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongLevel {
    /// A word that is no level. Taken for a target, as libraries do, it would silence all others.
    Word(String),
    Filter(String),
}

impl fmt::Display for WrongLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => {
                write!(out, "{word:?} is none of {}, nor a filter such as tidegate_gateway=debug", LEVELS.join(", "))
            }
            Self::Filter(problem) => write!(out, "is not a filter: {problem}"),
        }
    }
}

/// Reads a level or a filter.
pub fn filter(level: &str) -> Result<EnvFilter, WrongLevel> {
    let words = level.split(',').map(str::trim).filter(|word| !word.is_empty());
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    if let Some(word) = words.clone().find(|word| !word.contains(['=', '[']) && !is_level(word)) {
        return Err(WrongLevel::Word(word.to_owned()));
    }
    let read = EnvFilter::try_new(level).map_err(|error| WrongLevel::Filter(error.to_string()))?;
    let is_talkative = read.max_level_hint().is_none_or(|most| most > LevelFilter::INFO);
    let unnamed = TALKATIVE
        .into_iter()
        .filter(|target| is_talkative && !words.clone().any(|word| word.split(['=', '[', ':']).next() == Some(target)));
    let quiet = |filter: EnvFilter, target: &str| match format!("{target}=info").parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    };
    Ok(unnamed.fold(read, quiet))
}

/// Starts logging: lines for machines go to standard output, where those who collect them look, and lines for people to standard
/// error. `level` is a filter such as `info` or `tidegate_gateway=debug`.
pub fn start(format: Format, level: &str) -> Result<(), String> {
    let filter = filter(level).map_err(|wrong| format!("log.level: {wrong}"))?;
    let colours = std::io::stderr().is_terminal() && wants_colours(|name| std::env::var_os(name));
    let registry = tracing_subscriber::registry().with(filter);
    let text = format == Format::Text || (format == Format::Auto && std::io::stdout().is_terminal());
    let started = if text {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(|| Scrubbed(std::io::stderr()))
            .with_ansi(colours)
            .with_target(false);
        registry.with(layer).try_init()
    } else {
        let layer =
            tracing_subscriber::fmt::layer().event_format(json::Lines).with_writer(|| Scrubbed(std::io::stdout()));
        registry.with(layer).try_init()
    };
    started.map_err(|error| error.to_string())
}

/// What a person at a terminal says of colours, as <https://no-color.org> has it.
fn wants_colours(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refuses = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refuses && variable("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Whether anybody reads the lines of finished requests: what they need is not even looked for otherwise.
pub fn tells_of_requests() -> bool {
    tracing::enabled!(Level::INFO)
}

/// A request that ended at the door or in an operation of the account: no model was asked.
pub struct Served<'a> {
    pub request_id: &'a str,
    pub method: &'a str,
    pub route: &'static str,
    pub status: u16,
    pub duration: Duration,
    pub caller: Option<(&'a KeyHash, &'a WorkspaceId)>,
    pub error_type: Option<&'static str>,
    /// Somebody only looks whether we are well, and does so all the time.
    pub is_probe: bool,
}

/// Its line.
pub fn served(served: &Served<'_>) {
    macro_rules! line {
        ($level:expr) => {
            tracing::event!(
                $level,
                request_id = served.request_id,
                method = served.method,
                route = served.route,
                status = served.status,
                duration_ms = u64::try_from(served.duration.as_millis()).unwrap_or(u64::MAX),
                key_hash_prefix = served.caller.map(|(key, _)| prefix(key)),
                workspace_id = served.caller.map(|(_, workspace)| &*workspace.0),
                error_type = served.error_type,
                "request finished",
            )
        };
    }
    if served.is_probe { line!(Level::DEBUG) } else { line!(Level::INFO) }
}

/// Enough to find a key by, and far too little to use it.
fn prefix(key: &KeyHash) -> String {
    key.to_hex()[..8].to_owned()
}

/// The line of a finished call of a model: ids, counts and durations; never a key, a prompt or an answer.
pub fn finished(exchange: &Exchange) {
    if !tells_of_requests() || exchange.is_fee() {
        return;
    }
    tracing::info!(
        request_id = exchange.parent.as_ref().unwrap_or(&exchange.id).as_str(),
        generation_id = exchange.id.as_str(),
        route = exchange.api.route(),
        status = exchange.status,
        duration_ms = exchange.duration_ms,
        key_hash_prefix = prefix(&exchange.key),
        workspace_id = &*exchange.workspace.0,
        model = &*exchange.model,
        provider = &*exchange.provider,
        attempt = exchange.attempts.len(),
        tokens = exchange.usage.prompt().saturating_add(exchange.usage.output),
        input_tokens = exchange.usage.prompt(),
        output_tokens = exchange.usage.output,
        cost = exchange.cost.map(|cost| cost.0 as f64 / 1e9),
        error_type = exchange.error_type.as_deref(),
        outcome = exchange.outcome.as_str(),
        streamed = exchange.streamed,
        "request finished",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for level in ["info", "WARN", "off", "tidegate_gateway=debug", "warn,tidegate_gateway=trace", "[request]=debug"]
        {
            assert!(filter(level).is_ok(), "{level}");
        }
        for (level, word) in [("chatty", "chatty"), ("info,tidegate", "tidegate"), ("3", "3")] {
            assert_eq!(filter(level).unwrap_err(), WrongLevel::Word(word.to_owned()), "{level}");
        }
        assert!(matches!(filter("a=loud"), Err(WrongLevel::Filter(_))));
    }

    #[test]
    fn libraries_tell_of_connections_only_to_those_who_name_them() {
        let text = |level: &str| filter(level).unwrap().to_string();
        let quiet = text("trace");
        assert!(TALKATIVE.iter().all(|target| quiet.contains(&format!("{target}=info"))), "{quiet}");
        assert!(!text("info").contains("hyper"), "they say little enough then");
        let named = text("debug,hyper_util=trace");
        assert!(named.contains("hyper_util=trace") && named.contains("h2=info"), "{named}");
    }
}
