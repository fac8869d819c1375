//! The body of an answer. It is pulled by the client's socket: what the client does not read is not asked of the
//! upstream, and a client that leaves drops everything.

use std::convert::Infallible;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tidegate_core::{GenerationId, Timestamp};
use tidegate_providers::anthropic::Forwarded;
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Compression};
use tidegate_wire::envelope::{Cuts, Media as Shown, Purpose, Traits};
use tidegate_wire::messages::Request;
use tidegate_wire::sse::Splitter;
use tokio::time::{Sleep, sleep};

use super::attempt::{self, Done, Start, takes_prefix};
use super::drain::{self, Attempts};
use super::job::{Heard, Job};
use super::media::Media;
use super::pump::{Outbox, PING, Pump, Step, encoded};
use super::receive::Opened;
use super::resume::{Graft, Said, Sent};
use super::settle::{Presence, Ticket};
use crate::agent::LoopBody;
use crate::cache::Recording;
use crate::doors::ToldBody;
use crate::failure::{self, Failure};
use crate::ledger::{Receipt, fail};
use crate::{Gateway, Snapshot, tasks};

/// After its end marker a stream gets this long to end properly, so that its connection can be used again.
const DRAIN: Duration = Duration::from_secs(2);

/// An upstream that has said how its answer ended gets this long to say what it used.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// The last bytes of an answer wait this long for its settling.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// How often a stream looks whether its key still stands and the process still runs: within the 5 s that are promised.
const LOOK: Duration = Duration::from_secs(2);

/// What the server sends: bytes that are there, or a stream.
pub enum Body {
    Full(Option<Bytes>),
    Stream(Box<StreamBody>),
    /// Of a loop of tools.
    Loop(Box<LoopBody>),
    /// Either of them in another format.
    Told(Box<ToldBody>),
}

impl Body {
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::Full(Some(bytes.into()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Full(bytes) => {
                Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Stream(stream) => stream.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Loop(made) => made.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Told(told) => told.poll(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Stream(stream) => matches!(stream.phase, Phase::Over) && stream.out.is_empty(),
            Self::Loop(made) => made.is_over(),
            Self::Told(told) => told.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Stream(_) | Self::Loop(_) | Self::Told(_) => SizeHint::default(),
        }
    }
}

/// A stream to a client, from its first byte on.
pub struct StreamBody {
    gate: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    phase: Phase,
    out: Outbox,
    clock: Timer,
    /// What is kept of this answer once its last bytes leave.
    recording: Option<Box<Recording>>,
}

enum Phase {
    /// Committed by time: the attempts go on, the client hears comments meanwhile.
    Waiting {
        id: GenerationId,
        attempts: Attempts,
        /// The answer had begun when its upstream broke.
        is_begun: bool,
    },
    Relaying(Box<Relay>),
    Replaying(Box<Replaying>),
    /// All is said but the last bytes, which wait until the call is settled, and no longer than that.
    Settling {
        settled: Receipt,
        last: Bytes,
        until: Instant,
    },
    Over,
}

/// A kept answer that is given once more.
struct Replaying {
    ticket: Box<Ticket>,
    frames: Outbox,
    /// The end marker.
    last: Bytes,
}

/// One timer for all deadlines of a stream. It is not moved at every frame; when it fires, it looks what is due.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    keep_alive: Duration,
    sent: Instant,
    look: Instant,
}

/// An upstream stream whose content has begun.
pub(super) struct Relay {
    /// Nothing when the answer was made here.
    upstream: Option<Incoming>,
    splitter: Splitter,
    pump: Pump,
    /// Gone once the account is closed.
    ticket: Option<Box<Ticket>>,
    out: Outbox,
    finished: bool,
    heard: Instant,
    deadline: Instant,
    idle: Duration,
    gate: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    plan: tidegate_routing::Plan,
    attempt: Attempt,
    /// Its place in the plan.
    place: usize,
    requested: Vec<String>,
    /// What another attempt would need; nothing where none could go on.
    rest: Option<Box<Rest>>,
    metadata: bool,
    sent_at: Timestamp,
    recording: Option<Box<Recording>>,
}

/// The request of a stream, kept for the case that its upstream breaks.
struct Rest {
    body: Bytes,
    forwarded: Forwarded,
    beta_query: bool,
    session: Option<Box<str>>,
    user: Option<Box<str>>,
    compression: Compression,
    sent: Sent,
}

impl Relay {
    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.upstream {
            Some(upstream) => Pin::new(upstream).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    pub fn new(
        job: Box<Job>,
        (place, attempt): (usize, Attempt),
        sent_at: Timestamp,
        opened: Opened,
        deadline: Instant,
    ) -> Self {
        let others = job.plan.attempts.get(place + 1..).unwrap_or_default();
        let can_continue = job.may_continue && others.iter().any(|other| takes_prefix(other, &job.snapshot));
        let Job { gate, snapshot, ticket, plan, requested, metadata, recording, .. } = *job;
        let Job { body: asked, forwarded, beta_query, session, user, compression, heard, .. } = *job;
        let rest = can_continue.then(|| {
            let sent = heard.map(|heard| heard.sent).unwrap_or_default();
            Box::new(Rest { body: asked, forwarded, beta_query, session, user, compression, sent })
        });
        let now = gate.clock.instant();
        let settings = &snapshot.settings;
        let idle = settings.idle;
        let Opened { body, splitter, pump, out, finished } = opened;
        let ticket = Some(ticket);
        Self {
            upstream: body,
            splitter,
            pump,
            ticket,
            out,
            finished,
            heard: now,
            deadline,
            idle,
            gate,
            snapshot,
            plan,
            attempt,
            place,
            requested,
            rest,
            metadata,
            sent_at,
            recording,
        }
    }

    /// What the head of the answer says was left out.
    pub fn warned(&mut self, warnings: &[String]) {
        if let Some(recording) = &mut self.recording {
            recording.warned(warnings);
        }
    }

    /// Closes the account. The end marker goes out after that is written down.
    fn finish(&mut self) -> Option<(Receipt, Bytes)> {
        let ticket = self.ticket.take()?;
        let routing = self.metadata.then(|| {
            ticket.routing_json(&self.snapshot, &self.plan, &self.requested[0], Some(&self.attempt), self.sent_at)
        });
        let settled = ticket.complete();
        if let Some(recording) = &mut self.recording {
            recording.take(&self.pump.stop_frame(None));
        }
        let member = self.snapshot.names.metadata_member.as_str();
        Some((settled, self.pump.stop_frame(routing.as_deref().map(|value| (member, value)))))
    }

    /// Ends the stream with the in-band error: open blocks stay open, nothing pretends to be an end. `status` is what the
    /// attempt's record says when the upstream broke.
    fn break_off(&mut self, mut failure: Failure, status: Option<u16>) -> Option<(Receipt, Bytes)> {
        let mut ticket = self.ticket.take()?;
        if let Some(status) = status {
            ticket.attempt_broke(status);
        }
        failure.generation = Some(ticket.id());
        if self.metadata {
            let routing = ticket.routing_json(&self.snapshot, &self.plan, &self.requested[0], None, self.sent_at);
            failure.more_mut().routing = Some(routing);
        }
        let last = error_frame(&failure, &self.snapshot.settings.brand);
        // A key that was taken away and a limit that was reached are the caller's own.
        let waived = status.is_some() || self.gate.is_aborting();
        Some((ticket.broken(&failure, waived), last))
    }

    /// The body of a request that goes on with what was said, and what the gateway must know of it.
    fn continued(&self, said: &Said) -> Option<Continued> {
        let rest = self.rest.as_ref()?;
        let request: Request = serde_json::from_slice(&rest.body).ok()?;
        let produced = self.ticket.as_deref().map_or(0, Ticket::heard);
        let body = Bytes::from(serde_json::to_vec(&said.continued(request, produced)).ok()?);
        let envelope = super::read(&body, &self.snapshot.settings, Purpose::Generate).ok()?;
        let (cuts, traits, max_tokens) = (envelope.cuts.clone(), envelope.traits, envelope.max_tokens);
        drop(envelope);
        Some(Continued { body, cuts, traits, max_tokens })
    }

    /// What another attempt goes on with, and the place of the one that broke.
    fn into_job(
        mut self: Box<Self>,
        continued: Continued,
        sent: Sent,
        said: &Said,
        status: u16,
    ) -> Option<(Box<Job>, usize)> {
        let (mut ticket, rest) = (self.ticket.take()?, self.rest.take()?);
        ticket.carry(status);
        let Rest { body: original, forwarded, beta_query, session, user, compression, .. } = *rest;
        drop(original);
        let Continued { body, cuts, traits, max_tokens } = continued;
        let deadline = tokio::time::Instant::from_std(self.deadline);
        let job = Job {
            gate: self.gate,
            snapshot: self.snapshot,
            ticket,
            body,
            cuts,
            stream: true,
            forwarded,
            beta_query,
            plan: self.plan,
            requested: self.requested,
            metadata: self.metadata,
            session,
            user,
            typed: OnceLock::new(),
            native: None,
            media: Media::default(),
            warnings: Vec::new(),
            traits,
            max_tokens,
            // Only a bound is made of it, which is higher without.
            shown: Shown::default(),
            compression,
            hint: None,
            repairs: Vec::new(),
            cap: None,
            may_continue: true,
            heard: Some(Heard { sent, graft: Graft::new(said), deadline }),
            refused: None,
            recording: self.recording,
        };
        Some((Box::new(job), self.place))
    }

    /// Reads the upstream to its end without a listener.
    pub async fn drained(mut self) {
        // Nobody has heard all of it.
        self.recording = None;
        while !self.finished {
            let Some(upstream) = &mut self.upstream else { return };
            let frame = upstream.frame().await;
            let Some(ticket) = &mut self.ticket else { return };
            ticket.look(self.gate.clock.instant());
            let step = match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(chunk) => self.pump.take(chunk, &mut self.splitter, &mut self.out, ticket),
                    Err(_) => continue,
                },
                Some(Err(_)) => return,
                None => self.pump.end(&mut self.splitter, &mut self.out, ticket),
            };
            while self.out.pop().is_some() {}
            match step {
                Ok(Step::Finished) => self.finished = true,
                Ok(Step::Held | Step::Content) => {}
                Err(_) => return,
            }
        }
        self.finish();
    }

    pub fn presence(&self) -> Option<Arc<Presence>> {
        self.ticket.as_deref().map(Ticket::presence)
    }

    /// Why this stream must end although its upstream is well.
    fn must_end(&self) -> Option<Failure> {
        if self.gate.is_aborting() {
            return Some(Failure::unavailable());
        }
        let stands = self.ticket.as_deref().is_none_or(Ticket::may_go_on);
        (!stands).then(Failure::invalid_key)
    }
}

/// A request that goes on with an answer.
struct Continued {
    body: Bytes,
    cuts: Cuts,
    traits: Traits,
    max_tokens: Option<u64>,
}

pub(crate) fn error_frame(failure: &Failure, brand: &str) -> Bytes {
    encoded("error", failure.messages_json(brand).as_bytes())
}

impl StreamBody {
    fn new(gate: Arc<Gateway>, snapshot: Arc<Snapshot>, phase: Phase) -> Self {
        let keep_alive = snapshot.settings.keep_alive;
        let sent = gate.clock.instant();
        let first = keep_alive.min(LOOK).min(snapshot.settings.idle).min(snapshot.settings.total_streamed);
        let clock = Timer { sleep: Box::pin(sleep(first)), keep_alive, sent, look: sent + LOOK };
        Self { gate, snapshot, phase, out: Outbox::default(), clock, recording: None }
    }

    /// A stream that was given before.
    pub(super) fn replaying(
        gate: Arc<Gateway>,
        snapshot: Arc<Snapshot>,
        ticket: Box<Ticket>,
        frames: Outbox,
        last: Bytes,
    ) -> Self {
        Self::new(gate, snapshot, Phase::Replaying(Box::new(Replaying { ticket, frames, last })))
    }

    /// A stream whose content is here.
    pub(super) fn relaying(relay: Box<Relay>) -> Self {
        let (gate, snapshot) = (relay.gate.clone(), relay.snapshot.clone());
        let mut body = Self::new(gate, snapshot, Phase::Over);
        body.begin(relay);
        body
    }

    /// A stream that is committed by time while its attempts go on.
    pub(super) fn waiting(gate: Arc<Gateway>, snapshot: Arc<Snapshot>, id: GenerationId, attempts: Attempts) -> Self {
        let mut body = Self::new(gate, snapshot, Phase::Waiting { id, attempts, is_begun: false });
        body.comment();
        body
    }

    fn comment(&mut self) {
        self.out.push(self.snapshot.names.processing.clone());
    }

    fn begin(&mut self, mut relay: Box<Relay>) {
        while let Some(bytes) = relay.out.pop() {
            if let Some(ticket) = &mut relay.ticket {
                ticket.sent(bytes.len());
                ticket.overhear(&bytes);
            }
            if let Some(recording) = &mut relay.recording {
                recording.take(&bytes);
            }
            self.out.push(bytes);
        }
        if relay.finished {
            let last = relay.finish();
            self.recording = relay.recording.take();
            self.settle(last);
            if let Some(upstream) = relay.upstream {
                release(upstream);
            }
        } else {
            self.phase = Phase::Relaying(relay);
        }
    }

    /// The last bytes wait for their account to be closed.
    fn settle(&mut self, last: Option<(Receipt, Bytes)>) {
        let until = self.gate.clock.instant() + SETTLE;
        self.phase = match last {
            Some((settled, last)) => Phase::Settling { settled, last, until },
            None => Phase::Over,
        };
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.out.pop() {
                self.clock.sent = self.gate.clock.instant();
                if let Phase::Relaying(relay) = &mut self.phase
                    && let Some(rest) = &mut relay.rest
                {
                    rest.sent.add(&bytes);
                }
                return Poll::Ready(Some(bytes));
            }
            match &mut self.phase {
                Phase::Over => return Poll::Ready(None),
                Phase::Settling { settled, last, until } => {
                    let due = Some(*until);
                    let is_settled = settled.poll(context).is_ready();
                    if !is_settled {
                        match self.clock.poll(context, self.gate.clock.instant(), due) {
                            Poll::Ready(Due::Deadline) => self.gate.metrics.ledger_late.inc(),
                            Poll::Ready(Due::KeepAlive | Due::Look) => continue,
                            Poll::Pending => return Poll::Pending,
                        };
                    }
                    fail::point("settled");
                    if let Some(recording) = self.recording.take() {
                        recording.keep(self.gate.clock.now());
                    }
                    self.out.push(std::mem::take(last));
                    self.phase = Phase::Over;
                }
                Phase::Waiting { id, attempts, is_begun } => match attempts.poll(context) {
                    // The head is out: what was left out can no longer be told there.
                    Poll::Ready(Done::Stream(relay, _)) => self.begin(relay),
                    Poll::Ready(Done::Failed(failure, settled)) => {
                        let last = error_frame(&failure, &self.snapshot.settings.brand);
                        self.settle(Some((settled, last)));
                    }
                    Poll::Ready(Done::Whole(..) | Done::Refused(..)) => unreachable!("a streamed job ends in a stream"),
                    Poll::Pending => match self.clock.poll(context, self.gate.clock.instant(), None) {
                        Poll::Ready(Due::Look) if self.gate.is_aborting() => {
                            attempts.end();
                            let failure = Failure { generation: Some(*id), ..Failure::unavailable() };
                            self.give_up(&failure);
                        }
                        Poll::Ready(Due::Look) => {}
                        Poll::Ready(Due::KeepAlive | Due::Deadline) if *is_begun => self.out.push(PING),
                        Poll::Ready(Due::KeepAlive | Due::Deadline) => self.comment(),
                        Poll::Pending => return Poll::Pending,
                    },
                },
                Phase::Replaying(replaying) => {
                    if let Some(bytes) = replaying.frames.pop() {
                        replaying.ticket.sent(bytes.len());
                        replaying.ticket.overhear(&bytes);
                        return Poll::Ready(Some(bytes));
                    }
                    if let Phase::Replaying(replaying) = std::mem::replace(&mut self.phase, Phase::Over) {
                        let Replaying { ticket, last, .. } = *replaying;
                        self.settle(Some((ticket.complete(), last)));
                    }
                }
                Phase::Relaying(relay) => match relay.poll_upstream(context) {
                    Poll::Ready(frame) => self.advance(frame),
                    Poll::Pending => {
                        let idle = if relay.pump.is_settled() { SETTLED } else { relay.idle };
                        let due = Some((relay.heard + idle).min(relay.deadline));
                        match self.clock.poll(context, self.gate.clock.instant(), due) {
                            Poll::Ready(Due::KeepAlive) => self.out.push(PING),
                            // All was said but what it used: it ends as if the upstream had ended it.
                            Poll::Ready(Due::Deadline) if relay.pump.is_settled() => self.advance(None),
                            Poll::Ready(Due::Deadline) => self.broke(&Fault::without_answer(Class::Timeout)),
                            Poll::Ready(Due::Look) => {
                                if let Some(failure) = relay.must_end() {
                                    self.break_off(failure, None);
                                }
                            }
                            Poll::Pending => return Poll::Pending,
                        }
                    }
                },
            }
        }
    }

    /// Ends a stream that has had no content.
    fn give_up(&mut self, failure: &Failure) {
        self.out.push(error_frame(failure, &self.snapshot.settings.brand));
        self.phase = Phase::Over;
    }

    /// Works on what the upstream sent, be it its end.
    fn advance(&mut self, frame: Option<Result<Frame<Bytes>, hyper::Error>>) {
        let Phase::Relaying(relay) = &mut self.phase else { return };
        let now = self.gate.clock.instant();
        relay.heard = now;
        let Some(ticket) = &mut relay.ticket else { return };
        let step = match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => {
                    ticket.sent(chunk.len());
                    relay.pump.take(chunk, &mut relay.splitter, &mut self.out, ticket)
                }
                Err(_) => Ok(Step::Held), // trailers
            },
            Some(Err(_)) => Err(Fault::without_answer(Class::Unreachable)),
            // An end without its marker is a break, never a success.
            None => match relay.pump.end(&mut relay.splitter, &mut self.out, ticket) {
                Ok(Step::Finished) => Ok(Step::Finished),
                Ok(_) => Err(Fault::without_answer(Class::Unreachable)),
                Err(fault) => Err(fault),
            },
        };
        self.out.iter().for_each(|bytes| ticket.overhear(bytes));
        if let Some(recording) = &mut relay.recording {
            // Nothing else is in there: it is empty whenever the upstream is asked for more.
            self.out.iter().for_each(|bytes| recording.take(bytes));
        }
        match step {
            Ok(Step::Finished) => {
                let last = relay.finish();
                self.recording = relay.recording.take();
                if let Phase::Relaying(relay) = std::mem::replace(&mut self.phase, Phase::Over)
                    && let Some(upstream) = relay.upstream
                {
                    release(upstream);
                }
                self.settle(last);
            }
            // A stream that never pauses is looked at here, one that pauses by its timer.
            Ok(Step::Held | Step::Content) if now >= relay.deadline => {
                self.broke(&Fault::without_answer(Class::Timeout))
            }
            Ok(Step::Held | Step::Content) if now >= self.clock.look => {
                self.clock.look = now + LOOK;
                let exhausted = ticket.look(now);
                if let Some(failure) = relay.must_end().or(exhausted) {
                    self.break_off(failure, None);
                }
            }
            Ok(Step::Held | Step::Content) => {
                if let Some(failure) = ticket.look(now) {
                    self.break_off(failure, None);
                }
            }
            Err(fault) => {
                let fault = ticket.blotted(fault);
                self.broke(&fault);
            }
        }
    }

    /// The upstream broke after content.
    fn broke(&mut self, fault: &Fault) {
        let status = if fault.class == Class::Timeout { 408 } else { 0 };
        if self.goes_on(fault, status) {
            return;
        }
        let Phase::Relaying(relay) = &self.phase else { return };
        let failure = failure::in_stream(fault, &relay.attempt.endpoint.provider_name);
        self.break_off(failure, Some(status));
    }

    /// Lets another attempt go on with the answer, if one can.
    fn goes_on(&mut self, fault: &Fault, status: u16) -> bool {
        let Phase::Relaying(relay) = &mut self.phase else { return false };
        // Of an answer that has said how it ends nothing is left to be said.
        let is_said = relay.pump.reason().is_some();
        let is_over = is_said || self.gate.is_aborting() || self.gate.clock.instant() >= relay.deadline;
        let (Some(rest), Some(_), false) = (&mut relay.rest, &relay.ticket, is_over) else { return false };
        // Whatever comes of it, this stream is over.
        let mut sent = std::mem::take(&mut rest.sent);
        // These leave in any case.
        self.out.iter().for_each(|bytes| sent.add(bytes));
        let Some(said) = sent.said().cloned() else { return false };
        let Some(body) = relay.continued(&said) else { return false };
        let Phase::Relaying(relay) = std::mem::replace(&mut self.phase, Phase::Over) else { return false };
        let Some(job) = relay.into_job(body, sent, &said, status) else { return false };
        let (id, presence, place) = (job.0.ticket.id(), job.0.ticket.presence(), job.1);
        let running = Box::pin(attempt::run(job.0, Start::After(place, fault.clone())));
        let attempts = Attempts::new(&self.gate, presence, running);
        self.phase = Phase::Waiting { id, attempts, is_begun: true };
        true
    }

    fn break_off(&mut self, failure: Failure, status: Option<u16>) {
        if let Phase::Relaying(mut relay) = std::mem::replace(&mut self.phase, Phase::Over) {
            let last = relay.break_off(failure, status);
            self.settle(last);
        }
    }
}

/// A stream that nobody listens to any more ends here, unless its upstream charges for all of it anyway: then it is read to
/// its end, so that what is charged is what it says.
impl Drop for StreamBody {
    fn drop(&mut self) {
        if let Phase::Relaying(relay) = std::mem::replace(&mut self.phase, Phase::Over)
            && relay.ticket.is_some()
        {
            drain::relay(&self.gate, relay);
        }
    }
}

/// Lets a finished upstream stream come to its proper end, so that the connection goes back to the pool. Mostly the end
/// is here already and this does nothing.
pub(super) fn release(mut upstream: Incoming) {
    if HttpBody::is_end_stream(&upstream) {
        return;
    }
    tasks::spawn("drain a finished stream", async move {
        let _ = tokio::time::timeout(DRAIN, async { while let Some(Ok(_)) = upstream.frame().await {} }).await;
    });
}

enum Due {
    KeepAlive,
    Deadline,
    /// Time to see whether the stream may go on.
    Look,
}

impl Timer {
    /// What has become due; when nothing has, the task is woken at the next time that something can.
    fn poll(&mut self, context: &mut Context<'_>, now: Instant, deadline: Option<Instant>) -> Poll<Due> {
        while self.sleep.as_mut().poll(context).is_ready() {
            let keep_alive = self.sent + self.keep_alive;
            let due = if deadline.is_some_and(|deadline| now >= deadline) {
                Some(Due::Deadline)
            } else if now >= keep_alive {
                // What the caller sends now moves `sent`, when it is taken.
                self.sent = now;
                Some(Due::KeepAlive)
            } else if now >= self.look {
                self.look = now + LOOK;
                Some(Due::Look)
            } else {
                None
            };
            let next = (self.sent + self.keep_alive).min(self.look);
            let next = deadline.map_or(next, |deadline| deadline.min(next));
            self.sleep.as_mut().reset(tokio::time::Instant::from_std(next));
            if let Some(due) = due {
                return Poll::Ready(due);
            }
        }
        Poll::Pending
    }
}
