//! `tidegate ledger verify`: what is sound is called sound, and what was tampered with is found.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::path::Path;
use std::process::Output;

use sqlx::Connection as _;
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Exchange, GenerationId, KeyHash, Money, Tenant};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;
use tidegate_store::journal::{Entry, Journal};

use crate::harness::{Account, INFERENCE_KEY, Place, Tidegate, hash_of, hello, on_both, text};

const MODEL: &str = "vendor/m";
const PRICED: &str = "pricing = { input = 3, output = 15 }";

async fn execute(store: &Store, sql: &'static str) {
    match store {
        Store::Sqlite { writer, .. } => drop(sqlx::query(sql).execute(writer).await.unwrap()),
        Store::Postgres(pool) => drop(sqlx::query(sql).execute(pool).await.unwrap()),
    }
}

async fn verify(place: &Place) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = place.run(&["ledger", "verify"]).await;
    (status.code(), text(&stdout), text(&stderr))
}

async fn assert_sound(place: &Place, records: usize) {
    let (code, out, error) = verify(place).await;
    assert_eq!((code, &*error), (Some(0), ""), "{out}");
    assert!(out.starts_with(&format!("{records} records and 0 archived ones, ")), "{out}");
    assert!(out.contains(": all adds up\njournal: 0 calls open, 0 on their way to the store\n"), "{out}");
}

/// Writes to the journal as the server would, in an epoch of its own.
async fn journaled(folder: &Path, exchange: &Exchange, is_settled: bool) {
    let mut journal = Journal::open(folder).await.unwrap();
    let data = serde_json::to_string(exchange).unwrap();
    let entry = if is_settled { Entry::Settle(exchange.id, &data) } else { Entry::Open(exchange.id, &data) };
    journal.write(&[entry], true).await.unwrap();
    journal.close().await.unwrap();
}

fn call(tenant: &Tenant, account: &Account) -> Exchange {
    let (now, key) = (SystemClock.now(), KeyHash::parse(&hash_of(INFERENCE_KEY)).unwrap());
    let id = GenerationId::new(now);
    Exchange::new(id, tenant.organisation.clone(), account.workspace.clone(), key, MODEL.into(), now)
}

on_both! {
    async fn led_19_a_sound_ledger_is_proven_while_the_server_runs_and_when_it_does_not(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        assert_sound(&account.gate.place, 0).await;
        for _ in 0..3 {
            assert_eq!(account.gate.messages(hello(MODEL)).await.status, 200);
        }
        // What is shown as used has been brought to the store.
        account.data("GET", "/credits", None, 200).await;
        assert_sound(&account.gate.place, 3).await;
        let Account { gate, store, .. } = account;
        store.close().await;
        let (status, place) = gate.stop().await;
        assert!(status.success());
        assert_sound(&place, 3).await;
        let gate = place.serve().await;
        assert_sound(&gate.place, 3).await;
    }

    async fn led_19_a_changed_balance_is_found(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 200);
        account.data("GET", "/credits", None, 200).await;
        execute(&account.store, "UPDATE key_days SET credit_nanos = credit_nanos + 1000000000").await;
        let (code, out, error) = verify(&account.gate.place).await;
        assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.starts_with(&format!("tidegate: key:{} of org_", hash_of(INFERENCE_KEY))), "{error}");
        assert!(out.contains(": 1 differences\n"), "{out}");
        execute(&account.store, "DELETE FROM generations").await;
        let (code, out, error) = verify(&account.gate.place).await;
        // The day of the key, of its workspace and of its organisation, and what is shown of it by model.
        assert_eq!((code, error.lines().count()), (Some(1), 4), "{out}{error}");
    }

    async fn led_19_a_changed_sum_of_a_model_is_found(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 200);
        account.data("GET", "/credits", None, 200).await;
        assert_sound(&account.gate.place, 1).await;
        execute(&account.store, "UPDATE activity_days SET credit_nanos = credit_nanos + 5").await;
        let (code, _, error) = verify(&account.gate.place).await;
        assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.starts_with(&format!("tidegate: activity:{} of org_", hash_of(INFERENCE_KEY))), "{error}");
    }

    async fn led_19_a_journal_that_contradicts_is_found(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let tenant = account.tenant.clone();
        let (mut stored, left, waiting) = (call(&tenant, &account), call(&tenant, &account), call(&tenant, &account));
        stored.cost = Some(Money(5));
        account.store.insert_generations(std::slice::from_ref(&stored)).await.unwrap();
        account.store.close().await;
        let (_, place) = account.gate.stop().await;
        let folder = place.data_dir();
        // Settled and not forwarded, or forwarded and not forgotten: both are the way of things.
        journaled(&folder, &waiting, true).await;
        journaled(&folder, &stored, true).await;
        let (code, out, error) = verify(&place).await;
        assert_eq!((code, &*error), (Some(0), ""), "{out}");
        assert!(out.contains("\njournal: 0 calls open, 2 on their way to the store\n"), "{out}");

        // Open, and of the last start: it may be running.
        journaled(&folder, &left, false).await;
        assert_eq!(verify(&place).await.0, Some(0));
        // Open, and there was a start since.
        Journal::open(&folder).await.unwrap().close().await.unwrap();
        let (code, _, error) = verify(&place).await;
        assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
        assert!(error.contains(&format!("call {} was left open by start ", left.id)), "{error}");

        let other = Exchange { cost: Some(Money(6)), ..stored.clone() };
        let mut journal = Journal::open(&folder).await.unwrap();
        let read = journal.reader().settled(10).await.unwrap();
        let (_, stands) = read.calls.iter().find(|(call, _)| call.id == stored.id).unwrap();
        journal.forget(&[*stands], &[]).await.unwrap();
        journal.close().await.unwrap();
        journaled(&folder, &other, true).await;
        let (_, _, error) = verify(&place).await;
        let fault = format!("call {}: the journal says $0.000000006, the store $0.000000005", stored.id);
        assert!(error.contains(&fault), "{error}");

        let unreadable = call_id();
        let mut journal = Journal::open(&folder).await.unwrap();
        journal.write(&[Entry::Settle(unreadable, "{")], true).await.unwrap();
        journal.close().await.unwrap();
        let (code, _, error) = verify(&place).await;
        assert_eq!((code, error.lines().count()), (Some(1), 3), "{error}");
        assert!(error.contains(&format!("call {}: the journal holds something", unreadable)), "{error}");
    }

    async fn calls_that_wait_for_one_store_are_not_brought_to_another(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let waiting = call(&account.tenant.clone(), &account);
        account.store.close().await;
        let (_, place) = account.gate.stop().await;
        let old = std::fs::read_to_string(place.config()).unwrap();
        let new = old.replace(&database.config(), "[storage]\nurl = \"sqlite:other.db\"\n");
        assert_ne!(old, new);
        journaled(&place.data_dir(), &waiting, true).await;
        let refused = async || {
            place.write_config(&new);
            let Output { status, stdout, stderr } = place.run(&["serve"]).await;
            let error = text(&stderr);
            assert!(!status.success() && text(&stdout).is_empty(), "{error}");
            assert!(error.contains("storage.url: 1 calls and 0 letters wait in "), "{error}");
            assert!(error.contains("for another store: start once with the storage.url"), "{error}");
        };
        refused().await;
        // One that an earlier release wrote does not say whose it is, but its calls do.
        let file = format!("sqlite:{}", place.data_dir().join("ledger.db").display());
        let mut journal = sqlx::SqliteConnection::connect(&file).await.unwrap();
        sqlx::query("ALTER TABLE node DROP COLUMN store").execute(&mut journal).await.unwrap();
        journal.close().await.unwrap();
        refused().await;

        // At home they are taken, and then the folder may serve another.
        place.write_config(&old);
        let gate = place.serve().await;
        assert_sound(&gate.place, 1).await;
        let (_, place) = gate.stop().await;
        place.write_config(&new);
        let gate = place.serve().await;
        gate.logs("was another store's").await;
        assert_sound(&gate.place, 0).await;
    }
}

fn call_id() -> GenerationId {
    GenerationId::new(SystemClock.now())
}
