mod streams;

use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_wire::messages::Request;

use super::{message, request};
use crate::fault::{Class, Fault};
use crate::translate::card::{Level, LimitField, ReasoningField, ReasoningSwitch, Replay, Structured, SystemRole};
use crate::translate::{Card, Context, Target, Unsupported};

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
