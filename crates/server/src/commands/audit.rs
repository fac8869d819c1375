//! `tidegate audit`: the log of changes, as far as a shell needs it.

use std::process::ExitCode;

use clap::Subcommand;
use tidegate_store::audit::Verdict;

use super::keys::open;
use super::out::say;
use crate::cli::Place;

#[derive(Subcommand)]
pub enum Audit {
    /// Check that no row of the audit log was changed or taken out
    #[command(after_help = "Example:\n  tidegate audit verify && echo sound")]
    Verify {
        #[command(flatten)]
        place: Place,
    },
}

impl Audit {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Verify { place } = self;
        let (store, _) = open(&place.source(None)).await?;
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
}
