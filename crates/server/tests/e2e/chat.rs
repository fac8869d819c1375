//! Upstreams of the Chat Completions protocol: a message in our format reaches them and comes back as one.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{Reply, Tidegate, hello, hello_streamed, said, user};
use crate::whole_streams::plain;

const PRICED: &str = "pricing = { input = 3, output = 15 }";

/// A gateway whose models `chat/NAME` are the simulator's, behind the chat protocol.
async fn gate(sim: &Sim, names: &[&str]) -> Tidegate {
    let mut config = format!(
        "[[providers]]\nslug = \"chatty\"\ndisplay_name = \"Chatty\"\nprotocol = \"openai-chat\"\n\
         base_url = \"{}/v1\"\napi_key = \"chat-secret\"\n",
        sim.base_url()
    );
    for name in names {
        config.push_str(&format!(
            "[[models]]\nid = \"chat/{name}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
             input_modalities = [\"text\", \"image\"]\n[[models.endpoints]]\nprovider = \"chatty\"\nmodel = \"{name}\"\n\
             {PRICED}\ncard = {{ reasoning_field = \"reasoning_content\" }}\n"
        ));
    }
    Tidegate::start().config(&config).run().await
}

fn kinds(reply: &Reply) -> Vec<String> {
    let body = reply.json();
    let blocks = body["content"].as_array().expect("blocks").clone();
    blocks.iter().map(|block| block["type"].as_str().expect("a kind").to_owned()).collect()
}

#[tokio::test]
async fn a_message_is_answered_whole_and_streamed() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate(&sim, &["sim"]).await;
    let reply = gate.messages(hello("chat/sim")).await;
    assert_eq!((reply.status, reply.text()), (200, "You said: hi".to_owned()));
    let body = reply.json();
    assert_eq!(
        (&body["model"], &body["provider"], &body["stop_reason"]),
        (&json!("chat/sim"), &json!("Chatty"), &json!("end_turn"))
    );
    assert!(body["usage"]["cost"].as_f64().expect("a cost") > 0.0, "{body}");
    let sent = sim.requests().pop().expect("it was called");
    assert_eq!(sent.header("authorization"), Some("Bearer chat-secret"));
    assert_eq!(sent.header("accept-encoding"), Some("identity"), "no coding is undone here");
    assert_eq!(sent.json()["messages"], json!([{"role": "user", "content": "hi"}]));
    assert_eq!(sent.json()["model"], "sim");

    let events = gate.stream(hello_streamed("chat/sim")).await.rest().await;
    assert_eq!(said(&events), "You said: hi");
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!((names[0], names[1]), ("message_start", "ping"));
    assert_eq!(&names[names.len() - 2..], ["message_delta", "message_stop"]);
    let end = &events[events.len() - 2].json()["usage"];
    assert!(end["output_tokens"].as_u64().expect("counted") > 0 && end["cost"].as_f64().is_some(), "{end}");
}

#[tokio::test]
async fn tools_thinking_and_refusals_come_through() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate(&sim, &["sim-tools", "sim-thinking", "sim-refusal", "sim-cached"]).await;
    let tool =
        json!({"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}});
    for stream in [false, true] {
        let ask = |model: &str, more: Value| {
            let mut body = json!({"model": format!("chat/{model}"), "max_tokens": 4096, "stream": stream, "messages": [user("weather?")]});
            for (name, value) in more.as_object().expect("an object") {
                body[name] = value.clone();
            }
            body
        };
        let body = ask("sim-tools", json!({"tools": [tool]}));
        let stop = if stream {
            let events = gate.stream(body).await.rest().await;
            assert!(events.iter().any(|event| event.json()["content_block"]["type"] == "tool_use"), "{events:?}");
            events[events.len() - 2].json()["delta"]["stop_reason"].clone()
        } else {
            let reply = gate.messages(body).await;
            assert!(kinds(&reply).contains(&"tool_use".to_owned()), "{reply:?}");
            reply.json()["stop_reason"].clone()
        };
        assert_eq!(stop, "tool_use");
        let body = ask("sim-thinking", json!({"thinking": {"type": "adaptive"}}));
        if stream {
            let events = gate.stream(body).await.rest().await;
            let deltas: Vec<Value> = events.iter().map(|event| event.json()["delta"]["type"].clone()).collect();
            let place = |kind: &str| {
                deltas.iter().position(|delta| delta == kind).unwrap_or_else(|| panic!("{kind}: {deltas:?}"))
            };
            assert!(
                place("thinking_delta") < place("signature_delta") && place("signature_delta") < place("text_delta")
            );
        } else {
            let reply = gate.messages(body).await;
            assert_eq!(kinds(&reply), ["thinking", "text"]);
            assert!(reply.json()["content"][0]["signature"].as_str().expect("signed").starts_with("tgs1."));
        }
        let body = ask("sim-refusal", json!({}));
        let stop = if stream {
            let events = gate.stream(body).await.rest().await;
            events[events.len() - 2].json()["delta"].clone()
        } else {
            gate.messages(body).await.json()
        };
        assert_eq!(
            (&stop["stop_reason"], &stop["stop_details"]["type"]),
            (&json!("refusal"), &json!("refusal")),
            "{stop}"
        );
    }
    let cached = gate.messages(hello("chat/sim-cached")).await.json();
    assert!(cached["usage"]["cache_read_input_tokens"].as_u64().expect("counted") > 0, "{cached}");
}

#[tokio::test]
async fn a_conversation_with_a_tool_goes_round() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate(&sim, &["sim-tools"]).await;
    let tool =
        json!({"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}});
    let mut body =
        json!({"model": "chat/sim-tools", "max_tokens": 100, "tools": [tool], "messages": [user("weather?")]});
    let first = gate.messages(body.clone()).await.json();
    let call = first["content"]
        .as_array()
        .expect("blocks")
        .iter()
        .find(|block| block["type"] == "tool_use")
        .expect("a call")
        .clone();
    let turns = body["messages"].as_array_mut().expect("a list");
    turns.push(json!({"role": "assistant", "content": first["content"]}));
    turns.push(
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "12 °C"}]}),
    );
    let second = gate.messages(body).await;
    assert_eq!(second.status, 200, "{second:?}");
    let sent = sim.requests().pop().expect("it was called").json();
    let last = sent["messages"].as_array().expect("a list").last().expect("one").clone();
    assert_eq!(last, json!({"role": "tool", "tool_call_id": call["id"], "content": "12 °C"}));
}

#[tokio::test]
async fn faults_are_told_apart_and_others_are_tried() {
    let sim = Sim::start(Behaviour::Echo).await;
    let names = [
        "sim-status-400",
        "sim-status-401",
        "sim-status-429",
        "sim-status-500",
        "sim-status-503",
        "sim-error-mid",
        "sim-close-mid",
    ];
    let gate = gate(&sim, &names).await;
    for (name, status) in [
        ("sim-status-400", 400),
        ("sim-status-401", 502),
        ("sim-status-429", 429),
        ("sim-status-500", 502),
        ("sim-status-503", 503),
    ] {
        for stream in [false, true] {
            let mut body = hello(&format!("chat/{name}"));
            body["stream"] = json!(stream);
            let reply = gate.messages(body).await;
            assert_eq!(reply.status, status, "{name}: {reply:?}");
            assert!(!String::from_utf8_lossy(&reply.body).contains("chat-secret"));
        }
    }
    for name in ["sim-error-mid", "sim-close-mid"] {
        let events = gate.stream(hello_streamed(&format!("chat/{name}"))).await.rest().await;
        assert_eq!(events.last().expect("an end").name, "error", "{name}: never a made-up success");
    }
    // The next model is a native one: the client sees only its answer.
    let native = Sim::start(Behaviour::says("native")).await;
    let broken = format!(
        "[[providers]]\nslug = \"chatty\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\n\
         [[models]]\nid = \"vendor/m\"\ncontext_length = 1000\nmax_output_tokens = 100\n\
         [[models.endpoints]]\nprovider = \"chatty\"\nmodel = \"sim-status-503\"\n",
        sim.base_url()
    );
    let gate = Tidegate::start().config(&broken).endpoint("vendor/n", &native).run().await;
    let mut body = hello("vendor/m");
    body["models"] = json!(["vendor/n"]);
    let reply = gate.messages(body).await;
    assert_eq!((reply.status, reply.text()), (200, "native".to_owned()));
}

#[tokio::test]
async fn what_the_endpoint_cannot_take_is_named_and_what_was_left_out_is_told() {
    let sim = Sim::start(Behaviour::says("ok")).await;
    let gate = gate(&sim, &["sim"]).await;
    let mut body = hello("chat/sim");
    body["top_k"] = json!(5);
    body["max_tokens"] = json!(100_000);
    let reply = gate.messages(body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.header("x-tidegate-warnings"), Some("clamped:max_tokens,dropped:top_k"));
    let pdf =
        json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}});
    let mut body = hello("chat/sim");
    body["messages"] = json!([{"role": "user", "content": [pdf, {"type": "text", "text": "read"}]}]);
    // Otherwise the gateway would read it.
    body["plugins"] = json!([{"id": "file-parser", "enabled": false}]);
    let reply = gate.messages(body).await;
    let (status, kind, _, message) = reply.error();
    assert_eq!((status, &*kind), (404, "not_found_error"));
    assert_eq!(message, "No endpoints for chat/sim satisfy input_modalities");
    let constraint = json!({"field": "input_modalities", "detail": "file"});
    assert_eq!(reply.json()["error"]["availability"]["constraint"], constraint);
    let count = gate.ask("POST", "/v1/messages/count_tokens").key(crate::harness::INFERENCE_KEY);
    let count = count.json(json!({"model": "chat/sim", "messages": [user("hello there")]}).to_string()).send().await;
    assert_eq!((count.status, count.header("x-tidegate-count")), (200, Some("estimated")));
}

#[tokio::test]
async fn who_must_be_asked_for_all_or_nothing_is_not_asked_for_less() {
    let (strict, other) = (Sim::start(Behaviour::says("strict")).await, Sim::start(Behaviour::says("other")).await);
    let provider = |slug: &str, more: &str, sim: &Sim| {
        let at = sim.base_url();
        format!("[[providers]]\nslug = \"{slug}\"\nprotocol = \"openai-chat\"\nbase_url = \"{at}/v1\"\n{more}\n")
    };
    let endpoint = |slug: &str, price: u8| {
        format!("[[models.endpoints]]\nprovider = \"{slug}\"\nmodel = \"m\"\nshadow_price = {price}\n")
    };
    let model = |id: &str| format!("[[models]]\nid = \"{id}\"\ncontext_length = 1000\nmax_output_tokens = 100\n");
    let config = [
        provider("strict", "on_unsupported = \"error\"", &strict),
        provider("other", "", &other),
        model("vendor/both") + &endpoint("strict", 1) + &endpoint("other", 2),
        model("vendor/alone") + &endpoint("strict", 1),
    ];
    let gate = Tidegate::start().config(&config.concat()).run().await;
    let ask = async |model: &str, top_k: Value| {
        let mut body = hello(model);
        body["top_k"] = top_k;
        gate.messages(body).await
    };
    assert_eq!(ask("vendor/both", Value::Null).await.text(), "strict");
    let reply = ask("vendor/both", json!(5)).await;
    assert_eq!((reply.text().as_str(), reply.header("x-tidegate-warnings")), ("other", Some("dropped:top_k")));
    let (calls, reply) = (strict.calls(), ask("vendor/alone", json!(5)).await);
    let (status, _, _, message) = reply.error();
    assert_eq!((status, &*message), (400, "Invalid request: strict cannot do all that is asked for: dropped:top_k"));
    assert_eq!(strict.calls(), calls);
}

#[tokio::test]
async fn an_upstream_that_thinks_only_in_streams_is_asked_for_one_and_the_answer_put_together() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = |card: &str| {
        let lines = format!("{PRICED}\ncard = {{ reasoning_field = \"reasoning_content\"{card} }}");
        Tidegate::start().protocol_at("chat/sim", "openai-chat", &format!("{}/v1", sim.base_url()), &lines).run()
    };
    let (whole, streamed) = (start("").await, start(", stream_only = true").await);
    let tool = json!([{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]);
    for more in [
        json!({}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}),
        json!({"tools": tool, "tool_choice": {"type": "any"}}),
    ] {
        let mut body = hello("chat/sim");
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let one = whole.messages(body.clone()).await;
        assert_eq!(sim.requests().pop().expect("a call").json().get("stream"), None);
        let other = streamed.messages(body.clone()).await;
        assert_eq!(sim.requests().pop().expect("a call").json()["stream"], true, "{more}");
        assert_eq!((one.status, other.status), (200, 200), "{}", other.body_text());
        assert_eq!(plain(&one), plain(&other), "{more}");
    }
    // Half an answer is none.
    sim.set(Behaviour::CloseMidStream { after: 2 });
    assert_eq!(streamed.messages(hello("chat/sim")).await.status, 502);
}
