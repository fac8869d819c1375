//! A PostgreSQL server of a test's own, for tests that kill it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::{eventually, soon};

pub struct Cluster {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
}

impl Cluster {
    /// None where PostgreSQL is not tested, or its server is not installed here.
    pub async fn start() -> Option<Self> {
        std::env::var_os("TEST_POSTGRES_URL")?;
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut versions: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
        versions.sort();
        let programs = versions.into_iter().rev().find(|programs| programs.join("initdb").exists())?;
        let folder = TempDir::new().expect("a temporary folder");
        let cluster = Self { port: free_port().await, folder, programs };
        if rustix::process::geteuid().is_root() {
            // The server refuses to run as root.
            run(Command::new("chown").arg("-R").arg("postgres").arg(cluster.folder.path())).await;
        }
        let data = cluster.data();
        let arguments = ["-U", "postgres", "--auth=trust", "--no-sync", "-D"];
        run(cluster.program("initdb").args(arguments).arg(&data)).await;
        cluster.up().await;
        Some(cluster)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        if !rustix::process::geteuid().is_root() {
            return Command::new(path);
        }
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(path);
        command
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub fn config(&self) -> String {
        format!("[storage]\nurl = \"{}\"\n", self.url())
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        Pid::from_raw(text.lines().next()?.parse().ok()?)
    }

    /// Kills the server without a word.
    pub async fn kill(&self) {
        let pid = self.pid().expect("it runs");
        kill_process(pid, Signal::KILL).expect("it is ours");
        let process = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
        eventually("the server is gone", Duration::from_secs(20), async || !process.exists()).await;
    }

    /// Starts it, again or for the first time. Processes of one that was killed may hold its memory for a moment.
    pub async fn up(&self) {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories= -c fsync=off -c max_connections=60",
            self.port
        );
        eventually("the server starts", Duration::from_secs(30), async || {
            let mut command = self.program("pg_ctl");
            command.arg("-D").arg(self.data()).args(["-w", "-t", "20", "-l"]).arg(self.data().join("log"));
            command.args(["-o", &options, "start"]).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().await.is_ok_and(|status| status.success())
        })
        .await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // At once: nothing of it is wanted.
            let _ = kill_process(pid, Signal::QUIT);
        }
    }
}

pub async fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    listener.local_addr().expect("it listens").port()
}

async fn run(command: &mut Command) {
    let output = soon("a program of PostgreSQL", command.output()).await.expect("it is installed");
    assert!(output.status.success(), "{output:?}");
}
