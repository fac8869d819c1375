//! What a call has used so far and what that costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::{Exchange, Money, Posting, Spent, Usage};
use tidegate_providers::anthropic;
use tidegate_routing::price::{Cost, Terms};
use tidegate_routing::{Endpoint, Tier};
use tidegate_store::journal::Progress;
use tidegate_wire::answer::{Charge, Counts};

use super::Ticket;
use crate::failure::Failure;
use crate::ledger::{OnExhausted, Stretched};
use crate::relay::reserve::Ask;

/// How often the journal learns how far a stream has come: after this time, or after so many tokens.
const MARK: Duration = Duration::from_secs(2);
const MARK_TOKENS: u64 = 2_000;
/// After it was asked for more money.
const AGAIN: Duration = Duration::from_millis(250);
/// No upstream is believed when it says that an answer cost this many times what was held for it.
const ABSURD: i64 = 10;

/// A vendor's call of its own search, as it stands in a stream.
const SEARCH: &[u8] = b"\"name\":\"web_search\"";

/// What was used, and what it cost, before the present attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub usage: Usage,
    pub is_byok: bool,
    pub cost: Option<Money>,
    pub list: Option<Money>,
    pub upstream: Option<Money>,
    pub prompt: Money,
    pub completion: Money,
}

impl Carried {
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            usage: self.usage.plus(&other.usage),
            is_byok: self.is_byok || other.is_byok,
            cost: known(self.cost, other.cost),
            list: either(self.list, other.list),
            upstream: either(self.upstream, other.upstream),
            prompt: self.prompt.plus(other.prompt),
            completion: self.completion.plus(other.completion),
        }
    }

    pub fn spent(&self) -> Spent {
        Spent::of(self.cost, self.is_byok, self.list)
    }

    /// The caller is not charged for it; the provider may charge us.
    pub fn waive(&mut self) {
        self.cost = self.cost.map(|_| Money::ZERO);
        self.list = self.list.map(|_| Money::ZERO);
    }

    pub fn add_to(&self, exchange: &mut Exchange) {
        exchange.usage = exchange.usage.plus(&self.usage);
        exchange.is_byok |= self.is_byok;
        exchange.cost = known(exchange.cost, self.cost);
        exchange.list_cost = either(exchange.list_cost, self.list);
        exchange.upstream_cost = either(exchange.upstream_cost, self.upstream);
        exchange.is_estimated = true;
    }
}

/// A sum of which a part is unknown is unknown.
fn known(one: Option<Money>, other: Option<Money>) -> Option<Money> {
    one.zip(other).map(|(one, other)| one.plus(other))
}

/// A part that there is none of adds nothing.
fn either(one: Option<Money>, other: Option<Money>) -> Option<Money> {
    one.into_iter().chain(other).reduce(Money::plus)
}

/// A cost as it is written into answers.
pub(in crate::relay) struct Charged {
    cost: String,
    details: String,
    is_byok: bool,
}

impl Charged {
    pub fn charge(&self) -> Charge<'_> {
        Charge { cost_json: &self.cost, details_json: &self.details, is_byok: self.is_byok }
    }
}

impl Ticket {
    /// So many tokens of the answer are here, by our own count, which never says more than the upstream was asked for.
    pub fn hear(&mut self, tokens: u64) {
        self.heard = tokens.min(self.most.unwrap_or(u64::MAX));
    }

    /// The upstream that is called now is asked for so many tokens at most.
    pub fn asks_for(&mut self, most: Option<u64>) {
        self.most = most;
    }

    /// The same of all attempts at the answer.
    pub fn produced(&self) -> u64 {
        self.heard.saturating_add(self.carried_usage().map_or(0, |carried| carried.output))
    }

    /// The request has so many pictures, which may have a price of their own.
    pub fn has_pictures(&mut self, pictures: u64) {
        (self.pictures, self.shown) = (pictures, pictures);
    }

    /// The upstream that is called now is shown so many of them.
    pub fn shows(&mut self, pictures: u64) {
        self.shown = pictures;
    }

    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// Takes over what was used. No upstream counts the pictures that it was shown.
    fn used_up(&mut self, usage: Usage) -> &mut Exchange {
        let images = usage.images.max(self.shown);
        let exchange = self.edit();
        exchange.usage = Usage { images, ..usage };
        exchange
    }

    /// Whether the upstream may search the web for this call, at a price.
    pub fn may_search(&mut self, may: bool) {
        self.searched = may.then_some(0);
    }

    /// Counts the searches in the next piece of an answer: how many there were is said at its end only, and who leaves before
    /// that pays for those that were made.
    pub fn see(&mut self, frames: &[u8]) {
        if let Some(searched) = &mut self.searched {
            *searched += memchr::memmem::find_iter(frames, SEARCH).count() as u64;
        }
    }

    /// The counts are not the upstream's.
    pub fn estimated(&mut self) {
        let exchange = self.edit();
        exchange.is_estimated = true;
        exchange.usage_reported = false;
    }

    /// Takes over what the upstream reports before its answer: mostly what the prompt is.
    pub fn begun(&mut self, counts: &Counts) {
        self.counts = *counts;
        let exchange = self.used_up(anthropic::usage(counts));
        exchange.is_clamped |= counts.is_odd();
    }

    /// Takes over what the upstream reports and says what it costs at this endpoint.
    pub fn usage(&mut self, counts: &Counts, endpoint: &Endpoint, finished: bool) -> Charged {
        let (prompt, heard) = (self.prompt, self.heard);
        self.counts = *counts;
        let exchange = self.used_up(anthropic::usage(counts));
        exchange.is_clamped |= counts.is_odd();
        exchange.service_tier = counts.tier().map(Into::into);
        exchange.reported_cost = anthropic::reported_cost(counts);
        exchange.usage_reported = counts.output.is_some() && !exchange.is_estimated;
        if counts.output.is_none() && (finished || heard > 0) {
            // It answered and did not say what it used: we count ourselves.
            exchange.usage.output = heard;
            if counts.input.is_none() {
                exchange.usage.input = prompt;
            }
            exchange.is_estimated = true;
        }
        (self.is_final, self.is_charged) = (finished, true);
        // Zero-completion insurance: nothing came out and nothing says why, so nothing is charged.
        let insured = !finished && self.open_exchange().usage.output == 0;
        self.charged(endpoint, insured)
    }

    /// Takes over what pictures used, all of it, and says what that costs at this endpoint.
    pub fn used_whole(&mut self, usage: Usage, is_estimated: bool, endpoint: &Endpoint) -> Charged {
        let exchange = self.used_up(usage);
        (exchange.usage_reported, exchange.is_estimated) = (!is_estimated, is_estimated);
        (self.is_final, self.is_charged) = (true, true);
        self.charged(endpoint, false)
    }

    /// What was used so far is charged, unless it is `insured` against coming to nothing.
    fn charged(&mut self, endpoint: &Endpoint, insured: bool) -> Charged {
        let cost = self.price(endpoint);
        self.charge(cost.map(|cost| cost.total), insured);
        self.edit().cache_discount = cost.map(|cost| cost.cache_discount).filter(|discount| *discount != Money::ZERO);
        let (exchange, carried) = (self.open_exchange(), self.carried.as_deref());
        let is_byok = exchange.is_byok || carried.is_some_and(|carried| carried.is_byok);
        let charged = carried.map_or(exchange.cost, |carried| known(exchange.cost, carried.cost));
        let charged = charged.map_or_else(|| "null".to_owned(), |charged| charged.plus(self.beside).to_string());
        let Some(cost) = cost else {
            return Charged { cost: charged, details: "null".to_owned(), is_byok };
        };
        // Of a sum that was cut the parts are cut, too.
        let part = |part: Money| match exchange.upstream_cost {
            Some(kept) if kept < cost.total => {
                Money((i128::from(part.0) * i128::from(kept.0) / i128::from(cost.total.0)) as i64)
            }
            _ => part,
        };
        let parts = (part(cost.prompt), part(cost.completion));
        let (mut prompt, mut completion) = if insured { Default::default() } else { parts };
        let mut list = exchange.list_cost;
        if let Some(carried) = carried {
            prompt = prompt.plus(carried.prompt);
            completion = completion.plus(carried.completion);
            list = either(list, carried.list);
        }
        self.parts = Some((prompt, completion));
        let upstream = list.map_or_else(|| "null".to_owned(), |list| list.to_string());
        let details = format!(
            r#"{{"upstream_inference_cost":{upstream},"upstream_inference_prompt_cost":{prompt},"upstream_inference_completions_cost":{completion}}}"#
        );
        Charged { cost: charged, details, is_byok }
    }

    /// Tokens of the prompt and of the answer, as they are charged.
    pub fn tokens(&self) -> (u64, u64) {
        let usage = &self.open_exchange().usage;
        (usage.input, usage.output)
    }

    /// What was used before the present attempt, if that goes on with what an earlier one said.
    pub fn carried_usage(&self) -> Option<Usage> {
        self.carried.as_ref().map(|carried| carried.usage)
    }

    /// The same at list price, whoever pays it.
    pub fn carried_price(&self) -> Money {
        self.carried.as_ref().and_then(|carried| carried.upstream).unwrap_or_default()
    }

    /// And what of it is spent.
    pub fn carried_spent(&self) -> Spent {
        self.carried.as_ref().map(|carried| carried.spent()).unwrap_or_default()
    }

    /// What the call spends in all when the present attempt costs so much at list price.
    pub fn would_spend(&self, list: Money, is_byok: bool) -> Spent {
        let credit = if is_byok { self.fee(list) } else { list };
        Spent::of(Some(credit), is_byok, Some(list)).plus(self.carried_spent())
    }

    pub(super) fn price(&self, endpoint: &Endpoint) -> Option<Cost> {
        let terms = Terms { tier: self.counts.tier(), geo: self.counts.geo(), now: self.started() };
        self.served_by(endpoint).pricing.as_ref().map(|pricing| pricing.cost(&self.open_exchange().usage, &terms))
    }

    /// Whose prices count. Who asks for more than the usual service and does not get it, as the upstream says, does not pay
    /// for it either. Nobody pays more than the endpoint's own price: that was held.
    fn served_by<'e>(&'e self, endpoint: &'e Endpoint) -> &'e Endpoint {
        let is_usual = matches!(self.counts.tier(), Some("standard" | "default"));
        if endpoint.tier != Tier::Priority || !is_usual {
            return endpoint;
        }
        let model = self.snapshot.catalogue.find(&endpoint.model).ok().map(|named| named.model);
        // Under another name it is a service of its own, and the usual one there.
        let is_sibling = |other: &&Arc<Endpoint>| {
            other.tier == Tier::Default
                && other.pricing.is_some()
                && (&other.provider, &other.upstream_model) == (&endpoint.provider, &endpoint.upstream_model)
        };
        model.and_then(|model| model.endpoints.iter().find(is_sibling)).map_or(endpoint, |other| &**other)
    }

    /// Sets what the call costs at list price; `waived`: the caller is not charged for it.
    pub(super) fn charge(&mut self, list: Option<Money>, waived: bool) {
        let most = Money(self.bound.0.saturating_mul(ABSURD));
        let is_absurd = list.is_some_and(|list| list > most && self.is_admitted);
        let list = list.map(|list| if is_absurd { most } else { list });
        let fee = list.map(|list| self.fee(list));
        let exchange = self.edit();
        exchange.upstream_cost = list;
        exchange.is_clamped |= is_absurd;
        let charged = list.map(|list| if waived { Money::ZERO } else { list });
        (exchange.cost, exchange.list_cost) = if exchange.is_byok {
            // Through a customer's own credential the provider charges them; what we charge is a fee.
            (Some(if waived { Money::ZERO } else { fee.unwrap_or_default() }), charged)
        } else {
            (charged, None)
        };
    }

    /// What we charge for a call through a customer's own credential.
    pub fn fee(&self, list: Money) -> Money {
        let millionths = i128::from(self.snapshot.settings.billing.byok_fee);
        tidegate_core::money::round(i128::from(list.0) * millionths)
    }

    /// Looks how far a stream has come: tells the journal now and then, and holds more when it costs more than was held.
    /// The failure is what a stream ends with that nobody can pay for.
    pub fn look(&mut self, now: Instant) -> Option<Failure> {
        let (at, tokens) = *self.marked.get_or_insert((now, None));
        let is_due = now >= at + MARK || self.heard >= tokens.unwrap_or(0) + MARK_TOKENS;
        // Of a pause there is nothing to be told.
        if !is_due || tokens == Some(self.heard) {
            return None;
        }
        self.marked = Some((now, Some(self.heard)));
        let endpoint = self.endpoint.clone()?;
        if !self.is_final {
            self.count_so_far();
        }
        let cost = self.price(&endpoint)?.total.plus(self.carried_price());
        let (id, exchange) = (self.id(), self.open_exchange());
        let usage = exchange.usage.plus(&self.carried_usage().unwrap_or_default());
        let spent = Some(self.would_spend(cost.minus(self.carried_price()), exchange.is_byok));
        self.gate.ledger.progress(id, Progress { cost, usage, spent });
        if cost <= self.open_exchange().reserved {
            return None;
        }
        // Enough for a while, or a stream would ask again at every look.
        let ask = Ask {
            endpoint: &endpoint,
            is_byok: self.open_exchange().is_byok,
            prompt: self.open_exchange().usage.prompt(),
            output: self.open_exchange().usage.output + 2 * MARK_TOKENS,
            is_capped: true,
            cache_marked: false,
            cache_1h: false,
            tier: self.counts.tier(),
            searches: 0,
            images: self.shown,
            images_out: 0,
            search_units: 0,
            characters: 0,
            audio_ms: 0,
            now: self.started(),
        };
        let least = cost.minus(self.carried_price());
        let mut stretched = Stretched::Held;
        for (list, is_enough) in [(ask.most(ask.output).max(least), true), (least, false)] {
            let (amount, demands) = (list.plus(self.carried_price()), self.demands(list, ask.is_byok));
            stretched = self.gate.ledger.stretch(&self.key.organisation, id, &demands);
            if stretched == Stretched::Held {
                let exchange = self.edit();
                exchange.reserved = amount;
                exchange.postings =
                    demands.iter().map(|held| Posting { slot: held.rule.slot.clone(), amount: held.amount }).collect();
                self.gate.ledger.amend(self.open_exchange());
                if is_enough {
                    return None;
                }
                break;
            }
        }
        // What the store says to that is known soon; and what is held for no more than was heard will not do for long.
        self.marked = now.checked_sub(MARK - AGAIN).map(|at| (at, Some(self.heard)));
        match self.snapshot.settings.ledger.on_exhausted {
            OnExhausted::Cut if stretched == Stretched::Exhausted => Some(Failure::exhausted()),
            OnExhausted::Cut | OnExhausted::Finish => None,
        }
    }

    /// What is known of an answer that is not over: what the upstream said so far, and our own count of the rest.
    pub(super) fn count_so_far(&mut self) {
        let (prompt, heard, searched) = (self.prompt, self.heard, self.searched.unwrap_or(0));
        let images = self.shown;
        let usage = &mut self.edit().usage;
        usage.images = usage.images.max(images);
        usage.output = usage.output.max(heard);
        usage.web_searches = usage.web_searches.max(searched);
        if usage.prompt() == 0 {
            usage.input = prompt;
        }
    }
}
