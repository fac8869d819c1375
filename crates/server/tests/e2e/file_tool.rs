//! The files of a workspace in the hands of a model: listed, read, written and edited on every protocol.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message, told};
use crate::files::{kept, of_another_workspace};
use crate::harness::{Account, INFERENCE_KEY, Tidegate, hello, on_both};

fn body(stream: bool) -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:files"}]);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(1000);
    body
}

fn call(input: Value) -> (&'static str, Value) {
    ("tidegate_files", input)
}

/// The results that an upstream of the Messages protocol was sent with the last request.
fn heard(sim: &Sim) -> Vec<Value> {
    let sent: Value = serde_json::from_str(&bodies(sim).pop().unwrap()).unwrap();
    let blocks =
        sent["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_array()).flatten();
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results.map(|block| serde_json::from_str(block["content"].as_str().unwrap()).unwrap()).collect()
}

async fn content(gate: &Tidegate, id: &str) -> String {
    let read = gate.ask("GET", &format!("/v1/files/{id}/content")).key(INFERENCE_KEY).send().await;
    assert_eq!(read.status, 200, "{}", read.body_text());
    read.body_text().to_owned()
}

/// The newest files by their names and ids.
async fn listed(gate: &Tidegate) -> Vec<(String, String)> {
    let list = gate.ask("GET", "/v1/files?order=desc").key(INFERENCE_KEY).send().await.json();
    let text = |file: &Value, name: &str| file[name].as_str().unwrap().to_owned();
    list["data"].as_array().unwrap().iter().map(|file| (text(file, "filename"), text(file, "id"))).collect()
}

#[tokio::test]
async fn a_model_reads_writes_and_edits_on_every_protocol_whole_and_streamed() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        let id = kept(&gate, "tides.txt", "High water in Br\u{00ea}t is at six.".as_bytes()).await;
        let id = id["id"].as_str().unwrap();
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let edit = json!({"operation": "edit", "file_id": id, "old_string": "six", "new_string": "seven"});
            sim.set(
                Script::from(asks("Let me see.", &[call(json!({"operation": "read", "file_id": id}))]))
                    .then(asks("", &[call(edit.clone())]))
                    .then(Behaviour::says("Done.")),
            );
            let answer = message(&asked(&gate, &body(stream)).await);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "server_tool_use", "text"], "{case}: {answer}");
            let calls: Vec<&Value> = answer["content"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|block| block["type"] == "server_tool_use")
                .collect();
            assert_eq!((&calls[1]["name"], &calls[1]["input"]), (&json!("tidegate:files"), &edit), "{case}");
            assert_eq!((&told(&answer)["calls"], &told(&answer)["errors"]), (&json!(2), &json!(0)), "{case}");
            assert_eq!(answer["usage"]["server_tool_use"]["web_search_requests"], 0, "{case}");
            let sent = bodies(&sim).pop().unwrap();
            assert!(sent.contains("is at six"), "{case}: {sent}");
            // A new file of the same name; the old one is as it was.
            let (name, new) = listed(&gate).await.into_iter().next().unwrap();
            assert_eq!((&*name, new == id), ("tides.txt", false), "{case}");
            assert!(sent.contains(&new), "{case}: the model is told the new id");
            assert_eq!(content(&gate, &new).await, "High water in Br\u{00ea}t is at seven.", "{case}");
            assert_eq!(content(&gate, id).await, "High water in Br\u{00ea}t is at six.", "{case}");

            sim.set(
                Script::from(asks(
                    "",
                    &[call(json!({"operation": "write", "filename": "log.md", "content": "# Log"}))],
                ))
                .then(Behaviour::says("Done.")),
            );
            message(&asked(&gate, &body(stream)).await);
            let (name, new) = listed(&gate).await.into_iter().next().unwrap();
            assert_eq!((&*name, &*content(&gate, &new).await), ("log.md", "# Log"), "{case}");
        }
    }
}

#[tokio::test]
async fn lists_are_filtered_and_long_texts_are_cut() {
    let sim = Sim::start(Behaviour::Echo).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let short = kept(&gate, "Tides.txt", b"six").await;
    let long = kept(&gate, "log.txt", "x".repeat(200_001).as_bytes()).await;
    let calls = [
        json!({"operation": "list"}),
        json!({"operation": "list", "filename_filter": "tide"}),
        json!({"operation": "read", "file_id": long["id"]}),
    ];
    sim.set(Script::from(asks("", &calls.map(call))).then(Behaviour::says("Done.")));
    message(&asked(&gate, &body(false)).await);
    let heard = heard(&sim);
    let names = |result: &Value| -> Vec<Value> {
        result["result"]["files"].as_array().unwrap().iter().map(|file| file["filename"].clone()).collect()
    };
    assert_eq!(names(&heard[0]), ["log.txt", "Tides.txt"]);
    assert_eq!(names(&heard[1]), ["Tides.txt"]);
    let file = &heard[1]["result"]["files"][0];
    let shown = json!({"file_id": short["id"], "filename": "Tides.txt", "mime_type": "text/plain", "size_bytes": 3,
        "created_at": short["created_at"]});
    assert_eq!((file, &heard[1]["result"]["has_more"]), (&shown, &json!(false)));
    let read = &heard[2]["result"];
    assert_eq!(read["content"].as_str().unwrap().len(), 200_000);
    assert_eq!(read["note"], "cut: these are the first 200000 characters");
}

#[tokio::test]
async fn what_goes_wrong_is_a_result_that_the_model_reads() {
    let sim = Sim::start(Behaviour::Echo).await;
    let limits = "[files]\nmax_file_bytes = 10\nmax_workspace_files = 2\n";
    let gate = gate_for(&sim, PROTOCOLS[0], limits).await;
    let text = kept(&gate, "a.txt", b"six six").await["id"].clone();
    let bytes = kept(&gate, "b.bin", b"\xff").await["id"].clone();
    let unknown = "file_00000000000000000000000000";
    let edit =
        |id: &Value, old: &str| json!({"operation": "edit", "file_id": id, "old_string": old, "new_string": "x"});
    let cases = [
        (json!({}), "operation must be one of list, read, write, edit"),
        (json!({"operation": "delete"}), "operation must be one of list, read, write, edit"),
        (json!({"operation": "read"}), "read needs file_id, a string"),
        (json!({"operation": "read", "file_id": unknown}), "there is no file file_0"),
        (json!({"operation": "read", "file_id": "../etc"}), "there is no file ../etc"),
        (json!({"operation": "read", "file_id": bytes}), "b.bin is not text: text/plain"),
        (json!({"operation": "write", "filename": "a"}), "write needs content, a string"),
        (json!({"operation": "write", "filename": "a/b", "content": ""}), "filename must be 1 to 255 characters"),
        (
            json!({"operation": "write", "filename": "a", "content": "01234567890"}),
            "the file must have at most 10 bytes",
        ),
        (
            json!({"operation": "write", "filename": "a", "content": ""}),
            "the file cannot be kept: the workspace has as many",
        ),
        (edit(&text, "six"), "old_string is in the file more than once"),
        (edit(&text, "seven"), "old_string is not in the file"),
        (edit(&text, ""), "old_string must not be empty"),
    ];
    for (input, problem) in cases {
        sim.set(Script::from(asks("", &[call(input.clone())])).then(Behaviour::says("I see.")));
        let answer = message(&asked(&gate, &body(false)).await);
        assert_eq!((&answer["stop_reason"], &told(&answer)["errors"]), (&json!("end_turn"), &json!(1)), "{input}");
        let heard = heard(&sim);
        let error = heard[0]["error"].as_str().unwrap();
        assert!(error.starts_with(problem), "{input}: {error}");
    }
    assert_eq!(listed(&gate).await.len(), 2, "nothing was written");
    let off = gate_for(&sim, PROTOCOLS[0], "[tools]\ndisabled = [\"files\"]\n").await;
    let reply = asked(&off, &body(false)).await;
    assert_eq!(
        (reply.status, reply.error().3),
        (400, "tidegate:files is not configured on this deployment".to_owned())
    );
}

on_both! {
    async fn a_model_sees_the_files_of_the_calling_keys_workspace_alone(database: &Database) {
        let sim = Sim::start(Behaviour::Echo).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let gate = &account.gate;
        let ours = kept(gate, "ours.txt", b"secret of ours").await["id"].clone();
        let theirs = of_another_workspace(&account).await;
        let calls = [json!({"operation": "list"}), json!({"operation": "read", "file_id": ours}),
            json!({"operation": "edit", "file_id": ours, "old_string": "secret", "new_string": "x"})];
        sim.set(Script::from(asks("", &calls.map(call))).then(Behaviour::says("I see.")));
        let ask = gate.ask("POST", "/v1/messages").key(&theirs).json(body(false).to_string());
        assert_eq!(ask.send().await.status, 200);
        let heard = heard(&sim);
        assert_eq!(heard[0], json!({"result": {"files": [], "has_more": false}}));
        for result in &heard[1..] {
            assert!(result["error"].as_str().unwrap().starts_with("there is no file file_"), "{result}");
        }
        assert_eq!(listed(gate).await.len(), 1);
    }
}
