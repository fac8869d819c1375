//! Every fault at every moment, with one, two and three endpoints: the answer comes from elsewhere where that is possible
//! and is the truth where it is not, it is charged once, and the metadata tell what happened.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_sim::{Behaviour, End, Sim};

use crate::harness::{INFERENCE_KEY, Reply, Tidegate, frame, hello, hello_streamed, tale};

const MODEL: &str = "vendor/m";
const QUICK: &str = "
[upstream]
first_content_ms = 150
first_content_alone_ms = 150
idle_ms = 150
max_event_bytes = 20000
max_answer_bytes = 20000
";
const LINES: &str = "card = { prefill = \"native\" }\npricing = { input = 1, output = 2 }";

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeHeaders,
    BeforeContent,
    MidText,
    MidTool,
    AfterStop,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Status(u16),
    Cut,
    Reset,
    Hang,
    ErrorEvent,
    BrokenJson,
    TooLong,
}

const MOMENTS: [When; 5] = [When::BeforeHeaders, When::BeforeContent, When::MidText, When::MidTool, When::AfterStop];
const FAULTS: [What; 12] = [
    What::Status(404),
    What::Status(408),
    What::Status(429),
    What::Status(500),
    What::Status(503),
    What::Status(529),
    What::Cut,
    What::Reset,
    What::Hang,
    What::ErrorEvent,
    What::BrokenJson,
    What::TooLong,
];

/// An answer, and as much of it as is sent before it breaks.
const ALL: &str = "hello, the tide is in";
const BEGUN: &str = "hello, the tide i";

/// The frames of a stream up to a moment.
fn until(when: When) -> Vec<String> {
    let text = tale(BEGUN);
    let tool = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}"#;
    let input =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#;
    match when {
        When::BeforeHeaders => Vec::new(),
        When::BeforeContent => text[..1].to_vec(),
        When::MidText => text[..3].to_vec(),
        When::MidTool => {
            vec![text[0].clone(), frame("content_block_start", tool), frame("content_block_delta", input)]
        }
        When::AfterStop => tale(ALL),
    }
}

/// A stream with the fault at the moment; none where the two do not go together.
fn streamed(what: What, when: When) -> Option<Behaviour> {
    let mut frames = until(when);
    let end = match what {
        What::Status(code) => return (when == When::BeforeHeaders).then(|| Behaviour::status(code)),
        What::Hang if when == When::BeforeHeaders => return Some(Behaviour::HangBeforeHeaders),
        What::Cut => End::Cut,
        What::Reset => End::Reset,
        What::Hang => End::Hang,
        What::ErrorEvent => {
            let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
            frames.push(frame("error", error));
            End::Close
        }
        What::BrokenJson => {
            frames.push("event: message_delta\ndata: {\"type\":\n\n".to_owned());
            End::Close
        }
        What::TooLong => {
            frames.push(format!("event: content_block_delta\ndata: {}\n\n", "x".repeat(30_000)));
            End::Close
        }
    };
    Some(Behaviour::RawStream { chunks: frames.into_iter().map(Bytes::from).collect(), end })
}

/// The same for an answer that comes whole: it is there or it is not.
fn whole(what: What) -> Option<Behaviour> {
    let raw = |body: &str| Behaviour::Raw {
        status: 200,
        headers: vec![("content-type".into(), "application/json".into())],
        body: Bytes::from(body.to_owned()),
    };
    match what {
        What::Status(code) => Some(Behaviour::status(code)),
        What::Cut => Some(Behaviour::TruncatedBody),
        What::Reset => Some(Behaviour::CloseMidStream { after: 1 }),
        // Silence of a whole answer lasts as long as all attempts may take together.
        What::Hang => None,
        What::ErrorEvent => Some(raw(r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#)),
        What::BrokenJson => Some(Behaviour::Garbage),
        What::TooLong => Some(Behaviour::Oversize { bytes: 50_000 }),
    }
}

struct Case {
    gate: Tidegate,
    sims: Vec<Sim>,
}

impl Case {
    /// A model at so many endpoints; all but the last will fail, and one that is alone.
    async fn start(endpoints: usize) -> Self {
        let mut sims = Vec::new();
        for _ in 0..endpoints {
            sims.push(Sim::start(Behaviour::Echo).await);
        }
        let gate = sims.iter().fold(Tidegate::start(), |gate, sim| gate.endpoint_with(MODEL, sim, LINES));
        Self { gate: gate.config(QUICK).run().await, sims }
    }

    fn set(&self, fault: &Behaviour, otherwise: &Behaviour) {
        let last = self.sims.len() - 1;
        for (place, sim) in self.sims.iter().enumerate() {
            let is_well = place == last && place > 0;
            sim.set(if is_well { otherwise.clone() } else { fault.clone() });
        }
    }

    fn calls(&self) -> usize {
        self.sims.iter().map(Sim::calls).sum()
    }

    async fn ask(&self, body: Value) -> Reply {
        let ask = self.gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-metadata", "enabled");
        ask.json(body.to_string()).send().await
    }

    /// The record of a call, which must be there once and tell every attempt.
    async fn check_record(&self, reply: &Reply, attempts: usize, cost: Option<f64>, case: &str) {
        let id = reply.header("x-generation-id").unwrap();
        let record = self.gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
        assert_eq!(record.status, 200, "{case}: {}", record.body_text());
        let record = record.json()["data"].clone();
        assert_eq!(record["total_cost"].as_f64(), cost, "{case}: {record}");
        let told = record["provider_responses"].as_array().unwrap();
        assert_eq!(told.len(), attempts, "{case}: {record}");
    }
}

#[tokio::test]
async fn faults_of_streams() {
    let well: Vec<Bytes> = tale(ALL).into_iter().map(Bytes::from).collect();
    // What goes on with the beginning repeats it, and that is cut off.
    let well = Behaviour::RawStream { chunks: well, end: End::Close };
    for endpoints in 1..=3 {
        let bench = Case::start(endpoints).await;
        for (what, when) in FAULTS.into_iter().flat_map(|what| MOMENTS.map(|when| (what, when))) {
            let Some(fault) = streamed(what, when) else { continue };
            bench.set(&fault, &well);
            let before = bench.calls();
            let reply = bench.ask(hello_streamed(MODEL)).await;
            let made = bench.calls() - before;
            let case = format!("{what:?} {when:?} with {endpoints}: {}", reply.body_text());
            let is_alone = endpoints == 1;
            let survives = match when {
                When::BeforeHeaders | When::BeforeContent | When::MidText => !is_alone,
                When::MidTool => false,
                When::AfterStop => true,
            };
            let failed = if survives && when != When::AfterStop { endpoints - 1 } else { 0 };
            let expected = if survives { failed + 1 } else { 1 };
            assert_eq!(made, expected, "{case}");
            let events = if reply.status == 200 { reply.events() } else { Vec::new() };
            let count = |name: &str| events.iter().filter(|event| event.name == name).count();
            if survives {
                assert_eq!((reply.status, reply.text().as_str()), (200, ALL), "{case}");
                assert_eq!((count("message_start"), count("message_stop"), count("error")), (1, 1, 0), "{case}");
                let usage = events.iter().rfind(|event| event.name == "message_delta").unwrap().json();
                let cost = usage["usage"]["cost"].as_f64();
                assert!(cost.is_some_and(|cost| cost > 0.0), "{case}");
                bench.check_record(&reply, expected, cost, &case).await;
                let told = events.last().unwrap().json()["tidegate_metadata"].clone();
                assert_eq!(told["attempt"], json!(expected), "{case}");
                assert_eq!(told["attempts"].as_array().unwrap().len(), expected, "{case}");
            } else if matches!(when, When::MidText | When::MidTool) {
                assert_eq!((reply.status, count("message_stop"), count("error")), (200, 0, 1), "{case}");
                assert_eq!(events.last().unwrap().name, "error", "{case}");
                bench.check_record(&reply, 1, Some(0.0), &case).await;
            } else {
                assert!(reply.status >= 400, "{case}");
                assert_eq!(reply.json()["type"], "error", "{case}");
                let told = &reply.json()["tidegate_metadata"];
                assert_eq!((&told["attempt"], told["attempts"].as_array().unwrap().len()), (&json!(1), 1), "{case}");
                bench.check_record(&reply, 1, Some(0.0), &case).await;
            }
        }
    }
}

#[tokio::test]
async fn faults_of_whole_answers() {
    for endpoints in 1..=3 {
        let bench = Case::start(endpoints).await;
        for what in FAULTS {
            let Some(fault) = whole(what) else { continue };
            bench.set(&fault, &Behaviour::says("hello"));
            let before = bench.calls();
            let reply = bench.ask(hello(MODEL)).await;
            let made = bench.calls() - before;
            let case = format!("{what:?} with {endpoints}: {}", reply.body_text());
            assert_eq!(made, endpoints, "{case}");
            let told = reply.json()["tidegate_metadata"].clone();
            assert_eq!(told["attempts"].as_array().map(Vec::len), Some(endpoints), "{case}");
            if endpoints > 1 {
                assert_eq!((reply.status, reply.text().as_str()), (200, "hello"), "{case}");
                let cost = reply.json()["usage"]["cost"].as_f64();
                assert!(cost.is_some_and(|cost| cost > 0.0), "{case}");
                bench.check_record(&reply, endpoints, cost, &case).await;
            } else {
                assert!(reply.status >= 400, "{case}");
                assert_eq!(reply.json()["type"], "error", "{case}");
                bench.check_record(&reply, 1, Some(0.0), &case).await;
            }
        }
    }
}

/// Five hundred requests a second, while one of two upstreams dies.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_dies_under_load_is_not_noticed() {
    const REQUESTS: u32 = 1_000;
    let (first, second) = (Sim::start(Behaviour::says("hello")).await, Sim::start(Behaviour::says("hello")).await);
    // How many are under way at a time is for the machine to say, not for a limit.
    let gate = Tidegate::start().config("[routing]\nhealth = true\n[limits]\nin_flight_key = 1000\n");
    let gate = gate.endpoint(MODEL, &first).endpoint(MODEL, &second).run().await;
    let mut asked = tokio::task::JoinSet::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    let mut first = Some(first);
    for number in 0..REQUESTS {
        ticks.tick().await;
        if number == REQUESTS / 3 {
            first.take().unwrap().stop().await;
        }
        let body = if number % 2 == 0 { hello(MODEL) } else { hello_streamed(MODEL) };
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string());
        asked.spawn(async move {
            let reply = ask.send().await;
            (reply.status, reply.text())
        });
    }
    while let Some(heard) = asked.join_next().await {
        assert_eq!(heard.unwrap(), (200, "hello".to_owned()));
    }
    assert!(second.calls() as u32 >= REQUESTS - REQUESTS / 3, "the other one serves: {}", second.calls());
}
