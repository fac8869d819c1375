//! What only Anthropic itself has beside its models: files, containers, code that runs there, servers of tools. Others that
//! speak its format, and those who resell its models, are never asked for it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::{MODEL, asked, message};
use crate::harness::{INFERENCE_KEY, Tidegate, hello};

const FILE: &str = "file_011CNha8iCJcU1wXNR6q4V8w";
const OTHERS: [&str; 2] = ["bedrock-invoke", "z-ai"];

/// A request with each of these, by its name.
fn requests() -> Vec<(&'static str, Value)> {
    let shows = |kind: &str| {
        let block = json!({"type": kind, "source": {"type": "file", "file_id": FILE}});
        json!({"messages": [{"role": "user", "content": [block, {"type": "text", "text": "?"}]}]})
    };
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1",
        "content": [{"type": "image", "source": {"type": "file", "file_id": FILE}}]});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}});
    let within = json!({"tools": [{"name": "look", "input_schema": {"type": "object"}}], "messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]});
    let parts = vec![
        ("document", shows("document")),
        ("image", shows("image")),
        ("result", within),
        ("code", json!({"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]})),
        ("container", json!({"container": "container_1"})),
        ("mcp_servers", json!({"mcp_servers": [{"type": "url", "url": "https://mcp.invalid/sse", "name": "m"}]})),
    ];
    let with = |more: Value| {
        let mut body = hello(MODEL);
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    parts.into_iter().map(|(name, more)| (name, with(more))).collect()
}

fn of(platform: &str) -> String {
    format!("platform = \"{platform}\"")
}

#[tokio::test]
async fn who_has_it_serves_though_others_are_cheaper() {
    for platform in OTHERS {
        let (other, own) = (Sim::start(Behaviour::says("no")).await, Sim::start(Behaviour::says("yes")).await);
        let lists = "supported_parameters = [\"max_tokens\", \"tools\"]";
        let gate = Tidegate::start().endpoint_of(MODEL, &other.base_url(), &of(platform), "shadow_price = 0.001");
        let gate = gate.endpoint_of(MODEL, &own.base_url(), &of("anthropic"), "shadow_price = 100").run().await;
        for (name, body) in requests() {
            let answer = message(&asked(&gate, &body).await);
            assert_eq!((&answer["content"][0]["text"], other.calls()), (&json!("yes"), 0), "{platform} {name}");
        }
        // What its model takes may be listed without a word of that.
        let gate = Tidegate::start().endpoint_of(MODEL, &own.base_url(), &of("anthropic"), lists).run().await;
        for (name, body) in requests().into_iter().filter(|(name, _)| *name != "mcp_servers") {
            assert_eq!(asked(&gate, &body).await.status, 200, "{name}");
        }
    }
}

#[tokio::test]
async fn where_nobody_has_it_the_request_is_refused_by_its_name() {
    for platform in OTHERS {
        let other = Sim::start(Behaviour::says("no")).await;
        let gate = Tidegate::start().endpoint_of(MODEL, &other.base_url(), &of(platform), "");
        let gate = gate.config("[tools]\ndisabled = [\"mcp\"]\n").run().await;
        // `messages.md` sections 5.1 and 22.
        let missing = format!("File not found: {FILE}");
        let code = format!(
            "Invalid request: tools[0].type 'code_execution_20250825' is not supported by any endpoint of {MODEL}"
        );
        let container = format!("Invalid request: container is not supported by any endpoint of {MODEL}");
        for (name, body) in requests() {
            let (status, kind, _, text) = asked(&gate, &body).await.error();
            let wanted = match name {
                "document" | "image" | "result" => (404, "not_found_error", missing.as_str()),
                "code" => (400, "invalid_request_error", code.as_str()),
                "container" => (400, "invalid_request_error", container.as_str()),
                _ => (400, "invalid_request_error", "tidegate:mcp is not configured on this deployment"),
            };
            assert_eq!((status, kind.as_str(), text.as_str()), wanted, "{platform} {name}");
            if wanted.0 == 404 {
                let ask = gate.ask("POST", "/v1/messages/count_tokens").key(INFERENCE_KEY);
                assert_eq!(ask.json(body.to_string()).send().await.error().3, missing, "{platform} {name}");
            }
        }
        assert_eq!(other.calls(), 0, "{platform}");
    }
}
