//! Ways to reach upstreams: credentials that sign or are exchanged, bodies that resellers want otherwise, and what is
//! done when an upstream does not know something.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::{INFERENCE_KEY as KEY, Tidegate, hello, hello_streamed, said, user};

/// A gateway with one provider and the simulator's models behind it as `up/NAME`.
async fn gate(provider: &str, sim: &Sim, path: &str, names: &[&str]) -> Tidegate {
    let mut config = format!("[[providers]]\nslug = \"up\"\nbase_url = \"{}{path}\"\n{provider}\n", sim.base_url());
    for name in names {
        config.push_str(&format!(
            "[[models]]\nid = \"up/{name}\"\ncontext_length = 200000\nmax_output_tokens = 8192\n\
             input_modalities = [\"text\", \"image\", \"file\"]\n[[models.endpoints]]\nprovider = \"up\"\nmodel = \"{name}\"\n\
             pricing = {{ input = 3, output = 15 }}\n"
        ));
    }
    Tidegate::start().config(&config).run().await
}

fn text(body: &Value) -> String {
    body.to_string()
}

/// A key that is made for this test alone.
pub fn private_key() -> String {
    let pair = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("it can be written");
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()))
}

async fn answers(gate: &Tidegate, model: &str) {
    let reply = gate.messages(hello(model)).await;
    assert_eq!((reply.status, reply.text()), (200, "You said: hi".to_owned()), "{reply:?}");
    let events = gate.stream(hello_streamed(model)).await.rest().await;
    assert_eq!(said(&events), "You said: hi", "{events:?}");
}

const AWS: &str = r#"api_key = '{"accessKeyId":"SIMAWSKEY","secretAccessKey":"simawssecret","region":"eu-west-1"}'"#;

/// The simulator computes the signature itself, and refuses any other.
#[tokio::test]
async fn requests_to_bedrock_are_signed() {
    let sim = Sim::start(Behaviour::Echo).await;
    for platform in ["bedrock", "bedrock-invoke"] {
        let model = "arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.sim-v1:0";
        let gate = gate(&format!("platform = \"{platform}\"\n{AWS}"), &sim, "", &["sim", model]).await;
        answers(&gate, "up/sim").await;
        answers(&gate, &format!("up/{model}")).await;
        let sent = sim.requests().pop().expect("it was called");
        let header = sent.header("authorization").expect("signed");
        assert!(header.starts_with("AWS4-HMAC-SHA256 Credential=SIMAWSKEY/"), "{header}");
        assert!(header.contains("/eu-west-1/bedrock/aws4_request"), "{header}");
    }
    let wrong = AWS.replace("simawssecret", "another");
    let gate = gate(&format!("platform = \"bedrock\"\n{wrong}"), &sim, "", &["sim"]).await;
    assert_eq!(gate.messages(hello("up/sim")).await.status, 502);
}

#[tokio::test]
async fn p75_p76_bedrock_gets_version_and_known_betas_in_the_body() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate(&format!("platform = \"bedrock-invoke\"\n{AWS}"), &sim, "", &["sim"]).await;
    let mut ask = gate.ask("POST", "/api/v1/messages").key(KEY);
    ask = ask.header("anthropic-beta", "context-1m-2025-08-07,files-api-2025-04-14");
    let reply = ask.json(text(
        &json!({"model": "up/sim", "max_tokens": 9, "stream": false, "messages": [user("hi")], "future": 1.0}),
    ));
    let reply = reply.send().await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:files-api-2025-04-14")));
    let sent = sim.requests().pop().expect("it was called");
    let body = sent.json();
    assert_eq!(body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(body["anthropic_beta"], json!(["context-1m-2025-08-07"]));
    assert!(body.get("model").is_none() && body.get("stream").is_none(), "{body}");
    assert!(sent.header("anthropic-beta").is_none() && sent.header("anthropic-version").is_none());
    assert!(String::from_utf8_lossy(&sent.body).contains("\"future\":1.0"), "unknown members stay as they are");
}

/// What is to be counted there is a whole call, in base64: with a limit, and without what its address says.
#[tokio::test]
async fn bedrock_counts_a_call_that_could_be_made() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate(&format!("platform = \"bedrock-invoke\"\n{AWS}"), &sim, "", &["sim"]).await;
    let body = json!({"model": "up/sim", "stream": true, "messages": [user("hi")], "temperature": 1});
    for (limit, expected) in [(None, 8192), (Some(70), 70)] {
        let mut body = body.clone();
        body["max_tokens"] = json!(limit);
        let reply = gate.ask("POST", "/v1/messages/count_tokens").key(KEY).json(text(&body)).send().await;
        assert_eq!((reply.status, reply.header("x-tidegate-count")), (200, None), "the upstream counted");
        let sent = sim.requests().pop().expect("it was called").json();
        let call = sent["input"]["invokeModel"]["body"].as_str().expect("a call");
        let call: Value = serde_json::from_slice(&STANDARD.decode(call).expect("base64")).expect("JSON");
        let counted =
            json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": expected, "messages": [user("hi")]});
        assert_eq!(call, counted);
    }
}

/// What Google answers for a key that was deleted or revoked.
#[tokio::test]
async fn a_service_account_that_is_given_no_token_is_refused_by_its_provider() {
    let (sim, door) = (Sim::start(Behaviour::Echo).await, Sim::start(Script::status(400)).await);
    // The simulator gives everybody a token; any other of its doors refuses as it is told.
    let account = json!({
        "type": "service_account", "project_id": "p", "private_key_id": "k1", "client_email": "a@p.example",
        "private_key": private_key(), "token_uri": format!("{}/v1/messages", door.base_url()),
    });
    let provider = format!("platform = \"vertex\"\napi_key = '''{account}'''");
    let gate = gate(&provider, &sim, "/v1/projects/p/locations/global/publishers/google", &["sim"]).await;
    let reply = gate.messages(hello("up/sim")).await;
    assert_eq!((reply.status, door.calls(), sim.calls()), (502, 1, 0), "{reply:?}");
    gate.logs("a provider refuses the key of this gateway").await;
    assert!(gate.stderr().contains("status=400") || gate.stderr().contains("\"status\":400"), "{}", gate.stderr());
}

/// A service account is exchanged for a token once, and the token is used for both kinds of models.
#[tokio::test]
async fn vertex_is_reached_with_a_service_account() {
    let sim = Sim::start(Behaviour::Echo).await;
    let account = json!({
        "type": "service_account", "project_id": "p", "private_key_id": "k1", "client_email": "a@p.example",
        "private_key": private_key(), "token_uri": format!("{}/token", sim.base_url()),
    });
    let key = format!("api_key = '''{account}'''");
    for (platform, publisher) in [("vertex", "google"), ("vertex-anthropic", "anthropic")] {
        let path = format!("/v1/projects/p/locations/global/publishers/{publisher}");
        let gate = gate(&format!("platform = \"{platform}\"\n{key}"), &sim, &path, &["sim"]).await;
        answers(&gate, "up/sim").await;
        let asked = sim.requests();
        let sent = asked.last().expect("it was called");
        assert!(sent.header("authorization").expect("a token").starts_with("Bearer ya29."), "{platform}");
    }
}

/// A member that the upstream refuses is left out, once asked again, and from then on from the start.
#[tokio::test]
async fn what_an_upstream_does_not_know_is_left_out_and_remembered() {
    for (provider, path, member, body) in [
        (
            "protocol = \"anthropic\"\nbetas = false\napi_key = \"k\"",
            "",
            "future_member",
            json!({"future_member": {"a": 1}}),
        ),
        ("protocol = \"openai-chat\"\napi_key = \"k\"", "/v1", "temperature", json!({"temperature": 0.5})),
        ("protocol = \"openai-responses\"\napi_key = \"k\"", "/v1", "temperature", json!({"temperature": 0.5})),
        ("protocol = \"cohere\"\napi_key = \"k\"", "", "temperature", json!({"temperature": 0.5})),
    ] {
        let sim = Sim::start(Behaviour::Echo).await;
        let model = format!("sim-refuse-member-{member}");
        let gate = gate(provider, &sim, path, &[&model]).await;
        for round in 0..2 {
            let mut request = hello(&format!("up/{model}"));
            for (name, value) in body.as_object().expect("an object") {
                request[name] = value.clone();
            }
            let reply = gate.messages(request).await;
            assert_eq!(reply.status, 200, "{provider} {reply:?}");
            let warnings = reply.header("x-tidegate-warnings").unwrap_or_default();
            assert!(warnings.contains(&format!("dropped:{member}")), "{provider}: {warnings}");
            let expected = if round == 0 { 2 } else { 3 };
            assert_eq!(sim.requests().len(), expected, "{provider}: the second time it is not even tried");
        }
        let metrics = gate.managed("/metrics").await;
        let metrics = metrics.body_text();
        assert!(metrics.contains(&format!("name=\"{member}\"")), "{metrics}");
        // It is known after a restart, and people can see it.
        let (_, place) = gate.stop().await;
        let shown = place.run(&["check", "--offline"]).await;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains(&format!("up does not take the member {member} for {model}")), "{shown}");
        let gate = place.serve().await;
        let mut request = hello(&format!("up/{model}"));
        for (name, value) in body.as_object().expect("an object") {
            request[name] = value.clone();
        }
        assert_eq!((gate.messages(request).await.status, sim.requests().len()), (200, 4), "{provider}");
    }
}

/// Stop sequences that the upstream does not take are looked for here.
#[tokio::test]
async fn p56_refused_stop_sequences_still_stop() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate("protocol = \"openai-chat\"\napi_key = \"k\"", &sim, "/v1", &["sim-refuse-member-stop"]).await;
    for _ in 0..2 {
        let mut request = hello("up/sim-refuse-member-stop");
        request["stop_sequences"] = json!(["said"]);
        let reply = gate.messages(request).await;
        let stop = (reply.json()["stop_reason"].clone(), reply.json()["stop_sequence"].clone());
        assert_eq!((reply.text(), stop), ("You ".to_owned(), (json!("stop_sequence"), json!("said"))), "{reply:?}");
    }
}

#[tokio::test]
async fn a_beta_that_is_refused_is_left_out() {
    let sim = Sim::start(Behaviour::Echo).await;
    let model = "sim-refuse-beta-new-2027-01-01";
    let gate = gate("protocol = \"anthropic\"\napi_key = \"k\"", &sim, "", &[model]).await;
    let ask =
        gate.ask("POST", "/api/v1/messages").key(KEY).header("anthropic-beta", "new-2027-01-01,context-1m-2025-08-07");
    let reply = ask.json(text(&hello(&format!("up/{model}")))).send().await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:new-2027-01-01")));
    assert_eq!(sim.requests().pop().expect("called").header("anthropic-beta"), Some("context-1m-2025-08-07"));
}

/// Reasoning that the upstream no longer takes for its own is left out of one more try.
#[tokio::test]
async fn p57_signatures_that_are_refused_are_left_out() {
    let thinks = json!({"type": "thinking", "thinking": "hm", "signature": "EqQBCgIYAhIM"});
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate("protocol = \"anthropic\"\napi_key = \"k\"", &sim, "", &["sim-refuse-signature"]).await;
    let messages =
        json!([user("a"), {"role": "assistant", "content": [thinks, {"type": "text", "text": "b"}]}, user("c")]);
    let reply =
        gate.messages(json!({"model": "up/sim-refuse-signature", "max_tokens": 99, "messages": messages})).await;
    assert_eq!((reply.status, sim.requests().len()), (200, 2), "{reply:?}");
}

#[tokio::test]
async fn p77_tokens_are_counted_by_the_upstream_that_would_answer() {
    for (provider, path, counted) in [
        ("protocol = \"openai-responses\"\napi_key = \"k\"", "/v1", true),
        ("protocol = \"gemini\"\napi_key = \"k\"", "/v1beta", true),
        ("platform = \"bedrock\"\napi_key = \"k\"", "", true),
        ("protocol = \"openai-chat\"\napi_key = \"k\"", "/v1", false),
        ("protocol = \"cohere\"\napi_key = \"k\"", "", false),
    ] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate(provider, &sim, path, &["sim"]).await;
        let ask = gate.ask("POST", "/api/v1/messages/count_tokens").key(KEY);
        let body = json!({"model": "up/sim", "system": "s", "messages": [user("hi")]});
        let reply = ask.json(text(&body)).send().await;
        assert_eq!(reply.status, 200, "{provider} {reply:?}");
        assert!(reply.json()["input_tokens"].as_u64().expect("a number") > 0);
        let estimated = reply.header("x-tidegate-count");
        assert_eq!(estimated, if counted { None } else { Some("estimated") }, "{provider}");
        assert_eq!(sim.requests().len(), usize::from(counted), "{provider}");
    }
}

/// The form in which Azure's portal and other gateways name a deployment: all of the address that is called.
#[tokio::test]
async fn a_deployment_at_azure_is_called_at_exactly_its_address() {
    const PATH: &str = "/openai/deployments/sim/chat/completions?api-version=2024-10-21";
    let sim = Sim::start(Behaviour::Echo).await;
    let list = json!([{
        "api_key": "own-key", "model_slug": "openai/own", "endpoint_url": format!("{}{PATH}", sim.base_url()),
        "model_id": "sim",
    }]);
    let config = format!(
        "[[providers]]\nslug = \"azure\"\nresource = \"my\"\napi_key = '{list}'\n\
         [[models]]\nid = \"openai/own\"\ncontext_length = 1000\nmax_output_tokens = 100\n\
         [[models.endpoints]]\nprovider = \"azure\"\nmodel = \"gpt\"\n"
    );
    let gate = Tidegate::start().config(&config).run().await;
    answers(&gate, "openai/own").await;
    let seen = sim.requests();
    assert_eq!(seen.len(), 2, "a whole answer and a stream");
    for call in seen {
        assert_eq!((&*call.path, call.header("api-key")), (PATH, Some("own-key")));
        assert_eq!(call.json()["model"], "sim");
    }
}

#[tokio::test]
async fn p80_a_prompt_that_would_be_cut_silently_is_refused() {
    let sim = Sim::start(Behaviour::Echo).await;
    let config = format!(
        "[[providers]]\nslug = \"ollama\"\nprotocol = \"openai-chat\"\nbase_url = \"{}/v1\"\n\
         [[models]]\nid = \"local/small\"\ncontext_length = 1000\nmax_output_tokens = 100\n\
         [[models.endpoints]]\nprovider = \"ollama\"\nmodel = \"sim\"\n",
        sim.base_url()
    );
    let gate = Tidegate::start().config(&config).run().await;
    let ask =
        |words: usize| json!({"model": "local/small", "max_tokens": 9, "messages": [user(&"word ".repeat(words))]});
    assert_eq!(gate.messages(ask(100)).await.status, 200);
    let reply = gate.messages(ask(2_000)).await;
    let error: Value = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["error_type"]), (400, &json!("context_length_exceeded")), "{reply:?}");
    assert!(error["message"].as_str().expect("words").starts_with("prompt is too long: "), "{error}");
    assert_eq!(sim.requests().len(), 1);
}
