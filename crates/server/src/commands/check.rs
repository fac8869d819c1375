//! `tidegate check`: is the configuration right, and do the providers answer?

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tidegate_gateway::Upstream;
use tidegate_gateway::upstream::Client;
use tidegate_providers::anthropic::{self, Forwarded};
use tokio::time::timeout;

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
        Some(file) => println!("ok    {} is valid", file.display()),
        None => println!("ok    no configuration file: defaults hold"),
    }
    println!("ok    {callable} of {} models can be called", snapshot.catalogue.len());
    for found in &config.found {
        if found.used {
            println!("ok    {} found: {} is a provider", found.variable, found.provider);
        } else {
            println!(
                "note  {} found, but {} speaks a protocol that this version does not",
                found.variable, found.provider
            );
        }
    }
    if !providers.iter().any(|upstream| upstream.shared) {
        println!("note  no provider is configured: only the simulated models answer");
    }
    let client = Client::default();
    let mut failed = false;
    for (index, upstream) in providers.iter().enumerate() {
        if !upstream.shared {
            continue;
        }
        if offline {
            println!("ok    {} is configured (not called)", upstream.slug);
            continue;
        }
        let endpoint = snapshot
            .catalogue
            .models()
            .into_iter()
            .flat_map(|model| &model.endpoints)
            .find(|endpoint| endpoint.provider_index == index);
        let Some(endpoint) = endpoint else {
            println!("note  {} has no model: add a [[models]] entry with an endpoint there", upstream.slug);
            continue;
        };
        match try_provider(&client, upstream, &endpoint.upstream_model).await {
            Ok(text) => println!("ok    {}: {text}", upstream.slug),
            Err(text) => {
                failed = true;
                println!("FAIL  {}: {text}", upstream.slug);
            }
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Counting tokens costs nothing and needs address, credential and model to be right.
async fn try_provider(client: &Client, upstream: &Upstream, model: &str) -> Result<String, String> {
    let body = serde_json::json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let headers = anthropic::headers(&Forwarded::default(), false, upstream.auth, upstream.credential.as_ref());
    let asked = timeout(LIMIT, client.send(&upstream.count_uri, headers, Bytes::from(body).into())).await;
    let host = upstream.count_uri.authority().map_or_else(String::new, ToString::to_string);
    match asked {
        Err(_) => Err(format!("{host} did not answer within {} s", LIMIT.as_secs())),
        Ok(Err(_)) => Err(format!("{host} could not be reached: check base_url and the network")),
        Ok(Ok(response)) => match response.status() {
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
