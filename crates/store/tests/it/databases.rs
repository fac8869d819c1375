//! A fresh store per test, on either database, gone when the test is over.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use tidegate_core::{KeyHash, KeyKind, Tenant, Timestamp, WorkspaceId, id};
use tidegate_store::Store;
use tidegate_store::audit::{By, Verdict};
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};
use tidegate_store::organisations::{Bootstrap, Bootstrapped};
use tokio::runtime::Runtime;

pub const NOW: Timestamp = Timestamp(1_790_000_000_000);

/// Makes two tests of one body, `NAME::sqlite` and `NAME::postgres`.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($database:ident: &Database) $body:block)*) => {$(
        $(#[$meta])*
        async fn $name($database: &$crate::databases::Database) $body

        mod $name {
            #[test]
            fn sqlite() {
                $crate::databases::with_sqlite(super::$name);
            }

            #[test]
            fn postgres() {
                $crate::databases::with_postgres(super::$name);
            }
        }
    )*};
}

/// Tries again when others were in the way.
#[macro_export]
macro_rules! patiently {
    ($call:expr) => {
        loop {
            match $call.await {
                Ok(answer) => break answer,
                Err(tidegate_store::StoreError::Busy(_) | tidegate_store::StoreError::Unavailable(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    };
}

/// An empty database and a store on it.
pub struct Database {
    pub store: Store,
    pub url: String,
    pub folder: TempDir,
    /// The schema of this test and the URL to drop it with.
    schema: Option<(String, String)>,
}

pub fn with_sqlite(body: impl AsyncFn(&Database)) {
    with(body, async || {
        let (folder, url) = (TempDir::new().unwrap(), "sqlite:test.db".to_owned());
        let store = Store::open(&url, folder.path()).await.unwrap();
        Some(Database { store, url, folder, schema: None })
    });
}

pub fn with_postgres(body: impl AsyncFn(&Database)) {
    with(body, async || {
        let server = std::env::var("TEST_POSTGRES_URL").ok()?;
        let schema: String = id::random::<8>().iter().map(|byte| format!("{byte:02x}")).collect();
        let schema = format!("test_{schema}");
        let mut connection = PgConnection::connect(&server).await.unwrap();
        sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let separator = if server.contains('?') { '&' } else { '?' };
        let (folder, url) = (TempDir::new().unwrap(), format!("{server}{separator}options[search_path]={schema}"));
        let store = Store::open(&url, folder.path()).await.unwrap();
        Some(Database { store, url, folder, schema: Some((schema, server)) })
    });
}

fn with(body: impl AsyncFn(&Database), make: impl AsyncFnOnce() -> Option<Database>) {
    let runtime = Runtime::new().unwrap();
    let Some(database) = runtime.block_on(make()) else { return };
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(body(&database))));
    runtime.block_on(database.remove());
    if let Err(panic) = result {
        resume_unwind(panic);
    }
}

impl Database {
    /// Another store on the same database, as another process would open it.
    pub async fn open_again(&self) -> Store {
        Store::open(&self.url, self.folder.path()).await.unwrap()
    }

    /// Fills the empty store.
    pub async fn bootstrap(&self, keys: Vec<NewKey>) -> (Tenant, Bootstrapped) {
        let made = self.store.bootstrap(NOW, first(keys)).await.unwrap().unwrap();
        (Tenant { organisation: made.organisation.clone() }, made)
    }

    /// A second organisation with its default workspace; the store has no function for that yet.
    pub async fn other_tenant(&self) -> (Tenant, WorkspaceId) {
        let (organisation, workspace) = ("org_OTHER", "00000000-0000-7000-8000-000000000000");
        for (sql, values) in [
            ("INSERT INTO organisations (id, name, created_at) VALUES ($1, $2, 0)", vec![organisation, "Other"]),
            (
                "INSERT INTO workspaces (id, organisation_id, name, slug, created_at) VALUES ($1, $2, 'Default', $3, 0)",
                vec![workspace, organisation, "default"],
            ),
        ] {
            self.execute(sql, &values).await;
        }
        let organisation = tidegate_core::OrganisationId(organisation.into());
        (Tenant { organisation }, WorkspaceId(workspace.into()))
    }

    /// Runs a statement behind the store's back.
    pub async fn execute(&self, sql: &'static str, values: &[&str]) {
        macro_rules! run {
            ($pool:expr) => {{
                let mut query = sqlx::query(sql);
                for value in values {
                    query = query.bind(value.to_string());
                }
                query.execute($pool).await.unwrap();
            }};
        }
        match &self.store {
            Store::Sqlite { writer, .. } => run!(writer),
            Store::Postgres(pool) => run!(pool),
        }
    }

    /// One number, asked behind the store's back.
    pub async fn number(&self, sql: &'static str) -> i64 {
        match &self.store {
            Store::Sqlite { readers, .. } => sqlx::query_scalar(sql).fetch_one(readers).await.unwrap(),
            Store::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }

    /// The actions in the audit log with their targets, oldest first; the chain must hold.
    pub async fn audited(&self, tenant: &Tenant) -> Vec<(String, String)> {
        let sound = self.store.verify_audit(|_| {}).await.unwrap();
        assert!(matches!(sound, Verdict::Sound(_)), "{sound:?}");
        let mut entries = self.store.list_audit(tenant, Timestamp(0), 0, 1_000).await.unwrap();
        entries.reverse();
        entries.into_iter().map(|entry| (entry.action, entry.target)).collect()
    }

    async fn remove(self) {
        self.store.close().await;
        if let Some((schema, server)) = self.schema {
            let mut connection = PgConnection::connect(&server).await.unwrap();
            sqlx::query("SET client_min_messages = warning").execute(&mut connection).await.unwrap();
            sqlx::query(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }
}

pub fn first(keys: Vec<NewKey>) -> Bootstrap {
    Bootstrap { organisation_name: "Test".to_owned(), workspace_name: "Default".to_owned(), keys }
}

/// The operator at a shell.
pub fn by(at: Timestamp) -> By {
    By::shell(at)
}

/// A member to be added.
pub fn member(email: &str) -> NewMember {
    NewMember { email: email.to_owned(), first_name: None, last_name: None, role: Role::Member }
}

pub fn hash(of: impl ToString) -> KeyHash {
    KeyHash::of(of.to_string().as_bytes())
}

pub fn new_key(name: impl ToString) -> NewKey {
    NewKey {
        hash: hash(name.to_string()),
        kind: KeyKind::Inference,
        name: name.to_string(),
        label: "sk-tg-v1-abc...wxyz".to_owned(),
        limit: None,
        limit_reset: None,
        include_byok_in_limit: false,
        expires: None,
        creator: None,
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    }
}
