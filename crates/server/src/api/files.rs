//! `/files`: what callers keep here. An inference key sees the files of its workspace, in the form of whoever's client it
//! uses: `provider` says whose, or the client itself.

use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyDataStream, Full};
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::{Value, json};
use tidegate_core::FileId;
use tidegate_gateway::Failure;
use tidegate_gateway::files::{Broken, Given, Problem};
use tidegate_store::files::{FileRow, From};
use tidegate_wire::error::ErrorType;

use super::account::{Answering, Instant, Request, answer, internal, not_found};
use super::form::refused;
use crate::router::{Call, plain};

/// Files of a page, where nobody says how many.
const PAGE: u32 = 20;
const MOST: u32 = 1_000;
const LONGEST_TYPE: usize = 127;
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// Types that a browser is told of.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];
/// What a file can be for, as OpenAI's clients say it.
const PURPOSES: [&str; 9] = [
    "assistants",
    "batch",
    "fine-tune",
    "vision",
    "user_data",
    "evals",
    "assistants_output",
    "batch_output",
    "fine-tune-results",
];
const USUAL_PURPOSE: &str = "user_data";
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// Whose clients an answer is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Ours,
    Openai,
    Anthropic,
}

impl Shape {
    const WORDS: [(&'static str, Self); 2] = [("openai", Self::Openai), ("anthropic", Self::Anthropic)];

    /// Where nobody says it: OpenAI's own clients name themselves, and take no other form. Anthropic's read ours.
    fn of_client(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        if agent.contains("OpenAI/") { Self::Openai } else { Self::Ours }
    }

    fn name(self, brand: &str) -> String {
        match self {
            Self::Ours => brand.to_owned(),
            Self::Openai => "openai".to_owned(),
            Self::Anthropic => "anthropic".to_owned(),
        }
    }

    fn file(self, file: &FileRow, brand: &str) -> Value {
        match self {
            Self::Ours | Self::Anthropic => json!({
                "_shape": self.name(brand),
                "id": file.id.as_str(),
                "type": "file",
                "filename": file.filename,
                "mime_type": file.mime_type,
                "size_bytes": file.size_bytes,
                "created_at": Instant(file.created),
                "downloadable": true,
            }),
            Self::Openai => json!({
                "_shape": self.name(brand),
                "id": file.id.as_str(),
                "object": "file",
                "bytes": file.size_bytes,
                "created_at": file.created.0 / 1000,
                "filename": file.filename,
                "purpose": file.purpose.as_deref().unwrap_or(USUAL_PURPOSE),
                "status": "processed",
            }),
        }
    }

    fn list(self, files: &[FileRow], has_more: bool, brand: &str) -> Value {
        let id = |file: Option<&FileRow>| file.map(|file| file.id.to_string());
        let next = json!(id(files.last()).filter(|_| has_more));
        let mut list = json!({
            "_shape": self.name(brand),
            "data": files.iter().map(|file| self.file(file, brand)).collect::<Vec<_>>(),
            "has_more": has_more,
            "first_id": id(files.first()),
            "last_id": id(files.last()),
        });
        match self {
            Self::Ours => list["cursor"] = next.clone(),
            Self::Openai => list["object"] = json!("list"),
            Self::Anthropic => {}
        }
        // What the newer clients of Anthropic go on with, which come without saying whose they are.
        if self != Self::Openai {
            list["next_page"] = next;
        }
        list
    }

    fn deleted(self, id: &FileId, brand: &str) -> Value {
        match self {
            Self::Ours | Self::Anthropic => {
                json!({"_shape": self.name(brand), "id": id.as_str(), "type": "file_deleted"})
            }
            Self::Openai => {
                json!({"_shape": self.name(brand), "id": id.as_str(), "object": "file", "deleted": true})
            }
        }
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let limit = request.query.number("limit", 1..=MOST).unwrap_or(PAGE);
        let order = request.query.word("order", &[("asc", true), ("desc", false)]);
        let from = from(&mut request);
        let shape = asked(&mut request)?;
        // Both vendors show the newest first.
        let oldest_first = order.unwrap_or(shape == Shape::Ours);
        let (files, has_more) =
            request.app.gateway.list_files(&request.key, from, oldest_first, limit).await.map_err(internal)?;
        Ok(answer(StatusCode::OK, &shape.list(&files, has_more, &request.app.brand())))
    })
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let shape = asked(&mut request)?;
        let id = id(&request)?;
        let file = request.app.gateway.find_file(&request.key, &id).await.map_err(internal)?.ok_or_else(not_found)?;
        Ok(answer(StatusCode::OK, &shape.file(&file, &request.app.brand())))
    })
}

pub fn delete(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let shape = asked(&mut request)?;
        let id = id(&request)?;
        if !request.app.gateway.delete_file(&request.key, &request.by, &id).await.map_err(internal)? {
            return Err(not_found());
        }
        Ok(answer(StatusCode::OK, &shape.deleted(&id, &request.app.brand())))
    })
}

pub fn content(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        asked(&mut request)?;
        let id = id(&request)?;
        let found = request.app.gateway.read_file(&request.key, &id).await.map_err(internal)?;
        let (file, content) = found.ok_or_else(not_found)?;
        // Never as what its sender says it is: a browser would believe that.
        let mut answer = plain(StatusCode::OK, UNKNOWN_TYPE, content.expose(Bytes::copy_from_slice));
        let headers = answer.headers_mut();
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let name: String = url::form_urlencoded::byte_serialize(file.filename.as_bytes()).collect();
        if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename*=UTF-8''{}", name.replace('+', "%20")))
        {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        Ok(answer)
    })
}

/// A file for whoever has its signed address: a person who looks at what a model drew.
pub fn signed(call: Call) -> Answering {
    Box::pin(async move {
        let gateway = &call.app.gateway;
        let missing = |text: String| Failure::new(404, ErrorType::NotFound, text);
        let id = call.params.first().and_then(|id| FileId::parse(id));
        let query = call.head.uri.query().unwrap_or_default();
        let given = |name: &str| {
            let mut pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.find(|(known, _)| known == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        let id = id.ok_or_else(|| missing(Broken::Forged.to_string()))?;
        let checked = gateway.check_signed(&id, &given("expires"), &given("signature"));
        checked.map_err(|broken| missing(broken.to_string()))?;
        let found = gateway.read_signed_file(&id).await.map_err(internal)?;
        let (file, content) = found.ok_or_else(|| missing("This file is not there any more".to_owned()))?;
        // A browser runs nothing of it: only pictures are shown as what they are, and those that could hold programs are not.
        let shown = SHOWN.into_iter().find(|kind| *kind == file.mime_type).unwrap_or(UNKNOWN_TYPE);
        let mut answer = plain(StatusCode::OK, shown, content.expose(Bytes::copy_from_slice));
        let headers = answer.headers_mut();
        headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=300"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
        Ok(answer)
    })
}

pub fn create(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let shape = asked(&mut request)?;
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let wanted = "Content-Type must be multipart/form-data with a boundary";
        let boundary = multer::parse_boundary(kind).map_err(|_| refused("", wanted))?;
        let limits = request.app.gateway.snapshot().settings.files;
        let most = limits.file_bytes;
        let body = request.form_body(limits.form_bytes()).await.map_err(|failure| match failure.status {
            413 => too_large(most),
            _ => failure,
        })?;
        let sent = Sent::of(body, boundary, most).await?;
        if sent.content.is_empty() {
            return Err(refused("file", "must not be empty"));
        }
        let given = Given {
            filename: &sent.filename,
            mime_type: &sent.mime_type,
            purpose: sent.purpose.as_deref(),
            content: sent.content,
        };
        let kept = request.app.gateway.keep_file(&request.key, &request.by, given).await;
        let file = kept.map_err(|problem| match problem {
            Problem::Name => refused("file", format!("its filename {problem}")),
            Problem::TooLarge(most) => too_large(most),
            Problem::Full(_) => refused("file", problem.to_string()),
            Problem::Store(error) => internal(error),
        })?;
        Ok(answer(StatusCode::OK, &shape.file(&file, &request.app.brand())))
    })
}

fn too_large(most: usize) -> Failure {
    Failure::new(413, ErrorType::PayloadTooLarge, format!("Request payload too large: a file has at most {most} bytes"))
}

/// What a form holds.
#[derive(Default)]
struct Sent {
    filename: String,
    mime_type: String,
    purpose: Option<String>,
    content: Vec<u8>,
}

impl Sent {
    async fn of(body: Bytes, boundary: String, most: usize) -> Result<Self, Failure> {
        // The file alone has a limit of its own; all the rest is small already.
        let constraints = Constraints::new().size_limit(SizeLimit::new().for_field("file", most as u64));
        let stream = BodyDataStream::new(Full::new(body));
        let mut form = Multipart::with_constraints(stream, boundary, constraints);
        let broken = |error: multer::Error| match error {
            multer::Error::FieldSizeExceeded { .. } => too_large(most),
            _ => refused("", "the body must be a whole multipart/form-data form"),
        };
        let mut sent: Option<Self> = None;
        let mut purpose = None;
        while let Some(mut part) = form.next_field().await.map_err(broken)? {
            match part.name() {
                Some("file") if sent.is_some() => return Err(refused("file", "stands twice")),
                Some("file") => {
                    let Some(filename) = part.file_name().map(str::to_owned) else {
                        return Err(refused("file", "must be a file with a filename"));
                    };
                    let told = part.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                    let mime_type = told.filter(|kind| is_type(kind)).unwrap_or(UNKNOWN_TYPE).to_owned();
                    let mut content = Vec::new();
                    while let Some(piece) = part.chunk().await.map_err(broken)? {
                        content.extend_from_slice(&piece);
                    }
                    sent = Some(Self { filename, mime_type, purpose: None, content });
                }
                Some("purpose") => {
                    let given = part.text().await.map_err(broken)?;
                    if !PURPOSES.contains(&given.as_str()) {
                        return Err(refused("purpose", format!("must be one of {}", PURPOSES.join(", "))));
                    }
                    purpose = Some(given);
                }
                // What other clients send besides means nothing here.
                _ => {}
            }
        }
        let sent = sent.ok_or_else(|| refused("file", "is required"))?;
        Ok(Self { purpose, ..sent })
    }
}

fn is_type(kind: &str) -> bool {
    kind.len() <= LONGEST_TYPE && kind.contains('/') && kind.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Where a page begins, in the words of any client.
fn from(request: &mut Request) -> From {
    let mut from = From::Start;
    for (name, make) in [
        ("cursor", From::After as fn(FileId) -> From),
        ("after", From::After),
        ("after_id", From::After),
        ("page", From::After),
        ("before_id", From::Before),
    ] {
        let Some(text) = request.query.text(name) else { continue };
        match FileId::parse(&text) {
            _ if from != From::Start => {
                request
                    .query
                    .issues
                    .add(name, "cannot be given together with another of cursor, after, after_id, page, before_id");
            }
            Some(id) => from = make(id),
            None => request.query.issues.add(name, "must be the id of a file of an earlier page"),
        }
    }
    from
}

/// What every operation is asked with. A key has the files of its workspace and no others.
fn asked(request: &mut Request) -> Result<Shape, Failure> {
    let shape = request.query.word("provider", &Shape::WORDS).unwrap_or_else(|| Shape::of_client(request.headers()));
    let workspace = request.query.uuid("workspace_id");
    request.query.check()?;
    if workspace.is_some_and(|workspace| *workspace != *request.key.workspace.0) {
        let message = "workspace_id must be the workspace of the calling key";
        return Err(Failure::new(403, ErrorType::PermissionDenied, message));
    }
    Ok(shape)
}

fn id(request: &Request) -> Result<FileId, Failure> {
    FileId::parse(request.param(0)).ok_or_else(not_found)
}
