use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use sqlx::Row;
use tidegate_core::{Exchange, Timestamp, Usage};
use tidegate_store::activity::{Asked, DayOfModel};
use tidegate_store::{Looked, Store, StoreError};

use crate::databases::{Database, NOW, by, first, hash, new_key, with_postgres, with_sqlite};
use crate::generations::{exchange, tenant};
use crate::on_both;

/// Table → column → type and whether it may be NULL. Key columns are compared as well, as `primary`.
type Schema = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn both_databases_have_the_same_tables_and_columns() {
    with_postgres(async |postgres| {
        let theirs = postgres_schema(postgres).await;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_sqlite(async |sqlite| {
                    let ours = sqlite_schema(sqlite).await;
                    assert!(ours.len() >= 6, "{:?}", ours.keys());
                    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
                    for (table, columns) in &ours {
                        assert_eq!(columns, &theirs[table], "table {table}");
                    }
                });
            });
        });
    });
}

/// Index → its columns, and whether it holds only some of the rows.
#[test]
fn both_databases_have_the_same_indexes() {
    with_postgres(async |postgres| {
        let Store::Postgres(pool) = &postgres.store else { panic!("not PostgreSQL") };
        let theirs: Vec<(String, String, bool)> = sqlx::query_as(
            "SELECT c.relname::text, string_agg(a.attname, ',' ORDER BY a.attnum)::text, i.indpred IS NOT NULL \
             FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = c.oid \
             WHERE c.relnamespace = current_schema()::regnamespace AND NOT EXISTS \
             (SELECT 1 FROM pg_constraint k WHERE k.conindid = c.oid AND k.contype IN ('p', 'u')) \
             GROUP BY 1, 3 ORDER BY 1",
        )
        .fetch_all(pool)
        .await
        .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                with_sqlite(async |sqlite| {
                    let Store::Sqlite { readers, .. } = &sqlite.store else { panic!("not SQLite") };
                    let ours: Vec<(String, String, bool)> = sqlx::query_as(
                        "SELECT i.name, group_concat(c.name, ',' ORDER BY c.seqno), i.partial \
                         FROM sqlite_schema t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c \
                         WHERE t.type = 'table' AND i.origin = 'c' GROUP BY 1, 3 ORDER BY 1",
                    )
                    .fetch_all(readers)
                    .await
                    .unwrap();
                    assert!(ours.len() >= 8, "{ours:?}");
                    assert_eq!(ours, theirs);
                });
            });
        });
    });
}

/// Counting the codes that wait happens under a lock that all who make one need.
#[test]
fn codes_that_wait_are_counted_and_old_ones_purged_through_an_index() {
    with_sqlite(async |database| {
        let Store::Sqlite { readers, .. } = &database.store else { panic!("not SQLite") };
        let plan = async |sql: &'static str| {
            let rows = sqlx::query(sql).bind("o").bind(1_i64).bind(5_i64).bind(0_i64).fetch_all(readers).await.unwrap();
            rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("; ")
        };
        let counted = plan(
            "EXPLAIN QUERY PLAN SELECT COUNT(*), SUM(CASE WHEN app_id = $2 THEN 1 ELSE 0 END) FROM auth_codes \
             WHERE organisation_id = $1 AND used_at IS NULL AND failures < $3 AND expires_at > $4",
        )
        .await;
        assert!(counted.contains("INDEX auth_codes_waiting (organisation_id=? AND expires_at>?)"), "{counted}");
        for (purge, index) in [
            ("EXPLAIN QUERY PLAN DELETE FROM auth_codes WHERE expires_at < $2", "auth_codes_by_end"),
            ("EXPLAIN QUERY PLAN DELETE FROM idempotency WHERE created_at < $2", "idempotency_by_time"),
        ] {
            let rows = sqlx::query(purge).bind("o").bind(1_i64).fetch_all(readers).await.unwrap();
            let detail: String = rows[0].get("detail");
            assert!(detail.contains(index), "{detail}");
        }
    });
}

async fn sqlite_schema(database: &Database) -> Schema {
    let Store::Sqlite { readers, .. } = &database.store else { panic!("not SQLite") };
    let rows = sqlx::query(
        "SELECT t.name AS table_name, c.name AS column_name, c.type AS type, c.\"notnull\" AS required, c.pk AS pk \
         FROM sqlite_schema t JOIN pragma_table_info(t.name) c \
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name <> '_sqlx_migrations'",
    )
    .fetch_all(readers)
    .await
    .unwrap();
    let mut schema = Schema::new();
    for row in rows {
        let (required, primary) = (row.get::<i64, _>("required") == 1, row.get::<i64, _>("pk") > 0);
        let text = describe(&row.get::<String, _>("type"), required, primary);
        schema.entry(row.get("table_name")).or_default().insert(row.get("column_name"), text);
    }
    schema
}

async fn postgres_schema(database: &Database) -> Schema {
    let Store::Postgres(pool) = &database.store else { panic!("not PostgreSQL") };
    let rows = sqlx::query(
        "SELECT c.table_name::text, c.column_name::text, c.data_type::text, c.is_nullable = 'NO' AS required, \
         EXISTS (SELECT 1 FROM information_schema.key_column_usage k \
                 JOIN information_schema.table_constraints t USING (constraint_schema, constraint_name) \
                 WHERE t.constraint_type = 'PRIMARY KEY' AND k.table_schema = c.table_schema \
                 AND k.table_name = c.table_name AND k.column_name = c.column_name) AS is_primary \
         FROM information_schema.columns c \
         WHERE c.table_schema = current_schema() AND c.table_name <> '_sqlx_migrations'",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let mut schema = Schema::new();
    for row in rows {
        let text = describe(&row.get::<String, _>("data_type"), row.get("required"), row.get("is_primary"));
        schema.entry(row.get("table_name")).or_default().insert(row.get("column_name"), text);
    }
    schema
}

fn describe(kind: &str, required: bool, primary: bool) -> String {
    let kind = match kind.to_ascii_lowercase().as_str() {
        "blob" | "bytea" => "bytes".to_owned(),
        kind @ ("text" | "bigint" | "boolean" | "double precision") => kind.to_owned(),
        other => panic!("{other} is not among the types both databases share"),
    };
    format!("{kind}{}{}", if required { "" } else { ", may be null" }, if primary { ", primary" } else { "" })
}

on_both! {
    async fn an_open_store_answers_and_a_closed_one_is_unavailable(database: &Database) {
        database.store.ping().await.unwrap();
        database.store.close().await;
        let error = database.store.ping().await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        let error = database.store.bootstrap(NOW, first(vec![])).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }

    async fn what_was_stored_is_there_after_the_store_is_opened_again(database: &Database) {
        let (_, made) = database.bootstrap(vec![new_key("one")]).await;
        database.store.close().await;
        let again = database.open_again().await;
        assert_eq!(again.find_key(&hash("one")).await.unwrap().as_ref(), made.keys.first());
        again.close().await;
    }

    async fn tokens_from_a_cache_are_counted_from_when_there_is_a_place_for_them(database: &Database) {
        let cached = |name: &str, cache_read| Exchange {
            usage: Usage { cache_read, ..Usage::default() },
            ..exchange(hash(name), Some(1), NOW)
        };
        let asked = Asked { days: (0, i64::MAX), ..Asked::default() };
        let counted = |days: Vec<DayOfModel>| days.iter().map(|day| day.cached_tokens).sum::<u64>();
        database.store.insert_generations(&[cached("a", 5), cached("b", 1)]).await.unwrap();
        assert_eq!(counted(database.store.activity(&tenant("org_1"), &asked).await.unwrap()), 6);
        database.execute("ALTER TABLE activity_days DROP COLUMN cached_tokens", &[]).await;
        database.execute("DELETE FROM _sqlx_migrations WHERE version = 16", &[]).await;
        let again = database.open_again().await;
        again.insert_generations(&[cached("a", 7)]).await.unwrap();
        assert_eq!(counted(again.activity(&tenant("org_1"), &asked).await.unwrap()), 7);
        again.close().await;
    }

    async fn who_looks_at_a_store_changes_nothing_there(database: &Database) {
        let look = async || Store::look(&database.url, database.folder.path()).await.unwrap();
        database.bootstrap(vec![]).await;
        let Looked::Ready(looked) = look().await else { panic!("its tables are those of this release") };
        assert_eq!(looked.organisation_ids().await.unwrap().len(), 1);
        assert!(looked.set_moved(Some(NOW)).await.is_err(), "nothing is written through it");
        looked.close().await;
        database.execute("DELETE FROM _sqlx_migrations WHERE version > 1", &[]).await;
        assert!(matches!(look().await, Looked::Older));
        assert!(!database.store.is_migrated().await.unwrap());
        database.execute("DROP TABLE _sqlx_migrations", &[]).await;
        assert!(matches!(look().await, Looked::Empty));
    }

    async fn lif_5_a_store_migrated_by_a_newer_release_still_opens(database: &Database) {
        database
            .execute(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 SELECT 9999, 'from the future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1",
                &[],
            )
            .await;
        let again = database.open_again().await;
        again.ping().await.unwrap();
        assert!(again.is_migrated().await.unwrap());
        database.execute("DELETE FROM _sqlx_migrations WHERE version > 1", &[]).await;
        assert!(!again.is_migrated().await.unwrap());
        again.close().await;
    }
}

#[tokio::test]
async fn a_sqlite_store_that_is_looked_at_is_not_made() {
    let folder = tempfile::TempDir::new().unwrap();
    assert!(matches!(Store::look("sqlite:a.db", folder.path()).await, Ok(Looked::Empty)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::write(folder.path().join("a.db"), "this is a text and no database".repeat(100)).unwrap();
    let error = Store::look("sqlite:a.db", folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("a.db: ") && error.contains("not a database"), "{error}");
}

/// Migrations are under a lock on both databases, so nodes may start together on an empty store.
#[test]
fn many_processes_may_open_an_empty_sqlite_store_at_once() {
    let folder = tempfile::TempDir::new().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut openers = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let folder = folder.path().to_owned();
            openers.spawn(async move {
                let store = Store::open("sqlite:new.db", &folder).await.unwrap();
                store.ping().await.unwrap();
                store.close().await;
            });
        }
        openers.join_all().await;
    });
}

#[test]
fn sec_4_sqlite_runs_with_the_pragmas_we_count_on() {
    with_sqlite(async |database| {
        let Store::Sqlite { writer, readers, .. } = &database.store else { panic!("not SQLite") };
        let text = async |sql: &'static str| sqlx::query_scalar::<_, String>(sql).fetch_one(writer).await.unwrap();
        let number = async |sql: &'static str| sqlx::query_scalar::<_, i64>(sql).fetch_one(writer).await.unwrap();
        assert_eq!(text("PRAGMA journal_mode").await, "wal");
        assert_eq!(number("PRAGMA secure_delete").await, 1);
        assert_eq!(number("PRAGMA foreign_keys").await, 1);
        assert_eq!(number("PRAGMA synchronous").await, 2);
        assert_eq!(number("PRAGMA busy_timeout").await, 2000);
        assert!(sqlx::query("DELETE FROM meta").execute(readers).await.is_err(), "readers cannot write");
        let mode = std::fs::metadata(database.folder.path().join("test.db")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

/// A caller never waits long for a store that is busy, and is told that it is not its fault.
#[test]
fn a_held_up_writer_stops_other_writers_after_a_while_and_readers_never() {
    let folder = tempfile::TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open("sqlite:test.db", folder.path()).await.unwrap();
        let Store::Sqlite { writer, .. } = &store else { panic!("not SQLite") };
        let mut held = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("INSERT INTO meta (name, value) VALUES ('a', 'b')").execute(&mut *held).await.unwrap();
        assert_eq!(store.find_key(&hash("one")).await.unwrap(), None);
        tokio::time::pause();
        let error = store.bootstrap(NOW, first(vec![])).await.unwrap_err();
        assert!(matches!(error, StoreError::Busy(_)), "{error:?}");
        tokio::time::resume();
        held.rollback().await.unwrap();
        assert!(store.bootstrap(NOW, first(vec![])).await.unwrap().is_some());
        store.close().await;
    });
}

#[test]
fn postgres_runs_with_the_limits_we_count_on() {
    with_postgres(async |database| {
        let Store::Postgres(pool) = &database.store else { panic!("not PostgreSQL") };
        let setting = async |sql: &'static str| sqlx::query_scalar::<_, String>(sql).fetch_one(pool).await.unwrap();
        assert_eq!(setting("SHOW statement_timeout").await, "5s");
        assert_eq!(setting("SHOW lock_timeout").await, "2s");
    });
}

#[test]
fn a_file_that_is_no_database_is_refused_in_one_line() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("bad.db"), "this is not a database, but long enough to be looked at").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime.block_on(Store::open("sqlite:bad.db", folder.path())).unwrap_err().to_string();
    assert!(error.contains("bad.db") && error.contains("not a database") && !error.contains('\n'), "{error}");
}

/// Times before 1970 and after 9999 are numbers like any other here; nothing is converted on the way.
#[test]
fn times_are_kept_to_the_millisecond() {
    with_sqlite(async |database| {
        let (tenant, made) = database.bootstrap(vec![]).await;
        for millis in [i64::MIN, -1, 0, i64::MAX] {
            let key = new_key(millis);
            let made = database.store.create_key(&tenant, &by(Timestamp(millis)), &made.workspace, key).await.unwrap();
            assert_eq!(database.store.find_key(&made.hash).await.unwrap(), Some(made));
        }
    });
}
