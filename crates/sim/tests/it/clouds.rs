//! Bedrock, Vertex AI and Cohere in their own words: who may call, what is refused, and how streams break.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Protocol, Quirk, Script, Sim};

use crate::client::{Reply, call};
use crate::spoken::{ALL, CLOUDS, ask, data, events, frames, hear, heard, path, send, with_tool};

const KEY: [(&str, &str); 1] = [("authorization", "Bearer k")];

async fn post(sim: &Sim, path: &str, body: &Value) -> Reply {
    call(sim, "POST", path, &KEY, body.to_string().as_bytes()).await
}

/// Applies each change to the request; the good ones pass and the others are refused with these words.
async fn check(protocol: Protocol, base: Value, fine: &[Value], wrong: &[(Value, &str)]) {
    let sim = Sim::start(Script::says("hello")).await;
    let changed = |change: &Value| {
        let mut request = base.clone();
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        request
    };
    let path = path(protocol, "m", false);
    for change in fine {
        let reply = post(&sim, &path, &changed(change)).await;
        assert_eq!(reply.status, 200, "{change}: {}", reply.text());
    }
    for (change, words) in wrong {
        let reply = post(&sim, &path, &changed(change)).await;
        assert!(matches!(reply.status, 400 | 422), "{change}: {}", reply.text());
        assert!(reply.text().contains(words), "{change}: {}", reply.text());
    }
}

#[tokio::test]
async fn reasons_to_stop_are_in_the_vendors_words() {
    let sim = Sim::start(Script::default()).await;
    for (model, tool, words) in [
        ("sim", false, ["end_turn", "end_turn", "COMPLETE"]),
        ("sim-tools", true, ["tool_use", "tool_use", "TOOL_CALL"]),
        ("sim-refusal", false, ["content_filtered", "refusal", "COMPLETE"]),
        ("sim-stop-max_tokens", false, ["max_tokens", "max_tokens", "MAX_TOKENS"]),
        ("sim-stop-stop_sequence", false, ["stop_sequence", "stop_sequence", "STOP_SEQUENCE"]),
        ("sim-stop-malformed_tool_use", false, ["malformed_tool_use"; 3]),
    ] {
        for (protocol, expected) in CLOUDS.into_iter().zip(words) {
            for stream in [false, true] {
                let heard = hear(&sim, protocol, model, tool, stream).await;
                assert_eq!(heard.finish.as_deref(), Some(expected), "{model} {protocol:?} {stream}");
            }
        }
    }
}

#[tokio::test]
async fn errors_are_in_the_vendors_shape() {
    let sim = Sim::start(Script::default()).await;
    for (status, kind) in [
        (400, "ValidationException"),
        (403, "AccessDeniedException"),
        (404, "ResourceNotFoundException"),
        (408, "ModelTimeoutException"),
        (424, "ModelErrorException"),
        (429, "ThrottlingException"),
        (500, "InternalServerException"),
        (503, "ServiceUnavailableException"),
    ] {
        let model = format!("sim-status-{status}");
        for protocol in CLOUDS {
            for stream in [false, true] {
                let reply = send(&sim, protocol, &model, ask(protocol, &model, "hi"), stream).await;
                assert_eq!((reply.status, reply.header("content-type")), (status, Some("application/json")));
                assert!(!reply.json()["message"].as_str().unwrap().is_empty());
                let named = reply.header("x-amzn-errortype").map(|text| text.split(':').next().unwrap());
                assert_eq!(named, (protocol != Protocol::Cohere).then_some(kind));
            }
        }
    }
}

#[tokio::test]
async fn streams_break_as_they_do_elsewhere() {
    let sim = Sim::start(Script::default()).await;
    for protocol in CLOUDS {
        let ask = async |model: &str| send(&sim, protocol, model, ask(protocol, model, "hi"), true).await;
        assert!(!ask("sim-close-mid").await.complete);
        assert!(!ask("sim-close-frame").await.complete);
        assert!(!ask("sim-truncated").await.complete);
        assert_eq!(ask("sim-empty").await.body, b"");
        assert_eq!(ask("sim-garbage").await.header("content-type"), Some("text/html"));
        assert!(!ask("sim-garbage-stream").await.body.is_empty());
        let unfinished = heard(protocol, &ask("sim-no-stop").await, true);
        // Messages says the reason before it says that it is done.
        assert_eq!(unfinished.finish.is_some(), protocol == Protocol::Invoke, "{protocol:?}");
        assert!(!unfinished.text.is_empty());
        let error = ask("sim-error-mid").await;
        assert_eq!((error.status, error.complete), (200, true));
        if protocol == Protocol::Cohere {
            let last = data(error.text()).pop().unwrap();
            assert_eq!(last["delta"], json!({"finish_reason": "ERROR", "error": "Overloaded"}));
            continue;
        }
        assert_eq!(error.header("content-type"), Some("application/vnd.amazon.eventstream"));
        let frames = frames(&error.body);
        let last = frames.last().unwrap();
        assert_eq!(last.headers[":message-type"], "exception");
        assert_eq!(last.headers[":exception-type"], "serviceUnavailableException");
        assert_eq!(last.payload, json!({"message": "Overloaded"}));
    }
    sim.set(Behaviour::Oversize { bytes: 300_000 });
    for protocol in CLOUDS {
        for stream in [false, true] {
            let reply = send(&sim, protocol, "m", ask(protocol, "m", "hi"), stream).await;
            assert_eq!(heard(protocol, &reply, stream).text.len(), 300_000, "{protocol:?} {stream}");
        }
    }
}

#[tokio::test]
async fn quirks_of_bedrock() {
    let sim = Sim::start(Script::default()).await;
    for protocol in [Protocol::Converse, Protocol::Invoke] {
        let odd = async |quirk: Quirk, stream: bool| {
            let model = format!("sim-quirk-{}", quirk.name());
            send(&sim, protocol, &model, with_tool(protocol, ask(protocol, &model, "hi")), stream).await
        };
        let last = frames(&odd(Quirk::ErrorFrame, true).await.body).pop().unwrap();
        assert_eq!((&last.headers[":message-type"], &last.payload), (&json!("error"), &json!(null)));
        let failed = frames(&odd(Quirk::ModelStreamError, true).await.body);
        assert_eq!((failed.len(), &failed[3].payload["originalStatusCode"]), (4, &json!(503)));
        assert_eq!(odd(Quirk::ModelStreamError, false).await.status, 424);
        let first = frames(&odd(Quirk::ErrorIn200, true).await.body).remove(0);
        assert_eq!(first.headers[":exception-type"], "serviceUnavailableException");
        let bare = odd(Quirk::ErrorTypeInBody, true).await;
        assert_eq!((bare.status, bare.header("x-amzn-errortype")), (429, None));
        assert!(bare.json()["__type"].as_str().unwrap().ends_with("#ThrottlingException"));
        let wrong = odd(Quirk::BadChecksum, true).await.body;
        assert!(frames(&wrong).len() > 4);
    }
    let gaps = send(&sim, Protocol::Converse, "sim-quirk-index-gaps", ask(Protocol::Converse, "m", "hi"), true).await;
    let indexes: Vec<_> = events(Protocol::Converse, &gaps)
        .iter()
        .filter_map(|event| event["contentBlockDelta"]["contentBlockIndex"].as_u64())
        .collect();
    assert!(indexes.iter().all(|index| *index == 3) && !indexes.is_empty());
    let request = ask(Protocol::Converse, "m", "hi");
    let unsigned = send(&sim, Protocol::Converse, "sim-quirk-no-signature", request, true).await;
    assert!(!heard(Protocol::Converse, &unsigned, true).thinking.is_empty());
    assert!(!String::from_utf8_lossy(&unsigned.body).contains("signature"));
}

#[tokio::test]
async fn quirks_of_mistral() {
    let sim = Sim::start(Script::default()).await;
    let odd = async |quirk: &str, change: Value, stream: bool| {
        let model = format!("sim-quirk-{quirk}");
        let mut request = ask(Protocol::Chat, &model, "hi");
        request.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        send(&sim, Protocol::Chat, &model, request, stream).await
    };
    let whole = odd("mistral-thinking", json!({}), false).await.json();
    let content = &whole["choices"][0]["message"]["content"];
    assert_eq!(content[0]["thinking"][0]["type"], "text");
    assert_eq!(content[1], json!({"type": "text", "text": "High water is at noon."}));
    let kinds: Vec<_> = data(odd("mistral-thinking", json!({}), true).await.text())
        .iter()
        .map(|chunk| chunk["choices"][0]["delta"]["content"][0]["type"].as_str().unwrap_or("-").to_owned())
        .collect();
    assert!(kinds.contains(&"thinking".into()) && kinds.contains(&"text".into()) && kinds.contains(&"-".into()));
    let length = odd("model-length", json!({}), false).await.json();
    assert_eq!(length["choices"][0]["finish_reason"], "model_length");

    let tools = with_tool(Protocol::Chat, json!({}));
    let chunks = data(odd("ids-null", tools.clone(), true).await.text());
    let calls: Vec<_> = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"].get("tool_calls")).collect();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(|call| call[0]["id"] == "null"));

    let nine = odd("ids-nine", tools.clone(), false).await.json();
    let message = &nine["choices"][0]["message"];
    let id = message["tool_calls"][0]["id"].as_str().unwrap();
    assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let turns = |id: &str| {
        let call = json!({"id": id, "type": "function", "function": {"name": "tide_at", "arguments": "{}"}});
        json!({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "name": "tide_at", "content": "4 m"}]})
    };
    assert_eq!(odd("ids-nine", turns("abcDEF123"), false).await.status, 200);
    let refused = odd("ids-nine", turns("toolu_1"), false).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("3280")));

    let start = json!({"messages": [{"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Well, ", "prefix": true}]});
    for stream in [false, true] {
        let reply = odd("prefix-repeated", start.clone(), stream).await;
        let text = heard(Protocol::Chat, &reply, stream).text;
        assert!(text.starts_with("Well, Høyvann"), "{text}");
    }
    let sent = json!({"messages": [{"role": "user", "content": [
        {"type": "document_url", "document_url": "data:application/pdf;base64,QUJD", "document_name": "d"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]},
            {"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]});
    assert_eq!(odd("no-usage", sent, false).await.status, 200);
}

#[tokio::test]
async fn a_scenario_refuses_what_it_is_told_to() {
    let sim = Sim::start(Script::default()).await;
    for protocol in ALL {
        let (member, value, words) = match protocol {
            Protocol::Messages => ("metadata", json!({"user_id": "u"}), "metadata: Extra inputs are not permitted"),
            Protocol::Chat => ("seed", json!(1), "Unknown parameter: 'seed'."),
            Protocol::Responses => ("metadata", json!({}), "Unknown parameter: 'metadata'."),
            Protocol::Gemini => ("labels", json!({}), "Unknown name \\\"labels\\\""),
            Protocol::Converse => ("serviceTier", json!({"type": "flex"}), "extraneous key [serviceTier]"),
            Protocol::Invoke => ("metadata", json!({}), "metadata: Extra inputs are not permitted"),
            Protocol::Cohere => ("seed", json!(1), "unknown field: parameter 'seed' is not a valid field"),
        };
        let model = format!("sim-refuse-member-{member}");
        let mut request = ask(protocol, &model, "hi");
        assert_eq!(
            heard(protocol, &send(&sim, protocol, &model, request.clone(), true).await, true).text,
            "You said: hi"
        );
        request[member] = value;
        let refused = send(&sim, protocol, &model, request, true).await;
        assert!(matches!(refused.status, 400 | 422), "{protocol:?} {}", refused.text());
        assert!(refused.text().contains(words), "{protocol:?} {}", refused.text());
    }
}

#[tokio::test]
async fn a_scenario_refuses_signatures_and_betas() {
    let sim = Sim::start(Script::default()).await;
    let model = "sim-refuse-signature";
    let signed = |protocol: Protocol| {
        let turn = |content: Value| {
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": content}, {"role": "user", "content": [{"type": "text", "text": "b"}]}])
        };
        let mut request = ask(protocol, model, "hi");
        match protocol {
            Protocol::Messages | Protocol::Invoke => {
                request["messages"] = turn(json!([{"type": "thinking", "thinking": "t", "signature": "s"}]));
            }
            Protocol::Responses => {
                request["input"] = json!([{"role": "user", "content": "a"},
                    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
                    {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
            }
            Protocol::Gemini => {
                request["contents"] = json!([{"role": "user", "parts": [{"text": "a"}]},
                    {"role": "model", "parts": [{"text": "b", "thoughtSignature": "c2ln"}]},
                    {"role": "user", "parts": [{"text": "c"}]}]);
            }
            _ => {
                let reasoning = json!({"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}});
                request["messages"] = json!([{"role": "user", "content": [{"text": "a"}]},
                    {"role": "assistant", "content": [reasoning]}, {"role": "user", "content": [{"text": "b"}]}]);
            }
        }
        request
    };
    for (protocol, words) in [
        (Protocol::Messages, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (Protocol::Invoke, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (Protocol::Converse, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (Protocol::Responses, "invalid_encrypted_content"),
        (Protocol::Gemini, "Corrupted thought signature."),
    ] {
        let refused = send(&sim, protocol, model, signed(protocol), false).await;
        assert_eq!(refused.status, 400, "{protocol:?} {}", refused.text());
        assert!(refused.text().contains(words), "{protocol:?} {}", refused.text());
        assert_eq!(send(&sim, protocol, model, ask(protocol, model, "hi"), false).await.status, 200);
    }

    let model = "sim-refuse-beta-old-1";
    let body = ask(Protocol::Messages, model, "hi").to_string();
    for (betas, status) in [("new-2, old-1", 400), ("new-2", 200)] {
        let reply = call(&sim, "POST", "/v1/messages", &[("anthropic-beta", betas)], body.as_bytes()).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.text().contains("Unexpected value(s) `old-1` for the `anthropic-beta` header"), status == 400);
    }
    let mut request = ask(Protocol::Converse, model, "hi");
    request["additionalModelRequestFields"] = json!({"anthropic_beta": ["old-1"]});
    assert_eq!(send(&sim, Protocol::Converse, model, request, false).await.status, 400);
    assert_eq!(send(&sim, Protocol::Chat, model, ask(Protocol::Chat, model, "hi"), false).await.status, 400);
}

#[tokio::test]
async fn bedrock_calls_are_signed_or_carry_a_key() {
    let sim = Sim::start(Script::says("hello")).await;
    let body = ask(Protocol::Converse, "m", "hi").to_string();
    let ask = async |headers: &[(&str, &str)]| {
        let reply = call(&sim, "POST", "/model/m/converse", headers, body.as_bytes()).await;
        (reply.status, reply.header("x-amzn-errortype").map(|text| text.split(':').next().unwrap().to_owned()))
    };
    let refused = |kind: &str| (403, Some(kind.to_owned()));
    assert_eq!(ask(&KEY).await, (200, None));
    assert_eq!(ask(&[]).await, refused("MissingAuthenticationTokenException"));
    assert_eq!(ask(&[("authorization", "Basic x")]).await, refused("IncompleteSignatureException"));
    let signed = |key: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential={key}/20261102/us-east-1/bedrock/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, Signature={}",
            "0".repeat(64)
        )
    };
    let with = |value: &'static str| ("x-amz-date", value);
    let (other, known) = (signed("OTHER"), signed("SIMAWSKEY"));
    assert_eq!(ask(&[("authorization", &other), with("20261102T100000Z")]).await, (200, None));
    assert_eq!(ask(&[("authorization", &other), with("20261103T100000Z")]).await, refused("InvalidSignatureException"));
    assert_eq!(ask(&[("authorization", &known), with("20261102T100000Z")]).await, refused("InvalidSignatureException"));
    sim.set(Script::says("hello").require_key("k"));
    assert_eq!(ask(&KEY).await, (200, None));
    assert_eq!(ask(&[("authorization", "Bearer other")]).await, refused("UnrecognizedClientException"));
}

#[tokio::test]
async fn converse_requests() {
    let said = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let text = json!({"text": "hi"});
    let user = json!({"role": "user", "content": [text]});
    let turns = |turns: &[&Value]| json!({"messages": turns});
    let calls = |id: &str, name: &str| json!({"role": "assistant", "content": [{"toolUse": {"toolUseId": id, "name": name, "input": {}}}]});
    let result = |id: &str, content: Value| json!({"role": "user", "content": [{"toolResult": {"toolUseId": id, "content": content}}]});
    let tools = json!({"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]});
    let tooled = |messages: &[&Value]| json!({"toolConfig": tools, "messages": messages});
    let fine = result("c:1", json!([{"text": "4 m"}, {"json": {"a": 1}}]));
    let document = |name: &str| json!({"document": {"format": "pdf", "name": name, "source": {"bytes": "QUJD"}}});
    let spec = |spec: Value| json!({"toolConfig": {"tools": [{"toolSpec": spec}]}});
    let schema = json!({"json": {"type": "object"}});
    check(
        Protocol::Converse,
        json!({"messages": [user]}),
        &[
            json!({"system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]}),
            json!({"inferenceConfig": {"maxTokens": 5, "temperature": 1, "topP": 0.5, "stopSequences": ["x"]}}),
            json!({"additionalModelRequestFields": {"anything": [1]}, "requestMetadata": {"user_id": "a b:1"}}),
            json!({"outputConfig": {"effort": "low", "textFormat": {"type": "json_schema", "structure": {"jsonSchema":
                {"name": "r", "schema": "{\"type\":\"object\"}"}}}}}),
            tooled(&[&user, &calls("c:1", "f"), &fine]),
            json!({"toolConfig": {"tools": tools["tools"], "toolChoice": {"tool": {"name": "f"}}}}),
            said(json!([document("Q3 tides (1)"), document("other"), text])),
            said(json!([{"image": {"format": "png", "source": {"bytes": "QUJD"}}}])),
        ],
        &[
            (json!({"messages": []}), "messages"),
            (json!({"max_tokens": 5}), "extraneous key [max_tokens]"),
            (json!({"inferenceConfig": {"topK": 5}}), "#/inferenceConfig: extraneous key [topK]"),
            (json!({"inferenceConfig": {"maxTokens": 0}}), "greater than or equal to 1"),
            (json!({"inferenceConfig": {"temperature": 1.5}}), "less than or equal to 1"),
            (json!({"inferenceConfig": {"maxTokens": "5"}}), "STRING_VALUE"),
            (json!({"system": [{"text": ""}]}), "system.0.text"),
            (json!({"system": "text"}), "STRING_VALUE"),
            (said(json!([])), "messages.0 is empty"),
            (said(json!([{"text": " "}])), "messages.0.content.0 is blank"),
            (said(json!([{"text": "a", "image": {}}])), "image.format"),
            (said(json!([{}])), "Exactly one member"),
            (said(json!([{"type": "text", "text": "a"}])), "extraneous key [type]"),
            (said(json!([{"image": {"format": "bmp", "source": {"bytes": "QUJD"}}}])), "enum value set"),
            (said(json!([{"image": {"format": "png", "source": {"bytes": "%"}}}])), "ByteBuffer"),
            (said(json!([document("a.pdf"), text])), "invalid characters"),
            (said(json!([document("a  b"), text])), "invalid characters"),
            (said(json!([document("a"), document("a"), text])), "not unique"),
            (said(json!([document("a")])), "no text"),
            (turns(&[&calls("c", "f")]), "must start with a user message"),
            (turns(&[&user, &user]), "must alternate"),
            (turns(&[&user, &calls("c:1", "f"), &fine]), "toolConfig field must be defined"),
            (tooled(&[&user, &calls("c:1", "f")]), "Expected toolResult blocks at messages.2.content"),
            (tooled(&[&user, &calls("c:2", "f"), &fine]), "exceeds the number of toolUse blocks"),
            (tooled(&[&user, &calls("c:1", "f"), &user]), "for the following Ids: c:1"),
            (tooled(&[&user, &calls("a b", "f"), &fine]), "[a-zA-Z0-9_.:-]+"),
            (tooled(&[&user, &calls("c:1", "f.g"), &fine]), "[a-zA-Z0-9_-]+"),
            (tooled(&[&user, &calls("c:1", "f"), &result("c:1", json!([{"text": ""}]))]), "is blank"),
            (tooled(&[&user, &calls("c:1", "f"), &result("c:1", json!([]))]), "is empty"),
            (tooled(&[&user, &calls("c:1", "f"), &result("c:1", json!([{"json": [1]}]))]), "Provide a json object"),
            (spec(json!({"name": "f", "description": "", "inputSchema": schema})), "description"),
            (spec(json!({"name": "f", "inputSchema": {"json": {"type": "string"}}})), "must be one of"),
            (spec(json!({"name": "f", "inputSchema": schema, "input_schema": {}})), "extraneous key [input_schema]"),
            (json!({"toolConfig": {"tools": []}}), "toolConfig.tools"),
            (json!({"toolConfig": {"tools": tools["tools"], "toolChoice": {"none": {}}}}), "extraneous key [none]"),
            (
                json!({"toolConfig": {"tools": tools["tools"], "toolChoice": {"any": {}}},
                "additionalModelRequestFields": {"tool_choice": {"type": "any"}}}),
                "conflicts",
            ),
            (json!({"requestMetadata": {"user_id": "a;b"}}), "requestMetadata.user_id"),
            (json!({"serviceTier": {"type": "fast"}}), "serviceTier.type"),
        ],
    )
    .await;
}

#[tokio::test]
async fn cohere_requests() {
    let user = json!({"role": "user", "content": "hi"});
    let calls = json!({"role": "assistant", "tool_plan": "p", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "c1", "content": [
        {"type": "document", "document": {"id": "0", "data": {"text": "4 m"}}}]});
    let turns = |turns: &[&Value]| json!({"messages": turns});
    let function = |function: Value| json!({"tools": [{"type": "function", "function": function}]});
    let f = json!({"name": "f", "parameters": {"type": "object", "properties": {}}});
    check(
        Protocol::Cohere,
        json!({"model": "m", "messages": [user]}),
        &[
            turns(&[&json!({"role": "system", "content": "s"}), &user, &calls, &result]),
            turns(&[&user, &calls, &result, &user]),
            json!({"p": 0.5, "k": 5, "temperature": 0.3, "stop_sequences": ["x"], "max_tokens": 5}),
            json!({"thinking": {"type": "enabled", "token_budget": 100}, "citation_options": {"mode": "accurate"}}),
            json!({"documents": ["a", {"id": "d", "data": {"title": "t", "text": "b"}}]}),
            json!({"response_format": {"type": "json_object", "json_schema": {"type": "object"}}}),
            function(f.clone()),
        ],
        &[
            (json!({"top_p": 0.5}), "unknown field: parameter 'top_p' is not a valid field"),
            (json!({"stop": ["a"]}), "parameter 'stop'"),
            (json!({"p": 1}), "p must be between"),
            (json!({"temperature": 1.5}), "temperature"),
            (json!({"stop_sequences": ["1", "2", "3", "4", "5", "6"]}), "stop_sequences"),
            (json!({"tool_choice": "REQUIRED"}), "only be used with tools"),
            (json!({"thinking": {"type": "adaptive"}}), "adaptive"),
            (json!({"messages": []}), "messages"),
            (json!({"model": null}), "required field 'model' is missing"),
            (function(json!({"name": "f", "parameters": {}, "strict": true})), "parameter 'strict'"),
            (function(json!({"name": "f"})), "tools[0].function.parameters"),
            (turns(&[&user, &calls]), "'c1' has no result"),
            (turns(&[&user, &result]), "not found in previous tool calls"),
            (turns(&[&user, &calls, &user]), "'c1' has no result"),
            (turns(&[&user, &json!({"role": "assistant", "content": "a"})]), "last message must be"),
            (turns(&[&json!({"role": "developer", "content": "a"}), &user]), "developer"),
        ],
    )
    .await;
}

#[tokio::test]
async fn cohere_cites_documents() {
    let sim = Sim::start(Script::says("Noon it is")).await;
    let mut request = ask(Protocol::Cohere, "m", "hi");
    request["documents"] = json!([{"id": "d", "data": {"text": "Noon."}}, "other"]);
    let whole = send(&sim, Protocol::Cohere, "m", request.clone(), false).await.json();
    let cited = whole["message"]["citations"].as_array().unwrap().clone();
    assert_eq!((&cited[0]["text"], &cited[0]["end"]), (&json!("Noon"), &json!(4)));
    assert_eq!(
        cited[0]["sources"][0],
        json!({"type": "document", "id": "d", "document": {"id": "d", "text": "Noon."}})
    );
    let streamed = data(send(&sim, Protocol::Cohere, "m", request, true).await.text());
    let starts = streamed.iter().filter(|event| event["type"] == "citation-start");
    assert_eq!(starts.map(|event| event["delta"]["message"]["citations"].clone()).collect::<Vec<_>>(), cited);
    let listed = call(&sim, "GET", "/v1/models", &[], b"").await.json();
    assert_eq!((&listed["models"][0]["name"], &listed["data"][0]["id"]), (&json!("sim"), &json!("sim")));
}

#[tokio::test]
async fn messages_over_bedrock() {
    let sim = Sim::start(Script::says("hello")).await;
    check(
        Protocol::Invoke,
        ask(Protocol::Invoke, "m", "hi"),
        &[json!({"anthropic_version": "2026-10-21"}), json!({"anthropic_beta": ["context-1m-2025-08-07"]})],
        &[
            (json!({"model": "m"}), "model: Extra inputs are not permitted"),
            (json!({"stream": true}), "stream: Extra inputs are not permitted"),
            (json!({"anthropic_version": null}), "anthropic_version: Field required"),
            (json!({"anthropic_version": "2023-06-01"}), "anthropic_version: Input should be"),
            (json!({"anthropic_beta": ["files-api-2025-04-14"]}), "invalid beta flag"),
            (json!({"anthropic_beta": "context-1m-2025-08-07"}), "invalid beta flag"),
            (json!({"messages": null}), "messages: Field required"),
        ],
    )
    .await;
    let reply = send(&sim, Protocol::Invoke, "a.b-v1%3A0", ask(Protocol::Invoke, "m", "hi"), true).await;
    let events = events(Protocol::Invoke, &reply);
    assert_eq!(events[0]["message"]["model"], "a.b-v1:0");
    assert!(events.iter().all(|event| event["type"] != "ping"));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "message_stop");
    assert!(last["amazon-bedrock-invocationMetrics"]["outputTokenCount"].is_u64());
    for (path, status) in [("/model/m/other", 404), ("/model/a/b/invoke", 404)] {
        assert_eq!(post(&sim, path, &ask(Protocol::Invoke, "m", "hi")).await.status, status);
    }
}

#[tokio::test]
async fn messages_over_vertex() {
    let sim = Sim::start(Script::default()).await;
    let place = "/v1/projects/p/locations/eu/publishers/anthropic/models";
    let body = json!({"anthropic_version": "vertex-2023-10-16", "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}]});
    let with = |name: &str, value: Value| {
        let mut body = body.clone();
        body[name] = value;
        body
    };
    let whole = post(&sim, &format!("{place}/sim:rawPredict"), &body).await;
    assert_eq!(whole.json()["content"][0]["text"], "You said: hi");
    let streamed = post(&sim, &format!("{place}/sim:streamRawPredict"), &with("stream", json!(true))).await;
    assert_eq!(heard(Protocol::Messages, &streamed, true).text, "You said: hi");
    let counted = post(&sim, &format!("{place}/count-tokens:rawPredict"), &with("model", json!("sim"))).await;
    assert!(counted.json()["input_tokens"].as_u64().unwrap() > 0);
    for (end, body, status) in [
        ("sim:rawPredict", with("model", json!("sim")), 400),
        ("sim:rawPredict", with("anthropic_version", json!("2023-06-01")), 400),
        ("sim:streamRawPredict", body.clone(), 400),
        ("count-tokens:rawPredict", body.clone(), 400),
        ("sim-status-429:rawPredict", body.clone(), 429),
        ("sim-status-529:rawPredict", body.clone(), 529),
        ("sim:predict", body.clone(), 404),
    ] {
        let reply = post(&sim, &format!("{place}/{end}"), &body).await;
        assert_eq!(reply.status, status, "{end}: {}", reply.text());
        let google = matches!(status, 404 | 429);
        assert_eq!(reply.json()["error"]["code"].is_u64(), google, "{end}: {}", reply.text());
    }
    let bare = call(&sim, "POST", &format!("{place}/sim:rawPredict"), &[], body.to_string().as_bytes()).await;
    assert_eq!((bare.status, &bare.json()["error"]["status"]), (401, &json!("UNAUTHENTICATED")));
}

#[tokio::test]
async fn bedrock_counts_tokens() {
    let sim = Sim::start(Script::default()).await;
    let count = async |input: Value| post(&sim, "/model/m/count-tokens", &json!({"input": input})).await;
    let converse = ask(Protocol::Converse, "m", "hi");
    assert!(count(json!({"converse": converse})).await.json()["inputTokens"].as_u64().unwrap() > 0);
    // {"anthropic_version":"bedrock-2023-05-31","max_tokens":1,"messages":[]}
    let body = "eyJhbnRocm9waWNfdmVyc2lvbiI6ImJlZHJvY2stMjAyMy0wNS0zMSIsIm1heF90b2tlbnMiOjEsIm1lc3NhZ2VzIjpbXX0=";
    let counted = count(json!({"invokeModel": {"body": body}})).await;
    assert!(counted.json()["inputTokens"].as_u64().unwrap() > 0, "{}", counted.text());
    assert_eq!(count(json!({"invokeModel": {"body": "e30="}})).await.status, 400);
    assert_eq!(count(json!({"converse": {"messages": [], "inferenceConfig": {}}})).await.status, 400);
    assert_eq!((sim.calls(), sim.count_calls()), (0, 4));
}
