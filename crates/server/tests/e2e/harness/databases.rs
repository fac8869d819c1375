//! One test on both databases, each time on an empty one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tidegate_core::id;
use tokio::runtime::Runtime;

/// Makes two tests of one body, `NAME::sqlite` and `NAME::postgres`. The second passes when there is no server for it.
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($database:ident: &Database) $body:block)*) => {$(
        $(#[$meta])*
        async fn $name($database: &$crate::harness::Database) $body

        mod $name {
            #[test]
            fn sqlite() {
                $crate::harness::with_sqlite(super::$name);
            }

            #[test]
            fn postgres() {
                $crate::harness::with_postgres(super::$name);
            }
        }
    )*};
}
pub(crate) use on_both;

/// The database of a gateway that has not been started yet.
pub struct Database {
    /// The server and the database on it; none for SQLite.
    postgres: Option<(String, String)>,
}

pub fn with_sqlite(body: impl AsyncFn(&Database)) {
    runtime().block_on(body(&Database { postgres: None }));
}

/// Runs a test on a PostgreSQL database of its own, when there is a server for tests.
pub fn with_postgres(body: impl AsyncFn(&Database)) {
    let Ok(server) = std::env::var("TEST_POSTGRES_URL") else { return };
    let name: String = id::random::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
    let database = Database { postgres: Some((server, format!("e2e_{name}"))) };
    let runtime = runtime();
    runtime.block_on(database.beside(|name| format!("CREATE DATABASE {name}")));
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(body(&database))));
    // Also after a test that failed: the server may be one that stays.
    runtime.block_on(database.beside(|name| format!("DROP DATABASE {name} WITH (FORCE)")));
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

fn runtime() -> Runtime {
    Runtime::new().expect("a runtime")
}

impl Database {
    pub fn url(&self) -> String {
        let Some((server, name)) = &self.postgres else { return "sqlite:tidegate.db".to_owned() };
        let (address, parameters) = server.split_once('?').unwrap_or((server, ""));
        let (server, _) = address.rsplit_once('/').expect("the URL names a database");
        let separator = if parameters.is_empty() { "" } else { "?" };
        format!("{server}/{name}{separator}{parameters}")
    }

    /// What a gateway's configuration says of it.
    pub fn config(&self) -> String {
        format!("[storage]\nurl = \"{}\"\n", self.url())
    }

    /// Makes it an empty one again. A SQLite database is in the folder of its gateway and needs none of it.
    pub async fn empty(&self) {
        if self.postgres.is_some() {
            self.beside(|name| format!("DROP DATABASE {name} WITH (FORCE)")).await;
            self.beside(|name| format!("CREATE DATABASE {name}")).await;
        }
    }

    /// Runs a statement on PostgreSQL's server, beside this database; `sql` is given its name.
    pub async fn beside(&self, sql: impl FnOnce(&str) -> String) {
        let (server, name) = self.postgres.as_ref().expect("SQLite has no server");
        let mut connection = PgConnection::connect(server).await.expect("the server for tests answers");
        sqlx::raw_sql(AssertSqlSafe(sql(name))).execute(&mut connection).await.expect("the statement is right");
        connection.close().await.expect("a goodbye");
    }
}
