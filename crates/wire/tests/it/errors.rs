//! What readers say about values that do not fit.

use tidegate_wire::messages::*;

#[test]
fn a_misfit_names_its_member() {
    let cases = [
        (r#"{"type":"tool_use","name":"x"}"#, "missing field `id`"),
        (r#"{"type":"tool_use","id":"a","name":7}"#, "name: invalid type: integer `7`, expected a string"),
        (r#"{"type":"tool_use","id":"a","name":null}"#, "name: invalid type: null, expected a string"),
        (r#"{"type":"tool_use","id":"a","id":"b","name":"x"}"#, "duplicate field `id`"),
        (r#"{"type":"tool_result","tool_use_id":"a","is_error":null,"is_error":true}"#, "duplicate field `is_error`"),
        (r#"{"type":"text","text":"a","type":"text"}"#, "duplicate field `type`"),
        (r#"{"type":"text","text":"a","citations":3}"#, "citations: invalid type: integer `3`, expected a sequence"),
        (r#"{"type":"text","text":"a","cache_control":{"type":"eternal"}}"#, "cache_control: type: invalid value"),
        (r#"{"type":"text","text":"a","cache_control":{"ttl":5}}"#, "cache_control: ttl: invalid type: integer `5`"),
        (r#"{"type":"tool_result","tool_use_id":"a","content":{}}"#, "expected a string or an array of blocks"),
        (r#"{"type":"tool_result","tool_use_id":"a","content":[{}]}"#, "content: [0]: missing field `type`"),
        (r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":1}]}"#, "content: [0]: type: expected a string"),
        (r#"{"type":"image","source":"x"}"#, "source: invalid type: string \"x\", expected an object"),
        (r#"{"type":null,"text":"a"}"#, "type: expected a string"),
        (r#"{"text":"a"}"#, "missing field `type`"),
        (r#"["text"]"#, "expected an object"),
        (r#"{"type":"text""#, "EOF while parsing"),
    ];
    for (text, expected) in cases {
        let error = Block::parse_strict(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n  gives {error}\n  not {expected}");
    }
}

#[test]
fn a_request_names_its_member() {
    let cases = [
        (r#"{"model":"m"}"#, "missing field `messages`"),
        (r#"{"messages":null}"#, "messages: invalid type: null"),
        (r#"{"messages":[{"role":"user"}]}"#, "messages: missing field `content`"),
        (r#"{"messages":[{"role":1,"content":""}]}"#, "messages: role: invalid type: integer `1`"),
        (r#"{"messages":[],"max_tokens":"many"}"#, "max_tokens: invalid type: string \"many\", expected u64"),
        (r#"{"messages":[],"max_tokens":-1}"#, "max_tokens: invalid value: integer `-1`"),
        (r#"{"messages":[],"stop_sequences":"END"}"#, "stop_sequences: invalid type: string \"END\""),
        (r#"{"messages":[],"model":"a","model":"b"}"#, "duplicate field `model`"),
        (r#"{"messages":[],"thinking":{"budget_tokens":1}}"#, "thinking: missing field `type`"),
        (r#"{"messages":[],"output_config":{"task_budget":{"type":"tokens"}}}"#, "task_budget: missing field `total`"),
    ];
    for (text, expected) in cases {
        let error = Request::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}\n  gives {error}\n  not {expected}");
    }
}

#[test]
fn a_misfit_of_a_known_kind_is_kept_unread() {
    let text = r#"{"type":"tool_use", "id":7, "n":1.0}"#;
    let Block::Other(other) = serde_json::from_str(text).unwrap() else { panic!("kept as other") };
    assert_eq!((other.kind.as_str(), other.raw.get()), ("tool_use", text));
}

#[test]
fn a_misfit_inside_a_block_leaves_the_block_typed() {
    let text = r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text"},{"type":"text","text":"b"}]}"#;
    let Block::ToolResult(result) = Block::parse_strict(text).unwrap() else { panic!("a tool result") };
    let Some(Content::Blocks(blocks)) = result.content else { panic!("blocks") };
    assert!(matches!(&blocks[..], [Block::Other(_), Block::Text(_)]));
}

#[test]
fn a_tool_without_a_type_is_custom() {
    let tool = |text: &str| serde_json::from_str::<Tool>(text).unwrap();
    assert!(matches!(tool(r#"{"name":"a","input_schema":{}}"#), Tool::Custom(_)));
    assert!(matches!(tool(r#"{"type":null,"name":"a","input_schema":{}}"#), Tool::Custom(_)));
    let Tool::Other(other) = tool(r#"{"name":"a"}"#) else { panic!("no schema, so not custom") };
    assert_eq!(other.kind, "custom");
    assert!(serde_json::from_str::<Tool>(r#"{"type":7,"name":"a"}"#).is_err());
}

#[test]
fn hostile_nesting_is_kept_unread_below_a_limit() {
    let levels = 20_000;
    let open = r#"{"type":"tool_result","tool_use_id":"a","content":["#;
    let text = format!("{}{}", open.repeat(levels), "]}".repeat(levels));
    let block: Block = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&block).unwrap(), text);
}
