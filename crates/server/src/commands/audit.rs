//! `tidegate audit`: the log of changes, as far as a shell needs it.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Subcommand;
use tidegate_core::{Tenant, Timestamp};
use tidegate_store::Store;
use tidegate_store::audit::Verdict;

use super::keys::open_any;
use super::out::{say, shown};
use crate::api::time::instant;
use crate::cli::Place;

/// Rows that are shown where nothing else is asked for.
const SHOWN: u32 = 50;

#[derive(Subcommand)]
pub enum Audit {
    /// List who changed what, newest first
    #[command(
        after_help = "Examples:\n  tidegate audit list\n  tidegate audit list --since 2027-01-31T00:00:00Z --limit 1000"
    )]
    List {
        #[command(flatten)]
        place: Place,
        /// Only changes from this time on
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = SHOWN)]
        limit: u32,
        /// How many to pass over
        #[arg(long, default_value_t = 0)]
        offset: u32,
    },
    /// Check that no row of the audit log was changed or taken out
    #[command(after_help = "Example:\n  tidegate audit verify && echo sound")]
    Verify {
        #[command(flatten)]
        place: Place,
    },
}

impl Audit {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { place, since, limit, offset } => {
                let since =
                    since.as_deref().map(|text| instant(text).context("--since must look like 2027-01-31T00:00:00Z"));
                let since = since.transpose()?.unwrap_or(Timestamp(0));
                let (store, tenant) = open_any(&place.source(None)).await?;
                let listed = list(&store, &tenant, since, (offset, limit)).await;
                store.close().await;
                listed.map(|()| ExitCode::SUCCESS)
            }
            Self::Verify { place } => verify(place).await,
        }
    }
}

async fn list(store: &Store, tenant: &Tenant, since: Timestamp, (offset, limit): (u32, u32)) -> anyhow::Result<()> {
    let total = store.count_audit(tenant, since).await?;
    let entries = store.list_audit(tenant, since, offset, limit).await?;
    say!("{:<24} {:<12} {:<24} TARGET", "AT", "BY", "ACTION")?;
    for entry in &entries {
        // A key is known by the first characters of its hash.
        let by = entry.actor_id.as_deref().and_then(|hash| hash.get(..8)).unwrap_or(&entry.actor_kind);
        let changed = entry.new.as_deref().or(entry.old.as_deref()).unwrap_or_default();
        say!("{:<24} {by:<12} {:<24} {} {}", entry.at.to_string(), entry.action, shown(&entry.target), shown(changed))?;
    }
    let more = total.saturating_sub(u64::from(offset) + entries.len() as u64);
    if more > 0 {
        say!("and {more} before them")?;
    }
    Ok(())
}

async fn verify(place: Place) -> anyhow::Result<ExitCode> {
    let (store, _) = open_any(&place.source(None)).await?;
    let verdict = store.verify_audit(|seq| eprintln!("checked {seq}")).await?;
    store.close().await;
    Ok(match verdict {
        Verdict::Sound(rows) => {
            say!("{rows} rows, each as it was written")?;
            ExitCode::SUCCESS
        }
        Verdict::Broken { seq, reason } => {
            eprintln!("tidegate: the audit log is broken: row {seq} {reason}");
            ExitCode::FAILURE
        }
    })
}
