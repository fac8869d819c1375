//! What is held for a call before it goes out, and what is said when that is more than there is.

use tidegate_core::{Money, Timestamp};
use tidegate_observe::metrics::Rejection;
use tidegate_providers::{Protocol, estimate};
use tidegate_routing::price::{self, Unit};
use tidegate_routing::{Attempt, Endpoint, Pricing};
use tidegate_wire::error::ErrorType;

use super::job::Job;
use super::settle::Ticket;
use super::signs::Signs;
use super::translate;
use super::unpaid::refused;
use crate::failure::Failure;
use crate::ledger::book::{Demand, Demands, Rule, Short};
use crate::ledger::{Refusal, fail};
use crate::snapshot::UnknownPrice;
use crate::{Gateway, Snapshot};

/// A cap that nobody asked for is lowered no further than this.
const LEAST_OUTPUT: u64 = 256;
/// Searches that are held for a call that may search.
const SEARCHES: u64 = 10;
/// Tokens that a window has of which nobody said how wide it is.
const UNKNOWN_WINDOW: u64 = 1_000_000;
/// How often the cap is lowered: for each account that reaches less far than the one before, and while others take from them.
const TRIES: usize = 16;

/// What a call may cost at one endpoint.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub endpoint: &'a Endpoint,
    pub is_byok: bool,
    /// No prompt of this request has more tokens.
    pub prompt: u64,
    /// What it may answer at most, and whether the caller said so.
    pub output: u64,
    pub is_capped: bool,
    pub cache_marked: bool,
    pub cache_1h: bool,
    /// The dearest service that it asks for by name.
    pub tier: Option<&'a str>,
    /// Searches that the upstream may make, pictures that it is shown, and pictures that it makes.
    pub searches: u64,
    pub images: u64,
    pub images_out: u64,
    /// Search units that may be counted in place of a call.
    pub search_units: u64,
    /// Characters to be spoken, and milliseconds of sound to be listened to.
    pub characters: u64,
    pub audio_ms: u64,
    pub now: Timestamp,
}

/// Holds what an attempt may cost. `Ok` carries the cap that the upstream must be given, where the caller set none and
/// less than everything is affordable.
pub(super) async fn reserve(job: &mut Job, attempt: &Attempt) -> Result<Option<u64>, Failure> {
    // Who searches himself gets another request, and may search at his price.
    job.suit(attempt);
    let snapshot = job.snapshot.clone();
    let settings = &snapshot.settings;
    let endpoint = &attempt.endpoint;
    if endpoint.pricing.is_none() {
        admit_unpriced(&job.gate, &snapshot, &mut job.ticket, endpoint, attempt.credential.is_some())?;
        job.is_poor = false;
        return Ok(None);
    }
    let (mut ask, has_more) = ask(job, attempt);
    job.ticket.may_search(ask.searches > 0);
    let carried = job.ticket.carried_price();
    // What a document elsewhere holds may fill the window, and so may what the vendor's own tools find: whoever pays for it.
    let widest = if has_more { ask.prompt.max(window(endpoint)) } else { ask.prompt };
    let bound = Ask { prompt: widest, ..ask }.most(ask.output).plus(carried);
    if let Some(most) = settings.ledger.reserve_output_tokens {
        ask.output = ask.output.min(most);
    }
    let enough = if ask.is_capped { ask.output } else { ask.output.min(LEAST_OUTPUT) };
    let mut lowered = None;
    let mut binding: Option<Binding> = None;
    for _ in 0..TRIES {
        let most = ask.most(ask.output);
        let (amount, demands) = (most.plus(carried), job.ticket.demands(most, ask.is_byok));
        // For a call that will be refused nothing is held; it is told how much all of its limits can pay for.
        let is_refused = binding.is_some() && (ask.is_capped || ask.output < LEAST_OUTPUT);
        let gathered = if is_refused { job.ticket.reaches(&demands).await } else { job.ticket.hold(&demands).await };
        match gathered {
            Ok(()) if is_refused => break,
            Ok(()) => {
                fail::point("reserved");
                job.ticket.admit(amount, bound, &demands)?;
                job.is_poor = lowered.is_some();
                return Ok(lowered);
            }
            Err(Refusal::Unavailable) => return Err(Failure::unavailable()),
            Err(Refusal::Short(short)) => {
                let Some(tightest) = Binding::of(&job.ticket, &ask, short) else {
                    return Err(Failure::unavailable());
                };
                let less = tightest.tokens.filter(|tokens| *tokens > 0 && *tokens < ask.output);
                // Where all that was asked for could be paid, it is not the answer that is too dear.
                binding = Some(Binding { tokens: less, ..tightest });
                let Some(less) = less else { break };
                ask.output = less;
                lowered = Some(less);
            }
        }
    }
    match binding {
        Some(binding) => Err(refused((&job.gate, &snapshot, &job.ticket), &ask, enough, &binding)),
        None => Err(Failure::unavailable()),
    }
}

/// Holds what a call may cost that cannot be made smaller: it goes as it is or not at all.
pub(super) async fn reserve_whole(
    gate: &Gateway,
    snapshot: &Snapshot,
    ticket: &mut Ticket,
    ask: &Ask<'_>,
) -> Result<(), Failure> {
    if ask.endpoint.pricing.is_none() {
        return admit_unpriced(gate, snapshot, ticket, ask.endpoint, ask.is_byok);
    }
    let amount = ask.most(ask.output);
    let demands = ticket.demands(amount, ask.is_byok);
    match ticket.hold(&demands).await {
        Ok(()) => {
            fail::point("reserved");
            ticket.admit(amount, amount, &demands)
        }
        Err(Refusal::Unavailable) => Err(Failure::unavailable()),
        Err(Refusal::Short(short)) => Err(match Binding::of(ticket, ask, short) {
            Some(binding) => refused((gate, snapshot, ticket), ask, ask.output, &Binding { tokens: None, ..binding }),
            None => Failure::unavailable(),
        }),
    }
}

/// Lets in what nobody knows the price of, where that is allowed.
fn admit_unpriced(
    gate: &Gateway,
    snapshot: &Snapshot,
    ticket: &mut Ticket,
    endpoint: &Endpoint,
    is_byok: bool,
) -> Result<(), Failure> {
    // A customer's own credential costs nothing here but our fee, if we take one.
    let is_counted = |rule: &Rule| !is_byok || rule.counts_byok || snapshot.settings.billing.byok_fee > 0;
    let is_limited = ticket.rules().iter().any(is_counted);
    match snapshot.settings.unknown_price {
        UnknownPrice::Allow => gate.metrics.ledger_unpriced.inc(),
        UnknownPrice::RefuseLimited if !is_limited => gate.metrics.ledger_unpriced.inc(),
        UnknownPrice::RefuseLimited | UnknownPrice::Refuse => return Err(unpriced(gate, endpoint)),
    };
    ticket.admit(Money::ZERO, Money::ZERO, &Demands::new())
}

/// With whether more may be read than the body says: pictures, documents, or what tools print that the vendor runs. That is
/// looked for once in what may be a large body.
fn ask<'a>(job: &Job, attempt: &'a Attempt) -> (Ask<'a>, bool) {
    let endpoint = &*attempt.endpoint;
    let most = endpoint.max_output_tokens;
    let signs = Signs::of(&job.body);
    let is_limited = !job.ticket.rules().is_empty();
    let is_native = job.snapshot.upstreams[endpoint.provider_index].protocol == Protocol::Messages;
    let is_searched = endpoint.pricing.as_ref().is_some_and(|pricing| pricing.base.get(Unit::WebSearch).is_some());
    let tiers = endpoint.pricing.iter().flat_map(|pricing| &pricing.tiers).filter(|_| is_limited);
    // Who asks for speed gets what some call priority, and who leaves it open may.
    let may_be = |name: &&str| match job.tier.as_deref() {
        None => false,
        Some("fast" | "priority") => matches!(*name, "fast" | "priority"),
        Some("auto") => *name == "priority",
        Some(asked) => *name == asked,
    };
    let tier = tiers.map(|(name, _)| &**name).find(may_be);
    let mut prompt = (job.body.len() as u64).div_ceil(3) + 64;
    let has_sources = signs.has_sources();
    if is_limited && has_sources {
        // Bytes say nothing about pictures and documents.
        let card = &job.snapshot.places[endpoint.place].card;
        if let Ok(request) = translate::typed(&job.typed, &job.body) {
            prompt = estimate::rough(request, card).saturating_mul(11) / 10 + 64;
            if estimate::has_unseen(request) {
                prompt = prompt.max(window(endpoint));
            }
        }
    }
    if job.continues_thread {
        // What the upstream holds is not in the body, and may fill the window.
        prompt = window(endpoint);
    }
    let is_cached = is_limited && signs.is_cached();
    let ask = Ask {
        endpoint,
        is_byok: attempt.credential.is_some(),
        prompt: if endpoint.context_length > 0 { prompt.min(endpoint.context_length) } else { prompt },
        output: job.max_tokens.map_or(most, |cap| if most > 0 { cap.min(most) } else { cap }),
        is_capped: job.max_tokens.is_some(),
        // Others write to their caches without being told to.
        cache_marked: is_limited && (!is_native || is_cached),
        cache_1h: is_cached && signs.is_cached_for_an_hour(),
        tier,
        // Also where nothing is limited: what nobody could have expected is not believed.
        searches: if is_searched && job.has_tools && signs.searches() { SEARCHES } else { 0 },
        images: job.ticket.shown(),
        images_out: 0,
        search_units: 0,
        characters: 0,
        audio_ms: 0,
        now: job.ticket.started(),
    };
    let has_more = has_sources || (job.has_tools && signs.runs_tools());
    (ask, has_more)
}

/// The most that a prompt can have at an endpoint.
fn window(endpoint: &Endpoint) -> u64 {
    if endpoint.context_length > 0 { endpoint.context_length } else { UNKNOWN_WINDOW }
}

/// The account that does not let a call in, and the output that it can pay for; none when it cannot even pay for the prompt.
pub(super) struct Binding {
    pub short: Short,
    pub tokens: Option<u64>,
}

impl Binding {
    /// The one that reaches least far, and of several the broadest: rules come widest first. While it is known of some how much
    /// there is at all, others of which more may come from elsewhere are left to the next try, which is for less.
    fn of(ticket: &Ticket, ask: &Ask<'_>, mut short: Vec<Short>) -> Option<Self> {
        if short.iter().any(|short| short.is_final) {
            short.retain(|short| short.is_final);
        }
        let all = short.into_iter().map(|short| Self { tokens: ask.reach(ticket, &short), short });
        all.min_by_key(|binding| binding.tokens)
    }
}

fn unpriced(gate: &Gateway, endpoint: &Endpoint) -> Failure {
    gate.metrics.limit_rejections.get_or_create(&Rejection { kind: "unpriced" }).inc();
    let text = format!(
        "The price of {} at {} is unknown: set pricing for this endpoint, or pricing.unknown = \"allow\"",
        endpoint.model, endpoint.provider_name
    );
    Failure::new(402, ErrorType::PaymentRequired, text)
}

impl<'a> Ask<'a> {
    /// Of a call that is answered whole, and has nothing but a prompt.
    pub fn whole(attempt: &'a Attempt, ticket: &Ticket) -> Self {
        let endpoint = &*attempt.endpoint;
        Self {
            endpoint,
            is_byok: attempt.credential.is_some(),
            prompt: 0,
            output: 0,
            is_capped: true,
            cache_marked: false,
            cache_1h: false,
            tier: endpoint.tier.name(),
            searches: 0,
            images: ticket.shown(),
            images_out: 0,
            search_units: 0,
            characters: 0,
            audio_ms: 0,
            now: ticket.started(),
        }
    }

    /// What the call costs at most with so much output.
    pub fn most(&self, output: u64) -> Money {
        let pricing = self.endpoint.pricing.as_ref();
        pricing.map_or(Money::ZERO, |pricing| pricing.most(&self.priced(output)).plus(self.searched(pricing)))
    }

    fn searched(&self, pricing: &Pricing) -> Money {
        let price = pricing.base.of(Unit::WebSearch);
        tidegate_core::money::round(i128::from(price.0) * i128::from(self.searches))
    }

    fn priced(&self, output: u64) -> price::Ask<'_> {
        let Self { prompt, cache_marked, cache_1h, tier, images, images_out, search_units, now, .. } = *self;
        let Self { characters, audio_ms, .. } = *self;
        price::Ask {
            prompt,
            output,
            cache_marked,
            cache_1h,
            tier,
            images,
            images_out,
            search_units,
            characters,
            audio_ms,
            now,
        }
    }

    /// The output that an account can pay for: of a call through a customer's own credential it may see no more than our fee.
    pub fn reach(&self, ticket: &Ticket, short: &Short) -> Option<u64> {
        let pricing = self.endpoint.pricing.as_ref()?;
        let Short { available, demand: Demand { rule, .. }, .. } = short;
        // What an earlier attempt holds can be spent on this one, but for what it has spent itself.
        let (there, searched) = (available.plus(ticket.held(&rule.slot)), self.searched(pricing));
        let spent = |most: Money| ticket.would_spend(most.plus(searched), self.is_byok).counted(rule.counts_byok);
        pricing.longest(&self.priced(self.output), |most| spent(most) <= there)
    }
}

impl Ticket {
    /// What each limit of the call sees when the present attempt costs so much at list price.
    pub fn demands(&self, list: Money, is_byok: bool) -> Demands {
        let spent = self.would_spend(list, is_byok);
        let demand = |rule: &Rule| Demand { rule: rule.clone(), amount: spent.counted(rule.counts_byok) };
        // What goes through a customer's own credential is none of the business of limits that do not count it.
        let concerns = |demand: &Demand| !is_byok || demand.rule.counts_byok || demand.amount > Money::ZERO;
        self.rules().iter().map(demand).filter(concerns).collect()
    }
}
