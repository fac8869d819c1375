//! Commands of models in a sandbox: a service that runs them in folders, and what the client and the model see of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message, told};
use crate::files::of_another_workspace;
use crate::harness::{Account, INFERENCE_KEY, Tidegate, eventually, hello, on_both};

/// What the service was told.
#[derive(Clone, Debug)]
struct Order {
    path: String,
    is_authorised: bool,
    body: Value,
}

#[derive(Default)]
struct Inside {
    orders: Mutex<Vec<Order>>,
    /// What it answers instead of doing what it is told: a status.
    status: Mutex<Option<String>>,
}

/// A sandbox in which every container is a folder.
struct Yard {
    address: SocketAddr,
    inside: Arc<Inside>,
    _folder: TempDir,
    _serving: JoinSet<()>,
}

impl Yard {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, inside, folder) =
            (listener.local_addr().unwrap(), Arc::<Inside>::default(), TempDir::new().unwrap());
        let (mut serving, shared, root) = (JoinSet::new(), inside.clone(), folder.path().to_owned());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (inside, root) = (shared.clone(), root.clone());
                connections.spawn(async move { serve(stream, &inside, &root).await });
            }
        });
        Self { address, inside, _folder: folder, _serving: serving }
    }

    fn config(&self) -> String {
        let url = format!("http://{}/v1/", self.address);
        format!("[tools.sandbox]\nbackend = \"http\"\nurl = \"{url}\"\napi_key = \"s3cret\"\n")
    }

    fn orders(&self) -> Vec<Order> {
        self.inside.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The containers in which something was run, in their order.
    fn containers(&self) -> Vec<String> {
        let orders = self.orders().into_iter().filter(|order| order.path == "/v1/exec");
        orders.map(|order| order.body["container"].as_str().unwrap().to_owned()).collect()
    }

    fn fails(&self, status: Option<&str>) {
        *self.inside.status.lock().unwrap_or_else(PoisonError::into_inner) = status.map(str::to_owned);
    }
}

async fn serve(mut stream: TcpStream, inside: &Inside, root: &Path) -> Option<()> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    // One call for each connection; the body is JSON, so it is whole when it can be read.
    let (head, body) = loop {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        if let Ok(body) = serde_json::from_slice::<Value>(&bytes[end + 4..]) {
            break (String::from_utf8_lossy(&bytes[..end]).to_lowercase(), body);
        }
    };
    let path = head.split(' ').nth(1)?.to_owned();
    let is_authorised = head.contains("authorization: bearer s3cret");
    inside.orders.lock().unwrap_or_else(PoisonError::into_inner).push(Order {
        path: path.clone(),
        is_authorised,
        body: body.clone(),
    });
    let folder = root.join(body["container"].as_str()?);
    let refusal = inside.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, answer) = match (refusal, path.as_str()) {
        (Some(status), _) => (status, json!({})),
        (None, "/v1/create") => {
            std::fs::create_dir_all(&folder).ok()?;
            ("200 OK".to_owned(), json!({}))
        }
        (None, "/v1/exec") => ("200 OK".to_owned(), exec(&folder, &body).await),
        (None, "/v1/destroy") => {
            let _ = std::fs::remove_dir_all(&folder);
            ("200 OK".to_owned(), json!({}))
        }
        (None, _) => ("204 No Content".to_owned(), json!({})),
    };
    let text = if status.starts_with("204") { String::new() } else { answer.to_string() };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// Runs commands in a folder. In the shell the next one begins where the last one ended.
async fn exec(folder: &Path, body: &Value) -> Value {
    let until = tokio::time::Instant::now() + Duration::from_millis(body["timeout_ms"].as_u64().unwrap());
    let in_shell = body["mode"] == "shell";
    let mut results = Vec::new();
    for command in body["commands"].as_array().unwrap() {
        let command = command.as_str().unwrap();
        let place = folder.join(".place");
        let from = std::fs::read_to_string(&place).ok().filter(|_| in_shell);
        let script = format!("{command}\ncode=$?\npwd > '{}'\nexit $code", place.display());
        let child = Command::new("sh")
            .args(["-c", &script])
            .current_dir(from.as_deref().map_or(folder, |from| Path::new(from.trim())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let Ok(output) = tokio::time::timeout_at(until, child.wait_with_output()).await else {
            results.push(json!({"stdout": "", "stderr": "", "exit_code": null, "timed_out": true}));
            break;
        };
        let output = output.unwrap();
        results.push(json!({
            "stdout": String::from_utf8_lossy(&output.stdout),
            "stderr": String::from_utf8_lossy(&output.stderr),
            "exit_code": output.status.code(),
            "timed_out": false,
        }));
    }
    json!({"results": results})
}

fn body(stream: bool, tool: &str, parameters: Value) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": format!("tidegate:{tool}"), "parameters": parameters}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

fn bash(stream: bool) -> Value {
    body(stream, "bash", json!({"engine": "tidegate"}))
}

/// What came of one call: the content of its block.
async fn ran(gate: &Tidegate, sim: &Sim, key: &str, body: &Value, call: (&str, Value)) -> Value {
    sim.set(Script::from(asks("", &[call])).then(Behaviour::says("Done.")));
    let ask = gate.ask("POST", "/v1/messages").key(key).json(body.to_string());
    let answer = message(&ask.send().await);
    let blocks = answer["content"].as_array().unwrap();
    blocks.iter().find(|block| block["type"].as_str().unwrap().ends_with("_tool_result")).unwrap()["content"].clone()
}

/// The texts of results that an upstream of the Messages protocol was sent with the last request.
fn heard(sim: &Sim) -> Vec<String> {
    let sent: Value = serde_json::from_str(&bodies(sim).pop().unwrap()).unwrap();
    let blocks =
        sent["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array()).flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results.map(|block| block["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn commands_are_run_shown_and_told_again_on_every_protocol() {
    for protocol in PROTOCOLS {
        let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
        let gate = gate_for(&sim, protocol, &yard.config()).await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let input =
                json!({"commands": ["mkdir -p deep && cd deep && echo six > tide", "cat tide; echo hm >&2; exit 3"]});
            sim.set(Script::from(asks("Let me see.", &[("bash", input.clone())])).then(Behaviour::says("Done.")));
            let request = bash(stream);
            let answer = message(&asked(&gate, &request).await);
            assert_eq!(
                kinds(&answer),
                ["text", "server_tool_use", "tidegate_bash_tool_result", "text"],
                "{case}: {answer}"
            );
            let blocks: Vec<&Value> =
                answer["content"].as_array().unwrap().iter().filter(|block| block["type"] != "thinking").collect();
            assert_eq!((&blocks[1]["name"], &blocks[1]["input"]), (&json!("tidegate:bash"), &input), "{case}");
            assert_eq!(blocks[2]["tool_use_id"], blocks[1]["id"], "{case}");
            let container = blocks[2]["content"]["container_id"].as_str().unwrap();
            assert_eq!(container.len(), 20, "{case}");
            let wanted = json!({"type": "tidegate_bash_result",
                "command": "mkdir -p deep && cd deep && echo six > tide\ncat tide; echo hm >&2; exit 3",
                "stdout": "six\n", "stderr": "hm\n", "exit_code": 3, "container_id": container});
            assert_eq!(blocks[2]["content"], wanted, "{case}");
            assert_eq!(told(&answer)["errors"], 0, "{case}");
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("exitCode") && !sent.contains(container), "{case}: {sent}");

            sim.set(Behaviour::says("Again."));
            let mut next = request.clone();
            next["messages"] = json!([request["messages"][0], {"role": "assistant", "content": answer["content"]},
                {"role": "user", "content": "And?"}]);
            message(&asked(&gate, &next).await);
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("exitCode") && !sent.contains("bash_tool_result"), "{case}: {sent}");

            // Without the tool, or with others, what came of it is told in words.
            for tools in [json!([]), json!([{"type": "tidegate:datetime"}])] {
                next["tools"] = tools;
                message(&asked(&gate, &next).await);
                let sent = bodies(&sim).pop().unwrap();
                let is_told = sent.contains("exitCode") && sent.contains("[bash {");
                assert!(
                    is_told && !sent.contains("bash_tool_result") && !sent.contains("server_tool_use"),
                    "{case}: {sent}"
                );
            }
        }
        assert!(yard.orders().iter().all(|order| order.is_authorised));
        let paths: Vec<String> = yard.orders().into_iter().map(|order| order.path).collect();
        assert_eq!(paths, ["/v1/create", "/v1/exec", "/v1/sleep", "/v1/create", "/v1/exec", "/v1/sleep"]);
    }
}

#[tokio::test]
async fn the_service_is_told_the_limits_and_the_model_reads_what_the_contract_says() {
    let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
    let config = format!("{}network = \"allowlist\"\nallowed_hosts = [\"pypi.org\"]\n", yard.config());
    let gate = gate_for(&sim, PROTOCOLS[0], &config).await;
    let request = body(false, "shell", json!({"sleep_after_seconds": 60}));
    let input = json!({"commands": ["cd /; echo one", "pwd | grep -c tg-", "exit 7"], "max_output_length": 3});
    let content = ran(&gate, &sim, INFERENCE_KEY, &request, ("shell", input)).await;
    let exit = |stdout: &str, code: i64| json!({"stdout": stdout, "stderr": "", "outcome": {"type": "exit", "exit_code": code}});
    // Each is a process of its own, and begins where all begin.
    let output = json!([exit("one", 0), exit("1\n", 0), exit("", 7)]);
    assert_eq!((&content["type"], &content["output"]), (&json!("tidegate_shell_result"), &output));
    assert_eq!(heard(&sim), [json!({"output": output}).to_string()]);
    let orders = yard.orders();
    let container = orders[0].body["container"].clone();
    let limits = json!({"cpus": 1, "memory_bytes": 1_073_741_824, "processes": 256, "disk_bytes": 2_147_483_648_u64});
    assert_eq!(
        orders[0].body,
        json!({"container": container, "sleep_after_seconds": 60, "limits": limits, "network": {"hosts": ["pypi.org"]}})
    );
    assert_eq!((&orders[1].body["mode"], &orders[1].body["timeout_ms"]), (&json!("process"), &json!(60_000)));
    assert_eq!(orders[1].body["max_output_length"], 3);
    assert_eq!(orders[2].body, json!({"container": container, "after_seconds": 60}));

    let late = json!({"commands": ["echo one", "sleep 60", "echo three"], "timeout_ms": 500});
    let content = ran(&gate, &sim, INFERENCE_KEY, &request, ("shell", late)).await;
    let timeout = json!({"stdout": "", "stderr": "", "outcome": {"type": "timeout"}});
    assert_eq!(content["output"], json!([exit("one\n", 0), timeout]));
    let late = json!({"command": "sleep 60", "timeout_ms": 200});
    let content = ran(&gate, &sim, INFERENCE_KEY, &bash(false), ("bash", late)).await;
    assert_eq!(
        content,
        json!({"type": "tidegate_bash_error", "error_code": "execution_time_exceeded",
        "error_message": "The commands did not end in time and were stopped."})
    );
}

on_both! {
    async fn ten_5_containers_belong_to_a_workspace_and_to_a_session_a_reference_or_a_request(database: &Database) {
        let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).config(&yard.config());
        let account = Account::start(database, builder).await;
        let gate = &account.gate;
        let theirs = of_another_workspace(&account).await;
        let in_session = |session: Value, parameters: Value| {
            let mut request = body(false, "shell", parameters);
            request["session_id"] = session;
            request
        };
        let run = async |key: &str, request: &Value, command: &str| {
            ran(gate, &sim, key, request, ("shell", json!({"commands": [command]}))).await
        };
        let first = run(INFERENCE_KEY, &in_session(json!("harbour"), json!({})), "echo six > tide").await;
        let again = run(INFERENCE_KEY, &in_session(json!("harbour"), json!({})), "cat tide").await;
        assert_eq!((&again["output"][0]["stdout"], &again["container_id"]), (&json!("six\n"), &first["container_id"]));
        let environment = json!({"environment": {"type": "container_reference", "container_id": first["container_id"]}});
        let referred = run(INFERENCE_KEY, &in_session(Value::Null, environment.clone()), "cat tide").await;
        assert_eq!(referred["output"][0]["stdout"], "six\n");
        // The same names in another workspace, another session, and none at all.
        for (key, request) in [
            (theirs.as_str(), in_session(json!("harbour"), json!({}))),
            (theirs.as_str(), in_session(Value::Null, environment)),
            (INFERENCE_KEY, in_session(json!("lock"), json!({}))),
            (INFERENCE_KEY, in_session(Value::Null, json!({}))),
        ] {
            let content = run(key, &request, "cat tide").await;
            assert_eq!(content["output"][0]["stdout"], "", "{request}");
        }
        let used = yard.containers();
        let distinct: std::collections::BTreeSet<&String> = used.iter().collect();
        assert_eq!((used.len(), distinct.len()), (7, 4), "{used:?}: both of the other workspace are one");

        // One container for all tools of a request, and a fresh one where the model wants it.
        let mut both = bash(false);
        both["tools"].as_array_mut().unwrap().push(json!({"type": "tidegate:shell"}));
        sim.set(
            Script::from(asks("", &[("bash", json!({"command": "echo one > a"}))]))
                .then(asks("", &[("shell", json!({"commands": ["cat a"]}))]))
                .then(asks("", &[("bash", json!({"restart": true}))]))
                .then(asks("", &[("bash", json!({"command": "cat a"}))]))
                .then(Behaviour::says("Done.")),
        );
        let answer = message(&asked(gate, &both).await);
        let contents: Vec<&Value> = answer["content"].as_array().unwrap().iter()
            .filter(|block| block["type"].as_str().unwrap().ends_with("_tool_result")).map(|block| &block["content"]).collect();
        assert_eq!(contents[1]["output"][0]["stdout"], "one\n", "{answer}");
        assert_eq!((&contents[2]["command"], &contents[2]["exit_code"]), (&json!(""), &json!(0)));
        assert_eq!((&contents[3]["stdout"], &contents[3]["exit_code"]), (&json!(""), &json!(1)));
        assert!(contents.iter().all(|content| content["container_id"] == contents[0]["container_id"]));
    }
}

#[tokio::test]
async fn what_goes_wrong_in_the_sandbox_is_a_result_and_what_cannot_be_is_refused() {
    let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &yard.config()).await;
    let shell = body(false, "shell", json!({}));
    let ls = || json!({"commands": ["ls"]});
    for (status, input, code) in [
        (Some("500 Oops"), ls(), "unavailable"),
        (Some("404 Not Found"), ls(), "unavailable"),
        (Some("429 Too Many Requests"), ls(), "too_many_requests"),
        (None, json!({"commands": []}), "invalid_tool_input"),
        (None, json!({"commands": ["ls"], "timeout_ms": "soon"}), "invalid_tool_input"),
    ] {
        yard.fails(status);
        let content = ran(&gate, &sim, INFERENCE_KEY, &shell, ("shell", input)).await;
        assert_eq!(
            (&content["type"], &content["error_code"]),
            (&json!("tidegate_shell_error"), &json!(code)),
            "{content}"
        );
        let heard: Value = serde_json::from_str(&heard(&sim)[0]).unwrap();
        assert_eq!(heard, json!({"error": code, "message": content["error_message"]}));
    }
    yard.fails(None);
    let environment = |environment: Value| json!({"environment": environment});
    for (tool, parameters, problem) in [
        ("shell", json!({"engine": "native"}), "engine must be one of auto, tidegate"),
        ("bash", json!({"engine": "local"}), "engine must be one of auto, native, tidegate"),
        (
            "shell",
            environment(json!({"type": "local"})),
            "environment.type must be one of container_auto, container_reference",
        ),
        ("shell", environment(json!({"type": "container_reference"})), "environment.container_id must be 1 to 20"),
        (
            "shell",
            environment(json!({"type": "container_reference", "container_id": "a/b"})),
            "environment.container_id must be 1 to 20",
        ),
        ("shell", json!({"sleep_after_seconds": 0}), "sleep_after_seconds must be at least 1"),
        ("shell", json!({"sleep_after_seconds": 2_592_001}), "sleep_after_seconds must be at most 2592000"),
    ] {
        let reply = asked(&gate, &body(false, tool, parameters)).await;
        let (status, text) = (reply.status, reply.error().3);
        assert!(status == 400 && text.contains(&format!("tools[0].parameters.{problem}")), "{text}");
    }
    let bare = gate_for(&sim, PROTOCOLS[0], "").await;
    for (request, wire) in [(bash(false), "tidegate:bash"), (shell.clone(), "tidegate:shell")] {
        let reply = asked(&bare, &request).await;
        assert_eq!((reply.status, reply.error().3), (400, format!("{wire} is not configured on this deployment")));
    }
}

#[tokio::test]
async fn bash_is_the_clients_own_unless_the_request_wants_the_sandbox() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        for (stream, parameters) in [(false, json!({})), (true, json!({"engine": "native"}))] {
            let case = format!("{protocol:?} {stream}");
            let input = json!({"command": "ls"});
            sim.set(Script::from(asks("Let me see.", &[("bash", input.clone())])));
            let before = sim.calls();
            let answer = message(&asked(&gate, &body(stream, "bash", parameters)).await);
            assert_eq!((kinds(&answer), sim.calls() - before), (vec!["text".into(), "tool_use".into()], 1), "{case}");
            let call = answer["content"].as_array().unwrap().last().unwrap();
            assert_eq!(
                (&call["name"], &call["input"], &answer["stop_reason"]),
                (&json!("bash"), &input, &json!("tool_use")),
                "{case}"
            );
            let sent = bodies(&sim).pop().unwrap();
            assert!(!sent.contains("tidegate:bash"), "{case}: {sent}");
            assert_eq!(sent.contains("bash_20250124"), protocol.0 == "anthropic", "{case}: {sent}");

            // It can be wanted by the name that the request knows it by.
            sim.set(Behaviour::says("No."));
            let mut wanted = body(stream, "bash", json!({}));
            wanted["tool_choice"] = json!({"type": "tool", "name": "tidegate:bash"});
            message(&asked(&gate, &wanted).await);
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("\"bash\"") && !sent.contains("tidegate:bash"), "{case}: {sent}");
        }
    }
}

/// Dollars for a second, and the line that says so.
const PRICE: f64 = 0.01;
const PRICED: &str = "price_per_second = 0.01\n";

async fn spent(gate: &Tidegate) -> f64 {
    let key = gate.ask("GET", "/api/v1/key").key(INFERENCE_KEY).send().await.json();
    key["data"]["usage"].as_f64().unwrap()
}

#[tokio::test]
async fn who_leaves_pays_for_what_ran_until_then() {
    let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("{}{PRICED}", yard.config())).await;
    sim.set(Script::from(asks("", &[("bash", json!({"command": "sleep 60"}))])).then(Behaviour::says("Done.")));
    let body = bash(false).to_string();
    let mut client = TcpStream::connect(gate.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {INFERENCE_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let runs = async || yard.orders().iter().any(|order| order.path == "/v1/exec");
    eventually("the command runs", Duration::from_secs(10), runs).await;
    drop(client);
    // A second is begun at least. What the model said costs millionths.
    eventually("it is charged", Duration::from_secs(10), async || spent(&gate).await >= PRICE).await;
}

#[tokio::test]
async fn time_in_the_sandbox_is_held_charged_and_told() {
    let (sim, yard) = (Sim::start(Behaviour::Echo).await, Yard::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("{}{PRICED}", yard.config())).await;
    for stream in [false, true] {
        sim.set(Script::from(asks("", &[("bash", json!({"command": "true"}))])).then(Behaviour::says("Done.")));
        let before = spent(&gate).await;
        let answer = message(&asked(&gate, &bash(stream)).await);
        let usage = &answer["usage"];
        let tokens = usage["input_tokens"].as_f64().unwrap() + 2.0 * usage["output_tokens"].as_f64().unwrap();
        let cost = usage["cost"].as_f64().unwrap();
        // Started seconds, however many a busy machine needs.
        let seconds = (cost - tokens / 1e6) / PRICE;
        assert!(seconds > 0.99 && (seconds - seconds.round()).abs() < 1e-6, "{usage}");
        assert!((spent(&gate).await - before - cost).abs() < 1e-10);
        // What was not run costs nothing.
        yard.fails(Some("500 Oops"));
        sim.set(Script::from(asks("", &[("bash", json!({"command": "true"}))])).then(Behaviour::says("Done.")));
        let answer = message(&asked(&gate, &bash(stream)).await);
        assert!(answer["usage"]["cost"].as_f64().unwrap() < PRICE, "{answer}");
        yard.fails(None);
    }
    // 65 seconds may be needed for a call, which are 0.65 dollars.
    let made = gate.place.run(&["keys", "create", "--name", "poor", "--limit", "0.6"]).await;
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let is_known = async || gate.ask("GET", "/api/v1/key").key(&key).send().await.status == 200;
    eventually("the key is known", Duration::from_secs(10), is_known).await;
    let before = yard.orders().len();
    let content = ran(&gate, &sim, &key, &bash(false), ("bash", json!({"command": "true"}))).await;
    assert_eq!((&content["error_code"], yard.orders().len()), (&json!("unavailable"), before));
    // A shorter one can be paid for.
    let short = json!({"command": "true", "timeout_ms": 1000});
    let content = ran(&gate, &sim, &key, &bash(false), ("bash", short)).await;
    assert_eq!(content["exit_code"], 0, "{content}");
}
