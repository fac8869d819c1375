//! The ways in which a call ends: each is settled once, whatever happened.

use tidegate_core::exchange::Served;
use tidegate_core::{Exchange, Money, Outcome, Posting, Settlement, Spent};

use super::charge::Carried;
use super::{Ticket, millis};
use crate::broadcast::{self, Overheard};
use crate::failure::Failure;
use crate::ledger::book::Rule;
use crate::ledger::{Letters, Receipt, fail};

impl Ticket {
    /// The whole answer is on its way.
    pub fn complete(mut self: Box<Self>) -> Receipt {
        if let Some(endpoint) = self.endpoint.clone().filter(|_| !self.is_charged) {
            // It came to its end without a word on what it used.
            self.count_so_far();
            self.edit().is_estimated = true;
            let cost = self.price(&endpoint).map(|cost| cost.total);
            let is_nothing = self.heard == 0;
            self.charge(cost, is_nothing);
        }
        if let Some(trial) = self.trial.take() {
            trial.answered(self.open_exchange().usage.output);
        }
        if let (Some(conversation), Some(endpoint), 0) = (&self.conversation, &self.endpoint, self.model) {
            let now = self.gate.clock.now();
            let usage = &self.open_exchange().usage;
            self.gate.sticky.served(conversation, (endpoint, self.own.as_deref()), usage, now);
        }
        if let (Some(hearth), Some(endpoint)) = (&self.hearth, &self.endpoint) {
            hearth.served(endpoint, self.own.as_deref(), self.gate.clock.now());
        }
        let routed = self.told.as_ref().and_then(|told| told.conversation);
        if let (Some(conversation), Some(endpoint)) = (routed, &self.endpoint) {
            self.gate.sticky.keep_model(&conversation, &endpoint.model, self.gate.clock.now());
        }
        let (outcome, status) =
            if self.presence.is_gone() { (Outcome::Cancelled, 499) } else { (Outcome::Complete, 200) };
        self.close(outcome, status, None)
    }

    /// Where the last attempt went and what its parts cost, for those who are told.
    fn served(&self, exchange: &Exchange) -> Option<Served> {
        let Some(endpoint) = &self.endpoint else { return self.kept_from(exchange) };
        Some(Served {
            provider: endpoint.provider.clone(),
            origin: endpoint.origin.clone(),
            strategy: self.strategy.unwrap_or_default().into(),
            prompt: self.parts.map(|(prompt, _)| prompt),
            completion: self.parts.map(|(_, completion)| completion),
            tools: Some(self.beside.plus(self.fees)).filter(|paid| *paid != Money::ZERO),
        })
    }

    /// Who once gave an answer that was kept: that has its model's and its provider's name.
    fn kept_from(&self, exchange: &Exchange) -> Option<Served> {
        exchange.cache_source?;
        let named = self.snapshot.catalogue.find(&exchange.model).ok()?;
        let endpoint = named.model.endpoints.iter().find(|one| one.provider_name == exchange.provider)?;
        Some(Served { provider: endpoint.provider.clone(), ..Served::default() })
    }

    /// No content reached the client.
    pub fn fail(mut self: Box<Self>, failure: &Failure) -> Receipt {
        self.note_failure(failure);
        let exchange = self.edit();
        exchange.upstream_cost = None;
        exchange.list_cost = exchange.list_cost.map(|_| Money::ZERO);
        exchange.cost = Some(Money::ZERO);
        exchange.usage = Default::default();
        self.close(Outcome::Failed, failure.status, Some(failure.error_type.as_str()))
    }

    /// Nothing is to be remembered of it: it was never let in.
    pub fn refuse(mut self: Box<Self>) {
        self.exchange = None;
    }

    /// The stream broke and goes on elsewhere: what it said so far stays said, and is charged with the rest.
    pub fn carry(&mut self, status: u16) {
        self.attempt_broke(status);
        let Some(endpoint) = self.endpoint.clone() else { return };
        self.count_so_far();
        let cost = self.price(&endpoint);
        self.charge(cost.map(|cost| cost.total), false);
        let exchange = self.open_exchange();
        let part = Carried {
            usage: exchange.usage,
            is_byok: exchange.is_byok,
            cost: exchange.cost,
            list: exchange.list_cost,
            upstream: exchange.upstream_cost,
            prompt: cost.unwrap_or_default().prompt,
            completion: cost.unwrap_or_default().completion,
        };
        self.carried = Some(Box::new(match self.carried.take() {
            Some(earlier) => earlier.plus(&part),
            None => part,
        }));
        // It stands there alone now, or it would be charged twice should nobody go on.
        self.heard = 0;
        self.uncalled();
        let exchange = self.edit();
        exchange.usage = Default::default();
        exchange.upstream_cost = None;
        exchange.cost = exchange.cost.map(|_| Money::ZERO);
        exchange.list_cost = exchange.list_cost.map(|_| Money::ZERO);
    }

    /// Content had gone out when the answer ended in an error. `waived`: that was not for the caller to prevent, and is not
    /// charged.
    pub fn broken(mut self: Box<Self>, failure: &Failure, waived: bool) -> Receipt {
        self.note_failure(failure);
        if let Some(carried) = self.carried.as_mut().filter(|_| waived) {
            carried.waive();
        }
        if self.is_final {
            let list = self.open_exchange().upstream_cost;
            self.charge(list, waived);
        } else if let Some(endpoint) = self.endpoint.clone().filter(|_| self.is_called) {
            self.count_so_far();
            let cost = self.price(&endpoint).map(|cost| cost.total);
            self.edit().is_estimated = true;
            self.charge(cost, waived);
        }
        self.close(Outcome::Broken, 200, Some(failure.error_type.as_str()))
    }

    /// The client left. What the upstream charges for is charged.
    fn abandon(&mut self) {
        let Some(endpoint) = self.endpoint.clone().filter(|_| self.is_called) else { return };
        if self.is_final {
            return;
        }
        self.count_so_far();
        self.edit().is_estimated = true;
        let is_unheard = !self.open_exchange().streamed && self.presence.bills_anyway();
        let cost = match self.price(&endpoint) {
            // It goes on to the end and charges for it, and nobody can tell how much that is.
            Some(_) if is_unheard => Some(self.open_exchange().reserved),
            cost => cost.map(|cost| cost.total),
        };
        let waived = self.presence.is_ended();
        self.charge(cost, waived);
    }

    fn close(&mut self, outcome: Outcome, status: u16, error_type: Option<&'static str>) -> Receipt {
        let Some(mut exchange) = self.exchange.take() else { return Receipt::DONE };
        if let Some(carried) = self.carried.take() {
            carried.add_to(&mut exchange);
        }
        // Only now: at the upstream's price they are not.
        exchange.usage.web_searches = exchange.usage.web_searches.saturating_add(self.ran.0);
        exchange.usage.web_fetches = exchange.usage.web_fetches.saturating_add(self.ran.1);
        exchange.outcome = outcome;
        exchange.status = status;
        exchange.error_type = error_type.map(Into::into);
        exchange.duration_ms = millis(exchange.started, self.gate.clock.now());
        let spent = exchange.spent();
        if let Some(meter) = &self.meter {
            meter.add(spent.credit);
            if exchange.is_fee() {
                meter.paid(spent.credit);
            }
        }
        let is_free = spent == Spent::default();
        exchange.settlement =
            if is_free && outcome != Outcome::Complete { Settlement::Released } else { Settlement::Settled };
        if exchange.is_clamped {
            self.gate.metrics.ledger_clamped.inc();
            tracing::error!(generation_id = %exchange.id, provider = %exchange.provider, "an upstream reported usage that cannot be true: its cost was cut");
        }
        if self.is_admitted {
            let posting = |rule: &Rule| Posting { slot: rule.slot.clone(), amount: spent.counted(rule.counts_byok) };
            exchange.postings = self.rules.iter().map(posting).collect();
            if self.key.is_limited_anew() || self.gate.ledger.changes() != self.changes {
                self.post_to_new_limits(&mut exchange, spent);
            }
        }
        fail::point("settling");
        let overheard = self.overheard.take();
        let served = overheard.as_ref().and_then(|_| self.served(&exchange));
        // With the record, where a letter is made of that alone.
        let served = match &mut exchange.asked {
            Some(asked) => {
                asked.served = served;
                None
            }
            None => served,
        };
        let letters = overheard.map(|overheard| self.letters(&exchange, served, overheard));
        let receipt = self.gate.ledger.settle(exchange, self.has_place, letters);
        fail::point("settle.queued");
        receipt
    }
}

impl Ticket {
    /// Charges the call to limits that are others than when it was let in: who spends from them next must not find what it
    /// has cost.
    fn post_to_new_limits(&self, exchange: &mut Exchange, spent: Spent) {
        let key = self.gate.keys.known(&self.key.hash).unwrap_or_else(|| self.key.clone());
        let is_billed = self.gate.snapshot().settings.billing.enabled;
        let mut rules = self.gate.ledger.rules(&key, is_billed, exchange.started);
        self.gate.guardrails.add_rules(&key, exchange.started, &mut rules);
        let mut unheld = Vec::new();
        for rule in rules {
            let amount = spent.counted(rule.counts_byok);
            match exchange.postings.iter_mut().find(|posting| posting.slot == rule.slot) {
                Some(posting) => posting.amount = amount,
                None => {
                    exchange.postings.push(Posting { slot: rule.slot.clone(), amount });
                    unheld.push(rule);
                }
            }
        }
        self.gate.ledger.charged_unheld(exchange.id, unheld);
    }

    /// What destinations are to be told. What was said can be long, and is looked through while its caller waits; of the
    /// rest there is nothing to be done yet.
    fn letters(&self, exchange: &Exchange, served: Option<Served>, overheard: Box<Overheard>) -> Letters {
        let (gate, snapshot, key) = (self.gate.clone(), self.snapshot.clone(), self.key.clone());
        let write = move |exchange: &Exchange, overheard: &Overheard| {
            let (audience, metadata) = (&snapshot.settings.audience, &snapshot.names.metadata_member);
            let told = (exchange, served.as_ref());
            broadcast::letters(audience, &gate.told.list(), &gate.vault, told, &key, overheard, metadata)
        };
        if overheard.is_discreet() {
            return Box::new(move |exchange| write(exchange, &overheard));
        }
        let made = write(exchange, &overheard);
        self.gate.contents.offer(exchange, overheard, &self.snapshot);
        Box::new(move |_| made)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.exchange.is_none() {
            return;
        }
        self.abandon();
        if !self.presence.is_ended() {
            self.close(Outcome::Cancelled, 499, None);
            return;
        }
        // The client is there and hears that the gateway stops.
        let failure = Failure::unavailable();
        self.note_failure(&failure);
        let (outcome, status) = match &mut self.carried {
            Some(carried) => {
                carried.waive();
                (Outcome::Broken, 200)
            }
            None => (Outcome::Failed, failure.status),
        };
        self.close(outcome, status, Some(failure.error_type.as_str()));
    }
}
