//! Tool calls, whole and in fragments, as OpenAI sends them and as others do.

use serde_json::{Value, json};

use crate::content::json_pieces;
use crate::quirk::Quirk;
use crate::said::Said;

pub(super) struct Call<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// A JSON object.
    pub input: &'a str,
}

/// The entries of `tool_calls` in a whole answer.
pub(super) fn whole(said: &Said<'_>, calls: &[Call<'_>]) -> Vec<Value> {
    let entry = |(at, call): (usize, &Call<'_>)| {
        let arguments = match said.quirk {
            Some(Quirk::ArgumentsObject) => object(call.input),
            Some(Quirk::NoArguments) => json!(""),
            Some(Quirk::ArgumentsAfterEmptyObject) => json!(format!("{{}}{}", call.input)),
            _ => json!(call.input),
        };
        json!({"id": id(said, call, at), "type": "function", "function": {"name": call.name, "arguments": arguments}})
    };
    calls.iter().enumerate().map(entry).collect()
}

/// The deltas of a run of calls. `first` is the number of calls before it.
pub(super) fn deltas(said: &Said<'_>, calls: &[Call<'_>], first: usize) -> Vec<Value> {
    let mut each: Vec<_> =
        calls.iter().enumerate().map(|(at, call)| fragments(said, call, first + at).into_iter()).collect();
    let mut entries = Vec::new();
    if said.is(Quirk::InterleavedCalls) {
        let mut more = true;
        while more {
            let round: Vec<_> = each.iter_mut().filter_map(Iterator::next).collect();
            more = !round.is_empty();
            entries.extend(round);
        }
    } else {
        entries.extend(each.into_iter().flatten());
    }
    let mut deltas = Vec::new();
    for entry in entries {
        if said.is(Quirk::EmptyContentBetween) {
            deltas.push(json!({"content": "", "tool_calls": [entry]}));
            deltas.push(json!({"content": ""}));
        } else {
            deltas.push(json!({"tool_calls": [entry]}));
        }
    }
    deltas
}

/// One call: an entry that starts it, and the rest of its arguments.
fn fragments(said: &Said<'_>, call: &Call<'_>, at: usize) -> Vec<Value> {
    let pieces = json_pieces(call.input);
    let (start, rest) = match said.quirk {
        Some(Quirk::ArgumentsObject) => (Some(object(call.input)), &[][..]),
        Some(Quirk::IdsNull) => (Some(json!(call.input)), &[][..]),
        // Some servers send an empty string, some leave it out.
        Some(Quirk::NoArguments) => ((at == 0).then(|| json!("")), &[][..]),
        Some(Quirk::ArgumentsInStart) => (pieces.get(1).map(|piece| json!(piece)), pieces.get(2..).unwrap_or_default()),
        Some(Quirk::ArgumentsAfterEmptyObject) if at == 0 => (Some(json!("{}")), &pieces[1..]),
        _ => (Some(json!(pieces[0])), &pieces[1..]),
    };
    let id = id(said, call, at);
    let mut open = json!({"id": id, "type": "function", "function": {"name": call.name}});
    if let Some(arguments) = start {
        open["function"]["arguments"] = arguments;
    }
    let mut entries = vec![open];
    if said.is(Quirk::ArgumentsAfterEmptyObject) && at > 0 {
        entries.push(json!({"function": {"arguments": "{}"}}));
    }
    entries.extend(rest.iter().map(|piece| json!({"function": {"arguments": piece}})));
    for (number, entry) in entries.iter_mut().enumerate() {
        match said.quirk {
            Some(Quirk::NoIndex) => {}
            Some(Quirk::AllIndexZero) => entry["index"] = json!(0),
            _ => entry["index"] = json!(at),
        }
        if said.is(Quirk::NameRepeated) && number > 0 {
            entry["id"] = json!(id);
            entry["function"]["name"] = json!(call.name);
        }
    }
    entries
}

fn id(said: &Said<'_>, call: &Call<'_>, at: usize) -> String {
    match said.quirk {
        Some(Quirk::IdsRestart) => format!("functions.{}:{at}", call.name),
        Some(Quirk::IdsNull) => "null".to_owned(),
        Some(Quirk::IdsNine) => {
            let number = call.id.rsplit('_').next().unwrap_or_default();
            format!("s{number:0>8}")
        }
        _ => call.id.to_owned(),
    }
}

fn object(input: &str) -> Value {
    serde_json::from_str(input).expect("an input is JSON")
}
