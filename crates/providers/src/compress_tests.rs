use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_wire::messages::{Content, Request};

use super::*;
use crate::translate::Card;

fn request(messages: &[Value]) -> Request {
    let body = json!({"model": "m", "system": "You know the tides.", "max_tokens": 10, "messages": messages});
    Request::parse(body.to_string().as_bytes()).unwrap()
}

fn says(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn call(id: &str) -> Value {
    json!({"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": id, "name": "look", "input": {}},
    ]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]})
}

fn squeezed(messages: &[Value], budget: u64) -> Option<Compressed> {
    middle_out(&request(messages), &Card::default(), budget, None)
}

fn total(request: &Request) -> u64 {
    tokens(request, &Card::default())
}

fn written(made: &Compressed) -> Vec<String> {
    made.request.messages.iter().map(|message| serde_json::to_string(&message.content).unwrap()).collect()
}

#[test]
fn what_fits_is_left_alone() {
    assert_eq!(squeezed(&[says("user", "hi"), says("assistant", "ho"), says("user", "well?")], 1_000), None);
}

#[test]
fn the_middle_goes_first_and_the_ends_stay() {
    let long = "tide ".repeat(100);
    let names = ["first", "a", "b", "c", "d", "e", "last"];
    let messages: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(place, name)| says(if place % 2 == 0 { "user" } else { "assistant" }, &format!("{name} {long}")))
        .collect();
    let whole = total(&request(&messages));
    // Each of them weighs the same; one too many, then three. An answer goes with its question.
    let one = whole / 7;
    let made = squeezed(&messages, whole - 1).unwrap();
    let kept = |made: &Compressed| {
        let words = written(made);
        names.into_iter().filter(|name| words.iter().any(|word| word.starts_with(&format!("\"{name} ")))).collect()
    };
    let left: Vec<&str> = kept(&made);
    assert_eq!(left, ["first", "a", "d", "e", "last"]);
    assert_eq!((made.original, made.compressed.0), ((7, whole), 5));
    let left: Vec<&str> = kept(&squeezed(&messages, whole - 2 * one - 2).unwrap());
    assert_eq!(left, ["first", "a", "last"]);
}

#[test]
fn a_call_goes_with_its_result() {
    let long = "tide ".repeat(200);
    let messages = [
        says("user", "first"),
        says("assistant", "well"),
        call("t1"),
        result("t1", &long),
        says("assistant", "so"),
        says("user", "and?"),
        call("t2"),
        result("t2", "six"),
    ];
    let made = squeezed(&messages, 200).unwrap();
    let text = written(&made).join(" ");
    assert!(!text.contains("t1") && text.matches("t2").count() == 2, "{text}");
    assert!(text.contains("hm"), "the thinking of the last turn stays: {text}");
}

#[test]
fn long_texts_lose_their_middle_and_say_so() {
    let first = format!("Keep this. {} and this", "tide ".repeat(3_000));
    let made = squeezed(&[says("user", &first), says("assistant", "so"), says("user", "last words")], 1_000).unwrap();
    let text = written(&made);
    assert!(made.compressed.1 <= 1_000, "{:?}", made.compressed);
    assert!(text[0].starts_with("\"Keep this. tide") && text[0].ends_with("and this\""), "{}", text[0]);
    let marker = text[0].split("[… ").nth(1).and_then(|rest| rest.split_once(" tokens removed …]")).unwrap();
    assert!(marker.0.parse::<u64>().unwrap() > 2_000, "{}", text[0]);
    assert_eq!(text.last().unwrap(), "\"last words\"");
}

#[test]
fn the_first_words_stay_whatever_the_budget_is() {
    let words: String = (0..2_000).map(|number| format!("w{number} ")).collect();
    let made = squeezed(&[says("user", &words), says("user", "last")], 10).unwrap();
    let Content::Text(text) = &made.request.messages[0].content else { panic!("a text") };
    let head = text.split("[…").next().unwrap();
    let card = Card::default();
    assert!(words.starts_with(head));
    assert!(Meter::of(&made.request, &card).text(head) >= FIRST_WORDS);
    // The last message is never touched, even when it alone is too long.
    assert_eq!(squeezed(&[says("user", &words)], 10), None);
}

#[test]
fn too_many_messages_lose_those_in_the_middle() {
    let messages: Vec<Value> =
        (0..10).map(|place| says(if place % 2 == 0 { "user" } else { "assistant" }, &format!("m{place}"))).collect();
    let made = middle_out(&request(&messages), &Card::default(), 10_000, Some(6)).unwrap();
    assert_eq!(written(&made), ["\"m0\"", "\"m1\"", "\"m2\"", "\"m7\"", "\"m8\"", "\"m9\""]);
}

/// A conversation: plain turns and calls with their results, in any order and of any length.
fn conversations() -> impl Strategy<Value = Vec<Value>> {
    let turn = (0_u8..3, 1_usize..400);
    vec(turn, 1..24).prop_map(|turns| {
        let mut messages = vec![says("user", "How are the tides?")];
        for (place, (kind, length)) in turns.into_iter().enumerate() {
            let text = format!("m{place} {}", "tide é ".repeat(length));
            let id = format!("t{place}");
            match kind {
                0 => messages.push(says("user", &text)),
                1 => messages.push(says("assistant", &text)),
                _ => messages.extend([call(&id), result(&id, &text)]),
            }
        }
        messages
    })
}

fn ids(request: &Request, of_results: bool) -> Vec<String> {
    let blocks = request.messages.iter().filter_map(|message| match &message.content {
        Content::Blocks(blocks) => Some(blocks),
        Content::Text(_) => None,
    });
    let mut ids: Vec<String> = blocks
        .flatten()
        .filter_map(|block| match block {
            Block::ToolUse(call) if !of_results => Some(call.id.clone()),
            Block::ToolResult(result) if of_results => Some(result.tool_use_id.clone()),
            _ => None,
        })
        .collect();
    ids.sort();
    ids
}

proptest! {
    #[test]
    fn pairs_stay_the_ends_are_untouched_and_the_budget_is_met_where_it_can_be(
        messages in conversations(),
        budget in 40_u64..4_000,
    ) {
        let original = request(&messages);
        let made = middle_out(&original, &Card::default(), budget, None);
        let after = made.as_ref().map_or(&original, |made| &made.request);
        prop_assert_eq!(ids(after, false), ids(after, true));
        prop_assert_eq!(&after.system, &original.system);
        let last = original.messages.iter().rposition(|message| message.role == Role::User).unwrap();
        prop_assert!(after.messages.ends_with(&original.messages[last..]));
        prop_assert_eq!(&after.messages[0], &original.messages[0], "it is shorter than what must stay");
        prop_assert!(total(after) <= total(&original));
        if let Some(made) = &made {
            prop_assert_eq!(made.compressed, (after.messages.len(), total(after)));
        }
        if total(after) > budget {
            // Nothing is left that could go: the ends, and calls that belong to them.
            let ends: Vec<&Message> = original.messages.iter().collect();
            let bounds = Bounds::of(&original.messages);
            let droppable: usize = bounds.droppable(&original.messages).iter().map(Range::len).sum();
            prop_assert_eq!(after.messages.len(), ends.len() - droppable);
        }
    }
}

#[test]
fn what_a_summary_stands_for_needs_no_room() {
    let mut messages: Vec<Value> = Vec::new();
    for number in 0..20 {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({"role": role, "content": "old ".repeat(500)}));
    }
    messages.push(json!({"role": "user", "content": "go on"}));
    messages.push(json!({"role": "assistant", "content": [{"type": "compaction", "content": "The summary."}]}));
    for number in 0..6 {
        let role = if number % 2 == 0 { "user" } else { "assistant" };
        messages.push(json!({"role": role, "content": format!("new {number}")}));
    }
    let body = json!({"model": "m", "messages": messages});
    let request = Request::parse(body.to_string().as_bytes()).unwrap();
    let card = Card::default();
    assert!(tokens(&request, &card) < 200);
    assert!(middle_out(&request, &card, 200, None).is_none(), "it fits from its summary on");
    let made = middle_out(&request, &card, 1, Some(4)).expect("there are seven").request;
    let told = serde_json::to_string(&made.messages).unwrap();
    assert!(told.contains("The summary.") && !told.contains("old "), "{told}");
}
