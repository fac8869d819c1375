//! `tidegate store move`: everything is at the server as it was in the file, and nothing is used twice.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Place, Tidegate, hello, text, with_postgres};

const MODEL: &str = "vendor/m";
const PRICED: &str = "pricing = { input = 3, output = 15 }";

/// What can be read, and must be the same before and after.
const READ: [&str; 13] = [
    "/keys",
    "/byok",
    "/workspaces",
    "/organization/members",
    "/guardrails",
    "/presets",
    "/presets/brief/versions",
    "/observability/destinations",
    "/credits",
    "/files",
    "/key",
    "/audit?limit=100",
    "/generation",
];

async fn send(gate: &Tidegate, method: &str, path: &str, body: Value) -> Value {
    let key = if path.starts_with("/presets") { INFERENCE_KEY } else { MANAGEMENT_KEY };
    let reply = gate.ask(method, &format!("/v1{path}")).key(key).json(body.to_string()).send().await;
    assert!(reply.status < 300, "{path}: {}", reply.body_text());
    reply.json()
}

async fn read(gate: &Tidegate, generation: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for path in READ {
        let (key, path) = match path {
            "/key" | "/files" | "/presets" | "/presets/brief/versions" => (INFERENCE_KEY, path.to_owned()),
            "/generation" => (MANAGEMENT_KEY, format!("{path}?id={generation}")),
            path => (MANAGEMENT_KEY, path.to_owned()),
        };
        let reply = gate.ask("GET", &format!("/v1{path}")).key(key).send().await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        let mut json = reply.json();
        if path.starts_with("/audit") {
            json["total_count"].take();
        }
        all.push((path, json));
    }
    all
}

async fn fill(gate: &Tidegate) -> String {
    let key = send(gate, "POST", "/keys", json!({"name": "k\u{e9}y", "limit": 12.5, "limit_reset": "daily"})).await;
    let hash = key["data"]["hash"].as_str().unwrap().to_owned();
    send(
        gate,
        "POST",
        "/byok",
        json!({"provider": "anthropic", "key": "sk-ant-of-a-customer", "allowed_models": ["a/b"]}),
    )
    .await;
    send(gate, "POST", "/workspaces", json!({"name": "Second", "slug": "second"})).await;
    let guard = json!({"name": "g", "limit_usd": 3, "reset_interval": "monthly", "allowed_models": [MODEL]});
    let guard = send(gate, "POST", "/guardrails", guard).await;
    let path = format!("/guardrails/{}/assignments/keys", guard["data"]["id"].as_str().unwrap());
    send(gate, "POST", &path, json!({"key_hashes": [hash]})).await;
    let mut preset = hello(MODEL);
    preset["system"] = json!("Be brief.");
    send(gate, "POST", "/presets/brief/messages", preset).await;
    send(gate, "POST", "/credits/grants", json!({"amount": 100})).await;
    let webhook =
        json!({"type": "webhook", "name": "w", "config": {"url": "https://example.com/hook"}, "enabled": false});
    send(gate, "POST", "/observability/destinations?skip_test=true", webhook).await;
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
                Content-Type: text/plain\r\n\r\nwhat is kept\r\n--b--\r\n";
    let ask =
        gate.ask("POST", "/v1/files").key(INFERENCE_KEY).header("content-type", "multipart/form-data; boundary=b");
    let reply = ask.body(form).send().await;
    assert!(reply.status < 300, "{}", reply.body_text());
    let mut last = String::new();
    for _ in 0..7 {
        let reply = gate.messages(hello(MODEL)).await;
        assert_eq!(reply.status, 200);
        last = reply.header("x-generation-id").unwrap().to_owned();
    }
    last
}

async fn run(place: &Place, words: &[&str]) -> (bool, String) {
    let output = place.run(words).await;
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn everything_is_there_as_it_was_here() {
    with_postgres(async |database| {
        let sim = Sim::start(Behaviour::says("hello")).await;
        let builder = || Tidegate::start().endpoint_with(MODEL, &sim, PRICED).config("[billing]\nenabled = true\n");
        let gate = builder().run().await;
        let generation = fill(&gate).await;
        let url = database.url();
        let words = ["store", "move", "--to", &url];
        let (done, told) = run(&gate.place, &words).await;
        assert!(!done && told.contains("another tidegate is using the data folder"), "{told}");
        let before = read(&gate, &generation).await;
        let (status, place) = gate.stop().await;
        assert!(status.success());

        let (done, told) = run(&place, &["store", "move", "--to", "sqlite:other.db"]).await;
        assert!(!done && told.contains("to a PostgreSQL server only"), "{told}");
        let (done, told) = run(&place, &words).await;
        assert!(done && told.contains("rows moved, and all adds up there"), "{told}");
        // What is left behind is not used by mistake.
        let (done, told) = run(&place, &["serve"]).await;
        assert!(!done && told.contains("was moved to a PostgreSQL server"), "{told}");
        let (done, told) = run(&place, &words).await;
        assert!(!done && told.contains("it was moved already"), "{told}");

        let (done, told) = run(&place, &["keys", "create", "--name", "lost"]).await;
        assert!(!done && told.contains("set storage.url to it"), "{told}");
        assert!(run(&place, &["ledger", "verify"]).await.0, "it can be looked at");

        place.write_config(&builder().config(&database.config()).text());
        let gate = place.serve().await;
        let mut after = read(&gate, &generation).await;
        // That it was moved is the one entry that is new.
        for (path, list) in after.iter_mut().filter(|(path, _)| path.starts_with("/audit")) {
            let entries = list["data"].as_array_mut().unwrap();
            let at = entries.iter().position(|entry| entry["action"] == "store.moved");
            entries.remove(at.unwrap_or_else(|| panic!("{path}")));
        }
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after);
        }
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
        for words in [["ledger", "verify"], ["audit", "verify"], ["secrets", "verify"]] {
            let (done, told) = run(&gate.place, &words).await;
            assert!(done, "{words:?}: {told}");
        }

        // A store with somebody's records is not written over.
        let (_, place) = gate.stop().await;
        place.write_config(&builder().text());
        assert!(run(&place, &["store", "reopen"]).await.0);
        let (done, told) = run(&place, &words).await;
        assert!(!done && told.contains("it must be empty"), "{told}");
        let gate = place.serve().await;
        assert_eq!(gate.messages(hello(MODEL)).await.status, 200);
    });
}
