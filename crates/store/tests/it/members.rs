use tidegate_core::{KeyKind, Timestamp};
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};
use tidegate_store::{Refused, StoreError};

use crate::databases::{NOW, by, hash, member, new_key};
use crate::on_both;
use crate::workspaces::new;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Refused {
    match result {
        Err(StoreError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

on_both! {
    async fn people_are_added_found_and_listed(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let first = NewMember {
            email: "Ada@Example.com".to_owned(),
            first_name: Some("Ada".to_owned()),
            last_name: None,
            role: Role::Admin,
        };
        let ada = store.add_member(&tenant, &by(NOW), first).await.unwrap();
        let bob = store.add_member(&tenant, &by(LATER), member("bob@example.com")).await.unwrap();
        assert!(ada.id.starts_with("user_") && ada.id.len() == 31, "{}", ada.id);
        assert_eq!((ada.email.as_str(), ada.role, ada.first_name.as_deref()), ("ada@example.com", Role::Admin, Some("Ada")));
        assert_eq!(refusal(store.add_member(&tenant, &by(NOW), member("ADA@example.COM")).await), Refused::EmailTaken);
        for name in [ada.id.as_str(), "ada@example.com", "ADA@EXAMPLE.COM"] {
            assert_eq!(store.find_member(&tenant, name).await.unwrap().as_ref(), Some(&ada), "{name}");
        }
        assert_eq!(store.list_members(&tenant, 0, 50).await.unwrap(), (vec![ada.clone(), bob.clone()], 2));
        assert_eq!(store.list_members(&tenant, 1, 50).await.unwrap(), (vec![bob], 2));
        let (theirs, _) = database.other_tenant().await;
        assert_eq!(store.list_members(&theirs, 0, 50).await.unwrap(), (vec![], 0));
        assert_eq!(store.find_member(&theirs, &ada.id).await.unwrap(), None);
        assert!(!store.remove_member(&theirs, &by(NOW), &ada.id).await.unwrap());
    }

    async fn a_person_who_goes_leaves_disabled_keys_and_no_places(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("nobody's")]).await;
        let store = &database.store;
        let ada = store.add_member(&tenant, &by(NOW), member("ada@x.example")).await.unwrap();
        let bob = store.add_member(&tenant, &by(NOW), member("bob@x.example")).await.unwrap();
        let team = store.create_workspace(&tenant, &by(NOW), new("team")).await.unwrap();
        store.add_workspace_members(&tenant, &by(NOW), &team.id, &[ada.id.clone(), bob.id.clone()]).await.unwrap();
        let own = |name: &str, creator: &str| NewKey { creator: Some(creator.to_owned()), ..new_key(name) };
        let manager = NewKey { kind: KeyKind::Management, ..own("ada's manager", &ada.id) };
        for (key, workspace) in [
            (own("ada's", &ada.id), &made.workspace),
            (own("ada's in team", &ada.id), &team.id),
            (manager, &made.workspace),
            (own("ada's gone", &ada.id), &made.workspace),
            (own("bob's", &bob.id), &team.id),
        ] {
            store.create_key(&tenant, &by(NOW), workspace, key).await.unwrap();
        }
        store.delete_key(&tenant, &by(NOW), &hash("ada's gone"), None).await.unwrap();
        let before = store.last_change().await.unwrap();

        assert!(store.remove_member(&tenant, &by(LATER), &ada.id).await.unwrap());
        assert!(!store.remove_member(&tenant, &by(LATER), &ada.id).await.unwrap());
        let changed = store.keys_changed_after(before, 100).await.unwrap();
        let mut names: Vec<_> = changed.iter().map(|key| (&*key.name, key.disabled, key.updated)).collect();
        names.sort();
        let expected = ["ada's", "ada's in team", "ada's manager"].map(|name| (name, true, Some(LATER)));
        assert_eq!(names, expected);
        assert_eq!(store.last_change().await.unwrap(), before + 3);
        assert_eq!(store.find_member(&tenant, &ada.id).await.unwrap(), None);
        let (places, total) = store.list_workspace_members(&tenant, &team.id, 0, 50).await.unwrap().unwrap();
        assert_eq!((places[0].user.as_str(), places.len(), total), (bob.id.as_str(), 1, 1));
        for name in ["nobody's", "bob's"] {
            assert!(!store.find_key(&hash(name)).await.unwrap().unwrap().disabled, "{name}");
        }
        let last = database.audited(&tenant).await.pop().unwrap();
        assert_eq!(last, ("member.removed".to_owned(), ada.id));
        let back = store.add_member(&tenant, &by(LATER), member("ada@x.example")).await.unwrap();
        assert!(store.find_member(&tenant, &back.id).await.unwrap().is_some(), "the address is free again");
    }

    async fn the_default_workspace_has_everybody_and_nobody_leaves_it(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let ada = store.add_member(&tenant, &by(NOW), NewMember { role: Role::Admin, ..member("a@x.example") }).await.unwrap();
        let bob = store.add_member(&tenant, &by(LATER), member("b@x.example")).await.unwrap();
        let (places, total) = store.list_workspace_members(&tenant, &made.workspace, 0, 50).await.unwrap().unwrap();
        let seen: Vec<_> = places.iter().map(|place| (place.user.as_str(), place.role, place.created)).collect();
        assert_eq!(seen, [(ada.id.as_str(), Role::Admin, NOW), (bob.id.as_str(), Role::Member, LATER)]);
        assert_eq!(total, 2);
        assert_ne!(places[0].id, places[1].id);

        let added = store.add_workspace_members(&tenant, &by(LATER), &made.workspace, std::slice::from_ref(&bob.id)).await;
        let added = added.unwrap().unwrap();
        assert_eq!((added.count, &added.members[..]), (0, &places[1..]), "with the same id every time");
        let removed = store.remove_workspace_members(&tenant, &by(LATER), &made.workspace, &[bob.id]).await;
        assert_eq!(refusal(removed), Refused::IsDefault);
    }

    async fn places_in_a_workspace_are_given_once_and_taken_when_no_key_is_left(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let ada = store.add_member(&tenant, &by(NOW), NewMember { role: Role::Admin, ..member("a@x.example") }).await.unwrap();
        let bob = store.add_member(&tenant, &by(NOW), member("b@x.example")).await.unwrap();
        let (theirs, _) = database.other_tenant().await;
        let eve = store.add_member(&theirs, &by(NOW), member("e@x.example")).await.unwrap();
        let team = store.create_workspace(&tenant, &by(NOW), new("team")).await.unwrap();
        let add = async |users: &[&String]| {
            let users: Vec<String> = users.iter().map(ToString::to_string).collect();
            store.add_workspace_members(&tenant, &by(LATER), &team.id, &users).await.map(Option::unwrap)
        };
        for stranger in [&eve.id, &"user_NOBODY".to_owned()] {
            assert_eq!(refusal(add(&[&ada.id, stranger]).await), Refused::UnknownUser);
        }
        assert_eq!(store.list_workspace_members(&tenant, &team.id, 0, 50).await.unwrap().unwrap().1, 0, "all or none");
        let first = add(&[&ada.id]).await.unwrap();
        assert_eq!((first.count, first.members[0].role, first.members[0].created), (1, Role::Admin, LATER));
        let second = add(&[&ada.id, &bob.id]).await.unwrap();
        assert_eq!((second.count, &second.members[0]), (1, &first.members[0]));

        let remove = async |users: &[&String]| {
            let users: Vec<String> = users.iter().map(ToString::to_string).collect();
            store.remove_workspace_members(&tenant, &by(LATER), &team.id, &users).await.map(Option::unwrap)
        };
        let key = NewKey { creator: Some(bob.id.clone()), ..new_key("bob's") };
        store.create_key(&tenant, &by(NOW), &team.id, key).await.unwrap();
        store.set_key_disabled(&tenant, &by(NOW), &hash("bob's"), true).await.unwrap();
        assert_eq!(refusal(remove(&[&ada.id, &bob.id]).await), Refused::HoldsKeys, "a disabled key is a live one");
        assert_eq!(store.list_workspace_members(&tenant, &team.id, 0, 1).await.unwrap().unwrap().1, 2);
        store.delete_key(&tenant, &by(NOW), &hash("bob's"), None).await.unwrap();
        assert_eq!(remove(&[&ada.id, &bob.id, &eve.id]).await.unwrap(), 2);
        assert_eq!(remove(&[&ada.id]).await.unwrap(), 0);
        database.audited(&tenant).await;
    }
}
