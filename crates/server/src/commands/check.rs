//! `tidegate check`: is the configuration right, and do the providers answer?

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use serde_json::json;
use tidegate_core::Clock as _;
use tidegate_core::clock::SystemClock;
use tidegate_gateway::authorise;
use tidegate_gateway::learned::BELIEVED;
use tidegate_gateway::look_at_sandbox;
use tidegate_gateway::tokens::Tokens;
use tidegate_gateway::upstream::Client;
use tidegate_gateway::{Place, Upstream};
use tidegate_providers::anthropic::{self, Forwarded};
use tidegate_providers::{Auth, Carriage, Protocol, count, platform};
use tidegate_routing::Endpoint;
use tidegate_store::learned::LearnedRow;
use tidegate_store::vault::{MasterKeySource, MasterRing};
use tidegate_store::{Looked, OpenError, Store};
use tokio::time::timeout;

use super::out::say;
use crate::config::{Checked, Source};

const LIMIT: Duration = Duration::from_secs(10);

pub async fn check(source: &Source, offline: bool) -> anyhow::Result<ExitCode> {
    let config = source.read()?;
    let looked = Store::look(&config.storage_url, &config.data_dir).await;
    startable(&config, &looked).await?;
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
    for unused in &config.unused {
        say!("note  {unused}")?;
    }
    if !providers.iter().any(|upstream| upstream.shared) {
        say!("note  no provider has a key: only the simulated models answer")?;
    }
    let (client, tokens) = (Client::default(), Tokens::default());
    let mut failed = !tell_store(looked).await?;
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
            match try_provider(&client, &tokens, upstream, &snapshot.places[endpoint.place], &endpoint.upstream_model)
                .await
            {
                Ok(text) => say!("ok    {}: {text}", upstream.slug)?,
                Err(text) => {
                    failed = true;
                    say!("FAIL  {}: {text}", upstream.slug)?;
                }
            }
        }
    }
    if let Some(sandbox) = snapshot.settings.tools.sandbox.as_deref().filter(|_| !offline) {
        match look_at_sandbox(sandbox).await {
            Some(Ok(text)) => say!("ok    tools.sandbox: {text}")?,
            Some(Err(text)) => {
                failed = true;
                say!("FAIL  tools.sandbox: {text}")?;
            }
            None => {}
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What a start would refuse besides: master keys that cannot be read, and first keys that cannot be read or are too short.
/// A ring that the first start makes is not missed, nor one of which a store that cannot be asked would tell whether it is.
async fn startable(config: &Checked, looked: &Result<Looked, OpenError>) -> anyhow::Result<()> {
    let is_first = is_first(looked).await;
    let is_missing = matches!(&config.master_key, MasterKeySource::File(path) if !path.exists());
    if !(is_missing && (is_first || looked.is_err())) {
        MasterRing::load(&config.master_key).await?;
    }
    let first = [("keys.management_key", &config.management_key), ("keys.inference_key", &config.inference_key)];
    let unfit = first.into_iter().find_map(|(name, key)| key.is_ready(name).err());
    match unfit {
        // One that was stored before goes on as it is.
        Some(unfit) if is_first => Err(unfit),
        _ => Ok(()),
    }
}

/// Whether a start would be the first one, as far as can be told.
async fn is_first(looked: &Result<Looked, OpenError>) -> bool {
    match looked {
        Ok(Looked::Empty) => true,
        Ok(Looked::Ready(store)) => store.organisation_ids().await.is_ok_and(|organisations| organisations.is_empty()),
        // No start has an earlier release's store for its first.
        Ok(Looked::Older) | Err(_) => false,
    }
}

/// Says how the store is, and what is known there of upstreams; and whether it can be used.
async fn tell_store(looked: Result<Looked, OpenError>) -> anyhow::Result<bool> {
    let learned = match looked {
        Ok(Looked::Empty) => {
            say!("note  the store has no tables yet: the next start makes them")?;
            return Ok(true);
        }
        Ok(Looked::Older) => {
            say!(
                "note  the store is of an earlier release: the next start changes its tables, which may take minutes"
            )?;
            return Ok(true);
        }
        Ok(Looked::Ready(store)) => {
            let learned = store.learned().await;
            store.close().await;
            learned.map_err(anyhow::Error::from)
        }
        Err(error) => Err(error.into()),
    };
    match learned {
        Ok(learned) => tell_learned(&learned).map(|()| true),
        Err(error) => say!("FAIL  {error:#}").map(|()| false),
    }
}

/// What the gateway has found out that upstreams do not take.
fn tell_learned(learned: &[LearnedRow]) -> anyhow::Result<()> {
    let now = SystemClock.now();
    for row in learned.iter().filter(|row| now.since(row.learned) < BELIEVED) {
        say!(
            "note  {} does not take the {} {} for {}: it is left out there",
            row.provider,
            row.kind,
            row.name,
            row.model
        )?;
    }
    Ok(())
}

/// Counting tokens costs nothing and needs address, credential and model to be right; where there is no such thing, the
/// list of models tells as much but for the model.
async fn try_provider(
    client: &Client,
    tokens: &Tokens,
    upstream: &Upstream,
    place: &Place,
    model: &str,
) -> Result<String, String> {
    let counting = counting(upstream, model);
    let uri = place.calls.count.as_ref().filter(|_| counting.is_some()).or(upstream.models_uri.as_ref());
    let uri = uri.ok_or("nothing can be asked there without making a message: not called")?;
    let counts = place.calls.count.as_ref() == Some(uri);
    let mut headers = anthropic::headers(&Forwarded::default(), upstream.carriage, None);
    let body = counting.filter(|_| counts).unwrap_or_default();
    let asking = async {
        let now = SystemClock.now();
        let credential = upstream.credential.as_ref();
        let sent =
            authorise((client, tokens, now), upstream, credential, (model, true), uri, &mut headers, body.into());
        let sent = sent.await?;
        if counts { client.send(uri, headers, sent).await } else { client.get(uri, headers).await }
    };
    let asked = timeout(LIMIT, asking).await;
    let host = place.calls.whole.authority().map_or_else(String::new, ToString::to_string);
    match asked {
        Err(_) => Err(format!("{host} did not answer within {} s", LIMIT.as_secs())),
        Ok(Err(_)) => Err(format!("{host} could not be reached: check base_url and the network")),
        Ok(Ok(response)) => verdict(response.status(), &host, uri, counts.then_some(model)),
    }
}

/// What an answer tells. Where no model was named, the question was which ones there are.
fn verdict(status: StatusCode, host: &str, uri: &Uri, model: Option<&str>) -> Result<String, String> {
    match (status, model) {
        (StatusCode::OK, None) => Ok(format!("{host} answers and knows the key")),
        (StatusCode::OK, Some(model)) => Ok(format!("{host} answers for {model}")),
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            Err(format!("{host} refuses the credential: check api_key"))
        }
        (StatusCode::NOT_FOUND, Some(_)) => {
            Ok(format!("{host} answers; it cannot count tokens, so the model was not checked"))
        }
        (StatusCode::NOT_FOUND, None) if lacks_version(uri) => {
            Err(format!("there is nothing at {uri} (404): a base_url mostly ends in /v1, and this one does not"))
        }
        (StatusCode::NOT_FOUND, None) => {
            Ok(format!("{host} answers; it has no list of models at {uri}, so neither key nor model was checked"))
        }
        (StatusCode::TOO_MANY_REQUESTS, _) => {
            Err(format!("{host} lets nobody in for now ({status}): nothing more was checked"))
        }
        (status, Some(model)) if status.is_client_error() => {
            Err(format!("{host} refuses the model {model} ({status})"))
        }
        (status, None) if status.is_client_error() => {
            Err(format!("{host} does not tell its models at {uri} ({status})"))
        }
        (status, _) => Err(format!("{host} answers with {status}")),
    }
}

/// Whether an address was written without the version that such addresses have. Vendors' own are known to be right.
fn lacks_version(uri: &Uri) -> bool {
    let is_version =
        |part: &str| part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    let uri = uri.to_string();
    let is_known = platform::PLATFORMS.iter().any(|known| uri.strip_suffix("/models") == Some(known.base_url));
    !is_known && !uri.split('/').any(is_version)
}

/// The body of a count of one short word, where a count is the better question: it finds out about the model, too.
fn counting(upstream: &Upstream, model: &str) -> Option<Bytes> {
    let words = json!([{"role": "user", "content": "hi"}]);
    let body = match (upstream.protocol, upstream.carriage) {
        (Protocol::Messages, Carriage::Plain) => json!({"model": model, "messages": words}),
        (Protocol::Messages, Carriage::Vertex) => {
            json!({"model": model, "messages": words, "anthropic_version": "vertex-2023-10-16"})
        }
        (Protocol::Messages, Carriage::BedrockInvoke) => {
            let call = json!({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 1, "messages": words});
            return Some(count::invoked(call.to_string().as_bytes()));
        }
        (Protocol::Converse, _) => {
            json!({"input": {"converse": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}}})
        }
        (Protocol::Gemini, _) if upstream.auth == Auth::Google => {
            json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
        }
        _ => return None,
    };
    Some(body.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_model_is_not_told_of_one() {
        let told = |status: u16, uri: &str, model| {
            verdict(StatusCode::from_u16(status).unwrap(), "h", &uri.parse().unwrap(), model)
        };
        let (models, counts) = ("http://h/v1/models", "http://h/v1/messages/count_tokens");
        let missing = told(404, "http://h/models", None).unwrap_err();
        assert!(missing.contains("http://h/models (404)") && missing.contains("/v1"), "{missing}");
        // A server without a list, at the address that such servers have, and a vendor whose address has no version.
        for uri in [models, "https://api.perplexity.ai/models"] {
            let listed = told(404, uri, None).unwrap();
            assert!(listed.contains("no list of models") && listed.contains(uri), "{listed}");
        }
        for (status, model, expected) in [
            (429, None, "lets nobody in for now (429"),
            (429, Some("m"), "lets nobody in for now (429"),
            (405, None, "does not tell its models at http://h/v1/models (405"),
            (400, Some("m"), "refuses the model m (400"),
            (401, None, "check api_key"),
            (503, None, "answers with 503"),
        ] {
            let said = told(status, if model.is_some() { counts } else { models }, model).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
        assert!(told(404, counts, Some("m")).is_ok() && told(200, models, None).is_ok());
    }
}
