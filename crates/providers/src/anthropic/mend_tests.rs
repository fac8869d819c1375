use bytes::Bytes;

use super::{Signer, mended as mended_whole};
use crate::adapter;
use crate::fault::Class;
use crate::translate::carrier::Carrier;

const START: &str = r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn signer() -> Signer {
    Signer { scope: "ep-1".to_owned(), model: "glm".to_owned() }
}

/// What comes out of these events, each in one line; and what broke.
fn mended(events: &[&str]) -> (Vec<String>, Option<Class>) {
    let mut translator = adapter::mending_translator(signer(), 1 << 16);
    let mut out = Vec::new();
    for event in events {
        out.extend_from_slice(&translator.feed(Bytes::from(format!("data: {event}\n\n"))));
    }
    out.extend_from_slice(&translator.end());
    let text = String::from_utf8(out).unwrap();
    let data = text.split("\n\n").filter(|frame| !frame.is_empty()).map(|frame| {
        let (event, data) = frame.split_once("\ndata: ").unwrap();
        let kind: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(event, format!("event: {}", kind["type"].as_str().unwrap()));
        data.to_owned()
    });
    (data.collect(), translator.fault().map(|fault| fault.class))
}

fn start(index: u64, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: u64, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn said(index: u64, text: &str) -> String {
    delta(index, &format!(r#"{{"type":"text_delta","text":"{text}"}}"#))
}

fn input(index: u64, json: &str) -> String {
    delta(index, &format!(r#"{{"type":"input_json_delta","partial_json":"{json}"}}"#))
}

fn stop(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn ended(reason: &str) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":3}}}}"#
    )
}

const TEXT: &str = r#"{"type":"text","text":""}"#;
const CALL: &str = r#"{"type":"tool_use","id":"t","name":"f","input":{},"x_own":1.0}"#;

fn check(given: &[String], wanted: &[String]) {
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    assert_eq!(mended(&given), (wanted.to_vec(), None));
}

#[test]
fn what_keeps_the_rules_goes_on_as_it_came() {
    let unknown = r#"{"type":"new_event", "n":1.50}"#.to_owned();
    let all = [
        START.to_owned(),
        r#"{"type":"ping"}"#.to_owned(),
        start(0, TEXT),
        said(0, "a"),
        stop(0),
        unknown,
        start(1, r#"{"type":"new_block","z":[1]}"#),
        delta(1, r#"{"type":"new_delta","q":2}"#),
        stop(1),
        start(2, CALL),
        input(2, r#"{\"a\":1}"#),
        stop(2),
        ended("tool_use"),
        STOP.to_owned(),
    ];
    check(&all, &all);
}

#[test]
fn p02_a_block_that_says_nothing_is_none() {
    check(
        &[
            START.into(),
            start(0, TEXT),
            said(0, ""),
            stop(0),
            start(1, TEXT),
            said(1, "a"),
            stop(1),
            ended("end_turn"),
            STOP.into(),
        ],
        &[START.into(), start(0, TEXT), said(0, "a"), stop(0), ended("end_turn"), STOP.into()],
    );
}

#[test]
fn p03_a_call_is_why_a_turn_ended() {
    check(
        &[START.into(), start(0, CALL), input(0, "{}"), stop(0), ended("end_turn"), STOP.into()],
        &[START.into(), start(0, CALL), input(0, "{}"), stop(0), ended("tool_use"), STOP.into()],
    );
}

#[test]
fn p05_text_on_an_open_call_is_a_block_of_its_own() {
    let text = start(1, r#"{"type":"text","text":"","citations":null}"#);
    check(
        &[START.into(), start(0, CALL), input(0, "{}"), said(0, "a"), stop(0), ended("tool_use"), STOP.into()],
        &[
            START.into(),
            start(0, CALL),
            input(0, "{}"),
            stop(0),
            text,
            said(1, "a"),
            stop(1),
            ended("tool_use"),
            STOP.into(),
        ],
    );
}

#[test]
fn p06_blocks_are_numbered_without_gaps_and_end_before_the_next() {
    check(
        &[START.into(), start(2, TEXT), said(2, "a"), start(5, CALL), input(5, "{}"), ended("tool_use"), STOP.into()],
        &[
            START.into(),
            start(0, TEXT),
            said(0, "a"),
            stop(0),
            start(1, CALL),
            input(1, "{}"),
            stop(1),
            ended("tool_use"),
            STOP.into(),
        ],
    );
}

#[test]
fn p14_a_call_without_pieces_has_the_input_that_it_began_with() {
    let whole = r#"{"type":"tool_use","id":"u","name":"f","input":{"port":"Brest"}}"#;
    let bare = r#"{"type":"tool_use","id":"u","name":"f","input":{}}"#;
    check(
        &[START.into(), start(0, CALL), stop(0), start(1, whole), stop(1), ended("tool_use"), STOP.into()],
        &[
            START.into(),
            start(0, CALL),
            input(0, "{}"),
            stop(0),
            start(1, bare),
            input(1, r#"{\"port\":\"Brest\"}"#),
            stop(1),
            ended("tool_use"),
            STOP.into(),
        ],
    );
}

#[test]
fn a_call_with_nothing_is_called_with_an_empty_object() {
    let call = |input: &str| format!(r#"{{"type":"tool_use","id":"t","name":"f","input":{input}}}"#);
    for nothing in ["null", r#""""#] {
        check(
            &[START.into(), start(0, &call(nothing)), stop(0), ended("tool_use"), STOP.into()],
            &[START.into(), start(0, &call("{}")), input(0, "{}"), stop(0), ended("tool_use"), STOP.into()],
        );
        let answer = |input: &str| format!(r#"{{"content":[{}],"stop_reason":"tool_use"}}"#, call(input));
        let made = mended_whole(answer(nothing).as_bytes(), &signer()).unwrap();
        assert_eq!(std::str::from_utf8(&made).unwrap(), answer("{}"));
    }
}

#[test]
fn the_last_line_of_another_format_is_not_told() {
    check(
        &[START.into(), start(0, TEXT), said(0, "a"), ended("end_turn"), "[DONE]".into()],
        &[START.into(), start(0, TEXT), said(0, "a"), stop(0), ended("end_turn"), STOP.into()],
    );
}

#[test]
fn p85_an_event_without_data_says_nothing() {
    let mut translator = adapter::mending_translator(signer(), 1 << 16);
    let events = [START, &start(0, TEXT), &said(0, "a"), &stop(0), &ended("end_turn"), STOP].map(str::to_owned);
    let events = events.map(|event| format!("data: {event}\n\n"));
    let told = |translator: &mut crate::translate::Translator, text: String| {
        String::from_utf8(translator.feed(Bytes::from(text)).to_vec()).unwrap()
    };
    let plain = told(&mut adapter::mending_translator(signer(), 1 << 16), events.concat());
    let silent = events.map(|event| format!("event: ping\ndata:\n\n{event}data: \n\n"));
    assert_eq!(told(&mut translator, silent.concat()), plain);
    assert!(translator.fault().is_none());
}

#[test]
fn an_answer_that_begins_with_its_content_begins_all_the_same() {
    let (told, fault) = mended(&[&start(0, TEXT), &said(0, "a"), &stop(0), START, &ended("end_turn"), STOP]);
    assert!(told[0].starts_with(r#"{"type":"message_start""#), "{told:?}");
    assert_eq!(
        (&told[1..], fault),
        (&[start(0, TEXT), said(0, "a"), stop(0), ended("end_turn"), STOP.to_owned()][..], None)
    );
}

#[test]
fn counts_on_the_way_end_nothing() {
    let counts = r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":1}}"#;
    check(
        &[START.into(), start(0, CALL), counts.into(), input(0, "{}"), stop(0), ended("tool_use"), STOP.into()],
        &[START.into(), start(0, CALL), input(0, "{}"), stop(0), ended("tool_use"), STOP.into()],
    );
    check(
        &[START.into(), start(0, TEXT), said(0, "a"), stop(0), counts.into(), STOP.into()],
        &[START.into(), start(0, TEXT), said(0, "a"), stop(0), counts.into(), STOP.into()],
    );
    // Behind the end they are its last word, however the stream closes.
    let behind = [START.into(), start(0, TEXT), said(0, "a"), stop(0), ended("end_turn"), counts.into(), STOP.into()];
    let end = ended("end_turn").replace(r#""output_tokens":3"#, r#""output_tokens":1"#);
    let once = [START.into(), start(0, TEXT), said(0, "a"), stop(0), end, STOP.into()];
    check(&behind, &once);
    for close in [&["[DONE]".to_owned()][..], &[]] {
        check(&[&behind[..6], close].concat(), &once);
    }
    // A second end is none, and what it leaves out stays counted.
    let again = r#"{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"input_tokens":9,"output_tokens":null}}"#;
    let twice = [START.into(), start(0, TEXT), said(0, "a"), stop(0), ended("end_turn"), again.into(), STOP.into()];
    let end = ended("end_turn").replace(r#"{"output_tokens":3}"#, r#"{"input_tokens":9,"output_tokens":3}"#);
    check(&twice, &[START.into(), start(0, TEXT), said(0, "a"), stop(0), end, STOP.into()]);
    // Before it they are told with it, as far as it says nothing of its own.
    let bare = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let whole = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#;
    let before =
        |end: &str| [START.to_owned(), start(0, TEXT), said(0, "a"), stop(0), counts.into(), end.into(), STOP.into()];
    let told = |end: &str| [START.to_owned(), start(0, TEXT), said(0, "a"), stop(0), end.into(), STOP.into()];
    check(&before(bare), &told(whole));
    check(&before(&whole.replace(r#"{"output_tokens":1}"#, "null")), &told(whole));
    let other = whole.replace(r#"{"output_tokens":1}"#, r#"{"input_tokens":5,"output_tokens":null}"#);
    check(&before(&other), &told(&other.replace("null", "1")));
    let remote = r#"{"type":"mcp_tool_use","id":"t","name":"f","server_name":"s","input":{}}"#;
    let all = [START.into(), start(0, remote), input(0, "{}"), stop(0), ended("end_turn"), STOP.into()];
    check(&all, &all);
}

#[test]
fn an_answer_that_came_whole_keeps_them_too() {
    let answer = |content: &str, reason: &str| {
        format!(r#"{{"id":"m","type":"message","x_own":1.0,"content":[{content}],"stop_reason":"{reason}"}}"#)
    };
    let text = r#"{"type":"text","text":"a"}"#;
    for (given, reason, wanted) in [
        (text.to_owned(), "end_turn", None),
        (TEXT.to_owned(), "end_turn", None),
        (format!("{TEXT},{text}"), "end_turn", Some((text.to_owned(), "end_turn"))),
        (format!("{text},{CALL}"), "tool_use", None),
        (format!("{text},{CALL}"), "max_tokens", None),
        (format!("{TEXT},{CALL}"), "end_turn", Some((CALL.to_owned(), "tool_use"))),
    ] {
        let made = mended_whole(answer(&given, reason).as_bytes(), &signer());
        let made = made.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        assert_eq!(made, wanted.map(|(content, reason)| answer(&content, reason)), "{given}");
    }
}

#[test]
fn a_signature_says_whose_it_is() {
    let thinking = r#"{"type":"thinking","thinking":"","signature":""}"#;
    let early = r#"{"type":"thinking","thinking":"hm","signature":"si"}"#;
    let bare = r#"{"type":"thinking","thinking":"hm","signature":""}"#;
    let thought = |index| delta(index, r#"{"type":"thinking_delta","thinking":"hm"}"#);
    let signature = |index, text: &str| delta(index, &format!(r#"{{"type":"signature_delta","signature":"{text}"}}"#));
    let data = r#"{"signature":"sig"}"#;
    let wrapped = Carrier::new("messages", "ep-1", "glm", "messages_sig", data).unwrap().to_signature();
    check(
        &[
            START.into(),
            start(0, thinking),
            thought(0),
            signature(0, "s"),
            signature(0, "ig"),
            stop(0),
            start(1, early),
            signature(1, "g"),
            stop(1),
            start(2, r#"{"type":"redacted_thinking","data":"sig"}"#),
            stop(2),
            ended("end_turn"),
            STOP.into(),
        ],
        &[
            START.into(),
            start(0, thinking),
            thought(0),
            signature(0, &wrapped),
            stop(0),
            start(1, bare),
            signature(1, &wrapped),
            stop(1),
            start(2, &format!(r#"{{"type":"redacted_thinking","data":"{wrapped}"}}"#)),
            stop(2),
            ended("end_turn"),
            STOP.into(),
        ],
    );
    let answer = |signature: &str| {
        format!(
            r#"{{"type":"message","content":[{{"type":"thinking","thinking":"hm","signature":"{signature}"}}],"stop_reason":"end_turn"}}"#
        )
    };
    let made = mended_whole(answer("sig").as_bytes(), &signer()).unwrap();
    assert_eq!(std::str::from_utf8(&made).unwrap(), answer(&wrapped));
    let redacted = |data: &str| {
        format!(
            r#"{{"type":"message","content":[{{"type":"redacted_thinking","data":"{data}"}}],"stop_reason":"end_turn"}}"#
        )
    };
    let made = mended_whole(redacted("sig").as_bytes(), &signer()).unwrap();
    assert_eq!(std::str::from_utf8(&made).unwrap(), redacted(&wrapped));
}

#[test]
fn a_thought_that_nobody_signed_has_a_signature_that_holds_none() {
    let sealed = Carrier::plain("messages", "ep-1", "glm").to_signature();
    let bare = r#"{"type":"thinking","thinking":"","signature":""}"#;
    let thought = |index| delta(index, r#"{"type":"thinking_delta","thinking":"hm"}"#);
    let signature = |index| delta(index, &format!(r#"{{"type":"signature_delta","signature":"{sealed}"}}"#));
    for given in [r#"{"type":"thinking","thinking":""}"#, r#"{"type":"thinking","thinking":"","signature":null}"#, bare]
    {
        check(
            &[START.into(), start(0, given), thought(0), stop(0), ended("end_turn"), STOP.into()],
            &[START.into(), start(0, bare), thought(0), signature(0), stop(0), ended("end_turn"), STOP.into()],
        );
    }
    let answer = |signature: &str| {
        format!(
            r#"{{"type":"message","content":[{{"type":"thinking","thinking":"hm"{signature}}}],"stop_reason":"end_turn"}}"#
        )
    };
    for given in ["", r#","signature":null"#, r#","signature":"""#] {
        let made = mended_whole(answer(given).as_bytes(), &signer()).unwrap();
        assert_eq!(std::str::from_utf8(&made).unwrap(), answer(&format!(r#","signature":"{sealed}""#)), "{given}");
    }
}

#[test]
fn what_cannot_be_mended_is_a_fault() {
    let cut = mended(&[START, &start(0, TEXT), &said(0, "a")]);
    assert_eq!(cut.1, Some(Class::Unreachable));
    assert_eq!(mended(&[START, "{"]).1, Some(Class::BadResponse));
    assert_eq!(mended(&[START, &input(3, "{}")]).1, Some(Class::BadResponse));
}

#[test]
fn an_error_without_a_name_is_one() {
    let error = r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let named = r#"{"error":{"type":"rate_limit_error","message":"slow down"},"type":"error"}"#;
    check(&[START.into(), error.into()], &[START.into(), named.into()]);
}

#[test]
fn e6_inputs_that_come_in_turns_are_told_one_after_the_other() {
    let other = CALL.replace(r#""id":"t""#, r#""id":"u""#);
    let (a, b) = (r#"{\"a\":"#, r#"{\"b\":"#);
    let one = [start(0, CALL), input(0, a), input(0, "1}"), stop(0)];
    let two = [start(1, &other), input(1, b), input(1, "2}"), stop(1)];
    let told = [&[START.to_owned()][..], &one, &two, &[ended("tool_use"), STOP.to_owned()]].concat();
    for stops in [true, false] {
        let mut given = vec![START.to_owned(), start(0, CALL), start(1, &other)];
        given.extend([input(0, a), input(1, b), input(0, "1}"), input(1, "2}")]);
        if stops {
            given.extend([stop(0), stop(1)]);
        }
        given.extend([ended("tool_use"), STOP.to_owned()]);
        check(&given, &told);
    }
}

fn call(id: usize) -> String {
    CALL.replace(r#""id":"t""#, &format!(r#""id":"t{id}""#))
}

#[test]
fn e6_no_input_overtakes_the_beginning_of_its_call() {
    let whole = |index| [start(index, &call(index as usize)), input(index, r#"{\"a\":1}"#), stop(index)];
    let told =
        [&[START.to_owned()][..], &whole(0), &whole(1), &whole(2), &[ended("tool_use"), STOP.to_owned()]].concat();
    let of = |index: u64, part: usize| whole(index)[part].clone();
    for order in [[1, 2, 0], [2, 1, 0], [0, 2, 1], [2, 0, 1]] {
        let starts = [of(0, 0), of(1, 0), of(2, 0)];
        let inputs = order.map(|index| of(index, 1));
        let stops = order.map(|index| of(index, 2));
        for stops in [&stops[..], &[]] {
            let end = [ended("tool_use"), STOP.to_owned()];
            check(&[&[START.to_owned()][..], &starts, &inputs, stops, &end].concat(), &told);
        }
    }
}

#[test]
fn pieces_that_say_nothing_are_no_input() {
    let told =
        |json: &str| [START.to_owned(), start(0, CALL), input(0, json), stop(0), ended("tool_use"), STOP.to_owned()];
    for (pieces, wanted) in [
        (&["null"][..], "{}"),
        (&["nu", "ll"], "{}"),
        (&[" "], "{}"),
        (&[" ", "\\n"], "{}"),
        (&["{}"], "{}"),
        (&["{}", "{}"], "{}"),
        (&["{}", r#"{\"a\":1}"#], r#"{\"a\":1}"#),
        (&["{}", " ", r#"{\"a\":1}"#], r#" {\"a\":1}"#),
        (&[r#"{}{\"a\":1}"#], r#"{\"a\":1}"#),
    ] {
        let pieces: Vec<String> = pieces.iter().map(|piece| input(0, piece)).collect();
        for stops in [&[stop(0)][..], &[]] {
            let given =
                [&[START.to_owned(), start(0, CALL)][..], &pieces, stops, &[ended("tool_use"), STOP.to_owned()]];
            check(&given.concat(), &told(wanted));
        }
    }
    let (_, fault) = mended(&[START, &start(0, CALL), &input(0, "nu"), &input(0, "mb"), &stop(0), &ended("tool_use")]);
    assert_eq!(fault, Some(Class::BadResponse));
    // What stands before every input may come in turns, too.
    let one = [start(0, &call(0)), input(0, r#"{\"a\":0}"#), stop(0)];
    let two = [start(1, &call(1)), input(1, r#"{\"a\":1}"#), stop(1)];
    let mut given = vec![START.to_owned(), one[0].clone(), two[0].clone(), input(0, "{}"), input(1, "{}")];
    given.extend([&one[1], &two[1], &one[2], &two[2], &ended("tool_use"), &STOP.to_owned()].map(Clone::clone));
    check(&given, &[&[START.to_owned()][..], &one, &two, &[ended("tool_use"), STOP.to_owned()]].concat());
}

/// What comes out before the end.
fn told_at_once(events: impl IntoIterator<Item = String>) -> String {
    let mut translator = adapter::mending_translator(signer(), 1 << 20);
    let told = events.into_iter().map(|event| translator.feed(Bytes::from(format!("data: {event}\n\n"))));
    let told = told.collect::<Vec<_>>().concat();
    assert!(translator.fault().is_none());
    String::from_utf8(told).unwrap()
}

#[test]
fn words_do_not_wait_for_a_call_without_arguments() {
    for pieces in [&[][..], &[input(0, "{}")], &[input(0, "null")]] {
        let begun =
            [&[START.to_owned(), start(0, &call(0))][..], pieces, &[start(1, &call(1)), start(2, TEXT)]].concat();
        let told = told_at_once(begun.into_iter().chain([said(2, "high"), said(2, "water")]));
        assert!(told.contains(&said(2, "high")) && told.ends_with(&format!("{}\n\n", said(2, "water"))), "{told}");
        assert_eq!(told.matches(r#""partial_json":"{}""#).count(), 2, "{told}");
    }
}

#[test]
fn what_waits_is_bounded() {
    let half = [START.to_owned(), start(0, &call(0)), input(0, r#"{\"a\":"#), start(1, TEXT)];
    let word = "w".repeat(64 << 10);
    let held = told_at_once(half.iter().cloned().chain(vec![said(1, &word); 60]));
    assert!(!held.contains("www"));
    let told = told_at_once(half.into_iter().chain(vec![said(1, &word); 70]));
    assert_eq!(told.matches("content_block_stop\ndata").count(), 1);
    assert_eq!(told.matches(&word).count(), 70);
}

#[test]
fn any_number_of_calls_may_wait() {
    const MANY: usize = 20_000;
    let begun = (0..MANY).map(|index| start(index as u64, &call(index)));
    let events = [START.to_owned()].into_iter().chain(begun).chain([ended("tool_use"), STOP.to_owned()]);
    let told = told_at_once(events);
    for event in ["start", "delta", "stop"] {
        assert_eq!(told.matches(&format!("event: content_block_{event}\n")).count(), MANY);
    }
}

#[test]
fn p43_ids_of_calls_get_a_form_that_others_take() {
    let call = CALL.replace(r#""id":"t""#, r#""id":"functions.f:0""#);
    let (told, fault) = mended(&[START, &start(0, &call), &input(0, "{}"), &stop(0), &ended("tool_use"), STOP]);
    let id_of = |text: &str| {
        let block: serde_json::Value = serde_json::from_str(text).unwrap();
        let block = if block["content_block"].is_object() { &block["content_block"] } else { &block["content"][0] };
        assert_eq!((&block["name"], &block["x_own"]), (&"f".into(), &1.0.into()));
        block["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(fault, None);
    let id = id_of(&told[1]);
    assert!(id.starts_with("toolu_") && id.len() == 28, "{id}");
    let answer = format!(r#"{{"content":[{call}],"stop_reason":"tool_use"}}"#);
    let whole = mended_whole(answer.as_bytes(), &signer()).unwrap();
    assert!(id_of(std::str::from_utf8(&whole).unwrap()).starts_with("toolu_"));
}

#[test]
fn e7_half_an_input_is_no_call_unless_the_answer_was_cut_short() {
    let half = |reason: &str| [START.to_owned(), start(0, CALL), input(0, r#"{\"a\":"#), stop(0), ended(reason)];
    for reason in ["tool_use", "end_turn"] {
        let given = half(reason);
        let (told, fault) = mended(&given.each_ref().map(String::as_str));
        assert_eq!((told.len(), fault), (4, Some(Class::BadResponse)), "{reason}");
    }
    let cut = [&half("max_tokens")[..], &[STOP.to_owned()]].concat();
    check(&cut, &cut);
}
