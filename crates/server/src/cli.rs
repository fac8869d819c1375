//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tidegate_core::KeyKind;
use tidegate_sim::TokenShape;
use tidegate_store::keys::LimitReset;
use tidegate_store::members::Role;

use crate::commands::out::{self, Closed};
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
    /// Tell who would serve a request and why not the others, or what became of one that was made
    #[command(
        after_help = "Examples:\n  tidegate explain anthropic/claude-sonnet-4.5\n  tidegate explain anthropic/claude-sonnet-4.5:floor --request body.json --json\n  TIDEGATE_MANAGEMENT_KEY=sk-tgm-v1-... tidegate explain ours/llama-70b --url http://127.0.0.1:8080 --key 9f86d081\n  tidegate explain gen-01KBS35CG04TFF59TDWH9EDD1R"
    )]
    Explain(commands::explain::Explain),
    /// Have a running gateway read its configuration anew
    #[command(
        after_help = "Examples:\n  TIDEGATE_MANAGEMENT_KEY=sk-tgm-v1-... tidegate reload\n  TIDEGATE_MANAGEMENT_KEY=sk-tgm-v1-... tidegate reload --url http://127.0.0.1:9000"
    )]
    Reload(commands::reload::Reload),
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
    /// Create, list, disable and delete API keys
    #[command(
        subcommand,
        after_help = "Examples:\n  tidegate keys create --name laptop --limit 25 --reset weekly\n  tidegate keys list --all\n  tidegate keys disable 9f86d081"
    )]
    Keys(Keys),
    /// Add, list and remove the people of the organisation
    #[command(
        subcommand,
        after_help = "Examples:\n  tidegate members add --email ada@example.com --role admin\n  tidegate members list\n  tidegate members remove ada@example.com"
    )]
    Members(Members),
    /// Store, list, rotate and delete credentials for providers
    #[command(
        subcommand,
        after_help = "Examples:\n  tidegate byok create --provider anthropic --key-file key.txt\n  tidegate byok list"
    )]
    Byok(commands::byok::Byok),
    /// List presets, switch them off and on, or off for good
    #[command(subcommand, after_help = "Examples:\n  tidegate presets list\n  tidegate presets disable brief")]
    Presets(commands::presets::Presets),
    /// Rotate the master keys that protect stored secrets, or try whether each secret opens
    #[command(subcommand, after_help = "Examples:\n  tidegate secrets rotate\n  tidegate secrets verify")]
    Secrets(commands::secrets::Secrets),
    /// Grant credits to the account, or show what it has
    #[command(subcommand, after_help = "Examples:\n  tidegate credits grant 25\n  tidegate credits show")]
    Credits(commands::credits::Credits),
    /// Prove what is stored as spent
    #[command(subcommand, after_help = "Example:\n  tidegate ledger verify && echo sound")]
    Ledger(commands::ledger::Ledger),
    /// Move what is stored from SQLite to PostgreSQL
    #[command(
        subcommand,
        after_help = "Example:\n  tidegate store move --to postgres://tidegate:PASSWORD@db.internal/tidegate"
    )]
    Store(commands::store::Stored),
    /// Check the audit log
    #[command(subcommand, after_help = "Examples:\n  tidegate audit list\n  tidegate audit verify && echo sound")]
    Audit(commands::audit::Audit),
    /// Start a program with the base URL and key set for it
    #[command(
        after_help = "Examples:\n  TIDEGATE_API_KEY=sk-tg-v1-... tidegate run claude\n  TIDEGATE_API_KEY=sk-tg-v1-... tidegate run codex -m openai/gpt-5-mini\n  tidegate run --key sk-tg-v1-... -- python app.py"
    )]
    Run {
        /// Address of the gateway
        #[arg(long, env = "TIDEGATE_URL", default_value = "http://127.0.0.1:8080")]
        url: String,
        /// Inference key
        #[arg(long, env = "TIDEGATE_API_KEY", hide_env_values = true)]
        key: String,
        /// The program and its arguments: `claude`, or any other that speaks the Messages format
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Read a document from standard input and print its text; what `serve` starts for documents of strangers
    #[command(hide = true)]
    Extract(commands::extract::Extract),
    /// Turn another gateway's configuration into ours
    #[command(subcommand, after_help = "Example:\n  tidegate import litellm config.yaml > tidegate.toml")]
    Import(commands::import::Import),
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
        after_help = "Examples:\n  tidegate keys create --name laptop --limit 25 --reset weekly\n  tidegate keys create --name ops --management\n  tidegate keys create --name 'of ada' --management --member ada@example.com"
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
        #[arg(long, allow_hyphen_values = true)]
        limit: Option<String>,
        /// When the limit starts anew: daily, weekly or monthly
        #[arg(long, value_parser = reset)]
        reset: Option<LimitReset>,
        /// When the key expires, such as 2027-01-31T00:00:00Z
        #[arg(long)]
        expires: Option<String>,
        /// The id or slug of its workspace, instead of the default one
        #[arg(long)]
        workspace: Option<String>,
        /// The member it belongs to, named by address or id; a code that is made with it becomes a key of theirs
        #[arg(long, value_name = "EMAIL_OR_ID")]
        member: Option<String>,
    },
    /// List keys
    #[command(after_help = "Examples:\n  tidegate keys list --all\n  tidegate keys list --workspace research")]
    List {
        #[command(flatten)]
        place: Place,
        /// Disabled keys too
        #[arg(long)]
        all: bool,
        /// Only those of this workspace, named by its id or slug
        #[arg(long)]
        workspace: Option<String>,
    },
    /// Disable a key; it stops working within two seconds
    #[command(after_help = "Example:\n  tidegate keys disable 9f86d081")]
    Disable {
        #[command(flatten)]
        place: Place,
        /// The key's hash or the beginning of it, as `keys list` shows it, or the key itself
        hash: String,
        /// Enable it again instead
        #[arg(long)]
        undo: bool,
    },
    /// Delete a key for good; it stops working within two seconds
    #[command(after_help = "Example:\n  tidegate keys delete 9f86d081")]
    Delete {
        #[command(flatten)]
        place: Place,
        /// The key's hash or the beginning of it, as `keys list` shows it, or the key itself
        hash: String,
    },
}

#[derive(Subcommand)]
enum Members {
    /// Add a person and print their id
    #[command(
        after_help = "Examples:\n  tidegate members add --email ada@example.com --role admin\n  tidegate members add --email bob@example.com --first-name Bob --last-name Byte"
    )]
    Add {
        #[command(flatten)]
        place: Place,
        #[arg(long)]
        email: String,
        /// admin, who acts in all workspaces, or member
        #[arg(long, default_value = "member", value_parser = role)]
        role: Role,
        #[arg(long)]
        first_name: Option<String>,
        #[arg(long)]
        last_name: Option<String>,
    },
    /// List the people of the organisation
    #[command(after_help = "Example:\n  tidegate members list")]
    List {
        #[command(flatten)]
        place: Place,
    },
    /// Make a person an administrator, or a member like others
    #[command(after_help = "Example:\n  tidegate members role ada@example.com admin")]
    Role {
        #[command(flatten)]
        place: Place,
        /// Their address or id, as `members list` shows them
        member: String,
        /// admin, who acts in all workspaces, or member
        #[arg(value_parser = role)]
        role: Role,
    },
    /// Remove a person; their keys stop working within two seconds
    #[command(after_help = "Example:\n  tidegate members remove ada@example.com")]
    Remove {
        #[command(flatten)]
        place: Place,
        /// Their address or id, as `members list` shows them
        member: String,
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
    pub fn source(self, listen: Option<String>) -> Source {
        Source::new(self.config, listen, self.data_dir)
    }
}

fn reset(text: &str) -> Result<LimitReset, String> {
    LimitReset::parse(text).ok_or_else(|| "must be daily, weekly or monthly".to_owned())
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| "must be admin or member".to_owned())
}

impl Cli {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.execute() {
            // Whoever stopped reading has seen what they wanted to see.
            Err(error) if error.is::<Closed>() => Ok(ExitCode::SUCCESS),
            result => result,
        }
    }

    fn execute(self) -> anyhow::Result<ExitCode> {
        let command = match self.command {
            // These need no runtime.
            Command::Openapi => {
                out::text(format_args!("{}", openapi::document("http://127.0.0.1:8080")))?;
                return Ok(ExitCode::SUCCESS);
            }
            Command::Config { schema } => {
                out::text(format_args!("{}", if schema { generate::schema() } else { generate::example() }))?;
                return Ok(ExitCode::SUCCESS);
            }
            Command::Import(command) => {
                command.run()?;
                return Ok(ExitCode::SUCCESS);
            }
            Command::Extract(command) => return command.run(),
            Command::Run { url, key, command } => return commands::run::run(&url, &key, &command),
            command => command,
        };
        if matches!(command, Command::Serve { .. }) {
            serve::use_small_pages();
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime did not start")?;
        runtime.block_on(command.run())
    }
}

impl Command {
    async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Serve { place, listen } => Box::pin(serve::serve(place.source(listen))).await?,
            Self::Check { place, offline } => return commands::check::check(&place.source(None), offline).await,
            Self::Explain(command) => return Box::pin(command.run()).await,
            Self::Reload(command) => return Box::pin(command.run()).await,
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
            Self::Keys(Keys::Create { place, name, management, limit, reset, expires, workspace, member }) => {
                let kind = if management { KeyKind::Management } else { KeyKind::Inference };
                let options = commands::keys::Create { name, kind, limit, reset, expires, workspace, member };
                commands::keys::create(&place.source(None), options).await?;
            }
            Self::Keys(Keys::List { place, all, workspace }) => {
                commands::keys::list(&place.source(None), all, workspace.as_deref()).await?
            }
            Self::Keys(Keys::Disable { place, hash, undo }) => {
                commands::keys::set_disabled(&place.source(None), &hash, !undo).await?
            }
            Self::Keys(Keys::Delete { place, hash }) => commands::keys::delete(&place.source(None), &hash).await?,
            Self::Members(Members::Add { place, email, role, first_name, last_name }) => {
                let options = commands::members::Add { email, role, first_name, last_name };
                commands::members::add(&place.source(None), options).await?;
            }
            Self::Members(Members::List { place }) => commands::members::list(&place.source(None)).await?,
            Self::Members(Members::Role { place, member, role }) => {
                commands::members::role(&place.source(None), &member, role).await?;
            }
            Self::Members(Members::Remove { place, member }) => {
                commands::members::remove(&place.source(None), &member).await?
            }
            Self::Byok(command) => Box::pin(command.run()).await?,
            Self::Presets(command) => command.run().await?,
            Self::Secrets(command) => return command.run().await,
            Self::Credits(command) => command.run().await?,
            Self::Ledger(command) => return command.run().await,
            Self::Audit(command) => return command.run().await,
            Self::Store(command) => command.run().await?,
            Self::Import(_) | Self::Extract(_) | Self::Run { .. } | Self::Openapi | Self::Config { .. } => {
                unreachable!("done before the runtime starts")
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
