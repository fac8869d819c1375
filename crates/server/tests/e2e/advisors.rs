//! Models that a model asks: advisors and subagents, their answers, their money and their limits.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, kinds, message, told};
use crate::harness::{INFERENCE_KEY, Reply, Tidegate, hello};

const WISE: &str = "other/wise";
/// Dollars for a million tokens of input and of output: of the model, and of the one it asks.
const PRICE: (f64, f64) = (1.0, 2.0);
const WISE_PRICE: (f64, f64) = (100.0, 1000.0);

/// A gateway with a model of this protocol and another one that it can ask.
async fn gate_with(sim: &Sim, wise: &Sim, (protocol, path): (&str, &str), config: &str) -> Tidegate {
    let priced = |(input, output): (f64, f64)| format!("pricing = {{ input = {input}, output = {output} }}");
    let address = format!("{}{path}", sim.base_url());
    let start = Tidegate::start().protocol_at(MODEL, protocol, &address, &priced(PRICE));
    let start = start.protocol_at(WISE, "openai-chat", &format!("{}/v1", wise.base_url()), &priced(WISE_PRICE));
    start.config(config).run().await
}

fn body(stream: bool, tools: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = tools;
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

fn ask(prompt: &str) -> (&'static str, Value) {
    ("advisor", json!({"prompt": prompt}))
}

fn task(description: &str) -> (&'static str, Value) {
    ("tidegate_subagent", json!({"task_name": "look", "task_description": description}))
}

fn blocks(message: &Value) -> Vec<&Value> {
    message["content"].as_array().unwrap().iter().filter(|block| block["type"] != "thinking").collect()
}

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

/// The cost of an answer is what its iterations cost, what the key was charged, and what its record tells.
async fn assert_paid(gate: &Tidegate, before: f64, reply: &Reply, answer: &Value, case: &str) {
    let usage = &answer["usage"];
    let cost = usage["cost"].as_f64().unwrap();
    let listed: f64 = usage["iterations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|turn| {
            let (input, output) = if turn["model"] == WISE { WISE_PRICE } else { PRICE };
            let count = |name: &str| turn[name].as_f64().unwrap();
            (count("input_tokens") * input + count("output_tokens") * output) / 1e6
        })
        .sum();
    assert!((cost - listed).abs() < 1e-9, "{case}: {usage}");
    let charged = spent(gate).await - before;
    assert!((charged - cost).abs() < 1e-9, "{case}: {charged} {usage}");
    let id = reply.header("x-generation-id").unwrap();
    let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
    assert!((record["data"]["total_cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{case}: {record}");
}

fn types(answer: &Value) -> Vec<&str> {
    answer["usage"]["iterations"].as_array().unwrap().iter().map(|turn| turn["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn advice_is_asked_for_shown_paid_and_remembered_on_every_protocol() {
    let tools = [
        json!({"type": "tidegate:advisor", "parameters": {"model": WISE, "instructions": "Be brief.", "temperature": 0.5}}),
        json!({"type": "advisor_20260301", "name": "advisor", "model": WISE}),
    ];
    for protocol in PROTOCOLS {
        let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
        let gate = gate_with(&sim, &wise, protocol, "").await;
        for tool in &tools {
            for stream in [false, true] {
                let case = format!("{protocol:?} {stream} {}", tool["type"]);
                sim.set(Script::from(asks("Hm.", &[ask("Shall I sail?")])).then(Behaviour::says("I stay.")));
                wise.set(Behaviour::says("Not today."));
                let before = spent(&gate).await;
                let first = body(stream, json!([tool]));
                let reply = asked(&gate, &first).await;
                let answer = message(&reply);
                assert_eq!(
                    kinds(&answer),
                    ["text", "server_tool_use", "advisor_tool_result", "text"],
                    "{case}: {answer}"
                );
                let shown = blocks(&answer);
                assert_eq!(
                    (&shown[1]["name"], &shown[1]["input"]),
                    (&json!("advisor"), &ask("Shall I sail?").1),
                    "{case}"
                );
                assert_eq!(shown[2]["tool_use_id"], shown[1]["id"], "{case}");
                let advice = json!({"type": "advisor_result", "text": "Not today.", "stop_reason": "end_turn"});
                assert_eq!(shown[2]["content"], advice, "{case}");
                assert_eq!(types(&answer), ["message", "advisor_message", "message"], "{case}");
                for bucket in ["input_tokens", "output_tokens"] {
                    let turns = answer["usage"]["iterations"].as_array().unwrap();
                    let own = turns[0][bucket].as_u64().unwrap() + turns[2][bucket].as_u64().unwrap();
                    assert_eq!(answer["usage"][bucket], own, "{case}: the advisor's tokens are not the model's");
                }
                assert_paid(&gate, before, &reply, &answer, &case).await;
                let heard = bodies(&sim).pop().unwrap();
                assert!(heard.contains("Not today.") && heard.contains(WISE), "{case}: {heard}");
                let asked_of: Value = serde_json::from_str(&bodies(&wise).pop().unwrap()).unwrap();
                assert!(asked_of.get("tools").is_none(), "{case}: it has no tools");
                assert_eq!(asked_of.to_string().contains("Be brief."), tool["parameters"].is_object(), "{case}");

                // It is asked again in the next request, and remembers.
                sim.set(Script::from(asks("", &[ask("And now?")])).then(Behaviour::says("So be it.")));
                wise.set(Behaviour::says("Still not."));
                let mut next = first.clone();
                let turn = json!({"role": "assistant", "content": answer["content"]});
                next["messages"] = json!([first["messages"][0], turn, {"role": "user", "content": "Well?"}]);
                let again = message(&asked(&gate, &next).await);
                assert_eq!(kinds(&again), ["server_tool_use", "advisor_tool_result", "text"], "{case}");
                let asked_of: Value = serde_json::from_str(&bodies(&wise).pop().unwrap()).unwrap();
                let said: Vec<String> = asked_of["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|message| message["role"] == "user" || message["role"] == "assistant")
                    .map(|message| {
                        message["content"]
                            .as_str()
                            .map_or_else(|| message["content"][0]["text"].as_str().unwrap().to_owned(), str::to_owned)
                    })
                    .collect();
                assert_eq!(said, ["Shall I sail?", "Not today.", "And now?"], "{case}: {asked_of}");
            }
        }
    }
}

#[tokio::test]
async fn an_advisor_that_does_not_answer_is_a_result_and_consultations_end() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&sim, &wise, PROTOCOLS[1], "").await;
    let once = json!({"type": "advisor_20260301", "name": "advisor", "model": WISE, "max_uses": 1});
    let fixed = json!({"type": "tidegate:advisor", "parameters": {"model": WISE}});
    let nobody = json!({"type": "tidegate:advisor", "parameters": {"model": "other/nobody"}});
    let many: Vec<(&str, Value)> = (0..11).map(|number| ask(&number.to_string())).collect();
    let table = [
        (once, Behaviour::says("Yes."), vec![ask("a"), ask("b")], vec![None, Some("max_uses_exceeded")]),
        (fixed.clone(), Behaviour::status(529), vec![ask("a")], vec![Some("overloaded")]),
        (fixed.clone(), Behaviour::status(401), vec![ask("a")], vec![Some("unavailable")]),
        (nobody, Behaviour::Echo, vec![ask("a")], vec![Some("model_not_found")]),
        (fixed, Behaviour::says("Yes."), many, [vec![None; 10], vec![Some("max_uses_exceeded")]].concat()),
    ];
    for (tool, behaviour, calls, codes) in table {
        sim.set(Script::from(asks("", &calls)).then(Behaviour::says("I decide.")));
        wise.set(behaviour);
        let answer = message(&asked(&gate, &body(false, json!([tool]))).await);
        let results = blocks(&answer).into_iter().filter(|block| block["type"] == "advisor_tool_result");
        let told: Vec<Option<&str>> = results.map(|block| block["content"]["error_code"].as_str()).collect();
        assert_eq!(told, codes, "{tool}: {answer}");
        assert_eq!(
            (&answer["stop_reason"], blocks(&answer).last().unwrap()["text"].as_str()),
            (&json!("end_turn"), Some("I decide."))
        );
    }
}

#[tokio::test]
async fn without_a_question_the_conversation_is_the_question() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("Aye.")).await);
    let gate = gate_with(&sim, &wise, PROTOCOLS[0], "").await;
    for tool in [
        json!({"type": "advisor_20260301", "name": "advisor", "model": WISE}),
        json!({"type": "tidegate:advisor", "parameters": {"model": WISE}}),
    ] {
        for input in [json!({}), json!({"prompt": " "})] {
            sim.set(Script::from(asks("", &[("advisor", input)])).then(Behaviour::says("I decide.")));
            let mut body = body(false, json!([tool]));
            body["messages"] = json!([{"role": "user", "content": "Is it high tide in Brest?"}]);
            assert_eq!(asked(&gate, &body).await.status, 200);
            let sent = bodies(&wise).pop().unwrap();
            assert!(sent.contains("high tide in Brest") && sent.contains("Give your advice"), "{sent}");
        }
    }
}

#[tokio::test]
async fn several_advisors_are_told_apart_and_one_may_read_the_conversation() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("Aye.")).await);
    let gate = gate_with(&sim, &wise, PROTOCOLS[0], "").await;
    let tools = json!([
        {"type": "tidegate:advisor", "parameters": {"name": "captain", "model": WISE}},
        {"type": "tidegate:advisor", "parameters": {"name": "mate", "model": WISE, "forward_transcript": true}},
        {"type": "tidegate:datetime"},
    ]);
    sim.set(
        Script::from(asks("", &[("tidegate_datetime", json!({}))]))
            .then(asks("I am not sure.", &[("tidegate_advisor__1", json!({"prompt": "Well?"}))]))
            .then(Behaviour::says("Done.")),
    );
    let first = body(false, tools);
    let answer = message(&asked(&gate, &first).await);
    let shown = ["server_tool_use", "text", "server_tool_use", "advisor_tool_result", "text"];
    assert_eq!(kinds(&answer), shown, "{answer}");
    assert_eq!(
        (&blocks(&answer)[2]["name"], &blocks(&answer)[3]["content"]["name"]),
        (&json!("advisor"), &json!("mate"))
    );
    let sent = bodies(&wise).pop().unwrap();
    for part in ["hi", "[called tidegate_datetime with {}]", "[result: ", "I am not sure.", "Well?"] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    // What comes back is the call of the one that was asked.
    sim.set(Behaviour::says("Yes."));
    let mut next = first.clone();
    let turn = json!({"role": "assistant", "content": answer["content"]});
    next["messages"] = json!([first["messages"][0], turn, {"role": "user", "content": "Sure?"}]);
    message(&asked(&gate, &next).await);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    let messages = sent["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array());
    let called: Vec<&str> = messages.flatten().filter_map(|block| block["name"].as_str()).collect();
    assert_eq!(called, ["tidegate_datetime", "tidegate_advisor__1"]);
}

#[tokio::test]
async fn a_task_is_done_by_another_model_with_tools_of_its_own_on_every_protocol() {
    for protocol in PROTOCOLS {
        let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
        let gate = gate_with(&sim, &wise, protocol, "").await;
        for (tools, turns) in [(json!([]), 1), (json!([{"type": "tidegate:datetime"}]), 2)] {
            for stream in [false, true] {
                let case = format!("{protocol:?} {stream} {turns}");
                sim.set(Script::from(asks("", &[task("Tell the time.")])).then(Behaviour::says("Good night.")));
                wise.set(match turns {
                    1 => Script::from(Behaviour::says("It is late.")),
                    _ => {
                        Script::from(asks("", &[("tidegate_datetime", json!({}))])).then(Behaviour::says("It is late."))
                    }
                });
                let (before, calls) = (spent(&gate).await, wise.calls());
                let parameters = json!({"model": WISE, "tools": tools, "max_tool_calls": 3});
                let reply =
                    asked(&gate, &body(stream, json!([{"type": "tidegate:subagent", "parameters": parameters}]))).await;
                let answer = message(&reply);
                assert_eq!(kinds(&answer), ["server_tool_use", "text"], "{case}: {answer}");
                assert_eq!(blocks(&answer)[0]["name"], "tidegate:subagent", "{case}");
                assert_eq!(types(&answer), ["message", "subagent_message", "message"], "{case}");
                assert_eq!(wise.calls() - calls, turns, "{case}");
                assert_paid(&gate, before, &reply, &answer, &case).await;
                let heard = bodies(&sim).pop().unwrap();
                assert!(heard.contains("It is late.") && heard.contains("look"), "{case}: {heard}");
                let given = bodies(&wise);
                let first = &given[given.len() - turns];
                assert!(first.contains("Tell the time.") && !first.contains("\"hi\""), "{case}: {first}");
            }
        }
    }
}

#[tokio::test]
async fn a_task_that_fails_on_the_way_is_paid_for_as_far_as_it_came() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let engine = "[tools.web_search.engines.house]\nkind = \"static\"\n\
        results = [{ url = \"https://a.example\", title = \"A\", content = \"At six.\" }]\n";
    let gate = gate_with(&sim, &wise, PROTOCOLS[0], engine).await;
    for stream in [false, true] {
        sim.set(Script::from(asks("", &[task("Tell the time.")])).then(Behaviour::says("Nobody knows.")));
        wise.set(Script::from(asks("", &[("web_search", json!({"query": "tides"}))])).then(Behaviour::status(500)));
        let before = spent(&gate).await;
        let parameters = json!({"model": WISE, "tools": [{"type": "tidegate:web_search"}]});
        let reply = asked(&gate, &body(stream, json!([{"type": "tidegate:subagent", "parameters": parameters}]))).await;
        let answer = message(&reply);
        assert_eq!(types(&answer), ["message", "subagent_message", "message"], "{stream}: {answer}");
        assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 1, "{stream}: {answer}");
        assert_paid(&gate, before, &reply, &answer, &format!("{stream}")).await;
    }
}

#[tokio::test]
async fn what_other_models_cost_counts_for_the_conditions() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::says("Yes, and no.")).await);
    let gate = gate_with(&sim, &wise, PROTOCOLS[0], "").await;
    for stream in [false, true] {
        sim.set(Script::from(asks("", &[ask("Again?")])));
        let before = sim.calls();
        let mut body = body(stream, json!([{"type": "tidegate:advisor", "parameters": {"model": WISE}}]));
        // A turn of the model costs less than this and one of the advisor's answers more: a token of it is 0.001 dollars.
        body["stop_server_tools_when"] = json!([{"type": "max_cost", "max_cost_in_dollars": 0.001}]);
        let answer = message(&asked(&gate, &body).await);
        assert_eq!((sim.calls() - before, &told(&answer)["stopped_by"]), (3, &json!("max_cost")), "{answer}");
    }
}

#[tokio::test]
async fn every_effort_is_one_that_can_be_asked_for() {
    let sim = Sim::start(Behaviour::Echo).await;
    let wise = Sim::start(Behaviour::says("Yes.")).await;
    let start = Tidegate::start().endpoint(MODEL, &sim).endpoint(WISE, &wise);
    let gate = start.run().await;
    let disabled = json!({"type": "disabled"});
    for (effort, told, thinking) in [
        ("none", Value::Null, &disabled),
        ("minimal", json!("low"), &Value::Null),
        ("low", json!("low"), &Value::Null),
        ("max", json!("max"), &Value::Null),
    ] {
        let tool = json!({"type": "tidegate:advisor", "parameters": {"model": WISE, "reasoning": {"effort": effort}}});
        sim.set(Script::from(asks("", &[ask("a")])).then(Behaviour::says("I decide.")));
        let answer = message(&asked(&gate, &body(false, json!([tool]))).await);
        let result = blocks(&answer).into_iter().find(|block| block["type"] == "advisor_tool_result").unwrap();
        assert_eq!(result["content"]["text"], "Yes.", "{effort}");
        let sent: Value = serde_json::from_str(&bodies(&wise).pop().unwrap()).unwrap();
        assert_eq!((&sent["output_config"]["effort"], &sent["thinking"]), (&told, thinking), "{effort}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_those_who_are_asked_is_said_by_its_path() {
    let (sim, wise) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = gate_with(&sim, &wise, PROTOCOLS[1], "").await;
    let advisor = |parameters: Value| json!({"type": "tidegate:advisor", "parameters": parameters});
    let subagent = |parameters: Value| json!({"type": "tidegate:subagent", "parameters": parameters});
    let function = json!({"name": "f", "input_schema": {"type": "object"}});
    let table = [
        (
            json!([advisor(json!({"name": "a/b"}))]),
            "tools[0].parameters.name must be 1 to 64 letters, digits, spaces, _ or -",
        ),
        (json!([advisor(json!({})), advisor(json!({}))]), "tools[1].parameters.name is required: another one has none"),
        (
            json!([advisor(json!({"name": "a"})), advisor(json!({"name": " a "}))]),
            "tools[1].parameters.name 'a' is used more than once",
        ),
        (json!([advisor(json!({"model": 7}))]), "tools[0].parameters.model must be a string"),
        (json!([advisor(json!({"temperature": 3}))]), "tools[0].parameters.temperature must be a number from 0 to 2"),
        (
            json!([advisor(json!({"forward_transcript": "yes"}))]),
            "tools[0].parameters.forward_transcript must be a boolean",
        ),
        (
            json!([advisor(json!({"reasoning": {"max_tokens": 9}}))]),
            "tools[0].parameters.reasoning.max_tokens must be at least 1024",
        ),
        (
            json!([subagent(json!({"reasoning": {"effort": "ultra"}}))]),
            "tools[0].parameters.reasoning.effort must be one of none, minimal, low, medium, high, xhigh, max",
        ),
        (json!([{"type": "advisor_20260301", "name": "advisor"}]), "tools[0].model is required"),
        (
            json!([subagent(json!({"tools": [function]}))]),
            "tools[0].parameters.tools[0] must be a server tool (tidegate:…): a subagent cannot call functions",
        ),
        (
            json!([subagent(json!({"tools": [subagent(json!({}))]}))]),
            "tools[0].parameters.tools[0] cannot be a subagent: a subagent has none of its own",
        ),
        (
            json!([subagent(
                json!({"tools": [{"type": "tidegate:image_generation", "parameters": {"model": "a/nix"}}]})
            )]),
            "tools[0].parameters.tools[0].parameters.model 'a/nix' is not a model that makes images; GET /images/models \
             lists those that do",
        ),
        (
            json!([subagent(json!({"tools": [{"type": "tidegate:datetime", "parameters": {"timezone": 1}}]}))]),
            "tools[0].parameters.tools[0].parameters.timezone must be a string",
        ),
        (json!([subagent(json!({"max_tool_calls": 26}))]), "tools[0].parameters.max_tool_calls must be at most 25"),
        (
            json!([subagent(json!({"inherit_functions": true}))]),
            "tools[0].parameters.inherit_functions is not allowed: a subagent of this API has server tools only",
        ),
    ];
    for (tools, wanted) in table {
        let reply =
            gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body(false, tools).to_string()).send().await;
        let (status, kind, _, told) = reply.error();
        assert_eq!((status, &*kind, told), (400, "invalid_request_error", format!("Invalid request: {wanted}")));
    }
    assert_eq!((sim.calls(), wise.calls()), (0, 0));
}
