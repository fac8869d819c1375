//! Reading the configuration anew while requests run: on SIGHUP, or because somebody asks for it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tidegate_gateway::Gateway;
use tidegate_store::Store;
use tidegate_store::audit::{By, Change};
use tokio::signal::unix::Signal;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::config::{self, AtStart, Source};
use crate::tls::Tls;

/// Those who ask at a time; more wait.
const WAITING: usize = 4;
/// How often the certificate is read again.
const RENEWED: Duration = Duration::from_secs(60 * 60);

/// Somebody who asks for it, and wants to hear what came of it.
pub struct Wish {
    by: By,
    answer: oneshot::Sender<Reloaded>,
}

/// The settings that need a restart, or what is wrong with the file.
pub type Reloaded = Result<Vec<String>, String>;

/// Where it is asked for.
#[derive(Clone)]
pub struct Reloads(mpsc::Sender<Wish>);

impl Reloads {
    pub fn new() -> (Self, mpsc::Receiver<Wish>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Nothing where the gateway is about to end.
    pub async fn ask(&self, by: By) -> Option<Reloaded> {
        let (answer, told) = oneshot::channel();
        self.0.send(Wish { by, answer }).await.ok()?;
        told.await.ok()
    }
}

/// What it is done with.
pub struct Reload {
    pub source: Source,
    pub gateway: Arc<Gateway>,
    pub store: Arc<Store>,
    pub sim_url: Option<String>,
    pub address: SocketAddr,
    pub at_start: AtStart,
    /// What our own listener speaks with, and where its certificate is.
    pub tls: Option<(Arc<Tls>, Mutex<config::tls::Tls>)>,
}

impl Reload {
    pub async fn run(self, mut hangup: Signal, mut wishes: mpsc::Receiver<Wish>) {
        let me = Arc::new(self);
        let mut ticks = interval_at(Instant::now() + RENEWED, RENEWED);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wish = tokio::select! {
                _ = ticks.tick() => {
                    let reading = me.clone();
                    let _ = spawn_blocking(move || reading.renew()).await;
                    continue;
                }
                Some(()) = hangup.recv() => None,
                Some(wish) = wishes.recv() => Some(wish),
                else => return,
            };
            // It reads files and may run programs for secrets: requests do not wait for that.
            let reading = me.clone();
            let done = spawn_blocking(move || reading.once()).await;
            let done = done.unwrap_or_else(|_| Err("reading the configuration ended in a panic".to_owned()));
            match wish {
                Some(wish) => {
                    me.note(&wish.by, &done).await;
                    // Whoever does not wait any more can read it in the log.
                    let _ = wish.answer.send(done);
                }
                None => me.note(&By::server(me.gateway.clock.now()), &done).await,
            }
        }
    }

    /// Whoever renews certificates need not tell us.
    fn renew(&self) {
        let Some((live, files)) = &self.tls else { return };
        let files = files.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match files.read(&self.source) {
            Ok(config) => live.renew(config),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "kept the old certificate: it cannot be read anew");
            }
        }
    }

    /// Builds a whole new state and swaps it in; when that fails, the old one stays.
    fn once(&self) -> Reloaded {
        // The environment of a running process does not change; the file does.
        let read = self.source.read().and_then(|config| {
            let next = config.snapshot(self.sim_url.as_deref(), self.address)?;
            let mut needs_restart = self.at_start.changed(&config.at_start);
            match (&self.tls, config.tls) {
                (Some((live, files)), Some((found, tls))) => {
                    live.renew(tls);
                    *files.lock().unwrap_or_else(PoisonError::into_inner) = found;
                }
                (None, None) => {}
                _ => needs_restart.push("service.tls_certificate".to_owned()),
            }
            Ok((next, needs_restart))
        });
        match read {
            Ok((mut next, needs_restart)) => {
                // What others read at the start must not be another thing for those who read it now: the ledger would
                // close calls that are still allowed to run.
                let running = self.gateway.snapshot();
                next.settings.public_url.clone_from(&running.settings.public_url);
                next.settings.total_streamed = running.settings.total_streamed;
                next.settings.total_whole = running.settings.total_whole;
                self.gateway.swap(next);
                if needs_restart.is_empty() {
                    tracing::info!("reloaded");
                } else {
                    let settings = needs_restart.join(", ");
                    tracing::warn!(
                        needs_restart = settings,
                        "reloaded; some settings stay as they were until a restart"
                    );
                }
                Ok(needs_restart)
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "kept the old configuration: the new one is invalid");
                Err(error)
            }
        }
    }

    async fn note(&self, by: &By, done: &Reloaded) {
        let Ok(needs_restart) = done else { return };
        let change =
            Change::new("configuration.reloaded", "configuration").with(json!({"needs_restart": needs_restart}));
        if let Err(error) = self.store.note(by, change).await {
            tracing::warn!(%error, "a reload is missing in the audit log");
        }
    }
}
