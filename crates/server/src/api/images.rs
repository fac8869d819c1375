//! `/images`: pictures, and which models make them.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_gateway::Snapshot;
use tidegate_providers::Protocol;
use tidegate_routing::price::Unit;
use tidegate_routing::{Endpoint, Model, Pricing};
use tidegate_wire::envelope::images::{Form, MOST_IMAGES};

use super::account::{Answering, Request, answer, not_found};
use super::messages::{Asked, answered};
use super::models::created;
use super::prices::per_unit;
use crate::router::Call;

/// `POST /images`, as its clients ask.
pub fn create(call: Call) -> Answering {
    made(call, Form::Ours)
}

/// The same as OpenAI's clients ask.
pub fn create_as_openai(call: Call) -> Answering {
    made(call, Form::Openai)
}

fn made(call: Call, form: Form) -> Answering {
    Box::pin(async move {
        let Asked { app, key, head, body } = Asked::of(call).await?;
        app.gateway.images(&key, &head.headers, body, form).await.map(answered)
    })
}

#[derive(Serialize)]
struct Listed<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    created: i64,
    architecture: Architecture<'a>,
    supported_parameters: Value,
    supports_streaming: bool,
    /// Where its endpoints are listed.
    endpoints: String,
}

#[derive(Serialize)]
struct Architecture<'a> {
    input_modalities: &'a [String],
    output_modalities: &'a [String],
}

#[derive(Serialize)]
struct Offer<'a> {
    provider_name: &'a str,
    provider_slug: &'a str,
    provider_tag: Option<&'a str>,
    supported_parameters: Value,
    /// Every option is handed on, whether we know it or not, so no list could be complete.
    allowed_passthrough_parameters: [&'static str; 0],
    supports_streaming: bool,
    pricing: Vec<Value>,
}

/// Every model that makes pictures and that somebody can call with the operator's keys.
pub fn models(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let models = snapshot.catalogue.models();
        let listed = models.iter().filter(|model| !model.hidden).filter_map(|model| {
            let first = drawing(model, &snapshot).find(|endpoint| endpoint.shared)?;
            Some(Listed {
                id: &model.id,
                name: &model.name,
                description: &model.description,
                created: created(model),
                architecture: Architecture {
                    input_modalities: &model.input_modalities,
                    output_modalities: &model.output_modalities,
                },
                supported_parameters: parameters(first, &snapshot),
                supports_streaming: false,
                endpoints: format!("/api/v1/images/models/{}/endpoints", model.id),
            })
        });
        Ok(answer(StatusCode::OK, &json!({"data": listed.collect::<Vec<_>>()})))
    })
}

/// Who makes the pictures of a model.
pub fn endpoints(call: Call) -> Answering {
    Box::pin(async move {
        let request = Request::of(call)?;
        let snapshot = request.app.gateway.snapshot();
        let name = format!("{}/{}", request.param(0), request.param(1));
        let (model, _) = snapshot.catalogue.resolve(&name).ok_or_else(not_found)?;
        let offers: Vec<Offer<'_>> = drawing(model, &snapshot)
            .map(|endpoint| Offer {
                provider_name: &endpoint.provider_name,
                provider_slug: &endpoint.provider,
                provider_tag: Some(&*endpoint.tag).filter(|tag| **tag != *endpoint.provider),
                supported_parameters: parameters(endpoint, &snapshot),
                allowed_passthrough_parameters: [],
                supports_streaming: false,
                pricing: endpoint.pricing.as_ref().map(pricing).unwrap_or_default(),
            })
            .collect();
        if offers.is_empty() {
            return Err(not_found());
        }
        Ok(answer(StatusCode::OK, &json!({"id": &*model.id, "endpoints": offers})))
    })
}

/// The endpoints of a model that have a call which makes pictures.
fn drawing<'m>(model: &'m Model, snapshot: &'m Snapshot) -> impl Iterator<Item = &'m Endpoint> {
    let makes = model.makes_images();
    let endpoints = model.endpoints.iter().map(|endpoint| &**endpoint).filter(move |_| makes);
    endpoints.filter(|endpoint| snapshot.places[endpoint.place].calls.images.is_some())
}

/// What the protocol of an endpoint has words for.
fn parameters(endpoint: &Endpoint, snapshot: &Snapshot) -> Value {
    let one_of = |values: &[&str]| json!({"type": "enum", "values": values});
    let range = |min: u64, max: u64| json!({"type": "range", "min": min, "max": max});
    match snapshot.upstreams[endpoint.provider_index].protocol {
        Protocol::Gemini => {
            let ratios = ["1:1", "2:3", "3:2", "3:4", "4:3", "4:5", "5:4", "9:16", "16:9", "21:9", "auto"];
            json!({
                "aspect_ratio": one_of(&ratios),
                "resolution": one_of(&["1K", "2K", "4K"]),
                "n": range(1, 1),
            })
        }
        _ => json!({
            "quality": one_of(&["auto", "low", "medium", "high"]),
            "background": one_of(&["auto", "transparent", "opaque"]),
            "output_format": one_of(&["png", "jpeg", "webp"]),
            "output_compression": range(0, 100),
            "n": range(1, MOST_IMAGES),
        }),
    }
}

/// Prices in dollars for one token or one picture; what costs nothing is not listed.
fn pricing(pricing: &Pricing) -> Vec<Value> {
    let table = [
        (Unit::ImageOut, "output_image", "image"),
        (Unit::OutputImage, "output_image", "token"),
        (Unit::Image, "input_image", "image"),
        (Unit::InputImage, "input_image", "token"),
        (Unit::Input, "input_text", "token"),
    ];
    let priced = table.into_iter().map(|(unit, billable, each)| (pricing.base.of(unit), billable, each));
    let entry = |(price, billable, each)| {
        let mut entry = Map::new();
        entry.insert("billable".to_owned(), json!(billable));
        entry.insert("unit".to_owned(), json!(each));
        entry.insert("cost_usd".to_owned(), serde_json::from_str(&per_unit(price)).unwrap_or_default());
        Value::Object(entry)
    };
    priced.filter(|(price, ..)| price.0 > 0).map(entry).collect()
}
