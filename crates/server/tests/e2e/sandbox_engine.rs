//! Commands of models in containers of an engine. It is played by folders and processes here; with `TEST_ENGINE_SOCKET` and
//! `TEST_ENGINE_IMAGE` the same tests run against Docker or Podman.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_sim::{Behaviour, Script, Sim};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::agent::{MODEL, PROTOCOLS, asks, gate_for, message};
use crate::harness::{INFERENCE_KEY, Tidegate, eventually, hello};

const IMAGE: &str = "house/box:1";

/// A container: whether it runs, and what it was created with.
struct Container {
    /// Another one of the same name has another.
    number: usize,
    is_running: bool,
    body: Value,
}

/// What is or was run: where, what, and the code it ended with.
struct Exec {
    container: String,
    body: Value,
    code: Option<i64>,
    is_running: bool,
}

#[derive(Default)]
struct Inside {
    containers: BTreeMap<String, Container>,
    /// Containers that there were at most, and that were made.
    most: usize,
    made: usize,
    execs: Vec<Exec>,
}

/// An engine whose containers are folders.
struct Engine {
    socket: PathBuf,
    image: String,
    /// None: it is a real one.
    inside: Option<Arc<Mutex<Inside>>>,
    _folder: TempDir,
    _serving: JoinSet<()>,
}

fn locked(inside: &Mutex<Inside>) -> MutexGuard<'_, Inside> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let mut serving = JoinSet::new();
        if let (Ok(socket), Ok(image)) = (std::env::var("TEST_ENGINE_SOCKET"), std::env::var("TEST_ENGINE_IMAGE")) {
            return Self { socket: socket.into(), image, inside: None, _folder: folder, _serving: serving };
        }
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let inside = Arc::<Mutex<Inside>>::default();
        let (shared, root) = (inside.clone(), folder.path().to_owned());
        serving.spawn(async move {
            let (mut connections, mut keepers) = (JoinSet::new(), JoinSet::new());
            let (keeping, mut kept) = unbounded_channel();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { return };
                        let (inside, root, keeping) = (shared.clone(), root.clone(), keeping.clone());
                        connections.spawn(async move { Box::pin(serve(stream, &inside, &root, &keeping)).await });
                    }
                    Some(keeper) = kept.recv() => {
                        let inside = shared.clone();
                        keepers.spawn(async move { keep(keeper, &inside).await });
                    }
                }
            }
        });
        Self { socket, image: IMAGE.to_owned(), inside: Some(inside), _folder: folder, _serving: serving }
    }

    fn config(&self) -> String {
        let (socket, image) = (self.socket.display(), &self.image);
        format!("[tools.sandbox]\nbackend = \"podman\"\nsocket = \"{socket}\"\nimage = \"{image}\"\n")
    }
}

/// What a container's first process is and whose.
type Keeper = (String, usize, Child);

/// What is to be run, with the folder in place of those of the container.
fn words_of(body: &Value, folder: &Path, before: &str) -> Vec<String> {
    let at = folder.display();
    let place = |text: &str| {
        text.replace("/tmp/.tidegate", &format!("{at}/.tidegate"))
            .replace("/run/tidegate", &format!("{at}"))
            .replace("/work /tmp", &format!("{at}/work"))
    };
    let words = [before, "Cmd"].into_iter().filter_map(|member| body[member].as_array()).flatten();
    words.map(|word| place(word.as_str().unwrap())).collect()
}

fn process(words: &[String], folder: &Path) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(folder.join("work")).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Waits for a container's first process: with it the container is gone, unless that was taken away before.
async fn keep((name, number, mut keeper): Keeper, inside: &Mutex<Inside>) {
    let _ = keeper.wait().await;
    locked(inside).containers.retain(|other, container| *other != name || container.number != number);
}

async fn serve(
    mut stream: UnixStream,
    inside: &Mutex<Inside>,
    root: &Path,
    keeping: &UnboundedSender<Keeper>,
) -> Option<()> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    let (head, body) = loop {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if bytes.len() >= end + 4 + length {
            let body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or(Value::Null);
            break (String::from_utf8_lossy(&bytes[..end]).into_owned(), body);
        }
    };
    let mut words = head.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (status, answer) = match (method, &parts[..]) {
        ("GET", ["containers", "json"]) => {
            let state = |is_running: bool| if is_running { "running" } else { "exited" };
            let all = locked(inside);
            let one = |(name, container): (&String, &Container)| json!({"Names": [format!("/{name}")], "State": state(container.is_running)});
            (200, json!(all.containers.iter().map(one).collect::<Vec<_>>()))
        }
        ("POST", ["containers", "create"]) => {
            let name = query.strip_prefix("name=")?.to_owned();
            if body["Image"] == IMAGE {
                let mut all = locked(inside);
                all.made += 1;
                let number = all.made;
                let answer = match all.containers.entry(name) {
                    Entry::Occupied(_) => (409, json!({"message": "the name is in use"})),
                    Entry::Vacant(place) => {
                        std::fs::create_dir_all(root.join(place.key()).join("work")).ok()?;
                        place.insert(Container { number, is_running: false, body });
                        (201, json!({"Id": "c"}))
                    }
                };
                all.most = all.most.max(all.containers.len());
                answer
            } else {
                (404, json!({"message": format!("No such image: {}", body["Image"].as_str()?)}))
            }
        }
        ("POST", ["containers", name, "start"]) => match locked(inside).containers.get_mut(*name) {
            Some(container) => {
                container.is_running = true;
                let words = words_of(&container.body, &root.join(name), "Entrypoint");
                let keeper = process(&words, &root.join(name)).spawn().unwrap();
                let _ = keeping.send(((*name).to_owned(), container.number, keeper));
                (204, Value::Null)
            }
            None => (404, json!({"message": "no such container"})),
        },
        ("GET", ["images", .., "json"]) if path == format!("/images/{IMAGE}/json") => {
            (200, json!({"Config": {"Volumes": null}}))
        }
        ("GET", ["images", .., "json"]) => (404, json!({"message": format!("No such image: {path}")})),
        ("DELETE", ["containers", name]) => {
            locked(inside).containers.remove(*name);
            let _ = std::fs::remove_dir_all(root.join(name));
            (204, Value::Null)
        }
        ("POST", ["containers", name, "exec"]) => {
            let mut all = locked(inside);
            if all.containers.get(*name).is_some_and(|container| container.is_running) {
                all.execs.push(Exec { container: (*name).to_owned(), body, code: None, is_running: false });
                (201, json!({"Id": format!("e{}", all.execs.len() - 1)}))
            } else {
                (409, json!({"message": "the container does not run"}))
            }
        }
        ("POST", ["exec", id, "start"]) => return Box::pin(run(stream, inside, root, id[1..].parse().ok()?)).await,
        ("GET", ["exec", id, "json"]) => {
            let all = locked(inside);
            let exec = all.execs.get(id[1..].parse::<usize>().ok()?)?;
            (200, json!({"Running": exec.is_running, "ExitCode": exec.code}))
        }
        _ => (404, json!({"message": format!("{method} {path} is unknown here")})),
    };
    let text = if answer.is_null() { String::new() } else { answer.to_string() };
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head}{text}").as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// Runs what was made before, in the container's folder, and says on both streams what it says.
async fn run(mut stream: UnixStream, inside: &Mutex<Inside>, root: &Path, number: usize) -> Option<()> {
    let (container, body) = {
        let mut all = locked(inside);
        let exec = &mut all.execs[number];
        exec.is_running = true;
        (exec.container.clone(), exec.body.clone())
    };
    let folder = root.join(&container);
    let words = words_of(&body, &folder, "");
    let mut command = process(&words, &folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n").await.ok()?;
    let (mut out, mut err) = (child.stdout.take()?, child.stderr.take()?);
    let (mut from_out, mut from_err) = ([0; 8192], [0; 8192]);
    let (mut is_out, mut is_err, mut is_running) = (true, true, true);
    let ended = |code: std::process::ExitStatus| {
        if let Some(exec) = locked(inside).execs.get_mut(number) {
            (exec.is_running, exec.code) = (false, Some(code.code().unwrap_or(137).into()));
        }
    };
    while is_out || is_err {
        let (kind, bytes) = tokio::select! {
            // What it started may hold its streams for longer than it runs.
            code = child.wait(), if is_running => {
                ended(code.ok()?);
                is_running = false;
                continue;
            }
            read = out.read(&mut from_out), if is_out => (1, &from_out[..read.ok()?]),
            read = err.read(&mut from_err), if is_err => (2, &from_err[..read.ok()?]),
        };
        if bytes.is_empty() {
            *(if kind == 1 { &mut is_out } else { &mut is_err }) = false;
            continue;
        }
        let mut piece = vec![kind, 0, 0, 0];
        piece.extend_from_slice(&u32::try_from(bytes.len()).ok()?.to_be_bytes());
        piece.extend_from_slice(bytes);
        // Whoever does not listen any more is told nothing; the process goes on.
        let _ = stream.write_all(&piece).await;
    }
    if is_running {
        ended(child.wait().await.ok()?);
    }
    Some(())
}

/// A session of its own for each test: the engine may be shared.
fn body(tool: &str, session: &str) -> Value {
    let mut body = hello(MODEL);
    body["tools"] =
        json!([{"type": format!("tidegate:{tool}"), "parameters": {"engine": "tidegate", "sleep_after_seconds": 5}}]);
    body["session_id"] = json!(format!("{session}-{}", std::process::id()));
    body["max_tokens"] = json!(1000);
    body
}

/// What came of a call.
async fn ran(gate: &Tidegate, sim: &Sim, request: &Value, input: Value) -> Value {
    let tool = request["tools"][0]["type"].as_str().unwrap().trim_start_matches("tidegate:");
    sim.set(Script::from(asks("", &[(tool, input)])).then(Behaviour::says("Done.")));
    let answer = message(&gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(request.to_string()).send().await);
    let blocks = answer["content"].as_array().unwrap();
    blocks.iter().find(|block| block["type"].as_str().unwrap().ends_with("_tool_result")).unwrap()["content"].clone()
}

#[tokio::test]
async fn a_shell_in_a_container_keeps_what_commands_leave_behind() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let request = body("bash", "keeps");
    let bash = async |command: &str| ran(&gate, &sim, &request, json!({"command": command})).await;
    let first = bash("mkdir -p deep && cd deep && echo six > tide; set -o pipefail; export HARBOUR='a b'\nlist=(1 '2 3')\nrise() { echo \"up $1\"; }").await;
    assert_eq!((&first["exit_code"], &first["stdout"], &first["stderr"]), (&json!(0), &json!(""), &json!("")));
    let next =
        bash("cat tide; rise \"${list[1]}\"; echo \"$HARBOUR\" $1; false | true; echo $?; echo oh >&2; exit 7").await;
    let said = (&next["exit_code"], &next["stdout"], &next["stderr"]);
    assert_eq!(said, (&json!(7), &json!("six\nup 2 3\na b\n1\n"), &json!("oh\n")));
    // What ended the shell took nothing from the next one, and a folder that is gone is left.
    let after = bash("cat tide; cd ..; rm -r deep; basename \"$PWD\"").await;
    assert_eq!(after["stdout"], "six\nwork\n", "{after}");
    // Commands of one call, one after another.
    let both = ran(&gate, &sim, &request, json!({"commands": ["x=1; echo $x", "echo $((x + 1))"]})).await;
    assert_eq!(both["stdout"], "1\n2\n");
    // Its own process goes on, and nobody waits for it.
    let background = bash("sleep 1000 & echo $! > it; echo begun").await;
    assert_eq!((&background["stdout"], &background["exit_code"]), (&json!("begun\n"), &json!(0)));
    assert_eq!(bash("kill $(cat it)").await["exit_code"], 0);
    // One that talks holds nobody up, either.
    let talks =
        json!({"command": "(while :; do echo x; sleep 0.1; done) & echo $! > it; echo begun", "timeout_ms": 5000});
    let talks = ran(&gate, &sim, &request, talks).await;
    assert!(talks["exit_code"] == 0 && talks["stdout"].as_str().unwrap().contains("begun\n"), "{talks}");
    assert_eq!(bash("kill $(cat it); trap 'echo bye' EXIT; kept=yes").await["stdout"], "bye\n");
    assert_eq!(bash("echo $kept; trap - EXIT").await["stdout"], "yes\n");
    let fresh = ran(&gate, &sim, &request, json!({"restart": true})).await;
    assert_eq!((&fresh["exit_code"], &fresh["container_id"]), (&json!(0), &first["container_id"]));
    assert_eq!(bash("ls; echo \"[$HARBOUR]\"").await["stdout"], "[]\n");
}

#[tokio::test]
async fn what_takes_too_long_or_says_too_much_is_ended() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let request = body("shell", "ended");
    let shell = async |input: Value| ran(&gate, &sim, &request, input).await;
    let exit = |stdout: &str, stderr: &str, code: i64| json!({"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}});
    let input = json!({"commands": ["echo one > a; cd /; echo six", "cat a; echo oops >&2; exit 3", "printf '%0100d' 7"], "max_output_length": 4});
    assert_eq!(
        shell(input).await["output"],
        json!([exit("six\n", "", 0), exit("one\n", "oops", 3), exit("0000", "", 0)])
    );
    // What it began goes with it, and files stay.
    let late = json!({"commands": ["echo begun; (while :; do date >> ticks; sleep 0.1; done) & sleep 60", "echo never"], "timeout_ms": 1500});
    let content = shell(late).await;
    assert_eq!(content["output"], json!([{"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}}]));
    let count = json!({"commands": ["cat a; wc -l < ticks > n; sleep 1; [ \"$(wc -l < ticks)\" = \"$(cat n)\" ] && echo still"]});
    assert_eq!(shell(count).await["output"][0]["stdout"], "one\nstill\n");
    let much = shell(json!({"commands": ["yes tide"], "max_output_length": 10})).await;
    assert_eq!(much["output"], json!([exit("tide\ntide\n", "", 137)]));
    // One that multiplies may leave no room to be ended in: the container goes, and the next command finds a new one.
    if engine.inside.is_none() {
        let bomb = shell(json!({"commands": ["f() { f | f & }; f; sleep 60"], "timeout_ms": 1500})).await;
        assert_eq!(bomb["output"][0]["outcome"]["type"], "timeout", "{bomb}");
        let shut = json!({"commands": ["kill -9 1; echo x > /etc/x; echo 9999999999 > /run/tidegate/until; id -u; ls /sys/class/net"]});
        assert_eq!(shell(shut).await["output"][0]["stdout"], "65534\nlo\n");
        // Files are as much as there is room for, and memory is left for programs.
        let hog = shell(json!({"commands": ["head -c 2000000000 /dev/zero > a; wc -c < a"]})).await;
        let written: u64 = hog["output"][0]["stdout"].as_str().unwrap().trim().parse().unwrap();
        assert!((600 << 20..=640 << 20).contains(&written), "{hog}");
    }
    let long = shell(json!({"commands": [format!("echo {}", "x".repeat(140_000))]})).await;
    let stderr = "A command has at most 131071 bytes and no NUL.";
    assert_eq!(long["output"], json!([exit("", stderr, 126)]));
}

#[tokio::test]
async fn who_leaves_takes_the_command_along() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let request = body("shell", "leaves");
    let shell = async |command: &str| {
        let content = ran(&gate, &sim, &request, json!({"commands": [command]})).await;
        content["output"][0]["stdout"].as_str().unwrap().to_owned()
    };
    shell("touch ticks").await;
    let ticking = "while :; do echo x >> ticks; sleep 0.1; done";
    sim.set(Script::from(asks("", &[("shell", json!({"commands": [ticking]}))])).then(Behaviour::says("Done.")));
    let text = request.to_string();
    let mut client = TcpStream::connect(gate.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {INFERENCE_KEY}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    client.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
    let asked = sim.calls();
    eventually("the model was asked", Duration::from_secs(10), async || sim.calls() > asked || sim.calls() > 2).await;
    let runs = async || shell("wc -l < ticks").await.trim() != "0";
    eventually("the command runs", Duration::from_secs(20), runs).await;
    drop(client);
    let is_ended = async || {
        shell("wc -l < ticks > n; sleep 0.5; [ \"$(wc -l < ticks)\" = \"$(cat n)\" ] && echo still").await == "still\n"
    };
    eventually("it is ended", Duration::from_secs(20), is_ended).await;
}

#[tokio::test]
async fn containers_are_shut_in_and_few() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("{}max_containers = 2\n", engine.config())).await;
    let codes = async |session: &str| {
        let content = ran(&gate, &sim, &body("shell", session), json!({"commands": ["true"]})).await;
        content["error_code"].clone()
    };
    let Some(inside) = &engine.inside else { return };
    for session in ["one", "two", "one"] {
        assert_eq!(codes(session).await, Value::Null, "{session}");
    }
    // The place of the one that was not used for longest is another one's.
    assert_eq!(codes("three").await, Value::Null);
    let all = locked(inside);
    assert_eq!(all.containers.len(), 2);
    for (name, container) in &all.containers {
        assert!(name.starts_with("tg-"), "{name}");
        let host = &container.body["HostConfig"];
        let wanted = json!({"AutoRemove": true, "ReadonlyRootfs": true, "NetworkMode": "none", "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"], "NanoCpus": 1_000_000_000, "Memory": 1_073_741_824,
            "MemorySwap": 1_073_741_824, "PidsLimit": 256});
        for (member, value) in wanted.as_object().unwrap() {
            assert_eq!(&host[member], value, "{member}");
        }
        assert_eq!((&host["Binds"], &host["Privileged"]), (&Value::Null, &Value::Null));
    }
    // Commands of models are nobody's; what keeps the container is root's, so that they cannot keep it for good.
    let users =
        all.execs.iter().map(|exec| (exec.body["Cmd"][2].as_str().unwrap(), exec.body["User"].as_str().unwrap()));
    for (script, user) in users {
        assert_eq!(user == "0:0", script.contains("/run/tidegate/"), "{script}");
        assert!(user == "0:0" || user == "65534:65534", "{user}");
    }
}

#[tokio::test]
async fn of_many_at_once_no_more_containers_are_made_than_may_be() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let Some(inside) = &engine.inside else { return };
    let gate = gate_for(&sim, PROTOCOLS[0], &format!("{}max_containers = 2\n", engine.config())).await;
    let input = json!({"commands": ["sleep 3"]});
    sim.set(Script::from(Behaviour::Calls { name: "shell".to_owned(), input }));
    let mut asking = JoinSet::new();
    for number in 0..8 {
        let request = body("shell", &format!("crowd-{number}")).to_string();
        let ask = gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(request);
        asking.spawn(async move { message(&ask.send().await).to_string() });
    }
    let answers = asking.join_all().await;
    let refused = answers.iter().filter(|answer| answer.contains("too_many_requests")).count();
    assert_eq!((locked(inside).most, refused), (2, 6), "those that are in use are taken from nobody");
}

#[tokio::test]
async fn a_container_rests_only_when_no_call_runs_in_it() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let mut request = body("shell", "neighbours");
    request["tools"][0]["parameters"]["sleep_after_seconds"] = json!(1);
    let calls = [
        ("shell", json!({"commands": ["echo a > a; sleep 7; cat a"]})),
        ("shell", json!({"commands": ["echo quick"]})),
    ];
    sim.set(Script::from(asks("", &calls)).then(Behaviour::says("Done.")));
    let answer = message(&gate.ask("POST", "/v1/messages").key(INFERENCE_KEY).json(request.to_string()).send().await);
    let text = answer.to_string();
    assert!(text.contains("\"stdout\":\"a\\n\"") && text.contains("\"stdout\":\"quick\\n\""), "{text}");
    let Some(inside) = &engine.inside else { return };
    let is_gone = async || locked(inside).containers.is_empty();
    eventually("it rests, and is gone", Duration::from_secs(20), is_gone).await;
}

#[tokio::test]
async fn what_commands_say_is_bounded_for_all_of_a_call() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let request = body("shell", "bounded");
    let input = json!({"commands": vec!["head -c 300000 /dev/zero | tr '\\0' x"; 20], "max_output_length": 200_000});
    let content = ran(&gate, &sim, &request, input).await;
    let said = |one: &Value| one["stdout"].as_str().unwrap().len();
    let output = content["output"].as_array().unwrap();
    assert_eq!((output.len(), said(&output[0])), (20, 200_000));
    assert!(output.iter().map(said).sum::<usize>() <= 2 << 20);
    assert!(output.iter().all(|one| one["outcome"]["exit_code"] == 0), "all of them ran");
}

#[tokio::test]
async fn what_ran_before_the_container_went_away_is_told() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let Some(inside) = &engine.inside else { return };
    let gate = gate_for(&sim, PROTOCOLS[0], &engine.config()).await;
    let request = body("shell", "lost");
    let taken = async {
        let runs = async || {
            locked(inside).execs.iter().any(|exec| exec.is_running && exec.body.to_string().contains("sleep 60"))
        };
        eventually("the second command runs", Duration::from_secs(20), runs).await;
        locked(inside).execs.clear();
    };
    let input = json!({"commands": ["echo done", "echo half; sleep 60", "echo never"]});
    let (content, ()) = tokio::join!(ran(&gate, &sim, &request, input), taken);
    let output = content["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0]["stdout"]), (2, &json!("done\n")), "{content}");
    assert_eq!((&output[1]["stdout"], &output[1]["outcome"]["exit_code"]), (&json!("half\n"), &json!(137)));
}

#[tokio::test]
async fn an_engine_that_is_not_there_or_lacks_the_image_is_unavailable() {
    let (sim, engine) = (Sim::start(Behaviour::Echo).await, Engine::start().await);
    let socket = engine.socket.display();
    for config in [
        "backend = \"docker\"\nsocket = \"/nowhere/docker.sock\"\nimage = \"x\"\n".to_owned(),
        format!("backend = \"docker\"\nsocket = \"{socket}\"\nimage = \"localhost/not-there:1\"\n"),
    ] {
        let gate = gate_for(&sim, PROTOCOLS[0], &format!("[tools.sandbox]\n{config}")).await;
        let content = ran(&gate, &sim, &body("shell", "none"), json!({"commands": ["true"]})).await;
        assert_eq!(content["error_code"], "unavailable", "{config}: {content}");
        let checked = gate.place.run(&["check"]).await;
        let said = String::from_utf8(checked.stdout).unwrap();
        let wrong =
            said.lines().find(|line| line.starts_with("FAIL  tools.sandbox: ")).unwrap_or_else(|| panic!("{said}"));
        let is_told =
            wrong.contains("may this user write to its socket?") || wrong.contains("podman pull localhost/not-there:1");
        assert!(is_told && !checked.status.success(), "{wrong}");
    }
}
