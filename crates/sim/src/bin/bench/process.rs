//! Processes of the benchmark: started, pinned to a core, and read through `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

/// What every part prints when it can be reached; the gateway's own line has the same words.
const LISTENING: &str = "listening on http://";
/// How long a process may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn announce(addr: SocketAddr) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{LISTENING}{addr}")?;
    stdout.flush()
}

/// Where the process under test runs, and where everything else does.
#[derive(Clone, Copy)]
pub enum Core {
    Measured,
    Others,
    Any,
}

/// Whether processes can be kept on cores of their own.
#[derive(Clone, Copy)]
pub struct Pinning {
    possible: bool,
}

impl Pinning {
    /// Moves this process, which drives the load, off the measured core.
    pub fn of_this_machine() -> (Self, Option<String>) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if cores < 2 {
            return (Self { possible: false }, Some("one core only: everything shares it".to_owned()));
        }
        let me = std::process::id().to_string();
        let moved = Command::new("taskset").args(["-acp", "1", &me]).stdout(Stdio::null()).status();
        match moved {
            Ok(status) if status.success() => (Self { possible: true }, None),
            _ => (Self { possible: false }, Some("no taskset (util-linux): nothing is pinned".to_owned())),
        }
    }

    /// The command that runs `program` on the core.
    pub fn command(self, core: Core, program: &Path) -> Command {
        let number = match core {
            Core::Measured if self.possible => "0",
            Core::Others if self.possible => "1",
            // A child inherits where its parent was moved to.
            Core::Any if self.possible => "0,1",
            Core::Measured | Core::Others | Core::Any => return Command::new(program),
        };
        // taskset becomes the program, so the process id stays the one we know.
        let mut command = Command::new("taskset");
        command.args(["-c", number]).arg(program);
        command
    }
}

/// A running process that has said where it listens. Dropping it ends it.
pub struct Process {
    child: Child,
    pub addr: SocketAddr,
}

impl Process {
    pub fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let errors = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
        let found = listening(&mut child);
        match found {
            Ok(addr) => Ok(Self { child, addr }),
            Err(error) => {
                end(&mut child);
                let said = fs::read_to_string(log).unwrap_or_default();
                Err(error.context(format!("{command:?} did not start: {}", said.trim())))
            }
        }
    }

    pub fn proc_file(&self, name: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }

    /// Memory in RAM right now.
    pub fn rss_mib(&self) -> anyhow::Result<f64> {
        let status = self.proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib / 1024.0)
    }

    pub fn cpu(&self) -> anyhow::Result<Cpu> {
        let (mut threads, mut keeping) = (HashMap::new(), HashSet::new());
        for entry in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let id = entry?.file_name().to_string_lossy().into_owned();
            // A thread may end between the two reads, and some kernels keep no such file.
            if let Ok(text) = self.proc_file(&format!("task/{id}/schedstat")) {
                let nanos = text.split(' ').next().and_then(|word| word.parse().ok()).context("odd schedstat")?;
                if self.proc_file(&format!("task/{id}/comm")).is_ok_and(|name| name.starts_with(KEEPING)) {
                    keeping.insert(id.clone());
                }
                threads.insert(id, nanos);
            }
        }
        Ok(Cpu { ticks: ticks(&self.proc_file("stat")?)?, threads, keeping })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Asks it to end, so that it can write what it has counted; who takes too long, with thousands of streams open, is not waited
/// for. It may have ended by itself: either way nothing is left to do about it.
fn end(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let asked = crate::now();
    while asked.elapsed() < PATIENCE && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for the line, and keeps reading so that the process never blocks on a full pipe.
fn listening(child: &mut Child) -> anyhow::Result<SocketAddr> {
    let stdout = child.stdout.take().context("stdout is piped")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            if let Some((_, rest)) = line.split_once(LISTENING) {
                let end = rest.find(|letter: char| letter.is_whitespace() || letter == '/' || letter == '"');
                // The receiver is gone once it has its answer.
                let _ = sender.send(rest[..end.unwrap_or(rest.len())].to_owned());
            }
        }
    });
    let addr = match receiver.recv_timeout(Duration::from_secs(30)) {
        Ok(addr) => addr,
        Err(RecvTimeoutError::Timeout) => bail!("it did not listen within 30 s"),
        Err(RecvTimeoutError::Disconnected) => bail!("it ended before it listened"),
    };
    addr.parse().map_err(|error| anyhow!("it listens on {addr}: {error}"))
}

/// CPU time used so far: exact for the threads that live, in ticks for the whole process.
pub struct Cpu {
    ticks: u64,
    threads: HashMap<String, u64>,
    /// Which of them write the journal and the records.
    keeping: HashSet<String>,
}

/// What the threads that work on SQLite's files are called.
const KEEPING: &str = "sqlx-sqlite";

impl Cpu {
    /// Linux counts in hundredths of a second towards programs, whatever the kernel's own clock is.
    const TICK_MS: f64 = 10.0;

    /// Milliseconds since an earlier reading in threads that write the journal and the records.
    pub fn keeping_ms_since(&self, earlier: &Self) -> f64 {
        let used = |id: &String| {
            let now = self.threads.get(id).copied().unwrap_or(0);
            now - earlier.threads.get(id).copied().unwrap_or(0).min(now)
        };
        self.keeping.iter().map(used).sum::<u64>() as f64 / 1e6
    }

    /// Milliseconds of CPU time since an earlier reading.
    pub fn ms_since(&self, earlier: &Self) -> f64 {
        let ticks = (self.ticks - earlier.ticks) as f64 * Self::TICK_MS;
        let used = |(id, nanos): (&String, &u64)| nanos - earlier.threads.get(id).copied().unwrap_or(0).min(*nanos);
        let exact = self.threads.iter().map(used).sum::<u64>() as f64 / 1e6;
        // Threads that ended in between took their count with them; only the ticks still know.
        let lost =
            earlier.threads.keys().any(|id| !self.threads.contains_key(id)) || ticks > exact + 3.0 * Self::TICK_MS;
        if lost { ticks } else { exact }
    }
}

/// `utime` and `stime` of `/proc/PID/stat`; the name before them is in parentheses and may hold anything.
fn ticks(stat: &str) -> anyhow::Result<u64> {
    let (_, fields) = stat.rsplit_once(')').context("odd stat")?;
    let mut numbers = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(user + system),
        _ => bail!("odd stat"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat).unwrap(), 42);
    }

    #[test]
    fn threads_that_ended_are_counted_in_ticks() {
        let cpu = |ticks, threads: &[(&str, u64)]| Cpu {
            ticks,
            threads: threads.iter().map(|(id, nanos)| ((*id).to_owned(), *nanos)).collect(),
            keeping: HashSet::from(["2".to_owned()]),
        };
        let before = cpu(10, &[("1", 1_000_000), ("2", 5_000_000)]);
        assert_eq!(cpu(11, &[("1", 3_000_000), ("2", 5_500_000), ("3", 500_000)]).ms_since(&before), 3.0);
        assert_eq!(cpu(11, &[("1", 3_000_000), ("2", 5_500_000)]).keeping_ms_since(&before), 0.5);
        assert_eq!(cpu(14, &[("1", 3_000_000)]).ms_since(&before), 40.0);
        assert_eq!(cpu(20, &[("1", 3_000_000), ("2", 6_000_000)]).ms_since(&before), 100.0);
    }
}
