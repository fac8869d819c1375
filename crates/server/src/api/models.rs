//! Which models there are, what they cost and who offers them.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use tidegate_core::Timestamp;
use tidegate_gateway::{Snapshot, Upstream};
use tidegate_routing::Model;

use super::account::{Answering, Instant, Request, answer, data, not_found};
use super::endpoints;
use super::model_filter::{Filter, TOKENIZER, longest, shown_endpoint};
use super::prices::{Shown, shown};
use crate::router::{Answer, Call};

/// Models on a page, by default and at most.
const PAGE: u32 = 500;
const MOST: u32 = 1_000;

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    canonical_slug: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    created: i64,
    context_length: u64,
    architecture: Architecture<'a>,
    pricing: Shown,
    top_provider: Top,
    per_request_limits: Option<()>,
    supported_parameters: Vec<&'static str>,
    supported_voices: Option<()>,
    default_parameters: Option<()>,
    links: Links,
}

#[derive(Serialize)]
pub struct Architecture<'a> {
    modality: String,
    input_modalities: &'a [String],
    output_modalities: &'a [String],
    tokenizer: &'static str,
    instruct_type: Option<()>,
}

impl<'a> Architecture<'a> {
    pub fn of(model: &'a Model) -> Self {
        Self {
            modality: format!("{}->{}", model.input_modalities.join("+"), model.output_modalities.join("+")),
            input_modalities: &model.input_modalities,
            output_modalities: &model.output_modalities,
            tokenizer: TOKENIZER,
            instruct_type: None,
        }
    }
}

#[derive(Serialize)]
struct Top {
    context_length: u64,
    max_completion_tokens: u64,
    is_moderated: bool,
}

#[derive(Serialize)]
struct Links {
    details: String,
}

/// Every model that somebody can call with the operator's keys.
pub fn list(call: Call) -> Answering {
    listing(call, |_, model, filter| is_shared(model) && is_asked(model, filter))
}

/// Who looks for a model to talk to has no use for one that only makes embeddings or ranks documents.
fn is_asked(model: &Model, filter: &Filter) -> bool {
    model.talks() || filter.names(model)
}

fn is_shared(model: &Model) -> bool {
    model.endpoints.iter().any(|endpoint| endpoint.shared)
}

/// Every model that makes embeddings, in the same form.
pub fn embedding(call: Call) -> Answering {
    listing(call, |_, model, _| is_shared(model) && model.embeds())
}

/// Every model that the calling key can call, with credentials of its own where there are some.
pub fn list_own(call: Call) -> Answering {
    listing(call, |request, model, filter| {
        is_asked(model, filter) && request.app.gateway.can_call(&request.key, &model.id)
    })
}

fn listing(call: Call, is_shown: fn(&Request, &Model, &Filter) -> bool) -> Answering {
    Box::pin(async move {
        let path = call.head.uri.path().to_owned();
        let mut request = Request::of(call)?;
        let (offset, limit) = (request.query.offset(), request.query.number("limit", 1..=MOST).unwrap_or(PAGE));
        let now = request.now();
        let filter = Filter::read(&mut request.query, now)?;
        let snapshot = request.app.gateway.snapshot();
        let fits =
            |model: &&Arc<Model>| !model.hidden && is_shown(&request, model, &filter) && filter.fits(model, &snapshot);
        let mut shown: Vec<&Arc<Model>> = all(&snapshot).filter(fits).collect();
        filter.sort(&mut shown, &snapshot, &request.app.gateway.health);
        let total_count = shown.len();
        let page: Vec<Listed<'_>> =
            shown.iter().skip(offset as usize).take(limit as usize).filter_map(|model| describe(model)).collect();
        let next = offset as usize + page.len();
        let next = (next < total_count).then(|| format!("{path}?{}", request.query.with("offset", &next.to_string())));
        #[derive(Serialize)]
        struct Page<'a> {
            data: Vec<Listed<'a>>,
            total_count: usize,
            links: Next,
        }
        #[derive(Serialize)]
        struct Next {
            next: Option<String>,
        }
        Ok(answer(StatusCode::OK, &Page { data: page, total_count, links: Next { next } }))
    })
}

/// Names that stand for the newest of a family come after the models themselves.
fn all(snapshot: &Snapshot) -> impl Iterator<Item = &Arc<Model>> {
    snapshot.catalogue.models().into_iter().chain(snapshot.catalogue.latest())
}

/// How many models a list would have.
pub fn count(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let now = request.now();
        let filter = Filter::read(&mut request.query, now)?;
        let snapshot = request.app.gateway.snapshot();
        let is_shown = |model: &Model| !model.hidden && is_shared(model) && is_asked(model, &filter);
        let fits = |model: &&Arc<Model>| is_shown(model) && filter.fits(model, &snapshot);
        let count = all(&snapshot).filter(fits).count();
        Ok(data(StatusCode::OK, &serde_json::json!({"count": count})))
    })
}

pub fn show(call: Call) -> Answering {
    named(call, |model| Some(data(StatusCode::OK, &describe(model)?)))
}

/// The same by itself, with the members that the clients of OpenAI and Anthropic know a model by.
pub fn retrieve(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Retrieved<'a> {
        #[serde(flatten)]
        listed: Listed<'a>,
        object: &'static str,
        owned_by: &'a str,
        r#type: &'static str,
        display_name: &'a str,
        created_at: Instant,
    }
    named(call, |model| {
        let listed = describe(model)?;
        let owned_by = model.id.split('/').next().unwrap_or_default();
        let created_at = Instant(Timestamp(listed.created * 1_000));
        let (object, display_name) = ("model", listed.name);
        let retrieved = Retrieved { listed, object, owned_by, r#type: object, display_name, created_at };
        Some(answer(StatusCode::OK, &retrieved))
    })
}

/// The model that the path names.
fn named(call: Call, answered: impl FnOnce(&Model) -> Option<Answer> + Send + 'static) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let name = format!("{}/{}", request.param(0), request.param(1));
        let model = snapshot.catalogue.shown(&name).ok_or_else(not_found)?;
        answered(model).ok_or_else(not_found)
    })
}

/// The providers that can be called, with the operator's key or with a customer's.
pub fn providers(call: Call) -> Answering {
    #[derive(Serialize)]
    struct Provider<'a> {
        name: &'a str,
        slug: &'a str,
        privacy_policy_url: Option<()>,
        terms_of_service_url: Option<()>,
        status_page_url: Option<()>,
    }
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        // The ways to reach one provider stand together.
        let mut upstreams: Vec<&Upstream> = snapshot.upstreams.iter().collect();
        upstreams.dedup_by(|one, other| one.slug == other.slug);
        let named = upstreams.into_iter().map(|upstream| Provider {
            name: &upstream.display_name,
            slug: &upstream.slug,
            privacy_policy_url: None,
            terms_of_service_url: None,
            status_page_url: None,
        });
        Ok(data(StatusCode::OK, &named.collect::<Vec<_>>()))
    })
}

/// When a model was released, in Unix seconds; 0 where nobody said it.
pub fn created(model: &Model) -> i64 {
    model.released.map_or(0, |day| day.0.div_euclid(1_000))
}

/// A model as its first endpoint serves it, one of the operator's where there is one.
fn describe<'a>(model: &'a Model) -> Option<Listed<'a>> {
    let first = shown_endpoint(model)?;
    Some(Listed {
        id: &model.id,
        // That of a name for the newest is the one of whom it stands for.
        canonical_slug: &first.model,
        name: &model.name,
        description: &model.description,
        created: created(model),
        context_length: longest(model),
        architecture: Architecture::of(model),
        pricing: shown(first.pricing.as_ref()),
        top_provider: Top {
            context_length: first.context_length,
            max_completion_tokens: first.max_output_tokens,
            is_moderated: false,
        },
        per_request_limits: None,
        supported_parameters: endpoints::parameters(first),
        supported_voices: None,
        default_parameters: None,
        links: Links { details: format!("/api/v1/model/{}", model.id) },
    })
}
