//! The protocols as one: how a request is put to each, and what an answer of each says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Protocol, Sim};

use crate::client::{Reply, call};

/// The protocols beside Messages that are not a cloud platform's or Cohere's.
pub const OTHERS: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Gemini];
/// Those that are; tests of their own words are in `clouds`.
pub const CLOUDS: [Protocol; 3] = [Protocol::Converse, Protocol::Invoke, Protocol::Cohere];
pub const ALL: [Protocol; 7] = [
    Protocol::Messages,
    Protocol::Chat,
    Protocol::Responses,
    Protocol::Gemini,
    Protocol::Converse,
    Protocol::Invoke,
    Protocol::Cohere,
];

/// What an answer says, in no protocol's words.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub text: String,
    pub thinking: String,
    /// Names and arguments.
    pub calls: Vec<(String, Value)>,
    pub finish: Option<String>,
    /// Output, of it thinking, and input from the cache.
    pub usage: Option<(u64, u64, u64)>,
}

/// A request of one user message.
pub fn ask(protocol: Protocol, model: &str, text: &str) -> Value {
    match protocol {
        Protocol::Messages => {
            json!({"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}]})
        }
        Protocol::Chat => json!({"model": model, "messages": [{"role": "user", "content": text}]}),
        Protocol::Responses => json!({
            "model": model, "input": text, "store": false, "reasoning": {"summary": "auto"},
            "include": ["reasoning.encrypted_content"],
        }),
        Protocol::Gemini => json!({
            "contents": [{"role": "user", "parts": [{"text": text}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        }),
        Protocol::Converse => json!({"messages": [{"role": "user", "content": [{"text": text}]}]}),
        Protocol::Invoke => json!({
            "anthropic_version": "bedrock-2023-05-31", "max_tokens": 100,
            "messages": [{"role": "user", "content": text}],
        }),
        Protocol::Cohere => json!({"model": model, "messages": [{"role": "user", "content": text}]}),
    }
}

/// The request with a tool on offer.
pub fn with_tool(protocol: Protocol, mut request: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"query": {"type": "string"}}});
    if protocol == Protocol::Converse {
        let spec = json!({"name": "tide_at", "inputSchema": {"json": schema}});
        request["toolConfig"] = json!({"tools": [{"toolSpec": spec}]});
        return request;
    }
    request["tools"] = match protocol {
        Protocol::Messages | Protocol::Invoke | Protocol::Converse => {
            json!([{"name": "tide_at", "input_schema": schema}])
        }
        Protocol::Chat | Protocol::Cohere => {
            json!([{"type": "function", "function": {"name": "tide_at", "parameters": schema}}])
        }
        Protocol::Responses => json!([{"type": "function", "name": "tide_at", "parameters": schema, "strict": false}]),
        Protocol::Gemini => json!([{"functionDeclarations": [{"name": "tide_at", "parametersJsonSchema": schema}]}]),
    };
    request
}

pub fn path(protocol: Protocol, model: &str, stream: bool) -> String {
    match protocol {
        Protocol::Messages => "/v1/messages".into(),
        Protocol::Chat => "/v1/chat/completions".into(),
        Protocol::Responses => "/v1/responses".into(),
        Protocol::Gemini if stream => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        Protocol::Gemini => format!("/v1beta/models/{model}:generateContent"),
        Protocol::Converse if stream => format!("/model/{model}/converse-stream"),
        Protocol::Converse => format!("/model/{model}/converse"),
        Protocol::Invoke if stream => format!("/model/{model}/invoke-with-response-stream"),
        Protocol::Invoke => format!("/model/{model}/invoke"),
        Protocol::Cohere => "/v2/chat".into(),
    }
}

pub async fn send(sim: &Sim, protocol: Protocol, model: &str, mut request: Value, stream: bool) -> Reply {
    if stream && !matches!(protocol, Protocol::Gemini | Protocol::Converse | Protocol::Invoke) {
        request["stream"] = json!(true);
    }
    if stream && protocol == Protocol::Chat {
        request["stream_options"] = json!({"include_usage": true});
    }
    let key = [("authorization", "Bearer k")];
    call(sim, "POST", &path(protocol, model, stream), &key, request.to_string().as_bytes()).await
}

/// Asks a model for a text, or with a tool on offer.
pub async fn hear(sim: &Sim, protocol: Protocol, model: &str, tool: bool, stream: bool) -> Heard {
    let request = ask(protocol, model, "Brest \"nøn\"");
    let request = if tool { with_tool(protocol, request) } else { request };
    let reply = send(sim, protocol, model, request, stream).await;
    assert_eq!(reply.status, 200, "{protocol:?} {model}: {}", reply.text());
    heard(protocol, &reply, stream)
}

/// What a reply says.
pub fn heard(protocol: Protocol, reply: &Reply, stream: bool) -> Heard {
    match stream {
        true => streamed(protocol, &events(protocol, reply)),
        false => whole(protocol, &reply.json()),
    }
}

/// The events of a stream, whatever its framing. Those of Converse are under their names.
pub fn events(protocol: Protocol, reply: &Reply) -> Vec<Value> {
    let known = |frame: &Frame| frame.headers[":event-type"] != "futureEvent";
    match protocol {
        Protocol::Converse => {
            let event = |frame: Frame| json!({text(&frame.headers[":event-type"]): frame.payload});
            frames(&reply.body).into_iter().filter(known).map(event).collect()
        }
        Protocol::Invoke => {
            let event = |frame: Frame| {
                assert_eq!(frame.headers[":event-type"], "chunk");
                let bytes = STANDARD.decode(text(&frame.payload["bytes"])).unwrap();
                serde_json::from_slice(&bytes).unwrap()
            };
            frames(&reply.body).into_iter().filter(known).map(event).collect()
        }
        _ => data(reply.text()),
    }
}

pub struct Frame {
    pub headers: Value,
    pub payload: Value,
}

/// The frames of Amazon's event stream. Checksums are left to a client we did not write.
pub fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let length = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let (all, head) = (length(bytes), length(&bytes[4..]));
        let mut names = &bytes[12..12 + head];
        let mut headers = json!({});
        while let Some((size, rest)) = names.split_first() {
            let (name, rest) = rest.split_at(usize::from(*size));
            assert_eq!(rest[0], 7, "a string");
            let (value, rest) = rest[3..].split_at(usize::from(u16::from_be_bytes([rest[1], rest[2]])));
            headers[std::str::from_utf8(name).unwrap()] = json!(std::str::from_utf8(value).unwrap());
            names = rest;
        }
        let payload = &bytes[12 + head..all - 4];
        let payload = if payload.is_empty() { json!(null) } else { serde_json::from_slice(payload).unwrap() };
        found.push(Frame { headers, payload });
        bytes = &bytes[all..];
    }
    found
}

/// The data of every event: read as the format's public description says, whatever the framing.
pub fn data(text: &str) -> Vec<Value> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
    let mut found = Vec::new();
    for event in text.split("\n\n") {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        let data = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
        if !data.is_empty() && data != "[DONE]" {
            found.push(serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}")));
        }
    }
    found
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn usage(protocol: Protocol, usage: &Value) -> Option<(u64, u64, u64)> {
    usage.as_object()?;
    Some(match protocol {
        Protocol::Messages | Protocol::Invoke => (
            number(&usage["output_tokens"]),
            number(&usage["output_tokens_details"]["thinking_tokens"]),
            number(&usage["cache_read_input_tokens"]),
        ),
        Protocol::Chat => (
            number(&usage["completion_tokens"]),
            number(&usage["completion_tokens_details"]["reasoning_tokens"]),
            number(&usage["prompt_tokens_details"]["cached_tokens"]),
        ),
        Protocol::Responses => (
            number(&usage["output_tokens"]),
            number(&usage["output_tokens_details"]["reasoning_tokens"]),
            number(&usage["input_tokens_details"]["cached_tokens"]),
        ),
        Protocol::Gemini => {
            let thoughts = number(&usage["thoughtsTokenCount"]);
            (number(&usage["candidatesTokenCount"]) + thoughts, thoughts, number(&usage["cachedContentTokenCount"]))
        }
        Protocol::Converse => (number(&usage["outputTokens"]), 0, number(&usage["cacheReadInputTokens"])),
        Protocol::Cohere => {
            let number = |value: &Value| {
                assert!(value.is_f64(), "{value}");
                value.as_f64().unwrap() as u64
            };
            (number(&usage["tokens"]["output_tokens"]), 0, number(&usage["cached_tokens"]))
        }
    })
}

pub fn whole(protocol: Protocol, body: &Value) -> Heard {
    let mut heard = Heard { usage: usage(protocol, &body["usage"]), ..Heard::default() };
    match protocol {
        Protocol::Messages | Protocol::Invoke => {
            for block in body["content"].as_array().unwrap() {
                heard.text += text(&block["text"]);
                heard.thinking += text(&block["thinking"]);
                if block["type"] == "tool_use" {
                    heard.calls.push((text(&block["name"]).into(), block["input"].clone()));
                }
            }
            heard.finish = body["stop_reason"].as_str().map(str::to_owned);
        }
        Protocol::Chat => {
            let choice = &body["choices"][0];
            let message = &choice["message"];
            heard.text = format!("{}{}", text(&message["content"]), text(&message["refusal"]));
            heard.thinking = text(&message["reasoning_content"]).into();
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = &call["function"];
                heard.calls.push((text(&function["name"]).into(), arguments(text(&function["arguments"]))));
            }
            heard.finish = choice["finish_reason"].as_str().map(str::to_owned);
        }
        Protocol::Responses => {
            for item in body["output"].as_array().unwrap() {
                for part in item["content"].as_array().into_iter().flatten() {
                    heard.text += &format!("{}{}", text(&part["text"]), text(&part["refusal"]));
                }
                heard.thinking += text(&item["summary"][0]["text"]);
                if item["type"] == "function_call" {
                    heard.calls.push((text(&item["name"]).into(), arguments(text(&item["arguments"]))));
                }
            }
            let reason = body["incomplete_details"]["reason"].as_str();
            heard.finish = reason.or_else(|| body["status"].as_str()).map(str::to_owned);
        }
        Protocol::Gemini => heard = streamed(protocol, std::slice::from_ref(body)),
        Protocol::Converse => {
            for block in body["output"]["message"]["content"].as_array().unwrap() {
                heard.text += text(&block["text"]);
                heard.thinking += text(&block["reasoningContent"]["reasoningText"]["text"]);
                if let Some(call) = block.get("toolUse") {
                    heard.calls.push((text(&call["name"]).into(), call["input"].clone()));
                }
            }
            heard.finish = body["stopReason"].as_str().map(str::to_owned);
        }
        Protocol::Cohere => {
            let message = &body["message"];
            for part in message["content"].as_array().into_iter().flatten() {
                heard.text += text(&part["text"]);
                heard.thinking += text(&part["thinking"]);
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let function = &call["function"];
                heard.calls.push((text(&function["name"]).into(), arguments(text(&function["arguments"]))));
            }
            assert_eq!(message.get("tool_plan").is_some(), !heard.calls.is_empty());
            heard.finish = body["finish_reason"].as_str().map(str::to_owned);
        }
    }
    heard
}

pub fn streamed(protocol: Protocol, events: &[Value]) -> Heard {
    let mut heard = Heard::default();
    // Calls under way: by the protocol's own index.
    let mut calls: Vec<(u64, String, String)> = Vec::new();
    for event in events {
        match protocol {
            Protocol::Messages | Protocol::Invoke => {
                let delta = &event["delta"];
                heard.text += text(&delta["text"]);
                heard.thinking += text(&delta["thinking"]);
                if event["content_block"]["type"] == "tool_use" {
                    calls.push((number(&event["index"]), text(&event["content_block"]["name"]).into(), String::new()));
                }
                if let Some(call) = calls.iter_mut().find(|call| call.0 == number(&event["index"])) {
                    call.2 += text(&delta["partial_json"]);
                }
                heard.finish = delta["stop_reason"].as_str().map(str::to_owned).or(heard.finish);
                heard.usage = usage(protocol, &event["usage"]).or(heard.usage);
            }
            Protocol::Chat => {
                let choice = &event["choices"][0];
                let delta = &choice["delta"];
                heard.text += &format!("{}{}", text(&delta["content"]), text(&delta["refusal"]));
                heard.thinking += text(&delta["reasoning_content"]);
                for entry in delta["tool_calls"].as_array().into_iter().flatten() {
                    let (index, function) = (number(&entry["index"]), &entry["function"]);
                    match calls.iter_mut().find(|call| call.0 == index) {
                        Some(call) => call.2 += text(&function["arguments"]),
                        None => {
                            calls.push((index, text(&function["name"]).into(), text(&function["arguments"]).into()))
                        }
                    }
                }
                heard.finish = heard.finish.or_else(|| choice["finish_reason"].as_str().map(str::to_owned));
                heard.usage = usage(protocol, &event["usage"]).or(heard.usage);
            }
            Protocol::Responses => {
                let delta = text(&event["delta"]);
                match text(&event["type"]) {
                    "response.output_text.delta" | "response.refusal.delta" => heard.text += delta,
                    "response.reasoning_summary_text.delta" => heard.thinking += delta,
                    "response.output_item.added" if event["item"]["type"] == "function_call" => {
                        let item = &event["item"];
                        calls.push((
                            number(&event["output_index"]),
                            text(&item["name"]).into(),
                            text(&item["arguments"]).into(),
                        ));
                    }
                    "response.function_call_arguments.delta" => {
                        let call = calls.iter_mut().find(|call| call.0 == number(&event["output_index"]));
                        call.unwrap().2 += delta;
                    }
                    "response.completed" | "response.incomplete" => {
                        let end = whole(protocol, &event["response"]);
                        (heard.finish, heard.usage) = (end.finish, end.usage);
                    }
                    _ => {}
                }
            }
            Protocol::Gemini => {
                let candidate = &event["candidates"][0];
                for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                    match part["thought"] == true {
                        true => heard.thinking += text(&part["text"]),
                        false => heard.text += text(&part["text"]),
                    }
                    if let Some(call) = part.get("functionCall") {
                        let args = call.get("args").cloned().unwrap_or_else(|| json!({}));
                        heard.calls.push((text(&call["name"]).into(), args));
                    }
                }
                heard.finish = candidate["finishReason"].as_str().map(str::to_owned).or(heard.finish);
                heard.usage = usage(protocol, &event["usageMetadata"]).or(heard.usage);
            }
            Protocol::Converse => {
                let delta = &event["contentBlockDelta"]["delta"];
                heard.text += text(&delta["text"]);
                heard.thinking += text(&delta["reasoningContent"]["text"]);
                if let Some(start) = event.get("contentBlockStart") {
                    let name = text(&start["start"]["toolUse"]["name"]);
                    calls.push((number(&start["contentBlockIndex"]), name.into(), String::new()));
                }
                if let Some(input) = delta["toolUse"]["input"].as_str() {
                    let index = number(&event["contentBlockDelta"]["contentBlockIndex"]);
                    calls.iter_mut().find(|call| call.0 == index).unwrap().2 += input;
                }
                let reason = event["messageStop"]["stopReason"].as_str();
                heard.finish = reason.map(str::to_owned).or(heard.finish);
                heard.usage = usage(protocol, &event["metadata"]["usage"]).or(heard.usage);
            }
            Protocol::Cohere => {
                let message = &event["delta"]["message"];
                heard.text += text(&message["content"]["text"]);
                heard.thinking += text(&message["content"]["thinking"]);
                let call = &message["tool_calls"]["function"];
                match text(&event["type"]) {
                    "tool-call-start" => {
                        calls.push((number(&event["index"]), text(&call["name"]).into(), String::new()));
                    }
                    "tool-call-delta" => {
                        let found = calls.iter_mut().find(|call| call.0 == number(&event["index"]));
                        found.unwrap().2 += text(&call["arguments"]);
                    }
                    "message-end" => {
                        heard.finish = event["delta"]["finish_reason"].as_str().map(str::to_owned);
                        heard.usage = usage(protocol, &event["delta"]["usage"]);
                    }
                    _ => {}
                }
            }
        }
    }
    calls.sort_by_key(|call| call.0);
    heard.calls.extend(calls.into_iter().map(|(_, name, json)| (name, arguments(&json))));
    heard
}
