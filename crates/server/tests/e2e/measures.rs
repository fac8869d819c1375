//! What is measured of the gateway itself: the database, secrets, credentials that wait, letters that wait.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::json;
use tidegate_sim::{Behaviour, Sim};

use crate::harness::receiver::Receiver;
use crate::harness::{Account, Place, Tidegate, eventually, hello, on_both};

const MODEL: &str = "vendor/m";
const PATIENCE: Duration = Duration::from_secs(30);

/// The value behind a name with its labels.
async fn measured(gate: &Tidegate, name: &str) -> Option<f64> {
    let text = gate.managed("/metrics").await.body_text().to_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// So many hours later.
fn clocked(mut place: Place, hours: i64) -> Place {
    let file = place.beside("clock");
    std::fs::write(&file, (hours * 60 * 60 * 1000).to_string()).unwrap();
    place.environment("TIDEGATE_CLOCK_FILE", Some(file.to_str().unwrap()));
    place
}

on_both! {
    async fn the_database_its_secrets_and_what_waits_are_measured(database: &Database) {
        let (good, limited) = (Sim::start(Behaviour::says("hello")).await, Sim::start(Behaviour::status(429)).await);
        let collector = Receiver::start().await;
        collector.says(503);
        let builder = Tidegate::start().endpoint(MODEL, &limited).endpoint(MODEL, &good).endpoint("vendor/other", &good);
        let limits = "[limits]\nmanagement_rpm = 60000\n";
        let builder = builder.config(&collector.config("otel-collector", "")).config(limits).config(&database.config());
        let account = Account::start_at(database, clocked(builder.place(), 0)).await;
        let kept = json!({"is_observability_io_logging_enabled": true});
        assert_eq!(account.send("PATCH", "/workspaces/default", kept).await.status, 200);
        assert_eq!(account.gate.messages(hello(MODEL)).await.status, 200);
        let made = account.send("POST", "/byok", json!({"provider": "p2", "key": "sk-some-credential-of-ours"})).await;
        assert_eq!(made.status, 201);
        let deleted = account.send("POST", "/byok", json!({"provider": "p2", "key": "sk-another-of-them"})).await.json();
        account.ask("DELETE", &format!("/byok/{}", deleted["data"]["id"].as_str().unwrap())).await;
        // Secrets and words are counted at the start, and an hour later the letter is an hour old.
        let (_, place) = account.gate.stop().await;
        let account = Account::start_at(database, clocked(place, 1)).await;
        let gate = &account.gate;
        // With the operator's key, which is told to wait.
        let mut body = hello(MODEL);
        body["provider"] = json!({"order": ["p0", "p1"]});
        assert_eq!(gate.messages(body).await.status, 200);
        eventually("a credential and what was said are counted", PATIENCE, async || {
            let text = gate.managed("/metrics").await.body_text().to_owned();
            text.lines().any(|line| line.starts_with("tidegate_secrets_by_kek{kek_id=") && line.ends_with("} 2"))
        })
        .await;
        assert_eq!(measured(gate, r#"tidegate_credential_cooldown{provider="P0"}"#).await, Some(1.0));
        assert_eq!(measured(gate, r#"tidegate_credential_cooldown{provider="P1"}"#).await, Some(0.0));
        let pool = if database.url().starts_with("postgres") { "postgres" } else { "writer" };
        assert!(measured(gate, &format!(r#"tidegate_db_pool_in_use{{pool="{pool}"}}"#)).await.is_some());
        assert!(measured(gate, r#"tidegate_db_query_duration_seconds_count{query_group="credentials"}"#).await.unwrap() > 0.0);
        let own = r#"tidegate_gateway_overhead_seconds_count{route="/messages"}"#;
        eventually("our own part is known", PATIENCE, async || measured(gate, own).await == Some(1.0)).await;
        let oldest = r#"tidegate_broadcast_oldest_seconds{destination_type="otel-collector",destination="collector"}"#;
        eventually("a letter grows old", PATIENCE, async || measured(gate, oldest).await.is_some_and(|age| age >= 3_600.0))
            .await;
    }
}
