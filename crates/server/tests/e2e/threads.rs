//! `thread`: Anthropic holds the conversation, and a request says only what is new. Nobody else could answer that.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::bodies;
use crate::harness::{Reply, Tidegate, hello};

const NATIVE: &str = "vendor/native";
const FOREIGN: &str = "vendor/foreign";

/// A model whose endpoint gets requests as they come, and one whose endpoint gets them translated.
async fn pair() -> (Sim, Sim, Tidegate) {
    let (native, foreign) = (Sim::start(Behaviour::says("native")).await, Sim::start(Behaviour::says("foreign")).await);
    let address = format!("{}/v1", foreign.base_url());
    let engine = "[tools.web_search.engines.fixed]\nkind = \"static\"\nresults = []\n";
    let gate = Tidegate::start().endpoint_of(NATIVE, &native.base_url(), "platform = \"anthropic\"", "").protocol_at(
        FOREIGN,
        "openai-chat",
        &address,
        "",
    );
    (native, foreign, gate.config(engine).run().await)
}

fn with(model: &str, more: Value) -> Value {
    let mut body = hello(model);
    body["thread"] = goes_on();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn goes_on() -> Value {
    json!({"type": "continue", "previous_message_id": "msg_1"})
}

/// The error that Anthropic's client goes on after, without a thread.
fn assert_unsupported(reply: &Reply, what: &str, text: &str) {
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["type"]), (400, &json!("invalid_request_error")), "{}", reply.body_text());
    let details = json!({"error_code": "thread_unsupported_request", "unsupported": [what]});
    assert_eq!((&error["details"], &error["message"]), (&details, &json!(text)));
}

#[tokio::test]
async fn only_who_holds_the_conversation_serves_it() {
    let (native, foreign, gate) = pair().await;
    let unsupported = "Invalid request: thread is not supported by any endpoint of vendor/foreign";
    let create = json!({"thread": {"type": "create"}});
    let required = json!({"provider": {"require_parameters": true}});
    for more in [json!({}), create, required, json!({"stream": true}), json!({"messages": []})] {
        assert_unsupported(&gate.messages(with(FOREIGN, more)).await, "model", unsupported);
    }
    assert_eq!(foreign.calls(), 0);
    // With both the one who can, and nobody else when he cannot.
    for models in [json!([FOREIGN, NATIVE]), json!([NATIVE, FOREIGN])] {
        let body = with(models[0].as_str().unwrap(), json!({"models": [models[1]]}));
        assert_eq!(gate.messages(body).await.text(), "native");
    }
    native.set(Behaviour::status(529));
    let reply = gate.messages(with(NATIVE, json!({"models": [FOREIGN]}))).await;
    assert_eq!((reply.status, foreign.calls()), (529, 0), "{}", reply.body_text());
    // Null is no thread.
    let reply = gate.messages(with(FOREIGN, json!({"thread": null}))).await;
    assert_eq!((reply.text().as_str(), reply.header("x-tidegate-warnings")), ("foreign", None));
}

/// They take the request, and leave out what they do not know: the whole conversation.
#[tokio::test]
async fn others_who_speak_the_format_hold_no_conversations() {
    for platform in ["bedrock-invoke", "vertex-anthropic", "z-ai"] {
        let other = Sim::start(Behaviour::says("no")).await;
        let platform = format!("platform = \"{platform}\"");
        let gate = Tidegate::start().endpoint_of(NATIVE, &other.base_url(), &platform, "").run().await;
        let unsupported = format!("Invalid request: thread is not supported by any endpoint of {NATIVE}");
        assert_unsupported(&gate.messages(with(NATIVE, json!({}))).await, "model", &unsupported);
        assert_eq!(other.calls(), 0, "{platform}");
    }
    // Of a server that only speaks the format nobody knows it, until its operator says so.
    let relay = Sim::start(Behaviour::says("yes")).await;
    let gate = Tidegate::start().endpoint(NATIVE, &relay).run().await;
    assert_eq!((gate.messages(with(NATIVE, json!({}))).await.status, relay.calls()), (400, 0));
    let listed = "supported_parameters = [\"max_tokens\", \"thread\"]";
    let gate = Tidegate::start().endpoint_with(NATIVE, &relay, listed).run().await;
    assert_eq!(gate.messages(with(NATIVE, json!({}))).await.text(), "yes");
}

#[tokio::test]
async fn a_turn_that_was_paused_goes_on_without_a_word() {
    let (native, _, gate) = pair().await;
    assert_eq!(gate.messages(with(NATIVE, json!({"messages": []}))).await.text(), "native");
    let sent: Value = serde_json::from_str(&bodies(&native)[0]).unwrap();
    assert_eq!((&sent["messages"], &sent["thread"]), (&json!([]), &goes_on()));
    let create = json!({"messages": [], "thread": {"type": "create"}});
    for (more, problem) in [
        (create, "messages is required"),
        (json!({"messages": [], "thread": null}), "messages is required"),
        (json!({"thread": "msg_1"}), "thread must be an object"),
        (json!({"thread": {}}), "thread.type is required"),
    ] {
        let (status, _, _, told) = gate.messages(with(NATIVE, more)).await.error();
        assert_eq!((status, told), (400, format!("Invalid request: {problem}")));
    }
    assert_eq!(native.calls(), 1);
}

#[tokio::test]
async fn tools_of_ours_and_threads_do_not_go_together() {
    let (native, _, gate) = pair().await;
    let conflict = "Invalid request: thread cannot be combined with tools that the gateway runs";
    for more in [
        json!({"tools": [{"type": "tidegate:datetime"}]}),
        json!({"tools": [{"type": "tidegate:web_search"}], "thread": {"type": "create"}, "stream": true}),
        json!({"plugins": [{"id": "web"}]}),
        json!({"plugins": [{"id": "web-fetch"}]}),
        json!({"model": format!("{NATIVE}:online")}),
    ] {
        assert_unsupported(&gate.messages(with(NATIVE, more)).await, "tools", conflict);
    }
    assert_eq!(native.calls(), 0);
}
