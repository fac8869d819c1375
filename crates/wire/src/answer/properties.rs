//! Answers of every shape: one pass gives what careful reading gives, and that is what a plain reading of the JSON says.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::object::{Name, Used};
use super::*;

const CHARGE: Charge<'static> = Charge { cost_json: "0.5", details_json: r#"{"x":1}"#, is_byok: false };

/// The names as they stand in objects, now and then written with an escape or unknown.
fn name<N: object::Names>() -> impl Strategy<Value = String> {
    let known =
        prop::sample::select(N::ALL.iter().map(|name| name.written()[2..].replace("\":", "")).collect::<Vec<_>>());
    prop_oneof![
        20 => known.clone(),
        1 => known.prop_map(|name| format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..])),
        1 => prop::sample::select(vec!["future", "\\ud800", "a\\\"b"]).prop_map(str::to_owned),
    ]
}

fn scalar() -> impl Strategy<Value = String> {
    let odd = [
        "null",
        "true",
        "-1",
        "2.5",
        "1e999",
        "\"\"",
        "\"standard\"",
        "\"\\ud800\"",
        "\"\\u0061\"",
        "[]",
        "{}",
        "[{}]",
    ];
    prop_oneof![
        (0_u64..5000).prop_map(|number| number.to_string()),
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned)
    ]
}

fn object_of(
    name: impl Strategy<Value = String>,
    value: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    let space = prop::sample::select(vec!["", "", " ", "\n"]);
    (prop::collection::vec((name, value), 0..9), space).prop_map(|(members, space)| {
        let members = members.iter().map(|(name, value)| format!("{space}\"{name}\"{space}:{space}{value}{space}"));
        format!("{{{space}{}}}", members.collect::<Vec<_>>().join(","))
    })
}

/// A message; most have a usage, some have more than one.
fn message() -> impl Strategy<Value = String> {
    let parts = object_of(
        prop::sample::select(vec!["ephemeral_1h_input_tokens", "thinking_tokens"]).prop_map(str::to_owned),
        scalar(),
    );
    let usage = object_of(name::<Used>(), prop_oneof![3 => scalar(), 1 => parts]).boxed();
    let value = prop_oneof![3 => scalar(), 1 => usage.clone()];
    (object_of(name::<Name>(), value), usage, 0..4_u8).prop_map(|(rest, usage, kind)| match kind {
        0 => rest,
        _ if rest.trim_start_matches(['{', ' ', '\n']) == "}" => format!("{{\"usage\":{usage}}}"),
        1 => format!("{{\"usage\":{usage} ,{}", &rest[1..]),
        _ => format!("{},\"usage\":{usage}}}", &rest[..rest.len() - 1]),
    })
}

fn additions() -> Additions<'static> {
    Additions { model: "a/\"b", provider: "P", charge: Some(CHARGE), used: None, routing_json: Some(("future", "7")) }
}

/// What is to become of an answer, said with values.
fn completed(mut message: Map<String, Value>, is_bad: bool) -> Value {
    let content = message.get("content").map(ToString::to_string).unwrap_or_default();
    // Empty is what has nothing between its first character and its last.
    let is_finished = content.len() != 2;
    message.insert("model".into(), "a/\"b".into());
    message.insert("provider".into(), "P".into());
    if is_finished && !message.get("stop_reason").is_some_and(Value::is_string) {
        message.insert("stop_reason".into(), END_TURN.into());
    }
    if let Some(details) = message.get_mut("stop_details").and_then(Value::as_object_mut) {
        for (name, text) in
            [("category", "general_harms"), ("explanation", "The model declined to answer this request.")]
        {
            if !details.get(name).is_some_and(Value::is_string) {
                details.insert(name.into(), text.into());
            }
        }
    }
    for name in ["stop_reason", "stop_sequence", "stop_details", "container"] {
        message.entry(name).or_insert(Value::Null);
    }
    if !message.get("usage").is_some_and(Value::is_object) {
        message.insert("usage".into(), Map::new().into());
    }
    let usage = message["usage"].as_object_mut().unwrap();
    if is_bad {
        usage.iter_mut().for_each(|(name, value)| mended(name, value));
    }
    for name in ["input_tokens", "output_tokens"] {
        if usage.get(name).is_none_or(Value::is_null) {
            usage.insert(name.into(), 0.into());
        }
    }
    let nullable = "cache_creation_input_tokens cache_read_input_tokens cache_creation output_tokens_details \
        server_tool_use inference_geo";
    for name in nullable.split(' ') {
        usage.entry(name).or_insert(Value::Null);
    }
    if !usage.get("service_tier").is_some_and(Value::is_string) {
        usage.insert("service_tier".into(), "standard".into());
    }
    usage.insert("cost".into(), 0.5.into());
    usage.insert("cost_details".into(), serde_json::json!({"x": 1}));
    usage.insert("is_byok".into(), false.into());
    message.insert("future".into(), 7.into());
    message.into()
}

/// A member of a usage in which some number is no count.
fn mended(name: &str, value: &mut Value) {
    let is_flat = match name {
        "input_tokens" | "output_tokens" | "cache_creation_input_tokens" | "cache_read_input_tokens" => true,
        "cache_creation"
        | "input_tokens_details"
        | "output_tokens_details"
        | "billed_units"
        | "server_tool_use"
        | "iterations" => false,
        _ => return,
    };
    match value {
        Value::Null => {}
        Value::Number(number) => *value = whole(number.as_f64().unwrap()).0.into(),
        _ if is_flat => *value = if name.starts_with("cache") { Value::Null } else { 0.into() },
        Value::Object(members) => members.values_mut().for_each(|value| mended("iterations", value)),
        Value::Array(elements) => elements.iter_mut().for_each(|value| mended("iterations", value)),
        Value::Bool(_) | Value::String(_) => {}
    }
}

/// Whether a name stands twice in the text's object or in its usage: then a [`Value`] says less than the text.
fn repeats(text: &str) -> bool {
    let members = |text: &str| {
        let mut members = json::Members::default();
        let is_read = members.read(text).is_ok();
        (is_read && members.repeated().is_some(), members.get("usage").map(|usage| usage.get().to_owned()))
    };
    let (repeated, usage) = members(text);
    repeated || usage.is_some_and(|usage| members(&usage).0)
}

proptest! {
    #[test]
    fn one_pass_gives_what_careful_reading_gives(text in message()) {
        let read = || Message::read(text.as_bytes());
        let careful = || Message::read_carefully(&text, &text, text.rfind('}').unwrap());
        prop_assert_eq!(read().is_ok(), careful().is_ok());
        if let (Ok(one), Ok(other)) = (read(), careful()) {
            prop_assert_eq!((one.counts(), one.id(), one.stop_reason()), (other.counts(), other.id(), other.stop_reason()));
            prop_assert_eq!(one.completed(&additions()), other.completed(&additions()));
            prop_assert_eq!(read().unwrap().replayed("m"), careful().unwrap().replayed("m"));
        }
    }

    #[test]
    fn an_answer_is_completed_as_its_values_would_be(text in message()) {
        let Ok(Value::Object(object)) = serde_json::from_str(&text) else { return Ok(()) };
        if repeats(&text) {
            return Ok(());
        }
        let message = Message::read(text.as_bytes()).unwrap();
        let is_bad = message.counts().is_some_and(|counts| counts.is_bad);
        let made = message.completed(&additions());
        let mut wanted = completed(object, is_bad);
        // What our translation says last is said to us.
        let usage = serde_json::from_str(&text).ok().and_then(json::Members::of);
        let usage = usage.as_ref().and_then(|it| it.get("usage")).map_or("", |it| it.get());
        for (is_said, name) in [
            (usage.ends_with(r#","clamped":true}"#), "clamped"),
            (usage.contains(r#","billed_units":"#), "billed_units"),
        ] {
            if let (true, Some(usage)) = (is_said, wanted["usage"].as_object_mut()) {
                usage.remove(name);
            }
        }
        prop_assert_eq!(serde_json::from_slice::<Value>(&made).unwrap(), wanted);
    }

    #[test]
    fn it_does_not_matter_where_in_a_text_a_message_stands(text in message()) {
        let (before, behind) = ("{\"type\":\"message_start\", \"message\" : ", " , \"more\":{}}");
        let around = format!("{before}{text}{behind}");
        let alone = || Message::read(text.as_bytes()).ok();
        let within = || Event::read(around.as_bytes()).ok()?.message().ok();
        let wrapped = |made: Bytes| [before.as_bytes(), &made, behind.as_bytes()].concat();
        prop_assert_eq!(alone().map(|it| (it.counts(), it.id())), within().map(|it| (it.counts(), it.id())));
        let begun = |message: Message<'_>| message.started(&additions());
        prop_assert_eq!(alone().map(begun).map(wrapped), within().map(begun).map(|made| made.to_vec()));
        let again = |message: Message<'_>| message.started_again("m");
        prop_assert_eq!(alone().map(again).map(wrapped), within().map(again).map(|made| made.to_vec()));
    }

    #[test]
    fn it_does_not_matter_where_a_delta_begins(
        event in object_of(name::<Name>(), prop_oneof![2 => scalar(), 1 => object_of(name::<Name>(), scalar())]),
        usage in object_of(name::<Used>(), scalar()),
    ) {
        let bare = event.trim_start_matches(['{', ' ', '\n']) == "}";
        let text = if bare { format!("{{\"usage\":{usage}}}") } else { format!("{{\"usage\":{usage},{}", &event[1..]) };
        let moved = format!("\n   {text}");
        let known = Counts { input: Some(7), ..Counts::default() };
        let read = |text: &str| {
            let delta = || Some(Event::read(text.as_bytes()).ok()?.delta());
            let said = delta().map(|delta| (delta.counts(), delta.stop_reason()));
            let made = delta().map(|delta| delta.completed(&known, Some(&CHARGE), Some(END_TURN)));
            let again = delta().map(Delta::replayed);
            (said, [made, again].map(|made| made.map(|made| String::from_utf8(made.to_vec()).unwrap().trim().to_owned())))
        };
        prop_assert_eq!(read(&text), read(&moved));
        // Half a character is no text for others.
        if let Some(made) = &read(&text).1[0] && let Ok(made) = serde_json::from_str::<Value>(made) {
            prop_assert!(repeats(&text) || made["usage"]["cost"] == 0.5, "{}", made);
        }
    }
}
