//! Files that messages name by their ids: upstreams get what they hold.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Sim};

use crate::agent::{MODEL, PROTOCOLS, bodies, gate_for};
use crate::files::{kept, kept_as, of_another_workspace};
use crate::harness::{Account, INFERENCE_KEY, Reply, Tidegate, hello, on_both};

fn showing(blocks: Value) -> Value {
    let mut body = hello(MODEL);
    body["messages"] = json!([{"role": "user", "content": blocks}]);
    body
}

fn block(kind: &str, id: &Value) -> Value {
    json!({"type": kind, "source": {"type": "file", "file_id": id}})
}

async fn sent(gate: &Tidegate, key: &str, path: &str, body: &Value) -> Reply {
    gate.ask("POST", path).key(key).json(body.to_string()).send().await
}

#[tokio::test]
async fn a_model_reads_what_a_file_holds_on_every_protocol_whole_and_streamed() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("I see.")).await;
        let gate = gate_for(&sim, protocol, "").await;
        let id = kept(&gate, "tides.csv", b"Brest,06:00").await["id"].clone();
        for stream in [false, true] {
            let mut body = showing(json!([block("document", &id), {"type": "text", "text": "When?"}]));
            body["stream"] = json!(stream);
            let reply = sent(&gate, INFERENCE_KEY, "/v1/messages", &body).await;
            assert_eq!(reply.status, 200, "{protocol:?}: {}", reply.body_text());
            let body = bodies(&sim).pop().unwrap();
            assert!(body.contains("Brest,06:00") && !body.contains("file_id"), "{protocol:?} {stream}: {body}");
        }
    }
}

#[tokio::test]
async fn files_stand_in_the_request_as_what_they_are() {
    let sim = Sim::start(Behaviour::says("I see.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let image = kept_as(&gate, "a.png", "image/png", b"\x89PNG\r\n\x1a\n").await["id"].clone();
    let text = kept(&gate, "a.txt", b"six").await["id"].clone();
    // Those of the upstream's own are none of our business.
    let foreign = json!("file_011CNha8iCJcU1wXNR6q4V8w");
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": [block("image", &image)]});
    let mut body =
        showing(json!([result, block("image", &image), block("document", &text), block("document", &foreign)]));
    body["tools"] = json!([{"name": "look", "input_schema": {"type": "object"}}]);
    body["messages"] =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [call]}, body["messages"][0]]);
    let reply = sent(&gate, INFERENCE_KEY, "/v1/messages", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let heard: Value = serde_json::from_str(&bodies(&sim).pop().unwrap()).unwrap();
    let shown =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
    let written = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "six"}});
    let wanted = json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": [shown]}, shown, written, block("document", &foreign)]);
    assert_eq!(heard["messages"][2]["content"], wanted);
    // Counting reads the same.
    let body = showing(json!([block("document", &text)]));
    let counted = sent(&gate, INFERENCE_KEY, "/v1/messages/count_tokens", &body).await;
    assert_eq!(counted.status, 200, "{}", counted.body_text());
}

#[tokio::test]
async fn inp_1_a_file_that_is_named_often_counts_as_often() {
    let sim = Sim::start(Behaviour::says("I see.")).await;
    let gate = gate_for(&sim, PROTOCOLS[0], "").await;
    let small = kept(&gate, "a.txt", b"six").await["id"].clone();
    let large = kept(&gate, "b.txt", &vec![b'a'; 4 << 20]).await["id"].clone();
    let often = |id: &Value, times: usize| showing(Value::Array(vec![block("document", id); times]));
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let reply = sent(&gate, INFERENCE_KEY, path, &often(&small, 100)).await;
        assert_eq!(reply.status, 200, "{}", reply.body_text());
        let reply = sent(&gate, INFERENCE_KEY, path, &often(&small, 101)).await;
        let text = "Invalid request: messages name files more than 100 times";
        assert_eq!((reply.status, reply.error().3), (400, text.to_owned()));
        // A hundred times four mebibytes.
        let reply = sent(&gate, INFERENCE_KEY, path, &often(&large, 100)).await;
        assert_eq!(reply.status, 413, "{}", reply.body_text());
    }
}

#[tokio::test]
async fn a_file_that_is_kept_elsewhere_is_shown_only_by_who_keeps_it() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::says("I see.")).await;
        let gate = gate_for(&sim, protocol, "").await;
        for kind in ["document", "image"] {
            let body = showing(json!([block(kind, &json!("file_nope")), {"type": "text", "text": "?"}]));
            let reply = sent(&gate, INFERENCE_KEY, "/v1/messages", &body).await;
            if protocol == PROTOCOLS[0] {
                assert_eq!(reply.status, 200, "{}", reply.body_text());
                continue;
            }
            let (status, kind, _, text) = reply.error();
            assert_eq!((status, &*kind, &*text), (404, "not_found_error", "File not found: file_nope"), "{protocol:?}");
        }
    }
}

on_both! {
    async fn ten_5_a_file_of_another_workspace_does_not_exist(database: &Database) {
        let sim = Sim::start(Behaviour::says("I see.")).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let gate = &account.gate;
        let ours = kept(gate, "a.txt", b"six").await["id"].clone();
        let theirs = of_another_workspace(&account).await;
        let unknown = json!("file_00000000000000000000000000");
        for (key, id) in [(theirs.as_str(), &ours), (INFERENCE_KEY, &unknown)] {
            for path in ["/v1/messages", "/v1/messages/count_tokens"] {
                let reply = sent(gate, key, path, &showing(json!([block("document", id)]))).await;
                let wanted = (404, "not_found_error".to_owned(), format!("File not found: {}", id.as_str().unwrap()));
                let (status, kind, _, text) = reply.error();
                assert_eq!((status, kind, text), wanted);
            }
        }
        let reply = sent(gate, INFERENCE_KEY, "/v1/messages", &showing(json!([block("image", &ours)]))).await;
        let text = "Invalid request: messages[0].content[0].source.file_id must be a file of image/jpeg, image/png, image/gif, \
                    image/webp; this one is text/plain";
        assert_eq!((reply.status, reply.error().3), (400, text.to_owned()));
        assert_eq!(sim.calls(), 0);
    }
}
