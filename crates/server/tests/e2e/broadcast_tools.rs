//! Destinations hear of the tools that were run for a model, and of attempts that failed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, asks};
use crate::harness::receiver::{Receiver, attribute, attribute_in};
use crate::harness::{INFERENCE_KEY, Tidegate, eventually, hello};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn each_tool_that_is_run_is_a_span_under_the_generation() {
    let (sim, open, private, table) =
        (Sim::start(Behaviour::Echo).await, Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let rows = format!(
        "[[destinations]]\nname = \"rows\"\ntype = \"clickhouse\"\n\
         config = {{ host = \"http://{}\", database = \"d\", username = \"u\", password = \"p\" }}\n",
        table.address
    );
    let gate = Tidegate::start()
        .endpoint(MODEL, &sim)
        .config(&open.config("otel-collector", ""))
        .config(&private.config("webhook", "privacy_mode = true"))
        .config(&rows)
        .run()
        .await;
    for stream in [false, true] {
        let clock = |zone: &str| ("tidegate_datetime", json!({"timezone": zone}));
        sim.set(Script::from(asks("", &[clock("Europe/Paris"), clock("Mars/Base")])).then(Behaviour::says("done")));
        let mut body = hello(MODEL);
        body["tools"] = json!([{"type": "tidegate:datetime"}]);
        body["stream"] = json!(stream);
        let reply = gate.messages(body).await;
        let request = reply.header("x-generation-id").unwrap().to_owned();

        let tools = heard_tools(&open, &request).await;
        let generation =
            open.spans().into_iter().find(|span| attribute(span, "gen_ai.response.id") == Some(json!(request)));
        let generation = generation.unwrap();
        assert_eq!(tools.len(), 2, "{tools:?}");
        for span in &tools {
            assert_eq!((&span["name"], &span["kind"]), (&json!("execute_tool tidegate:datetime"), &json!(1)));
            assert_eq!((&span["parentSpanId"], &span["traceId"]), (&generation["spanId"], &generation["traceId"]));
            assert_eq!(attribute(span, "gen_ai.tool.name"), Some(json!("tidegate:datetime")));
            assert_eq!(attribute(span, "gen_ai.tool.type"), Some(json!("extension")));
            assert!(attribute(span, "gen_ai.tool.call.id").is_some());
            let time = |name: &str| span[name].as_str().unwrap().parse::<i64>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        }
        let by_zone: HashMap<&str, &Value> = tools.iter().map(|span| (zone(span), span)).collect();
        let (good, bad) = (by_zone["Europe/Paris"], by_zone["Mars/Base"]);
        assert!(attribute(good, "gen_ai.tool.call.result").unwrap().as_str().unwrap().contains("Europe/Paris"));
        assert_eq!((&good["status"], &bad["status"]["code"]), (&json!({}), &json!(2)));
        assert_eq!(attribute(bad, "error.type"), Some(json!("tool_error")));

        let tools = heard_tools(&private, &request).await;
        assert_eq!(tools.len(), 2);
        for span in tools {
            assert_eq!(attribute(&span, "gen_ai.tool.call.arguments"), None);
            assert_eq!(attribute(&span, "gen_ai.tool.call.result"), None);
        }
        let lines = || {
            table
                .told()
                .iter()
                .flat_map(|told| told.body.lines().map(str::to_owned).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let is_tool = |line: &String| line.contains("\"SPAN_TYPE\":\"TOOL\"") && line.contains(&request);
        eventually("the table hears of both", PATIENCE, async || {
            lines().iter().filter(|line| is_tool(line)).count() == 2
        })
        .await;
    }
    assert!(private.told().iter().all(|told| !told.body.contains("Europe/Paris")), "privacy");
}

/// The spans of the tools of a request, once they have arrived.
async fn heard_tools(receiver: &Receiver, request: &str) -> Vec<Value> {
    let spans = || {
        let spans = receiver.spans().into_iter();
        let of_it = spans.filter(|span| attribute(span, "tidegate.request_id") == Some(json!(request)));
        of_it.filter(|span| attribute(span, "gen_ai.operation.name") == Some(json!("execute_tool"))).collect::<Vec<_>>()
    };
    eventually("it hears of the tools", PATIENCE, async || !spans().is_empty()).await;
    spans()
}

fn zone(span: &Value) -> &str {
    let arguments = span["attributes"].as_array().unwrap();
    let arguments = arguments.iter().find(|each| each["key"] == "gen_ai.tool.call.arguments").unwrap();
    let text = arguments["value"]["stringValue"].as_str().unwrap();
    ["Europe/Paris", "Mars/Base"].into_iter().find(|zone| text.contains(zone)).unwrap()
}

#[tokio::test]
async fn an_attempt_that_failed_is_an_event_of_its_span() {
    let (broken, healthy) = (Sim::start(Behaviour::status(503)).await, Sim::start(Behaviour::Echo).await);
    let collector = Receiver::start().await;
    let gate = Tidegate::start()
        .endpoint(MODEL, &broken)
        .endpoint(MODEL, &healthy)
        .config(&collector.config("otel-collector", ""))
        .run()
        .await;
    let mut body = hello(MODEL);
    body["provider"] = json!({"order": ["p0", "p1"]});
    let reply = gate.messages(body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let id = reply.header("x-generation-id").unwrap();
    eventually("it hears of it", PATIENCE, async || collector.generations().contains(id)).await;
    let span = &collector.spans()[0];
    assert_eq!(attribute(span, "tidegate.attempt"), Some(json!("2")));
    let [event] = span["events"].as_array().unwrap().as_slice() else { panic!("{span}") };
    let say = |name: &str| attribute_in(&event["attributes"], name);
    assert_eq!(event["name"], "gen_ai.attempt");
    assert_eq!(attribute(span, "gen_ai.provider.name"), Some(json!("p1")));
    assert_eq!(say("gen_ai.provider.name"), Some(json!("p0")));
    assert_eq!(say("http.response.status_code"), Some(json!("503")));
    assert_eq!(say("error.type"), Some(json!("provider_overloaded")));
}

#[tokio::test]
async fn attempts_are_told_at_the_time_when_they_failed_and_kept_answers_by_their_provider() {
    let slow = Script::status(503).first_byte(Duration::from_millis(60));
    let (broken, slow, healthy) =
        (Sim::start(Behaviour::status(503)).await, Sim::start(slow).await, Sim::start(Behaviour::says("hi")).await);
    let collector = Receiver::start().await;
    let gate = Tidegate::start()
        .endpoint(MODEL, &broken)
        .endpoint(MODEL, &slow)
        .endpoint(MODEL, &healthy)
        .config(&collector.config("otel-collector", ""))
        .run()
        .await;
    let mut body = hello(MODEL);
    body["provider"] = json!({"order": ["p0", "p1", "p2"]});
    let mut spans = Vec::new();
    for _ in 0..2 {
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).header("x-tidegate-cache", "true");
        let reply = ask.json(body.to_string()).send().await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let id = json!(reply.header("x-generation-id").unwrap());
        let of_it = |span: &Value| attribute(span, "gen_ai.response.id").as_ref() == Some(&id);
        eventually("it hears of it", PATIENCE, async || collector.spans().iter().any(of_it)).await;
        spans.push(collector.spans().into_iter().find(of_it).unwrap());
    }
    let nanos = |of: &Value, name: &str| of[name].as_str().unwrap().parse::<i64>().unwrap();
    let [first, second] = spans[0]["events"].as_array().unwrap().as_slice() else { panic!("{}", spans[0]) };
    let times = [
        nanos(&spans[0], "startTimeUnixNano"),
        nanos(first, "timeUnixNano"),
        nanos(second, "timeUnixNano"),
        nanos(&spans[0], "endTimeUnixNano"),
    ];
    assert!(times.is_sorted() && times[2] - times[1] > 50_000_000, "the second one took its time: {times:?}");
    assert_eq!(attribute(&spans[1], "tidegate.cache.hit"), Some(json!(true)));
    for span in &spans {
        assert_eq!(attribute(span, "gen_ai.provider.name"), Some(json!("p2")));
    }
}
