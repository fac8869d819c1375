//! Pictures in the hands of a model: made by another one, kept as files, shown by addresses that need no key.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, PNG, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, kinds, message, told};
use crate::harness::{Account, Ask, INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate, eventually, hello, on_both};

const ART: &str = "art/m";
/// Dollars for a picture.
const PIECE: f64 = 0.04;
const DAY: i64 = 24 * 60 * 60;

fn start(sim: &Sim, art: &Sim, (protocol, path): (&str, &str)) -> crate::harness::Builder {
    let start = Tidegate::start().makes_images(ART);
    let start =
        start.protocol_at(MODEL, protocol, &format!("{}{path}", sim.base_url()), "pricing = { input = 1, output = 2 }");
    let price = "pricing = { input = 0, output = 0, image_out = 0.04 }";
    start.protocol_at(ART, "openai-chat", &format!("{}/v1", art.base_url()), price)
}

fn body(stream: bool, parameters: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:image_generation", "parameters": parameters}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(8000);
    body
}

fn draws(prompt: &str) -> Script {
    Script::from(asks("Let me draw.", &[("tidegate_image_generation", json!({"prompt": prompt}))]))
        .then(Behaviour::says("There it is."))
}

/// The last result that the model got to read, in whatever protocol.
fn heard(sim: &Sim) -> Value {
    let sent = bodies(sim).pop().unwrap();
    let unescaped = sent.replace("\\\"", "\"").replace("\\\\", "\\");
    let start = unescaped.rfind("{\"status\"").unwrap();
    let mut values = serde_json::Deserializer::from_str(&unescaped[start..]).into_iter::<Value>();
    values.next().unwrap().unwrap_or_else(|error| panic!("{error}: {sent}"))
}

/// What an address serves, without a key.
async fn served(gate: &Tidegate, address: &str) -> Reply {
    let path = &address[address.find("/api/v1/").unwrap()..];
    Ask::new(gate.address, "GET", path).send().await
}

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

#[tokio::test]
async fn a_picture_is_made_kept_shown_and_paid_on_every_protocol() {
    for protocol in PROTOCOLS {
        let (sim, art) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
        let gate = start(&sim, &art, protocol).run().await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(draws("a boat"));
            let before = spent(&gate).await;
            let first = body(stream, json!({"model": ART, "size": "1024x1024", "quality": "low", "x_new": 1}));
            let reply = asked(&gate, &first).await;
            let answer = message(&reply);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"], "{case}: {answer}");
            let call = answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "server_tool_use");
            let call = call.unwrap();
            assert_eq!(
                (&call["name"], &call["input"]),
                (&json!("tidegate:image_generation"), &json!({"prompt": "a boat"})),
                "{case}"
            );
            assert_eq!((&told(&answer)["calls"], &told(&answer)["errors"]), (&json!(1), &json!(0)), "{case}");
            let drawn: Value = serde_json::from_str(&bodies(&art).pop().unwrap()).unwrap();
            let wanted = json!({"model": "m", "prompt": "a boat", "response_format": "b64_json", "size": "1024x1024",
                "quality": "low", "x_new": 1});
            assert_eq!(drawn, wanted, "{case}: options go as they came");

            let result = heard(&sim);
            assert_eq!(result["status"], "ok", "{case}: {result}");
            let address = result["imageUrl"].as_str().unwrap();
            assert!(address.starts_with(&format!("{}/api/v1/files/file_", gate.url())), "{case}: {address}");
            let picture = served(&gate, address).await;
            assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/png")), "{case}");
            assert_eq!(picture.body, PNG, "{case}");
            let files = gate.ask("GET", "/v1/files?order=desc&limit=1").key(INFERENCE_KEY).send().await.json();
            assert_eq!(
                (&files["data"][0]["mime_type"], &files["data"][0]["size_bytes"]),
                (&json!("image/png"), &json!(PNG.len())),
                "{case}"
            );

            // The turns and the picture, in the answer, for the key and on record.
            let cost = answer["usage"]["cost"].as_f64().unwrap();
            let turns: f64 = answer["usage"]["iterations"]
                .as_array()
                .unwrap()
                .iter()
                .map(|turn| {
                    (turn["input_tokens"].as_f64().unwrap() + 2.0 * turn["output_tokens"].as_f64().unwrap()) / 1e6
                })
                .sum();
            assert!((cost - turns - PIECE).abs() < 1e-9, "{case}: {}", answer["usage"]);
            assert!((spent(&gate).await - before - cost).abs() < 1e-9, "{case}");
            let id = reply.header("x-generation-id").unwrap();
            let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
            assert!((record["data"]["total_cost"].as_f64().unwrap() - cost).abs() < 1e-9, "{case}: {record}");
            assert_eq!(
                (&record["data"]["num_media_completion"], &record["data"]["api_type"]),
                (&json!(1), &json!("completions")),
                "{case}"
            );

            // The call comes back without its result, which is remembered.
            sim.set(Behaviour::says("A boat."));
            let mut next = first.clone();
            let turn = json!({"role": "assistant", "content": answer["content"]});
            next["messages"] = json!([first["messages"][0], turn, {"role": "user", "content": "What is it?"}]);
            message(&asked(&gate, &next).await);
            assert_eq!(heard(&sim), result, "{case}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_what_fails_is_a_result() {
    let (sim, art) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
    let gate = start(&sim, &art, PROTOCOLS[0]).run().await;
    let not_one = "is not a model that makes images; GET /images/models lists those that do";
    for (parameters, problem) in [
        (json!({"model": "nobody/nix"}), format!("tools[0].parameters.model 'nobody/nix' {not_one}")),
        (json!({"model": MODEL}), format!("tools[0].parameters.model '{MODEL}' {not_one}")),
        (
            json!({"model": ART, "output_compression": 200}),
            "tools[0].parameters.output_compression must be at most 100".to_owned(),
        ),
    ] {
        let reply = asked(&gate, &body(false, parameters)).await;
        assert_eq!((reply.status, reply.error().3), (400, format!("Invalid request: {problem}")));
    }
    assert_eq!(sim.calls() + art.calls(), 0, "nobody was called");
    let long = "x".repeat(8_001);
    for (behaviour, prompt, told, calls) in [
        (Behaviour::status(500), "a boat", "Provider returned error", 1),
        (Behaviour::Echo, "", "prompt must be 1 to 8000 characters", 0),
        (Behaviour::Echo, &long, "prompt must be 1 to 8000 characters", 0),
    ] {
        art.set(behaviour);
        sim.set(draws(prompt));
        let (before, drawn) = (spent(&gate).await, art.calls());
        let answer = message(&asked(&gate, &body(false, json!({"model": ART}))).await);
        assert_eq!(heard(&sim), json!({"status": "error", "error": told}));
        assert_eq!((art.calls() - drawn, &answer["stop_reason"]), (calls, &json!("end_turn")));
        let cost = answer["usage"]["cost"].as_f64().unwrap();
        assert!(cost < PIECE && (spent(&gate).await - before - cost).abs() < 1e-9, "only the turns are paid");
    }
    let (_, place) = gate.stop().await;
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&format!("{config}\n[tools]\ndisabled = [\"image_generation\"]\n"));
    let gate = place.serve().await;
    let reply = asked(&gate, &body(false, json!({"model": ART}))).await;
    assert_eq!(reply.error().3, "tidegate:image_generation is not configured on this deployment");
}

#[tokio::test]
async fn the_operator_says_who_draws_for_those_who_name_nobody() {
    let (sim, art) = (Sim::start(draws("a boat")).await, Sim::start(Behaviour::Echo).await);
    let config = format!("[tools.image_generation]\ndefault_model = \"{ART}\"\n");
    let gate = start(&sim, &art, PROTOCOLS[1]).config(&config).run().await;
    message(&asked(&gate, &body(false, json!({}))).await);
    assert_eq!((heard(&sim)["status"].as_str(), art.calls()), (Some("ok"), 1));
}

#[tokio::test]
async fn an_image_that_nobody_can_pay_for_is_not_made() {
    let (sim, art) = (Sim::start(draws("a boat")).await, Sim::start(Behaviour::Echo).await);
    let gate = start(&sim, &art, PROTOCOLS[0]).run().await;
    // Enough for the turns, not for a picture.
    let made =
        gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY).json(r#"{"name":"poor","limit":0.03}"#).send().await;
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let body = body(false, json!({"model": ART})).to_string();
    let reply = gate.ask("POST", "/v1/messages").key(&key).json(body).send().await;
    assert_eq!((reply.status, art.calls()), (200, 0), "{}", reply.body_text());
    let told = heard(&sim);
    let words = told["error"].as_str().unwrap();
    assert_eq!(told["status"], "error");
    assert!(words.starts_with("API key spend limit reached: this call may cost $0.04, and $0.02"), "{words}");
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_drawing() {
    let (sim, art) = (Sim::start(draws("a boat")).await, Sim::start(Behaviour::HangBeforeHeaders).await);
    let start = Tidegate::start().makes_images(ART).endpoint(MODEL, &sim);
    let price = "pricing = { input = 0, output = 0, image_out = 0.04 }";
    let cancels = "openai-chat\"\nsupports_cancel = true\n#";
    let gate = start.protocol_at(ART, cancels, &format!("{}/v1", art.base_url()), price).run().await;
    let stream = gate.stream(body(true, json!({"model": ART}))).await;
    art.wait_calls(1).await;
    drop(stream);
    art.wait_open(0).await;
    assert_eq!(art.cancelled(), 1);
    let settled = async || gate.managed("/metrics").await.body_text().contains("outcome=\"cancelled\"");
    eventually("it is on record as cancelled", std::time::Duration::from_secs(10), settled).await;
    assert_eq!(sim.calls(), 1, "no further turn is made");
}

on_both! {
    async fn a_signed_address_holds_for_a_day_on_every_gateway_and_for_nothing_else(database: &Database) {
        let (sim, art) = (Sim::start(draws("a boat")).await, Sim::start(Behaviour::Echo).await);
        let builder = start(&sim, &art, PROTOCOLS[0]).config("[limits]\nmanagement_rpm = 60000\n").config(&database.config());
        let mut place = builder.place();
        let clock = place.beside("clock");
        place.environment("TIDEGATE_CLOCK_FILE", Some(clock.to_str().unwrap()));
        let shift = |seconds: i64| std::fs::write(&clock, (seconds * 1_000).to_string()).unwrap();
        shift(0);
        let account = Account::start_at(database, place).await;
        let gate = &account.gate;
        message(&asked(gate, &body(false, json!({"model": ART}))).await);
        let address = heard(&sim)["imageUrl"].as_str().unwrap().to_owned();
        assert_eq!(served(gate, &address).await.body, PNG);
        let said = async |address: &str| {
            let reply = served(gate, address).await;
            (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
        };

        let forged = (404, "This link is not valid: use it exactly as it was given".to_owned());
        let (path, query) = address.split_once('?').unwrap();
        let (expires, signature) = query.split_once("&signature=").unwrap();
        let until: i64 = expires.strip_prefix("expires=").unwrap().parse().unwrap();
        let other = if signature.starts_with('A') { "B" } else { "A" };
        let file = path.split('/').nth_back(1).unwrap();
        let foreign = path.replace(file, "file_00000000000000000000000000");
        for broken in [
            path.to_owned(),
            format!("{path}?{expires}"),
            format!("{path}?{expires}&signature="),
            format!("{path}?{expires}&signature={other}{}", &signature[1..]),
            format!("{path}?expires={}&signature={signature}", until + 1),
            format!("{path}?expires=x&signature={signature}"),
            format!("{foreign}?{query}"),
        ] {
            assert_eq!(said(&broken).await, forged, "{broken}");
        }
        // To the second: a day after it was made.
        shift(DAY - 60);
        assert_eq!(served(gate, &address).await.status, 200);
        shift(DAY + 1);
        assert_eq!(said(&address).await, (404, "This link has expired: whoever made the file can read it with a key".to_owned()));
        shift(0);

        // Another gateway on the same database, with the same keys, which never saw it made.
        if database.url().starts_with("postgres") {
            let second = builder.place();
            std::fs::create_dir_all(second.data_dir()).unwrap();
            std::fs::copy(gate.place.data_dir().join("master.key"), second.data_dir().join("master.key")).unwrap();
            let second = second.serve().await;
            assert_eq!(served(&second, &address).await.body, PNG);
        }
        let deleted = gate.ask("DELETE", &format!("/v1/files/{file}")).key(INFERENCE_KEY).send().await;
        assert_eq!(deleted.status, 200);
        assert_eq!(said(&address).await, (404, "This file is not there any more".to_owned()));
    }
}
