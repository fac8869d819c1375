//! A `tidegate` process of our own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_sim::Sim;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::http::{Ask, Reply, Streaming};
use super::{PATIENCE, soon};

pub const INFERENCE_KEY: &str = "e2e-inference-key";
pub const MANAGEMENT_KEY: &str = "e2e-management-key";

const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// Quick and quiet; every test adds what it is about.
const BASE: &str = r#"
[service]
listen = "127.0.0.1:0"
drain_delay = 0
[keys]
inference_key = "env:E2E_INFERENCE_KEY"
management_key = "env:E2E_MANAGEMENT_KEY"
[limits]
auth_failures_per_minute = 60000
[sim]
enabled = false
"#;

/// Endpoints are tried in the order of their prices, so that a test knows who is first.
const IN_ORDER: &str = "[routing]\ndefault_sort = \"price\"\nhealth = false\nrepeat = false\n";

/// `tidegate` with nothing of this machine's environment: a provider key that happens to be set must not be found.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("E2E_INFERENCE_KEY", INFERENCE_KEY)
        .env("E2E_MANAGEMENT_KEY", MANAGEMENT_KEY)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// A configuration file and a data folder, and commands that run on them.
pub struct Place {
    folder: TempDir,
    /// What the server is started with besides.
    environment: BTreeMap<String, String>,
}

impl Place {
    pub fn new(config: &str) -> Self {
        let place = Self { folder: TempDir::new().expect("a temporary folder"), environment: BTreeMap::new() };
        place.write_config(config);
        place
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("tidegate.toml")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub fn write_config(&self, config: &str) {
        std::fs::write(self.config(), config).expect("the folder is ours");
    }

    /// Sets a variable for the next start of the server, or takes it away.
    pub fn environment(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.environment.insert(name.to_owned(), value.to_owned()),
            None => self.environment.remove(name),
        };
    }

    /// A path beside the data folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn arguments(&self) -> [String; 4] {
        let text = |path: PathBuf| path.to_str().expect("a plain path").to_owned();
        ["--config".to_owned(), text(self.config()), "--data-dir".to_owned(), text(self.data_dir())]
    }

    /// A command on this place, ready to be changed and started.
    pub fn prepared(&self, words: &[&str]) -> Command {
        let mut command = command(words);
        command.args(self.arguments());
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, words: &[&str]) -> Output {
        let mut command = self.prepared(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the binary starts");
        let pid = child.id().expect("it runs");
        match tokio::time::timeout(PATIENCE, child.wait_with_output()).await {
            Ok(output) => output.expect("it can be waited for"),
            // What it waits for is all that can be known of a command that never ends.
            Err(_) => panic!("{words:?}: not within {PATIENCE:?}\n{}", threads(pid)),
        }
    }

    /// Starts the server and waits until it listens.
    pub async fn serve(self) -> Tidegate {
        Tidegate::spawn(self).await
    }
}

/// What each thread of a process waits for.
fn threads(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let line = |task: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        ["comm", "wchan", "syscall"].map(|name| read(name).trim().to_owned()).join(" ")
    };
    tasks.map(line).collect::<Vec<_>>().join("\n")
}

/// What a gateway is started with.
#[derive(Default)]
pub struct Builder {
    providers: String,
    count: usize,
    models: BTreeMap<String, Vec<String>>,
    extras: Vec<String>,
    by_chance: bool,
    /// What models give that give something else than text.
    given: BTreeMap<String, &'static str>,
}

impl Builder {
    /// Leaves it to chance and to experience who is tried first, as it is where nothing is configured.
    #[must_use]
    pub fn by_chance(self) -> Self {
        Self { by_chance: true, ..self }
    }

    /// Adds a provider and an endpoint of the model there; providers are `p0`, `p1`, … with names `P0`, `P1`, …. Each
    /// counts as dearer than the one before it, so that they are tried in this order.
    #[must_use]
    pub fn endpoint(self, model: &str, sim: &Sim) -> Self {
        self.endpoint_with(model, sim, "")
    }

    /// The same with more lines of the endpoint's table.
    #[must_use]
    pub fn endpoint_with(self, model: &str, sim: &Sim, lines: &str) -> Self {
        self.endpoint_at(model, &sim.base_url(), lines)
    }

    #[must_use]
    pub fn endpoint_at(self, model: &str, base_url: &str, lines: &str) -> Self {
        self.endpoint_of(model, base_url, "", lines)
    }

    /// The same with more lines of the provider's table.
    #[must_use]
    pub fn endpoint_of(self, model: &str, base_url: &str, of_provider: &str, lines: &str) -> Self {
        let of_provider = format!("protocol = \"anthropic\"\n{of_provider}");
        self.any_endpoint(model, base_url, &of_provider, lines)
    }

    /// An endpoint that speaks this protocol.
    #[must_use]
    pub fn protocol_at(self, model: &str, protocol: &str, base_url: &str, lines: &str) -> Self {
        self.any_endpoint(model, base_url, &format!("protocol = \"{protocol}\""), lines)
    }

    /// The same with more lines of the provider's table.
    #[must_use]
    pub fn protocol_of(self, model: &str, protocol: &str, base_url: &str, of_provider: &str, lines: &str) -> Self {
        self.any_endpoint(model, base_url, &format!("protocol = \"{protocol}\"\n{of_provider}"), lines)
    }

    /// Has a model make pictures.
    #[must_use]
    pub fn makes_images(self, model: &str) -> Self {
        self.gives(model, "image")
    }

    /// Has a model make embeddings.
    #[must_use]
    pub fn embeds(self, model: &str) -> Self {
        self.gives(model, "embeddings")
    }

    /// Has a model rank documents.
    #[must_use]
    pub fn ranks(self, model: &str) -> Self {
        self.gives(model, "rerank")
    }

    /// Has a model give this in place of text.
    #[must_use]
    pub fn gives(mut self, model: &str, modality: &'static str) -> Self {
        self.given.insert(model.to_owned(), modality);
        self
    }

    fn any_endpoint(mut self, model: &str, base_url: &str, of_provider: &str, lines: &str) -> Self {
        let number = self.count;
        self.count += 1;
        self.providers.push_str(&format!(
            "[[providers]]\nslug = \"p{number}\"\ndisplay_name = \"P{number}\"\n\
             base_url = \"{base_url}\"\napi_key = \"provider-secret-{number}\"\n{of_provider}\n"
        ));
        let counts_as =
            if lines.contains("shadow_price") { String::new() } else { format!("shadow_price = {}", number + 1) };
        let endpoint = format!("[[models.endpoints]]\nprovider = \"p{number}\"\nmodel = \"m\"\n{counts_as}\n{lines}\n");
        self.models.entry(model.to_owned()).or_default().push(endpoint);
        self
    }

    /// More of the configuration file; its values win over what is there.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Self {
        self.extras.push(toml.to_owned());
        self
    }

    /// The configuration file.
    pub fn text(&self) -> String {
        let mut text = self.providers.clone();
        for (id, endpoints) in &self.models {
            let gives = self.given.get(id).copied().unwrap_or("text");
            text.push_str(&format!(
                "[[models]]\nid = \"{id}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
                 input_modalities = [\"text\", \"image\", \"file\"]\noutput_modalities = [\"{gives}\"]\n{}",
                endpoints.concat()
            ));
        }
        let mut table: toml::Table = BASE.parse().expect("the base is TOML");
        let order = if self.by_chance { "" } else { IN_ORDER };
        for extra in [order, &text].into_iter().chain(self.extras.iter().map(String::as_str)) {
            merge(&mut table, extra.parse().expect("a test writes TOML"));
        }
        table.to_string()
    }

    pub fn place(&self) -> Place {
        Place::new(&self.text())
    }

    pub async fn run(self) -> Tidegate {
        self.place().serve().await
    }
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(toml::Value::Table(known)), toml::Value::Table(more)) => merge(known, more),
            (Some(toml::Value::Array(known)), toml::Value::Array(more)) => known.extend(more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// A running gateway. Dropping it ends its process.
pub struct Tidegate {
    pub place: Place,
    pub address: SocketAddr,
    child: Child,
    out: Written,
    _readers: JoinSet<()>,
}

/// What the process has written so far.
#[derive(Clone)]
struct Written {
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
    changed: watch::Receiver<()>,
}

impl Tidegate {
    pub fn start() -> Builder {
        Builder::default()
    }

    async fn spawn(place: Place) -> Self {
        let mut child = place
            .prepared(&["serve"])
            .envs(&place.environment)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (sender, changed) = watch::channel(());
        let sender = Arc::new(sender);
        let mut readers = JoinSet::new();
        let stdout = gather(&mut readers, child.stdout.take().expect("piped"), sender.clone());
        let stderr = gather(&mut readers, child.stderr.take().expect("piped"), sender);
        let out = Written { stdout, stderr, changed };
        let mut gate = Self { place, address: ([127, 0, 0, 1], 0).into(), child, out, _readers: readers };
        gate.address = soon("the gateway listens", gate.listening()).await;
        gate
    }

    /// The address in the first line of the standard output, or of the standard error where the output is the log's alone.
    async fn listening(&self) -> SocketAddr {
        let mut out = self.out.clone();
        loop {
            let found = [self.stdout(), self.stderr()].iter().flat_map(|text| text.lines()).find_map(|line| {
                let (_, address) = line.split_once("listening on http://")?;
                address.trim().parse().ok()
            });
            if let Some(address) = found {
                return address;
            }
            assert!(out.changed.changed().await.is_ok(), "the gateway did not start: {}", self.stderr());
        }
    }

    pub fn stdout(&self) -> String {
        self.out.stdout.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it says of itself: the lines of its log, which go to standard output, and its standard error.
    pub fn stderr(&self) -> String {
        let stderr = self.out.stderr.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.log_lines().map(|line| format!("{line}\n")).collect::<String>() + &stderr
    }

    /// The log as it stands in standard output, between what is written there for people.
    pub fn log(&self) -> Vec<Value> {
        self.log_lines().map(|line| serde_json::from_str(&line).expect("a line is an object")).collect()
    }

    fn log_lines(&self) -> impl Iterator<Item = String> {
        let stdout = self.stdout();
        // The last one may still be on its way.
        let whole = stdout.rfind('\n').map_or("", |end| &stdout[..end]).to_owned();
        let lines: Vec<String> = whole.lines().filter(|line| line.starts_with('{')).map(str::to_owned).collect();
        lines.into_iter()
    }

    /// Waits for a piece of text in the log.
    pub async fn logs(&self, text: &str) {
        let mut changed = self.out.changed.clone();
        soon(&format!("the log says {text:?}"), async {
            while !self.stderr().contains(text) {
                assert!(changed.changed().await.is_ok(), "the gateway ended: {}", self.stderr());
            }
        })
        .await;
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn ask(&self, method: &str, path: &str) -> Ask {
        Ask::new(self.address, method, path)
    }

    /// A message with the inference key.
    pub async fn messages(&self, body: serde_json::Value) -> Reply {
        self.post(body.to_string()).await
    }

    /// The same with a body to the byte.
    pub async fn post(&self, body: impl Into<bytes::Bytes>) -> Reply {
        self.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body).send().await
    }

    /// A streamed message, read event by event.
    pub async fn stream(&self, body: serde_json::Value) -> Streaming {
        self.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).open().await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).send().await
    }

    pub async fn managed(&self, path: &str) -> Reply {
        self.ask("GET", path).key(MANAGEMENT_KEY).send().await
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the gateway accepts")
    }

    /// Writes bytes to a connection of their own and reads until the other side closes it.
    pub async fn raw(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // A server that has heard enough may close before everything is written.
        let _ = stream.write_all(bytes.as_ref()).await;
        let mut answer = Vec::new();
        let _ = soon("the connection is closed", stream.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a process has a number");
        kill_process(pid, signal).expect("the process is ours");
    }

    pub async fn exit(&mut self) -> ExitStatus {
        soon("the gateway exits", self.child.wait()).await.expect("the process is ours")
    }

    /// SIGTERM, and the wait for the end; the place is left for what comes next.
    pub async fn stop(mut self) -> (ExitStatus, Place) {
        self.signal(Signal::TERM);
        let status = self.exit().await;
        (status, self.place)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(Path::new("/proc").join(self.pid().to_string()).join("status"));
        let status = status.expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux names it");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }
}

fn gather(
    readers: &mut JoinSet<()>,
    from: impl tokio::io::AsyncRead + Unpin + Send + 'static,
    changed: Arc<watch::Sender<()>>,
) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = text.clone();
    readers.spawn(async move {
        let mut from = BufReader::new(from);
        let mut line = String::new();
        while from.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
            changed.send_replace(());
            line.clear();
        }
    });
    text
}
