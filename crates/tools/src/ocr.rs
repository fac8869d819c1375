//! Pages that are pictures: how a service that reads them is asked, and what its answer holds. The format is Mistral's,
//! which others speak too.

use std::fmt;

use http::{HeaderMap, Uri};
use serde::Deserialize;
use serde_json::json;
use tidegate_core::money;
use tidegate_core::{Money, Secret};

use crate::headers;

/// Where the vendor serves it.
pub const ADDRESS: &str = "https://api.mistral.ai/v1/ocr";
pub const MODEL: &str = "mistral-ocr-latest";

/// A service that the operator set up.
pub struct Service {
    pub uri: Uri,
    pub key: Option<Secret>,
    pub model: String,
    pub price_per_1000_pages: Money,
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service").field("model", &self.model).finish_non_exhaustive()
    }
}

/// A document as the service read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub pages: usize,
    /// All pages, with a mark before each.
    pub text: String,
    pub images: Vec<Image>,
}

/// A picture on a page, as base64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub media_type: String,
    pub data: String,
}

impl Service {
    /// The question for a PDF, given as base64; nothing when the key cannot be sent.
    pub fn call(&self, pdf: &str) -> Option<(HeaderMap, String)> {
        let headers = headers(self.key.as_ref())?;
        let document = json!({"type": "document_url", "document_url": format!("data:application/pdf;base64,{pdf}")});
        let body = json!({"model": self.model, "document": document, "include_image_base64": true});
        Some((headers, body.to_string()))
    }

    pub fn price(&self, pages: usize) -> Money {
        // A thousandth of the price, in the millionths that are rounded once.
        money::round(i128::from(self.price_per_1000_pages.0) * pages as i128 * 1_000)
    }
}

/// What an answer holds; nothing when it is none.
pub fn read(body: &[u8]) -> Option<Read> {
    #[derive(Deserialize)]
    struct Answer {
        pages: Vec<Page>,
    }
    #[derive(Deserialize)]
    struct Page {
        index: Option<usize>,
        #[serde(default)]
        markdown: String,
        #[serde(default)]
        images: Vec<Picture>,
    }
    #[derive(Deserialize)]
    struct Picture {
        image_base64: Option<String>,
    }
    let Answer { pages } = serde_json::from_slice(body).ok()?;
    let mut read = Read { pages: pages.len(), ..Read::default() };
    for (place, page) in pages.into_iter().enumerate() {
        let number = page.index.unwrap_or(place) + 1;
        let markdown = page.markdown.trim();
        if !markdown.is_empty() {
            let gap = if read.text.is_empty() { "" } else { "\n\n" };
            read.text.push_str(&format!("{gap}[page {number}]\n\n{markdown}"));
        }
        read.images.extend(page.images.into_iter().filter_map(|picture| image(&picture.image_base64?)));
    }
    Some(read)
}

/// A picture with or without the head of a data URL.
fn image(text: &str) -> Option<Image> {
    const KINDS: [(&str, &str); 4] =
        [("/9j/", "image/jpeg"), ("iVBOR", "image/png"), ("R0lG", "image/gif"), ("UklG", "image/webp")];
    let data = text.split_once(";base64,").map_or(text, |(_, data)| data);
    let (_, media_type) = KINDS.iter().find(|(head, _)| data.starts_with(head))?;
    Some(Image { media_type: (*media_type).to_owned(), data: data.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Service {
        let (uri, key) = (Uri::from_static(ADDRESS), Some(Secret::new("k-1")));
        Service { uri, key, model: MODEL.to_owned(), price_per_1000_pages: Money(2_000_000_000) }
    }

    #[test]
    fn a_pdf_is_sent_within_the_question() {
        let (headers, body) = service().call("JVBERi0=").expect("a call");
        assert_eq!(headers["authorization"], "Bearer k-1");
        let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["document"]["document_url"], "data:application/pdf;base64,JVBERi0=");
        assert_eq!((&body["model"], &body["include_image_base64"]), (&json!("mistral-ocr-latest"), &json!(true)));
        assert!(!format!("{:?}", service()).contains("k-1"));
    }

    #[test]
    fn pages_are_marked_and_pictures_known_by_their_first_bytes() {
        let answer = json!({"model": "m", "pages": [
            {"index": 0, "markdown": "# Tide\n", "images": [
                {"id": "a", "image_base64": "data:image/png;base64,/9j/AA=="},
                {"id": "b", "image_base64": "iVBORw0"},
                {"id": "c", "image_base64": "PHN2Zy8+"},
                {"id": "d", "image_base64": null},
            ]},
            {"index": 1, "markdown": "  "},
            {"index": 2, "markdown": "Ebb"},
        ]});
        let read = read(answer.to_string().as_bytes()).expect("an answer");
        assert_eq!((read.pages, &*read.text), (3, "[page 1]\n\n# Tide\n\n[page 3]\n\nEbb"));
        let kinds: Vec<&str> = read.images.iter().map(|image| &*image.media_type).collect();
        assert_eq!(kinds, ["image/jpeg", "image/png"]);
        assert_eq!(super::read(b"{}"), None);
        assert_eq!(super::read(b"<html>"), None);
    }

    #[test]
    fn pages_cost_a_thousandth_each() {
        assert_eq!([0, 1, 3].map(|pages| service().price(pages)), [Money(0), Money(2_000_000), Money(6_000_000)]);
        let odd = Service { price_per_1000_pages: Money(1_500), ..service() };
        assert_eq!(odd.price(1), Money(2), "half up");
    }
}
