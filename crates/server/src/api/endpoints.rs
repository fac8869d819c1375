//! Who offers a model, what each takes and what it costs there.

use http::StatusCode;
use serde::Serialize;
use tidegate_gateway::{Failure, Snapshot};
use tidegate_providers::translate::card::Cache;
use tidegate_routing::{Endpoint, Model};

use super::account::{Answering, Request, data, not_found};
use super::models::Architecture;
use super::prices::{Shown, shown};
use crate::router::Call;

#[derive(Serialize)]
struct Offered<'a> {
    id: &'a str,
    name: &'a str,
    created: u64,
    description: &'a str,
    architecture: Architecture<'a>,
    endpoints: Vec<Offer<'a>>,
}

/// How fast an endpoint is and how often it answers is not measured yet: nothing is said of it.
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
    pricing: Shown,
    quantization: Option<&'static str>,
    supported_parameters: Vec<&'static str>,
    supports_implicit_caching: bool,
    uptime_last_5m: Option<f64>,
    uptime_last_30m: Option<f64>,
    uptime_last_1d: Option<f64>,
    latency_last_30m: Option<()>,
    throughput_last_30m: Option<()>,
}

pub fn list(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let name = format!("{}/{}", request.param(0), request.param(1));
        let (model, _) = snapshot.catalogue.resolve(&name).ok_or_else(not_found)?;
        let endpoints = model.endpoints.iter().map(|endpoint| offer(model, endpoint, &snapshot)).collect();
        let offered = Offered {
            id: &model.id,
            name: &model.name,
            created: 0,
            description: &model.description,
            architecture: Architecture::of(model),
            endpoints,
        };
        Ok::<_, Failure>(data(StatusCode::OK, &offered))
    })
}

fn offer<'a>(model: &'a Model, endpoint: &'a Endpoint, snapshot: &Snapshot) -> Offer<'a> {
    let card = &snapshot.places[endpoint.place].card;
    Offer {
        name: format!("{} | {}", endpoint.provider_name, endpoint.model),
        model_id: &model.id,
        model_name: &model.name,
        provider_name: &endpoint.provider_name,
        tag: &endpoint.tag,
        context_length: endpoint.context_length,
        max_completion_tokens: endpoint.max_output_tokens,
        max_prompt_tokens: None,
        pricing: shown(endpoint.pricing.as_ref()),
        quantization: Some(endpoint.quantization.as_str()).filter(|level| *level != "unknown"),
        supported_parameters: parameters(endpoint),
        supports_implicit_caching: card.cache == Cache::Implicit,
        uptime_last_5m: None,
        uptime_last_30m: None,
        uptime_last_1d: None,
        latency_last_30m: None,
        throughput_last_30m: None,
    }
}

/// The names by which the public interface knows what an endpoint takes, in order.
pub fn parameters(endpoint: &Endpoint) -> Vec<&'static str> {
    endpoint.parameters.iter().map(|parameter| parameter.as_str()).collect()
}
