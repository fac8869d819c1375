//! What an answer of Converse rests on, as citations of the Messages format.

use std::borrow::Cow;

use serde::Deserialize;
use tidegate_wire::json::quoted;

/// Longest passage of a page on the web that is repeated, in characters.
const LONGEST: usize = 150;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Citation<'a> {
    #[serde(borrow, default)]
    title: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    source: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    source_content: Option<Vec<Passage<'a>>>,
    #[serde(borrow, default)]
    location: Option<Location<'a>>,
}

#[derive(Deserialize)]
pub(super) struct Passage<'a> {
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location<'a> {
    #[serde(default)]
    document_char: Option<Range>,
    #[serde(default)]
    document_page: Option<Range>,
    #[serde(default)]
    document_chunk: Option<Range>,
    #[serde(borrow, default)]
    web: Option<Web<'a>>,
    #[serde(default)]
    search_result_location: Option<Range>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Range {
    #[serde(default)]
    document_index: Option<f64>,
    #[serde(default)]
    search_result_index: Option<f64>,
    #[serde(default)]
    start: Option<f64>,
    #[serde(default)]
    end: Option<f64>,
}

#[derive(Deserialize)]
struct Web<'a> {
    #[serde(borrow, default)]
    url: Option<Cow<'a, str>>,
}

impl Citation<'_> {
    /// The citation as JSON; none for a place we have no form for.
    pub fn to_json(&self) -> Option<String> {
        let location = self.location.as_ref()?;
        let words: String =
            self.source_content.iter().flatten().filter_map(|passage| passage.text.as_deref()).collect();
        let title = self.title.as_deref().map_or_else(|| "null".to_owned(), quoted);
        let number = |number: Option<f64>| number.unwrap_or(0.0).max(0.0) as u64;
        let documents = [
            (&location.document_char, "char_location", "start_char_index", "end_char_index"),
            (&location.document_page, "page_location", "start_page_number", "end_page_number"),
            (&location.document_chunk, "content_block_location", "start_block_index", "end_block_index"),
        ];
        for (range, kind, start, end) in documents {
            if let Some(range) = range {
                return Some(format!(
                    r#"{{"type":"{kind}","cited_text":{},"document_index":{},"document_title":{title},"{start}":{},"{end}":{},"file_id":null}}"#,
                    quoted(&words),
                    number(range.document_index),
                    number(range.start),
                    number(range.end)
                ));
            }
        }
        if let Some(range) = &location.search_result_location {
            return Some(format!(
                r#"{{"type":"search_result_location","source":{},"title":{title},"cited_text":{},"search_result_index":{},"start_block_index":{},"end_block_index":{}}}"#,
                quoted(self.source.as_deref().unwrap_or_default()),
                quoted(&words),
                number(range.search_result_index),
                number(range.start),
                number(range.end)
            ));
        }
        let url = location.web.as_ref()?.url.as_deref()?;
        let words: String = words.chars().take(LONGEST).collect();
        Some(format!(
            r#"{{"type":"web_search_result_location","url":{},"title":{title},"cited_text":{},"encrypted_index":"tg1"}}"#,
            quoted(url),
            quoted(&words)
        ))
    }
}
