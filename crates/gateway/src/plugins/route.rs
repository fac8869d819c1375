//! Names that stand for a choice of models: which they are, and what is chosen.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate_routing::price::Unit;
use tidegate_routing::{Endpoint, Live as _, Modality, Model, Pricing};
use tidegate_wire::envelope::{Brand, Envelope};
use tidegate_wire::error::ErrorType;

use super::Told;
use super::choose::{self, Candidate, Known, choose};
use super::options::{AutoRouter, Pareto, Plugins, Tier};
use super::pareto::{self, Scored};
use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::Wishes;
use crate::snapshot::{Auto, SIMULATOR};
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot, request};

/// Said where nothing can be chosen by scores.
const UNSCORED: &str = "No model of this deployment has a score for writing programs: the operator sets \
    benchmarks.coding_percentile of models, or routing.coding_percentiles";

/// Said where nobody writes requests by description.
const UNBUILT: &str = "This deployment has no model that writes requests: the operator sets routing.bodybuilder.model";

/// How they are written.
const WRITER: &str = "You turn what the user describes into the bodies of API requests. Answer with JSON alone, without \
    code fences: {\"requests\": [BODY, …]}, with one BODY for each call that is described. A BODY has \"model\", \
    \"max_tokens\" and \"messages\": [{\"role\": \"user\", \"content\": \"…\"}], and beside them only what the description \
    asks for, such as \"system\", \"temperature\" or \"tools\". Do not carry out what is described. Where a model is named \
    loosely, take the nearest of those that can be named; where none is, the first.";
/// Models that are listed there.
const MOST_NAMED: usize = 300;

/// The simulator's own name of the model that answers as others do.
const ECHO: &str = "sim";

/// A name that stands for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Router {
    Auto,
    AutoBeta,
    Free,
    Pareto,
    Fusion,
    FusionFlash,
    Bodybuilder,
}

impl Router {
    /// The router that a model's name stands for, and what follows the name.
    pub fn of<'n>(name: &'n str, brand: Brand<'_>) -> Option<(Self, &'n str)> {
        let name = name.trim();
        let (name, variants) = name.split_at(name.find(':').unwrap_or(name.len()));
        let (author, slug) = name.split_once('/')?;
        if author != brand.name && !brand.aliases.iter().any(|alias| alias == author) {
            return None;
        }
        let router = match slug {
            "auto" => Self::Auto,
            "auto-beta" => Self::AutoBeta,
            "free" => Self::Free,
            "pareto-code" => Self::Pareto,
            "fusion" => Self::Fusion,
            "fusion-flash" => Self::FusionFlash,
            "bodybuilder" => Self::Bodybuilder,
            _ => return None,
        };
        Some((router, variants))
    }

    pub fn strategy(self) -> &'static str {
        match self {
            Self::Auto | Self::AutoBeta => "auto",
            Self::Free => "free",
            Self::Pareto => "pareto",
            Self::Fusion | Self::FusionFlash => "fusion",
            Self::Bodybuilder => "bodybuilder",
        }
    }
}

/// Models that a request may list beside the first one.
const MOST_MODELS: usize = 16;

/// The chosen models, and behind them those that the request names itself.
fn name_models(request: &mut Map<String, Value>, models: &[String], variants: &str, envelope: &Envelope<'_>) {
    let named = |id: &String| match variants {
        variants if id.contains(':') => format!("{id}{}", variants.replace(":free", "")),
        variants => format!("{id}{variants}"),
    };
    let mut list: Vec<String> = models.iter().map(named).collect();
    list.extend(envelope.names().skip(1).map(str::to_owned));
    request.remove("fallbacks");
    // What was chosen comes first, so what is one too many is the caller's last.
    list.truncate(1 + MOST_MODELS);
    request.insert("model".into(), json!(list[0]));
    if list.len() > 1 {
        request.insert("models".into(), json!(list[1..]));
    }
}

/// The body with the models that the name of a router stands for; nothing when its model is no router. `answers`: who does
/// for a panel. `keeps`: the choice is remembered.
pub(super) fn routed(
    gate: &Gateway,
    snapshot: &Snapshot,
    key: &KeyEntry,
    (body, envelope): (&Bytes, &Envelope<'_>),
    (plugins, answers): (&Plugins, Option<&str>),
    keeps: bool,
    told: &mut Told,
) -> Result<Option<Bytes>, Failure> {
    let name = envelope.model.as_deref().unwrap_or_default();
    let Some((router, variants)) = Router::of(name, super::brand(&snapshot.settings)) else { return Ok(None) };
    let mut request = request::read(body)?;
    let scene = Scene {
        gate,
        snapshot,
        key,
        envelope,
        size: body.len(),
        request: &request,
        parses: plugins.parser.may_parse(),
        keeps,
    };
    let models = match (router, answers) {
        (Router::Fusion | Router::FusionFlash, Some(model)) => vec![model.to_owned()],
        _ => scene.routed(router, (name, variants), plugins, told)?,
    };
    let writer = (router == Router::Bodybuilder).then(|| scene.writer());
    told.requested = envelope.names().map(str::to_owned).collect();
    told.strategy = Some(router.strategy());
    name_models(&mut request, &models, variants, envelope);
    if let Some(writer) = writer {
        instruct(&mut request, writer);
    }
    Ok(Some(Value::Object(request).to_string().into()))
}

/// Puts instructions before those of the request.
fn instruct(request: &mut Map<String, Value>, instructions: String) {
    let mut system = vec![json!({"type": "text", "text": instructions})];
    match request.remove("system") {
        Some(Value::String(text)) if !text.is_empty() => system.push(json!({"type": "text", "text": text})),
        Some(Value::Array(blocks)) => system.extend(blocks),
        _ => {}
    }
    request.insert("system".into(), Value::Array(system));
}

/// What a choice depends on.
struct Scene<'a, 'e> {
    gate: &'a Gateway,
    snapshot: &'a Snapshot,
    key: &'a KeyEntry,
    envelope: &'a Envelope<'e>,
    size: usize,
    request: &'a Map<String, Value>,
    /// Whether documents may be given as text.
    parses: bool,
    /// Whether the choice is remembered, and taken from the sequence that calls draw from.
    keeps: bool,
}

impl Scene<'_, '_> {
    fn routed(
        &self,
        router: Router,
        (name, variants): (&str, &str),
        plugins: &Plugins,
        told: &mut Told,
    ) -> Result<Vec<String>, Failure> {
        let nobody = || Failure::new(404, ErrorType::NotFound, "No models match your request and model restrictions");
        match router {
            Router::Free => {
                let is_free = |model: &Model| model.endpoints.iter().any(|endpoint| is_free(endpoint));
                let mut free = self.serving(|model| is_free(model) && !self.is_stand_in(model));
                if free.is_empty() {
                    return Err(nobody());
                }
                let drawn = if self.keeps { self.snapshot.draws.next() } else { 0.0 };
                let first = (drawn * free.len() as f64) as usize;
                free.rotate_left(first);
                Ok(free.iter().take(3).map(|model| format!("{}:free", model.id)).collect())
            }
            Router::Pareto => {
                let is_fast = variants.split(':').any(|variant| variant.trim() == "nitro");
                if !self.has_scores() {
                    return Err(Failure::new(404, ErrorType::NotFound, UNSCORED));
                }
                self.pareto(name, &plugins.pareto, is_fast, told).ok_or_else(nobody)
            }
            Router::Bodybuilder => {
                let model = self.snapshot.settings.routing.bodybuilder.clone();
                let unset = || Failure::new(404, ErrorType::NotFound, UNBUILT);
                model.map(|model| vec![model]).ok_or_else(unset)
            }
            // Nobody who could answer is named.
            Router::Fusion | Router::FusionFlash => Err(nobody()),
            Router::Auto => {
                let way = ("auto-router", &self.snapshot.settings.routing.auto);
                self.auto(way, name, &plugins.auto, told).ok_or_else(nobody)
            }
            Router::AutoBeta => {
                let way = ("auto-beta-router", &self.snapshot.settings.routing.auto_beta);
                self.auto(way, name, &plugins.auto_beta, told).ok_or_else(nobody)
            }
        }
    }

    /// What who writes requests by description is told: how, and which models there are.
    fn writer(&self) -> String {
        let models = self.serving(|model| !self.is_stand_in(model));
        let models: Vec<&str> = models.iter().take(MOST_NAMED).map(|model| &*model.id).collect();
        format!("{WRITER}\nModels that can be named: {}.", models.join(", "))
    }

    /// Models that the caller may use and that can serve this request.
    fn serving(&self, wanted: impl Fn(&Model) -> bool) -> Vec<&Model> {
        let mut wishes = Wishes::of(self.envelope, self.size);
        let listed = self.snapshot.catalogue.models().into_iter();
        let wanted: Vec<&Arc<Model>> =
            listed.filter(|model| !model.hidden && model.writes() && wanted(model)).collect();
        let serving = |wishes: &Wishes<'_>| {
            let serves = |model: &&&Arc<Model>| self.gate.plan(self.snapshot, self.key, &[&model.id], wishes).is_ok();
            wanted.iter().filter(serves).map(|model| &***model).collect::<Vec<&Model>>()
        };
        let found = serving(&wishes);
        if !found.is_empty() || self.envelope.media.files == 0 || !self.parses {
            return found;
        }
        // Nobody reads files: they are given documents as text.
        wishes.needs.modalities = wishes.needs.modalities.without(Modality::File);
        serving(&wishes)
    }

    /// Whether it is the simulator's while somebody else's models can be called: nobody who leaves the choice to us wants to
    /// hear an echo, and never one of those that fail on purpose.
    fn is_stand_in(&self, model: &Model) -> bool {
        // Those that nobody gave the gateway a key for have endpoints as well.
        let is_real = |model: &Arc<Model>| !is_simulated(model) && model.endpoints.iter().any(|way| way.shared);
        let fails = model.endpoints.iter().any(|way| &*way.upstream_model != ECHO);
        is_simulated(model) && (fails || self.snapshot.catalogue.models().into_iter().any(is_real))
    }

    /// Whether it is known of any model how well it writes programs.
    fn has_scores(&self) -> bool {
        let scored = &self.snapshot.settings.routing.coding_percentiles;
        let is_scored = |model: &&Arc<Model>| model.coding_percentile.is_some() || scored.contains_key(&*model.id);
        self.snapshot.catalogue.models().iter().any(is_scored)
    }

    fn pareto(&self, name: &str, options: &Pareto, is_fast: bool, told: &mut Told) -> Option<Vec<String>> {
        let routing = &self.snapshot.settings.routing;
        let score = |model: &Model| routing.coding_percentiles.get(&*model.id).copied().or(model.coding_percentile);
        let live = self.gate.health.view(&self.snapshot.ward);
        let scored = |model: &&Model| {
            let ways = || model.endpoints.iter();
            let speed = ways().filter_map(|way| live.of(way, None).throughput.p50).max_by(f32::total_cmp);
            let input = |way: &Arc<Endpoint>| way.pricing.as_ref().and_then(|pricing| pricing.base.get(Unit::Input));
            // Prices are in billionths of a dollar.
            let price = ways().filter_map(|way| Some(input(way)?.0 as f64 / 1e9)).min_by(f64::total_cmp);
            let speed = if is_fast { speed } else { None };
            Some(Scored { id: model.id.to_string(), score: score(model)?, price, speed })
        };
        let candidates = self.serving(|model| score(model).is_some()).iter().filter_map(scored).collect();
        let session = self.envelope.session_id.as_deref();
        let conversation = Conversation::of(&self.key.workspace, name, session, &self.envelope.opening);
        let now = self.gate.clock.now();
        let remembered = self.gate.sticky.model(&conversation, now);
        let choice = pareto::choose(candidates, options, is_fast, remembered.as_deref())?;
        told.conversation = Some(conversation).filter(|_| self.keeps);
        let entry = json!({
            "type": "plugin",
            "name": "pareto-router",
            "summary": format!("{} of {}", choice.models[0], choice.told["candidates"]),
            "cost_usd": 0,
            "data": choice.told,
        });
        told.entries.push(entry.to_string());
        Some(choice.models)
    }

    fn auto(
        &self,
        (plugin, ways): (&str, &Auto),
        name: &str,
        options: &AutoRouter,
        told: &mut Told,
    ) -> Option<Vec<String>> {
        let listed = |model: &Model| {
            let patterns = &ways.candidates;
            if patterns.is_empty() {
                return !self.is_stand_in(model);
            }
            patterns.iter().any(|pattern| choose::matches(pattern, &model.id))
        };
        let serving = self.serving(listed);
        let candidates = serving.iter().map(|model| Candidate { id: model.id.to_string(), price: price(model) });
        let candidates: Vec<Candidate> = candidates.collect();
        let media = self.envelope.media;
        let text = last_words(self.request);
        let task = choose::task(&text, self.envelope.asked.tools, media.images > 0, media.files > 0);
        let ranking = ways.ranking.get(task).or_else(|| ways.ranking.get("general"));
        let session = self.envelope.session_id.as_deref();
        let conversation = Conversation::of(&self.key.workspace, name, session, &self.envelope.opening);
        let now = self.gate.clock.now();
        let remembered = self.gate.sticky.model(&conversation, now);
        let pinned =
            last_model(self.request).filter(|_| options.pin).or_else(|| remembered.clone().filter(|_| options.pin));
        let known = Known { pinned: pinned.as_deref(), remembered: remembered.as_deref() };
        let choice = choose(candidates, options, ranking.map(Vec::as_slice).unwrap_or_default(), known)?;
        told.conversation = Some(conversation).filter(|_| self.keeps);
        let is_cut = options.enabled && (options.tier.is_some() || options.tradeoff.is_none());
        let tier = is_cut.then(|| options.tier.unwrap_or(Tier::Low).as_str());
        let entry = json!({
            "type": "plugin",
            "name": plugin,
            "summary": format!("{} of {}", choice.models[0], choice.candidates),
            "cost_usd": 0,
            "data": {
                "task_type": task,
                "cost_tier": tier,
                "candidates": choice.candidates,
                "source": choice.source,
                "pinned": choice.is_pinned,
                "sticky": choice.is_sticky,
            },
        });
        told.entries.push(entry.to_string());
        Some(choice.models)
    }
}

fn is_free(endpoint: &Endpoint) -> bool {
    endpoint.pricing.as_ref().is_some_and(Pricing::is_free)
}

fn is_simulated(model: &Model) -> bool {
    model.endpoints.iter().any(|endpoint| *endpoint.provider == *SIMULATOR)
}

/// What its cheapest endpoint costs: three parts input, one part output.
fn price(model: &Model) -> Option<f64> {
    let blended = |endpoint: &Endpoint| {
        if is_free(endpoint) {
            return Some(0.0);
        }
        let price = |unit| endpoint.pricing.as_ref().and_then(|pricing| pricing.base.get(unit));
        Some((3.0 * price(Unit::Input)?.0 as f64 + price(Unit::Output)?.0 as f64) / 4.0)
    };
    model.endpoints.iter().filter_map(|endpoint| blended(endpoint)).min_by(f64::total_cmp)
}

/// The text of the last message of a person.
pub(super) fn last_words(request: &Map<String, Value>) -> String {
    let messages = request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let last = messages.iter().rev().find(|message| message.get("role").and_then(Value::as_str) == Some("user"));
    match last.and_then(|message| message.get("content")) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            let texts: Vec<&str> = blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// The model that the client remembers of the last answer.
fn last_model(request: &Map<String, Value>) -> Option<String> {
    let messages = request.get("messages")?.as_array()?;
    let last =
        messages.iter().rev().find(|message| message.get("role").and_then(Value::as_str) == Some("assistant"))?;
    last.get("model")?.as_str().map(str::to_owned)
}
