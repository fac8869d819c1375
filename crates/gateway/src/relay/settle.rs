//! The account of one request: opened at admission, closed exactly once, whatever happens in between.

mod charge;
mod end;
mod hold;
mod metadata;
mod presence;
mod shelf;
mod tried;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::exchange::Asked;
use tidegate_core::{Api, Exchange, GenerationId, Money, Timestamp, WorkspaceId, boxed};
use tidegate_providers::blot::Used;
use tidegate_providers::translate::Native;
use tidegate_routing::{Credential, Endpoint};
use tidegate_wire::answer::Counts;
use tidegate_wire::envelope::Envelope;

use charge::Carried;
pub(super) use presence::Presence;
pub(super) use shelf::Shelved;

use super::Inner;
use super::admit::{Held, millis};
use super::meter::Meter;
use crate::broadcast::Overheard;
use crate::failure::Failure;
use crate::health::{Retry, Trial};
use crate::keys::KeyEntry;
use crate::ledger::Shared;
use crate::ledger::rules::Rules;
use crate::plugins::Told as Changed;
use crate::plugins::defaults::said;
use crate::sticky::{Conversation, Hearth};
use crate::{Gateway, Snapshot};

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
    /// How often limits had changed until then.
    changes: u64,
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
    /// Tokens that the upstream was asked for at most.
    most: Option<u64>,
    /// Searches of the upstream that have come by, where it may make some.
    searched: Option<u64>,
    /// When the journal was told how far it is, and how far that was; nothing: it was not.
    marked: Option<(Instant, Option<u64>)>,
    presence: Arc<Presence>,
    /// What plugins did.
    told: Option<Box<Changed>>,
    /// For destinations, where some want to hear of it.
    overheard: Option<Box<Overheard>>,
    /// What was paid for that beside the call: it is shown with its cost, and on records of its own.
    beside: Money,
    /// What tools were paid since the turn before this one, on records of their own.
    fees: Money,
    /// Searches and fetches that were run here for the model to read with this call.
    ran: (u64, u64),
    /// What the attempt under way left out, as an entry of the metadata.
    compressed: Option<Box<str>>,
    /// Of the loop that it is part of.
    meter: Option<Arc<Meter>>,
    /// Where the turns of that are served.
    hearth: Option<Arc<Hearth>>,
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

/// Who sent a request, as its records name them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    session: Option<Box<str>>,
    user: Option<Box<str>>,
    user_agent: Option<Box<str>>,
    referer: Option<Box<str>>,
    title: Option<Box<str>>,
}

impl Asker {
    pub(super) fn of(sender: Sender, user: Option<&str>) -> Self {
        let Sender { session, user_agent, referer, title, trace: _ } = sender;
        Self { session, user: user.map(Into::into), user_agent, referer, title }
    }
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
        let new = || Exchange::new(GenerationId::new(started), organisation, workspace, key.hash, model, started);
        let mut exchange = boxed(new);
        exchange.request_bytes = request_bytes as u64;
        let changes = gate.ledger.changes();
        let mut rules = gate.ledger.rules(key, snapshot.settings.billing.enabled, started);
        gate.guardrails.add_rules(key, started, &mut rules);
        boxed(|| Self {
            rules,
            changes,
            gate: gate.clone(),
            snapshot: snapshot.clone(),
            exchange: Some(exchange),
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
            most: None,
            searched: None,
            marked: None,
            presence: Arc::default(),
            told: None,
            overheard: None,
            beside: Money::ZERO,
            fees: Money::ZERO,
            ran: (0, 0),
            compressed: None,
            meter: None,
            hearth: None,
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
        self.asked_by(Asker::of(sender, user));
        self.edit().attempts = Vec::with_capacity(1);
    }

    /// The same of what belongs to a request.
    pub fn asked_by(&mut self, asker: Asker) {
        let Asker { session, user, user_agent, referer, title } = asker;
        let exchange = self.edit();
        (exchange.session, exchange.user, exchange.user_agent) = (session, user, user_agent);
        (exchange.referer, exchange.title) = (referer, title);
    }

    fn asker(&self) -> Asker {
        let Exchange { session, user, user_agent, referer, title, .. } = self.open_exchange();
        let [session, user, user_agent, referer, title] = [session, user, user_agent, referer, title].map(Clone::clone);
        Asker { session, user, user_agent, referer, title }
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

    /// Who serves it serves the turns behind it.
    pub fn at(&mut self, inner: &Inner) {
        self.hearth = Some(inner.hearth.clone());
    }

    /// The tools that were run since the turn before this one, for destinations, and what they were paid.
    pub fn used(&mut self, inner: &Inner) {
        self.fees = inner.meter.fees();
        let (searches, fetches) = inner.ran();
        self.ran = (self.ran.0 + searches, self.ran.1 + fetches);
        inner.asker.get_or_init(|| self.asker());
        if let Some(overheard) = &mut self.overheard {
            overheard.used(inner.used());
        }
    }

    /// What was done to the request before it was planned; for the metadata.
    /// Only the first turn of a loop shows what was paid for it.
    pub fn tell(&mut self, told: &Changed, is_first: bool) {
        if is_first {
            (self.beside, self.ran) = (told.fee, (told.searches, 0));
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

    /// Whether the attempt under way is sent less than what was asked.
    pub fn is_compressed(&self) -> bool {
        self.compressed.is_some()
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
