//! `tidegate check`: is the configuration right, and do the providers answer?

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::json;
use tidegate_gateway::Upstream;
use tidegate_gateway::upstream::Client;
use tidegate_providers::anthropic::{self, Forwarded};
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
        if found.used {
            say!("ok    {} found: {} is a provider", found.variable, found.provider)?;
        } else {
            say!(
                "note  {} found, but {} speaks a protocol that this version does not",
                found.variable,
                found.provider
            )?;
        }
    }
    if !providers.iter().any(|upstream| upstream.shared) {
        say!("note  no provider is configured: only the simulated models answer")?;
    }
    let client = Client::default();
    let mut failed = false;
    for (index, upstream) in providers.iter().enumerate() {
        if !upstream.shared {
            continue;
        }
        if offline {
            say!("ok    {} is configured (not called)", upstream.slug)?;
            continue;
        }
        let endpoint = snapshot
            .catalogue
            .models()
            .into_iter()
            .flat_map(|model| &model.endpoints)
            .find(|endpoint| endpoint.provider_index == index);
        let Some(endpoint) = endpoint else {
            say!("note  {} has no model: add a [[models]] entry with an endpoint there", upstream.slug)?;
            continue;
        };
        match try_provider(&client, upstream, &endpoint.upstream_model).await {
            Ok(text) => say!("ok    {}: {text}", upstream.slug)?,
            Err(text) => {
                failed = true;
                say!("FAIL  {}: {text}", upstream.slug)?;
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counting tokens costs nothing and needs address, credential and model to be right; where there is no such thing, the
/// list of models tells as much but for the model.
async fn try_provider(client: &Client, upstream: &Upstream, model: &str) -> Result<String, String> {
    let headers = anthropic::headers(&Forwarded::default(), false, upstream.auth, upstream.credential.as_ref());
    let asking = async {
        match &upstream.count_uri {
            Some(uri) => {
                let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
                client.send(uri, headers, Bytes::from(body).into()).await
            }
            None => client.get(&upstream.models_uri, headers).await,
        }
    };
    let asked = timeout(LIMIT, asking).await;
    let host = upstream.call_uri.authority().map_or_else(String::new, ToString::to_string);
    match asked {
        Err(_) => Err(format!("{host} did not answer within {} s", LIMIT.as_secs())),
        Ok(Err(_)) => Err(format!("{host} could not be reached: check base_url and the network")),
        Ok(Ok(response)) => match response.status() {
            StatusCode::OK if upstream.count_uri.is_none() => Ok(format!("{host} answers and knows the key")),
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
