//! `tidegate byok`: provider credentials from a shell. A key is read from a file or the standard input, never from an
//! argument: those are for everybody on the machine to see. A running server notices changes within two seconds.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Secret, Tenant, WorkspaceId};
use tidegate_gateway::snapshot::Snapshot;
use tidegate_store::Store;
use tidegate_store::audit::By;
use tidegate_store::credentials::{CredentialChange, CredentialFilter, NewCredential, Settings};
use tidegate_store::vault::{MasterRing, Vault};

use super::keys::{self, open};
use super::out::{say, shown};
use crate::api::byok::{LARGEST_KEY_BYTES, LONGEST_NAME, described, is_provider};
use crate::api::form::parse_uuid;
use crate::cli::Place;
use crate::config::{Checked, Source};
use crate::serve::prove_ring;

#[derive(Subcommand)]
pub enum Byok {
    /// Store a credential; its key is read from a file or the standard input
    #[command(
        after_help = "Examples:\n  tidegate byok create --provider anthropic --key-file key.txt\n  pass show openai | tidegate byok create --provider openai --name prod"
    )]
    Create {
        #[command(flatten)]
        place: Place,
        /// The provider's slug
        #[arg(long)]
        provider: String,
        #[arg(long)]
        name: Option<String>,
        /// The id or slug of its workspace, instead of the default one
        #[arg(long)]
        workspace: Option<String>,
        /// The file that holds the key, instead of the standard input
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// List credentials in the order in which they are tried
    #[command(
        after_help = "Examples:\n  tidegate byok list\n  tidegate byok list --workspace research\n\nThe state `other address` is that of a credential which may be sent only where its provider was when it was stored,\nand the configuration reaches the provider elsewhere now: it is not used until its key is given again with rotate."
    )]
    List {
        #[command(flatten)]
        place: Place,
        /// Only those of this workspace, named by its id or slug
        #[arg(long)]
        workspace: Option<String>,
    },
    /// Disable a credential; it is used no more within two seconds
    #[command(after_help = "Example:\n  tidegate byok disable 01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11")]
    Disable {
        #[command(flatten)]
        place: Place,
        /// The credential's id, as `byok list` shows it
        id: String,
    },
    /// Enable a credential again
    #[command(after_help = "Example:\n  tidegate byok enable 01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11")]
    Enable {
        #[command(flatten)]
        place: Place,
        /// The credential's id, as `byok list` shows it
        id: String,
    },
    /// Replace a credential's key; the new one is read from a file or the standard input
    #[command(after_help = "Example:\n  pass show openai | tidegate byok rotate 01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11")]
    Rotate {
        #[command(flatten)]
        place: Place,
        /// The credential's id, as `byok list` shows it
        id: String,
        /// The file that holds the key, instead of the standard input
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// Delete a credential for good
    #[command(after_help = "Example:\n  tidegate byok delete 01997d8e-6a3c-7b1f-9a52-0f4f2f0f8d11")]
    Delete {
        #[command(flatten)]
        place: Place,
        /// The credential's id, as `byok list` shows it
        id: String,
    },
}

impl Byok {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create { place, provider, name, workspace, key_file } => {
                let desk = Box::pin(Desk::open(place)).await?;
                desk.create(&provider, name, workspace.as_deref(), key_file.as_deref()).await?;
                desk.store.close().await;
            }
            Self::List { place, workspace } => {
                // Without the vault: the list is needed also where the ring is lost.
                let source = place.source(None);
                let snapshot = reached(&source.read()?)?;
                let (store, tenant) = open(&source).await?;
                let listed = list(&store, &tenant, &snapshot, workspace.as_deref()).await;
                store.close().await;
                listed?;
            }
            Self::Disable { place, id } => set_disabled(place, &id, true).await?,
            Self::Enable { place, id } => set_disabled(place, &id, false).await?,
            Self::Rotate { place, id, key_file } => {
                let desk = Box::pin(Desk::open(place)).await?;
                desk.rotate(&id, key_file.as_deref()).await?;
                desk.store.close().await;
            }
            Self::Delete { place, id } => {
                let (store, tenant) = open(&place.source(None)).await?;
                if !store.delete_credential(&tenant, &by(), &uuid(&id)?).await? {
                    return Err(gone(&id));
                }
                store.close().await;
                say!("Deleted {id}")?;
            }
        }
        Ok(())
    }
}

/// The store and what it takes to seal something for it.
struct Desk {
    store: Store,
    tenant: Tenant,
    vault: Vault,
    snapshot: Snapshot,
}

impl Desk {
    async fn open(place: Place) -> anyhow::Result<Self> {
        let source: Source = place.source(None);
        let config = source.read()?;
        let snapshot = reached(&config)?;
        let (store, tenant) = open(&source).await?;
        let vault = Vault::new(config.master_key.clone(), MasterRing::load(&config.master_key).await?);
        prove_ring(&store, &vault, &config).await?;
        Ok(Self { store, tenant, vault, snapshot })
    }

    async fn create(
        &self,
        provider: &str,
        name: Option<String>,
        workspace: Option<&str>,
        key_file: Option<&Path>,
    ) -> anyhow::Result<()> {
        if !is_provider(&self.snapshot, provider) {
            bail!("--provider: {provider:?} is neither a known provider nor a configured one");
        }
        if name.as_deref().is_some_and(|name| name.chars().count() > LONGEST_NAME || name.contains('\0')) {
            bail!("--name must have at most {LONGEST_NAME} characters");
        }
        let workspace = keys::workspace(&self.store, &self.tenant, workspace).await?;
        let key = read_key(key_file)?;
        let secret = described(&self.snapshot, &self.vault, provider, &key)
            .map_err(|reason| anyhow::anyhow!("the key {reason}"))?;
        let settings = Settings { name: Some(name), ..Settings::default() };
        let new = NewCredential { workspace: &workspace.id, provider, secret, settings };
        let row = self.store.create_credential(&self.tenant, &by(), &new).await.context("the workspace")?;
        say!("{}", row.id)?;
        eprintln!("Stored {} for {provider}.", shown(&row.label));
        Ok(())
    }

    async fn rotate(&self, id: &str, key_file: Option<&Path>) -> anyhow::Result<()> {
        let uuid = uuid(id)?;
        let row = self.store.find_credential(&self.tenant, &uuid).await?.ok_or_else(|| gone(id))?;
        let key = read_key(key_file)?;
        let secret = described(&self.snapshot, &self.vault, &row.provider, &key)
            .map_err(|reason| anyhow::anyhow!("the key {reason}"))?;
        let change = CredentialChange { secret: Some(secret), ..CredentialChange::default() };
        let changed = self.store.update_credential(&self.tenant, &by(), &uuid, &change).await?;
        let new = changed.ok_or_else(|| gone(id))?;
        say!("Rotated {id}: {} is now {}", shown(&row.label), shown(&new.label))
    }
}

async fn set_disabled(place: Place, id: &str, disabled: bool) -> anyhow::Result<()> {
    // Without the vault: what must stop must stop also where the ring is lost.
    let (store, tenant) = open(&place.source(None)).await?;
    let settings = Settings { disabled: Some(disabled), ..Settings::default() };
    let change = CredentialChange { settings, ..CredentialChange::default() };
    let changed = store.update_credential(&tenant, &by(), &uuid(id)?, &change).await?;
    let row = changed.ok_or_else(|| gone(id))?;
    store.close().await;
    let done = if disabled { "Disabled" } else { "Enabled" };
    say!("{done} {id} ({}, {})", row.provider, shown(&row.label))
}

/// The providers as the configuration reaches them, without the simulated one, which is not running.
fn reached(config: &Checked) -> anyhow::Result<Snapshot> {
    // An alias may name a model of it.
    let simulated = config.sim_enabled.then_some("http://simulator.invalid");
    let mut snapshot = config.snapshot(simulated, config.listen)?;
    // It stands last.
    snapshot.upstreams.truncate(snapshot.upstreams.len() - usize::from(simulated.is_some()));
    Ok(snapshot)
}

async fn list(store: &Store, tenant: &Tenant, snapshot: &Snapshot, only: Option<&str>) -> anyhow::Result<()> {
    let only = match only {
        Some(name) => Some(keys::workspace(store, tenant, Some(name)).await?.id),
        None => None,
    };
    let (workspaces, _) = store.list_workspaces(tenant, 0, u32::MAX).await?;
    let slugs: HashMap<WorkspaceId, String> = workspaces.into_iter().map(|one| (one.id, one.slug)).collect();
    say!("{:<36} {:<18} {:<18} {:<13} {:<8} {:<14} NAME", "ID", "WORKSPACE", "PROVIDER", "STATE", "SECTION", "LABEL")?;
    let page = 100;
    for offset in (0..).step_by(page as usize) {
        let filter = CredentialFilter { workspace: only.as_ref(), provider: None, offset, limit: page };
        let (rows, _) = store.list_credentials(tenant, filter).await?;
        for row in &rows {
            let mut ways = snapshot.upstreams.iter().filter(|upstream| *upstream.slug == *row.provider).peekable();
            let is_known = ways.peek().is_some();
            let is_reached =
                ways.any(|upstream| row.destination.as_deref().is_some_and(|stored| upstream.takes(stored)));
            let state = match (is_known, is_reached) {
                _ if row.disabled => "disabled",
                (true, false) => "other address",
                _ => "live",
            };
            say!(
                "{:<36} {:<18} {:<18} {:<13} {:<8} {:<14} {}",
                row.id,
                slugs.get(&row.workspace).map_or("-", String::as_str),
                row.provider,
                state,
                if row.is_fallback { "fallback" } else { "first" },
                shown(&row.label),
                shown(row.name.as_deref().unwrap_or("-"))
            )?;
        }
        if rows.len() < page as usize {
            break;
        }
    }
    Ok(())
}

fn by() -> By {
    By::shell(SystemClock.now())
}

fn uuid(id: &str) -> anyhow::Result<String> {
    parse_uuid(id).with_context(|| format!("{id:?} is not an id: see `tidegate byok list`"))
}

fn gone(id: &str) -> anyhow::Error {
    anyhow::anyhow!("there is no credential {id}: see `tidegate byok list`")
}

fn read_key(file: Option<&Path>) -> anyhow::Result<Secret> {
    match file {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("--key-file: {} cannot be read", path.display()))?;
            key_from(file)
        }
        None => {
            let input = std::io::stdin();
            if input.is_terminal() {
                eprintln!("Paste the key and end with Ctrl-D:");
            }
            key_from(input.lock())
        }
    }
}

fn key_from(input: impl Read) -> anyhow::Result<Secret> {
    // Room for all of it from the start, so that no grown-out-of buffer is left behind unwiped.
    let mut bytes = Vec::with_capacity(LARGEST_KEY_BYTES + 1);
    let read = input.take(LARGEST_KEY_BYTES as u64 + 1).read_to_end(&mut bytes);
    let raw = Secret::new(bytes);
    read.context("the key cannot be read")?;
    raw.expose(|bytes| {
        if bytes.len() > LARGEST_KEY_BYTES {
            bail!("the key must have at most {LARGEST_KEY_BYTES} bytes");
        }
        let text = std::str::from_utf8(bytes).context("the key must be UTF-8 text")?;
        Ok(Secret::new(text.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trimmed_and_has_a_limit() {
        let read = |text: &[u8]| key_from(text).map(|key| key.expose(<[u8]>::to_vec));
        assert_eq!(read(b" sk-1\r\n").unwrap(), b"sk-1");
        assert_eq!(read(&[b'x'; LARGEST_KEY_BYTES]).unwrap().len(), LARGEST_KEY_BYTES);
        assert!(read(&[b'x'; LARGEST_KEY_BYTES + 1]).is_err() && read(b"\xff").is_err());
    }
}
