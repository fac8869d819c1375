//! The result of a call where the upstream takes text, and where what is no text has to stand elsewhere.

use super::conversation::{Outcome, Part, Text};

const NOTHING: &str = "(no output)";
/// What is said of a failure that is only shown.
pub const ATTACHED: &str = "see attachment";

/// The text of a result, and the media that may stand beside it.
#[derive(Debug, Default, PartialEq)]
pub struct Shown {
    pub text: String,
    pub media: Vec<Part>,
}

/// What a result shows. `takes_media` says whether it may hold more than text; if not, a label stands for each piece,
/// and the piece with its label is put aside for the words that follow all results of the turn.
pub fn shown(outcome: &Outcome, takes_media: bool, hoisted: &mut Vec<Part>) -> Shown {
    let (mut texts, mut media): (Vec<String>, Vec<Part>) = (Vec::new(), Vec::new());
    let mut count = 0;
    for part in &outcome.parts {
        let kind = match part {
            Part::Text(text) => {
                texts.push(text.text.clone());
                continue;
            }
            Part::Image { .. } => "image",
            Part::Document { .. } => "document",
        };
        if takes_media {
            media.push(part.clone());
            continue;
        }
        count += 1;
        let label = format!("[{kind} {count} of tool_result {}]", outcome.id);
        texts.push(label.clone());
        hoisted.push(Part::Text(Text::plain(label)));
        hoisted.push(part.clone());
    }
    let mut text = texts.join("\n");
    if text.is_empty() && (media.is_empty() || outcome.is_error) {
        text = if media.is_empty() { NOTHING } else { ATTACHED }.to_owned();
    }
    if outcome.is_error && !text.to_lowercase().starts_with("error") {
        text.insert_str(0, "Error: ");
    }
    Shown { text, media }
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
        let mut text = |parts, is_error| shown(&outcome(parts, is_error), true, &mut hoisted).text;
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
        assert_eq!(found, Shown { text: "see\n[image 1 of tool_result a]".to_owned(), media: vec![] });
        assert_eq!(hoisted, [Part::Text(Text::plain("[image 1 of tool_result a]")), image()]);
    }
}
