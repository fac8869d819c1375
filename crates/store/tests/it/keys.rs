use std::collections::HashSet;

use tidegate_core::{KeyHash, KeyKind, Money, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::keys::{KeyFilter, KeyMatch, LimitReset, NewKey};
use tokio::task::JoinSet;

use crate::databases::{NOW, hash, new_key};
use crate::on_both;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

const ALL: KeyFilter<'static> =
    KeyFilter { workspace: None, kind: None, include_disabled: true, offset: 0, limit: 100 };

/// A key with every setting.
fn full_key(name: &str) -> NewKey {
    NewKey {
        kind: KeyKind::Management,
        limit: Some(Money(i64::MAX)),
        limit_reset: Some(LimitReset::Weekly),
        include_byok_in_limit: true,
        expires: Some(Timestamp(NOW.0 + 5)),
        creator: Some("user 1".to_owned()),
        ..new_key(name)
    }
}

on_both! {
    async fn key_2_a_key_is_found_by_its_hash_with_all_its_settings(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let full = store.create_key(&tenant, &made.workspace, full_key("full"), NOW).await.unwrap();
        let bare = store.create_key(&tenant, &made.workspace, new_key("bare"), NOW).await.unwrap();
        assert_eq!(full.limit, Some(Money(i64::MAX)));
        assert_eq!(store.find_key(&hash("full")).await.unwrap(), Some(full));
        assert_eq!(store.find_key(&hash("bare")).await.unwrap(), Some(bare));
        assert_eq!(store.find_key(&hash("none")).await.unwrap(), None);
    }

    async fn a_hash_can_be_stored_once(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let store = &database.store;
        let again = store.create_key(&tenant, &made.workspace, new_key("one"), NOW).await;
        assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
        assert!(store.delete_key(&tenant, &hash("one"), LATER).await.unwrap());
        let again = store.create_key(&tenant, &made.workspace, new_key("one"), LATER).await;
        assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
        assert_eq!(store.last_change().await.unwrap(), 3, "a refused write takes no number");
    }

    async fn key_6_a_disabled_key_says_so_and_a_deleted_one_is_gone(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, one) = (&database.store, hash("one"));
        assert!(store.set_key_disabled(&tenant, &one, true, LATER).await.unwrap());
        let key = store.find_key(&one).await.unwrap().unwrap();
        assert!(key.disabled && key.updated == Some(LATER) && key.change_seq > made.keys[0].change_seq);
        assert!(store.set_key_disabled(&tenant, &one, false, LATER).await.unwrap());
        assert!(!store.find_key(&one).await.unwrap().unwrap().disabled);

        assert!(store.delete_key(&tenant, &one, LATER).await.unwrap());
        assert_eq!(store.find_key(&one).await.unwrap(), None);
        assert_eq!(store.find_tenant_key(&tenant, &one).await.unwrap(), None);
        assert!(store.list_keys(&tenant, ALL).await.unwrap().is_empty());
        assert!(!store.delete_key(&tenant, &one, LATER).await.unwrap());
        assert!(!store.set_key_disabled(&tenant, &one, false, LATER).await.unwrap());
    }

    async fn ten_3_a_tenant_neither_sees_nor_touches_foreign_keys(database: &Database) {
        let (ours, made) = database.bootstrap(vec![new_key("ours")]).await;
        let (theirs, foreign_workspace) = database.other_tenant().await;
        let (store, key) = (&database.store, hash("ours"));

        assert!(!store.set_key_disabled(&theirs, &key, true, LATER).await.unwrap());
        assert!(!store.delete_key(&theirs, &key, LATER).await.unwrap());
        assert_eq!(store.find_tenant_key(&theirs, &key).await.unwrap(), None);
        assert!(store.list_keys(&theirs, ALL).await.unwrap().is_empty());
        let by_prefix = store.find_key_by_prefix(&theirs, &key.to_hex()[..8]).await.unwrap();
        assert!(matches!(by_prefix, KeyMatch::None));

        for (tenant, workspace) in [(&ours, &foreign_workspace), (&theirs, &made.workspace)] {
            let result = store.create_key(tenant, workspace, new_key("new"), NOW).await;
            assert!(matches!(result, Err(StoreError::Missing)), "{result:?}");
        }
        assert_eq!(store.find_key(&key).await.unwrap().as_ref(), Some(&made.keys[0]));
    }

    async fn a_key_cannot_be_put_into_a_deleted_workspace(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        database.execute("UPDATE workspaces SET deleted_at = 1 WHERE id = $1", &[&made.workspace.0]).await;
        let result = database.store.create_key(&tenant, &made.workspace, new_key("new"), NOW).await;
        assert!(matches!(result, Err(StoreError::Missing)), "{result:?}");
    }

    async fn keys_are_listed_newest_first_in_pages(database: &Database) {
        let manager = NewKey { kind: KeyKind::Management, ..new_key("manager") };
        let (tenant, made) = database.bootstrap(vec![manager]).await;
        let store = &database.store;
        for age in 1..=5 {
            store.create_key(&tenant, &made.workspace, new_key(age), Timestamp(NOW.0 + age)).await.unwrap();
        }
        store.set_key_disabled(&tenant, &hash(4), true, LATER).await.unwrap();

        let names = async |filter| {
            let keys = store.list_keys(&tenant, filter).await.unwrap();
            keys.iter().map(|key| key.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(ALL).await, "5 4 3 2 1 manager");
        assert_eq!(names(KeyFilter { offset: 1, limit: 2, ..ALL }).await, "4 3");
        assert_eq!(names(KeyFilter { include_disabled: false, ..ALL }).await, "5 3 2 1 manager");
        assert_eq!(names(KeyFilter { kind: Some(KeyKind::Inference), limit: 2, ..ALL }).await, "5 4");
        assert_eq!(names(KeyFilter { kind: Some(KeyKind::Management), ..ALL }).await, "manager");
        assert_eq!(names(KeyFilter { workspace: Some(&made.workspace), limit: 1, ..ALL }).await, "5");
        let (_, foreign) = database.other_tenant().await;
        assert_eq!(names(KeyFilter { workspace: Some(&foreign), ..ALL }).await, "");
    }

    async fn the_beginning_of_a_hash_finds_its_key_when_it_is_the_only_one(database: &Database) {
        let at = |first: [u8; 2]| {
            let mut hash = [7; 32];
            hash[..2].copy_from_slice(&first);
            NewKey { hash: KeyHash(hash), ..new_key("some") }
        };
        let (tenant, made) = database.bootstrap(vec![at([0xAB, 0xC1]), at([0xAB, 0xD1])]).await;
        let found = async |prefix: &str| database.store.find_key_by_prefix(&tenant, prefix).await.unwrap();

        for prefix in ["abc", "ABC1", &made.keys[0].hash.to_hex()] {
            assert!(matches!(found(prefix).await, KeyMatch::One(key) if *key == made.keys[0]), "{prefix}");
        }
        assert!(matches!(found("ab").await, KeyMatch::Several));
        for prefix in ["", "b", "abe", "%", "_bc", "a%", r"\", r"abc\", "abc1%"] {
            assert!(matches!(found(prefix).await, KeyMatch::None), "{prefix}");
        }
    }

    async fn key_4_all_live_keys_are_loaded_and_later_changes_follow(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key(1), new_key(2), new_key(3)]).await;
        let store = &database.store;
        store.delete_key(&tenant, &hash(2), LATER).await.unwrap();

        let mut loaded = Vec::new();
        let as_of = store.all_live_keys(|key| loaded.push(key)).await.unwrap();
        assert_eq!(loaded, [made.keys[0].clone(), made.keys[2].clone()]);
        assert_eq!(as_of, store.last_change().await.unwrap());
        assert!(store.keys_changed_after(as_of, 100).await.unwrap().is_empty());

        store.delete_key(&tenant, &hash(3), LATER).await.unwrap();
        store.set_key_disabled(&tenant, &hash(1), true, LATER).await.unwrap();
        let changed = store.keys_changed_after(as_of, 100).await.unwrap();
        let seen: Vec<_> = changed.iter().map(|key| (key.hash, key.deleted, key.disabled)).collect();
        assert_eq!(seen, [(hash(3), true, false), (hash(1), false, true)]);
        assert_eq!(store.keys_changed_after(as_of, 1).await.unwrap(), changed[..1]);
    }

    async fn key_4_the_load_gives_each_key_as_the_look_up_does(database: &Database) {
        let odd = NewKey { name: "a b\n- 1".to_owned(), label: String::new(), ..new_key("odd") };
        let (tenant, _) = database.bootstrap(vec![new_key("bare"), full_key("full"), full_key("off"), odd]).await;
        let store = &database.store;
        store.set_key_disabled(&tenant, &hash("off"), true, LATER).await.unwrap();

        let mut loaded = Vec::new();
        store.all_live_keys(|key| loaded.push(key)).await.unwrap();
        assert_eq!(loaded.len(), 4);
        for key in loaded {
            assert_eq!(store.find_key(&key.hash).await.unwrap(), Some(key));
        }
    }

    /// Numbers that became visible out of order would let the poller pass over a key for ever.
    async fn key_4_a_poller_sees_every_change_once_and_in_order(database: &Database) {
        const WRITERS: i64 = 4;
        const KEYS_EACH: i64 = 12;
        let (tenant, made) = database.bootstrap(vec![]).await;
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            // Half of them as another process would.
            let store = if writer % 2 == 0 { database.store.clone() } else { database.open_again().await };
            let (tenant, workspace) = (tenant.clone(), made.workspace.clone());
            writers.spawn(async move {
                for number in 0..KEYS_EACH {
                    let key = new_key(writer * 1000 + number);
                    store.create_key(&tenant, &workspace, key, NOW).await.unwrap();
                }
            });
        }
        let (mut seen, mut last) = (Vec::new(), 0);
        loop {
            // Looked at before the poll: what was committed by then must be seen by it.
            while let Some(finished) = writers.try_join_next() {
                finished.unwrap();
            }
            let all_written = writers.is_empty();
            let page = database.store.keys_changed_after(last, 7).await.unwrap();
            if page.is_empty() && all_written {
                break;
            }
            for key in page {
                assert!(key.change_seq > last);
                last = key.change_seq;
                seen.push(key.hash);
            }
            tokio::task::yield_now().await;
        }
        let expected: HashSet<_> =
            (0..WRITERS).flat_map(|writer| (0..KEYS_EACH).map(move |number| hash(writer * 1000 + number))).collect();
        assert_eq!(seen.len(), expected.len());
        assert_eq!(seen.into_iter().collect::<HashSet<_>>(), expected);
    }
}
