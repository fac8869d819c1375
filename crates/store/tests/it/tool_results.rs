use tidegate_core::{Tenant, Timestamp, WorkspaceId};
use tidegate_store::tool_results::ToolResult;

use crate::databases::{NOW, by};
use crate::on_both;
use crate::workspaces::new as new_workspace;

fn result(tenant: &Tenant, workspace: &WorkspaceId, id: &str, sealed: &[u8], at: i64) -> ToolResult {
    ToolResult {
        organisation: tenant.organisation.clone(),
        workspace: workspace.clone(),
        id: id.to_owned(),
        sealed: sealed.to_vec(),
        expires: Timestamp(at),
    }
}

on_both! {
    async fn a_result_is_found_in_its_workspace_until_its_time(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let (store, ours) = (&database.store, &made.workspace);
        let team = store.create_workspace(&tenant, &by(NOW), new_workspace("team")).await.unwrap().id;
        let (other, elsewhere) = database.other_tenant().await;
        let kept = [
            result(&tenant, ours, "a", b"\0\xff", 10),
            result(&tenant, ours, "b", b"old", 20),
            result(&tenant, &team, "a", b"theirs", 10),
            result(&other, &elsewhere, "a", b"others", 10),
        ];
        store.keep_tool_results(&kept).await.unwrap();
        store.keep_tool_results(&[result(&tenant, ours, "b", b"new", 30)]).await.unwrap();
        let found = async |tenant: &Tenant, workspace: &WorkspaceId, now: i64| {
            let mut found = store.tool_results(tenant, workspace, &["a", "b", "c"], Timestamp(now)).await.unwrap();
            found.sort();
            found.into_iter().map(|(id, sealed, expires)| (id, sealed, expires.0)).collect::<Vec<_>>()
        };
        let a = ("a".to_owned(), b"\0\xff".to_vec(), 10);
        let b = ("b".to_owned(), b"new".to_vec(), 30);
        assert_eq!(found(&tenant, ours, 9).await, [a, b.clone()]);
        assert_eq!(found(&tenant, ours, 10).await, [b], "its time is over");
        assert_eq!(found(&tenant, &team, 9).await, [("a".to_owned(), b"theirs".to_vec(), 10)]);
        assert_eq!(found(&other, ours, 9).await, []);
        assert_eq!(found(&tenant, &elsewhere, 9).await, []);

        assert_eq!(store.purge_tool_results(Timestamp(10)).await.unwrap(), 3);
        assert_eq!(database.number("SELECT COUNT(*) FROM tool_results").await, 1);
        store.keep_tool_results(&[result(&tenant, &team, "a", b"theirs", 50)]).await.unwrap();
        assert!(store.delete_workspace(&tenant, &by(NOW), &team).await.unwrap());
        assert_eq!(database.number("SELECT COUNT(*) FROM tool_results").await, 1, "those of a workspace go with it");
    }

    async fn any_number_of_results_is_written_and_found(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        // More than one statement of every size.
        let ids: Vec<String> = (0..107).map(|number| format!("srvtoolu_{number}")).collect();
        let kept: Vec<_> = ids.iter().map(|id| result(&tenant, &made.workspace, id, id.as_bytes(), 10)).collect();
        store.keep_tool_results(&kept).await.unwrap();
        let wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut found = store.tool_results(&tenant, &made.workspace, &wanted, Timestamp(0)).await.unwrap();
        assert_eq!(found.len(), 107);
        assert!(found.iter().all(|(id, sealed, _)| id.as_bytes() == sealed));
        found = store.tool_results(&tenant, &made.workspace, &[], Timestamp(0)).await.unwrap();
        assert_eq!(found, []);
    }
}
