use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_core::Timestamp;
use tidegate_wire::messages::Request;

use super::{message, request};
use crate::translate::card::Cache;
use crate::translate::{Answered, Card, Context, Target};
use crate::{Protocol, adapter, cards, eventstream};

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn sent(body: &Value, card: &Card) -> (String, Context) {
    let parsed = Request::parse(body.to_string().as_bytes()).unwrap();
    let target = Target {
        card,
        model: "m",
        scope: "ep-7f2c",
        cache_key: None,
        user: None,
        stream: true,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    };
    let made = request(&parsed, &target).unwrap();
    (String::from_utf8(made.body.to_vec()).unwrap(), made.context)
}

#[test]
fn p68_as_many_markers_come_out_as_went_in_up_to_four() {
    let marked = |mut block: Value, mark: bool| {
        if mark {
            block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
        }
        block
    };
    let card = Card { cache: Cache::Points, ..cards::converse() };
    for bits in 0_u32..256 {
        let bit = |place: u32| bits & (1 << place) != 0;
        let image =
            json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}});
        let document = json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "t"}});
        let body = json!({"max_tokens": 64,
            "system": [marked(json!({"type": "text", "text": "s"}), bit(0))],
            "tools": [marked(json!({"name": "a", "input_schema": {"type": "object"}}), bit(1))],
            "messages": [
                {"role": "user", "content": [marked(image, bit(2)), marked(document, bit(3)), marked(json!({"type": "text", "text": "x"}), bit(4))]},
                {"role": "assistant", "content": [marked(json!({"type": "text", "text": "x"}), bit(5)), marked(json!({"type": "tool_use", "id": "t1", "name": "a", "input": {}}), bit(6))]},
                {"role": "user", "content": [marked(json!({"type": "tool_result", "tool_use_id": "t1", "content": "r"}), bit(7))]}]});
        let (text, _) = sent(&body, &card);
        let kept = bits.count_ones().min(4);
        assert_eq!(text.matches("cachePoint").count() as u32, kept, "{text}");
        assert_eq!(text.matches("\"ttl\":\"1h\"").count() as u32, kept, "{text}");
    }
}

#[test]
fn nova_gets_what_it_takes_and_markers_anywhere_but_among_its_tools() {
    let marker = json!({"type": "ephemeral", "ttl": "1h"});
    let body = json!({"max_tokens": 64,
        "top_k": 40,
        "system": [{"type": "text", "text": "s", "cache_control": marker}],
        "tools": [{"name": "a", "input_schema": {"type": "object"}, "cache_control": marker}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": marker}]}]});
    let (text, _) = sent(&body, &cards::bedrock(cards::converse(), "vendor/m", "us.amazon.nova-pro-v1:0", false));
    let sent: Value = serde_json::from_str(&text).unwrap();
    let point = json!({"cachePoint": {"type": "default"}});
    assert_eq!(sent["system"], json!([{"text": "s"}, point]));
    assert_eq!(sent["messages"][0]["content"], json!([{"text": "x"}, point]));
    assert_eq!(sent["toolConfig"]["tools"].as_array().unwrap().len(), 1, "{text}");
    assert_eq!(sent["additionalModelRequestFields"]["inferenceConfig"], json!({"topK": 40}));
}

#[test]
fn a_model_that_knows_no_places_to_cache_up_to_is_sent_none() {
    let body = json!({"max_tokens": 64,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "x"}]});
    let card = cards::bedrock(cards::converse(), "vendor/m", "us.meta.llama3-3-70b-instruct-v1:0", false);
    assert!(!sent(&body, &card).0.contains("cachePoint"));
}

#[test]
fn the_order_of_a_clients_members_is_kept() {
    let text = r#"{"max_tokens":64,"tools":[{"name":"a","input_schema":{"type":"object","properties":{"z":{},"a":{"minimum":1.0}}}}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"a","input":{"z":1.50,"a":[]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"y"}]}]}"#;
    let card = cards::converse();
    let target = Target {
        card: &card,
        model: "m",
        scope: "s",
        cache_key: None,
        user: None,
        stream: false,
        is_capped: false,
        tells_searches: false,
        tier: None,
        betas: &[],
        kept: &[],
        unsigned: false,
    };
    let made = request(&Request::parse(text.as_bytes()).unwrap(), &target).unwrap();
    let body = std::str::from_utf8(&made.body).unwrap();
    assert!(body.contains(r#""input":{"z":1.50,"a":[]}"#), "{body}");
    assert!(body.contains(r#""properties":{"z":{},"a":{"minimum":1.0}}"#), "{body}");
}

#[test]
fn claudes_signatures_are_its_own() {
    let card = Card { claude: true, ..cards::converse() };
    let (_, context) = sent(&json!({"max_tokens": 64, "messages": [{"role": "user", "content": "x"}]}), &card);
    assert!(context.own_signatures && context.show_thinking);
    let (_, other) =
        sent(&json!({"max_tokens": 64, "messages": [{"role": "user", "content": "x"}]}), &cards::converse());
    assert!(!other.own_signatures && !other.show_thinking);
}

#[test]
fn a_whole_answer_to_a_streamed_request_is_read() {
    let body = br#"{"output":{"message":{"content":[{"text":"Hi"}]}},"stopReason":"end_turn","usage":{"inputTokens":3,"outputTokens":1}}"#;
    let mut translator = adapter::translator(Protocol::Converse, &Context::default(), NOW, 1 << 20).unwrap();
    let out = String::from_utf8(translator.whole(body).to_vec()).unwrap();
    assert!(
        translator.fault().is_none() && out.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        "{out}"
    );
}

#[test]
fn no_answer_however_odd_does_harm() {
    let odd = ["null", "-1e300", "\"\"", "[]", "{}", "[[null]]", "true", "{\"text\":7}", "{", ""];
    let context = Context { show_thinking: true, own_signatures: true, ..Context::default() };
    for value in odd {
        for frame in ["output", "stopReason", "usage", "additionalModelResponseFields"] {
            let whole = format!(r#"{{"output":{{"message":{{"content":[{{"text":"x"}}]}}}},"{frame}":{value}}}"#);
            if let Ok(Answered { body, .. }) = message(whole.as_bytes(), &context, NOW) {
                serde_json::from_slice::<Value>(&body).unwrap();
            }
        }
        let inner = [
            ("messageStart", format!(r#"{{"role":{value}}}"#)),
            ("contentBlockStart", format!(r#"{{"contentBlockIndex":0,"start":{value}}}"#)),
            ("contentBlockStart", format!(r#"{{"contentBlockIndex":{value},"start":{{"toolUse":{value}}}}}"#)),
            ("contentBlockDelta", format!(r#"{{"contentBlockIndex":0,"delta":{value}}}"#)),
            (
                "contentBlockDelta",
                format!(r#"{{"contentBlockIndex":0,"delta":{{"reasoningContent":{value},"citation":{value}}}}}"#),
            ),
            ("contentBlockStop", value.to_owned()),
            ("messageStop", format!(r#"{{"stopReason":{value}}}"#)),
            ("metadata", format!(r#"{{"usage":{value}}}"#)),
            ("", value.to_owned()),
            ("chunk", value.to_owned()),
        ];
        for (name, payload) in &inner {
            let mut translator = adapter::translator(Protocol::Converse, &context, NOW, 1 << 20).unwrap();
            translator.feed(eventstream::encode(name, payload.as_bytes()));
            translator.feed(eventstream::encode_exception(name, payload.as_bytes()));
            translator.feed(Bytes::from_static(b"rubbish that is no frame at all"));
            translator.end();
            assert!(translator.fault().is_some(), "{name} {payload}");
            let mut invoke = adapter::invoke_translator(1 << 20);
            invoke.feed(eventstream::encode(name, payload.as_bytes()));
            invoke.end();
            assert!(invoke.fault().is_some());
        }
    }
}

#[test]
fn e09_a_stream_that_named_its_end_is_settled() {
    let mut translator = adapter::translator(Protocol::Converse, &Context::default(), NOW, 1 << 20).unwrap();
    let mut feed = |name: &str, data: &str| translator.feed(eventstream::encode(name, data.as_bytes()));
    feed("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"x"}}"#);
    feed("messageStop", r#"{"stopReason":"end_turn"}"#);
    assert!(translator.is_settled());
    assert!(translator.settle().ends_with(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    assert!(translator.fault().is_none() && !translator.is_settled() && translator.is_estimated());
}
