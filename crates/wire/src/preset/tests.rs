use serde_json::{Value, json};

use super::*;
use crate::envelope::{self, Purpose};

fn brand_aliases() -> Vec<String> {
    vec!["openrouter".to_owned()]
}

/// What a preset made of `config` makes of `request`, read as a request after it.
fn merged(config: &Value, request: &Value) -> Value {
    merged_in(Words::Own, config, request)
}

fn merged_in(words: Words, config: &Value, request: &Value) -> Value {
    let aliases = brand_aliases();
    let brand = Brand { name: "tidegate", aliases: &aliases };
    let body = config.to_string();
    envelope::read(body.as_bytes(), brand, Purpose::Keep).expect("it can be kept");
    let kept = Kept::of(body.as_bytes()).unwrap();
    let preset = Preset::read(&kept.config, kept.system.as_deref()).unwrap();
    let body = request.to_string();
    let envelope = envelope::read(body.as_bytes(), brand, Purpose::Generate).expect("it is a request");
    let reference = Reference::of(&envelope).unwrap().expect("it names a preset");
    let merged = preset.merged(body.as_bytes(), reference.model, brand, words).unwrap();
    let merged: Value = serde_json::from_slice(&merged).unwrap();
    assert!(merged.get("preset").is_none());
    merged
}

/// A request for a preset with these members besides.
fn asking(members: Value) -> Value {
    let mut request = json!({"model": "@preset/p", "messages": [{"role": "user", "content": "hi"}]});
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    request
}

#[test]
fn settings_are_kept_and_the_conversation_is_not() {
    let body = r#"{ "model" : "a/b", "temperature": 1.0, "system": [ {"type": "text", "text": "s" } ], "stream": true,
        "messages": [{"role": "user", "content": "hi"}], "metadata": {"user_id": "u"}, "user": "u", "session_id": "s",
        "trace": {}, "mcp_servers": [{"authorization_token": "t"}], "top_p": null, "stranger": 1,
        "cache_enabled": true, "cache_ttl_seconds": 60, "stop_sequences": [ "a b" ] }"#;
    let kept = Kept::of(body.as_bytes()).unwrap();
    // To the digit, without white space between tokens.
    let config =
        r#"{"model":"a/b","temperature":1.0,"cache_enabled":true,"cache_ttl_seconds":60,"stop_sequences":["a b"]}"#;
    assert_eq!(kept, Kept { config: config.to_owned(), system: Some(r#"[{"type":"text","text":"s"}]"#.to_owned()) });
    assert_eq!(kept.size_bytes(), config.len() + 28);
    let preset = Preset::read(&kept.config, None).unwrap();
    assert_eq!((preset.cache_enabled, preset.cache_ttl_seconds), (Some(true), Some(60)));
    let merged = preset.merged(b"{}", None, Brand { name: "t", aliases: &[] }, Words::Own).unwrap();
    assert_eq!(merged, r#"{"model":"a/b","temperature":1.0,"stop_sequences":["a b"]}"#);
    let nothing = Kept::of(b"{}").unwrap();
    assert_eq!((nothing.config.as_str(), nothing.system), ("{}", None));
}

#[test]
fn options_of_the_chat_format_are_united() {
    let config = json!({"model": "a/b", "chat_options": {"seed": 7, "min_p": 0.5}});
    let options = |given: Value| merged(&config, &asking(json!({"chat_options": given})))["chat_options"].clone();
    assert_eq!(
        options(json!({"presence_penalty": 1, "seed": 8})),
        json!({"min_p": 0.5, "presence_penalty": 1, "seed": 8})
    );
    assert_eq!(options(Value::Null), Value::Null);
    assert_eq!(merged(&config, &asking(json!({})))["chat_options"], config["chat_options"]);
}

#[test]
fn what_was_several_members_elsewhere_replaces_no_other() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let tools = json!([{"name": "f", "input_schema": {"type": "object"}}]);
    let forced = json!({"type": "tool", "name": "f"});
    let config = json!({"model": "a/b", "tools": tools, "tool_choice": forced, "output_config": {"format": format, "effort": "low"}});
    let request = asking(
        json!({"output_config": {"effort": "high"}, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
    );
    let said = |only_parallel: bool| merged_in(Words::Others { only_parallel }, &config, &request);
    assert_eq!(said(true)["output_config"], json!({"format": format, "effort": "high"}));
    let alone = json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true});
    assert_eq!(said(true)["tool_choice"], alone);
    assert_eq!(said(false)["tool_choice"], request["tool_choice"]);
    let silent = json!({"model": "a/b", "tools": tools, "tool_choice": {"type": "none"}});
    let silent = merged_in(Words::Others { only_parallel: true }, &silent, &request);
    assert_eq!(silent["tool_choice"], json!({"type": "none"}));
    // In our own words both are one member.
    let own = merged(&config, &request);
    assert_eq!((&own["output_config"], &own["tool_choice"]), (&json!({"effort": "high"}), &request["tool_choice"]));
}

#[test]
fn a_preset_is_checked_as_a_request_is_but_need_not_be_a_whole_one() {
    let text = |body: Value| {
        let brand = Brand { name: "tidegate", aliases: &[] };
        match envelope::read(body.to_string().as_bytes(), brand, Purpose::Keep) {
            Ok(_) => "ok".to_owned(),
            Err(violation) => violation.message.trim_start_matches("Invalid request: ").to_owned(),
        }
    };
    let budget = json!({"type": "enabled", "budget_tokens": 2048});
    for (body, expected) in [
        (json!({}), "ok"),
        (json!({"tool_choice": {"type": "any"}}), "ok"),
        (json!({"messages": []}), "ok"),
        (json!({"messages": "hi"}), "messages must be an array"),
        (json!({"provider": {"nope": 1}}), "provider.nope is not allowed"),
        (json!({"fallbacks": [{"model": "a/b"}], "models": ["c/d"]}), "fallbacks cannot be combined with models"),
        (json!({"thinking": budget, "max_tokens": 100}), "max_tokens must be greater than thinking.budget_tokens"),
        (json!({"cache_enabled": 1}), "cache_enabled must be a boolean"),
        (json!({"cache_ttl_seconds": 0}), "cache_ttl_seconds must be at least 1"),
        (json!({"preset": "p"}), "preset is not allowed in a preset"),
        (json!({"model": "a/b@preset/p"}), "model must not name a preset"),
        (json!({"models": ["a/b", "@preset/p"]}), "models[1] must not name a preset"),
        (json!({"fallbacks": [{"model": "@preset/p"}]}), "fallbacks[0].model must not name a preset"),
    ] {
        assert_eq!(text(body.clone()), expected, "{body}");
    }
}

#[test]
fn a_preset_is_named_in_the_model_or_beside_it() {
    let named = |model: Value, preset: Value| {
        let request = json!({"model": model, "preset": preset, "messages": [{"role": "user", "content": "hi"}]});
        let body = request.to_string();
        let envelope = envelope::read(body.as_bytes(), Brand { name: "t", aliases: &[] }, Purpose::Generate).unwrap();
        Reference::of(&envelope).map(|found| found.map(|found| (found.slug.to_owned(), found.model.map(str::to_owned))))
    };
    let found = |slug: &str, model: Option<&str>| Ok(Some((slug.to_owned(), model.map(str::to_owned))));
    assert_eq!(named(json!("@preset/p"), Value::Null), found("p", None));
    assert_eq!(named(json!("a/b:nitro@preset/p"), Value::Null), found("p", Some("a/b:nitro")));
    assert_eq!(named(json!(" @preset/p "), json!("p")), found("p", None));
    assert_eq!(named(json!("a/b"), json!("p")), found("p", Some("a/b")));
    assert_eq!(named(Value::Null, json!("p")), found("p", None));
    assert_eq!(named(json!("@preset/"), Value::Null), found("", None));
    assert_eq!(named(json!("a/b"), Value::Null), Ok(None));
    let two = named(json!("@preset/p"), json!("q")).unwrap_err();
    assert_eq!(two.message, "Invalid request: preset must be the one that model names");
}

#[test]
fn what_the_request_says_wins() {
    let preset =
        json!({"model": "a/b", "models": ["c/d"], "provider": {"only": ["x"], "zdr": true}, "top_k": 3, "system": "s"});
    for (request, expected) in [
        (
            json!({}),
            json!({"model": "a/b", "models": ["c/d"], "provider": {"only": ["x"], "zdr": true}, "top_k": 3, "system": "s"}),
        ),
        // Shallow: an object is taken whole.
        (
            json!({"provider": {"sort": "price"}, "system": [{"type": "text", "text": "t"}]}),
            json!({"model": "a/b", "models": ["c/d"], "provider": {"sort": "price"}, "top_k": 3, "system": [{"type": "text", "text": "t"}]}),
        ),
        // Null is a word, too.
        (
            json!({"provider": null, "system": null, "top_k": null, "models": null}),
            json!({"model": "a/b", "models": null, "provider": null, "top_k": null, "system": null}),
        ),
        // Both name further models.
        (
            json!({"fallbacks": [{"model": "e/f"}], "model": "g/h@preset/p"}),
            json!({"model": "g/h", "fallbacks": [{"model": "e/f"}], "provider": {"only": ["x"], "zdr": true}, "top_k": 3, "system": "s"}),
        ),
    ] {
        let mut expected = expected;
        expected["messages"] = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(merged(&preset, &asking(request.clone())), expected, "{request}");
    }
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "input_schema": {"type": "object"}})
}

#[test]
fn tools_are_united() {
    let advisor = |brand: &str, name: &str, model: &str| json!({"type": format!("{brand}:advisor"), "parameters": {"name": name, "model": model}});
    let typed = |kind: &str, uses: u32| json!({"type": kind, "name": "web_search", "max_uses": uses});
    let custom = |name: &str| json!({"type": "custom", "name": name, "input_schema": {"type": "object"}});
    for (preset, request, expected) in [
        (json!([tool("a", "1")]), json!([]), json!([tool("a", "1")])),
        (json!([tool("a", "1")]), json!([tool("b", "2")]), json!([tool("a", "1"), tool("b", "2")])),
        // The request's, in the preset's place.
        (
            json!([tool("a", "1"), tool("b", "1")]),
            json!([tool("c", "2"), tool("a", "2")]),
            json!([tool("a", "2"), tool("b", "1"), tool("c", "2")]),
        ),
        (json!([tool("a", "1")]), json!([custom("a")]), json!([custom("a")])),
        // A function and a server tool of the same name are two; the check of the request says what it thinks of that.
        (
            json!([tool("web_search", "1")]),
            json!([typed("web_search_20250305", 1)]),
            json!([tool("web_search", "1"), typed("web_search_20250305", 1)]),
        ),
        (
            json!([typed("web_search_20250305", 1)]),
            json!([typed("web_search_20250305", 2)]),
            json!([typed("web_search_20250305", 2)]),
        ),
        (
            json!([typed("web_search_20250305", 1)]),
            json!([typed("web_search_20260209", 2)]),
            json!([typed("web_search_20250305", 1), typed("web_search_20260209", 2)]),
        ),
        (
            json!([advisor("tidegate", "x", "1"), advisor("tidegate", "y", "1")]),
            json!([advisor("openrouter", "y", "2"), advisor("tidegate", "z", "2")]),
            json!([advisor("tidegate", "x", "1"), advisor("openrouter", "y", "2"), advisor("tidegate", "z", "2")]),
        ),
        (
            json!([{"type": "tidegate:web_search", "parameters": {"name": "1"}}]),
            json!([{"type": "openrouter:web_search"}]),
            json!([{"type": "openrouter:web_search"}]),
        ),
        (json!([tool("a", "1")]), Value::Null, Value::Null),
    ] {
        let got = merged(&json!({"model": "a/b", "tools": preset}), &asking(json!({"tools": request})));
        assert_eq!(got["tools"], expected, "{preset} {request}");
    }
}

#[test]
fn plugins_are_united_member_by_member() {
    for (preset, request, expected) in [
        (json!([{"id": "web"}]), json!([]), json!([{"id": "web"}])),
        (json!([{"id": "web"}]), json!([{"id": "fusion"}]), json!([{"id": "web"}, {"id": "fusion"}])),
        (
            json!([{"id": "web", "max_results": 3, "engine": "exa"}, {"id": "fusion"}]),
            json!([{"id": "web", "max_results": 5, "enabled": false}]),
            json!([{"id": "web", "max_results": 5, "engine": "exa", "enabled": false}, {"id": "fusion"}]),
        ),
        (
            json!([{"id": "web", "engine": "exa"}]),
            json!([{"id": "web", "max_results": 1}, {"id": "web", "max_results": 2}]),
            json!([{"id": "web", "engine": "exa", "max_results": 2}]),
        ),
    ] {
        let got = merged(&json!({"model": "a/b", "plugins": preset}), &asking(json!({"plugins": request})));
        assert_eq!(got["plugins"], expected, "{preset} {request}");
    }
}

/// What is missing in the request may be in the preset, so it is not missed before they are one.
#[test]
fn rules_across_members_are_for_the_whole() {
    let brand = Brand { name: "tidegate", aliases: &[] };
    let choice = asking(json!({"tool_choice": {"type": "tool", "name": "a"}}));
    let whole = merged(&json!({"model": "a/b", "tools": [tool("a", "1")]}), &choice);
    assert!(envelope::read(whole.to_string().as_bytes(), brand, Purpose::Generate).is_ok());
    let lacking = merged(&json!({"model": "a/b", "tools": [tool("b", "1")]}), &choice);
    let violation = envelope::read(lacking.to_string().as_bytes(), brand, Purpose::Generate).err().unwrap();
    assert_eq!(violation.message, "Invalid request: tool_choice.name 'a' is not among the tools");
    let nameless = merged(&json!({"top_k": 1}), &asking(json!({})));
    let violation = envelope::read(nameless.to_string().as_bytes(), brand, Purpose::Generate).err().unwrap();
    assert_eq!(violation.message, "Invalid request: model is required");
}

#[test]
fn a_system_prompt_of_blocks_is_shown_as_one_text() {
    let text = |system: Value| system_text(&system.to_string());
    assert_eq!(text(json!("a \"b\"")).as_deref(), Some("a \"b\""));
    assert_eq!(text(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])).as_deref(), Some("a\n\nb"));
    assert_eq!(text(json!([])).as_deref(), Some(""));
}

#[test]
fn a_mistake_is_told_by_its_member() {
    let parts = |body: Value| {
        let body = body.to_string();
        let read = envelope::read(body.as_bytes(), Brand { name: "t", aliases: &[] }, Purpose::Keep);
        let violation = read.err().unwrap();
        (violation.parts().0.to_owned(), violation.parts().1.to_owned())
    };
    let of = |member: &str, problem: &str| (member.to_owned(), problem.to_owned());
    assert_eq!(parts(json!({"provider": {"only": [1]}})), of("provider.only[0]", "must be a string"));
    assert_eq!(parts(json!([])), of("", "body must be an object"));
    assert_eq!(parts(json!({"plugins": [{"id": "nope"}]})), of("", "Unknown plugin: nope"));
}
