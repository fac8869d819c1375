//! `tidegate check`: is the configuration right, and do the providers answer?

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use tidegate_gateway::upstream::Client;
use tidegate_gateway::{Place, Upstream};
use tidegate_providers::anthropic::{self, Forwarded};
use tidegate_providers::{Carriage, Protocol};
use tidegate_routing::Endpoint;
use tokio::time::timeout;

use super::out::say;
use crate::config::Source;

const LIMIT: Duration = Duration::from_secs(10);

pub async fn check(source: &Source, offline: bool) -> anyhow::Result<ExitCode> {
    let config = source.read()?;
    // The simulated provider stands last and is not running: its models are known here, but it is not called.
    let simulated = config.sim_enabled.then_some("http://simulator.invalid");
    let snapshot = config.snapshot(simulated, config.listen)?;
    let providers = &snapshot.upstreams[..snapshot.upstreams.len() - usize::from(simulated.is_some())];
    let callable = snapshot
        .catalogue
        .models()
        .iter()
        .filter(|model| model.endpoints.iter().any(|endpoint| endpoint.shared))
        .count();
    match &source.file {
        Some(file) => say!("ok    {} is valid", file.display())?,
        None => say!("ok    no configuration file: defaults hold")?,
    }
    say!("ok    {callable} of {} models can be called", snapshot.catalogue.len())?;
    for found in &config.found {
        say!("ok    {} found: {} is a provider", found.variable, found.provider)?;
    }
    if !providers.iter().any(|upstream| upstream.shared) {
        say!("note  no provider is configured: only the simulated models answer")?;
    }
    let client = Client::default();
    let mut failed = false;
    // A provider may be reached in several ways; those that no model uses are passed over.
    let mut named: Vec<&str> = Vec::new();
    for upstream in providers.iter().filter(|upstream| upstream.shared) {
        if named.contains(&&*upstream.slug) {
            continue;
        }
        named.push(&upstream.slug);
        if offline {
            say!("ok    {} is configured (not called)", upstream.slug)?;
            continue;
        }
        let mut used: Vec<&Endpoint> = Vec::new();
        for endpoint in snapshot.catalogue.models().into_iter().flat_map(|model| &model.endpoints) {
            let is_new = used.iter().all(|known| known.provider_index != endpoint.provider_index);
            if endpoint.provider == upstream.slug && is_new {
                used.push(endpoint);
            }
        }
        if used.is_empty() {
            say!("note  {} has no model: add a [[models]] entry with an endpoint there", upstream.slug)?;
        }
        for endpoint in used {
            let upstream = &snapshot.upstreams[endpoint.provider_index];
            match try_provider(&client, upstream, &snapshot.places[endpoint.place], &endpoint.upstream_model).await {
                Ok(text) => say!("ok    {}: {text}", upstream.slug)?,
                Err(text) => {
                    failed = true;
                    say!("FAIL  {}: {text}", upstream.slug)?;
                }
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counting tokens costs nothing and needs address, credential and model to be right; where there is no such thing, the
/// list of models tells as much but for the model.
async fn try_provider(client: &Client, upstream: &Upstream, place: &Place, model: &str) -> Result<String, String> {
    let mut headers = anthropic::headers(&Forwarded::default(), upstream.carriage, None);
    if let Some(credential) = &upstream.credential {
        credential.put(&mut headers, upstream.auth, model);
    }
    let counts = upstream.protocol == Protocol::Messages && upstream.carriage == Carriage::Plain;
    let asking = async {
        match (place.calls.count.as_ref().filter(|_| counts), &upstream.models_uri) {
            (Some(uri), _) => {
                let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
                client.send(uri, headers, Bytes::from(body).into()).await
            }
            (None, Some(uri)) => client.get(uri, headers).await,
            (None, None) => client.get(&place.calls.whole, headers).await,
        }
    };
    let asked = timeout(LIMIT, asking).await;
    let host = place.calls.whole.authority().map_or_else(String::new, ToString::to_string);
    match asked {
        Err(_) => Err(format!("{host} did not answer within {} s", LIMIT.as_secs())),
        Ok(Err(_)) => Err(format!("{host} could not be reached: check base_url and the network")),
        Ok(Ok(response)) => match response.status() {
            StatusCode::OK if !counts => Ok(format!("{host} answers and knows the key")),
            StatusCode::OK => Ok(format!("{host} answers for {model}")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(format!("{host} refuses the credential: check api_key"))
            }
            StatusCode::NOT_FOUND => {
                Ok(format!("{host} answers; it cannot count tokens, so the model was not checked"))
            }
            status if status.is_client_error() => Err(format!("{host} refuses the model {model} ({status})")),
            status => Err(format!("{host} answers with {status}")),
        },
    }
}
