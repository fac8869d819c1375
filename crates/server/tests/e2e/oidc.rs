//! Signing in with an issuer, without a browser: what it is asked, whose word counts, and who gets in. The way through a real
//! one's pages is tested in a browser elsewhere.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_store::members::{NewMember, Role};

use crate::harness::{Account, Database, Reply, Service, Tidegate, on_both, shell};

const CLIENT: &str = "gate way";
const SECRET: &str = "issuer: secret/1";

/// An issuer that signs what a test wants signed.
struct Issuer {
    service: Service,
    key: EncodingKey,
}

/// What is changed of a token.
type Edit = Box<dyn Fn(&mut Value)>;

/// Somebody on their way back from it.
struct Way {
    /// What the issuer was asked with.
    asked: HashMap<String, String>,
    cookie: String,
}

impl Issuer {
    async fn start() -> Self {
        let service = Service::start().await;
        let key = new_key();
        service.says(
            "/.well-known/openid-configuration",
            &json!({
                "issuer": service.url(""),
                "authorization_endpoint": service.url("/authorize?tenant=1"),
                "token_endpoint": service.url("/token"),
                "userinfo_endpoint": service.url("/userinfo"),
                "jwks_uri": service.url("/keys"),
            }),
        );
        let mut public = serde_json::to_value(Jwk::from_encoding_key(&key, Algorithm::ES256).unwrap()).unwrap();
        public["kid"] = json!("k1");
        // One of a kind that nobody here knows.
        service.says("/keys", &json!({"keys": [{"kty": "AKP", "alg": "ML-DSA-44", "kid": "k0"}, public]}));
        Self { service, key }
    }

    fn config(&self, more: &str) -> String {
        format!(
            "[oidc]\nissuer = \"{}\"\nclient_id = \"{CLIENT}\"\nclient_secret = \"{SECRET}\"\nname = \"Login & Co\"\n{more}",
            self.service.url("")
        )
    }

    fn claims(&self, way: &Way, who: Value) -> Value {
        let seconds = SystemClock.now().0 / 1000;
        let mut claims = json!({
            "iss": self.service.url(""),
            "aud": CLIENT,
            "exp": seconds + 300,
            "iat": seconds,
            "nonce": way.asked["nonce"],
        });
        claims.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
        claims
    }

    /// Gives this token for the next code.
    fn gives(&self, token: &str) {
        self.service.says("/token", &json!({"id_token": token, "access_token": "at-1", "token_type": "Bearer"}));
    }

    fn signed(&self, claims: &Value) -> String {
        let header = Header { kid: Some("k1".to_owned()), ..Header::new(Algorithm::ES256) };
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }
}

fn new_key() -> EncodingKey {
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    EncodingKey::from_ec_der(key.as_ref())
}

/// Off to the issuer from this page.
async fn start(gate: &Tidegate, to: &str) -> Way {
    let to: String = url::form_urlencoded::byte_serialize(to.as_bytes()).collect();
    let reply = ask(gate, &format!("/dashboard/oidc?to={to}"), None).await;
    assert_eq!(reply.status, 303, "{}", reply.body_text());
    let address = url::Url::parse(reply.header("location").unwrap()).unwrap();
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.contains("; Path=/dashboard/oidc; HttpOnly; SameSite=Lax; Max-Age=600"), "{cookie}");
    Way { asked: address.query_pairs().into_owned().collect(), cookie: cookie.split(';').next().unwrap().to_owned() }
}

/// And back with a code.
async fn back(gate: &Tidegate, way: &Way) -> Reply {
    let state = &way.asked["state"];
    ask(gate, &format!("/dashboard/oidc/callback?code=code-1&state={state}"), Some(&way.cookie)).await
}

async fn ask(gate: &Tidegate, path: &str, cookie: Option<&str>) -> Reply {
    let ask = gate.ask("GET", path).host(&gate.address.to_string());
    match cookie {
        Some(cookie) => ask.header("cookie", cookie).send().await,
        None => ask.send().await,
    }
}

/// The session that an answer begins.
fn session(reply: &Reply) -> Option<String> {
    let all = reply.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let found = all.filter(|cookie| cookie.starts_with("tidegate_session=")).collect::<Vec<_>>();
    found.first().map(|cookie| cookie.split(';').next().unwrap().to_owned())
}

async fn signs_in(issuer: &Issuer, gate: &Tidegate, who: Value) -> Reply {
    let way = start(gate, "/dashboard/keys").await;
    issuer.gives(&issuer.signed(&issuer.claims(&way, who)));
    back(gate, &way).await
}

async fn account(database: &Database, issuer: &Issuer, more: &str) -> Account {
    let limits = "[limits]\nexchanges_per_minute = 6000\nexchange_failures_per_minute = 6000\n";
    Account::start(database, Tidegate::start().config(&issuer.config(more)).config(limits)).await
}

fn person(email: &str, role: Role) -> NewMember {
    NewMember { email: email.to_owned(), first_name: None, last_name: None, role }
}

fn ada() -> Value {
    json!({"sub": "s-ada", "email": "Ada@Example.com", "email_verified": true})
}

on_both! {
    async fn a_member_signs_in_and_is_known_from_then_on_whatever_their_address(database: &Database) {
        let issuer = Issuer::start().await;
        let account = account(database, &issuer, "").await;
        let gate = &account.gate;
        let id = account.store.add_member(&account.tenant, &shell(), person("ada@example.com", Role::Admin)).await.unwrap().id;
        let page = ask(gate, "/dashboard/requests", None).await;
        assert!(page.body_text().contains("href=\"/dashboard/oidc?to=%2Fdashboard%2Frequests\">Sign in with Login &#38; Co</a>"), "{}", page.body_text());

        let way = start(gate, "/dashboard/members").await;
        let redirect = format!("http://{}/dashboard/oidc/callback", gate.address);
        for (name, expected) in [
            ("response_type", "code"),
            ("client_id", CLIENT),
            ("redirect_uri", &redirect),
            ("scope", "openid email profile"),
            ("code_challenge_method", "S256"),
            ("tenant", "1"),
        ] {
            assert_eq!(way.asked[name], expected, "{name}");
        }
        let claims = issuer.claims(&way, ada());
        issuer.gives(&issuer.signed(&claims));
        let reply = back(gate, &way).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/dashboard/members")));
        // The exchange proves who asked, and what we are called there.
        let exchange = issuer.service.asked().into_iter().find(|asked| asked.head.starts_with("post /token")).unwrap();
        let form: HashMap<_, _> = url::form_urlencoded::parse(&exchange.body).into_owned().collect();
        assert_eq!((&*form["grant_type"], &*form["code"], &form["redirect_uri"]), ("authorization_code", "code-1", &redirect));
        assert_eq!(URL_SAFE_NO_PAD.encode(digest(&SHA256, form["code_verifier"].as_bytes())), way.asked["code_challenge"]);
        let basic = STANDARD.encode("gate+way:issuer%3A+secret%2F1").to_lowercase();
        assert!(exchange.head.contains(&format!("authorization: basic {basic}")), "{}", exchange.head);

        let cookie = session(&reply).unwrap();
        let page = ask(gate, "/dashboard/members", Some(&cookie)).await;
        assert_eq!(page.status, 200);
        assert!(page.body_text().contains("<th scope=\"row\">ada@example.com</th>") && page.body_text().contains(">you<"));
        let entries = account.data("GET", "/audit?limit=10", None, 200).await;
        let started = entries.as_array().unwrap().iter().find(|entry| entry["action"] == "session.started").unwrap();
        assert_eq!(started["actor"], json!({"kind": "member", "key_hash": null, "user_id": id}));
        assert_eq!(ask(gate, "/api/v1/keys", Some(&cookie)).await.status, 401, "a session opens pages and nothing else");

        // The same way twice is none.
        assert_eq!(ask(gate, &format!("/dashboard/oidc/callback?code=code-1&state={}", way.asked["state"]), None).await.status, 400);
        // Another address, the same person.
        let again = signs_in(&issuer, gate, json!({"sub": "s-ada", "email": "countess@example.com", "email_verified": true})).await;
        assert!(session(&again).is_some());
        // The same address, somebody else.
        let other = signs_in(&issuer, gate, json!({"sub": "s-eve", "email": "ada@example.com", "email_verified": true})).await;
        assert_eq!((other.status, session(&other)), (403, None));
        assert!(other.body_text().contains("signs in with another account"), "{}", other.body_text());
    }

    async fn who_is_no_member_becomes_one_only_where_they_may(database: &Database) {
        let issuer = Issuer::start().await;
        {
            let account = account(database, &issuer, "").await;
            let reply = signs_in(&issuer, &account.gate, ada()).await;
            assert_eq!((reply.status, session(&reply)), (403, None));
            assert!(reply.body_text().contains("knows you as Ada@Example.com, which is no member here"));
            assert_eq!(account.store.list_members(&account.tenant, 0, 10).await.unwrap().1, 0);
        }
        database.empty().await;
        let account = account(database, &issuer, "auto_join = true\njoin_domains = [\"example.com\"]\n").await;
        let gate = &account.gate;
        let stranger = json!({"sub": "s-eve", "email": "eve@example.org", "email_verified": true});
        assert_eq!(signs_in(&issuer, gate, stranger).await.status, 403);
        let named = json!({"sub": "s-ada", "email": "ada@example.com", "email_verified": "true", "given_name": "Ada", "family_name": "L\n"});
        let cookie = session(&signs_in(&issuer, gate, named).await).unwrap();
        let (members, total) = account.store.list_members(&account.tenant, 0, 10).await.unwrap();
        assert_eq!((total, members[0].role, members[0].first_name.as_deref()), (1, Role::Member, Some("Ada")));
        assert_eq!(members[0].last_name, None, "what is no name is left out");
        // A member like others.
        assert_eq!(ask(gate, "/dashboard/keys", Some(&cookie)).await.status, 200);
        assert_eq!(ask(gate, "/dashboard/members", Some(&cookie)).await.status, 403);
        // Their sessions end with their membership, and they do not come back by themselves.
        account.store.remove_member(&account.tenant, &shell(), &members[0].id).await.unwrap();
        assert!(ask(gate, "/dashboard/keys", Some(&cookie)).await.body_text().contains("<h1>Sign in</h1>"));
        let removed = signs_in(&issuer, gate, ada()).await;
        assert!(removed.status == 403 && removed.body_text().contains("have been removed"), "{}", removed.body_text());
        account.store.add_member(&account.tenant, &shell(), person("ada@example.com", Role::Member)).await.unwrap();
        assert!(session(&signs_in(&issuer, gate, ada()).await).is_some());
    }

    async fn only_the_issuers_own_word_counts(database: &Database) {
        let issuer = Issuer::start().await;
        let account = account(database, &issuer, "auto_join = true\n").await;
        let gate = &account.gate;
        let edit = |name: &str, value: Value| {
            let name = name.to_owned();
            move |claims: &mut Value| claims[&name] = value.clone()
        };
        let long_ago = SystemClock.now().0 / 1000 - 3600;
        let edits: Vec<(&str, Edit)> = vec![
            ("it was made for another sign-in", Box::new(edit("nonce", json!("other")))),
            ("it was made for another sign-in", Box::new(edit("nonce", Value::Null))),
            ("it was made for another client", Box::new(edit("aud", json!("other")))),
            ("it was handed to another client", Box::new(edit("azp", json!("other")))),
            ("it was made for other clients as well", Box::new(edit("aud", json!([CLIENT, "other"])))),
            ("it is another issuer's", Box::new(edit("iss", json!("https://other.example")))),
            ("it is over", Box::new(edit("exp", json!(long_ago)))),
            ("it is not good yet", Box::new(edit("nbf", json!(long_ago + 7200)))),
            ("a claim is missing", Box::new(|claims: &mut Value| drop(claims.as_object_mut().unwrap().remove("aud")))),
        ];
        for (reason, edit) in edits {
            let way = start(gate, "/dashboard").await;
            let mut claims = issuer.claims(&way, ada());
            edit(&mut claims);
            issuer.gives(&issuer.signed(&claims));
            let reply = back(gate, &way).await;
            assert_eq!((reply.status, session(&reply)), (403, None), "{reason}");
            gate.logs(reason).await;
        }
        // Signatures that anybody could make.
        let way = start(gate, "/dashboard").await;
        let claims = issuer.claims(&way, ada());
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let public = issuer.service.url("/keys");
        let must_be_understood = Header {
            kid: Some("k1".to_owned()),
            crit: Some(vec!["x".to_owned()]),
            ..Header::new(Algorithm::ES256)
        };
        for token in [
            format!("{}.{}.", encoded(&json!({"alg": "none"})), encoded(&claims)),
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(public.as_bytes())).unwrap(),
            jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &new_key()).unwrap(),
            jsonwebtoken::encode(&must_be_understood, &claims, &issuer.key).unwrap(),
            "nonsense".to_owned(),
        ] {
            issuer.gives(&token);
            let reply = back(gate, &way).await;
            assert_eq!((reply.status, session(&reply)), (403, None), "{token}");
        }
        // A flow of somebody else, and what the issuer refuses.
        let other = start(gate, "/dashboard").await;
        issuer.gives(&issuer.signed(&claims));
        for (query, status) in [
            (format!("code=c&state={}", other.asked["state"]), 400),
            ("code=c".to_owned(), 400),
            (format!("error=access_denied&state={}", way.asked["state"]), 403),
            (format!("state={}", way.asked["state"]), 403),
        ] {
            let reply = ask(gate, &format!("/dashboard/oidc/callback?{query}"), Some(&way.cookie)).await;
            assert_eq!((reply.status, session(&reply)), (status, None), "{query}");
        }
        issuer.service.answers("/token", "400 Bad Request", "application/json", b"{\"error\": \"invalid_grant\"}");
        let used = back(gate, &way).await;
        assert!(used.status == 403 && used.body_text().contains("Start again"), "{}", used.body_text());
        // An address that the issuer does not vouch for is none.
        for verified in [json!(false), Value::Null] {
            let reply = signs_in(&issuer, gate, json!({"sub": "s-x", "email": "x@example.com", "email_verified": verified})).await;
            assert_eq!((reply.status, session(&reply)), (403, None));
            assert!(reply.body_text().contains("oidc.trust_email"), "{}", reply.body_text());
        }
        assert_eq!(account.store.list_members(&account.tenant, 0, 10).await.unwrap().1, 0);
        // A letter that only looks like another one in lower case makes another address.
        account.store.add_member(&account.tenant, &shell(), person("kate@example.com", Role::Admin)).await.unwrap();
        let kelvin = json!({"sub": "s-k", "email": "\u{212a}ate@example.com", "email_verified": true});
        assert_eq!(signs_in(&issuer, gate, kelvin).await.status, 403);
        // Where the token is silent, the issuer is asked; about somebody else it may say what it likes.
        for (who, status) in [("s-other", 403), ("s-x", 303)] {
            issuer.service.says("/userinfo", &json!({"sub": who, "email": "x@example.com", "email_verified": true}));
            assert_eq!(signs_in(&issuer, gate, json!({"sub": "s-x"})).await.status, status, "{who}");
        }
        let log = gate.stderr() + &gate.stdout();
        for secret in [SECRET, "at-1", &*way.asked["state"]] {
            assert!(!log.contains(secret), "{secret}");
        }
    }

    async fn an_application_is_authorized_by_whom_the_issuer_knows(database: &Database) {
        let issuer = Issuer::start().await;
        let account = account(database, &issuer, "trust_email = true\nauto_join = true\n").await;
        let gate = &account.gate;
        let query = "callback_url=https%3A%2F%2Fapp.example%2Fcb&state=s1";
        let page = ask(gate, &format!("/auth?{query}"), None).await;
        assert!(page.body_text().contains("/dashboard/oidc?to=%2Fauth%3Fcallback_url%3Dhttps%253A"), "{}", page.body_text());
        let way = start(gate, &format!("/auth?{query}")).await;
        issuer.gives(&issuer.signed(&issuer.claims(&way, json!({"sub": "s-ada", "email": "ada@example.com"}))));
        let reply = back(gate, &way).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some(&*format!("/auth?{query}"))));
        let cookies: Vec<_> = reply.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap()).collect();
        assert!(cookies[0].contains("; Path=/auth; "), "{cookies:?}");
        let page = ask(gate, &format!("/auth?{query}"), Some(&session(&reply).unwrap())).await;
        assert!(page.body_text().contains("ada@example.com"), "{}", page.body_text());
    }

    async fn a_session_that_was_ended_stays_so_after_a_restart(database: &Database) {
        let issuer = Issuer::start().await;
        let account = account(database, &issuer, "auto_join = true\n").await;
        let cookie = session(&signs_in(&issuer, &account.gate, ada()).await).unwrap();
        let kept = session(&signs_in(&issuer, &account.gate, ada()).await).unwrap();
        let page = ask(&account.gate, "/dashboard/keys", Some(&cookie)).await;
        let (_, rest) = page.body_text().split_once("name=\"csrf\" value=\"").unwrap();
        let csrf = rest.split('"').next().unwrap();
        let form = account.gate.ask("POST", "/dashboard/sign-out").host(&account.gate.address.to_string());
        let form = form.header("cookie", &cookie).header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(form.body(format!("csrf={csrf}")).send().await.status, 303);
        let (_, place) = account.gate.stop().await;
        let gate = place.serve().await;
        for (cookie, is_in) in [(&cookie, false), (&kept, true)] {
            let page = ask(&gate, "/dashboard/keys", Some(cookie)).await;
            assert_eq!(page.body_text().contains("<h1>Keys</h1>"), is_in);
        }
    }
}

#[tokio::test]
async fn an_issuer_that_is_not_there_or_another_one_is_told_of() {
    let issuer = Issuer::start().await;
    let gate = Tidegate::start().config(&issuer.config("")).run().await;
    issuer.service.says("/.well-known/openid-configuration", &json!({
        "issuer": "https://other.example", "authorization_endpoint": "https://a.example", "token_endpoint": "https://a.example",
        "jwks_uri": "https://a.example",
    }));
    let reply = ask(&gate, "/dashboard/oidc", None).await;
    assert_eq!((reply.status, reply.header("set-cookie")), (502, None));
    gate.logs("set oidc.issuer to exactly that").await;
    // Not over a wire that others read.
    issuer.service.says("/.well-known/openid-configuration", &json!({
        "issuer": issuer.service.url(""), "authorization_endpoint": "http://a.example/x", "token_endpoint": "http://a.example/x",
        "jwks_uri": "http://a.example/x",
    }));
    assert_eq!(ask(&gate, "/dashboard/oidc", None).await.status, 502);
    gate.logs("is no https:// address").await;
    // From the machine's other name to the one that the issuer knows.
    let reply = gate
        .ask("GET", "/dashboard/oidc?to=%2Fdashboard")
        .host(&format!("localhost:{}", gate.address.port()))
        .send()
        .await;
    assert_eq!(reply.header("location"), Some(&*format!("http://{}/dashboard/oidc?to=%2Fdashboard", gate.address)));
    // Without an issuer there is no such way.
    let plain = Tidegate::start().run().await;
    assert_eq!(ask(&plain, "/dashboard/oidc", None).await.status, 404);
}
