use std::sync::Arc;

use tidegate_core::{KeyKind, Money, OrganisationId, Tenant};
use tidegate_store::keys::NewKey;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::databases::{NOW, first, hash, new_key};
use crate::on_both;

on_both! {
    async fn the_first_start_makes_organisation_workspace_and_keys(database: &Database) {
        let store = &database.store;
        assert_eq!(store.sole_organisation().await.unwrap(), None);
        let manager = NewKey { kind: KeyKind::Management, ..new_key("manager") };
        let limited = NewKey { limit: Some(Money(5)), ..new_key("limited") };
        let (tenant, made) = database.bootstrap(vec![manager, limited]).await;

        let organisation = store.sole_organisation().await.unwrap().unwrap();
        assert_eq!((&organisation.id, &*organisation.name, organisation.created), (&made.organisation, "Test", NOW));
        assert!(organisation.id.0.starts_with("org_") && organisation.id.0.len() == 30, "{}", organisation.id);

        let workspace = store.default_workspace(&tenant).await.unwrap().unwrap();
        assert_eq!((&workspace.id, &*workspace.slug, &*workspace.name), (&made.workspace, "default", "Default"));
        assert_eq!(store.list_workspaces(&tenant, 0, 10).await.unwrap(), (vec![workspace], 1));
        assert!(store.list_workspaces(&tenant, 1, 10).await.unwrap().0.is_empty());

        for key in &made.keys {
            assert_eq!(store.find_key(&key.hash).await.unwrap().as_ref(), Some(key));
        }
        assert_eq!(store.keys_changed_after(0, 10).await.unwrap(), made.keys);
    }

    async fn a_second_start_changes_nothing(database: &Database) {
        database.bootstrap(vec![new_key("one")]).await;
        let before = database.store.last_change().await.unwrap();
        assert!(database.store.bootstrap(NOW, first(vec![new_key("two")])).await.unwrap().is_none());
        assert_eq!(database.store.find_key(&hash("two")).await.unwrap(), None);
        assert_eq!(database.store.last_change().await.unwrap(), before);
    }

    async fn of_many_first_starts_at_once_exactly_one_wins(database: &Database) {
        const PROCESSES: usize = 6;
        let start = Arc::new(Barrier::new(PROCESSES));
        let mut processes = JoinSet::new();
        for number in 0..PROCESSES {
            let (store, start) = (database.open_again().await, start.clone());
            processes.spawn(async move {
                store.ping().await.unwrap();
                start.wait().await;
                let made = store.bootstrap(NOW, first(vec![new_key(number)])).await.unwrap();
                store.close().await;
                made
            });
        }
        let winners: Vec<_> = processes.join_all().await.into_iter().flatten().collect();
        let [winner] = &winners[..] else { panic!("{} winners", winners.len()) };
        assert_eq!(database.store.sole_organisation().await.unwrap().unwrap().id, winner.organisation);
        assert_eq!(database.store.keys_changed_after(0, 100).await.unwrap(), winner.keys);
    }

    async fn ten_3_a_tenant_sees_only_its_own_workspaces(database: &Database) {
        let (ours, made) = database.bootstrap(vec![]).await;
        let (theirs, foreign) = database.other_tenant().await;
        for (tenant, workspace) in [(&ours, &made.workspace), (&theirs, &foreign)] {
            assert_eq!(&database.store.default_workspace(tenant).await.unwrap().unwrap().id, workspace);
            assert_eq!(database.store.list_workspaces(tenant, 0, 10).await.unwrap().1, 1);
        }
        let nobody = Tenant { organisation: OrganisationId("org_NOBODY".into()) };
        assert_eq!(database.store.default_workspace(&nobody).await.unwrap(), None);
        assert_eq!(database.store.sole_organisation().await.unwrap(), None, "there are two now");
    }
}
