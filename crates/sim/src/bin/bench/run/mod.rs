//! The whole benchmark: starts what is measured and what it is measured against, and prints a table per question.
//!
//! Three yardsticks are always of the same run: *direct* (driver to upstream), *floor* (a proxy that only forwards) and
//! *gate* (the gateway). Only their ratios travel between machines.

mod destinations;
mod gate;
mod latency;
mod sizes;
mod work;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::process::{Core, Pinning, Process};
use gate::Gate;

// Of an option given twice the last counts: the script gives some, and its caller may too.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Options {
    /// A tenth of the requests: for a look, not for a figure
    #[arg(long)]
    quick: bool,
    /// The gateway's program; without it only the yardsticks are measured
    #[arg(long, default_value = "target/release/tidegate")]
    gate: PathBuf,
    /// A second floor in the gateway's place: exercises the benchmark itself
    #[arg(long)]
    gate_stub: bool,
    /// Only sections and work whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// For results and the files of the run
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|part| name.to_lowercase().contains(&part.to_lowercase()))
    }

    /// How often something is done, of what the full run does.
    fn share(&self, full: usize) -> usize {
        if self.quick { (full / 10).max(20) } else { full }
    }
}

/// What runs during the benchmark.
struct Bench<'a> {
    options: &'a Options,
    me: PathBuf,
    pinning: Pinning,
    /// Goes away with the run.
    folder: PathBuf,
    upstream: Process,
    floor: Process,
    gate: Option<Gate>,
    /// Answers that were not what they had to be, as a line each.
    problems: Vec<String>,
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let (pinning, note) = Pinning::of_this_machine();
    if let Some(note) = note {
        println!("note: {note}");
    }
    let folder = options.out.join(format!("run-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let outcome = measure(options, pinning, &folder);
    if outcome.is_ok() {
        // What the processes said stays where it is when something went wrong.
        fs::remove_dir_all(&folder)?;
    }
    outcome
}

fn measure(options: &Options, pinning: Pinning, folder: &Path) -> anyhow::Result<()> {
    let mut bench = Bench::start(options, pinning, folder)?;
    let mut results = json!({"quick": options.quick, "gate": bench.gate.is_some() && !options.gate_stub});
    let mut keep = |name: &str, result: Option<Value>| {
        if let Some(result) = result {
            results[name] = result;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    keep("work", runtime.block_on(work::measure(&mut bench))?);
    keep("latency", runtime.block_on(latency::measure(&mut bench))?);
    keep("destinations", runtime.block_on(destinations::measure(&mut bench))?);
    keep("sizes", runtime.block_on(sizes::measure(&bench))?);
    let file = options.out.join("last.json");
    fs::write(&file, serde_json::to_string_pretty(&results)? + "\n")?;
    println!("\nwritten to {}", file.display());
    anyhow::ensure!(bench.problems.is_empty(), "figures are not to be trusted:\n{}", bench.problems.join("\n"));
    Ok(())
}

impl<'a> Bench<'a> {
    fn start(options: &'a Options, pinning: Pinning, folder: &Path) -> anyhow::Result<Self> {
        let me = std::env::current_exe()?;
        let mut command = pinning.command(Core::Others, &me);
        command.arg("upstream");
        let upstream = Process::start(command, &folder.join("upstream.log"))?;
        let floor = start_floor(pinning, &me, upstream.addr, &folder.join("floor.log"))?;
        let mut bench =
            Self { options, me, pinning, folder: folder.to_owned(), upstream, floor, gate: None, problems: Vec::new() };
        bench.gate = match (options.gate_stub, options.gate.is_file()) {
            (true, _) => {
                println!("note: the gate column is a second floor, not the gateway");
                Some(bench.start_gate("gate", Core::Measured, &bench.sink())?)
            }
            (false, true) => Some(bench.start_gate("gate", Core::Measured, &bench.sink())?),
            (false, false) => {
                println!("note: {} is not there: only direct and floor are measured", options.gate.display());
                None
            }
        };
        Ok(bench)
    }

    /// Where a destination answers at once.
    fn sink(&self) -> String {
        format!("http://{}/_sim/sink", self.upstream.addr)
    }

    /// Starts a gateway with an empty data folder of its own, which tells this destination of every call.
    fn start_gate(&self, name: &str, core: Core, destination: &str) -> anyhow::Result<Gate> {
        if self.options.gate_stub {
            let log = self.folder.join(format!("{name}.log"));
            return Ok(Gate::stub(start_floor(self.pinning, &self.me, self.upstream.addr, &log)?));
        }
        let command = self.pinning.command(core, &self.options.gate);
        Gate::start(command, self.upstream.addr, destination, &self.folder.join(name))
    }

    /// The three ways to the upstream, as far as they are there.
    fn ways(&self) -> Vec<(&'static str, SocketAddr)> {
        let gate = self.gate.as_ref().map(|gate| ("gate", gate.process.addr));
        [("direct", self.upstream.addr), ("floor", self.floor.addr)].into_iter().chain(gate).collect()
    }

    /// Remembers answers that were not what they had to be; a figure made of them means nothing.
    fn check(&mut self, what: &str, report: &crate::drive::Report) {
        if report.errors > 0 {
            let first = report.first_error.as_deref().unwrap_or("unknown");
            let problem = format!("{what}: {} of {} requests failed: {first}", report.errors, report.requests);
            eprintln!("warning: {problem}");
            self.problems.push(problem);
        }
    }
}

fn start_floor(pinning: Pinning, me: &Path, upstream: SocketAddr, log: &Path) -> anyhow::Result<Process> {
    let mut command = pinning.command(Core::Measured, me);
    command.args(["floor", "--upstream", &format!("http://{upstream}")]);
    Process::start(command, log)
}

/// The middle of a few measurements, and how far they lie apart in parts of it.
fn median(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2)) {
        (Some(least), Some(most), Some(middle)) => (*middle, (most - least) / middle),
        _ => (f64::NAN, f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_spread() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), (2.0, 1.0));
        assert!(median(&[]).0.is_nan());
    }
}
