use tidegate_store::destinations::{DestinationRow, DestinationSettings, NewDestination, new_destination_id};

use crate::databases::{NOW, by};
use crate::on_both;

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
}
