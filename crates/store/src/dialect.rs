//! What the two databases do not share: how they are opened, how a writing transaction begins, and which pool is asked.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use sqlx::error::DatabaseError as _;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteError, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Database, PgPool, Pool, Postgres, Sqlite, SqlitePool, Transaction};
use tokio::time::Instant;

use crate::error::{Result, TimedOut};
use crate::{LOCK_WAIT, POOL_WAIT, STATEMENT_LIMIT};

const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 10;

/// Runs one body with whichever pool may write. The body is compiled once per database, so it must hold SQL that both
/// understand; it is a block that ends in a [`Result`] and may use `?`.
macro_rules! on_writer {
    ($store:expr, $pool:ident => $body:block) => {
        match $store {
            $crate::Store::Sqlite { writer: $pool, .. } => {
                $crate::dialect::timed(module_path!(), async $body).await.map_err($crate::StoreError::of_turns)
            }
            $crate::Store::Postgres($pool) => $crate::dialect::timed(module_path!(), async $body).await,
        }
    };
}

/// As `on_writer!`, for bodies that only read.
macro_rules! on_reader {
    ($store:expr, $pool:ident => $body:block) => {
        match $store {
            $crate::Store::Sqlite { readers: $pool, .. } => $crate::dialect::timed(module_path!(), async $body).await,
            $crate::Store::Postgres($pool) => $crate::dialect::timed(module_path!(), async $body).await,
        }
    };
}

/// Runs one body in a transaction that only reads, sees one state of the database throughout, and may take longer than
/// other calls.
macro_rules! on_snapshot {
    ($store:expr, $limit:expr, $transaction:ident => $body:block) => {
        match $store {
            $crate::Store::Sqlite { readers, .. } => {
                $crate::dialect::bounded_by($limit, async {
                    let mut $transaction = $crate::dialect::begin_snapshot(readers).await?;
                    $body
                })
                .await
            }
            $crate::Store::Postgres(pool) => {
                $crate::dialect::bounded_by($limit, async {
                    let mut $transaction = $crate::dialect::begin_snapshot(pool).await?;
                    $crate::dialect::limit_statements(&mut $transaction, $limit).await?;
                    $body
                })
                .await
            }
        }
    };
}

/// Hears how long a call took, and what it was about.
type Listener = Box<dyn Fn(&'static str, Duration) + Send + Sync>;

static LISTENER: OnceLock<Listener> = OnceLock::new();

/// Has somebody told how long each call of the store takes, by the module that makes it; the first who asks is.
pub fn listen(listener: impl Fn(&'static str, Duration) + Send + Sync + 'static) {
    let _ = LISTENER.set(Box::new(listener));
}

/// As [`bounded`], for a call that is made in this module. It does not go through that: every function that a future is
/// handed on by makes it larger.
pub(crate) async fn timed<T>(module: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
    let heard = LISTENER.get().map(|listener| (listener, Instant::now()));
    let done = tokio::time::timeout(POOL_WAIT + STATEMENT_LIMIT, call).await;
    if let Some((listener, began)) = heard {
        listener(module.split("::").nth(1).unwrap_or("other"), began.elapsed());
    }
    done.map_err(|_| TimedOut)?
}

/// Ends a call that takes too long. SQLite knows no limit for a statement, and PostgreSQL's own does not help when the
/// connection is dead; so the caller's side of the limit is here, for both.
pub(crate) async fn bounded<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    bounded_by(POOL_WAIT + STATEMENT_LIMIT, call).await
}

pub(crate) async fn bounded_by<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, call).await.map_err(|_| TimedOut)?
}

pub(crate) trait Dialect: Database {
    const BEGIN: &'static str;
    /// Begins a transaction that only reads and sees one state throughout.
    const SNAPSHOT: &'static str;
    /// Whether a value's place must be written with its number. SQLite takes `$1` for a name and looks names up in a
    /// list, which costs a statement with thousands of values the square of their number; it takes plain `?` as well.
    const NUMBERED: bool;
    /// Asks the database for its own time, in Unix milliseconds.
    const NOW: &'static str;
}

/// Asks a pool for what its database wants.
pub(crate) fn is_numbered<DB: Dialect>(_pool: &Pool<DB>) -> bool {
    DB::NUMBERED
}

/// The statement that asks for the store's time: what several nodes compare must come from one clock.
pub(crate) fn now<DB: Dialect>(_pool: &Pool<DB>) -> &'static str {
    DB::NOW
}

/// Statements over many rows, one for each of a few numbers of rows, each written once: writing thousands of
/// placeholders costs more than filling them, and a database parses and keeps few.
pub(crate) struct Shapes<const N: usize> {
    /// Rows per statement, largest first, down to one.
    pub rows: [usize; N],
    texts: [[OnceLock<String>; N]; 2],
}

impl<const N: usize> Shapes<N> {
    pub const fn new(rows: [usize; N]) -> Self {
        Self { rows, texts: [const { [const { OnceLock::new() }; N] }; 2] }
    }

    /// The statement for so many rows; `make` is given its places, as in `($1, $2), ($3, $4)`.
    pub fn text(
        &'static self,
        rows: usize,
        numbered: bool,
        place: &str,
        make: impl Fn(&str) -> String,
    ) -> &'static str {
        let shape = self.rows.iter().position(|shape| *shape == rows).expect("rows are cut into these shapes");
        self.texts[usize::from(numbered)][shape].get_or_init(|| make(&places(place, rows, numbered)))
    }

    /// Cuts rows into pieces of these shapes.
    pub fn cut<'a, T>(&'static self, rows: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        let mut rest = rows;
        std::iter::from_fn(move || {
            let rows = *self.rows.iter().find(|rows| **rows <= rest.len())?;
            let (piece, left) = rest.split_at(rows);
            rest = left;
            Some(piece)
        })
    }
}

/// The places of so many rows, each like `row`, in which every `?` is one.
fn places(row: &str, rows: usize, numbered: bool) -> String {
    let mut text = String::with_capacity(rows * (row.len() + 2) * if numbered { 4 } else { 1 });
    let mut number = 0;
    for at in 0..rows {
        text.push_str(if at == 0 { "(" } else { ", (" });
        for character in row.chars() {
            if character == '?' && numbered {
                number += 1;
                text.push_str(&format!("${number}"));
            } else {
                text.push(character);
            }
        }
        text.push(')');
    }
    text
}

impl Dialect for Sqlite {
    /// Takes the write lock at once. A transaction that reads first and then wants to write fails without waiting when
    /// another process has written in between.
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    /// With the write-ahead log a reader keeps the state that it saw first.
    const SNAPSHOT: &'static str = "BEGIN DEFERRED";
    const NUMBERED: bool = false;
    const NOW: &'static str = "SELECT CAST(unixepoch('subsec') * 1000 AS BIGINT)";
}

impl Dialect for Postgres {
    /// Read committed: each statement sees what was committed before it began, which the code that waits on a row's
    /// lock and then looks again relies on.
    const BEGIN: &'static str = "BEGIN ISOLATION LEVEL READ COMMITTED";
    const SNAPSHOT: &'static str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    const NUMBERED: bool = true;
    /// Not the time at which the transaction began: it may have waited for a lock since.
    const NOW: &'static str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
}

pub(crate) async fn begin<DB: Dialect>(pool: &Pool<DB>) -> Result<Transaction<'static, DB>> {
    Ok(pool.begin_with(DB::BEGIN).await?)
}

pub(crate) async fn begin_snapshot<DB: Dialect>(pool: &Pool<DB>) -> Result<Transaction<'static, DB>> {
    Ok(pool.begin_with(DB::SNAPSHOT).await?)
}

/// Lets the statements of this transaction run so long, instead of as long as the pool says.
pub(crate) async fn limit_statements(transaction: &mut Transaction<'_, Postgres>, limit: Duration) -> Result<()> {
    sqlx::query("SELECT set_config('statement_timeout', $1, true)")
        .bind(limit.as_millis().to_string())
        .execute(&mut **transaction)
        .await?;
    Ok(())
}

/// Whether SQLite says that somebody else holds the lock (`SQLITE_BUSY`, in any of its extended forms). Both databases
/// have codes that look like numbers and mean something else in the other one, so the kind of the error comes first.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    let sqlite = error.as_database_error().and_then(|database| database.try_downcast_ref::<SqliteError>());
    let code = sqlite.and_then(|error| error.code()?.parse::<i32>().ok());
    code.is_some_and(|code| code & 0xFF == 5)
}

/// Whether a statement lost against another one: SQLite is busy, or PostgreSQL says that a lock was not to be had, that
/// two waited for each other, or that the order of two transactions cannot be kept.
pub(crate) fn is_contention(error: &sqlx::Error) -> bool {
    let postgres = error.as_database_error().and_then(|database| database.try_downcast_ref::<PgDatabaseError>());
    is_busy(error) || postgres.is_some_and(|error| matches!(error.code(), "55P03" | "40P01" | "40001"))
}

/// The connection that writes. Secure delete overwrites what is deleted, so that a removed secret does not stay in the
/// file's free pages. Every commit is on the disk before it is answered, or a power cut could bring a revoked key back;
/// the records of finished requests pay for that with one sync of the log per batch.
pub(crate) fn sqlite_writer(file: &Path) -> SqlitePool {
    let options = sqlite_connection(file)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .pragma("secure_delete", "ON");
    sqlite_pool().max_connections(1).connect_lazy_with(options)
}

/// The connection that empties the log. It waits for nobody.
pub(crate) fn sqlite_checkpointer(file: &Path) -> SqlitePool {
    let options = sqlite_connection(file).synchronous(SqliteSynchronous::Full).busy_timeout(Duration::ZERO);
    sqlite_pool().max_connections(1).connect_lazy_with(options)
}

/// The connection of somebody who only looks. It may write for SQLite's own sake, which has to fold the log that such a
/// connection opened when it is the last to leave; no statement may.
pub(crate) fn sqlite_looker(file: &Path) -> SqlitePool {
    sqlite_pool().max_connections(1).connect_lazy_with(sqlite_connection(file).pragma("query_only", "ON"))
}

pub(crate) fn sqlite_readers(file: &Path) -> SqlitePool {
    sqlite_pool().max_connections(SQLITE_READERS).connect_lazy_with(sqlite_connection(file).read_only(true))
}

fn sqlite_connection(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(file)
        .busy_timeout(LOCK_WAIT)
        // Rows come from the driver's thread one by one; a longer buffer means fewer wake-ups when loading all keys.
        .row_buffer_size(1024)
        .disable_statement_logging()
}

/// A file does not go away as a server does: connections stay open and need no test before use.
fn sqlite_pool() -> SqlitePoolOptions {
    SqlitePoolOptions::new().acquire_timeout(POOL_WAIT).test_before_acquire(false).idle_timeout(None).max_lifetime(None)
}

pub(crate) fn postgres_pool(options: PgConnectOptions) -> PgPool {
    let options = postgres_connection(options, LOCK_WAIT, STATEMENT_LIMIT);
    PgPoolOptions::new().max_connections(POSTGRES_CONNECTIONS).acquire_timeout(POOL_WAIT).connect_lazy_with(options)
}

pub(crate) fn postgres_connection(options: PgConnectOptions, lock: Duration, statement: Duration) -> PgConnectOptions {
    options
        .application_name("tidegate")
        .options([
            ("lock_timeout", lock.as_millis().to_string()),
            ("statement_timeout", statement.as_millis().to_string()),
            // A transaction whose client has gone silent must not keep its locks.
            ("idle_in_transaction_session_timeout", (2 * statement).as_millis().to_string()),
            ("client_min_messages", "warning".to_owned()),
        ])
        .disable_statement_logging()
}
