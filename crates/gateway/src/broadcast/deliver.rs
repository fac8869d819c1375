//! Brings letters to their destinations: one task for each of them, which reads what is due, sends it in batches, and
//! notes what became of it. At least once: what was sent and not noted is sent again, with the same ids.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Uri};
use tidegate_core::Timestamp;
use tidegate_observe::broadcast::{Destination, Kind, otlp};
use tidegate_observe::metrics::{Delivery, Receiver};
use tidegate_store::journal::{Fate, JournalReader, Waiting};
use tidegate_store::vault::Vault;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::LABEL;
use crate::ledger::queue::Chore;
use crate::upstream::Pieces;
use crate::{Gateway, tasks};

/// Letters and bytes of one call.
const BATCH: usize = 100;
const BATCH_BYTES: usize = 4 << 20;
/// How long the first letter of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
const CALL: Duration = Duration::from_secs(10);
const LONGEST_WAIT_MS: i64 = 15 * 60 * 1000;
const OLDEST_MS: i64 = 24 * 60 * 60 * 1000;
const MOST_ATTEMPTS: i64 = 50;
/// How long it stays known that a letter was given up.
const BURIED_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// Letters that wait for one destination at most.
const MOST_WAITING: u64 = 1_000_000;
const MOST_BYTES: u64 = 2 << 30;
/// How often it is looked how much waits, and for whom nobody will ever fetch it.
const TIDY: Duration = Duration::from_secs(10);
const CLEAR: Duration = Duration::from_secs(60 * 60);
/// After so many failures in a row it is only asked now and then.
const FAILURES: u32 = 5;
const PROBE: Duration = Duration::from_secs(30);
/// Between two looks at who is to be told, and at how many letters wait.
const LOOK: Duration = Duration::from_secs(1);

/// What came of a call.
enum Answer {
    Taken,
    /// Another try may go well, after so long at least.
    Later(String, Option<Duration>),
    /// It will never be taken.
    Never(String),
    /// It is too much at once.
    TooLarge,
}

/// Keeps a task for each destination, of the configuration and of the store.
pub async fn deliver(gateway: Arc<Gateway>, reader: JournalReader) {
    let mut workers: HashMap<String, Running> = HashMap::new();
    let mut cleared = gateway.clock.instant();
    loop {
        let known: Vec<Arc<Destination>> = {
            let (snapshot, stored) = (gateway.snapshot(), gateway.told.list());
            snapshot.settings.audience.destinations.iter().chain(stored.iter()).cloned().collect()
        };
        let is_known = |id: &str| known.iter().any(|destination| destination.id == id);
        workers.retain(|id, worker| is_known(id) && !worker.0.is_finished());
        for destination in &known {
            workers.entry(destination.id.clone()).or_insert_with(|| {
                let worker = Worker { gateway: gateway.clone(), reader: reader.clone(), id: destination.id.clone() };
                Running(tasks::spawn("tell a destination", worker.run()))
            });
        }
        let now = gateway.clock.instant();
        if now >= cleared + CLEAR {
            cleared = now;
            let names = known.iter().map(|destination| destination.id.clone()).collect();
            let before = Timestamp(gateway.clock.now().0 - OLDEST_MS);
            gateway.ledger.queue.chore(Chore::Others(names, before)).await;
        }
        sleep(LOOK).await;
    }
}

/// A task that ends with whoever holds it.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Worker {
    gateway: Arc<Gateway>,
    reader: JournalReader,
    id: String,
}

impl Worker {
    async fn run(self) {
        let mut posted = self.gateway.ledger.queue.posted();
        let (mut failures, mut size) = (0_u32, BATCH);
        let mut tidied = None;
        loop {
            posted.borrow_and_update();
            let now = self.gateway.clock.now();
            let (due, next) = match self.reader.due(&self.id, now, size).await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(destination = %self.id, %error, "what is due cannot be read");
                    sleep(LOOK).await;
                    continue;
                }
            };
            let instant = self.gateway.clock.instant();
            if tidied.is_none_or(|last| instant >= last + TIDY) {
                tidied = Some(instant);
                self.bound(now).await;
            }
            let youth = due.first().map(|first| GATHER.as_millis() as i64 - (now.0 - first.created_at));
            let is_fresh = due.len() < size && due.first().is_some_and(|first| first.attempts == 0);
            if let Some(wait) = youth.filter(|wait| is_fresh && *wait > 0) {
                sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(0))).await;
                continue;
            }
            if due.is_empty() {
                let wait = next.map_or(LONGEST_WAIT_MS, |next| (next.0 - now.0).max(1));
                let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(1));
                let _ = timeout(wait, posted.changed()).await;
                continue;
            }
            let Some(destination) = self.destination() else { return };
            let (batch, unreadable) = self.opened(due);
            let answer = match batch.is_empty() {
                true => Answer::Taken,
                false => self.send(&destination, &batch).await,
            };
            let outcome = match &answer {
                Answer::Taken => "delivered",
                Answer::Later(..) => "postponed",
                Answer::Never(_) => "refused",
                Answer::TooLarge => "too_large",
            };
            self.count(destination.kind, outcome, 1);
            let mut fates: Vec<(i64, Fate)> =
                unreadable.into_iter().map(|id| (id, Fate::Dead(now, "it could not be opened".to_owned()))).collect();
            match answer {
                Answer::Taken => {
                    (failures, size) = (0, BATCH);
                    fates.extend(batch.iter().map(|(letter, _)| (letter.id, Fate::Delivered)));
                }
                Answer::TooLarge if batch.len() > 1 => {
                    size = batch.len() / 2;
                    continue;
                }
                Answer::TooLarge => {
                    (failures, size) = (0, BATCH);
                    fates
                        .extend(batch.iter().map(|(letter, _)| (letter.id, Fate::Dead(now, "it is too large".into()))));
                }
                Answer::Never(error) => {
                    failures = 0;
                    tracing::warn!(destination = %self.id, error, letters = batch.len(), "a destination refuses what it is told");
                    fates.extend(batch.iter().map(|(letter, _)| (letter.id, Fate::Dead(now, error.clone()))));
                }
                Answer::Later(error, wait) => {
                    failures += 1;
                    if failures == 1 || failures == FAILURES {
                        tracing::warn!(destination = %self.id, error, failures, "a destination does not take what it is told");
                    }
                    fates.extend(batch.iter().map(|(letter, _)| (letter.id, self.later(letter, &error, wait, now))));
                }
            }
            let dead = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Dead(..))).count();
            self.dropped(destination.kind, "given_up", dead as u64);
            while self.gateway.ledger.queue.chore(Chore::Resolve(fates.clone())).await.is_none() {
                sleep(LOOK).await;
            }
            if failures >= FAILURES {
                sleep(PROBE).await;
            }
        }
    }

    fn destination(&self) -> Option<Arc<Destination>> {
        let configured = self.gateway.snapshot().settings.audience.find(&self.id).cloned();
        configured.or_else(|| self.gateway.told.list().iter().find(|one| one.id == self.id).cloned())
    }

    /// When a letter is tried again; never when it is too old or was tried too often.
    fn later(&self, letter: &Waiting, error: &str, wait: Option<Duration>, now: Timestamp) -> Fate {
        if now.0 - letter.created_at > OLDEST_MS || letter.attempts + 1 >= MOST_ATTEMPTS {
            return Fate::Dead(now, error.to_owned());
        }
        let most = 1_000_i64.saturating_mul(1 << letter.attempts.clamp(0, 20)).min(LONGEST_WAIT_MS);
        let drawn = (self.gateway.snapshot().draws.next() * most as f64) as i64;
        let told = wait.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)).min(LONGEST_WAIT_MS);
        Fate::Postponed(Timestamp(now.0 + drawn.max(told).max(50)), error.to_owned())
    }

    /// The letters that can be read and fit in one call, and the ids of those that cannot be read.
    fn opened(&self, due: Vec<Waiting>) -> (Vec<(Waiting, String)>, Vec<i64>) {
        let (mut batch, mut unreadable, mut bytes) = (Vec::new(), Vec::new(), 0);
        for letter in due {
            match open(&self.gateway.vault, &self.id, &letter.payload) {
                None => unreadable.push(letter.id),
                Some(text) => {
                    bytes += text.len();
                    if bytes > BATCH_BYTES && !batch.is_empty() {
                        break;
                    }
                    batch.push((letter, text));
                }
            }
        }
        (batch, unreadable)
    }

    async fn send(&self, destination: &Destination, batch: &[(Waiting, String)]) -> Answer {
        let body = otlp::export(batch.iter().map(|(_, text)| text.as_str()));
        let Some(headers) = self.headers(destination, batch, &body) else {
            return Answer::Never("a header cannot be sent".to_owned());
        };
        match timeout(CALL, call(&self.gateway, destination, headers, Bytes::from(body))).await {
            Err(_) => Answer::Later("no answer in time".to_owned(), None),
            Ok(Err(problem)) => Answer::Later(problem.to_owned(), None),
            Ok(Ok((status, wait))) => match status {
                200..300 => Answer::Taken,
                413 => Answer::TooLarge,
                408 | 425 | 429 | 500.. => Answer::Later(format!("status {status}"), wait.map(Duration::from_secs)),
                _ => Answer::Never(format!("status {status}")),
            },
        }
    }

    fn headers(&self, destination: &Destination, batch: &[(Waiting, String)], body: &str) -> Option<HeaderMap> {
        let mut headers = own_headers(destination)?;
        if destination.kind == Kind::Webhook {
            let snapshot = self.gateway.snapshot();
            let brand = &snapshot.settings.brand;
            let mut add = |name: &str, value: String| {
                let name = HeaderName::from_bytes(format!("x-{brand}-{name}").as_bytes()).ok()?;
                headers.insert(name, HeaderValue::from_str(&value).ok()?)
            };
            let first = batch.first().map(|(letter, _)| letter)?;
            add("delivery", delivery_id(batch));
            add("attempt", (first.attempts + 1).to_string());
            if let Some(secret) = &snapshot.settings.audience.webhook_secret {
                let at = self.gateway.clock.now().0 / 1_000;
                add("signature", format!("t={at},v1={}", secret.expose(|key| signature(key, at, body))));
            }
        }
        Some(headers)
    }

    /// Holds the outbox within its bounds, and tells how full it is.
    async fn bound(&self, now: Timestamp) {
        let Ok((waiting, bytes)) = self.reader.outbox_depth(&self.id).await else { return };
        let Some(destination) = self.destination() else { return };
        let labels = Receiver { destination_type: destination.kind.as_str(), destination: self.id.clone() };
        self.gateway.metrics.broadcast_queue.get_or_create(&labels).set(i64::try_from(waiting).unwrap_or(i64::MAX));
        // Of too many bytes the oldest quarter goes, until they fit.
        let most = if bytes > MOST_BYTES { waiting * 3 / 4 } else { MOST_WAITING };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let chore = Chore::Bound(self.id.clone(), most, Timestamp(now.0 - BURIED_MS));
        let gone = self.gateway.ledger.queue.chore(chore).await.unwrap_or(0);
        self.dropped(destination.kind, "full", gone);
    }

    fn count(&self, kind: Kind, outcome: &'static str, by: u64) {
        let labels = Delivery { destination_type: kind.as_str(), outcome };
        self.gateway.metrics.broadcast_deliveries.get_or_create(&labels).inc_by(by);
    }

    fn dropped(&self, kind: Kind, outcome: &'static str, by: u64) {
        if by > 0 {
            let labels = Delivery { destination_type: kind.as_str(), outcome };
            self.gateway.metrics.broadcast_dropped.get_or_create(&labels).inc_by(by);
        }
    }
}

/// The headers that a destination always gets.
fn own_headers(destination: &Destination) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &destination.target.headers {
        let mut value = value.expose(HeaderValue::from_bytes).ok()?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    Some(headers)
}

/// Calls a destination: the status of its answer, and after how many seconds it wants to be asked again.
async fn call(
    gateway: &Gateway,
    destination: &Destination,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(u16, Option<u64>), &'static str> {
    let method = if destination.target.is_put { Method::PUT } else { Method::POST };
    let url = &destination.target.url;
    if !destination.is_operators {
        let rules = &gateway.snapshot().settings.egress;
        return gateway.egress.send(url, method, headers, body, rules).await.map_err(|_| "it cannot be reached");
    }
    let uri: Uri = url.parse().map_err(|_| "no address")?;
    let sent = gateway.upstream.request(method, &uri, headers, Pieces::from(body)).await;
    let response = sent.map_err(|_| "it cannot be reached")?;
    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Ok((response.status().as_u16(), wait))
}

/// Asks a destination to take nothing at all, to see whether it is there and lets us in.
pub async fn test(gateway: &Gateway, destination: &Destination) -> Result<u16, &'static str> {
    let mut headers = own_headers(destination).ok_or("a header cannot be sent")?;
    headers.insert("x-test-connection", HeaderValue::from_static("true"));
    let body = Bytes::from(otlp::export([]));
    let called = timeout(CALL, call(gateway, destination, headers, body)).await.map_err(|_| "no answer in time")?;
    called.map(|(status, _)| status)
}

fn open(vault: &Vault, destination: &str, payload: &[u8]) -> Option<String> {
    let packed = vault.open_blob(LABEL, destination.as_bytes(), payload)?;
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The same for the same letters, however often they are sent.
fn delivery_id(batch: &[(Waiting, String)]) -> String {
    let names: Vec<&str> = batch.iter().map(|(letter, _)| letter.generation.as_str()).collect();
    let hash = digest::digest(&digest::SHA256, names.join(",").as_bytes());
    let hex: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    // Of the version whose bits are anybody's own.
    format!("{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

fn signature(key: &[u8], at: i64, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), format!("{at}.{body}").as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
