use tidegate_core::{Exchange, GenerationId, Money, Timestamp, WorkspaceId};
use tidegate_store::spend::{Amounts, Spend};
use tokio::task::JoinSet;

use crate::databases::hash;
use crate::generations::{exchange, tenant};
use crate::on_both;

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
}

fn amounts(all: i64, month: i64, week: i64, day: i64) -> Amounts {
    Amounts { all: Money(all), day: Money(day), week: Money(week), month: Money(month) }
}

on_both! {
    /// Wednesday, 2 September 2026: the week began in August, on Monday the 31st.
    async fn what_a_key_spent_is_told_for_each_window(database: &Database) {
        let now = at("2026-09-02T12:00:00Z");
        let batch = [
            exchange(hash("a"), Some(1), at("2025-09-02T12:00:00Z")),
            exchange(hash("a"), Some(20), at("2026-08-30T23:59:59.999Z")),
            exchange(hash("a"), Some(300), at("2026-08-31T00:00:00Z")),
            exchange(hash("a"), Some(4_000), at("2026-09-01T00:00:00Z")),
            exchange(hash("a"), Some(50_000), at("2026-09-01T23:59:59.999Z")),
            exchange(hash("a"), Some(600_000), at("2026-09-02T00:00:00Z")),
            exchange(hash("a"), None, at("2026-09-02T11:00:00Z")),
            exchange(hash("b"), Some(7), at("2026-09-02T01:00:00Z")),
            Exchange { is_byok: true, list_cost: Some(Money(90)), ..exchange(hash("b"), None, at("2026-09-01T00:00:00Z")) },
        ];
        let store = &database.store;
        store.insert_generations(&batch).await.unwrap();
        let spends = store.key_spend(&tenant("org_1"), &[hash("a"), hash("b"), hash("c")], now).await.unwrap();
        let a = Spend {
            credit: amounts(654_321, 654_000, 654_300, 600_000),
            byok: Amounts::default(),
            last_used: Some(at("2026-09-02T11:00:00Z")),
        };
        let b = Spend {
            credit: amounts(7, 7, 7, 7),
            byok: amounts(90, 90, 90, 0),
            last_used: Some(at("2026-09-02T01:00:00Z")),
        };
        assert_eq!((spends.len(), spends[&hash("a")], spends[&hash("b")]), (2, a, b));
        let alone = store.key_spend(&tenant("org_1"), &[hash("a")], now).await.unwrap();
        assert_eq!(alone[&hash("a")], a);
        assert!(store.key_spend(&tenant("org_2"), &[hash("a")], now).await.unwrap().is_empty());
        assert!(store.key_spend(&tenant("org_1"), &[], now).await.unwrap().is_empty());

        let whole = store.workspace_spend(&tenant("org_1"), &WorkspaceId("w".into()), now).await.unwrap();
        assert_eq!((whole.credit, whole.byok), (amounts(654_328, 654_007, 654_307, 600_007), b.byok));
        for (organisation, workspace) in [("org_2", "w"), ("org_1", "v")] {
            let none = store.workspace_spend(&tenant(organisation), &WorkspaceId(workspace.into()), now).await.unwrap();
            assert_eq!(none, Spend::default());
        }
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), Money(654_328));
        assert_eq!(store.total_usage(&tenant("org_2")).await.unwrap(), Money(0));
    }

    async fn fees_and_turns_are_spent_and_are_no_requests(database: &Database) {
        let asked = exchange(hash("a"), Some(30), at("2026-09-02T12:00:00Z"));
        let fee = Exchange {
            id: GenerationId::new(asked.started),
            parent: Some(asked.id),
            provider: "engine".into(),
            cost: Some(Money(5)),
            ..asked.clone()
        };
        // And so are the turns behind the first one.
        let turn = Exchange { id: GenerationId::new(asked.started), parent: Some(asked.id), cost: Some(Money(7)), ..asked.clone() };
        database.store.insert_generations(&[asked, fee, turn]).await.unwrap();
        assert_eq!(database.store.total_usage(&tenant("org_1")).await.unwrap(), Money(42));
        assert_eq!(database.number("SELECT CAST(SUM(requests) AS BIGINT) FROM activity_days").await, 1);
        assert!(database.store.verify_spend().await.unwrap().is_clean(), "as a record it counts");
    }

    async fn led_21_a_repeated_batch_counts_once(database: &Database) {
        // More than fit into one statement, of more keys than fit into one.
        let now = at("2026-09-02T12:00:00Z");
        let batch: Vec<_> = (0..1_203).map(|number| exchange(hash(number % 90), Some(number), now)).collect();
        let total = Money((0..1_203).sum());
        let store = &database.store;
        store.insert_generations(&batch[..700]).await.unwrap();
        store.insert_generations(&batch).await.unwrap();
        store.insert_generations(&batch[600..]).await.unwrap();
        store.insert_generations(&[]).await.unwrap();
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), total);
        assert_eq!(database.number("SELECT COUNT(*) FROM generations").await, 1_203);
        assert_eq!(database.number("SELECT CAST(SUM(requests) AS BIGINT) FROM key_days").await, 1_203);

        let keys: Vec<_> = (0..150).map(hash).collect();
        let spends = store.key_spend(&tenant("org_1"), &keys, now).await.unwrap();
        assert_eq!(spends.len(), 90);
        for (number, key) in keys[..90].iter().enumerate() {
            let expected: usize = (number..1_203).step_by(90).sum();
            assert_eq!(spends[key].credit.day, Money(expected as i64), "{number}");
        }
    }

    /// As several nodes would: the same keys in other orders, and one batch twice at the same time.
    async fn writers_at_the_same_time_neither_lose_nor_repeat_anything(database: &Database) {
        let now = at("2026-09-02T12:00:00Z");
        let batches: Vec<Vec<_>> = (0..6_i64)
            .map(|writer| {
                let mut batch: Vec<_> = (0..80).map(|key| exchange(hash(key), Some(1), now)).collect();
                batch.rotate_left(writer as usize * 11);
                batch
            })
            .collect();
        let mut writers = JoinSet::new();
        for batch in batches.iter().chain([&batches[0], &batches[3]]) {
            let (store, batch) = (database.open_again().await, batch.clone());
            writers.spawn(async move {
                // Busy is for the caller to try again, and nothing of it may have been counted.
                while let Err(error) = store.insert_generations(&batch).await {
                    assert!(!matches!(error, tidegate_store::StoreError::Conflict), "{error:?}");
                }
                store.close().await;
            });
        }
        writers.join_all().await;
        assert_eq!(database.store.total_usage(&tenant("org_1")).await.unwrap(), Money(480));
    }

    async fn amounts_beyond_measure_stay_the_largest_there_is(database: &Database) {
        let now = at("2026-09-02T12:00:00Z");
        let store = &database.store;
        for day in [at("2026-09-01T00:00:00Z"), now, now] {
            store.insert_generations(&[exchange(hash("a"), Some(i64::MAX), day)]).await.unwrap();
        }
        let spends = store.key_spend(&tenant("org_1"), &[hash("a")], now).await.unwrap();
        assert_eq!(spends[&hash("a")].credit.all, Money(i64::MAX));
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), Money(i64::MAX));
    }
}
