//! The journal of one node: a SQLite file of its own, apart from the main store, in which every call is written down
//! before its first byte and again before its last one. One row per call, one writer, one statement per group.
//!
//! The file knows nothing of accounts: what a row holds is the text of an [`tidegate_core::Exchange`], as it stood when
//! the call was let in or as it ended. Rows leave when the main store has them.

mod ballast;
mod error;
mod outbox;
mod read;

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};
use tidegate_core::{GenerationId, Money};

pub use ballast::{BALLAST_BYTES, Ballast};
pub use error::JournalError;
pub use outbox::{Fate, Letter, Waiting};
pub use read::{JournalReader, JournalRow, Open};

/// The file, in the data folder.
pub const FILE: &str = "ledger.db";
/// How long a lock of somebody else is waited for before the journal counts as unavailable.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Rows per statement. A group is filled up with empty rows to the next of them: few statements, each parsed once.
const SHAPES: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 512];
/// The most that one statement takes.
pub const MOST: usize = 512;
const COLUMNS: usize = 6;
/// Pages of the log after which it is folded into the file.
const CHECKPOINT_PAGES: &str = "4000";

type Result<T, E = JournalError> = std::result::Result<T, E>;

/// What is written of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub generation: GenerationId,
    pub is_settled: bool,
    /// The text of its [`Exchange`](tidegate_core::Exchange); none when only its progress is noted.
    pub data: Option<String>,
    pub progress: Option<Progress>,
}

/// How far an open call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it has cost so far.
    pub cost: Money,
    pub output_tokens: u64,
}

/// Who writes here: a name that stays with the file, and a number that grows with every start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub id: String,
    pub epoch: i64,
}

/// The writing end.
pub struct Journal {
    path: PathBuf,
    connection: SqliteConnection,
    node: Node,
    is_full_sync: bool,
}

impl Journal {
    /// Opens the journal of a data folder, or makes it, and begins a new epoch.
    pub async fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let mut connection = connect(&path).await?;
        prepare(&mut connection).await?;
        let (id, epoch): (String, i64) = sqlx::query_as(
            "UPDATE node SET epoch = epoch + 1 WHERE id = (SELECT id FROM node LIMIT 1) RETURNING id, epoch",
        )
        .fetch_one(&mut connection)
        .await?;
        Ok(Self { path, connection, node: Node { id, epoch }, is_full_sync: true })
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a group in one transaction. A call that is settled already stays as it is: the first settling counts.
    /// `full_sync` brings this group, and all before it, to the disk.
    pub async fn write(&mut self, entries: &[Entry], full_sync: bool) -> Result<()> {
        self.write_with(entries, &[], full_sync).await
    }

    /// The same, with what destinations are to be told of it.
    pub async fn write_with(&mut self, entries: &[Entry], letters: &[Letter], full_sync: bool) -> Result<()> {
        self.sync(full_sync).await?;
        if entries.len() <= MOST && letters.is_empty() {
            return self.write_some(entries).await;
        }
        sqlx::query("BEGIN IMMEDIATE").execute(&mut self.connection).await?;
        for some in entries.chunks(MOST) {
            if let Err(error) = self.write_some(some).await {
                // A failed statement may have ended the transaction itself.
                let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
                return Err(error);
            }
        }
        if let Err(error) = self.post(letters).await {
            let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
            return Err(error);
        }
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        Ok(())
    }

    async fn write_some(&mut self, entries: &[Entry]) -> Result<()> {
        let Some(shape) = SHAPES.into_iter().find(|shape| *shape >= entries.len()) else { return Ok(()) };
        let mut query = sqlx::query(upsert_text(shape));
        for place in 0..shape {
            let entry = entries.get(place);
            let progress = entry.and_then(|entry| entry.progress);
            query = query
                .bind(entry.map(|entry| entry.generation.as_str()))
                .bind(entry.map(|_| self.node.epoch))
                .bind(entry.map(|entry| i64::from(entry.is_settled)))
                .bind(entry.and_then(|entry| entry.data.as_deref()))
                .bind(progress.map(|progress| progress.cost.0))
                .bind(progress.map(|progress| i64::try_from(progress.output_tokens).unwrap_or(i64::MAX)));
        }
        query.execute(&mut self.connection).await?;
        Ok(())
    }

    /// Brings everything that was written to the disk.
    pub async fn flush(&mut self) -> Result<()> {
        self.sync(true).await?;
        // The log is synced with a commit, and a commit needs a change.
        sqlx::query("UPDATE node SET epoch = epoch").execute(&mut self.connection).await?;
        Ok(())
    }

    /// Takes away what the main store has.
    pub async fn forget(&mut self, generations: &[GenerationId]) -> Result<()> {
        self.sync(false).await?;
        let ids: Vec<&str> = generations.iter().map(GenerationId::as_str).collect();
        let ids = serde_json::to_string(&ids).expect("texts are always JSON");
        sqlx::query("DELETE FROM calls WHERE is_settled = 1 AND generation IN (SELECT value FROM json_each($1))")
            .bind(ids)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Closes the file and opens it again, and looks whether it is whole: after a failed sync the system may have thrown
    /// pages away that a second sync would call safe.
    pub async fn reopen(&mut self) -> Result<()> {
        let fresh = connect(&self.path).await?;
        let old = std::mem::replace(&mut self.connection, fresh);
        self.is_full_sync = true;
        let _ = old.close().await;
        let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut self.connection).await?;
        if verdict == "ok" { Ok(()) } else { Err(JournalError::Damaged(verdict)) }
    }

    /// Lets the file grow no further, as a full disk would; for tests of what happens then.
    #[doc(hidden)]
    pub async fn limit_pages(&mut self, pages: u32) -> Result<()> {
        sqlx::query(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}")))
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Everything to the disk, the log folded into the file.
    pub async fn close(mut self) -> Result<()> {
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut self.connection).await?;
        self.connection.close().await?;
        Ok(())
    }

    async fn sync(&mut self, full: bool) -> Result<()> {
        if self.is_full_sync != full {
            let text = if full { "PRAGMA synchronous = FULL" } else { "PRAGMA synchronous = NORMAL" };
            sqlx::query(text).execute(&mut self.connection).await?;
            self.is_full_sync = full;
        }
        Ok(())
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::from_str("sqlite:")
        .map_err(JournalError::from)?
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .busy_timeout(LOCK_WAIT)
        .disable_statement_logging();
    Ok(options.connect().await?)
}

/// Makes the tables where there are none. The name of the node is made with them.
async fn prepare(connection: &mut SqliteConnection) -> Result<()> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    for text in [
        "CREATE TABLE IF NOT EXISTS node (id TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL)",
        "INSERT INTO node (id, epoch) SELECT 'node_' || lower(hex(randomblob(12))), 0 \
         WHERE NOT EXISTS (SELECT 1 FROM node)",
        "CREATE TABLE IF NOT EXISTS calls (generation TEXT NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, \
         is_settled INTEGER NOT NULL, data TEXT NOT NULL, progress_nanos INTEGER, progress_tokens INTEGER) \
         WITHOUT ROWID",
        outbox::TABLE,
        outbox::INDEX,
    ] {
        sqlx::query(text).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The statement for one of the [`SHAPES`]. Empty rows are left out, and so is how far a call has come of which nothing
/// else is known: it is over.
fn upsert_text(rows: usize) -> &'static str {
    use std::sync::OnceLock;
    static TEXTS: [OnceLock<String>; SHAPES.len()] = [const { OnceLock::new() }; SHAPES.len()];
    let shape = SHAPES.iter().position(|shape| *shape == rows).expect("groups are filled up to these shapes");
    TEXTS[shape].get_or_init(|| {
        let row = format!("({})", ["?"; COLUMNS].join(", "));
        let rows = vec![row; rows].join(", ");
        format!(
            "INSERT INTO calls (generation, epoch, is_settled, data, progress_nanos, progress_tokens) \
             SELECT column1, column2, column3, COALESCE(column4, ''), column5, column6 FROM (VALUES {rows}) \
             WHERE column1 IS NOT NULL AND (column4 IS NOT NULL \
             OR EXISTS (SELECT 1 FROM calls known WHERE known.generation = column1)) \
             ON CONFLICT (generation) DO UPDATE SET is_settled = excluded.is_settled, \
             data = CASE WHEN excluded.data = '' THEN calls.data ELSE excluded.data END, \
             progress_nanos = COALESCE(excluded.progress_nanos, calls.progress_nanos), \
             progress_tokens = COALESCE(excluded.progress_tokens, calls.progress_tokens) \
             WHERE calls.is_settled = 0"
        )
    })
}
