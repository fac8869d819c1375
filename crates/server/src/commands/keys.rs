//! `tidegate keys`: the store's keys from a shell. A running server notices changes within two seconds.

use anyhow::{Context as _, bail};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::key::{self, KeyHash};
use tidegate_core::{KeyKind, Money, Tenant, Timestamp, WorkspaceId};
use tidegate_store::audit::By;
use tidegate_store::keys::{KeyFilter, KeyMatch, KeyRow, LimitReset, NewKey};
use tidegate_store::workspaces::{DEFAULT_SLUG, Workspace};
use tidegate_store::{Refused, Store, StoreError, is_there};

use super::out::{say, shown};
use crate::config::Source;

const LONGEST_NAME: usize = 255;

pub struct Create {
    pub name: String,
    pub kind: KeyKind,
    pub limit: Option<String>,
    pub reset: Option<LimitReset>,
    pub expires: Option<String>,
    pub workspace: Option<String>,
    /// The address or id of the member it belongs to.
    pub member: Option<String>,
}

pub async fn open(source: &Source) -> anyhow::Result<(Store, Tenant)> {
    let (store, tenant) = open_any(source).await?;
    if let Some(at) = store.moved_at().await? {
        bail!("what is stored here was moved to a PostgreSQL server at {at}: set storage.url to it");
    }
    Ok((store, tenant))
}

/// The same for commands that only look, and may look at a store that was moved.
pub async fn open_any(source: &Source) -> anyhow::Result<(Store, Tenant)> {
    let config = source.read()?;
    if config.storage_url.starts_with("sqlite:") && !config.data_dir.is_dir() {
        bail!(
            "there is no data folder {}: run `tidegate serve` first or name it with --data-dir",
            config.data_dir.display()
        );
    }
    // Who only looks leaves nothing behind in a folder that was named by mistake.
    if !is_there(&config.storage_url, &config.data_dir) {
        bail!(
            "there is no store in {}: run `tidegate serve` first or name its folder with --data-dir",
            config.data_dir.display()
        );
    }
    let store = Store::open(&config.storage_url, &config.data_dir).await?;
    let organisation = store.sole_organisation().await?.context("the store is empty: run `tidegate serve` first")?;
    Ok((store, Tenant { organisation: organisation.id }))
}

/// The workspace with this id or slug, or the default one.
pub async fn workspace(store: &Store, tenant: &Tenant, name: Option<&str>) -> anyhow::Result<Workspace> {
    let name = name.unwrap_or(DEFAULT_SLUG);
    let found = store.find_workspace_named(tenant, &name.to_lowercase()).await?;
    found.with_context(|| format!("there is no workspace {name:?}"))
}

pub async fn create(source: &Source, options: Create) -> anyhow::Result<()> {
    let length = options.name.chars().count();
    if length == 0 || length > LONGEST_NAME || options.name.contains('\0') {
        bail!("--name must have 1 to {LONGEST_NAME} characters");
    }
    let limit =
        options.limit.as_deref().map(Money::parse).transpose().map_err(|error| anyhow::anyhow!("--limit {error}"))?;
    if options.reset.is_some() && limit.is_none() {
        bail!("--reset needs a --limit");
    }
    if options.kind == KeyKind::Management && limit.is_some() {
        bail!(
            "--limit is for inference keys: a management key cannot spend; leave out one of --limit and --management"
        );
    }
    let now = SystemClock.now();
    let expires = options.expires.as_deref().map(|text| instant(text, now)).transpose()?;
    let config = source.read()?;
    let (store, tenant) = open(source).await?;
    let workspace = workspace(&store, &tenant, options.workspace.as_deref()).await?;
    let member = match &options.member {
        Some(who) => {
            let found = store.find_member(&tenant, who).await?;
            Some(found.with_context(|| format!("--member: {who:?} is no member: see `tidegate members list`"))?)
        }
        None => None,
    };
    let prefix = match options.kind {
        KeyKind::Inference => &config.key_prefix,
        KeyKind::Management => &config.management_prefix,
    };
    let raw = key::generate(prefix);
    let new = raw.expose(|bytes| NewKey {
        hash: KeyHash::of(bytes),
        kind: options.kind,
        name: options.name,
        label: key::label(&String::from_utf8_lossy(bytes), prefix),
        limit,
        limit_reset: options.reset,
        include_byok_in_limit: false,
        expires,
        creator: member.as_ref().map(|member| member.id.clone()),
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    });
    let made = store.create_key(&tenant, &By::shell(now), &workspace.id, new).await;
    let row = made.with_context(|| match options.member.as_deref() {
        Some(who) => format!("{who:?} in workspace {}", workspace.slug),
        None => format!("workspace {}", workspace.slug),
    })?;
    store.close().await;
    if raw.expose(|bytes| say!("{}", String::from_utf8_lossy(bytes))).is_err() {
        // It is nowhere else.
        bail!("the key was made but could not be printed: `tidegate keys delete {}`", &row.hash.to_hex()[..8]);
    }
    let name = shown(&row.name);
    eprintln!("Created {} key \"{name}\" with hash {}. It is shown only this once.", row.kind.as_str(), row.hash);
    Ok(())
}

fn instant(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let parsed: jiff::Timestamp =
        text.parse().map_err(|_| anyhow::anyhow!("--expires must look like 2027-01-31T00:00:00Z"))?;
    let expires = Timestamp(parsed.as_millisecond());
    if expires <= now {
        bail!("--expires must lie in the future");
    }
    Ok(expires)
}

pub async fn list(source: &Source, all: bool, only: Option<&str>) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let only = match only {
        Some(name) => Some(workspace(&store, &tenant, Some(name)).await?.id),
        None => None,
    };
    let listed = rows(&store, &tenant, all, only.as_ref()).await;
    store.close().await;
    listed
}

async fn rows(store: &Store, tenant: &Tenant, all: bool, only: Option<&WorkspaceId>) -> anyhow::Result<()> {
    say!("{:<10} {:<11} {:<9} {:<24} {:<14} NAME", "HASH", "KIND", "STATE", "LABEL", "LIMIT")?;
    let now = SystemClock.now();
    let page = 100;
    for offset in (0..).step_by(page as usize) {
        let filter =
            KeyFilter { workspace: only, kind: None, creator: None, include_disabled: all, offset, limit: page };
        let keys = store.list_keys(tenant, filter).await?;
        for key in &keys {
            let state = match (key.disabled, key.expires) {
                (true, _) => "disabled",
                (false, Some(expires)) if expires <= now => "expired",
                _ => "live",
            };
            let reset = key.limit_reset.map(|reset| format!("/{}", reset.as_str())).unwrap_or_default();
            let limit = key.limit.map_or_else(|| "-".to_owned(), |limit| format!("${limit}{reset}"));
            say!(
                "{:<10} {:<11} {:<9} {:<24} {:<14} {}",
                &key.hash.to_hex()[..8],
                key.kind.as_str(),
                state,
                shown(&key.label),
                limit,
                shown(&key.name)
            )?;
        }
        if keys.len() < page as usize {
            break;
        }
    }
    Ok(())
}

pub async fn set_disabled(source: &Source, hash: &str, disabled: bool) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let key = named(&store, &tenant, hash).await?;
    match store.set_key_disabled(&tenant, &By::shell(SystemClock.now()), &key.hash, disabled).await {
        Ok(true) => {}
        Ok(false) => bail!("the key is gone"),
        Err(StoreError::Refused(Refused::NotAMember)) => {
            bail!("the key's creator is no longer a member of its workspace: make another key instead")
        }
        Err(error) => return Err(error.into()),
    }
    store.close().await;
    let done = if disabled { "Disabled" } else { "Enabled" };
    say!("{done} {} ({})", shown(&key.label), shown(&key.name))
}

pub async fn delete(source: &Source, hash: &str) -> anyhow::Result<()> {
    let (store, tenant) = open(source).await?;
    let key = named(&store, &tenant, hash).await?;
    if !store.delete_key(&tenant, &By::shell(SystemClock.now()), &key.hash, None).await? {
        bail!("the key is gone");
    }
    store.close().await;
    say!("Deleted {} ({})", shown(&key.label), shown(&key.name))
}

/// So many digits `keys list` shows; with fewer a slip of the hand would hit a key.
const LEAST_DIGITS: usize = 8;

/// The key whose hash begins so, or the key itself: whoever finds one that leaked has just that. So what was given is not
/// repeated.
async fn named(store: &Store, tenant: &Tenant, word: &str) -> anyhow::Result<Box<KeyRow>> {
    let word = word.trim();
    let itself = KeyHash::of(word.as_bytes()).to_hex();
    if let KeyMatch::One(key) = store.find_key_by_prefix(tenant, &itself).await? {
        return Ok(key);
    }
    if !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("this is no key of this store, nor the hash of one: see `tidegate keys list --all`");
    }
    if word.len() < LEAST_DIGITS {
        bail!("give at least {LEAST_DIGITS} digits of the key's hash: see `tidegate keys list --all`");
    }
    match store.find_key_by_prefix(tenant, &word.to_lowercase()).await? {
        KeyMatch::One(key) => Ok(key),
        KeyMatch::None => bail!("no key's hash begins with this: see `tidegate keys list --all`"),
        KeyMatch::Several => bail!("several keys' hashes begin with this: give more of it"),
    }
}
