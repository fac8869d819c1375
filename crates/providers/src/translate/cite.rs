//! What a passage of an answer rests on, as JSON of the Messages format.

use serde::Deserialize;
use std::borrow::Cow;
use tidegate_wire::json::quoted;

/// Longest passage that is repeated.
const LONGEST: usize = 150;

/// A place on the web, as the chat and Responses protocols name it. Indexes count characters.
#[derive(Deserialize)]
pub struct UrlCitation<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub title: Option<Cow<'a, str>>,
    #[serde(default)]
    pub start_index: Option<f64>,
    #[serde(default)]
    pub end_index: Option<f64>,
}

impl UrlCitation<'_> {
    /// `text`: what the indexes count in.
    pub fn to_json(&self, text: &str) -> String {
        let (start, end) = (self.start_index.unwrap_or(0.0) as usize, self.end_index.unwrap_or(0.0) as usize);
        let passage: String = text.chars().skip(start).take(end.saturating_sub(start).min(LONGEST)).collect();
        format!(
            r#"{{"type":"web_search_result_location","url":{},"title":{},"cited_text":{},"encrypted_index":"tg1"}}"#,
            quoted(&self.url),
            self.title.as_deref().map_or_else(|| "null".to_owned(), quoted),
            quoted(&passage)
        )
    }
}

/// A passage of a document that the request held.
pub fn document(index: usize, title: Option<&str>, start: u64, end: u64, passage: &str) -> String {
    format!(
        r#"{{"type":"char_location","document_index":{index},"document_title":{},"start_char_index":{start},"end_char_index":{end},"file_id":null,"cited_text":{}}}"#,
        title.map_or_else(|| "null".to_owned(), quoted),
        quoted(passage)
    )
}
