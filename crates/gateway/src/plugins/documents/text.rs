//! The text of one document: who reads it, and what is remembered of it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tidegate_core::{KeyHash, Money, Timestamp, WorkspaceId};
use tidegate_tools::ocr;
use tidegate_tools::page::Kind;

use super::super::options::PdfEngine;
use crate::Gateway;
use crate::egress::{Budget, Wanted};
use crate::failure::Failure;
use crate::relay::Purse;
use crate::snapshot::Settings;
use crate::upstream::whole;

/// How long a text is remembered, in how many bytes, and how many that is where they are short.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
const ROOM: u64 = 64 << 20;
const USUAL: usize = 1_024;
/// Pages of a document of which nobody can tell how many it has.
const MOST_PAGES: usize = 500;

/// A document as it was sent.
pub(super) enum Given {
    Bytes { media_type: String, bytes: Bytes },
    Url(String),
}

/// What a document says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Read {
    pub title: Option<String>,
    pub pages: Option<usize>,
    pub text: String,
    pub images: Vec<ocr::Image>,
}

/// The same, and how it came.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub text: Arc<Read>,
    pub engine: PdfEngine,
    /// It was read before.
    pub is_known: bool,
    pub fee: Money,
}

/// Why there is no text.
#[derive(Debug)]
pub(super) enum Problem {
    Base64,
    Type,
    Download,
    Unreadable,
    /// Its pages are pictures, and nobody reads those.
    Textless,
    /// The service for pictures of pages did not answer.
    Service,
    /// Its fee is more than there is.
    Unpaid(Box<Failure>),
}

/// Texts by workspace, engine and the hash of the document: nobody learns from it what others have sent.
pub(crate) struct Texts(Cache<KeyHash, (Arc<Read>, Timestamp), Size>);

#[derive(Clone)]
struct Size;

impl Weighter<KeyHash, (Arc<Read>, Timestamp)> for Size {
    fn weight(&self, _: &KeyHash, (read, _): &(Arc<Read>, Timestamp)) -> u64 {
        let images: usize = read.images.iter().map(|image| image.data.len()).sum();
        (read.text.len() + images + 256) as u64
    }
}

impl Default for Texts {
    fn default() -> Self {
        Self(Cache::with_weighter(USUAL, ROOM, Size))
    }
}

impl Texts {
    fn key(workspace: &WorkspaceId, engine: &str, bytes: &[u8]) -> KeyHash {
        KeyHash::of(format!("{}\0{engine}\0{}", workspace.0, KeyHash::of(bytes).to_hex()).as_bytes())
    }

    fn known(&self, key: &KeyHash, now: Timestamp) -> Option<Arc<Read>> {
        self.0.get(key).filter(|(_, until)| *until > now).map(|(read, _)| read)
    }

    fn keep(&self, key: KeyHash, read: Arc<Read>, now: Timestamp) {
        self.0.insert(key, (read, now.plus(KEPT_FOR)));
    }
}

/// What reading depends on.
pub(super) struct Job<'a> {
    pub gate: &'a Gateway,
    pub settings: &'a Settings,
    pub workspace: &'a WorkspaceId,
    pub budget: &'a Budget,
    pub purse: &'a Purse,
}

impl Job<'_> {
    /// `may_turn`: to the service for pictures, where the document has no text of its own.
    pub async fn read(
        &self,
        given: &Given,
        engine: PdfEngine,
        may_turn: bool,
        with_images: bool,
    ) -> Result<Told, Problem> {
        let (media_type, bytes) = match given {
            Given::Bytes { media_type, bytes } => (media_type.clone(), bytes.clone()),
            Given::Url(url) => self.fetched(url).await?,
        };
        let kind = kind(&media_type, &bytes).ok_or(Problem::Type)?;
        if kind == Form::Pdf && engine == PdfEngine::Ocr {
            return self.pictures(&bytes, with_images).await;
        }
        let now = self.gate.clock.now();
        let key = Texts::key(self.workspace, &format!("embedded {kind:?}"), &bytes);
        let (read, is_known) = match self.gate.texts.known(&key, now) {
            Some(read) => (read, true),
            None => {
                let read = Arc::new(self.embedded(kind, bytes.clone()).await?);
                self.gate.texts.keep(key, read.clone(), now);
                (read, false)
            }
        };
        if !read.text.trim().is_empty() {
            return Ok(Told { text: read, engine: PdfEngine::Embedded, is_known, fee: Money::ZERO });
        }
        if kind == Form::Pdf && may_turn && self.settings.documents.ocr.is_some() {
            return self.pictures(&bytes, with_images).await;
        }
        Err(Problem::Textless)
    }

    async fn fetched(&self, url: &str) -> Result<(String, Bytes), Problem> {
        if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
            let (head, data) = url[5..].split_once(',').ok_or(Problem::Base64)?;
            let media_type = head.split(';').next().unwrap_or_default();
            let Some(Given::Bytes { media_type, bytes }) = Given::bytes(media_type, data) else {
                return Err(Problem::Base64);
            };
            return Ok((media_type, bytes));
        }
        let fetched = self.gate.egress.fetch_within(url, Wanted::Document, &self.settings.egress, self.budget).await;
        let fetched = fetched.map_err(|_| Problem::Download)?;
        Ok((fetched.media_type.to_owned(), fetched.bytes))
    }

    /// Read in the child, whatever it is that strangers could have made a trap of.
    async fn embedded(&self, form: Form, bytes: Bytes) -> Result<Read, Problem> {
        let kind = match form {
            Form::Pdf => Kind::Pdf,
            Form::Html => Kind::Html,
            Form::Office(kind) => kind,
            Form::Text => {
                let text = std::str::from_utf8(&bytes).map_err(|_| Problem::Unreadable)?;
                return Ok(Read { text: text.to_owned(), ..Read::default() });
            }
        };
        let page = self.gate.extract.text(self.settings, kind, bytes).await.map_err(|_| Problem::Unreadable)?;
        Ok(Read { title: page.title, pages: page.pages, text: page.text, images: Vec::new() })
    }

    /// Read by the service for pictures of pages.
    ///
    /// Pictures cost nothing besides the pages, so they are always asked for: what was read for a model without eyes is
    /// known, too, when one with eyes comes. They are kept apart from the text, which need not go when they do not fit.
    async fn pictures(&self, bytes: &Bytes, with_images: bool) -> Result<Told, Problem> {
        let service = self.settings.documents.ocr.as_ref().ok_or(Problem::Service)?;
        let now = self.gate.clock.now();
        let [words, all] = ["ocr", "ocr with images"].map(|engine| Texts::key(self.workspace, engine, bytes));
        let engine = PdfEngine::Ocr;
        if let Some(text) = self.gate.texts.known(if with_images { &all } else { &words }, now) {
            return Ok(Told { text, engine, is_known: true, fee: Money::ZERO });
        }
        let known = if service.price(1) == Money::ZERO { Some(0) } else { self.pages(bytes).await };
        let most = known.unwrap_or(MOST_PAGES);
        let held = self.purse.hold("reading a scanned document", service.price(most)).await;
        let aside = held.map_err(|failure| Problem::Unpaid(Box::new(failure)))?;
        let read = match self.seen(service, bytes).await {
            Ok(read) => read,
            Err(problem) => {
                if let Some(aside) = aside {
                    aside.pay(self.gate, engine.as_str(), Money::ZERO).await;
                }
                return Err(problem);
            }
        };
        // Where nobody could tell how many there are, no more is due than was held.
        let fee = service.price(if known.is_some() { read.pages } else { read.pages.min(most) });
        if let Some(aside) = aside {
            aside.pay(self.gate, engine.as_str(), fee).await;
        }
        let text = if read.text.is_empty() { "[no text was found]".to_owned() } else { read.text };
        let only_words = Read { title: None, pages: Some(read.pages), text, images: Vec::new() };
        let text = Arc::new(Read { images: read.images, ..only_words.clone() });
        self.gate.texts.keep(words, Arc::new(only_words), now);
        self.gate.texts.keep(all, text.clone(), now);
        Ok(Told { text, engine, is_known: false, fee })
    }

    /// How many pages it has, where anybody can tell.
    async fn pages(&self, bytes: &Bytes) -> Option<usize> {
        let read = self.embedded(Form::Pdf, bytes.clone()).await;
        read.ok().and_then(|read| read.pages).map(|pages| pages.max(1))
    }

    async fn seen(&self, service: &ocr::Service, bytes: &Bytes) -> Result<ocr::Read, Problem> {
        let failed = |problem: &str| {
            tracing::warn!(problem, "a scanned document could not be read");
            Problem::Service
        };
        let call = service.call(&STANDARD.encode(bytes));
        let (headers, body) = call.ok_or_else(|| failed("the key cannot be sent"))?;
        let sent = self.gate.upstream.send(&service.uri, headers, Bytes::from(body).into()).await;
        let answer = sent.map_err(|_| failed("the service did not answer"))?;
        match answer.status().as_u16() {
            200 => {}
            // It looked at the document and cannot read it: that is no fault of the service.
            400 | 413 | 422 => return Err(Problem::Unreadable),
            status => return Err(failed(&format!("the service answered {status}"))),
        }
        let body = whole(answer.into_body(), self.settings.max_answer_bytes).await;
        let body = body.map_err(|_| failed("the answer broke off or is too long"))?;
        ocr::read(&body).ok_or_else(|| failed("the answer is not of the usual form"))
    }
}

/// How bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pdf,
    Html,
    /// Of an office: a text, a table or a presentation.
    Office(Kind),
    Text,
}

/// Texts whose names do not say so.
const TEXTS: [&str; 16] = [
    "application/csv",
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/jsonl",
    "application/ndjson",
    "application/sql",
    "application/toml",
    "application/typescript",
    "application/x-ndjson",
    "application/x-python",
    "application/x-sh",
    "application/x-yaml",
    "application/xml",
    "application/yaml",
    "application/x-httpd-php",
];

/// Whether what is said to be this becomes text for every model: those that read files read PDF.
pub(super) fn is_unread(media_type: &str) -> bool {
    kind(media_type, b"").is_some_and(|form| form != Form::Pdf)
}

/// By their first bytes, then by what they are said to be.
fn kind(media_type: &str, bytes: &[u8]) -> Option<Form> {
    if bytes.starts_with(b"%PDF-") {
        return Some(Form::Pdf);
    }
    if let Some(kind) = Kind::of_office(media_type) {
        return Some(Form::Office(kind));
    }
    let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        "application/pdf" => Some(Form::Pdf),
        "text/html" | "application/xhtml+xml" => Some(Form::Html),
        // Any other text, and what is one under another name: data, code, settings.
        name if name.starts_with("text/") => Some(Form::Text),
        name if name.starts_with("application/") && (name.ends_with("+json") || name.ends_with("+xml")) => {
            Some(Form::Text)
        }
        name if TEXTS.contains(&name) => Some(Form::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_say_more_than_names() {
        assert_eq!(kind("text/plain", b"%PDF-1.7"), Some(Form::Pdf));
        assert_eq!(kind("Text/HTML; charset=utf-8", b"<p>"), Some(Form::Html));
        for name in
            ["text/csv", "application/json", "text/x-python; charset=utf-8", "application/ld+json", "application/x-sh"]
        {
            assert_eq!(kind(name, b"a,b"), Some(Form::Text), "{name}");
        }
        for name in ["application/octet-stream", "image/svg+xml"] {
            assert_eq!(kind(name, b"a,b"), None, "{name}");
        }
        assert_eq!(kind("application/zip", b"PK"), None);
        let office = |name: &str| format!("application/vnd.openxmlformats-officedocument.{name}");
        assert_eq!(kind(&office("spreadsheetml.sheet"), b"PK"), Some(Form::Office(Kind::Sheets)));
        assert_eq!(kind(&office("theme"), b"PK"), None);
    }

    #[test]
    fn what_models_read_themselves_is_pdf() {
        for (media_type, expected) in [
            ("application/pdf", false),
            ("text/csv", true),
            ("text/html; charset=utf-8", true),
            ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", true),
            ("application/zip", false),
        ] {
            assert_eq!(is_unread(media_type), expected, "{media_type}");
        }
    }

    #[test]
    fn a_text_is_known_to_its_workspace_for_a_day() {
        let texts = Texts::default();
        let workspace = |name: &str| WorkspaceId(name.into());
        let key = |name, engine| Texts::key(&workspace(name), engine, b"%PDF-");
        let now = Timestamp(1_790_000_000_000);
        texts.keep(key("a", "embedded"), Arc::default(), now);
        let day = now.plus(KEPT_FOR);
        assert!(texts.known(&key("a", "embedded"), Timestamp(day.0 - 1)).is_some());
        assert!(texts.known(&key("a", "embedded"), day).is_none());
        assert!(texts.known(&key("b", "embedded"), now).is_none(), "another workspace");
        assert!(texts.known(&key("a", "ocr"), now).is_none(), "another engine");
    }
}
