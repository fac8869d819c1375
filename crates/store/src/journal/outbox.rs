//! What destinations are still to be told. It stands in the journal, so it is written with the settling of its call or
//! not at all, and a process that dies loses none of it.

use tidegate_core::{GenerationId, Timestamp};

use super::{Journal, JournalReader, Result};
use crate::dialect::Shapes;

/// Something to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub destination: String,
    pub generation: GenerationId,
    /// Compressed and sealed; nothing here can read it.
    pub payload: Vec<u8>,
    pub at: Timestamp,
}

/// The same as it waits.
#[derive(Clone, Debug, PartialEq, Eq, sqlx::FromRow)]
pub struct Waiting {
    pub id: i64,
    pub generation: String,
    pub payload: Vec<u8>,
    pub created_at: i64,
    pub attempts: i64,
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

pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, \
     destination TEXT NOT NULL, generation TEXT NOT NULL, created_at INTEGER NOT NULL, due_at INTEGER NOT NULL, \
     attempts INTEGER NOT NULL DEFAULT 0, last_error TEXT, died_at INTEGER, bytes INTEGER NOT NULL, payload BLOB NOT NULL)";
pub(super) const INDEX: &str =
    "CREATE INDEX IF NOT EXISTS outbox_by_destination ON outbox (destination, due_at) WHERE died_at IS NULL";

/// A statement of its own for each letter would be a journey to the database each.
static POSTED: Shapes<5> = Shapes::new([64, 16, 4, 2, 1]);

fn post_text(letters: usize) -> &'static str {
    POSTED.text(letters, false, "?, ?, ?, ?, ?, ?", |values| {
        format!("INSERT INTO outbox (destination, generation, payload, created_at, due_at, bytes) VALUES {values}")
    })
}

impl Journal {
    /// Inside the transaction of the calls that they tell of.
    pub(super) async fn post(&mut self, letters: &[Letter]) -> Result<()> {
        for some in POSTED.cut(letters) {
            let mut query = sqlx::query(post_text(some.len()));
            for letter in some {
                query = query
                    .bind(&letter.destination)
                    .bind(letter.generation.as_str())
                    .bind(&letter.payload)
                    .bind(letter.at.0)
                    .bind(letter.at.0)
                    .bind(i64::try_from(letter.payload.len()).unwrap_or(i64::MAX));
            }
            query.execute(&mut self.connection).await?;
        }
        Ok(())
    }

    /// Notes what became of letters, all or none.
    pub async fn resolve(&mut self, fates: &[(i64, Fate)]) -> Result<()> {
        self.sync(false).await?;
        let is_delivered = |(_, fate): &&(i64, Fate)| *fate == Fate::Delivered;
        let delivered: Vec<i64> = fates.iter().filter(is_delivered).map(|(id, _)| *id).collect();
        if delivered.len() == fates.len() {
            return self.delivered(&delivered).await;
        }
        sqlx::query("BEGIN IMMEDIATE").execute(&mut self.connection).await?;
        if let Err(error) = self.delivered(&delivered).await {
            let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
            return Err(error);
        }
        for (id, fate) in fates {
            let done = match fate {
                Fate::Delivered => continue,
                Fate::Postponed(due, error) => {
                    sqlx::query("UPDATE outbox SET due_at = $2, attempts = attempts + 1, last_error = $3 WHERE id = $1")
                        .bind(id)
                        .bind(due.0)
                        .bind(error)
                        .execute(&mut self.connection)
                        .await
                }
                Fate::Dead(at, error) => {
                    sqlx::query(
                        "UPDATE outbox SET payload = x'', died_at = $2, attempts = attempts + 1, last_error = $3 \
                         WHERE id = $1",
                    )
                    .bind(id)
                    .bind(at.0)
                    .bind(error)
                    .execute(&mut self.connection)
                    .await
                }
            };
            if let Err(error) = done {
                let _ = sqlx::query("ROLLBACK").execute(&mut self.connection).await;
                return Err(error.into());
            }
        }
        sqlx::query("COMMIT").execute(&mut self.connection).await?;
        Ok(())
    }

    async fn delivered(&mut self, ids: &[i64]) -> Result<()> {
        let ids = serde_json::to_string(ids).expect("numbers are always JSON");
        sqlx::query("DELETE FROM outbox WHERE id IN (SELECT value FROM json_each($1))")
            .bind(ids)
            .execute(&mut self.connection)
            .await?;
        Ok(())
    }

    /// Takes away so many of the oldest that wait for a destination, and the dead of before an instant. Says how many of the
    /// former there were.
    pub async fn bound_outbox(&mut self, destination: &str, gone: u64, buried: Timestamp) -> Result<u64> {
        let gone = sqlx::query(
            "DELETE FROM outbox WHERE id IN \
             (SELECT id FROM outbox WHERE destination = $1 AND died_at IS NULL ORDER BY id LIMIT $2)",
        )
        .bind(destination)
        .bind(i64::try_from(gone).unwrap_or(i64::MAX))
        .execute(&mut self.connection)
        .await?;
        sqlx::query("DELETE FROM outbox WHERE died_at < $1").bind(buried.0).execute(&mut self.connection).await?;
        Ok(gone.rows_affected())
    }
}

impl Journal {
    /// Takes away what has waited since before an instant for somebody who is none of these: nobody will ever fetch it.
    pub async fn forget_others(&mut self, known: &[String], before: Timestamp) -> Result<u64> {
        let known = serde_json::to_string(known).expect("texts are always JSON");
        let gone = sqlx::query(
            "DELETE FROM outbox WHERE created_at < $2 AND destination NOT IN (SELECT value FROM json_each($1))",
        )
        .bind(known)
        .bind(before.0)
        .execute(&mut self.connection)
        .await?;
        Ok(gone.rows_affected())
    }
}

impl JournalReader {
    /// What is due for a destination, oldest first, and when the next of the others is.
    pub async fn due(
        &self,
        destination: &str,
        now: Timestamp,
        at_most: usize,
    ) -> Result<(Vec<Waiting>, Option<Timestamp>)> {
        let due = sqlx::query_as(
            "SELECT id, generation, payload, created_at, attempts FROM outbox \
             WHERE destination = $1 AND died_at IS NULL AND due_at <= $2 ORDER BY due_at, id LIMIT $3",
        )
        .bind(destination)
        .bind(now.0)
        .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
        .fetch_all(&self.0)
        .await?;
        let next: Option<i64> = sqlx::query_scalar(
            "SELECT MIN(due_at) FROM outbox WHERE destination = $1 AND died_at IS NULL AND due_at > $2",
        )
        .bind(destination)
        .bind(now.0)
        .fetch_one(&self.0)
        .await?;
        Ok((due, next.map(Timestamp)))
    }

    /// How many wait for a destination, since when the oldest does, and what was wrong last with one of them.
    pub async fn outbox_standing(&self, destination: &str) -> Result<(u64, Option<Timestamp>, Option<String>)> {
        let (count, oldest, error): (i64, Option<i64>, Option<String>) = sqlx::query_as(
            "SELECT COUNT(*), MIN(created_at), (SELECT last_error FROM outbox \
             WHERE destination = $1 AND last_error IS NOT NULL ORDER BY id DESC LIMIT 1) \
             FROM outbox WHERE destination = $1 AND died_at IS NULL",
        )
        .bind(destination)
        .fetch_one(&self.0)
        .await?;
        Ok((u64::try_from(count).unwrap_or(0), oldest.map(Timestamp), error))
    }

    /// How many wait for a destination, and how many bytes that is.
    pub async fn outbox_depth(&self, destination: &str) -> Result<(u64, u64)> {
        let (count, bytes): (i64, i64) = sqlx::query_as(
            "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM outbox WHERE destination = $1 AND died_at IS NULL",
        )
        .bind(destination)
        .fetch_one(&self.0)
        .await?;
        Ok((u64::try_from(count).unwrap_or(0), u64::try_from(bytes).unwrap_or(0)))
    }
}
