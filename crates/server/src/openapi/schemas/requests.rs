//! What is sent to account operations. Members that are not named are ignored.

use serde_json::{Map, Value, json};

use crate::api::feedback::CATEGORIES;

use super::{
    callback_url, code_challenge, date_time, flag, key_hash, list, money, object, or_null, text, to, uuid, word,
};

const RESETS: [&str; 3] = ["daily", "weekly", "monthly"];

pub fn schemas() -> Value {
    let mut all = Map::new();
    for group in [codes(), explained(), keys(), credits(), credentials(), workspaces(), feedback(), forms()] {
        let Value::Object(group) = group else { continue };
        all.extend(group);
    }
    Value::Object(all)
}

pub(super) fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = json!(description);
    schema
}

fn codes() -> Value {
    json!({
        "CreateCode": object(&["callback_url"], json!({
            "callback_url": callback_url(),
            "code_challenge": described(
                code_challenge(),
                "With S256, 32 bytes in base64url; with plain, at most 128 characters.",
            ),
            "code_challenge_method": described(word(&["S256", "plain"]), "Only with a challenge; by default plain."),
            "expires_at": described(or_null(date_time()), "When the key ends, in the future. Null: never."),
            "key_label": described(text(0, 100), "The key's name; by default the application's title."),
            "limit": described(money(), "What the key may spend, in dollars."),
            "usage_limit_type": described(word(&RESETS), "When the limit starts again."),
            "workspace_id": described(uuid(), "By default the default workspace."),
            "spawn_agent": {"type": "string", "description": "Stored with the key, cut at 256 characters."},
            "spawn_cloud": {"type": "string", "description": "Stored with the key, cut at 256 characters."},
        })),
        "ExchangeCode": object(&["code"], json!({
            "code": text(1, 256),
            "code_verifier": described(text(1, 512), "Required when the code has a challenge, else refused."),
            "code_challenge_method": described(
                or_null(word(&["S256", "plain"])),
                "If given, that of the code.",
            ),
        })),
    })
}

fn feedback() -> Value {
    json!({
        "SubmitFeedback": object(&["generation_id", "category"], json!({
            "generation_id": described(text(1, 256), "The id of the generation, or of the message that answered."),
            "category": word(&CATEGORIES),
            "comment": text(0, 1000),
        })),
    })
}

fn explained() -> Value {
    json!({
        "ExplainRequest": object(&[], json!({
            "model": described(text(1, 512), "In place of the request's own; needed where there is no request."),
            "request": {"type": "object", "description": "The body of a message. By default a short one."},
            "key": described(
                text(1, 64),
                "The hash of the key that would call, or its beginning: its credentials and conversations count then.",
            ),
        })),
    })
}

fn keys() -> Value {
    let external = object(&["user"], json!({"user": text(1, 256)}));
    json!({
        "CreateKey": object(&["name"], json!({
            "name": text(1, 255),
            "limit": or_null(money()),
            "limit_reset": or_null(word(&RESETS)),
            "include_byok_in_limit": flag(),
            "expires_at": described(or_null(date_time()), "In the future, written in UTC."),
            "creator_user_id": described(or_null(text(1, 256)), "A member of the workspace."),
            "external_user": described(or_null(text(1, 256)), "Whom the key is for, in the caller's own terms."),
            "external": described(external, "The same as `external_user`, as newer clients send it."),
            "workspace_id": uuid(),
        })),
        "UpdateKey": object(&[], json!({
            "name": text(1, 255),
            "disabled": flag(),
            "limit": or_null(money()),
            "limit_reset": or_null(word(&RESETS)),
            "include_byok_in_limit": flag(),
        })),
    })
}

/// What can be said of a credential when it is made and later.
fn credential_settings() -> Map<String, Value> {
    let settings = json!({
        "name": or_null(text(0, 255)),
        "disabled": flag(),
        "is_fallback": described(flag(), "Tried after the shared endpoints instead of before them."),
        "is_required": described(flag(), "The models it is for are served with the account's own keys or not at all."),
        "is_byok_only": described(flag(), "The same for every model of the provider; not with `is_fallback`."),
        "declared_region": or_null(word(&["global", "europe", "us"])),
        "declared_zdr": or_null(flag()),
        "allowed_models": described(or_null(list(text(1, 255), 0, 100)), "An empty list: never used."),
        "allowed_user_ids": described(or_null(list(text(1, 255), 0, 100)), "An empty list: never used."),
        "allowed_api_key_hashes": or_null(list(key_hash(), 1, 100)),
    });
    match settings {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

fn credentials() -> Value {
    let secret = json!({"type": "string", "minLength": 1, "maxLength": 65536, "writeOnly": true});
    let mut create = credential_settings();
    create.insert("provider".to_owned(), to("Provider"));
    create.insert("key".to_owned(), described(secret.clone(), "At most 65536 bytes; never shown again."));
    create.insert("workspace_id".to_owned(), uuid());
    let mut update = credential_settings();
    update.insert("key".to_owned(), described(secret, "Takes the place of the stored one."));
    update.insert(
        "sort_order".to_owned(),
        json!({"type": "integer", "minimum": 0, "maximum": i32::MAX, "description": "The others make room."}),
    );
    json!({
        "CreateCredential": object(&["provider", "key"], Value::Object(create)),
        "UpdateCredential": object(&[], Value::Object(update)),
    })
}

fn workspaces() -> Value {
    let properties = json!({
        "name": text(1, 100),
        "slug": {"type": "string", "minLength": 1, "maxLength": 50, "pattern": "^[a-z0-9]+(?:-[a-z0-9]+)*$"},
        "description": or_null(text(0, 500)),
        "default_text_model": or_null(text(1, 256)),
        "default_image_model": or_null(text(1, 256)),
        "default_provider_sort": or_null(word(&["price", "throughput", "latency", "exacto"])),
        "is_observability_broadcast_enabled": flag(),
        "is_observability_io_logging_enabled": flag(),
        "is_data_discount_logging_enabled": flag(),
        "io_logging_sampling_rate": {"type": "number", "minimum": 0.0001, "maximum": 1},
        "io_logging_api_key_ids": or_null(list(json!({"type": "integer", "minimum": 0}), 0, 10_000)),
    });
    json!({
        "CreateWorkspace": object(&["name", "slug"], properties.clone()),
        "UpdateWorkspace": object(&[], properties),
        "MemberIds": object(&["user_ids"], json!({"user_ids": list(text(1, 256), 1, 100)})),
        "PutBudget": object(&["limit_usd"], json!({
            "limit_usd": {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9},
            "include_byok_in_budgets": described(flag(), "For all budgets of the workspace."),
        })),
        "PutPlugin": object(&[], json!({
            "enabled": described(or_null(flag()), "Nothing leaves it to the requests."),
            "config": described(json!({"type": "object"}), "The other members of an entry of `plugins`."),
            "prevent_overrides": described(flag(), "Whether requests and presets are not heard."),
        })),
    })
}

fn credits() -> Value {
    json!({
        "GrantCredits": object(&["amount"], json!({
            "amount": {
                "description": "Dollars, more than none; as a number or as the text of one.",
                "oneOf": [
                    {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9},
                    {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"},
                ],
            },
            "note": or_null(text(1, 500)),
        })),
    })
}

/// What pages of ours send; their fields are text.
fn forms() -> Value {
    let any = || json!({"type": "string"});
    json!({
        "SignInForm": object(&["key"], json!({
            "key": described(any(), "A management key."),
            "query": described(any(), "The query of the page to come back to."),
        })),
        "DashboardSignInForm": object(&["key"], json!({"key": any(), "to": any()})),
        // What else a form of the dashboard says depends on its page.
        "DashboardForm": object(&["csrf"], json!({"csrf": any(), "action": any()})),
        "SignOutForm": object(&["csrf"], json!({"csrf": any(), "query": any()})),
        "AuthorizeForm": object(&["csrf", "decision"], json!({
            "csrf": any(),
            "decision": word(&["authorize", "cancel"]),
            "callback_url": any(),
            "code_challenge": any(),
            "code_challenge_method": any(),
            "state": any(),
            "spawn_agent": any(),
            "spawn_cloud": any(),
            "key_label": any(),
            "workspace_id": any(),
            "limit": any(),
            "usage_limit_type": any(),
            "expires_at": any(),
        })),
    })
}
