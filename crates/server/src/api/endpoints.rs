//! Who offers a model, what each takes and what it costs there.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Serialize;
use tidegate_gateway::health::Health;
use tidegate_gateway::{Failure, Snapshot};
use tidegate_providers::translate::card::{Cache, Card};
use tidegate_routing::{Endpoint, Group, Model, Parameter, Percentiles, Searcher};

use super::account::{Answering, Request, data, not_found};
use super::models::{Architecture, created};
use super::prices::{Shown, shown};
use crate::router::Call;

#[derive(Serialize)]
struct Offered<'a> {
    id: &'a str,
    name: &'a str,
    created: i64,
    description: &'a str,
    architecture: Architecture<'a>,
    endpoints: Vec<Offer<'a>>,
}

/// How an endpoint is doing is what this node knows of it, from calls with the operator's own key; null where that is
/// nothing.
#[derive(Serialize)]
struct Offer<'a> {
    name: String,
    model_id: &'a str,
    model_name: &'a str,
    provider_name: &'a str,
    tag: &'a str,
    context_length: u64,
    max_completion_tokens: u64,
    max_prompt_tokens: Option<u64>,
    native_tools: BTreeMap<String, NativeTool>,
    pricing: Shown,
    quantization: Option<&'static str>,
    /// Null is the ordinary one.
    service_tier: Option<&'static str>,
    supported_parameters: Vec<&'static str>,
    /// Of speech that is written down, which nobody here does.
    supports_diarization: bool,
    supports_implicit_caching: bool,
    supports_tool_choice: ToolChoices,
    uptime_last_5m: Option<f64>,
    uptime_last_30m: Option<f64>,
    uptime_last_1d: Option<f64>,
    /// Milliseconds to the first content of a stream.
    latency_last_30m: Option<Spread>,
    /// Tokens per second.
    throughput_last_30m: Option<Spread>,
    status: i8,
}

/// What the vendor calls a tool of ours that it runs itself.
#[derive(Debug, PartialEq, Serialize)]
struct NativeTool {
    #[serde(rename = "type")]
    name: &'static str,
}

/// Which words of `tool_choice` are kept to.
#[derive(Debug, PartialEq, Serialize)]
struct ToolChoices {
    auto: bool,
    function: bool,
    none: bool,
    required: bool,
}

/// Over the last five minutes, although the interface says thirty: so long is the window that routing decides by, and two
/// answers to one question would be worse than a short one.
#[derive(Serialize)]
struct Spread {
    p50: f64,
    p75: f64,
    p90: f64,
    p99: f64,
}

impl Spread {
    fn of(figures: Percentiles, unit: f64) -> Option<Self> {
        let figure = |figure: Option<f32>| figure.map(|figure| rounded(f64::from(figure) * unit, 1_000.0));
        Some(Self {
            p50: figure(figures.p50)?,
            p75: figure(figures.p75)?,
            p90: figure(figures.p90)?,
            p99: figure(figures.p99)?,
        })
    }
}

/// To so many parts of one: what was measured has no more digits than that.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// In hundredths, to two places.
fn percent(share: Option<f32>) -> Option<f64> {
    share.map(|share| rounded(f64::from(share) * 100.0, 100.0))
}

/// The public numbers: 0 is well, and the less the worse.
fn status(group: Group) -> i8 {
    match group {
        Group::Stable => 0,
        Group::Degraded => -1,
        Group::Down => -2,
        Group::Outage => -3,
    }
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let name = format!("{}/{}", request.param(0), request.param(1));
        let model = snapshot.catalogue.shown(&name).ok_or_else(not_found)?;
        let health = &request.app.gateway.health;
        let endpoints = model.endpoints.iter().map(|endpoint| offer(model, endpoint, &snapshot, health)).collect();
        let offered = Offered {
            id: &model.id,
            name: &model.name,
            created: created(model),
            description: &model.description,
            architecture: Architecture::of(model),
            endpoints,
        };
        Ok::<_, Failure>(data(StatusCode::OK, &offered))
    })
}

/// Every endpoint that keeps nothing of what it is sent.
pub fn forgetful(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let health = &request.app.gateway.health;
        let models = snapshot.catalogue.models();
        let shown = models.iter().filter(|model| !model.hidden).flat_map(|model| {
            let forgetful = model.endpoints.iter().filter(|endpoint| endpoint.shared && !endpoint.policy.retains);
            forgetful.map(|endpoint| offer(model, endpoint, &snapshot, health))
        });
        Ok::<_, Failure>(data(StatusCode::OK, &shown.collect::<Vec<_>>()))
    })
}

fn offer<'a>(model: &'a Model, endpoint: &'a Endpoint, snapshot: &Snapshot, health: &Health) -> Offer<'a> {
    let card = &snapshot.places[endpoint.place].card;
    let uptime = health.uptime(&snapshot.ward, endpoint);
    let (latency, throughput) = health.percentiles(&snapshot.ward, endpoint);
    Offer {
        name: format!("{} | {}", endpoint.provider_name, endpoint.model),
        model_id: &model.id,
        model_name: &model.name,
        provider_name: &endpoint.provider_name,
        tag: &endpoint.tag,
        context_length: endpoint.context_length,
        max_completion_tokens: endpoint.max_output_tokens,
        max_prompt_tokens: None,
        native_tools: native_tools(endpoint.searcher, &snapshot.settings.brand),
        pricing: shown(endpoint.pricing.as_ref()),
        quantization: Some(endpoint.quantization.as_str()).filter(|level| *level != "unknown"),
        service_tier: endpoint.tier.name(),
        supported_parameters: parameters(endpoint),
        supports_diarization: false,
        supports_implicit_caching: card.cache == Cache::Implicit,
        supports_tool_choice: tool_choices(endpoint, card),
        uptime_last_5m: percent(uptime.and_then(|uptime| uptime.five_minutes)),
        uptime_last_30m: percent(uptime.and_then(|uptime| uptime.half_hour)),
        uptime_last_1d: percent(uptime.and_then(|uptime| uptime.day)),
        latency_last_30m: Spread::of(latency, 1_000.0),
        throughput_last_30m: Spread::of(throughput, 1.0),
        status: status(health.group(&snapshot.ward, endpoint)),
    }
}

/// Under the names that requests use. A model that searches whenever it answers has no such tool.
fn native_tools(searcher: Searcher, brand: &str) -> BTreeMap<String, NativeTool> {
    let name = match searcher {
        Searcher::None | Searcher::Itself => return BTreeMap::new(),
        Searcher::Anthropic => "web_search_20250305",
        Searcher::Openai | Searcher::Xai => "web_search",
        Searcher::Google => "google_search",
    };
    BTreeMap::from([(format!("{brand}:web_search"), NativeTool { name })])
}

fn tool_choices(endpoint: &Endpoint, card: &Card) -> ToolChoices {
    let has = |parameter| endpoint.parameters.contains(parameter);
    let chooses = has(Parameter::Tools) && has(Parameter::ToolChoice);
    let forces = chooses && card.forced_choice;
    ToolChoices { auto: chooses, function: forces, none: chooses, required: forces }
}

/// The names by which the public interface knows what an endpoint takes, in order. What only requests in the Messages format
/// have is no word of its lists: a client that reads them strictly would refuse the whole answer.
pub fn parameters(endpoint: &Endpoint) -> Vec<&'static str> {
    endpoint.parameters.iter().filter(|parameter| is_public(*parameter)).map(Parameter::as_str).collect()
}

fn is_public(parameter: Parameter) -> bool {
    use Parameter::{Container, ContextManagement, Diagnostics, InferenceGeo, McpServers, Thread};
    !matches!(parameter, Container | ContextManagement | Diagnostics | InferenceGeo | McpServers | Thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the public interface has a word for.
    const WORDS: &str = "temperature top_p top_k min_p top_a frequency_penalty presence_penalty repetition_penalty \
        max_tokens max_completion_tokens logit_bias logprobs top_logprobs prediction seed response_format \
        structured_outputs stop tools tool_choice parallel_tool_calls include_reasoning reasoning reasoning_effort \
        web_search_options verbosity";

    #[test]
    fn only_parameters_of_the_public_interface_are_shown() {
        // One of which nothing is known takes everything.
        let shown = parameters(&Endpoint::new("vendor/m", "p"));
        let known: Vec<&str> = WORDS.split_whitespace().collect();
        assert!(shown.iter().all(|name| known.contains(name)), "{shown:?}");
        let ours = Parameter::ALL.iter().map(|parameter| parameter.as_str());
        let expected: Vec<&str> = ours.filter(|name| known.contains(name)).collect();
        assert_eq!(shown, expected, "and all of them");
    }

    #[test]
    fn a_vendors_own_search_is_told_under_our_name() {
        let told = |searcher| serde_json::to_value(native_tools(searcher, "tidegate")).unwrap();
        for (searcher, name) in [
            (Searcher::Anthropic, "web_search_20250305"),
            (Searcher::Openai, "web_search"),
            (Searcher::Xai, "web_search"),
            (Searcher::Google, "google_search"),
        ] {
            assert_eq!(told(searcher), serde_json::json!({"tidegate:web_search": {"type": name}}));
        }
        assert_eq!(told(Searcher::None), serde_json::json!({}));
        assert_eq!(told(Searcher::Itself), serde_json::json!({}));
    }

    #[test]
    fn a_choice_is_offered_as_far_as_it_is_kept_to() {
        let mut endpoint = Endpoint::new("vendor/m", "p");
        let all = ToolChoices { auto: true, function: true, none: true, required: true };
        assert_eq!(tool_choices(&endpoint, &Card::default()), all);
        let free = Card { forced_choice: false, ..Card::default() };
        assert_eq!(tool_choices(&endpoint, &free), ToolChoices { function: false, required: false, ..all });
        endpoint.parameters = endpoint.parameters.without(Parameter::ToolChoice);
        let none = ToolChoices { auto: false, function: false, none: false, required: false };
        assert_eq!(tool_choices(&endpoint, &Card::default()), none);
    }
}
