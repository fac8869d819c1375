//! Embeddings.

use serde_json::{Value, json};

use super::{flag, list, object, text, word};

pub fn schemas() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let some_text = || json!({"type": "string", "minLength": 1});
    let tokens = || list(count(), 1, 1 << 20);
    let part = object(
        &["type"],
        json!({
            "type": {"type": "string"},
            "text": some_text(),
            "image_url": object(&["url"], json!({"url": {"type": "string"}})),
        }),
    );
    let parts = object(&["content"], json!({"content": list(part, 1, 10_000)}));
    json!({
        "EmbeddingsRequest": object(&["model", "input"], json!({
            "model": text(1, 256),
            "input": {"anyOf": [
                some_text(),
                list(some_text(), 1, 10_000),
                tokens(),
                list(tokens(), 1, 10_000),
                list(parts, 1, 10_000),
            ]},
            "encoding_format": word(&["float", "base64"]),
            "dimensions": {"type": "integer", "minimum": 1},
            "input_type": {"type": "string"},
            "user": {"type": "string"},
            "provider": {"type": "object"},
        })),
        "EmbeddingsResponse": object(&["object", "data", "model", "id", "usage"], json!({
            "object": {"const": "list"},
            "data": {"type": "array", "items": object(&["object", "index", "embedding"], json!({
                "object": {"const": "embedding"},
                "index": count(),
                "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string"}]},
            }))},
            "model": {"type": "string"},
            "id": {"type": "string"},
            "usage": object(&["prompt_tokens", "total_tokens", "cost", "is_byok"], json!({
                "prompt_tokens": count(),
                "total_tokens": count(),
                "cost": {"type": ["number", "null"], "minimum": 0, "description": "In dollars."},
                "cost_details": {"type": ["object", "null"]},
                "is_byok": flag(),
            })),
        })),
    })
}
