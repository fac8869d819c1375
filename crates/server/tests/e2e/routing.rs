//! Who serves a request: what callers say about it in `provider` and behind the name of a model, seen from who answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::asks;
use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hash_of, hello};

const MODEL: &str = "vendor/m";

/// Three providers that say their names, at three dollars, one dollar and two dollars.
struct Three {
    gate: Tidegate,
    sims: Vec<Sim>,
}

impl Three {
    async fn start(more: [&str; 3], config: &str) -> Self {
        let mut sims = Vec::new();
        for name in ["p0", "p1", "p2"] {
            sims.push(Sim::start(Behaviour::says(name)).await);
        }
        let priced = sims.iter().zip([3, 1, 2]).zip(more);
        let gate = priced.fold(Tidegate::start(), |gate, ((sim, price), more)| {
            let lines = format!("shadow_price = {price}\npricing = {{ input = {price}, output = {price} }}\n{more}");
            gate.endpoint_with(MODEL, sim, &lines)
        });
        Self { gate: gate.config(config).run().await, sims }
    }

    /// The answer to a request with these members beside the usual ones.
    async fn ask(&self, members: Value) -> Reply {
        let mut body = hello(MODEL);
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let ask = self.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
        ask.json(body.to_string()).send().await
    }

    /// Who answers, and who could have.
    async fn served(&self, members: Value) -> (String, Vec<String>) {
        let reply = self.ask(members.clone()).await;
        assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{members}");
        let available = &reply.json()["tidegate_metadata"]["endpoints"]["available"];
        let name = |entry: &Value| entry["provider"].as_str().unwrap().to_lowercase();
        (reply.text(), available.as_array().unwrap().iter().map(name).collect())
    }
}

#[tokio::test]
async fn wishes_decide_who_serves_and_who_could() {
    let three = Three::start(["quantization = \"fp8\"", "", ""], "").await;
    for (members, expected) in [
        (json!({}), &["p1", "p2", "p0"][..]),
        (json!({"provider": {"only": ["p0"]}}), &["p0"]),
        (json!({"provider": {"only": ["P2", "P0"]}}), &["p2", "p0"]),
        (json!({"provider": {"ignore": ["p1"]}}), &["p2", "p0"]),
        (json!({"provider": {"order": ["p0", "p2"]}}), &["p0", "p2", "p1"]),
        (json!({"provider": {"order": ["p0", "p2"], "allow_fallbacks": false}}), &["p0", "p2"]),
        (json!({"provider": {"allow_fallbacks": false}}), &["p1"]),
        (json!({"provider": {"max_price": {"prompt": "2", "completion": 2}}}), &["p1", "p2"]),
        (json!({"provider": {"sort": "price"}}), &["p1", "p2", "p0"]),
        (json!({"provider": {"sort": {"by": "price", "partition": "none"}}}), &["p1", "p2", "p0"]),
        (json!({"provider": {"quantizations": ["fp8"]}}), &["p0"]),
        (json!({"model": "vendor/m:floor"}), &["p1", "p2", "p0"]),
        (json!({"model": "vendor/m:nitro", "provider": {"order": ["p2"]}}), &["p2", "p1", "p0"]),
        (json!({"route": "fallback", "provider": null}), &["p1", "p2", "p0"]),
    ] {
        let (first, available) = three.served(members.clone()).await;
        assert_eq!(
            (first.as_str(), &available.iter().map(String::as_str).collect::<Vec<_>>()[..]),
            (expected[0], expected),
            "{members}"
        );
    }
}

#[tokio::test]
async fn without_fallbacks_the_failure_of_the_first_is_told() {
    let three = Three::start([""; 3], "").await;
    three.sims[1].set(Behaviour::status(529));
    assert_eq!(three.ask(json!({})).await.text(), "p2");
    let reply = three.ask(json!({"provider": {"allow_fallbacks": false}})).await;
    assert_eq!((reply.status, three.sims[2].calls()), (529, 1));
    let listed = json!({"provider": {"order": ["p1"], "allow_fallbacks": false}});
    assert_eq!(three.ask(listed).await.status, 529);
    assert_eq!(three.ask(json!({"provider": {"order": ["p1", "p0"], "allow_fallbacks": false}})).await.text(), "p0");
}

#[tokio::test]
async fn a_filter_that_leaves_nobody_says_which_it_was() {
    let three = Three::start([""; 3], "").await;
    let lists = "No allowed providers for vendor/m. Served by: p0, p1, p2. Allowed: nobody";
    for (provider, code, message, excluded) in [
        (json!({"only": ["nobody"]}), "no_endpoints", lists, "allowed_providers"),
        (json!({"order": ["nobody"], "allow_fallbacks": false}), "no_endpoints", lists, "allowed_providers"),
        (
            json!({"max_price": {"prompt": 0.5}}),
            "constraint_filtered",
            "No endpoints for vendor/m satisfy max_price",
            "max_price",
        ),
        (
            json!({"quantizations": ["int4"]}),
            "constraint_filtered",
            "No endpoints for vendor/m satisfy quantizations",
            "quantization",
        ),
        (
            json!({"zdr": true}),
            "privacy_restricted",
            "No endpoints for vendor/m match your data policy (zero data retention)",
            "data_policy:zdr",
        ),
        (
            json!({"data_collection": "deny"}),
            "privacy_restricted",
            "No endpoints for vendor/m match your data policy (no training)",
            "data_policy:training",
        ),
    ] {
        let reply = three.ask(json!({"provider": provider})).await;
        let told = reply.error();
        assert_eq!((told.0, told.1.as_str(), told.2.as_str()), (404, "not_found_error", "not_found"), "{provider}");
        assert_eq!(told.3, message);
        let json = reply.json();
        let availability = &json["error"]["availability"];
        assert_eq!((&availability["code"], &availability["retryable"]), (&json!(code), &json!(false)));
        assert_eq!(availability["excluded_by"], json!([excluded]));
        assert_eq!(availability["affected_providers"], json!(["p0", "p1", "p2"]));
        assert_eq!(availability["requested_models"], json!([MODEL]));
        assert!(availability["docs_url"].as_str().unwrap().ends_with(&format!("/errors#{code}")));
        assert_eq!(availability["constraint"].is_object(), code == "constraint_filtered", "{availability}");
        // Who was there before the last filter, and that nobody was called.
        let metadata = &json["tidegate_metadata"];
        assert_eq!((&metadata["attempt"], &metadata["endpoints"]["total"]), (&json!(0), &json!(3)));
        assert_eq!(metadata["endpoints"]["available"].as_array().unwrap().len(), 3, "{metadata}");
    }
    assert!(three.sims.iter().all(|sim| sim.calls() == 0));
    let reply = three.ask(json!({"model": "vendor/m:quick"})).await;
    assert_eq!((reply.status, reply.error().3.as_str()), (400, "vendor/m:quick is not a valid model ID"));
    assert_eq!(reply.json()["error"]["availability"]["code"], "model_not_found");
    assert_eq!(reply.json().get("tidegate_metadata"), None);
}

#[tokio::test]
async fn a_prompt_that_fits_nowhere_is_refused_before_anyone_is_called() {
    let length =
        |tokens: u64| format!("context_length = {tokens}\nmax_output_tokens = 500\ncard = {{ tokenizer = \"bytes\" }}");
    let three = Three::start([&length(2_000), &length(2_000), &length(4_000)], "").await;
    // 3.2 bytes a token, by which even the longest is too short for 16 000 letters.
    let words = |count: usize| json!([{"role": "user", "content": "a".repeat(count)}]);
    let (first, available) = three.served(json!({"messages": words(8_000)})).await;
    assert_eq!((first.as_str(), available), ("p2", vec!["p2".to_owned()]), "the cheapest is too short");
    let reply = three.ask(json!({"messages": words(16_000)})).await;
    let (status, kind, error_type, message) = reply.error();
    assert_eq!((status, kind.as_str(), error_type.as_str()), (400, "invalid_request_error", "context_length_exceeded"));
    assert!(message.starts_with("prompt is too long: ") && message.ends_with(" tokens > 4000 maximum"), "{message}");
    let metadata = &reply.json()["metadata"];
    assert_eq!((&metadata["max_tokens"], &metadata["model_slug"]), (&json!(4000), &json!(MODEL)));
    assert!(metadata["needed_tokens"].as_u64().unwrap() > 4_000);
    assert_eq!(three.sims.iter().map(Sim::calls).sum::<usize>(), 1);
}

#[tokio::test]
async fn a_prompt_is_refused_by_its_tokens_and_not_by_its_bytes() {
    let length = "context_length = 2000\nmax_output_tokens = 500\ncard = { tokenizer = \"openai\" }";
    let three = Three::start([length; 3], "").await;
    // Five words and a stop each time, which are six tokens in 29 bytes: of 259 of them 1 554 tokens, 2 347 at 3.2 bytes each.
    let prose = |times: usize| json!([{"role": "user", "content": "These words are easily read. ".repeat(times)}]);
    let fitting = prose(259);
    let reply = three.ask(json!({"messages": fitting, "max_tokens": 100})).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let reply = three.ask(json!({"messages": prose(400), "max_tokens": 100})).await;
    assert_eq!((reply.status, reply.error().2.as_str()), (400, "context_length_exceeded"));
}

#[tokio::test]
async fn how_a_model_was_found_is_told() {
    let config = "[aliases]\nhouse = \"vendor/m:floor\"\n[tools.web_search.engines.fixed]\nkind = \"static\"\n\
        results = [{ url = \"https://a.example/\", title = \"A\", content = \"a\" }]\n";
    let three = Three::start([""; 3], config).await;
    for (model, strategy) in [(MODEL, "direct"), ("house", "alias"), ("m:floor", "alias")] {
        let metadata = three.ask(json!({"model": model})).await.json()["tidegate_metadata"].clone();
        assert_eq!((&metadata["strategy"], &metadata["endpoints"]["total"]), (&json!(strategy), &json!(3)), "{model}");
        assert_eq!(metadata["summary"], "available=3, selected=P1");
    }
    let reply = three.ask(json!({"model": "vendor/m:online"})).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
    assert_eq!(three.ask(json!({"model": "default"})).await.status, 400);
    let reply = three.ask(json!({"model": "~vendor/m-latest"})).await;
    assert_eq!((reply.status, reply.error().3.as_str()), (404, "No endpoints found for ~vendor/m-latest"));
    assert_eq!(reply.json()["tidegate_metadata"]["strategy"], "latest");
}

#[tokio::test]
async fn the_newest_of_a_family_answers() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let model = |id: &str, day: &str, hidden: bool| {
        format!(
            "[[models]]\nid = \"vendor/{id}\"\ncontext_length = 9000\nmax_output_tokens = 900\nfamily = \"tide\"\n\
             released_at = \"{day}\"\nhidden = {hidden}\n[[models.endpoints]]\nprovider = \"p0\"\nmodel = \"m\"\n"
        )
    };
    let gate = Tidegate::start().endpoint(MODEL, &sim);
    let gate = gate.config(&model("neap", "2026-03-01", false)).config(&model("spring", "2026-04-01", false));
    let gate = gate.config(&model("secret", "2026-05-01", true)).run().await;
    let reply = gate.messages(hello("~vendor/tide-latest")).await;
    assert_eq!((reply.status, &reply.json()["model"]), (200, &json!("vendor/spring")));
    assert_eq!(gate.messages(hello("vendor/secret")).await.status, 200, "who knows its id can call it");
    let listed = gate.ask("GET", "/api/v1/models").key(INFERENCE_KEY).send().await.json();
    let listed: Vec<&str> =
        listed["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert!(listed.contains(&"vendor/spring") && !listed.contains(&"vendor/secret"));
    // A list shows the name with what stands behind it now, for those who look for it and for those who do not.
    assert_eq!(listed.last(), Some(&"~vendor/tide-latest"));
    let get = async |path: &str| gate.ask("GET", &format!("/api/v1{path}")).key(INFERENCE_KEY).send().await.json();
    let found = get("/models?q=latest&model_authors=vendor").await;
    let latest = &found["data"][0];
    assert_eq!((&found["total_count"], &latest["id"]), (&json!(1), &json!("~vendor/tide-latest")));
    assert_eq!((&latest["canonical_slug"], &latest["context_length"]), (&json!("vendor/spring"), &json!(9000)));
    assert_eq!(get("/models/count?q=latest").await["data"]["count"], 1);
    let own = get("/models/user?q=latest").await;
    assert_eq!(own["data"][0]["id"], "~vendor/tide-latest");
    for path in ["/model/~vendor/tide-latest", "/models/~vendor/tide-latest/endpoints"] {
        assert_eq!(get(path).await["data"]["id"], "~vendor/tide-latest", "{path}");
    }
    assert_eq!(get("/models/~vendor/tide-latest").await["id"], "~vendor/tide-latest");
}

#[tokio::test]
async fn tiers_serve_who_asks_for_them() {
    let three = Three::start(["tier = \"priority\"", "tier = \"flex\"", ""], "").await;
    for (members, expected) in [
        (json!({}), &["p2"][..]),
        (json!({"service_tier": "priority"}), &["p0", "p2"]),
        (json!({"speed": "fast"}), &["p0", "p2"]),
        (json!({"service_tier": "flex"}), &["p1"]),
        (json!({"model": "vendor/m:floor"}), &["p1", "p2"]),
        (json!({"model": "vendor/m:floor", "service_tier": "default"}), &["p2"]),
        (json!({"provider": {"only": ["p0/priority"]}}), &["p0"]),
        (json!({"provider": {"order": ["p1/flex"]}}), &["p1", "p2"]),
    ] {
        let (first, available) = three.served(members.clone()).await;
        assert_eq!((first.as_str(), available.len()), (expected[0], expected.len()), "{members}");
        assert_eq!(available, expected, "{members}");
    }
}

/// One provider with an endpoint for each tier, the same model at all of them.
async fn tiered(protocol: &str, path: &str) -> (Tidegate, Sim) {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let mut config = format!(
        "[[providers]]\nslug = \"openai\"\nprotocol = \"{protocol}\"\nbase_url = \"{}{path}\"\napi_key = \"k\"\n\
         [[models]]\nid = \"vendor/tiered\"\ncontext_length = 200000\nmax_output_tokens = 8192\n",
        sim.base_url()
    );
    for (tier, price) in [("default", 3), ("priority", 6), ("flex", 1)] {
        config.push_str(&format!(
            "[[models.endpoints]]\nprovider = \"openai\"\nmodel = \"sim\"\ntier = \"{tier}\"\n\
             pricing = {{ input = {price}, output = {price} }}\n"
        ));
    }
    (Tidegate::start().config(&config).run().await, sim)
}

#[tokio::test]
async fn a_tier_is_asked_for_where_it_is_paid_for() {
    // The first of these reports the tier that was asked for, the second always the usual one.
    for (protocol, path, gives) in [("openai-responses", "/v1", true), ("openai-chat", "/v1", false)] {
        let (gate, sim) = tiered(protocol, path).await;
        for (members, sent, dear) in [
            (json!({}), None, 3),
            (json!({"service_tier": "priority"}), Some("priority"), if gives { 6 } else { 3 }),
            (json!({"provider": {"only": ["openai/priority"]}}), Some("priority"), if gives { 6 } else { 3 }),
            (json!({"service_tier": "flex"}), Some("flex"), 1),
            (json!({"model": "vendor/tiered:floor"}), Some("flex"), 1),
        ] {
            let mut body = hello("vendor/tiered");
            body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            let reply = gate.messages(body).await;
            assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{protocol} {members}");
            let asked: Value = serde_json::from_slice(&sim.requests().last().unwrap().body).unwrap();
            assert_eq!(asked["service_tier"].as_str(), sent, "{protocol} {members}");
            let usage = reply.json()["usage"].clone();
            let tokens = usage["input_tokens"].as_f64().unwrap() + usage["output_tokens"].as_f64().unwrap();
            let (cost, expected) = (usage["cost"].as_f64().unwrap(), tokens * f64::from(dear) / 1e6);
            assert!((cost - expected).abs() < 1e-9, "{protocol} {members}: {cost} is not {expected}");
        }
    }
}

#[tokio::test]
async fn chance_decides_by_price_and_a_seed_repeats_it() {
    let drawn = async || {
        let sims = [Sim::start(Behaviour::says("0")).await, Sim::start(Behaviour::says("1")).await];
        let gate = Tidegate::start().by_chance().config("[routing]\nseed = 11\n");
        let gate =
            gate.endpoint_with(MODEL, &sims[0], "shadow_price = 1").endpoint_with(MODEL, &sims[1], "shadow_price = 2");
        let gate = gate.run().await;
        let mut story = String::new();
        for _ in 0..100 {
            story.push_str(&gate.messages(hello(MODEL)).await.text());
        }
        story
    };
    let (once, again) = (drawn().await, drawn().await);
    assert_eq!(once, again, "the same seed gives the same story");
    // Twice the price is drawn a quarter as often: 20 of 100, with a deviation of 4.
    let dear = once.matches('1').count();
    assert!((4..=36).contains(&dear), "{once}");
}

#[tokio::test]
async fn default_is_the_model_that_the_workspace_has_chosen() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let unset = gate.messages(hello("default")).await;
    let (status, _, _, message) = unset.error();
    assert_eq!(status, 400);
    assert_eq!(message, "Invalid request: model 'default' needs a default_text_model in the workspace");
    let choose = async |model: &str| {
        let ask = gate.ask("PATCH", "/api/v1/workspaces/default").key(MANAGEMENT_KEY);
        let reply = ask.json(json!({"default_text_model": model}).to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
    };
    choose(MODEL).await;
    eventually("the choice is followed", std::time::Duration::from_secs(10), async || {
        gate.messages(hello("default")).await.status == 200
    })
    .await;
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
    let told = ask.json(hello("default").to_string()).send().await.json();
    assert_eq!(told["model"], MODEL);
    let metadata = &told["tidegate_metadata"];
    assert_eq!((&metadata["requested"], &metadata["strategy"]), (&json!("default"), &json!("alias")));
    let count = gate.ask("POST", "/v1/messages/count_tokens").key(INFERENCE_KEY);
    assert_eq!(count.json(hello("default").to_string()).send().await.status, 200);
}

#[tokio::test]
async fn a_workspace_sorts_for_requests_that_do_not() {
    let sims = [Sim::start(Behaviour::says("a")).await, Sim::start(Behaviour::says("b")).await];
    let gate = Tidegate::start()
        .by_chance()
        .endpoint_with(MODEL, &sims[0], "shadow_price = 2.01")
        .endpoint_with(MODEL, &sims[1], "shadow_price = 2")
        .run()
        .await;
    let sort = async |by: Value| {
        let ask = gate.ask("PATCH", "/api/v1/workspaces/default").key(MANAGEMENT_KEY);
        assert_eq!(ask.json(json!({"default_provider_sort": by}).to_string()).send().await.status, 200);
    };
    let served = async |more: Value| {
        let mut said = String::new();
        for number in 0..30 {
            let mut body = json!({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": format!("hi {number}")}]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            said.push_str(&gate.messages(body).await.text());
        }
        said
    };
    let by_chance = served(json!({})).await;
    assert!(by_chance.contains('a') && by_chance.contains('b'), "{by_chance}");
    sort(json!("price")).await;
    let cheapest = "b".repeat(30);
    assert_eq!(served(json!({})).await, cheapest);
    let tool = json!({"tools": [{"name": "t", "input_schema": {"type": "object"}}]});
    assert_eq!(served(tool).await, cheapest, "also where tools are called");
    assert_eq!(served(json!({"provider": {"order": ["p0"]}})).await, "a".repeat(30), "a request knows best");
    let explained = gate.ask("POST", "/api/v1/explain").key(MANAGEMENT_KEY);
    let hash = hash_of(INFERENCE_KEY);
    let explained = explained.json(json!({"model": MODEL, "key": hash}).to_string()).send().await.json();
    let first = explained["data"]["candidates"].as_array().unwrap().iter().find(|one| one["place"] == 1).unwrap();
    assert!(first["endpoint"].as_str().unwrap().starts_with("p1"), "{explained}");
    sort(Value::Null).await;
    let by_chance = served(json!({})).await;
    assert!(by_chance.contains('a') && by_chance.contains('b'), "{by_chance}");
}

#[tokio::test]
async fn a_name_that_ends_in_thinking_switches_it_on() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let gate = Tidegate::start().endpoint(MODEL, &sim).run().await;
    let sent = async |body: Value| {
        let reply = gate.messages(body).await;
        assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
        let body = sim.requests().pop().unwrap().body;
        serde_json::from_slice::<Value>(&body).unwrap()["thinking"].clone()
    };
    assert_eq!(sent(hello("vendor/m:thinking")).await, json!({"type": "adaptive"}));
    assert_eq!(sent(hello(MODEL)).await, Value::Null);
    let mut own = hello("vendor/m:thinking");
    own["thinking"] = json!({"type": "disabled"});
    assert_eq!(sent(own).await, json!({"type": "disabled"}), "the caller's own word counts");
}

#[tokio::test]
async fn free_variants_have_limits_of_their_own() {
    let sim = Sim::start(Behaviour::says("hello")).await;
    let limits = "[limits]\nfree_rpm = 0\nfree_rpd = 3\n";
    let gate = Tidegate::start().config(limits).endpoint_with(MODEL, &sim, "pricing = { input = 0, output = 0 }");
    let gate = gate.run().await;
    for _ in 0..3 {
        assert_eq!(gate.messages(hello("vendor/m:free")).await.status, 200);
    }
    let refused = gate.messages(hello("vendor/m:free")).await;
    let (status, kind, _, message) = refused.error();
    assert_eq!((status, &*kind), (429, "rate_limit_error"));
    assert_eq!(message, "Rate limit exceeded: free models, 3 requests per day");
    assert_eq!(
        (&refused.json()["request_id"], refused.header("x-generation-id")),
        (&Value::Null, None),
        "never let in"
    );
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    assert_eq!(gate.messages(hello(MODEL)).await.status, 200, "by its own name it is not a free variant");
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    assert_eq!(key["data"]["free_model_daily_requests"], json!({"limit": 3, "used": 3, "remaining": 0}));
    assert_eq!(sim.calls(), 4);
}

#[tokio::test]
async fn a_free_request_counts_once_however_many_turns_it_has_and_whatever_its_model_is_called() {
    let sim = Sim::start(Behaviour::Echo).await;
    let limits = "[limits]\nfree_rpm = 0\nfree_rpd = 3\n";
    let free = "pricing = { input = 0, output = 0 }";
    let gate = Tidegate::start().config(limits).endpoint_with(MODEL, &sim, free);
    let gate = gate.endpoint_with("vendor/own:free", &sim, free).run().await;
    let used = async || {
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        key["data"]["free_model_daily_requests"]["used"].as_u64().unwrap()
    };
    let mut body = hello("vendor/m:free");
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    let call = asks("", &[("tidegate_datetime", json!({}))]);
    sim.set(Script::from(call.clone()).then(call).then(Behaviour::says("It is late.")));
    let reply = gate.messages(body).await;
    assert_eq!((reply.status, sim.calls(), used().await), (200, 3, 1), "{}", reply.body_text());
    sim.set(Behaviour::says("hello"));
    assert_eq!((gate.messages(hello("vendor/own:free")).await.status, used().await), (200, 2));
}

#[tokio::test]
async fn a_session_may_be_named_by_a_header_of_the_clients_own() {
    let sim = Sim::start(Behaviour::Echo).await;
    let config = "[routing]\nsession_headers = [\"X-Thread\", \"x-openwebui-chat-id\"]\n";
    let gate = Tidegate::start().endpoint(MODEL, &sim).config(config).run().await;
    for (headers, expected) in [
        (&[("x-openwebui-chat-id", "chat-1")][..], json!("chat-1")),
        (&[("x-openwebui-chat-id", "chat-1"), ("x-session-id", "s")], json!("s")),
        (&[("x-other", "o")], Value::Null),
    ] {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY);
        let ask = headers.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
        let reply = ask.json(hello(MODEL).to_string()).send().await;
        let id = reply.header("x-generation-id").unwrap();
        let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
        assert_eq!(record["data"]["session_id"], expected, "{headers:?}");
    }
}
