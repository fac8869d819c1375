//! The nodes that spend: whether they live, and what becomes of the leases of those that do not.

use super::WANTED_MS;
use crate::{Result, Store, dialect};

/// A node that was heard of within this time counts as live: it beats every 15 s.
const LIVE_MS: i64 = 45_000;

/// Slots without a lease that are cleared away at a time, and how often.
const CLEARED: i64 = 100;
const CLEARINGS: usize = 10;

impl Store {
    /// Notes that the node lives and answers how many do, and whether it was known: one that was not has lost its leases,
    /// because it was not heard of for too long, and must [`Store::take_over`] before it leases again.
    pub async fn beat(&self, node: &str, epoch: i64) -> Result<(u32, bool)> {
        let (live, is_known): (i64, bool) = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(&mut *transaction).await?;
            let known = sqlx::query("UPDATE ledger_nodes SET beat_at = $3 WHERE id = $1 AND epoch = $2")
                .bind(node)
                .bind(epoch)
                .bind(now)
                .execute(&mut *transaction)
                .await?;
            if known.rows_affected() == 0 {
                sqlx::query(
                    "INSERT INTO ledger_nodes (id, epoch, beat_at, started_at) VALUES ($1, $2, $3, $3) \
                     ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, beat_at = excluded.beat_at",
                )
                .bind(node)
                .bind(epoch)
                .bind(now)
                .execute(&mut *transaction)
                .await?;
            }
            let live = sqlx::query_scalar("SELECT COUNT(*) FROM ledger_nodes WHERE beat_at > $1")
                .bind(now - LIVE_MS)
                .fetch_one(&mut *transaction)
                .await?;
            transaction.commit().await?;
            Ok((live, known.rows_affected() > 0))
        })?;
        Ok((u32::try_from(live).unwrap_or(u32::MAX).max(1), is_known))
    }

    /// Begins a new life of the node: it holds nothing. To be called when all that its earlier lives spent is forwarded.
    pub async fn take_over(&self, node: &str, epoch: i64) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(&mut *transaction).await?;
            sqlx::query(
                "INSERT INTO ledger_nodes (id, epoch, beat_at, started_at) VALUES ($1, $2, $3, $3) ON CONFLICT (id) \
                 DO UPDATE SET epoch = excluded.epoch, beat_at = excluded.beat_at, started_at = excluded.started_at",
            )
            .bind(node)
            .bind(epoch)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
            sqlx::query("DELETE FROM ledger_leases WHERE node_id = $1").bind(node).execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok(())
        })
    }

    /// Ends a node that has forwarded everything: what it held goes back, and it is counted no longer.
    pub async fn leave(&self, node: &str) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query("DELETE FROM ledger_leases WHERE node_id = $1").bind(node).execute(&mut *transaction).await?;
            sqlx::query("DELETE FROM ledger_nodes WHERE id = $1").bind(node).execute(&mut *transaction).await?;
            Ok(transaction.commit().await?)
        })
    }

    /// Forgets nodes that were not heard of for so long, with their leases, and answers how many leases that were. The
    /// time must be long enough that none of their calls can still run.
    pub async fn reclaim(&self, older_than_ms: i64) -> Result<u64> {
        let reclaimed = on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(&mut *transaction).await?;
            // Holds the rows: a beat that comes now waits, and then makes a row that has no leases.
            let mut gone: Vec<String> =
                sqlx::query_scalar("UPDATE ledger_nodes SET beat_at = beat_at WHERE beat_at < $1 RETURNING id")
                    .bind(now.saturating_sub(older_than_ms))
                    .fetch_all(&mut *transaction)
                    .await?;
            gone.sort_unstable();
            let mut reclaimed = 0;
            for node in &gone {
                reclaimed += sqlx::query("DELETE FROM ledger_leases WHERE node_id = $1")
                    .bind(node)
                    .execute(&mut *transaction)
                    .await?
                    .rows_affected();
                sqlx::query("DELETE FROM ledger_nodes WHERE id = $1").bind(node).execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
            Ok(reclaimed)
        })?;
        for _ in 0..CLEARINGS {
            if self.clear_slots().await? < CLEARED {
                break;
            }
        }
        Ok(reclaimed)
    }

    /// Removes rows of slots that nobody leases from: every window that passes leaves one behind.
    async fn clear_slots(&self) -> Result<i64> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            let now: i64 = sqlx::query_scalar(dialect::now(pool)).fetch_one(&mut *transaction).await?;
            let unused: Vec<String> = sqlx::query_scalar(
                "SELECT slot FROM ledger_slots s WHERE (wanted_at IS NULL OR wanted_at <= $2) \
                 AND NOT EXISTS (SELECT 1 FROM ledger_leases l WHERE l.slot = s.slot) ORDER BY slot LIMIT $1",
            )
            .bind(CLEARED)
            .bind(now - WANTED_MS)
            .fetch_all(&mut *transaction)
            .await?;
            for slot in &unused {
                // First the row, then another look: somebody may have leased from it while this waited.
                sqlx::query("UPDATE ledger_slots SET wanted_at = wanted_at WHERE slot = $1")
                    .bind(slot)
                    .execute(&mut *transaction)
                    .await?;
                sqlx::query(
                    "DELETE FROM ledger_slots WHERE slot = $1 \
                     AND NOT EXISTS (SELECT 1 FROM ledger_leases l WHERE l.slot = $1)",
                )
                .bind(slot)
                .execute(&mut *transaction)
                .await?;
            }
            transaction.commit().await?;
            Ok(i64::try_from(unused.len()).unwrap_or(CLEARED))
        })
    }
}
