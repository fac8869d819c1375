//! One upstream call after the other until an answer can be committed.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Timestamp;
use tidegate_providers::repair::{self, Refused, Repair};
use tidegate_providers::translate::card::Prefill;
use tidegate_providers::{Betas, Class, Fault, Protocol};
use tidegate_routing::{Attempt, Plan};
use tokio::time::{Instant, sleep};

use super::call;
use super::follow::{Pause, following, is_retry, repeated};
use super::job::Job;
use super::media::Media;
use super::receive::{self, Limits, Opened};
use super::refused;
use super::reserve::reserve;
use super::settle::Ticket;
use super::stream::Relay;
use crate::failure::{self, Failure};
use crate::health::Retry;
use crate::learned::Fact;
use crate::ledger::{Receipt, fail};
use crate::{Gateway, Snapshot};

/// Others that failed at the same time do not come to the next endpoint all at once.
pub(super) const BETWEEN: Duration = Duration::from_millis(25);

/// How often one attempt is made again without what was refused: an upstream may name one thing after the other.
pub(super) const MOST_REPAIRS: usize = 4;

/// Where a job's attempts begin.
pub(super) enum Start {
    /// With one that is paid for.
    At(usize),
    /// Behind one whose stream broke.
    After(usize, Fault),
}

/// How long an answer waits for the journal to know that its call was let in.
pub(super) const INTENT: Duration = Duration::from_secs(2);

/// Lets a job in: holds what its first attempt that can be paid for may cost. The place of that attempt, or why there is
/// none. Who cannot pay for a model is told so, and does not get another one instead.
pub(super) async fn admit(job: &mut Job) -> Result<usize, Failure> {
    let mut first: Option<Failure> = None;
    // The place of the model in the request, of the foremost that was refused.
    let mut refused = usize::MAX;
    for place in 0..job.plan.attempts.len() {
        let attempt = job.plan.attempts[place].clone();
        if attempt.model > refused {
            continue;
        }
        job.ticket.attempt(&attempt);
        match reserve(job, &attempt).await {
            Ok(cap) => {
                job.cap = cap;
                return Ok(place);
            }
            Err(failure) if matches!(failure.status, 402 | 403) => {
                // Of several endpoints the one that reaches furthest says how far, and one that waiting helps says so.
                let reach = |failure: &Failure| (failure.affordable, failure.is_held);
                if first.as_ref().is_none_or(|first| reach(first) < reach(&failure)) {
                    first = Some(failure);
                }
                refused = refused.min(attempt.model);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(first.unwrap_or_else(Failure::internal))
}

/// Where a job ends: with an answer that can be committed, or without one.
pub(super) enum Done {
    /// With what had to be left out on the way, and when that is settled.
    Whole(Bytes, Vec<String>, Receipt),
    /// The same of an answer that is given for want of a better one: nobody else is to have it.
    Refused(Bytes, Vec<String>, Receipt),
    Stream(Box<Relay>, Vec<String>),
    Failed(Failure, Receipt),
}

/// Tries the plan's attempts in order. Nothing has reached the client when this returns.
pub(super) async fn run(mut job: Box<Job>, start: Start) -> Done {
    let deadline = deadline(&job);
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    let (first, mut next) = match start {
        Start::At(first) => (Some(first), Some(first)),
        Start::After(broken, fault) => {
            faults.push((broken, fault));
            let next = after(&job, &faults);
            // Nobody else can help a client that has begun to hear: it counts, but it is not asked whether there is room.
            job.ticket.retries(next.and_then(|next| retry(&job.gate, &job.snapshot, &job.plan, &faults, next)));
            (None, next)
        }
    };
    let mut last = None;
    let mut repeats = 0;
    while let Some(index) = next {
        // Only before the first call: after that its fault decides who may be called next.
        let is_moved = faults.is_empty()
            && last != Some(index)
            && put_first(&job.gate, &job.snapshot, &mut job.plan.attempts, index);
        let attempt = job.plan.attempts[index].clone();
        if last.replace(index) != Some(index) {
            job.repairs.clear();
            repeats = 0;
            if Some(index) != first || is_moved {
                job.ticket.attempt(&attempt);
                job.ticket.be_patient();
                // Elsewhere it may cost more than is held for it.
                match reserve(&mut job, &attempt).await {
                    Ok(cap) => job.cap = cap,
                    Err(failure) => {
                        let is_short = matches!(failure.status, 402 | 403);
                        let later = index + 1..job.plan.attempts.len();
                        next = later.into_iter().find(|place| {
                            let later = &job.plan.attempts[*place];
                            // Once somebody has failed, whoever can be paid for may help.
                            let may_serve = later.model == attempt.model || !faults.is_empty();
                            is_short && may_serve && suits(&job, later)
                        });
                        if let (Some(place), false) = (next, faults.is_empty()) {
                            // A permit is for the endpoint that it was given for.
                            job.ticket.retries(None);
                            let permit = retry(&job.gate, &job.snapshot, &job.plan, &faults, place);
                            next = next.filter(|_| permit.is_some());
                            job.ticket.retries(permit);
                        }
                        if next.is_none() {
                            return too_dear(job, failure, &faults, deadline).await;
                        }
                        continue;
                    }
                }
            }
        }
        job.hint.clear();
        // A refusal that is in hand is one.
        let has_alternative = index + 1 < job.plan.attempts.len() || job.refused.is_some();
        let since = job.gate.clock.now();
        job.ticket.attempt(&attempt);
        let tried = if job.stream {
            // Apart, so that calls that are answered whole do not carry room for it.
            Box::pin(receive::open_stream(&mut job, &attempt, has_alternative, deadline))
                .await
                .and_then(|opened| refused::keep_stream(&mut job, &attempt, since, opened))
                .map(|opened| Tried::Stream(Box::new(opened)))
        } else {
            let patience = receive::patience(&job, &attempt, has_alternative, deadline);
            let limits = Limits { patience, deadline, has_alternative };
            receive::whole(&mut job, &attempt, since, limits).await.map(Tried::Whole)
        };
        if tried.is_ok() {
            note(&job, &attempt);
        }
        match tried {
            // Nothing of an answer leaves before it is written down that the call was let in.
            Ok(_) if !is_written(&job).await => return unwritten(job),
            Ok(Tried::Whole(answer)) => {
                fail::point("answered");
                let warnings = std::mem::take(&mut job.warnings);
                let settled = job.ticket.complete();
                // With more money it might have been longer.
                return match job.is_poor {
                    true => Done::Refused(answer, warnings, settled),
                    false => Done::Whole(answer, warnings, settled),
                };
            }
            Ok(Tried::Stream(opened)) => {
                job.ticket.attempted(&attempt.endpoint, 200, since);
                job.ticket.first_content();
                let warnings = std::mem::take(&mut job.warnings);
                // No other endpoint will need it, and a stream may be long.
                job.media = Media::default();
                let relay = Relay::new(job, (index, attempt), since, *opened, deadline.into_std());
                return Done::Stream(Box::new(relay), warnings);
            }
            Err(fault) => {
                let fault = job.ticket.blotted(fault);
                tracing::debug!(endpoint = %attempt.endpoint.provider, class = ?fault.class, status = fault.status, "an attempt failed");
                job.ticket.attempt_failed(&attempt.endpoint, &fault, since);
                job.ticket.faulted(&fault);
                // Without time left there is nothing to try: the next endpoint would be called only to be cut off.
                // Nor is anyone called for a client that has left.
                let has_time = Instant::from_std(job.gate.clock.instant()) < deadline && !job.ticket.is_left();
                if has_time && repeats < MOST_REPAIRS && repaired(&mut job, &attempt) {
                    repeats += 1;
                    continue;
                }
                rest(&job.gate, &job.snapshot, &job.ticket, &attempt, &fault);
                faults.push((index, fault));
                let (place, pause) = match after(&job, &faults).filter(|_| has_time) {
                    Some(place) => (Some(place), job.gate.health.up_to(BETWEEN)),
                    None if has_time => once_more(&job, &faults, deadline),
                    None => (None, Duration::ZERO),
                };
                let permit = place.and_then(|place| retry(&job.gate, &job.snapshot, &job.plan, &faults, place));
                next = place.filter(|_| permit.is_some());
                job.ticket.retries(permit);
                if next.is_some() {
                    sleep(pause).await;
                    // Who has left meanwhile waits for nothing.
                    next = next.filter(|_| !job.ticket.is_left());
                }
            }
        }
    }
    give_up(job, &faults, deadline).await
}

/// A credential that its provider refuses is passed over for a while, whosever it is.
pub(super) fn rest(gate: &Gateway, snapshot: &Snapshot, ticket: &Ticket, attempt: &Attempt, fault: &Fault) {
    if !matches!(fault.class, Class::Credential | Class::Billing) {
        return;
    }
    match &attempt.credential {
        Some(own) => gate.credentials.rest(ticket.workspace(), own, gate.clock.now()),
        // Without a status nobody has refused it.
        None if fault.status == 0 => {}
        None => {
            let provider = &attempt.endpoint.provider;
            gate.metrics.flow.credential_refused(&attempt.endpoint.provider_name);
            if gate.health.rest(&snapshot.ward, &attempt.endpoint, fault) {
                tracing::error!(%provider, status = fault.status, "a provider refuses the key of this gateway");
            }
        }
    }
}

/// The attempt to be made after these failed.
fn after(job: &Job, faults: &[(usize, Fault)]) -> Option<usize> {
    following(&job.plan, faults, &|attempt| suits(job, attempt))
}

/// The attempt to be made when everybody has failed, and how long it waits: one that failed before.
fn once_more(job: &Job, faults: &[(usize, Fault)], deadline: Instant) -> (Option<usize>, Duration) {
    // What a client has begun to hear is gone on with by others only.
    let may_repeat = job.snapshot.settings.routing.repeat && job.heard.is_none();
    let again = may_repeat.then(|| repeated(&job.plan, faults)).flatten();
    let (place, pause) = again.map_or((None, Duration::ZERO), |(place, pause)| match pause {
        Pause::Told(told) => (Some(place), told),
        Pause::UpTo(most) => (Some(place), job.gate.health.up_to(most)),
    });
    let in_time = Instant::from_std(job.gate.clock.instant() + pause) < deadline;
    (place.filter(|_| in_time), pause)
}

/// Whether an endpoint can serve what is left of the request.
fn suits(job: &Job, attempt: &Attempt) -> bool {
    job.media.suits(attempt, &job.snapshot) && (job.heard.is_none() || takes_prefix(attempt, &job.snapshot))
}

/// Whether an answer that was begun elsewhere can be gone on with there.
pub(super) fn takes_prefix(attempt: &Attempt, snapshot: &Snapshot) -> bool {
    snapshot.places[attempt.endpoint.place].card.prefill != Prefill::None
}

/// Puts the attempt that should be made now in front of those that should not, which stay to be made when it fails.
/// Whether that changed anything.
pub(super) fn put_first(gate: &Gateway, snapshot: &Snapshot, attempts: &mut [Attempt], index: usize) -> bool {
    if !snapshot.settings.routing.health {
        return false;
    }
    let chosen = gate.health.first_open(&snapshot.ward, attempts, index);
    attempts[index..=chosen].rotate_right(1);
    chosen != index
}

/// The right to the call that is to be made after these failed.
pub(super) fn retry(
    gate: &Gateway,
    snapshot: &Snapshot,
    plan: &Plan,
    faults: &[(usize, Fault)],
    next: usize,
) -> Option<Retry> {
    let (failed, fault) = faults.last()?;
    let (failed, next) = (&plan.attempts[*failed], &plan.attempts[next]);
    if !snapshot.settings.routing.health || !is_retry(fault, failed, next) {
        return Some(Retry::free());
    }
    gate.health.retry(&snapshot.ward, &failed.endpoint, &next.endpoint)
}

pub(super) fn is_written(job: &Job) -> impl Future<Output = bool> + use<> {
    let receipt = job.ticket.receipt();
    async move { receipt.committed(INTENT).await }
}

pub(super) fn unwritten(job: Box<Job>) -> Done {
    let failure = Failure { generation: Some(job.ticket.id()), ..Failure::unavailable() };
    let settled = job.ticket.fail(&failure);
    Done::Failed(failure, settled)
}

/// What is left to try costs more than there is.
async fn too_dear(job: Box<Job>, failure: Failure, faults: &[(usize, Fault)], deadline: Instant) -> Done {
    if !faults.is_empty() {
        return give_up(job, faults, deadline).await;
    }
    let failure = Failure { generation: Some(job.ticket.id()), ..failure };
    let settled = job.ticket.fail(&failure);
    Done::Failed(failure, settled)
}

/// When all attempts together must have led to something: the client waits for the call, not for an attempt.
fn deadline(job: &Job) -> Instant {
    if let Some(heard) = &job.heard {
        return heard.deadline;
    }
    let settings = &job.snapshot.settings;
    let total = if job.stream { settings.total_streamed } else { settings.total_whole };
    Instant::from_std(job.gate.clock.instant() + total)
}

enum Tried {
    Whole(Bytes),
    Stream(Box<Opened>),
}

/// Nobody else answers: a model that refused has answered, else the faults are told.
async fn give_up(mut job: Box<Job>, faults: &[(usize, Fault)], deadline: Instant) -> Done {
    // Who has left does not hear it, and does not pay for it.
    if let Some(refused) = job.refused.take().filter(|_| !job.ticket.is_left()) {
        return refused::given(job, refused, deadline).await;
    }
    let requested: Vec<&str> = job.requested.iter().map(String::as_str).collect();
    let mut failure = match (&job.heard, faults.first()) {
        // The client has begun to hear an answer: what broke it is what is told.
        (Some(_), Some((place, fault))) => failure::in_stream(fault, &job.plan.attempts[*place].endpoint.provider_name),
        _ => failure::from_attempts(faults, &job.plan, &requested, &job.snapshot.settings),
    };
    failure.generation = Some(job.ticket.id());
    if job.metadata && failure.status != 500 {
        let routing = job.ticket.routing_json(&job.snapshot, &job.plan, &job.requested[0], None, Timestamp(0));
        failure.more_mut().routing = Some(routing);
    }
    let settled = if job.heard.is_some() { job.ticket.broken(&failure, true) } else { job.ticket.fail(&failure) };
    Done::Failed(failure, settled)
}

/// Whether the same endpoint is asked once more, without what it refused: only where that makes another call of it.
fn repaired(job: &mut Job, attempt: &Attempt) -> bool {
    let mut hint = std::mem::take(&mut job.hint);
    let known = job.gate.learned.of(&attempt.endpoint.provider, &attempt.endpoint.upstream_model);
    hint.retain(|repair| match repair.left_out() {
        None => !job.repairs.contains(repair),
        Some(refused) if job.repairs.iter().any(|made| made.left_out() == Some(refused)) => false,
        // Who wants a stream asks for one although it may be refused.
        Some(_) if repair::is_of_stream(repair) => true,
        Some(refused) => {
            !known.as_ref().is_some_and(|known| known.contains(refused)) && call::has(job, attempt, refused)
        }
    });
    let is_changed = !hint.is_empty();
    job.repairs.append(&mut hint);
    is_changed
}

/// Remembers what an endpoint does not take, now that it has taken the same call without it: what it said before that may
/// be words of the caller's.
fn note(job: &Job, attempt: &Attempt) {
    // What a customer's own account or server says is no fact about the others'.
    if job.repairs.is_empty() || attempt.credential.is_some() {
        return;
    }
    let Attempt { endpoint, .. } = attempt;
    let upstream = &job.snapshot.upstreams[endpoint.provider_index];
    // There a member is refused to those who have not sent the beta that allows it; others have.
    let has_gates = upstream.protocol == Protocol::Messages && upstream.betas == Betas::All;
    for repair in &job.repairs {
        let Repair::Without(refused) = repair else { continue };
        if has_gates && matches!(refused, Refused::Member(_)) {
            continue;
        }
        if call::is_left_out(job, refused) {
            let (provider, model) = (endpoint.provider.clone(), endpoint.upstream_model.clone());
            // Of a stream it is not kept: a release before this one would take it for a member like others.
            job.gate.learn(&Fact { provider, model, refused: refused.clone() }, !repair::is_of_stream(repair));
        }
    }
}
