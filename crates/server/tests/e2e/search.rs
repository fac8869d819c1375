//! Searching the web: the real binary, an engine on loopback, and what the client and the model see of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message, told};
use crate::harness::{INFERENCE_KEY, Reply, Tidegate, eventually, hello};
use crate::native_search;

/// Somebody's SearXNG. It answers every question with the same bytes.
pub struct Searx {
    address: SocketAddr,
    answer: Arc<Mutex<Vec<u8>>>,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Searx {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, asked) = (Arc::<Mutex<Vec<u8>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let mut serving = JoinSet::new();
        let (bytes, log) = (answer.clone(), asked.clone());
        serving.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(read @ 1..) => head.extend_from_slice(&buffer[..read]),
                        _ => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                log.lock().unwrap_or_else(PoisonError::into_inner).push(head.lines().next().unwrap_or_default().into());
                let answer = bytes.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let _ = stream.write_all(&answer).await;
            }
        });
        let searx = Self { address, answer, asked, _serving: serving };
        searx.finds(&results());
        searx
    }

    fn says(&self, status: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = [head.as_bytes(), body].concat();
    }

    fn finds(&self, results: &Value) {
        self.says("200 OK", json!({"query": "x", "results": results}).to_string().as_bytes());
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn config(&self) -> String {
        format!("[tools.web_search.engines.house]\nkind = \"searxng\"\nurl = \"http://{}\"\n", self.address)
    }
}

fn results() -> Value {
    json!([
        {"url": "https://tides.example/brest", "title": "Tides", "content": "Low water at noon. High water in Brest is at six.", "publishedDate": "2026-08-24"},
        {"url": "https://other.example/", "title": "Other", "content": "Nothing of interest."},
    ])
}

pub fn look(query: &str) -> (&'static str, Value) {
    ("web_search", json!({"query": query}))
}

pub fn body(stream: bool, parameters: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:web_search", "parameters": parameters}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

/// Its blocks without thinking, which some protocols carry signatures in.
fn blocks(message: &Value) -> Vec<&Value> {
    message["content"].as_array().unwrap().iter().filter(|block| block["type"] != "thinking").collect()
}

/// The text of the last result that an upstream of the Messages protocol was sent.
fn heard(sim: &Sim) -> String {
    let sent: Value = serde_json::from_str(&bodies(sim).pop().unwrap()).unwrap();
    let blocks =
        sent["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array()).flatten();
    let mut results = blocks.filter(|block| block["type"] == "tool_result");
    results.next_back().unwrap()["content"].as_str().unwrap().to_owned()
}

const SAYS: &str = "High water is at six ([tides.example](https://tides.example/brest)).";

#[tokio::test]
async fn a_search_is_run_shown_counted_and_cited_on_every_protocol() {
    for protocol in PROTOCOLS {
        let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
        let gate = gate_for(&sim, protocol, &searx.config()).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(asks("Let me look.", &[look("tides & brest")])).then(Behaviour::says(SAYS)));
            let answer = message(&asked(&gate, &body(stream, json!({}))).await);
            assert_eq!(
                kinds(&answer),
                ["text", "server_tool_use", "web_search_tool_result", "text"],
                "{case}: {answer}"
            );
            let blocks = blocks(&answer);
            let (call, result, text) = (blocks[1], blocks[2], blocks[3]);
            assert_eq!((&call["name"], &call["input"]), (&json!("web_search"), &look("tides & brest").1), "{case}");
            assert_eq!(result["tool_use_id"], call["id"], "{case}");
            assert_eq!(result["caller"], json!({"type": "direct"}), "{case}");
            let found = result["content"].as_array().unwrap();
            assert_eq!(found.len(), 2, "{case}");
            for (one, (url, title, age)) in found.iter().zip([
                ("https://tides.example/brest", "Tides", json!("2026-08-24")),
                ("https://other.example/", "Other", Value::Null),
            ]) {
                assert_eq!(
                    (&one["type"], &one["url"], &one["title"], &one["page_age"]),
                    (&json!("web_search_result"), &json!(url), &json!(title), &age),
                    "{case}"
                );
                let sealed = one["encrypted_content"].as_str().unwrap();
                assert!(sealed.starts_with("tg1.") && !sealed.contains("Brest"), "{case}");
            }
            assert_eq!(text["text"], SAYS, "{case}");
            let citation = json!({"type": "web_search_result_location", "url": "https://tides.example/brest",
                "title": "Tides", "cited_text": "High water in Brest is at six.", "encrypted_index": "tg1"});
            assert_eq!(text["citations"], json!([citation]), "{case}");
            assert_eq!(
                answer["usage"]["server_tool_use"],
                json!({"web_search_requests": 1, "web_fetch_requests": 0}),
                "{case}"
            );
            assert_eq!(told(&answer)["engines"], json!({"web_search": "house"}), "{case}");
            assert_eq!(searx.asked().last().unwrap(), "GET /search?q=tides+%26+brest&format=json HTTP/1.1", "{case}");
            let second = bodies(&sim).pop().unwrap();
            assert!(
                second.contains("High water in Brest is at six.") && second.contains("untrusted data"),
                "{case}: {second}"
            );
        }
    }
}

#[tokio::test]
async fn results_that_come_back_are_told_in_the_same_words_and_others_by_title_and_address() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let other = Sim::start(Behaviour::Echo).await;
    let lines = "pricing = { input = 1, output = 2 }";
    let gate = Tidegate::start()
        .protocol_at(MODEL, "anthropic", &sim.base_url(), lines)
        .protocol_at("vendor/other", "openai-chat", &format!("{}/v1", other.base_url()), lines)
        .config(&searx.config())
        .run()
        .await;
    sim.set(Script::from(asks("", &[look("tides")])).then(Behaviour::says(SAYS)));
    let first = body(true, json!({}));
    let answer = message(&asked(&gate, &first).await);
    let said = heard(&sim);
    let again = |content: &Value, model: &str| {
        let mut next = body(false, json!({}));
        next["model"] = json!(model);
        let said = json!({"role": "assistant", "content": content});
        next["messages"] = json!([first["messages"][0], said, {"role": "user", "content": "Thanks."}]);
        next
    };
    sim.set(Behaviour::says("Yes."));
    message(&asked(&gate, &again(&answer["content"], MODEL)).await);
    assert_eq!(heard(&sim), said);
    // Another vendor reads it, too.
    other.set(Behaviour::says("Yes."));
    message(&asked(&gate, &again(&answer["content"], "vendor/other")).await);
    assert!(bodies(&other).pop().unwrap().contains("High water in Brest is at six."));
    // What somebody else sealed, or nobody, cannot be read.
    for sealed in ["EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1kNjNjNTk1ZWI3Y", "tg1.AAAA", "tg1.!", ""] {
        let mut content = answer["content"].clone();
        for one in content[1]["content"].as_array_mut().unwrap() {
            one["encrypted_content"] = json!(sealed);
        }
        message(&asked(&gate, &again(&content, MODEL)).await);
        let heard = heard(&sim);
        assert!(heard.contains("https://tides.example/brest") && heard.contains("Tides"), "{sealed}: {heard}");
        assert!(!heard.contains("High water"), "{sealed}: {heard}");
    }
}

#[tokio::test]
async fn an_engine_that_fails_is_a_result_and_never_an_error_of_the_request() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &searx.config()).await;
    let deep = "[".repeat(200_000);
    let long = vec![b' '; 9 << 20];
    let table: [(&str, &[u8], &str); 7] = [
        ("500 Oops", b"", "unavailable"),
        ("403 Forbidden", b"{}", "unavailable"),
        ("302 Found\r\nlocation: http://169.254.169.254/", b"", "unavailable"),
        ("429 Slowly", b"", "too_many_requests"),
        ("200 OK", b"<html>not JSON</html>", "unavailable"),
        ("200 OK", deep.as_bytes(), "unavailable"),
        ("200 OK", &long, "unavailable"),
    ];
    for (status, bytes, code) in table {
        searx.says(status, bytes);
        for stream in [false, true] {
            sim.set(Script::from(asks("", &[look("tides")])).then(Behaviour::says("I could not search.")));
            let answer = message(&asked(&gate, &body(stream, json!({}))).await);
            assert_eq!(kinds(&answer), ["server_tool_use", "web_search_tool_result", "text"], "{status}");
            let wanted = json!({"type": "web_search_tool_result_error", "error_code": code});
            assert_eq!(answer["content"][1]["content"], wanted, "{status}");
            assert_eq!((&answer["stop_reason"], &told(&answer)["errors"]), (&json!("end_turn"), &json!(1)), "{status}");
            assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 0, "{status}");
            assert!(heard(&sim).contains(code), "{status}");
        }
    }
    // One that is not there at all; and what comes back is told in the same words.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = format!("[tools.web_search.engines.house]\nkind = \"searxng\"\nurl = \"http://{closed}\"\n");
    let gate = gate_for(&sim, PROTOCOLS[0], &config).await;
    sim.set(Script::from(asks("", &[look("tides")])).then(Behaviour::says("I could not search.")));
    let answer = message(&asked(&gate, &body(false, json!({}))).await);
    assert_eq!(answer["content"][1]["content"]["error_code"], "unavailable");
    let said = heard(&sim);
    let mut next = body(false, json!({}));
    next["messages"] = json!([next["messages"][0], {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": "And now?"}]);
    message(&asked(&gate, &next).await);
    assert_eq!(heard(&sim), said);
}

#[tokio::test]
async fn searches_and_results_end_where_the_request_says() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &searx.config()).await;
    let shown = |answer: &Value| -> Vec<Value> {
        let results =
            answer["content"].as_array().unwrap().iter().filter(|block| block["type"] == "web_search_tool_result");
        results
            .map(|block| {
                block["content"]
                    .as_array()
                    .map_or_else(|| block["content"]["error_code"].clone(), |list| json!(list.len()))
            })
            .collect()
    };
    // What is asked for, and what each of three searches of one turn shows.
    let error = |code: &str| json!(code);
    let table = [
        (json!({}), [json!(2), json!(2), json!(2)], 3),
        (json!({"max_results": 1}), [json!(1), json!(1), json!(1)], 3),
        (json!({"max_uses": 2}), [json!(2), json!(2), error("max_uses_exceeded")], 2),
        (json!({"max_results": 2, "max_total_results": 3}), [json!(2), json!(1), json!(0)], 2),
        (json!({"allowed_domains": ["tides.example"]}), [json!(1), json!(1), json!(1)], 3),
        (json!({"excluded_domains": ["*.example", "tides.example/brest"]}), [json!(0), json!(0), json!(0)], 3),
    ];
    for (parameters, wanted, searches) in table {
        for stream in [false, true] {
            let calls = [look("one"), look("two"), look("three")];
            sim.set(Script::from(asks("", &calls)).then(Behaviour::says("done")));
            let answer = message(&asked(&gate, &body(stream, parameters.clone())).await);
            assert_eq!(shown(&answer), wanted, "{parameters}");
            assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], searches, "{parameters}");
        }
    }
    // What a model asks for without sense is told so.
    for (input, code) in [
        (json!({}), "invalid_tool_input"),
        (json!({"query": " "}), "invalid_tool_input"),
        (json!({"query": 7}), "invalid_tool_input"),
        (json!({"query": "x".repeat(1001)}), "query_too_long"),
    ] {
        sim.set(Script::from(asks("", &[("web_search", input.clone())])).then(Behaviour::says("done")));
        let answer = message(&asked(&gate, &body(false, json!({}))).await);
        assert_eq!(shown(&answer), [json!(code)], "{input}");
    }
    // A text that refers to nothing says so, and one before the first search says nothing about it.
    for stream in [false, true] {
        sim.set(Script::from(asks("Let me look.", &[look("one")])).then(Behaviour::says("No link here.")));
        let answer = message(&asked(&gate, &body(stream, json!({}))).await);
        let blocks = blocks(&answer);
        assert!(blocks[0].get("citations").is_none_or(Value::is_null), "{answer}");
        assert_eq!(blocks[3]["citations"], json!([]));
    }
}

const FIXED: &str = "[tools.web_search.engines.fixed]\nkind = \"static\"\n\
    results = [{ url = \"https://a.example/\", title = \"A\", content = \"The first letter.\" }]\n";

#[tokio::test]
async fn what_is_wrong_with_a_search_is_said_by_its_path() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], FIXED).await;
    let refused = async |gate: &Tidegate, tools: Value| -> String {
        let mut body = body(false, json!({}));
        body["tools"] = tools;
        let reply: Reply = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send().await;
        let (status, kind, _, told) = reply.error();
        assert_eq!((status, &*kind), (400, "invalid_request_error"), "{body}");
        told
    };
    let table = [
        (json!({"engine": 7}), "engine must be a string"),
        (json!({"engine": "gopher"}), "engine must be one of auto, native, fixed"),
        (json!({"max_results": 0}), "max_results must be at least 1"),
        (json!({"max_results": 26}), "max_results must be at most 25"),
        (json!({"max_results": 1.5}), "max_results must be an integer"),
        (json!({"max_total_results": -1}), "max_total_results must be at least 1"),
        (json!({"max_uses": "2"}), "max_uses must be an integer"),
        (json!({"max_characters": 100_001}), "max_characters must be at most 100000"),
        (json!({"search_context_size": "huge"}), "search_context_size must be one of low, medium, high"),
        (json!({"allowed_domains": "a.org"}), "allowed_domains must be an array"),
        (
            json!({"excluded_domains": ["a.org", "https://b.org"]}),
            "excluded_domains[1] must be a domain such as example.org, *.example.org or example.org/path",
        ),
        (json!({"user_location": "Paris"}), "user_location must be an object"),
        (json!({"user_location": {"type": "exact"}}), "user_location.type must be approximate"),
        (json!({"user_location": {"city": 7}}), "user_location.city must be a string"),
    ];
    for (parameters, message) in table {
        let told = refused(&gate, json!([{"type": "tidegate:web_search", "parameters": parameters}])).await;
        assert_eq!(told, format!("Invalid request: tools[0].parameters.{message}"));
    }
    let own = json!({"name": "web_search", "input_schema": {"type": "object"}});
    assert_eq!(refused(&gate, json!([{"type": "tidegate:web_search"}, own])).await, "tool name conflict: web_search");
    let missing = "tidegate:web_search is not configured on this deployment";
    let named = json!([{"type": "tidegate:web_search", "parameters": {"engine": "exa"}}]);
    assert_eq!(refused(&gate, named).await, missing);
    let plain = gate_for(&sim, PROTOCOLS[0], "").await;
    assert_eq!(refused(&plain, json!([{"type": "tidegate:web_search"}])).await, missing);
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn a_vendors_search_is_run_here_where_nobody_has_it() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, FIXED).await;
        let tool = json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 1, "blocked_domains": ["b.example"]});
        let mut asking = body(false, json!({}));
        asking["tools"] = json!([tool]);
        asking["tool_choice"] = json!({"type": "tool", "name": "web_search"});
        for stream in [false, true] {
            asking["stream"] = json!(stream);
            sim.set(Script::from(asks("", &[look("a"), look("b")])).then(Behaviour::says("See https://a.example/.")));
            let answer = message(&asked(&gate, &asking).await);
            let kinds = kinds(&answer);
            let result = "web_search_tool_result";
            assert_eq!(kinds, ["server_tool_use", "server_tool_use", result, result, "text"], "{protocol:?}");
            let blocks = blocks(&answer);
            assert_eq!(blocks[2]["content"][0]["url"], "https://a.example/", "{protocol:?}");
            assert_eq!(blocks[3]["content"]["error_code"], "max_uses_exceeded", "{protocol:?}");
            assert_eq!(blocks[4]["citations"][0]["cited_text"], "The first letter.", "{protocol:?}");
        }
    }
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[1], "").await;
    let mut asking = body(false, json!({}));
    asking["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    let (status, _, _, told) = asked(&gate, &asking).await.error();
    assert_eq!((status, &*told), (400, "web_search_20250305 is not configured on this deployment"));
}

#[tokio::test]
async fn a_search_that_costs_something_is_held_charged_told_and_kept_when_the_request_fails() {
    // Two results are found: five thousandths for the call, and for one of them two thousandths and a nano-dollar more.
    const FEE: f64 = 0.007000001;
    const PRICED: &str = "price_per_call = 0.005\nincluded_results = 1\nprice_per_extra_result = 0.002000001\n";
    for protocol in PROTOCOLS {
        let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
        let gate = gate_for(&sim, protocol, &format!("{}{PRICED}", searx.config())).await;
        let spent = async || {
            let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
            key["data"]["usage"].as_f64().unwrap()
        };
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(asks("", &[look("a"), look("b")])).then(Behaviour::says("Done.")));
            let before = spent().await;
            let reply = asked(&gate, &body(stream, json!({}))).await;
            let answer = message(&reply);
            let usage = &answer["usage"];
            let tokens = usage["input_tokens"].as_f64().unwrap() + 2.0 * usage["output_tokens"].as_f64().unwrap();
            let cost = usage["cost"].as_f64().unwrap();
            assert!((cost - tokens / 1e6 - 2.0 * FEE).abs() < 1e-10, "{case}: {usage}");
            let pipeline = answer["tidegate_metadata"]["pipeline"].as_array().unwrap();
            let entry = pipeline.iter().find(|entry| entry["type"] == "server_tools").unwrap();
            assert_eq!(entry["cost_usd"], json!(0.014000002), "{case}");
            assert!((spent().await - before - cost).abs() < 1e-10, "{case}");
            let id = reply.header("x-generation-id").unwrap();
            let record = gate.ask("GET", &format!("/api/v1/generation?id={id}")).key(INFERENCE_KEY).send().await.json();
            assert!((record["data"]["total_cost"].as_f64().unwrap() - cost).abs() < 1e-10, "{case}: {record}");
            assert_eq!(record["data"]["finish_reason"], "end_turn", "{case}");

            // An engine that fails costs nothing.
            searx.says("500 Oops", b"");
            sim.set(Script::from(asks("", &[look("a")])).then(Behaviour::says("Done.")));
            let answer = message(&asked(&gate, &body(stream, json!({}))).await);
            assert!(answer["usage"]["cost"].as_f64().unwrap() < 0.005, "{case}: {answer}");
            searx.finds(&results());

            // The fee stays when the turn after it fails.
            sim.set(Script::from(asks("", &[look("a")])).then(Behaviour::status(500)));
            let before = spent().await;
            asked(&gate, &body(stream, json!({}))).await;
            let charged = spent().await - before;
            assert!((FEE..FEE + 0.001).contains(&charged), "{case}: {charged}");
        }
        let verified = gate.place.run(&["ledger", "verify"]).await;
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    }
}

#[tokio::test]
async fn a_search_that_nobody_can_pay_for_is_not_made() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("{}price_per_call = 0.5\n", searx.config())).await;
    let made = gate.place.run(&["keys", "create", "--name", "poor", "--limit", "0.1"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", std::time::Duration::from_secs(10), is_known).await;
    sim.set(Script::from(asks("", &[look("a")])).then(Behaviour::says("Done.")));
    let reply = gate.ask("POST", "/v1/messages").key(&key).json(body(false, json!({})).to_string()).send().await;
    let answer = message(&reply);
    assert_eq!(blocks(&answer)[1]["content"]["error_code"], "unavailable", "{answer}");
    assert_eq!(searx.asked().len(), 0);
}

#[tokio::test]
async fn results_that_come_back_without_a_search_are_opened_for_everybody() {
    for protocol in PROTOCOLS {
        let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
        let gate = gate_for(&sim, protocol, &searx.config()).await;
        sim.set(Script::from(asks("Let me look.", &[look("tides")])).then(Behaviour::says(SAYS)));
        let answer = message(&asked(&gate, &body(false, json!({}))).await);
        for (stream, tools) in [(false, None), (true, None), (false, Some(json!([{"type": "tidegate:datetime"}])))] {
            let case = format!("{protocol:?} {stream} {tools:?}");
            let mut next = hello(MODEL);
            next["stream"] = json!(stream);
            if let Some(tools) = tools {
                next["tools"] = tools;
            }
            next["messages"] = json!([
                {"role": "user", "content": "When is high water?"},
                {"role": "assistant", "content": answer["content"]},
                {"role": "user", "content": "Thanks."},
            ]);
            sim.set(Behaviour::says("Any time."));
            assert_eq!(asked(&gate, &next).await.status, 200, "{case}");
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("High water in Brest is at six.") && sent.contains("Thanks."), "{case}: {sent}");
            assert!(!sent.contains("tg1.") && !sent.contains("encrypted_content"), "{case}: {sent}");
        }
    }
    // What others sealed goes to those who can read it, to the letter.
    let sim = Sim::start(Behaviour::says("Any time.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let mut next = hello(MODEL);
    let result =
        json!({"type": "web_search_result", "url": "https://a.example/", "title": "A", "encrypted_content": "Eqg="});
    next["messages"] = json!([
        {"role": "user", "content": "When is high water?"},
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [result]}]},
        {"role": "user", "content": "Thanks."},
    ]);
    assert_eq!(asked(&gate, &next).await.status, 200);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    assert_eq!(sent["messages"], next["messages"]);
}

fn online(stream: bool, plugin: Value) -> Value {
    let mut body = hello(MODEL);
    body["messages"][0]["content"] = json!(format!("When is high water in Brest? {}", "x".repeat(500)));
    (body["stream"], body["max_tokens"]) = (json!(stream), json!(1000));
    if plugin.is_object() {
        body["plugins"] = json!([plugin]);
    }
    body
}

#[tokio::test]
async fn the_plugin_searches_once_before_the_turn_and_the_answer_cites_on_every_protocol() {
    for protocol in PROTOCOLS {
        let (sim, searx) = (Sim::start(Behaviour::says(SAYS)).await, Searx::start().await);
        let gate = gate_for(&sim, protocol, &searx.config()).await;
        for (number, stream) in [false, true].into_iter().enumerate() {
            let case = format!("{protocol:?} {stream}");
            let plugin = json!({"id": "web", "engine": "house", "max_results": 1, "search_prompt": "Of {date}:"});
            let answer = message(&asked(&gate, &online(stream, plugin)).await);
            assert_eq!(kinds(&answer), ["text"], "{case}");
            let cited = &blocks(&answer)[0]["citations"];
            let url = "https://tides.example/brest";
            assert_eq!(
                (&cited[0]["type"], &cited[0]["url"]),
                (&json!("web_search_result_location"), &json!(url)),
                "{case}"
            );
            assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 1, "{case}");
            let sent = bodies(&sim).pop().unwrap();
            let results =
                r"\n\n1. Tides — https://tides.example/brest\nLow water at noon. High water in Brest is at six.";
            assert!(
                sent.contains(results) && sent.contains("Of 20") && !sent.contains("other.example"),
                "{case}: {sent}"
            );
            assert!(sent.find("Tides").unwrap() < sent.find("When is high").unwrap(), "{case}: in front of it");
            let pipeline = answer["tidegate_metadata"]["pipeline"].as_array().unwrap();
            let data = json!({"engine": "house", "results": 1, "native": false});
            assert_eq!(pipeline.len(), 1, "{case}: {pipeline:?}");
            assert_eq!((&pipeline[0]["name"], &pipeline[0]["data"]), (&json!("web-search"), &data), "{case}");
            let asked = searx.asked();
            assert_eq!(asked.len(), number + 1, "{case}: one search each");
            // Four hundred characters: the question with its space is 29.
            assert!(asked[number].contains(&format!("+{}&", "x".repeat(371))), "{case}: {asked:?}");
        }
    }
}

#[tokio::test]
async fn a_page_that_was_found_before_and_again_is_cited_once() {
    let (sim, searx) = (Sim::start(Behaviour::Echo).await, Searx::start().await);
    let gate = gate_for(&sim, PROTOCOLS[1], &searx.config()).await;
    let mut body = online(false, json!({"id": "web"}));
    body["tools"] = json!([{"type": "tidegate:web_search"}]);
    sim.set(Script::from(asks("", &[look("tides")])).then(Behaviour::says("See https://tides.example/brest.")));
    let answer = message(&asked(&gate, &body).await);
    assert_eq!(searx.asked().len(), 2);
    let last = blocks(&answer).last().copied().unwrap().clone();
    let cited: Vec<&Value> = last["citations"].as_array().unwrap().iter().map(|one| &one["url"]).collect();
    assert_eq!(cited, ["https://tides.example/brest"]);
}

#[tokio::test]
async fn a_name_asks_for_it_too_and_who_searches_for_itself_is_given_the_tool() {
    let (sim, searx) = (Sim::start(Behaviour::says(SAYS)).await, Searx::start().await);
    let mut body = online(false, Value::Null);
    body["model"] = json!(format!("{MODEL}:online"));
    let chat = gate_for(&sim, PROTOCOLS[1], &searx.config()).await;
    let reply = asked(&chat, &body).await;
    assert_eq!(reply.header("x-tidegate-warnings"), None);
    assert_eq!(message(&reply)["usage"]["server_tool_use"]["web_search_requests"], 1);
    assert_eq!(searx.asked().len(), 1);
    let mut off = body.clone();
    off["plugins"] = json!([{"id": "web", "enabled": false}]);
    assert_eq!(asked(&chat, &off).await.status, 200);
    assert_eq!(searx.asked().len(), 1);
    // Where the model can search, it is left to the model.
    let mut able = body.clone();
    able["tools"] = json!([{"type": "tidegate:web_search"}]);
    let reply = asked(&chat, &able).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
    assert_eq!(searx.asked().len(), 1);
    // A function of the client's own is none of ours, whatever its name.
    let mut own = body.clone();
    own["tools"] = json!([{"name": "web_search", "input_schema": {"type": "object"}}]);
    let reply = asked(&chat, &own).await;
    assert_eq!((reply.status, searx.asked().len()), (200, 2), "{}", reply.body_text());
    // Nothing that was found is nothing to tell: the words alone would make results of what the user says.
    searx.finds(&json!([]));
    let reply = asked(&chat, &body).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, None), "{}", reply.body_text());
    assert!(!bodies(&sim).last().unwrap().contains("Web results"), "{:?}", bodies(&sim).last());
    // An engine that fails does not end the request.
    searx.says("500 Internal Server Error", b"");
    let reply = asked(&chat, &body).await;
    assert_eq!((reply.status, reply.header("x-tidegate-warnings")), (200, Some("dropped:plugins.web")));

    // An endpoint that does not list the search is no native one, whatever it speaks.
    searx.finds(&results());
    let plain = gate_for(&sim, PROTOCOLS[0], &searx.config()).await;
    let made = searx.asked().len();
    let answer = message(&asked(&plain, &body).await);
    assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 1);
    assert_eq!(searx.asked().len(), made + 1);

    let native = Tidegate::start().protocol_at(MODEL, "anthropic", &sim.base_url(), native_search::LINES).run().await;
    let plugin = json!({"id": "web", "max_uses": 2, "include_domains": ["tides.example"]});
    let answer = message(&asked(&native, &online(false, plugin)).await);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    let tool = json!([{"type": "web_search_20250305", "name": "web_search", "max_uses": 2, "allowed_domains": ["tides.example"]}]);
    assert_eq!(sent["tools"], tool);
    // It is not given the same tool twice.
    let reply = asked(&native, &able).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    assert_eq!(
        answer["tidegate_metadata"]["pipeline"][0]["data"],
        json!({"engine": "native", "results": null, "native": true})
    );

    let bare = gate_for(&sim, PROTOCOLS[1], "").await;
    let refused = [
        (json!({"id": "web"}), "web is not configured on this deployment"),
        (json!({"id": "web", "engine": "exa"}), "web is not configured on this deployment"),
        (
            json!({"id": "web", "engine": "native"}),
            "Invalid request: plugins[0].engine is native, but nobody who serves vendor/m searches for itself: leave it out",
        ),
        (json!({"id": "web", "search_prompt": 1}), "Invalid request: plugins[0].search_prompt must be a string"),
    ];
    for (plugin, wanted) in refused {
        let (status, _, _, text) = asked(&bare, &online(false, plugin)).await.error();
        assert_eq!((status, &*text), (400, wanted));
    }
    for (member, value, wanted) in [
        ("max_results", json!(26), "plugins[0].max_results must be at most 25"),
        ("include_domains", json!("a.org"), "plugins[0].include_domains must be an array"),
        ("max_uses", json!("x"), "plugins[0].max_uses must be an integer"),
        ("max_uses", json!(0), "plugins[0].max_uses must be at least 1"),
        ("mode", json!(1), "plugins[0].mode must be a string"),
        ("search_prompt", json!(1), "plugins[0].search_prompt must be a string"),
        ("user_location", json!({"type": "exact"}), "plugins[0].user_location.type must be approximate"),
    ] {
        let mut plugin = json!({"id": "web"});
        plugin[member] = value;
        for gate in [&chat, &native] {
            let (status, _, _, text) = asked(gate, &online(false, plugin.clone())).await.error();
            assert_eq!((status, text), (400, format!("Invalid request: {wanted}")));
        }
    }
    let place = json!({"id": "web", "user_location": {"city": "Brest"}});
    assert_eq!(asked(&native, &online(false, place)).await.status, 200);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    assert_eq!(sent["tools"][0]["user_location"], json!({"city": "Brest", "type": "approximate"}));
}
