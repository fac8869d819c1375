//! Parameters and headers, each described once and referred to by name.

use serde_json::{Map, Value, json};
use tidegate_wire::envelope::PLUGINS;

use super::schemas::{date_time, key_hash, money, uuid, word};
use crate::api::model_filter::{CATEGORIES, SORTS};

fn parameter(place: &str, name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": place, "required": place == "path", "description": description, "schema": schema})
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    parameter("query", name, description, schema)
}

fn required_query(name: &str, description: &str, schema: Value) -> Value {
    let mut parameter = query(name, description, schema);
    parameter["required"] = json!(true);
    parameter
}

pub fn parameters() -> Value {
    let parts = [common(), activity(), files(), models()].into_iter().filter_map(|part| part.as_object().cloned());
    parts.flatten().collect::<Map<_, _>>().into()
}

fn activity() -> Value {
    json!({
        "ActivityDate": query(
            "date",
            "One of the last 30 completed days, in UTC; without it all of them.",
            json!({"type": "string", "format": "date"}),
        ),
        "ActivityKey": query("api_key_hash", "Only what was done with this key.", key_hash()),
        "ActivityUser": query(
            "user_id",
            "Only what was done with keys that this member made.",
            json!({"type": "string", "minLength": 1}),
        ),
        "ActivityWorkspace": query("workspace_id", "Only that of this workspace.", uuid()),
        "ActivityGroup": query("group_by", "Tells workspaces apart.", word(&["workspace"])),
    })
}

fn models() -> Value {
    let text = || json!({"type": "string"});
    let amount = || json!({"type": "number", "minimum": 0});
    let days = || json!({"type": "integer", "minimum": 0});
    json!({
        "ModelsLimit": query(
            "limit",
            "How many at most.",
            json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 500}),
        ),
        "ModelsSort": query(
            "sort",
            "In which order; where nothing is known to sort by, by id.",
            word(&SORTS.map(|(name, _)| name)),
        ),
        "Words": query("q", "Only models whose id or name has this in it.", text()),
        "ModelsCategory": query("category", "Nobody knows what models are used for: fits none.", word(&CATEGORIES)),
        "ModelsParameters": query("supported_parameters", "Parameters that it takes, with commas between them.", text()),
        "ModelsInput": query("input_modalities", "What can be shown to it, with commas between them.", text()),
        "ModelsOutput": query("output_modalities", "What it gives, with commas between them; `all` fits all.", text()),
        "ModelsContext": query(
            "context",
            "So many tokens or more in its window.",
            json!({"type": "integer", "minimum": 1}),
        ),
        "ModelsArch": query("arch", "The tokenizer that it is shown with.", text()),
        "ModelsAuthors": query("model_authors", "By one of these, with commas between them.", text()),
        "ModelsProviders": query("providers", "Offered by one of these, with commas between them.", text()),
        "ModelsDistillable": query("distillable", "Whether others may learn from its answers.", word(&["true", "false"])),
        "ModelsZdr": query("zdr", "Offered by somebody who keeps nothing.", word(&["true"])),
        "ModelsRegion": query("region", "Offered by somebody in this part of the world.", word(&["eu", "us"])),
        "ModelsMinPrice": query("min_price", "Dollars per million tokens of input, at least.", amount()),
        "ModelsMaxPrice": query("max_price", "Dollars per million tokens of input, at most.", amount()),
        "ModelsMinOutputPrice": query("min_output_price", "Dollars per million tokens of output, at least.", amount()),
        "ModelsMaxOutputPrice": query("max_output_price", "Dollars per million tokens of output, at most.", amount()),
        "ModelsMinAge": query("min_age_days", "So many days since its release, or more.", days()),
        "ModelsMaxAge": query("max_age_days", "So many days since its release, or less.", days()),
    })
}

fn files() -> Value {
    let id = || json!({"type": "string", "minLength": 1});
    json!({
        "FileId": parameter("path", "file_id", "The id of the file.", json!({"type": "string"})),
        "SignedExpires": query("expires", "Until when the address holds, in seconds.", json!({"type": "string"})),
        "SignedSignature": query("signature", "What proves that the address is ours.", json!({"type": "string"})),
        "FileWorkspace": query("workspace_id", "The workspace of the calling key, and no other.", uuid()),
        "FileShape": query(
            "provider",
            "Whose clients the answer is made for; without it, ours.",
            word(&["openai", "anthropic"]),
        ),
        "FilesLimit": query(
            "limit",
            "How many at most.",
            json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}),
        ),
        "FilesCursor": query("cursor", "The `cursor` of the page before. Only one of these five.", id()),
        "FilesAfter": query("after", "The last file of the page before.", id()),
        "FilesAfterId": query("after_id", "The last file of the page before.", id()),
        "FilesPage": query("page", "The `next_page` of the page before.", id()),
        "FilesBeforeId": query("before_id", "The first file of the page behind.", id()),
        "FilesOrder": query(
            "order",
            "By the time they came; without it oldest first, and newest first where `provider` is given.",
            word(&["asc", "desc"]),
        ),
    })
}

fn common() -> Value {
    json!({
        "KeyHash": parameter("path", "hash", "SHA-256 of the key, in lower-case hexadecimal.", key_hash()),
        "GenerationId": parameter("path", "id", "The id of the generation.", json!({"type": "string", "minLength": 1})),
        "GenerationRef": required_query(
            "id",
            "The id of the generation, or of the message that answered.",
            json!({"type": "string", "minLength": 1}),
        ),
        "PluginId": parameter("path", "plugin_id", "The id of the plugin.", word(&PLUGINS)),
        "DestinationId": parameter("path", "id", "The id of the destination.", uuid()),
        "SkipTest": query(
            "skip_test",
            "Whether the destination is not asked if it is there.",
            json!({"type": "string", "enum": ["true", "false", "1", "0"], "default": "false"}),
        ),
        "GuardrailId": parameter("path", "id", "The id of the guardrail, or that of a workspace's own.", uuid()),
        "CredentialId": parameter("path", "id", "The id of the credential.", uuid()),
        "WorkspaceRef": parameter(
            "path",
            "id",
            "The id of the workspace, or its slug.",
            json!({"type": "string", "minLength": 1}),
        ),
        "PresetSlug": parameter("path", "slug", "The preset's slug.", preset_slug()),
        "PresetVersion": parameter(
            "path",
            "version",
            "The version's number.",
            json!({"type": "string", "pattern": "^[0-9]+$"}),
        ),
        "Interval": parameter(
            "path",
            "interval",
            "The window of the budget.",
            word(&["daily", "weekly", "monthly", "lifetime"]),
        ),
        "Author": parameter("path", "author", "The model's author.", json!({"type": "string", "minLength": 1})),
        "ModelSlug": parameter("path", "slug", "The model's name.", json!({"type": "string", "minLength": 1})),
        "AuditSince": query("since", "Only changes from this time on.", date_time()),
        "Offset": query("offset", "How many to pass over.", json!({"type": "integer", "minimum": 0, "default": 0})),
        "Limit": query(
            "limit",
            "How many at most.",
            json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 50}),
        ),
        "IncludeDisabled": query(
            "include_disabled",
            "Whether disabled keys are listed too.",
            json!({"type": "string", "enum": ["true", "false", "1", "0"], "default": "false"}),
        ),
        "WorkspaceOfKeys": query("workspace_id", "Whose keys; by default those of the default workspace.", uuid()),
        "WorkspaceOfGuardrails": query("workspace_id", "Only those of this workspace.", uuid()),
        "WorkspaceOfCredentials": query("workspace_id", "Only those of this workspace.", uuid()),
        "Provider": query("provider", "Only those for this provider.", provider()),
        "IdempotencyKey": parameter(
            "header",
            "Idempotency-Key",
            "The same key with the same body within 24 hours gets the first answer again, without a secret that was in it; \
             with another body it is refused.",
            json!({"type": "string", "minLength": 1, "maxLength": 255}),
        ),
        "ApplicationTitle": parameter(
            "header",
            "X-Title",
            "What the application calls itself, unless it runs on the caller's own machine. `X-Tidegate-Title` means the \
             same.",
            json!({"type": "string"}),
        ),
        "CallbackUrl": query(
            "callback_url",
            "Where the person is sent with the code. Without it the page shows the code, and `code_challenge` is \
             required.",
            callback_url(),
        ),
        "CodeChallenge": query("code_challenge", "What the verifier must match (RFC 7636).", code_challenge()),
        "CodeChallengeMethod": query("code_challenge_method", "How it is compared.", word(&["S256", "plain"])),
        "KeyLabel": query("key_label", "A proposed name of the key.", json!({"type": "string", "maxLength": 100})),
        "SpendLimit": query("limit", "A proposed limit in dollars.", money()),
        "UsageLimitType": query(
            "usage_limit_type",
            "When the limit starts again.",
            word(&["daily", "weekly", "monthly"]),
        ),
        "ExpiresAt": query("expires_at", "When the key ends, with any offset from UTC.", date_time()),
        "TargetWorkspace": query("workspace_id", "The workspace of the key.", uuid()),
        "State": query("state", "Given back with the code.", json!({"type": "string", "maxLength": 512})),
        "SpawnAgent": query("spawn_agent", "Stored with the key.", json!({"type": "string"})),
        "SpawnCloud": query("spawn_cloud", "Stored with the key.", json!({"type": "string"})),
    })
}

pub fn callback_url() -> Value {
    json!({
        "type": "string",
        "format": "uri",
        "maxLength": 2048,
        "pattern": r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])([:/?]|$))",
        "description": "https, or http to the caller's own machine; without user, fragment and `code` parameter.",
    })
}

pub fn code_challenge() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 512})
}

pub fn preset_slug() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[a-z0-9]+(?:-[a-z0-9]+)*$"})
}

pub fn provider() -> Value {
    json!({"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$", "maxLength": 255})
}

pub fn headers() -> Value {
    let header = |description: &str, schema: Value| json!({"description": description, "schema": schema});
    json!({
        "RequestId": header("Names this request in our logs.", json!({"type": "string", "minLength": 1})),
        "GenerationId": header("Names the record of the generation.", json!({"type": "string"})),
        "RetryAfter": header("Seconds after which it is worth trying again.", json!({"type": "integer", "minimum": 1})),
        "RateLimitLimit": header("How many a minute.", json!({"type": "integer"})),
        "RateLimitRemaining": header("How many are left: none.", json!({"type": "integer"})),
        "RateLimitReset": header("When there is one again, in Unix milliseconds.", json!({"type": "integer"})),
        "IdempotentReplayed": header("The answer is that of an earlier request.", json!({"const": "true"})),
        "Location": header("Where to go on.", json!({"type": "string"})),
        "Set-Cookie": header("The session, or its end.", json!({"type": "string"})),
        "Warnings": header(
            "`unroutable:provider`: the credential is stored, but this build cannot call its provider. \
             `unroutable:address`: its provider is reached at another address than it is stored for, so it is not used \
             until it is rotated. The middle of the header's name is the name of the service.",
            json!({"type": "string"}),
        ),
    })
}

/// The name of a header as it is sent.
pub fn header_name(component: &str) -> &str {
    match component {
        "RequestId" => "X-Request-Id",
        "GenerationId" => "X-Generation-Id",
        "RetryAfter" => "Retry-After",
        "RateLimitLimit" => "X-RateLimit-Limit",
        "RateLimitRemaining" => "X-RateLimit-Remaining",
        "RateLimitReset" => "X-RateLimit-Reset",
        "IdempotentReplayed" => "Idempotent-Replayed",
        "Warnings" => "X-Tidegate-Warnings",
        same => same,
    }
}
