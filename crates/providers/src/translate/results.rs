//! The result of a call where the upstream takes text, and where what is no text has to stand elsewhere.

use super::conversation::{Outcome, Part, Text};

const NOTHING: &str = "(no output)";
/// What is said of a failure that is only shown.
pub const ATTACHED: &str = "see attachment";

/// What a result shows.
#[derive(Debug, PartialEq)]
pub enum Shown {
    /// Nothing but text.
    Text(String),
    /// Text and media in the order in which the tool gave them: what a text says may be of the picture before it.
    Parts(Vec<Part>),
}

impl Shown {
    /// What of it is text.
    pub fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                let texts = parts.into_iter().filter_map(|part| match part {
                    Part::Text(text) => Some(text.text),
                    Part::Image { .. } | Part::Document { .. } => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

/// What a result shows. `takes_media` says whether it may hold more than text; if not, a label stands for each piece,
/// and the piece with its label is put aside for the words that follow all results of the turn. No text in it is marked.
pub fn shown(outcome: &Outcome, takes_media: bool, hoisted: &mut Vec<Part>) -> Shown {
    let mut parts: Vec<Part> = Vec::new();
    let mut count = 0;
    for part in &outcome.parts {
        let kind = match part {
            Part::Text(text) => {
                append_text(&mut parts, &text.text);
                continue;
            }
            Part::Image { .. } => "image",
            Part::Document { .. } => "document",
        };
        if takes_media {
            parts.push(part.clone());
            continue;
        }
        count += 1;
        let label = format!("[{kind} {count} of tool_result {}]", outcome.id);
        append_text(&mut parts, &label);
        hoisted.push(Part::Text(Text::plain(label)));
        hoisted.push(part.clone());
    }
    parts.retain(|part| !matches!(part, Part::Text(text) if text.text.is_empty()));
    let is_mute = !parts.iter().any(|part| matches!(part, Part::Text(_)));
    if parts.is_empty() || (is_mute && outcome.is_error) {
        let text = if parts.is_empty() { NOTHING } else { ATTACHED };
        parts.insert(0, Part::Text(Text::plain(text)));
    }
    let first = parts.iter_mut().find_map(|part| match part {
        Part::Text(text) => Some(&mut text.text),
        Part::Image { .. } | Part::Document { .. } => None,
    });
    if let Some(text) = first.filter(|text| outcome.is_error && !text.to_lowercase().starts_with("error")) {
        text.insert_str(0, "Error: ");
    }
    match parts.as_mut_slice() {
        [Part::Text(text)] => Shown::Text(std::mem::take(&mut text.text)),
        _ => Shown::Parts(parts),
    }
}

/// Texts that follow each other are one, line by line.
fn append_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => {
            last.text.push('\n');
            last.text.push_str(text);
        }
        _ => parts.push(Part::Text(Text::plain(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conversation::{Mark, Media};
    use super::*;

    fn outcome(parts: Vec<Part>, is_error: bool) -> Outcome {
        Outcome { id: "a".to_owned(), name: None, parts, is_error, mark: Mark::None }
    }

    fn image() -> Part {
        Part::Image { source: Media::Url("u".to_owned()), mark: Mark::None, path: String::new() }
    }

    #[test]
    fn p29_a_failure_is_said_and_nothing_is_never_empty() {
        let mut hoisted = Vec::new();
        let mut text = |parts, is_error| shown(&outcome(parts, is_error), true, &mut hoisted).into_text();
        assert_eq!(text(vec![], false), "(no output)");
        assert_eq!(text(vec![], true), "Error: (no output)");
        assert_eq!(text(vec![Part::Text(Text::plain("ERROR 5"))], true), "ERROR 5");
        assert_eq!(text(vec![image()], false), "", "the image speaks for itself");
        assert_eq!(text(vec![image()], true), "Error: see attachment");
    }

    #[test]
    fn p27_media_that_cannot_stand_in_a_result_are_put_aside() {
        let mut hoisted = Vec::new();
        let found = shown(&outcome(vec![Part::Text(Text::plain("see")), image()], false), false, &mut hoisted);
        assert_eq!(found, Shown::Text("see\n[image 1 of tool_result a]".to_owned()));
        assert_eq!(hoisted, [Part::Text(Text::plain("[image 1 of tool_result a]")), image()]);
    }

    #[test]
    fn p28_text_and_media_of_a_result_keep_their_order() {
        let text = |text| Part::Text(Text::plain(text));
        let mut hoisted = Vec::new();
        let mut parts = |parts, is_error| shown(&outcome(parts, is_error), true, &mut hoisted);
        let given = vec![text("before"), image(), text("after"), text("that"), image()];
        let wanted = vec![text("before"), image(), text("after\nthat"), image()];
        assert_eq!(parts(given, false), Shown::Parts(wanted));
        let wanted = vec![image(), text("Error: torn"), image()];
        assert_eq!(parts(vec![image(), text("torn"), image()], true), Shown::Parts(wanted));
        assert_eq!(parts(vec![text("before"), text("after")], false), Shown::Text("before\nafter".to_owned()));
        assert_eq!(hoisted, []);
    }
}
