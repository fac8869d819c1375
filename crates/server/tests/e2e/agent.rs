//! Server tools: the gateway runs what the model calls, on every protocol, in one answer or one stream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::{Hand, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hello};

pub const MODEL: &str = "vendor/m";
/// Protocols of upstreams, and what their addresses end in.
pub const PROTOCOLS: [(&str, &str); 4] =
    [("anthropic", ""), ("openai-chat", "/v1"), ("openai-responses", "/v1"), ("gemini", "/v1beta")];

pub async fn gate_for(sim: &Sim, (protocol, path): (&str, &str), config: &str) -> Tidegate {
    let address = format!("{}{path}", sim.base_url());
    let lines = "pricing = { input = 1, output = 2 }";
    Tidegate::start().protocol_at(MODEL, protocol, &address, lines).config(config).run().await
}

pub fn asks(text: &str, calls: &[(&str, Value)]) -> Behaviour {
    let calls = calls.iter().map(|(name, input)| ((*name).to_owned(), input.clone())).collect();
    Behaviour::Asks { text: text.to_owned(), calls }
}

fn clock(zone: &str) -> (&'static str, Value) {
    ("tidegate_datetime", json!({"timezone": zone}))
}

fn with_clock(stream: bool, more: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub async fn asked(gate: &Tidegate, body: &Value) -> Reply {
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
    ask.json(body.to_string()).send().await
}

/// The answer as one message, however it came. A stream must keep the rules: one start, one end, no gap between blocks.
pub fn message(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    if reply.header("content-type") == Some("application/json") {
        return reply.json();
    }
    let events = reply.events();
    let count = |name: &str| events.iter().filter(|event| event.name == name).count();
    assert_eq!(
        (count("message_start"), count("message_delta"), count("message_stop")),
        (1, 1, 1),
        "{}",
        reply.body_text()
    );
    let mut made = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    for event in &events {
        let data = event.json();
        let index = data["index"].as_u64().unwrap_or(0) as usize;
        match event.name.as_str() {
            "message_start" => made = data["message"].clone(),
            "content_block_start" => {
                assert_eq!(index, inputs.len(), "blocks come without gaps");
                made["content"].as_array_mut().unwrap().push(data["content_block"].clone());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let delta = &data["delta"];
                let block = &mut made["content"][index];
                if let Some(text) = delta["text"].as_str() {
                    block["text"] = json!(format!("{}{text}", block["text"].as_str().unwrap()));
                }
                if delta["type"] == "citations_delta" {
                    if block["citations"].is_null() {
                        block["citations"] = json!([]);
                    }
                    block["citations"].as_array_mut().unwrap().push(delta["citation"].clone());
                }
                inputs[index].push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !inputs[index].is_empty() => {
                made["content"][index]["input"] = serde_json::from_str(&inputs[index]).unwrap();
            }
            "message_delta" => {
                made["stop_reason"] = data["delta"]["stop_reason"].clone();
                made["usage"] = data["usage"].clone();
                if let Some(edits) = data.get("context_management") {
                    made["context_management"] = edits.clone();
                }
            }
            "message_stop" => made["tidegate_metadata"] = data["tidegate_metadata"].clone(),
            _ => {}
        }
    }
    made
}

/// The types of its blocks, but for thinking: some protocols carry signatures in it.
pub fn kinds(message: &Value) -> Vec<String> {
    let kinds = message["content"].as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap().to_owned());
    kinds.filter(|kind| kind != "thinking").collect()
}

/// What the tools did, by the metadata.
pub fn told(message: &Value) -> &Value {
    let pipeline = message["tidegate_metadata"]["pipeline"].as_array().unwrap();
    &pipeline.iter().find(|entry| entry["type"] == "server_tools").unwrap()["data"]
}

pub fn bodies(sim: &Sim) -> Vec<String> {
    sim.requests().iter().map(|seen| String::from_utf8(seen.body.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn a_tool_is_run_between_two_turns_on_every_protocol_whole_and_streamed() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        let mut shapes = Vec::new();
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(asks("Let me see.", &[clock("Europe/Paris")])).then(Behaviour::says("It is late.")));
            let before = sim.calls();
            let reply = asked(&gate, &with_clock(stream, json!({}))).await;
            let answer = message(&reply);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"], "{case}: {answer}");
            let blocks: Vec<&Value> =
                answer["content"].as_array().unwrap().iter().filter(|block| block["type"] != "thinking").collect();
            let call = blocks[1];
            assert_eq!(
                (&call["name"], &call["input"]),
                (&json!("tidegate:datetime"), &clock("Europe/Paris").1),
                "{case}"
            );
            assert!(call["id"].as_str().unwrap().starts_with("srvtoolu_"), "{case}");
            assert_eq!(blocks[2]["text"], "It is late.", "{case}");
            assert_eq!((&answer["stop_reason"], &answer["model"]), (&json!("end_turn"), &json!(MODEL)), "{case}");
            assert_eq!(sim.calls() - before, 2, "{case}");
            let second = bodies(&sim).pop().unwrap();
            assert!(second.contains("Europe/Paris") && second.contains("datetime"), "{case}: {second}");
            assert_eq!(told(&answer)["calls"], 1, "{case}");
            assert_eq!((&told(&answer)["turns"], &told(&answer)["stopped_by"]), (&json!(2), &Value::Null), "{case}");
            let usage = &answer["usage"];
            assert_eq!(usage["iterations"].as_array().unwrap().len(), 2, "{case}: {usage}");
            for bucket in ["input_tokens", "output_tokens"] {
                let turns = usage["iterations"].as_array().unwrap();
                let sum: u64 = turns.iter().map(|turn| turn[bucket].as_u64().unwrap()).sum();
                assert_eq!(usage[bucket].as_u64(), Some(sum), "{case}: {bucket}");
            }
            assert_eq!(usage["server_tool_use"], json!({"web_search_requests": 0, "web_fetch_requests": 0}), "{case}");
            shapes.push(kinds(&answer));
        }
        assert_eq!(shapes[0], shapes[1], "the order is the same");
    }
}

#[tokio::test]
async fn conditions_end_the_loop_with_one_turn_without_tools() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let again = || Script::from(asks("", &[clock("UTC")]));
    let step = |count: u64| json!({"type": "step_count_is", "step_count": count});
    // What is asked for, how many turns there are, how many calls, and what ended it.
    let table = [
        (json!({"stop_server_tools_when": [step(1)]}), 2, 1, "step_count_is"),
        (json!({"stop_server_tools_when": [step(3)], "max_tool_calls": 1}), 4, 3, "step_count_is"),
        (
            json!({"stop_server_tools_when": [step(9), {"type": "has_tool_call", "tool_name": "tidegate:datetime"}]}),
            2,
            1,
            "has_tool_call",
        ),
        (
            json!({"stop_server_tools_when": [{"type": "max_cost", "max_cost_in_dollars": 0.000000001}]}),
            2,
            1,
            "max_cost",
        ),
        (json!({"stop_server_tools_when": [{"type": "max_tokens_used", "max_tokens": 1}]}), 2, 1, "max_tokens_used"),
        (
            json!({"stop_server_tools_when": [{"type": "finish_reason_is", "reason": "tool_calls"}]}),
            2,
            1,
            "finish_reason_is",
        ),
        (json!({"max_tool_calls": 2}), 3, 2, "max_tool_calls"),
    ];
    for (more, turns, calls, by) in table {
        for stream in [false, true] {
            sim.set(again());
            let before = sim.calls();
            let answer = message(&asked(&gate, &with_clock(stream, more.clone())).await);
            assert_eq!(sim.calls() - before, turns, "{more}");
            assert_eq!((&told(&answer)["calls"], &told(&answer)["stopped_by"]), (&json!(calls), &json!(by)), "{more}");
            assert_eq!(answer["stop_reason"], "end_turn", "{more}");
            assert_eq!(
                answer["content"].as_array().unwrap().last().unwrap()["text"],
                "Nothing can be called.",
                "{more}"
            );
            let sent: Vec<Value> = bodies(&sim).iter().map(|body| serde_json::from_str(body).unwrap()).collect();
            let last = sent.last().unwrap();
            assert_eq!(last["tool_choice"], json!({"type": "none"}), "{more}");
            assert_eq!(last["tools"], sent[sent.len() - 2]["tools"], "the definitions stay, for the cache");
            assert!(last.get("stop_server_tools_when").is_none() && last.get("max_tool_calls").is_none());
        }
    }
    // One that needs two steps does not fire after one.
    sim.set(again().then(Behaviour::says("done")));
    let before = sim.calls();
    let answer = message(&asked(&gate, &with_clock(false, json!({"stop_server_tools_when": [step(2)]}))).await);
    assert_eq!((sim.calls() - before, &told(&answer)["stopped_by"]), (2, &Value::Null));
    assert_eq!(answer["content"][1]["text"], "done");
    // The deployment's own ceiling is called by its own name.
    let gate = gate_for(&sim, PROTOCOLS[0], "[tools]\nmax_steps = 2\n").await;
    for more in [json!({}), json!({"stop_server_tools_when": [step(9)]}), json!({"max_tool_calls": 3})] {
        sim.set(again());
        let answer = message(&asked(&gate, &with_clock(false, more.clone())).await);
        assert_eq!((&told(&answer)["calls"], &told(&answer)["stopped_by"]), (&json!(2), &json!("max_steps")), "{more}");
    }
}

#[tokio::test]
async fn nothing_is_told_of_tools_that_nobody_called() {
    let sim = Sim::start(Behaviour::says("done")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    for stream in [false, true] {
        let answer = message(&asked(&gate, &with_clock(stream, json!({}))).await);
        let metadata = answer["tidegate_metadata"].as_object().unwrap();
        assert!(!metadata.is_empty() && !metadata.contains_key("pipeline"), "{metadata:?}");
    }
}

#[tokio::test]
async fn a_vendors_interruption_is_gone_on_from_within_the_budget_and_the_conditions() {
    let sim = Sim::start(Behaviour::StopReason("pause_turn".into())).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let when = |condition: Value| json!({"stop_server_tools_when": [condition]});
    // What is asked for, how many turns there are, and what ended it.
    let table = [
        (json!({"max_tool_calls": 2}), 3, json!("max_tool_calls")),
        (when(json!({"type": "max_tokens_used", "max_tokens": 1})), 1, json!("max_tokens_used")),
        (when(json!({"type": "max_cost", "max_cost_in_dollars": 0})), 1, json!("max_cost")),
        (when(json!({"type": "finish_reason_is", "reason": "pause_turn"})), 1, json!("finish_reason_is")),
    ];
    for (more, turns, by) in table {
        for stream in [false, true] {
            let before = sim.calls();
            let answer = message(&asked(&gate, &with_clock(stream, more.clone())).await);
            assert_eq!((sim.calls() - before, &told(&answer)["stopped_by"]), (turns, &by), "{more}");
            assert_eq!(answer["stop_reason"], "pause_turn", "{more}");
        }
    }
    sim.set(Script::from(Behaviour::StopReason("pause_turn".into())).then(Behaviour::says("done")));
    let answer = message(&asked(&gate, &with_clock(false, json!({}))).await);
    assert_eq!((&answer["stop_reason"], &answer["content"][1]["text"]), (&json!("end_turn"), &json!("done")));
}

#[tokio::test]
async fn several_calls_run_at_once_and_their_results_stand_in_the_order_of_the_calls() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        let zones = ["Asia/Tokyo", "Asia/Kathmandu", "Mars/Olympus"];
        sim.set(Script::from(asks("", &zones.map(clock))).then(Behaviour::says("done")));
        let answer = message(&asked(&gate, &with_clock(true, json!({}))).await);
        assert_eq!(kinds(&answer), ["server_tool_use", "server_tool_use", "server_tool_use", "text"], "{protocol:?}");
        let second = bodies(&sim).pop().unwrap();
        let places: Vec<usize> =
            ["+09:00", "+05:45", "invalid_tool_input"].iter().map(|word| second.rfind(word).unwrap()).collect();
        assert!(places.is_sorted(), "{protocol:?}: {second}");
        assert_eq!((&told(&answer)["calls"], &told(&answer)["errors"]), (&json!(3), &json!(1)), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_turn_with_a_clients_call_ends_there_and_is_one_turn_when_it_comes_back() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let price = json!({"name": "get_price", "input_schema": {"type": "object"}});
    let tools = json!([price, {"type": "tidegate:datetime"}]);
    for stream in [false, true] {
        sim.set(asks("", &[clock("UTC"), ("get_price", json!({"of": "tea"}))]));
        let before = sim.calls();
        let body = with_clock(stream, json!({"tools": tools}));
        let answer = message(&asked(&gate, &body).await);
        assert_eq!((kinds(&answer), sim.calls() - before), (vec!["server_tool_use".into(), "tool_use".into()], 1));
        assert_eq!(answer["stop_reason"], "tool_use");

        sim.set(Behaviour::says("Two pounds."));
        let id = answer["content"][1]["id"].clone();
        let messages = json!([
            body["messages"][0],
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "2"}]},
        ]);
        let next = message(&asked(&gate, &with_clock(stream, json!({"tools": tools, "messages": messages}))).await);
        assert_eq!(next["content"][0]["text"], "Two pounds.");
        let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
        let [_, said, heard] = sent["messages"].as_array().unwrap().as_slice() else {
            panic!("three messages: {sent}")
        };
        let names: Vec<&Value> = said["content"].as_array().unwrap().iter().map(|block| &block["name"]).collect();
        assert_eq!(names, ["tidegate_datetime", "get_price"]);
        let results = heard["content"].as_array().unwrap();
        assert_eq!(results.len(), 2);
        assert!(results[0]["content"].as_str().unwrap().contains("datetime"), "{heard}");
        assert_eq!(results[0]["tool_use_id"], said["content"][0]["id"]);
        assert_eq!(results[1]["content"], "2");
    }
}

#[tokio::test]
async fn an_answer_that_is_ended_here_has_all_its_members_and_keeps_the_container() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let price = json!({"name": "get_price", "input_schema": {"type": "object"}});
    let body = |stream: bool| with_clock(stream, json!({"tools": [price, {"type": "tidegate:datetime"}]}));
    sim.set(asks("", &[clock("UTC"), ("get_price", json!({"of": "tea"}))]));
    let reply = asked(&gate, &body(true)).await;
    let delta = reply.events().into_iter().find(|event| event.name == "message_delta").unwrap().json();
    let ending = json!({"stop_reason": "tool_use", "stop_sequence": null, "stop_details": null, "container": null});
    assert_eq!(delta["delta"], ending);

    // The vendor tells of a container in the first turn alone.
    let container = json!({"id": "c1", "expires_at": "2026-01-01T00:00:00Z", "skills": null});
    let call = |name: &str| json!({"type": "tool_use", "id": format!("toolu_{name}"), "name": name, "input": {}});
    let said = |calls: Vec<Value>, container: &Value| {
        let told = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": calls,
            "stop_reason": "tool_use", "stop_sequence": null, "container": container,
            "usage": {"input_tokens": 1, "output_tokens": 1}});
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Behaviour::Raw { status: 200, headers, body: told.to_string().into() }
    };
    let first = said(vec![call("tidegate_datetime")], &container);
    sim.set(Script::from(first).then(said(vec![call("tidegate_datetime"), call("get_price")], &Value::Null)));
    let answer = message(&asked(&gate, &body(false)).await);
    assert_eq!((&answer["stop_reason"], &answer["container"]), (&json!("tool_use"), &container));
    assert_eq!(answer.get("stop_details"), Some(&Value::Null));
}

#[tokio::test]
async fn what_a_loop_costs_is_the_sum_of_its_generations() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    for stream in [false, true] {
        sim.set(Script::from(asks("", &[clock("UTC")])).then(asks("", &[clock("UTC")])).then(Behaviour::says("done")));
        let spent = async || {
            let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
            key["data"]["usage"].as_f64().unwrap()
        };
        let before = spent().await;
        let reply = asked(&gate, &with_clock(stream, json!({}))).await;
        let answer = message(&reply);
        let usage = &answer["usage"];
        let (input, output) = (usage["input_tokens"].as_f64().unwrap(), usage["output_tokens"].as_f64().unwrap());
        let cost = usage["cost"].as_f64().unwrap();
        assert!((cost - (input + 2.0 * output) / 1e6).abs() < 1e-9, "{usage}");
        let after = spent().await;
        assert!((after - before - cost).abs() < 1e-9, "{before} {after} {cost}");
        assert_eq!(usage["iterations"].as_array().unwrap().len(), 3);

        // The record of the whole leads to all of it, by either of its names.
        for id in [reply.header("x-generation-id").unwrap(), answer["id"].as_str().unwrap()] {
            let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
            let record = &record["data"];
            assert!((record["total_cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{record}");
            assert_eq!(record["native_tokens_prompt"], usage["input_tokens"], "{record}");
            assert_eq!(record["native_tokens_completion"], usage["output_tokens"], "{record}");
            let responses = record["provider_responses"].as_array().unwrap();
            assert_eq!(responses.len(), 3, "{record}");
            assert!(responses.iter().all(|response| response["id"].is_string()), "each turn has its own id: {record}");
            assert_eq!(responses[0]["id"], record["upstream_id"], "{record}");
            assert_eq!(record["finish_reason"], "end_turn", "{record}");
        }
    }
}

#[tokio::test]
async fn results_beyond_the_budget_are_cut_with_a_note() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "[tools]\nresult_budget = 10\n").await;
    sim.set(Script::from(asks("", &[clock("UTC")])).then(Behaviour::says("ok")));
    assert_eq!(asked(&gate, &with_clock(false, json!({}))).await.status, 200);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    let result = &sent["messages"].as_array().unwrap().last().unwrap()["content"][0]["content"];
    let text = result.as_str().or_else(|| result[0]["text"].as_str()).unwrap();
    let (told, note) = text.split_at(10);
    assert!(!told.contains('['), "{text}");
    assert_eq!(note, "\n[cut: the results of this request are too long]");
}

#[tokio::test]
async fn what_is_wrong_with_a_tool_is_said_before_anybody_is_called() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "[tools]\ndisabled = [\"datetime\"]\n").await;
    // Whichever way a tool is spelled, here or there.
    for (disabled, wire) in
        [("search_models", "experimental__search_models"), ("experimental__search_models", "search_models")]
    {
        let other = gate_for(&sim, PROTOCOLS[0], &format!("[tools]\ndisabled = [\"{disabled}\"]\n")).await;
        let body = with_clock(false, json!({"tools": [{"type": format!("tidegate:{wire}")}]}));
        let (status, _, _, told) = asked(&other, &body).await.error();
        assert_eq!((status, told), (400, format!("tidegate:{wire} is not configured on this deployment")));
    }
    for (tools, message) in [
        (json!([{"type": "tidegate:datetime"}]), "tidegate:datetime is not configured on this deployment"),
        (json!([{"type": "tidegate:nix"}]), "Unknown server tool: tidegate:nix"),
        (
            json!([{"type": "tidegate:search_models", "parameters": {"max_results": "x"}}]),
            "Invalid request: tools[0].parameters.max_results must be an integer",
        ),
    ] {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let body = with_clock(false, json!({"tools": tools}));
            let reply = gate.ask("POST", path).key(INFERENCE_KEY).json(body.to_string()).send().await;
            let (status, kind, _, told) = reply.error();
            assert_eq!((status, &*kind, &*told), (400, "invalid_request_error", message), "{path}");
        }
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn every_turn_has_a_name_of_its_own_for_those_who_keep_answers() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let names = async || {
        sim.set(Script::from(asks("", &[clock("UTC")])).then(asks("", &[clock("UTC")])).then(Behaviour::says("Late.")));
        let before = sim.calls();
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("idempotency-key", "once");
        assert_eq!(ask.json(with_clock(false, json!({})).to_string()).send().await.status, 200);
        let seen = sim.requests().split_off(before);
        seen.iter().map(|seen| seen.header("idempotency-key").unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = names().await;
    assert_eq!((first.len(), first[0].as_str()), (3, "once"));
    assert!(first[1].starts_with("once-1-") && first[2].starts_with("once-2-"), "{first:?}");
}

#[tokio::test]
async fn a_loop_goes_on_with_the_variants_of_the_model_that_answered() {
    let (sim, broken) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::status(500)).await);
    let free = "pricing = { input = 0, output = 0 }";
    let builder = Tidegate::start().protocol_at("vendor/n", "anthropic", &broken.base_url(), free);
    let priced = "pricing = { input = 1, output = 2 }";
    let gate = builder.protocol_at(MODEL, "anthropic", &sim.base_url(), priced).run().await;
    sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(Behaviour::says("It is late.")));
    // The second one costs something, so it cannot go on by the first one's free name.
    let listed = json!({"model": "vendor/n:free", "models": [format!("{MODEL}:floor")]});
    let answer = message(&asked(&gate, &with_clock(false, listed)).await);
    assert_eq!((kinds(&answer).len(), &answer["model"]), (3, &json!(MODEL)), "{answer}");
    assert_eq!((broken.calls() > 0, sim.calls()), (true, 2));
    // Where it is listed by several names, nobody knows which of them it answered for.
    let builder = Tidegate::start().protocol_at(MODEL, "anthropic", &broken.base_url(), free);
    let gate = builder.protocol_at(MODEL, "anthropic", &sim.base_url(), priced).run().await;
    sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(Behaviour::says("It is late.")));
    let listed = json!({"model": format!("{MODEL}:free"), "models": [MODEL]});
    let answer = message(&asked(&gate, &with_clock(false, listed)).await);
    assert_eq!((kinds(&answer).len(), &answer["model"]), (3, &json!(MODEL)), "{answer}");
    assert_eq!(sim.calls(), 4);
}

/// A whole answer that an upstream gives byte for byte.
fn raw(body: &Value) -> Behaviour {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Behaviour::Raw { status: 200, headers, body: body.to_string().into() }
}

#[tokio::test]
async fn every_attempt_of_every_turn_is_told_among_all_endpoints() {
    let (sim, broken) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::status(500)).await);
    let priced = "pricing = { input = 1, output = 2 }";
    let builder = Tidegate::start().protocol_at("vendor/n", "anthropic", &broken.base_url(), priced);
    let gate = builder.protocol_at(MODEL, "anthropic", &sim.base_url(), priced).run().await;
    let list = |value: &Value| value.as_array().unwrap().clone();
    for stream in [false, true] {
        let before = broken.calls();
        sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(Behaviour::says("It is late.")));
        let body = with_clock(stream, json!({"model": "vendor/n", "models": [MODEL]}));
        let routing = message(&asked(&gate, &body).await)["tidegate_metadata"].clone();
        let failed = broken.calls() - before;
        let statuses: Vec<Value> = list(&routing["attempts"]).iter().map(|made| made["status"].clone()).collect();
        let wanted: Vec<Value> = [vec![json!(500); failed], vec![json!(200); 2]].concat();
        assert!(failed > 0 && statuses == wanted, "{stream}: {routing}");
        let of = |name: &str| routing[name].clone();
        assert_eq!((of("strategy"), of("attempt")), (json!("fallback"), json!(failed + 2)), "{stream}: {routing}");
        let models: Vec<(Value, Value)> = list(&routing["endpoints"]["available"])
            .iter()
            .map(|endpoint| (endpoint["model"].clone(), endpoint["selected"].clone()))
            .collect();
        let wanted = [(json!("vendor/n"), json!(false)), (json!(MODEL), json!(true))];
        assert_eq!((models.as_slice(), &routing["endpoints"]["total"]), (&wanted[..], &json!(2)), "{stream}");
        assert_eq!(routing["requested"], "vendor/n", "{stream}");

        // A turn that fails behind one that was served: nobody is chosen, and nothing of the first is forgotten.
        let before = broken.calls();
        sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(Behaviour::status(400)));
        let reply = asked(&gate, &body).await;
        let told = if stream { reply.events().last().unwrap().json() } else { reply.json() };
        let routing = &told["tidegate_metadata"];
        let failed = broken.calls() - before;
        let statuses: Vec<Value> = list(&routing["attempts"]).iter().map(|made| made["status"].clone()).collect();
        let wanted: Vec<Value> = [vec![json!(500); failed], vec![json!(200), json!(400)]].concat();
        assert_eq!((statuses, &routing["summary"]), (wanted, &json!("available=2")), "{stream}: {routing}");
    }
}

#[tokio::test]
async fn thinking_leaves_later_turns_room_to_answer_and_the_head_says_what_became_of_it() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let turn = |name: &str, output: u64| {
        let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"});
        let call = json!({"type": "tool_use", "id": format!("toolu_{name}"), "name": "tidegate_datetime", "input": {}});
        raw(&json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [thought, call],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": output}}))
    };
    let ends = Behaviour::says("It is late.");
    sim.set(Script::from(turn("a", 1500)).then(turn("b", 100)).then(turn("c", 500)).then(ends));
    let more = json!({"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1450}});
    let reply = asked(&gate, &with_clock(false, more)).await;
    assert_eq!(kinds(&message(&reply)).last().unwrap(), "text");
    let sent = bodies(&sim);
    let sent: Vec<Value> = sent.iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    let limits: Vec<&Value> = sent.iter().map(|body| &body["max_tokens"]).collect();
    assert_eq!(limits, [4000, 2500, 2400, 1900]);
    // 1024 of what is left are for the answer. What is left then is enough for 1450, for 1376, and for less than 1024.
    let budgets: Vec<&Value> = sent.iter().map(|body| &body["thinking"]["budget_tokens"]).collect();
    assert_eq!(budgets, [&json!(1450), &json!(1450), &json!(1376), &Value::Null]);
    assert_eq!(reply.header("x-tidegate-warnings"), Some("clamped:budget_tokens,dropped:thinking"));
}

#[tokio::test]
async fn what_later_turns_lose_is_said_in_the_head_of_a_whole_answer() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    let odd = json!({"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0,
        "message": {"role": "assistant", "content": "It is late."}, "finish_reason": "tide"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}});
    sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(raw(&odd)));
    let body = with_clock(false, json!({"top_k": 5}));
    let ask = async || {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
        ask.json(body.to_string()).send().await
    };
    // Of what both turns lose one word is enough; who gets the answer once more is told the same.
    for status in ["MISS", "HIT"] {
        let reply = ask().await;
        assert_eq!(
            (reply.status, reply.header("x-tidegate-cache-status")),
            (200, Some(status)),
            "{}",
            reply.body_text()
        );
        assert_eq!(reply.header("x-tidegate-warnings"), Some("dropped:top_k,unknown_finish:tide"), "{status}");
    }
}

#[tokio::test]
async fn a_turn_that_fails_is_told_and_what_was_served_is_paid() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let spent = async || {
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        key["data"]["usage"].as_f64().unwrap()
    };
    for stream in [false, true] {
        sim.set(Script::from(asks("Let me see.", &[clock("UTC")])).then(Behaviour::status(500)));
        let before = spent().await;
        let reply = asked(&gate, &with_clock(stream, json!({}))).await;
        if stream {
            let events = reply.events();
            let last = events.last().unwrap();
            assert_eq!((reply.status, last.name.as_str()), (200, "error"), "{}", reply.body_text());
            assert!(!events.iter().any(|event| event.name == "message_stop"), "it is no whole answer");
            assert_eq!(reply.text(), "Let me see.");
        } else {
            assert_eq!(reply.status, 502, "{}", reply.body_text());
        }
        assert!(spent().await > before, "the first turn was served");
        // Whatever names the request leads to its first turn, which was paid for.
        let told = if stream { reply.events().last().unwrap().json() } else { reply.json() };
        let id = told["request_id"].as_str().unwrap();
        assert_eq!(reply.header("x-generation-id"), Some(id));
        assert_eq!((&crate::agent::told(&told)["calls"], &crate::agent::told(&told)["turns"]), (&json!(1), &json!(1)));
        let record = async || gate.managed(&format!("/api/v1/generation?id={id}")).await;
        eventually("it is on record", std::time::Duration::from_secs(10), async || record().await.status == 200).await;
        assert!(record().await.json()["data"]["total_cost"].as_f64().unwrap() > 0.0);
    }
}

#[tokio::test]
async fn a_key_that_is_taken_away_ends_the_loop_between_two_turns() {
    let hand = Hand::start().await;
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").run().await;
    let made = gate.place.run(&["keys", "create", "--name", "short"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", std::time::Duration::from_secs(10), is_known).await;
    let ask = gate.ask("POST", "/v1/messages").key(&key).json(with_clock(false, json!({})).to_string());
    let calling = async {
        let mut call = hand.call().await;
        let hash = tidegate_core::KeyHash::of(key.as_bytes()).to_hex();
        let gone = gate.ask("DELETE", &format!("/api/v1/keys/{hash}")).key(MANAGEMENT_KEY).send().await;
        assert_eq!(gone.status, 200, "{}", gone.body_text());
        let is_gone = async || !is_known().await;
        eventually("the key is gone", std::time::Duration::from_secs(10), is_gone).await;
        let used = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "tidegate_datetime", "input": {}}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
        let body = used.to_string();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        call.write(head.as_bytes()).await;
        call.write(body.as_bytes()).await;
    };
    let (reply, ()) = tokio::join!(ask.send(), calling);
    assert_eq!(reply.status, 401, "{}", reply.body_text());
}
