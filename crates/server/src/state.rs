//! What every handler can reach.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::HeaderMap;
use ipnet::IpNet;
use tidegate_core::{KeyHash, Tenant, Timestamp};
use tidegate_gateway::limit::{PerSource, Rate};
use tidegate_gateway::{Failure, Gateway};
use tidegate_store::Store;
use tidegate_store::journal::JournalReader;
use tidegate_store::vault::Vault;
use tokio::sync::Semaphore;

use crate::caller;
use crate::config::Oauth;
use crate::oidc::Door;
use crate::reload::Reloads;
use crate::router::Router;

/// So long nobody looks again at what hardly ever changes.
const PROVED: Duration = Duration::from_secs(30);

/// When something was last found right.
#[derive(Default)]
pub struct Proved(Mutex<Option<Instant>>);

impl Proved {
    pub fn is_fresh(&self, now: Instant) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| now.saturating_duration_since(at) < PROVED)
    }

    pub fn note(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

pub struct App {
    pub gateway: Arc<Gateway>,
    pub store: Arc<Store>,
    pub vault: Arc<Vault>,
    /// What waits for destinations.
    pub journal: JournalReader,
    pub router: Router,
    pub public_url: String,
    pub trusted_proxies: Vec<IpNet>,
    pub key_prefix: String,
    pub oauth: Oauth,
    /// Exchanges of codes by address: all, and failed ones.
    pub exchanges: PerSource,
    pub exchange_failures: PerSource,
    /// Exchanges that are with the store at a time.
    pub exchanging: Semaphore,
    /// How often people looked at pages who signed in as themselves, by their ids.
    pub members: quick_cache::sync::Cache<Box<str>, Arc<Rate>>,
    /// The way to the issuer that people may sign in with.
    pub oidc: Option<Door>,
    /// Questions about finished requests that are answered at a time.
    pub analytics: Semaphore,
    pub body_idle: Duration,
    pub body_total: Duration,
    /// When tables and master keys were last found right.
    pub proved: Proved,
    /// Where a new look at the configuration is asked for.
    pub reloads: Reloads,
}

impl App {
    /// Who is calling: the peer, or whom a trusted proxy says it speaks for.
    pub fn caller(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        let is_trusted = |address: &IpAddr| self.trusted_proxies.iter().any(|range| range.contains(address));
        if !is_trusted(&peer.ip().to_canonical()) {
            return peer;
        }
        caller::named(headers, is_trusted).map_or(peer, |address| SocketAddr::new(address, peer.port()))
    }

    /// Counts an exchange of a code against the rates of its address.
    pub fn admit_exchange(&self, source: IpAddr, now: Timestamp) -> Result<(), Failure> {
        self.check_exchange(source, now)?;
        let all = self.gateway.snapshot().settings.exchanges_per_minute;
        self.exchanges.note(source, now, all).map_err(|free| Failure::rate_limited(all.into(), free, now))
    }

    /// Whether too many from its address have failed.
    pub fn check_exchange(&self, source: IpAddr, now: Timestamp) -> Result<(), Failure> {
        let failed = self.gateway.snapshot().settings.exchange_failures_per_minute;
        let checked = self.exchange_failures.check(source, now, failed);
        checked.map_err(|free| Failure::rate_limited(failed.into(), free, now))
    }

    /// Takes a change of keys over at once; the other nodes hear of it within a second or two.
    pub async fn keys_changed(&self) {
        if let Err(error) = self.gateway.keys.refresh().await {
            // Stored it is; the index follows by itself when the store answers again.
            tracing::warn!(%error, "a changed key is not known on this node yet");
        }
    }

    /// The same for credentials.
    pub async fn credentials_changed(&self) {
        if let Err(error) = self.gateway.credentials.refresh().await {
            tracing::warn!(%error, "a changed credential is not known on this node yet");
        }
    }

    /// The same for presets.
    pub async fn presets_changed(&self) {
        if let Err(error) = self.gateway.presets.refresh().await {
            tracing::warn!(%error, "a changed preset is not known on this node yet");
        }
    }

    /// The same for guardrails.
    pub async fn guardrails_changed(&self) {
        if let Err(error) = self.gateway.guardrails.refresh().await {
            tracing::warn!(%error, "a changed guardrail is not known on this node yet");
        }
    }

    /// The same for destinations.
    pub async fn destinations_changed(&self) {
        if let Err(error) = self.gateway.refresh_destinations().await {
            tracing::warn!(%error, "a changed destination is not known on this node yet");
        }
    }

    /// The same for what workspaces want kept of what is said.
    pub async fn contents_changed(&self) {
        if let Err(error) = self.gateway.contents.refresh().await {
            tracing::warn!(%error, "whose words are kept is not known on this node yet");
        }
    }

    /// The same for what workspaces choose for requests that leave it open.
    pub async fn choices_changed(&self) {
        if let Err(error) = self.gateway.choices.refresh().await {
            tracing::warn!(%error, "what a workspace chose is not known on this node yet");
        }
    }

    /// The same for what workspaces set for plugins.
    pub async fn plugins_changed(&self) {
        if let Err(error) = self.gateway.plugins.refresh().await {
            tracing::warn!(%error, "a changed setting of a plugin is not known on this node yet");
        }
    }

    /// Counts an exchange that failed.
    pub fn note_failed_exchange(&self, source: IpAddr, now: Timestamp) {
        let failed = self.gateway.snapshot().settings.exchange_failures_per_minute;
        // The one that is too many has been answered; the next one is told.
        let _ = self.exchange_failures.note(source, now, failed);
    }

    /// What may be shown of a key.
    pub async fn label_of(&self, tenant: &Tenant, hash: &KeyHash) -> String {
        let found = self.store.find_tenant_key(tenant, hash, None).await.ok().flatten();
        found.map_or_else(|| "a management key".to_owned(), |key| key.label.into())
    }

    /// The rate of somebody who signed in as themselves.
    pub fn rate_of_member(&self, id: &str) -> Arc<Rate> {
        self.members.get(id).unwrap_or_else(|| {
            let rate = Arc::new(Rate::default());
            self.members.insert(id.into(), rate.clone());
            rate
        })
    }

    pub fn brand(&self) -> String {
        self.gateway.snapshot().settings.brand.clone()
    }
}
