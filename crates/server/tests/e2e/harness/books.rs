//! The three-way audit: what clients heard, what the upstream said, and what the ledger holds must agree.

use std::collections::HashMap;

use tidegate_core::Money;
use tidegate_store::Store;

use super::buyer::Heard;
use super::databases::Database;
use super::gate::Place;
use super::till::{Till, uses};

/// What the endpoint of an audited model costs: prices that do not come out even.
pub const PRICES: &str = "[models.endpoints.pricing]\ninput = \"3.0000007\"\noutput = \"15.0000013\"\n";

/// What the answer with this number costs by these prices, in nano-dollars: exact, and rounded once, half up.
pub fn price(number: u64) -> Money {
    let (input, output) = uses(number);
    let millionths = i128::from(input) * 3_000_000_700 + i128::from(output) * 15_000_001_300;
    Money(i64::try_from((millionths + 500_000) / 1_000_000).expect("a small amount"))
}

/// A record of a call in the main store.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Row {
    pub id: String,
    pub session_id: Option<String>,
    pub cost_nanos: Option<i64>,
    pub outcome: String,
    pub settlement: String,
    pub reserved_nanos: i64,
}

impl Row {
    pub fn number(&self) -> u64 {
        self.session_id.as_deref().and_then(|session| session.parse().ok()).expect("every request has a number")
    }
}

pub async fn rows(store: &Store) -> Vec<Row> {
    const SQL: &str =
        "SELECT id, session_id, cost_nanos, outcome, settlement, reserved_nanos FROM generations ORDER BY id";
    match store {
        Store::Sqlite { writer, .. } => sqlx::query_as(SQL).fetch_all(writer).await,
        Store::Postgres(pool) => sqlx::query_as(SQL).fetch_all(pool).await,
    }
    .expect("the store answers")
}

/// The store of a gateway, as another process opens it.
pub async fn store_of(database: &Database, place: &Place) -> Store {
    Store::open(&database.url(), &place.data_dir()).await.expect("the store opens")
}

/// Compares everything. All calls must be over, and everything forwarded: the gateway is stopped, or has just started.
pub async fn audit(store: &Store, till: &Till, heard: &[Heard]) {
    let rows = rows(store).await;
    let mut by_number: HashMap<u64, &Row> = HashMap::new();
    for row in &rows {
        let before = by_number.insert(row.number(), row);
        assert!(before.is_none(), "one request, two records: {before:?} and {row:?}");
    }
    let sales = till.sales();
    for heard in heard {
        let (number, row) = (heard.number, by_number.remove(&heard.number));
        let served = heard.status.is_some_and(|status| status < 400);
        let known = served || heard.id.is_some();
        assert!(row.is_some() || !known, "{number}: a client heard of it, and there is no record: {heard:?}");
        let calls = sales.get(&number).map_or(0, |sale| sale.calls);
        assert!(calls <= 1, "{number}: the upstream was asked {calls} times");
        let Some(row) = row else { continue };
        if let Some(id) = &heard.id {
            assert_eq!(*id, row.id, "{number}: the record has the id that the client was told");
        }
        let cost = Money(row.cost_nanos.expect("the price is known"));
        assert!(cost.0 >= 0 && cost <= Money(row.reserved_nanos).max(price(number)), "{number}: {row:?}");
        if heard.is_complete {
            assert!(sales.get(&number).is_some_and(|sale| sale.is_complete), "{number}: nobody said that");
            assert_eq!((row.outcome.as_str(), row.settlement.as_str()), ("complete", "settled"), "{number}: {row:?}");
            assert_eq!((cost, heard.cost()), (price(number), Some(price(number))), "{number}: complete is exact");
        }
        if row.outcome == "complete" {
            assert_eq!(cost, price(number), "{number}: complete is exact: {row:?}");
        }
    }
    assert!(by_number.is_empty(), "records of requests that nobody made: {by_number:?}");
}

/// What all records together cost.
pub async fn total(store: &Store) -> Money {
    Money(rows(store).await.iter().map(|row| row.cost_nanos.unwrap_or(0)).sum())
}

/// `tidegate ledger verify` finds nothing.
pub async fn verified(place: &Place) {
    let output = place.run(&["ledger", "verify"]).await;
    assert!(output.status.success(), "{output:?}");
}
