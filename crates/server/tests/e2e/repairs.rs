//! Calls that an upstream refuses for a reason that another call need not give it: made again, otherwise.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, asked, message};
use crate::harness::{INFERENCE_KEY, Tidegate, user};

fn refused(body: &Value) -> Behaviour {
    Behaviour::Raw {
        status: 400,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into(),
    }
}

/// The bodies of both calls: the one that is refused with these words, and the one that is answered.
async fn repaired(protocol: (&str, &str), lines: &str, request: Value, refusal: Value) -> (Value, Value) {
    let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let address = format!("{}{}", sim.base_url(), protocol.1);
    let gate = Tidegate::start().protocol_at(MODEL, protocol.0, &address, lines).run().await;
    let answer = message(&asked(&gate, &request).await);
    assert_eq!(answer["content"][0]["text"], "ok");
    let seen = sim.requests();
    assert_eq!(seen.len(), 2, "refused once, and answered");
    (seen[0].json(), seen[1].json())
}

/// A turn with a call that is answered, and words after the result.
fn loop_of_tools() -> Value {
    json!({"model": MODEL, "max_tokens": 500, "tools": [{"name": "look", "input_schema":
        {"type": "object", "properties": {"port": {"type": ["string", "null"]}}, "additionalProperties": false}}],
    "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"port": "Brest"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "4.1 m"},
            {"type": "text", "text": "In one line."},
        ]},
    ]})
}

#[tokio::test]
async fn an_organisation_that_is_not_verified_is_asked_without_summaries() {
    let request = json!({"model": MODEL, "max_tokens": 2000, "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"}, "messages": [{"role": "user", "content": "hi"}]});
    let refusal = json!({"error": {"message": "Your organization must be verified to generate reasoning summaries.",
        "type": "invalid_request_error", "param": "reasoning.summary", "code": "unsupported_value"}});
    let lines = "card = { reasoning = \"effort\", efforts = [\"low\", \"high\"] }";
    let (first, second) = repaired(("openai-responses", "/v1"), lines, request, refusal).await;
    assert_eq!(first["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(second["reasoning"], json!({"effort": "low"}));
}

#[tokio::test]
async fn p45_a_server_that_does_not_know_json_schema_gets_the_part_that_it_knows() {
    let words = "Invalid JSON payload received. Unknown name \"parametersJsonSchema\" at 'tools[0].function_declarations[0]': Cannot find field.";
    let refusal = json!({"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}});
    let (first, second) = repaired(("gemini", "/v1beta"), "", loop_of_tools(), refusal).await;
    let declared = |body: &Value| body["tools"][0]["functionDeclarations"][0].clone();
    assert!(
        declared(&first)["parametersJsonSchema"].is_object() && declared(&second)["parametersJsonSchema"].is_null()
    );
    assert_eq!(declared(&second)["parameters"]["properties"]["port"], json!({"type": "string", "nullable": true}));
}

#[tokio::test]
async fn p61_a_signature_that_stands_for_none_is_sent_in_its_other_form() {
    let refusal = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "Function call is missing a thought_signature in functionCall parts."}});
    let mut request = loop_of_tools();
    request["messages"][2]["content"].as_array_mut().unwrap().truncate(1);
    let lines = "card = { signed_reasoning = true }";
    let (first, second) = repaired(("gemini", "/v1beta"), lines, request, refusal).await;
    let signature = |body: &Value| body["contents"][1]["parts"][0]["thoughtSignature"].clone();
    assert_eq!(signature(&first), "skip_thought_signature_validator");
    assert_eq!(signature(&second), "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=");
}

#[tokio::test]
async fn p61_a_signature_that_is_missing_is_stood_for_wherever_one_could_be() {
    let refusal = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
        "message": "Function call is missing a thought_signature in functionCall parts."}});
    let mut request = loop_of_tools();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.extend([json!({"role": "assistant", "content": "Safe."}), user("And now?")]);
    let lines = "card = { signed_reasoning = true }";
    let (first, second) = repaired(("gemini", "/v1beta"), lines, request, refusal).await;
    let signature = |body: &Value| body["contents"][1]["parts"][0]["thoughtSignature"].clone();
    assert_eq!((signature(&first), signature(&second)), (Value::Null, "skip_thought_signature_validator".into()));
}

#[tokio::test]
async fn words_that_may_not_follow_results_are_put_into_them() {
    let words = "Expected last role User or Tool (or Assistant with prefix True) for serving but got user";
    let refusal = json!({"object": "error", "message": words, "type": "invalid_request_message_order", "code": "3230"});
    let (first, second) = repaired(("openai-chat", "/v1"), "", loop_of_tools(), refusal).await;
    assert_eq!(first["messages"][3], json!({"role": "user", "content": "In one line."}));
    assert_eq!(second["messages"][2]["content"], "4.1 m\n\nIn one line.");
    assert_eq!(second["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn p89_claude_behind_converse_goes_on_without_thinking_and_is_told_of_betas() {
    let mut request = loop_of_tools();
    (request["max_tokens"], request["thinking"]) = (4000.into(), json!({"type": "enabled", "budget_tokens": 2000}));
    let words = "messages.1.content.0.type: Expected `thinking`, but found `tool_use`. When `thinking` is enabled, a final `assistant` message must start with a thinking block.";
    let sim = Sim::start(Script::from(refused(&json!({"message": words}))).then(Behaviour::says("ok"))).await;
    let lines = "card = { claude = true }";
    let gate = Tidegate::start().protocol_at(MODEL, "bedrock-converse", &sim.base_url(), lines).run().await;
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
    let ask = ask.header("anthropic-beta", "context-1m-2025-08-07,files-api-2025-04-14");
    let reply = ask.json(request.to_string()).send().await;
    assert_eq!(message(&reply)["content"][0]["text"], "ok");
    let more: Vec<Value> =
        sim.requests().iter().map(|seen| seen.json()["additionalModelRequestFields"].clone()).collect();
    let betas = json!(["context-1m-2025-08-07"]);
    assert_eq!(
        more,
        [
            json!({"thinking": {"type": "enabled", "budget_tokens": 2000}, "anthropic_beta": betas}),
            json!({"anthropic_beta": betas}),
        ]
    );
    assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:files-api-2025-04-14,dropped:thinking"));
}

#[tokio::test]
async fn reasoning_that_is_refused_is_left_out_and_named() {
    let words = "messages.1.content.0: Invalid `data` in `redacted_thinking` block";
    let history = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "dGhlaXJz"}, {"type": "text", "text": "ho"}]},
        {"role": "user", "content": "and?"},
    ]);
    let request = json!({"model": MODEL, "max_tokens": 100, "messages": history});
    for (protocol, lines) in [("anthropic", ""), ("bedrock-converse", "card = { claude = true }")] {
        let refusal = json!({"type": "error", "message": words,
            "error": {"type": "invalid_request_error", "message": words}});
        let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &sim.base_url(), lines).run().await;
        let reply = asked(&gate, &request).await;
        assert_eq!(message(&reply)["content"][0]["text"], "ok", "{protocol}");
        let sent: Vec<bool> = sim.requests().iter().map(|seen| seen.json().to_string().contains("dGhlaXJz")).collect();
        assert_eq!(sent, [true, false], "{protocol}");
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:reasoning"), "{protocol}");
    }
}

#[tokio::test]
async fn claude_behind_converse_has_room_to_answer_within_a_limit_of_ours() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let lines = "context_length = 4096\nmax_output_tokens = 8192\ncard = { claude = true }";
    let gate = Tidegate::start().protocol_at(MODEL, "bedrock-converse", &sim.base_url(), lines).run().await;
    let thinking = json!({"type": "enabled", "budget_tokens": 6000});
    let reply = gate.messages(json!({"model": MODEL, "messages": [user("hi")], "thinking": thinking})).await;
    assert_eq!(message(&reply)["content"][0]["text"], "ok");
    let sent = sim.requests()[0].json();
    let limit = sent["inferenceConfig"]["maxTokens"].as_u64().unwrap();
    assert!((2048..4096).contains(&limit), "{sent}");
    assert_eq!(sent["additionalModelRequestFields"]["thinking"]["budget_tokens"], limit - 1024);
    assert_eq!(reply.header("x-tidegate-warnings"), Some("clamped:budget_tokens"));
}

#[tokio::test]
async fn p61_a_signature_that_the_client_has_not_kept_goes_back_all_the_same() {
    let call = json!({"functionCall": {"name": "look", "args": {"port": "Brest"}}, "thoughtSignature": "CiQBjz1r"});
    let answer = json!({"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [call]}}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}});
    for (kind, body) in [("application/json", answer.to_string()), ("text/event-stream", format!("data: {answer}\n\n"))]
    {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let first = Behaviour::Raw { status: 200, headers, body: body.into() };
        let sim = Sim::start(Script::from(first).then(Behaviour::says("ok"))).await;
        let (address, lines) = (format!("{}/v1beta", sim.base_url()), "card = { signed_reasoning = true }");
        let gate = Tidegate::start().protocol_at(MODEL, "gemini", &address, lines).run().await;
        let mut request = loop_of_tools();
        request["messages"].as_array_mut().unwrap().truncate(1);
        request["stream"] = (kind != "application/json").into();
        let said = message(&asked(&gate, &request).await);
        let call = said["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use").unwrap();
        // The thinking that carries it is left out.
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "4.1 m"});
        request["messages"]
            .as_array_mut()
            .unwrap()
            .extend([json!({"role": "assistant", "content": [call]}), json!({"role": "user", "content": [result]})]);
        assert_eq!(message(&asked(&gate, &request).await)["content"][0]["text"], "ok");
        let seen = sim.requests()[1].json();
        assert_eq!(seen["contents"][1]["parts"][0]["thoughtSignature"], "CiQBjz1r", "{kind}");
    }
}

#[tokio::test]
async fn p63_what_was_thought_before_a_call_goes_back_though_the_client_keeps_nothing() {
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let said = json!({"role": "assistant", "content": null, "reasoning_content": "Look there.", "tool_calls": [call]});
    let whole = json!({"id": "c", "choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 2}});
    let piece = json!({"id": "c", "choices": [{"index": 0, "delta": said, "finish_reason": "tool_calls"}]});
    for (kind, body) in
        [("application/json", whole.to_string()), ("text/event-stream", format!("data: {piece}\n\ndata: [DONE]\n\n"))]
    {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        let first = Behaviour::Raw { status: 200, headers, body: body.into() };
        let sim = Sim::start(Script::from(first).then(Behaviour::says("ok"))).await;
        let lines = "card = { reasoning = \"thinking\", reasoning_field = \"reasoning_content\", replay_reasoning = \"tool_loop\", needs_thinking_back = true }";
        let address = format!("{}/v1", sim.base_url());
        let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, lines).run().await;
        let mut request = loop_of_tools();
        request["messages"].as_array_mut().unwrap().truncate(1);
        request["stream"] = (kind != "application/json").into();
        let said = message(&asked(&gate, &request).await);
        // What carries it for a client that keeps it; this one keeps the call alone.
        assert_eq!((&said["content"][0]["type"], &said["content"][0]["thinking"]), (&json!("thinking"), &json!("")));
        let result = json!({"type": "tool_result", "tool_use_id": "call_1", "content": "4.1 m"});
        request["messages"].as_array_mut().unwrap().extend([
            json!({"role": "assistant", "content": [said["content"][1]]}),
            json!({"role": "user", "content": [result]}),
        ]);
        let reply = asked(&gate, &request).await;
        assert_eq!((&message(&reply)["content"][0]["text"], reply.header("x-tidegate-warnings")), (&json!("ok"), None));
        let seen = sim.requests()[1].json();
        assert_eq!((&seen["messages"][1]["reasoning_content"], seen.get("thinking")), (&json!("Look there."), None));
    }
}

#[tokio::test]
async fn p63_who_must_be_asked_for_all_is_asked_where_nobody_wants_it_to_think() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let config = format!(
        "[[providers]]\nslug = \"strict\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\non_unsupported = \"error\"\n\
         [[models]]\nid = \"{MODEL}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
         [[models.endpoints]]\nprovider = \"strict\"\nmodel = \"m\"\n\
         card = {{ reasoning = \"thinking\", needs_thinking_back = true }}\n",
        sim.base_url()
    );
    let gate = Tidegate::start().config(&config).run().await;
    let request = loop_of_tools();
    let reply = gate.messages(request.clone()).await;
    assert_eq!((reply.status, reply.text().as_str()), (200, "ok"), "{}", reply.body_text());
    assert_eq!(reply.header("x-tidegate-warnings"), Some("disabled:thinking"));
    assert_eq!(sim.requests().pop().expect("it was called").json()["thinking"], json!({"type": "disabled"}));
    let calls = sim.calls();
    for (member, wanted) in [("thinking", json!({"type": "adaptive"})), ("output_config", json!({"effort": "high"}))] {
        let mut request = request.clone();
        request[member] = wanted;
        let (status, _, _, message) = gate.messages(request).await.error();
        assert!(status == 400 && message.contains("disabled:thinking"), "{member}: {status} {message}");
    }
    assert_eq!(sim.calls(), calls);
}

#[tokio::test]
async fn words_that_a_caller_plants_take_nothing_from_others() {
    let message = "Invalid schema for function 'stop': In context=('properties', 'unknown parameter'), array schema missing items.";
    let planted = json!({"error": {"message": message, "type": "invalid_request_error",
        "param": "tools[0].function.parameters", "code": "invalid_function_parameters"}});
    let path = "messages.0.content.0.text.x stop_sequences: Extra inputs are not permitted";
    let path = json!({"type": "error", "error": {"type": "invalid_request_error", "message": path}});
    for (protocol, address, refusal, member) in
        [("openai-chat", "/v1", planted, "stop"), ("anthropic", "", path, "stop_sequences")]
    {
        let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
        let address = format!("{}{address}", sim.base_url());
        let gate = Tidegate::start().protocol_at(MODEL, protocol, &address, "").run().await;
        let request = json!({"model": MODEL, "max_tokens": 50, "stop_sequences": ["END"], "messages": [user("hi")]});
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, sim.calls()), (400, 1), "{protocol}: {}", reply.body_text());
        assert_eq!(asked(&gate, &request).await.status, 200, "{protocol}");
        assert_eq!(sim.requests()[1].json()[member], json!(["END"]), "{protocol}");
    }
}

#[tokio::test]
async fn what_does_not_help_is_not_remembered() {
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "metadata: Extra inputs are not permitted"}});
    let sim = Sim::start(Script::from(refused(&refusal)).then(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let gate = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), "betas = false", "").run().await;
    let request = json!({"model": MODEL, "max_tokens": 50, "metadata": {"user_id": "u"}, "messages": [user("hi")]});
    assert_eq!((asked(&gate, &request).await.status, sim.calls()), (400, 2));
    let reply = asked(&gate, &request).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
    assert!(sim.requests()[2].json()["metadata"].is_object());
    // What helps is.
    sim.set(Script::from(refused(&refusal)).then(Behaviour::says("ok")));
    for calls in [2, 1] {
        let before = sim.calls();
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:metadata")));
        assert_eq!(sim.calls() - before, calls);
        assert_eq!(sim.requests().last().unwrap().json()["metadata"], Value::Null);
    }
}

#[tokio::test]
async fn a_beta_that_could_end_a_quotation_is_kept_from_upstreams() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
    let request = json!({"model": MODEL, "max_tokens": 50, "messages": [user("hi")]});
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
    let ask = ask.header("anthropic-beta", "a`b`context-1m-2025-08-07, context-1m-2025-08-07");
    let reply = ask.json(request.to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:a`b`context-1m-2025-08-07"));
    assert_eq!(sim.requests()[0].header("anthropic-beta"), Some("context-1m-2025-08-07"));
}

/// OpenAI's words for an option that a model does not take.
fn unsupported(name: &str) -> Behaviour {
    refused(&json!({"error": {"message": format!("Unsupported parameter: '{name}' is not supported with this model."),
        "type": "invalid_request_error", "param": name, "code": "unsupported_parameter"}}))
}

#[tokio::test]
async fn a_call_is_repaired_until_nothing_is_left_that_is_refused() {
    let script = Script::from(unsupported("temperature")).then(unsupported("top_p")).then(Behaviour::says("ok"));
    let sim = Sim::start(script).await;
    let address = format!("{}/v1", sim.base_url());
    let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, "").run().await;
    let request = json!({"model": MODEL, "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "messages": [user("hi")]});
    // All of it is remembered.
    for calls in [3, 1] {
        let before = sim.calls();
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, sim.calls() - before), (200, calls), "{}", reply.body_text());
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:temperature,dropped:top_p"));
        let sent = sim.requests().last().unwrap().json();
        assert_eq!((&sent["temperature"], &sent["top_p"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn all_betas_that_an_error_lists_are_left_out_at_once() {
    let words = "Unexpected value(s) `a-2025-02-19`, `c-2025-05-14` for the `anthropic-beta` header.";
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
    let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
    let request = json!({"model": MODEL, "max_tokens": 50, "messages": [user("hi")]});
    for calls in [2, 1] {
        let before = sim.calls();
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
        let ask = ask.header("anthropic-beta", "a-2025-02-19,b-2025-05-14,c-2025-05-14");
        let reply = ask.json(request.to_string()).send().await;
        assert_eq!((reply.status, sim.calls() - before), (200, calls), "{}", reply.body_text());
        assert_eq!(sim.requests().last().unwrap().header("anthropic-beta"), Some("b-2025-05-14"));
    }
}

#[tokio::test]
async fn a_call_is_made_again_only_so_often_and_only_as_another_one() {
    let extra = |name: &str| {
        refused(&json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": format!("{name}: Extra inputs are not permitted")}}))
    };
    let mut request = json!({"model": MODEL, "max_tokens": 50, "temperature": 0.5, "messages": [user("hi")]});
    for number in 0..6 {
        request[format!("new_{number}")] = json!(1);
    }
    let script =
        (1..6).fold(Script::from(extra("new_0")), |script, number| script.then(extra(&format!("new_{number}"))));
    let sim = Sim::start(script).await;
    let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
    assert_eq!((asked(&gate, &request).await.status, sim.calls()), (400, 5));
    // What was not sent cannot be left out.
    for name in ["temperature.x", "seed"] {
        let before = sim.calls();
        sim.set(Script::from(extra(name)).then(Behaviour::says("ok")));
        assert_eq!((asked(&gate, &request).await.status, sim.calls() - before), (400, 1), "{name}");
    }
    let chat = Sim::start(Script::from(unsupported("seed")).then(Behaviour::says("ok"))).await;
    let address = format!("{}/v1", chat.base_url());
    let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, "").run().await;
    assert_eq!((asked(&gate, &request).await.status, chat.calls()), (400, 1));
    let beta = json!({"error": {"message": "Unexpected value(s) `new-1` for the `anthropic-beta` header"}});
    sim.set(Script::from(refused(&beta)).then(Behaviour::says("ok")));
    let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
    let before = sim.calls();
    assert_eq!((asked(&gate, &request).await.status, sim.calls() - before), (400, 1));
}

#[tokio::test]
async fn a_member_that_needs_a_beta_is_taken_from_nobody_who_sends_it() {
    let words = "output_format: Extra inputs are not permitted";
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
    let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let request = json!({"model": MODEL, "max_tokens": 50, "output_format": format, "messages": [user("hi")]});
    let reply = asked(&gate, &request).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:output_format")));
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
    let ask = ask.header("anthropic-beta", "structured-outputs-2025-11-13");
    let reply = ask.json(request.to_string()).send().await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings"), sim.calls()), (200, None, 3));
    assert_eq!(sim.requests().last().unwrap().json()["output_format"], format);
}

#[tokio::test]
async fn an_option_that_is_refused_beside_another_is_taken_from_nobody_else() {
    let words = "Unsupported parameter: 'temperature' is not supported with this model when reasoning is on.";
    let refusal = json!({"error": {"message": words, "param": "temperature", "code": "unsupported_parameter"}});
    let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let address = format!("{}/v1", sim.base_url());
    let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &address, "").run().await;
    let request = json!({"model": MODEL, "max_tokens": 50, "temperature": 0.5, "messages": [user("hi")]});
    for (calls, warnings) in [(2, Some("dropped:temperature")), (1, None)] {
        let before = sim.calls();
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, warnings), "{}", reply.body_text());
        assert_eq!(sim.calls() - before, calls);
    }
}

#[tokio::test]
async fn a_member_that_the_answer_would_be_wrong_without_is_never_left_out() {
    let needed = [
        ("mcp_servers", json!([{"type": "url", "url": "https://mcp.invalid/sse", "name": "m"}])),
        ("container", json!("container_1")),
        ("output_config", json!({"format": {"type": "json_schema", "schema": {"type": "object"}}})),
    ];
    for (member, value) in needed {
        let words = format!("{member}: Extra inputs are not permitted");
        let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
        let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
        let gate = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), "").run().await;
        let mut request = json!({"model": MODEL, "max_tokens": 50, "messages": [user("hi")]});
        request[member] = value;
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, sim.calls()), (400, 1), "{member}: {}", reply.body_text());
        assert!(reply.body_text().contains(&words), "{member}: {}", reply.body_text());
    }
}

#[tokio::test]
async fn options_that_were_refused_before_are_sent_where_they_hold_the_form_of_the_answer() {
    let words = "output_config: Extra inputs are not permitted";
    let refusal = json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
    let sim = Sim::start(Script::from(refused(&refusal)).then(Behaviour::says("ok"))).await;
    let gate = Tidegate::start().endpoint_of(MODEL, &sim.base_url(), "betas = false", "").run().await;
    let mut request =
        json!({"model": MODEL, "max_tokens": 50, "output_config": {"effort": "low"}, "messages": [user("hi")]});
    for calls in [2, 3] {
        let reply = asked(&gate, &request).await;
        assert_eq!((reply.status, sim.calls()), (200, calls), "{}", reply.body_text());
        assert_eq!(sim.requests().last().unwrap().json()["output_config"], Value::Null);
    }
    request["output_config"]["format"] = json!({"type": "json_schema", "schema": {"type": "object"}});
    let reply = asked(&gate, &request).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
    assert_eq!(sim.requests().last().unwrap().json()["output_config"], request["output_config"]);
}

#[tokio::test]
async fn who_requires_parameters_is_served_by_those_who_take_them() {
    let refusal = json!({"error": {"message": "Unsupported parameter: 'temperature' is not supported with this model.",
        "type": "invalid_request_error", "param": "temperature", "code": "unsupported_parameter"}});
    let refuses = || refused(&refusal);
    let script = Script::from(refuses()).then(refuses()).then(refuses()).then(Behaviour::says("first"));
    let first = Sim::start(script).await;
    let second = Sim::start(Behaviour::says("second")).await;
    let at = |sim: &Sim| format!("{}/v1", sim.base_url());
    let gate = Tidegate::start()
        .protocol_at(MODEL, "openai-chat", &at(&first), "")
        .protocol_at(MODEL, "openai-chat", &at(&second), "")
        .protocol_at("vendor/alone", "openai-chat", &at(&first), "")
        .run()
        .await;
    let request = |model: &str, required: bool| {
        json!({"model": model, "max_tokens": 50, "temperature": 0.5, "messages": [user("hi")],
            "provider": {"require_parameters": required}})
    };
    // Before anybody knows that it is refused there.
    let reply = gate.messages(request(MODEL, true)).await;
    assert_eq!((reply.text().as_str(), reply.header("x-tidegate-warnings")), ("second", None));
    assert_eq!(second.requests()[0].json()["temperature"], 0.5);
    let reply = gate.messages(request("vendor/alone", true)).await;
    let (status, _, _, message) = reply.error();
    assert!(status == 400 && message.contains("dropped:temperature"), "{status} {message}");
    // Who does not insist gets an answer without it, and what was learnt by that takes nothing from those who do.
    let reply = gate.messages(request(MODEL, false)).await;
    assert_eq!((reply.text().as_str(), reply.header("x-tidegate-warnings")), ("first", Some("dropped:temperature")));
    let calls = first.calls();
    let reply = gate.messages(request(MODEL, true)).await;
    assert_eq!((reply.text().as_str(), reply.header("x-tidegate-warnings")), ("second", None));
    assert_eq!(first.calls(), calls, "known by now");
}
