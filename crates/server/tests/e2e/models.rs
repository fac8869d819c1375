//! What there is to call.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::harness::{
    INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, assert_refused, eventually, hello, hello_streamed,
};

async fn get(gate: &Tidegate, path: &str) -> Reply {
    gate.ask("GET", &format!("/api/v1{path}")).key(INFERENCE_KEY).send().await
}

fn ids(reply: &Reply) -> Vec<String> {
    let models = reply.json()["data"].as_array().expect("a list").clone();
    models.iter().map(|model| model["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn models_are_listed_with_their_prices() {
    let sim = Sim::start(Behaviour::says("x")).await;
    let priced = "pricing = { input = 3, output = 15, cache_read = 0.3 }";
    let gate =
        Tidegate::start().endpoint_with("vendor/a", &sim, priced).endpoint("vendor/b", &sim).endpoint("other/c", &sim);
    let gate = gate.run().await;
    let all = get(&gate, "/models").await;
    assert_eq!(all.status, 200, "{all:?}");
    assert_eq!(ids(&all), ["other/c", "vendor/a", "vendor/b"], "and none that nobody here can call");
    let body = all.json();
    assert_eq!((&body["total_count"], &body["links"]["next"]), (&json!(3), &Value::Null));
    let model = &body["data"][1];
    // Writing to the cache costs what input costs where nothing else is said.
    assert_eq!(
        model["pricing"],
        json!({"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003", "input_cache_write": "0.000003", "input_cache_write_1h": "0.000003"})
    );
    assert_eq!(
        (&model["context_length"], &model["top_provider"]["max_completion_tokens"]),
        (&json!(200_000), &json!(8192))
    );
    assert_eq!(body["data"][2]["pricing"]["prompt"], "-1", "unknown is not free");

    assert_eq!(ids(&get(&gate, "/models?model_authors=vendor&limit=1").await), ["vendor/a"]);
    assert_eq!(ids(&get(&gate, "/models?q=R/B").await), ["vendor/b"]);
    assert_eq!(ids(&get(&gate, "/models?input_modalities=audio").await), Vec::<String>::new());
    assert_eq!(ids(&get(&gate, "/models?output_modalities=image").await), Vec::<String>::new());
    assert_eq!(ids(&get(&gate, "/models?output_modalities=text&limit=1").await), ["other/c"]);
    assert_eq!(model["architecture"]["modality"], "text+image+file->text");
    assert_eq!(ids(&get(&gate, "/models?providers=p2").await), ["other/c"]);
    let page = get(&gate, "/models?offset=1&limit=1").await.json();
    assert_eq!(page["links"]["next"], "/api/v1/models?offset=2&limit=1");
    assert_eq!(get(&gate, "/models?limit=0").await.status, 400);
    assert_eq!(get(&gate, "/models/count").await.json(), json!({"data": {"count": 3}}));
    assert_eq!(get(&gate, "/model/vendor/a").await.json()["data"]["id"], "vendor/a");
    let missing = get(&gate, "/model/vendor/z").await;
    assert_eq!((missing.status, missing.json()["error"]["message"].clone()), (404, json!("Resource not found")));
    let offers = get(&gate, "/models/vendor/a/endpoints").await.json()["data"].clone();
    let offer = &offers["endpoints"][0];
    assert_eq!((offers["id"].as_str(), offer["tag"].as_str()), (Some("vendor/a"), Some("p0")));
    assert!(offer["context_length"].is_u64() && offer["uptime_last_30m"].is_null(), "{offers}");
    assert_eq!((&offer["native_tools"], &offer["service_tier"]), (&json!({}), &json!(null)));
    assert_eq!(offer["supports_diarization"], false);
    assert_eq!(offer["supports_tool_choice"], json!({"auto": true, "function": true, "none": true, "required": true}));
    assert_eq!(get(&gate, "/models/vendor/z/endpoints").await.status, 404);
    // Clients encode more than they must.
    for path in ["/model/vendor/%61", "/model/%76endor/a", "/models/vendor/%61/endpoints"] {
        assert_eq!(get(&gate, path).await.json()["data"]["id"], "vendor/a", "{path}");
    }
    assert_eq!(get(&gate, "/models/vendor%2F%61").await.json()["id"], "vendor/a");
    assert_eq!(get(&gate, "/model/vendor/%ff").await.status, 400);
    let providers = get(&gate, "/providers").await.json();
    assert!(
        providers["data"].as_array().expect("a list").iter().any(|provider| provider["slug"] == "p0"),
        "{providers}"
    );
}

/// Three models that differ in everything a list can be asked for.
const SHELF: &str = r#"
[[providers]]
slug = "keeps-nothing"
protocol = "anthropic"
base_url = "http://127.0.0.1:9"
api_key = "k"
data_policy = { retains = false, trains = false }

[[providers]]
slug = "keeps"
protocol = "anthropic"
base_url = "http://127.0.0.1:9"
api_key = "k"

[[models]]
id = "vendor/old"
context_length = 1000
max_output_tokens = 100
released_at = "2020-01-01"
distillable = true
[[models.endpoints]]
provider = "keeps-nothing"
model = "m"
tag = "eu-west-1"
supported_parameters = ["max_tokens", "tools"]
pricing = { input = 1, output = 5 }

[[models]]
id = "vendor/new"
context_length = 3000
max_output_tokens = 100
released_at = "2026-01-01"
[[models.endpoints]]
provider = "keeps"
model = "m"
tag = "us-east-1"
supported_parameters = ["max_tokens", "top_k"]
pricing = { input = 3, output = 2 }

[[models]]
id = "vendor/unknown"
context_length = 2000
max_output_tokens = 100
[[models.endpoints]]
provider = "keeps"
model = "m"
supported_parameters = ["max_tokens"]
"#;

#[tokio::test]
async fn endpoints_that_keep_nothing_are_listed() {
    let gate = Tidegate::start().config(SHELF).run().await;
    let listed = get(&gate, "/endpoints/zdr").await.json();
    let offers: Vec<(&str, &str)> = listed["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|offer| (offer["model_id"].as_str().unwrap_or_default(), offer["tag"].as_str().unwrap_or_default()))
        .filter(|(model, _)| model.starts_with("vendor/"))
        .collect();
    assert_eq!(offers, [("vendor/old", "keeps-nothing/eu-west-1")]);
}

#[tokio::test]
async fn lists_are_narrowed_and_sorted_by_what_the_query_says() {
    let gate = Tidegate::start().config(SHELF).run().await;
    for (query, expected) in [
        ("supported_parameters=tools", "old"),
        ("supported_parameters=max_tokens,top_k", "new"),
        ("supported_parameters=juggling", ""),
        ("context=2000", "new unknown"),
        ("max_price=1", "old"),
        ("min_price=1.5", "new"),
        ("min_price=0", "new old"),
        ("min_output_price=3", "old"),
        ("max_output_price=2", "new"),
        ("min_age_days=1000", "old"),
        ("max_age_days=1000000", "new old"),
        ("distillable=true", "old"),
        ("distillable=false", "new unknown"),
        ("zdr=true", "old"),
        ("zdr=true&providers=keeps", ""),
        ("region=eu", "old"),
        ("region=us", "new"),
        ("arch=other", "new old unknown"),
        ("arch=GPT", ""),
        ("category=programming", ""),
        ("min_intelligence_index=0", ""),
        ("max_tool_success_rate=1", ""),
        ("sort=newest", "new old unknown"),
        ("sort=pricing-low-to-high", "old new unknown"),
        ("sort=pricing-high-to-low", "new old unknown"),
        ("sort=context-high-to-low", "new unknown old"),
        ("sort=latency-low-to-high", "new old unknown"),
        ("sort=top-weekly", "new old unknown"),
    ] {
        let reply = get(&gate, &format!("/models?model_authors=vendor&{query}")).await;
        assert_eq!(reply.status, 200, "{query}: {reply:?}");
        let ids: Vec<String> = ids(&reply).iter().map(|id| id.replace("vendor/", "")).collect();
        assert_eq!(ids.join(" "), expected, "{query}");
        let count = get(&gate, &format!("/models/count?model_authors=vendor&{query}")).await.json();
        assert_eq!(count["data"]["count"], ids.len(), "{query}");
    }
}

#[tokio::test]
async fn the_next_page_is_one_of_the_same_list() {
    let gate = Tidegate::start().config(SHELF).run().await;
    for path in ["/api/v1/models", "/v1/models", "/v1/models/user"] {
        let mut next = format!("{path}?sort=newest&model_authors=vendor%2Cother&limit=2");
        let mut seen = Vec::new();
        loop {
            let reply = gate.ask("GET", &next).key(INFERENCE_KEY).send().await;
            assert_eq!(reply.status, 200, "{next}: {reply:?}");
            seen.extend(ids(&reply));
            let Some(link) = reply.json()["links"]["next"].as_str().map(str::to_owned) else { break };
            assert!(link.starts_with(&format!("{path}?")), "{link}");
            next = link;
        }
        assert_eq!(seen, ["vendor/new", "vendor/old", "vendor/unknown"], "{path}");
    }
}

#[tokio::test]
async fn models_say_when_they_were_released() {
    let gate = Tidegate::start().config(SHELF).run().await;
    let listed = get(&gate, "/models?sort=newest&model_authors=vendor").await.json();
    let created: Vec<_> = listed["data"].as_array().expect("a list").iter().map(|model| &model["created"]).collect();
    assert_eq!(created, [&json!(1_767_225_600), &json!(1_577_836_800), &json!(0)]);
    for path in ["/model/vendor/old", "/models/vendor/old/endpoints"] {
        assert_eq!(get(&gate, path).await.json()["data"]["created"], 1_577_836_800, "{path}");
    }
}

#[tokio::test]
async fn a_wish_that_nobody_can_read_is_refused() {
    let gate = Tidegate::start().config(SHELF).run().await;
    for (name, value) in [
        ("sort", "fastest"),
        ("category", "gardening"),
        ("distillable", "yes"),
        ("zdr", "false"),
        ("region", "mars"),
        ("context", "0"),
        ("context", "many"),
        ("min_price", "-1"),
        ("max_output_price", "NaN"),
        ("min_age_days", "1.5"),
        ("max_tool_success_rate", "1.1"),
        ("use_rss", "true"),
    ] {
        for path in ["/models", "/models/count"] {
            let reply = get(&gate, &format!("{path}?{name}={value}")).await;
            assert_refused(&reply, name);
        }
    }
}

#[tokio::test]
async fn a_model_of_a_vendor_without_a_key_is_there_for_who_brings_one() {
    let gate = Tidegate::start().run().await;
    let model = "anthropic/claude-sonnet-5".to_owned();
    assert!(
        !ids(&get(&gate, "/models").await).contains(&model) && !ids(&get(&gate, "/models/user").await).contains(&model)
    );
    let body = json!({"provider": "anthropic", "key": "sk-ant-0123456789abcdef"}).to_string();
    let stored = gate.ask("POST", "/v1/byok").key(MANAGEMENT_KEY).json(body).send().await;
    assert_eq!(stored.status, 201, "{stored:?}");
    assert!(ids(&get(&gate, "/models/user").await).contains(&model));
}

/// The one endpoint of a model, as it is shown.
async fn endpoint(gate: &Tidegate, model: &str) -> Value {
    get(gate, &format!("/models/{model}/endpoints")).await.json()["data"]["endpoints"][0].clone()
}

async fn metrics(gate: &Tidegate) -> Vec<String> {
    gate.managed("/metrics").await.body_text().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn endpoints_say_how_they_are_doing_once_they_were_called() {
    let (good, bad) = (Sim::start(Behaviour::says("one two three")).await, Sim::start(Behaviour::status(500)).await);
    let gate = Tidegate::start().endpoint("vendor/good", &good).endpoint("vendor/bad", &bad).run().await;
    for model in ["vendor/good", "vendor/bad"] {
        let offer = endpoint(&gate, model).await;
        for name in ["uptime_last_5m", "uptime_last_30m", "uptime_last_1d", "latency_last_30m", "throughput_last_30m"] {
            assert_eq!(offer.get(name), Some(&Value::Null), "{model} {name}");
        }
        assert_eq!(offer["status"], 0, "nothing bad is known of {model}");
    }
    let before = metrics(&gate).await;
    let is_shown = |lines: &[String], line: &str| lines.iter().any(|shown| shown == line);
    assert!(is_shown(&before, r#"tidegate_breaker_state{model="vendor/good",provider="P0"} 0"#), "{before:?}");
    assert!(!before.iter().any(|line| line.starts_with("tidegate_endpoint_health{")), "nothing is known: {before:?}");

    // Fewer than ten say nothing about how long answers take.
    for calls in 1..=10 {
        let reply = gate.messages(hello_streamed("vendor/good")).await;
        assert_eq!(reply.status, 200);
        if calls == 9 {
            let offer = endpoint(&gate, "vendor/good").await;
            assert_eq!((&offer["uptime_last_5m"], &offer["latency_last_30m"]), (&json!(100.0), &Value::Null));
        }
    }
    // What was computed less than a second ago is not computed anew.
    let known = async || endpoint(&gate, "vendor/good").await["latency_last_30m"].is_object();
    eventually("there are figures", Duration::from_secs(10), known).await;
    let offer = endpoint(&gate, "vendor/good").await;
    let figures = |name: &str| ["p50", "p75", "p90", "p99"].map(|place| offer[name][place].as_f64().expect("a number"));
    assert!(figures("latency_last_30m").is_sorted(), "{offer}");
    assert!(figures("throughput_last_30m").is_sorted_by(|one, other| one >= other), "{offer}");
    assert!(figures("throughput_last_30m")[3] > 0.0, "{offer}");

    // Two failures beside ten answers: no reason to leave it alone.
    good.set(Behaviour::status(500));
    for _ in 0..2 {
        assert!(gate.messages(hello("vendor/good")).await.status >= 500);
    }
    assert_eq!(good.calls(), 12);
    let offer = endpoint(&gate, "vendor/good").await;
    for name in ["uptime_last_5m", "uptime_last_30m", "uptime_last_1d"] {
        assert_eq!(offer[name], 83.33, "ten of twelve: {offer}");
    }
    assert_eq!(offer["status"], 0, "{offer}");

    // Five failures in a row.
    for _ in 0..5 {
        assert!(gate.messages(hello("vendor/bad")).await.status >= 500);
    }
    let offer = endpoint(&gate, "vendor/bad").await;
    assert_eq!((&offer["uptime_last_5m"], &offer["status"]), (&json!(0.0), &json!(-3)), "{offer}");
    let after = metrics(&gate).await;
    for line in [
        r#"tidegate_breaker_state{model="vendor/good",provider="P0"} 0"#,
        r#"tidegate_breaker_state{model="vendor/bad",provider="P1"} 3"#,
        r#"tidegate_endpoint_health{model="vendor/bad",provider="P1"} 0.0"#,
    ] {
        assert!(is_shown(&after, line), "{line}: {after:?}");
    }
    let health = after
        .iter()
        .find_map(|line| line.strip_prefix(r#"tidegate_endpoint_health{model="vendor/good",provider="P0"} "#));
    let health: f64 = health.expect("it was called").parse().expect("a number");
    assert!((health - 10.0 / 12.0).abs() < 1e-6, "{health}");
}

#[tokio::test]
async fn a_model_is_retrieved_by_its_name_as_clients_write_it() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = Tidegate::start().endpoint("vendor/m", &sim).run().await;
    let get = async |path: &str| gate.ask("GET", path).key(INFERENCE_KEY).send().await;
    let shown = get("/v1/model/vendor/m").await.json()["data"].clone();
    for path in ["/v1/models/vendor/m", "/v1/models/vendor%2Fm", "/api/v1/models/vendor%2fm"] {
        let reply = get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body_text());
        let model = reply.json();
        assert_eq!(
            (&model["object"], &model["type"], &model["owned_by"]),
            (&json!("model"), &json!("model"), &json!("vendor"))
        );
        for name in ["id", "name", "pricing", "context_length"] {
            assert_eq!(model[name], shown[name], "{path}: {name}");
        }
    }
    for (path, status) in [
        ("/v1/models/vendor%2Fnobody", 404),
        ("/v1/models/vendor%2F..%2Fm", 400),
        ("/v1/models/vendor%2Fm%2Fendpoints", 400),
        ("/v1/keys%2Fm", 400),
        ("/v1/files/a%2Fb", 400),
        ("/v1/models/%2Fm", 400),
    ] {
        assert_eq!(get(path).await.status, status, "{path}");
    }
    assert_eq!(gate.ask("GET", "/v1/models/vendor%2Fm").send().await.status, 401);
}
