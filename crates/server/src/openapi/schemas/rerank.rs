//! Ranking documents.

use serde_json::{Value, json};

use super::{flag, list, object, text};

pub fn schemas() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let document = || object(&[], json!({"text": {"type": "string"}, "image": {"type": "string"}}));
    json!({
        "RerankRequest": object(&["model", "query", "documents"], json!({
            "model": text(1, 256),
            "query": {"type": "string", "minLength": 1},
            "documents": list(json!({"anyOf": [{"type": "string"}, document()]}), 1, 10_000),
            "top_n": {"type": "integer", "minimum": 1, "description": "How many are wanted, the best first."},
            "user": {"type": "string"},
            "provider": {"type": "object"},
        })),
        "RerankResponse": object(&["id", "model", "provider", "results", "usage"], json!({
            "id": {"type": "string"},
            "model": {"type": "string"},
            "provider": {"type": "string"},
            "results": {"type": "array", "items": object(&["index", "relevance_score", "document"], json!({
                "index": count(),
                "relevance_score": {"type": "number"},
                "document": document(),
            }))},
            "usage": object(&["cost", "is_byok"], json!({
                "search_units": count(),
                "total_tokens": count(),
                "cost": {"type": ["number", "null"], "minimum": 0, "description": "In dollars."},
                "cost_details": {"type": ["object", "null"]},
                "is_byok": flag(),
            })),
        })),
    })
}
