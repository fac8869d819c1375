//! Files, in three forms: ours, and those of OpenAI's and Anthropic's clients.

use serde_json::{Value, json};

use super::{flag, instant, object, or_null, to, word};

pub fn schemas() -> Value {
    let file_id = || json!({"type": "string", "pattern": "^file_[0-9A-HJKMNP-TV-Z]{26}$"});
    let next = || or_null(file_id());
    let one_of = |names: [&str; 3]| json!({"oneOf": names.map(to)});
    let shape = |name: &str| json!({"type": "string", "const": name});
    // Ours is called by the name of the deployment.
    let ours = || json!({"type": "string", "not": {"enum": ["openai", "anthropic"]}});
    let size = || json!({"type": "integer", "minimum": 0});
    let file = |shape: Value| {
        object(
            &["_shape", "id", "type", "filename", "mime_type", "size_bytes", "created_at", "downloadable"],
            json!({
                "_shape": shape,
                "id": file_id(),
                "type": {"const": "file"},
                "filename": {"type": "string"},
                "mime_type": {"type": "string"},
                "size_bytes": size(),
                "created_at": instant(),
                "downloadable": flag(),
            }),
        )
    };
    let list = |shape: Value, of: &str, members: &[(&'static str, Value)]| {
        let mut properties = json!({
            "_shape": shape,
            "data": {"type": "array", "items": to(of)},
            "has_more": flag(),
            "first_id": or_null(file_id()),
            "last_id": or_null(file_id()),
        });
        let mut required = vec!["_shape", "data", "has_more", "first_id", "last_id"];
        for (name, schema) in members {
            properties[*name] = schema.clone();
            required.push(name);
        }
        object(&required, properties)
    };
    let deleted = |shape: Value| {
        object(&["_shape", "id", "type"], json!({"_shape": shape, "id": file_id(), "type": {"const": "file_deleted"}}))
    };
    json!({
        "FileUpload": object(&["file"], json!({
            "file": {"type": "string", "format": "binary", "description": "The file, with its filename."},
            "purpose": {"type": "string", "description": "What it is for, in OpenAI's words."},
        })),
        "File": one_of(["OwnFile", "OpenAIFile", "AnthropicFile"]),
        "FileList": one_of(["OwnFileList", "OpenAIFileList", "AnthropicFileList"]),
        "FileDeleted": one_of(["OwnFileDeleted", "OpenAIFileDeleted", "AnthropicFileDeleted"]),
        "OwnFile": file(ours()),
        "AnthropicFile": file(shape("anthropic")),
        "OpenAIFile": object(
            &["_shape", "id", "object", "bytes", "created_at", "filename", "purpose", "status"],
            json!({
                "_shape": shape("openai"),
                "id": file_id(),
                "object": {"const": "file"},
                "bytes": size(),
                "created_at": {"type": "integer"},
                "filename": {"type": "string"},
                "purpose": {"type": "string"},
                "status": word(&["processed"]),
            }),
        ),
        "OwnFileList": list(ours(), "OwnFile", &[("cursor", next()), ("next_page", next())]),
        "AnthropicFileList": list(shape("anthropic"), "AnthropicFile", &[("next_page", next())]),
        "OpenAIFileList": list(shape("openai"), "OpenAIFile", &[("object", json!({"const": "list"}))]),
        "OwnFileDeleted": deleted(ours()),
        "AnthropicFileDeleted": deleted(shape("anthropic")),
        "OpenAIFileDeleted": object(
            &["_shape", "id", "object", "deleted"],
            json!({"_shape": shape("openai"), "id": file_id(), "object": {"const": "file"}, "deleted": {"const": true}}),
        ),
    })
}
