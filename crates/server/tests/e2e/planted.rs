//! Secrets put into every place that takes one, and then looked for everywhere else: answers, logs at their most
//! talkative, the audit log, the database.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tidegate_core::id;

use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, hello, on_both};
use crate::providers::private_key;

const MODEL: &str = "vendor/m";
/// Those who tell of connections only to those who name them are named.
const TRACE: &str = "[log]\nlevel = \"trace,hyper=trace,hyper_util=trace,h2=trace,rustls=trace\"\nformat = \"json\"\n[limits]\nexchanges_per_minute = 60000\n\
                     exchange_failures_per_minute = 60000\n";
/// A proof key of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A request with a secret in it.
type Body = fn(&str) -> Value;

/// Everything that was planted, by what it is, and everything that came out.
#[derive(Default)]
pub struct Hunt {
    pub planted: BTreeMap<String, String>,
    pub found: Vec<(String, Vec<u8>)>,
}

impl Hunt {
    /// A new secret in the form of a provider's key. Its middle is what is looked for: the ends may be in a label.
    pub fn plant(&mut self, what: &str) -> String {
        let middle: String = id::random::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
        self.planted.insert(what.to_owned(), middle.clone());
        format!("sk-{middle}-end0")
    }

    /// A secret that somebody else made.
    fn note(&mut self, what: &str, secret: &str) {
        let middle = &secret[secret.len() / 3..secret.len() - 6];
        self.planted.insert(what.to_owned(), middle.to_owned());
    }

    pub fn keep(&mut self, place: &str, reply: &Reply) {
        let mut text = format!("{:?}", reply.headers).into_bytes();
        text.extend_from_slice(&reply.body);
        self.found.push((place.to_owned(), text));
    }

    pub fn look(&self) {
        for (what, secret) in &self.planted {
            for (name, form) in forms(secret) {
                for (place, bytes) in &self.found {
                    let hit = memchr::memmem::find(bytes, &form).is_some();
                    assert!(!hit, "{what} is in {place} as {name}");
                }
            }
        }
    }
}

/// The ways in which a secret could stand somewhere.
fn forms(secret: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = secret.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![
        ("text".to_owned(), bytes.to_vec()),
        ("hexadecimal".to_owned(), hex.clone().into_bytes()),
        ("HEXADECIMAL".to_owned(), hex.to_uppercase().into_bytes()),
        ("text backwards".to_owned(), bytes.iter().rev().copied().collect()),
    ];
    // What comes before it decides how base64 falls; only the characters that depend on nothing else are looked for.
    for before in 0..3_usize {
        let padded = [&vec![0; before][..], bytes].concat();
        let (first, last) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for (name, encoded) in [("base64", STANDARD.encode(&padded)), ("base64url", URL_SAFE.encode(&padded))] {
            forms.push((format!("{name} after {before}"), encoded.as_bytes()[first..last].to_vec()));
        }
    }
    forms
}

pub async fn files(folder: &Path, hunt: &mut Hunt) {
    for entry in std::fs::read_dir(folder).expect("the data folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        hunt.found.push((format!("the file {name}"), std::fs::read(&path).expect("a file of ours")));
    }
}

pub async fn tables(url: &str, hunt: &mut Hunt) {
    let mut connection = PgConnection::connect(url).await.expect("the server for tests answers");
    let names = sqlx::query("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'");
    let names: Vec<String> =
        names.fetch_all(&mut connection).await.expect("a list").iter().map(|row| row.get(0)).collect();
    assert!(names.contains(&"credentials".to_owned()), "{names:?}");
    for name in names {
        let rows = AssertSqlSafe(format!("SELECT COALESCE(string_agg(t::text, E'\\n'), '') FROM {name} t"));
        let text: String = sqlx::query_scalar(rows).fetch_one(&mut connection).await.expect("rows");
        // PostgreSQL writes bytes in hexadecimal.
        hunt.found.push((format!("the table {name}"), text.into_bytes()));
    }
}

on_both! {
    async fn log_3_planted_secrets_are_nowhere(database: &Database) {
        let mut hunt = Hunt::default();
        let upstream = tidegate_sim::Sim::start(tidegate_sim::Behaviour::says("hello")).await;
        let builder = Tidegate::start().endpoint(MODEL, &upstream).config(TRACE);
        let account = Account::start(database, builder).await;
        let gate = &account.gate;
        for (what, secret) in [
            ("the management key", MANAGEMENT_KEY),
            ("the inference key", INFERENCE_KEY),
            ("the operator's provider key", "provider-secret-0"),
        ] {
            hunt.planted.insert(what.to_owned(), secret.to_owned());
        }

        // Credentials: made, used, rotated, refused in every way, deleted.
        let first = hunt.plant("a credential");
        let made = account.send("POST", "/byok", json!({"provider": "p0", "key": first, "name": "planted"})).await;
        assert_eq!(made.status, 201, "{made:?}");
        hunt.keep("the answer to a new credential", &made);
        let id = made.json()["data"]["id"].as_str().expect("an id").to_owned();
        let used = gate.messages(hello(MODEL)).await;
        assert_eq!(used.status, 200);
        hunt.keep("an answer through the credential", &used);
        let second = hunt.plant("the credential after its rotation");
        let path = format!("/byok/{id}");
        for body in [json!({"key": second}), json!({"name": "renamed"}), json!({"disabled": true})] {
            let reply = account.send("PATCH", &path, body).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            hunt.keep("the answer to a change of the credential", &reply);
        }
        for (what, provider, key) in [
            ("part of an AWS credential", "amazon-bedrock", aws as fn(&str) -> String),
            ("part of a Vertex credential", "google-vertex", vertex),
            ("part of an Azure credential", "azure", azure),
        ] {
            let secret = hunt.plant(what);
            let reply = account.send("POST", "/byok", json!({"provider": provider, "key": key(&secret)})).await;
            assert_eq!(reply.status, 201, "{reply:?}");
            hunt.keep(what, &reply);
        }
        let refused: [(&str, Body); 7] = [
            ("half an AWS credential", |key| json!({"provider": "amazon-bedrock", "key": format!("{{\"accessKeyId\":\"{key}\"}}")})),
            ("broken JSON", |key| json!({"provider": "google-vertex", "key": format!("{{{key}")})),
            ("a key for a provider that is none", |key| json!({"provider": "nobody", "key": key})),
            ("a provider that is a key", |key| json!({"provider": key, "key": "k"})),
            ("a key in a list", |key| json!({"provider": "p0", "key": [key]})),
            ("a key with a line break", |key| json!({"provider": "p0", "key": format!("{key}\n{key}")})),
            ("a key that is a hash", |key| json!({"provider": "p0", "key": "k", "allowed_api_key_hashes": [key]})),
        ];
        for (what, body) in refused {
            let secret = hunt.plant(what);
            let reply = account.send("POST", "/byok", body(&secret)).await;
            assert_eq!(reply.status, 400, "{what}: {reply:?}");
            hunt.keep(what, &reply);
            let reply = account.send("PATCH", &path, body(&secret)).await;
            hunt.keep(what, &reply);
        }
        hunt.keep("the list of credentials", &account.ask("GET", "/byok").await);
        hunt.keep("a credential", &account.ask("GET", &path).await);
        let deleted = account.ask("DELETE", &path).await;
        assert_eq!(deleted.status, 200);
        hunt.keep("the answer to a deletion", &deleted);

        // Keys and codes: the one answer that carries them is not looked at, everything else is.
        let made = account.send("POST", "/keys", json!({"name": "planted"})).await;
        hunt.note("a new key", made.json()["key"].as_str().expect("a key"));
        let body = json!({"callback_url": "https://app.example/", "code_challenge": CHALLENGE, "code_challenge_method": "S256"});
        let code = account.send("POST", "/auth/keys/code", body).await.json()["data"]["id"].as_str().expect("a code").to_owned();
        hunt.note("a code", &code);
        hunt.note("a verifier", VERIFIER);
        let exchange = async |body: Value| gate.ask("POST", "/v1/auth/keys").json(body.to_string()).send().await;
        let wrong = hunt.plant("a wrong verifier");
        hunt.keep("a failed exchange", &exchange(json!({"code": code, "code_verifier": wrong})).await);
        let unknown = hunt.plant("an unknown code");
        hunt.keep("an exchange of an unknown code", &exchange(json!({"code": unknown})).await);
        let exchanged = exchange(json!({"code": code, "code_verifier": VERIFIER})).await;
        hunt.note("a key from a code", exchanged.json()["key"].as_str().expect("a key"));
        hunt.keep("a replay", &exchange(json!({"code": code, "code_verifier": VERIFIER})).await);
        hunt.keep("the list of keys", &account.ask("GET", "/keys").await);

        // Credentials of callers.
        let token = hunt.plant("an unknown bearer token");
        hunt.keep("a 401", &gate.ask("GET", "/v1/key").key(&token).send().await);
        let token = hunt.plant("an unknown x-api-key");
        hunt.keep("another 401", &gate.ask("POST", "/v1/messages").header("x-api-key", &token).send().await);
        let token = hunt.plant("a Basic credential");
        hunt.keep("a third 401", &gate.ask("GET", "/v1/key").header("authorization", format!("Basic {token}")).send().await);
        let token = hunt.plant("a key typed into the page");
        let form = format!("query=callback_url%3Dhttps%253A%252F%252Fapp.example&key={token}");
        let kind = "application/x-www-form-urlencoded";
        let sign_in = |form: String| gate.ask("POST", "/auth/sign-in").header("content-type", kind).host("127.0.0.1").body(form);
        hunt.keep("the sign-in page", &sign_in(form).send().await);
        let good = sign_in(format!("query=x%3D1&key={MANAGEMENT_KEY}")).send().await;
        hunt.keep("the answer to a sign-in", &good);
        let token = hunt.plant("a key in a path");
        hunt.keep("a 404", &account.ask("GET", &format!("/keys/{token}")).await);

        hunt.found.push(("the log".to_owned(), gate.stderr().into_bytes()));
        hunt.found.push(("the standard output".to_owned(), gate.stdout().into_bytes()));
        let log = gate.stderr();
        assert!(log.contains("\"TRACE\"") || log.contains("\"DEBUG\""), "the log is at its most talkative");
        let entries = account.audited().await;
        assert!(entries.contains(&"byok.rotated".to_owned()) && entries.contains(&"auth_code.replayed".to_owned()));
        if database.url().starts_with("postgres") {
            tables(&database.url(), &mut hunt).await;
        }
        files(&gate.place.data_dir(), &mut hunt).await;
        assert!(hunt.found.len() > 35 && hunt.planted.len() > 20);
        hunt.look();
    }
}

fn aws(secret: &str) -> String {
    json!({"accessKeyId": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": secret, "region": "eu-west-1"}).to_string()
}

fn vertex(secret: &str) -> String {
    json!({
        "type": "service_account", "project_id": "house", "private_key_id": "0123456789abcdef0123",
        // What stands before a key in this form is no part of it.
        "private_key": format!("{secret}\n{}", private_key()),
        "client_email": "a@house.iam.gserviceaccount.com",
    })
    .to_string()
}

fn azure(secret: &str) -> String {
    json!([{"api_key": secret, "resource_name": "house"}]).to_string()
}

#[test]
fn the_hunt_finds_what_is_there() {
    for (place, text) in [
        ("text", "…SECRETSECRET…".to_owned()),
        ("hexadecimal", "SECRETSECRET".bytes().map(|byte| format!("{byte:02x}")).collect()),
        ("base64", STANDARD.encode("xxSECRETSECRETyyy")),
        ("base64", STANDARD.encode("xSECRETSECRETy")),
        ("base64", URL_SAFE.encode("SECRETSECRET?>")),
    ] {
        let found = forms("SECRETSECRET").iter().any(|(_, form)| memchr::memmem::find(text.as_bytes(), form).is_some());
        assert!(found, "{place}: {text}");
    }
}
