use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::envelope::{self, Brand, Purpose};

use super::{Edited, Rules, edited};
use crate::translate::Card;
use crate::translate::card::{Level, Sampling, ThinkingMode};
use crate::translate::carrier::Carrier;

fn run(body: &str, card: &Card) -> Edited {
    run_with(body, card, 64_000)
}

fn run_with(body: &str, card: &Card, max_output_tokens: u64) -> Edited {
    run_on(body, card, max_output_tokens, false)
}

fn run_on(body: &str, card: &Card, max_output_tokens: u64, is_made: bool) -> Edited {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let envelope = envelope::read(&bytes, Brand { name: "tidegate", aliases: &[] }, Purpose::Generate).unwrap();
    let rules = Rules { max_output_tokens, is_made, ..Rules::plain(card, envelope.max_tokens) };
    edited(&bytes, envelope.traits, &rules)
}

/// As an upstream gets it that knows markers on blocks alone.
fn run_marking(body: &str, card: &Card) -> Edited {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let envelope = envelope::read(&bytes, Brand { name: "tidegate", aliases: &[] }, Purpose::Generate).unwrap();
    let rules = Rules { marks_last: true, ..Rules::plain(card, None) };
    edited(&bytes, envelope.traits, &rules)
}

#[test]
fn p42_ids_of_other_formats_are_made_ones_that_claude_takes() {
    let body = |first: &str, second: &str| {
        json!({"model": "m", "max_tokens": 9, "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": first, "name": "f", "input": {"id": "a.b"}}, {"type": "tool_use", "id": second, "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first, "content": "y"}, {"type": "tool_result", "tool_use_id": second, "content": "z"}]},
        ]})
        .to_string()
    };
    let made = value(&run_on(&body("functions.f:0", "call_1"), &Card::default(), 64_000, true));
    let (calls, results) = (&made["messages"][1]["content"], &made["messages"][2]["content"]);
    let id = calls[0]["id"].as_str().unwrap();
    assert!(id.starts_with("t_") && id.len() == 26, "{id}");
    assert_eq!((&results[0]["tool_use_id"], &calls[0]["input"]), (&json!(id), &json!({"id": "a.b"})));
    assert_eq!((&calls[1]["id"], &results[1]["tool_use_id"]), (&json!("call_1"), &json!("call_1")));
    assert!(run_on(&body("call_0", "call_1"), &Card::default(), 64_000, true).body.is_none());
    // What a client wrote in Claude's own format is for Claude to judge.
    assert!(run(&body("functions.f:0", "call_1"), &Card::default()).body.is_none());
}

fn value(edited: &Edited) -> Value {
    serde_json::from_slice(edited.body.as_ref().expect("it was changed")).unwrap()
}

fn claude() -> Card {
    Card { mid_system: true, ..Card::default() }
}

/// A body with these messages and more members.
fn with(messages: &Value, more: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":4096,"messages":{messages}{more}}}"#)
}

#[test]
fn a_tier_has_anthropics_words() {
    let body = |tier: &str| with(&json!([{"role": "user", "content": "hi"}]), &format!(r#","service_tier":"{tier}""#));
    for tier in ["auto", "standard_only"] {
        assert!(run(&body(tier), &claude()).body.is_none());
    }
    assert_eq!(value(&run(&body("default"), &claude()))["service_tier"], "standard_only");
    for tier in ["flex", "priority"] {
        let edited = run(&body(tier), &claude());
        assert_eq!(
            (value(&edited).get("service_tier"), edited.warnings.as_slice()),
            (None, &["dropped:service_tier".to_owned()][..])
        );
    }
}

#[test]
fn an_effort_that_the_model_lacks_becomes_the_nearest_it_has() {
    let body = |config: &str| with(&hello(), &format!(r#","output_config":{config}"#));
    let card = Card { efforts: vec![Level::Low, Level::Medium, Level::High, Level::Max], ..claude() };
    for is_made in [false, true] {
        let edited = run_on(&body(r#"{"effort":"xhigh","future":1.0}"#), &card, 64_000, is_made);
        assert_eq!(value(&edited)["output_config"], json!({"effort": "high", "future": 1.0}));
        assert_eq!(edited.warnings, ["clamped:effort"]);
        for effort in ["low", "medium", "high", "max"] {
            let body = body(&format!(r#"{{"effort":"{effort}"}}"#));
            assert!(run_on(&body, &card, 64_000, is_made).body.is_none(), "{effort}");
        }
    }
    // What is not known of a model is for its vendor to judge.
    assert!(run(&body(r#"{"effort":"xhigh"}"#), &claude()).body.is_none());
    let high = Card { efforts: vec![Level::High, Level::Max], ..claude() };
    let edited = run(&body(r#"{"effort":"low"}"#), &high);
    assert_eq!(
        (&value(&edited)["output_config"], &*edited.warnings),
        (&json!({"effort": "high"}), &["clamped:effort".to_owned()][..])
    );
    let none = Card { effort: false, ..card };
    assert_eq!(run(&body(r#"{"effort":"xhigh"}"#), &none).warnings, ["dropped:effort"]);
}

#[test]
fn a_temperature_that_is_too_high_is_lowered() {
    let body = |temperature: &str| with(&hello(), &format!(r#","temperature":{temperature}"#));
    let card = Card { max_temperature: 1.0, ..claude() };
    let edited = run(&body("1.5"), &card);
    assert_eq!(value(&edited)["temperature"], json!(1));
    assert_eq!(edited.warnings, ["clamped:temperature"]);
    for temperature in ["1", "1.0", "0.2", "null"] {
        assert!(run(&body(temperature), &card).body.is_none(), "{temperature}");
    }
    assert!(run(&body("2"), &claude()).body.is_none(), "a model that takes it");
    let none = Card { sampling: Sampling::None, ..card };
    assert_eq!(run(&body("1.5"), &none).warnings, ["dropped:temperature"]);
}

fn hello() -> Value {
    json!([{"role": "user", "content": "hi"}])
}

#[test]
fn p48_p49_a_request_that_fits_stays_as_it_is() {
    let body = with(
        &json!([{"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "from_2031", "x": [1.0]}]}]),
        r#","future_field":{"a":1.0},"temperature":0.5,"tools":[{"type":"web_search_20250305","name":"web_search"}]"#,
    );
    let edited = run(&body, &claude());
    assert!(edited.body.is_none() && edited.warnings.is_empty());
}

#[test]
fn p38_sampling_goes_where_the_model_takes_none() {
    let body = with(&hello(), r#","temperature":0.5,"top_p":0.9,"top_k":4,"x":1.0"#);
    let made = run(&body, &Card { sampling: Sampling::None, ..claude() });
    let sent = value(&made);
    assert!(["temperature", "top_p", "top_k"].iter().all(|name| sent.get(*name).is_none()));
    assert_eq!(made.warnings, ["dropped:temperature", "dropped:top_p", "dropped:top_k"]);
    assert!(made.body.unwrap().ends_with(b"\"x\":1.0}"), "numbers keep their digits");
}

#[test]
fn p39_temperature_and_top_p_are_not_sent_together_where_one_is_refused() {
    let one_of = Card { sampling: Sampling::OneOf, ..claude() };
    let both = value(&run(&with(&hello(), r#","temperature":0.5,"top_p":0.9"#), &one_of));
    assert_eq!((both.get("temperature"), both.get("top_p")), (Some(&json!(0.5)), None));
    let alone = value(&run(&with(&hello(), r#","top_p":0.9"#), &one_of));
    assert_eq!(alone["top_p"], 0.9);
}

#[test]
fn p40_thinking_is_asked_for_in_a_way_the_model_takes() {
    let adaptive = Card {
        thinking_modes: Some(vec![ThinkingMode::Adaptive, ThinkingMode::Disabled]),
        efforts: vec![Level::Low, Level::Medium, Level::High],
        ..claude()
    };
    let body = r#"{"model":"m","max_tokens":40000,"thinking":{"type":"enabled","budget_tokens":20000},"messages":[{"role":"user","content":"hi"}]}"#;
    let sent = value(&run(body, &adaptive));
    assert_eq!(sent["thinking"], json!({"type": "adaptive"}));
    assert_eq!(sent["output_config"], json!({"effort": "high"}));
    let said = r#"{"model":"m","max_tokens":40000,"thinking":{"type":"enabled","budget_tokens":20000,"display":"omitted"},"output_config":{"effort":"low"},"messages":[{"role":"user","content":"hi"}]}"#;
    let sent = value(&run(said, &adaptive));
    assert_eq!(sent["thinking"], json!({"type": "adaptive", "display": "omitted"}));
    assert_eq!(sent["output_config"], json!({"effort": "low"}), "the caller's own effort stays");
}

#[test]
fn an_effort_becomes_a_budget_where_there_are_no_efforts() {
    let card =
        Card { thinking_modes: Some(vec![ThinkingMode::Enabled, ThinkingMode::Disabled]), effort: false, ..claude() };
    let sent = |max_tokens: u64, more: &str| {
        let body = format!(
            r#"{{"model":"m","max_tokens":{max_tokens},"thinking":{{"type":"adaptive"}},"messages":[{{"role":"user","content":"hi"}}]{more}}}"#
        );
        let edited = run_with(&body, &card, 200_000);
        (value(&edited), edited.warnings)
    };
    // The share of the limit that the effort stands for, within 1024 and 128000, and with 1024 left to answer with.
    for (max_tokens, effort, budget) in [
        (64_000, "low", 12_800),
        (64_000, "medium", 32_000),
        (64_000, "high", 51_200),
        (64_000, "xhigh", 60_800),
        (64_000, "max", 60_800),
        (200_000, "high", 128_000),
        (4_000, "low", 1_024),
        (4_000, "xhigh", 2_976),
        (2_048, "max", 1_024),
    ] {
        let (body, warnings) = sent(max_tokens, &format!(r#","output_config":{{"effort":"{effort}"}}"#));
        assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": budget}), "{effort} of {max_tokens}");
        assert_eq!((body.get("output_config"), &*warnings), (None, &["changed:thinking".to_owned()][..]), "{effort}");
    }
    let (body, warnings) = sent(2_047, r#","output_config":{"effort":"low"}"#);
    assert_eq!((body.get("thinking"), body.get("output_config")), (None, None));
    assert_eq!(warnings, ["changed:thinking", "dropped:effort"]);
    assert_eq!(sent(64_000, "").0["thinking"]["budget_tokens"], 32_000);
}

#[test]
fn p41_a_budget_leaves_room_for_an_answer() {
    let fixed = Card { thinking_modes: Some(vec![ThinkingMode::Enabled]), effort: false, ..claude() };
    let body = |limit: u64| {
        format!(
            r#"{{"model":"m","max_tokens":{limit},"thinking":{{"type":"adaptive"}},"output_config":{{"effort":"medium"}},"messages":[{{"role":"user","content":"hi"}}]}}"#
        )
    };
    let thinking = |limit: u64| value(&run(&body(limit), &fixed)).get("thinking").cloned();
    assert_eq!(thinking(10_000), Some(json!({"type": "enabled", "budget_tokens": 5000})));
    assert_eq!(thinking(2_048), Some(json!({"type": "enabled", "budget_tokens": 1024})));
    assert_eq!(thinking(2_047), None);
    assert!(value(&run(&body(9_000), &fixed)).get("output_config").is_none(), "no efforts there");
}

#[test]
fn p36_a_limit_beyond_the_models_is_lowered() {
    let made = run_with(&with(&hello(), ""), &claude(), 1_000);
    assert_eq!(
        (value(&made)["max_tokens"].as_u64(), made.warnings),
        (Some(1_000), vec!["clamped:max_tokens".to_owned()])
    );
}

#[test]
fn p41_a_budget_is_lowered_with_the_limit() {
    let body = r#"{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":16000},"messages":[{"role":"user","content":"hi"}]}"#;
    let made = run_with(body, &claude(), 8_000);
    assert_eq!(value(&made)["thinking"], json!({"type": "enabled", "budget_tokens": 6976}));
    assert_eq!(made.warnings, ["clamped:budget_tokens", "clamped:max_tokens"]);
    // A limit that is set here holds for thinking, too; a budget below it stays.
    let free = |budget: u64| {
        format!(
            r#"{{"model":"m","thinking":{{"type":"enabled","budget_tokens":{budget}}},"messages":[{{"role":"user","content":"hi"}}]}}"#
        )
    };
    let made = run_with(&free(8_000), &claude(), 8_000);
    assert_eq!(value(&made)["thinking"], json!({"type": "enabled", "budget_tokens": 6976}));
    assert_eq!(made.warnings, ["clamped:budget_tokens"]);
    assert!(run_with(&free(7_999), &claude(), 8_000).body.is_none());
    let made = run_with(&free(1_500), &claude(), 1_500);
    assert_eq!((value(&made).get("thinking"), made.warnings), (None, vec!["dropped:thinking".to_owned()]));
    assert!(value(&run_with(body, &claude(), 2_000)).get("thinking").is_none(), "no room at all");
}

#[test]
fn what_stands_in_results_is_cleaned_as_well() {
    let image =
        |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let messages = |blocks: Value| json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": blocks}]}]);
    let sent = value(&run(
        &with(&messages(json!([{"type": "text", "text": " "}, image("data:image/png;base64,QUJD")])), ""),
        &claude(),
    ));
    assert_eq!(sent["messages"], messages(json!([image("QUJD")])));
}

#[test]
fn p57_p58_thinking_goes_back_only_to_who_signed_it() {
    let ours = Carrier::plain("chat", "ep-1", "m").to_signature();
    let wrapped = |scope: &str| {
        Carrier::new("messages", scope, "m", "messages_sig", r#"{"signature":"theirs=="}"#).unwrap().to_signature()
    };
    let block = |signature: &str| json!({"type": "thinking", "thinking": "", "signature": signature});
    let message = |blocks: Vec<Value>| {
        let mut blocks = blocks;
        blocks.push(json!({"type": "text", "text": "yes"}));
        with(
            &json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": blocks}, {"role": "user", "content": "b"}]),
            "",
        )
    };
    let native = message(vec![block("EqQBCgIYAhIM"), json!({"type": "redacted_thinking", "data": "x"})]);
    assert!(run(&native, &claude()).body.is_none(), "also with empty text");
    let foreign = message(vec![block(&ours), block(""), block(&wrapped("ep-2"))]);
    assert_eq!(value(&run(&foreign, &claude()))["messages"][1]["content"], json!([{"type": "text", "text": "yes"}]));
    let own = message(vec![block(&wrapped("ep-1"))]);
    assert_eq!(value(&run(&own, &claude()))["messages"][1]["content"][0], block("theirs=="));
    let sealed = |data: &str| json!({"type": "redacted_thinking", "data": data});
    let both = value(&run(&message(vec![sealed(&wrapped("ep-2")), sealed(&wrapped("ep-1"))]), &claude()));
    assert_eq!(both["messages"][1]["content"], json!([sealed("theirs=="), {"type": "text", "text": "yes"}]));
}

#[test]
fn p59_p60_every_signed_block_keeps_its_own_text_and_signature() {
    let first = r#"{"type":"thinking","thinking":"one \u00e9","signature":"EqQB+/=="}"#;
    let second = r#"{ "signature":"ErUB_-", "thinking":"", "type":"thinking","later":1.0}"#;
    let sealed = r#"{"type":"redacted_thinking","data":"EmwKAhgB"}"#;
    // A blank text is taken out, so the message is written anew around them.
    let body = format!(
        r#"{{"model":"m","max_tokens":4096,"messages":[{{"role":"user","content":"a"}},{{"role":"assistant","content":[{first},{sealed},{{"type":"text","text":" "}},{second},{{"type":"text","text":"b"}}]}},{{"role":"user","content":"c"}}]}}"#
    );
    let made = run(&body, &claude()).body.expect("it was changed");
    let sent = std::str::from_utf8(&made).unwrap();
    assert!(sent.contains(&format!("[{first},{sealed},{second},")), "{sent}");
    assert!(!sent.contains(r#""text":" ""#), "{sent}");
}

#[test]
fn p89_a_tool_loop_that_lost_its_thinking_goes_on_without() {
    let ours = Carrier::plain("chat", "ep-1", "m").to_signature();
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": ours}, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "4"}]},
    ]);
    let made = run(&with(&messages, r#","thinking":{"type":"enabled","budget_tokens":2000}"#), &claude());
    assert_eq!(value(&made)["thinking"], json!({"type": "disabled"}));
    assert_eq!(made.warnings, ["disabled:thinking"]);
    let adaptive = run(&with(&messages, r#","thinking":{"type":"adaptive"}"#), &claude());
    assert_eq!(value(&adaptive)["thinking"], json!({"type": "adaptive"}));
    let tools_only = &value(&adaptive)["messages"][1]["content"];
    assert_eq!(tools_only, &json!([{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]));
}

#[test]
fn p63_calls_go_with_their_thinking_or_the_model_does_not_think() {
    let deepseek = Card { needs_thinking_back: true, ..Card::default() };
    let ours = Carrier::plain("chat", "ep-1", "m").to_signature();
    let thought = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
    let call = json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}});
    let conversation = |said: Value| {
        json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "4"}]},
            {"role": "assistant", "content": [thought("idle", &ours), {"type": "text", "text": "b"}]},
            {"role": "user", "content": "c"},
        ])
    };
    let kept = value(&run(&with(&conversation(json!([thought("t", &ours), call])), ""), &deepseek));
    assert_eq!(kept["messages"][1]["content"], json!([thought("t", ""), call]), "its text is what counts");
    assert_eq!(kept["messages"][3]["content"], json!([{"type": "text", "text": "b"}]), "nothing was called here");
    assert_eq!(kept.get("thinking"), None);
    let own = json!([thought("t", "0f8c-uuid"), call]);
    assert_eq!(value(&run(&with(&conversation(own.clone()), ""), &deepseek))["messages"][1]["content"], own);

    for said in [json!([call]), json!([thought("", &ours), call])] {
        let messages = conversation(said);
        for (asked, warnings) in [
            ("", Vec::<&str>::new()),
            (r#","thinking":{"type":"disabled"}"#, vec![]),
            (r#","thinking":{"type":"adaptive"}"#, vec!["disabled:thinking"]),
            (r#","thinking":{"type":"enabled","budget_tokens":2000}"#, vec!["disabled:thinking"]),
        ] {
            let made = run(&with(&messages, asked), &deepseek);
            assert_eq!(value(&made)["thinking"], json!({"type": "disabled"}), "{asked}");
            assert_eq!(made.warnings, warnings, "{asked}");
        }
    }
    let always = Card { always_thinks: true, ..deepseek.clone() };
    let made = run(&with(&conversation(json!([call])), r#","thinking":{"type":"adaptive"}"#), &always);
    assert_eq!(value(&made)["thinking"], json!({"type": "adaptive"}), "it cannot be kept from it");
    assert!(run(&with(&hello(), ""), &deepseek).body.is_none(), "a request without calls stays as it is");
}

#[test]
fn p02_a_message_without_words_goes_however_it_is_written() {
    let user = |text: &str| json!({"role": "user", "content": text});
    for silent in [json!(""), json!("  "), json!([{"type": "text", "text": ""}])] {
        let said = json!([user("a"), {"role": "assistant", "content": silent}, user("c")]);
        let sent = value(&run(&with(&said, ""), &claude()));
        assert_eq!(sent["messages"], json!([user("a"), user("c")]), "{silent}");
        let foreign = Card { foreign: true, ..claude() };
        let sent = value(&run(&with(&said, ""), &foreign))["messages"].clone();
        assert_eq!(sent.as_array().map(Vec::len), Some(1), "two turns of one role are joined: {sent}");
    }
}

#[test]
fn p02_blank_texts_go_and_their_marker_stays() {
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " \n", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {"role": "user", "content": "b"},
    ]);
    let sent = value(&run(&with(&messages, ""), &claude()));
    let marked = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    assert_eq!(sent["messages"], json!([{"role": "user", "content": [marked]}, {"role": "user", "content": "b"}]));
}

#[test]
fn a_question_that_says_nothing_is_not_left_out_behind_an_answer() {
    for said in [json!(" "), json!([{"type": "text", "text": ""}])] {
        let messages = json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": said},
        ]);
        for card in [claude(), Card { foreign: true, ..Card::default() }] {
            let edited = run(&with(&messages, ""), &card);
            let sent = &value(&edited)["messages"];
            // The model would go on with its own words.
            assert_eq!((&sent[1], &sent[2]), (&messages[1], &json!({"role": "user", "content": "."})));
            assert_eq!(edited.warnings, ["changed:messages"]);
        }
    }
}

#[test]
fn p33_turns_go_on_alternating_where_nobody_joins_them() {
    let foreign = Card { foreign: true, ..Card::default() };
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [text("")]},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]},
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "c"}]},
    ]);
    let sent = value(&run(&with(&messages, ""), &foreign));
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": "c"});
    let wanted = json!([
        {"role": "user", "content": [text("a"), text("b")]},
        messages[3],
        {"role": "user", "content": [result, text("[system note] be brief")]},
    ]);
    assert_eq!(sent["messages"], wanted);
}

#[test]
fn a_model_that_cannot_be_made_to_call_a_tool_may_call_one() {
    let tools = r#","tools":[{"name":"look","input_schema":{"type":"object"}}]"#;
    let body = |choice: &str| with(&hello(), &format!(r#"{tools},"tool_choice":{choice}"#));
    let free = Card { forced_choice: false, ..claude() };
    let serial = r#"{"type":"tool","name":"look","disable_parallel_tool_use":true}"#;
    let edited = run(&body(serial), &free);
    assert_eq!(value(&edited)["tool_choice"], json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(edited.warnings, ["changed:tool_choice"]);
    assert_eq!(value(&run(&body(r#"{"type":"any"}"#), &free))["tool_choice"], json!({"type": "auto"}));
    for choice in [r#"{"type":"auto"}"#, r#"{"type":"none"}"#] {
        assert!(run(&body(choice), &free).body.is_none(), "{choice}");
    }
    assert!(run(&body(serial), &claude()).body.is_none());
}

#[test]
fn base64_is_sent_bare() {
    let image =
        |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
    let messages = |data: &str| json!([{"role": "user", "content": [image(data)]}]);
    for unclean in ["data:image/png;base64,QUJD", "QU\nJD"] {
        let sent = value(&run(&with(&messages(unclean), ""), &claude()));
        assert_eq!(sent["messages"], messages("QUJD"), "{unclean}");
    }
    assert!(run(&with(&messages("QUJD"), ""), &claude()).body.is_none());
}

#[test]
fn p33_p69_p70_servers_that_are_not_anthropics_get_what_they_take() {
    let foreign = Card { foreign: true, cache_ttl: false, ..Card::default() };
    let marker = json!({"type": "ephemeral", "ttl": "1h"});
    let bare = json!({"type": "ephemeral"});
    let body = json!({
        "model": "m", "max_tokens": 9,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "s", "cache_control": marker}],
        "tools": [{"name": "f", "input_schema": {"properties": {"cache_control": {"ttl": 1}}}, "cache_control": marker}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": marker}]},
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"cache_control": {"ttl": "1h"}}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "4"}]},
        ],
    });
    let sent = value(&run(&body.to_string(), &foreign));
    assert_eq!(sent["system"], json!([{"type": "text", "text": "s", "cache_control": bare}]));
    assert_eq!(sent["tools"][0]["cache_control"], bare);
    assert_eq!(sent["tools"][0]["input_schema"], body["tools"][0]["input_schema"], "a schema is not touched");
    let first = json!([{"type": "text", "text": "a", "cache_control": bare}, {"type": "text", "text": "[system note] be brief"}]);
    assert_eq!(sent["messages"][0]["content"], first);
    assert_eq!(sent["messages"][1], body["messages"][2], "an input is not touched");
    assert!(
        run(&body.to_string(), &Card { mid_system: true, ..Card::default() }).body.is_none(),
        "Anthropic takes it all"
    );
}

#[test]
fn a_marker_for_all_goes_to_the_last_block_that_can_carry_one() {
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    let marked = |block: Value| {
        let mut block = block;
        block["cache_control"] = hour.clone();
        block
    };
    let (text, call) =
        (json!({"type": "text", "text": "hi"}), json!({"type": "tool_use", "id": "a", "name": "b", "input": {}}));
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let user = |content: Value| json!({"role": "user", "content": content});
    let model = |content: Value| json!({"role": "assistant", "content": content});
    let table = [
        (json!([user(json!("hi"))]), json!([user(json!([marked(text.clone())]))])),
        (json!([user(json!([text, text]))]), json!([user(json!([text, marked(text.clone())]))])),
        (
            json!([user(json!("hi")), model(json!([thought, call, thought]))]),
            json!([user(json!("hi")), model(json!([thought, marked(call), thought]))]),
        ),
        (
            json!([user(json!([text])), model(json!([thought]))]),
            json!([user(json!([marked(text)])), model(json!([thought]))]),
        ),
    ];
    for (given, wanted) in table {
        let body = with(&given, &format!(r#","cache_control":{hour}"#));
        let sent = value(&run_marking(&body, &claude()));
        assert_eq!(sent["messages"], wanted);
        assert!(sent.get("cache_control").is_none());
    }
    let own = json!([user(json!([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]))]);
    let sent = value(&run_marking(&with(&own, &format!(r#","cache_control":{hour}"#)), &claude()));
    assert_eq!(sent["messages"], own, "a marker that stands there stays");
    assert!(run_marking(&with(&hello(), ""), &claude()).body.is_none(), "a request without one stays as it is");
    assert!(run(&with(&hello(), &format!(r#","cache_control":{hour}"#)), &claude()).body.is_none());
}
