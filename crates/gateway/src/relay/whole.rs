//! Calls of another kind, on the same way as messages: pictures, embeddings, places, speech and transcripts. They are
//! planned, held for, tried, settled and put on record as messages are; only what is sent and what comes back differs. They
//! are always answered whole.

mod attempt;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Uri};
use serde_json::value::RawValue;
use tidegate_core::{Api, GenerationId, Price, Timestamp, boxed, pinned};
use tidegate_providers::repair::{self, Repair};
use tidegate_providers::{Class, Fault};
use tidegate_routing::price::Unit;
use tidegate_routing::{Attempt, Endpoint, Model, Plan};
use tidegate_wire::envelope::Provider;
use tidegate_wire::error::ErrorType;
use tidegate_wire::json::{self, Members};
use tokio::time::{Instant, sleep, timeout_at};

use super::Inner;
use super::attempt::{BETWEEN, Done, INTENT, put_first, rest, retry};
use super::drain::Attempts;
use super::follow::{Pause, following, repeated};
use super::head::{header_session, sender};
use super::prefer::Wishes;
use super::reserve::{Ask, reserve_whole};
use super::serve::is_free;
use super::settle::Ticket;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::snapshot::Calls;
use crate::{Gateway, Snapshot};

/// Members that are said to us, whatever the call.
const OURS: [&str; 2] = ["session_id", "trace"];

/// The other members of a request, in their order and as they came.
pub(super) type Options<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// What sets one kind of call apart from the others.
pub(super) trait Kind: Send + Sync + Sized + 'static {
    const API: Api;
    /// When all attempts together must have led to something.
    const LIMIT: Duration;
    /// What stands before the names of options that are learnt of such calls.
    const LEARNT: &'static str;
    /// Options that everybody knows.
    const KNOWN: &'static [&'static str];
    /// What is said of a model that is of no use here, and of one that nobody serves.
    const WRONG_MODEL: &'static str;
    const NOBODY: &'static str;

    fn is_for(model: &Model) -> bool;
    fn address(calls: &Calls) -> Option<&Uri>;
    /// What it may cost at an endpoint.
    fn ask<'a>(job: &mut Job<Self>, attempt: &'a Attempt) -> Result<Ask<'a>, Failure>;
    /// The options of a request, and what it says to and about providers.
    fn options<'a>(job: &'a Job<Self>) -> Option<(Options<'a>, Option<Provider<'a>>)>;
    /// What the endpoint is sent. What had to be left out is in the job's warnings.
    fn outgoing(job: &mut Job<Self>, endpoint: &Endpoint, model: &str) -> Result<Bytes, Fault>;
    /// Judges an upstream's answer, charges for it and makes ours of it.
    fn completed(job: &mut Job<Self>, endpoint: &Endpoint, since: Timestamp, body: &Bytes) -> Result<Bytes, Fault>;
    /// What an outgoing body is.
    fn media_type(_job: &Job<Self>) -> HeaderValue {
        HeaderValue::from_static("application/json")
    }
    /// What may be done about a refusal.
    fn repairs(status: u16, body: &[u8]) -> Vec<Repair> {
        repair::options(status, body)
    }
    /// Whether we see to an option ourselves: it may be sent though nobody asked for it, and nobody misses it.
    fn sees_to(job: &Job<Self>, name: &str) -> bool;
}

/// A request on its way, with everything it owns: it may outlive the call that started it.
pub(super) struct Job<K> {
    pub gate: Arc<Gateway>,
    pub snapshot: Arc<Snapshot>,
    pub ticket: Box<Ticket>,
    pub body: Bytes,
    pub kind: K,
    pub warnings: Vec<String>,
    /// Options that this attempt goes without.
    pub refused: BTreeSet<String>,
    /// What the upstream says that its answer is.
    pub answered_as: Option<HeaderValue>,
    plan: Plan,
    requested: String,
}

/// A request that was planned.
pub(super) struct Begun<K> {
    ticket: Box<Ticket>,
    kind: K,
    plan: Plan,
    requested: String,
}

/// What was answered.
pub(crate) struct Answered {
    pub id: GenerationId,
    pub body: Bytes,
    pub warnings: Vec<String>,
}

/// What a request begins with.
pub(super) struct Opening<'a> {
    pub key: &'a Arc<KeyEntry>,
    pub headers: &'a HeaderMap,
    pub model: &'a str,
    pub user: Option<&'a str>,
    /// The session that the body names.
    pub session: Option<&'a str>,
    pub size: usize,
    /// The loop that it is made for.
    pub inner: Option<&'a Inner>,
}

impl Gateway {
    /// Takes a request in and plans it; what `plan` makes of it is what is asked for, and of whom.
    pub(super) fn begin_whole<K: Kind>(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        opening: &Opening<'_>,
        plan: impl FnOnce(&mut Ticket) -> Result<(K, Plan), Failure>,
    ) -> Result<Begun<K>, Failure> {
        let mut ticket = self.open_whole::<K>(snapshot, opening)?;
        match plan(&mut ticket) {
            Ok((kind, plan)) => Ok(Begun { ticket, kind, plan, requested: opening.model.to_owned() }),
            Err(failure) => {
                let failure = Failure { generation: Some(ticket.id()), ..failure };
                ticket.fail(&failure);
                Err(failure)
            }
        }
    }

    fn open_whole<K: Kind>(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        opening: &Opening<'_>,
    ) -> Result<Box<Ticket>, Failure> {
        let Opening { key, headers, model: name, user, session, size, inner } = *opening;
        self.shed_free(snapshot, [name].into_iter())?;
        let session = session.or(header_session(headers, &snapshot.names)?);
        let places = match inner {
            Some(inner) => inner.places.clone().into(),
            None => self.enter(key, &snapshot.settings)?.into(),
        };
        let model = snapshot.catalogue.find(name).map_or_else(|_| name.into(), |named| named.model.id.clone());
        let mut ticket = Ticket::of(self, snapshot, key, places, model, size);
        let sender = sender(headers, &snapshot.names, session);
        ticket.is_of(K::API, sender.trace.as_deref());
        ticket.sent_by(sender, user);
        if let Some(inner) = inner {
            ticket.metered(inner);
        }
        if let Some(root) = inner.and_then(Inner::root) {
            ticket.belongs_to(*root);
        }
        Ok(ticket)
    }

    /// The attempts for a model of this kind, at those who have a call for it.
    pub(super) fn plan_whole<K: Kind>(
        &self,
        snapshot: &Snapshot,
        key: &KeyEntry,
        name: &str,
        wishes: &Wishes<'_>,
    ) -> Result<Plan, Failure> {
        let names = [name];
        let plan = self.plan(snapshot, key, &names, wishes);
        let mut plan = plan.map_err(|error| failure::from_plan(&error, &names, &snapshot.settings))?;
        let fits = |id: &str| snapshot.catalogue.find(id).is_ok_and(|named| K::is_for(named.model));
        if plan.attempts.first().is_none_or(|attempt| !fits(&attempt.endpoint.model)) {
            return Err(failure::wrong_endpoint(name, K::WRONG_MODEL, &snapshot.settings));
        }
        plan.attempts.retain(|attempt| K::address(&snapshot.places[attempt.endpoint.place].calls).is_some());
        if plan.attempts.is_empty() {
            let text = format!("No endpoints found for {name} that {}", K::NOBODY);
            return Err(Failure::new(404, ErrorType::NotFound, text));
        }
        if is_free(&plan) {
            self.admit_free(key, &snapshot.settings)?;
        }
        Ok(plan)
    }

    /// Has a request answered that was planned.
    pub(super) async fn answer_whole<K: Kind>(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        Begun { ticket, kind, plan, requested }: Begun<K>,
        body: Bytes,
    ) -> Result<Answered, Failure> {
        let (gate, snapshot, id) = (self.clone(), snapshot.clone(), ticket.id());
        let (warnings, refused, answered_as) = (Vec::new(), BTreeSet::new(), None);
        let mut job =
            boxed(|| Job { gate, snapshot, ticket, body, kind, warnings, refused, answered_as, plan, requested });
        let first = match admit(&mut job).await {
            Ok(first) => first,
            // Never let in: nothing is remembered of it.
            Err(failure) => {
                job.ticket.refuse();
                return Err(failure);
            }
        };
        let mut attempts = Attempts::new(self, job.ticket.presence(), pinned(|| run(job, first)));
        match self.unless_aborted(attempts.done()).await {
            Some(Done::Whole(body, warnings, mut settled) | Done::Refused(body, warnings, mut settled)) => {
                self.settled(&mut settled).await;
                Ok(Answered { id, body, warnings })
            }
            Some(Done::Failed(failure, mut settled)) => {
                self.settled(&mut settled).await;
                Err(failure)
            }
            Some(Done::Stream(..)) => Err(Failure::internal()),
            // The attempts are dropped here and settle themselves.
            None => {
                attempts.end();
                Err(Failure { generation: Some(id), ..Failure::unavailable() })
            }
        }
    }

    /// Texts as the caller's filters leave them; nothing where they leave them as they are. Only the first `free` of them
    /// may be changed: what filters take out of the others is refused.
    pub(super) fn passed_texts(
        &self,
        key: &KeyEntry,
        free: usize,
        texts: impl FnOnce() -> Result<Vec<String>, Unreadable>,
    ) -> Result<Option<Vec<String>>, Failure> {
        let Some(held) = self.guardrails.of(key).filter(|held| held.has_filters()) else { return Ok(None) };
        let texts = texts().map_err(|Unreadable| {
            let text = "Invalid request: the body holds a number, a character or a repeated name that a content filter cannot read";
            Failure::new(400, ErrorType::InvalidRequest, text)
        })?;
        // Filters read conversations: this is one of a single turn of the user's.
        let said = |text: &String| serde_json::json!({"type": "text", "text": text});
        let content: Vec<serde_json::Value> = texts.iter().map(said).collect();
        let body = serde_json::json!({"messages": [{"role": "user", "content": content}]}).to_string();
        let passed = held.scan(&Bytes::from(body)).map_err(|blocked| {
            self.note_judged(&blocked.judged);
            blocked.failure
        })?;
        self.note_judged(&passed.judged);
        let Some(changed) = passed.body else { return Ok(None) };
        let changed: serde_json::Value = serde_json::from_slice(&changed).map_err(|_| Failure::internal())?;
        let text = |place: usize| changed["messages"][0]["content"][place]["text"].as_str();
        if texts.iter().enumerate().skip(free).any(|(place, known)| text(place) != Some(known)) {
            let message = "Request blocked by content filter: an option holds what is to be taken out";
            return Err(Failure::new(403, ErrorType::PermissionDenied, message));
        }
        if free == 0 {
            return Ok(None);
        }
        let changed = (0..free).map(|place| text(place).map(str::to_owned));
        changed.collect::<Option<_>>().map(Some).ok_or_else(Failure::internal)
    }
}

impl<K: Kind> Job<K> {
    /// What the request says for all providers, replaced by what it says for this one alone. What was checked, planned and
    /// paid for stays what it is.
    pub fn meant<'a>(
        mut options: Options<'a>,
        provider: Option<&'a Provider<'_>>,
        slug: &str,
        checked: &[&str],
    ) -> Result<Options<'a>, Fault> {
        let meant = provider.into_iter().flat_map(|provider| &provider.options).find(|(other, _)| **other == *slug);
        if let Some((_, object)) = meant {
            let raw: &RawValue = serde_json::from_str(object).map_err(|_| Fault::without_answer(Class::Own))?;
            let mut members = Members::of(raw).map(|members| members.0).unwrap_or_default();
            members.retain(|(name, _)| !checked.contains(&name.as_ref()));
            options.retain(|(name, _)| members.iter().all(|(other, _)| other != name));
            options.extend(members);
        }
        options.retain(|(name, _)| !OURS.contains(&name.as_ref()));
        Ok(options)
    }
}

/// Lets a job in: holds what its first attempt that can be paid for may cost.
async fn admit<K: Kind>(job: &mut Job<K>) -> Result<usize, Failure> {
    let mut first = None;
    for place in 0..job.plan.attempts.len() {
        let attempt = job.plan.attempts[place].clone();
        job.ticket.attempt(&attempt);
        match reserve(job, &attempt).await {
            Ok(()) => return Ok(place),
            Err(failure) if matches!(failure.status, 402 | 403) => {
                first.get_or_insert(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    Err(first.unwrap_or_else(Failure::internal))
}

async fn reserve<K: Kind>(job: &mut Job<K>, attempt: &Attempt) -> Result<(), Failure> {
    let ask = K::ask(job, attempt)?;
    reserve_whole(&job.gate, &job.snapshot, &mut job.ticket, &ask).await
}

/// Tries the plan's attempts in order.
async fn run<K: Kind>(mut job: Box<Job<K>>, first: usize) -> Done {
    let limit = job.snapshot.settings.total_whole.min(K::LIMIT);
    let deadline = Instant::from_std(job.gate.clock.instant() + limit);
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    let (mut next, mut held) = (Some(first), Some(first));
    while let Some(index) = next {
        let is_first = faults.is_empty() && held == Some(index);
        let is_moved = is_first && put_first(&job.gate, &job.snapshot, &mut job.plan.attempts, index);
        let attempt = job.plan.attempts[index].clone();
        if held.replace(index) != Some(index) || is_moved {
            job.ticket.attempt(&attempt);
            job.ticket.be_patient();
            // Elsewhere it may cost more than is held for it.
            if let Err(failure) = reserve(&mut job, &attempt).await {
                let is_short = matches!(failure.status, 402 | 403);
                next = (index + 1..job.plan.attempts.len()).find(|_| is_short);
                if next.is_none() {
                    return if faults.is_empty() { failed(job.ticket, failure) } else { give_up(*job, &faults) };
                }
                continue;
            }
        }
        let since = job.gate.clock.now();
        job.ticket.attempt(&attempt);
        let tried = timeout_at(deadline, attempt::called(&mut job, &attempt, since));
        let tried = tried.await.unwrap_or_else(|_| Err(Fault::without_answer(Class::Timeout)));
        let fault = match tried {
            // Nothing of an answer leaves before it is written down that the call was let in.
            Ok(_) if !job.ticket.receipt().committed(INTENT).await => {
                return failed(job.ticket, Failure::unavailable());
            }
            Ok(answer) => {
                let warnings = std::mem::take(&mut job.warnings);
                return Done::Whole(answer, warnings, job.ticket.complete());
            }
            Err(fault) => job.ticket.blotted(fault),
        };
        tracing::debug!(endpoint = %attempt.endpoint.provider, class = ?fault.class, status = fault.status, "an attempt failed");
        job.ticket.attempt_failed(&attempt.endpoint, &fault, since);
        job.ticket.faulted(&fault);
        rest(&job.gate, &job.snapshot, &job.ticket, &attempt, &fault);
        faults.push((index, fault));
        next = after(&mut job, &faults, deadline).await;
    }
    give_up(*job, &faults)
}

/// The attempt to be made after these failed, once its time has come.
async fn after<K: Kind>(job: &mut Job<K>, faults: &[(usize, Fault)], deadline: Instant) -> Option<usize> {
    let has_time = Instant::from_std(job.gate.clock.instant()) < deadline && !job.ticket.is_left();
    let following = following(&job.plan, faults, &|_| true).map(|place| (place, Pause::UpTo(BETWEEN)));
    let again = || job.snapshot.settings.routing.repeat.then(|| repeated(&job.plan, faults)).flatten();
    let (place, pause) = following.or_else(again).filter(|_| has_time)?;
    let pause = match pause {
        Pause::Told(told) => told,
        Pause::UpTo(most) => job.gate.health.up_to(most),
    };
    let in_time = Instant::from_std(job.gate.clock.instant() + pause) < deadline;
    if !in_time {
        return None;
    }
    let permit = retry(&job.gate, &job.snapshot, &job.plan, faults, place)?;
    job.ticket.retries(Some(permit));
    sleep(pause).await;
    // Who has left meanwhile waits for nothing.
    Some(place).filter(|_| !job.ticket.is_left())
}

fn failed(ticket: Box<Ticket>, failure: Failure) -> Done {
    let failure = Failure { generation: Some(ticket.id()), ..failure };
    let settled = ticket.fail(&failure);
    Done::Failed(failure, settled)
}

fn give_up<K>(job: Job<K>, faults: &[(usize, Fault)]) -> Done {
    let requested = [job.requested.as_str()];
    let failure = failure::from_attempts(faults, &job.plan, &requested, &job.snapshot.settings);
    failed(job.ticket, failure)
}

/// Whether any of these costs something.
pub(super) fn pays(endpoint: &Endpoint, units: &[Unit]) -> bool {
    endpoint.pricing.as_ref().is_some_and(|pricing| units.iter().any(|unit| pricing.base.of(*unit) > Price(0)))
}

/// A value that filters cannot look through.
pub(super) struct Unreadable;

/// All that a value says, as people read it: names, texts and numbers, however they are spelled. Where a name stands twice,
/// or a text is half a character, nobody knows what an upstream makes of it.
pub(super) fn words(value: &RawValue, texts: &mut Vec<String>) -> Result<(), Unreadable> {
    use json::Kind;
    match json::kind(value) {
        Kind::String => texts.push(json::string(value).ok_or(Unreadable)?.into_owned()),
        Kind::Number => {
            texts.push(value.get().to_owned());
            let number: serde_json::Number = serde_json::from_str(value.get()).map_err(|_| Unreadable)?;
            texts.push(number.to_string());
        }
        Kind::Array => {
            for value in json::elements(value).ok_or(Unreadable)? {
                words(value, texts)?;
            }
        }
        Kind::Object => {
            let members = Members::of(value).filter(|members| members.repeated().is_none()).ok_or(Unreadable)?;
            for (name, value) in members.0 {
                texts.push(name.into_owned());
                words(value, texts)?;
            }
        }
        Kind::Boolean | Kind::Null => {}
    }
    Ok(())
}

/// What options say.
pub(super) fn option_words(
    options: &[(Cow<'_, str>, &RawValue)],
    provider: Option<&Provider<'_>>,
    texts: &mut Vec<String>,
) -> Result<(), Unreadable> {
    for (name, value) in options {
        texts.push(name.clone().into_owned());
        words(value, texts)?;
    }
    for (_, options) in provider.iter().flat_map(|provider| &provider.options) {
        words(serde_json::from_str(options).map_err(|_| Unreadable)?, texts)?;
    }
    Ok(())
}
