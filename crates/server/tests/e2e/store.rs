//! The store behind the gateway: that it can be either database, and what happens when it is gone.

use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, SqliteConnection};
use tidegate_core::{GenerationId, Outcome, Tenant};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::generations::Generation;

use crate::harness::{Account, Database, INFERENCE_KEY, Reply, Tidegate, eventually, hello, on_both, with_postgres};

const MODEL: &str = "vendor/m";
const FIVE_SECONDS: Duration = Duration::from_secs(5);

async fn with_key(gate: &Tidegate, key: &str) -> Reply {
    gate.ask("POST", "/v1/messages").key(key).json(hello(MODEL).to_string()).send().await
}

/// What a client and a load balancer see before, during and after an outage that `change` begins and ends.
async fn outage(gate: &Tidegate, mut change: impl AsyncFnMut(bool)) {
    assert_eq!((with_key(gate, INFERENCE_KEY).await.status, gate.get("/readyz").await.status), (200, 200));
    change(true).await;
    gate.logs("the store does not answer").await;
    for unknown in ["somebody-1", "somebody-2"] {
        let refused = with_key(gate, unknown).await;
        let (status, kind, _, message) = refused.error();
        assert_eq!((status, &*kind, &*message), (503, "overloaded_error", "Service temporarily unavailable"));
        assert!(refused.header("retry-after").is_some(), "it passes");
    }
    let reply = with_key(gate, INFERENCE_KEY).await;
    assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()), "a key in memory needs no store");
    let ready = gate.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["checks"]["store"]["ok"]), (503, &false.into()));
    assert_eq!(gate.get("/healthz").await.status, 200, "a restart would not help");

    change(false).await;
    gate.logs("the store answers again").await;
    eventually("it is ready again", FIVE_SECONDS, async || gate.get("/readyz").await.status == 200).await;
    assert_eq!(with_key(gate, "somebody-1").await.error().3, "Invalid API key", "now that is known");
    assert_eq!(with_key(gate, INFERENCE_KEY).await.status, 200);
}

on_both! {
    async fn a_store_that_is_not_as_it_must_be_is_not_ready(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for (check, text, sql) in [
            ("migrations", "older than this build", "DELETE FROM _sqlx_migrations WHERE version > 1"),
            ("keyring", "cannot be read", "UPDATE meta SET value = 'x' WHERE name = 'vault_check'"),
        ] {
            match &account.store {
                Store::Sqlite { writer, .. } => drop(sqlx::query(sql).execute(writer).await.expect("it is right")),
                Store::Postgres(pool) => drop(sqlx::query(sql).execute(pool).await.expect("it is right")),
            }
            let ready = account.gate.managed("/readyz").await;
            let checks = ready.json()["checks"].clone();
            assert_eq!((ready.status, &checks["store"]["ok"], &checks[check]["ok"]), (503, &true.into(), &false.into()));
            assert!(checks[check]["detail"].as_str().is_some_and(|detail| detail.contains(text)), "{checks}");
        }
        assert_eq!(account.gate.get("/healthz").await.status, 200, "a restart would not help");
    }
}

/// Readers of SQLite are held up by no lock of another process; but a table that is gone under its name cannot be asked.
#[tokio::test]
async fn key_6_without_its_store_known_keys_work_and_others_are_a_503() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let file = gate.place.data_dir().join("tidegate.db");
    let mut connection: SqliteConnection =
        SqliteConnectOptions::new().filename(file).connect().await.expect("the file is there");
    outage(&gate, async |begins| {
        let (old, new) = if begins { ("api_keys", "away") } else { ("away", "api_keys") };
        let rename = AssertSqlSafe(format!("ALTER TABLE {old} RENAME TO {new}"));
        sqlx::query(rename).execute(&mut connection).await.expect("the table is there");
    })
    .await;
}

#[tokio::test]
async fn requests_that_end_while_the_store_is_away_are_recorded_when_it_is_back() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let options = SqliteConnectOptions::new().filename(gate.place.data_dir().join("tidegate.db"));
    let mut connection: SqliteConnection = options.connect().await.expect("the file is there");
    sqlx::query("ALTER TABLE generations RENAME TO away").execute(&mut connection).await.expect("the table is there");
    let reply = with_key(&gate, INFERENCE_KEY).await;
    assert_eq!(reply.status, 200, "nothing of this is the caller's concern");
    gate.logs("finished requests wait in the journal").await;
    sqlx::query("ALTER TABLE away RENAME TO generations").execute(&mut connection).await.expect("the table is there");
    let id = reply.header("x-generation-id").expect("it was a generation").to_owned();
    let (folder, id) = (gate.place.data_dir(), GenerationId::parse(&id).expect("an id"));
    eventually("it is recorded", FIVE_SECONDS, async || {
        let store = Store::open("sqlite:tidegate.db", &folder).await.expect("the store opens");
        let organisation = store.sole_organisation().await.expect("it answers").expect("the first start made one").id;
        let found = store.find_generation(&Tenant { organisation }, &id).await.expect("it answers");
        store.close().await;
        found.is_some()
    })
    .await;
}

async fn generation(database: &Database, gate: &Tidegate, id: &str) -> Option<Generation> {
    let store = Store::open(&database.url(), &gate.place.data_dir()).await.expect("the store opens");
    let organisation = store.sole_organisation().await.expect("it answers").expect("the first start made one").id;
    let id = GenerationId::parse(id).expect("an id");
    let found = store.find_generation(&Tenant { organisation }, &id).await.expect("it answers");
    store.close().await;
    found
}

#[test]
fn a_gateway_serves_from_postgresql() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let gate = Tidegate::start().endpoint(MODEL, &sim).config(&database.config()).run().await;
        assert!(!gate.place.data_dir().join("tidegate.db").exists());
        let reply = gate.messages(hello(MODEL)).await;
        assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()));
        let id = reply.header("x-generation-id").expect("it is a generation");
        eventually("it is recorded", FIVE_SECONDS, async || generation(database, &gate, id).await.is_some()).await;
        let record = generation(database, &gate, id).await.expect("it was there");
        assert_eq!((record.outcome, record.model.as_str()), (Outcome::Complete, MODEL));

        let made = gate.place.run(&["keys", "create", "--name", "made elsewhere"]).await;
        assert!(made.status.success(), "{made:?}");
        let key = String::from_utf8(made.stdout).expect("a key is text").trim().to_owned();
        assert_eq!(with_key(&gate, &key).await.status, 200);
        let (status, place) = gate.stop().await;
        assert!(status.success());
        let gate = place.serve().await;
        for key in [INFERENCE_KEY, &key] {
            assert_eq!(with_key(&gate, key).await.status, 200, "keys outlive the process");
        }
    });
}

#[test]
fn key_6_a_postgresql_that_goes_away_and_comes_back_is_weathered() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let gate = Tidegate::start().endpoint(MODEL, &sim).config(&database.config()).run().await;
        outage(&gate, async |begins| {
            database.beside(|name| format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {}", !begins)).await;
            let everyone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname";
            database.beside(|name| format!("{everyone} = '{name}'")).await;
        })
        .await;
    });
}
