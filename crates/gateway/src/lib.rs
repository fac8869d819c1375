//! How a request moves: admission, attempts, relay, settlement.
//!
//! The gateway takes headers and bytes and gives back a status, headers and a body of frames; it never sees the HTTP
//! server that carries them. Decisions are made by `routing`, `providers` and `wire`; this crate is where they are
//! acted on, and the only one that talks to upstreams, or to anyone else on a caller's word. Start with [`relay`].

mod agent;
pub mod broadcast;
pub mod cache;
mod carriers;
pub mod choices;
pub mod contents;
pub mod count;
pub mod credentials;
mod doors;
pub mod egress;
pub mod error_rules;
pub mod explain;
pub mod extract;
pub mod failure;
pub mod files;
pub mod guardrails;
pub mod health;
pub mod intake;
pub mod keys;
pub mod learned;
pub mod ledger;
pub mod limit;
pub mod overload;
pub mod plugins;
pub mod presets;
pub mod rates;
pub mod relay;
mod request;
pub mod snapshot;
mod sticky;
pub mod tasks;
pub mod tokens;
pub mod traces;
pub mod upstream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use quick_cache::sync::Cache;
use tidegate_core::{Clock, KeyHash, Timestamp};
use tidegate_observe::metrics::{Condition, Door, Metrics, Pool, Served};
use tidegate_providers::count::Count;
use tidegate_providers::repair::Refused;
use tidegate_routing::Endpoint;
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};
use tokio::sync::Notify;

pub use agent::{SERVER_TOOLS, look_at_sandbox, one_spelling};
pub use credentials::Credentials;
pub use failure::Failure;
pub use keys::{KeyEntry, KeyIndex};
use learned::{Fact, Noted};
pub use plugins::PdfEngine;
pub use presets::Presets;
pub use relay::call::authorise;
pub use snapshot::{Calls, Place, Settings, Snapshot, Upstream};

/// Counts that are remembered.
const COUNTS: usize = 4_096;
/// How often the store is asked for changes. They are promised within two seconds, also by a node that has much to do.
const POLL: Duration = Duration::from_millis(500);

/// Everything a request needs; one per process.
pub struct Gateway {
    snapshot: ArcSwap<Snapshot>,
    pub keys: KeyIndex,
    pub credentials: Credentials,
    pub(crate) vault: Arc<Vault>,
    pub guardrails: guardrails::Guardrails,
    pub presets: Presets,
    /// What workspaces set for plugins.
    pub plugins: plugins::stored::Stored,
    /// Destinations that people of a workspace made.
    pub told: broadcast::Stored,
    /// How they and those of the configuration do.
    pub tallies: broadcast::Tallies,
    /// What workspaces choose for requests that leave it open.
    pub choices: choices::Choices,
    /// What workspaces want kept of what is said.
    pub contents: Arc<contents::Contents>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    pub(crate) upstream: upstream::Client,
    pub(crate) egress: egress::Egress,
    pub(crate) extract: extract::Extractor,
    pub(crate) tokens: tokens::Tokens,
    pub(crate) learned: learned::Learned,
    /// Counts of bodies, by their hash, and until when they are good.
    pub(crate) counts: Cache<KeyHash, (Count, Timestamp)>,
    /// What servers of tools offer.
    pub(crate) mcp: agent::Lists,
    /// Results of tools that clients do not get to see.
    pub(crate) results: agent::Results,
    /// Documents that were read before.
    pub(crate) texts: plugins::Texts,
    /// Answers for those who ask the same again.
    pub(crate) answers: Arc<cache::Answers>,
    pub ledger: Arc<ledger::Ledger>,
    pub health: Arc<health::Health>,
    pub(crate) sticky: sticky::Stickiness,
    pub loops: Arc<relay::Loops>,
    pub(crate) containers: Arc<agent::Containers>,
    /// Signatures that clients may not send back.
    pub(crate) carriers: carriers::Carriers,
    /// Answers that are read to their end although nobody listens.
    pub(crate) drains: Arc<limit::Count>,
    pub(crate) node: Arc<limit::Count>,
    /// Keys that have a request under way.
    pub(crate) busy_keys: Arc<limit::Count>,
    pub(crate) overload: overload::Overload,
    pub(crate) intake: intake::Intake,
    /// Where all gateways count requests together; none where each counts for itself.
    pub(crate) rates: Option<Arc<rates::Rates>>,
    leaving: AtomicBool,
    draining: AtomicBool,
    aborting: AtomicBool,
    aborted: Notify,
}

impl Gateway {
    pub fn new(
        snapshot: Snapshot,
        store: Arc<Store>,
        vault: Arc<Vault>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        ledger: Arc<ledger::Ledger>,
        rates: Option<Arc<rates::Rates>>,
    ) -> Arc<Self> {
        let health = health::Health::new(clock.clone(), metrics.clone());
        let ward = health.ward(&snapshot.catalogue);
        let answers = cache::Answers::new(snapshot.settings.cache_bytes);
        let extract = extract::Extractor::new(&snapshot.settings.parser);
        overload::at_start(&metrics);
        Arc::new(Self {
            snapshot: ArcSwap::from_pointee(Snapshot { ward, ..snapshot }),
            keys: KeyIndex::new(store.clone(), ledger.clone()),
            credentials: Credentials::new(store.clone(), vault.clone()),
            guardrails: guardrails::Guardrails::new(store.clone(), ledger.clone()),
            presets: Presets::new(store.clone()),
            plugins: plugins::stored::Stored::new(store.clone()),
            told: broadcast::Stored::new(store.clone()),
            tallies: broadcast::Tallies::default(),
            choices: choices::Choices::new(store.clone()),
            contents: Arc::new(contents::Contents::new(store, vault.clone(), metrics.clone())),
            vault,
            clock,
            egress: egress::Egress::default().counting(metrics.flow.egress_refusals.clone()),
            metrics,
            upstream: upstream::Client::default(),
            extract,
            tokens: tokens::Tokens::default(),
            learned: learned::Learned::default(),
            counts: Cache::new(COUNTS),
            mcp: agent::Lists::default(),
            results: agent::Results::default(),
            texts: plugins::Texts::default(),
            answers,
            ledger,
            health,
            sticky: sticky::Stickiness::default(),
            loops: Arc::default(),
            containers: Arc::default(),
            carriers: carriers::Carriers::default(),
            drains: Arc::default(),
            node: Arc::default(),
            busy_keys: Arc::default(),
            overload: overload::Overload::default(),
            intake: intake::Intake::default(),
            rates,
            leaving: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            aborted: Notify::new(),
        })
    }

    /// The configuration of this moment. A request keeps the one it started with.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    pub fn swap(&self, next: Snapshot) {
        self.answers.resize(next.settings.cache_bytes);
        let ward = self.health.ward(&next.catalogue);
        let is_billing_changed = next.settings.billing.enabled != self.snapshot().settings.billing.enabled;
        if is_billing_changed {
            self.ledger.doubt_balances();
        }
        self.snapshot.store(Arc::new(Snapshot { ward, ..next }));
        if is_billing_changed {
            self.ledger.note_change();
        }
        self.warn_of_misdirected();
    }

    /// Whether a credential that is stored for this address is not used because its provider is reached elsewhere now.
    pub fn is_misdirected(&self, provider: &str, stored: Option<&str>) -> bool {
        reached(&self.snapshot(), provider, stored) == Some(false)
    }

    /// Says which credentials of customers are not used because their provider is reached elsewhere now.
    pub fn warn_of_misdirected(&self) {
        let snapshot = self.snapshot();
        for credential in self.credentials.misdirected(|slug, stored| reached(&snapshot, slug, stored)) {
            tracing::warn!(
                credential = %credential.id,
                provider = %credential.provider,
                stored_for = credential.destination.as_deref().unwrap_or("no address"),
                "a credential is not used: its provider is reached at another address now; rotate it to use it there"
            );
        }
    }

    /// Writes results of tools to the store until [`Gateway::close_results`], and what waits then.
    pub async fn write_results(&self) {
        self.results.write(self.keys.store(), &self.vault).await;
    }

    /// Has the writer of results end when it has nothing more to do.
    pub fn close_results(&self) {
        self.results.close();
    }

    /// Keeps keys, credentials and presets fresh until the process ends. A store that is down leaves them as they were.
    pub async fn follow(&self) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut healthy, mut has_ring) = (true, true);
        loop {
            ticks.tick().await;
            // Letters are sealed by whoever settles, who does not look for another ring; a store that is slow must not keep
            // this from being seen.
            let ring = self.vault.refresh_if_changed().await;
            if std::mem::replace(&mut has_ring, ring.is_ok())
                && let Err(error) = ring
            {
                tracing::warn!(%error, "the ring of master keys cannot be read: the one at hand stays");
            }
            let result = async {
                self.keys.refresh().await?;
                self.credentials.refresh().await?;
                self.guardrails.refresh().await?;
                self.told.refresh(&self.vault).await?;
                self.contents.refresh().await?;
                self.choices.refresh().await?;
                self.plugins.refresh().await?;
                self.presets.refresh().await
            };
            let result = result.await;
            self.credentials.sweep(self.clock.now());
            self.answers.sweep(self.clock.now());
            self.forget();
            // What a rotation overwrote may still be in the log when somebody was reading; it goes as soon as it can.
            self.keys.store().tidy().await;
            if std::mem::replace(&mut healthy, result.is_ok()) != result.is_ok() {
                match result {
                    Ok(()) => tracing::info!("the store answers again"),
                    Err(error) => {
                        tracing::error!(%error, "the store does not answer: keys stay as they were last known")
                    }
                }
            }
        }
    }

    /// What is needed to authorise a call.
    pub(crate) fn authority(&self) -> (&upstream::Client, &tokens::Tokens, Timestamp) {
        (&self.upstream, &self.tokens, self.clock.now())
    }

    /// Remembers what an upstream does not take, for all later calls, in the store too.
    pub(crate) fn learn(&self, fact: &Fact, is_kept: bool) {
        let now = self.clock.now();
        let Noted::New { instead_of } = self.note(fact, now) else { return };
        if !is_kept {
            return;
        }
        let (row, store) = (fact.row(now), self.keys.store().clone());
        let oldest = instead_of.map(|refused| Fact { refused, ..fact.clone() }.row(now));
        tasks::spawn("keep what an upstream does not take", async move {
            learned::forget(&store, oldest).await;
            if let Err(error) = store.keep_learned(&row).await {
                tracing::warn!(%error, "what an upstream does not take is known to this process only");
            }
        });
    }

    fn note(&self, fact: &Fact, since: Timestamp) -> Noted {
        let noted = self.learned.note(fact.clone(), since);
        if let Noted::New { instead_of } = &noted {
            let Fact { provider, model, refused } = fact;
            tracing::warn!(%provider, %model, kind = refused.kind(), name = refused.name(), "an upstream does not know this: it is sent there no more");
            self.metrics.learned.get_or_create(&fact.label()).set(1);
            if let Some(refused) = instead_of.clone() {
                self.metrics.learned.remove(&Fact { refused, ..fact.clone() }.label());
            }
        }
        noted
    }

    /// Gives up what has been believed of upstreams for long enough.
    fn forget(&self) {
        let now = self.clock.now();
        let facts = self.learned.forget(now);
        if facts.is_empty() {
            return;
        }
        for fact in &facts {
            self.metrics.learned.remove(&fact.label());
        }
        let (rows, store): (Vec<_>, _) = (facts.iter().map(|fact| fact.row(now)).collect(), self.keys.store().clone());
        tasks::spawn("forget what an upstream did not take", async move { learned::forget(&store, rows).await });
    }

    /// Takes over what was learnt before this start, and lets go of what is too old to be believed.
    pub async fn recall(&self) -> Result<(), StoreError> {
        let (now, store) = (self.clock.now(), self.keys.store());
        let rows = store.learned().await?.into_iter();
        let (old, mut rows): (Vec<_>, Vec<_>) = rows.partition(|row| now.since(row.learned) >= learned::BELIEVED);
        rows.sort_by_key(|row| row.learned);
        for row in rows {
            if let Some(refused) = Refused::read(&row.kind, &row.name) {
                let fact = Fact { provider: row.provider.into(), model: row.model.into(), refused };
                // A clock that was wrong must not make it last.
                self.note(&fact, row.learned.min(now));
            }
        }
        learned::forget(store, old).await;
        Ok(())
    }

    /// From now on nobody should send requests here; those that come are served.
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// From now on new inference is refused; what runs goes on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Ends what is left: streams with the in-band error at their next sign of life, the others with a status at once.
    pub fn abort(&self) {
        self.aborting.store(true, Ordering::SeqCst);
        self.aborted.notify_waiters();
    }

    /// What the work gives, or nothing when everything is ended before it does.
    pub(crate) async fn unless_aborted<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        // Made before the look: an abort between the two is heard by one of them.
        let aborted = self.aborted.notified();
        if self.is_aborting() {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = aborted => None,
        }
    }

    pub(crate) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::Relaxed)
    }

    /// The metrics of this moment in Prometheus' text format.
    pub fn metrics_text(&self) -> String {
        let inference = self.metrics.in_flight.get_or_create_owned(&Door { route: "/messages" });
        inference.set(i64::try_from(self.in_flight()).unwrap_or(i64::MAX));
        self.metrics.response_cache_bytes.set(i64::try_from(self.answers.bytes_held()).unwrap_or(i64::MAX));
        for (pool, used) in self.keys.store().in_use() {
            self.metrics.flow.db_pool.get_or_create(&Pool { pool }).set(used.into());
        }
        self.metrics.text(&self.conditions())
    }

    /// How all endpoints are doing that the operator's own key reaches.
    fn conditions(&self) -> Vec<Condition> {
        let snapshot = self.snapshot();
        let endpoints = snapshot.catalogue.models().into_iter().flat_map(|model| &model.endpoints);
        let condition = |endpoint: &Arc<Endpoint>| Condition {
            served: Served { model: endpoint.model.to_string(), provider: endpoint.provider_name.to_string() },
            state: self.health.group(&snapshot.ward, endpoint) as i64,
            cools: self.health.cools(&snapshot.ward, endpoint),
            uptime: self.health.uptime(&snapshot.ward, endpoint).and_then(|uptime| uptime.five_minutes).map(f64::from),
        };
        endpoints.filter(|endpoint| endpoint.shared).map(condition).collect()
    }

    /// Inference requests being served.
    pub fn in_flight(&self) -> usize {
        self.node.current()
    }
}

/// Whether a provider is reached at an address; `None` when it is not one of ours at all.
fn reached(snapshot: &Snapshot, slug: &str, stored: Option<&str>) -> Option<bool> {
    let mut ways = snapshot.upstreams.iter().filter(|upstream| *upstream.slug == *slug).peekable();
    ways.peek()?;
    Some(ways.any(|upstream| stored.is_some_and(|stored| upstream.takes(stored))))
}
