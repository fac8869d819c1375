//! One upstream call after the other until an answer can be committed.

use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use tidegate_core::{Api, Timestamp};
use tidegate_providers::anthropic::{self, Forwarded};
use tidegate_providers::repair::{self, Repair};
use tidegate_providers::translate::card::Prefill;
use tidegate_providers::translate::{Answered as Told, Context};
use tidegate_providers::{Class, Fault, Protocol, adapter, chat, fault};
use tidegate_routing::{Attempt, Compression, Plan, Searchers};
use tidegate_wire::answer::{Additions, END_TURN, Message};
use tidegate_wire::chat::is_readable;
use tidegate_wire::envelope::{Cuts, Media as Shown, Purpose, Traits};
use tidegate_wire::sse::Splitter;
use tokio::time::{Instant, sleep, timeout_at};

use super::call::{self, Call};
use super::follow::{Pause, following, is_retry, repeated};
use super::gather::{self, Gathered, Gathering};
use super::media::Media;
use super::pump::{BYTES_PER_TOKEN, Outbox, Pump, Step};
use super::refused::{self, REFUSAL, Refused};
use super::reserve::reserve;
use super::resume::{Graft, Sent};
use super::settle::Ticket;
use super::stream::Relay;
use super::translate::{self, Typed};
use super::{Searching, framing};
use crate::cache::Recording;
use crate::failure::{self, Failure};
use crate::health::Retry;
use crate::learned::{Fact, Noted};
use crate::ledger::{Receipt, fail};
use crate::snapshot::Settings;
use crate::{Gateway, Snapshot, error_rules, upstream};

/// Others that failed at the same time do not come to the next endpoint all at once.
pub(super) const BETWEEN: Duration = Duration::from_millis(25);

/// Bytes of a stream that are held back while its first content is awaited.
const MOST_HELD: usize = 256 << 10;

/// A request on its way, with everything it owns: it may outlive the call that started it.
pub(super) struct Job {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub ticket: Box<Ticket>,
    pub body: Bytes,
    pub cuts: Cuts,
    pub stream: bool,
    pub forwarded: Forwarded,
    pub beta_query: bool,
    pub plan: Plan,
    pub requested: Vec<String>,
    pub metadata: bool,
    pub session: Option<Box<str>>,
    /// Who the end user is, in the caller's words.
    pub user: Option<Box<str>>,
    /// The request as translations read it, or why it cannot be read; made when the first one needs it.
    pub typed: Typed,
    /// The request as those get it who search the web themselves.
    pub native: Option<Box<Native>>,
    /// What the request points at, as far as it was fetched.
    pub media: Media,
    /// What the attempt that answers had to leave out.
    pub warnings: Vec<String>,
    pub traits: Traits,
    pub max_tokens: Option<u64>,
    /// What the body shows that is not text.
    pub shown: Shown,
    /// For whom the conversation is made shorter.
    pub compression: Compression,
    /// What the call that was refused last should leave out when it is made again.
    pub hint: Option<Repair>,
    /// What this attempt leaves out because it was refused once.
    pub repairs: Vec<Repair>,
    /// The most that the upstream may answer, where the caller set no limit and cannot pay for everything, or the window
    /// has no room for it.
    pub cap: Option<u64>,
    /// Whether a stream that breaks may be gone on with elsewhere.
    pub may_continue: bool,
    /// What the client has of the answer, when another attempt goes on with it.
    pub heard: Option<Heard>,
    /// What the model said that refused last.
    pub refused: Option<Box<Refused>>,
    /// Of a stream that is to be kept.
    pub recording: Option<Box<Recording>>,
}

/// The other form of a request with a search: the one that the attempt under way does not take.
pub(super) struct Native {
    searchers: Searchers,
    body: Bytes,
    cuts: Cuts,
    traits: Traits,
    typed: Typed,
    /// Whether the job has the form of those who search themselves now.
    pub is_taken: bool,
}

impl Native {
    pub fn of(searching: Searching, settings: &Settings) -> Result<Box<Self>, Failure> {
        let Searching { body, searchers, .. } = searching;
        let envelope = super::read(&body, settings, Purpose::Generate)?;
        let (cuts, traits) = (envelope.cuts.clone(), envelope.traits);
        drop(envelope);
        Ok(Box::new(Self { searchers, body, cuts, traits, typed: OnceLock::new(), is_taken: false }))
    }
}

impl Job {
    /// Takes the form of the request that the endpoint of an attempt wants.
    pub fn suit(&mut self, attempt: &Attempt) {
        let Some(native) = &mut self.native else { return };
        let wanted = native.searchers.contains(attempt.endpoint.searcher);
        if std::mem::replace(&mut native.is_taken, wanted) != wanted {
            std::mem::swap(&mut self.body, &mut native.body);
            std::mem::swap(&mut self.cuts, &mut native.cuts);
            std::mem::swap(&mut self.traits, &mut native.traits);
            std::mem::swap(&mut self.typed, &mut native.typed);
        }
    }
}

/// An answer that broke off.
pub(super) struct Heard {
    pub sent: Sent,
    pub graft: Graft,
    /// When all of it must be over.
    pub deadline: Instant,
}

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
                first.get_or_insert(failure);
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
    /// The same of an answer that is given for want of a better one.
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
    while let Some(index) = next {
        // Only before the first call: after that its fault decides who may be called next.
        let is_moved = faults.is_empty()
            && last != Some(index)
            && put_first(&job.gate, &job.snapshot, &mut job.plan.attempts, index);
        let attempt = job.plan.attempts[index].clone();
        if last.replace(index) != Some(index) {
            job.repairs.clear();
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
        job.hint = None;
        // A refusal that is in hand is one.
        let has_alternative = index + 1 < job.plan.attempts.len() || job.refused.is_some();
        let since = job.gate.clock.now();
        job.ticket.attempt(&attempt);
        let tried = if job.stream {
            // Apart, so that calls that are answered whole do not carry room for it.
            Box::pin(open_stream(&mut job, &attempt, has_alternative, deadline))
                .await
                .and_then(|opened| refused::keep_stream(&mut job, &attempt, since, opened))
                .map(|opened| Tried::Stream(Box::new(opened)))
        } else {
            let patience = patience(&job, has_alternative, deadline);
            let limits = Limits { patience, deadline, has_alternative };
            whole(&mut job, &attempt, since, limits).await.map(Tried::Whole)
        };
        match tried {
            // Nothing of an answer leaves before it is written down that the call was let in.
            Ok(_) if !is_written(&job).await => return unwritten(job),
            Ok(Tried::Whole(answer)) => {
                fail::point("answered");
                let warnings = std::mem::take(&mut job.warnings);
                let settled = job.ticket.complete();
                return Done::Whole(answer, warnings, settled);
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
                if has_time && repaired(&mut job, &attempt) {
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

/// Until when an answer that comes whole must have begun. It begins when the model has thought and said everything, so what
/// bounds the first content of a stream would cut answers that are only long; but where somebody else could answer, as much
/// time is left for that as was waited.
fn patience(job: &Job, has_alternative: bool, deadline: Instant) -> Instant {
    if !has_alternative {
        return deadline;
    }
    let now = Instant::from_std(job.gate.clock.instant());
    let half = deadline.saturating_duration_since(now) / 2;
    (now + half.max(job.snapshot.settings.first_content_alone)).min(deadline)
}

enum Tried {
    Whole(Bytes),
    Stream(Box<Opened>),
}

/// A stream whose first content is here.
pub(super) struct Opened {
    /// Where more comes from; nothing when the answer was made here.
    pub body: Option<Incoming>,
    pub splitter: Splitter,
    pub pump: Pump,
    pub out: Outbox,
    /// Set when the whole stream was in its first bytes.
    pub finished: bool,
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

/// An answer that has begun, and what it must be read with when it is not in the Messages format.
struct Answered {
    answer: Answer,
    context: Option<Context>,
}

enum Answer {
    Live(Response<Incoming>),
    /// Read from what looked like an error.
    Made(Bytes),
}

async fn send(job: &mut Job, attempt: &Attempt) -> Result<Answered, Fault> {
    let Call { uri, headers, body, context, account } = call::prepare(job, attempt).await?;
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    job.ticket.called(attempt, !upstream.supports_cancel);
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
    let may_help = |repair: &Repair| context.is_some() || !repair::is_of_stream(repair);
    job.hint = repair::repair(head.status.as_u16(), &body).filter(may_help);
    if let (StatusCode::UNAUTHORIZED, Some(account)) = (head.status, account) {
        job.gate.tokens.forget(&account, attempt.credential.is_none()).await;
        job.hint = Some(Repair::Again);
    }
    let upstream = &job.snapshot.upstreams[attempt.endpoint.provider_index];
    Err(error_rules::classify(upstream, &head, &body, job.gate.clock.now()))
}

/// Whether the same endpoint is asked once more, without what it refused.
fn repaired(job: &mut Job, attempt: &Attempt) -> bool {
    let Some(repair) = job.hint.take() else { return false };
    if !job.repairs.is_empty() {
        return false;
    }
    // What a customer's own account or server says is no fact about the others'.
    if let (Repair::Without(refused), None) = (&repair, &attempt.credential) {
        let endpoint = &attempt.endpoint;
        let (provider, model) = (endpoint.provider.clone(), endpoint.upstream_model.clone());
        let fact = Fact { provider, model, refused: refused.clone() };
        match job.gate.learn(fact.clone()) {
            Noted::New { instead_of } => job.gate.keep(&fact, instead_of),
            // Who wants a stream asks for one although it may be refused.
            Noted::Known if repair::is_of_stream(&repair) => {}
            // It was left out already.
            Noted::Known => return false,
            // This call is helped all the same.
            Noted::Unkept => {}
        }
    }
    job.repairs.push(repair);
    true
}

/// Takes the work by reference: a future that is passed by value is kept twice in the one that waits for it.
async fn until<T>(limit: Instant, work: Pin<&mut impl Future<Output = Result<T, Fault>>>) -> Result<T, Fault> {
    timeout_at(limit, work).await.unwrap_or_else(|_| Err(Fault::without_answer(Class::Timeout)))
}

/// How long a whole answer is waited for.
struct Limits {
    /// Until it begins.
    patience: Instant,
    deadline: Instant,
    has_alternative: bool,
}

/// A whole answer, ready for the client.
async fn whole(
    job: &mut Job,
    attempt: &Attempt,
    since: Timestamp,
    Limits { patience, deadline, has_alternative }: Limits,
) -> Result<Bytes, Fault> {
    let snapshot = job.snapshot.clone();
    let answer = async {
        let answered = until(patience, pin!(send(job, attempt))).await?;
        let limit = snapshot.settings.max_answer_bytes;
        // Who has nobody else to ask waits for the rest as long as for all of it.
        let idle = if has_alternative { snapshot.settings.idle } else { Duration::MAX };
        let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
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
                let idle = if asked { snapshot.settings.idle } else { idle };
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
    let gotten = until(deadline, pin!(answer)).await?;
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
async fn open_stream(
    job: &mut Job,
    attempt: &Attempt,
    has_alternative: bool,
    deadline: Instant,
) -> Result<Opened, Fault> {
    let snapshot = job.snapshot.clone();
    let settings = &snapshot.settings;
    let limit = if has_alternative { settings.first_content } else { settings.first_content_alone };
    let limit = Instant::from_std(job.gate.clock.instant() + limit);
    let answer = async {
        let Answered { answer, context } = send(job, attempt).await?;
        let upstream = &snapshot.upstreams[attempt.endpoint.provider_index];
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
            false => match framing::beginning(&mut body).await {
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
