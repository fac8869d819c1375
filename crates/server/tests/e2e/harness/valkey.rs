//! A Valkey or Redis server of a test's own, which the test may stop, kill and start again.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::cluster::free_port;
use super::{eventually, soon};

pub struct Valkey {
    folder: TempDir,
    program: PathBuf,
    password: Option<&'static str>,
    port: u16,
    child: Child,
}

impl Valkey {
    /// None where neither server is installed.
    pub async fn start(password: Option<&'static str>) -> Option<Self> {
        let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
        let programs = ["valkey-server", "redis-server"];
        let mut found = programs.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        let program = found.find(|program| program.exists())?;
        let mut folder = TempDir::new().expect("a temporary folder");
        // Somebody else may take a port between the look and the start.
        for _ in 0..5 {
            let port = free_port().await;
            let child = spawn(&program, &folder, port, password);
            let mut server = Self { folder, program: program.clone(), password, port, child };
            if server.is_up().await {
                return Some(server);
            }
            folder = server.folder;
        }
        panic!("the server does not start");
    }

    pub fn url(&self) -> String {
        self.url_with(self.password)
    }

    pub fn url_with(&self, password: Option<&str>) -> String {
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{user}127.0.0.1:{}/0", self.port)
    }

    /// What a gateway's configuration says of it. Patient, because a busy machine is no slow server.
    pub fn config(&self) -> String {
        format!("[state]\nredis_url = \"{}\"\nredis_timeout_ms = 5000\n", self.url())
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("it runs");
        kill_process(pid, signal).expect("it is ours");
    }

    /// It keeps its connections and says nothing more.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    pub async fn kill(&mut self) {
        soon("the server dies", self.child.kill()).await.expect("it is ours");
    }

    /// Starts it again, with nothing in it.
    pub async fn up(&mut self) {
        self.child = spawn(&self.program, &self.folder, self.port, self.password);
        assert!(self.is_up().await, "the server does not start again");
    }

    /// Waits until it answers; false when it ends instead.
    async fn is_up(&mut self) -> bool {
        let mut ended = false;
        let (port, child) = (self.port, &mut self.child);
        eventually("the server answers", Duration::from_secs(20), async || {
            ended = child.try_wait().expect("it is ours").is_some();
            ended || TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await;
        !ended
    }

    /// What it answers to commands that are sent as a person would type them.
    pub async fn said(&self, commands: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it answers");
        stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        soon("the answer", stream.read_to_string(&mut answer)).await.expect("text");
        answer
    }
}

fn spawn(program: &PathBuf, folder: &TempDir, port: u16, password: Option<&str>) -> Child {
    let mut command = Command::new(program);
    let port = port.to_string();
    command.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no", "--dir"]);
    command.arg(folder.path());
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("it is installed")
}
