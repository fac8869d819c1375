//! `tidegate secrets`: the master keys that protect stored secrets. All of it works beside a running server.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;
use tidegate_core::Tenant;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_gateway::broadcast;
use tidegate_store::Store;
use tidegate_store::audit::By;
use tidegate_store::journal::JournalReader;
use tidegate_store::rings::NodeRing;
use tidegate_store::vault::{MasterKeySource, MasterRing, Vault, activate_key, add_active_key, add_key, remove_keys};
use tokio::time::{Instant, sleep, sleep_until};

use super::keys::open;
use super::out::say;
use crate::cli::Place;
use crate::serve::prove_ring;

/// A server looks for another ring every half second, and writes down what it has sealed in less.
const LEARNT: Duration = Duration::from_secs(2);
/// How long other servers that run may take to say that they have a key.
const SAID: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub enum Secrets {
    /// Make a new master key active and wrap every secret's key under it
    #[command(
        after_help = "Examples:\n  tidegate secrets rotate\n  tidegate secrets rotate --remove-old\n\nA rotation that was cut short is finished by the next one. Where servers have copies of the ring, or take it from a\nvariable or a command, give each of them the new key first: behind the others, restart the servers; then in front of the\nothers, restart them; then rotate."
    )]
    Rotate {
        #[command(flatten)]
        place: Place,
        /// Remove the old master keys from the file when nothing is sealed under them any more
        #[arg(long)]
        remove_old: bool,
        /// Remove them although a server that does not run may have letters for destinations that nobody could open then
        #[arg(long, requires = "remove_old")]
        force: bool,
    },
    /// Open every stored secret and name those that do not open
    #[command(after_help = "Example:\n  tidegate secrets verify")]
    Verify {
        #[command(flatten)]
        place: Place,
    },
}

impl Secrets {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let (place, rotation) = match self {
            Self::Rotate { place, remove_old, force } => (place, Some((remove_old, force))),
            Self::Verify { place } => (place, None),
        };
        let source = place.source(None);
        let config = source.read()?;
        let (store, tenant) = open(&source).await?;
        let vault = Vault::new(config.master_key.clone(), MasterRing::load(&config.master_key).await?);
        let code = match rotation {
            Some((remove_old, force)) => {
                prove_ring(&store, &vault, &config).await?;
                let (folder, source) = (&config.data_dir, &config.master_key);
                let removal = remove_old.then_some(Removal { folder, force });
                rotate(&store, &tenant, &vault, source, removal).await?
            }
            None => verify(&store, &tenant, &vault).await?,
        };
        store.close().await;
        Ok(code)
    }
}

/// How many letters wait in the journal of this data folder.
async fn waiting(folder: &Path) -> anyhow::Result<u64> {
    let Some(reader) = JournalReader::open(folder) else { return Ok(0) };
    let letters = reader.letters().await;
    reader.close().await;
    Ok(letters?)
}

/// The old keys are to go.
struct Removal<'a> {
    folder: &'a Path,
    force: bool,
}

async fn rotate(
    store: &Store,
    tenant: &Tenant,
    vault: &Vault,
    source: &MasterKeySource,
    removal: Option<Removal<'_>>,
) -> anyhow::Result<ExitCode> {
    let check = store.vault_check().await?;
    let is_unfinished = check.is_some_and(|check| check.master_key != vault.active_id())
        || store.count_to_rewrap(tenant, vault).await? > 0;
    match source {
        MasterKeySource::File(path) if !is_unfinished => {
            let id = shared_key(store, path).await?;
            vault.refresh().await?;
            eprintln!("new master key {id} is active");
        }
        MasterKeySource::File(_) => {
            eprintln!("going on with a rotation to master key {} that was not finished", vault.active_id());
        }
        _ if is_unfinished => eprintln!("wrapping under master key {}, the first in {source}", vault.active_id()),
        _ => {
            eprintln!(
                "everything is sealed under master key {}, the first in {source}: put a new key behind it at all servers and \
                 restart them, then in front of it and restart them, then run this again",
                vault.active_id()
            );
            return Ok(ExitCode::SUCCESS);
        }
    }
    let known_since = Instant::now();
    let active = vault.active_id();
    let without = lacking(store, |ring| ring.keys.iter().any(|id| **id == *active)).await?;
    if !without.is_empty() {
        bail!("master key {active} is not known to {}: {GIVE_IT}", named(&without));
    }
    let failed = rewrap(store, tenant, vault).await?;
    let mut is_removed = removal.is_some();
    if let Some(Removal { folder, force }) = removal {
        // Whoever seals letters beside us knows of the new key by then, and those under the old one are here to be counted.
        sleep_until(known_since + LEARNT).await;
        let letters = waiting(folder).await?;
        if letters > 0 {
            // Nobody could read them any more, and they were promised to somebody.
            eprintln!(
                "{letters} letters wait for destinations, sealed under a key of now: no key is removed; run this \
                 again when they are delivered"
            );
            is_removed = false;
        }
        for why in needed_elsewhere(store, &active, force).await? {
            eprintln!("{why}: no key is removed");
            is_removed = false;
        }
    }
    give_up_old(store, vault, source, is_removed).await?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const GIVE_IT: &str = "give every server the same ring first (one file that all of them read, or a copy with the new key \
                       behind the others and a restart, then in front of them and a restart), then rotate";

/// A new active key, which every server that runs has seen in the file before anything is sealed under it.
async fn shared_key(store: &Store, path: &Path) -> anyhow::Result<Box<str>> {
    let (rings, _) = store.rings().await?;
    if !rings.iter().any(|ring| ring.is_live) {
        return Ok(add_active_key(path)?);
    }
    let id = add_key(path)?;
    let without = lacking(store, |ring| ring.keys.iter().any(|known| **known == *id)).await?;
    if !without.is_empty() {
        // Nobody has used it.
        remove_keys(path, &[&id])?;
        bail!("a new master key in {} is not seen by {}: {GIVE_IT}", path.display(), named(&without));
    }
    activate_key(path, &id)?;
    Ok(id)
}

/// The servers that run and do not say in time what they should.
async fn lacking(store: &Store, is_right: impl Fn(&NodeRing) -> bool) -> anyhow::Result<Vec<NodeRing>> {
    let end = Instant::now() + SAID;
    loop {
        let (mut rings, _) = store.rings().await?;
        rings.retain(|ring| ring.is_live && !is_right(ring));
        if rings.is_empty() || Instant::now() >= end {
            return Ok(rings);
        }
        sleep(LOOK).await;
    }
}

/// Why keys behind the active one cannot go: others may have letters under them.
async fn needed_elsewhere(store: &Store, active: &str, force: bool) -> anyhow::Result<Vec<String>> {
    let (_, since) = store.rings().await?;
    // Said after it sealed with the new key: what it counts then is all that there will be.
    let is_settled = |ring: &NodeRing| ring.told >= since && ring.keys.first().is_some_and(|first| first == active);
    let silent = lacking(store, is_settled).await?;
    let mut why: Vec<String> =
        silent.iter().map(|ring| format!("server {} does not use master key {active} yet", ring.node)).collect();
    let (rings, _) = store.rings().await?;
    for ring in rings {
        let NodeRing { node, letters, .. } = &ring;
        if ring.is_live && *letters > 0 {
            why.push(format!("letters for destinations wait at server {node}; run this again when they are delivered"));
        } else if !ring.is_live && force {
            store.forget_ring(node).await?;
        } else if !ring.is_live {
            let told = "was not stopped in order, or has letters for destinations";
            why.push(format!(
                "server {node} {told}; start it once so that it delivers them, or give them up with --force"
            ));
        }
    }
    Ok(why)
}

fn named(rings: &[NodeRing]) -> String {
    let names: Vec<String> = rings.iter().map(|ring| format!("server {}", ring.node)).collect();
    names.join(", ")
}

/// Wraps everything under the active key, batch by batch; how many records could not be.
async fn rewrap(store: &Store, tenant: &Tenant, vault: &Vault) -> anyhow::Result<usize> {
    let total = store.count_to_rewrap(tenant, vault).await?;
    let (mut done, mut failed, mut after, mut files) = (0, 0, String::new(), false);
    loop {
        let by = By::shell(SystemClock.now());
        let batch = match files {
            false => store.rewrap_credentials(tenant, &by, vault, &after).await?,
            true => store.rewrap_files(tenant, &by, vault, &after).await?,
        };
        done += batch.count;
        failed += batch.failed.len();
        for record in &batch.failed {
            eprintln!("tidegate: {} was left as it is: {}", record.id, record.error);
        }
        // Others may have added some.
        eprintln!("rewrapped {done} of {}", total.max(done));
        match batch.next {
            Some(next) => after = next,
            None if files => break,
            None => (after, files) = (String::new(), true),
        }
    }
    let destinations = store.reseal_destinations(vault, broadcast::CONFIG_LABEL).await?;
    for record in &destinations.failed {
        eprintln!("tidegate: destination {} was left as it is: {}", record.id, record.error);
    }
    failed += destinations.failed.len();
    store.rewrap_vault_check(vault).await?;
    // What was wrapped under the old key must not outlive it.
    store.forget_overwritten().await;
    Ok(failed)
}

async fn give_up_old(store: &Store, vault: &Vault, source: &MasterKeySource, remove_old: bool) -> anyhow::Result<()> {
    let old: Vec<Box<str>> = vault.ids().into_iter().skip(1).collect();
    let unused = store
        .give_up_master_keys(&old, |ids| match source {
            MasterKeySource::File(path) if remove_old => remove_keys(path, ids),
            _ => Ok(()),
        })
        .await?;
    for id in &old {
        match (unused.contains(id), source) {
            (false, _) => eprintln!("master key {id} is still in use"),
            (true, MasterKeySource::File(_)) if remove_old => say!("removed master key {id}")?,
            (true, MasterKeySource::File(_)) => {
                say!("master key {id} is not used any more: --remove-old removes it")?;
            }
            (true, _) if remove_old => say!("master key {id} is not used any more: remove it from {source}")?,
            (true, _) => {
                say!(
                    "master key {id} seals nothing in the store any more: --remove-old tells when it may be removed from {source}"
                )?;
            }
        }
    }
    Ok(())
}

async fn verify(store: &Store, tenant: &Tenant, vault: &Vault) -> anyhow::Result<ExitCode> {
    let is_right = store.is_ring_right(vault).await?;
    if !is_right {
        eprintln!("tidegate: the check record does not open: this is another ring of master keys");
    }
    let verified = store.verify_credentials(tenant, vault, |count| eprintln!("opened {count}")).await?;
    let files = store.verify_files(tenant, vault).await?;
    let destinations = store.verify_destinations(vault, broadcast::CONFIG_LABEL).await?;
    let contents = store.verify_contents(vault, |count| eprintln!("opened what was said in {count} requests")).await?;
    for record in verified.failed.iter().chain(&files.failed).chain(&destinations.failed).chain(&contents.failed) {
        eprintln!("tidegate: {} {}", record.id, record.error);
    }
    let failed = verified.failed.len() as u64;
    say!("{} secrets open, {failed} do not", verified.count - failed)?;
    let broken = files.failed.len() as u64;
    if files.count > 0 {
        say!("{} files open, {broken} do not", files.count - broken)?;
    }
    let closed = destinations.failed.len() as u64;
    if destinations.count > 0 {
        say!("{} destinations open, {closed} do not", destinations.count - closed)?;
    }
    let unheard = contents.failed.len() as u64;
    if contents.count > 0 {
        say!("{} requests open, {unheard} do not", contents.count - unheard)?;
    }
    let failed = failed + broken + closed + unheard;
    Ok(if is_right && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
