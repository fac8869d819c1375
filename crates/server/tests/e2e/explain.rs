//! `tidegate explain` and `POST /explain`: who would serve, in which order, and why not the others; and what became of a
//! request that was made.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::process::Command;

use crate::agent::asks;
use crate::harness::{
    Account, INFERENCE_KEY, MANAGEMENT_KEY, Place, Tidegate, assert_refused, fed, hash_of, hello, on_both, ran, soon,
    text, user,
};

/// What calls say about their endpoints decides.
const ON: &str = "[routing]\nhealth = true\n";
const MODEL: &str = "vendor/m";

/// Three providers whose prices for a million tokens of three parts input and one part output are 1, 2 and 9 dollars.
fn priced() -> String {
    let mut config = "[[models]]\nid = \"vendor/m\"\ncontext_length = 200000\nmax_output_tokens = 8192\n".to_owned();
    for (name, input, output) in [("a", 1, 1), ("b", 1, 5), ("c", 9, 9)] {
        config.push_str(&format!(
            "[[models.endpoints]]\nprovider = \"{name}\"\nmodel = \"m\"\npricing = {{ input = {input}, output = {output} }}\n"
        ));
    }
    for name in ["a", "b", "c"] {
        config.push_str(&format!(
            "[[providers]]\nslug = \"{name}\"\nprotocol = \"anthropic\"\nbase_url = \"http://127.0.0.1:9\"\napi_key = \"k\"\n"
        ));
    }
    config
}

/// What is said of each candidate: endpoint, place, and the filter that removed it.
fn verdicts(told: &Value) -> Vec<(&str, Option<u64>, Option<&str>)> {
    let candidates = told["candidates"].as_array().unwrap().iter();
    candidates
        .map(|one| (one["endpoint"].as_str().unwrap(), one["place"].as_u64(), one["removed_by"].as_str()))
        .collect()
}

fn parsed(output: &str) -> Value {
    serde_json::from_str(output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// A command that asks the gateway with a management key.
fn asking(gate: &Tidegate, words: &[&str]) -> Command {
    let mut command = gate.place.prepared(words);
    command.env("TIDEGATE_URL", gate.url()).env("TIDEGATE_MANAGEMENT_KEY", MANAGEMENT_KEY);
    command
}

async fn asked(gate: &Tidegate, words: &[&str]) -> String {
    let output = soon("a command", asking(gate, words).output()).await.unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test]
async fn from_the_configuration_alone_prices_decide_and_a_filter_is_named() {
    let place = Place::new(&priced());
    let mut body = hello(MODEL);
    body["provider"] = json!({"max_price": {"prompt": 8}});
    std::fs::write(place.beside("body.json"), body.to_string()).unwrap();
    let file = place.beside("body.json").to_str().unwrap().to_owned();

    let (out, _) = ran(&place, &["explain", MODEL, "--request", &file, "--json"]).await;
    let told = parsed(&out);
    assert_eq!(verdicts(&told), [("a", Some(1), None), ("b", Some(2), None), ("c", None, Some("max_price"))]);
    for (place, price, probability) in [(0, 1.0, 0.8), (1, 2.0, 0.2), (2, 9.0, 0.0)] {
        let one = &told["candidates"][place];
        assert_eq!((&one["price"], &one["group"]), (&json!(price), &json!("stable")), "{one}");
        // One part to a quarter of it.
        assert!((one["probability"].as_f64().unwrap() - probability).abs() < 1e-9, "{one}");
    }
    assert_eq!((&told["strategy"], &told["health"]), (&json!("direct"), &json!("unknown")));
    assert_eq!((&told["endpoints"], &told["refusal"]), (&json!(3), &Value::Null));

    let (out, _) = ran(&place, &["explain", "--model", MODEL, "--request", &file]).await;
    let row = |name: &str| {
        let row = out.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        row.unwrap_or_else(|| panic!("{name} is not in {out}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("a"), "1 a vendor/m shared 1 stable 80 %");
    assert_eq!(row("b"), "2 b vendor/m shared 2 stable 20 %");
    assert_eq!(row("c"), "- c vendor/m - 9 stable - max_price: it costs more than the request allows");

    // Its own model, from the standard input; and without any request.
    let output = fed(&place, &["explain", "--request", "-", "--json"], &body.to_string()).await;
    assert_eq!(verdicts(&parsed(&text(&output.stdout))).len(), 3);
    let (out, _) = ran(&place, &["explain", "vendor/m:floor", "--json"]).await;
    assert_eq!(verdicts(&parsed(&out)), [("a", Some(1), None), ("b", Some(2), None), ("c", Some(3), None)]);
    assert!(!place.data_dir().exists(), "an explanation leaves nothing behind");
}

#[tokio::test]
async fn what_cannot_be_explained_says_what_to_change() {
    let place = Place::new(&priced());
    std::fs::write(place.beside("list.json"), "[]").unwrap();
    let mut nobody = hello(MODEL);
    nobody["provider"] = json!({"only": ["nobody"]});
    std::fs::write(place.beside("nobody.json"), nobody.to_string()).unwrap();
    let path = |name: &str| place.beside(name).to_str().unwrap().to_owned();
    let (list, nobody, nowhere) = (path("list.json"), path("nobody.json"), path("nowhere.json"));
    let cases: [(&[&str], &str); 10] = [
        (&["explain"], "MODEL_OR_GENERATION"),
        (&["explain", "vendor/n"], "vendor/n is not a valid model ID; did you mean vendor/m?"),
        (&["explain", MODEL, "--request", &list], "must be the body of a message: a JSON object"),
        (&["explain", MODEL, "--request", &nowhere], "nowhere.json"),
        (&["explain", "--request", &nobody], "nobody would serve this (404): No allowed providers for vendor/m"),
        (&["explain", MODEL, "--key", "9f86d081"], "--url"),
        (&["explain", MODEL, "--url", "http://127.0.0.1:1"], "set TIDEGATE_MANAGEMENT_KEY"),
        (&["explain", MODEL, "--url", "http://127.0.0.1:1", "--management-key", "k"], "could not be reached"),
        (&["explain", "gen-1"], "gen-1 is not the id of a generation"),
        (&["explain", "gen-01KBS35CG04TFF59TDWH9EDD1R"], "run `tidegate serve` first"),
    ];
    for (words, expected) in cases {
        let output = place.run(words).await;
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{words:?}: {said}");
    }
    let output = place.run(&["explain", "--request", &nobody]).await;
    assert_eq!(text(&output.stdout).matches("allowed_providers: only, ignore or order leave it out").count(), 3);
}

/// The store alone tells of all turns of a loop, as the gateway does.
#[tokio::test]
async fn a_record_from_the_store_tells_of_all_turns() {
    let asked_for = asks("", &[("tidegate_datetime", json!({}))]);
    let sim = Sim::start(Script::from(asked_for).then(Behaviour::says("It is late."))).await;
    let gate = Tidegate::start().endpoint_with(MODEL, &sim, "pricing = { input = 3, output = 15 }").run().await;
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    let reply = gate.messages(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let id = reply.header("x-generation-id").unwrap().to_owned();
    let told = parsed(&asked(&gate, &["explain", &id, "--json"]).await);
    assert_eq!(
        (&told["finish_reason"], told["provider_responses"].as_array().unwrap().len()),
        (&json!("end_turn"), 2),
        "{told}"
    );
    let stored = parsed(&ran(&gate.place, &["explain", &id, "--json"]).await.0);
    assert_eq!(stored, told);
}

#[tokio::test]
async fn a_running_gateway_knows_who_is_ill_and_tells_management_keys_alone() {
    let (bad, good) = (Sim::start(Behaviour::status(500)).await, Sim::start(Behaviour::says("hello")).await);
    let gate = Tidegate::start().config(ON).endpoint(MODEL, &bad).endpoint(MODEL, &good).run().await;
    let told = parsed(&asked(&gate, &["explain", MODEL, "--json"]).await);
    assert_eq!(verdicts(&told), [("p0", Some(1), None), ("p1", Some(2), None)]);
    assert_eq!(told["health"], "live");
    // Five failures in a row open the breaker; and a provider that accepted none of five calls gets one of six.
    let mut only = hello(MODEL);
    only["provider"] = json!({"only": ["p0"]});
    for _ in 0..5 {
        assert_eq!(gate.messages(only.clone()).await.status, 502);
    }
    let calls = (bad.calls(), good.calls());
    let told = parsed(&asked(&gate, &["explain", MODEL, "--json"]).await);
    assert_eq!(verdicts(&told), [("p1", Some(1), None), ("p0", Some(2), None)], "{told}");
    let groups: Vec<&Value> = told["candidates"].as_array().unwrap().iter().map(|one| &one["group"]).collect();
    assert_eq!(groups, [&json!("stable"), &json!("outage")]);
    let passed: Vec<f64> =
        told["candidates"].as_array().unwrap().iter().map(|one| one["passed_over"].as_f64().unwrap()).collect();
    assert!(passed[0] == 0.0 && (passed[1] - 5.0 / 6.0).abs() < 1e-9, "{passed:?}");
    assert!(asked(&gate, &["explain", MODEL]).await.contains("outage, 83 % go past it"));
    let alone = parsed(&ran(&gate.place, &["explain", MODEL, "--json"]).await.0);
    assert_eq!(verdicts(&alone)[0], ("p0", Some(1), None), "the configuration does not know it");
    assert_eq!((bad.calls(), good.calls()), calls, "nobody is called for an explanation");

    let ask = |key: &str| gate.ask("POST", "/api/v1/explain").key(key).json(json!({"model": MODEL}).to_string());
    assert_eq!(ask(INFERENCE_KEY).send().await.status, 403);
    assert_eq!(ask("unknown").send().await.status, 401);
    for (key, expected) in [(INFERENCE_KEY, "only to management keys"), ("unknown", "does not know the management key")]
    {
        let mut command = asking(&gate, &["explain", MODEL]);
        let output = soon("a command", command.env("TIDEGATE_MANAGEMENT_KEY", key).output()).await.unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(expected) && !said.contains(key), "{said}");
    }
    let mut command = asking(&gate, &["explain", "vendor/n"]);
    let output = soon("a command", command.output()).await.unwrap();
    assert!(text(&output.stderr).contains("vendor/n is not a valid model ID"), "{output:?}");
}

#[tokio::test]
async fn a_body_that_explains_nothing_is_refused_by_place() {
    let gate = Tidegate::start().endpoint(MODEL, &Sim::start(Behaviour::says("x")).await).run().await;
    for (body, path) in [
        (json!({}), "model"),
        (json!({"model": 5}), "model"),
        (json!({"model": MODEL, "request": []}), "request"),
        (json!({"model": MODEL, "key": "ffffffffffff"}), "key"),
        (json!({"model": MODEL, "key": ""}), "key"),
    ] {
        let ask = gate.ask("POST", "/api/v1/explain").key(MANAGEMENT_KEY);
        assert_refused(&ask.json(body.to_string()).send().await, path);
    }
}

#[tokio::test]
async fn for_a_key_what_is_explained_is_what_happens() {
    let sims = [Sim::start(Behaviour::says("p0")).await, Sim::start(Behaviour::says("p1")).await];
    let gate = Tidegate::start().by_chance();
    let gate =
        gate.endpoint_with(MODEL, &sims[0], "shadow_price = 1").endpoint_with(MODEL, &sims[1], "shadow_price = 1");
    let gate = gate.run().await;
    let hash = hash_of(INFERENCE_KEY);
    let mut drawn = [0, 0];
    for number in 0..20 {
        let mut body = hello(MODEL);
        body["messages"] = json!([user(&format!("conversation {number}"))]);
        let ask = gate.ask("POST", "/api/v1/explain").key(MANAGEMENT_KEY);
        let told =
            ask.json(json!({"request": body, "key": hash[..12]}).to_string()).send().await.json()["data"].clone();
        let first = told["candidates"][0]["endpoint"].as_str().unwrap();
        assert_eq!((&told["order"], &told["candidates"][0]["probability"]), (&json!("conversation"), &json!(0.5)));
        assert_eq!(gate.messages(body).await.text(), first, "{told}");
        drawn[usize::from(first == "p1")] += 1;
    }
    assert!(drawn.iter().all(|count| *count > 0), "chance favours nobody: {drawn:?}");

    // A credential of the caller's own comes first, for those who may use it.
    let body = json!({"provider": "p1", "key": "customer-secret"}).to_string();
    let stored = gate.ask("POST", "/api/v1/byok").key(MANAGEMENT_KEY).json(body).send().await;
    assert_eq!(stored.status, 201, "{stored:?}");
    let id = stored.json()["data"]["id"].clone();
    let told = parsed(&asked(&gate, &["explain", MODEL, "--key", INFERENCE_KEY, "--json"]).await);
    let first = &told["candidates"][0];
    assert_eq!((&first["endpoint"], &first["credential"]), (&json!("p1"), &id), "{told}");
    assert_eq!(told["candidates"].as_array().unwrap().len(), 3);
    let told = parsed(&asked(&gate, &["explain", MODEL, "--json"]).await);
    assert!(told["candidates"].as_array().unwrap().iter().all(|one| one["credential"].is_null()), "{told}");
}

on_both! {
    async fn a_past_request_is_told_with_all_its_attempts(database: &Database) {
        let (busy, good) = (Sim::start(Behaviour::status(529)).await, Sim::start(Behaviour::says("hello")).await);
        let priced = "pricing = { input = 3, output = 15 }";
        let gate = Tidegate::start().endpoint_with(MODEL, &busy, priced).endpoint_with("vendor/n", &good, priced);
        let account = Account::start(database, gate).await;
        let mut body = hello(MODEL);
        body["models"] = json!(["vendor/n"]);
        let reply = account.gate.messages(body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let id = reply.header("x-generation-id").unwrap().to_owned();
        let record = account.data("GET", &format!("/generation?id={id}"), None, 200).await;
        let cost = reply.json()["usage"]["cost"].clone();
        assert!(cost.as_f64().unwrap() > 0.0, "{cost}");

        let (from_store, _) = ran(&account.gate.place, &["explain", &id]).await;
        let from_server = asked(&account.gate, &["explain", &id]).await;
        assert_eq!(from_store, from_server);
        let rows: Vec<Vec<&str>> = from_store.lines().map(|line| line.split_whitespace().collect()).collect();
        let attempt = |number: &str| rows.iter().find(|row| row.first() == Some(&number)).unwrap();
        assert_eq!(attempt("1")[1..4], ["P0", "vendor/m", "529"]);
        assert_eq!(attempt("2")[1..4], ["P1", "vendor/n", "200"]);
        for line in ["tried first  vendor/m".to_owned(), format!("cost         ${cost}")] {
            assert!(from_store.lines().any(|found| found == line), "{line} is not in {from_store}");
        }
        assert!(from_store.contains("answered     P1, vendor/n, as another model of the list"), "{from_store}");
        let (json, _) = ran(&account.gate.place, &["explain", &id, "--json"]).await;
        assert_eq!(parsed(&json), record);

        // One that is not there.
        let unknown = "gen-01KBS35CG04TFF59TDWH9EDD1R";
        let (local, asked) = (account.gate.place.prepared(&["explain", unknown]), asking(&account.gate, &["explain", unknown]));
        for mut command in [local, asked] {
            let output = soon("a command", command.output()).await.unwrap();
            let said = text(&output.stderr);
            assert!(!output.status.success() && said.contains(&format!("there is no record of {unknown}")), "{said}");
        }
    }
}

#[tokio::test]
async fn names_that_stand_for_a_choice_are_explained_as_they_are_chosen() {
    let sim = Sim::start(Behaviour::says("x")).await;
    let config = "[routing]\nauto_candidates = [\"a/*\"]\n[routing.coding_percentiles]\n\"b/coder\" = 90\n\
        [fusion.presets.general-high]\nanalysis_models = [\"a/one\", \"b/coder\"]\nmodel = \"b/coder\"\n";
    let gate = Tidegate::start().endpoint("a/one", &sim).endpoint("b/coder", &sim).config(config).run().await;
    let explain = async |gate: &Tidegate, body: Value| {
        gate.ask("POST", "/api/v1/explain").key(MANAGEMENT_KEY).json(body.to_string()).send().await
    };
    let key = hash_of(INFERENCE_KEY)[..12].to_owned();
    for (name, wanted) in [("auto", "a/one"), ("pareto-code", "b/coder"), ("fusion", "b/coder")] {
        let name = format!("tidegate/{name}");
        let told = explain(&gate, json!({"model": name, "key": key})).await.json()["data"].clone();
        assert_eq!(told["candidates"][0]["model"], wanted, "{name}: {told}");
        assert_eq!(told["requested"], json!([name]), "{told}");
        // Which models a key can call decides, so there is no choice without one.
        let refused = explain(&gate, json!({"model": name})).await;
        let (status, told) = (refused.status, refused.json()["error"]["message"].clone());
        let problem = "is chosen among the models that a key can call: name the key";
        assert_eq!((status, told), (400, json!(format!("Invalid request: model {name} {problem}"))));
    }
    assert_eq!(sim.calls(), 0);

    let gate = Tidegate::start().endpoint("a/one", &sim).run().await;
    let unscored = "No model of this deployment has a score for writing programs: the operator sets \
        benchmarks.coding_percentile of models, or routing.coding_percentiles";
    let refused = explain(&gate, json!({"model": "tidegate/pareto-code", "key": key})).await;
    assert_eq!((refused.status, &refused.json()["error"]["message"]), (404, &json!(unscored)));
    let (status, _, _, told) = gate.messages(hello("tidegate/pareto-code")).await.error();
    assert_eq!((status, &*told), (404, unscored));
}
