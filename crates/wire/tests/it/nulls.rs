//! Absent, null and present members, and what writers of answers rely on.

use bytes::BytesMut;
use tidegate_wire::messages::*;
use tidegate_wire::object::Raw;

#[test]
fn an_optional_null_is_written_back_until_the_member_is_set() {
    let mut text: Text = serde_json::from_str(r#"{"type":"text","text":"a","cache_control":null,"x":1.0}"#).unwrap();
    assert_eq!(text.cache_control, None);
    assert_eq!(serde_json::to_string(&text).unwrap(), r#"{"type":"text","text":"a","cache_control":null,"x":1.0}"#);
    text.cache_control = Some(CacheControl::default());
    assert_eq!(
        serde_json::to_string(&text).unwrap(),
        r#"{"type":"text","text":"a","cache_control":{"type":"ephemeral"},"x":1.0}"#
    );
}

#[test]
fn a_nullable_member_tells_null_from_absent() {
    let read = |text: &str| serde_json::from_str::<Text>(text).unwrap().citations;
    assert_eq!(read(r#"{"text":"a"}"#), None);
    assert_eq!(read(r#"{"text":"a","citations":null}"#), Some(None));
    assert_eq!(read(r#"{"text":"a","citations":[]}"#), Some(Some(vec![])));
}

#[test]
fn numbers_keep_their_digits() {
    let text = r#"{"type":"tool_use","id":"a","name":"b","input":{"a": 1.0,"b":1e400,"c":0.10}}"#;
    assert_eq!(serde_json::to_string(&Block::parse_strict(text).unwrap()).unwrap(), text);
}

#[test]
fn a_message_start_has_every_member() {
    let mut out = BytesMut::new();
    let mut response = Response::begin("msg_01".to_owned(), "a/b".to_owned(), "A".to_owned());
    response.usage.input_tokens = Some(Some(11));
    Event::message_start(response).encode(&mut out);
    insta::assert_snapshot!(str::from_utf8(&out).unwrap(), @r#"
    event: message_start
    data: {"type":"message_start","message":{"type":"message","id":"msg_01","role":"assistant","model":"a/b","content":[],"usage":{"output_tokens":0,"service_tier":"standard","input_tokens":11,"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"cache_creation":null,"output_tokens_details":null,"server_tool_use":null,"inference_geo":null},"provider":"A","stop_reason":null,"stop_sequence":null,"stop_details":null,"container":null}}
    "#);
}

#[test]
fn a_stream_can_be_written() {
    let mut out = BytesMut::new();
    let pretty = Raw::from_text("{\n  \"a\": \"x\\ny\"\r\n}").unwrap();
    let events = [
        Event::ping(),
        Event::block_start(0, Block::Text(Text::answer(String::new()))),
        Event::block_delta(0, Delta::Text(TextDelta::new("hi\n".to_owned()))),
        Event::block_stop(0),
        Event::block_start(1, Block::ToolUse(ToolUse::answer("toolu_1".to_owned(), "f".to_owned(), pretty))),
        Event::message_delta(MessageEnd::of(StopReason::ToolUse), Usage { output_tokens: Some(3), ..Usage::default() }),
        Event::message_stop(),
    ];
    for event in events {
        event.encode(&mut out);
    }
    insta::assert_snapshot!(str::from_utf8(&out).unwrap(), @r#"
    event: ping
    data: {"type":"ping"}

    event: content_block_start
    data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":null}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi\n"}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":0}

    event: content_block_start
    data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"f","input":{   "a": "x\ny"  },"caller":{"type":"direct"}}}

    event: message_delta
    data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"stop_details":null,"container":null},"usage":{"output_tokens":3,"input_tokens":null,"cache_creation_input_tokens":null,"cache_read_input_tokens":null,"output_tokens_details":null,"server_tool_use":null}}

    event: message_stop
    data: {"type":"message_stop"}
    "#);
}

#[test]
fn branded_kinds_are_recognised() {
    let text = r#"{"type":"harbour_shell_tool_result","tool_use_id":"a","content":{"output":[]}}"#;
    let Block::Other(other) = serde_json::from_str(text).unwrap() else { panic!("not a kind of the format") };
    assert_eq!(other.branded("harbour"), Some("shell_tool_result"));
    assert_eq!(other.branded("tidegate"), None);
    let result: BrandedResult = other.raw.parse().unwrap();
    assert_eq!((result.tool_use_id.as_str(), result.content.get()), ("a", r#"{"output":[]}"#));
}
