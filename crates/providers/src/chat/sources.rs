//! What a model that searches by itself rests its answer on (Perplexity). The text points at it with numbers: `[1]`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tidegate_wire::json::{self, Kind};

use crate::translate::Encoder;
use crate::translate::blocks::Blocks;
use crate::translate::cite::UrlCitation;

/// Address and title, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Sources(Vec<(String, Option<String>)>);

impl Sources {
    /// What is told, with titles where it is told with them.
    pub fn of(citations: Option<&RawValue>, results: Option<&RawValue>) -> Self {
        let listed = |raw: Option<&RawValue>| -> Vec<(String, Option<String>)> {
            let is_list = |raw: &&RawValue| json::kind(raw) == Kind::Array;
            let elements = raw.filter(is_list).and_then(json::elements).unwrap_or_default();
            elements.into_iter().filter_map(source).collect()
        };
        let results = listed(results);
        Self(if results.is_empty() { listed(citations) } else { results })
    }

    /// Takes over what was told last: streams tell it with every piece.
    pub fn update(&mut self, later: Self) {
        if !later.0.is_empty() {
            *self = later;
        }
    }

    /// Cites what the text points at, or all of it where it points at nothing.
    pub fn cite<B: Blocks>(&self, text: &str, encoder: &mut Encoder<B>) {
        let is_named = |number: usize| text.contains(&format!("[{number}]"));
        let names_any = (1..=self.0.len()).any(is_named);
        for ((url, title), number) in self.0.iter().zip(1..) {
            if is_named(number) || !names_any {
                let title = title.as_deref().map(Cow::Borrowed);
                let citation = UrlCitation { url: Cow::Borrowed(url), title, start_index: None, end_index: None };
                encoder.citation(citation.to_json(text));
            }
        }
    }
}

/// An address alone, or an object that has one.
fn source(raw: &RawValue) -> Option<(String, Option<String>)> {
    #[derive(Deserialize)]
    struct Found<'a> {
        #[serde(borrow)]
        url: Cow<'a, str>,
        #[serde(borrow, default)]
        title: Option<Cow<'a, str>>,
    }
    match json::kind(raw) {
        Kind::String => Some((json::string(raw)?.into_owned(), None)),
        Kind::Object => {
            let found: Found<'_> = serde_json::from_str(raw.get()).ok()?;
            Some((found.url.into_owned(), found.title.map(Cow::into_owned)))
        }
        _ => None,
    }
}
