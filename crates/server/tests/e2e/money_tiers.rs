//! Service tiers that cost more, held and charged at their price; costs that nobody believes.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{MANAGEMENT_KEY, Tidegate, user};

const MODEL: &str = "openai/own";

/// A gateway before a server that stands for OpenAI's, one dollar for a million tokens in and ten for a million out.
async fn gate(sim: &Sim) -> Tidegate {
    let config = format!(
        "[[providers]]\nslug = \"openai\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\napi_key = \"k\"\n\
         [[models]]\nid = \"{MODEL}\"\ncontext_length = 20000\nmax_output_tokens = 8192\n\
         [[models.endpoints]]\nprovider = \"openai\"\nmodel = \"m\"\npricing = {{ input = 1, output = 10 }}\n",
        sim.base_url()
    );
    Tidegate::start().config(&config).run().await
}

fn answer(tier: &str) -> Behaviour {
    used(tier, 1000, 100)
}

fn used(tier: &str, prompt: u64, output: u64) -> Behaviour {
    let body = json!({"id": "c1", "object": "chat.completion", "model": "m", "service_tier": tier,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}});
    Behaviour::Raw {
        status: 200,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into(),
    }
}

fn request(more: Value) -> Value {
    let mut body = json!({"model": MODEL, "max_tokens": 1000, "messages": [user("hi")]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn a_fast_answer_costs_what_fast_answers_cost() {
    let sim = Sim::start(answer("default")).await;
    let gate = gate(&sim).await;
    // A thousand tokens in are a thousandth of a dollar, a hundred out are another.
    for (more, asked, served, told, cost) in [
        (json!({}), Value::Null, "default", "standard", 0.002),
        (json!({"speed": "fast"}), json!("priority"), "priority", "priority", 0.004),
        (json!({"service_tier": "priority"}), json!("priority"), "priority", "priority", 0.004),
        // What was served is what counts.
        (json!({"speed": "fast"}), json!("priority"), "default", "standard", 0.002),
        (json!({}), Value::Null, "flex", "flex", 0.001),
        (json!({"speed": "standard", "service_tier": "standard_only"}), json!("default"), "default", "standard", 0.002),
    ] {
        sim.set(answer(served));
        let reply = gate.messages(request(more.clone())).await;
        let sent = sim.requests().pop().expect("it was called").json();
        assert_eq!(sent.get("service_tier").cloned().unwrap_or_default(), asked, "{more}");
        let usage = &reply.json()["usage"];
        assert_eq!((&usage["service_tier"], &usage["cost"]), (&json!(told), &json!(cost)), "{more} {served}");
    }
}

#[tokio::test]
async fn what_a_fast_answer_may_cost_is_held_before_it_is_asked_for() {
    let sim = Sim::start(answer("priority")).await;
    let gate = gate(&sim).await;
    // A thousand tokens of answer cost a hundredth of a dollar, and two where they come fast.
    let made = gate.ask("POST", "/v1/keys").key(MANAGEMENT_KEY).json(r#"{"name":"k","limit":0.015}"#).send().await;
    let key = made.json()["key"].as_str().expect("a key").to_owned();
    let ask = |body: Value| gate.ask("POST", "/v1/messages").key(&key).json(body.to_string()).send();
    for more in [json!({"speed": "fast"}), json!({"service_tier": "priority"})] {
        let reply = ask(request(more.clone())).await;
        assert_eq!((reply.status, sim.calls()), (402, 0), "{more}: {}", reply.body_text());
    }
    let tool = |name: &str| json!([{"name": "f", "input_schema": {"type": "object", "properties": {name: {"enum": ["fast"]}}}}]);
    for more in [
        // Words that stand somewhere else neither take anything back ...
        json!({"speed": "fast", "metadata": {"user_id": "flex"}, "tools": tool("flex")}),
        json!({"service_tier": "priority", "tools": tool("flex")}),
        // ... and who leaves it open may get it.
        json!({"service_tier": "auto"}),
    ] {
        let reply = ask(request(more.clone())).await;
        assert_eq!((reply.status, sim.calls()), (402, 0), "{more}: {}", reply.body_text());
    }
    // ... nor ask for anything.
    sim.set(answer("default"));
    assert_eq!(ask(request(json!({"tools": tool("priority")}))).await.status, 200);
}

#[tokio::test]
async fn the_parts_of_a_cost_that_was_cut_are_cut_with_it() {
    let sim = Sim::start(used("default", 3_000_000, 700_000)).await;
    let gate = gate(&sim).await;
    let usage = gate.messages(request(json!({}))).await.json()["usage"].clone();
    let dollars = |value: &Value| value.as_f64().expect("an amount");
    let (cost, details) = (dollars(&usage["cost"]), &usage["cost_details"]);
    // Three dollars in and seven out were said.
    assert!(cost < 1.0, "{usage}");
    let parts =
        ["upstream_inference_prompt_cost", "upstream_inference_completions_cost"].map(|part| dollars(&details[part]));
    assert!((parts[0] - cost * 0.3).abs() < 2e-9 && (parts[1] - cost * 0.7).abs() < 2e-9, "{usage}");
}
