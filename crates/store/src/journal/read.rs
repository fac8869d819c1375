//! Reading the journal: for the start, for what must be forwarded, and for those who check it. Never waits for the
//! writer, nor does the writer for it.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{ConnectOptions as _, SqlitePool};
use tidegate_core::{Exchange, GenerationId, Money, Timestamp};

use super::{FILE, Journal, JournalError, Progress, Result};

/// A call that was let in and not settled.
#[derive(Clone, Debug)]
pub struct Open {
    pub exchange: Exchange,
    pub progress: Option<Progress>,
    pub epoch: i64,
}

/// A row as it stands in the file, for those who check it.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct JournalRow {
    pub generation: String,
    pub epoch: i64,
    pub is_settled: bool,
    data: String,
}

impl JournalRow {
    /// What the row says of its call.
    pub fn exchange(&self) -> Result<Exchange> {
        serde_json::from_str(&self.data).map_err(|error| JournalError::Unreadable(error.to_string()))
    }
}

#[derive(Clone, Debug)]
pub struct JournalReader(pub(super) SqlitePool);

impl Journal {
    pub fn reader(&self) -> JournalReader {
        JournalReader::of(self.path())
    }
}

impl JournalReader {
    /// The journal of a data folder; `None` when there is none.
    pub fn open(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE);
        path.exists().then(|| Self::of(&path))
    }

    fn of(path: &Path) -> Self {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .read_only(true)
            .busy_timeout(Duration::from_secs(2))
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(5));
        Self(pool.connect_lazy_with(options))
    }

    /// Calls of earlier epochs that were never settled.
    pub async fn left_open(&self, epoch: i64) -> Result<Vec<Open>> {
        let rows: Vec<Row> = sqlx::query_as(concat!(select!(), " WHERE is_settled = 0 AND epoch < $1"))
            .bind(epoch)
            .fetch_all(&self.0)
            .await?;
        Ok(readable(rows))
    }

    /// Calls that were let in before an instant and are still open, oldest first.
    pub async fn overdue(&self, before: Timestamp) -> Result<Vec<Open>> {
        let bound = GenerationId::first_at(before);
        let rows: Vec<Row> = sqlx::query_as(concat!(select!(), " WHERE is_settled = 0 AND generation < $1"))
            .bind(bound.as_str())
            .fetch_all(&self.0)
            .await?;
        Ok(readable(rows))
    }

    /// Settled calls that the main store has not confirmed, from the oldest on, and whether that is all of them.
    pub async fn settled(&self, at_most: usize) -> Result<(Vec<Exchange>, bool)> {
        let rows: Vec<Row> = sqlx::query_as(concat!(select!(), " WHERE is_settled = 1 ORDER BY generation LIMIT $1"))
            .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
            .fetch_all(&self.0)
            .await?;
        let is_all = rows.len() < at_most;
        Ok((readable(rows).into_iter().map(|open| open.exchange).collect(), is_all))
    }

    /// All rows in the order of their calls, also those that cannot be read; `after` is the last one seen.
    pub async fn rows(&self, after: &str, at_most: usize) -> Result<Vec<JournalRow>> {
        Ok(sqlx::query_as(
            "SELECT generation, epoch, is_settled, data FROM calls WHERE generation > $1 ORDER BY generation LIMIT $2",
        )
        .bind(after)
        .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
        .fetch_all(&self.0)
        .await?)
    }

    /// How many calls are open and how many wait for the main store.
    pub async fn counts(&self) -> Result<(u64, u64)> {
        let (open, settled): (i64, i64) =
            sqlx::query_as("SELECT COALESCE(SUM(is_settled = 0), 0), COALESCE(SUM(is_settled = 1), 0) FROM calls")
                .fetch_one(&self.0)
                .await?;
        Ok((u64::try_from(open).unwrap_or(0), u64::try_from(settled).unwrap_or(0)))
    }

    /// The epoch that is under way.
    pub async fn epoch(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT epoch FROM node").fetch_one(&self.0).await?)
    }

    /// Whether the file itself is whole.
    pub async fn is_whole(&self) -> Result<bool> {
        let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&self.0).await?;
        Ok(verdict == "ok")
    }

    pub async fn close(&self) {
        self.0.close().await;
    }
}

macro_rules! select {
    () => {
        "SELECT generation, epoch, data, progress_nanos, progress_tokens FROM calls"
    };
}
use select;

#[derive(sqlx::FromRow)]
struct Row {
    generation: String,
    epoch: i64,
    data: String,
    progress_nanos: Option<i64>,
    progress_tokens: Option<i64>,
}

/// One that cannot be read must not hold up all others; `ledger verify` names it, too.
fn readable(rows: Vec<Row>) -> Vec<Open> {
    let read = |row: Row| row.open().inspect_err(|error| tracing::error!(%error, "a call in the journal is left out"));
    rows.into_iter().filter_map(|row| read(row).ok()).collect()
}

impl Row {
    fn open(self) -> Result<Open> {
        let exchange = serde_json::from_str(&self.data)
            .map_err(|error| JournalError::Unreadable(format!("{}: {error}", self.generation)))?;
        let progress = self.progress_nanos.map(|nanos| Progress {
            cost: Money(nanos),
            output_tokens: self.progress_tokens.and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(0),
        });
        Ok(Open { exchange, progress, epoch: self.epoch })
    }
}
