//! One call of an upstream: sent, and its answer received, whole or up to the first content of a stream.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use tidegate_core::{Api, Timestamp};
use tidegate_providers::anthropic;
use tidegate_providers::repair::{self, Repair};
use tidegate_providers::translate::{Answered as Told, Context};
use tidegate_providers::{Class, Fault, Protocol, adapter, chat, fault};
use tidegate_routing::Attempt;
use tidegate_wire::answer::{Additions, END_TURN, Message};
use tidegate_wire::chat::is_readable;
use tidegate_wire::sse::Splitter;
use tokio::time::{Instant, timeout_at};

use super::call::{self, Call};
use super::gather::{self, Gathered, Gathering};
use super::job::Job;
use super::pump::{BYTES_PER_TOKEN, Outbox, Pump, Step};
use super::refused::{self, REFUSAL};
use super::{framing, translate};
use crate::error_rules;
use crate::ledger::fail;
use crate::upstream::{self, Flow};

/// Bytes of a stream that are held back while its first content is awaited.
const MOST_HELD: usize = 256 << 10;

/// A stream whose first content is here.
pub(super) struct Opened {
    /// Where more comes from; nothing when the answer was made here.
    pub body: Option<Flow>,
    pub splitter: Splitter,
    pub pump: Pump,
    pub out: Outbox,
    /// Set when the whole stream was in its first bytes.
    pub finished: bool,
}

/// An answer that has begun, and what it must be read with when it is not in the Messages format.
struct Answered {
    answer: Answer,
    context: Option<Context>,
}

enum Answer {
    Live(Response<Flow>),
    /// Read from what looked like an error.
    Made(Bytes),
}

async fn send(job: &mut Job, attempt: &Attempt) -> Result<Answered, Fault> {
    let Call { uri, headers, body, context, account } = call::prepare(job, attempt).await?;
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    job.ticket.called(attempt, !upstream.supports_cancel);
    job.ticket.asks_for(job.cap.or(job.max_tokens));
    fail::point("dispatching");
    let response = job.gate.upstream.send(&uri, headers, body).await?;
    fail::point("dispatched");
    if response.status() == StatusCode::OK {
        return Ok(Answered { answer: Answer::Live(response), context });
    }
    let (head, body) = response.into_parts();
    let body = upstream::error_body(body).await;
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    if let Some(context) = context.as_ref().filter(|_| upstream.protocol == Protocol::Chat)
        && let Some(made) = chat::salvage(&body, context)
    {
        return Ok(Answered { answer: Answer::Made(made), context: Some(context.clone()) });
    }
    // What passes through unread comes as the client asks for it.
    let asked = context.is_some() && translate::asks_to_stream(job, attempt);
    let may_help = |repair: &Repair| asked || !repair::is_of_stream(repair);
    job.hint = repair::repairs(head.status.as_u16(), &body);
    job.hint.retain(may_help);
    if let (StatusCode::UNAUTHORIZED, Some(account)) = (head.status, account) {
        job.gate.tokens.forget(&account, attempt.credential.is_none()).await;
        job.hint = vec![Repair::Again];
    }
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    Err(error_rules::classify(upstream, &head, &body, job.gate.clock.now()))
}

/// Until when an answer that comes whole must have begun. It begins when the model has thought and said everything, so what
/// bounds the first content of a stream would cut answers that are only long; but where somebody else could answer, as much
/// time is left for that as was waited.
pub(super) fn patience(job: &Job, attempt: &Attempt, has_alternative: bool, deadline: Instant) -> Instant {
    if !has_alternative {
        return deadline;
    }
    let now = Instant::from_std(job.gate.clock.instant());
    let half = deadline.saturating_duration_since(now) / 2;
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    // Who says how long a provider takes knows it better.
    let alone = upstream.first_content(&job.snapshot.settings, false);
    let limit = if upstream.patience.first_content_alone.is_some() { alone } else { half.max(alone) };
    (now + limit).min(deadline)
}

/// Takes the work by reference: a future that is passed by value is kept twice in the one that waits for it.
async fn until<T>(limit: Instant, work: Pin<&mut impl Future<Output = Result<T, Fault>>>) -> Result<T, Fault> {
    timeout_at(limit, work).await.unwrap_or_else(|_| Err(Fault::without_answer(Class::Timeout)))
}

/// How long a whole answer is waited for.
pub(super) struct Limits {
    /// Until it begins.
    pub patience: Instant,
    pub deadline: Instant,
    pub has_alternative: bool,
}

/// A whole answer, ready for the client.
pub(super) async fn whole(
    job: &mut Job,
    attempt: &Attempt,
    since: Timestamp,
    Limits { patience, deadline, has_alternative }: Limits,
) -> Result<Bytes, Fault> {
    let snapshot = job.snapshot.clone();
    // It is never longer than the rest: one clock at a time is enough.
    let answered = until(patience.min(deadline), pin!(send(job, attempt))).await?;
    let rest = async {
        let limit = snapshot.settings.max_answer_bytes;
        // Who has nobody else to ask waits for the rest as long as for all of it.
        let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
        let steady = upstream.idle(&snapshot.settings);
        let idle = if has_alternative { steady } else { Duration::MAX };
        let made = |body: &[u8], context: &Context, now| adapter::message(upstream.protocol, body, context, now);
        match (answered.answer, &answered.context) {
            (Answer::Made(body), None) => Ok(Gotten::Native(body)),
            (Answer::Made(body), Some(context)) => made(&body, context, job.gate.clock.now()).map(Gotten::Translated),
            (Answer::Live(response), None) => {
                let body = upstream::steady(response.into_body(), limit, (patience, idle)).await;
                body.map(Gotten::Native)
            }
            (Answer::Live(response), Some(context)) => {
                let asked = translate::asks_to_stream(job, attempt);
                let idle = if asked { steady } else { idle };
                let translator = translate::translator(job, attempt, upstream, Some(context));
                let translator = translator.ok_or_else(|| Fault::in_answer(Class::BadResponse))?;
                let gathering = Gathering::new(translator, &snapshot.settings);
                let gathered = Box::pin(gather::answer(response, gathering, &mut job.ticket, (patience, idle)));
                match gathered.await? {
                    Gathered::Events(answered) => Ok(Gotten::Translated(*answered)),
                    Gathered::Whole(body) => made(&body, context, job.gate.clock.now()).map(Gotten::Translated),
                }
            }
        }
    };
    let gotten = until(deadline, pin!(rest)).await?;
    let body = match gotten {
        Gotten::Native(body) if snapshot.places[attempt.endpoint.place].card.foreign => {
            anthropic::mended(&body, &translate::signer(attempt)).unwrap_or(body)
        }
        Gotten::Native(body) => body,
        Gotten::Translated(answered) => {
            job.warnings.extend(answered.warnings);
            job.ticket.signed(&answered.signed);
            job.ticket.native(&answered.native);
            if answered.is_estimated {
                job.ticket.estimated();
            }
            answered.body
        }
    };
    completed(job, attempt, since, &body)
}

/// A whole answer as it was got.
enum Gotten {
    Native(Bytes),
    /// What it is in the Messages format.
    Translated(Told),
}

/// Judges an upstream's answer and sets our members in it; it is read once for both.
fn completed(job: &mut Job, attempt: &Attempt, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
    let message = Message::read(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    if !message.is_message() {
        return Err(error_in_answer(body, job.gate.clock.now()));
    }
    // Who asked in another format is told in it: what cannot be is found out before it is charged.
    if matches!(job.ticket.api(), Api::Chat | Api::Responses) && !is_readable(body) {
        return Err(Fault::in_answer(Class::BadResponse));
    }
    let stop_reason = message.stop_reason();
    if stop_reason.as_deref() == Some(REFUSAL) {
        refused::keep_whole(job, attempt, since, body)?;
    }
    if message.is_empty() && stop_reason.is_none() {
        return Err(Fault::in_answer(Class::EmptyCompletion));
    }
    job.ticket.attempted(&attempt.endpoint, 200, since);
    Ok(given(job, attempt, since, message))
}

/// The answer of an attempt as the client gets it: charged, and with our members in it.
pub(super) fn told(job: &mut Job, attempt: &Attempt, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault> {
    let message = Message::read(body).map_err(|_| Fault::in_answer(Class::BadResponse))?;
    Ok(given(job, attempt, since, message))
}

fn given(job: &mut Job, attempt: &Attempt, since: Timestamp, message: Message<'_>) -> Bytes {
    let stop_reason = message.stop_reason();
    let endpoint = &attempt.endpoint;
    let ticket = &mut job.ticket;
    let counts = message.counts().unwrap_or_default();
    if counts.output.is_none() {
        ticket.hear(message.said().div_ceil(BYTES_PER_TOKEN));
    }
    let charged = ticket.usage(&counts, endpoint, stop_reason.is_some());
    // The client is told what it is charged for.
    let used = counts.output.is_none().then(|| ticket.tokens());
    ticket.answer(message.id(), Some(stop_reason.unwrap_or_else(|| END_TURN.to_owned())));
    let routing =
        job.metadata.then(|| ticket.routing_json(&job.snapshot, &job.plan, &job.requested[0], Some(attempt), since));
    let answer = message.completed(&Additions {
        model: &endpoint.model,
        provider: &endpoint.provider_name,
        charge: Some(charged.charge()),
        used,
        routing_json: routing.as_deref().map(|value| (job.snapshot.names.metadata_member.as_str(), value)),
    });
    ticket.first_content();
    ticket.sent(answer.len());
    ticket.overhear(&answer);
    answer
}

/// An error object in a 200: its own type decides, a body without one is just broken.
fn error_in_answer(body: &[u8], now: Timestamp) -> Fault {
    match tidegate_wire::answer::Event::read(body) {
        Ok(event) if event.error().is_some() => fault::classify_event(event.error(), now),
        _ => Fault::in_answer(Class::BadResponse),
    }
}

/// Reads a stream up to its first content: until then it can fail without anyone noticing.
pub(super) async fn open_stream(
    job: &mut Job,
    attempt: &Attempt,
    has_alternative: bool,
    deadline: Instant,
) -> Result<Opened, Fault> {
    let snapshot = job.snapshot.clone();
    let settings = &snapshot.settings;
    let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
    let limit = Instant::from_std(job.gate.clock.instant() + upstream.first_content(settings, has_alternative));
    let answer = async {
        let Answered { answer, context } = send(job, attempt).await?;
        let mut splitter = Splitter::new(settings.max_event_bytes);
        let translator = translate::translator(job, attempt, upstream, context.as_ref());
        let graft = job.heard.as_ref().map(|heard| heard.graft.clone());
        let mut pump = Pump::new(attempt.endpoint.clone(), translator, graft);
        let mut out = Outbox::default();
        let response = match answer {
            Answer::Live(response) => response,
            Answer::Made(body) => {
                let step = pump.take_whole(&body, &mut splitter, &mut out, &mut job.ticket)?;
                return only_finished(step, Opened { body: None, splitter, pump, out, finished: true });
            }
        };
        let is_told = framing::is_stream(response.headers());
        let mut body = response.into_body();
        // What it is does not always stand on it.
        let mut first = match is_told {
            true => None,
            false => match framing::beginning(&mut body, None, Duration::MAX).await {
                // Of one that would be handed on as it is, this can only be an error, however little came of it.
                Err(_) if context.is_none() => None,
                first => first?,
            },
        };
        if !is_told && !first.as_deref().is_some_and(framing::begins_events) {
            if context.is_none() {
                let said = framing::excerpt(first, &mut body).await;
                return Err(error_in_answer(&said, job.gate.clock.now()));
            }
            let whole = framing::gathered(first, &mut body, settings.max_answer_bytes, Duration::MAX).await?;
            // It was asked for a stream and answers whole: that is a stream of one event.
            let step = pump.take_whole(&whole, &mut splitter, &mut out, &mut job.ticket)?;
            return only_finished(step, Opened { body: Some(body), splitter, pump, out, finished: true });
        }
        let mut held = 0;
        loop {
            let chunk = match first.take() {
                Some(chunk) => chunk,
                None => match framing::next(&mut body).await? {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            held += chunk.len();
            match pump.take(chunk, &mut splitter, &mut out, &mut job.ticket)? {
                // An upstream that goes on and on without content is let through rather than kept in memory.
                Step::Held if held > MOST_HELD => {
                    return Ok(Opened { body: Some(body), splitter, pump, out, finished: false });
                }
                Step::Held => {}
                Step::Content => return Ok(Opened { body: Some(body), splitter, pump, out, finished: false }),
                Step::Finished => return Ok(Opened { body: Some(body), splitter, pump, out, finished: true }),
            }
        }
        // The stream is over; a translated one may say only now what it held.
        match pump.end(&mut splitter, &mut out, &mut job.ticket)? {
            Step::Finished => Ok(Opened { body: Some(body), splitter, pump, out, finished: true }),
            Step::Held | Step::Content => Err(Fault::without_answer(Class::Unreachable)),
        }
    };
    until(limit.min(deadline), pin!(answer)).await
}

/// An answer that came whole must be whole.
fn only_finished(step: Step, opened: Opened) -> Result<Opened, Fault> {
    match step {
        Step::Finished => Ok(opened),
        Step::Held | Step::Content => Err(Fault::in_answer(Class::BadResponse)),
    }
}
