use std::collections::HashSet;

use tidegate_core::{KeyHash, KeyKind, Money, Timestamp, WorkspaceId};
use tidegate_store::keys::{KeyChange, KeyFilter, KeyMatch, LimitReset, NewKey};
use tidegate_store::members::{NewMember, Role};
use tidegate_store::{Refused, StoreError};
use tokio::task::JoinSet;

use crate::databases::{NOW, by, hash, member, new_key, with_postgres};
use crate::on_both;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

const ALL: KeyFilter<'static> =
    KeyFilter { workspace: None, kind: None, creator: None, include_disabled: true, offset: 0, limit: 100 };

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
        let owner = store.add_member(&tenant, &by(NOW), member("a@b.example")).await.unwrap();
        let full = NewKey { creator: Some(owner.id), external_user: Some("u 1".to_owned()), ..full_key("full") };
        let full = store.create_key(&tenant, &by(NOW), &made.workspace, full).await.unwrap();
        let bare = store.create_key(&tenant, &by(NOW), &made.workspace, new_key("bare")).await.unwrap();
        assert_eq!(full.limit, Some(Money(i64::MAX)));
        assert_eq!(store.find_key(&hash("full")).await.unwrap(), Some(full));
        assert_eq!(store.find_key(&hash("bare")).await.unwrap(), Some(bare));
        assert_eq!(store.find_key(&hash("none")).await.unwrap(), None);
    }

    async fn a_hash_can_be_stored_once(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let store = &database.store;
        let again = store.create_key(&tenant, &by(NOW), &made.workspace, new_key("one")).await;
        assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
        assert!(store.delete_key(&tenant, &by(LATER), &hash("one"), None).await.unwrap());
        let again = store.create_key(&tenant, &by(LATER), &made.workspace, new_key("one")).await;
        assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
        assert_eq!(store.last_change().await.unwrap(), 3, "a refused write takes no number");
    }

    async fn key_6_a_disabled_key_says_so_and_a_deleted_one_is_gone(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, one) = (&database.store, hash("one"));
        assert!(store.set_key_disabled(&tenant, &by(LATER), &one, true).await.unwrap());
        let key = store.find_key(&one).await.unwrap().unwrap();
        assert!(key.disabled && key.updated == Some(LATER) && key.change_seq > made.keys[0].change_seq);
        assert!(store.set_key_disabled(&tenant, &by(LATER), &one, false).await.unwrap());
        assert!(!store.find_key(&one).await.unwrap().unwrap().disabled);

        assert!(store.delete_key(&tenant, &by(LATER), &one, None).await.unwrap());
        assert_eq!(store.find_key(&one).await.unwrap(), None);
        assert_eq!(store.find_tenant_key(&tenant, &one, None).await.unwrap(), None);
        assert!(store.list_keys(&tenant, ALL).await.unwrap().is_empty());
        assert!(!store.delete_key(&tenant, &by(LATER), &one, None).await.unwrap());
        assert!(!store.set_key_disabled(&tenant, &by(LATER), &one, false).await.unwrap());
    }

    async fn ten_3_a_tenant_neither_sees_nor_touches_foreign_keys(database: &Database) {
        let (ours, made) = database.bootstrap(vec![new_key("ours")]).await;
        let (theirs, foreign_workspace) = database.other_tenant().await;
        let (store, key) = (&database.store, hash("ours"));

        assert!(!store.set_key_disabled(&theirs, &by(LATER), &key, true).await.unwrap());
        assert!(!store.delete_key(&theirs, &by(LATER), &key, None).await.unwrap());
        assert_eq!(store.find_tenant_key(&theirs, &key, None).await.unwrap(), None);
        assert!(store.list_keys(&theirs, ALL).await.unwrap().is_empty());
        let by_prefix = store.find_key_by_prefix(&theirs, &key.to_hex()[..8]).await.unwrap();
        assert!(matches!(by_prefix, KeyMatch::None));

        for (tenant, workspace) in [(&ours, &foreign_workspace), (&theirs, &made.workspace)] {
            let result = store.create_key(tenant, &by(NOW), workspace, new_key("new")).await;
            assert!(matches!(result, Err(StoreError::Missing)), "{result:?}");
        }
        assert_eq!(store.find_key(&key).await.unwrap().as_ref(), Some(&made.keys[0]));
    }

    async fn a_key_cannot_be_put_into_a_deleted_workspace(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        database.execute("UPDATE workspaces SET deleted_at = 1 WHERE id = $1", &[&made.workspace.0]).await;
        let result = database.store.create_key(&tenant, &by(NOW), &made.workspace, new_key("new")).await;
        assert!(matches!(result, Err(StoreError::Missing)), "{result:?}");
    }

    async fn keys_are_listed_newest_first_in_pages(database: &Database) {
        let manager = NewKey { kind: KeyKind::Management, ..new_key("manager") };
        let (tenant, made) = database.bootstrap(vec![manager]).await;
        let store = &database.store;
        for age in 1..=5 {
            store.create_key(&tenant, &by(Timestamp(NOW.0 + age)), &made.workspace, new_key(age)).await.unwrap();
        }
        store.set_key_disabled(&tenant, &by(LATER), &hash(4), true).await.unwrap();

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
        store.delete_key(&tenant, &by(LATER), &hash(2), None).await.unwrap();

        let mut loaded = Vec::new();
        let as_of = store.all_live_keys(|key| loaded.push(key)).await.unwrap();
        assert_eq!(loaded, [made.keys[0].clone(), made.keys[2].clone()]);
        assert_eq!(as_of, store.last_change().await.unwrap());
        assert!(store.keys_changed_after(as_of, 100).await.unwrap().is_empty());

        store.delete_key(&tenant, &by(LATER), &hash(3), None).await.unwrap();
        store.set_key_disabled(&tenant, &by(LATER), &hash(1), true).await.unwrap();
        let changed = store.keys_changed_after(as_of, 100).await.unwrap();
        let seen: Vec<_> = changed.iter().map(|key| (key.hash, key.deleted, key.disabled)).collect();
        assert_eq!(seen, [(hash(3), true, false), (hash(1), false, true)]);
        assert_eq!(store.keys_changed_after(as_of, 1).await.unwrap(), changed[..1]);
    }

    async fn key_4_the_load_gives_each_key_as_the_look_up_does(database: &Database) {
        let odd = NewKey { name: "a b\n- 1".to_owned(), label: String::new(), ..new_key("odd") };
        let (tenant, _) = database.bootstrap(vec![new_key("bare"), full_key("full"), full_key("off"), odd]).await;
        let store = &database.store;
        store.set_key_disabled(&tenant, &by(LATER), &hash("off"), true).await.unwrap();

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
                    store.create_key(&tenant, &by(NOW), &workspace, key).await.unwrap();
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

    async fn a_change_sets_what_it_names_and_leaves_the_rest(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, one) = (&database.store, hash("one"));
        let update = async |change: KeyChange| {
            let changed = store.update_key(&tenant, &by(LATER), &one, Some(KeyKind::Inference), &change).await.unwrap();
            let changed = changed.unwrap();
            assert_eq!(store.find_key(&one).await.unwrap().as_ref(), Some(&changed));
            changed
        };
        let same = update(KeyChange::default()).await;
        assert_eq!(same, made.keys[0], "nothing was to change, so nothing says that it did");
        let same = update(KeyChange { name: Some("one".to_owned()), limit: Some(None), ..KeyChange::default() }).await;
        assert_eq!(same, made.keys[0]);
        assert_eq!(database.audited(&tenant).await.len(), 2, "the first start's own");

        let limited = update(KeyChange {
            limit: Some(Some(Money(5))),
            limit_reset: Some(Some(LimitReset::Daily)),
            ..KeyChange::default()
        })
        .await;
        assert_eq!((limited.limit, limited.limit_reset), (Some(Money(5)), Some(LimitReset::Daily)));
        assert_eq!((&*limited.name, limited.updated), ("one", Some(LATER)));
        let free = update(KeyChange { limit: Some(None), include_byok_in_limit: Some(true), ..KeyChange::default() }).await;
        assert_eq!((free.limit, free.limit_reset), (None, Some(LimitReset::Daily)));
        assert!(free.include_byok_in_limit && free.change_seq > limited.change_seq);

        let entry = store.list_audit(&tenant, Timestamp(0), 0, 1).await.unwrap().remove(0);
        assert_eq!((entry.action.as_str(), entry.target), ("key.updated", one.to_hex()));
        let json = |text: Option<String>| serde_json::from_str::<serde_json::Value>(&text.unwrap()).unwrap();
        assert_eq!(json(entry.old), serde_json::json!({"limit": "0.000000005", "include_byok_in_limit": false}));
        assert_eq!(json(entry.new), serde_json::json!({"limit": null, "include_byok_in_limit": true}));
    }

    async fn a_management_key_is_not_there_for_who_asks_for_the_other_kind(database: &Database) {
        let manager = NewKey { kind: KeyKind::Management, ..new_key("manager") };
        let (tenant, made) = database.bootstrap(vec![manager]).await;
        let (store, manager, other) = (&database.store, hash("manager"), Some(KeyKind::Inference));
        let change = KeyChange { disabled: Some(true), ..KeyChange::default() };
        assert_eq!(store.find_tenant_key(&tenant, &manager, other).await.unwrap(), None);
        assert_eq!(store.update_key(&tenant, &by(LATER), &manager, other, &change).await.unwrap(), None);
        assert!(!store.delete_key(&tenant, &by(LATER), &manager, other).await.unwrap());
        assert_eq!(store.find_key(&manager).await.unwrap().as_ref(), Some(&made.keys[0]));
        assert!(store.delete_key(&tenant, &by(LATER), &manager, None).await.unwrap());
    }

    async fn a_key_belongs_to_a_member_of_its_workspace_or_to_nobody(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let (theirs, foreign) = database.other_tenant().await;
        let stranger = store.add_member(&theirs, &by(NOW), member("s@x.example")).await.unwrap();
        let insider = store.add_member(&tenant, &by(NOW), member("i@x.example")).await.unwrap();
        let team = store.create_workspace(&tenant, &by(NOW), crate::workspaces::new("team")).await.unwrap();

        let create = async |workspace: &WorkspaceId, name: &str, creator: &str| {
            let key = NewKey { creator: Some(creator.to_owned()), ..new_key(name) };
            match store.create_key(&tenant, &by(NOW), workspace, key).await {
                Ok(key) => Ok(key.creator.map(String::from)),
                Err(StoreError::Refused(refused)) => Err(refused),
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(create(&made.workspace, "1", &insider.id).await, Ok(Some(insider.id.clone())));
        assert_eq!(create(&made.workspace, "2", &stranger.id).await, Err(Refused::NotAMember));
        assert_eq!(create(&made.workspace, "3", "user_NOBODY").await, Err(Refused::NotAMember));
        assert_eq!(create(&team.id, "4", &insider.id).await, Err(Refused::NotAMember));
        store.add_workspace_members(&tenant, &by(NOW), &team.id, std::slice::from_ref(&insider.id)).await.unwrap();
        assert_eq!(create(&team.id, "5", &insider.id).await, Ok(Some(insider.id.clone())));
        store.remove_member(&tenant, &by(NOW), &insider.id).await.unwrap();
        assert_eq!(create(&made.workspace, "6", &insider.id).await, Err(Refused::NotAMember));
        assert_eq!(create(&foreign, "7", &stranger.id).await, Err(Refused::NotAMember));
        assert_eq!(store.find_key(&hash("6")).await.unwrap(), None);
    }

    async fn a_key_comes_back_only_while_its_creator_has_a_place(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let creator = store.add_member(&tenant, &by(NOW), member("i@x.example")).await.unwrap().id;
        let key = NewKey { creator: Some(creator.clone()), ..new_key("theirs") };
        store.create_key(&tenant, &by(NOW), &made.workspace, key).await.unwrap();
        let theirs = hash("theirs");
        store.set_key_disabled(&tenant, &by(NOW), &theirs, true).await.unwrap();
        assert!(store.set_key_disabled(&tenant, &by(NOW), &theirs, false).await.unwrap());
        store.set_key_disabled(&tenant, &by(NOW), &theirs, true).await.unwrap();
        store.remove_member(&tenant, &by(NOW), &creator).await.unwrap();
        let refused = store.set_key_disabled(&tenant, &by(LATER), &theirs, false).await;
        assert!(matches!(refused, Err(StoreError::Refused(Refused::NotAMember))), "{refused:?}");
        assert!(store.find_key(&theirs).await.unwrap().unwrap().disabled);
        // What does not bring it back can still be changed.
        let change = KeyChange { name: Some("old".to_owned()), ..KeyChange::default() };
        assert!(store.update_key(&tenant, &by(LATER), &theirs, None, &change).await.unwrap().is_some());
    }

    async fn a_workspace_holds_ten_thousand_live_keys(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("first")]).await;
        let store = &database.store;
        database
            .execute(
                "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9999) \
                 INSERT INTO api_keys (hash, organisation_id, workspace_id, kind, name, label, disabled, \
                 include_byok_in_limit, created_at, change_seq) \
                 SELECT 'k' || n, $1, $2, 'inference', 'n', 'l', FALSE, FALSE, n, 1000 + n FROM numbers",
                &[&tenant.organisation.0, &made.workspace.0],
            )
            .await;
        store.create_key(&tenant, &by(NOW), &made.workspace, new_key("last")).await.unwrap();
        let full = store.create_key(&tenant, &by(NOW), &made.workspace, new_key("more")).await;
        assert!(matches!(full, Err(StoreError::Refused(Refused::TooManyKeys))), "{full:?}");
        store.delete_key(&tenant, &by(LATER), &hash("first"), None).await.unwrap();
        store.create_key(&tenant, &by(NOW), &made.workspace, new_key("more")).await.unwrap();
    }

    async fn an_administrator_may_hold_keys_in_every_workspace(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let team = store.create_workspace(&tenant, &by(NOW), crate::workspaces::new("team")).await.unwrap().id;
        let admin = NewMember { role: Role::Admin, ..member("a@x.example") };
        let admin = store.add_member(&tenant, &by(NOW), admin).await.unwrap().id;
        let other = store.add_member(&tenant, &by(NOW), member("b@x.example")).await.unwrap().id;
        let make = async |creator: String| {
            let key = NewKey { creator: Some(creator.clone()), ..new_key(creator) };
            store.create_key(&tenant, &by(NOW), &team, key).await
        };
        make(admin.clone()).await.unwrap();
        let refused = make(other).await;
        assert!(matches!(refused, Err(StoreError::Refused(Refused::NotAMember))), "{refused:?}");
        store.remove_member(&tenant, &by(LATER), &admin).await.unwrap();
        let key = NewKey { creator: Some(admin), ..new_key("late") };
        let refused = store.create_key(&tenant, &by(LATER), &team, key).await;
        assert!(matches!(refused, Err(StoreError::Refused(Refused::NotAMember))), "{refused:?}");
    }

    async fn aud_2_each_change_to_a_key_leaves_one_entry(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        store.create_key(&tenant, &by(NOW), &made.workspace, new_key("one")).await.unwrap();
        store.create_key(&tenant, &by(NOW), &made.workspace, new_key("one")).await.unwrap_err();
        store.set_key_disabled(&tenant, &by(LATER), &hash("one"), true).await.unwrap();
        store.set_key_disabled(&tenant, &by(LATER), &hash("one"), true).await.unwrap();
        store.set_key_disabled(&tenant, &by(LATER), &hash("none"), true).await.unwrap();
        store.delete_key(&tenant, &by(LATER), &hash("one"), None).await.unwrap();
        store.delete_key(&tenant, &by(LATER), &hash("one"), None).await.unwrap();
        let audited = database.audited(&tenant).await;
        let actions: Vec<_> = audited.iter().map(|(action, _)| action.as_str()).collect();
        assert_eq!(actions, ["workspace.created", "key.created", "key.updated", "key.deleted"]);
        assert!(audited[1..].iter().all(|(_, target)| *target == hash("one").to_hex()));
    }
}

/// Its number looks like SQLite's for a held lock; another try would fail as this one did.
#[test]
fn a_text_that_postgres_cannot_hold_is_not_taken_for_a_held_lock() {
    with_postgres(async |database| {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let refused = database.store.create_key(&tenant, &by(NOW), &made.workspace, new_key("a\0b")).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    });
}
