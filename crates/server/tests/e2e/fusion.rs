//! Panels of models: as a tool, as a plugin and as the name of a model.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, kinds, message};
use crate::harness::{INFERENCE_KEY, Tidegate, hello};

/// Dollars for a million tokens of input and of output, of everybody.
const PRICE: (f64, f64) = (1.0, 2.0);
const ANALYSIS: &str = r#"{"consensus": ["at six"], "blind_spots": ["the wind"]}"#;

/// A model that calls, and a panel of three of which one is broken.
struct Scene {
    sim: Sim,
    panel: [Sim; 3],
    gate: Tidegate,
}

async fn scene((protocol, path): (&str, &str), config: &str) -> Scene {
    let sim = Sim::start(Behaviour::Echo).await;
    let panel = [
        Sim::start(Behaviour::says("At six.")).await,
        Sim::start(Behaviour::says("At half past six.")).await,
        Sim::start(Behaviour::status(500)).await,
    ];
    let priced = format!("pricing = {{ input = {}, output = {} }}", PRICE.0, PRICE.1);
    let address = format!("{}{path}", sim.base_url());
    let mut gate = Tidegate::start().protocol_at(MODEL, protocol, &address, &priced);
    for (name, one) in ["p/one", "p/two", "p/broken"].into_iter().zip(&panel) {
        gate = gate.protocol_at(name, "openai-chat", &format!("{}/v1", one.base_url()), &priced);
    }
    Scene { gate: gate.config(config).run().await, sim, panel }
}

fn call(prompt: Value) -> Behaviour {
    let input = if prompt.is_null() { json!({}) } else { json!({"prompt": prompt}) };
    asks("Let me ask around.", &[("tidegate_fusion", input)])
}

fn with_panel(models: Value, more: Value) -> Value {
    let mut parameters = json!({"analysis_models": models, "tools": []});
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut body = hello(MODEL);
    body["max_tokens"] = json!(1000);
    body["tools"] = json!([{"type": "tidegate:fusion", "parameters": parameters}]);
    body
}

/// The result as the model read it: it stands in its last request as a text that holds JSON.
fn read(sent: &str) -> Value {
    fn find(value: &Value) -> Option<Value> {
        match value {
            Value::String(text) => serde_json::from_str::<Value>(text).ok().filter(|told| told.get("status").is_some()),
            Value::Array(entries) => entries.iter().find_map(find),
            Value::Object(members) if members.contains_key("status") => Some(value.clone()),
            Value::Object(members) => members.values().find_map(find),
            _ => None,
        }
    }
    find(&serde_json::from_str(sent).unwrap()).unwrap()
}

#[tokio::test]
async fn a_panel_is_asked_and_compared_on_every_protocol_whole_and_streamed() {
    for protocol in PROTOCOLS {
        let Scene { sim, panel, gate } = scene(protocol, "").await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            // Who calls also compares where nobody else is named.
            let script = Script::from(call(json!("When is high water?"))).then(Behaviour::says(ANALYSIS));
            sim.set(script.then(Behaviour::says("At six, they say.")));
            let mut body = with_panel(json!(["p/one", "p/two", "p/broken"]), json!({}));
            body["stream"] = json!(stream);
            let answer = message(&asked(&gate, &body).await);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"], "{case}: {answer}");
            let calls: Vec<&Value> = answer["content"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|block| block["type"] == "server_tool_use")
                .collect();
            assert_eq!(calls[0]["name"], "tidegate:fusion", "{case}");
            for one in &panel[..2] {
                let asked = bodies(one).pop().unwrap();
                assert!(asked.contains("When is high water?") && !asked.contains("\"hi\""), "{case}: {asked}");
            }
            let sent = bodies(&sim);
            let compares = &sent[sent.len() - 2];
            assert!(compares.contains("At half past six.") && compares.contains("p/two"), "{case}: {compares}");
            let told = read(sent.last().unwrap());
            assert_eq!(told["status"], "ok", "{case}");
            let responses = json!([
                {"model": "p/one", "content": "At six."}, {"model": "p/two", "content": "At half past six."},
            ]);
            assert_eq!(told["responses"], responses, "{case}");
            let lost = &told["failed_models"];
            assert_eq!((lost.as_array().unwrap().len(), &lost[0]["model"]), (1, &json!("p/broken")), "{case}: {lost}");
            let analysis = &told["analysis"];
            assert_eq!(
                (&analysis["consensus"], &analysis["contradictions"]),
                (&json!(["at six"]), &json!([])),
                "{case}"
            );
            // Two turns, two members that answered and the one who compared; all of them are paid for.
            let turns = answer["usage"]["iterations"].as_array().unwrap();
            let inner = turns.iter().filter(|turn| turn["type"] == "fusion_message").count();
            assert_eq!((turns.len(), inner), (5, 3), "{case}: {turns:?}");
            let cost = |turn: &Value| {
                let count = |name: &str| turn[name].as_f64().unwrap();
                (count("input_tokens") * PRICE.0 + count("output_tokens") * PRICE.1) / 1e6
            };
            let listed: f64 = turns.iter().map(cost).sum();
            let paid = answer["usage"]["cost"].as_f64().unwrap();
            assert!((paid - listed).abs() < 1e-9, "{case}: {paid} is not {listed}");
        }
    }
}

#[tokio::test]
async fn a_panel_is_asked_once_and_what_goes_wrong_is_told_to_the_model() {
    let Scene { sim, panel, gate } = scene(PROTOCOLS[0], "").await;
    let one = || json!(["p/one"]);
    // Twice in one turn: the second is told that there is one.
    let twice = asks("Twice.", &[("tidegate_fusion", json!({"prompt": "A?"})), ("tidegate_fusion", json!({}))]);
    sim.set(Script::from(twice).then(Behaviour::says("no JSON")).then(Behaviour::says("Done.")));
    let reply = asked(&gate, &with_panel(one(), json!({}))).await;
    let (cost, id) = (message(&reply)["usage"]["cost"].as_f64().unwrap(), reply.header("x-generation-id").unwrap());
    // The analyst who said nothing of use is paid, too.
    let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
    assert!((record["data"]["total_cost"].as_f64().unwrap() - cost).abs() < 1e-12, "{record} {cost}");
    let sent = bodies(&sim).pop().unwrap();
    assert!(sent.contains("fusion_invocation_capped"), "{sent}");
    let told = read(&sent);
    assert_eq!((told.get("analysis"), &told["responses"][0]["content"]), (None, &json!("At six.")), "{told}");
    assert_eq!(panel[0].calls(), 1);

    // Without a question, what the user said last; another one compares.
    sim.set(Script::from(call(Value::Null)).then(Behaviour::says("Done.")));
    panel[1].set(Behaviour::says(ANALYSIS));
    message(&asked(&gate, &with_panel(one(), json!({"model": "p/two"}))).await);
    assert!(bodies(&panel[0]).pop().unwrap().contains("\"hi\""));
    assert_eq!(read(&bodies(&sim).pop().unwrap())["analysis"]["blind_spots"], json!(["the wind"]));

    sim.set(Script::from(call(json!("B?"))).then(Behaviour::says("Done.")));
    let answer = message(&asked(&gate, &with_panel(json!(["p/broken", "no/such"]), json!({}))).await);
    assert_eq!(answer["stop_reason"], "end_turn", "it is no error of the request");
    let told = read(&bodies(&sim).pop().unwrap());
    assert_eq!((&told["status"], &told["failure_reason"]), (&json!("error"), &json!("all_panels_failed")), "{told}");
    assert_eq!(told["failed_models"][1]["status_code"], 404, "{told}");

    for (more, path) in [
        (json!({"analysis_models": []}), "analysis_models must be an array of 1 to 8 models"),
        (json!({"analysis_models": ["p/one", 1]}), "analysis_models[1] must be the id of a model"),
        (json!({"analysis_models": null}), "analysis_models is required: the preset general-high is not configured"),
        (json!({"max_tool_calls": 17}), "max_tool_calls must be at most 16"),
        (json!({"model": ""}), "model must be at least 1 characters"),
        (json!({"temperature": 3}), "temperature must be a number from 0 to 2"),
        (json!({"tools": [{"type": "tidegate:fusion"}]}), "tools[0] cannot be a fusion: a panel has none of its own"),
        (json!({"tools": [{"type": "tidegate:subagent"}]}), "tools[0] cannot be a subagent"),
        (json!({"tools": [{"name": "f"}]}), "tools[0] must be a server tool"),
    ] {
        let reply = asked(&gate, &with_panel(one(), more.clone())).await;
        let (status, _, _, text) = reply.error();
        assert_eq!(status, 400, "{more}");
        assert!(text.contains(&format!("tools[0].parameters.{path}")), "{more}: {text}");
    }
}

#[tokio::test]
async fn a_panel_has_tools_of_its_own_unless_it_is_told_not_to() {
    let Scene { sim, panel, gate } = scene(PROTOCOLS[0], "").await;
    sim.set(Script::from(call(json!("A?"))).then(Behaviour::says(ANALYSIS)).then(Behaviour::says("Done.")));
    let mut body = with_panel(json!(["p/one"]), json!({}));
    body["tools"][0]["parameters"].as_object_mut().unwrap().remove("tools");
    let told = asks("", &[("web_fetch", json!({"url": "http://127.0.0.1:1/"}))]);
    panel[0].set(Script::from(told).then(Behaviour::says("At seven.")));
    message(&asked(&gate, &body).await);
    let asked_for = bodies(&panel[0]);
    assert_eq!(asked_for.len(), 2, "it called a tool between");
    // No engine is configured, so that nobody can search.
    assert!(asked_for[0].contains("web_fetch") && !asked_for[0].contains("web_search"), "{}", asked_for[0]);
    assert_eq!(read(&bodies(&sim).pop().unwrap())["responses"][0]["content"], "At seven.");
}

#[tokio::test]
async fn a_name_stands_for_a_panel_and_a_plugin_adds_one() {
    let config =
        format!("[fusion.presets.general-high]\nanalysis_models = [\"p/one\", \"p/two\"]\nmodel = \"{MODEL}\"\n");
    let Scene { sim, panel, gate } = scene(PROTOCOLS[0], &config).await;
    let named = |plugins: Value| {
        let mut body = hello("tidegate/fusion");
        body["max_tokens"] = json!(1000);
        body["plugins"] = plugins;
        body
    };
    let script = || Script::from(call(json!("A?"))).then(Behaviour::says(ANALYSIS)).then(Behaviour::says("Done."));
    sim.set(script());
    let answer = message(&asked(&gate, &named(json!([{"id": "fusion", "tools": []}]))).await);
    let metadata = &answer["tidegate_metadata"];
    assert_eq!((&metadata["requested"], &metadata["strategy"]), (&json!("tidegate/fusion"), &json!("fusion")));
    let entry = &metadata["pipeline"][0];
    assert_eq!((&entry["type"], &entry["name"]), (&json!("plugin"), &json!("fusion")), "{metadata}");
    let data = json!({"analysis_models": ["p/one", "p/two"], "model": MODEL, "preset": "general-high"});
    assert_eq!((&entry["data"], &answer["model"]), (&data, &json!(MODEL)));
    assert_eq!((panel[0].calls(), panel[1].calls()), (1, 1));

    // Explicit fields beat the preset.
    sim.set(script());
    let explicit = json!([{"id": "fusion", "tools": [], "analysis_models": ["p/two"], "preset": "general-high"}]);
    message(&asked(&gate, &named(explicit)).await);
    assert_eq!((panel[0].calls(), panel[1].calls()), (1, 2));

    // With a model of one's own the plugin adds the tool; switched off, nothing is added.
    for (model, plugin, has_tool) in [
        (MODEL, json!({"id": "fusion"}), true),
        (MODEL, json!({"id": "fusion", "enabled": false}), false),
        ("tidegate/fusion", json!({"id": "fusion", "enabled": false}), false),
    ] {
        sim.set(Behaviour::says("Done."));
        let mut body = named(json!([plugin]));
        body["model"] = json!(model);
        assert_eq!(message(&asked(&gate, &body).await)["model"], MODEL);
        assert_eq!(bodies(&sim).pop().unwrap().contains("tidegate_fusion"), has_tool, "{model} {plugin}");
    }
    for (model, plugin) in
        [("tidegate/fusion-flash", json!([])), (MODEL, json!([{"id": "fusion", "preset": "general-budget"}]))]
    {
        let mut body = named(plugin);
        body["model"] = json!(model);
        let (status, _, _, text) = asked(&gate, &body).await.error();
        assert_eq!(status, 400);
        assert!(text.contains("is not configured on this deployment"), "{text}");
    }
}
