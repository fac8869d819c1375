//! What destinations are still to be told. It stands in the journal, so it is written with the settling of its call or
//! not at all, and a process that dies loses none of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;
use tidegate_core::map::Map;
use tidegate_core::{GenerationId, Timestamp};

use super::bundle::apart;
use super::group::list;
use super::recent::Fresh;
use super::ring::{Posted, Replay};
use super::{Journal, JournalError, JournalReader, Result};

/// Something to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub destination: String,
    /// What the destination is, for those who count; it is not written down.
    pub kind: &'static str,
    pub generation: GenerationId,
    /// What is written of it.
    pub payload: Payload,
    /// What it was before that, where it is short: so it stays in memory for a while, too.
    pub told: Option<Arc<[u8]>>,
    pub at: Timestamp,
}

/// What is written of a letter; nobody here reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Words of its own, sealed.
    Own(Arc<[u8]>),
    /// The text of the call, which is settled with the same group: it can be made again of that, and of these bytes, which
    /// stand before it.
    Record([u8; 2]),
}

/// Names a letter as it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId {
    row: i64,
    place: u32,
    /// Letters of that row.
    of: u32,
}

impl LetterId {
    /// Whether both stand in one row. Such letters are best given one fate: else each gets a row of its own.
    pub fn is_beside(self, other: Self) -> bool {
        self.row == other.row
    }

    /// For tests of those who hold them.
    #[doc(hidden)]
    pub fn first_of(row: i64) -> Self {
        Self { row, place: 0, of: 1 }
    }
}

/// The same as it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub id: LetterId,
    pub generation: String,
    /// Empty where it is known what is to be sent.
    pub payload: Vec<u8>,
    pub told: Option<Arc<[u8]>>,
    pub created_at: i64,
    pub due_at: i64,
    pub attempts: i64,
}

/// A row of them.
#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    destination: String,
    generation: String,
    payload: Vec<u8>,
    letters: u32,
    created_at: i64,
    due_at: i64,
    attempts: i64,
    last_error: Option<String>,
}

impl Row {
    /// Its letters: names, and where they stand. What cannot be taken apart counts as one, which nobody will be able to open.
    fn apart(&self) -> Vec<(String, Range<usize>)> {
        let whole = || vec![(self.generation.clone(), 0..self.payload.len())];
        if self.letters == 1 { whole() } else { apart(&self.payload, self.letters).unwrap_or_else(whole) }
    }
}

/// What became of a letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Delivered,
    /// To be tried again then.
    Postponed(Timestamp, String),
    /// Nobody will take it. That it was there stays known for a while.
    Dead(Timestamp, String),
}

/// What a change of one adds to the log, about.
const LETTER_BYTES: u64 = 8 << 10;
/// What is read at once of what is due, in bytes; one row at least.
const READ_BYTES: u64 = 8 << 20;

pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS bundles (id INTEGER PRIMARY KEY, destination TEXT NOT NULL, \
     due_at INTEGER NOT NULL, letters INTEGER NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, \
     attempts INTEGER NOT NULL DEFAULT 0, died_at INTEGER, last_error TEXT, generation TEXT NOT NULL, \
     payload BLOB NOT NULL)";
/// Says all that is asked before a row is read: rows are long.
pub(super) const INDEX: &str = "CREATE INDEX IF NOT EXISTS waiting_bundles ON bundles (destination, due_at, id, letters, \
     bytes) WHERE died_at IS NULL";
pub(super) const OLD_INDEX: &str = "DROP INDEX IF EXISTS bundles_by_destination";
/// An older release had a row for each letter.
pub(super) const TAKE_OVER: [&str; 2] = [
    "INSERT INTO bundles (destination, due_at, letters, bytes, created_at, attempts, died_at, last_error, generation, \
     payload) SELECT destination, due_at, 1, bytes, created_at, attempts, died_at, last_error, generation, payload \
     FROM outbox ORDER BY id",
    "DROP TABLE outbox",
];

impl Journal {
    /// Notes what became of letters, all or none.
    pub async fn resolve(&mut self, fates: &[(LetterId, Fate)]) -> Result<()> {
        let mut rows: BTreeMap<i64, Vec<(LetterId, &Fate)>> = BTreeMap::new();
        for (id, fate) in fates {
            rows.entry(id.row).or_default().push((*id, fate));
        }
        let (whole, parted): (Vec<_>, Vec<_>) =
            rows.iter().map(|(row, fates)| (*row, fates, common(fates))).partition(|(_, _, fate)| fate.is_some());
        let is_delivered = |fate: Option<&Fate>| fate == Some(&Fate::Delivered);
        let delivered: Vec<i64> =
            whole.iter().filter(|(_, _, fate)| is_delivered(*fate)).map(|(row, _, _)| *row).collect();
        if delivered.len() == rows.len() {
            let (on_sheets, others): (Vec<i64>, Vec<i64>) =
                delivered.iter().partition(|row| self.sheets.posted.contains_key(row));
            if !others.is_empty() {
                self.grown += LETTER_BYTES * others.len() as u64;
                self.sync(false).await?;
                remove(&mut self.connection, &others).await?;
            }
            for row in on_sheets {
                self.sheets.posted.remove(&row);
                self.sheets.gone.push(row);
            }
            self.recent.forget(delivered);
            return self.say_news().await;
        }
        // Whatever becomes of one: all that wait with it are looked for in the file from now on.
        self.sync(false).await?;
        self.move_letters(true).await?;
        self.grown += LETTER_BYTES * rows.len() as u64;
        // Whatever becomes of it: the rest is to be looked for in the file.
        self.recent.let_go(rows.keys().copied());
        let mut transaction = self.connection.begin_with("BEGIN IMMEDIATE").await?;
        remove(&mut transaction, &delivered).await?;
        // What failed together, as what one request carried does, is noted together.
        let mut failed: Vec<(&Fate, Vec<i64>)> = Vec::new();
        for (row, _, fate) in &whole {
            match (fate, failed.last_mut()) {
                (Some(Fate::Delivered) | None, _) => {}
                (Some(fate), Some((same, rows))) if fate == same => rows.push(*row),
                (Some(fate), _) => failed.push((fate, vec![*row])),
            }
        }
        for (fate, rows) in failed {
            let (text, at, error) = match fate {
                Fate::Delivered => continue,
                Fate::Postponed(at, error) => (
                    "UPDATE bundles SET due_at = $2, attempts = attempts + 1, last_error = $3 \
                     WHERE id IN (SELECT value FROM json_each($1))",
                    at,
                    error,
                ),
                Fate::Dead(at, error) => (
                    "UPDATE bundles SET payload = x'', died_at = $2, attempts = attempts + 1, last_error = $3 \
                     WHERE id IN (SELECT value FROM json_each($1))",
                    at,
                    error,
                ),
            };
            sqlx::query(text).bind(list(&rows)).bind(at.0).bind(error).execute(&mut *transaction).await?;
        }
        for (row, fates, _) in &parted {
            part(&mut transaction, *row, fates, &mut self.next_bundle).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Takes away so many of the oldest that wait for a destination, and the dead of before an instant. Says how many of the
    /// former there were.
    pub async fn bound_outbox(&mut self, destination: &str, gone: u64, buried: Timestamp) -> Result<u64> {
        if gone > 0 {
            self.move_letters(true).await?;
        }
        // Whole rows: a few more may go.
        let gone: Vec<(i64, i64)> = sqlx::query_as(
            "DELETE FROM bundles WHERE id IN (SELECT id FROM \
             (SELECT id, SUM(letters) OVER (ORDER BY id) - letters AS others FROM \
             (SELECT id, letters FROM bundles WHERE destination = $1 AND died_at IS NULL ORDER BY id LIMIT $2)) \
             WHERE others < $2) RETURNING id, letters",
        )
        .bind(destination)
        .bind(i64::try_from(gone).unwrap_or(i64::MAX))
        .fetch_all(&mut self.connection)
        .await?;
        self.recent.forget(gone.iter().map(|(row, _)| *row));
        sqlx::query("DELETE FROM bundles WHERE died_at < $1").bind(buried.0).execute(&mut self.connection).await?;
        self.grown += LETTER_BYTES * gone.len() as u64;
        Ok(u64::try_from(gone.iter().map(|(_, letters)| letters).sum::<i64>()).unwrap_or(0))
    }
}

impl Journal {
    /// Takes away what has waited since before an instant for somebody who is none of these: nobody will ever fetch it.
    pub async fn forget_others(&mut self, known: &[String], before: Timestamp) -> Result<u64> {
        self.move_letters(true).await?;
        let listed = serde_json::to_string(known).expect("texts are always JSON");
        let gone: Vec<i64> = sqlx::query_scalar(
            "DELETE FROM bundles WHERE created_at < $2 AND destination NOT IN (SELECT value FROM json_each($1)) \
             RETURNING id",
        )
        .bind(listed)
        .bind(before.0)
        .fetch_all(&mut self.connection)
        .await?;
        self.recent.forget(gone.iter().copied());
        self.recent.keep_only(known);
        self.grown += LETTER_BYTES * gone.len() as u64;
        Ok(gone.len() as u64)
    }
}

impl JournalReader {
    /// What is due for a destination, oldest first; where nothing is, when the next will be.
    pub async fn due(
        &self,
        destination: &str,
        now: Timestamp,
        at_most: usize,
    ) -> Result<(Vec<Waiting>, Option<Timestamp>)> {
        let some = |listed: &[(i64, u64, u64)]| some_of(listed, at_most as u64);
        if let Some((rows, next)) = self.1.due(destination, now, some) {
            let due = rows.into_iter().flat_map(|(row, letters)| fresh(row, letters));
            return Ok((due.take(at_most).collect(), next));
        }
        let missed = self.1.missed(destination);
        let listed: String = sqlx::query_scalar(
            "SELECT json_group_array(json_array(id, letters, bytes)) FROM (SELECT id, letters, bytes FROM bundles \
             WHERE destination = $1 AND died_at IS NULL AND due_at <= $2 ORDER BY due_at, id LIMIT $3)",
        )
        .bind(destination)
        .bind(now.0)
        .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
        .fetch_one(&self.0)
        .await?;
        let listed: Vec<(i64, u64, u64)> =
            serde_json::from_str(&listed).map_err(|error| JournalError::Unreadable(error.to_string()))?;
        let is_here = |(row, ..): &(i64, u64, u64)| self.1.find(destination, *row).is_some();
        if listed.len() >= at_most || !listed.iter().all(is_here) {
            let due = self.waiting(destination, &some(&listed)).await?;
            return Ok((due.into_iter().take(at_most).collect(), None));
        }
        let next: Option<i64> = sqlx::query_scalar(
            "SELECT MIN(due_at) FROM bundles WHERE destination = $1 AND died_at IS NULL AND due_at > $2",
        )
        .bind(destination)
        .bind(now.0)
        .fetch_one(&self.0)
        .await?;
        if next.is_none() {
            self.1.none_missed(destination, missed);
        }
        let due = self.waiting(destination, &some(&listed)).await?;
        Ok((due.into_iter().take(at_most).collect(), next.map(Timestamp).filter(|_| listed.is_empty())))
    }

    /// The letters of these rows, in their order.
    async fn waiting(&self, destination: &str, rows: &[i64]) -> Result<Vec<Waiting>> {
        let mut found: Map<i64, Vec<Waiting>> =
            rows.iter().filter_map(|row| Some((*row, fresh(*row, self.1.find(destination, *row)?)))).collect();
        let others: Vec<i64> = rows.iter().filter(|row| !found.contains_key(row)).copied().collect();
        if !others.is_empty() {
            found.extend(self.rows(&others).await?.iter().map(|row| (row.id, waiting(row))));
        }
        Ok(rows.iter().filter_map(|row| found.remove(row)).flatten().collect())
    }

    async fn rows(&self, ids: &[i64]) -> Result<Vec<Row>> {
        let rows = sqlx::query_as(
            "SELECT id, destination, generation, payload, letters, created_at, due_at, attempts, last_error FROM bundles \
             WHERE id IN (SELECT value FROM json_each($1))",
        );
        Ok(rows.bind(list(ids)).fetch_all(&self.0).await?)
    }

    /// How many wait for a destination, since when the oldest does, and what was wrong last with one of them.
    pub async fn outbox_standing(&self, destination: &str) -> Result<(u64, Option<Timestamp>, Option<String>)> {
        // Of what waits on sheets nothing has gone wrong yet.
        let (on_sheets, _, since) = self.on_sheets(Some(destination)).await?;
        let (count, oldest, error): (i64, Option<i64>, Option<String>) = sqlx::query_as(
            "SELECT COALESCE(SUM(letters), 0), MIN(created_at), (SELECT last_error FROM bundles \
             WHERE destination = $1 AND last_error IS NOT NULL ORDER BY id DESC LIMIT 1) \
             FROM bundles WHERE destination = $1 AND died_at IS NULL",
        )
        .bind(destination)
        .fetch_one(&self.0)
        .await?;
        let oldest = oldest.into_iter().chain(since).min();
        Ok((u64::try_from(count).unwrap_or(0) + on_sheets, oldest.map(Timestamp), error))
    }

    /// How many wait for anybody.
    pub async fn letters(&self) -> Result<u64> {
        let count: i64 = sqlx::query_scalar("SELECT COALESCE(SUM(letters), 0) FROM bundles WHERE died_at IS NULL")
            .fetch_one(&self.0)
            .await?;
        let (on_sheets, ..) = self.on_sheets(None).await?;
        Ok(u64::try_from(count).unwrap_or(0) + on_sheets)
    }

    /// How many wait for a destination, and how many bytes that is.
    pub async fn outbox_depth(&self, destination: &str) -> Result<(u64, u64)> {
        let (count, bytes): (i64, i64) = sqlx::query_as(
            "SELECT COALESCE(SUM(letters), 0), COALESCE(SUM(bytes), 0) FROM bundles WHERE destination = $1 AND died_at IS NULL",
        )
        .bind(destination)
        .fetch_one(&self.0)
        .await?;
        let (letters, more, _) = self.on_sheets(Some(destination)).await?;
        Ok((u64::try_from(count).unwrap_or(0) + letters, u64::try_from(bytes).unwrap_or(0) + more))
    }

    /// Letters that stand on sheets, for a destination or for anybody: how many, in how many bytes, and since when.
    async fn on_sheets(&self, destination: Option<&str>) -> Result<(u64, u64, Option<i64>)> {
        if let Some(known) = self.1.on_sheets(destination) {
            return Ok(known);
        }
        let replay = Replay::read(&mut *self.0.acquire().await?).await?;
        let is_meant = |posted: &Posted| destination.is_none_or(|destination| posted.destination == destination);
        let meant: Vec<_> = replay.letters.values().filter(|(posted, _)| is_meant(posted)).collect();
        let letters = meant.iter().map(|(_, told)| told.len() as u64).sum();
        let bytes = meant.iter().flat_map(|(_, told)| told).map(|(_, text)| text.len() as u64).sum();
        Ok((letters, bytes, meant.iter().map(|(posted, _)| posted.at).min()))
    }
}

/// So many rows as hold what is wanted: all of them whole, but where the first holds more already.
fn some_of(listed: &[(i64, u64, u64)], letters: u64) -> Vec<i64> {
    let (mut left, mut room) = (letters, READ_BYTES);
    let mut some = Vec::new();
    for (row, letters, bytes) in listed {
        if !some.is_empty() && (*letters > left || *bytes > room) {
            break;
        }
        left = left.saturating_sub(*letters);
        room = room.saturating_sub(*bytes);
        some.push(*row);
    }
    some
}

fn fresh(row: i64, fresh: Fresh) -> Vec<Waiting> {
    let of = fresh.letters.len() as u32;
    let letter = |(place, (generation, told)): (u32, (GenerationId, Arc<[u8]>))| Waiting {
        id: LetterId { row, place, of },
        generation: generation.as_str().to_owned(),
        payload: Vec::new(),
        told: Some(told),
        created_at: fresh.at,
        due_at: fresh.at,
        attempts: 0,
    };
    (0..).zip(fresh.letters).map(letter).collect()
}

fn waiting(row: &Row) -> Vec<Waiting> {
    let letter = |(place, (generation, range)): (u32, (String, Range<usize>))| Waiting {
        id: LetterId { row: row.id, place, of: row.letters },
        generation,
        payload: row.payload[range].to_vec(),
        told: None,
        created_at: row.created_at,
        due_at: row.due_at,
        attempts: row.attempts,
    };
    (0..).zip(row.apart()).map(letter).collect()
}

async fn remove(connection: &mut SqliteConnection, rows: &[i64]) -> Result<()> {
    let text = "DELETE FROM bundles WHERE id IN (SELECT value FROM json_each($1))";
    sqlx::query(text).bind(list(rows)).execute(connection).await?;
    Ok(())
}

/// What became of a whole row, which nearly always is the same for all of it. Of the dead each is to be known by its name.
fn common<'a>(fates: &[(LetterId, &'a Fate)]) -> Option<&'a Fate> {
    let (id, first) = *fates.first()?;
    let is_whole = fates.len() == id.of as usize && fates.iter().all(|(_, fate)| *fate == first);
    (is_whole && (id.of == 1 || !matches!(first, Fate::Dead(..)))).then_some(first)
}

/// Gives letters whose fates differ rows of their own. Those that have none stay as they are.
async fn part(connection: &mut SqliteConnection, id: i64, fates: &[(LetterId, &Fate)], next: &mut i64) -> Result<()> {
    let row: Option<Row> = sqlx::query_as(
        "DELETE FROM bundles WHERE id = $1 RETURNING id, destination, generation, payload, letters, created_at, due_at, \
         attempts, last_error",
    )
    .bind(id)
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = row else { return Ok(()) };
    for (place, (generation, range)) in (0..).zip(row.apart()) {
        let fate = fates.iter().find(|(id, _)| id.place == place).map(|(_, fate)| *fate);
        let whole = &row.payload[range];
        let (payload, due_at, attempts, died_at, error) = match fate {
            Some(Fate::Delivered) => continue,
            None => (whole, row.due_at, row.attempts, None, row.last_error.as_deref()),
            Some(Fate::Postponed(due, error)) => (whole, due.0, row.attempts + 1, None, Some(error.as_str())),
            Some(Fate::Dead(at, error)) => (&[][..], row.due_at, row.attempts + 1, Some(at.0), Some(error.as_str())),
        };
        sqlx::query(
            "INSERT INTO bundles (id, destination, due_at, letters, bytes, created_at, attempts, died_at, last_error, \
             generation, payload) VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(*next)
        .bind(&row.destination)
        .bind(due_at)
        .bind(i64::try_from(payload.len()).unwrap_or(i64::MAX))
        .bind(row.created_at)
        .bind(attempts)
        .bind(died_at)
        .bind(error)
        .bind(generation)
        .bind(payload)
        .execute(&mut *connection)
        .await?;
        *next += 1;
    }
    Ok(())
}
