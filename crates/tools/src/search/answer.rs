//! What an engine answered, as results.

use serde_json::Value;
use url::Url;

use super::domain::admits;
use super::{Found, Kind, Query};

const LONGEST_URL: usize = 2_048;
const LONGEST_TITLE: usize = 300;
const LONGEST_DATE: usize = 64;
/// Results that are looked at, however many there are.
const LOOKED_AT: usize = 200;

/// An answer that is not what the engine's format says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// The results of an answer that may be told.
pub fn read(kind: Kind, body: &[u8], query: &Query<'_>) -> Result<Vec<Found>, Unreadable> {
    let whole: Value = serde_json::from_slice(body).map_err(|_| Unreadable)?;
    let list = match kind {
        // Left out when there is nothing.
        Kind::Brave if whole.is_object() && whole.get("web").is_none_or(Value::is_null) => return Ok(Vec::new()),
        Kind::Brave => whole.get("web").and_then(|web| web.get("results")),
        Kind::Searxng | Kind::Tavily | Kind::Exa | Kind::Perplexity | Kind::Static => whole.get("results"),
    };
    let list = list.and_then(Value::as_array).ok_or(Unreadable)?;
    Ok(chosen(list.iter().take(LOOKED_AT).map(|entry| one(kind, entry)), query))
}

/// Those that may be shown, each once, cut to size.
pub(super) fn chosen(found: impl Iterator<Item = Found>, query: &Query<'_>) -> Vec<Found> {
    let mut chosen: Vec<Found> = Vec::new();
    for one in found {
        if chosen.len() >= query.most {
            break;
        }
        let Ok(url) = Url::parse(one.url.trim()) else { continue };
        let is_web = matches!(url.scheme(), "http" | "https") && url.as_str().len() <= LONGEST_URL;
        if !is_web
            || !admits(&url, query.allowed, query.excluded)
            || chosen.iter().any(|known| known.url == url.as_str())
        {
            continue;
        }
        chosen.push(Found {
            url: url.into(),
            title: clean(&one.title, LONGEST_TITLE),
            content: clean(&one.content, query.characters),
            published_at: one.published_at.map(|date| clean(&date, LONGEST_DATE)).filter(|date| !date.is_empty()),
            score: one.score.filter(|score| score.is_finite()),
        });
    }
    chosen
}

fn one(kind: Kind, entry: &Value) -> Found {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
    let (content, date) = match kind {
        Kind::Searxng => (text("content").to_owned(), text("publishedDate")),
        Kind::Brave => {
            let more = entry.get("extra_snippets").and_then(Value::as_array).into_iter().flatten();
            let parts: Vec<&str> = std::iter::once(text("description")).chain(more.filter_map(Value::as_str)).collect();
            (parts.join("\n"), text("page_age"))
        }
        Kind::Tavily => (text("content").to_owned(), text("published_date")),
        Kind::Exa => (text("text").to_owned(), text("publishedDate")),
        Kind::Perplexity => (text("snippet").to_owned(), text("date")),
        Kind::Static => (text("content").to_owned(), text("published_at")),
    };
    Found {
        url: text("url").to_owned(),
        title: text("title").to_owned(),
        content,
        published_at: Some(date.to_owned()),
        score: entry.get("score").and_then(Value::as_f64),
    }
}

/// Without control characters, and cut at so many characters.
fn clean(text: &str, most: usize) -> String {
    text.trim().chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).take(most).collect()
}

impl super::Engine {
    /// What a static engine finds.
    pub fn fixed(&self, query: &Query<'_>) -> Vec<Found> {
        chosen(self.results.iter().cloned(), query)
    }
}
