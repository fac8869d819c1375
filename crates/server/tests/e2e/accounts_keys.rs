//! `/keys`, `/key` and `/credits`: what an account can do with its keys, and what they have spent.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_core::{Exchange, GenerationId, KeyHash, KeyKind, Money, Outcome, Timestamp, key};
use tidegate_sim::{Behaviour, Sim};
use tidegate_store::keys::NewKey;
use tidegate_store::members::{NewMember, Role};
use tidegate_store::workspaces::{NewWorkspace, WorkspaceChange};

use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, assert_not_found, assert_refused, eventually, hash_of, hello,
    on_both, shell, text,
};

const MODEL: &str = "vendor/m";
const FIVE_SECONDS: Duration = Duration::from_secs(5);
const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// 14 tokens in and 9 out, at $3 and $15 a million: 42 + 135 micro-dollars.
const FREE: &str = "pricing = { input = 0, output = 0 }";
const PRICED: &str = "pricing = { input = 3, output = 15 }";
const COST: f64 = 0.000177;

async fn priced_sim() -> Sim {
    let body = r#"{"id":"msg_up","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":14,"output_tokens":9}}"#;
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Sim::start(Behaviour::Raw { status: 200, headers, body: Bytes::from(body) }).await
}

async fn status_of(account: &Account, key: &str) -> u16 {
    account.gate.ask("POST", "/v1/messages").key(key).json(hello(MODEL).to_string()).send().await.status
}

fn member_names(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn new_key(name: &str) -> NewKey {
    NewKey {
        hash: KeyHash::of(name.as_bytes()),
        kind: KeyKind::Inference,
        name: name.to_owned(),
        label: "***".to_owned(),
        limit: None,
        limit_reset: None,
        include_byok_in_limit: false,
        expires: None,
        creator: None,
        external_user: None,
        app_id: None,
        spawn_agent: None,
        spawn_cloud: None,
    }
}

on_both! {
    async fn a_key_looks_at_itself_under_the_old_name_too(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        for key in [INFERENCE_KEY, MANAGEMENT_KEY] {
            let [now, old] = ["/api/v1/key", "/api/v1/auth/key"].map(|path| account.gate.ask("GET", path).key(key).send());
            let (now, old) = (now.await, old.await);
            assert_eq!((now.status, old.status), (200, 200), "{old:?}");
            assert_eq!(old.json(), now.json());
        }
        let unknown = account.gate.ask("GET", "/api/v1/auth/key").key("sk-tg-v1-unknown").send().await;
        assert_eq!(unknown.status, 401, "{unknown:?}");
    }

    async fn a_key_is_created_shown_changed_and_deleted(database: &Database) {
        let sim = Sim::start(Behaviour::says("hello")).await;
        // A key with a limit calls no endpoint whose price nobody knows.
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, FREE)).await;
        let body = json!({
            "name": "laptop", "limit": 25, "limit_reset": "weekly", "include_byok_in_limit": true,
            "expires_at": "2099-01-31T00:00:00Z", "external_user": "customer-7", "unknown_member": {"x": 1},
        });
        let before = SystemClock.now();
        let reply = account.send("POST", "/keys", body).await;
        assert_eq!((reply.status, reply.header("cache-control")), (201, Some("no-store")), "{}", reply.body_text());
        let created = reply.json();
        assert_eq!(member_names(&created), ["data", "key"]);
        let raw = created["key"].as_str().expect("a key");
        assert!(raw.starts_with("sk-tg-v1-") && !key::is_malformed(raw.as_bytes(), &["sk-tg-v1-"]));
        let made: jiff::Timestamp = created["data"]["created_at"].as_str().unwrap().parse().unwrap();
        assert!(made.as_millisecond() >= before.0 && made.as_millisecond() <= SystemClock.now().0);
        let hash = hash_of(raw);
        let expected = json!({
            "hash": hash, "name": "laptop", "label": format!("{}...{}", &raw[..12], &raw[raw.len() - 4..]),
            "disabled": false, "limit": 25, "limit_remaining": 25, "limit_reset": "weekly",
            "include_byok_in_limit": true, "usage": 0, "usage_daily": 0, "usage_weekly": 0, "usage_monthly": 0,
            "byok_usage": 0, "byok_usage_daily": 0, "byok_usage_weekly": 0, "byok_usage_monthly": 0,
            "created_at": created["data"]["created_at"], "updated_at": null,
            "expires_at": "2099-01-31T00:00:00.000Z", "last_used_at": null, "creator_user_id": null,
            "external_user": "customer-7", "workspace_id": &*account.workspace.0,
        });
        assert_eq!(created["data"], expected);
        assert_eq!(status_of(&account, raw).await, 200, "it works at once");

        let path = format!("/keys/{hash}");
        let mut shown = account.data("GET", &path, None, 200).await;
        shown["last_used_at"] = Value::Null;
        assert_eq!(shown, expected);
        let patched = account.data("PATCH", &path, Some(json!({"name": "desktop", "limit": null})), 200).await;
        assert_eq!((&patched["name"], &patched["limit"], &patched["limit_remaining"]), (&json!("desktop"), &Value::Null, &Value::Null));
        assert_eq!((&patched["limit_reset"], patched["updated_at"].is_string()), (&json!("weekly"), true));

        account.data("PATCH", &path, Some(json!({"disabled": true})), 200).await;
        assert_eq!(status_of(&account, raw).await, 401, "refused at once on this node");
        account.data("PATCH", &path, Some(json!({"disabled": false})), 200).await;
        assert_eq!(status_of(&account, raw).await, 200);
        let gone = account.ask("DELETE", &path).await;
        assert_eq!((gone.status, gone.body_text()), (200, r#"{"deleted":true}"#));
        assert_eq!(status_of(&account, raw).await, 401, "refused at once on this node");
        for (method, body) in [("GET", None), ("PATCH", Some(json!({}))), ("DELETE", None)] {
            let reply = match body {
                Some(body) => account.send(method, &path, body).await,
                None => account.ask(method, &path).await,
            };
            assert_not_found(&reply);
        }
        let audited = account.audited().await;
        let expected = ["key.created", "key.updated", "key.updated", "key.updated", "key.deleted"];
        assert_eq!(audited[audited.len() - 5..], expected);
        let entries = account.store.list_audit(&account.tenant, Timestamp(0), 0, 100).await.unwrap();
        assert!(entries[0].actor_id.as_deref() == Some(&hash_of(MANAGEMENT_KEY)) && entries[0].request.is_some());
        assert!(!format!("{entries:?}").contains(raw) && !account.gate.stderr().contains(raw), "it is shown once");

        // The same over HTTP and at a shell.
        let page = account.ask("GET", "/audit?limit=2&offset=1").await.json();
        assert_eq!(page["total_count"], audited.len(), "{page}");
        let actions: Vec<_> = page["data"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
        assert_eq!(actions, ["key.updated", "key.updated"]);
        let entry = &page["data"][0];
        assert_eq!(entry["actor"], json!({"kind": "key", "key_hash": hash_of(MANAGEMENT_KEY), "user_id": null}));
        assert_eq!((&entry["target"], &entry["before"], &entry["after"]), (&json!(hash), &json!({"disabled": true}), &json!({"disabled": false})));
        assert!(entry["request_id"].is_string() && entry["address"].is_string() && entry["at"].is_string(), "{entry}");
        let none = account.ask("GET", "/audit?since=2999-01-01T00:00:00Z").await.json();
        assert_eq!(none, json!({"data": [], "total_count": 0}));
        assert_refused(&account.ask("GET", "/audit?since=yesterday").await, "since");
        let listed = account.gate.place.run(&["audit", "list", "--limit", "1"]).await;
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("key.deleted") && listed.contains(&hash_of(MANAGEMENT_KEY)[..8]), "{listed}");
        assert!(listed.contains(&format!("and {} before them", audited.len() - 1)) && !listed.contains(raw), "{listed}");
    }

    async fn each_member_of_a_new_key_has_its_limits(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let team = account.data("POST", "/workspaces", Some(json!({"name": "T", "slug": "t"})), 201).await["id"].clone();
        let long = |count: usize| json!("ü".repeat(count));
        let good = [
            ("name", long(255)),
            ("name", json!("x")),
            ("limit", json!(0)),
            ("limit", json!(1_000_000_000)),
            ("limit", json!(null)),
            ("limit", json!(0.000000001)),
            ("limit_reset", json!("daily")),
            ("limit_reset", json!("monthly")),
            ("limit_reset", json!(null)),
            ("include_byok_in_limit", json!(false)),
            ("expires_at", json!(null)),
            ("expires_at", json!("2099-01-31T00:00:00+00:00")),
            ("creator_user_id", json!(null)),
            ("workspace_id", team),
            ("external_user", json!(null)),
        ];
        for (member, value) in good {
            let mut body = json!({"name": "n"});
            body[member] = value.clone();
            let shown = account.data("POST", "/keys", Some(body), 201).await;
            let same = match (member, value.as_f64()) {
                ("expires_at", _) => value.is_null() == shown[member].is_null(),
                (_, Some(number)) => shown[member].as_f64() == Some(number),
                _ => shown[member] == value,
            };
            assert!(same, "{member} {value}: {shown}");
        }
        let bad = [
            ("name", json!("")),
            ("name", long(256)),
            ("name", json!(null)),
            ("name", json!(7)),
            ("name", json!("a\u{0}b")),
            ("limit", json!(-0.5)),
            ("limit", json!(1_000_000_001)),
            ("limit", json!("5")),
            ("limit_reset", json!("yearly")),
            ("limit_reset", json!("Daily")),
            ("limit_reset", json!(1)),
            ("include_byok_in_limit", json!(null)),
            ("include_byok_in_limit", json!("true")),
            ("expires_at", json!("2099-01-31T00:00:00+01:00")),
            ("expires_at", json!("2020-01-31T00:00:00Z")),
            ("expires_at", json!("tomorrow")),
            ("expires_at", json!(4_000_000_000_u64)),
            ("creator_user_id", json!("")),
            ("creator_user_id", json!("user_00000000000000000000000000")),
            ("workspace_id", json!("default")),
            ("workspace_id", json!(null)),
            ("workspace_id", json!("00000000-0000-7000-8000-000000000000")),
        ];
        let count = async || account.data("GET", "/keys", None, 200).await.as_array().unwrap().len();
        let (before, audited) = (count().await, account.audited().await.len());
        for (member, value) in bad {
            let mut body = json!({"name": "n"});
            body[member] = value;
            assert_refused(&account.send("POST", "/keys", body).await, member);
        }
        assert_refused(&account.send("POST", "/keys", json!({})).await, "name");
        assert_refused(&account.send("POST", "/keys", json!([])).await, "");
        assert_refused(&account.gate.ask("POST", "/v1/keys").key(MANAGEMENT_KEY).json("{").send().await, "");
        let text = account.gate.ask("POST", "/v1/keys").key(MANAGEMENT_KEY).header("content-type", "text/plain");
        assert_refused(&text.body(r#"{"name":"n"}"#).send().await, "");
        let both = account.send("POST", "/keys", json!({"limit": -1, "limit_reset": 1})).await;
        for member in ["name", "limit", "limit_reset"] {
            assert_refused(&both, member);
        }
        let large = json!({"name": "n", "x": "y".repeat(256 << 10)});
        let large = account.send("POST", "/keys", large).await;
        assert_eq!((large.status, &large.json()["error"]["message"]), (413, &json!("Request payload too large")));
        assert_eq!((count().await, account.audited().await.len()), (before, audited), "nothing has changed");
    }

    async fn a_change_of_a_key_keeps_absent_and_null_apart(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let body = json!({"name": "n", "limit": 5, "limit_reset": "daily", "include_byok_in_limit": true});
        let path = format!("/keys/{}", account.data("POST", "/keys", Some(body), 201).await["hash"].as_str().unwrap());
        let shown = async || account.data("GET", &path, None, 200).await;
        let first = shown().await;
        let same = account.data("PATCH", &path, Some(json!({})), 200).await;
        assert_eq!((&same, &same["updated_at"]), (&first, &Value::Null), "nothing was to change");
        for (member, value) in [
            ("name", json!("")),
            ("name", json!("x".repeat(256))),
            ("name", json!(null)),
            ("disabled", json!(null)),
            ("disabled", json!(1)),
            ("limit", json!(-1)),
            ("limit", json!("1")),
            ("limit_reset", json!("hourly")),
            ("include_byok_in_limit", json!(null)),
        ] {
            assert_refused(&account.send("PATCH", &path, json!({member: value, "disabled": "x"})).await, member);
            assert_refused(&account.send("PATCH", &path, json!({member: value})).await, member);
        }
        assert_eq!(shown().await, first, "nothing has changed");
        // What cannot be changed is a member like any other that nobody asks for.
        let ignored = json!({"expires_at": "2099-01-01T00:00:00Z", "workspace_id": "x", "hash": "y"});
        assert_eq!(account.data("PATCH", &path, Some(ignored), 200).await, first);

        let no_reset = account.data("PATCH", &path, Some(json!({"limit_reset": null})), 200).await;
        assert_eq!((&no_reset["limit"], &no_reset["limit_reset"]), (&json!(5), &Value::Null));
        let no_limit = account.data("PATCH", &path, Some(json!({"limit": null, "limit_reset": "monthly"})), 200).await;
        assert_eq!((&no_limit["limit"], &no_limit["limit_reset"]), (&Value::Null, &json!("monthly")));
        assert_eq!((&no_limit["name"], &no_limit["include_byok_in_limit"]), (&json!("n"), &json!(true)));
        let off = account.data("PATCH", &path, Some(json!({"include_byok_in_limit": false, "name": "m"})), 200).await;
        assert_eq!((&off["name"], &off["include_byok_in_limit"]), (&json!("m"), &json!(false)));
        assert_eq!(shown().await, off);
    }

    async fn ten_4_what_is_unknown_foreign_or_of_another_kind_looks_the_same(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let (theirs, foreign) = account.other_tenant().await;
        let stranger = account.store.create_key(&theirs, &shell(), &foreign, new_key("theirs")).await.unwrap();
        let before = account.store.find_key(&stranger.hash).await.unwrap();
        let upper = hash_of(INFERENCE_KEY).to_uppercase();
        let stranger = stranger.hash.to_hex();
        for hash in [UNKNOWN, "x", "%20", &upper, &UNKNOWN[1..], &hash_of(MANAGEMENT_KEY), &stranger] {
            let path = format!("/keys/{hash}");
            assert_not_found(&account.ask("GET", &path).await);
            assert_not_found(&account.send("PATCH", &path, json!({"disabled": true})).await);
            assert_not_found(&account.ask("DELETE", &path).await);
        }
        assert_eq!(account.store.find_key(&KeyHash::parse(&stranger).unwrap()).await.unwrap(), before);
        assert_eq!(account.gate.managed("/version").await.status, 200, "the management key lives");
        let listed = account.data("GET", "/keys?include_disabled=true", None, 200).await;
        assert_eq!(listed.as_array().unwrap().len(), 1, "only the inference key of this account: {listed}");
        assert_refused(&account.ask("GET", &format!("/keys?workspace_id={foreign}")).await, "workspace_id");
        let foreign = json!({"name": "n", "workspace_id": &*foreign.0});
        assert_refused(&account.send("POST", "/keys", foreign).await, "workspace_id");
    }

    async fn a_key_of_somebody_who_left_cannot_be_switched_on_again(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let (store, tenant) = (&account.store, &account.tenant);
        let member = NewMember { email: "m@example.com".to_owned(), first_name: None, last_name: None, role: Role::Member };
        let member = store.add_member(tenant, &shell(), member).await.unwrap().id;
        let body = json!({"name": "theirs", "creator_user_id": member});
        let path = format!("/keys/{}", account.data("POST", "/keys", Some(body), 201).await["hash"].as_str().unwrap());
        account.data("PATCH", &path, Some(json!({"disabled": true})), 200).await;
        store.remove_member(tenant, &shell(), &member).await.unwrap();
        assert_refused(&account.send("PATCH", &path, json!({"disabled": false})).await, "disabled");
        let hash = path.strip_prefix("/keys/").unwrap();
        let told = account.gate.place.run(&["keys", "disable", hash, "--undo"]).await;
        assert!(!told.status.success());
        assert!(text(&told.stderr).contains("creator is no longer a member"), "{}", text(&told.stderr));
        let shown = account.data("PATCH", &path, Some(json!({"name": "of old"})), 200).await;
        assert_eq!((&shown["name"], &shown["disabled"]), (&json!("of old"), &json!(true)));
    }

    async fn keys_are_listed_newest_first_in_pages_of_a_hundred(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let now = SystemClock.now();
        for number in 1..=120 {
            let by = tidegate_store::audit::By::shell(Timestamp(now.0 + number));
            account.store.create_key(&account.tenant, &by, &account.workspace, new_key(&number.to_string())).await.unwrap();
        }
        let hash = KeyHash::of(b"119");
        assert!(account.store.set_key_disabled(&account.tenant, &shell(), &hash, true).await.unwrap());
        let names = async |query: &str| {
            let keys = account.data("GET", &format!("/keys{query}"), None, 200).await;
            keys.as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let page = names("").await;
        assert_eq!((page.len(), &*page[0], &*page[1], &*page[99]), (100, "120", "118", "20"));
        let rest = names("?offset=100").await;
        assert_eq!((rest.len(), &*rest[0], &*rest[18], &*rest[19]), (20, "19", "1", "First inference key"));
        assert!(names("?offset=2147483647").await.is_empty());
        for (value, expected) in [("true", "119"), ("1", "119"), ("false", "118"), ("0", "118"), ("", "118")] {
            assert_eq!(names(&format!("?include_disabled={value}")).await[1], expected, "{value}");
        }
        let team = NewWorkspace {
            name: "T".to_owned(),
            slug: "t".to_owned(),
            created_by: None,
            settings: WorkspaceChange::default(),
        };
        let team = account.store.create_workspace(&account.tenant, &shell(), team).await.unwrap();
        account.store.create_key(&account.tenant, &shell(), &team.id, new_key("theirs")).await.unwrap();
        assert_eq!(names(&format!("?workspace_id={}", team.id.0.to_uppercase())).await, ["theirs"]);
        assert_eq!(names(&format!("?workspace_id={}&offset=1", account.workspace)).await[0], "118");
        for (query, path) in [
            ("?offset=-1", "offset"),
            ("?offset=x", "offset"),
            ("?offset=2147483648", "offset"),
            ("?include_disabled=yes", "include_disabled"),
            ("?workspace_id=t", "workspace_id"),
            ("?workspace_id=00000000-0000-7000-8000-000000000001", "workspace_id"),
            ("?offset=1&offset=2", "offset"),
        ] {
            assert_refused(&account.ask("GET", &format!("/keys{query}")).await, path);
        }
    }

    async fn a_key_belongs_only_to_a_member_of_its_workspace(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let person = |email: &str| {
            NewMember { email: email.to_owned(), first_name: None, last_name: None, role: Role::Member }
        };
        let ada = account.store.add_member(&account.tenant, &shell(), person("ada@example.com")).await.unwrap().id;
        let (theirs, _) = account.other_tenant().await;
        let eve = account.store.add_member(&theirs, &shell(), person("eve@example.com")).await.unwrap().id;
        let team = account.data("POST", "/workspaces", Some(json!({"name": "T", "slug": "t"})), 201).await["id"].clone();

        let key = json!({"name": "n", "creator_user_id": ada});
        assert_eq!(account.data("POST", "/keys", Some(key), 201).await["creator_user_id"], ada);
        let foreign = json!({"name": "n", "creator_user_id": eve});
        assert_refused(&account.send("POST", "/keys", foreign).await, "creator_user_id");
        let in_team = json!({"name": "n", "creator_user_id": ada, "workspace_id": team});
        assert_refused(&account.send("POST", "/keys", in_team.clone()).await, "creator_user_id");
        account.send("POST", "/workspaces/t/members/add", json!({"user_ids": [ada]})).await;
        assert_eq!(account.data("POST", "/keys", Some(in_team), 201).await["workspace_id"], team);
    }

    async fn usage_follows_what_requests_cost(database: &Database) {
        let sim = priced_sim().await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let body = json!({"name": "n", "limit": 0.1, "limit_reset": "daily"});
        let created = account.send("POST", "/keys", body).await.json();
        let (raw, path) = (created["key"].as_str().unwrap(), format!("/keys/{}", created["data"]["hash"].as_str().unwrap()));
        let before = SystemClock.now();
        for _ in 0..3 {
            assert_eq!(status_of(&account, raw).await, 200);
        }
        eventually("the requests are recorded", FIVE_SECONDS, async || {
            account.data("GET", &path, None, 200).await["usage"] == json!(3.0 * COST)
        })
        .await;
        let shown = account.data("GET", &path, None, 200).await;
        for member in ["usage_daily", "usage_weekly", "usage_monthly"] {
            assert_eq!(shown[member], json!(0.000531), "{member}");
        }
        assert_eq!((&shown["byok_usage"], &shown["limit_remaining"]), (&json!(0), &json!(0.099469)));
        let used: jiff::Timestamp = shown["last_used_at"].as_str().unwrap().parse().unwrap();
        assert!(used.as_millisecond() >= before.0 && used.as_millisecond() <= SystemClock.now().0);
        let listed = account.data("GET", "/keys", None, 200).await;
        assert!(listed.as_array().unwrap().contains(&shown));

        let mine = account.gate.ask("GET", "/api/v1/key").key(raw).send().await;
        assert_eq!((mine.status, &mine.json()["data"]["usage"]), (200, &json!(0.000531)));
        let credits = account.data("GET", "/credits", None, 200).await;
        assert_eq!(credits, json!({"total_credits": 1000000.000531, "total_usage": 0.000531}));
        let deleted = account.ask("DELETE", &path).await;
        assert_eq!(deleted.status, 200);
        assert_eq!(account.data("GET", "/credits", None, 200).await, credits, "history stays");
    }

    async fn windows_and_own_credentials_are_counted_apart(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let created = account.data("POST", "/keys", Some(json!({"name": "n", "limit": 10})), 201).await;
        let hash = KeyHash::parse(created["hash"].as_str().unwrap()).unwrap();
        let now = SystemClock.now();
        // 400 days lie outside of every window that now is in.
        let long_ago = Timestamp(now.0 - 400 * 24 * 60 * 60 * 1000);
        let spent = |dollars: &str, at: Timestamp, is_byok: bool| {
            let amount = Some(Money::parse(dollars).unwrap());
            let (cost, list_cost) = if is_byok { (Some(Money::ZERO), amount) } else { (amount, None) };
            let tenant = account.tenant.organisation.clone();
            let id = GenerationId::new(at);
            Exchange {
                provider: "P".into(),
                outcome: Outcome::Complete,
                status: 200,
                usage_reported: true,
                cost,
                is_byok,
                list_cost,
                ..Exchange::new(id, tenant, account.workspace.clone(), hash, MODEL.into(), at)
            }
        };
        let batch =
            [spent("4", long_ago, false), spent("1.5", now, false), spent("2", long_ago, true), spent("0.25", now, true)];
        account.store.insert_generations(&batch).await.unwrap();
        let path = format!("/keys/{hash}");
        let shown = account.data("GET", &path, None, 200).await;
        assert_eq!((&shown["usage"], &shown["byok_usage"]), (&json!(5.5), &json!(2.25)));
        for window in ["daily", "weekly", "monthly"] {
            assert_eq!(shown[format!("usage_{window}")], json!(1.5), "{window}");
            assert_eq!(shown[format!("byok_usage_{window}")], json!(0.25), "{window}");
        }
        assert_eq!(shown["last_used_at"], now.to_string());
        // Changing the window forgets nothing: it is computed anew from what was spent.
        for (change, remaining) in [
            (json!({"limit": 10}), 4.5),
            (json!({"include_byok_in_limit": true}), 2.25),
            (json!({"limit_reset": "daily"}), 8.25),
            (json!({"limit_reset": "weekly"}), 8.25),
            (json!({"limit_reset": "monthly", "include_byok_in_limit": false}), 8.5),
            (json!({"limit": 1}), 0.0),
            (json!({"limit_reset": null, "limit": 5.5}), 0.0),
            (json!({"limit": 6}), 0.5),
        ] {
            let shown = account.data("PATCH", &path, Some(change.clone()), 200).await;
            assert_eq!(shown["limit_remaining"].as_f64(), Some(remaining), "{change}");
        }
    }

    async fn a_key_learns_about_itself(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let body = json!({"name": "n", "limit": 5, "limit_reset": "monthly", "expires_at": "2099-01-31T00:00:00Z"});
        let created = account.send("POST", "/keys", body).await.json();
        let raw = created["key"].as_str().unwrap();
        let mine = async |key: &str| {
            let reply = account.gate.ask("GET", "/api/v1/key").key(key).send().await;
            assert_eq!(reply.status, 200, "{}", reply.body_text());
            reply.json()["data"].clone()
        };
        let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        let next_month = now.first_of_month().checked_add(jiff::Span::new().months(1)).unwrap();
        let next_monday = now.nth_weekday(1, jiff::civil::Weekday::Monday).unwrap();
        let tomorrow = now.tomorrow().unwrap();
        let midnight = |date: jiff::civil::Date| json!(format!("{date}T00:00:00.000Z"));
        let of_key = json!({
            "budget_id": created["data"]["hash"], "guardrail_id": null, "scope": "key_limit", "limit_usd": 5,
            "spend_usd": 0, "remaining_usd": 5, "reset_interval": "monthly", "resets_at": midnight(next_month),
            "include_byok": false,
        });
        let mut shown = mine(raw).await;
        let note = shown["rate_limit"]["note"].take();
        assert!(note.as_str().unwrap().contains("deprecated"), "{note}");
        let expected = json!({
            "label": created["data"]["label"], "limit": 5, "limit_remaining": 5, "limit_reset": "monthly",
            "include_byok_in_limit": false, "usage": 0, "usage_daily": 0, "usage_weekly": 0, "usage_monthly": 0,
            "byok_usage": 0, "byok_usage_daily": 0, "byok_usage_weekly": 0, "byok_usage_monthly": 0,
            "creator_user_id": null, "expires_at": "2099-01-31T00:00:00.000Z", "is_free_tier": false,
            "is_management_key": false, "is_provisioning_key": false,
            "rate_limit": {"requests": -1, "interval": "1h", "note": null},
            "organization_id": &*account.tenant.organisation.0, "workspace_id": &*account.workspace.0,
            "effective_budget": of_key, "budgets": [of_key],
            "free_model_daily_requests": {"limit": 50, "used": 0, "remaining": 50},
            "allowed_data_regions": ["global"],
        });
        assert_eq!(shown, expected);

        for (interval, limit) in [("lifetime", 8), ("weekly", 4), ("daily", 3)] {
            let path = format!("/workspaces/default/budgets/{interval}");
            account.data("PUT", &path, Some(json!({"limit_usd": limit, "include_byok_in_budgets": true})), 200).await;
        }
        let shown = mine(raw).await;
        let seen: Vec<_> = shown["budgets"].as_array().unwrap().iter().map(|budget| {
            let member = |name: &str| budget[name].clone();
            [member("scope"), member("limit_usd"), member("reset_interval"), member("resets_at"), member("include_byok")]
        }).collect();
        assert_eq!(seen, [
            [json!("key_limit"), json!(5), json!("monthly"), midnight(next_month), json!(false)],
            [json!("workspace"), json!(8), json!(null), json!(null), json!(true)],
            [json!("workspace"), json!(4), json!("weekly"), midnight(next_monday), json!(true)],
            [json!("workspace"), json!(3), json!("daily"), midnight(tomorrow), json!(true)],
        ]);
        assert_eq!(shown["effective_budget"], shown["budgets"][3], "the one with least left");

        let manager = mine(MANAGEMENT_KEY).await;
        assert_eq!((&manager["is_management_key"], &manager["is_provisioning_key"]), (&json!(true), &json!(true)));
        assert_eq!((&manager["limit"], &manager["limit_remaining"]), (&Value::Null, &Value::Null));
        let other = account.gate.ask("GET", "/v1/key").header("x-api-key", raw).send().await;
        assert_eq!(other.status, 200);
    }
}

#[tokio::test]
async fn only_management_keys_manage() {
    let gate = Tidegate::start().run().await;
    let operations = [
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("GET", "/keys/x"),
        ("PATCH", "/keys/x"),
        ("DELETE", "/keys/x"),
        ("GET", "/credits"),
        ("GET", "/workspaces"),
        ("POST", "/workspaces"),
        ("GET", "/workspaces/default"),
        ("PATCH", "/workspaces/default"),
        ("DELETE", "/workspaces/default"),
        ("GET", "/workspaces/default/members"),
        ("POST", "/workspaces/default/members/add"),
        ("POST", "/workspaces/default/members/remove"),
        ("GET", "/workspaces/default/budgets"),
        ("GET", "/workspaces/default/budgets/daily"),
        ("PUT", "/workspaces/default/budgets/daily"),
        ("DELETE", "/workspaces/default/budgets/daily"),
        ("GET", "/organization/members"),
    ];
    for (method, path) in operations {
        for base in ["/api/v1", "/v1"] {
            let ask = || gate.ask(method, &format!("{base}{path}"));
            let said = |reply: &crate::harness::Reply| (reply.status, reply.body_text().to_owned());
            let error =
                |code: u16, message: &str| (code, format!(r#"{{"error":{{"code":{code},"message":"{message}"}}}}"#));
            let refused = ask().key(INFERENCE_KEY).send().await;
            let expected = error(403, "Only management keys can perform this operation");
            assert_eq!(said(&refused), expected, "{method} {path}");
            assert_eq!(said(&ask().key("nobody").send().await), error(401, "Invalid API key"), "{method} {path}");
            assert_eq!(said(&ask().send().await), error(401, "Missing Authentication header"), "{method} {path}");
        }
    }
    for key in [None, Some("nobody")] {
        let ask = gate.ask("GET", "/api/v1/key");
        let reply = if let Some(key) = key { ask.key(key) } else { ask }.send().await;
        assert_eq!(reply.status, 401);
    }
    let wrong = gate.ask("PUT", "/api/v1/keys").key(MANAGEMENT_KEY).send().await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD, POST")));
}
