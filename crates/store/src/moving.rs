//! Bringing everything from a SQLite file to a PostgreSQL server, where several gateways can use it. Both have the same
//! tables with the same columns, so this knows none of them by name but those that stay behind.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, Sqlite, Transaction};
use tidegate_core::Timestamp;

use crate::dialect;
use crate::open::{self, OpenError};
use crate::{Result, Store, StoreError};

/// What belongs to a node that has this store, and is made anew by the next one that starts.
const LEFT: [&str; 3] = ["_sqlx_migrations", "ledger_nodes", "ledger_leases"];

/// Rows that are brought over at once: of those with bytes in them fewer, since they may be large.
const ROWS: i64 = 500;
const LARGE_ROWS: i64 = 20;

#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("only a store in a SQLite file can be moved")]
    NotAFile,
    #[error("a store can be moved to a PostgreSQL server only: postgres://USER:PASSWORD@HOST/DATABASE")]
    NotAServer,
    #[error("there are records in the new store already: it must be empty")]
    NotEmpty,
    #[error("table {0} is not known to this release")]
    Unknown(String),
    #[error("table {table}: {reason}")]
    Table { table: String, reason: String },
    #[error("table {table} has {there} rows now, and {here} here: nothing was moved")]
    Differs { table: String, here: i64, there: i64 },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}", open::one_line(&.0.to_string()))]
    Database(#[from] sqlx::Error),
}

type Moving<T> = std::result::Result<T, MoveError>;

/// The values of one column of some rows, as PostgreSQL has them.
enum Column {
    Numbers(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Flags(Vec<Option<bool>>),
    Fractions(Vec<Option<f64>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    /// For the type that the new store's table has.
    fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "bigint" => Self::Numbers(Vec::new()),
            "text" => Self::Texts(Vec::new()),
            "boolean" => Self::Flags(Vec::new()),
            "double precision" => Self::Fractions(Vec::new()),
            "bytea" => Self::Bytes(Vec::new()),
            _ => return None,
        })
    }

    fn cast(&self) -> &'static str {
        match self {
            Self::Numbers(_) => "bigint[]",
            Self::Texts(_) => "text[]",
            Self::Flags(_) => "boolean[]",
            Self::Fractions(_) => "double precision[]",
            Self::Bytes(_) => "bytea[]",
        }
    }

    fn take(&mut self, row: &SqliteRow, place: usize) -> sqlx::Result<()> {
        match self {
            Self::Numbers(all) => all.push(row.try_get_unchecked(place)?),
            Self::Texts(all) => all.push(row.try_get_unchecked(place)?),
            Self::Flags(all) => all.push(row.try_get_unchecked(place)?),
            Self::Fractions(all) => all.push(row.try_get_unchecked(place)?),
            Self::Bytes(all) => all.push(row.try_get_unchecked(place)?),
        }
        Ok(())
    }
}

impl Store {
    /// Copies everything to an empty PostgreSQL store, all or nothing. Nobody may write here meanwhile. `told` hears of
    /// each table how many rows of it are there.
    pub async fn copy_to(&self, url: &str, told: &mut (dyn FnMut(&str, u64) + Send)) -> Moving<u64> {
        let Self::Sqlite { readers, .. } = self else { return Err(MoveError::NotAFile) };
        if !matches!(url.split_once(':'), Some(("postgres" | "postgresql", _))) {
            return Err(MoveError::NotAServer);
        }
        // Makes the tables.
        Self::open(url, std::path::Path::new("")).await?.close().await;
        let mut target = open::patient(url).await?;
        let mut here = dialect::begin_snapshot(readers).await?;
        let mut there = target.begin().await?;
        if sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM organisations)").fetch_one(&mut *there).await? {
            return Err(MoveError::NotEmpty);
        }
        let mut rows = 0;
        for table in ordered(&mut here).await? {
            let moved = copy(&mut here, &mut there, &table).await?;
            told(&table, moved);
            rows += moved;
        }
        there.commit().await?;
        let _ = target.close().await;
        Ok(rows)
    }

    /// When everything here was moved elsewhere.
    pub async fn moved_at(&self) -> Result<Option<Timestamp>> {
        let at: Option<String> = on_reader!(self, pool => {
            Ok(sqlx::query_scalar("SELECT value FROM meta WHERE name = 'moved_at'").fetch_optional(pool).await?)
        })?;
        Ok(at.and_then(|at| at.parse().ok()).map(Timestamp))
    }

    /// Notes that everything here is elsewhere now, or with none that it is not.
    pub async fn set_moved(&self, at: Option<Timestamp>) -> Result<()> {
        on_writer!(self, pool => {
            let mut transaction = dialect::begin(pool).await?;
            sqlx::query("DELETE FROM meta WHERE name = 'moved_at'").execute(&mut *transaction).await?;
            if let Some(at) = at {
                sqlx::query("INSERT INTO meta (name, value) VALUES ('moved_at', $1)")
                    .bind(at.0.to_string())
                    .execute(&mut *transaction)
                    .await?;
            }
            transaction.commit().await?;
            Ok(())
        })
    }
}

/// All tables, each behind those that its rows refer to.
async fn ordered(here: &mut Transaction<'_, Sqlite>) -> Moving<Vec<String>> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut **here).await?;
    let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in names.into_iter().filter(|name| !LEFT.contains(&name.as_str())) {
        let others: Vec<String> = sqlx::query_scalar("SELECT \"table\" FROM pragma_foreign_key_list($1)")
            .bind(&name)
            .fetch_all(&mut **here)
            .await?;
        let is_other = |other: &String| *other != name && !LEFT.contains(&other.as_str());
        let others = others.into_iter().filter(is_other).collect();
        wanted.insert(name, others);
    }
    let mut ordered: Vec<String> = Vec::new();
    while !wanted.is_empty() {
        let next = wanted.iter().find(|(_, others)| others.iter().all(|other| ordered.contains(other)));
        let Some(next) = next.or_else(|| wanted.first_key_value()).map(|(name, _)| name.clone()) else { break };
        wanted.remove(&next);
        ordered.push(next);
    }
    Ok(ordered)
}

/// Copies a table. What the new one holds from its making goes.
async fn copy(here: &mut Transaction<'_, Sqlite>, there: &mut PgConnection, table: &str) -> Moving<u64> {
    let failed =
        |error: sqlx::Error| MoveError::Table { table: table.to_owned(), reason: open::one_line(&error.to_string()) };
    let known = "SELECT column_name::text, data_type::text FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position";
    let known: Vec<PgRow> = sqlx::query(known).bind(table).fetch_all(&mut *there).await.map_err(failed)?;
    let mut names = Vec::new();
    let mut kinds = Vec::new();
    for row in &known {
        let (name, kind): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        if Column::of(&kind).is_none() {
            return Err(MoveError::Unknown(format!("{table} ({name} {kind})")));
        }
        names.push(format!("\"{name}\""));
        kinds.push(kind);
    }
    if names.is_empty() {
        return Err(MoveError::Unknown(table.to_owned()));
    }
    let list = names.join(", ");
    sqlx::query(AssertSqlSafe(format!("DELETE FROM \"{table}\""))).execute(&mut *there).await.map_err(failed)?;
    let empty = || kinds.iter().filter_map(|kind| Column::of(kind)).collect::<Vec<_>>();
    let arrays: Vec<String> =
        empty().iter().enumerate().map(|(place, column)| format!("${}::{}", place + 1, column.cast())).collect();
    let insert = format!("INSERT INTO \"{table}\" ({list}) SELECT * FROM UNNEST({})", arrays.join(", "));
    let has_bytes = kinds.iter().any(|kind| kind == "bytea");
    let is_numbered: bool =
        sqlx::query_scalar("SELECT NOT wr FROM pragma_table_list WHERE schema = 'main' AND name = $1")
            .bind(table)
            .fetch_one(&mut **here)
            .await
            .map_err(failed)?;
    // Tables whose rows have no numbers are those of days, which are small.
    let select = match is_numbered {
        true => format!("SELECT {list}, rowid FROM \"{table}\" WHERE rowid > $1 ORDER BY rowid LIMIT $2"),
        false => format!("SELECT {list}, 0 FROM \"{table}\" WHERE $1 < 0 AND $2 > 0"),
    };
    let most = if has_bytes { LARGE_ROWS } else { ROWS };
    let (mut last, mut all) = (i64::MIN, 0);
    loop {
        let query = sqlx::query(AssertSqlSafe(select.as_str())).bind(last).bind(most);
        let rows = query.fetch_all(&mut **here).await.map_err(failed)?;
        let Some(end) = rows.last() else { break };
        last = end.try_get_unchecked(kinds.len()).map_err(failed)?;
        for some in rows.chunks(ROWS as usize) {
            let mut columns = empty();
            for row in some {
                for (place, column) in columns.iter_mut().enumerate() {
                    column.take(row, place).map_err(failed)?;
                }
            }
            all += write(there, &insert, columns).await.map_err(failed)?;
        }
    }
    let count = || AssertSqlSafe(format!("SELECT COUNT(*) FROM \"{table}\""));
    let here: i64 = sqlx::query_scalar(count()).fetch_one(&mut **here).await.map_err(failed)?;
    let there: i64 = sqlx::query_scalar(count()).fetch_one(&mut *there).await.map_err(failed)?;
    if here != there {
        return Err(MoveError::Differs { table: table.to_owned(), here, there });
    }
    Ok(all)
}

async fn write(there: &mut PgConnection, insert: &str, columns: Vec<Column>) -> sqlx::Result<u64> {
    let mut query = sqlx::query(AssertSqlSafe(insert));
    for column in columns {
        query = match column {
            Column::Numbers(all) => query.bind(all),
            Column::Texts(all) => query.bind(all),
            Column::Flags(all) => query.bind(all),
            Column::Fractions(all) => query.bind(all),
            Column::Bytes(all) => query.bind(all),
        };
    }
    Ok(query.execute(there).await?.rows_affected())
}
