//! `tidegate:web_search` where the vendor who serves searches himself: what he is sent, and what becomes of what he found.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, asked, asks, bodies, kinds, message, told};
use crate::harness::{Hand, INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, eventually};
use crate::search::body;

/// Vendors who search: the protocol, what its address ends in, and how they tell of a page without a title.
const VENDORS: [(&str, &str, &str); 3] =
    [("anthropic", "", "Tides"), ("openai-responses", "/v1", "tides.example"), ("gemini", "/v1beta", "Tides")];

pub const LINES: &str = "pricing = { input = 1, output = 2, web_search = 0.01 }\nnative_tools = [\"web_search\"]";
const PLAIN: &str = "pricing = { input = 1, output = 2, web_search = 0.01 }";
const ENGINE: &str = "[tools.web_search.engines.fixed]\nkind = \"static\"\n\
    results = [{ url = \"https://a.example/\", title = \"A\", content = \"The first letter.\" }]\n";
const SAYS: &str = "High water is at six.";
const PAGE: &str = "https://www.tides.example/brest";

fn searches(calls: &[(&str, Value)]) -> Behaviour {
    Behaviour::Searches {
        query: "tides in Brest".into(),
        found: vec![(PAGE.into(), "Tides".into()), ("https://other.example/".into(), "Other".into())],
        text: SAYS.into(),
        calls: calls.iter().map(|(name, input)| ((*name).to_owned(), input.clone())).collect(),
    }
}

async fn gate_at(sim: &Sim, protocol: &str, path: &str, lines: &str, config: &str) -> Tidegate {
    gate_at_address(&format!("{}{path}", sim.base_url()), protocol, lines, config).await
}

async fn gate_at_address(address: &str, protocol: &str, lines: &str, config: &str) -> Tidegate {
    Tidegate::start().protocol_at(MODEL, protocol, address, lines).config(config).run().await
}

fn block<'m>(message: &'m Value, kind: &str) -> &'m Value {
    message["content"].as_array().unwrap().iter().find(|block| block["type"] == kind).unwrap()
}

/// The last body that an upstream was sent.
fn sent(sim: &Sim) -> Value {
    serde_json::from_str(&bodies(sim).pop().unwrap()).unwrap()
}

async fn refused(gate: &Tidegate, body: &Value) -> String {
    let reply = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send().await;
    let (status, kind, _, told) = reply.error();
    assert_eq!((status, &*kind), (400, "invalid_request_error"), "{body}");
    told
}

#[tokio::test]
async fn a_vendors_own_search_is_asked_for_shown_counted_cited_and_charged() {
    for (protocol, path, title) in VENDORS {
        let sim = Sim::start(searches(&[])).await;
        // An engine of ours is there, and is not asked.
        let gate = gate_at(&sim, protocol, path, LINES, ENGINE).await;
        let mut shapes = Vec::new();
        for (stream, engine) in [(false, "auto"), (true, "native")] {
            let case = format!("{protocol} {stream}");
            let answer = message(&asked(&gate, &body(stream, json!({"engine": engine}))).await);
            let (call, result) = (block(&answer, "server_tool_use"), block(&answer, "web_search_tool_result"));
            assert_eq!((&call["name"], &call["input"]), (&json!("web_search"), &json!({"query": "tides in Brest"})));
            assert!(call["id"].as_str().unwrap().starts_with("srvtoolu_"), "{case}");
            assert_eq!(
                (&result["tool_use_id"], &result["caller"]),
                (&call["id"], &json!({"type": "direct"})),
                "{case}"
            );
            let found = result["content"].as_array().unwrap();
            assert_eq!(found.len(), 2, "{case}");
            assert_eq!((&found[0]["url"], &found[0]["title"]), (&json!(PAGE), &json!(title)), "{case}");
            let sealed = found[0]["encrypted_content"].as_str().unwrap();
            assert_eq!(sealed.starts_with("tg1."), protocol != "anthropic", "{case}: {sealed}");
            let text = block(&answer, "text");
            assert_eq!(text["text"], SAYS, "{case}");
            let cited = &text["citations"][0];
            assert_eq!(
                (&cited["type"], &cited["url"], &cited["title"], &cited["cited_text"]),
                (&json!("web_search_result_location"), &json!(PAGE), &json!("Tides"), &json!(SAYS)),
                "{case}"
            );
            let usage = &answer["usage"];
            assert_eq!(usage["server_tool_use"], json!({"web_search_requests": 1, "web_fetch_requests": 0}), "{case}");
            let tokens = usage["input_tokens"].as_f64().unwrap() + 2.0 * usage["output_tokens"].as_f64().unwrap();
            let cost = usage["cost"].as_f64().unwrap();
            assert!((cost - tokens / 1e6 - 0.01).abs() < 1e-10, "{case}: {usage}");
            let data = told(&answer);
            assert_eq!(
                (&data["mode"], &data["engines"]),
                (&json!("native"), &json!({"web_search": "native"})),
                "{case}"
            );
            assert_eq!((&data["calls"], &data["turns"]), (&json!(1), &json!(1)), "{case}");
            assert_eq!(answer["stop_reason"], "end_turn", "{case}");
            shapes.push(kinds(&answer));
        }
        assert_eq!(shapes[0], shapes[1], "{protocol}");
        // Google tells what an answer rests on when it is over.
        let wanted = match protocol {
            "gemini" => ["text", "server_tool_use", "web_search_tool_result"],
            _ => ["server_tool_use", "web_search_tool_result", "text"],
        };
        assert_eq!(shapes[0], wanted, "{protocol}");
        assert_eq!(sim.calls(), 2, "{protocol}: one call each");
    }
}

#[tokio::test]
async fn searches_are_held_for_and_charged_in_full_however_cheap_the_words_are() {
    let cheap = "pricing = { input = 0.05, output = 0.4, web_search = 0.01 }\nnative_tools = [\"web_search\"]";
    for (protocol, path, _) in VENDORS {
        let sim = Sim::start(searches(&[])).await;
        let gate = gate_at(&sim, protocol, path, cheap, "").await;
        let answer = message(&asked(&gate, &body(false, json!({}))).await);
        let usage = &answer["usage"];
        let tokens = 0.05 * usage["input_tokens"].as_f64().unwrap() + 0.4 * usage["output_tokens"].as_f64().unwrap();
        let cost = usage["cost"].as_f64().unwrap();
        assert!((cost - tokens / 1e6 - 0.01).abs() < 1e-10, "{protocol}: {usage}");
        // Ten searches are held: five cents do not pay for them, whatever the words cost.
        let made = json!({"name": "poor", "limit": 0.05}).to_string();
        let made = gate.ask("POST", "/api/v1/keys").key(MANAGEMENT_KEY).json(made).send().await;
        let key = made.json()["key"].as_str().unwrap().to_owned();
        let poor = gate.ask("POST", "/v1/messages").key(&key).json(body(false, json!({})).to_string()).send().await;
        assert_eq!((poor.status, sim.calls()), (402, 1), "{protocol}: {}", poor.body_text());
    }
}

#[tokio::test]
async fn who_leaves_pays_for_the_searches_that_were_made() {
    let hand = Hand::start().await;
    let gate = gate_at_address(&hand.base_url(), "anthropic", LINES, "").await;
    let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body(true, json!({})).to_string());
    let call = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let events = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "usage": {"input_tokens": 10, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": call}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "At six."}}),
    ];
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let (_upstream, mut stream) = tokio::join!(
        async {
            let mut call = hand.call().await.streams().await;
            call.send(&events.iter().map(frame).collect::<String>()).await;
            call
        },
        ask.open()
    );
    stream.until("content_block_delta").await;
    let id = stream.id();
    drop(stream);
    let mut cost = 0.0;
    eventually("it is on record", Duration::from_secs(10), async || {
        let found = gate.managed(&format!("/api/v1/generation?id={id}")).await;
        cost = found.json()["data"]["total_cost"].as_f64().unwrap_or(0.0);
        found.status == 200
    })
    .await;
    // A search, ten tokens and a few words.
    assert!((0.010_010..0.011).contains(&cost), "{cost}");
}

#[tokio::test]
async fn a_vendors_own_tools_go_as_they_came_to_those_who_list_them_and_to_nobody_else() {
    let tools = json!([
        {"type": "web_search_20260318", "name": "web_search", "max_uses": 2, "response_inclusion": "full"},
        {"type": "web_fetch_20250910", "name": "web_fetch"},
    ]);
    let (first, second) = (Sim::start(Behaviour::says("first")).await, Sim::start(searches(&[])).await);
    // The cheaper one speaks the protocol, but lists nothing.
    let both = Tidegate::start()
        .endpoint_with(MODEL, &first, &format!("{PLAIN}\nnative_tools = []"))
        .endpoint_with(MODEL, &second, LINES);
    let both = both.config(ENGINE).run().await;
    let mut asking = body(false, json!({}));
    asking["tools"] = tools.clone();
    message(&asked(&both, &asking).await);
    assert_eq!((first.calls(), &sent(&second)["tools"]), (0, &tools));

    // A search alone is run here for the one, and stays as it is for the other.
    asking["tools"] = json!([tools[0]]);
    first.set(Script::from(asks("", &[("web_search", json!({"query": "a"}))])).then(Behaviour::says("done")));
    let answer = message(&asked(&both, &asking).await);
    assert_eq!(block(&answer, "web_search_tool_result")["content"][0]["url"], "https://a.example/");
    assert_eq!(sent(&first)["tools"][0]["input_schema"]["required"], json!(["query"]));
    first.set(Behaviour::status(529));
    let answer = message(&asked(&both, &asking).await);
    assert_eq!((&sent(&second)["tools"], &block(&answer, "text")["text"]), (&asking["tools"], &json!(SAYS)));

    // Another vendor who lists it searches himself, where its type can be told there.
    let sim = Sim::start(searches(&[])).await;
    let gate = gate_at(&sim, "openai-responses", "/v1", LINES, ENGINE).await;
    let mut told = Vec::new();
    for kind in ["web_search_20250305", "web_search_20260318"] {
        asking["tools"] = json!([{"type": kind, "name": "web_search"}]);
        message(&asked(&gate, &asking).await);
        told.push(sent(&sim)["tools"][0]["type"].clone());
    }
    assert_eq!(told, ["web_search", "function"]);
}

#[tokio::test]
async fn the_plugin_leaves_the_search_to_whoever_lists_it_and_can_keep_to_the_domains() {
    let sim = Sim::start(searches(&[])).await;
    let openai = gate_at(&sim, "openai-responses", "/v1", LINES, "").await;
    let mut asking = body(false, json!({}));
    asking.as_object_mut().unwrap().remove("tools");
    asking["plugins"] = json!([{"id": "web", "include_domains": ["tides.example"]}]);
    let answer = message(&asked(&openai, &asking).await);
    let filters = json!({"allowed_domains": ["tides.example"]});
    assert_eq!(sent(&sim)["tools"], json!([{"type": "web_search", "filters": filters}]));
    assert_eq!(answer["tidegate_metadata"]["pipeline"][0]["data"]["native"], true);

    // Google keeps to none: an engine of ours does, and who wants nothing else is refused.
    let google = gate_at(&sim, "gemini", "/v1beta", LINES, ENGINE).await;
    let answer = message(&asked(&google, &asking).await);
    assert_eq!(answer["tidegate_metadata"]["pipeline"][0]["data"]["engine"], "fixed");
    asking["plugins"][0]["engine"] = json!("native");
    assert!(refused(&google, &asking).await.starts_with("Invalid request: plugins[0].engine is native"));
}

#[tokio::test]
async fn each_vendor_is_told_what_its_search_takes() {
    let parameters = json!({
        "max_uses": 3, "max_results": 9, "allowed_domains": ["tides.example"],
        "user_location": {"city": "Brest", "country": "FR"},
    });
    let place = json!({"type": "approximate", "city": "Brest", "country": "FR"});
    let sim = Sim::start(searches(&[])).await;
    let gate = gate_at(&sim, "anthropic", "", LINES, "").await;
    let mut asking = body(false, parameters.clone());
    asking["tools"][0]["cache_control"] = json!({"type": "ephemeral"});
    message(&asked(&gate, &asking).await);
    let tool = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 3,
        "allowed_domains": ["tides.example"], "user_location": place, "cache_control": {"type": "ephemeral"}});
    assert_eq!(sent(&sim)["tools"], json!([tool]));
    asking["tools"][0]["parameters"] = json!({"excluded_domains": ["b.example"]});
    message(&asked(&gate, &asking).await);
    assert_eq!(sent(&sim)["tools"][0]["blocked_domains"], json!(["b.example"]));

    let gate = gate_at(&sim, "openai-responses", "/v1", LINES, "").await;
    let mut asking = body(false, parameters);
    asking["tool_choice"] = json!({"type": "tool", "name": "tidegate:web_search"});
    message(&asked(&gate, &asking).await);
    let (filters, body_sent) = (json!({"allowed_domains": ["tides.example"]}), sent(&sim));
    assert_eq!(body_sent["tools"], json!([{"type": "web_search", "filters": filters, "user_location": place}]));
    let chosen = json!({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]});
    assert_eq!(body_sent["tool_choice"], chosen);
    assert_eq!(body_sent["include"], json!(["web_search_call.action.sources"]));

    let gate = gate_at(&sim, "gemini", "/v1beta", LINES, "").await;
    message(&asked(&gate, &body(false, json!({"max_uses": 3}))).await);
    assert_eq!(sent(&sim)["tools"], json!([{"googleSearch": {}}]));

    // xAI takes domains to leave out, but only five, and only one list.
    let provider = format!(
        "[[providers]]\nslug = \"xai\"\nbase_url = \"{}/v1\"\nprotocol = \"openai-responses\"\napi_key = \"k\"\n\
         [[models]]\nid = \"x-ai/grok\"\ncontext_length = 9000\nmax_output_tokens = 900\n\
         [[models.endpoints]]\nprovider = \"xai\"\nmodel = \"grok\"\n{LINES}\n",
        sim.base_url()
    );
    let gate = Tidegate::start().config(&provider).run().await;
    let mut asking = body(false, json!({"excluded_domains": ["b.example"]}));
    asking["model"] = json!("x-ai/grok");
    asking["max_tokens"] = json!(100);
    message(&asked(&gate, &asking).await);
    let filters = json!({"excluded_domains": ["b.example"]});
    assert_eq!(sent(&sim)["tools"], json!([{"type": "web_search", "filters": filters}]));
    for wrong in [
        json!({"excluded_domains": ["b.example"], "allowed_domains": ["a.example"]}),
        json!({"allowed_domains": ["a.b", "b.b", "c.b", "d.b", "e.b", "f.b"]}),
    ] {
        asking["tools"][0]["parameters"] = wrong;
        let problem = "cannot be kept to by the native search there: x-ai/grok";
        let wanted = format!("Invalid request: tools[0].parameters.allowed_domains {problem}");
        assert_eq!(refused(&gate, &asking).await, wanted);
    }
}

#[tokio::test]
async fn a_model_that_searches_by_itself_is_told_nothing() {
    let sim = Sim::start(Behaviour::says(SAYS)).await;
    let lines = format!("{LINES}\nsupported_parameters = [\"max_tokens\"]");
    let gate = gate_at(&sim, "openai-chat", "/v1", &lines, "").await;
    for stream in [false, true] {
        let answer = message(&asked(&gate, &body(stream, json!({}))).await);
        assert_eq!(kinds(&answer), ["text"]);
        assert!(sent(&sim).get("tools").is_none() && sent(&sim).get("tool_choice").is_none());
    }
    // With other tools it cannot serve, because it takes none.
    let mut asking = body(false, json!({}));
    asking["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
    assert_eq!(asked(&gate, &asking).await.status, 404);
}

#[tokio::test]
async fn an_engine_searches_where_the_vendor_cannot_and_without_one_it_is_refused() {
    let filtered = json!({"allowed_domains": ["a.example"]});
    let sim = Sim::start(Behaviour::Echo).await;
    let gemini = ("gemini", "/v1beta");
    let gate = gate_at(&sim, gemini.0, gemini.1, LINES, ENGINE).await;
    let by_engine = |answer: &Value| {
        assert_eq!(kinds(answer), ["server_tool_use", "web_search_tool_result", "text"], "{answer}");
        assert_eq!(told(answer)["mode"], "sdk");
        assert_eq!(told(answer)["engines"]["web_search"], "fixed");
    };
    let script = || Script::from(asks("", &[("web_search", json!({"query": "a"}))])).then(Behaviour::says("A."));
    for stream in [false, true] {
        // Google keeps to no domains, and its search does not stand beside other tools.
        sim.set(script());
        by_engine(&message(&asked(&gate, &body(stream, filtered.clone())).await));
        for engine in ["auto", "native"] {
            let mut asking = body(stream, json!({"engine": engine}));
            asking["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
            sim.set(script());
            by_engine(&message(&asked(&gate, &asking).await));
        }
    }
    let mut strict = filtered.clone();
    strict["engine"] = json!("native");
    let problem = format!("cannot be kept to by the native search there: {MODEL}");
    let wanted = format!("Invalid request: tools[0].parameters.allowed_domains {problem}");
    assert_eq!(refused(&gate, &body(false, strict.clone())).await, wanted);
    // Who does not search at all has it done for him, whatever word is used.
    let plain = gate_at(&sim, "openai-chat", "/v1", PLAIN, ENGINE).await;
    sim.set(script());
    by_engine(&message(&asked(&plain, &body(false, strict)).await));

    let alone = gate_at(&sim, gemini.0, gemini.1, LINES, "").await;
    assert_eq!(refused(&alone, &body(false, filtered)).await, wanted);
    let mut mixed = body(false, json!({}));
    mixed["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
    let wanted = format!("Invalid request: tidegate:web_search cannot stand beside other tools on {MODEL}");
    assert_eq!(refused(&alone, &mixed).await, wanted);
    // One to fall back to that searches itself is enough, in whatever list it stands.
    let start = Tidegate::start().protocol_at("vendor/plain", "openai-chat", &format!("{}/v1", sim.base_url()), PLAIN);
    let either = start.protocol_at(MODEL, gemini.0, &format!("{}{}", sim.base_url(), gemini.1), LINES).run().await;
    for (list, entry) in [("models", json!(MODEL)), ("fallbacks", json!({"model": MODEL}))] {
        let mut asking = body(false, json!({}));
        asking["model"] = json!("vendor/plain");
        asking[list] = json!([entry]);
        sim.set(Behaviour::says("A."));
        let reply = asked(&either, &asking).await;
        assert_eq!((reply.status, &reply.json()["model"]), (200, &json!(MODEL)), "{list}: {}", reply.body_text());
    }
    let nobody = gate_at(&sim, gemini.0, gemini.1, PLAIN, "").await;
    for engine in ["auto", "native", "exa"] {
        let wanted = "tidegate:web_search is not configured on this deployment";
        assert_eq!(refused(&nobody, &body(false, json!({"engine": engine}))).await, wanted);
    }
}

#[tokio::test]
async fn who_searches_otherwise_gets_the_tool_in_its_own_form() {
    // The first endpoint searches himself and fails; the second has it done for him.
    let (first, second) = (Sim::start(Behaviour::status(503)).await, Sim::start(Behaviour::Echo).await);
    let start = |config: &str| {
        Tidegate::start()
            .protocol_at(MODEL, "openai-responses", &format!("{}/v1", first.base_url()), LINES)
            .protocol_at(MODEL, "anthropic", &second.base_url(), PLAIN)
            .config(config)
            .run()
    };
    let gate = start(ENGINE).await;
    let mut asking = body(false, json!({}));
    asking["provider"] = json!({"order": ["p0", "p1"]});
    second.set(
        Script::from(asks("", &[("web_search", json!({"query": "a"}))])).then(Behaviour::says("https://a.example/")),
    );
    let answer = message(&asked(&gate, &asking).await);
    assert_eq!(kinds(&answer), ["server_tool_use", "web_search_tool_result", "text"]);
    assert_eq!(sent(&first)["tools"][0]["type"], "web_search");
    assert_eq!(
        (&sent(&second)["tools"][0]["name"], &sent(&second)["tools"][0]["type"]),
        (&json!("web_search"), &Value::Null)
    );

    // Without an engine nobody but the first can serve.
    let gate = start("").await;
    let before = second.calls();
    assert_eq!(asked(&gate, &asking).await.status, 503);
    assert_eq!(second.calls(), before);
    first.set(searches(&[]));
    let answer = message(&asked(&gate, &body(true, json!({}))).await);
    assert_eq!(kinds(&answer), ["server_tool_use", "web_search_tool_result", "text"]);
    assert_eq!(second.calls(), before);
}

#[tokio::test]
async fn searches_of_the_vendor_stand_beside_tools_that_run_here() {
    for (protocol, path) in [("anthropic", ""), ("openai-responses", "/v1")] {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_at(&sim, protocol, path, LINES, "").await;
        for stream in [false, true] {
            let case = format!("{protocol} {stream}");
            let clock = ("tidegate_datetime", json!({"timezone": "UTC"}));
            sim.set(Script::from(searches(&[clock])).then(searches(&[])));
            let mut asking = body(stream, json!({}));
            asking["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
            let answer = message(&asked(&gate, &asking).await);
            let (call, result) = ("server_tool_use", "web_search_tool_result");
            assert_eq!(kinds(&answer), [call, result, "text", call, call, result, "text"], "{case}: {answer}");
            assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 2, "{case}");
            let data = told(&answer);
            assert_eq!(
                (&data["mode"], &data["calls"], &data["turns"]),
                (&json!("sdk"), &json!(3), &json!(2)),
                "{case}"
            );
            assert_eq!(data["engines"], json!({"web_search": "native"}), "{case}");
            assert_eq!(data["stopped_by"], Value::Null, "{case}");
            // The second turn has what the first one found.
            assert!(sent(&sim).to_string().contains(PAGE), "{case}: {}", sent(&sim));
        }
    }
}

#[tokio::test]
async fn a_search_that_is_broken_off_is_gone_on_with_where_it_was() {
    let call =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}});
    let text = json!({"type": "text", "text": "I look it up."});
    let paused = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "pause_turn",
        "stop_sequence": null, "content": [text, call], "usage": {"input_tokens": 5, "output_tokens": 7},
    });
    let paused = Behaviour::Raw {
        status: 200,
        headers: vec![("content-type".into(), "application/json".into())],
        body: paused.to_string().into(),
    };
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_at(&sim, "anthropic", "", LINES, ENGINE).await;
    sim.set(Script::from(paused).then(searches(&[])));
    let answer = message(&asked(&gate, &body(false, json!({}))).await);
    let said = sent(&sim)["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(said, json!({"role": "assistant", "content": [text, call]}), "as it came");
    let wanted = ["text", "server_tool_use", "server_tool_use", "web_search_tool_result", "text"];
    assert_eq!((kinds(&answer), &answer["stop_reason"]), (wanted.map(str::to_owned).to_vec(), &json!("end_turn")));
}

#[tokio::test]
async fn a_search_of_the_vendor_is_a_call_to_stop_conditions() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_at(&sim, "anthropic", "", LINES, "").await;
    let clock = || ("tidegate_datetime", json!({"timezone": "UTC"}));
    for name in ["web_search", "tidegate:web_search"] {
        sim.set(Script::from(searches(&[clock()])).then(searches(&[clock()])));
        let mut asking = body(false, json!({}));
        asking["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:datetime"}));
        asking["stop_server_tools_when"] = json!([{"type": "has_tool_call", "tool_name": name}]);
        let answer = message(&asked(&gate, &asking).await);
        assert_eq!(told(&answer)["stopped_by"], "has_tool_call", "{name}");
        assert_eq!(sent(&sim)["tool_choice"], json!({"type": "none"}), "{name}");
        assert_eq!(told(&answer)["turns"], 2, "{name}");
    }
}

#[tokio::test]
async fn what_a_vendor_found_goes_back_to_him_and_to_any_other() {
    let other = Sim::start(Behaviour::says("Yes.")).await;
    for (protocol, path, title) in VENDORS {
        let sim = Sim::start(searches(&[])).await;
        let others = [("openai-chat", "/v1"), ("anthropic", ""), ("gemini", "/v1beta")];
        let mut start = Tidegate::start().protocol_at(MODEL, protocol, &format!("{}{path}", sim.base_url()), LINES);
        for (other_protocol, other_path) in others {
            let (name, address) = (format!("vendor/{other_protocol}"), format!("{}{other_path}", other.base_url()));
            start = start.protocol_at(&name, other_protocol, &address, PLAIN);
        }
        let gate = start.config(ENGINE).run().await;
        let first = body(false, json!({}));
        let answer = message(&asked(&gate, &first).await);
        let next = |model: &str, with_tool: bool| {
            let mut next = first.clone();
            next["model"] = json!(model);
            let said = json!({"role": "assistant", "content": answer["content"]});
            next["messages"] = json!([first["messages"][0], said, {"role": "user", "content": "Thanks."}]);
            if !with_tool {
                next.as_object_mut().unwrap().remove("tools");
            }
            next
        };
        message(&asked(&gate, &next(MODEL, true)).await);
        let back = sent(&sim);
        if protocol == "anthropic" {
            assert_eq!(back["messages"][1]["content"], answer["content"], "he alone can read it");
        } else {
            let text = back.to_string();
            assert!(text.contains(PAGE) && text.contains(title) && !text.contains("tg1."), "{protocol}: {text}");
        }
        for (other_protocol, _) in others {
            for with_tool in [true, false] {
                let case = format!("{protocol} to {other_protocol}, {with_tool}");
                message(&asked(&gate, &next(&format!("vendor/{other_protocol}"), with_tool)).await);
                let text = sent(&other).to_string();
                // Who speaks the format gets blocks that we cannot read as they are, unless the tool is ours.
                let is_raw = protocol == "anthropic" && other_protocol == "anthropic" && !with_tool;
                assert_eq!(text.contains("server_tool_use"), is_raw, "{case}: {text}");
                assert!(text.contains(PAGE) && text.contains(title) && !text.contains("tg1."), "{case}: {text}");
            }
        }
    }
}
