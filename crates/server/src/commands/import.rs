//! `tidegate import`: another gateway's configuration, turned into ours.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;

use super::out;
use crate::import;

#[derive(Subcommand)]
pub enum Import {
    /// Turn a configuration of LiteLLM into one of ours; it is printed, and what could not be taken over is said
    #[command(
        after_help = "Examples:\n  tidegate import litellm config.yaml > tidegate.toml\n  tidegate check --config tidegate.toml"
    )]
    Litellm {
        /// Its `config.yaml`
        file: PathBuf,
    },
}

impl Import {
    pub fn run(self) -> anyhow::Result<()> {
        let Self::Litellm { file } = self;
        let named = || file.display().to_string();
        let yaml = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", named()))?;
        let imported = import::convert(&yaml).with_context(named)?;
        out::text(format_args!("{}", imported.text))?;
        // Where the other goes into a file, this is still seen.
        eprintln!("{} providers, {} models", imported.providers, imported.models);
        for note in &imported.notes {
            eprintln!("- {}", out::shown(note));
        }
        Ok(())
    }
}
