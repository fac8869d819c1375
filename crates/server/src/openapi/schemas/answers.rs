//! What account operations answer.

use serde_json::{Map, Value, json};
use tidegate_wire::envelope::PLUGINS;

use super::requests::described;
use super::{flag, full, instant, key_hash, list, object, or_null, preset_slug, text, to, uuid, word};

const RESETS: [&str; 3] = ["daily", "weekly", "monthly"];
const TEXTS_OF_GENERATION: [&str; 15] = [
    "request_id",
    "session_id",
    "upstream_id",
    "provider_name",
    "router",
    "finish_reason",
    "native_finish_reason",
    "response_cache_source_id",
    "web_search_engine",
    "service_tier",
    "external_user",
    "http_referer",
    "user_agent",
    "preset_id",
    "workspace_id",
];
const COUNTS_OF_GENERATION: [&str; 12] = [
    "tokens_prompt",
    "tokens_completion",
    "native_tokens_prompt",
    "native_tokens_completion",
    "native_tokens_cached",
    "native_tokens_reasoning",
    "native_tokens_completion_images",
    "num_media_prompt",
    "num_media_completion",
    "num_input_audio_prompt",
    "num_search_results",
    "num_fetches",
];

pub fn schemas() -> Value {
    let mut all = Map::new();
    let groups = [
        models(),
        codes(),
        generation(),
        content(),
        keys(),
        current_key(),
        credits(),
        activity(),
        credentials(),
        presets(),
        workspaces(),
        members(),
        operation(),
    ];
    for group in groups {
        let Value::Object(group) = group else { continue };
        all.extend(group);
    }
    Value::Object(all)
}

pub(super) fn data(of: Value) -> Value {
    full(json!({"data": of}))
}

/// One page of many.
pub(super) fn page(of: &str) -> Value {
    full(json!({"data": list(to(of), 0, 100), "total_count": {"type": "integer", "minimum": 0}}))
}

fn some_text() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn explanation() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let candidate = full(json!({
        "place": or_null(json!({"type": "integer", "minimum": 1, "description": "Among the attempts."})),
        "endpoint": some_text(),
        "model": some_text(),
        "credential": or_null(some_text()),
        "price": or_null(json!({
            "type": "number",
            "minimum": 0,
            "description": "By which endpoints are compared, in dollars per million tokens.",
        })),
        "group": word(&["stable", "degraded", "down", "outage"]),
        "cools_down": flag(),
        "passed_over": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "The share of calls that go past it now because its provider refuses most.",
        },
        "probability": {
            "type": "number",
            "minimum": 0,
            "maximum": 1,
            "description": "Of coming first among those that are ordered together.",
        },
        "removed_by": or_null(some_text()),
        "reason": or_null(some_text()),
    }));
    let refusal = full(json!({
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": or_null(some_text()),
        "message": some_text(),
    }));
    full(json!({
        "requested": list(some_text(), 1, 100),
        "strategy": some_text(),
        "health": word(&["live", "unknown"]),
        "order": word(&["likeliest", "conversation"]),
        "input_tokens": count(),
        "endpoints": count(),
        "attempts_per_model": count(),
        "attempts_per_request": count(),
        "candidates": list(candidate, 0, 10_000),
        "refusal": or_null(refusal),
    }))
}

fn models() -> Value {
    let count = || json!({"type": "integer", "minimum": 0});
    let price =
        json!({"type": "string", "pattern": r"^(-1|[0-9]+(\.[0-9]+)?)$", "description": "Dollars each; -1: unknown."});
    let modality = word(&["text", "image", "file", "audio", "video"]);
    let prices = json!({
        "type": "object",
        "required": ["prompt", "completion"],
        "properties": {
            "prompt": price,
            "completion": price,
            "input_cache_read": price,
            "input_cache_write": price,
            "input_cache_write_1h": price,
            "internal_reasoning": price,
            "image_token": price,
            "image_output": price,
            "audio": price,
            "audio_output": price,
            "image": price,
            "image_out": price,
            "request": price,
            "web_search": price,
            "code_exec_hour": price,
            "container": price,
            "character": price,
            "audio_hour": price,
            "discount": {"type": "number", "minimum": 0, "maximum": 1},
            "overrides": {"type": "array", "items": {"type": "object"}},
        },
    });
    let nothing = || json!({"type": "null"});
    let architecture = full(json!({
        "modality": some_text(),
        "input_modalities": list(modality, 1, 5),
        "output_modalities": list(json!({"enum": ["text", "image", "audio", "embeddings", "rerank", "speech", "transcription"]}), 1, 7),
        "tokenizer": some_text(),
        "instruct_type": nothing(),
    }));
    let share = || {
        let text = "Of 100 calls so many were answered. Null: there were none.";
        or_null(json!({"type": "number", "minimum": 0, "maximum": 100, "description": text}))
    };
    let spread = |description: &str| {
        let figure = || json!({"type": "number", "minimum": 0});
        let mut spread = full(json!({"p50": figure(), "p75": figure(), "p90": figure(), "p99": figure()}));
        spread["description"] = json!(description);
        or_null(spread)
    };
    let endpoint = full(json!({
        "name": some_text(),
        "model_id": some_text(),
        "model_name": some_text(),
        "provider_name": some_text(),
        "tag": some_text(),
        "context_length": count(),
        "max_completion_tokens": count(),
        "max_prompt_tokens": or_null(count()),
        "pricing": prices,
        "quantization": or_null(some_text()),
        "native_tools": {
            "type": "object",
            "description": "Tools of the gateway that the vendor can run in its place, and what they are called there.",
            "additionalProperties": full(json!({"type": some_text()})),
        },
        "service_tier": or_null(json!({"enum": ["priority", "flex"]})),
        "supported_parameters": list(some_text(), 1, 50),
        "supports_diarization": flag(),
        "supports_implicit_caching": flag(),
        "supports_tool_choice": full(json!({
            "auto": flag(),
            "function": flag(),
            "none": flag(),
            "required": flag(),
        })),
        "uptime_last_5m": share(),
        "uptime_last_30m": share(),
        "uptime_last_1d": share(),
        "latency_last_30m": spread("Milliseconds to the first content of a stream, over the last five minutes."),
        "throughput_last_30m": spread("Tokens per second that so many of 100 answers reach, over the last five minutes."),
        "status": {
            "type": "integer",
            "enum": [0, -1, -2, -3],
            "description": "0: stable, -1: degraded, -2: down, -3: out of order.",
        },
    }));
    let endpoints = full(json!({
        "id": some_text(),
        "name": some_text(),
        "created": count(),
        "description": json!({"type": "string"}),
        "architecture": architecture,
        "endpoints": list(to("Endpoint"), 0, 100),
    }));
    let mut model = full(json!({
        "id": some_text(),
        "canonical_slug": some_text(),
        "name": some_text(),
        "created": count(),
        "context_length": count(),
        "architecture": architecture,
        "pricing": prices,
        "top_provider": full(json!({
            "context_length": count(),
            "max_completion_tokens": count(),
            "is_moderated": flag(),
        })),
        "per_request_limits": nothing(),
        "supported_parameters": list(some_text(), 1, 50),
        "supported_voices": nothing(),
        "default_parameters": nothing(),
        "links": full(json!({"details": some_text()})),
    }));
    model["properties"]["description"] = json!({"type": "string"});
    let more = full(json!({
        "object": {"const": "model"},
        "owned_by": some_text(),
        "type": {"const": "model"},
        "display_name": some_text(),
        "created_at": {"type": "string", "format": "date-time"},
    }));
    json!({
        "Model": model,
        "RetrievedModel": {"allOf": [to("Model"), more]},
        "ModelAnswer": data(to("Model")),
        "Endpoint": endpoint,
        "EndpointsAnswer": data(endpoints),
        "ForgetfulEndpoints": data(json!({"type": "array", "items": to("Endpoint")})),
        "ExplainAnswer": data(explanation()),
        "ModelsPage": full(json!({
            "data": list(to("Model"), 0, 1000),
            "total_count": count(),
            "links": full(json!({"next": or_null(json!({"type": "string"}))})),
        })),
        "ModelsCount": data(full(json!({"count": count()}))),
        "ProvidersAnswer": data(list(full(json!({
            "name": some_text(),
            "slug": some_text(),
            "privacy_policy_url": nothing(),
            "terms_of_service_url": nothing(),
            "status_page_url": nothing(),
        })), 0, 1000)),
    })
}

fn codes() -> Value {
    let key = json!({"type": "string", "minLength": 8, "description": "The raw key. It is not shown again."});
    json!({
        "AuthorizationCodeAnswer": data(full(json!({
            "id": {
                "type": ["string", "null"],
                "pattern": "^auth_code_[0-9A-Za-z]{43}$",
                "description": "The code; null when an earlier answer is repeated.",
            },
            "app_id": {"type": "integer", "minimum": 1, "description": "The application, one per origin."},
            "created_at": instant(),
        }))),
        "ExchangedKey": full(json!({
            "key": key,
            "user_id": or_null(json!({"type": "string", "pattern": "^user_"})),
        })),
    })
}

/// Limits and what was spent, as both kinds of answers about keys have it.
fn spending() -> Map<String, Value> {
    let spent = |description: &str| json!({"type": "number", "minimum": 0, "description": description});
    let mut members = Map::new();
    for (prefix, what) in [("usage", "Spent"), ("byok_usage", "Spent through the account's own credentials")] {
        let windows = [("", "ever"), ("_daily", "today"), ("_weekly", "this week"), ("_monthly", "this month")];
        for (suffix, when) in windows {
            members.insert(format!("{prefix}{suffix}"), spent(&format!("{what} {when}, in dollars.")));
        }
    }
    members.insert("label".to_owned(), json!({"type": "string", "description": "The key, masked."}));
    members.insert("limit".to_owned(), or_null(spent("Null: none.")));
    members.insert("limit_remaining".to_owned(), or_null(spent("Null when there is no limit.")));
    members.insert("limit_reset".to_owned(), or_null(word(&RESETS)));
    members.insert("include_byok_in_limit".to_owned(), flag());
    members.insert("creator_user_id".to_owned(), or_null(some_text()));
    members.insert("expires_at".to_owned(), or_null(instant()));
    members
}

fn joined(mut members: Map<String, Value>, more: Value) -> Value {
    if let Value::Object(more) = more {
        members.extend(more);
    }
    full(Value::Object(members))
}

fn keys() -> Value {
    let key = joined(
        spending(),
        json!({
            "hash": key_hash(),
            "name": text(1, 255),
            "disabled": flag(),
            "created_at": instant(),
            "updated_at": or_null(instant()),
            "last_used_at": or_null(instant()),
            "external_user": or_null(text(1, 256)),
            "workspace_id": uuid(),
        }),
    );
    json!({
        "Key": key,
        "KeyAnswer": data(to("Key")),
        "KeyList": data(list(to("Key"), 0, 100)),
        "CreatedKey": full(json!({
            "data": to("Key"),
            "key": {"type": "string", "minLength": 8, "description": "The raw key. It is not shown again."},
        })),
    })
}

fn activity() -> Value {
    let (dollars, count) = (|| json!({"type": "number", "minimum": 0}), || json!({"type": "integer", "minimum": 0}));
    let text = || json!({"type": "string"});
    let mut day = full(json!({
        "date": {"type": "string", "format": "date"},
        "model": text(),
        "model_permaslug": text(),
        "endpoint_id": text(),
        "provider_name": text(),
        "usage": dollars(),
        "byok_usage_inference": dollars(),
        "requests": count(),
        "prompt_tokens": count(),
        "completion_tokens": count(),
        "reasoning_tokens": count(),
        "cached_tokens": count(),
    }));
    // Only where it is asked for.
    day["properties"]["workspace_id"] = uuid();
    json!({"Activity": day, "ActivityAnswer": data(json!({"type": "array", "items": to("Activity")}))})
}

fn operation() -> Value {
    let settings = json!({
        "type": "array",
        "items": {"type": "string"},
        "description": "Settings that changed and stay as they were until a restart.",
    });
    let values = |text: &str| or_null(json!({"type": "object", "description": text}));
    json!({
        "Reloaded": data(full(json!({"needs_restart": settings}))),
        "AuditEntry": full(json!({
            "id": uuid(),
            "at": instant(),
            "actor": full(json!({
                "kind": word(&["key", "member", "anyone", "shell", "server"]),
                "key_hash": or_null(key_hash()),
                "user_id": or_null(json!({"type": "string"})),
            })),
            "action": text(1, 100),
            "target": {"type": "string"},
            "request_id": or_null(json!({"type": "string"})),
            "address": or_null(json!({"type": "string"})),
            "before": values("The members that changed; of a secret they say [changed]."),
            "after": values("The same as they are now."),
        })),
        "AuditList": page("AuditEntry"),
    })
}

fn credits() -> Value {
    json!({
        "CreditsAnswer": data(full(json!({
            "total_credits": {"type": "number", "minimum": 0},
            "total_usage": {"type": "number", "minimum": 0},
        }))),
        "Grant": full(json!({
            "id": uuid(),
            "amount": {"type": "number", "exclusiveMinimum": 0, "description": "In dollars."},
            "note": or_null(text(1, 500)),
            "created_by": or_null(key_hash()),
            "created_at": instant(),
        })),
        "GrantAnswer": data(to("Grant")),
        "GrantList": page("Grant"),
    })
}

fn generation() -> Value {
    let dollars = |description: &str| json!({"type": "number", "description": description});
    let response = object(
        &["status"],
        json!({
            "id": {"type": "string", "description": "The message; only of the one that answered."},
            "endpoint_id": {"type": "string"},
            "provider_name": {"type": "string"},
            "model_permaslug": {"type": "string"},
            "status": or_null(json!({"type": "integer", "minimum": 100, "maximum": 599})),
            "latency": {"type": "number", "minimum": 0},
            "is_byok": flag(),
        }),
    );
    let mut members = Map::new();
    // What may be unknown, by its kind.
    let kinds: [(Value, &[&str]); 4] = [
        (json!({"type": "string"}), &TEXTS_OF_GENERATION),
        (json!({"type": "integer", "minimum": 0}), &COUNTS_OF_GENERATION),
        (json!({"type": "number", "minimum": 0}), &["latency", "generation_time", "moderation_latency"]),
        (flag(), &["streamed", "cancelled"]),
    ];
    for (kind, names) in kinds {
        members.extend(names.iter().map(|name| ((*name).to_owned(), or_null(kind.clone()))));
    }
    let generation = joined(
        members,
        json!({
            "id": {"type": "string", "pattern": "^gen-[0-9A-HJKMNP-TV-Z]{26}$"},
            "model": {"type": "string"},
            "api_type": or_null(word(&["completions", "embeddings", "rerank", "tts", "stt", "video", "image"])),
            "created_at": instant(),
            "total_cost": dollars("What the account was charged."),
            "usage": dollars("The same."),
            "upstream_inference_cost": or_null(dollars("What the providers can be expected to charge.")),
            "cache_discount": or_null(dollars("What the cache saved; less than nothing when it cost more.")),
            "is_byok": flag(),
            "app_id": or_null(json!({"type": "integer"})),
            "origin": {"type": "string"},
            "data_region": word(&["global", "europe", "us"]),
            "provider_responses": or_null(json!({"type": "array", "items": response})),
        }),
    );
    json!({"Generation": generation, "GenerationAnswer": data(to("Generation"))})
}

fn content() -> Value {
    let text = || json!({"type": "string"});
    let status = || json!({"type": "integer", "minimum": 0, "maximum": 599});
    let earlier = full(json!({
        "code": described(status(), "The status of its answer; 0 when nothing answered."),
        "message": text(),
        "provider_name": or_null(text()),
        "raw": or_null(text()),
    }));
    let error = full(json!({
        "message": or_null(text()),
        "status": or_null(status()),
        "provider_name": or_null(text()),
        "raw": or_null(text()),
        "previous_errors": {"type": "array", "items": earlier},
    }));
    let mut input = full(json!({"messages": {"type": "array", "items": {}}}));
    for (name, told) in [
        ("system", "As it was sent."),
        ("tools", "As they were sent."),
        ("cut", "That earlier messages were left out."),
    ] {
        input["properties"][name] = json!({"description": told});
    }
    let mut output = full(json!({"completion": or_null(text()), "reasoning": or_null(text())}));
    output["properties"]["blocks"] =
        json!({"type": "array", "items": {}, "description": "What is neither of the two, such as calls of tools."});
    let content = full(json!({"input": input, "output": output, "error": or_null(error)}));
    let success = json!({"type": "boolean", "const": true});
    json!({
        "Content": content,
        "ContentAnswer": data(to("Content")),
        "FeedbackAnswer": data(full(json!({"success": success}))),
    })
}

fn current_key() -> Value {
    let dollars = || json!({"type": "number", "minimum": 0});
    let count = || json!({"type": "integer", "minimum": 0});
    let scopes = ["workspace_default_member", "workspace_default_key", "member", "api_key", "workspace", "key_limit"];
    let key = joined(
        spending(),
        json!({
            "is_free_tier": flag(),
            "is_management_key": flag(),
            "is_provisioning_key": {"type": "boolean", "deprecated": true},
            "rate_limit": {
                "type": "object",
                "deprecated": true,
                "required": ["requests", "interval", "note"],
                "properties": {
                    "requests": {"const": -1},
                    "interval": {"type": "string"},
                    "note": {"type": "string"},
                },
            },
            "organization_id": or_null(some_text()),
            "workspace_id": or_null(uuid()),
            "budgets": {"type": "array", "items": to("BindingLimit")},
            "effective_budget": or_null(to("BindingLimit")),
            "free_model_daily_requests": full(json!({"limit": count(), "used": count(), "remaining": count()})),
            "allowed_data_regions": list(word(&["global", "europe", "us"]), 1, 3),
        }),
    );
    json!({
        "BindingLimit": full(json!({
            "budget_id": or_null(some_text()),
            "guardrail_id": or_null(uuid()),
            "scope": word(&scopes),
            "limit_usd": dollars(),
            "spend_usd": dollars(),
            "remaining_usd": dollars(),
            "reset_interval": or_null(word(&RESETS)),
            "resets_at": or_null(instant()),
            "include_byok": flag(),
        })),
        "CurrentKey": key,
        "CurrentKeyAnswer": data(to("CurrentKey")),
    })
}

fn credentials() -> Value {
    json!({
        "Credential": full(json!({
            "id": uuid(),
            "provider": to("Provider"),
            "name": or_null(text(0, 255)),
            "label": {"type": "string", "minLength": 3, "description": "The key, masked."},
            "disabled": flag(),
            "is_fallback": flag(),
            "is_required": flag(),
            "is_byok_only": flag(),
            "declared_region": or_null(word(&["global", "europe", "us"])),
            "declared_zdr": or_null(flag()),
            "allowed_models": or_null(list(text(1, 255), 0, 100)),
            "allowed_user_ids": or_null(list(text(1, 255), 0, 100)),
            "allowed_api_key_hashes": or_null(list(key_hash(), 1, 100)),
            "sort_order": {"type": "integer", "minimum": 0, "description": "The lowest is tried first."},
            "workspace_id": uuid(),
            "created_at": instant(),
        })),
        "CredentialAnswer": data(to("Credential")),
        "CredentialList": page("Credential"),
    })
}

fn presets() -> Value {
    let preset = json!({
        "id": uuid(),
        "name": some_text(),
        "slug": preset_slug(),
        "description": or_null(text(0, 500)),
        "status": word(&["active", "disabled", "archived"]),
        "status_updated_at": or_null(instant()),
        "creator_user_id": or_null(some_text()),
        "designated_version_id": or_null(uuid()),
        "workspace_id": or_null(uuid()),
        "created_at": instant(),
        "updated_at": instant(),
    });
    let mut whole = preset.clone();
    if let Some(members) = whole.as_object_mut() {
        members.insert("designated_version".to_owned(), or_null(to("PresetVersion")));
    }
    json!({
        "Preset": full(preset),
        "PresetVersion": full(json!({
            "id": uuid(),
            "preset_id": uuid(),
            "version": {"type": "integer", "minimum": 1},
            "config": {"type": "object", "description": "What is merged into a request."},
            "system_prompt": or_null(json!({"type": "string"})),
            "creator_id": {"type": "string", "minLength": 1, "description": "A member, or the hash of a key."},
            "created_at": instant(),
            "updated_at": instant(),
        })),
        "PresetAnswer": data(full(whole)),
        "PresetList": page("Preset"),
        "PresetVersionAnswer": data(to("PresetVersion")),
        "PresetVersionList": page("PresetVersion"),
    })
}

fn workspaces() -> Value {
    let budget = full(json!({
        "id": uuid(),
        "workspace_id": uuid(),
        "limit_usd": {"type": "number", "exclusiveMinimum": 0},
        "reset_interval": or_null(word(&RESETS)),
        "created_at": instant(),
        "updated_at": instant(),
    }));
    json!({
        "Workspace": full(json!({
            "id": uuid(),
            "name": text(1, 100),
            "slug": {"type": "string", "minLength": 1, "maxLength": 50, "pattern": "^[a-z0-9]+(?:-[a-z0-9]+)*$"},
            "description": or_null(text(0, 500)),
            "default_text_model": or_null(text(1, 256)),
            "default_image_model": or_null(text(1, 256)),
            "default_provider_sort": or_null(word(&["price", "throughput", "latency", "exacto"])),
            "default_guardrail_id": uuid(),
            "include_byok_in_budgets": flag(),
            "is_observability_io_logging_enabled": flag(),
            "is_observability_broadcast_enabled": flag(),
            "is_data_discount_logging_enabled": flag(),
            "io_logging_sampling_rate": {"type": "number", "minimum": 0.0001, "maximum": 1},
            "io_logging_api_key_ids": or_null(list(json!({"type": "integer"}), 0, 10_000)),
            "created_at": instant(),
            "updated_at": or_null(instant()),
            "created_by": or_null(some_text()),
        })),
        "Plugin": full(json!({
            "plugin_id": word(&PLUGINS),
            "workspace_id": uuid(),
            "enabled": or_null(flag()),
            "config": {"type": "object"},
            "prevent_overrides": flag(),
            "created_at": instant(),
            "updated_at": instant(),
        })),
        "PluginAnswer": data(to("Plugin")),
        "PluginList": full(json!({"data": list(to("Plugin"), 0, 10)})),
        "WorkspaceAnswer": data(to("Workspace")),
        "WorkspaceList": page("Workspace"),
        "Budget": budget,
        "BudgetAnswer": data(to("Budget")),
        "PutBudgetAnswer": full(json!({"data": to("Budget"), "include_byok_in_budgets": flag()})),
        "BudgetList": full(json!({"data": list(to("Budget"), 0, 4), "include_byok_in_budgets": flag()})),
    })
}

fn members() -> Value {
    let count = || json!({"type": "integer", "minimum": 0, "maximum": 100});
    let user = || json!({"type": "string", "pattern": "^user_[0-9A-HJKMNP-TV-Z]{26}$"});
    json!({
        "WorkspaceMember": full(json!({
            "id": uuid(),
            "workspace_id": uuid(),
            "user_id": user(),
            "role": word(&["admin", "member"]),
            "created_at": instant(),
        })),
        "WorkspaceMemberList": page("WorkspaceMember"),
        "AddedMembers": full(json!({"added_count": count(), "data": list(to("WorkspaceMember"), 0, 100)})),
        "RemovedMembers": full(json!({"removed_count": count()})),
        "Member": full(json!({
            "id": user(),
            "email": {"type": "string", "minLength": 3, "maxLength": 254},
            "first_name": or_null(text(1, 100)),
            "last_name": or_null(text(1, 100)),
            "role": word(&["org:admin", "org:member"]),
        })),
        "MemberList": page("Member"),
    })
}
