//! Plugins and routers: a model that is chosen, an answer that is repaired.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, eventually, hello};

const PATIENCE: Duration = Duration::from_secs(30);

/// Five models at one to five dollars, and one that costs nothing; each says its name.
async fn six(config: &str) -> (Vec<Sim>, Tidegate) {
    let mut sims = Vec::new();
    let mut gate = Tidegate::start().config(config);
    for (name, price) in [("a/one", 1), ("a/two", 2), ("b/three", 3), ("b/four", 4), ("c/five", 5), ("c/gift", 0)] {
        let sim = Sim::start(Behaviour::says(name)).await;
        gate = gate.endpoint_with(name, &sim, &format!("pricing = {{ input = {price}, output = {price} }}"));
        sims.push(sim);
    }
    (sims, gate.run().await)
}

async fn asked(gate: &Tidegate, body: &Value) -> Reply {
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
    ask.json(body.to_string()).send().await
}

fn auto(session: &str, plugin: Value) -> Value {
    let mut plugin = plugin;
    plugin["id"] = json!("auto-router");
    let mut body = hello("tidegate/auto");
    body["plugins"] = json!([plugin]);
    body["session_id"] = json!(session);
    body
}

#[tokio::test]
async fn auto_chooses_by_what_is_allowed_and_by_price_and_remembers_it() {
    let (_sims, gate) = six("").await;
    let table = [
        (json!({"excluded_models": ["c/*"]}), "a/one"),
        (json!({"allowed_models": ["a/*", "b/*"], "excluded_models": ["a/*"], "cost_tier": "low"}), "b/three"),
        (json!({"cost_tier": "max"}), "c/five"),
        (json!({"cost_tier": "max", "cost_quality_tradeoff": 10}), "c/five"),
        (json!({"allowed_models": ["*/four"]}), "b/four"),
    ];
    for (number, (plugin, model)) in table.into_iter().enumerate() {
        let reply = asked(&gate, &auto(&number.to_string(), plugin.clone())).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, model), "{plugin}: {}", reply.body_text());
        let told = &reply.json()["tidegate_metadata"];
        assert_eq!((&told["requested"], &told["strategy"]), (&json!("tidegate/auto"), &json!("auto")), "{told}");
        assert_eq!(told["pipeline"][0]["name"], "auto-router", "{told}");
        assert_eq!(reply.json()["model"], model);
        let path = format!("/api/v1/generation?id={}", reply.header("x-generation-id").unwrap());
        let known = async || gate.ask("GET", &path).key(INFERENCE_KEY).send().await;
        eventually("it is on record", PATIENCE, async || known().await.status == 200).await;
        let record = known().await.json();
        let (record, endpoint) =
            (&record["data"], format!("{}:{model}", record["data"]["provider_name"].as_str().unwrap()));
        assert_eq!((&record["router"], &record["model"]), (&json!("tidegate/auto"), &json!(model)), "{record}");
        assert_eq!(record["provider_responses"][0]["endpoint_id"], endpoint, "{record}");
    }
    // The same conversation stays with its model, although another would be chosen now.
    let reply = asked(&gate, &auto("0", json!({"cost_tier": "max"}))).await;
    assert_eq!(reply.text(), "a/one");
    assert_eq!(reply.json()["tidegate_metadata"]["pipeline"][0]["data"]["sticky"], true);
    let nobody = asked(&gate, &auto("n", json!({"allowed_models": ["x/*"]}))).await;
    let (status, _, _, message) = nobody.error();
    assert_eq!((status, &*message), (404, "No models match your request and model restrictions"));
    let wrong = asked(&gate, &auto("w", json!({"cost_tier": "cheap"}))).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.body_text().contains("plugins[0].cost_tier must be one of"), "{}", wrong.body_text());
    // Settings of one router mean nothing to the other.
    let mut beta = auto("b", json!({"allowed_models": ["c/five"]}));
    beta["model"] = json!("tidegate/auto-beta");
    assert_ne!(asked(&gate, &beta).await.text(), "c/five");
    // Those that the caller lists stand behind what is chosen, as far as there is room.
    let mut long = auto("l", json!({}));
    let named = |place: usize| {
        format!(
            "{}{}",
            ["a/one", "a/two", "b/three", "b/four"][place % 4],
            ["", ":floor", ":nitro", ":exacto"][place / 4]
        )
    };
    long["models"] = json!((0..16).map(named).collect::<Vec<_>>());
    let reply = asked(&gate, &long).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
}

#[tokio::test]
async fn the_operators_ranking_decides_and_companions_serve_when_the_first_fails() {
    let config = "[routing.auto]\ncandidates = [\"a/*\", \"b/*\"]\n\
                  [routing.auto.ranking]\ntranslation = [\"b/four\"]\ngeneral = [\"a/two\", \"a/one\"]\n\
                  [routing.auto_beta.ranking]\ngeneral = [\"b/three\"]\n";
    let (sims, gate) = six(config).await;
    let mut body = auto("s1", json!({"cost_quality_tradeoff": 0}));
    assert_eq!(asked(&gate, &body).await.text(), "a/two");
    body["session_id"] = json!("s2");
    body["messages"][0]["content"] = json!("Translate this into French: tide");
    let reply = asked(&gate, &body).await;
    assert_eq!(reply.text(), "b/four");
    let told = &reply.json()["tidegate_metadata"]["pipeline"][0]["data"];
    assert_eq!((&told["task_type"], &told["source"]), (&json!("translation"), &json!("operator")));
    // Who tries something else ranks otherwise, among the same candidates.
    let mut beta = hello("tidegate/auto-beta");
    beta["plugins"] = json!([{"id": "auto-beta-router", "cost_quality_tradeoff": 0}]);
    let reply = asked(&gate, &beta).await;
    let data = &reply.json()["tidegate_metadata"]["pipeline"][0]["data"];
    assert_eq!((reply.text().as_str(), &data["candidates"]), ("b/three", &json!(4)), "{data}");
    sims[1].set(Behaviour::status(500));
    let reply = asked(&gate, &auto("s3", json!({"cost_quality_tradeoff": 0}))).await;
    assert_eq!(reply.text(), "a/one");
    assert_eq!(reply.json()["tidegate_metadata"]["strategy"], "fallback");
}

#[tokio::test]
async fn a_conversation_stays_with_the_model_that_answered_it() {
    let (sims, gate) = six("").await;
    // The free one and the cheapest share the lowest part of prices.
    sims[5].set(Behaviour::status(400));
    let low = json!({"cost_tier": "low", "excluded_models": ["a/one"]});
    let refused = asked(&gate, &auto("s", low.clone())).await;
    let told = &refused.json()["tidegate_metadata"];
    assert_eq!((refused.status, &told["attempts"][0]["model"]), (200, &json!("c/gift")), "{told}");
    assert_eq!(refused.text(), "a/two");
    let again = asked(&gate, &auto("s", low)).await;
    let told = &again.json()["tidegate_metadata"];
    assert_eq!((&told["attempts"].as_array().map(Vec::len), &*again.text()), (&Some(1), "a/two"), "{told}");
    assert_eq!(told["pipeline"][0]["data"]["sticky"], true);
    // Nobody answered: nothing is remembered.
    for sim in &sims {
        sim.set(Behaviour::status(400));
    }
    assert_eq!(asked(&gate, &auto("t", json!({"cost_tier": "max"}))).await.status, 400);
    for (sim, name) in sims.iter().zip(["a/one", "a/two", "b/three", "b/four", "c/five", "c/gift"]) {
        sim.set(Behaviour::says(name));
    }
    let reply = asked(&gate, &auto("t", json!({"cost_tier": "low"}))).await;
    let data = &reply.json()["tidegate_metadata"]["pipeline"][0]["data"];
    assert_eq!((&data["sticky"], &data["cost_tier"]), (&json!(false), &json!("low")), "{data}");
}

#[tokio::test]
async fn the_simulator_is_chosen_only_where_there_is_nobody_else() {
    let (_sims, gate) = six("[sim]\nenabled = true\n").await;
    for tier in ["low", "max"] {
        let reply = asked(&gate, &auto(tier, json!({"cost_tier": tier}))).await;
        let told = reply.json()["tidegate_metadata"]["endpoints"]["available"].to_string();
        assert!(!told.contains("tidegate/sim"), "{told}");
    }
    let mut picture = auto("p", json!({"allowed_models": ["tidegate/*"]}));
    assert_eq!(asked(&gate, &picture).await.status, 404);
    assert_eq!(asked(&gate, &hello("tidegate/free")).await.text(), "c/gift");
    let (_sims, gate) = six("[sim]\nenabled = true\n[routing]\nauto_candidates = [\"tidegate/sim\"]\n").await;
    picture["plugins"] = json!([]);
    assert_eq!(asked(&gate, &picture).await.json()["model"], "tidegate/sim", "unless the operator says so");
    let alone = Tidegate::start().config("[sim]\nenabled = true\n").run().await;
    for model in ["tidegate/auto", "tidegate/free"] {
        let reply = asked(&alone, &hello(model)).await;
        assert_eq!(reply.status, 200, "{model}: {}", reply.body_text());
    }
}

#[tokio::test]
async fn free_takes_what_costs_nothing() {
    let (_sims, gate) = six("").await;
    let reply = asked(&gate, &hello("tidegate/free")).await;
    assert_eq!(reply.text(), "c/gift", "{}", reply.body_text());
    let told = &reply.json()["tidegate_metadata"];
    assert_eq!((&told["strategy"], &told["requested"]), (&json!("free"), &json!("tidegate/free")));
    assert!(told.get("pipeline").is_none(), "a stage that did nothing is not named");
}

#[tokio::test]
async fn an_answer_that_is_almost_json_is_repaired_where_that_is_asked_for() {
    let sim = Sim::start(Behaviour::says("Sure:\n```json\n{port: 'Brest', \"height\": 2.5,}\n```")).await;
    let gate = Tidegate::start().endpoint("a/one", &sim).run().await;
    let schema = json!({"type": "object", "required": ["port"], "properties": {"port": {"type": "string"}}});
    let mut body = hello("a/one");
    body["max_tokens"] = json!(500);
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    let plain = asked(&gate, &body).await;
    assert!(plain.text().starts_with("Sure:"));
    body["plugins"] = json!([{"id": "response-healing"}]);
    let reply = asked(&gate, &body).await;
    assert_eq!(reply.text(), r#"{"port":"Brest","height":2.5}"#);
    let entry = &reply.json()["tidegate_metadata"]["pipeline"][0];
    assert_eq!((&entry["type"], &entry["data"]["schema_valid"]), (&json!("response_healing"), &json!(true)));
    assert_eq!(reply.json()["usage"]["output_tokens"], plain.json()["usage"]["output_tokens"]);
    body["stream"] = json!(true);
    assert!(asked(&gate, &body).await.text().starts_with("Sure:"), "a stream is left alone");
    body["stream"] = json!(false);
    body["plugins"] = json!([{"id": "response-healing", "enabled": false}]);
    assert!(asked(&gate, &body).await.text().starts_with("Sure:"));
    // What was right, or could not be helped, is not said to be better.
    body["plugins"] = json!([{"id": "response-healing"}]);
    for text in [r#"{"port":"Brest"}"#, "[1]"] {
        sim.set(Behaviour::says(text));
        let reply = asked(&gate, &body).await;
        let entries = reply.json()["tidegate_metadata"]["pipeline"].as_array().cloned().unwrap_or_default();
        assert_eq!(reply.text(), text);
        assert!(entries.iter().all(|entry| entry["data"]["improved"] != true), "{entries:?}");
    }
}

#[tokio::test]
async fn what_the_operator_sets_stands_below_the_request_or_above_it() {
    let says = "Sure: {port: 'Brest'}";
    let schema = json!({"type": "object", "required": ["port"], "properties": {"port": {"type": "string"}}});
    let mut body = hello("a/one");
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    let mut off = body.clone();
    off["plugins"] = json!([{"id": "response-healing", "enabled": false}]);
    let healed = r#"{"port":"Brest"}"#;
    for (setting, plain, switched_off) in [
        ("enabled = true", healed, says),
        ("enabled = true\nprevent_overrides = true", healed, healed),
        ("enabled = false\nprevent_overrides = true", says, says),
    ] {
        let sim = Sim::start(Behaviour::says(says)).await;
        let config = format!("[plugins.defaults.response-healing]\n{setting}\n");
        let gate = Tidegate::start().endpoint("a/one", &sim).config(&config).run().await;
        assert_eq!(asked(&gate, &body).await.text(), plain, "{setting}");
        let mut empty = body.clone();
        empty["plugins"] = json!([]);
        assert_eq!(asked(&gate, &empty).await.text(), plain, "{setting}: an empty list says nothing");
        assert_eq!(asked(&gate, &off).await.text(), switched_off, "{setting}");
    }
    // A field that the request gives counts, and one that it may not give is not heard, which is said.
    for (frozen, model, ignored) in [("", "c/five", Value::Null), ("prevent_overrides = true", "a/two", json!(true))] {
        let lists = "allowed_models = [\"a/two\", \"c/five\"]\nexcluded_models = [\"c/*\"]";
        let (_sims, gate) = six(&format!("[plugins.defaults.auto-router]\n{lists}\n{frozen}\n")).await;
        assert_eq!(asked(&gate, &hello("tidegate/auto")).await.text(), "a/two");
        let reply = asked(&gate, &auto("s", json!({"excluded_models": ["a/*"]}))).await;
        assert_eq!(reply.text(), model, "{frozen}: {}", reply.body_text());
        assert_eq!(reply.json()["tidegate_metadata"]["pipeline"][0]["data"]["overrides_ignored"], ignored, "{frozen}");
        let mut beta = hello("tidegate/auto-beta");
        beta["session_id"] = json!("b");
        assert_eq!(asked(&gate, &beta).await.text(), "a/two", "what is saved for one router serves the other");
    }
}

#[tokio::test]
async fn pareto_takes_the_cheapest_that_writes_well_enough_or_the_best_for_a_price() {
    // One to five dollars; c/gift is not scored.
    let scores = "[routing.coding_percentiles]\n\"a/one\" = 55\n\"a/two\" = 82\n\"b/three\" = 70\n\
                  \"b/four\" = 95\n\"c/five\" = 90\n";
    let (sims, gate) = six(scores).await;
    let pareto = |session: &str, plugin: Value| {
        let mut body = hello("tidegate/pareto-code");
        let mut plugin = plugin;
        plugin["id"] = json!("pareto-router");
        body["plugins"] = json!([plugin]);
        body["session_id"] = json!(session);
        body
    };
    let plain = asked(&gate, &hello("tidegate/pareto-code")).await;
    assert_eq!(plain.text(), "a/two", "the cheapest of the best: {}", plain.body_text());
    let told = &plain.json()["tidegate_metadata"];
    assert_eq!((&told["requested"], &told["strategy"]), (&json!("tidegate/pareto-code"), &json!("pareto")));
    let entry = &told["pipeline"][0];
    assert_eq!((&entry["type"], &entry["name"]), (&json!("plugin"), &json!("pareto-router")), "{entry}");
    let data = &entry["data"];
    assert_eq!(
        (&data["tier"], &data["candidates"], &data["score"]),
        (&json!("high"), &json!(5), &json!(82.0)),
        "{data}"
    );
    let table = [
        (json!({"min_coding_score": 0.5}), "b/three"),
        (json!({"min_coding_score": 0.1}), "a/one"),
        (json!({"max_price": 4}), "b/four"),
        (json!({"max_price": 3.5, "min_coding_score": 0.1, "price_source": "weighted_avg"}), "a/two"),
        (json!({"max_price": 1}), "a/one"),
        (json!({"enabled": false}), "b/four"),
    ];
    for (number, (plugin, model)) in table.into_iter().enumerate() {
        let reply = asked(&gate, &pareto(&number.to_string(), plugin.clone())).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, model), "{plugin}: {}", reply.body_text());
    }
    // A conversation stays where it is while that may be chosen, and companions serve when the first fails.
    let reply = asked(&gate, &pareto("2", json!({"max_price": 5}))).await;
    assert_eq!(reply.json()["tidegate_metadata"]["pipeline"][0]["data"]["sticky"], true);
    sims[1].set(Behaviour::status(500));
    assert_eq!(asked(&gate, &pareto("f", json!({}))).await.text(), "b/four", "four dollars are less than five");
    for (plugin, status) in [(json!({"max_price": 0.5}), 404), (json!({"max_price": -1}), 400)] {
        assert_eq!(asked(&gate, &pareto("n", plugin)).await.status, status);
    }
    let fast = asked(&gate, &hello("tidegate/pareto-code:nitro")).await;
    assert_eq!(fast.status, 200, "{}", fast.body_text());
}

#[tokio::test]
async fn pareto_needs_somebody_who_is_scored() {
    let (_sims, gate) = six("").await;
    let (status, _, _, message) = asked(&gate, &hello("tidegate/pareto-code")).await.error();
    let wanted = "No model of this deployment has a score for writing programs: the operator sets \
        benchmarks.coding_percentile of models, or routing.coding_percentiles";
    assert_eq!((status, &*message), (404, wanted));
}

#[tokio::test]
async fn requests_are_written_by_description() {
    let (sims, gate) = six("[routing.bodybuilder]\nmodel = \"a/two\"\n").await;
    let mut body = hello("tidegate/bodybuilder");
    body["system"] = json!("Be brief.");
    let reply = asked(&gate, &body).await;
    let told = &reply.json()["tidegate_metadata"];
    assert_eq!((reply.text().as_str(), &told["strategy"]), ("a/two", &json!("bodybuilder")), "{told}");
    assert_eq!(told["requested"], "tidegate/bodybuilder");
    let sent: Value = serde_json::from_slice(&sims[1].requests().last().unwrap().body).unwrap();
    let instructions = sent["system"][0]["text"].as_str().unwrap();
    assert!(instructions.contains(r#"{"requests": [BODY, …]}"#), "{instructions}");
    let (_, named) = instructions.split_once("Models that can be named: ").unwrap();
    let mut named: Vec<&str> = named.trim_end_matches('.').split(", ").collect();
    named.sort_unstable();
    assert_eq!(named, ["a/one", "a/two", "b/four", "b/three", "c/five", "c/gift"]);
    assert_eq!(sent["system"][1]["text"], "Be brief.");
    let (_sims, unset) = six("").await;
    let (status, _, _, message) = asked(&unset, &body).await.error();
    assert!(status == 404 && message.contains("routing.bodybuilder.model"), "{status} {message}");
}
