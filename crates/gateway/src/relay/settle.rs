//! The account of one request: opened at admission, closed exactly once, whatever happens in between.

use std::fmt::Write as _;
use std::sync::Arc;

use tidegate_core::exchange::AttemptRecord;
use tidegate_core::{Exchange, GenerationId, Money, Outcome, Timestamp, WorkspaceId};
use tidegate_providers::anthropic;
use tidegate_routing::price::Cost;
use tidegate_routing::{Attempt, Endpoint, Plan};
use tidegate_wire::answer::{Charge, Counts};
use tidegate_wire::envelope::Envelope;
use tidegate_wire::json::quoted;

use super::admit::{Places, millis};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::{Gateway, Snapshot};

/// A request under way. Dropping it closes the account as cancelled: that is what a client that leaves does.
pub(super) struct Ticket {
    gate: Arc<Gateway>,
    exchange: Option<Box<Exchange>>,
    key: Arc<KeyEntry>,
    _places: Places,
}

/// A cost as it is written into answers.
pub(super) struct Charged {
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
    pub fn open(
        gate: &Arc<Gateway>,
        key: &Arc<KeyEntry>,
        places: Places,
        envelope: &Envelope<'_>,
        header_session: Option<&str>,
        request_bytes: usize,
    ) -> Self {
        let started = gate.clock.now();
        let user = envelope.user.as_deref().or(envelope.metadata_user.as_deref());
        let exchange = Exchange {
            id: GenerationId::new(started),
            organisation: key.organisation.clone(),
            workspace: key.workspace.clone(),
            key: key.hash,
            model: envelope.model.as_deref().unwrap_or_default().into(),
            provider: Arc::default(),
            outcome: Outcome::Cancelled,
            status: 499,
            streamed: envelope.stream,
            stop_reason: None,
            upstream_id: None,
            error_type: None,
            usage: Default::default(),
            usage_reported: false,
            cost: None,
            is_byok: false,
            list_cost: None,
            session: envelope.session_id.as_deref().or(header_session).map(Into::into),
            user: user.map(Into::into),
            attempts: Vec::with_capacity(1),
            started,
            first_content_ms: None,
            duration_ms: 0,
            request_bytes: request_bytes as u64,
            response_bytes: 0,
        };
        Self { gate: gate.clone(), exchange: Some(Box::new(exchange)), key: key.clone(), _places: places }
    }

    /// Whether the caller's key still stands.
    pub fn may_go_on(&self) -> bool {
        self.key.may_go_on(self.gate.clock.now())
    }

    pub fn id(&self) -> GenerationId {
        self.open_exchange().id
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

    /// Notes where an attempt goes; from here on the record names it.
    pub fn attempt(&mut self, attempt: &Attempt) {
        let endpoint = &attempt.endpoint;
        let exchange = self.edit();
        exchange.is_byok = attempt.credential.is_some();
        exchange.model = endpoint.model.clone();
        exchange.provider = endpoint.provider_name.clone();
        exchange.usage = Default::default();
        exchange.usage_reported = false;
        // What an earlier attempt had begun to say belongs to it alone.
        exchange.cost = None;
        exchange.list_cost = None;
        exchange.upstream_id = None;
        exchange.stop_reason = None;
    }

    pub fn attempted(&mut self, endpoint: &Endpoint, status: u16, since: Timestamp) {
        let now = self.gate.clock.now();
        self.edit().attempts.push(AttemptRecord {
            provider: endpoint.provider_name.clone(),
            model: endpoint.model.clone(),
            status,
            duration_ms: millis(since, now),
        });
    }

    /// A stream that had begun well broke: the attempt's status becomes the one of a broken connection.
    pub fn attempt_broke(&mut self, status: u16) {
        if let Some(last) = self.edit().attempts.last_mut() {
            last.status = status;
        }
    }

    pub fn first_content(&mut self) {
        let now = self.gate.clock.now();
        let exchange = self.edit();
        exchange.first_content_ms = Some(millis(exchange.started, now));
    }

    pub fn sent(&mut self, bytes: usize) {
        self.edit().response_bytes += bytes as u64;
    }

    /// Takes over what the upstream reports and says what it costs at this endpoint.
    pub fn usage(&mut self, counts: &Counts, endpoint: &Endpoint, finished: bool) -> Charged {
        let exchange = self.edit();
        exchange.usage = anthropic::usage(counts);
        exchange.usage_reported = counts.output.is_some();
        // Zero-completion insurance: nothing came out and nothing says why, so nothing is charged.
        let insured = !finished && exchange.usage.output == 0;
        let cost =
            endpoint.pricing.map(|pricing| if insured { Cost::default() } else { pricing.cost(&exchange.usage) });
        let list = cost.map(|cost| cost.total);
        let is_byok = exchange.is_byok;
        // Through a customer's own credential the provider charges them; what we charge is a fee, and it is none.
        (exchange.cost, exchange.list_cost) = if is_byok { (Some(Money::ZERO), list) } else { (list, None) };
        let Some(cost) = cost else {
            let cost = if is_byok { "0" } else { "null" };
            return Charged { cost: cost.to_owned(), details: "null".to_owned(), is_byok };
        };
        let upstream = if is_byok { cost.total.to_string() } else { "null".to_owned() };
        let details = format!(
            r#"{{"upstream_inference_cost":{upstream},"upstream_inference_prompt_cost":{},"upstream_inference_completions_cost":{}}}"#,
            cost.prompt, cost.completion
        );
        let charged = if is_byok { Money::ZERO } else { cost.total };
        Charged { cost: charged.to_string(), details, is_byok }
    }

    pub fn answer(&mut self, id: Option<String>, stop_reason: Option<String>) {
        let exchange = self.edit();
        exchange.upstream_id = id.map(Into::into).or_else(|| exchange.upstream_id.take());
        exchange.stop_reason = stop_reason.map(Into::into).or_else(|| exchange.stop_reason.take());
    }

    /// The whole answer is on its way.
    pub fn complete(mut self) {
        self.close(Outcome::Complete, 200, None);
    }

    /// No content reached the client.
    pub fn fail(mut self, failure: &Failure) {
        let exchange = self.edit();
        exchange.cost = None;
        exchange.list_cost = None;
        exchange.usage = Default::default();
        self.close(Outcome::Failed, failure.status, Some(failure.error_type.as_str()));
    }

    /// Content had gone out when the upstream broke: an error finish is not charged.
    pub fn broken(mut self, failure: &Failure) {
        let exchange = self.edit();
        exchange.cost = exchange.cost.map(|_| Money::ZERO);
        exchange.list_cost = exchange.list_cost.map(|_| Money::ZERO);
        self.close(Outcome::Broken, 200, Some(failure.error_type.as_str()));
    }

    fn close(&mut self, outcome: Outcome, status: u16, error_type: Option<&'static str>) {
        let Some(mut exchange) = self.exchange.take() else { return };
        exchange.outcome = outcome;
        exchange.status = status;
        exchange.error_type = error_type;
        exchange.duration_ms = millis(exchange.started, self.gate.clock.now());
        self.gate.recorder.push(exchange);
    }

    /// The routing metadata of this moment. `selected` is the attempt that answered.
    pub fn routing_json(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        requested: &str,
        selected: Option<&Attempt>,
        sent_at: Timestamp,
    ) -> String {
        let exchange = self.open_exchange();
        let strategy = selected.or_else(|| plan.attempts.first()).map_or("direct", |attempt| attempt.strategy.as_str());
        let mut out = format!(
            r#"{{"requested":{},"strategy":"{strategy}","region":{},"summary":"#,
            quoted(requested),
            quoted(&snapshot.settings.region)
        );
        let available = plan.attempts.len();
        let summary = match selected {
            Some(attempt) => format!("available={available}, selected={}", attempt.endpoint.provider_name),
            None => format!("available={available}"),
        };
        let _ = write!(out, r#"{},"attempt":{}"#, quoted(&summary), exchange.attempts.len());
        if selected.is_some() {
            let _ = write!(out, r#","generation_time":{}"#, millis(sent_at, self.gate.clock.now()));
        }
        let listed: Vec<String> = plan
            .attempts
            .iter()
            .map(|attempt| {
                let chosen = selected.is_some_and(|selected| {
                    let same = selected.credential.as_ref().map(|own| &own.id)
                        == attempt.credential.as_ref().map(|own| &own.id);
                    same && Arc::ptr_eq(&selected.endpoint, &attempt.endpoint)
                });
                let (provider, model) = (quoted(&attempt.endpoint.provider_name), quoted(&attempt.endpoint.model));
                format!(r#"{{"provider":{provider},"model":{model},"selected":{chosen}}}"#)
            })
            .collect();
        let _ = write!(
            out,
            r#","is_byok":{},"endpoints":{{"total":{},"available":[{}]}}"#,
            selected.is_some_and(|attempt| attempt.credential.is_some()),
            plan.total,
            listed.join(",")
        );
        if !exchange.attempts.is_empty() {
            let tried: Vec<String> = exchange
                .attempts
                .iter()
                .map(|attempt| {
                    let (provider, model) = (quoted(&attempt.provider), quoted(&attempt.model));
                    format!(r#"{{"provider":{provider},"model":{model},"status":{}}}"#, attempt.status)
                })
                .collect();
            let _ = write!(out, r#","attempts":[{}]"#, tried.join(","));
        }
        out.push('}');
        out
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.close(Outcome::Cancelled, 499, None);
    }
}
