//! Gateways that share a store and seal under master keys: a rotation on one leaves no other without a key that it needs,
//! and a credential that cannot be opened is never replaced by the operator's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::Store;

use crate::harness::{Account, Tidegate, hello, on_both};

const MODEL: &str = "vendor/m";

on_both! {
    async fn a_credential_that_cannot_be_opened_is_not_replaced_by_the_operators(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
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
    }
}
