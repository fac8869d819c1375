//! What Tidegate remembers: keys, workspaces, finished requests, and the keys that protect stored secrets.
//!
//! One [`Store`] over two databases, SQLite and PostgreSQL, with one SQL text for both. This crate knows nothing of HTTP
//! or of any vendor, and no request waits for it on its way to an upstream. It never asks for the time: callers pass it;
//! only where several nodes must agree on it ([`ledger`], [`Store::agreed_time`]) the database's own is taken.
//!
//! Every function about somebody's data takes a [`Tenant`](tidegate_core::Tenant) and filters by it. Those that do not
//! are the look-up of a key by its hash, which yields the tenant, and what serves the whole node: the load of keys,
//! credentials and presets and their changes, the records written by the journal, and the first start.
//!
//! Start with [`Store::open`], then [`keys`]; [`vault`] stands apart and touches no database.

#[macro_use]
mod dialect;
mod error;
pub mod learned;
mod log;
mod migrations;
mod open;
mod retention;
mod sessions;
mod words;

pub mod activity;
pub mod analytics;
pub mod audit;
pub mod auth_codes;
pub mod budgets;
pub mod contents;
pub mod credentials;
pub mod credits;
pub mod destinations;
pub mod feedback;
pub mod files;
pub mod generations;
pub mod guardrails;
pub mod idempotency;
pub mod journal;
pub mod keys;
pub mod ledger;
pub mod members;
pub mod meta;
pub mod moving;
pub mod organisations;
pub mod plugins;
pub mod presets;
pub mod rings;
pub mod spend;
pub mod tool_results;
pub mod vault;
pub mod verify;
pub mod workspaces;

use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgPool, SqlitePool};
use tidegate_core::Timestamp;

pub use dialect::listen;
pub use error::{Refused, Result, StoreError};
pub use log::Log;
pub use migrations::SCHEMA;
pub use open::{Looked, OpenError, check_url, is_there};

/// How long a caller waits for a free connection.
const POOL_WAIT: Duration = Duration::from_secs(1);
/// How long a statement waits for somebody else's lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How long a statement may run.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);

/// The open store; cloning it shares the connections.
#[derive(Clone, Debug)]
pub enum Store {
    /// SQLite lets one connection write at a time. With a single writer of our own, waiting happens in the pool's fair
    /// queue instead of in SQLite's polling for the lock; readers are never held up by it.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        log: Arc<Log>,
    },
    Postgres(PgPool),
}

impl Store {
    /// Whether the database answers what admission asks of it. A statement without a table would also succeed on a
    /// database whose tables are out of reach.
    pub async fn ping(&self) -> Result<()> {
        on_reader!(self, pool => {
            sqlx::query("SELECT 1 FROM api_keys LIMIT 1").execute(pool).await?;
            Ok(())
        })
    }

    /// Whether all changes to the tables that this build knows were made.
    pub async fn is_migrated(&self) -> Result<bool> {
        let last: i64 = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success")
                .fetch_one(pool)
                .await?)
        })?;
        Ok(last >= SCHEMA)
    }

    /// How many connections are at work, by the pool.
    pub fn in_use(&self) -> Vec<(&'static str, u32)> {
        macro_rules! used {
            ($pool:expr) => {
                $pool.size().saturating_sub(u32::try_from($pool.num_idle()).unwrap_or(u32::MAX))
            };
        }
        match self {
            Self::Sqlite { writer, readers, .. } => vec![("writer", used!(writer)), ("readers", used!(readers))],
            Self::Postgres(pool) => vec![("postgres", used!(pool))],
        }
    }

    /// Whether other nodes may use the same store.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// The time that all gateways agree on: the database's where there may be several, and where there is one its own.
    pub async fn agreed_time(&self, here: Timestamp) -> Result<Timestamp> {
        if !self.is_shared() {
            return Ok(here);
        }
        on_reader!(self, pool => { Ok(Timestamp(sqlx::query_scalar(dialect::now(pool)).fetch_one(pool).await?)) })
    }

    /// Waits for running statements and closes all connections.
    pub async fn close(&self) {
        match self {
            // Readers first: the last connection to leave folds the write-ahead log into the file, and readers may not.
            Self::Sqlite { writer, readers, log } => {
                readers.close().await;
                log.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
