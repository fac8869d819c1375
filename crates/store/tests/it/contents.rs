use std::collections::BTreeMap;

use tidegate_core::{GenerationId, OrganisationId, Secret, Tenant, Timestamp, WorkspaceId};
use tidegate_store::contents::{Content, KeptOf};
use tidegate_store::destinations::{DestinationSettings, NewConfig, NewDestination, new_destination_id};
use tidegate_store::vault::{add_active_key, remove_keys};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};

use crate::credentials::{LATER, vault};
use crate::databases::{NOW, by};
use crate::on_both;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn content(tenant: &Tenant, workspace: &WorkspaceId, at: Timestamp, words: &str) -> Content {
    Content {
        generation: GenerationId::new(at),
        organisation: tenant.organisation.clone(),
        workspace: workspace.clone(),
        at,
        plain: words.as_bytes().to_vec(),
    }
}

on_both! {
    async fn words_are_sealed_found_by_their_tenant_and_deleted(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let one = content(&tenant, &made.workspace, NOW, "the first words");
        let other = content(&tenant, &made.workspace, NOW, "other words");
        store.keep_contents(&vault, &[one.clone(), other.clone()]).await.unwrap();
        let again = Content { plain: b"changed".to_vec(), ..one.clone() };
        store.keep_contents(&vault, &[again]).await.unwrap();
        let read = async |tenant: &Tenant, id| store.find_content(tenant, &vault, id).await.unwrap();
        assert_eq!(read(&tenant, &one.generation).await.unwrap(), one.plain, "what is kept first stays");
        let stranger = Tenant { organisation: OrganisationId("org_x".into()) };
        assert!(read(&stranger, &one.generation).await.is_none());
        let delete = async |tenant: &Tenant| store.delete_contents(tenant, &by(LATER), &[one.generation]).await.unwrap();
        assert_eq!(delete(&stranger).await, 0);
        assert_eq!((delete(&tenant).await, delete(&tenant).await), (1, 0));
        assert!(read(&tenant, &one.generation).await.is_none() && read(&tenant, &other.generation).await.is_some());
        let audited = database.audited(&tenant).await;
        assert_eq!(audited.iter().filter(|(action, _)| action == "content.deleted").count(), 1);

        // Moved to another request it does not open.
        let ids = [other.generation.as_str(), one.generation.as_str()];
        database.execute("UPDATE generation_contents SET generation_id = $2 WHERE generation_id = $1", &ids).await;
        assert!(store.find_content(&tenant, &vault, &one.generation).await.is_err());
    }

    async fn words_are_counted_and_opened_with_the_other_secrets(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let old = vault.active_id();
        let all: Vec<Content> = (0..250).map(|number| content(&tenant, &made.workspace, Timestamp(NOW.0 + number), "words")).collect();
        store.keep_contents(&vault, &all[..249]).await.unwrap();
        let plain = Secret::new("held");
        let destination = NewDestination {
            id: new_destination_id(NOW),
            workspace: made.workspace.clone(),
            kind: "webhook".to_owned(),
            name: "hook".to_owned(),
            enabled: true,
            settings: DestinationSettings::default(),
            config: NewConfig { vault: &vault, label: "test", plain: &plain },
            logged: serde_json::Value::Null,
        };
        store.create_destination(&tenant, &by(NOW), destination).await.unwrap();
        let new = add_active_key(&path).unwrap();
        store.keep_contents(&vault, &all[249..]).await.unwrap();
        let counts = |of_old, of_new| BTreeMap::from([(old.to_string(), of_old), (new.to_string(), of_new)]);
        assert_eq!(store.count_contents_by_master_key().await.unwrap(), counts(249, 1));
        let others = async || store.count_by_master_key(&vault, "test").await.unwrap();
        assert_eq!(others().await, BTreeMap::from([(old.to_string(), 1)]));
        assert_eq!(store.reseal_destinations(&vault, "test").await.unwrap().count, 1);
        assert_eq!(others().await, BTreeMap::from([(new.to_string(), 1)]));

        let verified = async || store.verify_contents(&vault, |_| {}).await.unwrap();
        assert_eq!((verified().await.count, verified().await.failed.len()), (250, 0));
        let ids = [all[7].generation.as_str(), all[8].generation.as_str()];
        database.execute("DELETE FROM generation_contents WHERE generation_id = $1", &ids[1..]).await;
        database.execute("UPDATE generation_contents SET generation_id = $2 WHERE generation_id = $1", &ids).await;
        let verified = verified().await;
        let failed: Vec<_> = verified.failed.iter().map(|failed| failed.id.as_str()).collect();
        assert_eq!((verified.count, failed), (249, vec![ids[1]]), "it was said in another request");

        database.execute("ALTER TABLE generation_contents RENAME TO elsewhere", &[]).await;
        assert!(store.count_contents_by_master_key().await.is_err());
        assert_eq!(others().await, BTreeMap::from([(new.to_string(), 1)]), "they are counted without the words");
    }

    async fn words_leave_for_their_age_oldest_first(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let at = |day: i64| content(&tenant, &made.workspace, Timestamp(NOW.0 + day * DAY_MS), "words");
        let all: Vec<Content> = [3, 0, 2, 1].map(at).into();
        store.keep_contents(&vault, &all).await.unwrap();
        let left = async || database.number("SELECT COUNT(*) FROM generation_contents").await;
        let before = Timestamp(NOW.0 + 3 * DAY_MS);
        assert_eq!((store.purge_contents(before, 2).await.unwrap(), left().await), (2, 2));
        assert!(store.find_content(&tenant, &vault, &all[2].generation).await.unwrap().is_some());
        assert_eq!((store.purge_contents(before, 2).await.unwrap(), left().await), (1, 1));
        assert!(store.find_content(&tenant, &vault, &all[0].generation).await.unwrap().is_some());
    }

    async fn what_workspaces_want_kept_changes_its_number(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let (first, kept) = store.all_kept().await.unwrap();
        assert!(kept.is_empty());
        let change = WorkspaceChange {
            is_io_logging_enabled: Some(true),
            io_logging_sampling_rate: Some(0.25),
            io_logging_api_key_ids: Some(Some(vec![7, 8])),
            ..WorkspaceChange::default()
        };
        store.update_workspace(&tenant, &by(LATER), &made.workspace, &change).await.unwrap();
        let (second, kept) = store.all_kept().await.unwrap();
        assert_eq!(kept, [KeptOf { workspace: made.workspace.clone(), share: 0.25, keys: Some(vec![7, 8]) }]);
        let name = WorkspaceChange { name: Some("Other".to_owned()), ..WorkspaceChange::default() };
        store.update_workspace(&tenant, &by(LATER), &made.workspace, &name).await.unwrap();
        assert_eq!((store.contents_seq().await.unwrap(), second > first), (second, true), "a name is nothing to it");

        // A workspace takes its words with it, and none come after.
        let settings = WorkspaceChange { is_io_logging_enabled: Some(true), ..WorkspaceChange::default() };
        let new = NewWorkspace { name: "Team".to_owned(), slug: "team".to_owned(), created_by: None, settings };
        let team = store.create_workspace(&tenant, &by(LATER), new).await.unwrap().id;
        assert_eq!(store.all_kept().await.unwrap().1.len(), 2);
        store.keep_contents(&vault, &[content(&tenant, &team, NOW, "words")]).await.unwrap();
        let left = async || database.number("SELECT COUNT(*) FROM generation_contents").await;
        assert_eq!(left().await, 1);
        assert!(store.delete_workspace(&tenant, &by(LATER), &team).await.unwrap());
        store.keep_contents(&vault, &[content(&tenant, &team, NOW, "late words")]).await.unwrap();
        assert_eq!((left().await, store.all_kept().await.unwrap().1.len()), (0, 1));
    }

    async fn sec_5_a_master_key_stays_as_long_as_words_need_it(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let old = vault.active_id();
        let one = content(&tenant, &made.workspace, NOW, "words");
        store.keep_contents(&vault, std::slice::from_ref(&one)).await.unwrap();
        let new = add_active_key(&path).unwrap();
        let give_up = async || store.give_up_master_keys(std::slice::from_ref(&old), |ids| remove_keys(&path, ids)).await.unwrap();
        assert!(give_up().await.is_empty(), "it is in use");
        // A node that has not heard of the new key seals under it all the same.
        let later = content(&tenant, &made.workspace, LATER, "later words");
        store.keep_contents(&vault, std::slice::from_ref(&later)).await.unwrap();
        assert_eq!(vault.active_id(), new);
        assert_eq!(store.purge_contents(LATER, 10).await.unwrap(), 1);
        assert_eq!(give_up().await, std::slice::from_ref(&old));
        vault.refresh().await.unwrap();
        assert!(!vault.knows(&old));
        assert_eq!(store.find_content(&tenant, &vault, &later.generation).await.unwrap().unwrap(), later.plain);
    }
}
