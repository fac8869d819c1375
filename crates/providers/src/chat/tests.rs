use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_wire::messages::Request;
use tidegate_wire::sse::Splitter;

use super::{Decoder, message, request};
use crate::fault::{Class, Fault};
use crate::translate::card::{Level, LimitField, ReasoningField, ReasoningSwitch, Replay, Structured, SystemRole};
use crate::translate::{Card, Context, Decode as _, Stream, Target, Translator, Unsupported};

const NOW: Timestamp = Timestamp(1_790_000_000_000);
const PLAIN_CARRIER: &str =
    "tgs1.eyJ2IjoxLCJwIjoiY2hhdCIsInMiOiJlcC03ZjJjIiwibSI6ImRlZXBzZWVrLXY0LXBybyIsImsiOiJwbGFpbiIsImQiOnt9fQ";

/// The sample of all protocols: an image, thinking, a call and its result, more words.
const SAMPLE: &str = r#"{"model":"demo/tide-large","max_tokens":2048,"stream":true,
     "system":[{"type":"text","text":"You plan harbour work.","cache_control":{"type":"ephemeral"}}],
     "tools":[{"name":"tide_at","description":"Tide height","input_schema":{"type":"object","properties":{"port":{"type":"string"},"hour":{"type":"integer"}},"required":["port"]}}],
     "tool_choice":{"type":"auto","disable_parallel_tool_use":true},
     "thinking":{"type":"adaptive"},"output_config":{"effort":"medium"},
     "stop_sequences":["<<END>>"],"metadata":{"user_id":"u-77"},
     "messages":[
      {"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},{"type":"text","text":"Is Brest safe at 6?"}]},
      {"role":"assistant","content":[{"type":"thinking","thinking":"Need the tide.","signature":"tgs1.eyJ2IjoxLCJwIjoiY2hhdCIsInMiOiJlcC03ZjJjIiwibSI6ImRlZXBzZWVrLXY0LXBybyIsImsiOiJwbGFpbiIsImQiOnt9fQ"},{"type":"tool_use","id":"toolu_a1","name":"tide_at","input":{"port":"Brest","hour":6}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_a1","content":[{"type":"text","text":"4.1 m"}]},{"type":"text","text":"Answer in one line."}]}]}"#;

fn sample() -> Value {
    serde_json::from_str(SAMPLE).unwrap()
}

fn openai() -> Card {
    Card {
        context_length: 272_000,
        max_output_tokens: 128_000,
        max_tokens_field: LimitField::MaxCompletionTokens,
        efforts: vec![Level::None, Level::Low, Level::Medium, Level::High],
        reasoning: ReasoningSwitch::Effort,
        system_role: SystemRole::Developer,
        parallel_flag: true,
        strict: true,
        pdf: true,
        cache_key: true,
        user_field: Some("safety_identifier".into()),
        store_flag: true,
        ..Card::default()
    }
}

fn target(card: &Card) -> Target<'_> {
    Target {
        card,
        model: "gpt-5.1",
        scope: "ep-7f2c",
        cache_key: Some("43f74794ff7f9c9a157ceba89e41f02a"),
        user: Some("b3ce8c8170450400f9b548abb4bc626557357a61286e93aaa5fa04e33613f06b"),
        stream: true,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    }
}

fn translated(card: &Card, body: &Value) -> Result<(Value, Vec<String>), Unsupported> {
    translated_text(card, &body.to_string())
}

fn translated_text(card: &Card, body: &str) -> Result<(Value, Vec<String>), Unsupported> {
    let read = Request::parse(body.as_bytes()).unwrap();
    let outgoing = request(&read, &target(card))?;
    Ok((serde_json::from_slice(&outgoing.body).unwrap(), outgoing.warnings))
}

/// The messages of a conversation, with the plainest card.
fn messages(turns: Value) -> Value {
    with_card(&Card { pdf: true, ..Card::default() }, turns)
}

fn with_card(card: &Card, turns: Value) -> Value {
    let body = json!({"model": "m", "max_tokens": 100, "messages": turns});
    translated(card, &body).unwrap().0["messages"].clone()
}

#[test]
fn the_sample_becomes_the_published_request() {
    let expected = json!({"model":"gpt-5.1","max_completion_tokens":2048,"stream":true,"stream_options":{"include_usage":true},"store":false,
     "reasoning_effort":"medium","stop":["<<END>>"],"parallel_tool_calls":false,"safety_identifier":"b3ce8c8170450400f9b548abb4bc626557357a61286e93aaa5fa04e33613f06b","prompt_cache_key":"43f74794ff7f9c9a157ceba89e41f02a",
     "tools":[{"type":"function","function":{"name":"tide_at","description":"Tide height","parameters":{"type":"object","properties":{"port":{"type":"string"},"hour":{"type":"integer"}},"required":["port"]}}}],
     "messages":[
      {"role":"developer","content":"You plan harbour work."},
      {"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},{"type":"text","text":"Is Brest safe at 6?"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"toolu_a1","type":"function","function":{"name":"tide_at","arguments":"{\"port\":\"Brest\",\"hour\":6}"}}]},
      {"role":"tool","tool_call_id":"toolu_a1","content":"4.1 m"},
      {"role":"user","content":"Answer in one line."}]});
    let (body, warnings) = translated_text(&openai(), SAMPLE).unwrap();
    assert_eq!(body, expected);
    let read = Request::parse(SAMPLE.as_bytes()).unwrap();
    let text = String::from_utf8(request(&read, &target(&openai())).unwrap().body.to_vec()).unwrap();
    let schema =
        r#"{"type":"object","properties":{"port":{"type":"string"},"hour":{"type":"integer"}},"required":["port"]}"#;
    assert!(text.contains(schema), "a schema goes out as it came: {text}");
    assert_eq!(warnings, Vec::<String>::new());
}

#[test]
fn p25_p27_p29_results_stand_beside_their_calls_and_images_after_them() {
    let calls = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "t", "input": {}}, {"type": "tool_use", "id": "b", "name": "t", "input": {}}]});
    let heard = json!({"role":"user","content":[{"type":"text","text":"see below"},{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"timeout"},{"type":"tool_result","tool_use_id":"b","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"QUJD"}}]}]});
    let out = messages(json!([{"role": "user", "content": "go"}, calls, heard]));
    assert_eq!(out[2], json!({"role":"tool","tool_call_id":"a","content":"Error: timeout"}));
    assert_eq!(out[3], json!({"role":"tool","tool_call_id":"b","content":"[image 1 of tool_result b]"}));
    let last = json!({"role":"user","content":[{"type":"text","text":"see below"},{"type":"text","text":"[image 1 of tool_result b]"},{"type":"image_url","image_url":{"url":"data:image/png;base64,QUJD"}}]});
    assert_eq!(out[4], last);
    assert_eq!(out.as_array().unwrap().len(), 5);
}

#[test]
fn p46_p55_a_forced_tool_and_a_schema() {
    let mut body = sample();
    body["tool_choice"] = json!({"type":"tool","name":"tide_at","disable_parallel_tool_use":true});
    let schema =
        json!({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false});
    body["output_config"] = json!({"format":{"type":"json_schema","schema":schema}});
    let (out, _) = translated(&openai(), &body).unwrap();
    assert_eq!(out["tool_choice"], json!({"type":"function","function":{"name":"tide_at"}}));
    assert_eq!(out["parallel_tool_calls"], false);
    assert_eq!(
        out["response_format"],
        json!({"type":"json_schema","json_schema":{"name":"response","strict":true,"schema":schema}})
    );
    body["tool_choice"] = json!({"type": "none"});
    let (out, _) = translated(&openai(), &body).unwrap();
    assert_eq!((&out["tool_choice"], out.get("parallel_tool_calls")), (&json!("none"), None));
    let object = Card { structured: Structured::JsonObject, ..openai() };
    let (out, _) = translated(&object, &body).unwrap();
    assert_eq!(out["response_format"], json!({"type": "json_object"}));
    assert!(out["messages"][0]["content"].as_str().unwrap().contains("validates against this JSON Schema: {"));
}

#[test]
fn p63_reasoning_is_replayed_inside_of_tool_loops_only() {
    let deepseek = Card {
        replay: Replay::ToolLoop,
        reasoning_in: ReasoningField::ReasoningContent,
        reasoning: ReasoningSwitch::Thinking,
        ..Card::default()
    };
    let thought = |id: &str| json!({"role":"assistant","content":[{"type":"thinking","thinking":"check tide","signature":"tgs1.eyJwIjoiY2hhdCJ9"},{"type":"tool_use","id":id,"name":"tide_at","input":{}}]});
    let result =
        |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "1 m"}]});
    let asked = |text: &str| json!({"role": "user", "content": text});
    let mut greeted = thought("");
    greeted["content"][1] = json!({"type": "text", "text": "Hi."});
    let out = with_card(
        &deepseek,
        json!([
            asked("zero"),
            greeted,
            asked("one"),
            thought("c0"),
            result("c0"),
            asked("two"),
            thought("c1"),
            result("c1")
        ]),
    );
    assert_eq!(out[1].get("reasoning_content"), None, "nothing was called");
    assert_eq!(out[3]["reasoning_content"], "check tide", "that loop is over, and still asked for");
    let expected = json!({"role":"assistant","content":null,"reasoning_content":"check tide","tool_calls":[{"id":"c1","type":"function","function":{"name":"tide_at","arguments":"{}"}}]});
    assert_eq!(out[6], expected);
}

#[test]
fn p31_a_pdf_is_sent_or_refused_and_never_vanishes() {
    let document = json!({"type":"document","title":"Chart","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}});
    let turns = json!([{"role": "user", "content": [document, {"type": "text", "text": "read"}]}]);
    let out = messages(turns.clone());
    let expected =
        json!({"type":"file","file":{"filename":"Chart.pdf","file_data":"data:application/pdf;base64,JVBERi0="}});
    assert_eq!(out[0]["content"][0], expected);
    let body = json!({"model": "m", "max_tokens": 100, "messages": turns});
    assert!(translated(&Card::default(), &body).unwrap_err().to_string().contains("documents are not supported"));
}

#[test]
fn p33_p37_p53_p87_conversations_are_put_in_order() {
    let text = |role: &str, text: &str| json!({"role": role, "content": text});
    // An instruction in the middle becomes a note to the user, never the assistant's words.
    let out =
        messages(json!([text("user", "a"), text("system", "be brief"), text("assistant", "b"), text("user", "c")]));
    assert_eq!(
        out,
        json!([{"role":"user","content":"a\n\n[system note] be brief"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])
    );
    // A call without a result gets one, a result without a call becomes words.
    let call = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]});
    let orphan =
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": "late"}]});
    let out = messages(json!([text("user", "a"), call, text("user", "stop"), orphan]));
    assert_eq!(
        out[2],
        json!({"role":"tool","tool_call_id":"x","content":"Error: [no result: the call was interrupted]"})
    );
    assert_eq!(out[3], json!({"role":"user","content":"stop\n\n[orphan tool result nobody] late"}));
    // Results of one turn that came as two messages belong together.
    let two = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "p", "name": "t", "input": {}}, {"type": "tool_use", "id": "q", "name": "t", "input": {}}]});
    let result =
        |id: &str| json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": id}]});
    let out = messages(json!([text("user", "a"), two, result("q"), result("p")]));
    assert_eq!(
        (&out[2]["tool_call_id"], &out[3]["tool_call_id"]),
        (&json!("p"), &json!("q")),
        "in the order of the calls"
    );
    // The same id twice is two calls.
    let again = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "t", "input": {}}]});
    let out = messages(json!([text("user", "a"), again.clone(), result("x"), again, result("x")]));
    assert_eq!((&out[1]["tool_calls"][0]["id"], &out[2]["tool_call_id"]), (&json!("x"), &json!("x")));
    assert_eq!((&out[3]["tool_calls"][0]["id"], &out[4]["tool_call_id"]), (&json!("x_2"), &json!("x_2")));
    // Words put into the model's mouth are refused where they cannot be gone on with, and never deleted.
    let body = json!({"model": "m", "max_tokens": 9, "messages": [text("user", "a"), text("assistant", "I think")]});
    let refused = translated(&Card::default(), &body).unwrap_err();
    assert_eq!(
        refused.reason,
        "This model does not support assistant message prefill. The conversation must end with a user message."
    );
}

#[test]
fn p02_p70_p84_p86_text_is_plain_and_nothing_empty_is_sent() {
    let body = json!({"model": "m", "max_tokens": 9,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc=1\nOne."}, {"type": "text", "text": " "}, {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
                     {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
                     {"role": "user", "content": "d"}]});
    let (out, _) = translated(&Card::default(), &body).unwrap();
    let expected = json!([{"role":"system","content":"One.\n\nTwo."},{"role":"user","content":"a"},{"role":"assistant","content":"bc"},{"role":"user","content":"d"}]);
    assert_eq!(out["messages"], expected);
}

#[test]
fn p34_p35_p36_p38_p49_limits_and_samplings_follow_the_card() {
    let body = json!({"model": "m", "max_tokens": 999_999, "temperature": 0.50, "top_p": 0.9, "top_k": 5, "new_option": 1,
        "messages": [{"role": "user", "content": "a"}]});
    let (out, warnings) = translated(&Card::default(), &body).unwrap();
    assert_eq!((&out["max_tokens"], &out["temperature"], out.get("top_k")), (&json!(4096), &json!(0.5), None));
    assert_eq!(warnings, ["clamped:max_tokens", "dropped:top_k", "dropped:new_option"]);
    let (out, _) = translated(
        &Card { min_output_tokens: 16, ..openai() },
        &json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}),
    )
    .unwrap();
    assert_eq!((&out["max_completion_tokens"], out.get("max_tokens")), (&json!(16), None));
}

#[test]
fn p12_a_model_that_takes_no_effort_with_tools_is_told_none() {
    let card = Card { tools_without_reasoning: true, ..openai() };
    let (out, warnings) = translated_text(&card, SAMPLE).unwrap();
    assert_eq!((&out["reasoning_effort"], warnings), (&json!("none"), vec!["changed:effort".to_owned()]));
    let mut without = sample();
    without.as_object_mut().unwrap().remove("tools");
    without.as_object_mut().unwrap().remove("tool_choice");
    assert_eq!(translated(&card, &without).unwrap().0["reasoning_effort"], "medium");
}

fn context() -> Context {
    let scope = "ep-7f2c".to_owned();
    Context {
        scope,
        model: "deepseek-v4-pro".to_owned(),
        show_thinking: true,
        max_tokens: 2048,
        context_length: 1_000_000,
        input_estimate: 92,
        ..Context::default()
    }
}

fn answered(body: &Value) -> Result<Value, Fault> {
    message(body.to_string().as_bytes(), &context(), NOW)
        .map(|answered| serde_json::from_slice(&answered.body).unwrap())
}

#[test]
fn the_published_answer_is_read() {
    let upstream = json!({"id":"cc-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"","reasoning_content":"think","tool_calls":[{"id":"call_9","type":"function","function":{"name":"tide_at","arguments":"{\"port\":\"Brest\"}"}}]}}],"usage":{"prompt_tokens":120,"completion_tokens":30,"total_tokens":150,"prompt_tokens_details":{"cached_tokens":100},"completion_tokens_details":{"reasoning_tokens":18}}});
    let out = answered(&upstream).unwrap();
    assert_eq!(
        out["content"],
        json!([{"type":"thinking","thinking":"think","signature":PLAIN_CARRIER},{"type":"tool_use","id":"call_9","name":"tide_at","input":{"port":"Brest"},"caller":{"type":"direct"}}])
    );
    assert_eq!(
        (&out["stop_reason"], &out["stop_sequence"], &out["stop_details"]),
        (&json!("tool_use"), &json!(null), &json!(null))
    );
    assert_eq!(
        out["usage"],
        json!({"input_tokens":20,"cache_creation_input_tokens":0,"cache_read_input_tokens":100,"output_tokens":30,"output_tokens_details":{"thinking_tokens":18}})
    );
}

#[test]
fn p03_p56_p73_the_word_for_the_end_is_understood() {
    let case = |choice: Value| {
        answered(&json!({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}))
            .map(|out| out["stop_reason"].clone())
    };
    let said = |word: &str| json!({"finish_reason": word, "message": {"content": "x"}});
    for (word, reason) in [
        ("stop", "end_turn"),
        ("eos", "end_turn"),
        ("length", "max_tokens"),
        ("model_length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "end_turn"),
        ("what", "end_turn"),
    ] {
        assert_eq!(case(said(word)).unwrap(), reason, "{word}");
    }
    let vllm = json!({"finish_reason": "stop", "stop_reason": "<<END>>", "message": {"content": "x"}});
    assert_eq!(case(vllm).unwrap(), "stop_sequence");
    let both =
        json!({"finish_reason": "stop", "stop_reason": null, "matched_stop": "<<END>>", "message": {"content": "x"}});
    assert_eq!(case(both).unwrap(), "stop_sequence");
    assert_eq!(case(said("insufficient_system_resource")).unwrap_err().class, Class::Overloaded);
    let refusal = json!({"finish_reason": "stop", "message": {"content": null, "refusal": "I cannot"}});
    let out = answered(&json!({"choices": [refusal]})).unwrap();
    assert_eq!(
        (&out["stop_reason"], &out["stop_details"]["explanation"], &out["content"][0]["text"]),
        (&json!("refusal"), &json!("I cannot"), &json!("I cannot"))
    );
}

#[test]
fn p82_an_error_in_a_200_is_an_error() {
    let class = |body: Value| answered(&body).unwrap_err().class;
    assert_eq!(class(json!({"error": {"code": 429, "message": "slow down"}})), Class::RateLimit);
    assert_eq!(
        class(json!({"error": {"code": "context_length_exceeded", "type": "invalid_request_error", "message": "x"}})),
        Class::ContextLength
    );
    assert_eq!(class(json!({"choices": []})), Class::BadResponse);
    for end in [json!(null), json!("stop"), json!("tool_calls")] {
        let empty = json!({"choices": [{"message": {"content": ""}, "finish_reason": end}]});
        assert_eq!(class(empty), Class::EmptyCompletion);
    }
    assert_eq!(message(b"<html>", &context(), NOW).unwrap_err().class, Class::BadResponse);
}

/// The frames that come out of a stream, cut into chunks of so many bytes.
fn streamed(upstream: &str, size: usize) -> Result<Vec<(String, Value)>, Fault> {
    let mut decoder = Decoder::new(context(), NOW);
    let mut stream = Stream::new(&context());
    let mut splitter = Splitter::new(1 << 20);
    for chunk in upstream.as_bytes().chunks(size) {
        splitter.feed(Bytes::copy_from_slice(chunk));
        while let Some(frame) = splitter.next().unwrap() {
            decoder.feed("", &frame.data(), &mut stream)?;
        }
    }
    if let Some(frame) = splitter.finish() {
        decoder.feed("", &frame.data(), &mut stream)?;
    }
    decoder.end(&mut stream)?;
    let text = String::from_utf8(stream.take().to_vec()).unwrap();
    Ok(text
        .split_terminator("\n\n")
        .map(|frame| {
            let (name, data) = frame.split_once('\n').unwrap();
            (
                name.strip_prefix("event: ").unwrap().to_owned(),
                serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap(),
            )
        })
        .collect())
}

fn chunk(delta: Value, finish: Value) -> String {
    format!(
        "data: {}\n\n",
        json!({"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":delta,"finish_reason":finish}]})
    )
}

/// What the events add up to: kind of block and its text or name and input, then the stop reason.
fn story(events: &[(String, Value)]) -> Vec<String> {
    let mut story = Vec::new();
    for (name, data) in events {
        match name.as_str() {
            "content_block_start" => {
                assert_eq!(data["index"], story.len(), "without gaps");
                let block = &data["content_block"];
                story.push(
                    format!("{} {}", block["type"].as_str().unwrap(), block["name"].as_str().unwrap_or_default())
                        .trim()
                        .to_owned()
                        + ": ",
                );
            }
            "content_block_delta" => {
                assert_eq!(data["index"], story.len() - 1, "one block at a time");
                let delta = &data["delta"];
                let piece = ["text", "partial_json", "thinking"].iter().find_map(|name| delta[*name].as_str());
                story.last_mut().unwrap().push_str(piece.unwrap_or_default());
            }
            "message_delta" => story.push(data["delta"]["stop_reason"].as_str().unwrap().to_owned()),
            _ => {}
        }
    }
    story
}

const INTERLEAVED: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Checking."},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"tide_at","arguments":"{\"port\":"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"tide_at","arguments":""}}]},"finish_reason":null}]}

: keep-alive comment

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"","tool_calls":[{"index":0,"function":{"arguments":"\"Brest\"}"}},{"index":1,"function":{"arguments":"{\"port\":\"Cork\"}"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":90,"completion_tokens":25,"total_tokens":115,"prompt_tokens_details":{"cached_tokens":64}}}

data: [DONE]

"#;

#[test]
fn the_published_stream_is_read() {
    let events = streamed(INTERLEAVED, usize::MAX).unwrap();
    let expected = [
        (
            "content_block_start",
            json!({"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":null}}),
        ),
        (
            "content_block_delta",
            json!({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Checking."}}),
        ),
        ("content_block_stop", json!({"type":"content_block_stop","index":0})),
        (
            "content_block_start",
            json!({"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_a","name":"tide_at","input":{},"caller":{"type":"direct"}}}),
        ),
        (
            "content_block_delta",
            json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"port\":"}}),
        ),
        (
            "content_block_delta",
            json!({"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"Brest\"}"}}),
        ),
        ("content_block_stop", json!({"type":"content_block_stop","index":1})),
        (
            "content_block_start",
            json!({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_b","name":"tide_at","input":{},"caller":{"type":"direct"}}}),
        ),
        (
            "content_block_delta",
            json!({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"port\":\"Cork\"}"}}),
        ),
        ("content_block_stop", json!({"type":"content_block_stop","index":2})),
        (
            "message_delta",
            json!({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":26,"cache_creation_input_tokens":0,"cache_read_input_tokens":64,"output_tokens":25}}),
        ),
        ("message_stop", json!({"type":"message_stop"})),
    ];
    let (first, rest) = events.split_first().unwrap();
    assert_eq!(first.0, "message_start");
    assert_eq!(
        first.1["message"]["usage"],
        json!({"input_tokens":92,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0})
    );
    let expected: Vec<_> = expected.into_iter().map(|(name, data)| (name.to_owned(), data)).collect();
    assert_eq!(rest, expected);
}

#[test]
fn p21_any_division_of_a_stream_gives_the_same_events() {
    let umlauts = INTERLEAVED.replace("Checking.", "Prüfe 潮汐 🌊.").replace('\n', "\r\n");
    for source in [INTERLEAVED, &umlauts] {
        let whole = story(&streamed(source, usize::MAX).unwrap());
        for size in 1..200 {
            assert_eq!(story(&streamed(source, size).unwrap()), whole, "pieces of {size}");
        }
    }
}

#[test]
fn p01_to_p18_streams_of_every_shape_keep_the_grammar() {
    let call = |index: u64, id: Value, name: Value, arguments: Value| json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]});
    let null = Value::Null;
    let end = "data: [DONE]\n\n".to_owned();
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n".to_owned();
    let stop = |word: &str| chunk(json!({}), json!(word));
    let cases: Vec<(&str, Vec<String>, Vec<&str>)> = vec![
        (
            "P01 a call comes first",
            vec![chunk(call(0, json!("a"), json!("t"), json!("{}")), null.clone()), stop("tool_calls"), end.clone()],
            vec!["tool_use t: {}", "tool_use"],
        ),
        (
            "P03 a call ends with stop",
            vec![chunk(call(0, json!("a"), json!("t"), json!("{\"x\":1}")), null.clone()), stop("stop"), end.clone()],
            vec!["tool_use t: {\"x\":1}", "tool_use"],
        ),
        (
            "P04 empty content between pieces",
            vec![
                chunk(call(0, json!("a"), json!("t"), json!("{\"x\"")), null.clone()),
                chunk(json!({"content": ""}), null.clone()),
                chunk(call(0, null.clone(), null.clone(), json!(":1}")), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {\"x\":1}", "tool_use"],
        ),
        (
            "P05 text after a call",
            vec![
                chunk(call(0, json!("a"), json!("t"), json!("{}")), null.clone()),
                chunk(json!({"content": "done"}), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {}", "text: done", "tool_use"],
        ),
        (
            "P07 all calls are number 0",
            vec![
                chunk(call(0, json!("a"), json!("t"), json!("{\"x\":1}")), null.clone()),
                chunk(call(0, json!("b"), json!("u"), json!("{\"y\":2}")), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {\"x\":1}", "tool_use u: {\"y\":2}", "tool_use"],
        ),
        (
            "P07 without ids",
            vec![
                chunk(call(0, null.clone(), json!("t"), json!("{\"x\":1}")), null.clone()),
                chunk(call(0, null.clone(), json!("u"), json!("{\"y\":2}")), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {\"x\":1}", "tool_use u: {\"y\":2}", "tool_use"],
        ),
        (
            "P10 {} comes before the input",
            vec![
                chunk(call(0, json!("a"), json!("t"), json!("{}")), null.clone()),
                chunk(call(0, null.clone(), null.clone(), json!("{\"x\":1}")), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {\"x\":1}", "tool_use"],
        ),
        (
            "P13 the input is an object",
            vec![
                chunk(call(0, json!("a"), json!("t"), json!({"x": 1})), null.clone()),
                stop("tool_calls"),
                end.clone(),
            ],
            vec!["tool_use t: {\"x\":1}", "tool_use"],
        ),
        (
            "P14 no input at all",
            vec![chunk(call(0, json!("a"), json!("t"), json!("")), null.clone()), stop("tool_calls"), end.clone()],
            vec!["tool_use t: {}", "tool_use"],
        ),
        (
            "P15 usage after the end",
            vec![chunk(json!({"content": "x"}), json!("stop")), usage, end.clone()],
            vec!["text: x", "end_turn"],
        ),
        (
            "P17 no word for the end",
            vec![chunk(json!({"content": "x"}), null.clone()), end.clone()],
            vec!["text: x", "end_turn"],
        ),
        (
            "P18 a preamble without choices",
            vec![
                "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n".to_owned(),
                chunk(json!({"content": "x"}), json!("stop")),
                end.clone(),
            ],
            vec!["text: x", "end_turn"],
        ),
        (
            "P64 reasoning under its other name",
            vec![
                chunk(json!({"reasoning": "hm"}), null.clone()),
                chunk(json!({"content": "x"}), json!("stop")),
                end.clone(),
            ],
            vec!["thinking: hm", "text: x", "end_turn"],
        ),
        (
            "a connection that ends after the word",
            vec![chunk(json!({"content": "x"}), json!("stop"))],
            vec!["text: x", "end_turn"],
        ),
        (
            "length outweighs a call",
            vec![chunk(call(0, json!("a"), json!("t"), json!("{\"x\":")), null), stop("length"), end],
            vec!["tool_use t: {\"x\":", "max_tokens"],
        ),
    ];
    for (what, chunks, expected) in cases {
        let events = streamed(&chunks.concat(), usize::MAX).unwrap_or_else(|fault| panic!("{what}: {fault:?}"));
        assert_eq!(story(&events), expected, "{what}");
        let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            (names[0], names[names.len() - 2], names[names.len() - 1]),
            ("message_start", "message_delta", "message_stop"),
            "{what}"
        );
        assert_eq!(names.iter().filter(|name| **name == "message_delta").count(), 1, "{what}");
    }
}

#[test]
fn p56_sequences_that_the_upstream_does_not_know_are_looked_for_here() {
    let guarded = Context { guarded: vec!["<<END>>".to_owned(), "ü!".to_owned()], ..context() };
    let run = |pieces: &[&str]| {
        let mut decoder = Decoder::new(guarded.clone(), NOW);
        let mut stream = Stream::new(&guarded);
        for piece in pieces {
            let data = json!({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": null}]});
            decoder.feed("", data.to_string().as_bytes(), &mut stream).unwrap();
        }
        if !stream.is_finished() {
            decoder.feed("", br#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#, &mut stream).unwrap();
            decoder.feed("", b"[DONE]", &mut stream).unwrap();
        }
        let text = String::from_utf8(stream.take().to_vec()).unwrap();
        let (mut said, mut end) = (String::new(), Value::Null);
        for frame in text.split_terminator("\n\n") {
            let data: Value = serde_json::from_str(frame.split_once("data: ").unwrap().1).unwrap();
            said.push_str(data["delta"]["text"].as_str().unwrap_or_default());
            if data["type"] == "message_delta" {
                end = data["delta"].clone();
            }
        }
        (said, end["stop_reason"].as_str().unwrap().to_owned(), end["stop_sequence"].clone())
    };
    let met = |said: &str, sequence: &str| (said.to_owned(), "stop_sequence".to_owned(), json!(sequence));
    assert_eq!(run(&["one ", "two <<E", "ND>> three"]), met("one two ", "<<END>>"));
    assert_eq!(run(&["a", "<", "<", "E", "N", "D", ">", ">", "b"]), met("a", "<<END>>"));
    assert_eq!(run(&["grün", "ü", "! more"]), met("grün", "ü!"));
    let none = (String::from("all of <<EN it"), "end_turn".to_owned(), Value::Null);
    assert_eq!(run(&["all of <<E", "N it"]), none, "what only began like one is said");
    let whole = json!({"choices": [{"message": {"content": "x <<END>> y"}, "finish_reason": "length"}]});
    let bytes = message(whole.to_string().as_bytes(), &guarded, NOW).unwrap().body;
    let whole: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&whole["content"][0]["text"], &whole["stop_reason"]), (&json!("x "), &json!("stop_sequence")));
}

#[test]
fn p19_p20_a_stream_that_breaks_is_never_a_success() {
    let class = |chunks: &[String]| streamed(&chunks.concat(), usize::MAX).unwrap_err().class;
    let said = chunk(json!({"content": "x"}), Value::Null);
    assert_eq!(class(std::slice::from_ref(&said)), Class::Unreachable);
    assert_eq!(
        class(&[said.clone(), "data: {\"error\":{\"message\":\"boom\",\"code\":502}}\n\n".to_owned()]),
        Class::Server
    );
    assert_eq!(class(&[said, "data: {broken\n\n".to_owned()]), Class::BadResponse);
    assert_eq!(class(&["data: [DONE]\n\n".to_owned()]), Class::EmptyCompletion);
    let cut = chunk(
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\":"}}]}),
        json!("stop"),
    );
    assert_eq!(class(&[cut, "data: [DONE]\n\n".to_owned()]), Class::BadResponse);
}

#[test]
fn a_call_without_a_name_is_no_answer() {
    let call = json!({"index": 0, "id": "a", "function": {"arguments": "{\"x\":1}"}});
    let whole =
        json!({"choices": [{"message": {"content": "x", "tool_calls": [call]}, "finish_reason": "tool_calls"}]});
    assert_eq!(answered(&whole).unwrap_err().class, Class::BadResponse);
    let of = |call: Value| {
        streamed(
            &[chunk(json!({"content": "x", "tool_calls": [call]}), json!("stop")), "data: [DONE]\n\n".to_owned()]
                .concat(),
            usize::MAX,
        )
    };
    assert_eq!(of(call).unwrap_err().class, Class::BadResponse);
    // An empty one means nothing.
    assert!(of(json!({"index": 0, "function": {"arguments": ""}})).is_ok());
}

#[test]
fn images_are_sent_as_what_they_are_and_documents_by_url_where_the_card_says_so() {
    let image = |declared: &str| json!({"type": "image", "source": {"type": "base64", "media_type": declared, "data": "/9j/4AAQ"}});
    let out = messages(json!([{"role": "user", "content": [image("image/png"), image("image/jpeg")]}]));
    for part in out[0]["content"].as_array().unwrap() {
        assert_eq!(part["image_url"]["url"], "data:image/jpeg;base64,/9j/4AAQ");
    }
    let document =
        json!([{"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "https://a/b"}}]}]);
    let takes_urls = Card { pdf: true, pdf_url: true, ..Card::default() };
    assert_eq!(with_card(&takes_urls, document.clone())[0]["content"][0]["file"]["file_data"], "https://a/b");
    let body = json!({"model": "m", "max_tokens": 100, "messages": document});
    let refused = translated(&Card { pdf: true, ..Card::default() }, &body).unwrap_err();
    assert!(refused.to_string().contains("documents by URL are not supported"), "{refused}");
}

fn translator() -> Translator {
    Translator::new(Box::new(Decoder::new(context(), NOW)), &context(), 1 << 20)
}

const ENDED: &str = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const USAGE: &str = r#"{"prompt_tokens":10,"completion_tokens":4}"#;

#[test]
fn e09_usage_after_the_end_ends_a_stream_that_stays_open() {
    for choices in ["\"choices\":[],", ""] {
        let mut open = translator();
        let said = chunk(json!({"content": "x"}), json!("stop"));
        let out = open.feed(Bytes::from(said));
        assert!(!out.ends_with(ENDED.as_bytes()) && open.is_settled() && open.is_estimated());
        let out = open.feed(Bytes::from(format!("data: {{{choices}\"usage\":{USAGE}}}\n\n")));
        assert!(out.ends_with(ENDED.as_bytes()), "{out:?}");
        assert!(!open.is_settled() && !open.is_estimated() && open.said() == 1);
        let late = chunk(json!({"content": "late"}), json!("stop")) + "data: [DONE]\n\n";
        assert!(open.feed(Bytes::from(late)).is_empty() && open.end().is_empty() && open.fault().is_none());
    }
    // Before the end, or beside a choice, usage may be followed by a better one.
    let mut open = translator();
    open.feed(Bytes::from(format!("data: {{\"choices\":[],\"usage\":{USAGE}}}\n\n")));
    assert!(!open.is_settled());
    let beside =
        format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"x"}},"finish_reason":"stop"}}],"usage":{USAGE}}}"#);
    assert!(!open.feed(Bytes::from(format!("data: {beside}\n\n"))).ends_with(ENDED.as_bytes()));
    assert!(open.is_settled() && !open.is_estimated());
}

#[test]
fn e09_a_settled_stream_can_be_ended_without_its_usage() {
    let mut settled = translator();
    settled.feed(Bytes::from(chunk(json!({"content": "x"}), Value::Null)));
    assert!(!settled.is_settled() && settled.settle().is_empty(), "nothing says that it is over");
    settled.feed(Bytes::from(chunk(json!({}), json!("length"))));
    let out = String::from_utf8(settled.settle().to_vec()).unwrap();
    assert!(out.contains("\"stop_reason\":\"max_tokens\"") && out.ends_with(ENDED), "{out}");
    assert!(settled.fault().is_none() && settled.is_estimated() && !settled.is_settled());
    assert!(settled.settle().is_empty() && settled.end().is_empty() && settled.fault().is_none(), "once");
}

#[test]
fn an_answer_says_whether_its_usage_is_an_estimate() {
    for (usage, is_estimated) in [(json!(null), true), (json!({"prompt_tokens": 1, "completion_tokens": 1}), false)] {
        let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage});
        let answered = message(body.to_string().as_bytes(), &context(), NOW).unwrap();
        assert_eq!(answered.is_estimated, is_estimated);
        let answered: Value = serde_json::from_slice(&answered.body).unwrap();
        assert_eq!(answered["usage"].as_object().unwrap().len(), 4, "it is not written");
    }
}

/// Minutes, were all of it looked at again with every piece.
#[test]
fn reasoning_in_very_many_pieces_is_put_together_once() {
    let mut upstream = String::new();
    for _ in 0..20_000 {
        let item = json!({"type": "reasoning.text", "index": 0, "text": "eleven \"b\n\""});
        upstream.push_str(&chunk(json!({"reasoning_details": [item]}), Value::Null));
    }
    upstream.push_str(&chunk(json!({"content": "x"}), json!("stop")));
    let events = streamed(&upstream, 1 << 16).unwrap();
    let signature = events.iter().find_map(|(_, data)| data["delta"]["signature"].as_str()).unwrap();
    let carrier = crate::translate::carrier::Carrier::read(signature).unwrap();
    let details: Value = serde_json::from_str(carrier.data.get()).unwrap();
    assert_eq!(details.as_array().unwrap().len(), 1);
    assert_eq!(details[0]["text"].as_str().unwrap(), "eleven \"b\n\"".repeat(20_000));
}

/// The same for the inputs of calls that come by turns.
#[test]
fn inputs_in_very_many_pieces_are_looked_at_once() {
    let call = |index: u32, piece: &str| {
        let name = if piece == "{\"a\":\"" { json!("t") } else { Value::Null };
        let call = json!({"index": index, "function": {"name": name, "arguments": piece}});
        chunk(json!({"tool_calls": [call]}), Value::Null)
    };
    let mut upstream = call(0, "{\"a\":\"") + &call(1, "{\"a\":\"");
    for _ in 0..10_000 {
        upstream.push_str(&call(0, "}0123456789"));
        upstream.push_str(&call(1, "}0123456789"));
    }
    upstream.push_str(&(call(0, "\"}") + &call(1, "\"}") + &chunk(json!({}), json!("tool_calls"))));
    let input = format!("tool_use t: {{\"a\":\"{}\"}}", "}0123456789".repeat(10_000));
    assert_eq!(story(&streamed(&upstream, 1 << 16).unwrap()), [input.clone(), input, "tool_use".to_owned()]);
}
