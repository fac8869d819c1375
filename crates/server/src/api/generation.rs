//! `GET /generation`: the record of a finished request.

use std::time::Duration;

use http::StatusCode;
use serde::Serialize;
use tidegate_core::{Api, GenerationId, KeyKind, Money, Outcome, Tenant};
use tidegate_gateway::Failure;
use tidegate_gateway::ledger::applications::origin;
use tidegate_store::generations::Generation;
use tidegate_store::{Store, StoreError};

use super::account::{Answering, Dollars, Instant, Request, data, internal, not_found};
use super::form::refused;
use crate::router::Call;

/// How long a record that is not there is waited for: it is on its way from the journal to the store.
const ARRIVAL: Duration = Duration::from_millis(900);

/// Member by member as the interface has it; what we have no fact for is null.
#[derive(Serialize)]
struct Shown<'a> {
    id: &'a str,
    /// The answer carried the same.
    request_id: &'a str,
    session_id: Option<&'a str>,
    upstream_id: Option<&'a str>,
    model: &'a str,
    provider_name: Option<&'a str>,
    router: Option<&'a str>,
    api_type: &'static str,
    created_at: Instant,
    latency: Option<u32>,
    generation_time: u32,
    moderation_latency: Option<u32>,
    streamed: bool,
    cancelled: bool,
    finish_reason: Option<&'a str>,
    native_finish_reason: Option<&'a str>,
    response_cache_source_id: Option<&'a str>,
    tokens_prompt: Option<u64>,
    tokens_completion: Option<u64>,
    native_tokens_prompt: Option<u64>,
    native_tokens_completion: Option<u64>,
    native_tokens_cached: Option<u64>,
    native_tokens_reasoning: Option<u64>,
    native_tokens_completion_images: Option<u64>,
    num_media_prompt: Option<u64>,
    num_media_completion: Option<u64>,
    num_input_audio_prompt: Option<u64>,
    num_search_results: Option<u64>,
    num_fetches: Option<u64>,
    web_search_engine: Option<&'a str>,
    total_cost: Dollars,
    usage: Dollars,
    upstream_inference_cost: Option<Dollars>,
    cache_discount: Option<Dollars>,
    is_byok: bool,
    service_tier: Option<&'a str>,
    app_id: Option<i64>,
    external_user: Option<&'a str>,
    http_referer: Option<&'a str>,
    user_agent: Option<&'a str>,
    preset_id: Option<&'a str>,
    workspace_id: &'a str,
    origin: &'a str,
    data_region: &'static str,
    provider_responses: Vec<Response<'a>>,
}

/// One upstream call of the request.
#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    endpoint_id: String,
    provider_name: &'a str,
    model_permaslug: &'a str,
    /// Null when nothing answered.
    status: Option<u16>,
    latency: u32,
    is_byok: bool,
}

pub fn show(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let id = named(&mut request)?;
        let found = arrived(&request, &id).await?.ok_or_else(not_found)?;
        whole(&request, &found).await?;
        // Of a loop whose tools made some, the model's own answer is none.
        let api_type = api_type(&found);
        let turns = turns(&request.app.store, &request.tenant, found).await.map_err(internal)?;
        let found = turns.iter().cloned().reduce(Generation::with_turn).ok_or_else(not_found)?;
        let app_id = match found.referer.as_deref().and_then(origin) {
            Some(origin) => request.app.store.application_id(&origin).await.map_err(internal)?,
            None => None,
        };
        let responses = turns.iter().flat_map(responses).collect();
        Ok(data(StatusCode::OK, &shown(&found, app_id, api_type, responses)))
    })
}

/// What kind of call it was.
fn api_type(generation: &Generation) -> &'static str {
    match generation.api {
        Api::Images => "image",
        Api::Embeddings => "embeddings",
        Api::Rerank => "rerank",
        Api::Speech => "tts",
        Api::Transcriptions => "stt",
        // An earlier release left no other trace of it.
        Api::Messages if generation.usage.images_out > 0 => "image",
        Api::Messages | Api::Chat | Api::Responses => "completions",
    }
}

/// The id that the query names.
pub(super) fn named(request: &mut Request) -> Result<String, Failure> {
    let id = request.query.text("id");
    request.query.check()?;
    id.ok_or_else(|| refused("id", "is required"))
}

/// The record that the caller may see, which may still be on its way.
pub(super) async fn arrived(request: &Request, id: &str) -> Result<Option<Generation>, Failure> {
    let found = find(request, id).await?;
    if found.is_none() && request.app.gateway.ledger.forwarded(ARRIVAL).await {
        return find(request, id).await;
    }
    Ok(found)
}

/// A loop whose turns are not all on record is not there yet: who is told of a part takes it for all that it cost.
async fn whole(request: &Request, found: &Generation) -> Result<(), Failure> {
    let gateway = &request.app.gateway;
    if gateway.loops.has(&found.id) {
        return Err(not_found());
    }
    // Nothing else goes on after its answer; and its last turn may be on its way.
    let has_gone_on = found.parent.is_none() && matches!(found.stop_reason.as_deref(), Some("tool_use" | "pause_turn"));
    if has_gone_on {
        gateway.ledger.forwarded(ARRIVAL).await;
    }
    Ok(())
}

/// The record of a loop tells of all its turns together; one of a later turn, of that turn.
async fn turns(store: &Store, tenant: &Tenant, found: Generation) -> Result<Vec<Generation>, StoreError> {
    if found.parent.is_some() {
        return Ok(vec![found]);
    }
    let later = store.find_turns(tenant, &found.id).await?;
    Ok([vec![found], later].concat())
}

/// A record as it is answered with, for those who read it from the store themselves. An application's number is not
/// looked up for them.
pub async fn text(store: &Store, tenant: &Tenant, id: &GenerationId) -> Result<Option<String>, StoreError> {
    let Some(found) = store.find_generation(tenant, id).await? else { return Ok(None) };
    let api_type = api_type(&found);
    let turns = turns(store, tenant, found).await?;
    let Some(found) = turns.iter().cloned().reduce(Generation::with_turn) else { return Ok(None) };
    let shown = shown(&found, None, api_type, turns.iter().flat_map(responses).collect());
    Ok(Some(serde_json::to_string(&shown).expect("answers are made of plain values")))
}

/// The record with this id, or the newest that was answered with this message, if the caller may see it.
async fn find(request: &Request, id: &str) -> Result<Option<Generation>, Failure> {
    let (store, tenant) = (&request.app.store, &request.tenant);
    let found = match GenerationId::parse(id) {
        Some(id) => store.find_generation(tenant, &id).await.map_err(internal)?.into_iter().collect(),
        None => store.find_generations_of_message(tenant, id).await.map_err(internal)?,
    };
    for generation in found {
        if may_see(request, &generation).await? {
            return Ok(Some(generation));
        }
    }
    Ok(None)
}

/// A management key sees all of its organisation. An inference key sees what was made with it, and what its owner made
/// with other keys of the same workspace.
async fn may_see(request: &Request, generation: &Generation) -> Result<bool, Failure> {
    let key = &request.key;
    if key.kind == KeyKind::Management || key.hash == generation.key {
        return Ok(true);
    }
    let Some(creator) = key.creator.as_deref().filter(|_| key.workspace == generation.workspace) else {
        return Ok(false);
    };
    let maker = request.app.store.find_tenant_key(&request.tenant, &generation.key, None).await.map_err(internal)?;
    Ok(maker.is_some_and(|maker| maker.creator.as_deref() == Some(creator)))
}

fn shown<'a>(
    generation: &'a Generation,
    app_id: Option<i64>,
    api_type: &'static str,
    provider_responses: Vec<Response<'a>>,
) -> Shown<'a> {
    let usage = &generation.usage;
    // A request that never had an answer has no counts; one whose answer was empty has zeros.
    let is_counted = generation.usage_reported || generation.is_estimated || usage.prompt() > 0 || usage.output > 0;
    let counted = |count: u64| is_counted.then_some(count);
    let stop_reason = generation.stop_reason.as_deref();
    let cost = Dollars(generation.cost.unwrap_or(Money::ZERO));
    Shown {
        id: generation.id.as_str(),
        request_id: generation.parent.as_ref().unwrap_or(&generation.id).as_str(),
        session_id: generation.session.as_deref(),
        upstream_id: upstream_id(generation),
        model: &generation.model,
        provider_name: Some(generation.provider.as_str()).filter(|name| !name.is_empty()),
        router: generation.router.as_deref(),
        api_type,
        created_at: Instant(generation.started),
        latency: generation.first_content_ms,
        generation_time: generation.duration_ms,
        moderation_latency: None,
        streamed: generation.streamed,
        cancelled: generation.outcome == Outcome::Cancelled,
        finish_reason: stop_reason,
        native_finish_reason: own(generation.native_stop_reason.as_deref(), stop_reason),
        response_cache_source_id: generation.cache_source.as_ref().map(GenerationId::as_str),
        // We keep no counts of a tokenizer of our own.
        tokens_prompt: counted(usage.prompt()),
        tokens_completion: counted(usage.output),
        native_tokens_prompt: counted(usage.prompt()),
        native_tokens_completion: counted(usage.output),
        native_tokens_cached: counted(usage.cache_read),
        native_tokens_reasoning: counted(usage.thinking),
        native_tokens_completion_images: counted(usage.output_image),
        num_media_prompt: counted(usage.images),
        num_media_completion: counted(usage.images_out),
        num_input_audio_prompt: None,
        // Searches are counted, not what they found.
        num_search_results: None,
        num_fetches: counted(usage.web_fetches),
        web_search_engine: None,
        total_cost: cost,
        usage: cost,
        upstream_inference_cost: generation.upstream_cost.map(Dollars),
        cache_discount: generation.cache_discount.map(Dollars),
        is_byok: generation.is_byok,
        service_tier: generation.service_tier.as_deref(),
        app_id,
        external_user: generation.user.as_deref(),
        http_referer: generation.referer.as_deref(),
        user_agent: generation.user_agent.as_deref(),
        preset_id: generation.preset.as_deref(),
        workspace_id: &generation.workspace.0,
        origin: generation.referer.as_deref().unwrap_or_default(),
        data_region: "global",
        provider_responses,
    }
}

fn upstream_id(generation: &Generation) -> Option<&str> {
    own(generation.native_id.as_deref(), generation.message_id.as_deref())
}

/// What the upstream has said itself, which is what is told where the message is its own.
fn own<'a>(native: Option<&'a str>, told: Option<&'a str>) -> Option<&'a str> {
    native.or(told).filter(|text| !text.is_empty())
}

/// Every attempt of a call in its order. The last one is the one that answered, if any did. Of a loop each turn has an answer
/// and an id of its own.
fn responses(generation: &Generation) -> Vec<Response<'_>> {
    let last = generation.attempts.len().saturating_sub(1);
    let attempts = generation.attempts.iter().enumerate();
    let responses = attempts.map(|(place, attempt)| Response {
        id: upstream_id(generation).filter(|_| place == last && attempt.status < 300),
        endpoint_id: format!("{}:{}", attempt.provider, attempt.model),
        provider_name: &attempt.provider,
        model_permaslug: &attempt.model,
        status: (attempt.status != 0).then_some(attempt.status),
        latency: attempt.duration_ms,
        is_byok: attempt.is_byok,
    });
    responses.collect()
}
