//! Gateways that share a store and seal under master keys: a rotation on one leaves no other without a key that it needs,
//! and a credential that cannot be opened is never replaced by the operator's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tokio::time::timeout;

use crate::harness::receiver::Receiver;
use crate::harness::{Account, Place, Tidegate, eventually, hello, on_both, ran, text, with_postgres};

const MODEL: &str = "vendor/m";
const OTHER: &str = "vendor/other";
const PATIENCE: Duration = Duration::from_secs(40);

on_both! {
    async fn a_credential_that_cannot_be_opened_is_not_replaced_by_the_operators(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let elsewhere = Sim::start(Behaviour::says("elsewhere")).await;
        let builder = Tidegate::start().endpoint(MODEL, &sim).endpoint(OTHER, &elsewhere);
        let account = Account::start(database, builder).await;
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own-key-0123"})), 201).await;
        let lose = "UPDATE credentials SET master_key_id = 'gone'";
        match &account.store {
            Store::Sqlite { writer, .. } => drop(sqlx::query(lose).execute(writer).await.unwrap()),
            Store::Postgres(pool) => drop(sqlx::query(lose).execute(pool).await.unwrap()),
        }
        let Account { gate, store, .. } = account;
        store.close().await;
        let gate = gate.stop().await.1.serve().await;
        let reply = gate.messages(hello(MODEL)).await;
        let (status, _, error_type, message) = reply.error();
        assert_eq!((status, error_type.as_str()), (503, "provider_overloaded"), "{}", reply.body_text());
        assert_eq!(message, "The stored P0 credential cannot be opened at the moment");
        assert_eq!(sim.calls(), 0, "nobody was asked");
        gate.logs("a stored credential does not open").await;
        // Of another provider there is none: its own is as good as ever.
        let mut either = hello(MODEL);
        either["models"] = json!([OTHER]);
        assert_eq!(gate.messages(either).await.text(), "elsewhere");
    }
}

#[test]
fn sec_5_a_rotation_waits_for_rings_that_are_copies() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let builder = Tidegate::start().endpoint(MODEL, &sim);
        let account = Account::start(database, builder).await;
        let ring = account.gate.place.data_dir().join("master.key");
        let place = Place::new(&std::fs::read_to_string(account.gate.place.config()).unwrap());
        std::fs::create_dir_all(place.data_dir()).unwrap();
        std::fs::copy(&ring, place.data_dir().join("master.key")).unwrap();
        let other = place.serve().await;
        account.data("POST", "/byok", Some(json!({"provider": "p0", "key": "own-key-0123"})), 201).await;
        eventually("both are heard of", PATIENCE, async || account.store.rings().await.unwrap().0.len() == 2).await;
        let before = std::fs::read(&ring).unwrap();
        let rotate = ["secrets", "rotate"];
        let refused = timeout(PATIENCE, account.gate.place.prepared(&rotate).output()).await.unwrap().unwrap();
        let error = text(&refused.stderr);
        assert!(!refused.status.success() && error.contains("is not seen by server node_"), "{error}");
        assert!(error.contains("give every server the same ring first"), "{error}");
        assert_eq!(std::fs::read(&ring).unwrap(), before, "the ring is as it was");
        for gate in [&account.gate, &other] {
            assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
        }
        // Alone it may rotate.
        let (status, _) = other.stop().await;
        assert!(status.success());
        assert_eq!(account.store.rings().await.unwrap().0.len(), 1, "who is stopped needs nothing");
        ran(&account.gate.place, &rotate).await;
        assert_ne!(std::fs::read(&ring).unwrap(), before);
    });
}

#[test]
fn sec_5_letters_that_wait_at_another_gateway_keep_their_master_key() {
    with_postgres(async |database| {
        let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
        let folder = tempfile::TempDir::new().unwrap();
        let shared = format!("[secrets]\nmaster_key = \"file:{}\"\n", folder.path().join("master.key").display());
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&shared);
        let builder = builder.config(&collector.config("otel-collector", ""));
        let account = Account::start(database, builder).await;
        let place = Place::new(&std::fs::read_to_string(account.gate.place.config()).unwrap());
        let other = place.serve().await;
        collector.says(503);
        assert_eq!(other.messages(hello(MODEL)).await.status, 200);
        let rotated = async || {
            let command = account.gate.place.prepared(&["secrets", "rotate", "--remove-old"]).output();
            let output = timeout(PATIENCE, command).await.unwrap().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            (text(&output.stdout), text(&output.stderr))
        };
        let (out, error) = rotated().await;
        assert!(!out.contains("removed master key"), "{out}{error}");
        assert!(error.contains("letters for destinations wait at server node_"), "{error}");
        // Nor are they given up when that one is stopped.
        let (_, place) = other.stop().await;
        let (out, error) = rotated().await;
        assert!(!out.contains("removed master key") && error.contains("start it once"), "{out}{error}");
        collector.says(200);
        let other = place.serve().await;
        let removed = async || rotated().await.0.contains("removed master key");
        eventually("nothing waits any more", Duration::from_secs(120), removed).await;
        assert!(!collector.generations().is_empty(), "it was told");
        drop(other);
    });
}

/// Whoever takes a key away by hand may put it back.
#[tokio::test]
async fn a_letter_that_no_key_opens_waits_for_its_key() {
    let (sim, collector) = (Sim::start(Behaviour::Echo).await, Receiver::start().await);
    let builder = Tidegate::start().endpoint(MODEL, &sim).config(&collector.config("otel-collector", ""));
    let gate = builder.run().await;
    collector.says(503);
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    ran(&gate.place, &["secrets", "rotate"]).await;
    let (_, place) = gate.stop().await;
    let ring = place.data_dir().join("master.key");
    let whole = std::fs::read_to_string(&ring).unwrap();
    let (active, _) = whole.split_once('\n').unwrap();
    std::fs::write(&ring, format!("{active}\n")).unwrap();
    collector.says(200);
    let gate = place.serve().await;
    gate.logs("no master key here opens what a destination is to be told").await;
    assert!(collector.generations().is_empty());
    std::fs::write(&ring, &whole).unwrap();
    eventually("it is told", PATIENCE, async || !collector.generations().is_empty()).await;
}
