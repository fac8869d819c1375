use tidegate_core::Timestamp;
use tidegate_store::budgets::Interval;
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};
use tidegate_store::{Refused, Store, StoreError};

use crate::databases::{NOW, by, hash, member, new_key};
use crate::on_both;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

pub fn new(slug: &str) -> NewWorkspace {
    let (name, slug) = (slug.to_uppercase(), slug.to_owned());
    NewWorkspace { name, slug, created_by: None, settings: WorkspaceChange::default() }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Refused {
    match result {
        Err(StoreError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

on_both! {
    async fn a_workspace_is_found_by_id_and_slug_as_it_was_made(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let full = NewWorkspace {
            created_by: Some("user_1".to_owned()),
            settings: WorkspaceChange {
                description: Some(Some("d".to_owned())),
                default_text_model: Some(Some("a/b".to_owned())),
                default_image_model: Some(Some("c/d".to_owned())),
                default_provider_sort: Some(Some("price".to_owned())),
                is_broadcast_enabled: Some(false),
                is_io_logging_enabled: Some(true),
                io_logging_sampling_rate: Some(0.0001),
                io_logging_api_key_ids: Some(Some(vec![1, i64::MAX])),
                is_data_discount_logging_enabled: Some(true),
                ..WorkspaceChange::default()
            },
            ..new("full")
        };
        let full = store.create_workspace(&tenant, &by(LATER), full).await.unwrap();
        let bare = store.create_workspace(&tenant, &by(Timestamp(NOW.0 + 2)), new("bare")).await.unwrap();
        for made in [&full, &bare] {
            assert_eq!(store.find_workspace(&tenant, &made.id).await.unwrap().as_ref(), Some(made));
            assert_eq!(store.find_workspace_named(&tenant, &made.id.0).await.unwrap().as_ref(), Some(made));
            assert_eq!(store.find_workspace_named(&tenant, &made.slug).await.unwrap().as_ref(), Some(made));
        }
        assert_eq!((full.io_logging_sampling_rate, full.io_logging_api_key_ids), (0.0001, Some(vec![1, i64::MAX])));
        assert!(bare.is_broadcast_enabled && !bare.is_io_logging_enabled && bare.io_logging_sampling_rate == 1.0);
        let (page, total) = store.list_workspaces(&tenant, 1, 1).await.unwrap();
        assert_eq!((total, page[0].slug.as_str()), (3, "full"));
    }

    async fn a_change_sets_what_it_names_and_slugs_stay_unique(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let one = store.create_workspace(&tenant, &by(NOW), new("one")).await.unwrap();
        let two = store.create_workspace(&tenant, &by(NOW), new("two")).await.unwrap();
        let slug = |slug: &str| WorkspaceChange { slug: Some(slug.to_owned()), ..WorkspaceChange::default() };
        assert_eq!(refusal(store.create_workspace(&tenant, &by(NOW), new("one")).await), Refused::SlugTaken);
        assert_eq!(refusal(store.update_workspace(&tenant, &by(LATER), &two.id, &slug("one")).await), Refused::SlugTaken);
        let renamed = store.update_workspace(&tenant, &by(LATER), &made.workspace, &slug("other")).await;
        assert_eq!(refusal(renamed), Refused::IsDefault);

        let same = store.update_workspace(&tenant, &by(LATER), &one.id, &slug("one")).await.unwrap();
        assert_eq!(same.as_ref(), Some(&one), "nothing was to change, so nothing says that it did");
        let moved = store.update_workspace(&tenant, &by(LATER), &one.id, &slug("uno")).await.unwrap().unwrap();
        assert_eq!((moved.slug.as_str(), moved.name.as_str(), moved.updated), ("uno", "ONE", Some(LATER)));
        assert_eq!(store.find_workspace(&tenant, &one.id).await.unwrap(), Some(moved));
        store.create_workspace(&tenant, &by(LATER), new("one")).await.unwrap();
    }

    async fn a_deleted_workspace_takes_everything_with_it_and_gives_its_slug_back(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let team = store.create_workspace(&tenant, &by(NOW), new("team")).await.unwrap();
        let person = store.add_member(&tenant, &by(NOW), member("a@b.example")).await.unwrap();
        store.add_workspace_members(&tenant, &by(NOW), &team.id, &[person.id]).await.unwrap();
        store.put_budget(&tenant, &by(NOW), &team.id, Interval::Daily, tidegate_core::Money(1), None).await.unwrap();
        store.create_key(&tenant, &by(NOW), &team.id, new_key("k")).await.unwrap();
        let (organisation, workspace) = (&*tenant.organisation.0, &*team.id.0);
        for credential in ["c1", "c2"] {
            database
                .execute(
                    "INSERT INTO credentials (id, organisation_id, workspace_id, provider, label, disabled, is_fallback, \
                     is_required, is_byok_only, sort_order, seal_version, wrapped_key, ciphertext, revision, change_seq, \
                     created_at) SELECT $1, $2, $3, 'p', 'l', FALSE, FALSE, FALSE, FALSE, 0, 1, NULL, NULL, 1, \
                     CASE WHEN $1 = 'c1' THEN -1 ELSE -2 END, 0",
                    &[credential, organisation, workspace],
                )
                .await;
        }
        let sealed = match store {
            Store::Sqlite { .. } => "UPDATE credentials SET ciphertext = x'01', wrapped_key = x'02'",
            Store::Postgres(_) => r"UPDATE credentials SET ciphertext = '\x01', wrapped_key = '\x02'",
        };
        database.execute(sealed, &[]).await;
        database.execute("INSERT INTO applications (id, origin, title, created_at) VALUES (1, 'o', 't', 0)", &[]).await;
        database
            .execute(
                "INSERT INTO auth_codes (hash, organisation_id, workspace_id, app_id, key_name, created_at, expires_at, \
                 failures) VALUES ('h', $1, $2, 1, 'n', 0, 9, 0)",
                &[organisation, workspace],
            )
            .await;

        assert_eq!(refusal(store.delete_workspace(&tenant, &by(LATER), &made.workspace).await), Refused::IsDefault);
        assert_eq!(refusal(store.delete_workspace(&tenant, &by(LATER), &team.id).await), Refused::HasKeys);
        store.delete_key(&tenant, &by(LATER), &hash("k"), None).await.unwrap();
        assert!(store.delete_workspace(&tenant, &by(LATER), &team.id).await.unwrap());
        assert!(!store.delete_workspace(&tenant, &by(LATER), &team.id).await.unwrap());

        assert_eq!(store.find_workspace_named(&tenant, "team").await.unwrap(), None);
        assert_eq!(database.number("SELECT COUNT(*) FROM workspace_members").await, 0);
        assert_eq!(database.number("SELECT COUNT(*) FROM workspace_budgets").await, 0);
        assert_eq!(database.number("SELECT failures FROM auth_codes").await, 5);
        let gone = "SELECT COUNT(*) FROM credentials WHERE deleted_at IS NOT NULL AND change_seq > 0 \
                    AND ciphertext IS NULL AND wrapped_key IS NULL";
        assert_eq!(database.number(gone).await, 2);
        let made_in_it = store.create_key(&tenant, &by(LATER), &team.id, new_key("late")).await;
        assert!(matches!(made_in_it, Err(StoreError::Missing)), "{made_in_it:?}");
        store.create_workspace(&tenant, &by(LATER), new("team")).await.unwrap();
        let audited = database.audited(&tenant).await;
        let actions: Vec<_> = audited.iter().rev().take(3).map(|(action, _)| action.as_str()).collect();
        assert_eq!(actions, ["workspace.created", "workspace.deleted", "byok.deleted"]);
        let entries = store.list_audit(&tenant, LATER, 2, 1).await.unwrap();
        assert_eq!((&*entries[0].target, entries[0].old.as_deref()), (workspace, Some(r#"{"credential_ids":["c1","c2"]}"#)));
    }

    async fn an_account_has_five_hundred_workspaces(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        database
            .execute(
                "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 499) \
                 INSERT INTO workspaces (id, organisation_id, name, slug, created_at) \
                 SELECT 'w' || n, $1, 'n', 's' || n, n FROM numbers",
                &[&tenant.organisation.0],
            )
            .await;
        let last = database.store.create_workspace(&tenant, &by(NOW), new("last")).await.unwrap();
        let more = database.store.create_workspace(&tenant, &by(NOW), new("more")).await;
        assert_eq!(refusal(more), Refused::TooManyWorkspaces);
        assert!(database.store.delete_workspace(&tenant, &by(NOW), &last.id).await.unwrap());
        database.store.create_workspace(&tenant, &by(NOW), new("more")).await.unwrap();
    }

    async fn ten_3_foreign_workspaces_are_not_there(database: &Database) {
        let (ours, _) = database.bootstrap(vec![]).await;
        let (theirs, _) = database.other_tenant().await;
        let store = &database.store;
        let team = store.create_workspace(&ours, &by(NOW), new("team")).await.unwrap();
        let change = WorkspaceChange { name: Some("x".to_owned()), ..WorkspaceChange::default() };
        assert_eq!(store.find_workspace(&theirs, &team.id).await.unwrap(), None);
        assert_eq!(store.find_workspace_named(&theirs, "team").await.unwrap(), None);
        assert_eq!(store.update_workspace(&theirs, &by(NOW), &team.id, &change).await.unwrap(), None);
        assert!(!store.delete_workspace(&theirs, &by(NOW), &team.id).await.unwrap());
        assert_eq!(store.list_workspace_members(&theirs, &team.id, 0, 9).await.unwrap(), None);
        assert_eq!(store.add_workspace_members(&theirs, &by(NOW), &team.id, &[]).await.unwrap(), None);
        assert_eq!(store.remove_workspace_members(&theirs, &by(NOW), &team.id, &[]).await.unwrap(), None);
        assert_eq!(store.list_budgets(&theirs, &team.id).await.unwrap(), None);
        let limit = tidegate_core::Money(1);
        let put = store.put_budget(&theirs, &by(NOW), &team.id, Interval::Daily, limit, None).await.unwrap();
        assert_eq!(put, None);
        assert_eq!(store.delete_budget(&theirs, &by(NOW), &team.id, Interval::Daily).await.unwrap(), None);
        assert_eq!(store.find_workspace(&ours, &team.id).await.unwrap(), Some(team));
        store.create_workspace(&theirs, &by(NOW), new("team")).await.unwrap();
    }
}
