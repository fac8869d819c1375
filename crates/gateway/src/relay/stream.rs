//! The body of an answer. It is pulled by the client's socket: what the client does not read is not asked of the
//! upstream, and a client that leaves drops everything.

mod relay;
mod timer;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tidegate_core::{GenerationId, pinned};
use tidegate_providers::{Class, Fault};

use super::attempt::{self, Done, Start};
use super::drain::{self, Attempts};
use super::pump::{Outbox, PING, Step, encoded};
use super::settle::Ticket;
use crate::agent::LoopBody;
use crate::cache::Recording;
use crate::doors::ToldBody;
use crate::failure::{self, Failure};
use crate::ledger::{Receipt, fail};
use crate::{Gateway, Snapshot};
pub(super) use relay::{Relay, release};
use timer::{Due, LOOK, Timer};

/// An upstream that has said how its answer ended gets this long to say what it used.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// The last bytes of an answer wait this long for its settling.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

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

pub(crate) fn error_frame(failure: &Failure, brand: &str) -> Bytes {
    encoded("error", failure.messages_json(brand).as_bytes())
}

impl StreamBody {
    fn new(gate: Arc<Gateway>, snapshot: Arc<Snapshot>, phase: Phase) -> Self {
        let keep_alive = snapshot.settings.keep_alive;
        let sent = gate.clock.instant();
        let clock = Timer::new(sent, keep_alive, snapshot.settings.idle.min(snapshot.settings.total_streamed));
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
                                // What came before a pause is written down in it, too.
                                let now = self.gate.clock.instant();
                                let exhausted = relay.ticket.as_mut().and_then(|ticket| ticket.look(now));
                                if let Some(failure) = relay.must_end().or(exhausted) {
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
            Some(Err(_)) if !relay.pump.is_settled() => Err(Fault::without_answer(Class::Unreachable)),
            // An end without its marker is a break, never a success.
            None | Some(Err(_)) => match relay.pump.end(&mut relay.splitter, &mut self.out, ticket) {
                Ok(Step::Finished) => Ok(Step::Finished),
                Ok(_) => Err(Fault::without_answer(Class::Unreachable)),
                Err(fault) => Err(fault),
            },
        };
        if relay.pump.is_settled() {
            // Nobody waits for what was used for longer than a client that left would be read on for.
            relay.deadline = relay.deadline.min(now + drain::LONGEST);
        }
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
                    && !relay.pump.has_left_early()
                {
                    release(upstream);
                }
                self.settle(last);
            }
            // A stream that never pauses is looked at here, one that pauses by its timer.
            Ok(Step::Held | Step::Content) if now >= relay.deadline && relay.pump.is_settled() => self.advance(None),
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
        let Some(job) = relay.into_job(*body, sent, &said, status) else { return false };
        let (id, presence, place) = (job.0.ticket.id(), job.0.ticket.presence(), job.1);
        let running = pinned(|| attempt::run(job.0, Start::After(place, fault.clone())));
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
