//! Destinations: what is asked and what is answered.

use serde_json::{Map, Value, json};
use tidegate_observe::broadcast::Kind;

use super::answers::{data, page};
use super::requests::described;
use super::{flag, full, instant, key_hash, list, object, or_null, text, to, uuid, word};

/// What can be said of a destination when it is made and later.
fn settings() -> Map<String, Value> {
    let rules = described(json!({"type": "object"}), "Groups of rules of which one must hold.");
    let config = described(json!({"type": "object"}), "What its type needs, and `headers`. Secrets are shown masked.");
    let settings = json!({
        "name": text(1, 255),
        "config": config,
        "enabled": flag(),
        "api_key_hashes": or_null(list(key_hash(), 1, 1_000)),
        "filter_rules": or_null(rules),
        "sampling_rate": {"type": "number", "minimum": 0.0001, "maximum": 1},
        "privacy_mode": flag(),
        "broadcast_generation_cost": flag(),
        "broadcast_generation_identity": flag(),
        "broadcast_generation_request_context": flag(),
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

pub fn schemas() -> Value {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
    let mut create = settings();
    create.extend([("type".to_owned(), word(&kinds)), ("workspace_id".to_owned(), uuid())]);
    let mut shown = create.clone();
    shown.extend([
        ("id".to_owned(), uuid()),
        ("broadcast_generation_cost_allocation".to_owned(), flag()),
        ("regions".to_owned(), list(word(&["global", "europe", "us"]), 1, 3)),
        ("created_at".to_owned(), instant()),
        ("updated_at".to_owned(), instant()),
    ]);
    let count = || json!({"type": "integer", "minimum": 0});
    let status = json!({
        "queued": count(),
        "oldest_at": or_null(instant()),
        "delivered_24h": count(),
        "failed_24h": count(),
        "dropped_24h": count(),
        "last_error": or_null(json!({"type": "string"})),
        "last_success_at": or_null(instant()),
    });
    json!({
        "DestinationStatus": full(status),
        "CreateDestination": object(&["type", "name", "config"], Value::Object(create)),
        "UpdateDestination": object(&[], Value::Object(settings())),
        "Destination": full(Value::Object(shown)),
        "DestinationAnswer": data(to("Destination")),
        "DestinationList": page("Destination"),
    })
}
