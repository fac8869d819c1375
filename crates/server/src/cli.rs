//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tidegate_core::KeyKind;
use tidegate_sim::TokenShape;
use tidegate_store::keys::LimitReset;

use crate::config::{Source, generate};
use crate::{commands, openapi, serve};

/// A self-hosted gateway to language models.
#[derive(Parser)]
#[command(
    name = "tidegate",
    version,
    after_help = "Example:\n  tidegate serve\n  tidegate serve --config tidegate.toml --listen 0.0.0.0:8080"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start the gateway
    #[command(
        after_help = "Examples:\n  tidegate serve\n  ANTHROPIC_API_KEY=... tidegate serve --listen 127.0.0.1:9000\n  tidegate serve --config /etc/tidegate.toml --data-dir /var/lib/tidegate"
    )]
    Serve {
        #[command(flatten)]
        place: Place,
        /// Address to listen on, instead of the configured one
        #[arg(long)]
        listen: Option<String>,
    },
    /// Check the configuration and try each provider
    #[command(after_help = "Examples:\n  tidegate check --config tidegate.toml\n  tidegate check --offline")]
    Check {
        #[command(flatten)]
        place: Place,
        /// Do not call the providers
        #[arg(long)]
        offline: bool,
    },
    /// Start a simulated upstream on its own
    #[command(
        after_help = "Examples:\n  tidegate sim --listen 127.0.0.1:9100\n  tidegate sim --tokens 100x20 --pace-ms 5\n  tidegate sim --status 529"
    )]
    Sim {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Milliseconds between events
        #[arg(long, default_value_t = 0)]
        pace_ms: u64,
        /// Milliseconds before the first byte
        #[arg(long, default_value_t = 0)]
        first_byte_ms: u64,
        /// Always answer with this text
        #[arg(long)]
        text: Option<String>,
        /// Always answer with COUNT pieces of BYTES bytes
        #[arg(long, value_name = "COUNTxBYTES")]
        tokens: Option<TokenShape>,
        /// Always answer with this error status
        #[arg(long)]
        status: Option<u16>,
        /// Keep no record of requests
        #[arg(long)]
        no_record: bool,
    },
    /// Create, list and disable API keys
    #[command(subcommand)]
    Keys(Keys),
    /// Start a program with the base URL and key set for it
    #[command(
        after_help = "Examples:\n  TIDEGATE_API_KEY=sk-tg-v1-... tidegate run claude\n  tidegate run --key sk-tg-v1-... -- python app.py"
    )]
    Run {
        /// Address of the gateway
        #[arg(long, env = "TIDEGATE_URL", default_value = "http://127.0.0.1:8080")]
        url: String,
        /// Inference key
        #[arg(long, env = "TIDEGATE_API_KEY", hide_env_values = true)]
        key: String,
        /// The program (`claude`, `codex`, or any other) and its arguments
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Print the OpenAPI document
    #[command(after_help = "Example:\n  tidegate openapi > openapi.json")]
    Openapi,
    /// Print the JSON Schema of the configuration file, or a commented example of it
    #[command(
        after_help = "Examples:\n  tidegate config > tidegate.toml\n  tidegate config --schema > config.schema.json"
    )]
    Config {
        #[arg(long)]
        schema: bool,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Create a key and print it once
    #[command(
        after_help = "Examples:\n  tidegate keys create --name laptop --limit 25 --reset weekly\n  tidegate keys create --name ops --management"
    )]
    Create {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        name: String,
        /// A management key: may administer, cannot generate
        #[arg(long)]
        management: bool,
        /// Spend limit in dollars
        #[arg(long)]
        limit: Option<String>,
        /// When the limit starts anew: daily, weekly or monthly
        #[arg(long, value_parser = reset)]
        reset: Option<LimitReset>,
        /// When the key expires, such as 2027-01-31T00:00:00Z
        #[arg(long)]
        expires: Option<String>,
    },
    /// List keys
    #[command(after_help = "Example:\n  tidegate keys list --all")]
    List {
        #[command(flatten)]
        place: Place,
        /// Disabled keys too
        #[arg(long)]
        all: bool,
    },
    /// Disable a key; it stops working within two seconds
    #[command(after_help = "Example:\n  tidegate keys disable 9f86d081")]
    Disable {
        #[command(flatten)]
        place: Place,
        /// The key's hash or the beginning of it, as `keys list` shows it
        hash: String,
        /// Enable it again instead
        #[arg(long)]
        undo: bool,
    },
}

/// Where configuration and data are.
#[derive(Args, Clone)]
pub struct Place {
    /// Configuration file
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data folder
    #[arg(long, env = "TIDEGATE_DATA_DIR", value_name = "DIR", default_value = "data")]
    data_dir: PathBuf,
}

impl Place {
    fn source(self, listen: Option<String>) -> Source {
        Source::new(self.config, listen, self.data_dir)
    }
}

fn reset(text: &str) -> Result<LimitReset, String> {
    LimitReset::parse(text).ok_or_else(|| "must be daily, weekly or monthly".to_owned())
}

impl Cli {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let command = match self.command {
            // These need no runtime.
            Command::Openapi => {
                print!("{}", openapi::document("http://127.0.0.1:8080"));
                return Ok(ExitCode::SUCCESS);
            }
            Command::Config { schema } => {
                print!("{}", if schema { generate::schema() } else { generate::example() });
                return Ok(ExitCode::SUCCESS);
            }
            Command::Run { url, key, command } => return commands::run::run(&url, &key, &command),
            command => command,
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime did not start")?;
        runtime.block_on(command.run())
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve { place, listen } => serve::serve(place.source(listen)).await?,
            Self::Check { place, offline } => return commands::check::check(&place.source(None), offline).await,
            Self::Sim { listen, pace_ms, first_byte_ms, text, tokens, status, no_record } => {
                let options = tidegate_sim::RunOptions {
                    listen,
                    pace_ms,
                    first_byte_ms,
                    text,
                    tokens,
                    status,
                    record: !no_record,
                };
                tokio::select! {
                    result = tidegate_sim::run(options) => result.with_context(|| format!("cannot listen on {listen}"))?,
                    () = serve::stop_signal() => {}
                }
            }
            Self::Keys(Keys::Create { place, name, management, limit, reset, expires }) => {
                let kind = if management { KeyKind::Management } else { KeyKind::Inference };
                let options = commands::keys::Create { name, kind, limit, reset, expires };
                commands::keys::create(&place.source(None), options).await?;
            }
            Self::Keys(Keys::List { place, all }) => commands::keys::list(&place.source(None), all).await?,
            Self::Keys(Keys::Disable { place, hash, undo }) => {
                commands::keys::set_disabled(&place.source(None), &hash, !undo).await?
            }
            Self::Run { .. } | Self::Openapi | Self::Config { .. } => unreachable!("done before the runtime starts"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
