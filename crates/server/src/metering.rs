//! The ledger of this node: what its start must do before the first request, what runs beside requests, and its end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_core::{Clock, Timestamp};
use tidegate_gateway::ledger::treasury::Treasury;
use tidegate_gateway::ledger::{Ledger, Writer, recover};
use tidegate_gateway::traces::Traces;
use tidegate_gateway::{broadcast, relay, tasks};
use tidegate_observe::metrics::Metrics;
use tidegate_store::Store;
use tidegate_store::audit::{By, Change};
use tidegate_store::journal::{Ballast, Journal, JournalReader};
use tidegate_store::vault::Vault;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::commands::ledger;
use crate::config::Checked;

/// How often the clock is compared with the one that only runs forward.
const CLOCK: Duration = Duration::from_secs(5);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Records that are retired at a time: others get their turn in between.
const RETIRED: u32 = 500;
/// Between two looks whether the last calls are settled.
const LOOK: Duration = Duration::from_millis(20);

/// The tasks of the ledger.
pub struct Metering {
    pub ledger: Arc<Ledger>,
    /// For those who bring what the journal holds for others.
    pub reader: JournalReader,
    /// What this node is called.
    pub node: String,
    writer: JoinHandle<()>,
    treasury: JoinHandle<()>,
    stop: oneshot::Sender<bool>,
    watchers: Vec<JoinHandle<()>>,
}

impl Metering {
    /// Closes what an earlier process left open and brings it to the store. After that, calls may be let in.
    pub async fn start(
        config: &Checked,
        store: &Arc<Store>,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
        vault: &Vault,
        traces: Option<Arc<Traces>>,
    ) -> anyhow::Result<Self> {
        let folder = &config.data_dir;
        let mut journal = Journal::open(folder)
            .await
            .with_context(|| format!("the journal {} cannot be opened", folder.join("ledger.db").display()))?;
        let organisations = store.organisation_ids().await?;
        if journal.bind(&organisations).await.context("the journal cannot be bound to its store")? {
            tracing::warn!("the journal of this data folder was another store's; nothing waited in it for that one");
        }
        let failed = "calls of an earlier start cannot be closed";
        let left = recover::left(&journal).await.context(failed)?;
        let letters = broadcast::of_lost(&config.settings.audience, store, vault, &left).await.context(failed)?;
        recover::close(&mut journal, &left, &letters).await.context(failed)?;
        let recovered = left.len();
        if recovered > 0 {
            tracing::warn!(calls = recovered, "calls that an earlier start left open were closed");
            metrics.ledger_recovered.inc_by(recovered as u64);
            let change =
                Change::new("ledger.recovered", &journal.node().id).with(serde_json::json!({"calls": recovered}));
            store.note(&By::server(clock.now()), change).await?;
        }
        let (ledger, wants) = Ledger::new(clock.clone(), metrics.clone());
        let ledger = Arc::new(ledger);
        // Letters are read apart: however many there are, the money does not wait for them.
        let (reader, broadcasts) = (journal.reader(), journal.reader());
        let (_, settled) = reader.counts().await.context("the journal cannot be read")?;
        if settled > 0 {
            ledger.outgoing.spill();
        }
        let name = journal.node().id.clone();
        let (node, outgoing) = (journal.node().clone(), ledger.outgoing.clone());
        let settings = &config.settings;
        let longest_call = settings.total_streamed.max(settings.total_whole) + relay::LONGEST_DRAIN;
        let writer = Writer {
            journal,
            queue: ledger.queue.clone(),
            ballast: Ballast::of(folder),
            sync: settings.ledger.sync,
            clock: clock.clone(),
            metrics: metrics.clone(),
            settled: Box::new(move |exchange, place| {
                if let Some(traces) = traces.as_ref().filter(|_| !exchange.is_fee()) {
                    traces.offer(&exchange);
                }
                outgoing.push(exchange, place);
            }),
        };
        let writer = tasks::spawn("write the journal", writer.run());
        let times = (settings.ledger.lease_hold, longest_call);
        let mut treasury = Treasury::new((ledger.clone(), wants), store.clone(), (reader.clone(), node), times);
        treasury.begin().await.context("settled calls cannot be brought to the store")?;
        let (stop, stopped) = oneshot::channel();
        let treasury = tasks::spawn("keep accounts with the store", treasury.run(stopped));
        let mut watchers = vec![
            tasks::spawn("prove the ledger", prove(store.clone(), folder.clone(), recovered > 0)),
            tasks::spawn("look for lost calls", recover::reap(ledger.clone(), reader, longest_call)),
            tasks::spawn("watch the clock", watch_clock(ledger.clone(), store.clone())),
        ];
        if settings.ledger.retention_days > 0 {
            let days = settings.ledger.retention_days;
            watchers.push(tasks::spawn("retire old records", retire(store.clone(), clock.clone(), days)));
        }
        Ok(Self { ledger, reader: broadcasts, node: name, writer, treasury, stop, watchers })
    }

    /// To be called when nobody admits calls any more: everything is settled, written and forwarded, leases go back.
    pub async fn stop(self, patience: Duration) {
        let Self { ledger, writer, treasury, stop, watchers, .. } = self;
        for task in watchers {
            task.abort();
        }
        let end = Instant::now() + patience;
        while !ledger.queue.is_idle() && Instant::now() < end {
            sleep(LOOK).await;
        }
        // What is still open keeps its leases: they are spent, and the next start says how much.
        let _ = stop.send(ledger.queue.is_idle());
        if timeout(patience, treasury).await.is_err() {
            tracing::warn!("the store did not take all finished requests; they stay in the journal");
        }
        ledger.queue.close();
        if timeout(patience, writer).await.is_err() {
            tracing::error!("the journal could not be written to its end");
        }
    }
}

/// Says so when the clock jumps ahead: windows of limits end early by it.
async fn watch_clock(ledger: Arc<Ledger>, store: Arc<Store>) {
    let mut ticks = tokio::time::interval(CLOCK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(millis) = ledger.jump() else { continue };
        let now: Timestamp = ledger.now();
        tracing::error!(seconds = millis / 1000, "the clock jumped ahead");
        let change = Change::new("clock.jumped", "clock").with(serde_json::json!({"seconds": millis / 1000}));
        if let Err(error) = store.note(&By::server(now), change).await {
            tracing::error!(%error, "the jump of the clock could not be audited");
        }
    }
}

/// Recomputes what was spent from the records, once a day and after calls had to be recovered.
async fn prove(store: Arc<Store>, folder: PathBuf, is_due: bool) {
    let first = if is_due { Instant::now() } else { Instant::now() + DAY };
    let mut ticks = tokio::time::interval_at(first, DAY);
    loop {
        ticks.tick().await;
        match ledger::verify(&store, &folder).await {
            Ok(report) if report.is_clean() => tracing::info!("the ledger adds up"),
            Ok(report) => tracing::error!("the ledger does not add up: {report}"),
            Err(error) => tracing::warn!(error = format!("{error:#}"), "the ledger could not be checked"),
        }
    }
}

/// Takes records away that are older than they are kept.
async fn retire(store: Arc<Store>, clock: Arc<dyn Clock>, days: u32) {
    let mut ticks = tokio::time::interval(HOUR);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let before = Timestamp(clock.now().0 - i64::from(days) * 24 * 60 * 60 * 1000);
        loop {
            match store.retire_generations(before, RETIRED).await {
                Ok(count) if count == u64::from(RETIRED) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "old records could not be retired; trying again in an hour");
                    break;
                }
            }
        }
    }
}
