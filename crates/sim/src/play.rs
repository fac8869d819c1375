//! Plays a behaviour on any protocol: from a request to a response, faults included.
//!
//! What differs between protocols is behind `Speak`; a fault happens here, once for all of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};

use crate::aws;
use crate::body::{Answer, Part, ResetFlag};
use crate::content::{self, Block, Ending, TALE};
use crate::events::Events;
use crate::failure::{Failure, status_of};
use crate::quirk::Quirk;
use crate::said::{Body, Cache, Said};
use crate::script::{Behaviour, End};
use crate::speak::{EVENT_STREAM, JSON, Odd, Speak, request_id};
use crate::state::{Active, State};
use crate::{framing, model, refuse};

/// Answers a call.
pub(crate) async fn create<'a, S: Speak<'a>>(
    state: &Arc<State>,
    head: &Parts,
    body: &'a Bytes,
    reset: ResetFlag,
) -> Response<Answer> {
    let open = state.enter();
    let active = state.active();
    let id = state.next_request();
    let call = match Call::<S>::new(state, &active, id, head, body, Active::take) {
        Ok(call) => call,
        Err(refused) => return fail::<S>(id, &refused).map(|answer| answer.of(open, reset)),
    };
    if !active.script.first_byte.is_zero() {
        tokio::time::sleep(active.script.first_byte).await;
    }
    if *call.behaviour == Behaviour::HangBeforeHeaders {
        // `open` lives on until the client leaves and the server drops this future.
        std::future::pending::<()>().await;
    }
    call.answer().map(|answer| answer.of(open, reset))
}

/// Counts tokens. Errors and silence apply here too, without using up a sequence.
pub(crate) async fn count<'a, S: Speak<'a>>(state: &Arc<State>, head: &Parts, body: &'a Bytes) -> Response<Answer> {
    state.count_call();
    let active = state.active();
    let id = state.next_request();
    let call = match Call::<S>::new(state, &active, id, head, body, Active::peek) {
        Ok(call) => call,
        Err(refused) => return fail::<S>(id, &refused),
    };
    match *call.behaviour {
        _ if call.refused.is_some() => call.answer(),
        Behaviour::Status { .. } => call.answer(),
        Behaviour::HangBeforeHeaders => std::future::pending().await,
        _ => respond::<S>(200, JSON, id, Answer::whole(S::counted(tokens_of(body)))),
    }
}

/// An error of the server itself, such as an unknown path.
pub(crate) fn failure<'a, S: Speak<'a>>(state: &State, status: u16, message: &str) -> Response<Answer> {
    fail::<S>(state.next_request(), &Failure::new(status, message))
}

/// One request and what is to become of it.
struct Call<'s, S> {
    state: &'s State,
    id: usize,
    request: S,
    input_tokens: u64,
    behaviour: Cow<'s, Behaviour>,
    /// What a scenario finds in the request that it refuses.
    refused: Option<Failure>,
    pace: Duration,
    flush: bool,
}

impl<'a, 's, S: Speak<'a>> Call<'s, S> {
    fn new(
        state: &'s State,
        active: &'s Active,
        id: usize,
        head: &Parts,
        body: &'a Bytes,
        scripted: impl FnOnce(&'s Active) -> &'s Behaviour,
    ) -> Result<Self, Failure> {
        let script = &active.script;
        if let Some(key) = &script.require_key {
            S::admit(key, head)?;
        }
        let request = S::read(head, body)?;
        let by_model = script.by_model.then(|| model::chosen(request.model())).flatten();
        let (behaviour, pace) = match by_model {
            Some(Ok(chosen)) => (Cow::Owned(chosen.behaviour), chosen.pace),
            Some(Err(reason)) => return Err(Failure::at("model", "invalid_value", format!("model: {reason}"))),
            None => (Cow::Borrowed(scripted(active)), None),
        };
        if let Behaviour::Quirk(quirk) = *behaviour
            && !quirk.protocols().contains(&S::PROTOCOL)
        {
            let message = format!("model: quirk {} does not occur on this protocol", quirk.name());
            return Err(Failure::at("model", "invalid_value", message));
        }
        let refused = refused::<S>(&behaviour, head, body)?;
        let pace = pace.unwrap_or(script.pace);
        Ok(Self { state, id, request, input_tokens: tokens_of(body), behaviour, refused, pace, flush: script.flush })
    }

    fn answer(&self) -> Response<Answer> {
        let request = &self.request;
        let ids = &self.state.tool_ids;
        if let Some(failure) = &self.refused {
            return self.fail(failure);
        }
        match &*self.behaviour {
            Behaviour::Echo
            | Behaviour::RefuseMember(_)
            | Behaviour::RefuseBeta(_)
            | Behaviour::RefuseSignature
            | Behaviour::Image { .. } => self.says(content::echo(request)),
            Behaviour::Says(text) => self.says(content::text(text, request)),
            Behaviour::Tokens { count, bytes } => {
                let body = Body::Tokens { count: *count, bytes: *bytes };
                self.message(&self.said(body, Ending::of("end_turn")))
            }
            Behaviour::ToolUse => self.says(content::tool_use(request, 1, ids)),
            Behaviour::Calls { name, input } => self.says(content::call(request, name, input, ids)),
            Behaviour::Asks { text, calls } => self.says(content::asks(request, text, calls, ids)),
            Behaviour::Searches { query, found, text, calls } => {
                self.says(content::searches(request, query, found, (text, calls), ids))
            }
            Behaviour::ParallelTools(count) => {
                self.says(content::tool_use(request, (*count).min(request.most_calls()), ids))
            }
            Behaviour::Thinking => self.says(content::thinking(request)),
            Behaviour::RedactedThinking => self.says(content::redacted_thinking(request)),
            Behaviour::Refusal => self.says(content::stopped("refusal", request)),
            Behaviour::StopReason(reason) => self.says(content::stopped(reason, request)),
            Behaviour::Cached { read, write_5m, write_1h } => {
                let (blocks, ending) = content::text(TALE, request);
                let cache = Cache { read: *read, write_5m: *write_5m, write_1h: *write_1h };
                self.message(&Said { cache, ..self.said(Body::Blocks(blocks), ending) })
            }
            Behaviour::Status { code, retry_after, error_type, message } => self.fail(&Failure {
                status: *code,
                kind: error_type.clone(),
                message: message.clone(),
                retry_after: retry_after.clone(),
                ..Failure::default()
            }),
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
            Behaviour::GarbageStream if request.stream() => {
                self.respond(request.stream_type(), Answer::stream(vec![Part::Bytes(request.broken_stream())]))
            }
            Behaviour::GarbageStream => self.respond(JSON, Answer::whole(S::BROKEN.1)),
            Behaviour::Oversize { bytes } => self.oversize(*bytes),
            Behaviour::ErrorInStream { after, error_type, message } => {
                self.error_in_stream(*after, error_type, message)
            }
            Behaviour::EmptyStream if request.stream() => {
                self.respond(request.stream_type(), Answer::stream(Vec::new()))
            }
            Behaviour::EmptyStream => self.respond(JSON, Answer::whole("")),
            Behaviour::EndsWithoutStop => self.ends_without_stop(),
            Behaviour::Quirk(quirk) => self.quirk(*quirk),
            Behaviour::HangBeforeHeaders => unreachable!("callers wait instead of asking for an answer"),
        }
    }

    fn said(&self, body: Body, ending: Ending) -> Said<'_> {
        Said {
            id: self.id,
            model: self.request.model(),
            body,
            ending,
            input_tokens: self.input_tokens,
            cache: Cache::default(),
            quirk: None,
            state: self.state,
        }
    }

    fn says(&self, (blocks, ending): (Vec<Block>, Ending)) -> Response<Answer> {
        self.message(&self.said(Body::Blocks(blocks), ending))
    }

    fn message(&self, said: &Said<'_>) -> Response<Answer> {
        if !self.request.stream() {
            return self.respond(JSON, Answer::whole(self.request.whole(said)));
        }
        self.stream(&self.request.events(said))
    }

    fn stream(&self, events: &Events) -> Response<Answer> {
        if self.pace.is_zero() && !self.flush {
            return self.respond(self.request.stream_type(), Answer::stream(events.writes()));
        }
        self.events(events.each(), End::Close)
    }

    fn events(&self, events: Vec<Bytes>, end: End) -> Response<Answer> {
        let parts = events.into_iter().map(Part::Bytes).collect();
        let answer = Answer::stream(parts).paced(self.pace).flushed(self.flush).ending(end);
        self.respond(self.request.stream_type(), answer)
    }

    fn quirk(&self, quirk: Quirk) -> Response<Answer> {
        let (blocks, ending) = content::quirky(quirk, &self.request, &self.state.tool_ids);
        let said = Said { quirk: Some(quirk), ..self.said(Body::Blocks(blocks), ending) };
        if let Some((status, odd)) = self.request.odd(quirk, &said) {
            return match odd {
                Odd::Whole(body) => respond::<S>(status, JSON, self.id, Answer::whole(body)),
                Odd::Events(events) => self.stream(&events),
            };
        }
        if self.request.stream() && quirk == Quirk::WholeForStream {
            return self.respond(JSON, Answer::whole(self.request.whole(&said)));
        }
        if self.request.stream()
            && (self.request.stream_type() == EVENT_STREAM || quirk == Quirk::SplitBytes)
            && let Some(parts) = framing::odd(quirk, &self.request.events(&said).each())
        {
            // Bytes on their own only show their cuts when they are not gathered again.
            let parts = parts.into_iter().map(Part::Bytes).collect();
            let answer = Answer::stream(parts).paced(self.pace).flushed(true);
            return self.respond(self.request.stream_type(), answer);
        }
        self.message(&said)
    }

    /// The text of faults, whole and as events.
    fn tale(&self) -> (Bytes, Vec<Bytes>) {
        let blocks = vec![Block::Text(content::words(TALE))];
        let said = self.said(Body::Blocks(blocks), Ending::of("end_turn"));
        (self.request.whole(&said), self.request.events(&said).each())
    }

    /// Stops after some events, and half of each of the next `halves`.
    fn breaks(&self, after: usize, halves: usize, end: End) -> Response<Answer> {
        let (whole, mut events) = self.tale();
        if !self.request.stream() {
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
        let (kind, whole) = match self.request.stream() {
            true => (self.request.stream_type(), Bytes::from(events.concat())),
            false => (JSON, whole),
        };
        let half = whole.slice(..whole.len() / 2);
        self.respond(kind, Answer::whole(half).declaring(whole.len()).ending(End::Cut))
    }

    /// An ordinary answer whose text, in place of a marker, is filler made on the way out. Some protocols
    /// say their text more than once.
    fn oversize(&self, bytes: usize) -> Response<Answer> {
        const MARKER: &str = "@filler@";
        if self.request.stream() && self.request.stream_type() == aws::STREAM {
            // Frames carry their lengths and checksums, so there the text has to be made beforehand.
            let blocks = vec![Block::Text(vec!["a".repeat(bytes)])];
            return self.message(&self.said(Body::Blocks(blocks), Ending::of("end_turn")));
        }
        let blocks = vec![Block::Text(vec![MARKER.to_owned()])];
        let said = self.said(Body::Blocks(blocks), Ending::of("end_turn"));
        // A model of that name must not be filled as well.
        let said = Said { model: if said.model.contains(MARKER) { "m" } else { said.model }, ..said };
        let around = match self.request.stream() {
            true => Bytes::from(self.request.events(&said).each().concat()),
            false => self.request.whole(&said),
        };
        let mut parts = Vec::new();
        let mut start = 0;
        for at in memchr::memmem::find_iter(&around, MARKER) {
            parts.push(Part::Bytes(around.slice(start..at)));
            parts.push(Part::Fill(bytes));
            start = at + MARKER.len();
        }
        parts.push(Part::Bytes(around.slice(start..)));
        match self.request.stream() {
            true => self.respond(self.request.stream_type(), Answer::stream(parts)),
            false => self.respond(JSON, Answer::sized(parts)),
        }
    }

    fn error_in_stream(&self, after: usize, kind: &str, message: &str) -> Response<Answer> {
        let failure = Failure { kind: Some(kind.to_owned()), ..Failure::new(status_of(kind), message) };
        if !self.request.stream() {
            return self.fail(&failure);
        }
        let (_, mut events) = self.tale();
        events.truncate(after);
        let error = self.request.error_event(self.id, events.len(), &failure);
        events.push(error);
        self.events(events, End::Close)
    }

    fn ends_without_stop(&self) -> Response<Answer> {
        if self.request.stream() {
            let (_, mut events) = self.tale();
            events.truncate(events.len().saturating_sub(self.request.closing()));
            return self.events(events, End::Close);
        }
        let blocks = vec![Block::Text(content::words(TALE))];
        self.says((blocks, Ending { reason: None, ..Ending::of("") }))
    }

    fn fail(&self, failure: &Failure) -> Response<Answer> {
        fail::<S>(self.id, failure)
    }

    fn respond(&self, kind: HeaderValue, answer: Answer) -> Response<Answer> {
        respond::<S>(200, kind, self.id, answer)
    }
}

/// What a scenario of refusal finds in a request.
fn refused<'a, S: Speak<'a>>(behaviour: &Behaviour, head: &Parts, body: &Bytes) -> Result<Option<Failure>, Failure> {
    let parsed = || serde_json::from_slice(body).unwrap_or_default();
    Ok(match behaviour {
        Behaviour::RefuseMember(name) => refuse::member(&parsed(), name).map(|path| S::unknown(&path)),
        Behaviour::RefuseSignature => refuse::signature(&parsed()).map(|path| S::bad_signature(&path)),
        Behaviour::RefuseBeta(name) => match S::bad_beta(name) {
            Some(failure) => S::betas(head, &parsed()).contains(name).then_some(failure),
            None => return Err(Failure::at("model", "invalid_value", "model: this protocol has no betas")),
        },
        _ => None,
    })
}

/// A stand-in for a tokenizer: four bytes of the request are one token.
fn tokens_of(body: &Bytes) -> u64 {
    body.len().div_ceil(4) as u64
}

pub(crate) fn fail<'a, S: Speak<'a>>(id: usize, failure: &Failure) -> Response<Answer> {
    let (body, headers) = S::error(id, failure);
    let mut response = respond::<S>(failure.status, JSON, id, Answer::whole(body));
    response.headers_mut().extend(headers);
    response
}

pub(crate) fn respond<'a, S: Speak<'a>>(status: u16, kind: HeaderValue, id: usize, answer: Answer) -> Response<Answer> {
    let mut response = Response::new(answer);
    *response.status_mut() = status_code(status);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, kind);
    let id = HeaderValue::try_from(request_id(id)).expect("an id is ASCII");
    headers.insert(S::REQUEST_ID, id);
    response
}

pub(crate) fn raw(status: u16, headers: &[(String, String)], body: &Bytes) -> Response<Answer> {
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
