//! Requests that the real services refuse, and the parameter they name.

use serde_json::{Value, json};
use tidegate_sim::{Protocol, Script, Sim};

use crate::client::call;
use crate::spoken::path;

async fn check(protocol: Protocol, base: Value, fine: &[Value], wrong: &[(Value, &str)]) {
    let sim = Sim::start(Script::says("hello")).await;
    let post = async |change: &Value| {
        let mut request = base.clone();
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        call(&sim, "POST", &path(protocol, "m", false), &[], request.to_string().as_bytes()).await
    };
    for change in fine {
        let reply = post(change).await;
        assert_eq!(reply.status, 200, "{change}: {}", reply.text());
    }
    for (change, param) in wrong {
        let reply = post(change).await;
        assert!(matches!(reply.status, 400 | 404), "{change}: {}", reply.text());
        let error = &reply.json()["error"];
        let named = match protocol {
            Protocol::Gemini => &error["details"][0]["fieldViolations"][0]["field"],
            _ => &error["param"],
        };
        assert_eq!(named, param, "{change}: {error}");
    }
}

#[tokio::test]
async fn chat_requests() {
    let user = json!({"role": "user", "content": "hi"});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}},
    ]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let tools =
        json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]);
    let turns = |turns: &[&Value]| json!({"messages": turns});
    let says = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let tool = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    let odd_call = |arguments: Value| {
        json!({"messages": [user, {"role": "assistant", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}, result("c1")]})
    };
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}});
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
        "additionalProperties": false});
    let open = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let format = |schema: &Value| {
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "r",
        "strict": true, "schema": schema}}})
    };
    check(
        Protocol::Chat,
        json!({"model": "m", "messages": [user]}),
        &[
            json!({}),
            turns(&[&user, &call, &result("c2"), &result("c1"), &user]),
            turns(&[
                &json!({"role": "developer", "content": "be brief"}),
                &user,
                &json!({"role": "assistant",
                "content": "a", "reasoning_content": "r"}),
                &user,
            ]),
            says(json!([image, {"type": "text", "text": "what"}])),
            says(json!([{"type": "file", "file": {"filename": "a.pdf",
                "file_data": "data:application/pdf;base64,QUJD"}}])),
            json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false}),
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
            json!({"max_tokens": 1, "temperature": 0.2, "top_k": 5, "stop": "x", "store": false,
                "reasoning_effort": "low"}),
            tool(json!({"name": "f", "parameters": closed, "strict": true})),
            format(&closed),
        ],
        &[
            (json!({"messages": null}), "messages"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"content": "x"}]}), "messages[0].role"),
            (json!({"messages": [{"role": "human", "content": "x"}]}), "messages[0].role"),
            (says(json!(7)), "messages[0].content"),
            (says(json!(null)), "messages[0].content"),
            (says(json!([])), "messages[0].content"),
            (says(json!([{"type": "image", "source": {}}])), "messages[0].content[0].type"),
            (says(json!([{"type": "text", "text": "x", "cache_control": {}}])), "messages[0].content[0].cache_control"),
            (
                says(json!([{"type": "image_url", "image_url": "data:image/png;base64,QUJD"}])),
                "messages[0].content[0].image_url",
            ),
            (
                says(json!([{"type": "image_url", "image_url": {"url": "QUJD"}}])),
                "messages[0].content[0].image_url.url",
            ),
            (turns(&[&user, &result("c1")]), "messages.[1].role"),
            (turns(&[&user, &call, &result("c1")]), "messages.[1].role"),
            (turns(&[&user, &call, &result("c1"), &user, &result("c2")]), "messages.[1].role"),
            (turns(&[&user, &call, &result("c1"), &result("c1")]), "messages.[3].role"),
            (turns(&[&user, &json!({"role": "assistant", "content": null})]), "messages.[1].content"),
            (odd_call(json!({"a": 1})), "messages[1].tool_calls[0].function.arguments"),
            (odd_call(json!("{\"a\":")), "messages[1].tool_calls[0].function.arguments"),
            (
                turns(&[&user, &call, &json!({"role": "tool", "tool_call_id": "c1", "content": [image]})]),
                "messages[2].content[0].type",
            ),
            (
                turns(&[
                    &user,
                    &call,
                    &json!({"role": "tool", "tool_call_id": "c1", "content": "x",
                "is_error": true}),
                ]),
                "messages[2].is_error",
            ),
            (json!({"max_tokens": 5, "max_completion_tokens": 5}), "max_tokens"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"temperature": 3}), "temperature"),
            (json!({"stop": ["a", "b", "c", "d", "e"]}), "stop"),
            (json!({"tool_choice": "auto"}), "tool_choice"),
            (json!({"parallel_tool_calls": true}), "parallel_tool_calls"),
            (json!({"tools": []}), "tools"),
            (json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "g"}}}), "tool_choice"),
            (json!({"tools": tools, "tool_choice": {"type": "tool", "name": "f"}}), "tool_choice.name"),
            (json!({"tools": [{"name": "f", "input_schema": {}}]}), "tools[0].type"),
            (tool(json!({"name": "a b"})), "tools[0].function.name"),
            (tool(json!({"name": "n".repeat(65)})), "tools[0].function.name"),
            (tool(json!({"name": "f", "parameters": {"properties": {}}})), "tools[0].function.parameters"),
            (tool(json!({"name": "f", "parameters": open, "strict": true})), "tools[0].function.parameters"),
            (format(&open), "response_format.json_schema.schema"),
            (json!({"stream_options": {"include_usage": true}}), "stream_options"),
            (json!({"system": "x"}), "system"),
            (json!({"stop_sequences": ["x"]}), "stop_sequences"),
            (json!({"user": "u".repeat(65)}), "user"),
            (json!({"model": null}), "model"),
        ],
    )
    .await;
}

#[tokio::test]
async fn responses_requests() {
    let user = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]});
    let call = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "x"});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAB"});
    let input = |items: &[&Value]| json!({"input": items});
    let says = |role: &str, part: Value| json!({"input": [{"role": role, "content": [part]}]});
    let without = |item: &Value, name: &str| {
        let mut item = item.clone();
        item.as_object_mut().unwrap().remove(name);
        item
    };
    let tool =
        json!({"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": false});
    check(
        Protocol::Responses,
        json!({"model": "m", "input": "hi"}),
        &[
            json!({}),
            input(&[&user, &reasoning, &call, &output, &user]),
            input(&[
                &user,
                &json!({"role": "assistant", "content": [{"type": "output_text", "text": "a",
                "annotations": []}]}),
                &user,
            ]),
            says("user", json!({"type": "input_image", "detail": "auto", "image_url": "https://i.example/x.png"})),
            json!({"tools": [tool], "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false}),
            json!({"max_output_tokens": 16, "reasoning": {"effort": "low", "summary": "auto"},
                "include": ["reasoning.encrypted_content"]}),
        ],
        &[
            (json!({"input": null}), "input"),
            (json!({"input": 7}), "input"),
            (json!({"messages": []}), "messages"),
            (json!({"max_tokens": 20}), "max_tokens"),
            (json!({"stop": ["x"]}), "stop"),
            (json!({"max_output_tokens": 1}), "max_output_tokens"),
            (json!({"context_management": {"edits": []}}), "context_management"),
            (says("human", json!({"type": "input_text", "text": "x"})), "input[0].role"),
            (says("user", json!({"type": "text", "text": "x"})), "input[0].content[0].type"),
            (says("assistant", json!({"type": "input_text", "text": "x"})), "input[0].content[0].type"),
            (says("user", json!({"type": "input_image", "image_url": {"url": "x"}})), "input[0].content[0].image_url"),
            (says("user", json!({"type": "input_file", "file_data": "x", "file_url": "y"})), "input[0].content[0]"),
            (input(&[&user, &json!({"type": "tool_result"})]), "input[1].type"),
            (input(&[&user, &output]), "input"),
            (input(&[&user, &call]), "input"),
            (input(&[&user, &call, &output, &output]), "input"),
            (input(&[&user, &without(&call, "call_id"), &output]), "input[1].call_id"),
            (
                input(&[&user, &json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": {}})]),
                "input[1].arguments",
            ),
            (input(&[&user, &without(&reasoning, "summary"), &call, &output]), "input[1].summary"),
            (input(&[&user, &without(&reasoning, "encrypted_content"), &call, &output]), "input"),
            (input(&[&user, &reasoning]), "input"),
            (input(&[&user, &reasoning, &user]), "input"),
            (input(&[&user, &reasoning, &call, &output, &reasoning, &call, &output]), "input"),
            (
                input(&[
                    &user,
                    &json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x",
                "content": [{}]}),
                    &call,
                    &output,
                ]),
                "input[1].content",
            ),
            (json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), "tools[0].function"),
            (
                json!({"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
                "tool_choice.function",
            ),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"include": ["reasoning"]}), "include[0]"),
            (json!({"reasoning": {"effort": "huge"}}), "reasoning.effort"),
            (json!({"stream": true, "stream_options": {"include_usage": true}}), "stream_options.include_usage"),
            (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
            (json!({"text": {"format": {"type": "json_schema", "json_schema": {}}}}), "text.format.json_schema"),
        ],
    )
    .await;
}

#[tokio::test]
async fn gemini_requests() {
    let user = json!({"role": "user", "parts": [{"text": "hi"}]});
    let calls = |count: usize| {
        json!({"role": "model", "parts": vec![json!({"functionCall": {"name": "f",
        "args": {}}}); count]})
    };
    let results = |count: usize| {
        json!({"role": "user", "parts": vec![json!({"functionResponse": {"name": "f",
        "response": {"output": "x"}}}); count]})
    };
    let contents = |contents: &[&Value]| json!({"contents": contents});
    let part = |part: Value| json!({"contents": [{"role": "user", "parts": [part]}]});
    let answer = |response: Value| {
        contents(&[&user, &calls(1), &json!({"role": "user", "parts": [{"functionResponse": response}]})])
    };
    let declare = |function: Value| json!({"tools": [{"functionDeclarations": [function]}]});
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "nullable": true}}, "required": ["a"]});
    let config = |config: Value| json!({"generationConfig": config});
    let tools = json!([{"functionDeclarations": [{"name": "f"}]}]);
    let calling = |calling: Value| json!({"tools": tools, "toolConfig": {"functionCallingConfig": calling}});
    check(
        Protocol::Gemini,
        json!({"contents": [user]}),
        &[
            json!({}),
            json!({"systemInstruction": {"parts": [{"text": "be brief"}]}}),
            contents(&[&user, &calls(2), &results(2)]),
            contents(&[&user, &calls(1), &results(1), &calls(1), &results(1)]),
            part(json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}})),
            part(json!({"inline_data": {"mime_type": "image/png", "data": "iVBORw0KGgo="}})),
            declare(json!({"name": "a.b:c-d", "parameters": schema})),
            declare(json!({"name": "f", "parametersJsonSchema": {"type": "object", "additionalProperties": false}})),
            calling(json!({"mode": "ANY", "allowedFunctionNames": ["f"]})),
            config(json!({"maxOutputTokens": 5, "stopSequences": ["x"], "temperature": 0,
                "thinkingConfig": {"thinkingLevel": "LOW"}})),
        ],
        &[
            (json!({"contents": []}), "contents"),
            (json!({"contents": null}), "contents"),
            (json!({"messages": []}), ""),
            (json!({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}), "contents[0].role"),
            (json!({"contents": [{"role": "model", "parts": [{"text": "x"}]}]}), "contents[0]"),
            (contents(&[&user, &json!({"role": "model", "parts": [{"text": "x"}]})]), "contents"),
            (json!({"contents": [{"role": "user", "parts": []}]}), "contents[0].parts"),
            (json!({"contents": [{"role": "user", "content": "x"}]}), "contents[0]"),
            (part(json!({"text": ""})), "contents[0].parts[0]"),
            (part(json!({"type": "text", "text": "x"})), "contents[0].parts[0]"),
            (part(json!({"text": "x", "inlineData": {}})), "contents[0].parts[0]"),
            (part(json!({"thought": true})), "contents[0].parts[0]"),
            (
                part(json!({"inlineData": {"mimeType": "image/png", "data": "data:image/png;base64,QUJD"}})),
                "contents[0].parts[0].inline_data.data",
            ),
            (
                part(json!({"functionResponse": {"name": "f", "response": {}}})),
                "contents[0].parts[0].function_response",
            ),
            (contents(&[&user, &calls(2), &results(1)]), "contents[2]"),
            (contents(&[&user, &calls(1), &user]), "contents[2]"),
            (contents(&[&user, &calls(1), &results(1), &results(1)]), "contents[3].parts[0].function_response"),
            (answer(json!({"response": {"output": "x"}})), "contents[2].parts[0].function_response.name"),
            (answer(json!({"name": "f", "response": "x"})), "contents[2].parts[0].function_response.response"),
            (answer(json!({"name": "g", "response": {}})), "contents[2].parts[0].function_response"),
            (
                contents(&[
                    &user,
                    &json!({"role": "model", "parts": [{"functionCall": {"name": "f",
                "args": "{}"}}]}),
                ]),
                "contents[1].parts[0].function_call.args",
            ),
            (declare(json!({"name": "1f"})), "tools[0].function_declarations[0].name"),
            (declare(json!({"name": "f", "input_schema": {}})), "tools[0].function_declarations[0]"),
            (
                declare(json!({"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer",
                "exclusiveMinimum": 0}}}})),
                "tools[0].function_declarations[0].parameters.properties[n]",
            ),
            (
                declare(json!({"name": "f", "parameters": {"type": "object", "properties": {}}})),
                "tools[0].function_declarations[0].parameters",
            ),
            (
                declare(json!({"name": "f", "parameters": {"type": ["string", "null"]}})),
                "tools[0].function_declarations[0].parameters.type",
            ),
            (json!({"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}), "tool_config.function_calling_config"),
            (calling(json!({"mode": "auto"})), "tool_config.function_calling_config.mode"),
            (
                calling(json!({"mode": "AUTO", "allowedFunctionNames": ["f"]})),
                "tool_config.function_calling_config.allowed_function_names",
            ),
            (
                calling(json!({"mode": "ANY", "allowedFunctionNames": ["g"]})),
                "tool_config.function_calling_config.allowed_function_names[0]",
            ),
            (config(json!({"max_tokens": 5})), "generation_config"),
            (config(json!({"maxOutputTokens": 0})), "generation_config.max_output_tokens"),
            (config(json!({"stopSequences": ["1", "2", "3", "4", "5", "6"]})), "generation_config.stop_sequences"),
            (
                config(json!({"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}})),
                "generation_config.thinking_config",
            ),
            (config(json!({"responseSchema": schema})), "generation_config.response_schema"),
        ],
    )
    .await;
}
