//! Every quirk: that it is there, and that nothing else about the answer is odd.

use serde_json::{Value, json};
use tidegate_sim::{Behaviour, Protocol, Quirk, Script, Sim};

use crate::client::Reply;
use crate::spoken::{ALL, Heard, ask, data, heard, send, streamed, whole, with_tool};

async fn reply(sim: &Sim, protocol: Protocol, quirk: Quirk, tool: bool, stream: bool) -> Reply {
    let model = format!("sim-quirk-{}", quirk.name());
    let request = ask(protocol, &model, "Brest");
    let request = if tool { with_tool(protocol, request) } else { request };
    send(sim, protocol, &model, request, stream).await
}

async fn chunks(sim: &Sim, quirk: Quirk) -> Vec<Value> {
    data(reply(sim, Protocol::Chat, quirk, true, true).await.text())
}

/// All entries of `tool_calls` in the order they came.
fn entries(chunks: &[Value]) -> Vec<Value> {
    let entries = |chunk: &Value| chunk["choices"][0]["delta"]["tool_calls"].as_array().cloned().unwrap_or_default();
    chunks.iter().flat_map(entries).collect()
}

fn fragments(chunks: &[Value]) -> Vec<String> {
    entries(chunks).iter().map(|entry| entry["function"]["arguments"].as_str().unwrap_or("-").to_owned()).collect()
}

/// Quirks of the frame or of the end leave the content alone: it is that of an ordinary answer.
#[tokio::test]
async fn the_content_is_that_of_an_ordinary_answer() {
    use Quirk::*;
    let changed = [
        ToolCallFirst,
        TextAfterTools,
        AllIndexZero,
        NoIndex,
        ArgumentsAfterEmptyObject,
        ArgumentsObject,
        ArgumentsOnlyDone,
        NoArguments,
        TextOnlyDone,
        ReasoningField,
        ReasoningDetails,
        ReasoningBoth,
        ThinkTags,
        FailedEvent,
        ErrorIn200,
        ErrorFinish,
        ErrorString,
        ErrorDetail,
        ErrorObject,
        ErrorArray,
        ToolUseFailed,
        BlockedPrompt,
        WholeForStream,
        ChecksSignatures,
        MistralThinking,
        IdsNull,
        NoSignature,
        BadChecksum,
        ErrorFrame,
        ModelStreamError,
        ErrorTypeInBody,
    ];
    let sim = Sim::start(Script::default()).await;
    let query = |text: &str| ("tide_at".to_owned(), json!({"query": text}));
    for quirk in Quirk::ALL.iter().filter(|quirk| !changed.contains(quirk)) {
        for protocol in quirk.protocols() {
            for (tool, stream) in [(false, false), (false, true), (true, false), (true, true)] {
                let reply = reply(&sim, *protocol, *quirk, tool, stream).await;
                let name = format!("{} {protocol:?} tool {tool} stream {stream}", quirk.name());
                assert_eq!((reply.status, reply.complete), (200, true), "{name}");
                let heard = heard(*protocol, &reply, stream);
                let expected = match tool {
                    true => (String::new(), vec![query("Brest"), query("Brest (2)")]),
                    false => ("Høyvann i Ålesund, 満潮は正午 🌊🌊, και η άμπωτη στις έξι.".to_owned(), vec![]),
                };
                assert_eq!((heard.text, heard.calls), expected, "{name}");
                assert_eq!(heard.finish.is_none(), *quirk == NoFinish, "{name}");
                let silent = *quirk == NoUsage || *quirk == UsageXGroq && stream;
                assert_eq!(heard.usage.is_none(), silent, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_quirk_is_refused_where_it_cannot_happen() {
    let sim = Sim::start(Script::default()).await;
    for quirk in Quirk::ALL {
        for protocol in ALL.iter().filter(|protocol| !quirk.protocols().contains(protocol)) {
            let reply = reply(&sim, *protocol, *quirk, false, false).await;
            assert_eq!(reply.status, 400, "{} {protocol:?}", quirk.name());
            assert!(reply.text().contains(quirk.name()));
        }
    }
    let request = ask(Protocol::Chat, "sim-quirk-unheard-of", "hi");
    assert_eq!(send(&sim, Protocol::Chat, "m", request, false).await.status, 400);
    sim.set(serde_json::from_str::<Script>(r#"{"behaviour":{"quirk":"no-usage"}}"#).unwrap());
    assert_eq!(send(&sim, Protocol::Chat, "m", ask(Protocol::Chat, "m", "hi"), false).await.json().get("usage"), None);
    sim.set(Behaviour::Quirk(Quirk::NoUsage));
    assert_eq!(
        send(&sim, Protocol::Responses, "m", ask(Protocol::Responses, "m", "hi"), false).await.json()["usage"],
        json!(null)
    );
}

#[tokio::test]
async fn chat_calls_come_in_odd_pieces() {
    let sim = Sim::start(Script::default()).await;
    let first = chunks(&sim, Quirk::ToolCallFirst).await;
    assert!(first[0]["choices"][0]["delta"]["tool_calls"][0]["id"].is_string());

    let empty = chunks(&sim, Quirk::EmptyTextFirst).await;
    assert!(empty[..3].iter().all(|chunk| chunk["choices"][0]["delta"]["content"] == ""));

    let between = chunks(&sim, Quirk::EmptyContentBetween).await;
    let contents = between.iter().filter(|chunk| chunk["choices"][0]["delta"]["content"] == "").count();
    assert_eq!(contents, 2 * entries(&between).len());

    let around = streamed(Protocol::Chat, &chunks(&sim, Quirk::TextAfterTools).await);
    assert_eq!((around.text.as_str(), around.calls.len()), ("Let me look.One moment.", 2));

    let mixed = chunks(&sim, Quirk::InterleavedCalls).await;
    let order: Vec<_> = entries(&mixed).iter().map(|entry| entry["index"].as_u64().unwrap()).collect();
    assert_eq!(order[..6], [0, 1, 0, 1, 0, 1]);

    let zero = entries(&chunks(&sim, Quirk::AllIndexZero).await);
    assert!(zero.iter().all(|entry| entry["index"] == 0));
    assert_eq!(zero.iter().filter(|entry| entry["id"].is_string()).count(), 2);
    assert!(entries(&chunks(&sim, Quirk::NoIndex).await).iter().all(|entry| entry.get("index").is_none()));
    let repeated = entries(&chunks(&sim, Quirk::NameRepeated).await);
    assert!(repeated.iter().all(|entry| entry["id"].is_string() && entry["function"]["name"] == "tide_at"));
    let ids = entries(&chunks(&sim, Quirk::IdsRestart).await);
    assert_eq!(ids[0]["id"], "functions.tide_at:0");
}

#[tokio::test]
async fn chat_arguments_come_in_odd_forms() {
    let sim = Sim::start(Script::default()).await;
    let after = fragments(&chunks(&sim, Quirk::ArgumentsAfterEmptyObject).await);
    assert_eq!(after[..2], ["{}", "{\"query\""]);
    let second = after.iter().rposition(|piece| piece == "{}").unwrap();
    assert_eq!(after[second - 1..second + 2], ["", "{}", "{\"query\""]);
    let whole = reply(&sim, Protocol::Chat, Quirk::ArgumentsAfterEmptyObject, true, false).await.json();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{}{\"query\":\"Brest\"}");

    let start = entries(&chunks(&sim, Quirk::ArgumentsInStart).await);
    assert_eq!((start[0]["id"].is_string(), &start[0]["function"]["arguments"]), (true, &json!("{\"query\"")));

    let object = entries(&chunks(&sim, Quirk::ArgumentsObject).await);
    assert_eq!((object.len(), &object[0]["function"]["arguments"]), (2, &json!({"query": "Brest"})));
    assert_eq!(fragments(&chunks(&sim, Quirk::NoArguments).await), ["", "-"]);
}

#[tokio::test]
async fn chat_ends_in_odd_ways() {
    let sim = Sim::start(Script::default()).await;
    let text = async |quirk| reply(&sim, Protocol::Chat, quirk, true, true).await.text().to_owned();
    let counted = |chunks: &[Value]| chunks.iter().filter(|chunk| chunk["usage"].is_object()).count();
    let finishes = |chunks: &[Value]| {
        let finish = |chunk: &Value| chunk["choices"][0]["finish_reason"].as_str().map(str::to_owned);
        chunks.iter().filter_map(finish).collect::<Vec<_>>()
    };
    assert_eq!(finishes(&chunks(&sim, Quirk::ToolsFinishStop).await), ["stop"]);
    assert_eq!(finishes(&chunks(&sim, Quirk::TwoFinishes).await), ["tool_calls", "stop"]);
    let with_finish = chunks(&sim, Quirk::UsageWithFinish).await;
    assert!(
        with_finish.last().unwrap()["usage"].is_object() && finishes(&with_finish[with_finish.len() - 1..]).len() == 1
    );
    assert_eq!(counted(&chunks(&sim, Quirk::UsageTwice).await), 2);
    let every = chunks(&sim, Quirk::UsageEveryChunk).await;
    assert_eq!(counted(&every), every.len());
    let outputs: Vec<_> = every.iter().map(|chunk| chunk["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(outputs.is_sorted() && outputs[0] < outputs[outputs.len() - 1]);
    let groq = chunks(&sim, Quirk::UsageXGroq).await;
    assert!(groq.last().unwrap()["x_groq"]["usage"]["completion_tokens"].as_u64().unwrap() > 0);
    let late = chunks(&sim, Quirk::UsageLate).await;
    let finish = late.iter().position(|chunk| chunk["choices"][0]["finish_reason"].is_string()).unwrap();
    assert_eq!(late.len() - finish, 4);
    assert!(text(Quirk::NoFinish).await.ends_with("data: [DONE]\n\n") && !text(Quirk::NoDone).await.contains("[DONE]"));
    let preamble = chunks(&sim, Quirk::EmptyChoicesFirst).await;
    assert!(preamble[0]["choices"] == json!([]) && preamble[0]["prompt_filter_results"].is_array());
    let mut request = ask(Protocol::Chat, "sim-quirk-matched-stop", "hi");
    request["stop"] = json!(["満潮"]);
    let choice = send(&sim, Protocol::Chat, "m", request, false).await.json()["choices"][0].clone();
    assert_eq!((&choice["stop_reason"], &choice["matched_stop"]), (&json!("満潮"), &json!("満潮")));
}

#[tokio::test]
async fn chat_thinks_under_other_names() {
    let sim = Sim::start(Script::default()).await;
    let thought = "Low water was at six, and the tide takes six hours to rise.";
    for (quirk, content, plain, details) in [
        (Quirk::ReasoningField, false, true, false),
        (Quirk::ReasoningBoth, true, true, false),
        (Quirk::ReasoningDetails, false, true, true),
        (Quirk::ThinkTags, false, false, false),
    ] {
        let message = reply(&sim, Protocol::Chat, quirk, false, false).await.json()["choices"][0]["message"].clone();
        let chunks = data(reply(&sim, Protocol::Chat, quirk, false, true).await.text());
        let joined = |member: &str| -> String {
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][member].as_str()).collect()
        };
        for (member, there) in [("reasoning_content", content), ("reasoning", plain)] {
            assert_eq!(
                (message[member] == thought, joined(member) == thought),
                (there, there),
                "{} {member}",
                quirk.name()
            );
        }
        assert_eq!(message["reasoning_details"].is_array(), details);
        assert_eq!(joined("content"), message["content"]);
        if quirk == Quirk::ThinkTags {
            assert_eq!(message["content"], format!("<think>{thought}</think>\n\nHigh water is at noon."));
        }
    }
}

#[tokio::test]
async fn errors_have_other_shapes() {
    let sim = Sim::start(Script::default()).await;
    for (protocol, quirk, status, pointer) in [
        (Protocol::Chat, Quirk::ErrorString, 500, "/error"),
        (Protocol::Chat, Quirk::ErrorDetail, 422, "/detail/0/msg"),
        (Protocol::Chat, Quirk::ErrorObject, 400, "/message"),
        (Protocol::Chat, Quirk::ToolUseFailed, 400, "/error/failed_generation"),
        (Protocol::Chat, Quirk::ErrorIn200, 200, "/error/message"),
        (Protocol::Chat, Quirk::ErrorFinish, 200, "/choices/0/error/message"),
        (Protocol::Responses, Quirk::ErrorIn200, 200, "/error/message"),
        (Protocol::Responses, Quirk::FailedEvent, 200, "/error/message"),
        (Protocol::Gemini, Quirk::ErrorIn200, 200, "/error/message"),
        (Protocol::Gemini, Quirk::ErrorArray, 429, "/0/error/message"),
        (Protocol::Gemini, Quirk::BlockedPrompt, 200, "/promptFeedback/blockReason"),
    ] {
        let reply = reply(&sim, protocol, quirk, true, false).await;
        let found = reply.json().pointer(pointer).cloned();
        assert_eq!((reply.status, found.is_some_and(|text| text.is_string())), (status, true), "{}", reply.text());
    }
    for (protocol, quirk, pointer) in [
        (Protocol::Chat, Quirk::ErrorIn200, "/error/code"),
        (Protocol::Chat, Quirk::ErrorFinish, "/error/code"),
        (Protocol::Responses, Quirk::ErrorIn200, "/code"),
        (Protocol::Responses, Quirk::FailedEvent, "/response/error/code"),
        (Protocol::Gemini, Quirk::ErrorIn200, "/error/code"),
        (Protocol::Gemini, Quirk::BlockedPrompt, "/promptFeedback/blockReason"),
    ] {
        let reply = reply(&sim, protocol, quirk, false, true).await;
        assert!(data(reply.text()).last().unwrap().pointer(pointer).is_some(), "{}", reply.text());
    }
}

#[tokio::test]
async fn responses_and_gemini_have_their_own() {
    let sim = Sim::start(Script::default()).await;
    let responses = async |quirk, tool| data(reply(&sim, Protocol::Responses, quirk, tool, true).await.text());
    let gemini = async |quirk, tool| data(reply(&sim, Protocol::Gemini, quirk, tool, true).await.text());
    let kinds = |events: &[Value], kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    let delta = "response.function_call_arguments.delta";
    let silent = responses(Quirk::ArgumentsOnlyDone, true).await;
    assert_eq!((kinds(&silent, delta), kinds(&silent, "response.function_call_arguments.done")), (0, 2));
    let none = responses(Quirk::NoArguments, true).await;
    assert_eq!(kinds(&none, delta), 0);
    assert_eq!(none.last().unwrap()["response"]["output"][0]["arguments"], "");
    let text = responses(Quirk::TextOnlyDone, false).await;
    assert_eq!((kinds(&text, "response.output_text.delta"), kinds(&text, "response.output_item.done")), (0, 1));
    let mixed = responses(Quirk::InterleavedCalls, true).await;
    let order: Vec<_> =
        mixed.iter().filter(|event| event["type"] == delta).map(|event| &event["output_index"]).collect();
    assert_eq!(order[..4], [1, 0, 1, 0]);
    let done = responses(Quirk::CompletedWithoutOutput, false).await;
    assert_eq!(done.last().unwrap()["response"]["output"], json!([]));

    let one = gemini(Quirk::CallsInOneChunk, true).await;
    assert_eq!(one[0]["candidates"][0]["content"]["parts"].as_array().unwrap().len(), 2);
    let parts = gemini(Quirk::NoCallIds, true).await;
    assert_eq!(parts[0]["candidates"][0]["content"]["parts"][0]["functionCall"].get("id"), None);
    let parts = gemini(Quirk::NoArguments, true).await;
    assert_eq!(parts[0]["candidates"][0]["content"]["parts"][0]["functionCall"].get("args"), None);
    let last = gemini(Quirk::NoParts, false).await;
    assert_eq!(last.last().unwrap()["candidates"], json!([{"index": 0, "finishReason": "STOP"}]));
    let signed = gemini(Quirk::EmptyTextSignature, true).await;
    let part = &signed.last().unwrap()["candidates"][0]["content"]["parts"][0];
    assert_eq!((&part["text"], part["thoughtSignature"].is_string()), (&json!(""), true));
}

#[tokio::test]
async fn a_stream_can_be_ignored() {
    let sim = Sim::start(Script::default()).await;
    for protocol in Quirk::WholeForStream.protocols() {
        let reply = reply(&sim, *protocol, Quirk::WholeForStream, true, true).await;
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(Heard { usage: None, ..whole(*protocol, &reply.json()) }.calls.len(), 2);
    }
}

/// Bytes of one character come in several writes, so a chunk of the framing holds one byte.
#[tokio::test]
async fn bytes_come_one_by_one() {
    let sim = Sim::start(Script::default()).await;
    let model = "sim-quirk-split-bytes";
    let mut request = ask(Protocol::Chat, model, "hi");
    request["stream"] = json!(true);
    let mut socket = crate::client::send(&sim, "POST", "/chat/completions", &[], request.to_string().as_bytes()).await;
    let wire = crate::client::read_until_end(&mut socket).await;
    let body = wire.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(wire[body..].starts_with(b"1\r\nd\r\n1\r\na\r\n"));
}

type Change<'a> = &'a dyn Fn(&mut Value);

#[tokio::test]
async fn replayed_reasoning_is_checked() {
    let sim = Sim::start(Script::default()).await;
    let model = "sim-quirk-checks-signatures";
    for protocol in [Protocol::Responses, Protocol::Gemini] {
        let first = with_tool(protocol, ask(protocol, model, "hi"));
        let body = send(&sim, protocol, model, first.clone(), false).await.json();
        assert_eq!(whole(protocol, &body).calls.len(), 2);
        let replay = |change: Change<'_>| {
            let mut request = first.clone();
            let mut history = match protocol {
                Protocol::Gemini => body["candidates"][0]["content"].clone(),
                _ => body["output"].clone(),
            };
            change(&mut history);
            let result = |id: &Value| match protocol {
                Protocol::Gemini => json!({"functionResponse": {"name": "tide_at", "response": {"output": "x"}}}),
                _ => json!({"type": "function_call_output", "call_id": id, "output": "x"}),
            };
            if protocol == Protocol::Gemini {
                let results = json!({"role": "user", "parts": [result(&json!(0)), result(&json!(0))]});
                request["contents"].as_array_mut().unwrap().extend([history, results]);
            } else {
                let items = history.as_array().unwrap().clone();
                let ids = items.iter().filter_map(|item| item.get("call_id")).map(result).collect::<Vec<_>>();
                request["input"] = [vec![json!({"role": "user", "content": "hi"})], items, ids].concat().into();
            }
            request
        };
        let sent = async |request: Value| send(&sim, protocol, model, request, false).await;
        assert_eq!(sent(replay(&|_| {})).await.status, 200);
        let (foreign, missing): (Change<'_>, Change<'_>) = match protocol {
            Protocol::Gemini => (&|content| content["parts"][1]["thoughtSignature"] = json!("QUJD"), &|content| {
                content["parts"][1]["thoughtSignature"] = json!(null)
            }),
            _ => (&|items| items[0]["encrypted_content"] = json!("gAAAB"), &|items| {
                items.as_array_mut().unwrap().remove(0);
            }),
        };
        for (change, word) in [
            (foreign, ["could not be verified", "Corrupted thought signature"]),
            (missing, ["required 'reasoning' item", "missing a thought_signature"]),
        ] {
            let reply = sent(replay(change)).await;
            assert_eq!(reply.status, 400, "{protocol:?}");
            assert!(word.iter().any(|word| reply.text().contains(word)), "{}", reply.text());
        }
    }
}
