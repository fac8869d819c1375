//! Which results a text refers to: links in it that lead to one of them.

use std::collections::{HashMap, HashSet};

use url::Url;

use super::Found;

/// Characters of a result that are quoted at most.
const QUOTED: usize = 150;
/// Citations of one text at most.
const MOST: usize = 100;
/// Links of one text that are looked at, and shorter forms of one that are tried.
const MOST_LINKS: usize = 2_000;
const MOST_CUTS: usize = 16;
/// Bytes of an address at most.
const LONGEST: usize = 2_048;

/// A result that a text links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// The place of the result among those given.
    pub of: usize,
    /// What of it fits the text best.
    pub quoted: String,
}

/// The results that a text links to, in the order of the links, each once.
pub fn cited(text: &str, found: &[Found]) -> Vec<Citation> {
    // Of results with the same address the first is meant.
    let known: HashMap<String, usize> =
        found.iter().enumerate().rev().filter_map(|(place, one)| Some((normal(&one.url)?, place))).collect();
    let mut citations: Vec<Citation> = Vec::new();
    for (at, link) in links(text).take(MOST_LINKS) {
        // Nothing is left to be found.
        if citations.len() >= MOST.min(known.len()) {
            break;
        }
        let Some(of) = target(link, &known) else { continue };
        if citations.iter().any(|citation| citation.of == of) {
            continue;
        }
        citations.push(Citation { of, quoted: quoted(&found[of], around(text, at)) });
    }
    citations
}

/// Everything that begins like an address, up to where none can go on.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = text.match_indices("http").map(|(at, _)| at);
    starts.filter_map(move |at| {
        let rest = &text[at..];
        let rest = &rest[..rest.floor_char_boundary(LONGEST)];
        let is_link = rest.starts_with("http://") || rest.starts_with("https://");
        let ends = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | '"' | '`' | '|');
        is_link.then(|| (at, &rest[..rest.find(ends).unwrap_or(rest.len())]))
    })
}

/// The result that a link leads to. Where an address ends and the text around it goes on cannot be told from the text
/// alone, so shorter ones are tried, too.
fn target(link: &str, known: &HashMap<String, usize>) -> Option<usize> {
    let mut link = link;
    for _ in 0..=MOST_CUTS {
        if let Some(place) = normal(link).and_then(|normal| known.get(&normal)) {
            return Some(*place);
        }
        let cut = link.rfind([')', ']', '}', '.', ',', ';', ':', '!', '?', '\'', '*', '_'])?;
        // What is left must still be an address with a host.
        if cut <= "https://".len() {
            return None;
        }
        link = &link[..cut];
    }
    None
}

/// What two ways to write the same address have in common.
fn normal(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?.trim_start_matches("www.");
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{host}{port}{}{query}", url.path().trim_end_matches('/')))
}

/// The line that a link stands in, or what of it is near.
fn around(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(0, |place| place + 1);
    let end = text[at..].find('\n').map_or(text.len(), |place| at + place);
    let start = line.max(text.ceil_char_boundary(at.saturating_sub(400)));
    &text[start..end.min(text.floor_char_boundary(at.saturating_add(200)))]
}

/// The sentence of a result that has most words in common with what is said.
fn quoted(found: &Found, said: &str) -> String {
    let said: HashSet<String> = words(said).collect();
    let score = |sentence: &str| words(sentence).filter(|word| said.contains(word)).collect::<HashSet<String>>().len();
    let sentences = found.content.split_inclusive(['.', '!', '?', '\n']).map(str::trim).filter(|one| !one.is_empty());
    let mut best: Option<(usize, &str)> = None;
    for sentence in sentences.take(500) {
        let score = score(sentence);
        // The first of those that fit equally well.
        if best.is_none_or(|(known, _)| score > known) {
            best = Some((score, sentence));
        }
    }
    best.map_or(found.title.as_str(), |(_, sentence)| sentence).chars().take(QUOTED).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 2).map(str::to_lowercase)
}
