//! A stream of an upstream whose content has begun.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use tidegate_core::Timestamp;
use tidegate_providers::anthropic::Forwarded;
use tidegate_providers::estimate::Meter;
use tidegate_routing::{Attempt, Compression};
use tidegate_wire::envelope::{Cuts, Media as Shown, Purpose, Traits};
use tidegate_wire::messages::Request;
use tidegate_wire::sse::Splitter;

use super::error_frame;
use crate::cache::Recording;
use crate::failure::Failure;
use crate::ledger::Receipt;
use crate::relay::attempt::takes_prefix;
use crate::relay::job::{Heard, Job};
use crate::relay::media::Media;
use crate::relay::pump::{Outbox, Pump, Step};
use crate::relay::receive::Opened;
use crate::relay::resume::{self, Graft, Said, Sent};
use crate::relay::settle::{Presence, Ticket};
use crate::upstream::Flow;
use crate::{Gateway, Snapshot, tasks};

/// After its end marker a stream gets this long to end properly, so that its connection can be used again.
const DRAIN: Duration = Duration::from_secs(2);

/// An upstream stream whose content has begun.
pub(in crate::relay) struct Relay {
    /// Nothing when the answer was made here.
    pub(super) upstream: Option<Flow>,
    pub(super) splitter: Splitter,
    pub(super) pump: Pump,
    /// Gone once the account is closed.
    pub(super) ticket: Option<Box<Ticket>>,
    pub(super) out: Outbox,
    pub(super) finished: bool,
    pub(super) heard: Instant,
    pub(super) deadline: Instant,
    pub(super) idle: Duration,
    pub(super) gate: Arc<Gateway>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) plan: tidegate_routing::Plan,
    pub(super) attempt: Attempt,
    /// Its place in the plan.
    pub(super) place: usize,
    pub(super) requested: Vec<String>,
    /// What another attempt would need; nothing where none could go on.
    pub(super) rest: Option<Box<Rest>>,
    pub(super) metadata: bool,
    pub(super) sent_at: Timestamp,
    pub(super) recording: Option<Box<Recording>>,
}

/// The request of a stream, kept for the case that its upstream breaks.
pub(super) struct Rest {
    /// As it was before any of the answer was.
    asked: Bytes,
    forwarded: Forwarded,
    beta_query: bool,
    session: Option<Box<str>>,
    user: Option<Box<str>>,
    requires_parameters: bool,
    compression: Compression,
    tier: Option<Box<str>>,
    pub(super) sent: Sent,
}

impl Relay {
    pub(super) fn poll_upstream(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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
        let Job { gate, snapshot, ticket, plan, requested, metadata, recording, is_poor, .. } = *job;
        let Job { body, forwarded, beta_query, session, user, requires_parameters, compression, tier, heard, .. } =
            *job;
        let rest = can_continue.then(|| {
            // What was sent is all that was said: the request that it is added to has none of it yet.
            let (asked, sent) = heard.map_or_else(|| (body, Sent::default()), |heard| (heard.asked, heard.sent));
            Box::new(Rest { asked, forwarded, beta_query, session, user, requires_parameters, compression, tier, sent })
        });
        let now = gate.clock.instant();
        let settings = &snapshot.settings;
        let idle = snapshot.upstreams[plan.attempts[place].endpoint.provider_index].idle(settings);
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
            // With more money it might be longer: nobody else is to have it.
            recording: recording.filter(|_| !is_poor),
        }
    }

    /// What the head of the answer says was left out.
    pub fn warned(&mut self, warnings: &[String]) {
        if let Some(recording) = &mut self.recording {
            recording.warned(warnings);
        }
    }

    /// Closes the account. The end marker goes out after that is written down.
    pub(super) fn finish(&mut self) -> Option<(Receipt, Bytes)> {
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
    pub(super) fn break_off(&mut self, mut failure: Failure, status: Option<u16>) -> Option<(Receipt, Bytes)> {
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

    /// How the answer goes on behind what was said. None where it cannot, or where no more of it may be produced as far as
    /// can be told: that is a guess of ours, and no word of the upstream's that its answer was as long as it may be.
    pub(super) fn continued(&self, said: &Said) -> Option<Box<Continued>> {
        let rest = self.rest.as_ref()?;
        let request: Request = serde_json::from_slice(&rest.asked).ok()?;
        let begun = resume::begun(&request);
        let mut produced = self.ticket.as_deref().map_or(0, Ticket::produced);
        // Its bytes make more tokens of a text than most have.
        if request.max_tokens.is_some_and(|limit| limit <= produced) {
            let meter = Meter::of(&request, &self.snapshot.places[self.attempt.endpoint.place].card);
            produced = said.tokens(|text| tasks::at_length(|| meter.text(text))).unwrap_or(produced);
        }
        let request = said.continued(request, produced)?;
        let body = Bytes::from(serde_json::to_vec(&request).ok()?);
        let envelope = crate::relay::read(&body, &self.snapshot.settings, Purpose::Generate).ok()?;
        let (cuts, traits, max_tokens) = (envelope.cuts.clone(), envelope.traits, envelope.max_tokens);
        drop(envelope);
        Some(Box::new(Continued { body, cuts, traits, max_tokens, begun }))
    }

    /// What another attempt goes on with, and the place of the one that broke.
    pub(super) fn into_job(
        mut self: Box<Self>,
        continued: Continued,
        sent: Sent,
        said: &Said,
        status: u16,
    ) -> Option<(Box<Job>, usize)> {
        let (mut ticket, rest) = (self.ticket.take()?, self.rest.take()?);
        ticket.carry(status);
        let Rest { asked, forwarded, beta_query, session, user, requires_parameters, compression, tier, .. } = *rest;
        let Continued { body, cuts, traits, max_tokens, begun } = continued;
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
            tier,
            max_tokens,
            // Only a bound is made of these, which is higher so.
            shown: Shown::default(),
            has_tools: true,
            // Those are not gone on with.
            continues_thread: false,
            requires_parameters,
            compression,
            hint: Vec::new(),
            repairs: Vec::new(),
            cap: None,
            is_poor: false,
            may_continue: true,
            heard: Some(Heard { asked, sent, graft: Graft::new(said, begun), deadline }),
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
    pub(super) fn must_end(&self) -> Option<Failure> {
        if self.gate.is_aborting() {
            return Some(Failure::unavailable());
        }
        let stands = self.ticket.as_deref().is_none_or(Ticket::may_go_on);
        (!stands).then(Failure::invalid_key)
    }
}

/// A request that goes on with an answer.
pub(super) struct Continued {
    body: Bytes,
    cuts: Cuts,
    traits: Traits,
    max_tokens: Option<u64>,
    /// What the caller had begun the answer with.
    begun: String,
}

/// Lets a finished upstream stream come to its proper end, so that the connection goes back to the pool. Mostly the end
/// is here already and this does nothing.
pub(in crate::relay) fn release(mut upstream: Flow) {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut upstream).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => return,
            Poll::Pending => break,
        }
    }
    tasks::spawn("drain a finished stream", async move {
        let _ = tokio::time::timeout(DRAIN, async { while let Some(Ok(_)) = upstream.frame().await {} }).await;
    });
}
