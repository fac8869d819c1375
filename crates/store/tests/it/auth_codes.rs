//! What the store alone knows of codes: applications, counts, time. The exchange is tested through HTTP.

use std::time::Duration;

use tidegate_core::{Tenant, Timestamp, WorkspaceId};
use tidegate_store::Store;
use tidegate_store::auth_codes::{Application, Issued, NewCode, NotExchanged, Pending};

use crate::databases::{NOW, by, hash, member};
use crate::on_both;

const MANY: Pending = Pending { per_account: 1_000, per_application: 100 };

fn code(name: &str, origin: &str, workspace: &WorkspaceId) -> NewCode {
    NewCode {
        hash: hash(name),
        workspace: workspace.clone(),
        application: Application { origin: origin.to_owned(), title: "App".to_owned(), new_title: None },
        creator: None,
        challenge: None,
        key_name: None,
        limit: None,
        limit_reset: None,
        key_expires: None,
        spawn_agent: None,
        spawn_cloud: None,
        expires: NOW.plus(Duration::from_secs(600)),
    }
}

async fn issue(store: &Store, tenant: &Tenant, code: &NewCode, most: Pending) -> Issued {
    store.create_auth_code(tenant, &by(NOW), code, most, None).await.unwrap()
}

on_both! {
    async fn applications_are_numbered_on_first_sight_and_keep_their_number(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        for (name, origin, app_id) in [("a", "https://one", 1), ("b", "https://two", 2), ("c", "https://one", 1)] {
            assert_eq!(issue(store, &tenant, &code(name, origin, &made.workspace), MANY).await, Issued::New { app_id });
        }
        let mut titled = code("d", "https://one", &made.workspace);
        titled.application.new_title = Some("One".to_owned());
        assert_eq!(issue(store, &tenant, &titled, MANY).await, Issued::New { app_id: 1 });
        assert_eq!(store.application_title("https://one").await.unwrap().as_deref(), Some("One"));
        assert_eq!(store.application_title("https://three").await.unwrap(), None);
        assert_eq!(store.find_auth_code(&hash("d")).await.unwrap().unwrap().key_name, "One");
        assert_eq!(store.find_auth_code(&hash("c")).await.unwrap().unwrap().key_name, "App");
    }

    async fn cod_7_waiting_codes_are_counted_per_account_and_per_application(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let most = Pending { per_account: 3, per_application: 2 };
        let try_one = async |name: &str, origin: &str| issue(store, &tenant, &code(name, origin, &made.workspace), most).await;
        assert_eq!(try_one("a", "https://one").await, Issued::New { app_id: 1 });
        assert_eq!(try_one("b", "https://one").await, Issued::New { app_id: 1 });
        assert_eq!(try_one("c", "https://one").await, Issued::Conflict);
        assert_eq!(try_one("d", "https://two").await, Issued::New { app_id: 2 });
        assert_eq!(try_one("e", "https://three").await, Issued::Conflict);
        assert_eq!(store.application_title("https://three").await.unwrap(), None, "nothing has changed");
        // One that is used waits no more.
        let known = store.find_auth_code(&hash("a")).await.unwrap().unwrap();
        assert!(store.exchange_code(&known, &by(NOW), &hash("key"), "label").await.unwrap().is_ok());
        assert_eq!(try_one("f", "https://one").await, Issued::New { app_id: 1 });
        // Nor does one whose time is over.
        let later = by(NOW.plus(Duration::from_secs(600)));
        let late = store.create_auth_code(&tenant, &later, &code("g", "https://one", &made.workspace), most, None).await;
        assert_eq!(late.unwrap(), Issued::New { app_id: 1 });
    }

    async fn a_code_is_revoked_with_its_workspace_and_its_owner(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let ada = store.add_member(&tenant, &by(NOW), member("ada@example.com")).await.unwrap();
        let mut owned = code("a", "https://one", &made.workspace);
        owned.creator = Some(ada.id.clone());
        issue(store, &tenant, &owned, MANY).await;
        let before = store.find_auth_code(&hash("a")).await.unwrap().unwrap();
        assert!(store.remove_member(&tenant, &by(NOW), &ada.id).await.unwrap());
        let known = store.find_auth_code(&hash("a")).await.unwrap();
        assert!(known.is_none_or(|code| code.is_burned), "it answers as an unknown one");
        // Also for whoever had looked before.
        let made_key = store.exchange_code(&before, &by(NOW), &hash("key"), "label").await.unwrap();
        assert!(matches!(made_key, Err(NotExchanged::Used | NotExchanged::Expired)), "{made_key:?}");
        assert!(store.find_key(&hash("key")).await.unwrap().is_none());
    }

    async fn old_codes_are_taken_away(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        issue(store, &tenant, &code("a", "https://one", &made.workspace), MANY).await;
        let end = NOW.plus(Duration::from_secs(600));
        assert_eq!(store.purge_codes(end).await.unwrap(), 0);
        assert_eq!(store.purge_codes(Timestamp(end.0 + 1)).await.unwrap(), 1);
        assert!(store.find_auth_code(&hash("a")).await.unwrap().is_none());
    }
}
