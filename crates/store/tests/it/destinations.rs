use serde_json::{Value, json};
use tidegate_core::{Secret, Timestamp, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::destinations::{
    Changed, ConfigChange, DestinationChange, DestinationSettings, NewConfig, NewDestination, SettingsChange,
    new_destination_id,
};
use tidegate_store::vault::{add_active_key, remove_keys};

use crate::credentials::vault;
use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

const LATER: Timestamp = Timestamp(NOW.0 + 1);

fn new<'a>(workspace: &WorkspaceId, name: &str, config: NewConfig<'a>, logged: Value) -> NewDestination<'a> {
    NewDestination {
        id: new_destination_id(NOW),
        workspace: workspace.clone(),
        kind: "webhook".to_owned(),
        name: name.to_owned(),
        enabled: true,
        settings: DestinationSettings::default(),
        config,
        logged,
    }
}

on_both! {
    async fn a_change_is_made_to_what_is_there_by_then(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _)) = (&database.store, vault(&database.folder).await);
        let (yesterday, today) = (Secret::new("of yesterday"), Secret::new("of today"));
        let config = |plain| NewConfig { vault: &vault, label: "test", plain };
        let new = new(&made.workspace, "first", config(&yesterday), json!({"url": "https://a"}));
        let read = store.create_destination(&tenant, &by(NOW), new).await.unwrap();
        // Others change it between the look at the row and the writing of it.
        let change = async |change: DestinationChange<'_>| {
            store.change_destination(&tenant, &by(LATER), &read.id, &change).await.unwrap()
        };
        let config = Some(ConfigChange {
            before: read.sealed.clone(),
            after: config(&today),
            logged: (json!({"url": "https://a"}), json!({"url": "https://b"})),
        });
        let sealed = DestinationChange { config, ..DestinationChange::default() };
        assert!(matches!(change(sealed.clone()).await, Changed::Done(_)));
        let settings = SettingsChange { privacy_mode: Some(true), ..SettingsChange::default() };
        assert!(matches!(change(DestinationChange { settings, ..DestinationChange::default() }).await, Changed::Done(_)));
        let name = Some("second".to_owned());
        let renamed = DestinationChange { name, enabled: Some(false), ..DestinationChange::default() };
        let Changed::Done(renamed) = change(renamed).await else { panic!("it is there") };
        let now = store.find_destination(&tenant, &read.id).await.unwrap().unwrap();
        let held = vault.open_blob("test", now.id.as_bytes(), &now.sealed).unwrap();
        assert_eq!((now.name.as_str(), now.enabled, &held[..]), ("second", false, &b"of today"[..]));
        assert!(now.settings.privacy_mode, "whoever names it alone changes it alone");
        assert_eq!((&now, now.updated), (&*renamed, LATER));
        // To say again what is so leaves no trace, in the log either.
        let before = store.destinations_seq().await.unwrap();
        let settings = SettingsChange { privacy_mode: Some(true), ..SettingsChange::default() };
        let same = DestinationChange { name: Some("second".to_owned()), settings, ..DestinationChange::default() };
        let much_later = by(Timestamp(LATER.0 + 1));
        let same = store.change_destination(&tenant, &much_later, &read.id, &same).await.unwrap();
        assert_eq!(same, Changed::Done(Box::new(now.clone())));
        assert_eq!(store.destinations_seq().await.unwrap(), before);
        // What was made of a configuration that is another one now is not written, and nothing beside it.
        let late = DestinationChange { name: Some("third".to_owned()), ..sealed };
        assert_eq!(change(late).await, Changed::Outrun);
        assert_eq!(store.find_destination(&tenant, &read.id).await.unwrap().unwrap(), now);
        let nobody = store.change_destination(&tenant, &by(LATER), "x", &DestinationChange::default()).await;
        assert_eq!(nobody.unwrap(), Changed::Missing);
        let entries = store.list_audit(&tenant, Timestamp(0), 0, 100).await.unwrap();
        let values = |text: Option<String>| text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        let logged: Vec<(String, Value, Value)> =
            entries.into_iter().rev().map(|entry| (entry.action, values(entry.old), values(entry.new))).collect();
        let [.., (made, _, all), sealed, settings, renamed] = &logged[..] else { panic!("{logged:?}") };
        assert_eq!((made.as_str(), &all["privacy_mode"], &all["sampling_rate"]), ("destination.created", &json!(false), &json!(1.0)));
        assert_eq!((&all["type"], &all["config"]), (&json!("webhook"), &json!({"url": "https://a"})));
        let updated = |old: Value, new: Value| ("destination.updated".to_owned(), old, new);
        let config = |url: &str| json!({"config": {"url": url}});
        assert_eq!(*sealed, updated(config("https://a"), config("https://b")));
        assert_eq!(*settings, updated(json!({"privacy_mode": false}), json!({"privacy_mode": true})));
        let of = |name: &str, enabled: bool| json!({"name": name, "enabled": enabled});
        assert_eq!(*renamed, updated(of("first", true), of("second", false)));
    }

    async fn sec_5_what_a_destination_holds_is_sealed_under_the_ring_of_that_moment(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (stale, path), plain) = (&database.store, vault(&database.folder).await, Secret::new("held"));
        let config = NewConfig { vault: &stale, label: "test", plain: &plain };
        // Others have given the only key up that this vault knows.
        let rotated = || {
            let old = stale.ids();
            add_active_key(&path).unwrap();
            remove_keys(&path, &old.iter().map(|id| &**id).collect::<Vec<_>>()).unwrap();
        };
        rotated();
        let new = new(&made.workspace, "first", config, Value::Null);
        let row = store.create_destination(&tenant, &by(NOW), new).await.unwrap();
        let opens = async |sealed: &[u8]| {
            let (fresh, _) = vault(&database.folder).await;
            fresh.open_blob("test", row.id.as_bytes(), sealed).is_some()
        };
        assert!(opens(&row.sealed).await);
        rotated();
        let config = Some(ConfigChange { before: row.sealed.clone(), after: config, logged: Default::default() });
        let change = DestinationChange { config, ..DestinationChange::default() };
        let Changed::Done(row) = store.change_destination(&tenant, &by(NOW), &row.id, &change).await.unwrap() else {
            panic!("it is there");
        };
        assert!(opens(&row.sealed).await);
    }

    async fn whoever_seals_destinations_anew_waits_for_those_who_change_one(database: &Database) {
        let Store::Postgres(pool) = &database.store else { return };
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, path), plain) = (&database.store, vault(&database.folder).await, Secret::new("held"));
        let new = new(&made.workspace, "first", NewConfig { vault: &vault, label: "test", plain: &plain }, Value::Null);
        store.create_destination(&tenant, &by(NOW), new).await.unwrap();
        add_active_key(&path).unwrap();
        let mut other = pool.begin().await.unwrap();
        let process: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *other).await.unwrap();
        let changed = "UPDATE sequences SET value = value + 1 WHERE name = 'destinations'";
        sqlx::query(changed).execute(&mut *other).await.unwrap();
        let change = async {
            let waits = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND $1 = ANY (pg_blocking_pids(pid)))";
            while !sqlx::query_scalar::<_, bool>(waits).bind(process).fetch_one(pool).await.unwrap() {}
            let free = sqlx::query("SELECT id FROM destinations FOR UPDATE NOWAIT").execute(&mut *other).await;
            other.commit().await.unwrap();
            free
        };
        let (sealed, free) = tokio::join!(store.reseal_destinations(&vault, "test"), change);
        assert!(free.is_ok(), "it has taken none before its turn: {free:?}");
        assert_eq!(sealed.unwrap().count, 1);
        let seq = store.destinations_seq().await.unwrap();
        assert_eq!(store.reseal_destinations(&vault, "test").await.unwrap().count, 0);
        assert_eq!(store.destinations_seq().await.unwrap(), seq, "nothing changed");
    }

    async fn a_workspace_that_goes_switches_its_destinations_off(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, (vault, _), plain) = (&database.store, vault(&database.folder).await, Secret::new("held"));
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap().id;
        let make = async |workspace: &WorkspaceId, name: &str| {
            let new = new(workspace, name, NewConfig { vault: &vault, label: "test", plain: &plain }, Value::Null);
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
