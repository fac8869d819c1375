//! SQLite's write-ahead log: it holds what was overwritten until it is folded into the file and emptied. That takes a
//! moment in which nobody reads, so it is tried and not waited for; what could not be done stays due.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;

use crate::{Result, Store, dialect};

/// Tries right after a change, and the pause between them in which everybody else goes on: a statement or a batch of
/// records is over in that time, a backup is not.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// The log of one database file.
#[derive(Debug)]
pub struct Log {
    /// A connection of its own: the one that writes never waits for readers because of this.
    connection: SqlitePool,
    is_due: AtomicBool,
}

impl Log {
    /// Due from the start: whoever had the file before may have been stopped before it was done.
    pub(crate) fn of(file: &Path) -> Self {
        Self { connection: dialect::sqlite_checkpointer(file), is_due: AtomicBool::new(true) }
    }

    pub(crate) async fn close(&self) {
        self.connection.close().await;
    }

    fn note(&self) {
        self.is_due.store(true, Ordering::SeqCst);
    }

    async fn empty_if_due(&self) -> bool {
        // Taken before the try: what is noted while it runs is due again.
        if !self.is_due.swap(false, Ordering::SeqCst) {
            return true;
        }
        let is_empty = matches!(dialect::bounded(self.try_to_empty()).await, Ok(true));
        if !is_empty {
            self.note();
        }
        is_empty
    }

    /// False when somebody reads or writes at this moment.
    async fn try_to_empty(&self) -> Result<bool> {
        let folded: sqlx::Result<(i64, i64, i64)> =
            sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)").fetch_one(&self.connection).await;
        match folded {
            Ok((is_busy, _, _)) => Ok(is_busy == 0),
            Err(error) if dialect::is_busy(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Store {
    /// Tries once more what is due and could not be done at once; true when nothing is left. Cheap when nothing is due,
    /// and never in anybody's way: it is meant to be called every second.
    pub async fn tidy(&self) -> bool {
        match self {
            Self::Sqlite { log, .. } => log.empty_if_due().await,
            Self::Postgres(_) => true,
        }
    }

    /// Lets go of copies of what was overwritten, as far as the database keeps any that we can reach: at once, or when
    /// [`Store::tidy`] succeeds.
    pub async fn forget_overwritten(&self) {
        self.note_overwritten();
        for _ in 1..TRIES {
            if self.tidy().await {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.tidy().await;
    }

    /// Something was overwritten, here or by another process that may have ended before the log could be emptied.
    pub(crate) fn note_overwritten(&self) {
        if let Self::Sqlite { log, .. } = self {
            log.note();
        }
    }
}
