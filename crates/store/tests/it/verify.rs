use tidegate_core::{Account, Exchange, Money, Posting, Slot, Timestamp, WorkspaceId, window};
use tidegate_store::ledger::Wanted;
use tidegate_store::spend::Totals;
use tidegate_store::verify::{Difference, LeaseFault, Verified};
use tokio::task::JoinSet;

use crate::databases::{Database, NOW, hash};
use crate::generations::{exchange, tenant};
use crate::{on_both, patiently};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn later(days: i64) -> Timestamp {
    Timestamp(NOW.0 + days * DAY_MS)
}

fn totals(credit: i64, byok: i64, requests: i64) -> Totals {
    Totals { credit: Money(credit), byok: Money(byok), requests }
}

/// Two keys in two workspaces on three days; 9 records, of which one is through an own credential, one has no price and
/// one cannot be true.
fn records() -> Vec<Exchange> {
    let mut records: Vec<Exchange> =
        (0..6).map(|number| exchange(hash("a"), Some(10_000_000_007 + number), later(number % 3))).collect();
    records.push(Exchange {
        is_byok: true,
        list_cost: Some(Money(500)),
        workspace: WorkspaceId("v".into()),
        ..exchange(hash("b"), Some(25), later(0))
    });
    let without = |cost| Exchange { workspace: WorkspaceId("v".into()), ..exchange(hash("b"), cost, later(1)) };
    records.extend([without(None), without(Some(-3))]);
    records
}

async fn verified(database: &Database) -> Verified {
    database.store.verify_spend().await.unwrap()
}

/// The accounts of the differences, without their kind's long name.
async fn differing(database: &Database) -> Vec<(String, i64, Totals, Totals)> {
    let name = |account: String| match account.strip_prefix("key:") {
        Some(hex) if hex == hash("a").to_hex() => "key a".to_owned(),
        Some(hex) if hex == hash("b").to_hex() => "key b".to_owned(),
        _ => account,
    };
    let found = verified(database).await.differences.into_iter().map(|difference| match difference {
        Difference::Day { account, day, stored, recorded, .. } => {
            (name(account), day - window::day(NOW), stored, recorded)
        }
        other => panic!("{other}"),
    });
    found.collect()
}

on_both! {
    async fn led_19_what_was_forwarded_adds_up_also_when_it_came_twice(database: &Database) {
        let none = Verified {
            generations: 0,
            archived: 0,
            accounts: 0,
            days: 0,
            leases: 0,
            differences: vec![],
            is_cut: false,
        };
        assert_eq!(verified(database).await, none);

        let slot = Slot::of(Account::Key(hash("a")), None, NOW);
        let wanted = Wanted { slot: &slot, limit: Money(1_000), counts_byok: false, least: Money(0), share: 1, only_recalls: false };
        database.store.lease("node", &wanted).await.unwrap();
        let mut batch = records();
        batch[0].postings.push(Posting { slot: slot.clone(), amount: Money(400) });
        database.store.forward("node", &batch[..4]).await.unwrap();
        database.store.forward("node", &batch).await.unwrap();
        database.store.insert_generations(&batch[3..]).await.unwrap();
        // Key a on 3 days, key b on 2; workspace w on 3, v on 2; the organisation on 3.
        let all = Verified { generations: 9, accounts: 5, days: 13, leases: 1, ..none };
        assert_eq!(verified(database).await, all);
    }

    async fn led_19_sums_beyond_measure_are_equal(database: &Database) {
        for _ in 0..3 {
            database.store.insert_generations(&[exchange(hash("a"), Some(i64::MAX), NOW)]).await.unwrap();
        }
        assert_eq!(verified(database).await.differences, []);
        assert_eq!(database.store.retire_generations(later(2), 2).await.unwrap(), 2);
        assert_eq!(verified(database).await.differences, []);
    }

    async fn led_19_a_changed_day_is_found_with_both_sums(database: &Database) {
        database.store.insert_generations(&records()).await.unwrap();
        let key = hash("b").to_hex();
        // Day 1 of key b: two records that cost nothing; day 0: 25 and 500 through the own credential.
        database.execute("UPDATE key_days SET credit_nanos = credit_nanos + 1 WHERE key_hash = $1", &[&key]).await;
        assert_eq!(
            differing(database).await,
            [
                ("key b".to_owned(), 0, totals(26, 500, 1), totals(25, 500, 1)),
                ("key b".to_owned(), 1, totals(1, 0, 2), totals(0, 0, 2)),
            ]
        );
        let text = verified(database).await.differences[0].to_string();
        assert_eq!(
            text,
            format!(
                "key:{key} of org_1 on 2026-09-21: stored $0.000000026 and $0.0000005 through own credentials in 1 \
                 requests, its records add up to $0.000000025 and $0.0000005 through own credentials in 1 requests"
            )
        );
    }

    async fn led_19_each_kind_of_tampering_is_found(database: &Database) {
        let (a, b) = (hash("a").to_hex(), hash("b").to_hex());
        database.store.insert_generations(&records()).await.unwrap();
        database.store.retire_generations(later(1), 100).await.unwrap();
        assert_eq!(verified(database).await.differences, []);
        let undone = |sql, back| (sql, back);
        // What is changed, what undoes it, and how many days of accounts then differ: a record counts in four, the last of them
        // by model.
        let cases = [
            (undone("UPDATE key_days SET byok_nanos = byok_nanos + 1 WHERE key_hash = $1",
                    "UPDATE key_days SET byok_nanos = byok_nanos - 1 WHERE key_hash = $1"), &b, 2),
            (undone("UPDATE key_days SET requests = requests - 1 WHERE key_hash = $1",
                    "UPDATE key_days SET requests = requests + 1 WHERE key_hash = $1"), &a, 3),
            (undone("UPDATE key_days SET credit_nanos = credit_nanos - 1000000000 WHERE key_hash = $1",
                    "UPDATE key_days SET credit_nanos = credit_nanos + 1000000000 WHERE key_hash = $1"), &a, 3),
            // It stands on both sides: without its records, and without its days.
            (undone("UPDATE key_days SET workspace_id = 'x' WHERE key_hash = $1",
                    "UPDATE key_days SET workspace_id = 'v' WHERE key_hash = $1"), &b, 4),
            (undone("UPDATE account_days SET credit_nanos = credit_nanos + 1 WHERE account = 'workspace:' || $1",
                    "UPDATE account_days SET credit_nanos = credit_nanos - 1 WHERE account = 'workspace:' || $1"), &"w".to_owned(), 3),
            (undone("UPDATE account_days SET account = 'organisation:x' WHERE account = 'organisation:' || $1",
                    "UPDATE account_days SET account = 'organisation:' || $1 WHERE account = 'organisation:x'"), &"org_1".to_owned(), 6),
            (undone("UPDATE spend_archive SET credit_nanos = credit_nanos + 1 WHERE key_hash = $1",
                    "UPDATE spend_archive SET credit_nanos = credit_nanos - 1 WHERE key_hash = $1"), &a, 4),
            // By model nothing was kept of days that were archived by releases that did not do it.
            (undone("UPDATE spend_archive SET day = day - 7 WHERE key_hash = $1",
                    "UPDATE spend_archive SET day = day + 7 WHERE key_hash = $1"), &b, 7),
            // Of key a one record is left on each of two days.
            (undone("UPDATE generations SET cost_nanos = cost_nanos - 1 WHERE key_hash = $1",
                    "UPDATE generations SET cost_nanos = cost_nanos + 1 WHERE key_hash = $1"), &a, 8),
            (undone("UPDATE generations SET started_at = started_at + 864000000 WHERE key_hash = $1",
                    "UPDATE generations SET started_at = started_at - 864000000 WHERE key_hash = $1"), &a, 16),
        ];
        for ((change, back), value, expected) in cases {
            database.execute(change, &[value]).await;
            assert_eq!(verified(database).await.differences.len(), expected, "{change}");
            database.execute(back, &[value]).await;
            assert_eq!(verified(database).await.differences, [], "{back}");
        }
        // What cannot be undone, each after a look that all was well: rows that are gone. Two records of key b cost
        // nothing and are missed all the same.
        for (sql, value, expected) in [
            ("DELETE FROM generations WHERE key_hash = $1", &b, 4),
            ("DELETE FROM spend_archive WHERE key_hash = $1", &b, 4 + 4),
            ("DELETE FROM key_days WHERE key_hash = $1", &a, 8 + 3),
        ] {
            database.execute(sql, &[value]).await;
            assert_eq!(verified(database).await.differences.len(), expected, "{sql}");
        }
    }

    async fn led_19_a_lease_that_cannot_be_is_found(database: &Database) {
        let slot = |name: &str| Slot::of(Account::Key(hash(name)), None, NOW);
        for name in ["a", "b", "c"] {
            let slot = slot(name);
            let wanted = Wanted { slot: &slot, limit: Money(1_000), counts_byok: false, least: Money(0), share: 1, only_recalls: false };
            database.store.lease("node", &wanted).await.unwrap();
        }
        assert_eq!(verified(database).await.differences, []);
        let (a, b) = (slot("a").to_string(), slot("b").to_string());
        database.execute("UPDATE ledger_leases SET amount = -1 WHERE slot = $1", &[&a]).await;
        database.execute("DELETE FROM ledger_slots WHERE slot = $1", &[&b]).await;
        let mut expected = [(a, -1, LeaseFault::Negative), (b, 1_000, LeaseFault::WithoutSlot)].map(
            |(slot, amount, reason)| Difference::Lease { slot, node: "node".to_owned(), amount: Money(amount), reason },
        );
        expected.sort_by_key(ToString::to_string);
        let mut found = verified(database).await.differences;
        found.sort_by_key(ToString::to_string);
        assert_eq!(found, expected);
    }

    async fn led_19_a_hundred_differences_are_told_and_that_there_are_more(database: &Database) {
        let batch: Vec<_> = (0..101).map(|key| exchange(hash(key), Some(1), NOW)).collect();
        database.store.insert_generations(&batch[..100]).await.unwrap();
        database.execute("UPDATE key_days SET credit_nanos = 2", &[]).await;
        let found = verified(database).await;
        assert_eq!((found.differences.len(), found.is_cut), (100, false));
        database.store.insert_generations(&batch[100..]).await.unwrap();
        database.execute("UPDATE key_days SET credit_nanos = 2", &[]).await;
        let found = verified(database).await;
        assert_eq!((found.differences.len(), found.is_cut), (100, true));
    }

    /// Whoever reads two tables one after the other would see records whose days it has not seen.
    async fn led_19_what_is_written_meanwhile_is_no_difference(database: &Database) {
        let mut others = JoinSet::new();
        for writer in 0..2 {
            let store = database.open_again().await;
            others.spawn(async move {
                for round in 0..40 {
                    let batch: Vec<_> =
                        (0..20).map(|key| exchange(hash(key), Some(writer + round), later(key % 4))).collect();
                    patiently!(store.forward("node", &batch));
                    patiently!(store.retire_generations(later(2), 7));
                }
                store.close().await;
            });
        }
        let mut looked = 0;
        while !others.is_empty() {
            assert_eq!(verified(database).await.differences, []);
            looked += 1;
            while others.try_join_next().transpose().unwrap().is_some() {}
        }
        let end = verified(database).await;
        assert_eq!((end.generations + end.archived, end.differences), (1_600, vec![]), "after {looked} looks");
    }

    async fn led_4_old_records_leave_and_what_they_added_stays(database: &Database) {
        let store = &database.store;
        let batch = records();
        store.insert_generations(&batch).await.unwrap();
        let (usage, at) = (store.total_usage(&tenant("org_1")).await.unwrap(), later(2));
        let spends = store.key_spend(&tenant("org_1"), &[hash("a"), hash("b")], at).await.unwrap();

        // The day of the instant stays whole, whatever the hour.
        let midnight = Timestamp(window::day(NOW) * DAY_MS);
        assert_eq!(store.retire_generations(Timestamp(midnight.0 + DAY_MS - 1), 100).await.unwrap(), 0);
        // Three records are of the first day: two of key a and one of key b.
        assert_eq!(store.retire_generations(Timestamp(midnight.0 + DAY_MS), 2).await.unwrap(), 2);
        assert_eq!(verified(database).await.differences, []);
        assert_eq!(store.retire_generations(Timestamp(midnight.0 + DAY_MS), 2).await.unwrap(), 1);
        assert_eq!(store.retire_generations(Timestamp(midnight.0 + DAY_MS), 2).await.unwrap(), 0);
        let after = verified(database).await;
        assert_eq!((after.generations, after.archived, after.differences), (6, 3, vec![]));
        assert!(store.find_generation(&tenant("org_1"), &batch[0].id).await.unwrap().is_none());
        assert!(store.find_generation(&tenant("org_1"), &batch[1].id).await.unwrap().is_some());
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), usage);
        assert_eq!(store.key_spend(&tenant("org_1"), &[hash("a"), hash("b")], at).await.unwrap(), spends);
        assert_eq!(database.number("SELECT COUNT(*) FROM spend_archive").await, 2);
        assert_eq!(
            database.number("SELECT CAST(SUM(credit_nanos) AS BIGINT) FROM spend_archive").await,
            10_000_000_007 + 10_000_000_010 + 25
        );
        assert_eq!(database.number("SELECT CAST(SUM(byok_nanos) AS BIGINT) FROM spend_archive").await, 500);

        // A record that comes late, for a day that is archived, adds to it as to any other.
        store.insert_generations(&[exchange(hash("a"), Some(4), later(0))]).await.unwrap();
        assert_eq!(verified(database).await.differences, []);
        assert_eq!(store.retire_generations(later(9), 100).await.unwrap(), 7);
        let after = verified(database).await;
        assert_eq!((after.generations, after.archived, after.differences), (0, 10, vec![]));
    }

    async fn led_4_nodes_that_remove_at_the_same_time_count_each_record_once(database: &Database) {
        let batch: Vec<_> = (0..600).map(|number| exchange(hash(number % 7), Some(1), later(number % 5))).collect();
        database.store.insert_generations(&batch).await.unwrap();
        let mut nodes = JoinSet::new();
        for _ in 0..4 {
            let store = database.open_again().await;
            nodes.spawn(async move {
                let mut removed = 0;
                loop {
                    match patiently!(store.retire_generations(later(5), 37)) {
                        0 => break,
                        some => removed += some,
                    }
                }
                store.close().await;
                removed
            });
        }
        assert_eq!(nodes.join_all().await.into_iter().sum::<u64>(), 600);
        let after = verified(database).await;
        assert_eq!((after.generations, after.archived, after.differences), (0, 600, vec![]));
    }
}
