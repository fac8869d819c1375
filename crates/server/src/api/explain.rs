//! `POST /explain`: which endpoints a request would meet now, in which order, and why the others were left out. Nothing
//! is called and nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use tidegate_gateway::explain::{Draw, Story};
use tidegate_gateway::{Failure, KeyEntry};
use tidegate_routing::plan::explain::{Outcome, Verdict};
use tidegate_routing::plan::{Code, PER_CALL, PER_MODEL, UNPRICED};
use tidegate_store::keys::KeyMatch;
use tidegate_wire::json::{self, Kind};

use super::account::{Answering, Request, data, internal};
use super::form::{Form, refused};
use crate::router::Call;

const LONGEST_MODEL: usize = 512;
const LONGEST_HASH: usize = 64;

/// The story of a request, as it is told over HTTP and at a shell.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    /// Models in their order of preference, as the caller wrote them.
    pub requested: Vec<String>,
    /// How the first of them was found.
    pub strategy: String,
    /// `live`, or `unknown`: from the configuration alone.
    pub health: String,
    /// `likeliest`: of those among whom chance decides, the one first that it favours. `conversation`: the one that this
    /// conversation gets.
    pub order: String,
    /// An estimate, on the safe side.
    pub input_tokens: u64,
    /// Of all models, before the filters.
    pub endpoints: usize,
    pub attempts_per_model: usize,
    pub attempts_per_request: usize,
    /// Those that are tried in their order, then the others.
    pub candidates: Vec<Candidate>,
    /// What the caller would be told instead of an answer.
    pub refusal: Option<Refusal>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Among the attempts, from 1.
    pub place: Option<usize>,
    pub endpoint: String,
    pub model: String,
    /// The customer's own; null: the operator's.
    pub credential: Option<String>,
    /// By which endpoints are compared, in dollars per million tokens; null where none is known.
    pub price: Option<f64>,
    pub group: String,
    /// Was told to wait.
    pub cools_down: bool,
    /// The share of calls that go past it now, where another can serve, because its provider refuses most.
    pub passed_over: f64,
    /// How likely it is to come first among those that are ordered together, before stickiness.
    pub probability: f64,
    pub removed_by: Option<String>,
    pub reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Refusal {
    pub status: u16,
    pub code: Option<String>,
    pub message: String,
}

impl Told {
    /// A model that does not exist has no story.
    pub fn of(story: &Story) -> Result<Self, Failure> {
        let (strategy, endpoints, refusal) = match &story.explained.plan {
            Ok(plan) => (plan.attempts.first().map(|attempt| attempt.strategy), plan.total, None),
            Err(error) if error.code == Code::ModelNotFound => {
                return Err(Failure::invalid(error.message.clone()));
            }
            Err(error) => {
                let (status, code) = (error.code.status(), error.code.as_str().map(str::to_owned));
                let refusal = Refusal { status, code, message: error.message.clone() };
                (Some(error.strategy), error.total, Some(refusal))
            }
        };
        let order = match story.draw {
            Draw::Likeliest => "likeliest",
            Draw::Conversation => "conversation",
        };
        Ok(Self {
            requested: story.requested.clone(),
            strategy: strategy.map(|strategy| strategy.as_str().to_owned()).unwrap_or_default(),
            health: if story.is_live { "live" } else { "unknown" }.to_owned(),
            order: order.to_owned(),
            input_tokens: story.needs.input_tokens,
            endpoints,
            attempts_per_model: PER_MODEL,
            attempts_per_request: PER_CALL,
            candidates: story.explained.verdicts.iter().zip(&story.passed_over).map(candidate).collect(),
            refusal,
        })
    }
}

fn candidate((verdict, passed_over): (&Verdict, &f64)) -> Candidate {
    let (place, removed_by, reason) = match verdict.outcome {
        Outcome::Place(place) => (Some(place + 1), None, None),
        Outcome::Removed(filter) => (None, Some(filter.as_str()), Some(filter.reason())),
        Outcome::NotListed => (None, Some("allow_fallbacks"), Some("fallbacks are off, and another comes first")),
    };
    Candidate {
        place,
        endpoint: verdict.tag.to_string(),
        model: verdict.model.to_string(),
        credential: verdict.credential.as_deref().map(str::to_owned),
        price: (verdict.price < UNPRICED).then_some(verdict.price),
        group: verdict.group.as_str().to_owned(),
        cools_down: verdict.cools,
        passed_over: *passed_over,
        probability: verdict.probability,
        removed_by: removed_by.map(str::to_owned),
        reason: reason.map(str::to_owned),
    }
}

/// The body of the message that is explained: the one that is given, for the model that is named; else a short one.
pub fn message(model: Option<&str>, request: Option<&RawValue>) -> Result<Bytes, &'static str> {
    let text = match (model, request) {
        (None, None) => return Err("is required without a request"),
        (Some(model), None) => json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string(),
        (None, Some(request)) => request.get().to_owned(),
        (Some(model), Some(request)) => {
            let members: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(request.get());
            let mut members = members.map_err(|_| "must be the body of a message: a JSON object")?;
            let named = serde_json::value::to_raw_value(model).map_err(|_| "must be a text")?;
            members.insert("model".to_owned(), &named);
            serde_json::to_string(&members).map_err(|_| "must be JSON")?
        }
    };
    Ok(Bytes::from(text))
}

pub fn explain(call: Call) -> Answering {
    Box::pin(async move {
        let mut request = Request::of(call)?;
        let body = request.message_body().await?;
        let mut form = Form::read(&body)?;
        let model = form.text("model", 1..=LONGEST_MODEL);
        let sent = form.value("request", |reader, raw| match json::kind(raw) {
            Kind::Object => Some(raw),
            _ => reader.refuse("must be the body of a message: a JSON object"),
        });
        let key = form.text("key", 1..=LONGEST_HASH);
        form.finish()?;
        let message = message(model.as_deref(), sent).map_err(|wrong| refused("model", wrong))?;
        let key = match key {
            Some(hash) => Some(named(&request, &hash).await?),
            None => None,
        };
        let story = request.app.gateway.explain(key.as_ref(), &message).await?;
        Ok(data(StatusCode::OK, &Told::of(&story)?))
    })
}

/// The live key of this account whose hash begins so.
async fn named(request: &Request, hash: &str) -> Result<Arc<KeyEntry>, Failure> {
    let found = request.app.store.find_key_by_prefix(&request.tenant, hash).await.map_err(internal)?;
    let hash = match found {
        KeyMatch::One(key) => key.hash,
        KeyMatch::None => return Err(refused("key", "is not the beginning of a key's hash")),
        KeyMatch::Several => return Err(refused("key", "is the beginning of several keys' hashes: give more of it")),
    };
    let keys = &request.app.gateway.keys;
    let known = match keys.known(&hash) {
        Some(known) => Some(known),
        None => keys.look_up(&hash, request.now()).await.map_err(internal)?,
    };
    known.ok_or_else(|| refused("key", "is not the beginning of a key's hash"))
}
