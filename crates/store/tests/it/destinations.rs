use tidegate_core::{Timestamp, WorkspaceId};
use tidegate_store::destinations::{DestinationRow, DestinationSettings, NewDestination, new_destination_id};

use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

on_both! {
    async fn a_change_of_a_name_leaves_what_was_sealed_meanwhile(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let new = NewDestination {
            id: new_destination_id(NOW),
            workspace: made.workspace,
            kind: "webhook".to_owned(),
            name: "first".to_owned(),
            enabled: true,
            settings: DestinationSettings::default(),
            sealed: b"under a key of yesterday".to_vec(),
        };
        let read = store.create_destination(&tenant, &by(NOW), new).await.unwrap();
        // Somebody rotates between the look at the row and the writing of it.
        let rotated = DestinationRow { sealed: b"under a key of today".to_vec(), ..read.clone() };
        assert!(store.write_destination(&tenant, &by(NOW), &rotated, true).await.unwrap());
        let renamed = DestinationRow { name: "second".to_owned(), enabled: false, ..read };
        assert!(store.write_destination(&tenant, &by(NOW), &renamed, false).await.unwrap());
        let now = store.find_destination(&tenant, &renamed.id).await.unwrap().unwrap();
        assert_eq!((now.name.as_str(), now.enabled, &now.sealed), ("second", false, &rotated.sealed));
    }

    async fn a_workspace_that_goes_switches_its_destinations_off(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap().id;
        let make = async |workspace: &WorkspaceId, name: &str| {
            let new = NewDestination {
                id: new_destination_id(NOW),
                workspace: workspace.clone(),
                kind: "webhook".to_owned(),
                name: name.to_owned(),
                enabled: true,
                settings: DestinationSettings::default(),
                sealed: Vec::new(),
            };
            store.create_destination(&tenant, &by(NOW), new).await.unwrap().id
        };
        let (theirs, other) = (make(&team, "theirs").await, make(&made.workspace, "other").await);
        assert!(store.delete_workspace(&tenant, &by(LATER), &team).await.unwrap());
        let theirs = store.find_destination(&tenant, &theirs).await.unwrap().unwrap();
        assert_eq!((theirs.enabled, theirs.updated), (false, LATER));
        let other = store.find_destination(&tenant, &other).await.unwrap().unwrap();
        assert_eq!((other.enabled, other.updated), (true, NOW));
    }
}
