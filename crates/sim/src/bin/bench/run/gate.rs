//! The gateway as the benchmark runs it: as shipped, with everything on that a deployment would have on.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::process::Process;
use crate::sample::{MODEL, TRANSLATED};

/// Any text can be imported as a key.
pub const KEY: &str = "bench-key-0123456789abcdef";
const MANAGEMENT_KEY: &str = "bench-management-key-0123456789abcdef";

pub struct Gate {
    pub process: Process,
    pub is_stub: bool,
    /// From before the process was made to the first 200 of `/readyz`.
    pub ready_ms: f64,
}

impl Gate {
    pub fn stub(process: Process) -> Self {
        Self { process, is_stub: true, ready_ms: f64::NAN }
    }

    /// Starts the program with a data folder that must not exist yet, and waits until it is ready.
    pub fn start(mut command: Command, upstream: SocketAddr, destination: &str, folder: &Path) -> anyhow::Result<Self> {
        let data = folder.join("data");
        fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
        let config = folder.join("tidegate.toml");
        fs::write(&config, configuration(upstream, destination))?;
        command.arg("serve").arg("--config").arg(&config).arg("--data-dir").arg(&data);
        command.env("BENCH_KEY", KEY).env("BENCH_MANAGEMENT_KEY", MANAGEMENT_KEY);
        let start = crate::now();
        let process = Process::start(command, &folder.join("gate.log"))?;
        while !is_ready(process.addr) {
            if start.elapsed() > Duration::from_secs(60) {
                bail!("the gateway was not ready within a minute");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let ready_ms = start.elapsed().as_secs_f64() * 1e3;
        grant(process.addr).context("no credits could be granted")?;
        Ok(Self { process, is_stub: false, ready_ms })
    }
}

/// Every call is charged to a balance: it is more than a benchmark can spend.
fn grant(addr: SocketAddr) -> anyhow::Result<()> {
    let body = r#"{"amount":1000000}"#;
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(
        stream,
        "POST /api/v1/credits/grants HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {MANAGEMENT_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if !answer.starts_with("HTTP/1.1 201") {
        bail!("{}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}

fn is_ready(addr: SocketAddr) -> bool {
    let answer = || {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET /readyz HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        std::io::Result::Ok(head)
    };
    answer().is_ok_and(|head| &head == b"HTTP/1.1 200")
}

/// Two endpoints of one model, so that there is something to route; limits that a benchmark never reaches.
fn configuration(upstream: SocketAddr, destination: &str) -> String {
    let mut text = format!(
        r#"[service]
listen = "127.0.0.1:0"
drain_delay = 0
drain_timeout = 5

[keys]
inference_key = "env:BENCH_KEY"
management_key = "env:BENCH_MANAGEMENT_KEY"

[billing]
enabled = true

[limits]
in_flight_key = 100000
in_flight_workspace = 100000
in_flight_node = 100000
auth_failures_per_minute = 1000000

[log]
level = "warn"

[[destinations]]
name = "bench"
type = "otel-collector"
privacy_mode = true
config = {{ endpoint = "{destination}" }}

[[models]]
id = "{MODEL}"
name = "m"
context_length = 1000000
max_output_tokens = 8192
"#
    );
    for slug in ["bench-a", "bench-b"] {
        text.push_str(&format!(
            r#"
[[models.endpoints]]
provider = "{slug}"
model = "m"
pricing = {{ input = 3.0, output = 15.0 }}
"#
        ));
    }
    text.push_str(&format!(
        r#"
[[models]]
id = "{TRANSLATED}"
name = "t"
context_length = 1000000
max_output_tokens = 8192
[[models.endpoints]]
provider = "bench-chat"
model = "m"
pricing = {{ input = 3.0, output = 15.0 }}
[[providers]]
slug = "bench-chat"
protocol = "openai-chat"
base_url = "http://{upstream}/v1"
"#
    ));
    for slug in ["bench-a", "bench-b"] {
        text.push_str(&format!(
            r#"
[[providers]]
slug = "{slug}"
protocol = "anthropic"
base_url = "http://{upstream}"
"#
        ));
    }
    text
}
