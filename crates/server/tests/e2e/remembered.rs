//! Results that clients do not get to see: they outlive the process that made them, in their workspace and for a day.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_sim::{Behaviour, Script, Sim};

use crate::agent::{MODEL, PROTOCOLS, asked, asks, bodies, gate_for, kinds, message};
use crate::files::of_another_workspace;
use crate::harness::{Account, INFERENCE_KEY, Tidegate, eventually, hello, on_both, user};

const SOON: std::time::Duration = std::time::Duration::from_secs(10);

fn body() -> Value {
    let mut body = hello(MODEL);
    body["tools"] = json!([{"type": "tidegate:datetime"}]);
    body
}

/// A conversation in which the time was asked for, with a further question.
async fn begun(gate: &Tidegate, sim: &Sim) -> Value {
    sim.set(
        Script::from(asks("Let me see.", &[("tidegate_datetime", json!({"timezone": "Europe/Paris"}))]))
            .then(Behaviour::says("It is late.")),
    );
    let answer = message(&asked(gate, &body()).await);
    assert_eq!(kinds(&answer), ["text", "server_tool_use", "text"]);
    let mut next = body();
    next["messages"] =
        json!([next["messages"][0], {"role": "assistant", "content": answer["content"]}, user("And now?")]);
    next
}

/// What the upstream is sent of a conversation: the calls and the texts of their results.
async fn sent(gate: &Tidegate, sim: &Sim, key: &str, conversation: &Value) -> (usize, Vec<String>) {
    sim.set(Behaviour::says("Later."));
    let reply = gate.ask("POST", "/v1/messages").key(key).json(conversation.to_string()).send().await;
    assert_eq!(reply.status, 200, "{}", reply.body_text());
    let sent: Value = serde_json::from_str(&bodies(sim).pop().unwrap()).unwrap();
    let blocks: Vec<&Value> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten()
        .collect();
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use").count();
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    (calls, results.map(|block| block["content"].as_str().unwrap().to_owned()).collect())
}

on_both! {
    async fn a_conversation_goes_on_after_a_restart_in_its_workspace_alone(database: &Database) {
        let sim = Sim::start(Behaviour::Echo).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let theirs = of_another_workspace(&account).await;
        let conversation = begun(&account.gate, &sim).await;
        let (calls, results) = sent(&account.gate, &sim, INFERENCE_KEY, &conversation).await;
        assert_eq!((calls, results.len()), (1, 1));
        assert!(results[0].contains("\"timezone\":\"Europe/Paris\""), "{results:?}");
        let (status, place) = account.gate.stop().await;
        assert!(status.success());

        let gate = place.serve().await;
        assert_eq!(sent(&gate, &sim, &theirs, &conversation).await, (0, vec![]), "another workspace");
        assert_eq!(sent(&gate, &sim, INFERENCE_KEY, &conversation).await, (1, results.clone()), "to the letter");
        // Now from memory.
        assert_eq!(sent(&gate, &sim, INFERENCE_KEY, &conversation).await, (1, results));
        assert_eq!(sent(&gate, &sim, &theirs, &conversation).await, (0, vec![]));
    }

    async fn results_are_sealed_and_go_when_their_time_is_over(database: &Database) {
        let sim = Sim::start(Behaviour::Echo).await;
        let account = Account::start(database, Tidegate::start().endpoint(MODEL, &sim)).await;
        let conversation = begun(&account.gate, &sim).await;
        let id = conversation["messages"][1]["content"][1]["id"].as_str().unwrap().to_owned();
        let (store, tenant, workspace) = (&account.store, &account.tenant, &account.workspace);
        let kept = async || store.tool_results(tenant, workspace, &[&id], Timestamp(0)).await.unwrap();
        eventually("it is written", SOON, async || !kept().await.is_empty()).await;
        let (_, sealed, expires) = kept().await.pop().unwrap();
        assert!(!sealed.windows(5).any(|window| window == b"Paris"));

        assert_eq!(store.purge_tool_results(Timestamp(expires.0 - 1)).await.unwrap(), 0);
        assert_eq!(store.purge_tool_results(expires).await.unwrap(), 1);
        let (_, place) = account.gate.stop().await;
        let gate = place.serve().await;
        assert_eq!(sent(&gate, &sim, INFERENCE_KEY, &conversation).await, (0, vec![]), "nobody remembers it");
    }

    async fn results_that_another_model_got_are_nobodys_to_send_back(database: &Database) {
        let (sim, other) = (Sim::start(Behaviour::Echo).await, Sim::start(Behaviour::Echo).await);
        let builder = Tidegate::start().endpoint(MODEL, &sim).endpoint("vendor/n", &other);
        let account = Account::start(database, builder).await;
        let task = json!({"task_name": "time", "task_description": "Tell the time."});
        sim.set(Script::from(asks("", &[("tidegate_subagent", task)])).then(Behaviour::says("It is late.")));
        other.set(Script::from(asks("", &[("tidegate_datetime", json!({}))])).then(Behaviour::says("Late.")));
        let mut body = body();
        let parameters = json!({"model": "vendor/n", "tools": body["tools"]});
        body["tools"] = json!([{"type": "tidegate:subagent", "parameters": parameters}]);
        assert_eq!(kinds(&message(&asked(&account.gate, &body).await)), ["server_tool_use", "text"]);
        assert_eq!(other.calls(), 2);
        let store = &account.store;
        let (status, _) = account.gate.stop().await;
        assert!(status.success());
        // That of the task is kept, and that of the call which the task made is not.
        assert_eq!(store.purge_tool_results(Timestamp(i64::MAX)).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_call_comes_back_without_its_tool_and_no_vendor_meets_its_name() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "").await;
        let mut conversation = begun(&gate, &sim).await;
        let last = async |body: &Value| -> String {
            sim.set(Behaviour::says("Later."));
            message(&asked(&gate, body).await);
            bodies(&sim).pop().unwrap()
        };
        // Without any tools it is told in words, with others as a call of a function.
        conversation.as_object_mut().unwrap().remove("tools");
        let words = last(&conversation).await;
        let own = json!({"name": "get_berth", "input_schema": {"type": "object"}});
        for tools in [json!([own]), json!([{"type": "tidegate:experimental__search_models"}])] {
            let mut with_tools = conversation.clone();
            with_tools["tools"] = tools;
            let calls = last(&with_tools).await;
            assert!(calls.contains("tidegate_datetime") && !calls.contains("tidegate:"), "{protocol:?}: {calls}");
            assert!(calls.contains("timezone") && calls.contains("Europe/Paris"), "{protocol:?}: {calls}");
            assert!(!calls.contains("server_tool_use"), "{protocol:?}: {calls}");
        }
        assert!(words.contains("[tidegate:datetime {") && !words.contains("server_tool_use"), "{protocol:?}: {words}");
        assert!(words.contains("datetime\\\":"), "what it gave is told: {protocol:?}: {words}");
        // What nobody remembers is left out, call and all.
        let mut lost = conversation.clone();
        for block in lost["messages"][1]["content"].as_array_mut().unwrap() {
            if block["type"] == "server_tool_use" {
                block["id"] = json!("srvtoolu_lost");
            }
        }
        let lost = last(&lost).await;
        assert!(!lost.contains("datetime") && lost.contains("Let me see."), "{protocol:?}: {lost}");
    }
}

#[tokio::test]
async fn results_without_a_block_of_their_own_are_shown_where_the_operator_wants_it() {
    for protocol in PROTOCOLS {
        let sim = Sim::start(Behaviour::Echo).await;
        let gate = gate_for(&sim, protocol, "[tools]\ngeneric_result_block = true\n").await;
        for stream in [false, true] {
            let case = format!("{protocol:?} {stream}");
            let clock = ("tidegate_datetime", json!({"timezone": "Europe/Paris"}));
            sim.set(Script::from(asks("Let me see.", &[clock])).then(Behaviour::says("It is late.")));
            let mut asking = body();
            asking["stream"] = json!(stream);
            let answer = message(&asked(&gate, &asking).await);
            assert_eq!(kinds(&answer), ["text", "server_tool_use", "tidegate_tool_result", "text"], "{case}");
            let of = |kind: &str| {
                let blocks = answer["content"].as_array().unwrap();
                blocks.iter().find(|block| block["type"] == kind).unwrap().clone()
            };
            let (call, mut result) = (of("server_tool_use"), of("tidegate_tool_result"));
            assert_eq!((&result["tool_use_id"], &result["name"]), (&call["id"], &json!("tidegate:datetime")), "{case}");
            let told: Value = serde_json::from_str(result["content"].as_str().unwrap()).unwrap();
            assert_eq!(told["timezone"], "Europe/Paris", "{case}");
            assert_eq!(result.as_object().unwrap().len(), 4, "{case}: {result}");

            // It is taken when it comes back, with the tool and without it; what it says counts.
            result["content"] = json!("Six o'clock, sharp.");
            for tools in [json!([{"type": "tidegate:datetime"}]), json!([])] {
                let mut next = body();
                next["tools"] = tools;
                let said = json!([{"type": "text", "text": "Let me see."}, call, result]);
                next["messages"] = json!([next["messages"][0], {"role": "assistant", "content": said}, user("So?")]);
                sim.set(Behaviour::says("Yes."));
                message(&asked(&gate, &next).await);
                let sent = bodies(&sim).pop().unwrap();
                assert!(
                    sent.contains("Six o'clock, sharp.") && !sent.contains("_tool_result\",\"tool_use_id\":\"srv"),
                    "{case}: {sent}"
                );
                assert!(!sent.contains("tidegate_tool_result"), "{case}: {sent}");
            }
        }
    }
}
