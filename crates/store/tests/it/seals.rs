use std::path::Path;

use tidegate_core::{Secret, Tenant};
use tidegate_store::credentials::{CredentialChange, Settings};
use tidegate_store::vault::{Vault, add_active_key, remove_keys};
use tidegate_store::{Store, StoreError};

use crate::credentials::{LATER, opened, secret_of, stored, vault};
use crate::databases::{NOW, by};
use crate::on_both;

/// Rewraps everything and says how many batches and records it took.
async fn rewrap(store: &Store, tenant: &Tenant, vault: &Vault) -> (usize, u64) {
    let (mut batches, mut count, mut after) = (0, 0, String::new());
    loop {
        let done = store.rewrap_credentials(tenant, &by(LATER), vault, &after).await.unwrap();
        assert!(done.failed.is_empty(), "{:?}", done.failed);
        batches += usize::from(done.count > 0);
        count += done.count;
        match done.next {
            Some(next) => after = next,
            None => return (batches, count),
        }
    }
}

/// Where the bytes are found among the files of the database.
fn found(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let holds = |path: &Path| std::fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes);
    files.filter(|path| holds(path)).map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn sec_4_after_a_rotation_or_deletion_no_file_holds_the_old_secret() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::open("sqlite:test.db", folder.path()).await.unwrap();
    let made = store.bootstrap(NOW, crate::databases::first(vec![])).await.unwrap().unwrap();
    let tenant = Tenant { organisation: made.organisation };
    let (vault, _) = vault(&folder).await;
    // A long one takes pages of its own in the file.
    for length in [20, 300, 60_000] {
        let text = "x".repeat(length);
        let row = stored(&store, &tenant, &vault, &made.workspace, "p", &text, Settings::default()).await.unwrap();
        // Readers of this and of another process must not keep it alive.
        let other = Store::open("sqlite:test.db", folder.path()).await.unwrap();
        for store in [&store, &other] {
            assert!(store.find_credential(&tenant, &row.id).await.unwrap().is_some());
            store.credentials_changed_after(0).await.unwrap();
        }
        let parts = |row: &tidegate_store::credentials::CredentialRow| {
            let sealed = row.sealed.clone().unwrap();
            // Of a long one, the beginning and the end: what lies on one page.
            let (head, tail) =
                (sealed.ciphertext[..20].to_vec(), sealed.ciphertext[sealed.ciphertext.len() - 20..].to_vec());
            [sealed.wrapped_key, head, tail]
        };
        for part in parts(&row) {
            assert!(!found(folder.path(), &part).is_empty(), "it is there before, {length} bytes");
        }
        let secret = Secret::new("y".repeat(length));
        let change = CredentialChange { secret: Some(secret_of(&vault, &secret)), ..CredentialChange::default() };
        let rotated = store.update_credential(&tenant, &by(LATER), &row.id, &change).await.unwrap().unwrap();
        for part in parts(&row) {
            assert_eq!(found(folder.path(), &part), Vec::<String>::new(), "rotated, {length} bytes");
        }
        assert_eq!(std::fs::metadata(folder.path().join("test.db-wal")).unwrap().len(), 0);
        for part in parts(&rotated) {
            assert_eq!(found(folder.path(), &part), ["test.db"], "the new one is in the file");
        }
        assert!(store.delete_credential(&tenant, &by(LATER), &rotated.id).await.unwrap());
        for part in parts(&rotated) {
            assert_eq!(found(folder.path(), &part), Vec::<String>::new(), "deleted, {length} bytes");
        }
        other.close().await;
    }
    store.close().await;
}

/// A backup reads for minutes. It must not keep anybody from writing, and the old secret goes when it is over.
#[tokio::test]
async fn sec_4_a_long_reader_holds_up_no_writer_and_no_file_holds_the_old_secret_after_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = Store::open("sqlite:test.db", folder.path()).await.unwrap();
    let made = store.bootstrap(NOW, crate::databases::first(vec![])).await.unwrap().unwrap();
    let tenant = Tenant { organisation: made.organisation };
    let (vault, _) = vault(&folder).await;
    let other = Store::open("sqlite:test.db", folder.path()).await.unwrap();
    let Store::Sqlite { readers, .. } = &other else { panic!("not SQLite") };
    let secret = Secret::new("new secret");
    let rotation = || CredentialChange { secret: Some(secret_of(&vault, &secret)), ..CredentialChange::default() };
    // The rotation is made by this process, and by a command that has ended when the reader does.
    for by_command in [false, true] {
        let row = stored(&store, &tenant, &vault, &made.workspace, "p", "old", Settings::default()).await.unwrap();
        let old = row.sealed.as_ref().unwrap().wrapped_key.clone();
        store.credentials_changed_after(0).await.unwrap();
        let mut backup = readers.begin().await.unwrap();
        sqlx::query("SELECT * FROM credentials").fetch_all(&mut *backup).await.unwrap();
        let started = tokio::time::Instant::now();
        if by_command {
            let command = Store::open("sqlite:test.db", folder.path()).await.unwrap();
            command.update_credential(&tenant, &by(LATER), &row.id, &rotation()).await.unwrap().unwrap();
            command.close().await;
            store.credentials_changed_after(row.change_seq).await.unwrap();
        } else {
            store.update_credential(&tenant, &by(LATER), &row.id, &rotation()).await.unwrap().unwrap();
        }
        for number in 0..10 {
            let key = crate::databases::new_key(format!("{by_command} {number}"));
            store.create_key(&tenant, &by(LATER), &made.workspace, key).await.unwrap();
            assert!(!store.tidy().await, "somebody reads");
        }
        assert!(started.elapsed() < std::time::Duration::from_millis(1_500), "{:?}", started.elapsed());
        assert!(!found(folder.path(), &old).is_empty(), "the reader still sees it");
        backup.rollback().await.unwrap();
        assert!(store.tidy().await && store.tidy().await);
        assert_eq!(found(folder.path(), &old), Vec::<String>::new());
        assert_eq!(std::fs::metadata(folder.path().join("test.db-wal")).unwrap().len(), 0);
    }
    other.close().await;
    store.close().await;
}

on_both! {
    async fn sec_5_records_are_rewrapped_in_batches_and_the_old_key_can_go(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let check = store.keep_vault_check(&vault.check()).await.unwrap();
        let old = vault.active_id();
        let more = store
            .create_workspace(&tenant, &by(NOW), tidegate_store::workspaces::NewWorkspace {
                name: "B".to_owned(), slug: "b".to_owned(), created_by: None, settings: Default::default(),
            })
            .await
            .unwrap()
            .id;
        let mut rows = Vec::new();
        for number in 0..501 {
            let workspace = if number < 500 { &made.workspace } else { &more };
            let text = format!("secret {number}");
            rows.push(stored(store, &tenant, &vault, workspace, "p", &text, Settings::default()).await.unwrap());
        }
        store.delete_credential(&tenant, &by(NOW), &rows.pop().unwrap().id).await.unwrap();
        rows.push(stored(store, &tenant, &vault, &more, "p", "secret 500", Settings::default()).await.unwrap());
        assert_eq!(store.count_to_rewrap(&tenant, &vault).await.unwrap(), 0);
        assert_eq!(rewrap(store, &tenant, &vault).await, (0, 0));

        let new = add_active_key(&path).unwrap();
        vault.refresh().await.unwrap();
        assert_eq!(store.count_to_rewrap(&tenant, &vault).await.unwrap(), 501);
        let unused = store.give_up_master_keys(std::slice::from_ref(&old), |ids| remove_keys(&path, ids)).await.unwrap();
        assert!(unused.is_empty() && vault.knows(&old), "it is in use");
        let before = store.credentials_changed_after(0).await.unwrap();
        assert_eq!(rewrap(store, &tenant, &vault).await, (6, 501));
        assert_eq!(rewrap(store, &tenant, &vault).await, (0, 0), "a second pass finds nothing to do");

        for (number, row) in rows.iter().enumerate() {
            let now = store.find_credential(&tenant, &row.id).await.unwrap().unwrap();
            let (was, is) = (row.sealed.as_ref().unwrap(), now.sealed.as_ref().unwrap());
            assert_eq!((&is.master_key, &is.ciphertext, now.revision), (&new, &was.ciphertext, row.revision));
            assert_eq!(opened(&vault, &now), format!("secret {number}"));
        }
        let last = before.last().unwrap().change_seq;
        let changed = store.credentials_changed_after(last).await.unwrap();
        assert_eq!(changed.len(), 501, "every node hears of it");
        let entries = store.list_audit(&tenant, LATER, 0, 10).await.unwrap();
        let values: Vec<_> = entries.iter().map(|entry| (&*entry.action, entry.new.as_deref().unwrap())).collect();
        let expected = |count| format!(r#"{{"count":{count},"master_key":"{new}"}}"#);
        assert_eq!((values.len(), values[0]), (6, ("secrets.rewrapped", &*expected(1))));
        assert!(values[1..].iter().all(|value| *value == ("secrets.rewrapped", &*expected(100))), "{values:?}");

        // The check record is the last that needs the old key.
        let give_up = async || store.give_up_master_keys(std::slice::from_ref(&old), |ids| remove_keys(&path, ids)).await;
        assert!(give_up().await.unwrap().is_empty());
        store.rewrap_vault_check(&vault).await.unwrap();
        store.rewrap_vault_check(&vault).await.unwrap();
        let now = store.vault_check().await.unwrap().unwrap();
        assert!(now.master_key == new && now.ciphertext == check.ciphertext && vault.is_ours(&now));
        assert_eq!(give_up().await.unwrap(), std::slice::from_ref(&old));
        vault.refresh().await.unwrap();
        assert!(!vault.knows(&old));
        let verified = store.verify_credentials(&tenant, &vault, |_| {}).await.unwrap();
        assert!(verified.count == 501 && verified.failed.is_empty(), "{verified:?}");
    }

    async fn sec_5_a_record_that_does_not_open_is_named_and_holds_nothing_up(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let mut ids = Vec::new();
        for secret in ["one", "two", "three"] {
            let row = stored(store, &tenant, &vault, &made.workspace, "p", secret, Settings::default()).await.unwrap();
            ids.push(row.id);
        }
        // Moved to another provider: SEC-2 forbids that it opens there.
        database.execute("UPDATE credentials SET provider = 'q' WHERE id = $1", &[&ids[1]]).await;
        let mut heard = Vec::new();
        let verified = store.verify_credentials(&tenant, &vault, |count| heard.push(count)).await.unwrap();
        assert_eq!((verified.count, heard), (3, vec![3]));
        let failed: Vec<_> = verified.failed.iter().map(|failed| &*failed.id).collect();
        assert_eq!(failed, [&*ids[1]]);
        add_active_key(&path).unwrap();
        let done = store.rewrap_credentials(&tenant, &by(LATER), &vault, "").await.unwrap();
        assert_eq!((done.count, done.failed.len(), done.next), (2, 1, None));
        assert_eq!(done.failed[0].id, *ids[1]);
    }

    async fn sec_5_a_record_is_sealed_under_the_ring_of_the_moment(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path)) = (&database.store, vault(&database.folder).await);
        let new = add_active_key(&path).unwrap();
        let row = stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        assert_eq!(row.sealed.unwrap().master_key, new);
        std::fs::remove_file(&path).unwrap();
        let refused = stored(store, &tenant, &vault, &made.workspace, "p", "s", Settings::default()).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }

    async fn sec_3_of_several_check_records_the_first_stays(database: &Database) {
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        assert_eq!(store.vault_check().await.unwrap(), None);
        let (one, other) = (vault.check(), vault.check());
        assert_ne!(one, other);
        assert_eq!(store.keep_vault_check(&one).await.unwrap(), one);
        assert_eq!(database.open_again().await.keep_vault_check(&other).await.unwrap(), one);
        assert_eq!(store.vault_check().await.unwrap(), Some(one));
    }

    async fn sec_3_a_ring_is_tried_on_what_is_there(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (elsewhere, store) = (tempfile::TempDir::new().unwrap(), &database.store);
        let ((right, path), (wrong, _)) = (vault(&database.folder).await, vault(&elsewhere).await);
        stored(store, &tenant, &right, &made.workspace, "p", "s", Settings::default()).await.unwrap();
        assert!(!store.is_ring_right(&wrong).await.unwrap());
        assert_eq!(store.vault_check().await.unwrap(), None, "a wrong ring leaves nothing behind");
        assert!(store.is_ring_right(&right).await.unwrap());
        let check = store.vault_check().await.unwrap();
        assert!(check.is_some() && store.is_ring_right(&right).await.unwrap());
        assert!(!store.is_ring_right(&wrong).await.unwrap());
        assert_eq!(store.vault_check().await.unwrap(), check);
        // A ring that was read before another process rotated it is read again.
        let source = tidegate_store::vault::MasterKeySource::File(path.clone());
        let other = Vault::new(source.clone(), tidegate_store::vault::MasterRing::load(&source).await.unwrap());
        add_active_key(&path).unwrap();
        other.refresh().await.unwrap();
        store.rewrap_vault_check(&other).await.unwrap();
        assert!(store.is_ring_right(&right).await.unwrap());
    }
}
