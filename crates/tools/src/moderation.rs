//! Whether a text may be answered: how those who judge it are asked, and what they say.

use std::fmt;

use http::{HeaderMap, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate_core::Secret;

use crate::headers;

/// Where OpenAI serves it.
pub const OPENAI: &str = "https://api.openai.com/v1/moderations";
pub const MODEL: &str = "omni-moderation-latest";
/// Characters of a piece that is judged by itself.
const PIECE: usize = 8_000;
/// Characters of a flagged text that are told.
const SHOWN: usize = 100;

/// Who judges.
pub enum Backend {
    /// Words that must not be there, in lower case.
    Keywords(Vec<String>),
    Openai(Service),
    /// A service of the operator's own.
    Http(Service),
}

pub struct Service {
    pub uri: Uri,
    pub key: Option<Secret>,
    pub model: String,
}

impl fmt::Debug for Backend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// What was said of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub flagged: bool,
    pub reasons: Vec<String>,
    /// Which of the pieces it is about.
    pub piece: usize,
}

impl Backend {
    pub const NAMES: [&str; 3] = ["keywords", "openai", "http"];

    pub fn name(&self) -> &'static str {
        match self {
            Self::Keywords(_) => "keywords",
            Self::Openai(_) => "openai",
            Self::Http(_) => "http",
        }
    }

    /// What is to be asked, and whom; nothing where nobody has to be.
    pub fn service(&self) -> Option<&Service> {
        match self {
            Self::Keywords(_) => None,
            Self::Openai(service) | Self::Http(service) => Some(service),
        }
    }

    /// The judgement of words alone.
    pub fn by_words(&self, pieces: &[String]) -> Verdict {
        let Self::Keywords(words) = self else { return Verdict::default() };
        for (place, piece) in pieces.iter().enumerate() {
            let piece = piece.to_lowercase();
            let found: Vec<String> = words.iter().filter(|word| piece.contains(word.as_str())).cloned().collect();
            if !found.is_empty() {
                return Verdict { flagged: true, reasons: found, piece: place };
            }
        }
        Verdict::default()
    }

    /// What a service answered; nothing when it is not what its kind sends.
    pub fn read(&self, body: &[u8]) -> Option<Verdict> {
        #[derive(Deserialize)]
        struct Judged {
            flagged: bool,
            #[serde(default)]
            categories: serde_json::Map<String, Value>,
            #[serde(default)]
            reasons: Vec<String>,
        }
        #[derive(Deserialize)]
        struct Answer {
            results: Vec<Judged>,
        }
        let (place, judged) = match self {
            Self::Keywords(_) => return None,
            Self::Openai(_) => {
                let Answer { results } = serde_json::from_slice(body).ok()?;
                let mut results = results.into_iter().enumerate().peekable();
                results.peek()?;
                match results.find(|(_, judged)| judged.flagged) {
                    Some(found) => found,
                    None => return Some(Verdict::default()),
                }
            }
            Self::Http(_) => (0, serde_json::from_slice(body).ok()?),
        };
        let categories = judged.categories.into_iter().filter(|(_, holds)| holds == &Value::Bool(true));
        let reasons = judged.reasons.into_iter().chain(categories.map(|(name, _)| name)).collect();
        Some(Verdict { flagged: judged.flagged, reasons, piece: place })
    }
}

impl Service {
    /// The question about these pieces; nothing when the key cannot be sent.
    pub fn call(&self, pieces: &[String]) -> Option<(HeaderMap, String)> {
        let headers = headers(self.key.as_ref())?;
        Some((headers, json!({"model": self.model, "input": pieces}).to_string()))
    }
}

/// Texts in pieces of a length that can be judged.
pub fn pieces<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let mut pieces = Vec::new();
    for text in texts {
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = rest.char_indices().nth(PIECE).map_or(rest.len(), |(place, _)| place);
            pieces.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    pieces
}

/// A text as it is told to whoever sent it: its ends, where it is long.
pub fn shown(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= SHOWN {
        return text.to_owned();
    }
    let (head, tail) = (&characters[..48], &characters[characters.len() - 49..]);
    head.iter().chain(&['.', '.', '.']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        Service { uri: Uri::from_static(OPENAI), key: Some(Secret::new("k")), model: MODEL.to_owned() }
    }

    #[test]
    fn words_are_found_whatever_their_case() {
        let words = Backend::Keywords(vec!["wreck".to_owned(), "mine".to_owned()]);
        let verdict = words.by_words(&["all is well".to_owned(), "the WRECK".to_owned()]);
        assert_eq!(verdict, Verdict { flagged: true, reasons: vec!["wreck".to_owned()], piece: 1 });
        assert_eq!(words.by_words(&["all is well".to_owned()]), Verdict::default());
    }

    #[test]
    fn answers_are_read_as_their_kind_sends_them() {
        let openai = Backend::Openai(service());
        let answer = json!({"results": [
            {"flagged": false, "categories": {"hate": false}},
            {"flagged": true, "categories": {"hate": false, "violence": true}},
        ]});
        let wanted = Verdict { flagged: true, reasons: vec!["violence".to_owned()], piece: 1 };
        assert_eq!(openai.read(answer.to_string().as_bytes()), Some(wanted));
        assert_eq!(openai.read(br#"{"results":[{"flagged":false}]}"#), Some(Verdict::default()));
        assert_eq!(openai.read(br#"{"results":[]}"#), None);
        let http = Backend::Http(service());
        let wanted = Verdict { flagged: true, reasons: vec!["ours".to_owned()], piece: 0 };
        assert_eq!(http.read(br#"{"flagged":true,"reasons":["ours"]}"#), Some(wanted));
        assert_eq!(http.read(b"{}"), None);
    }

    #[test]
    fn long_texts_are_judged_in_pieces_and_told_by_their_ends() {
        let made = pieces([" a ", "", &"é".repeat(PIECE + 1)]);
        assert_eq!(made.iter().map(|piece| piece.chars().count()).collect::<Vec<_>>(), [1, PIECE, 1]);
        assert_eq!(shown(&"a".repeat(100)), "a".repeat(100));
        assert_eq!(
            shown(&format!("{}x{}", "a".repeat(60), "b".repeat(60))),
            format!("{}...{}", "a".repeat(48), "b".repeat(49))
        );
    }
}
