//! The shapes of what is sent and answered. Objects that come back may gain members; the members named here stay.

use serde_json::{Map, Value, json};

use super::parameters::{callback_url, code_challenge, preset_slug, provider};

mod analytics;
mod answers;
mod audio;
mod destinations;
mod embeddings;
mod files;
mod guardrails;
mod images;
mod requests;
mod rerank;

/// All schemas, by name.
pub fn schemas() -> Value {
    let mut all = Map::new();
    let parts = [
        shared(),
        messages(),
        requests::schemas(),
        answers::schemas(),
        analytics::schemas(),
        guardrails::schemas(),
        destinations::schemas(),
        files::schemas(),
        images::schemas(),
        embeddings::schemas(),
        rerank::schemas(),
        audio::schemas(),
    ];
    for group in parts {
        let Value::Object(group) = group else { continue };
        all.extend(group);
    }
    Value::Object(all)
}

pub fn uuid() -> Value {
    json!({
        "type": "string",
        "format": "uuid",
        "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    })
}

/// RFC 3339.
pub fn date_time() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// As we write it: UTC, with milliseconds.
fn instant() -> Value {
    json!({
        "type": "string",
        "format": "date-time",
        "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$",
    })
}

/// Dollars.
pub fn money() -> Value {
    json!({"type": "number", "minimum": 0, "maximum": 1e9})
}

pub fn key_hash() -> Value {
    json!({"type": "string", "pattern": "^[a-f0-9]{64}$"})
}

pub fn word(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

fn text(least: u32, most: u32) -> Value {
    json!({"type": "string", "minLength": least, "maxLength": most})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn list(of: Value, least: u32, most: u32) -> Value {
    json!({"type": "array", "items": of, "minItems": least, "maxItems": most})
}

fn to(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The same, or null.
fn or_null(mut schema: Value) -> Value {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
    }
    match schema.get("type").cloned() {
        Some(kind) => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        None => json!({"oneOf": [schema, {"type": "null"}]}),
    }
}

/// An object with these members, the named ones required.
fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object whose members are all required.
fn full(properties: Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({"type": "object", "required": required, "properties": properties})
}

fn shared() -> Value {
    let issue = full(json!({
        "path": {"type": "string", "description": "Where the mistake is; empty for the whole body."},
        "message": {"type": "string"},
    }));
    json!({
        "Error": full(json!({
            "error": object(&["code", "message"], json!({
                "code": {"type": "integer", "minimum": 400, "maximum": 599, "description": "The HTTP status."},
                "message": {"type": "string", "minLength": 1},
                "error_type": {"type": "string", "description": "With `availability`."},
                "http_status": {"type": "integer", "description": "With `availability`."},
                "availability": {"type": "object", "description": "Why no endpoint could serve a model."},
                "metadata": {
                    "type": "object",
                    "description": "Only when there is something to say; always where a model is called.",
                    "properties": {
                        "issues": {"type": "array", "minItems": 1, "items": issue},
                        "error_type": {"type": "string"},
                        "resets_at": date_time(),
                    },
                },
            })),
        })),
        "Deleted": full(json!({"deleted": {"const": true}})),
        "Provider": {
            "description": "A provider by its slug: one that is widely known, or one of the operator's configuration.",
            "type": "string",
            "pattern": provider()["pattern"],
            "maxLength": 255,
        },
        "Interface": object(&["openapi", "info", "paths"], json!({
            "openapi": {"const": "3.1.0"},
            "info": {"type": "object"},
            "servers": {"type": "array"},
            "tags": {"type": "array"},
            "paths": {"type": "object"},
            "components": {"type": "object"},
        })),
        "Health": full(json!({"status": {"const": "ok"}})),
        "Readiness": full(json!({
            "status": word(&["ready", "not ready"]),
            "checks": {
                "type": "object",
                "additionalProperties": object(&["ok"], json!({
                    "ok": flag(),
                    "detail": {"type": "string", "description": "For management keys only."},
                })),
            },
        })),
        "Version": full(json!({
            "version": {"type": "string"},
            "commit": {"type": "string"},
            "built_at": requests::described(or_null(date_time()), "When the program was built, or its file written."),
            "schema": requests::described(json!({"type": "integer"}), "The last change to the tables that this build knows."),
        })),
    })
}

/// Anthropic's format, as far as we look at it.
fn messages() -> Value {
    let request = json!({
        "model": text(1, 256),
        "messages": list(json!({"type": "object"}), 1, 10_000),
        "max_tokens": {"type": "integer", "minimum": 0},
        "stream": {"type": "boolean", "default": false},
    });
    let mut counted = request.clone();
    if let Some(members) = counted.as_object_mut() {
        members.retain(|name, _| name == "model" || name == "messages");
    }
    let mut request_of_preset = request.clone();
    if let Some(members) = request_of_preset.as_object_mut() {
        members.insert("messages".to_owned(), list(json!({"type": "object"}), 0, 10_000));
        members.insert("cache_enabled".to_owned(), flag());
        members.insert("cache_ttl_seconds".to_owned(), json!({"type": "integer", "minimum": 1}));
    }
    let open = |mut schema: Value, description: &str| {
        schema["additionalProperties"] = json!(true);
        schema["description"] = json!(description);
        schema
    };
    json!({
        "MessagesRequest": open(
            object(&["model", "messages"], request),
            "Anthropic's Messages request; members not listed here are forwarded.",
        ),
        "PresetRequest": open(
            object(&[], request_of_preset),
            "A Messages request of which the settings are kept and the conversation is not. Nothing of it is required.",
        ),
        "CountTokensRequest": open(
            object(&["model", "messages"], counted),
            "A Messages request of which the input is counted.",
        ),
        "TokenCount": open(
            object(&["input_tokens"], json!({"input_tokens": {"type": "integer", "minimum": 0}})),
            "The upstream's count, or an estimate.",
        ),
        "Message": open(
            object(&["id", "type", "role", "model", "content", "stop_reason", "usage"], json!({
                "id": {"type": "string"},
                "type": {"const": "message"},
                "role": {"const": "assistant"},
                "model": {"type": "string"},
                "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
                "stop_reason": {"type": ["string", "null"]},
                "usage": {"type": "object", "required": ["input_tokens", "output_tokens"]},
            })),
            "Anthropic's Message, with what it cost in `usage`.",
        ),
        "ChatRequest": open(
            object(&["messages"], json!({
                "model": text(1, 256),
                "messages": list(object(&["role"], json!({
                    "role": word(&["system", "developer", "user", "assistant", "tool"]),
                })), 1, 10_000),
                "max_completion_tokens": {"type": ["integer", "null"], "minimum": 1},
                "max_tokens": {"type": ["integer", "null"], "minimum": 1},
                "stream": {"type": ["boolean", "null"], "default": false},
                "n": {"enum": [1, null]},
            })),
            "OpenAI's chat completions request. Members that no upstream of the request takes are named in the warnings.",
        ),
        "ResponsesRequest": open(
            object(&["input"], json!({
                "model": text(1, 256),
                "input": {"type": ["string", "array"]},
                "instructions": {"type": ["string", "null"]},
                "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
                "stream": {"type": ["boolean", "null"], "default": false},
                "background": {"enum": [false, null]},
                "previous_response_id": {"type": "null"},
            })),
            "OpenAI's Responses request. Nothing is stored: the conversation comes in `input`.",
        ),
        "Response": open(
            object(&["id", "object", "created_at", "status", "model", "output", "error", "usage"], json!({
                "id": {"type": "string"},
                "object": {"const": "response"},
                "created_at": {"type": "integer"},
                "status": word(&["completed", "incomplete", "failed", "in_progress"]),
                "model": {"type": "string"},
                "output": {"type": "array", "items": {"type": "object", "required": ["type"]}},
                "error": {"type": ["object", "null"]},
                "usage": {"type": ["object", "null"], "required": ["input_tokens", "output_tokens", "total_tokens"]},
            })),
            "OpenAI's response, with what it cost in `usage`.",
        ),
        "ChatCompletion": open(
            object(&["id", "object", "created", "model", "choices", "usage"], json!({
                "id": {"type": "string"},
                "object": {"const": "chat.completion"},
                "created": {"type": "integer"},
                "model": {"type": "string"},
                "choices": list(object(&["index", "message", "finish_reason"], json!({
                    "index": {"const": 0},
                    "message": {"type": "object", "required": ["role", "content"]},
                    "finish_reason": word(&["stop", "length", "tool_calls", "content_filter", "error"]),
                    "native_finish_reason": {"type": ["string", "null"]},
                    "logprobs": {"type": "null"},
                })), 1, 1),
                "usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"]},
            })),
            "OpenAI's chat completion, with what it cost in `usage`.",
        ),
        "MessagesError": object(&["type", "error", "request_id"], json!({
            "type": {"const": "error"},
            "error": object(&["type", "message", "error_type"], json!({
                "type": {"type": "string"},
                "message": {"type": "string", "minLength": 1},
                "error_type": {"type": "string"},
                "availability": {"type": "object"},
            })),
            "request_id": {"type": ["string", "null"]},
            "metadata": {"type": "object"},
        })),
    })
}
