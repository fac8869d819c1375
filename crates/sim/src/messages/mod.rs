//! Anthropic's Messages protocol: `content` decides what to say, `render` writes it, and this file
//! plays the behaviour, faults included.

mod content;
mod error;
mod render;
mod request;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};

use self::content::{Block, Ending, TALE};
use self::render::{Cache, Content, Frame};
use self::request::Request;
use crate::body::{Answer, Part, ResetFlag};
use crate::model;
use crate::script::{Behaviour, End, Script};
use crate::state::{Active, State};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// `POST /v1/messages`.
pub(crate) async fn create(
    state: &Arc<State>,
    headers: &HeaderMap,
    body: &Bytes,
    reset: ResetFlag,
) -> Response<Answer> {
    let open = state.enter();
    let active = state.active();
    let id = state.next_request();
    let call = match Call::new(&active, id, headers, body, Active::take) {
        Ok(call) => call,
        Err(refused) => return refused.response(id).map(|answer| answer.of(open, reset)),
    };
    if !active.script.first_byte.is_zero() {
        tokio::time::sleep(active.script.first_byte).await;
    }
    if *call.behaviour == Behaviour::HangBeforeHeaders {
        // `open` lives on until the client leaves and the server drops this future.
        std::future::pending::<()>().await;
    }
    call.answer(state).map(|answer| answer.of(open, reset))
}

/// `POST /v1/messages/count_tokens`. Errors and silence apply here too, without using up a sequence.
pub(crate) async fn count_tokens(state: &Arc<State>, headers: &HeaderMap, body: &Bytes) -> Response<Answer> {
    state.count_call();
    let active = state.active();
    let id = state.next_request();
    let call = match Call::new(&active, id, headers, body, Active::peek) {
        Ok(call) => call,
        Err(refused) => return refused.response(id),
    };
    match *call.behaviour {
        Behaviour::Status { .. } => call.answer(state),
        Behaviour::HangBeforeHeaders => std::future::pending().await,
        _ => {
            let count = format!(r#"{{"input_tokens":{}}}"#, tokens_of(body));
            respond(200, JSON, id, Answer::whole(count))
        }
    }
}

/// An error of the server itself, such as an unknown path.
pub(crate) fn failure(state: &State, status: u16, message: &str) -> Response<Answer> {
    Refused::new(status, message).response(state.next_request())
}

/// Rendered content of the token streams asked for so far: a benchmark's stream is rendered once.
#[derive(Default)]
pub(crate) struct TokenCache(RwLock<HashMap<(usize, usize), Arc<Content>>>);

impl TokenCache {
    /// Model names can ask for any shape; past this many the cache starts over.
    const SHAPES: usize = 16;

    fn content(&self, count: usize, bytes: usize) -> Arc<Content> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&(count, bytes)).cloned();
        known.unwrap_or_else(|| {
            let content = Arc::new(Content::new(&[Block::Text(vec![delta(bytes); count])]));
            let mut cache = self.0.write().unwrap_or_else(PoisonError::into_inner);
            if cache.len() >= Self::SHAPES {
                cache.clear();
            }
            cache.insert((count, bytes), content.clone());
            content
        })
    }
}

/// A delta's text: a word with the space before it.
fn delta(bytes: usize) -> String {
    " tidegate".chars().cycle().take(bytes).collect()
}

/// A request that no script is asked about.
struct Refused {
    status: u16,
    message: String,
}

impl Refused {
    fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    fn response(&self, id: usize) -> Response<Answer> {
        fail(id, self.status, error::kind_of(self.status), &self.message)
    }
}

/// One request and what is to become of it.
struct Call<'a> {
    id: usize,
    request: Request<'a>,
    input_tokens: u64,
    behaviour: Cow<'a, Behaviour>,
    pace: Duration,
    flush: bool,
}

impl<'a> Call<'a> {
    fn new(
        active: &'a Active,
        id: usize,
        headers: &HeaderMap,
        body: &'a Bytes,
        scripted: impl FnOnce(&'a Active) -> &'a Behaviour,
    ) -> Result<Self, Refused> {
        let script = &active.script;
        if !admitted(script, headers) {
            return Err(Refused::new(401, error::default_message(401)));
        }
        let request = Request::parse(body).map_err(|error| Refused::new(400, error.to_string()))?;
        let by_model = script.by_model.then(|| model::chosen(&request.model)).flatten();
        let (behaviour, pace) = match by_model {
            Some(Ok(chosen)) => (Cow::Owned(chosen.behaviour), chosen.pace),
            Some(Err(reason)) => return Err(Refused::new(400, format!("model: {reason}"))),
            None => (Cow::Borrowed(scripted(active)), None),
        };
        let input_tokens = tokens_of(body);
        let pace = pace.unwrap_or(script.pace);
        Ok(Self { id, request, input_tokens, behaviour, pace, flush: script.flush })
    }

    fn answer(&self, state: &State) -> Response<Answer> {
        let request = &self.request;
        match &*self.behaviour {
            Behaviour::Echo => self.says(content::echo(request)),
            Behaviour::Says(text) => self.says(content::text(text, request)),
            Behaviour::Tokens { count, bytes } => {
                let content = state.tokens.content(*count, *bytes);
                self.message(&content, &Ending::of("end_turn"), Cache::default())
            }
            Behaviour::ToolUse => self.says(content::tool_use(request, 1, &state.tool_ids)),
            Behaviour::ParallelTools(count) => self.says(content::tool_use(request, *count, &state.tool_ids)),
            Behaviour::Thinking => self.says(content::thinking(request)),
            Behaviour::RedactedThinking => self.says(content::redacted_thinking(request)),
            Behaviour::Refusal => self.says(content::stopped("refusal", request)),
            Behaviour::StopReason(reason) => self.says(content::stopped(reason, request)),
            Behaviour::Cached { read, write_5m, write_1h } => {
                let (blocks, ending) = content::text(TALE, request);
                let cache = Cache { read: *read, write_5m: *write_5m, write_1h: *write_1h };
                self.message(&Content::new(&blocks), &ending, cache)
            }
            Behaviour::Status { code, retry_after, error_type, message } => {
                let kind = error_type.as_deref().unwrap_or_else(|| error::kind_of(*code));
                let message = message.as_deref().unwrap_or_else(|| error::default_message(*code));
                let mut response = fail(self.id, *code, kind, message);
                if let Some(value) = retry_after.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
                    response.headers_mut().insert(RETRY_AFTER, value);
                }
                response
            }
            Behaviour::Raw { status, headers, body } => raw(*status, headers, body),
            Behaviour::RawStream { chunks, end } => {
                let parts = chunks.iter().cloned().map(Part::Bytes).collect();
                let answer = Answer::stream(parts).paced(self.pace).flushed(true).ending(*end);
                self.respond(EVENT_STREAM, answer)
            }
            Behaviour::HangMidStream { after } => self.breaks(*after, 0, End::Hang),
            Behaviour::CloseMidStream { after } => self.breaks(*after, 0, End::Cut),
            Behaviour::CloseMidFrame { after } => self.breaks(*after, 1, End::Cut),
            Behaviour::TruncatedBody => self.truncated(),
            Behaviour::Garbage => {
                let page = "<!doctype html>\n<title>Bad gateway</title>\n<h1>Bad gateway</h1>\n";
                self.respond(HeaderValue::from_static("text/html"), Answer::whole(page))
            }
            Behaviour::GarbageStream if request.stream => {
                let broken = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{]\n\n";
                self.respond(EVENT_STREAM, Answer::stream(vec![Part::Bytes(broken.into())]))
            }
            Behaviour::GarbageStream => self.respond(JSON, Answer::whole(r#"{"type":"message","content":[{]"#)),
            Behaviour::Oversize { bytes } => self.oversize(*bytes),
            Behaviour::ErrorInStream { after, error_type, message } => {
                self.error_in_stream(*after, error_type, message)
            }
            Behaviour::EmptyStream if request.stream => self.respond(EVENT_STREAM, Answer::stream(Vec::new())),
            Behaviour::EmptyStream => self.respond(JSON, Answer::whole("")),
            Behaviour::EndsWithoutStop => self.ends_without_stop(),
            Behaviour::HangBeforeHeaders => unreachable!("callers wait instead of asking for an answer"),
        }
    }

    fn says(&self, (blocks, ending): (Vec<Block>, Ending)) -> Response<Answer> {
        self.message(&Content::new(&blocks), &ending, Cache::default())
    }

    fn message(&self, content: &Content, ending: &Ending, cache: Cache) -> Response<Answer> {
        let frame = self.frame(ending, cache);
        if !self.request.stream {
            return self.respond(JSON, Answer::whole(content.whole(&frame)));
        }
        if self.pace.is_zero() && !self.flush {
            return self.respond(EVENT_STREAM, Answer::stream(content.writes(&frame)));
        }
        self.events(content.events(&frame), End::Close)
    }

    fn events(&self, events: Vec<Bytes>, end: End) -> Response<Answer> {
        let parts = events.into_iter().map(Part::Bytes).collect();
        let answer = Answer::stream(parts).paced(self.pace).flushed(self.flush).ending(end);
        self.respond(EVENT_STREAM, answer)
    }

    /// The text of faults, whole and as events.
    fn tale(&self) -> (Bytes, Vec<Bytes>) {
        let content = Content::new(&[Block::Text(content::words(TALE))]);
        let ending = Ending::of("end_turn");
        let frame = self.frame(&ending, Cache::default());
        (content.whole(&frame), content.events(&frame))
    }

    /// Stops after some events, and half of each of the next `halves`.
    fn breaks(&self, after: usize, halves: usize, end: End) -> Response<Answer> {
        let (whole, mut events) = self.tale();
        if !self.request.stream {
            let half = whole.slice(..whole.len() / 2);
            let answer = Answer::whole(half).declaring(whole.len()).ending(end);
            return self.respond(JSON, answer);
        }
        for event in events.iter_mut().skip(after).take(halves) {
            event.truncate(event.len() / 2);
        }
        events.truncate(after + halves);
        self.events(events, end)
    }

    fn truncated(&self) -> Response<Answer> {
        let (whole, events) = self.tale();
        let (kind, whole) = match self.request.stream {
            true => (EVENT_STREAM, Bytes::from(events.concat())),
            false => (JSON, whole),
        };
        let half = whole.slice(..whole.len() / 2);
        self.respond(kind, Answer::whole(half).declaring(whole.len()).ending(End::Cut))
    }

    /// An ordinary answer whose text, in place of a marker, is filler made on the way out.
    fn oversize(&self, bytes: usize) -> Response<Answer> {
        const MARKER: &[u8] = b"@filler@";
        let content = Content::new(&[Block::Text(vec!["@filler@".to_owned()])]);
        let ending = Ending::of("end_turn");
        let frame = self.frame(&ending, Cache::default());
        let around = match self.request.stream {
            true => Bytes::from(content.events(&frame).concat()),
            false => content.whole(&frame),
        };
        // The last one: the name of the model comes before it and may hold anything.
        let at = around.windows(MARKER.len()).rposition(|window| window == MARKER);
        let at = at.expect("the marker is the text that was rendered");
        let (lead, tail) = (around.slice(..at), around.slice(at + MARKER.len()..));
        let parts = vec![Part::Bytes(lead), Part::Fill(bytes), Part::Bytes(tail)];
        match self.request.stream {
            true => self.respond(EVENT_STREAM, Answer::stream(parts)),
            false => self.respond(JSON, Answer::sized(parts)),
        }
    }

    fn error_in_stream(&self, after: usize, kind: &str, message: &str) -> Response<Answer> {
        if !self.request.stream {
            return fail(self.id, error::status_of(kind), kind, message);
        }
        let (_, mut events) = self.tale();
        events.truncate(after);
        events.push(render::event("error", &error::body(kind, message, &request_id(self.id))));
        self.events(events, End::Close)
    }

    fn ends_without_stop(&self) -> Response<Answer> {
        if self.request.stream {
            let (_, mut events) = self.tale();
            events.pop();
            return self.events(events, End::Close);
        }
        let blocks = vec![Block::Text(content::words(TALE))];
        self.says((blocks, Ending { reason: None, ..Ending::of("") }))
    }

    fn frame<'f>(&'f self, ending: &'f Ending, cache: Cache) -> Frame<'f> {
        Frame { id: self.id, model: &self.request.model, ending, input_tokens: self.input_tokens, cache }
    }

    fn respond(&self, kind: HeaderValue, answer: Answer) -> Response<Answer> {
        respond(200, kind, self.id, answer)
    }
}

fn admitted(script: &Script, headers: &HeaderMap) -> bool {
    let Some(key) = &script.require_key else {
        return true;
    };
    let api_key = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    [api_key, bearer].contains(&Some(key))
}

/// A stand-in for a tokenizer: four bytes of the request are one token.
fn tokens_of(body: &Bytes) -> u64 {
    body.len().div_ceil(4) as u64
}

fn request_id(id: usize) -> String {
    format!("req_sim_{id}")
}

fn fail(id: usize, status: u16, kind: &str, message: &str) -> Response<Answer> {
    let body = error::body(kind, message, &request_id(id));
    respond(status, JSON, id, Answer::whole(body))
}

fn respond(status: u16, kind: HeaderValue, id: usize, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    *response.status_mut() = status_code(status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    let id = HeaderValue::try_from(request_id(id)).expect("an id is ASCII");
    headers.insert(REQUEST_ID, id);
    response
}

fn raw(status: u16, headers: &[(String, String)], body: &Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::whole(body.clone()));
    *response.status_mut() = status_code(status);
    for (name, value) in headers {
        // A header HTTP does not allow cannot be sent; the script's author sees it missing.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
