//! `file-parser`: documents become text for models that cannot read files. Nobody has to ask for it. What a document says
//! is read by the child process, or by a service for pages that are pictures; the same bytes are read once a day.

mod text;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use memchr::memmem::find;
use serde_json::json;
use tidegate_core::Money;
use tidegate_routing::Modality;
use tidegate_wire::envelope::Envelope;
use tidegate_wire::error::ErrorType;
use tidegate_wire::messages::{Base64Source, Block, Content, Document, Image, Request, Role, Source, Text};
use tokio::task::JoinSet;
use tokio::time::timeout;

pub(crate) use text::Texts;

use super::options::{FileParser, PdfEngine};
use super::{Prepared, Stage};
use crate::choices::Made;
use crate::egress::Budget;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::relay::{Purse, Wishes};
use crate::{Gateway, Snapshot};
use text::{Given, Job, Problem, Told};

/// Documents of one request, their bytes together, and how many are read at a time.
const MOST: usize = 100;
const MOST_BYTES: usize = 64 << 20;
const AT_A_TIME: usize = 4;
/// Pictures of pages that one request shows.
const MOST_IMAGES: usize = 8;
/// In the types of all that is no file to any model: what an office writes, tables and pages. Some write slashes escaped.
const UNREAD: [&[u8]; 5] = [b"officedocument", b"text/", b"text\\/", b"csv", b"xhtml"];
/// How long all of it may take.
const LONGEST: Duration = Duration::from_secs(120);

pub(super) struct Scene<'a> {
    pub gate: &'a Arc<Gateway>,
    pub snapshot: &'a Arc<Snapshot>,
    pub key: &'a Arc<KeyEntry>,
    pub options: &'a FileParser,
    pub stage: &'a Stage<'a>,
}

impl Scene<'_> {
    /// The body with text in place of its documents; nothing where they stay as they are.
    pub async fn parsed(
        &self,
        body: &Bytes,
        envelope: &Envelope<'_>,
        made: &mut Prepared,
    ) -> Result<Option<Bytes>, Failure> {
        if envelope.media.files == 0 || !self.options.enabled {
            return Ok(None);
        }
        let (engine, which) = match self.engine(envelope).await? {
            Some(engine) => (engine, Which::All),
            // No model reads these, whatever else it reads.
            None if UNREAD.iter().any(|word| find(body, word).is_some()) => (PdfEngine::Embedded, Which::Unread),
            None => return Ok(None),
        };
        // One that cannot be read is refused where it is translated, or by its upstream.
        let Ok(mut request) = Request::parse(body) else { return Ok(None) };
        let found = found(&request, which)?;
        if found.is_empty() {
            return Ok(None);
        }
        let purse = self.stage.purse(made)?;
        let with_images = engine != PdfEngine::Embedded && self.serves(envelope, &[Modality::Image]).await;
        let read = self.read(found, engine, with_images, &purse);
        let texts = self.gate.unless_aborted(timeout(LONGEST, read)).await.ok_or_else(Failure::unavailable)?;
        let texts = texts.map_err(|_| {
            Failure::invalid("Invalid request: the documents take too long to read: send fewer or shorter ones")
        })??;
        let mut sum = Sum { images_left: if with_images { MOST_IMAGES } else { 0 }, ..Sum::default() };
        let mut texts = texts.into_iter();
        for message in request.messages.iter_mut().filter(|message| shows(&message.role)) {
            if let Content::Blocks(blocks) = &mut message.content {
                replace(blocks, which, &mut texts, &mut sum);
            }
        }
        if sum.drops_citations {
            made.warnings.push("dropped:citations".to_owned());
        }
        if sum.drops_images {
            made.warnings.push("dropped:document.images".to_owned());
        }
        made.told.fee = made.told.fee.plus(sum.fee);
        made.told.entries.push(sum.entry());
        let body = serde_json::to_vec(&request).map_err(|_| Failure::internal())?;
        Ok(Some(body.into()))
    }

    /// Who makes text of the documents; nobody where the model reads them itself, or nothing could serve anyhow.
    async fn engine(&self, envelope: &Envelope<'_>) -> Result<Option<PdfEngine>, Failure> {
        let documents = &self.snapshot.settings.documents;
        let engine = match self.options.engine {
            Some(PdfEngine::Native) => {
                let reads = self.serves(envelope, &[Modality::File]).await;
                if reads || !self.serves(envelope, &[]).await {
                    return Ok(None);
                }
                let model = envelope.names().next().unwrap_or_default();
                return Err(Failure::invalid(format!(
                    "Invalid request: plugins[{}].pdf.engine is native, but {model} does not read files: leave it out, \
                     or name cloudflare-ai",
                    self.options.index
                )));
            }
            Some(engine) => engine,
            None if self.serves(envelope, &[Modality::File]).await || !self.serves(envelope, &[]).await => {
                return Ok(None);
            }
            None => documents.default,
        };
        if engine == PdfEngine::Ocr && documents.ocr.is_none() {
            return Err(Failure::invalid("mistral-ocr is not configured on this deployment"));
        }
        Ok(Some(engine))
    }

    /// Whether the chosen model could be called, by whoever, with what must be shown to it beside text.
    async fn serves(&self, envelope: &Envelope<'_>, shown: &[Modality]) -> bool {
        let names: Vec<&str> = envelope.names().take(1).collect();
        let mut wishes = Wishes::of(envelope, 0);
        let Ok(default) = self.gate.choices.model(&self.key.workspace, &names, Made::Text) else { return false };
        wishes.default = default;
        // How long it will be is known when the documents have been read.
        wishes.needs.input_tokens = 0;
        wishes.needs.modalities = wishes.needs.modalities.without(Modality::File);
        for modality in shown {
            wishes.needs.modalities = wishes.needs.modalities.with(*modality);
        }
        self.gate.plan(self.snapshot, self.key, &names, &wishes).is_ok()
    }

    /// Reads all of them, a few at a time, and gives back their texts in their order.
    async fn read(
        &self,
        found: Vec<Found>,
        engine: PdfEngine,
        with_images: bool,
        purse: &Arc<Purse>,
    ) -> Result<Vec<Told>, Failure> {
        let (mut running, budget) = (JoinSet::new(), Arc::new(Budget::new(MOST_BYTES)));
        let mut texts: Vec<Option<Told>> = found.iter().map(|_| None).collect();
        // One that the caller did not choose may give way to one that can read more.
        let may_turn = self.options.engine.is_none();
        let (mut waiting, mut problem) = (found.into_iter().enumerate(), None);
        loop {
            while running.len() < AT_A_TIME
                && problem.is_none()
                && let Some((place, found)) = waiting.next()
            {
                let Self { gate, snapshot, key, .. } = *self;
                let (gate, snapshot, workspace) = (gate.clone(), snapshot.clone(), key.workspace.clone());
                let (budget, purse) = (budget.clone(), purse.clone());
                running.spawn(async move {
                    let (settings, budget) = (&snapshot.settings, &*budget);
                    let job = Job { gate: &gate, settings, workspace: &workspace, budget, purse: &purse };
                    let read = job.read(&found.given, engine, may_turn, with_images).await;
                    (place, read.map_err(|problem| refusal(&found.path, problem, &snapshot)))
                });
            }
            match running.join_next().await {
                Some(Ok((place, Ok(read)))) => texts[place] = Some(read),
                // Those that are being read are waited for: what they cost is due.
                Some(Ok((_, Err(failure)))) => problem = problem.or(Some(failure)),
                // It panicked, which is logged there.
                Some(Err(_)) => problem = problem.or_else(|| Some(Failure::internal())),
                None => break,
            }
        }
        if let Some(problem) = problem {
            return Err(problem);
        }
        texts.into_iter().map(|text| text.ok_or_else(Failure::internal)).collect()
    }
}

/// What a caller reads of a document that gave no text.
fn refusal(path: &str, problem: Problem, snapshot: &Snapshot) -> Failure {
    let has_ocr = snapshot.settings.documents.ocr.is_some();
    match problem {
        Problem::Base64 => Failure::invalid(format!("Invalid request: {path}.source.data must be base64")),
        Problem::Type => Failure::invalid(format!(
            "Invalid request: {path}.source.media_type must be application/pdf, text/plain, text/html, text/csv, \
             text/markdown or that of a .docx, .xlsx or .pptx file for this model"
        )),
        Problem::Download => Failure::new(400, ErrorType::ImageDownloadFailed, format!("Could not download {path}")),
        Problem::Unreadable => Failure::invalid(format!(
            "Invalid request: {path} cannot be read: it is broken, locked with a password, or needs more than the \
             parser may use; send its text or pictures of its pages instead"
        )),
        Problem::Textless if has_ocr => Failure::invalid(format!(
            "Invalid request: {path} is a document without a text layer: choose the engine mistral-ocr, or send \
             pictures of its pages"
        )),
        Problem::Textless => Failure::invalid(format!(
            "Invalid request: {path} is a document without a text layer: send pictures of its pages, or use a model \
             that reads files"
        )),
        Problem::Unpaid(failure) => *failure,
        Problem::Service => {
            Failure::new(502, ErrorType::ProviderUnavailable, "The service that reads scanned documents did not answer")
        }
    }
}

/// A document that is to be read, and where it stands.
struct Found {
    path: String,
    given: Given,
}

/// Only what people and tools show.
fn shows(role: &Role) -> bool {
    !matches!(role, Role::Assistant | Role::System)
}

/// Which documents become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    /// Those that no model takes as a file.
    Unread,
}

impl Which {
    fn takes(self, source: &Source) -> bool {
        match (self, source) {
            (Self::All, Source::Base64(_) | Source::Url(_)) => true,
            (Self::Unread, Source::Base64(source)) => text::is_unread(&source.media_type),
            // A plain text in its address goes on as the text that it is.
            (Self::Unread, Source::Url(source)) => held_type(&source.url)
                .is_some_and(|held| text::is_unread(held) && !held.trim().eq_ignore_ascii_case("text/plain")),
            _ => false,
        }
    }
}

/// The type of what an address holds itself.
fn held_type(url: &str) -> Option<&str> {
    let (scheme, held) = url.split_at_checked(5)?;
    let (head, _) = held.split_once(',').filter(|_| scheme.eq_ignore_ascii_case("data:"))?;
    head.split(';').next()
}

fn found(request: &Request, which: Which) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for (place, message) in request.messages.iter().enumerate().filter(|(_, message)| shows(&message.role)) {
        if let Content::Blocks(blocks) = &message.content {
            found_in(blocks, which, &format!("messages[{place}].content"), &mut found)?;
        }
    }
    if found.len() > MOST {
        let path = &found[MOST].path;
        return Err(Failure::invalid(format!("Invalid request: {path}: at most {MOST} documents are read")));
    }
    Ok(found)
}

fn found_in(blocks: &[Block], which: Which, path: &str, found: &mut Vec<Found>) -> Result<(), Failure> {
    for (place, block) in blocks.iter().enumerate() {
        let path = || format!("{path}[{place}]");
        match block {
            Block::Document(document) => match &document.source {
                source if which == Which::Unread && !which.takes(source) => {}
                Source::Base64(source) => {
                    let given = Given::bytes(&source.media_type, &source.data);
                    let problem =
                        || Failure::invalid(format!("Invalid request: {}.source.data must be base64", path()));
                    found.push(Found { path: path(), given: given.ok_or_else(problem)? });
                }
                Source::Url(source) => found.push(Found { path: path(), given: Given::Url(source.url.clone()) }),
                // Those that are kept here have been put in before.
                Source::File(source) => {
                    let text = failure::file_not_found(&source.file_id);
                    return Err(Failure::new(404, ErrorType::NotFound, text));
                }
                _ => {}
            },
            Block::ToolResult(result) => {
                if let Some(Content::Blocks(blocks)) = &result.content {
                    found_in(blocks, which, &format!("{}.content", path()), found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// What was read, for the metadata.
#[derive(Default)]
struct Sum {
    engine: Option<PdfEngine>,
    files: usize,
    pages: usize,
    images: usize,
    images_left: usize,
    cache_hits: usize,
    fee: Money,
    drops_citations: bool,
    /// Pages had pictures that the model is not shown.
    drops_images: bool,
}

impl Sum {
    fn entry(&self) -> String {
        let mut data = json!({
            "engine": self.engine.unwrap_or_default().as_str(),
            "files": self.files,
            "pages": self.pages,
            "images": self.images,
            "cache_hits": self.cache_hits,
        });
        if self.drops_citations {
            data["citations_dropped"] = json!(true);
        }
        // Nano-dollars have nine places, which a double holds.
        let cost: serde_json::Number = serde_json::from_str(&self.fee.to_string()).unwrap_or_else(|_| 0.into());
        let summary = format!("{} as text", counted(self.files, "document"));
        json!({"type": "plugin", "name": "file-parser", "summary": summary, "cost_usd": cost, "data": data}).to_string()
    }

    fn add(&mut self, told: &Told) {
        // The dearest is named: it is what one would ask about.
        if self.engine != Some(PdfEngine::Ocr) {
            self.engine = Some(told.engine);
        }
        self.files += 1;
        self.pages += told.text.pages.unwrap_or(0);
        self.cache_hits += usize::from(told.is_known);
        self.fee = self.fee.plus(told.fee);
    }
}

fn counted(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// Puts texts in place of documents, in the order in which they were found.
fn replace(blocks: &mut Vec<Block>, which: Which, texts: &mut impl Iterator<Item = Told>, sum: &mut Sum) {
    let mut made = Vec::with_capacity(blocks.len());
    for block in std::mem::take(blocks) {
        match block {
            Block::Document(document) if which.takes(&document.source) => match texts.next() {
                Some(told) => shown(document, &told, sum, &mut made),
                None => made.push(Block::Document(document)),
            },
            Block::ToolResult(mut result) => {
                if let Some(Content::Blocks(blocks)) = &mut result.content {
                    replace(blocks, which, texts, sum);
                }
                made.push(Block::ToolResult(result));
            }
            other => made.push(other),
        }
    }
    *blocks = made;
}

/// A document as pictures and text; the text comes last and carries the mark of the cache.
fn shown(document: Document, told: &Told, sum: &mut Sum, out: &mut Vec<Block>) {
    sum.add(told);
    for image in told.text.images.iter().take(sum.images_left) {
        let source = Source::Base64(Base64Source::new(image.media_type.clone(), image.data.clone()));
        out.push(Block::Image(Image::new(source)));
    }
    let images = told.text.images.len().min(sum.images_left);
    sum.images_left -= images;
    sum.images += images;
    sum.drops_images |= images < told.text.images.len();
    sum.drops_citations |= document.citations.flatten().and_then(|citations| citations.enabled).unwrap_or(false);
    let title = document.title.flatten().or_else(|| told.text.title.clone()).unwrap_or_else(|| "untitled".to_owned());
    let pages = told.text.pages.map(|pages| format!(", {}", counted(pages, "page"))).unwrap_or_default();
    let mut text = format!("[Document: {title}{pages}]\n");
    if let Some(context) = document.context.filter(|context| !context.trim().is_empty()) {
        text.push_str(&format!("{context}\n"));
    }
    text.push('\n');
    text.push_str(&told.text.text);
    let mut block = Text::new(text);
    block.cache_control = document.cache_control;
    out.push(Block::Text(block));
}

impl Given {
    fn bytes(media_type: &str, data: &str) -> Option<Self> {
        let data = if data.starts_with("data:") { data.split_once(',')?.1 } else { data };
        let bytes = if data.bytes().any(|byte| byte.is_ascii_whitespace()) {
            let clean: String = data.chars().filter(|character| !character.is_ascii_whitespace()).collect();
            STANDARD.decode(clean)
        } else {
            STANDARD.decode(data)
        };
        Some(Self::Bytes { media_type: media_type.to_owned(), bytes: bytes.ok()?.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::Read;
    use tidegate_tools::ocr;

    fn told(text: &str, images: usize) -> Told {
        let image = ocr::Image { media_type: "image/png".to_owned(), data: "iVBOR".to_owned() };
        let images = vec![image; images];
        let read = Read { title: Some("High water".to_owned()), pages: Some(2), text: text.to_owned(), images };
        Told { text: Arc::new(read), engine: PdfEngine::Embedded, is_known: false, fee: Money::ZERO }
    }

    fn request(blocks: &str) -> Request {
        Request::parse(format!(r#"{{"messages":[{{"role":"user","content":{blocks}}}]}}"#).as_bytes()).unwrap()
    }

    fn replaced(request: &mut Request, texts: Vec<Told>, sum: &mut Sum) -> String {
        let mut texts = texts.into_iter();
        let Content::Blocks(blocks) = &mut request.messages[0].content else { panic!("blocks") };
        replace(blocks, Which::All, &mut texts, sum);
        serde_json::to_string(&blocks).unwrap()
    }

    #[test]
    fn documents_are_found_wherever_they_stand_and_become_texts_there() {
        let pdf = r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE\nRi0="},"title":"Chart","context":"Of Brest","cache_control":{"type":"ephemeral"},"citations":{"enabled":true}}"#;
        let plain = r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"as it is"}}"#;
        let url = r#"{"type":"document","source":{"type":"url","url":"https://a.example/b.pdf"}}"#;
        let result = format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{url}]}}"#);
        let mut request = request(&format!("[{pdf},{plain},{result}]"));
        let found = found(&request, Which::All).unwrap_or_else(|failure| panic!("{}", failure.message));
        let paths: Vec<&str> = found.iter().map(|found| &*found.path).collect();
        assert_eq!(paths, ["messages[0].content[0]", "messages[0].content[2].content[0]"]);
        assert!(matches!(&found[0].given, Given::Bytes { bytes, .. } if &bytes[..] == b"%PDF-"));
        let mut sum = Sum::default();
        let written = replaced(&mut request, vec![told("Flood", 0), told("Ebb", 0)], &mut sum);
        assert_eq!(
            written,
            format!(
                r#"[{{"type":"text","text":"[Document: Chart, 2 pages]\nOf Brest\n\nFlood","cache_control":{{"type":"ephemeral"}}}},{plain},{{"type":"tool_result","tool_use_id":"t","content":[{{"type":"text","text":"[Document: High water, 2 pages]\n\nEbb"}}]}}]"#
            )
        );
        assert!(sum.drops_citations);
        assert_eq!((sum.files, sum.pages, sum.images), (2, 4, 0));
    }

    #[test]
    fn of_nine_pictures_eight_are_shown_and_no_text_is_lost() {
        let pdf = r#"{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":""}}"#;
        let mut sum = Sum { images_left: MOST_IMAGES, ..Sum::default() };
        let written = replaced(&mut request(&format!("[{pdf},{pdf}]")), vec![told("one", 5), told("two", 4)], &mut sum);
        assert_eq!((written.matches(r#""type":"image""#).count(), sum.images), (8, 8));
        assert!(written.contains("one") && written.contains("two"));
        assert!(sum.drops_images);
        let mut sum = Sum::default();
        let written = replaced(&mut request(&format!("[{pdf}]")), vec![told("one", 5)], &mut sum);
        assert_eq!(written.matches(r#""type":"image""#).count(), 0, "a model that takes no pictures gets none");
        assert!(sum.drops_images);
        let mut sum = Sum { images_left: MOST_IMAGES, ..Sum::default() };
        replaced(&mut request(&format!("[{pdf}]")), vec![told("one", 8)], &mut sum);
        assert!(!sum.drops_images, "all of them are shown");
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_place() {
        let named =
            |blocks: &str| found(&request(blocks), Which::All).err().map(|failure| failure.message.into_owned());
        let broken = r#"[{"type":"text","text":"a"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"%%%"}}]"#;
        assert_eq!(named(broken).unwrap(), "Invalid request: messages[0].content[1].source.data must be base64");
        let file = r#"[{"type":"document","source":{"type":"file","file_id":"f"}}]"#;
        assert_eq!(named(file).unwrap(), "File not found: f");
    }
}
