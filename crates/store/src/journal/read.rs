//! Reading the journal: for the start, for what must be forwarded, and for those who check it. Never waits for the
//! writer, nor does the writer for it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, SqlitePool};
use tidegate_core::{Exchange, GenerationId, Money, Timestamp, Usage};

use super::recent::Recent;
use super::ring::{Opened, Replay};
use super::{FILE, Journal, JournalError, More, Place, Progress, Result};

/// Rows of settled calls that are read at a time, and that are looked at.
const PAGE: i64 = 32;
const LOOK: i64 = 512;

/// A call that was let in and not settled.
#[derive(Clone, Debug)]
pub struct Open {
    pub exchange: Exchange,
    pub progress: Option<Progress>,
    pub epoch: i64,
}

/// Whether it says all of a call that has come some way; one of an earlier release does not.
pub(super) const HAS_MORE: &str = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('opened') WHERE name = 'progress')";

/// What the file says of one call, for those who check it.
#[derive(Clone, Debug)]
pub struct JournalRow {
    pub generation: String,
    data: String,
}

impl JournalRow {
    pub fn exchange(&self) -> Result<Exchange> {
        serde_json::from_str(&self.data).map_err(|error| JournalError::Unreadable(error.to_string()))
    }
}

/// Settled calls that the main store has not confirmed.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    pub calls: Vec<(Exchange, Place)>,
    /// Those of them that cannot be read.
    pub spoiled: Vec<Place>,
    /// Whether there are no others.
    pub is_all: bool,
}

#[derive(Clone, Debug)]
pub struct JournalReader(pub(super) SqlitePool, pub(super) Arc<Recent>);

impl Journal {
    pub fn reader(&self) -> JournalReader {
        JournalReader::of(self.path(), self.recent.clone())
    }
}

impl JournalReader {
    /// The journal of a data folder; `None` when there is none.
    pub fn open(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE);
        path.exists().then(|| Self::of(&path, Arc::new(Recent::of_stranger())))
    }

    fn of(path: &Path, recent: Arc<Recent>) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(Duration::from_secs(2))
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(5));
        Self(pool.connect_lazy_with(options), recent)
    }

    /// Calls of earlier epochs that were never settled.
    pub async fn left_open(&self, epoch: i64) -> Result<Vec<Open>> {
        let rows = self.still_open().await?.into_iter().filter(|row| row.epoch < epoch).collect();
        Ok(readable(rows))
    }

    /// Calls that were let in before an instant and are still open, oldest first.
    pub async fn overdue(&self, before: Timestamp) -> Result<Vec<Open>> {
        let bound = GenerationId::first_at(before);
        let is_old = |row: &Row| row.generation.as_str() < bound.as_str();
        Ok(readable(self.still_open().await?.into_iter().filter(is_old).collect()))
    }

    /// Calls that are open, on sheets and in rows: there are never many. The row of a call stays for a moment after the call
    /// was settled.
    async fn still_open(&self) -> Result<Vec<Row>> {
        // All of it at one instant: a call may be on its way from a sheet to a row.
        let mut instant = self.0.begin().await?;
        // Whatever columns there are: the journal of an earlier release has fewer.
        let mut rows: Vec<Row> =
            sqlx::query_as("SELECT * FROM opened ORDER BY generation").fetch_all(&mut *instant).await?;
        let replay = Replay::read(&mut instant).await?;
        let named = rows.iter().filter_map(|row| GenerationId::parse(&row.generation)).collect();
        let mut over = settled_among(&mut instant, &named).await?;
        over.extend(replay.over);
        rows.retain(|row| GenerationId::parse(&row.generation).is_none_or(|id| !over.contains(&id)));
        rows.extend(replay.opened.into_values().map(Row::from));
        rows.sort_by(|one, other| one.generation.cmp(&other.generation));
        Ok(rows)
    }

    /// Settled calls that the main store has not confirmed, from the oldest on, and a few more than so many: those that
    /// stand together are read together.
    pub async fn settled(&self, at_most: usize) -> Result<Settled> {
        let mut instant = self.0.begin().await?;
        let mut settled = Settled::default();
        let mut after = i64::MIN;
        loop {
            let missing = settled.missing(at_most);
            if missing == 0 {
                return Ok(settled);
            }
            // How many calls they hold is asked first: a row may be large, and only so many of them are wanted.
            let held: Vec<(i64, i64)> =
                sqlx::query_as("SELECT id, calls FROM settled WHERE id > $1 ORDER BY id LIMIT $2")
                    .bind(after)
                    .bind(LOOK)
                    .fetch_all(&mut *instant)
                    .await?;
            let mut sum = 0;
            let wanted = held.iter().take_while(|(_, calls)| {
                let is_wanted = sum < missing;
                sum += usize::try_from(*calls).unwrap_or(0).max(1);
                is_wanted
            });
            let Some((last, _)) = wanted.last() else { break };
            let rows: Vec<SettledRow> =
                sqlx::query_as("SELECT id, data FROM settled WHERE id > $1 AND id <= $2 ORDER BY id")
                    .bind(after)
                    .bind(last)
                    .fetch_all(&mut *instant)
                    .await?;
            after = *last;
            for row in rows {
                row.read(&mut settled);
            }
        }
        // What is on sheets came after all that is in rows.
        for (row, calls) in Replay::read(&mut instant).await?.settled {
            let of = calls.len() as u32;
            for (line, call) in (0..).zip(calls) {
                let Some((_, data)) = call else { continue };
                if settled.missing(at_most) == 0 {
                    return Ok(settled);
                }
                settled.add(&data, Place { row, line, of, is_on_sheet: true });
            }
        }
        settled.is_all = settled.missing(at_most) > 0;
        Ok(settled)
    }

    /// What the file says of calls that are open, with the start in which they were let in.
    pub async fn open_rows(&self) -> Result<Vec<(i64, JournalRow)>> {
        let open = self.still_open().await?.into_iter();
        Ok(open.map(|row| (row.epoch, JournalRow { generation: row.generation, data: row.data })).collect())
    }

    /// The same of calls that are settled, a few at a time; `cursor` is where the last look ended.
    pub async fn next_settled_rows(&self, cursor: &mut Cursor) -> Result<Vec<JournalRow>> {
        let Some(seen) = &cursor.seen else {
            // These first: what moves to a row meanwhile is not missed.
            let replay = Replay::read(&mut *self.0.acquire().await?).await?;
            let calls: Vec<(GenerationId, String)> = replay.settled.into_values().flatten().flatten().collect();
            cursor.seen = Some(calls.iter().map(|(id, _)| *id).collect());
            let row = |(id, data): (GenerationId, String)| JournalRow { generation: id.as_str().to_owned(), data };
            if !calls.is_empty() {
                return Ok(calls.into_iter().map(row).collect());
            }
            return Box::pin(self.next_settled_rows(cursor)).await;
        };
        loop {
            let rows = settled_rows(&mut *self.0.acquire().await?, cursor.after).await?;
            let Some(last) = rows.last() else { return Ok(Vec::new()) };
            cursor.after = last.id;
            let split = |line: &str| {
                let (generation, data) = line.split_once('\t').unwrap_or(("", line));
                let is_new = GenerationId::parse(generation).is_none_or(|id| !seen.contains(&id));
                is_new.then(|| JournalRow { generation: generation.to_owned(), data: data.to_owned() })
            };
            let found: Vec<JournalRow> = rows.iter().flat_map(|row| row.data.lines()).filter_map(split).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// What was found to be unreadable.
    pub async fn unreadable_rows(&self) -> Result<Vec<JournalRow>> {
        let rows: Vec<(String, String)> =
            sqlx::query_as("SELECT generation, data FROM unreadable ORDER BY rowid").fetch_all(&self.0).await?;
        Ok(rows.into_iter().map(|(generation, data)| JournalRow { generation, data }).collect())
    }

    /// How many calls are open and how many wait for the main store.
    pub async fn counts(&self) -> Result<(u64, u64)> {
        let mut instant = self.0.begin().await?;
        let in_rows: i64 =
            sqlx::query_scalar("SELECT COALESCE(SUM(calls), 0) FROM settled").fetch_one(&mut *instant).await?;
        let on_sheets = Replay::read(&mut instant).await?.settled.values().flatten().flatten().count() as u64;
        drop(instant);
        Ok((self.still_open().await?.len() as u64, u64::try_from(in_rows).unwrap_or(0) + on_sheets))
    }

    /// The epoch that is under way.
    pub async fn epoch(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT epoch FROM node").fetch_one(&self.0).await?)
    }

    /// Whether the file itself is whole. One of an older release is not read before a start has taken it over.
    pub async fn is_whole(&self) -> Result<bool> {
        let is_current = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'opened')";
        if !sqlx::query_scalar::<_, bool>(is_current).fetch_one(&self.0).await? {
            return Err(JournalError::Older);
        }
        let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&self.0).await?;
        Ok(verdict == "ok" && Replay::read(&mut *self.0.acquire().await?).await?.broken.is_empty())
    }

    pub async fn close(&self) {
        self.0.close().await;
    }
}

/// How far those who check the file have come.
#[derive(Debug)]
pub struct Cursor {
    /// The calls of the sheets, which are looked at first.
    seen: Option<HashSet<GenerationId>>,
    after: i64,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { seen: None, after: i64::MIN }
    }
}

async fn settled_rows(connection: &mut SqliteConnection, after: i64) -> Result<Vec<SettledRow>> {
    Ok(sqlx::query_as("SELECT id, data FROM settled WHERE id > $1 ORDER BY id LIMIT $2")
        .bind(after)
        .bind(PAGE)
        .fetch_all(connection)
        .await?)
}

/// Which of these calls are settled, according to the rows.
pub(super) async fn settled_among(
    connection: &mut SqliteConnection,
    calls: &HashSet<GenerationId>,
) -> Result<HashSet<GenerationId>> {
    let mut over = HashSet::new();
    let mut after = i64::MIN;
    while !calls.is_empty() {
        let rows = settled_rows(connection, after).await?;
        let Some(last) = rows.last() else { break };
        after = last.id;
        let lines = rows.iter().flat_map(|row| row.data.lines());
        let ids = lines.filter_map(|line| GenerationId::parse(line.split('\t').next()?));
        over.extend(ids.filter(|id| calls.contains(id)));
    }
    Ok(over)
}

#[derive(sqlx::FromRow)]
struct Row {
    generation: String,
    epoch: i64,
    data: String,
    progress_nanos: Option<i64>,
    progress_tokens: Option<i64>,
    #[sqlx(default)]
    progress: Option<String>,
}

#[derive(sqlx::FromRow)]
struct SettledRow {
    id: i64,
    data: String,
}

impl SettledRow {
    fn read(&self, settled: &mut Settled) {
        let of = u32::try_from(self.data.lines().count()).unwrap_or(u32::MAX);
        for (line, text) in (0..).zip(self.data.lines()) {
            let data = text.split_once('\t').map_or(text, |(_, data)| data);
            settled.add(data, Place { row: self.id, line, of, is_on_sheet: false });
        }
    }
}

impl Settled {
    fn missing(&self, at_most: usize) -> usize {
        at_most.saturating_sub(self.calls.len() + self.spoiled.len())
    }

    fn add(&mut self, data: &str, place: Place) {
        match serde_json::from_str(data) {
            Ok(exchange) => self.calls.push((exchange, place)),
            Err(error) => {
                tracing::error!(%error, "a settled call in the journal is left out");
                self.spoiled.push(place);
            }
        }
    }
}

/// One that cannot be read must not hold up all others; `ledger verify` names it, too.
fn readable(rows: Vec<Row>) -> Vec<Open> {
    let read = |row: Row| row.open().inspect_err(|error| tracing::error!(%error, "a call in the journal is left out"));
    rows.into_iter().filter_map(|row| read(row).ok()).collect()
}

impl From<Opened> for Row {
    fn from(call: Opened) -> Self {
        let (generation, data) = (call.id.as_str().to_owned(), call.data);
        // Who has come some way has a row.
        Self { generation, epoch: call.epoch, data, progress_nanos: None, progress_tokens: None, progress: None }
    }
}

impl Row {
    fn open(self) -> Result<Open> {
        let exchange = serde_json::from_str(&self.data)
            .map_err(|error| JournalError::Unreadable(format!("{}: {error}", self.generation)))?;
        let output = self.progress_tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0);
        let more = self.progress.as_deref().and_then(|more| serde_json::from_str::<More>(more).ok());
        let progress = self.progress_nanos.map(|nanos| match more {
            Some(More { usage, spent }) => Progress { cost: Money(nanos), usage, spent },
            None => Progress { cost: Money(nanos), usage: Usage { output, ..Usage::default() }, spent: None },
        });
        Ok(Open { exchange, progress, epoch: self.epoch })
    }
}
