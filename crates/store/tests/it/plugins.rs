use tidegate_core::Timestamp;
use tidegate_store::plugins::{NewPlugin, PluginRow};

use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

on_both! {
    async fn what_is_set_for_a_plugin_is_read_back_replaced_and_taken_back(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, workspace) = (&database.store, &made.workspace);
        let (first, rows) = store.all_plugins().await.unwrap();
        assert_eq!(rows, []);
        let new = NewPlugin {
            workspace,
            plugin: "web",
            enabled: Some(true),
            config: r#"{"max_results":3}"#,
            prevents_overrides: true,
        };
        let web = store.put_plugin(&tenant, &by(NOW), new).await.unwrap().unwrap();
        assert_eq!((web.enabled, &*web.config, web.prevents_overrides), (Some(true), r#"{"max_results":3}"#, true));
        let bare = NewPlugin { enabled: None, config: "{}", prevents_overrides: false, ..new };
        let later = Timestamp(NOW.0 + 5);
        let again = store.put_plugin(&tenant, &by(later), bare).await.unwrap().unwrap();
        let expected = PluginRow { enabled: None, config: "{}".into(), prevents_overrides: false, updated: later, ..web };
        assert_eq!(again, expected);
        let healing = NewPlugin { plugin: "response-healing", ..new };
        let healing = store.put_plugin(&tenant, &by(later), healing).await.unwrap().unwrap();
        let all = vec![healing.clone(), again];
        assert_eq!(store.list_plugins(&tenant, workspace).await.unwrap(), all, "by their ids");
        let (seq, rows) = store.all_plugins().await.unwrap();
        assert_eq!((seq, rows), (first + 3, all));

        assert!(store.delete_plugin(&tenant, &by(later), workspace, "web").await.unwrap());
        assert!(!store.delete_plugin(&tenant, &by(later), workspace, "web").await.unwrap());
        assert_eq!(store.list_plugins(&tenant, workspace).await.unwrap(), [healing]);
        let actions = database.audited(&tenant).await;
        let of_workspace = |action: &str| (action.to_owned(), workspace.0.to_string());
        let expected = ["plugin.set", "plugin.set", "plugin.set", "plugin.deleted"].map(of_workspace);
        assert_eq!(actions[actions.len() - 4..], expected);
    }

    async fn settings_of_plugins_go_with_their_workspace(database: &Database) {
        let (tenant, _) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap().id;
        let new =
            NewPlugin { workspace: &team, plugin: "web", enabled: None, config: "{}", prevents_overrides: false };
        store.put_plugin(&tenant, &by(NOW), new).await.unwrap().unwrap();
        let (seq, _) = store.all_plugins().await.unwrap();
        assert!(store.delete_workspace(&tenant, &by(NOW), &team).await.unwrap());
        let (after, rows) = store.all_plugins().await.unwrap();
        assert!(after > seq && rows.is_empty());
        assert_eq!(store.put_plugin(&tenant, &by(NOW), new).await.unwrap(), None, "it is gone");
    }
}
