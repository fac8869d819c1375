use tidegate_core::{Timestamp, WorkspaceId};
use tidegate_store::destinations::{
    Changed, ConfigChange, DestinationChange, DestinationSettings, NewDestination, SettingsChange, new_destination_id,
};

use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

on_both! {
    async fn a_change_is_made_to_what_is_there_by_then(database: &Database) {
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
        // Others change it between the look at the row and the writing of it.
        let config = |before: &[u8], sealed: &[u8]| Some(ConfigChange { before: before.to_vec(), sealed: sealed.to_vec() });
        let change = async |change: DestinationChange| {
            store.change_destination(&tenant, &by(LATER), &read.id, &change).await.unwrap()
        };
        let today = b"under a key of today";
        let sealed = DestinationChange { config: config(&read.sealed, today), ..DestinationChange::default() };
        assert!(matches!(change(sealed.clone()).await, Changed::Done(_)));
        let settings = SettingsChange { privacy_mode: Some(true), ..SettingsChange::default() };
        assert!(matches!(change(DestinationChange { settings, ..DestinationChange::default() }).await, Changed::Done(_)));
        let name = Some("second".to_owned());
        let renamed = DestinationChange { name, enabled: Some(false), ..DestinationChange::default() };
        let Changed::Done(renamed) = change(renamed).await else { panic!("it is there") };
        let now = store.find_destination(&tenant, &read.id).await.unwrap().unwrap();
        assert_eq!((now.name.as_str(), now.enabled, &now.sealed[..]), ("second", false, &today[..]));
        assert!(now.settings.privacy_mode, "whoever names it alone changes it alone");
        assert_eq!((&now, now.updated), (&*renamed, LATER));
        // What was made of a configuration that is another one now is not written, and nothing beside it.
        let late = DestinationChange { name: Some("third".to_owned()), ..sealed };
        assert_eq!(change(late).await, Changed::Outrun);
        assert_eq!(store.find_destination(&tenant, &read.id).await.unwrap().unwrap(), now);
        let nobody = store.change_destination(&tenant, &by(LATER), "x", &DestinationChange::default()).await;
        assert_eq!(nobody.unwrap(), Changed::Missing);
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
