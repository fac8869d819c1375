//! Counters in Prometheus' text format. Labels are bounded: routes, models and providers of the catalogue, statuses;
//! never keys, users or URLs.

mod flow;
mod labels;
mod spend;
pub mod text;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tidegate_core::{Exchange, Outcome};

pub use flow::{At, Category, Door, Flow, Group, Happened, MasterKey, Pool, Refusals};
pub use labels::{
    Build, Condition, Delivery, Generation, Judgement, Looked, Plugin, Reason, Receiver, Refusal, Rejection, Route,
    Served, Stopped, Tokens, ToolCall, Tried, Untold, Used,
};
use spend::Spend;

/// All families. Handles are kept here; nothing is looked up by name.
pub struct Metrics {
    registry: Registry,
    pub http_requests: Family<Route, Counter>,
    pub in_flight: Family<Door, Gauge>,
    pub generations: Family<Generation, Counter>,
    pub attempts: Family<Tried, Counter>,
    pub tokens: Family<Tokens, Counter>,
    pub first_token: Family<Served, Histogram>,
    pub duration: Family<Served, Histogram>,
    cost: Family<Tokens, Spend>,
    pub auth_failures: Family<Reason, Counter>,
    pub limit_rejections: Family<Rejection, Counter>,
    /// Finished requests whose record could not be kept because the queue was full.
    pub records_lost: Counter,
    pub panics: Counter,
    /// Calls of server tools.
    pub tool_calls: Family<ToolCall, Counter>,
    /// Calls of one request.
    pub loop_steps: Histogram,
    /// Loops that something else than the model ended.
    pub loop_stops: Family<Stopped, Counter>,
    pub plugin_runs: Family<Plugin, Counter>,
    pub guardrail_events: Family<Judgement, Counter>,
    /// Letters that could not even be written down.
    pub broadcast_lost: Family<Untold, Counter>,
    pub broadcast_dropped: Family<Untold, Counter>,
    pub broadcast_deliveries: Family<Delivery, Counter>,
    pub broadcast_queue: Family<Receiver, Gauge>,
    /// How much is refused because this node is overloaded: 0 is nothing, 4 is all new inference.
    pub shed_level: Gauge,
    pub shed: Family<Reason, Counter>,
    /// Where requests a minute were counted: by all gateways together, or here and why.
    pub shared_rates: Family<Looked, Counter>,
    /// Whether they are counted together at the moment.
    pub shared_rates_up: Gauge,
    /// How much is used of what can run out; 1 is all of it.
    pub overload_used: Family<Used, Gauge<f64, AtomicU64>>,
    /// Records in the group that is being committed.
    pub ledger_queue: Gauge,
    pub ledger_commit: Histogram,
    /// Answers whose last byte went out before their settling was committed.
    pub ledger_late: Counter,
    /// By how much calls cost more than was held for them.
    pub ledger_overshoot: Counter,
    pub ledger_recovered: Counter,
    pub ledger_reaped: Counter,
    /// Answers whose counts could not be true.
    pub ledger_clamped: Counter,
    /// Calls that were served although nobody knows what they cost.
    pub ledger_unpriced: Counter,
    /// How often an endpoint was left alone because it failed.
    pub breaker_opened: Family<Served, Counter>,
    breaker_state: Family<Served, Gauge>,
    endpoint_health: Family<Served, Gauge<f64, AtomicU64>>,
    /// Held by whoever reads: what is measured only for readers is set anew for each.
    reading: Mutex<()>,
    /// What upstreams were found not to take: it is sent to them no more.
    pub learned: Family<Refusal, Gauge>,
    pub response_cache: Family<Looked, Counter>,
    pub response_cache_bytes: Gauge,
    pub flow: Flow,
}

/// The counters that requests of one kind end up in. Looking one up hashes its labels under a lock; a recorder meets the
/// same few kinds over and over.
#[derive(Default)]
pub struct Handles(Vec<Ended>);

/// Kinds remembered; beyond it the memory starts anew.
const MOST_HANDLES: usize = 64;

struct Ended {
    model: Arc<str>,
    provider: Arc<str>,
    outcome: Outcome,
    stop_reason: Box<str>,
    is_byok: bool,
    has_list_price: bool,
    generations: Counter,
    answered: Counter,
    tokens: [Counter; 5],
    first_token: Histogram,
    duration: Histogram,
    cost: Spend,
    at_list_price: Spend,
}

impl Ended {
    fn is_for(&self, exchange: &Exchange, stop_reason: &str) -> bool {
        self.outcome == exchange.outcome
            && self.is_byok == exchange.is_byok
            && self.has_list_price == exchange.list_cost.is_some()
            && *self.stop_reason == *stop_reason
            && (self.model == exchange.model || exchange.provider.is_empty())
            && self.provider == exchange.provider
    }
}

/// The upstream's reason as a label: an upstream may write anything there.
fn known_reason(reason: Option<&str>) -> &'static str {
    const KNOWN: [&str; 8] = [
        "end_turn",
        "max_tokens",
        "stop_sequence",
        "tool_use",
        "pause_turn",
        "refusal",
        "model_context_window_exceeded",
        "compaction",
    ];
    match reason {
        None => "none",
        Some(reason) => KNOWN.into_iter().find(|known| *known == reason).unwrap_or("other"),
    }
}

fn tried(provider: &str, model: &str, status: u16) -> Tried {
    let status_class = match status {
        200..=299 => "2xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "none",
    };
    // In the words of errors; a status is all that is kept of an attempt.
    let error_type = match status {
        200..=299 => "none",
        401 | 403 => "authentication",
        402 => "payment_required",
        404 => "not_found",
        408 | 504 => "timeout",
        413 => "payload_too_large",
        429 => "rate_limit_exceeded",
        503 | 529 => "provider_overloaded",
        400..=499 => "invalid_request",
        500..=599 => "server",
        _ => "unreachable",
    };
    Tried { provider: provider.to_owned(), model: model.to_owned(), status_class, error_type }
}

/// 5 ms to 600 s, log-spaced.
fn seconds() -> Histogram {
    let bounds = (0..16).map(|place| 0.005 * (600.0_f64 / 0.005).powf(f64::from(place) / 15.0));
    Histogram::new(bounds)
}

impl Metrics {
    pub fn new(version: &'static str, commit: &'static str) -> Self {
        let mut registry = Registry::with_prefix("tidegate");
        let http_requests = Family::default();
        registry.register("http_requests", "Finished HTTP requests", http_requests.clone());
        let in_flight = Family::default();
        registry.register("requests_in_flight", "Inference requests being served", in_flight.clone());
        let generations = Family::default();
        registry.register("generations", "Admitted requests by how they ended", generations.clone());
        let attempts = Family::default();
        registry.register("upstream_attempts", "Upstream calls", attempts.clone());
        let tokens = Family::default();
        registry.register("tokens", "Tokens as reported by upstreams", tokens.clone());
        let first_token: Family<Served, Histogram> = Family::new_with_constructor(seconds);
        registry.register_with_unit(
            "time_to_first_token",
            "Until the first content",
            Unit::Seconds,
            first_token.clone(),
        );
        let duration: Family<Served, Histogram> = Family::new_with_constructor(seconds);
        registry.register_with_unit(
            "generation_duration",
            "From admission to the last byte",
            Unit::Seconds,
            duration.clone(),
        );
        let cost = Family::default();
        registry.register("cost_usd", "What answers and tools cost", cost.clone());
        let auth_failures = Family::default();
        registry.register("auth_failures", "Refused credentials", auth_failures.clone());
        let limit_rejections = Family::default();
        registry.register("limit_rejections", "Requests refused by a limit", limit_rejections.clone());
        let records_lost = Counter::default();
        registry.register("records_lost", "Finished requests without a record", records_lost.clone());
        let panics = Counter::default();
        registry.register("panics", "Requests that ended in a panic", panics.clone());
        let tool_calls = Family::default();
        registry.register("server_tool_calls", "Calls of tools that this gateway ran", tool_calls.clone());
        let loop_steps = Histogram::new([0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0, 100.0]);
        registry.register("agent_loop_steps", "Calls of tools in one request", loop_steps.clone());
        let loop_stops = Family::default();
        registry.register("loop_stops", "Loops of tools that something else than the model ended", loop_stops.clone());
        let plugin_runs = Family::default();
        registry.register("plugin_runs", "Requests and answers that a plugin changed", plugin_runs.clone());
        let guardrail_events = Family::default();
        registry.register("guardrail_events", "What filters of guardrails did", guardrail_events.clone());
        let broadcast_lost = Family::<Untold, Counter>::default();
        let help = "What destinations were to be told and could not be written down";
        registry.register("broadcast_lost", help, broadcast_lost.clone());
        let broadcast_dropped = Family::default();
        let help = "What was waiting for a destination and was given up";
        registry.register("broadcast_dropped", help, broadcast_dropped.clone());
        let broadcast_deliveries = Family::default();
        registry.register("broadcast_deliveries", "Calls to destinations", broadcast_deliveries.clone());
        let broadcast_queue = Family::default();
        registry.register("broadcast_queue", "What waits for a destination", broadcast_queue.clone());
        let shed_level = Gauge::default();
        let help = "What is refused under load: 0 nothing, 1 lists, 2 free models, 3 greedy keys, 4 all new inference";
        registry.register("shed_level", help, shed_level.clone());
        let shed = Family::default();
        registry.register("shed_requests", "Requests refused because this node is overloaded", shed.clone());
        let overload_used = Family::default();
        let help = "How much is used of what can run out; 1 is all of it";
        registry.register("overload_used_ratio", help, overload_used.clone());
        let shared_rates = Family::default();
        let help =
            "Where requests a minute were counted: shared, or here because it was slow, failed or known to be down";
        registry.register("shared_rates", help, shared_rates.clone());
        let shared_rates_up = Gauge::default();
        let help = "Whether requests a minute are counted by all gateways together: 1 yes, 0 no";
        registry.register("shared_rates_up", help, shared_rates_up.clone());
        let ledger_queue = Gauge::default();
        registry.register("ledger_queue_depth", "Records being committed to the journal", ledger_queue.clone());
        let ledger_commit = seconds();
        let help = "Commits of the journal";
        registry.register_with_unit("ledger_commit", help, Unit::Seconds, ledger_commit.clone());
        let ledger_late = Counter::default();
        registry.register("ledger_late", "Answers that ended before their settling was committed", ledger_late.clone());
        let ledger_overshoot = Counter::default();
        let help = "What calls cost beyond what was held for them";
        registry.register("ledger_overshoot_nanodollars", help, ledger_overshoot.clone());
        let ledger_recovered = Counter::default();
        registry.register("ledger_recovered", "Calls settled after a process died", ledger_recovered.clone());
        let ledger_reaped = Counter::default();
        registry.register("ledger_reaped", "Calls settled because nobody else did", ledger_reaped.clone());
        let ledger_clamped = Counter::default();
        registry.register("ledger_clamped", "Answers whose usage could not be true", ledger_clamped.clone());
        let ledger_unpriced = Counter::default();
        registry.register("ledger_unpriced", "Calls served at an unknown price", ledger_unpriced.clone());
        let breaker_opened = Family::default();
        let help = "Endpoints that were left alone for a while because they failed";
        registry.register("breaker_opened", help, breaker_opened.clone());
        let breaker_state = Family::default();
        let help = "How an endpoint is doing: 0 stable, 1 degraded, 2 down, 3 out of order";
        registry.register("breaker_state", help, breaker_state.clone());
        let endpoint_health = Family::default();
        let help = "The share of calls to an endpoint that were answered in the last five minutes";
        registry.register("endpoint_health", help, endpoint_health.clone());
        let learned = Family::default();
        registry.register("upstream_refusals_learned", "What upstreams do not take", learned.clone());
        let response_cache = Family::default();
        registry.register("response_cache", "Requests that asked for a kept answer", response_cache.clone());
        let response_cache_bytes = Gauge::default();
        let help = "What is held for answers that are kept";
        registry.register("response_cache_bytes", help, response_cache_bytes.clone());
        let build: Family<Build, Gauge> = Family::default();
        build.get_or_create(&Build { version, commit }).set(1);
        let flow = Flow::new(&mut registry);
        registry.register("build_info", "The running build", build);
        Self {
            registry,
            http_requests,
            in_flight,
            generations,
            attempts,
            tokens,
            first_token,
            duration,
            cost,
            auth_failures,
            limit_rejections,
            records_lost,
            panics,
            tool_calls,
            loop_steps,
            loop_stops,
            plugin_runs,
            guardrail_events,
            broadcast_lost,
            broadcast_dropped,
            broadcast_deliveries,
            broadcast_queue,
            shed_level,
            shed,
            overload_used,
            shared_rates,
            shared_rates_up,
            ledger_queue,
            ledger_commit,
            ledger_late,
            ledger_overshoot,
            ledger_recovered,
            ledger_reaped,
            ledger_clamped,
            ledger_unpriced,
            breaker_opened,
            breaker_state,
            endpoint_health,
            reading: Mutex::new(()),
            learned,
            response_cache,
            response_cache_bytes,
            flow,
        }
    }

    /// Counts a finished request. Called off the request's path; `handles` belongs to the caller and saves look-ups.
    pub fn record(&self, exchange: &Exchange, handles: &mut Handles) {
        if exchange.is_fee() {
            return self.paid(exchange);
        }
        let stop_reason = known_reason(exchange.stop_reason.as_deref());
        let ended = handles.0.iter().find(|known| known.is_for(exchange, stop_reason));
        let ended = match ended {
            Some(known) => known,
            None => {
                if handles.0.len() >= MOST_HANDLES {
                    handles.0.clear();
                }
                handles.0.push(self.ended(exchange, stop_reason));
                handles.0.last().expect("it was just put there")
            }
        };
        ended.generations.inc();
        self.flow.record(exchange);
        for attempt in &exchange.attempts {
            if attempt.status == 200 && attempt.model == exchange.model && attempt.provider == exchange.provider {
                ended.answered.inc();
            } else {
                self.attempts.get_or_create(&tried(&attempt.provider, &attempt.model, attempt.status)).inc();
            }
        }
        let usage = &exchange.usage;
        let counts = [
            usage.input,
            usage.output,
            usage.cache_read,
            usage.cache_write.saturating_add(usage.cache_write_1h),
            usage.thinking,
        ];
        for (counter, count) in ended.tokens.iter().zip(counts) {
            counter.inc_by(count);
        }
        // An answer that was kept says nothing about how fast its provider is.
        if exchange.cache_source.is_some() {
            return;
        }
        if let Some(first) = exchange.first_content_ms {
            ended.first_token.observe(f64::from(first) / 1000.0);
        }
        ended.duration.observe(f64::from(exchange.duration_ms) / 1000.0);
        let spent = exchange.spent();
        for (counter, amount) in [(&ended.cost, spent.credit), (&ended.at_list_price, spent.byok)] {
            counter.inner().add(amount.0.unsigned_abs());
        }
    }

    /// Counts the fee of a tool, which is no request.
    fn paid(&self, exchange: &Exchange) {
        let labels =
            Tokens { model: exchange.model.to_string(), provider: exchange.provider.to_string(), kind: "tool" };
        if let Some(cost) = exchange.cost.and_then(|cost| u64::try_from(cost.0).ok()) {
            self.cost.get_or_create(&labels).inner().add(cost);
        }
    }

    fn ended(&self, exchange: &Exchange, stop_reason: &str) -> Ended {
        // Until a provider was chosen the model is whatever the caller wrote, which is no label.
        let model = if exchange.provider.is_empty() { "unknown" } else { &exchange.model };
        let (model, provider) = (model.to_owned(), exchange.provider.to_string());
        let served = Served { model: model.clone(), provider: provider.clone() };
        let of_kind = |kind| Tokens { model: model.clone(), provider: provider.clone(), kind };
        // Where nobody was chosen nobody was called, and nothing used: a line for it would be 0 for ever.
        let has_provider = !provider.is_empty();
        let tokens = |kind| match has_provider {
            true => self.tokens.get_or_create_owned(&of_kind(kind)),
            false => Counter::default(),
        };
        let has_list_price = exchange.list_cost.is_some();
        Ended {
            model: exchange.model.clone(),
            provider: exchange.provider.clone(),
            outcome: exchange.outcome,
            stop_reason: stop_reason.into(),
            is_byok: exchange.is_byok,
            answered: match has_provider {
                true => self.attempts.get_or_create_owned(&tried(&provider, &model, 200)),
                false => Counter::default(),
            },
            tokens: ["input", "output", "cache_read", "cache_write", "reasoning"].map(tokens),
            first_token: self.first_token.get_or_create_owned(&served),
            duration: self.duration.get_or_create_owned(&served),
            cost: match has_provider {
                true => self.cost.get_or_create_owned(&of_kind("credits")),
                false => Spend::default(),
            },
            // Only shown where there are credentials of customers.
            at_list_price: if has_list_price {
                self.cost.get_or_create_owned(&of_kind("byok"))
            } else {
                Spend::default()
            },
            has_list_price,
            generations: self.generations.get_or_create_owned(&Generation {
                model: model.clone(),
                provider: provider.clone(),
                outcome: exchange.outcome.as_str(),
                stop_reason: stop_reason.to_owned(),
                byok: if exchange.is_byok { "true" } else { "false" },
            }),
        }
    }

    /// The whole state in Prometheus' text format, with endpoints as they are now. Those that are gone are not shown.
    pub fn text(&self, endpoints: &[Condition]) -> String {
        let _one_at_a_time = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        self.breaker_state.clear();
        self.endpoint_health.clear();
        self.flow.cooldown.clear();
        for Condition { served, state, uptime, cools } in endpoints {
            let cooling = self.flow.cooldown.get_or_create(&At { provider: served.provider.clone() });
            cooling.inc_by(i64::from(*cools));
            drop(cooling);
            // Shown before anything is refused, so that an alert has something to look at.
            drop(self.flow.credential_refusals.get_or_create(&At { provider: served.provider.clone() }));
            let worst = self.breaker_state.get_or_create(served);
            worst.set(worst.get().max(*state));
            if let Some(uptime) = uptime {
                // A new one is 0, which is the worst there is.
                let known = self.endpoint_health.get(served).map(|known| known.get());
                self.endpoint_health.get_or_create(served).set(known.map_or(*uptime, |known| known.min(*uptime)));
            }
        }
        let mut out = String::new();
        encode(&mut out, &self.registry).expect("writing to a string does not fail");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::exchange::{Api, AttemptRecord};
    use tidegate_core::{GenerationId, KeyHash, Money, OrganisationId, Timestamp, Usage, WorkspaceId};

    fn attempt(provider: &str, model: &str, status: u16) -> AttemptRecord {
        let (provider, model) = (provider.into(), model.into());
        AttemptRecord { provider, model, status, duration_ms: 5, ..AttemptRecord::default() }
    }

    /// A request that one provider could not take and another answered.
    fn exchange(model: &str) -> Exchange {
        let started = Timestamp(1_790_000_000_000);
        let usage = Usage {
            input: 14,
            output: 9,
            cache_read: 5,
            cache_write: 3,
            cache_write_1h: 4,
            thinking: 2,
            web_searches: 1,
            web_fetches: 1,
            ..Usage::default()
        };
        let (organisation, workspace) = (OrganisationId("org".into()), WorkspaceId("workspace".into()));
        let id = GenerationId::new(started);
        Exchange {
            provider: "P1".into(),
            outcome: Outcome::Complete,
            status: 200,
            streamed: true,
            stop_reason: Some("end_turn".into()),
            usage,
            usage_reported: true,
            cost: Some(Money(177_000)),
            attempts: vec![attempt("P0", model, 529), attempt("P1", model, 200)],
            first_content_ms: Some(100),
            duration_ms: 2_000,
            request_bytes: 100,
            response_bytes: 200,
            ..Exchange::new(id, organisation, workspace, KeyHash::of(b"a key"), model.into(), started)
        }
    }

    /// The lines that count something of this model, without the words that all of them have.
    fn lines_of(metrics: &Metrics, model: &str) -> Vec<String> {
        let label = format!("model=\"{model}\"");
        let text = metrics.text(&[]);
        let lines = text.lines().filter(|line| line.contains(&label) && !line.contains("_bucket"));
        let mut lines: Vec<String> =
            lines.map(|line| line.replace(&format!("{label},"), "").replace("tidegate_", "")).collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_finished_request_is_counted_in_every_family_under_its_own_labels() {
        let metrics = Metrics::new("1.2.3", "abc");
        let mut handles = Handles::default();
        metrics.record(&exchange("a/b"), &mut handles);
        metrics.record(&exchange("a/b"), &mut handles);
        let twice = [
            r#"cost_usd_total{provider="P1",kind="credits"} 0.000354"#,
            r#"generation_duration_seconds_count{provider="P1"} 2"#,
            r#"generation_duration_seconds_sum{provider="P1"} 4.0"#,
            r#"generations_total{provider="P1",outcome="complete",stop_reason="end_turn",byok="false"} 2"#,
            // Nine tokens in 2 000 - 100 ms, twice.
            r#"output_tokens_per_second_count{provider="P1"} 2"#,
            r#"output_tokens_per_second_sum{provider="P1"} 9.473684210526315"#,
            r#"time_to_first_token_seconds_count{provider="P1"} 2"#,
            r#"time_to_first_token_seconds_sum{provider="P1"} 0.2"#,
            r#"tokens_total{provider="P1",kind="cache_read"} 10"#,
            r#"tokens_total{provider="P1",kind="cache_write"} 14"#,
            r#"tokens_total{provider="P1",kind="input"} 28"#,
            r#"tokens_total{provider="P1",kind="output"} 18"#,
            r#"tokens_total{provider="P1",kind="reasoning"} 4"#,
            r#"upstream_attempts_total{provider="P0",status_class="5xx",error_type="provider_overloaded"} 2"#,
            r#"upstream_attempts_total{provider="P1",status_class="2xx",error_type="none"} 2"#,
        ];
        assert_eq!(lines_of(&metrics, "a/b"), twice.map(|line| line.to_owned()));

        // Another model through the same handles, and ended otherwise: nothing of it lands on the first.
        let failed = Exchange {
            provider: "P0".into(),
            outcome: Outcome::Failed,
            status: 504,
            stop_reason: None,
            usage: Usage::default(),
            cost: None,
            first_content_ms: None,
            attempts: vec![attempt("P0", "c/d", 408), attempt("P0", "c/d", 0)],
            ..exchange("c/d")
        };
        metrics.record(&failed, &mut handles);
        let in_chat = Exchange { api: Api::Chat, ..exchange("g/h") };
        metrics.record(&in_chat, &mut handles);
        assert_eq!(lines_of(&metrics, "a/b"), twice.map(|line| line.to_owned()));
        let lines = lines_of(&metrics, "c/d");
        for line in [
            r#"cost_usd_total{provider="P0",kind="credits"} 0.0"#,
            r#"generations_total{provider="P0",outcome="failed",stop_reason="none",byok="false"} 1"#,
            r#"time_to_first_token_seconds_count{provider="P0"} 0"#,
            r#"tokens_total{provider="P0",kind="output"} 0"#,
            r#"upstream_attempts_total{provider="P0",status_class="4xx",error_type="timeout"} 1"#,
            r#"upstream_attempts_total{provider="P0",status_class="none",error_type="unreachable"} 1"#,
        ] {
            assert!(lines.iter().any(|known| known == line), "{line} is not in {lines:?}");
        }
        let text = metrics.text(&[]);
        for line in [
            r#"tidegate_fallbacks_total{from="P0",to="P1",kind="provider"} 3"#,
            r#"tidegate_retries_total{provider="P0"} 1"#,
            // The first content came after 100 ms, of which two attempts took 5 each: 90 ms, twice.
            r#"tidegate_gateway_overhead_seconds_sum{route="/messages"} 0.18"#,
            r#"tidegate_gateway_overhead_seconds_count{route="/messages"} 2"#,
            r#"tidegate_gateway_overhead_seconds_count{route="/chat/completions"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        // What a tool cost, and what a customer's own credential saved, are neither of them an answer that was paid for.
        let tool = Exchange {
            parent: Some(GenerationId::new(Timestamp(1))),
            provider: "engine".into(),
            attempts: Vec::new(),
            cost: Some(Money(5_000_000)),
            ..exchange("e/f")
        };
        let own = Exchange { is_byok: true, cost: Some(Money(1)), list_cost: Some(Money(20)), ..exchange("e/f") };
        for exchange in [&tool, &own, &own] {
            metrics.record(exchange, &mut handles);
        }
        let lines = lines_of(&metrics, "e/f");
        let spent: Vec<_> = lines.iter().filter(|line| line.starts_with("cost_usd")).collect();
        let expected = [
            r#"cost_usd_total{provider="P1",kind="byok"} 4e-8"#,
            r#"cost_usd_total{provider="P1",kind="credits"} 2e-9"#,
            r#"cost_usd_total{provider="engine",kind="tool"} 0.005"#,
        ];
        assert_eq!(spent, expected);
        let of_engine: Vec<_> = lines.iter().filter(|line| line.contains("engine")).collect();
        assert_eq!(of_engine, [expected[2]], "it is no generation");
        // The same model that ends differently is another kind of end, on the same tokens.
        metrics.record(&Exchange { outcome: Outcome::Cancelled, ..exchange("a/b") }, &mut handles);
        let lines = lines_of(&metrics, "a/b");
        for line in [
            r#"generations_total{provider="P1",outcome="cancelled",stop_reason="end_turn",byok="false"} 1"#,
            r#"generations_total{provider="P1",outcome="complete",stop_reason="end_turn",byok="false"} 2"#,
            r#"tokens_total{provider="P1",kind="input"} 42"#,
        ] {
            assert!(lines.iter().any(|known| known == line), "{line} is not in {lines:?}");
        }
    }

    #[test]
    fn a_request_that_nobody_was_chosen_for_shows_no_calls() {
        let metrics = Metrics::new("1.2.3", "abc");
        let refused = Exchange {
            provider: "".into(),
            outcome: Outcome::Failed,
            status: 404,
            attempts: Vec::new(),
            usage: Usage::default(),
            cost: Some(Money(0)),
            ..exchange("written/by-the-caller")
        };
        metrics.record(&refused, &mut Handles::default());
        let lines = lines_of(&metrics, "unknown");
        assert!(lines.iter().any(|line| line.starts_with("generations_total{")), "{lines:?}");
        for phantom in ["upstream_attempts_total", "tokens_total", "cost_usd_total"] {
            assert!(!lines.iter().any(|line| line.starts_with(phantom)), "{phantom}: {lines:?}");
        }
    }

    #[test]
    fn more_kinds_of_ends_than_are_remembered_lose_no_count() {
        let metrics = Metrics::new("1.2.3", "abc");
        let mut handles = Handles::default();
        for _ in 0..2 {
            for number in 0..=MOST_HANDLES {
                metrics.record(&exchange(&format!("a/{number}")), &mut handles);
            }
        }
        for number in 0..=MOST_HANDLES {
            let lines = lines_of(&metrics, &format!("a/{number}"));
            let line = r#"generations_total{provider="P1",outcome="complete",stop_reason="end_turn",byok="false"} 2"#;
            assert!(lines.iter().any(|known| known == line), "{number}: {lines:?}");
        }
    }

    #[test]
    fn the_text_names_what_was_counted() {
        let metrics = Metrics::new("1.2.3", "abc");
        metrics.http_requests.get_or_create(&Route { route: "/messages", method: "POST", status: 200 }).inc();
        let text = metrics.text(&[]);
        assert!(
            text.contains(r#"tidegate_http_requests_total{route="/messages",method="POST",status="200"} 1"#),
            "{text}"
        );
        assert!(text.contains(r#"tidegate_build_info{version="1.2.3",commit="abc"} 1"#), "{text}");
    }

    #[test]
    fn endpoints_are_shown_as_they_are_and_the_worst_speaks_for_its_provider() {
        let metrics = Metrics::new("1.2.3", "abc");
        let condition = |provider: &str, state, uptime| Condition {
            served: Served { model: "a/b".to_owned(), provider: provider.to_owned() },
            state,
            uptime,
            cools: state == 3,
        };
        let lines = |endpoints: &[Condition]| {
            let text = metrics.text(endpoints);
            let mut lines: Vec<String> =
                text.lines().filter(|line| line.contains("model=\"a/b\"")).map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let all = [
            condition("P0", 0, None),
            condition("P1", 3, Some(0.5)),
            condition("P1", 1, Some(0.75)),
            condition("P2", 0, Some(1.0)),
            condition("P2", 2, Some(0.0)),
        ];
        let expected = [
            r#"tidegate_breaker_state{model="a/b",provider="P0"} 0"#,
            r#"tidegate_breaker_state{model="a/b",provider="P1"} 3"#,
            r#"tidegate_breaker_state{model="a/b",provider="P2"} 2"#,
            r#"tidegate_endpoint_health{model="a/b",provider="P1"} 0.5"#,
            r#"tidegate_endpoint_health{model="a/b",provider="P2"} 0.0"#,
        ];
        assert_eq!(lines(&all), expected);
        assert_eq!(lines(&all), expected, "nothing of an earlier look is left");
        assert_eq!(lines(&all[..1]), expected[..1]);
        let text = metrics.text(&all);
        for (provider, cooling) in [("P0", 0), ("P1", 1), ("P2", 0)] {
            let line = format!(r#"tidegate_credential_cooldown{{provider="{provider}"}} {cooling}"#);
            assert!(text.contains(&line), "{line} is not in {text}");
            let line = format!(r#"tidegate_credential_refusals_total{{provider="{provider}"}} 0"#);
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
