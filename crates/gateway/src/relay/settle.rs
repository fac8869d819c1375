//! The account of one request: opened at admission, closed exactly once, whatever happens in between.

mod charge;
mod end;
mod metadata;
mod shelf;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::value::RawValue;
use tidegate_core::exchange::{Asked, AttemptRecord};
use tidegate_core::{Api, Exchange, GenerationId, Money, Posting, Slot, Timestamp, WorkspaceId};
use tidegate_providers::blot::Used;
use tidegate_providers::credential::Credential as ProviderCredential;
use tidegate_providers::translate::Native;
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Credential, Endpoint, Strategy};
use tidegate_wire::answer::Counts;
use tidegate_wire::envelope::Envelope;

use charge::Carried;
pub(super) use shelf::Shelved;

use super::Inner;
use super::admit::{Held, millis};
use super::meter::Meter;
use crate::broadcast::Overheard;
use crate::failure::Failure;
use crate::health::{Retry, Trial};
use crate::keys::KeyEntry;
use crate::ledger::book::Demands;
use crate::ledger::rules::Rules;
use crate::ledger::{PATIENCE, Refusal, Shared, fail};
use crate::plugins::Told as Changed;
use crate::plugins::defaults::said;
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot};

/// Whether the client is still there, and whether its leaving changes what is charged.
#[derive(Debug, Default)]
pub(super) struct Presence {
    gone: AtomicBool,
    /// The upstream that was called charges for the whole answer, whoever hears it.
    bills_anyway: AtomicBool,
    /// It was sent away by us.
    ended: AtomicBool,
}

impl Presence {
    pub fn bills_anyway(&self) -> bool {
        self.bills_anyway.load(Ordering::Relaxed)
    }

    pub fn leave(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// The client gets an error of ours: that is not charged.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.bills_anyway.store(false, Ordering::Relaxed);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// A request under way. Dropping it closes the account as cancelled: that is what a client that leaves does.
/// It is large and goes from hand to hand, so it always stays in one place.
pub(super) struct Ticket {
    gate: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    exchange: Option<Box<Exchange>>,
    key: Arc<KeyEntry>,
    _places: Held,
    /// The limits of this call, as they were when it came.
    rules: Rules,
    /// Where the attempt under way goes.
    endpoint: Option<Arc<Endpoint>>,
    /// With whose credential, and the place of its model in the request's list.
    own: Option<Arc<Credential>>,
    model: usize,
    /// What the call was authorised with: what comes back of a failure must not hold it.
    used: Option<Used>,
    /// What the request goes on with, where it matters who serves it.
    conversation: Option<Conversation>,
    /// How the model of the attempt under way was found.
    strategy: Option<&'static str>,
    /// What prompt and answer cost, as the answer says it.
    parts: Option<(Money, Money)>,
    /// What attempts before the present one said to the client: a stream that broke goes on elsewhere.
    carried: Option<Box<Carried>>,
    /// The call that was made of it, until it is known how it went.
    trial: Option<Trial>,
    /// What the next call is made by, where one has failed before it.
    retry: Option<Retry>,
    /// It is let in: what it may cost is held, and the journal was told.
    is_admitted: bool,
    receipt: Shared,
    /// A place in the journal's queue is kept for its end.
    has_place: bool,
    /// Until when this round of reservations waits for what other nodes have.
    patience: Option<Instant>,
    /// What it could cost at most, whatever is held.
    bound: Money,
    /// The upstream was called: it may charge for the prompt.
    is_called: bool,
    /// All of the usage is here.
    is_final: bool,
    /// Some of it was, and it was charged.
    is_charged: bool,
    /// What was reported last: it says how the call was served, too.
    counts: Counts,
    /// Tokens of the prompt and of the output so far, by our own count.
    prompt: u64,
    /// Pictures that the request has, and those of them that the upstream is shown.
    pictures: u64,
    shown: u64,
    heard: u64,
    /// Searches of the upstream that have come by, where it may make some.
    searched: Option<u64>,
    marked: Option<(Instant, u64)>,
    presence: Arc<Presence>,
    /// What plugins did.
    told: Option<Box<Changed>>,
    /// For destinations, where some want to hear of it.
    overheard: Option<Box<Overheard>>,
    /// What was paid for that beside the call: it is shown with its cost, and on records of its own.
    beside: Money,
    /// What the attempt under way left out, as an entry of the metadata.
    compressed: Option<Box<str>>,
    /// Of the loop that it is part of.
    meter: Option<Arc<Meter>>,
}

/// What the head of a request says about its sender.
#[derive(Default)]
pub(super) struct Sender {
    pub session: Option<Box<str>>,
    pub user_agent: Option<Box<str>>,
    pub referer: Option<Box<str>>,
    pub title: Option<Box<str>>,
    /// Whose trace it is part of.
    pub trace: Option<Box<str>>,
}

/// How a request is asked for; all of it was read with the envelope.
fn asked(envelope: &Envelope<'_>) -> Asked {
    let number = |raw: Option<&RawValue>| raw.map(|raw| raw.get().into());
    Asked {
        model: envelope.model.as_deref().unwrap_or_default().into(),
        max_tokens: envelope.max_tokens,
        temperature: number(envelope.temperature),
        top_p: number(envelope.top_p),
        top_k: number(envelope.top_k),
        is_structured: envelope.asked.structured,
        served: None,
    }
}

/// What a kept answer says of itself, under the id that it is given with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub id: String,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub stop_reason: Option<String>,
}

impl Ticket {
    pub fn open(
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        places: Held,
        envelope: &Envelope<'_>,
        sender: Sender,
        body: &Bytes,
    ) -> Box<Self> {
        let model = envelope.model.as_deref().unwrap_or_default().into();
        let mut ticket = Self::of(gate, snapshot, key, places, model, body.len());
        let audience = &snapshot.settings.audience;
        let is_zdr = envelope.provider.as_ref().and_then(|provider| provider.zdr).unwrap_or(false);
        let wish = gate.contents.wish(key, &gate.guardrails, is_zdr);
        ticket.overheard =
            Overheard::of(audience, &gate.told.list(), &key.workspace, envelope, sender.trace.as_deref(), body, wish);
        if ticket.overheard.as_ref().is_some_and(|overheard| overheard.is_discreet()) {
            ticket.edit().asked = Some(Box::new(asked(envelope)));
        }
        ticket.has_pictures(u64::from(envelope.media.images));
        ticket.edit().streamed = envelope.stream;
        ticket.sent_by(sender, envelope.user.as_deref().or(envelope.metadata_user.as_deref()));
        ticket
    }

    pub fn asked_in(&mut self, api: Api) {
        self.edit().api = api;
    }

    /// The format that the request came in.
    pub fn api(&self) -> Api {
        self.open_exchange().api
    }

    /// For something that belongs to a request and has none of its own.
    pub fn of(
        gate: &Arc<Gateway>,
        snapshot: &Arc<Snapshot>,
        key: &Arc<KeyEntry>,
        places: Held,
        model: Arc<str>,
        request_bytes: usize,
    ) -> Box<Self> {
        let started = gate.ledger.now();
        let (organisation, workspace) = (key.organisation.clone(), key.workspace.clone());
        let exchange = Exchange {
            request_bytes: request_bytes as u64,
            ..Exchange::new(GenerationId::new(started), organisation, workspace, key.hash, model, started)
        };
        let mut rules = gate.ledger.rules(key, snapshot.settings.billing.enabled, started);
        gate.guardrails.add_rules(key, started, &mut rules);
        Box::new(Self {
            rules,
            gate: gate.clone(),
            snapshot: snapshot.clone(),
            exchange: Some(Box::new(exchange)),
            key: key.clone(),
            _places: places,
            endpoint: None,
            own: None,
            used: None,
            model: 0,
            conversation: None,
            strategy: None,
            parts: None,
            carried: None,
            trial: None,
            retry: None,
            is_admitted: false,
            receipt: Shared::DONE,
            has_place: false,
            patience: None,
            bound: Money::ZERO,
            is_called: false,
            is_final: false,
            is_charged: false,
            counts: Counts::default(),
            prompt: (request_bytes as u64).div_ceil(4),
            pictures: 0,
            shown: 0,
            heard: 0,
            searched: None,
            marked: None,
            presence: Arc::default(),
            told: None,
            overheard: None,
            beside: Money::ZERO,
            compressed: None,
            meter: None,
        })
    }

    /// It is for something else than a message: destinations hear of that as of messages. What is kept of what was said is
    /// kept of messages alone.
    pub fn is_of(&mut self, api: Api, trace: Option<&str>) {
        self.asked_in(api);
        let (audience, stored) = (&self.snapshot.settings.audience, self.gate.told.list());
        self.overheard = Overheard::of_another(audience, &stored, &self.key.workspace, trace);
        if self.overheard.as_ref().is_some_and(|overheard| overheard.is_discreet()) {
            let exchange = self.edit();
            exchange.asked = Some(Box::new(Asked { model: exchange.model.clone(), ..Asked::default() }));
        }
    }

    /// What was asked, for those who want to hear it, in the Messages format.
    pub fn asked(&mut self, body: impl FnOnce() -> Bytes) {
        if let Some(overheard) = &mut self.overheard {
            overheard.asked(body);
        }
    }

    /// Notes who sent it.
    pub fn sent_by(&mut self, sender: Sender, user: Option<&str>) {
        let Sender { session, user_agent, referer, title, trace: _ } = sender;
        let exchange = self.edit();
        exchange.user = user.map(Into::into);
        (exchange.session, exchange.user_agent) = (session, user_agent);
        (exchange.referer, exchange.title) = (referer, title);
        exchange.attempts = Vec::with_capacity(1);
    }

    /// Names the first turn of the loop that this is a turn of.
    pub fn belongs_to(&mut self, root: GenerationId) {
        let id = self.id();
        self.edit().parent = (root != id).then_some(root);
    }

    /// What it costs is counted for the loop that it is part of.
    pub fn metered(&mut self, inner: &Inner) {
        self.meter = Some(inner.meter.clone());
    }

    /// The tools that were run since the turn before this one, for destinations.
    pub fn used(&mut self, inner: &Inner) {
        if let Some(overheard) = &mut self.overheard {
            overheard.used(inner.used());
        }
    }

    /// What was done to the request before it was planned; for the metadata.
    /// Only the first turn of a loop shows what was paid for it.
    pub fn tell(&mut self, told: &Changed, is_first: bool) {
        if is_first {
            self.beside = told.fee;
        }
        // By our own name, whatever the caller calls us, and without what follows it.
        if let (Some(_), Some(name)) = (told.strategy, told.requested.first()) {
            let name = name.trim();
            let (_, slug) = name.split(':').next().unwrap_or(name).split_once('/').unwrap_or(("", name));
            let router = format!("{}/{slug}", self.snapshot.settings.brand);
            self.edit().router = Some(router.into());
        }
        self.told = Some(Box::new(told.clone()));
    }

    /// What was left out of the request for the attempt under way; for the metadata.
    pub fn compressed(&mut self, entry: Option<String>) {
        let unheard = self.told.as_ref().map_or(&[][..], |told| &told.unheard);
        self.compressed = entry.map(|entry| said(entry, unheard).into());
    }

    /// Gives it the id that records of what was done before it name.
    pub fn known_as(&mut self, id: GenerationId) {
        self.edit().id = id;
    }

    /// What was said is told to nobody.
    pub fn hush(&mut self) {
        if let Some(overheard) = &mut self.overheard {
            overheard.hush();
        }
    }

    /// Names the preset of the request.
    pub fn made_with(&mut self, preset: &str) {
        self.edit().preset = Some(preset.into());
    }

    /// Names the conversation that this request goes on with.
    pub fn follow(&mut self, conversation: Conversation) {
        self.conversation = Some(conversation);
    }

    /// Whether the caller's key still stands.
    pub fn may_go_on(&self) -> bool {
        self.key.may_go_on(self.gate.clock.now())
    }

    pub fn id(&self) -> GenerationId {
        self.open_exchange().id
    }

    pub fn started(&self) -> Timestamp {
        self.open_exchange().started
    }

    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn presence(&self) -> Arc<Presence> {
        self.presence.clone()
    }

    /// Says when the journal knows that this call was let in.
    pub fn receipt(&self) -> Shared {
        self.receipt.clone()
    }

    fn open_exchange(&self) -> &Exchange {
        self.exchange.as_deref().expect("a ticket is closed once, by the call that consumes it or by its drop")
    }

    fn edit(&mut self) -> &mut Exchange {
        self.exchange.as_deref_mut().expect("a ticket is closed once, by the call that consumes it or by its drop")
    }

    /// Whose request it is.
    pub fn workspace(&self) -> &WorkspaceId {
        &self.key.workspace
    }

    /// Keeps the signatures of an answer's calls, in case that its client does not.
    pub fn signed(&self, signed: &[(String, String)]) {
        if !signed.is_empty() {
            self.gate.carriers.keep(self.workspace(), signed, self.gate.clock.now());
        }
    }

    /// Holds these amounts for the call, in all of its accounts or in none; waits for a lease where there is none.
    pub async fn hold(&mut self, demands: &Demands) -> Result<(), Refusal> {
        let now = self.gate.clock.instant();
        let patience = *self.patience.get_or_insert(now + PATIENCE);
        let terms = (self.snapshot.settings.ledger.lease_hold, patience);
        let (organisation, ledger) = (&self.key.organisation, &self.gate.ledger);
        ledger.hold(organisation, self.id(), demands, terms).await
    }

    /// From here on reservations wait anew.
    pub fn be_patient(&mut self) {
        self.patience = None;
    }

    /// What is held for the call in an account.
    pub fn held(&self, slot: &Slot) -> Money {
        let held = self.gate.ledger.held(&self.key.organisation, self.id());
        held.iter().find(|held| held.slot == *slot).map_or(Money::ZERO, |held| held.amount)
    }

    /// Whether nobody waits for an answer any more.
    pub fn is_left(&self) -> bool {
        self.presence.is_gone()
    }

    /// The amounts are held: lets the call in and tells the journal.
    pub fn admit(&mut self, amount: Money, bound: Money, demands: &Demands) -> Result<(), Failure> {
        let (gate, snapshot) = (self.gate.clone(), self.snapshot.clone());
        let is_more = amount > self.open_exchange().reserved;
        self.bound = self.bound.max(bound);
        let exchange = self.edit();
        if is_more || exchange.postings.is_empty() {
            exchange.reserved = exchange.reserved.max(amount);
            exchange.postings =
                demands.iter().map(|held| Posting { slot: held.rule.slot.clone(), amount: held.amount }).collect();
        }
        if self.is_admitted {
            gate.ledger.amend(self.open_exchange());
            return Ok(());
        }
        match gate.ledger.intent(self.open_exchange(), &snapshot.settings.ledger) {
            Ok(receipt) => {
                self.is_admitted = true;
                self.has_place = receipt.is_some();
                self.receipt = receipt.map_or(Shared::DONE, Shared::new);
                fail::point("intent.queued");
                Ok(())
            }
            Err(_) => {
                if !demands.is_empty() {
                    gate.ledger.release(&self.key.organisation, self.id());
                }
                Err(Failure::unavailable())
            }
        }
    }

    /// Notes where an attempt goes; from here on the record names it.
    pub fn attempt(&mut self, attempt: &Attempt) {
        let endpoint = &attempt.endpoint;
        self.endpoint = Some(endpoint.clone());
        (self.own, self.model) = (attempt.credential.clone(), attempt.model);
        let routed = self.told.as_ref().and_then(|told| told.strategy);
        // A model of a list that answers instead says more than how the first one was found.
        let routed = routed.filter(|_| attempt.strategy != Strategy::Fallback);
        (self.strategy, self.parts) = (Some(routed.unwrap_or(attempt.strategy.as_str())), None);
        (self.is_final, self.is_charged, self.heard, self.shown) = (false, false, 0, self.pictures);
        self.counts = Counts::default();
        self.uncalled();
        // The client has the id of the message already, and goes on with it.
        let is_continued = self.carried.is_some();
        let exchange = self.edit();
        exchange.is_byok = attempt.credential.is_some();
        exchange.model = endpoint.model.clone();
        exchange.provider = endpoint.provider_name.clone();
        exchange.usage = Default::default();
        exchange.usage_reported = false;
        exchange.is_estimated = false;
        // Nothing so far; unknown where nobody knows the price.
        exchange.cost = endpoint.pricing.as_ref().map(|_| Money::ZERO);
        exchange.list_cost = exchange.cost.filter(|_| exchange.is_byok);
        exchange.upstream_cost = None;
        // What an earlier attempt had begun to say belongs to it alone.
        (exchange.stop_reason, exchange.native_stop_reason, exchange.native_id) = (None, None, None);
        if !is_continued {
            exchange.message_id = None;
        }
    }

    /// The next call is one more after a failed one, and counts as such until it is over.
    pub fn retries(&mut self, retry: Option<Retry>) {
        self.retry = retry;
    }

    /// The upstream is being called: from here on it may charge.
    pub fn called(&mut self, attempt: &Attempt, bills_anyway: bool) {
        let retry = self.retry.take().unwrap_or_default();
        self.trial = Some(self.gate.health.begin(&self.snapshot.ward, attempt, retry));
        self.is_called = true;
        self.presence.bills_anyway.store(bills_anyway, Ordering::Relaxed);
    }

    pub fn attempted(&mut self, endpoint: &Endpoint, status: u16, since: Timestamp) {
        let now = self.gate.clock.now();
        let exchange = self.edit();
        exchange.attempts.push(AttemptRecord {
            provider: endpoint.provider_name.clone(),
            slug: endpoint.provider.clone(),
            model: endpoint.model.clone(),
            status,
            duration_ms: millis(since, now),
            is_byok: exchange.is_byok,
            after_ms: Some(millis(exchange.started, since)),
            error_type: None,
        });
    }

    /// The same of one that failed.
    pub fn attempt_failed(&mut self, endpoint: &Endpoint, fault: &Fault, since: Timestamp) {
        self.attempted(endpoint, fault.status, since);
        self.attempt_ended(fault.status, fault.class);
    }

    fn attempt_ended(&mut self, status: u16, class: Class) {
        if let Some(last) = self.edit().attempts.last_mut() {
            (last.status, last.error_type) = (status, Some(class.error_type().as_str().into()));
        }
    }

    /// What the attempt under way is authorised with.
    pub fn authorised(&mut self, credential: Option<ProviderCredential>, headers: &HeaderMap) {
        self.used = credential.map(|credential| {
            let is_exchanged = matches!(credential, ProviderCredential::Google(_));
            let token = headers.get(AUTHORIZATION).filter(|_| is_exchanged).cloned();
            Used { credential, token }
        });
    }

    /// A failure as it may be told: without what the call was authorised with.
    pub fn blotted(&self, fault: Fault) -> Fault {
        match &self.used {
            Some(used) => used.blot(fault),
            None => fault,
        }
    }

    /// The attempt under way failed before any content: nothing is owed for it, whatever becomes of the call.
    pub fn faulted(&mut self, fault: &Fault) {
        self.ill(fault);
        self.uncalled();
        self.retry = None;
        // Also when the client leaves before anybody else is called: what it said of its cost so far is void.
        (self.is_final, self.is_charged, self.heard, self.parts) = (false, false, 0, None);
        let exchange = self.edit();
        exchange.usage = Default::default();
        (exchange.usage_reported, exchange.is_estimated) = (false, false);
        exchange.cost = exchange.cost.map(|_| Money::ZERO);
        exchange.list_cost = exchange.list_cost.map(|_| Money::ZERO);
        (exchange.upstream_cost, exchange.cache_discount) = (None, None);
    }

    fn ill(&mut self, fault: &Fault) {
        if let Some(trial) = self.trial.take() {
            trial.failed(fault);
        }
    }

    /// From here on nobody charges for anything, until the next is called.
    fn uncalled(&mut self) {
        self.is_called = false;
        self.presence.bills_anyway.store(false, Ordering::Relaxed);
    }

    /// A stream that had begun well broke: the attempt's status becomes the one of a broken connection.
    pub fn attempt_broke(&mut self, status: u16) {
        let class = if status == 408 { Class::Timeout } else { Class::Unreachable };
        self.ill(&Fault::without_answer(class));
        self.attempt_ended(status, class);
    }

    pub fn first_content(&mut self) {
        let now = self.gate.clock.now();
        let exchange = self.edit();
        // Of an answer that goes on elsewhere the first content is the first upstream's.
        let started = exchange.started;
        exchange.first_content_ms.get_or_insert_with(|| millis(started, now));
        // Of an answer that comes whole nobody knows when it began.
        if let (Some(trial), true) = (&self.trial, self.open_exchange().streamed) {
            trial.began_to_speak();
        }
    }

    /// Takes bytes of the answer, for those who want to hear what it says.
    pub fn overhear(&mut self, bytes: &[u8]) {
        if let Some(overheard) = &mut self.overheard {
            overheard.take(bytes);
        }
    }

    fn note_failure(&mut self, failure: &Failure) {
        if let Some(overheard) = &mut self.overheard {
            overheard.failed(failure);
        }
    }

    pub fn sent(&mut self, bytes: usize) {
        self.edit().response_bytes += bytes as u64;
    }

    pub fn answer(&mut self, id: Option<String>, stop_reason: Option<String>) {
        let exchange = self.edit();
        exchange.message_id = id.map(Into::into).or_else(|| exchange.message_id.take());
        exchange.stop_reason = stop_reason.map(Into::into).or_else(|| exchange.stop_reason.take());
    }

    /// What the upstream of a translated answer calls it, and its own word for the end.
    pub fn native(&mut self, Native { id, reason }: &Native) {
        let exchange = self.edit();
        exchange.native_id = Some(id.clone().unwrap_or_default());
        exchange.native_stop_reason = Some(reason.clone().unwrap_or_default());
    }

    /// The id of a message that goes on with one of another upstream, under that one's id.
    pub fn grafted(&mut self, id: Option<String>) {
        self.edit().native_id = Some(id.unwrap_or_default().into());
    }

    /// Lets a call in for which nobody is called. False when a limit is used up or cannot be asked: then it goes the way of
    /// all others, which knows what to say.
    pub async fn admit_free(&mut self) -> bool {
        self.edit().cost = Some(Money::ZERO);
        // The least there is: what is used up cannot pay even that.
        let is_held = self.hold(&self.demands(Money(1), false)).await.is_ok();
        is_held && self.admit(Money::ZERO, Money::ZERO, &self.demands(Money::ZERO, false)).is_ok()
    }

    /// Lets in something that costs a fee of at most so much, and calls nobody. False when that is more than there is.
    pub async fn admit_fee(&mut self, most: Money) -> bool {
        self.edit().cost = Some(Money::ZERO);
        let demands = self.demands(most, false);
        self.hold(&demands).await.is_ok() && self.admit(most, most, &demands).is_ok()
    }

    /// Notes to whom a fee is due, and how much it is.
    pub fn pay(&mut self, provider: &str, fee: Money) {
        let exchange = self.edit();
        exchange.provider = provider.into();
        exchange.cost = Some(fee);
    }

    /// The answer of another request is given: nobody is called, nothing is used.
    pub fn replay(&mut self, source: GenerationId, told: Told) {
        let Told { id, model, provider, stop_reason } = told;
        let exchange = self.edit();
        exchange.cache_source = Some(source);
        exchange.message_id = Some(id.into());
        // Nobody has said anything of this one.
        (exchange.native_id, exchange.native_stop_reason) = (Some("".into()), Some("".into()));
        exchange.model = model.map_or_else(|| exchange.model.clone(), Into::into);
        exchange.provider = provider.unwrap_or_default().into();
        exchange.stop_reason = stop_reason.map(Into::into);
        exchange.usage_reported = true;
    }
}
