//! Opening the store: where it is, whether it answers, and the migrations.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Sqlite, SqlitePool, Transaction};
use tokio::time::Instant;
use url::Url;

use crate::dialect::{self, Dialect};
use crate::{LOCK_WAIT, Log, Store, migrations};

/// How long the first connection to a server may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a migration may run, and how long to wait for another node that is migrating.
const MIGRATION_LIMIT: Duration = Duration::from_secs(600);

const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// How long a disk that has other things to do may take to open a file.
const SLOW_DISK: Duration = Duration::from_secs(30);

/// Why the store could not be opened: one line, without the password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the store's URL must be sqlite:NAME or postgres://USER:PASSWORD@HOST/DATABASE")]
    UnknownKind,
    #[error("the store's URL cannot be read: {0}")]
    InvalidUrl(String),
    #[error("cannot open the database file {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("cannot connect to PostgreSQL at {host}:{port}: {reason}")]
    Connect { host: String, port: u16, reason: String },
    #[error("cannot bring the store's tables up to date: {0}")]
    Migrate(String),
}

impl Store {
    /// Opens `sqlite:NAME` (a file in `data_dir`) or `postgres://…` and brings its tables up to date. Only the connection
    /// that migrates is made here; the others come with the first statement that needs them.
    pub async fn open(url: &str, data_dir: &Path) -> Result<Self, OpenError> {
        match url.split_once(':') {
            Some(("sqlite", name)) => open_sqlite(name, data_dir).await,
            Some(("postgres" | "postgresql", _)) => open_postgres(url).await,
            _ => Err(OpenError::UnknownKind),
        }
    }
}

/// What somebody finds who only looks at a store.
#[derive(Debug)]
pub enum Looked {
    /// No tables: the next start makes them.
    Empty,
    /// Tables that the next start changes to those of this release.
    Older,
    /// Tables of this release or a newer one. Nothing can be written through it.
    Ready(Store),
}

impl Store {
    /// Looks at what [`open`](Self::open) would open: nothing is made there and no table is changed.
    pub async fn look(url: &str, data_dir: &Path) -> Result<Looked, OpenError> {
        match url.split_once(':') {
            Some(("sqlite", name)) => look_sqlite(name, data_dir).await,
            Some(("postgres" | "postgresql", _)) => look_postgres(url).await,
            _ => Err(OpenError::UnknownKind),
        }
    }
}

impl Looked {
    fn of(known: i64, store: Store) -> Self {
        match known {
            0 => Self::Empty,
            known if known < migrations::SCHEMA => Self::Older,
            _ => Self::Ready(store),
        }
    }
}

/// The last change that the tables have had.
const KNOWN: &str = "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success";

async fn look_sqlite(name: &str, data_dir: &Path) -> Result<Looked, OpenError> {
    let path = data_dir.join(file_name(name)?);
    let failed = |reason: String| OpenError::File { path: path.clone(), reason: one_line(&reason) };
    if !path.try_exists().map_err(|error| failed(error.to_string()))? {
        return Ok(Looked::Empty);
    }
    let pool = dialect::sqlite_looker(&path);
    let known = async {
        let tables = "SELECT COUNT(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
        match sqlx::query_scalar::<_, i64>(tables).fetch_one(&pool).await? {
            0 => Ok(0),
            _ => sqlx::query_scalar::<_, i64>(KNOWN).fetch_one(&pool).await,
        }
    };
    let known = known.await.map_err(|error| failed(error.to_string()))?;
    let store = Store::Sqlite { writer: pool.clone(), readers: pool, log: Arc::new(Log::of(&path)) };
    let looked = Looked::of(known, store.clone());
    if !matches!(looked, Looked::Ready(_)) {
        store.close().await;
    }
    Ok(looked)
}

async fn look_postgres(url: &str) -> Result<Looked, OpenError> {
    let (options, parsed) = postgres_options(url)?;
    let mut connection = connected(&options, &parsed).await?;
    let known = async {
        let is_there = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";
        match sqlx::query_scalar::<_, bool>(is_there).fetch_one(&mut connection).await? {
            false => Ok(0),
            true => sqlx::query_scalar::<_, i64>(KNOWN).fetch_one(&mut connection).await,
        }
    };
    let known = known.await.map_err(|error| OpenError::Connect {
        host: options.get_host().to_owned(),
        port: options.get_port(),
        reason: without_password(&one_line(&error.to_string()), &parsed),
    })?;
    // The answer is here; a server that hangs up before our goodbye has done no harm.
    let _ = connection.close().await;
    let options = options.options([("default_transaction_read_only", "on")]);
    Ok(Looked::of(known, Store::Postgres(dialect::postgres_pool(options))))
}

/// Whether a store could be there, as far as its URL says.
pub fn check_url(url: &str) -> Result<(), OpenError> {
    match url.split_once(':') {
        Some(("sqlite", name)) => file_name(name).map(drop),
        Some(("postgres" | "postgresql", _)) => postgres_options(url).map(drop),
        _ => Err(OpenError::UnknownKind),
    }
}

/// Whether opening it would make no new one: a file that is named is there. Of a server only it can say.
pub fn is_there(url: &str, data_dir: &Path) -> bool {
    match url.split_once(':') {
        Some(("sqlite", name)) => file_name(name).is_ok_and(|name| data_dir.join(name).is_file()),
        _ => true,
    }
}

fn file_name(name: &str) -> Result<&str, OpenError> {
    let name = name.strip_prefix("//").unwrap_or(name);
    if name.is_empty() || name.starts_with(':') || name.contains('?') {
        return Err(OpenError::InvalidUrl("sqlite: takes the name of a file and no parameters".to_owned()));
    }
    Ok(name)
}

async fn open_sqlite(name: &str, data_dir: &Path) -> Result<Store, OpenError> {
    let path = data_dir.join(file_name(name)?);
    let failed = |reason: String| OpenError::File { path: path.clone(), reason: one_line(&reason) };
    create_private(&path).map_err(|error| failed(error.to_string()))?;
    let writer = dialect::sqlite_writer(&path);
    migrate_sqlite(&writer).await.map_err(|error| match error {
        MigrateError::Execute(error) => failed(error.to_string()),
        other => OpenError::Migrate(one_line(&other.to_string())),
    })?;
    Ok(Store::Sqlite { writer, readers: dialect::sqlite_readers(&path), log: Arc::new(Log::of(&path)) })
}

/// SQLite would create the file for everybody to read; its companions (`-wal`, `-shm`) take the mode of the file. One
/// that exists is not touched: closing it here would drop the locks that this process may hold on it elsewhere.
pub(crate) fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The driver has no lock of its own for SQLite. Inside a transaction that holds the write lock, two processes that
/// start together migrate one after the other; and either all pending migrations are applied or none.
async fn migrate_sqlite(writer: &SqlitePool) -> Result<(), MigrateError> {
    let mut transaction = begin_sqlite(writer).await?;
    // A new file has no such table.
    let known = sqlx::query_scalar("SELECT MAX(version) FROM _sqlx_migrations").fetch_one(&mut *transaction).await;
    if known.is_ok_and(|known: Option<i64>| known.is_some_and(|known| known < migrations::SCHEMA)) {
        tracing::info!("the tables are changed to those of this release; with millions of records that takes minutes");
    }
    // Not `run`, here and below: the future it returns cannot move between threads.
    migrations::sqlite().run_direct(None, &mut *transaction, false).await?;
    Ok(transaction.commit().await?)
}

/// The first connection to a new file switches it to write-ahead logging, and SQLite does not wait for the lock which
/// that needs; so we do, when several processes meet there.
async fn begin_sqlite(writer: &SqlitePool) -> sqlx::Result<Transaction<'static, Sqlite>> {
    // By the clock: a try may wait for the lock itself.
    let (until, at_last) = (Instant::now() + LOCK_WAIT, Instant::now() + SLOW_DISK);
    loop {
        match writer.begin_with(Sqlite::BEGIN).await {
            // Nobody holds a lock: the connection itself is not there yet.
            Err(sqlx::Error::PoolTimedOut) if Instant::now() < at_last => {}
            Err(error) if dialect::is_busy(&error) && Instant::now() < until => {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
            other => return other,
        }
    }
}

/// How a server is connected to, and its URL.
fn postgres_options(url: &str) -> Result<(PgConnectOptions, Url), OpenError> {
    let parsed = Url::parse(url).map_err(|error| OpenError::InvalidUrl(error.to_string()))?;
    let rest = [Some(parsed.path()), parsed.query(), parsed.fragment()];
    if rest.into_iter().flatten().any(|part| part.contains('@')) {
        // The password then holds a character that ends the host, and parts of it would be taken for host and port.
        return Err(OpenError::InvalidUrl("user and password must be percent-encoded".to_owned()));
    }
    let clean = |text: String| without_password(&one_line(&text), &parsed);
    let options = PgConnectOptions::from_str(url).map_err(|error| OpenError::InvalidUrl(clean(error.to_string())))?;
    Ok((options, parsed))
}

/// A connection of its own to a server, for work that takes its time.
pub(crate) async fn patient(url: &str) -> Result<PgConnection, OpenError> {
    let (options, parsed) = postgres_options(url)?;
    connected(&options, &parsed).await
}

async fn connected(options: &PgConnectOptions, parsed: &Url) -> Result<PgConnection, OpenError> {
    let failed = |reason: String| OpenError::Connect {
        host: options.get_host().to_owned(),
        port: options.get_port(),
        reason: without_password(&one_line(&reason), parsed),
    };
    let patient = dialect::postgres_connection(options.clone(), MIGRATION_LIMIT, MIGRATION_LIMIT);
    match tokio::time::timeout(CONNECT_LIMIT, patient.connect()).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("no answer within 5 seconds".to_owned())),
    }
}

async fn open_postgres(url: &str) -> Result<Store, OpenError> {
    let (options, parsed) = postgres_options(url)?;
    let clean = |text: String| without_password(&one_line(&text), &parsed);
    // A connection of its own: the short limits of the pool are not meant for migrations, and an advisory lock that was
    // not given back leaves with the connection.
    let mut connection = connected(&options, &parsed).await?;
    migrations::postgres()
        .run_direct(None, &mut connection, false)
        .await
        .map_err(|error| OpenError::Migrate(clean(error.to_string())))?;
    // The work is committed; a server that hangs up before our goodbye has done no harm.
    let _ = connection.close().await;
    Ok(Store::Postgres(dialect::postgres_pool(options)))
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A net below the rule: no error of the driver is known to show the password.
fn without_password(text: &str, url: &Url) -> String {
    let mut clean = text.to_owned();
    let in_query = url.query_pairs().filter(|(name, _)| name == "password").map(|(_, value)| value.into_owned());
    for password in url.password().map(str::to_owned).into_iter().chain(in_query).filter(|text| text.len() > 3) {
        clean = clean.replace(&password, "***");
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        Store::open(url, Path::new("/nonexistent")).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_lock_that_is_not_given_back_is_not_waited_for_long() {
        let folder = tempfile::TempDir::new().unwrap();
        let first = Store::open("sqlite:a.db", folder.path()).await.unwrap();
        let Store::Sqlite { writer, .. } = &first else { unreachable!() };
        let held = begin_sqlite(writer).await.unwrap();
        let second = tokio::time::timeout(5 * LOCK_WAIT, Store::open("sqlite:a.db", folder.path())).await;
        let text = second.expect("it is told in time").unwrap_err().to_string();
        assert!(text.contains("locked"), "{text}");
        held.rollback().await.unwrap();
        Store::open("sqlite:a.db", folder.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_url_of_another_kind_is_refused_without_repeating_it() {
        for url in ["", "mysql://u:hunter22@h/d", "tidegate.db", "sqlite", "hunter22"] {
            assert_eq!(refusal(url).await, OpenError::UnknownKind.to_string(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_sqlite_url_names_a_file() {
        for url in ["sqlite:", "sqlite::memory:", "sqlite:a.db?mode=ro"] {
            assert!(refusal(url).await.contains("the name of a file"), "{url}");
        }
        assert_eq!(
            refusal("sqlite:a.db").await,
            "cannot open the database file /nonexistent/a.db: No such file or directory (os error 2)"
        );
    }

    #[tokio::test]
    async fn the_password_is_in_no_error() {
        let urls = [
            "postgres://user:hunter22@127.0.0.1:1/db",
            "postgres://user:hunter22@127.0.0.1:1/db?sslmode=hunter22",
            "postgres://user@127.0.0.1:1/db?password=hunter22&sslmode=hunter22",
            "postgres://user:hunter22@127.0.0.1:port/db",
            "postgres://user:1/hunter22@127.0.0.1:1/db",
            "postgres://user:1#hunter22@127.0.0.1:1/db",
            "postgres://user:1?hunter22@127.0.0.1:1/db",
        ];
        for url in urls {
            let text = refusal(url).await;
            assert!(!text.contains("hunter22") && !text.contains('\n'), "{url}: {text}");
        }
        assert!(refusal(urls[0]).await.starts_with("cannot connect to PostgreSQL at 127.0.0.1:1: "));
    }
}
