//! What is done to a request before it goes out, and to an answer before it leaves, because the caller or a model's name
//! asks for it. A request without either never comes here.
//!
//! `options` reads the entries, `choose` picks a model, `heal` repairs an answer; the rest puts them together.

mod choose;
mod heal;
mod options;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidegate_observe::metrics::Plugin;
use tidegate_routing::price::Unit;
use tidegate_routing::{Endpoint, Model};
use tidegate_wire::envelope::{Brand, Envelope};
use tidegate_wire::error::ErrorType;

use crate::failure::Failure;
use crate::keys::KeyEntry;
use crate::relay::{Body, Reply, Wishes};
use crate::snapshot::Settings;
use crate::sticky::Conversation;
use crate::{Gateway, Snapshot};
use choose::{Candidate, Known, choose};
use options::{AutoRouter, Plugins};

/// What the routing metadata say of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The models as the caller wrote them, where they were changed.
    pub requested: Vec<String>,
    /// How the model was found.
    pub strategy: Option<&'static str>,
    /// Entries of `pipeline`, as JSON.
    pub entries: Vec<String>,
}

/// A request as it goes on.
#[derive(Default)]
pub(crate) struct Prepared {
    /// In place of the one that came, where it was changed.
    pub body: Option<Bytes>,
    pub told: Told,
    /// What the answer must be, where it is to be repaired.
    pub heals: Option<Value>,
    /// Plugins that have no effect in this build.
    pub unknown: Vec<String>,
}

/// A name that stands for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Router {
    Auto,
    AutoBeta,
    Free,
    Pareto,
}

impl Router {
    /// The router that a model's name stands for, and what follows the name.
    fn of<'n>(name: &'n str, brand: Brand<'_>) -> Option<(Self, &'n str)> {
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
            _ => return None,
        };
        Some((router, variants))
    }

    fn strategy(self) -> &'static str {
        match self {
            Self::Auto | Self::AutoBeta => "auto",
            Self::Free => "free",
            Self::Pareto => "pareto",
        }
    }
}

fn brand(settings: &Settings) -> Brand<'_> {
    Brand { name: &settings.brand, aliases: &settings.brand_aliases }
}

/// Whether there is anything to do for a request.
pub(crate) fn is_for(envelope: &Envelope<'_>, settings: &Settings) -> bool {
    let name = envelope.model.as_deref().unwrap_or_default();
    envelope.plugins.is_some() || Router::of(name, brand(settings)).is_some()
}

/// Does what must be done before a request goes out.
pub(crate) fn prepare(
    gate: &Gateway,
    snapshot: &Snapshot,
    key: &KeyEntry,
    body: &Bytes,
    envelope: &Envelope<'_>,
) -> Result<Prepared, Failure> {
    let entries = envelope.plugins.and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
    let plugins = Plugins::of(&entries.unwrap_or_default())?;
    let mut request: Map<String, Value> = serde_json::from_slice(body).map_err(|_| Failure::internal())?;
    let (mut told, mut is_changed) = (Told::default(), false);
    let name = envelope.model.as_deref().unwrap_or_default();
    if let Some((router, variants)) = Router::of(name, brand(&snapshot.settings)) {
        let scene = Scene { gate, snapshot, key, envelope, size: body.len(), request: &request };
        let models = scene.routed(router, name, &plugins, &mut told)?;
        told.requested = envelope.names().map(str::to_owned).collect();
        told.strategy = Some(router.strategy());
        name_models(&mut request, &models, variants, envelope);
        is_changed = true;
    }
    if let Some(parameters) = &plugins.fetch {
        is_changed |= add_fetch(&mut request, parameters, &snapshot.settings, &mut told);
    }
    let format =
        request.get("output_config").and_then(|config| config.get("format")).or_else(|| request.get("output_format"));
    let schema = format.filter(|format| format.get("type").and_then(Value::as_str) == Some("json_schema"));
    let schema = schema.and_then(|format| format.get("schema")).cloned();
    let heals = schema.filter(|_| plugins.healing && !envelope.stream);
    for (plugin, ran) in [("router", told.strategy.is_some()), ("web-fetch", is_changed && plugins.fetch.is_some())] {
        if ran {
            gate.metrics.plugin_runs.get_or_create(&Plugin { plugin }).inc();
        }
    }
    let body = is_changed.then(|| Value::Object(request).to_string().into());
    Ok(Prepared { body, told, heals, unknown: plugins.unknown })
}

/// The chosen models, and behind them those that the request names itself.
fn name_models(request: &mut Map<String, Value>, models: &[String], variants: &str, envelope: &Envelope<'_>) {
    let named = |id: &String| match variants {
        variants if id.contains(':') => format!("{id}{}", variants.replace(":free", "")),
        variants => format!("{id}{variants}"),
    };
    let mut list: Vec<String> = models.iter().map(named).collect();
    list.extend(envelope.names().skip(1).map(str::to_owned));
    request.remove("fallbacks");
    request.insert("model".into(), json!(list[0]));
    if list.len() > 1 {
        request.insert("models".into(), json!(list[1..]));
    }
}

/// Gives the model the tool that fetches pages, unless it has one.
fn add_fetch(
    request: &mut Map<String, Value>,
    parameters: &Map<String, Value>,
    settings: &Settings,
    told: &mut Told,
) -> bool {
    let kind = format!("{}:web_fetch", settings.brand);
    let tools = request.entry("tools").or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(tools) = tools else { return false };
    let is_fetch = |tool: &Value| {
        let tool = tool.get("type").and_then(Value::as_str).unwrap_or_default();
        brand(settings).tool(tool) == Some("web_fetch") || tool.starts_with("web_fetch_")
    };
    if tools.iter().any(is_fetch) {
        return false;
    }
    tools.push(json!({"type": kind, "parameters": parameters}));
    told.entries.push(json!({"type": "plugin", "name": "web-fetch", "data": {"injected": true}}).to_string());
    true
}

/// What a choice depends on.
struct Scene<'a, 'e> {
    gate: &'a Gateway,
    snapshot: &'a Snapshot,
    key: &'a KeyEntry,
    envelope: &'a Envelope<'e>,
    size: usize,
    request: &'a Map<String, Value>,
}

impl Scene<'_, '_> {
    fn routed(&self, router: Router, name: &str, plugins: &Plugins, told: &mut Told) -> Result<Vec<String>, Failure> {
        let nobody = || Failure::new(404, ErrorType::NotFound, "No models match your request and model restrictions");
        match router {
            Router::Free => {
                let mut free = self.serving(|model| model.endpoints.iter().any(|endpoint| is_free(endpoint)));
                if free.is_empty() {
                    return Err(nobody());
                }
                let first = (self.snapshot.draws.next() * free.len() as f64) as usize;
                free.rotate_left(first);
                Ok(free.iter().take(3).map(|model| format!("{}:free", model.id)).collect())
            }
            // Nobody has told how well models write programs.
            Router::Pareto => Err(nobody()),
            Router::Auto => self.auto("auto-router", name, &plugins.auto, told).ok_or_else(nobody),
            Router::AutoBeta => self.auto("auto-beta-router", name, &plugins.auto_beta, told).ok_or_else(nobody),
        }
    }

    /// Models that the caller may use and that can serve this request.
    fn serving(&self, wanted: impl Fn(&Model) -> bool) -> Vec<&Model> {
        let wishes = Wishes::of(self.envelope, self.size);
        let listed = self.snapshot.catalogue.models();
        let wanted = listed.into_iter().filter(|model| !model.hidden && wanted(model));
        let serves =
            |model: &&std::sync::Arc<Model>| self.gate.plan(self.snapshot, self.key, &[&model.id], &wishes).is_ok();
        wanted.filter(serves).map(|model| &**model).collect()
    }

    fn auto(&self, plugin: &str, name: &str, options: &AutoRouter, told: &mut Told) -> Option<Vec<String>> {
        let routing = &self.snapshot.settings.routing;
        let listed = |model: &Model| {
            let patterns = &routing.auto_candidates;
            patterns.is_empty() || patterns.iter().any(|pattern| choose::matches(pattern, &model.id))
        };
        let serving = self.serving(listed);
        let candidates = serving.iter().map(|model| Candidate { id: model.id.to_string(), price: price(model) });
        let candidates: Vec<Candidate> = candidates.collect();
        let media = self.envelope.media;
        let text = last_words(self.request);
        let task = choose::task(&text, self.envelope.asked.tools, media.images > 0, media.files > 0);
        let ranking = routing.auto_ranking.get(task).or_else(|| routing.auto_ranking.get("general"));
        let session = self.envelope.session_id.as_deref();
        let conversation = Conversation::of(&self.key.workspace, name, session, &self.envelope.opening);
        let now = self.gate.clock.now();
        let remembered = self.gate.sticky.model(&conversation, now);
        let pinned =
            last_model(self.request).filter(|_| options.pin).or_else(|| remembered.clone().filter(|_| options.pin));
        let known = Known { pinned: pinned.as_deref(), remembered: remembered.as_deref() };
        let choice = choose(candidates, options, ranking.map(Vec::as_slice).unwrap_or_default(), known)?;
        self.gate.sticky.keep_model(&conversation, &choice.models[0], now);
        let entry = json!({
            "type": "plugin",
            "name": plugin,
            "summary": format!("{} of {}", choice.models[0], choice.candidates),
            "cost_usd": 0,
            "data": {
                "task_type": task,
                "cost_tier": options.tier.map(options::Tier::as_str),
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
    let price = |unit| endpoint.pricing.as_ref().and_then(|pricing| pricing.base.get(unit));
    [Unit::Input, Unit::Output].into_iter().all(|unit| price(unit).is_some_and(|price| price.0 == 0))
}

/// What its cheapest endpoint costs: three parts input, one part output.
fn price(model: &Model) -> Option<f64> {
    let blended = |endpoint: &Endpoint| {
        let price = |unit| endpoint.pricing.as_ref().and_then(|pricing| pricing.base.get(unit));
        Some((3.0 * price(Unit::Input)?.0 as f64 + price(Unit::Output)?.0 as f64) / 4.0)
    };
    model.endpoints.iter().filter_map(|endpoint| blended(endpoint)).min_by(f64::total_cmp)
}

/// The text of the last message of a person.
fn last_words(request: &Map<String, Value>) -> String {
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

/// Repairs the last text of an answer that should be JSON and is not quite.
pub(crate) fn healed(mut reply: Reply, schema: &Value, metadata: &str) -> Reply {
    let Body::Full(Some(bytes)) = &reply.body else { return reply };
    let Ok(mut answer) = serde_json::from_slice::<Value>(bytes) else { return reply };
    let ended = answer.get("stop_reason").and_then(Value::as_str);
    if !matches!(ended, Some("end_turn" | "stop_sequence")) {
        return reply;
    }
    let Some(Value::Array(blocks)) = answer.get_mut("content") else { return reply };
    let is_text = |block: &&mut Value| block.get("type").and_then(Value::as_str) == Some("text");
    let Some(block) = blocks.iter_mut().rev().find(is_text) else { return reply };
    let said = block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(made) = heal::healed(&said, schema) else { return reply };
    let entry = json!({
        "type": "response_healing",
        "name": "response-healing",
        "data": {
            "mode": "json_schema",
            "improved": true,
            "original_length": said.chars().count(),
            "healed_length": made.text.chars().count(),
            "schema_valid": made.is_valid,
        },
    });
    block["text"] = Value::String(made.text);
    if let Some(metadata) = answer.get_mut(metadata) {
        match metadata.get_mut("pipeline") {
            Some(Value::Array(entries)) => entries.push(entry),
            _ => metadata["pipeline"] = json!([entry]),
        }
    }
    reply.body = Body::full(answer.to_string());
    reply
}
