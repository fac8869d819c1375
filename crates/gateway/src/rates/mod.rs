//! Requests a minute, counted by all gateways together in a Valkey or Redis server. Only these counters are there: money,
//! keys and codes never are.
//!
//! A request waits for one answer, and no longer than it was configured. When none comes in time the server counts as
//! gone: until a task of ours has found it again nobody waits, and each gateway counts its part for itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, RedisError};
use tidegate_core::Secret;
use tidegate_observe::metrics::{Looked, Metrics};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::limit::pace;

/// What runs on the server, in one step.
const SCRIPT: &str = include_str!("script.lua");
/// For the way to the server and its greeting.
const CONNECT: Duration = Duration::from_secs(1);
/// Between two tries to find the server; also the shortest time that it counts as gone.
const RETRY: Duration = Duration::from_secs(1);

/// An address that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("must look like redis://user:password@host:6379/0, or unix:///path/to/socket")]
    Form,
    #[error("rediss:// is not supported: use redis:// in a network of your own, or through a tunnel")]
    Tls,
}

/// The host and the port that an address names; none where it is a socket of this machine.
pub fn host(address: &Secret) -> Result<Option<(String, u16)>, BadAddress> {
    address.expose(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|_| BadAddress::Form)?;
        if text.starts_with("rediss:") || text.starts_with("valkeys:") {
            return Err(BadAddress::Tls);
        }
        let info = text.into_connection_info().map_err(|_| BadAddress::Form)?;
        match info.addr() {
            ConnectionAddr::Tcp(host, port) => Ok(Some((host.trim_matches(['[', ']']).to_ascii_lowercase(), *port))),
            ConnectionAddr::Unix(_) => Ok(None),
            _ => Err(BadAddress::Tls),
        }
    })
}

/// Why the server cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Unreachable,
    Password,
    Slow,
    /// It answers, but not with what was asked for.
    Refused,
}

impl Trouble {
    fn of(error: &RedisError) -> Self {
        // Some servers want a password only when the first command comes.
        let is_password = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
        match error.kind() {
            ErrorKind::AuthenticationFailed => Self::Password,
            _ if is_password => Self::Password,
            ErrorKind::Io => Self::Unreachable,
            _ => Self::Refused,
        }
    }

    /// Our own words: an error of the library may hold the address.
    fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "the server cannot be reached",
            Self::Password => "the server does not take the user and password",
            Self::Slow => "the server does not answer in time",
            Self::Refused => "the server does not do what it is asked: may the user run scripts?",
        }
    }
}

/// One of the limits of a request.
pub struct Limit {
    /// What is counted, without the prefix that all counters have.
    pub name: String,
    pub per_minute: u32,
}

/// The counters.
pub struct Rates {
    address: Secret,
    patience: Duration,
    metrics: Arc<Metrics>,
    /// None while each gateway counts for itself.
    connection: ArcSwapOption<MultiplexedConnection>,
    lost: Notify,
    /// Why the connection was given up.
    trouble: Mutex<Trouble>,
}

impl Rates {
    /// `patience`: how long a request waits at most.
    pub fn new(address: Secret, patience: Duration, metrics: Arc<Metrics>) -> Self {
        let (connection, lost) = (ArcSwapOption::empty(), Notify::new());
        Self { address, patience, metrics, connection, lost, trouble: Mutex::new(Trouble::Unreachable) }
    }

    /// Counts a request in all of these or in none, and says for each how many milliseconds it is until it would be
    /// counted: 0 everywhere when it was. None: nobody answers.
    pub async fn count(&self, brand: &str, limits: &[Limit]) -> Option<Vec<i64>> {
        let Some(connection) = self.connection.load_full() else {
            self.note("local");
            return None;
        };
        match timeout(self.patience, ask(&connection, brand, limits)).await {
            Ok(Ok(waits)) => {
                self.note("shared");
                return Some(waits);
            }
            Ok(Err(trouble)) => {
                self.note("failed");
                self.lose(&connection, trouble);
            }
            Err(_) => {
                self.note("slow");
                self.lose(&connection, Trouble::Slow);
            }
        }
        None
    }

    fn note(&self, result: &'static str) {
        self.metrics.shared_rates.get_or_create(&Looked { result }).inc();
    }

    /// Nobody uses this connection any more. Of those who find out together one says so.
    fn lose(&self, connection: &Arc<MultiplexedConnection>, trouble: Trouble) {
        let seen = self.connection.compare_and_swap(connection, None);
        if seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, connection)) {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
            self.lost.notify_one();
        }
    }

    /// Keeps a connection, until the process ends.
    pub async fn keep(&self) {
        let mut told = None;
        loop {
            let trouble = match self.connect().await {
                Ok(connection) => {
                    self.connection.store(Some(Arc::new(connection)));
                    self.tell(None, &mut told);
                    self.lost.notified().await;
                    *self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
                }
                Err(trouble) => trouble,
            };
            self.tell(Some(trouble), &mut told);
            sleep(RETRY).await;
        }
    }

    /// Says what has changed, and nothing else.
    fn tell(&self, trouble: Option<Trouble>, told: &mut Option<Option<Trouble>>) {
        self.metrics.shared_rates_up.set(trouble.is_none().into());
        if told.replace(trouble) == Some(trouble) {
            return;
        }
        match trouble {
            None => tracing::info!("state.redis_url: requests a minute are counted by all gateways together"),
            Some(trouble) => tracing::warn!(
                reason = trouble.words(),
                "state.redis_url: requests a minute are counted by each gateway for itself"
            ),
        }
    }

    /// A connection over which the script has run in time.
    async fn connect(&self) -> Result<MultiplexedConnection, Trouble> {
        let connecting = async {
            // Made anew each time: the address in clear is not kept.
            let info = self.address.expose(|bytes| String::from_utf8_lossy(bytes).into_connection_info());
            let client = info.and_then(Client::open).map_err(|error| Trouble::of(&error))?;
            let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
            let connection = client.get_multiplexed_async_connection_with_config(&config).await;
            connection.map_err(|error| Trouble::of(&error))
        };
        let connection = timeout(CONNECT, connecting).await.map_err(|_| Trouble::Slow)??;
        // Twice: the first time the server has to read the script.
        timeout(CONNECT, ask(&connection, "", &[])).await.map_err(|_| Trouble::Slow)??;
        timeout(self.patience, ask(&connection, "", &[])).await.map_err(|_| Trouble::Slow)??;
        Ok(connection)
    }
}

async fn ask(connection: &MultiplexedConnection, brand: &str, limits: &[Limit]) -> Result<Vec<i64>, Trouble> {
    let mut command = redis::cmd("EVAL");
    command.arg(SCRIPT).arg(limits.len());
    for limit in limits {
        command.arg(format!("{brand}:rate:{}", limit.name));
    }
    for limit in limits {
        let (interval_ms, burst) = pace(limit.per_minute);
        command.arg(interval_ms).arg(burst);
    }
    // A clone is another handle of the one connection; requests do not wait for each other's answers.
    let waits: Vec<i64> = command.query_async(&mut connection.clone()).await.map_err(|error| Trouble::of(&error))?;
    if waits.len() == limits.len() { Ok(waits) } else { Err(Trouble::Refused) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_host_and_tls_is_refused_by_name() {
        let host = |text: &str| host(&Secret::new(text));
        let named = |name: &str, port| Ok(Some((name.to_owned(), port)));
        assert_eq!(host("redis://:secret@Cache.internal:6380/2"), named("cache.internal", 6380));
        assert_eq!(host("redis://10.0.0.7"), named("10.0.0.7", 6379));
        assert_eq!(host("redis://[::1]:6379"), named("::1", 6379));
        assert_eq!(host("unix:///run/valkey.sock"), Ok(None));
        assert_eq!(host("rediss://cache.example"), Err(BadAddress::Tls));
        for text in ["cache.internal:6379", "http://cache.internal", "", "redis://host/not-a-number"] {
            assert_eq!(host(text), Err(BadAddress::Form), "{text}");
        }
    }
}
