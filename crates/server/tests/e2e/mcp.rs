//! Tools of servers that speak the Model Context Protocol: listed, called, within limits, on every protocol.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message};
use crate::harness::{INFERENCE_KEY, MANAGEMENT_KEY, Tidegate, hash_of, hello};

/// How a server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Whole,
    /// As events, and the stream stays open behind the answer.
    Events,
    /// With a page.
    Stranger,
}

/// What it was asked: the head in lower case, and the message.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

struct Server {
    address: SocketAddr,
    seen: Seen,
    _serving: JoinSet<()>,
}

impl Server {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Seen::default());
        let (mut serving, shared) = (JoinSet::new(), seen.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, manner, shared.clone()));
            }
        });
        Self { address, seen, _serving: serving }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    fn allowed(&self) -> String {
        format!("[egress]\nallow = [\"127.0.0.1/32\"]\nports = [80, 443, {}]\n", self.address.port())
    }

    fn seen(&self) -> Vec<(String, Value)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn methods(&self) -> Vec<String> {
        self.seen().iter().map(|(_, message)| message["method"].as_str().unwrap().to_owned()).collect()
    }
}

async fn serve(mut stream: TcpStream, manner: Manner, seen: Seen) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 16 << 10]);
    let (head, body) = loop {
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
        if body.len() >= length.trim().parse::<usize>().unwrap() {
            break (head, body.to_owned());
        }
    };
    let message: Value = serde_json::from_str(&body).unwrap();
    seen.lock().unwrap_or_else(PoisonError::into_inner).push((head, message.clone()));
    if manner == Manner::Stranger {
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>").await;
        return;
    }
    let Some(answer) = answer(&message) else {
        let _ = stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
        return;
    };
    let session = if message["method"] == "initialize" { "mcp-session-id: s-77\r\n" } else { "" };
    let text = match manner {
        Manner::Events => {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
            let head = format!("HTTP/1.1 200 OK\r\n{session}content-type: text/event-stream\r\n\r\n");
            format!("{head}event: message\ndata: {progress}\n\nevent: message\ndata: {answer}\n\n")
        }
        _ => {
            let answer = answer.to_string();
            let head = format!("HTTP/1.1 200 OK\r\n{session}content-type: application/json\r\n");
            format!("{head}content-length: {}\r\n\r\n{answer}", answer.len())
        }
    };
    let _ = stream.write_all(text.as_bytes()).await;
    if manner == Manner::Events {
        // Until the other side has had enough.
        while let Ok(1..) = stream.read(&mut buffer).await {}
    }
}

fn answer(message: &Value) -> Option<Value> {
    let result = match message["method"].as_str().unwrap() {
        "initialize" => {
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "t"}})
        }
        // Two pages.
        "tools/list" if message["params"].get("cursor").is_none() => json!({"nextCursor": "2", "tools": [
            {"name": "tide.height", "description": "How high the water is", "annotations": {"readOnlyHint": true},
             "inputSchema": {"type": "object", "properties": {"port": {"type": "string"}}}},
        ]}),
        "tools/list" => json!({"tools": [{"name": "open_gate", "inputSchema": {"type": "object"}}]}),
        "tools/call" => match message["params"]["arguments"]["port"].as_str() {
            Some("Atlantis") => {
                json!({"isError": true, "content": [{"type": "text", "text": "There is no such port."}]})
            }
            Some("Nowhere") => {
                let error = json!({"code": -32602, "message": "Unknown port"});
                return Some(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}));
            }
            port => {
                json!({"content": [{"type": "text", "text": format!("Seven metres at {}", port.unwrap_or("sea"))}]})
            }
        },
        _ => return None,
    };
    Some(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
}

fn with(parameters: Value) -> Value {
    let mut body = hello(MODEL);
    body["max_tokens"] = json!(1000);
    body["tools"] = json!([{"type": "tidegate:mcp", "parameters": parameters}]);
    body
}

fn call(port: &str) -> Behaviour {
    asks("Let me look.", &[("mcp__tides__tide_height", json!({"port": port}))])
}

#[tokio::test]
async fn a_tool_of_a_server_is_listed_and_called_on_every_protocol_whole_and_streamed() {
    for (protocol, manner) in PROTOCOLS.into_iter().zip([Manner::Whole, Manner::Events, Manner::Whole, Manner::Events])
    {
        let (server, sim) = (Server::start(manner).await, Sim::start(Behaviour::Echo).await);
        let gate = gate_for(&sim, protocol, &server.allowed()).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            sim.set(Script::from(call("Brest")).then(Behaviour::says("Seven metres.")));
            let parameters = json!({
                "server_label": "tides", "server_url": server.url(), "authorization": "token-1",
                "headers": {"x-harbour": "west"}, "require_approval": "never",
            });
            let mut body = with(parameters);
            body["stream"] = json!(stream);
            let answer = message(&asked(&gate, &body).await);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"], "{case}: {answer}");
            let block = answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "server_tool_use");
            assert_eq!(block.unwrap()["name"], "mcp__tides__tide_height", "{case}");
            let sent = bodies(&sim);
            let first = &sent[sent.len() - 2];
            assert!(
                first.contains("How high the water is") && first.contains("mcp__tides__open_gate"),
                "{case}: {first}"
            );
            assert!(!first.contains("token-1") && !first.contains(&server.url()), "{case}: {first}");
            assert!(sent.last().unwrap().contains("Seven metres at Brest"), "{case}: {sent:?}");
        }
        // The list is remembered; each request has a session of its own.
        let expected = ["initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call"];
        let again = ["initialize", "notifications/initialized", "tools/call"];
        assert_eq!(server.methods(), [&expected[..], &again[..]].concat(), "{protocol:?}");
        let seen = server.seen();
        for (head, message) in &seen {
            assert!(head.contains("authorization: bearer token-1") && head.contains("x-harbour: west"), "{head}");
            assert!(head.contains("accept: application/json, text/event-stream"), "{head}");
            let is_first = message["method"] == "initialize";
            assert_eq!(head.contains("mcp-session-id: s-77"), !is_first, "{head}");
            assert_eq!(head.contains("mcp-protocol-version: 2025-06-18"), !is_first, "{head}");
        }
        let (_, last) = seen.last().unwrap();
        assert_eq!(last["params"], json!({"name": "tide.height", "arguments": {"port": "Brest"}}));
    }
}

#[tokio::test]
async fn only_what_is_allowed_is_shown_and_errors_are_told_to_the_model() {
    let (server, sim) = (Server::start(Manner::Whole).await, Sim::start(Behaviour::says("Well.")).await);
    let gate = gate_for(&sim, PROTOCOLS[1], &server.allowed()).await;
    let named = |more: Value| {
        let mut parameters = json!({"server_label": "tides", "server_url": server.url()});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(parameters)
    };
    for (more, reads, opens) in [
        (json!({}), true, true),
        (json!({"allowed_tools": ["open_gate"]}), false, true),
        (json!({"allowed_tools": {"read_only": true}}), true, false),
        (json!({"allowed_tools": {"tool_names": ["open_gate"], "read_only": true}}), false, false),
    ] {
        message(&asked(&gate, &named(more.clone())).await);
        let sent = bodies(&sim).pop().unwrap();
        assert_eq!((sent.contains("tide_height"), sent.contains("open_gate")), (reads, opens), "{more}");
    }
    for (port, told) in [("Atlantis", "There is no such port."), ("Nowhere", "Unknown port")] {
        sim.set(Script::from(call(port)).then(Behaviour::says("Sorry.")));
        let answer = message(&asked(&gate, &named(json!({}))).await);
        assert_eq!(answer["stop_reason"], "end_turn");
        assert!(bodies(&sim).pop().unwrap().contains(told), "{port}");
    }
    // Two questions side by side have numbers of their own.
    let both = [("mcp__tides__tide_height", json!({"port": "A"})), ("mcp__tides__tide_height", json!({"port": "B"}))];
    sim.set(Script::from(asks("", &both)).then(Behaviour::says("Well.")));
    let before = server.seen().len();
    message(&asked(&gate, &named(json!({}))).await);
    let asked_with: Vec<Value> = server.seen()[before..].iter().map(|(_, message)| message["id"].clone()).collect();
    let numbers: HashSet<String> = asked_with.iter().filter(|id| !id.is_null()).map(Value::to_string).collect();
    let questions = asked_with.iter().filter(|id| !id.is_null()).count();
    assert!(questions >= 2 && numbers.len() == questions, "{asked_with:?}");
    // With a search among the tools they are shown once they were found.
    let mut body = named(json!({"defer_loading": true}));
    body["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:tool_search"}));
    sim.set(
        Script::from(asks("", &[("tool_search_tool_regex", json!({"pattern": "water"}))]))
            .then(Behaviour::says("Well.")),
    );
    message(&asked(&gate, &body).await);
    let sent = bodies(&sim);
    let (before, after) = (&sent[sent.len() - 2], &sent[sent.len() - 1]);
    assert!(!before.contains("How high the water is") && after.contains("How high the water is"), "{before} {after}");
}

#[tokio::test]
async fn what_cannot_be_called_is_refused_by_its_path() {
    let (server, stranger) = (Server::start(Manner::Whole).await, Server::start(Manner::Stranger).await);
    let sim = Sim::start(Behaviour::says("Well.")).await;
    let ports = format!(
        "[egress]\nallow = [\"127.0.0.1/32\"]\nports = [80, 443, {}, {}]\n",
        server.address.port(),
        stranger.address.port()
    );
    let gate = gate_for(&sim, PROTOCOLS[1], &ports).await;
    let url = server.url();
    for (parameters, problem) in [
        (json!({"server_url": url}), "server_label is required"),
        (json!({"server_label": "My Notes", "server_url": url}), "server_label must be"),
        (json!({"server_label": "t"}), "server_url is required"),
        (json!({"server_label": "t", "server_url": "http://example.com/mcp"}), "server_url must begin with https://"),
        (json!({"server_label": "t", "server_url": "https://10.0.0.1/mcp"}), "server_url"),
        (json!({"server_label": "t", "server_url": "file:///etc/passwd"}), "server_url must be an https address"),
        (
            json!({"server_label": "t", "server_url": url, "require_approval": "always"}),
            "require_approval must be never",
        ),
        (json!({"server_label": "t", "server_url": url, "allowed_tools": "x"}), "allowed_tools must be an array"),
        (json!({"server_label": "t", "server_url": url, "headers": {"host": "x"}}), "headers.host cannot be sent"),
        (json!({"server_label": "t", "server_url": url, "authorization": "a\nb"}), "authorization must be"),
        (json!({"server_label": "t", "server_url": stranger.url()}), "server_url does not answer as a server"),
    ] {
        let (status, _, _, text) = asked(&gate, &with(parameters.clone())).await.error();
        assert_eq!(status, 400, "{parameters}");
        assert!(text.contains(&format!("tools[0].parameters.{problem}")), "{parameters}: {text}");
    }
    let mut twice = with(json!({"server_label": "t", "server_url": url}));
    let first = twice["tools"][0].clone();
    twice["tools"].as_array_mut().unwrap().push(first);
    let (status, _, _, text) = asked(&gate, &twice).await.error();
    assert_eq!(
        (status, text.contains("tools[1].parameters.server_label 't' is used more than once")),
        (400, true),
        "{text}"
    );
    let many: Vec<Value> = (0..17)
        .map(|place| {
            let parameters = json!({"server_label": format!("s{place}"), "server_url": url});
            json!({"type": "tidegate:mcp", "parameters": parameters})
        })
        .collect();
    let mut body = with(json!({"server_label": "t", "server_url": url}));
    body["tools"] = json!(many);
    let (status, _, _, text) = asked(&gate, &body).await.error();
    assert_eq!((status, text.contains("tools[16].parameters.server_label is one too many")), (400, true), "{text}");
    // Who does not allow it calls nobody on the own machine.
    let closed = gate_for(&sim, PROTOCOLS[1], "").await;
    let body = with(json!({"server_label": "t", "server_url": url}));
    assert_eq!(asked(&closed, &body).await.error().0, 400);
    assert_eq!((server.seen().len(), sim.calls()), (0, 0));
}

#[tokio::test]
async fn servers_of_the_vendors_field_are_called_where_nobody_else_does() {
    let (server, sim) = (Server::start(Manner::Events).await, Sim::start(Behaviour::Echo).await);
    let mut body = hello(MODEL);
    // No tools of its own, said so.
    (body["max_tokens"], body["tools"]) = (json!(1000), Value::Null);
    body["mcp_servers"] =
        json!([{"type": "url", "name": "Tides", "url": server.url(), "authorization_token": "token-2"}]);
    for protocol in &PROTOCOLS[1..] {
        let gate = gate_for(&sim, *protocol, &server.allowed()).await;
        sim.set(Script::from(call("Brest")).then(Behaviour::says("Seven metres.")));
        let answer = message(&asked(&gate, &body).await);
        assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"], "{protocol:?}: {answer}");
        assert!(bodies(&sim).pop().unwrap().contains("Seven metres at Brest"), "{protocol:?}");
    }
    assert!(server.seen().iter().all(|(head, _)| head.contains("authorization: bearer token-2")));
    // Who speaks the protocol gets them as they came.
    let calls = server.seen().len();
    sim.set(Behaviour::says("Hm."));
    let gate = gate_for(&sim, PROTOCOLS[0], &server.allowed()).await;
    message(&asked(&gate, &body).await);
    let sent: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    assert_eq!((&sent["mcp_servers"], server.seen().len()), (&body["mcp_servers"], calls));
    // Switched off, nobody does.
    let off = format!("{}[tools]\ndisabled = [\"mcp\"]\n", server.allowed());
    let gate: Tidegate = gate_for(&sim, PROTOCOLS[1], &off).await;
    let (status, _, _, text) = asked(&gate, &body).await.error();
    assert_eq!((status, &*text), (400, "tidegate:mcp is not configured on this deployment"));
    assert_eq!(server.seen().len(), calls);
}

#[tokio::test]
async fn what_is_wrong_with_a_server_is_said_of_the_place_where_it_stands() {
    let (stranger, sim) = (Server::start(Manner::Stranger).await, Sim::start(Behaviour::says("Well.")).await);
    let gate = gate_for(&sim, PROTOCOLS[1], &stranger.allowed()).await;
    let off =
        json!({"type": "url", "name": "off", "url": "https://b.invalid", "tool_configuration": {"enabled": false}});
    let mut body = hello(MODEL);
    for (server, place) in [
        (json!({"type": "url", "name": "a", "url": stranger.url()}), "mcp_servers[1].url does not answer as a server"),
        (json!({"type": "url", "name": "a", "url": "gopher://x"}), "mcp_servers[1].url must be"),
        (json!({"type": "url", "name": "", "url": stranger.url()}), "mcp_servers[1].name must be"),
        (
            json!({"type": "url", "name": "a", "url": stranger.url(), "authorization_token": "a\nb"}),
            "mcp_servers[1].authorization_token must be",
        ),
    ] {
        body["mcp_servers"] = json!([off, server]);
        let (status, _, _, text) = asked(&gate, &body).await.error();
        assert!(status == 400 && text.starts_with(&format!("Invalid request: {place}")), "{status} {text}");
    }
    assert_eq!(sim.calls(), 0);
}

#[tokio::test]
async fn counts_and_explanations_know_the_tools_of_a_server() {
    let (server, sim) = (Server::start(Manner::Whole).await, Sim::start(Behaviour::says("Well.")).await);
    let gate = gate_for(&sim, PROTOCOLS[0], &server.allowed()).await;
    let parameters = |url: String| json!({"server_label": "tides", "server_url": url});
    let count = async |gate: &Tidegate, url: String| {
        let mut body = with(parameters(url));
        body.as_object_mut().unwrap().remove("max_tokens");
        gate.ask("POST", "/v1/messages/count_tokens").key(INFERENCE_KEY).json(body.to_string()).send().await
    };
    let explain = async |gate: &Tidegate, url: String| {
        let body = json!({"request": with(parameters(url)), "key": hash_of(INFERENCE_KEY)[..12]}).to_string();
        gate.ask("POST", "/api/v1/explain").key(MANAGEMENT_KEY).json(body).send().await
    };
    assert_eq!(count(&gate, server.url()).await.status, 200);
    let counted = bodies(&sim).pop().unwrap();
    assert!(counted.contains("mcp__tides__tide_height") && !counted.contains("tidegate:mcp"), "{counted}");
    assert_eq!(explain(&gate, server.url()).await.status, 200);
    // The list is asked for once, and a call knows it from there.
    message(&asked(&gate, &with(parameters(server.url()))).await);
    assert_eq!(server.methods(), ["initialize", "notifications/initialized", "tools/list", "tools/list"]);
    // One that does not answer as such a server does is the same to all of them.
    let stranger = Server::start(Manner::Stranger).await;
    let gate = gate_for(&sim, PROTOCOLS[0], &stranger.allowed()).await;
    let refused = asked(&gate, &with(parameters(stranger.url()))).await.error();
    assert_eq!(refused.0, 400, "{refused:?}");
    assert_eq!(count(&gate, stranger.url()).await.error(), refused);
    let told = explain(&gate, stranger.url()).await;
    assert_eq!((told.status, &told.json()["error"]["message"]), (400, &json!(refused.3)));
}
