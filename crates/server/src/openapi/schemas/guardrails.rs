//! Guardrails: what is asked and what is answered.

use serde_json::{Map, Value, json};

use super::answers::{data, page};
use super::requests::described;
use super::{flag, full, instant, key_hash, list, object, or_null, text, to, uuid, word};

/// What can be said of a guardrail when it is made and later.
fn settings() -> Map<String, Value> {
    let names = || or_null(list(text(1, 256), 1, 1_000));
    let settings = json!({
        "name": text(1, 200),
        "description": or_null(text(0, 1_000)),
        "limit_usd": or_null(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1e9})),
        "reset_interval": or_null(word(&["daily", "weekly", "monthly"])),
        "include_byok_in_budgets": flag(),
        "allowed_models": names(),
        "ignored_models": names(),
        "allowed_providers": names(),
        "ignored_providers": names(),
        "enforce_zdr": described(or_null(flag()), "The old name for the five that follow."),
        "enforce_zdr_anthropic": or_null(flag()),
        "enforce_zdr_google": or_null(flag()),
        "enforce_zdr_openai": or_null(flag()),
        "enforce_zdr_xai": or_null(flag()),
        "enforce_zdr_other": or_null(flag()),
        "enable_free_model_publication": or_null(flag()),
        "enable_free_model_training": or_null(flag()),
        "enable_paid_model_training": or_null(flag()),
        "content_filters": or_null(list(to("ContentFilter"), 0, 100)),
        "content_filter_builtins": or_null(list(to("ContentFilterBuiltin"), 0, 100)),
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

pub fn schemas() -> Value {
    let action = || word(&["redact", "block", "flag"]);
    let slugs = ["email", "phone", "ssn", "credit-card", "ip-address", "secret", "regex-prompt-injection"];
    let builtin = json!({"slug": word(&slugs), "action": action(), "label": text(1, 100), "scan_scope": word(&["user_only", "all_messages"])});
    let mut create = settings();
    create.insert("workspace_id".to_owned(), uuid());
    let mut shown = settings();
    shown.extend([
        ("id".to_owned(), uuid()),
        ("workspace_id".to_owned(), uuid()),
        ("created_at".to_owned(), instant()),
        ("updated_at".to_owned(), or_null(instant())),
    ]);
    let assignment = |more: Value| {
        let mut members = json!({
            "id": uuid(),
            "guardrail_id": uuid(),
            "assigned_by": or_null(json!({"type": "string"})),
            "created_at": instant(),
        });
        if let (Some(members), Value::Object(more)) = (members.as_object_mut(), more) {
            members.extend(more);
        }
        full(members)
    };
    let any = || json!({"type": "string"});
    let count = || json!({"type": "integer", "minimum": 0});
    json!({
        "ContentFilter": object(&["pattern", "action"], json!({
            "pattern": described(text(1, 100_000), "A regular expression without look-around and back-references."),
            "action": action(),
            "label": or_null(text(1, 100)),
        })),
        "ContentFilterBuiltin": object(&["slug", "action"], builtin),
        "CreateGuardrail": object(&["name"], Value::Object(create)),
        "UpdateGuardrail": object(&[], Value::Object(settings())),
        "Guardrail": full(Value::Object(shown)),
        "GuardrailAnswer": data(to("Guardrail")),
        "GuardrailList": page("Guardrail"),
        "KeyHashes": object(&["key_hashes"], json!({"key_hashes": list(key_hash(), 1, 1_000)})),
        "MemberUserIds": object(&["member_user_ids"], json!({"member_user_ids": list(text(1, 256), 1, 1_000)})),
        "AssignedCount": full(json!({"assigned_count": count()})),
        "UnassignedCount": full(json!({"unassigned_count": count()})),
        "KeyAssignment": assignment(json!({"key_hash": key_hash(), "key_name": any(), "key_label": any()})),
        "KeyAssignmentList": page("KeyAssignment"),
        "MemberAssignment": assignment(json!({"organization_id": any(), "user_id": any()})),
        "MemberAssignmentList": page("MemberAssignment"),
    })
}
