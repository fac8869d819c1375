use serde_json::{Value, json};

use super::super::{Form, Results, Stream, read, whole};
use crate::chat::Head;
use crate::envelope::{self, Brand, Purpose};

const BRAND: Brand<'_> = Brand { name: "tidegate", aliases: &[] };

/// The body that a request becomes, and how its caller wants to be answered.
fn asked(body: &Value) -> (Value, Form, Vec<String>) {
    let asked = read(body.to_string().as_bytes(), &|_| None).map_err(|violation| violation.message).unwrap();
    envelope::read(&asked.body, BRAND, Purpose::Generate).map_err(|violation| violation.message).unwrap();
    (serde_json::from_slice(&asked.body).unwrap(), asked.form, asked.warnings)
}

fn refused(body: &Value) -> String {
    read(body.to_string().as_bytes(), &|_| None).unwrap_err().message
}

fn head() -> Head {
    Head { id: "gen-1".to_owned(), created: 1_790_000_000, metadata: "tidegate_metadata".to_owned() }
}

/// The items of an answer that calls a tool, whole and streamed.
fn called(form: &Form, name: &str, input: &Value) -> [Value; 2] {
    let call = json!({"type": "tool_use", "id": "c1", "name": name, "input": input});
    let answer = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 7}, "content": [call]});
    let nothing: Results = Box::new(|_| None);
    let made = whole(answer.to_string().as_bytes(), &head(), form, &nothing).unwrap();
    let made: Value = serde_json::from_slice(&made).unwrap();
    let begun = json!({"type": "tool_use", "id": "c1", "name": name, "input": {}});
    let delta = json!({"type": "input_json_delta", "partial_json": input.to_string()});
    let events = [
        json!({"type": "content_block_start", "index": 0, "content_block": begun}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let told: String =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect();
    let mut stream = Stream::new(head(), form.clone(), 1 << 20, 1 << 20, Box::new(|_| None));
    let out = stream.feed(told.into()).unwrap();
    let last = std::str::from_utf8(&out).unwrap().lines().rev().find_map(|line| line.strip_prefix("data: {")).unwrap();
    let last: Value = serde_json::from_str(&format!("{{{last}")).unwrap();
    [made["output"][0].clone(), last["response"]["output"][0].clone()]
}

fn docs() -> Value {
    json!({"type": "namespace", "name": "mcp__docs", "description": "The handbook.", "tools": [
        {"type": "function", "name": "search", "description": "Finds pages.", "strict": false, "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
        {"type": "custom", "name": "patch", "description": "Changes one."},
    ]})
}

#[test]
fn tools_of_a_group_have_its_name_there_and_their_own_here() {
    let (body, form, warnings) = asked(&json!({"model": "a/m", "input": [
        {"role": "user", "content": "look"},
        {"type": "function_call", "namespace": "mcp__docs", "name": "search", "call_id": "c0", "arguments": "{\"q\":\"a\"}"},
        {"type": "function_call_output", "call_id": "c0", "output": "none"},
    ], "tools": [docs(), {"type": "namespace", "name": "ends_", "description": "", "tools": [{"type": "function", "name": "f"}]}]}));
    let text = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
    assert_eq!(
        body["tools"],
        json!([
            {"name": "mcp__docs__search", "description": "Finds pages.\n\nmcp__docs: The handbook.", "strict": false,
                "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}},
            {"name": "mcp__docs__patch", "description": "Changes one.", "input_schema": text},
            {"name": "ends_f", "input_schema": {"type": "object", "properties": {}}},
        ])
    );
    assert_eq!(body["messages"][1]["content"][0]["name"], "mcp__docs__search");
    assert!(warnings.is_empty(), "{warnings:?}");
    for item in called(&form, "mcp__docs__search", &json!({"q": "b"})) {
        assert_eq!(
            item,
            json!({"type": "function_call", "id": "fc_1_0", "call_id": "c1", "namespace": "mcp__docs", "name": "search",
                "arguments": "{\"q\":\"b\"}", "status": "completed"})
        );
    }
    for item in called(&form, "mcp__docs__patch", &json!({"input": "a line"})) {
        assert_eq!(
            (&item["type"], &item["namespace"], &item["name"], &item["input"]),
            (&json!("custom_tool_call"), &json!("mcp__docs"), &json!("patch"), &json!("a line"))
        );
    }
}

#[test]
fn tools_that_come_with_an_item_stand_among_the_others() {
    let (body, form, _) = asked(&json!({"model": "a/m", "input": [
        {"type": "additional_tools", "role": "developer", "tools": [docs()]},
        {"role": "user", "content": "look"},
    ], "tools": [{"type": "function", "name": "own"}]}));
    let names: Vec<&Value> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["own", "mcp__docs__search", "mcp__docs__patch"]);
    assert_eq!(called(&form, "mcp__docs__search", &json!({}))[1]["namespace"], "mcp__docs");
}

#[test]
fn a_client_that_looks_for_tools_is_asked_and_what_it_found_is_there() {
    let found = json!({"type": "tool_search_output", "execution": "client", "call_id": "s1", "status": "completed", "tools": [docs()]});
    let (body, form, warnings) = asked(&json!({"model": "a/m", "input": [
        {"role": "user", "content": "look"},
        {"type": "tool_search_call", "execution": "client", "call_id": "s1", "status": "completed", "arguments": {"query": "docs"}},
        {"role": "user", "content": "meanwhile"},
        found,
    ], "tools": [{"type": "tool_search", "execution": "client", "description": "Finds tools.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}]}));
    let names: Vec<&Value> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["tool_search", "mcp__docs__search", "mcp__docs__patch"]);
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
        [
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "s1", "name": "tool_search", "input": {"query": "docs"}}]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "s1", "content": "mcp__docs__search\nmcp__docs__patch"},
                {"type": "text", "text": "meanwhile"},
            ]}),
        ]
    );
    assert!(warnings.is_empty(), "{warnings:?}");
    for item in called(&form, "tool_search", &json!({"query": "more"})) {
        assert_eq!(
            item,
            json!({"type": "tool_search_call", "id": "tsc_1_0", "call_id": "c1", "execution": "client",
                "arguments": {"query": "more"}, "status": "completed"})
        );
    }
}

#[test]
fn a_search_for_tools_that_nobody_makes_is_made_here() {
    let (body, ..) = asked(&json!({"model": "a/m", "input": "hi", "tools": [
        {"type": "function", "name": "rare", "defer_loading": true},
        {"type": "tool_search"},
    ]}));
    assert_eq!((&body["tools"][0]["name"], &body["tools"][0]["defer_loading"]), (&json!("rare"), &json!(true)));
    assert_eq!(body["tools"][1]["type"], "tool_search_tool_bm25");
    // Where nothing is looked for, all of them are there from the beginning.
    let (body, ..) = asked(
        &json!({"model": "a/m", "input": "hi", "tools": [{"type": "function", "name": "rare", "defer_loading": true}]}),
    );
    assert_eq!(body["tools"][0].get("defer_loading"), None);
}

#[test]
fn a_choice_of_some_tools_may_name_groups() {
    let body = |chosen: Value| {
        let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": [chosen]});
        json!({"model": "a/m", "input": "hi", "tools": [docs(), {"type": "function", "name": "own"}], "tool_choice": choice})
    };
    for (chosen, names) in [
        (json!({"type": "namespace", "name": "mcp__docs"}), vec!["mcp__docs__search", "mcp__docs__patch"]),
        (json!({"type": "function", "name": "mcp__docs__search"}), vec!["mcp__docs__search"]),
        (json!({"type": "namespace", "name": "other"}), vec![]),
        (json!({"type": "function", "name": "own"}), vec!["own"]),
    ] {
        let (body, ..) = asked(&body(chosen));
        let made: Vec<&Value> = body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(made, names);
    }
}

#[test]
fn what_is_told_again_is_one_tool() {
    let found = |id: Value, tools: Value| json!({"type": "tool_search_output", "execution": "server", "call_id": id, "tools": tools});
    let function = |name: &str, about: &str| json!({"type": "function", "name": name, "description": about});
    let deferred = json!({"type": "function", "name": "rare", "description": "before", "defer_loading": true});
    let (body, ..) = asked(&json!({"model": "a/m", "input": [
        {"role": "user", "content": "x"},
        found(Value::Null, json!([function("rare", "found"), docs()])),
        found(Value::Null, json!([docs()])),
        {"type": "additional_tools", "role": "developer", "tools": [function("rare", "again")]},
    ], "tools": [deferred, docs(), {"type": "tool_search"}]}));
    let tools: Vec<Value> =
        body["tools"].as_array().unwrap().iter().map(|tool| json!([tool["name"], tool.get("defer_loading")])).collect();
    let names = ["rare", "mcp__docs__search", "mcp__docs__patch", "tool_search_tool_bm25"];
    assert_eq!(tools, names.map(|name| json!([name, null])));
    assert_eq!(body["tools"][0]["description"], "again");
    // Two tools of one name in one list are a mistake.
    let twice = json!({"model": "a/m", "input": "hi", "tools": [function("f", "a"), function("f", "b")]});
    let body = read(twice.to_string().as_bytes(), &|_| None).unwrap().body;
    assert!(envelope::read(&body, BRAND, Purpose::Generate).is_err());
}

#[test]
fn a_tool_of_a_group_can_be_chosen() {
    let body = |choice: Value, more: Value| {
        let mut tools = vec![docs()];
        tools.extend(more.as_array().unwrap().iter().cloned());
        asked(&json!({"model": "a/m", "input": "hi", "tools": tools, "tool_choice": choice})).0["tool_choice"].clone()
    };
    let chosen = json!({"type": "tool", "name": "mcp__docs__search"});
    for choice in [
        json!({"type": "function", "name": "search"}),
        json!({"type": "function", "name": "search", "namespace": "mcp__docs"}),
        json!({"type": "function", "name": "mcp__docs__search"}),
    ] {
        assert_eq!(body(choice.clone(), json!([])), chosen, "{choice}");
    }
    let finder = json!([{"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}]);
    assert_eq!(body(json!({"type": "tool_search"}), finder), json!({"type": "tool", "name": "tool_search"}));
    let own = json!([{"type": "function", "name": "search"}]);
    assert_eq!(body(json!({"type": "function", "name": "search"}), own), json!({"type": "tool", "name": "search"}));
}

#[test]
fn what_is_wrong_in_a_group_is_named_with_its_place() {
    let with = |tool: Value| json!({"model": "a/m", "input": "hi", "tools": [{"type": "namespace", "name": "n", "description": "", "tools": [tool]}]});
    for (tool, text) in [
        (json!({"type": "web_search"}), "tools[0].tools[0].type must be one of function, custom"),
        (json!({"type": "function"}), "tools[0].tools[0].name is required"),
        (json!({"type": "function", "name": "f", "parameters": 1}), "tools[0].tools[0].parameters must be an object"),
    ] {
        let said = refused(&with(tool));
        assert!(said.ends_with(text), "{said}");
    }
    let said =
        refused(&json!({"model": "a/m", "input": [{"type": "additional_tools", "tools": [{"type": "function"}]}]}));
    assert!(said.ends_with("input[0].tools[0].name is required"), "{said}");
}

#[test]
fn tools_that_nobody_has_are_not_said_to_be_had_here() {
    for kind in ["shell", "local_shell"] {
        let message = refused(&json!({"model": "a/m", "input": "hi", "tools": [{"type": kind}]}));
        assert_eq!(message, format!("Invalid request: tools[0].type '{kind}' is not supported"));
    }
}
