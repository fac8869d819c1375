//! Pictures and the models that make them.

use serde_json::{Value, json};

use super::{flag, full, list, object, text, to, word};

pub fn schemas() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let some_text = || json!({"type": "string"});
    let named = || json!({"type": "array", "items": {"type": "string"}});
    let cost = || json!({"type": ["number", "null"], "minimum": 0, "description": "In dollars."});
    let reference = object(
        &["type", "image_url"],
        json!({"type": {"const": "image_url"}, "image_url": object(&["url"], json!({"url": text(1, 1 << 25)}))}),
    );
    let capabilities = json!({"type": "object", "additionalProperties": {"oneOf": [
        full(json!({"type": {"const": "enum"}, "values": named()})),
        full(json!({"type": {"const": "range"}, "min": {"type": "number"}, "max": {"type": "number"}})),
        full(json!({"type": {"const": "boolean"}})),
    ]}});
    let price = full(json!({
        "billable": word(&["output_image", "input_image", "input_font", "input_reference", "input_text"]),
        "unit": word(&["image", "megapixel", "token"]),
        "cost_usd": {"type": "number", "minimum": 0},
    }));
    let model = full(json!({
        "id": some_text(),
        "name": some_text(),
        "description": some_text(),
        "created": {"type": "integer"},
        "architecture": full(json!({"input_modalities": named(), "output_modalities": named()})),
        "supported_parameters": to("ImageParameters"),
        "supports_streaming": flag(),
        "endpoints": some_text(),
    }));
    let endpoint = full(json!({
        "provider_name": some_text(),
        "provider_slug": some_text(),
        "provider_tag": {"type": ["string", "null"]},
        "supported_parameters": to("ImageParameters"),
        "allowed_passthrough_parameters": named(),
        "supports_streaming": flag(),
        "pricing": {"type": "array", "items": price},
    }));
    json!({
        "ImageGenerationRequest": object(&["model", "prompt"], json!({
            "model": text(1, 256),
            "prompt": {"type": "string", "minLength": 1},
            "n": {"type": "integer", "minimum": 1, "maximum": 10},
            "stream": flag(),
            "size": some_text(),
            "aspect_ratio": some_text(),
            "resolution": word(&["512", "1K", "2K", "4K"]),
            "quality": some_text(),
            "background": word(&["auto", "transparent", "opaque"]),
            "output_format": word(&["png", "jpeg", "webp", "svg"]),
            "output_compression": {"type": "integer", "minimum": 0, "maximum": 100},
            "seed": {"type": "integer"},
            "input_references": list(reference, 0, 16),
            "provider": {"type": "object"},
        })),
        "ImageGenerationResponse": object(&["created", "data", "usage"], json!({
            "created": {"type": "integer"},
            "data": {"type": "array", "items": object(&["b64_json"], json!({
                "b64_json": some_text(),
                "media_type": some_text(),
                "revised_prompt": some_text(),
            }))},
            "usage": object(&["prompt_tokens", "completion_tokens", "total_tokens", "cost", "is_byok"], json!({
                "prompt_tokens": count(),
                "completion_tokens": count(),
                "total_tokens": count(),
                "input_tokens": count(),
                "output_tokens": count(),
                "cost": cost(),
                "is_byok": flag(),
            })),
        })),
        "ImageModelList": full(json!({"data": {"type": "array", "items": model}})),
        "ImageModelEndpoints": full(json!({"id": some_text(), "endpoints": {"type": "array", "items": endpoint}})),
        "ImageParameters": capabilities,
    })
}
