//! What is measured of requests beside how they ended: how long they took at the door, who had to stand in for whom, how
//! fast models speak, what was refused on the way out.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::Exchange;
use tidegate_core::exchange::AttemptRecord;

use super::{Reason, Receiver, Served, ToolCall, seconds};
use crate::scrub;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Door {
    pub route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Fallback {
    pub from: String,
    pub to: String,
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct At {
    pub provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Happened {
    pub event: &'static str,
}

/// What people say an answer is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Category {
    pub category: &'static str,
}

/// A module of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Group {
    pub query_group: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Pool {
    pub pool: &'static str,
}

/// A master key, by its id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MasterKey {
    pub kek_id: String,
}

/// Counts what egress refuses.
pub type Refusals = Family<Reason, Counter>;

pub struct Flow {
    pub http_duration: Family<Door, Histogram>,
    fallbacks: Family<Fallback, Counter>,
    retries: Family<At, Counter>,
    speed: Family<Served, Histogram>,
    pub tool_duration: Family<ToolCall, Histogram>,
    pub auth_codes: Family<Happened, Counter>,
    pub egress_refusals: Refusals,
    /// Requests whose words were kept, and those whose words should have been.
    pub contents_kept: Counter,
    pub contents_lost: Family<Reason, Counter>,
    pub feedback: Family<Category, Counter>,
    /// Requests whose own spans did not reach the collector.
    pub spans_lost: Family<Reason, Counter>,
    /// Our own part of the time until an answer began.
    overhead: Family<Door, Histogram>,
    pub db_query: Family<Group, Histogram>,
    pub db_pool: Family<Pool, Gauge>,
    pub secrets: Family<MasterKey, Gauge>,
    /// Since when the oldest letter waits for a destination, in seconds.
    pub broadcast_oldest: Family<Receiver, Gauge>,
    pub(super) cooldown: Family<At, Gauge>,
    /// Calls that were refused for the operator's own key.
    pub(super) credential_refusals: Family<At, Counter>,
}

/// 1 to 2 000 tokens a second, log-spaced.
fn tokens_a_second() -> Histogram {
    Histogram::new((0..16).map(|place| 2_000.0_f64.powf(f64::from(place) / 15.0)))
}

impl Flow {
    pub fn new(registry: &mut Registry) -> Self {
        let flow = Self {
            http_duration: Family::new_with_constructor(seconds),
            fallbacks: Family::default(),
            retries: Family::default(),
            speed: Family::new_with_constructor(tokens_a_second),
            tool_duration: Family::new_with_constructor(seconds),
            auth_codes: Family::default(),
            egress_refusals: Family::default(),
            contents_kept: Counter::default(),
            contents_lost: Family::default(),
            feedback: Family::default(),
            spans_lost: Family::default(),
            overhead: Family::new_with_constructor(seconds),
            db_query: Family::new_with_constructor(seconds),
            db_pool: Family::default(),
            secrets: Family::default(),
            broadcast_oldest: Family::default(),
            cooldown: Family::default(),
            credential_refusals: Family::default(),
        };
        let help = "From the head of a request to the head of its answer";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, flow.http_duration.clone());
        registry.register("fallbacks", "Attempts that another one had to stand in for", flow.fallbacks.clone());
        registry.register("retries", "Attempts at the same endpoint again", flow.retries.clone());
        registry.register("output_tokens_per_second", "How fast answers came once they began", flow.speed.clone());
        let help = "How long tools ran that this gateway ran";
        registry.register_with_unit("server_tool_duration", help, Unit::Seconds, flow.tool_duration.clone());
        registry.register("auth_codes", "What became of authorization codes", flow.auth_codes.clone());
        let help = "What callers pointed at and was not fetched or called";
        registry.register("egress_refusals", help, flow.egress_refusals.clone());
        registry.register("contents_kept", "Requests whose words were kept", flow.contents_kept.clone());
        // Shown before anything is lost, so that an alert has something to look at.
        for reason in ["full", "store", "unreadable"] {
            drop(flow.contents_lost.get_or_create(&Reason { reason }));
        }
        registry.register("contents_lost", "Requests whose words were to be kept", flow.contents_lost.clone());
        registry.register("feedback", "What people said about answers", flow.feedback.clone());
        let help = "Time to the first content without what upstreams took of it";
        registry.register_with_unit("gateway_overhead", help, Unit::Seconds, flow.overhead.clone());
        let help = "Calls of the database, by what they are about";
        registry.register_with_unit("db_query_duration", help, Unit::Seconds, flow.db_query.clone());
        registry.register("db_pool_in_use", "Connections to the database that are at work", flow.db_pool.clone());
        let help = "What is sealed under a master key, of what was said in requests as it was within the last hour";
        registry.register("secrets_by_kek", help, flow.secrets.clone());
        let help = "How long the oldest letter has waited for a destination";
        registry.register_with_unit("broadcast_oldest", help, Unit::Seconds, flow.broadcast_oldest.clone());
        let help = "Models of a provider that are not asked for a while because its key was refused for now";
        registry.register("credential_cooldown", help, flow.cooldown.clone());
        let help = "Calls that a provider refused for the key of this gateway";
        registry.register("credential_refusals", help, flow.credential_refusals.clone());
        let help = "Requests whose own spans the collector did not take";
        registry.register("own_spans_lost", help, flow.spans_lost.clone());
        registry.register("scrubber_hits", "Lines of the log that held what looks like a key", scrub::HITS.clone());
        flow
    }

    /// A provider refused the operator's own key.
    pub fn credential_refused(&self, provider: &str) {
        self.credential_refusals.get_or_create(&At { provider: provider.to_owned() }).inc();
    }

    /// Counts what a finished request had to do.
    pub(super) fn record(&self, exchange: &Exchange) {
        for pair in exchange.attempts.windows(2) {
            self.stood_in(&pair[0], &pair[1]);
        }
        if let (Some(first), None) = (exchange.first_content_ms, &exchange.cache_source) {
            let upstream: u64 = exchange.attempts.iter().map(|attempt| u64::from(attempt.duration_ms)).sum();
            let own = u64::from(first).saturating_sub(upstream);
            self.overhead.get_or_create(&Door { route: exchange.api.route() }).observe(own as f64 / 1e3);
        }
        // Whole answers say nothing about when they began.
        let began = exchange.first_content_ms.filter(|_| exchange.streamed && exchange.usage_reported);
        let spoke = began.map(|began| exchange.duration_ms.saturating_sub(began)).filter(|spoke| *spoke > 0);
        if let (Some(spoke), None) = (spoke, &exchange.cache_source) {
            let served = Served { model: exchange.model.to_string(), provider: exchange.provider.to_string() };
            self.speed.get_or_create(&served).observe(exchange.usage.output as f64 * 1e3 / f64::from(spoke));
        }
    }

    fn stood_in(&self, first: &AttemptRecord, next: &AttemptRecord) {
        let (from, to, kind) = match () {
            () if first.model != next.model => (&first.model, &next.model, "model"),
            () if first.provider != next.provider => (&first.provider, &next.provider, "provider"),
            () if first.is_byok != next.is_byok => (&first.provider, &next.provider, "credential"),
            () => {
                self.retries.get_or_create(&At { provider: first.provider.to_string() }).inc();
                return;
            }
        };
        self.fallbacks.get_or_create(&Fallback { from: from.to_string(), to: to.to_string(), kind }).inc();
    }
}
