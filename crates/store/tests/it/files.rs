use tidegate_core::{FileId, Secret, Tenant, Timestamp, WorkspaceId};
use tidegate_store::files::{FileRow, From, NewFile, Room, SealedFile};
use tidegate_store::vault::{Vault, add_active_key, remove_keys};
use tidegate_store::{Refused, Store, StoreError};

use crate::credentials::vault;
use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

const ROOM: Room = Room { files: 100, bytes: 1_000_000 };

/// Kept at this many milliseconds after the beginning.
async fn kept(
    store: &Store,
    tenant: &Tenant,
    vault: &Vault,
    workspace: &WorkspaceId,
    (content, at): (&[u8], i64),
    room: Room,
) -> Result<FileRow, StoreError> {
    let by = by(Timestamp(NOW.0 + at));
    let new = NewFile {
        workspace,
        filename: "tides.txt",
        mime_type: "text/plain",
        purpose: None,
        content: Secret::new(content),
    };
    store.create_file(tenant, &by, vault, SealedFile::new(vault, &by, new).unwrap(), room).await
}

async fn read(
    store: &Store,
    tenant: &Tenant,
    vault: &Vault,
    workspace: &WorkspaceId,
    id: &FileId,
) -> Option<(FileRow, Vec<u8>)> {
    let found = store.read_file(tenant, workspace, vault, id).await.unwrap();
    found.map(|(row, content)| (row, content.expose(<[u8]>::to_vec)))
}

on_both! {
    async fn a_file_is_read_back_by_its_workspace_alone(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let (vault, _) = vault(&database.folder).await;
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap();
        let (other, elsewhere) = database.other_tenant().await;
        // No UTF-8, and a NUL.
        let content = [0, 255, 254, b'x'];
        let row = kept(store, &tenant, &vault, ours, (&content, 7), ROOM).await.unwrap();
        assert_eq!((&*row.filename, &*row.mime_type, row.size_bytes), ("tides.txt", "text/plain", 4));
        assert_eq!((row.created, row.purpose.as_deref()), (Timestamp(NOW.0 + 7), None));
        assert_eq!(store.find_file(&tenant, ours, &row.id).await.unwrap(), Some(row.clone()));
        assert_eq!(read(store, &tenant, &vault, ours, &row.id).await, Some((row.clone(), content.to_vec())));

        for (tenant, workspace) in [(&tenant, &team.id), (&other, ours), (&other, &elsewhere), (&tenant, &elsewhere)] {
            assert_eq!(store.find_file(tenant, workspace, &row.id).await.unwrap(), None);
            assert_eq!(read(store, tenant, &vault, workspace, &row.id).await, None);
            assert_eq!(store.list_files(tenant, workspace, From::Start, false, 9).await.unwrap(), (vec![], false));
            assert!(!store.delete_file(tenant, &by(NOW), workspace, &row.id).await.unwrap());
        }
        let foreign = kept(store, &tenant, &vault, &elsewhere, (b"x", 8), ROOM).await;
        assert!(matches!(foreign, Err(StoreError::Missing)), "{foreign:?}");

        assert!(store.delete_file(&tenant, &by(NOW), ours, &row.id).await.unwrap());
        assert!(!store.delete_file(&tenant, &by(NOW), ours, &row.id).await.unwrap());
        assert_eq!(read(store, &tenant, &vault, ours, &row.id).await, None);
        assert_eq!(database.number("SELECT COUNT(*) FROM file_contents").await, 0);
        let actions = database.audited(&tenant).await;
        let expected = ["file.created", "file.deleted"].map(|action| (action.to_owned(), row.id.to_string()));
        assert_eq!(actions[actions.len() - 2..], expected);
    }

    async fn pages_go_both_ways_in_both_orders(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let (vault, _) = vault(&database.folder).await;
        let mut ids = Vec::new();
        for at in 0..5 {
            ids.push(kept(store, &tenant, &vault, ours, (b"x", at), ROOM).await.unwrap().id);
        }
        let places = async |from, oldest_first, limit| {
            let (page, more) = store.list_files(&tenant, ours, from, oldest_first, limit).await.unwrap();
            (page.iter().map(|row| ids.iter().position(|id| *id == row.id).unwrap()).collect::<Vec<_>>(), more)
        };
        for (from, oldest_first, limit, wanted) in [
            (From::Start, false, 2, (vec![4, 3], true)),
            (From::After(ids[3]), false, 2, (vec![2, 1], true)),
            (From::After(ids[1]), false, 2, (vec![0], false)),
            (From::Before(ids[1]), false, 2, (vec![3, 2], true)),
            (From::Before(ids[3]), false, 2, (vec![4], false)),
            (From::Start, true, 5, (vec![0, 1, 2, 3, 4], false)),
            (From::After(ids[0]), true, 3, (vec![1, 2, 3], true)),
            (From::Before(ids[4]), true, 3, (vec![1, 2, 3], true)),
            (From::Before(ids[0]), true, 3, (vec![], false)),
        ] {
            assert_eq!(places(from, oldest_first, limit).await, wanted, "{from:?} {oldest_first}");
        }
    }

    async fn a_workspace_keeps_no_more_than_it_may(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let (vault, _) = vault(&database.folder).await;
        let room = Room { files: 2, bytes: 10 };
        kept(store, &tenant, &vault, ours, (b"123456", 0), room).await.unwrap();
        let large = kept(store, &tenant, &vault, ours, (b"12345", 1), room).await;
        assert!(matches!(large, Err(StoreError::Refused(Refused::NoRoomForFile))), "{large:?}");
        kept(store, &tenant, &vault, ours, (b"1234", 2), room).await.expect("it is filled to the last byte");
        let third = kept(store, &tenant, &vault, ours, (b"", 3), room).await;
        assert!(matches!(third, Err(StoreError::Refused(Refused::TooManyFiles))), "{third:?}");
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap();
        let theirs = kept(store, &tenant, &vault, &team.id, (b"123456", 4), room).await.expect("another has its own room");

        assert!(store.delete_workspace(&tenant, &by(NOW), &team.id).await.unwrap());
        assert_eq!(store.find_file(&tenant, &team.id, &theirs.id).await.unwrap(), None);
        assert_eq!(database.number("SELECT COUNT(*) FROM file_contents").await, 2, "its files went with it");
    }

    async fn sec_3_files_follow_the_master_key(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let (vault, ring) = vault(&database.folder).await;
        let row = kept(store, &tenant, &vault, ours, (b"high water", 0), ROOM).await.unwrap();
        let old = vault.active_id();
        add_active_key(&ring).unwrap();
        vault.refresh().await.unwrap();
        assert_eq!(store.count_to_rewrap(&tenant, &vault).await.unwrap(), 1);
        let ids = [old.clone()];
        assert_eq!(store.give_up_master_keys(&ids, |_| Ok(())).await.unwrap(), [], "it is in use");

        let done = store.rewrap_files(&tenant, &by(NOW), &vault, "").await.unwrap();
        assert_eq!((done.count, done.failed.len(), done.next), (1, 0, None));
        assert_eq!(store.count_to_rewrap(&tenant, &vault).await.unwrap(), 0);
        let given_up = store.give_up_master_keys(&ids, |ids| remove_keys(&ring, ids)).await.unwrap();
        assert_eq!(given_up, ids);
        vault.refresh().await.unwrap();
        assert_eq!(read(store, &tenant, &vault, ours, &row.id).await, Some((row, b"high water".to_vec())));
        let verified = store.verify_files(&tenant, &vault).await.unwrap();
        assert_eq!((verified.count, verified.failed.len()), (1, 0));
    }

    async fn a_file_that_was_sealed_before_a_rotation_is_written_under_the_new_key(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let (vault, ring) = vault(&database.folder).await;
        let content = Secret::new("low water");
        let new = NewFile { workspace: ours, filename: "a", mime_type: "a/b", purpose: None, content };
        let sealed = SealedFile::new(&vault, &by(NOW), new).unwrap();
        add_active_key(&ring).unwrap();
        let row = store.create_file(&tenant, &by(NOW), &vault, sealed, ROOM).await.unwrap();
        assert_eq!(store.count_to_rewrap(&tenant, &vault).await.unwrap(), 0);
        assert_eq!(read(store, &tenant, &vault, ours, &row.id).await, Some((row, b"low water".to_vec())));
    }
}
