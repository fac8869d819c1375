//! The load driver: a closed loop that keeps connections busy, or requests at a fixed rate.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::client::{Connection, Taken, Work};
use crate::sample;

#[derive(clap::Args)]
pub struct Options {
    /// Where to send, such as http://127.0.0.1:8080; the path is always /v1/messages
    #[arg(long)]
    url: Uri,
    #[arg(long, default_value = "none")]
    key: String,
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set)]
    stream: bool,
    #[arg(long, default_value_t = 1000)]
    requests: usize,
    /// Connections of the closed loop; at a fixed rate there are as many as needed
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Requests per second, instead of a closed loop
    #[arg(long)]
    rate: Option<f64>,
    /// The status that counts as an answer
    #[arg(long, default_value_t = 200)]
    status: u16,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let work = Work {
        addr: address(&options.url)?,
        key: options.key,
        body: sample::request(options.body_bytes, options.stream),
        stream: options.stream,
        status: StatusCode::from_u16(options.status)?,
    };
    let report = match options.rate {
        Some(rate) => fixed_rate(&work, options.requests, rate, &mut Pool::new()).await,
        None => closed_loop(&work, options.requests, options.concurrency, &mut Pool::new()).await,
    };
    println!("{}", report.json());
    Ok(())
}

fn address(url: &Uri) -> anyhow::Result<SocketAddr> {
    let authority = url.authority().context("--url must be a URL")?;
    let port = authority.port_u16().unwrap_or(80);
    let mut found = (authority.host(), port).to_socket_addrs().with_context(|| format!("cannot resolve {url}"))?;
    found.next().with_context(|| format!("{url} has no address"))
}

/// What a run of the driver saw. Latencies are of good answers only, in order once `seconds` is set.
#[derive(Default)]
pub struct Report {
    pub requests: usize,
    pub errors: usize,
    pub first_error: Option<String>,
    pub seconds: f64,
    pub bytes: u64,
    pub events: u64,
    whole: Vec<Duration>,
    first: Vec<Duration>,
}

impl Report {
    fn note(&mut self, outcome: anyhow::Result<Taken>) {
        self.requests += 1;
        match outcome {
            Ok(taken) => {
                self.whole.push(taken.whole);
                self.first.push(taken.first);
                self.bytes += taken.bytes;
                self.events += taken.events;
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
        self.bytes += other.bytes;
        self.events += other.events;
        self.whole.extend(other.whole);
        self.first.extend(other.first);
    }

    fn finish(mut self, seconds: f64) -> Self {
        self.seconds = seconds;
        self.whole.sort_unstable();
        self.first.sort_unstable();
        self
    }

    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The latency that this share of answers stayed within, in milliseconds.
    pub fn latency_ms(&self, share: f64) -> f64 {
        within_ms(&self.whole, share)
    }

    /// The same up to the first bytes of the body.
    pub fn first_byte_ms(&self, share: f64) -> f64 {
        within_ms(&self.first, share)
    }

    fn json(&self) -> Value {
        json!({
            "requests": self.requests, "errors": self.errors, "first_error": self.first_error,
            "seconds": self.seconds, "per_second": self.per_second(), "bytes": self.bytes, "events": self.events,
            "latency_ms": {"p50": self.latency_ms(0.5), "p99": self.latency_ms(0.99), "max": self.latency_ms(1.0)},
            "first_byte_ms": {"p50": self.first_byte_ms(0.5), "p99": self.first_byte_ms(0.99)},
        })
    }
}

fn within_ms(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(last)).map_or(f64::NAN, |taken| taken.as_secs_f64() * 1e3)
}

/// Connections that are not in use. A measurement takes over those of its warm-up, so that it opens none.
pub type Pool = Vec<Connection>;

/// Keeps `concurrency` connections busy until `requests` have been answered.
pub async fn closed_loop(work: &Work, requests: usize, concurrency: usize, pool: &mut Pool) -> Report {
    let left = Arc::new(AtomicUsize::new(requests));
    let mut workers = JoinSet::new();
    let start = crate::now();
    for _ in 0..concurrency.clamp(1, requests.max(1)) {
        workers.spawn(worker(work.clone(), left.clone(), pool.pop()));
    }
    let mut report = Report::default();
    while let Some(done) = workers.join_next().await {
        match done {
            Ok((part, connection)) => {
                report.merge(part);
                pool.extend(connection);
            }
            Err(error) => report.note(Err(error.into())),
        }
    }
    report.finish(start.elapsed().as_secs_f64())
}

async fn worker(work: Work, left: Arc<AtomicUsize>, mut kept: Option<Connection>) -> (Report, Option<Connection>) {
    let mut report = Report::default();
    while left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        let (outcome, connection) = exchange(kept.take(), &work).await;
        kept = connection;
        report.note(outcome);
    }
    (report, kept)
}

/// One request over the kept connection, or over a new one; gives back the connection if it can be used again.
async fn exchange(kept: Option<Connection>, work: &Work) -> (anyhow::Result<Taken>, Option<Connection>) {
    let connection = match kept.filter(|connection| !connection.is_closed()) {
        Some(connection) => Ok(connection),
        None => Connection::open(work.addr).await,
    };
    let mut connection = match connection {
        Ok(connection) => connection,
        Err(error) => return (Err(error), None),
    };
    match connection.ask(work).await {
        Ok(taken) => (Ok(taken), Some(connection)),
        Err(error) => (Err(error), None),
    }
}

/// Sends at a fixed rate, whatever the answers do, over as many connections as that takes.
pub async fn fixed_rate(work: &Work, requests: usize, rate: f64, pool: &mut Pool) -> Report {
    let mut ticks = ticks(requests, Duration::from_secs_f64(1.0 / rate));
    let mut open = JoinSet::new();
    let mut report = Report::default();
    let mut sending = true;
    let start = crate::now();
    while sending || !open.is_empty() {
        tokio::select! {
            tick = ticks.recv(), if sending => match tick {
                Some(()) => {
                    let (kept, work) = (pool.pop(), work.clone());
                    open.spawn(async move { exchange(kept, &work).await });
                }
                None => sending = false,
            },
            Some(done) = open.join_next() => match done {
                Ok((outcome, connection)) => {
                    pool.extend(connection);
                    report.note(outcome);
                }
                Err(error) => report.note(Err(error.into())),
            },
        }
    }
    report.finish(start.elapsed().as_secs_f64())
}

/// A thread that sleeps, because the runtime's timers have whole milliseconds: the upstream's have too, and two clocks
/// of the same step would hide or double what lies between.
fn ticks(count: usize, interval: Duration) -> mpsc::UnboundedReceiver<()> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut due = crate::now();
        for _ in 0..count {
            std::thread::sleep(due.saturating_duration_since(crate::now()));
            if sender.send(()).is_err() {
                return;
            }
            due += interval;
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_answers() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| within_ms(&sorted, share)), [50.0, 99.0, 100.0]);
        assert_eq!(within_ms(&sorted[..1], 0.99), 1.0);
        assert!(within_ms(&[], 0.5).is_nan());
    }
}
