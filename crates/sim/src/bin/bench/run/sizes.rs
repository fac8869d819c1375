//! What the gateway takes up: memory, time to start, bytes on disk.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::{Bench, gate, median};
use crate::client::{Connection, Work};
use crate::process::{Core, Process};
use crate::sample;
use crate::table::{Table, figure, verdict};
use crate::upstream::{self, Answers};

/// Connections opened at a time: fewer than a listener's backlog.
const AT_ONCE: usize = 50;

/// Descriptors beyond the streams' own.
const SPARE: usize = 200;

/// Open streams, what they may take and what they should take, in MiB.
const STREAMS: [(usize, f64, f64); 2] = [(1_000, 120.0, 80.0), (5_000, 320.0, 200.0)];

pub async fn measure(bench: &Bench<'_>) -> anyhow::Result<Option<Value>> {
    if !bench.options.wants("sizes") {
        return Ok(None);
    }
    let columns = ["what", "floor", "gate", "must", "goal", ""];
    let mut sizes = Sizes { table: Table::new("Sizes", &columns), results: Vec::new() };
    if let Some(bytes) = fs::metadata(&bench.options.gate).ok().filter(|_| bench.has_gate()) {
        sizes.row("program (MB)", None, Some(bytes.len() as f64 / 1e6), 40.0, 25.0);
    }
    if bench.has_gate() {
        eprintln!("measuring: start");
        let starts = (0..5).map(|n| Ok(bench.start_gate(&format!("start-{n}"), Core::Any, &bench.sink())?.ready_ms));
        let starts = starts.collect::<anyhow::Result<Vec<_>>>()?;
        sizes.row("ready after exec (ms)", None, Some(median(&starts).0), 300.0, 100.0);
    }
    memory(bench, &mut sizes).await?;
    print!("{}", sizes.table.text());
    Ok(Some(sizes.results.into()))
}

/// Fresh processes: what they hold after hours of benchmark is another question.
async fn memory(bench: &Bench<'_>, sizes: &mut Sizes) -> anyhow::Result<()> {
    let log = bench.folder.join("floor-memory.log");
    let floor = super::start_floor(bench.pinning, &bench.me, bench.upstream.addr, &log)?;
    let gate = match &bench.gate {
        Some(_) => Some(bench.start_gate("memory", Core::Measured, &bench.sink())?),
        None => None,
    };
    let gate = gate.as_ref().map(|gate| &gate.process);
    // What runs once after the start is no part of idling.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rss = |process: Option<&Process>| process.map(Process::rss_mib).transpose();
    sizes.row("RSS idle (MiB)", Some(floor.rss_mib()?), rss(gate)?, 40.0, 20.0);
    for (count, must, goal) in STREAMS {
        if bench.options.quick && count > 1_000 {
            continue;
        }
        if let Some(limit) = descriptors().filter(|limit| *limit < 2 * count + SPARE) {
            println!("note: {count} open streams need more than {limit} open files (ulimit -n)");
            continue;
        }
        eprintln!("measuring: {count} open streams");
        // Slow, so that streams are open rather than busy; long, so that none ends before the last one is open.
        upstream::set(bench.upstream.addr, Answers { tokens: (600, 20), pace_ms: 1_000, ..Answers::default() }).await?;
        let with_floor = with_open_streams(&floor, count).await?;
        let with_gate = match gate {
            Some(process) => Some(with_open_streams(process, count).await?),
            None => None,
        };
        sizes.row(&format!("RSS, {count} open streams (MiB)"), Some(with_floor), with_gate, must, goal);
    }
    Ok(())
}

async fn with_open_streams(process: &Process, count: usize) -> anyhow::Result<f64> {
    let body = sample::request(1 << 10, true);
    let key = gate::KEY.to_owned();
    let work = Work { addr: process.addr, key, body, stream: true, status: StatusCode::OK };
    let connecting = Arc::new(Semaphore::new(AT_ONCE));
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let mut streams = JoinSet::new();
    for _ in 0..count {
        streams.spawn(stream(work.clone(), connecting.clone(), begun.clone()));
    }
    // All of them together: a gateway may hold a stream back until there is content.
    for _ in 0..count {
        tokio::select! {
            Some(()) = beginnings.recv() => {}
            Some(ended) = streams.join_next() => {
                ended??;
                anyhow::bail!("a stream among {count} ended early");
            }
        }
    }
    // Every stream has met a few more events by then, and buffers have the size they keep.
    tokio::time::sleep(Duration::from_secs(3)).await;
    anyhow::ensure!(streams.try_join_next().is_none(), "a stream among {count} ended early");
    process.rss_mib()
}

/// Reads one stream for as long as it lasts; the connection ends with the task.
async fn stream(work: Work, connecting: Arc<Semaphore>, begun: mpsc::UnboundedSender<()>) -> anyhow::Result<()> {
    let mut connection = {
        let _place = connecting.acquire().await?;
        Connection::open(work.addr).await?
    };
    let mut body = connection.start(&work).await?;
    let mut first = Some(begun);
    while let Some(frame) = body.frame().await {
        frame?;
        if let Some(begun) = first.take() {
            begun.send(())?;
        }
    }
    Ok(())
}

/// The limit on open files that this process and its children have.
fn descriptors() -> Option<usize> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Bench<'_> {
    fn has_gate(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| !gate.is_stub)
    }
}

struct Sizes {
    table: Table,
    results: Vec<Value>,
}

impl Sizes {
    fn row(&mut self, what: &str, floor: Option<f64>, gate: Option<f64>, must: f64, goal: f64) {
        let standing = verdict(gate, must, goal).to_owned();
        let cells =
            vec![what.to_owned(), figure(floor), figure(gate), must.to_string(), goal.to_string(), standing.clone()];
        self.table.row(cells);
        self.results.push(json!({
            "what": what, "floor": floor, "gate": gate, "must": must, "goal": goal, "standing": standing,
        }));
    }
}
