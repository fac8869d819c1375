//! The authorization page without a browser: what its answers promise to one. The way through it is tested in a real
//! browser elsewhere.

use serde_json::json;

use crate::harness::{Database, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, on_both};

const QUERY: &str = "callback_url=https%3A%2F%2Fapp.example%2Fcb%3Fx%3D1&state=s1";
const FORM: &str = "application/x-www-form-urlencoded";
const LOCAL: &str = "127.0.0.1:8080";

async fn gate(database: &Database) -> Tidegate {
    Tidegate::start().config(&database.config()).run().await
}

async fn page(gate: &Tidegate, query: &str, cookie: Option<&str>) -> Reply {
    let ask = gate.ask("GET", &format!("/auth?{query}")).host(LOCAL);
    match cookie {
        Some(cookie) => ask.header("cookie", cookie).send().await,
        None => ask.send().await,
    }
}

/// Sends a form as a page of `host` does.
async fn send(gate: &Tidegate, path: &str, host: &str, cookie: Option<&str>, fields: &[(&str, &str)]) -> Reply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let ask = gate.ask("POST", path).header("content-type", FORM).host(host).body(body);
    match cookie {
        Some(cookie) => ask.header("cookie", cookie).send().await,
        None => ask.send().await,
    }
}

async fn sign_in(gate: &Tidegate, host: &str, key: &str) -> Reply {
    send(gate, "/auth/sign-in", host, None, &[("key", key), ("query", QUERY)]).await
}

/// The cookie of somebody who signed in.
async fn signed_in(gate: &Tidegate) -> String {
    let reply = sign_in(gate, LOCAL, MANAGEMENT_KEY).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some(&*format!("/auth?{QUERY}"))));
    let cookie = reply.header("set-cookie").expect("a session");
    cookie.split(';').next().expect("a value").to_owned()
}

/// The value of the hidden field that proves where a form comes from.
fn csrf(reply: &Reply) -> String {
    let text = reply.body_text();
    let (_, rest) = text.split_once("name=\"csrf\" value=\"").expect("the form proves where it comes from");
    rest.split('"').next().expect("a value").to_owned()
}

/// The address to which the page's small form leads back.
fn way_back(reply: &Reply) -> String {
    let text = reply.body_text();
    let (_, rest) = text.split_once("name=\"query\" value=\"").expect("the form knows the way back");
    rest.split('"').next().expect("a value").replace("&#38;", "&").replace("&amp;", "&")
}

fn guarded(reply: &Reply) {
    assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("x-frame-options"), Some("DENY"));
}

on_both! {
    async fn pages_keep_to_themselves(database: &Database) {
        let gate = gate(database).await;
        let sign_in = page(&gate, QUERY, None).await;
        assert_eq!(sign_in.status, 200);
        guarded(&sign_in);
        let own = "default-src 'self'; frame-ancestors 'none'; form-action 'self'";
        assert_eq!(sign_in.header("content-security-policy"), Some(own));
        let consent = page(&gate, QUERY, Some(&signed_in(&gate).await)).await;
        assert_eq!(consent.status, 200);
        guarded(&consent);
        assert_eq!(consent.header("content-security-policy"), Some(&*format!("{own} https://app.example")));
        let text = consent.body_text();
        assert!(text.contains("<strong class=\"origin\">https://app.example</strong>"), "the whole origin is shown");
        assert!(!text.contains("<script"), "no script is needed");
        for asset in ["/assets/page.css", "/assets/copy.js"] {
            assert_eq!(gate.get(asset).await.status, 200);
        }
        let hostile = page(
            &gate,
            "callback_url=https%3A%2F%2Fapp.example&key_label=%3Cscript%3Ealert(1)%3C/script%3E",
            Some(&signed_in(&gate).await),
        )
        .await;
        assert!(!hostile.body_text().contains("<script>"), "what comes from outside is text");
    }

    async fn what_cannot_be_authorized_is_a_page_and_never_a_redirect(database: &Database) {
        let gate = gate(database).await;
        let cookie = signed_in(&gate).await;
        let long_state = format!("callback_url=https%3A%2F%2Fapp.example&state={}", "x".repeat(513));
        for query in [
            "",
            "state=s",
            "callback_url=http%3A%2F%2Fapp.example",
            "callback_url=https%3A%2F%2Fapp.example%2F%3Fcode%3D1",
            "callback_url=https%3A%2F%2Fa.example&callback_url=https%3A%2F%2Fb.example",
            "callback_url=https%3A%2F%2Fapp.example&code_challenge=short&code_challenge_method=S256",
            "callback_url=https%3A%2F%2Fapp.example&code_challenge_method=S256",
            "callback_url=https%3A%2F%2Fapp.example&limit=-1",
            "callback_url=https%3A%2F%2Fapp.example&usage_limit_type=yearly",
            "callback_url=https%3A%2F%2Fapp.example&expires_at=2020-01-01T00%3A00%3A00Z",
            "callback_url=https%3A%2F%2Fapp.example&workspace_id=x",
            "callback_url=https%3A%2F%2Fapp.example&code_challenge=",
            "callback_url=&code_challenge=abc",
            "callback_url=https%3A%2F%2Fapp.example&key_label=a%00b",
            "callback_url=https%3A%2F%2Fapp.example&key_label=a%0Ab",
            "callback_url=https%3A%2F%2Fx%3Bsandbox%2F",
            &long_state,
        ] {
            for cookie in [None, Some(&*cookie)] {
                let reply = page(&gate, query, cookie).await;
                assert_eq!((reply.status, reply.header("location")), (400, None), "{query}");
                assert!(reply.body_text().contains("This request cannot be authorized"), "{query}");
                guarded(&reply);
            }
        }
    }

    async fn a_session_is_signed_and_ends_with_its_key(database: &Database) {
        let gate = gate(database).await;
        let reply = sign_in(&gate, LOCAL, MANAGEMENT_KEY).await;
        let cookie = reply.header("set-cookie").expect("a session");
        assert!(cookie.starts_with("tidegate_session="), "{cookie}");
        assert!(cookie.ends_with("; Path=/auth; HttpOnly; SameSite=Lax; Max-Age=43200"), "on this machine: {cookie}");
        let cookie = cookie.split(';').next().expect("a value").to_owned();
        let shows_consent =
            async |cookie: &str| page(&gate, QUERY, Some(cookie)).await.body_text().contains("Authorize</button>");
        assert!(shows_consent(&cookie).await);
        // Any change of it is noticed.
        for place in (17..cookie.len()).step_by(7) {
            let mut changed = cookie.clone().into_bytes();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).expect("plain");
            assert!(changed == cookie || !shows_consent(&changed).await, "{changed}");
        }
        for (key, status) in [("nobody", 401), (INFERENCE_KEY, 403), ("", 401)] {
            let refused = sign_in(&gate, LOCAL, key).await;
            assert_eq!((refused.status, refused.header("set-cookie")), (status, None), "{key}");
        }
        // Another management key, another session; it is over when the key is.
        let made = gate.place.run(&["keys", "create", "--name", "second", "--management"]).await;
        let second = String::from_utf8(made.stdout).expect("a key").trim().to_owned();
        let cookie = sign_in(&gate, LOCAL, &second).await.header("set-cookie").expect("a session").to_owned();
        let cookie = cookie.split(';').next().expect("a value").to_owned();
        assert!(shows_consent(&cookie).await);
        let said = String::from_utf8(made.stderr).expect("words");
        let hash = said.split("with hash ").nth(1).and_then(|rest| rest.split('.').next()).expect("its hash");
        assert!(gate.place.run(&["keys", "disable", hash]).await.status.success());
        crate::harness::eventually("the session is over", std::time::Duration::from_secs(5), async || {
            !shows_consent(&cookie).await
        })
        .await;
    }

    async fn a_key_is_typed_in_only_where_nobody_can_read_it(database: &Database) {
        let gate = gate(database).await;
        for host in ["127.0.0.1:8080", "localhost", "localhost:8080", "[::1]:8080"] {
            assert_eq!(sign_in(&gate, host, MANAGEMENT_KEY).await.status, 303, "{host}");
        }
        for host in ["gateway.example", "10.0.0.7:8080", "localhost.evil.example"] {
            // Before anything is typed, and also for those who send the form without having seen the page.
            let asked = gate.ask("GET", &format!("/auth?{QUERY}")).host(host).send().await;
            assert!(asked.status == 400 && !asked.body_text().contains("type=\"password\""), "{host}");
            let refused = sign_in(&gate, host, MANAGEMENT_KEY).await;
            assert_eq!((refused.status, refused.header("set-cookie")), (400, None), "{host}");
            assert!(refused.body_text().contains("service.public_url"), "it says what to change");
        }
    }

    async fn over_tls_the_cookie_is_one_for_secure_pages(database: &Database) {
        let secure = Tidegate::start()
                .config(&database.config())
                .config("[service]\npublic_url = \"https://gateway.example\"\n")
                .run()
                .await;
        let reply = sign_in(&secure, "gateway.example", MANAGEMENT_KEY).await;
        assert_eq!(reply.status, 303);
        let cookie = reply.header("set-cookie").expect("a session");
        assert!(cookie.starts_with("__Secure-tidegate_session=") && cookie.ends_with("; Secure"), "{cookie}");
    }

    async fn a_form_must_come_from_the_page_and_its_session(database: &Database) {
        let gate = gate(database).await;
        let cookie = signed_in(&gate).await;
        let token = csrf(&page(&gate, QUERY, Some(&cookie)).await);
        let callback = ("callback_url", "https://app.example/cb?x=1");
        let fields = |token: &'static str| [callback, ("decision", "authorize"), ("csrf", token)];
        for (cookie, expected) in [(None, 401), (Some("tidegate_session=x.y"), 401), (Some(&*cookie), 403)] {
            let reply = send(&gate, "/auth/authorize", LOCAL, cookie, &fields("guess")).await;
            assert_eq!((reply.status, reply.header("location")), (expected, None));
        }
        // The token of one session is none for another.
        let other = signed_in(&gate).await;
        let good = [callback, ("decision", "authorize"), ("csrf", &*token), ("state", "a b")];
        assert_eq!(send(&gate, "/auth/authorize", LOCAL, Some(&other), &good).await.status, 403);
        let elsewhere = gate.ask("POST", "/auth/authorize").header("content-type", FORM).header("cookie", &cookie);
        let elsewhere = elsewhere.header("sec-fetch-site", "cross-site");
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(good).finish();
        assert_eq!(elsewhere.body(body).send().await.status, 403, "a browser that says so is believed");

        let reply = send(&gate, "/auth/authorize", LOCAL, Some(&cookie), &good).await;
        assert_eq!(reply.status, 303);
        guarded(&reply);
        let location = reply.header("location").expect("back to the application");
        let (before, code) = location.split_once("code=").expect("a code");
        assert_eq!(before, "https://app.example/cb?x=1&", "what was there is kept");
        let (code, state) = code.split_once('&').expect("the state");
        assert_eq!(state, "state=a+b");
        let exchanged = gate.ask("POST", "/v1/auth/keys").json(json!({"code": code}).to_string()).send().await;
        assert_eq!(exchanged.status, 200);

        let cancel = [callback, ("decision", "cancel"), ("csrf", &*token), ("state", "s")];
        let reply = send(&gate, "/auth/authorize", LOCAL, Some(&cookie), &cancel).await;
        let expected = "https://app.example/cb?x=1&error=access_denied&state=s";
        assert_eq!((reply.status, reply.header("location")), (303, Some(expected)));

        let out = [("csrf", &*token), ("query", QUERY)];
        let reply = send(&gate, "/auth/sign-out", LOCAL, Some(&cookie), &out).await;
        assert_eq!(reply.status, 303);
        assert!(reply.header("set-cookie").expect("it ends").contains("Max-Age=0"));
        let after = page(&gate, QUERY, Some(&cookie)).await;
        assert!(after.body_text().contains("Sign in"), "a copy of the cookie is worth nothing any more");
        assert!(page(&gate, QUERY, Some(&other)).await.body_text().contains("Authorize</button>"), "other sessions go on");
        let evil = gate.ask("POST", "/auth/sign-in").host(LOCAL).header("content-type", FORM);
        let evil = evil.header("origin", "https://evil.example").body(format!("key={MANAGEMENT_KEY}"));
        assert_eq!(evil.send().await.status, 403, "nobody is signed in by another site");
        let broken = send(&gate, "/auth/sign-in", LOCAL, None, &[("key", MANAGEMENT_KEY), ("query", "a=b\r\nx: y")]).await;
        assert_eq!(broken.header("location"), Some("/auth?a=b%0D%0Ax%3A+y"));
    }

    async fn what_the_person_chose_outlives_their_session(database: &Database) {
        let gate = gate(database).await;
        let cookie = signed_in(&gate).await;
        let made = gate.ask("POST", "/v1/workspaces").key(MANAGEMENT_KEY);
        let made = made.json(json!({"name": "Lab", "slug": "lab"}).to_string()).send().await.json();
        let workspace = made["data"]["id"].as_str().expect("a workspace").to_owned();
        let token = csrf(&page(&gate, QUERY, Some(&cookie)).await);
        let fields = |limit: &'static str| {
            [
                ("callback_url", "https://app.example/cb?x=1"),
                ("state", "s1"),
                ("key_label", "my laptop"),
                ("limit", limit),
                ("usage_limit_type", "weekly"),
                ("expires_at", "2090-01-31T10:30"),
                ("workspace_id", &*workspace),
                ("csrf", &*token),
                ("decision", "authorize"),
            ]
        };
        let over = send(&gate, "/auth/authorize", LOCAL, None, &fields("2.5")).await;
        assert_eq!(over.status, 401);
        let again = [("key", MANAGEMENT_KEY), ("query", &*way_back(&over))];
        let again = send(&gate, "/auth/sign-in", LOCAL, None, &again).await;
        let address = again.header("location").and_then(|address| address.strip_prefix("/auth?"));
        let text = page(&gate, address.expect("back to the page"), Some(&cookie)).await.body_text().to_owned();
        for shown in [
            "value=\"my laptop\"".to_owned(),
            "value=\"2.5\"".to_owned(),
            "<option selected>weekly</option>".to_owned(),
            "value=\"2090-01-31T10:30:00\"".to_owned(),
            format!("value=\"{workspace}\" selected"),
        ] {
            assert!(text.contains(&shown), "{shown} in {text}");
        }
        // After a slip of the hand the way out leads to a page that opens, with all but the slip.
        let slipped = send(&gate, "/auth/authorize", LOCAL, Some(&cookie), &fields("-1")).await;
        assert_eq!(slipped.status, 400);
        let address = way_back(&slipped);
        assert!(address.contains("key_label=my+laptop") && !address.contains("limit=-1"), "{address}");
        assert_eq!(page(&gate, &address, Some(&cookie)).await.status, 200);
    }

    async fn an_error_leads_to_its_place_on_a_page(database: &Database) {
        let gate = gate(database).await;
        let error = gate.messages(crate::harness::hello("no/such")).await.json();
        let address = error["error"]["availability"]["docs_url"].as_str().expect("an address").to_owned();
        let path = address.strip_prefix(&gate.url()).expect("on this site");
        let (path, code) = path.split_once('#').expect("a place on the page");
        let page = gate.get(path).await;
        assert_eq!((page.status, code), (200, "model_not_found"));
        assert!(page.body_text().contains("<section id=\"model_not_found\">"), "{}", page.body_text());
        guarded(&page);
    }

    async fn the_session_never_leaves_the_page(database: &Database) {
        let gate = gate(database).await;
        let cookie = signed_in(&gate).await;
        // Cookies ignore ports: a program on this host that waits below /auth would get it.
        for callback in ["http%3A%2F%2F127.0.0.1%3A9999%2Fauth", "http%3A%2F%2F127.0.0.1%3A9999%2Fauth%2Fcb"] {
            let reply = page(&gate, &format!("callback_url={callback}"), Some(&cookie)).await;
            assert_eq!(reply.status, 400, "{callback}");
        }
        let elsewhere = page(&gate, "callback_url=http%3A%2F%2F127.0.0.1%3A9999%2Fcb", Some(&cookie)).await;
        assert_eq!(elsewhere.status, 200);
        let six = page(&gate, "callback_url=http%3A%2F%2F%5B%3A%3A1%5D%3A4000%2Fcb", Some(&cookie)).await;
        let policy = six.header("content-security-policy").expect("a policy");
        assert!(policy.ends_with("form-action 'self' http://*:4000"), "{policy}");
    }

    async fn only_workspaces_of_ones_own_can_be_chosen(database: &Database) {
        let gate = gate(database).await;
        let cookie = signed_in(&gate).await;
        let token = csrf(&page(&gate, QUERY, Some(&cookie)).await);
        let made = gate.ask("POST", "/v1/workspaces").key(MANAGEMENT_KEY).json(r#"{"name":"Second","slug":"second"}"#);
        let id = made.send().await.json()["data"]["id"].as_str().expect("an id").to_owned();
        let fields = |workspace| {
            [
                ("callback_url", "https://app.example"),
                ("decision", "authorize"),
                ("csrf", &*token),
                ("workspace_id", workspace),
            ]
        };
        let unknown = "0198c8b0-0000-7000-8000-000000000000";
        let asked = page(&gate, &format!("{QUERY}&workspace_id={unknown}"), Some(&cookie)).await;
        assert_eq!(asked.status, 400, "nobody is offered another one instead");
        let reply = send(&gate, "/auth/authorize", LOCAL, Some(&cookie), &fields(unknown)).await;
        assert_eq!(reply.status, 400);
        assert!(reply.body_text().contains("is not a workspace of yours"));
        let reply = send(&gate, "/auth/authorize", LOCAL, Some(&cookie), &fields(&id)).await;
        let location = reply.header("location").expect("a redirect").to_owned();
        let code = location.split("code=").nth(1).expect("a code");
        let exchanged = gate.ask("POST", "/v1/auth/keys").json(json!({"code": code}).to_string()).send().await;
        assert_eq!(exchanged.status, 200);
        let keys = gate.managed(&format!("/v1/keys?workspace_id={id}")).await.json();
        assert_eq!(keys["data"][0]["name"], "app.example");
    }
}
