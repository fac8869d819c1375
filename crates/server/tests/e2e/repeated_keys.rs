//! A provider that repeats the key it was called with: nobody else hears of it.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Account, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, hello, hello_streamed, on_both};

const MODEL: &str = "vendor/m";
/// The harness gives it to the operator's own provider.
const SHARED: &str = "provider-secret-0";
const OWN: &str = "customer-own-key-7";

fn saying(code: u16, key: &str) -> Behaviour {
    let message = Some(format!("bad key {key} here"));
    Behaviour::Status { code, retry_after: None, error_type: None, message }
}

fn breaking(after: usize, key: &str) -> Behaviour {
    Behaviour::ErrorInStream {
        after,
        error_type: "invalid_request_error".into(),
        message: format!("bad key {key} here"),
    }
}

async fn asked(account: &Account, path: &str, body: &Value) -> (String, Option<String>) {
    let reply = account.gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await;
    (reply.body_text().to_owned(), reply.header("x-generation-id").map(str::to_owned))
}

on_both! {
    async fn a_key_that_a_provider_repeats_reaches_nobody(database: &Database) {
        let sim = Sim::start(Behaviour::Echo).await;
        let trace = "[log]\nlevel = \"trace\"\n";
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim).config(trace)).await;
        let wanted = json!({"is_observability_io_logging_enabled": true});
        account.data("PATCH", "/workspaces/default", Some(wanted), 200).await;
        for key in [SHARED, OWN] {
            if key == OWN {
                account.data("POST", "/byok", Some(json!({"provider": "p0", "key": OWN})), 201).await;
            }
            for (behaviour, body) in [
                (saying(400, key), hello(MODEL)),
                (saying(422, key), hello_streamed(MODEL)),
                (breaking(0, key), hello_streamed(MODEL)),
                (breaking(3, key), hello_streamed(MODEL)),
            ] {
                sim.set(behaviour.clone());
                for path in ["/v1/messages", "/v1/chat/completions"] {
                    let (text, id) = asked(&account, path, &body).await;
                    assert!(text.contains("bad key [removed] here"), "{path} {behaviour:?}: {text}");
                    assert!(!text.contains(key), "{path} {behaviour:?}: {text}");
                    let id = id.expect("it has an id");
                    let kept = account.gate.ask("GET", &format!("/api/v1/generation/content?id={id}"));
                    let kept = kept.key(MANAGEMENT_KEY).send().await;
                    assert_eq!(kept.status, 200, "{}", kept.body_text());
                    assert!(!kept.body_text().contains(key), "{path} {behaviour:?}: {}", kept.body_text());
                }
            }
            assert!(!account.gate.stderr().contains(key) && !account.gate.stdout().contains(key));
        }
    }
}
