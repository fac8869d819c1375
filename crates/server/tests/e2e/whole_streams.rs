//! Clients that want a whole answer, from upstreams that are asked for a stream (`upstream.always_stream`).

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::harness::{Hand, INFERENCE_KEY, Reply, Tidegate, hello, hello_streamed, said, user};

const MODEL: &str = "whole/model";
const ALWAYS: &str = "[upstream]\nalways_stream = true\n";

/// Each protocol, and where the simulator speaks it.
const PROTOCOLS: [(&str, &str); 5] = [
    ("openai-chat", "/v1"),
    ("openai-responses", "/v1"),
    ("gemini", "/v1beta"),
    ("bedrock-converse", ""),
    ("cohere", ""),
];

async fn gate(sim: &Sim, (protocol, path): (&str, &str), config: &str) -> Tidegate {
    let lines = "pricing = { input = 3, output = 15 }";
    let base_url = format!("{}{path}", sim.base_url());
    Tidegate::start().protocol_at(MODEL, protocol, &base_url, lines).config(config).run().await
}

/// Whether the upstream was asked for a stream: in the body, or by the address.
fn asked_to_stream(sim: &Sim) -> bool {
    let seen = sim.requests().pop().expect("it was called");
    seen.json()["stream"] == true || seen.path.contains("tream")
}

/// What does not depend on the way in which it came.
pub fn plain(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let mut message = reply.json();
    message["id"].take();
    // The simulator counts the bytes of what it is asked, and it is asked for more.
    for counted in ["input_tokens", "cost", "cost_details"] {
        assert!(!message["usage"][counted].take().is_null(), "{counted}");
    }
    message["usage"]["billed_units"].take();
    // Calls have ids of their own.
    for block in message["content"].as_array_mut().expect("blocks") {
        if block["type"] == "tool_use" {
            block["id"].take();
        }
    }
    message
}

#[tokio::test]
async fn an_answer_is_the_same_whether_it_comes_whole_or_in_pieces() {
    let tool = json!([{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}]);
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let (whole, gathered) = (gate(&sim, protocol, "").await, gate(&sim, protocol, ALWAYS).await);
        for more in [json!({}), json!({"tools": tool, "tool_choice": {"type": "any"}})] {
            let mut body = hello(MODEL);
            body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let one = whole.messages(body.clone()).await;
            assert!(!asked_to_stream(&sim), "{protocol:?}");
            let other = gathered.messages(body).await;
            assert!(asked_to_stream(&sim), "{protocol:?}");
            assert_eq!(plain(&one), plain(&other), "{protocol:?} {more}");
        }
    }
}

#[tokio::test]
async fn half_an_answer_is_none_and_costs_nothing() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::CloseMidStream { after: 2 }).await;
        let gate = gate(&sim, protocol, ALWAYS).await;
        let reply = gate.messages(hello(MODEL)).await;
        assert_eq!(reply.status, 502, "{protocol:?}: {}", reply.body_text());
        let key = gate.ask("GET", "/v1/key").key(INFERENCE_KEY).send().await;
        assert_eq!(key.json()["data"]["usage"], 0, "{protocol:?}");
    }
}

#[tokio::test]
async fn one_that_stops_coming_is_noticed_though_nobody_else_could_answer() {
    let sim = Sim::start(Behaviour::HangMidStream { after: 2 }).await;
    let config = format!("{ALWAYS}idle_ms = 100\ntotal_whole_ms = 60000\n[routing]\nrepeat = false\n");
    let gate = gate(&sim, PROTOCOLS[0], &config).await;
    let reply = tokio::time::timeout(Duration::from_secs(20), gate.messages(hello(MODEL))).await;
    assert_eq!(reply.expect("it does not wait for the whole time").status, 504);
}

/// What comes first says nothing; then there is silence.
#[tokio::test]
async fn silence_behind_a_beginning_without_words_is_noticed() {
    let role =
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    for (kind, beginning, config) in [("text/event-stream", role, ALWAYS), ("application/json", "\n", "[upstream]\n")] {
        let hand = Hand::start().await;
        let other = Sim::start(Behaviour::says("second")).await;
        let config = format!("{config}idle_ms = 200\ntotal_whole_ms = 60000\n");
        let gate = Tidegate::start().protocol_at(MODEL, "openai-chat", &format!("{}/v1", hand.base_url()), "");
        let gate = gate.protocol_at(MODEL, "openai-chat", &format!("{}/v1", other.base_url()), "").config(&config);
        let gate = gate.run().await;
        let upstream = async {
            let mut call = hand.call().await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n");
            call.write(format!("{head}{:x}\r\n{beginning}\r\n", beginning.len()).as_bytes()).await;
            call
        };
        let mut body = hello(MODEL);
        body["provider"] = json!({"order": ["p0", "p1"]});
        let asked = tokio::time::timeout(Duration::from_secs(20), gate.messages(body));
        let (_call, reply) = tokio::join!(upstream, asked);
        assert_eq!(reply.expect("it is noticed").text(), "second", "{kind}");
    }
}

/// OpenAI's words for an organisation that is not verified, and those of Bedrock for a role that may not stream.
#[tokio::test]
async fn who_may_not_stream_is_asked_for_whole_answers() {
    let openai = json!({"error": {"message": "Your organization must be verified to stream this model.",
        "type": "invalid_request_error", "param": "stream", "code": "unsupported_value"}});
    let bedrock = json!({"message": "User: arn:aws:iam::1:user/u is not authorized to perform: \
        bedrock:InvokeModelWithResponseStream on resource: arn:aws:bedrock:us-east-1::foundation-model/m"});
    for (protocol, code, body) in
        [(PROTOCOLS[0], 400, openai.clone()), (PROTOCOLS[1], 400, openai), (PROTOCOLS[3], 403, bedrock)]
    {
        let refused = || Behaviour::Raw {
            status: code,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into(),
        };
        let sim = Sim::start(Script::from(refused()).then(Behaviour::says("hello"))).await;
        let gate = gate(&sim, protocol, ALWAYS).await;
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello", "{protocol:?}");
        assert_eq!((sim.calls(), asked_to_stream(&sim)), (2, false), "{protocol:?}");
        // That is remembered.
        assert_eq!(gate.messages(hello(MODEL)).await.text(), "hello", "{protocol:?}");
        assert_eq!((sim.calls(), asked_to_stream(&sim)), (3, false), "{protocol:?}");
        // Who wants a stream asks for one all the same, and is helped when it is refused.
        sim.set(Script::from(refused()).then(Behaviour::says("hello")));
        let events = gate.stream(hello_streamed(MODEL)).await.rest().await;
        assert_eq!((said(&events), asked_to_stream(&sim)), ("hello".to_owned(), false), "{protocol:?}");
        let mut streamed = json!({"model": MODEL, "max_tokens": 64, "messages": [user("hi")]});
        streamed["stream"] = json!(true);
        gate.stream(streamed).await.rest().await;
        assert!(asked_to_stream(&sim), "{protocol:?}");
    }
}
