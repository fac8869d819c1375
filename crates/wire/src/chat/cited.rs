//! Where in a text a citation stands. The Messages format says only in which block; others want the characters.

use crate::messages::{Citation, WebSearchLocation};

/// The first character of a passage and the one behind its last.
pub(crate) type Place = (usize, usize);

/// What citations have in place of a vendor's index that were made here.
const OURS: &str = "tg1";
/// Characters of a passage that such a citation repeats at most.
const LONGEST: usize = 150;
/// What addresses begin with.
const HEADS: [&str; 4] = ["https://www.", "http://www.", "https://", "http://"];

/// The pages that a block of text rests on, each with its place in it.
pub(crate) fn placed<'c>(
    text: &str,
    citations: impl IntoIterator<Item = &'c Citation>,
) -> Vec<(&'c WebSearchLocation, Place)> {
    placed_in(text, text.chars().count(), citations)
}

/// The same where only the beginning of the block is known, and how many characters it has: the passage that is repeated, else
/// the link to the page, else all of the block.
pub(crate) fn placed_in<'c>(
    text: &str,
    length: usize,
    citations: impl IntoIterator<Item = &'c Citation>,
) -> Vec<(&'c WebSearchLocation, Place)> {
    let mut behind = 0;
    let mut last: Option<(&str, (usize, usize))> = None;
    let mut placed = Vec::new();
    for citation in citations {
        // Pages alone have a place in these formats.
        let Citation::WebSearch(found) = citation else { continue };
        let bytes = match last {
            // A vendor repeats what is on the page, and has a block for every passage.
            _ if found.encrypted_index != OURS => None,
            // One passage may rest on several pages.
            Some((passage, bytes)) if !passage.is_empty() && passage == found.cited_text => Some(bytes),
            _ => passage(text, behind, found).or_else(|| link(text, behind, &found.url)),
        };
        if let Some((start, end)) = bytes {
            behind = end;
            last = Some((&found.cited_text, (start, end)));
        }
        let place = bytes.map_or((0, length), |(start, end)| {
            let before = text[..start].chars().count();
            (before, before + text[start..end].chars().count())
        });
        placed.push((found, place));
    }
    placed
}

/// What is looked for behind a place first, and then everywhere.
fn find(text: &str, behind: usize, what: &str) -> Option<usize> {
    text[behind..].find(what).map(|at| behind + at).or_else(|| text.find(what))
}

/// The passage that a citation repeats, in bytes.
fn passage(text: &str, behind: usize, found: &WebSearchLocation) -> Option<(usize, usize)> {
    let said = Some(found.cited_text.as_str()).filter(|said| !said.is_empty())?;
    let start = find(text, behind, said)?;
    let mut end = start + said.len();
    // Of a longer one only the beginning is repeated: mostly a link in brackets, which ends where the link does.
    if said.chars().count() == LONGEST
        && let Some((first, last)) = link(text, start, &found.url)
        && first < end
        && last > end
    {
        let is_bracketed = text[start..].starts_with('(') && text[last..].starts_with(')');
        end = last + usize::from(is_bracketed);
    }
    Some((start, end))
}

/// The link to a page, in bytes: in Markdown with its words, else the address.
fn link(text: &str, behind: usize, url: &str) -> Option<(usize, usize)> {
    let bare = bare(url).trim_end_matches('/');
    if bare.is_empty() {
        return None;
    }
    let mut from = behind;
    let mut wrapped = behind == 0;
    let (start, at) = loop {
        let Some(at) = text[from..].find(bare).map(|at| from + at) else {
            if std::mem::replace(&mut wrapped, true) {
                return None;
            }
            from = 0;
            continue;
        };
        let head = HEADS.into_iter().find(|head| text[..at].ends_with(head));
        match head {
            // A longer address is another page.
            Some(head) if !goes_on(&text[at + bare.len()..]) => break (at - head.len(), at),
            _ => from = at + bare.len(),
        }
    };
    let end = at + bare.len() + usize::from(text[at + bare.len()..].starts_with('/'));
    let words = text[..start].strip_suffix("](").and_then(|before| before.rfind('['));
    let closed =
        text[end..].find(|c: char| c == ')' || c.is_whitespace()).filter(|close| text[end + close..].starts_with(')'));
    Some(match words.zip(closed) {
        Some((words, close)) => (words, end + close + 1),
        None => (start, end),
    })
}

/// An address without what may be left out of one.
fn bare(url: &str) -> &str {
    let url = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or(url);
    url.strip_prefix("www.").unwrap_or(url)
}

/// Whether an address is longer than what was found of it.
fn goes_on(rest: &str) -> bool {
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '%' | '/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cites(index: &str, url: &str, passage: &str) -> Citation {
        let citation = json!({"type": "web_search_result_location", "url": url, "title": null, "cited_text": passage,
            "encrypted_index": index});
        serde_json::from_str(&citation.to_string()).unwrap()
    }

    /// What of the text each of the citations is for.
    fn told(text: &str, citations: &[Citation]) -> Vec<String> {
        let cut = |(start, end): Place| text.chars().skip(start).take(end - start).collect();
        placed(text, citations).into_iter().map(|(_, place)| cut(place)).collect()
    }

    #[test]
    fn a_citation_has_the_place_of_its_passage_of_its_link_or_of_its_block() {
        let text =
            "Høj [a.example](https://a.example/x/) og [b](http://www.b.example/y?z=1), høj. https://c.example/ og høj";
        let url = "https://www.a.example/x";
        assert_eq!(told(text, &[cites("tg1", url, "høj")]), ["høj"]);
        assert_eq!(told(text, &[cites("tg1", url, "på siden")]), ["[a.example](https://a.example/x/)"]);
        let pages = ["https://a.example/x", "https://b.example/y?z=1", "https://c.example", "https://d.example"];
        let links =
            ["[a.example](https://a.example/x/)", "[b](http://www.b.example/y?z=1)", "https://c.example/", text];
        assert_eq!(told(text, &pages.map(|url| cites("tg1", url, ""))), links);
        assert_eq!(told(text, &[cites("tg1", "https://a.example", "")]), [text], "that is another page");
        // What a vendor says is on its page, not in the text.
        assert_eq!(told(text, &[cites("Eo8B", "https://c.example/", "høj")]), [text]);
    }

    #[test]
    fn passages_come_in_the_order_of_the_text_and_may_rest_on_several_pages() {
        let text = "Tide. Tide. End.";
        let all = [cites("tg1", "https://a.example", "Tide."), cites("tg1", "https://b.example", "Tide.")];
        let places: Vec<Place> = placed(text, &all).into_iter().map(|(_, place)| place).collect();
        assert_eq!(places, [(0, 5), (0, 5)]);
        let apart = [all[0].clone(), cites("tg1", "https://a.example", "End."), all[1].clone()];
        let places: Vec<Place> = placed(text, &apart).into_iter().map(|(_, place)| place).collect();
        assert_eq!(places, [(0, 5), (12, 16), (0, 5)]);
    }

    #[test]
    fn a_passage_of_which_only_the_beginning_is_repeated_ends_with_its_link() {
        let url = format!("https://a.example/{}", "long/".repeat(40));
        let cited = format!("([a.example]({url}))");
        let text = format!("It is so. {cited} And so on.");
        let beginning: String = cited.chars().take(150).collect();
        assert_eq!(told(&text, &[cites("tg1", &url, &beginning)]), [cited]);
    }

    #[test]
    fn what_is_cited_behind_the_beginning_is_cited_as_all_of_the_block() {
        let citation: Citation = serde_json::from_str(
            r#"{"type":"web_search_result_location","url":"https://a.example/x","title":null,"cited_text":"later","encrypted_index":"tg1"}"#,
        )
        .unwrap();
        let place = |text: &str| placed_in(text, 40, [&citation])[0].1;
        assert_eq!((place("so much"), place("and later")), ((0, 40), (4, 9)));
    }
}
