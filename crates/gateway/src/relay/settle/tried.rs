//! What becomes of the attempts of a call.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{Money, Timestamp};
use tidegate_providers::blot::Used;
use tidegate_providers::credential::Credential as ProviderCredential;
use tidegate_providers::{Class, Fault};
use tidegate_routing::{Attempt, Endpoint, Strategy};
use tidegate_wire::answer::Counts;

use super::Ticket;
use crate::health::Retry;
use crate::relay::admit::millis;

impl Ticket {
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
        self.presence.bill_anyway(bills_anyway);
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
    pub(super) fn uncalled(&mut self) {
        self.is_called = false;
        self.presence.bill_anyway(false);
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
}
