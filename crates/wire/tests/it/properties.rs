//! Nothing that has a `type` is lost on its way through a typed value.

use proptest::prelude::*;
use serde_json::{Map, Value};
use tidegate_wire::messages::{Block, Event, Tool};

const NAMES: &[&str] = &[
    "text",
    "id",
    "name",
    "input",
    "source",
    "content",
    "title",
    "citations",
    "tool_use_id",
    "is_error",
    "data",
    "x",
    "thinking",
    "signature",
    "file_id",
    "tool",
    "index",
    "delta",
    "message",
    "error",
    "usage",
    "input_schema",
];

proptest! {
    #[test]
    fn any_object_with_a_type_survives_as_a_block(object in object_of(Block::KINDS)) {
        let block: Block = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(block.kind(), object["type"].as_str().unwrap());
        prop_assert_eq!(serde_json::to_value(&block).unwrap(), object);
    }

    #[test]
    fn any_object_with_a_type_survives_as_an_event(object in object_of(Event::KINDS)) {
        let event: Event = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(serde_json::to_value(&event).unwrap(), object);
    }

    #[test]
    fn any_object_with_a_type_survives_as_a_tool(object in object_of(Tool::KINDS)) {
        let tool: Tool = serde_json::from_str(&object.to_string()).unwrap();
        prop_assert_eq!(serde_json::to_value(&tool).unwrap(), object);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in ".{0,64}") {
        let _ = serde_json::from_str::<Block>(&text);
        let _ = Block::parse_strict(&text);
    }
}

/// Objects of a known or an unknown kind whose members are partly those of the format, with fitting and misfitting
/// values.
fn object_of(kinds: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let kind = prop_oneof![4 => prop::sample::select(kinds).prop_map(str::to_owned), 1 => "[a-z_]{1,12}"];
    let member = (prop::sample::select(NAMES), value());
    (kind, prop::collection::vec(member, 0..8)).prop_map(|(kind, members)| {
        let mut object: Map<String, Value> =
            members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        object.insert("type".to_owned(), Value::String(kind));
        Value::Object(object)
    })
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Halves are exact, so that equality of numbers is that of their digits.
        any::<i32>().prop_map(|number| Value::from(f64::from(number) / 2.0)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            (prop::option::of(prop::sample::select(Block::KINDS)), prop::collection::vec(("[a-z_]{1,8}", inner), 0..4))
                .prop_map(|(kind, members)| {
                    let kind = kind.map(|kind| ("type".to_owned(), Value::from(kind)));
                    Value::Object(members.into_iter().chain(kind).collect())
                }),
        ]
    })
}
