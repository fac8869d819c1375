use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::envelope::{Brand, Purpose};

fn search(model: &str) -> Option<String> {
    (model == "a/m").then(|| "tidegate:web_search".to_owned())
}

fn asked(body: &Value) -> Value {
    let asked = read(body.to_string().as_bytes(), &search).map_err(|violation| violation.message).unwrap();
    // What is made is always a body that the gateway itself can read.
    let brand = Brand { name: "tidegate", aliases: &[] };
    crate::envelope::read(&asked.body, brand, Purpose::Generate).map_err(|violation| violation.message).unwrap();
    serde_json::from_slice(&asked.body).unwrap()
}

fn with(mut more: Value) -> Value {
    let members = more.as_object_mut().unwrap();
    members.entry("model").or_insert(json!("a/m"));
    members.entry("messages").or_insert(json!([{"role": "user", "content": "hi"}]));
    more
}

#[test]
fn what_is_said_of_an_answer_stands_in_its_schema() {
    let schema = |more: Value| {
        let mut schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    for (own, said) in [(json!({}), "Amounts in cents"), (json!({"description": "own"}), "own")] {
        let format = json!({"name": "invoice", "description": "Amounts in cents", "schema": schema(own)});
        let body = json!({"model": "a/m", "messages": [{"role": "user", "content": "hi"}], "response_format": {"type": "json_schema", "json_schema": format}});
        let made: Value = serde_json::from_slice(&read(body.to_string().as_bytes(), &|_| None).unwrap().body).unwrap();
        let made = &made["output_config"]["format"]["schema"];
        assert_eq!((&made["description"], &made["additionalProperties"]), (&json!(said), &json!(false)));
    }
}

#[test]
fn an_empty_list_of_reasoning_hides_no_reasoning() {
    let said = |details: Value| {
        let assistant =
            json!({"role": "assistant", "content": "so", "reasoning_content": "R", "reasoning_details": details});
        let turns = json!([{"role": "user", "content": "hi"}, assistant, {"role": "user", "content": "on"}]);
        let body = json!({"model": "a/m", "messages": turns});
        let made: Value = serde_json::from_slice(&read(body.to_string().as_bytes(), &|_| None).unwrap().body).unwrap();
        made["messages"][1]["content"][0]["thinking"].clone()
    };
    for details in [json!([]), Value::Null] {
        assert_eq!(said(details), "R");
    }
    assert_eq!(said(json!([{"type": "reasoning.text", "text": "other"}])), "other");
}

#[test]
fn what_the_format_has_no_word_for_is_named() {
    let picture =
        |detail: Value| json!({"type": "image_url", "image_url": {"url": "https://a.example/x.png", "detail": detail}});
    let read = |message: Value| {
        read(json!({"model": "a/b", "messages": [message]}).to_string().as_bytes(), &|_| None).unwrap().warnings
    };
    assert_eq!(read(json!({"role": "user", "content": "hi", "name": "ada"})), ["dropped:messages.name"]);
    assert_eq!(
        read(json!({"role": "user", "content": [picture(json!("low")), picture(json!("high"))]})),
        ["dropped:image_url.detail"]
    );
    assert!(read(json!({"role": "user", "content": [picture(json!("auto")), picture(json!(null))]})).is_empty());
    assert!(read(json!({"role": "tool", "tool_call_id": "c", "name": "f", "content": "4"})).is_empty());
}

#[test]
fn instructions_results_and_calls_stand_where_they_belong() {
    let made = asked(&with(json!({"messages": [
        {"role": "system", "content": "one"},
        {"role": "developer", "content": [{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "hi", "name": "ada"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": " {\"n\": 1.50} "}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "r1"},
        {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "r2"}]},
        {"role": "system", "content": "later"},
        {"role": "user", "content": "so?"},
    ]})));
    assert_eq!(
        made["system"],
        json!([
            {"type": "text", "text": "one"},
            {"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}},
        ])
    );
    assert_eq!(
        made["messages"],
        json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"n": 1.5}},
                {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "r2"}]},
            ]},
            {"role": "system", "content": [{"type": "text", "text": "later"}]},
            {"role": "user", "content": "so?"},
        ])
    );
}

#[test]
fn instructions_alone_are_what_is_asked() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let made = asked(&with(
        json!({"messages": [{"role": "system", "content": "one"}, {"role": "developer", "content": "two"}]}),
    ));
    assert_eq!(made["messages"], json!([{"role": "user", "content": [text("one"), text("two")]}]));
    assert_eq!(made.get("system"), None);
}

#[test]
fn arguments_keep_their_digits() {
    let body = with(json!({"messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{\"n\":123456789012345678901234,\"x\":1.50}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]}));
    let made = read(body.to_string().as_bytes(), &search).unwrap();
    let text = std::str::from_utf8(&made.body).unwrap();
    assert!(text.contains(r#""input":{"n":123456789012345678901234,"x":1.50}"#), "{text}");
}

#[test]
fn what_is_shown_becomes_a_block() {
    let file = |file: Value| json!({"type": "file", "file": file});
    let made = asked(&with(json!({"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "https://a.example/x.png", "detail": "high"}},
        file(json!({"file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"})),
        file(json!({"file_data": "JVBERi0=", "filename": "b.pdf"})),
        file(json!({"file_id": "file_1"})),
    ]}]})));
    let url = |url: &str| json!({"type": "url", "url": url});
    assert_eq!(
        made["messages"][0]["content"],
        json!([
            {"type": "image", "source": url("https://a.example/x.png")},
            {"type": "document", "source": url("data:application/pdf;base64,JVBERi0="), "title": "a.pdf"},
            {"type": "document", "title": "b.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        ])
    );
}

#[test]
fn options_have_the_words_of_the_other_format() {
    for (given, name, expected) in [
        (json!({"stop": "END"}), "stop_sequences", json!(["END"])),
        (json!({"stop": []}), "stop_sequences", json!(null)),
        (json!({"max_tokens": 5, "max_completion_tokens": 9}), "max_tokens", json!(9)),
        (json!({"max_completion_tokens": 9, "max_tokens": 5}), "max_tokens", json!(9)),
        (json!({"service_tier": "default"}), "service_tier", json!("standard_only")),
        (json!({"service_tier": "flex"}), "service_tier", json!("flex")),
        (json!({"reasoning_effort": "none"}), "thinking", json!({"type": "disabled"})),
        (json!({"reasoning_effort": "high"}), "thinking", json!({"type": "adaptive"})),
        (json!({"reasoning_effort": "high"}), "output_config", json!({"effort": "high"})),
        (json!({"reasoning": {"effort": "minimal"}}), "output_config", json!({"effort": "low"})),
        (json!({"reasoning": {"max_tokens": 10}}), "thinking", json!({"type": "enabled", "budget_tokens": 1024})),
        (
            json!({"reasoning": {"max_tokens": 4000, "exclude": true}}),
            "thinking",
            json!({"type": "enabled", "budget_tokens": 4000, "display": "omitted"}),
        ),
        (json!({"reasoning": {"enabled": false}}), "thinking", json!({"type": "disabled"})),
        (json!({"reasoning": {"summary": "auto"}}), "thinking", json!({"type": "adaptive"})),
        (json!({"reasoning": {"generate_summary": "concise"}}), "thinking", json!({"type": "adaptive"})),
        (json!({"reasoning": {"summary": null}}), "thinking", json!(null)),
        (json!({"reasoning": {"summary": "auto", "effort": "none"}}), "thinking", json!({"type": "disabled"})),
        (json!({"reasoning": {"summary": "auto", "enabled": false}}), "thinking", json!({"type": "disabled"})),
        (json!({"tool_choice": "auto"}), "tool_choice", json!(null)),
        (json!({"safety_identifier": "s"}), "user", json!("s")),
        (json!({"safety_identifier": "s", "user": "u"}), "user", json!("u")),
        (json!({"seed": -7, "min_p": 0.1}), "chat_options", json!({"seed": -7, "min_p": 0.1})),
        (
            json!({"response_format": {"type": "json_object"}}),
            "chat_options",
            json!({"response_format": {"type": "json_object"}}),
        ),
        (json!({"response_format": {"type": "text"}}), "output_config", json!(null)),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": false, "schema": {}}}}),
            "chat_options",
            json!({"response_format": {"type": "json_schema", "json_schema": {"strict": false}}}),
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": null, "schema": {}}}}),
            "chat_options",
            json!(null),
        ),
        (json!({"temperature": null, "seed": null}), "chat_options", json!(null)),
    ] {
        assert_eq!(asked(&with(given.clone()))[name], expected, "{given}");
    }
    let tool = json!({"type": "function", "function": {"name": "f", "strict": true, "parameters": {"properties": {}}}, "cache_control": {"type": "ephemeral"}});
    let own = json!({"type": "tidegate:web_search", "parameters": {"max_results": 3}});
    let made = asked(&with(
        json!({"tools": [tool, own, {"type": "function", "function": {"name": "g"}}], "tool_choice": "required", "parallel_tool_calls": false}),
    ));
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        made["tools"],
        json!([
            {"name": "f", "input_schema": schema, "strict": true, "cache_control": {"type": "ephemeral"}},
            own,
            {"name": "g", "input_schema": schema},
        ])
    );
    assert_eq!(made["tool_choice"], json!({"type": "any", "disable_parallel_tool_use": true}));
    let shorthand =
        json!([{"type": "web_search", "max_results": 3, "allowed_domains": ["a.example"], "max_uses": null}]);
    let parameters = json!({"max_results": 3, "allowed_domains": ["a.example"]});
    let found = json!([{"type": "tidegate:web_search", "parameters": parameters}]);
    assert_eq!(asked(&with(json!({"tools": shorthand})))["tools"], found);
    let nobody = with(json!({"model": "a/other", "tools": shorthand}));
    assert_eq!(read(nobody.to_string().as_bytes(), &search).unwrap().warnings, ["dropped:web_search"]);
}

#[test]
fn a_limit_that_leaves_no_room_for_thinking_is_told_as_it_is() {
    let refused = |given: Value| read(with(given).to_string().as_bytes(), &search).unwrap_err().message;
    for (given, expected) in [
        (
            json!({"max_tokens": 1024, "reasoning": {"max_tokens": 100}}),
            "max_tokens must be greater than 1024, the least that thinking takes",
        ),
        (
            json!({"max_tokens": 2000, "reasoning": {"max_tokens": 2000}}),
            "max_tokens must be greater than reasoning.max_tokens",
        ),
        (
            json!({"max_completion_tokens": 10, "max_tokens": 5000, "reasoning": {"max_tokens": 1}}),
            "max_completion_tokens must be greater than 1024, the least that thinking takes",
        ),
    ] {
        assert_eq!(refused(given.clone()), format!("Invalid request: {expected}"), "{given}");
    }
    assert_eq!(
        asked(&with(json!({"max_tokens": 1025, "reasoning": {"max_tokens": 1}})))["thinking"],
        json!({"type": "enabled", "budget_tokens": 1024})
    );
}

#[test]
fn a_tool_that_we_run_is_chosen_by_its_type() {
    let tools = json!([{"type": "tidegate:datetime"}]);
    let made = asked(&with(json!({"tools": tools, "tool_choice": {"type": "tidegate:datetime"}})));
    assert_eq!(made["tool_choice"], json!({"type": "tool", "name": "tidegate:datetime"}));
    let alone = json!({"tools": tools, "tool_choice": {"type": "tidegate:datetime"}, "parallel_tool_calls": false});
    let made = asked(&with(alone));
    let chosen = json!({"type": "tool", "name": "tidegate:datetime", "disable_parallel_tool_use": true});
    assert_eq!(made["tool_choice"], chosen);
}

#[test]
fn a_tool_that_takes_a_text_is_a_function_with_one_member() {
    let tools = json!([{"type": "custom", "custom": {"name": "c", "description": "d", "format": {"type": "text"}}}]);
    let choice = json!({"type": "custom", "custom": {"name": "c"}});
    let call = json!({"id": "t", "type": "custom", "custom": {"name": "c", "input": "a \"b\""}});
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "ok"}]);
    let body = with(json!({"tools": tools, "tool_choice": choice, "messages": messages}));
    let read = read(body.to_string().as_bytes(), &search).map_err(|violation| violation.message).unwrap();
    assert_eq!(read.form.custom, ["c"]);
    let made = asked(&body);
    let schema = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
    assert_eq!(made["tools"], json!([{"name": "c", "description": "d", "input_schema": schema}]));
    assert_eq!(made["tool_choice"], json!({"type": "tool", "name": "c"}));
    let used = json!({"type": "tool_use", "id": "t", "name": "c", "input": {"input": "a \"b\""}});
    assert_eq!(made["messages"][1]["content"][0], used);
    // Wrong ones are named by their place.
    let refused =
        |more: Value| super::read(with(more).to_string().as_bytes(), &search).map(|_| ()).unwrap_err().message;
    assert!(
        refused(json!({"tools": [{"type": "custom", "custom": {}}]})).ends_with("tools[0].custom.name is required")
    );
    let calls = json!([{"role": "assistant", "tool_calls": [{"id": "t", "type": "custom", "custom": {"name": "c", "input": 5}}]}]);
    let said = refused(json!({"messages": calls}));
    assert!(said.ends_with("messages[0].tool_calls[0].custom.input must be a string"), "{said}");
}

#[test]
fn such_a_tool_is_called_with_its_text() {
    let form = || Form { custom: vec!["f".to_owned()], ..Form::default() };
    let body = json!({"id": "m", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"input": "one\nline"}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {"input": "x"}}],
        "usage": {"input_tokens": 1, "output_tokens": 1}});
    let made: Value = serde_json::from_slice(&whole(body.to_string().as_bytes(), &head(), &form()).unwrap()).unwrap();
    let calls = &made["choices"][0]["message"]["tool_calls"];
    assert_eq!(calls[0], json!({"id": "t1", "type": "custom", "custom": {"name": "f", "input": "one\nline"}}));
    assert_eq!(calls[1]["function"], json!({"name": "g", "arguments": "{\"input\":\"x\"}"}));
    // In a stream it is told when it is whole.
    let stream = STREAM.replace(r#""{\"a\":""#, r#""{\"input\":""#).replace(r#""1}""#, r#""\"one\"}""#);
    assert_ne!(stream, STREAM);
    let told = told(stream.leak(), form(), &[]);
    let chunks = chunks(&told);
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"])
        .filter(|calls| !calls.is_null())
        .collect();
    let expected = [
        json!([{"index": 0, "id": "t1", "type": "custom", "custom": {"name": "f", "input": ""}}]),
        json!([{"index": 0, "custom": {"input": "one"}}]),
    ];
    assert_eq!(calls, expected.iter().collect::<Vec<_>>());
}

#[test]
fn only_tools_that_are_allowed_are_offered() {
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let tools = json!([function("f"), {"type": "web_search"}, function("g"), {"type": "tidegate:datetime"}]);
    let made = |allowed: Value| {
        asked(&with(json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}})))
    };
    let offered = |made: &Value| -> Vec<String> {
        let tools = made["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().or_else(|| tool["type"].as_str()).unwrap().to_owned()).collect()
    };
    let some = made(json!({"mode": "required", "tools": [function("g"), {"type": "web_search_preview"}]}));
    assert_eq!(
        (offered(&some), &some["tool_choice"]),
        (vec!["tidegate:web_search".to_owned(), "g".to_owned()], &json!({"type": "any"}))
    );
    let one = made(json!({"mode": "auto", "tools": [{"type": "tidegate:datetime"}]}));
    assert_eq!((offered(&one), &one["tool_choice"]), (vec!["tidegate:datetime".to_owned()], &json!({"type": "auto"})));
    assert_eq!(offered(&made(json!({"mode": "auto", "tools": []}))).len(), 4);
    let wrong =
        with(json!({"tools": tools, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any"}}}));
    let wrong = read(wrong.to_string().as_bytes(), &search).unwrap_err();
    assert_eq!(wrong.message, "Invalid request: tool_choice.allowed_tools.mode must be one of auto, required");
}

#[test]
fn what_caches_are_told_apart_by_is_carried() {
    let key =
        |key: Value| read(with(json!({"prompt_cache_key": key})).to_string().as_bytes(), &search).unwrap().cache_key;
    assert_eq!(key(json!("c-1")).as_deref(), Some("c-1"));
    assert_eq!(key(json!("é".repeat(256))), Some("é".repeat(256)));
    for none in [json!(null), json!(""), json!("x".repeat(257))] {
        assert_eq!(key(none), None);
    }
}

#[test]
fn what_nobody_has_a_use_for_is_named() {
    let body = with(json!({"logprobs": false, "top_logprobs": 3, "metadata": {"a": "b"}, "store": true, "x_new": 1}));
    assert_eq!(
        read(body.to_string().as_bytes(), &search).unwrap().warnings,
        ["dropped:top_logprobs", "dropped:metadata", "dropped:x_new"]
    );
    let twice = r#"{"model":"a/m","model":"b/m","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(read(twice.as_bytes(), &search).unwrap_err().message, "Invalid request: model appears more than once");
    assert_eq!(read(b"[]", &search).unwrap_err().message, "Invalid request: body must be an object");
    assert_eq!(read(b"{", &search).unwrap_err().message, "Invalid request: body is not valid JSON");
}

fn head() -> Head {
    Head { id: "gen-1".to_owned(), created: 1_790_000_000, metadata: "tidegate_metadata".to_owned() }
}

const STREAM: &str = concat!(
    ": TIDEGATE PROCESSING\n\n",
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"a/m\",\"provider\":\"P\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":3,\"output_tokens\":0,\"service_tier\":\"standard\"}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Hm é\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"sig\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Høj\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"type\":\"web_search_result_location\",\"cited_text\":\"c\",\"encrypted_index\":\"e\",\"title\":null,\"url\":\"https://a.example\"}}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"s\",\"name\":\"web_search\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"1}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":null,\"output_tokens\":7,\"cost\":0.0000100,\"is_byok\":false}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\",\"tidegate_metadata\":{\"attempt\":1}}\n\n",
);

/// The chunks of a stream, in pieces of these lengths.
fn told(stream: &'static str, form: Form, pieces: &[usize]) -> String {
    let (mut rest, mut out) = (Bytes::from_static(stream.as_bytes()), String::new());
    let mut made = Stream::new(head(), form, 1 << 20);
    for length in pieces {
        let piece = rest.split_to((*length).min(rest.len()));
        out.push_str(std::str::from_utf8(&made.feed(piece).unwrap()).unwrap());
    }
    out.push_str(std::str::from_utf8(&made.feed(rest).unwrap()).unwrap());
    out
}

fn chunks(text: &str) -> Vec<Value> {
    let lines = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn a_stream_is_told_in_chunks() {
    let text = told(STREAM, Form::default(), &[]);
    assert!(text.starts_with(": TIDEGATE PROCESSING\n\n") && text.ends_with("data: [DONE]\n\n"));
    let chunks = chunks(&text);
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let thought = |members: Value| {
        let mut detail = json!({"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0});
        detail.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!([detail])
    };
    let expected = [
        json!({"role": "assistant", "content": ""}),
        json!({"reasoning": "Hm é", "reasoning_details": thought(json!({"text": "Hm é"}))}),
        json!({"reasoning_details": thought(json!({"signature": "sig"}))}),
        json!({"content": "Høj"}),
        json!({"annotations": [{"index": 0, "type": "url_citation", "url_citation": {"url": "https://a.example", "title": "", "content": "c", "start_index": 0, "end_index": 3}}]}),
        json!({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"a\":"}}]}),
        json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
        json!({"reasoning_details": [{"type": "reasoning.server_tool_call", "tool_name": "web_search", "arguments": "{}",
            "result": "", "tool_call_id": "s", "index": 2}]}),
        json!({}),
    ];
    assert_eq!(deltas, expected.iter().collect::<Vec<_>>());
    let last = chunks.last().unwrap();
    assert_eq!(
        (&last["choices"][0]["finish_reason"], &last["choices"][0]["native_finish_reason"]),
        (&json!("tool_calls"), &json!("tool_use"))
    );
    assert_eq!(last["usage"]["prompt_tokens"], 8);
    assert_eq!(
        (&last["usage"]["total_tokens"], &last["usage"]["prompt_tokens_details"]["cached_tokens"]),
        (&json!(15), &json!(3))
    );
    assert!(text.contains(r#""cost":0.0000100"#), "money keeps its digits");
    assert_eq!(last["tidegate_metadata"], json!({"attempt": 1}));
    for chunk in &chunks {
        let said = [&chunk["id"], &chunk["object"], &chunk["created"], &chunk["model"], &chunk["provider"]];
        assert_eq!(
            said,
            [&json!("gen-1"), &json!("chat.completion.chunk"), &json!(1_790_000_000), &json!("a/m"), &json!("P")]
        );
    }
}

#[test]
fn thoughts_that_are_not_wanted_are_not_told() {
    let form = Form { hides_reasoning: true, usage_apart: true, ..Form::default() };
    let text = told(STREAM, form, &[]);
    assert!(!text.contains("reasoning\"") && !text.contains("reasoning.text") && !text.contains("sig"));
    let chunks = chunks(&text);
    let [.., last, apart] = chunks.as_slice() else { panic!("{text}") };
    assert_eq!((last.get("usage"), &apart["choices"]), (None, &json!([])));
    assert_eq!(apart["usage"]["completion_tokens"], 7);
}

const CALLS: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"a/m\",\"usage\":{\"input_tokens\":5.0}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"b\\\":2}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t3\",\"name\":\"h\",\"input\":{\"c\":3}}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":7.0}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// Also where a server mixes them up, begins with the input and writes counts with a point.
#[test]
fn pieces_belong_to_their_call() {
    let chunks = chunks(&told(CALLS, Form::default(), &[]));
    let mut arguments = [String::new(), String::new(), String::new()];
    for call in chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].get(0)) {
        let number = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
        arguments[number].push_str(call["function"]["arguments"].as_str().unwrap());
    }
    assert_eq!(arguments, [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"c":3}"#]);
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length");
    assert_eq!((&last["usage"]["prompt_tokens"], &last["usage"]["completion_tokens"]), (&json!(5), &json!(7)));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
}

#[test]
fn thoughts_go_back_where_they_stood() {
    let thought = |text: &str| json!({"type": "thinking", "thinking": text, "signature": text});
    let text = |text: &str| json!({"type": "text", "text": text, "citations": null});
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result",
        "url": "https://a.example", "title": "T", "encrypted_content": "tg1.x", "page_age": null}]});
    for content in [
        json!([thought("a"), text("b"), thought("c"), call]),
        json!([thought("a"), search, thought("c"), text("b"), call]),
        json!([thought("a"), search, found, text("b"), call]),
        json!([text("b"), search, found, call]),
        json!([text("b"), thought("a"), call]),
        json!([thought("a"), {"type": "redacted_thinking", "data": "d"}, text("b")]),
        json!([thought("a"), call]),
    ] {
        let usage = json!({"input_tokens": 1, "output_tokens": 2});
        let answer = json!({"id": "m", "type": "message", "role": "assistant", "model": "a/m", "content": content, "stop_reason": "tool_use", "usage": usage});
        let made: Value =
            serde_json::from_slice(&whole(answer.to_string().as_bytes(), &head(), &Form::default()).unwrap()).unwrap();
        let said = &made["choices"][0]["message"];
        let user = json!({"role": "user", "content": "x"});
        let again = asked(&with(json!({"messages": [user, said, user]})));
        let mut wanted: Vec<Value> = content.as_array().unwrap().clone();
        for block in &mut wanted {
            block.as_object_mut().unwrap().remove("citations");
        }
        assert_eq!(again["messages"][1]["content"], json!(wanted));
    }
}

#[test]
fn results_stand_behind_their_calls() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"cut"}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    let made = asked(&with(json!({"messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "again"},
        {"role": "assistant", "tool_calls": [call("c"), call("d")]},
        result("c"),
        {"role": "system", "content": "meanwhile"},
        result("d"),
        {"role": "user", "content": "so?"},
    ]})));
    let roles: Vec<&str> =
        made["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "user", "assistant", "user", "system", "user"]);
    assert_eq!(made["messages"][3]["content"].as_array().map(Vec::len), Some(2));
    // What was cut short in an earlier answer is told as it is.
    assert_eq!(made["messages"][2]["content"][0]["input"], json!({"arguments": "{\"cut"}));
}

#[test]
fn a_failure_is_the_last_chunk() {
    let stream = concat!(
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy\",\"error_type\":\"provider_overloaded\",\"availability\":{\"code\":\"c\"}},",
        "\"request_id\":\"gen-1\",\"metadata\":{\"provider_name\":\"P\",\"provider_code\":\"x\"}}\n\n",
    );
    let text = told(stream, Form { model: "a/m".to_owned(), ..Form::default() }, &[]);
    let chunks = chunks(&text);
    assert_eq!(chunks.len(), 1);
    // Nobody has begun to answer.
    assert_eq!((&chunks[0]["model"], &chunks[0]["provider"]), (&json!("a/m"), &json!("P")));
    assert_eq!(
        chunks[0]["error"],
        json!({"code": 503, "message": "Busy", "error_type": "provider_overloaded", "http_status": 503, "availability": {"code": "c"},
            "metadata": {"error_type": "provider_overloaded", "provider_name": "P", "provider_code": "x"}})
    );
    assert_eq!(
        chunks[0]["choices"],
        json!([{"index": 0, "delta": {"content": ""}, "finish_reason": "error", "logprobs": null}])
    );
    assert!(text.ends_with("data: [DONE]\n\n"));
}

#[test]
fn a_model_that_declines_says_so_in_a_member_of_its_own() {
    let stream = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"a/m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}\n: declines\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"I cannot\"}}\n\n",
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7,\"cost\":null,\"cost_details\":null}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    let chunks = chunks(&told(stream, Form::default(), &[]));
    assert_eq!(chunks[1]["choices"][0]["delta"], json!({"refusal": "I cannot"}));
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "stop");
    let usage = chunks[2]["usage"].as_object().unwrap();
    assert!(usage["cost"].is_null() && usage["cost_details"].is_null(), "no price is no cost");
    let said = |text: &str| -> Value {
        let details = json!({"type": "refusal", "category": "c", "explanation": "I cannot"});
        let body = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "refusal",
            "stop_details": details, "usage": {"input_tokens": 1, "output_tokens": 2, "cost": null},
            "content": [{"type": "text", "text": text}]});
        let made = whole(body.to_string().as_bytes(), &head(), &Form::default()).unwrap();
        serde_json::from_slice::<Value>(&made).unwrap()["choices"][0].clone()
    };
    let (declined, filtered) = (said("I cannot"), said("The first step is"));
    assert_eq!(declined["message"], json!({"role": "assistant", "content": null, "refusal": "I cannot"}));
    assert_eq!(declined["finish_reason"], "stop");
    assert_eq!(filtered["message"], json!({"role": "assistant", "content": "The first step is", "refusal": null}));
    assert_eq!(filtered["finish_reason"], "content_filter");
}

#[test]
fn an_answer_that_only_calls_says_nothing() {
    let body = |content: Value| {
        let usage = json!({"input_tokens": 1, "output_tokens": 2});
        json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "content": content, "stop_reason": "refusal", "usage": usage})
    };
    let said = |content: Value| -> Value {
        let made = whole(body(content).to_string().as_bytes(), &head(), &Form::default()).unwrap();
        serde_json::from_slice(&made).unwrap()
    };
    let call = said(json!([{"type": "tool_use", "id": "t", "name": "f", "input": {}}]));
    assert_eq!(call["choices"][0]["message"]["content"], json!(null));
    let nothing = said(json!([]));
    assert_eq!(nothing["choices"][0]["message"]["content"], json!(""));
    assert_eq!(
        (&nothing["choices"][0]["finish_reason"], &nothing["system_fingerprint"]),
        (&json!("content_filter"), &json!(null))
    );
    assert!(whole(b"{}", &head(), &Form::default()).is_none());
}

proptest! {
    /// However the bytes arrive, the chunks are the same.
    #[test]
    fn pieces_do_not_matter(pieces in prop::collection::vec(1_usize..60, 0..80)) {
        prop_assert_eq!(told(STREAM, Form::default(), &pieces), told(STREAM, Form::default(), &[]));
    }
}
