//! Speech and transcripts.

use serde_json::{Value, json};

use super::{flag, list, object, text};

pub fn schemas() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let seconds = || json!({"type": "number", "minimum": 0});
    let form = || json!({"enum": ["json", "verbose_json", "text"], "default": "json"});
    let granularities = || list(json!({"enum": ["word", "segment"]}), 0, 2);
    let sound = object(
        &["data", "format"],
        json!({
            "data": {"type": "string", "minLength": 1, "contentEncoding": "base64"},
            "format": text(1, 32),
        }),
    );
    json!({
        "SpeechRequest": object(&["model", "input"], json!({
            "model": text(1, 256),
            "input": {"type": "string", "minLength": 1},
            "voice": text(1, 256),
            "response_format": {"enum": ["mp3", "opus", "aac", "flac", "wav", "pcm"], "default": "pcm"},
            "speed": {"type": "number"},
            "instructions": {"type": "string"},
            "provider": {"type": "object"},
        })),
        "TranscriptionRequest": object(&["model", "input_audio"], json!({
            "model": text(1, 256),
            "input_audio": sound,
            "language": {"type": "string"},
            "response_format": form(),
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "timestamp_granularities": granularities(),
            "provider": {"type": "object"},
        })),
        "TranscriptionForm": object(&["model", "file"], json!({
            "model": text(1, 256),
            "file": {"type": "string", "format": "binary"},
            "language": {"type": "string"},
            "response_format": form(),
            "temperature": {"type": "number"},
            "timestamp_granularities[]": granularities(),
        })),
        "Transcript": object(&["text", "usage"], json!({
            "text": {"type": "string"},
            "task": {"type": ["string", "null"]},
            "language": {"type": ["string", "null"]},
            "duration": {"type": ["number", "string", "null"]},
            "segments": {"type": ["array", "null"], "items": {"type": "object"}},
            "words": {"type": ["array", "null"], "items": {"type": "object"}},
            "usage": object(&["type", "cost", "is_byok"], json!({
                "type": {"enum": ["tokens", "duration"]},
                "seconds": seconds(),
                "input_tokens": count(),
                "output_tokens": count(),
                "total_tokens": count(),
                "cost": {"type": ["number", "null"], "minimum": 0, "description": "In dollars."},
                "cost_details": {"type": ["object", "null"]},
                "is_byok": flag(),
            })),
        })),
    })
}
