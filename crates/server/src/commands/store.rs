//! `tidegate store move`: from the embedded store to a server, when one gateway is no longer enough.

use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::json;
use tidegate_core::Timestamp;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_store::Store;
use tidegate_store::audit::{By, Change};
use tidegate_store::journal::JournalReader;

use super::keys::open_any;
use super::out::say;
use crate::cli::Place;
use crate::serve::lock;

#[derive(Subcommand)]
pub enum Stored {
    /// Copy everything in the SQLite file to an empty PostgreSQL database; the gateway must be stopped
    #[command(
        after_help = "Example:\n  tidegate store move --to postgres://tidegate:PASSWORD@db.internal/tidegate\n\nThen set storage.url to the same address and start the gateway in the same data folder."
    )]
    Move {
        /// Where to: postgres://USER:PASSWORD@HOST/DATABASE
        #[arg(long, env = "TIDEGATE_MOVE_TO", hide_env_values = true, value_name = "URL")]
        to: String,
        #[command(flatten)]
        place: Place,
    },
    /// Use a store again that was moved; what was written to the other since is not here
    #[command(after_help = "Example:\n  tidegate store reopen --data-dir data")]
    Reopen {
        #[command(flatten)]
        place: Place,
    },
}

impl Stored {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Move { to, place } => moved(&to, place).await,
            Self::Reopen { place } => {
                let (store, _) = open_any(&place.source(None)).await?;
                let was = store.moved_at().await?;
                store.set_moved(None).await?;
                store.close().await;
                match was {
                    Some(_) => say!("this store is used again")?,
                    None => say!("this store was not moved")?,
                }
                Ok(())
            }
        }
    }
}

async fn moved(to: &str, place: Place) -> anyhow::Result<()> {
    let source = place.source(None);
    let config = source.read()?;
    let (store, _) = open_any(&source).await?;
    // Whatever a running gateway writes from now on would be missing there.
    let _lock = lock(&config.data_dir)?;
    if let Some(at) = store.moved_at().await? {
        bail!("it was moved already, at {at}: `tidegate store reopen` takes that back");
    }
    if let Some(reader) = JournalReader::open(&config.data_dir) {
        let counts = reader.counts().await;
        reader.close().await;
        let (open, settled) = counts.context("the journal cannot be read")?;
        if open + settled > 0 {
            bail!(
                "{} calls in the journal are not in the store yet: start the gateway once more and stop it, then move",
                open + settled
            );
        }
    }
    let now = SystemClock.now();
    let is_watched = std::io::stderr().is_terminal();
    let mut told = |table: &str, rows: u64| {
        if is_watched && rows > 0 {
            eprintln!("{table}: {rows}");
        }
    };
    let rows = store.copy_to(to, &mut told).await.context("nothing was moved")?;
    store.set_moved(Some(now)).await.context("everything is there, but that could not be noted here")?;
    prove(to, &config.data_dir, now).await?;
    store.close().await;
    say!(
        "{rows} rows moved, and all adds up there. Set storage.url to where they are and start the gateway in this data folder:"
    )?;
    say!("master.key and ledger.db stay. Several gateways need the same master key: docs/deploy.md")?;
    Ok(())
}

/// Notes there where it comes from, and looks whether what is stored as spent is what the records say.
async fn prove(to: &str, folder: &Path, now: Timestamp) -> anyhow::Result<()> {
    let store = Store::open(to, folder).await?;
    store.note(&By::shell(now), Change::new("store.moved", "store").with(json!({"from": "sqlite"}))).await?;
    let spend = store.verify_spend().await;
    store.close().await;
    match spend?.differences.first() {
        None => Ok(()),
        Some(difference) => bail!("all was moved, but does not add up there: {difference}"),
    }
}
