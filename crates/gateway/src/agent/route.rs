//! How the turns of a loop were routed, told as one request: every attempt in its order, among all endpoints that the first
//! turn could have gone to. Later turns know of nobody but the model that answered it.

use serde_json::{Value, json};

/// The strategy of an answer that a model of a list gave in place of the first.
const FALLBACK: &str = "fallback";

/// The routing so far, and that of a turn behind it.
pub(super) fn joined(before: &Value, mut latest: Value) -> Value {
    if latest["strategy"] != FALLBACK {
        latest["strategy"] = before["strategy"].clone();
    }
    let mut attempts = list(&before["attempts"]);
    latest["attempt"] = json!(attempts.len() as u64 + latest["attempt"].as_u64().unwrap_or(0));
    attempts.append(&mut list(&latest["attempts"]));
    if !attempts.is_empty() {
        latest["attempts"] = Value::Array(attempts);
    }
    latest["is_byok"] = json!(before["is_byok"] == true || latest["is_byok"] == true);
    let (endpoints, selected) = endpoints(&before["endpoints"], &latest["endpoints"]);
    let available = list(&endpoints["available"]).len();
    latest["endpoints"] = endpoints;
    latest["summary"] = match selected.as_ref().and_then(Value::as_str) {
        Some(provider) => json!(format!("available={available}, selected={provider}")),
        None => json!(format!("available={available}")),
    };
    latest
}

/// Those of the first turn, with the mark at who served the latest, and who that was.
fn endpoints(before: &Value, latest: &Value) -> (Value, Option<Value>) {
    let mut available = list(&before["available"]);
    let served = list(&latest["available"]).into_iter().find(is_selected);
    let place = served.as_ref().map(|served| {
        let is_it = |one: &Value| (&one["provider"], &one["model"]) == (&served["provider"], &served["model"]);
        // Of two that are told in the same words it is the one that served before.
        let known = available.iter().position(|one| is_selected(one) && is_it(one));
        known.or_else(|| available.iter().position(is_it)).unwrap_or(available.len())
    });
    if let (Some(served), true) = (&served, place == Some(available.len())) {
        available.push(served.clone());
    }
    for (at, one) in available.iter_mut().enumerate() {
        one["selected"] = json!(Some(at) == place);
    }
    let mut endpoints = before.clone();
    endpoints["available"] = Value::Array(available);
    (endpoints, served.map(|served| served["provider"].clone()))
}

fn is_selected(endpoint: &Value) -> bool {
    endpoint["selected"] == true
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(provider: &str, model: &str, selected: bool) -> Value {
        json!({"provider": provider, "model": model, "selected": selected})
    }

    fn attempt(provider: &str, model: &str, status: u16) -> Value {
        json!({"provider": provider, "model": model, "status": status})
    }

    #[test]
    fn a_turn_behind_a_fallback_is_part_of_it() {
        let first = json!({"requested": "a/m", "strategy": "fallback", "region": "local",
            "summary": "available=3, selected=P", "attempt": 3, "generation_time": 5, "is_byok": true,
            "endpoints": {"total": 4, "available": [endpoint("P", "a/m", false), endpoint("Q", "a/m", false), endpoint("P", "b/n", true)]},
            "attempts": [attempt("P", "a/m", 500), attempt("Q", "a/m", 500), attempt("P", "b/n", 200)]});
        let second = json!({"requested": "b/n", "strategy": "direct", "region": "local",
            "summary": "available=1, selected=P", "attempt": 1, "generation_time": 7, "is_byok": false,
            "endpoints": {"total": 1, "available": [endpoint("P", "b/n", true)]},
            "attempts": [attempt("P", "b/n", 200)], "pipeline": [{"type": "guardrail"}]});
        let wanted = json!({"requested": "b/n", "strategy": "fallback", "region": "local",
            "summary": "available=3, selected=P", "attempt": 4, "generation_time": 7, "is_byok": true,
            "endpoints": first["endpoints"],
            "attempts": [attempt("P", "a/m", 500), attempt("Q", "a/m", 500), attempt("P", "b/n", 200), attempt("P", "b/n", 200)],
            "pipeline": [{"type": "guardrail"}]});
        assert_eq!(joined(&first, second), wanted);
    }

    #[test]
    fn who_serves_a_later_turn_is_marked_and_nobody_when_it_fails() {
        let available = [endpoint("P", "a/m", true), endpoint("Q", "a/m", false)];
        let first = json!({"strategy": "direct", "attempt": 1, "is_byok": false,
            "endpoints": {"total": 2, "available": available}, "attempts": [attempt("P", "a/m", 200)]});
        let turn = |chosen: &str, attempt: u64, attempts: &[Value]| {
            let available = ["P", "Q"].map(|provider| endpoint(provider, "a/m", provider == chosen));
            json!({"strategy": "direct", "attempt": attempt, "is_byok": false,
                "endpoints": {"total": 2, "available": available}, "attempts": attempts})
        };
        let moved = joined(&first, turn("Q", 2, &[attempt("P", "a/m", 503), attempt("Q", "a/m", 200)]));
        assert_eq!((&moved["attempt"], &moved["summary"]), (&json!(3), &json!("available=2, selected=Q")));
        assert_eq!(moved["endpoints"]["available"], json!([endpoint("P", "a/m", false), endpoint("Q", "a/m", true)]));
        let failed = joined(&first, turn("", 1, &[attempt("P", "a/m", 500)]));
        assert_eq!((&failed["attempt"], &failed["summary"]), (&json!(2), &json!("available=2")));
        assert!(!list(&failed["endpoints"]["available"]).iter().any(is_selected), "{failed}");
    }
}
