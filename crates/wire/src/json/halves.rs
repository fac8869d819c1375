//! Halves of characters: escapes of UTF-16 that lack the other half, as those write who cut a text wherever they like.
//! They are JSON by its grammar and no text in any encoding of ours.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Kind, Members, elements, kind};

/// An escape as it is written, `\ud83d`.
const ESCAPE: usize = 6;
/// Names that are longer are not repeated.
const LONGEST_NAME: usize = 64;
const UNREADABLE: &[u8; ESCAPE] = b"\\ufffd";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// The half that the escape here stands for, if it is one.
fn half(text: &[u8], at: usize) -> Option<Half> {
    let escape: &[u8; ESCAPE] = text.get(at..)?.first_chunk()?;
    match escape.map(|byte| byte.to_ascii_lowercase()) {
        [b'\\', b'u', b'd', b'8' | b'9' | b'a' | b'b', ..] => Some(Half::First),
        [b'\\', b'u', b'd', b'c'..=b'f', ..] => Some(Half::Second),
        _ => None,
    }
}

/// The next half without its other, from this place in a JSON text on, which is within no escape.
fn next_lone(text: &[u8], mut from: usize) -> Option<(usize, Half)> {
    loop {
        let at = from + memchr::memchr(b'\\', text.get(from..)?)?;
        match half(text, at) {
            Some(Half::First) if half(text, at + ESCAPE) == Some(Half::Second) => from = at + 2 * ESCAPE,
            Some(half) => return Some((at, half)),
            None => from = at + 2,
        }
    }
}

/// Makes the texts of an upstream readable: a half that came in one event is put before the other in the next, and one
/// that stands alone becomes the character for what cannot be read.
#[derive(Debug, Default)]
pub struct Joiner {
    /// A first half that ended a string.
    waiting: Option<[u8; ESCAPE]>,
    is_whole: bool,
}

impl Joiner {
    /// For a text that nothing follows.
    pub fn of_whole() -> Self {
        Self { waiting: None, is_whole: true }
    }

    pub fn joined<'a>(&mut self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(mut found) = next_lone(text, 0) else { return Cow::Borrowed(text) };
        let (mut out, mut done) = (Vec::with_capacity(text.len() + ESCAPE), 0);
        loop {
            let (at, half) = found;
            out.extend_from_slice(&text[done..at]);
            done = at + ESCAPE;
            let escape = text[at..].first_chunk::<ESCAPE>().copied().unwrap_or(*UNREADABLE);
            // The quote before an escape opens the string, unless it is escaped itself.
            let is_first = text[..at].ends_with(b"\"") && !text[..at].ends_with(b"\\\"");
            match half {
                Half::First if !self.is_whole && text.get(done) == Some(&b'"') => self.waiting = Some(escape),
                Half::Second if is_first && self.waiting.is_some() => {
                    out.extend(self.waiting.take().into_iter().flatten().chain(escape));
                }
                _ => out.extend_from_slice(UNREADABLE),
            }
            match next_lone(text, done) {
                Some(next) => found = next,
                None => break,
            }
        }
        out.extend_from_slice(&text[done..]);
        out.into()
    }
}

/// Where in a JSON text the first half of a character stands, as the path of its value; of a name, the path of the object
/// that has it. Names that nobody would give a member are not repeated. The text does not nest deeply.
pub fn lone_half(text: &str) -> Option<String> {
    next_lone(text.as_bytes(), 0)?;
    fn find(raw: &RawValue, path: &str) -> Option<String> {
        let is_here = || next_lone(raw.get().as_bytes(), 0).is_some().then(|| path.to_owned());
        match kind(raw) {
            Kind::Array => elements(raw)?
                .into_iter()
                .enumerate()
                .find_map(|(place, element)| find(element, &format!("{path}[{place}]"))),
            Kind::Object => match Members::of(raw) {
                None => is_here(),
                Some(members) => members.0.iter().find_map(|(name, value)| {
                    let inner = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                    let found = find(value, &inner)?;
                    Some(if is_plain(name) { found } else { path.to_owned() })
                }),
            },
            Kind::String => is_here(),
            _ => None,
        }
    }
    find(serde_json::from_str(text).ok()?, "")
}

fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(texts: &[&str]) -> Vec<String> {
        let mut joiner = Joiner::default();
        texts.iter().map(|text| String::from_utf8(joiner.joined(text.as_bytes()).into_owned()).unwrap()).collect()
    }

    #[test]
    fn what_has_both_halves_stays_as_it_is() {
        for text in [r#"{"a":"\ud83d\ude00 \u00e9 \n"}"#, r#"["\\ud83d \\\\ude00"]"#, r#"["\"\\"]"#, "", "\\", r"\ud8"]
        {
            assert!(matches!(Joiner::default().joined(text.as_bytes()), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn halves_are_joined_across_texts_and_become_unreadable_alone() {
        assert_eq!(
            joined(&[r#"["x \ud83d"]"#, "[1]", r#"["\uDE00 y"]"#]),
            [r#"["x "]"#.to_owned(), "[1]".to_owned(), r#"["\ud83d\uDE00 y"]"#.to_owned()]
        );
        assert_eq!(
            joined(&[r#"["x \ud83d y","\\\ude00 \ud83d\ud83d\ude00"]"#]),
            [r#"["x \ufffd y","\\\ufffd \ufffd\ud83d\ude00"]"#]
        );
        // A second half that does not begin its text belongs to none before it.
        assert_eq!(joined(&[r#"["\ud83d"]"#, r#"["\"\ude00"]"#]), [r#"[""]"#, r#"["\"\ufffd"]"#]);
        assert_eq!(Joiner::of_whole().joined(br#"["\ud83d"]"#).as_ref(), br#"["\ufffd"]"#);
    }

    #[test]
    fn a_lone_half_is_found_by_its_path() {
        for (text, path) in [
            (r#"{"a":"\ud83d\ude00","b":[{"c":1},{"c":"x \ud83d"}]}"#, Some("b[1].c")),
            (r#"{"a":{"b":{"\udc00":1}}}"#, Some("a.b")),
            (r#"{"\udc00":1}"#, Some("")),
            (r#"{"a b":{"c":"\udc00"}}"#, Some("")),
            (r#"{"a":"\\ud83d"}"#, None),
            (r#"{"a":"\ud83d"#, None),
        ] {
            assert_eq!(lone_half(text).as_deref(), path, "{text}");
        }
    }
}
