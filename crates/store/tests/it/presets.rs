use tidegate_core::{Tenant, Timestamp, WorkspaceId};
use tidegate_store::presets::{NewPresetVersion, PresetRow, PresetStatus, PresetVersion};
use tidegate_store::{Refused, Store, StoreError};

use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

fn new<'a>(workspace: &'a WorkspaceId, slug: &'a str, after: i64) -> NewPresetVersion<'a> {
    NewPresetVersion {
        workspace,
        slug,
        after,
        config: r#"{"model":"a/b","temperature":0.10}"#,
        system: Some(r#""be \u0000 brief""#),
        member: Some("user_1"),
        creator: "user_1",
    }
}

/// Written at this many milliseconds after the beginning.
async fn written(
    store: &Store,
    tenant: &Tenant,
    preset: NewPresetVersion<'_>,
    at: i64,
) -> Result<Option<(PresetRow, PresetVersion)>, StoreError> {
    store.write_preset(tenant, &by(Timestamp(NOW.0 + at)), preset).await
}

fn slugs(rows: &[PresetRow]) -> Vec<&str> {
    rows.iter().map(|row| &*row.slug).collect()
}

on_both! {
    async fn a_preset_and_its_versions_are_read_back_as_they_were_written(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        let (first, one) = written(store, &tenant, new(workspace, "brief", 0), 0).await.unwrap().unwrap();
        assert_eq!((&*first.slug, &*first.name, first.description.as_deref()), ("brief", "brief", None));
        assert_eq!((first.status, first.status_updated, first.creator.as_deref()), (PresetStatus::Active, None, Some("user_1")));
        assert_eq!((one.number, &*one.preset, &*first.designated), (1, &*first.id, &*one.id));

        let bare = NewPresetVersion { config: "{}", system: None, member: None, creator: "hash", ..new(workspace, "brief", 1) };
        let (second, two) = written(store, &tenant, bare, 5).await.unwrap().unwrap();
        assert_eq!((&second.id, second.created, second.updated), (&first.id, NOW, Timestamp(NOW.0 + 5)));
        assert_eq!((second.last_version, &*second.designated), (2, &*two.id));
        assert_eq!(second.creator.as_deref(), Some("user_1"), "whoever made it");
        assert_eq!((&*two.config, two.system.as_deref(), &*two.creator), ("{}", None, "hash"));

        assert_eq!(store.find_preset(&tenant, "brief").await.unwrap(), Some(second.clone()));
        for version in [&one, &two] {
            assert_eq!(store.find_preset_version(&tenant, &version.id).await.unwrap().as_ref(), Some(version));
            let numbered = store.find_numbered_preset_version(&tenant, &first.id, version.number).await.unwrap();
            assert_eq!(numbered.as_ref(), Some(version));
        }
        assert_eq!(store.find_numbered_preset_version(&tenant, &first.id, 3).await.unwrap(), None);
        assert_eq!(store.list_preset_versions(&tenant, &first.id, 0, 9).await.unwrap(), (vec![one, two.clone()], 2));
        assert_eq!(store.list_preset_versions(&tenant, &first.id, 1, 9).await.unwrap(), (vec![two], 2));
        let actions = database.audited(&tenant).await;
        let expected = ["preset.created", "preset.updated"].map(|action| (action.to_owned(), first.id.to_string()));
        assert_eq!(actions[actions.len() - 2..], expected);
    }

    async fn the_last_updated_preset_comes_first(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        // Two of them within one millisecond.
        for (slug, after, at) in [("a", 0, 0), ("b", 0, 7), ("c", 0, 7), ("a", 1, 9)] {
            written(store, &tenant, new(workspace, slug, after), at).await.unwrap().unwrap();
        }
        let (all, total) = store.list_presets(&tenant, workspace, 0, 50).await.unwrap();
        assert_eq!((slugs(&all), total), (vec!["a", "c", "b"], 3));
        let (page, total) = store.list_presets(&tenant, workspace, 1, 1).await.unwrap();
        assert_eq!((slugs(&page), total), (vec!["c"], 3));
    }

    async fn of_two_who_know_the_same_version_one_writes_the_next(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        let again = database.open_again().await;
        let (one, other) = tokio::join!(
            written(store, &tenant, new(workspace, "x", 0), 0),
            written(&again, &tenant, new(workspace, "x", 0), 0)
        );
        assert_eq!([&one, &other].map(|result| result.is_ok()).iter().filter(|is_ok| **is_ok).count(), 1);
        assert!([one, other].into_iter().any(|result| matches!(result, Err(StoreError::Conflict))));
        for after in [0, 2] {
            let late = written(store, &tenant, new(workspace, "x", after), 1).await;
            assert!(matches!(late, Err(StoreError::Conflict)), "{after}: {late:?}");
        }
        assert_eq!(database.number("SELECT COUNT(*) FROM preset_versions").await, 1, "nothing was left of the others");
        again.close().await;
    }

    async fn a_slug_belongs_to_one_workspace_until_that_is_gone(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap();
        written(store, &tenant, new(&team.id, "x", 0), 0).await.unwrap().unwrap();
        for after in [0, 1] {
            let theirs = written(store, &tenant, new(ours, "x", after), 1).await;
            assert!(matches!(theirs, Err(StoreError::Refused(Refused::OfAnotherWorkspace))), "{theirs:?}");
        }
        assert_eq!(store.list_presets(&tenant, ours, 0, 50).await.unwrap().1, 0);
        let (other, elsewhere) = database.other_tenant().await;
        written(store, &other, new(&elsewhere, "x", 0), 1).await.unwrap().expect("another organisation has its own slugs");
        assert_eq!(store.find_preset(&other, "x").await.unwrap().unwrap().workspace, elsewhere);
        let foreign = written(store, &tenant, new(&elsewhere, "y", 0), 1).await;
        assert!(matches!(foreign, Err(StoreError::Missing)), "{foreign:?}");

        assert!(store.delete_workspace(&tenant, &by(NOW), &team.id).await.unwrap());
        assert_eq!(store.find_preset(&tenant, "x").await.unwrap(), None);
        assert_eq!(database.number("SELECT COUNT(*) FROM preset_versions").await, 1, "those of the other organisation");
        written(store, &tenant, new(ours, "x", 0), 2).await.unwrap().expect("the slug is free");
        let gone = written(store, &tenant, new(&team.id, "z", 0), 2).await;
        assert!(matches!(gone, Err(StoreError::Missing)), "{gone:?}");
    }

    async fn changes_are_told_in_their_order(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        for slug in ["a", "b"] {
            written(store, &tenant, new(workspace, slug, 0), 0).await.unwrap().unwrap();
        }
        let all = store.presets_changed_after(0).await.unwrap();
        assert_eq!(slugs(&all), ["a", "b"]);
        let seen = all[1].change_seq;
        assert_eq!(store.presets_changed_after(seen).await.unwrap(), []);

        let later = Timestamp(NOW.0 + 3);
        let off = store.set_preset_status(&tenant, &by(later), "a", PresetStatus::Disabled).await.unwrap().unwrap();
        assert_eq!((off.status, off.status_updated, off.updated), (PresetStatus::Disabled, Some(later), later));
        assert_eq!(store.presets_changed_after(seen).await.unwrap(), [off]);
        assert_eq!(store.set_preset_status(&tenant, &by(later), "c", PresetStatus::Disabled).await.unwrap(), None);
    }

    async fn a_disabled_preset_takes_versions_and_an_archived_one_none(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        written(store, &tenant, new(workspace, "x", 0), 0).await.unwrap().unwrap();
        store.set_preset_status(&tenant, &by(NOW), "x", PresetStatus::Disabled).await.unwrap().unwrap();
        let (still, _) = written(store, &tenant, new(workspace, "x", 1), 1).await.unwrap().unwrap();
        assert_eq!(still.status, PresetStatus::Disabled);
        store.set_preset_status(&tenant, &by(NOW), "x", PresetStatus::Archived).await.unwrap().unwrap();
        assert_eq!(written(store, &tenant, new(workspace, "x", 2), 2).await.unwrap(), None);
        let back = store.set_preset_status(&tenant, &by(NOW), "x", PresetStatus::Active).await.unwrap().unwrap();
        assert_eq!(back.status, PresetStatus::Archived);
    }

    async fn a_workspace_has_so_many_presets_and_no_more(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        for at in 0..200 {
            written(store, &tenant, new(workspace, &format!("p-{at}"), 0), 0).await.unwrap().unwrap();
        }
        let more = written(store, &tenant, new(workspace, "p-200", 0), 0).await;
        assert!(matches!(more, Err(StoreError::Refused(Refused::TooManyPresets))), "{more:?}");
        written(store, &tenant, new(workspace, "p-0", 1), 0).await.unwrap().expect("a version is no preset");
    }
}
