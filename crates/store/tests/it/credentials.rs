use tempfile::TempDir;
use tidegate_core::{KeyKind, Secret, Tenant, Timestamp, WorkspaceId};
use tidegate_store::credentials::{
    CredentialChange, CredentialFilter, CredentialRow, NewCredential, NewSecret, Settings,
};
use tidegate_store::keys::NewKey;
use tidegate_store::vault::{MasterKeySource, MasterRing, Vault, add_active_key};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};
use tidegate_store::{Refused, Store, StoreError};
use tokio::task::JoinSet;

use crate::databases::{NOW, by, hash, new_key, with_postgres};
use crate::on_both;

pub const LATER: Timestamp = Timestamp(NOW.0 + 1);
const ALL: CredentialFilter<'static> = CredentialFilter { workspace: None, provider: None, offset: 0, limit: 100 };
const ORIGIN: &str = "https://api.example";

/// A vault over a file of its own, as after a first start.
pub async fn vault(folder: &TempDir) -> (Vault, std::path::PathBuf) {
    let path = folder.path().join("master.key");
    let source = MasterKeySource::File(path.clone());
    let ring = MasterRing::load_or_create(&source).await.unwrap();
    (Vault::new(source, ring), path)
}

pub fn secret_of<'a>(vault: &'a Vault, secret: &'a Secret) -> NewSecret<'a> {
    let label = secret.expose(|bytes| format!("***{}", bytes.len()));
    NewSecret { secret, vault, label, destination: Some(ORIGIN.to_owned()) }
}

/// Stores a credential with this secret.
pub async fn stored(
    store: &Store,
    tenant: &Tenant,
    vault: &Vault,
    workspace: &WorkspaceId,
    provider: &str,
    secret: &str,
    settings: Settings,
) -> Result<CredentialRow, StoreError> {
    let secret = Secret::new(secret);
    let new = NewCredential { workspace, provider, secret: secret_of(vault, &secret), settings };
    store.create_credential(tenant, &by(NOW), &new).await
}

pub fn opened(vault: &Vault, row: &CredentialRow) -> String {
    let secret = vault.open(&row.binding(), row.sealed.as_ref().unwrap()).unwrap();
    secret.expose(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn settings(settings: Settings) -> CredentialChange<'static> {
    CredentialChange { settings, ..CredentialChange::default() }
}

fn to(place: i64) -> CredentialChange<'static> {
    CredentialChange { sort_order: Some(place), ..CredentialChange::default() }
}

fn fallback(is_fallback: bool) -> Settings {
    Settings { is_fallback: Some(is_fallback), ..Settings::default() }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Refused {
    match result {
        Err(StoreError::Refused(rule)) => rule,
        other => panic!("{other:?}"),
    }
}

/// Name and place of a provider's credentials in the order of the list.
async fn order(store: &Store, tenant: &Tenant, provider: &str) -> Vec<(String, bool, i64)> {
    let filter = CredentialFilter { provider: Some(provider), ..ALL };
    let (rows, total) = store.list_credentials(tenant, filter).await.unwrap();
    assert_eq!(rows.len() as u64, total);
    rows.into_iter().map(|row| (row.name.unwrap(), row.is_fallback, row.sort_order)).collect()
}

fn places(list: &[(&str, bool, i64)]) -> Vec<(String, bool, i64)> {
    list.iter().map(|(name, is_fallback, place)| ((*name).to_owned(), *is_fallback, *place)).collect()
}

on_both! {
    async fn a_credential_is_found_with_all_its_settings_and_its_secret_opens(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let full = Settings {
            name: Some(Some("prod".to_owned())),
            disabled: Some(true),
            is_fallback: Some(true),
            is_required: Some(true),
            is_byok_only: Some(false),
            declared_region: Some(Some("europe".to_owned())),
            declared_zdr: Some(Some(false)),
            allowed_models: Some(Some(vec![])),
            allowed_users: Some(Some(vec!["user 1".to_owned(), "user \"2\"".to_owned()])),
            allowed_keys: Some(Some(vec![hash("one")])),
        };
        let full = stored(store, &tenant, &vault, &made.workspace, "openai", "sk-1", full).await.unwrap();
        let bare = stored(store, &tenant, &vault, &made.workspace, "azure", "sk-2", Settings::default()).await.unwrap();
        assert_eq!((full.revision, full.change_seq, bare.change_seq), (1, 1, 2));
        assert!(full.id.chars().nth(14) == Some('7') && full.id.len() == 36, "a UUID of version 7: {}", full.id);
        assert_eq!((opened(&vault, &full), opened(&vault, &bare)), ("sk-1".to_owned(), "sk-2".to_owned()));
        assert_eq!(store.find_credential(&tenant, &full.id).await.unwrap().as_ref(), Some(&full));
        assert_eq!(store.find_credential(&tenant, "nothing").await.unwrap(), None);
        assert_eq!(store.credentials_changed_after(0).await.unwrap(), [full.clone(), bare.clone()]);
        assert_eq!(store.credentials_changed_after(1).await.unwrap(), std::slice::from_ref(&bare));
        assert_eq!(store.list_credentials(&tenant, ALL).await.unwrap(), (vec![bare.clone(), full.clone()], 2));
        let audited = database.audited(&tenant).await;
        let last: Vec<_> = audited[audited.len() - 2..].to_vec();
        let created = |id: &str| ("byok.created".to_owned(), id.to_owned());
        assert_eq!(last, [created(&full.id), created(&bare.id)]);
    }

    async fn lists_are_filtered_paged_and_counted(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let other = NewWorkspace {
            name: "B".to_owned(), slug: "b".to_owned(), created_by: None, settings: WorkspaceChange::default(),
        };
        let other = store.create_workspace(&tenant, &by(NOW), other).await.unwrap().id;
        for (workspace, provider) in [(&made.workspace, "openai"), (&made.workspace, "groq"), (&other, "openai")] {
            stored(store, &tenant, &vault, workspace, provider, "s", Settings::default()).await.unwrap();
        }
        let count = async |filter: CredentialFilter<'_>| {
            let (rows, total) = store.list_credentials(&tenant, filter).await.unwrap();
            (rows.len(), total)
        };
        assert_eq!(count(ALL).await, (3, 3));
        assert_eq!(count(CredentialFilter { offset: 2, limit: 2, ..ALL }).await, (1, 3));
        assert_eq!(count(CredentialFilter { provider: Some("openai"), ..ALL }).await, (2, 2));
        assert_eq!(count(CredentialFilter { workspace: Some(&other), ..ALL }).await, (1, 1));
        assert_eq!(count(CredentialFilter { workspace: Some(&other), provider: Some("groq"), ..ALL }).await, (0, 0));
    }

    async fn a_new_credential_goes_behind_those_of_its_section(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        for (name, is_fallback) in [("a", false), ("b", false), ("c", true), ("d", false), ("e", true)] {
            let settings = Settings { name: Some(Some(name.to_owned())), ..fallback(is_fallback) };
            stored(store, &tenant, &vault, &made.workspace, "p", "s", settings).await.unwrap();
        }
        let other = Settings { name: Some(Some("other".to_owned())), ..Settings::default() };
        stored(store, &tenant, &vault, &made.workspace, "q", "s", other).await.unwrap();
        let expected = [("a", false, 0), ("b", false, 1), ("d", false, 2), ("c", true, 0), ("e", true, 1)];
        assert_eq!(order(store, &tenant, "p").await, places(&expected));
        assert_eq!(order(store, &tenant, "q").await, places(&[("other", false, 0)]));
    }

    async fn a_place_can_be_chosen_and_the_others_shift(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let mut ids = std::collections::HashMap::new();
        for (name, is_fallback) in [("a", false), ("b", false), ("c", false), ("d", false), ("x", true), ("y", true)] {
            let settings = Settings { name: Some(Some(name.to_owned())), ..fallback(is_fallback) };
            let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", settings).await.unwrap();
            ids.insert(name, row.id);
        }
        let change = async |name: &str, change: CredentialChange<'_>| {
            let row = store.update_credential(&tenant, &by(LATER), &ids[name], &change).await.unwrap().unwrap();
            row.sort_order
        };
        let xy = [("x", true, 0), ("y", true, 1)];
        assert_eq!(change("d", to(1)).await, 1);
        let expected = [("a", false, 0), ("d", false, 1), ("b", false, 2), ("c", false, 3)];
        assert_eq!(order(store, &tenant, "p").await, places(&[&expected[..], &xy].concat()));
        assert_eq!(change("a", to(2)).await, 2);
        let expected = [("d", false, 0), ("b", false, 1), ("a", false, 2), ("c", false, 3)];
        assert_eq!(order(store, &tenant, "p").await, places(&[&expected[..], &xy].concat()));
        assert_eq!(change("b", to(9)).await, 3, "nobody stands behind the end");
        let expected = [("d", false, 0), ("a", false, 1), ("c", false, 2), ("b", false, 3)];
        assert_eq!(order(store, &tenant, "p").await, places(&[&expected[..], &xy].concat()));
        // Into the other section: to its end, or where it is wanted.
        assert_eq!(change("a", settings(fallback(true))).await, 2);
        assert_eq!(change("d", CredentialChange { sort_order: Some(1), ..settings(fallback(true)) }).await, 1);
        let expected = [("c", false, 2), ("b", false, 3), ("x", true, 0), ("d", true, 1), ("y", true, 2), ("a", true, 3)];
        assert_eq!(order(store, &tenant, "p").await, places(&expected));

        // Whoever moved is among the changes, once, under a number of its own.
        let before = store.credentials_changed_after(0).await.unwrap().last().unwrap().change_seq;
        change("a", to(1)).await;
        let mut changed = store.credentials_changed_after(before).await.unwrap();
        changed.sort_by_key(|row| row.sort_order);
        let names: Vec<_> = changed.iter().map(|row| row.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "d", "y"]);
        assert!(changed.iter().all(|row| opened(&vault, row) == "s"));
        // And is named in the one row of the audit log.
        let entries = store.list_audit(&tenant, LATER, 0, 1).await.unwrap();
        let mut others = [&*ids["d"], &*ids["y"]];
        others.sort_unstable();
        let new: serde_json::Value = serde_json::from_str(entries[0].new.as_deref().unwrap()).unwrap();
        assert_eq!((&*entries[0].action, &*entries[0].target), ("byok.updated", &*ids["a"]));
        assert_eq!(new, serde_json::json!({"sort_order": 1, "shifted": {"by": 1, "ids": others}}));
    }

    async fn places_do_not_run_out_of_numbers(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let make = async |is_fallback| {
            stored(store, &tenant, &vault, &made.workspace, "p", "s", fallback(is_fallback)).await.unwrap()
        };
        let (first, other) = (make(false).await, make(true).await);
        let far = i64::from(i32::MAX);
        for (row, change, expected) in [
            (&first, to(far), 0),
            (&other, to(far), 0),
            (&other, CredentialChange { sort_order: Some(far), ..settings(fallback(false)) }, 1),
        ] {
            let changed = store.update_credential(&tenant, &by(LATER), &row.id, &change).await.unwrap().unwrap();
            assert_eq!(changed.sort_order, expected);
        }
        assert_eq!(make(false).await.sort_order, 2);
    }

    async fn a_change_sets_what_is_given_and_leaves_the_rest(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let first = Settings {
            name: Some(Some("prod".to_owned())),
            allowed_models: Some(Some(vec!["a/b".to_owned()])),
            ..Settings::default()
        };
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", first).await.unwrap();
        let update = async |change: &CredentialChange<'_>| {
            store.update_credential(&tenant, &by(LATER), &row.id, change).await
        };
        // Nothing, or what is there already, is no change.
        let same = settings(Settings { name: Some(Some("prod".to_owned())), disabled: Some(false), ..Settings::default() });
        for nothing in [CredentialChange::default(), same, to(0)] {
            assert_eq!(update(&nothing).await.unwrap().as_ref(), Some(&row));
        }
        assert_eq!(store.credentials_changed_after(row.change_seq).await.unwrap(), []);

        let change = Settings { name: Some(None), allowed_keys: Some(Some(vec![hash("one")])), ..Settings::default() };
        let changed = update(&settings(change)).await.unwrap().unwrap();
        let expected = CredentialRow {
            name: None,
            allowed_keys: Some(vec![hash("one")]),
            revision: 2,
            updated: Some(LATER),
            change_seq: row.change_seq + 1,
            ..row.clone()
        };
        assert_eq!(changed, expected);
        assert_eq!(store.find_credential(&tenant, &row.id).await.unwrap(), Some(expected));
        let gone = store.update_credential(&tenant, &by(LATER), "nothing", &to(1)).await.unwrap();
        assert_eq!(gone, None);
        let audited = database.audited(&tenant).await;
        let ours: Vec<_> = audited.iter().filter(|(_, id)| **id == *row.id).map(|(action, _)| &**action).collect();
        assert_eq!(ours, ["byok.created", "byok.updated"]);
    }

    async fn sec_4_a_rotation_replaces_the_secret_in_place(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "old secret", Settings::default()).await.unwrap();
        let secret = Secret::new("new secret!");
        let new = NewSecret { destination: Some("https://elsewhere".to_owned()), ..secret_of(&vault, &secret) };
        let disabled = Settings { disabled: Some(true), ..Settings::default() };
        let change = CredentialChange { secret: Some(new), ..settings(disabled) };
        let rotated = store.update_credential(&tenant, &by(LATER), &row.id, &change).await.unwrap().unwrap();
        assert_eq!(opened(&vault, &rotated), "new secret!");
        assert_eq!((&*rotated.label, rotated.destination.as_deref()), ("***11", Some("https://elsewhere")));
        assert!(rotated.disabled && rotated.revision == 2);
        let (old, new) = (row.sealed.as_ref().unwrap(), rotated.sealed.as_ref().unwrap());
        assert_ne!((&old.wrapped_key, &old.ciphertext), (&new.wrapped_key, &new.ciphertext));
        // The same secret again is a rotation too: a fresh data key is drawn.
        let again = CredentialChange { secret: Some(secret_of(&vault, &secret)), ..CredentialChange::default() };
        let again = store.update_credential(&tenant, &by(LATER), &row.id, &again).await.unwrap().unwrap();
        assert_eq!(again.revision, 3);
        assert_ne!(again.sealed, rotated.sealed);
        let entries = store.list_audit(&tenant, LATER, 0, 10).await.unwrap();
        assert!(entries.iter().all(|entry| entry.action == "byok.rotated"), "{entries:?}");
        let first = entries.last().unwrap();
        assert_eq!(first.new.as_deref(), Some(r#"{"disabled":true,"key":"[changed]"}"#));
        assert_eq!(entries[0].new.as_deref(), Some(r#"{"key":"[changed]"}"#));
    }

    async fn what_a_rule_forbids_changes_nothing(database: &Database) {
        let manager = NewKey { kind: KeyKind::Management, ..new_key("manager") };
        let (tenant, made) = database.bootstrap(vec![new_key("live"), new_key("dead"), manager]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        store.delete_key(&tenant, &by(NOW), &hash("dead"), None).await.unwrap();
        let (theirs, foreign) = database.other_tenant().await;
        store.create_key(&theirs, &by(NOW), &foreign, new_key("theirs")).await.unwrap();
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        let before = (store.credentials_changed_after(0).await.unwrap(), database.audited(&tenant).await);

        let keys = |names: &[&str]| Settings {
            disabled: Some(true),
            allowed_keys: Some(Some(names.iter().map(hash).collect())),
            ..Settings::default()
        };
        let both = Settings { is_byok_only: Some(true), ..fallback(true) };
        let cases = [
            (keys(&["live", "dead"]), Refused::UnknownKey),
            (keys(&["theirs"]), Refused::UnknownKey),
            (keys(&["nobody"]), Refused::UnknownKey),
            (keys(&["manager"]), Refused::UnknownKey),
            (both, Refused::ByokOnlyFallback),
        ];
        for (wrong, rule) in cases {
            let created = stored(store, &tenant, &vault, &made.workspace, "p", "s", wrong.clone()).await;
            assert_eq!(refusal(created), rule);
            let changed = store.update_credential(&tenant, &by(LATER), &row.id, &settings(wrong)).await;
            assert_eq!(refusal(changed), rule);
        }
        let nowhere = stored(store, &tenant, &vault, &foreign, "p", "s", Settings::default()).await;
        assert!(matches!(nowhere, Err(StoreError::Missing)), "{nowhere:?}");
        assert_eq!((store.credentials_changed_after(0).await.unwrap(), database.audited(&tenant).await), before);

        // What the row has counts as much as what is given.
        store.update_credential(&tenant, &by(LATER), &row.id, &settings(fallback(true))).await.unwrap();
        let only = Settings { is_byok_only: Some(true), ..Settings::default() };
        let changed = store.update_credential(&tenant, &by(LATER), &row.id, &settings(only)).await;
        assert_eq!(refusal(changed), Refused::ByokOnlyFallback);
    }

    async fn a_key_that_is_deleted_later_stays_named(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![new_key("one")]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let keys = Settings { allowed_keys: Some(Some(vec![hash("one")])), ..Settings::default() };
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", keys).await.unwrap();
        store.delete_key(&tenant, &by(LATER), &hash("one"), None).await.unwrap();
        let renamed = settings(Settings { name: Some(Some("n".to_owned())), ..Settings::default() });
        let changed = store.update_credential(&tenant, &by(LATER), &row.id, &renamed).await.unwrap().unwrap();
        assert_eq!(changed.allowed_keys, Some(vec![hash("one")]), "a restriction never widens by itself");
    }

    async fn a_workspace_has_500_credentials_at_most(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let make = async || stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await;
        for _ in 0..499 {
            make().await.unwrap();
        }
        let last = make().await.unwrap();
        assert_eq!(last.sort_order, 499);
        assert_eq!(refusal(make().await), Refused::TooManyCredentials);
        assert!(store.delete_credential(&tenant, &by(LATER), &last.id).await.unwrap());
        make().await.unwrap();
    }

    async fn a_deleted_credential_leaves_no_secret(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        assert!(store.delete_credential(&tenant, &by(LATER), &row.id).await.unwrap());
        assert!(!store.delete_credential(&tenant, &by(LATER), &row.id).await.unwrap());
        assert_eq!(store.find_credential(&tenant, &row.id).await.unwrap(), None);
        assert_eq!(store.list_credentials(&tenant, ALL).await.unwrap(), (vec![], 0));
        let sealed = "SELECT COUNT(*) FROM credentials WHERE ciphertext IS NOT NULL OR wrapped_key IS NOT NULL \
                      OR master_key_id IS NOT NULL";
        assert_eq!(database.number(sealed).await, 0);
        let changes = store.credentials_changed_after(row.change_seq).await.unwrap();
        assert!(changes.len() == 1 && changes[0].deleted && changes[0].sealed.is_none());
        let change = store.update_credential(&tenant, &by(LATER), &row.id, &to(1)).await.unwrap();
        assert_eq!(change, None);
    }

    async fn the_first_load_has_what_is_live_and_goes_on_with_the_changes(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let loaded = async || {
            let mut rows = Vec::new();
            let seq = store.live_credentials(|row| rows.push(row)).await.unwrap();
            (rows, seq)
        };
        assert_eq!(loaded().await, (vec![], 0));
        let make = async |name| stored(store, &tenant, &vault, &made.workspace, name, "s", Settings::default()).await;
        let (gone, kept) = (make("p").await.unwrap(), make("q").await.unwrap());
        store.delete_credential(&tenant, &by(LATER), &gone.id).await.unwrap();
        assert_eq!(loaded().await, (vec![kept.clone()], 3), "what was deleted is not loaded");
        assert_eq!(store.credentials_changed_after(3).await.unwrap(), []);
        assert!(store.delete_credential(&tenant, &by(LATER), &kept.id).await.unwrap());
        let changes = store.credentials_changed_after(3).await.unwrap();
        assert!(changes.len() == 1 && changes[0].deleted, "a later deletion is among the changes");
        assert_eq!(loaded().await, (vec![], 4));
    }

    /// However many tries there are, a caller waits once.
    async fn a_change_waits_two_seconds_for_a_lock_and_no_longer(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        let disabled = settings(Settings { disabled: Some(true), ..Settings::default() });
        let other = database.open_again().await;
        let wait = async || {
            let started = tokio::time::Instant::now();
            let error = store.update_credential(&tenant, &by(LATER), &row.id, &disabled).await.unwrap_err();
            assert!(matches!(error, StoreError::Busy(_)), "{error:?}");
            started.elapsed()
        };
        let hold = "UPDATE sequences SET value = value WHERE name = 'credentials'";
        let waited = match &other {
            Store::Sqlite { writer, .. } => {
                let mut held = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
                sqlx::query(hold).execute(&mut *held).await.unwrap();
                wait().await
            }
            Store::Postgres(pool) => {
                let mut held = pool.begin().await.unwrap();
                sqlx::query(hold).execute(&mut *held).await.unwrap();
                wait().await
            }
        };
        assert!(waited < std::time::Duration::from_secs(4), "{waited:?}");
        other.close().await;
        let changed = store.update_credential(&tenant, &by(LATER), &row.id, &disabled).await.unwrap().unwrap();
        assert!(changed.disabled && changed.revision == 2);
    }

    async fn ten_3_a_tenant_neither_sees_nor_touches_foreign_credentials(database: &Database) {
        let (ours, made) = database.bootstrap(vec![]).await;
        let (theirs, _) = database.other_tenant().await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let row = stored(store, &ours, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        assert_eq!(store.find_credential(&theirs, &row.id).await.unwrap(), None);
        assert_eq!(store.list_credentials(&theirs, ALL).await.unwrap(), (vec![], 0));
        let workspace = CredentialFilter { workspace: Some(&made.workspace), ..ALL };
        assert_eq!(store.list_credentials(&theirs, workspace).await.unwrap(), (vec![], 0));
        let secret = Secret::new("theirs");
        let change = CredentialChange { secret: Some(secret_of(&vault, &secret)), ..to(5) };
        assert_eq!(store.update_credential(&theirs, &by(LATER), &row.id, &change).await.unwrap(), None);
        assert!(!store.delete_credential(&theirs, &by(LATER), &row.id).await.unwrap());
        assert_eq!(store.find_credential(&ours, &row.id).await.unwrap(), Some(row));
    }

    async fn sec_4_concurrent_changes_are_all_made_and_none_is_refused(database: &Database) {
        const WRITERS: i64 = 8;
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (vault, _) = vault(&database.folder).await;
        let vault = std::sync::Arc::new(vault);
        let row = stored(&database.store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            // Half of them are another process.
            let store = if writer % 2 == 0 { database.store.clone() } else { database.open_again().await };
            let (tenant, vault, id) = (tenant.clone(), vault.clone(), row.id.clone());
            tasks.spawn(async move {
                for round in 0..5 {
                    let secret = Secret::new(format!("secret {writer} {round}"));
                    let change = CredentialChange { secret: Some(secret_of(&vault, &secret)), ..CredentialChange::default() };
                    store.update_credential(&tenant, &by(LATER), &id, &change).await.unwrap().unwrap();
                }
            });
        }
        tasks.join_all().await;
        let last = database.store.find_credential(&tenant, &row.id).await.unwrap().unwrap();
        assert_eq!(last.revision, 1 + WRITERS * 5);
        assert!(opened(&vault, &last).starts_with("secret "));
        database.audited(&tenant).await;
    }
}

/// What holds the lock of all credentials must not do so once per credential: PostgreSQL counts the statements.
#[test]
fn many_credentials_are_moved_and_deleted_with_few_statements() {
    with_postgres(async |database| {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let team = store.create_workspace(&tenant, &by(NOW), crate::workspaces::new("team")).await.unwrap().id;
        let mut ids = Vec::new();
        for _ in 0..30 {
            ids.push(stored(store, &tenant, &vault, &team, "p", "s", Settings::default()).await.unwrap().id);
        }
        for sql in [
            "CREATE TABLE statements (what TEXT)",
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO statements VALUES (TG_TABLE_NAME); RETURN NULL; END $$",
            "CREATE TRIGGER note AFTER UPDATE ON credentials FOR EACH STATEMENT EXECUTE FUNCTION note()",
            "CREATE TRIGGER note AFTER UPDATE ON sequences FOR EACH STATEMENT EXECUTE FUNCTION note()",
            "CREATE TRIGGER note AFTER INSERT ON audit FOR EACH STATEMENT EXECUTE FUNCTION note()",
        ] {
            database.execute(sql, &[]).await;
        }
        let count = async || {
            let count = database.number("SELECT COUNT(*) FROM statements").await;
            database.execute("DELETE FROM statements", &[]).await;
            count
        };
        let moved = store.update_credential(&tenant, &by(LATER), &ids[29], &to(0)).await.unwrap().unwrap();
        assert_eq!((moved.sort_order, count().await), (0, 5), "a number, its own; numbers, theirs; the log");
        add_active_key(&path).unwrap();
        let done = store.rewrap_credentials(&tenant, &by(LATER), &vault, "").await.unwrap();
        assert_eq!((done.count, count().await), (30, 33), "a statement for each, and three for all");
        assert!(store.delete_workspace(&tenant, &by(LATER), &team).await.unwrap());
        assert!(
            count().await <= 13,
            "locks of keys, credentials, presets; guardrails, destinations, plugins, contents, choices; numbers, theirs; limits; twice the log"
        );
        let gone = store.credentials_changed_after(61).await.unwrap();
        assert!(gone.len() == 30 && gone.iter().all(|row| row.deleted), "each under a number of its own");
        database.audited(&tenant).await;
    });
}
