//! Images and documents that a request only points at, for endpoints that take nothing but bytes: fetched once per
//! request, whichever endpoints are tried, and put in place of the pointer.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tidegate_providers::translate::Card;
use tidegate_providers::{Class, Fault, Protocol};
use tidegate_routing::Attempt;
use tidegate_wire::messages::{Base64Source, Block, Content, Request, Role, Source, TextSource};
use tokio::task::JoinSet;

use super::job::Job;
use super::signs::Signs;
use super::translate;
use crate::egress::{self, Budget, Fetched, Wanted};
use crate::{Snapshot, Upstream};

/// Fetches of one request at a time, in all, and their bytes together.
const AT_A_TIME: usize = 8;
const MOST: usize = 100;
const MOST_BYTES: usize = 64 << 20;

/// What was fetched for a request; `None` where that failed, which it then does for every endpoint.
pub(super) struct Media {
    known: HashMap<(Wanted, String), Option<Fetched>>,
    budget: Arc<Budget>,
}

impl Default for Media {
    fn default() -> Self {
        Self { known: HashMap::new(), budget: Arc::new(Budget::new(MOST_BYTES)) }
    }
}

impl Media {
    /// Whether an endpoint can be called at all, after what could not be fetched.
    pub fn suits(&self, attempt: &Attempt, snapshot: &Snapshot) -> bool {
        let needs = Needs::of(attempt, snapshot);
        !self.known.iter().any(|((wanted, url), fetched)| fetched.is_none() && needs.inline(*wanted, url))
    }
}

/// The request as the endpoint of an attempt can take it, where that is not as it came. `changed` stands for the body
/// where something else had to be done to it.
pub(super) async fn inlined(
    job: &mut Job,
    attempt: &Attempt,
    changed: Option<Box<Request>>,
) -> Result<Option<Box<Request>>, Fault> {
    let needs = Needs::of(attempt, &job.snapshot);
    if !(needs.images || needs.documents || job.traits.data_url) {
        return Ok(changed);
    }
    // Cheaper than to read all of it.
    if !Signs::of(&job.body).points_elsewhere() {
        return Ok(changed);
    }
    Box::pin(fetched(job, needs, changed)).await
}

/// The same, where it may point at something that must be fetched.
async fn fetched(job: &mut Job, needs: Needs, changed: Option<Box<Request>>) -> Result<Option<Box<Request>>, Fault> {
    // One that cannot be read is refused where it is translated, or by its upstream.
    let request = match &changed {
        Some(request) => request,
        None => match translate::typed(&job.typed, &job.body) {
            Ok(request) => request,
            Err(_) => return Ok(None),
        },
    };
    let pointers = pointers(request, &needs);
    if pointers.is_empty() {
        return Ok(changed);
    }
    let missing = missing(&pointers, &job.media)?;
    let fetched = fetch(job, missing).await;
    let failed = fetched.iter().find(|(_, fetched)| fetched.is_none());
    let failed = failed.and_then(|(key, _)| pointers.iter().find(|pointer| pointer.is(key)));
    let fault = failed.map(|pointer| failure(&pointer.path));
    let request = fault.is_none().then(|| request.clone());
    job.media.known.extend(fetched);
    match (fault, request) {
        (None, Some(mut request)) => {
            replace(&mut request, &needs, &job.media)?;
            Ok(Some(Box::new(request)))
        }
        (fault, _) => Err(fault.unwrap_or_else(|| Fault::without_answer(Class::Own))),
    }
}

fn failure(path: &str) -> Fault {
    refused(format!("Could not download {path}"))
}

/// An address that holds what it points at, which is not what it should be.
fn unfit(path: &str, wanted: Wanted) -> Fault {
    let (what, example) = match wanted {
        Wanted::Image => ("an image", "data:image/png;base64,"),
        Wanted::Document | Wanted::Page => ("a PDF or a text", "data:application/pdf;base64,"),
    };
    refused(format!("{path}.source.url must hold {what} in base64, as {example}... does"))
}

fn refused(message: String) -> Fault {
    Fault { message: Some(message), status: 400, ..Fault::without_answer(Class::Media) }
}

/// What an endpoint takes only as bytes.
#[derive(Clone, Copy)]
struct Needs {
    images: bool,
    documents: bool,
    /// An image's data URL is no address there, even where addresses are taken. A document's is one nowhere.
    unpacked: bool,
    /// Google's own storage may be pointed at.
    keeps_google: bool,
}

impl Needs {
    fn of(attempt: &Attempt, snapshot: &Snapshot) -> Self {
        let Upstream { protocol, .. } = &snapshot.upstreams[attempt.endpoint.provider_index];
        let card: &Card = &snapshot.places[attempt.endpoint.place].card;
        // What cannot be shown at all is not fetched either: the translation says so.
        let native = *protocol == Protocol::Messages;
        Self {
            images: !card.image_url && (native || card.images),
            documents: !card.pdf_url && (native || card.pdf),
            unpacked: native,
            keeps_google: *protocol == Protocol::Gemini,
        }
    }

    fn inline(&self, wanted: Wanted, url: &str) -> bool {
        let needed = match wanted {
            Wanted::Image => self.images,
            Wanted::Document => self.documents,
            // Nobody puts one of these into a request.
            Wanted::Page => false,
        };
        if is_data(url) {
            return needed || self.unpacked || wanted == Wanted::Document;
        }
        needed && !(self.keeps_google && url.starts_with("gs://"))
    }
}

/// A block that points somewhere, and where it stands.
struct Pointer<'r> {
    path: String,
    wanted: Wanted,
    url: &'r str,
}

impl Pointer<'_> {
    fn is(&self, (wanted, url): &(Wanted, String)) -> bool {
        self.wanted == *wanted && self.url == url
    }
}

/// Only what people and tools show: a model's own turns hold none that is sent anywhere.
fn shows(role: &Role) -> bool {
    !matches!(role, Role::Assistant | Role::System)
}

fn pointers<'r>(request: &'r Request, needs: &Needs) -> Vec<Pointer<'r>> {
    let mut found = Vec::new();
    for (place, message) in request.messages.iter().enumerate().filter(|(_, message)| shows(&message.role)) {
        if let Content::Blocks(blocks) = &message.content {
            pointers_in(blocks, &format!("messages[{place}].content"), needs, &mut found);
        }
    }
    found
}

fn pointers_in<'r>(blocks: &'r [Block], path: &str, needs: &Needs, found: &mut Vec<Pointer<'r>>) {
    for (place, block) in blocks.iter().enumerate() {
        let path = || format!("{path}[{place}]");
        let (wanted, source) = match block {
            Block::Image(image) => (Wanted::Image, &image.source),
            Block::Document(document) => (Wanted::Document, &document.source),
            Block::ToolResult(result) => {
                if let Some(Content::Blocks(blocks)) = &result.content {
                    pointers_in(blocks, &format!("{}.content", path()), needs, found);
                }
                continue;
            }
            _ => continue,
        };
        match source {
            Source::Url(source) if needs.inline(wanted, &source.url) => {
                found.push(Pointer { path: path(), wanted, url: &source.url });
            }
            Source::Content(source) => {
                if let Content::Blocks(blocks) = &source.content {
                    pointers_in(blocks, &format!("{}.source.content", path()), needs, found);
                }
            }
            _ => {}
        }
    }
}

/// What is still to be fetched, each once. What failed before fails again without another try.
fn missing(pointers: &[Pointer<'_>], media: &Media) -> Result<Vec<(Wanted, String)>, Fault> {
    let mut missing: Vec<(Wanted, String)> = Vec::new();
    for pointer in pointers.iter().filter(|pointer| !is_data(pointer.url)) {
        let key = (pointer.wanted, pointer.url.to_owned());
        match media.known.get(&key) {
            Some(Some(_)) => {}
            Some(None) => return Err(failure(&pointer.path)),
            None if missing.contains(&key) => {}
            None if missing.len() + media.known.len() >= MOST => return Err(failure(&pointer.path)),
            None => missing.push(key),
        }
    }
    Ok(missing)
}

/// Fetches a few at a time and stops at the first failure.
async fn fetch(job: &Job, missing: Vec<(Wanted, String)>) -> Vec<((Wanted, String), Option<Fetched>)> {
    let mut done = Vec::with_capacity(missing.len());
    // Tasks, so that they go on side by side; they end with the set.
    let mut running = JoinSet::new();
    let mut waiting = missing.into_iter();
    loop {
        while running.len() < AT_A_TIME
            && let Some((wanted, url)) = waiting.next()
        {
            let (gate, snapshot, budget) = (job.gate.clone(), job.snapshot.clone(), job.media.budget.clone());
            running.spawn(async move {
                let fetched = gate.egress.fetch_within(&url, wanted, &snapshot.settings.egress, &budget).await;
                ((wanted, url), fetched.ok())
            });
        }
        match running.join_next().await {
            Some(Ok(one)) => {
                let failed = one.1.is_none();
                done.push(one);
                if failed {
                    return done;
                }
            }
            // It panicked, which is logged there; the block is then found to be missing.
            Some(Err(_)) => {}
            None => return done,
        }
    }
}

fn replace(request: &mut Request, needs: &Needs, media: &Media) -> Result<(), Fault> {
    for (place, message) in request.messages.iter_mut().enumerate().filter(|(_, message)| shows(&message.role)) {
        if let Content::Blocks(blocks) = &mut message.content {
            replace_in(blocks, &format!("messages[{place}].content"), needs, media)?;
        }
    }
    Ok(())
}

fn replace_in(blocks: &mut [Block], path: &str, needs: &Needs, media: &Media) -> Result<(), Fault> {
    for (place, block) in blocks.iter_mut().enumerate() {
        let path = || format!("{path}[{place}]");
        let (wanted, source) = match block {
            Block::Image(image) => (Wanted::Image, &mut image.source),
            Block::Document(document) => (Wanted::Document, &mut document.source),
            Block::ToolResult(result) => {
                if let Some(Content::Blocks(blocks)) = &mut result.content {
                    replace_in(blocks, &format!("{}.content", path()), needs, media)?;
                }
                continue;
            }
            _ => continue,
        };
        match source {
            Source::Url(pointed) if needs.inline(wanted, &pointed.url) => {
                *source = if is_data(&pointed.url) {
                    unpacked(&pointed.url, wanted).ok_or_else(|| unfit(&path(), wanted))?
                } else {
                    let known = media.known.get(&(wanted, pointed.url.clone()));
                    known.and_then(Option::as_ref).and_then(inline).ok_or_else(|| failure(&path()))?
                };
            }
            Source::Content(inner) => {
                if let Content::Blocks(blocks) = &mut inner.content {
                    replace_in(blocks, &format!("{}.source.content", path()), needs, media)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn inline(fetched: &Fetched) -> Option<Source> {
    if fetched.media_type == "text/plain" {
        let text = std::str::from_utf8(&fetched.bytes).ok()?;
        return Some(Source::Text(TextSource::new(fetched.media_type.to_owned(), text.to_owned())));
    }
    Some(Source::Base64(Base64Source::new(fetched.media_type.to_owned(), STANDARD.encode(&fetched.bytes))))
}

fn is_data(url: &str) -> bool {
    url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// A pointer that holds what it points at.
fn unpacked(url: &str, wanted: Wanted) -> Option<Source> {
    let (head, data) = url.get(5..)?.split_once(',')?;
    let (declared, encoding) = head.rsplit_once(';')?;
    if !encoding.trim().eq_ignore_ascii_case("base64") {
        return None;
    }
    let data: String = data.chars().filter(|character| !character.is_ascii_whitespace()).collect();
    let bytes = STANDARD.decode(&data).ok()?;
    let media_type = egress::fitting(wanted, Some(declared), &bytes).ok()?;
    inline(&Fetched { media_type, charset: None, bytes: bytes.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Needs = Needs { images: true, documents: true, unpacked: false, keeps_google: false };
    const PIXEL: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn request(blocks: &str) -> Request {
        Request::parse(format!(r#"{{"messages":[{{"role":"user","content":{blocks}}}]}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn blocks_are_found_wherever_they_may_stand_and_nowhere_else() {
        let url = |kind: &str, name: &str| format!(r#"{{"type":"{kind}","source":{{"type":"url","url":"{name}"}}}}"#);
        let inner = format!(r#"{{"type":"document","source":{{"type":"content","content":[{}]}}}}"#, url("image", "c"));
        let result =
            format!(r#"{{"type":"tool_result","tool_use_id":"t","content":[{},{inner}]}}"#, url("document", "b"));
        let bytes = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}"#;
        let text = format!(
            r#"{{"messages":[{{"role":"user","content":"url"}},{{"role":"assistant","content":[{}]}},{{"role":"user","content":[{bytes},{},{result}]}}]}}"#,
            url("image", "no"),
            url("image", "a")
        );
        let request = Request::parse(text.as_bytes()).unwrap();
        let found = |needs: &Needs| {
            let found =
                pointers(&request, needs).into_iter().map(|pointer| format!("{} {}", pointer.url, pointer.path));
            found.collect::<Vec<_>>()
        };
        assert_eq!(
            found(&ALL),
            [
                "a messages[2].content[1]",
                "b messages[2].content[2].content[0]",
                "c messages[2].content[2].content[1].source.content[0]"
            ]
        );
        assert_eq!(found(&Needs { images: false, ..ALL }), ["b messages[2].content[2].content[0]"]);

        let mut media = Media::default();
        let fetched =
            |media_type, bytes: &'static [u8]| Some(Fetched { media_type, charset: None, bytes: bytes.into() });
        for (wanted, url, fetched) in [
            (Wanted::Image, "a", fetched("image/png", b"A")),
            (Wanted::Document, "b", fetched("text/plain", b"B")),
            (Wanted::Image, "c", fetched("image/gif", b"C")),
        ] {
            media.known.insert((wanted, url.to_owned()), fetched);
        }
        assert!(missing(&pointers(&request, &ALL), &media).unwrap().is_empty());
        let mut replaced = request.clone();
        replace(&mut replaced, &ALL, &media).unwrap();
        assert!(pointers(&replaced, &ALL).is_empty());
        let written = serde_json::to_string(&replaced).unwrap();
        for part in [
            r#"{"type":"base64","media_type":"image/png","data":"QQ=="}"#,
            r#"{"type":"text","media_type":"text/plain","data":"B"}"#,
            r#"{"type":"base64","media_type":"image/gif","data":"Qw=="}"#,
            r#""url":"no""#,
        ] {
            assert!(written.contains(part), "{part} in {written}");
        }
    }

    #[test]
    fn each_is_fetched_once_and_not_again_after_a_failure() {
        let image = r#"{"type":"image","source":{"type":"url","url":"http://a"}}"#;
        let twice = request(&format!("[{image},{image}]"));
        let mut media = Media::default();
        let found = pointers(&twice, &ALL);
        assert_eq!(missing(&found, &media).unwrap(), [(Wanted::Image, "http://a".to_owned())]);
        media.known.insert((Wanted::Image, "http://a".to_owned()), None);
        let fault = missing(&found, &media).unwrap_err();
        assert_eq!(
            (fault.class, fault.message.as_deref()),
            (Class::Media, Some("Could not download messages[0].content[0]"))
        );
        let many: Vec<String> = (0..=MOST).map(|number| image.replace("//a", &format!("//{number}"))).collect();
        let many = request(&format!("[{}]", many.join(",")));
        let fault = missing(&pointers(&many, &ALL), &Media::default()).unwrap_err();
        assert_eq!(fault.message.as_deref(), Some("Could not download messages[0].content[100]"));
    }

    #[test]
    fn google_may_point_at_its_own_storage() {
        let gs = request(r#"[{"type":"image","source":{"type":"url","url":"gs://b/a.png"}}]"#);
        assert!(pointers(&gs, &Needs { keeps_google: true, ..ALL }).is_empty());
        assert_eq!(pointers(&gs, &ALL).len(), 1);
    }

    #[test]
    fn a_data_url_is_no_address_for_a_native_endpoint() {
        let data = request(r#"[{"type":"image","source":{"type":"url","url":"data:image/png;base64,AA=="}}]"#);
        let takes_urls = Needs { images: false, documents: false, unpacked: true, keeps_google: false };
        assert_eq!(pointers(&data, &takes_urls).len(), 1);
        assert!(pointers(&data, &Needs { unpacked: false, ..takes_urls }).is_empty());
    }

    #[test]
    fn a_documents_data_url_is_no_address_for_anybody_and_its_name_stays() {
        let takes_urls = Needs { images: false, documents: false, unpacked: false, keeps_google: false };
        for (url, source) in [
            (
                "data:application/pdf;base64,JVBERi0xLjQK",
                r#"{"type":"base64","media_type":"application/pdf","data":"JVBERi0xLjQK"}"#,
            ),
            ("data:text/plain;base64,YSBsaW5l", r#"{"type":"text","media_type":"text/plain","data":"a line"}"#),
        ] {
            let source_of = format!(r#"{{"type":"url","url":"{url}"}}"#);
            let mut made = request(&format!(r#"[{{"type":"document","title":"a.pdf","source":{source_of}}}]"#));
            replace(&mut made, &takes_urls, &Media::default()).unwrap();
            let written = serde_json::to_string(&made).unwrap();
            assert!(written.contains(source) && written.contains(r#""title":"a.pdf""#), "{written}");
        }
    }

    #[test]
    fn a_data_url_is_unpacked_and_looked_at_like_what_is_fetched() {
        let url = |head: &str, data: &str| unpacked(&format!("data:{head},{data}"), Wanted::Image);
        let png = Some(Source::Base64(Base64Source::new("image/png".to_owned(), PIXEL.to_owned())));
        assert_eq!(url("image/png;base64", PIXEL), png);
        assert_eq!(url("image/jpeg;base64", &PIXEL.replace("AAAA", "AA\n AA")), png);
        for (head, data) in [
            ("image/png", PIXEL),
            ("image/svg+xml;base64", PIXEL),
            ("image/png;base64", "PHN2Zy8+"),
            ("image/png;base64", "%%%"),
            ("image/png;base64", ""),
        ] {
            assert_eq!(url(head, data), None, "{head} {data}");
        }
        assert!(is_data("DATA:x") && !is_data("dat") && !is_data("http://data:") && !is_data("datä:"));
    }
}
