//! What is done now and then while the server runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_gateway::{Gateway, broadcast};
use tidegate_observe::metrics::{MasterKey, Metrics};
use tidegate_store::vault::Vault;
use tidegate_store::{Store, StoreError};

/// How often codes that are over are looked for, and how long they are kept.
const PURGE: Duration = Duration::from_secs(60 * 60);
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;
/// How often secrets are counted, and how often what was said in requests, of which there may be very much.
const COUNT: Duration = Duration::from_secs(60);
const COUNT_CONTENTS: Duration = Duration::from_secs(60 * 60);
/// Requests whose words are taken away in one transaction.
const PURGED: u32 = 500;

/// Codes that were not used, and answers kept for those who call twice, go a day after their time; results of tools at it;
/// what was said in requests when its days are over.
pub(super) async fn purge(store: Arc<Store>, gateway: Arc<Gateway>) {
    let mut ticks = tokio::time::interval(PURGE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = gateway.clock.now();
        let day_ago = Timestamp(now.0 - KEPT_MS);
        match store.purge_codes(day_ago).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "old codes were taken away"),
            Err(error) => tracing::warn!(%error, "old codes could not be taken away; trying again in an hour"),
        }
        match store.purge_tool_results(now).await {
            Ok(0) => {}
            Ok(count) => tracing::debug!(count, "old results of tools were taken away"),
            Err(error) => {
                tracing::warn!(%error, "old results of tools could not be taken away; trying again in an hour")
            }
        }
        let days = i64::from(gateway.snapshot().settings.content_days);
        let before = Timestamp(now.0 - days * KEPT_MS);
        loop {
            match store.purge_contents(before, PURGED).await {
                Ok(count) if count == u64::from(PURGED) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old words could not be taken away; trying again in an hour");
                    break;
                }
            }
        }
    }
}

/// Shows how much each master key protects: after a rotation nothing may be left under the old one. What cannot be counted
/// stays as it was counted last, and keeps nothing else from being counted.
pub(super) async fn count_secrets(store: Arc<Store>, vault: Arc<Vault>, metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(COUNT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut secrets, mut contents) = (Counts::of("secrets"), Counts::of("what was said in requests"));
    let mut looked = None;
    loop {
        let now = ticks.tick().await;
        secrets.take(store.count_by_master_key(&vault, broadcast::CONFIG_LABEL).await);
        if looked.is_none_or(|last| now >= last + COUNT_CONTENTS) {
            looked = Some(now);
            contents.take(store.count_contents_by_master_key().await);
        }
        let mut sums = secrets.last.clone();
        for (kek_id, count) in &contents.last {
            *sums.entry(kek_id.clone()).or_default() += count;
        }
        metrics.flow.secrets.clear();
        for (kek_id, count) in sums {
            metrics.flow.secrets.get_or_create(&MasterKey { kek_id }).set(count);
        }
    }
}

/// How much there is of something under each master key, as it was counted last.
struct Counts {
    of: &'static str,
    last: BTreeMap<String, i64>,
    is_failing: bool,
}

impl Counts {
    fn of(of: &'static str) -> Self {
        Self { of, last: BTreeMap::new(), is_failing: false }
    }

    fn take(&mut self, counted: Result<BTreeMap<String, i64>, StoreError>) {
        let was_failing = std::mem::replace(&mut self.is_failing, counted.is_err());
        match counted {
            Ok(counted) => self.last = counted,
            Err(error) if !was_failing => {
                tracing::warn!(%error, of = self.of, "what each master key protects could not be counted");
            }
            Err(_) => {}
        }
    }
}
