//! What an answer of Gemini rests on, as citations.

use std::borrow::Cow;

use serde::Deserialize;
use tidegate_wire::json::quoted;

use crate::translate::search::{Searched, Source, joined};

/// Longest passage that is repeated in a citation, in characters.
const LONGEST: usize = 150;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Grounding<'a> {
    #[serde(borrow, default)]
    web_search_queries: Option<Vec<Cow<'a, str>>>,
    #[serde(borrow, default)]
    grounding_chunks: Option<Vec<Chunk<'a>>>,
    #[serde(borrow, default)]
    grounding_supports: Option<Vec<Support<'a>>>,
}

impl Grounding<'_> {
    /// How many searches were made, if any were.
    pub fn searches(&self) -> Option<u64> {
        self.web_search_queries.as_ref().map(|queries| queries.len().max(1) as u64)
    }

    /// What was searched and found, where both are told. Which query found what is not.
    pub fn searched(&self) -> Option<Searched> {
        let query = joined(self.web_search_queries.iter().flatten().map(|query| &**query));
        let pages = self.grounding_chunks.as_ref()?.iter().filter_map(|chunk| chunk.web.as_ref());
        let found = pages.filter_map(|web| Some(Source::new(web.uri.as_deref()?, web.title.as_deref())));
        Some(Searched { query, found: found.collect() }).filter(|searched| !searched.query.is_empty())
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    web: Option<Web<'a>>,
}

#[derive(Deserialize)]
struct Web<'a> {
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    title: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Support<'a> {
    #[serde(borrow, default)]
    segment: Option<Segment<'a>>,
    #[serde(default)]
    grounding_chunk_indices: Option<Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Segment<'a> {
    #[serde(default)]
    start_index: Option<f64>,
    #[serde(default)]
    end_index: Option<f64>,
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

/// One citation for each page that a passage rests on. Offsets count bytes of `text`.
pub(super) fn citations(grounding: &Grounding<'_>, text: &str) -> Vec<String> {
    let chunks = grounding.grounding_chunks.as_deref().unwrap_or_default();
    let mut made = Vec::new();
    for support in grounding.grounding_supports.iter().flatten() {
        let Some(segment) = &support.segment else { continue };
        let (start, end) = (segment.start_index.unwrap_or(0.0) as usize, segment.end_index.unwrap_or(0.0) as usize);
        let passage = segment.text.as_deref().or_else(|| text.get(start..end)).unwrap_or_default();
        let passage: String = passage.chars().take(LONGEST).collect();
        let pages = support.grounding_chunk_indices.iter().flatten();
        for web in pages.filter_map(|index| chunks.get(*index as usize)?.web.as_ref()) {
            let Some(uri) = web.uri.as_deref() else { continue };
            made.push(format!(
                r#"{{"type":"web_search_result_location","url":{},"title":{},"cited_text":{},"encrypted_index":"tg1"}}"#,
                quoted(uri),
                web.title.as_deref().map_or_else(|| "null".to_owned(), quoted),
                quoted(&passage)
            ));
        }
    }
    made
}
