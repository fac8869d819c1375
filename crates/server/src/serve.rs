//! The start of the server, in the order that loses nothing when a step fails, and its end.

mod chores;
mod first;

use std::fs::{File, OpenOptions, TryLockError};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustls::ServerConfig;
use tidegate_gateway::ledger::fail;
use tidegate_gateway::limit::PerSource;
use tidegate_gateway::rates::Rates;
use tidegate_gateway::traces::Traces;
use tidegate_gateway::{Gateway, broadcast, tasks};
use tidegate_observe::logging;
use tidegate_observe::metrics::text::accepted;
use tidegate_observe::metrics::{Group, Metrics};
use tidegate_sim::{Behaviour, Script, Sim};
use tidegate_store::Store;
use tidegate_store::journal::JournalReader;
use tidegate_store::vault::{MasterRing, Vault};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::config::{Checked, Source};
use crate::listen::{self, Limits};
use crate::metering::Metering;
use crate::oidc::Door;
use crate::reload::{Reload, Reloads};
use crate::rings::Teller;
use crate::router::Router;
use crate::socket::Patience;
use crate::state::{App, Proved};
use crate::tls::Tls;
use chores::{count_secrets, purge};
use first::{announce, bootstrap};

/// People whose rates are remembered.
const MEMBERS: usize = 10_000;
/// Exchanges of codes at a time, from people without a key; the store has few connections.
const EXCHANGES: usize = 4;
/// Questions about finished requests at a time, for the same reason.
const ANALYTICS: usize = 2;
/// Streams notice an abort at their next sign of life; they get that long to say goodbye.
const GOODBYE: Duration = Duration::from_secs(3);

/// Runs the gateway until it is told to stop.
pub async fn serve(source: Source) -> anyhow::Result<()> {
    // Handlers stand before anyone can send these signals: without one they would end the process.
    let hangup = signal(SignalKind::hangup()).context("SIGHUP cannot be handled")?;
    let mut config = source.read()?;
    logging::start(config.log_format, &config.log_level).map_err(anyhow::Error::msg)?;
    protect_memory();
    // Whatever can be wrong with the configuration is found before anything is made.
    let sim = start_sim(&config).await?;
    let sim_url = sim.as_ref().map(Sim::base_url);
    let mut snapshot = config.snapshot(sim_url.as_deref(), config.listen)?;
    create_data_dir(&config.data_dir)?;
    let _lock = lock(&config.data_dir)?;
    let store = Arc::new(Store::open(&config.storage_url, &config.data_dir).await?);
    if let Some(at) = store.moved_at().await? {
        bail!(
            "what is stored here was moved to a PostgreSQL server at {at}: set storage.url to it. To use this store again, \
             without what was written there since: tidegate store reopen"
        );
    }
    let is_first = store.sole_organisation().await?.is_none();
    // A ring is made only where nothing can have been sealed under another one.
    let ring = if is_first {
        MasterRing::load_or_create(&config.master_key).await
    } else {
        MasterRing::load(&config.master_key).await
    }?;
    let vault = Arc::new(Vault::new(config.master_key.clone(), ring));
    // Taken addresses too: keys made by a start that then fails would never be shown to anyone.
    let listener = listener(config.listen).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    // Port 0 and inherited sockets: only now is it known where that is.
    snapshot.settings.docs_url = config.docs_url(address);
    snapshot.settings.public_url = config.public_url(address);
    snapshot.settings.egress.own = config.own_addresses(address, sim_url.as_deref());
    let metrics_listener = match config.metrics_listen {
        Some(address) => Some(
            TcpListener::bind(address).await.with_context(|| format!("metrics.listen: cannot listen on {address}"))?,
        ),
        None => None,
    };
    let metrics_address = metrics_listener.as_ref().and_then(|listener| listener.local_addr().ok());
    snapshot.settings.egress.own.extend(metrics_address);
    own_journal(&store, &config).await?;
    // As late as can be: a start that fails before must not tie an empty store to its ring.
    prove_ring(&store, &vault, &config).await?;
    let clock = fail::clock();
    let first = bootstrap(&store, &config, &*clock).await?;

    let metrics = Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"), crate::COMMIT));
    tidegate_store::listen({
        let metrics = metrics.clone();
        move |query_group, taken| {
            metrics.flow.db_query.get_or_create(&Group { query_group }).observe(taken.as_secs_f64());
        }
    });
    let traces = config.traces.take().map(|collector| Arc::new(Traces::new(collector, metrics.clone())));
    let metering = Metering::start(&config, &store, &clock, &metrics, &vault, traces.clone()).await?;
    let exporting = traces.map(|traces| tasks::spawn("tell a collector of ourselves", traces.send()));
    let ledger = metering.ledger.clone();
    let redis = config.redis.take();
    let rates = redis.map(|(address, patience)| Arc::new(Rates::new(address, patience, metrics.clone())));
    let sharing =
        rates.clone().map(|rates| tasks::spawn("count requests with all gateways", async move { rates.keep().await }));
    let gateway = Gateway::new(snapshot, store.clone(), vault.clone(), clock, metrics, ledger, rates);
    gateway.keys.load().await.context("the keys could not be loaded")?;
    gateway.credentials.load().await.context("the credentials could not be loaded")?;
    gateway.guardrails.refresh().await.context("the guardrails could not be loaded")?;
    gateway.refresh_destinations().await.context("the destinations could not be loaded")?;
    gateway.contents.refresh().await.context("whose words are kept could not be loaded")?;
    gateway.choices.refresh().await.context("what workspaces choose could not be loaded")?;
    gateway.plugins.refresh().await.context("the settings of plugins could not be loaded")?;
    gateway.presets.refresh().await.context("the presets could not be loaded")?;
    gateway.recall().await.context("what was learnt of upstreams could not be loaded")?;
    gateway.warn_of_misdirected();
    let following = tasks::spawn("follow keys, credentials and presets", {
        let gateway = gateway.clone();
        async move { gateway.follow().await }
    });

    let measuring = tasks::spawn("measure the load", {
        let gateway = gateway.clone();
        async move { gateway.watch_load().await }
    });
    let telling = tasks::spawn("tell destinations", broadcast::deliver(gateway.clone(), metering.reader.clone()));
    let teller = store.is_shared().then(|| {
        let (journal, node) = (metering.reader.clone(), metering.node.clone());
        Arc::new(Teller { store: store.clone(), vault: vault.clone(), journal, node })
    });
    let ringing = teller.clone().map(|teller| tasks::spawn("tell which master keys are here", teller.run()));
    let contents = gateway.contents.clone();
    let keeping = tasks::spawn("keep what is said", contents.clone().keep());
    let counting = tasks::spawn("count secrets", count_secrets(store.clone(), vault.clone(), gateway.metrics.clone()));
    let remembering = tasks::spawn("keep results of tools", {
        let gateway = gateway.clone();
        async move { gateway.write_results().await }
    });
    let purging = tasks::spawn("take old codes and words away", purge(store.clone(), gateway.clone()));

    let public_url = config.public_url(address);
    let (reloads, wishes) = Reloads::new();
    let app = Arc::new(App {
        gateway: gateway.clone(),
        store: store.clone(),
        vault,
        journal: metering.reader.clone(),
        router: Router::new(),
        public_url: public_url.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        key_prefix: config.key_prefix.clone(),
        oauth: config.oauth.clone(),
        exchanges: PerSource::default(),
        exchange_failures: PerSource::default(),
        members: quick_cache::sync::Cache::new(MEMBERS),
        oidc: config.oidc.clone().map(|settings| Door::new(settings, &public_url)),
        exchanging: Semaphore::new(EXCHANGES),
        analytics: Semaphore::new(ANALYTICS),
        body_idle: config.body_idle,
        body_total: config.body_total,
        proved: Proved::default(),
        reloads,
    });
    let metrics_task = metrics_listener.map(|listener| serve_metrics(listener, &app)).transpose()?;
    let mut stop = StopSignal::listen().context("SIGTERM cannot be handled")?;
    announce(&config, address, &public_url, first.as_ref())?;
    drop(first);

    let answer = config.settings.total_streamed.max(config.settings.total_whole) + config.write_stall;
    let (idle, head, write) = (config.keep_alive_idle, config.header_read, config.write_stall);
    let patience = Patience { idle, head, write, answer };
    let limits = Limits { connections: config.connections, patience };
    let live = |(_, tls): &(_, Arc<ServerConfig>)| Arc::new(Tls::new(tls.clone(), config.tls_handshake));
    let tls = config.tls.as_ref().map(live);
    let reload = Reload {
        source,
        gateway: gateway.clone(),
        store: store.clone(),
        sim_url,
        address,
        at_start: config.at_start.clone(),
        tls: tls.clone().zip(config.tls.map(|(files, _)| Mutex::new(files))),
    };
    let reloading = tasks::spawn("reload the configuration", reload.run(hangup, wishes));
    let (delay, drain_timeout) = (config.drain_delay, config.drain_timeout);
    let graceful = listen::accept(listener, app.clone(), limits, tls, async {
        stop.received().await;
        tracing::info!(
            seconds = delay.as_secs(),
            "stopping: requests are taken until load balancers have looked away; a second signal skips the wait"
        );
        // They look at /readyz; give them time to, and serve what they still send. A second signal skips the wait.
        gateway.leave();
        tokio::select! {
            () = sleep(delay) => {}
            () = stop.received() => {}
        }
        tracing::info!("stopping: new requests are refused, running ones go on");
        gateway.drain();
    })
    .await;

    let (finished, is_hurried) = tokio::select! {
        finished = timeout(drain_timeout, graceful.shutdown()) => (finished.is_ok(), false),
        () = stop.received() => (false, true),
    };
    if !finished {
        tracing::warn!(
            in_flight = gateway.in_flight(),
            "requests are left after the time for draining: they are ended"
        );
        gateway.abort();
        sleep(GOODBYE).await;
    }
    if !is_hurried {
        // Destinations hear of the last requests as well, if they can be reached.
        tokio::select! {
            () = broadcast::delivered(&gateway, &metering.reader) => {}
            () = stop.received() => {}
        }
    }
    let tasks = [following, measuring, telling, purging, counting, reloading];
    for task in tasks.into_iter().chain(metrics_task).chain(sharing).chain(exporting).chain(ringing) {
        task.abort();
    }
    // Answers that are read on although their clients left, too.
    gateway.abort();
    // Conversations go on after a restart.
    gateway.close_results();
    if timeout(GOODBYE, remembering).await.is_err() {
        tracing::warn!("results of tools could not be written in time");
    }
    drop((gateway, app));
    metering.stop(GOODBYE).await;
    if let Some(teller) = teller {
        teller.leave().await;
    }
    if !contents.written(GOODBYE).await {
        tracing::warn!("the store did not take all that was to be kept of what was said");
    }
    keeping.abort();
    drop(sim);
    store.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// Memory in pages of 2 MiB, which the allocator asks the system for, nearly doubles what an idle gateway takes, adds half to
/// what a thousand streams take, and makes no request faster that we could measure. To be called before there are threads: each
/// takes some of its own.
pub fn use_small_pages() {
    // Where that cannot be, it takes more.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Secrets in memory must not end up in a core file.
fn protect_memory() {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let guarded = setrlimit(Resource::Core, none).and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = guarded {
        tracing::warn!(%error, "core files could not be switched off");
    }
}

fn create_data_dir(folder: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("data folder {} cannot be created", folder.display()))
}

/// Two gateways in one folder would each believe that its ledger is theirs alone.
pub fn lock(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!(
                "another tidegate is using the data folder {}: stop it or name another with --data-dir",
                folder.display()
            )
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("{} cannot be locked", path.display())),
    }
}

async fn listener(address: SocketAddr) -> anyhow::Result<TcpListener> {
    // A supervisor may hold the socket, so that a restart refuses no connection.
    if let Ok(Some(inherited)) = listenfd::ListenFd::from_env().take_tcp_listener(0) {
        inherited.set_nonblocking(true).context("the inherited socket")?;
        return TcpListener::from_std(inherited).context("the inherited socket");
    }
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; choose another address with --listen"))
}

async fn start_sim(config: &Checked) -> anyhow::Result<Option<Sim>> {
    if !config.sim_enabled {
        return Ok(None);
    }
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let sim = Sim::bind(address, Script::from(Behaviour::Echo).record(false))
        .await
        .context("the simulated provider did not start")?;
    Ok(Some(sim))
}

/// Refuses a journal whose calls and letters are another store's: they would be lost to that one, and be counted here.
async fn own_journal(store: &Store, config: &Checked) -> anyhow::Result<()> {
    let Some(journal) = JournalReader::open(&config.data_dir) else { return Ok(()) };
    let organisations = store.organisation_ids().await?;
    let path = config.data_dir.join("ledger.db");
    let waiting = journal.foreign(&organisations).await;
    journal.close().await;
    let (calls, letters) = waiting.with_context(|| format!("the journal {} cannot be read", path.display()))?;
    if calls + letters > 0 {
        bail!(
            "storage.url: {calls} calls and {letters} letters wait in {} for another store: start once with the \
             storage.url that this data folder was used with, so that they reach it, or move ledger.db away with all \
             files whose names begin so",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a ring that the stored secrets would not open with.
pub async fn prove_ring(store: &Store, vault: &Vault, config: &Checked) -> anyhow::Result<()> {
    if store.is_ring_right(vault).await? {
        return Ok(());
    }
    bail!(
        "secrets.master_key: {} holds another ring of master keys than the one the stored secrets were sealed with: \
         put that one back",
        config.master_key
    )
}

fn serve_metrics(listener: TcpListener, app: &Arc<App>) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    tracing::info!(address = %listener.local_addr()?, "metrics are served");
    // A reader that stays connected must not keep the gateway alive past its end.
    let gateway = Arc::downgrade(&app.gateway);
    Ok(tasks::spawn("serve metrics", async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // As for clients: out of descriptors now does not mean blind until the next start.
                    tracing::warn!(%error, "a metrics reader could not be accepted");
                    sleep(listen::ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let gateway = gateway.clone();
            tasks::spawn("serve a metrics reader", async move {
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let text = gateway.upgrade().map(|gateway| gateway.metrics_text()).unwrap_or_default();
                    let accept = request.headers().get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
                    let (kind, text) = accepted(accept, text);
                    async move { Ok::<_, std::convert::Infallible>(crate::router::plain(http::StatusCode::OK, kind, text)) }
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }))
}

/// Done when the process is asked to stop.
pub async fn stop_signal() {
    match StopSignal::listen() {
        Ok(mut stop) => stop.received().await,
        // Without handlers the signals do what they always do.
        Err(_) => std::future::pending().await,
    }
}

/// Both ways to ask a process to stop; none that comes after `listen` is lost.
struct StopSignal {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignal {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
