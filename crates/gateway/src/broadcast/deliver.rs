//! Brings letters to their destinations: one task for each of them, which reads what is due, sends it in batches, and
//! notes what became of it. At least once: what was sent and not noted is sent again, with the same ids.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::read::GzDecoder;
use tidegate_core::Timestamp;
use tidegate_core::map::Set;
use tidegate_observe::broadcast::{Destination, Kind, Parcel, Shape, shortened};
use tidegate_observe::metrics::{Delivery, Receiver, Untold};
use tidegate_store::journal::{Fate, JournalReader, LetterId, Waiting};
use tidegate_store::vault::Vault;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::call::{Answer, CALL, call, headers};
use super::departed::{self, Departed};
use super::gait::{BATCH, Gait, Round, at_once};
use super::share::{LONGEST_WAIT_MS, OLDEST_MS, Opened, again, later, parcels, together};
use super::tally::End;
use super::{LABEL, OPEN, PACKED, told_again};
use crate::ledger::queue::Chore;
use crate::{Gateway, tasks};

/// How long the first letter of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
/// How many it does not wait with: a few calls that are full.
const MANY: u64 = 4 * BATCH as u64;
/// How long it stays known that a letter was given up.
pub(super) const BURIED_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// So many go at once where too many wait: the journal's writer has other things to do.
pub(super) const PORTION: u64 = 2_000;
/// How often it is looked how much waits, and for whom nobody will ever fetch it.
const TIDY: Duration = Duration::from_secs(10);
const CLEAR: Duration = Duration::from_secs(60 * 60);
/// After so many failures in a row it is only asked now and then.
const FAILURES: u32 = 5;
const PROBE: Duration = Duration::from_secs(30);
/// Between two looks at who is to be told, and at how many letters wait.
const LOOK: Duration = Duration::from_secs(1);
/// How long a process that ends still brings what is due, and how often it is looked whether there is any.
const FAREWELL: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

/// Keeps a task for each destination, of the configuration and of the store.
pub async fn deliver(gateway: Arc<Gateway>, reader: JournalReader) {
    let mut workers: HashMap<String, Running> = HashMap::new();
    let mut cleared = gateway.clock.instant();
    let mut departed = Departed::default();
    loop {
        // Before the list, which is then at least as new.
        let seq = gateway.told.seq();
        let known = known(&gateway);
        let is_known = |id: &str| known.iter().any(|destination| destination.id == id);
        // One whose type is another now is measured as another, and begins anew.
        let is_same = |id: &str, kind| known.iter().any(|destination| destination.id == id && destination.kind == kind);
        for (id, worker) in workers.extract_if(|id, worker| !is_same(id, worker.kind)) {
            departed::end(&gateway, id, worker).await;
        }
        departed.drop_letters(&gateway, seq, is_known).await;
        workers.retain(|_, worker| !worker.task.is_finished());
        gateway.tallies.retain(is_known);
        for destination in &known {
            workers.entry(destination.id.clone()).or_insert_with(|| {
                let worker = Worker { gateway: gateway.clone(), reader: reader.clone(), id: destination.id.clone() };
                Running { kind: destination.kind, task: tasks::spawn("tell a destination", worker.run()) }
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

/// Done when nothing is due any more, or when it has taken too long: whatever is left is told after the next start.
pub async fn delivered(gateway: &Gateway, reader: &JournalReader) {
    let _ = timeout(FAREWELL, async {
        while is_anything_due(gateway, reader).await {
            sleep(GLANCE).await;
        }
    })
    .await;
}

/// Who is left alone for its failures is not waited for.
async fn is_anything_due(gateway: &Gateway, reader: &JournalReader) -> bool {
    for destination in known(gateway) {
        let due = reader.due(&destination.id, gateway.clock.now(), 1).await;
        if due.is_ok_and(|(due, _)| !due.is_empty()) && !gateway.tallies.is_resting(&destination.id) {
            return true;
        }
    }
    false
}

/// All that are told, by the configuration and by the store.
fn known(gateway: &Gateway) -> Vec<Arc<Destination>> {
    let (snapshot, stored) = (gateway.snapshot(), gateway.told.list());
    snapshot.settings.audience.destinations.iter().chain(stored.iter()).cloned().collect()
}

/// A task that ends with whoever holds it.
pub(super) struct Running {
    pub kind: Kind,
    pub task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
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
        let mut gait = Gait::default();
        // When calls that failed are made again, each at a time of its own.
        let mut times = Set::default();
        let mut tidied = None;
        loop {
            let before = *posted.borrow_and_update();
            let now = self.gateway.clock.now();
            // Before anything is read: what goes must not be sent as well.
            let instant = self.gateway.clock.instant();
            if tidied.is_none_or(|last| instant >= last + TIDY) {
                tidied = Some(instant);
                self.bound(now).await;
            }
            let Some(destination) = self.destination() else { return };
            // Where much waits, as much goes as can be under way, and what became of it is noted once.
            let (most, most_bytes) = gait.most(!matches!(destination.target.shape, Shape::Object(_)));
            let (due, next) = match self.reader.due(&self.id, now, most).await {
                Ok((due, next)) => (together(due), next),
                Err(error) => {
                    tracing::warn!(destination = %self.id, %error, "what is due cannot be read");
                    sleep(LOOK).await;
                    continue;
                }
            };
            let youth = due.first().map(|first| GATHER.as_millis() as i64 - (now.0 - first.created_at));
            let is_fresh = due.len() <= gait.size() / 2 && due.first().is_some_and(|first| first.attempts == 0);
            if let Some(wait) = youth.filter(|wait| is_fresh && *wait > 0) {
                let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
                let _ = timeout(wait, posted.wait_for(|count| count - before >= MANY)).await;
                continue;
            }
            if due.is_empty() {
                let wait = next.map_or(LONGEST_WAIT_MS, |next| (next.0 - now.0).max(1));
                let mut wait = Duration::from_millis(u64::try_from(wait).unwrap_or(1));
                match next {
                    // It grows older meanwhile, and whoever looks at the metrics should see that.
                    Some(_) => wait = wait.min(TIDY),
                    // Nobody may look here again for long: what was said to wait does so no more.
                    None => self.tell_depth(&destination, 0, None, now),
                }
                let _ = timeout(wait, posted.changed()).await;
                continue;
            }
            let (batch, unreadable) = self.opened(&destination, due, most_bytes);
            let dead = |why: &str| Fate::Dead(now, why.to_owned());
            // A ring that lacks a key may get it back.
            if !unreadable.is_empty() {
                let letters = unreadable.len();
                tracing::error!(destination = %self.id, letters, "no master key here opens what a destination is to be told; it waits for the key that it was sealed under");
            }
            let mut fates: Vec<(LetterId, Fate)> = Vec::new();
            for letter in unreadable {
                let at = again(letter.attempts, None, self.gateway.snapshot().draws.next(), now);
                fates.push((letter.id, later(&letter, "no master key opens it", at, now)));
            }
            let parcels = parcels(&destination, &batch, gait.size());
            let carried: Set<usize> = parcels.iter().flat_map(|parcel| &parcel.letters).copied().collect();
            let others = batch.iter().enumerate().filter(|(place, _)| !carried.contains(place));
            fates.extend(others.map(|(_, (letter, _))| (letter.id, dead("it was made for another type"))));
            let bytes = batch.iter().map(|(_, told)| told.len()).sum();
            let (is_taken, is_down, is_refused, half) = (false, false, false, None);
            let mut round = Round { letters: batch.len(), bytes, is_taken, is_down, is_refused, half };
            times.retain(|at| *at > now);
            for (letters, mut answer) in self.send(&destination, &batch, parcels).await {
                if let (Answer::TooLarge, [place]) = (&answer, letters.as_slice()) {
                    answer = self.send_less(&destination, &batch[*place]).await;
                }
                self.count(destination.kind, answer.outcome(), 1);
                let letters = letters.iter().map(|place| &batch[*place].0);
                match answer {
                    Answer::Taken => {
                        round.is_taken = true;
                        fates.extend(letters.map(|letter| (letter.id, Fate::Delivered)));
                    }
                    Answer::TooLarge if letters.len() > 1 => {
                        round.half = Some(round.half.unwrap_or(BATCH).min(letters.len() / 2));
                    }
                    Answer::TooLarge => fates.extend(letters.map(|letter| (letter.id, dead("it is too large")))),
                    Answer::Never(error) => {
                        round.is_refused = true;
                        tracing::warn!(destination = %self.id, error, letters = letters.len(), "a destination refuses what it is told");
                        fates.extend(letters.map(|letter| (letter.id, dead(&error))));
                    }
                    Answer::Later(error, wait) => {
                        let failures = gait.failures();
                        if !round.is_down && matches!(failures + 1, 1 | FAILURES) {
                            tracing::warn!(destination = %self.id, error, failures, "a destination does not take what it is told");
                        }
                        round.is_down = true;
                        // Together again, and with no others, so that who takes them twice can tell.
                        let drawn = self.gateway.snapshot().draws.next();
                        let attempts = letters.clone().next().map_or(0, |letter| letter.attempts);
                        let mut at = again(attempts, wait, drawn, self.gateway.clock.now());
                        while !times.insert(at) {
                            at = at.plus(Duration::from_millis(1));
                        }
                        fates.extend(letters.map(|letter| (letter.id, later(letter, &error, at, now))));
                    }
                }
            }
            gait.went(&round);
            let dead = fates.iter().filter(|(_, fate)| matches!(fate, Fate::Dead(..))).count();
            self.dropped(destination.kind, "given_up", dead as u64);
            while self.gateway.ledger.queue.chore(Chore::Resolve(fates.clone())).await.is_none() {
                sleep(LOOK).await;
            }
            self.note(&fates);
            if gait.failures() >= FAILURES {
                self.gateway.tallies.rest(&self.id, true);
                sleep(PROBE).await;
                self.gateway.tallies.rest(&self.id, false);
            }
        }
    }

    fn destination(&self) -> Option<Arc<Destination>> {
        let configured = self.gateway.snapshot().settings.audience.find(&self.id).cloned();
        configured.or_else(|| self.gateway.told.list().iter().find(|one| one.id == self.id).cloned())
    }

    /// The letters that can be read, so many bytes of them, and those that cannot be read.
    fn opened(&self, destination: &Destination, due: Vec<Waiting>, most: usize) -> (Vec<Opened>, Vec<Waiting>) {
        let snapshot = self.gateway.snapshot();
        let service = &snapshot.settings.audience.service;
        let (mut batch, mut unreadable, mut bytes) = (Vec::new(), Vec::new(), 0);
        for letter in due {
            let told = match &letter.told {
                Some(told) => Some(told.clone()),
                None => told_again(&letter.payload, destination, service)
                    .unwrap_or_else(|| open(&self.gateway.vault, &self.id, &letter.payload))
                    .map(Into::into),
            };
            match told {
                None => unreadable.push(letter),
                Some(told) => {
                    bytes += told.len();
                    if bytes > most && !batch.is_empty() {
                        break;
                    }
                    batch.push((letter, told));
                }
            }
        }
        (batch, unreadable)
    }

    /// Makes all these calls, a few at once; which letters each carried, and what came of it.
    async fn send(
        &self,
        destination: &Arc<Destination>,
        batch: &[Opened],
        parcels: Vec<Parcel>,
    ) -> Vec<(Vec<usize>, Answer)> {
        let (mut parcels, most) = (parcels.into_iter(), at_once(destination.is_operators));
        let (mut answers, mut running) = (Vec::new(), JoinSet::new());
        loop {
            while running.len() < most
                && let Some(parcel) = parcels.next()
            {
                let letters: Vec<&Waiting> = parcel.letters.iter().map(|place| &batch[*place].0).collect();
                let more = headers(&self.gateway, destination, &letters, &parcel.body);
                let (gateway, destination) = (self.gateway.clone(), destination.clone());
                running.spawn(async move {
                    let letters = parcel.letters.clone();
                    let Some(more) = more else {
                        return (letters, Answer::Never("a header cannot be sent".to_owned()));
                    };
                    let called = timeout(CALL, call(&gateway, &destination, more, parcel)).await;
                    (letters, Answer::of(called.unwrap_or(Err("no answer in time"))))
                });
            }
            // A call that panics leaves its letters as they are.
            match running.join_next().await {
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(_)) => {}
                None => return answers,
            }
        }
    }

    /// Sends a letter that was too large once more, with less of what was said.
    async fn send_less(&self, destination: &Arc<Destination>, (letter, told): &Opened) -> Answer {
        let Some(shorter) = shortened(told) else { return Answer::TooLarge };
        self.count(destination.kind, Answer::TooLarge.outcome(), 1);
        let parcels = destination.target.parcels(&[&shorter]);
        let mut answers = self.send(destination, &[(letter.clone(), shorter.into())], parcels).await;
        answers.pop().map_or(Answer::TooLarge, |(_, answer)| answer)
    }

    /// Holds the outbox within its bounds, and tells how full it is.
    async fn bound(&self, now: Timestamp) {
        let Ok((waiting, bytes)) = self.reader.outbox_depth(&self.id).await else { return };
        let Some(destination) = self.destination() else { return };
        let bounds = self.gateway.snapshot().settings.audience.bounds;
        // Of too many bytes the oldest quarter goes, until they fit.
        let most = if bytes > bounds.bytes { (waiting * 3 / 4).min(bounds.letters) } else { bounds.letters };
        let (mut left, buried) = (waiting, Timestamp(now.0 - BURIED_MS));
        loop {
            let portion = left.saturating_sub(most).min(PORTION);
            let chore = Chore::Bound(self.id.clone(), portion, buried);
            let Some(gone) = self.gateway.ledger.queue.chore(chore).await else { break };
            self.dropped(destination.kind, "full", gone);
            if gone > 0 {
                self.gateway.tallies.count(&self.id, now, End::Dropped, gone);
            }
            left = left.saturating_sub(gone);
            if gone == 0 || left <= most {
                break;
            }
        }
        let oldest = self.reader.outbox_standing(&self.id).await.ok().and_then(|(_, oldest, _)| oldest);
        self.tell_depth(&destination, left, oldest, now);
    }

    fn tell_depth(&self, destination: &Destination, waiting: u64, oldest: Option<Timestamp>, now: Timestamp) {
        let labels = Receiver { destination_type: destination.kind.as_str(), destination: self.id.clone() };
        self.gateway.metrics.broadcast_queue.get_or_create(&labels).set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let waited = oldest.map_or(0, |oldest| (now.0 - oldest.0).max(0) / 1_000);
        self.gateway.metrics.flow.broadcast_oldest.get_or_create(&labels).set(waited);
    }

    /// Counts what became of letters, for those who ask.
    fn note(&self, fates: &[(LetterId, Fate)]) {
        let (tallies, now) = (&self.gateway.tallies, self.gateway.clock.now());
        let mut ends = [0, 0];
        for (_, fate) in fates {
            match fate {
                Fate::Delivered => ends[0] += 1,
                Fate::Postponed(_, error) => tallies.failed(&self.id, error),
                Fate::Dead(_, error) => {
                    ends[1] += 1;
                    tallies.failed(&self.id, error);
                }
            }
        }
        for (end, count) in [End::Delivered, End::Failed].into_iter().zip(ends) {
            if count > 0 {
                tallies.count(&self.id, now, end, count);
            }
        }
    }

    fn count(&self, kind: Kind, outcome: &'static str, by: u64) {
        let labels = Delivery { destination_type: kind.as_str(), outcome };
        self.gateway.metrics.broadcast_deliveries.get_or_create(&labels).inc_by(by);
    }

    fn dropped(&self, kind: Kind, reason: &'static str, by: u64) {
        if by > 0 {
            let labels = Untold { destination_type: kind.as_str(), reason };
            self.gateway.metrics.broadcast_dropped.get_or_create(&labels).inc_by(by);
        }
    }
}

fn open(vault: &Vault, destination: &str, payload: &[u8]) -> Option<Vec<u8>> {
    if payload.starts_with(OPEN) {
        return Some(payload.to_vec());
    }
    let packed = vault.open_blob(LABEL, destination.as_bytes(), payload)?;
    if !packed.starts_with(&PACKED) {
        return Some(packed);
    }
    let mut told = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut told).ok()?;
    Some(told)
}
