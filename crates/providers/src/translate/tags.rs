//! The beginning of an answer, where some upstreams put what is no answer: the words that the caller began it with, and
//! reasoning between tags. Text comes in pieces of any size, and no more is held back than could be part of either.

use std::mem;

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";
/// A line break or two may stand before the tag.
const MOST_SPACE: usize = 2;

/// A piece of what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Thinking(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The answer may repeat the words before it.
    Prefix,
    /// It may begin with a tag.
    Opening,
    /// The tag was there and has not been closed.
    Inside,
    /// White space after the closing tag belongs to neither side.
    After,
    /// Everything else is text.
    Plain,
}

/// Takes the beginning of an answer apart.
#[derive(Debug)]
pub struct Beginning {
    prefix: String,
    has_tags: bool,
    stage: Stage,
    held: String,
}

impl Beginning {
    pub fn new(prefix: Option<&str>, has_tags: bool) -> Self {
        let prefix = prefix.unwrap_or_default().to_owned();
        let stage = match (prefix.is_empty(), has_tags) {
            (false, _) => Stage::Prefix,
            (true, true) => Stage::Opening,
            (true, false) => Stage::Plain,
        };
        Self { prefix, has_tags, stage, held: String::new() }
    }

    /// Whether everything from here on is text, so that nothing need be taken apart.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Plain
    }

    pub fn feed(&mut self, text: &str, out: &mut impl FnMut(Piece<'_>)) {
        if self.stage == Stage::Plain {
            return out(Piece::Text(text));
        }
        let mut held = mem::take(&mut self.held);
        held.push_str(text);
        let mut rest = held.as_str();
        // Each stage either leaves something for the next one or keeps what it cannot decide yet.
        while !rest.is_empty() {
            let stage = self.stage;
            match stage {
                Stage::Prefix => match rest.strip_prefix(self.prefix.as_str()) {
                    Some(after) => {
                        rest = after;
                        self.after_prefix();
                    }
                    None if self.prefix.starts_with(rest) => break,
                    None => self.after_prefix(),
                },
                Stage::Opening => {
                    let bare = rest.trim_start();
                    let is_near = rest.len() - bare.len() <= MOST_SPACE;
                    match bare.strip_prefix(OPENING) {
                        Some(inside) if is_near => {
                            rest = inside;
                            self.stage = Stage::Inside;
                        }
                        None if is_near && OPENING.starts_with(bare) => break,
                        _ => self.stage = Stage::Plain,
                    }
                }
                Stage::Inside => {
                    if let Some((thought, after)) = rest.split_once(CLOSING) {
                        out(Piece::Thinking(thought));
                        rest = after;
                        self.stage = Stage::After;
                    } else {
                        let (thought, undecided) = rest.split_at(rest.len() - overlap(rest));
                        out(Piece::Thinking(thought));
                        rest = undecided;
                        break;
                    }
                }
                Stage::After => {
                    rest = rest.trim_start();
                    if !rest.is_empty() {
                        self.stage = Stage::Plain;
                    }
                }
                Stage::Plain => {
                    out(Piece::Text(rest));
                    rest = "";
                }
            }
        }
        self.held = rest.to_owned();
    }

    /// Nothing more comes, or something else does: what was held back is what it looks like.
    pub fn finish(&mut self, out: &mut impl FnMut(Piece<'_>)) {
        let held = mem::take(&mut self.held);
        let stage = mem::replace(&mut self.stage, Stage::Plain);
        match stage {
            _ if held.is_empty() => {}
            Stage::Inside => out(Piece::Thinking(&held)),
            Stage::Prefix | Stage::Opening | Stage::After | Stage::Plain => out(Piece::Text(&held)),
        }
    }

    fn after_prefix(&mut self) {
        self.stage = if self.has_tags { Stage::Opening } else { Stage::Plain };
    }
}

/// How many bytes at the end could be the beginning of the closing tag.
fn overlap(text: &str) -> usize {
    (1..CLOSING.len()).rev().find(|length| text.ends_with(&CLOSING[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thinking and text, and the most that was held back at once.
    fn split(prefix: Option<&str>, tags: bool, pieces: &[&str]) -> (String, String, usize) {
        let (mut thinking, mut text, mut most) = (String::new(), String::new(), 0);
        let mut out = |piece: Piece<'_>| match piece {
            Piece::Text(piece) => text.push_str(piece),
            Piece::Thinking(piece) => thinking.push_str(piece),
        };
        let mut beginning = Beginning::new(prefix, tags);
        for piece in pieces {
            beginning.feed(piece, &mut out);
            most = most.max(beginning.held.chars().count());
        }
        beginning.finish(&mut out);
        (thinking, text, most)
    }

    #[test]
    fn any_division_gives_the_same_parts() {
        let cases = [
            (None, true, "<think>a < b</th</think>\n\nDüne", ("a < b</th", "Düne")),
            (None, true, " \n<think>x</think>y<think>z</think>", ("x", "y<think>z</think>")),
            (None, true, "<think>never closed </thi", ("never closed </thi", "")),
            (None, true, "<thin air>", ("", "<thin air>")),
            (None, true, "<thi", ("", "<thi")),
            (None, true, "a <think>b</think>", ("", "a <think>b</think>")),
            (None, true, "          <think>", ("", "          <think>")),
            (None, false, "<think>a</think>", ("", "<think>a</think>")),
            (Some("The tïde "), false, "The tïde is high", ("", "is high")),
            (Some("The tide "), false, "The time", ("", "The time")),
            (Some("The tide "), false, "The tide", ("", "The tide")),
            (Some("The tide "), false, "high", ("", "high")),
            (Some("{"), true, "{<think>a</think>1}", ("a", "1}")),
            (Some("{"), true, "<think>a</think>1}", ("a", "1}")),
        ];
        for (prefix, tags, whole, (thinking, text)) in cases {
            let expected = (thinking.to_owned(), text.to_owned());
            let single: Vec<String> = whole.chars().map(String::from).collect();
            let single: Vec<&str> = single.iter().map(String::as_str).collect();
            let (thought, said, most) = split(prefix, tags, &single);
            assert_eq!((thought, said), expected, "{whole}, one by one");
            assert!(prefix.is_some() || most <= 8, "{whole}: {most} held");
            for (cut, _) in whole.char_indices() {
                let (thought, said, _) = split(prefix, tags, &[&whole[..cut], &whole[cut..]]);
                assert_eq!((thought, said), expected, "{whole} at {cut}");
            }
        }
    }
}
