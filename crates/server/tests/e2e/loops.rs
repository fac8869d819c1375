//! How a loop of tools ends when nobody wants it to: no money, no time, no client; and what is heard while a tool works.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message, told};
use crate::harness::{Hand, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, eventually, hello, user};

const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// The configuration of an engine that answers when the test says so.
fn engine(hand: &Hand) -> String {
    format!("[tools.web_search.engines.slow]\nkind = \"searxng\"\nurl = \"{}\"\n", hand.base_url())
}

fn searching(stream: bool) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:web_search"}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

fn look(query: &str) -> (&'static str, Value) {
    ("web_search", json!({"query": query}))
}

fn found(title: &str) -> String {
    json!({"results": [{"url": "https://tides.example/", "title": title, "content": "High water is at six."}]})
        .to_string()
}

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

#[tokio::test]
async fn what_was_said_is_the_answer_when_the_money_ends_between_two_turns() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            // A thousand tokens of output at two dollars a million are 0.002 dollars, and must be held for each turn. The
            // prompt is a few thousand bytes at a dollar a million tokens, of which at most one for three bytes is held:
            // the first turn fits, and what it used is missing for the second.
            let made = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY);
            let made = made.json(json!({"name": case, "limit": 0.0040}).to_string()).send().await.json();
            let key = made["key"].as_str().unwrap().to_owned();
            let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
            eventually("the key is known", SOON, is_known).await;
            sim.set(Script::from(asks("Let me see.", &[("tidegate_datetime", json!({}))])));
            let before = sim.calls();
            let mut body = searching(stream);
            body["tools"] = json!([{"type": "tidegate:datetime"}]);
            body["messages"] = json!([user(&"tide ".repeat(900))]);
            let ask = async || {
                let ask = gate.ask("POST", "/v1/messages").key(&key).header("x-tidegate-metadata", "enabled");
                ask.header("x-tidegate-cache", "true").json(body.to_string()).send().await
            };
            let answer = message(&ask().await);
            assert_eq!(sim.calls() - before, 1, "{case}: {answer}");
            assert_eq!(kinds(&answer), ["text", "server_tool_use"], "{case}");
            assert_eq!(answer["stop_reason"], "end_turn", "{case}");
            assert_eq!(told(&answer)["stopped_by"], "budget", "{case}");
            // Who has money again is not to get the same: it is not kept.
            assert_ne!(ask().await.header("x-tidegate-cache-status"), Some("HIT"), "{case}");
        }
    }
}

/// A provider who wants money or takes no credential is no limit of ours: nothing of it looks like an answer.
#[tokio::test]
async fn what_a_provider_refuses_between_two_turns_is_an_error() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let own = json!({"provider": "p0", "key": "sk-ant-of-a-customer", "is_byok_only": true});
    let made = gate.ask("POST", "/api/v1/byok").key(MANAGEMENT_KEY).json(own.to_string()).send().await;
    assert_eq!(made.status, 201, "{}", made.body_text());
    let mut body = searching(false);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    for (status, kind) in [(403, "permission_denied"), (402, "payment_required")] {
        sim.set(Script::from(asks("", &[("tidegate_datetime", json!({}))])).then(Behaviour::status(status)));
        let before = sim.calls();
        let reply = asked(&gate, &body).await;
        assert_eq!((reply.status, sim.calls() - before), (status, 2), "{}", reply.body_text());
        assert!(reply.body_text().contains(kind), "{}", reply.body_text());
    }
}

#[tokio::test]
async fn a_loop_that_takes_too_long_pauses_and_goes_on_when_it_is_sent_back() {
    for protocol in PROTOCOLS {
        let (sim, hand) = (Sim::start(Behaviour::Echo).await, Hand::start().await);
        let config = format!("[tools]\nloop_deadline_ms = 1000\n{}", engine(&hand));
        let gate = gate_for(&sim, protocol, &config).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(asks("Let me look.", &[look("tides")])).then(Behaviour::says("It is at six.")));
            let body = searching(stream);
            // The engine is asked and never answers.
            let (reply, mut call) = tokio::join!(asked(&gate, &body), hand.call());
            let answer = message(&reply);
            call.gone().await;
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "web_search_tool_result"], "{case}");
            assert_eq!(answer["stop_reason"], "pause_turn", "{case}");
            let last = answer["content"].as_array().unwrap().last().unwrap();
            let failed = json!({"type": "web_search_tool_result_error", "error_code": "unavailable"});
            assert_eq!(last["content"], failed, "{case}");

            let mut next = searching(stream);
            next["messages"] = json!([body["messages"][0], {"role": "assistant", "content": answer["content"]}]);
            let before = sim.calls();
            let answer = message(&asked(&gate, &next).await);
            assert_eq!((kinds(&answer), sim.calls() - before), (vec!["text".to_owned()], 1), "{case}");
            assert_eq!(answer["content"].as_array().unwrap().last().unwrap()["text"], "It is at six.", "{case}");
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("Let me look.") && sent.contains("cannot be reached"), "{case}: {sent}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_does_not_begin_in_time_is_not_waited_for() {
    let hand = Hand::start().await;
    let config = "[tools]\nloop_deadline_ms = 1000\n";
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(config).run().await;
    let mut body = searching(false);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    let calling = async {
        let used = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "tool_use", "id": "toolu_00000001", "name": "tidegate_datetime", "input": {}}],
            "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}});
        hand.call().await.answers(&used.to_string()).await;
        hand.call().await.gone().await;
    };
    let (reply, ()) = tokio::join!(asked(&gate, &body), calling);
    let answer = message(&reply);
    assert_eq!((kinds(&answer), &answer["stop_reason"]), (vec!["server_tool_use".into()], &json!("pause_turn")));
}

/// Events as they are sent.
fn frames(events: &[Value]) -> String {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(frame).collect()
}

/// A turn that asks what time it is.
fn asks_the_time() -> [Value; 5] {
    let call = json!({"type": "tool_use", "id": "toolu_00000001", "name": "tidegate_datetime", "input": {}});
    [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": call}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]
}

#[tokio::test]
async fn a_stream_that_does_not_end_in_time_is_closed_with_what_it_said() {
    let hand = Hand::start().await;
    let config = "[tools]\nloop_deadline_ms = 1000\n";
    let gate = Tidegate::start()
        .endpoint_at(MODEL, &hand.base_url(), "pricing = { input = 100, output = 100 }")
        .config(config)
        .run()
        .await;
    let mut body = searching(true);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    let called = asks_the_time();
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let words = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "At"}});
    let begun = [called[0].clone(), block, words];
    let calling = async {
        let mut first = hand.call().await.streams().await;
        first.send(&frames(&called)).await;
        first.end().await;
        let mut second = hand.call().await.streams().await;
        second.send(&frames(&begun)).await;
        second.gone().await;
    };
    let (reply, ()) = tokio::join!(asked(&gate, &body), calling);
    let answer = message(&reply);
    assert_eq!(
        (kinds(&answer), &answer["stop_reason"]),
        (vec!["server_tool_use".into(), "text".into()], &json!("pause_turn"))
    );
    assert_eq!((&answer["content"][1]["text"], &told(&answer)["stopped_by"]), (&json!("At"), &json!("deadline")));
    let count = |name: &str| reply.events().iter().filter(|event| event.name == name).count();
    assert_eq!(count("content_block_start"), count("content_block_stop"), "every block is closed");
    // The turn that was cut short is charged, and told.
    let cost = answer["usage"]["cost"].as_f64().unwrap();
    // Three tokens of the first turn, and of the second that of its prompt and the one that was heard.
    let charged = 5.0 * 100.0 / 1e6;
    let is_charged = async || (spent(&gate).await - charged).abs() < 1e-9;
    eventually("it is charged", SOON, is_charged).await;
    assert!((cost - charged).abs() < 1e-9, "{}", answer["usage"]);
}

#[tokio::test]
async fn a_client_hears_pings_while_the_next_turn_is_waited_for() {
    let hand = Hand::start().await;
    let config = "[stream]\nkeep_alive_ms = 20\n";
    let gate = Tidegate::start().endpoint_at(MODEL, &hand.base_url(), "").config(config).run().await;
    let mut body = searching(true);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    let mut heard = gate.stream(body).await;
    let mut first = hand.call().await.streams().await;
    first.send(&frames(&asks_the_time())).await;
    first.end().await;
    let second = hand.call().await;
    // The first turn is over: nothing but pings can come before the second one answers, in whatever way it begins to.
    for _ in 0..2 {
        let mut pings = 0;
        while pings < 2 {
            pings = if heard.next().await.unwrap().name == "ping" { pings + 1 } else { 0 };
        }
    }
    drop(second);
}

#[tokio::test]
async fn a_client_that_leaves_takes_the_tools_with_it_and_pays_for_what_it_heard() {
    for protocol in PROTOCOLS {
        let (sim, hand) = (Sim::start(Behaviour::Echo).await, Hand::start().await);
        let gate = gate_for(&sim, protocol, &engine(&hand)).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(asks("Let me look.", &[look("tides")])));
            let (before, calls) = (spent(&gate).await, sim.calls());
            let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(searching(stream).to_string());
            let mut id = None;
            let mut call = if stream {
                let mut heard = ask.open().await;
                id = Some(heard.id());
                while heard.next().await.unwrap().name != "content_block_stop" {}
                hand.call().await
            } else {
                let mut asking = Box::pin(ask.send());
                tokio::select! {
                    _ = &mut asking => panic!("{case}: the engine has not answered"),
                    call = hand.call() => call,
                }
            };
            // The client is gone, and the question to the engine with it.
            call.gone().await;
            let is_paid = async || spent(&gate).await > before;
            eventually("the turn is paid", SOON, is_paid).await;
            assert_eq!(sim.calls() - calls, 1, "{case}");
            let Some(id) = id else { continue };
            let record = async || {
                let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await;
                if record.status == 200 { record.json()["data"].clone() } else { Value::Null }
            };
            eventually("it is marked", SOON, async || record().await["cancelled"] == true).await;
            let record = record().await;
            let cost = record["total_cost"].as_f64().unwrap();
            assert!((spent(&gate).await - before - cost).abs() < 1e-9, "{case}: {record}");
        }
    }
}

#[tokio::test]
async fn pings_are_heard_while_a_tool_works_and_results_stand_in_the_order_of_the_calls() {
    for protocol in PROTOCOLS {
        let (sim, hand) = (Sim::start(Behaviour::Echo).await, Hand::start().await);
        let config = format!("[stream]\nkeep_alive_ms = 20\n{}", engine(&hand));
        let gate = gate_for(&sim, protocol, &config).await;
        sim.set(Script::from(asks("", &[look("one"), look("two")])).then(Behaviour::says("Done.")));
        let mut heard = gate.stream(searching(true)).await;
        let mut events = Vec::new();
        let (first, second) = (hand.call().await, hand.call().await);
        let [one, two] = if first.text.contains("q=one") { [first, second] } else { [second, first] };
        // The calls have been shown; nothing but pings can come before the engine answers.
        let mut pings = 0;
        while pings < 2 {
            let event = heard.next().await.unwrap();
            pings = if event.name == "ping" { pings + 1 } else { 0 };
            events.push(event);
        }
        two.answers(&found("Second")).await;
        one.answers(&found("First")).await;
        while let Some(event) = heard.next().await {
            events.push(event);
        }
        let results: Vec<Value> = events
            .iter()
            .filter(|event| event.name == "content_block_start")
            .map(|event| event.json()["content_block"].clone())
            .filter(|block| block["type"] == "web_search_tool_result")
            .collect();
        let titles: Vec<&Value> = results.iter().map(|block| &block["content"][0]["title"]).collect();
        assert_eq!(titles, ["First", "Second"], "{protocol:?}");
        let count = |name: &str| events.iter().filter(|event| event.name == name).count();
        assert_eq!((count("message_start"), count("message_delta")), (1, 1), "{protocol:?}");
    }
}
