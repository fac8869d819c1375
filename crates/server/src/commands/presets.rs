//! `tidegate presets`: which there are, and switching them off and on. A running server notices within two seconds.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Tenant, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::audit::By;
use tidegate_store::presets::PresetStatus;

use super::keys::{open, workspace};
use super::out::{say, shown};
use crate::cli::Place;

const PAGE: u32 = 100;

#[derive(Subcommand)]
pub enum Presets {
    /// List the presets of a workspace, last updated first
    #[command(after_help = "Examples:\n  tidegate presets list\n  tidegate presets list --workspace research")]
    List {
        #[command(flatten)]
        place: Place,
        /// Id or slug of the workspace, instead of the default one
        #[arg(long)]
        workspace: Option<String>,
    },
    /// Switch a preset off: requests that name it are refused
    #[command(after_help = "Example:\n  tidegate presets disable brief")]
    Disable(Named),
    /// Switch it on again
    #[command(after_help = "Example:\n  tidegate presets enable brief")]
    Enable(Named),
    /// Switch it off for good: it takes no new version either
    #[command(after_help = "Example:\n  tidegate presets archive brief")]
    Archive(Named),
}

#[derive(Args)]
pub struct Named {
    #[command(flatten)]
    place: Place,
    /// Its name, as `presets list` shows it
    slug: String,
}

impl Presets {
    pub async fn run(self) -> anyhow::Result<()> {
        let (named, status) = match self {
            Self::List { place, workspace: only } => {
                let (store, tenant) = open(&place.source(None)).await?;
                let workspace = workspace(&store, &tenant, only.as_deref()).await?;
                let listed = list(&store, &tenant, &workspace.id).await;
                store.close().await;
                return listed;
            }
            Self::Disable(named) => (named, PresetStatus::Disabled),
            Self::Enable(named) => (named, PresetStatus::Active),
            Self::Archive(named) => (named, PresetStatus::Archived),
        };
        let slug = &named.slug;
        let (store, tenant) = open(&named.place.source(None)).await?;
        let changed = store.set_preset_status(&tenant, &By::shell(SystemClock.now()), slug, status).await;
        store.close().await;
        let preset = changed?.with_context(|| format!("there is no preset {slug:?}: see `tidegate presets list`"))?;
        if preset.status != status {
            bail!("{slug:?} is {}, and stays so: make another preset instead", preset.status.as_str());
        }
        say!("{} is {}", preset.slug, status.as_str())
    }
}

async fn list(store: &Store, tenant: &Tenant, workspace: &WorkspaceId) -> anyhow::Result<()> {
    say!("{:<32} {:<9} {:<8} {:<24} NAME", "PRESET", "STATE", "VERSIONS", "UPDATED")?;
    for offset in (0..).step_by(PAGE as usize) {
        let (presets, _) = store.list_presets(tenant, workspace, offset, PAGE).await?;
        for preset in &presets {
            let (state, updated) = (preset.status.as_str(), preset.updated.to_string());
            let name = shown(&preset.name);
            say!("{:<32} {state:<9} {:<8} {updated:<24} {name}", preset.slug, preset.last_version)?;
        }
        if presets.len() < PAGE as usize {
            break;
        }
    }
    Ok(())
}
