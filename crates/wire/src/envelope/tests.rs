mod cuts;
mod sources;

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::*;

const BRAND: Brand<'static> = Brand { name: "tidegate", aliases: &[] };

fn read_value(body: &Value) -> Result<(), Violation> {
    read(body.to_string().as_bytes(), BRAND, Purpose::Generate).map(drop)
}

/// A valid request with one member set to `value`.
fn with(member: &str, value: Value) -> Value {
    let mut body = json!({"model": "a/b", "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]});
    body[member] = value;
    body
}

fn text_of(body: &Value) -> String {
    match read_value(body) {
        Ok(()) => "ok".to_owned(),
        Err(violation) => violation.message,
    }
}

#[test]
fn the_envelope_borrows_what_the_gateway_needs() {
    let body = r#"{"model":"vendor/m","stream":true,"max_tokens":9,"session_id":"s","user":"u","metadata":{"user_id":"m"},"messages":[{"role":"user","content":"hi"}]}"#;
    let envelope = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap();
    assert_eq!(envelope.model.as_deref(), Some("vendor/m"));
    assert!(matches!(envelope.model, Some(Cow::Borrowed(_))));
    assert!(envelope.stream);
    assert_eq!(envelope.max_tokens, Some(9));
    let names = [&envelope.session_id, &envelope.user, &envelope.metadata_user].map(|name| name.as_deref().unwrap());
    assert_eq!(names, ["s", "u", "m"]);
}

#[test]
fn the_opening_is_the_first_text_of_the_system_and_of_the_first_message() {
    let opening = |system: Value, first: Value| {
        let body = json!({"model": "a/b", "messages": [{"role": "user", "content": first}, {"role": "assistant",
            "content": "later"}], "system": system})
        .to_string();
        let opening = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap().opening;
        (opening.system.map(str::to_owned), opening.message.map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    let blocks =
        json!([{"type": "image", "source": {"type": "url", "url": "https://x"}}, {"type": "text", "text": "b"}]);
    assert_eq!(opening(json!("s"), json!("m")), (some("\"s\""), some("\"m\"")));
    assert_eq!(opening(json!([{"type": "text", "text": "s"}]), blocks), (some("\"s\""), some("\"b\"")));
    assert_eq!(opening(Value::Null, json!("a \"quoted\" word")), (None, some(r#""a \"quoted\" word""#)));
}

#[test]
fn results_that_only_we_can_read_are_seen() {
    let is_seen = |block: Value| {
        let body =
            with("messages", json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [block]}]));
        read(body.to_string().as_bytes(), BRAND, Purpose::Generate).unwrap().traits.sealed_results
    };
    for (kind, wanted) in [
        ("tidegate_bash_tool_result", true),
        ("harbour_shell_tool_result", true),
        ("bash_code_execution_tool_result", false),
        ("tool_result", false),
    ] {
        assert_eq!(is_seen(json!({"type": kind, "tool_use_id": "t", "content": {"output": []}})), wanted, "{kind}");
    }
    let found = |sealed: &str| json!([{"type": "web_search_result", "encrypted_content": sealed}]);
    for (sealed, wanted) in [("tg1.x", true), ("Eqg=", false)] {
        assert_eq!(
            is_seen(json!({"type": "web_search_tool_result", "tool_use_id": "t", "content": found(sealed)})),
            wanted
        );
    }
}

#[test]
fn calls_that_only_we_run_are_seen() {
    let is_seen = |block: Value| {
        let body =
            with("messages", json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [block]}]));
        read(body.to_string().as_bytes(), BRAND, Purpose::Generate).unwrap().traits.own_calls
    };
    for (kind, name, wanted) in [
        ("server_tool_use", "tidegate:datetime", true),
        ("server_tool_use", "mcp__notes__add", true),
        ("server_tool_use", "web_search", false),
        ("server_tool_use", "other:datetime", false),
        ("tool_use", "tidegate:datetime", false),
        ("tidegate_tool_result", "tidegate:datetime", true),
        ("tool_result", "x", false),
    ] {
        assert_eq!(
            is_seen(json!({"type": kind, "id": "t", "tool_use_id": "t", "name": name, "input": {}})),
            wanted,
            "{kind} {name}"
        );
        assert_eq!(
            is_seen(json!({"name": name, "id": "t", "tool_use_id": "t", "type": kind})),
            wanted,
            "in any order: {kind} {name}"
        );
    }
}

#[test]
fn a_file_that_is_kept_here_is_told_from_others() {
    let names = |id: &str, in_result: bool| {
        let mut block = json!({"type": "document", "source": {"type": "file", "file_id": id}});
        if in_result {
            block = json!({"type": "tool_result", "tool_use_id": "t", "content": [block]});
        }
        let body = with("messages", json!([{"role": "user", "content": [block]}])).to_string();
        read(body.as_bytes(), BRAND, Purpose::Generate).unwrap().traits.own_file
    };
    for in_result in [false, true] {
        assert!(names("file_01HF7YAT00ZZZZZZZZZZZZZZZZ", in_result));
        assert!(!names("file_011CNha8iCJcU1wXNR6q4V8w", in_result), "a vendor's");
        assert!(!names("file-01HF7YAT00ZZZZZZZZZZZZZZZZ", in_result));
    }
}

#[test]
fn each_member_has_its_limits_and_its_text() {
    let long = "x".repeat(257);
    let cases = [
        ("model", json!(7), "model must be a string"),
        ("model", json!(null), "model is required"),
        ("model", json!(""), "model must be at least 1 characters"),
        ("model", json!(long), "model must be at most 256 characters"),
        ("messages", json!(null), "messages is required"),
        ("messages", json!([]), "messages is required"),
        ("messages", json!("hi"), "messages must be an array"),
        ("messages", json!([7]), "messages[0] must be an object"),
        (
            "messages",
            json!([{"role": "tool", "content": "x"}]),
            "messages[0].role must be one of user, assistant, system",
        ),
        ("messages", json!([{"content": "x"}]), "messages[0].role is required"),
        ("messages", json!([{"role": "user"}]), "messages[0].content is required"),
        ("messages", json!([{"role": "user", "content": 3}]), "messages[0].content must be a string or an array"),
        ("messages", json!([{"role": "user", "content": [{"text": "x"}]}]), "messages[0].content[0].type is required"),
        ("messages", json!([{"role": "user", "content": [{"type": 1}]}]), "messages[0].content[0].type is required"),
        ("messages", json!([{"role": "user", "content": ["x"]}]), "messages[0].content[0] must be an object"),
        ("messages", block(json!({"type": "text"})), "messages[0].content[0].text is required"),
        ("messages", block(json!({"type": "text", "text": null})), "messages[0].content[0].text is required"),
        ("messages", block(json!({"text": 1, "type": "text"})), "messages[0].content[0].text must be a string"),
        ("messages", block(json!({"type": "image"})), "messages[0].content[0].source is required"),
        (
            "messages",
            block(json!({"type": "document", "source": "x"})),
            "messages[0].content[0].source must be an object",
        ),
        (
            "messages",
            block(json!({"type": "tool_result", "content": "x"})),
            "messages[0].content[0].tool_use_id is required",
        ),
        (
            "messages",
            block(json!({"type": "tool_result", "tool_use_id": 7})),
            "messages[0].content[0].tool_use_id must be a string",
        ),
        (
            "messages",
            block(json!({"type": "tool_use", "name": "f", "input": {}})),
            "messages[0].content[0].id is required",
        ),
        (
            "messages",
            block(json!({"type": "tool_use", "id": "c", "input": {}})),
            "messages[0].content[0].name is required",
        ),
        ("system", json!([{"type": "text"}]), "system[0].text is required"),
        ("messages", json!([{"role": "user", "content": ""}]), "messages must not be empty"),
        ("messages", json!([{"role": "user", "content": " \n"}]), "messages must not be empty"),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "text", "text": ""}, {"text": " ", "type": "text"}]}]),
            "messages must not be empty",
        ),
        (
            "messages",
            json!([{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]}]),
            "messages must not be empty",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "forever"}}]}]),
            "messages[0].content[0].cache_control.type must be one of ephemeral",
        ),
        ("stream", json!("yes"), "stream must be a boolean"),
        ("max_tokens", json!(1.5), "max_tokens must be an integer"),
        ("max_tokens", json!("9"), "max_tokens must be an integer"),
        ("max_tokens", json!(-1), "max_tokens must be at least 1"),
        ("temperature", json!("hot"), "temperature must be a number"),
        ("temperature", json!(2.1), "temperature must be at most 2"),
        ("top_p", json!(-0.1), "top_p must be at least 0"),
        ("top_k", json!(-1), "top_k must be at least 0"),
        ("stop_sequences", json!("x"), "stop_sequences must be an array"),
        ("stop_sequences", json!(["a", ""]), "stop_sequences[1] must be at least 1 characters"),
        ("system", json!(5), "system must be a string or an array"),
        ("system", json!([{"text": "x"}]), "system[0].type is required"),
        ("tools", json!({}), "tools must be an array"),
        ("tools", json!([1]), "tools[0] must be an object"),
        ("tools", json!([{"input_schema": {}}]), "tools[0].name is required"),
        ("tools", json!([{"name": "a b", "input_schema": {}}]), "tools[0].name has an invalid format"),
        ("tools", json!([{"name": "a"}]), "tools[0].input_schema is required"),
        ("tools", json!([{"name": "a", "input_schema": []}]), "tools[0].input_schema must be an object"),
        (
            "tools",
            json!([{"name": "a", "input_schema": {}}, {"name": "a", "input_schema": {}}]),
            "tools[1].name 'a' is used more than once",
        ),
        (
            "tools",
            json!([{"name": "a", "input_schema": {}, "description": 5}]),
            "tools[0].description must be a string",
        ),
        (
            "tools",
            json!([{"name": "a", "input_schema": {}, "defer_loading": "yes"}]),
            "tools[0].defer_loading must be a boolean",
        ),
        ("tools", json!([{"name": "a", "input_schema": {}, "strict": 1}]), "tools[0].strict must be a boolean"),
        ("tools", json!([{"type": 7}]), "tools[0].type must be a string"),
        ("tools", json!([{"type": "bash_20250124"}]), "tools[0].name is required"),
        ("tools", json!([{"type": "bash_20250124", "name": 7}]), "tools[0].name must be a string"),
        ("tools", json!([{"type": "bash_20250124", "name": "sh"}]), "tools[0].name must be one of bash"),
        (
            "tools",
            json!([{"type": "text_editor_20250124", "name": "str_replace_based_edit_tool"}]),
            "tools[0].name must be one of str_replace_editor",
        ),
        ("tools", json!([{"type": "web_search_20260209", "name": "s"}]), "tools[0].name must be one of web_search"),
        (
            "tools",
            json!([{"type": "tool_search_tool_regex_20251119", "name": "find"}]),
            "tools[0].name must be one of tool_search_tool_regex",
        ),
        (
            "tools",
            json!([{"type": "bash_20250124", "name": "bash"}, {"type": "bash_20250124", "name": "bash"}]),
            "tools[1].name 'bash' is used more than once",
        ),
        (
            "tools",
            json!([{"name": "bash", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]),
            "tools[1].name 'bash' is used more than once",
        ),
        (
            "tools",
            json!([{"type": "web_search_20250305", "name": "web_search"}, {"type": "web_search_20260209", "name": "web_search"}]),
            "tools[1].name 'web_search' is used more than once",
        ),
        ("tool_choice", json!({"type": "any"}), "tool_choice requires tools"),
        ("tool_choice", json!({"type": "tool"}), "tool_choice.name is required"),
        ("tool_choice", json!({"type": "must"}), "tool_choice.type must be one of auto, any, tool, none"),
        ("thinking", json!({"type": "enabled", "budget_tokens": 1023}), "thinking.budget_tokens must be at least 1024"),
        (
            "thinking",
            json!({"type": "enabled", "budget_tokens": 4096}),
            "max_tokens must be greater than thinking.budget_tokens",
        ),
        ("thinking", json!({"type": "enabled"}), "thinking.budget_tokens is required"),
        ("thinking", json!({"type": "on"}), "thinking.type must be one of enabled, adaptive, disabled, between_tools"),
        (
            "output_config",
            json!({"effort": "huge"}),
            "output_config.effort must be one of low, medium, high, xhigh, max",
        ),
        ("output_config", json!({"format": {"type": "json_schema"}}), "output_config.format.schema is required"),
        (
            "output_config",
            json!({"task_budget": {"type": "tokens", "total": 5}}),
            "output_config.task_budget.total must be at least 20000",
        ),
        (
            "context_management",
            json!({"edits": [{"type": "compact_20260112"}, {"type": "clear_thinking_20251015"}]}),
            "context_management.edits: clear_thinking_20251015 must come first",
        ),
        (
            "context_management",
            json!({"edits": [{"type": "nix"}]}),
            "context_management.edits[0].type must be one of clear_tool_uses_20250919, clear_thinking_20251015, \
             compact_20260112",
        ),
        ("cache_control", json!({"type": "ephemeral", "ttl": "2h"}), "cache_control.ttl must be one of 5m, 1h"),
        ("speed", json!("slow"), "speed must be one of fast, standard"),
        ("metadata", json!({"user_id": long}), "metadata.user_id must be at most 256 characters"),
        ("models", json!(vec!["a/b"; 17]), "models must have at most 16 entries"),
        ("fallbacks", json!("default"), "fallbacks must be an array"),
        ("fallbacks", json!(vec![json!({"model": "a/b"}); 4]), "fallbacks must have at most 3 entries"),
        ("fallbacks", json!([{"model": "a/b", "max_tokens": 5}]), "fallbacks[0].max_tokens is not allowed"),
        ("fallbacks", json!([{}]), "fallbacks[0].model is required"),
        ("provider", json!({"orders": []}), "provider.orders is not allowed"),
        ("provider", json!({"zdr": 1}), "provider.zdr must be a boolean"),
        ("provider", json!([]), "provider must be an object"),
        ("provider", json!({"order": "openai"}), "provider.order must be an array"),
        ("provider", json!({"only": ["a", 5]}), "provider.only[1] must be a string"),
        ("provider", json!({"ignore": {}}), "provider.ignore must be an array"),
        ("provider", json!({"allow_fallbacks": "no"}), "provider.allow_fallbacks must be a boolean"),
        ("provider", json!({"require_parameters": 1}), "provider.require_parameters must be a boolean"),
        ("provider", json!({"enforce_distillable_text": []}), "provider.enforce_distillable_text must be a boolean"),
        ("provider", json!({"data_collection": "maybe"}), "provider.data_collection must be one of allow, deny"),
        (
            "provider",
            json!({"quantizations": ["fp8", "fp5"]}),
            "provider.quantizations[1] must be one of int4, int8, fp4, mxfp4, nvfp4, fp6, fp8, mxfp8, fp16, bf16, fp32, unknown",
        ),
        ("provider", json!({"sort": "best"}), "provider.sort must be one of price, throughput, latency, exacto"),
        ("provider", json!({"sort": 5}), "provider.sort must be a string or an object"),
        (
            "provider",
            json!({"sort": {"by": "x"}}),
            "provider.sort.by must be one of price, throughput, latency, exacto",
        ),
        ("provider", json!({"sort": {"partition": "all"}}), "provider.sort.partition must be one of model, none"),
        ("provider", json!({"sort": {"order": "asc"}}), "provider.sort.order is not allowed"),
        (
            "provider",
            json!({"preferred_min_throughput": "fast"}),
            "provider.preferred_min_throughput must be a number or an object",
        ),
        ("provider", json!({"preferred_max_latency": -1}), "provider.preferred_max_latency must be at least 0"),
        (
            "provider",
            json!({"preferred_max_latency": {"p90": "3"}}),
            "provider.preferred_max_latency.p90 must be a number",
        ),
        ("provider", json!({"preferred_max_latency": {"p95": 3}}), "provider.preferred_max_latency.p95 is not allowed"),
        ("provider", json!({"max_price": 5}), "provider.max_price must be an object"),
        ("provider", json!({"max_price": {"input": 5}}), "provider.max_price.input is not allowed"),
        ("provider", json!({"max_price": {"prompt": "cheap"}}), "provider.max_price.prompt must be a number"),
        ("provider", json!({"max_price": {"prompt": "inf"}}), "provider.max_price.prompt must be a number"),
        ("provider", json!({"max_price": {"image": true}}), "provider.max_price.image must be a number"),
        ("provider", json!({"max_price": {"request": -0.1}}), "provider.max_price.request must be at least 0"),
        ("route", json!("best"), "route must be one of fallback, sort"),
        ("session_id", json!(long), "session_id must be at most 256 characters"),
        ("user", json!(long), "user must be at most 256 characters"),
        ("trace", json!([]), "trace must be an object"),
        ("trace", json!({"a": "x".repeat(32_768)}), "trace must be at most 32768 bytes"),
        ("trace", json!({"trace_id": 7}), "trace.trace_id must be a string"),
        ("stop_server_tools_when", json!([]), "stop_server_tools_when must have at least 1 entries"),
        (
            "stop_server_tools_when",
            json!([{"type": "step_count_is", "step_count": 0}]),
            "stop_server_tools_when[0].step_count must be at least 1",
        ),
        ("max_tool_calls", json!(0), "max_tool_calls must be at least 1"),
    ];
    for (member, value, problem) in cases {
        assert_eq!(text_of(&with(member, value.clone())), format!("Invalid request: {problem}"), "{member} = {value}");
    }
    assert_eq!(text_of(&with("plugins", json!([{"id": "wen"}]))), "Unknown plugin: wen");
}

#[test]
fn values_at_the_limit_pass() {
    let cases = [
        ("model", json!("x".repeat(256))),
        ("model", json!("é".repeat(256))),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(1)),
        ("temperature", json!(2)),
        ("top_p", json!(1.0)),
        ("top_k", json!(0)),
        ("session_id", json!("x".repeat(256))),
        ("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
        ("thinking", json!({"type": "adaptive", "display": null})),
        ("fallbacks", json!(vec![json!({"model": "a/b"}); 3])),
        ("fallbacks", json!(null)),
        ("provider", json!({"zdr": null, "sort": {"by": "price"}})),
        ("provider", json!({"order": null, "sort": null, "max_price": null, "preferred_max_latency": null})),
        ("provider", json!({"sort": {"by": null, "partition": null}, "max_price": {"prompt": null, "audio": "1e-6"}})),
        ("provider", json!({"preferred_max_latency": {"p50": 0, "p75": null}, "preferred_min_throughput": 1.5})),
        ("messages", json!([{"role": "user", "content": [{"type": "from_the_future", "x": [1, {"y": null}]}]}])),
        ("tools", json!([{"type": "bash_99990101", "anything": true}])),
        ("speed", json!(null)),
        ("stranger", json!({"deep": [1, 2, {"x": null}]})),
    ];
    for (member, value) in cases {
        assert_eq!(text_of(&with(member, value.clone())), "ok", "{member} = {value}");
    }
}

#[test]
fn what_is_missing_is_reported_before_what_is_wrong() {
    let body = json!({"max_tokens": -5, "stream": 3});
    assert_eq!(text_of(&body), "Invalid request: model is required");
    let body = json!({"max_tokens": -5, "model": "a/b"});
    assert_eq!(text_of(&body), "Invalid request: messages is required");
    let body = r#"{"top_k":-1,"messages":[{"role":"user","content":"x"}],"model":"a/b","stream":3}"#;
    let violation = read(body.as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
    assert_eq!(violation.message, "Invalid request: top_k must be at least 0");
}

#[test]
fn a_model_list_or_a_preset_stands_in_for_the_model() {
    let mut body = with("models", json!(["a/b"]));
    body["model"] = json!(null);
    assert_eq!(text_of(&body), "ok");
    body["models"] = json!([]);
    assert_eq!(text_of(&body), "Invalid request: model is required");
    body["models"] = json!("a/b");
    assert_eq!(text_of(&body), "Invalid request: models must be an array");
}

#[test]
fn inp_2_bodies_that_are_not_plain_objects_are_refused() {
    let deep = format!("{{\"model\":\"a/b\",\"x\":{}1{}}}", "[".repeat(64), "]".repeat(64));
    let cases: [(&[u8], &str); 14] = [
        (b"", "body is not valid JSON"),
        (b"{", "body is not valid JSON"),
        (b"[1,2]", "body must be an object"),
        (b"null", "body must be an object"),
        (b"{\"model\":\"a/b\"} trailing", "body is not valid JSON"),
        (b"{\"model\":\"a\xFFb\"}", "body is not valid JSON"),
        (b"\xEF\xBB\xBF{\"model\":\"a/b\"}", "body is not valid JSON"),
        (b"{\"model\":\"a/b\",}", "body is not valid JSON"),
        (b"{\"model\":\"a/b\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"model\":\"c\"}", "model appears more than once"),
        (b"{\"model\":\"a/b\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"zz\":1,\"z\\u007a\":2}", "zz appears more than once"),
        (b"{\"model\":\"a/b\",\"messages\":[{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}]}", "messages[0].role appears more than once"),
        (b"{\"model\":\"a/b\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"temperature\":1e999}", "temperature must be at most 2"),
        (b"{\"model\":\"a/b\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":99999999999999999999}", "max_tokens must be at most 1000000000000"),
        (deep.as_bytes(), "body must not nest deeper than 64 levels"),
    ];
    for (body, problem) in cases {
        let violation = read(body, BRAND, Purpose::Generate).map(drop).unwrap_err();
        assert_eq!(violation.message, format!("Invalid request: {problem}"), "{}", String::from_utf8_lossy(body));
    }
}

/// Half a character says nothing, wherever a text is read.
#[test]
fn inp_2_lone_surrogates_are_refused() {
    let said = |content: &str| format!(r#"{{"model":"a/b","messages":[{{"role":"user","content":{content}}}]}}"#);
    let result = |content: &str| said(&format!(r#"[{{"type":"tool_result","tool_use_id":"t","content":{content}}}]"#));
    for (body, path) in [
        (said(r#""\ud800""#), "messages[0].content"),
        (said(r#""so \n it \ud83d goes""#), "messages[0].content"),
        (said(r#"{"\udc00":1}"#), "messages[0].content"),
        (result(r#""\udfff""#), "messages[0].content[0].content"),
        (r#"{"messages":[],"system":"\ud800"}"#.to_owned(), "system"),
        (r#"{"\ud800":1}"#.to_owned(), "body"),
    ] {
        let violation = read(body.as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        let expected = format!("Invalid request: {path} has an invalid format");
        assert_eq!(violation.message, expected, "{body}");
    }
    for body in [said(r#""\ud83d\ude00 \u00e9""#), result(r#""\u00E9""#)] {
        assert!(read(body.as_bytes(), BRAND, Purpose::Generate).is_ok(), "{body}");
    }
}

/// Whatever is in it, a wide body is refused for being wide, and nothing is read far beyond the limit.
#[test]
fn wide_bodies_are_refused_whatever_they_hold() {
    let wide = MAX_NODES * 3;
    let distinct: String = (0..wide).map(|place| format!(r#""n{place}":1,"#)).collect();
    for body in [
        format!(r#"{{"messages":[{}1]}}"#, "1,".repeat(wide)),
        format!(r#"{{"models":[{}1]}}"#, "1,".repeat(wide)),
        format!(r#"{{{}"a":1}}"#, r#""a":1,"#.repeat(wide)),
        format!(r#"{{{distinct}"a":1}}"#),
        format!(r#"{{"cache_control":{{{}"a":1}}}}"#, r#""":1,"#.repeat(wide)),
        // Broken, but far behind the limit.
        format!(r#"{{"messages":[{}"#, "{},".repeat(wide)),
    ] {
        let violation = read(body.as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        assert_eq!(violation.message, "Invalid request: body must not hold more than 200000 values", "{}", &body[..40]);
        let mut seen = 0;
        let read = limited(&body, |reader| {
            let read = IgnoredAny::deserialize(&mut *reader);
            seen = reader.values();
            read
        });
        assert!(read.is_err() && seen <= 2 * MAX_NODES + 200, "{seen} of {}", &body[..40]);
    }
    // As many names as values are within it.
    let most: String = (0..MAX_NODES - 10).map(|place| format!(r#","n{place}":1"#)).collect();
    let body = format!(r#"{{"model":"a/b","messages":[{{"role":"user","content":"x"}}],"stranger":{{"a":1{most}}}}}"#);
    assert!(read(body.as_bytes(), BRAND, Purpose::Generate).is_ok());
}

#[test]
fn prompt_problems_have_their_own_type() {
    let bad_role = with("messages", json!([{"role": "tool", "content": "x"}]));
    assert_eq!(read_value(&bad_role).unwrap_err().error_type, ErrorType::InvalidPrompt);
    assert_eq!(read_value(&with("stream", json!(1))).unwrap_err().error_type, ErrorType::InvalidRequest);
}

/// A request whose second block is written as given.
fn block(block: serde_json::Value) -> serde_json::Value {
    json!([{"role": "user", "content": [block]}])
}

#[test]
fn branded_tools_are_named() {
    let body = with("tools", json!([{"type": "tidegate:web_search"}, {"name": "t", "input_schema": {}}])).to_string();
    let envelope = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap();
    assert_eq!(envelope.server_tools.as_slice(), ["tidegate:web_search"]);
}

#[test]
fn tools_of_another_interface_are_refused_by_name() {
    for kind in ["shell", "local_shell"] {
        let violation = read_value(&with("tools", json!([{"type": kind}]))).unwrap_err();
        assert_eq!(violation.message, format!("{kind} is only available on the Responses API"));
        assert_eq!(violation.error_type, ErrorType::InvalidRequest);
    }
    // A function may be called so.
    assert!(read_value(&with("tools", json!([{"name": "shell", "input_schema": {}}]))).is_ok());
    assert!(read_value(&with("tools", json!([{"type": "tidegate:shell"}]))).is_ok());
}

#[test]
fn a_choice_names_a_branded_tool_by_its_type_or_its_function() {
    let read = |name: &str| {
        let mut body = with("tools", json!([{"type": "tidegate:web_search"}, {"type": "tidegate:datetime"}]));
        body["tool_choice"] = json!({"type": "tool", "name": name});
        read(body.to_string().as_bytes(), BRAND, Purpose::Generate).map(drop).map_err(|violation| violation.message)
    };
    for name in ["tidegate:web_search", "web_search", "tidegate:datetime", "tidegate_datetime"] {
        assert_eq!(read(name), Ok(()), "{name}");
    }
    for name in ["tidegate", "tidegate:", "search", "older_datetime", "tidegate:web_fetch"] {
        let told = format!("Invalid request: tool_choice.name '{name}' is not among the tools");
        assert_eq!(read(name), Err(told), "{name}");
    }
}

#[test]
fn every_member_of_an_edit_is_looked_at() {
    let read = |edit: &Value| {
        let mut whole = json!({"type": "clear_tool_uses_20250919"});
        whole.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
        let body = with("context_management", json!({"edits": [whole]})).to_string();
        super::read(body.as_bytes(), BRAND, Purpose::Generate).map(drop).map_err(|violation| violation.message)
    };
    let cases = [
        (json!({"trigger": 5}), "trigger must be an object"),
        (json!({"trigger": {"value": 5}}), "trigger.type is required"),
        (json!({"trigger": {"type": "turns", "value": 5}}), "trigger.type must be one of input_tokens, tool_uses"),
        (json!({"trigger": {"type": "tool_uses"}}), "trigger.value is required"),
        (json!({"trigger": {"type": "tool_uses", "value": "x"}}), "trigger.value must be an integer"),
        (json!({"keep": {"type": "tool_uses", "value": -1}}), "keep.value must be at least 0"),
        (json!({"clear_at_least": {"type": "tool_uses"}}), "clear_at_least.type must be one of input_tokens"),
        (json!({"clear_tool_inputs": "yes"}), "clear_tool_inputs must be an array"),
        (json!({"exclude_tools": ["a", 1]}), "exclude_tools[1] must be a string"),
        (json!({"type": "clear_thinking_20251015", "keep": "some"}), "keep must be one of all"),
        (json!({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns"}}), "keep.value is required"),
        (
            json!({"type": "compact_20260112", "trigger": {"type": "tool_uses"}}),
            "trigger.type must be one of input_tokens",
        ),
        (json!({"type": "compact_20260112", "instructions": 1}), "instructions must be a string"),
        (json!({"type": "compact_20260112", "pause_after_compaction": 1}), "pause_after_compaction must be a boolean"),
    ];
    for (edit, problem) in cases {
        assert_eq!(read(&edit), Err(format!("Invalid request: context_management.edits[0].{problem}")), "{edit}");
    }
    for fine in [
        json!({"trigger": {"type": "input_tokens", "value": 0}, "keep": {"type": "tool_uses", "value": 3}}),
        json!({"clear_at_least": null, "clear_tool_inputs": ["a"], "exclude_tools": null, "later": 1}),
        json!({"type": "clear_thinking_20251015", "keep": "all"}),
        json!({"type": "clear_thinking_20251015", "keep": {"type": "all"}}),
        json!({"type": "compact_20260112", "trigger": null, "instructions": null}),
    ] {
        assert_eq!(read(&fine), Ok(()), "{fine}");
    }
}

#[test]
fn a_clients_tool_cannot_have_the_name_of_one_that_is_run_for_it() {
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let own = json!({"name": "web_search", "input_schema": {}});
    for tools in [json!([search, own]), json!([own, search])] {
        let body = with("tools", tools).to_string();
        let violation = read(body.as_bytes(), BRAND, Purpose::Generate).map(drop).unwrap_err();
        assert_eq!(violation.message, "tool name conflict: web_search");
    }
}

#[test]
fn a_vendors_tools_that_are_run_here_are_noted() {
    let table = [
        ("web_search_20250305", true, 0),
        ("web_search_20260318", true, 0),
        ("web_fetch_20250910", true, 0),
        ("code_execution_20250825", false, 0),
        ("tool_search_tool_regex", false, 1),
        ("tool_search_tool_bm25_20251119", false, 1),
        ("advisor_20260301", false, 1),
    ];
    for (kind, is_web, ours) in table {
        let name = kind.split("_20").next().unwrap();
        let body = with("tools", json!([{"type": kind, "name": name}])).to_string();
        let envelope = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap();
        assert_eq!((envelope.asked.vendor_web, envelope.server_tools.len()), (is_web, ours), "{kind}");
        assert_eq!(envelope.asked.vendor_fetch, kind.starts_with("web_fetch"), "{kind}");
        assert_eq!(envelope.asked.vendor_code, kind.starts_with("code_execution"), "{kind}");
    }
    for (given, is_deferred) in [(json!(true), true), (json!(false), false), (json!(null), false)] {
        let tool = json!({"name": "t", "input_schema": {}, "defer_loading": given});
        let body = with("tools", json!([tool])).to_string();
        let envelope = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap();
        assert_eq!(envelope.asked.deferred_tools, is_deferred, "{given}");
    }
}

#[test]
fn a_count_ignores_what_says_nothing_of_the_length() {
    let body = json!({"model": "v/m", "max_tokens": -1, "stream": "x", "temperature": 9, "top_p": 2, "top_k": -1,
        "stop_sequences": [""], "metadata": 1, "service_tier": 1, "speed": "x", "container": 1, "inference_geo": 1,
        "diagnostics": 1, "session_id": 1, "user": 1, "trace": 1, "stop_server_tools_when": 1, "max_tool_calls": 0,
        "messages": [{"role": "user", "content": "x"}]});
    let body = Bytes::from(body.to_string());
    assert!(read(&body, BRAND, Purpose::Generate).is_err());
    let envelope = read(&body, BRAND, Purpose::Count).unwrap();
    let sent: serde_json::Value = serde_json::from_slice(&envelope.cuts.upstream_body(&body, "up", None)).unwrap();
    assert_eq!(sent, json!({"model": "up", "messages": [{"role": "user", "content": "x"}]}));
    // What is counted is not.
    let tools = json!({"model": "v/m", "tools": 1, "messages": [{"role": "user", "content": "x"}]}).to_string();
    assert!(read(tools.as_bytes(), BRAND, Purpose::Count).is_err());
}

#[test]
fn a_text_without_words_is_seen_however_it_is_written() {
    let blank = |content: serde_json::Value| {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]);
        let body = json!({"model": "v/m", "messages": messages}).to_string();
        read(body.as_bytes(), BRAND, Purpose::Generate).unwrap().traits.blank_text
    };
    assert!(blank(json!("")) && blank(json!(" \n")) && blank(json!([{"type": "text", "text": ""}])));
    assert!(!blank(json!(" x")));
}

#[test]
fn files_of_others_are_told_from_ours() {
    let traits = |id: &str| {
        let block = json!({"type": "document", "source": {"type": "file", "file_id": id}});
        let body = json!({"model": "v/m", "messages": [{"role": "user", "content": [block]}]}).to_string();
        let traits = read(body.as_bytes(), BRAND, Purpose::Generate).unwrap().traits;
        (traits.own_file, traits.foreign_file)
    };
    assert_eq!(traits("file_00000000000000000000000000"), (true, false));
    assert_eq!(traits("file_011CNha8iCJcU1wXNR6q4V8w"), (false, true));
}

#[test]
fn raw_content_keeps_every_byte() {
    let body = Bytes::from_static(
        b"{ \"future\":{\"a\":1.0,\"b\":1e999} ,\"user\" : \"u\",\"model\":\"v\\/m\" , \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 \\ud800\"}], \"trace\":{}}",
    );
    // The lone surrogate stands in content that we read as text: that is refused; without it the rest passes as it came.
    assert!(read(&body, BRAND, Purpose::Generate).is_err());
    let body = Bytes::from(String::from_utf8(body.to_vec()).unwrap().replace("\\ud800", ""));
    let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
    let sent = envelope.cuts.upstream_body(&body, "up", Some(64));
    let expected = "{\"max_tokens\":64, \"future\":{\"a\":1.0,\"b\":1e999} ,\"model\":\"up\" , \"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9 \"}]}";
    assert_eq!(std::str::from_utf8(&sent).unwrap(), expected);
}

#[test]
fn a_plain_request_changes_in_its_model_alone() {
    let body = Bytes::from_static(br#"{"model":"a/b","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#);
    let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
    assert_eq!(
        envelope.cuts.upstream_body(&body, "claude", Some(64)),
        r#"{"model":"claude","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#
    );
}

/// Members in any order, ours and strangers mixed, with odd white space and escaped names.
fn members() -> impl Strategy<Value = Vec<(String, String)>> {
    let one = prop_oneof![
        Just(("session_id", r#""s""#)),
        Just(("user", r#""a\"b""#)),
        Just(("trace", r#"{"x":"}"}"#)),
        Just(("route", "null")),
        Just(("models", r#"["a/b"]"#)),
        Just(("preset", r#""p""#)),
        Just(("stranger", r#"{"user":"kept"}"#)),
        Just(("other\\\"", "[1 , 2]")),
        Just(("max_tokens", "7")),
        Just(("model", r#""a/b""#)),
    ];
    prop::collection::vec(one, 0..10).prop_map(|list| {
        let mut members: Vec<(String, String)> = Vec::new();
        for (name, value) in list {
            if members.iter().all(|(known, _)| known != name) {
                members.push((name.to_owned(), value.to_owned()));
            }
        }
        members
    })
}

proptest! {
    #[test]
    fn our_members_are_cut_and_all_others_kept(members in members(), at in 0_usize..10, space in prop::sample::select(vec!["", " ", "\n\t"]), escape in any::<bool>()) {
        let mut members = members;
        let at = at.min(members.len());
        members.insert(at, ("messages".to_owned(), r#"[{"role":"user","content":"x"}]"#.to_owned()));
        if members.iter().all(|(name, _)| name != "model") {
            members.push(("model".to_owned(), r#""a/b""#.to_owned()));
        }
        let written: Vec<String> = members.iter().map(|(name, value)| {
            let name = if escape { name.replacen('s', "\\u0073", 1) } else { name.clone() };
            format!("{space}\"{name}\"{space}:{space}{value}{space}")
        }).collect();
        let body = Bytes::from(format!("{{{}}}", written.join(",")));
        let envelope = read(&body, BRAND, Purpose::Generate).unwrap();
        let sent = envelope.cuts.upstream_body(&body, "up", Some(3));
        prop_assert_eq!(&envelope.cuts.upstream_pieces(&body, "up", Some(3)).concat(), &sent);
        prop_assert_eq!(&envelope.cuts.splice(&body, "up", Some(3)).pieces(&body).concat(), &sent);
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let mut expected: Value = serde_json::from_slice(&body).unwrap();
        let map = expected.as_object_mut().unwrap();
        map.retain(|name, _| !is_own(name));
        map.insert("model".to_owned(), json!("up"));
        map.entry("max_tokens").or_insert(json!(3));
        prop_assert_eq!(sent, expected);
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&body, BRAND, Purpose::Generate);
    }
}
