//! The one task that empties the queue to the journal in groups. While a group is being committed the next one gathers;
//! nobody waits for a timer, nor for the disk: what is committed is brought there beside the writing of others.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidegate_core::map::Set;
use tidegate_core::{Clock, Exchange, GenerationId};
use tidegate_observe::logging;
use tidegate_observe::metrics::{Handles, Metrics, Untold};
use tidegate_store::journal::{Ballast, Entry, Journal, JournalError, Letter, Place};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::fail;
use super::queue::{BROKEN, Chore, FULL, LOCKED, Letters, Queue, Queued, Record, Sync, WELL};
use crate::tasks;

/// At least one commit in this time is on its way to the disk.
const SYNC: Duration = Duration::from_millis(50);
/// Between two tries to write to a journal that cannot be written.
const RETRY: Duration = Duration::from_millis(100);
/// About as long as the text of a call is.
const TEXT: usize = 1_024;
/// How often it is tried to take room on the disk again.
const BALLAST: Duration = Duration::from_secs(2);

/// The writing end; it runs as a task of its own.
pub struct Writer {
    pub journal: Journal,
    pub queue: Arc<Queue>,
    pub ballast: Ballast,
    pub sync: Sync,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    /// Takes what is settled and committed.
    pub settled: Box<dyn FnMut(Box<Exchange>, Place) + Send>,
}

/// What destinations are to be told of a call. What a call cost is written whatever becomes of that.
fn made(letters: Letters, exchange: &Exchange) -> Vec<Letter> {
    catch_unwind(AssertUnwindSafe(|| letters(exchange))).unwrap_or_else(|_| {
        tracing::error!(generation_id = %exchange.id, "what destinations are to be told of a call could not be made");
        Vec::new()
    })
}

/// Adds what is remembered of a call; says where that ends.
fn text_of(exchange: &Exchange, texts: &mut Vec<u8>) -> usize {
    exchange.write(texts);
    texts.len()
}

/// What is written of a call; of one that is settled, its place among those.
enum Written {
    Settled(usize),
    Other(Record),
}

impl Written {
    fn entry<'a>(&'a self, settled: &[(GenerationId, &'a str)]) -> Option<Entry<'a>> {
        match self {
            Self::Settled(place) => settled.get(*place).map(|(id, text)| Entry::Settle(*id, text)),
            Self::Other(Record::Intent(id, data)) => Some(Entry::Open(*id, data)),
            Self::Other(Record::Progress(id, progress)) => Some(Entry::Mark(*id, **progress)),
            Self::Other(Record::Settle(..)) => None,
        }
    }
}

/// How commits come to the disk where nobody waits for it.
struct Pace {
    /// When it was last begun to bring some there.
    began: Instant,
    /// There are some that came after that.
    is_dirty: bool,
    running: Option<JoinHandle<io::Result<()>>>,
    /// The log is being folded into the file.
    folding: Option<oneshot::Receiver<Result<(), JournalError>>>,
}

impl Pace {
    /// Sees to what goes on beside the writing: once in every turn of the writer, whatever it has to do.
    async fn turn(&mut self, journal: &mut Journal, now: Instant, is_short: bool) -> Result<(), JournalError> {
        self.heed(now).await?;
        self.begin(journal, now)?;
        self.fold(journal, is_short).await
    }

    /// Has the log folded into the file where it has grown long. Nearly all of that is done beside the writing of others; only
    /// what came meanwhile is left for a moment between two groups.
    async fn fold(&mut self, journal: &mut Journal, is_short: bool) -> Result<(), JournalError> {
        let Some(folding) = &mut self.folding else {
            if journal.is_long(is_short) {
                let (sender, receiver) = oneshot::channel();
                let folding = journal.folding();
                tasks::spawn("fold the journal's log", async move { drop(sender.send(folding.run().await)) });
                self.folding = Some(receiver);
            }
            return Ok(());
        };
        let beside = match folding.try_recv() {
            Err(TryRecvError::Empty) => return Ok(()),
            Err(TryRecvError::Closed) => Ok(()),
            Ok(folded) => folded,
        };
        self.folding = None;
        match beside.and(journal.fold().await) {
            // It is tried again when the log has grown by as much once more.
            Err(error @ (JournalError::Locked | JournalError::Full)) => {
                tracing::warn!(%error, "the journal's log could not be folded: it grows on");
                Ok(())
            }
            folded => folded,
        }
    }

    /// Begins to bring what is committed to the disk, where it is time to.
    fn begin(&mut self, journal: &mut Journal, now: Instant) -> Result<(), JournalError> {
        if self.is_dirty && self.running.is_none() && now >= self.began + SYNC {
            let log = journal.log()?;
            self.running = Some(spawn_blocking(move || fail::sync().and_then(|()| log.sync())));
            (self.began, self.is_dirty) = (now, false);
        }
        Ok(())
    }

    /// How long there is nothing to see to.
    fn rest(&self, now: Instant) -> Duration {
        if self.is_dirty || self.running.is_some() || self.folding.is_some() {
            (self.began + SYNC).saturating_duration_since(now).max(Duration::from_millis(1))
        } else {
            BALLAST
        }
    }

    /// Hears how that went. On a disk that takes longer than is promised, nothing more is written meanwhile.
    async fn heed(&mut self, now: Instant) -> Result<(), JournalError> {
        let is_late = now >= self.began + SYNC;
        let Some(running) = self.running.take_if(|running| is_late || running.is_finished()) else { return Ok(()) };
        match running.await {
            Ok(Ok(())) => Ok(()),
            // Not simply again: after a failed sync a second one may succeed for pages that are lost.
            Ok(Err(error)) => {
                self.is_dirty = true;
                Err(JournalError::Broken(error.into()))
            }
            Err(panicked) => {
                self.is_dirty = true;
                Err(JournalError::Broken(io::Error::other(panicked).into()))
            }
        }
    }
}

impl Writer {
    pub async fn run(mut self) {
        let mut handles = Handles::default();
        let mut pace = Pace { began: self.clock.instant(), is_dirty: false, running: None, folding: None };
        self.keep_room();
        let mut looked = self.clock.instant();
        loop {
            self.queue.gather().await;
            let load = self.queue.take();
            let now = self.clock.instant();
            let is_short = self.queue.state.load(Ordering::Relaxed) == FULL;
            if let Err(error) = pace.turn(&mut self.journal, now, is_short).await {
                self.mend(error, &mut pace).await;
            }
            if is_short && self.clock.instant() >= looked + BALLAST {
                looked = self.clock.instant();
                self.keep_room();
            }
            if load.is_empty() {
                if self.queue.closing.load(Ordering::SeqCst) && self.queue.depth() == 0 {
                    break;
                }
                let _ = timeout(pace.rest(now), self.queue.wake.notified()).await;
                continue;
            }
            self.metrics.ledger_queue.set(i64::try_from(load.group.len()).unwrap_or(i64::MAX));
            let is_forgetting = load.is_forgetting() || !load.forgotten.is_empty();
            self.commit(load.group, &mut pace, &mut handles).await;
            self.queue.written();
            let mut is_forgotten = true;
            if is_forgetting && let Err(error) = self.journal.forget(&load.forwarded, &load.spoiled).await {
                // They are sent to the store once more some day, and it knows them.
                tracing::warn!(%error, "calls that were forwarded stay in the journal");
                is_forgotten = false;
            }
            for done in load.forgotten {
                let _ = done.send(is_forgotten);
            }
            self.tidy(load.chores).await;
        }
        if let Some(running) = pace.running {
            let _ = running.await;
        }
        if let Some(folding) = pace.folding {
            let _ = folding.await;
        }
        if let Err(error) = self.journal.close().await {
            tracing::warn!(%error, "the journal could not be closed properly");
        }
    }

    /// Does what is to be done with the outbox. What fails is asked for again: who waits hears of nothing.
    async fn tidy(&mut self, chores: Vec<(Chore, oneshot::Sender<u64>)>) {
        for (chore, done) in chores {
            let count = match &chore {
                Chore::Resolve(fates) => self.journal.resolve(fates).await.map(|()| 0),
                Chore::Others(known, before) => self.journal.forget_others(known, *before).await,
                Chore::Bound(destination, gone, buried) => self.journal.bound_outbox(destination, *gone, *buried).await,
            };
            match count {
                Ok(count) => drop(done.send(count)),
                Err(error) => tracing::warn!(%error, "the outbox could not be changed"),
            }
        }
    }

    /// Writes a group, however often that must be tried.
    async fn commit(&mut self, group: Vec<Queued>, pace: &mut Pace, handles: &mut Handles) {
        let mut records = Vec::with_capacity(group.len());
        let mut waiting = Vec::with_capacity(group.len());
        // Of a call that is over already it need not be said that it was let in.
        let mut over = Set::with_capacity_and_hasher(group.len(), Default::default());
        over.extend(group.iter().filter_map(|queued| queued.record.settles()));
        let (mut settled, mut told) = (Vec::with_capacity(over.len()), Vec::with_capacity(over.len()));
        for Queued { record, done } in group {
            waiting.extend(done);
            match record {
                Record::Intent(id, _) | Record::Progress(id, _) if over.contains(&id) => {}
                Record::Settle(exchange, letters) => {
                    records.push(Written::Settled(settled.len()));
                    settled.push(exchange);
                    told.push(letters);
                }
                other => records.push(Written::Other(other)),
            }
        }
        // One step for all calls before the next step for any: the code of one step stays in the cache of a core, that of all
        // steps does not.
        let letters: Vec<Letter> = told
            .into_iter()
            .zip(&settled)
            .filter_map(|(told, exchange)| Some(made(told?, exchange)))
            .flatten()
            .collect();
        let mut texts = Vec::with_capacity(settled.len() * TEXT);
        let ends: Vec<usize> = settled.iter().map(|exchange| text_of(exchange, &mut texts)).collect();
        let texts = String::from_utf8(texts).expect("JSON is text");
        let mut start = 0;
        let mut text = |end: usize| &texts[std::mem::replace(&mut start, end)..end];
        let closed: Vec<(GenerationId, &str)> =
            settled.iter().zip(ends).map(|(exchange, end)| (exchange.id, text(end))).collect();
        let entries: Vec<Entry<'_>> = records.iter().filter_map(|record| record.entry(&closed)).collect();
        let places = if entries.is_empty() { Vec::new() } else { self.write(&entries, &letters, pace).await };
        settled.iter().for_each(|exchange| self.metrics.record(exchange, handles));
        settled.iter().for_each(|exchange| logging::finished(exchange));
        // First to the next station: whoever hears of the commit may ask the store about it at once.
        for (exchange, place) in settled.into_iter().zip(places) {
            (self.settled)(exchange, place);
        }
        for done in waiting {
            let _ = done.send(());
        }
    }

    /// Says where the calls stand that are settled with it.
    async fn write(&mut self, entries: &[Entry<'_>], letters: &[Letter], pace: &mut Pace) -> Vec<Place> {
        loop {
            fail::point("journal.write");
            let now = self.clock.instant();
            if let Err(error) = pace.heed(now).await {
                self.mend(error, pace).await;
            }
            let full = self.sync == Sync::Always;
            let mut written = self.try_write(entries, letters, full).await;
            // What a call cost matters more than that others hear of it.
            if written.is_err() && !letters.is_empty() {
                written = self.try_write(entries, &[], full).await;
                if written.is_ok() {
                    for letter in letters {
                        let labels = Untold { destination_type: letter.kind, reason: "journal" };
                        self.metrics.broadcast_lost.get_or_create(&labels).inc();
                    }
                }
            } else if !letters.is_empty() {
                self.queue.posted.send_modify(|count| *count += letters.len() as u64);
            }
            match written {
                Ok(places) => {
                    pace.is_dirty |= !full;
                    self.metrics.ledger_commit.observe((self.clock.instant() - now).as_secs_f64());
                    self.recovered();
                    fail::point("journal.written");
                    return places;
                }
                Err(error) => self.failed(error).await,
            }
        }
    }

    async fn try_write(
        &mut self,
        entries: &[Entry<'_>],
        letters: &[Letter],
        full: bool,
    ) -> Result<Vec<Place>, JournalError> {
        fail::journal()?;
        self.journal.write_with(entries, letters, full).await
    }

    /// A write went through. After a full disk new calls wait until there is room for the worst moment again.
    fn recovered(&self) {
        if !self.queue.is_well() && self.ballast.is_taken() {
            self.queue.enter(WELL);
            tracing::info!("the journal is written again");
        }
    }

    /// What was committed did not come to the disk. Nobody is let in until the file is whole and all of it is there; that
    /// must not wait for somebody to be let in.
    async fn mend(&mut self, error: JournalError, pace: &mut Pace) {
        self.stumbled(&error).await;
        loop {
            // A file that is not known to be whole is not called so because something could be added to it.
            let mended = match self.journal.reopen().await {
                Ok(()) => self.journal.flush().await,
                Err(error) => Err(error),
            };
            match mended {
                Ok(()) => break,
                Err(error) => _ = self.stumbled(&error).await,
            }
        }
        pace.is_dirty = false;
        self.recovered();
    }

    fn keep_room(&self) {
        match self.ballast.take() {
            Ok(()) => {
                if self.queue.enter(WELL) != WELL {
                    tracing::info!("there is room on the disk again: new calls are let in");
                }
            }
            Err(error) => {
                if self.queue.enter(FULL) != FULL {
                    tracing::error!(%error, "no room on the disk could be set aside for the journal: no call is let in");
                }
            }
        }
    }

    async fn failed(&mut self, error: JournalError) {
        if self.stumbled(&error).await
            && let Err(error) = self.journal.reopen().await
        {
            tracing::error!(%error, "the journal could not be opened again");
        }
    }

    /// Lets nobody in until the journal can be written again. Whether it must be opened anew for that.
    async fn stumbled(&mut self, error: &JournalError) -> bool {
        let (state, must_reopen) = match error {
            JournalError::Full => (FULL, false),
            JournalError::Locked => (LOCKED, false),
            JournalError::Broken(_) | JournalError::Damaged(_) | JournalError::Unreadable(_) | JournalError::Older => {
                (BROKEN, true)
            }
        };
        if self.queue.enter(state) != state {
            tracing::error!(%error, "the journal cannot be written: new calls are refused until it can");
        }
        if state == FULL && self.ballast.give() {
            tracing::warn!("the room that was set aside is given up, so that running calls can be settled");
            return false;
        }
        sleep(RETRY).await;
        must_reopen
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{KeyHash, OrganisationId, Timestamp, WorkspaceId};

    use super::*;

    #[test]
    fn what_cannot_be_made_for_destinations_ends_nothing() {
        let at = Timestamp(1_790_000_000_000);
        let (organisation, workspace) = (OrganisationId("o".into()), WorkspaceId("w".into()));
        let exchange =
            Exchange::new(GenerationId::new(at), organisation, workspace, KeyHash::of(b"k"), "v/m".into(), at);
        assert_eq!(made(Box::new(|_| panic!("a letter that cannot be made")), &exchange), Vec::new());
    }
}
