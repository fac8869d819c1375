//! Speech and transcripts: asked for, paid, put on record and refused as messages are, at every kind of upstream.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Reply, Tidegate};

const SPEAKER: &str = "house/speaker";
const LISTENER: &str = "house/listener";
/// Dollars for a million tokens of text and of sound: 14 words and 70 characters would be 0.0014 and 0.014.
const BY_TOKEN: &str = "pricing = { input = 100, output = 0, output_audio = 200 }";
/// Fifteen dollars for a million characters.
const BY_CHARACTER: &str = "pricing = { input = 0, output = 0, character = 15 }";
/// 36 cents an hour are a hundredth of a cent a second.
const BY_HOUR: &str = "pricing = { input = 0, output = 0, audio_hour = 0.36 }";
/// Dollars for a million tokens of sound and of text.
const BY_HEARD: &str = "pricing = { input = 0, input_audio = 600, output = 1000 }";

fn at(sim: &Sim, protocol: &str) -> String {
    format!("{}{}", sim.base_url(), if protocol == "gemini" { "/v1beta" } else { "/v1" })
}

async fn speaker(sims: &[(&Sim, &str, &str)], config: &str) -> Tidegate {
    let mut start = Tidegate::start().gives(SPEAKER, "speech").config(config);
    for (sim, protocol, priced) in sims {
        start = start.protocol_at(SPEAKER, protocol, &at(sim, protocol), priced);
    }
    start.run().await
}

async fn listener(sim: &Sim, priced: &str) -> Tidegate {
    let start = Tidegate::start().gives(LISTENER, "transcription");
    start.protocol_at(LISTENER, "openai-chat", &at(sim, "openai-chat"), priced).run().await
}

async fn post(gate: &Tidegate, path: &str, key: &str, body: &Value) -> Reply {
    gate.ask("POST", path).key(key).json(body.to_string()).send().await
}

async fn spoken(gate: &Tidegate, more: Value) -> Reply {
    let mut body = json!({"model": SPEAKER, "input": "a small bo\u{e4}t", "voice": "nova"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(gate, "/api/v1/audio/speech", INFERENCE_KEY, &body).await
}

async fn heard(gate: &Tidegate, bytes: usize, more: Value) -> Reply {
    let data = STANDARD.encode(vec![7; bytes]);
    let mut body = json!({"model": LISTENER, "input_audio": {"data": data, "format": "mp3"}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(gate, "/api/v1/audio/transcriptions", INFERENCE_KEY, &body).await
}

fn sent(sim: &Sim) -> Value {
    serde_json::from_slice(&sim.requests().last().unwrap().body).unwrap()
}

fn form(sim: &Sim) -> String {
    String::from_utf8_lossy(&sim.requests().last().unwrap().body).into_owned()
}

fn message(reply: &Reply) -> (u16, String) {
    (reply.status, reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

fn near(one: &Value, other: f64) -> bool {
    (one.as_f64().unwrap() - other).abs() < 1e-9
}

async fn record(gate: &Tidegate, reply: &Reply) -> Value {
    let id = reply.header("x-generation-id").unwrap();
    gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json()["data"].clone()
}

/// What the simulator says for the usual text: a sample of two bytes for each of its 12 characters.
fn sound() -> Vec<u8> {
    "a small bo\u{e4}t".chars().flat_map(|character| (character as u16).to_le_bytes()).collect()
}

#[tokio::test]
async fn a_text_is_spoken_paid_for_and_put_on_record() {
    // Three words and twelve characters.
    let by_token = 3.0 * 1e-4 + 12.0 * 2e-4;
    for (protocol, path, priced, cost) in [
        ("openai-chat", "/v1/audio/speech", BY_TOKEN, by_token),
        ("openai-responses", "/v1/audio/speech", BY_CHARACTER, 12.0 * 15e-6),
        ("gemini", "/v1beta/models/m:generateContent", BY_TOKEN, by_token),
    ] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = speaker(&[(&sim, protocol, priced)], "").await;
        let reply = spoken(&gate, json!({})).await;
        assert_eq!(reply.status, 200, "{protocol}: {}", reply.body_text());
        assert_eq!((reply.header("content-type"), &reply.body[..]), (Some("audio/pcm"), &sound()[..]), "{protocol}");
        assert_eq!(sim.requests().last().unwrap().path, path);
        let record = record(&gate, &reply).await;
        assert_eq!((&record["model"], &record["api_type"]), (&json!(SPEAKER), &json!("tts")), "{record}");
        assert!(near(&record["total_cost"], cost), "{protocol}: {record}");
        let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
        assert!(near(&key["data"]["usage"], cost), "{key}");
    }
}

#[tokio::test]
async fn who_counts_tokens_is_asked_to_and_who_cannot_is_estimated() {
    let sim = Sim::start(Behaviour::RefuseMember("stream_format".to_owned())).await;
    let gate = speaker(&[(&sim, "openai-chat", BY_TOKEN)], "").await;
    // Thirteen bytes are four tokens, and each of twelve characters is one and a half of sound.
    let cost = 4.0 * 1e-4 + 18.0 * 2e-4;
    for calls in [2, 3] {
        let reply = spoken(&gate, json!({})).await;
        assert_eq!((reply.status, &reply.body[..], sim.calls()), (200, &sound()[..], calls));
        let record = record(&gate, &reply).await;
        assert!(near(&record["total_cost"], cost), "{record}");
    }
    let plain = Sim::start(Behaviour::Echo).await;
    let gate = speaker(&[(&plain, "openai-chat", BY_CHARACTER)], "").await;
    spoken(&gate, json!({"response_format": "mp3", "speed": 1.5, "provider": {"options": {"p0": {"voice": "own", "model": "x"}}}}))
        .await;
    let expected =
        json!({"model": "m", "input": "a small bo\u{e4}t", "voice": "own", "response_format": "mp3", "speed": 1.5});
    assert_eq!(sent(&plain), expected, "where characters are paid for nothing else is asked");
}

#[tokio::test]
async fn speech_goes_elsewhere_where_one_fails_or_has_not_the_format() {
    let (first, second) = (Sim::start(Script::status(503)).await, Sim::start(Behaviour::Echo).await);
    let sims = [(&first, "openai-chat", BY_CHARACTER), (&second, "openai-chat", BY_CHARACTER)];
    let gate = speaker(&sims, "").await;
    let reply = spoken(&gate, json!({"response_format": "mp3"})).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("audio/mpeg")), "{}", reply.body_text());
    let google = Sim::start(Behaviour::Echo).await;
    let gate = speaker(&[(&google, "gemini", BY_TOKEN)], "").await;
    let reply = spoken(&gate, json!({"response_format": "mp3"})).await;
    let text = "response_format must be pcm or wav: this provider gives samples only";
    assert!(reply.status == 400 && reply.body_text().contains(text), "{}", reply.body_text());
    let reply = spoken(&gate, json!({"response_format": "wav"})).await;
    assert_eq!((reply.header("content-type"), &reply.body[..4]), (Some("audio/wav"), &b"RIFF"[..]));
    assert_eq!(reply.body[44..], sound());
}

#[tokio::test]
async fn what_is_said_is_written_down_paid_for_and_put_on_record() {
    // 2 500 bytes are two seconds and a half, or 25 tokens; what is said of them is five words.
    for (priced, asked, cost) in [(BY_HOUR, "verbose_json", 2.5 * 1e-4), (BY_HEARD, "json", 25.0 * 6e-4 + 5.0 * 1e-3)] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = listener(&sim, priced).await;
        let more =
            json!({"language": "de", "timestamp_granularities": ["word"], "session_id": "tide", "trace": {"a": 1}});
        let reply = heard(&gate, 2_500, more).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let answer = reply.json();
        assert_eq!(answer["text"], "The recording has 2500 bytes.");
        assert_eq!(answer.get("segments"), None, "nobody asked for more than the text");
        assert!(near(&answer["usage"]["cost"], cost), "{answer}");
        let counted = match asked {
            "json" => json!({"type": "tokens", "input_tokens": 25, "output_tokens": 5, "total_tokens": 30}),
            _ => json!({"type": "duration", "seconds": 2.5}),
        };
        for (name, count) in counted.as_object().unwrap() {
            assert_eq!(&answer["usage"][name], count, "{answer}");
        }
        let form = form(&sim);
        for part in [
            "name=\"model\"\r\n\r\nm\r\n".to_owned(),
            format!("name=\"response_format\"\r\n\r\n{asked}\r\n"),
            "name=\"language\"\r\n\r\nde\r\n".to_owned(),
            "name=\"timestamp_granularities[]\"\r\n\r\nword\r\n".to_owned(),
            "name=\"file\"; filename=\"audio.mp3\"\r\nContent-Type: audio/mpeg\r\n\r\n".to_owned(),
        ] {
            assert!(form.contains(&part), "{part}: {form}");
        }
        let record = record(&gate, &reply).await;
        assert_eq!((&record["api_type"], &record["model"]), (&json!("stt"), &json!(LISTENER)), "{record}");
        assert_eq!(record["session_id"], "tide", "{record}");
        assert!(!form.contains("tide"), "what is said to the gateway stays there: {form}");
        assert!(near(&record["total_cost"], cost), "{record}");
    }
}

#[tokio::test]
async fn a_form_is_taken_as_openais_clients_send_it() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = listener(&sim, BY_HOUR).await;
    let part =
        |name: &str, value: &str| format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"talk.ogg\"\r\nContent-Type: audio/ogg\r\n\r\nabcd\r\n";
    let ask = |parts: String| {
        let ask = gate.ask("POST", "/api/v1/audio/transcriptions").key(INFERENCE_KEY);
        ask.header("content-type", "multipart/form-data; boundary=x").body(format!("{parts}--x--\r\n")).send()
    };
    let model = part("model", LISTENER);
    let reply = ask(format!("{model}{}{file}", part("response_format", "verbose_json"))).await;
    let answer = reply.json();
    assert_eq!(
        (reply.status, &answer["duration"], &answer["language"]),
        (200, &json!(0.004), &json!("english")),
        "{answer}"
    );
    assert_eq!(answer["segments"][0]["text"], "The recording has 4 bytes.");
    assert!(form(&sim).contains("filename=\"talk.ogg\"\r\nContent-Type: audio/ogg\r\n\r\nabcd\r\n"), "{}", form(&sim));
    let calls = sim.calls();
    let bare = gate.ask("POST", "/api/v1/audio/transcriptions").key(INFERENCE_KEY);
    let reply = bare.header("content-type", "multipart/form-data").body("x").send().await;
    let text = "Invalid request: Content-Type must be multipart/form-data with a boundary, or application/json";
    assert_eq!(message(&reply), (400, text.to_owned()));
    for (parts, text) in [
        (model.clone(), "file is required"),
        (file.to_owned(), "model is required"),
        (format!("{model}{file}{file}"), "file stands twice"),
        (
            format!("{model}{file}{}", part("response_format", "srt")),
            "response_format must be one of json, verbose_json, text",
        ),
        (format!("{model}{file}{}", part("stream", "true")), "stream must be false"),
        (format!("{model}{file}{}", part("provider", "p0")), "provider must be JSON"),
    ] {
        let (status, said) = message(&ask(parts).await);
        assert!(status == 400 && said.contains(text), "{text}: {status} {said}");
    }
    assert_eq!(sim.calls(), calls);
}

#[tokio::test]
async fn who_has_no_long_answer_is_asked_for_the_short_one() {
    // OpenAI's own words.
    let refusal = json!({"error": {"type": "invalid_request_error", "param": "response_format", "code": "unsupported_value",
        "message": "response_format 'verbose_json' is not compatible with model 'gpt-4o-transcribe'. Use 'json' or 'text' instead."}});
    let raw = |status: u16, body: &Value| Behaviour::Raw {
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into(),
    };
    let script = Script::from(raw(400, &refusal)).then(raw(200, &json!({"text": "Hi"})));
    let sim = Sim::start(script).await;
    let gate = listener(&sim, BY_HOUR).await;
    // Nobody said how long it is: 8 000 bytes are taken for a second.
    let reply = heard(&gate, 8_000, json!({})).await;
    let answer = reply.json();
    assert_eq!((reply.status, &answer["text"], sim.calls()), (200, &json!("Hi"), 2), "{answer}");
    assert!(near(&answer["usage"]["cost"], 1e-4), "{answer}");
    assert!(form(&sim).contains("name=\"response_format\"\r\n\r\njson\r\n"), "{}", form(&sim));
    // Whoever asked for the long one himself is told that there is none.
    sim.set(raw(400, &refusal));
    let calls = sim.calls();
    let reply = heard(&gate, 8_000, json!({"response_format": "verbose_json"})).await;
    assert_eq!((reply.status, sim.calls()), (400, calls + 1), "{}", reply.body_text());
    let reply = {
        sim.set(raw(200, &json!({"text": "Hi", "duration": 2.0, "logprobs": [{"token": "Hi", "logprob": -0.1}]})));
        heard(&gate, 8_000, json!({"response_format": "text"})).await
    };
    assert_eq!((reply.header("content-type"), reply.body_text()), (Some("text/plain; charset=utf-8"), "Hi\n"));
    let reply = heard(&gate, 8_000, json!({"include": ["logprobs"]})).await;
    assert_eq!(reply.json()["logprobs"][0]["token"], "Hi");
    assert!(form(&sim).contains("name=\"response_format\"\r\n\r\njson\r\n"), "{}", form(&sim));
}

#[tokio::test]
async fn what_one_caller_is_refused_is_no_fact_about_the_others() {
    // An upstream that repeats what it is sent, and takes it in the short form.
    let refusal =
        json!({"error": {"message": "timestamp_granularities: 'response_format' is not one of word, segment"}});
    let raw = |status: u16, body: &Value| Behaviour::Raw {
        status,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.to_string().into(),
    };
    let sim = Sim::start(Script::from(raw(400, &refusal)).then(raw(200, &json!({"text": "Hi"})))).await;
    let gate = listener(&sim, BY_HOUR).await;
    heard(&gate, 8_000, json!({"prompt": "response_format"})).await;
    sim.set(raw(200, &json!({"text": "Hi", "duration": 2.0})));
    heard(&gate, 8_000, json!({})).await;
    assert!(form(&sim).contains("name=\"response_format\"\r\n\r\nverbose_json\r\n"), "{}", form(&sim));
}

#[tokio::test]
async fn an_option_that_is_ours_is_left_out_however_it_is_refused() {
    let refusal = json!({"detail": [{"type": "literal_error", "loc": ["body", "stream_format"],
        "msg": "Input should be 'audio'", "input": "sse"}]});
    let script = Script::from(Behaviour::Raw { status: 422, headers: Vec::new(), body: refusal.to_string().into() });
    let sim = Sim::start(script.then(Behaviour::Echo)).await;
    let gate = speaker(&[(&sim, "openai-chat", BY_TOKEN)], "").await;
    let reply = spoken(&gate, json!({})).await;
    assert_eq!((reply.status, sim.calls(), sent(&sim).get("stream_format")), (200, 2, None), "{}", reply.body_text());
}

#[tokio::test]
async fn what_cannot_be_paid_or_is_not_allowed_is_not_sent() {
    let sim = Sim::start(Behaviour::Echo).await;
    let speaker = speaker(&[(&sim, "openai-chat", BY_CHARACTER)], "").await;
    let listener = listener(&sim, BY_HOUR).await;
    let made = json!({"name": "small", "limit": 0.001}).to_string();
    let mut keys = Vec::new();
    for gate in [&speaker, &listener] {
        let key = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY).json(made.clone()).send().await.json();
        keys.push(key["key"].as_str().unwrap().to_owned());
    }
    // 66 characters are affordable at fifteen dollars for a million, 67 are not.
    for (characters, status) in [(67, 402), (66, 200)] {
        let body = json!({"model": SPEAKER, "input": "b".repeat(characters)});
        let reply = post(&speaker, "/api/v1/audio/speech", &keys[0], &body).await;
        assert_eq!(reply.status, status, "{}", reply.body_text());
    }
    // Ten seconds: 15 000 bytes of packed speech at the least.
    for (bytes, status) in [(15_100, 402), (14_900, 200)] {
        let audio = json!({"data": STANDARD.encode(vec![0; bytes]), "format": "ogg"});
        let body = json!({"model": LISTENER, "input_audio": audio});
        let reply = post(&listener, "/api/v1/audio/transcriptions", &keys[1], &body).await;
        assert_eq!(reply.status, status, "{}", reply.body_text());
    }
    let talked = json!({"model": SPEAKER, "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]});
    let reply = post(&speaker, "/api/v1/messages", INFERENCE_KEY, &talked).await;
    assert_eq!(message(&reply), (400, format!("{SPEAKER} is not available on this endpoint")));
    assert!(reply.body_text().contains("POST /audio/speech"), "{}", reply.body_text());
    let reply = heard(&speaker, 5, json!({"model": SPEAKER})).await;
    assert!(
        reply.status == 400 && reply.body_text().contains("output_modalities=transcription"),
        "{}",
        reply.body_text()
    );
    let listed =
        |gate: &Tidegate, query: &str| gate.ask("GET", &format!("/api/v1/models{query}")).key(INFERENCE_KEY).send();
    let models = listed(&speaker, "?output_modalities=speech").await.json();
    assert_eq!(models["data"][0]["id"], SPEAKER, "{models}");
    let pricing = &models["data"][0]["pricing"];
    assert_eq!(pricing["character"], "0.000015", "{pricing}");
}

#[tokio::test]
async fn filters_read_what_is_to_be_spoken_and_what_is_written_beside_sound() {
    let sim = Sim::start(Behaviour::Echo).await;
    let start = Tidegate::start().gives(SPEAKER, "speech").gives(LISTENER, "transcription");
    let start = start.protocol_at(SPEAKER, "openai-chat", &at(&sim, "openai-chat"), BY_CHARACTER);
    let gate = start.protocol_at(LISTENER, "openai-chat", &at(&sim, "openai-chat"), BY_HOUR).run().await;
    let filters = json!({"name": "words", "content_filters": [
        {"pattern": "secret", "action": "redact"}, {"pattern": "forbidden", "action": "block"}]});
    let made = post(&gate, "/api/v1/guardrails", MANAGEMENT_KEY, &filters).await.json();
    let id = made["data"]["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let created = post(&gate, "/api/v1/keys", MANAGEMENT_KEY, &json!({"name": "held"})).await.json();
    let hashes = json!({"key_hashes": [created["data"]["hash"]]});
    let path = format!("/api/v1/guardrails/{id}/assignments/keys");
    assert_eq!(post(&gate, &path, MANAGEMENT_KEY, &hashes).await.status, 200);
    let key = created["key"].as_str().unwrap();
    let speak = |more: Value| {
        let mut body = json!({"model": SPEAKER, "input": "a secret boat"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let reply = post(&gate, "/v1/audio/speech", key, &speak(json!({}))).await;
    let said = sent(&sim)["input"].as_str().unwrap().to_owned();
    assert!(reply.status == 200 && said.ends_with("boat") && !said.contains("secret"), "{said}");
    let calls = sim.calls();
    for more in [json!({"input": "forbidden"}), json!({"instructions": "secret"}), json!({"voice": "forbidden"})] {
        assert_eq!(post(&gate, "/v1/audio/speech", key, &speak(more.clone())).await.status, 403, "{more}");
    }
    let audio = json!({"data": "AAAA", "format": "wav"});
    for (name, value) in [
        ("prompt", json!("forbidden")),
        ("prompt", json!("secret")),
        ("input_audio", json!({"data": "AAAA", "format": "secret"})),
    ] {
        let mut body = json!({"model": LISTENER, "input_audio": audio});
        body[name] = value;
        assert_eq!(post(&gate, "/v1/audio/transcriptions", key, &body).await.status, 403, "{body}");
    }
    assert_eq!(sim.calls(), calls);
}
