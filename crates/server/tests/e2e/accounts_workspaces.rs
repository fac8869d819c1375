//! `/workspaces*` and `/organization/members`: where keys live, who belongs there, and how much may be spent.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_store::budgets::Interval;
use tidegate_store::members::{NewMember, Role};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};

use crate::harness::{
    Account, Tidegate, assert_not_found, assert_refused, command, hash_of, on_both, ran, shell, soon,
};

const UNKNOWN: &str = "00000000-0000-7000-8000-00000000ffff";

fn person(email: &str) -> NewMember {
    NewMember { email: email.to_owned(), first_name: None, last_name: None, role: Role::Member }
}

async fn workspace(account: &Account, slug: &str) -> Value {
    account.data("POST", "/workspaces", Some(json!({"name": slug, "slug": slug})), 201).await
}

on_both! {
    async fn a_workspace_is_made_shown_changed_and_deleted(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let before = SystemClock.now();
        let made = account.data("POST", "/workspaces", Some(json!({"name": "Research", "slug": "research"})), 201).await;
        let id = made["id"].as_str().unwrap().to_owned();
        assert!(id.len() == 36 && &id[14..15] == "7", "a UUID of version 7: {id}");
        let guardrail = made["default_guardrail_id"].as_str().unwrap();
        assert!(guardrail.len() == 36 && &guardrail[14..15] == "5", "a UUID of version 5: {guardrail}");
        let created: jiff::Timestamp = made["created_at"].as_str().unwrap().parse().unwrap();
        assert!(created.as_millisecond() >= before.0);
        let mut expected = json!({
            "id": id, "name": "Research", "slug": "research", "description": null, "default_text_model": null,
            "default_image_model": null, "default_provider_sort": null, "default_guardrail_id": guardrail,
            "include_byok_in_budgets": false, "is_observability_io_logging_enabled": false,
            "is_observability_broadcast_enabled": true, "is_data_discount_logging_enabled": false,
            "io_logging_sampling_rate": 1.0, "io_logging_api_key_ids": null, "created_at": made["created_at"],
            "updated_at": null, "created_by": null,
        });
        assert_eq!(made, expected);
        for name in [id.as_str(), &id.to_uppercase(), "research"] {
            assert_eq!(account.data("GET", &format!("/workspaces/{name}"), None, 200).await, expected, "{name}");
        }

        let change = json!({"description": "d", "default_text_model": "a/b", "io_logging_api_key_ids": [3, 3, 5], "x": 1});
        let changed = account.data("PATCH", "/workspaces/research", Some(change), 200).await;
        assert!(changed["updated_at"].is_string());
        expected["updated_at"] = changed["updated_at"].clone();
        expected["description"] = json!("d");
        expected["default_text_model"] = json!("a/b");
        expected["io_logging_api_key_ids"] = json!([3, 5]);
        assert_eq!(changed, expected, "absent members stay");
        let nulls = json!({"description": null, "default_text_model": null, "io_logging_api_key_ids": null});
        let changed = account.data("PATCH", &format!("/workspaces/{id}"), Some(nulls), 200).await;
        for member in ["description", "default_text_model", "io_logging_api_key_ids"] {
            assert_eq!(changed[member], Value::Null, "{member}");
        }
        let same = account.data("PATCH", "/workspaces/research", Some(json!({})), 200).await;
        assert_eq!(same, changed);

        let gone = account.ask("DELETE", "/workspaces/research").await;
        assert_eq!((gone.status, gone.body_text()), (200, r#"{"deleted":true}"#));
        for name in [&*id, "research"] {
            assert_not_found(&account.ask("GET", &format!("/workspaces/{name}")).await);
            assert_not_found(&account.send("PATCH", &format!("/workspaces/{name}"), json!({"name": "x"})).await);
            assert_not_found(&account.ask("DELETE", &format!("/workspaces/{name}")).await);
        }
        workspace(&account, "research").await;
        let audited = account.audited().await;
        let expected =
            ["workspace.created", "workspace.updated", "workspace.updated", "workspace.deleted", "workspace.created"];
        assert_eq!(audited[audited.len() - 5..], expected);
    }

    async fn each_member_of_a_workspace_has_its_limits(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        workspace(&account, "taken").await;
        let long = |count: usize| json!("ü".repeat(count));
        let good = [
            ("name", long(100)),
            ("slug", json!("a".repeat(50))),
            ("slug", json!("a1-b2-3")),
            ("description", long(500)),
            ("description", json!("")),
            ("description", json!(null)),
            ("default_text_model", json!("vendor/model:free")),
            ("default_image_model", json!(null)),
            ("default_provider_sort", json!("price")),
            ("default_provider_sort", json!("throughput")),
            ("default_provider_sort", json!("latency")),
            ("default_provider_sort", json!("exacto")),
            ("default_provider_sort", json!(null)),
            ("is_observability_broadcast_enabled", json!(false)),
            ("is_observability_io_logging_enabled", json!(true)),
            ("is_data_discount_logging_enabled", json!(true)),
            ("io_logging_sampling_rate", json!(0.0001)),
            ("io_logging_sampling_rate", json!(1)),
            ("io_logging_api_key_ids", json!([])),
            ("io_logging_api_key_ids", json!([0, 9007199254740991_i64])),
        ];
        let same = |one: &Value, other: &Value| match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        };
        for (number, (member, value)) in good.into_iter().enumerate() {
            let mut body = json!({"name": "n", "slug": format!("slug-{number}")});
            body[member] = value.clone();
            let made = account.data("POST", "/workspaces", Some(body), 201).await;
            assert!(same(&made[member], &value), "{member} {value}: {made}");
            let path = format!("/workspaces/{}", made["id"].as_str().unwrap());
            assert_eq!(account.data("PATCH", &path, Some(json!({member: value})), 200).await, made, "{member}");
        }
        let bad = [
            ("name", json!("")),
            ("name", long(101)),
            ("name", json!(null)),
            ("slug", json!("")),
            ("slug", json!("a".repeat(51))),
            ("slug", json!("-a")),
            ("slug", json!("a--b")),
            ("slug", json!("A")),
            ("slug", json!("a_b")),
            ("slug", json!(null)),
            ("slug", json!("taken")),
            ("slug", json!("00000000-0000-7000-8000-000000000000")),
            ("description", long(501)),
            ("description", json!(1)),
            ("default_text_model", json!("")),
            ("default_provider_sort", json!("cheapest")),
            ("is_observability_broadcast_enabled", json!(null)),
            ("is_observability_io_logging_enabled", json!("yes")),
            ("is_data_discount_logging_enabled", json!(0)),
            ("io_logging_sampling_rate", json!(0.00009)),
            ("io_logging_sampling_rate", json!(1.0001)),
            ("io_logging_sampling_rate", json!(null)),
            ("io_logging_sampling_rate", json!("1")),
            ("io_logging_api_key_ids", json!("1")),
        ];
        let before = account.ask("GET", "/workspaces?limit=100").await.json();
        let audited = account.audited().await.len();
        for (member, value) in bad {
            let mut body = json!({"name": "n", "slug": "new"});
            body[member] = value.clone();
            assert_refused(&account.send("POST", "/workspaces", body).await, member);
            assert_refused(&account.send("PATCH", "/workspaces/slug-0", json!({member: value})).await, member);
        }
        for value in [json!([1.5]), json!(["1"]), json!([-1]), json!([null])] {
            let body = json!({"io_logging_api_key_ids": value});
            assert_refused(&account.send("PATCH", "/workspaces/slug-0", body).await, "io_logging_api_key_ids[0]");
        }
        assert_refused(&account.send("POST", "/workspaces", json!({"slug": "x"})).await, "name");
        assert_refused(&account.send("POST", "/workspaces", json!({"name": "x"})).await, "slug");
        assert_eq!(account.ask("GET", "/workspaces?limit=100").await.json(), before, "nothing has changed");
        assert_eq!(account.audited().await.len(), audited);
    }

    async fn the_default_workspace_and_those_with_keys_stay(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for name in ["default", &*account.workspace.0] {
            let reply = account.ask("DELETE", &format!("/workspaces/{name}")).await;
            assert_eq!((reply.status, &reply.json()["error"]["code"]), (403, &json!(403)));
        }
        assert_refused(&account.send("PATCH", "/workspaces/default", json!({"slug": "other"})).await, "slug");
        let renamed = account.data("PATCH", "/workspaces/default", Some(json!({"name": "Home"})), 200).await;
        assert_eq!((&renamed["name"], &renamed["slug"]), (&json!("Home"), &json!("default")));

        let team = workspace(&account, "team").await["id"].clone();
        let key = account.data("POST", "/keys", Some(json!({"name": "n", "workspace_id": team})), 201).await;
        let path = format!("/keys/{}", key["hash"].as_str().unwrap());
        account.data("PATCH", &path, Some(json!({"disabled": true})), 200).await;
        assert_refused(&account.ask("DELETE", "/workspaces/team").await, "id");
        assert_eq!(account.ask("DELETE", &path).await.status, 200);
        assert_eq!(account.ask("DELETE", "/workspaces/team").await.status, 200);
        let late = json!({"name": "n", "workspace_id": team});
        assert_refused(&account.send("POST", "/keys", late).await, "workspace_id");
    }

    async fn a_workspace_says_which_kind_of_key_keeps_it(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let team = workspace(&account, "team").await["id"].clone();
        let options = ["keys", "create", "--management", "--workspace", "team", "--name", "ops"];
        let (manager, _) = ran(&account.gate.place, &options).await;
        let key = account.data("POST", "/keys", Some(json!({"name": "n", "workspace_id": team})), 201).await;
        let refused = async || {
            let reply = account.ask("DELETE", "/workspaces/team").await;
            assert_refused(&reply, "id");
            reply.json()["error"]["metadata"]["issues"][0]["message"].as_str().unwrap().to_owned()
        };
        assert_eq!(refused().await, "has live keys");
        let path = format!("/keys/{}", key["hash"].as_str().unwrap());
        assert_eq!(account.ask("DELETE", &path).await.status, 200);
        // No list over HTTP shows the other kind.
        let shown = account.ask("GET", &format!("/keys?workspace_id={}", team.as_str().unwrap())).await;
        assert_eq!(shown.json()["data"], json!([]));
        let told = refused().await;
        assert!(told.starts_with("has a live management key") && told.contains("`tidegate keys list"), "{told}");
        ran(&account.gate.place, &["keys", "delete", &hash_of(manager.trim())]).await;
        assert_eq!(account.ask("DELETE", "/workspaces/team").await.status, 200);
    }

    async fn lists_are_paged_and_odd_pages_are_moved_into_range(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for number in 0..101 {
            let new = NewWorkspace {
                name: "n".to_owned(),
                slug: format!("w{number}"),
                created_by: None,
                settings: WorkspaceChange::default(),
            };
            account.store.create_workspace(&account.tenant, &shell(), new).await.unwrap();
            account.store.add_member(&account.tenant, &shell(), person(&format!("p{number}@example.com"))).await.unwrap();
        }
        for (path, total) in
            [("/workspaces", 102), ("/organization/members", 101), ("/workspaces/default/members", 101)]
        {
            for (query, count) in [
                ("", 50),
                ("?limit=7", 7),
                ("?limit=100", 100),
                ("?limit=101", 100),
                ("?limit=99999999999999999999", 100),
                ("?limit=0", 1),
                ("?limit=-5", 1),
                ("?limit=many", 50),
                ("?limit=100&offset=100", total - 100),
                ("?offset=-1", 50),
                ("?offset=99999999999999999999", 0),
                ("?offset=", 50),
            ] {
                let reply = account.ask("GET", &format!("{path}{query}")).await;
                let json = reply.json();
                let found = json["data"].as_array().map(Vec::len);
                assert_eq!((reply.status, found, &json["total_count"]), (200, Some(count), &json!(total)), "{path}{query}");
            }
        }
        let first = account.ask("GET", "/workspaces?limit=1").await.json();
        assert_eq!(first["data"][0]["slug"], "default", "the oldest first");
    }

    async fn members_join_and_leave_workspaces(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let admin = NewMember {
            email: "Ada@Example.com".to_owned(),
            first_name: Some("Ada".to_owned()),
            last_name: Some("Lovelace".to_owned()),
            role: Role::Admin,
        };
        let ada = account.store.add_member(&account.tenant, &shell(), admin).await.unwrap().id;
        let bob = account.store.add_member(&account.tenant, &shell(), person("bob@example.com")).await.unwrap().id;
        let everybody = account.ask("GET", "/organization/members").await.json();
        let mut people = [
            json!({"id": ada, "email": "ada@example.com", "first_name": "Ada", "last_name": "Lovelace", "role": "org:admin"}),
            json!({"id": bob, "email": "bob@example.com", "first_name": null, "last_name": null, "role": "org:member"}),
        ];
        // Who came in the same millisecond stands in either order.
        people.sort_by_key(|person| person["id"].to_string());
        assert_eq!(everybody, json!({"data": people, "total_count": 2}));
        let team = workspace(&account, "team").await["id"].clone();
        assert_eq!(account.ask("GET", "/workspaces/team/members").await.json(), json!({"data": [], "total_count": 0}));

        let add = async |name: &str, users: Value| {
            account.send("POST", &format!("/workspaces/{name}/members/add"), json!({"user_ids": users})).await
        };
        let added = add("team", json!([ada, ada])).await.json();
        let place = added["data"][0].clone();
        assert_eq!((&added["added_count"], added["data"].as_array().unwrap().len()), (&json!(1), 1));
        let expected = json!({
            "id": place["id"], "workspace_id": team, "user_id": ada, "role": "admin", "created_at": place["created_at"],
        });
        assert_eq!(place, expected);
        let again = add("team", json!([bob, ada])).await.json();
        assert_eq!((&again["added_count"], &again["data"][1]), (&json!(1), &place), "who is there stays as they are");
        let listed = account.ask("GET", "/workspaces/team/members").await.json();
        assert_eq!((&listed["total_count"], &listed["data"][0]), (&json!(2), &place));

        let remove = async |name: &str, users: Value| {
            account.send("POST", &format!("/workspaces/{name}/members/remove"), json!({"user_ids": users})).await
        };
        let many: Vec<String> = (0..101).map(|number| format!("user_{number}")).collect();
        let audited = account.audited().await.len();
        for bad in [json!([]), json!(many), json!("x"), json!(null)] {
            assert_refused(&add("team", bad.clone()).await, "user_ids");
            assert_refused(&remove("team", bad).await, "user_ids");
        }
        for bad in [json!([1]), json!([""]), json!([null])] {
            assert_refused(&add("team", bad.clone()).await, "user_ids[0]");
            assert_refused(&remove("team", bad).await, "user_ids[0]");
        }
        for operation in ["add", "remove"] {
            let reply = account.send("POST", &format!("/workspaces/team/members/{operation}"), json!({})).await;
            assert_refused(&reply, "user_ids");
        }
        assert_refused(&add("team", json!([ada, "user_NOBODY"])).await, "user_ids");
        assert_refused(&add("default", json!(["user_NOBODY"])).await, "user_ids");
        assert_refused(&remove("default", json!([bob])).await, "id");
        let key = json!({"name": "n", "workspace_id": team, "creator_user_id": bob});
        let key = account.data("POST", "/keys", Some(key), 201).await["hash"].clone();
        assert_refused(&remove("team", json!([ada, bob])).await, "user_ids");
        assert_eq!(account.ask("GET", "/workspaces/team/members").await.json(), listed, "nothing has changed");
        assert_eq!(account.audited().await.len(), audited + 1, "the key");
        assert_eq!(account.ask("DELETE", &format!("/keys/{}", key.as_str().unwrap())).await.status, 200);
        assert_eq!(remove("team", json!([ada, bob, "user_NOBODY"])).await.body_text(), r#"{"removed_count":2}"#);
        assert_eq!(remove("team", json!([bob])).await.body_text(), r#"{"removed_count":0}"#);

        let implied = add("default", json!([bob])).await.json();
        assert_eq!((&implied["added_count"], &implied["data"][0]["user_id"]), (&json!(0), &json!(bob)));
        let listed = account.ask("GET", "/workspaces/default/members").await.json();
        assert_eq!((&listed["total_count"], &listed["data"][1]), (&json!(2), &implied["data"][0]));
    }

    async fn budgets_are_set_in_falling_order(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let team = workspace(&account, "team").await["id"].clone();
        let put = async |interval: &str, body: Value| {
            account.send("PUT", &format!("/workspaces/team/budgets/{interval}"), body).await
        };
        let empty = account.ask("GET", "/workspaces/team/budgets").await;
        assert_eq!(empty.body_text(), r#"{"data":[],"include_byok_in_budgets":false}"#);
        let made = put("weekly", json!({"limit_usd": 70.5})).await.json();
        let expected = json!({"data": {
            "id": made["data"]["id"], "workspace_id": team, "limit_usd": 70.5, "reset_interval": "weekly",
            "created_at": made["data"]["created_at"], "updated_at": made["data"]["created_at"],
        }, "include_byok_in_budgets": false});
        assert_eq!(made, expected);
        let shown = account.data("GET", "/workspaces/team/budgets/weekly", None, 200).await;
        assert_eq!(shown, made["data"]);
        let life = put("lifetime", json!({"limit_usd": 1000, "include_byok_in_budgets": true})).await.json();
        assert_eq!((&life["data"]["reset_interval"], &life["include_byok_in_budgets"]), (&Value::Null, &json!(true)));
        assert_eq!(account.data("GET", "/workspaces/team", None, 200).await["include_byok_in_budgets"], true);

        let before = account.ask("GET", "/workspaces/team/budgets").await.json();
        let audited = account.audited().await.len();
        for (interval, limit, names) in [
            ("monthly", json!(70.5), ["monthly", "weekly"]),
            ("monthly", json!(1000), ["monthly", "lifetime"]),
            ("daily", json!(70.500000001), ["daily", "weekly"]),
            ("lifetime", json!(70), ["lifetime", "weekly"]),
            ("weekly", json!(1000.5), ["weekly", "lifetime"]),
        ] {
            let reply = put(interval, json!({"limit_usd": limit, "include_byok_in_budgets": false})).await;
            assert_refused(&reply, "limit_usd");
            let text = reply.json()["error"]["metadata"]["issues"][0]["message"].as_str().unwrap().to_owned();
            assert!(names.iter().all(|name| text.contains(name)), "{interval}: {text}");
        }
        for limit in [json!(0), json!(-1), json!("5"), json!(null), json!(1_000_000_001), json!(0.0000000001)] {
            assert_refused(&put("daily", json!({"limit_usd": limit})).await, "limit_usd");
        }
        assert_refused(&put("daily", json!({})).await, "limit_usd");
        let flag = put("daily", json!({"limit_usd": 1, "include_byok_in_budgets": null})).await;
        assert_refused(&flag, "include_byok_in_budgets");
        for interval in ["yearly", "Daily", "x"] {
            assert_refused(&put(interval, json!({"limit_usd": 1})).await, "interval");
            for method in ["GET", "DELETE"] {
                let path = format!("/workspaces/team/budgets/{interval}");
                assert_refused(&account.ask(method, &path).await, "interval");
            }
        }
        assert_eq!(account.ask("GET", "/workspaces/team/budgets").await.json(), before, "nothing has changed");
        assert_eq!(account.audited().await.len(), audited);

        assert_not_found(&account.ask("GET", "/workspaces/team/budgets/daily").await);
        put("monthly", json!({"limit_usd": 71})).await;
        put("daily", json!({"limit_usd": 0.000000001})).await;
        let changed = put("weekly", json!({"limit_usd": 7})).await.json();
        let member = |name: &str| (changed["data"][name].clone(), made["data"][name].clone());
        assert_eq!(member("id").0, member("id").1);
        assert_eq!(member("created_at").0, member("created_at").1);
        let listed = account.data("GET", "/workspaces/team/budgets", None, 200).await;
        let limits: Vec<_> = listed.as_array().unwrap().iter().map(|budget| budget["limit_usd"].clone()).collect();
        assert_eq!(limits, [json!(1000), json!(71), json!(7), json!(0.000000001)]);
        for _ in 0..2 {
            let gone = account.ask("DELETE", "/workspaces/team/budgets/daily").await;
            assert_eq!((gone.status, gone.body_text()), (200, r#"{"deleted":true}"#));
        }
        let audited = account.audited().await;
        assert_eq!(audited[audited.len() - 2..], ["budget.set", "budget.deleted"]);
    }

    async fn ten_4_unknown_and_foreign_workspaces_look_the_same(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let (theirs, foreign) = account.other_tenant().await;
        let new = NewWorkspace {
            name: "n".to_owned(),
            slug: "secret".to_owned(),
            created_by: None,
            settings: WorkspaceChange::default(),
        };
        let secret = account.store.create_workspace(&theirs, &shell(), new).await.unwrap();
        let eve = account.store.add_member(&theirs, &shell(), person("eve@example.com")).await.unwrap().id;
        let limit = tidegate_core::Money(5);
        account.store.put_budget(&theirs, &shell(), &secret.id, Interval::Daily, limit, None).await.unwrap();
        let before = account.store.find_workspace(&theirs, &secret.id).await.unwrap();
        let audited = account.audited().await.len();
        let id = secret.id.0.to_string();
        for name in [UNKNOWN, "unknown", "x%20y", &id, "secret", &*foreign.0] {
            let path = |rest: &str| format!("/workspaces/{name}{rest}");
            let users = json!({"user_ids": [eve]});
            assert_not_found(&account.ask("GET", &path("")).await);
            assert_not_found(&account.send("PATCH", &path(""), json!({"name": "x"})).await);
            assert_not_found(&account.ask("DELETE", &path("")).await);
            assert_not_found(&account.ask("GET", &path("/members")).await);
            assert_not_found(&account.send("POST", &path("/members/add"), users.clone()).await);
            assert_not_found(&account.send("POST", &path("/members/remove"), users).await);
            assert_not_found(&account.ask("GET", &path("/budgets")).await);
            assert_not_found(&account.ask("GET", &path("/budgets/daily")).await);
            assert_not_found(&account.send("PUT", &path("/budgets/daily"), json!({"limit_usd": 1})).await);
            assert_not_found(&account.ask("DELETE", &path("/budgets/daily")).await);
        }
        assert_eq!(account.store.find_workspace(&theirs, &secret.id).await.unwrap(), before);
        let budgets = account.store.list_budgets(&theirs, &secret.id).await.unwrap().unwrap();
        assert_eq!(budgets.get(Interval::Daily).unwrap().limit, limit);
        assert_eq!(account.ask("GET", "/workspaces").await.json()["total_count"], 1);
        assert_eq!(account.ask("GET", "/organization/members").await.json()["total_count"], 0);
        let reply = account.send("POST", "/workspaces/default/members/add", json!({"user_ids": [eve]})).await;
        assert_refused(&reply, "user_ids");
        workspace(&account, "secret").await;
        assert_eq!(account.audited().await.len(), audited + 1);
    }

    async fn people_and_keys_are_managed_from_a_shell(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        workspace(&account, "team").await;
        let run = async |words: &[&str]| {
            let output = account.gate.place.run(words).await;
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().trim().to_owned();
            (output.status.success(), text(&output.stdout), text(&output.stderr))
        };
        let (ok, ada, said) =
            run(&["members", "add", "--email", "Ada@Example.com", "--role", "admin", "--first-name", "Ada"]).await;
        assert!(ok && ada.starts_with("user_") && ada.len() == 31 && said.contains("ada@example.com"), "{ada} {said}");
        let (ok, bob, _) = run(&["members", "add", "--email", "bob@example.com"]).await;
        assert!(ok);
        for (words, expected) in [
            (&["members", "add", "--email", "ADA@example.com"][..], "is the address of another member"),
            (&["members", "add", "--email", "nobody"], "--email must be an address"),
            (&["members", "add", "--email", "x@example.com", "--role", "king"], "must be admin or member"),
            (&["members", "add", "--email", "x@example.com", "--first-name", ""], "--first-name must have"),
            (&["members", "remove", "eve@example.com"], "is no member"),
            (&["keys", "create", "--name", "n", "--workspace", "nowhere"], "there is no workspace \"nowhere\""),
            (&["keys", "delete", "ffffffff"], "no key's hash begins with"),
        ] {
            let (ok, _, said) = run(words).await;
            assert!(!ok && said.contains(expected), "{words:?}: {said}");
        }
        let listed = run(&["members", "list"]).await.1;
        let lines: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1], [&*ada, "admin", "ada@example.com", "Ada"]);
        assert_eq!(lines[2], [&*bob, "member", "bob@example.com"]);

        let (ok, key, said) = run(&["keys", "create", "--name", "in-team", "--workspace", "team"]).await;
        assert!(ok, "{said}");
        let hash = crate::harness::hash_of(&key);
        let shown = account.data("GET", &format!("/keys/{hash}"), None, 200).await;
        let team = account.data("GET", "/workspaces/team", None, 200).await;
        assert_eq!((&shown["name"], &shown["workspace_id"]), (&json!("in-team"), &team["id"]));
        let only = run(&["keys", "list", "--workspace", "team"]).await.1;
        assert!(only.lines().count() == 2 && only.contains("in-team"), "{only}");
        let (ok, said, _) = run(&["keys", "delete", &hash[..12]]).await;
        assert!(ok && said.contains("in-team"), "{said}");
        assert_not_found(&account.ask("GET", &format!("/keys/{hash}")).await);

        let body = json!({"name": "ada's", "creator_user_id": ada});
        let path = format!("/keys/{}", account.data("POST", "/keys", Some(body), 201).await["hash"].as_str().unwrap());
        let (ok, said, _) = run(&["members", "remove", "ada@example.com"]).await;
        assert!(ok && said.contains("ada@example.com"), "{said}");
        let shown = account.data("GET", &path, None, 200).await;
        assert_eq!((&shown["disabled"], &shown["creator_user_id"]), (&json!(true), &json!(ada)));
        assert_eq!(account.ask("GET", "/organization/members").await.json()["total_count"], 1);
        let audited = account.audited().await;
        assert_eq!(audited.last().map(String::as_str), Some("member.removed"));
    }
}

#[tokio::test]
async fn the_new_commands_explain_themselves_with_an_example() {
    for words in [&["members", "add"][..], &["members", "list"], &["members", "remove"], &["keys", "delete"]] {
        let output = soon("a command", command(&[words, &["--help"]].concat()).output()).await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("Example") && said.contains("tidegate"), "{words:?}: {said}");
    }
}
