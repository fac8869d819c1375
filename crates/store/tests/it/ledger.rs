use std::collections::HashMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_core::{Account, Exchange, Guarded, Money, OrganisationId, Posting, Slot, Timestamp, Window, WorkspaceId};
use tidegate_store::budgets::Interval;
use tidegate_store::credits::Granting;
use tidegate_store::idempotency::Once;
use tidegate_store::ledger::{Granted, Wanted};
use tidegate_store::workspaces::NewWorkspace;
use tidegate_store::{Store, StoreError};
use tokio::task::JoinSet;

use crate::databases::{Database, NOW, by, hash};
use crate::generations::{exchange, tenant};
use crate::{on_both, patiently};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn key_slot(name: impl ToString, window: Option<Window>) -> Slot {
    Slot::of(Account::Key(hash(name)), window, NOW)
}

fn wanted(slot: &Slot, limit: i64, least: i64, share: u32) -> Wanted<'_> {
    Wanted { slot, limit: Money(limit), counts_byok: false, least: Money(least), share, only_recalls: false }
}

fn leased(amount: i64) -> Granted {
    Granted::Leased(Money(amount))
}

fn refused(remaining: i64, elsewhere: i64) -> Granted {
    Granted::Refused { remaining: Money(remaining), elsewhere: Money(elsewhere) }
}

/// A finished call of a key that counts towards a slot.
fn spent(key: impl ToString, slot: &Slot, amount: i64) -> Exchange {
    let postings = vec![Posting { slot: slot.clone(), amount: Money(amount) }];
    Exchange { postings, ..exchange(hash(key), Some(amount), NOW) }
}

/// What the nodes hold of a slot, asked behind the store's back.
async fn held(database: &Database, slot: &Slot) -> HashMap<String, i64> {
    let sql = "SELECT node_id, amount FROM ledger_leases WHERE slot = $1";
    let rows: Vec<(String, i64)> = match &database.store {
        Store::Sqlite { readers, .. } => sqlx::query_as(sql).bind(slot.to_string()).fetch_all(readers).await.unwrap(),
        Store::Postgres(pool) => sqlx::query_as(sql).bind(slot.to_string()).fetch_all(pool).await.unwrap(),
    };
    rows.into_iter().collect()
}

on_both! {
    async fn led_22_leases_at_the_same_time_never_pass_the_limit_and_use_all_of_it(database: &Database) {
        let slot = key_slot("a", Some(Window::Monthly));
        // Already spent, before there was a limit.
        database.store.insert_generations(&[exchange(hash("a"), Some(1_000), NOW)]).await.unwrap();
        let limit = 101_003;
        let mut takers = JoinSet::new();
        for task in 0..8 {
            let (store, slot) = (database.open_again().await, slot.clone());
            takers.spawn(async move {
                let node = format!("node-{}", task % 3);
                let mut sum = 0;
                while let Granted::Leased(amount) = patiently!(store.lease(&node, &wanted(&slot, limit, 3, 3))) {
                    sum += amount.0;
                }
                store.close().await;
                sum
            });
        }
        let taken: i64 = takers.join_all().await.into_iter().sum();
        assert!((limit - 1_000 - 2..=limit - 1_000).contains(&taken), "{taken}");
        assert_eq!(held(database, &slot).await.values().sum::<i64>(), taken);
        // One that spends alone takes the rest at once.
        let rest = limit - 1_000 - taken;
        let elsewhere = Money(taken - held(database, &slot).await["node-0"]);
        let expected = if rest > 0 { leased(rest) } else { Granted::Nothing { elsewhere } };
        assert_eq!(database.store.lease("node-0", &wanted(&slot, limit, 0, 1)).await.unwrap(), expected);
    }

    async fn led_22_a_refused_node_is_served_when_the_others_give_back(database: &Database) {
        let (store, slot) = (&database.store, key_slot("a", None));
        assert_eq!(store.lease("one", &wanted(&slot, 100, 10, 1)).await.unwrap(), leased(100));
        assert!(store.called_for("one").await.unwrap().is_empty());
        assert_eq!(store.lease("two", &wanted(&slot, 100, 10, 2)).await.unwrap(), refused(0, 100));
        assert_eq!(store.called_for("one").await.unwrap(), std::slice::from_ref(&slot));
        assert!(store.called_for("two").await.unwrap().is_empty());
        // The holder's own refusal asks nobody, as nobody else holds anything.
        assert_eq!(store.lease("one", &wanted(&slot, 100, 10, 2)).await.unwrap(), refused(0, 0));

        store.give_back("one", &[(slot.clone(), Money(60))]).await.unwrap();
        assert_eq!(store.lease("two", &wanted(&slot, 100, 10, 2)).await.unwrap(), leased(10));
        assert!(store.called_for("one").await.unwrap().is_empty(), "it has what it asked for");
        assert_eq!(held(database, &slot).await, HashMap::from([("one".to_owned(), 40), ("two".to_owned(), 10)]));

        // More than is held leaves nothing, also when it comes in parts.
        store.give_back("one", &[(slot.clone(), Money(30)), (slot.clone(), Money(30))]).await.unwrap();
        store.give_back("three", &[(slot.clone(), Money(30))]).await.unwrap();
        assert_eq!(held(database, &slot).await, HashMap::from([("two".to_owned(), 10)]));
    }

    async fn led_21_what_is_forwarded_counts_once_and_is_no_longer_leased(database: &Database) {
        let (store, slot) = (&database.store, key_slot("a", Some(Window::Daily)));
        let workspace = Slot::of(Account::Workspace(WorkspaceId("w".into())), None, NOW);
        assert_eq!(store.lease("one", &wanted(&slot, 1_000, 0, 1)).await.unwrap(), leased(1_000));
        assert_eq!(store.lease("one", &wanted(&workspace, 500, 0, 1)).await.unwrap(), leased(500));
        let mut batch: Vec<_> = (0..70).map(|_| spent("a", &slot, 10)).collect();
        for exchange in &mut batch[..3] {
            exchange.postings.push(Posting { slot: workspace.clone(), amount: Money(200) });
        }
        store.forward("one", &batch[..50]).await.unwrap();
        store.forward("one", &batch).await.unwrap();
        store.forward("one", &batch[20..]).await.unwrap();
        assert_eq!(held(database, &slot).await["one"], 300);
        assert!(held(database, &workspace).await.is_empty(), "more was spent than leased");
        // Another node sees all of it: posted 700, leased 300.
        assert_eq!(store.lease("two", &wanted(&slot, 1_100, 100, 2)).await.unwrap(), leased(100));
        assert_eq!(store.lease("two", &wanted(&workspace, 700, 1, 2)).await.unwrap(), refused(0, 0));
        assert_eq!(database.number("SELECT CAST(SUM(requests) AS BIGINT) FROM account_days").await, 140);
    }

    async fn led_21_overlapping_batches_at_the_same_time_count_once(database: &Database) {
        let slots: Vec<_> = (0..40).map(|key| key_slot(key, None)).collect();
        for slot in &slots {
            database.store.lease("one", &wanted(slot, 1_000, 0, 1)).await.unwrap();
        }
        let all: Vec<_> = (0..400).map(|number| spent(number % 40, &slots[number % 40], 1)).collect();
        let mut writers = JoinSet::new();
        for (from, to, turned) in [(0, 300, 0), (100, 400, 17), (0, 400, 211)] {
            let (store, mut batch) = (database.open_again().await, all[from..to].to_vec());
            batch.rotate_left(turned);
            writers.spawn(async move {
                patiently!(store.forward("one", &batch));
                store.close().await;
            });
        }
        writers.join_all().await;
        assert_eq!(database.store.total_usage(&tenant("org_1")).await.unwrap(), Money(400));
        for slot in &slots {
            assert_eq!(held(database, slot).await["one"], 990, "{slot}");
        }
    }

    /// Different calls, the same accounts: nodes wait for each other, in the same order.
    async fn nodes_that_forward_and_lease_at_the_same_time_do_not_lock_each_other_out(database: &Database) {
        let slots: Vec<_> = (0..30).map(|key| key_slot(key, None)).collect();
        let mut nodes = JoinSet::new();
        for node in 0..4_usize {
            let (store, slots) = (database.open_again().await, slots.clone());
            nodes.spawn(async move {
                let name = format!("node-{node}");
                for round in 0..4 {
                    let mut batch: Vec<_> = (0..30).map(|key| spent(key, &slots[key], 1)).collect();
                    batch.rotate_left(node * 7 + round);
                    for slot in &slots[node..node + 3] {
                        patiently!(store.lease(&name, &wanted(slot, 10_000, 5, 4)));
                    }
                    let error = store.forward(&name, &batch).await.err();
                    assert!(error.is_none() || matches!(store, Store::Sqlite { .. }), "{error:?}");
                    patiently!(store.forward(&name, &batch));
                }
                store.close().await;
            });
        }
        nodes.join_all().await;
        assert_eq!(database.store.total_usage(&tenant("org_1")).await.unwrap(), Money(480));
    }

    async fn led_6_what_was_spent_yesterday_does_not_count_today(database: &Database) {
        let store = &database.store;
        let yesterday = Timestamp(NOW.0 - DAY_MS);
        let batch = [exchange(hash("a"), Some(70), yesterday), exchange(hash("a"), Some(5), NOW)];
        store.insert_generations(&batch).await.unwrap();
        let account = Account::Organisation(OrganisationId("org_1".into()));
        for account in [Account::Key(hash("a")), Account::Workspace(WorkspaceId("w".into())), account] {
            let slot = |window, at| Slot::of(account.clone(), window, at);
            let (today, before) = (slot(Some(Window::Daily), NOW), slot(Some(Window::Daily), yesterday));
            assert_eq!(store.lease("one", &wanted(&today, 100, 1, 1)).await.unwrap(), leased(95));
            assert_eq!(store.lease("one", &wanted(&before, 100, 1, 1)).await.unwrap(), leased(30));
            let month = slot(Some(Window::Monthly), NOW);
            assert_eq!(store.lease("one", &wanted(&month, 100, 1, 1)).await.unwrap(), leased(25));
            let tomorrow = slot(Some(Window::Daily), Timestamp(NOW.0 + DAY_MS));
            assert_eq!(store.lease("one", &wanted(&tomorrow, 100, 1, 1)).await.unwrap(), leased(100));
        }
    }

    async fn a_limit_below_what_is_spent_leaves_nothing(database: &Database) {
        let (store, slot) = (&database.store, key_slot("a", None));
        assert_eq!(store.lease("one", &wanted(&slot, 100, 1, 1)).await.unwrap(), leased(100));
        store.forward("one", &[spent("a", &slot, 60)]).await.unwrap();
        assert_eq!(store.lease("one", &wanted(&slot, 50, 1, 1)).await.unwrap(), refused(-50, 0));
        store.give_back("one", &[(slot.clone(), Money(40))]).await.unwrap();
        assert_eq!(store.lease("one", &wanted(&slot, 50, 0, 1)).await.unwrap(), refused(-10, 0));
        let nothing = Granted::Nothing { elsewhere: Money::ZERO };
        assert_eq!(store.lease("one", &wanted(&slot, 60, 0, 1)).await.unwrap(), nothing);
        assert!(held(database, &slot).await.is_empty());
        assert_eq!(store.lease("one", &wanted(&slot, i64::MAX, 0, 1)).await.unwrap(), leased(i64::MAX - 60));
    }

    async fn customers_own_credentials_count_only_where_they_should(database: &Database) {
        let store = &database.store;
        let byok = Exchange { is_byok: true, list_cost: Some(Money(70)), ..exchange(hash("a"), Some(3), NOW) };
        store.insert_generations(&[byok, exchange(hash("a"), Some(10), NOW)]).await.unwrap();
        for account in [Account::Key(hash("a")), Account::Organisation(OrganisationId("org_1".into()))] {
            let slot = Slot::of(account, None, NOW);
            let without = wanted(&slot, 100, 90, 1);
            assert_eq!(store.lease("one", &Wanted { counts_byok: true, ..without }).await.unwrap(), refused(17, 0));
            assert_eq!(store.lease("one", &Wanted { least: Money(1), ..without }).await.unwrap(), leased(87));
        }
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), Money(13), "the fee is paid in credits");
    }

    async fn accounts_without_days_have_no_leases(database: &Database) {
        for account in [Account::Member("u".into()), Account::Guardrail("g".into())] {
            let slot = Slot::of(account, None, NOW);
            let error = database.store.lease("one", &wanted(&slot, 1, 1, 1)).await.unwrap_err();
            assert!(matches!(error, StoreError::Missing), "{error:?}");
        }
    }

    async fn a_guardrail_counts_what_its_key_or_member_spent(database: &Database) {
        let store = &database.store;
        store.insert_generations(&[exchange(hash("a"), Some(30), NOW), exchange(hash("b"), Some(50), NOW)]).await.unwrap();
        let of_key = Slot::of(Account::guarded("g", Guarded::Key(hash("a"))), None, NOW);
        assert_eq!(store.lease("one", &wanted(&of_key, 100, 1, 1)).await.unwrap(), leased(70));
        assert_eq!(store.lease("one", &wanted(&of_key, 100, 1, 1)).await.unwrap(), refused(0, 0));
        // The same key under another guardrail has that one's whole budget.
        let other = Slot::of(Account::guarded("h", Guarded::Key(hash("a"))), None, NOW);
        assert_eq!(store.lease("one", &wanted(&other, 100, 1, 1)).await.unwrap(), leased(70));
        let of_member = Slot::of(Account::guarded("g", Guarded::Member("user_1")), None, NOW);
        assert_eq!(store.lease("one", &wanted(&of_member, 100, 1, 1)).await.unwrap(), leased(100), "who has no key");
    }

    async fn led_23_what_a_lost_node_held_is_there_again(database: &Database) {
        let (store, slot) = (&database.store, key_slot("a", None));
        assert_eq!(store.beat("one", 1).await.unwrap(), (1, false));
        assert_eq!(store.beat("two", 1).await.unwrap(), (2, false));
        assert_eq!(store.beat("two", 1).await.unwrap(), (2, true));
        assert_eq!(store.lease("one", &wanted(&slot, 100, 1, 1)).await.unwrap(), leased(100));
        assert_eq!(store.reclaim(40_000).await.unwrap(), 0);
        database.execute("UPDATE ledger_nodes SET beat_at = beat_at - 50000 WHERE id = 'one'", &[]).await;
        assert_eq!(store.beat("two", 1).await.unwrap(), (1, true));
        assert_eq!(store.lease("two", &wanted(&slot, 100, 1, 1)).await.unwrap(), refused(0, 100));
        assert_eq!(store.reclaim(60_000).await.unwrap(), 0, "not yet");
        assert_eq!(store.reclaim(40_000).await.unwrap(), 1);
        assert_eq!(store.lease("two", &wanted(&slot, 100, 1, 1)).await.unwrap(), leased(100));
        // It was alive after all: what it spent still counts.
        store.forward("one", &[spent("a", &slot, 30)]).await.unwrap();
        assert_eq!(store.total_usage(&tenant("org_1")).await.unwrap(), Money(30));
        assert_eq!(held(database, &slot).await, HashMap::from([("two".to_owned(), 100)]));
        assert_eq!(store.beat("one", 1).await.unwrap(), (2, false), "it is told that it holds nothing any more");
        assert_eq!(store.beat("one", 1).await.unwrap(), (2, true));
        assert_eq!(store.leases_of("two").await.unwrap(), [(slot, Money(100))]);
    }

    async fn led_18_a_node_that_starts_again_holds_nothing(database: &Database) {
        let (store, slot) = (&database.store, key_slot("a", None));
        store.take_over("one", 1).await.unwrap();
        for node in ["one", "two"] {
            assert_eq!(store.lease(node, &wanted(&slot, 100, 50, 9)).await.unwrap(), leased(50));
        }
        store.take_over("one", 2).await.unwrap();
        assert_eq!(held(database, &slot).await, HashMap::from([("two".to_owned(), 50)]));
        assert_eq!(store.lease("one", &wanted(&slot, 100, 50, 9)).await.unwrap(), leased(50));
        assert_eq!(database.number("SELECT epoch FROM ledger_nodes WHERE id = 'one'").await, 2);
    }

    async fn slots_that_nobody_uses_are_cleared_away(database: &Database) {
        let store = &database.store;
        let kept = key_slot("kept", None);
        store.lease("one", &wanted(&kept, 10, 1, 1)).await.unwrap();
        for number in 0..120 {
            let slot = key_slot(number, Some(Window::Daily));
            store.lease("one", &wanted(&slot, 10, 1, 1)).await.unwrap();
            store.give_back("one", &[(slot, Money(10))]).await.unwrap();
        }
        assert_eq!(store.reclaim(60_000).await.unwrap(), 0);
        assert_eq!(database.number("SELECT COUNT(*) FROM ledger_slots").await, 1);
        assert_eq!(held(database, &kept).await["one"], 10);
    }

    async fn every_change_of_a_limit_is_numbered(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, by) = (&database.store, by(NOW));
        let new = NewWorkspace { name: "B".into(), slug: "b".into(), created_by: None, settings: Default::default() };
        let other = store.create_workspace(&tenant, &by, new).await.unwrap().id;
        let mut last = store.limits_seq().await.unwrap();
        let mut changed = async |expected: bool| {
            let now = store.limits_seq().await.unwrap();
            assert_eq!(now > last, expected, "{last} {now}");
            last = now;
        };
        assert!(store.all_budgets().await.unwrap().is_empty() && store.all_grants().await.unwrap().is_empty());
        for (workspace, interval, limit, byok) in [
            (&made.workspace, Interval::Daily, 10, Some(true)),
            (&made.workspace, Interval::Lifetime, 1_000, None),
            (&other, Interval::Weekly, 5, None),
        ] {
            store.put_budget(&tenant, &by, workspace, interval, Money(limit), byok).await.unwrap().unwrap();
            changed(true).await;
        }
        let all: HashMap<_, _> =
            store.all_budgets().await.unwrap().into_iter().map(|(_, id, byok, limits)| (id, (byok, limits))).collect();
        let limits = vec![(Interval::Lifetime, Money(1_000)), (Interval::Daily, Money(10))];
        assert_eq!(all[&made.workspace], (true, limits));
        assert_eq!(all[&other], (false, vec![(Interval::Weekly, Money(5))]));

        store.delete_budget(&tenant, &by, &made.workspace, Interval::Daily).await.unwrap();
        changed(true).await;
        store.delete_budget(&tenant, &by, &made.workspace, Interval::Daily).await.unwrap();
        changed(false).await;
        store.delete_workspace(&tenant, &by, &other).await.unwrap();
        changed(true).await;
        assert_eq!(store.all_budgets().await.unwrap().len(), 1);
        store.grant_credits(&tenant, &by, Money(7), None).await.unwrap();
        changed(true).await;
    }

    async fn granted_credits_add_up(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let (other, _) = database.other_tenant().await;
        let store = &database.store;
        let first = store.grant_credits(&tenant, &by(NOW), Money(7), Some("for a start")).await.unwrap();
        let second = store.grant_credits(&tenant, &by(Timestamp(NOW.0 + 1)), Money::LARGEST, None).await.unwrap();
        let (page, total) = store.list_grants(&tenant, 0, 10).await.unwrap();
        assert_eq!((page, total), (vec![second.clone(), first.clone()], 2));
        assert_eq!(store.list_grants(&tenant, 1, 1).await.unwrap(), (vec![first.clone()], 2));
        assert_eq!(store.list_grants(&other, 0, 10).await.unwrap(), (vec![], 0));
        let sum = Money(Money::LARGEST.0 + 7);
        assert_eq!(store.all_grants().await.unwrap(), [(tenant.organisation.clone(), sum)]);
        assert_eq!((store.total_granted(&tenant).await.unwrap(), store.total_granted(&other).await.unwrap()), (sum, Money(0)));
        let audited = database.audited(&tenant).await;
        assert!(audited.ends_with(&[("credits.granted".into(), first.id), ("credits.granted".into(), second.id)]));
    }

    async fn idm_1_a_grant_that_comes_again_gives_nothing_more(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let (other, _) = database.other_tenant().await;
        let store = &database.store;
        let once = |body: &str| Once::new("name", "POST /credits/grants", body.as_bytes());
        let grant = async |tenant, at, body| {
            store.grant_credits_once(tenant, &by(at), Money(7), Some("n"), Some(&once(body))).await.unwrap()
        };
        let Granting::New(first) = grant(&tenant, NOW, "a").await else { panic!("nothing was before it") };
        assert_eq!(grant(&tenant, Timestamp(NOW.0 + 5), "a").await, Granting::Before(first));
        assert_eq!(grant(&tenant, NOW, "b").await, Granting::Misused);
        // Names are an organisation's own, and forgotten after a day.
        assert!(matches!(grant(&other, NOW, "a").await, Granting::New(_)));
        assert_eq!(store.total_granted(&tenant).await.unwrap(), Money(7));
        assert!(matches!(grant(&tenant, Timestamp(NOW.0 + DAY_MS), "a").await, Granting::New(_)));
        assert_eq!(store.total_granted(&tenant).await.unwrap(), Money(14));
        let granted = database.audited(&tenant).await.iter().filter(|(action, _)| action == "credits.granted").count();
        assert_eq!(granted, 2);
    }

    /// Against a reference that cannot be wrong about sums: a number for what is posted and one for each node.
    async fn any_sequence_keeps_the_sums(database: &Database) {
        let mut runner = TestRunner::deterministic();
        let steps = prop::collection::vec(step(), 1..30);
        for case in 0..24 {
            let steps = steps.new_tree(&mut runner).unwrap().current();
            run(database, case, &steps).await;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lease {
        least: i64,
        share: u32,
    },
    /// A part of the lease, in percent, perhaps sent twice; above 100 more is spent than was leased.
    Forward {
        percent: i64,
        twice: bool,
    },
    GiveBack {
        percent: i64,
    },
    TakeOver,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let step = prop_oneof![
        4 => (0_i64..400, 0_u32..4).prop_map(|(least, share)| Step::Lease { least, share }),
        4 => (0_i64..=100, any::<bool>()).prop_map(|(percent, twice)| Step::Forward { percent, twice }),
        1 => (100_i64..150, any::<bool>()).prop_map(|(percent, twice)| Step::Forward { percent, twice }),
        2 => (0_i64..150).prop_map(|percent| Step::GiveBack { percent }),
        1 => Just(Step::TakeOver),
    ];
    (0_usize..3, step)
}

async fn run(database: &Database, case: usize, steps: &[(usize, Step)]) {
    const LIMIT: i64 = 1_000;
    let (store, slot) = (&database.store, key_slot(format!("case {case}"), Some(Window::Weekly)));
    let names = ["one", "two", "three"];
    let (mut posted, mut leases, mut overshot) = (0, [0_i64; 3], 0);
    for (node, step) in steps {
        let (name, lease) = (names[*node], leases[*node]);
        match *step {
            Step::Lease { least, share } => {
                let elsewhere = leases.iter().sum::<i64>() - lease;
                let remaining = LIMIT - posted - lease - elsewhere;
                let part = if share <= 1 { remaining } else { remaining / (4 * i64::from(share)) };
                let expected = match remaining >= least {
                    true => leased(part.max(least)),
                    false => refused(remaining, elsewhere),
                };
                assert_eq!(
                    store.lease(name, &wanted(&slot, LIMIT, least, share)).await.unwrap(),
                    expected,
                    "{steps:?}"
                );
                if let Granted::Leased(amount) = expected {
                    leases[*node] += amount.0;
                }
            }
            Step::Forward { percent, twice } => {
                let amount = lease * percent / 100;
                let batch = [spent(format!("case {case}"), &slot, amount)];
                for _ in 0..=usize::from(twice) {
                    store.forward(name, &batch).await.unwrap();
                }
                posted += amount;
                leases[*node] = (lease - amount).max(0);
                overshot += (amount - lease).max(0);
            }
            Step::GiveBack { percent } => {
                let amount = lease * percent / 100;
                store.give_back(name, &[(slot.clone(), Money(amount))]).await.unwrap();
                leases[*node] = (lease - amount).max(0);
            }
            Step::TakeOver => {
                store.take_over(name, 1).await.unwrap();
                leases[*node] = 0;
            }
        }
        let held = held(database, &slot).await;
        let seen = names.map(|name| held.get(name).copied().unwrap_or(0));
        assert_eq!(seen, leases, "{steps:?}");
        let spends = store.key_spend(&tenant("org_1"), &[hash(format!("case {case}"))], NOW).await.unwrap();
        assert_eq!(spends.values().map(|spend| spend.credit.week.0).sum::<i64>(), posted, "{steps:?}");
        let total = posted + leases.iter().sum::<i64>();
        assert!(total - overshot <= LIMIT, "{total} {overshot} {steps:?}");
    }
}
