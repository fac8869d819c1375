//! The order of a conversation: neighbours of one side are one turn, and every call has its result right after it.

use std::collections::{HashMap, HashSet};

use super::turns::{Mark, Outcome, Part, Said, Text, Turn};

const INTERRUPTED: &str = "[no result: the call was interrupted]";

/// Every call gets its result right after its turn, once, and every result has its call.
pub fn paired(turns: Vec<Turn>, warnings: &mut Vec<String>) -> Vec<Turn> {
    let mut out: Vec<Turn> = Vec::with_capacity(turns.len());
    let mut used: HashMap<String, usize> = HashMap::new();
    let mut taken: HashSet<String> = turns.iter().flat_map(call_ids).map(ToOwned::to_owned).collect();
    let mut waiting: Vec<(String, String, String)> = Vec::new();
    for turn in turns {
        match turn {
            // A turn that was only thought says nothing to anyone: most refuse it, and its neighbours are one without it.
            Turn::Assistant(said) if said.iter().all(Said::is_thought) => {}
            Turn::Assistant(mut said) => {
                interrupted(&mut out, &mut waiting);
                for said in &mut said {
                    let Said::Call { id, name, .. } = said else { continue };
                    let count = used.entry(id.clone()).and_modify(|count| *count += 1).or_insert(1);
                    let original = id.clone();
                    if *count > 1 {
                        // What it would be renamed to may be another call's own id.
                        let mut number = *count;
                        while !taken.insert(format!("{original}_{number}")) {
                            number += 1;
                        }
                        *id = format!("{original}_{number}");
                    }
                    waiting.push((original, id.clone(), name.clone()));
                }
                append_said(&mut out, said);
            }
            Turn::Results(outcomes) => {
                let (known, orphans): (Vec<_>, Vec<_>) = outcomes
                    .into_iter()
                    .partition(|outcome| waiting.iter().any(|(original, _, _)| *original == outcome.id));
                let mut known: Vec<Option<Outcome>> = known.into_iter().map(Some).collect();
                let mut ordered = Vec::with_capacity(waiting.len());
                for (original, id, name) in waiting.drain(..) {
                    let found =
                        known.iter_mut().find(|slot| slot.as_ref().is_some_and(|outcome| outcome.id == original));
                    ordered.push(match found.and_then(Option::take) {
                        Some(outcome) => Outcome { id, name: Some(name), ..outcome },
                        None => missing(id, name),
                    });
                }
                if !ordered.is_empty() {
                    append_heard(&mut out, ordered, Vec::new());
                }
                for orphan in orphans.into_iter().chain(known.into_iter().flatten()) {
                    if !warnings.iter().any(|known| known == "changed:orphan_tool_result") {
                        warnings.push("changed:orphan_tool_result".to_owned());
                    }
                    let mut parts = orphan.parts;
                    let head = format!("[orphan tool result {}]", orphan.id);
                    match parts.first_mut() {
                        Some(Part::Text(first)) => first.text.insert_str(0, &format!("{head} ")),
                        _ => parts.insert(0, Part::Text(Text::plain(head))),
                    }
                    append_heard(&mut out, Vec::new(), parts);
                }
            }
            Turn::User(parts) => {
                interrupted(&mut out, &mut waiting);
                append_heard(&mut out, Vec::new(), parts);
            }
            Turn::System(text) => {
                interrupted(&mut out, &mut waiting);
                out.push(Turn::System(text));
            }
        }
    }
    interrupted(&mut out, &mut waiting);
    out
}

pub fn call_ids(turn: &Turn) -> impl Iterator<Item = &str> {
    let said = if let Turn::Assistant(said) = turn { said.as_slice() } else { &[] };
    said.iter().filter_map(Said::id)
}

fn interrupted(out: &mut Vec<Turn>, waiting: &mut Vec<(String, String, String)>) {
    if !waiting.is_empty() {
        let outcomes = waiting.drain(..).map(|(_, id, name)| missing(id, name)).collect();
        append_heard(out, outcomes, Vec::new());
    }
}

fn missing(id: String, name: String) -> Outcome {
    Outcome {
        id,
        name: Some(name),
        parts: vec![Part::Text(Text::plain(INTERRUPTED.to_owned()))],
        is_error: true,
        mark: Mark::None,
    }
}

pub fn append_said(turns: &mut Vec<Turn>, said: Vec<Said>) {
    if said.is_empty() {
        return;
    }
    match turns.last_mut() {
        Some(Turn::Assistant(before)) => before.extend(said),
        _ => turns.push(Turn::Assistant(said)),
    }
}

pub fn append_heard(turns: &mut Vec<Turn>, outcomes: Vec<Outcome>, parts: Vec<Part>) {
    // Neighbouring messages of the user are one, and in it the results of calls come before words and instructions.
    let asked = turns.iter().rposition(|turn| matches!(turn, Turn::Assistant(_)));
    let is_known = |outcome: &Outcome| match asked.and_then(|place| turns.get(place)) {
        Some(Turn::Assistant(said)) => said.iter().any(|said| said.id() == Some(&outcome.id)),
        _ => false,
    };
    let (known, rest): (Vec<Outcome>, Vec<Outcome>) = outcomes.into_iter().partition(is_known);
    if let Some(place) = asked.map(|asked| asked + 1).filter(|_| !known.is_empty()) {
        match turns.get_mut(place) {
            Some(Turn::Results(before)) => before.extend(known),
            _ => turns.insert(place, Turn::Results(known)),
        }
    }
    if !rest.is_empty() {
        match turns.last_mut() {
            Some(Turn::Results(before)) => before.extend(rest),
            _ => turns.push(Turn::Results(rest)),
        }
    }
    if !parts.is_empty() {
        match turns.last_mut() {
            Some(Turn::User(before)) => before.extend(parts),
            _ => turns.push(Turn::User(parts)),
        }
    }
}
