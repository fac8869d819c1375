//! Answers that come in pieces.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_wire::sse::Splitter;

use super::super::{Decoder, message};
use super::{NOW, answered, context};
use crate::fault::{Class, Fault};
use crate::translate::{Context, Decode as _, Stream, Translator};

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

/// MiniMax ends a stream with a whole answer, which alone says what was used.
#[test]
fn an_answer_that_is_told_once_more_as_a_whole_is_told_once() {
    let call = json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}]);
    let whole = |message: Value, word: &str| {
        let choice = json!({"index": 0, "finish_reason": word, "message": message});
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 4});
        let frame = json!({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage});
        format!("data: {frame}\n\ndata: [DONE]\n\n")
    };
    let piece = |delta: Value| chunk(delta, Value::Null);
    let cases = [
        (
            vec![piece(json!({"content": "Hello "})), piece(json!({"content": "world"}))],
            whole(json!({"role": "assistant", "content": "Hello world"}), "stop"),
            vec!["text: Hello world", "end_turn"],
        ),
        (
            vec![
                piece(json!({"reasoning_content": "hm"})),
                piece(json!({"content": "See."})),
                piece(json!({"tool_calls": call})),
            ],
            whole(json!({"content": "See.", "reasoning_content": "hm", "tool_calls": call}), "tool_calls"),
            vec!["thinking: hm", "text: See.", "tool_use t: {}", "tool_use"],
        ),
        // What the pieces did not come to is told by it.
        (
            vec![piece(json!({"role": "assistant", "content": "", "reasoning_content": "hm"}))],
            whole(json!({"content": "Six.", "reasoning_content": "hm"}), "stop"),
            vec!["thinking: hm", "text: Six.", "end_turn"],
        ),
        (
            vec![piece(json!({"role": "assistant", "content": ""}))],
            whole(json!({"content": "Six."}), "stop"),
            vec!["text: Six.", "end_turn"],
        ),
    ];
    for (pieces, last, wanted) in cases {
        let events = streamed(&(pieces.concat() + &last), usize::MAX).unwrap();
        assert_eq!(story(&events), wanted);
        let ending = events.iter().find(|(name, _)| name == "message_delta").unwrap();
        assert_eq!(ending.1["usage"]["output_tokens"], 4);
    }
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
fn what_was_counted_all_along_is_known_when_a_stream_is_cut() {
    let with = |text: &str, output: u64| {
        let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": null});
        let usage = json!({"prompt_tokens": 9, "completion_tokens": output});
        Bytes::from(format!("data: {}\n\n", json!({"choices": [choice], "usage": usage})))
    };
    let mut cut = translator();
    for (text, output) in [("", 0), ("one ", 7), ("two", 12)] {
        cut.feed(with(text, output));
    }
    assert_eq!((cut.said(), cut.told()), (7, (12, 0)), "the last count, not the sum");
    cut.feed(Bytes::from(chunk(json!({"content": " three"}), Value::Null)));
    assert_eq!(cut.told(), (12, 6), "what nobody has counted yet");
    let mut silent = translator();
    silent.feed(with("", 1));
    assert_eq!(silent.told(), (0, 0));
    let mut uncounted = translator();
    uncounted.feed(Bytes::from(chunk(json!({"content": "x"}), Value::Null)));
    assert_eq!(uncounted.told(), (0, 1));
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
