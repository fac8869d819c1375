//! Messages in other formats: `POST /chat/completions` and `POST /responses`. A request is asked as one in the Messages
//! format, and what is answered is told in the format it came in. Routing, money, plugins and tools are those of every
//! message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderValue;
use http_body::Body as HttpBody;
use serde_json::Map;
use serde_json::value::RawValue;
use tidegate_core::{Api, GenerationId};
use tidegate_wire::chat::Head;
use tidegate_wire::envelope::Violation;
use tidegate_wire::json::{self, Members};
use tidegate_wire::preset::Words;
use tidegate_wire::responses::Results;
use tidegate_wire::sse::TooLarge;
use tidegate_wire::{chat, responses};

use crate::agent;
use crate::relay::{self, Body, Reply};
use crate::snapshot::Settings;
use crate::{Failure, Gateway, KeyEntry, Snapshot};

/// Bytes of the header of warnings.
const LONGEST_WARNINGS: usize = 4 << 10;
/// Events are made here, so their size was limited before.
const LARGEST_EVENT: usize = 256 << 20;

/// A format, and how the caller wants to be answered in it.
enum Form {
    Chat(chat::Form),
    Responses(responses::Form),
}

impl Form {
    fn whole(&self, body: &[u8], head: &Head, results: &Results) -> Option<Bytes> {
        match self {
            Self::Chat(form) => chat::whole(body, head, form),
            Self::Responses(form) => responses::whole(body, head, form, results),
        }
    }

    /// `most`: bytes of an answer.
    fn stream(self, head: Head, most: usize, results: Results) -> Stream {
        match self {
            Self::Chat(form) => Stream::Chat(chat::Stream::new(head, form, LARGEST_EVENT)),
            Self::Responses(form) => {
                Stream::Responses(responses::Stream::new(head, form, LARGEST_EVENT, most, results))
            }
        }
    }
}

impl Gateway {
    /// Serves `POST /chat/completions` for a caller that has been let in. `query` is the raw query string.
    pub async fn chat(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        query: &str,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let asked = chat::read(&body, &|model| search(&snapshot, model))?;
        drop(body);
        let words = Words::Others { only_parallel: asked.only_parallel };
        let cache_key = asked.cache_key.as_deref();
        let head = relay::Head { headers, query, api: Api::Chat, words, cache_key };
        let reply = self.answer(key, head, asked.body).await?;
        self.told(key, reply, Form::Chat(asked.form), &asked.warnings)
    }

    /// Serves `POST /responses` for a caller that has been let in. `query` is the raw query string.
    pub async fn responses(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        query: &str,
        body: Bytes,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let mut asked = responses::read(&body, &|model| search(&snapshot, model))?;
        asked.form.brand.clone_from(&snapshot.settings.brand);
        drop(body);
        let body = asked.body.clone();
        let words = Words::Others { only_parallel: asked.only_parallel };
        let cache_key = asked.cache_key.as_deref();
        let head = relay::Head { headers, query, api: Api::Responses, words, cache_key };
        let reply = match self.answer(key, head, asked.body).await {
            Ok(reply) => reply,
            Err(failure) => {
                let mut reply = self.cut_short(&snapshot, &body, &asked.form, failure)?;
                warn(&mut reply.headers, &snapshot, &asked.warnings);
                return Ok(reply);
            }
        };
        self.told(key, reply, Form::Responses(asked.form), &asked.warnings)
    }

    /// A request that is too long is no mistake in the Responses format: it is an answer that had no room. `body` is the
    /// request in the Messages format.
    fn cut_short(
        &self,
        snapshot: &Snapshot,
        body: &[u8],
        form: &responses::Form,
        failure: Failure,
    ) -> Result<Reply, Failure> {
        let (Some(id), true) = (failure.generation, failure.error_type.is_length()) else { return Err(failure) };
        let members = serde_json::from_slice::<&RawValue>(body).ok().and_then(Members::of).unwrap_or_default();
        let model = members.get("model").and_then(json::string).unwrap_or_default();
        let is_streamed = members.get("stream").is_some_and(|stream| stream.get() == "true");
        let head = self.head(snapshot, id.as_str());
        let routing = failure.more.as_ref().and_then(|more| more.routing.as_deref());
        let told = responses::cut_short(&model, &head, form, routing, is_streamed);
        Ok(relay::reply(id, &snapshot.names, Body::full(told), is_streamed, &[]))
    }

    fn head(&self, snapshot: &Snapshot, id: &str) -> Head {
        let metadata = snapshot.names.metadata_member.clone();
        Head { id: id.to_owned(), created: self.clock.now().0 / 1_000, metadata }
    }

    /// Adds to the header of warnings.
    pub fn warn(&self, headers: &mut HeaderMap, warnings: &[String]) {
        warn(headers, &self.snapshot(), warnings);
    }

    fn told(
        self: &Arc<Self>,
        key: &KeyEntry,
        mut reply: Reply,
        form: Form,
        warnings: &[String],
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let (gate, workspace) = (self.clone(), key.workspace.clone());
        let results: Results = Box::new(move |id| agent::result_of(&gate, &workspace, id));
        let id = reply.headers.get(relay::GENERATION_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let head = self.head(&snapshot, id);
        let most = snapshot.settings.max_answer_bytes;
        reply.body = match reply.body {
            Body::Full(bytes) => {
                let bytes = bytes.unwrap_or_default();
                let nothing = || Failure { generation: GenerationId::parse(&head.id), ..Failure::internal() };
                Body::full(form.whole(&bytes, &head, &results).ok_or_else(nothing)?)
            }
            streamed => Body::Told(Box::new(ToldBody { inner: streamed, stream: form.stream(head, most, results) })),
        };
        warn(&mut reply.headers, &snapshot, warnings);
        Ok(reply)
    }
}

/// A body as it is in the Messages format, and what of it nobody has a use for.
pub(crate) fn in_messages(snapshot: &Snapshot, api: Api, body: &Bytes) -> Result<(Bytes, Vec<String>), Violation> {
    let search = |model: &str| search(snapshot, model);
    match api {
        Api::Chat => chat::read(body, &search).map(|asked| (asked.body, asked.warnings)),
        Api::Responses => responses::read(body, &search).map(|asked| (asked.body, asked.warnings)),
        Api::Messages | Api::Images | Api::Embeddings | Api::Rerank | Api::Speech | Api::Transcriptions => {
            Ok((body.clone(), Vec::new()))
        }
    }
}

/// The tool that searches the web for a model, where there is one.
fn search(snapshot: &Snapshot, model: &str) -> Option<String> {
    let Settings { tools, brand, .. } = &snapshot.settings;
    let can = tools.search.default.is_some() || agent::searches_natively(model, &Map::new(), snapshot);
    can.then(|| format!("{brand}:web_search"))
}

/// Adds to the header of warnings.
fn warn(headers: &mut HeaderMap, snapshot: &Snapshot, warnings: &[String]) {
    let name = &snapshot.names.warnings_header;
    let before = headers.get(name).and_then(|value| value.to_str().ok());
    let said = before.into_iter().chain(warnings.iter().map(String::as_str));
    // Whoever sends very many strangers is told of the first: long heads break clients.
    let mut room = LONGEST_WARNINGS;
    let fits = |text: &&str| {
        room = room.saturating_sub(text.len() + 1);
        room > 0 && HeaderValue::from_str(text).is_ok()
    };
    let said: Vec<&str> = said.filter(fits).collect();
    if let (false, Ok(value)) = (said.is_empty(), HeaderValue::from_str(&said.join(","))) {
        headers.insert(name.clone(), value);
    }
}

enum Stream {
    Chat(chat::Stream),
    Responses(responses::Stream),
}

impl Stream {
    fn feed(&mut self, bytes: Bytes) -> Result<Bytes, TooLarge> {
        match self {
            Self::Chat(stream) => stream.feed(bytes),
            Self::Responses(stream) => stream.feed(bytes),
        }
    }

    /// Whether it ended before what it is made of.
    fn is_over(&self) -> bool {
        match self {
            Self::Chat(_) => false,
            Self::Responses(stream) => stream.is_over(),
        }
    }
}

/// A streamed answer in another format.
pub struct ToldBody {
    inner: Body,
    stream: Stream,
}

impl ToldBody {
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if self.stream.is_over() {
                return Poll::Ready(None);
            }
            let Some(Ok(frame)) = ready!(Pin::new(&mut self.inner).poll_frame(context)) else {
                return Poll::Ready(None);
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let told = self.stream.feed(bytes);
            if self.stream.is_over() {
                tracing::warn!("an answer is too long to be told in events of the Responses format");
                // Nobody hears the rest of it.
                self.inner = Body::Full(None);
            }
            match told {
                // Not a whole event yet, or one that nobody is told of.
                Ok(told) if told.is_empty() => {}
                Ok(told) => return Poll::Ready(Some(told)),
                Err(too_large) => {
                    tracing::error!(%too_large, "an event of our own cannot be told in another format");
                    return Poll::Ready(None);
                }
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stream.is_over() || HttpBody::is_end_stream(&self.inner)
    }
}
