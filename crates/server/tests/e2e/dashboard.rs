//! The dashboard without a browser: who sees it, what its forms do, and that what comes from outside is only text. The way
//! through it is tested in a real browser elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Script, Sim};
use tidegate_store::members::{NewMember, Role};

use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hello, on_both, shell};

const LOCAL: &str = "127.0.0.1:8080";
const FORM: &str = "application/x-www-form-urlencoded";
const MODEL: &str = "vendor/m";
const PRICED: &str = "pricing = { input = 3, output = 15 }";
const PAGES: [&str; 9] = [
    "/dashboard",
    "/dashboard/requests",
    "/dashboard/keys",
    "/dashboard/budgets",
    "/dashboard/byok",
    "/dashboard/models",
    "/dashboard/destinations",
    "/dashboard/members",
    "/dashboard/playground",
];
const FORMS: [&str; 5] =
    ["/dashboard/keys", "/dashboard/budgets", "/dashboard/byok", "/dashboard/destinations", "/dashboard/members"];

/// Somebody at the dashboard of a gateway.
struct Person<'a> {
    gate: &'a Tidegate,
    cookie: String,
}

impl<'a> Person<'a> {
    async fn sign_in(gate: &'a Tidegate) -> Self {
        Self::sign_in_with(gate, MANAGEMENT_KEY).await
    }

    async fn sign_in_with(gate: &'a Tidegate, key: &str) -> Self {
        let reply = send(gate, "/dashboard/sign-in", None, &[("key", key), ("to", "/dashboard/keys")]).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/dashboard/keys")));
        let cookie = reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        Self { gate, cookie }
    }

    async fn see(&self, path: &str) -> String {
        let reply = self.gate.ask("GET", path).host(LOCAL).header("cookie", &self.cookie).send().await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        reply.body_text().to_owned()
    }

    /// Fills in a form of a page and sends it.
    async fn fill(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let csrf = between(&self.see(path).await, "name=\"csrf\" value=\"", "\"");
        let fields: Vec<_> = std::iter::once(("csrf", &*csrf)).chain(fields.iter().copied()).collect();
        send(self.gate, path, Some(&self.cookie), &fields).await
    }
}

async fn send(gate: &Tidegate, path: &str, cookie: Option<&str>, fields: &[(&str, &str)]) -> Reply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let ask = gate.ask("POST", path).header("content-type", FORM).host(LOCAL).body(body);
    match cookie {
        Some(cookie) => ask.header("cookie", cookie).send().await,
        None => ask.send().await,
    }
}

fn between(text: &str, before: &str, after: &str) -> String {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}"));
    rest.split(after).next().unwrap().to_owned()
}

on_both! {
    async fn only_who_signs_in_sees_it(database: &Database) {
        let gate = Tidegate::start().config(&database.config()).run().await;
        for path in PAGES.iter().chain(&["/dashboard/requests/gen-01"]) {
            let reply = gate.ask("GET", path).host(LOCAL).send().await;
            assert_eq!(reply.status, 200);
            let text = reply.body_text();
            assert!(text.contains("<h1>Sign in</h1>") && !text.contains("csrf"), "{path}");
            let policy = "default-src 'self'; frame-ancestors 'none'; form-action 'self'";
            assert_eq!(reply.header("content-security-policy"), Some(policy));
            assert_eq!(reply.header("cache-control"), Some("no-store"));
            let elsewhere = gate.ask("GET", path).host("gateway.example").send().await;
            assert_eq!(elsewhere.status, 400, "no key is asked for where it could be read on its way");
        }
        for path in FORMS {
            let reply = send(&gate, path, None, &[("action", "create"), ("name", "x")]).await;
            assert_eq!(reply.status, 401, "{path}");
        }
        for key in ["not a key", INFERENCE_KEY] {
            let reply = send(&gate, "/dashboard/sign-in", None, &[("key", key)]).await;
            assert!(matches!(reply.status, 401 | 403) && reply.header("set-cookie").is_none());
        }
        let foreign = send(&gate, "/dashboard/sign-in", None, &[("key", MANAGEMENT_KEY), ("to", "//evil.example")]).await;
        assert_eq!(foreign.header("location"), Some("/dashboard"), "nobody is sent anywhere else");
        let person = Person::sign_in(&gate).await;
        for path in PAGES {
            let text = person.see(path).await;
            assert!(text.contains("aria-current=\"page\""), "{path}");
        }
        // A session opens pages and nothing else.
        let api = gate.ask("GET", "/api/v1/keys").header("cookie", &person.cookie).send().await;
        assert_eq!(api.status, 401);
        assert_eq!(person.fill("/dashboard", &[]).await.status, 405, "there is nothing to send to the overview");
        let csrf = between(&person.see("/dashboard").await, "name=\"csrf\" value=\"", "\"");
        let left = send(&gate, "/dashboard/sign-out", Some(&person.cookie), &[("csrf", &csrf)]).await;
        assert_eq!(left.status, 303);
        let reply = gate.ask("GET", "/dashboard").host(LOCAL).header("cookie", &person.cookie).send().await;
        assert!(reply.body_text().contains("<h1>Sign in</h1>"), "the session is over, whoever kept its cookie");
    }

    async fn a_member_acts_on_their_own_keys_in_their_workspaces_and_on_nothing_else(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let gate = &account.gate;
        for (slug, name) in [("team", "Team"), ("board", "Board of directors")] {
            account.data("POST", "/workspaces", Some(json!({"name": name, "slug": slug})), 201).await;
        }
        let mut keys = Vec::new();
        for (name, role) in [("ada", Role::Member), ("eve", Role::Admin)] {
            let email = format!("{name}@example.com");
            let new = NewMember { email: email.clone(), first_name: None, last_name: None, role };
            let id = account.store.add_member(&account.tenant, &shell(), new).await.unwrap().id;
            account.send("POST", "/workspaces/team/members/add", json!({"user_ids": [id]})).await;
            let made = gate.place.run(&["keys", "create", "--name", name, "--management", "--member", &email]).await;
            assert!(made.status.success(), "{made:?}");
            keys.push(String::from_utf8(made.stdout).unwrap().trim().to_owned());
        }
        for key in &keys {
            eventually("the key is known", Duration::from_secs(10), async || {
                gate.ask("GET", "/api/v1/keys").key(key).send().await.status == 200
            })
            .await;
        }
        let others = account.send("POST", "/keys", json!({"name": "of somebody else"})).await.json();
        let hash = others["data"]["hash"].as_str().unwrap();

        let ada = Person::sign_in_with(gate, &keys[0]).await;
        let seen = ada.see("/dashboard/keys").await;
        assert!(seen.contains("Team") && !seen.contains("of somebody else") && !seen.contains("Board of directors"));
        assert!(!seen.contains("/dashboard/byok") && seen.contains("/dashboard/playground"), "what is not hers is not offered");
        for action in ["disable", "delete", "limit"] {
            let reply = ada.fill("/dashboard/keys", &[("action", action), ("hash", hash), ("limit", "1")]).await;
            assert_eq!(reply.status, 404, "{action}");
        }
        let board = account.ask("GET", "/workspaces/board").await.json()["data"]["id"].as_str().unwrap().to_owned();
        let reply = ada.fill("/dashboard/keys", &[("action", "create"), ("name", "x"), ("workspace", &board)]).await;
        assert!(reply.status == 400 && reply.body_text().contains("is not one of yours"));
        let made = ada.fill("/dashboard/keys", &[("action", "create"), ("name", "of her own")]).await;
        assert_eq!(made.status, 200);
        let own = between(&ada.see("/dashboard/keys").await, "name=\"hash\" value=\"", "\"");
        assert_eq!(ada.fill("/dashboard/keys", &[("action", "disable"), ("hash", &own)]).await.status, 303);
        for path in ["/dashboard/requests", "/dashboard/requests/gen-01", "/dashboard/budgets", "/dashboard/byok", "/dashboard/destinations"] {
            let reply = gate.ask("GET", path).host(LOCAL).header("cookie", &ada.cookie).send().await;
            assert_eq!(reply.status, 403, "{path}");
        }
        let home = gate.ask("GET", "/dashboard").host(LOCAL).header("cookie", &ada.cookie).send().await;
        assert_eq!((home.status, home.header("location")), (303, Some("/dashboard/keys")));
        let csrf = between(&ada.see("/dashboard/keys").await, "name=\"csrf\" value=\"", "\"");
        for path in ["/dashboard/budgets", "/dashboard/byok", "/dashboard/destinations"] {
            assert_eq!(send(gate, path, Some(&ada.cookie), &[("csrf", &csrf), ("action", "create")]).await.status, 403, "{path}");
        }

        let eve = Person::sign_in_with(gate, &keys[1]).await;
        let seen = eve.see("/dashboard/keys").await;
        assert!(["of somebody else", "of her own", "Board of directors"].iter().all(|text| seen.contains(text)));
        for path in PAGES {
            eve.see(path).await;
        }
    }

    async fn forms_of_other_sites_change_nothing(database: &Database) {
        let gate = Tidegate::start().config(&database.config()).run().await;
        let person = Person::sign_in(&gate).await;
        let fields = [("action", "create"), ("name", "planted")];
        for path in FORMS {
            assert_eq!(send(&gate, path, Some(&person.cookie), &fields).await.status, 403, "{path}: no token");
        }
        let csrf = between(&person.see("/dashboard/keys").await, "name=\"csrf\" value=\"", "\"");
        let body = format!("csrf={csrf}&action=create&name=planted");
        let ask = gate.ask("POST", "/dashboard/keys").header("content-type", FORM).host(LOCAL);
        let ask = ask.header("cookie", &person.cookie).header("sec-fetch-site", "cross-site").body(body);
        assert_eq!(ask.send().await.status, 403);
        assert!(!person.see("/dashboard/keys").await.contains("planted"));
    }

    async fn keys_are_made_limited_switched_off_and_deleted(database: &Database) {
        let sim = Sim::start(Script::says("hi")).await;
        let builder = Tidegate::start().endpoint_with(MODEL, &sim, PRICED);
        let account = Account::start(database, builder).await;
        let person = Person::sign_in(&account.gate).await;
        for (name, limit) in [("", "1"), ("a", "many"), ("a", "-1")] {
            let reply = person.fill("/dashboard/keys", &[("action", "create"), ("name", name), ("limit", limit)]).await;
            assert_eq!(reply.status, 400);
            assert!(reply.body_text().contains("role=\"alert\""), "{name} {limit}");
        }
        let name = "<script>alert(1)</script>";
        let endless = person.fill("/dashboard/keys", &[("action", "create"), ("name", name), ("reset", "daily")]).await;
        assert!(endless.status == 400 && endless.body_text().contains("Limit: is missing"), "it would have none");
        let fields = [("action", "create"), ("name", name), ("limit", "2.5"), ("reset", "daily")];
        let made = person.fill("/dashboard/keys", &fields).await;
        assert_eq!(made.status, 200);
        let text = made.body_text();
        assert!(!text.contains(name) && text.contains("$2.50 daily"), "{text}");
        let key = between(text, "id=\"code\" value=\"", "\"");
        assert!(!person.see("/dashboard/keys").await.contains(&*key), "it is shown once");
        let asked = account.gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
        assert_eq!(asked.status, 200, "{}", asked.body_text());
        let hash = tidegate_core::KeyHash::of(key.as_bytes()).to_hex();
        let off = person.fill("/dashboard/keys", &[("action", "disable"), ("hash", &hash)]).await;
        assert_eq!((off.status, off.header("location")), (303, Some("/dashboard/keys?done=disable")));
        let asked = account.gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
        assert_eq!(asked.status, 401);
        assert!(person.see("/dashboard/keys?done=disable").await.contains("The key is switched off."));
        person.fill("/dashboard/keys", &[("action", "enable"), ("hash", &hash)]).await;
        person.fill("/dashboard/keys", &[("action", "limit"), ("hash", &hash), ("limit", "0")]).await;
        let asked = account.gate.ask("POST", "/v1/messages").key(&key).json(hello(MODEL).to_string()).send().await;
        assert_eq!(asked.status, 402, "{}", asked.body_text());
        let gone = person.fill("/dashboard/keys", &[("action", "delete"), ("hash", &hash)]).await;
        assert_eq!(gone.status, 303);
        assert_eq!(person.fill("/dashboard/keys", &[("action", "delete"), ("hash", &hash)]).await.status, 404);
        let management = tidegate_core::KeyHash::of(MANAGEMENT_KEY.as_bytes()).to_hex();
        let own = person.fill("/dashboard/keys", &[("action", "disable"), ("hash", &management)]).await;
        assert_eq!(own.status, 404, "management keys are none of these");
    }

    async fn a_request_has_a_story_and_a_place_in_the_sums(database: &Database) {
        let down = Sim::start(Script::status(503)).await;
        let well = Sim::start(Script::says("hi")).await;
        let builder = Tidegate::start()
            .endpoint_with(MODEL, &down, PRICED)
            .endpoint_with(MODEL, &well, "pricing = { input = 30, output = 150 }");
        let account = Account::start(database, builder).await;
        let mut body = hello(MODEL);
        body["provider"] = json!({"order": ["p0", "p1"]});
        let answered = account.gate.messages(body).await;
        assert_eq!(answered.status, 200, "{}", answered.body_text());
        let id = answered.header("x-generation-id").unwrap().to_owned();
        let cost = answered.json()["usage"]["cost"].to_string();
        let unknown = account.gate.messages(hello("vendor/<b>none</b>")).await;
        assert!(unknown.status >= 400);
        let person = Person::sign_in(&account.gate).await;
        let list = person.see("/dashboard/requests").await;
        assert!(list.contains(&id) && list.contains("complete 200"), "{list}");
        assert!(!list.contains("<b>none</b>"), "what comes from outside is text");
        assert!(!person.see("/dashboard/requests?failed=1").await.contains(&id));
        assert!(!person.see("/dashboard/requests?model=other%2Fm").await.contains(&id));
        assert!(person.see(&format!("/dashboard/requests?model={MODEL}")).await.contains(&id));
        assert!(!person.see(&format!("/dashboard/requests?before={id}")).await.contains(&id));
        let story = person.see(&format!("/dashboard/requests/{id}")).await;
        let tried: Vec<&str> = story.split("<li>").skip(1).filter(|part| part.contains("<meter")).collect();
        assert_eq!(tried.len(), 2, "{story}");
        assert!(tried[0].contains("class=\"ill\">503") && tried[1].contains("class=\"well\">200"), "{story}");
        assert!(story.contains(&format!("<dd>${cost}</dd>")), "{cost}: {story}");
        let overview = person.see("/dashboard?days=7&by=provider").await;
        assert!(overview.contains(&format!("<dt>Spent</dt><dd>${cost}</dd>")), "{cost}: {overview}");
        assert!(overview.contains("<th scope=\"col\">Provider</th>"));
        for by in ["model", "key", "workspace"] {
            let overview = person.see(&format!("/dashboard?days=90&by={by}")).await;
            let row = match by {
                "model" => MODEL,
                "key" => "First inference key",
                _ => "Default",
            };
            assert!(overview.contains(&format!("<th scope=\"row\">{row}</th><td class=\"figure\">${cost}</td>")), "{overview}");
        }
        let reply = account.gate.ask("GET", "/dashboard/requests/gen-00000000000000000000000000").host(LOCAL);
        assert_eq!(reply.header("cookie", &person.cookie).send().await.status, 404);
    }

    async fn budgets_hold_at_once(database: &Database) {
        let sim = Sim::start(Script::says("hi")).await;
        let account = Account::start(database, Tidegate::start().endpoint_with(MODEL, &sim, PRICED)).await;
        let person = Person::sign_in(&account.gate).await;
        let page = person.see("/dashboard/budgets").await;
        let workspace = between(&page, "name=\"workspace\" value=\"", "\"");
        let set = |interval: &'static str, limit: &'static str| {
            [("action", "set"), ("workspace", &*workspace), ("interval", interval), ("limit", limit)]
        };
        for limit in ["", "0", "-1", "x"] {
            assert_eq!(person.fill("/dashboard/budgets", &set("daily", limit)).await.status, 400, "{limit}");
        }
        assert_eq!(person.fill("/dashboard/budgets", &set("daily", "0.000001")).await.status, 303);
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 403);
        let refused = person.fill("/dashboard/budgets", &set("monthly", "0.0000001")).await;
        assert!(refused.status == 400 && refused.body_text().contains("must be less than"), "{}", refused.body_text());
        let fields = [("action", "remove"), ("workspace", &*workspace), ("interval", "daily")];
        assert_eq!(person.fill("/dashboard/budgets", &fields).await.status, 303);
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 200);
    }

    async fn provider_keys_are_stored_rotated_and_never_shown(database: &Database) {
        let gate = Tidegate::start().config(&database.config()).run().await;
        let person = Person::sign_in(&gate).await;
        let page = person.see("/dashboard/byok").await;
        let workspace = between(&page, "<option value=\"", "\"");
        let workspace = match workspace.contains('-') {
            true => workspace,
            false => between(page.split_once("id=\"workspace\"").unwrap().1, "<option value=\"", "\""),
        };
        let secret = "sk-ant-api03-dashboard-secret-0123456789";
        let store = |provider: &'static str, key: &'static str| {
            [("action", "create"), ("provider", provider), ("key", key), ("name", "mine"), ("workspace", &*workspace)]
        };
        assert_eq!(person.fill("/dashboard/byok", &store("nobody", secret)).await.status, 400);
        assert_eq!(person.fill("/dashboard/byok", &store("anthropic", "")).await.status, 400);
        let made = person.fill("/dashboard/byok", &store("anthropic", secret)).await;
        assert_eq!(made.status, 303, "{}", made.body_text());
        let page = person.see("/dashboard/byok").await;
        assert!(!page.contains(secret) && page.contains("mine"));
        let id = between(&page, "name=\"id\" value=\"", "\"");
        let label = between(&page, "<td><code>", "</code>");
        let rotated = [("action", "rotate"), ("id", &*id), ("key", "sk-ant-api03-another-secret-9876543210")];
        assert_eq!(person.fill("/dashboard/byok", &rotated).await.status, 303);
        let page = person.see("/dashboard/byok?done=rotate").await;
        assert_ne!(between(&page, "<td><code>", "</code>"), label);
        assert_eq!(person.fill("/dashboard/byok", &[("action", "rotate"), ("id", &*id)]).await.status, 400);
        assert_eq!(person.fill("/dashboard/byok", &[("action", "disable"), ("id", &*id)]).await.status, 303);
        assert!(person.see("/dashboard/byok").await.contains("Switch on"));
        assert_eq!(person.fill("/dashboard/byok", &[("action", "delete"), ("id", &*id)]).await.status, 303);
        assert!(!person.see("/dashboard/byok").await.contains("Switch o"));
    }
}

on_both! {
    async fn people_are_added_promoted_and_removed(database: &Database) {
        let account = Account::start(database, Tidegate::start()).await;
        let person = Person::sign_in(&account.gate).await;
        const HERE: &str = "/dashboard/members";
        for (email, problem) in [("nobody", "Address: must be one such as"), ("", "Address: must be one such as")] {
            let reply = person.fill(HERE, &[("action", "add"), ("email", email), ("first_name", "Kept <b>")]).await;
            assert!(reply.status == 400 && reply.body_text().contains(problem), "{email}");
            assert!(reply.body_text().contains("value=\"Kept &#60;b&#62;\""), "what was typed is not lost");
        }
        let ada = [("action", "add"), ("email", "Ada@example.com"), ("first_name", "Ada"), ("role", "member")];
        assert_eq!(person.fill(HERE, &ada).await.header("location"), Some("/dashboard/members?done=add"));
        let twice = person.fill(HERE, &ada).await;
        assert!(twice.status == 400 && twice.body_text().contains("is the address of another member"));
        let find = async || account.store.find_member(&account.tenant, "ada@example.com").await.unwrap();
        let id = find().await.unwrap().id;
        assert_eq!(find().await.unwrap().role, Role::Member);
        for (action, role) in [("admin", Role::Admin), ("member", Role::Member), ("admin", Role::Admin)] {
            assert_eq!(person.fill(HERE, &[("action", action), ("id", &id)]).await.status, 303);
            assert_eq!(find().await.unwrap().role, role);
        }
        // An administrator does not take their own place away.
        let words = ["keys", "create", "--name", "ada", "--management", "--member", "ada@example.com"];
        let key = String::from_utf8(account.gate.place.run(&words).await.stdout).unwrap();
        let known = async || gate_knows(&account.gate, key.trim()).await;
        eventually("the key is known", Duration::from_secs(10), known).await;
        let herself = Person::sign_in_with(&account.gate, key.trim()).await;
        for action in ["member", "remove"] {
            let reply = herself.fill(HERE, &[("action", action), ("id", &id)]).await;
            assert!(reply.status == 400 && reply.body_text().contains("your own place"), "{action}");
        }
        for (action, id) in [("remove", "user_00000000000000000000000000"), ("owner", &*id)] {
            assert_eq!(person.fill(HERE, &[("action", action), ("id", id)]).await.status, 404, "{action}");
        }
        assert_eq!(person.fill(HERE, &[("action", "remove"), ("id", &id)]).await.status, 303);
        assert_eq!(find().await, None);
        assert!(!gate_knows(&account.gate, key.trim()).await, "her key went with her");
        let audited = account.audited().await;
        let about: Vec<_> = audited.iter().filter(|action| action.starts_with("member.")).map(String::as_str).collect();
        assert_eq!(about, ["member.added", "member.updated", "member.updated", "member.updated", "member.removed"]);
    }
}

async fn gate_knows(gate: &Tidegate, key: &str) -> bool {
    gate.ask("GET", "/api/v1/keys").key(key).send().await.status == 200
}
