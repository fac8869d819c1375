//! Pictures: a second kind of call, on the same way as messages. It is planned, held for, tried, settled and put on record
//! as they are; only what is sent and what comes back differs. Always answered whole, because a picture is nothing before
//! it is finished; a client that wants a stream gets one with finished pictures in it.

mod attempt;
mod told;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tidegate_core::GenerationId;
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Plan};
use tidegate_wire::envelope::images::{self, Form, Request};
use tidegate_wire::error::ErrorType;
use tokio::time::{Instant, sleep, timeout_at};

use super::attempt::{BETWEEN, Done, INTENT, may_retry, put_first, rest};
use super::drain::Attempts;
use super::follow::{Pause, following, latest, repeated};
use super::prefer::Wishes;
use super::reserve::{Ask, reserve_whole};
use super::settle::Ticket;
use super::{Body, Inner, Reply, header_session, is_free, reply, sender};
use crate::choices::Made;
use crate::failure::{self, Failure};
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};

/// When all attempts together must have led to something.
const LIMIT: Duration = Duration::from_secs(180);
/// Tokens that are held for a picture where tokens are what is paid for.
const MOST_TOKENS: u64 = 8_192;

/// Pictures that were made.
pub(crate) struct Drawn {
    pub id: GenerationId,
    /// The answer of `POST /images`.
    pub body: Bytes,
    warnings: Vec<String>,
}

/// A request for pictures on its way, with everything it owns: it may outlive the call that started it.
struct Job {
    gate: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    ticket: Box<Ticket>,
    body: Bytes,
    form: Form,
    /// What a guardrail made of the prompt.
    prompt: Option<String>,
    plan: Plan,
    requested: String,
    warnings: Vec<String>,
}

impl Gateway {
    /// Serves `POST /images` for a caller that has been let in.
    pub async fn images(
        self: &Arc<Self>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
        form: Form,
    ) -> Result<Reply, Failure> {
        let snapshot = self.snapshot();
        let stream = images::read(&body, form)?.stream;
        let Drawn { id, body, warnings } = Box::pin(self.draw(&snapshot, key, headers, body, form, None)).await?;
        let body = if stream { told::as_stream(&body)? } else { body };
        Ok(reply(id, &snapshot.names, Body::full(body), stream, &warnings))
    }

    /// Has pictures made, for a caller or for a tool of the loop that `inner` is of.
    pub(crate) async fn draw(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        headers: &HeaderMap,
        body: Bytes,
        form: Form,
        inner: Option<&Inner>,
    ) -> Result<Drawn, Failure> {
        let settings = &snapshot.settings;
        let request = images::read(&body, form)?;
        let name = &*request.model;
        self.shed_free(snapshot, [name].into_iter())?;
        let session = header_session(headers)?;
        let places = match inner {
            Some(inner) => inner.places.clone().into(),
            None => self.enter(key, settings)?.into(),
        };
        let model = snapshot.catalogue.find(name).map_or_else(|_| name.into(), |named| named.model.id.clone());
        let mut ticket = Ticket::of(self, snapshot, key, places, model, body.len());
        let sender = sender(headers, &snapshot.names, session);
        ticket.draws(sender.trace.as_deref());
        ticket.sent_by(sender, request.user.as_deref());
        if let Some(inner) = inner {
            ticket.metered(inner);
        }
        if let Some(root) = inner.and_then(Inner::root) {
            ticket.belongs_to(*root);
        }
        let id = ticket.id();
        let refuse = |ticket: Box<Ticket>, failure: Failure| {
            let failure = Failure { generation: Some(id), ..failure };
            ticket.fail(&failure);
            failure
        };
        let prompt = match self.passed_prompt(key, &request) {
            Ok(prompt) => prompt,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        ticket.asked(|| told::asked(&request, prompt.as_deref()));
        let mut wishes = Wishes::to_draw(&request);
        wishes.default = match self.choices.model(&key.workspace, &[name], Made::Images) {
            Ok(default) => default,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        let plan = match self.plan_images(snapshot, key, name, &wishes) {
            Ok(plan) => plan,
            Err(failure) => return Err(refuse(ticket, failure)),
        };
        if is_free(&plan)
            && let Err(failure) = self.admit_free(key, settings)
        {
            return Err(refuse(ticket, failure));
        }
        let (gate, snapshot, requested) = (self.clone(), snapshot.clone(), name.to_owned());
        drop(request);
        let mut job =
            Box::new(Job { gate, snapshot, ticket, body, form, prompt, plan, requested, warnings: Vec::new() });
        let first = match admit(&mut job).await {
            Ok(first) => first,
            // Never let in: nothing is remembered of it.
            Err(failure) => {
                job.ticket.refuse();
                return Err(failure);
            }
        };
        let mut attempts = Attempts::new(self, job.ticket.presence(), Box::pin(run(job, first)));
        match self.unless_aborted(attempts.done()).await {
            Some(Done::Whole(body, warnings, mut settled)) => {
                self.settled(&mut settled).await;
                Ok(Drawn { id, body, warnings })
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

    /// The prompt as the caller's filters leave it; nothing where they leave it as it is. Options may hold words, too: what
    /// filters take out of those is refused.
    fn passed_prompt(&self, key: &KeyEntry, request: &Request<'_>) -> Result<Option<String>, Failure> {
        let Some(held) = self.guardrails.of(key).filter(|held| held.has_filters()) else { return Ok(None) };
        let mut texts = vec![request.prompt.clone().into_owned()];
        for (name, value) in &request.options {
            texts.push(name.clone().into_owned());
            words(&serde_json::from_str(value.get()).unwrap_or_default(), &mut texts);
        }
        for (_, options) in request.provider.iter().flat_map(|provider| &provider.options) {
            words(&serde_json::from_str(options).unwrap_or_default(), &mut texts);
        }
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
        if texts.iter().enumerate().skip(1).any(|(place, known)| text(place) != Some(known)) {
            let message = "Request blocked by content filter: an option holds what is to be taken out";
            return Err(Failure::new(403, ErrorType::PermissionDenied, message));
        }
        Ok(Some(text(0).ok_or_else(Failure::internal)?.to_owned()))
    }

    /// The attempts for a model that makes pictures, at those who have a call for it.
    fn plan_images(
        &self,
        snapshot: &Snapshot,
        key: &KeyEntry,
        name: &str,
        wishes: &Wishes<'_>,
    ) -> Result<Plan, Failure> {
        let names = [name];
        let plan = self.plan(snapshot, key, &names, wishes);
        let mut plan = plan.map_err(|error| failure::from_plan(&error, &names, &snapshot.settings))?;
        let makes = |id: &str| snapshot.catalogue.find(id).is_ok_and(|named| named.model.makes_images());
        if plan.attempts.first().is_none_or(|attempt| !makes(&attempt.endpoint.model)) {
            let detail = "does not make images; GET /images/models lists those that do";
            return Err(failure::wrong_endpoint(name, detail, &snapshot.settings));
        }
        plan.attempts.retain(|attempt| snapshot.places[attempt.endpoint.place].calls.images.is_some());
        if plan.attempts.is_empty() {
            let text = format!("No endpoints found for {name} that make images");
            return Err(Failure::new(404, ErrorType::NotFound, text));
        }
        Ok(plan)
    }
}

/// Lets a job in: holds what its first attempt that can be paid for may cost.
async fn admit(job: &mut Job) -> Result<usize, Failure> {
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

async fn reserve(job: &mut Job, attempt: &Attempt) -> Result<(), Failure> {
    let endpoint = &*attempt.endpoint;
    let asked = images::read(&job.body, job.form)?;
    let (n, shown) = (asked.n, asked.references.len() as u64);
    job.ticket.has_pictures(shown);
    let most = if endpoint.max_output_tokens > 0 { endpoint.max_output_tokens.min(MOST_TOKENS) } else { MOST_TOKENS };
    let prompt = (job.body.len() as u64).div_ceil(3) + 64;
    let ask = Ask {
        endpoint,
        is_byok: attempt.credential.is_some(),
        prompt: if endpoint.context_length > 0 { prompt.min(endpoint.context_length) } else { prompt },
        output: most.saturating_mul(n),
        is_capped: true,
        cache_marked: false,
        cache_1h: false,
        tier: endpoint.tier.name(),
        searches: 0,
        images: shown,
        images_out: n,
        now: job.ticket.started(),
    };
    reserve_whole(&job.gate, &job.snapshot, &mut job.ticket, &ask).await
}

/// Tries the plan's attempts in order.
async fn run(mut job: Box<Job>, first: usize) -> Done {
    let limit = job.snapshot.settings.total_whole.min(LIMIT);
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
            Err(fault) => fault,
        };
        tracing::debug!(endpoint = %attempt.endpoint.provider, class = ?fault.class, status = fault.status, "an attempt failed");
        job.ticket.attempted(&attempt.endpoint, fault.status, since);
        job.ticket.faulted(&fault);
        rest(&job.gate, &job.snapshot, &job.ticket, &attempt, &fault);
        faults.push((index, fault));
        next = after(&job, &faults, index, deadline).await;
    }
    give_up(*job, &faults)
}

/// The attempt to be made after these failed, once its time has come.
async fn after(job: &Job, faults: &[(usize, Fault)], index: usize, deadline: Instant) -> Option<usize> {
    let has_time = Instant::from_std(job.gate.clock.instant()) < deadline && !job.ticket.is_left();
    let following = following(&job.plan, faults, &|_| true).map(|place| (place, Pause::UpTo(BETWEEN)));
    let again = || job.snapshot.settings.routing.repeat.then(|| repeated(&job.plan, faults)).flatten();
    let (place, pause) = following.or_else(again).filter(|_| has_time)?;
    let pause = match pause {
        Pause::Told(told) => told,
        Pause::UpTo(most) => job.gate.health.up_to(most),
    };
    let in_time = Instant::from_std(job.gate.clock.instant() + pause) < deadline;
    if !in_time || !may_retry(&job.gate, &job.snapshot, &job.plan.attempts, index, place) {
        return None;
    }
    sleep(pause).await;
    // Who has left meanwhile waits for nothing.
    Some(place).filter(|_| !job.ticket.is_left())
}

fn failed(ticket: Box<Ticket>, failure: Failure) -> Done {
    let failure = Failure { generation: Some(ticket.id()), ..failure };
    let settled = ticket.fail(&failure);
    Done::Failed(failure, settled)
}

fn give_up(job: Job, faults: &[(usize, Fault)]) -> Done {
    let requested = [job.requested.as_str()];
    let failure = failure::from_attempts(&latest(faults), &job.plan, &requested, &job.snapshot.settings);
    failed(job.ticket, failure)
}

/// All that a value says, as people read it: names, texts and numbers, however they are spelled.
fn words(value: &serde_json::Value, texts: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => texts.push(text.clone()),
        serde_json::Value::Number(number) => texts.push(number.to_string()),
        serde_json::Value::Array(values) => values.iter().for_each(|value| words(value, texts)),
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                texts.push(name.clone());
                words(value, texts);
            }
        }
        serde_json::Value::Bool(_) | serde_json::Value::Null => {}
    }
}
