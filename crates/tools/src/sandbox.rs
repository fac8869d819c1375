//! Commands that models run in a sandbox of the operator's: how it is told, and what its answer holds. The gateway starts
//! no process for anybody: a service of the operator's decides what a container is, or an engine keeps them.

pub mod engine;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Uri};
use serde::Deserialize;
use serde_json::json;
use tidegate_core::{Money, Secret};

use crate::headers;

/// What a container may use.
const CPUS: u32 = 1;
const MEMORY_BYTES: u64 = 1 << 30;
const PROCESSES: u32 = 256;
const DISK_BYTES: u64 = 2 << 30;
/// Bytes that the commands of one call say, all together: both streams of one at their longest.
pub const MOST_SAID: usize = 2 << 20;

/// The sandbox that the operator set up.
#[derive(Debug)]
pub struct Sandbox {
    pub place: Place,
    pub price_per_second: Money,
}

/// Who keeps the containers.
#[derive(Debug)]
pub enum Place {
    Service(Service),
    Engine(Arc<engine::Engine>),
}

impl Sandbox {
    /// What so many started seconds cost.
    pub fn fee(&self, seconds: u64) -> Money {
        Money(self.price_per_second.0.saturating_mul(i64::try_from(seconds).unwrap_or(i64::MAX)))
    }
}

/// A service of the operator's own, which keeps the contract of docs/sandbox.md.
pub struct Service {
    /// Without a slash at its end.
    pub url: String,
    pub key: Option<Secret>,
    /// Hosts that containers may reach; none: no network.
    pub hosts: Vec<String>,
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What the service is told about a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order<'a> {
    /// Have it, awake; one that is there stays as it is.
    Create { sleep_after_seconds: u64 },
    /// Run these one after another: in its shell, which keeps what they leave behind, or each as a process of its own.
    Exec {
        commands: &'a [String],
        in_shell: bool,
        timeout_ms: u64,
        max_output_length: usize,
        /// What a container without a service behind it needs to know beforehand.
        sleep_after_seconds: u64,
    },
    /// Let it sleep after so long without a command.
    Sleep { after_seconds: u64 },
    /// Away with it and all that it holds.
    Destroy,
}

impl Order<'_> {
    fn path(&self) -> &'static str {
        match self {
            Self::Create { .. } => "/create",
            Self::Exec { .. } => "/exec",
            Self::Sleep { .. } => "/sleep",
            Self::Destroy => "/destroy",
        }
    }
}

impl Service {
    /// The call for an order; nothing when the address or the key cannot be sent.
    pub fn call(&self, container: &str, order: Order<'_>) -> Option<(Uri, HeaderMap, String)> {
        let uri = format!("{}{}", self.url, order.path()).parse().ok()?;
        let headers = headers(self.key.as_ref())?;
        let body = match order {
            Order::Create { sleep_after_seconds } => json!({
                "container": container,
                "sleep_after_seconds": sleep_after_seconds,
                "limits": {
                    "cpus": CPUS,
                    "memory_bytes": MEMORY_BYTES,
                    "processes": PROCESSES,
                    "disk_bytes": DISK_BYTES,
                },
                "network": {"hosts": self.hosts},
            }),
            Order::Exec { commands, in_shell, timeout_ms, max_output_length, .. } => json!({
                "container": container,
                "commands": commands,
                "mode": if in_shell { "shell" } else { "process" },
                "timeout_ms": timeout_ms,
                "max_output_length": max_output_length,
            }),
            Order::Sleep { after_seconds } => json!({"container": container, "after_seconds": after_seconds}),
            Order::Destroy => json!({"container": container}),
        };
        Some((uri, headers, body.to_string()))
    }
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    /// None when it was ended because its time was over.
    pub exit_code: Option<i64>,
}

/// What the answer to an `exec` holds, each stream cut to so many characters; nothing when it is none.
pub fn read(body: &[u8], most: usize) -> Option<Vec<Ran>> {
    #[derive(Deserialize)]
    struct Answer {
        results: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        stdout: String,
        #[serde(default)]
        stderr: String,
        exit_code: Option<i64>,
        #[serde(default)]
        timed_out: bool,
    }
    let Answer { results } = serde_json::from_slice(body).ok()?;
    let mut room = MOST_SAID;
    let one = |one: One| {
        // One that neither ended nor ran out of time is a mistake of the service.
        let exit_code = if one.timed_out { None } else { Some(one.exit_code?) };
        let [stdout, stderr] = [one.stdout, one.stderr].map(|text| shortened(cut(text, most), &mut room));
        Some(Ran { stdout, stderr, exit_code })
    };
    results.into_iter().map(one).collect()
}

/// The text, or as much of it as there is room for, which it takes.
fn shortened(mut text: String, room: &mut usize) -> String {
    if text.len() > *room {
        text.truncate(text.floor_char_boundary(*room));
        text.shrink_to_fit();
    }
    *room -= text.len();
    text
}

/// The text, or so many characters of it.
pub fn cut(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn service() -> Service {
        Service {
            url: "http://sandbox.internal:8700/v1".to_owned(),
            key: Some(Secret::new("s3cret")),
            hosts: vec!["pypi.org".to_owned()],
        }
    }

    #[test]
    fn orders_are_what_the_contract_says() {
        let commands = ["ls".to_owned(), "pwd".to_owned()];
        let table = [
            (
                Order::Create { sleep_after_seconds: 900 },
                "/v1/create",
                json!({"container": "c", "sleep_after_seconds": 900, "network": {"hosts": ["pypi.org"]},
                    "limits": {"cpus": 1, "memory_bytes": 1_073_741_824, "processes": 256, "disk_bytes": 2_147_483_648_u64}}),
            ),
            (
                Order::Exec {
                    commands: &commands,
                    in_shell: true,
                    timeout_ms: 60_000,
                    max_output_length: 20_000,
                    sleep_after_seconds: 900,
                },
                "/v1/exec",
                json!({"container": "c", "commands": ["ls", "pwd"], "mode": "shell", "timeout_ms": 60_000,
                    "max_output_length": 20_000}),
            ),
            (Order::Sleep { after_seconds: 5 }, "/v1/sleep", json!({"container": "c", "after_seconds": 5})),
            (Order::Destroy, "/v1/destroy", json!({"container": "c"})),
        ];
        for (order, path, wanted) in table {
            let (uri, headers, body) = service().call("c", order).unwrap();
            assert_eq!(
                (uri.path(), &headers["authorization"]),
                (path, &http::HeaderValue::from_static("Bearer s3cret"))
            );
            assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), wanted);
        }
        assert!(!format!("{:?}", service()).contains("s3cret"));
    }

    #[test]
    fn answers_are_read_and_cut() {
        let body = json!({"results": [
            {"stdout": "\u{00e9}\u{00e9}\u{00e9}", "stderr": "", "exit_code": 3},
            {"stdout": "x", "exit_code": null, "timed_out": true},
        ]});
        let read = read(body.to_string().as_bytes(), 2).unwrap();
        let ran = |stdout: &str, exit_code| Ran { stdout: stdout.to_owned(), stderr: String::new(), exit_code };
        assert_eq!(read, [ran("\u{00e9}\u{00e9}", Some(3)), ran("x", None)]);
        for broken in ["", "{}", r#"{"results":[{}]}"#, r#"{"results":[{"exit_code":"0"}]}"#] {
            assert_eq!(super::read(broken.as_bytes(), 2), None, "{broken}");
        }
    }

    #[test]
    fn every_started_second_costs() {
        let sandbox = Sandbox { place: Place::Service(service()), price_per_second: Money(20_000) };
        assert_eq!((sandbox.fee(0), sandbox.fee(3)), (Money::ZERO, Money(60_000)));
        assert_eq!(sandbox.fee(u64::MAX), Money(i64::MAX));
    }
}
