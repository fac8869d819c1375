use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::envelope::{Brand, Purpose};

const BRAND: Brand<'_> = Brand { name: "tidegate", aliases: &[] };

fn search(model: &str) -> Option<String> {
    (model == "a/m").then(|| "tidegate:web_search".to_owned())
}

fn asked(body: &Value) -> Value {
    let asked = read(body.to_string().as_bytes(), &search).map_err(|violation| violation.message).unwrap();
    // What is made is always a body that the gateway itself can read.
    crate::envelope::read(&asked.body, BRAND, Purpose::Generate).map_err(|violation| violation.message).unwrap();
    serde_json::from_slice(&asked.body).unwrap()
}

fn with(mut more: Value) -> Value {
    let members = more.as_object_mut().unwrap();
    members.entry("model").or_insert(json!("a/m"));
    members.entry("input").or_insert(json!("hi"));
    more
}

#[test]
fn what_the_format_has_no_word_for_is_named() {
    let items = json!([
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/x.png", "detail": "high"}]},
        {"type": "local_shell_call", "call_id": "c", "action": {}},
        {"type": "local_shell_call_output", "call_id": "c", "output": "done"},
        {"type": "local_shell_call", "call_id": "d", "action": {}},
    ]);
    let asked = read(json!({"model": "a/b", "input": items}).to_string().as_bytes(), &|_| None).unwrap();
    assert_eq!(
        asked.warnings,
        ["dropped:input_image.detail", "dropped:local_shell_call", "dropped:local_shell_call_output"]
    );
}

#[test]
fn instructions_alone_are_what_is_asked() {
    let made = asked(&with(json!({"input": [{"role": "developer", "content": "two"}], "instructions": "one"})));
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(made["messages"], json!([{"role": "user", "content": [text("one"), text("two")]}]));
    assert_eq!(made.get("system"), None);
}

#[test]
fn items_in_a_row_are_turns() {
    let made = asked(&with(json!({
        "input": [
            {"role": "developer", "content": "two"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}], "encrypted_content": "tgr1.s.sig"},
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "tgr1.d.data"},
            {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "another vendor's"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"n\":1}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "a line"},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"type": "function_call_output", "call_id": "c1", "output": "r1"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "r2"}]},
            {"role": "user", "content": "and?"},
        ],
        "instructions": "one",
    })));
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(made["system"], json!([text("one"), text("two")]));
    assert_eq!(
        made["messages"],
        json!([
            {"role": "user", "content": [text("hi")]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "ab", "signature": "sig"},
                {"type": "redacted_thinking", "data": "data"},
                text("so"),
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"n": 1}},
                {"type": "tool_use", "id": "c2", "name": "g", "input": {"input": "a line"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("r2")]},
                text("and?"),
            ]},
        ])
    );
}

#[test]
fn tools_and_options_have_the_words_of_the_other_format() {
    let made = asked(&with(json!({
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
            {"type": "custom", "name": "g", "format": {"type": "text"}},
            {"type": "web_search_preview", "search_context_size": "low", "filters": {"allowed_domains": ["a.example"]}},
        ],
        "tool_choice": "required",
        "max_output_tokens": 9,
        "text": {"verbosity": "low", "format": {"type": "json_object"}},
        "reasoning": {"effort": "high", "summary": "auto"},
        "store": false,
        "include": ["reasoning.encrypted_content"],
    })));
    let text = json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
    let wanted = json!({"search_context_size": "low", "allowed_domains": ["a.example"]});
    assert_eq!(
        made["tools"],
        json!([
            {"name": "f", "input_schema": {"type": "object"}},
            {"name": "g", "input_schema": text},
            {"type": "tidegate:web_search", "parameters": wanted},
        ])
    );
    assert_eq!((&made["tool_choice"], &made["max_tokens"]), (&json!({"type": "any"}), &json!(9)));
    let beside = json!({"verbosity": "low", "response_format": {"type": "json_object"}});
    assert_eq!((&made["chat_options"], &made["output_config"]), (&beside, &json!({"effort": "high"})));
    assert_eq!(made["thinking"], json!({"type": "adaptive"}));
    let stored = read(with(json!({"store": true, "top_logprobs": 3})).to_string().as_bytes(), &search).unwrap();
    let offered = with(json!({"model": "a/other", "tools": [{"type": "web_search"}], "tool_choice": "auto"}));
    let offered = read(offered.to_string().as_bytes(), &search).unwrap();
    assert_eq!(offered.warnings, ["dropped:web_search"]);
    assert!(!String::from_utf8_lossy(&offered.body).contains("tool_choice"));
    assert_eq!(stored.warnings, ["dropped:store", "dropped:top_logprobs"]);
}

fn head() -> Head {
    Head { id: "gen-1".to_owned(), created: 1_790_000_000, metadata: "tidegate_metadata".to_owned() }
}

fn nothing() -> Results {
    Box::new(|_| None)
}

const STREAM: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"a/m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"d\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Høj\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":[]}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"text_delta\",\"text\":\" vand\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"citations_delta\",\"citation\":{\"type\":\"web_search_result_location\",\"cited_text\":\"c\",\"encrypted_index\":\"e\",\"title\":\"T\",\"url\":\"https://a.example\"}}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"g\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"input\\\":\\\"a\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":3,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\" line\\\"}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7,\"cost\":0.0000100}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// The events of a stream, in pieces of these lengths.
fn told(stream: &'static str, pieces: &[usize]) -> String {
    let form = Form {
        echo: r#","tools":[]"#.to_owned(),
        custom: vec!["g".to_owned()],
        model: "asked/for".to_owned(),
        brand: "tidegate".to_owned(),
        ..Form::default()
    };
    let (mut rest, mut out) = (Bytes::from_static(stream.as_bytes()), String::new());
    let mut made = Stream::new(head(), form, 1 << 20, 1 << 20, Box::new(|_| None));
    for length in pieces {
        let piece = rest.split_to((*length).min(rest.len()));
        out.push_str(std::str::from_utf8(&made.feed(piece).unwrap()).unwrap());
    }
    out.push_str(std::str::from_utf8(&made.feed(rest).unwrap()).unwrap());
    out
}

fn events(text: &str) -> Vec<Value> {
    let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
    let events = frames.map(|frame| {
        let (name, data) = frame.split_once("\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", event["type"].as_str().unwrap()));
        event
    });
    events.collect()
}

#[test]
fn a_stream_ends_with_what_a_whole_answer_says() {
    let events = events(&told(STREAM, &[]));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.completed"), &json!("completed")));
    let citation =
        json!({"type": "url_citation", "start_index": 3, "end_index": 8, "url": "https://a.example", "title": "T"});
    let part = json!({"type": "output_text", "text": "Høj vand", "annotations": [citation], "logprobs": []});
    let output = json!([
        {"type": "reasoning", "id": "rs_1_0", "summary": [], "encrypted_content": "tgr1.d.d"},
        {"type": "message", "id": "msg_1_1", "status": "completed", "role": "assistant", "content": [part]},
        {"type": "custom_tool_call", "id": "ctc_1_2", "call_id": "t1", "name": "g", "input": "a line", "status": "completed"},
    ]);
    assert_eq!(last["response"]["output"], output);
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(json!(done), output);
    assert_eq!(last["response"]["usage"]["total_tokens"], 12);
    let answer = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "tool_use",
    "usage": {"input_tokens": 5, "output_tokens": 7}, "content": [
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "Høj", "citations": null},
        {"type": "text", "text": " vand", "citations": [{"type": "web_search_result_location", "cited_text": "c", "encrypted_index": "e", "title": "T", "url": "https://a.example"}]},
        {"type": "tool_use", "id": "t1", "name": "g", "input": {"input": "a line"}},
    ]});
    let form = Form {
        echo: String::new(),
        custom: vec!["g".to_owned()],
        model: "asked/for".to_owned(),
        brand: "tidegate".to_owned(),
        ..Form::default()
    };
    let made: Value =
        serde_json::from_slice(&whole(answer.to_string().as_bytes(), &head(), &form, &nothing()).unwrap()).unwrap();
    assert_eq!(made["output"], output);
}

#[test]
fn pieces_belong_to_their_call() {
    let begun = |index: u64, id: &str, input: &str| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{input}}}}}\n\n"
        )
    };
    let piece = |index: u64, json: &str| {
        let data = json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": json}});
        format!("event: content_block_delta\ndata: {data}\n\n")
    };
    let stop = |index: u64| {
        format!("event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n")
    };
    let end = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\"},\"usage\":{\"output_tokens\":7.0}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    let stream = [
        begun(0, "t1", "{}"),
        begun(1, "t2", "{}"),
        piece(0, "{\"a\":1}"),
        piece(1, "{\"b"),
        stop(0),
        stop(1),
        begun(2, "t3", "{\"c\":3}"),
        stop(2),
        end.to_owned(),
    ]
    .concat();
    let events = events(&told(Box::leak(stream.into_boxed_str()), &[]));
    // Nobody said that it began: it begins all the same.
    assert_eq!(events[0]["type"], "response.created");
    let last = &events.last().unwrap()["response"];
    let calls: Vec<Value> = last["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| json!([item["call_id"], item["arguments"], item["status"]]))
        .collect();
    assert_eq!(
        json!(calls),
        json!([["t1", "{\"a\":1}", "completed"], ["t2", "{\"b", "incomplete"], ["t3", "{\"c\":3}", "completed"]])
    );
    assert_eq!((&last["status"], &last["usage"]["output_tokens"]), (&json!("incomplete"), &json!(7)));
}

#[test]
fn results_stand_behind_their_calls() {
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    let made = asked(&with(json!({"input": [
        {"role": "user", "content": "hi"}, call("c"), call("d"),
        {"role": "user", "content": "meanwhile"}, result("c"), {"role": "developer", "content": "mind"}, result("d"),
    ]})));
    let roles: Vec<&str> =
        made["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "system"]);
    let kinds: Vec<&str> = made["messages"][2]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text"]);
    let choice = |choice: Value| {
        asked(&with(json!({"tools": [{"type": "custom", "name": "p"}], "tool_choice": choice})))["tool_choice"].clone()
    };
    assert_eq!(choice(json!({"type": "custom", "name": "p"})), json!({"type": "tool", "name": "p"}));
    assert_eq!(choice(json!({"type": "allowed_tools", "mode": "required", "tools": []})), json!({"type": "any"}));
    assert_eq!(choice(json!({"type": "web_search_preview"})), json!(null));
    let tools = json!([{"type": "function", "name": "f"}, {"type": "custom", "name": "p"}, {"type": "web_search"}]);
    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "p"}, {"type": "web_search"}]});
    let made = asked(&with(json!({"tools": tools, "tool_choice": allowed})));
    assert_eq!(made["tools"].as_array().unwrap().len(), 2);
    assert_eq!((&made["tools"][0]["name"], &made["tool_choice"]), (&json!("p"), &json!({"type": "auto"})));
}

#[test]
fn inp_2_a_member_that_stands_twice_is_named_as_it_stands() {
    let twice = r#"{"model":"a/m","model":"b/m","input":"hi"}"#;
    assert_eq!(read(twice.as_bytes(), &search).unwrap_err().message, "Invalid request: model appears more than once");
    assert_eq!(read(b"[]", &search).unwrap_err().message, "Invalid request: body must be an object");
}

#[test]
fn thoughts_that_are_to_be_told_are_thought() {
    let made = asked(&with(json!({"reasoning": {"summary": "auto"}, "prompt_cache_key": "c"})));
    assert_eq!(made["thinking"], json!({"type": "adaptive"}));
    let short = with(json!({"max_output_tokens": 1024, "reasoning": {"max_tokens": 1}}));
    let short = read(short.to_string().as_bytes(), &search).unwrap_err().message;
    assert_eq!(short, "Invalid request: max_output_tokens must be greater than 1024, the least that thinking takes");
    let keyed = read(with(json!({"prompt_cache_key": "c"})).to_string().as_bytes(), &search).unwrap();
    assert_eq!(keyed.cache_key.as_deref(), Some("c"));
}

/// Cut off in the middle of a call, clients go on with the conversation.
#[test]
fn what_follows_a_call_that_nobody_answered_stays_where_it_is() {
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    let told = |input: Value| -> Vec<String> {
        let made = asked(&with(json!({"input": input})));
        let blocks = made["messages"].as_array().unwrap().iter().flat_map(|turn| {
            let role = turn["role"].as_str().unwrap()[..1].to_owned();
            let name = |block: &Value| {
                let name = ["text", "id", "tool_use_id"].iter().find_map(|name| block[*name].as_str());
                format!("{role}:{}", name.unwrap())
            };
            turn["content"].as_array().unwrap().iter().map(name).collect::<Vec<_>>()
        });
        blocks.collect()
    };
    let cut = json!([said("user", "u1"), call("A"), said("user", "u2"), said("assistant", "a1"), said("user", "u3")]);
    assert_eq!(told(cut), ["u:u1", "a:A", "u:u2", "a:a1", "u:u3"]);
    let before = json!([result("A"), call("A"), said("user", "u1"), call("B"), said("user", "u2"), result("B")]);
    assert_eq!(told(before), ["u:A", "a:A", "u:u1", "a:B", "u:B", "u:u2"]);
    let both = json!([call("A"), call("B"), said("user", "u1"), result("B"), said("assistant", "a1")]);
    assert_eq!(told(both), ["a:A", "a:B", "u:B", "u:u1", "a:a1"]);
}

#[test]
fn a_failure_is_the_last_event() {
    let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"Busy\",\"error_type\":\"rate_limit_exceeded\",\"availability\":{\"retry_after\":20}},\"request_id\":null,\"metadata\":{\"provider_name\":\"P\"},\"tidegate_metadata\":{\"attempt\":2}}\n\n";
    let early = events(&told(error, &[]));
    assert_eq!(
        early,
        [
            json!({"type": "error", "sequence_number": 0, "code": "rate_limit_exceeded", "message": "Busy", "param": null,
                "error_type": "rate_limit_exceeded", "availability": {"retry_after": 20}, "metadata": {"provider_name": "P"},
                "tidegate_metadata": {"attempt": 2}})
        ]
    );
    let begun = STREAM.split_inclusive("\n\n").take(5).collect::<String>() + error;
    let late = events(&told(Box::leak(begun.into_boxed_str()), &[]));
    let last = late.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(
        last["response"]["error"],
        json!({"code": "rate_limit_exceeded", "message": "Busy", "availability": {"retry_after": 20},
            "metadata": {"provider_name": "P"}})
    );
    assert_eq!(last["response"]["error_type"], "rate_limit_exceeded");
    assert_eq!(last["response"]["tidegate_metadata"], json!({"attempt": 2}));
    // What was told stays told.
    let message = &last["response"]["output"][1];
    assert_eq!((&message["content"][0]["text"], &message["status"]), (&json!("Høj"), &json!("incomplete")));
    let call = STREAM.split_inclusive("\n\n").take(12).collect::<String>() + error;
    let last = events(&told(Box::leak(call.into_boxed_str()), &[])).pop().unwrap();
    let call = &last["response"]["output"][2];
    assert_eq!((&call["call_id"], &call["status"]), (&json!("t1"), &json!("incomplete")));
}

const DECLINED: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"a/m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}\n: declines\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"I can\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"not\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\",\"stop_sequence\":null,\"stop_details\":{\"type\":\"refusal\",\"category\":\"c\",\"explanation\":\"I cannot\"}},\"usage\":{\"output_tokens\":7,\"cost\":null}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const RAN: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"a/m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":0}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_1\",\"name\":\"web_search\",\"input\":{},\"caller\":{\"type\":\"direct\"}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"query\\\":\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"tides\\\"}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"srvtoolu_2\",\"name\":\"tidegate:image_generation\",\"input\":{\"prompt\":\"a boat\"},\"caller\":{\"type\":\"direct\"}}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"web_search_tool_result\",\"tool_use_id\":\"srvtoolu_1\",\"content\":[{\"type\":\"web_search_result\",\"url\":\"https://a.example\",\"title\":\"T\",\"encrypted_content\":\"tg1.x\",\"page_age\":null}]}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{}}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

#[test]
fn what_ran_here_is_an_item_that_can_be_sent_back() {
    let drawn = || -> Results {
        Box::new(|id| (id == "srvtoolu_2").then(|| r#"{"status":"ok","imageUrl":"https://g.example/i"}"#.to_owned()))
    };
    let form = Form { brand: "tidegate".to_owned(), ..Form::default() };
    let mut made = Stream::new(head(), form.clone(), 1 << 20, 1 << 20, drawn());
    let text = made.feed(Bytes::from_static(RAN.as_bytes())).unwrap();
    let events = events(std::str::from_utf8(&text).unwrap());
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<Value>>();
    let (added, done) = (of("response.output_item.added"), of("response.output_item.done"));
    assert_eq!((added.len(), done.len()), (3, 3));
    assert_eq!((&added[0]["item"]["id"], &added[0]["item"]["status"]), (&json!("srvtoolu_1"), &json!("in_progress")));
    assert_eq!((&done[0]["output_index"], &done[0]["item"]["id"]), (&json!(0), &json!("srvtoolu_1")));
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result",
        "url": "https://a.example", "title": "T", "encrypted_content": "tg1.x", "page_age": null}]});
    let searched =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}});
    let boat = json!({"type": "server_tool_use", "id": "srvtoolu_2", "name": "tidegate:image_generation",
        "input": {"prompt": "a boat"}});
    let output = json!([
        {"type": "tidegate:web_search", "id": "srvtoolu_1", "status": "completed", "action": {"type": "search",
            "query": "tides", "sources": [{"type": "url", "url": "https://a.example"}]}, "blocks": [searched, found]},
        {"type": "tidegate:image_generation", "id": "srvtoolu_2", "status": "completed", "prompt": "a boat",
            "imageUrl": "https://g.example/i", "blocks": [boat]},
        {"type": "function_call", "id": "fc_1_2", "call_id": "t1", "name": "f", "arguments": "{}", "status": "completed"},
    ]);
    assert_eq!(events.last().unwrap()["response"]["output"], output);
    let call = json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}});
    let answer = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 7}, "content": [searched, boat, found, call]});
    let made = whole(answer.to_string().as_bytes(), &head(), &form, &drawn()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&made).unwrap()["output"], output);
    // And back: the turn is what it was, call by call.
    let mut input = vec![json!({"role": "user", "content": "hi"})];
    input.extend(output.as_array().unwrap().iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": "t1", "output": "42"}));
    let messages = asked(&json!({"model": "a/m", "input": input}))["messages"].clone();
    assert_eq!(messages[1], json!({"role": "assistant", "content": [searched, found, boat, call]}));
    let with = |blocks: Value| json!({"model": "a/m", "input": [{"type": "tidegate:web_search", "blocks": blocks}]});
    let read = |blocks: Value| read(with(blocks).to_string().as_bytes(), &search).map(|asked| asked.warnings);
    let wrong = read(json!([{"type": "text", "text": "x"}])).unwrap_err().message;
    assert_eq!(wrong, "Invalid request: input[0].blocks[0].type must be server_tool_use or that of a result");
    assert_eq!(read(json!(null)).unwrap(), ["dropped:tidegate:web_search"]);
}

#[test]
fn a_model_that_declines_says_so_in_a_part_of_its_own() {
    let events = events(&told(DECLINED, &[]));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[2..],
        [
            "response.output_item.added",
            "response.content_part.added",
            "response.refusal.delta",
            "response.refusal.delta",
            "response.refusal.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(events[3]["part"], json!({"type": "refusal", "refusal": ""}));
    assert_eq!((&events[4]["delta"], &events[6]["refusal"]), (&json!("I can"), &json!("I cannot")));
    let response = &events.last().unwrap()["response"];
    let output = json!([{"type": "message", "id": "msg_1_0", "status": "completed", "role": "assistant",
        "content": [{"type": "refusal", "refusal": "I cannot"}]}]);
    assert_eq!((&response["output"], &response["incomplete_details"]), (&output, &json!(null)));
    assert!(response["usage"].as_object().unwrap()["cost"].is_null(), "no price is no cost");
    let answer = |text: &str| {
        let details = json!({"type": "refusal", "category": "c", "explanation": "I cannot"});
        let answer = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "refusal",
            "stop_details": details, "usage": {"input_tokens": 5, "output_tokens": 7},
            "content": [{"type": "text", "text": text}]});
        let made = whole(answer.to_string().as_bytes(), &head(), &Form::default(), &nothing()).unwrap();
        serde_json::from_slice::<Value>(&made).unwrap()
    };
    let declined = answer("I cannot");
    assert_eq!((&declined["output"], &declined["status"]), (&output, &json!("completed")));
    let filtered = answer("The first step is");
    assert_eq!(filtered["incomplete_details"], json!({"reason": "content_filter"}));
    assert_eq!(filtered["output"][0]["content"][0]["text"], "The first step is");
}

#[test]
fn of_an_answer_without_room_only_what_came_last_is_cut() {
    let thought = json!({"type": "thinking", "thinking": "so", "signature": "tgr1.d.d"});
    let answer = json!({"id": "msg", "type": "message", "role": "assistant", "model": "a/m", "stop_reason": "max_tokens",
        "usage": {"input_tokens": 5, "output_tokens": 7},
        "content": [{"type": "text", "text": "One."}, thought, {"type": "text", "text": "Tw"}]});
    let made = whole(answer.to_string().as_bytes(), &head(), &Form::default(), &nothing()).unwrap();
    let made: Value = serde_json::from_slice(&made).unwrap();
    let statuses: Vec<&Value> = made["output"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(
        (&made["status"], statuses),
        (&json!("incomplete"), vec![&json!("completed"), &Value::Null, &json!("incomplete")])
    );
}

/// The last event repeats the answer, and what is kept for it has a bound.
#[test]
fn an_answer_beyond_all_bounds_fails() {
    let mut made = Stream::new(head(), Form::default(), 1 << 20, 4_096, Box::new(|_| None));
    let mut out = String::new();
    let mut feed = |text: &str| {
        out.push_str(std::str::from_utf8(&made.feed(Bytes::from(text.to_owned())).unwrap()).unwrap());
        made.is_over()
    };
    let frames: Vec<&str> = STREAM.split_inclusive("\n\n").take(5).collect();
    assert!(!feed(&frames.concat()));
    let pieces = (0..10_000).take_while(|_| !feed(frames[4])).count();
    // Each says "Høj", which is four bytes.
    assert!(pieces > 700 && pieces < 4_096 / 4, "{pieces}");
    assert!(feed(STREAM), "nothing follows");
    let events = events(&out);
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["status"]), (&json!("response.failed"), &json!("failed")));
    assert_eq!(last["response"]["error"], json!({"code": "server_error", "message": "Provider returned error"}));
    assert_eq!(
        (&last["response"]["error_type"], &last["response"]["output"]),
        (&json!("provider_unavailable"), &json!([]))
    );
    assert_eq!(events.iter().filter(|event| event["type"] == "response.failed").count(), 1);
}

#[test]
fn what_has_no_room_is_cut_short_and_does_not_fail() {
    let details = json!({"reason": "max_output_tokens"});
    let form = Form { echo: r#","tools":[]"#.to_owned(), custom: Vec::new(), ..Form::default() };
    let body = cut_short("a/m", &head(), &form, Some(r#"{"attempt":0}"#), false);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["id"], &body["status"], &body["output"]), (&json!("gen-1"), &json!("incomplete"), &json!([])));
    assert_eq!((&body["incomplete_details"], &body["error"], &body["model"]), (&details, &json!(null), &json!("a/m")));
    assert_eq!((&body["usage"]["total_tokens"], &body["tidegate_metadata"]), (&json!(0), &json!({"attempt": 0})));
    let streamed = cut_short("a/m", &head(), &form, None, true);
    let streamed = events(std::str::from_utf8(&streamed).unwrap());
    let kinds: Vec<&str> = streamed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["response.created", "response.in_progress", "response.incomplete"]);
    assert_eq!(streamed[2]["response"]["incomplete_details"], details);
    assert_eq!(streamed[2]["response"]["model"], "a/m");
    let early = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"Long\",\"error_type\":\"context_length_exceeded\"},\"request_id\":null,\"metadata\":{\"provider_name\":\"P\"}}\n\n";
    for event in events(&told(early, &[])) {
        let response = &event["response"];
        assert_eq!((&response["model"], &response["provider"]), (&json!("asked/for"), &json!("P")));
    }
    for kind in ["context_length_exceeded", "max_tokens_exceeded", "token_limit_exceeded", "string_too_long"] {
        let error = format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"Long\",\"error_type\":\"{kind}\"}},\"request_id\":null}}\n\n"
        );
        let begun = STREAM.split_inclusive("\n\n").take(5).collect::<String>() + &error;
        let last = events(&told(Box::leak(begun.into_boxed_str()), &[])).pop().unwrap();
        assert_eq!((&last["type"], &last["response"]["incomplete_details"]), (&json!("response.incomplete"), &details));
        assert_eq!(last["response"]["output"][1]["content"][0]["text"], "Høj", "{kind}");
    }
}

proptest! {
    /// However the bytes arrive, the events are the same.
    #[test]
    fn pieces_do_not_matter(pieces in prop::collection::vec(1_usize..60, 0..80)) {
        prop_assert_eq!(told(STREAM, &pieces), told(STREAM, &[]));
    }
}
