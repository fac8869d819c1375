//! A gateway and the account it serves: its operations over HTTP, and a look into its store.

use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{KeyHash, OrganisationId, Tenant, Timestamp, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::audit::{By, Verdict};

use super::databases::Database;
use super::gate::{Builder, MANAGEMENT_KEY, Place, Tidegate};
use super::http::Reply;

pub struct Account {
    pub gate: Tidegate,
    pub store: Store,
    pub tenant: Tenant,
    /// Its default workspace.
    pub workspace: WorkspaceId,
}

impl Account {
    pub async fn start(database: &Database, builder: Builder) -> Self {
        let limits = "[limits]\nmanagement_rpm = 60000\n";
        Self::start_at(database, builder.config(limits).config(&database.config()).place()).await
    }

    /// The same in a place that is prepared.
    pub async fn start_at(database: &Database, place: Place) -> Self {
        let gate = place.serve().await;
        // As another process would open it.
        let store = Store::open(&database.url(), &gate.place.data_dir()).await.expect("the store opens");
        let organisation = store.sole_organisation().await.expect("it answers").expect("the first start made one").id;
        let tenant = Tenant { organisation };
        let workspace = store.default_workspace(&tenant).await.expect("it answers").expect("there is one").id;
        Self { gate, store, tenant, workspace }
    }

    /// An operation with the management key.
    pub async fn ask(&self, method: &str, path: &str) -> Reply {
        self.gate.ask(method, &format!("/api/v1{path}")).key(MANAGEMENT_KEY).send().await
    }

    /// The same with a body.
    pub async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        let ask = self.gate.ask(method, &format!("/api/v1{path}")).key(MANAGEMENT_KEY);
        ask.json(body.to_string()).send().await
    }

    /// The member `data` of an answer that must have this status.
    pub async fn data(&self, method: &str, path: &str, body: Option<Value>, status: u16) -> Value {
        let reply = match body {
            Some(body) => self.send(method, path, body).await,
            None => self.ask(method, path).await,
        };
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.body_text());
        reply.json()["data"].clone()
    }

    /// A second organisation in the same store, with its default workspace.
    pub async fn other_tenant(&self) -> (Tenant, WorkspaceId) {
        let (organisation, workspace) = ("org_OTHER", "00000000-0000-7000-8000-000000000000");
        for (sql, values) in [
            ("INSERT INTO organisations (id, name, created_at) VALUES ($1, $2, 0)", [organisation, "Other", ""]),
            (
                "INSERT INTO workspaces (id, organisation_id, name, slug, created_at) VALUES ($1, $2, 'Default', $3, 0)",
                [workspace, organisation, "default"],
            ),
        ] {
            let values = values.iter().filter(|value| !value.is_empty());
            macro_rules! run {
                ($pool:expr) => {{
                    let query = values.fold(sqlx::query(sql), |query, value| query.bind(value.to_string()));
                    query.execute($pool).await.map(|_| ()).expect("the statement is right");
                }};
            }
            match &self.store {
                Store::Sqlite { writer, .. } => run!(writer),
                Store::Postgres(pool) => run!(pool),
            }
        }
        (Tenant { organisation: OrganisationId(organisation.into()) }, WorkspaceId(workspace.into()))
    }

    /// The actions of the audit log, oldest first; its chain must hold.
    pub async fn audited(&self) -> Vec<String> {
        let verdict = self.store.verify_audit(|_| {}).await.expect("it answers");
        assert!(matches!(verdict, Verdict::Sound(_)), "{verdict:?}");
        let entries = self.store.list_audit(&self.tenant, Timestamp(0), 0, 100_000).await.expect("it answers");
        entries.into_iter().rev().map(|entry| entry.action).collect()
    }
}

/// The operator at a shell, now.
pub fn shell() -> By {
    By::shell(SystemClock.now())
}

/// How a refused input is answered; `path` must be among the places that are named.
pub fn assert_refused(reply: &Reply, path: &str) {
    let json = reply.json();
    assert_eq!((reply.status, &json["error"]["code"]), (400, &json!(400)), "{json}");
    assert_eq!(json["error"]["message"], "Invalid request parameters", "{json}");
    let issues = json["error"]["metadata"]["issues"].as_array().expect("the mistakes are listed");
    assert!(issues.iter().any(|issue| issue["path"] == path), "{path:?} is not named: {json}");
    assert!(issues.iter().all(|issue| issue["message"].as_str().is_some_and(|text| !text.is_empty())), "{json}");
}

/// How everything that is absent, deleted or somebody else's is answered.
pub fn assert_not_found(reply: &Reply) {
    assert_eq!((reply.status, reply.body_text()), (404, r#"{"error":{"code":404,"message":"Resource not found"}}"#));
}

pub fn hash_of(key: &str) -> String {
    KeyHash::of(key.as_bytes()).to_hex()
}
