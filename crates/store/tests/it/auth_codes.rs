//! What the store alone knows of codes: applications, counts, time. The exchange is tested through HTTP.

use std::time::Duration;

use tidegate_core::{KeyKind, Tenant, Timestamp, WorkspaceId};
use tidegate_store::audit::{Actor, By};
use tidegate_store::auth_codes::{Application, Issued, Known, NewCode, NotExchanged, Pending};
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};
use tidegate_store::{Refused, Store, StoreError};

use crate::databases::{NOW, by, hash, member, new_key};
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

fn code_of(name: &str, workspace: &WorkspaceId) -> NewCode {
    code(name, "https://one", workspace)
}

async fn issue(store: &Store, tenant: &Tenant, code: &NewCode, most: Pending) -> Issued {
    store.create_auth_code(tenant, &by(NOW), code, most, None).await.unwrap()
}

on_both! {
    async fn cod_1_where_several_gateways_may_be_time_is_the_stores(database: &Database) {
        let store = &database.store;
        let agreed = store.agreed_time(NOW).await.unwrap();
        assert_eq!(agreed == NOW, !store.is_shared());
        // Not that of the test, and one that goes on.
        assert!(store.agreed_time(NOW).await.unwrap() >= agreed);
    }

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
        let seen = ["https://three", "https://one"].map(|origin| Application {
            origin: origin.to_owned(),
            title: "host".to_owned(),
            new_title: None,
        });
        store.see_applications(&seen, NOW).await.unwrap();
        store.see_applications(&seen, NOW).await.unwrap();
        assert_eq!(store.application_id("https://three").await.unwrap(), Some(3));
        assert_eq!(store.application_id("https://one").await.unwrap(), Some(1));
        assert_eq!(store.application_title("https://one").await.unwrap().as_deref(), Some("One"), "it keeps its title");
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

    async fn an_exchange_keeps_the_rules_for_new_keys(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        let team = store.create_workspace(&tenant, &by(NOW), crate::workspaces::new("team")).await.unwrap().id;
        let admin = NewMember { role: Role::Admin, ..member("admin@example.com") };
        let admin = store.add_member(&tenant, &by(NOW), admin).await.unwrap().id;
        let ada = store.add_member(&tenant, &by(NOW), member("ada@example.com")).await.unwrap().id;
        let owned = async |name: &str, owner: &str| {
            let code = NewCode { creator: Some(owner.to_owned()), ..code(name, "https://one", &team) };
            issue(store, &tenant, &code, MANY).await;
            store.find_auth_code(&hash(name)).await.unwrap().unwrap()
        };
        let exchange = async |code: &Known| {
            store.exchange_code(code, &by(NOW), &hash(code.hash.to_hex()), "label").await.unwrap()
        };
        assert!(exchange(&owned("admin's", &admin).await).await.is_ok(), "administrators act in all workspaces");
        let strange = NewCode { creator: Some(ada.clone()), ..code("ada's", "https://one", &team) };
        let refused = store.create_auth_code(&tenant, &by(NOW), &strange, MANY, None).await;
        assert!(matches!(refused, Err(StoreError::Refused(Refused::NotAMember))), "{refused:?}");
        assert!(store.find_auth_code(&strange.hash).await.unwrap().is_none(), "its owner has no place there");
        store.add_workspace_members(&tenant, &by(NOW), &team, std::slice::from_ref(&ada)).await.unwrap();
        let code = owned("ada's", &ada).await;
        assert!(exchange(&code).await.is_ok());
        store.delete_key(&tenant, &by(NOW), &hash(code.hash.to_hex()), None).await.unwrap();

        // Codes go with the place, and do not come back with it.
        let waiting = owned("waiting", &ada).await;
        let elsewhere = NewCode { creator: Some(ada.clone()), ..code_of("elsewhere", &made.workspace) };
        issue(store, &tenant, &elsewhere, MANY).await;
        assert_eq!(store.remove_workspace_members(&tenant, &by(NOW), &team, std::slice::from_ref(&ada)).await.unwrap(), Some(1));
        store.add_workspace_members(&tenant, &by(NOW), &team, &[ada]).await.unwrap();
        assert_eq!(exchange(&waiting).await, Err(NotExchanged::Used));
        assert!(store.find_auth_code(&hash("waiting")).await.unwrap().unwrap().is_burned);
        assert!(!store.find_auth_code(&hash("elsewhere")).await.unwrap().unwrap().is_burned);

        let full = code_of("full", &team);
        issue(store, &tenant, &full, MANY).await;
        let full = store.find_auth_code(&full.hash).await.unwrap().unwrap();
        database
            .execute(
                "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000) \
                 INSERT INTO api_keys (hash, organisation_id, workspace_id, kind, name, label, disabled, \
                 include_byok_in_limit, created_at, change_seq) \
                 SELECT 'k' || n, $1, $2, 'inference', 'n', 'l', FALSE, FALSE, n, 1000 + n FROM numbers",
                &[&tenant.organisation.0, &team.0],
            )
            .await;
        assert_eq!(exchange(&full).await, Err(NotExchanged::Expired), "a workspace has 10 000 keys at most");
        database.execute("DELETE FROM api_keys WHERE hash = 'k2'", &[]).await;
        assert!(exchange(&full).await.is_ok(), "a code that could not be exchanged is not used");
    }

    async fn a_code_is_good_as_long_as_the_key_it_was_asked_for_with(database: &Database) {
        let names = ["live", "disabled", "deleted", "expires"];
        let end = NOW.plus(Duration::from_secs(10));
        let keys = names.map(|name| NewKey {
            kind: KeyKind::Management,
            expires: (name == "expires").then_some(end),
            ..new_key(name)
        });
        let (tenant, made) = database.bootstrap(keys.to_vec()).await;
        let store = &database.store;
        for name in names {
            let with_key = By { actor: Actor::Key(hash(name)), ..by(NOW) };
            let code = code_of(&format!("code of {name}"), &made.workspace);
            store.create_auth_code(&tenant, &with_key, &code, MANY, None).await.unwrap();
        }
        store.set_key_disabled(&tenant, &by(NOW), &hash("disabled"), true).await.unwrap();
        store.delete_key(&tenant, &by(NOW), &hash("deleted"), None).await.unwrap();
        for name in names {
            let code = store.find_auth_code(&hash(format!("code of {name}"))).await.unwrap().unwrap();
            let made = store.exchange_code(&code, &by(end), &hash(format!("key of {name}")), "label").await.unwrap();
            if name == "live" {
                assert!(made.is_ok(), "{made:?}");
            } else {
                assert_eq!(made, Err(NotExchanged::Expired), "{name}");
            }
        }
    }

    async fn aud_1_an_exchange_and_a_replay_tell_of_the_key(database: &Database) {
        let (tenant, made) = database.bootstrap(vec![]).await;
        let store = &database.store;
        issue(store, &tenant, &code_of("a", &made.workspace), MANY).await;
        let known = store.find_auth_code(&hash("a")).await.unwrap().unwrap();
        store.exchange_code(&known, &by(NOW), &hash("key"), "label").await.unwrap().unwrap();
        let used = store.find_auth_code(&hash("a")).await.unwrap().unwrap();
        assert!(!store.note_replay(&used, &by(NOW), true).await.unwrap(), "the same client twice");
        let later = NOW.plus(Duration::from_secs(60));
        assert!(store.note_replay(&used, &by(later), true).await.unwrap());
        assert!(!store.note_replay(&used, &by(later), true).await.unwrap(), "it is disabled already");
        let (code, key) = (hash("a").to_hex(), hash("key").to_hex());
        let audited = database.audited(&tenant).await;
        let audited: Vec<_> = audited.iter().map(|(action, target)| (action.as_str(), target.as_str())).collect();
        let expected = [
            ("auth_code.created", &*code),
            ("auth_code.exchanged", &*code),
            ("key.created", &*key),
            ("auth_code.replayed", &*code),
            ("auth_code.replayed", &*code),
            ("key.updated", &*key),
            ("auth_code.replayed", &*code),
        ];
        assert_eq!(audited[audited.len() - expected.len()..], expected);
        let entries = store.list_audit(&tenant, later, 0, 10).await.unwrap();
        let disabled = entries.iter().find(|entry| entry.action == "key.updated").unwrap();
        assert_eq!((disabled.old.as_deref(), disabled.new.as_deref()), (Some(r#"{"disabled":false}"#), Some(r#"{"disabled":true}"#)));
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
